"""Features as a space takes them: standardised, and projected at random.

In: features of items, dense or sparse. Out: dense ones in spreads from the mean, and directions of
bounded size that keep the cosines between items, which corrections are learned from.

Terms: `X` has one row for each item and one column for each feature, (n_items, n_features), in the
users' units. The *spread* of a column is its standard deviation; its *scale* is the spread, or 1
where the column counts as constant. No function changes what it takes.
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
_MOST_SPREADS = 20.0
# Squares of smaller spreads underflow.
LEAST_SCALE = 1e-150
# Values of one size differ by such a share through rounding alone.
_ROUNDING = 1e-12
# Columns that are looked at together for lost ones.
_COLUMNS_TOGETHER = 64
# The most dimensions of a random projection. Fixed by saved models: they hold projections.
PROJECTION_SIZE = 512


def first_columns(X: Features, n_columns: int) -> Features:
    """Return the first columns of features, dense where others are cut off."""
    if X.shape[1] == n_columns:
        return X
    columns: Any = X[:, :n_columns]
    return np.asarray(columns.toarray()) if sp.issparse(X) else columns


def column_statistics(X: Features) -> tuple[Matrix, Matrix]:
    """Return means and scales of columns, two (n_features,); sparse stays sparse.

    The scale is the standard deviation, and 1 for columns that never change.
    """
    means, spreads = _means_and_spreads(X)
    varies = _varies(means, spreads)
    scales = np.where(varies, spreads, 1.0)
    return means, scales


def lost_columns(X: Features, scale: Matrix) -> IntArray:
    """Return the columns that count as constant though their values differ by more than rounding.

    Parameters
    ----------
    X : array or csr matrix, shape (n_items, n_features)
    scale : float64 array, shape (n_features,)
        As `column_statistics` returned it.

    Returns
    -------
    int64 array
        Numbers of columns, sorted.
    """
    lost_blocks = [np.zeros(0, dtype=np.int64)]
    unscaled = np.flatnonzero(scale == 1)
    for start in range(0, len(unscaled), _COLUMNS_TOGETHER):
        stop = start + _COLUMNS_TOGETHER
        columns = unscaled[start:stop]
        table = X[:, columns]
        means, spreads = _means_and_spreads(table)
        highest, lowest = _extremes(table)
        ranges = highest - lowest
        sizes = np.maximum(np.abs(highest), np.abs(lowest))
        is_constant = ~_varies(means, spreads)
        differs = ranges > _ROUNDING * sizes
        is_lost = differs & is_constant
        lost_blocks.append(columns[is_lost])
    return np.concatenate(lost_blocks)


def _means_and_spreads(X: Features) -> tuple[Matrix, Matrix]:
    """Return means and standard deviations of columns, two (n_features,); sparse stays sparse."""
    column_means = X.mean(axis=0)  # of a sparse table a matrix of one row
    means = np.asarray(column_means, dtype=np.float64).ravel()
    if not sp.issparse(X):
        deviations = X.std(axis=0)
        spreads = np.asarray(deviations, dtype=np.float64)
        return means, spreads

    # variance = (squares of stored numbers + squares of the zeros between them) / n
    n_rows, n_columns = X.shape
    columns = X.indices
    stored_deviations = X.data - means[columns]
    squares = stored_deviations**2
    stored_squares = np.bincount(columns, weights=squares, minlength=n_columns)
    n_stored = np.bincount(columns, minlength=n_columns)
    n_zeros = n_rows - n_stored
    zero_squares = n_zeros * means**2
    square_sums = stored_squares + zero_squares
    variances = square_sums / max(n_rows, 1)
    return means, np.sqrt(variances)


def _extremes(X: Features) -> tuple[Matrix, Matrix]:
    """Return the largest and the smallest value of each column, two (n_features,)."""
    if not sp.issparse(X):
        highest = X.max(axis=0)
        lowest = X.min(axis=0)
        return np.asarray(highest), np.asarray(lowest)
    by_column: Any = sp.csc_matrix(X)
    highest = by_column.max(axis=0).toarray()
    lowest = by_column.min(axis=0).toarray()
    return highest.ravel(), lowest.ravel()


def _varies(means: Matrix, spreads: Matrix) -> NDArray[np.bool_]:
    """Return which columns vary, (n_features,), by their means and spreads.

    What is left of a large constant by rounding is no spread. How small a spread is says nothing:
    features may come in any unit.
    """
    sizes = np.abs(means)
    rounding = 1e-9 * sizes
    least_spreads = np.maximum(LEAST_SCALE, rounding)
    varies = spreads > least_spreads
    return np.asarray(varies)


def standardise(X: Features, mean: Matrix, scale: Matrix) -> Floats:
    """Return features in spreads from the mean, wild ones cut off.

    Parameters
    ----------
    X : array or csr matrix, shape (n_items, n_features)
    mean, scale : float64 arrays, shape (n_features,)
        As `column_statistics` returned them, of the items that a space was fitted to.

    Returns
    -------
    float32 array, shape (n_items, n_features)
        Dense, and the caller's own.
    """
    n_rows = X.shape[0]
    standardised = np.empty(X.shape, dtype=np.float32)
    n_together = 1024  # rows in double precision at a time
    for start in range(0, n_rows, n_together):
        stop = start + n_together
        block: Any = X[start:stop]
        if sp.issparse(X):
            block = block.toarray()
        dense = np.asarray(block, dtype=np.float64)
        deviations = dense - mean
        scaled = deviations / scale
        lowest = -_MOST_SPREADS
        bounded = np.maximum(scaled, lowest)
        bounded = np.minimum(bounded, _MOST_SPREADS)
        standardised[start:stop] = bounded
    return standardised


@lru_cache(maxsize=2)
def _projection_matrix(n_features: int) -> Floats:
    """Return the matrix that projects features, (n_features, PROJECTION_SIZE), read-only.

    Its signs are random bits that are the same in every version of numpy: a saved model holds
    projections, which must stay comparable with those of new items.
    """
    n_bits = n_features * PROJECTION_SIZE
    generator = np.random.PCG64(n_features)
    words = generator.random_raw(n_bits // 64)
    little_endian = np.asarray(words, dtype="<u8")
    octets = little_endian.view(np.uint8)
    bits = np.unpackbits(octets)
    signs = bits.astype(np.float32)
    signs *= 2
    signs -= 1
    matrix = signs.reshape(n_features, PROJECTION_SIZE)
    matrix /= np.float32(PROJECTION_SIZE**0.5)
    matrix.flags.writeable = False  # the cache hands out the same array to everybody
    return matrix


def project(features: Floats) -> Floats:
    """Return directions of bounded size that nearly keep the cosines of features.

    Parameters
    ----------
    features : float32 array, shape (n_items, n_features)
        Standardised. No more than `PROJECTION_SIZE` features are left as they are but for their
        length.

    Returns
    -------
    float32 array, shape (n_items, min(n_features, PROJECTION_SIZE))
        Rows of length 1, or of zeros.
    """
    n_features = features.shape[1]
    projections = features
    if n_features > PROJECTION_SIZE:
        matrix = _projection_matrix(n_features)
        projections = features @ matrix
    squared_lengths = np.einsum("ij,ij->i", projections, projections)
    lengths = np.sqrt(squared_lengths)
    divisors = np.maximum(lengths, 1e-9)
    directions = projections / divisors[:, None]
    return np.asarray(directions, dtype=np.float32)
