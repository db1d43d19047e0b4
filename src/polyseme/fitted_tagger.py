"""What a fitted tagger is made of, and the one way in which it changes.

In: a space, known documents, labels by name, a vocabulary and corrections. Out: a `FittedTagger`
with the scorer and the classes that follow from them.
"""

from __future__ import annotations

from collections.abc import Collection
from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from polyseme.base.estimator import Estimator
from polyseme.base.validation import (
    InputError,
    IntArray,
    as_names,
    check_features,
    check_fitted,
    in_order,
)
from polyseme.documents.corpus import LabelCorpus, normalize_label
from polyseme.documents.tags import label_kinds
from polyseme.documents.vocabulary import Vocabulary
from polyseme.scoring.encoded import EncodedItems
from polyseme.scoring.scorer import Items, LabelScorer, NamedLabels
from polyseme.space.concept_space import ConceptSpace

if TYPE_CHECKING:
    from polyseme.feedback.corrections import Corrections
    from polyseme.feedback.verdict_log import VerdictLog
    from polyseme.fitting.holdout_validation import Validation
    from polyseme.fitting.warm_start import DocumentKeys
    from polyseme.media.base import MediaFeatures
    from polyseme.scoring.known_documents import KnownDocuments

Matrix = NDArray[np.float64]
# Labels, of any length each: an array of fixed width would have the longest one's everywhere.
StrArray = NDArray[np.object_]


