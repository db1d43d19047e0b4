"""Gaussian kernels over feature rows, and the rows they compare (part of the instance mapping).

In: feature rows. Out: scaled rows, squared distances, kernel matrices and kernel predictions. The
same functions take numpy arrays and torch tensors of any device; sparse rows work with numpy. At
the end stand what all of them need: blocks of rows, threads, and ways between devices.

Terms: a *row* is the features of an instance, after `scale_rows` a scaled one; *queries* are the
rows that kernels are evaluated at. The kernel is k(x, x') = exp(-γ ‖x - x'‖²), with γ called gamma
or width. Shapes: n rows, m queries, f features, d outputs.
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
from scipy.linalg import get_lapack_funcs, lapack

from polyseme.base.machine import n_cores, one_blas_thread, run_all
from polyseme.base.validation import FloatArray, IntArray

Rows: TypeAlias = FloatArray | sp.csr_matrix  # (n, f)
Array: TypeAlias = Any  # a numpy array or a torch tensor

SCALINGS = ("standard", "l2", "none")
# Scaled features are cut off here, where squared distances are finite in single precision.
FARTHEST = 1e15
# Multiples of the median heuristic that a search of gamma compares; the first of equals wins.
GAMMA_GRID = (1.0, 0.25, 4.0)
# Rows of the sample whose distances the median heuristic looks at.
_HEURISTIC_ROWS = 1000
# The most rows of a block, however much memory there is.
_BLOCK_ROWS = 4096
# Rows of a block that is mirrored at its diagonal.
_MIRROR_ROWS = 512
# Numbers in a block that fits the cache, and fewer than another thread would wake up for.
_BLOCK_NUMBERS = 2**17
_THREADS_FROM_NUMBERS = 2**18
# Multiplications of a product below which waking BLAS threads costs more than they gain.
_THREADS_FROM_WORK = 2e8


def column_statistics(X: Any, scaling: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Compute the mean and the scale of each column of features, for `scale_rows`.

    Parameters
    ----------
    X : array or csr_matrix, shape (n, n_features)
        Unscaled features; not changed.
    scaling : {"standard", "l2", "none"}

    Returns
    -------
    mean : float64 array, shape (n_features,)
        Zeros for sparse rows, which must stay sparse, and for "l2"; distances do not depend on
        them, but lose no digits near the origin.
    scale : float64 array, shape (n_features,)
        Standard deviations for "standard" (1 for a constant column), else ones.
    """
    n_features = X.shape[1]
    scale = np.ones(n_features)
    sparse = sp.issparse(X)
    if sparse:
        # Of sums of squares in single precision little is left when the mean is subtracted.
        X = X.astype(np.float64, copy=False)
    else:
        # Sums depend on the order in memory, if only in the last digit.
        X = np.ascontiguousarray(X)
    mean = X.mean(axis=0, dtype=np.float64)
    mean = np.asarray(mean).ravel()

    if scaling == "standard":
        if sparse:
            squares = X.multiply(X)
            mean_square = squares.mean(axis=0)
            mean_square = np.asarray(mean_square).ravel()
            variance = mean_square - mean**2
            variance = np.maximum(variance, 0)
            rounding = 1e-7
        else:
            variance = _variance_in_blocks(X, mean)
            rounding = 1e-12
        spread = np.sqrt(variance)
        # Rounding leaves a constant column with a spread of a few units in the last place.
        varies = spread > rounding * np.abs(mean)
        scale[varies] = spread[varies]

    if sparse or scaling == "l2":
        mean = np.zeros_like(mean)
    return mean, scale


def _variance_in_blocks(X: FloatArray, mean: NDArray[np.float64]) -> NDArray[np.float64]:
    """Compute the variance of each column (n_features,) without a second copy of many rows."""
    n_rows = len(X)
    total = np.zeros_like(mean)
    for block in row_blocks(n_rows, 1, _BLOCK_ROWS):
        deviations = X[block] - mean
        squares = np.square(deviations)
        total += squares.sum(axis=0)
    return total / n_rows


