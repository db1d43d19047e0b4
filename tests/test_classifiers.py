from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from polyseme.baselines.svm import apply_platt, fit_machines, fit_platt, held_out_decisions
from sklearn.calibration import CalibratedClassifierCV
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.svm import SVC

from polyseme._validation import InputError, NotFittedError
from polyseme.baselines import SeenClassifiers
from polyseme.metrics import roc_auc


@pytest.fixture(scope="module")
def task():
    generator = np.random.default_rng(0)
    X = generator.normal(size=(90, 3))
    values = X @ generator.normal(size=(3, 4)) + 0.5 * generator.normal(size=(90, 4))
    return X, values > np.array([0.0, 1.0, 0.5, -1.0])


def test_machines_are_those_of_scikit_learn(task):
    X, truth = task
    coefficients, bias = fit_machines(rbf_kernel(X, gamma=0.3), truth, 2.0)
    decisions = rbf_kernel(X, gamma=0.3) @ coefficients + bias
    for column in range(truth.shape[1]):
        reference = SVC(C=2.0, gamma=0.3).fit(X, truth[:, column]).decision_function(X)
        np.testing.assert_allclose(decisions[:, column], reference, atol=2e-2)


def test_a_label_on_none_or_all_instances_has_a_constant_decision():
    truth = np.array([[0, 1], [0, 1], [0, 1]], dtype=bool)
    coefficients, bias = fit_machines(np.eye(3), truth, 1.0)
    assert not coefficients.any()
    assert bias.tolist() == [-1.0, 1.0]


def test_held_out_decisions_come_from_machines_that_saw_other_folds_only(task):
    X, truth = task
    folds = np.arange(len(X)) % 3
    found = held_out_decisions(rbf_kernel(X, gamma=0.3), truth[:, :1], folds, 2.0)[:, 0]
    for fold in range(3):
        held = folds == fold
        machine = SVC(C=2.0, gamma=0.3).fit(X[~held], truth[~held, 0])
        np.testing.assert_allclose(found[held], machine.decision_function(X[held]), atol=2e-2)


def test_the_sigmoid_is_that_of_scikit_learn(task):
    X, truth = task
    slope, offset = fit_platt(X[:, [0, 1, 2, 0]], truth)
    for column, feature in enumerate([0, 1, 2, 0]):
        inputs = X[:, [feature]]
        identity = LogisticRegression().fit(inputs, truth[:, column])
        identity.coef_[:], identity.intercept_[:] = 1.0, 0.0
        reference = CalibratedClassifierCV(FrozenEstimator(identity), method="sigmoid")
        expected = reference.fit(inputs, truth[:, column]).predict_proba(inputs)[:, 1]
        found = apply_platt(inputs, slope[[column]], offset[[column]])[:, 0]
        np.testing.assert_allclose(found, expected, atol=1e-3)


@pytest.mark.parametrize("scale", [1e-4, 1.0, 1e4])
def test_the_sigmoid_has_no_slope_left_to_descend(task, scale):
    X, truth = task
    decisions = scale * (3 + X[:, [0, 1, 2, 0]])
    slope, offset = fit_platt(decisions, truth)
    carriers = truth.sum(axis=0)
    targets = np.where(truth, (carriers + 1) / (carriers + 2), 1 / (len(X) - carriers + 2))
    error = apply_platt(decisions, slope, offset) - targets
    np.testing.assert_allclose(error.mean(axis=0), 0, atol=1e-8)
    np.testing.assert_allclose((error * decisions / scale).mean(axis=0), 0, atol=1e-8)


def test_decisions_that_part_a_label_from_the_rest_give_a_finite_sigmoid():
    decisions = np.array([[-2.0], [-1.0], [1.0], [2.0]])
    slope, offset = fit_platt(decisions, decisions > 0)
    likely = apply_platt(decisions, slope, offset)
    assert np.isfinite(slope).all()
    assert (np.diff(likely[:, 0]) > 0).all()


