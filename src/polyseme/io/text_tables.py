"""Read text tables: `.jsonl` files of one object a line, `.csv` and `.tsv` files with a header.

In: rows with ids, tags and features, as cells of text or as JSON values. Out: a `Table`.

Terms: a *record* is a row with the number of its line, from 1, and its cells by column. A *cell* is
a text in CSV and any value in JSON; None where it is empty.
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

_NUMBER_TYPES = (float, int, type(None))  # None is a missing number
Record = tuple[int, Mapping[str, Any]]


def read_table(path: Path, options: ReadOptions) -> Table:
    """Read rows; see `polyseme.io.read_table`.

    A row is a JSON object, a plain JSON list of labels, or a table row. `id` (or `file`), `group`
    and `split` are read where they are given and not empty; a field that one row has, all must
    have. Blank lines are skipped, and what a row lacks is NaN.
    """
    is_json = _is_json(path)
    header: list[str] = []
    if is_json:
        records = _json_records(path, options)
    else:
        header, records = _table_records(path)
    first_record = next(records, None)
    if first_record is None and is_json:
        return Table()
    first_row: Mapping[str, Any] = {}
    if first_record is not None:
        _, first_row = first_record
        records = itertools.chain([first_record], records)

    # The first row tells what each column holds.
    kind_by_column: dict[str, str] = {}
    for column in header or first_row:
        first_cell = first_row.get(column)
        kind_by_column[column] = _kind(first_cell, as_text=not is_json)
    roles = find_roles(kind_by_column, options, path.name)
    tags_column = roles.tags_column
    cells_by_column: dict[str, list[Any]] = {column: [] for column in FIELD_BY_COLUMN}
    if options.text_column is not None:
        cells_by_column[options.text_column] = []
    if tags_column is not None:
        cells_by_column[tags_column] = []
    line_numbers = array("q")  # of each row
    numbers = array("d")  # the features, row after row
    width = len(roles.number_columns)  # features of a row; of vectors, what the first row has
    for line_number, row in records:
        for column, cells in cells_by_column.items():
            cells.append(row.get(column))
        lacks_tags = tags_column is not None and row.get(tags_column) is None
        if is_json and lacks_tags:
            problem = f"has no '{tags_column}'; give every document a list of strings, or text."
            raise line_error(path, line_number, problem)
        row_numbers = _row_numbers(path, line_number, row, roles)
        if not line_numbers:
            width = len(row_numbers)
        if len(row_numbers) != width:
            problem = f"has a vector of {len(row_numbers)} numbers where others have {width}."
            raise line_error(path, line_number, problem)
        line_numbers.append(line_number)
        numbers.extend(row_numbers)
        check_size(1, len(numbers), path.name)

    # Rows of JSON may name a column that the first one lacks, so roles are settled only now.
    filled_columns = []
    for column, cells in cells_by_column.items():
        is_filled = any(cell is not None for cell in cells)
        if is_filled and column != tags_column:
            filled_columns.append(column)
    roles = roles._replace(field_by_column=find_fields(filled_columns, options.text_column))
    features = None
    if roles.feature_columns:
        features = np.array(numbers).reshape(len(line_numbers), width)

    def place_of(row: int) -> str:
        return f"Line {line_numbers[row]} of {path.name}"

    return build_table(roles, cells_by_column, options, place_of, features)


def read_records(path: Path) -> Iterator[Record]:
    """Yield rows as they are, with their line numbers; empty cells are None.

    Parameters
    ----------
    path : Path
        A `.jsonl`, `.csv` or `.tsv` file, gzipped or not.
    """
    if _is_json(path):
        return _json_records(path, ReadOptions())
    _, records = _table_records(path)
    return records


def _is_json(path: Path) -> bool:
    """Return whether a file is of JSON lines, gzipped or not; else it is a table."""
    return ".jsonl" in path.name.lower()


def _row_numbers(
    path: Path, line_number: int, row: Mapping[str, Any], roles: ColumnRoles
) -> list[float]:
    """Return the features of one row; path and line are for errors."""
    vector_column = roles.vector_column
    if vector_column is not None:
        vector = _parse_numbers(row.get(vector_column))
        if _kind(vector) != VECTOR_KIND:
            shown_cell = reprlib.repr(row.get(vector_column))
            problem = f"must hold a list of numbers in '{vector_column}'; got {shown_cell}."
            raise line_error(path, line_number, problem)
        return _as_floats(path, line_number, vector)
    numbers: list[Any] = []
    for column in roles.number_columns:
        number = _parse_numbers(row.get(column))
        if not isinstance(number, _NUMBER_TYPES):
            shown_cell = reprlib.repr(row.get(column))
            problem = f"must hold a number in column '{column}'; got {shown_cell}."
            raise line_error(path, line_number, problem)
        is_missing = number is None
        numbers.append(np.nan if is_missing else number)
    return _as_floats(path, line_number, numbers)


def _as_floats(path: Path, line_number: int, numbers: Sequence[Any]) -> list[float]:
    """Return numbers as floats, which JSON's whole numbers may be too large for."""
    try:
        return [float(number) for number in numbers]
    except OverflowError as error:
        problem = "holds a number that is too large for any float."
        raise line_error(path, line_number, problem) from error


