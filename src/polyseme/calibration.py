"""From logits to calibrated probabilities, and to thresholds for a wanted precision.

In: logits of items that a model has not seen. Out: one intercept a label, so that labels are
expected as often as they should be, and how likely labels must be for a precision.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float64]

PRECISIONS = np.arange(1, 100) / 100
# An intercept moves a logit by this much at most; labels of one or two documents have a long way.
_FARTHEST = 20.0
_HALVINGS = 45
# Probabilities are told apart down to here.
_SMALLEST = 1e-6
# So many documents what is usual is worth, beside those counted.
_USUAL = 400.0


class Calibration(NamedTuple):
    """How raw logits become calibrated ones, and thresholds for each of `PRECISIONS`."""

    slopes: Matrix  # factors of raw logits, (n_labels,)
    intercepts: Matrix  # added after that, (n_labels,)
    thresholds: Matrix  # for seen labels, (99,); empty where no item could be held out

    def __repr__(self) -> str:
        """Tell its size, in a line."""
        return f"Calibration({len(self.slopes)} labels, {len(self.thresholds)} thresholds)"


def logit(probabilities: Matrix) -> Matrix:
    """Give the logits of probabilities, which are kept a millionth away from 0 and 1."""
    safe = np.minimum(np.maximum(probabilities, _SMALLEST), 1 - _SMALLEST)
    return np.asarray(np.log(safe) - np.log1p(-safe))


def sigmoid(logits: Matrix) -> Matrix:
    """Give the probabilities of logits."""
    from scipy.special import expit

    return np.asarray(expit(logits))


def calibrate(logits: Matrix, truth: Matrix, weights: Matrix, frequencies: Matrix) -> Calibration:
    """Learn intercepts and thresholds from logits (n, n_labels) of items that were held out.

    Seen labels come first; of them the truth (n, n_seen) is known. Items have weights (n,), labels
    expected frequencies (n_labels,). Slopes are 1.
    """
    intercepts = match_frequencies(logits, weights, frequencies)
    probabilities = sigmoid(logits + intercepts)
    thresholds = precision_thresholds(probabilities[:, : truth.shape[1]], truth, weights)
    return Calibration(np.ones(logits.shape[1]), intercepts, thresholds)


def match_frequencies(logits: Matrix, weights: Matrix, frequencies: Matrix) -> Matrix:
    """Find intercepts (n_labels,) that bring mean probabilities to frequencies, by bisection."""
    shares = weights / weights.sum()
    low = np.full(logits.shape[1], -_FARTHEST)
    high = -low
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        below = shares @ sigmoid(logits + middle) < frequencies
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return np.asarray(0.5 * (low + high))


def precision_thresholds(probabilities: Matrix, truth: Matrix, weights: Matrix) -> Matrix:
    """Find for each of `PRECISIONS` the smallest threshold that reaches it; 1 where none does.

    Probabilities and truth are (n, n_labels), of items that were held out, with weights (n,).
    """
    order = np.argsort(-probabilities.ravel(), kind="stable")
    counted = np.repeat(weights, probabilities.shape[1])[order]
    reached = np.cumsum(counted * truth.ravel()[order]) / np.maximum(np.cumsum(counted), 1e-12)
    falling = probabilities.ravel()[order]
    # Labels that are equally likely are given together or not at all.
    last = np.append(np.diff(falling) < 0, True)[: len(falling)]
    reached, falling = reached[last], falling[last]
    return np.array([np.min(falling[reached >= goal], initial=1.0) for goal in PRECISIONS])


def expected_frequencies(
    priors: Matrix, on_items: Matrix, n_items: int, elsewhere: float
) -> Matrix:
    """Say how often items are expected to have each label, (n_labels,).

    As often as documents (`priors`), where items' documents are among the label sets. A share of
    items may have theirs `elsewhere`: label sets then use labels otherwise, and what counts is how
    often training items have a label or, where it is unseen, are expected to (`on_items`).
    """
    smooth = (n_items * on_items + 0.5 * priors) / (n_items + 0.5)
    mixed = (1 - elsewhere) * priors + elsewhere * smooth
    return np.asarray(np.clip(mixed, _SMALLEST, 1 - _SMALLEST))


def new_label_frequencies(counts: Matrix, holding: int, added: int, typical: float) -> Matrix:
    """Say how often items are expected to have labels that came after training, (n_new,).

    Each is held by `counts` documents (n_new,); of all documents `added` since, so many are
    `holding` some. Documents that were there before a label turned up could not hold it, so their
    silence says nothing about how common it is; nor do documents that were added because they hold
    it. Until some hundred others have been counted, new labels are taken to be as common as labels
    typically are.
    """
    could = max(added, holding)
    sampled = (counts + _USUAL * typical) / (could + _USUAL)
    share = 1 - holding / max(could, 1)
    return np.asarray(share * sampled + (1 - share) * typical)
