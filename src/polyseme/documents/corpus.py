"""Label documents over one vocabulary, from tag sets of any form.

In: collections of labels, columns of tags, files, or an indicator matrix. Out: a `LabelCorpus`,
which holds a sparse document-label matrix, the vocabulary in column order and the documents' ids.
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
)

if TYPE_CHECKING:
    from polyseme.io import Table

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
    runs of it become one space. `"  New   York"` and `"new york"` are one label.
    """
    # Folding can take a composed letter apart, so it is composed again.
    folded = unicodedata.normalize("NFC", label).casefold()
    return " ".join(unicodedata.normalize("NFC", folded).split())


def _key(label: str, normalize: bool) -> str:
    """Return the form by which a label is compared."""
    return normalize_label(label) if normalize else label


@dataclass(frozen=True, eq=False)  # a matrix has no single truth value to compare by
class LabelCorpus:
    """Label documents over one vocabulary (in the paper: a collection Δ over Γ).

    Build one with `from_documents`, `from_indicator` or `read`; every method that takes documents
    also takes any of these forms directly.

    Attributes
    ----------
    labels : tuple of str, length n_labels
        The vocabulary in column order, each label in its most frequent spelling (of equally
        frequent ones the first in sorted order), white space tidied.
    matrix : csr_matrix of bool, shape (n_documents, n_labels)
        Which document holds which label; sparse, never densified whole.
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
        """Refuse a matrix that is not sound, or has not a row for each id and a column a label."""
        matrix: Any = self.matrix
        if getattr(matrix, "format", None) != "csr":
            raise InputError("`matrix` of `LabelCorpus` must be a CSR matrix.")
        n_rows, n_columns = matrix.shape
        subject = "`matrix` of `LabelCorpus`"
        check_compressed(matrix.indices, matrix.indptr, n_rows, n_columns, subject)
        if (n_rows, n_columns) != (len(self.ids), len(self.labels)):
            raise InputError(
                f"{subject} holds {n_rows} documents of {n_columns} labels, but there are "
                f"{len(self.ids)} ids and {len(self.labels)} labels."
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
        columns: dict[str, int] = {}
        indices = array("q")
        indptr = array("q", [0])
        n_entries = 0
        for number, document in enumerate(documents):
            where = f"Document {number}"
            for name in _labels_of(document, where):
                n_columns = len(columns)
                column = columns.setdefault(name, n_columns)
                indices.append(column)
                n_entries += 1
            indptr.append(n_entries)
        names = list(columns)
        return cls._join_columns(names, indices, indptr, ids, normalize, in_order=True)

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
        names = list(_labels_of(labels, "`labels`"))
        n_labels = len(names)
        if n_labels != n_columns:
            raise InputError(
                f"The indicator matrix has {n_columns} columns but {n_labels} labels were given; "
                "give one label per column."
            )
        return cls._join_columns(names, indices, indptr, ids, normalize)

    @classmethod
    def _join_columns(
        cls,
        names: list[str],
        indices: Any,
        indptr: Any,
        ids: Sequence[str] | None,
        normalize: bool,
        in_order: bool = False,
    ) -> LabelCorpus:
        """Join the columns of a CSR matrix whose names are spellings of one label."""
        keys = [_key(name, normalize) for name in names]
        distinct_keys = sorted(set(keys)) if in_order else list(dict.fromkeys(keys))
        n_labels = len(distinct_keys)
        column_by_key = {key: column for column, key in enumerate(distinct_keys)}
        columns = np.array([column_by_key[key] for key in keys], dtype=np.int64)
        name_numbers = np.asarray(indices, dtype=np.int64)
        starts = np.asarray(indptr, dtype=np.int64)
        n_documents = len(starts) - 1
        values = np.ones(len(name_numbers), dtype=bool)
        entries = (values, columns[name_numbers], starts)
        matrix = sp.csr_matrix(entries, shape=(n_documents, n_labels))
        matrix.sum_duplicates()

        # Each label gets its most frequent spelling; ties go by sorted order.
        uses_by_column: list[Counter[str]] = [Counter() for _ in distinct_keys]
        counts = np.bincount(name_numbers, minlength=len(names)).tolist()
        for name, column, count in zip(names, columns, counts, strict=True):
            spelling = " ".join(name.split()) if normalize else name
            uses_by_column[column][spelling] += count
        labels = tuple(map(_most_frequent, uses_by_column))
        spellings = {}
        for name, column in zip(names, columns, strict=True):
            if name != labels[column]:
                spellings[name] = labels[column]
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

        table = read_documents(path, tags_column=tags_column, delimiter=delimiter, strict=strict)
        return cls.of_table(table, Path(path).name, normalize=normalize)

    @classmethod
    def of_table(cls, table: Table, name: str, *, normalize: bool = True) -> LabelCorpus:
        """Build a corpus from the documents of a table that was read.

        Parameters
        ----------
        table : Table
            As `polyseme.io.read_table` gives it, with tags.
        name : str
            What it is called in warnings.
        normalize : bool
            As in `from_documents`.
        """
        table = table.merged(name)
        label_lists = table.label_sets
        options: dict[str, Any] = {"ids": table.ids, "normalize": normalize}
        if label_lists is not None:
            _warn_suspicious(label_lists, name)
            corpus = cls.from_documents(label_lists, **options)
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
        return (
            f"LabelCorpus({len(self)} documents, {len(self.labels)} labels: "
            f"{first_few(self.labels, most=3)})"
        )

    @property
    def shape(self) -> tuple[int, ...]:
        """One document a row; scikit-learn counts rows by this."""
        return (len(self),)

    def __getitem__(self, rows: Any) -> Any:
        """Return one document by its number, or `select` some; scikit-learn splits by this."""
        if isinstance(rows, tuple):
            rows = rows[0]
        if isinstance(rows, (int, np.integer)):
            return self.document(int(rows))
        if isinstance(rows, slice):
            numbers = np.arange(len(self))
            rows = numbers[rows]
        return self.select(rows)

    def __len__(self) -> int:
        """Count the documents."""
        return int(self.matrix.shape[0])

    def __iter__(self) -> Iterator[tuple[str, ...]]:
        """Iterate over the documents as tuples of labels."""
        for row in range(len(self)):
            yield self.document(row)

    def document(self, row: int) -> tuple[str, ...]:
        """Return the labels of one document, in column order."""
        n_documents = len(self)
        is_number = isinstance(row, (int, np.integer))
        if not is_number or not -n_documents <= row < n_documents:
            raise RowError(f"Document {shown(row)} is out of range: there are {n_documents}.")
        number = range(n_documents)[row]
        indptr = self.matrix.indptr
        start = indptr[number]
        stop = indptr[number + 1]
        columns = self.matrix.indices[start:stop]
        labels = [self.labels[column] for column in columns]
        return tuple(labels)

    def key(self, label: str) -> str:
        """Return the form by which this corpus compares labels."""
        return _key(label, self.normalize)

    @property
    def counts(self) -> NDArray[np.int64]:
        """Documents that hold each label, (n_labels,)."""
        return np.asarray(self.matrix.sum(axis=0), dtype=np.int64).ravel()

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Labels of each document, (n_documents,)."""
        return np.diff(self.matrix.indptr)

    def select(self, rows: NDArray[np.generic] | Sequence[int]) -> LabelCorpus:
        """Return the corpus of some documents, over the same vocabulary.

        Parameters
        ----------
        rows : array of int or bool, shape (n_selected,) or (n_documents,)
            Row numbers, each at most once, or which rows to keep.
        """
        numbers = self._rows(rows)
        if len(np.unique(numbers)) != len(numbers):
            raise InputError("`rows` of `LabelCorpus.select` name a document twice; drop repeats.")

        def selected(values: tuple[str, ...] | None) -> tuple[str, ...] | None:
            if values is None:
                return None
            return tuple(values[number] for number in numbers)

        return replace(
            self,
            matrix=sp.csr_matrix(self.matrix[numbers]),
            ids=selected(self.ids) or (),
            groups=selected(self.groups),
            splits=selected(self.splits),
        )

    def _rows(self, rows: Any) -> NDArray[np.int64]:
        """Return the numbers of rows that are named by numbers or by which to keep."""
        try:
            index = np.asarray(rows)
            if not index.size:
                index = index.astype(np.int64)
            numbers = np.arange(len(self))[index]
        except (IndexError, TypeError, ValueError, OverflowError):
            numbers = None
        if numbers is None or numbers.ndim != 1:
            raise RowError(
                f"Rows are chosen by a list of numbers from 0 to {len(self) - 1}, or by which to "
                f"keep; got {shown(rows)}."
            )
        return np.asarray(numbers)

    def restrict(self, labels: Collection[str]) -> LabelCorpus:
        """Return the corpus over some of the labels only, in this corpus' column order.

        Documents keep their rows; one that holds none of the labels becomes empty.
        """
        keys = {self.key(label) for label in labels}
        columns: list[int] = []
        remaining: list[str] = []
        for column, label in enumerate(self.labels):
            if self.key(label) in keys:
                columns.append(column)
                remaining.append(label)
        spellings = {}
        for name, label in self.spellings.items():
            if self.key(label) in keys:
                spellings[name] = label
        matrix = self.matrix[:, np.array(columns, dtype=np.int64)]
        return replace(
            self, labels=tuple(remaining), matrix=sp.csr_matrix(matrix), spellings=spellings
        )

    def used(self, labels: Labels) -> frozenset[str]:
        """Return those of the given labels that some document holds."""
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
            The other vocabulary's columns first, then one per label that it lacks.
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
                    continue
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
    """Return documents in any accepted form as a corpus; `labels` name an indicator's columns."""
    documents: Any = y  # frames of three libraries, none of which need be installed
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
        table, ids = split_ids(documents)
        if hasattr(table, "columns"):
            labels = [str(name) for name in table.columns] if labels is None else labels
            table = table.to_numpy()
        return LabelCorpus.from_indicator(table, labels, ids=ids, normalize=normalize)
    if labels is None and hasattr(documents, "columns"):
        return _of_frame(documents, normalize)
    if hasattr(documents, "to_pylist"):  # an array of pyarrow
        documents = documents.to_pylist()
    elif labels is None and _is_column(documents):
        sets = parse_tag_cells(documents)
        _warn_suspicious(sets, "the column of tags")
        return LabelCorpus.from_documents(sets, normalize=normalize)
    if labels is not None:
        raise InputError("`labels` belongs to an indicator matrix; these documents name their own.")
    if not isinstance(documents, Iterable):
        raise InputError(
            "Documents must be collections of labels, a LabelCorpus, an indicator matrix with "
            f"labels, or a file; got {type(documents).__name__}."
        )
    return LabelCorpus.from_documents(documents, normalize=normalize)


