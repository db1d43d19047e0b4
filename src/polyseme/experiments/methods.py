"""What is measured in a trial: whole systems, the concept space alone, mappings, and counts.

In: a `Trial`. Out: metrics; a new method is one entry of `METHODS`.
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from polyseme._validation import PolysemeWarning, check_features, unknown_name
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
from polyseme.experiments.draws import Conditions, word_vectors
from polyseme.experiments.spaces import make_mapper, space_config
from polyseme.experiments.trials import Trial
from polyseme.experts import LabelExperts
from polyseme.experts.documents import PLAN as DOCUMENT_PLAN
from polyseme.experts.instances import PLAN as INSTANCE_PLAN
from polyseme.experts.model import SEEN_EXPERTS, UNSEEN_EXPERTS
from polyseme.features import ImageFeatures
from polyseme.features.network import DEPTHS
from polyseme.priming import PrimingRanker
from polyseme.protocols import measure, own_document_scores
from polyseme.scoring import regression_error, scattering
from polyseme.senses import SenseRule, find_senses

Metrics = dict[str, Any]


class Ranker(Protocol):
    """What the tagger and the baselines have in common."""

    labels_: tuple[str, ...]

    def fit(self, X: object, documents: Any, semantics: Any = None) -> Any:
        """Learn."""

    def score_labels(self, X: object) -> NDArray[np.float64]:
        """Score every label."""


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
            config["mapper"] = {name: repr(value) for name, value in mapper.items()}
        return config

    @abstractmethod
    def run(self, trial: Trial) -> tuple[Metrics, dict[str, Any]]:
        """Give metrics and the audit of what reached training."""


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
        scores = ranker.score_labels(trial.features(trial.split.test))
        return trial.measure(scores, ranker.labels_, oov=self.oov), trial.audit(
            ranker, trial.given()
        )


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
    mix : bool
        Whether all held-out instances are tested, also those without an unseen label.
    """

    features: ClassVar[bool] = True
    seen: tuple[str, ...] = SEEN_EXPERTS
    unseen: tuple[str, ...] = UNSEEN_EXPERTS
    use_shifts: bool = True
    mix: bool = False

    def config(self, conditions: Conditions) -> dict[str, Any]:
        """Give what decides its results as JSON values, also what is left at its default."""
        parameters = {name: repr(value) for name, value in LabelExperts().get_params().items()}
        plans = {"documents": asdict(DOCUMENT_PLAN), "instances": asdict(INSTANCE_PLAN)}
        asked = {"seen": self.seen, "unseen": self.unseen, "shifts": self.use_shifts}
        return super().config(conditions) | {
            "experts": parameters,
            "plans": plans,
            "asked": asked,
            "mix": self.mix,
        }

    def run(self, trial: Trial) -> tuple[Metrics, dict[str, Any]]:
        """Score the test instances, or the natural mix."""
        fitted, labels = trial.experts()
        experts = fitted.with_experts(self.seen, self.unseen, use_shifts=self.use_shifts)
        rows = trial.mixed if self.mix else trial.split.test
        scores = experts.logits(check_features(trial.features(rows), owner="LabelExperts"))
        audited = trial.audit(given=trial.given())
        return trial.measure(scores, labels, mix=self.mix), audited


@dataclass(frozen=True)
class ErrorFree(Method):
    """The concept space alone: labels are ranked around the test documents' true points.

    Attributes
    ----------
    own : {"strict", "paper"}
        Whether a test document that is also a known one helps to find its own labels.
    """

    own: str = "strict"

    def config(self, conditions: Conditions) -> dict[str, Any]:
        """Give what decides its results as JSON values, also what is left at its default."""
        return super().config(conditions) | {"own": self.own}

    def run(self, trial: Trial) -> tuple[Metrics, dict[str, Any]]:
        """Rank labels around true points."""
        space = trial.space(self.dimensions[0])
        known = space.known_
        fresh = trial.split.unmet_instances("train")
        if len(fresh):
            known, _, _ = known.add(space.embedding_, fresh)
        tested = trial.split.instances("test")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PolysemeWarning)
            scores = own_document_scores(known, space.embedding_, tested, own=self.own)
        return trial.measure(scores, known.labels), trial.audit(space)


@dataclass(frozen=True)
class Regression(Method):
    """How far the mapping's points lie from the true ones (in the paper: Table 2)."""

    features: ClassVar[bool] = True

    def run(self, trial: Trial) -> tuple[Metrics, dict[str, Any]]:
        """Compare predicted and true points of the test instances."""
        tagger = trial.tagger(self.dimensions[0])
        tested = trial.split.instances("test")
        truth = tagger.embedding_.targets(tested)
        placed = np.isfinite(truth).all(axis=1)
        predicted = tagger.points(trial.features(trial.split.test))
        known = trial.space(self.dimensions[0]).known_
        points = np.repeat(known.points, np.bincount(known.sets)[known.set_ids], axis=0)
        spread = scattering(points, max_points=3000, random_state=trial.seed)
        error = regression_error(predicted[placed], truth[placed], points)
        return {"space": spread | error}, trial.audit(tagger, trial.given())


