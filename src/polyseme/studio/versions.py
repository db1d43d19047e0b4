"""Versions of a model: every state that the service saved, and its change.

In: a model's folder, after each change. Out: `versions/0001.safetensors` and so on inside it, each
a whole model that can be put back, and beside each a *note*, `0001.json`, that says what changed.
The note is written last: a version is there when its note is.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from polyseme.base.validation import InputError
from polyseme.storage.atomic_files import locked, replacing
from polyseme.storage.model_file import MODEL_FILE, ModelFileError, State, read_digest, read_file

FOLDER = "versions"
_NOTE = re.compile(r"([0-9]{4,9})\.json")
_LOCK_SECONDS = 60.0  # until it is given up that another service ends its change


@dataclass(frozen=True)
class Version:
    """One state of a model, and the change that led to it; its fields are those of a note."""

    number: int  # from 1
    digest: str  # of the model file, its first 12 hexadecimal digits
    time: str  # when it was saved, in ISO 8601
    who: str | None
    action: str  # such as "rename"
    detail: str  # such as "cat to kitten"
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
        """Lock the versions for a change; other services that change the model wait."""
        # Old versions are removed, and the target of a link may belong to others.
        if self._folder.is_symlink():
            raise ModelFileError(f"'{self._folder}' is a link where versions belong; move it away.")
        if self._folder.exists() and not self._folder.is_dir():
            raise ModelFileError(f"'{self._folder}' is a file where versions belong; move it away.")
        self._folder.mkdir(exist_ok=True)
        with locked(self._folder, _LOCK_SECONDS, ModelFileError):
            yield

    def current(self) -> str:
        """Return the digest of the model that is on disk, its first 12 hexadecimal digits."""
        return read_digest(self.model)[:12]

    def all(self) -> list[Version]:
        """Return all versions that are kept, the oldest first; damaged ones are passed over."""
        versions: list[Version] = []
        for number in self._numbers():
            with suppress(OSError, ValueError, TypeError, KeyError):
                note = self._file(number, "json")
                fields = json.loads(note.read_text("utf-8"))
                version = Version(**fields)
                if version.number == number:
                    versions.append(version)
        return versions

    def keep(
        self, action: str, detail: str, author: str | None, n_labels: int, n_documents: int
    ) -> Version:
        """Return the version of the model that is on disk; store it unless it is the last one.

        Callers hold the lock of `writing`. The oldest versions beyond `most` are removed.

        Parameters
        ----------
        action, detail : str
            What was done, such as "rename", and to what.
        author : str, optional
        n_labels, n_documents : int
            What the model holds.
        """
        digest = self.current()
        versions = self.all()
        if versions and versions[-1].digest == digest:
            return versions[-1]
        number = max(self._numbers(), default=0) + 1
        saved_at = datetime.now(UTC).isoformat(timespec="seconds")
        version = Version(number, digest, saved_at, author, action, detail, n_labels, n_documents)
        try:
            self._write(version)
        except OSError as error:
            raise ModelFileError(
                f"The model at '{self.model}' is saved, and no version of it can be kept "
                f"({error.strerror or error}); make room there, and change it again."
            ) from error
        for old_number in self._numbers()[: -self.most]:
            self._file(old_number, "json").unlink(missing_ok=True)
            self._file(old_number, "safetensors").unlink(missing_ok=True)
        return version

    def _write(self, version: Version) -> None:
        """Write a version's model, and then its note."""
        copy = self._file(version.number, "safetensors")
        model_file = self.model / MODEL_FILE
        with model_file.open("rb") as source, replacing(copy) as stream:
            shutil.copyfileobj(source, stream)
        fields = asdict(version)
        text = json.dumps(fields, indent=1) + "\n"
        note = self._file(version.number, "json")
        with replacing(note) as stream:
            stream.write(text.encode())

    def state(self, number: int) -> State:
        """Return the configuration and the arrays of a version, with all checks of a model."""
        numbers = self._numbers()
        if number not in numbers:
            span = f"{numbers[0]} to {numbers[-1]}" if numbers else "none"
            raise InputError(f"There is no version {number}; kept are {span}.")
        saved = read_file(self._file(number, "safetensors"), "tagger")
        return saved.config, saved.arrays

    def _file(self, number: int, suffix: str) -> Path:
        """Return the path of a version's model ("safetensors") or note ("json")."""
        return self._folder / f"{number:04d}.{suffix}"

    def _numbers(self) -> list[int]:
        """Return the numbers of all versions, ascending."""
        if not self._folder.is_dir():
            return []
        numbers: list[int] = []
        for entry in self._folder.iterdir():
            match = _NOTE.fullmatch(entry.name)
            if match:
                numbers.append(int(match[1]))
        return sorted(numbers)
