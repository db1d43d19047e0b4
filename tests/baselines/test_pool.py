"""What baselines learn from untagged items and verdicts, and the regressions behind it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose
from scipy.special import expit
from sklearn.base import clone
from sklearn.kernel_ridge import KernelRidge

from polyseme._validation import InputError
from polyseme.baselines import JointFactors, Transduction, TunedCosta
from polyseme.baselines.pool import (
    VERDICT_WEIGHT,
    WeightedRidge,
    level_shifts,
    logits_of,
    self_targets,
    stacked,
)
from polyseme.metrics import concept_map
from polyseme.published.mapping import InstanceMapper

LEARNERS = {
    "joint factors": JointFactors([(8, 1.0, 1.0, 1.0, 1.0)], 4, random_state=0),
    "transduction": Transduction(random_state=0),
    "tuned COSTA": TunedCosta(random_state=0),
}
N_TAGGED = 25


@pytest.fixture(scope="module")
def few(world):
    """Features and tags of few instances, and features of the others."""
    return world.X[:N_TAGGED], world.documents[:N_TAGGED], world.X[N_TAGGED:]


def quality_of_unseen(fitted, world):
    unseen = np.isin(fitted.classes_, world.unseen)
    truth = world.truth(fitted.classes_)
    scores = fitted.decision_function(world.X_test)
    return concept_map(truth[:, unseen], scores[:, unseen])


# --- the contract ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", LEARNERS)
def test_no_pool_is_as_ever_and_a_second_fit_forgets_the_first(name, few, world):
    X, documents, pool = few
    plain = clone(LEARNERS[name]).fit(X, documents, world.label_sets, label_sets_only=True)
    again = clone(LEARNERS[name])
    verdicts = np.ones((len(pool), len(plain.classes_)), dtype=int)
    again.fit(X, documents, world.label_sets, pool, verdicts, label_sets_only=True)
    taught = again.decision_function(world.X_test)
    again.fit(X, documents, world.label_sets, label_sets_only=True)
    expected = plain.decision_function(world.X_test)
    assert np.array_equal(again.decision_function(world.X_test), expected)
    assert not np.allclose(taught, expected)


@pytest.mark.parametrize("name", LEARNERS)
def test_a_sparse_pool_teaches_the_same(name, few, world):
    X, documents, pool = few
    dense, sparse = (
        clone(LEARNERS[name]).fit(X, documents, world.label_sets, form(pool))
        for form in (np.asarray, sp.csr_matrix)
    )
    scores = [one.decision_function(world.X_test) for one in (dense, sparse)]
    assert_allclose(*scores)


@pytest.mark.parametrize(
    ("verdicts", "message"),
    [
        (np.zeros((3, 2)), r"got shape \(3, 2\)"),
        (np.full((275, 26), 2), r"must hold 1 \(yes\), -1 \(no\) or 0"),
    ],
)
def test_bad_verdicts_get_one_sentence(verdicts, message, few, world):
    X, documents, pool = few
    with pytest.raises(InputError, match=message):
        TunedCosta().fit(X, documents, world.label_sets, pool, verdicts, label_sets_only=True)


def test_verdicts_without_a_pool_and_other_features_get_one_sentence(few, world):
    X, documents, pool = few
    with pytest.raises(InputError, match="give these as `unlabelled`"):
        TunedCosta().fit(X, documents, verdicts=np.zeros((1, 1)))
    with pytest.raises(InputError, match="expecting 5 features"):
        TunedCosta().fit(X, documents, unlabelled=pool[:, :4])


# --- what is learned ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["transduction", "tuned COSTA"])
def test_a_pool_finds_unseen_labels_better_where_features_are_blurred(name, world):
    gains = []
    for seed in range(3):
        blur = np.random.default_rng(seed).normal(0, 0.7, size=(2, *world.X.shape))
        n_test = len(world.X_test)
        other = replace(world, X=world.X + blur[0], X_test=world.X_test + blur[1, :n_test])
        tagged = (other.X[:N_TAGGED], other.documents[:N_TAGGED], other.label_sets)
        without, pooled = (
            quality_of_unseen(clone(LEARNERS[name]).fit(*tagged, more, label_sets_only=True), other)
            for more in (None, other.X[N_TAGGED:])
        )
        gains.append(pooled - without)
    assert np.mean(gains) > 0.03


@pytest.mark.parametrize("name", LEARNERS)
def test_verdicts_move_a_label_to_where_people_say_it_is(name, few, world):
    # Of an unseen label, people say the contrary of what label sets let expect.
    X, documents, pool = few
    plain = clone(LEARNERS[name]).fit(X, documents, world.label_sets, pool, label_sets_only=True)
    column = plain.classes_.tolist().index(world.unseen[0])
    scores = plain.decision_function(pool)[:, column]
    contrary = np.where(scores > np.quantile(scores, 0.8), -1, 1)
    verdicts = sp.lil_matrix((len(pool), len(plain.classes_)), dtype=int)
    verdicts[::2, column] = contrary[::2, None]
    taught = clone(LEARNERS[name])
    taught.fit(X, documents, world.label_sets, pool, verdicts.tocsr(), label_sets_only=True)
    found = taught.decision_function(pool)[1::2, column]
    yes = contrary[1::2] > 0
    before = scores[1::2][yes].mean() - scores[1::2][~yes].mean()
    assert found[yes].mean() > found[~yes].mean()
    assert before < 0


# --- targets -----------------------------------------------------------------------------------


def test_targets_hold_each_label_as_often_as_documents():
    scores = np.random.default_rng(0).normal(0.3, 0.3, size=(400, 3))
    shares = np.array([0.05, 0.25, 0.7])
    for hard in (0.0, 0.5, np.array([0.0, 0.5, 1.0])):
        assert_allclose(self_targets(scores, shares, hard).mean(axis=0), shares)
    chosen = self_targets(scores, shares, 1.0)
    for column, share in enumerate(shares):
        best = np.argsort(-scores[:, column])[: round(share * 400)]
        assert set(np.flatnonzero(chosen[:, column])) == set(best)


def test_shifts_match_shares_and_logits_keep_the_order_of_all_scores():
    scores = np.linspace(-1, 2, 301)[:, None]
    logits = logits_of(scores)
    assert (np.diff(logits[:, 0]) > 0).all()
    assert_allclose(expit(logits_of(np.array([0.2, 0.9]))), [0.2, 0.9])
    shifted = expit(logits + level_shifts(logits, np.array([0.1])))
    assert_allclose(shifted.mean(), 0.1)


# --- regressions -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def task():
    generator = np.random.default_rng(0)
    X = generator.normal(size=(60, 3))
    targets = np.sin(X @ generator.normal(size=(3, 2))) + 0.3 * generator.normal(size=(60, 2))
    mapper = InstanceMapper(kind="kernel-ridge", gamma=0.2, penalty=0.7, scaling="none")
    return X, targets, mapper.fit(X, targets)


def reference(X, targets, weights=None):
    """Kernel ridge regression with the mean target as its bias, by scikit-learn."""
    ridge = KernelRidge(alpha=0.7, kernel="rbf", gamma=0.2)
    ridge.fit(X, targets - targets.mean(), sample_weight=weights)
    return lambda rows: ridge.predict(rows) + targets.mean()


def test_equal_weights_are_those_of_the_mapper(task):
    X, targets, mapper = task
    ridge = WeightedRidge(mapper, X[:50], np.random.default_rng(0))
    ridge.fit(targets[:50])
    for column in range(2):
        expected = reference(X[:50], targets[:50, column])(X[50:])
        assert_allclose(ridge.predict(X[50:])[:, column], expected, atol=1e-4)


def test_heavy_targets_weigh_as_scikit_learn_weighs_them(task):
    X, targets, mapper = task
    heavy = np.zeros_like(targets)
    heavy[[3, 8, 20], 0] = heavy[[4, 8], 1] = 1
    ridge = WeightedRidge(mapper, X, np.random.default_rng(0))
    ridge.fit(targets, sp.csr_matrix(heavy))
    for column in range(2):
        weights = np.where(heavy[:, column] > 0, VERDICT_WEIGHT, 1.0)
        expected = reference(X, targets[:, column], weights)(X)
        assert_allclose(ridge.predict(X)[:, column], expected, atol=1e-4)


def test_each_row_is_predicted_without_itself(task):
    X, targets, mapper = task
    mean = targets[:, 0].mean()
    held_out = WeightedRidge(mapper, X, np.random.default_rng(0)).fit(targets)[:, 0]
    for row in range(0, 60, 13):
        others = np.arange(60) != row
        ridge = KernelRidge(alpha=0.7, kernel="rbf", gamma=0.2)
        ridge.fit(X[others], targets[others, 0] - mean)
        assert_allclose(held_out[row], ridge.predict(X[[row]])[0] + mean, atol=1e-4)


def test_landmarks_stand_for_all_rows(task, monkeypatch):
    X, targets, mapper = task
    exact = WeightedRidge(mapper, X, np.random.default_rng(0))
    exact.fit(targets)
    monkeypatch.setattr("polyseme.baselines.pool._MOST_LANDMARKS", 40)
    fewer = WeightedRidge(mapper, X, np.random.default_rng(0))
    fewer.fit(targets)
    assert fewer.coefficients.shape == (40, 2)
    assert_allclose(fewer.predict(X), exact.predict(X), atol=0.1)


def test_rows_are_stacked_as_the_first_ones_are():
    first = np.eye(2)
    second = np.ones((1, 2))
    expected = np.vstack([first, second])
    assert np.array_equal(stacked(first, sp.csr_matrix(second)), expected)
    assert np.array_equal(stacked(sp.csr_matrix(first), second).toarray(), expected)
