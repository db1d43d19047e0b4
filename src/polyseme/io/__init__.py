"""Read files into plain Python and numpy structures: the step before the corpus.

In: tables in any of the file formats registered below. Out: one `Table` with ids, tags and
features. A new format is one new module here, with a function `read_table(path, options)`, and one
line in `FORMATS`.

Terms: a *row* of a table is an item or a document, a *column* a field of all rows, by its name. A
*cell* is what a row has in a column. A *label set* is the tags of one row, as a list of texts.
"""

from __future__ import annotations

import gzip
import os
import warnings
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO, Literal, NamedTuple, TypeAlias, cast

import numpy as np
import scipy.sparse as sp

from polyseme.base.text import error_text
from polyseme.base.validation import (
    FloatArray,
    InputError,
    IntArray,
    PolysemeWarning,
    check_number,
    check_path,
    first_few,
    repeated,
    unknown_name,
)

__all__ = ["Table", "read_documents", "read_features", "read_table", "unpacking"]

PathLike: TypeAlias = str | os.PathLike[str]

# The module of this folder that reads files of a suffix, imported when such a file is read.
FORMATS = dict.fromkeys(
    (".jsonl", ".jsonl.gz", ".csv", ".csv.gz", ".tsv", ".tsv.gz"), "text_tables"
)
FORMATS |= dict.fromkeys((".parquet", ".arrow", ".feather", ".npy"), "shards")
FORMATS |= dict.fromkeys((".npz", ".safetensors"), "arrays")
FORMATS |= dict.fromkeys((".arff", ".arff.gz"), "arff")
# Files with a column for each label, 0 or 1, in place of cells with tags.
_SUFFIXES_WITHOUT_CELLS = (".npz", ".safetensors", ".arff", ".arff.gz")
# Limits, so that a small file cannot take all memory or time.
MAX_LINE_BYTES = 16 * 2**20
_MAX_BLANK_LINES = 1_000_000  # one after the other
_max_unpacked_gigabytes = 2.0  # of a packed file; `unpacking` sets it
_GZIP_SIZE_BYTES = 4  # at the end of a gzip file, with the size of its content modulo 4 GiB


