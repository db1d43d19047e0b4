"""One generative model of labels and of their co-occurrences: unseen labels share its factors.

In: features and labels of instances, and label sets. Out: scores of labels as inner products of a
vector that the features predict and of vectors that explain both matrices.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.special import logit

from polyseme.base.validation import RandomState, as_generator, draw_seed
from polyseme.metrics import mean_average_precision
from polyseme_experiments.baselines.base import Features, Mask, Matrix, counts_of
from polyseme_experiments.baselines.pool import (
    Pool,
    PoolBaseline,
    WeightedRidge,
    label_shares,
    level_shifts,
    stacked,
)
from polyseme_experiments.baselines.tuning import N_HIDDEN_GROUPS, best_candidate

# To choose the setting: instances at most, and rounds.
_SEARCH_ROWS = 600
_SEARCH_ITER = 5
_BLOCK_LABELS = 32  # labels' vectors that are updated at once, given all others
_LEAST_SHARE = 1e-4  # of label sets with a label, and expected count of a pair


class Setting(NamedTuple):
    """What is chosen on labels made pseudo-unseen."""

    n_components: int  # of all vectors
    item_precision: float  # of items' vectors around those that the features predict
    label_precision: float  # of labels' vectors around 0
    cooccurrence_weight: float  # of a pair of labels, where an instance and its label weigh 1
    dispersion: float  # of the negative binomial distribution of counts


# Compared by the mean average precision of pseudo-unseen labels, on at most 600 instances; the
# first of equals wins. See `tuning` for the grids of other baselines.
SETTINGS = (
    Setting(32, 1.0, 10.0, 1.0, 1.0),
    Setting(16, 1.0, 10.0, 1.0, 1.0),
    Setting(64, 1.0, 10.0, 1.0, 1.0),
    Setting(32, 1.0, 30.0, 1.0, 1.0),
    Setting(32, 1.0, 10.0, 0.1, 1.0),
    Setting(32, 1.0, 10.0, 1.0, 10.0),
)


class JointFactors(PoolBaseline):
    """Factorise labels of instances and co-occurrences of labels together.

    Whether instance n carries label l is ``Bernoulli(σ(u_n · v_l + b_l))`` and how many label sets
    hold labels l and k is ``NegativeBinomial(r, σ(v_l · v_k + o_lk))``, with ``u_n`` normal around
    what the features predict and ``v_l`` normal around 0. A label that no instance carries has its
    vector from co-occurrences alone and is scored as any other.

    Parameters
    ----------
    settings : sequence of Setting
        Candidates; the best on seen labels made pseudo-unseen, a quarter at a time, is used.
    max_iter : int
        Rounds of expectation and maximisation.
    random_state : int, numpy Generator or None

    Attributes
    ----------
    setting_ : Setting
    label_vectors_ : float64 array, shape (n_labels, n_components)
    offsets_ : float64 array, shape (n_labels,)
        ``b_l``: while learning the logit of the label's share of the label sets, then that with
        which items are expected to carry it as often.
    regression_ : WeightedRidge
        From features to items' vectors.

    Notes
    -----
    Pólya-Gamma variables make both likelihoods quadratic given their expectation, so each step is
    in closed form: items' vectors, labels' vectors (32 at a time, given all others), and the
    regression. What the paper's abstract does not settle is ours: inner products of labels' own
    vectors for pairs, the offsets (``b_l`` above, and for pairs ``o_lk``, the count that
    independent labels would have), the start at the leading directions of what exceeds that count,
    a Gaussian kernel in place of a linear map, and prior means of items' vectors that leave the
    item itself out, without which a kernel would fit these too well.

    Pairs that were not observed carry no weight. So untagged items teach nothing here, unless they
    have verdicts: these are observed entries of the label matrix, and weigh as much as a tag does.
    Labels that no label set holds have no co-occurrences; where instances carry them these teach
    them.

    References
    ----------
    A. Gaure, A. Gupta, V. K. Verma, P. Rai: A Probabilistic Framework for Multi-Label Learning with
    Unseen Labels, UAI 2017; N. Polson, J. Scott, J. Windle: Bayesian Inference for Logistic Models
    Using Pólya-Gamma Latent Variables, 2013.
    """

    ranges: ClassVar = {"max_iter": {"low": 1, "whole": True}}

    def __init__(
        self,
        settings: Sequence[Setting] = SETTINGS,
        max_iter: int = 15,
        random_state: RandomState = None,
    ) -> None:
        self.settings = settings
        self.max_iter = max_iter
        self.random_state = random_state

    def _fit(self, X: Features, Y: sp.csr_matrix, Z: sp.csr_matrix) -> None:
        """Choose the setting on pseudo-unseen labels, then factorise."""
        generator = as_generator(self.random_state)
        direct = counts_of(Y) > 0
        labels = np.asarray(Y.toarray(), dtype=np.float64)
        observed = np.broadcast_to(direct, labels.shape)
        shares = label_shares(Y, Z)
        self._shares = np.clip(shares, _LEAST_SHARE, 1 - _LEAST_SHARE)
        self._offsets = logit(self._shares)
        sets_by_label = Z.T.astype(np.float64)
        pair_counts = (sets_by_label @ Z).toarray()
        n_sets = Z.shape[0]
        self._pairs = Pairs(np.asarray(pair_counts), n_sets)
        self._mapper = self._fit_ridge(X, labels[:, direct], draw_seed(generator))
        self.setting_ = Setting(*self.settings[0])
        if len(self.settings) > 1 and direct.sum() > 1 and len(labels) > 1:
            self.setting_ = self._choose(X, labels, direct, generator)
        self._factorise(X, labels, observed, generator)

    def _fit_pool(self, X: Features, Y: sp.csr_matrix, Z: sp.csr_matrix, pool: Pool) -> None:
        """Factorise anew with the verdicts as observed labels of the pool's items."""
        judged_rows = np.flatnonzero(np.diff(pool.verdicts.indptr))
        if not len(judged_rows):
            return
        verdicts = pool.verdicts[judged_rows].toarray()
        direct = counts_of(Y) > 0
        observed_instances = np.broadcast_to(direct, Y.shape)
        observed = np.vstack([observed_instances, verdicts != 0])
        labels = np.vstack([Y.toarray(), verdicts > 0]).astype(np.float64)
        rows = stacked(X, pool.X[judged_rows])
        generator = as_generator(self.random_state)
        self._factorise(rows, labels, observed, generator)

    def _factorise(
        self, X: Features, labels: Matrix, observed: Mask, generator: np.random.Generator
    ) -> None:
        """Learn labels' vectors and the regression with the chosen setting."""
        self.regression_ = WeightedRidge(self._mapper, X, generator)
        self.label_vectors_, predicted = factorise(
            labels,
            observed,
            self._offsets,
            self._pairs,
            self.regression_,
            self.setting_,
            self.max_iter,
        )
        self.regression_.forget_training()
        logits = predicted @ self.label_vectors_.T + self._offsets
        self.offsets_ = self._offsets + level_shifts(logits, self._shares)

    def _choose(
        self, X: Features, labels: Matrix, direct: Mask, generator: np.random.Generator
    ) -> Setting:
        """Choose the setting that ranks instances best for labels made pseudo-unseen."""
        rows = np.sort(generator.permutation(len(labels))[:_SEARCH_ROWS])
        regression = WeightedRidge(self._mapper, X[rows], generator)
        truth = labels[rows]
        columns = np.flatnonzero(direct)

        def qualities(hidden: Mask) -> list[float]:
            hidden_columns = columns[hidden]
            observed = np.broadcast_to(direct, truth.shape).copy()
            observed[:, hidden_columns] = False
            carried = truth[:, hidden_columns].any(axis=0)
            tested = hidden_columns[carried]
            if not len(tested):
                return [0.0] * len(self.settings)
            tested_truth = truth[:, tested] > 0
            setting_qualities = []
            for setting in self.settings:
                vectors, predicted = factorise(
                    truth,
                    observed,
                    self._offsets,
                    self._pairs,
                    regression,
                    Setting(*setting),
                    _SEARCH_ITER,
                )
                scores = predicted @ vectors[tested].T + self._offsets[tested]
                quality = mean_average_precision(tested_truth, scores)
                setting_qualities.append(quality)
            return setting_qualities

        n_seen = len(columns)
        best = best_candidate(self.settings, qualities, n_seen, N_HIDDEN_GROUPS, generator)
        return Setting(*best)

    def _scores(self, X: Features) -> Matrix:
        """Return the logits of all labels."""
        predicted = self.regression_.predict(X)
        return np.asarray(predicted @ self.label_vectors_.T + self.offsets_)


