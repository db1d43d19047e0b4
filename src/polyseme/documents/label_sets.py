"""The documents that a tagger knows: naming, matching with items' documents, adding and removing.

In: corpora. Out: labels, names and rows of the known documents. They are
encoded by `polyseme.scoring.known_documents`, and by `polyseme.published.priming` for the published
method.
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
    """Documents over labels; a model has learned the first `n_learned` of these."""

    labels: tuple[str, ...]
    n_learned: int
    ids: tuple[str, ...]  # (n_documents,)
    matrix: sp.csr_matrix  # of bool, (n_documents, n_labels)
    sets: IntArray  # (n_documents,): the distinct tag set of each, numbered as first met


def no_documents(labels: tuple[str, ...]) -> DocumentTable:
    """Return learned labels without any document."""
    matrix = sp.csr_matrix(np.zeros((0, len(labels)), dtype=bool))
    return DocumentTable(labels, len(labels), (), matrix, np.zeros(0, dtype=np.int64))


def documents_of(
    arrays: Mapping[str, NDArray[Any]], ids: Collection[str], labels: Collection[str]
) -> sp.csr_matrix:
    """Return the documents of a saved state, whose arrays were checked, as a matrix of bool."""
    matrix = matrix_of(arrays, (len(ids), len(labels)))
    matrix.sum_duplicates()
    return matrix


class AddedDocuments(NamedTuple):
    """The known documents after an addition."""

    documents: DocumentTable
    fresh: sp.csr_matrix  # of bool, (n_fresh, n_labels): distinct tag sets not known before
    ids: tuple[str, ...]  # of the added documents
    dropped: tuple[str, ...]  # of documents left out, as they hold no learned label


def with_documents(table: DocumentTable, corpus: LabelCorpus) -> AddedDocuments:
    """Add documents; labels that were not learned become new labels."""
    matrix, extra = corpus.align(table.labels)
    n_before = len(table.labels)
    learned_tags = matrix[:, : table.n_learned]
    has_learned_tag = np.diff(learned_tags.indptr) > 0
    added = matrix[has_learned_tag]

    # A label that stands in no added document does not become known.
    counts = np.asarray(added.sum(axis=0)).ravel()
    new_columns = np.flatnonzero(counts[n_before:])
    labels = table.labels + tuple(extra[column] for column in new_columns)
    names = np.asarray(new_names(corpus, table.ids), dtype=object)
    ids = tuple(names[has_learned_tag].tolist())
    dropped = tuple(names[~has_learned_tag].tolist())

    earlier: Any = table.matrix.copy()
    earlier.resize(len(table.ids), len(labels))
    columns = np.concatenate([np.arange(n_before), n_before + new_columns])
    stacked = sp.vstack([earlier, added[:, columns]], format="csr", dtype=bool)
    documents = sp.csr_matrix(stacked)
    distinct, sets = unique_rows(documents)
    # Rows met first keep their numbers, so the sets known before stay 0..n-1.
    n_sets_before = int(table.sets.max(initial=-1)) + 1
    enlarged = DocumentTable(labels, table.n_learned, table.ids + ids, documents, sets)
    return AddedDocuments(enlarged, distinct[n_sets_before:], ids, dropped)


class RemovedDocuments(NamedTuple):
    """The known documents after a removal."""

    documents: DocumentTable
    kept: NDArray[np.bool_]  # (n_documents before,)
    columns: IntArray  # (n_labels,): of the labels before


def without_documents(table: DocumentTable, ids: Collection[str]) -> RemovedDocuments:
    """Remove documents by their names; new labels left without any disappear."""
    removed = set(as_names(ids, "names of documents"))
    missing = sorted(removed - set(table.ids))
    if missing:
        name = in_words(missing[0])
        raise InputError(f"No known document is named '{name}'; nothing was removed.")
    remains = np.array([name not in removed for name in table.ids], dtype=bool)
    documents = sp.csr_matrix(table.matrix[remains])
    counts = np.asarray(documents.sum(axis=0)).ravel()
    has_column = counts > 0
    has_column[: table.n_learned] = True
    columns = np.flatnonzero(has_column)
    labels = tuple(table.labels[column] for column in columns)
    names = tuple(name for name in table.ids if name not in removed)
    _, sets = unique_rows(documents)
    matrix = sp.csr_matrix(documents[:, columns])
    remaining = DocumentTable(labels, table.n_learned, names, matrix, sets)
    return RemovedDocuments(remaining, remains, columns)


def label_column(labels: Sequence[str], label: str, *, normalize: bool) -> int:
    """Find a label's column, by any spelling with `normalize`; unknown ones are refused."""
    corpus = LabelCorpus.from_documents([[label]], normalize=normalize)
    matrix, unknown = corpus.align(labels)
    if not unknown:
        return int(matrix.indices[0])
    close = difflib.get_close_matches(label, labels, n=3)
    hint = f"; close to it: {first_few(close)}" if close else ""
    raise InputError(
        f"Unknown label '{in_words(label)}'{hint}; `classes_` (polyseme labels) names all "
        f"{len(labels)} known ones."
    )