@dataclass(frozen=True)
class Table:
    """The items of a file, row by row, whatever its format; fields that it lacks are None.

    It may be passed as X wherever a frame may: it has the features and the names of their columns.

    Attributes
    ----------
    label_sets : list of list of str, length n
        The tags of each row, as written, duplicates kept. A table has these or an indicator.
    indicator : csr_matrix, shape (n, n_labels)
        1 where a row has a label.
    labels : list of str, length n_labels
        The columns of the indicator.
    features : float array or csr_matrix, shape (n, n_features)
        Missing values are NaN.
    columns : tuple of str, length n_features
        The names of the features; None where they are a vector.
    ids : list of str, length n
        May repeat an id until `merged` is called.
    groups : list of str, length n
        What rows have in common that must not be in training and test data at once, such as an
        artist.
    splits : list of str, length n
        Such as "train" and "test".
    texts : list of str, length n
        Of the column that was asked for.
    unused : tuple of str
        Columns that could be features and are not.
    """

    label_sets: list[list[str]] | None = None
    indicator: sp.csr_matrix | None = None
    labels: list[str] | None = None
    features: FloatArray | sp.csr_matrix | None = None
    columns: tuple[str, ...] | None = None
    ids: list[str] | None = None
    groups: list[str] | None = None
    splits: list[str] | None = None
    texts: list[str] | None = None
    unused: tuple[str, ...] = ()

    def __repr__(self) -> str:
        """Return its fields, in a line."""
        contents = []
        for name in ("ids", "groups", "splits", "texts"):
            if getattr(self, name) is not None:
                contents.append(name)
        if self.has_tags:
            contents.append("tags")
        if self.features is not None:
            contents.append(f"{self.shape[1]} features")
        listed = ", ".join(contents) or "nothing else"
        return f"Table({len(self)} rows: {listed})"

    def __len__(self) -> int:
        for matrix in (self.features, self.indicator):
            if matrix is not None:
                return int(matrix.shape[0])
        return len(self.label_sets or self.ids or ())

    @property
    def shape(self) -> tuple[int, ...]:
        """Rows and columns of the features."""
        if self.features is None:
            return (len(self), 0)
        return self.features.shape

    @property
    def has_tags(self) -> bool:
        """Whether the rows have tags."""
        return self.label_sets is not None or self.indicator is not None

    def __getitem__(self, rows: Any) -> Table:
        """Return some rows as a table, in the order of `rows`: numbers, a slice or a mask."""
        if isinstance(rows, tuple):
            rows = rows[0]  # scikit-learn may index by rows and columns
        all_rows = np.arange(len(self))
        row_numbers = all_rows[rows].tolist()
        changes: dict[str, Any] = {}
        for name in ("label_sets", "ids", "groups", "splits", "texts"):
            values_by_row = getattr(self, name)
            if values_by_row is not None:
                changes[name] = [values_by_row[row] for row in row_numbers]
        for name in ("indicator", "features"):
            matrix = getattr(self, name)
            if matrix is not None:
                changes[name] = matrix[rows]
        return replace(self, **changes)

    def merged(self, name: str, *, strict: bool = False) -> Table:
        """Return a table with each id once: tags are united, of all else the first row is kept.

        Parameters
        ----------
        name : str
            The name of the table in the warning.
        strict : bool
            Refuse ids that stand more than once instead.

        Returns
        -------
        Table
            In the order in which ids are first met; the table itself where none is repeated.
        """
        ids = self.ids or []
        merged_row_by_id: dict[str, int] = {}
        for item_id in ids:
            merged_row_by_id.setdefault(item_id, len(merged_row_by_id))
        n_merged = len(merged_row_by_id)
        if n_merged == len(ids):
            return self
        repeated_ids = repeated(ids)
        problem = f"Ids stand more than once in {name} ({first_few(repeated_ids, most=3)})"
        if strict:
            raise InputError(f"{problem}; give each row an id of its own.")
        warnings.warn(
            f"{problem}: {len(ids):,} rows become {n_merged:,}; tags of one id are united, and of "
            "features, group and split the first row is kept. `strict` (--strict) refuses them.",
            PolysemeWarning,
            stacklevel=3,
        )
        # The row of the merged table that each row goes to.
        merged_rows = np.array([merged_row_by_id[item_id] for item_id in ids])
        _, first_rows = np.unique(merged_rows, return_index=True)
        table = self[first_rows]
        if self.indicator is not None:
            indicator = _unite_rows(self.indicator, merged_rows)
            return replace(table, indicator=indicator)
        if self.label_sets is None:
            return table
        label_sets: list[list[str]] = [[] for _ in merged_row_by_id]
        for merged_row, labels in zip(merged_rows, self.label_sets, strict=True):
            label_sets[merged_row] += labels
        return replace(table, label_sets=label_sets)

    def select(self, names: Sequence[str]) -> Table:
        """Return the table with features of these names alone, in this order; all must be there."""
        own_names = self.columns or ()
        position_by_name: dict[str, int] = {}
        for position, name in enumerate(own_names):
            position_by_name[name] = position
        positions = [position_by_name[name] for name in names]
        matrix: Any = self.features
        features = matrix[:, positions]
        return replace(self, features=features, columns=tuple(names))

    def to_numpy(self) -> Any:
        """Return the features, (n, n_features), themselves: a frame's method of this name."""
        return self.features


def _unite_rows(indicator: sp.csr_matrix, merged_rows: IntArray) -> sp.csr_matrix:
    """Return an indicator matrix whose rows are united: row i goes to row `merged_rows[i]`."""
    n_rows = len(merged_rows)
    rows = np.arange(n_rows)
    entries = (np.ones(n_rows), (merged_rows, rows))
    membership = sp.csr_matrix(entries)  # (n_merged, n), 1 where a row goes to a merged one
    united = sp.csr_matrix(membership @ indicator)
    united.data[:] = united.data != 0
    return united


class ReadOptions(NamedTuple):
    """Which parts of a table to read; other parts are not checked. See `read_table`."""

    tags: bool = False  # whether to read tags
    features: Literal["none", "vectors", "all"] = "none"
    tags_column: str | None = None
    features_column: str | None = None
    delimiter: str | None = None
    text_column: str | None = None


FEATURES_ONLY = ReadOptions(features="all")


