"""COSTA: labels that instances carry are classified, others follow from what occurs with them.

In: features, labels of instances and label sets. Out: scores of all labels; as the paper ran it
(`Costa`), and as strong as we can make it (`TunedCosta`), the baseline that a tagger has to beat.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import scipy.sparse as sp

from polyseme._estimator import copy_of
from polyseme._folds import fold_numbers
from polyseme._validation import (
    InputError,
    IntArray,
    RandomState,
    as_generator,
    check_fitted,
    check_option,
    draw_seed,
    first_few,
)
from polyseme.baselines.base import (
    Baseline,
    Features,
    Mask,
    Matrix,
    best_candidate,
    counts_of,
    out_of_fold,
)
from polyseme.baselines.classifiers import SeenClassifiers
from polyseme.corpus import normalize_label
from polyseme.metrics import mean_average_precision
from polyseme.published.mapping import InstanceMapper

TRANSFERS = ("regression", "normalised", "dice", "square-root")
PENALTIES = (1e-3, 1e-4, 1e-2, 1e-1, 1.0)

_N_FOLDS = 3
_FLOOR = 1e-6


class Costa(Baseline):
    """Co-occurrence statistics for zero-shot classification, as published.

    Parameters
    ----------
    transfer : {"regression", "normalised", "dice", "square-root"}
        How probabilities of seen labels become those of unseen ones: by a ridge regression of
        unseen on seen labels over the label sets (what the paper ran), or as their mean weighted
        by a statistic of co-occurrence: with c the counts, z unseen and k seen, c_zk / c_zz,
        c_zk / (c_zz + c_kk) or sqrt(c_zk).
    use_priors : bool
        Whether scores are divided by their sum over the labels and multiplied by each label's
        share of the label sets (in the paper: P(τ|x) ∝ L(x|τ) / Σ L(x|τ') · P(τ)). The product is
        not normalised again, or the sum would cancel.
    classifiers : SeenClassifiers, optional
        The classifiers of the seen labels; by default `SeenClassifiers()`.
    fit_classifiers : bool
        Whether `fit` learns a copy of `classifiers`. False takes them as they are, fitted on the
        same instances, so that several transfers can share them.
    random_state : int, numpy Generator or None
        Seeds the folds, and the classifiers where they have no seed of their own.

    Attributes
    ----------
    classifiers_ : SeenClassifiers
    weights_ : float64 array, shape (n_seen, n_unseen)
    intercept_ : float64 array, shape (n_unseen,)
    penalty_ : float or None
        For "regression": the ridge penalty with the smallest squared error on held-out label sets,
        as a multiple of their number.
    priors_ : float64 array, shape (n_labels,)
        Share of the label sets with each label.

    Notes
    -----
    Scores lie in [1e-6, 1] before priors are applied. Oov labels are ignored, as in the paper:
    their score is 0, the lowest score.

    References
    ----------
    T. Mensink, E. Gavves, C. Snoek: COSTA: Co-Occurrence Statistics for Zero-Shot Classification,
    CVPR 2014; U. Sandouk, K. Chen: Multi-Label Zero-Shot Learning via Concept Embedding, 2016.
    """

    def __init__(
        self,
        transfer: str = "regression",
        use_priors: bool = True,
        classifiers: SeenClassifiers | None = None,
        fit_classifiers: bool = True,
        random_state: RandomState = None,
    ) -> None:
        self.transfer = transfer
        self.use_priors = use_priors
        self.classifiers = classifiers
        self.fit_classifiers = fit_classifiers
        self.random_state = random_state

    def _fit(self, X: Features, Y: sp.csr_matrix, Z: sp.csr_matrix) -> None:
        """Fit or take the classifiers, then learn the way from seen to unseen labels."""
        check_option("transfer", self.transfer, TRANSFERS, owner=type(self).__name__)
        generator = as_generator(self.random_state)
        seed = draw_seed(generator)
        if self.fit_classifiers:
            self.classifiers_ = copy_of(self.classifiers or SeenClassifiers())
            if self.classifiers_.random_state is None:
                self.classifiers_.set_params(random_state=seed)
            self.classifiers_.fit_matrix(X, Y, self.classes_.tolist(), self.groups_)
        else:
            self.classifiers_ = self._given_classifiers()
        self._seen = np.flatnonzero(self.kinds_ == "seen")
        self._unseen = np.flatnonzero(self.kinds_ == "unseen")
        self._columns = self._classifier_columns(Y)
        self.priors_ = np.asarray(Z.mean(axis=0)).ravel()
        self.penalty_: float | None = None
        if self.transfer != "regression" or not len(self._unseen) or not len(self._seen):
            statistic = "normalised" if self.transfer == "regression" else self.transfer
            self.weights_ = _transfer_weights(Z, self._seen, self._unseen, statistic)
            self.intercept_ = np.zeros(len(self._unseen))
            return
        inputs = np.asarray(Z[:, self._seen].toarray(), dtype=np.float64)
        targets = np.asarray(Z[:, self._unseen].toarray(), dtype=np.float64)
        folds = fold_numbers(len(inputs), _N_FOLDS, generator, self.label_set_groups_)
        self.penalty_ = _choose_penalty(inputs, targets, PENALTIES, folds)
        self.weights_, self.intercept_ = ridge(inputs, targets, self.penalty_)

    def _scores(self, X: Features) -> Matrix:
        """Turn probabilities of seen labels into scores of all but the oov labels."""
        likely = self.classifiers_.predict_proba(X)[:, self._columns]
        scores = np.zeros((X.shape[0], len(self.classes_)))
        scores[:, self._seen] = np.clip(likely, _FLOOR, 1.0)
        scores[:, self._unseen] = np.clip(likely @ self.weights_ + self.intercept_, _FLOOR, 1.0)
        if self.use_priors:
            totals = scores.sum(axis=1, keepdims=True)
            scores *= self.priors_ / np.where(totals > 0, totals, 1.0)
        return scores

    def _given_classifiers(self) -> SeenClassifiers:
        """Take the classifiers as they are, or raise."""
        if self.classifiers is None:
            raise InputError("`fit_classifiers=False` needs fitted `classifiers`; give them.")
        check_fitted(self.classifiers, "slope_")
        if self.classifiers.n_features_in_ != self.n_features_in_:
            raise InputError(
                f"`classifiers` of `Costa` were fitted with {self.classifiers.n_features_in_} "
                f"features but `X` has {self.n_features_in_}; fit them on the same instances."
            )
        return self.classifiers

    def _classifier_columns(self, Y: sp.csr_matrix) -> IntArray:
        """Find the classifiers' columns for the seen labels, or raise when labels differ."""
        names = self.classifiers_.classes_.tolist()
        column_of = {normalize_label(name): column for column, name in enumerate(names)}
        if len(column_of) < len(names):  # spellings are told apart
            column_of = {name: column for column, name in enumerate(names)}
        keys = [name if name in column_of else normalize_label(name) for name in self.classes_]
        carried = {keys[column] for column in np.flatnonzero(counts_of(Y))}
        if differing := sorted(carried ^ set(column_of)):
            raise InputError(
                "`classifiers` of `Costa` and the instances differ in the labels carried: "
                f"{first_few(differing)}; fit them on the same instances."
            )
        return np.array([column_of[keys[column]] for column in self._seen], dtype=np.int64)


class TunedCosta(Baseline):
    """Co-occurrence statistics for zero-shot classification, tuned.

    Every label with training instances is predicted by kernel ridge regression; labels without any
    are predicted from those predictions by a ridge regression over the label sets.

    Parameters
    ----------
    penalties : sequence of float
        Candidates for the ridge penalty, as multiples of the number of label sets.
    n_folds : int
        Folds of instances for out-of-fold predictions, and groups of seen labels that take turns
        as pseudo-unseen ones when the penalty is chosen.
    random_state : int, numpy Generator or None

    Attributes
    ----------
    penalty_ : float
        The chosen ridge penalty.
    direct_ : bool array, shape (n_labels,)
        The labels that instances carry.
    regression_ : tuple of two float64 arrays, shapes (n_direct, n_others) and (n_others,)
        Weights and intercepts of the other labels, where there are some.

    References
    ----------
    As `Costa`; our regression follows the variant that Sandouk & Chen compare with.
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

    def _fit(self, X: Features, Y: sp.csr_matrix, Z: sp.csr_matrix) -> None:
        """Fit the label classifiers, choose the penalty, fit the label regression."""
        generator = as_generator(self.random_state)
        self.direct_ = counts_of(Y) > 0
        truth = np.asarray(Y[:, self.direct_].toarray(), dtype=np.float64)
        seed = draw_seed(generator)
        self.classifier_ = InstanceMapper(kind="kernel-ridge", random_state=seed)
        self.classifier_.fit(X, truth, self.groups_)
        self.penalty_ = self.penalties[0]
        if self.direct_.all():
            return
        sets = np.asarray(Z.toarray(), dtype=np.float64)
        inputs = sets[:, self.direct_]
        folds = self._folds(self.n_folds, generator, len(truth))
        predicted = out_of_fold(self.classifier_, X, truth, folds)

        def qualities(hidden: Mask) -> list[float]:
            found = []
            for penalty in self.penalties:
                weights, intercept = ridge(inputs[:, ~hidden], inputs[:, hidden], penalty)
                scores = predicted[:, ~hidden] @ weights + intercept
                found.append(mean_average_precision(truth[:, hidden].astype(bool), scores))
            return found

        n_labels = truth.shape[1]
        self.penalty_ = float(
            best_candidate(self.penalties, qualities, n_labels, self.n_folds, generator)
        )
        self.regression_ = ridge(inputs, sets[:, ~self.direct_], self.penalty_)

    def _scores(self, X: Features) -> Matrix:
        """Predict seen labels from the features and the others from the seen ones."""
        scores = np.empty((X.shape[0], len(self.classes_)))
        predicted = self.classifier_.predict(X)
        scores[:, self.direct_] = predicted
        if not self.direct_.all():
            weights, intercept = self.regression_
            scores[:, ~self.direct_] = predicted @ weights + intercept
        return scores


def _transfer_weights(Z: sp.csr_matrix, seen: IntArray, unseen: IntArray, statistic: str) -> Matrix:
    """Weigh seen labels by what they have in common with each unseen one, (n_seen, n_unseen)."""
    sets, sizes = Z.astype(np.float64), counts_of(Z).astype(np.float64)
    shared = (sets[:, seen].T @ sets[:, unseen]).toarray()
    if statistic == "normalised":
        weights = shared / np.maximum(sizes[unseen], 1.0)
    elif statistic == "dice":
        weights = shared / np.maximum(sizes[seen][:, None] + sizes[unseen], 1.0)
    else:
        weights = np.sqrt(shared)
    totals = weights.sum(axis=0)
    return np.asarray(weights / np.where(totals > 0, totals, 1.0))


def ridge(inputs: Matrix, targets: Matrix, penalty: float) -> tuple[Matrix, Matrix]:
    """Fit a ridge regression with an intercept.

    Parameters
    ----------
    inputs : float64 array, shape (m, n_inputs)
    targets : float64 array, shape (m, n_targets)
    penalty : float
        As a multiple of m.

    Returns
    -------
    weights : float64 array, shape (n_inputs, n_targets)
    intercept : float64 array, shape (n_targets,)
    """
    mean_in, mean_out = inputs.mean(axis=0), targets.mean(axis=0)
    centred = inputs - mean_in
    gram = centred.T @ centred
    gram[np.diag_indices_from(gram)] += penalty * len(inputs)
    weights = np.linalg.solve(gram, centred.T @ (targets - mean_out))
    return weights, mean_out - mean_in @ weights


def _choose_penalty(
    inputs: Matrix, targets: Matrix, penalties: Sequence[float], folds: IntArray
) -> float:
    """Give the first penalty of `ridge` with the least squared error over folds (m,) held out."""
    errors = np.zeros(len(penalties))
    for fold in range(int(folds.max()) + 1) if folds.any() else ():
        out = folds == fold
        for place, penalty in enumerate(penalties):
            weights, intercept = ridge(inputs[~out], targets[~out], penalty)
            errors[place] += ((inputs[out] @ weights + intercept - targets[out]) ** 2).sum()
    return float(penalties[int(np.argmin(errors))])
