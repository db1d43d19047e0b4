"""Labels that turn up after everything was learned: placed by documents alone, nothing re-trained.

In: fitted experts and documents that hold the new labels. Out: probabilities of the new labels for
instances, from their seen labels and from their context codes, both in closed form.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from polyseme.experts.blending import as_probabilities, blend
from polyseme.experts.model import LabelExperts, Readings
from polyseme.solvers.ridge import RidgeSums

Matrix = NDArray[np.float64]

# On the squared weights of codes, as a multiple of the number of documents.
_CODE_PENALTY = 0.1
_BLOCK = 2048


class LateLabels:
    """Score labels that experts have never met.

    Parameters
    ----------
    experts : LabelExperts
        Fitted ones, which stay as they are.
    seen : csr_matrix, shape (m, n_seen)
        The experts' seen labels in known documents.
    late : csr_matrix, shape (m, n_late)
        The new labels in the same documents.
    """

    def __init__(self, experts: LabelExperts, seen: sp.csr_matrix, late: sp.csr_matrix) -> None:
        self.experts = experts
        given, wanted = sp.csr_matrix(seen, dtype=np.float64), sp.csr_matrix(late, dtype=np.float64)
        counts = np.asarray(wanted.sum(axis=0)).ravel()
        self.priors = (counts + 0.5) / (given.shape[0] + 1)
        self.by_labels = RidgeSums.of(given, wanted).solve(experts.penalty_)
        codes = np.concatenate(
            [
                experts.documents_.codes(given[start : start + _BLOCK].toarray())
                for start in range(0, given.shape[0], _BLOCK)
            ]
        )
        self.by_codes = RidgeSums.of(codes, np.asarray(wanted.toarray())).solve(_CODE_PENALTY)

    def logits(self, readings: Readings) -> Matrix:
        """Give the logits of the new labels, (n, n_late).

        Parameters
        ----------
        readings : dict
            What `LabelExperts.readings` says about instances.
        """
        labels = np.clip(readings["kernel"], 0.0, 1.0) @ self.by_labels[0] + self.by_labels[1]
        codes = self.experts.documents_.codes(readings["network"])
        context = codes @ self.by_codes[0] + self.by_codes[1]
        return blend([as_probabilities(one, self.priors) for one in (labels, context)])
