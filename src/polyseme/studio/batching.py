"""Micro-batches: requests that wait at the same time are scored together.

In: rows, one by one, from an event loop. Out: each row's result, as soon as its batch is done. A
batch is all rows that wait when the worker is free, so that no row waits for others; rows of a
batch that fails are scored one by one. A single row is scored in the event loop itself, as long as
that is faster than a change of threads.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, TypeVar

T = TypeVar("T")
R = TypeVar("R")

# Seconds below which the event loop may score a single row itself.
_QUICK = 2e-3


class QueueFullError(RuntimeError):
    """More is waiting than is allowed; try again later."""


class Batcher(Generic[T, R]):
    """Score waiting rows in batches, in a thread of its own; a quick single row at once.

    Parameters
    ----------
    score : callable
        Takes a list of rows, gives a list of as many results; never runs twice at a time.
    largest : int
        Rows of a batch at the most.
    most_waiting : int
        Rows that may wait; one more raises `QueueFullError`.
    """

    def __init__(
        self,
        score: Callable[[Sequence[T]], Sequence[R]],
        *,
        largest: int = 64,
        most_waiting: int = 1024,
    ) -> None:
        self._score = score
        self.largest = largest
        self.most_waiting = most_waiting
        self._waiting: deque[tuple[T, asyncio.Future[R]]] = deque()
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="scoring")
        self._running: asyncio.Task[None] | None = None
        self._closed = False
        self._seconds_alone = math.inf  # that the last single row took
        self.sizes: Callable[[int], object] = lambda size: (
            None
        )  # called with the size of every batch

    @property
    def n_waiting(self) -> int:
        """How many rows wait."""
        return len(self._waiting)

    async def submit(self, row: T) -> R:
        """Return the result of one row; must be called in the event loop.

        Parameters
        ----------
        row : as `score` takes it
        """
        if self._closed or len(self._waiting) >= self.most_waiting:
            raise QueueFullError
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[R] = loop.create_future()
        self._waiting.append((row, answer))
        # The task ends when nothing waits: no worker can die unseen between two requests.
        if self._running is None or self._running.done():
            self._running = loop.create_task(self._work())
        return await answer

    async def _work(self) -> None:
        """Score batches until nothing waits."""
        loop = asyncio.get_running_loop()
        while self._waiting:
            n_rows = min(self.largest, self.n_waiting)
            queued = [self._waiting.popleft() for _ in range(n_rows)]
            batch = [(row, answer) for row, answer in queued if not answer.done()]  # still wanted
            if not batch:
                continue
            self.sizes(len(batch))
            rows = [row for row, _ in batch]
            try:
                if len(rows) == 1 and self._seconds_alone < _QUICK:
                    results = self._results(rows)
                else:
                    results = await loop.run_in_executor(self._executor, self._results, rows)
            except BaseException as error:
                failure = error if isinstance(error, Exception) else RuntimeError("stopping")
                for _, answer in [*batch, *self._waiting]:
                    if not answer.done():
                        answer.set_exception(failure)
                self._waiting.clear()
                raise
            for (_, answer), result in zip(batch, results, strict=True):
                if answer.done():
                    continue
                if isinstance(result, Exception):
                    answer.set_exception(result)
                else:
                    answer.set_result(result)

    def _results(self, rows: Sequence[T]) -> Sequence[R | Exception]:
        """Score rows together, or, where that fails, each by itself."""
        start = time.perf_counter()
        try:
            results = list(self._score(rows))
            if len(rows) == 1:
                self._seconds_alone = time.perf_counter() - start
            if len(results) == len(rows):
                return results
            raise RuntimeError(f"{len(results)} results for {len(rows)} rows")
        except Exception as error:
            if len(rows) == 1:
                return [error]
        return [self._results([row])[0] for row in rows]

    async def close(self) -> None:
        """Refuse new rows, score those that wait, and end the thread."""
        self._closed = True
        if self._running is not None and not self._running.done():
            await asyncio.wait([self._running])
        self._executor.shutdown(wait=True)
