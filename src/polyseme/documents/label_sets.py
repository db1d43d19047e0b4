"""The documents that a tagger knows: naming, matching with items' documents, adding and removing.

In: corpora. Out: labels, names and rows of the known documents. They are encoded by
`polyseme.scoring.known_documents`, and by `polyseme.published.priming` for the published method.

Terms: *label sets* are a corpus whose documents teach what labels mean; *items' documents* are a
corpus with the tags of each training item. A document of an item is *matched* where the label sets
hold the same one. A *learned* label was in the label sets of the fit; a *new* one came later, with
documents that were added. The *key* of a label is the form by which its corpus compares spellings.
"""

from __future__ import annotations

import difflib
import itertools
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from polyseme.base.folds import group_numbers
from polyseme.base.text import in_words
from polyseme.base.validation import InputError, IntArray, PolysemeWarning, as_names, first_few
from polyseme.documents.corpus import LabelCorpus, Labels, unique_rows
from polyseme.storage.array_checks import matrix_of


class DocumentTable(NamedTuple):
    """Known documents over labels; nobody changes one, additions and removals return another.

    Attributes
    ----------
    labels : tuple of str, length n_labels
        The learned labels in the order of the model, then new ones in the order of their coming.
    n_learned : int
        How many of them are learned.
    ids : tuple of str, length n_documents
        The names of the documents, unique.
    matrix : csr_matrix of bool, shape (n_documents, n_labels)
        Which document holds which label; column indices of a row rise.
    sets : int64 array, shape (n_documents,)
        The number of each document's tag set. Equal tag sets have one number, from 0 as first met.
    """

    labels: tuple[str, ...]
    n_learned: int
    ids: tuple[str, ...]
    matrix: sp.csr_matrix
    sets: IntArray


def no_documents(labels: tuple[str, ...]) -> DocumentTable:
    """Return a table of learned labels without any document."""
    n_labels = len(labels)
    no_rows = np.zeros((0, n_labels), dtype=bool)
    matrix = sp.csr_matrix(no_rows)
    no_sets = np.zeros(0, dtype=np.int64)
    return DocumentTable(labels, n_labels, (), matrix, no_sets)


def read_document_matrix(
    arrays: Mapping[str, NDArray[Any]], ids: Collection[str], labels: Collection[str]
) -> sp.csr_matrix:
    """Return the documents of a saved state, whose arrays were checked, as a matrix of bool.

    `arrays` holds `indices` and `indptr`, of shape (n_documents, n_labels).
    """
    shape = (len(ids), len(labels))
    matrix = matrix_of(arrays, shape)
    matrix.sum_duplicates()  # a stranger's file may repeat an index
    return matrix


class AddedDocuments(NamedTuple):
    """The known documents after an addition.

    Attributes
    ----------
    documents : DocumentTable
        All of them, the added ones last.
    fresh : csr_matrix of bool, shape (n_fresh, n_labels)
        The distinct tag sets that were not known before, in the order of their numbers.
    ids : tuple of str
        The names of the added documents.
    dropped : tuple of str
        The names of documents that were left out, as they hold no learned label.
    """

    documents: DocumentTable
    fresh: sp.csr_matrix
    ids: tuple[str, ...]
    dropped: tuple[str, ...]


def with_documents(table: DocumentTable, corpus: LabelCorpus) -> AddedDocuments:
    """Add documents; labels that were not learned become new labels.

    Documents without any learned label are left out: nothing says where they lie in the space.
    """
    n_known = len(table.labels)
    n_learned = table.n_learned
    # Columns: the known labels, then those that only the corpus has.
    matrix, extra_labels = corpus.align(table.labels)
    learned_tags = matrix[:, :n_learned]
    n_learned_tags = np.diff(learned_tags.indptr)
    is_added = n_learned_tags > 0
    added_matrix = matrix[is_added]

    # A label that stands in no added document does not become known.
    column_sums = added_matrix.sum(axis=0)
    n_uses = np.asarray(column_sums).ravel()
    new_numbers = np.flatnonzero(n_uses[n_known:])
    new_labels = tuple(extra_labels[number] for number in new_numbers)
    labels = table.labels + new_labels

    names = np.asarray(name_new_documents(corpus, table.ids), dtype=object)
    added_ids = tuple(names[is_added].tolist())
    dropped_ids = tuple(names[~is_added].tolist())
    ids = table.ids + added_ids

    known_matrix: Any = table.matrix.copy()
    known_matrix.resize(len(table.ids), len(labels))
    columns = np.concatenate([np.arange(n_known), n_known + new_numbers])
    added_matrix = added_matrix[:, columns]
    stacked = sp.vstack([known_matrix, added_matrix], format="csr", dtype=bool)
    documents = sp.csr_matrix(stacked)
    distinct_sets, set_numbers = unique_rows(documents)
    # Rows met first keep their numbers, so the sets known before stay 0..n-1.
    n_known_sets = int(table.sets.max(initial=-1)) + 1
    fresh_sets = distinct_sets[n_known_sets:]
    enlarged = DocumentTable(labels, n_learned, ids, documents, set_numbers)
    return AddedDocuments(enlarged, fresh_sets, added_ids, dropped_ids)


