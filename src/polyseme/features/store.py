"""A cache of raw numbers: by the content of a file and the way they were made.

In: arrays under the hash of a file. Out: the same arrays, in this run or another, whole or not at
all. One SQLite file, written by one process.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
import time
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np

from polyseme._validation import InputError
from polyseme.features.base import Raw

_TABLES = """
CREATE TABLE IF NOT EXISTS raw (
    content BLOB, recipe TEXT, shape TEXT, numbers BLOB, PRIMARY KEY (content, recipe)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS files (
    path TEXT PRIMARY KEY, size INTEGER, changed INTEGER, content BLOB
) WITHOUT ROWID;
"""
_COMMIT_SECONDS = 2.0


class FeatureStore:
    """Raw numbers by content hash and recipe.

    Parameters
    ----------
    path : Path
        The SQLite file; made if it is not there.
    recipe : str
        The digest of a front end's recipe; see `MediaFeatures.digest`.
    """

    def __init__(self, path: Path, recipe: str) -> None:
        self.path = path
        self.recipe = recipe
        self._committed = time.monotonic()

    def __enter__(self) -> Self:
        """Open the file."""
        try:
            self._connection = sqlite3.connect(self.path)
            self._connection.execute("PRAGMA journal_mode = WAL")
            self._connection.execute("PRAGMA synchronous = NORMAL")
            self._connection.executescript(_TABLES)
        except sqlite3.Error as error:
            raise InputError(
                f"The cache '{self.path}' cannot be used ({error}); remove it and run again."
            ) from error
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Keep what was put, also after an interruption, and close."""
        self._connection.commit()
        self._connection.close()

    def content_of(self, path: Path) -> bytes:
        """Give the SHA-256 of a file; a file of known size and time of change is not read again."""
        info = path.stat()
        name = str(path.absolute())
        row = self._connection.execute(
            "SELECT content FROM files WHERE path = ? AND size = ? AND changed = ?",
            (name, info.st_size, info.st_mtime_ns),
        ).fetchone()
        if row is not None:
            known: bytes = row[0]
            return known
        with path.open("rb") as stream:
            content = hashlib.file_digest(stream, "sha256").digest()
        self._connection.execute(
            "INSERT OR REPLACE INTO files VALUES (?, ?, ?, ?)",
            (name, info.st_size, info.st_mtime_ns, content),
        )
        return content

    def get(self, content: bytes) -> Raw | None:
        """Give the raw numbers under a hash; None when there are none."""
        row = self._connection.execute(
            "SELECT shape, numbers FROM raw WHERE content = ? AND recipe = ?",
            (content, self.recipe),
        ).fetchone()
        if row is None:
            return None
        shape = tuple(json.loads(row[0]))
        return np.frombuffer(row[1], dtype="<f4").reshape(shape)

    def has(self, content: bytes) -> bool:
        """Say whether there are raw numbers under a hash."""
        row = self._connection.execute(
            "SELECT 1 FROM raw WHERE content = ? AND recipe = ?", (content, self.recipe)
        ).fetchone()
        return row is not None

    def put(self, content: bytes, raw: Raw) -> None:
        """Keep raw numbers under a hash; they reach the disk within seconds."""
        self._connection.execute(
            "INSERT OR REPLACE INTO raw VALUES (?, ?, ?, ?)",
            (content, self.recipe, json.dumps(raw.shape), raw.astype("<f4").tobytes()),
        )
        if time.monotonic() - self._committed > _COMMIT_SECONDS:
            self._connection.commit()
            self._committed = time.monotonic()
