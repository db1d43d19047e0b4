"""Long work over many items: on this machine, or on the many machines of a Ray cluster.

In: shards of features, or folders of media, and a saved model. Out: the same bytes either way:
rankings, extracted folders, tags. Names are imported when first used, so that a worker starts
quickly, and Ray only when it is asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from polyseme.cluster.engines import open_engine
    from polyseme.cluster.extracting import extract_media
    from polyseme.cluster.ranking import Ranked, rank_shards
    from polyseme.cluster.tagging import Tagging
    from polyseme.cluster.training import RayTraining

_HOME = {
    "Ranked": "polyseme.cluster.ranking",
    "RayTraining": "polyseme.cluster.training",
    "Tagging": "polyseme.cluster.tagging",
    "extract_media": "polyseme.cluster.extracting",
    "open_engine": "polyseme.cluster.engines",
    "rank_shards": "polyseme.cluster.ranking",
}

__all__ = ["Ranked", "RayTraining", "Tagging", "extract_media", "open_engine", "rank_shards"]


def __getattr__(name: str) -> Any:
    """Import a public name when it is first asked for."""
    if name not in _HOME:
        raise AttributeError(f"module 'polyseme.cluster' has no attribute '{name}'")
    return getattr(import_module(_HOME[name]), name)
