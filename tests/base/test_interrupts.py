"""Ctrl-C ends a command with one line and exit code 130, also while it is loaded."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import polyseme
from polyseme.base import interrupts

# Presses Ctrl-C when a module is imported.
SCRIPT = """
import os, sys
module, when = sys.argv[1:3]
del sys.argv[1:3]
from polyseme.base import interrupts
interrupts.heed()
interrupts._SECONDS = 0.3

def press():
    os.kill(os.getpid(), 2)
    for _ in range(1000):
        pass  # the handler runs between two steps of Python

class PressWhenCollected:
    def __del__(self):
        press()

class PressAtImport:
    def find_spec(self, name, path=None, target=None):
        if name != module:
            return
        sys.meta_path.remove(self)
        if when == "unraisable":
            PressWhenCollected()
            return
        try:
            press()
        except BaseException:
            if when == "as another error":
                raise ImportError("half loaded") from None
            if when != "swallowed":
                raise

sys.meta_path.insert(0, PressAtImport())
from polyseme.__main__ import main
main()
"""


def run_python(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run Python with this package in a process of its own."""
    assert polyseme.__file__ is not None
    source = str(Path(polyseme.__file__).parents[1])
    environment = {**os.environ, "PYTHONPATH": source, "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def check_interrupted_fit(folder: Path, module: str, when: str) -> None:
    """Check that Ctrl-C while a module is imported ends `fit` with one line."""
    command = ("fit", f"model-{when[:3]}", "-d", "d.jsonl")
    process = run_python(folder, "-c", SCRIPT, module, when, *command)
    assert process.returncode == 130, process.stderr
    assert process.stderr.count("interrupted") == 1
    assert "Traceback" not in process.stderr


@pytest.fixture(scope="module")
def tables(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("tables")
    lines = ['["a", "b"]', '["b", "c"]', '["a", "c", "d"]']
    text = "\n".join(lines * 5)
    (folder / "d.jsonl").write_text(text)
    return folder


@pytest.mark.parametrize(
    "module",
    ["polyseme.cli", "typer", "numpy", "scipy.sparse", "polyseme.tagger", "polyseme.space.steps"],
)
def test_ctrl_c_during_an_import_ends_the_command_with_one_line(tables, module):
    check_interrupted_fit(tables, module, "at once")


@pytest.mark.parametrize("when", ["swallowed", "unraisable", "as another error"])
def test_ctrl_c_that_a_library_swallows_still_ends_the_command(tables, when):
    check_interrupted_fit(tables, "polyseme.tagger", when)


def test_an_interrupt_is_reported_once_a_command(capsys, monkeypatch):
    monkeypatch.setattr(interrupts._State, "has_told", False)
    interrupts.tell("one")
    interrupts.tell("two")
    assert capsys.readouterr().err == "one\n"
    interrupts.begin()
    interrupts.tell("three")
    assert capsys.readouterr().err == "three\n"
    monkeypatch.setattr(interrupts._State, "is_interrupted", True)
    with pytest.raises(KeyboardInterrupt):
        interrupts.begin()


def test_ctrl_c_at_the_end_of_a_command_changes_nothing(tables):
    code = "import atexit, os; atexit.register(lambda: os.kill(os.getpid(), 2)); "
    code += "from polyseme.__main__ import main; main()"
    process = run_python(tables, "-c", code, "info", "d.jsonl")
    assert process.returncode == 0
    assert process.stderr == ""
    assert '"documents": 15' in process.stdout
