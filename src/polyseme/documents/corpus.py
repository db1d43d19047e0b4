"""Label documents over one vocabulary, from tag sets of any form.

In: collections of labels, columns of tags, files, or an indicator matrix. Out: a `LabelCorpus`,
which holds a sparse document-label matrix, the vocabulary in column order and the documents' ids.

Terms: a *document* is the labels that occur together on one item. An *indicator* is a 0/1 matrix
with a row for each document and a column for each label. A *spelling* is a label as somebody wrote
it; its *key* is the form by which spellings are compared, so that several may be one label.
"""

from __future__ import annotations

import itertools
import os
import unicodedata
import warnings
from array import array
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from polyseme.base.text import in_words, is_text, shown
from polyseme.base.validation import (
    InputError,
    PolysemeWarning,
    RowError,
    check_compressed,
    check_iterable,
    check_path,
    check_sparse,
    first_few,
    is_pandas,
    repeated,
)

if TYPE_CHECKING:
    from polyseme.io import Table

# What functions take: one document, labels in the order of columns, documents in any form.
Document: TypeAlias = Collection[str]
Labels: TypeAlias = Sequence[str] | NDArray[np.object_]
Documents: TypeAlias = (
    "LabelCorpus | Iterable[Document] | NDArray[np.generic] | sp.spmatrix | sp.sparray | str | Path"
)

# A label is a word or a short phrase; longer ones are several that were not split.
MOST_LETTERS = 1000


def normalize_label(label: str) -> str:
    """Return the form by which two spellings count as one label.

    Unicode is composed (NFC), letters are case-folded, white space at the ends is cut and inner
    runs of it become one space. `"  New   York"` and `"new york"` are one label. Models on disk
    hold such forms: another rule would not find their labels.
    """
    # Folding can take a composed letter apart, so it is composed again.
    folded = unicodedata.normalize("NFC", label).casefold()
    return " ".join(unicodedata.normalize("NFC", folded).split())


def _key(label: str, normalize: bool) -> str:
    """Return the key of a label: its normalised form, or the label itself."""
    return normalize_label(label) if normalize else label


