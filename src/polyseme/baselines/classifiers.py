"""One classifier per label that instances carry: what COSTA and its like build upon.

In: features and the labels of instances. Out: for other instances the probability of each of these
labels, by support vector machines over one Gaussian kernel with Platt's sigmoid on top.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

import numpy as np
import scipy.sparse as sp

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
from polyseme.baselines.svm import (
    Matrix,
    Truth,
    apply_platt,
    fit_machines,
    fit_platt,
    held_out_decisions,
)
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
    classes_ : tuple of str
        The labels that instances carry, sorted; the columns of `probabilities`.
    C_, gamma_ : float
        The values used.
    support_ : float64 array or csr_matrix, shape (n_support, n_features)
        Standardised rows of the instances that some machine rests on.
    dual_coef_ : float64 array, shape (n_support, n_labels)
    intercept_ : float64 array, shape (n_labels,)
    slope_, offset_ : float64 arrays, shape (n_labels,)
        Platt's sigmoid of each label.
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
        y : LabelCorpus, iterable of label collections, indicator frame, or path
            The labels of each instance. The groups of a corpus are kept in one fold each.
        """
        owner = type(self).__name__
        corpus = check_corpus(as_corpus(y), owner=owner, n_labels=1)
        features = check_instances(X, len(corpus), owner=owner)
        groups = group_numbers(corpus.groups, len(corpus))
        return self.fit_matrix(features, corpus.matrix, corpus.labels, groups)

    def fit_matrix(
        self, X: Rows, matrix: sp.csr_matrix, labels: Sequence[str], groups: IntArray | None = None
    ) -> Self:
        """Learn from checked features (n, n_features) and a matrix (n, n_labels); see `fit`."""
        self._check_parameters()
        used = np.asarray(matrix.sum(axis=0)).ravel() > 0
        columns = sorted(np.flatnonzero(used).tolist(), key=lambda column: labels[column])
        self.classes_ = tuple(labels[column] for column in columns)
        truth = np.asarray(matrix[:, columns].toarray(), dtype=bool)
        carriers = truth.sum(axis=0)
        self.shares_ = carriers / len(truth)
        self.constant_ = (carriers < 2) | (carriers == len(truth))
        self.n_features_in_ = X.shape[1]
        self._mean, self._scale = column_statistics(X, "standard")
        rows = scale_rows(X, "standard", self._mean, self._scale, np.float64)
        generator = as_generator(self.random_state)
        self.C_, self.gamma_ = self._search(rows, truth, groups, generator)
        folds = fold_numbers(len(truth), self.n_folds, generator, groups)
        self._train(rows, truth, folds)
        return self

    def probabilities(self, X: object) -> Matrix:
        """Give the probability of each label of `classes_` for each instance, (n, n_labels)."""
        check_fitted(self, "slope_")
        features = check_features(X, owner=type(self).__name__, n_features=self.n_features_in_)
        found = np.empty((features.shape[0], len(self.classes_)))
        for block in row_blocks(len(found), 8 * self.support_.shape[0], _BLOCK_BYTES):
            part = features[block]
            dense = part.toarray() if sp.issparse(part) else part
            queries = np.asarray(scale_rows(dense, "standard", self._mean, self._scale, np.float64))
            decisions = rbf_predict(
                queries, self.support_, self.gamma_, self.dual_coef_, self.intercept_
            )
            found[block] = apply_platt(np.asarray(decisions), self.slope_, self.offset_)
        found[:, self.constant_] = self.shares_[self.constant_]
        return found

    def _check_parameters(self) -> None:
        """Raise on a parameter out of its range."""
        owner = type(self).__name__
        for name in ("C", "gamma"):
            if getattr(self, name) is not None:
                check_number(name, getattr(self, name), owner=owner, low=0, above=True)
        check_number("n_folds", self.n_folds, owner=owner, low=2, whole=True)

    def _train(self, rows: Rows, truth: Truth, folds: IntArray) -> None:
        """Fit all machines, and their sigmoids on decision values of held-out instances."""
        kernel = np.asarray(pairwise_squared_distances(rows), dtype=np.float64)
        rbf_from_squared(kernel, self.gamma_, out=kernel)
        learned = np.where(self.constant_, False, truth)
        coefficients, self.intercept_ = fit_machines(kernel, learned, self.C_)
        if folds.any():
            decisions = held_out_decisions(kernel, learned, folds, self.C_)
        else:
            decisions = kernel @ coefficients + self.intercept_
        self.slope_, self.offset_ = fit_platt(decisions, learned)
        used = np.flatnonzero(coefficients.any(axis=1))
        self.support_ = rows[used]
        self.dual_coef_ = coefficients[used]

    def _search(
        self,
        rows: Rows,
        truth: Truth,
        groups: IntArray | None,
        generator: np.random.Generator,
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
            decisions = held_out_decisions(kernel, known, folds, bound)
            quality.append(mean_average_precision(known, decisions))
        return settings[int(np.argmax(quality))]


def _search_labels(truth: Truth, generator: np.random.Generator) -> IntArray:
    """Draw the labels that the search looks at: frequent enough, or the most frequent ones."""
    carriers = truth.sum(axis=0)
    order = np.argsort(-carriers, kind="stable")
    order = order[(carriers[order] >= 2) & (carriers[order] < len(truth))]
    n_enough = int((carriers[order] >= _ENOUGH).sum())
    eligible = order[: max(n_enough, _SEARCH_LABELS)]
    size = min(_SEARCH_LABELS, len(eligible))
    return np.sort(generator.choice(eligible, size, replace=False)).astype(np.int64)
