"""Many regressions over one kernel: the paper's nu-SVR (equations 6 to 8), and ridge.

In: a kernel matrix (n, n), a numpy array or a torch tensor of any device, and targets (n, d). Out:
coefficients (n, d) and a bias per output. For more rows than a kernel matrix has room for,
`LandmarkKernel` works with a Nyström approximation. Tests compare the solutions with libsvm's.

Terms: an *output* is a coordinate of the targets, a *row* an instance. All nu-SVR outputs are
solved together by the steps of `admm`, which explains x, z, u and rho; its arrays have an output in
each row: (g, n) for g outputs that are not solved yet. The *tube* is where errors cost nothing:
within ε of the prediction. `OutputStates` has the state of outputs that are not solved: `z` are
their coefficients, `budget` is C nu n, `level` the residual at which to look at an output again,
`outputs` their numbers among the d, and `keep` selects some. A coefficient is *free* if it is
neither 0 nor of size C; its row lies on an *edge* of the tube.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from array_api_compat import array_namespace
from numpy.typing import NDArray
from scipy.linalg import get_blas_funcs, get_lapack_funcs

from polyseme.base.validation import FloatArray, InputError, IntArray, PolysemeWarning
from polyseme.published.admm import (
    GREATEST_RHO,
    OutputStates,
    first_rho,
    standardise,
    take_steps,
)
from polyseme.published.kernels import (
    Array,
    Rows,
    blas_threads,
    centre_kernel,
    diagonal_of,
    in_blocks,
    independent_rows,
    like,
    mirror_lower,
    row_blocks,
    solve_positive,
    squared_distances,
    to_device,
    to_double,
    to_numpy,
)

# Iterations between two looks at the residuals, and between two checks of every output.
_LOOK_EVERY = 2
_CHECK_EVERY = 20
# Shifts of the free coefficients of an output before its optimality is checked.
_BALANCE_STEPS = 3
# An output counts as solved, too, where the method's own residual is so small a share of the
# tolerance, but for so many roundings: in single precision violations cannot be told from these.
_SMALL_RESIDUAL = 0.1
_ROUNDING = 32
# By how much a residual has to shrink, at the most and at the least, until the next look.
_MOST_SHRINKING = 0.1
_LEAST_SHRINKING = 0.8
# A factor serves while the best rho is within this factor of its own.
_REUSE_FACTOR = 5.0
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
# With landmarks: closer to the optimum than this, the error of the landmarks is far larger.
_LEAST_TOLERANCE = 3e-3
# With landmarks: the most iterations, and those between two looks at the change.
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
    is_double = kernel.dtype == xp.float64
    dtype = np.float64 if is_double else np.float32
    precisions = dict.fromkeys((dtype, np.float64))  # each once, in this order
    for precision in precisions:
        right = like(centred.astype(precision), kernel)
        matrix = xp.astype(kernel, right.dtype, copy=False)
        solution = solve_positive(matrix, penalty, right)
        if solution is not None:
            coefficients = to_numpy(solution)
            return coefficients.astype(dtype, copy=False), mean.astype(dtype)
    raise InputError(
        f"`penalty` is too small for this kernel to be solved; got {penalty:g}: raise it."
    )


# ---------------------------------------------------------------------- nu-SVR


class NuSvrSolution(NamedTuple):
    """Regressions of d outputs over the kernel of n rows, in the targets' units."""

    coefficients: FloatArray  # (n, d): α* - α of equation (7) on libsvm's scale; 0 inside the tube
    bias: FloatArray  # (d,)
    n_iter: int  # of the slowest output


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
        xp = array_namespace(kernel)
        self._xp = xp
        self._n = len(kernel)
        self._single = kernel.dtype == xp.float32
        on_processor = isinstance(kernel, np.ndarray)
        # Whether `_factor` is the inverse of ``K + rho I`` or its Cholesky factor.
        self._inverts = self._n <= _INVERSE_ROWS or not on_processor
        diagonal = diagonal_of(kernel)
        mean_diagonal = float(diagonal.mean())
        least_roughness = 0.02 * max(mean_diagonal, 1e-6)
        self._means = centre_kernel(kernel)  # in place; the means of the kernel's rows before
        self._centred = kernel
        self._factor = kernel[:0]
        # The mean diagonal of the centred kernel: how much a function may vary, which scales rho.
        centred_diagonal = float(diagonal_of(kernel).mean())
        self._roughness = max(centred_diagonal, least_roughness)
        # A smaller rho multiplies the rounding of float32 too much.
        least_share = 0.03 if self._single else 1e-3
        self._least_rho = self._roughness * least_share
        self._rho = 0.0  # no factor yet
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
        xp = self._xp
        precision = np.float32 if self._single else np.float64
        dtype = np.dtype(precision)
        y, centre, spread = standardise(targets, dtype)
        bound = (C / spread).astype(dtype)
        work = y.size * self._n
        with blas_threads(work):
            if self._rho == 0:
                rho = first_rho(self._roughness, bound)
                self._factorise(rho)
            device_y = like(y, self._centred)
            device_bound = like(bound, self._centred)
            state = OutputStates.start(device_y, device_bound, nu)
            solution, bias, n_iter, violations = self._iterate(state, tolerance, max_iter)
            # The kernel itself adds the means of its rows, weighted by the coefficients.
            wide_solution = xp.astype(solution, xp.float64)
            bias -= wide_solution @ self._means
        if len(violations) and not quiet:
            message = (
                f"{len(violations)} of {len(y)} outputs did not converge in {max_iter} iterations: "
                f"the optimality conditions are violated by up to {float(violations.max()):.2g} "
                "standard deviations of the target; raise `tolerance`."
            )
            warnings.warn(message, PolysemeWarning, stacklevel=2)

        # Back to the units of the targets.
        coefficients = to_numpy(solution)
        scale = spread.astype(dtype)
        coefficients *= scale[:, None]
        offset = to_numpy(bias) * spread
        offset = offset + centre
        return NuSvrSolution(
            np.ascontiguousarray(coefficients.T),
            offset.astype(dtype),
            n_iter,
        )

    def _factorise(self, rho: float) -> None:
        """Prepare `_minimise` for a value of rho, within what the precision allows."""
        allowed_rho = np.clip(rho, self._least_rho, GREATEST_RHO)
        self._rho = float(allowed_rho)
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
        """Minimise ``0.5 x'(K + rho I)x - q'x`` with sum(x) = 0, for each row of q, (g, n).

        Return x, (g, n); q may be overwritten.
        """
        if self._inverts:
            return q @ self._factor
        # Two triangular solutions, by the Cholesky factor and by its transpose.
        trsm = get_blas_funcs("trsm", (q,))
        half_solved = trsm(1.0, self._factor, q.T, lower=1, overwrite_b=1)
        solved = trsm(1.0, self._factor, half_solved, lower=1, trans_a=1, overwrite_b=1)
        x = solved.T
        x -= x.mean(axis=1, keepdims=True)
        return x

    def _iterate(
        self, state: OutputStates, tolerance: float, max_iter: int
    ) -> tuple[Array, Array, int, Array]:
        """Run the method; outputs leave one by one as they satisfy the optimality conditions.

        Return coefficients (d, n) and biases (d,) over the centred kernel, for standardised
        targets; the number of iterations; and the violations of the outputs that are not solved.
        """
        xp = self._xp
        solution = xp.zeros_like(state.y)
        bias = xp.zeros_like(state.budget, dtype=xp.float64)
        state.level[...] = tolerance
        n_iter = 0
        adapt_at = 20
        while True:
            n_steps = min(_LOOK_EVERY, max_iter - n_iter)
            residual = take_steps(state, self._rho, self._minimise, n_steps)
            n_iter += n_steps
            is_last = n_iter >= max_iter
            check_all = is_last or n_iter % _CHECK_EVERY == 0
            ready = residual <= state.level
            ready = ready | check_all
            if bool(ready.any()):
                solved, violations = self._check(
                    state,
                    ready,
                    residual,
                    tolerance,
                    solution,
                    bias,
                )
                if is_last or bool(solved.all()):
                    return solution, bias, n_iter, violations
                if bool(solved.any()):
                    state = state.keep(~solved)
            # A factorisation costs as much as about n / 2g iterations: first wait for that many.
            n_left = len(state.outputs)
            factorisation_cost = self._n / (2 * n_left)
            if n_iter >= max(adapt_at, factorisation_cost):
                self._adapt(state)
                adapt_at = 3 * n_iter

    def _check(
        self,
        state: OutputStates,
        ready: Array,
        residual: Array,
        tolerance: float,
        solution: Array,
        bias: Array,
    ) -> tuple[Array, Array]:
        """Write the outputs that are ready, (g,) booleans, into `solution` and `bias`, (d, …).

        Return which outputs are solved, (g,), and the violations of those that were ready and are
        not. `residual`, (g,), is the method's own error, of which `state.level` is set for the next
        look; it, violations and the tolerance are in spreads of the target.
        """
        xp = self._xp
        checked = state if bool(ready.all()) else state.keep(ready)
        z = checked.z + 0
        violation = xp.empty_like(checked.budget)
        checked_bias = xp.empty_like(checked.budget, dtype=xp.float64)

        # Blocks of outputs, each with all rows.
        def balance(outputs: slice) -> None:
            block = checked.keep(outputs)
            # Shifts are cut off at the bounds, so it takes a few until the sums are met.
            for _ in range(_BALANCE_STEPS):
                _balance(z[outputs], block)

        def measure(outputs: slice) -> None:
            block = checked.keep(outputs)
            block_z = z[outputs]
            predicted = product[outputs]
            errors = xp.subtract(
                block.y,
                predicted,
                out=predicted,
            )
            block_violation, block_bias = _violation_and_bias(block_z, errors, block)
            violation[outputs] = block_violation
            checked_bias[outputs] = block_bias

        in_blocks(balance, z)
        product = z @ self._centred
        in_blocks(measure, z)
        solution[checked.outputs] = z
        bias[checked.outputs] = checked_bias

        checked_residual = residual[ready]
        sizes = xp.abs(z)
        largest = xp.max(sizes, axis=1)
        eps = float(xp.finfo(z.dtype).eps)
        rounding = _ROUNDING * eps * largest
        small_residual = _SMALL_RESIDUAL * tolerance + rounding
        has_small_residual = checked_residual <= small_residual
        is_solved = violation <= tolerance
        is_solved = is_solved | has_small_residual
        # Residuals and violations shrink at one rate: look again when they should have.
        shrink = tolerance / xp.maximum(violation, 1e-30)
        shrink = xp.maximum(shrink, _MOST_SHRINKING)
        shrink = xp.minimum(shrink, _LEAST_SHRINKING)
        state.level[ready] = checked_residual * shrink

        solved = xp.zeros_like(ready)
        solved[ready] = is_solved
        # Infinite where the constraints are not met; then the residual stands for it.
        is_infinite = xp.isinf(violation)
        errors = xp.where(is_infinite, checked_residual, violation)
        return solved, errors[~is_solved]

    def _adapt(self, state: OutputStates) -> None:
        """Factorise again when another rho would save many iterations."""
        # Steps in both variables matter alike when rho is the ratio of their sizes; measured on
        # noisy and clean targets, pictures and toys, a power just below 1 serves best.
        xp = self._xp
        old_rho = self._rho
        norm = xp.linalg.vector_norm
        multiplier_sizes = norm(state.u, axis=1)
        coefficient_sizes = norm(state.z, axis=1)
        coefficient_sizes = xp.maximum(coefficient_sizes, 1e-30)
        scaled_sizes = multiplier_sizes * old_rho
        ratios = to_numpy(scaled_sizes / coefficient_sizes)
        ratio = float(np.median(ratios))
        best_rho = 0.5 * ratio**0.8
        best_rho = float(np.clip(best_rho, self._least_rho, GREATEST_RHO))
        lowest = old_rho / _REUSE_FACTOR
        highest = old_rho * _REUSE_FACTOR
        if not lowest <= best_rho <= highest:
            self._factorise(best_rho)
            # Scaled multipliers are the multipliers divided by rho.
            state.u[...] *= old_rho / self._rho


