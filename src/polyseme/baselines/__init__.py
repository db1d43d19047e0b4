"""What the tagger is compared with, behind the same contract: fit, decision_function, rank."""

from polyseme.baselines.chance import Chance
from polyseme.baselines.classifiers import SeenClassifiers
from polyseme.baselines.composition import Composition
from polyseme.baselines.conse import ConSE
from polyseme.baselines.costa import Costa
from polyseme.baselines.fast0tag import Fast0Tag
from polyseme.baselines.latent import LatentSemantic
from polyseme.baselines.nearest import NearestInstances
from polyseme.baselines.popularity import Popularity
from polyseme.baselines.tuned_costa import TunedCosta

__all__ = [
    "Chance",
    "Costa",
    "LatentSemantic",
    "NearestInstances",
    "Popularity",
    "SeenClassifiers",
    "TunedCosta",
    "ConSE",
    "Fast0Tag",
    "Composition",
]
