"""What every method has: a name, a title, what it needs, and what its digest covers.

In: a `Trial`. Out: metrics.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

from polyseme_experiments.draws import Conditions
from polyseme_experiments.spaces import make_mapper, space_config
from polyseme_experiments.trials import Trial

Metrics = dict[str, Any]


@dataclass(frozen=True)
class Method(ABC):
    """Something that is measured in a trial.

    Attributes
    ----------
    name : str
        Names it in records and on the command line.
    title : str
        Names it in tables.
    dimensions : tuple of int
        Sizes of the concept spaces it needs.
    features : bool
        Whether it needs instances' features.
    cost : float
        About how many seconds a run takes, to say how long is left.
    """

    name: str
    title: str
    dimensions: tuple[int, ...] = ()
    cost: float = 5.0
    features: ClassVar[bool] = False

    def config(self, conditions: Conditions) -> dict[str, Any]:
        """Give what decides its results as JSON values, also what is left at its default."""
        config: dict[str, Any] = {"name": self.name}
        if self.dimensions:
            config["spaces"] = [space_config(d, conditions) for d in self.dimensions]
        if self.dimensions and self.features:
            mapper = make_mapper(conditions).get_params()
            # Where it is fitted decides nothing; records were kept before there were landmarks.
            passed_over = {"device"} | ({"n_landmarks"} if mapper["n_landmarks"] is None else set())
            config["mapper"] = {
                name: repr(value) for name, value in mapper.items() if name not in passed_over
            }
        return config

    @abstractmethod
    def run(self, trial: Trial) -> tuple[Metrics, dict[str, Any]]:
        """Give metrics and the audit of what reached training."""