@dataclass(frozen=True, eq=False)  # a matrix has no single truth value to compare by
class LabelCorpus:
    """Label documents over one vocabulary (in the paper: a collection Δ over Γ).

    Build one with `from_documents`, `from_indicator` or `read`; every method that takes documents
    also takes any of these forms directly. Nobody changes a corpus: methods return another one.

    Attributes
    ----------
    labels : tuple of str, length n_labels
        The vocabulary in column order, each label in its most frequent spelling (of equally
        frequent ones the first in sorted order), white space tidied.
    matrix : csr_matrix of bool, shape (n_documents, n_labels)
        Which document holds which label; sparse, never densified whole. No entry is stored twice,
        and none is False.
    ids : tuple of str, length n_documents
        A name for each document, unique.
    groups, splits : tuple of str or None
        What the source says about the documents (artist, train/test), where it does.
    numbered : bool
        Whether the ids are mere numbers that were made up here.
    normalize : bool
        Whether labels that differ only in case or white space were taken as one.
    spellings : dict of str to str
        Every spelling met that is not the label's own, with the label it became. Together with
        `labels` this makes the normalisation reversible.
    """

    labels: tuple[str, ...]
    matrix: sp.csr_matrix
    ids: tuple[str, ...]
    groups: tuple[str, ...] | None = None
    splits: tuple[str, ...] | None = None
    numbered: bool = False
    normalize: bool = True
    spellings: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Raise for a matrix that is not sound, or not of a row for each id and a column a label.

        Compiled code trusts its indices, and callers may have built it by themselves.
        """
        matrix: Any = self.matrix
        if getattr(matrix, "format", None) != "csr":
            raise InputError("`matrix` of `LabelCorpus` must be a CSR matrix.")
        n_rows, n_columns = matrix.shape
        subject = "`matrix` of `LabelCorpus`"
        check_compressed(matrix.indices, matrix.indptr, n_rows, n_columns, subject)
        n_ids = len(self.ids)
        n_labels = len(self.labels)
        if n_rows != n_ids or n_columns != n_labels:
            raise InputError(
                f"{subject} holds {n_rows} documents of {n_columns} labels, but there are "
                f"{n_ids} ids and {n_labels} labels."
            )

    # ------------------------------------------------------------------ making one

    @classmethod
    def from_documents(
        cls,
        documents: Iterable[Document],
        *,
        ids: Sequence[str] | None = None,
        normalize: bool = True,
        delimiter: str | None = None,
    ) -> LabelCorpus:
        """Build a corpus from collections of labels; these come in sorted order.

        Parameters
        ----------
        documents : iterable of collections of str
            One collection per document. A label named twice counts once; an empty collection is
            kept as a document without labels. With `delimiter`, texts.
        ids : sequence of str, optional
            A unique name per document; by default "0", "1", ….
        normalize : bool
            Whether labels that differ only in case or white space are one label.
        delimiter : str, optional
            What stands between two labels, where each document is a text.
        """
        if delimiter is not None:
            from polyseme.io.tag_cells import parse_tag_cells

            documents = parse_tag_cells(documents, delimiter)
        check_iterable(documents, "documents")
        # A CSR matrix with a column for each spelling, as first met.
        column_by_spelling: dict[str, int] = {}
        indices = array("q")
        indptr = array("q", [0])
        for number, document in enumerate(documents):
            place = f"Document {number}"
            for spelling in _checked_labels(document, place):
                next_column = len(column_by_spelling)
                column = column_by_spelling.setdefault(spelling, next_column)
                indices.append(column)
            indptr.append(len(indices))
        spellings = list(column_by_spelling)
        return cls._join_columns(spellings, indices, indptr, ids, normalize, in_order=True)

    @classmethod
    def from_indicator(
        cls,
        matrix: Any,
        labels: Sequence[str] | None = None,
        *,
        ids: Sequence[str] | None = None,
        normalize: bool = True,
    ) -> LabelCorpus:
        """Build a corpus from a 0/1 document-label matrix; labels keep the order of the columns.

        Parameters
        ----------
        matrix : array or scipy sparse, shape (n_documents, n_labels)
            Sparse stays sparse.
        labels : sequence of str, length n_labels, optional
            The label of each column, by default its number; columns whose labels are one after
            normalisation are joined.
        ids, normalize
            As in `from_documents`.
        """
        indicator = _indicator_matrix(matrix)
        indices = indicator.indices
        indptr = indicator.indptr
        n_columns = indicator.shape[1]
        if labels is None:
            labels = [str(column) for column in range(n_columns)]
        spellings = list(_checked_labels(labels, "`labels`"))
        n_labels = len(spellings)
        if n_labels != n_columns:
            raise InputError(
                f"The indicator matrix has {n_columns} columns but {n_labels} labels were given; "
                "give one label per column."
            )
        return cls._join_columns(spellings, indices, indptr, ids, normalize)

    @classmethod
    def _join_columns(
        cls,
        column_spellings: list[str],
        indices: Any,
        indptr: Any,
        ids: Sequence[str] | None,
        normalize: bool,
        in_order: bool = False,
    ) -> LabelCorpus:
        """Return the corpus of a CSR matrix whose columns may be spellings of one label.

        Parameters
        ----------
        column_spellings : list of str, length n_columns
            The label of each column, as written.
        indices, indptr : arrays of int, shapes (n_entries,) and (n_documents + 1,)
            The matrix; a document may hold a column several times.
        ids : sequence of str, length n_documents, or None
        normalize : bool
        in_order : bool
            Whether labels come in sorted order of their keys; else as columns do.
        """
        keys = [_key(spelling, normalize) for spelling in column_spellings]
        distinct_keys = sorted(set(keys)) if in_order else list(dict.fromkeys(keys))
        n_labels = len(distinct_keys)
        number_by_key = {key: number for number, key in enumerate(distinct_keys)}
        label_numbers = np.array([number_by_key[key] for key in keys], dtype=np.int64)
        entry_columns = np.asarray(indices, dtype=np.int64)
        row_starts = np.asarray(indptr, dtype=np.int64)
        n_documents = len(row_starts) - 1
        values = np.ones(len(entry_columns), dtype=bool)
        entries = (values, label_numbers[entry_columns], row_starts)
        matrix = sp.csr_matrix(entries, shape=(n_documents, n_labels))
        matrix.sum_duplicates()

        # Each label gets its most frequent spelling; ties go by sorted order.
        uses_by_label: list[Counter[str]] = [Counter() for _ in distinct_keys]
        column_uses = np.bincount(entry_columns, minlength=len(column_spellings)).tolist()
        columns = zip(column_spellings, label_numbers, column_uses, strict=True)
        for written, number, n_uses in columns:
            tidied = " ".join(written.split()) if normalize else written
            uses_by_label[number][tidied] += n_uses
        labels = tuple(map(_most_frequent, uses_by_label))
        spellings = {}
        for written, number in zip(column_spellings, label_numbers, strict=True):
            label = labels[number]
            if written != label:
                spellings[written] = label
        return cls(
            labels,
            matrix,
            _check_ids(ids, n_documents),
            numbered=ids is None,
            normalize=normalize,
            spellings=spellings,
        )

    @classmethod
    def read(
        cls,
        path: str | Path,
        *,
        tags_column: str | None = None,
        delimiter: str | None = None,
        normalize: bool = True,
        strict: bool = False,
    ) -> LabelCorpus:
        """Read a corpus from a table: JSONL, CSV, Parquet, an indicator `.npz`, ARFF and others.

        Parameters
        ----------
        path : str or Path
            The file or folder; `polyseme.io.read_table` lists the forms.
        tags_column, delimiter : str, optional
            The column that holds the tags, and what stands between two tags of a text; see
            `polyseme.io.read_table`.
        normalize : bool
            As in `from_documents`.
        strict : bool
            Whether ids that stand more than once are refused; otherwise their tags are united.
        """
        from polyseme.io import read_documents

        table = read_documents(
            path,
            tags_column=tags_column,
            delimiter=delimiter,
            strict=strict,
        )
        name = Path(path).name
        return cls.of_table(table, name, normalize=normalize)

    @classmethod
    def of_table(cls, table: Table, name: str, *, normalize: bool = True) -> LabelCorpus:
        """Build a corpus from the documents of a table that was read.

        Parameters
        ----------
        table : Table
            As `polyseme.io.read_table` returns it, with tags.
        name : str
            What it is called in warnings.
        normalize : bool
            As in `from_documents`.
        """
        table = table.merged(name)
        label_sets = table.label_sets
        options: dict[str, Any] = {"ids": table.ids, "normalize": normalize}
        if label_sets is not None:
            _warn_misread(label_sets, name)
            corpus = cls.from_documents(label_sets, **options)
        else:
            corpus = cls.from_indicator(table.indicator, table.labels, **options)
        groups = None
        if table.groups is not None:
            groups = tuple(table.groups)
        splits = None
        if table.splits is not None:
            splits = tuple(table.splits)
        return replace(corpus, groups=groups, splits=splits)

    # ------------------------------------------------------------------ its documents and labels

    def __repr__(self) -> str:
        """Return its size and first labels, in a line."""
        listed = first_few(self.labels, most=3)
        n_labels = len(self.labels)
        return f"LabelCorpus({len(self)} documents, {n_labels} labels: {listed})"

    @property
    def shape(self) -> tuple[int, ...]:
        """One document a row; scikit-learn counts rows by this."""
        return (len(self),)

    def __getitem__(self, rows: Any) -> Any:
        """Return one document by its number, or `select` some; scikit-learn splits by this."""
        if isinstance(rows, tuple):
            rows = rows[0]  # scikit-learn may index by rows and columns
        if isinstance(rows, (int, np.integer)):
            return self.document(int(rows))
        if isinstance(rows, slice):
            all_rows = np.arange(len(self))
            rows = all_rows[rows]
        return self.select(rows)

    def __len__(self) -> int:
        """Count the documents."""
        return int(self.matrix.shape[0])

    def __iter__(self) -> Iterator[tuple[str, ...]]:
        """Iterate over the documents as tuples of labels."""
        for row in range(len(self)):
            yield self.document(row)

    def document(self, row: int) -> tuple[str, ...]:
        """Return the labels of one document, in column order; negative rows count from the end."""
        n_documents = len(self)
        is_number = isinstance(row, (int, np.integer))
        if not is_number or not -n_documents <= row < n_documents:
            raise RowError(f"Document {shown(row)} is out of range: there are {n_documents}.")
        row_from_start = range(n_documents)[row]
        indptr = self.matrix.indptr
        next_row = row_from_start + 1
        start = indptr[row_from_start]
        stop = indptr[next_row]
        columns = self.matrix.indices[start:stop]
        labels = [self.labels[column] for column in columns]
        return tuple(labels)

    def key(self, label: str) -> str:
        """Return the key of a label, the form by which this corpus compares spellings."""
        return _key(label, self.normalize)

    @property
    def counts(self) -> NDArray[np.int64]:
        """How many documents hold each label, (n_labels,)."""
        column_sums = self.matrix.sum(axis=0)
        return np.asarray(column_sums, dtype=np.int64).ravel()

    @property
    def lengths(self) -> NDArray[np.int64]:
        """How many labels each document has, (n_documents,)."""
        return np.diff(self.matrix.indptr)

    def select(self, rows: NDArray[np.generic] | Sequence[int]) -> LabelCorpus:
        """Return the corpus of some documents, in the order of `rows`, over the same vocabulary.

        Parameters
        ----------
        rows : array of int or bool, shape (n_selected,) or (n_documents,)
            Row numbers, each at most once, or which rows to keep.
        """
        row_numbers = self._row_numbers(rows)
        n_distinct = len(np.unique(row_numbers))
        if n_distinct != len(row_numbers):
            raise InputError("`rows` of `LabelCorpus.select` name a document twice; drop repeats.")

        def select(texts: tuple[str, ...] | None) -> tuple[str, ...] | None:
            if texts is None:
                return None
            return tuple(texts[row] for row in row_numbers)

        return replace(
            self,
            matrix=sp.csr_matrix(self.matrix[row_numbers]),
            ids=select(self.ids) or (),
            groups=select(self.groups),
            splits=select(self.splits),
        )

    def _row_numbers(self, rows: Any) -> NDArray[np.int64]:
        """Return the numbers, from 0, of rows that are named by numbers or by a mask."""
        all_rows = np.arange(len(self))
        try:
            index = np.asarray(rows)
            if not index.size:
                index = index.astype(np.int64)  # an empty list becomes floats
            row_numbers = all_rows[index]
        except (IndexError, TypeError, ValueError, OverflowError):
            row_numbers = None
        if row_numbers is None or row_numbers.ndim != 1:
            raise RowError(
                f"Rows are chosen by a list of numbers from 0 to {len(self) - 1}, or by which to "
                f"keep; got {shown(rows)}."
            )
        return np.asarray(row_numbers)

    def restrict(self, labels: Collection[str]) -> LabelCorpus:
        """Return the corpus over some of the labels only, in this corpus' column order.

        Documents keep their rows; one that holds none of the labels becomes empty.
        """
        wanted_keys = {self.key(label) for label in labels}
        columns: list[int] = []
        remaining: list[str] = []
        for column, label in enumerate(self.labels):
            key = self.key(label)
            if key in wanted_keys:
                columns.append(column)
                remaining.append(label)
        spellings = {}
        for spelling, label in self.spellings.items():
            key = self.key(label)
            if key in wanted_keys:
                spellings[spelling] = label
        remaining_columns = np.array(columns, dtype=np.int64)
        matrix = self.matrix[:, remaining_columns]
        return replace(
            self,
            labels=tuple(remaining),
            matrix=sp.csr_matrix(matrix),
            spellings=spellings,
        )

    def used(self, labels: Labels) -> frozenset[str]:
        """Return those of the given labels that some document holds, in their given spelling."""
        used_keys = {self.key(label) for label in self._used_labels()}
        return frozenset(label for label in labels if self.key(label) in used_keys)

    def _used_labels(self) -> NDArray[np.object_]:
        """Return the labels that some document holds."""
        labels = np.array(self.labels, dtype=object)
        return labels[self.counts > 0]

    def without_unused(self) -> LabelCorpus:
        """Return the corpus without the labels that no document uses."""
        used_labels = self._used_labels()
        if len(used_labels) == len(self.labels):
            return self
        return self.restrict(used_labels)

    def align(self, labels: Labels) -> tuple[sp.csr_matrix, tuple[str, ...]]:
        """Return the documents over another vocabulary, `labels`.

        Returns
        -------
        matrix : csr_matrix of bool, shape (n_documents, n_labels + n_extra)
            The other vocabulary's columns first, then one per label that it lacks. Column indices
            of a row rise.
        extra : tuple of str
            The labels that only this corpus has (and some document uses), in its column order.
        """
        n_labels = len(labels)
        column_by_key = {self.key(label): column for column, label in enumerate(labels)}
        if len(column_by_key) < n_labels:
            raise InputError(
                "Labels that differ only in case or white space are one label in one corpus and "
                "several in the other; read both with the same `normalize`."
            )
        is_used = self.counts > 0
        extra: list[str] = []
        new_columns = np.zeros(len(self.labels), dtype=np.int64)
        for column, label in enumerate(self.labels):
            key = self.key(label)
            if key not in column_by_key:
                if not is_used[column]:
                    continue  # no entry has this column, so its new one is never read
                column_by_key[key] = n_labels + len(extra)
                extra.append(label)
            new_columns[column] = column_by_key[key]
        indices = new_columns[self.matrix.indices]
        entries = (self.matrix.data, indices, self.matrix.indptr)
        aligned = sp.csr_matrix(entries, shape=(len(self), n_labels + len(extra)))
        aligned.sort_indices()
        return aligned, tuple(extra)


def as_corpus(
    y: Documents | Table | Any, labels: Sequence[str] | None = None, *, normalize: bool = True
) -> LabelCorpus:
    """Return documents in any accepted form as a corpus; one that is a corpus is returned itself.

    Parameters
    ----------
    y : Documents, Table, or a frame or column of pandas, polars or pyarrow
        None of the libraries need be installed.
    labels : sequence of str, optional
        The names of an indicator's columns; refused for other forms, which name their own.
    normalize : bool
        As in `LabelCorpus.from_documents`.
    """
    documents: Any = y
    if isinstance(documents, LabelCorpus):
        return documents

    from polyseme.io import Table
    from polyseme.io.join import split_ids
    from polyseme.io.tag_cells import parse_tag_cells

    if isinstance(documents, (str, os.PathLike)):
        place = check_path(documents, subject="A table of documents")
        return LabelCorpus.read(place, normalize=normalize)
    if isinstance(documents, Table):
        if not documents.has_tags:
            raise InputError(f"{documents!r} has no tags; name their column by `tags_column`.")
        return LabelCorpus.of_table(documents, "the table", normalize=normalize)
    if hasattr(documents, "column_names") and not is_pandas(documents):  # a table of pyarrow
        documents = documents.to_pandas()
    if is_indicator(documents):
        indicator, ids = split_ids(documents)
        is_frame = hasattr(indicator, "columns")
        if is_frame and labels is None:
            labels = [str(name) for name in indicator.columns]
        if is_frame:
            indicator = indicator.to_numpy()
        return LabelCorpus.from_indicator(indicator, labels, ids=ids, normalize=normalize)
    if labels is None and hasattr(documents, "columns"):
        return _of_frame(documents, normalize)
    if hasattr(documents, "to_pylist"):  # an array of pyarrow
        documents = documents.to_pylist()
    elif labels is None and _is_column(documents):
        label_sets = parse_tag_cells(documents)
        _warn_misread(label_sets, "the column of tags")
        return LabelCorpus.from_documents(label_sets, normalize=normalize)
    if labels is not None:
        raise InputError("`labels` belongs to an indicator matrix; these documents name their own.")
    if not isinstance(documents, Iterable):
        raise InputError(
            "Documents must be collections of labels, a LabelCorpus, an indicator matrix with "
            f"labels, or a file; got {type(documents).__name__}."
        )
    return LabelCorpus.from_documents(documents, normalize=normalize)


def is_indicator(documents: object) -> bool:
    """Return whether documents have the form of an indicator: numbers in rows and columns.

    That is an array, a sparse matrix, or a frame of numbers beside `id`. Whether they are 0 and 1
    is left to `LabelCorpus.from_indicator`.
    """
    if isinstance(documents, np.ndarray):
        is_numeric = documents.dtype.kind in "biuf"
        return is_numeric and documents.ndim == 2
    from polyseme.io import Table

    has_columns = hasattr(documents, "columns")
    if not has_columns or isinstance(documents, Table):
        return bool(sp.issparse(documents))
    frame: Any = documents
    is_arrow = hasattr(frame, "column_names") and not is_pandas(frame)
    if is_arrow:
        first_row = frame.slice(0, 1)
        frame = first_row.to_pandas()
    label_columns = [name for name in frame.columns if name != "id"]
    return all(_is_numeric(frame[name]) for name in label_columns)


def in_order_of(X: Any, y: Any, corpus: LabelCorpus) -> tuple[Any, LabelCorpus]:
    """Return X without its column `id`, and the documents in the order of its rows.

    See `polyseme.io.join.pair_rows`. `corpus` is what `as_corpus` made of `y`.
    """
    from polyseme.io.join import pair_rows

    document_ids = None
    if not corpus.numbered:
        document_ids = corpus.ids
    features, document_rows = pair_rows(X, y, document_ids)
    if document_rows is None:
        return features, corpus
    ordered = corpus.select(document_rows)
    return features, ordered


def _is_column(documents: Any) -> bool:
    """Return whether documents are a column of a frame, or an array, that holds text."""
    is_array = isinstance(documents, np.ndarray) and documents.ndim == 1
    has_list = hasattr(documents, "to_list")
    is_series = has_list and hasattr(documents, "dtype")
    if not (is_array or is_series):
        return False
    cells: Any = documents
    return any(isinstance(cell, str) for cell in cells)


def _is_numeric(column: Any) -> bool:
    """Return whether a column of pandas or polars holds numbers."""
    dtype = column.dtype
    kind = getattr(dtype, "kind", None)
    if kind is not None:
        return kind in "biuf"
    return bool(dtype.is_numeric()) or str(dtype) == "Boolean"


def _of_frame(frame: Any, normalize: bool) -> LabelCorpus:
    """Build a corpus from a frame with a column of tags, and an `id`, `group` or `split`."""
    from polyseme.io import Table
    from polyseme.io.columns import TAG_COLUMNS, as_texts, find_fields
    from polyseme.io.tag_cells import parse_tag_cells

    columns = [str(name) for name in frame.columns]
    field_by_column = find_fields(columns)
    candidates = [column for column in columns if column not in field_by_column]
    usual_columns = [column for column in candidates if column in TAG_COLUMNS]
    if len(usual_columns) == 1:
        tags_column = usual_columns[0]
    elif len(candidates) == 1:
        tags_column = candidates[0]
    else:
        raise InputError(
            f"A frame of documents needs its tags in one column `tags` or `labels`, or 0/1 columns "
            f"only; got {first_few(columns)}."
        )
    fields: dict[str, Any] = {}
    for column, field_name in field_by_column.items():
        cells = frame[column].to_list()
        fields[field_name] = as_texts(cells, column, "Document {}".format)
    tag_cells = frame[tags_column].to_list()
    label_sets = parse_tag_cells(tag_cells, column=tags_column)
    table = Table(label_sets=label_sets, **fields)
    return LabelCorpus.of_table(table, f"the column '{tags_column}'", normalize=normalize)


def _warn_misread(label_sets: Sequence[Sequence[str]], name: str) -> None:
    """Warn where the tags of documents look misread; `name` is what the warning calls them."""
    from polyseme.io.tag_cells import diagnose_tags

    diagnosis = diagnose_tags(label_sets)
    if diagnosis is not None:
        warnings.warn(
            f"Tags of {name} may be misread: {diagnosis}. What stands between two tags is said by "
            "`delimiter` (--delimiter), their column by `tags_column` (--tags-column).",
            PolysemeWarning,
            stacklevel=4,
        )


def check_corpus(corpus: LabelCorpus, *, owner: str, n_labels: int = 2) -> LabelCorpus:
    """Return a corpus itself, or raise unless its documents use at least `n_labels` labels.

    A warning counts documents without labels. `owner` is the class or method that needs them.
    """
    n_empty = check_labels(corpus, owner=owner, n_labels=n_labels)
    if n_empty:
        message = f"{n_empty} of {len(corpus)} documents have no label and teach nothing."
        warnings.warn(message, PolysemeWarning, stacklevel=3)
    return corpus


def check_labels(corpus: LabelCorpus, *, owner: str, n_labels: int = 2) -> int:
    """Return how many documents have no label, or raise unless at least `n_labels` are in use."""
    n_documents = len(corpus)
    if n_documents == 0:
        raise InputError(f"`{owner}` got no documents; pass at least two with labels.")
    is_empty = corpus.lengths == 0
    n_empty = int(is_empty.sum())
    if n_empty == n_documents:
        raise InputError(f"All {n_documents} documents given to `{owner}` are empty.")
    n_used = np.count_nonzero(corpus.counts)
    if n_used < n_labels:
        columns = corpus.matrix.indices
        first_column = int(columns[0])
        label = corpus.labels[first_column]
        raise InputError(f"`{owner}` needs at least two different labels; got only '{label}'.")
    return n_empty


def unique_rows(documents: sp.csr_matrix) -> tuple[sp.csr_matrix, NDArray[np.int64]]:
    """Return the distinct tag sets, and the number of each document's tag set.

    Parameters
    ----------
    documents : csr_matrix, shape (n_documents, n_labels)
        Without stored zeros; its column indices are put in order, in place.

    Returns
    -------
    distinct : csr_matrix, shape (n_distinct, n_labels)
        The first document of each tag set, in the order in which they are met.
    numbers : int64 array, shape (n_documents,)
        Rows of `distinct`.
    """
    documents.sort_indices()
    n_rows = documents.shape[0]
    indices = documents.indices.astype(np.int64)  # whatever type it had: their bytes are compared
    row_bounds = itertools.pairwise(documents.indptr)
    number_by_tags: dict[bytes, int] = {}
    first_rows: list[int] = []
    numbers = np.empty(n_rows, dtype=np.int64)
    for row, (start, stop) in enumerate(row_bounds):
        columns = indices[start:stop]
        tags = columns.tobytes()
        if tags not in number_by_tags:
            number_by_tags[tags] = len(first_rows)
            first_rows.append(row)
        numbers[row] = number_by_tags[tags]
    distinct = documents[first_rows]
    return sp.csr_matrix(distinct), numbers


def _checked_labels(document: object, place: str) -> Iterator[str]:
    """Yield the labels of one document as written, or raise where one of them is none.

    `place` is what errors call the document, such as "Document 3".
    """
    if isinstance(document, (str, bytes)):
        raise InputError(
            f"{place} is the text {shown(document)}; expected a collection of labels, "
            f"for example [{shown(document)}]."
        )
    if isinstance(document, Mapping):
        raise InputError(
            f"{place} is a mapping with {first_few(list(document))}; expected a collection of "
            "labels: pass its list of tags, and ids by `LabelCorpus.from_documents(…, ids=…)`."
        )
    if not isinstance(document, Iterable) or getattr(document, "ndim", 1) == 0:
        raise InputError(f"{place} is {type(document).__name__}; expected a collection of labels.")
    for label in document:
        if not isinstance(label, str):
            kind = type(label).__name__
            raise InputError(
                f"{place} holds the label {shown(label)} of type {kind}; make it a str."
            )
        if not label.strip():
            raise InputError(f"{place} holds an empty label; remove it or give it a name.")
        if len(label) > MOST_LETTERS:
            raise InputError(
                f"{place} holds a label that is {len(label)} characters long "
                f"({in_words(label, 30)}); {MOST_LETTERS} are the most: are its tags told apart?"
            )
        if not is_text(label):
            fault = "a NUL" if "\0" in label else "half of a character"
            raise InputError(f"{place} holds the label {shown(label)} with {fault}; mend it.")
        yield str(label)


def _indicator_matrix(matrix: Any) -> sp.csr_matrix:
    """Return a 0/1 matrix as a copy: boolean CSR without stored zeros or repeated entries."""
    if sp.issparse(matrix):
        matrix = check_sparse(matrix, "indicator matrix", owner="LabelCorpus")
    try:
        indicator = sp.csr_matrix(matrix)
        is_binary = np.isin(indicator.data, (0, 1)).all()
    except (TypeError, ValueError) as error:
        raise InputError(
            f"An indicator matrix must hold numbers in two dimensions; {error}. Drop other columns."
        ) from error
    if not is_binary:
        raise InputError("An indicator matrix must hold only 0 and 1; binarise it first.")
    boolean = sp.csr_matrix(indicator.astype(bool))
    boolean.eliminate_zeros()
    boolean.sum_duplicates()
    return boolean


def _most_frequent(uses: Counter[str]) -> str:
    """Return the spelling that is used most often; of equals the first in sorted order."""
    return min(uses, key=lambda spelling: (-uses[spelling], spelling))


def _check_ids(ids: Sequence[str] | None, n_documents: int) -> tuple[str, ...]:
    """Return unique document ids, numbering the documents when none are given."""
    if ids is None:
        numbers = range(n_documents)
        return tuple(map(str, numbers))
    names = tuple(map(str, ids))
    for name in names:
        if not is_text(name):
            raise InputError(
                f"The document id {shown(name)} holds a NUL or half of a character, which no file "
                "can hold; rename it."
            )
    n_names = len(names)
    if n_names != n_documents:
        raise InputError(f"{n_names} ids were given for {n_documents} documents.")
    repeated_names = repeated(names)
    if repeated_names:
        raise InputError(f"Document id '{repeated_names[0]}' is given twice; ids must be unique.")
    return names
