"""The floor: every instance gets the labels that most documents hold."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from polyseme.baselines.base import Baseline, Features


class Popularity(Baseline):
    """Rank labels by the number of documents that hold them, whatever the instance."""

    def _learn(self, X: Features, matrix: sp.csr_matrix, lessons: sp.csr_matrix) -> None:
        """Note each label's share of the occurrences."""
        self.shares_ = self.n_occurrences_ / max(int(self.n_occurrences_.sum()), 1)

    def _scores(self, X: Features) -> NDArray[np.float64]:
        """Give every instance the same scores."""
        return np.tile(self.shares_, (X.shape[0], 1))
