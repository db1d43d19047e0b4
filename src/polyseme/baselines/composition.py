"""Composition: a document lies at the sum of its labels' word vectors; all sums are searched.

In: features, documents and word vectors of a small vocabulary. Out: for every label the negative
distance of the nearest combination of labels that holds it.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from polyseme._validation import InputError, RandomState, check_number, first_few
from polyseme.baselines.base import Features
from polyseme.baselines.word_base import WordBaseline
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
        How many combinations are searched for each instance.
    label_vectors_ : float64 array, shape (n_labels, d)
        Unit vectors; zeros for labels without one.
    known_ : bool array, shape (n_labels,)
        Whether a label has a vector.
    without_vector_ : tuple of str
        Labels none of whose words is known; they score minus infinity, below all others.

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

    def _learn(self, X: Features, matrix: sp.csr_matrix, lessons: sp.csr_matrix) -> None:
        """Refuse what cannot be searched; fit the way from features to composed points."""
        check_number("max_labels", self.max_labels, owner="Composition", low=1, high=24, whole=True)
        self._look_up()
        n_labels = int(self.known_.sum())
        self.n_combinations_ = 2**n_labels - 1
        if n_labels > self.max_labels:
            raise self._too_many(n_labels)
        truth, used = self._usable(matrix)
        points = unit_rows(truth @ self.label_vectors_[used])
        taught = np.flatnonzero(points.any(axis=1))
        if not len(taught):
            raise InputError(
                "The labels' word vectors cancel out in every document given to `Composition`; "
                "pass other `vectors`."
            )
        self.mapper_ = InstanceMapper(kind="kernel-ridge", random_state=self.random_state)
        self.mapper_.fit(X[taught], points[taught], self._groups_of(taught))

    def _scores(self, X: Features) -> NDArray[np.float64]:
        """Search all combinations for each instance."""
        points = unit_rows(self.mapper_.predict(X))
        cosines = best_cosines(points, self.label_vectors_[self.known_])
        scores = np.empty((len(points), len(self.classes_)))
        squares = (points**2).sum(axis=1, keepdims=True)
        distances = np.sqrt(np.maximum(squares + 1.0 - 2.0 * cosines, 0.0))
        alone = points @ self.label_vectors_[self.known_].T
        scores[:, self.known_] = _TIE_BREAK * alone - distances
        return self._put_unknown_last(scores)

    def _too_many(self, n_labels: int) -> InputError:
        """Build the error for a vocabulary that cannot be searched."""
        without = ""
        if self.without_vector_:
            without = (
                f" ({len(self.without_vector_)} more have no vector and do not count: "
                f"{first_few(self.without_vector_)})"
            )
        return InputError(
            f"`Composition` compares every instance with all combinations of the labels, and "
            f"{n_labels} labels with a word vector{without} make 2^{n_labels} - 1 = "
            f"{self.n_combinations_:.3g} of them; keep at most `max_labels` = {self.max_labels} "
            "labels, for example with `LabelCorpus.restrict`, or use ConSE or Fast0Tag."
        )


def unit_rows(points: NDArray[np.float64]) -> NDArray[np.float64]:
    """Scale each row to length 1; a row of length 0 (to rounding) becomes zeros."""
    lengths = np.linalg.norm(points, axis=1, keepdims=True)
    return np.asarray(np.divide(points, lengths, out=np.zeros_like(points), where=lengths > 1e-12))


def best_cosines(points: NDArray[np.float64], vectors: NDArray[np.float64]) -> NDArray[np.float64]:
    """Give each label the best cosine of a point with a combination that holds the label.

    Parameters
    ----------
    points : float64 array, shape (n, d)
        Of length 1.
    vectors : float64 array, shape (n_labels, d)
        All 2^n_labels - 1 sums of their rows are compared, each scaled to length 1; a sum of
        length 0 has the cosine 0 with everything.

    Returns
    -------
    float64 array, shape (n, n_labels)
    """
    n_low = min(len(vectors), _LOW_LABELS)
    low, high = _sums(vectors[:n_low]), vectors[n_low:]
    best = np.full((len(points), len(vectors)), -1.0)
    for pattern in range(2 ** len(high)):
        chosen = (pattern >> np.arange(len(high))) & 1 == 1
        combined = unit_rows(low + high[chosen].sum(axis=0))
        for start in range(0, len(points), _BLOCK_ROWS):
            block = slice(start, start + _BLOCK_ROWS)
            _raise_best(best[block], points[block] @ combined.T, n_low, chosen)
    return best


def _raise_best(
    best: NDArray[np.float64], cosines: NDArray[np.float64], n_low: int, chosen: NDArray[np.bool_]
) -> None:
    """Raise each label's best cosine, in place, to those of the combinations that hold it."""
    if chosen.any():
        columns = n_low + np.flatnonzero(chosen)
        best[:, columns] = np.maximum(best[:, columns], cosines.max(axis=1)[:, None])
    # Folding the upper half onto the lower one takes the last label out; work halves each time.
    # The empty combination is always in the lower half and never counts.
    rest = cosines
    for label in reversed(range(n_low)):
        half = 2**label
        with_label, without = rest[:, half:], rest[:, :half]
        np.maximum(best[:, label], with_label.max(axis=1), out=best[:, label])
        rest = np.maximum(with_label, without)


def _sums(vectors: NDArray[np.float64]) -> NDArray[np.float64]:
    """Give the sums of all subsets of the rows, (2^n, d); bit i of the row number says row i."""
    sums = np.zeros((1, vectors.shape[1]))
    for vector in vectors:
        sums = np.concatenate([sums, sums + vector])
    return sums
