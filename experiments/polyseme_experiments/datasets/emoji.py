"""The embedded emoji: two drawings of each, with keywords as labels.

In: the files of the package folder `emoji_data` (its README says how they were made and under
which licences). Out: an `EmojiCorpus`, and the dataset "emoji".
"""

from __future__ import annotations

import io
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from polyseme.base.validation import check_number
from polyseme.documents.corpus import LabelCorpus
from polyseme_experiments.datasets.base import DatasetContent, DatasetSpec
from polyseme_experiments.datasets.embedded import (
    EmbeddedFiles,
    frequent,
    package_folder,
    write_media,
)

DRAWINGS = ("noto", "twemoji")
CELL, COLUMNS = 64, 40


@dataclass(frozen=True, eq=False)
class EmojiCorpus:
    """Emoji with their labels and the features of two drawings of each.

    There are n emoji and 2n instances: row i of `features` is the drawing `drawing[i]` of emoji
    `group[i]`, whose labels are `documents[group[i]]`.
    """

    ids: list[str]  # code points in hexadecimal, joined by "-"
    characters: list[str]  # the emoji themselves
    names: list[str]  # Unicode's short names
    categories: list[str]  # Unicode's groups
    subcategories: list[str]
    documents: list[list[str]]  # sorted labels; with a `min_count` above 2 some are empty
    features: NDArray[np.float32]  # (2n, 1280), pooled EfficientNet-Lite0: Noto, then Twemoji
    drawing: list[str]  # of every row, "noto" or "twemoji"
    group: NDArray[np.int64]  # (2n,): the emoji of every row; keep it on one side of a split
    sheets: dict[str, Path]  # a WebP sheet of each drawing: 64 px cells, 40 to a row, as `ids`

    def cell(self, emoji: int) -> tuple[int, int, int, int]:
        """Return the place of an emoji on a sheet: left, top, right, bottom (excluded)."""
        last = len(self.ids) - 1
        check_number("emoji", emoji, owner="cell", low=0, high=last, whole=True)
        row, column = divmod(emoji, COLUMNS)
        left = column * CELL
        top = row * CELL
        return left, top, left + CELL, top + CELL

    def picture_names(self) -> list[str]:
        """Name the picture file of every row, as `write` does: "noto/1F600.png"."""
        names = []
        for drawing, emoji in zip(self.drawing, self.group, strict=True):
            emoji_id = self.ids[emoji]
            name = f"{drawing}/{emoji_id}.png"
            names.append(name)
        return names

    def write(self, folder: str | Path, names: Collection[str] | None = None) -> list[Path]:
        """Write some `picture_names` (by default all) as PNG files, in their order.

        See `write_media`.
        """
        from PIL import Image

        sheets = {}
        for drawing in DRAWINGS:
            sheet = Image.open(self.sheets[drawing])
            sheets[drawing] = sheet.convert("RGBA")
        picture_names = self.picture_names()
        wanted = set(picture_names if names is None else names)
        media: dict[str, bytes] = {}
        tags = []
        for row, name in enumerate(picture_names):
            if name not in wanted:
                continue
            emoji = int(self.group[row])
            drawn_sheet = sheets[self.drawing[row]]
            picture = drawn_sheet.crop(self.cell(emoji))
            content = io.BytesIO()
            picture.save(content, "PNG")
            media[name] = content.getvalue()
            tags.append((self.documents[emoji], self.ids[emoji]))
        licence = (_data_folder() / "ATTRIBUTION.txt").read_bytes()
        return write_media(folder, media, tags, licence)


def load_emoji(*, min_count: int = 10) -> EmojiCorpus:
    """Load the embedded emoji after checking their files against the stored checksums.

    Labels of fewer than `min_count` emoji are left out. Labels of a single emoji are not stored, so
    that 1 gives the same as 2.

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
    rows = files.read_rows("documents.jsonl.gz")
    for drawing in DRAWINGS:
        files.read(f"{drawing}.webp")
    tables = []
    for drawing in DRAWINGS:
        content = io.BytesIO(files.read(f"{drawing}.npy"))
        tables.append(np.load(content, allow_pickle=False))
    return EmojiCorpus(
        ids=[row["id"] for row in rows],
        characters=[row["emoji"] for row in rows],
        names=[row["name"] for row in rows],
        categories=[row["category"] for row in rows],
        subcategories=[row["subcategory"] for row in rows],
        documents=frequent([row["labels"] for row in rows], min_count),
        features=np.concatenate(tables).astype(np.float32),
        drawing=[drawing for drawing in DRAWINGS for _ in rows],
        group=np.tile(np.arange(len(rows), dtype=np.int64), len(DRAWINGS)),
        sheets={drawing: folder / f"{drawing}.webp" for drawing in DRAWINGS},
    )


def _data_folder() -> Path:
    """Find the folder of the data files."""
    return package_folder("emoji_data")


MIN_COUNT = 20


def _dataset(n_emoji: int | None = None) -> DatasetContent:
    """Return every drawing as a document of its own; drawings of an emoji are a group."""
    emoji = load_emoji(min_count=MIN_COUNT)
    n_all = len(emoji.ids)
    # Spread over all categories, which follow one another.
    n_chosen = n_emoji or n_all
    chosen = np.linspace(0, n_all - 1, n_chosen).round()
    chosen_emoji = chosen.astype(np.int64)
    rows_by_drawing = [chosen_emoji + n_all * number for number in range(len(DRAWINGS))]
    rows = np.concatenate(rows_by_drawing)
    groups = emoji.group[rows]
    documents = [emoji.documents[group] for group in groups]
    picture_names = emoji.picture_names()
    ids = [picture_names[row] for row in rows]
    corpus = LabelCorpus.from_documents(documents, ids=ids)
    corpus = replace(corpus, groups=tuple(emoji.ids[group] for group in groups))
    return DatasetContent(corpus, emoji.features[rows])


def _write(folder: Path, ids: Sequence[str]) -> None:
    """Write the drawings that some documents are about."""
    load_emoji(min_count=MIN_COUNT).write(folder, ids)


SPEC = DatasetSpec(
    name="emoji",
    title="emoji",
    domain="images",
    citation=(
        "Google, Twitter, M.-A. Chiou, Unicode Consortium: Noto Emoji, Twemoji, emojilib and CLDR "
        "annotations. Packages emoji-datasource 16, emojilib 4 and emojibase-data 17, 2025."
    ),
    n_documents=3220,
    n_labels=104,
    licence="Apache-2.0 and CC-BY-4.0 (drawings), MIT and Unicode-3.0 (keywords)",
    sample=lambda: _dataset(60),
    embedded=_dataset,
    write_media=_write,
    has_features=True,
    has_groups=True,
)
