"""ConSE, Fast0Tag and composition: what word vectors say, against plain loops."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.optimize import minimize
from scipy.spatial.distance import cdist
from sklearn.base import clone

from polyseme import WordVectors
from polyseme.base.validation import InputError, PolysemeWarning
from polyseme.documents.corpus import LabelCorpus
from polyseme.metrics import concept_map, example_map, roc_auc
from polyseme_experiments.baselines import Composition, ConSE, Fast0Tag
from polyseme_experiments.baselines import words as words_module
from polyseme_experiments.baselines.words import (
    _best_cosines,
    _combine_top,
    _ranking_directions,
    _RankingProblem,
    zero_shot_quality,
)
from toy_fits import fit_world


def unit(rows):
    rows = np.asarray(rows, dtype=np.float64)
    return rows / np.linalg.norm(rows, axis=-1, keepdims=True)


@pytest.fixture(scope="module")
def truthful(world):
    """Word vectors that know the themes: each word is the mean of its themes' corners."""
    labels = sorted(set().union(*world.themes.values()))
    themes = list(world.themes.values())
    corners = np.array([[label in theme for theme in themes] for label in labels])
    generator = np.random.default_rng(3)
    noise = generator.standard_normal(corners.shape)
    return WordVectors.from_arrays(labels, corners + 0.15 * noise)


# --- all of them -------------------------------------------------------------------------------


@pytest.mark.parametrize("baseline", [ConSE(), Fast0Tag(), Composition()])
def test_where_words_tell_the_truth_unseen_labels_are_found(baseline, world, truthful):
    composes = isinstance(baseline, Composition)
    themes = ("beach", "street") if composes else tuple(world.themes)
    labels = [label for theme in themes for label in world.themes[theme]]
    documents = LabelCorpus.from_documents(world.documents).restrict(labels)
    sets = LabelCorpus.from_documents(world.label_sets).restrict(labels)
    rows = np.flatnonzero(documents.lengths)
    baseline = clone(baseline).set_params(vectors=truthful, random_state=0)
    baseline.fit(world.X[rows], documents.select(rows), sets)
    assert baseline.without_vector_ == ()
    learned_from = set(baseline.classes_[baseline.direct_])
    assert learned_from.isdisjoint(world.unseen)

    tested = np.isin(world.themes_test, themes)
    scores = baseline.decision_function(world.X_test[tested])
    truth = world.truth(baseline.classes_)[tested]
    unseen = baseline.kinds_ == "unseen"
    assert unseen.any()
    assert roc_auc(truth[:, unseen], scores[:, unseen]) > 0.95
    if not composes:
        assert example_map(truth, scores) > 0.9


@pytest.mark.parametrize("baseline", [ConSE(), Fast0Tag(), Composition()])
def test_labels_without_a_vector_come_last_and_are_named(baseline):
    vectors = WordVectors({"a": [1, 0], "b": [0, 1], "c": [1, 1]})
    documents = [("a", "x"), ("b", "x"), ("a",), ("b",), ("x",)] * 4
    rows = [[1, 0, 0], [0, 1, 0], [1, 0, 1], [0, 1, 1], [0, 0, 1]]
    X = np.array(rows * 4, dtype=float)
    baseline = clone(baseline).set_params(vectors=vectors, random_state=0)
    with pytest.warns(PolysemeWarning, match=r"2 of 5 labels have no word vector .* last: x, y\."):
        baseline.fit(X, documents, [("a", "c", "x"), ("b", "y")])
    assert baseline.without_vector_ == ("x", "y")

    scores = baseline.decision_function(X)
    has_vector = np.array([label in vectors for label in baseline.classes_])
    assert np.isfinite(scores[:, has_vector]).all()
    assert np.isneginf(scores[:, ~has_vector]).all()
    labels, _ = baseline.rank(X[:1], k=5)
    assert set(labels[0, 3:]) == {"x", "y"}


@pytest.mark.parametrize("baseline", [ConSE(), Fast0Tag(), Composition()])
@pytest.mark.parametrize(
    ("vectors", "message"),
    [
        (
            WordVectors({"z": [1.0]}),
            r"None of the 2 labels .* has a word vector in a mapping",
        ),
        ({"a": [1.0]}, "must be WordVectors or None; got dict"),
    ],
)
def test_word_vectors_that_cannot_be_used_are_refused(baseline, vectors, message):
    baseline = clone(baseline).set_params(vectors=vectors)
    with pytest.raises(InputError, match=message):
        baseline.fit(np.eye(3), [("a",), ("b",), ("a", "b")])


