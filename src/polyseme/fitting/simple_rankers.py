"""Simple rankers that a tagger is compared with on a person's own collection.

In: items and tag sets. Out: scores of labels, by ridge regression or by how frequent labels are.

Seen labels are those that training items carry; unseen ones are in tag sets alone.
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

# Ridge regression chooses its penalty on one of so many folds of the items.
_FOLDS = 4
# Items on which the spreads of predictions are measured.
_SAMPLE = 2048
# The least variance of a label, so that nothing is divided by 0.
_LEAST_VARIANCE = 1e-9


class SimpleRanker(Protocol):
    """A ranker that needs no settings."""

    classes_: NDArray[np.object_]

    def fit(self, X: Features, y: LabelCorpus, label_sets: LabelCorpus) -> Self:
        """Learn from items and tag sets.

        Parameters
        ----------
        X : float64 array or csr_matrix, shape (n, n_features)
        y : LabelCorpus
            The labels of each item.
        label_sets : LabelCorpus
            Documents that teach which labels there are, those of items perhaps among them.
        """

    def decision_function(self, X: Features) -> Matrix:
        """Return scores, (n, n_classes), in the order of `classes_`."""


class FrequencyRanker:
    """Rank labels by how many tag sets hold them, for every item alike."""

    def fit(self, X: Features, y: LabelCorpus, label_sets: LabelCorpus) -> Self:
        """Count the labels of tag sets."""
        classes, _, set_labels = _tables(y, label_sets)
        column_sums = set_labels.sum(axis=0)
        counts = np.asarray(column_sums, dtype=np.float64)
        self.classes_ = classes
        self.counts_ = counts.ravel()
        return self

    def decision_function(self, X: Features) -> Matrix:
        """Return scores, (n, n_classes)."""
        n_items = X.shape[0]
        scores = np.log1p(self.counts_)
        return np.tile(scores, (n_items, 1))


class RidgeRanker:
    """Rank seen labels by ridge regression, unseen ones by the seen labels they occur with.

    An unseen label gets the mean of the standardised predictions of seen labels, weighted by how
    often tag sets hold both, about its own share of the tag sets and with the spread that seen
    labels of such a share have.

    Attributes
    ----------
    classes_ : array of str, shape (n_classes,)
    seen_ : bool array, shape (n_classes,)
        Which classes are seen labels; arrays below have these, or the others, in their order.
    mean_, scale_ : float64 arrays, shape (n_features,)
        By which features are standardised.
    coefficients_, centre_ : float arrays, shapes (n_features, n_seen) and (n_features,)
        predictions = (standardised features - centre) @ coefficients: deviations from `shares_`.
    shares_, spreads_ : float64 arrays, shape (n_seen,)
        The share of items that carry each seen label, and the standard deviation of predictions.
    unseen_shares_, unseen_spreads_ : float64 arrays, shape (n_unseen,)
        The share of tag sets that hold each unseen label, and the spread it is given.
    cooccurrence_ : csr_matrix, shape (n_unseen, n_seen)
        How often tag sets hold both labels; rows sum to 1, or are 0.
    """

    def fit(self, X: Features, y: LabelCorpus, label_sets: LabelCorpus) -> Self:
        """Solve the regression in closed form and count which labels occur together."""
        classes, item_labels, set_labels = _tables(y, label_sets)
        self.classes_ = classes
        item_counts = item_labels.sum(axis=0)
        counts = np.asarray(item_counts).ravel()
        self.seen_ = counts > 0
        seen_columns = np.flatnonzero(self.seen_)
        unseen_columns = np.flatnonzero(~self.seen_)
        seen_labels = sp.csr_matrix(item_labels[:, seen_columns])
        self._fit_seen(X, seen_labels)

        # How often tag sets hold an unseen label together with each seen one.
        products = set_labels.T @ set_labels
        pair_counts = sp.csr_matrix(products)
        unseen_rows = pair_counts[unseen_columns]
        unseen_with_seen = unseen_rows[:, seen_columns]
        row_sums = unseen_with_seen.sum(axis=1)
        totals = np.asarray(row_sums, dtype=np.float64)
        scales = 1 / np.maximum(totals, 1)
        shares = unseen_with_seen.multiply(scales)
        self.cooccurrence_ = sp.csr_matrix(shares)

        # Predictions of a rarer label spread less. Seen labels tell how much less than the truth
        # predictions spread, and the truth of a label with share p spreads by sqrt(p (1 - p)).
        set_means = set_labels.mean(axis=0)
        set_shares = np.asarray(set_means, dtype=np.float64).ravel()
        self.unseen_shares_ = set_shares[unseen_columns]
        seen_spreads = _binomial_spreads(self.shares_)
        relative_spread = np.median(self.spreads_ / seen_spreads)
        true_spreads = _binomial_spreads(self.unseen_shares_)
        self.unseen_spreads_ = relative_spread * true_spreads
        return self

    def _fit_seen(self, X: Features, seen_labels: sp.csr_matrix) -> None:
        """Fit the regression on the seen labels that items carry.

        Parameters
        ----------
        X : float64 array or csr_matrix, shape (n, n_features)
        seen_labels : csr_matrix of 0 and 1, shape (n, n_seen)
        """
        mean, scale = column_statistics(X)
        self.mean_ = mean
        self.scale_ = scale

        def standardised(rows: NDArray[np.int64]) -> NDArray[np.float32]:
            block = X[rows]
            return standardise(block, mean, scale)

        n_items = X.shape[0]
        item_numbers = np.arange(n_items)
        folds = item_numbers % _FOLDS
        ridge = Ridge(standardised, seen_labels, folds)
        coefficients, centre = ridge.coefficients()
        self.coefficients_ = coefficients
        self.centre_ = centre
        column_means = seen_labels.mean(axis=0)
        shares = np.asarray(column_means, dtype=np.float64)
        self.shares_ = shares.ravel()
        sample = X[:_SAMPLE]
        sample_predictions = self._predict(sample)
        self.spreads_ = prediction_spreads(sample_predictions)

    def _predict(self, X: Features) -> Matrix:
        """Return deviations of seen labels from their shares, (n, n_seen)."""
        features = standardise(X, self.mean_, self.scale_)
        centred = features - self.centre_
        predictions = centred @ self.coefficients_
        return np.asarray(predictions)

    def decision_function(self, X: Features) -> Matrix:
        """Return scores, (n, n_classes): how likely each label is, roughly."""
        seen_deviations = self._predict(X)
        standardised = seen_deviations / self.spreads_
        means_by_label = self.cooccurrence_ @ standardised.T
        unseen_deviations = means_by_label.T * self.unseen_spreads_
        n_items = X.shape[0]
        n_labels = len(self.classes_)
        is_unseen = ~self.seen_
        scores = np.zeros((n_items, n_labels))
        scores[:, self.seen_] = seen_deviations + self.shares_
        scores[:, is_unseen] = unseen_deviations + self.unseen_shares_
        return scores


def _binomial_spreads(shares: Matrix) -> Matrix:
    """Return the standard deviations of labels that are held with such probabilities, (n,)."""
    variances = shares * (1 - shares)
    variances = np.maximum(variances, _LEAST_VARIANCE)
    spreads = np.sqrt(variances)
    return np.asarray(spreads)


def simple_rankers(n_features: int) -> dict[str, SimpleRanker]:
    """Return the rankers that such items can be ranked by, not fitted, under names for people.

    The names are shown in the order of the dict, and are keys of a saved `Validation`.
    """
    rankers: dict[str, SimpleRanker] = {}
    if n_features <= MOST_FEATURES:  # more normal equations would take too long
        rankers["ridge regression"] = RidgeRanker()
    rankers["most frequent labels"] = FrequencyRanker()
    return rankers


def _tables(
    corpus: LabelCorpus, label_sets: LabelCorpus
) -> tuple[NDArray[np.object_], sp.csr_matrix, sp.csr_matrix]:
    """Return items' labels and tag sets over one list of labels: those of tag sets come first.

    Returns
    -------
    classes : array of str, shape (n_classes,)
        Labels that some tag set or item holds.
    item_labels : csr_matrix of float32, shape (n_items, n_classes)
    set_labels : csr_matrix of float32, shape (n_sets, n_classes)
    """
    used_sets = label_sets.without_unused()
    used_corpus = corpus.without_unused()
    item_matrix, further_labels = used_corpus.align(used_sets.labels)
    labels = used_sets.labels + further_labels
    set_matrix, _ = used_sets.align(labels)
    classes = np.array(labels, dtype=object)
    n_labels = len(labels)
    item_labels = sp.csr_matrix(item_matrix, dtype=np.float32)
    set_labels = sp.csr_matrix(set_matrix[:, :n_labels], dtype=np.float32)
    return classes, item_labels, set_labels