class Pairs:
    """How often labels occur together, and would if they were independent.

    Attributes
    ----------
    counts : float64 array, shape (n_labels, n_labels)
        Label sets with both labels; on the diagonal, with the one.
    expected : float64 array, shape (n_labels, n_labels)
        What `counts` would be of independent labels, above 0.
    known : bool array, shape (n_labels, n_labels)
        Pairs of different labels that label sets hold; only they count.
    """

    def __init__(self, counts: Matrix, n_sets: int) -> None:
        self.counts = counts
        single = np.diag(counts)
        products = np.outer(single, single)
        expected = products / n_sets
        self.expected = np.maximum(expected, _LEAST_SHARE)
        # A label says nothing of itself, and labels without label sets nothing of others.
        has_sets = single > 0
        self.known = np.outer(has_sets, has_sets)
        np.fill_diagonal(self.known, False)

    def start(self, n_components: int) -> Matrix:
        """Return vectors (n_labels, n_components) whose products come nearest to the excess.

        That is the logarithm of how much more often labels occur together than independent ones.
        """
        ratios = (self.counts + 1) / (self.expected + 1)
        excess = np.log(ratios) * self.known
        eigenvalues, directions = np.linalg.eigh(excess)
        leading = np.argsort(-eigenvalues)[:n_components]
        leading_values = np.maximum(eigenvalues[leading], 1e-3)
        lengths = np.sqrt(leading_values)
        n_labels = len(excess)
        n_leading = len(leading)
        vectors = np.zeros((n_labels, n_components))
        vectors[:, :n_leading] = directions[:, leading] * lengths
        return vectors