class RemovedDocuments(NamedTuple):
    """The known documents after a removal.

    Attributes
    ----------
    documents : DocumentTable
        Those that remain, in their order; tag sets are numbered anew.
    kept : bool array, shape (n_documents before,)
        Which documents of before remain.
    columns : int64 array, shape (n_labels,)
        The column that each remaining label had before.
    """

    documents: DocumentTable
    kept: NDArray[np.bool_]
    columns: IntArray


def without_documents(table: DocumentTable, ids: Collection[str]) -> RemovedDocuments:
    """Remove documents by their names; new labels left without any disappear.

    Learned labels stay: the model has places for them.
    """
    names = as_names(ids, "names of documents")
    removed_ids = set(names)
    unknown_ids = removed_ids.difference(table.ids)
    if unknown_ids:
        first_name = min(unknown_ids)
        name = in_words(first_name)
        raise InputError(f"No known document is named '{name}'; nothing was removed.")
    document_remains = [name not in removed_ids for name in table.ids]
    remains = np.array(document_remains, dtype=bool)
    remaining_rows = table.matrix[remains]
    documents = sp.csr_matrix(remaining_rows)
    column_sums = documents.sum(axis=0)
    n_uses = np.asarray(column_sums).ravel()
    label_remains = n_uses > 0
    label_remains[: table.n_learned] = True
    columns = np.flatnonzero(label_remains)
    labels = tuple(table.labels[column] for column in columns)
    remaining_ids = tuple(name for name in table.ids if name not in removed_ids)
    _, set_numbers = unique_rows(documents)
    remaining_columns = documents[:, columns]
    matrix = sp.csr_matrix(remaining_columns)
    remaining = DocumentTable(labels, table.n_learned, remaining_ids, matrix, set_numbers)
    return RemovedDocuments(remaining, remains, columns)


def label_column(labels: Sequence[str], label: str, *, normalize: bool) -> int:
    """Return a label's place in `labels`, by any spelling with `normalize`; raise for unknown ones.

    A corpus of one label finds it as tags of documents are found.
    """
    corpus = LabelCorpus.from_documents([[label]], normalize=normalize)
    matrix, unknown_labels = corpus.align(labels)
    if not unknown_labels:
        column = matrix.indices[0]
        return int(column)
    close_labels = difflib.get_close_matches(label, labels, n=3)
    hint = ""
    if close_labels:
        hint = f"; close to it: {first_few(close_labels)}"
    raise InputError(
        f"Unknown label '{in_words(label)}'{hint}; `classes_` (polyseme labels) names all "
        f"{len(labels)} known ones."
    )


def labels_of(table: DocumentTable, row: int) -> tuple[str, ...]:
    """Return the labels of one document, in column order."""
    indptr = table.matrix.indptr
    next_row = row + 1
    start = indptr[row]
    stop = indptr[next_row]
    columns = table.matrix.indices[start:stop]
    labels = [table.labels[column] for column in columns]
    return tuple(labels)


def name_new_documents(corpus: LabelCorpus, taken_ids: Collection[str]) -> Sequence[str]:
    """Return names for new documents: their own, which must be free, or numbers that are free.

    Parameters
    ----------
    corpus : LabelCorpus
        The new documents.
    taken_ids : collection of str
        The names of documents that are known already.
    """
    taken_names = set(taken_ids)
    if not corpus.numbered:
        for name in corpus.ids:
            if name in taken_names:
                raise InputError(
                    f"A document named '{name}' is known already; remove it first or rename."
                )
        return corpus.ids
    numbers = map(str, itertools.count(len(taken_names)))
    free_numbers = (number for number in numbers if number not in taken_names)
    return list(itertools.islice(free_numbers, len(corpus)))


