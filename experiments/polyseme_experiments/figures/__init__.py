"""One file for each table and figure; a new one is a file here and its name in `names.py`."""

from __future__ import annotations

from importlib import import_module

from polyseme._validation import InputError, unknown_name
from polyseme_experiments.experiment import Experiment
from polyseme_experiments.names import EXPERIMENTS


def get_experiment(name: str) -> Experiment:
    """Give an experiment by its name; an unknown one is an `InputError` that lists them."""
    if name not in EXPERIMENTS:
        raise unknown_name("experiment", name, EXPERIMENTS)
    module = import_module(f"{__name__}.{name.lower()}")
    found: Experiment = module.EXPERIMENT
    if found.name != name:
        raise InputError(f"The experiment in '{module.__file__}' must be named '{name}'.")
    return found
