"""The compiled library: how it is built, named, found, and done without."""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading

import pytest
from threadpoolctl import threadpool_info

from polyseme import _native
from polyseme._native import build as native_build
from polyseme._threads import n_cores, one_blas_thread, one_thread


@pytest.fixture
def sources(tmp_path):
    """Copy the sources to a folder of their own."""
    for name in native_build.SOURCES:
        shutil.copy(native_build.FOLDER / name, tmp_path / name)
    return tmp_path


def test_the_name_tells_sources_and_platform(sources):
    first = native_build.library_path(sources)
    assert sys.platform in first.name
    with (sources / "search.h").open("a") as file:
        file.write("/* changed */\n")
    assert native_build.library_path(sources).name != first.name


def test_all_sources_count(sources):
    found = {path.name for path in native_build.FOLDER.glob("*.[ch]")}
    assert found == set(native_build.SOURCES)


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


def test_it_can_be_turned_off(monkeypatch):
    monkeypatch.setenv("POLYSEME_NATIVE", "0")
    assert _native.library() is None
    assert _native.level() == 0


def test_less_may_be_asked_for_but_not_more(monkeypatch):
    monkeypatch.delenv("POLYSEME_NATIVE", raising=False)
    best = _native.level()
    for place, name in enumerate(_native.LEVELS):
        monkeypatch.setenv("POLYSEME_NATIVE", name)
        assert _native.level() == min(best, place)


@pytest.mark.parametrize(("told", "expected"), [("1", 1), ("1,4", 1), ("", None), ("many", None)])
def test_threads_follow_the_environment(monkeypatch, told, expected):
    monkeypatch.setenv("OMP_NUM_THREADS", told)
    assert _native.n_threads() == (n_cores() if expected is None else expected)


def test_importing_the_index_starts_no_compiler_and_loads_no_library():
    code = (
        "import sys, polyseme.index, polyseme._native as native;"
        "assert native._load.cache_info().currsize == 0"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_searches_keep_to_one_thread_where_everything_does(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1, 2, 3}, raising=False)
    assert _native.n_threads() == 2
    with one_thread():
        assert _native.n_threads() == 1
        with one_thread():
            assert _native.n_threads() == 1
        assert _native.n_threads() == 1
    assert _native.n_threads() == 2


def test_threads_of_blas_are_given_back_by_the_last_that_took_them():
    def threads():
        return [one["num_threads"] for one in threadpool_info() if one["user_api"] == "blas"]

    before = threads()
    inside, leave = threading.Barrier(3), threading.Event()

    def first():
        with one_blas_thread():
            inside.wait()

    def last():
        with one_blas_thread():
            inside.wait()
            leave.wait()

    workers = [threading.Thread(target=one) for one in (first, last)]
    for one in workers:
        one.start()
    inside.wait()
    workers[0].join()
    assert set(threads()) <= {1}
    leave.set()
    workers[1].join()
    assert threads() == before