@pytest.mark.parametrize("baseline", [ConSE(), Fast0Tag(), Composition()])
def test_word_vectors_for_no_label_on_instances_are_refused(baseline):
    vectors = WordVectors({"c": [1.0]})
    baseline = clone(baseline).set_params(vectors=vectors)
    documents = [("a",), ("b",), ("a", "b")]
    with (
        pytest.warns(PolysemeWarning, match="2 of 3 labels have no word vector"),
        pytest.raises(InputError, match="None of the labels on instances"),
    ):
        baseline.fit(np.eye(3), documents, [("a", "c"), ("b",)])


@pytest.mark.parametrize(
    ("baseline", "message"),
    [
        (ConSE(n_top=0), "`n_top` of `ConSE` must be a whole number at least 1; got 0"),
        (Fast0Tag(penalty=0.0), "`penalty` of `Fast0Tag` must be a number above 0"),
        (Fast0Tag(max_iter=0), "`max_iter` of `Fast0Tag`"),
        (Composition(max_labels=25), "`max_labels` of `Composition` must be .* at most 24"),
    ],
)
def test_parameters_out_of_range_are_refused_before_anything_is_read(
    baseline, message, monkeypatch
):
    monkeypatch.delenv("POLYSEME_DATA", raising=False)
    with pytest.raises(InputError, match=message):
        baseline.fit(np.eye(2), [("a",), ("b",)])


def test_quality_looks_at_instances_with_a_hidden_label():
    generator = np.random.default_rng(0)
    truth = generator.random((30, 6)) < 0.3
    scores = generator.random((30, 6))
    hidden = np.array([True, False, False, True, False, False])
    rows = truth[:, hidden].any(axis=1)
    by_example = example_map(truth[rows], scores[rows])
    by_concept = concept_map(truth[rows], scores[rows])
    quality = zero_shot_quality(truth, scores, hidden)
    expected = (by_example + by_concept) / 2
    assert quality == pytest.approx(expected)
    assert zero_shot_quality(truth & ~hidden, scores, hidden) == 0.0


# --- ConSE -------------------------------------------------------------------------------------


def test_the_combination_is_that_of_the_best_labels():
    predicted = np.array([[0.6, 0.3, -0.2, 0.1], [-1.0, -0.5, 0.0, -2.0], [0.2, 0.2, 0.2, 0.2]])
    predicted_before = predicted.copy()
    vectors = unit([[1, 0], [0, 1], [1, 1], [-1, 2]])
    shares = np.array([0.4, 0.3, 0.2, 0.1])
    # The two best: by their predictions, by the shares where none is above 0, by column.
    weights = [[0.6, 0.3, 0, 0], [0.4, 0.3, 0, 0], [0.2, 0.2, 0, 0]]
    of_two = _combine_top(predicted, vectors, shares, 2)
    assert_allclose(of_two, unit(weights @ vectors), atol=1e-12)
    assert np.array_equal(predicted, predicted_before)

    of_all = _combine_top(predicted[:1], vectors, shares, 10)
    expected = unit(np.array([0.6, 0.3, 0, 0.1]) @ vectors)
    assert_allclose(of_all[0], expected)


def test_a_combination_that_cancels_is_zero():
    opposite = np.array([[1.0, 0], [-1.0, 0]])
    combination = _combine_top(np.ones((1, 2)), opposite, np.ones(2), 2)
    assert combination.tolist() == [[0, 0]]


def test_scores_are_cosines_with_the_combination(world, truthful):
    baseline = ConSE(vectors=truthful, n_top=3, random_state=0)
    fit_world(baseline, world)
    scores = baseline.decision_function(world.X_test)
    vectors = baseline.label_vectors_
    direct_vectors = vectors[baseline.direct_]
    predicted = baseline.mapper_.predict(world.X_test)
    for row in range(3):
        best = np.argsort(-predicted[row])[:3]
        weights = np.maximum(predicted[row, best], 0)
        point = unit(weights @ direct_vectors[best])
        assert_allclose(scores[row], vectors @ point)


