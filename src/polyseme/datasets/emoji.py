"""The embedded emoji: two drawings of each, with keywords as labels.

In: the files of the package folder `emoji_data` (its README says how they were made and under
which licences). Out: an `EmojiCorpus` with documents, features and the place of every picture.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
from collections import Counter
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from polyseme._validation import InputError, check_number

DRAWINGS = ("noto", "twemoji")
CELL = 64
COLUMNS = 40
_REMEDY = "reinstall polyseme, or in a checkout restore the file from version control"


@dataclass(frozen=True, eq=False)
class EmojiCorpus:
    """Emoji with their labels and the features of two drawings of each.

    There are n emoji and 2n instances: row i of `features` is the drawing `drawing[i]` of emoji
    `group[i]`, whose labels are `documents[group[i]]`.

    Attributes
    ----------
    ids : list of str, length n
        Code points in hexadecimal, joined by "-".
    characters : list of str, length n
        The emoji themselves.
    names : list of str, length n
        Their Unicode short names.
    categories, subcategories : list of str, length n
        Unicode's groups.
    documents : list of list of str, length n
        The labels of every emoji in alphabetical order. With a `min_count` above 2 some are
        empty.
    features : float32 array, shape (2n, 1280)
        Pooled EfficientNet-Lite0 features: all Noto drawings, then all Twemoji drawings.
    drawing : list of str, length 2n
        "noto" or "twemoji".
    group : int64 array, shape (2n,)
        The emoji of every row. Keep a group on one side of a split.
    sheets : dict of str to pathlib.Path
        The WebP sheet of each drawing: 64 px cells, 40 to a row, in the order of `ids`.
    """

    ids: list[str]
    characters: list[str]
    names: list[str]
    categories: list[str]
    subcategories: list[str]
    documents: list[list[str]]
    features: NDArray[np.float32]
    drawing: list[str]
    group: NDArray[np.int64]
    sheets: dict[str, Path]

    def cell(self, emoji: int) -> tuple[int, int, int, int]:
        """Say where on a sheet the picture of an emoji is.

        Parameters
        ----------
        emoji : int
            Position in `ids`.

        Returns
        -------
        left, top, right, bottom : int
            Pixels, right and bottom excluded.
        """
        check_number("emoji", emoji, owner="cell", low=0, high=len(self.ids) - 1, whole=True)
        left, top = emoji % COLUMNS * CELL, emoji // COLUMNS * CELL
        return left, top, left + CELL, top + CELL


def load_emoji(*, min_count: int = 10) -> EmojiCorpus:
    """Load the embedded emoji after checking their files against the stored checksums.

    Parameters
    ----------
    min_count : int
        Labels of fewer emoji are left out. Labels of a single emoji are not stored, so that 1
        gives the same as 2.

    Returns
    -------
    EmojiCorpus

    Examples
    --------
    >>> emoji = load_emoji()
    >>> emoji.names[0], emoji.documents[0]
    ('grinning face', ['face', 'grin', 'happy', 'joy', 'smile', 'tooth'])
    >>> labels_of_rows = [emoji.documents[group] for group in emoji.group]
    >>> len(labels_of_rows) == len(emoji.features)
    True
    """
    check_number("min_count", min_count, owner="load_emoji", low=1, whole=True)
    folder = _data_folder()
    checksums = _read_checksums(folder)
    text = gzip.decompress(_read(folder, "documents.jsonl.gz", checksums)).decode()
    rows = [json.loads(line) for line in text.splitlines()]
    for drawing in DRAWINGS:
        _read(folder, f"{drawing}.webp", checksums)
    tables = [_read_table(folder, f"{drawing}.npy", checksums) for drawing in DRAWINGS]
    return EmojiCorpus(
        ids=[row["id"] for row in rows],
        characters=[row["emoji"] for row in rows],
        names=[row["name"] for row in rows],
        categories=[row["category"] for row in rows],
        subcategories=[row["subcategory"] for row in rows],
        documents=_frequent([row["labels"] for row in rows], min_count),
        features=np.concatenate(tables),
        drawing=[drawing for drawing in DRAWINGS for _ in rows],
        group=np.tile(np.arange(len(rows), dtype=np.int64), len(DRAWINGS)),
        sheets={drawing: folder / f"{drawing}.webp" for drawing in DRAWINGS},
    )


def _data_folder() -> Path:
    """Find the folder of the data files beside this module, wherever it is installed."""
    return Path(str(resources.files("polyseme.datasets") / "emoji_data"))


def _frequent(documents: list[list[str]], min_count: int) -> list[list[str]]:
    """Keep the labels of at least `min_count` documents."""
    counts = Counter(label for labels in documents for label in labels)
    return [[label for label in labels if counts[label] >= min_count] for labels in documents]


def _read_bytes(folder: Path, name: str) -> bytes:
    """Read one data file, or say that it is missing."""
    try:
        return (folder / name).read_bytes()
    except OSError as error:
        raise InputError(f"The emoji data file '{name}' cannot be read; {_REMEDY}.") from error


def _read_checksums(folder: Path) -> dict[str, str]:
    """Read the stored SHA-256 sums by file name."""
    content = _read_bytes(folder, "checksums.json")
    try:
        sums = json.loads(content)
    except ValueError:
        sums = None
    if not isinstance(sums, dict):
        raise InputError(f"The emoji data file 'checksums.json' is damaged; {_REMEDY}.")
    return sums


def _read(folder: Path, name: str, checksums: dict[str, str]) -> bytes:
    """Read one data file and refuse it unless its SHA-256 is the stored one."""
    content = _read_bytes(folder, name)
    if hashlib.sha256(content).hexdigest() != checksums.get(name):
        raise InputError(
            f"The emoji data file '{name}' is damaged: its SHA-256 is not the stored one; "
            f"{_REMEDY}."
        )
    return content


def _read_table(folder: Path, name: str, checksums: dict[str, str]) -> NDArray[np.float32]:
    """Read one feature table, (n, 1280), in single precision."""
    stored = np.load(io.BytesIO(_read(folder, name, checksums)), allow_pickle=False)
    return np.asarray(stored, dtype=np.float32)
