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

from polyseme.base.validation import InputError
from polyseme.metrics import concept_map
from polyseme.published.mapping import InstanceMapper
from polyseme_experiments.baselines import JointFactors, Transduction, TunedCosta
from polyseme_experiments.baselines.pool import (
    VERDICT_WEIGHT,
    WeightedRidge,
    level_shifts,
    logits_of,
    self_targets,
    stacked,
)

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
    labels = fitted.classes_
    unseen = np.isin(labels, world.unseen)
    truth = world.truth(labels)
    scores = fitted.decision_function(world.X_test)
    return concept_map(truth[:, unseen], scores[:, unseen])


# --- the contract ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", LEARNERS)
def test_a_second_fit_forgets_the_pool_of_the_first(name, few, world):
    X, documents, pool = few
    plain = clone(LEARNERS[name])
    plain.fit(X, documents, world.label_sets, label_sets_only=True)
    expected = plain.decision_function(world.X_test)

    learner = clone(LEARNERS[name])
    verdicts = np.ones((len(pool), len(plain.classes_)), dtype=int)
    learner.fit(X, documents, world.label_sets, pool, verdicts, label_sets_only=True)
    scores_of_pool = learner.decision_function(world.X_test)
    assert not np.allclose(scores_of_pool, expected)
    learner.fit(X, documents, world.label_sets, label_sets_only=True)
    scores = learner.decision_function(world.X_test)
    assert np.array_equal(scores, expected)


@pytest.mark.parametrize("name", LEARNERS)
def test_a_sparse_pool_teaches_the_same(name, few, world):
    X, documents, pool = few
    dense = clone(LEARNERS[name])
    dense.fit(X, documents, world.label_sets, pool)
    sparse = clone(LEARNERS[name])
    sparse.fit(X, documents, world.label_sets, sp.csr_matrix(pool))
    scores = sparse.decision_function(world.X_test)
    expected = dense.decision_function(world.X_test)
    assert_allclose(scores, expected)


@pytest.mark.parametrize(
    ("verdicts", "message"),
    [
        (np.zeros((3, 2)), r"got shape \(3, 2\)"),
        (np.full((275, 26), 2), r"must hold 1 \(yes\), -1 \(no\) or 0"),
    ],
)
def test_bad_verdicts_get_one_sentence(verdicts, message, few, world):
    X, documents, pool = few
    costa = TunedCosta()
    with pytest.raises(InputError, match=message):
        costa.fit(X, documents, world.label_sets, pool, verdicts, label_sets_only=True)


def test_verdicts_without_a_pool_and_other_features_get_one_sentence(few, world):
    X, documents, pool = few
    costa = TunedCosta()
    with pytest.raises(InputError, match="give these as `unlabelled`"):
        costa.fit(X, documents, verdicts=np.zeros((1, 1)))
    with pytest.raises(InputError, match="expecting 5 features"):
        costa.fit(X, documents, unlabelled=pool[:, :4])


# --- what is learned ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["transduction", "tuned COSTA"])
def test_a_pool_finds_unseen_labels_better_where_features_are_blurred(name, world):
    gains = []
    for seed in range(3):
        generator = np.random.default_rng(seed)
        blur, test_blur = generator.normal(0, 0.7, size=(2, *world.X.shape))
        X = world.X + blur
        X_test = world.X_test + test_blur[: len(world.X_test)]
        blurred = replace(world, X=X, X_test=X_test)
        data = (X[:N_TAGGED], world.documents[:N_TAGGED], world.label_sets)
        plain = clone(LEARNERS[name])
        plain.fit(*data, label_sets_only=True)
        pooled = clone(LEARNERS[name])
        pooled.fit(*data, X[N_TAGGED:], label_sets_only=True)
        quality = quality_of_unseen(plain, blurred)
        pooled_quality = quality_of_unseen(pooled, blurred)
        gains.append(pooled_quality - quality)
    assert np.mean(gains) > 0.03


@pytest.mark.parametrize("name", LEARNERS)
def test_verdicts_move_a_label_to_where_people_say_it_is(name, few, world):
    # Of an unseen label, people say the contrary of what label sets let expect.
    X, documents, pool = few
    plain = clone(LEARNERS[name])
    plain.fit(X, documents, world.label_sets, pool, label_sets_only=True)
    column = plain.classes_.tolist().index(world.unseen[0])
    scores = plain.decision_function(pool)[:, column]
    expected_rows = scores > np.quantile(scores, 0.8)
    contrary = np.where(expected_rows, -1, 1)
    verdicts = np.zeros((len(pool), len(plain.classes_)), dtype=int)
    verdicts[::2, column] = contrary[::2]

    learner = clone(LEARNERS[name])
    learner.fit(
        X,
        documents,
        world.label_sets,
        pool,
        sp.csr_matrix(verdicts),
        label_sets_only=True,
    )
    learned_scores = learner.decision_function(pool)[:, column]
    without_verdict = np.arange(len(pool)) % 2 == 1
    confirmed = without_verdict & (contrary > 0)
    rejected = without_verdict & (contrary < 0)
    assert scores[confirmed].mean() < scores[rejected].mean()
    assert learned_scores[confirmed].mean() > learned_scores[rejected].mean()


# --- targets -----------------------------------------------------------------------------------