# --- Fast0Tag ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def problem():
    """Word vectors and the labels of documents, the fullest first, none empty and none full."""
    generator = np.random.default_rng(5)
    vectors = unit(generator.standard_normal((7, 4)))
    truth = generator.random((12, 7)) < 0.4
    truth[:, 0] |= ~truth.any(axis=1)
    truth[:, 1] &= ~truth.all(axis=1)
    sizes = truth.sum(axis=1)
    order = np.argsort(-sizes, kind="stable")
    return vectors, truth[order]


def objective(w, vectors, row, penalty):
    """Return the objective of one document by plain loops."""
    pairs = list(itertools.product(vectors[row], vectors[~row]))
    total = 0.0
    for positive, negative in pairs:
        margin = w @ (positive - negative)
        total += max(0.0, 1.0 - margin) ** 2
    penalised = penalty * w @ w
    return 0.5 * penalised + 0.5 * total / len(pairs)


def test_the_gradient_equals_finite_differences(problem):
    vectors, truth = problem
    ranking = _RankingProblem(vectors, truth, 0.3)
    generator = np.random.default_rng(1)
    directions = generator.standard_normal((len(truth), 4))
    gradient = ranking.gradient(directions)
    for row, tags in enumerate(truth):
        for axis, step in enumerate(1e-6 * np.eye(4)):
            above = objective(directions[row] + step, vectors, tags, 0.3)
            below = objective(directions[row] - step, vectors, tags, 0.3)
            slope = (above - below) / 2e-6
            assert gradient[row, axis] == pytest.approx(slope, abs=1e-6)


def test_no_curvature_is_above_its_bound(problem):
    vectors, truth = problem
    bound = _RankingProblem(vectors, truth, 0.3).curvature()
    for row, tags in enumerate(truth):
        positive = vectors[tags][:, None]
        gaps = (positive - vectors[~tags]).reshape(-1, 4)
        hessian = 0.3 * np.eye(4) + gaps.T @ gaps / len(gaps)
        curvatures = np.linalg.eigvalsh(hessian)
        assert curvatures.max() <= bound[row] + 1e-12


@pytest.mark.parametrize("penalty", [0.001, 0.1, 10.0])
def test_directions_are_optimal(problem, penalty):
    vectors, truth = problem
    directions, converged, _ = _ranking_directions(vectors, truth, penalty, 1e-7, 20_000)
    assert converged.all()
    for direction, tags in zip(directions, truth, strict=True):
        result = minimize(
            objective,
            np.zeros(4),
            (vectors, tags, penalty),
            method="BFGS",
            options={"gtol": 1e-9},
        )
        error = np.linalg.norm(direction - result.x)
        assert error < 1e-3 * np.linalg.norm(result.x)


@pytest.mark.parametrize("penalty", [0.001, 0.1, 10.0])
def test_directions_do_not_depend_on_where_the_search_starts(problem, penalty):
    vectors, truth = problem
    expected, _, _ = _ranking_directions(vectors, truth, penalty, 1e-7, 20_000)
    rows = np.repeat(np.arange(12), 2)
    generator = np.random.default_rng(2)
    order = generator.permutation(rows)
    start = np.random.default_rng(3).standard_normal((24, 4))
    directions, _, _ = _ranking_directions(vectors, truth[order], penalty, 1e-7, 20_000, start)
    assert_allclose(directions, expected[order], rtol=1e-5, atol=1e-6)


def test_too_few_steps_cause_a_warning(world, truthful):
    baseline = Fast0Tag(vectors=truthful, penalty=0.001, max_iter=2, random_state=0)
    with pytest.warns(PolysemeWarning, match="not within 1% of their length after 2 steps"):
        baseline.fit(world.X, world.documents)
    assert not baseline.converged_
    assert baseline.n_iter_ == 2


def test_scores_are_products_with_the_predicted_direction(world, truthful):
    baseline = Fast0Tag(vectors=truthful, penalty=0.001, max_iter=2000, random_state=0)
    baseline.fit(world.X, world.documents)
    assert baseline.converged_
    assert 2 < baseline.n_iter_ < 2000
    directions = baseline.mapper_.predict(world.X_test)
    expected = directions @ baseline.label_vectors_.T
    scores = baseline.decision_function(world.X_test)
    assert_allclose(scores, expected, atol=1e-12)


