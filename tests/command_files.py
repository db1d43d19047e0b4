"""Files that tests of commands write and read."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import numpy as np


def write_jsonl(path: Path, documents) -> Path:
    lines = [json.dumps({"labels": list(labels)}) + "\n" for labels in documents]
    path.write_text("".join(lines))
    return path


def write_records(path: Path, records) -> Path:
    lines = [json.dumps(record) + "\n" for record in records]
    path.write_text("".join(lines))
    return path


def write_npy(path: Path, array) -> Path:
    np.save(path, array)
    return path


def read_csv(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def column(records, field: str) -> list:
    return [record[field] for record in records]


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def widest_line(text: str) -> int:
    return max(map(len, text.splitlines()))


def interrupt(*_, **__):
    raise KeyboardInterrupt
