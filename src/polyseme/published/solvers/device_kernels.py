"""Kernels as the device's nu-SVR solver needs them (part of step 4, the mapping).

In: rows as numpy arrays or sparse matrices. Out: the linear maps of `operators` and `landmarks`
with tensors, for many outputs at once, one per row.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from polyseme._validation import FloatArray, InputError
from polyseme.published.solvers.landmarks import STORE_SHARE, LandmarkRows, LandmarkSolution

if TYPE_CHECKING:
    import torch

    Tensor: TypeAlias = torch.Tensor


class DeviceDenseKernel:
    """A whole kernel matrix; see `DenseKernel`. The matrix is used up.

    Parameters
    ----------
    kernel : tensor, shape (n, n)
    """

    def __init__(self, kernel: Tensor) -> None:
        import torch

        self.n, self.dtype, self.device = len(kernel), kernel.dtype, kernel.device
        self.diagonal = float(kernel.diagonal().mean())
        self._means = kernel.mean(dim=1, dtype=torch.float64)
        kernel -= self._means.to(self.dtype)[:, None]
        kernel -= (self._means - self._means.mean()).to(self.dtype)
        self._centred = kernel
        self.roughness = float(kernel.diagonal().mean())
        self._inverse = kernel[:0]

    def factorise(self, rho: float) -> None:
        """Compute the inverse: one product is what a device does best."""
        import torch

        self._inverse = self._centred[:0]  # frees the old one before the copy
        matrix = self._centred.clone()
        matrix.diagonal().add_(rho)
        factor, info = torch.linalg.cholesky_ex(matrix)
        del matrix
        if int(info) != 0:
            raise InputError(
                "`kernel` must be positive semi-definite; a Cholesky factor of it does not exist."
            )
        self._inverse = torch.cholesky_inverse(factor)

    def solve(self, q: Tensor) -> Tensor:
        """Minimise ``0.5 x'(K + rho I)x - q'x`` with sum(x) = 0 for each row of q (g, n)."""
        x = q @ self._inverse
        x -= x.mean(dim=1, keepdim=True)
        return x

    def apply(self, z: Tensor) -> Tensor:
        """Multiply rows (g, n) by the centred kernel."""
        return z @ self._centred

    def offsets(self, z: Tensor) -> Tensor:
        """Give what centring takes from the predictions of coefficients (g, n): shape (g,)."""
        return z.double() @ self._means


class DeviceLandmarkKernel:
    """The kernel ``K_nm K_mm^-1 K_mn``; see `LandmarkKernel`.

    Parameters
    ----------
    rows : LandmarkRows
    device : str
    store : bool
        Whether to keep the kernel where the memory bound allows.
    """

    def __init__(self, rows: LandmarkRows, device: str, *, store: bool) -> None:
        import torch

        self._rows, self._landmarks = rows, put(rows.landmarks, device)
        self.device, self._root = torch.device(device), put(rows.root, device)
        self._stored: list[Tensor] | None = None
        if store and rows.n * len(rows) * rows.dtype.itemsize <= STORE_SHARE * rows.memory_bytes:
            self._stored = [kernel for _, kernel in self._kernels()]
        gram, sums = torch.zeros_like(self._root), torch.zeros_like(self._root[0])
        for _, kernel in self._kernels():
            wide = kernel.double()
            gram += wide.T @ wide
            sums += wide.sum(dim=0)
        self.means = sums / rows.n
        self._whole = self._root.T @ gram @ self._root
        mean = self._root.T @ self.means
        self._gram = self._whole - rows.n * torch.outer(mean, mean)
        self.roughness = float(self._gram.trace()) / rows.n
        self._map = self._root

    def __len__(self) -> int:
        """Give the number of landmarks."""
        return len(self._rows)

    def ridge(self, targets: FloatArray, penalty: float) -> LandmarkSolution:
        """Solve kernel ridge regression for targets (n, d); see `solve_landmark_ridge`."""
        import torch

        mean = targets.mean(axis=0, dtype=np.float64)
        cross = torch.zeros(len(self), len(mean), dtype=torch.float64, device=self.device)
        for block, kernel in self._kernels():
            centred = put((targets[block] - mean).astype(self._rows.dtype), str(self.device))
            cross += kernel.T @ centred
        found = self._root @ _penalised(self._whole, penalty, self._root.T @ cross)
        coefficients = give(found).astype(self._rows.dtype)
        return LandmarkSolution(coefficients, mean.astype(coefficients.dtype))

    def factorise(self, rho: float) -> None:
        """Prepare `fit` for a value of rho."""
        self._map = _penalised(self._gram, rho, self._root.T).T

    def fit(self, q: Tensor) -> Tensor:
        """Fit a ridge regression of penalty rho to each row of q (g, n): weights (g, r)."""
        import torch

        total = torch.zeros(len(q), len(self), dtype=torch.float64, device=self.device)
        for block, kernel in self._kernels():
            total += q[:, block] @ kernel
        total -= torch.outer(q.sum(dim=1, dtype=torch.float64), self.means)
        return total @ self._map

    def weights(self, inner: Tensor) -> Tensor:
        """Turn weights of features into those of landmarks, both (g, r)."""
        return inner @ self._root.T

    def changes(self, inner: Tensor) -> Tensor:
        """Give the root mean square over all rows of what weights (g, r) predict: shape (g,)."""
        square = ((inner @ self._gram) * inner).sum(dim=1)
        return (square.clamp(min=0) / self._rows.n).sqrt()

    def subtract(self, q: Tensor, inner: Tensor, factor: float) -> None:
        """Take what weights (g, r) predict from q (g, n), centre and multiply it, in place."""
        weights = self.weights(inner)
        single, middle = weights.to(q.dtype), (weights @ self.means).to(q.dtype)[:, None]
        for block, kernel in self._kernels():
            q[:, block] -= single @ kernel.T - middle
        if factor != 1:
            q -= q.mean(dim=1, keepdim=True)
            q *= factor

    def _kernels(self) -> Iterator[tuple[slice, Tensor]]:
        """Yield blocks of rows with their kernel to the landmarks."""
        for number, block in enumerate(self._rows.blocks):
            if self._stored is not None:
                yield block, self._stored[number]
            else:
                queries = put(self._rows.take(block), str(self.device))
                yield block, rbf(queries, self._landmarks, self._rows.gamma)


def _penalised(inner: Tensor, penalty: float, right: Tensor) -> Tensor:
    """Solve ``(inner + penalty I) x = right``."""
    import torch

    matrix = inner.clone()
    matrix.diagonal().add_(penalty)
    solution: Tensor = torch.cholesky_solve(right, torch.linalg.cholesky(matrix))
    return solution


def put(rows: Any, device: str) -> Tensor:
    """Move an array, or a sparse matrix made dense, to the device."""
    import torch

    dense: Any = rows.toarray() if hasattr(rows, "toarray") else rows
    return torch.from_numpy(np.ascontiguousarray(dense)).to(device)


def give(tensor: Tensor) -> FloatArray:
    """Bring a tensor back."""
    return np.asarray(tensor.cpu().numpy())


def rbf(queries: Tensor, rows: Tensor, gamma: float, *, same: bool = False) -> Tensor:
    """Gaussian kernel (m, n), with a unit diagonal where the queries are the rows themselves."""
    product = queries @ rows.T
    product *= 2
    product -= (queries * queries).sum(dim=1)[:, None]
    product -= (rows * rows).sum(dim=1)
    product.clamp_(max=0).mul_(gamma).exp_()
    if same:
        product.diagonal().fill_(1)
    return product
