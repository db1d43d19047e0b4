"""COSTA as the paper ran it: what the paper's method was compared with.

Every label that instances carry gets a support vector machine with Platt's probabilities; labels
without instances get what co-occurrence in the semantics documents makes of these probabilities.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

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
from polyseme.baselines.base import Baseline, Features
from polyseme.baselines.classifiers import SeenClassifiers
from polyseme.baselines.transfer import (
    STATISTICS,
    choose_penalty,
    cooccurrences,
    ridge,
    transfer_weights,
)
from polyseme.corpus import normalize_label

TRANSFERS = ("regression", *STATISTICS)
PENALTIES = (1e-3, 1e-4, 1e-2, 1e-1, 1.0)

_N_FOLDS = 3
_FLOOR = 1e-6


class Costa(Baseline):
    """Co-occurrence statistics for zero-shot classification, as published.

    Parameters
    ----------
    transfer : {"regression", "normalised", "dice", "square-root"}
        How probabilities of seen labels become those of unseen ones: by a ridge regression of
        unseen on seen labels over the semantics documents (what the paper ran), or as their mean
        weighted by a statistic of co-occurrence; see `transfer_weights`.
    use_priors : bool
        Whether scores are divided by their sum over the labels and multiplied by each label's
        share of the semantics documents (in the paper: P(τ|x) ∝ L(x|τ) / Σ L(x|τ') · P(τ)). The
        product is not normalised again, or the sum would cancel.
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
        For "regression": the ridge penalty with the smallest squared error on held-out semantics
        documents, as a multiple of their number.
    priors_ : float64 array, shape (n_labels,)
        Share of the semantics documents with each label.

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

    def _learn(self, X: Features, matrix: sp.csr_matrix, lessons: sp.csr_matrix) -> None:
        """Fit or take the classifiers, then learn the way from seen to unseen labels."""
        check_option("transfer", self.transfer, TRANSFERS, owner=type(self).__name__)
        generator = as_generator(self.random_state)
        seed = draw_seed(generator)
        if self.fit_classifiers:
            template = SeenClassifiers() if self.classifiers is None else self.classifiers
            self.classifiers_ = copy_of(template)
            if self.classifiers_.random_state is None:
                self.classifiers_.set_params(random_state=seed)
            self.classifiers_.fit_matrix(X, matrix, self.classes_, self.groups_)
        else:
            self.classifiers_ = self._given_classifiers()
        self._seen = np.flatnonzero(self.kinds_ == "seen")
        self._unseen = np.flatnonzero(self.kinds_ == "unseen")
        self._columns = self._classifier_columns(matrix)
        self.priors_ = np.asarray(lessons.mean(axis=0)).ravel()
        self._learn_transfer(lessons, generator)

    def _scores(self, X: Features) -> NDArray[np.float64]:
        """Turn probabilities of seen labels into scores of all but the oov labels."""
        likely = self.classifiers_.probabilities(X)[:, self._columns]
        scores = np.zeros((X.shape[0], len(self.classes_)))
        scores[:, self._seen] = np.clip(likely, _FLOOR, 1.0)
        scores[:, self._unseen] = np.clip(likely @ self.weights_ + self.intercept_, _FLOOR, 1.0)
        if self.use_priors:
            totals = scores.sum(axis=1, keepdims=True)
            scores *= self.priors_ / np.where(totals > 0, totals, 1.0)
        return scores

    def _learn_transfer(self, lessons: sp.csr_matrix, generator: np.random.Generator) -> None:
        """Learn weights and intercept for the unseen labels."""
        self.penalty_: float | None = None
        if self.transfer != "regression" or not len(self._unseen) or not len(self._seen):
            counts = cooccurrences(lessons)
            statistic = "normalised" if self.transfer == "regression" else self.transfer
            self.weights_ = transfer_weights(counts, self._seen, self._unseen, statistic)
            self.intercept_ = np.zeros(len(self._unseen))
            return
        inputs = np.asarray(lessons[:, self._seen].toarray(), dtype=np.float64)
        targets = np.asarray(lessons[:, self._unseen].toarray(), dtype=np.float64)
        folds = fold_numbers(len(inputs), _N_FOLDS, generator, self.lesson_groups_)
        self.penalty_ = choose_penalty(inputs, targets, PENALTIES, folds)
        self.weights_, self.intercept_ = ridge(inputs, targets, self.penalty_)

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

    def _classifier_columns(self, matrix: sp.csr_matrix) -> IntArray:
        """Find the classifiers' columns for the seen labels, or raise when labels differ."""
        known = {normalize_label(label): n for n, label in enumerate(self.classifiers_.classes_)}
        if len(known) < len(self.classifiers_.classes_):  # spellings are told apart
            known = {label: column for column, label in enumerate(self.classifiers_.classes_)}
        carried = np.flatnonzero(np.asarray(matrix.sum(axis=0)).ravel() > 0)
        names = [self.classes_[column] for column in carried]
        keys = [name if name in known else normalize_label(name) for name in names]
        if differing := sorted(set(keys) ^ set(known)):
            raise InputError(
                "`classifiers` of `Costa` and the instances differ in the labels carried: "
                f"{first_few(differing)}; fit them on the same instances."
            )
        column_of = {int(column): known[key] for column, key in zip(carried, keys, strict=True)}
        return np.array([column_of[int(column)] for column in self._seen], dtype=np.int64)
