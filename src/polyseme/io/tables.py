"""Tables in: `.csv`, `.tsv` and `.parquet` files whose columns have names.

In come documents (one cell of delimited tags per row) or numeric feature columns; out go
`RawDocuments` or a float matrix. Parquet is read by pyarrow, the rest by the standard library.
"""

from __future__ import annotations

import csv
import reprlib
from array import array
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polyseme._validation import InputError
from polyseme.io import RawDocuments, line_error, numbered_lines

_GUESSED_DELIMITERS = (";", "|", ",")
_TAG_COLUMNS = ("tags", "labels")
_ID = "id"


def read_documents(
    path: Path, *, tags_column: str | None = None, delimiter: str | None = None
) -> RawDocuments:
    """Read documents from a table with a header row; see `polyseme.io.read_documents`.

    Tags are stripped and empty ones dropped. The columns `id` (or `file`), `group` and `split` are
    read where they exist, stripped; one that is empty in every row counts as absent.
    """
    if delimiter == "":
        raise InputError("`delimiter` of `read_documents` must not be empty; got ''.")
    rows = _rows(path)
    header = _header(rows, path)
    tags_column = _tags_column(header, tags_column, path)
    table = list(rows)
    cells = [row[header.index(tags_column)] for _, row in table]
    if delimiter is None:
        delimiter = next((d for d in _GUESSED_DELIMITERS if any(d in cell for cell in cells)), None)

    def field(name: str) -> list[str] | None:
        if name not in header or name == tags_column:
            return None
        values = [row[header.index(name)].strip() for _, row in table]
        if "" in values and any(values):
            number = table[values.index("")][0]
            what = f"has an empty '{name}'; give it to all rows or to none."
            raise line_error(path, number, what)
        return values if any(values) else None

    pieces = ([cell] if delimiter is None else cell.split(delimiter) for cell in cells)
    return RawDocuments(
        label_sets=[[tag for piece in row if (tag := piece.strip())] for row in pieces],
        ids=field(_ID) or field("file"),
        groups=field("group"),
        splits=field("split"),
    )


def read_features(path: Path) -> NDArray[np.float64]:
    """Read numeric columns, shape (n, n_features); see `polyseme.io.read_features`.

    A column `id` is left out, and empty cells are NaN.
    """
    if path.name.lower().endswith(".parquet"):
        with parquet_file(path) as file:
            names = parquet_columns(file, path)
            return parquet_numbers(file.read(columns=names))
    rows = _rows(path)
    header = _header(rows, path)
    if "" in header:
        raise InputError(
            f"Column {header.index('') + 1} of {path.name} has no name; name it (`id` if it numbers"
            " the rows) or leave it out."
        )
    # pandas names unnamed columns 0, 1, 2, …: these are names although they are numbers.
    numbered = header == [str(column) for column in range(len(header))]
    if not numbered and all(_number(name) is not None for name in header):
        raise InputError(
            f"The first row of {path.name} must hold column names; got numbers: add a header row."
        )
    columns = [column for column, name in enumerate(header) if name != _ID]
    values = array("d")
    for number, row in rows:
        for column in columns:
            value = _number(row[column]) if row[column].strip() else np.nan
            if value is None:
                got = reprlib.repr(row[column])
                what = f"must hold a number in column '{header[column]}'; got {got}."
                raise line_error(path, number, what)
            values.append(value)
    return np.array(values).reshape(len(values) // max(len(columns), 1), len(columns))


def import_pyarrow() -> Any:
    """Import pyarrow with its Parquet part, or say how to get it."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise InputError(
            "Parquet files need the extra `parquet`; run pip install '.[parquet]' in a checkout."
        ) from error
    return pyarrow


@contextmanager
def parquet_file(path: Path) -> Iterator[Any]:
    """Open a Parquet file and turn whatever is wrong with it into one sentence."""
    arrow = import_pyarrow()
    try:
        with arrow.parquet.ParquetFile(path) as file:
            yield file
    except (arrow.ArrowException, OSError) as error:
        reason = str(error).partition("\n")[0].rstrip(".")
        raise InputError(
            f"{path.name} is not readable as Parquet ({reason}); write it again."
        ) from error


def parquet_columns(file: Any, path: Path) -> list[str]:
    """Name the columns of an open Parquet file but `id`; see `read_features`."""
    from pyarrow import types

    fields = [field for field in file.schema_arrow if field.name != _ID]
    kinds = (types.is_integer, types.is_floating, types.is_boolean)
    for field in fields:
        if not any(is_kind(field.type) for is_kind in kinds):
            raise InputError(
                f"Column '{field.name}' of {path.name} must hold numbers; got {field.type}: drop "
                "or encode it."
            )
    return [field.name for field in fields]


def parquet_numbers(table: Any) -> NDArray[np.float64]:
    """Turn an Arrow table or batch of numbers into a matrix (n, n_columns); empty is NaN."""
    matrix = np.empty((table.num_rows, table.num_columns))
    for place, column in enumerate(table.columns):
        matrix[:, place] = column.cast("float64").to_numpy(zero_copy_only=False)
    return matrix


def _rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield (line number, cells) of each row that is not blank, all as long as the first."""
    separator = "\t" if path.name.lower().removesuffix(".gz").endswith(".tsv") else ","
    reader = csv.reader(
        (text for _, text in numbered_lines(path)), delimiter=separator, strict=True
    )
    width = None
    try:
        for row in filter(None, reader):
            width = width or len(row)
            if len(row) != width:
                what = f"has {len(row)} cells but the header has {width}."
                raise line_error(path, reader.line_num, what)
            yield reader.line_num, row
    except csv.Error as error:
        what = f"is not readable as a table row ({error}); check its quotes."
        raise line_error(path, reader.line_num, what) from error


def _header(rows: Iterator[tuple[int, list[str]]], path: Path) -> list[str]:
    """Take the first row as column names."""
    first = next(rows, None)
    if first is None:
        raise InputError(f"{path.name} is empty; its first row must hold the column names.")
    header = [name.strip() for name in first[1]]
    repeated = [name for name in header if header.count(name) > 1 and name]
    if repeated:
        raise InputError(f"{path.name} has two columns '{repeated[0]}'; rename one.")
    return header


def _tags_column(header: Sequence[str], tags_column: str | None, path: Path) -> str:
    """Return the name of the column that holds the tags."""
    wanted = _TAG_COLUMNS if tags_column is None else (tags_column,)
    present = [name for name in wanted if name in header]
    if len(present) == 1:
        return present[0]
    problem = f"no column '{tags_column}'"
    if tags_column is None:
        both, nor = ("both a", "and") if present else ("neither a", "nor")
        problem = f"{both} column 'tags' {nor} 'labels'"
    listed = ", ".join(header)
    raise InputError(f"{path.name} has {problem}; pass `tags_column`, one of: {listed}.")


def _number(text: str) -> float | None:
    """Read a cell as a number; None for other text."""
    try:
        return float(text)
    except ValueError:
        return None
