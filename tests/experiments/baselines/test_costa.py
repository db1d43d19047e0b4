"""COSTA: its classifiers against scikit-learn's, its transfer against plain loops."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose
from sklearn.linear_model import Ridge
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.svm import SVC

from polyseme.base.validation import InputError, NotFittedError
from polyseme.metrics import example_map, roc_auc
from polyseme_experiments.baselines import Costa, SeenClassifiers, TunedCosta
from polyseme_experiments.baselines.costa import (
    _choose_penalty,
    _fit_machines,
    _fit_platt,
    _held_out_decisions,
    ridge,
)
from toy_fits import fit_world


def sigmoid(decisions, slope, offset):
    return 1 / (1 + np.exp(-(slope * decisions + offset)))


@pytest.fixture(scope="module")
def task():
    generator = np.random.default_rng(0)
    X = generator.normal(size=(90, 3))
    directions = generator.normal(size=(3, 4))
    noise = generator.normal(size=(90, 4))
    values = X @ directions + 0.5 * noise
    thresholds = np.array([0.0, 1.0, 0.5, -1.0])
    return X, values > thresholds


@pytest.fixture(scope="module")
def classifiers(world):
    return SeenClassifiers(random_state=5).fit(world.X, world.documents)


# --- classifiers -------------------------------------------------------------------------------


def test_held_out_decisions_are_those_of_scikit_learn_on_the_other_folds(task):
    X, truth = task
    kernel = rbf_kernel(X, gamma=0.3)
    folds = np.arange(len(X)) % 3
    decisions = _held_out_decisions(kernel, truth[:, :1], folds, 2.0)
    for fold in range(3):
        held_out = folds == fold
        machine = SVC(C=2.0, gamma=0.3)
        machine.fit(X[~held_out], truth[~held_out, 0])
        expected = machine.decision_function(X[held_out])
        assert_allclose(decisions[held_out, 0], expected, atol=2e-2)


def test_machines_of_constant_labels_are_their_bias():
    truth = np.array([[0, 1]] * 3, dtype=bool)
    coefficients, bias = _fit_machines(np.eye(3), truth, 1.0)
    assert not coefficients.any()
    assert bias.tolist() == [-1.0, 1.0]


@pytest.mark.parametrize("scale", [1e-4, 1.0, 1e4])
def test_the_sigmoid_has_no_slope_left_to_descend(task, scale):
    X, truth = task
    decisions = scale * (3 + X[:, [0, 1, 2, 0]])
    slope, offset = _fit_platt(decisions, truth)
    n_positive = truth.sum(axis=0)
    n_negative = len(X) - n_positive
    positive_target = (n_positive + 1) / (n_positive + 2)
    negative_target = 1 / (n_negative + 2)
    targets = np.where(truth, positive_target, negative_target)
    error = sigmoid(decisions, slope, offset) - targets
    assert_allclose(error.mean(axis=0), 0, atol=1e-8)
    scaled_error = error * decisions / scale
    assert_allclose(scaled_error.mean(axis=0), 0, atol=1e-8)


def test_separable_decisions_give_a_finite_rising_sigmoid():
    decisions = np.array([[-2.0], [-1.0], [1.0], [2.0]])
    truth = decisions > 0
    slope, offset = _fit_platt(decisions, truth)
    assert np.isfinite(slope).all()
    probabilities = sigmoid(decisions, slope, offset)
    steps = np.diff(probabilities[:, 0])
    assert (steps > 0).all()


def test_equal_decisions_give_the_mean_target():
    truth = np.array([[True], [False], [False], [False]])
    decisions = np.full((4, 1), -1.0)
    slope, offset = _fit_platt(decisions, truth)
    assert slope[0] == 0
    positive_target = 2 / 3
    negative_target = 1 / 5
    mean_target = (positive_target + 3 * negative_target) / 4
    assert_allclose(sigmoid(0.0, slope, offset), mean_target)


def test_probabilities_tell_carriers_from_others(classifiers, world):
    probabilities = classifiers.predict_proba(world.X_test)
    # A theme's instances carry each of its labels only sometimes: the themes' labels are the truth.
    truth = world.truth(classifiers.classes_)
    assert roc_auc(truth, probabilities) > 0.99
    assert (probabilities > 0).all()
    assert (probabilities < 1).all()
    assert set(classifiers.classes_) == set().union(*world.documents)
    means = classifiers.predict_proba(world.X).mean(axis=0)
    assert_allclose(means, classifiers.shares_, atol=0.05)


def test_labels_of_one_instance_or_of_all_get_their_share():
    generator = np.random.default_rng(0)
    X = generator.normal(size=(20, 2))
    documents = []
    for x in X:
        labels = ("all", "half") if x[0] > 0 else ("all",)
        documents.append(labels)
    documents[3] = (*documents[3], "single")
    classifiers = SeenClassifiers(random_state=0)
    classifiers.fit(X, documents)
    assert classifiers.classes_.tolist() == ["all", "half", "single"]
    assert classifiers.constant_.tolist() == [True, False, True]
    of_all, of_half, of_single = classifiers.predict_proba(X[:5]).T
    assert of_all.tolist() == [1.0] * 5
    assert of_single.tolist() == [0.05] * 5
    assert len(np.unique(of_half)) == 5


def test_the_search_prefers_the_width_that_fits():
    generator = np.random.default_rng(0)
    X = generator.uniform(-4, 4, size=(400, 1))
    is_wave = np.sin(4 * X) > 0
    documents = [("wave",) if wave else ("trough",) for wave in is_wave]
    truth = np.hstack([~is_wave, is_wave])

    searched = SeenClassifiers(random_state=0)
    searched.fit(X, documents)
    wide = SeenClassifiers(C=1.0, gamma=searched.gamma_ / 16, random_state=0)
    wide.fit(X, documents)
    searched_auc = roc_auc(truth, searched.predict_proba(X))
    wide_auc = roc_auc(truth, wide.predict_proba(X))
    assert searched_auc > wide_auc + 0.1


def test_sparse_features_give_the_same_probabilities(classifiers, world):
    expected = classifiers.predict_proba(world.X_test)
    sparse = SeenClassifiers(random_state=5)
    sparse.fit(sp.csr_matrix(world.X), world.documents)
    probabilities = sparse.predict_proba(sp.csr_matrix(world.X_test))
    assert_allclose(probabilities, expected, atol=1e-3)


def test_the_order_of_columns_changes_nothing(classifiers, world):
    labels = ("never", *reversed(classifiers.classes_))
    rows = [[label in document for label in labels] for document in world.documents]
    matrix = sp.csr_matrix(np.array(rows))
    reordered = SeenClassifiers(random_state=5)
    reordered.fit_matrix(world.X, matrix, labels)
    assert reordered.classes_.tolist() == classifiers.classes_.tolist()
    probabilities = reordered.predict_proba(world.X_test)
    expected = classifiers.predict_proba(world.X_test)
    assert np.array_equal(probabilities, expected)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"C": 0.0}, "`C` of `SeenClassifiers` must be a number above 0"),
        ({"n_folds": 1}, "`n_folds` of `SeenClassifiers` must be"),
    ],
)
def test_bad_parameters_get_one_sentence(world, parameters, message):
    classifiers = SeenClassifiers(**parameters)
    with pytest.raises(InputError, match=message):
        classifiers.fit(world.X, world.documents)


def test_classifiers_that_are_not_fitted_say_so(world):
    classifiers = SeenClassifiers()
    with pytest.raises(NotFittedError, match="not fitted yet"):
        classifiers.predict_proba(world.X)


# --- as published ------------------------------------------------------------------------------


def shared(classifiers, *arguments, **options):
    options = {"random_state": 0} | options
    return Costa(*arguments, classifiers=classifiers, fit_classifiers=False, **options)


@pytest.mark.parametrize("transfer", ["regression", "dice"])
def test_shared_classifiers_score_as_freshly_fitted_ones(transfer, classifiers, world):
    unfitted = SeenClassifiers(random_state=5)
    costa = Costa(transfer, classifiers=unfitted, random_state=0)
    fit_world(costa, world)
    sharing = shared(classifiers, transfer)
    fit_world(sharing, world)
    scores = costa.decision_function(world.X_test)
    shared_scores = sharing.decision_function(world.X_test)
    assert np.array_equal(scores, shared_scores)

    truth = world.truth(costa.classes_)
    unseen = costa.kinds_ == "unseen"
    assert roc_auc(truth[:, unseen], scores[:, unseen]) > 0.95
    assert set(costa.classifiers_.classes_).isdisjoint(world.unseen)
    n_seen = np.count_nonzero(costa.kinds_ == "seen")
    assert costa.weights_.shape == (n_seen, len(world.unseen))


@pytest.mark.parametrize("transfer", ["normalised", "dice", "square-root"])
def test_unseen_labels_are_a_plain_mean_of_probabilities(transfer, classifiers, world):
    costa = shared(classifiers, transfer, False)
    fit_world(costa, world)
    scores = costa.decision_function(world.X_test[:2])
    probabilities = classifiers.predict_proba(world.X_test[:2])
    labels = costa.classes_.tolist()
    columns = classifiers.classes_.tolist()
    seen = [label for label in labels if label not in (*world.unseen, *world.oov)]
    seen_columns = [columns.index(label) for label in seen]

    def count(*names):
        return sum(set(names) <= set(document) for document in world.label_sets)

    def weight(unseen_label, seen_label):
        n_both = count(unseen_label, seen_label)
        if transfer == "square-root":
            return n_both**0.5
        if transfer == "normalised":
            return n_both / count(unseen_label)
        return n_both / (count(unseen_label) + count(seen_label))

    for unseen_label in world.unseen:
        weights = np.array([weight(unseen_label, seen_label) for seen_label in seen])
        mean = probabilities[:, seen_columns] @ weights / weights.sum()
        column = labels.index(unseen_label)
        assert_allclose(scores[:, column], np.clip(mean, 1e-6, 1))


def test_priors_are_applied_as_the_paper_prints_them_and_oov_labels_ignored(classifiers, world):
    plain = shared(classifiers, use_priors=False)
    fit_world(plain, world)
    weighted = shared(classifiers, use_priors=True)
    fit_world(weighted, world)
    plain_scores = plain.decision_function(world.X_test)
    scores = weighted.decision_function(world.X_test)
    shares = plain_scores / plain_scores.sum(axis=1, keepdims=True)
    for column, label in enumerate(weighted.classes_):
        prior = np.mean([label in document for document in world.label_sets])
        expected = prior * shares[:, column]
        assert_allclose(scores[:, column], expected, atol=1e-15)

    oov = weighted.kinds_ == "oov"
    assert np.count_nonzero(oov) == len(world.oov)
    assert not scores[:, oov].any()
    assert scores[:, ~oov].min() > 0


def test_classifiers_that_are_not_fitted_are_refused(world):
    without = shared(None)
    with pytest.raises(InputError, match="needs fitted `classifiers`"):
        fit_world(without, world)
    unfitted = shared(SeenClassifiers())
    with pytest.raises(NotFittedError, match="This SeenClassifiers is not fitted yet"):
        fit_world(unfitted, world)


def test_classifiers_of_other_instances_are_refused(classifiers, world):
    costa = shared(classifiers)
    with pytest.raises(InputError, match="X has 4 features, but SeenClassifiers is expecting 5"):
        costa.fit(
            world.X[:, :4],
            world.documents,
            world.label_sets,
            label_sets_only=True,
        )

    documents = []
    for document in world.documents:
        labels = [label for label in document if label != "fern"]
        documents.append(labels or ["moss"])
    with pytest.raises(InputError, match="differ in the labels carried: fern; fit them"):
        costa.fit(world.X, documents, world.label_sets, label_sets_only=True)


def test_an_unknown_transfer_is_refused(world):
    costa = Costa("binary")
    with pytest.raises(InputError, match="`transfer` of `Costa` must be one of"):
        costa.fit(world.X, world.documents)


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
    costa = TunedCosta(random_state=0)
    fit_world(costa, world)
    truth = world.truth(costa.classes_)
    scores = costa.decision_function(world.X_test)
    unseen = costa.kinds_ == "unseen"
    assert example_map(truth, scores) > 0.9
    assert roc_auc(truth[:, unseen], scores[:, unseen]) > 0.95
    direct = set(costa.classes_[costa.direct_])
    assert direct.isdisjoint(world.unseen)
    assert direct.issuperset(world.oov)


def test_the_regression_is_that_of_scikit_learn():
    generator = np.random.default_rng(0)
    inputs = generator.normal(size=(60, 20))
    targets = generator.normal(size=(60, 2))
    weights, intercept = ridge(inputs, targets, 0.1)
    reference = Ridge(alpha=0.1 * len(inputs))
    reference.fit(inputs, targets)
    assert_allclose(weights, reference.coef_.T, atol=1e-10)
    assert_allclose(intercept, reference.intercept_, atol=1e-10)


def test_the_penalty_that_predicts_best_is_chosen():
    generator = np.random.default_rng(0)
    inputs = generator.normal(size=(60, 20))
    clear = inputs @ generator.normal(size=(20, 2))
    noise = generator.normal(size=(60, 2))
    folds = np.arange(60) % 3
    penalties = (1e-4, 1e-2, 1e2)
    assert _choose_penalty(inputs, clear, penalties, folds) == 1e-4
    assert _choose_penalty(inputs, noise, penalties, folds) == 1e2
    single_fold = np.zeros(60, dtype=np.int64)
    assert _choose_penalty(inputs, clear, penalties, single_fold) == 1e-4
