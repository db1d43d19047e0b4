"""Ranking support vector machines over the labels of many documents at once (part of Fast0Tag).

In: vectors of labels and which document holds which. Out: for each document the direction along
which its labels lie ahead of all others.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

FloatMatrix = NDArray[np.float64]
BoolMatrix = NDArray[np.bool_]


class Directions(NamedTuple):
    """What `ranking_directions` found.

    Attributes
    ----------
    directions : float64 array, shape (n, d)
    converged : bool array, shape (n,)
        Whether the error of a direction is within the tolerance.
    n_iter : int
        Steps taken.
    """

    directions: FloatMatrix
    converged: NDArray[np.bool_]
    n_iter: int


def ranking_directions(
    vectors: FloatMatrix,
    truth: BoolMatrix,
    penalty: float,
    *,
    tolerance: float = 0.01,
    max_iter: int = 2000,
    start: FloatMatrix | None = None,
) -> Directions:
    """Find for each document the direction along which its labels come first.

    A document with labels P among all labels has the direction w that minimises

        penalty / 2 ||w||^2 + 1 / (2 |P| |N|) sum over p in P, n in N of max(0, 1 - w.(v_p - v_n))^2

    where N are the labels that it lacks.

    Parameters
    ----------
    vectors : float64 array, shape (n_labels, d)
    truth : bool array, shape (n, n_labels)
        Each row with some labels, but not all.
    penalty : float
        Above 0.
    tolerance : float
        Accepted error of a direction, relative to its length.
    max_iter : int
        Steps at most.
    start : float64 array, shape (n, d), optional
        Where to begin; zeros by default.

    Returns
    -------
    Directions

    Notes
    -----
    Accelerated gradient steps, restarted for each document on its own when they point uphill. The
    objective is strongly convex: a direction is at most ``||gradient|| / penalty`` away from the
    best one, which bounds its error. Documents with the same labels are solved once.
    """
    sets, first, copies = np.unique(truth, axis=0, return_index=True, return_inverse=True)
    copies = copies.ravel()
    # Rows sorted by their number of labels let the gradient work on slices.
    order = np.argsort(-sets.sum(axis=1), kind="stable")
    problem = RankingProblem(vectors, sets[order], penalty)
    begin = np.zeros((len(sets), vectors.shape[1])) if start is None else start[first][order]
    found, converged, n_iter = _accelerate(problem, begin, tolerance, max_iter)
    back = np.empty(len(order), dtype=np.int64)
    back[order] = np.arange(len(order))
    return Directions(found[back][copies], converged[back][copies], n_iter)


class RankingProblem:
    """The objectives of `ranking_directions` for several documents.

    Parameters
    ----------
    vectors : float64 array, shape (n_labels, d)
    truth : bool array, shape (n, n_labels)
        Rows with more labels first.
    penalty : float
    """

    def __init__(self, vectors: FloatMatrix, truth: BoolMatrix, penalty: float) -> None:
        self.vectors = vectors
        self.truth = truth
        self.penalty = penalty
        self.sizes = truth.sum(axis=1)
        self.scale = 1.0 / (self.sizes * (truth.shape[1] - self.sizes))
        # The label of each rank within its document; documents of fewer labels are cut off.
        self.ranked = np.argsort(~truth, axis=1, kind="stable")[:, : int(self.sizes.max())]
        self.counts = [int((self.sizes > k).sum()) for k in range(self.ranked.shape[1])]

    def keep(self, rows: NDArray[np.bool_]) -> RankingProblem:
        """Give the problem of some of the documents."""
        return RankingProblem(self.vectors, self.truth[rows], self.penalty)

    def objective(self, directions: FloatMatrix) -> NDArray[np.float64]:
        """Give each document's objective, (n,)."""
        scores = directions @ self.vectors.T
        gaps = 1.0 - scores[:, :, None] + scores[:, None, :]
        pairs = self.truth[:, :, None] & ~self.truth[:, None, :]
        losses = np.where(pairs, np.maximum(gaps, 0.0) ** 2, 0.0).sum(axis=(1, 2))
        lengths = (directions**2).sum(axis=1)
        return np.asarray(0.5 * self.penalty * lengths + 0.5 * self.scale * losses)

    def gradient(self, directions: FloatMatrix) -> FloatMatrix:
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

    def curvature(self) -> NDArray[np.float64]:
        """Bound the largest curvature of each document's objective, (n,).

        With every pair active it is the sum of the spreads of both sides and of the squared
        distance of their means; the spread of the labels that a document lacks is at most that of
        all labels, times n_labels / |N|.
        """
        n_labels = self.truth.shape[1]
        lacking = n_labels - self.sizes
        mean = self.truth @ self.vectors / self.sizes[:, None]
        other = (~self.truth) @ self.vectors / lacking[:, None]
        squares = (self.vectors**2).sum(axis=1)
        spread = self.truth @ squares / self.sizes - (mean**2).sum(axis=1)
        centred = self.vectors - self.vectors.mean(axis=0)
        widest = np.linalg.norm(centred, ord=2) ** 2
        apart = ((mean - other) ** 2).sum(axis=1)
        return np.asarray(np.maximum(spread, 0.0) + widest / lacking + apart + self.penalty)


def _accelerate(
    problem: RankingProblem, begin: FloatMatrix, tolerance: float, max_iter: int
) -> tuple[FloatMatrix, NDArray[np.bool_], int]:
    """Take accelerated steps until every direction is good enough."""
    found, done = begin.copy(), np.zeros(len(begin), dtype=bool)
    left = np.arange(len(begin))
    here = ahead = begin
    age = np.ones(len(begin))
    steps = 1.0 / problem.curvature()
    n_iter = 0
    while True:
        slope = problem.gradient(ahead)
        bound = tolerance * problem.penalty * np.linalg.norm(ahead, axis=1)
        good = np.linalg.norm(slope, axis=1) <= bound
        found[left], done[left] = ahead, good
        if good.all() or n_iter == max_iter:
            return found, done, n_iter
        # Those that are done leave; doing so in batches saves most of the copying.
        if good.mean() > 0.2:
            kept = ~good
            problem, left = problem.keep(kept), left[kept]
            here, ahead, slope = here[kept], ahead[kept], slope[kept]
            age, steps = age[kept], steps[kept]
        there = ahead - steps[:, None] * slope
        uphill = ((there - here) * slope).sum(axis=1) > 0
        age[uphill] = 1.0
        older = 0.5 * (1.0 + np.sqrt(1.0 + 4.0 * age**2))
        ahead = there + ((age - 1.0) / older)[:, None] * (there - here)
        here, age = there, older
        n_iter += 1
