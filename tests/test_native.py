"""The compiled library, how it is built, found and done without; and threads."""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading

import pytest
from threadpoolctl import threadpool_info

from polyseme import _native, _threads
from polyseme._native import build as native_build
from polyseme._threads import n_cores, n_threads, one_blas_thread, one_thread, run_all


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


# --- threads --------------------------------------------------------------------------------


@pytest.mark.parametrize(("wanted", "expected"), [("1", 1), ("1,4", 1), ("", None), ("many", None)])
def test_threads_follow_the_environment(monkeypatch, wanted, expected):
    monkeypatch.setenv("OMP_NUM_THREADS", wanted)
    assert n_threads() == (n_cores() if expected is None else expected)


def test_searches_keep_to_one_thread_where_everything_does(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    monkeypatch.setattr(_threads, "n_cores", lambda: 4)
    assert n_threads() == 2
    with one_thread():
        with one_thread():
            assert n_threads() == 1
        assert n_threads() == 1
    assert n_threads() == 2


def test_threads_of_blas_are_given_back_by_the_last_that_took_them():
    def threads():
        return [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]

    before = threads()
    inside, leave = threading.Barrier(3), threading.Event()

    def first():
        with one_blas_thread():
            inside.wait()

    def last():
        with one_blas_thread():
            inside.wait()
            leave.wait()

    workers = [threading.Thread(target=work, daemon=True) for work in (first, last)]
    for worker in workers:
        worker.start()
    inside.wait()
    workers[0].join()
    assert set(threads()) <= {1}
    leave.set()
    workers[1].join()
    assert threads() == before


def test_calls_are_all_made_and_what_fails_is_raised(monkeypatch):
    done = []

    def fail():
        raise IndexError("no room")

    run_all([lambda: done.append(1)] * 20, 3)
    assert len(done) == 20
    with pytest.raises(IndexError, match="no room"):
        run_all([fail, *[lambda: done.append(1)] * 3], 2)
    run_all([], 2)

    class Exhausted:
        def submit(self, *_):
            raise RuntimeError("can't start new thread")

    monkeypatch.setattr(_threads, "_pool", Exhausted)
    done.clear()
    run_all([lambda: done.append(1)] * 5, 3)
    assert len(done) == 5