def factorise(
    labels: Matrix,
    observed: Mask,
    offsets: Matrix,
    pairs: Pairs,
    regression: WeightedRidge,
    setting: Setting,
    n_iter: int,
) -> tuple[Matrix, Matrix]:
    """Find the vectors of labels and items by expectation maximisation; see `JointFactors`.

    Parameters
    ----------
    labels : ndarray of shape (n, n_labels)
        0 or 1, of items.
    observed : bool ndarray of shape (n, n_labels)
        Where `labels` count.
    offsets : ndarray of shape (n_labels,)
    pairs : Pairs
    regression : WeightedRidge
        Over the items' features; it is fitted anew in each round, and stays as the last one left
        it.
    setting : Setting
    n_iter : int
        Rounds.

    Returns
    -------
    vectors : ndarray of shape (n_labels, n_components)
        Of labels.
    predicted : ndarray of shape (n, n_components)
        Of items, predicted from the features by a regression that leaves the item out.
    """
    vectors = pairs.start(setting.n_components)
    predicted = np.zeros((len(labels), setting.n_components))
    signs = np.where(observed, labels - 0.5, 0.0)
    items = predicted
    for _ in range(n_iter):
        # Items' vectors, given the labels'.
        logits = items @ vectors.T + offsets
        weights = np.where(observed, _expected_weight(logits), 0.0)
        pulls = signs - weights * offsets
        systems = weights @ _squares(vectors)
        right = pulls @ vectors + setting.item_precision * predicted
        items = _solve(systems, right, setting.item_precision)

        # The regression from features to items' vectors.
        predicted = regression.fit(items)

        # Labels' vectors, a block at a time, given the items' and all other labels'.
        logits = items @ vectors.T + offsets
        weights = np.where(observed, _expected_weight(logits), 0.0)
        pulls = signs - weights * offsets
        systems = weights.T @ _squares(items)
        right = pulls.T @ items
        for start in range(0, len(vectors), _BLOCK_LABELS):
            block = slice(start, start + _BLOCK_LABELS)
            pair_weights, pair_pulls = _pair_terms(block, vectors, pairs, setting)
            block_systems = systems[block] + pair_weights @ _squares(vectors)
            block_right = right[block] + pair_pulls @ vectors
            vectors[block] = _solve(block_systems, block_right, setting.label_precision)
    return vectors, predicted


def _pair_terms(
    block: slice, vectors: Matrix, pairs: Pairs, setting: Setting
) -> tuple[Matrix, Matrix]:
    """Return weights and pulls of all labels' vectors on those of a block of labels.

    Both are (n_block, n_labels): what pairs add to the system and the right-hand side of the ridge
    regression for each label's vector, under ``NegativeBinomial(r, σ(v_l · v_k + o_lk))`` with the
    setting's dispersion r.
    """
    counts = pairs.counts[block]
    dispersion = setting.dispersion
    pair_weights = setting.cooccurrence_weight * pairs.known[block]
    offsets = np.log(pairs.expected[block] / dispersion)
    logits = vectors[block] @ vectors.T + offsets
    trials = pair_weights * (counts + dispersion)
    weights = trials * _expected_weight(logits)
    signs = pair_weights * (counts - dispersion) / 2
    pulls = signs - weights * offsets
    return weights, pulls


def _expected_weight(logits: Matrix) -> Matrix:
    """Return the mean of Pólya-Gamma variables PG(1, ψ), ``tanh(ψ / 2) / (2 ψ)``."""
    safe = np.where(np.abs(logits) < 1e-4, 1e-4, logits)
    return np.asarray(np.tanh(safe / 2) / (2 * safe))


def _squares(points: Matrix) -> Matrix:
    """Return the products of points' coordinates (n, d), each pair once, (n, d (d + 1) / 2)."""
    first, second = np.triu_indices(points.shape[1])
    return points[:, first] * points[:, second]


def _solve(products: Matrix, right: Matrix, precision: float) -> Matrix:
    """Solve a ridge regression for each row, its system laid out as by `_squares`: (n, d)."""
    n, d = right.shape
    first, second = np.triu_indices(d)
    systems = np.empty((n, d, d))
    systems[:, first, second] = products
    systems[:, second, first] = products
    diagonal = np.arange(d)
    systems[:, diagonal, diagonal] += precision
    solutions = np.linalg.solve(systems, right[:, :, None])
    return np.asarray(solutions[:, :, 0])
