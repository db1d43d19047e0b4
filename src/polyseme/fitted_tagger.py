"""What a fitted tagger is made of, and the one way in which it changes.

In: a space, known documents, labels by name, a vocabulary and corrections. Out: a `FittedTagger`
with the scorer and the classes that follow from them.

Terms: a *column* is a label's place in the scorer's labels: those of the known documents, then
labels *by name*, which no document holds. A *class* is a label's place in `classes_`, the order
that users see. Labels are the same where their *keys* are, which leave out case and white space
unless `normalize_labels_` is False. The *vocabulary* has blocked labels and other names of labels,
which it *resolves*.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
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
    from polyseme.scoring.name_evidence import NameEvidence, NameReadout

Matrix = NDArray[np.float64]
# Labels, of any length each: an array of fixed width would have the longest one's everywhere.
StrArray = NDArray[np.object_]


class FittedTagger(Estimator):
    """What `fit` learns and later changes replace; see `ZeroShotTagger` for public attributes.

    Attributes
    ----------
    document_keys_ : DocumentKeys
        Digests by which a warm start finds documents and items again.
    indicator_ : tuple of str or None
        The columns of the indicator matrix that y was in `fit`; None for tag sets.
    n_fitted_ : int
        How many of the known documents the space was fitted to; they are the first of them.
    n_vocabulary_ : int
        How many labels the label sets of `fit` hold; they are the first columns.
    _likeness : float64 array, shape (n_unseen, n_seen), or (0, 0)
        How like seen labels each unseen one is by name; empty where names have no share.
    _corrections : Corrections
        What labels' verdicts add to their logits, with the log that they come from.
    _scorer : LabelScorer
        Everything that scores labels; made of all others and never saved.
    """

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
    names_: NameEvidence | None
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
        """Apply changes, with every score that follows; if that fails, nothing has changed.

        Every change of documents, labels, names and verdicts goes this way. Attributes are
        replaced and never changed in place, so that shallow copies of the tagger stay as they are.

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
        former_names: tuple[str, ...] = ()
        if tagger.named_ is not None:
            former_names = tagger.named_.labels
        # Then the columns are the same too, and only answered labels need another correction.
        has_same_names = named.labels == former_names
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
        """Return the labels that no document holds: by vectors of names, then those by answers.

        The latter are known by verdicts alone. They are in the order of their names, so that the
        order of the answers makes no difference to the model.

        Returns
        -------
        NamedLabels
            Likeness is 0 for labels that are known by answers alone, or whose names are evidence.
        """
        named = self.named_
        if named is None:
            no_likeness = np.zeros((0, self.space_.n_seen_))
            named = NamedLabels((), no_likeness)
        known_keys = {self._key(label) for label in self.store_.labels}
        keys_by_evidence: set[str] = set()
        if self.names_ is not None:
            keys_by_evidence = {self._key(label) for label in self.names_.labels}
        is_like_seen = np.asarray(named.likeness.any(axis=1))
        rows = []
        for row, label in enumerate(named.labels):
            key = self._key(label)
            has_vector = is_like_seen[row] or key in keys_by_evidence
            if has_vector and key not in known_keys:
                rows.append(row)
        labels_with_vectors = [named.labels[row] for row in rows]
        known_keys |= {self._key(label) for label in labels_with_vectors}

        answered_labels: Collection[str] = ()
        if self.n_features_in_:
            answered_labels = self._corrections.feedback.labels
        resolved_labels = map(self.vocabulary_.resolve, answered_labels)
        # Of several spellings of a label the first in the alphabet counts, or the one it has.
        spellings = sorted(resolved_labels, reverse=True)
        label_by_key = {self._key(label): label for label in spellings}
        for label in named.labels:
            key = self._key(label)
            if key in label_by_key:
                label_by_key[key] = label
        labels_by_answers = []
        for key, label in label_by_key.items():
            if key not in known_keys:
                labels_by_answers.append(label)
        labels_by_answers.sort()
        n_new_rows = len(labels_by_answers)
        likeness = np.pad(named.likeness[rows], ((0, n_new_rows), (0, 0)))
        labels = (*labels_with_vectors, *labels_by_answers)
        return NamedLabels(labels, likeness)

    def _fit_scorer(self, named: NamedLabels) -> None:
        """Set the scorer of all labels, which has no corrections yet, and the order of classes."""
        store = self.store_
        scorer = LabelScorer.fit(
            self.space_, store, named, self.n_fitted_, self.name_share_, self._likeness
        )
        labels = scorer.labels
        keys = [self._key(label) for label in labels]
        in_use = np.array(self.vocabulary_.are_suggested(labels, self._key), dtype=bool)
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
            names=self._name_readout(labels),
        )

    def _name_readout(self, labels: Sequence[str]) -> NameReadout | None:
        """Return what the names of labels, one for each column, add to their logits."""
        if self.names_ is None:
            return None
        is_seen = np.zeros(len(labels), dtype=bool)
        is_seen[self.space_.seen_columns] = True
        return self.names_.readout(labels, is_seen, self._key)

    def _set_classes(self, labels: tuple[str, ...], kinds: NDArray[np.str_]) -> None:
        """Order labels as classes: those of the indicator matrix that y was in `fit` come first.

        Parameters
        ----------
        labels : tuple of str
            In the order of columns, which is that of classes where y was no indicator matrix.
        kinds : array of str, shape (n_labels,)
            "seen", "unseen" or "oov", in the same order.
        """
        # The column of each class, -1 where nothing is known of it; None for the same order.
        self._class_columns: IntArray | None = None
        self.classes_: StrArray = np.array(labels, dtype=object)
        self.kinds_: NDArray[np.str_] = kinds
        if self.indicator_ is None:
            return
        other_columns_by_key = dict(self._column_by_key)
        indicator_columns = []
        for label in self.indicator_:
            key = self._key(label)
            column = other_columns_by_key.pop(key, -1)
            indicator_columns.append(column)
        other_columns = list(other_columns_by_key.values())
        other_labels = [labels[column] for column in other_columns]
        columns = np.array(indicator_columns + other_columns, dtype=np.int64)
        classes = [*self.indicator_, *other_labels]
        self._class_columns = columns
        self.classes_ = np.array(classes, dtype=object)
        self.kinds_ = np.where(columns < 0, "oov", kinds[columns])

    def _key(self, label: str) -> str:
        """Return what a label is compared by: without differences of case and white space."""
        return normalize_label(label) if self.normalize_labels_ else label

    def _answered_column(self, label: str) -> int | None:
        """Return the column of a label under any of its names; None where it is not known.

        A path is known by its last part as well, where that is no other label's.
        """
        key = self._key_of_name(label)
        column = self._column_by_key.get(key)
        if column is not None or not self.vocabulary_.has_paths(self._scorer.labels):
            return column
        from polyseme.base.paths import columns_by_leaf

        separator = self.vocabulary_.separator
        return columns_by_leaf(self._scorer.labels, self._key, separator).get(key)

    def _key_of_name(self, name: str) -> str:
        """Return the key of a label, given any of its names."""
        label = self.vocabulary_.resolve(name)
        return self._key(label)

    def _column(self, label: str) -> int:
        """Return the column of a label under any of its names; raise where it is not known."""
        check_fitted(self, "store_")
        if isinstance(label, str):
            column = self._answered_column(label)
            if column is not None:
                return column
            label = self.vocabulary_.resolve(label)
        from polyseme.documents.label_sets import label_column

        # It raises with a message that names similar labels.
        return label_column(self.store_.labels, label, normalize=self.normalize_labels_)

    def _names(self, labels: str | Collection[str]) -> tuple[str, ...]:
        """Check labels that users name, and return them tidied as those of documents are.

        A single text is one label. Each is there once, in the order of their keys, and without
        needless white space where labels are normalised.
        """
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
        """Check items and return their features, (n, n_features_in_), in the order of `fit`.

        Parameters
        ----------
        X : as for `predict_proba`
            Encoded items come back as they are; otherwise a feature extractor is applied first.
        keep_single : bool
            Whether features of float32 stay so; by default they become float64.
        """
        self._check_featured()
        owner = type(self).__name__
        if isinstance(X, EncodedItems):
            if X.space_digest != self.space_.digest_:
                raise InputError("These items were coded in another space; `encode` them again.")
            return X
        from polyseme.io.join import split_ids

        fitted_names = getattr(self, "feature_names_in_", None)
        table_without_ids, _ = split_ids(X)
        features = in_order(table_without_ids, fitted_names, owner=owner)
        if self.features_ is not None:
            features = self.features_.transform(X)
        n_features = self.n_features_in_
        return check_features(features, owner=owner, n_features=n_features, keep_single=keep_single)
