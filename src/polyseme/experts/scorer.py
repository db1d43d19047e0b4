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
from polyseme.experts.named import NamedLabels, NamedScorer
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
    named : NamedLabels, optional
        Labels to score by their names alone, after the known ones.
    n_taught : int
        Documents that were known when the experts learned; others came later.
    """

    def __init__(
        self,
        experts: LabelExperts,
        labels: Sequence[str],
        known: KnownConcepts,
        named: NamedLabels | None = None,
        *,
        n_taught: int,
    ) -> None:
        self.experts = experts
        self.labels = tuple(labels)
        self._named: NamedScorer | None = None
        n_named = 0
        if named is not None and named.labels:
            self._named, n_named = NamedScorer(experts, named), len(named.labels)
        self.n_labels = len(known.labels) + n_named
        place = {label: column for column, label in enumerate(self.labels)}
        # The experts' column of each label: -1 for a late one, -2 for a named one.
        at = [place.get(label, -1) for label in known.labels] + n_named * [-2]
        self._at: IntArray = np.array(at, dtype=np.int64)
        self._known = np.ones(self.n_labels, dtype=bool)
        self._known[: len(known.labels)] = np.asarray(known.matrix.sum(axis=0)).ravel() > 0
        self._late: LateLabels | None = None
        unmet = np.flatnonzero(self._at == -1)
        if len(unmet):
            here = {label: column for column, label in enumerate(known.labels)}
            columns = [here.get(self.labels[seen], -1) for seen in experts.seen_]
            if min(columns, default=0) < 0:
                raise InputError(
                    "A label that instances taught has gone with its documents; add them again, or "
                    "fit anew."
                )
            self._late = LateLabels(
                experts,
                known.matrix[:, columns],
                known.matrix[:, unmet],
                n_fresh=known.matrix.shape[0] - n_taught,
            )

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
            logits[:, self._at == -1] = self._late.logits(readings)
        if self._named is not None:
            logits[:, self._at == -2] = self._named.logits(readings)
        # A label whose documents were all taken away is not suggested any more.
        found = np.where(self._known, sigmoid(logits), 0.0)
        return found if tags is None else np.where(tags > 0, 1.0, found)

    def thresholds(self, precision: float) -> Matrix:
        """Say how likely each label must be for a share of them to be true, (n_labels,)."""
        found = np.full(self.n_labels, self.experts.unseen_threshold(precision))
        met = self._at >= 0
        found[met] = self.experts.thresholds(precision)[self._at[met]]
        return found
