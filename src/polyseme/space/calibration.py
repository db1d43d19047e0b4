"""From logits to calibrated probabilities, and to thresholds for a wanted precision.

In: logits of items that a model has not seen. Out: one intercept a label, so that labels are
expected as often as they should be, and how likely labels must be for a precision.

Terms: the *truth* is 1 where an item carries a label, else 0. An *item weight* says for how many
items one stands. The *frequency* of a label is the share of items that should have it, between 0
and 1. *Seen* labels are carried by training items and come first; *unseen* ones occur in documents
alone. Tables are (n_items, n_labels); all arrays are only read, and new ones returned.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float64]
Floats = NDArray[np.float32]
IntArray = NDArray[np.int64]

# Fixed by saved models: `Calibration.thresholds` has one threshold for each of these.
PRECISIONS = np.arange(1, 100) / 100
# An intercept moves a logit by this much at most; labels of one or two documents have a long way.
_MOST_SHIFT = 20.0
# Newton's method ends with a step shorter than this: the next would be as long as its square.
_SHORT_STEP = 1e-6
# It ends, too, where the bounds of an intercept are as close as this, or after so many steps.
_CLOSE_BOUNDS = 1e-11
_MOST_STEPS = 100
# So many logits at a time stay in the processor's cache.
_LOGITS_TOGETHER = 2**17
# Probabilities are told apart down to here.
_LEAST_PROBABILITY = 1e-6
# The typical frequency of labels counts like so many documents, beside those that were counted.
_PRIOR_DOCUMENTS = 400.0


class Calibration(NamedTuple):
    """How raw logits become calibrated ones, and thresholds for each of `PRECISIONS`.

    calibrated logit = slope * raw logit + intercept. Labels are in the order of the members.
    """

    slopes: Matrix  # factors of raw logits, (n_labels,)
    intercepts: Matrix  # added after that, (n_labels,)
    thresholds: Matrix  # for seen labels, (99,); empty where no item could be held out

    def __repr__(self) -> str:
        """Return its size, in a line."""
        return f"Calibration({len(self.slopes)} labels, {len(self.thresholds)} thresholds)"


class HeldOutSample(NamedTuple):
    """Training items as members that had not seen them encode them; empty where there are none.

    Model files hold the fields by these names.
    """

    codes: Floats  # by the members of the item's fold, (n_items, members_per_fold * code)
    folds: IntArray  # that these members have not seen, (n_items,)
    weights: Matrix  # for how many items each stands, (n_items,)

    def __repr__(self) -> str:
        """Return its size, in a line."""
        return f"HeldOutSample({len(self.codes)} items)"


class ReferenceSample(NamedTuple):
    """Items that stand for all: a correction leaves its label as frequent on these.

    Model files hold the fields by these names.
    """

    codes: Floats  # (n_items, n_dimensions)
    projections: Floats  # of features, see `ConceptSpace.project`; (n_items, projection_size)
    weights: Matrix  # for how many items each stands, (n_items,)


def logit(probabilities: Matrix) -> Matrix:
    """Return the logits of probabilities, which are kept a millionth away from 0 and 1."""
    above_zero = np.maximum(probabilities, _LEAST_PROBABILITY)
    highest = 1 - _LEAST_PROBABILITY
    safe = np.minimum(above_zero, highest)
    # logit(p) = log(p) - log(1 - p)
    log_probabilities = np.log(safe)
    negative = -safe
    log_complements = np.log1p(negative)
    logits = log_probabilities - log_complements
    return np.asarray(logits)


def sigmoid(logits: Matrix) -> Matrix:
    """Return the probabilities of logits."""
    from scipy.special import expit

    return np.asarray(expit(logits))


def log_odds(frequencies: Matrix) -> Matrix:
    """Return the logits of frequencies, which are above 0 and below 1."""
    log_frequencies = np.log(frequencies)
    negative = -frequencies
    log_complements = np.log1p(negative)
    logits = log_frequencies - log_complements
    return np.asarray(logits)


def calibrate(logits: Matrix, truth: Matrix, weights: Matrix, frequencies: Matrix) -> Calibration:
    """Learn intercepts and thresholds from items that were held out; slopes are 1.

    Parameters
    ----------
    logits : float64 array, shape (n_items, n_labels)
        Seen labels come first.
    truth : float64 array, shape (n_items, n_seen)
        Which of the seen labels items carry, 1 or 0.
    weights : float64 array, shape (n_items,)
    frequencies : float64 array, shape (n_labels,)
        How often labels are expected on items.
    """
    n_labels = logits.shape[1]
    n_seen = truth.shape[1]
    intercepts = match_frequencies(logits, weights, frequencies)
    calibrated_logits = logits + intercepts
    probabilities = sigmoid(calibrated_logits)
    seen_probabilities = probabilities[:, :n_seen]
    thresholds = precision_thresholds(seen_probabilities, truth, weights)
    slopes = np.ones(n_labels)
    return Calibration(slopes, intercepts, thresholds)


def match_frequencies(logits: Matrix, weights: Matrix, frequencies: Matrix) -> Matrix:
    """Compute intercepts that bring mean probabilities to frequencies.

    Parameters
    ----------
    logits : float32 or float64 array, shape (n_items, n_labels)
    weights : float64 array, shape (n_items,)
    frequencies : float64 array, shape (n_labels,)
        Above 0 and below 1.

    Returns
    -------
    float64 array, shape (n_labels,)
        At most 20 either way.
    """
    total_weight = weights.sum()
    item_shares = weights / total_weight
    n_items, n_labels = logits.shape
    intercepts = np.empty(n_labels)
    n_together = _LOGITS_TOGETHER // max(n_items, 1)
    n_together = max(n_together, 1)
    for start in range(0, n_labels, n_together):
        stop = start + n_together
        columns = slice(start, stop)
        block = logits[:, columns]
        intercepts[columns] = _solve_intercepts(
            logits_by_label=np.ascontiguousarray(block.T, dtype=np.float64),
            item_shares=item_shares,
            frequencies=frequencies[columns],
        )
    return intercepts


def _solve_intercepts(logits_by_label: Matrix, item_shares: Matrix, frequencies: Matrix) -> Matrix:
    """Compute the intercepts (n_labels,) of a few labels.

    Newton's method on the logit of the mean probability, which is nearly a straight line, between
    bounds that close in: a step that leads outside them, or is not half as long as the one before,
    goes to the middle instead.

    Parameters
    ----------
    logits_by_label : float64 array, shape (n_labels, n_items)
    item_shares : float64 array, shape (n_items,)
        Item weights that sum to 1.
    frequencies : float64 array, shape (n_labels,)
    """
    n_labels = len(logits_by_label)
    low = np.full(n_labels, -_MOST_SHIFT)
    high = np.full(n_labels, _MOST_SHIFT)
    intercepts = np.zeros(n_labels)
    widest = 2 * _MOST_SHIFT
    last_lengths = np.full(n_labels, widest)
    active = np.arange(n_labels)  # labels whose intercepts have not converged
    for _ in range(_MOST_STEPS):
        current = intercepts[active]
        targets = frequencies[active]
        shifted_logits = logits_by_label[active] + current[:, None]
        probabilities = sigmoid(shifted_logits)
        means = probabilities @ item_shares
        # The derivative of the mean: mean(p) - mean(p²).
        squares = np.square(probabilities, out=probabilities)
        mean_squares = squares @ item_shares
        slopes = means - mean_squares
        is_below = means < targets
        active_low = np.where(is_below, current, low[active])
        active_high = np.where(is_below, high[active], current)
        low[active] = active_low
        high[active] = active_high

        # step = (logit(target) - logit(mean)) / (d logit(mean) / d intercept)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            ratios = targets / means
            complements = 1 - means
            complement_ratios = (1 - targets) / complements
            logit_gaps = np.log(ratios) - np.log(complement_ratios)
            steps = logit_gaps * means * complements / slopes
        proposed = current + steps
        updated = np.clip(proposed, -_MOST_SHIFT, _MOST_SHIFT)
        # NaN fails every comparison, so that a step that is no number goes to the middle, too.
        is_inside = (updated >= active_low) & (updated <= active_high)
        newton_lengths = np.abs(updated - current)
        is_halved = 2 * newton_lengths <= last_lengths[active]
        is_newton = is_inside & is_halved
        bound_sums = active_low + active_high
        middle = 0.5 * bound_sums
        updated = np.where(is_newton, updated, middle)

        step_lengths = np.abs(updated - current)
        last_lengths[active] = step_lengths
        intercepts[active] = updated
        is_short = step_lengths < _SHORT_STEP
        bound_gaps = active_high - active_low
        is_enclosed = bound_gaps < _CLOSE_BOUNDS
        converged = is_enclosed | (is_newton & is_short)
        active = active[~converged]
        if not len(active):
            break
    return intercepts


def precision_thresholds(probabilities: Matrix, truth: Matrix, weights: Matrix) -> Matrix:
    """Compute for each of `PRECISIONS` the smallest threshold that reaches it.

    Parameters
    ----------
    probabilities, truth : float64 arrays, shape (n_items, n_labels)
        Of items that were held out.
    weights : float64 array, shape (n_items,)

    Returns
    -------
    float64 array, shape (99,)
        1 where no threshold reaches the precision.
    """
    # From here on every pair of an item and a label counts for itself.
    n_labels = probabilities.shape[1]
    scores = probabilities.ravel()
    is_true = truth.ravel()
    pair_weights = np.repeat(weights, n_labels)
    # Among more pairs than this, fewer are true than even the lowest precision asks for.
    true_weight = pair_weights @ is_true
    lightest = weights.min(initial=1.0)
    least_weight = PRECISIONS[0] * lightest
    most_pairs = int(true_weight / least_weight) + 1
    n_pairs = len(scores)
    if most_pairs < n_pairs:
        cut = n_pairs - most_pairs
        partitioned = np.partition(scores, cut)
        is_candidate = scores >= partitioned[cut]
        chosen = np.flatnonzero(is_candidate)
        scores = scores[chosen]
        is_true = is_true[chosen]
        pair_weights = pair_weights[chosen]

    order = np.argsort(-scores, kind="stable")
    falling_scores = scores[order]
    pair_weights = pair_weights[order]
    is_true = is_true[order]
    true_weights = pair_weights * is_true
    weight_of_true = np.cumsum(true_weights)
    weight_of_all = np.cumsum(pair_weights)
    divisors = np.maximum(weight_of_all, 1e-12)
    precisions = weight_of_true / divisors
    # Labels that are equally likely are suggested together or not at all.
    differences = np.diff(falling_scores)
    is_last_of_equals = np.append(differences < 0, True)
    n_scores = len(falling_scores)
    is_last_of_equals = is_last_of_equals[:n_scores]  # without any pair, there is no last one
    precisions = precisions[is_last_of_equals]
    falling_scores = falling_scores[is_last_of_equals]
    thresholds = []
    for goal in PRECISIONS:
        is_reached = precisions >= goal
        sufficient_scores = falling_scores[is_reached]
        threshold = np.min(sufficient_scores, initial=1.0)
        thresholds.append(threshold)
    return np.array(thresholds)


def expected_frequencies(
    priors: Matrix, on_items: Matrix, n_items: int, elsewhere: float
) -> Matrix:
    """Return how often items are expected to have each label, (n_labels,), above 0 and below 1.

    As often as documents, where items' documents are among the label sets. Where they are not,
    label sets use labels otherwise, and training items count.

    Parameters
    ----------
    priors : float64 array, shape (n_labels,)
        The share of documents that hold each label.
    on_items : float64 array, shape (n_labels,)
        The share of training items that have each label or, where it is unseen, are expected to.
    n_items : int
        How many training items there are.
    elsewhere : float
        The share of items whose documents are not among the label sets.
    """
    # Items' frequencies, smoothed as though half an item more had labels as documents have them.
    item_counts = n_items * on_items
    prior_counts = 0.5 * priors
    smoothed_counts = item_counts + prior_counts
    smoothed = smoothed_counts / (n_items + 0.5)
    from_documents = (1 - elsewhere) * priors
    from_items = elsewhere * smoothed
    mixed = from_documents + from_items
    lowest = _LEAST_PROBABILITY
    highest = 1 - lowest
    bounded = np.clip(mixed, lowest, highest)
    return np.asarray(bounded)


def new_label_frequencies(counts: Matrix, holding: int, added: int, typical: float) -> Matrix:
    """Return how often items are expected to have labels that came after training, (n_new,).

    Documents that were there before a label turned up could not hold it, so their silence says
    nothing about how common it is; nor do documents that were added because they hold it. Until
    some hundred others have been counted, new labels are taken to be as common as labels
    typically are.

    Parameters
    ----------
    counts : array, shape (n_new,)
        How many documents hold each new label.
    holding : int
        How many documents hold any of them.
    added : int
        How many documents were added since training.
    typical : float
        The frequency of a typical label.
    """
    n_candidates = max(added, holding)
    prior_count = _PRIOR_DOCUMENTS * typical
    n_counted = n_candidates + _PRIOR_DOCUMENTS
    smoothed_counts = counts + prior_count
    counted_frequencies = smoothed_counts / n_counted
    # The more documents came that hold no new label, the more the count says.
    share_holding = holding / max(n_candidates, 1)
    share_counted = 1 - share_holding
    share_typical = 1 - share_counted
    typical_part = share_typical * typical
    counted_part = share_counted * counted_frequencies
    frequencies = counted_part + typical_part
    return np.asarray(frequencies)


def pool_targets(logits: Floats, priors: Matrix, hard: float, most: int = 2048) -> Floats:
    """Return targets of untagged items, (n_items, n_labels): each label as often as documents.

    Logits are shifted so that every label is expected as often as its prior says; of the target a
    share is hard: 1 for as many of the likeliest items as should have the label, 0 for the others.
    A label that half an item or less should have is left wholly soft: zeros for all would take that
    share away from it, and 1 for one item would be twice its due or more.

    Parameters
    ----------
    logits : float32 array, shape (n_items, n_labels)
    priors : float64 array, shape (n_labels,)
        How often documents hold each label.
    hard : float
        The share of a target that is 0 or 1.
    most : int
        On about so many items frequencies are matched.
    """
    n_items, n_labels = logits.shape
    spacing = max(n_items // most, 1)
    sample = logits[::spacing].astype(np.float64)
    sample_weights = np.ones(len(sample))
    shifts = match_frequencies(sample, sample_weights, priors)
    expected_counts = np.round(priors * n_items)
    counts = np.minimum(expected_counts.astype(np.int64), n_items)
    targets = np.empty_like(logits)
    # A few labels at a time: orders and float64 of a whole table would be several times its size.
    for start in range(0, n_labels, 64):
        columns = slice(start, start + 64)
        block = np.asfortranarray(logits[:, columns])
        block_counts = counts[columns]
        shifted_logits = block + shifts[columns]
        probabilities = np.asarray(sigmoid(shifted_logits), dtype=np.float32)
        for column in np.flatnonzero(block_counts):
            falling = np.argsort(-block[:, column], kind="stable")
            likeliest = falling[: block_counts[column]]
            is_likely = np.zeros(n_items, dtype=np.float32)
            is_likely[likeliest] = 1
            # target = (1 - hard) * probability + hard * [among the likeliest]
            changes = is_likely - probabilities[:, column]
            probabilities[:, column] += hard * changes
        targets[:, columns] = probabilities
    return targets


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
