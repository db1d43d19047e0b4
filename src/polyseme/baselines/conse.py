"""ConSE: an instance lies where its likeliest seen labels lie in a space of word vectors.

In: features, documents and word vectors. Out: the cosine of every label's vector with a convex
combination of the vectors of the best predicted seen labels.
"""

from __future__ import annotations

import numpy as np

from polyseme._validation import RandomState, check_number, draw_seed
from polyseme.baselines.base import Features, Mask, Matrix, best_candidate, out_of_fold
from polyseme.baselines.words import WordBaseline, unit_rows, zero_shot_quality
from polyseme.published.mapping import InstanceMapper
from polyseme.word_vectors import WordVectors

CANDIDATES = (1, 3, 5, 10, 20)
# Folds of instances, and groups of labels that take turns as pseudo-unseen ones.
N_FOLDS = 4


class ConSE(WordBaseline):
    """Convex combination of semantic embeddings, tuned.

    Seen labels are predicted by kernel ridge regression; negative predictions count as 0.

    Parameters
    ----------
    vectors : WordVectors, optional
        By default `WordVectors.find()`.
    n_top : int, optional
        How many of an instance's best seen labels are combined. None: the best of 1, 3, 5, 10 and
        20 on seen labels made pseudo-unseen.
    random_state : int, numpy Generator or None

    Attributes
    ----------
    n_top_ : int
        The number used. `WordBaseline` lists further attributes.

    Notes
    -----
    An instance whose predictions are all 0 or less gets the seen labels' shares instead.

    References
    ----------
    M. Norouzi and others: Zero-Shot Learning by Convex Combination of Semantic Embeddings,
    ICLR 2014.
    """

    def __init__(
        self,
        vectors: WordVectors | None = None,
        n_top: int | None = None,
        random_state: RandomState = None,
    ) -> None:
        self.vectors = vectors
        self.n_top = n_top
        self.random_state = random_state

    def _check(self) -> None:
        """Raise unless the parameters are in their ranges."""
        if self.n_top is not None:
            check_number("n_top", self.n_top, owner="ConSE", low=1, whole=True)

    def _fit_mapper(self, X: Features, truth: Mask, generator: np.random.Generator) -> None:
        """Fit the label classifiers and choose how many labels are combined."""
        targets = truth.astype(np.float64)
        self.shares_ = targets.mean(axis=0)
        self.mapper_ = InstanceMapper(kind="kernel-ridge", random_state=draw_seed(generator))
        self.mapper_.fit(X, targets, self.groups_)
        if self.n_top is not None:
            self.n_top_ = int(self.n_top)
            return
        folds = self._folds(N_FOLDS, generator, len(truth))
        predicted = out_of_fold(self.mapper_, X, targets, folds)
        vectors = self.label_vectors_[self.direct_]

        def qualities(hidden: Mask) -> list[float]:
            kept = predicted[:, ~hidden], vectors[~hidden], self.shares_[~hidden]
            points = [_combine_top(*kept, n_top) for n_top in CANDIDATES]
            return [zero_shot_quality(truth, point @ vectors.T, hidden) for point in points]

        self.n_top_ = best_candidate(CANDIDATES, qualities, truth.shape[1], N_FOLDS, generator)

    def _similarities(self, predicted: Matrix) -> Matrix:
        """Give the cosine of every label with the instance's combination."""
        vectors = self.label_vectors_[self.direct_]
        points = _combine_top(predicted, vectors, self.shares_, self.n_top_)
        return np.asarray(points @ self.label_vectors_.T)


def _combine_top(predicted: Matrix, vectors: Matrix, shares: Matrix, n_top: int) -> Matrix:
    """Add up the vectors (n_labels, d) of each row's `n_top` best labels, at length 1, (n, d)."""
    weights = np.maximum(predicted, 0.0)
    # An instance without any prediction above 0 gets the labels' shares.
    weights[~weights.any(axis=1)] = shares
    if n_top < weights.shape[1]:
        # Equals are told apart by column, so that exactly `n_top` remain.
        order = np.argsort(-weights, axis=1, kind="stable")
        np.put_along_axis(weights, order[:, n_top:], 0.0, axis=1)
    return unit_rows(weights @ vectors)
