"""One classifier per label that instances carry: what COSTA and its like build upon.

In: features and the labels of instances. Out: for other instances the probability of each of these
labels, by support vector machines over one Gaussian kernel with Platt's sigmoid on top.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

import numpy as np
import scipy.sparse as sp
from scipy.special import expit

from polyseme._estimator import Estimator
from polyseme._folds import fold_numbers, group_numbers
from polyseme._validation import (
    IntArray,
    RandomState,
    as_generator,
    check_features,
    check_fitted,
    check_instances,
    check_number,
)
from polyseme.baselines.base import Mask, Matrix, counts_of
from polyseme.corpus import Documents, as_corpus, check_corpus
from polyseme.metrics import mean_average_precision
from polyseme.published.kernels import (
    Rows,
    column_statistics,
    kernel_widths,
    pairwise_squared_distances,
    rbf_from_squared,
    rbf_predict,
    row_blocks,
    scale_rows,
)

# The first of equals wins.
C_GRID = (1.0, 0.1, 10.0)
_SEARCH_ROWS = 1500
_SEARCH_LABELS = 16
_ENOUGH = 10
_BLOCK_BYTES = 2**28


class SeenClassifiers(Estimator):
    """A support vector machine and a sigmoid for each label.

    Parameters
    ----------
    C : float, optional
        Bound on a coefficient, for all labels. None: cross-validated (0.1, 1, 10).
    gamma : float, optional
        Width of the kernel ``exp(-gamma ||x - x'||^2)`` over standardised features, for all
        labels. None: cross-validated (1/4, 1, 4 times 1 / median squared distance).
    n_folds : int
        Folds of the search, and of the decision values that the sigmoids are fitted to.
    random_state : int, numpy Generator or None

    Attributes
    ----------
    classes_ : array of str, shape (n_labels,)
        The labels that instances carry, sorted; the columns of `predict_proba`.
    C_, gamma_ : float
        The values used.
    shares_ : float64 array, shape (n_labels,)
        Share of the instances with each label.
    constant_ : bool array, shape (n_labels,)
        Labels with fewer than two instances, or on every instance: nothing can be learned about
        them, and their probability is their share.

    Notes
    -----
    C and gamma are those with the highest mean average precision in a cross-validation on at most
    1,500 instances and 16 labels, drawn from those with ten carriers among these instances. Classes
    are not weighted: rare labels get small probabilities, as their sigmoids say. In a fold whose
    training part lacks a label (or holds nothing else), its decision values are -1 (or 1), as
    LIBSVM's own cross-validation has it. Where groups leave a single fold, the first settings are
    taken and the sigmoids see decisions on training instances. The kernel of all training instances
    and a copy are held in memory, 16 n^2 bytes.
    """

    def __init__(
        self,
        C: float | None = None,
        gamma: float | None = None,
        n_folds: int = 3,
        random_state: RandomState = None,
    ) -> None:
        self.C = C
        self.gamma = gamma
        self.n_folds = n_folds
        self.random_state = random_state

    def fit(self, X: object, y: Documents) -> Self:
        """Learn one classifier per label.

        Parameters
        ----------
        X : array-like, scipy sparse or frame, shape (n, n_features)
        y : LabelCorpus, iterable of label collections, indicator matrix, or path
            The labels of each instance. The groups of a corpus are kept in one fold each.
        """
        owner = type(self).__name__
        corpus = check_corpus(as_corpus(y), owner=owner, n_labels=1)
        features = check_instances(X, len(corpus), owner=owner)
        groups = group_numbers(corpus.groups, len(corpus))
        return self.fit_matrix(features, corpus.matrix, corpus.labels, groups)

    def fit_matrix(
        self, X: Rows, Y: sp.csr_matrix, labels: Sequence[str], groups: IntArray | None = None
    ) -> Self:
        """Learn from checked features (n, n_features) and their labels (n, n_labels); see `fit`."""
        owner = type(self).__name__
        for name in ("C", "gamma"):
            if getattr(self, name) is not None:
                check_number(name, getattr(self, name), owner=owner, low=0, above=True)
        check_number("n_folds", self.n_folds, owner=owner, low=2, whole=True)
        columns = sorted(np.flatnonzero(counts_of(Y)).tolist(), key=lambda column: labels[column])
        self.classes_ = np.array([labels[column] for column in columns], dtype=object)
        truth = np.asarray(Y[:, columns].toarray(), dtype=bool)
        carriers = truth.sum(axis=0)
        self.shares_ = carriers / len(truth)
        self.constant_ = (carriers < 2) | (carriers == len(truth))
        self.n_features_in_ = X.shape[1]
        self._mean, self._scale = column_statistics(X, "standard")
        rows = scale_rows(X, "standard", self._mean, self._scale, np.float64)
        generator = as_generator(self.random_state)
        self.C_, self.gamma_ = self._search(rows, truth, groups, generator)
        folds = fold_numbers(len(truth), self.n_folds, generator, groups)
        kernel = np.asarray(pairwise_squared_distances(rows), dtype=np.float64)
        rbf_from_squared(kernel, self.gamma_, out=kernel)
        learned = np.where(self.constant_, False, truth)
        coefficients, self.intercept_ = _fit_machines(kernel, learned, self.C_)
        if folds.any():
            decisions = _held_out_decisions(kernel, learned, folds, self.C_)
        else:
            decisions = kernel @ coefficients + self.intercept_
        self.slope_, self.offset_ = _fit_platt(decisions, learned)
        used = np.flatnonzero(coefficients.any(axis=1))
        self.support_, self.dual_coef_ = rows[used], coefficients[used]
        return self

    def predict_proba(self, X: object) -> Matrix:
        """Give the probability of each label of `classes_` for each instance, (n, n_labels)."""
        check_fitted(self, "slope_")
        features = check_features(X, owner=type(self).__name__, n_features=self.n_features_in_)
        likely = np.empty((features.shape[0], len(self.classes_)))
        for block in row_blocks(len(likely), 8 * self.support_.shape[0], _BLOCK_BYTES):
            part = features[block]
            dense = part.toarray() if sp.issparse(part) else part
            queries = np.asarray(scale_rows(dense, "standard", self._mean, self._scale, np.float64))
            decisions = rbf_predict(
                queries, self.support_, self.gamma_, self.dual_coef_, self.intercept_
            )
            likely[block] = expit(self.slope_ * decisions + self.offset_)
        likely[:, self.constant_] = self.shares_[self.constant_]
        return likely

    def _search(
        self, rows: Rows, truth: Mask, groups: IntArray | None, generator: np.random.Generator
    ) -> tuple[float, float]:
        """Choose C and gamma where they are not given."""
        widths = kernel_widths(rows, self.gamma, generator)
        bounds = C_GRID if self.C is None else (float(self.C),)
        settings = [(bound, width) for width in widths for bound in bounds]
        drawn = generator.permutation(len(truth))[:_SEARCH_ROWS]
        columns = _search_labels(truth[drawn], generator)
        some = None if groups is None else groups[drawn]
        folds = fold_numbers(len(drawn), self.n_folds, generator, some)
        if len(settings) == 1 or not len(columns) or not folds.any():
            return settings[0]
        known = truth[np.ix_(drawn, columns)]
        distances = np.asarray(pairwise_squared_distances(rows[drawn]), dtype=np.float64)
        quality = []
        for bound, width in settings:
            kernel = np.asarray(rbf_from_squared(distances, width), dtype=np.float64)
            decisions = _held_out_decisions(kernel, known, folds, bound)
            quality.append(mean_average_precision(known, decisions))
        return settings[int(np.argmax(quality))]


def _search_labels(truth: Mask, generator: np.random.Generator) -> IntArray:
    """Draw the labels that the search looks at: frequent enough, or the most frequent ones."""
    carriers = truth.sum(axis=0)
    order = np.argsort(-carriers, kind="stable")
    order = order[(carriers[order] >= 2) & (carriers[order] < len(truth))]
    n_enough = int((carriers[order] >= _ENOUGH).sum())
    eligible = order[: max(n_enough, _SEARCH_LABELS)]
    size = min(_SEARCH_LABELS, len(eligible))
    return np.sort(generator.choice(eligible, size, replace=False)).astype(np.int64)


def _fit_machines(kernel: Matrix, truth: Mask, C: float) -> tuple[Matrix, Matrix]:
    """Fit one machine per label over a kernel (n, n): coefficients (n, n_labels) and biases."""
    from sklearn.svm import SVC

    coefficients = np.zeros(truth.shape)
    # A label that none (or all) of the instances carry has no coefficients and the bias -1 (or 1).
    bias = np.where(truth.all(axis=0), 1.0, -1.0)
    for column in np.flatnonzero(truth.any(axis=0) & ~truth.all(axis=0)):
        machine = SVC(C=C, kernel="precomputed").fit(kernel, truth[:, column])
        coefficients[machine.support_, column] = machine.dual_coef_[0]
        bias[column] = machine.intercept_[0]
    return coefficients, bias


def _held_out_decisions(kernel: Matrix, truth: Mask, folds: IntArray, C: float) -> Matrix:
    """Give decision values (n, n_labels) by machines that have not seen the instance's fold."""
    decisions = np.empty(truth.shape)
    for fold in range(int(folds.max()) + 1):
        out, others = np.flatnonzero(folds == fold), np.flatnonzero(folds != fold)
        coefficients, bias = _fit_machines(kernel[np.ix_(others, others)], truth[others], C)
        decisions[out] = kernel[np.ix_(out, others)] @ coefficients + bias
    return decisions


def _fit_platt(decisions: Matrix, truth: Mask) -> tuple[Matrix, Matrix]:
    """Fit each label's ``1 / (1 + exp(-(slope * decision + offset)))``: slopes and offsets."""
    from sklearn.linear_model import LogisticRegression

    # Targets are (p + 1) / (p + 2) for the p carriers of a label and 1 / (q + 2) for the q others,
    # which keeps the sigmoid finite where decisions tell the two apart: every instance counts as
    # both, weighted by its target. A slope may come out negative, as in LIBSVM.
    n, carriers = len(truth), truth.sum(axis=0)
    targets = np.where(truth, (carriers + 1) / (carriers + 2), 1 / (n - carriers + 2))
    centre, spread = decisions.mean(axis=0), decisions.std(axis=0)
    mean = targets.mean(axis=0)
    slope, offset = np.zeros_like(mean), np.log(mean / (1 - mean))
    both = np.repeat([True, False], n)
    for column in np.flatnonzero(spread > 1e-12 * np.maximum(np.abs(centre), 1.0)):
        inputs = np.tile((decisions[:, column] - centre[column]) / spread[column], 2)[:, None]
        weights = np.concatenate([targets[:, column], 1 - targets[:, column]])
        model = LogisticRegression(C=np.inf, solver="newton-cholesky", tol=1e-10)
        model.fit(inputs, both, sample_weight=weights)
        slope[column] = model.coef_[0, 0] / spread[column]
        offset[column] = model.intercept_[0] - slope[column] * centre[column]
    return slope, offset
