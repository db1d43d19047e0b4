"""Versions of a model: every state that the service saved, and its change.

In: a model's folder, after each change. Out: folders `versions/0001`, `0002` … inside it, each a
whole model that can be read and put back. Files that did not change are shared by hard links.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from polyseme._validation import InputError
from polyseme.io import locked
from polyseme.persistence import (
    MANIFEST,
    ModelFileError,
    State,
    changing,
    read_manifest,
    read_model,
)

FOLDER = "versions"
_CHANGE = "change.json"
_NUMBER = re.compile(r"[0-9]{4,9}")
_WAIT_SECONDS = 60.0


@dataclass(frozen=True)
class Version:
    """One state of a model, and the change that led to it."""

    number: int
    digest: str  # of its manifest, 12 hexadecimal digits
    time: str
    who: str | None
    action: str
    detail: str
    n_labels: int
    n_documents: int


class Versions:
    """The versions of one model.

    Parameters
    ----------
    model : Path
        The model's folder.
    most : int
        How many are kept; the oldest go first.
    """

    def __init__(self, model: Path, most: int = 50) -> None:
        self.model = model
        self.most = most
        self._folder = model / FOLDER

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Lock the model for a change; others that change it wait."""
        # Old versions are removed, and the target of a link may belong to others.
        if self._folder.is_symlink():
            raise ModelFileError(f"'{self._folder}' is a link where versions belong; move it away.")
        if self._folder.exists() and not self._folder.is_dir():
            raise ModelFileError(f"'{self._folder}' is a file where versions belong; move it away.")
        self._folder.mkdir(exist_ok=True)
        with changing(self.model), locked(self._folder, _WAIT_SECONDS, ModelFileError):
            yield

    def current(self) -> str:
        """Return the digest of the model that is on disk, 12 hexadecimal digits."""
        return hashlib.sha256(read_manifest(self.model)).hexdigest()[:12]

    def all(self) -> list[Version]:
        """Return all versions that are kept, the oldest first; damaged ones are passed over."""
        versions = []
        for number in self._numbers():
            with suppress(OSError, ValueError, TypeError, KeyError):
                file = self._folder / f"{number:04d}" / _CHANGE
                fields = json.loads(file.read_text("utf-8"))
                version = Version(**fields)
                if version.number == number:
                    versions.append(version)
        return versions

    def keep(
        self, action: str, detail: str, who: str | None, n_labels: int, n_documents: int
    ) -> Version:
        """Store the model that is on disk now as a version, unless the last one is the same.

        Parameters
        ----------
        action, detail : str
            What was done, such as "rename", and to what.
        who : str, optional
        n_labels, n_documents : int
            What the model holds.
        """
        try:
            return self._keep(action, detail, who, n_labels, n_documents)
        except OSError as error:
            raise ModelFileError(
                f"The model at '{self.model}' is saved, and no version of it can be kept "
                f"({error.strerror or error}); make room there, and change it again."
            ) from error

    def _keep(
        self, action: str, detail: str, author: str | None, n_labels: int, n_documents: int
    ) -> Version:
        """Store a version; see `keep`."""
        digest = self.current()
        versions = self.all()
        if versions and versions[-1].digest == digest:
            return versions[-1]
        number = max(self._numbers(), default=0) + 1
        saved_at = datetime.now(UTC).isoformat(timespec="seconds")
        version = Version(number, digest, saved_at, author, action, detail, n_labels, n_documents)

        unfinished = self._folder / f".{number:04d}.unfinished"
        shutil.rmtree(unfinished, ignore_errors=True)  # one that a kill has left
        unfinished.mkdir(parents=True)
        manifest = json.loads(read_manifest(self.model))
        for name in (*manifest["files"], MANIFEST):
            _link(self.model / name, unfinished / name)
        change = json.dumps(asdict(version), indent=1) + "\n"
        (unfinished / _CHANGE).write_text(change, "utf-8")
        unfinished.rename(self._folder / f"{number:04d}")

        for old_number in self._numbers()[: -self.most]:
            shutil.rmtree(self._folder / f"{old_number:04d}", ignore_errors=True)
        return version

    def state(self, number: int) -> State:
        """Read a version, with all checks of a model.

        Parameters
        ----------
        number : int
        """
        numbers = self._numbers()
        if number not in numbers:
            span = f"{numbers[0]} to {numbers[-1]}" if numbers else "none"
            raise InputError(f"There is no version {number}; kept are {span}.")
        return read_model(self._folder / f"{number:04d}", "tagger")

    def _numbers(self) -> list[int]:
        """Return the numbers of all versions, in order."""
        if not self._folder.is_dir():
            return []
        folders = [entry for entry in self._folder.iterdir() if entry.is_dir()]
        names = [folder.name for folder in folders]
        numbers = [int(name) for name in names if _NUMBER.fullmatch(name)]
        return sorted(numbers)


def _link(source: Path, target: Path) -> None:
    """Link a file; where the system cannot, copy it. Payloads are never written to again."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)
