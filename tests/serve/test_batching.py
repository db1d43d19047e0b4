"""Rows that wait together are scored together, and one that fails harms no other."""

from __future__ import annotations

import asyncio
import math
import threading

import pytest

from polyseme.serve import batching
from polyseme.serve.batching import Batcher, QueueFullError


def run(coroutine):
    return asyncio.run(asyncio.wait_for(coroutine, 30))


def test_rows_that_wait_while_a_batch_is_scored_are_the_next_batch():
    sizes, free = [], threading.Event()

    def score(rows):
        sizes.append(len(rows))
        free.wait(10)
        return [2 * row for row in rows]

    async def ask():
        batcher = Batcher(score, largest=4)
        first = asyncio.create_task(batcher.submit(1))
        while not sizes:
            await asyncio.sleep(0.001)
        others = [asyncio.create_task(batcher.submit(row)) for row in range(2, 8)]
        await asyncio.sleep(0)
        assert batcher.n_waiting == 6
        free.set()
        answers = await asyncio.gather(first, *others)
        await batcher.close()
        return answers

    assert run(ask()) == [2, 4, 6, 8, 10, 12, 14]
    assert sizes == [1, 4, 2]


def test_a_quick_row_is_scored_at_once_and_several_or_slow_ones_by_the_worker(monkeypatch):
    threads = []

    def score(rows):
        threads.append(threading.current_thread() is threading.main_thread())
        return rows

    async def ask(quick):
        monkeypatch.setattr(batching, "_QUICK", quick)
        batcher = Batcher(score)
        for row in range(3):
            assert await batcher.submit(row) == row
        assert await asyncio.gather(*map(batcher.submit, (4, 5))) == [4, 5]
        await batcher.close()

    run(ask(math.inf))
    assert threads == [False, True, True, False], "the first says how long it takes"
    threads.clear()
    run(ask(0.0))
    assert threads == [False] * 4


def test_a_row_that_fails_fails_alone_and_the_next_is_scored():
    def score(rows):
        if "bad" in rows:
            raise ValueError("bad row")
        return rows

    async def ask():
        batcher = Batcher(score)
        answers = await asyncio.gather(
            *(batcher.submit(row) for row in ("a", "bad", "b")), return_exceptions=True
        )
        later = await batcher.submit("c")
        await batcher.close()
        return answers, later

    (first, failed, third), later = run(ask())
    assert (first, third, later) == ("a", "b", "c")
    assert isinstance(failed, ValueError) and str(failed) == "bad row"


def test_results_that_do_not_fit_their_rows_are_errors_and_not_somebody_elses():
    async def ask():
        batcher = Batcher(lambda rows: rows[:-1])
        answers = await asyncio.gather(batcher.submit(1), batcher.submit(2), return_exceptions=True)
        await batcher.close()
        return answers

    assert all(isinstance(one, RuntimeError) for one in run(ask()))


def test_more_than_may_wait_is_refused_at_once():
    free = threading.Event()

    async def ask():
        batcher = Batcher(lambda rows: [free.wait(10) for _ in rows], most_waiting=2)
        running = asyncio.create_task(batcher.submit(0))
        await asyncio.sleep(0.05)
        waiting = [asyncio.create_task(batcher.submit(row)) for row in (1, 2)]
        await asyncio.sleep(0)
        with pytest.raises(QueueFullError):
            await batcher.submit(3)
        free.set()
        await asyncio.gather(running, *waiting)
        await batcher.close()
        with pytest.raises(QueueFullError):
            await batcher.submit(4)

    run(ask())


def test_who_has_gone_is_not_scored():
    scored, free = [], threading.Event()

    def score(rows):
        scored.extend(rows)
        free.wait(10)
        return rows

    async def ask():
        batcher = Batcher(score)
        first = asyncio.create_task(batcher.submit("first"))
        while not scored:
            await asyncio.sleep(0.001)
        gone = asyncio.create_task(batcher.submit("gone"))
        await asyncio.sleep(0)
        gone.cancel()
        await asyncio.sleep(0)
        free.set()
        await first
        assert await batcher.submit("last") == "last"
        await batcher.close()

    run(ask())
    assert scored == ["first", "last"]