class FittedTagger(Estimator):
    """What `fit` learns and later changes replace; see `ZeroShotTagger` for the attributes."""

    space_: ConceptSpace
    store_: KnownDocuments
    features_: MediaFeatures | None
    named_: NamedLabels | None
    vocabulary_: Vocabulary
    validation_: Validation | None
    document_keys_: DocumentKeys
    indicator_: tuple[str, ...] | None
    seen_: frozenset[str]
    dropped_: tuple[str, ...]
    name_share_: float
    pooled_: bool
    measured_on_: tuple[int, int]
    normalize_labels_: bool
    n_features_in_: int
    n_fitted_: int
    n_vocabulary_: int
    verdicts_: VerdictLog
    _likeness: Matrix
    _corrections: Corrections
    _scorer: LabelScorer

    def _update(self, answered: Collection[str] | None = None, **attributes: Any) -> Self:
        """Take over changes, with every score that follows; where that fails, nothing has changed.

        Every change of documents, labels, names and verdicts goes this way.

        Parameters
        ----------
        answered : collection of str, optional
            Where verdicts alone have changed: the labels that these are about.
        attributes
            What has changed: fitted attributes by name.
        """
        tagger = copy(self)
        tagger.__dict__.update(attributes)
        named = tagger._labels_by_name()
        known_names: tuple[str, ...] = ()
        if tagger.named_ is not None:
            known_names = tagger.named_.labels
        has_same_names = named.labels == known_names
        column_of = tagger._answered_column
        corrections = tagger._corrections
        if answered is not None and has_same_names:
            corrections = corrections.update(tagger._scorer, answered, column_of)
        else:
            tagger._fit_scorer(named)
            corrections = corrections.with_scorer(tagger._scorer, column_of)
        tagger._corrections = corrections
        tagger.verdicts_ = corrections.feedback.log
        scorer = tagger._scorer
        tagger._scorer = replace(scorer, corrections=corrections.table)
        self.__dict__.update(tagger.__dict__)
        return self

    def _labels_by_name(self) -> NamedLabels:
        """Return labels that no document holds: those with a hint, then those by answers alone.

        The latter are in the order of their names, whichever was answered for first.
        """
        named = self.named_
        if named is None:
            no_likeness = np.zeros((0, self.space_.n_seen_))
            named = NamedLabels((), no_likeness)
        known_keys = {self._key(label) for label in self.store_.labels}
        have_hints = np.asarray(named.likeness.any(axis=1))
        rows = []
        for row, label in enumerate(named.labels):
            is_known = self._key(label) in known_keys
            if have_hints[row] and not is_known:
                rows.append(row)
        hinted = [named.labels[row] for row in rows]
        known_keys |= {self._key(label) for label in hinted}

        answered_labels: Collection[str] = ()
        if self.n_features_in_:
            answered_labels = self._corrections.feedback.labels
        resolved = map(self.vocabulary_.resolve, answered_labels)
        # Of several spellings of a label the first in the alphabet counts, or the one it has.
        spellings = sorted(resolved, reverse=True)
        label_by_key = {self._key(label): label for label in spellings}
        for label in named.labels:
            key = self._key(label)
            if key in label_by_key:
                label_by_key[key] = label
        unknown = [label for key, label in label_by_key.items() if key not in known_keys]
        unknown.sort()
        n_unknown = len(unknown)
        likeness = np.pad(named.likeness[rows], ((0, n_unknown), (0, 0)))
        return NamedLabels((*hinted, *unknown), likeness)

    def _fit_scorer(self, named: NamedLabels) -> None:
        """Fit how every label is scored, and the order of classes."""
        store = self.store_
        scorer = LabelScorer.fit(
            self.space_, store, named, self.n_fitted_, self.name_share_, self._likeness
        )
        labels = scorer.labels
        keys = [self._key(label) for label in labels]
        blocked = {self._key(label) for label in self.vocabulary_.blocked}
        in_use = np.array([key not in blocked for key in keys], dtype=bool)
        # A label whose documents were all taken away is not suggested any more.
        in_use[: len(store.labels)] &= store.counts > 0
        kinds = label_kinds(labels, self.seen_, self.n_vocabulary_)
        self.named_ = named if named.labels else None
        self._column_by_key = {key: column for column, key in enumerate(keys)}
        self._set_classes(labels, kinds)
        self._scorer = replace(
            scorer,
            kinds=kinds,
            in_use=in_use,
            implications=self.vocabulary_.implied_columns(labels),
            class_columns=self._class_columns,
        )

    def _set_classes(self, labels: tuple[str, ...], kinds: NDArray[np.str_]) -> None:
        """Order labels as classes: the columns of an indicator matrix first."""
        self._class_columns: IntArray | None = None
        self.classes_: StrArray = np.array(labels, dtype=object)
        self.kinds_: NDArray[np.str_] = kinds
        if self.indicator_ is None:
            return
        further = dict(self._column_by_key)
        first_columns = []
        for label in self.indicator_:
            key = self._key(label)
            first_columns.append(further.pop(key, -1))
        further_columns = list(further.values())
        further_labels = [labels[column] for column in further_columns]
        columns = np.array(first_columns + further_columns, dtype=np.int64)
        classes = [*self.indicator_, *further_labels]
        self._class_columns = columns
        self.classes_ = np.array(classes, dtype=object)
        self.kinds_ = np.where(columns < 0, "oov", kinds[columns])

    def _key(self, label: str) -> str:
        """Return what labels are compared by."""
        return normalize_label(label) if self.normalize_labels_ else label

    def _answered_column(self, label: str) -> int | None:
        """Return the column of a label that was answered for; None where it is not known."""
        return self._column_by_key.get(self._key_of_name(label))

    def _key_of_name(self, name: str) -> str:
        """Return what a label is compared by, given any of its names."""
        return self._key(self.vocabulary_.resolve(name))

    def _column(self, label: str) -> int:
        """Find a label's column, also of a label by name or by another name."""
        check_fitted(self, "store_")
        if isinstance(label, str):
            column = self._answered_column(label)
            if column is not None:
                return column
            label = self.vocabulary_.resolve(label)
        from polyseme.documents.label_sets import label_column

        return label_column(self.store_.labels, label, normalize=self.normalize_labels_)

    def _names(self, labels: Collection[str]) -> tuple[str, ...]:
        """Check labels that are given by name, and tidy them as those of documents are."""
        check_fitted(self, "store_")
        names = as_names(labels, "labels")
        corpus = LabelCorpus.from_documents([names], normalize=self.normalize_labels_)
        return corpus.labels

    def _check_featured(self) -> None:
        """Raise where nothing is known of features."""
        if not self.n_features_in_:
            raise InputError(
                "This ZeroShotTagger was fitted without features, so it cannot rank items; use "
                "`complete`, or fit it with X."
            )

    def _features_of(self, X: object, *, keep_single: bool = False) -> Items:
        """Check items, after the feature extractor where there is one, (n, n_features)."""
        self._check_featured()
        owner = type(self).__name__
        if isinstance(X, EncodedItems):
            if X.space != self.space_.digest_:
                raise InputError("These items were coded in another space; `encode` them again.")
            return X
        from polyseme.io.join import split_ids

        names = getattr(self, "feature_names_in_", None)
        rows, _ = split_ids(X)
        table = in_order(rows, names, owner=owner)
        if self.features_ is not None:
            table = self.features_.transform(X)
        n_features = self.n_features_in_
        return check_features(table, owner=owner, n_features=n_features, keep_single=keep_single)
