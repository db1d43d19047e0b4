"""Transduction: probabilities of another model, made to agree with the features' own groups.

In: features of tagged and untagged items, and prior probabilities of labels. Out: probabilities
that a mixture of normal distributions and the nearest items support, too.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from scipy.special import expit
from sklearn.neighbors import NearestNeighbors

from polyseme.base.estimator import copy_of
from polyseme.base.validation import (
    InputError,
    IntArray,
    PolysemeWarning,
    RandomState,
    as_generator,
    draw_seed,
)
from polyseme.documents.corpus import LabelCorpus
from polyseme.published.kernels import Rows, column_statistics, scale_rows
from polyseme_experiments.baselines.base import Baseline, Features, Matrix, counts_of
from polyseme_experiments.baselines.costa import TunedCosta
from polyseme_experiments.baselines.pool import (
    VERDICT_WEIGHT,
    Pool,
    PoolBaseline,
    label_shares,
    level_shifts,
    logits_of,
    no_verdicts,
    stacked,
)

Prior = Baseline | Callable[[Any], Any]

_LEAST_TOTAL = 1e-3  # of the weights that a mean is divided by
_N_INNER = 5  # updates of the probabilities in each round, as neighbours depend on each other
_LEAST_VARIANCE = 1e-6  # of features in standard deviations


class Transduction(PoolBaseline):
    """Expectation maximisation over tagged and untagged items, with another model as the prior.

    Each label has two normal distributions of features, with it and without, and all share one
    diagonal covariance. An item's probability weighs its prior, these distributions, and the
    probabilities of its nearest items:

        logit z = prior_weight · logit prior + mixture_weight · log-ratio / n_features
                  + neighbour_weight · Σ similarity · (2 z' − 1) / n_neighbours

    Parameters
    ----------
    prior : Baseline or callable, optional
        A baseline, a copy of which is fitted to the same instances and label sets (and whose
        scores, near [0, 1], are shifted to match how often label sets hold each label), or a
        function from features (m, n_features) to probabilities (m, n_labels) in the order of
        `classes_`. None: `TunedCosta()`.
    prior_weight, mixture_weight, neighbour_weight : float
        See above.
    n_neighbours : int
        Nearest items, by cosine, among instances and pool.
    max_iter : int
        Rounds of expectation and maximisation.
    random_state : int, numpy Generator or None
        Seeds the prior where it has no seed of its own.

    Attributes
    ----------
    prior_ : Baseline or callable
        What gives prior probabilities.
    probabilities_ : float64 array, shape (n + n_pool, n_labels)
        Of instances, then of the pool.
    means_ : float64 array, shape (2, n_labels, n_features)
        Of standardised features, without and with each label.
    variances_ : float64 array, shape (n_features,)
        Of standardised features, shared by all labels.

    Notes
    -----
    Labels are known (0 or 1) for instances where some instance carries them, and where there is a
    verdict, which weighs three times as much; all else is estimated. As published, nothing is
    tuned in `fit`; the defaults were chosen on labels made pseudo-unseen among training items of
    four corpora. The published method has one class an item; here each label is a choice between
    two. Labels that no instance and no label set holds keep their prior, which is lowest.

    References
    ----------
    M. Zanella, B. Gérin, I. Ben Ayed: Boosting Vision-Language Models with Transduction, NeurIPS
    2024 (TransCLIP); the zero-shot form.
    """

    ranges: ClassVar = {
        "prior_weight": {"low": 0},
        "mixture_weight": {"low": 0},
        "neighbour_weight": {"low": 0},
        "n_neighbours": {"low": 1, "whole": True},
        "max_iter": {"low": 1, "whole": True},
    }

    def __init__(
        self,
        prior: Prior | None = None,
        prior_weight: float = 1.0,
        mixture_weight: float = 5.0,
        neighbour_weight: float = 1.0,
        n_neighbours: int = 3,
        max_iter: int = 3,
        random_state: RandomState = None,
    ) -> None:
        self.prior = prior
        self.prior_weight = prior_weight
        self.mixture_weight = mixture_weight
        self.neighbour_weight = neighbour_weight
        self.n_neighbours = n_neighbours
        self.max_iter = max_iter
        self.random_state = random_state

    def _fit(self, X: Features, Y: sp.csr_matrix, Z: sp.csr_matrix) -> None:
        """Fit the prior, then estimate on instances alone."""
        seed = draw_seed(as_generator(self.random_state))
        self.prior_: Prior = TunedCosta() if self.prior is None else self.prior
        if isinstance(self.prior_, Baseline):
            self.prior_ = copy_of(self.prior_)
            prior_seed = self.prior_.get_params().get("random_state", seed)
            if prior_seed is None:
                self.prior_.set_params(random_state=seed)
            names = tuple(self.classes_.tolist())
            label_sets = _corpus(names, Z, self.label_set_groups_)
            with warnings.catch_warnings():  # `fit` warned of the same documents already
                warnings.filterwarnings("ignore", ".*have no label", PolysemeWarning)
                documents = _corpus(names, Y, self.groups_)
                self.prior_.fit(X, documents, label_sets, label_sets_only=True)
        elif not callable(self.prior_):
            raise InputError(
                "`prior` of `Transduction` must be a baseline or a function; got "
                f"{type(self.prior).__name__}."
            )
        n_labels = Y.shape[1]
        empty_pool = Pool(X[:0], no_verdicts(0, n_labels))
        self._estimate(X, Y, Z, empty_pool)

    def _fit_pool(self, X: Features, Y: sp.csr_matrix, Z: sp.csr_matrix, pool: Pool) -> None:
        """Estimate on instances and pool."""
        self._estimate(X, Y, Z, pool)

    def _estimate(self, X: Features, Y: sp.csr_matrix, Z: sp.csr_matrix, pool: Pool) -> None:
        """Alternate between probabilities of items and the distributions of their features.

        Items are the instances (X, with labels Y) and then those of the pool.
        """
        features = stacked(X, pool.X)
        self._mean, self._scale = column_statistics(features, "standard")
        rows = scale_rows(features, "standard", self._mean, self._scale, np.float64)
        self._shifts = np.zeros(Y.shape[1])
        if isinstance(self.prior_, Baseline):
            unshifted = self._prior_logits(features)
            self._shifts = level_shifts(unshifted, label_shares(Y, Z))
        prior = self._prior_logits(features)

        # What is observed, and its weight, each (n_items, n_labels).
        verdicts = pool.verdicts.toarray()
        seen = counts_of(Y) > 0
        observed_instances = np.broadcast_to(seen, Y.shape)
        observed = np.vstack([observed_instances, verdicts != 0])
        labels = np.vstack([Y.toarray(), verdicts > 0]).astype(np.float64)
        verdict_weights = np.where(verdicts == 0, 1.0, VERDICT_WEIGHT)
        weights = np.vstack([np.ones(Y.shape), verdict_weights])

        n = len(labels)
        n_neighbours = min(self.n_neighbours, max(n - 1, 1))
        search = NearestNeighbors(n_neighbors=n_neighbours, metric="cosine", algorithm="brute")
        self._neighbours = search.fit(rows)
        queries = None if n > 1 else rows  # a single item has no other neighbour than itself
        affinity = self._affinity(queries)
        affinity = (affinity + affinity.T) / 2

        # Expectation and maximisation.
        probabilities = np.where(observed, labels, expit(prior))
        for _ in range(self.max_iter):
            self._maximise(rows, probabilities, weights)
            support = self.prior_weight * prior + self._log_ratios(rows)
            for _ in range(_N_INNER):
                votes = affinity @ (2 * probabilities - 1)
                logits = support + self.neighbour_weight * votes
                probabilities = np.where(observed, labels, expit(logits))
        self.probabilities_ = probabilities

    def _maximise(self, rows: Rows, probabilities: Matrix, weights: Matrix) -> None:
        """Set means and variances by standardised features (n, n_features) of the items.

        Probabilities that items have labels, and the weights of these, are (n, n_labels).
        """
        means = []
        explained_squares = np.zeros(rows.shape[1])
        weights_without = weights * (1 - probabilities)
        weights_with = weights * probabilities
        for class_weights in (weights_without, weights_with):
            totals = np.maximum(class_weights.sum(axis=0), _LEAST_TOTAL)
            totals = totals[:, None]
            sums = np.asarray(rows.T @ class_weights).T
            mean = sums / totals
            means.append(mean)
            explained_squares += (totals * mean**2).sum(axis=0)
        self.means_ = np.stack(means)
        squares = rows.multiply(rows) if sp.issparse(rows) else rows**2
        row_weights = weights.sum(axis=1)
        total_squares = np.asarray(squares.T @ row_weights).ravel()
        residual_squares = total_squares - explained_squares
        variances = residual_squares / weights.sum()
        self.variances_ = np.maximum(variances, _LEAST_VARIANCE)

    def _log_ratios(self, rows: Rows) -> Matrix:
        """Return the mixture's part of the logits of items, (n, n_labels).

        How much likelier standardised features (n, n_features) are with each label than without it,
        divided by their number and times the mixture's weight.
        """
        mean_without, mean_with = self.means_
        differences = mean_with - mean_without
        slopes = differences / self.variances_
        square_differences = mean_with**2 - mean_without**2
        scaled_squares = square_differences / self.variances_
        levels = scaled_squares.sum(axis=1) / 2
        log_ratios = np.asarray(rows @ slopes.T) - levels
        n_features = rows.shape[1]
        weight = self.mixture_weight / n_features
        return np.asarray(weight * log_ratios)

    def _affinity(self, rows: Rows | None) -> sp.csr_matrix:
        """Return cosines of rows and their nearest items, divided by their number, (n, n_items).

        Negative ones count as 0. For None the rows are the items, none its own neighbour.
        """
        distances, columns = self._neighbours.kneighbors(rows)
        n, n_neighbours = distances.shape
        cosines = np.maximum(1.0 - distances, 0.0)
        shares = cosines / n_neighbours
        indptr = np.arange(0, shares.size + 1, n_neighbours)
        entries = (shares.ravel(), columns.ravel(), indptr)
        n_items = self._neighbours.n_samples_fit_
        return sp.csr_matrix(entries, shape=(n, n_items))

    def _prior_logits(self, X: Features) -> Matrix:
        """Return the logits of the prior, (n, n_labels)."""
        if isinstance(self.prior_, Baseline):
            scores = self.prior_.decision_function(X)
        else:
            scores = np.asarray(self.prior_(X), dtype=np.float64)
            shape = (X.shape[0], len(self.classes_))
            if scores.shape != shape or not ((scores >= 0) & (scores <= 1)).all():
                raise InputError(
                    f"`prior` of `Transduction` must give probabilities in shape {shape}, a column "
                    f"for each of `classes_`; got shape {scores.shape}."
                )
        logits = logits_of(scores)
        return logits + self._shifts

    def _scores(self, X: Features) -> Matrix:
        """Return logits that weigh prior, distributions and nearest items."""
        rows = scale_rows(X, "standard", self._mean, self._scale, np.float64)
        affinity = self._affinity(rows)
        signed_probabilities = 2 * self.probabilities_ - 1
        votes = affinity @ signed_probabilities
        weighted_prior = self.prior_weight * self._prior_logits(X)
        support = weighted_prior + self._log_ratios(rows)
        weighted_votes = self.neighbour_weight * votes
        return np.asarray(support + weighted_votes)


def _corpus(labels: tuple[str, ...], matrix: sp.csr_matrix, groups: IntArray | None) -> LabelCorpus:
    """Return a corpus of a checked matrix (n, n_labels) over labels, as another `fit` takes it."""
    ids = tuple(map(str, range(matrix.shape[0])))
    group_names = None
    if groups is not None:
        group_names = tuple(map(str, groups))
    return LabelCorpus(
        labels,
        matrix.astype(bool),
        ids,
        groups=group_names,
        numbered=True,
        normalize=False,
    )
