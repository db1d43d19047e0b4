"""Join rows and tags: by ids, by the names of files, or in order.

In: features with ids, and the ids of documents. Out: which row belongs to which document, or an
error that names what does not fit.
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
    """Which rows belong to which documents, and a sentence about it."""

    rows: IntArray  # (n_joined,)
    documents: IntArray  # (n_joined,): the document of each of these rows
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
    names : sequence
        The ids of items or their files; a range where items have none.
    document_ids : sequence of str or None
    sources : tuple of Path
        Where items and documents come from, for messages.
    n_documents : int
    files : bool
        Whether the items are files; see `match_files`.
    all_tagged : bool
        Whether an item without a document is worth a mention.
    strict : bool
        Whether items and documents that do not fit are refused.
    """
    features, documents = sources
    if files:
        rows, document_rows = match_files(names, document_ids or ())
    elif isinstance(names, range) or document_ids is None:
        return _join_in_order(names, document_ids, sources, n_documents)
    else:
        rows, document_rows = match_ids(names, document_ids)
        if not len(rows):
            raise InputError(
                f"No id of '{features}' ({first_few(names, most=3)}) is among those of "
                f"'{documents}' ({first_few(document_ids, most=3)}); mend the ids, or drop those "
                "of one file to pair rows in order."
            )
    noun = "file" if files else "item"
    a_noun = "a file" if files else "an item"
    unmatched_names = [names[row] for row in _rows_without(len(names), rows)]
    unmatched_rows = _rows_without(n_documents, document_rows)
    unmatched_ids = [str((document_ids or ())[row]) for row in unmatched_rows]
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
    joined = f"joined by {key}: {counted(len(rows), noun)}"
    return RowJoin(rows, document_rows, "; ".join([joined, *misfits]))


def _join_in_order(
    names: Sequence[Any],
    document_ids: Sequence[str] | None,
    sources: tuple[Path, Path],
    n_documents: int,
) -> RowJoin:
    """Join rows and documents in order; there must be as many of both."""
    features, documents = sources
    if len(names) != n_documents:
        raise InputError(
            f"'{features}' has {len(names)} rows but there are {n_documents} documents in "
            f"'{documents}'; give one document per row, or ids in both."
        )
    without_ids = []
    if isinstance(names, range):
        without_ids.append(features.name)
    if document_ids is None:
        without_ids.append(documents.name)
    rows = np.arange(n_documents)
    summary = f"rows and documents are paired in order: no ids in {' and '.join(without_ids)}"
    return RowJoin(rows, rows, summary)


def match_ids(row_ids: Iterable[str], document_ids: Iterable[str]) -> tuple[IntArray, IntArray]:
    """Return the rows that have a document of the same id, and these documents, in row order."""
    document_by_id = {name: number for number, name in enumerate(document_ids)}
    rows: list[int] = []
    documents: list[int] = []
    for row, name in enumerate(row_ids):
        document = document_by_id.get(name)
        if document is not None:
            rows.append(row)
            documents.append(document)
    return np.array(rows, dtype=np.int64), np.array(documents, dtype=np.int64)


def _rows_without(n: int, rows: IntArray) -> list[int]:
    """Return the numbers below n that are not among some rows."""
    is_unmatched = np.ones(n, dtype=bool)
    is_unmatched[rows] = False
    return np.flatnonzero(is_unmatched).tolist()


# ---------------------------------------------------------------------- frames


