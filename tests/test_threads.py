"""Threads: how many there are, how BLAS is limited, and how calls are shared out."""

from __future__ import annotations

import threading

import pytest
from threadpoolctl import threadpool_info

from polyseme import _threads
from polyseme._threads import n_cores, n_threads, one_blas_thread, one_thread, run_all


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
