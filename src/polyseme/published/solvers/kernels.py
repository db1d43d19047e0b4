"""The Gaussian kernel and the rows it compares (part of step 4, the mapping).

In: feature rows, dense or sparse. Out: scaled rows, squared distances, kernel matrices and kernel
predictions; large products are cut into blocks so that they stay within a memory bound.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from polyseme._threads import one_blas_thread
from polyseme._validation import FloatArray
from polyseme.published.solvers.blocks import in_blocks

Rows: TypeAlias = FloatArray | sp.csr_matrix

SCALINGS = ("standard", "l2", "none")
_HEURISTIC_ROWS = 1000
_BLOCK_ROWS = 4096
_SHARED_WORK = 2e8
_TILE = 512
_WHOLE_ROWS = 100_000


def column_statistics(X: Rows, scaling: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Learn what is subtracted from and divided out of each column.

    Parameters
    ----------
    X : array or csr_matrix, shape (n, n_features)
    scaling : {"standard", "l2", "none"}

    Returns
    -------
    mean : float64 array, shape (n_features,)
        Zeros for sparse rows, which must stay sparse, and for "l2". Distances do not depend on
        it; it keeps dense rows near the origin, where distances lose no digits.
    scale : float64 array, shape (n_features,)
        Standard deviations for "standard" (1 for a constant column), else ones.
    """
    n_features = X.shape[1]
    # Of sums of squares in single precision little is left when the mean is subtracted; and sums
    # depend on the order in memory, if only in the last digit.
    X = X.astype(np.float64, copy=False) if sp.issparse(X) else np.ascontiguousarray(X)
    mean = np.asarray(X.mean(axis=0, dtype=np.float64)).ravel()
    scale = np.ones(n_features)
    if scaling == "standard":
        if sp.issparse(X):
            square = np.asarray(X.multiply(X).mean(axis=0)).ravel()
            spread = np.sqrt(np.maximum(square - mean**2, 0))
        else:
            spread = _spread(np.asarray(X), mean)
        # Rounding leaves a constant column with a spread of a few units in the last place.
        varies = spread > 1e-7 * np.abs(mean) if sp.issparse(X) else spread > 1e-12 * np.abs(mean)
        scale[varies] = spread[varies]
    if sp.issparse(X) or scaling == "l2":
        mean = np.zeros(n_features)
    return mean, scale


def _spread(X: FloatArray, mean: NDArray[np.float64]) -> NDArray[np.float64]:
    """Give the standard deviations of columns, without a second copy of many rows."""
    if X.dtype == np.float64 and len(X) <= _WHOLE_ROWS:
        return np.asarray(X.std(axis=0))
    total = np.zeros(X.shape[1])
    for block in row_blocks(len(X), 1, _BLOCK_ROWS):
        centred = X[block] - mean
        total += np.einsum("ij,ij->j", centred, centred)
    return np.asarray(np.sqrt(total / len(X)))


def scale_rows(
    X: Rows,
    scaling: str,
    mean: NDArray[np.float64],
    scale: NDArray[np.float64],
    dtype: type[np.float32] | type[np.float64],
) -> Rows:
    """Apply what `column_statistics` learned; "l2" divides each row by its length.

    Parameters
    ----------
    X : array or csr_matrix, shape (n, n_features)
    scaling : {"standard", "l2", "none"}
    mean, scale : float64 arrays, shape (n_features,)
    dtype : numpy.float32 or numpy.float64
        Of the result; the arithmetic is done in float64.

    Returns
    -------
    array or csr_matrix, shape (n, n_features)
        A zero row stays zero under "l2". Sparse rows are not centred.
    """
    if sp.issparse(X):
        rows = sp.csr_matrix(X @ sp.diags_array(1.0 / scale))
        if scaling == "l2":
            lengths = np.sqrt(np.asarray(rows.multiply(rows).sum(axis=1)).ravel())
            rows = sp.csr_matrix(sp.diags_array(1.0 / np.where(lengths > 0, lengths, 1.0)) @ rows)
        rows.sort_indices()
        return sp.csr_matrix(rows, dtype=dtype)
    dense = (np.asarray(X) - mean) / scale
    if scaling == "l2":
        lengths = np.linalg.norm(dense, axis=1, keepdims=True)
        dense /= np.where(lengths > 0, lengths, 1.0)
    return np.ascontiguousarray(dense, dtype=dtype)


