"""Ctrl-C ends a command with one line and exit code 130, also while it is loaded."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import polyseme
from polyseme import _interrupts

# Presses Ctrl-C when a module is imported, at the first line of it or when it was loaded.
SCRIPT = """
import os, sys
wanted, when = sys.argv[1:3]
del sys.argv[1:3]
from polyseme import _interrupts
_interrupts.heed()
_interrupts._SECONDS = 0.3

class Press:
    def find_spec(self, name, path=None, target=None):
        if name == wanted:
            sys.meta_path.remove(self)
            if when == "swallowed":
                try:
                    os.kill(os.getpid(), 2)
                    for _ in range(1000):
                        pass
                except BaseException:
                    pass
            elif when == "unraisable":
                class Dropped:
                    def __del__(self):
                        os.kill(os.getpid(), 2)
                        for _ in range(1000):
                            pass
                Dropped()
            elif when == "as another error":
                try:
                    os.kill(os.getpid(), 2)
                    for _ in range(1000):
                        pass
                except BaseException:
                    raise ImportError("half loaded") from None
            else:
                os.kill(os.getpid(), 2)

sys.meta_path.insert(0, Press())
from polyseme.__main__ import main
main()
"""


def pressed(folder: Path, module: str, when: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a command in which Ctrl-C is pressed when a module is imported."""
    assert polyseme.__file__ is not None
    source = str(Path(polyseme.__file__).parents[1])
    return subprocess.run(
        [sys.executable, "-c", SCRIPT, module, when, *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": source, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def tables(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("tables")
    rows = [["a", "b"], ["b", "c"], ["a", "c", "d"]] * 5
    text = "".join(json.dumps({"labels": row}) + "\n" for row in rows)
    (folder / "d.jsonl").write_text(text)
    return folder


@pytest.mark.parametrize(
    "module",
    ["polyseme.cli", "typer", "numpy", "scipy.sparse", "polyseme.tagger", "polyseme.steps"],
)
def test_ctrl_c_while_something_is_loaded_is_one_line(tables, module):
    done = pressed(tables, module, "at once", "fit", "model", "-d", "d.jsonl")
    assert done.returncode == 130, done.stderr
    assert done.stderr.count("interrupted") == 1 and "Traceback" not in done.stderr


@pytest.mark.parametrize("when", ["swallowed", "unraisable", "as another error"])
def test_ctrl_c_that_a_library_swallows_is_not_ignored(tables, when):
    done = pressed(tables, "polyseme.tagger", when, "fit", f"model-{when[:3]}", "-d", "d.jsonl")
    assert done.returncode == 130, done.stderr
    assert done.stderr.count("interrupted") == 1 and "Traceback" not in done.stderr


def test_an_interrupt_is_told_once_a_command(capsys, monkeypatch):
    monkeypatch.setattr(_interrupts._State, "told", False)
    _interrupts.tell("one")
    _interrupts.tell("two")
    assert capsys.readouterr().err == "one\n"
    _interrupts.begin()
    _interrupts.tell("three")
    assert capsys.readouterr().err == "three\n"
    monkeypatch.setattr(_interrupts._State, "asked", True)
    with pytest.raises(KeyboardInterrupt):
        _interrupts.begin()


def test_ctrl_c_when_everything_is_done_changes_nothing(tables):
    code = "import atexit, os; atexit.register(lambda: os.kill(os.getpid(), 2)); "
    code += "from polyseme.__main__ import main; main()"
    assert polyseme.__file__ is not None
    source = str(Path(polyseme.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-c", code, "info", "d.jsonl"],
        cwd=tables,
        env={**os.environ, "PYTHONPATH": source},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "") and '"documents": 15' in done.stdout