def find_label_set_rows(corpus: LabelCorpus, label_sets: LabelCorpus) -> IntArray:
    """Find the documents of items among the label sets, by name; their tags must be equal, too.

    Corpora without names of documents are compared as a whole, row by row.

    Returns
    -------
    int64 array, shape (n_items,)
        The row of each item's document in the label sets, -1 where it is not matched. The caller's
        own.
    """
    n_items = len(corpus)
    may_be_same = corpus is label_sets or (corpus.numbered and label_sets.numbered)
    if may_be_same and _are_equal(corpus, label_sets):
        return np.arange(n_items, dtype=np.int64)
    set_rows = np.full(n_items, -1, dtype=np.int64)
    if corpus.numbered or label_sets.numbered:
        return set_rows
    row_by_name = {name: row for row, name in enumerate(label_sets.ids)}
    rows_of_names = [row_by_name.get(name, -1) for name in corpus.ids]
    namesake_rows = np.array(rows_of_names, dtype=np.int64)
    items = np.flatnonzero(namesake_rows >= 0)

    # Both matrices over the keys of labels, so that columns of one label are one column.
    column_by_key: dict[str, int] = {}
    item_columns = _columns_of_keys(corpus, column_by_key)
    set_columns = _columns_of_keys(label_sets, column_by_key)
    n_columns = len(column_by_key)
    item_matrix = _move_columns(corpus, item_columns, n_columns)
    set_matrix = _move_columns(label_sets, set_columns, n_columns)
    namesakes = set_matrix[namesake_rows[items]]
    differing: Any = item_matrix[items] != namesakes
    n_differing = np.asarray(differing.sum(axis=1)).ravel()
    equal_items = items[n_differing == 0]
    set_rows[equal_items] = namesake_rows[equal_items]
    return set_rows


def _are_equal(first: LabelCorpus, second: LabelCorpus) -> bool:
    """Return whether two corpora use the same labels and have the same tag sets, row by row."""
    first = first.without_unused()
    second = second.without_unused()
    if first.labels != second.labels:
        return False
    if first.matrix.shape != second.matrix.shape:
        return False
    differing: Any = first.matrix != second.matrix
    return bool(differing.nnz == 0)


def _columns_of_keys(corpus: LabelCorpus, column_by_key: dict[str, int]) -> IntArray:
    """Return the column of each label's key, (n_labels,).

    A key that is not in `column_by_key` yet is added to it, with the next column.
    """
    columns = []
    for label in corpus.labels:
        next_column = len(column_by_key)
        column = column_by_key.setdefault(corpus.key(label), next_column)
        columns.append(column)
    return np.array(columns, np.int64)


def _move_columns(corpus: LabelCorpus, columns: IntArray, n_columns: int) -> sp.csr_matrix:
    """Return the documents of a corpus, with label i in the column `columns[i]` of `n_columns`."""
    matrix = corpus.matrix
    indices = columns[matrix.indices]
    entries = (matrix.data, indices, matrix.indptr)
    shape = (len(corpus), n_columns)
    return sp.csr_matrix(entries, shape=shape)


def select_unmatched_documents(corpus: LabelCorpus, label_sets: LabelCorpus) -> LabelCorpus:
    """Return the items' documents that are not matched, under names that no label set has.

    A document is the same when its name and its labels are. Documents without names are called
    `instance:ROW`, unless both corpora are the same list; a namesake with other labels is called
    `instance:NAME`.
    """
    set_rows = find_label_set_rows(corpus, label_sets)
    is_unmatched = set_rows < 0
    unmatched_items = np.flatnonzero(is_unmatched)
    return _rename_unmatched(corpus, label_sets, unmatched_items)


def _rename_unmatched(corpus: LabelCorpus, label_sets: LabelCorpus, items: IntArray) -> LabelCorpus:
    """Return the documents of some items, by number, under names that no label set has."""
    set_names = set(label_sets.ids)
    taken_names = set(set_names)
    if not corpus.numbered:
        taken_names.update(corpus.ids)
    names = []
    for item in items.tolist():
        name = corpus.ids[item]
        if corpus.numbered or name in set_names:
            name = f"instance:{name}"
            while name in taken_names:
                name = f"instance:{name}"
            taken_names.add(name)
        names.append(name)
    return replace(corpus.select(items), ids=tuple(names), numbered=False)