def is_indicator(documents: object) -> bool:
    """Return whether documents are a 0/1 matrix: an array, a sparse matrix or a frame."""
    if isinstance(documents, np.ndarray):
        return documents.ndim == 2 and documents.dtype.kind in "biuf"
    from polyseme.io import Table

    is_frame = hasattr(documents, "columns") and not isinstance(documents, Table)
    if not is_frame:
        return bool(sp.issparse(documents))
    frame: Any = documents
    if hasattr(frame, "column_names") and not is_pandas(frame):  # a table of pyarrow
        frame = frame.slice(0, 1).to_pandas()
    feature_names = [name for name in frame.columns if name != "id"]
    return all(_is_numeric(frame[name]) for name in feature_names)


def in_order_of(X: Any, y: Any, corpus: LabelCorpus) -> tuple[Any, LabelCorpus]:
    """Return X without its column `id`, and the documents in the order of its rows.

    See `polyseme.io.join.pair_rows`.
    """
    from polyseme.io.join import pair_rows

    document_ids = None
    if not corpus.numbered:
        document_ids = corpus.ids
    features, rows = pair_rows(X, y, document_ids)
    if rows is None:
        return features, corpus
    ordered = corpus.select(rows)
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

    names = [str(name) for name in frame.columns]
    field_by_column = find_fields(names)
    candidates = [name for name in names if name not in field_by_column]
    usual_names = [name for name in candidates if name in TAG_COLUMNS]
    if len(usual_names) == 1:
        tags_column = usual_names[0]
    elif len(candidates) == 1:
        tags_column = candidates[0]
    else:
        raise InputError(
            f"A frame of documents needs its tags in one column `tags` or `labels`, or 0/1 columns "
            f"only; got {first_few(names)}."
        )
    fields: dict[str, Any] = {}
    for column, field_name in field_by_column.items():
        cells = frame[column].to_list()
        fields[field_name] = as_texts(cells, column, "Document {}".format)
    tag_cells = frame[tags_column].to_list()
    sets = parse_tag_cells(tag_cells, column=tags_column)
    table = Table(label_sets=sets, **fields)
    return LabelCorpus.of_table(table, f"the column '{tags_column}'", normalize=normalize)


