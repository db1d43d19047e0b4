"""The linear path: against scikit-learn's ridge, and where it helps and where not."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.linear_model import Ridge as PlainRidge

from polyseme import ZeroShotTagger, load
from polyseme.linear_path import (
    LEFT_OUT,
    MOST_COORDINATES,
    PENALTIES,
    WEIGHTS,
    Ridge,
    choose_weight,
    leave_out,
    prediction_spreads,
)
from polyseme.metrics import concept_map, example_map


@pytest.fixture(scope="module")
def problem():
    """Features, labels that are linear in them but for noise, and folds."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 20)).astype(np.float32)
    logits = X @ rng.normal(size=(20, 7)) + rng.normal(size=(300, 7)) - 1.5
    return X, sp.csr_matrix(logits > 0, dtype=np.float32), rng.permutation(300) % 5


@pytest.fixture(scope="module")
def ridge(problem):
    X, truth, folds = problem
    return Ridge(lambda rows: X[rows], truth, folds)


def test_the_penalty_is_the_one_that_ranks_the_items_of_a_fold_best(problem, ridge):
    X, truth, folds = problem
    labels = truth.toarray()
    others = folds != folds.min()
    qualities = []
    for penalty in PENALTIES:
        plain = PlainRidge(alpha=penalty * others.sum()).fit(X[others], labels[others])
        scores = plain.predict(X[~others])
        carried = labels[~others] > 0
        qualities.append(example_map(carried, scores) + concept_map(carried, scores))
    assert ridge.penalty == PENALTIES[int(np.argmax(qualities))]
    assert len({round(quality, 6) for quality in qualities}) > 1


@pytest.mark.parametrize("fold", [0, 4])
def test_held_out_predictions_are_those_of_the_other_folds(problem, ridge, fold):
    X, truth, folds = problem
    others = folds != fold
    plain = PlainRidge(alpha=ridge.penalty * others.sum())
    plain.fit(X[others], truth[others].toarray())
    for table, predicted in zip((X, X[:3]), ridge.predict((X, X[:3]), without=fold), strict=True):
        # Without the label's share, which the calibration brings back.
        expected = plain.predict(table) - truth[others].toarray().mean(axis=0)
        assert_allclose(predicted, expected, atol=1e-4)


def test_the_path_adds_the_predictions_of_all_items_in_their_spreads(problem, ridge):
    X, truth, _ = problem
    spreads = prediction_spreads(ridge.predict((X,), without=0)[0])
    path = ridge.path(0.5, spreads)
    plain = PlainRidge(alpha=ridge.penalty * len(X)).fit(X, truth.toarray())
    expected = 0.5 * (plain.predict(X) - truth.toarray().mean(axis=0)) / spreads
    assert_allclose(path.coordinates(X) @ path.labels, expected, atol=1e-3)
    assert path.n_coordinates == truth.shape[1]


def test_with_many_labels_the_path_is_the_best_one_of_its_rank():
    rng = np.random.default_rng(0)
    n_labels = MOST_COORDINATES + 40
    X = rng.normal(size=(900, n_labels)).astype(np.float32)
    truth = sp.csr_matrix(rng.random((900, n_labels)) < 0.1, dtype=np.float32)
    ridge = Ridge(lambda rows: X[rows], truth, np.arange(900) % 2)
    path = ridge.path(1.0, np.ones(n_labels))
    centred = X - X.mean(axis=0)
    exact = centred @ ridge.coefficients()[0]
    values = np.linalg.svd(exact, compute_uv=False)
    lost = np.linalg.norm(exact - path.coordinates(X) @ path.labels)
    assert path.n_coordinates == MOST_COORDINATES
    assert lost == pytest.approx(np.linalg.norm(values[MOST_COORDINATES:]), rel=0.05)


