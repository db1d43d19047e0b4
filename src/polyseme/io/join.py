"""Join rows and tags: by ids, by the names of files, or in order.

In: features with ids, and the ids of documents. Out: which row belongs to which document, or an
error that names what does not fit.

Terms: a *row* is the number of an item in its features, a *document* that of a document in its
corpus, both from 0. An item's *name* is its id or the path of its file.
"""

from __future__ import annotations

import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import numpy as np

from polyseme.base.text import counted
from polyseme.base.validation import (
    InputError,
    IntArray,
    column_names,
    first_few,
    is_pandas,
    repeated,
)
from polyseme.io import Table


class RowJoin(NamedTuple):
    """Which rows belong to which documents, and a sentence about it.

    Attributes
    ----------
    rows : int64 array, shape (n_joined,)
        Each at most once; by file in the order of documents, else in their own order.
    documents : int64 array, shape (n_joined,)
        The document of each of these rows.
    summary : str
        For people, without a full stop: how they were joined, and what did not fit.
    """

    rows: IntArray
    documents: IntArray
    summary: str


def join_rows(
    names: Sequence[Any],
    document_ids: Sequence[str] | None,
    sources: tuple[Path, Path],
    *,
    n_documents: int,
    files: bool = False,
    all_tagged: bool = True,
    strict: bool = False,
) -> RowJoin:
    """Join items and documents: by file, by id, or in order where one of them has no ids.

    Parameters
    ----------
    names : sequence of str, or range
        The ids of items or their files; a range where items have none.
    document_ids : sequence of str, length n_documents, or None
    sources : tuple of Path
        The files of items and of documents, for messages.
    n_documents : int
    files : bool
        Whether the items are files; see `match_files`.
    all_tagged : bool
        Whether an item without a document is worth a mention.
    strict : bool
        Whether items and documents that do not fit are refused; else they are left out.
    """
    items_file, documents_file = sources
    known_ids = document_ids or ()
    if files:
        rows, documents = match_files(names, known_ids)
    elif isinstance(names, range) or document_ids is None:
        return _join_in_order(names, document_ids, sources, n_documents)
    else:
        rows, documents = match_ids(names, document_ids)
        if not len(rows):
            raise InputError(
                f"No id of '{items_file}' ({first_few(names, most=3)}) is among those of "
                f"'{documents_file}' ({first_few(document_ids, most=3)}); mend the ids, or drop "
                "those of one file to pair rows in order."
            )
    noun = "file" if files else "item"
    a_noun = "a file" if files else "an item"
    unmatched_names = [names[row] for row in _unmatched_numbers(len(names), rows)]
    unmatched_documents = _unmatched_numbers(n_documents, documents)
    unmatched_ids = [str(known_ids[document]) for document in unmatched_documents]
    misfits = []
    if unmatched_names and all_tagged:
        listed = first_few(unmatched_names, most=3)
        misfits.append(f"{counted(len(unmatched_names), noun)} without a document ({listed})")
    if unmatched_ids:
        listed = first_few(unmatched_ids, most=3)
        misfits.append(f"{counted(len(unmatched_ids), 'document')} without {a_noun} ({listed})")
    if misfits and strict:
        raise InputError(f"Ids do not fit: {'; '.join(misfits)}; mend them, or drop --strict.")
    key = "name" if files else "id"
    success = f"joined by {key}: {counted(len(rows), noun)}"
    summary = "; ".join([success, *misfits])
    return RowJoin(rows, documents, summary)


def _join_in_order(
    names: Sequence[Any],
    document_ids: Sequence[str] | None,
    sources: tuple[Path, Path],
    n_documents: int,
) -> RowJoin:
    """Join rows and documents in order, of which there must be as many; see `join_rows`."""
    items_file, documents_file = sources
    if len(names) != n_documents:
        raise InputError(
            f"'{items_file}' has {len(names)} rows but there are {n_documents} documents in "
            f"'{documents_file}'; give one document per row, or ids in both."
        )
    files_without_ids = []
    if isinstance(names, range):
        files_without_ids.append(items_file.name)
    if document_ids is None:
        files_without_ids.append(documents_file.name)
    rows = np.arange(n_documents)
    listed_files = " and ".join(files_without_ids)
    summary = f"rows and documents are paired in order: no ids in {listed_files}"
    return RowJoin(rows, rows, summary)


