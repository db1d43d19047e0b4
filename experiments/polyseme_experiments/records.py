"""Run records: one JSON object for each run, in one file of lines for each setting.

In: what a run was configured with and what it measured. Out: files from which every table is made,
and which tell a later call what need not be run again.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from polyseme._validation import InputError, PolysemeWarning
from polyseme.io.folders import check_regular, replacing

Record = dict[str, Any]
FIELDS: dict[str, type | tuple[type, ...]] = {
    **dict.fromkeys(("setting", "method", "config_hash", "version"), str),
    **dict.fromkeys(("trial", "seed"), int),
    **dict.fromkeys(("config", "data", "stand_in", "metrics", "parts"), dict),
    "seconds": (int, float),
}
LIBRARIES = ("numpy", "scipy", "scikit-learn", "torch", "tomotopy")


def sealed(record: Mapping[str, Any]) -> Record:
    """Return a record with a digest of all that it says, by which an edited one is known."""
    body = {name: value for name, value in record.items() if name != "digest"}
    text = json.dumps(body, sort_keys=True)
    return {**body, "digest": hashlib.sha256(text.encode()).hexdigest()}


def config_hash(config: Mapping[str, Any]) -> str:
    """Digest a configuration: 16 hexadecimal digits that change with any value in it."""
    text = json.dumps(config, sort_keys=True, default=list)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def environment() -> Record:
    """Return what a record says about the machine, the versions and the time."""
    return {
        "version": version("polyseme"),
        "finished": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "python": platform.python_version(),
        "machine": {"processor": platform.machine(), "cores": os.cpu_count()},
        "libraries": {name: version(name) for name in LIBRARIES},
    }


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Let one process at a time work on a folder or file; the others wait for it to finish."""
    try:
        import fcntl
    except ImportError:  # without locks, both write the same
        yield
        return
    descriptor = os.open(path, os.O_RDONLY | (0 if path.is_dir() else os.O_CREAT))
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


class RecordStore:
    """The records of a folder, `<setting>.jsonl`; several processes may add to it.

    A line that is damaged, or was changed after it was written, is refused; to `mend` is to tell of
    it and to leave it out, so that its run is run again.
    """

    def __init__(self, folder: str | Path, *, mend: bool = False) -> None:
        self.folder, self.mend = Path(folder), mend
        self._records: dict[str, list[Record]] = {}

    def find(
        self, setting: str, method: str, trial: int, config: Mapping[str, Any]
    ) -> Record | None:
        """Return a run's record whose configuration holds some values, or None.

        Without the data's checksums among the values, records of any data fit.
        """
        if setting not in self._records:
            self._records[setting] = self._read(setting)
        wanted = json.loads(json.dumps(config, default=list))
        for record in self._records[setting]:
            known = record["config"]
            if (record["method"], record["trial"]) == (method, trial) and all(
                known.get(name) == value for name, value in wanted.items()
            ):
                return record
        return None

    def add(self, record: Record) -> None:
        """Keep a record, in place of an older one of the same run, and write it to disk.

        Runs of another preset stand beside each other; of the same, only the newest counts.
        """
        setting = record["setting"]
        self.folder.mkdir(parents=True, exist_ok=True)
        with locked(self.folder):
            others = [one for one in self._read(setting) if _identity(one) != _identity(record)]
            written = json.loads(json.dumps(sealed(record)))
            self._write(setting, sorted([*others, written], key=_key))

    def seal(self) -> None:
        """Add digests to records of a version that had none; edited ones are refused as ever."""
        with locked(self.folder):
            for path in sorted(self.folder.glob("*.jsonl")):
                records = self._read(path.stem, all_have=False)
                self._write(path.stem, [sealed(one) for one in records])

    def check(self) -> None:
        """Raise unless every record is as it was written."""
        for path in sorted(self.folder.glob("*.jsonl")):
            self._read(path.stem)

    def _write(self, setting: str, records: list[Record]) -> None:
        """Write a setting's records."""
        self._records[setting] = records
        lines = (json.dumps(one, sort_keys=True) + "\n" for one in records)
        with replacing(self._path(setting)) as file:
            file.write("".join(lines).encode())

    def _path(self, setting: str) -> Path:
        """Name the file of a setting's records."""
        return self.folder / f"{setting}.jsonl"

    def _read(self, setting: str, *, all_have: bool = True) -> list[Record]:
        """Read a setting's records; `all_have`: those without a digest do not count either."""
        path = self._path(setting)
        check_regular(path)
        records: list[Record] = []
        for number, line in enumerate(path.read_bytes().splitlines() if path.exists() else (), 1):
            try:
                record = json.loads(line)
            except ValueError:
                record = None
            wrong = ""
            if not isinstance(record, dict) or not all(
                isinstance(record.get(name), kind) for name, kind in FIELDS.items()
            ):
                wrong = "is not a record of a run"
            elif record.get("digest") is None:
                wrong = "has no digest" if all_have else ""
            elif record["digest"] != sealed(record)["digest"]:
                wrong = "was changed after it was written"
            if wrong and not self.mend:
                raise InputError(
                    f"Line {number} of '{path}' {wrong}; remove that line, and its run is run "
                    "again."
                )
            if wrong:
                told = f"Line {number} of '{path}' {wrong}; its run counts as not run."
                warnings.warn(told, PolysemeWarning, stacklevel=4)
            else:
                records.append(record)
        return records


def _key(record: Record) -> tuple[Any, ...]:
    """Return what records are sorted by."""
    return record["method"], record["seed"], record["trial"], record["config_hash"]


def _identity(record: Record) -> tuple[Any, ...]:
    """Return what tells runs apart that may stand beside each other."""
    config = record["config"]
    return *_key(record)[:3], config.get("preset"), config.get("quick")
