"""What the baselines on word vectors share: label vectors and a measure for tuning.

In: a baseline's word vectors and training instances. Out: one vector per label, which labels have
none, and how well labels are ranked when some are hidden.
"""

from __future__ import annotations

import warnings

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from polyseme._validation import InputError, IntArray, PolysemeWarning, first_few
from polyseme.baselines.base import Baseline
from polyseme.metrics import concept_map, example_map
from polyseme.word_vectors import WordVectors


class WordBaseline(Baseline):
    """A ranker of labels by their word vectors.

    Attributes
    ----------
    label_vectors_ : float64 array, shape (n_labels, d)
        Unit vectors; zeros for labels without one.
    known_ : bool array, shape (n_labels,)
        Whether a label has a vector.
    without_vector_ : tuple of str
        Labels none of whose words is known; they score minus infinity, below all others.
    """

    vectors: WordVectors | None

    def _look_up(self) -> None:
        """Give every label its vector, and warn about those that have none."""
        owner = type(self).__name__
        words = WordVectors.find(labels=self.classes_) if self.vectors is None else self.vectors
        if not isinstance(words, WordVectors):
            raise InputError(
                f"`vectors` of `{owner}` must be WordVectors or None; got {type(words).__name__}."
            )
        self.label_vectors_, self.known_ = words.label_vectors(self.classes_)
        self.without_vector_ = tuple(
            label for label, known in zip(self.classes_, self.known_, strict=True) if not known
        )
        if not self.known_.any():
            raise InputError(
                f"None of the {len(self.classes_)} labels given to `{owner}` has a word vector in "
                f"{words.source}; pass `vectors` that know words of: {first_few(self.classes_)}."
            )
        if self.without_vector_:
            warnings.warn(
                f"{len(self.without_vector_)} of {len(self.classes_)} labels have no word vector "
                f"and `{owner}` puts them last: {first_few(self.without_vector_)}.",
                PolysemeWarning,
                stacklevel=4,
            )

    def _usable(self, matrix: sp.csr_matrix) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """Give the instances' labels that have a vector, (n, n_used), and mark them, (n_labels,).

        Raises when no instance carries such a label.
        """
        carried = np.asarray(matrix.sum(axis=0)).ravel() > 0
        used = carried & self.known_
        if not used.any():
            raise InputError(
                f"None of the labels on instances given to `{type(self).__name__}` has a word "
                "vector; pass `vectors` that know their words."
            )
        return np.asarray(matrix[:, np.flatnonzero(used)].toarray(), dtype=np.float64), used

    def _groups_of(self, rows: NDArray[np.bool_] | IntArray) -> IntArray | None:
        """Give the groups of some of the instances, where there are groups."""
        return None if self.groups_ is None else self.groups_[rows]

    def _put_unknown_last(self, scores: NDArray[np.float64]) -> NDArray[np.float64]:
        """Give labels without a vector the lowest score of all."""
        scores[:, ~self.known_] = -np.inf
        return scores


def zero_shot_quality(
    truth: NDArray[np.bool_], scores: NDArray[np.float64], hidden: NDArray[np.bool_]
) -> float:
    """Measure a ranking of all labels, some of them hidden, as the experiments do.

    Parameters
    ----------
    truth : bool array, shape (n, n_labels)
    scores : float64 array, shape (n, n_labels)
    hidden : bool array, shape (n_labels,)

    Returns
    -------
    float
        The mean of example MAP and concept MAP over all labels, on the instances that carry a
        hidden one; 0 where there is no such instance.
    """
    rows = truth[:, hidden].any(axis=1)
    if not rows.any():
        return 0.0
    return 0.5 * (example_map(truth[rows], scores[rows]) + concept_map(truth[rows], scores[rows]))
