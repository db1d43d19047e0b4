"""Counts: nothing is learned.

In: a `Trial`. Out: sizes of its sets, and how often labels are used.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from polyseme_experiments._kinds.method import Method, Metrics
from polyseme_experiments.trials import Trial


@dataclass(frozen=True)
class Sizes(Method):
    """How many labels and instances each set of the split has (in the paper: Table 1)."""

    def run(self, trial: Trial) -> tuple[Metrics, dict[str, Any]]:
        """Count."""
        return {"sizes": trial.split.sizes()}, trial.audit()


@dataclass(frozen=True)
class Usage(Method):
    """How often source and target use the source's labels (in the paper: Fig. 5)."""

    def run(self, trial: Trial) -> tuple[Metrics, dict[str, Any]]:
        """Count the documents that hold each label, in percent."""
        source = trial.split.source
        matrix = trial.target.corpus.align(source.labels)[0][:, : len(source.labels)]
        first = 100 * np.asarray(source.matrix.mean(axis=0)).ravel()
        second = 100 * np.asarray(matrix.mean(axis=0)).ravel()
        told = {
            side: dict(zip(source.labels, shares.round(4).tolist(), strict=True))
            for side, shares in (("source", first), ("target", second))
        }
        return {"usage": told}, trial.audit()
