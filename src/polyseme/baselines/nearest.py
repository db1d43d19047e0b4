"""Labels of the nearest training instances: the baseline that needs no training.

In: features and labels of instances, and label sets. Out: scores of the labels that the nearest
instances carry, and of other labels by what the label sets say goes with those.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import scipy.sparse as sp
from sklearn.neighbors import NearestNeighbors

from polyseme._validation import RandomState, as_generator, check_number
from polyseme.baselines.base import Baseline, Features, Matrix, counts_of
from polyseme.metrics import example_map
from polyseme.published.kernels import Rows, column_statistics, scale_rows

CANDIDATES = (5, 10, 20, 40, 80)

_N_FOLDS = 3


class NearestInstances(Baseline):
    """Score labels by the nearest training instances.

    Parameters
    ----------
    n_neighbours : int, optional
        How many instances _vote. None: the best of 5, 10, 20, 40 and 80 by E-MAP over the labels
        that instances carry, in a cross-validation with three folds.
    random_state : int, numpy Generator or None
        Draws the folds.

    Attributes
    ----------
    n_neighbours_ : int
        The number used.

    Notes
    -----
    Features are standardised, distances Euclidean, and a _vote weighs as one over the distance. The
    score of a label that instances carry is its share of the votes. The score of a label z that no
    instance carries is the mean of P(z | t) over the labels t that instances carry, weighted by
    their scores; P(z | t) is the share of t's label sets that hold z. A label that neither an
    instance nor a label set holds scores 0, the lowest score.
    """

    def __init__(self, n_neighbours: int | None = None, random_state: RandomState = None) -> None:
        self.n_neighbours = n_neighbours
        self.random_state = random_state

    def _fit(self, X: Features, Y: sp.csr_matrix, Z: sp.csr_matrix) -> None:
        """Keep the instances, count labels, choose the number of neighbours."""
        if self.n_neighbours is not None:
            owner = type(self).__name__
            check_number("n_neighbours", self.n_neighbours, owner=owner, low=1, whole=True)
        self._mean, self._scale = column_statistics(X, "standard")
        self._rows = scale_rows(X, "standard", self._mean, self._scale, np.float64)
        self._labels = Y.astype(np.float64)
        self._carried = counts_of(Y) > 0
        sets = Z.astype(np.float64)
        together = (sets[:, self._carried].T @ sets[:, ~self._carried]).toarray()
        self._shares = together / np.maximum(counts_of(Z)[self._carried], 1.0)[:, None]
        self.n_neighbours_ = int(self.n_neighbours or self._choose())

    def _scores(self, X: Features) -> Matrix:
        """Let the neighbours _vote, and pass the votes on to the labels they do not carry."""
        queries = scale_rows(X, "standard", self._mean, self._scale, np.float64)
        (scores,) = _vote(queries, self._rows, self._labels, [self.n_neighbours_])
        votes = scores[:, self._carried]
        totals = votes.sum(axis=1, keepdims=True)
        scores[:, ~self._carried] = (votes / np.where(totals > 0, totals, 1.0)) @ self._shares
        return scores

    def _choose(self) -> int:
        """Compare numbers of neighbours on held-out instances with labels."""
        folds = self._folds(_N_FOLDS, as_generator(self.random_state), self._rows.shape[0])
        labelled = np.diff(self._labels.indptr) > 0
        quality = np.zeros(len(CANDIDATES))
        for fold in range(int(folds.max()) + 1) if folds.any() else ():
            out, others = np.flatnonzero((folds == fold) & labelled), folds != fold
            if not len(out):
                continue
            truth = self._labels[out][:, self._carried].toarray() > 0
            tried = _vote(self._rows[out], self._rows[others], self._labels[others], CANDIDATES)
            quality += [len(out) * example_map(truth, s[:, self._carried]) for s in tried]
        return CANDIDATES[int(np.argmax(quality))]


def _vote(queries: Rows, rows: Rows, labels: sp.csr_matrix, sizes: Sequence[int]) -> list[Matrix]:
    """Give each label's share (m, n_labels) of the votes of so many nearest rows, by size."""
    most = min(max(sizes), rows.shape[0])
    distances, near = NearestNeighbors(n_neighbors=most).fit(rows).kneighbors(queries)
    # A row at no distance outweighs all others, but by a finite weight.
    weights = 1.0 / np.maximum(distances, np.maximum(1e-6 * distances[:, -1:], 1e-12))
    shares = []
    for size in sizes:
        weight = weights[:, :size] / weights[:, :size].sum(axis=1, keepdims=True)
        starts = np.arange(len(near) + 1) * weight.shape[1]
        votes = sp.csr_matrix(
            (weight.ravel(), near[:, :size].ravel(), starts), shape=(len(near), rows.shape[0])
        )
        shares.append((votes @ labels).toarray())
    return shares
