"""By how much names count: logistic regression on held-out items, with labels made unseen.

In: logits of held-out items, how like each item the name of each label is, and what is true. Out:
a slope and an offset of the likeness. One weight a kind of label is enough: slopes that depend on
how many items carry a label, or on how large the likeness is, brought nothing on Tate's titles and
on Annif's questions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from polyseme.space.calibration import sigmoid

Matrix = NDArray[np.float64]

# Newton's method.
_MAX_STEPS = 50
_MAX_HALVINGS = 30
_TOLERANCE = 1e-6
# Of held-out items only every second, third … is learned from where there are more numbers.
_MOST_ENTRIES = 4_000_000
# The variances of the Gaussian priors of slope and offset, which keep them finite where names alone
# tell everything. Slopes were 0.3 to 0.9 on Tate's titles and Annif's questions.
_PRIOR_VARIANCES = (1.0, 100.0)


class NameDraw(NamedTuple):
    """Some labels of the held-out items of one draw, (n, n_labels) each."""

    logits: Matrix
    likeness: Matrix
    truth: NDArray[np.bool_]


def fit_name_weight(draws: Sequence[NameDraw]) -> tuple[float, float]:
    """Fit the slope and the offset of the likeness of names.

    Both are 0 where the slope is not positive. The offset is how much names move it: what logits
    alone would ask for is subtracted, because it corrects the small models of the validation and
    no other.
    """
    n_entries = sum(draw.logits.size for draw in draws)
    if not n_entries:
        return 0.0, 0.0
    step = math.ceil(n_entries / _MOST_ENTRIES)
    taken_rows = slice(None, None, step)
    logits = np.concatenate([draw.logits[taken_rows].ravel() for draw in draws])
    likeness = np.concatenate([draw.likeness[taken_rows].ravel() for draw in draws])
    truth = np.concatenate([draw.truth[taken_rows].ravel() for draw in draws]).astype(np.float64)
    constant = np.ones_like(likeness)
    inputs = np.stack([likeness, constant], axis=1)
    slope, offset = _logistic(logits, inputs, truth)
    (plain_offset,) = _logistic(logits, constant[:, None], truth)
    if not slope > 0:
        return 0.0, 0.0
    return float(slope), float(offset - plain_offset)


def _logistic(logits: Matrix, inputs: Matrix, truth: Matrix) -> Matrix:
    """Return the coefficients of sigmoid(logits + inputs @ coefficients), (n_inputs,).

    The last input is constant. By Newton's method; steps that raise the loss are halved.
    """
    n_inputs = inputs.shape[1]
    variances = _PRIOR_VARIANCES[-n_inputs:]
    precision = np.diag(1 / np.array(variances))

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
