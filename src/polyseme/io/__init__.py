"""Files: the step before the corpus, which turns files into plain Python and numpy structures.

In come tag sets and instance features in any of the forms registered below; out go `RawDocuments`
and feature matrices. A new form is one new module here and one line in a registry.
"""

from __future__ import annotations

import gzip
import math
import os
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import BinaryIO, Literal, Protocol, TextIO, TypeAlias, cast

import numpy as np
import scipy.sparse as sp

from polyseme._validation import FloatArray, InputError, check_option, unknown_name

__all__ = [
    "RawDocuments",
    "read_documents",
    "read_features",
    "write_indicator",
    "write_records",
]

PathLike: TypeAlias = str | os.PathLike[str]
Plain: TypeAlias = "bool | int | float | str | list[Plain] | dict[str, Plain] | None"

# suffix -> module of this folder that reads it, imported only when such a file is read
DOCUMENT_FORMS: dict[str, str] = {
    ".jsonl": "jsonl",
    ".jsonl.gz": "jsonl",
    ".csv": "tables",
    ".csv.gz": "tables",
    ".tsv": "tables",
    ".tsv.gz": "tables",
    ".npz": "arrays",
    ".arff": "mulan",
    ".arff.gz": "mulan",
}
FEATURE_FORMS: dict[str, str] = {
    ".npy": "arrays",
    ".npz": "arrays",
    ".csv": "tables",
    ".csv.gz": "tables",
    ".tsv": "tables",
    ".tsv.gz": "tables",
    ".parquet": "tables",
    ".arff": "mulan",
    ".arff.gz": "mulan",
}
MAX_LINE_BYTES = 16 * 2**20


@dataclass(frozen=True)
class RawDocuments:
    """The documents of one file, as written there.

    Either `label_sets`, or `indicator` with `labels`, is given; the other form is None.

    Attributes
    ----------
    ids : list of str or None
        One per document; None where the file names none, and the caller numbers them.
    label_sets : list of list of str or None
        The labels of each document in the order of the file, duplicates kept.
    indicator : csr_matrix or None
        Shape (n, n_labels), int64, 1 where the document carries the label.
    labels : list of str or None
        The name of each column of `indicator`.
    groups, splits : list of str or None
        One per document, where the file knows them (a split is 'train' or 'test').
    """

    ids: list[str] | None
    label_sets: list[list[str]] | None
    indicator: sp.csr_matrix | None
    labels: list[str] | None
    groups: list[str] | None
    splits: list[str] | None

    def __len__(self) -> int:
        if self.label_sets is not None:
            return len(self.label_sets)
        return 0 if self.indicator is None else int(self.indicator.shape[0])


class _FormModule(Protocol):
    """What a module of this folder offers; either function may be absent."""

    def read_documents(
        self, path: Path, *, tags_column: str | None, delimiter: str | None
    ) -> RawDocuments:
        """Read the documents of an existing file."""

    def read_features(self, path: Path) -> FloatArray | sp.csr_matrix:
        """Read the features of an existing file."""


def read_documents(
    path: PathLike, *, tags_column: str | None = None, delimiter: str | None = None
) -> RawDocuments:
    """Read the documents (tag sets) of a file; the suffix says which form it has.

    Parameters
    ----------
    path : str or path
        A `.jsonl`, `.csv`, `.tsv` or `.arff` file, gzipped or not, or an `.npz` file.
    tags_column : str, optional
        For `.csv` and `.tsv`: the column with the tags; `tags` or `labels` otherwise.
    delimiter : str, optional
        For `.csv` and `.tsv`: what separates the tags in a cell. Otherwise the first of
        `;`, `|` and `,` that occurs anywhere in the column; where none does, a cell is one tag.

    Returns
    -------
    RawDocuments
        At least one document.
    """
    found = _existing(path, kind="Documents file")
    form = _form_of(found, DOCUMENT_FORMS, kind="documents file suffix")
    if form != "tables" and (tags_column is not None or delimiter is not None):
        raise InputError(
            f"`tags_column` and `delimiter` apply to .csv and .tsv files only; got {found.name}."
        )
    documents = _module(form).read_documents(found, tags_column=tags_column, delimiter=delimiter)
    if len(documents) == 0:
        raise InputError(f"{found.name} holds no documents; give a file with at least one.")
    return documents


def read_features(path: PathLike) -> FloatArray | sp.csr_matrix:
    """Read the instance features of a file; the suffix says which form it has.

    Parameters
    ----------
    path : str or path
        An `.npy`, `.npz` or `.parquet` file, or a `.csv`, `.tsv` or `.arff` file, gzipped or not.

    Returns
    -------
    float array or csr_matrix, shape (n, n_features)
        One row per instance in the order of the file; missing values are NaN.
    """
    found = _existing(path, kind="Features file")
    form = _form_of(found, FEATURE_FORMS, kind="features file suffix")
    features = _module(form).read_features(found)
    if 0 in features.shape:
        raise InputError(
            f"{found.name} holds features of shape {features.shape}; "
            "give at least one row and one column."
        )
    return features


