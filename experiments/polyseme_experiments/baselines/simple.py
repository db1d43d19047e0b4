"""What needs little or no training: chance, the most frequent labels, the nearest instances.

In: features and labels of instances, and label sets. Out: scores of labels.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import ClassVar

import numpy as np
import scipy.sparse as sp
from sklearn.neighbors import NearestNeighbors

from polyseme.base.folds import fold_numbers
from polyseme.base.validation import RandomState, as_generator, draw_seed
from polyseme.metrics import example_map
from polyseme.published.kernels import Rows, column_statistics, scale_rows
from polyseme_experiments.baselines.base import Baseline, Features, Matrix, counts_of
from polyseme_experiments.baselines.tuning import NEIGHBOUR_COUNTS

_N_FOLDS = 3  # of instances, to choose the number of neighbours


class Popularity(Baseline):
    """Rank labels by the number of documents that hold them, whatever the instance."""

    def _fit(self, X: Features, Y: sp.csr_matrix, Z: sp.csr_matrix) -> None:
        """Compute each label's share of the occurrences."""
        total = int(self.n_occurrences_.sum())
        self.shares_ = self.n_occurrences_ / max(total, 1)

    def _scores(self, X: Features) -> Matrix:
        """Return the same scores for every instance."""
        return np.tile(self.shares_, (X.shape[0], 1))


class Chance(Baseline):
    """Score labels at random.

    An instance's scores depend on the seed and its own features only, not on which other instances
    are asked about; instances with the same features get the same scores.

    Parameters
    ----------
    random_state : int, numpy Generator or None

    Attributes
    ----------
    seed_ : int
        What the scores are drawn from, together with the features.
    """

    def __init__(self, random_state: RandomState = None) -> None:
        self.random_state = random_state

    def _fit(self, X: Features, Y: sp.csr_matrix, Z: sp.csr_matrix) -> None:
        """Draw the seed."""
        self.seed_ = draw_seed(as_generator(self.random_state))

    def _scores(self, X: Features) -> Matrix:
        """Draw scores between 0 and 1 for each instance."""
        n_labels = len(self.classes_)
        scores = np.empty((X.shape[0], n_labels))
        for row in range(len(scores)):
            features = X[row].toarray() if sp.issparse(X) else X[row]
            # Adding 0 makes -0.0 and 0.0, which are equal, the same bytes.
            feature_bytes = np.ascontiguousarray(features + 0.0).tobytes()
            digest = blake2b(feature_bytes, digest_size=16).digest()
            digest_numbers = np.frombuffer(digest, dtype="<u4").tolist()
            generator = np.random.default_rng([self.seed_, *digest_numbers])
            scores[row] = generator.random(n_labels)
        return scores


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
    their scores; P(z | t) is the share of t's label sets that hold z. A label that neither an
    instance nor a label set holds scores 0, the lowest score.
    """

    ranges: ClassVar = {"n_neighbours": {"low": 1, "whole": True}}

    def __init__(self, n_neighbours: int | None = None, random_state: RandomState = None) -> None:
        self.n_neighbours = n_neighbours
        self.random_state = random_state

    def _fit(self, X: Features, Y: sp.csr_matrix, Z: sp.csr_matrix) -> None:
        """Store the instances, count labels, choose the number of neighbours."""
        self._mean, self._scale = column_statistics(X, "standard")
        self._rows = scale_rows(X, "standard", self._mean, self._scale, np.float64)
        self._labels = Y.astype(np.float64)
        self._seen = counts_of(Y) > 0
        label_sets = Z.astype(np.float64)
        seen_sets = label_sets[:, self._seen]
        unseen_sets = label_sets[:, ~self._seen]
        pair_counts = (seen_sets.T @ unseen_sets).toarray()
        seen_counts = counts_of(Z)[self._seen]
        # P(z | t) of unseen labels z given seen ones t, (n_seen, n_unseen).
        self._conditional = pair_counts / np.maximum(seen_counts, 1.0)[:, None]
        self.n_neighbours_ = int(self.n_neighbours or self._choose())

    def _scores(self, X: Features) -> Matrix:
        """Let the neighbours vote, and pass the votes on to the labels they do not carry."""
        queries = scale_rows(X, "standard", self._mean, self._scale, np.float64)
        (scores,) = _vote(queries, self._rows, self._labels, [self.n_neighbours_])
        votes = scores[:, self._seen]
        totals = votes.sum(axis=1, keepdims=True)
        divisors = np.where(totals > 0, totals, 1.0)
        vote_shares = votes / divisors
        scores[:, ~self._seen] = vote_shares @ self._conditional
        return scores

    def _choose(self) -> int:
        """Compare numbers of neighbours on held-out instances with labels."""
        generator = as_generator(self.random_state)
        n = self._rows.shape[0]
        folds = fold_numbers(n, _N_FOLDS, generator, self.groups_)
        if not folds.any():
            return NEIGHBOUR_COUNTS[0]
        labelled = np.diff(self._labels.indptr) > 0
        qualities = np.zeros(len(NEIGHBOUR_COUNTS))
        for fold in range(int(folds.max()) + 1):
            test = np.flatnonzero((folds == fold) & labelled)
            train = folds != fold
            if not len(test):
                continue
            truth = self._labels[test][:, self._seen].toarray() > 0
            test_rows = self._rows[test]
            train_rows = self._rows[train]
            train_labels = self._labels[train]
            votes = _vote(test_rows, train_rows, train_labels, NEIGHBOUR_COUNTS)
            for candidate, scores in enumerate(votes):
                quality = example_map(truth, scores[:, self._seen])
                # Folds differ in size: the sum is over instances.
                qualities[candidate] += len(test) * quality
        best = int(np.argmax(qualities))
        return NEIGHBOUR_COUNTS[best]


def _vote(
    queries: Rows, rows: Rows, labels: sp.csr_matrix, neighbour_counts: Sequence[int]
) -> list[Matrix]:
    """Return each label's share (n_queries, n_labels) of the nearest rows' votes.

    There is a matrix for each number of neighbours. `rows` are scaled as `queries` are, and
    `labels` are theirs, (n_rows, n_labels).
    """
    n_rows = rows.shape[0]
    most = min(max(neighbour_counts), n_rows)
    search = NearestNeighbors(n_neighbors=most).fit(rows)
    distances, neighbours = search.kneighbors(queries)
    n_queries = len(neighbours)
    # A row at no distance outweighs all others, but by a finite weight.
    least_distances = np.maximum(1e-6 * distances[:, -1:], 1e-12)
    weights = 1.0 / np.maximum(distances, least_distances)
    label_shares = []
    for n_neighbours in neighbour_counts:
        nearest_weights = weights[:, :n_neighbours]
        totals = nearest_weights.sum(axis=1, keepdims=True)
        vote_weights = nearest_weights / totals
        nearest = neighbours[:, :n_neighbours]
        n_nearest = nearest.shape[1]
        indptr = np.arange(n_queries + 1) * n_nearest
        entries = (vote_weights.ravel(), nearest.ravel(), indptr)
        votes = sp.csr_matrix(entries, shape=(n_queries, n_rows))
        shares = votes @ labels
        label_shares.append(shares.toarray())
    return label_shares
