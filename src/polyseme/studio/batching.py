"""Micro-batches: requests that wait at the same time are scored together.

In: rows, one by one, from an event loop. Out: each row's result, as soon as its batch is done. A
batch is all rows that wait when the worker is free, so that no row waits for others; rows of a
batch that fails are scored one by one. A single row is scored in the event loop itself, as long as
that is faster than a change of threads.

Terms: a *row* (`T`) is what one request asks, and a *result* (`R`) what it is answered.
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

# Below this the event loop may score a single row itself.
_QUICK_SECONDS = 2e-3


class QueueFullError(RuntimeError):
    """More is waiting than is allowed; try again later."""


class Batcher(Generic[T, R]):
    """Score waiting rows in batches, in a thread of its own; a quick single row at once.

    Parameters
    ----------
    score : callable
        Takes a list of rows and returns as many results in their order; never runs twice at a
        time. A result that is an exception is raised for its row alone.
    largest : int
        Rows of a batch at the most.
    most_waiting : int
        Rows that may wait; one more raises `QueueFullError`.

    Attributes
    ----------
    observe_size : callable
        Called with the number of rows of every batch.
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
        # Only the event loop reads or changes it.
        self._waiting: deque[tuple[T, asyncio.Future[R]]] = deque()
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="scoring")
        self._running: asyncio.Task[None] | None = None
        self._closed = False
        self._seconds_alone = math.inf  # that the last batch of a single row took
        self.observe_size: Callable[[int], object] = _ignore

    @property
    def n_waiting(self) -> int:
        """How many rows wait."""
        return len(self._waiting)

    def submit(self, row: T) -> asyncio.Future[R]:
        """Queue one row, as `score` takes it, and return its future result.

        It must be called in the event loop. Cancelling the future takes the row out of the queue.
        """
        if self._closed or len(self._waiting) >= self.most_waiting:
            raise QueueFullError
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[R] = loop.create_future()
        self._waiting.append((row, answer))
        # The task ends when nothing waits: no worker can die unseen between two requests.
        if self._running is None or self._running.done():
            self._running = loop.create_task(self._work())
        return answer

    async def _work(self) -> None:
        """Score batches until nothing waits."""
        loop = asyncio.get_running_loop()
        while self._waiting:
            n_rows = min(self.largest, self.n_waiting)
            queued = [self._waiting.popleft() for _ in range(n_rows)]
            # A request that has timed out or was closed has cancelled its answer.
            batch = [(row, answer) for row, answer in queued if not answer.done()]
            if not batch:
                continue
            self.observe_size(len(batch))
            rows = [row for row, _ in batch]
            try:
                if len(rows) == 1 and self._seconds_alone < _QUICK_SECONDS:
                    results = self._score_rows(rows)
                else:
                    results = await loop.run_in_executor(self._executor, self._score_rows, rows)
            except BaseException as error:
                # The loop ends or the thread is gone: nobody may wait for ever.
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

    def _score_rows(self, rows: Sequence[T]) -> Sequence[R | Exception]:
        """Return the results of rows, scored together or, where that fails, each by itself."""
        n_rows = len(rows)
        start = time.perf_counter()
        try:
            results = list(self._score(rows))
            if n_rows == 1:
                self._seconds_alone = time.perf_counter() - start
            if len(results) == n_rows:
                return results
            raise RuntimeError(f"{len(results)} results for {n_rows} rows")
        except Exception as error:
            if n_rows == 1:
                return [error]
        return [self._score_rows([row])[0] for row in rows]

    async def close(self) -> None:
        """Refuse new rows, score those that wait, and end the thread."""
        self._closed = True
        if self._running is not None and not self._running.done():
            await asyncio.wait([self._running])
        self._executor.shutdown(wait=True)


def _ignore(size: int) -> None:
    """Ignore the size of a batch, where nobody counts it."""
