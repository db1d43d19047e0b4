"""Run records: one JSON object for each run, kept in one file of lines for each setting.

In: what a run was given and what it measured. Out: files from which every table is made, and which
tell a later call what need not be run again.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from polyseme._validation import InputError

Record = dict[str, Any]
FIELDS: dict[str, type | tuple[type, ...]] = {
    "setting": str,
    "method": str,
    "trial": int,
    "seed": int,
    "config_hash": str,
    "config": dict,
    "data": dict,
    "stand_in": dict,
    "metrics": dict,
    "parts": dict,
    "seconds": (int, float),
    "version": str,
}
LIBRARIES = ("numpy", "scipy", "scikit-learn", "torch", "tomotopy")


def config_hash(config: Mapping[str, Any]) -> str:
    """Digest a configuration: 16 hexadecimal digits that change with any value in it."""
    text = json.dumps(config, sort_keys=True, default=list)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def make_record(
    *,
    setting: str,
    method: str,
    trial: int,
    seed: int,
    config: Mapping[str, Any],
    seconds: float,
    parts: Mapping[str, float],
    facts: Mapping[str, Any],
    metrics: Mapping[str, Any],
) -> Record:
    """Put a run's facts together.

    Parameters
    ----------
    setting, method : str
    trial, seed : int
    config : mapping
        Everything that decides the result; its digest tells whether a run is the same.
    seconds : float
        What the run took, with the parts that it shares with other runs.
    parts : mapping of str to float
        The shared parts and their seconds.
    facts : mapping
        Data, counts and the audit.
    metrics : mapping
        What was measured.

    Returns
    -------
    dict
        JSON values only.
    """
    return {
        "setting": setting,
        "method": method,
        "trial": trial,
        "seed": seed,
        "config_hash": config_hash(config),
        "version": version("polyseme"),
        "seconds": round(seconds, 2),
        "parts": {name: round(value, 2) for name, value in parts.items()},
        "finished": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "python": platform.python_version(),
        "machine": {"processor": platform.machine(), "cores": os.cpu_count()},
        "libraries": {name: version(name) for name in LIBRARIES},
        "config": dict(config),
        **facts,
        "metrics": dict(metrics),
    }


def _is_record(value: object) -> bool:
    """Say whether something read is a record."""
    return isinstance(value, dict) and all(
        isinstance(value.get(name), kind) for name, kind in FIELDS.items()
    )


def _key(record: Record) -> tuple[Any, ...]:
    """Give what a run is found by."""
    return record["method"], record["seed"], record["trial"], record["config_hash"]


def _identity(record: Record) -> tuple[Any, ...]:
    """Give what tells runs apart that may stand beside each other."""
    config = record["config"]
    return *_key(record)[:3], config.get("preset"), config.get("quick")


class RecordStore:
    """The records of a folder; one process writes.

    Parameters
    ----------
    folder : str or Path
        Holds `<setting>.jsonl` files; made when the first record is added.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self._records: dict[str, dict[tuple[Any, ...], Record]] = {}

    def find(self, setting: str, method: str, trial: int, seed: int, digest: str) -> Record | None:
        """Give the record of a run, or None when it has not been run with this configuration."""
        return self._of(setting).get((method, seed, trial, digest))

    def of_model(self, run: tuple[str, str, int], config: Mapping[str, Any]) -> Record | None:
        """Give a run's record by what was run, whatever data it was run on; None without one.

        Parameters
        ----------
        run : (str, str, int)
            Setting, method and trial.
        config : mapping
            What the record's configuration must hold.
        """
        setting, method, trial = run
        wanted = json.loads(json.dumps(config, default=list))
        for record in self._of(setting).values():
            mine = record["config"]
            if (record["method"], record["trial"]) == (method, trial) and all(
                mine.get(name) == value for name, value in wanted.items()
            ):
                return record
        return None

    def add(self, record: Record) -> None:
        """Keep a record, in place of an older one of the same run, and write it to disk.

        Runs of another preset stand beside each other; of the same, only the newest counts.
        """
        known = self._of(record["setting"])
        for key, other in list(known.items()):
            if _identity(other) == _identity(record):
                del known[key]
        # As it will be read: the same order of keys, the same types.
        written = json.loads(json.dumps(record, sort_keys=True))
        known[_key(written)] = written
        self._write(record["setting"], known.values())

    def _of(self, setting: str) -> dict[tuple[Any, ...], Record]:
        """Give a setting's records by method, seed and trial; read them once."""
        if setting not in self._records:
            path = self.folder / f"{setting}.jsonl"
            records = self._read(path) if path.exists() else []
            self._records[setting] = {_key(record): record for record in records}
        return self._records[setting]

    def _read(self, path: Path) -> list[Record]:
        """Read a file of records."""
        records = []
        for number, line in enumerate(path.read_bytes().splitlines(), start=1):
            try:
                record = json.loads(line)
            except ValueError:
                record = None
            if not _is_record(record):
                raise InputError(
                    f"Line {number} of '{path}' is not a record of a run; remove that line, and "
                    "its run is run again."
                )
            records.append(record)
        return records

    def _write(self, setting: str, records: Iterable[Record]) -> None:
        """Write a setting's records, all or nothing."""
        self.folder.mkdir(parents=True, exist_ok=True)
        ordered = sorted(records, key=_key)
        path = self.folder / f"{setting}.jsonl"
        waiting = path.with_suffix(".jsonl.part")
        with waiting.open("w", encoding="utf-8") as file:
            file.writelines(json.dumps(record, sort_keys=True) + "\n" for record in ordered)
            file.flush()
            os.fsync(file.fileno())
        waiting.replace(path)
