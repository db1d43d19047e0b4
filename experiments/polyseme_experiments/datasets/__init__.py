"""The embedded datasets: emoji and clips, which `polyseme.datasets` finds by their entry points."""

from __future__ import annotations

from polyseme_experiments.datasets.clips import ClipCorpus, load_clips
from polyseme_experiments.datasets.emoji import EmojiCorpus, load_emoji

__all__ = ["ClipCorpus", "EmojiCorpus", "load_clips", "load_emoji"]
