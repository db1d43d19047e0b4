"""The paper's experiments: a name in, records with ours beside the published figures out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from polyseme._validation import unknown_name

EXPERIMENTS = ("fig7", "fig9")


def run_experiment(
    name: str,
    data: str | Path | None = None,
    *,
    trials: int = 3,
    seed: int = 0,
    say: Callable[[str], None] | None = None,
) -> list[dict[str, Any]]:
    """Run one of the paper's experiments.

    Parameters
    ----------
    name : {"fig7", "fig9"}
        "fig7": HSUN, error-free mapping. "fig9": HSUN, the whole system.
    data : str or Path, optional
        The folder that holds the corpora; by default the environment variable POLYSEME_DATA.
    trials : int
        Label splits.
    seed : int
        Seeds splits and training.
    say : callable, optional
        Takes a line about each step.

    Returns
    -------
    list of dict
        One record per measure and set of labels: ours as mean and standard error, and the
        published figure.
    """
    if name not in EXPERIMENTS:
        raise unknown_name("experiment", name, EXPERIMENTS)
    from polyseme.experiments import hsun

    return hsun.run(name, data, trials=trials, seed=seed, say=say or (lambda line: None))
