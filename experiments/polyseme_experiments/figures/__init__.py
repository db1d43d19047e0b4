"""Tables and figures.

In: `figures.toml` and a name. Out: an `Experiment`; its kind is a class of this folder.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

from polyseme._validation import unknown_name
from polyseme_experiments import EXPERIMENTS
from polyseme_experiments.figures import calibration, compare, default, paper
from polyseme_experiments.figures.base import Experiment
from polyseme_experiments.settings import read_toml


@lru_cache(maxsize=1)
def _tables() -> dict[str, dict[str, Any]]:
    """Read the definitions of all tables and figures."""
    return read_toml(Path(__file__).with_name("figures.toml"))


def get_experiment(name: str) -> Experiment:
    """Give an experiment by its name; an unknown one is an `InputError` that lists them."""
    if name not in EXPERIMENTS:
        raise unknown_name("experiment", name, EXPERIMENTS)
    fields = dict(_tables()[name])
    kind = fields.pop("kind")
    module = next(one for one in (paper, default, calibration, compare) if hasattr(one, kind))
    experiment: Experiment = getattr(module, kind)(name=name, **fields)
    return experiment