def labels_of(table: DocumentTable, row: int) -> tuple[str, ...]:
    """Return the labels of one document."""
    start = table.matrix.indptr[row]
    stop = table.matrix.indptr[row + 1]
    columns = table.matrix.indices[start:stop]
    return tuple(table.labels[column] for column in columns)


def new_names(corpus: LabelCorpus, taken_ids: Collection[str]) -> Sequence[str]:
    """Return names for new documents: their own, which must be free, or numbers that are free."""
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


def met_documents(corpus: LabelCorpus, label_sets: LabelCorpus) -> IntArray:
    """Find items' documents among the label sets: their rows there, or -1, (n_items,)."""
    n_items = len(corpus)
    may_be_same = corpus is label_sets or (corpus.numbered and label_sets.numbered)
    if may_be_same and _are_equal(corpus, label_sets):
        return np.arange(n_items, dtype=np.int64)
    set_rows = np.full(n_items, -1, dtype=np.int64)
    if corpus.numbered or label_sets.numbered:
        return set_rows
    row_by_name = {name: row for row, name in enumerate(label_sets.ids)}
    namesakes = np.array([row_by_name.get(name, -1) for name in corpus.ids], dtype=np.int64)
    rows = np.flatnonzero(namesakes >= 0)

    # Both over the keys of labels
    numbers: dict[str, int] = {}
    item_columns = _key_columns(corpus, numbers)
    set_columns = _key_columns(label_sets, numbers)
    item_matrix = _with_columns(corpus, item_columns, len(numbers))
    set_matrix = _with_columns(label_sets, set_columns, len(numbers))
    differing: Any = item_matrix[rows] != set_matrix[namesakes[rows]]
    n_differing = np.asarray(differing.sum(axis=1)).ravel()
    equal_rows = rows[n_differing == 0]
    set_rows[equal_rows] = namesakes[equal_rows]
    return set_rows


def _are_equal(first: LabelCorpus, second: LabelCorpus) -> bool:
    """Return whether two corpora use the same labels and have the same tag sets, row by row."""
    first = first.without_unused()
    second = second.without_unused()
    if first.labels != second.labels or first.matrix.shape != second.matrix.shape:
        return False
    differing: Any = first.matrix != second.matrix
    return bool(differing.nnz == 0)


def _key_columns(corpus: LabelCorpus, numbers: dict[str, int]) -> IntArray:
    """Return the number of each label's key, (n_labels,); new keys are numbered as they are met."""
    columns = [numbers.setdefault(corpus.key(label), len(numbers)) for label in corpus.labels]
    return np.array(columns, np.int64)


def _with_columns(corpus: LabelCorpus, columns: IntArray, n_columns: int) -> sp.csr_matrix:
    """Return the documents of a corpus with their labels in other columns."""
    matrix = corpus.matrix
    entries = (matrix.data, columns[matrix.indices], matrix.indptr)
    return sp.csr_matrix(entries, shape=(len(corpus), n_columns))


def unmet_documents(corpus: LabelCorpus, label_sets: LabelCorpus) -> LabelCorpus:
    """Return the items' documents that are not among the label sets already.

    A document is the same when its name and its labels are. Documents without names are called
    `instance:ROW`, unless both corpora are the same list; a namesake with other labels is called
    `instance:NAME`.
    """
    return _unmet_rows(corpus, label_sets, np.flatnonzero(met_documents(corpus, label_sets) < 0))


def _unmet_rows(corpus: LabelCorpus, label_sets: LabelCorpus, rows: IntArray) -> LabelCorpus:
    """Return some of the items' documents under names that no label set has."""
    set_names = set(label_sets.ids)
    taken_names = set(set_names)
    if not corpus.numbered:
        taken_names.update(corpus.ids)
    names = []
    for row in rows.tolist():
        name = corpus.ids[row]
        if corpus.numbered or name in set_names:
            name = f"instance:{name}"
            while name in taken_names:
                name = f"instance:{name}"
            taken_names.add(name)
        names.append(name)
    return replace(corpus.select(rows), ids=tuple(names), numbered=False)


def join_corpora(label_sets: LabelCorpus, corpus: LabelCorpus) -> tuple[LabelCorpus, LabelCorpus]:
    """Return the label sets with the items' documents among them, and the items' documents.

    Label sets come first, then documents that are not among them. The items' documents bear the
    names that they have there, so that `met_documents` finds each of them. Documents without names
    are taken for the same ones where one of the two holds every tag set of the other.
    """
    rows = met_documents(corpus, label_sets)
    if (rows >= 0).all():
        return label_sets, corpus
    if corpus.numbered or label_sets.numbered:
        rows = _equal_documents(corpus, label_sets)
    fresh = np.flatnonzero(rows < 0)

    new = _unmet_rows(corpus, label_sets, fresh)
    names = [label_sets.ids[row] for row in rows]
    for row, name in zip(fresh.tolist(), new.ids, strict=True):
        names[row] = name
    documents = replace(corpus, ids=tuple(names), numbered=False)

    matrix, extra = new.without_unused().align(label_sets.labels)
    first: Any = label_sets.matrix.copy()
    first.resize(len(label_sets), matrix.shape[1])
    joined = replace(
        label_sets,
        labels=label_sets.labels + extra,
        matrix=sp.csr_matrix(sp.vstack([first, matrix], format="csr", dtype=bool)),
        ids=label_sets.ids + new.ids,
        groups=_join_groups(label_sets, corpus, rows),
        splits=None,
        numbered=False,
    )
    return joined, documents


