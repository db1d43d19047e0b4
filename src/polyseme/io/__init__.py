"""Files: the step before the corpus, which turns files into plain Python and numpy structures.

In come tables in any of the file formats registered below; out goes one `Table`, which knows ids,
tags and features. A new format is one new module here and one line in `FORMATS`.
"""

from __future__ import annotations

import gzip
import os
import warnings
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO, Literal, NamedTuple, TypeAlias, cast

import numpy as np
import scipy.sparse as sp

from polyseme._text import said
from polyseme._validation import (
    FloatArray,
    InputError,
    PolysemeWarning,
    check_number,
    check_path,
    first_few,
    unknown_name,
)
from polyseme.io.folders import locked as locked  # also those of models, verdicts and pages
from polyseme.io.folders import replacing as replacing

__all__ = ["Table", "read_documents", "read_features", "read_table", "unpacking"]

PathLike: TypeAlias = str | os.PathLike[str]

# suffix -> the module of this folder that reads it, imported only when such a file is read
FORMATS = dict.fromkeys(
    (".jsonl", ".jsonl.gz", ".csv", ".csv.gz", ".tsv", ".tsv.gz"), "text_tables"
)
FORMATS |= dict.fromkeys((".parquet", ".arrow", ".feather", ".npy"), "shards")
FORMATS |= dict.fromkeys((".npz", ".safetensors"), "arrays")
FORMATS |= dict.fromkeys((".arff", ".arff.gz"), "arff")
# Of these, labels are columns: there are no cells of tags.
_WITHOUT_CELLS = (".npz", ".safetensors", ".arff", ".arff.gz")
MAX_LINE_BYTES = 16 * 2**20
_MOST_BLANK = 1_000_000  # lines one after the other
_most_unpacked = 2.0  # gigabytes that a packed file may unpack to; see `unpacking`


@dataclass(frozen=True)
class Table:
    """What a file says of items, row by row, whatever its format; None is what it does not say.

    It may stand for X wherever a frame may: it has the features, and the names of their columns.
    """

    label_sets: list[list[str]] | None = None  # as written, duplicates kept
    indicator: sp.csr_matrix | None = None  # (n, n_labels), 1 where a row has a label
    labels: list[str] | None = None  # the columns of `indicator`
    features: FloatArray | sp.csr_matrix | None = None  # (n, n_features), missing values are NaN
    columns: tuple[str, ...] | None = None  # the names of the features
    # One per row; a split is 'train' or 'test'.
    ids: list[str] | None = None
    groups: list[str] | None = None
    splits: list[str] | None = None
    unused: tuple[str, ...] = ()  # columns that could be features and are not

    def __repr__(self) -> str:
        """Return what it holds, in a line."""
        held = [name for name in ("ids", "groups", "splits") if getattr(self, name) is not None]
        held += ["tags"] if self.has_tags else []
        held += [] if self.features is None else [f"{self.shape[1]} features"]
        return f"Table({len(self)} rows: {', '.join(held) or 'nothing else'})"

    def __len__(self) -> int:
        for values in (self.features, self.indicator):
            if values is not None:
                return int(values.shape[0])
        return len(self.label_sets or self.ids or ())

    @property
    def shape(self) -> tuple[int, ...]:
        """Rows and columns of the features."""
        return (len(self), 0) if self.features is None else self.features.shape

    @property
    def has_tags(self) -> bool:
        """Whether the rows have tags."""
        return self.label_sets is not None or self.indicator is not None

    def __getitem__(self, rows: Any) -> Table:
        """Return some rows, with all that is known of them."""
        rows = rows[0] if isinstance(rows, tuple) else rows  # as scikit-learn asks
        numbers = np.arange(len(self))[rows].tolist()
        changed: dict[str, Any] = {}
        for name in ("label_sets", "ids", "groups", "splits"):
            if (values := getattr(self, name)) is not None:
                changed[name] = [values[row] for row in numbers]
        for name in ("indicator", "features"):
            if (values := getattr(self, name)) is not None:
                changed[name] = values[rows]
        return replace(self, **changed)

    def merged(self, name: str, *, strict: bool = False) -> Table:
        """Return a table with each id once: tags are united, of all else the first row is kept.

        Parameters
        ----------
        name : str
            What the table is called in the warning that tells of it.
        strict : bool
            Refuse ids that stand more than once instead.
        """
        places: dict[str, int] = {}
        for own in self.ids or ():
            places.setdefault(own, len(places))
        if len(places) == len(self.ids or ()):
            return self
        ids = self.ids or []
        owners = np.array([places[own] for own in ids])
        repeated = [own for own, count in Counter(ids).items() if count > 1]
        told = f"Ids stand more than once in {name} ({first_few(repeated, most=3)})"
        if strict:
            raise InputError(f"{told}; give each row an id of its own.")
        warnings.warn(
            f"{told}: {len(ids):,} rows become {len(places):,}; tags of one id are united, and of "
            "features, group and split the first row is kept. `strict` (--strict) refuses them.",
            PolysemeWarning,
            stacklevel=3,
        )
        table = self[np.unique(owners, return_index=True)[1]]
        if self.indicator is not None:
            rows = (np.ones(len(ids)), (owners, np.arange(len(ids))))
            united = sp.csr_matrix(sp.csr_matrix(rows) @ self.indicator)
            united.data[:] = united.data != 0
            return replace(table, indicator=united)
        if self.label_sets is None:
            return table
        sets: list[list[str]] = [[] for _ in places]
        for owner, labels in zip(owners, self.label_sets, strict=True):
            sets[owner] += labels
        return replace(table, label_sets=sets)

    def select(self, names: Sequence[str]) -> Table:
        """Return the features in another order of columns."""
        places = {name: column for column, name in enumerate(self.columns or ())}
        features: Any = self.features
        chosen = features[:, [places[name] for name in names]]
        return replace(self, features=chosen, columns=tuple(names))

    def to_numpy(self) -> Any:
        """Return the features, (n, n_features)."""
        return self.features


