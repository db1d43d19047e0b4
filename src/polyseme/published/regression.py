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

from polyseme._validation import FloatArray, InputError, IntArray, PolysemeWarning
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
_LOOK_EVERY, _CHECK_EVERY = 2, 20
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
_BLOCK_SHARE, _STORE_SHARE, _STATE_SHARE, _STATE_ARRAYS = 0.1, 0.45, 0.4, 8
# Closer to the optimum than this, what landmarks leave out weighs far more.
_LEAST_TOLERANCE = 3e-3
_MAX_ITER, _CHANGE_EVERY = 200, 5


def solve_kernel_ridge(
    kernel: Array, targets: FloatArray, penalty: float
) -> tuple[FloatArray, FloatArray]:
    """Minimise squared error plus `penalty` times the squared norm, for targets (n, d).

    Gives coefficients (n, d) and a bias (d,), the mean target, which is not penalised. Where a
    kernel (n, n) in float32 is not precise enough, float64 takes over. Each penalty costs one
    Cholesky factor: an eigendecomposition would serve several but costs as much as about twenty.
    """
    xp, mean = array_namespace(kernel), targets.mean(axis=0, dtype=np.float64)
    dtype = np.float64 if kernel.dtype == xp.float64 else np.float32
    for precision in dict.fromkeys((dtype, np.float64)):
        right = like((targets - mean).astype(precision), kernel)
        coefficients = solve_positive(xp.astype(kernel, right.dtype, copy=False), penalty, right)
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

    For each output the dual is: minimise ``0.5 b'Kb - y'b`` subject to ``sum(b) = 0``, ``|b| <= C``
    and ``sum(|b|) <= C nu n`` (libsvm's scale of C; the paper's eq. (7) has C / n). The method
    alternates between the quadratic part with the first constraint, a linear map that all outputs
    share, and the other two constraints, a projection of each output by itself.

    The kernel is positive semi-definite, its precision is that of the work, and its memory is used
    for the solver's own copy, centred on both sides, which coefficients that sum to 0 do not see:
    without the large constant part float32 keeps two more digits. The solution does not depend on
    rho, only the number of iterations does. The factor of ``K + rho I`` is kept between calls and
    replaced (`n_factorisations`) only when the iterates ask for a rho more than five times larger
    or smaller, which a grid over nu and C for one kernel rarely does.
    """

    def __init__(self, kernel: Array) -> None:
        self._xp, self._n = array_namespace(kernel), len(kernel)
        self._single = kernel.dtype == self._xp.float32
        self._inverts = not isinstance(kernel, np.ndarray) or self._n <= _INVERSE_ROWS
        least = 0.02 * max(float(diagonal_of(kernel).mean()), 1e-6)
        self._means, self._centred, self._factor = _centre(kernel), kernel, kernel[:0]
        self._roughness = max(float(diagonal_of(kernel).mean()), least)
        # A smaller rho multiplies the rounding of float32 too much.
        self._least_rho = self._roughness * (0.03 if self._single else 1e-3)
        self._rho, self.n_factorisations = 0.0, 0

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
                self._factorise(_first_rho(self._roughness, bound))
            state = _Outputs.start(like(y, self._centred), like(bound, self._centred), nu)
            solution, middle, n_iter, remaining = self._iterate(state, tolerance, max_iter)
            middle -= self._xp.astype(solution, self._xp.float64) @ self._means
        if len(remaining) and not quiet:
            message = (
                f"{len(remaining)} of {len(y)} outputs did not converge in {max_iter} iterations: "
                f"the optimality conditions are violated by up to {float(remaining.max()):.2g} "
                "standard deviations of the target; raise `tolerance`."
            )
            warnings.warn(message, PolysemeWarning, stacklevel=2)
        z = to_numpy(solution)
        z *= spread.astype(dtype)[:, None]
        offset = (to_numpy(middle) * spread + centre).astype(dtype)
        return NuSvrSolution(np.ascontiguousarray(z.T), offset, n_iter)

    def _factorise(self, rho: float) -> None:
        """Prepare `_minimise` for a value of rho, within what the precision allows."""
        self._rho = float(np.clip(rho, self._least_rho, _GREATEST_RHO))
        self.n_factorisations += 1
        self._factor = self._centred[:0]  # frees the old one before the copy
        matrix = self._centred + 0
        diagonal_of(matrix)[...] += self._rho
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
        xp, solution = self._xp, self._xp.zeros_like(state.y)
        middle = xp.zeros_like(state.budget, dtype=xp.float64)
        state.level[...] = tolerance
        n_iter, adapt_at = 0, 20
        while True:
            steps = min(_LOOK_EVERY, max_iter - n_iter)
            residual = _take_steps(state, self._rho, self._minimise, steps)
            n_iter += steps
            last = n_iter >= max_iter
            ready = (residual <= state.level) | (last or n_iter % _CHECK_EVERY == 0)
            if bool(ready.any()):
                done, left = self._check(state, ready, residual, tolerance, solution, middle)
                if last or bool(done.all()):
                    return solution, middle, n_iter, left
                if bool(done.any()):
                    state = state.keep(~done)
            # A factorisation costs as much as about n / 2g iterations: first wait for so many.
            if n_iter >= max(adapt_at, self._n / (2 * len(state.rows))):
                self._adapt(state)
                adapt_at = 3 * n_iter

    def _check(
        self,
        state: _Outputs,
        ready: Array,
        residual: Array,
        tolerance: float,
        solution: Array,
        middle: Array,
    ) -> tuple[Array, Array]:
        """Write the outputs that are ready; say which are solved, (g,), and how far others are."""
        xp = self._xp
        part = state if bool(ready.all()) else state.keep(ready)
        z = part.z + 0
        failed, centre = xp.empty_like(part.budget), xp.empty_like(part.budget, dtype=xp.float64)

        def move(rows: slice) -> None:
            for _ in range(3):
                _balance(z[rows], part.keep(rows))

        def judge(rows: slice) -> None:
            some = part.keep(rows)
            t = xp.subtract(some.y, product[rows], out=product[rows])
            failed[rows], centre[rows] = _violation_and_bias(z[rows], t, some)

        in_blocks(move, z)
        product = z @ self._centred
        in_blocks(judge, z)
        left = residual[ready]
        small = 0.1 * tolerance + 32 * float(xp.finfo(z.dtype).eps) * xp.max(xp.abs(z), axis=1)
        met = (failed <= tolerance) | (left <= small)
        solution[part.rows], middle[part.rows] = z, centre
        # Residuals and violations shrink at one rate: look again when they should have.
        shrink = xp.minimum(xp.maximum(tolerance / xp.maximum(failed, 1e-30), 0.1), 0.8)
        state.level[ready] = left * shrink
        done = xp.zeros_like(ready)
        done[ready] = met
        return done, xp.where(xp.isinf(failed), left, failed)[~met]

    def _adapt(self, state: _Outputs) -> None:
        """Factorise anew when another rho would save many iterations."""
        # Steps in both variables matter alike when rho is the ratio of their sizes; measured on
        # noisy and clean targets, pictures and toys, a power just below 1 serves best.
        xp, old = self._xp, self._rho
        sizes = [xp.linalg.vector_norm(part, axis=1) for part in (state.u, state.z)]
        ratio = float(np.median(to_numpy(sizes[0] * old / xp.maximum(sizes[1], 1e-30))))
        wanted = float(np.clip(0.5 * ratio**0.8, self._least_rho, _GREATEST_RHO))
        if not old / _REUSE_FACTOR <= wanted <= old * _REUSE_FACTOR:
            self._factorise(wanted)
            state.u[...] *= old / self._rho


def _take_steps(
    state: _Outputs, rho: float, minimise: Callable[[Array], Array], count: int
) -> Array:
    """Take steps, each by `minimise` of rows q (g, n); give the last residuals, (g,)."""
    xp = array_namespace(state.y)
    q, residual = xp.empty_like(state.y), xp.empty_like(state.budget)

    def ask(rows: slice) -> None:
        xp.subtract(state.z[rows], state.u[rows], out=q[rows])
        q[rows] *= rho
        q[rows] += state.y[rows]

    def answer(rows: slice) -> None:
        old, v = state.z[rows], x[rows] * _OVER_RELAXATION
        v -= (_OVER_RELAXATION - 1) * old
        v += state.u[rows]
        z, state.threshold[rows] = project(
            v, state.C[rows], state.budget[rows], state.threshold[rows]
        )
        xp.subtract(v, z, out=state.u[rows])
        if last:
            apart = xp.max(xp.abs(xp.subtract(x[rows], z, out=v), out=v), axis=1)
            moved = xp.max(xp.abs(xp.subtract(z, old, out=v), out=v), axis=1)
            residual[rows] = xp.maximum(apart, rho * moved)
        state.z[rows] = z

    for number in range(count):
        last = number == count - 1
        in_blocks(ask, q)
        x = minimise(q)
        in_blocks(answer, q)
    return residual


def _first_rho(roughness: float, bound: FloatArray) -> float:
    """Guess rho: tight bounds (d,), which a small one slows down most, want a large one."""
    return float(0.8 * roughness * float(np.quantile(bound, 0.2)) ** -0.6)


def _standardise(
    targets: FloatArray, dtype: np.dtype[Any]
) -> tuple[FloatArray, NDArray[np.float64], NDArray[np.float64]]:
    """Return targets with mean 0 and spread 1, one output per row; the means and the spreads."""
    n, d = targets.shape
    centre = targets.mean(axis=0, dtype=np.float64)
    square, largest = np.zeros(d), np.maximum(targets.max(axis=0), -targets.min(axis=0))
    parts = list(row_blocks(n, 1, _TARGET_ROWS))
    for part in parts:
        block = targets[part] - centre
        square += np.einsum("ij,ij->j", block, block)
    spread = np.sqrt(square / n)
    spread[spread <= 1e-12 * (1e-12 + largest)] = 1.0
    y = np.empty((d, n), dtype=dtype)
    for part in parts:
        y[:, part] = ((targets[part] - centre) / spread).T
    return y, centre, spread


def project(v: Array, bound: Array, budget: Array, threshold: Array) -> tuple[Array, Array]:
    """Project rows v (d, n) onto ``|z| <= bound`` (d, 1) and ``sum(|z|) <= budget`` (d,).

    Gives ``z = sign(v) clip(|v| - threshold, 0, bound)``, (d, n), and the smallest thresholds >= 0
    that meet the budget, (d,), searched from those of an earlier call or from zeros.
    """
    xp = array_namespace(v)
    size = xp.abs(v)
    inside = xp.sum(xp.minimum(size, bound), axis=1) <= budget
    threshold = xp.where(inside, 0, threshold)
    rows = xp.nonzero(~inside)[0]
    if len(rows):
        part = size if len(rows) == len(size) else size[rows]
        threshold[rows] = _thresholds(part, bound[rows], budget[rows], threshold[rows])
    size -= threshold[:, None]
    xp.maximum(size, 0, out=size)
    xp.minimum(size, bound, out=size)
    return xp.copysign(size, v, out=size), threshold


def _thresholds(size: Array, bound: Array, budget: Array, guess: Array) -> Array:
    """Find per row the t with ``sum(clip(size - t, 0, bound)) = budget``: bracketed Newton."""
    xp = array_namespace(size)
    eps = float(xp.finfo(size.dtype).eps)
    low, high = xp.zeros_like(guess), xp.max(size, axis=1)
    threshold = xp.minimum(xp.maximum(guess, low), high)
    rows = xp.arange(len(size), device=device_of(size))
    for _ in range(60):
        now, most, total = threshold[rows], bound[rows], budget[rows]
        rest = (size if len(rows) == len(size) else size[rows]) - now[:, None]
        slope = xp.count_nonzero((rest > 0) & (rest < most), axis=1)
        xp.maximum(rest, 0, out=rest)
        xp.minimum(rest, most, out=rest)
        excess = xp.sum(rest, axis=1) - total
        lowest = xp.where(excess > 0, now, low[rows])
        highest = xp.where(excess > 0, high[rows], now)
        low[rows], high[rows] = lowest, highest
        met = xp.abs(excess) <= 16 * eps * total
        met |= highest - lowest <= 2 * eps * highest
        step = now + excess / xp.maximum(slope, 1)
        outside = (step <= lowest) | (step >= highest) | (slope == 0)
        threshold[rows] = xp.astype(
            xp.where(met, now, xp.where(outside, (lowest + highest) / 2, step)), size.dtype
        )
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
        xp = array_namespace(y)
        rows = xp.arange(len(y), device=device_of(y))
        z, u, threshold, level = (xp.zeros_like(part) for part in (y, y, bound, bound))
        return cls(rows, y, z, u, bound[:, None], bound * nu * y.shape[1], threshold, level)

    def keep(self, chosen: Array | slice) -> _Outputs:
        """Take some of the outputs: copies for a mask, views for a slice."""
        return _Outputs(*(part[chosen] for part in self))


def _balance(z: Array, state: _Outputs) -> None:
    """Shift the free coefficients of each sign so that both signs have the sum they must have."""
    xp = array_namespace(z)
    sums, free = [], []
    for sign in (1, -1):
        side = sign * z > 0
        sums.append(xp.sum(xp.where(side, sign * z, 0), axis=1, dtype=xp.float64))
        free.append(side & (xp.abs(z) < state.C))
    counts = [xp.sum(mask, axis=1) for mask in free]
    wanted = xp.where(counts[0] == 0, sums[0], (sums[0] + sums[1]) / 2)
    wanted = xp.where(counts[1] == 0, sums[1], wanted)
    half = state.budget / 2
    wanted = xp.where(state.threshold > 0, half, xp.minimum(wanted, half))
    for sign, total, mask, count in zip((1, -1), sums, free, counts, strict=True):
        shift = xp.astype((wanted - total) / xp.maximum(count, 1), z.dtype)
        moved = xp.minimum(xp.maximum(sign * z + shift[:, None], 0), state.C)
        z[...] = xp.where(mask, sign * moved, z)


def _violation_and_bias(z: Array, t: Array, state: _Outputs) -> tuple[Array, Array]:
    """Return how far coefficients with ``t = y - Kz`` are from optimal, and biases, (g,) each."""
    xp, inf, budget_used = array_namespace(z), float("inf"), state.threshold > 0
    # What the rows allow for bias + tube and for bias - tube.
    upper_low = xp.max(xp.where(z < state.C, t, -inf), axis=1)
    upper_high = xp.min(xp.where(z > 0, t, inf), axis=1)
    lower_low = xp.max(xp.where(z < 0, t, -inf), axis=1)
    lower_high = xp.min(xp.where(z > -state.C, t, inf), axis=1)
    with_tube = xp.maximum(upper_low - upper_high, lower_low - lower_high)
    violation = xp.where(budget_used, with_tube, upper_low - lower_high)
    # Where there is nothing free to shift, sums that are off show a point that is no solution.
    off = xp.abs(xp.sum(z, axis=1, dtype=xp.float64))
    over = xp.abs(xp.sum(xp.abs(z), axis=1, dtype=xp.float64) - state.budget)
    off = xp.maximum(off, xp.where(budget_used, over, 0))
    free = xp.abs(z) < state.C

    # The bias is the middle of the tube's two edges. An edge passes through the free rows; without
    # any, it is the middle of where it may pass.
    def edge(mask: Array, low: Array, high: Array) -> Array:
        count = xp.sum(mask, axis=1)
        mean = xp.sum(xp.where(mask, t, 0), axis=1, dtype=xp.float64) / xp.maximum(count, 1)
        return xp.where(count > 0, mean, (low + high) / 2)

    with np.errstate(invalid="ignore"):  # an empty edge is inf - inf; the other branch is taken
        tube = edge(free & (z > 0), upper_low, upper_high)
        tube = (tube + edge(free & (z < 0), lower_low, lower_high)) / 2
        flat = edge(free, upper_low, lower_high)
    bias = xp.where(budget_used, tube, flat)
    return xp.where(off <= 1e-5 * state.budget, violation, inf), bias


def _centre(kernel: Array) -> Array:
    """Subtract the means of rows and columns in place; give the means of the rows, (n,)."""
    xp = array_namespace(kernel)
    means = xp.empty_like(kernel[:, 0], dtype=xp.float64)

    def average(block: slice) -> None:
        means[block] = xp.mean(kernel[block], axis=1, dtype=xp.float64)

    in_blocks(average, kernel)
    across = xp.astype(means - xp.mean(means), kernel.dtype)
    down = xp.astype(means, kernel.dtype)

    def subtract(block: slice) -> None:
        kernel[block] -= down[block, None]
        kernel[block] -= across

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
        most = min(most, _STORE_SHARE * memory_bytes / (n * row_bytes))
    return int(np.clip(most, 1, min(n, MOST_LANDMARKS)))


class LandmarkKernel:
    """The kernel between all rows and landmarks, block by block, and what regressions need of it.

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
        self.landmarks, self.memory_bytes = landmarks[self.kept], memory_bytes
        self._take, self._n, self._gamma, self._device = take, n, gamma, device
        self._dtype = landmarks.dtype
        self._rows, self._root = to_device(self.landmarks, device), to_device(root, device)
        # A block is its features twice, its kernel, and that once more in float64.
        width = 16 * landmarks.shape[1] + (self._dtype.itemsize + 8) * len(self.kept)
        self._blocks = list(row_blocks(n, width, _BLOCK_SHARE * memory_bytes))
        self._stored: list[Array] = []

    def fit_ridge(self, targets: FloatArray, penalty: float) -> tuple[FloatArray, FloatArray]:
        """Fit kernel ridge regressions of targets (n, d): coefficients (r, d) and bias (d,)."""
        mean = targets.mean(axis=0, dtype=np.float64)
        gram, _, cross = self._sums(targets)
        weights = solve_positive(self._root.T @ gram @ self._root, penalty, self._root.T @ cross)
        return to_numpy(self._root @ weights).astype(self._dtype), mean.astype(self._dtype)

    def fit_nu_svr(
        self, targets: FloatArray, nu: float, C: float, tolerance: float
    ) -> tuple[FloatArray, FloatArray]:
        """Fit nu-support-vector regressions of targets (n, d): coefficients (r, d) and bias (d,).

        What is given is the method's function of the landmarks and not its dual coefficients: it
        comes within a few thousandths of a spread of the optimum in tens of steps, these in
        hundreds. It stops when five steps change predictions by less than the tolerance, in spreads
        of the target (root mean square), at least 0.003, and after 200 steps at the latest.
        """
        size = self._n * self._dtype.itemsize
        if size * len(self.kept) <= _STORE_SHARE * self.memory_bytes:
            self._stored = [kernel for _, kernel in self._kernels()]
        gram, sums, _ = self._sums(targets[:, :0])
        self._means = sums / self._n
        mean = self._root.T @ self._means
        self._gram = self._root.T @ gram @ self._root - self._n * mean[:, None] * mean
        most = max(int(_STATE_SHARE * self.memory_bytes / (_STATE_ARRAYS * size)), 1)
        coefficients = np.empty((len(self.kept), targets.shape[1]), self._dtype)
        bias = np.empty(targets.shape[1], self._dtype)
        for part in _alike(targets, most):
            y, centre, spread = _standardise(targets[:, part], self._dtype)
            bound = (C / spread).astype(self._dtype)
            weights, middle = self._iterate(y, bound, nu, max(tolerance, _LEAST_TOLERANCE))
            coefficients[:, part] = (weights * spread[:, None]).T
            bias[part] = middle * spread + centre
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
        xp, mean = array_namespace(self._root), targets.mean(axis=0, dtype=np.float64)
        gram, sums = xp.zeros_like(self._root), xp.zeros_like(self._root[0])
        cross = like(np.zeros((len(self.kept), len(mean))), self._root)
        for block, kernel in self._kernels():
            wide = _double(kernel)
            gram += wide.T @ wide
            sums += xp.sum(wide, axis=0)
            cross += kernel.T @ like((targets[block] - mean).astype(self._dtype), kernel)
        return gram, sums, cross

    def _iterate(
        self, y: FloatArray, bound: FloatArray, nu: float, tolerance: float
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Run the method for targets (g, n); give weights (g, r) of landmarks and biases (g,)."""
        xp = array_namespace(self._root)
        # Predictions and not coefficients must settle, for which half the usual rho serves best.
        roughness = max(float(xp.linalg.trace(self._gram)) / self._n, 1e-6)
        rho = float(np.clip(0.5 * _first_rho(roughness, bound), 1e-4, _GREATEST_RHO))
        ridge = solve_positive(self._gram, rho, self._root.T).T
        state = _Outputs.start(like(y, self._root), like(bound, self._root), nu)
        features = before = like(np.zeros((len(y), len(self.kept))), self._root)

        def minimise(q: Array) -> Array:
            # Weights of the features ``K_nm root``: a ridge regression of q with penalty rho. With
            # them the Woodbury identity gives ``(K + rho I)^-1 q``.
            nonlocal features
            total = -xp.sum(q, axis=1, dtype=xp.float64)[:, None] * self._means
            for block, kernel in self._kernels():
                # `ridge` magnifies what float32 would round off here a thousand times.
                total += _double(q[:, block]) @ _double(kernel)
            features = total @ ridge
            self._subtract(q, features)
            q -= xp.mean(q, axis=1, keepdims=True)
            q *= 1 / rho
            return q

        for _ in range(_MAX_ITER // _CHANGE_EVERY):
            _take_steps(state, rho, minimise, _CHANGE_EVERY)
            change, before = features - before, features
            square = xp.sum((change @ self._gram) * change, axis=1)
            if float(xp.max(square)) <= self._n * tolerance**2:
                break
        self._subtract(state.y, features)
        weights, residuals = features @ self._root.T, to_numpy(state.y)
        return to_numpy(weights), _tube_middles(residuals, nu) - to_numpy(weights @ self._means)

    def _subtract(self, q: Array, features: Array) -> None:
        """Take what weights (g, r) of features predict, centred, from q (g, n), in place."""
        xp, weights = array_namespace(q), features @ self._root.T
        middle = xp.astype(weights @ self._means, q.dtype)[:, None]
        for block, kernel in self._kernels():
            part = q[:, block]
            part -= xp.astype(weights, q.dtype) @ kernel.T
            part += middle


def _alike(targets: FloatArray, most: int) -> Iterator[IntArray]:
    """Yield groups of at most so many outputs whose spreads, within a factor of 4, want one rho."""
    spreads = targets[:: max(len(targets) // 10_000, 1)].std(axis=0, dtype=np.float64)
    order, start = np.argsort(spreads), 0
    for stop in range(1, len(order) + 1):
        full = stop == len(order) or stop - start == most
        if full or spreads[order[stop]] > 4 * max(spreads[order[start]], 1e-300):
            yield order[start:stop]
            start = stop


def _tube_middles(t: FloatArray, nu: float) -> NDArray[np.float64]:
    """Return the biases of residuals (g, n): half of nu's share lies above the tube, half below."""
    n = t.shape[1]
    # Where a whole number of rows lies outside, the edge may pass anywhere between two of them.
    first, second = int(np.ceil(nu * n / 2)) - 1, min(int(nu * n / 2), n - 1)
    places = [first, second, n - 1 - second, n - 1 - first]
    ordered = np.partition(t, sorted(set(places)), axis=1)[:, places].astype(np.float64)
    return np.asarray(ordered.mean(axis=1))


def _independent(landmarks: Rows, gamma: float) -> tuple[IntArray, NDArray[np.float64]]:
    """Find the r landmarks that others do not explain, and the inverse kernel's root (r, r)."""
    kernel = rbf_kernel(landmarks.astype(np.float64), gamma)
    _, order, rank, _ = lapack.dpstrf(kernel.T, lower=1, tol=_LEAST_PIVOT[str(landmarks.dtype)])
    kept = np.sort(order[:rank] - 1).astype(np.int64)
    factor, _ = lapack.dpotrf(kernel[np.ix_(kept, kept)].T, lower=1, clean=1)
    inverse, _ = lapack.dtrtri(factor, lower=1)
    return kept, np.ascontiguousarray(inverse.T)


def _double(array: Array) -> Array:
    """Return an array in float64."""
    xp = array_namespace(array)
    return xp.astype(array, xp.float64, copy=False)
