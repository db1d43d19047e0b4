"""Which rows are near which: what the triplets of "uth" are drawn from.

In: rows (n, n_features). Out: for each the numbers of its nearest other rows (n, k).
"""

from __future__ import annotations

import numpy as np

from polyseme._validation import IntArray
from polyseme.features.reductions.machine import Float32

_BLOCK_ROWS = 1024


def squared_distances(queries: Float32, rows: Float32) -> Float32:
    """Give squared distances, shape (n_queries, n_rows)."""
    # Products in float64 would cost twice the time; what they would save is less than ties need.
    found = queries @ rows.T
    found *= -2
    found += np.einsum("ij,ij->i", queries, queries)[:, None]
    found += np.einsum("ij,ij->i", rows, rows)
    np.maximum(found, 0, out=found)
    return found


def nearest_rows(rows: Float32, k: int, of: IntArray | None = None) -> IntArray:
    """Find the nearest other rows of rows, block by block.

    Parameters
    ----------
    rows : float32 array, shape (n, n_features)
    k : int
        At most n - 1.
    of : int64 array, shape (m,), optional
        The numbers of the rows whose neighbours are wanted. None: all.

    Returns
    -------
    int64 array, shape (m, k)
        In no particular order.
    """
    wanted = np.arange(len(rows)) if of is None else of
    found = np.empty((len(wanted), k), dtype=np.int64)
    for start in range(0, len(wanted), _BLOCK_ROWS):
        own = wanted[start : start + _BLOCK_ROWS]
        distances = squared_distances(rows[own], rows)
        distances[np.arange(len(own)), own] = np.inf
        found[start : start + len(own)] = np.argpartition(distances, k - 1, axis=1)[:, :k]
    return found
