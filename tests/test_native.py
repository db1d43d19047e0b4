"""The compiled library, how it is built, found and done without."""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest

from polyseme import _native
from polyseme._native import build as native_build


@pytest.fixture
def sources(tmp_path):
    """Copy the sources to a folder of their own."""
    for name in native_build.SOURCES:
        shutil.copy(native_build.FOLDER / name, tmp_path / name)
    return tmp_path


def test_the_name_tells_all_sources_and_the_platform(sources):
    assert {path.name for path in native_build.FOLDER.glob("*.[ch]")} == set(native_build.SOURCES)
    first = native_build.library_path(sources)
    assert sys.platform in first.name
    with (sources / "search.h").open("a") as file:
        file.write("/* changed */\n")
    assert native_build.library_path(sources).name != first.name


@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")
def test_it_is_compiled_once_and_replaces_older_ones(sources, monkeypatch):
    monkeypatch.delenv("CC", raising=False)
    old = sources / "nearest-old-linux.so"
    old.touch()
    path = native_build.build(sources)
    assert path.is_file()
    assert not old.exists()
    monkeypatch.setenv("CC", "no-such-compiler")
    assert native_build.build(sources) == path


@pytest.mark.parametrize("compiler", ["no-such-compiler", f"{sys.executable} -c 'raise OSError'"])
def test_a_failed_build_says_why_and_leaves_nothing(sources, monkeypatch, compiler):
    monkeypatch.setenv("CC", compiler)
    with pytest.raises(native_build.BuildError, match=r"no-such-compiler|failed: "):
        native_build.build(sources)
    assert {path.name for path in sources.iterdir()} == set(native_build.SOURCES)


def test_the_wheel_is_for_any_python_3_on_this_platform():
    tag = native_build.wheel_tag()
    assert tag.startswith("py3-none-")
    assert "-" not in tag.removeprefix("py3-none-")


def test_it_can_be_turned_off_and_less_but_not_more_asked_for(monkeypatch):
    monkeypatch.delenv("POLYSEME_NATIVE", raising=False)
    best = _native.level()
    for place, name in enumerate(_native.LEVELS):
        monkeypatch.setenv("POLYSEME_NATIVE", name)
        assert _native.level() == min(best, place)
    monkeypatch.setenv("POLYSEME_NATIVE", "0")
    assert _native.library() is None
    assert _native.level() == 0


def test_importing_the_index_starts_no_compiler_and_loads_no_library():
    code = (
        "import sys, polyseme.index, polyseme._native as native;"
        "assert native._load.cache_info().currsize == 0"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