def _kind(cell: Any, *, as_text: bool = False) -> str:
    """Return the kind of a column that has such a cell; with `as_text` of what a text spells."""
    value = _parse_numbers(cell) if as_text else cell
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


def _parse_numbers(cell: Any) -> Any:
    """Return the number, or the list of numbers, that a text spells; any other cell as it is.

    A list may be as JSON, Python or numpy print it.
    """
    if not isinstance(cell, str):
        return cell
    try:
        return float(cell)
    except ValueError:
        text = cell.strip()
    is_bracketed = len(text) > 2 and text[0] + text[-1] in ("[]", "()")
    if is_bracketed:
        words = text[1:-1].replace(",", " ").split()
        with suppress(ValueError):
            return [float(word) for word in words]
    return cell


def _json_records(path: Path, options: ReadOptions) -> Iterator[Record]:
    """Yield the records of JSON lines.

    A plain list becomes a row with `labels`. Where tags are read and no column is named for them, a
    row may have either of `tags` and `labels`: both are `labels` then.
    """
    for line_number, text in numbered_lines(path):
        if not text.strip():
            continue
        try:
            row = json.loads(text)
            if "\\u" in text:
                # JSON can spell half of a character pair, which no UTF-8 file can hold.
                json.dumps(row, ensure_ascii=False).encode("utf-8")
        except (ValueError, RecursionError) as error:
            reason, _, _ = str(error).partition(": line")
            problem = f"is not valid JSON ({reason}); write one object or list per line."
            raise line_error(path, line_number, problem) from error
        if not isinstance(row, (list, dict)):
            problem = f"must be a JSON object or list of strings; got {reprlib.repr(row)}."
            raise line_error(path, line_number, problem)
        may_rename = options.tags and options.tags_column is None
        if isinstance(row, list):
            row = {"labels": row}
        elif may_rename and "tags" in row:
            tags = row.pop("tags")
            if row.get("labels") is None:
                row["labels"] = tags
        yield line_number, row


def _table_records(path: Path) -> tuple[list[str], Iterator[Record]]:
    """Return the names of a table's columns, and its records."""
    cell_rows = _cell_rows(path)
    first_row = next(cell_rows, None)
    if first_row is None:
        raise InputError(f"{path.name} is empty; its first row must hold the column names.")
    _, header_cells = first_row
    header = [cell.strip() for cell in header_cells]
    for name, count in Counter(header).items():
        if name and count > 1:
            raise InputError(f"{path.name} has two columns '{in_words(name, 100)}'; rename one.")
    # pandas names unnamed columns 0, 1, 2, …: these are names although they are numbers.
    names_of_pandas = [str(position) for position in range(len(header))]
    are_numbers = all(_kind(name, as_text=True) == NUMBER_KIND for name in header)
    if are_numbers and header != names_of_pandas:
        raise InputError(
            f"The first row of {path.name} must hold column names; got numbers: add a header row."
        )

    def records() -> Iterator[Record]:
        for line_number, cells in cell_rows:
            texts = map(_unguard, cells)
            row = dict(zip(header, texts, strict=True))
            yield line_number, row

    return header, records()


def _unguard(cell: str) -> str | None:
    """Return the text of a cell without the apostrophe that `write_records` guards formulas with.

    White space at its ends is cut; an empty cell is None.
    """
    text = cell.strip()
    inner = text.lstrip("'")
    is_guarded = text.startswith("'")
    if is_guarded and inner.startswith(FORMULA_STARTS):
        text = text[1:]
    return text or None


def _cell_rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield (line number, cells) of each row that is not blank, all as long as the first.

    The number is that of a row's last line: a cell in quotes may hold line ends.
    """
    name = path.name.lower().removesuffix(".gz")
    separator = "\t" if name.endswith(".tsv") else ","
    lines = (text for _, text in numbered_lines(path))
    reader = csv.reader(lines, delimiter=separator, strict=True)
    width = 0
    try:
        for cells in reader:
            if not cells:
                continue
            width = width or len(cells)
            if len(cells) != width:
                problem = f"has {len(cells)} cells but the header has {width}."
                raise line_error(path, reader.line_num, problem)
            yield reader.line_num, cells
    except csv.Error as error:
        problem = f"is not readable as a table row ({error}); check its quotes."
        raise line_error(path, reader.line_num, problem) from error
