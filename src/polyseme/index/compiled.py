"""Search in the compiled library: an 8-bit filter with true bounds, then exact distances.

In: sorted concepts and query points. Out: the smallest distance per label. Beside the concepts, a
copy of them in bytes is held, and four numbers each.
"""

from __future__ import annotations

import ctypes
import os
from _thread import LockType, allocate_lock, start_new_thread
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import cache

import numpy as np
from numpy.typing import NDArray

from polyseme import _native
from polyseme.index.by_label import SortedConcepts

# Places after the last concept, and bytes after those, that the library may read.
_LANES, _BEYOND = 16, 64
# Sums of products of bytes must fit 32 bits.
_MOST_COMPONENTS = 60_000
# Queries that are laid out at a time, and how many numbers they have at the most.
_MOST_ROWS, _MOST_NUMBERS = 512, 2**22
# Pairs of concept and query that are worth a thread of their own, and after which a call returns.
_WORTH, _ENOUGH = 4e4, 5e8
# Labels with so few concepts leave nothing to filter.
_SMALL = 4
# In plain C, matrix products of the numerical library are faster from about here on.
_FEW = 8


def searcher(concepts: SortedConcepts) -> PackedConcepts | None:
    """Make the compiled search ready, if there is a library and it can hold these concepts.

    Parameters
    ----------
    concepts : SortedConcepts

    Returns
    -------
    PackedConcepts or None
    """
    library = _native.library()
    d = concepts.points.shape[1]
    if library is None or not len(concepts) or not 1 <= d <= _MOST_COMPONENTS:
        return None
    return PackedConcepts(concepts, library)


