"""Which solver fits and which function predicts (part of step 4, the mapping).

In: what kind of regression with which settings, rows, targets. Out: coefficients and biases, or
predictions; on the processor by numpy, on other devices by torch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from polyseme._validation import FloatArray
from polyseme.published.solvers.kernel_ridge import solve_kernel_ridge
from polyseme.published.solvers.kernels import Rows, rbf_kernel, rbf_predict
from polyseme.published.solvers.landmarks import (
    LandmarkRows,
    LandmarkSolution,
    solve_landmark_nu_svr,
    solve_landmark_ridge,
)
from polyseme.published.solvers.nu_svr import SharedKernelSolver, solve_nu_svr_libsvm


class Regression(NamedTuple):
    """What is fitted, and where.

    Attributes
    ----------
    gamma : float
    penalty : float or None
        For kernel ridge; None means nu-support-vector regressions.
    nu, C : float
        For these.
    tolerance : float
    libsvm : bool
        Whether the slow reference solves them.
    device : str
        As torch names it; "cpu" is numpy's.
    """

    gamma: float
    penalty: float | None = None
    nu: float = 0.5
    C: float = 1.0
    tolerance: float = 1e-3
    libsvm: bool = False
    device: str = "cpu"


def fit_all(
    regression: Regression, rows: Rows, targets: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Fit with the kernel of all rows.

    Parameters
    ----------
    regression : Regression
    rows : array or csr_matrix, shape (n, n_features)
    targets : array, shape (n, d)

    Returns
    -------
    coefficients : array, shape (n, d)
    bias : array, shape (d,)
    """
    gamma, penalty, nu, C, tolerance, libsvm, device = regression
    if device != "cpu":
        from polyseme.published.solvers.device import solve_nu_svr_on, solve_ridge_on

        if penalty is not None:
            return solve_ridge_on(device, rows, targets, gamma=gamma, penalty=penalty)
        return solve_nu_svr_on(device, rows, targets, gamma=gamma, nu=nu, C=C, tolerance=tolerance)[
            :2
        ]
    kernel = rbf_kernel(rows, gamma)
    if penalty is not None:
        return solve_kernel_ridge(kernel, targets, penalty=penalty)
    if libsvm:
        return solve_nu_svr_libsvm(kernel, targets, nu=nu, C=C, tolerance=tolerance)[:2]
    return SharedKernelSolver(kernel, overwrite=True).solve(targets, nu, C, tolerance=tolerance)[:2]


def fit_landmarks(
    regression: Regression, rows: LandmarkRows, targets: FloatArray
) -> LandmarkSolution:
    """Fit with the kernel to landmarks.

    Parameters
    ----------
    regression : Regression
    rows : LandmarkRows
    targets : array, shape (n, d)

    Returns
    -------
    LandmarkSolution
    """
    _, penalty, nu, C, tolerance, _, device = regression
    if device != "cpu":
        from polyseme.published.solvers.device import (
            solve_landmark_nu_svr_on,
            solve_landmark_ridge_on,
        )

        if penalty is not None:
            return solve_landmark_ridge_on(device, rows, targets, penalty=penalty)
        return solve_landmark_nu_svr_on(device, rows, targets, nu=nu, C=C, tolerance=tolerance)
    if penalty is not None:
        return solve_landmark_ridge(rows, targets, penalty=penalty)
    return solve_landmark_nu_svr(rows, targets, nu=nu, C=C, tolerance=tolerance)


def evaluation(
    device: str, rows: Rows, gamma: float, coefficients: FloatArray, bias: FloatArray
) -> Callable[[FloatArray], FloatArray]:
    """Give the function from queries (m, n_features) to predictions (m, d).

    Parameters
    ----------
    device : str
    rows : array or csr_matrix, shape (n, n_features)
    gamma : float
    coefficients : array, shape (n, d)
    bias : array, shape (d,)
    """
    if device != "cpu":
        from polyseme.published.solvers.device import DevicePredictor

        return DevicePredictor(device, rows, gamma, coefficients, bias).predict
    return lambda queries: rbf_predict(queries, rows, gamma, coefficients, bias)