def match_ids(row_ids: Iterable[str], document_ids: Iterable[str]) -> tuple[IntArray, IntArray]:
    """Return the rows that have a document of the same id, and these documents, in row order.

    Ids are unique among documents; several rows may have the same one.
    """
    document_by_id: dict[str, int] = {}
    for number, document_id in enumerate(document_ids):
        document_by_id[document_id] = number
    rows: list[int] = []
    documents: list[int] = []
    for row, row_id in enumerate(row_ids):
        document = document_by_id.get(row_id)
        if document is not None:
            rows.append(row)
            documents.append(document)
    row_numbers = np.array(rows, dtype=np.int64)
    document_numbers = np.array(documents, dtype=np.int64)
    return row_numbers, document_numbers


def _unmatched_numbers(n_all: int, matched_numbers: IntArray) -> list[int]:
    """Return the numbers from 0 to `n_all` - 1 that are not among those matched, in order."""
    is_unmatched = np.ones(n_all, dtype=bool)
    is_unmatched[matched_numbers] = False
    unmatched_numbers = np.flatnonzero(is_unmatched)
    return unmatched_numbers.tolist()


# ---------------------------------------------------------------------- frames


def pair_rows(X: Any, y: Any, document_ids: Sequence[str] | None) -> tuple[Any, IntArray | None]:
    """Return X without its column `id`, and the document of each of its rows.

    Where X (a frame with the column `id`) and the documents both have ids, they are brought
    together by id. Ids that do not fit are refused, and so are two pandas objects with the same
    index in another order.

    Parameters
    ----------
    X : array, sparse matrix, frame or Table
    y : object
        The documents as they were passed, whose index counts where it is pandas.
    document_ids : sequence of str or None
        None where documents have no ids of their own.

    Returns
    -------
    features : object
        X, or what `split_ids` leaves of it.
    documents : int64 array, shape (n,), or None
        None where the documents are in the order of the rows already.
    """
    features, row_ids = split_ids(X)
    if row_ids is None or document_ids is None or tuple(row_ids) == tuple(document_ids):
        _check_same_order(X, y)
        return features, None
    rows, documents = match_ids(row_ids, document_ids)
    n_rows = len(row_ids)
    n_repeated = n_rows - len(set(row_ids))
    all_match = len(rows) == n_rows == len(document_ids)
    if all_match and not n_repeated:
        return features, documents
    # Ids that a column or a table states must fit. Others, such as an attribute `ids` of an object
    # that is no frame of ours, may mean something else.
    states_ids = features is not X or isinstance(X, Table)
    if states_ids:
        unmatched_row_ids = [row_ids[row] for row in _unmatched_numbers(n_rows, rows)]
        unmatched_document_ids = sorted(set(document_ids) - set(row_ids))
        raise InputError(
            "Rows of X and documents both have ids, which do not fit: "
            f"{len(unmatched_row_ids)} rows are without a document "
            f"({first_few(unmatched_row_ids, most=3)}), {len(unmatched_document_ids)} documents "
            f"without a row ({first_few(unmatched_document_ids, most=3)}), {n_repeated} ids "
            "repeated; keep those that both have, or drop the ids of one to pair rows in order."
        )
    _check_same_order(X, y)
    return features, None


def _check_same_order(X: Any, y: Any) -> None:
    """Raise where two pandas objects have the same index in another order."""
    X_index: Any = getattr(X, "index", None)
    y_index: Any = getattr(y, "index", None)
    if not (hasattr(X_index, "equals") and hasattr(y_index, "equals")):
        return
    if not X_index.is_unique or X_index.equals(y_index):
        return
    if set(X_index) == set(y_index):
        raise InputError(
            "X and y have the same index in another order; pass `y.loc[X.index]` to pair them by "
            "it, or reset one to pair rows in order."
        )


