"""Composition: a document lies at the sum of its labels' word vectors; all sums are searched.

In: features, documents and word vectors of a small vocabulary. Out: for every label the negative
distance of the nearest combination of labels that holds it.
"""

from __future__ import annotations

import numpy as np

from polyseme._validation import InputError, RandomState, check_number, first_few
from polyseme.baselines.base import Features, Mask, Matrix
from polyseme.baselines.words import WordBaseline, unit_rows
from polyseme.published.mapping import InstanceMapper
from polyseme.word_vectors import WordVectors

# So many labels are combined at once; the others are walked through one pattern at a time.
_LOW_LABELS = 12
_BLOCK_ROWS = 512
_TIE_BREAK = 1e-6


class Composition(WordBaseline):
    """Word-vector composition with an exhaustive search over label combinations.

    A document's point is the sum of its labels' vectors, scaled to length 1; kernel ridge
    regression leads from features to points. A label scores the negative distance between the
    instance's predicted point, scaled to length 1, and the nearest of the 2^n - 1 combinations of
    the n labels that holds it.

    Parameters
    ----------
    vectors : WordVectors, optional
        By default `WordVectors.find()`.
    max_labels : int
        Refuse vocabularies with more labels than this that have a vector. At most 24; each more
        doubles the time of `decision_function`.
    random_state : int, numpy Generator or None
        For the mapper's search of its settings.

    Attributes
    ----------
    n_combinations_ : int
        How many combinations are searched for each instance. `WordBaseline` lists further
        attributes.

    Notes
    -----
    All labels of the nearest combination are at the same distance, so a millionth of the cosine
    with the label's own vector is added to tell them apart; example MAP counts ties against a
    method. Instances without a label that has a vector teach nothing. Memory does not grow with
    the number of combinations.

    References
    ----------
    Y. Fu, Y. Yang, T. Hospedales, T. Xiang, S. Gong: Transductive Multi-label Zero-shot Learning,
    BMVC 2014 (its direct prediction, without the transductive step).
    """

    def __init__(
        self,
        vectors: WordVectors | None = None,
        max_labels: int = 16,
        random_state: RandomState = None,
    ) -> None:
        self.vectors = vectors
        self.max_labels = max_labels
        self.random_state = random_state

    def _check(self) -> None:
        """Raise unless the parameters are in their ranges."""
        check_number("max_labels", self.max_labels, owner="Composition", low=1, high=24, whole=True)

    def _fit_mapper(self, X: Features, truth: Mask, generator: np.random.Generator) -> None:
        """Refuse what cannot be searched; fit the way from features to composed points."""
        n_labels = int(self.known_.sum())
        self.n_combinations_ = 2**n_labels - 1
        if n_labels > self.max_labels:
            without = ""
            if self.without_vector_:
                without = (
                    f" ({len(self.without_vector_)} more have no vector and do not count: "
                    f"{first_few(self.without_vector_)})"
                )
            raise InputError(
                f"`Composition` compares every instance with all combinations of the labels, and "
                f"{n_labels} labels with a word vector{without} make 2^{n_labels} - 1 = "
                f"{self.n_combinations_:.3g} of them; keep at most `max_labels` = "
                f"{self.max_labels} labels, for example with `LabelCorpus.restrict`, or use ConSE "
                "or Fast0Tag."
            )
        points = unit_rows(truth.astype(np.float64) @ self.label_vectors_[self.direct_])
        placed = np.flatnonzero(points.any(axis=1))
        if not len(placed):
            raise InputError(
                "The labels' word vectors cancel out in every document given to `Composition`; "
                "pass other `vectors`."
            )
        self.mapper_ = InstanceMapper(kind="kernel-ridge", random_state=self.random_state)
        self.mapper_.fit(X[placed], points[placed], self._groups_of(placed))

    def _similarities(self, predicted: Matrix) -> Matrix:
        """Search all combinations for each instance."""
        points, vectors = unit_rows(predicted), self.label_vectors_[self.known_]
        scores = np.empty((len(points), len(self.classes_)))
        squares = (points**2).sum(axis=1, keepdims=True) + 1.0
        distances = np.sqrt(np.maximum(squares - 2.0 * _best_cosines(points, vectors), 0.0))
        scores[:, self.known_] = _TIE_BREAK * (points @ vectors.T) - distances
        return scores


def _best_cosines(points: Matrix, vectors: Matrix) -> Matrix:
    """Give the best cosine of points (n, d) with a combination that holds each label."""
    # All 2^n_labels - 1 sums of the vectors (n_labels, d) are compared, each scaled to length 1; a
    # sum of length 0 has the cosine 0 with everything.
    n_low = min(len(vectors), _LOW_LABELS)
    high, sums = vectors[n_low:], np.zeros((1, vectors.shape[1]))
    for vector in vectors[:n_low]:  # bit i of a sum's number says whether it holds label i
        sums = np.concatenate([sums, sums + vector])
    best = np.full((len(points), len(vectors)), -1.0)
    for pattern in range(2 ** len(high)):
        chosen = (pattern >> np.arange(len(high))) & 1 == 1
        combined = unit_rows(sums + high[chosen].sum(axis=0))
        columns = n_low + np.flatnonzero(chosen)
        for start in range(0, len(points), _BLOCK_ROWS):
            block = best[start : start + _BLOCK_ROWS]
            cosines = points[start : start + _BLOCK_ROWS] @ combined.T
            block[:, columns] = np.maximum(block[:, columns], cosines.max(axis=1)[:, None])
            # Folding the upper half onto the lower one takes the last label out; work halves each
            # time. The empty combination is always in the lower half and never counts.
            for label in reversed(range(n_low)):
                with_label, without = cosines[:, 2**label :], cosines[:, : 2**label]
                np.maximum(block[:, label], with_label.max(axis=1), out=block[:, label])
                cosines = np.maximum(with_label, without)
    return best
