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
        Weight of the direction's squared length in the ranking machine; see the reference.
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
        directions, converged, self.n_iter_ = _ranking_directions(
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
            start, _, _ = _ranking_directions(
                vectors, truth, PENALTIES[place], SEARCH_TOLERANCE, self.max_iter, start
            )
            paths[:, place] = start
        return paths


# --------------------------------------------------------------------- ranking machines


def _ranking_directions(
    vectors: Matrix,
    truth: Mask,
    penalty: float,
    tolerance: float = 0.01,
    max_iter: int = 2000,
    start: Matrix | None = None,
) -> tuple[Matrix, Mask, int]:
    """Find the directions (n, d) of documents (n, n_labels), whether each is good, and the steps.

    A document with labels P, which lacks the labels N, has the direction w that minimises

        penalty / 2 ||w||^2 + 1 / (2 |P| |N|) sum over p in P, n in N of max(0, 1 - w.(v_p - v_n))^2

    by accelerated gradient steps, restarted for each document on its own when they point uphill.
    The objective is strongly convex: a direction is at most ``||gradient|| / penalty`` away from
    the best one, which bounds its error. Documents with the same labels are solved once.
    """
    sets, first, copies = np.unique(truth, axis=0, return_index=True, return_inverse=True)
    # Rows sorted by their number of labels let the gradient work on slices.
    order = np.argsort(-sets.sum(axis=1), kind="stable")
    back = np.argsort(order)[copies.ravel()]
    problem = _RankingProblem(vectors, sets[order], penalty)
    here = np.zeros((len(sets), vectors.shape[1])) if start is None else start[first][order]
    directions, done = here.copy(), np.zeros(len(here), dtype=bool)
    left, ahead, age = np.arange(len(here)), here, np.ones(len(here))
    steps = 1.0 / problem.curvature()
    n_iter = 0
    while True:
        slope = problem.gradient(ahead)
        bound = tolerance * problem.penalty * np.linalg.norm(ahead, axis=1)
        good = np.linalg.norm(slope, axis=1) <= bound
        directions[left], done[left] = ahead, good
        if good.all() or n_iter == max_iter:
            return directions[back], done[back], n_iter
        # Those that are done leave; doing so in batches saves most of the copying.
        if good.mean() > 0.2:
            problem = _RankingProblem(vectors, problem.truth[~good], penalty)
            left, here, ahead, slope, age, steps = (
                array[~good] for array in (left, here, ahead, slope, age, steps)
            )
        there = ahead - steps[:, None] * slope
        age[((there - here) * slope).sum(axis=1) > 0] = 1.0
        older = 0.5 * (1.0 + np.sqrt(1.0 + 4.0 * age**2))
        ahead = there + ((age - 1.0) / older)[:, None] * (there - here)
        here, age = there, older
        n_iter += 1


class _RankingProblem:
    """The objectives of `_ranking_directions` for several documents, (n, n_labels).

    Rows with more labels come first.
    """

    def __init__(self, vectors: Matrix, truth: Mask, penalty: float) -> None:
        self.vectors, self.truth, self.penalty = vectors, truth, penalty
        self.sizes = truth.sum(axis=1)
        self.scale = 1.0 / (self.sizes * (truth.shape[1] - self.sizes))
        # The label of each rank within its document; documents of fewer labels are cut off.
        self.ranked = np.argsort(~truth, axis=1, kind="stable")[:, : int(self.sizes.max())]
        self.counts = [int((self.sizes > k).sum()) for k in range(self.ranked.shape[1])]

    def gradient(self, directions: Matrix) -> Matrix:
        """Give each document's gradient, (n, d)."""
        scores = directions @ self.vectors.T
        # A label of the document itself is no rival: minus infinity leaves no gap.
        rivals = np.where(self.truth, -np.inf, scores)
        pull = np.zeros_like(scores)
        for rank, count in enumerate(self.counts):
            rows, own = np.arange(count), self.ranked[:count, rank]
            gaps = rivals[:count] + (1.0 - scores[rows, own])[:, None]
            np.maximum(gaps, 0.0, out=gaps)
            pull[:count] += gaps
            pull[rows, own] -= gaps.sum(axis=1)
        pull *= self.scale[:, None]
        return np.asarray(pull @ self.vectors + self.penalty * directions)

    def curvature(self) -> Matrix:
        """Bound the largest curvature of each document's objective, (n,).

        With every pair active it is the sum of the spreads of both sides and of the squared
        distance of their means; the spread of the labels that a document lacks is at most that of
        all labels, times n_labels / |N|.
        """
        lacking = self.truth.shape[1] - self.sizes
        mean = self.truth @ self.vectors / self.sizes[:, None]
        other = (~self.truth) @ self.vectors / lacking[:, None]
        squares = (self.vectors**2).sum(axis=1)
        spread = self.truth @ squares / self.sizes - (mean**2).sum(axis=1)
        widest = np.linalg.norm(self.vectors - self.vectors.mean(axis=0), ord=2) ** 2
        apart = ((mean - other) ** 2).sum(axis=1)
        return np.asarray(np.maximum(spread, 0.0) + widest / lacking + apart + self.penalty)
