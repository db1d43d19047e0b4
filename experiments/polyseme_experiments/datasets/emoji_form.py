"""Emoji: two drawings of each with keywords; part of polyseme."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from polyseme.corpus import LabelCorpus
from polyseme.datasets.base import DatasetForm, DatasetParts
from polyseme_experiments.datasets.emoji import DRAWINGS, load_emoji

MIN_COUNT = 20
_SAMPLE_SIZE = 60


def _make(n_emoji: int | None = None) -> DatasetParts:
    """Give every drawing as a document of its own; drawings of an emoji are a group."""
    emoji = load_emoji(min_count=MIN_COUNT)
    n_all = len(emoji.ids)
    # Spread over all categories, which follow one another.
    n_taken = n_all if n_emoji is None else n_emoji
    chosen = np.linspace(0, n_all - 1, n_taken).round().astype(np.int64)
    rows = np.concatenate([chosen + n_all * drawing for drawing in range(len(DRAWINGS))])
    groups, names = emoji.group[rows], emoji.picture_names()
    corpus = LabelCorpus.from_documents(
        [emoji.documents[group] for group in groups], ids=[names[row] for row in rows]
    )
    corpus = replace(corpus, groups=tuple(emoji.ids[group] for group in groups))
    return DatasetParts(corpus, emoji.features[rows])


def _sample() -> DatasetParts:
    """Give some emoji only."""
    return _make(_SAMPLE_SIZE)


def _write(folder: Path, ids: Sequence[str]) -> None:
    """Write the drawings that some documents are about."""
    load_emoji(min_count=MIN_COUNT).write(folder, ids)


FORM = DatasetForm(
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
    sample=_sample,
    embedded=_make,
    write_media=_write,
    has_features=True,
    has_groups=True,
)
