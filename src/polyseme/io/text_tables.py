"""Text tables: `.jsonl` files of one object a line, `.csv` and `.tsv` files with a header row.

In come rows with ids, tags and features, as cells of text or as JSON values; out goes a `Table`.
"""

from __future__ import annotations

import csv
import json
import reprlib
from array import array
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from polyseme._validation import InputError
from polyseme.io import Table, Wanted, line_error, numbered_lines
from polyseme.io.columns import (
    FIELDS,
    FILE,
    LIST,
    NUMBER,
    TAGS,
    TEXT,
    VECTOR,
    Roles,
    check_size,
    find_roles,
)
from polyseme.io.tag_cells import CellError, label_sets

ID = "id"
Record = tuple[int, Mapping[str, Any]]  # a line number, and the row's values by column


def read_table(path: Path, wanted: Wanted) -> Table:
    """Read rows; see `polyseme.io.read_table`.

    A row is a JSON object, a plain JSON list of labels, or a table row. `id` (or `file`), `group`
    and `split` are read where they are given and not empty; a field that one row has, all must
    have. Blank lines are skipped, and what a row lacks is NaN.
    """
    if ".jsonl" in path.name.lower():
        records = _json_records(path, wanted)
        first = next(records, None)
        if first is None:
            return Table()
        kinds = {name: _kind(value) for name, value in first[1].items()}
    else:
        records, header = _table_records(path, wanted)
        first = next(records, None)
        row: Mapping[str, Any] = {} if first is None else first[1]
        kinds = {name: _kind_of_text(row.get(name)) for name in header}
    roles = find_roles(kinds, wanted, path.name)
    if first is None:
        return Table(features=np.empty((0, len(roles.features))))
    return _collect(path, first, records, roles, wanted)


def read_records(path: Path) -> Iterator[Record]:
    """Read rows as they are, with their line numbers; empty cells are None.

    Parameters
    ----------
    path : Path
        A `.jsonl`, `.csv` or `.tsv` file, gzipped or not.
    """
    if ".jsonl" in path.name.lower():
        return _json_records(path, Wanted())
    return _table_records(path, Wanted())[0]


def _collect(
    path: Path, first: Record, others: Iterator[Record], roles: Roles, wanted: Wanted
) -> Table:
    """Collect ids, tags and features from records with their line numbers."""
    cells: list[Any] = []
    lines, values = array("q"), array("d")
    fields: dict[str, list[str]] = {}
    width = 0
    for number, record in _chained(first, others):
        if wanted.tags and roles.tags is not None:
            cell = record.get(roles.tags)
            if cell is None:
                what = f"has no '{roles.tags}'; give every document a list of strings, or text."
                raise line_error(path, number, what)
            cells.append(cell)
        row = _row(path, number, record, roles)
        names = _named(path, number, record, roles)
        if not len(lines):
            fields, width = {name: [] for name in names}, len(row)
        if fields.keys() != names.keys():
            name = min(fields.keys() ^ names.keys())
            has, rest = ("has", "lack it") if name in names else ("lacks", "have it")
            what = f"{has} '{name}' while the documents before {rest}; give it to all or none."
            raise line_error(path, number, what)
        if len(row) != width:
            what = f"has a vector of {len(row)} numbers where others have {width}."
            raise line_error(path, number, what)
        lines.append(number)
        values.extend(row)
        check_size(1, len(values), path.name)
        for name, value in names.items():
            fields[name].append(value)
    given: dict[str, Any] = {FIELDS[name]: listed for name, listed in fields.items()}
    table = Table(unused=roles.unused, **given)
    if roles.features:
        columns = roles.numbers if roles.vector is None else None
        matrix = np.array(values).reshape(len(lines), width)
        table = replace(table, features=matrix, columns=columns)
    if not cells:
        return table
    try:
        return replace(
            table, label_sets=label_sets(cells, wanted.delimiter, roles.tags or "labels")
        )
    except CellError as error:
        raise line_error(path, lines[error.place], str(error)) from error


def _chained(first: Record, others: Iterator[Record]) -> Iterator[Record]:
    """Yield a record and then others."""
    yield first
    yield from others


