"""Transduction: its steps against plain formulas, and what a prior may be."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose
from scipy.stats import norm

from polyseme.base.validation import InputError
from polyseme.metrics import roc_auc
from polyseme_experiments.baselines import Popularity, Transduction
from toy_fits import fit_world


@pytest.fixture(scope="module")
def groups():
    """Two groups of items, "red" and "blue", and an unseen "round" that all red ones are."""
    generator = np.random.default_rng(0)
    red = generator.random(200) < 0.5
    noise = generator.normal(size=(200, 6))
    X = noise + 1.2 * red[:, None]
    documents = [["red"] if is_red else ["blue"] for is_red in red]
    sets = [["red", "round"], ["blue"]] * 10
    return X, red, documents, sets


def noisy(truth, seed=1):
    """Return a function that is right about the unseen label a little more often than not."""

    def prior(X):
        means = np.asarray(X).mean(axis=1)
        generator = np.random.default_rng(seed)
        noise = generator.uniform(0, 0.5, size=len(means))
        signal = 0.2 + 0.3 * (means > 0.6)
        undecided = np.full(len(means), 0.5)
        return np.column_stack([undecided, undecided, 0.3 * signal + noise])

    return prior


def test_groups_of_features_correct_a_noisy_prior(groups):
    X, red, documents, sets = groups
    prior = noisy(red)
    baseline = Transduction(prior, mixture_weight=5.0)
    baseline.fit(
        X[:40],
        documents[:40],
        sets,
        X[40:],
    )
    column = baseline.classes_.tolist().index("round")
    truth = red[40:, None]
    prior_scores = prior(X[40:])[:, [column]]
    scores = baseline.decision_function(X[40:])[:, [column]]
    assert roc_auc(truth, prior_scores) < 0.75
    assert roc_auc(truth, scores) > 0.9


@pytest.fixture(scope="module")
def mixture(groups):
    """A baseline that has fitted its normal distributions to all items once."""
    X, red, documents, sets = groups
    baseline = Transduction(noisy(red), mixture_weight=6.0, max_iter=1)
    baseline.fit(X, documents, sets, label_sets_only=True)
    return baseline


@pytest.fixture(scope="module")
def scaled(groups):
    X, _, _, _ = groups
    return (X - X.mean(axis=0)) / X.std(axis=0)


def test_means_are_those_of_the_items_without_and_with_the_label(groups, mixture, scaled):
    _, red, _, _ = groups
    column = mixture.classes_.tolist().index("red")
    mean_without, mean_with = mixture.means_[:, column]
    expected = scaled[~red].mean(axis=0)
    assert_allclose(mean_without, expected, atol=1e-10)
    assert_allclose(mean_with, scaled[red].mean(axis=0), atol=1e-10)


def test_log_ratios_are_those_of_normal_distributions(mixture, scaled):
    column = mixture.classes_.tolist().index("red")
    mean_without, mean_with = mixture.means_[:, column]
    scale = np.sqrt(mixture.variances_)
    log_without = norm.logpdf(scaled, mean_without, scale).sum(axis=1)
    log_with = norm.logpdf(scaled, mean_with, scale).sum(axis=1)
    ratios = mixture._log_ratios(scaled)
    assert_allclose(ratios[:, column], log_with - log_without)


@pytest.mark.parametrize("label", ["red", "blue"])
def test_the_shared_variances_lie_between_those_within_groups_and_the_whole(
    groups, mixture, scaled, label
):
    _, red, _, _ = groups
    carries = red if label == "red" else ~red
    column = mixture.classes_.tolist().index(label)
    means = mixture.means_[carries.astype(int), column]
    within = ((scaled - means) ** 2).mean(axis=0)
    # The unseen label explains some of the variance, too.
    assert (mixture.variances_ >= within - 1e-9).all()
    assert (mixture.variances_ <= 1 + 1e-9).all()


def test_tags_and_verdicts_are_kept_as_they_are(groups):
    X, red, documents, sets = groups
    baseline = Transduction(noisy(red))
    baseline.fit(X[:40], documents[:40], sets, label_sets_only=True)
    labels = baseline.classes_.tolist()
    column = labels.index("round")
    verdicts = np.zeros((160, 3), dtype=int)
    verdicts[0, column] = 1
    verdicts[1, column] = -1
    baseline.fit(
        X[:40],
        documents[:40],
        sets,
        X[40:],
        sp.csr_matrix(verdicts),
    )
    tagged = baseline.probabilities_[:40, labels.index("red")]
    assert np.array_equal(tagged, red[:40])
    confirmed, rejected, open_question = baseline.probabilities_[40:43, column]
    assert confirmed == 1.0
    assert rejected == 0.0
    assert 0 < open_question < 1


def test_nearest_items_count_by_their_cosine(groups):
    X, red, documents, sets = groups

    def fit(neighbour_weight):
        baseline = Transduction(
            noisy(red),
            mixture_weight=0.0,
            neighbour_weight=neighbour_weight,
            n_neighbours=2,
        )
        return baseline.fit(X, documents, sets)

    without = fit(0.0)
    weighted = fit(1.5)
    query = X[:1] + 0.01
    rows = (X - X.mean(axis=0)) / X.std(axis=0)
    row = (query[0] - X.mean(axis=0)) / X.std(axis=0)
    lengths = np.linalg.norm(rows, axis=1) * np.linalg.norm(row)
    cosines = rows @ row / lengths
    nearest = np.argsort(-cosines)[:2]
    votes = 2 * weighted.probabilities_[nearest] - 1
    expected = 1.5 * cosines[nearest] @ votes / 2
    difference = weighted.decision_function(query) - without.decision_function(query)
    assert_allclose(difference[0], expected)


def test_another_baseline_may_be_the_prior(world):
    baseline = Transduction(
        Popularity(),
        mixture_weight=0.0,
        neighbour_weight=0.0,
        random_state=0,
    )
    fit_world(baseline, world)
    assert isinstance(baseline.prior_, Popularity)
    scores = baseline.decision_function(world.X_test)
    ranges = np.ptp(scores, axis=0)
    assert ranges.max() < 1e-9


@pytest.mark.parametrize(
    ("prior", "message"),
    [
        ("costa", "must be a baseline or a function; got str"),
        (lambda X: np.zeros((len(X), 2)), r"shape \(200, 3\)"),
        (lambda X: np.full((len(X), 3), 7.0), "must give probabilities"),
    ],
)
def test_a_bad_prior_gets_one_sentence(prior, message, groups):
    X, _, documents, sets = groups
    baseline = Transduction(prior)
    with pytest.raises(InputError, match=message):
        baseline.fit(X, documents, sets, label_sets_only=True)