class Wanted(NamedTuple):
    """What a reader is asked for: a table may hold more, and what is not wanted is not checked."""

    tags: bool = False
    features: Literal["none", "vectors", "all"] = "none"  # "vectors": where there are such only
    tags_column: str | None = None
    features_column: str | None = None
    delimiter: str | None = None


FEATURES = Wanted(features="all")


def read_table(
    path: PathLike,
    *,
    tags_column: str | None = None,
    features_column: str | None = None,
    delimiter: str | None = None,
    features: Literal["none", "vectors", "all"] = "all",
    strict: bool = False,
) -> Table:
    """Read one table with all that it holds: ids, tags and features.

    Parameters
    ----------
    path : str or path
        A `.jsonl`, `.csv`, `.tsv` or `.arff` file, gzipped or not; a `.parquet`, `.arrow`,
        `.feather`, `.npy`, `.npz` or `.safetensors` file; a folder of `.parquet` or `.npy` files,
        or one that `save_to_disk` of Hugging Face datasets wrote.
    tags_column : str, optional
        The column with the tags; `tags` or `labels` otherwise.
    features_column : str, optional
        The column of vectors, or the array, that is the features, where there are several.
    delimiter : str, optional
        What separates the tags in a cell of text. Otherwise cells in brackets are read as lists,
        and others are cut at the one of `;`, `|` and `,` that most cells hold.
    features : {"none", "vectors", "all"}
        Whether columns of numbers are features, where there are no vectors.
    strict : bool
        Whether ids that stand more than once are refused. Otherwise their rows become one, with a
        warning: tags are united, of all else the first row is kept.

    Returns
    -------
    Table
        Features are the column of vectors, where there is one (`embedding`, if there are several),
        and all columns of numbers otherwise. `id` (or `file`), `group` and `split` are none.
    """
    table = _read(path, Wanted(True, features, tags_column, features_column, delimiter))
    if len(table) == 0:
        raise InputError(f"{Path(path).name} holds no documents; give a file with at least one.")
    return table.merged(Path(path).name, strict=strict)


def read_documents(
    path: PathLike,
    *,
    tags_column: str | None = None,
    delimiter: str | None = None,
    strict: bool = False,
) -> Table:
    """Read the documents (tag sets) of a table, without features; see `read_table`.

    Returns
    -------
    Table
        At least one row, with tags.
    """
    return read_table(
        path, tags_column=tags_column, delimiter=delimiter, features="none", strict=strict
    )


def read_features(
    path: PathLike, *, features_column: str | None = None
) -> FloatArray | sp.csr_matrix:
    """Read the instance features of a table; see `read_table`.

    Returns
    -------
    float array or csr_matrix, shape (n, n_features)
        One row per instance in the order of the file; missing values are NaN.
    """
    features: Any = read_items(path, FEATURES._replace(features_column=features_column)).features
    return features  # type: ignore[no-any-return]


def read_items(path: PathLike, wanted: Wanted = FEATURES) -> Table:
    """Read features with their ids and the names of their columns; see `read_features`."""
    table = _read(path, wanted)
    if 0 in table.shape:
        raise InputError(
            f"{Path(path).name} holds features of shape {table.shape}; "
            "give at least one row and one column."
        )
    return table


def check_plain(place: Path) -> None:
    """Raise unless a path that is there is a file or a folder: a pipe may never end, or begin."""
    if not (place.is_file() or place.is_dir()):
        raise InputError(f"'{place}' is a pipe or a device; write what it gives to a file first.")