def join_corpora(label_sets: LabelCorpus, corpus: LabelCorpus) -> tuple[LabelCorpus, LabelCorpus]:
    """Return the label sets with the items' documents among them, and the items' documents.

    Label sets come first, then documents that are not among them. The items' documents bear the
    names that they have there, so that `find_label_set_rows` finds each of them. Documents without
    names are taken for the same ones where one of the two holds every tag set of the other.
    """
    set_rows = find_label_set_rows(corpus, label_sets)
    if (set_rows >= 0).all():
        return label_sets, corpus
    if corpus.numbered or label_sets.numbered:
        set_rows = _find_equal_tag_sets(corpus, label_sets)
    unmatched_items = np.flatnonzero(set_rows < 0)

    unmatched = _rename_unmatched(corpus, label_sets, unmatched_items)
    names = [label_sets.ids[row] for row in set_rows]  # of unmatched ones any, replaced below
    for item, name in zip(unmatched_items.tolist(), unmatched.ids, strict=True):
        names[item] = name
    item_documents = replace(corpus, ids=tuple(names), numbered=False)

    unmatched_matrix, extra_labels = unmatched.without_unused().align(label_sets.labels)
    set_matrix: Any = label_sets.matrix.copy()
    set_matrix.resize(len(label_sets), unmatched_matrix.shape[1])
    stacked = sp.vstack([set_matrix, unmatched_matrix], format="csr", dtype=bool)
    joined = replace(
        label_sets,
        labels=label_sets.labels + extra_labels,
        matrix=sp.csr_matrix(stacked),
        ids=label_sets.ids + unmatched.ids,
        groups=_join_groups(label_sets, corpus, set_rows),
        splits=None,
        numbered=False,
    )
    return joined, item_documents


def _find_equal_tag_sets(corpus: LabelCorpus, label_sets: LabelCorpus) -> IntArray:
    """Find each item's tag set among the label sets, every one of these at most once, (n_items,).

    All are -1 unless one of the two holds every tag set of the other; an empty one is never found.
    """
    n_items = len(corpus)
    no_rows = np.full(n_items, -1, dtype=np.int64)
    number_by_key: dict[str, int] = {}
    set_tags = _tag_numbers_of(label_sets, label_sets.key, number_by_key)
    item_tags = _tag_numbers_of(corpus, label_sets.key, number_by_key)
    # From the last row to the first, so that `pop` takes the first one that is left.
    rows_by_tags: dict[frozenset[int], list[int]] = {}
    for row in reversed(range(len(label_sets))):
        rows = rows_by_tags.setdefault(set_tags[row], [])
        rows.append(row)

    set_rows = no_rows.copy()
    n_equal = 0
    for item, tags in enumerate(item_tags):
        equal_rows = rows_by_tags.get(tags)
        if tags and equal_rows:
            set_rows[item] = equal_rows.pop()
            n_equal += 1
    n_item_sets = np.count_nonzero(corpus.lengths)
    n_label_sets = np.count_nonzero(label_sets.lengths)
    if n_equal < min(n_item_sets, n_label_sets):
        return no_rows
    return set_rows


def _tag_numbers_of(
    corpus: LabelCorpus, key_of: Callable[[str], str], number_by_key: dict[str, int]
) -> list[frozenset[int]]:
    """Return the tags of each document as numbers of their labels' keys.

    A key that is not in `number_by_key` yet is added to it, with the next number.
    """
    number_by_column: list[int] = []
    for label in corpus.labels:
        next_number = len(number_by_key)
        number = number_by_key.setdefault(key_of(label), next_number)
        number_by_column.append(number)
    columns = corpus.matrix.indices.tolist()
    tag_numbers = [number_by_column[column] for column in columns]
    row_bounds = itertools.pairwise(corpus.matrix.indptr.tolist())
    return [frozenset(tag_numbers[start:stop]) for start, stop in row_bounds]