def _row(path: Path, number: int, record: Mapping[str, Any], roles: Roles) -> list[float]:
    """Give the features of one row."""
    if roles.vector is not None:
        vector = record.get(roles.vector)
        numbers = _vector(vector) if isinstance(vector, str) else vector
        if not isinstance(numbers, list) or _kind(numbers) != VECTOR:
            what = f"must hold a list of numbers in '{roles.vector}'; got {reprlib.repr(vector)}."
            raise line_error(path, number, what)
        return numbers
    row = []
    for name in roles.numbers:
        cell = record.get(name)
        value = _number(cell) if isinstance(cell, str) else np.nan if cell is None else cell
        if not isinstance(value, (int, float)):
            what = f"must hold a number in column '{name}'; got {reprlib.repr(cell)}."
            raise line_error(path, number, what)
        row.append(float(value))
    return row


def _named(path: Path, number: int, record: Mapping[str, Any], roles: Roles) -> dict[str, str]:
    """Give id, group and split of one row, where it has them."""
    others = (name for name in FIELDS if name != roles.tags)
    names = {name: record[name] for name in others if record.get(name) is not None}
    if ID not in names and record.get(FILE) is not None:
        names[ID] = record[FILE]
    for name, value in names.items():
        if isinstance(value, bool) or not isinstance(value, (str, int)):
            what = f"must have a string as '{name}'; got {reprlib.repr(value)}."
            raise line_error(path, number, what)
    return {name: str(value) for name, value in names.items()}


# ---------------------------------------------------------------------- JSON lines


def _json_records(path: Path, wanted: Wanted) -> Iterator[Record]:
    """Yield the objects of JSON lines; a plain list becomes its `labels`, and so do `tags`."""
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
        if isinstance(record, list):
            record = {"labels": record}
        elif wanted.tags_column is None and wanted.tags and "tags" in record:
            tags = record.pop("tags")
            if record.get("labels") is None:
                record["labels"] = tags
        yield number, record


def _kind(value: Any) -> str:
    """Say what a JSON value is for us."""
    if value is None or isinstance(value, (bool, int, float)):
        return NUMBER
    if isinstance(value, str):
        return TEXT
    if isinstance(value, list):
        kinds = {type(item) for item in value}
        if kinds and kinds <= {int, float, bool}:
            return VECTOR
        return LIST if kinds <= {str} else "nested lists"
    return "objects"


# ---------------------------------------------------------------------- CSV and TSV


def _table_records(path: Path, wanted: Wanted) -> tuple[Iterator[Record], list[str]]:
    """Give the rows of a table as records, and the names of its columns."""
    rows = _rows(path)
    header = _header(rows, path)
    if wanted.features == "all" and not wanted.tags:
        _check_header(header, path)

    def records() -> Iterator[Record]:
        text = {*TAGS} if wanted.tags_column is None else {wanted.tags_column}
        for number, row in rows:
            # Without tags a cell is empty; all others are then not there.
            pairs = zip(header, row, strict=True)
            yield (
                number,
                {name: cell if name in text else cell.strip() or None for name, cell in pairs},
            )

    return records(), header


def _check_header(header: list[str], path: Path) -> None:
    """Refuse a header of features without a name for each column."""
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


def _kind_of_text(cell: str | None) -> str:
    """Say what a column of text is for us, by its first cell."""
    if cell is None or not cell.strip() or _number(cell) is not None:
        return NUMBER
    return TEXT if _vector(cell) is None else VECTOR


def _number(text: str) -> float | None:
    """Read a cell as a number; None for other text."""
    try:
        return float(text)
    except ValueError:
        return None


def _vector(text: str) -> list[float] | None:
    """Read a cell as a list of numbers, as JSON, Python or numpy write it; None for other text."""
    stripped = text.strip()
    if len(stripped) < 2 or stripped[0] + stripped[-1] not in ("[]", "()"):
        return None
    numbers = [_number(word) for word in stripped[1:-1].replace(",", " ").split()]
    return None if not numbers or None in numbers else numbers  # type: ignore[return-value]