@dataclass(frozen=True)
class FeatureSet(Method):
    """Classifiers of the seen labels on one kind of image features (in the paper: Appendix A).

    Attributes
    ----------
    parameters : mapping
        Of `ImageFeatures`.
    """

    features: ClassVar[bool] = True
    parameters: Mapping[str, Any] = field(default_factory=dict)

    def config(self, conditions: Conditions) -> dict[str, Any]:
        """Give what decides its results as JSON values, also what is left at its default."""
        front_end = self._front_end(conditions)
        parameters = {name: repr(value) for name, value in front_end.get_params().items()}
        classifiers = SeenClassifiers().get_params()
        return super().config(conditions) | {
            "recipe": front_end.recipe(),
            "parameters": parameters,
            "classifiers": {name: repr(value) for name, value in classifiers.items()},
        }

    def run(self, trial: Trial) -> tuple[Metrics, dict[str, Any]]:
        """Learn from the training instances, measure on the validation instances."""
        table = trial.media_features(self._front_end(trial.conditions))
        classifiers = SeenClassifiers(random_state=trial.seed)
        classifiers.fit(table[trial.split.train], trial.train_documents)
        scores = classifiers.probabilities(table[trial.split.validation])
        tested = trial.split.instances("validation")
        columns = {"training": trial.split.labels.seen}
        found: Metrics = measure(tested, scores, classifiers.labels_, columns)
        found["training"]["features"] = table.shape[1]
        return found, trial.audit()

    def _front_end(self, conditions: Conditions) -> ImageFeatures:
        """Make the front end, at the size at which the embedded emoji's features were made."""
        made = ImageFeatures(size=192, n_jobs=1, **self.parameters)
        if conditions.quick:
            made.set_params(size=64, n_components=made.n_components // 16)
        if conditions.quick and made.reduction is not None:
            made.set_params(depth="pooled")  # a quarter of the numbers, a tenth of the time
        return made


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


@dataclass(frozen=True)
class SensesOfLabels(Method):
    """Labels whose concepts fall apart into senses (the idea of the paper's Fig. 1)."""

    def run(self, trial: Trial) -> tuple[Metrics, dict[str, Any]]:
        """Find them and lay them out in two dimensions."""
        space = trial.space(self.dimensions[0])
        concepts = space.embedding_.transform(trial.split.known())
        rows = np.arange(len(trial.split.known()))
        least = 9 if trial.conditions.quick else 60
        rule = SenseRule(n_labels=3, fewest=least, most=20 * least, min_members=least // 3)
        found = find_senses(concepts, rows, rule=rule, random_state=trial.seed)
        maps = [
            {
                "label": one.label,
                "points": one.points.round(2).tolist(),
                "senses": one.senses.tolist(),
                "words": [list(words) for words in one.words],
                "background": one.background.round(2).tolist(),
                "silhouette": round(one.silhouette, 4),
            }
            for one in found
        ]
        return {"senses": {"maps": maps}}, trial.audit(space)


_NO_LINEAR, _NO_CONTEXT, _NO_DIRECT = (
    tuple(one for one in UNSEEN_EXPERTS if one != name) for name in UNSEEN_EXPERTS
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
    ExpertSystem("default", "polyseme's default", cost=25.0),
    ExpertSystem("default-no-shift", "… without label shifts", use_shifts=False),
    ExpertSystem("default-no-context", "… without context on unseen labels", unseen=_NO_CONTEXT),
    ExpertSystem("default-no-direct", "… without direct networks there", unseen=_NO_DIRECT),
    ExpertSystem("default-no-linear", "… without the linear expert there", unseen=_NO_LINEAR),
    ExpertSystem("default-kernel", "… kernel alone on seen labels", seen=("kernel",)),
    ExpertSystem("default-network", "… networks alone on seen labels", seen=("network",)),
    ExpertSystem(
        "costa-shifted", "tuned COSTA, label shifts", seen=("kernel",), unseen=("linear",)
    ),
    ExpertSystem("default-mix", "polyseme's default", mix=True),
    ExpertSystem(
        "costa-mix",
        "tuned COSTA",
        seen=("kernel",),
        unseen=("linear",),
        use_shifts=False,
        mix=True,
    ),
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
            parameters={"reduction": reduction, "n_components": size},
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
