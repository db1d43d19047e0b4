"""Datasets by name with tiny samples, embedded emoji and clips, a toy world with known answers."""

from __future__ import annotations

from polyseme.datasets.base import Dataset, DatasetForm, DatasetParts
from polyseme.datasets.clips import ClipCorpus, load_clips
from polyseme.datasets.emoji import EmojiCorpus, load_emoji
from polyseme.datasets.forms import FORMS
from polyseme.datasets.loading import available, choose, load_dataset
from polyseme.datasets.toy import ToyWorld, toy_world

__all__ = [
    "FORMS",
    "ClipCorpus",
    "Dataset",
    "DatasetForm",
    "DatasetParts",
    "EmojiCorpus",
    "ToyWorld",
    "available",
    "choose",
    "load_clips",
    "load_dataset",
    "load_emoji",
    "toy_world",
]