def teaching_corpora(
    corpus: LabelCorpus, label_sets: LabelCorpus | None, *, label_sets_only: bool
) -> tuple[LabelCorpus, LabelCorpus]:
    """Return the tag sets that teach the meaning of labels, and the items' documents.

    Parameters
    ----------
    corpus : LabelCorpus
        The items' documents, which teach as well.
    label_sets : LabelCorpus or None
        Further tag sets.
    label_sets_only : bool
        Whether the label sets alone teach.

    Returns
    -------
    teaching, item_documents : LabelCorpus
        The second is `corpus`, under the names that its documents have among the first.
    """
    if label_sets is None:
        if label_sets_only:
            raise InputError("`label_sets_only` needs `label_sets`, which teach alone then.")
        return corpus, corpus
    if label_sets_only:
        _warn_few_taught(corpus, label_sets)
        return label_sets, corpus
    return join_corpora(label_sets, corpus)


def _warn_few_taught(corpus: LabelCorpus, label_sets: LabelCorpus) -> None:
    """Warn where most tags of the items are in no label set, so that nothing teaches them."""
    labels = corpus.without_unused().labels
    n_labels = len(labels)
    n_taught = len(label_sets.used(labels))
    n_missing = n_labels - n_taught
    if 2 * n_missing > n_labels:
        warnings.warn(
            f"{n_missing} of the {n_labels} tags of the items are in no label set and will be "
            "ranked badly (oov); without `label_sets_only` the items' tag sets teach as well.",
            PolysemeWarning,
            stacklevel=5,
        )


def _join_groups(
    label_sets: LabelCorpus, corpus: LabelCorpus, set_rows: IntArray
) -> tuple[str, ...] | None:
    """Return the groups of the label sets, then those of items' documents that are not matched.

    Where one of the two corpora has no groups, each of its documents is a group of its own; a
    matched label set has that of its item then. None where neither has any.

    Parameters
    ----------
    label_sets, corpus : LabelCorpus
    set_rows : int64 array, shape (n_items,)
        As `find_label_set_rows` returns them.
    """
    if label_sets.groups is None and corpus.groups is None:
        return None
    item_groups = corpus.groups
    if item_groups is None:
        item_groups = tuple(f"item {item}" for item in range(len(corpus)))
    if label_sets.groups is None:
        set_groups = [f"document {row}" for row in range(len(label_sets))]
        matched_items = np.flatnonzero(set_rows >= 0).tolist()
        for item in matched_items:
            set_groups[set_rows[item]] = item_groups[item]
    else:
        set_groups = list(label_sets.groups)
    unmatched_items = np.flatnonzero(set_rows < 0).tolist()
    unmatched_groups = [item_groups[item] for item in unmatched_items]
    return (*set_groups, *unmatched_groups)


class TrainingTables(NamedTuple):
    """The documents and groups that a space is fitted with, beside features.

    Attributes
    ----------
    documents : csr_matrix of float64, shape (n_documents, n_labels)
        0 and 1: label sets, then items' documents that are not among them.
    item_documents : int64 array, shape (n_items,)
        The row of each item's document.
    groups : int64 array, shape (n_documents,), or None
        The number of each document's group; None where there are no groups.
    n_label_sets : int
        How many of the documents are label sets.
    """

    documents: sp.csr_matrix
    item_documents: IntArray
    groups: IntArray | None
    n_label_sets: int


def training_tables(corpus: LabelCorpus, label_sets: LabelCorpus, labels: Labels) -> TrainingTables:
    """Put items' documents and label sets, which may be the same, over one list of labels."""
    item_matrix = _matrix_over(corpus, labels)
    set_matrix = _matrix_over(label_sets, labels)
    n_sets = set_matrix.shape[0]
    item_documents = find_label_set_rows(corpus, label_sets)
    groups = _join_groups(label_sets, corpus, item_documents)
    unmatched_items = np.flatnonzero(item_documents < 0)
    item_documents[unmatched_items] = n_sets + np.arange(len(unmatched_items))
    stacked = sp.vstack([set_matrix, item_matrix[unmatched_items]], format="csr")
    documents = sp.csr_matrix(stacked)
    numbers_of_groups = group_numbers(groups, documents.shape[0])
    return TrainingTables(documents, item_documents, numbers_of_groups, n_sets)


def _matrix_over(corpus: LabelCorpus, labels: Labels) -> sp.csr_matrix:
    """Return documents over `labels` alone, 0 and 1 in float64, (n_documents, n_labels)."""
    n_labels = len(labels)
    matrix, _ = corpus.align(labels)
    matrix_of_labels = matrix[:, :n_labels]
    return sp.csr_matrix(matrix_of_labels, dtype=np.float64)
