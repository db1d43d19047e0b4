"""The contract that baselines share with the tagger.

In: features, documents and semantics documents. Out: scores per label and rankings; a baseline
fills in `_learn` and `_scores`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from polyseme._estimator import Estimator
from polyseme._folds import fold_numbers, group_numbers, hidden_groups
from polyseme._validation import IntArray, check_features, check_fitted, check_instances
from polyseme.corpus import Documents, as_corpus, check_corpus
from polyseme.documents import unmet_documents
from polyseme.tags import rank_labels

__all__ = ["Baseline", "Features", "hidden_groups"]

Features = NDArray[np.float64] | sp.csr_matrix


class Baseline(Estimator, ABC):
    """A simple ranker of labels.

    Attributes
    ----------
    classes_ : tuple of str
        The semantics vocabulary, then labels that only instances carry.
    kinds_ : array of str, shape (n_labels,)
        "seen", "unseen" or "oov".
    n_occurrences_ : int64 array, shape (n_labels,)
        Known documents with each label: those of the semantics, and instances' not met there.
    groups_, lesson_groups_ : int64 array or None
        The groups of the instances and of the semantics documents, numbered, where these say so.
        No cross-validation tears a group apart.
    """

    def fit(self, X: object, y: Documents, label_sets: Documents | None = None) -> Self:
        """Learn from instances and label documents, as `ZeroShotTagger.fit`."""
        corpus = check_corpus(as_corpus(y), owner=type(self).__name__, n_labels=1)
        features = check_instances(X, len(corpus), owner=type(self).__name__)
        teaching = corpus if label_sets is None else as_corpus(label_sets)
        matrix, extra = corpus.align(teaching.labels)
        lessons, _ = teaching.align(teaching.labels + extra)
        carried = np.asarray(matrix.sum(axis=0)).ravel()
        taught = np.asarray(lessons.sum(axis=0)).ravel()
        self.classes_ = teaching.labels + extra
        self.kinds_ = np.where(taught == 0, "oov", np.where(carried > 0, "seen", "unseen"))
        fresh = corpus.select([]) if corpus is teaching else unmet_documents(corpus, teaching)
        more = np.asarray(fresh.align(self.classes_)[0].sum(axis=0)).ravel()
        self.n_occurrences_ = (taught + more).astype(np.int64)
        self.n_features_in_ = features.shape[1]
        self.groups_ = group_numbers(corpus.groups, len(corpus))
        self.lesson_groups_ = group_numbers(teaching.groups, len(teaching))
        self._learn(features, matrix, lessons)
        return self

    def decision_function(self, X: object) -> NDArray[np.float64]:
        """Score every label for each instance, (n, n_labels), larger is better."""
        check_fitted(self, "classes_")
        return self._scores(
            check_features(X, owner=type(self).__name__, n_features=self.n_features_in_)
        )

    def rank(self, X: object, k: int = 10) -> tuple[NDArray[np.str_], NDArray[np.float64]]:
        """Give the k best labels for each instance and their scores, each (n, k)."""
        label_ids, scores = rank_labels(self.decision_function(X), self.n_occurrences_, k)
        return np.asarray(self.classes_)[label_ids], scores

    def _folds(self, n_folds: int, generator: np.random.Generator, n: int) -> IntArray:
        """Draw the fold of each of the n instances, a group always in one; see `fold_numbers`."""
        return fold_numbers(n, n_folds, generator, self.groups_)

    @abstractmethod
    def _learn(self, X: Features, matrix: sp.csr_matrix, lessons: sp.csr_matrix) -> None:
        """Learn from instances (n, n_labels) and semantics documents (m, n_labels)."""

    @abstractmethod
    def _scores(self, X: Features) -> NDArray[np.float64]:
        """Score every label for each instance, (n, n_labels)."""
