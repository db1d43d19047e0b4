"""Tables: `.csv`, `.tsv` and `.parquet` files with a header row.

In come documents (one cell of delimited tags per row) or numeric feature columns; out go
`RawDocuments` or a float matrix. Results are written as CSV.
"""

from __future__ import annotations

import csv
import reprlib
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import numpy as np
from numpy.typing import NDArray

from polyseme._validation import InputError
from polyseme.io import Plain, RawDocuments, line_error, numbered_lines, plain_value

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl

_GUESSED_DELIMITERS = (";", "|", ",")
_TAG_COLUMNS = ("tags", "labels")


def read_documents(
    path: Path, *, tags_column: str | None = None, delimiter: str | None = None
) -> RawDocuments:
    """Read documents from a table with a header row.

    Tags are stripped and empty ones dropped. The columns `id` (or `file`), `group` and `split` are
    read where they exist, stripped; one that is empty in every row counts as absent.

    Parameters
    ----------
    path : Path
        An existing `.csv` or `.tsv` file, gzipped or not.
    tags_column : str, optional
        The column with the tags; `tags` or `labels` otherwise.
    delimiter : str, optional
        What separates the tags in a cell. Otherwise the first of `;`, `|` and `,` that occurs
        anywhere in the column; where none does, a cell is one tag.

    Returns
    -------
    RawDocuments
        With `label_sets`.
    """
    if delimiter == "":
        raise InputError("`delimiter` of `read_documents` must not be empty; got ''.")
    rows = _rows(path)
    header = _header(rows, path)
    tags_at = _tags_position(header, tags_column, path)
    table = list(rows)
    cells = [row[tags_at] for _, row in table]
    if delimiter is None:
        delimiter = next((d for d in _GUESSED_DELIMITERS if any(d in cell for cell in cells)), None)
    return RawDocuments(
        ids=_field(table, header, "id", tags_at, path)
        or _field(table, header, "file", tags_at, path),
        label_sets=[_pieces(cell, delimiter) for cell in cells],
        indicator=None,
        labels=None,
        groups=_field(table, header, "group", tags_at, path),
        splits=_field(table, header, "split", tags_at, path),
    )


