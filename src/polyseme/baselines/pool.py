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

from polyseme._validation import InputError, IntArray, check_features, check_sparse, in_order
from polyseme.baselines.base import Baseline, Features, Matrix, counts_of
from polyseme.corpus import Documents, check_corpus
from polyseme.published.kernels import Rows, row_blocks, scale_rows, squared_distances
from polyseme.published.mapping import InstanceMapper

# A verdict weighs as much as so many targets that were guessed.
VERDICT_WEIGHT = 3.0

# Scores this near to 0 and 1, or beyond, are no probabilities.
_EDGE = 0.01
_FARTHEST = 100.0
_N_HALVINGS, _SURE = 60, 30.0
# Of so many rows or fewer, all are landmarks, and the kernel is exact.
_MOST_LANDMARKS = 3000
_JITTER = 1e-6
_BLOCK_BYTES = 2**28


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
        corpus = check_corpus(self._tagged(y), owner=owner, n_labels=1)
        features, Y, Z = self._tables(X, y, corpus, label_sets, label_sets_only)
        self._fit(features, Y, Z)
        if unlabelled is not None:
            table = in_order(unlabelled, getattr(self, "feature_names_in_", None), owner=owner)
            rows = check_features(table, owner=owner, n_features=self.n_features_in_)
            said = check_verdicts(verdicts, (rows.shape[0], len(self.classes_)), owner=owner)
            self._fit_pool(features, Y, Z, Pool(rows, said))
        return self

    @abstractmethod
    def _fit_pool(self, X: Features, Y: sp.csr_matrix, Z: sp.csr_matrix, pool: Pool) -> None:
        """Learn on from a pool, after `_fit` with the same instances and label sets."""


def stacked(first: Features, second: Features) -> Features:
    """Put rows below each other, sparse where the first ones are."""
    if sp.issparse(first):
        return sp.csr_matrix(sp.vstack([first, sp.csr_matrix(second)]))
    below = second.toarray() if sp.issparse(second) else second
    return np.vstack([np.asarray(first), np.asarray(below)])


def label_shares(Y: sp.csr_matrix, Z: sp.csr_matrix) -> Matrix:
    """Return the share of label sets Z with each label, or of instances Y where none has it."""
    named = counts_of(Z)
    return np.where(named > 0, named / Z.shape[0], counts_of(Y) / Y.shape[0])


def no_verdicts(n: int, n_labels: int) -> sp.csr_matrix:
    """Return the verdicts (n, n_labels) of items that nobody was asked about."""
    parts = (np.empty(0, np.int8), np.empty(0, np.int64), np.zeros(n + 1, np.int64))
    return sp.csr_matrix(parts, shape=(n, n_labels))


def check_verdicts(verdicts: Any, shape: tuple[int, int], *, owner: str) -> sp.csr_matrix:
    """Turn verdicts into a sparse matrix (n_pool, n_labels) of -1, 0 and 1, or raise."""
    if verdicts is None:
        return no_verdicts(*shape)
    if sp.issparse(verdicts):
        verdicts = check_sparse(verdicts, "verdicts", owner=owner)
    said = sp.csr_matrix(verdicts)
    if said.shape != shape or not np.isin(said.data, (-1, 0, 1)).all():
        raise InputError(
            f"`verdicts` of `{owner}.fit` must hold 1 (yes), -1 (no) or 0 (not asked) in shape "
            f"{shape}, a row for each untagged item and a column for each of `classes_`; got shape "
            f"{said.shape}."
        )
    said = said.astype(np.int8)
    said.eliminate_zeros()
    return said


def level_shifts(logits: Matrix, shares: Matrix) -> Matrix:
    """Find what to add to logits (m, n_labels) so that each label is as likely as its share."""
    high = np.abs(logits).max(axis=0) + _SURE
    low = -high
    for _ in range(_N_HALVINGS):
        middle = (low + high) / 2
        rare = expit(logits + middle).mean(axis=0) < shares
        low, high = np.where(rare, middle, low), np.where(rare, high, middle)
    return np.asarray((low + high) / 2)


def logits_of(scores: Matrix) -> Matrix:
    """Return the logits of scores near [0, 1], on straight lines beyond 0.01 and 0.99."""
    scores = np.clip(scores, -_FARTHEST, _FARTHEST)
    inner = np.clip(scores, _EDGE, 1.0 - _EDGE)
    return np.asarray(logit(inner) + (scores - inner) / (_EDGE * (1.0 - _EDGE)))


