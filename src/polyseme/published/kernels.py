"""Gaussian kernels over feature rows, and the rows they compare (part of the instance mapping).

In: feature rows. Out: scaled rows, squared distances, kernel matrices and kernel predictions. The
same functions take numpy arrays and torch tensors of any device; sparse rows work with numpy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp
from array_api_compat import array_namespace
from array_api_compat import device as device_of
from numpy.typing import NDArray
from scipy.linalg import get_lapack_funcs

from polyseme._threads import n_cores, one_blas_thread, run_all
from polyseme._validation import FloatArray

Rows: TypeAlias = FloatArray | sp.csr_matrix
Array: TypeAlias = Any  # a numpy array or a torch tensor

SCALINGS = ("standard", "l2", "none")
# Scaled features are cut off here, where squared distances are finite in single precision.
FARTHEST = 1e15
# Multiples of the median heuristic; the first of equals wins.
GAMMA_GRID = (1.0, 0.25, 4.0)
_HEURISTIC_ROWS = 1000
_BLOCK_ROWS = 4096
# Numbers in a block that fits the cache, and fewer than another thread would wake up for.
_BLOCK_SIZE, _SHARED_SIZE = 2**17, 2**18
# Multiplications of a product below which waking BLAS threads costs more than they gain.
_SHARED_WORK = 2e8


def column_statistics(X: Any, scaling: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Learn from rows (n, n_features) what is subtracted from and divided out of each column.

    The means, (n_features,), are zeros for sparse rows, which must stay sparse, and for "l2";
    distances do not depend on them, but lose no digits near the origin. The scales, (n_features,),
    are standard deviations for "standard" (1 for a constant column), else ones.
    """
    scale, sparse = np.ones(X.shape[1]), sp.issparse(X)
    # Of sums of squares in single precision little is left when the mean is subtracted; and sums
    # depend on the order in memory, if only in the last digit.
    X = X.astype(np.float64, copy=False) if sparse else np.ascontiguousarray(X)
    mean = np.asarray(X.mean(axis=0, dtype=np.float64)).ravel()
    if scaling == "standard":
        if sparse:
            square = np.asarray(X.multiply(X).mean(axis=0)).ravel()
            spread = np.sqrt(np.maximum(square - mean**2, 0))
        else:  # without a second copy of many rows
            total = np.zeros_like(mean)
            for block in row_blocks(len(X), 1, _BLOCK_ROWS):
                total += np.square(X[block] - mean).sum(axis=0)
            spread = np.sqrt(total / len(X))
        # Rounding leaves a constant column with a spread of a few units in the last place.
        varies = spread > (1e-7 if sparse else 1e-12) * np.abs(mean)
        scale[varies] = spread[varies]
    return (np.zeros_like(mean) if sparse or scaling == "l2" else mean), scale


def scale_rows(
    X: Rows,
    scaling: str,
    mean: NDArray[np.float64],
    scale: NDArray[np.float64],
    dtype: type[np.float32] | type[np.float64],
) -> Rows:
    """Apply what `column_statistics` learned to rows (n, n_features), in float64.

    "l2" divides each row by its length; a zero row stays zero. Sparse rows are not centred.
    """
    if sp.issparse(X):
        rows = sp.csr_matrix(X @ sp.diags_array(1.0 / scale))
        np.clip(rows.data, -FARTHEST, FARTHEST, out=rows.data)
        if scaling == "l2":
            lengths = np.sqrt(np.asarray(rows.multiply(rows).sum(axis=1)).ravel())
            rows = sp.csr_matrix(sp.diags_array(1.0 / np.where(lengths > 0, lengths, 1.0)) @ rows)
        rows.sort_indices()
        return sp.csr_matrix(rows, dtype=dtype)
    dense = np.asarray((np.asarray(X) - mean) / scale)
    np.clip(dense, -FARTHEST, FARTHEST, out=dense)
    if scaling == "l2":
        lengths = np.linalg.norm(dense, axis=1, keepdims=True)
        dense /= np.where(lengths > 0, lengths, 1.0)
    return np.ascontiguousarray(dense, dtype=dtype)


def squared_distances(queries: Array, rows: Array, gamma: float | None = None) -> Array:
    """Return squared distances of queries (m, f) and rows (n, f) by one product: (m, n), >= 0.

    With a gamma they are turned into the Gaussian kernel ``exp(-gamma d)`` at once.
    """
    xp = array_namespace(queries)
    query_lengths = xp.einsum("ij,ij->i", queries, queries)
    if isinstance(rows, sp.csr_matrix):
        product = np.ascontiguousarray(np.asarray(rows @ queries.T).T)
        lengths = np.asarray(rows.multiply(rows).sum(axis=1)).ravel().astype(queries.dtype)
    else:
        product, lengths = queries @ rows.T, xp.einsum("ij,ij->i", rows, rows)

    def finish(block: slice) -> None:
        part = product[block]
        part *= -2
        part += query_lengths[block, None]
        part += lengths
        xp.maximum(part, 0, out=part)
        if gamma is not None:
            rbf_from_squared(part, gamma, out=part)

    in_blocks(finish, product)
    return product


def pairwise_squared_distances(rows: Array, gamma: float | None = None) -> Array:
    """Return squared distances among rows (n, f): (n, n), symmetric, with a zero diagonal.

    With a gamma they are turned into the Gaussian kernel at once, whose diagonal is 1.
    """
    if isinstance(rows, sp.csr_matrix):
        distances = np.empty((rows.shape[0], rows.shape[0]), dtype=rows.dtype)
        for block in row_blocks(len(distances), rows.shape[1] * rows.dtype.itemsize, 2**26):
            distances[block] = squared_distances(rows[block].toarray(), rows, gamma)
    else:
        distances = squared_distances(rows, rows, gamma)
    mirror_lower(distances)  # rounding may hinder symmetry
    diagonal_of(distances)[...] = 0 if gamma is None else 1
    return distances


