"""Data files that are part of the package, read only when they are what they should be.

In: the name of a folder of this package. Out: the files' bytes, checked against the stored sums.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from importlib import resources
from pathlib import Path

from polyseme._validation import InputError

_REMEDY = "reinstall polyseme, or in a checkout restore the file from version control"


class EmbeddedFiles:
    """The data files of one embedded dataset.

    Parameters
    ----------
    owner : str
        Whose files they are, for messages: "emoji".
    folder : Path
        With `checksums.json`, which holds the SHA-256 of every file by name.
    """

    def __init__(self, owner: str, folder: Path) -> None:
        self.owner = owner
        self.folder = folder
        self._sums = self._checksums()

    def read(self, name: str) -> bytes:
        """Give the content of a file whose SHA-256 is the stored one; refuse any other."""
        content = self._bytes(name)
        if hashlib.sha256(content).hexdigest() != self._sums.get(name):
            raise self.fault(name, "is damaged: its SHA-256 is not the stored one")
        return content

    def fault(self, name: str, what: str) -> InputError:
        """Build the error for a file that cannot be used."""
        return InputError(f"The {self.owner} data file '{name}' {what}; {_REMEDY}.")

    def _bytes(self, name: str) -> bytes:
        """Read a file, or say that it is missing."""
        try:
            return (self.folder / name).read_bytes()
        except OSError as error:
            raise self.fault(name, "cannot be read") from error

    def _checksums(self) -> dict[str, str]:
        """Read the stored sums by file name."""
        content = self._bytes("checksums.json")
        try:
            sums = json.loads(content)
        except ValueError:
            sums = None
        if not isinstance(sums, dict):
            raise self.fault("checksums.json", "is damaged")
        return sums


def package_folder(name: str) -> Path:
    """Find a data folder beside this module, wherever it is installed."""
    return Path(str(resources.files("polyseme_experiments.datasets") / name))


def frequent(documents: list[list[str]], min_count: int) -> list[list[str]]:
    """Keep the labels of at least `min_count` documents."""
    counts = Counter(label for labels in documents for label in labels)
    return [[label for label in labels if counts[label] >= min_count] for labels in documents]
