"""Datasets by name with tiny samples; emoji and clips are part of this package."""

from __future__ import annotations

from polyseme_experiments.datasets.base import Dataset, DatasetContent, DatasetSpec
from polyseme_experiments.datasets.clips import ClipCorpus, load_clips
from polyseme_experiments.datasets.emoji import EmojiCorpus, load_emoji
from polyseme_experiments.datasets.loading import choose, known_specs, load_dataset

__all__ = [
    "ClipCorpus",
    "Dataset",
    "DatasetContent",
    "DatasetSpec",
    "EmojiCorpus",
    "choose",
    "known_specs",
    "load_clips",
    "load_dataset",
    "load_emoji",
]