def rbf_kernel(rows: Array, gamma: float) -> Array:
    """Return the Gaussian kernel among rows (n, f): (n, n), symmetric, with a unit diagonal."""
    return pairwise_squared_distances(rows, gamma)


def rbf_from_squared(distances: Array, gamma: float, out: Array | None = None) -> Array:
    """Turn squared distances (m, n) into the Gaussian kernel ``exp(-gamma d)``, maybe in place."""
    xp = array_namespace(distances)
    kernel = xp.multiply(distances, -gamma, out=out)
    return xp.exp(kernel, out=kernel)


def rbf_predict(
    queries: Array, rows: Array, gamma: float, coefficients: Array, bias: Array
) -> Array:
    """Evaluate kernel expansions of rows (n, f), coefficients (n, d) and bias (d,): (m, d)."""
    predicted = squared_distances(queries, rows, gamma) @ coefficients
    predicted += bias
    return predicted


def mirror_lower(matrix: Array) -> None:
    """Copy the lower triangle onto the upper one, block by block."""
    xp, n = array_namespace(matrix), len(matrix)
    for start in range(0, n, 512):
        stop = min(start + 512, n)
        matrix[start:stop, stop:] = matrix[stop:, start:stop].T
        block = matrix[start:stop, start:stop]
        block[...] = xp.tril(block) + xp.tril(block, k=-1).T


def diagonal_of(matrix: Array) -> Array:
    """Return the diagonal of a contiguous square matrix, to be written to."""
    if isinstance(matrix, np.ndarray):
        return matrix.ravel(order="K")[:: len(matrix) + 1]
    return matrix.diagonal()


def solve_positive(matrix: Array, penalty: float, right: Array) -> Array:
    """Solve ``(matrix + penalty I) x = right`` for a positive semi-definite matrix (n, n): (n, d).

    None where rounding leaves no Cholesky factor.
    """
    shifted = matrix + 0
    diagonal_of(shifted)[...] += penalty
    if isinstance(shifted, np.ndarray):
        posv: Any = get_lapack_funcs("posv", (shifted,))
        with blas_threads(len(shifted) ** 2 * (len(shifted) / 6 + right.shape[1])):
            _, solution, info = posv(shifted.T, np.asfortranarray(right), lower=1, overwrite_a=1)
        return np.ascontiguousarray(solution) if info == 0 else None
    import torch

    factor, failed = torch.linalg.cholesky_ex(shifted)
    return None if int(failed) else torch.cholesky_solve(right, factor)


def kernel_widths(
    rows: Rows, gamma: float | str | None, generator: np.random.Generator
) -> Sequence[float]:
    """List the values of gamma to compare for scaled rows (n, f).

    A value stands for itself, "median" for 1 / median squared distance (of a sample where there are
    many rows; 1 / mean when more than half of the pairs coincide, and 1 when all do), None for
    multiples of that.
    """
    if gamma is not None and gamma != "median":
        return (float(gamma),)
    n, middle = rows.shape[0], 0.0
    if n > _HEURISTIC_ROWS:
        rows = rows[np.sort(generator.choice(n, _HEURISTIC_ROWS, replace=False))]
        n = _HEURISTIC_ROWS
    if n > 1:
        distances = pairwise_squared_distances(rows)[np.triu_indices(n, 1)]
        middle = float(np.median(distances)) or float(distances.mean(dtype=np.float64))
    width = 1.0 / middle if middle > 0 else 1.0
    return (width,) if gamma else [width * factor for factor in GAMMA_GRID]


def row_blocks(n: int, row_bytes: int, memory_bytes: float) -> Iterator[slice]:
    """Cut n rows into blocks of at most `memory_bytes` (and at least one row) each."""
    size = int(np.clip(memory_bytes // max(row_bytes, 1), 1, _BLOCK_ROWS))
    for start in range(0, n, size):
        yield slice(start, min(start + size, n))


def in_blocks(function: Callable[[slice], object], array: Array) -> None:
    """Call a function for blocks of an array's rows, in threads where there is enough to do.

    Numpy's arrays are cut into blocks that fit the cache; a tensor stays whole. The function takes
    a slice of rows and must not touch others.
    """
    n = len(array)
    size, n_threads = max(n, 1), 1
    if isinstance(array, np.ndarray):
        size = max(_BLOCK_SIZE // max(array.size // size, 1), 1)
        n_threads = 1 if array.size < _SHARED_SIZE else n_cores()
    blocks = (slice(start, min(start + size, n)) for start in range(0, n, size))
    run_all([partial(function, block) for block in blocks], n_threads)


def blas_threads(work: float) -> AbstractContextManager[Any]:
    """Keep BLAS to one thread for products of so few multiplications that sharing costs time."""
    return nullcontext() if work > _SHARED_WORK else one_blas_thread()


def to_device(array: Any, device: str) -> Array:
    """Return a numpy array or sparse matrix as it is for "cpu", else as a dense tensor there."""
    if device == "cpu":
        return array
    import torch

    dense = array.toarray() if isinstance(array, sp.csr_matrix) else array
    return torch.from_numpy(np.ascontiguousarray(dense)).to(device)


def like(array: Any, other: Array) -> Array:
    """Return a numpy array as an array of another's kind, on its device."""
    return array_namespace(other).asarray(array, device=device_of(other))


def to_numpy(array: Array) -> NDArray[Any]:
    """Bring an array back from wherever it is."""
    return array if isinstance(array, np.ndarray) else np.asarray(array.cpu().numpy())
