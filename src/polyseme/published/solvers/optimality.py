"""When a nu-support-vector regression is solved, and its bias (part of the nu-SVR solver).

In: coefficients of several outputs, one per row, and ``y - Kz``. Out: coefficients that meet the
constraints, violations of the optimality conditions, biases.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from polyseme._validation import FloatArray


@dataclass
class Outputs:
    """Unfinished outputs, one per row; targets and coefficients in units of target spread.

    Attributes
    ----------
    rows : int64 array, shape (g,)
        Which outputs these are.
    y, z, u : arrays, shape (g, n)
        Targets, coefficients, and the method's scaled multipliers.
    C : array, shape (g, 1)
        Largest size of a coefficient.
    budget : array, shape (g,)
        Largest sum of sizes.
    threshold : array, shape (g,)
        Of the last projection; above 0 where the budget is used up.
    level : array, shape (g,)
        Residual at which the optimality conditions are worth a look.
    """

    rows: NDArray[np.int64]
    y: FloatArray
    C: FloatArray
    budget: FloatArray
    z: FloatArray
    u: FloatArray
    threshold: FloatArray
    level: FloatArray

    def keep(self, mask: NDArray[np.bool_] | slice) -> Outputs:
        """Take some of the outputs: copies for a mask, views for a slice."""
        return Outputs(*(getattr(self, field.name)[mask] for field in fields(self)))


def balance(z: FloatArray, state: Outputs) -> None:
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


def _edges(z: FloatArray, t: FloatArray, state: Outputs) -> tuple[FloatArray, ...]:
    """Return the bounds that the rows put on bias + tube and on bias - tube."""
    upper_low = np.where(z < state.C, t, -np.inf).max(axis=1)
    upper_high = np.where(z > 0, t, np.inf).min(axis=1)
    lower_low = np.where(z < 0, t, -np.inf).max(axis=1)
    lower_high = np.where(z > -state.C, t, np.inf).min(axis=1)
    return upper_low, upper_high, lower_low, lower_high


def violation(z: FloatArray, t: FloatArray, state: Outputs) -> FloatArray:
    """Return by how much each output fails the optimality conditions (0: optimal)."""
    upper_low, upper_high, lower_low, lower_high = _edges(z, t, state)
    with_tube = np.maximum(upper_low - upper_high, lower_low - lower_high)
    violation = np.where(state.threshold > 0, with_tube, upper_low - lower_high)
    # Where there is nothing free to shift, sums that are off show a point that is no solution.
    total = np.abs(z).sum(axis=1, dtype=np.float64)
    off = np.abs(z.sum(axis=1, dtype=np.float64))
    off = np.maximum(off, np.where(state.threshold > 0, np.abs(total - state.budget), 0))
    return np.where(off <= 1e-5 * state.budget, violation, np.inf)


def bias(z: FloatArray, t: FloatArray, state: Outputs) -> FloatArray:
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