def read_table(
    path: PathLike,
    *,
    tags_column: str | None = None,
    features_column: str | None = None,
    delimiter: str | None = None,
    features: Literal["none", "vectors", "all"] = "all",
    strict: bool = False,
) -> Table:
    """Read one table: ids, tags and features.

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
        What to read as features: nothing, a column of vectors alone, or, where there is none, all
        columns of numbers.
    strict : bool
        Whether ids that stand more than once are refused. Otherwise their rows become one, with a
        warning: tags are united, of all else the first row is kept.

    Returns
    -------
    Table
        At least one row, each id once. Features are the column of vectors, where there is one
        (`embedding`, if there are several), and all columns of numbers otherwise; the columns `id`
        (or `file`), `group` and `split` are never features.
    """
    options = ReadOptions(
        tags=True,
        features=features,
        tags_column=tags_column,
        features_column=features_column,
        delimiter=delimiter,
    )
    table = _read(path, options)
    name = Path(path).name
    if len(table) == 0:
        raise InputError(f"{name} holds no documents; give a file with at least one.")
    return table.merged(name, strict=strict)


def read_texts(
    path: PathLike,
    text_column: str,
    *,
    tags_column: str | None = None,
    delimiter: str | None = None,
) -> Table:
    """Read the texts of a table, with their ids and with tags where it has some.

    Returns
    -------
    Table
        At least one row, each id once.
    """
    options = ReadOptions(
        tags=True, tags_column=tags_column, delimiter=delimiter, text_column=text_column
    )
    table = _read(path, options)
    name = Path(path).name
    if not table.texts:
        raise InputError(f"{name} holds no texts in '{text_column}'; give at least one row.")
    return table.merged(name)


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
    options = FEATURES_ONLY._replace(features_column=features_column)
    features = read_items(path, options).features
    assert features is not None, "a table that is read for its features has some"
    return features


def read_items(path: PathLike, options: ReadOptions = FEATURES_ONLY) -> Table:
    """Read features with their ids and the names of their columns; see `read_features`.

    Unlike `read_table` it leaves repeated ids as they are: rows that are ranked need not be joined.
    """
    table = _read(path, options)
    if 0 in table.shape:
        raise InputError(
            f"{Path(path).name} holds features of shape {table.shape}; "
            "give at least one row and one column."
        )
    return table


def check_file_or_folder(place: Path) -> None:
    """Raise unless an existing path is a file or a folder: a pipe may never end, or begin."""
    if not (place.is_file() or place.is_dir()):
        raise InputError(f"'{place}' is a pipe or a device; write its output to a file first.")


def _read(path: PathLike, options: ReadOptions) -> Table:
    """Read a file or folder by the module that knows its format, the longest suffix first."""
    place = check_path(path, subject="A table")
    if not place.exists():
        raise InputError(f"There is no file or folder at {place}; check the path.")
    check_file_or_folder(place)
    suffix = ""
    if not place.is_dir():
        name = place.name.lower()
        matching_suffixes = [ending for ending in FORMATS if name.endswith(ending)]
        if not matching_suffixes:
            unknown_suffix = "".join(place.suffixes[-2:]) or place.name
            raise unknown_name("file suffix", unknown_suffix, FORMATS)
        suffix = max(matching_suffixes, key=len)
    names_tag_cells = options.tags_column or options.delimiter
    if options.tags and names_tag_cells and suffix in _SUFFIXES_WITHOUT_CELLS:
        raise InputError(
            f"`tags_column` and `delimiter` apply to tables with a column of tags; the labels of "
            f"{place.name} are columns of their own."
        )
    module_name = FORMATS.get(suffix, "shards")  # of a folder, too
    reader = import_module(f"polyseme.io.{module_name}")
    table: Table = reader.read_table(place, options)
    return table


