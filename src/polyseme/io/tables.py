"""Text tables in: `.jsonl` files of one object a line, `.csv` and `.tsv` files with a header row.

In come documents or, from `.csv` and `.tsv`, numeric feature columns; out go `RawDocuments` or a
float matrix.
"""

from __future__ import annotations

import csv
import json
import reprlib
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polyseme._validation import InputError
from polyseme.io import RawDocuments, line_error, numbered_lines

_GUESSED_DELIMITERS = (";", "|", ",")
# field of a document -> where `RawDocuments` has it
_FIELDS = {"id": "ids", "group": "groups", "split": "splits"}
ID = "id"  # a column that names rows is no feature


def read_documents(
    path: Path, *, tags_column: str | None = None, delimiter: str | None = None
) -> RawDocuments:
    """Read documents, one a row; see `polyseme.io.read_documents`.

    A row is a JSON object with `labels` (or `tags`) as a list of strings, a plain JSON list of
    them, or a table row with delimited tags, which are stripped and empty ones dropped. `id` (or
    `file`), `group` and `split` are read where they are given and not empty; a field that one
    document has, all must have. Blank lines are skipped.
    """
    if ".jsonl" in path.name.lower():
        return _documents(path, _json_records(path))
    return _documents(path, _table_records(path, tags_column, delimiter))


def read_features(path: Path) -> NDArray[np.float64]:
    """Read numeric columns, shape (n, n_features); see `polyseme.io.read_features`.

    A column `id` is left out, and empty cells are NaN.
    """
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
    columns = [column for column, name in enumerate(header) if name != ID]
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


def _documents(path: Path, records: Iterable[tuple[int, Mapping[str, Any]]]) -> RawDocuments:
    """Collect documents from records with their line numbers."""
    label_sets: list[list[str]] = []
    fields: dict[str, Any] = {}
    for number, record in records:
        key = "labels" if record.get("labels") is not None else "tags"
        labels = record.get(key)
        if labels is None:
            what = "has no 'labels'; give every document a list of strings."
            raise line_error(path, number, what)
        if not isinstance(labels, list) or not {*map(type, labels)} <= {str}:
            what = f"must have '{key}' as a list of strings; got {reprlib.repr(labels)}."
            raise line_error(path, number, what)
        values = {name: record[name] for name in _FIELDS if record.get(name) is not None}
        if ID not in values and record.get("file") is not None:
            values[ID] = record["file"]
        for name, value in values.items():
            if isinstance(value, bool) or not isinstance(value, (str, int)):
                what = f"must have a string as '{name}'; got {reprlib.repr(value)}."
                raise line_error(path, number, what)
        if not label_sets:
            fields = {name: [] for name in values}
        if fields.keys() != values.keys():
            name = min(fields.keys() ^ values.keys())
            has, others = ("has", "lack it") if name in values else ("lacks", "have it")
            what = f"{has} '{name}' while the documents before {others}; give it to all or none."
            raise line_error(path, number, what)
        label_sets.append(labels)
        for name, value in values.items():
            fields[name].append(str(value))
    return RawDocuments(label_sets, **{_FIELDS[name]: fields[name] for name in fields})


def _json_records(path: Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Yield the objects of JSON lines; a plain list becomes its `labels`."""
    for number, text in numbered_lines(path):
        if not text.strip():
            continue
        try:
            record = json.loads(text)
            if "\\u" in text:
                # JSON can spell half of a character pair, which no UTF-8 file can hold.
                json.dumps(record, ensure_ascii=False).encode("utf-8")
        except (ValueError, RecursionError) as error:
            reason = str(error).partition(": line")[0]
            what = f"is not valid JSON ({reason}); write one object or list per line."
            raise line_error(path, number, what) from error
        if not isinstance(record, (list, dict)):
            what = f"must be a JSON object or list of strings; got {reprlib.repr(record)}."
            raise line_error(path, number, what)
        yield number, record if isinstance(record, dict) else {"labels": record}


def _table_records(
    path: Path, tags_column: str | None, delimiter: str | None
) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Yield the rows of a table as records, empty cells as None."""
    if delimiter == "":
        raise InputError("`delimiter` of `read_documents` must not be empty; got ''.")
    rows = _rows(path)
    header = _header(rows, path)
    tags_column = _tags_column(header, tags_column, path)
    place, table = header.index(tags_column), list(rows)
    fields = [(name, header.index(name)) for name in (*_FIELDS, "file") if name in header]
    if delimiter is None:
        guesses = (d for d in _GUESSED_DELIMITERS if any(d in row[place] for _, row in table))
        delimiter = next(guesses, None)
    for number, row in table:
        pieces = [row[place]] if delimiter is None else row[place].split(delimiter)
        tags = [tag for piece in pieces if (tag := piece.strip())]
        record = {name: row[at].strip() or None for name, at in fields if at != place}
        yield number, {"labels": tags, **record}


def _rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield (line number, cells) of each row that is not blank, all as long as the first."""
    separator = "\t" if path.name.lower().removesuffix(".gz").endswith(".tsv") else ","
    lines = (text for _, text in numbered_lines(path))
    reader = csv.reader(lines, delimiter=separator, strict=True)
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
    for name, count in Counter(header).items():
        if name and count > 1:
            raise InputError(f"{path.name} has two columns '{name}'; rename one.")
    return header


def _tags_column(header: Sequence[str], tags_column: str | None, path: Path) -> str:
    """Return the name of the column that holds the tags."""
    wanted = ("tags", "labels") if tags_column is None else (tags_column,)
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
