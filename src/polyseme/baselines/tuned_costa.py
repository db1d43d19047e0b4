"""COSTA as strong as we can make it: the baseline that a tagger has to beat.

Every label with training instances is predicted by kernel ridge regression; labels without any are
predicted from those predictions by a ridge regression that the label documents teach.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from polyseme._validation import IntArray, RandomState, as_generator, draw_seed
from polyseme.baselines.base import Baseline, Features, hidden_groups
from polyseme.baselines.transfer import ridge
from polyseme.metrics import mean_average_precision
from polyseme.published.mapping import InstanceMapper


class TunedCosta(Baseline):
    """Co-occurrence statistics for zero-shot classification, tuned.

    Parameters
    ----------
    penalties : sequence of float
        Candidates for the ridge penalty, as multiples of the number of documents.
    n_folds : int
        Folds of instances for out-of-fold predictions, and groups of seen labels that take turns
        as pseudo-unseen ones when the penalty is chosen.
    random_state : int, numpy Generator or None

    Attributes
    ----------
    penalty_ : float
        The chosen ridge penalty.

    References
    ----------
    T. Mensink, E. Gavves, C. Snoek: COSTA: Co-Occurrence Statistics for Zero-Shot Classification,
    CVPR 2014; our regression follows the variant that Sandouk & Chen compare with.
    """

    def __init__(
        self,
        penalties: Sequence[float] = (1e-4, 1e-3, 1e-2, 1e-1, 1.0),
        n_folds: int = 4,
        random_state: RandomState = None,
    ) -> None:
        self.penalties = penalties
        self.n_folds = n_folds
        self.random_state = random_state

    def _learn(self, X: Features, matrix: sp.csr_matrix, lessons: sp.csr_matrix) -> None:
        """Fit the label classifiers, choose the penalty, fit the label regression."""
        generator = as_generator(self.random_state)
        truth = np.asarray(matrix.toarray(), dtype=np.float64)
        self.direct_ = truth.any(axis=0)
        seed = draw_seed(generator)
        self.classifier_ = InstanceMapper(kind="kernel-ridge", random_state=seed)
        self.classifier_.fit(X, truth[:, self.direct_], self.groups_)
        taught = np.asarray(lessons.toarray(), dtype=np.float64)
        inputs = taught[:, self.direct_]
        self.penalty_ = self.penalties[0]
        if not self.direct_.all():
            folds = self._folds(self.n_folds, generator, len(truth))
            predicted = out_of_fold(self.classifier_, X, truth[:, self.direct_], folds)
            self.penalty_ = self._choose(predicted, truth[:, self.direct_], inputs, generator)
            self.regression_ = ridge(inputs, taught[:, ~self.direct_], self.penalty_)

    def _scores(self, X: Features) -> NDArray[np.float64]:
        """Predict seen labels from the features and the others from the seen ones."""
        scores = np.empty((X.shape[0], len(self.classes_)))
        predicted = self.classifier_.predict(X)
        scores[:, self.direct_] = predicted
        if not self.direct_.all():
            weights, intercept = self.regression_
            scores[:, ~self.direct_] = predicted @ weights + intercept
        return scores

    def _choose(
        self,
        predicted: NDArray[np.float64],
        truth: NDArray[np.float64],
        inputs: NDArray[np.float64],
        generator: np.random.Generator,
    ) -> float:
        """Choose the penalty that ranks instances best for labels made pseudo-unseen."""
        quality = np.zeros(len(self.penalties))
        for hidden in hidden_groups(truth.shape[1], self.n_folds, generator):
            for place, penalty in enumerate(self.penalties):
                weights, intercept = ridge(inputs[:, ~hidden], inputs[:, hidden], penalty)
                scores = predicted[:, ~hidden] @ weights + intercept
                quality[place] += mean_average_precision(truth[:, hidden].astype(bool), scores)
        return float(self.penalties[int(np.argmax(quality))])


def out_of_fold(
    mapper: InstanceMapper, X: Features, targets: NDArray[np.float64], folds: IntArray
) -> NDArray[np.float64]:
    """Predict each instance's targets (n, d) by a kernel ridge mapper that has not seen it.

    Parameters
    ----------
    mapper : InstanceMapper
        A fitted one, which gives the settings.
    X : array or csr_matrix, shape (n, n_features)
    targets : float64 array, shape (n, d)
    folds : int64 array, shape (n,)
        With a single fold there is nobody to learn from: all predictions are 0.

    Returns
    -------
    float64 array, shape (n, d)
    """
    predicted = np.zeros_like(targets)
    for fold in np.unique(folds) if len(np.unique(folds)) > 1 else ():
        held = folds == fold
        one = InstanceMapper(kind="kernel-ridge", gamma=mapper.gamma_, penalty=mapper.penalty_)
        predicted[held] = one.fit(X[~held], targets[~held]).predict(X[held])
    return predicted