def _balance(z: Array, state: OutputStates) -> None:
    """Shift the free coefficients of each sign so that both signs have the sum they must have.

    z, (g, n), is changed in place; they must have equal sums, as sum(z) = 0.
    """
    xp = array_namespace(z)
    signs = (1, -1)
    sums = []
    free_masks = []
    for sign in signs:
        signed = sign * z
        has_sign = signed > 0
        sizes = xp.where(has_sign, signed, 0)
        sums.append(xp.sum(sizes, axis=1, dtype=xp.float64))
        below_bound = xp.abs(z) < state.C
        free_masks.append(has_sign & below_bound)
    counts = [xp.sum(mask, axis=1) for mask in free_masks]

    # A side without free coefficients keeps its sum; used up, the budget is shared in halves.
    positive_sum, negative_sum = sums
    n_positive, n_negative = counts
    mean_sum = (positive_sum + negative_sum) / 2
    target = xp.where(n_positive == 0, positive_sum, mean_sum)
    target = xp.where(n_negative == 0, negative_sum, target)
    half_budget = state.budget / 2
    affordable = xp.minimum(target, half_budget)
    budget_used = state.threshold > 0
    target = xp.where(budget_used, half_budget, affordable)
    for sign, total, is_free, count in zip(signs, sums, free_masks, counts, strict=True):
        missing = target - total
        shift = missing / xp.maximum(count, 1)
        shift = xp.astype(shift, z.dtype)
        shifted = sign * z
        shifted = shifted + shift[:, None]
        shifted = xp.maximum(shifted, 0)
        shifted = xp.minimum(shifted, state.C)
        z[...] = xp.where(is_free, sign * shifted, z)


