"""What the baselines on word vectors share: label vectors, a mapping to them, a tuning measure.

In: word vectors and training instances. Out: scores of labels by their vectors; a baseline fills in
`_fit_mapper` and, where the score is no inner product, `_similarities`.
"""

from __future__ import annotations

import warnings
from abc import abstractmethod

import numpy as np
import scipy.sparse as sp

from polyseme._validation import InputError, PolysemeWarning, RandomState, as_generator, first_few
from polyseme.baselines.base import Baseline, Features, Mask, Matrix, counts_of
from polyseme.metrics import concept_map, example_map
from polyseme.published.mapping import InstanceMapper
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
    direct_ : bool array, shape (n_labels,)
        The labels that are learned from: those with a vector that instances carry.
    mapper_ : InstanceMapper
        Kernel ridge regression from features.
    """

    vectors: WordVectors | None
    random_state: RandomState
    mapper_: InstanceMapper

    def _fit(self, X: Features, Y: sp.csr_matrix, Z: sp.csr_matrix) -> None:
        """Give every label its vector, warn about those that have none, fit the mapper."""
        self._check()
        owner = type(self).__name__
        labels = self.classes_.tolist()
        words = WordVectors.find(labels=labels) if self.vectors is None else self.vectors
        if not isinstance(words, WordVectors):
            raise InputError(
                f"`vectors` of `{owner}` must be WordVectors or None; got {type(words).__name__}."
            )
        self.label_vectors_, self.known_ = words.label_vectors(labels)
        self.without_vector_ = tuple(self.classes_[~self.known_].tolist())
        if not self.known_.any():
            raise InputError(
                f"None of the {len(labels)} labels given to `{owner}` has a word vector in "
                f"{words.source}; pass `vectors` that know words of: {first_few(labels)}."
            )
        if self.without_vector_:
            warnings.warn(
                f"{len(self.without_vector_)} of {len(labels)} labels have no word vector "
                f"and `{owner}` puts them last: {first_few(self.without_vector_)}.",
                PolysemeWarning,
                stacklevel=3,
            )
        self.direct_ = (counts_of(Y) > 0) & self.known_
        if not self.direct_.any():
            raise InputError(
                f"None of the labels on instances given to `{owner}` has a word vector; pass "
                "`vectors` that know their words."
            )
        truth = np.asarray(Y[:, np.flatnonzero(self.direct_)].toarray(), dtype=bool)
        self._fit_mapper(X, truth, as_generator(self.random_state))

    def _scores(self, X: Features) -> Matrix:
        """Score labels by their vectors; those without one come last."""
        scores = self._similarities(self.mapper_.predict(X))
        scores[:, ~self.known_] = -np.inf
        return scores

    @abstractmethod
    def _check(self) -> None:
        """Raise unless the parameters are in their ranges."""

    @abstractmethod
    def _fit_mapper(self, X: Features, truth: Mask, generator: np.random.Generator) -> None:
        """Fit the mapper from features to targets made of the labels in `truth` (n, n_direct)."""

    def _similarities(self, predicted: Matrix) -> Matrix:
        """Score all labels, (n, n_labels), by what the mapper predicts, (n, d)."""
        return np.asarray(predicted @ self.label_vectors_.T)


def unit_rows(points: Matrix) -> Matrix:
    """Scale each row to length 1; a row of length 0 (to rounding) becomes zeros."""
    lengths = np.linalg.norm(points, axis=1, keepdims=True)
    return np.asarray(np.divide(points, lengths, out=np.zeros_like(points), where=lengths > 1e-12))


def zero_shot_quality(truth: Mask, scores: Matrix, hidden: Mask) -> float:
    """Measure a ranking (n, n_labels) of all labels, some of them hidden, as the experiments do.

    The mean of example MAP and concept MAP on the instances that carry a hidden label, or 0.
    """
    rows = truth[:, hidden].any(axis=1)
    if not rows.any():
        return 0.0
    return 0.5 * (example_map(truth[rows], scores[rows]) + concept_map(truth[rows], scores[rows]))
