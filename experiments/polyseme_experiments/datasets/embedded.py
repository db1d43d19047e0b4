"""Data files that are part of the package, read only when they are what they should be.

In: the name of a folder of this package. Out: the files' bytes, checked against the stored sums;
and media files with their tags, written for whoever wants to try them.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
from collections import Counter
from collections.abc import Iterable, Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from polyseme.base.validation import InputError
from polyseme.storage.atomic_files import make_folder, mark_folder, replacing

TAGS_FILE, LICENCE_FILE = "tags.jsonl", "LICENCE.txt"


class EmbeddedFiles:
    """The data files of one embedded dataset, whose SHA-256 are in `checksums.json` by name."""

    def __init__(self, owner: str, folder: Path) -> None:
        self.owner = owner
        self.folder = folder
        content = self._bytes("checksums.json")
        try:
            self._sums = dict(json.loads(content))
        except (ValueError, TypeError) as error:
            raise self._fault("checksums.json", "is damaged") from error

    def read(self, name: str) -> bytes:
        """Return the content of a file whose SHA-256 is the stored one; refuse any other."""
        content = self._bytes(name)
        checksum = hashlib.sha256(content).hexdigest()
        if checksum != self._sums.get(name):
            raise self._fault(name, "is damaged: its SHA-256 is not the stored one")
        return content

    def read_rows(self, name: str) -> list[dict[str, Any]]:
        """Read a gzipped file of JSON lines."""
        text = gzip.decompress(self.read(name)).decode()
        return [json.loads(line) for line in text.splitlines()]

    def _bytes(self, name: str) -> bytes:
        """Read a file, or say that it is missing."""
        try:
            return (self.folder / name).read_bytes()
        except OSError as error:
            raise self._fault(name, "cannot be read") from error

    def _fault(self, name: str, fault: str) -> InputError:
        """Build the error for a file that cannot be used."""
        remedy = "reinstall polyseme, or in a checkout restore the file from version control"
        return InputError(f"The {self.owner} data file '{name}' {fault}; {remedy}.")


def package_folder(name: str) -> Path:
    """Find a data folder beside this module, wherever it is installed."""
    return Path(str(resources.files("polyseme_experiments.datasets") / name))


def frequent(documents: list[list[str]], min_count: int) -> list[list[str]]:
    """Keep the labels of at least `min_count` documents."""
    counts = Counter(label for labels in documents for label in labels)
    return [[label for label in labels if counts[label] >= min_count] for labels in documents]


def write_media(
    folder: str | os.PathLike[str],
    media: Mapping[str, bytes],
    tags: Iterable[tuple[list[str], str]],
    licence: bytes,
) -> list[Path]:
    """Write media files by name, labels and group of each in `tags.jsonl`, and whose work they are.

    The folder is new, empty, or one of sample files before, which carries our mark. A file that is
    there already with the same content stays; with another one, nothing is written.
    """
    lines = []
    for name, (labels, group) in zip(media, tags, strict=True):
        row = {"file": name, "labels": labels, "group": group}
        text = json.dumps(row, ensure_ascii=False)
        lines.append(f"{text}\n")
    files = dict(media)
    files[TAGS_FILE] = "".join(lines).encode()
    files[LICENCE_FILE] = licence
    target = Path(folder)
    mark_folder(target, "sample files")
    try:
        for name, content in files.items():
            path = target / name
            if not path.exists():
                continue
            if not path.is_file() or path.read_bytes() != content:
                raise InputError(
                    f"'{path}' exists and is not the file that would be written there; move it "
                    "away or choose another folder."
                )
        for name, content in files.items():
            path = target / name
            make_folder(path.parent)
            if not path.exists():
                with replacing(path) as stream:
                    stream.write(content)
    except OSError as error:
        reason = error.strerror or "it cannot be written"
        raise InputError(f"Nothing can be written to '{target}': {reason}.") from error
    return [target / name for name in media]
