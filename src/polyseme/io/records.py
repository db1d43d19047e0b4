"""Results out: records, one after the other, as JSON lines or CSV."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterable, Mapping
from typing import Any, Literal, TextIO

import numpy as np

from polyseme._validation import InputError, check_option


def write_records(
    records: Iterable[Mapping[str, object]], target: TextIO, file_format: Literal["jsonl", "csv"]
) -> None:
    """Write records as they come, as JSON lines or as a CSV table whose lists are joined by `;`.

    Values may be numbers, strings, None, lists and numpy arrays of these; NaN becomes null or an
    empty cell. The keys of the first record are the header of CSV. Open the target with
    ``newline=""`` and UTF-8 encoding.
    """
    check_option("file_format", file_format, ("jsonl", "csv"), owner="write_records")
    if file_format == "csv":
        _write_csv(records, target)
        return
    for number, record in enumerate(records, start=1):
        plain = _plain(record, f"Record {number}")
        target.write(json.dumps(plain, ensure_ascii=False, allow_nan=False) + "\n")


def _write_csv(records: Iterable[Mapping[str, object]], target: TextIO) -> None:
    """Write records as CSV with the keys of the first one as header."""
    plain = csv.writer(target, lineterminator="\n")
    # The csv module of Python 3.11 leaves a carriage return unquoted when lines end in "\n".
    quoted = csv.writer(target, lineterminator="\n", quoting=csv.QUOTE_ALL)
    header: list[str] = []
    for number, record in enumerate(records, start=1):
        if number == 1:
            header = list(record)
            plain.writerow(header)
        unknown = [name for name in record if name not in header]
        if unknown:
            raise InputError(
                f"Record {number} has '{unknown[0]}', which the first record lacks; "
                "give all records the same keys or write jsonl."
            )
        cells = [_cell(record.get(name), f"'{name}' of record {number}") for name in header]
        (quoted if any("\r" in cell for cell in cells) else plain).writerow(cells)


def _plain(value: Any, where: str) -> Any:
    """Turn a value of a record into what JSON knows; NaN becomes None."""
    if isinstance(value, (np.generic, np.ndarray)):
        value = value.tolist()
    if isinstance(value, Mapping):
        return {str(key): _plain(item, where) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item, where) for item in value]
    if isinstance(value, float) and math.isinf(value):
        raise InputError(f"{where} must hold finite numbers or NaN; got {value}.")
    if value is None or isinstance(value, (bool, int, float, str)):
        return None if isinstance(value, float) and math.isnan(value) else value
    raise InputError(
        f"{where} must hold numbers, strings, lists or None; got {type(value).__name__}."
    )


def _cell(value: object, where: str) -> str:
    """Write one value for CSV, lists joined by `;`."""
    plain = _plain(value, where)
    items = plain if isinstance(plain, list) else [plain]
    if any(isinstance(item, (list, dict)) for item in items):
        raise InputError(f"{where} is nested too deep for CSV; write jsonl.")
    texts = ["" if item is None else str(item) for item in items]
    unsafe = [text for text in texts if ";" in text]
    if isinstance(plain, list) and unsafe:
        raise InputError(
            f"{where} holds '{unsafe[0]}', and ';' separates list items in CSV; write jsonl."
        )
    return ";".join(texts)
