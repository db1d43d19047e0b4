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
    # log(p / (1 - p))
    above = np.maximum(probabilities, _SMALLEST)
    safe = np.minimum(above, 1 - _SMALLEST)
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
    n_seen = truth.shape[1]
    intercepts = match_frequencies(logits, weights, frequencies)
    probabilities = sigmoid(logits + intercepts)
    thresholds = precision_thresholds(probabilities[:, :n_seen], truth, weights)
    slopes = np.ones(logits.shape[1])
    return Calibration(slopes, intercepts, thresholds)


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
    low = np.full(n_labels, -_FARTHEST)
    high = np.full(n_labels, _FARTHEST)
    intercepts = np.zeros(n_labels)
    lengths = np.full(n_labels, 2 * _FARTHEST)
    active = np.arange(n_labels)
    for _ in range(_MOST_STEPS):
        current = intercepts[active]
        target = frequencies[active]
        probabilities = sigmoid(by_label[active] + current[:, None])
        means = probabilities @ shares
        slopes = means - np.square(probabilities, out=probabilities) @ shares
        below = means < target
        low[active] = np.where(below, current, low[active])
        high[active] = np.where(below, high[active], current)

        # A Newton step, or the middle of the bounds.
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            gaps = np.log(target / means) - np.log((1 - target) / (1 - means))
            steps = gaps * means * (1 - means) / slopes
        updated = np.clip(current + steps, -_FARTHEST, _FARTHEST)
        good = (updated >= low[active]) & (updated <= high[active])  # what is no number is not
        good &= 2 * np.abs(updated - current) <= lengths[active]
        middle = 0.5 * (low[active] + high[active])
        updated = np.where(good, updated, middle)

        step_lengths = np.abs(updated - current)
        lengths[active] = step_lengths
        intercepts[active] = updated
        converged = good & (step_lengths < _SHORT_STEP)
        converged |= high[active] - low[active] < _CLOSE_BOUNDS
        active = active[~converged]
        if not len(active):
            break
    return intercepts


def precision_thresholds(probabilities: Matrix, truth: Matrix, weights: Matrix) -> Matrix:
    """Find for each of `PRECISIONS` the smallest threshold that reaches it; 1 where none does.

    Probabilities and truth are (n, n_labels), of items that were held out, with weights (n,).
    """
    scores = probabilities.ravel()
    positive = truth.ravel()
    score_weights = np.repeat(weights, probabilities.shape[1])
    # Of more labels than this a smaller share than the least of all precisions is true.
    positive_weight = score_weights @ positive
    least_weight = PRECISIONS[0] * weights.min(initial=1.0)
    most = int(positive_weight / least_weight) + 1
    if most < len(scores):
        place = len(scores) - most
        least_score = np.partition(scores, place)[place]
        chosen = np.flatnonzero(scores >= least_score)
        scores = scores[chosen]
        positive = positive[chosen]
        score_weights = score_weights[chosen]

    order = np.argsort(-scores, kind="stable")
    score_weights = score_weights[order]
    weight_of_true = np.cumsum(score_weights * positive[order])
    weight_of_all = np.cumsum(score_weights)
    precisions = weight_of_true / np.maximum(weight_of_all, 1e-12)
    falling = scores[order]
    # Labels that are equally likely are suggested together or not at all.
    last_of_equals = np.append(np.diff(falling) < 0, True)[: len(falling)]
    precisions = precisions[last_of_equals]
    falling = falling[last_of_equals]
    thresholds = [np.min(falling[precisions >= goal], initial=1.0) for goal in PRECISIONS]
    return np.array(thresholds)


def expected_frequencies(
    priors: Matrix, on_items: Matrix, n_items: int, elsewhere: float
) -> Matrix:
    """Return how often items are expected to have each label, (n_labels,).

    As often as documents (`priors`), where items' documents are among the label sets. A share of
    items may have theirs `elsewhere`: label sets then use labels otherwise, and what counts is how
    often training items have a label or, where it is unseen, are expected to (`on_items`).
    """
    counts = n_items * on_items
    smooth = (counts + 0.5 * priors) / (n_items + 0.5)
    from_documents = (1 - elsewhere) * priors
    from_items = elsewhere * smooth
    mixed = from_documents + from_items
    return np.asarray(np.clip(mixed, _SMALLEST, 1 - _SMALLEST))


def new_label_frequencies(counts: Matrix, holding: int, added: int, typical: float) -> Matrix:
    """Return how often items are expected to have labels that came after training, (n_new,).

    Each is held by `counts` documents (n_new,); of all documents `added` since, so many are
    `holding` some. Documents that were there before a label turned up could not hold it, so their
    silence says nothing about how common it is; nor do documents that were added because they hold
    it. Until some hundred others have been counted, new labels are taken to be as common as labels
    typically are.
    """
    n_candidates = max(added, holding)
    usual_count = _USUAL * typical
    sampled = (counts + usual_count) / (n_candidates + _USUAL)
    share = 1 - holding / max(n_candidates, 1)
    usual_part = (1 - share) * typical
    return np.asarray(share * sampled + usual_part)