def _warn_suspicious(sets: Sequence[Sequence[str]], name: str) -> None:
    """Warn once where the tags of documents do not look split."""
    from polyseme.io.tag_cells import diagnose_tags

    doubt = diagnose_tags(sets)
    if doubt is not None:
        warnings.warn(
            f"Tags of {name} may be misread: {doubt}. What stands between two tags is said by "
            "`delimiter` (--delimiter), their column by `tags_column` (--tags-column).",
            PolysemeWarning,
            stacklevel=4,
        )


def check_corpus(corpus: LabelCorpus, *, owner: str, n_labels: int = 2) -> LabelCorpus:
    """Raise unless a corpus has at least `n_labels` labels; warn about documents without any."""
    n_empty = check_labels(corpus, owner=owner, n_labels=n_labels)
    if n_empty:
        message = f"{n_empty} of {len(corpus)} documents have no label and teach nothing."
        warnings.warn(message, PolysemeWarning, stacklevel=3)
    return corpus


def check_labels(corpus: LabelCorpus, *, owner: str, n_labels: int = 2) -> int:
    """Raise unless a corpus has at least `n_labels` labels; return how many documents have none."""
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
    """Return the distinct rows (n_distinct, n_labels), as first met, and each document's number.

    The column indices of the documents (n_documents, n_labels) are put in order.
    """
    documents.sort_indices()
    n_rows = documents.shape[0]
    indices = documents.indices.astype(np.int64)
    bounds = itertools.pairwise(documents.indptr)
    number_by_tags: dict[bytes, int] = {}
    first_rows: list[int] = []
    numbers = np.empty(n_rows, dtype=np.int64)
    for row, (start, stop) in enumerate(bounds):
        columns = indices[start:stop]
        tags = columns.tobytes()
        if tags not in number_by_tags:
            number_by_tags[tags] = len(first_rows)
            first_rows.append(row)
        numbers[row] = number_by_tags[tags]
    distinct = documents[first_rows]
    return sp.csr_matrix(distinct), numbers