@pytest.mark.parametrize("helpful", [True, False])
def test_the_weight_is_what_does_best_on_held_out_items(helpful):
    rng = np.random.default_rng(0)
    truth = (rng.random((400, 10)) < 0.2).astype(float)
    logits = truth + rng.normal(size=truth.shape)
    predictions = rng.normal(size=truth.shape) + (2 * truth if helpful else 0)
    weight = choose_weight(logits, predictions, truth, np.ones(400), truth.mean(axis=0))
    assert weight in (WEIGHTS[-2:] if helpful else (0,))


@pytest.mark.parametrize("form", ["dense", "sparse"])
def test_a_tagger_with_a_linear_path_is_saved_explained_and_corrected(
    world, tiny_space, tmp_path, form
):
    X = sp.csr_matrix(world.X) if form == "sparse" else world.X
    space = tiny_space(n_steps=10, linear=0.4)
    tagger = ZeroShotTagger(space=space, n_validations=0, random_state=0)
    tagger.fit(X, world.documents, world.label_sets)
    tagger.learn([(0, "sand", False), (5, "desk", True)], X)
    tagger.add_documents([("sea", "jellyfish")])
    tagger.save(tmp_path / "model")
    again = load(tmp_path / "model")
    scores = tagger.predict_proba(world.X_test)
    assert_array_equal(again.predict_proba(world.X_test), scores)
    logits = again.decision_function(world.X_test[:1])[0]
    for label in ("sand", "wave", "jellyfish"):
        evidence = again.explain(world.X_test[0], label)
        parts = sum(part for _, part in evidence.parts())
        assert parts == pytest.approx(evidence.logit, abs=1e-6)
        assert evidence.logit == pytest.approx(logits[again.classes_.tolist().index(label)])
    encoded = again.encode(world.X_test)
    assert_allclose(again.predict_proba(encoded), scores, atol=1e-12)


def test_the_linear_path_reaches_probable_tags_and_through_them_unseen_labels(world, tiny_space):
    scores = {}
    for weight in (0.0, 1.0):
        space = tiny_space(n_steps=4, linear=weight, context=1.0, priming=0.0)
        tagger = ZeroShotTagger(space=space, n_validations=0, random_state=0)
        tagger.fit(world.X, world.documents, world.label_sets)
        scores[weight] = tagger.predict_proba(world.X_test)[:, tagger.kinds_ == "unseen"]
    assert np.abs(scores[1.0] - scores[0.0]).max() > 1e-3


def test_a_space_has_no_linear_path_where_no_item_can_be_held_out(world, tiny_space):
    space = tiny_space(n_steps=4, linear=None)
    tagger = ZeroShotTagger(space=space, n_validations=0, random_state=0)
    tagger.fit(world.X[:1], world.documents[:1], world.label_sets)
    assert tagger.space_.linear_.n_coordinates == 0


def test_features_are_left_out_at_random_and_are_the_same_on_average():
    features = np.ones((200, 300), dtype=np.float32)
    thinned = leave_out(features, seed=3)
    assert set(np.unique(thinned)) == {0.0, np.float32(1 / (1 - LEFT_OUT))}
    assert thinned.mean() == pytest.approx(1, abs=0.02)
    assert_array_equal(thinned, leave_out(features, seed=3))
    assert (thinned != leave_out(features, seed=4)).any()


def test_a_learned_weight_is_found_where_features_say_labels_outright(world, tiny_space):
    rng = np.random.default_rng(0)
    labels = sorted({label for tags in world.documents for label in tags})
    truth = np.array([[label in tags for label in labels] for tags in world.documents], dtype=float)
    X = truth @ rng.normal(size=(len(labels), 60)) + 0.3 * rng.normal(size=(len(truth), 60))
    norms = {}
    for linear in (None, 0.0):
        space = tiny_space(n_steps=10, linear=linear)
        tagger = ZeroShotTagger(space=space, n_validations=0, random_state=0)
        norms[linear] = np.abs(tagger.fit(X, world.documents).space_.linear_.labels).max(initial=0)
    assert norms[None] == WEIGHTS[-1]
    assert norms[0.0] == 0
