"""Comparing methods over trials: means, paired t-tests and Holm's correction.

In: one value per trial and method. Out: numbers for `tables` and for the plot of differences.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from typing import TypedDict, TypeVar

import numpy as np
from numpy.typing import NDArray

from polyseme._validation import InputError

ABOVE, BELOW = "▲", "▼"
ALPHA = 0.05

Key = TypeVar("Key", bound=Hashable)


class _PairedTest(TypedDict):
    """What `paired_test` gives."""

    n: int
    difference: float | None
    standard_error: float | None
    t: float | None
    p: float | None
    low: float | None
    high: float | None


class _Comparison(_PairedTest):
    """What `compare_all` gives for each comparison."""

    p_holm: float | None
    mark: str


def mean_and_error(values: Sequence[float | None]) -> tuple[float, float | None]:
    """Give the mean over trials and its standard error.

    Parameters
    ----------
    values : sequence of float or None
        One per trial; None and NaN are left out.

    Returns
    -------
    mean : float
        NaN without any value.
    error : float or None
        With n - 1 degrees of freedom; None for fewer than two values.
    """
    kept = measured(values)
    if len(kept) == 0:
        return math.nan, None
    error = float(kept.std(ddof=1) / math.sqrt(len(kept))) if len(kept) > 1 else None
    return float(kept.mean()), error


def paired_test(ours: Sequence[float | None], theirs: Sequence[float | None]) -> _PairedTest:
    """Compare two methods on the same trials by a two-sided paired t-test.

    Parameters
    ----------
    ours, theirs : sequence of float or None
        The same trials in the same order; a trial that lacks either value is left out.

    Returns
    -------
    dict
        `n` pairs; the mean `difference` ours - theirs and its `standard_error`; `t` and `p` of the
        test; the 95 % interval of the difference from `low` to `high`. Without a pair everything
        is None but `n`; with one pair everything but `n` and `difference`. Differences without any
        spread have p = 1 when they are zero and otherwise p = 0, which is the limit, and no t.
    """
    if len(ours) != len(theirs):
        raise InputError(
            f"`ours` has {len(ours)} trials but `theirs` has {len(theirs)}; a paired test needs "
            "the same trials."
        )
    pairs = zip(ours, theirs, strict=True)
    gaps = measured([None if a is None or b is None else a - b for a, b in pairs])
    n = len(gaps)
    mean, error = mean_and_error(gaps.tolist())
    result = _PairedTest(
        n=n,
        difference=mean if n else None,
        standard_error=error,
        t=None,
        p=None,
        low=None,
        high=None,
    )
    if error is None:
        return result
    # Rounding leaves equal differences with a spread of some units in the last place.
    if error <= 1e-12 * max(1.0, float(np.abs(gaps).max())):
        is_zero = abs(mean) <= 1e-12
        t_zero = 0.0 if is_zero else None
        result.update({"t": t_zero, "p": float(is_zero), "low": mean, "high": mean})
        return result
    from scipy import stats

    t = mean / error
    reach = float(stats.t.ppf(1 - ALPHA / 2, n - 1)) * error
    p = 2 * float(stats.t.sf(abs(t), n - 1))
    result.update({"t": t, "p": p, "low": mean - reach, "high": mean + reach})
    return result


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjust the p-values of a family of tests by Holm's step-down method.

    Parameters
    ----------
    p_values : sequence of float
        Between 0 and 1.

    Returns
    -------
    list of float
        In the same order; at most 1.
    """
    given = np.asarray(p_values, dtype=np.float64)
    if not ((given >= 0) & (given <= 1)).all():
        raise InputError(f"`p_values` must lie between 0 and 1; got {list(p_values)}.")
    order = np.argsort(given, kind="stable")
    steps = given[order] * np.arange(len(given), 0, -1)
    adjusted = np.empty_like(given)
    adjusted[order] = np.minimum(np.maximum.accumulate(steps), 1.0)
    return [float(p) for p in adjusted]


def compare_all(
    pairs: Mapping[Key, tuple[Sequence[float | None], Sequence[float | None]]],
) -> dict[Key, _Comparison]:
    """Run the paired tests of one family and correct them together.

    Parameters
    ----------
    pairs : mapping of key to (ours, theirs)
        One entry per comparison, as in `paired_test`.

    Returns
    -------
    dict of key to dict
        In the same order: what `paired_test` gives, with `p_holm`, p after Holm's correction for
        all tests that were possible, and `mark` for the cell of the other method: `ABOVE` or
        `BELOW` ours where `p_holm` is below 0.05, or empty.
    """
    tests = {key: paired_test(ours, theirs) for key, (ours, theirs) in pairs.items()}
    raw = {key: test["p"] for key, test in tests.items() if test["p"] is not None}
    adjusted: dict[Key, float] = dict(zip(raw, holm([*raw.values()]), strict=True))
    found: dict[Key, _Comparison] = {}
    for key, test in tests.items():
        p = adjusted.get(key)
        mark = ""
        if p is not None and p < ALPHA:
            mark = BELOW if (test["difference"] or 0.0) > 0 else ABOVE
        found[key] = _Comparison(**test, p_holm=p, mark=mark)
    return found


def measured(values: Sequence[float | None]) -> NDArray[np.float64]:
    """Give the values that are neither None nor NaN, shape (n,)."""
    array = np.array([math.nan if value is None else value for value in values], dtype=np.float64)
    return array[~np.isnan(array)]
