"""COSTA: labels that instances carry are classified, others follow from what occurs with them.

In: features, labels of instances and label sets. Out: scores of all labels; as the paper ran it
(`Costa`, over the support vector machines of `SeenClassifiers`), and as strong as we can make it
(`TunedCosta`), the baseline that a tagger has to beat.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

import numpy as np
import scipy.sparse as sp
from scipy.special import expit
from sklearn.linear_model import LogisticRegression
from sklearn.svm import SVC

from polyseme._estimator import Estimator, copy_of
from polyseme._folds import fold_numbers, group_numbers
from polyseme._validation import (
    InputError,
    IntArray,
    RandomState,
    as_generator,
    check_features,
    check_fitted,
    check_instances,
    check_option,
    check_ranges,
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
from polyseme.baselines.pool import (
    Pool,
    PoolBaseline,
    WeightedRidge,
    label_shares,
    no_verdicts,
    self_targets,
    stacked,
)
from polyseme.corpus import Documents, as_corpus, check_corpus, normalize_label
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

TRANSFERS = ("regression", "normalised", "dice", "square-root")
# The first of equals wins.
PENALTIES = (1e-3, 1e-4, 1e-2, 1e-1, 1.0)
C_GRID = (1.0, 0.1, 10.0)

_N_FOLDS = 3
_FLOOR = 1e-6
_SEARCH_ROWS, _SEARCH_LABELS, _ENOUGH_CARRIERS = 1500, 16, 10
_BLOCK_BYTES = 2**28
# Learning from a pool, chosen on labels and items of training sets alone: rounds; how much of a
# target is whether an item is among the likeliest; how much of an unseen label's score is its own
# classifier's, the rest being transferred from seen labels.
_N_ROUNDS, _HARD_SEEN, _HARD, _POOL_SHARE = 4, 0.25, 0.5, 0.5


class SeenClassifiers(Estimator):
    """A support vector machine and Platt's sigmoid for each label that instances carry.

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
        above = {"low": 0, "above": True}
        check_ranges(self, {"C": above, "gamma": above, "n_folds": {"low": 2, "whole": True}})
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
        """Return the probability of each label of `classes_` for each instance, (n, n_labels)."""
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
    n_enough = int((carriers[order] >= _ENOUGH_CARRIERS).sum())
    eligible = order[: max(n_enough, _SEARCH_LABELS)]
    size = min(_SEARCH_LABELS, len(eligible))
    return np.sort(generator.choice(eligible, size, replace=False)).astype(np.int64)


def _fit_machines(kernel: Matrix, truth: Mask, C: float) -> tuple[Matrix, Matrix]:
    """Fit one machine per label over a kernel (n, n): coefficients (n, n_labels) and biases."""
    coefficients = np.zeros(truth.shape)
    # A label that none (or all) of the instances carry has no coefficients and the bias -1 (or 1).
    bias = np.where(truth.all(axis=0), 1.0, -1.0)
    for column in np.flatnonzero(truth.any(axis=0) & ~truth.all(axis=0)):
        machine = SVC(C=C, kernel="precomputed").fit(kernel, truth[:, column])
        coefficients[machine.support_, column] = machine.dual_coef_[0]
        bias[column] = machine.intercept_[0]
    return coefficients, bias


def _held_out_decisions(kernel: Matrix, truth: Mask, folds: IntArray, C: float) -> Matrix:
    """Return decision values (n, n_labels) by machines that have not seen the instance's fold."""
    decisions = np.empty(truth.shape)
    for fold in range(int(folds.max()) + 1):
        out, others = np.flatnonzero(folds == fold), np.flatnonzero(folds != fold)
        coefficients, bias = _fit_machines(kernel[np.ix_(others, others)], truth[others], C)
        decisions[out] = kernel[np.ix_(out, others)] @ coefficients + bias
    return decisions


def _fit_platt(decisions: Matrix, truth: Mask) -> tuple[Matrix, Matrix]:
    """Fit each label's ``1 / (1 + exp(-(slope * decision + offset)))``: slopes and offsets."""
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
        elif self.classifiers is None:
            raise InputError("`fit_classifiers=False` needs fitted `classifiers`; give them.")
        else:
            self.classifiers_ = self.classifiers
            check_fitted(self.classifiers_, "slope_")
            n_features = self.classifiers_.n_features_in_
            check_features(X, owner="SeenClassifiers", n_features=n_features)
        self._seen = np.flatnonzero(self.kinds_ == "seen")
        self._unseen = np.flatnonzero(self.kinds_ == "unseen")
        self._columns = self._classifier_columns(Y)
        self.priors_ = np.asarray(Z.mean(axis=0)).ravel()
        self.penalty_: float | None = None
        if self.transfer != "regression" or not len(self._unseen) or not len(self._seen):
            self.weights_ = _transfer_weights(Z, self._seen, self._unseen, self.transfer)
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


def _transfer_weights(Z: sp.csr_matrix, seen: IntArray, unseen: IntArray, statistic: str) -> Matrix:
    """Weigh seen labels by what they have in common with each unseen one, (n_seen, n_unseen)."""
    sets, sizes = Z.astype(np.float64), counts_of(Z).astype(np.float64)
    weights = (sets[:, seen].T @ sets[:, unseen]).toarray()
    if statistic == "square-root":
        weights = np.sqrt(weights)
    else:
        both = sizes[seen][:, None] if statistic == "dice" else 0.0
        weights = weights / np.maximum(sizes[unseen] + both, 1.0)
    totals = weights.sum(axis=0)
    return np.asarray(weights / np.where(totals > 0, totals, 1.0))


