"""Step 6, probabilities: labels given one in three should turn out true one time in three.

In: truth, 0/1 of shape (n, n_labels), and probabilities of the same shape. Out: reliability curves,
the expected calibration error, and the log-loss.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from polyseme._validation import InputError, check_number
from polyseme.metrics.checks import BoolArray, Truth, Values, validate

# Bins of equal width, as they are usually drawn.
BINS = 15
# Probabilities of 0 and 1 are taken for this close to them.
_SMALLEST = 1e-12


@dataclass(frozen=True)
class Reliability:
    """Entries in bins of equal width by their probability.

    Attributes
    ----------
    counts : int64 array, shape (n_bins,)
        Entries of each bin.
    predicted : float64 array, shape (n_bins,)
        Their mean probability; NaN for an empty bin.
    observed : float64 array, shape (n_bins,)
        The share of them that is true; NaN for an empty bin.
    """

    counts: NDArray[np.int64]
    predicted: Values
    observed: Values

    @property
    def expected_error(self) -> float:
        """Mean distance of predicted and observed, by the entries of each bin."""
        filled = self.counts > 0
        apart = np.abs(self.predicted - self.observed)[filled]
        return float(apart @ (self.counts[filled] / self.counts.sum()))


def reliability(truth: Truth, probabilities: ArrayLike, *, n_bins: int = BINS) -> Reliability:
    """Compare probabilities with what is true.

    Parameters
    ----------
    truth : array-like or scipy sparse of 0 and 1, shape (n, n_labels)
    probabilities : array-like of float, shape (n, n_labels)
    n_bins : int
        Of equal width; a probability on a border belongs to the upper bin.

    Returns
    -------
    Reliability
    """
    check_number("n_bins", n_bins, owner="reliability", low=1, whole=True)
    held, given = _checked(truth, probabilities)
    at = np.minimum((given * n_bins).astype(np.int64), n_bins - 1).ravel()
    counts = np.bincount(at, minlength=n_bins)
    with np.errstate(invalid="ignore"):
        predicted = np.bincount(at, weights=given.ravel(), minlength=n_bins) / counts
        observed = np.bincount(at, weights=held.ravel(), minlength=n_bins) / counts
    return Reliability(counts, predicted, observed)


def expected_calibration_error(
    truth: Truth, probabilities: ArrayLike, *, n_bins: int = BINS
) -> float:
    """Give the expected calibration error, smaller is better; see `reliability`."""
    return reliability(truth, probabilities, n_bins=n_bins).expected_error


def log_loss(truth: Truth, probabilities: ArrayLike) -> float:
    """Give the mean over rows of the labels' summed log-losses, in nats; smaller is better.

    Parameters
    ----------
    truth : array-like or scipy sparse of 0 and 1, shape (n, n_labels)
    probabilities : array-like of float, shape (n, n_labels)
    """
    held, given = _checked(truth, probabilities)
    safe = np.clip(given, _SMALLEST, 1 - _SMALLEST)
    return float(-np.where(held, np.log(safe), np.log1p(-safe)).sum(axis=1).mean())


def _checked(truth: Truth, probabilities: ArrayLike) -> tuple[BoolArray, Values]:
    """Check that probabilities are some."""
    held, given = validate(truth, probabilities)
    if given.min() < 0 or given.max() > 1:
        raise InputError(
            f"`probabilities` must lie between 0 and 1; got {given.min():g} to {given.max():g}."
        )
    return held, given.astype(np.float64)
