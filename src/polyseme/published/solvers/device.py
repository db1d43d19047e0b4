"""The kernel regressions on an accelerator that torch knows (part of step 4, the mapping).

In: scaled rows and targets as numpy arrays. Out: the coefficients and biases that the numpy solvers
find, within their tolerance, and predictions. The method is theirs; see `nu_svr` and `landmarks`.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from polyseme._validation import FloatArray, InputError, PolysemeWarning
from polyseme.published.solvers.device_kernels import (
    DeviceDenseKernel,
    DeviceLandmarkKernel,
    give,
    put,
    rbf,
)
from polyseme.published.solvers.device_optimality import (
    DeviceOutputs,
    balance,
    bias,
    project,
    violation,
)
from polyseme.published.solvers.kernels import Rows
from polyseme.published.solvers.landmarks import (
    CHANGE_EVERY,
    LEAST_TOLERANCE,
    MAX_ITER,
    LandmarkRows,
    LandmarkSolution,
    in_parts,
    landmark_rho,
    tube_middles,
)
from polyseme.published.solvers.nu_svr import (
    GREATEST_RHO,
    OVER_RELAXATION,
    REUSE_FACTOR,
    NuSvrSolution,
    first_rho,
    least_rho,
    standardise,
    wanted_rho,
)

if TYPE_CHECKING:
    import torch

    Tensor: TypeAlias = torch.Tensor

_CHECK_EVERY = 5
_STATE_ARRAYS = 8


def solve_ridge_on(
    device: str, rows: Rows, targets: FloatArray, *, gamma: float, penalty: float
) -> tuple[FloatArray, FloatArray]:
    """Kernel ridge regression over all rows; see `solve_kernel_ridge`.

    Parameters
    ----------
    device : str
        As torch names it.
    rows : array or csr_matrix, shape (n, n_features)
    targets : array, shape (n, d)
    gamma, penalty : float

    Returns
    -------
    coefficients : array, shape (n, d)
    bias : array, shape (d,)
    """
    import torch

    held = put(rows, device)
    kernel = rbf(held, held, gamma, same=True)
    mean = targets.mean(axis=0, dtype=np.float64)
    right = torch.from_numpy(targets - mean).to(device)
    kernel.diagonal().add_(penalty)
    factor, info = torch.linalg.cholesky_ex(kernel)
    if int(info) != 0:
        kernel, right = kernel.double(), right.double()
        factor, info = torch.linalg.cholesky_ex(kernel)
    if int(info) != 0:
        raise InputError(
            f"`penalty` is too small for this kernel to be solved; got {penalty:g}: raise it."
        )
    found = torch.cholesky_solve(right.to(factor.dtype), factor)
    return give(found.to(held.dtype)), mean.astype(rows.dtype)


def solve_nu_svr_on(
    device: str,
    rows: Rows,
    targets: FloatArray,
    *,
    gamma: float,
    nu: float,
    C: float,
    tolerance: float = 1e-4,
    max_iter: int = 2000,
) -> NuSvrSolution:
    """Solve nu-support-vector regressions over all rows; see `SharedKernelSolver`.

    Parameters
    ----------
    device : str
    rows : array or csr_matrix, shape (n, n_features)
    targets : array, shape (n, d)
    gamma, nu, C, tolerance, max_iter : see `SharedKernelSolver.solve`

    Returns
    -------
    NuSvrSolution
    """
    held = put(rows, device)
    solver = DeviceSolver(DeviceDenseKernel(rbf(held, held, gamma, same=True)))
    return solver.solve(targets, nu, C, tolerance, max_iter)


def solve_landmark_ridge_on(
    device: str, rows: LandmarkRows, targets: FloatArray, *, penalty: float
) -> LandmarkSolution:
    """Kernel ridge regression with the landmarks' kernel; see `solve_landmark_ridge`.

    Parameters
    ----------
    device : str
    rows : LandmarkRows
    targets : array, shape (n, d)
    penalty : float

    Returns
    -------
    LandmarkSolution
    """
    return DeviceLandmarkKernel(rows, device, store=False).ridge(targets, penalty)


def solve_landmark_nu_svr_on(
    device: str,
    rows: LandmarkRows,
    targets: FloatArray,
    *,
    nu: float,
    C: float,
    tolerance: float,
) -> LandmarkSolution:
    """Nu-support-vector regressions with the landmarks' kernel; see `solve_landmark_nu_svr`.

    Parameters
    ----------
    device : str
    rows : LandmarkRows
    targets : array, shape (n, d)
    nu, C, tolerance : float

    Returns
    -------
    LandmarkSolution
    """
    kernel = DeviceLandmarkKernel(rows, device, store=True)

    def settle(y: FloatArray, bound: FloatArray) -> tuple[FloatArray, FloatArray]:
        return _settle(kernel, y, bound, nu, max(tolerance, LEAST_TOLERANCE))

    return in_parts(rows, targets, C, settle, _STATE_ARRAYS)


def _settle(
    kernel: DeviceLandmarkKernel, y: FloatArray, bound: FloatArray, nu: float, tolerance: float
) -> tuple[FloatArray, FloatArray]:
    """Run the landmarks' method for targets (g, n): weights (g, r) and biases (g,)."""
    import torch

    rho = landmark_rho(kernel.roughness, bound)
    kernel.factorise(rho)
    state = DeviceOutputs.start(y, bound, nu, kernel.device)
    inner = torch.zeros(len(y), len(kernel), dtype=torch.float64, device=kernel.device)
    last = inner
    for number in range(1, MAX_ITER + 1):
        q = torch.sub(state.z, state.u).mul_(rho).add_(state.y)
        before, inner = inner, kernel.fit(q)
        if number % CHANGE_EVERY == 1:
            last = before
        elif number % CHANGE_EVERY == 0 and float(kernel.changes(inner - last).max()) <= tolerance:
            break
        kernel.subtract(q, inner, 1 / rho)
        v = q.mul_(OVER_RELAXATION).sub_(state.z, alpha=OVER_RELAXATION - 1).add_(state.u)
        state.z, state.threshold = project(v, state.C, state.budget, state.threshold)
        state.u = v.sub_(state.z)
    kernel.subtract(state.y, inner, 1)
    weights = kernel.weights(inner)
    offsets = give(weights @ kernel.means)
    return give(weights), tube_middles(give(state.y), nu) - offsets


