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

from polyseme.base.estimator import Estimator, copy_of
from polyseme.base.folds import fold_numbers, group_numbers
from polyseme.base.validation import (
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
from polyseme.documents.corpus import Documents, as_corpus, check_corpus, normalize_label
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
from polyseme_experiments.baselines.base import (
    Baseline,
    Features,
    Mask,
    Matrix,
    counts_of,
    out_of_fold,
)
from polyseme_experiments.baselines.pool import (
    Pool,
    PoolBaseline,
    WeightedRidge,
    label_shares,
    no_verdicts,
    self_targets,
    stacked,
)
from polyseme_experiments.baselines.tuning import (
    COSTA_PENALTIES,
    SVM_BOUNDS,
    TUNED_COSTA_PENALTIES,
    best_candidate,
)

TRANSFERS = ("regression", "normalised", "dice", "square-root")

_N_FOLDS = 3  # of label sets, to choose the penalty of `Costa`
_LOWEST_SCORE = 1e-6  # of a seen or unseen label in `Costa`, before priors
# To choose C and gamma: instances and labels that are compared with at most, and how many of these
# instances should carry a label.
_SEARCH_ROWS = 1500
_SEARCH_LABELS = 16
_ENOUGH_CARRIERS = 10
_BLOCK_BYTES = 2**28  # of a block of the kernel: bounds the memory
# Learning from a pool, chosen on labels made pseudo-unseen among training items of four corpora:
# rounds; how much of a seen and of another label's target is whether an item is among the
# likeliest; how much of an unseen label's score is its own classifier's, the rest being transferred
# from seen labels.
_N_ROUNDS = 4
_HARD_SHARE_SEEN = 0.25
_HARD_SHARE = 0.5
_POOL_SHARE = 0.5


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
        tagged = as_corpus(y)
        corpus = check_corpus(tagged, owner=owner, n_labels=1)
        n = len(corpus)
        features = check_instances(X, n, owner=owner)
        groups = group_numbers(corpus.groups, n)
        matrix = corpus.matrix
        labels = corpus.labels
        return self.fit_matrix(features, matrix, labels, groups)

    def fit_matrix(
        self, X: Rows, Y: sp.csr_matrix, labels: Sequence[str], groups: IntArray | None = None
    ) -> Self:
        """Learn from checked features (n, n_features) and their labels (n, n_labels); see `fit`."""
        above_zero = {"low": 0, "above": True}
        ranges = {"C": above_zero, "gamma": above_zero, "n_folds": {"low": 2, "whole": True}}
        check_ranges(self, ranges)
        columns = np.flatnonzero(counts_of(Y)).tolist()
        columns.sort(key=lambda column: labels[column])
        self.classes_ = np.array([labels[column] for column in columns], dtype=object)
        truth = np.asarray(Y[:, columns].toarray(), dtype=bool)
        n = len(truth)
        carriers = truth.sum(axis=0)
        self.shares_ = carriers / n
        self.constant_ = (carriers < 2) | (carriers == n)
        self.n_features_in_ = X.shape[1]
        self._mean, self._scale = column_statistics(X, "standard")
        rows = scale_rows(X, "standard", self._mean, self._scale, np.float64)
        generator = as_generator(self.random_state)
        self.C_, self.gamma_ = self._search(rows, truth, groups, generator)

        # Fit a machine per label, and sigmoids to held-out decisions.
        folds = fold_numbers(n, self.n_folds, generator, groups)
        kernel = np.asarray(pairwise_squared_distances(rows), dtype=np.float64)
        rbf_from_squared(kernel, self.gamma_, out=kernel)
        learned = np.where(self.constant_, False, truth)
        coefficients, self.intercept_ = _fit_machines(kernel, learned, self.C_)
        if folds.any():
            decisions = _held_out_decisions(kernel, learned, folds, self.C_)
        else:
            decisions = kernel @ coefficients + self.intercept_
        self.slope_, self.offset_ = _fit_platt(decisions, learned)
        support = np.flatnonzero(coefficients.any(axis=1))
        self.support_ = rows[support]
        self.dual_coef_ = coefficients[support]
        return self

    def predict_proba(self, X: object) -> Matrix:
        """Return the probability of each label of `classes_` for each instance, (n, n_labels)."""
        check_fitted(self, "slope_")
        owner = type(self).__name__
        features = check_features(X, owner=owner, n_features=self.n_features_in_)
        n = features.shape[0]
        n_labels = len(self.classes_)
        n_support = self.support_.shape[0]
        probabilities = np.empty((n, n_labels))
        for block in row_blocks(n, 8 * n_support, _BLOCK_BYTES):
            rows = features[block]
            if sp.issparse(rows):
                rows = rows.toarray()
            scaled = scale_rows(rows, "standard", self._mean, self._scale, np.float64)
            decisions = rbf_predict(
                np.asarray(scaled),
                self.support_,
                self.gamma_,
                self.dual_coef_,
                self.intercept_,
            )
            logits = self.slope_ * decisions + self.offset_
            probabilities[block] = expit(logits)
        constant = self.constant_
        probabilities[:, constant] = self.shares_[constant]
        return probabilities

    def _search(
        self, rows: Rows, truth: Mask, groups: IntArray | None, generator: np.random.Generator
    ) -> tuple[float, float]:
        """Choose C and gamma where they are None."""
        widths = kernel_widths(rows, self.gamma, generator)
        bounds = SVM_BOUNDS if self.C is None else (float(self.C),)
        settings = [(bound, width) for width in widths for bound in bounds]
        sample = generator.permutation(len(truth))[:_SEARCH_ROWS]
        columns = _search_labels(truth[sample], generator)
        sample_groups = None if groups is None else groups[sample]
        folds = fold_numbers(len(sample), self.n_folds, generator, sample_groups)
        if len(settings) == 1 or not len(columns) or not folds.any():
            return settings[0]
        sample_truth = truth[np.ix_(sample, columns)]
        distances = pairwise_squared_distances(rows[sample])
        distances = np.asarray(distances, dtype=np.float64)
        qualities = []
        for bound, width in settings:
            kernel = np.asarray(rbf_from_squared(distances, width), dtype=np.float64)
            decisions = _held_out_decisions(kernel, sample_truth, folds, bound)
            quality = mean_average_precision(sample_truth, decisions)
            qualities.append(quality)
        best = int(np.argmax(qualities))
        return settings[best]


def _search_labels(truth: Mask, generator: np.random.Generator) -> IntArray:
    """Draw the labels of the search: frequent enough, or the most frequent ones."""
    carriers = truth.sum(axis=0)
    order = np.argsort(-carriers, kind="stable")
    sorted_carriers = carriers[order]
    learnable = (sorted_carriers >= 2) & (sorted_carriers < len(truth))
    order = order[learnable]
    n_enough = int((carriers[order] >= _ENOUGH_CARRIERS).sum())
    n_eligible = max(n_enough, _SEARCH_LABELS)
    eligible = order[:n_eligible]
    size = min(_SEARCH_LABELS, len(eligible))
    columns = generator.choice(eligible, size, replace=False)
    return np.sort(columns).astype(np.int64)


def _fit_machines(kernel: Matrix, truth: Mask, C: float) -> tuple[Matrix, Matrix]:
    """Fit one machine per label over a kernel (n, n): coefficients (n, n_labels) and biases."""
    coefficients = np.zeros(truth.shape)
    in_any = truth.any(axis=0)
    in_all = truth.all(axis=0)
    # A label that none (or all) of the instances carry has no coefficients and the bias -1 (or 1).
    bias = np.where(in_all, 1.0, -1.0)
    learnable = in_any & ~in_all
    columns = np.flatnonzero(learnable)
    for column in columns:
        carries_label = truth[:, column]
        machine = SVC(C=C, kernel="precomputed")
        machine.fit(kernel, carries_label)
        support = machine.support_
        dual = machine.dual_coef_
        intercept = machine.intercept_
        coefficients[support, column] = dual[0]
        bias[column] = intercept[0]
    return coefficients, bias


def _held_out_decisions(kernel: Matrix, truth: Mask, folds: IntArray, C: float) -> Matrix:
    """Return decision values (n, n_labels) by machines that have not seen the instance's fold."""
    decisions = np.empty(truth.shape)
    n_folds = int(folds.max()) + 1
    for fold in range(n_folds):
        test = np.flatnonzero(folds == fold)
        train = np.flatnonzero(folds != fold)
        train_kernel = kernel[np.ix_(train, train)]
        test_kernel = kernel[np.ix_(test, train)]
        coefficients, bias = _fit_machines(train_kernel, truth[train], C)
        decisions[test] = test_kernel @ coefficients + bias
    return decisions


def _fit_platt(decisions: Matrix, truth: Mask) -> tuple[Matrix, Matrix]:
    """Fit each label's ``1 / (1 + exp(-(slope * decision + offset)))``: slopes and offsets."""
    # Targets are (p + 1) / (p + 2) for the p carriers of a label and 1 / (q + 2) for the q others,
    # which keeps the sigmoid finite where decisions tell the two apart: every instance counts as
    # both, weighted by its target. A slope may come out negative, as in LIBSVM.
    n = len(truth)
    carriers = truth.sum(axis=0)
    positive_target = (carriers + 1) / (carriers + 2)
    negative_target = 1 / (n - carriers + 2)
    targets = np.where(truth, positive_target, negative_target)
    mean_target = targets.mean(axis=0)
    slope = np.zeros_like(mean_target)
    offset = np.log(mean_target / (1 - mean_target))

    centre = decisions.mean(axis=0)
    spread = decisions.std(axis=0)
    varies = spread > 1e-12 * np.maximum(np.abs(centre), 1.0)
    classes = np.repeat([True, False], n)
    for column in np.flatnonzero(varies):
        standardised = (decisions[:, column] - centre[column]) / spread[column]
        inputs = np.tile(standardised, 2)[:, None]
        label_targets = targets[:, column]
        weights = np.concatenate([label_targets, 1 - label_targets])
        model = LogisticRegression(C=np.inf, solver="newton-cholesky", tol=1e-10)
        model.fit(inputs, classes, sample_weight=weights)
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
        self._fit_classifiers(X, Y, seed)
        self._seen = np.flatnonzero(self.kinds_ == "seen")
        self._unseen = np.flatnonzero(self.kinds_ == "unseen")
        self._columns = self._classifier_columns(Y)
        self.priors_ = np.asarray(Z.mean(axis=0)).ravel()
        self.penalty_: float | None = None
        can_regress = len(self._unseen) > 0 and len(self._seen) > 0
        if self.transfer != "regression" or not can_regress:
            self.weights_ = _transfer_weights(Z, self._seen, self._unseen, self.transfer)
            self.intercept_ = np.zeros(len(self._unseen))
            return
        inputs = np.asarray(Z[:, self._seen].toarray(), dtype=np.float64)
        targets = np.asarray(Z[:, self._unseen].toarray(), dtype=np.float64)
        folds = fold_numbers(len(inputs), _N_FOLDS, generator, self.label_set_groups_)
        self.penalty_ = _choose_penalty(inputs, targets, COSTA_PENALTIES, folds)
        self.weights_, self.intercept_ = ridge(inputs, targets, self.penalty_)

    def _fit_classifiers(self, X: Features, Y: sp.csr_matrix, seed: int) -> None:
        """Fit a copy of the classifiers, or check those that are fitted already."""
        if self.fit_classifiers:
            self.classifiers_ = copy_of(self.classifiers or SeenClassifiers())
            if self.classifiers_.random_state is None:
                self.classifiers_.set_params(random_state=seed)
            self.classifiers_.fit_matrix(X, Y, self.classes_.tolist(), self.groups_)
            return
        if self.classifiers is None:
            raise InputError("`fit_classifiers=False` needs fitted `classifiers`; give them.")
        self.classifiers_ = self.classifiers
        check_fitted(self.classifiers_, "slope_")
        n_features = self.classifiers_.n_features_in_
        check_features(X, owner="SeenClassifiers", n_features=n_features)

    def _scores(self, X: Features) -> Matrix:
        """Turn probabilities of seen labels into scores of all but the oov labels."""
        seen_scores = self.classifiers_.predict_proba(X)[:, self._columns]
        unseen_scores = seen_scores @ self.weights_ + self.intercept_
        scores = np.zeros((X.shape[0], len(self.classes_)))
        scores[:, self._seen] = np.clip(seen_scores, _LOWEST_SCORE, 1.0)
        scores[:, self._unseen] = np.clip(unseen_scores, _LOWEST_SCORE, 1.0)
        if self.use_priors:
            totals = scores.sum(axis=1, keepdims=True)
            divisors = np.where(totals > 0, totals, 1.0)
            scores *= self.priors_ / divisors
        return scores

    def _classifier_columns(self, Y: sp.csr_matrix) -> IntArray:
        """Find the classifiers' columns for the seen labels, or raise when labels differ."""
        names = self.classifiers_.classes_.tolist()
        column_by_name = {name: column for column, name in enumerate(names)}
        column_by_key = {normalize_label(name): column for name, column in column_by_name.items()}
        if len(column_by_key) < len(names):  # spellings are told apart
            column_by_key = column_by_name
        keys = []
        for name in self.classes_:
            key = name if name in column_by_key else normalize_label(name)
            keys.append(key)
        carried_keys = {keys[column] for column in np.flatnonzero(counts_of(Y))}
        differing = sorted(carried_keys ^ set(column_by_key))
        if differing:
            raise InputError(
                "`classifiers` of `Costa` and the instances differ in the labels carried: "
                f"{first_few(differing)}; fit them on the same instances."
            )
        columns = [column_by_key[keys[column]] for column in self._seen]
        return np.array(columns, dtype=np.int64)


def _transfer_weights(Z: sp.csr_matrix, seen: IntArray, unseen: IntArray, statistic: str) -> Matrix:
    """Weigh seen labels by what they have in common with each unseen one, (n_seen, n_unseen).

    `seen` and `unseen` are columns of the label sets Z; `statistic` is one of `TRANSFERS`, where
    "regression" counts as "normalised". The weights of an unseen label sum to 1, or are all 0.
    """
    label_sets = Z.astype(np.float64)
    counts = counts_of(Z).astype(np.float64)
    seen_sets = label_sets[:, seen]
    unseen_sets = label_sets[:, unseen]
    pair_counts = (seen_sets.T @ unseen_sets).toarray()
    if statistic == "square-root":
        weights = np.sqrt(pair_counts)
    else:
        sizes = counts[unseen]
        if statistic == "dice":
            sizes = sizes + counts[seen][:, None]
        weights = pair_counts / np.maximum(sizes, 1.0)
    totals = weights.sum(axis=0)
    divisors = np.where(totals > 0, totals, 1.0)
    return np.asarray(weights / divisors)


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
        penalties: Sequence[float] = TUNED_COSTA_PENALTIES,
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
        n, n_direct = truth.shape
        self.classifier_ = self._fit_ridge(X, truth, draw_seed(generator))
        self.penalty_ = self.penalties[0]
        if self.direct_.all():
            return
        sets = np.asarray(Z.toarray(), dtype=np.float64)
        inputs = sets[:, self.direct_]
        folds = fold_numbers(n, self.n_folds, generator, self.groups_)
        predicted = out_of_fold(self.classifier_, X, truth, folds)

        def qualities(hidden: Mask) -> list[float]:
            hidden_truth = truth[:, hidden].astype(bool)
            visible_predicted = predicted[:, ~hidden]
            visible_sets = inputs[:, ~hidden]
            hidden_sets = inputs[:, hidden]
            penalty_qualities = []
            for penalty in self.penalties:
                weights, intercept = ridge(visible_sets, hidden_sets, penalty)
                scores = visible_predicted @ weights + intercept
                quality = mean_average_precision(hidden_truth, scores)
                penalty_qualities.append(quality)
            return penalty_qualities

        best_penalty = best_candidate(self.penalties, qualities, n_direct, self.n_folds, generator)
        self.penalty_ = float(best_penalty)
        self.regression_ = ridge(inputs, sets[:, ~self.direct_], self.penalty_)

    def _fit_pool(self, X: Features, Y: sp.csr_matrix, Z: sp.csr_matrix, pool: Pool) -> None:
        """Learn all labels from the pool by self-training, in rounds, with the verdicts."""
        # Targets of instances: their labels, and what these let expect of other labels.
        instance_targets = np.asarray(Y.toarray(), dtype=np.float64)
        n = len(instance_targets)
        if not self.direct_.all():
            weights, intercept = self.regression_
            expected = instance_targets[:, self.direct_] @ weights + intercept
            instance_targets[:, ~self.direct_] = np.clip(expected, 0, 1)

        shares = label_shares(Y, Z)
        hard_shares = np.where(self.direct_, _HARD_SHARE_SEEN, _HARD_SHARE)
        verdicts = pool.verdicts.toarray()
        # Which targets weigh more: verdicts on the pool, and none of the instances'.
        unweighted = no_verdicts(*instance_targets.shape)
        heavy = sp.vstack([unweighted, abs(pool.verdicts)], "csr")
        rows = stacked(X, pool.X)
        learner = WeightedRidge(self.classifier_, rows, as_generator(self.random_state))
        scores = self._scores(pool.X)
        for _ in range(_N_ROUNDS):
            pseudo_labels = self_targets(scores, shares, hard_shares)
            pool_targets = np.where(verdicts == 0, pseudo_labels, verdicts > 0)
            targets = np.vstack([instance_targets, pool_targets])
            predicted = learner.fit(targets, heavy)
            scores = self._add_transfer(predicted[n:])
        learner.forget_training()
        self.pool_classifier_ = learner

    def _add_transfer(self, predicted: Matrix) -> Matrix:
        """Average predictions (m, n_labels) of other labels with the transfer from seen labels.

        `predicted` are those of the pool's regressions, and are changed in place.
        """
        if self.direct_.all():
            return predicted
        weights, intercept = self.regression_
        transferred = predicted[:, self.direct_] @ weights + intercept
        from_pool = _POOL_SHARE * predicted[:, ~self.direct_]
        from_seen = (1 - _POOL_SHARE) * transferred
        predicted[:, ~self.direct_] = from_pool + from_seen
        return predicted

    def _scores(self, X: Features) -> Matrix:
        """Predict seen labels from the features and the others from the seen ones."""
        if self.pool_classifier_ is not None:
            pool_predicted = self.pool_classifier_.predict(X)
            return self._add_transfer(pool_predicted)
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
    mean_inputs = inputs.mean(axis=0)
    mean_targets = targets.mean(axis=0)
    centred = inputs - mean_inputs
    gram = centred.T @ centred
    gram[np.diag_indices_from(gram)] += penalty * len(inputs)
    right = centred.T @ (targets - mean_targets)
    weights = np.linalg.solve(gram, right)
    intercept = mean_targets - mean_inputs @ weights
    return weights, intercept


def _choose_penalty(
    inputs: Matrix, targets: Matrix, penalties: Sequence[float], folds: IntArray
) -> float:
    """Return the first penalty of `ridge` with the least squared error over folds (m,) held out."""
    if not folds.any():
        return float(penalties[0])
    errors = np.zeros(len(penalties))
    n_folds = int(folds.max()) + 1
    for fold in range(n_folds):
        test = folds == fold
        for candidate, penalty in enumerate(penalties):
            weights, intercept = ridge(inputs[~test], targets[~test], penalty)
            predicted = inputs[test] @ weights + intercept
            residuals = predicted - targets[test]
            errors[candidate] += (residuals**2).sum()
    best = int(np.argmin(errors))
    return float(penalties[best])
