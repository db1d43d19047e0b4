"""Asking a fitted tagger: points, scores, probabilities, ranks, completions, explanations.

In: instances, or tags. Out: labels with scores, larger is better.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from polyseme._validation import (
    InputError,
    as_row,
    check_features,
    check_fitted,
    check_number,
)
from polyseme.features.base import Extracted
from polyseme.known import Explanation
from polyseme.priming import rank_blocks, rank_labels
from polyseme.tagger.learned import LearnedTagger
from polyseme.tagger.tags import point_of_tags, tag_columns, tag_sets, tag_table

StrArray = NDArray[np.str_]


class AskedTagger(LearnedTagger):
    """What `ZeroShotTagger` answers."""

    def points(self, X: object) -> NDArray[np.float32]:
        """Map instances into the concept space.

        Parameters
        ----------
        X : array-like, scipy sparse or frame, shape (n, n_features), or what `features` takes

        Returns
        -------
        float32 array, shape (n, n_components)
        """
        return self._mapped(self._features_of(X))

    def _mapped(self, features: NDArray[np.float64] | sp.csr_matrix) -> NDArray[np.float32]:
        """Map checked features into the concept space."""
        assert self.mapper_ is not None  # where there are features, there is a mapper
        return np.asarray(self.mapper_.predict(features), dtype=np.float32)

    def _features_of(self, X: object) -> NDArray[np.float64] | sp.csr_matrix:
        """Check instances, after the front end where there is one, (n, n_features)."""
        check_fitted(self, "known_")
        if self.mapper_ is None:
            raise InputError(
                "This ZeroShotTagger was fitted without features, so it cannot rank instances; use "
                "`complete`, or fit it with X."
            )
        table = X if self.features_ is None else self.features_.transform(X)
        return check_features(table, owner=type(self).__name__, n_features=self.n_features_in_)

    def score_labels(
        self, X: object, tags: Iterable[Collection[str]] | None = None
    ) -> NDArray[np.float64]:
        """Score every label for each instance.

        Parameters
        ----------
        X : array-like, scipy sparse or frame, shape (n, n_features), or what `features` takes
        tags : iterable of collections of str, optional
            Labels that each instance is known to have, n collections; with the score "experts"
            only. They get the score 1 and move the others; labels that turned up after `fit`
            neither move others nor are moved.

        Returns
        -------
        float64 array, shape (n, n_labels)
            Larger is better. With the score "experts" probabilities; otherwise rows sum to one
            (or are all 0 when no label has a concept), as in the paper's equation 9.
        """
        features = self._features_of(X)
        scores = np.empty((features.shape[0], len(self.labels_)))
        for rows, part in self._scored(features, tags):
            scores[rows] = part
        return scores

    def _scored(
        self,
        features: NDArray[np.float64] | sp.csr_matrix,
        tags: Iterable[Collection[str]] | None,
    ) -> Iterator[tuple[slice, NDArray[np.float64]]]:
        """Give the scores of checked features, some rows at a time."""
        n, given = features.shape[0], None
        if tags is not None:
            if self._scorer is None:
                raise InputError("`tags` need the score 'experts'; this tagger has another one.")
            normalize = self.embedding_.normalize_labels_
            given = tag_table(tags, self.labels_, n, normalize=normalize)
        for rows in rank_blocks(n, len(self.labels_)):
            part = features[rows]
            if self._scorer is None:
                yield rows, self.ranker_.scores(self._mapped(part))
            else:
                known = None if given is None else given[rows].toarray()
                yield rows, self._scorer.probabilities(part, known)

    def predict_proba(
        self, X: object, tags: Iterable[Collection[str]] | None = None
    ) -> NDArray[np.float64]:
        """Give the probability of every label; needs the score "experts".

        Parameters
        ----------
        X : array-like, scipy sparse or frame, shape (n, n_features), or what `features` takes
        tags : iterable of collections of str, optional
            Labels that each instance is known to have; see `score_labels`.

        Returns
        -------
        float64 array, shape (n, n_labels)
        """
        self._refuse_probabilities()
        return self.score_labels(X, tags)

    def _refuse_probabilities(self) -> None:
        """Raise where scores are no probabilities."""
        if self.score != "experts":
            raise InputError("Probabilities need the score 'experts'; this tagger has another one.")

    def thresholds(self, precision: float) -> NDArray[np.float64]:
        """Say how likely labels must be for a share of those that are given to be true.

        Parameters
        ----------
        precision : float
            The share, between 0.01 and 0.99.

        Returns
        -------
        float64 array, shape (n_labels,)
            Learned on training instances that were held out from the experts: against the truth
            for seen labels, against their own probabilities for others, of which nobody knows
            which are true.
        """
        check_fitted(self, "known_")
        check_number("precision", precision, owner="predict", low=0.01, high=0.99)
        if self._scorer is None:
            raise InputError("A precision needs the score 'experts' and features to learn it from.")
        return self._scorer.thresholds(precision)

    def predict(
        self,
        X: object,
        threshold: float = 0.5,
        precision: float | None = None,
        tags: Iterable[Collection[str]] | None = None,
    ) -> list[tuple[str, ...]]:
        """Give a tag set for each instance: the labels that are likely enough, best first.

        Parameters
        ----------
        X : array-like, scipy sparse or frame, shape (n, n_features), or what `features` takes
        threshold : float
            How likely a label must be.
        precision : float, optional
            The share of given labels that should be true, in place of `threshold`; see
            `thresholds`.
        tags : iterable of collections of str, optional
            Labels that each instance is known to have; see `score_labels`.

        Returns
        -------
        list of tuples of str, length n
        """
        check_number("threshold", threshold, owner="predict", low=0, high=1)
        self._refuse_probabilities()
        features = self._features_of(X)
        least = np.full(len(self.labels_), threshold)
        if precision is not None:
            least = self.thresholds(precision)
        blocks = self._scored(features, tags)
        return [tags for _, part in blocks for tags in tag_sets(part, least, self.labels_)]

    def decision_function(self, X: object) -> NDArray[np.float64]:
        """Score every label for each instance, under the name that scikit-learn looks for."""
        return self.score_labels(X)

    def rank(
        self, X: object, k: int = 10, tags: Iterable[Collection[str]] | None = None
    ) -> tuple[StrArray, NDArray[np.float64]]:
        """Give the k best labels for each instance.

        Parameters
        ----------
        X : array-like, scipy sparse or frame, shape (n, n_features), or what `features` takes
        k : int
            How many labels; all of them if there are fewer.
        tags : iterable of collections of str, optional
            Labels that each instance is known to have; see `score_labels`.

        Returns
        -------
        labels : array of str, shape (n, k)
        scores : float64 array, shape (n, k)
            Falling from left to right.
        """
        check_number("k", k, owner="rank", low=1, whole=True)
        features = self._features_of(X)
        occurrences = np.zeros(len(self.labels_), dtype=np.int64)
        occurrences[: len(self.known_.labels)] = self.ranker_.index.n_occurrences
        shape = (features.shape[0], min(k, len(self.labels_)))
        label_ids, best = np.empty(shape, dtype=np.int64), np.empty(shape)
        for rows, scores in self._scored(features, tags):
            label_ids[rows], best[rows] = rank_labels(scores, occurrences, k)
        return np.asarray(self.labels_)[label_ids], best

    def complete(
        self, tags: Collection[str] | Iterable[Collection[str]], k: int = 10
    ) -> tuple[StrArray, NDArray[np.float64]]:
        """Suggest labels that go with a partial tag set; no features are needed.

        Parameters
        ----------
        tags : collection of str, or several such collections
            One partial tag set (or several). Unknown tags are named in a warning and passed over.
        k : int
            How many labels to suggest; the given ones are not among them.

        Returns
        -------
        labels : array of str, shape (k,), or (n, k) for several tag sets
        scores : float64 array, of the same shape
            Scores over all labels but the given ones; each full list sums to one.
        """
        check_fitted(self, "known_")
        check_number("k", k, owner="complete", low=1, whole=True)
        given: list[Any] = [tags] if isinstance(tags, str) else list(tags)
        single = all(isinstance(tag, str) for tag in given)
        rows = [self._complete_one(one, k) for one in ([given] if single else given)]
        if single:
            return rows[0]
        width = min(len(labels) for labels, _ in rows)
        labels = np.array([labels[:width] for labels, _ in rows])
        return labels, np.array([scores[:width] for _, scores in rows])

    def _complete_one(self, tags: Collection[str], k: int) -> tuple[StrArray, NDArray[np.float64]]:
        """Complete one tag set."""
        normalize = self.embedding_.normalize_labels_
        self._refuse_names(tags)
        given = tag_columns(tags, self.known_.labels, normalize=normalize)
        point = point_of_tags(given, self.embedding_, self.known_)
        label_ids, scores = self.ranker_.rank_others(point, given, k)
        return np.asarray(self.labels_)[label_ids], scores

    def explain(self, x: object, label: str, k: int = 5) -> list[Explanation]:
        """Give the nearest known concepts of a label: what its score rests on.

        Parameters
        ----------
        x : array-like, shape (n_features,) or (1, n_features)
            One instance.
        label : str
            One of `labels_` that documents hold.
        k : int
            How many concepts; documents with the same labels share one.

        Returns
        -------
        list of Explanation
            From near to far.
        """
        check_fitted(self, "known_")
        check_number("k", k, owner="explain", low=1, whole=True)
        self._refuse_names([label])
        column = self.known_.column(label, normalize=self.embedding_.normalize_labels_)
        one = as_row(x) if self.features_ is None else x if isinstance(x, Extracted) else [x]
        point = self.points(one)
        if len(point) != 1:
            raise InputError(f"`explain` takes one instance; got {len(point)}.")
        return self.known_.nearest(point[0], column, k)

    def _refuse_names(self, labels: Iterable[str]) -> None:
        """Raise where a label is known by name alone, for it has no concepts."""
        named = () if self.named_ is None else {self._key(label) for label in self.named_.labels}
        for label in labels:
            if isinstance(label, str) and self._key(label) in named:
                raise InputError(
                    f"'{label}' is known by name alone and has no concepts; add documents that "
                    "hold it."
                )
