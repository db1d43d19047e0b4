"""A cache of raw numbers: by the content of a file and the way they were made.

In: arrays under the hash of a file. Out: the same arrays, in this run or another, whole or not at
all. One SQLite file, written by one process.
"""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np

from polyseme._validation import InputError
from polyseme.features.base import Raw

_TABLES = """
CREATE TABLE IF NOT EXISTS raw (
    content BLOB, recipe TEXT, shape TEXT, numbers BLOB, PRIMARY KEY (content, recipe)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS files (path BLOB PRIMARY KEY, state TEXT, content BLOB) WITHOUT ROWID;
"""
_COMMIT_SECONDS = 2.0


class FeatureStore:
    """Raw numbers by content hash and recipe.

    Parameters
    ----------
    path : Path
        The SQLite file; made if it is not there.
    recipe : str
        The digest of a feature extractor's recipe; see `MediaFeatures.digest`.
    """

    def __init__(self, path: Path, recipe: str) -> None:
        self.path = path
        self.recipe = recipe
        self._committed = time.monotonic()

    def __enter__(self) -> Self:
        """Open the file."""
        try:
            self._connection = sqlite3.connect(self.path, timeout=1.0)
            # Held until it is closed: two that write at a time would wait for each other anyway.
            self._connection.execute("PRAGMA locking_mode = EXCLUSIVE")
            self._connection.execute("PRAGMA journal_mode = WAL")
            self._connection.execute("PRAGMA synchronous = NORMAL")
            self._connection.executescript(_TABLES)
        except sqlite3.Error as error:
            if "locked" in str(error):
                raise InputError(
                    f"Another extraction is writing to '{self.path.parent}'; wait until it is done."
                ) from error
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
        """Give the SHA-256 of a file; one that has not been touched since is not read again."""
        state = state_of(path)
        known = self._noted(path, state)
        if known is not None:
            return known
        with path.open("rb") as stream:
            content = hashlib.file_digest(stream, "sha256").digest()
        self.note(path, state, content)
        return content

    def knows(self, path: Path) -> bool:
        """Say whether the SHA-256 of a file, as it is now, is known without reading it."""
        try:
            return self._noted(path, state_of(path)) is not None
        except OSError:
            return False

    def note(self, path: Path, state: str, content: bytes) -> None:
        """Keep the SHA-256 that a file had in a state; see `state_of`."""
        name = os.fsencode(path.absolute())
        self._run("INSERT OR REPLACE INTO files VALUES (?, ?, ?)", (name, state, content))

    def _noted(self, path: Path, state: str) -> bytes | None:
        """Give the SHA-256 that was noted for a file in a state."""
        values = (os.fsencode(path.absolute()), state)
        row = self._ask("SELECT content FROM files WHERE path = ? AND state = ?", values)
        return None if row is None else bytes(row[0])

    def get(self, content: bytes) -> Raw | None:
        """Give the raw numbers under a hash; None when there are none."""
        row = self._ask(
            "SELECT shape, numbers FROM raw WHERE content = ? AND recipe = ?",
            (content, self.recipe),
        )
        if row is None:
            return None
        shape = tuple(json.loads(row[0]))
        return np.frombuffer(row[1], dtype="<f4").reshape(shape)

    def has(self, content: bytes) -> bool:
        """Say whether there are raw numbers under a hash."""
        row = self._ask(
            "SELECT 1 FROM raw WHERE content = ? AND recipe = ?", (content, self.recipe)
        )
        return row is not None

    def put(self, content: bytes, raw: Raw) -> None:
        """Keep raw numbers under a hash; they reach the disk within seconds."""
        self._run(
            "INSERT OR REPLACE INTO raw VALUES (?, ?, ?, ?)",
            (content, self.recipe, json.dumps(raw.shape), raw.astype("<f4").tobytes()),
        )

    def _ask(self, question: str, values: tuple[object, ...]) -> Any:
        """Give the first row of an answer; None without any."""
        return self._execute(question, values).fetchone()

    def _run(self, command: str, values: tuple[object, ...]) -> None:
        """Change something; changes reach the disk within seconds."""
        self._execute(command, values)
        if time.monotonic() - self._committed > _COMMIT_SECONDS:
            self._connection.commit()
            self._committed = time.monotonic()

    def _execute(self, command: str, values: tuple[object, ...]) -> sqlite3.Cursor:
        """Run one statement; say in a sentence why it cannot be run."""
        try:
            return self._connection.execute(command, values)
        except sqlite3.Error as error:
            raise InputError(
                f"The cache '{self.path}' cannot be used: {error}; make room for it, or wait until "
                "nobody else writes there, and run again."
            ) from error


def state_of(path: Path) -> str:
    """Give what changes whenever a file does: size, times, and which file it is."""
    info = path.stat()
    return f"{info.st_size} {info.st_mtime_ns} {info.st_ctime_ns} {info.st_ino}"
