"""Comparing methods over trials: means, paired t-tests and Holm's correction.

In: one value per trial and method. Out: numbers for tables and for the plot of differences.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from polyseme.base.validation import InputError

ABOVE, BELOW = "▲", "▼"
ALPHA = 0.05

Key = TypeVar("Key", bound=Hashable)
Values = Sequence[float | None]


class PairedTest(NamedTuple):
    """A two-sided paired t-test of two methods on the same trials."""

    n: int  # pairs
    difference: float | None = None  # the mean of ours less theirs
    error: float | None = None  # its standard error; None with fewer than two pairs
    p: float | None = None  # 0 or 1 where differences have no spread
    low: float | None = None  # the 95 % interval of the difference
    high: float | None = None
    p_holm: float | None = None  # p after Holm's correction for the family
    mark: str = ""  # the other is significantly `ABOVE` or `BELOW` ours


def measured(values: Values) -> NDArray[np.float64]:
    """Return the values that are neither None nor NaN, (n,)."""
    array = np.array([math.nan if value is None else value for value in values], dtype=np.float64)
    return array[~np.isnan(array)]


def mean_and_error(values: Values) -> tuple[float | None, float | None]:
    """Return the mean over trials, None without a value, and its standard error, None for one."""
    sample = measured(values)
    if len(sample) == 0:
        return None, None
    mean = float(sample.mean())
    if len(sample) == 1:
        return mean, None
    spread = sample.std(ddof=1)
    error = float(spread / math.sqrt(len(sample)))
    return mean, error


def paired_test(ours: Values, theirs: Values) -> PairedTest:
    """Compare two methods on the same trials; a trial that lacks either value is left out."""
    if len(ours) != len(theirs):
        raise InputError(
            f"`ours` has {len(ours)} trials but `theirs` has {len(theirs)}; a paired test needs "
            "the same trials."
        )
    pairs = zip(ours, theirs, strict=True)
    differences: list[float | None] = []
    for our_value, their_value in pairs:
        if our_value is not None and their_value is not None:
            differences.append(our_value - their_value)
    gaps = measured(differences)
    mean, error = mean_and_error(gaps.tolist())
    if mean is None or error is None:
        return PairedTest(len(gaps), mean)
    # Rounding leaves equal differences with a spread of some units in the last place.
    if error <= 1e-12 * max(1.0, float(np.abs(gaps).max())):
        return PairedTest(len(gaps), mean, error, float(abs(mean) <= 1e-12), mean, mean)
    from scipy import stats

    test = stats.ttest_1samp(gaps, 0.0)
    low, high = map(float, test.confidence_interval(1 - ALPHA))
    return PairedTest(len(gaps), mean, error, float(test.pvalue), low, high)


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjust the p-values of a family of tests by Holm's step-down method, in the same order."""
    raw = np.asarray(p_values, dtype=np.float64)
    n_tests = len(raw)
    order = np.argsort(raw, kind="stable")
    # The smallest is multiplied by the number of tests, the next one by one less, and so on.
    factors = np.arange(n_tests, 0, -1)
    products = raw[order] * factors
    rising = np.maximum.accumulate(products)
    adjusted = np.empty_like(raw)
    adjusted[order] = np.minimum(rising, 1.0)
    return list(map(float, adjusted))


def compare_all(pairs: Mapping[Key, tuple[Values, Values]]) -> dict[Key, PairedTest]:
    """Run the paired tests of one family, (ours, theirs) each, and correct them together."""
    tests = {key: paired_test(ours, theirs) for key, (ours, theirs) in pairs.items()}
    raw = {key: test.p for key, test in tests.items() if test.p is not None}
    adjusted = holm(list(raw.values()))
    for key, p in zip(raw, adjusted, strict=True):
        test = tests[key]
        mark = ""
        if p < ALPHA:
            is_above = (test.difference or 0.0) <= 0
            mark = ABOVE if is_above else BELOW
        tests[key] = test._replace(p_holm=p, mark=mark)
    return tests
