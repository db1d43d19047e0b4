"""Features as a space takes them: standardised, and projected at random.

In: features of items, dense or sparse. Out: dense ones in spreads from the mean, and directions of
bounded size that keep the cosines between items, which corrections are learned from.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from polyseme.base.validation import IntArray

Matrix = NDArray[np.float64]
Floats = NDArray[np.float32]
Features = NDArray[np.float64] | sp.csr_matrix

# Standardised features are cut off here: one wild number must not carry an encoder away. Rare
# detections and rare words reach 20 spreads and matter: at 3 the seen labels of HSUN lose 6 points
# of C-MAP, at 10 half a point.
_FARTHEST = 20.0
# Squares of smaller spreads underflow.
LEAST_SCALE = 1e-150
# Values of one size differ by such a share through rounding alone.
_ROUNDING = 1e-12
_COLUMNS_TOGETHER = 64
# The most dimensions of a random projection.
PROJECTION_SIZE = 512


def column_statistics(X: Features) -> tuple[Matrix, Matrix]:
    """Return means and spreads of columns, 1 for columns that never change; sparse stays sparse."""
    mean, spread = _means_and_spreads(X)
    return mean, np.where(_varies(mean, spread), spread, 1.0)


def lost_columns(X: Features, scale: Matrix) -> IntArray:
    """Return the columns that count as constant though their values differ by more than rounding.

    Parameters
    ----------
    X : array or csr matrix, shape (n, n_features)
    scale : float64 array, shape (n_features,)
        The spreads that `column_statistics` gave.
    """
    lost_blocks = [np.zeros(0, dtype=np.int64)]
    unscaled = np.flatnonzero(scale == 1)
    for start in range(0, len(unscaled), _COLUMNS_TOGETHER):
        columns = unscaled[start : start + _COLUMNS_TOGETHER]
        table = X[:, columns]
        mean, spread = _means_and_spreads(table)
        highest, lowest = _extremes(table)
        sizes = np.maximum(np.abs(highest), np.abs(lowest))
        differ = highest - lowest > _ROUNDING * sizes
        is_lost = differ & ~_varies(mean, spread)
        lost_blocks.append(columns[is_lost])
    return np.concatenate(lost_blocks)


def _means_and_spreads(X: Features) -> tuple[Matrix, Matrix]:
    """Return means and standard deviations of columns; sparse stays sparse."""
    mean = np.asarray(X.mean(axis=0), dtype=np.float64).ravel()
    if not sp.issparse(X):
        spread = np.asarray(X.std(axis=0), dtype=np.float64)
        return mean, spread
    n_rows, n_columns = X.shape
    deviations = X.data - mean[X.indices]
    stored_squares = np.bincount(X.indices, weights=deviations**2, minlength=n_columns)
    n_stored = np.bincount(X.indices, minlength=n_columns)
    zero_squares = (n_rows - n_stored) * mean**2
    variance = (stored_squares + zero_squares) / max(n_rows, 1)
    return mean, np.sqrt(variance)


def _extremes(X: Features) -> tuple[Matrix, Matrix]:
    """Return the largest and the smallest value of each column."""
    if not sp.issparse(X):
        return np.asarray(X.max(axis=0)), np.asarray(X.min(axis=0))
    columns: Any = sp.csc_matrix(X)
    highest = columns.max(axis=0).toarray()
    lowest = columns.min(axis=0).toarray()
    return highest.ravel(), lowest.ravel()


def _varies(mean: Matrix, spread: Matrix) -> NDArray[np.bool_]:
    """Return which columns vary, by their means and spreads.

    What is left of a large constant by rounding is no spread. How small a spread is says nothing:
    features may come in any unit.
    """
    rounding = 1e-9 * np.abs(mean)
    least = np.maximum(LEAST_SCALE, rounding)
    return np.asarray(spread > least)


def standardise(X: Features, mean: Matrix, scale: Matrix) -> Floats:
    """Return features (n, n_features) in spreads from the mean, dense, wild ones cut off."""
    table = np.empty(X.shape, dtype=np.float32)
    for start in range(0, len(table), 1024):
        rows = slice(start, start + 1024)
        block: Any = X[rows]
        if sp.issparse(X):
            block = block.toarray()
        dense = np.asarray(block, dtype=np.float64)
        scaled = (dense - mean) / scale
        bounded = np.maximum(scaled, -_FARTHEST)
        table[rows] = np.minimum(bounded, _FARTHEST)
    return table


@lru_cache(maxsize=2)
def _projection_matrix(n_features: int) -> Floats:
    """Return the matrix that projects features, (n_features, PROJECTION_SIZE).

    Its signs are bits that are the same in every version of numpy, so that a projection which was
    saved stays one of the same space.
    """
    n_bits = n_features * PROJECTION_SIZE
    generator = np.random.PCG64(n_features)
    numbers = generator.random_raw(n_bits // 64)
    octets = np.asarray(numbers, dtype="<u8").view(np.uint8)
    bits = np.unpackbits(octets)
    signs = bits.astype(np.float32) * 2 - 1
    matrix = signs.reshape(n_features, PROJECTION_SIZE)
    length = np.float32(PROJECTION_SIZE**0.5)
    return np.asarray(matrix / length)


def project(features: Floats) -> Floats:
    """Return directions (n, projection_size) of bounded size that keep the cosines of features.

    Standardised features (n, n_features) are left as they are but for their length, where there are
    no more than `PROJECTION_SIZE` of them.
    """
    n_features = features.shape[1]
    projections = features
    if n_features > PROJECTION_SIZE:
        projections = features @ _projection_matrix(n_features)
    squared_lengths = np.einsum("ij,ij->i", projections, projections)
    lengths = np.sqrt(squared_lengths)[:, None]
    lengths = np.maximum(lengths, 1e-9)
    return np.asarray(projections / lengths, dtype=np.float32)
