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

from polyseme.base.validation import InputError, PolysemeWarning
from polyseme.storage.atomic_files import check_regular, replacing

Record = dict[str, Any]
FIELDS: dict[str, type | tuple[type, ...]] = {
    **dict.fromkeys(("setting", "method", "config_hash", "version"), str),
    **dict.fromkeys(("trial", "seed"), int),
    **dict.fromkeys(("config", "data", "stand_in", "metrics", "parts"), dict),
    "seconds": (int, float),
}
LIBRARIES = ("numpy", "scipy", "scikit-learn", "torch", "tomotopy")


def sealed(record: Mapping[str, Any]) -> Record:
    """Return a record with a digest of its content, which shows whether it was edited later."""
    body = dict(record)
    body.pop("digest", None)
    text = json.dumps(body, sort_keys=True)
    digest = hashlib.sha256(text.encode()).hexdigest()
    return {**body, "digest": digest}


def config_hash(config: Mapping[str, Any]) -> str:
    """Return the digest of a configuration, 16 hexadecimal digits that any value changes."""
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
    """Lock a folder or file: one process at a time works on it, and all others wait."""
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

    A line that is damaged, or was changed after it was written, is refused. With `mend` there is a
    warning instead and the line is left out, so that its run is run again.
    """

    def __init__(self, folder: str | Path, *, mend: bool = False) -> None:
        self.folder = Path(folder)
        self.mend = mend
        self._records: dict[str, list[Record]] = {}

    def find(
        self, setting: str, method: str, trial: int, config: Mapping[str, Any]
    ) -> Record | None:
        """Return a run's record whose configuration holds some values, or None.

        Without the data's checksums among the values, records of any data fit.
        """
        if setting not in self._records:
            self._records[setting] = self._read(setting)
        text = json.dumps(config, default=list)
        wanted = json.loads(text)
        for record in self._records[setting]:
            if record["method"] != method or record["trial"] != trial:
                continue
            recorded = record["config"]
            if all(recorded.get(name) == value for name, value in wanted.items()):
                return record
        return None

    def add(self, record: Record) -> None:
        """Write a record to disk, in place of an older one of the same run.

        Runs of another preset stand beside each other; of the same, only the newest counts.
        """
        setting = record["setting"]
        identity = _identity(record)
        self.folder.mkdir(parents=True, exist_ok=True)
        with locked(self.folder):
            stored = self._read(setting)
            records = [former for former in stored if _identity(former) != identity]
            # As it will be read again: JSON has lists where Python has tuples.
            text = json.dumps(sealed(record))
            written = json.loads(text)
            records.append(written)
            records.sort(key=_key)
            self._write(setting, records)

    def seal(self) -> None:
        """Add digests to records of a version that had none; edited ones are refused as ever."""
        with locked(self.folder):
            paths = sorted(self.folder.glob("*.jsonl"))
            for path in paths:
                setting = path.stem
                records = self._read(setting, all_have=False)
                sealed_records = [sealed(record) for record in records]
                self._write(setting, sealed_records)

    def check(self) -> None:
        """Raise unless every record is as it was written."""
        for path in sorted(self.folder.glob("*.jsonl")):
            self._read(path.stem)

    def _write(self, setting: str, records: list[Record]) -> None:
        """Write a setting's records."""
        self._records[setting] = records
        lines = []
        for record in records:
            text = json.dumps(record, sort_keys=True)
            lines.append(f"{text}\n")
        with replacing(self._path(setting)) as file:
            file.write("".join(lines).encode())

    def _path(self, setting: str) -> Path:
        """Name the file of a setting's records."""
        return self.folder / f"{setting}.jsonl"

    def _read(self, setting: str, *, all_have: bool = True) -> list[Record]:
        """Read a setting's records; `all_have`: those without a digest do not count either."""
        path = self._path(setting)
        check_regular(path)
        if not path.exists():
            return []
        lines = path.read_bytes().splitlines()
        records: list[Record] = []
        for number, line in enumerate(lines, start=1):
            try:
                record = json.loads(line)
            except ValueError:
                record = None
            fault = _fault_of(record, needs_digest=all_have)
            if not fault:
                records.append(record)
                continue
            if not self.mend:
                raise InputError(
                    f"Line {number} of '{path}' {fault}; remove that line, and its run is run "
                    "again."
                )
            message = f"Line {number} of '{path}' {fault}; its run counts as not run."
            warnings.warn(message, PolysemeWarning, stacklevel=4)
        return records


def _fault_of(record: Any, *, needs_digest: bool) -> str:
    """Return what is wrong with a line's content, in words; empty for a valid record."""
    if not isinstance(record, dict):
        return "is not a record of a run"
    for name, kind in FIELDS.items():
        if not isinstance(record.get(name), kind):
            return "is not a record of a run"
    digest = record.get("digest")
    if digest is None:
        return "has no digest" if needs_digest else ""
    if digest != sealed(record)["digest"]:
        return "was changed after it was written"
    return ""


def _key(record: Record) -> tuple[Any, ...]:
    """Return the key that records are sorted by."""
    return record["method"], record["seed"], record["trial"], record["config_hash"]


def _identity(record: Record) -> tuple[Any, ...]:
    """Return the fields that distinguish runs of one setting."""
    config = record["config"]
    method, seed, trial, _ = _key(record)
    return method, seed, trial, config.get("preset"), config.get("quick")
