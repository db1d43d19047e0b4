"""Labels that turn up after everything was learned: placed by documents alone, nothing re-trained.

In: fitted experts and documents that hold the new labels. Out: probabilities of the new labels for
instances, from their seen labels and from their context codes, both in closed form.

Documents that were there before a label turned up could not hold it, so their silence says nothing
about how common it is; nor do documents that were added because they hold it. Until some hundred
others have been counted, new labels are taken to be about as common as labels are.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from polyseme.experts.blending import as_probabilities, blend, label_shifts
from polyseme.experts.levels import Readings
from polyseme.experts.model import LabelExperts
from polyseme.solvers.ridge import RidgeSums

Matrix = NDArray[np.float64]

# On the squared weights of codes, as a multiple of the number of documents.
CODE_PENALTY = 0.1
# The least penalty of a label that one document holds; that of others falls with their number.
RARE = 0.05
# Labels of two documents have a long way to where labels usually are.
_FARTHEST = 20.0
# So many documents what is usual is worth, beside those counted.
USUAL = 400.0
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
    n_fresh : int
        How many of the documents could hold the new labels.

    Attributes
    ----------
    frequencies : float64 array, shape (n_late,)
        How often instances are expected to have each label.
    shifts : float64 array, shape (n_late,)
        What brings the experts' reference instances to these.
    """

    def __init__(
        self,
        experts: LabelExperts,
        seen: sp.csr_matrix,
        late: sp.csr_matrix,
        n_fresh: int,
    ) -> None:
        self.experts = experts
        given, wanted = sp.csr_matrix(seen, dtype=np.float64), sp.csr_matrix(late, dtype=np.float64)
        counts = np.asarray(wanted.sum(axis=0), dtype=np.float64).ravel()
        self.priors = (counts + 0.5) / (given.shape[0] + 1)
        self.by_labels = self._solve(RidgeSums.of(given, wanted), counts)
        codes = np.concatenate(
            [
                experts.documents_.codes(given[start : start + _BLOCK].toarray())
                for start in range(0, given.shape[0], _BLOCK)
            ]
        )
        self.by_codes = RidgeSums.of(codes, np.asarray(wanted.toarray())).solve(CODE_PENALTY)
        holding = int(np.count_nonzero(np.diff(wanted.indptr)))
        fresh = max(n_fresh, holding)
        self.frequencies = late_frequencies(counts, holding, fresh, experts.typical_frequency)
        self.shifts = np.zeros(len(counts))
        if len(experts.reference_weights_):
            self.shifts = label_shifts(
                self._blended(experts.reference_),
                experts.reference_weights_,
                self.frequencies,
                farthest=_FARTHEST,
            )

    def _solve(self, sums: RidgeSums, counts: Matrix) -> tuple[Matrix, Matrix]:
        """Solve the regression from seen labels, the stronger smoothed the rarer a label is."""
        least = np.log2(np.maximum(self.experts.penalty_, RARE / np.maximum(counts, 1)))
        weights = np.empty((len(sums.inputs), len(counts)))
        intercept = np.empty(len(counts))
        for power in np.unique(np.rint(least)):
            some = np.rint(least) == power
            found, constant = sums.solve(float(2.0**power))
            weights[:, some], intercept[some] = found[:, some], constant[some]
        return weights, intercept

    def logits(self, readings: Readings) -> Matrix:
        """Give the logits of the new labels, (n, n_late).

        Parameters
        ----------
        readings : dict
            What `LabelExperts.readings` says about instances.
        """
        return self._blended(readings) + self.shifts

    def _blended(self, readings: Readings) -> Matrix:
        """Blend what seen labels and codes say, (n, n_late)."""
        labels = np.clip(readings["kernel"], 0.0, 1.0) @ self.by_labels[0] + self.by_labels[1]
        codes = self.experts.documents_.codes(readings["network"])
        context = codes @ self.by_codes[0] + self.by_codes[1]
        both = [as_probabilities(one, self.priors) for one in (labels, context)]
        return blend(both, self.experts.slopes[1])


def late_frequencies(counts: Matrix, holding: int, fresh: int, typical: float) -> Matrix:
    """Say how often instances are expected to have new labels.

    Parameters
    ----------
    counts : float64 array, shape (n_late,)
        Documents that hold each.
    holding : int
        Documents that hold some.
    fresh : int
        Documents that could hold some. The more of them do not, the more they count as a sample of
        what there is, and the less as examples that were picked.
    typical : float
        How common labels are.

    Returns
    -------
    float64 array, shape (n_late,)
        Above 0 and below 1.
    """
    sampled = (counts + USUAL * typical) / (fresh + USUAL)
    share = 1 - holding / max(fresh, 1)
    return np.asarray(share * sampled + (1 - share) * typical)
