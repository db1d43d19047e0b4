"""The floor: labels that most documents hold, whatever the instance, and scores by chance."""

from __future__ import annotations

from hashlib import blake2b

import numpy as np
import scipy.sparse as sp

from polyseme._validation import RandomState, as_generator, draw_seed
from polyseme.baselines.base import Baseline, Features, Matrix


class Popularity(Baseline):
    """Rank labels by the number of documents that hold them, whatever the instance."""

    def _fit(self, X: Features, Y: sp.csr_matrix, Z: sp.csr_matrix) -> None:
        """Note each label's share of the occurrences."""
        self.shares_ = self.n_occurrences_ / max(int(self.n_occurrences_.sum()), 1)

    def _scores(self, X: Features) -> Matrix:
        """Give every instance the same scores."""
        return np.tile(self.shares_, (X.shape[0], 1))


class Chance(Baseline):
    """Score labels at random.

    An instance's scores depend on the seed and its own features only, not on which other instances
    are asked about; instances with the same features get the same scores.

    Parameters
    ----------
    random_state : int, numpy Generator or None

    Attributes
    ----------
    seed_ : int
        What the scores are drawn from, together with the features.
    """

    def __init__(self, random_state: RandomState = None) -> None:
        self.random_state = random_state

    def _fit(self, X: Features, Y: sp.csr_matrix, Z: sp.csr_matrix) -> None:
        """Draw the seed."""
        self.seed_ = draw_seed(as_generator(self.random_state))

    def _scores(self, X: Features) -> Matrix:
        """Draw scores between 0 and 1 for each instance."""
        scores = np.empty((X.shape[0], len(self.classes_)))
        for number in range(len(scores)):
            row = X[number].toarray() if sp.issparse(X) else X[number]
            # Adding 0 makes -0.0 and 0.0, which are equal, the same bytes.
            digest = blake2b(np.ascontiguousarray(row + 0.0).tobytes(), digest_size=16).digest()
            words = np.frombuffer(digest, dtype="<u4").tolist()
            scores[number] = np.random.default_rng([self.seed_, *words]).random(scores.shape[1])
        return scores
