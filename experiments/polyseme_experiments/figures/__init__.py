"""Tables and figures; a new one is an entry of `EXPERIMENTS` in a file here, and its name."""

from __future__ import annotations

from polyseme._validation import unknown_name
from polyseme_experiments import EXPERIMENTS
from polyseme_experiments.figures import calibration, compare, default, paper
from polyseme_experiments.figures.base import Experiment

_KNOWN: dict[str, Experiment] = {
    experiment.name: experiment
    for module in (paper, default, calibration, compare)
    for experiment in module.EXPERIMENTS
}


def get_experiment(name: str) -> Experiment:
    """Give an experiment by its name; an unknown one is an `InputError` that lists them."""
    if name not in EXPERIMENTS:
        raise unknown_name("experiment", name, EXPERIMENTS)
    return _KNOWN[name]