@pytest.mark.parametrize("hardness", [0.0, 0.5, np.array([0.0, 0.5, 1.0])], ids=str)
def test_targets_hold_each_label_as_often_as_documents(hardness):
    generator = np.random.default_rng(0)
    scores = generator.normal(0.3, 0.3, size=(400, 3))
    shares = np.array([0.05, 0.25, 0.7])
    targets = self_targets(scores, shares, hardness)
    assert_allclose(targets.mean(axis=0), shares)


def test_hard_targets_are_the_best_scores_of_each_label():
    generator = np.random.default_rng(0)
    scores = generator.normal(0.3, 0.3, size=(400, 3))
    shares = np.array([0.05, 0.25, 0.7])
    targets = self_targets(scores, shares, 1.0)
    for column, share in enumerate(shares):
        order = np.argsort(-scores[:, column])
        n_best = round(share * 400)
        rows = np.flatnonzero(targets[:, column])
        assert set(rows) == set(order[:n_best])


def test_logits_keep_the_order_of_all_scores_and_the_value_of_probabilities():
    scores = np.linspace(-1, 2, 301)
    logits = logits_of(scores)
    assert (np.diff(logits) > 0).all()
    logits_of_probabilities = logits_of(np.array([0.2, 0.9]))
    assert_allclose(expit(logits_of_probabilities), [0.2, 0.9])


def test_shifted_logits_have_the_wanted_share():
    scores = np.linspace(-1, 2, 301)[:, None]
    logits = logits_of(scores)
    shifts = level_shifts(logits, np.array([0.1]))
    probabilities = expit(logits + shifts)
    assert_allclose(probabilities.mean(), 0.1)


# --- regressions -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def task():
    generator = np.random.default_rng(0)
    X = generator.normal(size=(60, 3))
    directions = generator.normal(size=(3, 2))
    noise = generator.normal(size=(60, 2))
    targets = np.sin(X @ directions) + 0.3 * noise
    mapper = InstanceMapper(kind="kernel-ridge", gamma=0.2, penalty=0.7, scaling="none")
    mapper.fit(X, targets)
    return X, targets, mapper


def reference_predictions(X, targets, rows, weights=None):
    """Predict by scikit-learn's kernel ridge regression with the mean target as its bias."""
    ridge = KernelRidge(alpha=0.7, kernel="rbf", gamma=0.2)
    mean = targets.mean()
    ridge.fit(X, targets - mean, sample_weight=weights)
    return ridge.predict(rows) + mean


def test_equal_weights_predict_as_scikit_learn_does(task):
    X, targets, mapper = task
    ridge = WeightedRidge(mapper, X[:50], np.random.default_rng(0))
    ridge.fit(targets[:50])
    predicted = ridge.predict(X[50:])
    for column in range(2):
        expected = reference_predictions(X[:50], targets[:50, column], X[50:])
        assert_allclose(predicted[:, column], expected, atol=1e-4)


def test_heavy_targets_weigh_as_scikit_learn_weighs_them(task):
    X, targets, mapper = task
    heavy = np.zeros_like(targets)
    heavy[[3, 8, 20], 0] = 1
    heavy[[4, 8], 1] = 1
    ridge = WeightedRidge(mapper, X, np.random.default_rng(0))
    ridge.fit(targets, sp.csr_matrix(heavy))
    predicted = ridge.predict(X)
    for column in range(2):
        is_heavy = heavy[:, column] > 0
        weights = np.where(is_heavy, VERDICT_WEIGHT, 1.0)
        expected = reference_predictions(X, targets[:, column], X, weights)
        assert_allclose(predicted[:, column], expected, atol=1e-4)


def test_each_row_is_predicted_without_itself(task):
    X, targets, mapper = task
    first_targets = targets[:, 0]
    mean = first_targets.mean()
    ridge = WeightedRidge(mapper, X, np.random.default_rng(0))
    predicted = ridge.fit(targets)
    for row in range(0, 60, 13):
        remaining = np.arange(60) != row
        reference = KernelRidge(alpha=0.7, kernel="rbf", gamma=0.2)
        reference.fit(X[remaining], first_targets[remaining] - mean)
        expected = reference.predict(X[[row]]) + mean
        assert_allclose(predicted[row, 0], expected[0], atol=1e-4)


def test_landmarks_stand_for_all_rows(task, monkeypatch):
    X, targets, mapper = task
    exact = WeightedRidge(mapper, X, np.random.default_rng(0))
    exact.fit(targets)
    monkeypatch.setattr("polyseme_experiments.baselines.pool._MOST_LANDMARKS", 40)
    approximate = WeightedRidge(mapper, X, np.random.default_rng(0))
    approximate.fit(targets)
    assert approximate.coefficients.shape == (40, 2)
    predicted = approximate.predict(X)
    assert_allclose(predicted, exact.predict(X), atol=0.1)


def test_stacked_rows_are_sparse_where_the_first_ones_are():
    first = np.eye(2)
    second = np.ones((1, 2))
    expected = np.vstack([first, second])
    dense = stacked(first, sp.csr_matrix(second))
    assert np.array_equal(dense, expected)
    sparse = stacked(sp.csr_matrix(first), second)
    assert np.array_equal(sparse.toarray(), expected)
