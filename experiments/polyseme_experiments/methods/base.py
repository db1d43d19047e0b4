"""What every method has: a name, a title, what it needs, and what its digest covers.

In: a `Trial`. Out: metrics, and the audit's facts.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from polyseme_experiments.embedding_cache import make_mapper, space_config
from polyseme_experiments.sampling import RunConfig
from polyseme_experiments.trials import Trial

Matrix = NDArray[np.float64]
Metrics = dict[str, Any]
Outcome = tuple[Metrics, dict[str, Any]]


def reprs(parameters: dict[str, Any], left_out: set[str] | None = None) -> dict[str, str]:
    """Write parameters as text, for configurations."""
    texts = {}
    for name, value in parameters.items():
        if left_out is None or name not in left_out:
            texts[name] = repr(value)
    return texts


@dataclass(frozen=True)
class Method(ABC):
    """Something that is measured in a trial."""

    features: ClassVar[bool] = False  # whether it needs instances' features
    name: str  # in records and on the command line
    title: str  # in tables
    dimensions: tuple[int, ...] = ()  # sizes of the concept spaces it needs

    def config(self, config: RunConfig) -> dict[str, Any]:
        """Return what decides its results as JSON values, also what is left at its default."""
        described: dict[str, Any] = {"name": self.name}
        if self.dimensions:
            described["spaces"] = [space_config(d, config) for d in self.dimensions]
        if self.dimensions and self.features:
            mapper = make_mapper(config).get_params()
            # Where it is fitted decides nothing; records were kept before there were landmarks.
            left_out = {"device"}
            if mapper["n_landmarks"] is None:
                left_out.add("n_landmarks")
            described["mapper"] = reprs(mapper, left_out)
        return described

    @abstractmethod
    def run(self, trial: Trial) -> Outcome:
        """Return metrics and the audit of what reached training."""


@dataclass(frozen=True)
class System(Method):
    """A whole system, measured by the scores that it gives labels of test instances."""

    features: ClassVar[bool] = True
    oov: bool = True  # whether it scores oov labels
    mix: bool = False  # whether all held-out instances are tested, also without an unseen label

    @abstractmethod
    def scores(self, trial: Trial, X: NDArray[np.float32]) -> tuple[Any, Matrix]:
        """Return what was fitted, and its scores of instances, (n, n_labels)."""

    def run(self, trial: Trial) -> Outcome:
        """Score the test instances, or the natural mix."""
        rows = trial.split.test
        if self.mix:
            rows = trial.mixed
        X = trial.features(rows)
        fitted, scores = self.scores(trial, X)
        labels = fitted.classes_
        metrics = trial.measure(
            scores,
            labels,
            oov=self.oov,
            mix=self.mix,
        )
        inputs = trial.fit_inputs()
        audit = trial.audit(fitted, inputs)
        return metrics, audit
