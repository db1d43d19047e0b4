"""Read text tables: `.jsonl` files of one object a line, `.csv` and `.tsv` files with a header.

In: rows with ids, tags and features, as cells of text or as JSON values. Out: a `Table`.
"""

from __future__ import annotations

import csv
import itertools
import json
import reprlib
from array import array
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from polyseme.base.text import in_words
from polyseme.base.validation import InputError
from polyseme.io import ReadOptions, Table, line_error, numbered_lines
from polyseme.io.columns import (
    FIELD_BY_COLUMN,
    LIST_KIND,
    NUMBER_KIND,
    TEXT_KIND,
    VECTOR_KIND,
    ColumnRoles,
    build_table,
    check_size,
    find_fields,
    find_roles,
)
from polyseme.io.records import FORMULA_STARTS

_NUMBERS = (float, int, type(None))
Record = tuple[int, Mapping[str, Any]]  # a line number, and the row's values by column


def read_table(path: Path, options: ReadOptions) -> Table:
    """Read rows; see `polyseme.io.read_table`.

    A row is a JSON object, a plain JSON list of labels, or a table row. `id` (or `file`), `group`
    and `split` are read where they are given and not empty; a field that one row has, all must
    have. Blank lines are skipped, and what a row lacks is NaN.
    """
    is_json = ".jsonl" in path.name.lower()
    header: list[str] = []
    if is_json:
        records = _json_records(path, options)
    else:
        header, records = _table_records(path)
    first = next(records, None)
    if first is None and is_json:
        return Table()
    first_row: Mapping[str, Any] = {}
    if first is not None:
        first_row = first[1]
        records = itertools.chain([first], records)
    kinds: dict[str, str] = {}
    for name in header or first_row:
        kinds[name] = _kind(first_row.get(name), as_text=not is_json)
    roles = find_roles(kinds, options, path.name)
    cells: dict[str, list[Any]] = {name: [] for name in FIELD_BY_COLUMN}
    if roles.tags_column is not None:
        cells[roles.tags_column] = []
    line_numbers = array("q")
    values = array("d")
    width = len(roles.number_columns)
    for number, record in records:
        for name, column in cells.items():
            column.append(record.get(name))
        if is_json and roles.tags_column is not None and record.get(roles.tags_column) is None:
            problem = (
                f"has no '{roles.tags_column}'; give every document a list of strings, or text."
            )
            raise line_error(path, number, problem)
        row_values = _numbers(path, number, record, roles)
        if not line_numbers:
            width = len(row_values)
        if len(row_values) != width:
            problem = f"has a vector of {len(row_values)} numbers where others have {width}."
            raise line_error(path, number, problem)
        line_numbers.append(number)
        values.extend(row_values)
        check_size(1, len(values), path.name)
    filled = [name for name in cells if any(cell is not None for cell in cells[name])]
    fields = find_fields([name for name in filled if name != roles.tags_column])
    roles = roles._replace(field_by_column=fields)
    matrix = None
    if roles.feature_columns:
        matrix = np.array(values).reshape(len(line_numbers), width)

    def place_of(row: int) -> str:
        return f"Line {line_numbers[row]} of {path.name}"

    return build_table(roles, cells, options, place_of, matrix)


def read_records(path: Path) -> Iterator[Record]:
    """Read rows as they are, with their line numbers; empty cells are None.

    Parameters
    ----------
    path : Path
        A `.jsonl`, `.csv` or `.tsv` file, gzipped or not.
    """
    if ".jsonl" in path.name.lower():
        return _json_records(path, ReadOptions())
    return _table_records(path)[1]


def _numbers(path: Path, number: int, record: Mapping[str, Any], roles: ColumnRoles) -> list[float]:
    """Return the features of one row."""
    values: list[Any] = []
    for name in roles.feature_columns:
        cell = record.get(name)
        values.append(_value(cell))
    if roles.vector_column is not None:
        vector = values[0]
        if _kind(vector) != VECTOR_KIND:
            cell = reprlib.repr(record.get(roles.vector_column))
            problem = f"must hold a list of numbers in '{roles.vector_column}'; got {cell}."
            raise line_error(path, number, problem)
        return _as_floats(path, number, vector)
    for name, value in zip(roles.number_columns, values, strict=True):
        if not isinstance(value, _NUMBERS):
            cell = reprlib.repr(record.get(name))
            problem = f"must hold a number in column '{name}'; got {cell}."
            raise line_error(path, number, problem)
    numbers: list[Any] = []
    for value in values:
        is_missing = value is None
        numbers.append(np.nan if is_missing else value)
    return _as_floats(path, number, numbers)


