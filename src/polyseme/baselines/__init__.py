"""What the tagger is compared with, behind the same contract: fit, score_labels, rank."""

from polyseme.baselines.costa import TunedCosta
from polyseme.baselines.popularity import Popularity

__all__ = ["Popularity", "TunedCosta"]
