"""From several readings of an instance to one probability for each label.

In: scores of one label by several experts. Out: their geometric mean, moved so that labels are
expected as often as they should be.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float64]

# Probabilities are told apart down to here.
_SMALLEST = 1e-6
# A label's logit moves by this much at most.
_FARTHEST = 8.0
_HALVINGS = 40
# In units of a label's prior: below it a regression's score is no longer taken at its word.
_FLOOR = 0.3


def logit(probabilities: Matrix) -> Matrix:
    """Give the logits of probabilities, which are kept a millionth away from 0 and 1."""
    safe = np.clip(probabilities, _SMALLEST, 1 - _SMALLEST)
    return np.asarray(np.log(safe) - np.log1p(-safe))


def sigmoid(logits: Matrix) -> Matrix:
    """Give the probabilities of logits."""
    from scipy.special import expit

    return np.asarray(expit(logits))


def as_probabilities(scores: Matrix, priors: Matrix) -> Matrix:
    """Read scores of a regression as probabilities: above zero, and in the same order.

    Parameters
    ----------
    scores : float64 array, shape (n, n_labels)
        Of any sign; those well above the floor stay what they are.
    priors : float64 array, shape (n_labels,)

    Returns
    -------
    float64 array, shape (n, n_labels)
    """
    floor = _FLOOR * priors
    return np.asarray(0.5 * (scores + np.sqrt(scores * scores + 4 * floor * floor)))


def blend(readings: Sequence[Matrix], slope: float = 1.0) -> Matrix:
    """Give the logits of the geometric mean of probabilities, (n, n_labels), times a slope.

    A single reading is taken at its word, without the slope.
    """
    logs = [np.log(np.maximum(one, 1e-9)) for one in readings]
    times = slope if len(readings) > 1 else 1.0
    return np.asarray(times * logit(np.exp(np.minimum(np.mean(logs, axis=0), 0.0))))


def label_shifts(
    logits: Matrix, weights: Matrix, priors: Matrix, farthest: float = _FARTHEST
) -> Matrix:
    """Find what brings the mean probability of every label to its prior.

    Parameters
    ----------
    logits : float64 array, shape (n, n_labels)
        Of instances that the experts had not seen.
    weights : float64 array, shape (n,)
        What each instance counts.
    priors : float64 array, shape (n_labels,)
    farthest : float
        A logit moves by this much at most.

    Returns
    -------
    float64 array, shape (n_labels,)
        To be added to logits.
    """
    shares = weights / weights.sum()
    low = np.full(logits.shape[1], -farthest)
    high = -low
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        below = shares @ sigmoid(logits + middle) < priors
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return np.asarray(0.5 * (low + high))


def precision_thresholds(
    probabilities: Matrix, truth: Matrix, weights: Matrix, wanted: Matrix
) -> Matrix:
    """Find how likely labels must be, so that so many of those that are given are true.

    Parameters
    ----------
    probabilities, truth : float64 arrays, shape (n, n_labels)
        Of instances that the experts had not seen.
    weights : float64 array, shape (n,)
        What each instance counts.
    wanted : float64 array, shape (n_wanted,)
        Precisions.

    Returns
    -------
    float64 array, shape (n_wanted,)
        The smallest threshold from which on the precision is reached; 1 where it never is.
    """
    order = np.argsort(-probabilities.ravel(), kind="stable")
    counted = np.repeat(weights, probabilities.shape[1])[order]
    reached = np.cumsum(counted * truth.ravel()[order]) / np.maximum(np.cumsum(counted), 1e-12)
    falling = probabilities.ravel()[order]
    # Labels that are equally likely are given together or not at all.
    last = np.append(np.diff(falling) < 0, True)[: len(falling)]
    reached, falling = reached[last], falling[last]
    found = [falling[reached >= one] for one in wanted]
    return np.array([one.min() if len(one) else 1.0 for one in found])
