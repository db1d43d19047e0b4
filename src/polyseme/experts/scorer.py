"""Experts under the tagger's labels: those they learned, and those that turned up later.

In: fitted experts, the names of their columns, and the documents that are known now. Out:
probabilities of every label that the tagger ranks, and tag sets.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from polyseme._validation import InputError, IntArray
from polyseme.experts.blending import sigmoid
from polyseme.experts.instances import Features
from polyseme.experts.late import LateLabels
from polyseme.experts.model import LabelExperts
from polyseme.known import KnownConcepts

Matrix = NDArray[np.float64]


class ExpertScorer:
    """Probabilities of all labels that a tagger knows at the moment.

    Parameters
    ----------
    experts : LabelExperts
        Fitted ones.
    labels : sequence of str
        Names of their columns.
    known : KnownConcepts
        The labels to score, and the documents that tell about those the experts never met.
    """

    def __init__(self, experts: LabelExperts, labels: Sequence[str], known: KnownConcepts) -> None:
        self.experts = experts
        self.labels = tuple(labels)
        self.n_labels = len(known.labels)
        place = {label: column for column, label in enumerate(self.labels)}
        self._at: IntArray = np.array([place.get(label, -1) for label in known.labels], np.int64)
        self._known = np.asarray(known.matrix.sum(axis=0)).ravel() > 0
        self._late: LateLabels | None = None
        unmet = np.flatnonzero(self._at < 0)
        if len(unmet):
            here = {label: column for column, label in enumerate(known.labels)}
            columns = [here.get(self.labels[seen], -1) for seen in experts.seen_]
            if min(columns, default=0) < 0:
                raise InputError(
                    "A label that instances taught has gone with its documents; add them again, or "
                    "fit anew."
                )
            self._late = LateLabels(experts, known.matrix[:, columns], known.matrix[:, unmet])

    def probabilities(self, X: Features, tags: Matrix | None = None) -> Matrix:
        """Give the probability of every label.

        Parameters
        ----------
        X : array or csr_matrix, shape (n, n_features)
        tags : float64 array, shape (n, n_labels), optional
            1 where an instance is known to have a label; its probability is then 1.

        Returns
        -------
        float64 array, shape (n, n_labels)
        """
        readings = self.experts.readings(X)
        given = None
        if tags is not None:
            given = np.zeros((X.shape[0], len(self.labels)))
            given[:, self._at[self._at >= 0]] = tags[:, self._at >= 0]
        logits = np.empty((X.shape[0], self.n_labels))
        logits[:, self._at >= 0] = self.experts.logits_of(readings, given)[
            :, self._at[self._at >= 0]
        ]
        if self._late is not None:
            logits[:, self._at < 0] = self._late.logits(readings)
        # A label whose documents were all taken away is not suggested any more.
        found = np.where(self._known, sigmoid(logits), 0.0)
        return found if tags is None else np.where(tags > 0, 1.0, found)