def _products(queries: FloatArray, rows: Rows) -> tuple[FloatArray, FloatArray]:
    """Give inner products of queries and rows, (m, n), and the rows' squared lengths, (n,)."""
    if sp.issparse(rows):
        product = np.ascontiguousarray(np.asarray(rows @ queries.T).T)
        return product, np.asarray(rows.multiply(rows).sum(axis=1)).ravel().astype(queries.dtype)
    return queries @ np.asarray(rows).T, np.einsum("ij,ij->i", rows, rows)


def squared_distances(queries: FloatArray, rows: Rows) -> FloatArray:
    """Squared Euclidean distances by one matrix product, never below 0.

    Parameters
    ----------
    queries : array, shape (m, n_features)
    rows : array or csr_matrix, shape (n, n_features)

    Returns
    -------
    array, shape (m, n)
        In the precision of the queries.
    """
    product, lengths = _products(queries, rows)
    product *= -2
    product += np.einsum("ij,ij->i", queries, queries)[:, None]
    product += lengths
    return np.maximum(product, 0, out=product)


def pairwise_squared_distances(rows: Rows, gamma: float | None = None) -> FloatArray:
    """Squared distances among the rows themselves: symmetric, with a zero diagonal.

    Parameters
    ----------
    rows : array or csr_matrix, shape (n, n_features)
    gamma : float, optional
        Turn them into the Gaussian kernel at once; see `rbf_from_squared`.

    Returns
    -------
    array, shape (n, n)
    """
    n = rows.shape[0]
    if not sp.issparse(rows) and n > 2 * _TILE:
        return _tiled_distances(np.asarray(rows), gamma)
    if sp.issparse(rows):
        distances = np.empty((n, n), dtype=rows.dtype)
        for block in row_blocks(n, rows.shape[1] * rows.dtype.itemsize, 2**26):
            distances[block] = squared_distances(rows[block].toarray(), rows)
    else:
        distances = squared_distances(np.asarray(rows), rows)
    mirror_lower(distances)  # rounding may differ between (i, j) and (j, i)
    np.fill_diagonal(distances, 0)
    return distances if gamma is None else rbf_from_squared(distances, gamma, out=distances)


def _tiled_distances(rows: FloatArray, gamma: float | None) -> FloatArray:
    """Compute the lower triangle tile by tile, each finished and mirrored while in the cache."""
    n, lengths = len(rows), np.einsum("ij,ij->i", rows, rows)
    distances = np.empty((n, n), dtype=rows.dtype)
    starts = range(0, n, _TILE)
    tiles = [(down, across) for down in starts for across in starts if across <= down]

    def fill(numbers: slice) -> None:
        for down, across in tiles[numbers]:
            high, low = slice(down, down + _TILE), slice(across, across + _TILE)
            tile = rows[high] @ rows[low].T
            tile *= -2
            tile += lengths[high, None]
            tile += lengths[low]
            np.maximum(tile, 0, out=tile)
            if down == across:
                mirror_lower(tile)
                np.fill_diagonal(tile, 0)
            if gamma is not None:
                rbf_from_squared(tile, gamma, out=tile)
            distances[high, low] = tile
            distances[low, high] = tile.T

    with blas_threads(0):
        in_blocks(fill, len(tiles), _TILE**2)
    return distances


def mirror_lower(matrix: FloatArray) -> None:
    """Copy the lower triangle onto the upper one, block by block."""
    n = len(matrix)
    for start in range(0, n, 512):
        stop = min(start + 512, n)
        matrix[start:stop, stop:] = matrix[stop:, start:stop].T
        block = matrix[start:stop, start:stop]
        block[:] = np.tril(block) + np.tril(block, -1).T


def rbf_from_squared(
    distances: FloatArray, gamma: float, out: FloatArray | None = None
) -> FloatArray:
    """Turn squared distances into the Gaussian kernel ``exp(-gamma d)``.

    Parameters
    ----------
    distances : array, shape (m, n)
    gamma : float
    out : array, shape (m, n), optional
        Where to write; may be `distances` itself.

    Returns
    -------
    array, shape (m, n)
    """
    kernel = np.multiply(distances, distances.dtype.type(-gamma), out=out)
    return np.exp(kernel, out=kernel)


