"""A cache of raw numbers, so that no file is looked at twice: one SQLite file beside an extraction.

In: files, and the raw numbers that an extractor made of them. Out: the same numbers, for files with
the same content.

Terms: the *content hash* is the SHA-256 of a file's bytes; the *preprocessing digest* is
`MediaFeatures.digest`, which stands for how the numbers were made; the *file state* is a text of
size, times and inode, by which an unchanged file is known without reading it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sqlite3
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np

from polyseme.base.validation import InputError
from polyseme.media.base import Raw

CACHE_FILE = "cache.sqlite"  # in the folder of an extraction
# What SQLite writes beside it.
ALL_CACHE_FILES = [f"{CACHE_FILE}{suffix}" for suffix in ("", "-wal", "-shm", "-journal")]
_COMMIT_SECONDS = 2.0  # between commits: what a killed process loses at most
# The format on disk. Of a file's numbers: its content hash, the preprocessing digest, the shape as
# JSON, and little-endian 32-bit floats. Of a file: its absolute path as bytes, its state, and its
# content hash. `digest` is that of the other columns (`_row_digest`): rows that a disk has damaged
# are not believed. EXCLUSIVE keeps the file locked until it is closed: two that write at a time
# would wait for each other anyway.
_SCHEMA = """
PRAGMA locking_mode = EXCLUSIVE;
PRAGMA journal_mode = WAL;
PRAGMA synchronous = NORMAL;
CREATE TABLE IF NOT EXISTS numbers (content BLOB, preprocessing TEXT, shape TEXT, raw BLOB,
    digest BLOB, PRIMARY KEY (content, preprocessing)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS files (path BLOB PRIMARY KEY, state TEXT, content BLOB, digest BLOB)
    WITHOUT ROWID;
"""
_COLUMNS = {"numbers": "content, preprocessing, shape, raw", "files": "path, state, content"}


class DamagedCacheError(InputError):
    """A cache that SQLite cannot read."""


class FileHash(NamedTuple):
    """What a file was when it was read."""

    state: str  # see `_file_state`
    content: bytes  # its content hash


class FeatureStore:
    """A cache of raw numbers by content hash and preprocessing digest, in one SQLite file.

    A context manager: entered, it is locked against other writers, and what was put stays also
    after an interruption. To read only, it takes no lock and notes nothing. For one thread.

    Parameters
    ----------
    path : Path
        The file, which is created where it is missing.
    preprocessing : str
        The preprocessing digest of the numbers that are put and found.
    read_only : bool
        Whether nothing is written.

    Attributes
    ----------
    n_damaged : int
        Rows that were found damaged so far. They count as missing.
    """

    def __init__(self, path: Path, preprocessing: str, *, read_only: bool = False) -> None:
        self.path = path
        self.preprocessing = preprocessing
        self.read_only = read_only
        self.n_damaged = 0
        self._last_commit = time.monotonic()  # in seconds

    def __enter__(self) -> Self:
        try:
            if self.read_only:
                address = f"{self.path.absolute().as_uri()}?mode=ro"
                self._connection = sqlite3.connect(address, timeout=0.1, uri=True)
                return self
            self._connection = sqlite3.connect(self.path, timeout=1.0)
            self._connection.executescript(_SCHEMA)
        except sqlite3.Error as error:
            raise self._cache_error(error) from error
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        try:
            self._connection.commit()
        except sqlite3.Error as commit_error:
            if error is None:  # or else there is a better reason to end
                raise self._cache_error(commit_error) from commit_error
        finally:
            with contextlib.suppress(sqlite3.Error):
                self._connection.close()

    def hashed(self, path: Path) -> FileHash:
        """Return the state and content hash of a file; one not touched since is not read again.

        Raises OSError where the file cannot be read.
        """
        file_hash = self.noted(path)
        if file_hash is None:
            file_hash = hash_file(path)
            if not self.read_only:
                self.note(path, file_hash)
        return file_hash

    def noted(self, path: Path) -> FileHash | None:
        """Return the hash that was noted of a file; None where it is in another state by now."""
        path_bytes = os.fsencode(path.absolute())
        query = "SELECT state, content, digest FROM files WHERE path = ?"
        row: tuple[str, bytes, bytes] | None = self._run(query, path_bytes).fetchone()
        if row is None:
            return None
        state, content, digest = row
        try:
            current_state = _file_state(path)
        except OSError:
            return None
        if state != current_state:
            return None
        if digest != _row_digest(path_bytes, state, content):
            self.n_damaged += 1
            return None
        return FileHash(state, content)

    def note(self, path: Path, file_hash: FileHash) -> None:
        """Keep the content hash that a file had in a state."""
        path_bytes = os.fsencode(path.absolute())
        self._put("files", path_bytes, file_hash.state, file_hash.content)

    def find(self, content: bytes) -> Raw | None:
        """Return the raw numbers under a content hash; None where there are none to trust.

        The array is read-only.
        """
        query = "SELECT shape, raw, digest FROM numbers WHERE content = ? AND preprocessing = ?"
        row = self._run(query, content, self.preprocessing).fetchone()
        if row is None:
            return None
        shape_json, raw_bytes, digest = row
        try:
            if digest == _row_digest(content, self.preprocessing, shape_json, raw_bytes):
                shape = json.loads(shape_json)
                return np.frombuffer(raw_bytes, "<f4").reshape(shape)
        except (TypeError, ValueError):  # the digest fits, and nevertheless they are no numbers
            pass
        self.n_damaged += 1
        return None

    def get(self, content: bytes) -> Raw:
        """Return the raw numbers under a content hash that is in the store."""
        raw = self.find(content)
        if raw is None:
            raise DamagedCacheError(f"The cache '{self.path}' was damaged while it was read.")
        return raw

    def shape_of(self, content: bytes) -> tuple[int, ...]:
        """Return the shape of the raw numbers under a content hash that is in the store."""
        query = "SELECT shape FROM numbers WHERE content = ? AND preprocessing = ?"
        row = self._run(query, content, self.preprocessing).fetchone()
        (shape_json,) = row
        shape = json.loads(shape_json)
        return tuple(shape)

    def put(self, content: bytes, raw: Raw) -> None:
        """Keep raw numbers under a content hash; they reach the disk within seconds."""
        shape_json = json.dumps(raw.shape)
        raw_bytes = raw.astype("<f4").tobytes()
        self._put("numbers", content, self.preprocessing, shape_json, raw_bytes)

    def _put(self, table: str, *fields: Any) -> None:
        """Keep a row with its digest, in place of another one with the same key.

        `fields` are those of `_COLUMNS`, in its order.
        """
        n_columns = len(fields) + 1
        placeholders = ", ".join(["?"] * n_columns)
        columns = f"{_COLUMNS[table]}, digest"
        statement = f"INSERT OR REPLACE INTO {table} ({columns}) VALUES ({placeholders})"
        digest = _row_digest(*fields)
        self._run(statement, *fields, digest)

    def _run(self, statement: str, *parameters: object) -> sqlite3.Cursor:
        """Run one statement with parameters; changes reach the disk within seconds."""
        try:
            cursor = self._connection.execute(statement, parameters)
            seconds_since_commit = time.monotonic() - self._last_commit
            if seconds_since_commit > _COMMIT_SECONDS:
                self._connection.commit()
                self._last_commit = time.monotonic()
        except sqlite3.Error as error:
            raise self._cache_error(error) from error
        return cursor

    def _cache_error(self, error: sqlite3.Error) -> InputError:
        """Build the error for an error of SQLite."""
        folder = self.path.parent
        if "locked" in str(error):
            return InputError(
                f"Another extraction is writing to '{folder}'; wait until it is done."
            )
        damage_codes = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
        code = getattr(error, "sqlite_errorcode", None)
        # The lowest byte is the kind of an error, the others its cause.
        if code is not None and code & 0xFF in damage_codes:
            return DamagedCacheError(f"The cache '{self.path}' is damaged ({error}).")
        return InputError(
            f"Nothing can be written to '{folder}' ({error}); make room there and run again: what "
            "was looked at until a moment ago is kept."
        )


def from_caches(
    caches: Iterable[Path], preprocessing: str, paths: Sequence[Path]
) -> dict[Path, Raw]:
    """Return the raw numbers of files, by their paths, from the first cache that has them.

    `preprocessing` is the digest of the extractor that wants them. Files without usable numbers are
    left out, also where a cache or a file cannot be read. Nothing is written.
    """
    raw_by_path: dict[Path, Raw] = {}
    for cache in caches:
        with (
            contextlib.suppress(ValueError, TypeError),  # being written, or damaged
            FeatureStore(cache, preprocessing, read_only=True) as store,
        ):
            missing = [path for path in paths if path not in raw_by_path]
            for path in missing:
                with contextlib.suppress(OSError):
                    file_hash = store.hashed(path)
                    raw = store.find(file_hash.content)
                    if raw is not None:
                        raw_by_path[path] = raw
    return raw_by_path


def _row_digest(*fields: Any) -> bytes:
    """Return the SHA-256 of the fields of a row, each behind its length; caches on disk hold it.

    With the lengths, no byte can wander from one field to the next.
    """
    digest = hashlib.sha256()
    for field in fields:
        field_bytes = field
        if not isinstance(field, bytes):
            field_bytes = str(field).encode("utf-8", "surrogatepass")
        length = len(field_bytes).to_bytes(8, "little")
        digest.update(length)
        digest.update(field_bytes)
    return digest.digest()


def hash_file(path: Path) -> FileHash:
    """Return the state that a file is in, and its content hash.

    The state is taken first: a file that changes while it is read is read again the next time.
    """
    state = _file_state(path)
    with path.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256")
    return FileHash(state, digest.digest())


def _file_state(path: Path) -> str:
    """Return a text that changes with a file: size, times of content and inode, and inode."""
    status = path.stat()
    return f"{status.st_size} {status.st_mtime_ns} {status.st_ctime_ns} {status.st_ino}"
