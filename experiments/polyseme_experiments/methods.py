"""What is measured in a trial: whole systems, the concept space alone, mappings, and counts.

In: a `Trial`. Out: metrics. A new method is one entry of the list at the end; kinds of methods
that need more than `fit` and `decision_function` have their files in `experiments/_kinds`.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from polyseme._validation import PolysemeWarning, unknown_name
from polyseme.baselines import (
    Chance,
    Composition,
    ConSE,
    Costa,
    Fast0Tag,
    LatentSemantic,
    NearestInstances,
    Popularity,
    SeenClassifiers,
    TunedCosta,
)
from polyseme.features.image import DEPTHS
from polyseme.training import SpacePlan
from polyseme_experiments._kinds.calibration import Calibration, LateCalibration
from polyseme_experiments._kinds.costa import CostaSystem
from polyseme_experiments._kinds.counts import Sizes, Usage
from polyseme_experiments._kinds.features import FeatureSet
from polyseme_experiments._kinds.method import Method, Metrics
from polyseme_experiments._kinds.spaces import ErrorFree, Regression, SensesOfLabels
from polyseme_experiments._kinds.systems import SpaceSystem, WholeSystem
from polyseme_experiments.draws import Conditions, word_vectors
from polyseme_experiments.trials import Trial

__all__ = [
    "DIMENSIONS",
    "METHODS",
    "RANKERS",
    "Calibration",
    "CostaSystem",
    "ErrorFree",
    "FeatureSet",
    "FittedRanker",
    "LateCalibration",
    "Method",
    "Metrics",
    "Ranker",
    "Regression",
    "SensesOfLabels",
    "Sizes",
    "SpaceSystem",
    "Usage",
    "WholeSystem",
    "get_method",
]


class Ranker(Protocol):
    """What the tagger and the baselines have in common."""

    classes_: tuple[str, ...]

    def fit(self, X: object, documents: Any, semantics: Any = None) -> Any:
        """Learn."""

    def decision_function(self, X: object) -> NDArray[np.float64]:
        """Score every label."""


@dataclass(frozen=True)
class FittedRanker(Method):
    """A ranker that learns from features, documents and semantics documents.

    Attributes
    ----------
    kind : class
        One of `polyseme.baselines`. A trial gives it what it has a parameter for: the seed, the
        word vectors, the classifiers that all forms of COSTA share.
    parameters : mapping
        Its other parameters, where they are not the default ones.
    oov : bool
        Whether it scores oov labels.
    """

    features: ClassVar[bool] = True
    kind: type[Any] = Popularity
    parameters: Mapping[str, Any] = field(default_factory=dict)
    oov: bool = True

    def config(self, conditions: Conditions) -> dict[str, Any]:
        """Give what decides its results as JSON values, also what is left at its default."""
        parameters = {name: repr(value) for name, value in self._new().get_params().items()}
        config = super().config(conditions)
        if "classifiers" in parameters:
            shared = SeenClassifiers().get_params()
            config["classifiers"] = {name: repr(value) for name, value in shared.items()}
        if "vectors" in parameters and not conditions.quick:
            config["words"] = word_vectors(conditions.data).checksum
        return config | {"kind": self.kind.__name__, "parameters": parameters}

    def _new(self, **given: Any) -> Any:
        """Make the ranker with what is given and it has a parameter for."""
        known = self.kind().get_params()
        fitting = {name: value for name, value in given.items() if name in known}
        return self.kind(**self.parameters, **fitting)

    def make(self, trial: Trial) -> Ranker:
        """Make the unfitted ranker of a trial."""
        given: dict[str, Any] = {"random_state": trial.seed}
        known = self.kind().get_params()
        if "vectors" in known:
            given["vectors"] = trial.word_vectors
        if "classifiers" in known:
            given |= {"classifiers": trial.classifiers(), "fit_classifiers": False}
        ranker: Ranker = self._new(**given)
        return ranker

    def run(self, trial: Trial) -> tuple[Metrics, dict[str, Any]]:
        """Fit, score the test instances, measure."""
        ranker = self.make(trial)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PolysemeWarning)
            ranker.fit(trial.train_features, trial.train_documents, trial.known_documents)
        scores = ranker.decision_function(trial.features(trial.split.test))
        return trial.measure(scores, ranker.classes_, oov=self.oov), trial.audit(
            ranker, trial.given()
        )


DIMENSIONS = (10, 50, 200)
_METHODS: tuple[Method, ...] = (
    WholeSystem("polyseme", "concept embedding", (200,), cost=30.0),
    WholeSystem("polyseme-density", "concept embedding, density", (200,), score="density"),
    FittedRanker("tuned-costa", "tuned COSTA", kind=TunedCosta),
    FittedRanker("costa", "COSTA (as in the paper)", cost=50.0, kind=Costa, oov=False),
    FittedRanker(
        "costa-no-prior",
        "COSTA, no priors",
        kind=Costa,
        parameters={"use_priors": False},
        oov=False,
    ),
    *(
        FittedRanker(
            f"costa-{transfer}",
            f"COSTA, {words}",
            kind=Costa,
            parameters={"transfer": transfer},
            oov=False,
        )
        for transfer, words in (
            ("normalised", "normalised counts"),
            ("dice", "Dice"),
            ("square-root", "square root"),
        )
    ),
    FittedRanker("latent-semantic", "latent semantics", kind=LatentSemantic),
    FittedRanker("conse", "ConSE (GloVe)", kind=ConSE),
    FittedRanker("fast0tag", "Fast0Tag (GloVe)", kind=Fast0Tag),
    FittedRanker("composition", "composition (GloVe)", kind=Composition),
    FittedRanker("nearest-instances", "nearest instances", kind=NearestInstances),
    FittedRanker("popularity", "popularity", kind=Popularity),
    FittedRanker("chance", "chance", kind=Chance),
    SpaceSystem("default", "polyseme's default", cost=17.0),
    SpaceSystem("default-priming", "… ranked by priming alone", cost=1.0, method="priming"),
    SpaceSystem("default-features", "… features alone", context=0.0),
    SpaceSystem("default-context", "… probable tags alone", context=1.0),
    SpaceSystem("default-no-priming", "… without priming", priming=0.0),
    SpaceSystem("default-no-levels", "… without levels", levels=False),
    SpaceSystem("default-5-members", "… 5 members of 10", n_members=5),
    SpaceSystem("default-1-member", "… 1 member of 10", n_members=1),
    *(
        SpaceSystem(name, title, cost=16.0, trained={"plan": plan})
        for name, title, plan in (
            (
                "default-no-weights",
                "… trained without selection weights",
                SpacePlan(selection_weights=False),
            ),
            ("default-no-soft", "… trained without soft targets", SpacePlan(soft_weight=0.0)),
            (
                "default-no-probable",
                "… trained without probable tags",
                SpacePlan(probable_weight=0.0),
            ),
        )
    ),
    SpaceSystem("default-mix", "polyseme's default", cost=1.0, mix=True),
    CostaSystem("costa-mix", "tuned COSTA", mix=True),
    CostaSystem("costa-shifted", "tuned COSTA, levels as the default's", levels=True),
    Calibration("calibration", "probabilities"),
    Calibration("calibration-costa", "scores of tuned COSTA as probabilities", raw=True),
    LateCalibration("calibration-late", "probabilities of new labels", cost=22.0),
    *(ErrorFree(f"error-free-{d}", f"d = {d}", (d,)) for d in DIMENSIONS),
    *(
        ErrorFree(f"error-free-{d}-own", f"d = {d}, own known", (d,), own="paper")
        for d in DIMENSIONS
    ),
    *(Regression(f"mapping-{d}", f"d = {d}", (d,), cost=20.0) for d in DIMENSIONS),
    *(
        FeatureSet(f"depth-{depth}", depth, cost=40.0, parameters={"depth": depth})
        for depth in DEPTHS
    ),
    *(
        FeatureSet(
            f"{reduction}-{size}",
            f"{title} ({size})",
            cost=40.0,
            reduction=reduction,
            n_components=size,
        )
        for reduction, title in (("rbm", "RBM"), ("uth", "UTH"), ("pca", "PCA"))
        for size in (256, 512)
    ),
    Sizes("sizes", "sizes", cost=1.0),
    Usage("usage", "label usage", cost=1.0),
    SensesOfLabels("senses", "senses of labels", (200,)),
)
METHODS: dict[str, Method] = {method.name: method for method in _METHODS}
RANKERS = tuple(
    method.name for method in _METHODS if isinstance(method, (WholeSystem, FittedRanker))
)


def get_method(name: str) -> Method:
    """Give a method by its name; an unknown one is an `InputError` that lists them."""
    if name not in METHODS:
        raise unknown_name("method", name, tuple(METHODS))
    return METHODS[name]
