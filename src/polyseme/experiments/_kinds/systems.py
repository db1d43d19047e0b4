"""Whole systems: the published way from features to labels, and the default's.

In: a `Trial` with features. Out: metrics of the test instances' label scores.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from polyseme._validation import check_features
from polyseme.experiments._kinds.method import Method, Metrics
from polyseme.experiments.draws import Conditions
from polyseme.experiments.trials import Trial
from polyseme.experts import LabelExperts
from polyseme.experts.documents import PLAN as DOCUMENT_PLAN
from polyseme.experts.instances import PLAN as INSTANCE_PLAN
from polyseme.experts.model import SEEN_EXPERTS, SLOPES, UNSEEN_EXPERTS
from polyseme.priming import PrimingRanker


def expert_config() -> dict[str, Any]:
    """Give every parameter that decides what experts learn, also those left at their defaults."""
    experts = LabelExperts().get_params()
    # Records are made on the processor, whatever else could train the networks.
    parameters = {name: repr(experts[name]) for name in experts if name != "device"}
    plans = {"documents": asdict(DOCUMENT_PLAN), "instances": asdict(INSTANCE_PLAN)}
    return {"experts": parameters, "plans": plans}


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
            tagger.known_.index(64.0), tagger.embedding_.distance_scale_, self.score
        )
        scores = ranker.scores(tagger.points(trial.features(trial.split.test)))
        return trial.measure(scores, tagger.labels_), trial.audit(tagger, trial.given())


@dataclass(frozen=True)
class ExpertSystem(Method):
    """The default tagger's way to score, whole or with a part left out.

    Attributes
    ----------
    seen, unseen : tuple of str
        Who is asked; see `LabelExperts`.
    use_shifts : bool
    slopes : (float, float)
    mix : bool
        Whether all held-out instances are tested, also those without an unseen label.
    """

    features: ClassVar[bool] = True
    seen: tuple[str, ...] = SEEN_EXPERTS
    unseen: tuple[str, ...] = UNSEEN_EXPERTS
    use_shifts: bool = True
    slopes: tuple[float, float] = SLOPES
    mix: bool = False

    def config(self, conditions: Conditions) -> dict[str, Any]:
        """Give what decides its results as JSON values, also what is left at its default."""
        asked = {
            "seen": self.seen,
            "unseen": self.unseen,
            "shifts": self.use_shifts,
            "slopes": self.slopes,
        }
        return super().config(conditions) | expert_config() | {"asked": asked, "mix": self.mix}

    def run(self, trial: Trial) -> tuple[Metrics, dict[str, Any]]:
        """Score the test instances, or the natural mix."""
        fitted, labels = trial.experts()
        experts = fitted.with_experts(
            self.seen, self.unseen, use_shifts=self.use_shifts, slopes=self.slopes
        )
        rows = trial.mixed if self.mix else trial.split.test
        scores = experts.logits(check_features(trial.features(rows), owner="LabelExperts"))
        audited = trial.audit(given=trial.given())
        return trial.measure(scores, labels, mix=self.mix), audited
