"""Kernel ridge regression in closed form (part of step 4, the mapping).

In: a kernel matrix (n, n) and targets (n, d). Out: coefficients (n, d) and a bias per output,
for one penalty or for each of several.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack

from polyseme._validation import FloatArray, InputError, check_number
from polyseme.published.solvers.kernels import blas_threads


class KernelRidgeSolution(NamedTuple):
    """Coefficients (n, d) and bias (d,)."""

    coefficients: FloatArray
    bias: FloatArray


def solve_kernel_ridge(
    kernel: FloatArray, targets: FloatArray, *, penalty: float
) -> KernelRidgeSolution:
    """Minimise squared error plus `penalty` times the squared norm, for all outputs.

    Parameters
    ----------
    kernel : array, shape (n, n)
        Symmetric and positive semi-definite; float32 or float64 decides the working precision.
    targets : array, shape (n, d)
    penalty : float
        Above 0. Added to the diagonal of the kernel.

    Returns
    -------
    KernelRidgeSolution
        Predictions are ``kernel_to_rows @ coefficients + bias``; the bias is the mean target,
        which is not penalised.
    """
    return next(kernel_ridge_path(kernel, targets, [penalty]))


def kernel_ridge_path(
    kernel: FloatArray, targets: FloatArray, penalties: Sequence[float]
) -> Iterator[KernelRidgeSolution]:
    """Solve for several penalties in turn.

    Parameters
    ----------
    kernel : array, shape (n, n)
    targets : array, shape (n, d)
    penalties : sequence of float

    Yields
    ------
    KernelRidgeSolution
        One per penalty, in the order given.

    Notes
    -----
    Each penalty costs one Cholesky factor. An eigendecomposition would serve all of them but
    costs as much as about twenty factors, and loses digits in float32.
    """
    if targets.ndim != 2 or kernel.shape != (len(targets), len(targets)):
        raise InputError(
            "`targets` must have two dimensions and one row per row of a square kernel; got "
            f"shapes {targets.shape} and {kernel.shape}."
        )
    dtype = np.float32 if kernel.dtype == np.float32 else np.float64
    mean = targets.mean(axis=0, dtype=np.float64)
    centred = targets - mean
    for penalty in penalties:
        check_number("penalty", penalty, owner="solve_kernel_ridge", low=0, above=True)
        coefficients = _solve(kernel.astype(dtype, copy=False), centred, penalty)
        yield KernelRidgeSolution(coefficients, mean.astype(dtype))


def _solve(kernel: FloatArray, targets: NDArray[np.float64], penalty: float) -> FloatArray:
    """Solve ``(K + penalty I) c = targets``, in float64 where float32 is not enough."""
    single = kernel.dtype == np.float32
    posv = lapack.sposv if single else lapack.dposv
    matrix = kernel.copy().T
    matrix.flat[:: len(matrix) + 1] += penalty
    right = np.asarray(targets, dtype=kernel.dtype, order="F")
    with blas_threads(len(matrix) ** 2 * (len(matrix) / 6 + right.shape[1])):
        _, solution, info = posv(matrix, right, lower=1, overwrite_a=1)
    if info == 0:
        return np.ascontiguousarray(solution)
    if single:
        return _solve(kernel.astype(np.float64), targets, penalty).astype(np.float32)
    raise InputError(
        f"`penalty` is too small for this kernel to be solved; got {penalty:g}: raise it."
    )
