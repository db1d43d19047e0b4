"""By how much names count: logistic regression on held-out items, with labels made unseen.

In: logits of held-out items, how like each item the name of each label is, and what is true. Out:
slopes and an offset of the likeness. One weight a kind of label is enough: slopes that depend on
how many items carry a label, or on how large the likeness is, brought nothing on Tate's titles and
on Annif's questions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from polyseme.scoring.name_evidence import KindWeights, NameEvidence, NameWeights
from polyseme.space.calibration import sigmoid

if TYPE_CHECKING:
    from polyseme.fitting.holdout_validation import DrawScores

Matrix = NDArray[np.float64]

# Newton's method.
_MAX_STEPS = 50
_MAX_HALVINGS = 30
_TOLERANCE = 1e-6
# Of held-out items only every second, third … is learned from where there are more numbers.
_MOST_ENTRIES = 4_000_000
# The variances of the Gaussian priors of slope and offset, which keep them finite where names alone
# tell everything. Slopes were 0.3 to 0.9 on Tate's titles and Annif's questions.
_SLOPE_VARIANCE = 1.0
_OFFSET_VARIANCE = 100.0


class NameDraw(NamedTuple):
    """Some labels of the held-out items of one draw."""

    logits: Matrix  # (n, n_labels)
    likeness: Matrix  # of each view, (n_views, n, n_labels)
    truth: NDArray[np.bool_]  # (n, n_labels)


def fit_name_weights(draws: Sequence[NameDraw]) -> KindWeights:
    """Fit the slopes and the offset of the likeness of names, for labels of one kind.

    A view whose slope would not be positive is left out; without any, all are 0. The offset is how
    much names move it: what logits alone would ask for is subtracted, because it corrects the small
    models of the validation and no other.
    """
    n_views = len(draws[0].likeness)
    n_entries = sum(draw.logits.size for draw in draws)
    if not n_entries:
        return KindWeights((0.0,) * n_views)
    step = math.ceil(n_entries / _MOST_ENTRIES)
    taken_rows = slice(None, None, step)
    logits = np.concatenate([draw.logits[taken_rows].ravel() for draw in draws])
    truth = np.concatenate([draw.truth[taken_rows].ravel() for draw in draws]).astype(np.float64)
    constant = np.ones((len(logits), 1))
    likeness = np.empty((len(logits), n_views))
    for view in range(n_views):
        view_likeness = [draw.likeness[view, taken_rows].ravel() for draw in draws]
        likeness[:, view] = np.concatenate(view_likeness)

    slopes = np.zeros(n_views)
    views = np.arange(n_views)
    offset = 0.0
    while len(views):
        inputs = np.hstack([likeness[:, views], constant])
        *view_slopes, offset = _logistic(logits, inputs, truth)
        is_positive = np.array(view_slopes) > 0
        if is_positive.all():
            slopes[views] = view_slopes
            break
        views = views[is_positive]
    if not len(views):
        return KindWeights((0.0,) * n_views)
    (plain_offset,) = _logistic(logits, constant, truth)
    return KindWeights(tuple(slopes.tolist()), float(offset - plain_offset))


def learn_name_weights(
    names: NameEvidence,
    draws: Sequence[DrawScores],
    likeness_draws: Sequence[Matrix],
    mean_quality: Callable[[NDArray[np.bool_], Matrix], float],
) -> tuple[NameWeights, tuple[float, float]]:
    """Learn by how much names count, for seen labels and for those that were made unseen.

    Labels whose names have no vector teach nothing, for nothing is added to them.

    Parameters
    ----------
    names : NameEvidence
    draws : sequence of DrawScores
        What held-out items scored, by draw.
    likeness_draws : sequence of float64 array, shapes (n_views, n, n_labels)
        How like these items the labels' names are.
    mean_quality : callable
        Returns the quality of logits, given what is true.

    Returns
    -------
    weights : NameWeights
        0 for the kind of labels that names do not help.
    gains : tuple of float, length 2
        What they bring on seen and on unseen labels, the mean of E-MAP and C-MAP.
    """
    weights: list[KindWeights] = []
    gains: list[float] = []
    for is_unseen in (False, True):
        pieces = []
        for draw, likeness in zip(draws, likeness_draws, strict=True):
            columns = (draw.is_unseen == is_unseen) & names.have_vectors(draw.labels)
            piece = NameDraw(
                draw.logits[:, columns], likeness[:, :, columns], draw.truth[:, columns]
            )
            pieces.append(piece)
        kind_weights = fit_name_weights(pieces)
        draw_gains = []
        for draw, likeness in zip(draws, likeness_draws, strict=True):
            logits, truth = draw.of_kind(is_unseen=is_unseen)
            if not truth.any():
                continue
            both_kinds = NameWeights(kind_weights, kind_weights)
            named_draw = draw.with_names(names, likeness, both_kinds)
            named_logits, _ = named_draw.of_kind(is_unseen=is_unseen)
            quality_before = mean_quality(truth, logits)
            quality_after = mean_quality(truth, named_logits)
            draw_gains.append(quality_after - quality_before)
        gain = float(np.mean(draw_gains)) if draw_gains else 0.0
        if not gain > 0:
            kind_weights = KindWeights((0.0,) * len(kind_weights.slopes))
            gain = 0.0
        weights.append(kind_weights)
        gains.append(gain)
    seen_weights, other_weights = weights
    return NameWeights(seen_weights, other_weights), (gains[0], gains[1])


def _logistic(logits: Matrix, inputs: Matrix, truth: Matrix) -> Matrix:
    """Return the coefficients of sigmoid(logits + inputs @ coefficients), (n_inputs,).

    The last input is constant. By Newton's method; steps that raise the loss are halved.
    """
    n_inputs = inputs.shape[1]
    variances = np.full(n_inputs, _SLOPE_VARIANCE)
    variances[-1] = _OFFSET_VARIANCE
    precision = np.diag(1 / variances)

    def loss_of(coefficients: Matrix) -> float:
        sums = logits + inputs @ coefficients
        losses = np.logaddexp(0, sums) - truth * sums
        penalty = 0.5 * coefficients @ precision @ coefficients
        return float(losses.sum() + penalty)

    coefficients = np.zeros(n_inputs)
    loss = loss_of(coefficients)
    for _ in range(_MAX_STEPS):
        probabilities = sigmoid(logits + inputs @ coefficients)
        gradient = inputs.T @ (truth - probabilities) - precision @ coefficients
        weights = probabilities * (1 - probabilities)
        curvature = inputs.T @ (inputs * weights[:, None]) + precision
        step = np.linalg.solve(curvature, gradient)
        for _ in range(_MAX_HALVINGS):
            new_loss = loss_of(coefficients + step)
            if new_loss <= loss:
                break
            step = step / 2
        else:
            break  # no step lowers the loss
        coefficients = coefficients + step
        loss = new_loss
        if np.abs(step).max() < _TOLERANCE:
            break
    return coefficients
