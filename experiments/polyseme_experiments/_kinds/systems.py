"""Whole systems: the published way from features to labels, and the default's.

In: a `Trial` with features. Out: metrics of the test instances' label scores.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar

import polyseme.calibration
import polyseme.space
import polyseme.training
from polyseme.published.priming import PrimingRanker
from polyseme.tagger import ZeroShotTagger
from polyseme.training import SpacePlan
from polyseme_experiments._kinds.method import Method, Metrics
from polyseme_experiments._kinds.variants import changed
from polyseme_experiments.draws import Conditions
from polyseme_experiments.spaces import make_space
from polyseme_experiments.trials import Trial


def default_config(conditions: Conditions, **parameters: Any) -> dict[str, Any]:
    """Give all that decides what a tagger learns, also what is left at its default.

    Parameters
    ----------
    conditions : Conditions
    **parameters
        Of its `ConceptSpace`.
    """
    made = make_space(conditions, **parameters)
    # Records are made on the processor, whatever else could train the members.
    passed_over = {"checkpoint", "device", "plan", "random_state"}
    plan = made.plan or SpacePlan()
    told = {
        # What the space leaves to its plan is told as the plan has it.
        name: repr(getattr(plan, name, None) if value is None and name != "n_steps" else value)
        for name, value in made.get_params().items()
    }
    return {
        "space": {name: value for name, value in told.items() if name not in passed_over},
        "plan": asdict(plan),
        "constants": {
            f"{module.__name__}.{name}": repr(value)
            for module in (polyseme.calibration, polyseme.space, polyseme.training)
            for name, value in vars(module).items()
            if name.isupper() and _is_number(value)
        },
    }


def _is_number(value: object) -> bool:
    """Say whether a constant is a number, or several."""
    several = value if isinstance(value, tuple) else (value,)
    return all(isinstance(one, (int, float)) for one in several)


@dataclass(frozen=True)
class WholeSystem(Method):
    """The concept embedding, mapped from features.

    Attributes
    ----------
    score : {"nearest", "density"}
        How distances become scores.
    """

    features: ClassVar[bool] = True
    score: str = "nearest"

    def config(self, conditions: Conditions) -> dict[str, Any]:
        """Give what decides its results as JSON values, also what is left at its default."""
        return super().config(conditions) | {"score": self.score}

    def run(self, trial: Trial) -> tuple[Metrics, dict[str, Any]]:
        """Rank the test instances by the concepts around their points."""
        tagger = trial.tagger(self.dimensions[0])
        ranker = PrimingRanker(
            tagger.store_.index(64.0), tagger.embedding_.distance_scale_, self.score
        )
        scores = ranker.scores(tagger.points(trial.features(trial.split.test)))
        return trial.measure(scores, tagger.classes_), trial.audit(tagger, trial.given())


@dataclass(frozen=True)
class SpaceSystem(Method):
    """The default tagger, whole or with a part left out.

    Attributes
    ----------
    context, priming : float, optional
        Other shares of probable tags and of known documents; see `ConceptSpace`.
    n_members : int, optional
        How many members are asked, at most one for each fold; by default all.
    levels : bool
        Whether labels have slopes and intercepts.
    trained : mapping
        Parameters of the `ConceptSpace`, where it is trained in another way. Everything else is
        asked of the one default that a trial's methods share.
    method : {"space", "priming"}
        As in `ZeroShotTagger.predict_proba`.
    mix : bool
        Whether all held-out instances are tested, also those without an unseen label.
    """

    features: ClassVar[bool] = True
    context: float | None = None
    priming: float | None = None
    n_members: int | None = None
    levels: bool = True
    trained: Mapping[str, Any] = field(default_factory=dict)
    method: str = "space"
    mix: bool = False

    def config(self, conditions: Conditions) -> dict[str, Any]:
        """Give what decides its results as JSON values, also what is left at its default."""
        asked = {
            "context": self.context,
            "priming": self.priming,
            "members": self.n_members,
            "levels": self.levels,
            "method": self.method,
        }
        learned = default_config(conditions, **self.trained)
        return super().config(conditions) | learned | {"asked": asked, "mix": self.mix}

    def run(self, trial: Trial) -> tuple[Metrics, dict[str, Any]]:
        """Score the test instances, or the natural mix."""
        tagger = self.tagger(trial)
        rows = trial.mixed if self.mix else trial.split.test
        scores = tagger.predict_proba(trial.features(rows), method=self.method)
        audited = trial.audit(tagger, trial.given())
        return trial.measure(scores, tagger.classes_, mix=self.mix), audited

    def tagger(self, trial: Trial) -> ZeroShotTagger:
        """Give the tagger that is asked."""
        if self.trained:
            space = make_space(trial.conditions, **self.trained)
            fitted = trial.variant_tagger(f"space, {self.name}", space)
        else:
            fitted = trial.default_tagger()
        told = (self.context, self.priming, self.n_members)
        if self.levels and all(one is None for one in told):
            return fitted
        return changed(
            trial,
            fitted,
            context=self.context,
            priming=self.priming,
            n_members=self.n_members,
            levels=self.levels,
        )
