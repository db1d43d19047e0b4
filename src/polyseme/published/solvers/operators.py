"""A kernel as the nu-SVR solver needs it: a few linear maps (part of step 4, the mapping).

In: a kernel matrix (n, n). Out: products with the centred kernel and solutions of
``(K + rho I) x = q``, for many outputs at once, one per row.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import blas, lapack

from polyseme._validation import FloatArray, InputError
from polyseme.published.solvers.blocks import in_blocks
from polyseme.published.solvers.kernels import mirror_lower

# Above this many rows the inverse costs more than it saves over two triangular solutions.
_INVERSE_ROWS = 4096


class DenseKernel:
    """A kernel matrix, centred on both sides: coefficients that sum to 0 see no difference.

    Parameters
    ----------
    kernel : array, shape (n, n)
        Symmetric and positive semi-definite; float32 or float64 decides the working precision.
    overwrite : bool
        Whether the kernel's memory may be used for the centred copy.

    Attributes
    ----------
    n : int
    dtype : numpy dtype
        float32 or float64: of what goes in and comes out.
    diagonal, roughness : float
        Mean of the diagonal before and after centring.
    """

    def __init__(self, kernel: FloatArray, *, overwrite: bool = False) -> None:
        if kernel.ndim != 2 or kernel.shape[0] != kernel.shape[1] or len(kernel) == 0:
            raise InputError(f"`kernel` must be a square matrix; got shape {kernel.shape}.")
        own: FloatArray = np.ascontiguousarray(
            kernel, dtype=np.float32 if kernel.dtype == np.float32 else np.float64
        )
        if not overwrite and np.shares_memory(own, kernel):
            own = own.copy()
        self.n, self.dtype = len(own), own.dtype
        self.diagonal = float(np.diagonal(own).mean())
        self._means = _centre(own)
        self._centred = own
        self.roughness = float(np.diagonal(own).mean())
        self._factor: FloatArray = np.empty((0, 0), own.dtype)

    def factorise(self, rho: float) -> None:
        """Prepare `solve`: the inverse of few rows, the Cholesky factor of many."""
        self._factor = np.empty_like(self._factor[:0])  # frees the old one before the copy
        matrix = self._centred.copy().T
        matrix.flat[:: self.n + 1] += rho
        single = self.dtype == np.float32
        potrf = lapack.spotrf if single else lapack.dpotrf
        potri = lapack.spotri if single else lapack.dpotri
        matrix, info = potrf(matrix, lower=1, overwrite_a=1, clean=0)
        if info == 0 and self._inverts:
            matrix, info = potri(matrix, lower=1, overwrite_c=1)
        if info != 0:
            raise InputError(
                "`kernel` must be positive semi-definite; a Cholesky factor of it does not exist."
            )
        if self._inverts:
            matrix = matrix.T
            matrix_upper_to_lower(matrix)
            # The vector of ones is an eigenvector, with value rho; this removes it.
            matrix -= matrix.mean(axis=1, dtype=np.float64).astype(matrix.dtype)
        self._factor = matrix

    def solve(self, q: FloatArray) -> FloatArray:
        """Minimise ``0.5 x'(K + rho I)x - q'x`` with sum(x) = 0 per row; q (g, n) is used up."""
        if self._inverts:
            return np.asarray(q @ self._factor)
        trsm = blas.strsm if self.dtype == np.float32 else blas.dtrsm
        x = trsm(1.0, self._factor, q.T, lower=1, overwrite_b=1)
        x = trsm(1.0, self._factor, x, lower=1, trans_a=1, overwrite_b=1).T
        x -= x.mean(axis=1, keepdims=True)
        return np.asarray(x)

    def apply(self, z: FloatArray) -> FloatArray:
        """Multiply rows (g, n) by the centred kernel."""
        return np.asarray(z @ self._centred)

    def offsets(self, z: FloatArray) -> NDArray[np.float64]:
        """Give what centring takes from the predictions of coefficients (g, n): shape (g,)."""
        return np.asarray(z @ self._means)

    @property
    def _inverts(self) -> bool:
        """Whether the inverse is kept, and not the Cholesky factor."""
        return self.n <= _INVERSE_ROWS


def matrix_upper_to_lower(matrix: FloatArray) -> None:
    """Copy the upper triangle onto the lower one."""
    mirror_lower(matrix.T)


def _centre(kernel: FloatArray) -> NDArray[np.float64]:
    """Subtract the means of rows and columns in place; give the means of the rows.

    Without the large constant part float32 keeps two more digits.
    """
    means = np.empty(len(kernel))

    def average(block: slice) -> None:
        means[block] = kernel[block].mean(axis=1, dtype=np.float64)

    in_blocks(average, *kernel.shape)
    across = (means - means.mean()).astype(kernel.dtype)
    down = means.astype(kernel.dtype)

    def subtract(block: slice) -> None:
        kernel[block] -= down[block, None]
        kernel[block] -= across

    in_blocks(subtract, *kernel.shape)
    return means
