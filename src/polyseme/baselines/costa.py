"""COSTA as strong as we can make it: the baseline that a tagger has to beat.

Every label with training instances is predicted by kernel ridge regression; labels without any are
predicted from those predictions by a ridge regression that the label documents teach.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from polyseme._validation import RandomState, as_generator, draw_seed
from polyseme.baselines.base import Baseline, Features
from polyseme.mapping import InstanceMapper
from polyseme.scoring import mean_average_precision


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
        self.classifier_.fit(X, truth[:, self.direct_])
        taught = np.asarray(lessons.toarray(), dtype=np.float64)
        inputs = taught[:, self.direct_]
        self.penalty_ = self.penalties[0]
        if not self.direct_.all():
            predicted = self._out_of_fold(X, truth[:, self.direct_], generator)
            self.penalty_ = self._choose(predicted, truth[:, self.direct_], inputs, generator)
            self.regression_ = _ridge(inputs, taught[:, ~self.direct_], self.penalty_)

    def _scores(self, X: Features) -> NDArray[np.float64]:
        """Predict seen labels from the features and the others from the seen ones."""
        scores = np.empty((X.shape[0], len(self.labels_)))
        predicted = self.classifier_.predict(X)
        scores[:, self.direct_] = predicted
        if not self.direct_.all():
            weights, intercept = self.regression_
            scores[:, ~self.direct_] = predicted @ weights + intercept
        return scores

    def _out_of_fold(
        self, X: Features, truth: NDArray[np.float64], generator: np.random.Generator
    ) -> NDArray[np.float64]:
        """Predict each training instance by classifiers that have not seen it."""
        settings = {name: getattr(self.classifier_, f"{name}_") for name in ("gamma", "penalty")}
        n_folds = min(self.n_folds, X.shape[0])
        folds = generator.permutation(X.shape[0]) % n_folds
        predicted = np.zeros_like(truth)
        for fold in range(n_folds) if n_folds > 1 else ():
            mapper = InstanceMapper(kind="kernel-ridge", **settings)
            mapper.fit(X[folds != fold], truth[folds != fold])
            predicted[folds == fold] = mapper.predict(X[folds == fold])
        return predicted

    def _choose(
        self,
        predicted: NDArray[np.float64],
        truth: NDArray[np.float64],
        inputs: NDArray[np.float64],
        generator: np.random.Generator,
    ) -> float:
        """Choose the penalty that ranks instances best for labels made pseudo-unseen."""
        groups = generator.permutation(truth.shape[1]) % self.n_folds
        quality = np.zeros(len(self.penalties))
        for group in range(self.n_folds):
            hidden = groups == group
            if hidden.all() or not hidden.any():
                continue
            for place, penalty in enumerate(self.penalties):
                weights, intercept = _ridge(inputs[:, ~hidden], inputs[:, hidden], penalty)
                scores = predicted[:, ~hidden] @ weights + intercept
                quality[place] += mean_average_precision(truth[:, hidden].astype(bool), scores)
        return float(self.penalties[int(np.argmax(quality))])


def _ridge(
    inputs: NDArray[np.float64], targets: NDArray[np.float64], penalty: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Ridge regression with an intercept; give weights (n_inputs, n_targets) and intercept."""
    mean_in, mean_out = inputs.mean(axis=0), targets.mean(axis=0)
    centred = inputs - mean_in
    gram = centred.T @ centred
    gram[np.diag_indices_from(gram)] += penalty * len(inputs)
    weights = np.linalg.solve(gram, centred.T @ (targets - mean_out))
    return weights, mean_out - mean_in @ weights