def pair_rows(X: Any, y: Any, document_ids: Sequence[str] | None) -> tuple[Any, IntArray | None]:
    """Return X without its column `id`, and the documents in the order of its rows.

    Where X (a frame with the column `id`) and the documents both have ids, they are brought
    together by id; the documents are None where they are in order already. Ids that do not fit are
    refused, and so are two pandas objects with the same index in another order.
    """
    features, row_ids = without_ids(X)
    if row_ids is None or document_ids is None or tuple(row_ids) == tuple(document_ids):
        _check_same_order(X, y)
        return features, None
    rows, documents = match_ids(row_ids, document_ids)
    n_rows = len(row_ids)
    n_repeated = n_rows - len(set(row_ids))
    all_match = len(rows) == n_rows == len(document_ids)
    if all_match and not n_repeated:
        return features, documents
    if features is not X or isinstance(X, Table):
        without_document = [row_ids[row] for row in _rows_without(n_rows, rows)]
        without_row = sorted(set(document_ids) - set(row_ids))
        raise InputError(
            "Rows of X and documents both have ids, which do not fit: "
            f"{len(without_document)} rows are without a document "
            f"({first_few(without_document, most=3)}), {len(without_row)} documents without a "
            f"row ({first_few(without_row, most=3)}), {n_repeated} ids repeated; keep those "
            "that both have, or drop the ids of one to pair rows in order."
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


def without_ids(X: Any) -> tuple[Any, list[str] | None]:
    """Return a frame's features and its column `id`, None where it names no rows.

    Features are the column of vectors where there is one, and else all columns but `id`.
    """
    if isinstance(X, np.ndarray):  # the `ids` of a masked array are something else
        return X, None
    names = column_names(X) or ()
    has_ids = hasattr(X, "ids") and not is_pandas(X)
    if has_ids or not names:
        ids = X.ids if has_ids else None
        return X, None if ids is None else [str(item_id) for item_id in ids]
    repeated_names = repeated(names)
    if repeated_names:
        raise InputError(f"X names column(s) twice: {first_few(repeated_names)}; rename one.")
    item_ids = None
    if "id" in names:
        item_ids = [str(item_id) for item_id in _listed(X["id"])]
    vector_columns = [name for name in names if _holds_vectors(_listed(X[name][:1]))]
    if len(vector_columns) > 1:
        raise InputError(
            f"X has several columns of vectors ({first_few(vector_columns)}); pass one of them, "
            f"such as X['{vector_columns[0]}']."
        )
    if vector_columns:
        return X[vector_columns[0]], item_ids
    if item_ids is None:
        return X, None
    if hasattr(X, "loc"):
        return X.drop(columns="id"), item_ids
    return X.drop(["id"]), item_ids


def _listed(column: Any) -> list[Any]:
    """Return a column of pandas, polars or pyarrow as a list."""
    if hasattr(column, "to_pylist"):
        return list(column.to_pylist())
    return list(column.to_list())


def _holds_vectors(cells: list[Any]) -> bool:
    """Return whether the first of some cells is a list of numbers."""
    if not cells or np.ndim(cells[0]) != 1:
        return False
    vector = np.asarray(cells[0])
    return vector.dtype.kind in "biuf"


# ---------------------------------------------------------------------- files


def match_files(files: Sequence[str], documents: Sequence[str]) -> tuple[IntArray, IntArray]:
    """Return the document of each file: (file rows, document rows), in the order of documents.

    A document may be named as the file is, path and all, by the file's name alone, or by its name
    without the ending; folders above the one that was extracted, and case where nothing else fits,
    do not matter.
    """
    # Rows by path (0), name (1) and stem (2); then again without regard to case (3 to 5).
    rows_by_key: dict[tuple[int, str], list[int]] = defaultdict(list)
    for row, file in enumerate(files):
        path = _composed_path(file)
        names = [str(path), path.name, path.stem]
        folded_names = [name.casefold() for name in names]
        for key in enumerate([*names, *folded_names]):
            rows_by_key[key].append(row)
    document_by_file: dict[int, int] = {}
    for row, document in enumerate(documents):
        wanted = _composed_path(document)
        keys = [(level, str(wanted)) for level in range(3)]
        for depth in range(1, len(wanted.parts)):
            keys.append((0, "/".join(wanted.parts[depth:])))
        keys += [(level, str(wanted).casefold()) for level in range(3, 6)]
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
            document_by_file[match] = row
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
    """Return a name with forward slashes and composed letters, whatever system it comes from."""
    slashed = name.replace("\\", "/")
    return PurePosixPath(unicodedata.normalize("NFC", slashed))
