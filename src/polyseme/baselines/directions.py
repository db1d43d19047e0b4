"""Ranking support vector machines over the labels of many documents at once (part of Fast0Tag).

In: vectors of labels and which document holds which. Out: for each document the direction along
which its labels lie ahead of all others.
"""

from __future__ import annotations

import numpy as np

from polyseme.baselines.base import Mask, Matrix


def ranking_directions(
    vectors: Matrix,
    truth: Mask,
    penalty: float,
    tolerance: float = 0.01,
    max_iter: int = 2000,
    start: Matrix | None = None,
) -> tuple[Matrix, Mask, int]:
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
    directions : float64 array, shape (n, d)
    converged : bool array, shape (n,)
        Whether the error of a direction is within the tolerance.
    n_iter : int
        Steps taken.

    Notes
    -----
    Accelerated gradient steps, restarted for each document on its own when they point uphill. The
    objective is strongly convex: a direction is at most ``||gradient|| / penalty`` away from the
    best one, which bounds its error. Documents with the same labels are solved once.
    """
    sets, first, copies = np.unique(truth, axis=0, return_index=True, return_inverse=True)
    # Rows sorted by their number of labels let the gradient work on slices.
    order = np.argsort(-sets.sum(axis=1), kind="stable")
    back = np.argsort(order)[copies.ravel()]
    problem = RankingProblem(vectors, sets[order], penalty)
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
            problem = RankingProblem(vectors, problem.truth[~good], penalty)
            left, here, ahead, slope, age, steps = (
                array[~good] for array in (left, here, ahead, slope, age, steps)
            )
        there = ahead - steps[:, None] * slope
        age[((there - here) * slope).sum(axis=1) > 0] = 1.0
        older = 0.5 * (1.0 + np.sqrt(1.0 + 4.0 * age**2))
        ahead = there + ((age - 1.0) / older)[:, None] * (there - here)
        here, age = there, older
        n_iter += 1


class RankingProblem:
    """The objectives of `ranking_directions` for several documents, (n, n_labels).

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