def _labels_of(document: object, where: str) -> Iterator[str]:
    """Yield the labels of one document, or raise where it is not a collection of strings."""
    if isinstance(document, (str, bytes)):
        raise InputError(
            f"{where} is the text {shown(document)}; expected a collection of labels, "
            f"for example [{shown(document)}]."
        )
    if isinstance(document, Mapping):
        raise InputError(
            f"{where} is a mapping with {first_few(list(document))}; expected a collection of "
            "labels: pass its list of tags, and ids by `LabelCorpus.from_documents(…, ids=…)`."
        )
    if not isinstance(document, Iterable) or getattr(document, "ndim", 1) == 0:
        raise InputError(f"{where} is {type(document).__name__}; expected a collection of labels.")
    for label in document:
        if not isinstance(label, str):
            kind = type(label).__name__
            raise InputError(
                f"{where} holds the label {shown(label)} of type {kind}; make it a str."
            )
        if not label.strip():
            raise InputError(f"{where} holds an empty label; remove it or give it a name.")
        if len(label) > MOST_LETTERS:
            raise InputError(
                f"{where} holds a label that is {len(label)} characters long "
                f"({in_words(label, 30)}); {MOST_LETTERS} are the most: are its tags told apart?"
            )
        if not is_text(label):
            fault = "a NUL" if "\0" in label else "half of a character"
            raise InputError(f"{where} holds the label {shown(label)} with {fault}; mend it.")
        yield str(label)


def _indicator_matrix(matrix: Any) -> sp.csr_matrix:
    """Return a 0/1 matrix as a boolean CSR matrix of its own, without stored zeros or repeats."""
    if sp.issparse(matrix):
        matrix = check_sparse(matrix, "indicator matrix", owner="LabelCorpus")
    try:
        indicator = sp.csr_matrix(matrix)
        binary = np.isin(indicator.data, (0, 1)).all()
    except (TypeError, ValueError) as error:
        raise InputError(
            f"An indicator matrix must hold numbers in two dimensions; {error}. Drop other columns."
        ) from error
    if not binary:
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
        return tuple(str(number) for number in range(n_documents))
    names = tuple(str(name) for name in ids)
    for name in names:
        if not is_text(name):
            raise InputError(
                f"The document id {shown(name)} holds a NUL or half of a character, which no file "
                "can hold; rename it."
            )
    if len(names) != n_documents:
        raise InputError(f"{len(names)} ids were given for {n_documents} documents.")
    if len(set(names)) != len(names):
        repeated = next(name for name, count in Counter(names).items() if count > 1)
        raise InputError(f"Document id '{repeated}' is given twice; ids must be unique.")
    return names
