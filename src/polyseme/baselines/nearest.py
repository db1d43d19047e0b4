"""Labels of the nearest training instances: the baseline that needs no training.

In: features and labels of instances, and label documents. Out: scores of the labels that the
nearest instances carry, and of other labels by what the documents say goes with those.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from polyseme._validation import IntArray, RandomState, as_generator, check_number
from polyseme.baselines.base import Baseline, Features
from polyseme.baselines.transfer import conditional_shares, cooccurrences
from polyseme.metrics import example_map
from polyseme.published.kernels import (
    Rows,
    column_statistics,
    row_blocks,
    scale_rows,
    squared_distances,
)

CANDIDATES = (5, 10, 20, 40, 80)

_N_FOLDS = 3
_BLOCK_BYTES = 2**26


class NearestInstances(Baseline):
    """Score labels by the nearest training instances.

    Parameters
    ----------
    n_neighbours : int, optional
        How many instances vote. None: the best of 5, 10, 20, 40 and 80 by E-MAP over the labels
        that instances carry, in a cross-validation with three folds.
    random_state : int, numpy Generator or None
        Draws the folds.

    Attributes
    ----------
    n_neighbours_ : int
        The number used.

    Notes
    -----
    Features are standardised, distances Euclidean, and a vote weighs as one over the distance. The
    score of a label that instances carry is its share of the votes. The score of a label z that no
    instance carries is the mean of P(z | t) over the labels t that instances carry, weighted by
    their scores; P(z | t) is the share of t's semantics documents that hold z. A label that
    neither an instance nor a semantics document holds scores 0, the lowest score.
    """

    def __init__(self, n_neighbours: int | None = None, random_state: RandomState = None) -> None:
        self.n_neighbours = n_neighbours
        self.random_state = random_state

    def _learn(self, X: Features, matrix: sp.csr_matrix, lessons: sp.csr_matrix) -> None:
        """Keep the instances, count labels, choose the number of neighbours."""
        if self.n_neighbours is not None:
            owner = type(self).__name__
            check_number("n_neighbours", self.n_neighbours, owner=owner, low=1, whole=True)
        self._mean, self._scale = column_statistics(X, "standard")
        self._rows = scale_rows(X, "standard", self._mean, self._scale, np.float64)
        self._votes = matrix.astype(np.float64)
        self._carried = np.asarray(matrix.sum(axis=0)).ravel() > 0
        counts = cooccurrences(lessons)
        self._shares = conditional_shares(counts, self._carried, ~self._carried)
        if self.n_neighbours is not None:
            self.n_neighbours_ = int(self.n_neighbours)
        else:
            self.n_neighbours_ = self._choose(as_generator(self.random_state))

    def _scores(self, X: Features) -> NDArray[np.float64]:
        """Let the neighbours vote, and pass the votes on to the labels they do not carry."""
        queries = scale_rows(X, "standard", self._mean, self._scale, np.float64)
        (scores,) = vote(queries, self._rows, self._votes, [self.n_neighbours_])
        votes = scores[:, self._carried]
        totals = votes.sum(axis=1, keepdims=True)
        scores[:, ~self._carried] = (votes / np.where(totals > 0, totals, 1.0)) @ self._shares
        return scores

    def _choose(self, generator: np.random.Generator) -> int:
        """Compare numbers of neighbours on held-out instances with labels."""
        folds = self._folds(_N_FOLDS, generator, self._rows.shape[0])
        labelled = np.diff(self._votes.indptr) > 0
        quality = np.zeros(len(CANDIDATES))
        for fold in range(int(folds.max()) + 1) if folds.any() else ():
            held, others = np.flatnonzero((folds == fold) & labelled), folds != fold
            if not len(held):
                continue
            known = self._votes[held][:, self._carried]
            truth = known.toarray() > 0
            found = vote(self._rows[held], self._rows[others], self._votes[others], CANDIDATES)
            for place, scores in enumerate(found):
                quality[place] += len(held) * example_map(truth, scores[:, self._carried])
        return CANDIDATES[int(np.argmax(quality))]


def vote(
    queries: Rows, rows: Rows, labels: sp.csr_matrix, sizes: Sequence[int]
) -> list[NDArray[np.float64]]:
    """Let the nearest rows vote for their labels.

    Parameters
    ----------
    queries : array or csr_matrix, shape (m, n_features)
    rows : array or csr_matrix, shape (n, n_features)
    labels : csr_matrix, shape (n, n_labels)
        The labels of the rows, 0 or 1.
    sizes : sequence of int
        Numbers of neighbours; all rows vote where there are fewer.

    Returns
    -------
    list of float64 arrays, shape (m, n_labels)
        For each number of neighbours, each label's share of the votes.
    """
    found = [np.empty((queries.shape[0], labels.shape[1])) for _ in sizes]
    for block, near, weights in _neighbours(queries, rows, max(sizes)):
        for scores, size in zip(found, sizes, strict=True):
            chosen, weight = near[:, :size], weights[:, :size]
            weight = weight / weight.sum(axis=1, keepdims=True)
            starts = np.arange(len(chosen) + 1) * chosen.shape[1]
            votes = sp.csr_matrix(
                (weight.ravel(), chosen.ravel(), starts), shape=(len(chosen), rows.shape[0])
            )
            scores[block] = (votes @ labels).toarray()
    return found


def _neighbours(
    queries: Rows, rows: Rows, most: int
) -> Iterator[tuple[slice, IntArray, NDArray[np.float64]]]:
    """Yield blocks of queries with their nearest rows, near to far, and one over the distances."""
    most = min(most, rows.shape[0])
    for block in row_blocks(queries.shape[0], 16 * rows.shape[0], _BLOCK_BYTES):
        part = queries[block]
        dense = part.toarray() if sp.issparse(part) else np.asarray(part)
        distances = np.sqrt(squared_distances(dense, rows))
        near = np.argpartition(distances, most - 1, axis=1)[:, :most]
        reach = np.take_along_axis(distances, near, axis=1)
        order = np.argsort(reach, axis=1, kind="stable")
        near, reach = np.take_along_axis(near, order, 1), np.take_along_axis(reach, order, 1)
        # A row at no distance outweighs all others, but by a finite weight.
        floor = np.maximum(1e-6 * reach[:, -1:], 1e-12)
        yield block, near.astype(np.int64), 1.0 / np.maximum(reach, floor)