def _violation_and_bias(z: Array, errors: Array, state: OutputStates) -> tuple[Array, Array]:
    """Return how far coefficients are from optimal, and biases, (g,) each.

    z and errors ``y - Kz``, before a bias, are (g, n). The violation is of the Karush-Kuhn-Tucker
    conditions, in spreads of the target; infinite where the constraints are not met.
    """
    xp = array_namespace(z)
    inf = float("inf")
    C = state.C
    budget_used = state.threshold > 0

    def largest_error(is_counted: Array) -> Array:
        return xp.max(xp.where(is_counted, errors, -inf), axis=1)

    def smallest_error(is_counted: Array) -> Array:
        return xp.min(xp.where(is_counted, errors, inf), axis=1)

    # What the rows allow for bias + tube (upper) and for bias - tube (lower): low to high.
    upper_low = largest_error(z < C)
    upper_high = smallest_error(z > 0)
    lower_low = largest_error(z < 0)
    lower_high = smallest_error(z > -C)
    upper_gap = upper_low - upper_high
    lower_gap = lower_low - lower_high
    gap_with_tube = xp.maximum(upper_gap, lower_gap)
    gap_without_tube = upper_low - lower_high  # a budget that is not used up leaves no tube
    violation = xp.where(budget_used, gap_with_tube, gap_without_tube)

    # Where there is nothing free to shift, sums that are off show a point that is no solution.
    sizes = xp.abs(z)
    total = xp.sum(z, axis=1, dtype=xp.float64)
    sum_error = xp.abs(total)
    size_sum = xp.sum(sizes, axis=1, dtype=xp.float64)
    budget_error = xp.abs(size_sum - state.budget)
    budget_error = xp.where(budget_used, budget_error, 0)
    sum_error = xp.maximum(sum_error, budget_error)
    is_feasible = sum_error <= 1e-5 * state.budget
    is_free = sizes < C

    # The bias is the middle of the tube's two edges. An edge passes through the free rows; without
    # any, it is the middle of where it may pass.
    def edge(is_on_edge: Array, low: Array, high: Array) -> Array:
        count = xp.sum(is_on_edge, axis=1)
        edge_errors = xp.where(is_on_edge, errors, 0)
        error_sum = xp.sum(
            edge_errors,
            axis=1,
            dtype=xp.float64,
        )
        divisor = xp.maximum(count, 1)
        mean = error_sum / divisor
        middle = (low + high) / 2
        has_rows = count > 0
        return xp.where(has_rows, mean, middle)

    is_on_upper = is_free & (z > 0)
    is_on_lower = is_free & (z < 0)
    with np.errstate(invalid="ignore"):  # an empty edge is inf - inf; the other branch is taken
        upper_edge = edge(is_on_upper, upper_low, upper_high)
        lower_edge = edge(is_on_lower, lower_low, lower_high)
        middle_of_tube = (upper_edge + lower_edge) / 2
        single_edge = edge(is_free, upper_low, lower_high)
    bias = xp.where(budget_used, middle_of_tube, single_edge)
    violation = xp.where(is_feasible, violation, inf)
    return violation, bias