def rbf_kernel(rows: Rows, gamma: float) -> FloatArray:
    """Gaussian kernel among rows: symmetric, with a unit diagonal.

    Parameters
    ----------
    rows : array or csr_matrix, shape (n, n_features)
    gamma : float

    Returns
    -------
    array, shape (n, n)
    """
    return pairwise_squared_distances(rows, gamma)


def rbf_rows(queries: FloatArray, rows: Rows, gamma: float) -> FloatArray:
    """Gaussian kernel between queries and rows.

    Parameters
    ----------
    queries : array, shape (m, n_features)
    rows : array or csr_matrix, shape (n, n_features)
    gamma : float

    Returns
    -------
    array, shape (m, n)
        In the precision of the queries.
    """
    product, lengths = _products(queries, rows)
    own = np.einsum("ij,ij->i", queries, queries)
    two = queries.dtype.type(2)

    def finish(block: slice) -> None:
        part = product[block]
        part *= two
        part -= own[block, None]
        part -= lengths
        np.minimum(part, 0, out=part)
        part *= part.dtype.type(gamma)
        np.exp(part, out=part)

    in_blocks(finish, *product.shape)
    return product


def rbf_predict(
    queries: FloatArray, rows: Rows, gamma: float, coefficients: FloatArray, bias: FloatArray
) -> FloatArray:
    """Evaluate all kernel expansions at the queries with one kernel and one product.

    Parameters
    ----------
    queries : array, shape (m, n_features)
    rows : array or csr_matrix, shape (n, n_features)
    gamma : float
    coefficients : array, shape (n, d)
    bias : array, shape (d,)

    Returns
    -------
    array, shape (m, d)
    """
    predicted: FloatArray = rbf_rows(queries, rows, gamma) @ coefficients
    predicted += bias
    return predicted


def row_blocks(n: int, row_bytes: int, memory_bytes: float) -> Iterator[slice]:
    """Cut n rows into blocks of at most `memory_bytes` (and at least one row) each."""
    size = int(np.clip(memory_bytes // max(row_bytes, 1), 1, _BLOCK_ROWS))
    for start in range(0, n, size):
        yield slice(start, min(start + size, n))


def median_gamma(rows: Rows, generator: np.random.Generator) -> float:
    """Give the gamma at which the median pair of rows has kernel value exp(-1).

    Parameters
    ----------
    rows : array or csr_matrix, shape (n, n_features)
    generator : numpy.random.Generator
        Draws the rows that are looked at when there are more than 1,000.

    Returns
    -------
    float
        1 / median squared distance; 1 / mean squared distance when more than half of the pairs
        coincide, and 1 when all do.
    """
    n = rows.shape[0]
    if n > _HEURISTIC_ROWS:
        rows = rows[np.sort(generator.choice(n, _HEURISTIC_ROWS, replace=False))]
        n = _HEURISTIC_ROWS
    if n < 2:
        return 1.0
    distances = pairwise_squared_distances(rows)[np.triu_indices(n, 1)]
    middle = float(np.median(distances)) or float(distances.mean(dtype=np.float64))
    return 1.0 / middle if middle > 0 else 1.0


def variance_gamma(rows: Rows) -> float:
    """Give the gamma ``1 / (n_features * mean column variance)``, which needs no distances.

    Parameters
    ----------
    rows : array or csr_matrix, shape (n, n_features)

    Returns
    -------
    float
        1 when no column varies.
    """
    square = rows.multiply(rows).sum() if sp.issparse(rows) else np.einsum("ij,ij->", rows, rows)
    mean = np.asarray(rows.mean(axis=0), dtype=np.float64).ravel()
    total = float(square) / rows.shape[0] - float(mean @ mean)
    return 1.0 / total if total > 1e-12 else 1.0


def blas_threads(work: float) -> AbstractContextManager[Any]:
    """Keep the linear algebra library to one thread for products too small to be shared.

    Parameters
    ----------
    work : float
        Multiplications per product. Waking and awaiting threads costs more than small products
        do, many times more when other programs are using the cores.

    Returns
    -------
    context manager
    """
    if work > _SHARED_WORK:
        return nullcontext()
    return one_blas_thread()
