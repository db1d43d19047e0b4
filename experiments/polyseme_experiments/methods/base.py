"""What every method has: a name, a title, what it needs, and what its digest covers.

In: a `Trial`. Out: metrics, and the audit's facts.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

from polyseme_experiments.embedding_cache import make_mapper, space_config
from polyseme_experiments.sampling import RunConfig
from polyseme_experiments.trials import Trial

Metrics = dict[str, Any]
Outcome = tuple[Metrics, dict[str, Any]]


def reprs(parameters: dict[str, Any], left_out: set[str] | None = None) -> dict[str, str]:
    """Write parameters as text, for configurations."""
    return {name: repr(value) for name, value in parameters.items() if name not in (left_out or ())}


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
    """

    name: str
    title: str
    dimensions: tuple[int, ...] = ()
    features: ClassVar[bool] = False

    def config(self, config: RunConfig) -> dict[str, Any]:
        """Give what decides its results as JSON values, also what is left at its default."""
        described: dict[str, Any] = {"name": self.name}
        if self.dimensions:
            described["spaces"] = [space_config(d, config) for d in self.dimensions]
        if self.dimensions and self.features:
            mapper = make_mapper(config).get_params()
            # Where it is fitted decides nothing; records were kept before there were landmarks.
            left_out = {"device"} | ({"n_landmarks"} if mapper["n_landmarks"] is None else set())
            described["mapper"] = reprs(mapper, left_out)
        return described

    @abstractmethod
    def run(self, trial: Trial) -> Outcome:
        """Give metrics and the audit of what reached training."""
