"""ConSE: an instance lies where its likeliest seen labels lie in a space of word vectors.

In: features, documents and word vectors. Out: the cosine of every label's vector with a convex
combination of the vectors of the best predicted seen labels.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from polyseme._validation import InputError, RandomState, as_generator, check_number, draw_seed
from polyseme.baselines.base import Features, hidden_groups
from polyseme.baselines.tuned_costa import out_of_fold
from polyseme.baselines.word_base import WordBaseline, zero_shot_quality
from polyseme.published.mapping import InstanceMapper
from polyseme.word_vectors import WordVectors


class ConSE(WordBaseline):
    """Convex combination of semantic embeddings, tuned.

    Seen labels are predicted by kernel ridge regression; negative predictions count as 0.

    Parameters
    ----------
    vectors : WordVectors, optional
        By default `WordVectors.find()`.
    n_top : int, optional
        How many of an instance's best seen labels are combined. None: chosen from `candidates`
        on seen labels made pseudo-unseen.
    candidates : sequence of int
        Candidates for `n_top`.
    n_folds : int
        Folds of instances for out-of-fold predictions, and groups of seen labels that take turns
        as pseudo-unseen ones when `n_top` is chosen.
    random_state : int, numpy Generator or None

    Attributes
    ----------
    n_top_ : int
        The number used.
    label_vectors_ : float64 array, shape (n_labels, d)
        Unit vectors; zeros for labels without one.
    known_ : bool array, shape (n_labels,)
        Whether a label has a vector.
    without_vector_ : tuple of str
        Labels none of whose words is known; they score minus infinity, below all others.
    direct_ : bool array, shape (n_labels,)
        The labels that are combined: those with a vector that instances carry.

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
        candidates: Sequence[int] = (1, 3, 5, 10, 20),
        n_folds: int = 4,
        random_state: RandomState = None,
    ) -> None:
        self.vectors = vectors
        self.n_top = n_top
        self.candidates = candidates
        self.n_folds = n_folds
        self.random_state = random_state

    def _learn(self, X: Features, matrix: sp.csr_matrix, lessons: sp.csr_matrix) -> None:
        """Fit the label classifiers and choose how many labels are combined."""
        self._check()
        self._look_up()
        generator = as_generator(self.random_state)
        truth, self.direct_ = self._usable(matrix)
        self.shares_ = truth.mean(axis=0)
        self.classifier_ = InstanceMapper(kind="kernel-ridge", random_state=draw_seed(generator))
        self.classifier_.fit(X, truth, self.groups_)
        if self.n_top is not None:
            self.n_top_ = int(self.n_top)
            return
        folds = self._folds(self.n_folds, generator, len(truth))
        predicted = out_of_fold(self.classifier_, X, truth, folds)
        self.n_top_ = self._choose(predicted, truth.astype(bool), generator)

    def _scores(self, X: Features) -> NDArray[np.float64]:
        """Give the cosine of every label with the instance's combination."""
        points = combine_top(
            self.classifier_.predict(X),
            self.label_vectors_[self.direct_],
            self.n_top_,
            self.shares_,
        )
        return self._put_unknown_last(points @ self.label_vectors_.T)

    def _choose(
        self,
        predicted: NDArray[np.float64],
        truth: NDArray[np.bool_],
        generator: np.random.Generator,
    ) -> int:
        """Choose the number that ranks labels best when some are made pseudo-unseen."""
        vectors = self.label_vectors_[self.direct_]
        quality = np.zeros(len(self.candidates))
        for hidden in hidden_groups(truth.shape[1], self.n_folds, generator):
            for place, n_top in enumerate(self.candidates):
                kept = predicted[:, ~hidden]
                points = combine_top(kept, vectors[~hidden], n_top, self.shares_[~hidden])
                quality[place] += zero_shot_quality(truth, points @ vectors.T, hidden)
        return int(self.candidates[int(np.argmax(quality))])

    def _check(self) -> None:
        """Raise unless the parameters are in their ranges."""
        if self.n_top is not None:
            check_number("n_top", self.n_top, owner="ConSE", low=1, whole=True)
        if not len(self.candidates):
            raise InputError("`candidates` of `ConSE` must hold at least one number; got none.")
        for candidate in self.candidates:
            check_number("candidates", candidate, owner="ConSE", low=1, whole=True)
        check_number("n_folds", self.n_folds, owner="ConSE", low=2, whole=True)


def combine_top(
    predicted: NDArray[np.float64],
    vectors: NDArray[np.float64],
    n_top: int,
    shares: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Combine the vectors of each instance's best labels, weighted by their predictions.

    Parameters
    ----------
    predicted : float64 array, shape (n, n_labels)
        What is below 0 counts as 0.
    vectors : float64 array, shape (n_labels, d)
    n_top : int
        Labels to combine; all of them if there are fewer.
    shares : float64 array, shape (n_labels,)
        Weights for an instance all of whose predictions are 0 or less.

    Returns
    -------
    float64 array, shape (n, d)
        Of length 1; zeros where the combination is the zero vector.
    """
    weights = np.maximum(predicted, 0.0)
    weights[~weights.any(axis=1)] = shares
    if n_top < weights.shape[1]:
        # Equals are told apart by column, so that exactly `n_top` remain.
        order = np.argsort(-weights, axis=1, kind="stable")
        np.put_along_axis(weights, order[:, n_top:], 0.0, axis=1)
    points = weights @ vectors
    lengths = np.linalg.norm(points, axis=1, keepdims=True)
    return np.asarray(np.divide(points, lengths, out=np.zeros_like(points), where=lengths > 0))
