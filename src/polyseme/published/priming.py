"""Step 5: rank labels around a point, seen, unseen and oov alike.

In: points in concept space and an index over the known concepts of every label. Out: scores per
label, larger is better, and rankings.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from polyseme._validation import check_number, check_option
from polyseme.index import ConceptIndex
from polyseme.tags import rank_blocks, rank_labels

# Scores that are worked on at a time; a few tables of them exist beside each other.


def relatedness(distances: ArrayLike, *, floor: float) -> NDArray[np.float64]:
    """Turn distances into scores that sum to one (in the paper: equation 9).

    Parameters
    ----------
    distances : array, shape (n, n_labels)
        Distance of each point to each label; infinity for a label without a concept.
    floor : float
        Smallest distance told apart; shorter ones count as this one.

    Returns
    -------
    float64 array, shape (n, n_labels)
        Inverse distances divided by their row sum; 0 for a label without a concept.
    """
    inverse = 1.0 / np.maximum(np.asarray(distances, dtype=np.float64), floor)
    totals = inverse.sum(axis=1, keepdims=True)
    # Where the total is 0, so is everything it is made of.
    return np.asarray(np.divide(inverse, totals, out=inverse, where=totals > 0))


class PrimingRanker:
    """Score every label around points in concept space.

    Parameters
    ----------
    index : ConceptIndex
        The known concepts.
    distance_scale : float
        Distance of unrelated concepts (in the paper: β); sets the guards.
    score : {"nearest", "density"}
        "nearest": the inverse distance to the label's nearest concept, equation (9). "density":
        a Gaussian kernel density over all of the label's concepts.
    bandwidth : float, optional
        Standard deviation of the density's kernel; default 0.15 times `distance_scale`.
    """

    def __init__(
        self,
        index: ConceptIndex,
        distance_scale: float,
        score: str = "nearest",
        bandwidth: float | None = None,
    ) -> None:
        check_option("score", score, ("nearest", "density"), owner=type(self).__name__)
        self.index = index
        self.distance_scale = distance_scale
        self.score = score
        self.bandwidth = 0.15 * distance_scale if bandwidth is None else bandwidth

    def scores(self, points: ArrayLike) -> NDArray[np.float64]:
        """Score every label around each point.

        Parameters
        ----------
        points : array, shape (n, n_components)

        Returns
        -------
        float64 array, shape (n, n_labels)
            Larger is better; rows sum to one (or are all 0 when no label has a concept).
        """
        if self.score == "nearest":
            return relatedness(self.index.distances(points), floor=1e-8 * self.distance_scale)
        logs = self.index.log_densities(points, self.bandwidth)
        top = logs.max(axis=1, keepdims=True, initial=-np.inf)
        weights = np.exp(logs - np.where(np.isfinite(top), top, 0.0))
        totals = weights.sum(axis=1, keepdims=True)
        return np.asarray(np.divide(weights, totals, out=weights, where=totals > 0))

    def rank(self, points: ArrayLike, k: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Give the k best labels around each point; see `rank_labels`."""
        check_number("k", k, owner="rank", low=1, whole=True)
        asked = np.asarray(points)
        shape = (len(asked), min(k, self.index.n_labels))
        label_ids, scores = np.empty(shape, dtype=np.int64), np.empty(shape)
        for rows in rank_blocks(len(asked), self.index.n_labels):
            ranked = rank_labels(self.scores(asked[rows]), self.index.n_occurrences, k)
            label_ids[rows], scores[rows] = ranked
        return label_ids, scores

    def rank_others(
        self, point: ArrayLike, given: NDArray[np.int64], k: int
    ) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Give the k best labels around a point besides some that are given.

        Parameters
        ----------
        point : array, shape (1, n_components)
        given : int64 array, shape (n_given,)
            Labels to leave out.
        k : int
            How many labels; all others if there are fewer.

        Returns
        -------
        label_ids : int64 array, shape (k,)
        scores : float64 array, shape (k,)
            Over all labels but the given ones; the full list sums to one.
        """
        scores = self.scores(point)[0]
        others = np.setdiff1d(np.arange(len(scores)), given)
        total = scores[others].sum()
        shares = scores[others] / total if total > 0 else scores[others]
        places, best = rank_labels(shares[None, :], self.index.n_occurrences[others], k)
        return others[places[0]], best[0]
