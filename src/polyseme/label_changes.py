"""Changes of documents and labels, without training: more, fewer, blocked, renamed, merged.

In: documents and labels. Out: a tagger that knows them, which ranks accordingly from then on.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Self

import numpy as np
from numpy.typing import ArrayLike

from polyseme.base.text import shown
from polyseme.base.validation import InputError, check_fitted, warn_dropped
from polyseme.documents.corpus import Documents, as_corpus
from polyseme.documents.vocabulary import Vocabulary
from polyseme.fitted_tagger import FittedTagger
from polyseme.scoring.scorer import NamedLabels

if TYPE_CHECKING:
    from polyseme.documents.word_vectors import WordVectors


class LabelChanges(FittedTagger):
    """The methods of a tagger that change what it knows."""

    def add_documents(self, documents: Documents) -> tuple[str, ...]:
        """Add documents without training; their new labels become oov labels.

        Parameters
        ----------
        documents : LabelCorpus, iterable of label collections, indicator frame, or path

        Returns
        -------
        tuple of str
            The names of the documents taken in, for `remove_documents`.
        """
        check_fitted(self, "store_")
        vocabulary = self.vocabulary_
        corpus = as_corpus(documents, normalize=self.normalize_labels_)
        corpus = vocabulary.apply(corpus)
        n_documents = len(corpus)
        store, ids, dropped = self.store_.add(self.space_, corpus)
        all_dropped = self.dropped_ + dropped
        self._update(store_=store, dropped_=all_dropped)
        warn_dropped(dropped, n_documents)
        return ids

    def remove_documents(self, ids: Collection[str]) -> Self:
        """Remove known documents without training.

        A label the space has learned stays, with score 0 where no document holds it any more; a
        label that came later disappears with its documents.

        Parameters
        ----------
        ids : collection of str
            Names of known documents.
        """
        check_fitted(self, "store_")
        store = self.store_.remove(ids)
        remaining = set(store.ids)
        fitted_ids = self.store_.ids[: self.n_fitted_]
        n_fitted = len(remaining.intersection(fitted_ids))
        return self._update(store_=store, n_fitted_=n_fitted)

    def add_labels(
        self, labels: Collection[str], vectors: WordVectors | Mapping[str, ArrayLike]
    ) -> tuple[str, ...]:
        """Add labels that no document holds, read by the vectors of their names.

        A hint is all that names give: documents say more, and as soon as some hold the label, they
        alone count. Labels that are known already are passed over.

        Parameters
        ----------
        labels : collection of str
        vectors : WordVectors, or mapping of str to sequence of float
            Vectors of words; every label must have a word among them. They are not kept.

        Returns
        -------
        tuple of str
            The labels taken in, of the kind "oov".
        """
        from polyseme.documents.word_vectors import as_word_vectors, name_likeness

        check_fitted(self, "store_")
        words = as_word_vectors(vectors)
        names = self._names(labels)
        new_labels = tuple(name for name in names if self._key(name) not in self._column_by_key)
        if new_labels:
            all_labels = self._scorer.labels
            seen_labels = [all_labels[column] for column in self.space_.seen_columns]
            likeness = name_likeness(new_labels, seen_labels, words)
            named_labels = new_labels
            if self.named_ is not None:
                named_labels = self.named_.labels + new_labels
                likeness = np.concatenate([self.named_.likeness, likeness])
            named = NamedLabels(named_labels, likeness)
            self._update(named_=named)
        # A name that is like no seen label's says nothing.
        return tuple(name for name in new_labels if self._key(name) in self._column_by_key)

    def remove_labels(self, labels: Collection[str]) -> Self:
        """Remove labels for good: they are taken out of all known documents.

        A label that the space has learned stays among `classes_`, with score 0; another fit has to
        leave it out of its documents. To keep a label but never suggest it, `block` it.

        Parameters
        ----------
        labels : collection of str
        """
        self.refresh()
        names = self._names(labels)
        columns = {self._column(name) for name in names}
        all_labels = self._scorer.labels
        removed = {all_labels[column] for column in columns}
        store = self.store_
        if not removed.isdisjoint(store.labels):
            store = store.without_labels(self.space_, removed)

        # Answers about them stay in the log, but count no more; behind one there may be another.
        corrections = self._corrections
        while True:
            feedback = corrections.feedback
            answered = [
                label for label in feedback.labels if self._answered_column(label) in columns
            ]
            if not answered:
                break
            numbers = feedback.numbers(answered)
            self.verdicts_.undo(numbers)
            corrections, _ = corrections.refreshed()
        named = _without(self.named_, removed)
        return self._update(store_=store, named_=named, _corrections=corrections)

    def block(self, labels: Collection[str], undo: bool = False) -> Self:
        """Block labels from suggestions, or unblock them; given tags may still be among them.

        Parameters
        ----------
        labels : collection of str
        undo : bool
            Whether they may be suggested from now on.
        """
        names = [self._scorer.labels[self._column(label)] for label in self._names(labels)]
        return self._update(vocabulary_=self.vocabulary_.blocking(names, undo=undo))

    def rename(self, label: str, name: str) -> Self:
        """Rename a label; its former name is still understood.

        Parameters
        ----------
        label, name : str
            A known label, and a name that no other label has or had; `merge` brings two together.
        """
        column = self._column(label)
        if not isinstance(name, str):
            raise InputError(f"A label is renamed to one text; got {shown(name)}.")
        old = self._scorer.labels[column]
        (new,) = self._names(name)
        own_key = self._key(old)
        taken_keys = self._column_by_key.keys() - {own_key}
        if self._key(new) in taken_keys:
            raise InputError(f"There is a label '{new}' already; merge '{old}' into it instead.")
        resolved = self.vocabulary_.resolve(new)
        if self._key(resolved) in taken_keys:
            raise InputError(f"'{new}' is a name of '{resolved}' already; merge '{old}' into it.")
        vocabulary = self.vocabulary_.renaming(old, new)
        return self._rename(old, new, self.named_, vocabulary)

    def _rename(
        self, old: str, new: str, named: NamedLabels | None, vocabulary: Vocabulary
    ) -> Self:
        """Rename a label of documents, or one known by name or by answers."""

        def new_name(label: str) -> str:
            return new if label == old else label

        store = self.store_
        if named is not None and old in named.labels:
            named = named._replace(labels=tuple(map(new_name, named.labels)))
        else:
            store = store.renamed(old, new)
        validation = self.validation_
        if validation is not None:
            precisions = {new_name(label): pair for label, pair in validation.labels.items()}
            validation = replace(validation, labels=precisions)
        indicator = self.indicator_
        if indicator is not None:
            indicator = tuple(map(new_name, indicator))
        return self._update(
            store_=store,
            named_=named,
            vocabulary_=vocabulary,
            seen_=frozenset(map(new_name, self.seen_)),
            validation_=validation,
            indicator_=indicator,
        )

    def merge(self, label: str, into: str) -> Self:
        """Merge a label into another one: in known documents, given tags and scores.

        Parameters
        ----------
        label, into : str
            Two known labels; the first is not suggested any more, and the second whenever either
            would be.
        """
        source_column = self._column(label)
        target_column = self._column(into)
        source = self._scorer.labels[source_column]
        target = self._scorer.labels[target_column]
        if source == target:
            raise InputError(f"'{label}' and '{into}' are one label already.")
        vocabulary = self.vocabulary_.naming(source, target)
        store = self.store_
        named = self.named_
        has_source = source in store.labels
        has_target = target in store.labels
        if has_source and not has_target:
            # The documents take the other name, and with it the answers that were given on it.
            named = _without(named, {target})
            return self._rename(source, target, named, vocabulary)

        if has_source:
            store = store.merged(self.space_, source, target)
        else:
            named = _without(named, {source})
        return self._update(store_=store, named_=named, vocabulary_=vocabulary)


def _without(named: NamedLabels | None, labels: Collection[str]) -> NamedLabels | None:
    """Return labels known by name without some of them; None where none is left."""
    if named is None:
        return None
    names = []
    rows = []
    for row, name in enumerate(named.labels):
        if name not in labels:
            names.append(name)
            rows.append(row)
    if not rows:
        return None
    likeness = named.likeness[rows]
    return NamedLabels(tuple(names), likeness)
