"""Projection onto a box and a budget of absolute values (part of the nu-SVR solver).

In: rows of numbers, a bound and a budget per row. Out: the nearest rows within both.
"""

from __future__ import annotations

import numpy as np

from polyseme._validation import FloatArray


def project_to_box_and_budget(
    v: FloatArray, bound: FloatArray, budget: FloatArray, threshold: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Project each row onto ``|z| <= bound`` and ``sum(|z|) <= budget``.

    Parameters
    ----------
    v : array, shape (d, n)
        The rows to project.
    bound : array, shape (d, 1)
        Largest size of an entry, per row.
    budget : array, shape (d,)
        Largest sum of sizes, per row.
    threshold : array, shape (d,)
        Starting guess: the thresholds of a similar earlier call, or zeros.

    Returns
    -------
    z : array, shape (d, n)
        ``sign(v) clip(|v| - threshold, 0, bound)``.
    threshold : array, shape (d,)
        The smallest thresholds >= 0 that meet the budget.
    """
    size = np.abs(v)
    inside = np.minimum(size, bound).sum(axis=1) <= budget
    threshold = np.where(inside, 0, threshold).astype(v.dtype)
    rows = np.flatnonzero(~inside)
    if len(rows):
        part = size if len(rows) == len(size) else size[rows]
        threshold[rows] = _thresholds(part, bound[rows], budget[rows], threshold[rows])
    size -= threshold[:, None]
    np.maximum(size, 0, out=size)
    np.minimum(size, bound, out=size)
    return np.copysign(size, v, out=size), threshold


def _thresholds(
    size: FloatArray, bound: FloatArray, budget: FloatArray, guess: FloatArray
) -> FloatArray:
    """Find per row the t with ``sum(clip(size - t, 0, bound)) = budget``: bracketed Newton."""
    eps = float(np.finfo(size.dtype).eps)
    low, high = np.zeros_like(guess), size.max(axis=1)
    threshold = np.clip(guess, low, high)
    open_rows = np.arange(len(size))
    for _ in range(60):
        now = threshold[open_rows]
        part = size if len(open_rows) == len(size) else size[open_rows]
        rest = part - now[:, None]
        slope = np.count_nonzero((rest > 0) & (rest < bound[open_rows]), axis=1)
        np.maximum(rest, 0, out=rest)
        np.minimum(rest, bound[open_rows], out=rest)
        excess = rest.sum(axis=1) - budget[open_rows]
        low[open_rows] = np.where(excess > 0, now, low[open_rows])
        high[open_rows] = np.where(excess > 0, high[open_rows], now)
        lowest, highest = low[open_rows], high[open_rows]
        found = np.abs(excess) <= 16 * eps * budget[open_rows]
        found |= highest - lowest <= 2 * eps * highest
        step = now + excess / np.maximum(slope, 1)
        outside = (step <= lowest) | (step >= highest) | (slope == 0)
        threshold[open_rows] = np.where(found, now, np.where(outside, (lowest + highest) / 2, step))
        open_rows = open_rows[~found]
        if len(open_rows) == 0:
            break
    return threshold
