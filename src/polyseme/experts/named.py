"""Labels that are known by their names alone: no document holds them, but words have vectors.

In: fitted experts and unit vectors of labels' names. Out: logits of the named labels, interpolated
in the space of words from those of seen labels. Where a label has documents these say more, and
words are not asked (results/default-model.md has the figures).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from polyseme._validation import InputError, first_few
from polyseme.experts.blending import label_shifts
from polyseme.experts.levels import Readings
from polyseme.experts.model import LabelExperts
from polyseme.words import WordVectors

Matrix = NDArray[np.float64]

# How fast likeness falls with the cosine of two names, and how far each seen label is trusted;
# chosen on nested splits of training halves.
SPREAD = 0.3
NOISE = 0.3


@dataclass(frozen=True)
class NamedLabels:
    """Labels by name, and which seen labels they are like.

    Attributes
    ----------
    labels : tuple of str
    weights : float64 array, shape (n_named, n_seen)
        What each seen label's deviation from its mean counts.
    """

    labels: tuple[str, ...]
    weights: Matrix

    @classmethod
    def place(cls, labels: Sequence[str], seen: Sequence[str], vectors: WordVectors) -> NamedLabels:
        """Place labels among the seen ones by their names.

        Parameters
        ----------
        labels : sequence of str
            Each must have a word with a vector.
        seen : sequence of str, length n_seen
            Those without a vector count nothing.
        vectors : WordVectors

        Returns
        -------
        NamedLabels
        """
        wanted, known = vectors.label_vectors(labels)
        if not known.all():
            without = [label for label, has in zip(labels, known, strict=True) if not has]
            raise InputError(
                f"There are no word vectors for {first_few(without)}; such labels need documents."
            )
        given, has = vectors.label_vectors(seen)
        if not has.any():
            raise InputError("None of the seen labels has a word vector; give other vectors.")
        likeness = np.exp((given[has] @ given[has].T - 1) / SPREAD)
        across = np.exp((given[has] @ wanted.T - 1) / SPREAD)
        weights = np.zeros((len(labels), len(seen)))
        weights[:, has] = np.linalg.solve(likeness + NOISE * np.eye(has.sum()), across).T
        return cls(tuple(labels), weights)

    def select(self, kept: Sequence[int]) -> NamedLabels:
        """Give some of the labels, by their places."""
        return NamedLabels(tuple(self.labels[place] for place in kept), self.weights[list(kept)])

    def together(self, other: NamedLabels) -> NamedLabels:
        """Give these labels and others."""
        return NamedLabels(
            self.labels + other.labels, np.concatenate([self.weights, other.weights])
        )


class NamedScorer:
    """Logits of named labels.

    Parameters
    ----------
    experts : LabelExperts
        Fitted ones, which stay as they are.
    named : NamedLabels
    """

    def __init__(self, experts: LabelExperts, named: NamedLabels) -> None:
        self.experts = experts
        self.named = named
        weights = experts.reference_weights_
        if not len(weights):
            raise InputError("Labels by name need more training instances than this tagger had.")
        reference = experts.seen_logits(experts.reference_)
        self._means = weights @ reference / weights.sum()
        # Nobody has counted such labels: they are taken to be as common as labels are.
        usual = np.full(len(named.labels), experts.typical_frequency)
        self._shifts = label_shifts(self._deviations(reference), weights, usual)

    def logits(self, readings: Readings) -> Matrix:
        """Give the logits of the named labels, (n, n_named); see `LabelExperts.readings`."""
        return self._deviations(self.experts.seen_logits(readings)) + self._shifts

    def _deviations(self, logits: Matrix) -> Matrix:
        """Interpolate how far seen labels are from their means, (n, n_named)."""
        return np.asarray((logits - self._means) @ self.named.weights.T)
