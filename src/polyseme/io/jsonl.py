"""JSON lines in: one document per line.

A line is a JSON object with `labels` (or `tags`) and where known `id` (or `file`), `group` and
`split`, or a plain JSON list of labels. A field that one document has, all must have.
"""

from __future__ import annotations

import json
import reprlib
from collections.abc import Mapping
from pathlib import Path

from polyseme.io import RawDocuments, line_error, numbered_lines

_FIELDS = ("id", "group", "split")


def read_documents(path: Path) -> RawDocuments:
    """Read documents from JSON lines, blank lines skipped; see `polyseme.io.read_documents`."""
    label_sets: list[list[str]] = []
    fields: dict[str, list[str]] = {}
    for number, text in numbered_lines(path):
        if not text.strip():
            continue
        try:
            record = _parse(text)
            label_sets.append(_labels(record))
            values = _field_values(record)
            if len(label_sets) == 1:
                fields = {name: [] for name in values}
            for name in fields.keys() ^ values.keys():
                has, others = ("has", "lack it") if name in values else ("lacks", "have it")
                raise ValueError(
                    f"{has} '{name}' while the documents before {others}; give it to all or none."
                )
        except ValueError as error:
            raise line_error(path, number, str(error)) from error
        for name, value in values.items():
            fields[name].append(value)
    return RawDocuments(
        label_sets=label_sets,
        ids=fields.get("id"),
        groups=fields.get("group"),
        splits=fields.get("split"),
    )


def _parse(text: str) -> Mapping[str, object]:
    """Parse one line into an object; a plain list becomes its `labels`."""
    try:
        value = json.loads(text)
        if "\\u" in text:
            # JSON can spell half of a character pair, which no UTF-8 file can hold.
            json.dumps(value, ensure_ascii=False).encode("utf-8")
    except (ValueError, RecursionError) as error:
        reason = str(error).partition(": line")[0]
        raise ValueError(
            f"is not valid JSON ({reason}); write one object or list per line."
        ) from error
    if isinstance(value, list):
        return {"labels": value}
    if not isinstance(value, dict):
        raise ValueError(f"must be a JSON object or list of strings; got {reprlib.repr(value)}.")
    return value


def _labels(record: Mapping[str, object]) -> list[str]:
    """Return the labels of one record, `labels` before `tags`."""
    key = "labels" if record.get("labels") is not None else "tags"
    labels = record.get(key)
    if labels is None:
        raise ValueError("has no 'labels'; give every document a list of strings.")
    if not isinstance(labels, list) or not all(isinstance(label, str) for label in labels):
        raise ValueError(f"must have '{key}' as a list of strings; got {reprlib.repr(labels)}.")
    return labels


def _field_values(record: Mapping[str, object]) -> dict[str, str]:
    """Return the optional fields that one record has; whole numbers become strings."""
    values = {}
    for name in _FIELDS:
        value = record.get(name)
        if value is None and name == "id":
            value = record.get("file")
        if isinstance(value, bool) or not isinstance(value, (str, int, type(None))):
            raise ValueError(f"must have a string as '{name}'; got {reprlib.repr(value)}.")
        if value is not None:
            values[name] = str(value)
    return values
