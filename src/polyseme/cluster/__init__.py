"""Long jobs over many items, on this machine or on a Ray cluster.

In: shards of features, or folders of media, and a saved model. Out: rankings, extracted folders and
tags, the same bytes either way; and models trained by several machines.
"""

from __future__ import annotations

from polyseme.cluster.engine import RayEngine, open_engine
from polyseme.cluster.media import Tagging
from polyseme.cluster.ranking import RankingSummary, rank_shards
from polyseme.cluster.training import RayTraining

__all__ = [
    "RankingSummary",
    "RayEngine",
    "RayTraining",
    "Tagging",
    "open_engine",
    "rank_shards",
]