def _read(path: PathLike, wanted: Wanted) -> Table:
    """Read a file or folder by the module that knows its format, the longest suffix first."""
    place = check_path(path, what="A table")
    if not place.exists():
        raise InputError(f"There is no file or folder at {place}; check the path.")
    check_plain(place)
    suffixes = [suffix for suffix in FORMATS if place.name.lower().endswith(suffix)]
    if not suffixes and not place.is_dir():
        raise unknown_name("file suffix", "".join(place.suffixes[-2:]) or place.name, FORMATS)
    suffix = "" if place.is_dir() else max(suffixes, key=len)
    if wanted.tags and suffix in _WITHOUT_CELLS and (wanted.tags_column or wanted.delimiter):
        raise InputError(
            f"`tags_column` and `delimiter` apply to tables with a column of tags; the labels of "
            f"{place.name} are columns of their own."
        )
    reader = import_module(f"polyseme.io.{FORMATS.get(suffix, 'shards')}")
    return cast(Table, reader.read_table(place, wanted))


def numbered_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield (line number from 1, text with its line end) of a UTF-8 file, gzipped or not."""
    number = size = n_blank = 0
    zipped = path.name.lower().endswith(".gz")
    try:
        if zipped:
            _check_gzip(path)
        with cast(BinaryIO, gzip.open(path)) if zipped else path.open("rb") as stream:
            # Two bytes more than allowed leave room for the line end of the longest line.
            while line := stream.readline(MAX_LINE_BYTES + 2):
                number += 1
                if len(line.rstrip(b"\r\n")) > MAX_LINE_BYTES:
                    limit = f"{MAX_LINE_BYTES / 2**20:g} MiB"
                    raise line_error(path, number, f"is longer than {limit}; split the line.")
                n_blank = 0 if line.strip() else n_blank + 1
                if n_blank > _MOST_BLANK:
                    what = f"is the last of {n_blank:,} blank lines; remove them."
                    raise line_error(path, number, what)
                if zipped:
                    size += len(line)  # what a file states of itself may be wrong
                    check_unpacked(path, size)
                # Some editors put a mark before the first line.
                yield number, line.decode("utf-8-sig" if number == 1 else "utf-8")
    except UnicodeDecodeError as error:
        what = f"is not valid UTF-8 at byte {error.start + 1}; save the file as UTF-8."
        raise line_error(path, number, what) from error
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InputError(
            f"{path.name} is not a complete gzip file ({said(error)}); fetch or compress it again."
        ) from error
    except OSError as error:
        raise InputError(
            f"{path} cannot be read ({error.strerror}); check the file and its permissions."
        ) from error


def _check_gzip(path: Path) -> None:
    """Refuse a gzip file that says, and proves, that it unpacks to more than is allowed."""
    with path.open("rb") as packed:
        packed.seek(max(path.stat().st_size - 4, 0))
        stated = int.from_bytes(packed.read(4), "little")
    if stated <= _most_unpacked * 1e9:
        return  # or a multiple of 4 GiB more, which is found out line by line
    size = 0
    with gzip.open(path) as stream:
        while chunk := stream.read(2**20):
            size += len(chunk)
            check_unpacked(path, size)


@contextmanager
def unpacking(gigabytes: float) -> Iterator[None]:
    """Allow packed files (`.gz`, `.npz`) to unpack to so many gigabytes each; by default 2.

    It holds for this process until the block is left.
    """
    global _most_unpacked
    check_number("gigabytes", gigabytes, owner="unpacking", low=0, above=True)
    before, _most_unpacked = _most_unpacked, gigabytes
    try:
        yield
    finally:
        _most_unpacked = before


def check_unpacked(path: Path, n_bytes: int) -> None:
    """Refuse a packed file that unpacks to more than is allowed."""
    if n_bytes > _most_unpacked * 1e9:
        raise InputError(
            f"{path.name} unpacks to {n_bytes / 1e9:.3g} GB or more, and {_most_unpacked:g} are "
            "allowed; `polyseme --max-unpacked` (`polyseme.io.unpacking`) allows more."
        )


def line_error(path: Path, number: int, what: str) -> InputError:
    """Build the error for one line of a file; `what` completes "Line 3 of tags.csv …"."""
    return InputError(f"Line {number} of {path.name} {what}")


def parse_xml(data: bytes, name: str, encoding: str | None = None) -> Any:
    """Parse XML without entities, network or deep nesting; give lxml's root element."""
    try:
        from lxml import etree
    except ImportError as error:
        raise InputError(
            f"{name} needs lxml, which comes with the extras `image`, `audio` and `arff`; "
            "run pip install '.[arff]' in a checkout."
        ) from error
    options = {"resolve_entities": False, "no_network": True, "strip_cdata": False}
    try:
        root = etree.fromstring(data, etree.XMLParser(encoding=encoding, **options))
    except etree.XMLSyntaxError as error:
        raise InputError(
            f"{name} is not well-formed XML ({said(error)}); repair it or move it away."
        ) from error
    if root.getroottree().docinfo.doctype:
        raise InputError(f"{name} has a DOCTYPE, which is not supported; remove it.")
    return root
