"""Changes of documents and labels, without training: more, fewer, blocked, renamed, merged.

In: documents and labels. Out: a tagger that knows them, which ranks accordingly from then on.

Every method computes what it replaces and hands it to `_update`: if anything raises before, the
tagger stays as it was. `store_` has the known documents, `named_` labels that no document holds.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from itertools import compress
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from polyseme.base.text import shown
from polyseme.base.validation import InputError, check_fitted, warn_dropped
from polyseme.documents.corpus import Documents, as_corpus
from polyseme.documents.vocabulary import Vocabulary
from polyseme.fitted_tagger import FittedTagger
from polyseme.scoring.scorer import NamedLabels

if TYPE_CHECKING:
    from polyseme.base.extractors import NameColumns
    from polyseme.documents.label_names import LabelNames
    from polyseme.documents.similar_labels import SimilarLabels
    from polyseme.scoring.name_evidence import NameEvidence


class LabelChanges(FittedTagger):
    """The methods of a tagger that change what it knows."""

    def add_documents(self, documents: Documents) -> tuple[str, ...]:
        """Add documents without training; their new labels become oov labels.

        Parameters
        ----------
        documents : LabelCorpus, iterable of label collections, indicator frame, or path
            Those without any label that the space has learned are left out, with a warning.

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
        remaining_ids = set(store.ids)
        # Documents that the space was fitted to come first, also of those that remain.
        fitted_ids = self.store_.ids[: self.n_fitted_]
        remaining_fitted_ids = remaining_ids.intersection(fitted_ids)
        return self._update(store_=store, n_fitted_=len(remaining_fitted_ids))

    def add_labels(self, labels: Collection[str], vectors: object = None) -> tuple[str, ...]:
        """Add labels that no document holds, read by the vectors of their names.

        Where names are evidence (`names_`), how like an item and a name are counts as it does for
        unseen labels. Other vectors read a label as the seen labels that it is like by name, which
        is weak: as soon as documents hold the label, these alone count. Labels that are known
        already are passed over.

        Parameters
        ----------
        labels : collection of str
        vectors : WordVectors, mapping of str to sequence of float, callable or encoder, optional
            Vectors of labels or of their words, or what encodes them; see `label_names` of `fit`.
            By default the feature extractor encodes them, where it can. They are not kept, but for
            those of names that are evidence.

        Returns
        -------
        tuple of str
            The labels taken in, of the kind "oov".
        """
        check_fitted(self, "store_")
        names = self._names(labels)
        new_labels = tuple(name for name in names if self._key(name) not in self._column_by_key)
        if not new_labels:
            return ()
        vectors_are_own = vectors is None
        if vectors_are_own:
            vectors = self._name_encoder(new_labels)
        evidence = self._evidence_with(new_labels, vectors)
        if evidence is None and vectors_are_own:
            vectors = self._item_part(vectors)
        if evidence is None:
            likeness = self._likeness_to_seen(new_labels, vectors)
        else:
            likeness = np.zeros((len(new_labels), self.space_.n_seen_))
        named_labels = new_labels
        if self.named_ is not None:
            named_labels = self.named_.labels + new_labels
            likeness = np.concatenate([self.named_.likeness, likeness])
        named = NamedLabels(named_labels, likeness)
        self._update(named_=named, names_=self.names_ if evidence is None else evidence)
        # Without evidence, a name that is like no seen label's says nothing, and is left out.
        return tuple(label for label in new_labels if self._key(label) in self._column_by_key)

    def _name_encoder(self, labels: tuple[str, ...]) -> Callable[[list[str]], Any]:
        """Return what encodes names, of the feature extractor; raise where it knows none."""
        from polyseme.documents.label_names import extractor_names

        if extractor_names(self.features_, labels) is None:
            raise InputError("Give `vectors` of the names: this tagger cannot encode them itself.")
        extractor: Any = self.features_
        encode: Callable[[list[str]], Any] = extractor.encode_names
        return encode

    def _item_part(self, encode: Any) -> Callable[[list[str]], Any]:
        """Return what encodes names by the columns alone that describe items, such as topics."""
        from polyseme.base.extractors import n_item_columns
        from polyseme.space.features import first_columns

        n_columns = n_item_columns(self.features_) or self.n_features_in_
        return lambda names: first_columns(encode(names), n_columns)

    def _evidence_with(self, labels: tuple[str, ...], vectors: object) -> NameEvidence | None:
        """Return the evidence of names with new labels; None where their names are none."""
        from polyseme.documents.label_names import encode_names, is_comparable

        if self.names_ is None or not self.names_.weights.other.are_used:
            return None  # names say nothing of labels that no training item carries
        names = encode_names(vectors, labels)
        if not is_comparable(names, self.n_features_in_):
            return None
        names.check_known()
        return self.names_.with_labels(labels, names.vectors)

    def _likeness_to_seen(self, labels: tuple[str, ...], vectors: object) -> NDArray[np.float64]:
        """Return how like seen labels new ones are by their names, (n_labels, n_seen)."""
        from polyseme.documents.label_names import name_words
        from polyseme.documents.word_vectors import name_likeness

        known_labels = self._scorer.labels
        seen_labels = [known_labels[column] for column in self.space_.seen_columns]
        words = name_words(vectors, [*labels, *seen_labels])
        return name_likeness(labels, seen_labels, words)

    def remove_labels(self, labels: Collection[str]) -> Self:
        """Remove labels for good: they are taken out of all known documents.

        A label that the space has learned stays among `classes_`, with score 0; another fit has to
        leave it out of its documents. To keep a label but never suggest it, `block` it.

        Parameters
        ----------
        labels : collection of str
        """
        self.refresh()  # others may have answered for these labels since
        names = self._names(labels)
        removed_columns = {self._column(name) for name in names}
        known_labels = self._scorer.labels
        removed_labels = {known_labels[column] for column in removed_columns}
        store = self.store_
        if not removed_labels.isdisjoint(store.labels):
            store = store.without_labels(self.space_, removed_labels)

        # Their verdicts stay in the log, undone. Undoing one lets an older one on the same label
        # and item stand again, hence the loop.
        corrections = self._corrections
        while True:
            feedback = corrections.feedback
            answered_labels = [
                label
                for label in feedback.labels
                if self._answered_column(label) in removed_columns
            ]
            if not answered_labels:
                break
            verdict_numbers = feedback.numbers(answered_labels)
            self.verdicts_.undo(verdict_numbers)
            corrections, _ = corrections.refreshed()
        named = _without(self.named_, removed_labels)
        names_ = None if self.names_ is None else self.names_.without(removed_labels)
        return self._update(store_=store, named_=named, names_=names_, _corrections=corrections)

    def block(self, labels: Collection[str], undo: bool = False) -> Self:
        """Block labels from suggestions, or unblock them; given tags may still be among them.

        Parameters
        ----------
        labels : collection of str
        undo : bool
            Whether they may be suggested from now on.
        """
        own_names = []
        for name in self._names(labels):
            column = self._column(name)
            own_name = self._scorer.labels[column]
            own_names.append(own_name)
        vocabulary = self.vocabulary_.with_blocked(own_names, undo=undo)
        return self._update(vocabulary_=vocabulary)

    def rename(self, label: str, name: str) -> Self:
        """Rename a label; its former name is still understood.

        Parameters
        ----------
        label, name : str
            A known label, and a name that no other label has or had; `merge` brings two together.
            Where the label is a branch, labels below it go with it: with "people" renamed "persons"
            "people|adults" becomes "persons|adults".
        """
        column = self._column(label)
        if not isinstance(name, str):
            raise InputError(f"The new name of a label must be one text; got {shown(name)}.")
        old_name = self._scorer.labels[column]
        (new_name,) = self._names(name)
        own_key = self._key(old_name)
        other_keys = self._column_by_key.keys() - {own_key}
        if self._key(new_name) in other_keys:
            raise InputError(
                f"There is a label '{new_name}' already; merge '{old_name}' into it instead."
            )
        resolved = self.vocabulary_.resolve(new_name)
        if self._key(resolved) in other_keys:
            raise InputError(
                f"'{new_name}' is a name of '{resolved}' already; merge '{old_name}' into it."
            )
        from polyseme.base.paths import moved

        new_by_old = {old_name: new_name}
        separator = self.vocabulary_.separator
        for below in self.vocabulary_.below(old_name, self._scorer.labels):
            new_path = moved(below, old_name, new_name, separator)
            if self._key(new_path) in self._column_by_key:
                raise InputError(
                    f"There is a label '{new_path}' already; merge '{old_name}' into '{new_name}'."
                )
            new_by_old[below] = new_path
        for former_name, changed_name in new_by_old.items():
            vocabulary = self.vocabulary_.renaming(former_name, changed_name)
            self._rename(former_name, changed_name, self.named_, vocabulary)
        return self

    def _rename(
        self, old_name: str, new_name: str, named: NamedLabels | None, vocabulary: Vocabulary
    ) -> Self:
        """Rename a label wherever the fitted tagger has it, and take over a vocabulary.

        Parameters
        ----------
        old_name, new_name : str
            Texts that were checked: the label's own name, and one that no other label has.
        named : NamedLabels or None
            Takes the place of `named_`; renamed, where it has the label.
        vocabulary : Vocabulary
            Takes the place of `vocabulary_`; it knows the new name already.
        """

        def renamed(label: str) -> str:
            return new_name if label == old_name else label

        store = self.store_
        if named is not None and old_name in named.labels:
            labels = tuple(map(renamed, named.labels))
            named = named._replace(labels=labels)
        else:
            store = store.renamed(old_name, new_name)
        validation = self.validation_
        if validation is not None:
            c_maps_by_label = {}
            for label, c_maps in validation.labels.items():
                c_maps_by_label[renamed(label)] = c_maps
            validation = replace(validation, labels=c_maps_by_label)
        indicator = self.indicator_
        if indicator is not None:
            indicator = tuple(map(renamed, indicator))
        return self._update(
            store_=store,
            named_=named,
            vocabulary_=vocabulary,
            names_=None if self.names_ is None else self.names_.renamed(old_name, new_name),
            seen_=frozenset(map(renamed, self.seen_)),
            validation_=validation,
            indicator_=indicator,
        )

    def merge(self, label: str | Iterable[tuple[str, str]], into: str | None = None) -> Self:
        """Merge a label into another one, or several: in known documents, given tags and scores.

        Parameters
        ----------
        label, into : str
            Two known labels; the first is not suggested any more, and the second whenever either
            would be. In place of both an iterable of such pairs. Labels below the first are merged
            into those below the second, or move there.
        """
        pairs = label if into is None else [(label, into)]
        if isinstance(pairs, str) or not isinstance(pairs, Iterable):
            raise InputError("Give `merge` a label and the one to merge it into, or such pairs.")
        known_pairs: list[tuple[str, str]] = []
        other_pairs: list[tuple[str, str]] = []
        known_labels = set(self.store_.labels)
        new_names: dict[str, str] = {}
        for pair in pairs:
            merged_pair = self._distinct_labels(pair)
            below_pairs, below_names = self._moved_below(*merged_pair)
            new_names |= below_names
            for source, target in (merged_pair, *below_pairs):
                are_known = {source, target} <= known_labels
                chosen_pairs = known_pairs if are_known else other_pairs
                chosen_pairs.append((source, target))
        tagger = copy(self)
        for old_name, new_name in new_names.items():
            tagger.rename(old_name, new_name)
        tagger._merge_in_documents(known_pairs)
        for source, target in other_pairs:
            tagger._merge_named(source, target)
        self.__dict__.update(tagger.__dict__)
        return self

    def _moved_below(
        self, branch: str, target: str
    ) -> tuple[list[tuple[str, str]], dict[str, str]]:
        """Return what becomes of labels below a branch that is merged into another label.

        They are pairs to be merged as well, and new names of those that have no match below it.
        """
        pairs: list[tuple[str, str]] = []
        new_names: dict[str, str] = {}
        labels = self._scorer.labels
        for label in self.vocabulary_.below(branch, labels):
            if label == target:
                raise InputError(f"'{target}' lies below '{branch}'; rename it first.")
            from polyseme.base.paths import moved

            new_path = moved(label, branch, target, self.vocabulary_.separator)
            column = self._column_by_key.get(self._key(new_path))
            if column is None:
                new_names[label] = new_path
            else:
                pairs.append((label, labels[column]))
        return pairs, new_names

    def _distinct_labels(self, pair: object) -> tuple[str, str]:
        """Return two known labels under their own names; raise for anything else."""
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            raise InputError(f"A pair of labels to merge must be two texts; got {shown(pair)}.")
        labels = self._scorer.labels
        source, target = (labels[self._column(label)] for label in pair)
        if source == target:
            raise InputError(f"'{pair[0]}' and '{pair[1]}' are one label already.")
        return source, target

    def _merge_in_documents(self, pairs: Collection[tuple[str, str]]) -> None:
        """Merge labels that documents hold; documents are encoded once."""
        vocabulary = self.vocabulary_
        merged_labels = []
        for label, into in pairs:
            source = vocabulary.resolve(label)
            target = vocabulary.resolve(into)
            if source != target:  # a pair before has not made them one
                vocabulary = vocabulary.naming(source, target)
                merged_labels.append(source)
        if merged_labels:
            targets = {label: vocabulary.resolve(label) for label in merged_labels}
            store = self.store_.merged(self.space_, targets)
            self._update(store_=store, vocabulary_=vocabulary)

    def _merge_named(self, label: str, into: str) -> None:
        """Merge two labels of which no document holds one or both, unless they are one already."""
        labels = self._scorer.labels
        source = labels[self._column(label)]
        target = labels[self._column(into)]
        if source == target:
            return
        has_source_documents = source in self.store_.labels
        has_target_documents = target in self.store_.labels
        if has_source_documents and has_target_documents:
            self._merge_in_documents([(source, target)])
            return
        vocabulary = self.vocabulary_.naming(source, target)
        if has_source_documents:
            # The documents take the other name, and with it the verdicts that were given on it.
            named = _without(self.named_, {target})
            self._rename(source, target, named, vocabulary)
            return
        named = _without(self.named_, {source})
        self._update(named_=named, vocabulary_=vocabulary)


