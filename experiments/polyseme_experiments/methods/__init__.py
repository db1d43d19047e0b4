"""What is measured in a trial: whole systems, the concept space alone, mappings, and counts.

In: a `Trial`. Out: metrics. A new baseline is one entry of `METHODS`; what needs more than `fit`
and `decision_function` is a class in a file of this folder.
"""

from __future__ import annotations

from typing import Any

from polyseme._validation import unknown_name
from polyseme.baselines import (
    Chance,
    Composition,
    ConSE,
    Costa,
    Fast0Tag,
    LatentSemantic,
    NearestInstances,
    Popularity,
    TunedCosta,
)
from polyseme.features.image import DEPTHS
from polyseme.training import SpacePlan
from polyseme_experiments.methods.base import Method
from polyseme_experiments.methods.baselines import Baseline, FeatureSet, Sizes, Usage
from polyseme_experiments.methods.calibration import Calibration, NewLabelCalibration
from polyseme_experiments.methods.costa import CostaSystem
from polyseme_experiments.methods.default import DefaultSystem
from polyseme_experiments.methods.published import (
    ErrorFree,
    PublishedSystem,
    Regression,
    SensesOfLabels,
)

__all__ = ["METHODS", "RANKERS", "Method", "get_method"]

DIMENSIONS = (10, 50, 200)
_COSTA: dict[str, tuple[str, dict[str, Any]]] = {
    "no-prior": ("COSTA, no priors", {"use_priors": False}),
    "normalised": ("COSTA, normalised counts", {"transfer": "normalised"}),
    "dice": ("COSTA, Dice", {"transfer": "dice"}),
    "square-root": ("COSTA, square root", {"transfer": "square-root"}),
}
_TRAINED = {
    "weights": ("selection weights", SpacePlan(selection_weights=False)),
    "soft": ("soft targets", SpacePlan(soft_weight=0.0)),
    "probable": ("probable tags", SpacePlan(probable_weight=0.0)),
}
_METHODS: tuple[Method, ...] = (
    PublishedSystem("polyseme", "concept embedding", (200,)),
    PublishedSystem("polyseme-density", "concept embedding, density", (200,), score="density"),
    Baseline("tuned-costa", "tuned COSTA", kind=TunedCosta),
    Baseline("costa", "COSTA (as in the paper)", kind=Costa, oov=False),
    *(
        Baseline(f"costa-{name}", title, kind=Costa, parameters=parameters, oov=False)
        for name, (title, parameters) in _COSTA.items()
    ),
    Baseline("latent-semantic", "latent semantics", kind=LatentSemantic),
    Baseline("conse", "ConSE (GloVe)", kind=ConSE),
    Baseline("fast0tag", "Fast0Tag (GloVe)", kind=Fast0Tag),
    Baseline("composition", "composition (GloVe)", kind=Composition),
    Baseline("nearest-instances", "nearest instances", kind=NearestInstances),
    Baseline("popularity", "popularity", kind=Popularity),
    Baseline("chance", "chance", kind=Chance),
    DefaultSystem("default", "polyseme's default"),
    DefaultSystem("default-priming", "… ranked by priming alone", method="priming"),
    DefaultSystem("default-features", "… features alone", context=0.0),
    DefaultSystem("default-context", "… probable tags alone", context=1.0),
    DefaultSystem("default-no-priming", "… without priming", priming=0.0),
    DefaultSystem("default-no-levels", "… without levels", levels=False),
    DefaultSystem("default-5-members", "… 5 members of 10", n_members=5),
    DefaultSystem("default-1-member", "… 1 member of 10", n_members=1),
    *(
        DefaultSystem(f"default-no-{name}", f"… trained without {title}", trained={"plan": plan})
        for name, (title, plan) in _TRAINED.items()
    ),
    DefaultSystem("default-mix", "polyseme's default", mix=True),
    CostaSystem("costa-mix", "tuned COSTA", mix=True),
    CostaSystem("costa-shifted", "tuned COSTA, levels as the default's", levels=True),
    Calibration("calibration", "probabilities"),
    Calibration("calibration-costa", "scores of tuned COSTA as probabilities", raw=True),
    NewLabelCalibration("calibration-late", "probabilities of new labels"),
    *(ErrorFree(f"error-free-{d}", f"d = {d}", (d,)) for d in DIMENSIONS),
    *(
        ErrorFree(f"error-free-{d}-own", f"d = {d}, own known", (d,), own="paper")
        for d in DIMENSIONS
    ),
    *(Regression(f"mapping-{d}", f"d = {d}", (d,)) for d in DIMENSIONS),
    *(FeatureSet(f"depth-{depth}", depth, parameters={"depth": depth}) for depth in DEPTHS),
    *(
        FeatureSet(
            f"{reduction}-{size}",
            f"{reduction.upper()} ({size})",
            reduction=reduction,
            n_components=size,
        )
        for reduction in ("rbm", "uth", "pca")
        for size in (256, 512)
    ),
    Sizes("sizes", "sizes"),
    Usage("usage", "label usage"),
    SensesOfLabels("senses", "senses of labels", (200,)),
)
METHODS: dict[str, Method] = {method.name: method for method in _METHODS}
RANKERS = tuple(
    method.name for method in _METHODS if isinstance(method, (PublishedSystem, Baseline))
)


def get_method(name: str) -> Method:
    """Give a method by its name; an unknown one is an `InputError` that lists them."""
    if name not in METHODS:
        raise unknown_name("method", name, tuple(METHODS))
    return METHODS[name]
