"""Write records one after the other, as JSON lines or CSV."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterable, Mapping
from typing import Any, Literal, TextIO

import numpy as np

from polyseme.base.validation import InputError, check_option

# What spreadsheets begin formulas with, also in full width.
FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\uff1d", "\uff0b", "\uff0d", "\uff20")


def write_records(
    records: Iterable[Mapping[str, object]], target: TextIO, file_format: Literal["jsonl", "csv"]
) -> None:
    """Write records as they come, as JSON lines or as a CSV table whose lists are joined by `;`.

    Values may be numbers, strings, None, lists and numpy arrays of these; NaN becomes null or an
    empty cell. The keys of the first record are the header of CSV. Text that a spreadsheet would
    take for a formula gets an apostrophe in front, which `polyseme.io` takes off again. Open the
    target with ``newline=""`` and UTF-8 encoding.
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
        cells = [_cell(values.get(name), f"'{name}' of record {number}") for name in header]
        if any("\r" in cell for cell in cells):
            quoting_writer.writerow(cells)
        else:
            writer.writerow(cells)


def _to_json_value(value: Any, where: str) -> Any:
    """Return a value of a record as a JSON value; NaN becomes None."""
    if isinstance(value, (np.generic, np.ndarray)):
        value = value.tolist()
    if isinstance(value, Mapping):
        return {str(key): _to_json_value(item, where) for key, item in value.items()}
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


def _cell(value: Any, where: str) -> str:
    """Return one plain value as a cell of CSV, lists joined by `;`."""
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
    """Whether a spreadsheet would take a cell for a formula, or for one that is guarded."""
    bare = cell.lstrip("'")
    if not bare.startswith(FORMULA_STARTS):
        return False
    try:
        float(bare)
    except ValueError:
        return True
    return bare != cell