def test_instances_without_or_with_all_labels_teach_nothing(world, truthful):
    plain = Fast0Tag(vectors=truthful, penalty=0.1, random_state=0)
    plain.fit(world.X, world.documents)
    far_rows = np.full((2, world.X.shape[1]), 50.0)
    X = np.vstack([world.X, far_rows])
    all_labels = sorted(set().union(*world.documents))
    documents = [*world.documents, (), all_labels]
    extended = clone(plain)
    with pytest.warns(PolysemeWarning, match="1 of 302 documents have no label"):
        extended.fit(X, documents)
    scores = extended.decision_function(world.X_test)
    expected = plain.decision_function(world.X_test)
    assert_allclose(scores, expected, atol=1e-9)


def test_instances_with_all_labels_alone_are_refused():
    words = WordVectors({"a": [1, 0], "b": [0, 1]})
    baseline = Fast0Tag(vectors=words)
    with pytest.raises(InputError, match="nothing to rank"):
        baseline.fit(np.eye(2), [("a", "b"), ("a", "b")])


# --- composition -------------------------------------------------------------------------------


@settings(deadline=None, max_examples=25)
@given(
    n_labels=st.integers(1, 7),
    n_low=st.integers(1, 7),
    block=st.integers(1, 5),
    seed=st.integers(0, 1000),
)
def test_the_search_equals_going_through_all_combinations(n_labels, n_low, block, seed):
    generator = np.random.default_rng(seed)
    vectors = unit(generator.standard_normal((n_labels, 3)))
    if n_labels > 2:
        vectors[1] = -vectors[0]  # a combination without direction
    points = unit(generator.standard_normal((4, 3)))
    best = np.full((len(points), n_labels), -1.0)
    for included in itertools.product([False, True], repeat=n_labels):
        columns = np.flatnonzero(included)
        if not len(columns):
            continue
        total = vectors[columns].sum(axis=0)
        length = np.linalg.norm(total)
        cosines = np.zeros(len(points))
        if length > 1e-12:
            cosines = points @ total / length
        best[:, columns] = np.maximum(best[:, columns], cosines[:, None])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(words_module, "_LOW_LABELS", n_low)
        patch.setattr(words_module, "_BLOCK_ROWS", block)
        searched = _best_cosines(points, vectors)
    assert_allclose(searched, best, atol=1e-12)


def test_scores_are_negative_distances_of_unit_sums():
    generator = np.random.default_rng(0)
    names = ["a", "b", "c", "d"]
    vectors = WordVectors({name: generator.standard_normal(3) for name in names})
    X = generator.standard_normal((20, 2))
    documents = [tuple(generator.permutation(names)[:2]) for _ in range(20)]
    baseline = Composition(vectors=vectors, random_state=0)
    baseline.fit(X, documents)
    scores = baseline.decision_function(X)
    points = unit(baseline.mapper_.predict(X))
    cosines = points @ baseline.label_vectors_.T
    combinations = [np.flatnonzero(row) for row in itertools.product([0, 1], repeat=4) if any(row)]
    for label in range(4):
        holding = [labels for labels in combinations if label in labels]
        sums = [baseline.label_vectors_[labels].sum(axis=0) for labels in holding]
        distances = cdist(points, unit(sums)).min(axis=1)
        expected = 1e-6 * cosines[:, label] - distances
        assert_allclose(scores[:, label], expected, atol=1e-9)


def test_large_vocabularies_and_vectors_that_cancel_are_refused_before_any_work(
    world, truthful, monkeypatch
):
    def never(*arguments, **named):
        raise AssertionError("work was done")

    monkeypatch.setattr(words_module.InstanceMapper, "fit", never)
    message = r"29 labels with a word vector make 2\^29 - 1 = 5.37e\+08 .* `max_labels` = 16 labels"
    with pytest.raises(InputError, match=message):
        fit_world(Composition(vectors=truthful), world)
    with pytest.raises(InputError, match="cancel out in every document"):
        opposite = WordVectors({"a": [1.0], "b": [-1.0]})
        Composition(vectors=opposite).fit(np.eye(2), [("a", "b"), ("a", "b")])