def scale_rows(
    X: Rows,
    scaling: str,
    mean: NDArray[np.float64],
    scale: NDArray[np.float64],
    dtype: type[np.float32] | type[np.float64],
) -> Rows:
    """Centre and scale features (n, n_features) by `column_statistics`, in float64.

    The rows, of the given `dtype`, are new memory. "l2" divides each by its length; a zero row
    stays zero. Sparse rows are not centred, and their indices are in order.
    """
    if sp.issparse(X):
        inverse_scales = sp.diags_array(1.0 / scale)
        product = X @ inverse_scales
        rows = sp.csr_matrix(product)
        np.clip(rows.data, -FARTHEST, FARTHEST, out=rows.data)
        if scaling == "l2":
            squares = rows.multiply(rows)
            squared_lengths = np.asarray(squares.sum(axis=1))
            lengths = np.sqrt(squared_lengths.ravel())
            divisors = np.where(lengths > 0, lengths, 1.0)
            inverse_lengths = sp.diags_array(1.0 / divisors)
            product = inverse_lengths @ rows
            rows = sp.csr_matrix(product)
        rows.sort_indices()
        return sp.csr_matrix(rows, dtype=dtype)
    centred = np.asarray(X) - mean
    dense = np.asarray(centred / scale)
    np.clip(dense, -FARTHEST, FARTHEST, out=dense)
    if scaling == "l2":
        lengths = np.linalg.norm(dense, axis=1, keepdims=True)
        divisors = np.where(lengths > 0, lengths, 1.0)
        dense /= divisors
    return np.ascontiguousarray(dense, dtype=dtype)


def squared_distances(queries: Array, rows: Array, gamma: float | None = None) -> Array:
    """Return squared distances of queries (m, f) and rows (n, f) by one product: (m, n), >= 0.

    With a gamma they are turned into the Gaussian kernel ``exp(-gamma d)`` at once. Only rows may
    be sparse.
    """
    xp = array_namespace(queries)
    query_squares = xp.einsum("ij,ij->i", queries, queries)
    if isinstance(rows, sp.csr_matrix):
        transposed = np.asarray(rows @ queries.T)
        product = np.ascontiguousarray(transposed.T)
        squares = rows.multiply(rows)
        sums = np.asarray(squares.sum(axis=1))
        row_squares = sums.ravel().astype(queries.dtype)
    else:
        product = queries @ rows.T
        row_squares = xp.einsum("ij,ij->i", rows, rows)

    # ‖q - r‖² = ‖q‖² - 2 q·r + ‖r‖², in the memory of the product.
    def finish(block: slice) -> None:
        distances = product[block]
        distances *= -2
        distances += query_squares[block, None]
        distances += row_squares
        xp.maximum(distances, 0, out=distances)
        if gamma is not None:
            rbf_from_squared(distances, gamma, out=distances)

    in_blocks(finish, product)
    return product


def pairwise_squared_distances(rows: Array, gamma: float | None = None) -> Array:
    """Return squared distances among rows (n, f): (n, n), symmetric, with a zero diagonal.

    With a gamma they are turned into the Gaussian kernel at once, whose diagonal is 1.
    """
    if isinstance(rows, sp.csr_matrix):
        n, n_features = rows.shape
        distances = np.empty((n, n), dtype=rows.dtype)
        row_bytes = n_features * rows.dtype.itemsize
        for block in row_blocks(n, row_bytes, 2**26):
            queries = rows[block].toarray()
            distances[block] = squared_distances(queries, rows, gamma)
    else:
        distances = squared_distances(rows, rows, gamma)
    mirror_lower(distances)  # rounding may hinder symmetry
    diagonal = diagonal_of(distances)
    diagonal[...] = 0 if gamma is None else 1
    return distances


def rbf_kernel(rows: Array, gamma: float) -> Array:
    """Return the Gaussian kernel among rows (n, f): (n, n), symmetric, with a unit diagonal."""
    return pairwise_squared_distances(rows, gamma)


def rbf_from_squared(distances: Array, gamma: float, out: Array | None = None) -> Array:
    """Turn squared distances (m, n) into the Gaussian kernel ``exp(-gamma d)``.

    `out` may be the distances themselves; None: the kernel is new memory.
    """
    xp = array_namespace(distances)
    exponents = xp.multiply(
        distances,
        -gamma,
        out=out,
    )
    return xp.exp(exponents, out=exponents)


