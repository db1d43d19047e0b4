"""Simple rankers that a tagger is compared with on a person's own collection.

In: items and tag sets. Out: scores of labels, by ridge regression or by how frequent labels are.
"""

from __future__ import annotations

from typing import Protocol, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from polyseme.documents.corpus import LabelCorpus
from polyseme.space.linear_path import MOST_FEATURES, Ridge, prediction_spreads
from polyseme.space.training import Features, column_statistics, standardise

Matrix = NDArray[np.float64]

# Folds of items, on one of which the penalty is chosen.
_FOLDS = 4
# Items on which the spreads of predictions are measured.
_SAMPLE = 2048


class SimpleRanker(Protocol):
    """A ranker that needs no settings."""

    classes_: NDArray[np.object_]

    def fit(self, X: Features, y: LabelCorpus, label_sets: LabelCorpus) -> Self:
        """Learn from items and tag sets."""

    def decision_function(self, X: Features) -> Matrix:
        """Return scores, (n, n_classes)."""


class FrequencyRanker:
    """Rank labels by how many tag sets hold them, for every item alike."""

    def fit(self, X: Features, y: LabelCorpus, label_sets: LabelCorpus) -> Self:
        """Count the labels of tag sets."""
        self.classes_, _, documents = _tables(y, label_sets)
        self.counts_ = np.asarray(documents.sum(axis=0), dtype=np.float64).ravel()
        return self

    def decision_function(self, X: Features) -> Matrix:
        """Return scores, (n, n_classes)."""
        return np.tile(np.log1p(self.counts_), (X.shape[0], 1))


class RidgeRanker:
    """Rank seen labels by ridge regression, unseen ones by the seen labels they occur with.

    An unseen label gets the mean of the standardised predictions of seen labels, weighted by how
    often tag sets hold both, about its own share of the tag sets and with the spread that seen
    labels of such a share have.
    """

    def fit(self, X: Features, y: LabelCorpus, label_sets: LabelCorpus) -> Self:
        """Solve the regression in closed form and count which labels occur together."""
        self.classes_, truth, documents = _tables(y, label_sets)
        self.seen_ = np.asarray(truth.sum(axis=0)).ravel() > 0
        carried = sp.csr_matrix(truth[:, np.flatnonzero(self.seen_)])
        self.mean_, self.scale_ = column_statistics(X)

        folds = np.arange(X.shape[0]) % _FOLDS
        ridge = Ridge(lambda rows: standardise(X[rows], self.mean_, self.scale_), carried, folds)
        self.coefficients_, self.centre_ = ridge.coefficients()
        self.shares_ = np.asarray(carried.mean(axis=0), dtype=np.float64).ravel()
        self.spreads_ = prediction_spreads(self._predict(X[:_SAMPLE]))

        together = sp.csr_matrix(documents.T @ documents)
        unseen_with_seen = together[np.flatnonzero(~self.seen_)][:, np.flatnonzero(self.seen_)]
        totals = np.maximum(np.asarray(unseen_with_seen.sum(axis=1), dtype=np.float64), 1)
        self.cooccurrence_ = sp.csr_matrix(unseen_with_seen.multiply(1 / totals))

        self.unseen_shares_ = np.asarray(documents.mean(axis=0), dtype=np.float64).ravel()
        self.unseen_shares_ = self.unseen_shares_[~self.seen_]
        relative_spread = np.median(self.spreads_ / _binomial_spreads(self.shares_))
        self.unseen_spreads_ = relative_spread * _binomial_spreads(self.unseen_shares_)
        return self

    def _predict(self, X: Features) -> Matrix:
        """Return deviations of seen labels from their shares, (n, n_seen)."""
        features = standardise(X, self.mean_, self.scale_)
        return np.asarray((features - self.centre_) @ self.coefficients_)

    def decision_function(self, X: Features) -> Matrix:
        """Return scores, (n, n_classes): how likely each label is, roughly."""
        predictions = self._predict(X)
        concluded = (self.cooccurrence_ @ (predictions / self.spreads_).T).T
        scores = np.zeros((X.shape[0], len(self.classes_)))
        scores[:, self.seen_] = predictions + self.shares_
        scores[:, ~self.seen_] = concluded * self.unseen_spreads_ + self.unseen_shares_
        return scores


def _binomial_spreads(shares: Matrix) -> Matrix:
    """Return the standard deviations of labels that are held with such probabilities."""
    return np.asarray(np.sqrt(np.maximum(shares * (1 - shares), 1e-9)))


def simple_rankers(n_features: int) -> dict[str, SimpleRanker]:
    """Return the rankers that such items can be ranked by, under names for people."""
    rankers: dict[str, SimpleRanker] = {"most frequent labels": FrequencyRanker()}
    if n_features <= MOST_FEATURES:
        rankers = {"ridge regression": RidgeRanker()} | rankers
    return rankers


def _tables(
    corpus: LabelCorpus, label_sets: LabelCorpus
) -> tuple[NDArray[np.object_], sp.csr_matrix, sp.csr_matrix]:
    """Return the labels, those of items (n_items, n_labels) and those of tag sets."""
    sets = label_sets.without_unused()
    matrix, extra = corpus.without_unused().align(sets.labels)
    labels = sets.labels + extra
    documents = sets.align(labels)[0]
    return (
        np.array(labels, dtype=object),
        sp.csr_matrix(matrix, dtype=np.float32),
        sp.csr_matrix(documents[:, : len(labels)], dtype=np.float32),
    )
