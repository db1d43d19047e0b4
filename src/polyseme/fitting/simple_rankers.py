"""Simple rankers that a tagger is compared with on a person's own collection.

In: items and tag sets. Out: scores of labels, by ridge regression or by how frequent labels are.
"""

from __future__ import annotations

from typing import Protocol, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from polyseme.documents.corpus import LabelCorpus
from polyseme.space.features import Features, column_statistics, standardise
from polyseme.space.linear_path import MOST_FEATURES, Ridge, prediction_spreads

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
        scores = np.log1p(self.counts_)
        return np.tile(scores, (X.shape[0], 1))


class RidgeRanker:
    """Rank seen labels by ridge regression, unseen ones by the seen labels they occur with.

    An unseen label gets the mean of the standardised predictions of seen labels, weighted by how
    often tag sets hold both, about its own share of the tag sets and with the spread that seen
    labels of such a share have.
    """

    def fit(self, X: Features, y: LabelCorpus, label_sets: LabelCorpus) -> Self:
        """Solve the regression in closed form and count which labels occur together."""
        self.classes_, truth, documents = _tables(y, label_sets)
        counts = np.asarray(truth.sum(axis=0)).ravel()
        self.seen_ = counts > 0
        seen_columns = np.flatnonzero(self.seen_)
        unseen_columns = np.flatnonzero(~self.seen_)
        self._fit_seen(X, sp.csr_matrix(truth[:, seen_columns]))

        # How often tag sets hold an unseen label together with each seen one.
        together = sp.csr_matrix(documents.T @ documents)
        unseen_with_seen = together[unseen_columns][:, seen_columns]
        totals = np.asarray(unseen_with_seen.sum(axis=1), dtype=np.float64)
        shares = unseen_with_seen.multiply(1 / np.maximum(totals, 1))
        self.cooccurrence_ = sp.csr_matrix(shares)

        document_shares = np.asarray(documents.mean(axis=0), dtype=np.float64).ravel()
        self.unseen_shares_ = document_shares[unseen_columns]
        relative_spread = np.median(self.spreads_ / _binomial_spreads(self.shares_))
        self.unseen_spreads_ = relative_spread * _binomial_spreads(self.unseen_shares_)
        return self

    def _fit_seen(self, X: Features, carried: sp.csr_matrix) -> None:
        """Fit the regression on the seen labels that items carry, (n, n_seen)."""
        self.mean_, self.scale_ = column_statistics(X)

        def features(rows: NDArray[np.int64]) -> NDArray[np.float32]:
            return standardise(X[rows], self.mean_, self.scale_)

        folds = np.arange(X.shape[0]) % _FOLDS
        ridge = Ridge(features, carried, folds)
        self.coefficients_, self.centre_ = ridge.coefficients()
        self.shares_ = np.asarray(carried.mean(axis=0), dtype=np.float64).ravel()
        sample_predictions = self._predict(X[:_SAMPLE])
        self.spreads_ = prediction_spreads(sample_predictions)

    def _predict(self, X: Features) -> Matrix:
        """Return deviations of seen labels from their shares, (n, n_seen)."""
        features = standardise(X, self.mean_, self.scale_)
        centred = features - self.centre_
        return np.asarray(centred @ self.coefficients_)

    def decision_function(self, X: Features) -> Matrix:
        """Return scores, (n, n_classes): how likely each label is, roughly."""
        predictions = self._predict(X)
        standardised = predictions / self.spreads_
        unseen_predictions = (self.cooccurrence_ @ standardised.T).T
        n_labels = len(self.classes_)
        scores = np.zeros((X.shape[0], n_labels))
        scores[:, self.seen_] = predictions + self.shares_
        deviations = unseen_predictions * self.unseen_spreads_
        scores[:, ~self.seen_] = deviations + self.unseen_shares_
        return scores


def _binomial_spreads(shares: Matrix) -> Matrix:
    """Return the standard deviations of labels that are held with such probabilities."""
    variances = shares * (1 - shares)
    return np.asarray(np.sqrt(np.maximum(variances, 1e-9)))


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
    documents, _ = sets.align(labels)
    classes = np.array(labels, dtype=object)
    item_labels = sp.csr_matrix(matrix, dtype=np.float32)
    set_labels = sp.csr_matrix(documents[:, : len(labels)], dtype=np.float32)
    return classes, item_labels, set_labels
