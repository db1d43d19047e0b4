"""One file for each table and figure; a new one is a file here and a line below."""

from __future__ import annotations

from importlib import import_module

from polyseme._validation import unknown_name
from polyseme.experiments.experiment import Experiment
from polyseme.experiments.names import EXPERIMENTS


def get_experiment(name: str) -> Experiment:
    """Give an experiment by its name; an unknown one is an `InputError` that lists them."""
    if name not in EXPERIMENTS:
        raise unknown_name("experiment", name, EXPERIMENTS)
    found: Experiment = import_module(f"polyseme.experiments.figures.{name}").EXPERIMENT
    return found
