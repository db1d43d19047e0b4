"""COSTA: its classifiers against scikit-learn's, its transfer against plain loops."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose
from sklearn.linear_model import Ridge
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.svm import SVC

from polyseme._validation import InputError, NotFittedError
from polyseme.baselines import Costa, SeenClassifiers, TunedCosta
from polyseme.baselines.costa import (
    _choose_penalty,
    _fit_machines,
    _fit_platt,
    _held_out_decisions,
    ridge,
)
from polyseme.metrics import example_map, roc_auc


def sigmoid(decisions, slope, offset):
    return 1 / (1 + np.exp(-(slope * decisions + offset)))


@pytest.fixture(scope="module")
def task():
    generator = np.random.default_rng(0)
    X = generator.normal(size=(90, 3))
    values = X @ generator.normal(size=(3, 4)) + 0.5 * generator.normal(size=(90, 4))
    return X, values > np.array([0.0, 1.0, 0.5, -1.0])


@pytest.fixture(scope="module")
def classifiers(world):
    return SeenClassifiers(random_state=5).fit(world.X, world.documents)


# --- classifiers -------------------------------------------------------------------------------


def test_machines_are_those_of_scikit_learn_on_other_folds(task):
    X, truth = task
    kernel = rbf_kernel(X, gamma=0.3)
    folds = np.arange(len(X)) % 3
    found = _held_out_decisions(kernel, truth[:, :1], folds, 2.0)[:, 0]
    for fold in range(3):
        out = folds == fold
        machine = SVC(C=2.0, gamma=0.3).fit(X[~out], truth[~out, 0])
        assert_allclose(found[out], machine.decision_function(X[out]), atol=2e-2)
    coefficients, bias = _fit_machines(np.eye(3), np.array([[0, 1]] * 3, dtype=bool), 1.0)
    assert not coefficients.any()
    assert bias.tolist() == [-1.0, 1.0]


@pytest.mark.parametrize("scale", [1e-4, 1.0, 1e4])
def test_the_sigmoid_has_no_slope_left_to_descend(task, scale):
    X, truth = task
    decisions = scale * (3 + X[:, [0, 1, 2, 0]])
    slope, offset = _fit_platt(decisions, truth)
    carriers = truth.sum(axis=0)
    targets = np.where(truth, (carriers + 1) / (carriers + 2), 1 / (len(X) - carriers + 2))
    error = sigmoid(decisions, slope, offset) - targets
    assert_allclose(error.mean(axis=0), 0, atol=1e-8)
    assert_allclose((error * decisions / scale).mean(axis=0), 0, atol=1e-8)


def test_parted_decisions_give_a_finite_sigmoid_and_equal_ones_the_mean_target():
    decisions = np.array([[-2.0], [-1.0], [1.0], [2.0]])
    slope, offset = _fit_platt(decisions, decisions > 0)
    assert np.isfinite(slope).all()
    assert (np.diff(sigmoid(decisions, slope, offset)[:, 0]) > 0).all()
    slope, offset = _fit_platt(np.full((4, 1), -1.0), np.array([[True], [False], [False], [False]]))
    assert slope[0] == 0
    assert_allclose(sigmoid(0.0, slope, offset), (2 / 3 + 3 * (1 / 5)) / 4)


def test_probabilities_tell_carriers_from_others(classifiers, world):
    likely = classifiers.predict_proba(world.X_test)
    # A theme's instances carry each of its labels only sometimes: the themes' labels are the truth.
    assert roc_auc(world.truth(classifiers.classes_), likely) > 0.99
    assert ((likely > 0) & (likely < 1)).all()
    assert set(classifiers.classes_) == {label for tags in world.documents for label in tags}
    means = classifiers.predict_proba(world.X).mean(axis=0)
    assert_allclose(means, classifiers.shares_, atol=0.05)


def test_labels_without_two_carriers_or_without_others_get_their_share():
    X = np.random.default_rng(0).normal(size=(20, 2))
    documents = [("all", "half") if x[0] > 0 else ("all",) for x in X]
    documents[3] = (*documents[3], "single")
    classifiers = SeenClassifiers(random_state=0).fit(X, documents)
    likely = classifiers.predict_proba(X[:5])
    assert classifiers.classes_.tolist() == ["all", "half", "single"]
    assert classifiers.constant_.tolist() == [True, False, True]
    assert likely[:, 0].tolist() == [1.0] * 5
    assert likely[:, 2].tolist() == [0.05] * 5
    assert len(np.unique(likely[:, 1])) == 5


def test_the_search_prefers_the_width_that_fits():
    X = np.random.default_rng(0).uniform(-4, 4, size=(400, 1))
    documents = [("wave",) if np.sin(4 * x) > 0 else ("trough",) for x in X[:, 0]]
    classifiers = SeenClassifiers(random_state=0).fit(X, documents)
    wide = SeenClassifiers(C=1.0, gamma=classifiers.gamma_ / 16, random_state=0).fit(X, documents)
    truth = np.array([["trough" in document, "wave" in document] for document in documents])
    found = [roc_auc(truth, fitted.predict_proba(X)) for fitted in (classifiers, wide)]
    assert found[0] > found[1] + 0.1


def test_sparse_features_and_the_order_of_columns_change_nothing(classifiers, world):
    expected = classifiers.predict_proba(world.X_test)
    sparse = SeenClassifiers(random_state=5).fit(sp.csr_matrix(world.X), world.documents)
    found = sparse.predict_proba(sp.csr_matrix(world.X_test))
    assert_allclose(found, expected, atol=1e-3)
    labels = ("never", *reversed(classifiers.classes_))
    matrix = np.array([[label in document for label in labels] for document in world.documents])
    turned = SeenClassifiers(random_state=5).fit_matrix(world.X, sp.csr_matrix(matrix), labels)
    assert turned.classes_.tolist() == classifiers.classes_.tolist()
    assert np.array_equal(turned.predict_proba(world.X_test), expected)


def test_bad_input_gets_one_sentence(world):
    with pytest.raises(InputError, match="`C` of `SeenClassifiers` must be a number above 0"):
        SeenClassifiers(C=0.0).fit(world.X, world.documents)
    with pytest.raises(InputError, match="`n_folds` of `SeenClassifiers` must be"):
        SeenClassifiers(n_folds=1).fit(world.X, world.documents)
    with pytest.raises(NotFittedError, match="not fitted yet"):
        SeenClassifiers().predict_proba(world.X)


# --- as published ------------------------------------------------------------------------------


def shared(classifiers, *arguments, **options):
    options = {"random_state": 0} | options
    return Costa(*arguments, classifiers=classifiers, fit_classifiers=False, **options)


@pytest.mark.parametrize("transfer", ["regression", "dice"])
def test_shared_classifiers_score_as_own_ones(transfer, classifiers, world):
    own = Costa(transfer, classifiers=SeenClassifiers(random_state=5), random_state=0)
    scores = [
        costa.fit(
            world.X, world.documents, world.label_sets, label_sets_only=True
        ).decision_function(world.X_test)
        for costa in (own, shared(classifiers, transfer))
    ]
    assert np.array_equal(*scores)
    truth = world.truth(own.classes_)
    unseen = own.kinds_ == "unseen"
    assert roc_auc(truth[:, unseen], scores[0][:, unseen]) > 0.95
    assert not set(own.classifiers_.classes_) & set(world.unseen)
    assert own.weights_.shape == ((own.kinds_ == "seen").sum(), len(world.unseen))


@pytest.mark.parametrize("transfer", ["normalised", "dice", "square-root"])
def test_unseen_labels_are_a_plain_mean_of_probabilities(transfer, classifiers, world):
    costa = shared(classifiers, transfer, False)
    costa.fit(world.X, world.documents, world.label_sets, label_sets_only=True)
    scores = costa.decision_function(world.X_test[:2])
    likely = classifiers.predict_proba(world.X_test[:2])
    labels = costa.classes_.tolist()
    columns = classifiers.classes_.tolist()
    seen = [label for label in labels if label not in (*world.unseen, *world.oov)]

    def count(*names):
        return sum(set(names) <= set(document) for document in world.label_sets)

    def weight(z, k):
        sizes = {"normalised": count(z), "dice": count(z) + count(k)}
        return count(z, k) ** 0.5 if transfer == "square-root" else count(z, k) / sizes[transfer]

    for z in world.unseen:
        weights = np.array([weight(z, k) for k in seen])
        expected = likely[:, [columns.index(k) for k in seen]] @ weights / weights.sum()
        assert_allclose(scores[:, labels.index(z)], np.clip(expected, 1e-6, 1))


def test_priors_are_applied_as_the_paper_prints_them_and_oov_labels_ignored(classifiers, world):
    plain, weighed = (
        shared(classifiers, use_priors=priors)
        .fit(world.X, world.documents, world.label_sets, label_sets_only=True)
        .decision_function(world.X_test)
        for priors in (False, True)
    )
    costa = shared(classifiers).fit(
        world.X, world.documents, world.label_sets, label_sets_only=True
    )
    for column, label in enumerate(costa.classes_):
        prior = sum(label in document for document in world.label_sets) / len(world.label_sets)
        expected = plain[:, column] / plain.sum(axis=1) * prior
        assert_allclose(weighed[:, column], expected, atol=1e-15)
    oov = costa.kinds_ == "oov"
    assert oov.sum() == len(world.oov)
    assert not weighed[:, oov].any()
    assert weighed[:, ~oov].min() > 0


def test_classifiers_of_other_instances_are_refused(classifiers, world):
    def fit(classifiers, documents=world.documents, X=world.X):
        shared(classifiers).fit(X, documents, world.label_sets, label_sets_only=True)

    with pytest.raises(InputError, match="needs fitted `classifiers`"):
        fit(None)
    with pytest.raises(NotFittedError, match="This SeenClassifiers is not fitted yet"):
        fit(SeenClassifiers())
    with pytest.raises(InputError, match="X has 4 features, but SeenClassifiers is expecting 5"):
        fit(classifiers, X=world.X[:, :4])
    without = [tuple(set(document) - {"fern"}) or ("moss",) for document in world.documents]
    with pytest.raises(InputError, match="differ in the labels carried: fern; fit them"):
        fit(classifiers, without)
    with pytest.raises(InputError, match="`transfer` of `Costa` must be one of"):
        Costa("binary").fit(world.X, world.documents)


def test_classifiers_are_found_by_label_whatever_the_spelling(classifiers, world):
    loud = [[label.upper() for label in document] for document in world.label_sets]
    quiet, shouted = (
        shared(classifiers)
        .fit(world.X, world.documents, sets, label_sets_only=True)
        .decision_function(world.X_test)
        for sets in (world.label_sets, loud)
    )
    assert np.array_equal(quiet, shouted)


# --- tuned, and the regression -----------------------------------------------------------------


def test_tuned_costa_solves_the_toy_world_and_sees_no_unseen_label(world):
    costa = TunedCosta(random_state=0).fit(
        world.X, world.documents, world.label_sets, label_sets_only=True
    )
    truth = world.truth(costa.classes_)
    scores = costa.decision_function(world.X_test)
    unseen = costa.kinds_ == "unseen"
    assert example_map(truth, scores) > 0.9
    assert roc_auc(truth[:, unseen], scores[:, unseen]) > 0.95
    direct = set(costa.classes_[costa.direct_])
    assert not direct & set(world.unseen)
    assert set(world.oov) <= direct


def test_the_regression_is_that_of_scikit_learn_and_its_penalty_predicts_best():
    generator = np.random.default_rng(0)
    inputs = generator.normal(size=(60, 20))
    folds = np.arange(60) % 3
    penalties = (1e-4, 1e-2, 1e2)
    clear = inputs @ generator.normal(size=(20, 2))
    noise = generator.normal(size=(60, 2))
    weights, intercept = ridge(inputs, clear + noise, 0.1)
    reference = Ridge(alpha=0.1 * len(inputs)).fit(inputs, clear + noise)
    assert_allclose(weights, reference.coef_.T, atol=1e-10)
    assert_allclose(intercept, reference.intercept_, atol=1e-10)
    assert _choose_penalty(inputs, clear, penalties, folds) == 1e-4
    assert _choose_penalty(inputs, noise, penalties, folds) == 1e2
    assert _choose_penalty(inputs, clear, penalties, np.zeros(60, dtype=np.int64)) == 1e-4
