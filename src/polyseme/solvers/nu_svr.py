"""Many nu-support-vector regressions over one kernel (part of step 4, the mapping).

In: a kernel matrix (n, n) and targets (n, d). Out: coefficients (n, d) and a bias per output.
All outputs are solved together by an alternating-direction method; libsvm is the reference.
"""

from __future__ import annotations

import warnings
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack

from polyseme._validation import FloatArray, InputError, PolysemeWarning, check_number
from polyseme.solvers.kernels import blas_threads, mirror_lower
from polyseme.solvers.projection import project_to_box_and_budget

_OVER_RELAXATION = 1.8
_CHECK_EVERY = 10
_REUSE_FACTOR = 5.0
_GREATEST_RHO = 4.0


class NuSvrSolution(NamedTuple):
    """Coefficients (n, d), bias (d,) and the number of iterations of the slowest output."""

    coefficients: FloatArray
    bias: FloatArray
    n_iter: int


class _State(NamedTuple):
    """Unfinished outputs, one per row; targets and coefficients in units of target spread."""

    rows: NDArray[np.int64]
    y: FloatArray
    C: FloatArray
    budget: FloatArray
    z: FloatArray
    u: FloatArray
    threshold: FloatArray

    def keep(self, mask: NDArray[np.bool_]) -> _State:
        """Drop the outputs whose mask is False."""
        y, C, budget, z, u, threshold = (part[mask] for part in self[1:])
        return _State(self.rows[mask], y, C, budget, z, u, threshold)


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
        if kernel.ndim != 2 or kernel.shape[0] != kernel.shape[1] or len(kernel) == 0:
            raise InputError(f"`kernel` must be a square matrix; got shape {kernel.shape}.")
        dtype = np.float32 if kernel.dtype == np.float32 else np.float64
        own: FloatArray = np.ascontiguousarray(kernel, dtype=dtype)
        if not overwrite and np.shares_memory(own, kernel):
            own = own.copy()
        # Coefficients sum to 0, so that a kernel centred on both sides gives the same solution;
        # without the large constant part float32 keeps two more digits.
        least = 0.02 * max(float(np.diagonal(own).mean()), 1e-6)
        self._column_means = own.mean(axis=0, dtype=np.float64)
        own -= self._column_means.astype(dtype)
        own -= own.mean(axis=1, dtype=np.float64).astype(dtype)[:, None]
        self._centred = own
        self.n_factorisations = 0
        self._roughness = max(float(np.diagonal(own).mean()), least)
        # A smaller rho multiplies the rounding of float32 too much.
        self._least_rho = self._roughness * (0.03 if dtype == np.float32 else 1e-3)
        self._rho = 0.0
        self._inverse: FloatArray = np.empty((0, 0), dtype)

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
        _check_arguments(self._centred, targets, nu, C, tolerance)
        check_number("max_iter", max_iter, owner="solve_nu_svr", low=1, whole=True)
        dtype = self._centred.dtype
        y, centre, spread = _standardise(targets)
        bound = (C / spread).astype(dtype)
        rows = np.ascontiguousarray(y.T, dtype=dtype)
        with blas_threads(y.size * len(y)):
            if self._rho == 0:
                # A first guess; tight bounds and rough kernels want a large rho.
                self._factorise(0.8 * self._roughness * float(np.median(bound)) ** -0.6)
            z, bias, n_iter, remaining = self._iterate(rows, bound, nu, tolerance, max_iter)
        if len(remaining) and not quiet:
            _warn_not_converged(remaining, len(spread), max_iter)
        bias -= z @ self._column_means
        coefficients = np.ascontiguousarray((z * spread.astype(dtype)[:, None]).T)
        return NuSvrSolution(coefficients, (bias * spread + centre).astype(dtype), n_iter)

    def _factorise(self, rho: float) -> None:
        """Store the map from q to the minimiser of ``0.5 x'(K + rho I)x - q'x``, sum(x) = 0."""
        rho = float(np.clip(rho, self._least_rho, _GREATEST_RHO))
        self._inverse = np.empty_like(self._inverse[:0])  # frees the old one before the copy
        matrix = self._centred.copy().T
        matrix.flat[:: len(matrix) + 1] += rho
        single = matrix.dtype == np.float32
        potrf = lapack.spotrf if single else lapack.dpotrf
        potri = lapack.spotri if single else lapack.dpotri
        matrix, info = potrf(matrix, lower=1, overwrite_a=1, clean=0)
        if info == 0:
            matrix, info = potri(matrix, lower=1, overwrite_c=1)
        if info != 0:
            raise InputError(
                "`kernel` must be positive semi-definite; a Cholesky factor of it does not exist."
            )
        mirror_lower(matrix)
        # The vector of ones is an eigenvector, with value rho; this removes it.
        matrix -= matrix.mean(axis=0, dtype=np.float64).astype(matrix.dtype)
        self._inverse = matrix.T
        self._rho = rho
        self.n_factorisations += 1

    def _iterate(
        self, y: FloatArray, bound: FloatArray, nu: float, tolerance: float, max_iter: int
    ) -> tuple[FloatArray, NDArray[np.float64], int, FloatArray]:
        """Run the method; outputs leave one by one as they satisfy the optimality conditions."""
        d, n = y.shape
        zero = np.zeros_like(y)
        state = _State(np.arange(d), y, bound[:, None], bound * nu * n, zero, zero, bound * 0)
        solution, bias = np.zeros_like(y), np.zeros(d)
        n_iter, adapt_at, eps = 0, 2 * _CHECK_EVERY, np.finfo(y.dtype).eps
        while True:
            state, residual = self._steps(state)
            n_iter += _CHECK_EVERY
            z, t = self._feasible(state)
            violation = _violation(z, t, state)
            small = 0.1 * tolerance + 32 * eps * np.abs(z).max(axis=1)
            met = (violation <= tolerance) | (residual <= small)
            done = met | (n_iter >= max_iter)
            solution[state.rows[done]] = z[done]
            bias[state.rows[done]] = _bias(z, t, state)[done]
            if done.all():
                remaining = np.where(np.isinf(violation), residual, violation)
                return solution, bias, n_iter, remaining[~met]
            state = state.keep(~done)
            if n_iter >= adapt_at:
                state, adapt_at = self._adapt(state), 3 * adapt_at

    def _steps(self, state: _State) -> tuple[_State, FloatArray]:
        """Take a few steps; also return the larger of the last two residuals of each output."""
        rows, y, C, budget, z, u, threshold = state
        rho, relax = y.dtype.type(self._rho), y.dtype.type(_OVER_RELAXATION)
        for _ in range(_CHECK_EVERY):
            x = (y + rho * (z - u)) @ self._inverse
            v = relax * x + (1 - relax) * z + u
            previous = z
            z, threshold = project_to_box_and_budget(v, C, budget, threshold)
            u = v - z
        apart = np.abs(x - z).max(axis=1)
        moved = rho * np.abs(z - previous).max(axis=1)
        return _State(rows, y, C, budget, z, u, threshold), np.maximum(apart, moved)

    def _adapt(self, state: _State) -> _State:
        """Factorise anew when another rho would save many iterations."""
        # Steps in both variables matter alike when rho is the ratio of their sizes; measured on
        # noisy and clean targets, pictures and toys, a power just below 1 serves best.
        sizes = np.linalg.norm(state.u, axis=1) * self._rho, np.linalg.norm(state.z, axis=1)
        ratio = float(np.median(sizes[0] / np.maximum(sizes[1], 1e-30)))
        wanted = float(np.clip(0.5 * ratio**0.8, self._least_rho, _GREATEST_RHO))
        old = self._rho
        if old / _REUSE_FACTOR <= wanted <= old * _REUSE_FACTOR:
            return state
        self._factorise(wanted)
        return state._replace(u=state.u * state.u.dtype.type(old / self._rho))

    def _feasible(self, state: _State) -> tuple[FloatArray, FloatArray]:
        """Return the nearby point that meets all constraints, and ``y - Kz`` there."""
        z = state.z.copy()
        for _ in range(3):
            _balance(z, state)
        return z, state.y - z @ self._centred


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

    _check_arguments(kernel, targets, nu, C, tolerance)
    gram = np.ascontiguousarray(kernel, dtype=np.float64)
    y, centre, spread = _standardise(targets)
    coefficients, bias, n_iter, unfinished = np.zeros(y.shape), np.zeros(y.shape[1]), 0, 0
    for output, (column, unit) in enumerate(zip(y.T, spread, strict=True)):
        model = NuSVR(kernel="precomputed", nu=nu, C=C / unit, tol=tolerance, max_iter=max_iter)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", ConvergenceWarning)
            model.fit(gram, column)
        unfinished += bool(caught)
        coefficients[model.support_, output] = model.dual_coef_[0] * unit
        bias[output] = model.intercept_[0] * unit + centre[output]
        n_iter = max(n_iter, int(np.max(model.n_iter_)))
    if unfinished:
        warnings.warn(
            f"{unfinished} of {len(spread)} outputs did not converge in {max_iter} libsvm steps; "
            "raise `max_iter` or `tolerance`.",
            PolysemeWarning,
            stacklevel=2,
        )
    return NuSvrSolution(coefficients, bias, n_iter)


