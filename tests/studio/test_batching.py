"""Rows that wait together are scored together, and one that fails harms no other."""

from __future__ import annotations

import asyncio
import math
import threading

import pytest

from polyseme.studio import batching
from polyseme.studio.batching import Batcher, QueueFullError


def run(coroutine):
    return asyncio.run(asyncio.wait_for(coroutine, 30))


def test_rows_that_wait_while_a_batch_is_scored_are_the_next_batch():
    sizes = []
    free = threading.Event()

    def score(rows):
        sizes.append(len(rows))
        free.wait(10)
        return [2 * row for row in rows]

    async def submit():
        batcher = Batcher(score, largest=4)
        first = asyncio.ensure_future(batcher.submit(1))
        while not sizes:
            await asyncio.sleep(0.001)
        waiting = [asyncio.ensure_future(batcher.submit(row)) for row in range(2, 8)]
        await asyncio.sleep(0)
        assert batcher.n_waiting == 6
        free.set()
        answers = await asyncio.gather(first, *waiting)
        await batcher.close()
        return answers

    assert run(submit()) == [2, 4, 6, 8, 10, 12, 14]
    assert sizes == [1, 4, 2]


def test_a_quick_row_is_scored_at_once_and_several_or_slow_rows_by_the_worker(monkeypatch):
    in_main_thread = []

    def score(rows):
        thread = threading.current_thread()
        in_main_thread.append(thread is threading.main_thread())
        return rows

    async def submit(quick):
        monkeypatch.setattr(batching, "_QUICK_SECONDS", quick)
        batcher = Batcher(score)
        for row in range(3):
            answer = await batcher.submit(row)
            assert answer == row
        answers = await asyncio.gather(batcher.submit(4), batcher.submit(5))
        assert answers == [4, 5]
        await batcher.close()

    run(submit(math.inf))
    assert in_main_thread == [False, True, True, False], "the first measures the time"
    in_main_thread.clear()
    run(submit(0.0))
    assert in_main_thread == [False] * 4


def test_a_row_that_fails_harms_no_other_row():
    def score(rows):
        if "bad" in rows:
            raise ValueError("bad row")
        return rows

    async def submit():
        batcher = Batcher(score)
        rows = map(batcher.submit, ("a", "bad", "b"))
        answers = await asyncio.gather(*rows, return_exceptions=True)
        later = await batcher.submit("c")
        await batcher.close()
        return answers, later

    (first, failed, third), later = run(submit())
    assert (first, third, later) == ("a", "b", "c")
    assert isinstance(failed, ValueError)
    assert str(failed) == "bad row"


def test_a_wrong_number_of_results_is_an_error_for_every_row():
    async def submit():
        batcher = Batcher(lambda rows: rows[:-1])
        answers = await asyncio.gather(batcher.submit(1), batcher.submit(2), return_exceptions=True)
        await batcher.close()
        return answers

    for answer in run(submit()):
        assert isinstance(answer, RuntimeError)


def test_a_full_or_closed_queue_refuses_rows_at_once():
    free = threading.Event()

    async def submit():
        batcher = Batcher(lambda rows: [free.wait(10) for _ in rows], most_waiting=2)
        running = asyncio.ensure_future(batcher.submit(0))
        await asyncio.sleep(0.05)
        waiting = [asyncio.ensure_future(batcher.submit(row)) for row in (1, 2)]
        await asyncio.sleep(0)
        with pytest.raises(QueueFullError):
            await batcher.submit(3)
        free.set()
        await asyncio.gather(running, *waiting)
        await batcher.close()
        with pytest.raises(QueueFullError):
            await batcher.submit(4)

    run(submit())


def test_a_cancelled_row_is_not_scored():
    scored = []
    free = threading.Event()

    def score(rows):
        scored.extend(rows)
        free.wait(10)
        return rows

    async def submit():
        batcher = Batcher(score)
        first = asyncio.ensure_future(batcher.submit("first"))
        while not scored:
            await asyncio.sleep(0.001)
        cancelled = asyncio.ensure_future(batcher.submit("cancelled"))
        await asyncio.sleep(0)
        cancelled.cancel()
        await asyncio.sleep(0)
        free.set()
        await first
        assert await batcher.submit("last") == "last"
        await batcher.close()

    run(submit())
    assert scored == ["first", "last"]