class DevicePredictor:
    """Evaluate kernel expansions on a device; see `rbf_predict`.

    Parameters
    ----------
    device : str
    rows : array or csr_matrix, shape (n, n_features)
    gamma : float
    coefficients : array, shape (n, d)
    bias : array, shape (d,)
    """

    def __init__(
        self, device: str, rows: Rows, gamma: float, coefficients: FloatArray, bias: FloatArray
    ) -> None:
        self._rows, self._gamma, self._device = put(rows, device), gamma, device
        self._coefficients, self._bias = put(coefficients, device), put(bias, device)

    def predict(self, queries: FloatArray) -> FloatArray:
        """Predict for scaled queries (m, n_features): shape (m, d)."""
        kernel = rbf(put(queries, self._device), self._rows, self._gamma)
        return give(kernel @ self._coefficients + self._bias)


class DeviceSolver:
    """The method of `SharedKernelSolver` with tensors.

    Parameters
    ----------
    kernel : DeviceDenseKernel
    """

    def __init__(self, kernel: DeviceDenseKernel) -> None:
        self._kernel, self._rho = kernel, 0.0
        single = kernel.dtype.itemsize == 4
        self._roughness = max(kernel.roughness, 0.02 * max(kernel.diagonal, 1e-6))
        self._least_rho = least_rho(self._roughness, single)

    def solve(
        self, targets: FloatArray, nu: float, C: float, tolerance: float, max_iter: int
    ) -> NuSvrSolution:
        """Solve all outputs of targets (n, d); see `SharedKernelSolver.solve`."""
        import torch

        dtype = np.dtype(np.float32 if self._kernel.dtype == torch.float32 else np.float64)
        y, centre, spread = standardise(targets, dtype)
        bound = (C / spread).astype(dtype)
        self._factorise(first_rho(self._roughness, bound))
        z, middle, n_iter, remaining = self._iterate(y, bound, nu, tolerance, max_iter)
        middle -= self._kernel.offsets(z)
        if len(remaining):
            warnings.warn(
                f"{len(remaining)} of {len(spread)} outputs did not converge in {max_iter} "
                f"iterations: the optimality conditions are violated by up to "
                f"{max(remaining):.2g} standard deviations of the target; raise `tolerance`.",
                PolysemeWarning,
                stacklevel=4,
            )
        z *= torch.from_numpy(spread).to(z)[:, None]
        offset = (give(middle) * spread + centre).astype(dtype)
        return NuSvrSolution(give(z.T.contiguous()), offset, n_iter)

    def _factorise(self, rho: float) -> None:
        """Prepare the kernel for a value of rho, within what the precision allows."""
        self._rho = float(np.clip(rho, self._least_rho, GREATEST_RHO))
        self._kernel.factorise(self._rho)

    def _iterate(
        self, y: FloatArray, bound: FloatArray, nu: float, tolerance: float, max_iter: int
    ) -> tuple[Tensor, Tensor, int, list[float]]:
        """Run the method; outputs leave as they satisfy the optimality conditions."""
        import torch

        state = DeviceOutputs.start(y, bound, nu, self._kernel.device)
        solution = torch.zeros_like(state.y)
        middle = torch.zeros(len(y), dtype=torch.float64, device=self._kernel.device)
        n_iter, adapt_at, eps = 0, 20, float(np.finfo(y.dtype).eps)
        while True:
            steps = min(_CHECK_EVERY, max_iter - n_iter)
            residual = self._steps(state, steps)
            n_iter += steps
            z = state.z.clone()
            for _ in range(3):
                balance(z, state)
            t = state.y - self._kernel.apply(z)
            failed = violation(z, t, state)
            small = 0.1 * tolerance + 32 * eps * z.abs().amax(dim=1)
            met = (failed <= tolerance) | (residual <= small)
            solution[state.rows], middle[state.rows] = z, bias(z, t, state)
            if bool(met.all()) or n_iter >= max_iter:
                left = torch.where(torch.isinf(failed), residual.double(), failed)[~met]
                return solution, middle, n_iter, left.tolist()
            if bool(met.any()):
                state = state.keep(~met)
            if n_iter >= max(adapt_at, self._kernel.n / (2 * len(state.rows))):
                self._adapt(state)
                adapt_at = 3 * n_iter

    def _steps(self, state: DeviceOutputs, count: int) -> Tensor:
        """Take a few steps; return the larger of the last two residuals of each output."""
        import torch

        for _ in range(count):
            q = torch.sub(state.z, state.u).mul_(self._rho).add_(state.y)
            x = self._kernel.solve(q)
            v = (x * OVER_RELAXATION).sub_(state.z, alpha=OVER_RELAXATION - 1).add_(state.u)
            old = state.z
            state.z, state.threshold = project(v, state.C, state.budget, state.threshold)
            state.u = v.sub_(state.z)
        apart = (x - state.z).abs_().amax(dim=1)
        moved = (state.z - old).abs_().amax(dim=1) * self._rho
        return torch.maximum(apart, moved)

    def _adapt(self, state: DeviceOutputs) -> None:
        """Factorise anew when another rho would save many iterations."""
        sizes = state.u.norm(dim=1) * self._rho / state.z.norm(dim=1).clamp_min(1e-30)
        wanted, old = wanted_rho(give(sizes), self._least_rho), self._rho
        if not old / REUSE_FACTOR <= wanted <= old * REUSE_FACTOR:
            self._factorise(wanted)
            state.u *= old / self._rho