def numbered_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield (line number from 1, text with its line end) of a UTF-8 file, gzipped or not.

    Memory is bounded whatever the file: lines, blank lines and the unpacked size have limits.
    Whatever is wrong with the file becomes an `InputError` that names it, and the line.
    """
    number = 0
    n_unpacked_bytes = 0
    n_blank_lines = 0
    is_packed = path.name.lower().endswith(".gz")
    try:
        if is_packed:
            _check_gzip(path)
        with cast(BinaryIO, gzip.open(path)) if is_packed else path.open("rb") as stream:
            # Two bytes more than allowed leave room for the line end of the longest line.
            while line := stream.readline(MAX_LINE_BYTES + 2):
                number += 1
                if len(line.rstrip(b"\r\n")) > MAX_LINE_BYTES:
                    limit = f"{MAX_LINE_BYTES / 2**20:g} MiB"
                    raise line_error(path, number, f"is longer than {limit}; split the line.")
                n_blank_lines = 0 if line.strip() else n_blank_lines + 1
                if n_blank_lines > _MAX_BLANK_LINES:
                    problem = f"is the last of {n_blank_lines:,} blank lines; remove them."
                    raise line_error(path, number, problem)
                if is_packed:
                    n_unpacked_bytes += len(line)  # the size that a file states may be wrong
                    check_unpacked(path, n_unpacked_bytes)
                # Some editors put a byte order mark before the first line.
                encoding = "utf-8-sig" if number == 1 else "utf-8"
                yield number, line.decode(encoding)
    except UnicodeDecodeError as error:
        problem = f"is not valid UTF-8 at byte {error.start + 1}; save the file as UTF-8."
        raise line_error(path, number, problem) from error
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InputError(
            f"{path.name} is not a complete gzip file ({error_text(error)}); fetch or compress it "
            "again."
        ) from error
    except OSError as error:
        raise InputError(
            f"{path} cannot be read ({error.strerror}); check the file and its permissions."
        ) from error


def _check_gzip(path: Path) -> None:
    """Raise for a gzip file that states, and proves, that it unpacks to more than is allowed."""
    n_packed_bytes = path.stat().st_size
    with path.open("rb") as packed:
        trailer_start = max(n_packed_bytes - _GZIP_SIZE_BYTES, 0)
        packed.seek(trailer_start)
        trailer = packed.read(_GZIP_SIZE_BYTES)
    stated_size = int.from_bytes(trailer, "little")
    if stated_size <= _max_unpacked_gigabytes * 1e9:
        return  # or a multiple of 4 GiB more, which is found out line by line
    # What it states may be wrong, so only what it unpacks to counts.
    n_unpacked_bytes = 0
    with gzip.open(path) as stream:
        while chunk := stream.read(2**20):
            n_unpacked_bytes += len(chunk)
            check_unpacked(path, n_unpacked_bytes)


@contextmanager
def unpacking(gigabytes: float) -> Iterator[None]:
    """Set how many gigabytes a packed file (`.gz`, `.npz`) may unpack to; 2 by default.

    It holds for this process until the block is left.
    """
    global _max_unpacked_gigabytes
    check_number("gigabytes", gigabytes, owner="unpacking", low=0, above=True)
    previous_limit = _max_unpacked_gigabytes
    _max_unpacked_gigabytes = gigabytes
    try:
        yield
    finally:
        _max_unpacked_gigabytes = previous_limit


def check_unpacked(path: Path, n_bytes: int) -> None:
    """Raise for a packed file that unpacks to more than is allowed."""
    if n_bytes > _max_unpacked_gigabytes * 1e9:
        raise InputError(
            f"{path.name} unpacks to {n_bytes / 1e9:.3g} GB or more, and "
            f"{_max_unpacked_gigabytes:g} are allowed; `polyseme --max-unpacked` "
            "(`polyseme.io.unpacking`) allows more."
        )


def line_error(path: Path, number: int, problem: str) -> InputError:
    """Return the error for one line of a file; `problem` completes "Line 3 of tags.csv …"."""
    return InputError(f"Line {number} of {path.name} {problem}")


def parse_xml(data: bytes, name: str, encoding: str | None = None) -> Any:
    """Return lxml's root element of XML, parsed without entities, network or deep nesting.

    Parameters
    ----------
    data : bytes
        Of a file that a stranger may have written.
    name : str
        What errors call it.
    encoding : str, optional
        In place of the one that the XML states.
    """
    try:
        from lxml import etree
    except ImportError as error:
        raise InputError(
            f"{name} needs lxml, which comes with the extras `image`, `audio` and `arff`; "
            "run pip install '.[arff]' in a checkout."
        ) from error
    parser = etree.XMLParser(
        encoding=encoding, resolve_entities=False, no_network=True, strip_cdata=False
    )
    try:
        root = etree.fromstring(data, parser)
    except etree.XMLSyntaxError as error:
        raise InputError(
            f"{name} is not well-formed XML ({error_text(error)}); repair it or move it away."
        ) from error
    if root.getroottree().docinfo.doctype:
        raise InputError(f"{name} has a DOCTYPE, which is not supported; remove it.")
    return root
