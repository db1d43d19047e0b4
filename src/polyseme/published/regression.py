"""Many regressions over one kernel: the paper's nu-SVR (equations 6 to 8), and ridge.

In: a kernel matrix (n, n), a numpy array or a torch tensor of any device, and targets (n, d). Out:
coefficients (n, d) and a bias per output. For more rows than a kernel matrix has room for,
`LandmarkKernel` works with a Nyström approximation. All nu-SVR outputs are solved together by an
alternating-direction method, whose solutions tests compare with libsvm's.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from array_api_compat import array_namespace
from array_api_compat import device as device_of
from numpy.typing import NDArray
from scipy.linalg import get_blas_funcs, get_lapack_funcs, lapack

from polyseme.base.validation import FloatArray, InputError, IntArray, PolysemeWarning
from polyseme.published.kernels import (
    Array,
    Rows,
    blas_threads,
    diagonal_of,
    in_blocks,
    like,
    mirror_lower,
    rbf_kernel,
    row_blocks,
    solve_positive,
    squared_distances,
    to_device,
    to_numpy,
)

_OVER_RELAXATION = 1.8
_GREATEST_RHO = 4.0
_LOOK_EVERY = 2
_CHECK_EVERY = 20
_REUSE_FACTOR = 5.0
_TARGET_ROWS = 4096
# Above this many rows the inverse costs more than it saves over two triangular solutions. On a GPU
# it always pays.
_INVERSE_ROWS = 4096

MOST_LANDMARKS = 3000
# Landmarks that the others explain up to this much add nothing but rounding.
_LEAST_PIVOT = {"float32": 1e-5, "float64": 1e-10}
# How a memory bound is shared out: blocks of rows, the kernel to the landmarks, the solver, which
# holds eight arrays of n numbers for each output.
_BLOCK_SHARE = 0.1
_STORE_SHARE = 0.45
_STATE_SHARE = 0.4
_STATE_ARRAYS = 8
# Closer to the optimum than this, the error of the landmarks is far larger.
_LEAST_TOLERANCE = 3e-3
_MAX_ITER = 200
_CHANGE_EVERY = 5


def solve_kernel_ridge(
    kernel: Array, targets: FloatArray, penalty: float
) -> tuple[FloatArray, FloatArray]:
    """Minimise squared error plus `penalty` times the squared norm, for targets (n, d).

    Return coefficients (n, d) and a bias (d,), the mean target, which is not penalised. Where a
    kernel (n, n) in float32 is not precise enough, float64 takes over. Each penalty costs one
    Cholesky factor: an eigendecomposition would serve several but costs as much as about twenty.
    """
    xp = array_namespace(kernel)
    mean = targets.mean(axis=0, dtype=np.float64)
    centred = targets - mean
    dtype = np.float64 if kernel.dtype == xp.float64 else np.float32
    for precision in dict.fromkeys((dtype, np.float64)):
        right = like(centred.astype(precision), kernel)
        matrix = xp.astype(kernel, right.dtype, copy=False)
        coefficients = solve_positive(matrix, penalty, right)
        if coefficients is not None:
            return to_numpy(coefficients).astype(dtype, copy=False), mean.astype(dtype)
    raise InputError(
        f"`penalty` is too small for this kernel to be solved; got {penalty:g}: raise it."
    )


# ---------------------------------------------------------------------- nu-SVR


class NuSvrSolution(NamedTuple):
    """Coefficients (n, d), bias (d,) and the number of iterations of the slowest output."""

    coefficients: FloatArray
    bias: FloatArray
    n_iter: int


class SharedKernelSolver:
    """Solve nu-support-vector regressions that share a kernel (n, n), factorising it once.

    Equation (6) is the problem of each output, equation (7) its dual: minimise ``0.5 b'Kb - y'b``
    subject to ``sum(b) = 0``, ``|b| <= C`` and ``sum(|b|) <= C nu n`` (libsvm's scale of C; the
    paper's is C / n). The method alternates between the quadratic part with the first constraint, a
    linear map that all outputs share, and the other two constraints, a projection of each output by
    itself. Predictions are equation (8).

    The kernel is positive semi-definite, its precision is that of the work, and its memory is used
    for the solver's own copy, centred on both sides, which coefficients that sum to 0 do not see:
    without the large constant part float32 keeps two more digits. The solution does not depend on
    rho, only the number of iterations does. The factor of ``K + rho I`` is kept between calls and
    replaced (`n_factorisations`) only when the iterates ask for a rho more than five times larger
    or smaller, which a grid over nu and C for one kernel rarely does.
    """

    def __init__(self, kernel: Array) -> None:
        self._xp = array_namespace(kernel)
        self._n = len(kernel)
        self._single = kernel.dtype == self._xp.float32
        self._inverts = not isinstance(kernel, np.ndarray) or self._n <= _INVERSE_ROWS
        mean_diagonal = float(diagonal_of(kernel).mean())
        least_roughness = 0.02 * max(mean_diagonal, 1e-6)
        self._means = _centre(kernel)
        self._centred = kernel
        self._factor = kernel[:0]
        centred_diagonal = float(diagonal_of(kernel).mean())
        self._roughness = max(centred_diagonal, least_roughness)
        # A smaller rho multiplies the rounding of float32 too much.
        self._least_rho = self._roughness * (0.03 if self._single else 1e-3)
        self._rho = 0.0
        self.n_factorisations = 0

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
        """Solve all outputs of targets (n, d); predictions are ``kernel @ coefficients + bias``.

        At most the share nu, in (0, 1], of rows lies outside the tube, at least this share supports
        it. C bounds each coefficient, in the units of the targets. `tolerance` is the largest
        accepted violation of the optimality conditions, in standard deviations of each target;
        where float32 rounding hides whether it is reached, the residuals of the method decide.
        After `max_iter` the current solution is given, with a warning unless `quiet`.
        """
        dtype = np.dtype(np.float32 if self._single else np.float64)
        y, centre, spread = _standardise(targets, dtype)
        bound = (C / spread).astype(dtype)
        with blas_threads(y.size * self._n):
            if self._rho == 0:
                first_rho = _first_rho(self._roughness, bound)
                self._factorise(first_rho)
            state = _Outputs.start(like(y, self._centred), like(bound, self._centred), nu)
            solution, bias, n_iter, violations = self._iterate(state, tolerance, max_iter)
            bias -= self._xp.astype(solution, self._xp.float64) @ self._means
        if len(violations) and not quiet:
            message = (
                f"{len(violations)} of {len(y)} outputs did not converge in {max_iter} iterations: "
                f"the optimality conditions are violated by up to {float(violations.max()):.2g} "
                "standard deviations of the target; raise `tolerance`."
            )
            warnings.warn(message, PolysemeWarning, stacklevel=2)

        # Back to the units of the targets.
        coefficients = to_numpy(solution)
        coefficients *= spread.astype(dtype)[:, None]
        offset = to_numpy(bias) * spread + centre
        return NuSvrSolution(np.ascontiguousarray(coefficients.T), offset.astype(dtype), n_iter)

    def _factorise(self, rho: float) -> None:
        """Prepare `_minimise` for a value of rho, within what the precision allows."""
        self._rho = float(np.clip(rho, self._least_rho, _GREATEST_RHO))
        self.n_factorisations += 1
        self._factor = self._centred[:0]  # frees the old one before the copy
        matrix = self._centred + 0
        diagonal = diagonal_of(matrix)
        diagonal[...] += self._rho
        if isinstance(matrix, np.ndarray):
            functions: Any = get_lapack_funcs(("potrf", "potri"), (matrix,))
            potrf, potri = functions
            factor, failed = potrf(matrix.T, lower=1, overwrite_a=1, clean=0)
            if not failed and self._inverts:
                factor, failed = potri(factor, lower=1, overwrite_c=1)
                mirror_lower(factor)
                factor = factor.T
        else:
            import torch

            factor, failed = torch.linalg.cholesky_ex(matrix)
            factor = torch.cholesky_inverse(factor)
        if failed:
            raise InputError(
                "`kernel` must be positive semi-definite; a Cholesky factor of it does not exist."
            )
        if self._inverts:
            # The vector of ones is an eigenvector, with value rho; this removes it.
            means = self._xp.mean(factor, axis=1, dtype=self._xp.float64)
            factor -= self._xp.astype(means, factor.dtype)
        self._factor = factor

    def _minimise(self, q: Array) -> Array:
        """Minimise ``0.5 x'(K + rho I)x - q'x`` with sum(x) = 0 per row; q (g, n) is used up."""
        if self._inverts:
            return q @ self._factor
        trsm = get_blas_funcs("trsm", (q,))
        x = trsm(1.0, self._factor, q.T, lower=1, overwrite_b=1)
        x = trsm(1.0, self._factor, x, lower=1, trans_a=1, overwrite_b=1).T
        x -= x.mean(axis=1, keepdims=True)
        return x

    def _iterate(
        self, state: _Outputs, tolerance: float, max_iter: int
    ) -> tuple[Array, Array, int, Array]:
        """Run the method; outputs leave one by one as they satisfy the optimality conditions."""
        xp = self._xp
        solution = xp.zeros_like(state.y)
        bias = xp.zeros_like(state.budget, dtype=xp.float64)
        state.level[...] = tolerance
        n_iter = 0
        adapt_at = 20
        while True:
            steps = min(_LOOK_EVERY, max_iter - n_iter)
            residual = _take_steps(state, self._rho, self._minimise, steps)
            n_iter += steps
            last = n_iter >= max_iter
            check_all = last or n_iter % _CHECK_EVERY == 0
            ready = (residual <= state.level) | check_all
            if bool(ready.any()):
                done, violations = self._check(state, ready, residual, tolerance, solution, bias)
                if last or bool(done.all()):
                    return solution, bias, n_iter, violations
                if bool(done.any()):
                    state = state.keep(~done)
            # A factorisation costs as much as about n / 2g iterations: first wait for that many.
            factorisation_cost = self._n / (2 * len(state.rows))
            if n_iter >= max(adapt_at, factorisation_cost):
                self._adapt(state)
                adapt_at = 3 * n_iter

    def _check(
        self,
        state: _Outputs,
        ready: Array,
        residual: Array,
        tolerance: float,
        solution: Array,
        bias: Array,
    ) -> tuple[Array, Array]:
        """Write the ready outputs; return which are solved, (g,), and the errors of the others."""
        xp = self._xp
        checked = state if bool(ready.all()) else state.keep(ready)
        z = checked.z + 0
        violation = xp.empty_like(checked.budget)
        checked_bias = xp.empty_like(checked.budget, dtype=xp.float64)

        def balance(rows: slice) -> None:
            block = checked.keep(rows)
            for _ in range(3):
                _balance(z[rows], block)

        def measure(rows: slice) -> None:
            block = checked.keep(rows)
            errors = xp.subtract(block.y, product[rows], out=product[rows])
            violation[rows], checked_bias[rows] = _violation_and_bias(z[rows], errors, block)

        in_blocks(balance, z)
        product = z @ self._centred
        in_blocks(measure, z)
        solution[checked.rows] = z
        bias[checked.rows] = checked_bias

        checked_residual = residual[ready]
        largest = xp.max(xp.abs(z), axis=1)
        eps = float(xp.finfo(z.dtype).eps)
        small_residual = 0.1 * tolerance + 32 * eps * largest
        met = (violation <= tolerance) | (checked_residual <= small_residual)
        # Residuals and violations shrink at one rate: look again when they should have.
        shrink = tolerance / xp.maximum(violation, 1e-30)
        shrink = xp.minimum(xp.maximum(shrink, 0.1), 0.8)
        state.level[ready] = checked_residual * shrink

        done = xp.zeros_like(ready)
        done[ready] = met
        errors = xp.where(xp.isinf(violation), checked_residual, violation)
        return done, errors[~met]

    def _adapt(self, state: _Outputs) -> None:
        """Factorise again when another rho would save many iterations."""
        # Steps in both variables matter alike when rho is the ratio of their sizes; measured on
        # noisy and clean targets, pictures and toys, a power just below 1 serves best.
        xp = self._xp
        old_rho = self._rho
        multiplier_sizes = xp.linalg.vector_norm(state.u, axis=1)
        coefficient_sizes = xp.linalg.vector_norm(state.z, axis=1)
        ratios = multiplier_sizes * old_rho / xp.maximum(coefficient_sizes, 1e-30)
        ratio = float(np.median(to_numpy(ratios)))
        best_rho = 0.5 * ratio**0.8
        best_rho = float(np.clip(best_rho, self._least_rho, _GREATEST_RHO))
        lowest = old_rho / _REUSE_FACTOR
        highest = old_rho * _REUSE_FACTOR
        if not lowest <= best_rho <= highest:
            self._factorise(best_rho)
            state.u[...] *= old_rho / self._rho


def _take_steps(
    state: _Outputs, rho: float, minimise: Callable[[Array], Array], count: int
) -> Array:
    """Take steps, each by `minimise` of rows q (g, n); return the last residuals, (g,)."""
    xp = array_namespace(state.y)
    q = xp.empty_like(state.y)
    residual = xp.empty_like(state.budget)

    def set_up(rows: slice) -> None:
        xp.subtract(state.z[rows], state.u[rows], out=q[rows])
        q[rows] *= rho
        q[rows] += state.y[rows]

    def update(rows: slice) -> None:
        previous_z = state.z[rows]
        v = x[rows] * _OVER_RELAXATION
        v -= (_OVER_RELAXATION - 1) * previous_z
        v += state.u[rows]
        z, threshold = project(v, state.C[rows], state.budget[rows], state.threshold[rows])
        state.threshold[rows] = threshold
        xp.subtract(v, z, out=state.u[rows])
        if last:
            gap = xp.subtract(x[rows], z, out=v)
            primal_residual = xp.max(xp.abs(gap, out=v), axis=1)
            change = xp.subtract(z, previous_z, out=v)
            dual_residual = rho * xp.max(xp.abs(change, out=v), axis=1)
            residual[rows] = xp.maximum(primal_residual, dual_residual)
        state.z[rows] = z

    for number in range(count):
        last = number == count - 1
        in_blocks(set_up, q)
        x = minimise(q)
        in_blocks(update, q)
    return residual


def _first_rho(roughness: float, bound: FloatArray) -> float:
    """Guess rho: tight bounds (d,), which a small one slows down most, want a large one."""
    typical_bound = float(np.quantile(bound, 0.2))
    return float(0.8 * roughness * typical_bound**-0.6)


def _standardise(
    targets: FloatArray, dtype: np.dtype[Any]
) -> tuple[FloatArray, NDArray[np.float64], NDArray[np.float64]]:
    """Return targets with mean 0 and spread 1, one output per row; the means and the spreads."""
    n, d = targets.shape
    centre = targets.mean(axis=0, dtype=np.float64)
    total = np.zeros(d)
    blocks = list(row_blocks(n, 1, _TARGET_ROWS))
    for block in blocks:
        deviations = targets[block] - centre
        total += np.einsum("ij,ij->j", deviations, deviations)
    spread = np.sqrt(total / n)
    largest = np.maximum(targets.max(axis=0), -targets.min(axis=0))
    constant = spread <= 1e-12 * (1e-12 + largest)
    spread[constant] = 1.0
    y = np.empty((d, n), dtype=dtype)
    for block in blocks:
        standardised = (targets[block] - centre) / spread
        y[:, block] = standardised.T
    return y, centre, spread


def project(v: Array, bound: Array, budget: Array, threshold: Array) -> tuple[Array, Array]:
    """Project rows v (d, n) onto ``|z| <= bound`` (d, 1) and ``sum(|z|) <= budget`` (d,).

    Return ``z = sign(v) clip(|v| - threshold, 0, bound)``, (d, n), and the smallest thresholds >= 0
    that meet the budget, (d,), searched from those of an earlier call or from zeros.
    """
    xp = array_namespace(v)
    size = xp.abs(v)
    clipped_sum = xp.sum(xp.minimum(size, bound), axis=1)
    inside = clipped_sum <= budget
    threshold = xp.where(inside, 0, threshold)
    rows = xp.nonzero(~inside)[0]
    if len(rows):
        row_sizes = size if len(rows) == len(size) else size[rows]
        threshold[rows] = _thresholds(row_sizes, bound[rows], budget[rows], threshold[rows])
    size -= threshold[:, None]
    xp.maximum(size, 0, out=size)
    xp.minimum(size, bound, out=size)
    z = xp.copysign(size, v, out=size)
    return z, threshold


def _thresholds(size: Array, bound: Array, budget: Array, guess: Array) -> Array:
    """Find per row the t with ``sum(clip(size - t, 0, bound)) = budget``: bracketed Newton."""
    xp = array_namespace(size)
    eps = float(xp.finfo(size.dtype).eps)
    low = xp.zeros_like(guess)
    high = xp.max(size, axis=1)
    threshold = xp.minimum(xp.maximum(guess, low), high)
    rows = xp.arange(len(size), device=device_of(size))
    for _ in range(60):
        current = threshold[rows]
        row_bound = bound[rows]
        row_budget = budget[rows]
        row_size = size if len(rows) == len(size) else size[rows]
        clipped = row_size - current[:, None]
        slope = xp.count_nonzero((clipped > 0) & (clipped < row_bound), axis=1)
        xp.maximum(clipped, 0, out=clipped)
        xp.minimum(clipped, row_bound, out=clipped)
        excess = xp.sum(clipped, axis=1) - row_budget

        too_low = excess > 0
        lowest = xp.where(too_low, current, low[rows])
        highest = xp.where(too_low, high[rows], current)
        low[rows] = lowest
        high[rows] = highest
        met = xp.abs(excess) <= 16 * eps * row_budget
        met |= highest - lowest <= 2 * eps * highest

        # A Newton step, or bisection where it leaves the bracket.
        newton = current + excess / xp.maximum(slope, 1)
        outside = (newton <= lowest) | (newton >= highest) | (slope == 0)
        step = xp.where(outside, (lowest + highest) / 2, newton)
        updated = xp.where(met, current, step)
        threshold[rows] = xp.astype(updated, size.dtype)
        rows = rows[~met]
        if len(rows) == 0:
            break
    return threshold


class _Outputs(NamedTuple):
    """Unfinished outputs, one per row; targets and coefficients in units of target spread."""

    rows: Array  # (g,): which outputs these are
    y: Array  # (g, n): targets
    z: Array  # (g, n): coefficients
    u: Array  # (g, n): the method's scaled multipliers
    C: Array  # (g, 1): largest size of a coefficient
    budget: Array  # (g,): largest sum of sizes
    threshold: Array  # (g,): of the last projection; above 0 where the budget is used up
    level: Array  # (g,): residual at which the optimality conditions are worth a look

    @classmethod
    def start(cls, y: Array, bound: Array, nu: float) -> _Outputs:
        """Begin with targets (d, n), bounds (d,) and coefficients of 0."""
        d, n = y.shape
        xp = array_namespace(y)
        return cls(
            rows=xp.arange(d, device=device_of(y)),
            y=y,
            z=xp.zeros_like(y),
            u=xp.zeros_like(y),
            C=bound[:, None],
            budget=bound * nu * n,
            threshold=xp.zeros_like(bound),
            level=xp.zeros_like(bound),
        )

    def keep(self, chosen: Array | slice) -> _Outputs:
        """Return the chosen outputs: copies for a mask, views for a slice."""
        return _Outputs(*(array[chosen] for array in self))


def _balance(z: Array, state: _Outputs) -> None:
    """Shift the free coefficients of each sign so that both signs have the sum they must have."""
    xp = array_namespace(z)
    sums = []
    free_masks = []
    for sign in (1, -1):
        signed = sign * z
        on_side = signed > 0
        sums.append(xp.sum(xp.where(on_side, signed, 0), axis=1, dtype=xp.float64))
        free_masks.append(on_side & (xp.abs(z) < state.C))
    counts = [xp.sum(mask, axis=1) for mask in free_masks]

    # A side without free coefficients keeps its sum; used up, the budget is shared in halves.
    mean_sum = (sums[0] + sums[1]) / 2
    target = xp.where(counts[0] == 0, sums[0], mean_sum)
    target = xp.where(counts[1] == 0, sums[1], target)
    half_budget = state.budget / 2
    target = xp.where(state.threshold > 0, half_budget, xp.minimum(target, half_budget))
    for sign, total, mask, count in zip((1, -1), sums, free_masks, counts, strict=True):
        shift = (target - total) / xp.maximum(count, 1)
        shift = xp.astype(shift, z.dtype)
        shifted = sign * z + shift[:, None]
        shifted = xp.minimum(xp.maximum(shifted, 0), state.C)
        z[...] = xp.where(mask, sign * shifted, z)


def _violation_and_bias(z: Array, t: Array, state: _Outputs) -> tuple[Array, Array]:
    """Return how far coefficients with ``t = y - Kz`` are from optimal, and biases, (g,) each."""
    xp = array_namespace(z)
    inf = float("inf")
    budget_used = state.threshold > 0
    # What the rows allow for bias + tube and for bias - tube.
    upper_low = xp.max(xp.where(z < state.C, t, -inf), axis=1)
    upper_high = xp.min(xp.where(z > 0, t, inf), axis=1)
    lower_low = xp.max(xp.where(z < 0, t, -inf), axis=1)
    lower_high = xp.min(xp.where(z > -state.C, t, inf), axis=1)
    upper_gap = upper_low - upper_high
    lower_gap = lower_low - lower_high
    with_tube = xp.maximum(upper_gap, lower_gap)
    without_tube = upper_low - lower_high
    violation = xp.where(budget_used, with_tube, without_tube)

    # Where there is nothing free to shift, sums that are off show a point that is no solution.
    sum_error = xp.abs(xp.sum(z, axis=1, dtype=xp.float64))
    size_sum = xp.sum(xp.abs(z), axis=1, dtype=xp.float64)
    budget_error = xp.abs(size_sum - state.budget)
    sum_error = xp.maximum(sum_error, xp.where(budget_used, budget_error, 0))
    feasible = sum_error <= 1e-5 * state.budget
    free = xp.abs(z) < state.C

    # The bias is the middle of the tube's two edges. An edge passes through the free rows; without
    # any, it is the middle of where it may pass.
    def edge(mask: Array, low: Array, high: Array) -> Array:
        count = xp.sum(mask, axis=1)
        total = xp.sum(xp.where(mask, t, 0), axis=1, dtype=xp.float64)
        mean = total / xp.maximum(count, 1)
        middle = (low + high) / 2
        return xp.where(count > 0, mean, middle)

    with np.errstate(invalid="ignore"):  # an empty edge is inf - inf; the other branch is taken
        upper_edge = edge(free & (z > 0), upper_low, upper_high)
        lower_edge = edge(free & (z < 0), lower_low, lower_high)
        middle_of_tube = (upper_edge + lower_edge) / 2
        single_edge = edge(free, upper_low, lower_high)
    bias = xp.where(budget_used, middle_of_tube, single_edge)
    return xp.where(feasible, violation, inf), bias


def _centre(kernel: Array) -> Array:
    """Subtract the means of rows and columns in place; return the means of the rows, (n,)."""
    xp = array_namespace(kernel)
    means = xp.empty_like(kernel[:, 0], dtype=xp.float64)

    def average(block: slice) -> None:
        means[block] = xp.mean(kernel[block], axis=1, dtype=xp.float64)

    in_blocks(average, kernel)
    row_means = xp.astype(means, kernel.dtype)
    column_deviations = xp.astype(means - xp.mean(means), kernel.dtype)

    def subtract(block: slice) -> None:
        kernel[block] -= row_means[block, None]
        kernel[block] -= column_deviations

    in_blocks(subtract, kernel)
    return means


# ---------------------------------------------------------------------- landmarks


def landmarks_within(n: int, memory_bytes: float, row_bytes: int = 0) -> int:
    """Return how many landmarks a memory bound has room for: at most n and 3,000, at least 1.

    Half of it is for four (m, m) matrices in float64; `row_bytes` is what is held of each of n rows
    for each landmark, 0 where rows come in blocks and go.
    """
    most = (memory_bytes / 64) ** 0.5
    if row_bytes:
        store_bytes = _STORE_SHARE * memory_bytes
        most = min(most, store_bytes / (n * row_bytes))
    return int(np.clip(most, 1, min(n, MOST_LANDMARKS)))


class LandmarkKernel:
    """The kernel between all rows and landmarks, block by block, and its sums for regressions.

    `take` gives the rows of a slice, dense and scaled; landmarks, (m, n_features), are scaled too.
    Those that the others explain are left out: `kept`, (r,), says which are used, `landmarks` are
    their rows. Blocks are kept or computed anew as memory allows, which scikit-learn's `Nystroem`
    cannot. "cpu" computes by numpy, other devices by torch.
    """

    def __init__(
        self,
        take: Callable[[slice], FloatArray],
        n: int,
        landmarks: Rows,
        gamma: float,
        memory_bytes: float,
        device: str = "cpu",
    ) -> None:
        self.kept, root = _independent(landmarks, gamma)
        self.landmarks = landmarks[self.kept]
        self.memory_bytes = memory_bytes
        self._take = take
        self._n = n
        self._gamma = gamma
        self._device = device
        self._dtype = landmarks.dtype
        self._rows = to_device(self.landmarks, device)
        self._root = to_device(root, device)
        # A block is its features twice, its kernel, and that once more in float64.
        feature_bytes = 16 * landmarks.shape[1]
        kernel_bytes = (self._dtype.itemsize + 8) * len(self.kept)
        block_memory = _BLOCK_SHARE * memory_bytes
        self._blocks = list(row_blocks(n, feature_bytes + kernel_bytes, block_memory))
        self._stored: list[Array] = []

    def fit_ridge(self, targets: FloatArray, penalty: float) -> tuple[FloatArray, FloatArray]:
        """Fit kernel ridge regressions of targets (n, d): coefficients (r, d) and bias (d,)."""
        mean = targets.mean(axis=0, dtype=np.float64)
        gram, _, cross = self._sums(targets)
        root = self._root
        feature_gram = root.T @ gram @ root
        feature_weights = solve_positive(feature_gram, penalty, root.T @ cross)
        coefficients = to_numpy(root @ feature_weights)
        return coefficients.astype(self._dtype), mean.astype(self._dtype)

    def fit_nu_svr(
        self, targets: FloatArray, nu: float, C: float, tolerance: float
    ) -> tuple[FloatArray, FloatArray]:
        """Fit nu-support-vector regressions of targets (n, d): coefficients (r, d) and bias (d,).

        The result is the method's function of the landmarks and not its dual coefficients: it
        comes within a few thousandths of a spread of the optimum in tens of steps, these in
        hundreds. It stops when five steps change predictions by less than the tolerance, in spreads
        of the target (root mean square), at least 0.003, and after 200 steps at the latest.
        """
        tolerance = max(tolerance, _LEAST_TOLERANCE)
        column_bytes = self._n * self._dtype.itemsize
        if column_bytes * len(self.kept) <= _STORE_SHARE * self.memory_bytes:
            self._stored = [kernel for _, kernel in self._kernels()]
        gram, sums, _ = self._sums(targets[:, :0])
        self._means = sums / self._n
        root = self._root
        mean = root.T @ self._means
        self._gram = root.T @ gram @ root - self._n * mean[:, None] * mean

        state_memory = _STATE_SHARE * self.memory_bytes
        most_outputs = max(int(state_memory / (_STATE_ARRAYS * column_bytes)), 1)
        n_outputs = targets.shape[1]
        coefficients = np.empty((len(self.kept), n_outputs), self._dtype)
        bias = np.empty(n_outputs, self._dtype)
        for outputs in _groups_of_spreads(targets, most_outputs):
            y, centre, spread = _standardise(targets[:, outputs], self._dtype)
            bound = (C / spread).astype(self._dtype)
            weights, offset = self._iterate(y, bound, nu, tolerance)
            coefficients[:, outputs] = (weights * spread[:, None]).T
            bias[outputs] = offset * spread + centre
        return coefficients, bias

    def _kernels(self) -> Iterator[tuple[slice, Array]]:
        """Yield blocks of rows with their kernel to the landmarks, (b, r) each."""
        for number, block in enumerate(self._blocks):
            if self._stored:
                yield block, self._stored[number]
            else:
                queries = to_device(self._take(block), self._device)
                yield block, squared_distances(queries, self._rows, self._gamma)

    def _sums(self, targets: FloatArray) -> tuple[Array, Array, Array]:
        """Sum K'K (r, r), the columns of K (r,), and K'Y (r, d) of centred targets (n, d)."""
        xp = array_namespace(self._root)
        mean = targets.mean(axis=0, dtype=np.float64)
        gram = xp.zeros_like(self._root)
        sums = xp.zeros_like(self._root[0])
        cross = like(np.zeros((len(self.kept), len(mean))), self._root)
        for block, kernel in self._kernels():
            wide = _double(kernel)
            gram += wide.T @ wide
            sums += xp.sum(wide, axis=0)
            centred = (targets[block] - mean).astype(self._dtype)
            cross += kernel.T @ like(centred, kernel)
        return gram, sums, cross

    def _iterate(
        self, y: FloatArray, bound: FloatArray, nu: float, tolerance: float
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Run the method for targets (g, n): weights (g, r) of the landmarks and biases (g,)."""
        xp = array_namespace(self._root)
        # Predictions and not coefficients must settle, for which half the usual rho serves best.
        trace = float(xp.linalg.trace(self._gram))
        roughness = max(trace / self._n, 1e-6)
        rho = 0.5 * _first_rho(roughness, bound)
        rho = float(np.clip(rho, 1e-4, _GREATEST_RHO))
        ridge = solve_positive(self._gram, rho, self._root.T).T
        state = _Outputs.start(like(y, self._root), like(bound, self._root), nu)
        features = like(np.zeros((len(y), len(self.kept))), self._root)

        def minimise(q: Array) -> Array:
            # Weights of the features ``K_nm root``: a ridge regression of q with penalty rho. With
            # them the Woodbury identity gives ``(K + rho I)^-1 q``.
            nonlocal features
            q_sums = xp.sum(q, axis=1, dtype=xp.float64)
            total = -q_sums[:, None] * self._means
            for block, kernel in self._kernels():
                # `ridge` magnifies the rounding of float32 here a thousand times.
                total += _double(q[:, block]) @ _double(kernel)
            features = total @ ridge
            self._subtract(q, features)
            q -= xp.mean(q, axis=1, keepdims=True)
            q *= 1 / rho
            return q

        for _ in range(_MAX_ITER // _CHANGE_EVERY):
            previous = features
            _take_steps(state, rho, minimise, _CHANGE_EVERY)
            change = features - previous
            squared_change = xp.sum((change @ self._gram) * change, axis=1)
            if float(xp.max(squared_change)) <= self._n * tolerance**2:
                break
        self._subtract(state.y, features)
        residuals = to_numpy(state.y)
        weights = features @ self._root.T
        mean_predictions = to_numpy(weights @ self._means)
        bias = _tube_middles(residuals, nu) - mean_predictions
        return to_numpy(weights), bias

    def _subtract(self, q: Array, features: Array) -> None:
        """Subtract the centred predictions of feature weights (g, r) from q (g, n), in place."""
        xp = array_namespace(q)
        wide_weights = features @ self._root.T
        weights = xp.astype(wide_weights, q.dtype)
        mean_predictions = xp.astype(wide_weights @ self._means, q.dtype)
        for block, kernel in self._kernels():
            columns = q[:, block]
            columns -= weights @ kernel.T
            columns += mean_predictions[:, None]


def _groups_of_spreads(targets: FloatArray, most: int) -> Iterator[IntArray]:
    """Yield groups of outputs whose spreads, within a factor of 4, can share one rho."""
    every = max(len(targets) // 10_000, 1)
    spreads = targets[::every].std(axis=0, dtype=np.float64)
    order = np.argsort(spreads)
    n_outputs = len(order)
    start = 0
    for stop in range(1, n_outputs + 1):
        least_spread = max(spreads[order[start]], 1e-300)
        full = stop == n_outputs or stop - start == most
        if full or spreads[order[stop]] > 4 * least_spread:
            yield order[start:stop]
            start = stop


def _tube_middles(t: FloatArray, nu: float) -> NDArray[np.float64]:
    """Return the biases of residuals (g, n): half of nu's share lies above the tube, half below."""
    n = t.shape[1]
    # Where a whole number of rows lies outside, the edge may pass anywhere between two of them.
    rows_above = nu * n / 2
    first = int(np.ceil(rows_above)) - 1
    second = min(int(rows_above), n - 1)
    places = [first, second, n - 1 - second, n - 1 - first]
    partitioned = np.partition(t, sorted(set(places)), axis=1)
    edges = partitioned[:, places].astype(np.float64)
    return np.asarray(edges.mean(axis=1))


def _independent(landmarks: Rows, gamma: float) -> tuple[IntArray, NDArray[np.float64]]:
    """Find the r landmarks that others do not explain, and the inverse kernel's root (r, r)."""
    kernel = rbf_kernel(landmarks.astype(np.float64), gamma)
    least_pivot = _LEAST_PIVOT[str(landmarks.dtype)]
    _, order, rank, _ = lapack.dpstrf(kernel.T, lower=1, tol=least_pivot)
    # LAPACK counts from 1.
    rows = np.sort(order[:rank] - 1).astype(np.int64)
    chosen_kernel = kernel[np.ix_(rows, rows)]
    factor, _ = lapack.dpotrf(chosen_kernel.T, lower=1, clean=1)
    inverse, _ = lapack.dtrtri(factor, lower=1)
    return rows, np.ascontiguousarray(inverse.T)


def _double(array: Array) -> Array:
    """Return an array in float64."""
    xp = array_namespace(array)
    return xp.astype(array, xp.float64, copy=False)
