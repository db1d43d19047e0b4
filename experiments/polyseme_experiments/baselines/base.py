"""The contract that baselines share with the tagger.

In: features, tag sets and label sets. Out: scores per label and rankings; a baseline fills in
`_fit` and `_scores`. How baselines choose their settings, `tuning.py` says.

Terms, used by all baselines: X are features (n, n_features) of the instances; Y the labels of the
instances, sparse 0 or 1, (n, n_labels), the columns those of `classes_`; Z the label sets likewise,
(m, n_labels). `truth` is Y for some labels as a mask. *Seen* labels are those that instances carry.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.model_selection import PredefinedSplit, cross_val_predict

from polyseme.base.estimator import Estimator
from polyseme.base.folds import group_numbers
from polyseme.base.validation import (
    InputError,
    IntArray,
    RandomState,
    check_features,
    check_fitted,
    check_instances,
    check_ranges,
    column_names,
    in_order,
)
from polyseme.documents.corpus import Documents, LabelCorpus, as_corpus, check_corpus, in_order_of
from polyseme.documents.label_sets import find_label_set_rows, teaching_corpora
from polyseme.documents.tags import label_preference, rank_labels
from polyseme.io.join import split_ids
from polyseme.published.mapping import InstanceMapper

Matrix = NDArray[np.float64]
Mask = NDArray[np.bool_]
Features = Matrix | sp.csr_matrix


class Baseline(Estimator, ABC):
    """A simple ranker of labels.

    Attributes
    ----------
    classes_ : array of str, shape (n_labels,)
        The vocabulary of the label sets, then labels that only instances carry.
    kinds_ : array of str, shape (n_labels,)
        "seen", "unseen" or "oov".
    n_occurrences_ : int64 array, shape (n_labels,)
        Known documents with each label: the label sets, and instances' not among them.
    groups_, label_set_groups_ : int64 array or None
        The groups of the instances and of the label sets, numbered, where these have some. No
        cross-validation tears a group apart.
    """

    # Numeric parameters and the bounds that `check_number` holds them to.
    ranges: ClassVar[Mapping[str, Mapping[str, Any]]] = {}

    def fit(
        self,
        X: object,
        y: Documents,
        label_sets: Documents | None = None,
        *,
        label_sets_only: bool = False,
    ) -> Self:
        """Learn from instances and label sets, as `ZeroShotTagger.fit`."""
        owner = type(self).__name__
        tagged = self._tagged(y)
        corpus = check_corpus(tagged, owner=owner, n_labels=1)
        features, Y, Z = self._tables(
            X,
            y,
            corpus,
            label_sets,
            label_sets_only,
        )
        self._fit(features, Y, Z)
        return self

    def _tagged(self, y: Documents) -> LabelCorpus:
        """Check the parameters, and return the labels of the instances."""
        if y is None:
            owner = type(self).__name__
            raise InputError(f"`{owner}` requires y to be passed, but the target y is None.")
        check_ranges(self, self.ranges)
        return as_corpus(y)

    def _tables(
        self,
        X: object,
        y: Documents,
        corpus: LabelCorpus,
        label_sets: Documents | None,
        label_sets_only: bool,
    ) -> tuple[Features, sp.csr_matrix, sp.csr_matrix]:
        """Set the attributes that describe the labels; return the arguments of `_fit`."""
        owner = type(self).__name__
        X, corpus = in_order_of(X, y, corpus)
        n = len(corpus)
        features = check_instances(X, n, owner=owner)
        further = None
        if label_sets is not None:
            further = as_corpus(label_sets)
        sets, corpus = teaching_corpora(corpus, further, label_sets_only=label_sets_only)
        Y, extra_labels = corpus.align(sets.labels)
        labels = sets.labels + extra_labels
        Z, _ = sets.align(labels)
        instance_counts = counts_of(Y)
        set_counts = counts_of(Z)
        new_rows = find_label_set_rows(corpus, sets) < 0
        self.classes_ = np.array(labels, dtype=object)
        kinds = np.where(instance_counts > 0, "seen", "unseen")
        self.kinds_ = np.where(set_counts == 0, "oov", kinds)
        self.n_occurrences_ = set_counts + counts_of(Y[new_rows])
        self.n_features_in_ = features.shape[1]
        self._set_feature_names(column_names(X))
        self.groups_ = group_numbers(corpus.groups, len(corpus))
        self.label_set_groups_ = group_numbers(sets.groups, len(sets))
        return features, Y, Z

    def __sklearn_tags__(self) -> Any:
        """Return scikit-learn's tags: what it takes."""
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.target_tags.required = True
        return tags

    def decision_function(self, X: object) -> Matrix:
        """Score every label for each instance, (n, n_labels), larger is better."""
        check_fitted(self, "classes_")
        owner = type(self).__name__
        n_features = self.n_features_in_
        values, _ = split_ids(X)
        names = getattr(self, "feature_names_in_", None)
        table = in_order(values, names, owner=owner)
        features = check_features(table, owner=owner, n_features=n_features)
        return self._scores(features)

    def rank(self, X: object, k: int = 10) -> tuple[NDArray[np.object_], Matrix]:
        """Return the k best labels for each instance and their scores, each (n, k)."""
        scores = self.decision_function(X)
        counts = self.n_occurrences_
        preference = label_preference(counts)
        label_ids, best_scores = rank_labels(scores, preference, k)
        labels = self.classes_[label_ids]
        return labels, best_scores

    @abstractmethod
    def _fit(self, X: Features, Y: sp.csr_matrix, Z: sp.csr_matrix) -> None:
        """Learn from features, their labels Y (n, n_labels) and the label sets Z (m, n_labels).

        `classes_`, `kinds_` and the other attributes of every baseline are set before.
        """

    @abstractmethod
    def _scores(self, X: Features) -> Matrix:
        """Score every label for each of checked instances, (n, n_labels), larger is better."""

    def _fit_ridge(
        self, X: Features, targets: Matrix, seed: RandomState, rows: IntArray | None = None
    ) -> InstanceMapper:
        """Fit kernel ridge regression from instances, or those of some rows, to targets.

        Targets are (n_rows, d). Its width and penalty are cross-validated by the mapper, on these
        targets and in folds that keep groups whole.
        """
        groups = self.groups_
        if rows is not None:
            X = X[rows]
            if groups is not None:
                groups = groups[rows]
        mapper = InstanceMapper(kind="kernel-ridge", random_state=seed)
        return mapper.fit(X, targets, groups)


def counts_of(matrix: sp.csr_matrix) -> IntArray:
    """Count the rows that hold each label, (n_labels,)."""
    return np.asarray(matrix.sum(axis=0), dtype=np.int64).ravel()


def out_of_fold(mapper: InstanceMapper, X: Features, targets: Matrix, folds: IntArray) -> Matrix:
    """Predict each instance's targets (n, d) by a kernel ridge mapper that has not seen it.

    A mapper that was fitted to all instances supplies width and penalty. `folds` (n,) is the number
    of each instance's fold; with a single fold all predictions are 0.
    """
    if not folds.any():
        return np.zeros_like(targets)
    fold_mapper = InstanceMapper(
        kind="kernel-ridge",
        gamma=mapper.gamma_,
        penalty=mapper.penalty_,
    )
    predicted = cross_val_predict(fold_mapper, X, targets, cv=PredefinedSplit(folds))
    return np.asarray(predicted)
