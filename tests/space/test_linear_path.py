"""The linear path: against scikit-learn's ridge, and where it helps and where not."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.kernel_ridge import KernelRidge as PlainKernelRidge
from sklearn.linear_model import Ridge as PlainRidge

from polyseme import ZeroShotTagger, load
from polyseme.metrics import concept_map, example_map
from polyseme.space import linear_path
from polyseme.space.linear_path import (
    KERNEL_PENALTIES,
    LEFT_OUT,
    PENALTIES,
    WEIGHTS,
    KernelRidge,
    Ridge,
    choose_weight,
    fit_ridge,
    leave_out,
    prediction_spreads,
)


@pytest.fixture(scope="module")
def problem():
    """Features, labels that are linear in them but for noise, and folds."""
    generator = np.random.default_rng(0)
    X = generator.normal(size=(300, 20)).astype(np.float32)
    directions = generator.normal(size=(20, 7))
    noise = generator.normal(size=(300, 7))
    logits = X @ directions + noise - 1.5
    truth = sp.csr_matrix(logits > 0, dtype=np.float32)
    folds = generator.permutation(300) % 5
    return X, truth, folds


@pytest.fixture(scope="module")
def ridge(problem):
    X, truth, folds = problem
    return Ridge(lambda rows: X[rows], truth, folds)


def test_the_penalty_is_the_one_that_ranks_the_items_of_a_fold_best(problem, ridge):
    X, truth, folds = problem
    labels = truth.toarray()
    held_out = folds == folds.min()
    n_training = np.count_nonzero(~held_out)
    carried = labels[held_out] > 0
    qualities = []
    for penalty in PENALTIES:
        reference = PlainRidge(alpha=penalty * n_training)
        reference.fit(X[~held_out], labels[~held_out])
        scores = reference.predict(X[held_out])
        qualities.append(example_map(carried, scores) + concept_map(carried, scores))
    best = int(np.argmax(qualities))
    assert ridge.penalty == PENALTIES[best]
    assert len(set(np.round(qualities, 6))) > 1


@pytest.mark.parametrize("fold", [0, 4])
def test_held_out_predictions_are_those_of_the_other_folds(problem, ridge, fold):
    X, truth, folds = problem
    training = folds != fold
    labels = truth[training].toarray()
    alpha = ridge.penalty * len(labels)
    reference = PlainRidge(alpha=alpha)
    reference.fit(X[training], labels)
    tables = (X, X[:3])
    predictions = ridge.predict(tables, without=fold)
    for table, predicted in zip(tables, predictions, strict=True):
        # Without the label's share, which the calibration brings back.
        expected = reference.predict(table) - labels.mean(axis=0)
        assert_allclose(predicted, expected, atol=1e-4)


def test_the_path_adds_the_predictions_of_all_items_in_their_spreads(problem, ridge):
    X, truth, _ = problem
    labels = truth.toarray()
    (predictions,) = ridge.predict((X,), without=0)
    spreads = prediction_spreads(predictions)
    path = ridge.path(0.5, spreads)
    alpha = ridge.penalty * len(X)
    reference = PlainRidge(alpha=alpha)
    reference.fit(X, labels)
    centred = reference.predict(X) - labels.mean(axis=0)
    added = path.coordinates(X) @ path.labels
    expected = 0.5 * centred / spreads
    assert_allclose(added, expected, atol=1e-3)
    assert path.n_coordinates == truth.shape[1]


def test_with_many_labels_the_path_is_the_best_one_of_its_rank(monkeypatch):
    monkeypatch.setattr(linear_path, "MOST_COORDINATES", 60)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(900, 100)).astype(np.float32)
    is_true = rng.random((900, 100)) < 0.1
    truth = sp.csr_matrix(is_true, dtype=np.float32)
    folds = np.arange(900) % 2
    ridge = Ridge(lambda rows: X[rows], truth, folds)
    path = ridge.path(1.0, np.ones(100))
    centred = X - X.mean(axis=0)
    coefficients = ridge.coefficients()[0]
    exact = centred @ coefficients
    singular_values = np.linalg.svd(exact, compute_uv=False)
    least_error = np.linalg.norm(singular_values[60:])
    logits = path.coordinates(X) @ path.labels
    error = np.linalg.norm(exact - logits)
    assert path.n_coordinates == 60
    assert error == pytest.approx(least_error, rel=0.05)


@pytest.fixture(scope="module")
def kernel_ridge(problem):
    X, truth, folds = problem
    return KernelRidge(X, truth, folds)


def test_kernel_ridge_predicts_a_fold_as_scikit_learn_does(problem, kernel_ridge):
    X, truth, folds = problem
    training_rows = folds != 2
    table = truth.toarray()
    deviations = table - table.mean(axis=0)
    plain = PlainKernelRidge(alpha=kernel_ridge.penalty, kernel="rbf", gamma=kernel_ridge.scale)
    plain.fit(X[training_rows], deviations[training_rows])
    held_out = X[~training_rows]
    (predicted,) = kernel_ridge.predict((held_out,), without=2)
    expected = plain.predict(held_out)
    assert_allclose(predicted, expected, atol=1e-3)


def test_the_path_of_kernel_ridge_adds_the_predictions_of_all_items(problem, kernel_ridge):
    X, truth, _ = problem
    spreads = np.linspace(1, 2, truth.shape[1])
    path = kernel_ridge.path(0.5, spreads)
    table = truth.toarray()
    deviations = table - table.mean(axis=0)
    plain = PlainKernelRidge(alpha=kernel_ridge.penalty, kernel="rbf", gamma=kernel_ridge.scale)
    plain.fit(X, deviations)
    expected = 0.5 * plain.predict(X[:9]) / spreads
    logits = path.coordinates(X[:9]) @ path.labels
    assert_allclose(logits, expected, atol=1e-3)


def test_the_penalty_of_kernel_ridge_ranks_held_out_items_best(problem, kernel_ridge):
    qualities = {
        penalty: kernel_ridge._fold_quality(np.arange(300), penalty) for penalty in KERNEL_PENALTIES
    }
    expected_penalty = max(qualities, key=qualities.get)
    assert kernel_ridge.penalty == expected_penalty
    assert kernel_ridge.quality == qualities[kernel_ridge.penalty]


@pytest.mark.parametrize(("shape", "expected"), [("rings", KernelRidge), ("lines", Ridge)])
def test_a_kernel_is_used_where_it_ranks_better(problem, shape, expected):
    X, truth, folds = problem
    if shape == "rings":
        X = np.ascontiguousarray(X[:, :2])
        radii = np.linalg.norm(X, axis=1)
        is_in_ring = np.stack([radii < 1, radii > 2], axis=1)
        truth = sp.csr_matrix(is_in_ring, dtype=np.float32)
    ridge = fit_ridge(lambda rows: X[rows], truth, folds)
    assert isinstance(ridge, expected)


def test_with_many_items_no_kernel_is_computed(problem, monkeypatch):
    X, truth, folds = problem
    monkeypatch.setattr(linear_path, "MOST_KERNEL_ITEMS", len(X) - 1)
    monkeypatch.setattr(linear_path, "KernelRidge", None)
    assert isinstance(fit_ridge(lambda rows: X[rows], truth, folds), Ridge)


@pytest.mark.parametrize(("signal", "weights"), [(2, WEIGHTS[-2:]), (0, (0,))])
def test_the_weight_is_what_does_best_on_held_out_items(signal, weights):
    generator = np.random.default_rng(0)
    truth = (generator.random((400, 10)) < 0.2).astype(float)
    logits = truth + generator.normal(size=truth.shape)
    predictions = signal * truth + generator.normal(size=truth.shape)
    weight = choose_weight(
        logits,
        predictions,
        truth,
        np.ones(400),
        truth.mean(axis=0),
    )
    assert weight in weights


@pytest.mark.parametrize("form", ["dense", "sparse", "with a kernel"])
def test_a_tagger_with_a_linear_path_is_saved_explained_and_corrected(
    world, tiny_space, tmp_path, form, monkeypatch
):
    monkeypatch.setattr(linear_path, "KERNEL_ADVANTAGE", -9 if form == "with a kernel" else 9)
    X = sp.csr_matrix(world.X) if form == "sparse" else world.X
    space = tiny_space(n_steps=10, linear=0.4)
    tagger = ZeroShotTagger(space=space, n_validations=0, random_state=0)
    tagger.fit(X, world.documents, world.label_sets)
    assert (len(tagger.space_.linear_.landmarks) > 0) == (form == "with a kernel")
    tagger.learn([(0, "sand", False), (5, "desk", True)], X)
    tagger.add_documents([("sea", "jellyfish")])
    model = tmp_path / "model"
    tagger.save(model)
    loaded = load(model)
    scores = tagger.predict_proba(world.X_test)
    assert_array_equal(loaded.predict_proba(world.X_test), scores)

    labels = loaded.classes_.tolist()
    (logits,) = loaded.decision_function(world.X_test[:1])
    for label in ("sand", "wave", "jellyfish"):
        evidence = loaded.explain(world.X_test[0], label)
        total = sum(value for _, value in evidence.parts())
        assert total == pytest.approx(evidence.logit, abs=1e-6)
        expected = logits[labels.index(label)]
        assert evidence.logit == pytest.approx(expected)
    encoded = loaded.encode(world.X_test)
    assert_allclose(loaded.predict_proba(encoded), scores, atol=1e-12)


def test_the_linear_path_reaches_probable_tags_and_through_them_unseen_labels(world, tiny_space):
    def scores_of_unseen(weight):
        space = tiny_space(n_steps=4, linear=weight, context=1.0, priming=0.0)
        tagger = ZeroShotTagger(space=space, n_validations=0, random_state=0)
        tagger.fit(world.X, world.documents, world.label_sets)
        scores = tagger.predict_proba(world.X_test)
        return scores[:, tagger.kinds_ == "unseen"]

    difference = scores_of_unseen(1.0) - scores_of_unseen(0.0)
    assert np.abs(difference).max() > 1e-3


def test_a_space_has_no_linear_path_where_no_item_can_be_held_out(world, tiny_space):
    space = tiny_space(n_steps=4, linear=None)
    tagger = ZeroShotTagger(space=space, n_validations=0, random_state=0)
    tagger.fit(world.X[:1], world.documents[:1], world.label_sets)
    assert tagger.space_.linear_.n_coordinates == 0


def test_features_are_left_out_at_random_and_are_the_same_on_average():
    features = np.ones((200, 300), dtype=np.float32)
    thinned = leave_out(features, seed=3)
    scaled_up = np.float32(1 / (1 - LEFT_OUT))
    assert set(np.unique(thinned)) == {0.0, scaled_up}
    assert thinned.mean() == pytest.approx(1, abs=0.02)
    assert_array_equal(thinned, leave_out(features, seed=3))
    of_another_seed = leave_out(features, seed=4)
    assert (thinned != of_another_seed).any()


def test_a_learned_weight_is_found_where_features_say_labels_outright(world, tiny_space):
    generator = np.random.default_rng(0)
    labels = sorted(set().union(*world.documents))
    rows = [[label in tags for label in labels] for tags in world.documents]
    truth = np.array(rows, dtype=float)
    directions = generator.normal(size=(len(labels), 60))
    noise = generator.normal(size=(len(truth), 60))
    X = truth @ directions + 0.3 * noise

    def largest_weight(linear):
        space = tiny_space(n_steps=10, linear=linear)
        tagger = ZeroShotTagger(space=space, n_validations=0, random_state=0)
        tagger.fit(X, world.documents)
        weights = np.abs(tagger.space_.linear_.labels)
        return weights.max(initial=0)

    assert largest_weight(None) == WEIGHTS[-1]
    assert largest_weight(0.0) == 0