def rbf_predict(
    queries: Array, rows: Array, gamma: float, coefficients: Array, bias: Array
) -> Array:
    """Evaluate kernel expansions at queries (m, f), equation (8): points (m, d).

    They are given by rows (n, f), coefficients (n, d), which are α* - α in the paper, and the bias
    (d,), b in the paper.
    """
    kernel = squared_distances(queries, rows, gamma)
    predicted = kernel @ coefficients
    predicted += bias
    return predicted


def mirror_lower(matrix: Array) -> None:
    """Copy the lower triangle of a square matrix onto the upper one in place, block by block."""
    xp = array_namespace(matrix)
    n = len(matrix)
    for start in range(0, n, _MIRROR_ROWS):
        stop = min(start + _MIRROR_ROWS, n)
        rows = slice(start, stop)
        below = matrix[stop:, rows]
        matrix[rows, stop:] = below.T
        block = matrix[rows, rows]
        lower = xp.tril(block)
        strictly_lower = xp.tril(block, k=-1)
        block[...] = lower + strictly_lower.T


def centre_kernel(kernel: Array) -> Array:
    """Subtract the means of rows and columns of a kernel (n, n) in place.

    Return the means of the rows before, (n,), in float64.
    """
    xp = array_namespace(kernel)
    means = xp.empty_like(kernel[:, 0], dtype=xp.float64)

    def average(block: slice) -> None:
        means[block] = xp.mean(kernel[block], axis=1, dtype=xp.float64)

    in_blocks(average, kernel)
    row_means = xp.astype(means, kernel.dtype)
    # The kernel is symmetric; the mean of all is subtracted once only.
    deviations = means - xp.mean(means)
    column_deviations = xp.astype(deviations, kernel.dtype)

    def subtract(block: slice) -> None:
        kernel_rows = kernel[block]
        kernel_rows -= row_means[block, None]
        kernel_rows -= column_deviations

    in_blocks(subtract, kernel)
    return means


def independent_rows(
    rows: Rows, gamma: float, least_pivot: float
) -> tuple[IntArray, NDArray[np.float64]]:
    """Find the rows that the others do not explain, and a root of their inverse kernel.

    A row is left out when less than `least_pivot` of it, at most 1, is new in the kernel's feature
    space. Return the sorted numbers of the r rows that stay, and the root, (r, r): the inverse of
    their kernel is ``root @ root.T``.
    """
    kernel = rbf_kernel(rows.astype(np.float64), gamma)
    # Matrices are passed in the order of Fortran. The first factor is pivoted.
    _, order, rank, _ = lapack.dpstrf(kernel.T, lower=1, tol=least_pivot)
    pivots = order[:rank] - 1  # LAPACK counts from 1
    numbers = np.sort(pivots).astype(np.int64)
    square = np.ix_(numbers, numbers)
    independent_kernel = kernel[square]
    factor, _ = lapack.dpotrf(independent_kernel.T, lower=1, clean=1)
    inverse, _ = lapack.dtrtri(factor, lower=1)
    root = np.ascontiguousarray(inverse.T)
    return numbers, root


def diagonal_of(matrix: Array) -> Array:
    """Return the diagonal of a contiguous square matrix: a view, to be written to."""
    if isinstance(matrix, np.ndarray):
        step = len(matrix) + 1
        flat = matrix.ravel(order="K")
        return flat[::step]
    return matrix.diagonal()


def solve_positive(matrix: Array, penalty: float, right: Array) -> Array:
    """Solve ``(matrix + penalty I) x = right`` for a positive semi-definite matrix (n, n): (n, d).

    None where rounding leaves no Cholesky factor. Neither argument is changed.
    """
    shifted = matrix + 0
    diagonal = diagonal_of(shifted)
    diagonal[...] += penalty
    if isinstance(shifted, np.ndarray):
        n = len(shifted)
        n_outputs = right.shape[1]
        posv: Any = get_lapack_funcs("posv", (shifted,))
        fortran_right = np.asfortranarray(right)
        work = n**2 * (n / 6 + n_outputs)
        with blas_threads(work):
            _, solution, info = posv(
                shifted.T,  # in the order of Fortran, and symmetric
                fortran_right,
                lower=1,
                overwrite_a=1,
            )
        return np.ascontiguousarray(solution) if info == 0 else None
    import torch

    factor, failed = torch.linalg.cholesky_ex(shifted)
    if int(failed):
        return None
    return torch.cholesky_solve(right, factor)


