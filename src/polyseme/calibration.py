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
# Newton's steps end with one that is shorter than this: the next would be as long as its square.
# Bounds so close end them as well. So many logits that are gone over together stay in the cache.
_SHORT_STEP, _CLOSE_BOUNDS, _MOST_STEPS, _LOGITS_TOGETHER = 1e-6, 1e-11, 100, 2**17
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
        """Return its size, in a line."""
        return f"Calibration({len(self.slopes)} labels, {len(self.thresholds)} thresholds)"


def logit(probabilities: Matrix) -> Matrix:
    """Return the logits of probabilities, which are kept a millionth away from 0 and 1."""
    safe = np.minimum(np.maximum(probabilities, _SMALLEST), 1 - _SMALLEST)
    return np.asarray(np.log(safe) - np.log1p(-safe))


def sigmoid(logits: Matrix) -> Matrix:
    """Return the probabilities of logits."""
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
    """Find intercepts (n_labels,) that bring mean probabilities to frequencies."""
    shares = weights / weights.sum()
    n, n_labels = logits.shape
    intercepts = np.empty(n_labels)
    n_together = max(_LOGITS_TOGETHER // max(n, 1), 1)
    for start in range(0, n_labels, n_together):
        columns = slice(start, start + n_together)
        by_label = np.ascontiguousarray(logits[:, columns].T, dtype=np.float64)
        intercepts[columns] = _matched(by_label, shares, frequencies[columns])
    return intercepts


def _matched(by_label: Matrix, shares: Matrix, frequencies: Matrix) -> Matrix:
    """Find the intercepts (n_labels,) of a few labels, from logits (n_labels, n).

    Newton's method on the logit of the mean probability, which is nearly a straight line, between
    bounds that close in: a step that leads outside them, or is not half as long as the one before,
    goes to the middle instead.
    """
    n_labels = len(by_label)
    low, high = np.full(n_labels, -_FARTHEST), np.full(n_labels, _FARTHEST)
    intercepts, lengths = np.zeros(n_labels), np.full(n_labels, 2 * _FARTHEST)
    left = np.arange(n_labels)
    for _ in range(_MOST_STEPS):
        here, wanted = intercepts[left], frequencies[left]
        likely = sigmoid(by_label[left] + here[:, None])
        means = likely @ shares
        rises = means - np.square(likely, out=likely) @ shares
        below = means < wanted
        low[left] = np.where(below, here, low[left])
        high[left] = np.where(below, high[left], here)

        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            gaps = np.log(wanted / means) - np.log((1 - wanted) / (1 - means))
            steps = gaps * means * (1 - means) / rises
        aims = np.clip(here + steps, -_FARTHEST, _FARTHEST)
        good = (aims >= low[left]) & (aims <= high[left])  # what is no number is not
        good &= 2 * np.abs(aims - here) <= lengths[left]
        aims = np.where(good, aims, 0.5 * (low[left] + high[left]))

        lengths[left] = np.abs(aims - here)
        intercepts[left] = aims
        done = (good & (lengths[left] < _SHORT_STEP)) | (high[left] - low[left] < _CLOSE_BOUNDS)
        left = left[~done]
        if not len(left):
            break
    return intercepts


def precision_thresholds(probabilities: Matrix, truth: Matrix, weights: Matrix) -> Matrix:
    """Find for each of `PRECISIONS` the smallest threshold that reaches it; 1 where none does.

    Probabilities and truth are (n, n_labels), of items that were held out, with weights (n,).
    """
    likely, true = probabilities.ravel(), truth.ravel()
    counted = np.repeat(weights, probabilities.shape[1])
    # Of more labels than this a smaller share than the least of all precisions is true.
    most = int(counted @ true / (PRECISIONS[0] * weights.min(initial=1.0))) + 1
    if most < len(likely):
        least = np.partition(likely, len(likely) - most)[len(likely) - most]
        chosen = np.flatnonzero(likely >= least)
        likely, true, counted = likely[chosen], true[chosen], counted[chosen]
    order = np.argsort(-likely, kind="stable")
    counted = counted[order]
    reached = np.cumsum(counted * true[order]) / np.maximum(np.cumsum(counted), 1e-12)
    falling = likely[order]
    # Labels that are equally likely are given together or not at all.
    last = np.append(np.diff(falling) < 0, True)[: len(falling)]
    reached, falling = reached[last], falling[last]
    return np.array([np.min(falling[reached >= goal], initial=1.0) for goal in PRECISIONS])


def expected_frequencies(
    priors: Matrix, on_items: Matrix, n_items: int, elsewhere: float
) -> Matrix:
    """Return how often items are expected to have each label, (n_labels,).

    As often as documents (`priors`), where items' documents are among the label sets. A share of
    items may have theirs `elsewhere`: label sets then use labels otherwise, and what counts is how
    often training items have a label or, where it is unseen, are expected to (`on_items`).
    """
    smooth = (n_items * on_items + 0.5 * priors) / (n_items + 0.5)
    mixed = (1 - elsewhere) * priors + elsewhere * smooth
    return np.asarray(np.clip(mixed, _SMALLEST, 1 - _SMALLEST))


def new_label_frequencies(counts: Matrix, holding: int, added: int, typical: float) -> Matrix:
    """Return how often items are expected to have labels that came after training, (n_new,).

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
