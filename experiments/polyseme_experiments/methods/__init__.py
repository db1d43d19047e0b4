"""What is measured in a trial: whole systems, the concept space alone, mappings, and counts.

In: `methods.toml` and a name. Out: a `Method`; its kind is a class of this folder.
"""

from __future__ import annotations

from pathlib import Path

from polyseme_experiments.definitions import find, make_all, read_toml
from polyseme_experiments.methods import baselines, calibration, costa, default, pools, published
from polyseme_experiments.methods.base import Method

__all__ = ["METHODS", "RANKERS", "Method", "get_method"]

METHODS: dict[str, Method] = make_all(
    read_toml(Path(__file__).with_name("methods.toml")),
    (baselines, calibration, costa, default, pools, published),
)
_RANKERS = (published.PublishedSystem, baselines.BaselineSystem)
RANKERS = tuple(name for name, method in METHODS.items() if isinstance(method, _RANKERS))


def get_method(name: str) -> Method:
    """Return a method by its name."""
    return find("method", name, METHODS)