def _as_floats(path: Path, number: int, values: Sequence[Any]) -> list[float]:
    """Return numbers as floats, which JSON's whole numbers may be too large for."""
    try:
        return [float(value) for value in values]
    except OverflowError as error:
        raise line_error(path, number, "holds a number that is too large for any float.") from error


def _kind(value: Any, *, as_text: bool = False) -> str:
    """Return the kind of a column, by one of its values or the text of it."""
    value = _value(value) if as_text else value
    if value is None or isinstance(value, (bool, int, float)):
        return NUMBER_KIND
    if isinstance(value, str):
        return TEXT_KIND
    if isinstance(value, list):
        kinds = {type(item) for item in value}
        if kinds and kinds <= {int, float, bool}:
            return VECTOR_KIND
        return LIST_KIND if kinds <= {str} else "nested lists"
    return "objects"


def _value(cell: Any) -> Any:
    """Return text as a number, or as a list of them as JSON, Python or numpy write it, if it is."""
    if not isinstance(cell, str):
        return cell
    try:
        return float(cell)
    except ValueError:
        text = cell.strip()
    is_list = len(text) > 2 and text[0] + text[-1] in ("[]", "()")
    if is_list:
        words = text[1:-1].replace(",", " ").split()
        with suppress(ValueError):
            return [float(word) for word in words]
    return cell


def _json_records(path: Path, options: ReadOptions) -> Iterator[Record]:
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
            reason, _, _ = str(error).partition(": line")
            problem = f"is not valid JSON ({reason}); write one object or list per line."
            raise line_error(path, number, problem) from error
        if not isinstance(record, (list, dict)):
            problem = f"must be a JSON object or list of strings; got {reprlib.repr(record)}."
            raise line_error(path, number, problem)
        if isinstance(record, list):
            record = {"labels": record}
        elif options.tags_column is None and options.tags and "tags" in record:
            tags = record.pop("tags")
            if record.get("labels") is None:
                record["labels"] = tags
        yield number, record


def _table_records(path: Path) -> tuple[list[str], Iterator[Record]]:
    """Return the names of a table's columns, and its rows by these; an empty cell is None."""
    rows = _rows(path)
    first = next(rows, None)
    if first is None:
        raise InputError(f"{path.name} is empty; its first row must hold the column names.")
    _, first_cells = first
    header = [name.strip() for name in first_cells]
    for name, count in Counter(header).items():
        if name and count > 1:
            raise InputError(f"{path.name} has two columns '{in_words(name, 100)}'; rename one.")
    # pandas names unnamed columns 0, 1, 2, …: these are names although they are numbers.
    column_numbers = [str(column) for column in range(len(header))]
    if header != column_numbers and all(
        _kind(name, as_text=True) == NUMBER_KIND for name in header
    ):
        raise InputError(
            f"The first row of {path.name} must hold column names; got numbers: add a header row."
        )

    def records() -> Iterator[Record]:
        for number, row in rows:
            values = map(_unguarded, row)
            yield number, dict(zip(header, values, strict=True))

    return header, records()


def _unguarded(cell: str) -> str | None:
    """Return the text of a cell, without the apostrophe that keeps it from being a formula."""
    text = cell.strip()
    inner = text.lstrip("'")
    is_guarded = text.startswith("'")
    if is_guarded and inner.startswith(FORMULA_STARTS):
        text = text[1:]
    return text or None


def _rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield (line number, cells) of each row that is not blank, all as long as the first."""
    separator = "\t" if path.name.lower().removesuffix(".gz").endswith(".tsv") else ","
    lines = (text for _, text in numbered_lines(path))
    reader = csv.reader(lines, delimiter=separator, strict=True)
    width = 0
    try:
        for row in reader:
            if not row:
                continue
            width = width or len(row)
            if len(row) != width:
                problem = f"has {len(row)} cells but the header has {width}."
                raise line_error(path, reader.line_num, problem)
            yield reader.line_num, row
    except csv.Error as error:
        problem = f"is not readable as a table row ({error}); check its quotes."
        raise line_error(path, reader.line_num, problem) from error
