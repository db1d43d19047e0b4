"""How high labels stand: from blended logits to probabilities that can be believed.

In: blended logits of training instances that the experts had not seen, and how often labels are
expected. Out: a shift for each label, and how likely labels must be for a wanted precision.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from polyseme._validation import IntArray
from polyseme.experts.blending import label_shifts, precision_thresholds, sigmoid

Matrix = NDArray[np.float64]
Readings = dict[str, Matrix]

PRECISIONS = np.arange(1, 100) / 100
# No label is expected more seldom than this.
_RAREST = 1e-6


class HeldOut(NamedTuple):
    """What experts say of training instances that they had not seen.

    Attributes
    ----------
    readings : dict of str to float64 array
    truth : float64 array, shape (n, n_seen)
    weights : float64 array, shape (n,)
    """

    readings: Readings
    truth: Matrix
    weights: Matrix


class Levels(NamedTuple):
    """What is learned of levels.

    Attributes
    ----------
    shifts : float64 array, shape (n_labels,)
        What is added to each label's logit.
    thresholds : float64 array, shape (99,)
        How likely seen labels must be for a precision of 1, 2, … 99 %.
    unseen_thresholds : float64 array, shape (99,)
        The same for unseen labels.
    """

    shifts: Matrix
    thresholds: Matrix
    unseen_thresholds: Matrix


def label_priors(counts: Matrix, n_documents: int, unseen: IntArray, n_semantics: int) -> Matrix:
    """Give how often documents hold each label.

    Parameters
    ----------
    counts : float64 array, shape (n_labels,)
        Documents that hold each.
    n_documents : int
    unseen : int64 array
        Labels that no instance carries: of them only semantics documents tell.
    n_semantics : int

    Returns
    -------
    float64 array, shape (n_labels,)
        Above 0 and below 1.
    """
    priors = (counts + 0.5) / (n_documents + 1)
    priors[unseen] = (counts[unseen] + 0.5) / (n_semantics + 1)
    return np.asarray(np.minimum(priors, 1 - 0.5 / (n_documents + 1)))


def expected_frequencies(priors: Matrix, targets: Matrix, weights: Matrix, fresh: float) -> Matrix:
    """Say how often instances are expected to have each label.

    As often as documents, where instances' own documents are among the semantics documents. Where
    they are not, documents may come from elsewhere and use labels otherwise: then as often as
    training instances have a label or, where it is unseen, are guessed to have it.

    Parameters
    ----------
    priors : float64 array, shape (n_labels,)
        How often documents hold each.
    targets : float64 array, shape (n, n_labels)
        Labels of training instances, true ones and guessed ones.
    weights : float64 array, shape (n,)
        What each instance counts.
    fresh : float
        Share of instances whose own document is not among the semantics documents.

    Returns
    -------
    float64 array, shape (n_labels,)
    """
    n = len(targets)
    here = (n * (weights / weights.sum()) @ targets + 0.5 * priors) / (n + 0.5)
    return np.asarray(np.clip((1 - fresh) * priors + fresh * here, _RAREST, 1 - _RAREST))


def learn_levels(
    logits: Matrix,
    truth: Matrix,
    columns: tuple[IntArray, IntArray],
    weights: Matrix,
    frequencies: Matrix | None,
) -> Levels:
    """Learn from held-out logits.

    Parameters
    ----------
    logits : float64 array, shape (n, n_labels)
        Of training instances, by experts that had not seen them.
    truth : float64 array, shape (n, n_seen)
        Their seen labels.
    columns : (int64 array, int64 array)
        Seen and unseen labels.
    weights : float64 array, shape (n,)
        What each instance counts.
    frequencies : float64 array, shape (n_labels,), optional
        What labels are brought to; without them nothing is shifted.

    Returns
    -------
    Levels
    """
    shifts = np.zeros(logits.shape[1])
    if frequencies is not None:
        shifts = label_shifts(logits, weights, frequencies)
    seen, unseen = (sigmoid(logits[:, some] + shifts[some]) for some in columns)
    return Levels(
        shifts,
        precision_thresholds(seen, truth, weights, PRECISIONS),
        # Nobody knows which unseen labels are true: their own probabilities must do, and where
        # there are no such labels, a label must be as likely as the precision is high.
        precision_thresholds(unseen, unseen, weights, PRECISIONS)
        if unseen.shape[1]
        else PRECISIONS.copy(),
    )