def split_ids(X: Any) -> tuple[Any, list[str] | None]:
    """Return the features of X and its ids as texts, None where it has none.

    Features of a frame are its column of vectors where there is one, and else all columns but `id`;
    X of other forms is returned itself. The ids are the column `id` of a frame, or the attribute
    `ids` of anything else, such as a `Table`.
    """
    if isinstance(X, np.ndarray):  # the `ids` of a masked array are something else
        return X, None
    names = column_names(X) or ()
    has_ids = hasattr(X, "ids") and not is_pandas(X)
    if has_ids or not names:
        ids = X.ids if has_ids else None
        if ids is None:
            return X, None
        return X, [str(item_id) for item_id in ids]
    repeated_names = repeated(names)
    if repeated_names:
        raise InputError(f"X names column(s) twice: {first_few(repeated_names)}; rename one.")
    item_ids = None
    if "id" in names:
        item_ids = [str(item_id) for item_id in _as_list(X["id"])]
    vector_columns = []
    for name in names:
        first_cells = _as_list(X[name][:1])
        if _holds_vectors(first_cells):
            vector_columns.append(name)
    if len(vector_columns) > 1:
        raise InputError(
            f"X has several columns of vectors ({first_few(vector_columns)}); pass one of them, "
            f"such as X['{vector_columns[0]}']."
        )
    if vector_columns:
        return X[vector_columns[0]], item_ids
    if item_ids is None:
        return X, None
    if hasattr(X, "loc"):  # pandas
        return X.drop(columns="id"), item_ids
    return X.drop(["id"]), item_ids  # polars and pyarrow


def _as_list(column: Any) -> list[Any]:
    """Return a column of pandas, polars or pyarrow as a list."""
    if hasattr(column, "to_pylist"):
        return list(column.to_pylist())
    return list(column.to_list())


def _holds_vectors(cells: list[Any]) -> bool:
    """Return whether the first of some cells, if there is any, is a list of numbers."""
    if not cells:
        return False
    first_cell = cells[0]
    if np.ndim(first_cell) != 1:
        return False
    vector = np.asarray(first_cell)
    return vector.dtype.kind in "biuf"


# ---------------------------------------------------------------------- files


# Ways in which a document may name a file, the closest first: by its path, its name and its stem,
# then by the same without regard to case. A key is the number of a way, and what a file is called.
_EXACT_WAYS = range(3)
_FOLDED_WAYS = range(3, 6)
_BY_PATH = 0


def match_files(files: Sequence[str], documents: Sequence[str]) -> tuple[IntArray, IntArray]:
    """Return the document of each file that has one.

    A document may be named as the file is, path and all, by the file's name alone, or by its name
    without the ending; folders above the one that was extracted, and case where nothing else fits,
    do not matter.

    Parameters
    ----------
    files : sequence of str
        Paths below the folder that was extracted.
    documents : sequence of str
        The names of documents.

    Returns
    -------
    file_rows, document_rows : int64 arrays, shape (n_matched,)
        The numbers of files, and those of their documents, in the order of documents.
    """
    rows_by_key: dict[tuple[int, str], list[int]] = defaultdict(list)
    for row, file in enumerate(files):
        path = _composed_path(file)
        names = [str(path), path.name, path.stem]
        folded_names = [name.casefold() for name in names]
        for key in enumerate([*names, *folded_names]):
            rows_by_key[key].append(row)
    document_by_file: dict[int, int] = {}
    for document_row, document in enumerate(documents):
        wanted = _composed_path(document)
        keys = [(way, str(wanted)) for way in _EXACT_WAYS]
        for n_left_out in range(1, len(wanted.parts)):  # folders above
            inner_path = "/".join(wanted.parts[n_left_out:])
            keys.append((_BY_PATH, inner_path))
        folded = str(wanted).casefold()
        keys += [(way, folded) for way in _FOLDED_WAYS]
        matches = next((rows_by_key[key] for key in keys if key in rows_by_key), [])
        if len(matches) > 1:
            matching_files = [files[match] for match in matches]
            raise InputError(
                f"Several files are called '{wanted}', such as "
                f"{first_few(matching_files, most=3)}; name each document by "
                "its file's path below the folder."
            )
        for match in matches:
            if match in document_by_file:
                first_document = documents[document_by_file[match]]
                raise InputError(
                    f"The documents '{first_document}' and '{document}' both name the "
                    f"file '{files[match]}'; give each file one document."
                )
            document_by_file[match] = document_row
    if not document_by_file:
        raise InputError(
            f"No document names one of the files: documents are called "
            f"{first_few(list(documents), most=3)}, files {first_few(list(files), most=3)}; give "
            "documents an `id` (or `file`) that is the file's name."
        )
    file_rows = np.array(list(document_by_file), dtype=np.int64)
    document_rows = np.array(list(document_by_file.values()), dtype=np.int64)
    return file_rows, document_rows


def _composed_path(name: str) -> PurePosixPath:
    """Return a path with forward slashes and composed letters, whatever system it comes from."""
    slashed = name.replace("\\", "/")
    return PurePosixPath(unicodedata.normalize("NFC", slashed))
