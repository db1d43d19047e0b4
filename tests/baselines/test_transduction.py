"""Transduction: its steps against plain formulas, and what a prior may be."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose
from scipy.stats import norm

from polyseme._validation import InputError
from polyseme.baselines import Popularity, Transduction
from polyseme.metrics import roc_auc


@pytest.fixture(scope="module")
def groups():
    """Two groups of items, "red" and "blue", and an unseen "round" that all red ones are."""
    generator = np.random.default_rng(0)
    red = generator.random(200) < 0.5
    X = generator.normal(size=(200, 6)) + 1.2 * red[:, None]
    documents = [["red"] if one else ["blue"] for one in red]
    sets = [["red", "round"], ["blue"]] * 10
    return X, red, documents, sets


def noisy(truth, seed=1):
    """Return a function that is right about the unseen label a little more often than not."""

    def prior(X):
        right = 0.3 * (np.asarray(X).mean(axis=1) > 0.6) + 0.2
        wild = np.random.default_rng(seed).uniform(0, 0.5, size=len(right))
        probability = 0.3 * right + wild
        return np.column_stack([np.full(len(right), 0.5)] * 2 + [probability])

    return prior


def test_groups_of_features_correct_a_noisy_prior(groups):
    X, red, documents, sets = groups
    prior = noisy(red)
    found = Transduction(prior, mixture_weight=5.0)
    found.fit(X[:40], documents[:40], sets, X[40:])
    column = found.classes_.tolist().index("round")
    before = roc_auc(red[40:, None], prior(X[40:])[:, [column]])
    after = roc_auc(red[40:, None], found.decision_function(X[40:])[:, [column]])
    assert before < 0.75
    assert after > 0.9


def test_log_ratios_and_moments_are_those_of_normal_distributions(groups):
    X, red, documents, sets = groups
    fitted = Transduction(noisy(red), mixture_weight=6.0, max_iter=1)
    fitted.fit(X, documents, sets, label_sets_only=True)
    rows = (X - X.mean(axis=0)) / X.std(axis=0)
    column = fitted.classes_.tolist().index("red")
    for held, mean in zip((~red, red), fitted.means_[:, column], strict=True):
        assert_allclose(mean, rows[held].mean(axis=0), atol=1e-10)
    scale = np.sqrt(fitted.variances_)
    without, having = (
        norm.logpdf(rows, mean, scale).sum(axis=1) for mean in fitted.means_[:, column]
    )
    assert_allclose(fitted._log_ratios(rows)[:, column], having - without)
    spreads = []
    likely = np.hstack([np.stack([~red, red], axis=1)])
    for label, truth in (("red", likely), ("blue", likely[:, ::-1])):
        place = fitted.classes_.tolist().index(label)
        gaps = (rows[:, None] - fitted.means_[:, place]) ** 2
        spreads.append((gaps * truth[:, :, None]).sum(axis=1).mean(axis=0))
    # The covariance is shared by all labels; the unseen one explains some of it, too.
    assert (fitted.variances_ >= np.min(spreads, axis=0) - 1e-9).all()
    assert (fitted.variances_ <= 1 + 1e-9).all()


def test_tags_and_verdicts_are_kept_as_they_are(groups):
    X, red, documents, sets = groups
    verdicts = sp.lil_matrix((160, 3), dtype=int)
    fitted = Transduction(noisy(red)).fit(X[:40], documents[:40], sets, label_sets_only=True)
    column = fitted.classes_.tolist().index("round")
    verdicts[0, column] = 1
    verdicts[1, column] = -1
    fitted.fit(X[:40], documents[:40], sets, X[40:], verdicts.tocsr())
    known = fitted.probabilities_[:40, fitted.classes_.tolist().index("red")]
    assert np.array_equal(known, red[:40])
    assert fitted.probabilities_[40:42, column].tolist() == [1.0, 0.0]
    assert 0 < fitted.probabilities_[42, column] < 1


def test_nearest_items_count_by_their_cosine(groups):
    X, red, documents, sets = groups
    alone, near = (
        Transduction(noisy(red), mixture_weight=0.0, neighbour_weight=weight, n_neighbours=2).fit(
            X, documents, sets
        )
        for weight in (0.0, 1.5)
    )
    query = X[:1] + 0.01
    rows = np.vstack([query, X])
    rows = (rows - X.mean(axis=0)) / X.std(axis=0)
    cosines = rows[1:] @ rows[0] / np.linalg.norm(rows[1:], axis=1) / np.linalg.norm(rows[0])
    nearest = np.argsort(-cosines)[:2]
    expected = 1.5 * cosines[nearest] @ (2 * near.probabilities_[nearest] - 1) / 2
    found = near.decision_function(query) - alone.decision_function(query)
    assert_allclose(found[0], expected)


def test_another_baseline_may_be_the_prior(world):
    fitted = Transduction(Popularity(), mixture_weight=0.0, neighbour_weight=0.0, random_state=0)
    fitted.fit(world.X, world.documents, world.label_sets, label_sets_only=True)
    scores = fitted.decision_function(world.X_test)
    assert isinstance(fitted.prior_, Popularity)
    assert np.ptp(scores, axis=0).max() < 1e-9


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
    with pytest.raises(InputError, match=message):
        Transduction(prior).fit(X, documents, sets, label_sets_only=True)
