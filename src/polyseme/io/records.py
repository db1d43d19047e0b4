"""Write records one after the other, as JSON lines or CSV.

In: records, mappings of names to values, such as the tags of an item. Out: a line for each. The
form of both is what `polyseme.io.read_table` reads back.
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterable, Mapping
from typing import Any, Literal, TextIO

import numpy as np

from polyseme.base.validation import InputError, check_option

# What begins a cell that spreadsheets run as a formula, also in full width.
FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\uff1d", "\uff0b", "\uff0d", "\uff20")


def write_records(
    records: Iterable[Mapping[str, object]], target: TextIO, file_format: Literal["jsonl", "csv"]
) -> None:
    """Write records as they come, as JSON lines or as a CSV table whose lists are joined by `;`.

    Parameters
    ----------
    records : iterable of mapping
        Values may be numbers, strings, None, lists and numpy arrays of these; NaN becomes null or
        an empty cell. The keys of the first record are the header of CSV, and no later one may have
        others. Text that a spreadsheet would take for a formula gets an apostrophe in front, which
        `polyseme.io` takes off again.
    target : text file
        Opened with ``newline=""`` and UTF-8 encoding.
    file_format : {"jsonl", "csv"}
    """
    check_option("file_format", file_format, ("jsonl", "csv"), owner="write_records")
    writer = csv.writer(target, lineterminator="\n")
    # The csv module of Python 3.11 leaves a carriage return unquoted when lines end in "\n".
    quoting_writer = csv.writer(target, lineterminator="\n", quoting=csv.QUOTE_ALL)
    header: dict[str, None] = {}
    for number, record in enumerate(records, start=1):
        values = _to_json_value(record, f"Record {number}")
        if file_format == "jsonl":
            line = json.dumps(values, ensure_ascii=False, allow_nan=False)
            target.write(line + "\n")
            continue
        if number == 1:
            header = dict.fromkeys(values)
            writer.writerow(header)
        for unknown in values.keys() - header.keys():
            raise InputError(
                f"Record {number} has '{unknown}', which the first record lacks; "
                "give all records the same keys or write jsonl."
            )
        cells = []
        for name in header:
            cell = _to_cell(values.get(name), f"'{name}' of record {number}")
            cells.append(cell)
        has_return = any("\r" in cell for cell in cells)
        row_writer = quoting_writer if has_return else writer
        row_writer.writerow(cells)


def _to_json_value(value: Any, where: str) -> Any:
    """Return a value, or a whole record, as JSON has it; NaN becomes None.

    `where` is what errors call it, such as "Record 3".
    """
    if isinstance(value, (np.generic, np.ndarray)):
        value = value.tolist()
    if isinstance(value, Mapping):
        items = value.items()
        return {str(key): _to_json_value(item, where) for key, item in items}
    if isinstance(value, (list, tuple)):
        return [_to_json_value(item, where) for item in value]
    if isinstance(value, float):
        if math.isinf(value):
            raise InputError(f"{where} must hold finite numbers or NaN; got {value}.")
        if math.isnan(value):
            return None
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    kind = type(value).__name__
    raise InputError(f"{where} must hold numbers, strings, lists or None; got {kind}.")


def _to_cell(value: Any, where: str) -> str:
    """Return a JSON value as a cell of CSV, lists joined by `;`, formulas guarded."""
    is_list = isinstance(value, list)
    items = value if is_list else [value]
    texts: list[str] = []
    for item in items:
        text = "" if item is None else str(item)
        if isinstance(item, (list, dict)):
            raise InputError(f"{where} is nested too deep for CSV; write jsonl.")
        if is_list and ";" in text:
            raise InputError(
                f"{where} holds '{text}', and ';' separates list items in CSV; write jsonl."
            )
        texts.append(text)
    cell = ";".join(texts)
    has_text = any(isinstance(item, str) for item in items)
    if has_text and _is_formula(cell):
        return f"'{cell}"
    return cell


def _is_formula(cell: str) -> bool:
    """Return whether a spreadsheet would take a cell for a formula, or for one that is guarded.

    A text of apostrophes before a formula counts as well: else the apostrophe that a user wrote
    would be taken off on reading.
    """
    bare = cell.lstrip("'")
    if not bare.startswith(FORMULA_STARTS):
        return False
    try:
        float(bare)  # "-1" is a number
    except ValueError:
        return True
    is_guarded = bare != cell
    return is_guarded
