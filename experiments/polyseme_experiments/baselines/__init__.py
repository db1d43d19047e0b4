"""What the tagger is compared with, behind the same contract: fit, decision_function, rank."""

from polyseme_experiments.baselines.costa import Costa, SeenClassifiers, TunedCosta
from polyseme_experiments.baselines.joint import JointFactors
from polyseme_experiments.baselines.latent import LatentSemantic
from polyseme_experiments.baselines.simple import Chance, NearestInstances, Popularity
from polyseme_experiments.baselines.transduction import Transduction
from polyseme_experiments.baselines.words import Composition, ConSE, Fast0Tag

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
