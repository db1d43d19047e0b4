"""Fast0Tag: a direction in a space of word vectors along which an instance's labels come first.

In: features, documents and word vectors. Out: the product of every label's vector with the
direction that kernel ridge regression predicts for the instance.
"""

from __future__ import annotations

import warnings

import numpy as np

from polyseme._validation import (
    InputError,
    IntArray,
    PolysemeWarning,
    RandomState,
    check_number,
    draw_seed,
)
from polyseme.baselines.base import Features, Mask, Matrix, best_candidate, out_of_fold
from polyseme.baselines.directions import ranking_directions
from polyseme.baselines.words import WordBaseline, zero_shot_quality
from polyseme.published.mapping import InstanceMapper
from polyseme.word_vectors import WordVectors

PENALTIES = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0)
# Folds of instances, and groups of labels that take turns as pseudo-unseen ones.
N_FOLDS = 4
SEARCH_SIZE = 1000
# Accepted errors of directions relative to their length; the search need not be as exact.
TOLERANCE, SEARCH_TOLERANCE = 0.01, 0.1


class Fast0Tag(WordBaseline):
    """Principal directions of documents, predicted from features, tuned.

    For each training instance a ranking support vector machine finds the direction in the space of
    word vectors along which its labels lie ahead of the other seen labels; kernel ridge regression
    leads from features to directions.

    Parameters
    ----------
    vectors : WordVectors, optional
        By default `WordVectors.find()`.
    penalty : float, optional
        Weight of the direction's squared length in the ranking machine; see `ranking_directions`.
        None: the best of seven from 0.001 to 1 on seen labels made pseudo-unseen, on at most 1,000
        instances.
    max_iter : int
        Steps of the solver at most.
    random_state : int, numpy Generator or None

    Attributes
    ----------
    penalty_ : float
        The value used.
    n_iter_ : int
        Steps that the solver took for the final directions.
    converged_ : bool
        Whether all of them are within 1 % of their length; a warning says so if not.
        `WordBaseline` lists further attributes.

    Notes
    -----
    Instances without a label that has a vector, or with all of them, have no direction and teach
    nothing.

    References
    ----------
    Y. Zhang, B. Gong, M. Shah: Fast Zero-Shot Image Tagging, CVPR 2016; its linear form, with a
    kernel in place of the linear map.
    """

    def __init__(
        self,
        vectors: WordVectors | None = None,
        penalty: float | None = None,
        max_iter: int = 2000,
        random_state: RandomState = None,
    ) -> None:
        self.vectors = vectors
        self.penalty = penalty
        self.max_iter = max_iter
        self.random_state = random_state

    def _check(self) -> None:
        """Raise unless the parameters are in their ranges."""
        if self.penalty is not None:
            check_number("penalty", self.penalty, owner="Fast0Tag", low=0, above=True)
        check_number("max_iter", self.max_iter, owner="Fast0Tag", low=1, whole=True)

    def _fit_mapper(self, X: Features, truth: Mask, generator: np.random.Generator) -> None:
        """Choose the penalty, find the directions, fit the way from features to them."""
        usable = np.flatnonzero(truth.any(axis=1) & ~truth.all(axis=1))
        if not len(usable):
            raise InputError(
                "No instance given to `Fast0Tag` carries some of the seen labels with a word "
                "vector but not all of them, so there is nothing to rank; give other documents."
            )
        self.mapper_ = InstanceMapper(kind="kernel-ridge", random_state=draw_seed(generator))
        self.penalty_ = self.penalty or self._choose(X, truth, usable, generator)
        vectors = self.label_vectors_[self.direct_]
        directions, converged, self.n_iter_ = ranking_directions(
            vectors, truth[usable], self.penalty_, TOLERANCE, self.max_iter
        )
        self.converged_ = bool(converged.all())
        if not self.converged_:
            warnings.warn(
                f"{int((~converged).sum())} directions of `Fast0Tag` are not within "
                f"{TOLERANCE:.0%} of their length after {self.max_iter} steps; raise `max_iter`.",
                PolysemeWarning,
                stacklevel=4,
            )
        self.mapper_.fit(X[usable], directions, self._groups_of(usable))

    def _choose(
        self, X: Features, truth: Mask, usable: IntArray, generator: np.random.Generator
    ) -> float:
        """Choose the penalty that ranks labels best when some are made pseudo-unseen."""
        folds = self._folds(N_FOLDS, generator, len(truth))
        rows = generator.permutation(usable)[:SEARCH_SIZE]
        vectors = self.label_vectors_[self.direct_]

        def qualities(hidden: Mask) -> list[float]:
            left = truth[rows][:, ~hidden]
            part = rows[left.any(axis=1) & ~left.all(axis=1)]
            if not len(part):
                return [0.0] * len(PENALTIES)
            paths = self._paths(vectors[~hidden], truth[part][:, ~hidden])
            mapper = InstanceMapper(kind="kernel-ridge", random_state=draw_seed(generator))
            mapper.fit(X[part], paths[:, 0], self._groups_of(part))
            flat = paths.reshape(len(part), -1)
            _, numbers = np.unique(folds[part], return_inverse=True)
            predicted = out_of_fold(mapper, X[part], flat, numbers).reshape(paths.shape)
            scores = (predicted[:, place] @ vectors.T for place in range(len(PENALTIES)))
            return [zero_shot_quality(truth[part], one, hidden) for one in scores]

        return best_candidate(PENALTIES, qualities, truth.shape[1], N_FOLDS, generator)

    def _paths(self, vectors: Matrix, truth: Mask) -> Matrix:
        """Find the directions for every candidate, (n, n_candidates, d), each starting nearby."""
        paths = np.empty((len(truth), len(PENALTIES), vectors.shape[1]))
        start = None
        for place in np.argsort(PENALTIES)[::-1]:
            start, _, _ = ranking_directions(
                vectors, truth, PENALTIES[place], SEARCH_TOLERANCE, self.max_iter, start
            )
            paths[:, place] = start
        return paths
