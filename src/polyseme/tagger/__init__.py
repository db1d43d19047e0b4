"""The whole path: tag sets and features in, ranked labels out.

`ZeroShotTagger` composes the steps (embedding, mapping, experts, priming) behind fit, rank,
complete and explain, and is what gets saved and loaded.
"""

from __future__ import annotations

from polyseme.tagger.model import ZeroShotTagger

__all__ = ["ZeroShotTagger"]
