"""What the tagger is compared with, behind the same contract: fit, decision_function, rank.

A baseline is a file of this folder, and its import here.
"""

from polyseme_experiments.baselines.costa import Costa as Costa
from polyseme_experiments.baselines.costa import SeenClassifiers as SeenClassifiers
from polyseme_experiments.baselines.costa import TunedCosta as TunedCosta
from polyseme_experiments.baselines.joint import JointFactors as JointFactors
from polyseme_experiments.baselines.latent import LatentSemantic as LatentSemantic
from polyseme_experiments.baselines.simple import Chance as Chance
from polyseme_experiments.baselines.simple import NearestInstances as NearestInstances
from polyseme_experiments.baselines.simple import Popularity as Popularity
from polyseme_experiments.baselines.transduction import Transduction as Transduction
from polyseme_experiments.baselines.words import Composition as Composition
from polyseme_experiments.baselines.words import ConSE as ConSE
from polyseme_experiments.baselines.words import Fast0Tag as Fast0Tag