def self_targets(scores: Matrix, shares: Matrix, hard: float | Matrix = 0.5) -> Matrix:
    """Turn scores (m, n_labels) of a pool into targets that hold each label as often as documents.

    A target is `hard` times whether the item is among the likeliest of its label, as many as the
    label's share (n_labels,) of the pool, and for the rest its probability, shifted to be expected
    as often. `hard` may differ by label, (n_labels,).
    """
    n = len(scores)
    ranks = np.empty(scores.shape, dtype=np.int64)
    np.put_along_axis(ranks, np.argsort(-scores, axis=0, kind="stable"), np.arange(n)[:, None], 0)
    chosen = ranks < np.rint(shares * n)
    logits = logits_of(scores)
    likely = expit(logits + level_shifts(logits, shares))
    return np.asarray(hard * chosen + (1.0 - hard) * likely)


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
        some: IntArray | slice = slice(None)
        if n > _MOST_LANDMARKS:
            some = np.sort(generator.choice(n, _MOST_LANDMARKS, replace=False))
        self.landmarks = self._scaled(X[some])
        kernel = self._kernel(X[some])
        self.root = scipy.linalg.cholesky(kernel + _JITTER * np.eye(len(kernel)), lower=True)
        # Rows as points whose inner products are the kernel, (n_landmarks, n).
        across = kernel if n == len(kernel) else self._kernel(X)
        points = scipy.linalg.solve_triangular(self.root, across.T, lower=True)
        gram = points @ points.T
        gram[np.diag_indices_from(gram)] += self.penalty
        self.factor = scipy.linalg.cholesky(gram, lower=True, overwrite_a=True)
        # What the regression predicts of targets is this matrix, transposed, times itself.
        self.half: Matrix = scipy.linalg.solve_triangular(self.factor, points, lower=True)
        self.leverages = np.minimum((self.half**2).sum(axis=0), 1.0 - 1e-6)

    def fit(self, targets: Matrix, heavy: sp.csr_matrix | None = None) -> Matrix:
        """Fit targets (n, d), some of which (n, d) weigh more; predict each row from the others."""
        self.intercept = targets.mean(axis=0)
        moved = targets - self.intercept
        residuals = moved - self.half.T @ (self.half @ moved)
        if heavy is not None and heavy.nnz:
            moved = moved + self._moves(residuals, heavy.tocsc())
            residuals = moved - self.half.T @ (self.half @ moved)
        weights = scipy.linalg.solve_triangular(self.factor.T, self.half @ moved, lower=False)
        self.coefficients = scipy.linalg.solve_triangular(self.root.T, weights, lower=False)
        return np.asarray(moved + self.intercept - residuals / (1.0 - self.leverages)[:, None])

    def predict(self, X: Features) -> Matrix:
        """Predict targets of other rows, (m, d)."""
        return np.asarray(self._kernel(X) @ self.coefficients + self.intercept)

    def forget_training(self) -> None:
        """Let go of all that `predict` does not need."""
        del self.root, self.factor, self.half, self.leverages

    def _moves(self, residuals: Matrix, heavy: sp.csc_matrix) -> Matrix:
        """Move heavy targets so that equal weights give the solution of unequal ones, (n, d)."""
        moves, share = np.zeros_like(residuals), 1.0 - 1.0 / VERDICT_WEIGHT
        for column in np.flatnonzero(np.diff(heavy.indptr)):
            rows = heavy.indices[heavy.indptr[column] : heavy.indptr[column + 1]]
            half = self.half[:, rows]
            system = (1.0 - share) * np.eye(len(rows)) + share * half.T @ half
            moves[rows, column] = share * np.linalg.solve(system, residuals[rows, column])
        return moves

    def _scaled(self, X: Features) -> Rows:
        """Scale rows as the mapper does."""
        mapper = self.mapper
        return scale_rows(X, mapper.scaling, mapper.mean_, mapper.scale_, np.float64)

    def _kernel(self, X: Features) -> Matrix:
        """Return the kernel of rows to the landmarks, (n, n_landmarks)."""
        kernel = np.empty((X.shape[0], self.landmarks.shape[0]))
        for block in row_blocks(len(kernel), 8 * X.shape[1], _BLOCK_BYTES):
            rows = self._scaled(X[block])
            dense = rows.toarray() if sp.issparse(rows) else rows
            kernel[block] = squared_distances(dense, self.landmarks, float(self.mapper.gamma_))
        return kernel