def test_equal_decisions_give_the_mean_target():
    truth = np.array([[True], [False], [False], [False]])
    slope, offset = fit_platt(np.full((4, 1), -1.0), truth)
    assert slope[0] == 0
    expected = (2 / 3 + 3 * (1 / 5)) / 4
    np.testing.assert_allclose(apply_platt(np.zeros((1, 1)), slope, offset), expected)


def test_probabilities_tell_carriers_from_others(world):
    classifiers = SeenClassifiers(random_state=0).fit(world.X, world.documents)
    likely = classifiers.probabilities(world.X_test)
    # A theme's instances carry each of its labels only sometimes: the themes' labels are the truth.
    assert roc_auc(world.truth(classifiers.classes_), likely) > 0.99
    assert ((likely > 0) & (likely < 1)).all()
    assert set(classifiers.classes_) == {
        label for document in world.documents for label in document
    }
    means = classifiers.probabilities(world.X).mean(axis=0)
    np.testing.assert_allclose(means, classifiers.shares_, atol=0.05)


def test_labels_without_two_carriers_or_without_others_get_their_share():
    generator = np.random.default_rng(0)
    X = generator.normal(size=(20, 2))
    documents = [("all", "half") if x[0] > 0 else ("all",) for x in X]
    documents[3] = (*documents[3], "single")
    classifiers = SeenClassifiers(random_state=0).fit(X, documents)
    likely = classifiers.probabilities(X[:5])
    assert classifiers.classes_ == ("all", "half", "single")
    assert classifiers.constant_.tolist() == [True, False, True]
    assert likely[:, 0].tolist() == [1.0] * 5
    assert likely[:, 2].tolist() == [0.05] * 5
    assert len(np.unique(likely[:, 1])) == 5


def test_the_search_prefers_the_width_that_fits():
    generator = np.random.default_rng(0)
    X = generator.uniform(-4, 4, size=(400, 1))
    documents = [("wave",) if np.sin(4 * x) > 0 else ("trough",) for x in X[:, 0]]
    classifiers = SeenClassifiers(random_state=0).fit(X, documents)
    wide = SeenClassifiers(C=1.0, gamma=classifiers.gamma_ / 16, random_state=0).fit(X, documents)
    truth = np.array([["trough" in document, "wave" in document] for document in documents])
    found = [roc_auc(truth, one.probabilities(X)) for one in (classifiers, wide)]
    assert found[0] > found[1] + 0.1


def test_sparse_features_and_the_order_of_columns_change_nothing(world):
    first = SeenClassifiers(random_state=0).fit(world.X, world.documents)
    sparse = SeenClassifiers(random_state=0).fit(sp.csr_matrix(world.X), world.documents)
    np.testing.assert_allclose(
        first.probabilities(world.X_test),
        sparse.probabilities(sp.csr_matrix(world.X_test)),
        atol=1e-3,
    )
    labels = ("never", *reversed(first.classes_))
    matrix = np.array([[label in document for label in labels] for document in world.documents])
    turned = SeenClassifiers(random_state=0).fit_matrix(world.X, sp.csr_matrix(matrix), labels)
    assert turned.classes_ == first.classes_
    assert np.array_equal(turned.probabilities(world.X_test), first.probabilities(world.X_test))


def test_bad_input_gets_one_sentence(world):
    with pytest.raises(InputError, match="`C` of `SeenClassifiers` must be a number above 0"):
        SeenClassifiers(C=0.0).fit(world.X, world.documents)
    with pytest.raises(InputError, match="`n_folds` of `SeenClassifiers` must be"):
        SeenClassifiers(n_folds=1).fit(world.X, world.documents)
    with pytest.raises(InputError, match="2 rows but there are 300 documents"):
        SeenClassifiers().fit(world.X[:2], world.documents)
    with pytest.raises(NotFittedError, match="not fitted yet"):
        SeenClassifiers().probabilities(world.X)
