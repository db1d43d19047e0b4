"""The alternating direction method that solves the dual of nu-SVR, equation (7), for many outputs.

In: standardised targets and a function that minimises the quadratic part. Out: coefficients, step
by step. `regression` has the kernels, checks the optimality conditions and stops.

The method (ADMM; Boyd et al., 2011, section 3.1.1) splits the coefficients b, α* - α in equation
(7), into copies x = z. With scaled multipliers u and a penalty ρ, a step is::

    x = argmin 0.5 x'Kx - y'x + ρ/2 ‖x - z + u‖²  with sum(x) = 0        the caller's `minimise`
    z = projection of x + u onto |z| <= C and sum(|z|) <= C nu n         `project`
    u = u + x - z

Terms: an *output* is a coordinate of the targets y, a *row* of the kernel an instance. Arrays here
have an output in each row: (g, n) for g outputs that are not solved yet and n instances.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from array_api_compat import array_namespace
from array_api_compat import device as device_of
from numpy.typing import NDArray

from polyseme.base.validation import FloatArray
from polyseme.published.kernels import Array, in_blocks, row_blocks

# x is replaced by 1.8 x - 0.8 z, with z of the step before, which saves iterations.
_OVER_RELAXATION = 1.8
# The largest penalty ρ, beside a kernel whose diagonal is 1.
GREATEST_RHO = 4.0
# The most steps of a search for a threshold; a bisection to double precision takes no more.
_MOST_SEARCHES = 60
# Instances of a block while targets are standardised.
_TARGET_ROWS = 4096


class OutputStates(NamedTuple):
    """Unfinished outputs, one per row; targets and coefficients in units of target spread.

    `take_steps` changes z, u and threshold in place, the solver level.
    """

    outputs: Array  # (g,): which of the d outputs these are
    y: Array  # (g, n): standardised targets
    z: Array  # (g, n): coefficients that meet the bounds and the budget
    u: Array  # (g, n): the method's scaled multipliers
    C: Array  # (g, 1): largest size of a coefficient
    budget: Array  # (g,): largest sum of sizes, C nu n
    threshold: Array  # (g,): of the last projection; above 0 where the budget is used up
    level: Array  # (g,): residual at which the optimality conditions are worth a look

    @classmethod
    def start(cls, y: Array, bound: Array, nu: float) -> OutputStates:
        """Begin with standardised targets (d, n), bounds C (d,) and coefficients of 0."""
        d, n = y.shape
        xp = array_namespace(y)
        return cls(
            outputs=xp.arange(d, device=device_of(y)),
            y=y,
            z=xp.zeros_like(y),
            u=xp.zeros_like(y),
            C=bound[:, None],
            budget=bound * nu * n,
            threshold=xp.zeros_like(bound),
            level=xp.zeros_like(bound),
        )

    def keep(self, chosen: Array | slice) -> OutputStates:
        """Return the chosen outputs: copies for a mask, views for a slice."""
        arrays = [array[chosen] for array in self]
        return OutputStates(*arrays)


def take_steps(
    state: OutputStates, rho: float, minimise: Callable[[Array], Array], n_steps: int
) -> Array:
    """Take ADMM steps, which change the state's z, u and threshold in place.

    `minimise` returns x, (g, n), for the linear terms q, (g, n), which it may overwrite. Return the
    residuals of the last step, (g,): the largest of |x - z| and of ρ times the change of z.
    """
    xp = array_namespace(state.y)
    q = xp.empty_like(state.y)
    residual = xp.empty_like(state.budget)

    # Both work on a block of outputs, with all rows. First q = y + ρ (z - u), which x minimises.
    def set_linear_term(outputs: slice) -> None:
        block = state.keep(outputs)
        term = q[outputs]
        xp.subtract(block.z, block.u, out=term)
        term *= rho
        term += block.y

    # Then z and u from v = x + u, over-relaxed.
    def update(outputs: slice) -> None:
        block = state.keep(outputs)
        previous_z = block.z
        block_x = x[outputs]
        v = block_x * _OVER_RELAXATION
        v -= (_OVER_RELAXATION - 1) * previous_z
        v += block.u
        z, threshold = project(v, block.C, block.budget, block.threshold)
        block.threshold[...] = threshold
        xp.subtract(v, z, out=block.u)
        if is_last:
            # In the memory of v.
            gap = xp.subtract(block_x, z, out=v)
            gap = xp.abs(gap, out=v)
            primal_residual = xp.max(gap, axis=1)
            change = xp.subtract(z, previous_z, out=v)
            change = xp.abs(change, out=v)
            dual_residual = rho * xp.max(change, axis=1)
            residual[outputs] = xp.maximum(primal_residual, dual_residual)
        block.z[...] = z

    for step_number in range(n_steps):
        is_last = step_number == n_steps - 1
        in_blocks(set_linear_term, q)
        x = minimise(q)
        in_blocks(update, q)
    return residual


def project(v: Array, bound: Array, budget: Array, threshold: Array) -> tuple[Array, Array]:
    """Project rows v (g, n) onto ``|z| <= bound`` (g, 1) and ``sum(|z|) <= budget`` (g,).

    Return ``z = sign(v) clip(|v| - threshold, 0, bound)``, (g, n), and the smallest thresholds >= 0
    that meet the budget, (g,), searched from those of an earlier call or from zeros.
    """
    xp = array_namespace(v)
    size = xp.abs(v)
    clipped_size = xp.minimum(size, bound)
    clipped_sum = xp.sum(clipped_size, axis=1)
    is_inside = clipped_sum <= budget
    threshold = xp.where(is_inside, 0, threshold)
    outputs = xp.nonzero(~is_inside)[0]
    if len(outputs):
        all_outside = len(outputs) == len(size)
        threshold[outputs] = _thresholds(
            size if all_outside else size[outputs],
            bound[outputs],
            budget[outputs],
            threshold[outputs],
        )
    size -= threshold[:, None]
    xp.maximum(size, 0, out=size)
    xp.minimum(size, bound, out=size)
    z = xp.copysign(size, v, out=size)
    return z, threshold


def _thresholds(size: Array, bound: Array, budget: Array, guess: Array) -> Array:
    """Find per row the t with ``sum(clip(size - t, 0, bound)) = budget``: bracketed Newton.

    Sizes are (g, n), bounds (g, 1), budgets and guesses (g,), as the result.
    """
    xp = array_namespace(size)
    n_outputs = len(size)
    eps = float(xp.finfo(size.dtype).eps)
    low = xp.zeros_like(guess)
    high = xp.max(size, axis=1)
    threshold = xp.maximum(guess, low)
    threshold = xp.minimum(threshold, high)
    outputs = xp.arange(n_outputs, device=device_of(size))  # those that are searched still
    for _ in range(_MOST_SEARCHES):
        current = threshold[outputs]
        row_bound = bound[outputs]
        row_budget = budget[outputs]
        searches_all = len(outputs) == n_outputs
        row_size = size if searches_all else size[outputs]
        clipped = row_size - current[:, None]
        is_between = (clipped > 0) & (clipped < row_bound)
        slope = xp.count_nonzero(is_between, axis=1)
        xp.maximum(clipped, 0, out=clipped)
        xp.minimum(clipped, row_bound, out=clipped)
        clipped_sum = xp.sum(clipped, axis=1)
        excess = clipped_sum - row_budget

        too_low = excess > 0
        lowest = xp.where(too_low, current, low[outputs])
        highest = xp.where(too_low, high[outputs], current)
        low[outputs] = lowest
        high[outputs] = highest
        is_met = xp.abs(excess) <= 16 * eps * row_budget
        is_met |= highest - lowest <= 2 * eps * highest

        # A Newton step, or bisection where it leaves the bracket.
        newton = current + excess / xp.maximum(slope, 1)
        is_outside = (newton <= lowest) | (newton >= highest)
        is_outside = is_outside | (slope == 0)
        middle = (lowest + highest) / 2
        step = xp.where(is_outside, middle, newton)
        updated = xp.where(is_met, current, step)
        threshold[outputs] = xp.astype(updated, size.dtype)
        outputs = outputs[~is_met]
        if len(outputs) == 0:
            break
    return threshold


def first_rho(roughness: float, bound: FloatArray) -> float:
    """Guess rho: tight bounds (d,), which a small one slows down most, want a large one.

    Only the number of iterations depends on it.
    """
    low_bound = np.quantile(bound, 0.2)
    typical_bound = float(low_bound)
    tightness = typical_bound**-0.6
    rho = 0.8 * roughness * tightness
    return float(rho)


def standardise(
    targets: FloatArray, dtype: np.dtype[Any]
) -> tuple[FloatArray, NDArray[np.float64], NDArray[np.float64]]:
    """Return targets (n, d) with mean 0 and spread 1, an output per row: (d, n), of a `dtype`.

    Return also the means and the spreads, (d,) each; a constant output has the spread 1.
    """
    n, d = targets.shape
    centre = targets.mean(axis=0, dtype=np.float64)
    square_sums = np.zeros(d)
    blocks = list(row_blocks(n, 1, _TARGET_ROWS))
    for block in blocks:
        deviations = targets[block] - centre
        square_sums += np.einsum("ij,ij->j", deviations, deviations)
    spread = np.sqrt(square_sums / n)
    highest = targets.max(axis=0)
    lowest = targets.min(axis=0)
    largest_size = np.maximum(highest, -lowest)
    # Rounding leaves a constant output with a tiny spread.
    rounding = 1e-12 * (1e-12 + largest_size)
    is_constant = spread <= rounding
    spread[is_constant] = 1.0
    y = np.empty((d, n), dtype=dtype)
    for block in blocks:
        deviations = targets[block] - centre
        standardised = deviations / spread
        y[:, block] = standardised.T
    return y, centre, spread
