"""Corpora: embedded emoji, a toy world with known answers, and folders of one's own."""

from __future__ import annotations

from polyseme.datasets.emoji import EmojiCorpus, load_emoji
from polyseme.datasets.folder import FolderCorpus, load_folder
from polyseme.datasets.toy import ToyWorld, toy_world

__all__ = ["EmojiCorpus", "FolderCorpus", "ToyWorld", "load_emoji", "load_folder", "toy_world"]