def _equal_documents(corpus: LabelCorpus, label_sets: LabelCorpus) -> IntArray:
    """Find each item's tag set among the label sets, every one of these at most once, (n_items,).

    All are -1 unless one of the two holds every tag set of the other; an empty one is never found.
    """
    n_items = len(corpus)
    no_rows = np.full(n_items, -1, dtype=np.int64)
    numbers: dict[str, int] = {}
    set_tags = _numbered_tags(label_sets, label_sets.key, numbers)
    item_tags = _numbered_tags(corpus, label_sets.key, numbers)
    rows_by_tags: dict[frozenset[int], list[int]] = {}
    for row in reversed(range(len(label_sets))):
        tags = set_tags[row]
        rows = rows_by_tags.setdefault(tags, [])
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


def _numbered_tags(
    corpus: LabelCorpus, key: Callable[[str], str], numbers: dict[str, int]
) -> list[frozenset[int]]:
    """Return the tags of each document as numbers, which are given to keys as they are met."""
    label_numbers: list[int] = []
    for label in corpus.labels:
        number = numbers.setdefault(key(label), len(numbers))
        label_numbers.append(number)
    columns = corpus.matrix.indices.tolist()
    tag_numbers = [label_numbers[column] for column in columns]
    bounds = itertools.pairwise(corpus.matrix.indptr.tolist())
    return [frozenset(tag_numbers[start:stop]) for start, stop in bounds]


def teaching_corpora(
    corpus: LabelCorpus, label_sets: LabelCorpus | None, *, label_sets_only: bool
) -> tuple[LabelCorpus, LabelCorpus]:
    """Return the tag sets that teach the meaning of labels, and the items' documents.

    Parameters
    ----------
    corpus : LabelCorpus
        The items' documents, which teach as well.
    label_sets : LabelCorpus or None
        Further ones.
    label_sets_only : bool
        Whether the label sets alone teach.
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
    n_missing = len(labels) - len(label_sets.used(labels))
    if 2 * n_missing > len(labels):
        warnings.warn(
            f"{n_missing} of the {len(labels)} tags of the items are in no label set and will be "
            "ranked badly (oov); without `label_sets_only` the items' tag sets teach as well.",
            PolysemeWarning,
            stacklevel=5,
        )


def _join_groups(
    label_sets: LabelCorpus, corpus: LabelCorpus, rows: IntArray
) -> tuple[str, ...] | None:
    """Return the groups of label sets and of the items' documents that are not among them.

    `rows` (n_items,) are the rows of the items' documents among the label sets, or -1. Where one of
    the two has no groups, each of its documents is a group of its own.
    """
    if label_sets.groups is None and corpus.groups is None:
        return None
    item_groups = corpus.groups or tuple(f"item {row}" for row in range(len(corpus)))
    if label_sets.groups is None:
        set_groups = [f"document {row}" for row in range(len(label_sets))]
        for item in np.flatnonzero(rows >= 0).tolist():
            set_groups[rows[item]] = item_groups[item]
    else:
        set_groups = list(label_sets.groups)
    new_items = np.flatnonzero(rows < 0).tolist()
    new_groups = [item_groups[item] for item in new_items]
    return (*set_groups, *new_groups)


class TrainingTables(NamedTuple):
    """The documents and groups that a space is fitted with, beside features."""

    documents: sp.csr_matrix  # (m, n_labels): label sets, then items' documents not among them
    item_documents: IntArray  # (n,): the document of each item
    groups: IntArray | None  # (m,)
    n_label_sets: int  # how many documents are label sets


def training_tables(corpus: LabelCorpus, label_sets: LabelCorpus, labels: Labels) -> TrainingTables:
    """Put items' documents and label sets, which may be the same, over one list of labels."""
    item_matrix = _matrix_over(corpus, labels)
    set_matrix = _matrix_over(label_sets, labels)
    n_sets = set_matrix.shape[0]
    item_documents = met_documents(corpus, label_sets)
    groups = _join_groups(label_sets, corpus, item_documents)
    new_items = np.flatnonzero(item_documents < 0)
    item_documents[new_items] = n_sets + np.arange(len(new_items))
    stacked = sp.vstack([set_matrix, item_matrix[new_items]], format="csr")
    documents = sp.csr_matrix(stacked)
    numbers = group_numbers(groups, documents.shape[0])
    return TrainingTables(documents, item_documents, numbers, n_sets)


def _matrix_over(corpus: LabelCorpus, labels: Labels) -> sp.csr_matrix:
    """Return the documents over some labels, without the labels that only they have."""
    matrix, _ = corpus.align(labels)
    return sp.csr_matrix(matrix[:, : len(labels)], dtype=np.float64)
