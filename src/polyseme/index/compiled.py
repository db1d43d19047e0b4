"""Search in the compiled library: an 8-bit filter with true bounds, then exact distances.

In: sorted concepts and query points. Out: the smallest distance per label. Beside the concepts, a
copy of them in bytes is held, and four numbers each.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray

from polyseme import _native
from polyseme.index.by_label import SortedConcepts

_LANES, _STRIP = 16, 64
# Sums of products of bytes must fit 32 bits.
_MOST_COMPONENTS = 60_000
_MOST_ROWS = 512
# Pairs of concept and query that are worth a thread of their own, and after which a call returns.
_WORTH, _ENOUGH = 2e4, 5e8
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
        n_groups = -(-n // _STRIP) * (_STRIP // _LANES)
        self.width = -(-d // 4) * 4
        sizes = np.diff(concepts.starts)
        self.mostly_small = bool(sizes[sizes <= _SMALL].sum() > n / 2)
        self.packed = np.empty(n_groups * _LANES * self.width, dtype=np.uint8)
        self.terms = np.empty(n_groups * _LANES * 4, dtype=np.float32)
        step = max(1, -(-n_groups // (4 * _native.n_threads())), 2**16 // d)
        level = _native.level()
        _run([self._packing(first, first + step, n_groups, level)
              for first in range(0, n_groups, step)])  # fmt: skip

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
        if len(asked) <= 2:
            level = min(level, 1)  # these wait for memory, and narrower instructions read no less
        threads = min(_native.n_threads(), max(1, int(len(asked) * n / _WORTH)))
        n_rows = max(1, min(_MOST_ROWS, -(-len(asked) // threads)))
        n_parts = -(-len(asked) // n_rows)
        # Labels differ in how much a filter spares: small tasks leave no thread waiting long.
        wanted = 1 if threads == 1 else 8 * threads
        n_cuts = max(1, -(-wanted // max(1, n_parts)), int(n_rows * n / _ENOUGH))
        step = -(-n // (n_cuts * _STRIP)) * _STRIP
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

    def _packing(self, first: int, last: int, n_groups: int, level: int) -> Callable[[], None]:
        """Make the call that packs the groups from first to last."""
        points, centre = self.concepts.points, self.concepts.centre

        def call() -> None:
            row = np.empty(self.width, dtype=np.int8)
            self.library.polyseme_pack(
                level, points.ctypes.data, centre.ctypes.data, *points.shape, first,
                min(last, n_groups), self.packed.ctypes.data, self.terms.ctypes.data,
                row.ctypes.data,
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
    """Make all calls, in as many threads as there are; the library runs without Python's lock."""
    threads = min(len(calls), _native.n_threads() if threads is None else threads)
    if threads <= 1:
        for call in calls:
            call()
        return
    with ThreadPoolExecutor(threads) as pool:
        for done in [pool.submit(call) for call in calls]:
            done.result()