def read_features(path: Path) -> NDArray[np.float64]:
    """Read numeric columns; an `id` column is left out, and empty cells are NaN.

    Parameters
    ----------
    path : Path
        An existing `.csv` or `.tsv` file, gzipped or not, or a `.parquet` file.

    Returns
    -------
    float64 array, shape (n, n_features)
    """
    if path.name.lower().endswith(".parquet"):
        return _parquet(path)
    rows = _rows(path)
    header = _header(rows, path)
    _refuse_missing_names(header, path)
    kept = [at for at, name in enumerate(header) if name != "id"]
    values = array("d")
    for number, row in rows:
        values.extend(_numbers([row[at] for at in kept], [header[at] for at in kept], path, number))
    return np.array(values, dtype=np.float64).reshape(len(values) // max(len(kept), 1), len(kept))


def write_records(records: Iterable[Mapping[str, object]], target: TextIO) -> None:
    """Write records as CSV with the keys of the first one as header.

    Parameters
    ----------
    records : iterable of dict
        What `polyseme.io.write_records` takes; lists are joined by `;`, None is left empty.
    target : text stream
        Where the rows go.
    """
    plainly = csv.writer(target, lineterminator="\n")
    # The csv module of Python 3.11 leaves a carriage return unquoted when lines end in "\n".
    quoting = csv.writer(target, lineterminator="\n", quoting=csv.QUOTE_ALL)
    header: list[str] = []
    for number, record in enumerate(records, start=1):
        if number == 1:
            header = list(record)
            plainly.writerow(header)
        unknown = [name for name in record if name not in header]
        if unknown:
            raise InputError(
                f"Record {number} has '{unknown[0]}', which the first record lacks; "
                "give all records the same keys or write jsonl."
            )
        cells = [_cell(record.get(name), f"'{name}' of record {number}") for name in header]
        writer = quoting if any("\r" in cell for cell in cells) else plainly
        writer.writerow(cells)


def _rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield (line number, cells) of each row that is not blank, all as long as the first."""
    separator = "\t" if path.name.lower().removesuffix(".gz").endswith(".tsv") else ","
    lines = (text for _, text in numbered_lines(path))
    reader = csv.reader(lines, delimiter=separator, strict=True)
    width = None
    try:
        for row in reader:
            if not row:
                continue
            width = len(row) if width is None else width
            if len(row) != width:
                raise line_error(
                    path, reader.line_num, f"has {len(row)} cells but the header has {width}."
                )
            yield reader.line_num, row
    except csv.Error as error:
        raise line_error(
            path, reader.line_num, f"is not readable as a table row ({error}); check its quotes."
        ) from error


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


def _tags_position(header: Sequence[str], tags_column: str | None, path: Path) -> int:
    """Return which column holds the tags."""
    listed = ", ".join(header)
    if tags_column is not None:
        if tags_column not in header:
            raise InputError(f"{path.name} has no column '{tags_column}'; its columns: {listed}.")
        return header.index(tags_column)
    found = [name for name in _TAG_COLUMNS if name in header]
    if len(found) == 1:
        return header.index(found[0])
    problem = "both a column 'tags' and" if found else "neither a column 'tags' nor"
    raise InputError(
        f"{path.name} has {problem} 'labels'; pass `tags_column` as one of its columns: {listed}."
    )


def _field(
    table: Sequence[tuple[int, list[str]]],
    header: Sequence[str],
    name: str,
    tags_at: int,
    path: Path,
) -> list[str] | None:
    """Return an optional column, or None where it is absent or empty throughout."""
    if name not in header or header.index(name) == tags_at:
        return None
    at = header.index(name)
    values = [row[at].strip() for _, row in table]
    if not any(values):
        return None
    if "" in values:
        number = table[values.index("")][0]
        raise line_error(path, number, f"has an empty '{name}'; give it to all rows or to none.")
    return values


def _pieces(cell: str, delimiter: str | None) -> list[str]:
    """Split a cell into stripped tags without the empty ones."""
    pieces = [cell] if delimiter is None else cell.split(delimiter)
    return [tag for piece in pieces if (tag := piece.strip())]


def _refuse_missing_names(header: Sequence[str], path: Path) -> None:
    """Raise for unnamed columns and for a first row of measurements, which would be lost."""
    if "" in header:
        raise InputError(
            f"Column {header.index('') + 1} of {path.name} has no name; name it (`id` if it numbers"
            " the rows) or leave it out."
        )
    # pandas names unnamed columns 0, 1, 2, …: these are names although they are numbers.
    if list(header) == [str(at) for at in range(len(header))]:
        return
    if all(_is_number(name) for name in header):
        raise InputError(
            f"The first row of {path.name} must hold column names; got numbers: add a header row."
        )


def _is_number(text: str) -> bool:
    """Say whether a cell reads as a number."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def _numbers(cells: list[str], names: list[str], path: Path, number: int) -> list[float]:
    """Convert the cells of one row, empty ones to NaN."""
    try:
        return [float(cell) if cell.strip() else np.nan for cell in cells]
    except ValueError as error:
        wrong = next(at for at, cell in enumerate(cells) if cell.strip() and not _is_number(cell))
        raise line_error(
            path,
            number,
            f"must hold a number in column '{names[wrong]}'; got {reprlib.repr(cells[wrong])}.",
        ) from error


def _cell(value: object, where: str) -> str:
    """Spell one value for CSV."""
    plain = plain_value(value, where=where)
    if not isinstance(plain, list):
        return _spell(plain, where)
    items = [_spell(item, where) for item in plain]
    unsafe = [item for item in items if ";" in item]
    if unsafe:
        raise InputError(
            f"{where} holds '{unsafe[0]}', and ';' separates list items in CSV; write jsonl."
        )
    return ";".join(items)


def _spell(plain: Plain, where: str) -> str:
    """Spell a single value for CSV."""
    if isinstance(plain, (list, dict)):
        raise InputError(f"{where} is nested too deep for CSV; write jsonl.")
    return "" if plain is None else str(plain)


def _parquet(path: Path) -> NDArray[np.float64]:
    """Read the numeric columns of a Parquet file with polars, or with pandas in its place."""
    try:
        import polars
    except ImportError:
        return _parquet_pandas(path)
    try:
        # An open file, because polars would expand `*` and `[` in a path.
        with path.open("rb") as stream:
            frame: pl.DataFrame = polars.read_parquet(stream)
    except (polars.exceptions.PolarsError, polars.exceptions.PanicException, OSError) as error:
        raise _parquet_error(path, error) from error
    frame = frame.drop("id", strict=False)
    for name, kind in frame.schema.items():
        if not (kind.is_numeric() or kind == polars.Boolean):
            raise _column_error(path, name, kind)
    columns = frame.select(polars.all().cast(polars.Float64).fill_null(np.nan))
    return np.asarray(columns.to_numpy(), dtype=np.float64).reshape(frame.shape)


def _parquet_pandas(path: Path) -> NDArray[np.float64]:
    """Read the numeric columns of a Parquet file with pandas."""
    try:
        import pandas

        with path.open("rb") as stream:
            frame: pd.DataFrame = pandas.read_parquet(stream)
    except ImportError as error:
        raise InputError(
            f"{path.name} needs polars to be read; run pip install 'polyseme[frames]'."
        ) from error
    except (ValueError, OSError) as error:
        raise _parquet_error(path, error) from error
    frame = frame.drop(columns="id", errors="ignore")
    for name, kind in frame.dtypes.items():
        if not (pandas.api.types.is_numeric_dtype(kind) or pandas.api.types.is_bool_dtype(kind)):
            raise _column_error(path, name, kind)
    return np.asarray(frame.to_numpy(dtype=np.float64, na_value=np.nan), dtype=np.float64)


def _parquet_error(path: Path, error: Exception) -> InputError:
    """Build the error for a file that is no Parquet file."""
    reason = str(error).partition("\n")[0]
    return InputError(f"{path.name} is not readable as Parquet ({reason}); write it again.")


def _column_error(path: Path, name: object, kind: object) -> InputError:
    """Build the error for a column that holds no numbers."""
    return InputError(
        f"Column '{name}' of {path.name} must hold numbers; got {kind}: drop or encode it."
    )