def kernel_widths(
    rows: Rows, gamma: float | str | None, generator: np.random.Generator
) -> Sequence[float]:
    """Return the values of gamma to compare for scaled rows (n, f); the first wins ties.

    A value stands for itself, "median" for 1 / median squared distance (of a sample where there are
    many rows; 1 / mean when more than half of the pairs coincide, and 1 when all do), None for
    multiples of that, `GAMMA_GRID`.
    """
    if gamma is not None and gamma != "median":
        return (float(gamma),)
    n = rows.shape[0]
    if n > _HEURISTIC_ROWS:
        sample = generator.choice(n, _HEURISTIC_ROWS, replace=False)
        rows = rows[np.sort(sample)]
        n = _HEURISTIC_ROWS
    typical_distance = 0.0
    if n > 1:
        pairs = np.triu_indices(n, 1)
        distances = pairwise_squared_distances(rows)[pairs]
        typical_distance = float(np.median(distances))
        if not typical_distance:
            typical_distance = float(distances.mean(dtype=np.float64))
    width = 1.0 / typical_distance if typical_distance > 0 else 1.0
    if gamma:
        return (width,)
    return [width * factor for factor in GAMMA_GRID]


def row_blocks(n: int, row_bytes: int, memory_bytes: float) -> Iterator[slice]:
    """Yield the blocks of n rows in order.

    Each takes at most `memory_bytes`, but has one row at the least and 4,096 rows at the most.
    """
    rows_in_memory = memory_bytes // max(row_bytes, 1)
    block_rows = np.clip(rows_in_memory, 1, _BLOCK_ROWS)
    step = int(block_rows)
    for start in range(0, n, step):
        stop = min(start + step, n)
        yield slice(start, stop)


# ---------------------------------------------------------------------- blocks, threads, devices


def in_blocks(function: Callable[[slice], object], array: Array) -> None:
    """Call a function for blocks of an array's rows, in threads where there is enough to do.

    Numpy's arrays are cut into blocks that fit the cache; a tensor stays whole. The function takes
    a slice of rows and must not touch others.
    """
    n_rows = len(array)
    block_rows = max(n_rows, 1)
    n_threads = 1
    if isinstance(array, np.ndarray):
        row_size = max(array.size // block_rows, 1)
        block_rows = max(_BLOCK_NUMBERS // row_size, 1)
        if array.size >= _THREADS_FROM_NUMBERS:
            n_threads = n_cores()
    tasks = []
    for start in range(0, n_rows, block_rows):
        stop = min(start + block_rows, n_rows)
        rows = slice(start, stop)
        tasks.append(partial(function, rows))
    run_all(tasks, n_threads)


def blas_threads(work: float) -> AbstractContextManager[Any]:
    """Limit BLAS to one thread for products of so few multiplications that sharing costs time."""
    is_large = work > _THREADS_FROM_WORK
    return nullcontext() if is_large else one_blas_thread()


def to_device(array: Any, device: str) -> Array:
    """Return a numpy array or sparse matrix as it is for "cpu", else as a dense tensor there."""
    if device == "cpu":
        return array
    import torch

    dense = array.toarray() if isinstance(array, sp.csr_matrix) else array
    contiguous = np.ascontiguousarray(dense)
    tensor = torch.from_numpy(contiguous)
    return tensor.to(device)


def like(array: Any, template: Array) -> Array:
    """Return a numpy array as an array of the template's kind, on its device."""
    xp = array_namespace(template)
    device = device_of(template)
    return xp.asarray(array, device=device)


def to_double(array: Array) -> Array:
    """Return an array or tensor in float64, as it is where it has that precision."""
    xp = array_namespace(array)
    return xp.astype(array, xp.float64, copy=False)


def to_numpy(array: Array) -> NDArray[Any]:
    """Return an array or tensor of any device as a numpy array; a numpy array as it is."""
    if isinstance(array, np.ndarray):
        return array
    return np.asarray(array.cpu().numpy())