def _check_arguments(
    kernel: FloatArray, targets: FloatArray, nu: float, C: float, tolerance: float
) -> None:
    """Raise unless the arguments of a solver are usable."""
    if targets.ndim != 2 or targets.shape[0] != kernel.shape[0]:
        raise InputError(
            f"`targets` must have one row per row of the kernel ({kernel.shape[0]}) and two "
            f"dimensions; got shape {targets.shape}."
        )
    check_number("nu", nu, owner="solve_nu_svr", low=0, high=1, above=True)
    check_number("C", C, owner="solve_nu_svr", low=0, above=True)
    check_number("tolerance", tolerance, owner="solve_nu_svr", low=0, above=True)


def _standardise(
    targets: FloatArray,
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Return targets with mean 0 and spread 1 per column, the means and the spreads."""
    centre = targets.mean(axis=0, dtype=np.float64)
    y = targets - centre
    spread = np.sqrt(np.mean(y * y, axis=0))
    spread[spread <= 1e-12 * (1e-12 + np.abs(targets).max(axis=0))] = 1.0
    return y / spread, centre, spread


def _warn_not_converged(violation: FloatArray, n_outputs: int, max_iter: int) -> None:
    """Tell how many outputs stopped early, and how far from the optimum the worst one is."""
    warnings.warn(
        f"{len(violation)} of {n_outputs} outputs did not converge in {max_iter} iterations: the "
        f"optimality conditions are violated by up to {violation.max():.2g} standard deviations "
        "of the target; raise `max_iter` or `tolerance`.",
        PolysemeWarning,
        stacklevel=3,
    )


def _balance(z: FloatArray, state: _State) -> None:
    """Shift the free coefficients of each sign so that both signs have the sum they must have."""
    sums, free = [], []
    for sign in (1, -1):
        side = sign * z > 0
        sums.append(np.where(side, sign * z, 0).sum(axis=1, dtype=np.float64))
        free.append(side & (np.abs(z) < state.C))
    counts = [mask.sum(axis=1) for mask in free]
    wanted = np.where(counts[0] == 0, sums[0], (sums[0] + sums[1]) / 2)
    wanted = np.where(counts[1] == 0, sums[1], wanted)
    half = state.budget / 2
    wanted = np.where(state.threshold > 0, half, np.minimum(wanted, half))
    for sign, total, mask, count in zip((1, -1), sums, free, counts, strict=True):
        shift = ((wanted - total) / np.maximum(count, 1)).astype(z.dtype)
        moved = sign * np.clip(sign * z + shift[:, None], 0, state.C)
        np.copyto(z, moved, where=mask)


def _edges(z: FloatArray, t: FloatArray, state: _State) -> tuple[FloatArray, ...]:
    """Return the bounds that the rows put on bias + tube and on bias - tube."""
    upper_low = np.where(z < state.C, t, -np.inf).max(axis=1)
    upper_high = np.where(z > 0, t, np.inf).min(axis=1)
    lower_low = np.where(z < 0, t, -np.inf).max(axis=1)
    lower_high = np.where(z > -state.C, t, np.inf).min(axis=1)
    return upper_low, upper_high, lower_low, lower_high


def _violation(z: FloatArray, t: FloatArray, state: _State) -> FloatArray:
    """Return by how much each output fails the optimality conditions (0: optimal)."""
    upper_low, upper_high, lower_low, lower_high = _edges(z, t, state)
    with_tube = np.maximum(upper_low - upper_high, lower_low - lower_high)
    violation = np.where(state.threshold > 0, with_tube, upper_low - lower_high)
    # Where there is nothing free to shift, sums that are off show a point that is no solution.
    total = np.abs(z).sum(axis=1, dtype=np.float64)
    off = np.abs(z.sum(axis=1, dtype=np.float64))
    off = np.maximum(off, np.where(state.threshold > 0, np.abs(total - state.budget), 0))
    return np.where(off <= 1e-5 * state.budget, violation, np.inf)


def _bias(z: FloatArray, t: FloatArray, state: _State) -> FloatArray:
    """Return the bias of each output: the middle of the tube's two edges.

    An edge passes through the free rows; without any, it is the middle of where it may pass.
    """
    upper_low, upper_high, lower_low, lower_high = _edges(z, t, state)
    free = np.abs(z) < state.C

    def edge(mask: NDArray[np.bool_], low: FloatArray, high: FloatArray) -> FloatArray:
        count = mask.sum(axis=1)
        mean = np.where(mask, t, 0).sum(axis=1, dtype=np.float64) / np.maximum(count, 1)
        return np.where(count > 0, mean, (low + high) / 2)

    with np.errstate(invalid="ignore"):  # an empty edge is inf - inf; the other branch is taken
        tube = edge(free & (z > 0), upper_low, upper_high)
        tube = (tube + edge(free & (z < 0), lower_low, lower_high)) / 2
        flat = edge(free, upper_low, lower_high)
    return np.where(state.threshold > 0, tube, flat)