def write_records(
    records: Iterable[Mapping[str, object]], target: TextIO, form: Literal["jsonl", "csv"]
) -> None:
    """Write results, one record after the other as they come.

    NaN is written as null (`jsonl`) or an empty cell (`csv`).

    Parameters
    ----------
    records : iterable of dict
        Values may be numbers, strings, None, lists and numpy arrays of these.
    target : text stream
        Open it with ``newline=""`` and UTF-8 encoding.
    form : {"jsonl", "csv"}
        One JSON object per line, or a table whose header is the keys of the first record and
        whose lists are joined by `;`.
    """
    check_option("form", form, ("jsonl", "csv"), owner="write_records")
    if form == "jsonl":
        from polyseme.io import jsonl

        jsonl.write_records(records, target)
    else:
        from polyseme.io import tables

        tables.write_records(records, target)


def write_indicator(path: PathLike, matrix: object, labels: Sequence[str]) -> None:
    """Write documents as a 0/1 matrix that `read_documents` reads back.

    Parameters
    ----------
    path : str or path
        An `.npz` file to write; the keys are listed in `polyseme.io.arrays`.
    matrix : array-like or scipy sparse, shape (n, n_labels)
        1 where the document carries the label, 0 elsewhere.
    labels : sequence of str
        The distinct names of the columns.
    """
    from polyseme.io import arrays

    arrays.write_indicator(Path(path), matrix, labels)


def numbered_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield (line number from 1, text with its line end) of a UTF-8 file, gzipped or not."""
    number = 0
    try:
        with _open(path) as stream:
            # Two bytes more than allowed leave room for the line end of the longest line.
            while line := stream.readline(MAX_LINE_BYTES + 2):
                number += 1
                if len(line.rstrip(b"\r\n")) > MAX_LINE_BYTES:
                    limit = f"{MAX_LINE_BYTES / 2**20:g} MiB"
                    raise line_error(path, number, f"is longer than {limit}; split the line.")
                yield number, _decode(line, path, number)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InputError(
            f"{path.name} is not a complete gzip file ({error}); fetch or compress it again."
        ) from error
    except OSError as error:
        raise InputError(
            f"{path} cannot be read ({error.strerror}); check the file and its permissions."
        ) from error


def line_error(path: Path, number: int, what: str) -> InputError:
    """Build the error for one line of a file; `what` completes "Line 3 of tags.csv …"."""
    return InputError(f"Line {number} of {path.name} {what}")


def plain_value(value: object, *, where: str) -> Plain:
    """Turn a value of a record into what JSON knows; NaN becomes None."""
    if isinstance(value, (np.generic, np.ndarray)):
        return plain_value(value.tolist(), where=where)
    if isinstance(value, float):
        if math.isinf(value):
            raise InputError(f"{where} must hold finite numbers or NaN; got {value}.")
        return None if math.isnan(value) else value
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, (list, tuple)):
        return [plain_value(item, where=where) for item in value]
    if isinstance(value, Mapping):
        return {str(key): plain_value(item, where=where) for key, item in value.items()}
    raise InputError(
        f"{where} must hold numbers, strings, lists or None; got {type(value).__name__}."
    )


def _existing(path: PathLike, *, kind: str) -> Path:
    """Return the path of an existing file or raise."""
    found = Path(path)
    if found.is_dir():
        raise InputError(f"{found} is a folder; name a file in it.")
    if not found.exists():
        raise InputError(f"{kind} not found at {found}; check the path.")
    return found


def _form_of(path: Path, forms: Mapping[str, str], *, kind: str) -> str:
    """Return the registered module for a file name, the longest suffix winning."""
    name = path.name.lower()
    fitting = [suffix for suffix in forms if name.endswith(suffix)]
    if not fitting:
        raise unknown_name(kind, "".join(path.suffixes[-2:]) or path.name, forms)
    return forms[max(fitting, key=len)]


def _module(form: str) -> _FormModule:
    """Import the module of a form."""
    return cast(_FormModule, import_module(f"polyseme.io.{form}"))


def _open(path: Path) -> BinaryIO:
    """Open a file for reading bytes, looking through gzip."""
    if path.name.lower().endswith(".gz"):
        return cast(BinaryIO, gzip.open(path, "rb"))
    return path.open("rb")


def _decode(line: bytes, path: Path, number: int) -> str:
    """Decode one line as UTF-8, dropping the mark some editors put before the first."""
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise line_error(
            path, number, f"is not valid UTF-8 at byte {error.start + 1}; save the file as UTF-8."
        ) from error
    return text.removeprefix("\ufeff") if number == 1 else text