class TunedCosta(PoolBaseline):
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
    classifier_ : InstanceMapper
        Kernel ridge regression from features to these labels.
    regression_ : tuple of two float64 arrays, shapes (n_direct, n_others) and (n_others,)
        Weights and intercepts of the other labels, where there are some.
    pool_classifier_ : WeightedRidge or None
        Kernel ridge regression from features to all labels, learned from instances and pool.

    Notes
    -----
    From a pool it learns in four rounds. Scores of the pool's items, from kernel ridge regressions
    that leave each item out, become targets that hold each label as often as label sets do: half
    probability and half whether the item is among the likeliest (for seen labels three quarters
    and one quarter). New regressions on instances and pool then predict all labels. Instances have
    their labels as targets, and for other labels what these labels let expect. The score of a label
    without instances is half its own regression's and half the transfer from seen labels. Verdicts
    replace targets and weigh three times as much. These numbers were chosen on labels made
    pseudo-unseen among training items of four corpora; without a pool nothing changes.

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
        self.pool_classifier_: WeightedRidge | None = None
        self.direct_ = counts_of(Y) > 0
        truth = np.asarray(Y[:, self.direct_].toarray(), dtype=np.float64)
        self.classifier_ = self._fit_ridge(X, truth, draw_seed(generator))
        self.penalty_ = self.penalties[0]
        if self.direct_.all():
            return
        sets = np.asarray(Z.toarray(), dtype=np.float64)
        inputs = sets[:, self.direct_]
        folds = fold_numbers(len(truth), self.n_folds, generator, self.groups_)
        predicted = out_of_fold(self.classifier_, X, truth, folds)

        def qualities(hidden: Mask) -> list[float]:
            known, qualities = truth[:, hidden].astype(bool), []
            for penalty in self.penalties:
                weights, intercept = ridge(inputs[:, ~hidden], inputs[:, hidden], penalty)
                scores = predicted[:, ~hidden] @ weights + intercept
                qualities.append(mean_average_precision(known, scores))
            return qualities

        chosen = best_candidate(self.penalties, qualities, truth.shape[1], self.n_folds, generator)
        self.penalty_ = float(chosen)
        self.regression_ = ridge(inputs, sets[:, ~self.direct_], self.penalty_)

    def _fit_pool(self, X: Features, Y: sp.csr_matrix, Z: sp.csr_matrix, pool: Pool) -> None:
        """Teach itself all labels on the pool, in rounds, from its own answers and the verdicts."""
        items = np.asarray(Y.toarray(), dtype=np.float64)
        n, said = len(items), pool.verdicts.toarray()
        shares = label_shares(Y, Z)
        if not self.direct_.all():
            weights, intercept = self.regression_
            items[:, ~self.direct_] = np.clip(items[:, self.direct_] @ weights + intercept, 0, 1)
        heavy = sp.vstack([no_verdicts(*items.shape), abs(pool.verdicts)], "csr")
        hard = np.where(self.direct_, _HARD_SEEN, _HARD)
        learner = WeightedRidge(
            self.classifier_, stacked(X, pool.X), as_generator(self.random_state)
        )
        scores = self._scores(pool.X)
        for _ in range(_N_ROUNDS):
            guessed = np.where(said == 0, self_targets(scores, shares, hard), said > 0)
            scores = self._joined(learner.fit(np.vstack([items, guessed]), heavy)[n:])
        learner.forget_training()
        self.pool_classifier_ = learner

    def _joined(self, predicted: Matrix) -> Matrix:
        """Join what the pool's classifiers say of other labels with what seen labels say."""
        if not self.direct_.all():
            weights, intercept = self.regression_
            transferred = predicted[:, self.direct_] @ weights + intercept
            own = _POOL_SHARE * predicted[:, ~self.direct_]
            predicted[:, ~self.direct_] = own + (1 - _POOL_SHARE) * transferred
        return predicted

    def _scores(self, X: Features) -> Matrix:
        """Predict seen labels from the features and the others from the seen ones."""
        if self.pool_classifier_ is not None:
            return self._joined(self.pool_classifier_.predict(X))
        scores = np.empty((X.shape[0], len(self.classes_)))
        predicted = self.classifier_.predict(X)
        scores[:, self.direct_] = predicted
        if not self.direct_.all():
            weights, intercept = self.regression_
            scores[:, ~self.direct_] = predicted @ weights + intercept
        return scores


def ridge(inputs: Matrix, targets: Matrix, penalty: float) -> tuple[Matrix, Matrix]:
    """Fit weights (n_inputs, n_targets) and intercepts (n_targets,) by ridge regression.

    Inputs are (m, n_inputs), targets (m, n_targets); the penalty is a multiple of m.
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
    """Return the first penalty of `ridge` with the least squared error over folds (m,) held out."""
    errors = np.zeros(len(penalties))
    for fold in range(int(folds.max()) + 1) if folds.any() else ():
        out = folds == fold
        for place, penalty in enumerate(penalties):
            weights, intercept = ridge(inputs[~out], targets[~out], penalty)
            errors[place] += ((inputs[out] @ weights + intercept - targets[out]) ** 2).sum()
    return float(penalties[int(np.argmin(errors))])