# ---------------------------------------------------------------------- landmarks


def landmarks_within(n: int, memory_bytes: float, row_bytes: int = 0) -> int:
    """Return how many landmarks a memory bound has room for: at most n and 3,000, at least 1.

    Half of it is for four (m, m) matrices in float64; `row_bytes` is what is held of each of n rows
    for each landmark, 0 where rows come in blocks and go.
    """
    # m landmarks take 4 * 8 m² bytes of half the memory.
    most = (memory_bytes / 64) ** 0.5
    if row_bytes:
        store_bytes = _STORE_SHARE * memory_bytes
        landmark_bytes = n * row_bytes
        most = min(most, store_bytes / landmark_bytes)
    bound = min(n, MOST_LANDMARKS)
    n_landmarks = np.clip(most, 1, bound)
    return int(n_landmarks)


class LandmarkKernel:
    """The kernel between all rows and landmarks, block by block, and its sums for regressions.

    The Nyström approximation: with K the kernel between the n rows and the r landmarks, and root
    the inverse of the landmarks' own kernel's factor, ``K root`` are features, (n, r), whose dot
    products approximate the kernel of all rows. Blocks of K are stored or computed anew as memory
    allows, which scikit-learn's `Nystroem` cannot.

    Parameters
    ----------
    take_rows : callable
        Returns the rows of a slice, dense and scaled, (b, n_features).
    n : int
        The number of rows.
    landmarks : array or csr_matrix, shape (m, n_features)
        Scaled rows. Those that the others explain are left out.
    gamma : float
    memory_bytes : float
        A bound on what is in memory at a time.
    device : str
        "cpu" computes by numpy, other devices by torch.

    Attributes
    ----------
    used : int64 array, shape (r,)
        Which landmarks are used, sorted.
    landmarks : array or csr_matrix, shape (r, n_features)
        The rows of these.
    """

    def __init__(
        self,
        take_rows: Callable[[slice], FloatArray],
        n: int,
        landmarks: Rows,
        gamma: float,
        memory_bytes: float,
        device: str = "cpu",
    ) -> None:
        least_pivot = _LEAST_PIVOT[str(landmarks.dtype)]
        self.used, root = independent_rows(landmarks, gamma, least_pivot)
        self.landmarks = landmarks[self.used]
        self.memory_bytes = memory_bytes
        self._take_rows = take_rows
        self._n = n
        self._n_used = len(self.used)
        self._gamma = gamma
        self._device = device
        self._dtype = landmarks.dtype
        self._device_landmarks = to_device(self.landmarks, device)
        self._root = to_device(root, device)
        # A block is its features twice, its kernel, and that once more in float64.
        n_features = landmarks.shape[1]
        feature_bytes = 16 * n_features
        kernel_bytes = (self._dtype.itemsize + 8) * self._n_used
        row_bytes = feature_bytes + kernel_bytes
        block_memory = _BLOCK_SHARE * memory_bytes
        self._blocks = list(row_blocks(n, row_bytes, block_memory))
        self._stored_kernels: list[Array] = []  # of all blocks, or of none

    def fit_ridge(self, targets: FloatArray, penalty: float) -> tuple[FloatArray, FloatArray]:
        """Fit kernel ridge regressions of targets (n, d): coefficients (r, d) and bias (d,).

        Predictions are kernels to the landmarks times the coefficients, plus the bias, the mean
        target. `penalty` times the squared norm of a function is added to its squared error.
        """
        # A ridge regression on the features ``K root``, by their products and those with targets.
        dtype = self._dtype
        mean = targets.mean(axis=0, dtype=np.float64)
        gram, _, cross = self._sums(targets)
        root = self._root
        root_transposed = root.T
        feature_gram = root_transposed @ gram @ root
        feature_cross = root_transposed @ cross
        feature_weights = solve_positive(
            feature_gram,
            penalty,
            feature_cross,
        )
        weights = root @ feature_weights
        coefficients = to_numpy(weights)
        return coefficients.astype(dtype), mean.astype(dtype)

    def fit_nu_svr(
        self, targets: FloatArray, nu: float, C: float, tolerance: float
    ) -> tuple[FloatArray, FloatArray]:
        """Fit nu-support-vector regressions of targets (n, d): coefficients (r, d) and bias (d,).

        nu, C and the tolerance are those of `SharedKernelSolver.solve`. The result is the method's
        function of the landmarks and not its dual coefficients: it
        comes within a few thousandths of a spread of the optimum in tens of steps, these in
        hundreds. It stops when five steps change predictions by less than the tolerance, in spreads
        of the target (root mean square), at least 0.003, and after 200 steps at the latest.
        """
        tolerance = max(tolerance, _LEAST_TOLERANCE)
        dtype = self._dtype
        column_bytes = self._n * dtype.itemsize
        kernel_bytes = column_bytes * self._n_used
        if kernel_bytes <= _STORE_SHARE * self.memory_bytes:
            self._stored_kernels = [kernel for _, kernel in self._kernels()]
        # Means of the kernel's columns, and the features' products with these subtracted.
        no_targets = targets[:, :0]
        gram, sums, _ = self._sums(no_targets)
        self._means = sums / self._n
        root = self._root
        root_transposed = root.T
        feature_means = root_transposed @ self._means
        self._gram = root_transposed @ gram @ root
        mean_column = self._n * feature_means[:, None]
        self._gram -= mean_column * feature_means

        output_bytes = _STATE_ARRAYS * column_bytes
        state_memory = _STATE_SHARE * self.memory_bytes
        outputs_in_memory = int(state_memory / output_bytes)
        most_outputs = max(outputs_in_memory, 1)
        n_outputs = targets.shape[1]
        coefficients = np.empty((self._n_used, n_outputs), dtype)
        bias = np.empty(n_outputs, dtype)
        for outputs in _groups_of_spreads(targets, most_outputs):
            group_targets = targets[:, outputs]
            y, centre, spread = standardise(group_targets, dtype)
            bound = (C / spread).astype(dtype)
            weights, offset = self._iterate(y, bound, nu, tolerance)
            scaled_weights = weights * spread[:, None]
            coefficients[:, outputs] = scaled_weights.T
            scaled_offset = offset * spread
            bias[outputs] = scaled_offset + centre
        return coefficients, bias

    def _kernels(self) -> Iterator[tuple[slice, Array]]:
        """Yield blocks of rows with their kernel to the landmarks, (b, r) each."""
        if self._stored_kernels:
            yield from zip(self._blocks, self._stored_kernels, strict=True)
            return
        for block in self._blocks:
            rows = self._take_rows(block)
            queries = to_device(rows, self._device)
            kernel = squared_distances(queries, self._device_landmarks, self._gamma)
            yield block, kernel

    def _sums(self, targets: FloatArray) -> tuple[Array, Array, Array]:
        """Sum K'K (r, r), the columns of K (r,), and K'Y (r, d) of centred targets (n, d)."""
        root = self._root
        xp = array_namespace(root)
        mean = targets.mean(axis=0, dtype=np.float64)
        gram = xp.zeros_like(root)
        sums = xp.zeros_like(root[0])
        no_cross = np.zeros((self._n_used, len(mean)))
        cross = like(no_cross, root)
        for block, kernel in self._kernels():
            wide_kernel = to_double(kernel)
            gram += wide_kernel.T @ wide_kernel
            sums += xp.sum(wide_kernel, axis=0)
            centred = targets[block] - mean
            centred = centred.astype(self._dtype)
            device_targets = like(centred, kernel)
            cross += kernel.T @ device_targets
        return gram, sums, cross

    def _iterate(
        self, y: FloatArray, bound: FloatArray, nu: float, tolerance: float
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Run the method for targets y (g, n) and bounds C (g,), in spreads of the targets.

        Return weights (g, r) of the landmarks and biases (g,), in the same units.
        """
        root = self._root
        xp = array_namespace(root)
        # Predictions and not coefficients must settle, for which half the usual rho serves best.
        trace = float(xp.linalg.trace(self._gram))
        roughness = max(trace / self._n, 1e-6)
        rho = 0.5 * first_rho(roughness, bound)
        rho = float(np.clip(rho, 1e-4, GREATEST_RHO))
        ridge = solve_positive(self._gram, rho, root.T).T
        device_y = like(y, root)
        device_bound = like(bound, root)
        state = OutputStates.start(device_y, device_bound, nu)
        no_weights = np.zeros((len(y), self._n_used))
        feature_weights = like(no_weights, root)

        def minimise(q: Array) -> Array:
            # Weights of the features ``K root``: a ridge regression of q with penalty rho. With
            # them the Woodbury identity gives ``(K root root' K' + rho I)^-1 q``.
            nonlocal feature_weights
            q_sums = xp.sum(q, axis=1, dtype=xp.float64)
            total = -q_sums[:, None] * self._means
            for block, kernel in self._kernels():
                # `ridge` magnifies the rounding of float32 here a thousand times.
                wide_q = to_double(q[:, block])
                total += wide_q @ to_double(kernel)
            feature_weights = total @ ridge
            self._subtract(q, feature_weights)
            q -= xp.mean(q, axis=1, keepdims=True)
            q *= 1 / rho
            return q

        for _ in range(_MAX_ITER // _CHANGE_EVERY):
            previous_weights = feature_weights
            take_steps(state, rho, minimise, _CHANGE_EVERY)
            change = feature_weights - previous_weights
            # The change of predictions, squared and summed over rows.
            products = (change @ self._gram) * change
            squared_change = xp.sum(products, axis=1)
            largest_change = float(xp.max(squared_change))
            if largest_change <= self._n * tolerance**2:
                break
        # The targets are of no more use; their memory takes the residuals.
        self._subtract(state.y, feature_weights)
        residuals = to_numpy(state.y)
        weights = feature_weights @ root.T
        mean_predictions = to_numpy(weights @ self._means)
        bias = _tube_middles(residuals, nu)
        bias = bias - mean_predictions
        return to_numpy(weights), bias

    def _subtract(self, q: Array, feature_weights: Array) -> None:
        """Subtract the centred predictions of feature weights (g, r) from q (g, n), in place."""
        xp = array_namespace(q)
        root_transposed = self._root.T
        wide_weights = feature_weights @ root_transposed
        wide_means = wide_weights @ self._means
        weights = xp.astype(wide_weights, q.dtype)
        mean_predictions = xp.astype(wide_means, q.dtype)
        mean_column = mean_predictions[:, None]
        for block, kernel in self._kernels():
            block_q = q[:, block]
            block_q -= weights @ kernel.T
            block_q += mean_column


def _groups_of_spreads(targets: FloatArray, most_outputs: int) -> Iterator[IntArray]:
    """Yield groups of outputs whose spreads, within a factor of 4, can share one rho.

    Each output of targets (n, d) is in one group, each group of `most_outputs` at most.
    """
    step = max(len(targets) // 10_000, 1)
    sample = targets[::step]
    spreads = sample.std(axis=0, dtype=np.float64)
    order = np.argsort(spreads)
    sorted_spreads = spreads[order]
    n_outputs = len(order)
    start = 0
    for stop in range(1, n_outputs + 1):
        least_spread = max(sorted_spreads[start], 1e-300)
        n_grouped = stop - start
        is_full = stop == n_outputs or n_grouped == most_outputs
        if is_full or sorted_spreads[stop] > 4 * least_spread:
            yield order[start:stop]
            start = stop


def _tube_middles(residuals: FloatArray, nu: float) -> NDArray[np.float64]:
    """Return the biases of residuals (g, n): half of nu's share lies above the tube, half below."""
    n = residuals.shape[1]
    # Where a whole number of rows lies outside, the edge may pass anywhere between two of them.
    n_outside = nu * n / 2  # on each side
    last = n - 1
    first = int(np.ceil(n_outside))
    first -= 1
    second = int(n_outside)
    second = min(second, last)
    ranks = [
        first,
        second,
        last - second,
        last - first,
    ]
    distinct_ranks = sorted(set(ranks))
    partitioned = np.partition(residuals, distinct_ranks, axis=1)
    edges = partitioned[:, ranks]
    edges = edges.astype(np.float64)
    return np.asarray(edges.mean(axis=1))
