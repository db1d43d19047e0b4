"""What the tagger is compared with, behind the same contract: fit, decision_function, rank."""

from polyseme.baselines.costa import Costa, SeenClassifiers, TunedCosta
from polyseme.baselines.joint import JointFactors
from polyseme.baselines.latent import LatentSemantic
from polyseme.baselines.simple import Chance, NearestInstances, Popularity
from polyseme.baselines.transduction import Transduction
from polyseme.baselines.words import Composition, ConSE, Fast0Tag

__all__ = [
    "Chance",
    "Composition",
    "ConSE",
    "Costa",
    "Fast0Tag",
    "JointFactors",
    "LatentSemantic",
    "NearestInstances",
    "Popularity",
    "SeenClassifiers",
    "Transduction",
    "TunedCosta",
]
