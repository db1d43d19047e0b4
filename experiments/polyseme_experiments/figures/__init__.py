"""Tables and figures.

In: `figures.toml` and a name. Out: an `Experiment`; its kind is a class of this folder.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from polyseme_experiments.definitions import find, make_all, read_toml
from polyseme_experiments.figures import calibration, compare, paper, pools
from polyseme_experiments.figures.base import Experiment


@lru_cache(maxsize=1)
def experiments() -> dict[str, Experiment]:
    """Read all tables and figures, in the order of the report."""
    tables = read_toml(Path(__file__).with_name("figures.toml"))
    return make_all(tables, (paper, compare, calibration, pools))


def get_experiment(name: str) -> Experiment:
    """Return an experiment by its name."""
    return find("experiment", name, experiments())
