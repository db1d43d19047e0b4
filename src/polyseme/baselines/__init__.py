"""What the tagger is compared with, behind the same contract: fit, decision_function, rank."""

from polyseme.baselines.classifiers import SeenClassifiers
from polyseme.baselines.composition import Composition
from polyseme.baselines.conse import ConSE
from polyseme.baselines.costa import Costa, TunedCosta
from polyseme.baselines.dummy import Chance, Popularity
from polyseme.baselines.fast0tag import Fast0Tag
from polyseme.baselines.latent import LatentSemantic
from polyseme.baselines.nearest import NearestInstances

__all__ = [
    "Chance",
    "Composition",
    "ConSE",
    "Costa",
    "Fast0Tag",
    "LatentSemantic",
    "NearestInstances",
    "Popularity",
    "SeenClassifiers",
    "TunedCosta",
]
