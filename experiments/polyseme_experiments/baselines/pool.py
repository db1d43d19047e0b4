"""What untagged items and a few answers teach a baseline.

In: features of a pool, and yes or no for some of its items and labels. Out: the contract of
baselines that can learn from both, targets for self-training that match how often documents hold
each label, and kernel ridge regressions in which every answer has a weight of its own.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, NamedTuple, Self

import numpy as np
import scipy.linalg
import scipy.sparse as sp
from scipy.special import expit, logit

from polyseme.base.validation import InputError, IntArray, check_features, check_sparse, in_order
from polyseme.documents.corpus import Documents, check_corpus
from polyseme.published.kernels import Rows, row_blocks, scale_rows, squared_distances
from polyseme.published.mapping import InstanceMapper
from polyseme_experiments.baselines.base import Baseline, Features, Matrix, counts_of

# A verdict weighs as much as so many targets that were guessed.
VERDICT_WEIGHT = 3.0

# Scores this near to 0 and 1, or beyond, are no probabilities; farther ones count as this far.
_EDGE = 0.01
_FARTHEST = 100.0
# The bisection of a label's shift: its rounds, and logits that are as good as certain.
_N_HALVINGS = 60
_CERTAIN_LOGIT = 30.0
# Of so many rows or fewer, all are landmarks, and the kernel is exact.
_MOST_LANDMARKS = 3000
_JITTER = 1e-6  # on the kernel's diagonal, so that it can be factorised
_BLOCK_BYTES = 2**28  # of a block of the kernel: bounds the memory


class Pool(NamedTuple):
    """Features (m, n_features) of untagged items, and verdicts (m, n_labels), mostly 0."""

    X: Features
    verdicts: sp.csr_matrix


class PoolBaseline(Baseline):
    """A ranker of labels that can learn from untagged items, too.

    It fills in `_fit_pool`, which is called after `_fit` where there is a pool.
    """

    def fit(
        self,
        X: object,
        y: Documents,
        label_sets: Documents | None = None,
        unlabelled: object = None,
        verdicts: object = None,
        *,
        label_sets_only: bool = False,
    ) -> Self:
        """Learn from instances, label sets and, where there are some, untagged items.

        Parameters
        ----------
        X : array-like, scipy sparse or frame, shape (n, n_features)
        y : LabelCorpus, iterable of label collections, indicator matrix, or path
            The labels of each instance.
        label_sets : the same, optional
            Further tag sets of whatever origin.
        unlabelled : array-like, scipy sparse or frame, shape (n_pool, n_features), optional
            Features of items that nobody has tagged.
        verdicts : array-like or scipy sparse, shape (n_pool, n_labels), optional
            What people said of some untagged items, in the order of `classes_` (the labels of the
            label sets, then labels that only instances carry): 1 yes, -1 no, 0 nobody was asked.
        label_sets_only : bool
            Whether `label_sets` alone teach which labels go together.
        """
        owner = type(self).__name__
        if unlabelled is None and verdicts is not None:
            raise InputError(
                f"`verdicts` of `{owner}.fit` are about untagged items; give these as `unlabelled`."
            )
        tagged = self._tagged(y)
        corpus = check_corpus(tagged, owner=owner, n_labels=1)
        features, Y, Z = self._tables(X, y, corpus, label_sets, label_sets_only)
        self._fit(features, Y, Z)
        if unlabelled is None:
            return self

        names = getattr(self, "feature_names_in_", None)
        n_features = self.n_features_in_
        n_labels = len(self.classes_)
        table = in_order(unlabelled, names, owner=owner)
        rows = check_features(table, owner=owner, n_features=n_features)
        shape = (rows.shape[0], n_labels)
        verdict_matrix = check_verdicts(verdicts, shape, owner=owner)
        pool = Pool(rows, verdict_matrix)
        self._fit_pool(features, Y, Z, pool)
        return self

    @abstractmethod
    def _fit_pool(self, X: Features, Y: sp.csr_matrix, Z: sp.csr_matrix, pool: Pool) -> None:
        """Learn on from a pool, after `_fit` with the same instances and label sets."""


def stacked(first: Features, second: Features) -> Features:
    """Stack rows below each other, sparse where the first ones are."""
    if sp.issparse(first):
        sparse_second = sp.csr_matrix(second)
        return sp.csr_matrix(sp.vstack([first, sparse_second]))
    dense_second = second.toarray() if sp.issparse(second) else second
    return np.vstack([np.asarray(first), np.asarray(dense_second)])


def label_shares(Y: sp.csr_matrix, Z: sp.csr_matrix) -> Matrix:
    """Return the share of label sets Z with each label, or of instances Y where none has it."""
    n_sets = Z.shape[0]
    n_instances = Y.shape[0]
    set_counts = counts_of(Z)
    instance_counts = counts_of(Y)
    set_shares = set_counts / n_sets
    instance_shares = instance_counts / n_instances
    in_sets = set_counts > 0
    return np.where(in_sets, set_shares, instance_shares)


def no_verdicts(n: int, n_labels: int) -> sp.csr_matrix:
    """Return the verdicts (n, n_labels) of items that nobody was asked about."""
    shape: Any = (n, n_labels)
    return sp.csr_matrix(shape, dtype=np.int8)


def check_verdicts(verdicts: Any, shape: tuple[int, int], *, owner: str) -> sp.csr_matrix:
    """Turn verdicts into a sparse matrix (n_pool, n_labels) of -1, 0 and 1, or raise."""
    if verdicts is None:
        return no_verdicts(*shape)
    if sp.issparse(verdicts):
        verdicts = check_sparse(verdicts, "verdicts", owner=owner)
    matrix = sp.csr_matrix(verdicts)
    if matrix.shape != shape or not np.isin(matrix.data, (-1, 0, 1)).all():
        raise InputError(
            f"`verdicts` of `{owner}.fit` must hold 1 (yes), -1 (no) or 0 (not asked) in shape "
            f"{shape}, a row for each untagged item and a column for each of `classes_`; got shape "
            f"{matrix.shape}."
        )
    matrix = matrix.astype(np.int8)
    matrix.eliminate_zeros()
    return matrix


def level_shifts(logits: Matrix, shares: Matrix) -> Matrix:
    """Find what to add to logits (m, n_labels) so that labels are as frequent as their shares.

    Shares and shifts are (n_labels,): the mean of a label's probabilities becomes its share.
    """
    high = np.abs(logits).max(axis=0) + _CERTAIN_LOGIT
    low = -high
    for _ in range(_N_HALVINGS):
        middle = (low + high) / 2
        expected = expit(logits + middle).mean(axis=0)
        too_low = expected < shares
        low = np.where(too_low, middle, low)
        high = np.where(too_low, high, middle)
    return np.asarray((low + high) / 2)


def logits_of(scores: Matrix) -> Matrix:
    """Return the logits of scores near [0, 1], on straight lines beyond 0.01 and 0.99."""
    clipped = np.clip(scores, -_FARTHEST, _FARTHEST)
    inner = np.clip(clipped, _EDGE, 1.0 - _EDGE)
    # The logit's slope at both edges is one over this.
    slope_divisor = _EDGE * (1.0 - _EDGE)
    beyond = (clipped - inner) / slope_divisor
    inner_logits = logit(inner)
    return np.asarray(inner_logits + beyond)


def self_targets(scores: Matrix, shares: Matrix, hard_share: float | Matrix = 0.5) -> Matrix:
    """Turn scores (m, n_labels) of a pool into pseudo-labels, as frequent as documents hold them.

    A target is `hard_share` times whether the item is among the likeliest of its label, as many as
    the label's share (n_labels,) of the pool, plus 1 - `hard_share` times its probability, shifted
    to be expected as often. `hard_share` may differ by label, (n_labels,).
    """
    n_items = len(scores)
    order = np.argsort(-scores, axis=0, kind="stable")
    item_ranks = np.arange(n_items)[:, None]
    ranks = np.empty(scores.shape, dtype=np.int64)
    np.put_along_axis(ranks, order, item_ranks, 0)
    n_likeliest = np.rint(shares * n_items)
    is_likeliest = ranks < n_likeliest
    logits = logits_of(scores)
    shifts = level_shifts(logits, shares)
    probabilities = expit(logits + shifts)
    soft_share = 1.0 - hard_share
    return np.asarray(hard_share * is_likeliest + soft_share * probabilities)


class WeightedRidge:
    """Kernel ridge regressions over shared rows, where single targets may weigh more than others.

    The kernel, its width and its penalty are those of a fitted mapper. Of more than 3,000 rows, so
    many are landmarks (Nyström). Solutions are exact for the weights: a target that weighs w times
    as much as others is one that is moved by ``(1 - 1 / w)`` of its residual in the solution, and
    such moves are found by a small system for each label.
    """

    def __init__(self, mapper: InstanceMapper, X: Features, generator: np.random.Generator) -> None:
        self.mapper = mapper
        self.penalty = float(mapper.penalty_ or 0.0)
        n = X.shape[0]
        sample: IntArray | slice = slice(None)
        if n > _MOST_LANDMARKS:
            sample = np.sort(generator.choice(n, _MOST_LANDMARKS, replace=False))
        self.landmarks = self._scaled(X[sample])
        kernel = self._kernel(X[sample])
        n_landmarks = len(kernel)
        jittered = kernel + _JITTER * np.eye(n_landmarks)
        self.root = scipy.linalg.cholesky(jittered, lower=True)
        # Rows as points whose inner products are the kernel, (n_landmarks, n).
        across = kernel if n == n_landmarks else self._kernel(X)
        points = scipy.linalg.solve_triangular(self.root, across.T, lower=True)
        gram = points @ points.T
        gram[np.diag_indices_from(gram)] += self.penalty
        self.factor = scipy.linalg.cholesky(gram, lower=True, overwrite_a=True)
        # What the regression predicts of targets is this matrix, transposed, times itself.
        self.half: Matrix = scipy.linalg.solve_triangular(self.factor, points, lower=True)
        leverages = (self.half**2).sum(axis=0)
        self.leverages = np.minimum(leverages, 1.0 - 1e-6)

    def fit(self, targets: Matrix, heavy: sp.csr_matrix | None = None) -> Matrix:
        """Fit targets (n, d), and return what the other rows predict of each row, (n, d).

        Where `heavy` (n, d) is not 0, a target weighs as much as a verdict.
        """
        self.intercept = targets.mean(axis=0)
        centred = targets - self.intercept
        residuals = centred - self._smoothed(centred)
        if heavy is not None and heavy.nnz:
            centred = centred + self._moves(residuals, heavy.tocsc())
            residuals = centred - self._smoothed(centred)
        projected = self.half @ centred
        weights = scipy.linalg.solve_triangular(self.factor.T, projected, lower=False)
        self.coefficients = scipy.linalg.solve_triangular(self.root.T, weights, lower=False)
        # A row's residual without the row is its residual over one less its leverage.
        divisors = 1.0 - self.leverages
        left_out_residuals = residuals / divisors[:, None]
        return np.asarray(centred + self.intercept - left_out_residuals)

    def predict(self, X: Features) -> Matrix:
        """Predict targets of other rows, (m, d)."""
        kernel = self._kernel(X)
        return np.asarray(kernel @ self.coefficients + self.intercept)

    def forget_training(self) -> None:
        """Delete all that `predict` does not need."""
        del self.root, self.factor, self.half, self.leverages

    def _smoothed(self, targets: Matrix) -> Matrix:
        """Return what the regression predicts of its own centred targets, (n, d)."""
        projected = self.half @ targets
        return np.asarray(self.half.T @ projected)

    def _moves(self, residuals: Matrix, heavy: sp.csc_matrix) -> Matrix:
        """Move heavy targets so that equal weights give the solution of unequal ones, (n, d)."""
        moves = np.zeros_like(residuals)
        share = 1.0 - 1.0 / VERDICT_WEIGHT
        for column in np.flatnonzero(np.diff(heavy.indptr)):
            start = heavy.indptr[column]
            stop = heavy.indptr[column + 1]
            rows = heavy.indices[start:stop]
            half = self.half[:, rows]
            identity = np.eye(len(rows))
            system = (1.0 - share) * identity + share * half.T @ half
            solution = np.linalg.solve(system, residuals[rows, column])
            moves[rows, column] = share * solution
        return moves

    def _scaled(self, X: Features) -> Rows:
        """Scale rows as the mapper does."""
        mapper = self.mapper
        return scale_rows(X, mapper.scaling, mapper.mean_, mapper.scale_, np.float64)

    def _kernel(self, X: Features) -> Matrix:
        """Return the kernel of rows to the landmarks, (n, n_landmarks)."""
        n, n_features = X.shape
        gamma = float(self.mapper.gamma_)
        kernel = np.empty((n, self.landmarks.shape[0]))
        for block in row_blocks(n, 8 * n_features, _BLOCK_BYTES):
            rows = self._scaled(X[block])
            dense = rows.toarray() if sp.issparse(rows) else rows
            kernel[block] = squared_distances(dense, self.landmarks, gamma)
        return kernel
