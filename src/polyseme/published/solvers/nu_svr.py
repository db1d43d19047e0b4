"""Many nu-support-vector regressions over one kernel (part of step 4, the mapping).

In: a kernel matrix (n, n) and targets (n, d). Out: coefficients (n, d) and a bias per output.
All outputs are solved together by an alternating-direction method; libsvm is the reference.
"""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from polyseme._validation import FloatArray, InputError, PolysemeWarning, check_number
from polyseme.published.solvers.blocks import in_blocks
from polyseme.published.solvers.kernels import blas_threads
from polyseme.published.solvers.operators import DenseKernel
from polyseme.published.solvers.optimality import Outputs, balance, bias, violation
from polyseme.published.solvers.projection import project_to_box_and_budget

OVER_RELAXATION = 1.8
_LOOK_EVERY = 2
_CHECK_EVERY = 20
REUSE_FACTOR = 5.0
GREATEST_RHO = 4.0
_TIGHT_SHARE = 0.2
_TARGET_ROWS = 4096


class NuSvrSolution(NamedTuple):
    """Coefficients (n, d), bias (d,) and the number of iterations of the slowest output."""

    coefficients: FloatArray
    bias: FloatArray
    n_iter: int


class SharedKernelSolver:
    """Solve nu-support-vector regressions that share a kernel, factorising it once.

    For each output the dual is: minimise ``0.5 b'Kb - y'b`` subject to ``sum(b) = 0``,
    ``|b| <= C`` and ``sum(|b|) <= C nu n`` (libsvm's scale of C; the paper's eq. (7) has C / n).
    The method alternates between the quadratic part with the first constraint, a linear map that
    all outputs share, and the other two constraints, a projection of each output by itself.

    Parameters
    ----------
    kernel : array, shape (n, n)
        Symmetric and positive semi-definite; float32 or float64 decides the working precision.
    overwrite : bool
        Whether the kernel's memory may be used for the solver's own copy.

    Attributes
    ----------
    n_factorisations : int
        How often ``K + rho I`` was factorised so far.

    Notes
    -----
    The solution does not depend on rho, only the number of iterations does. The factor is kept
    between calls and replaced only when the iterates ask for a rho more than five times larger or
    smaller, which a grid over nu and C for one kernel rarely does.
    """

    def __init__(self, kernel: FloatArray, *, overwrite: bool = False) -> None:
        self._kernel = DenseKernel(kernel, overwrite=overwrite)
        self.n_factorisations = 0
        least = 0.02 * max(self._kernel.diagonal, 1e-6)
        self._roughness = max(self._kernel.roughness, least)
        self._least_rho = least_rho(self._roughness, self._kernel.dtype == np.float32)
        self._rho = 0.0

    def solve(
        self,
        targets: FloatArray,
        nu: float,
        C: float,
        *,
        tolerance: float = 1e-4,
        max_iter: int = 2000,
        quiet: bool = False,
    ) -> NuSvrSolution:
        """Solve all outputs.

        Parameters
        ----------
        targets : array, shape (n, d)
            One column per output.
        nu : float
            In (0, 1]: at most this share of rows lies outside the tube, at least this share
            supports it.
        C : float
            Bound on each coefficient, in the units of the targets.
        tolerance : float
            Largest accepted violation of the optimality conditions, in standard deviations of
            each target. Where float32 rounding hides whether it is reached, the residuals of the
            method decide.
        max_iter : int
            When reached, warns with the remaining violation and returns the current solution.
        quiet : bool
            Whether to leave that warning out.

        Returns
        -------
        NuSvrSolution
        """
        n, dtype = self._kernel.n, self._kernel.dtype
        _check_arguments(n, targets, nu, C, tolerance)
        check_number("max_iter", max_iter, owner="solve_nu_svr", low=1, whole=True)
        y, centre, spread = standardise(targets, dtype)
        bound = (C / spread).astype(dtype)
        with blas_threads(y.size * n):
            if self._rho == 0:
                self._factorise(first_rho(self._roughness, bound))
            z, middle, n_iter, remaining = self._iterate(y, bound, nu, tolerance, max_iter)
            middle -= self._kernel.offsets(z)
        if len(remaining) and not quiet:
            _warn_not_converged(remaining, len(spread), max_iter)
        z *= spread.astype(dtype)[:, None]
        return NuSvrSolution(
            np.ascontiguousarray(z.T), (middle * spread + centre).astype(dtype), n_iter
        )

    def _factorise(self, rho: float) -> None:
        """Prepare the kernel for a value of rho, within what the precision allows."""
        self._rho = float(np.clip(rho, self._least_rho, GREATEST_RHO))
        self._kernel.factorise(self._rho)
        self.n_factorisations += 1

    def _iterate(
        self, y: FloatArray, bound: FloatArray, nu: float, tolerance: float, max_iter: int
    ) -> tuple[FloatArray, NDArray[np.float64], int, FloatArray]:
        """Run the method; outputs leave one by one as they satisfy the optimality conditions."""
        d, n = y.shape
        solution, middle = np.zeros_like(y), np.zeros(d)
        state = Outputs(
            rows=np.arange(d),
            y=y,
            C=bound[:, None],
            budget=bound * nu * n,
            z=np.zeros_like(y),
            u=np.zeros_like(y),
            threshold=bound * 0,
            level=np.full_like(bound, tolerance),
        )
        n_iter, adapt_at = 0, 20
        while True:
            steps = min(_LOOK_EVERY, max_iter - n_iter)
            residual = self._steps(state, steps)
            n_iter += steps
            last = n_iter >= max_iter
            ready = (residual <= state.level) | (n_iter % _CHECK_EVERY == 0) | last
            if ready.any():
                done, left = self._check(state, ready, residual, tolerance, solution, middle)
                if last or done.all():
                    return solution, middle, n_iter, left
                if done.any():
                    state = state.keep(~done)
            # A factorisation costs as much as about n / 2g iterations: first wait for so many.
            if n_iter >= max(adapt_at, n / (2 * len(state.rows))):
                self._adapt(state)
                adapt_at = 3 * n_iter

    def _steps(self, state: Outputs, count: int) -> FloatArray:
        """Take a few steps; return the larger of the last two residuals of each output."""
        dtype = state.y.dtype.type
        rho, relax, more = dtype(self._rho), dtype(OVER_RELAXATION), dtype(OVER_RELAXATION - 1)
        q, residual = np.empty_like(state.y), np.empty_like(state.budget)

        def ask(rows: slice) -> None:
            np.subtract(state.z[rows], state.u[rows], out=q[rows])
            q[rows] *= rho
            q[rows] += state.y[rows]

        def answer(rows: slice) -> None:
            old, u, v = state.z[rows], state.u[rows], x[rows] * relax
            v -= more * old
            v += u
            z, state.threshold[rows] = project_to_box_and_budget(
                v, state.C[rows], state.budget[rows], state.threshold[rows]
            )
            np.subtract(v, z, out=u)
            if last:
                apart = np.abs(np.subtract(x[rows], z, out=v), out=v).max(axis=1)
                moved = np.abs(np.subtract(z, old, out=v), out=v).max(axis=1)
                residual[rows] = np.maximum(apart, rho * moved)
            state.z[rows] = z

        for number in range(count):
            last = number == count - 1
            in_blocks(ask, *q.shape)
            x = self._kernel.solve(q)
            in_blocks(answer, *q.shape)
        return residual

    def _check(
        self,
        state: Outputs,
        ready: NDArray[np.bool_],
        residual: FloatArray,
        tolerance: float,
        solution: FloatArray,
        middle: NDArray[np.float64],
    ) -> tuple[NDArray[np.bool_], FloatArray]:
        """Keep the outputs among those ready that are solved; say which, and how far others are.

        What is kept of the others is the best so far: they meet all constraints.
        """
        part = state if ready.all() else state.keep(ready)
        z, failed, centre = self._feasible(part)
        small = 0.1 * tolerance + 32 * np.finfo(z.dtype).eps * np.abs(z).max(axis=1)
        met = (failed <= tolerance) | (residual[ready] <= small)
        solution[part.rows] = z
        middle[part.rows] = centre
        # Residuals and violations shrink at one rate: look again when they should have.
        shrink = np.clip(tolerance / np.maximum(failed, 1e-30), 0.1, 0.8)
        state.level[ready] = residual[ready] * shrink
        done = np.zeros(len(ready), dtype=bool)
        done[np.flatnonzero(ready)[met]] = True
        return done, np.where(np.isinf(failed), residual[ready], failed)[~met]

    def _feasible(self, state: Outputs) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Give the nearby point that meets all constraints, its violation and its bias."""
        z = state.z.copy()
        failed, centre = np.empty_like(state.budget), np.empty(len(z))

        def move(rows: slice) -> None:
            for _ in range(3):
                balance(z[rows], state.keep(rows))

        def judge(rows: slice) -> None:
            part = state.keep(rows)
            t = np.subtract(part.y, product[rows], out=product[rows])
            failed[rows] = violation(z[rows], t, part)
            centre[rows] = bias(z[rows], t, part)

        in_blocks(move, *z.shape)
        product = self._kernel.apply(z)
        in_blocks(judge, *z.shape)
        return z, failed, centre

    def _adapt(self, state: Outputs) -> None:
        """Factorise anew when another rho would save many iterations."""
        sizes = np.linalg.norm(state.u, axis=1) * self._rho, np.linalg.norm(state.z, axis=1)
        wanted = wanted_rho(sizes[0] / np.maximum(sizes[1], 1e-30), self._least_rho)
        old = self._rho
        if not old / REUSE_FACTOR <= wanted <= old * REUSE_FACTOR:
            self._factorise(wanted)
            state.u *= state.u.dtype.type(old / self._rho)


def solve_nu_svr(
    kernel: FloatArray,
    targets: FloatArray,
    *,
    nu: float,
    C: float,
    tolerance: float = 1e-4,
    max_iter: int = 2000,
) -> NuSvrSolution:
    """Solve d nu-support-vector regressions over one kernel; see `SharedKernelSolver`.

    Parameters
    ----------
    kernel, targets : arrays, shapes (n, n) and (n, d)
    nu, C, tolerance, max_iter : see `SharedKernelSolver.solve`

    Returns
    -------
    NuSvrSolution
        Predictions are ``kernel_to_rows @ coefficients + bias``.
    """
    solver = SharedKernelSolver(kernel)
    return solver.solve(targets, nu, C, tolerance=tolerance, max_iter=max_iter)


def solve_nu_svr_libsvm(
    kernel: FloatArray,
    targets: FloatArray,
    *,
    nu: float,
    C: float,
    tolerance: float = 1e-4,
    max_iter: int = -1,
) -> NuSvrSolution:
    """Solve the same problem one output at a time by libsvm, the reference.

    Parameters
    ----------
    kernel, targets : arrays, shapes (n, n) and (n, d)
    nu, C, tolerance : see `SharedKernelSolver.solve`
    max_iter : int
        Steps of libsvm, each of which changes two coefficients; -1 for no limit.

    Returns
    -------
    NuSvrSolution
        In float64.
    """
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.svm import NuSVR

    _check_arguments(len(kernel), targets, nu, C, tolerance)
    gram = np.ascontiguousarray(kernel, dtype=np.float64)
    y, centre, spread = standardise(targets, gram.dtype)
    coefficients, middle, n_iter, unfinished = np.zeros(targets.shape), np.zeros(len(y)), 0, 0
    for output, (column, unit) in enumerate(zip(y, spread, strict=True)):
        model = NuSVR(kernel="precomputed", nu=nu, C=C / unit, tol=tolerance, max_iter=max_iter)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", ConvergenceWarning)
            model.fit(gram, column)
        unfinished += bool(caught)
        coefficients[model.support_, output] = model.dual_coef_[0] * unit
        middle[output] = model.intercept_[0] * unit + centre[output]
        n_iter = max(n_iter, int(np.max(model.n_iter_)))
    if unfinished:
        warnings.warn(
            f"{unfinished} of {len(spread)} outputs did not converge in {max_iter} libsvm steps; "
            "raise `max_iter` or `tolerance`.",
            PolysemeWarning,
            stacklevel=2,
        )
    return NuSvrSolution(coefficients, middle, n_iter)


def _check_arguments(n: int, targets: FloatArray, nu: float, C: float, tolerance: float) -> None:
    """Raise unless the arguments of a solver are usable."""
    if targets.ndim != 2 or targets.shape[0] != n:
        raise InputError(
            f"`targets` must have one row per row of the kernel ({n}) and two "
            f"dimensions; got shape {targets.shape}."
        )
    check_number("nu", nu, owner="solve_nu_svr", low=0, high=1, above=True)
    check_number("C", C, owner="solve_nu_svr", low=0, above=True)
    check_number("tolerance", tolerance, owner="solve_nu_svr", low=0, above=True)


def first_rho(roughness: float, bound: FloatArray) -> float:
    """Guess rho: tight bounds and rough kernels want a large one.

    Too small a rho slows tight bounds down more than too large a one the others.
    """
    tight = float(np.quantile(bound, _TIGHT_SHARE))
    return float(0.8 * roughness * tight**-0.6)


def least_rho(roughness: float, single: bool) -> float:
    """Give the least rho: a smaller one multiplies the rounding of float32 too much."""
    return roughness * (0.03 if single else 1e-3)


def wanted_rho(ratios: FloatArray, least: float) -> float:
    """Give the rho for ratios of residuals to coefficients, one for each output.

    Steps in both variables matter alike when rho is the ratio of their sizes; measured on noisy
    and clean targets, pictures and toys, a power just below 1 serves best.
    """
    return float(np.clip(0.5 * float(np.median(ratios)) ** 0.8, least, GREATEST_RHO))


def standardise(
    targets: FloatArray, dtype: np.dtype[Any]
) -> tuple[FloatArray, NDArray[np.float64], NDArray[np.float64]]:
    """Return targets with mean 0 and spread 1, one output per row; the means and the spreads."""
    n, d = targets.shape
    centre = targets.mean(axis=0, dtype=np.float64)
    square, largest = np.zeros(d), np.zeros(d)
    parts = [slice(start, start + _TARGET_ROWS) for start in range(0, n, _TARGET_ROWS)]
    for part in parts:
        block = targets[part] - centre
        square += np.einsum("ij,ij->j", block, block)
        np.maximum(largest, np.abs(targets[part]).max(axis=0), out=largest)
    spread = np.sqrt(square / n)
    spread[spread <= 1e-12 * (1e-12 + largest)] = 1.0
    y = np.empty((d, n), dtype=dtype)
    for part in parts:
        y[:, part] = ((targets[part] - centre) / spread).T
    return y, centre, spread


def _warn_not_converged(violation: FloatArray, n_outputs: int, max_iter: int) -> None:
    """Tell how many outputs stopped early, and how far from the optimum the worst one is."""
    warnings.warn(
        f"{len(violation)} of {n_outputs} outputs did not converge in {max_iter} iterations: the "
        f"optimality conditions are violated by up to {violation.max():.2g} standard deviations "
        "of the target; raise `max_iter` or `tolerance`.",
        PolysemeWarning,
        stacklevel=3,
    )