def suggest_merges(
    tagger: LabelChanges, vectors: object = None, most: int = 20
) -> list[SimilarLabels]:
    """Suggest labels to merge, such as card and cards, or film and movies.

    Parameters
    ----------
    tagger : ZeroShotTagger
        Fitted.
    vectors : WordVectors, mapping of str to sequence of float, callable or encoder, optional
        Vectors of labels or of their words, or what encodes them; see `label_names` of `fit`. By
        default the feature extractor encodes names, where it can, or names that are evidence are
        compared. Without any there are no suggestions by meaning.
    most : int
        How many pairs to return for each reason.

    Returns
    -------
    list of SimilarLabels
        Pairs with the reason "spelling", then those by "meaning", then those by "use" alone; the
        most alike first.
    """
    from polyseme.documents.similar_labels import similar_labels
    from polyseme.documents.word_vectors import WordVectors

    check_fitted(tagger, "store_")
    store = tagger.store_
    names = _name_vectors(tagger, vectors)
    are_words = isinstance(vectors, (WordVectors, Mapping))
    return similar_labels(store.matrix, store.labels, most, names, names_are_words=are_words)


def _name_vectors(tagger: LabelChanges, vectors: object) -> LabelNames | None:
    """Return dense vectors of the names of frequent labels; None where there are none.

    Sparse vectors are those of words and letters, which spelling compares.
    """
    from polyseme.base.extractors import name_columns
    from polyseme.documents.label_names import LabelNames, encode_names, extractor_names
    from polyseme.documents.similar_labels import FEWEST_NAMED

    store = tagger.store_
    labels = tuple(compress(store.labels, store.counts >= FEWEST_NAMED))
    if not labels:
        return None
    if vectors is not None:
        names: LabelNames | None = encode_names(vectors, labels)
    else:
        names = extractor_names(tagger.features_, labels)
        if names is not None:
            names = _dense_view(names, name_columns(tagger.features_))
        elif tagger.names_ is not None:
            evidence: Any = tagger.names_.views[0].vectors
            names = LabelNames(tagger.names_.labels, evidence)
    if names is None or sp.issparse(names.vectors):
        return None
    return names


def _dense_view(names: LabelNames, views: Sequence[NameColumns]) -> LabelNames:
    """Return names by the first dense view, such as a network's; as they are without one."""
    for view in views:
        if not view.is_sparse:
            columns: Any = names.vectors[:, view.first : view.stop]
            return names._replace(vectors=columns.toarray())
    return names


def _without(named: NamedLabels | None, labels: Collection[str]) -> NamedLabels | None:
    """Return the labels that no document holds without some of them; None where none is left."""
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
