"""Long jobs over many items, on this machine or on a Ray cluster.

In: shards of features, or folders of media, and a saved model. Out: rankings, extracted folders and
tags, the same bytes either way; and models trained by several machines.
"""

from __future__ import annotations

from polyseme.batch.ranking import RankingSummary, rank_shards
from polyseme.batch.ray_engine import RayEngine, open_engine
from polyseme.batch.ray_training import RayTraining
from polyseme.batch.tagging import Tagging

__all__ = [
    "RankingSummary",
    "RayEngine",
    "RayTraining",
    "Tagging",
    "open_engine",
    "rank_shards",
]
