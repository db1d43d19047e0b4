"""From logits to calibrated probabilities, and to thresholds for a wanted precision.

In: logits of items that a model has not seen. Out: one intercept a label, so that labels are
expected as often as they should be, and how likely labels must be for a precision.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float64]
IntArray = NDArray[np.int64]

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


# ---------------------------------------------------------------------- unseen labels

# Logits of held-out items, (n, n_labels), and whether the items carry the labels.
LogitsAndTruth = tuple[Matrix, NDArray[np.bool_]]

# When a precision of unseen labels is promised; `unseen_thresholds` says what this gave on six
# corpora. From so many given labels on, and more where it is high: so many wrong ones must be
# expected.
_FEWEST_GIVEN = 20
_FEWEST_WRONG = 10
# What recalibrated probabilities expect counts like so many given labels.
_EXPECTED_COUNT = 20
# No promise rests on fewer labels than this, weighted by their shares of all that are given.
_FEWEST_SHARING = 3
# Standard errors over labels by which a precision must be exceeded: the lower bound of 95 %.
_STANDARD_ERRORS = 1.64
# Of more logits than this only the highest are looked at, at so many numbers of given labels.
_MOST_READ = 200_000
_N_SIZES = 100


def unseen_thresholds(draws: Sequence[LogitsAndTruth]) -> Matrix:
    """Find how likely unseen labels must be for each of `PRECISIONS`, infinity for nobody knows.

    A threshold holds when the lower bound (95 %, over labels) of the share of true labels above it
    reaches the precision; few labels are helped out by what recalibrated probabilities expect.

    On five splits of each of six corpora this gave 0.14 to 0.33 for 0.2 (in 23 of the 30; none in
    the others) and 0.46 and 0.57 for 0.5 (in 7), where probabilities taken at their word gave 0.12
    to 0.28 and 0.29 to 0.52; `polyseme reproduce precision` has the table.

    Parameters
    ----------
    draws : sequence of (float64 array, bool array), shapes (n, n_labels)
        Logits of labels that were made unseen, and whether they are true.

    Returns
    -------
    float64 array, shape (99,)
        Probabilities, which rise with the precision.
    """
    thresholds = np.full(len(PRECISIONS), np.inf)
    # An entry is one label of one item. All have a logit, a truth of 0 or 1 and a label number.
    all_logits = [draw_logits.ravel() for draw_logits, _ in draws]
    all_truth = [draw_truth.ravel() for _, draw_truth in draws]
    shapes = [draw_logits.shape for draw_logits, _ in draws]
    logits = np.concatenate(all_logits)
    truth = np.concatenate(all_truth).astype(np.float64)
    label_numbers = _label_numbers(shapes)

    # Only the likeliest are read, from the likeliest on.
    candidates = np.arange(len(logits))
    if len(logits) > _MOST_READ:
        first_read = len(logits) - _MOST_READ
        partitioned = np.partition(logits, first_read)
        least_logit = partitioned[first_read]
        candidates = np.flatnonzero(logits >= least_logit)
    falling = np.argsort(-logits[candidates], kind="stable")
    order = candidates[falling[:_MOST_READ]]
    is_finite = np.isfinite(logits[order])
    order = order[is_finite]
    n_read = len(order)
    logits = logits[order]
    truth = truth[order]
    label_numbers = label_numbers[order]
    if n_read < _FEWEST_GIVEN or not truth.any():
        return thresholds

    # If the first `size` entries are given, hits[size - 1] of them are true, and the recalibrated
    # probabilities expect a share of expected[size - 1].
    sizes = np.arange(1, n_read + 1)
    hits = np.cumsum(truth)
    expected_hits = np.cumsum(_recalibrated(logits, truth))
    expected = expected_hits / sizes
    tried_sizes = np.geomspace(_FEWEST_GIVEN, n_read, _N_SIZES).astype(np.int64)
    # Labels that are equally likely are given together or not at all: `ends` are last of equals.
    is_last_of_equals = np.append(np.diff(logits) < 0, True)
    last_of_equals = np.flatnonzero(is_last_of_equals)
    places = np.searchsorted(last_of_equals, tried_sizes - 1)
    ends = np.unique(last_of_equals[places])
    for end in ends:
        size = end + 1
        given_labels = label_numbers[:size]
        given_truth = truth[:size]
        # precision = (hits + e * expected) / (size + e), with e = _EXPECTED_COUNT
        expected_part = _EXPECTED_COUNT * expected[end]
        denominator = size + _EXPECTED_COUNT
        precision = (hits[end] + expected_part) / denominator
        # Labels, not entries, vary independently, so its standard error sums deviations by label:
        # sqrt(Σ over labels (Σ over its entries (truth - precision))²) / (size + e)
        deviations = np.bincount(given_labels, weights=given_truth - precision)
        squared_deviations = np.square(deviations)
        deviation = np.sqrt(squared_deviations.sum())
        bound = precision - _STANDARD_ERRORS * deviation / denominator
        # How many labels share the entries, in effect: the inverse Simpson index.
        label_counts = np.bincount(given_labels)
        squared_counts = np.square(label_counts)
        n_labels = size**2 / squared_counts.sum()
        if n_labels < _FEWEST_SHARING:
            continue
        expected_wrong = size * (1 - PRECISIONS)
        is_reached = (bound >= PRECISIONS) & (expected_wrong >= _FEWEST_WRONG)
        # Later ends give more labels: the lowest threshold that holds stays.
        thresholds[is_reached] = sigmoid(logits[end])
    # What is promised for a precision must hold for lower ones too.
    falling_precisions = thresholds[::-1]
    lowest_so_far = np.minimum.accumulate(falling_precisions)
    return lowest_so_far[::-1]


def _label_numbers(shapes: Sequence[tuple[int, ...]]) -> IntArray:
    """Return a number for the label of each entry of several tables, row by row.

    A label of two tables has two numbers. `shapes` are (n_items, n_labels) of each table.
    """
    n_before = 0
    numbers = []
    for n_items, n_labels in shapes:
        columns = n_before + np.arange(n_labels)
        numbers.append(np.tile(columns, n_items))
        n_before += n_labels
    return np.concatenate(numbers)


def _recalibrated(logits: Matrix, truth: Matrix) -> Matrix:
    """Return probabilities by one slope and one intercept for all labels (Platt), (n,).

    `truth` (n,) is 1 for true entries and else 0; one at least is 1.
    """
    from sklearn.linear_model import LogisticRegression

    if truth.all():
        return np.asarray(truth)  # a regression needs both
    column = logits[:, None]
    model = LogisticRegression(C=1e3).fit(column, truth)
    probabilities = model.predict_proba(column)
    return np.asarray(probabilities[:, 1])