class PackedConcepts:
    """Concepts with a copy in bytes, as the library wants them.

    Parameters
    ----------
    concepts : SortedConcepts
    library : ctypes.CDLL
        See `polyseme._native.library`.
    """

    def __init__(self, concepts: SortedConcepts, library: ctypes.CDLL) -> None:
        self.concepts, self.library = concepts, library
        n, d = concepts.points.shape
        self.width = -(-d // 4) * 4
        sizes = np.diff(concepts.starts)
        self.mostly_small = bool(sizes[sizes <= _SMALL].sum() > n / 2)
        self.packed = np.empty((n + _LANES) * self.width + _BEYOND, dtype=np.uint8)
        self.packed[-_BEYOND:] = 0
        self.terms = np.empty((4, n + _LANES), dtype=np.float32)
        step = max(1, -(-n // (4 * _native.n_threads())), 2**20 // d)
        level = _native.level()
        _run([self._packing(first, first + step, level) for first in range(0, n + _LANES, step)])

    def wants(self, n_queries: int) -> bool:
        """Say whether the compiled search is the faster one for so many queries.

        Parameters
        ----------
        n_queries : int

        Returns
        -------
        bool
            Matrix products win in plain C, and where most concepts are measured anyway because
            their labels have next to no others.
        """
        return n_queries <= _FEW or (_native.level() > 0 and not self.mostly_small)

    def distances(self, asked: NDArray[np.float32], n_labels: int) -> NDArray[np.float32]:
        """Give the distance from each query to the nearest concept of each label.

        Parameters
        ----------
        asked : float32 array, shape (q, d)
        n_labels : int

        Returns
        -------
        float32 array, shape (q, n_labels)
            Right to about 1e-6 of itself; infinity where a label has no concept.
        """
        asked = np.ascontiguousarray(asked)
        result = np.full((len(asked), n_labels), np.inf, dtype=np.float32)
        n, level = len(self.concepts), _native.level()
        threads = min(_native.n_threads(), max(1, int(len(asked) * n / _WORTH)))
        n_parts = -(-len(asked) // max(32, min(_MOST_ROWS, _MOST_NUMBERS // asked.shape[1])))
        n_rows = max(1, -(-len(asked) // max(1, n_parts)))
        # Labels differ in how much a filter spares: small tasks leave no thread waiting long.
        # Each lays out its queries by itself, so that they must not be too small.
        wanted = 1 if threads == 1 else min(8 * threads, max(threads, n // 1024))
        n_cuts = max(1, -(-wanted // max(1, n_parts)), int(n_rows * n / _ENOUGH))
        step = -(-n // n_cuts)
        _run(
            [
                self._searching(asked[row : row + n_rows], (first, min(first + step, n)),
                                result[row : row + n_rows], level)
                for row in range(0, len(asked), n_rows)
                for first in range(0, n, step)
            ],
            threads,
        )  # fmt: skip
        return result

    def _packing(self, first: int, last: int, level: int) -> Callable[[], None]:
        """Make the call that packs the concepts from first to last."""
        points, centre = self.concepts.points, self.concepts.centre

        def call() -> None:
            self.library.polyseme_pack(
                level, points.ctypes.data, centre.ctypes.data, *points.shape, first,
                min(last, len(points) + _LANES), self.packed.ctypes.data, self.terms.ctypes.data,
            )  # fmt: skip

        return call

    def _searching(
        self,
        asked: NDArray[np.float32],
        between: tuple[int, int],
        result: NDArray[np.float32],
        level: int,
    ) -> Callable[[], None]:
        """Make the call that lowers `result` to the distances of the concepts in a range."""
        held = self.concepts
        n, d = held.points.shape

        def call() -> None:
            work = np.empty(self.library.polyseme_workspace(d, len(asked)), dtype=np.uint8)
            self.library.polyseme_nearest(
                level, held.points.ctypes.data, self.packed.ctypes.data, self.terms.ctypes.data,
                held.centre.ctypes.data, held.starts.ctypes.data, held.segments.ctypes.data,
                n, d, len(held.segments), asked.ctypes.data, len(asked), *between,
                result.ctypes.data, result.shape[1], work.ctypes.data,
            )  # fmt: skip

        return call


def _run(calls: list[Callable[[], None]], threads: int | None = None) -> None:
    """Make all calls, in this thread and others; the library runs without Python's lock."""
    threads = min(len(calls), _native.n_threads() if threads is None else threads)
    waiting, failures = deque(calls), deque[BaseException]()
    here = _core() if threads > 1 else None

    def work() -> None:
        while not failures:
            try:
                call = waiting.popleft()
            except IndexError:  # nothing is left
                return
            try:
                call()
            except BaseException as error:
                failures.append(error)

    def help_out(busy: LockType) -> None:
        try:
            _leave(here)
            work()
        finally:
            busy.release()

    helpers: list[LockType] = []
    try:
        # `threading.Thread` waits until a thread runs; whoever waits may wake up beside it.
        for _ in range(threads - 1):
            busy = allocate_lock()
            busy.acquire()
            try:
                start_new_thread(help_out, (busy,))
            except RuntimeError:  # the system gives no more; those that are there do it all
                break
            helpers.append(busy)
        work()
        for busy in helpers:
            busy.acquire()
    except BaseException:
        waiting.clear()
        raise
    if failures:
        raise failures[0]


def _core() -> int | None:
    """Give the number of the processor that this thread runs on, where the system tells."""
    asked = _core_of_system()
    return None if asked is None else int(asked())


@cache
def _core_of_system() -> Callable[[], int] | None:
    """Find the C library's function for that."""
    try:
        found: Callable[[], int] = ctypes.CDLL(None).sched_getcpu
    except (AttributeError, OSError, TypeError):
        return None
    return found


def _leave(core: int | None) -> None:
    """Keep this thread off a processor, where there are others.

    A thread is started on the processor of the one that starts it and moved some 10 ms later, by
    when a search may be over.
    """
    if core is None or not hasattr(os, "sched_setaffinity"):
        return
    with suppress(OSError):  # it may be forbidden, and is no more than a help
        others = os.sched_getaffinity(0) - {core}
        if others:
            os.sched_setaffinity(0, others)
