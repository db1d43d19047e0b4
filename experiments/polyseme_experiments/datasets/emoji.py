"""The embedded emoji: two drawings of each, with keywords as labels.

In: the files of the package folder `emoji_data` (its README says how they were made and under
which licences). Out: an `EmojiCorpus` with documents, features and the place of every picture.
"""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from polyseme._validation import InputError, check_number
from polyseme_experiments.datasets.embedded import EmbeddedFiles, frequent, package_folder

DRAWINGS = ("noto", "twemoji")
CELL = 64
COLUMNS = 40
_ATTRIBUTION = """Pictures of emoji, selected from two sets without altering a visible pixel.

noto: Noto Emoji, copyright Google LLC, https://github.com/googlefonts/noto-emoji,
licensed under the Apache License 2.0, https://www.apache.org/licenses/LICENSE-2.0

twemoji: Twemoji, copyright Twitter, Inc and other contributors,
https://github.com/jdecked/twemoji, graphics licensed under CC-BY 4.0,
https://creativecommons.org/licenses/by/4.0/

Tags: after emojilib (copyright 2014 Mu-An Chiou, MIT), emojibase (copyright 2017-2019 Miles
Johnson, MIT) and Unicode CLDR (copyright Unicode, Inc., Unicode License v3).
"""


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

    def picture_names(self) -> list[str]:
        """Name the picture file of every row, as `write` does: "noto/1F600.png"."""
        return [
            f"{drawing}/{self.ids[group]}.png"
            for drawing, group in zip(self.drawing, self.group, strict=True)
        ]

    def write(self, folder: str | Path, names: Collection[str] | None = None) -> list[Path]:
        """Write drawings as PNG files, with labels in `tags.jsonl` and whose work they are.

        Parameters
        ----------
        folder : str or Path
            A new or empty folder; gets a folder for each drawing.
        names : collection of str, optional
            Which of `picture_names`; by default all.

        Returns
        -------
        list of Path
            The pictures, in the order of the rows.
        """
        from PIL import Image

        target = new_folder(folder)
        wanted = None if names is None else set(names)
        sheets = {one: Image.open(self.sheets[one]).convert("RGBA") for one in DRAWINGS}
        written: list[Path] = []
        lines: list[str] = []
        for name, drawing, group in zip(
            self.picture_names(), self.drawing, self.group.tolist(), strict=True
        ):
            if wanted is not None and name not in wanted:
                continue
            written.append(target / name)
            written[-1].parent.mkdir(exist_ok=True)
            sheets[drawing].crop(self.cell(group)).save(written[-1])
            row = {"file": name, "labels": self.documents[group], "group": self.ids[group]}
            lines.append(json.dumps(row, ensure_ascii=False) + "\n")
        (target / "tags.jsonl").write_text("".join(lines), "utf-8")
        (target / "LICENCE.txt").write_text(_ATTRIBUTION, "utf-8")
        return written


def new_folder(folder: str | Path) -> Path:
    """Make a folder to write samples to; one that holds anything is refused."""
    path = Path(folder)
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise InputError(f"'{path}' is not empty; name a new folder to write to.")
    path.mkdir(parents=True, exist_ok=True)
    return path


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
    files = EmbeddedFiles("emoji", folder)
    text = gzip.decompress(files.read("documents.jsonl.gz")).decode()
    rows = [json.loads(line) for line in text.splitlines()]
    for drawing in DRAWINGS:
        files.read(f"{drawing}.webp")
    tables = [_read_table(files, f"{drawing}.npy") for drawing in DRAWINGS]
    return EmojiCorpus(
        ids=[row["id"] for row in rows],
        characters=[row["emoji"] for row in rows],
        names=[row["name"] for row in rows],
        categories=[row["category"] for row in rows],
        subcategories=[row["subcategory"] for row in rows],
        documents=frequent([row["labels"] for row in rows], min_count),
        features=np.concatenate(tables),
        drawing=[drawing for drawing in DRAWINGS for _ in rows],
        group=np.tile(np.arange(len(rows), dtype=np.int64), len(DRAWINGS)),
        sheets={drawing: folder / f"{drawing}.webp" for drawing in DRAWINGS},
    )


def _data_folder() -> Path:
    """Find the folder of the data files."""
    return package_folder("emoji_data")


def _read_table(files: EmbeddedFiles, name: str) -> NDArray[np.float32]:
    """Read one feature table, (n, 1280), in single precision."""
    stored = np.load(io.BytesIO(files.read(name)), allow_pickle=False)
    return np.asarray(stored, dtype=np.float32)
