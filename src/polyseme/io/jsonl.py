"""JSON lines: documents in, results out.

In comes one JSON object per line with `labels` (or `tags`) and where known `id` (or `file`),
`group` and `split`, or one plain JSON list of labels per line; out go `RawDocuments`.
"""

from __future__ import annotations

import json
import reprlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TextIO

from polyseme._validation import InputError
from polyseme.io import RawDocuments, line_error, numbered_lines, plain_value

_FIELDS = ("id", "group", "split")


def read_documents(
    path: Path, *, tags_column: str | None = None, delimiter: str | None = None
) -> RawDocuments:
    """Read documents from JSON lines; blank lines are skipped.

    Parameters
    ----------
    path : Path
        An existing `.jsonl` or `.jsonl.gz` file.
    tags_column, delimiter : None
        Not used by this form.

    Returns
    -------
    RawDocuments
        With `label_sets`; a field that is given for one document must be given for all.
    """
    label_sets: list[list[str]] = []
    fields: dict[str, list[str]] = {}
    for number, text in numbered_lines(path):
        if not text.strip():
            continue
        record = _parse(text, path, number)
        label_sets.append(_labels(record, path, number))
        given = _fields(record, path, number)
        if len(label_sets) == 1:
            fields = {name: [] for name in given}
        _append_fields(fields, given, path, number)
    return RawDocuments(
        ids=fields.get("id"),
        label_sets=label_sets,
        indicator=None,
        labels=None,
        groups=fields.get("group"),
        splits=fields.get("split"),
    )


def write_records(records: Iterable[Mapping[str, object]], target: TextIO) -> None:
    """Write one JSON object per line.

    Parameters
    ----------
    records : iterable of dict
        What `polyseme.io.write_records` takes.
    target : text stream
        Where the lines go.
    """
    for number, record in enumerate(records, start=1):
        plain = plain_value(record, where=f"Record {number}")
        target.write(json.dumps(plain, ensure_ascii=False, allow_nan=False) + "\n")


def _parse(text: str, path: Path, number: int) -> dict[str, object]:
    """Parse one line into an object; a plain list becomes its `labels`."""
    try:
        value = json.loads(text)
        if "\\u" in text:
            # JSON can spell half of a character pair, which no UTF-8 file can hold.
            json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError as error:
        raise line_error(
            path, number, "holds half of a surrogate pair; write whole characters."
        ) from error
    except (ValueError, RecursionError) as error:
        reason = str(error).partition(": line")[0]
        raise line_error(
            path, number, f"is not valid JSON ({reason}); write one object or list per line."
        ) from error
    if isinstance(value, list):
        return {"labels": value}
    if not isinstance(value, dict):
        raise line_error(
            path, number, f"must be a JSON object or list of strings; got {reprlib.repr(value)}."
        )
    return value


def _labels(record: Mapping[str, object], path: Path, number: int) -> list[str]:
    """Return the labels of one record, `labels` before `tags`."""
    key = "labels" if record.get("labels") is not None else "tags"
    labels = record.get(key)
    if labels is None:
        raise line_error(path, number, "has no 'labels'; give every document a list of strings.")
    if not isinstance(labels, list):
        raise line_error(
            path, number, f"must have '{key}' as a list of strings; got {reprlib.repr(labels)}."
        )
    wrong = [label for label in labels if not isinstance(label, str)]
    if wrong:
        raise line_error(
            path, number, f"must have only strings in '{key}'; got {reprlib.repr(wrong[0])}."
        )
    return labels


def _fields(record: Mapping[str, object], path: Path, number: int) -> dict[str, str]:
    """Return the optional fields that one record gives; whole numbers become strings."""
    given = {}
    for name in _FIELDS:
        value = record.get(name)
        if value is None and name == "id":
            value = record.get("file")
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, (str, int)):
            raise line_error(
                path, number, f"must have a string as '{name}'; got {reprlib.repr(value)}."
            )
        try:
            given[name] = str(value)
        except ValueError as error:  # Python refuses to spell numbers of thousands of digits
            raise InputError(f"Line {number} of {path.name} has too long an '{name}'.") from error
    return given


def _append_fields(
    fields: dict[str, list[str]], given: Mapping[str, str], path: Path, number: int
) -> None:
    """Append the fields of one document, which must be those of the first one."""
    for name in _FIELDS:
        if (name in fields) != (name in given):
            has, others = ("has", "lack it") if name in given else ("lacks", "have it")
            raise line_error(
                path,
                number,
                f"{has} '{name}' while the documents before {others}; give it to all or to none.",
            )
        if name in given:
            fields[name].append(given[name])
