"""ConSE, Fast0Tag and composition: what word vectors say, against plain loops."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.optimize import minimize
from sklearn.base import clone

from polyseme import WordVectors
from polyseme._validation import InputError, PolysemeWarning
from polyseme.baselines import Composition, ConSE, Fast0Tag
from polyseme.baselines import words as words_module
from polyseme.baselines.words import (
    _best_cosines,
    _combine_top,
    _ranking_directions,
    _RankingProblem,
    zero_shot_quality,
)
from polyseme.corpus import LabelCorpus
from polyseme.metrics import concept_map, example_map, roc_auc


def unit(rows):
    rows = np.asarray(rows, dtype=np.float64)
    return rows / np.linalg.norm(rows, axis=-1, keepdims=True)


@pytest.fixture(scope="module")
def truthful(world):
    """Word vectors that know the themes: each word is the mean of its themes' corners."""
    labels = sorted(set().union(*world.themes.values()))
    noise = 0.15 * np.random.default_rng(3).standard_normal((len(labels), len(world.themes)))
    inside = [[label in theme for theme in world.themes.values()] for label in labels]
    return WordVectors.from_arrays(labels, inside + noise)


# --- all of them -------------------------------------------------------------------------------


@pytest.mark.parametrize("baseline", [ConSE(), Fast0Tag(), Composition()])
def test_where_words_tell_the_truth_unseen_labels_are_found(baseline, world, truthful):
    themes = ("beach", "street") if isinstance(baseline, Composition) else tuple(world.themes)
    kept = [label for theme in themes for label in world.themes[theme]]
    tested = [row for row, theme in enumerate(world.themes_test) if theme in themes]
    documents = LabelCorpus.from_documents(world.documents).restrict(kept)
    sets = LabelCorpus.from_documents(world.label_sets).restrict(kept)
    rows = np.flatnonzero(documents.lengths)
    baseline = clone(baseline).set_params(vectors=truthful, random_state=0)
    baseline.fit(world.X[rows], documents.select(rows), sets)
    scores = baseline.decision_function(world.X_test[tested])
    truth = world.truth(baseline.classes_)[tested]
    unseen = baseline.kinds_ == "unseen"
    assert roc_auc(truth[:, unseen], scores[:, unseen]) > 0.95
    assert isinstance(baseline, Composition) or example_map(truth, scores) > 0.9
    assert baseline.without_vector_ == ()
    learned_from = set(baseline.classes_[baseline.direct_])
    assert unseen.any()
    assert not learned_from & set(world.unseen)


@pytest.mark.parametrize("baseline", [ConSE(), Fast0Tag(), Composition()])
def test_labels_without_a_vector_come_last_and_are_named(baseline):
    vectors = WordVectors({"a": [1, 0], "b": [0, 1], "c": [1, 1]})
    documents = [("a", "x"), ("b", "x"), ("a",), ("b",), ("x",)] * 4
    X = np.tile(np.array([[1, 0, 0], [0, 1, 0], [1, 0, 1], [0, 1, 1], [0, 0, 1.0]]), (4, 1))
    baseline = clone(baseline).set_params(vectors=vectors, random_state=0)
    with pytest.warns(PolysemeWarning, match=r"2 of 5 labels have no word vector .* last: x, y\."):
        baseline.fit(X, documents, [("a", "c", "x"), ("b", "y")])
    assert baseline.without_vector_ == ("x", "y")
    scores = baseline.decision_function(X)
    known = np.array([label in vectors for label in baseline.classes_])
    assert np.isfinite(scores[:, known]).all()
    assert np.isneginf(scores[:, ~known]).all()
    names, _ = baseline.rank(X[:1], k=5)
    assert set(names[0, 3:]) == {"x", "y"}


@pytest.mark.parametrize("baseline", [ConSE(), Fast0Tag(), Composition()])
def test_refusals_name_what_is_wrong(baseline):
    X = np.eye(3)
    documents = [("a",), ("b",), ("a", "b")]
    with pytest.raises(InputError, match=r"None of the 2 labels .* has a word vector in a mapping"):
        clone(baseline).set_params(vectors=WordVectors({"z": [1.0]})).fit(X, documents)
    with pytest.raises(InputError, match="must be WordVectors or None; got dict"):
        clone(baseline).set_params(vectors={"a": [1.0]}).fit(X, documents)
    words = WordVectors({"c": [1.0]})
    with (
        pytest.warns(PolysemeWarning, match="2 of 3 labels have no word vector"),
        pytest.raises(InputError, match="None of the labels on instances"),
    ):
        clone(baseline).set_params(vectors=words).fit(X, documents, [("a", "c"), ("b",)])


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
    rows = truth[:, 0] | truth[:, 3]
    expected = (example_map(truth[rows], scores[rows]) + concept_map(truth[rows], scores[rows])) / 2
    assert zero_shot_quality(truth, scores, hidden) == pytest.approx(expected)
    assert zero_shot_quality(truth & ~hidden, scores, hidden) == 0.0


# --- ConSE -------------------------------------------------------------------------------------


def test_the_combination_is_convex_and_by_hand():
    predicted = np.array([[0.6, 0.3, -0.2, 0.1], [-1.0, -0.5, 0.0, -2.0], [0.2, 0.2, 0.2, 0.2]])
    vectors = unit([[1, 0], [0, 1], [1, 1], [-1, 2]])
    shares = np.array([0.4, 0.3, 0.2, 0.1])
    # The two best: by their predictions, by the shares where none is above 0, by column.
    weights = [[0.6, 0.3, 0, 0], [0.4, 0.3, 0, 0], [0.2, 0.2, 0, 0]]
    found = _combine_top(predicted, vectors, shares, 2)
    assert_allclose(found, unit(weights @ vectors), atol=1e-12)
    assert predicted[0, 2] == -0.2  # the input is left alone
    everything = _combine_top(predicted[:1], vectors, shares, 10)
    assert_allclose(everything[0], unit(np.array([0.6, 0.3, 0, 0.1]) @ vectors))
    opposite = np.array([[1.0, 0], [-1.0, 0]])
    assert _combine_top(np.ones((1, 2)), opposite, np.ones(2), 2).tolist() == [[0, 0]]


def test_scores_are_cosines_with_the_combination(world, truthful):
    baseline = ConSE(vectors=truthful, n_top=3, random_state=0)
    baseline.fit(world.X, world.documents, world.label_sets, label_sets_only=True)
    scores = baseline.decision_function(world.X_test)
    predicted = baseline.mapper_.predict(world.X_test)
    direct = np.flatnonzero(baseline.direct_)
    for row in range(3):
        best = np.argsort(-predicted[row])[:3]
        point = np.maximum(predicted[row, best], 0) @ baseline.label_vectors_[direct[best]]
        assert_allclose(scores[row], baseline.label_vectors_ @ unit(point))


# --- Fast0Tag ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def problem():
    generator = np.random.default_rng(5)
    vectors = unit(generator.standard_normal((7, 4)))
    truth = generator.random((12, 7)) < 0.4
    truth[:, 0] |= ~truth.any(axis=1)
    truth[:, 1] &= ~truth.all(axis=1)
    return vectors, truth[np.argsort(-truth.sum(axis=1), kind="stable")]


def objective(w, vectors, row, penalty):
    """Return the objective of one document by plain loops."""
    inside = np.flatnonzero(row)
    outside = np.flatnonzero(~row)
    pairs = list(itertools.product(vectors[inside], vectors[outside]))
    total = sum(max(0.0, 1.0 - w @ (v_p - v_n)) ** 2 for v_p, v_n in pairs)
    return 0.5 * penalty * w @ w + 0.5 * total / len(pairs)


def test_the_gradient_equals_finite_differences_and_the_curvature_bound_holds(problem):
    vectors, truth = problem
    ranking = _RankingProblem(vectors, truth, 0.3)
    w = np.random.default_rng(1).standard_normal((len(truth), 4))
    gradient = ranking.gradient(w)
    bound = ranking.curvature()
    for row, tags in enumerate(truth):
        for axis, step in enumerate(1e-6 * np.eye(4)):
            up, down = (objective(w[row] + s, vectors, tags, 0.3) for s in (step, -step))
            assert gradient[row, axis] == pytest.approx((up - down) / 2e-6, abs=1e-6)
        hessian = 0.3 * np.eye(4)
        pairs = list(itertools.product(np.flatnonzero(tags), np.flatnonzero(~tags)))
        for p, n in pairs:
            hessian += np.outer(vectors[p] - vectors[n], vectors[p] - vectors[n]) / len(pairs)
        assert np.linalg.eigvalsh(hessian)[-1] <= bound[row] + 1e-12


@pytest.mark.parametrize("penalty", [0.001, 0.1, 10.0])
def test_directions_are_optimal_wherever_they_start(problem, penalty):
    vectors, truth = problem
    found, converged, _ = _ranking_directions(vectors, truth, penalty, 1e-7, 20_000)
    assert converged.all()
    for row, tags in enumerate(truth):
        best = minimize(
            objective, np.zeros(4), (vectors, tags, penalty), method="BFGS", options={"gtol": 1e-9}
        )
        assert np.linalg.norm(found[row] - best.x) < 1e-3 * np.linalg.norm(best.x)
    order = np.random.default_rng(2).permutation(np.r_[np.arange(12), np.arange(12)])
    start = np.random.default_rng(3).standard_normal((24, 4))
    again, _, _ = _ranking_directions(vectors, truth[order], penalty, 1e-7, 20_000, start)
    assert_allclose(again, found[order], rtol=1e-5, atol=1e-6)


def test_too_few_steps_are_said_and_scores_are_products_with_the_direction(world, truthful):
    baseline = Fast0Tag(vectors=truthful, penalty=0.001, max_iter=2, random_state=0)
    with pytest.warns(PolysemeWarning, match="not within 1% of their length after 2 steps"):
        baseline.fit(world.X, world.documents)
    assert not baseline.converged_
    assert baseline.n_iter_ == 2
    baseline.set_params(max_iter=2000).fit(world.X, world.documents)
    assert baseline.converged_
    assert 2 < baseline.n_iter_ < 2000
    expected = baseline.mapper_.predict(world.X_test) @ baseline.label_vectors_.T
    assert_allclose(baseline.decision_function(world.X_test), expected, atol=1e-12)


def test_instances_without_or_with_all_labels_teach_nothing(world, truthful):
    with pytest.raises(InputError, match="nothing to rank"):
        words = WordVectors({"a": [1, 0], "b": [0, 1]})
        Fast0Tag(vectors=words).fit(np.eye(2), [("a", "b"), ("a", "b")])
    every = sorted({label for tags in world.documents for label in tags})
    X = np.vstack([world.X, np.full((2, world.X.shape[1]), 50.0)])
    plain = Fast0Tag(vectors=truthful, penalty=0.1, random_state=0).fit(world.X, world.documents)
    with pytest.warns(PolysemeWarning, match="1 of 302 documents have no label"):
        more = clone(plain).fit(X, [*world.documents, (), every])
    scores = more.decision_function(world.X_test)
    assert_allclose(scores, plain.decision_function(world.X_test), atol=1e-9)


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
    for size in range(1, n_labels + 1):
        for labels in itertools.combinations(range(n_labels), size):
            total = vectors[list(labels)].sum(axis=0)
            length = np.linalg.norm(total)
            cosines = points @ total / length if length > 1e-12 else np.zeros(len(points))
            best[:, list(labels)] = np.maximum(best[:, list(labels)], cosines[:, None])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(words_module, "_LOW_LABELS", n_low)
        patch.setattr(words_module, "_BLOCK_ROWS", block)
        assert_allclose(_best_cosines(points, vectors), best, atol=1e-12)


def test_scores_are_negative_distances_of_unit_sums():
    generator = np.random.default_rng(0)
    names = ["a", "b", "c", "d"]
    vectors = WordVectors({name: generator.standard_normal(3) for name in names})
    X = generator.standard_normal((20, 2))
    documents = [tuple(generator.permutation(names)[:2]) for _ in range(20)]
    baseline = Composition(vectors=vectors, random_state=0).fit(X, documents)
    scores = baseline.decision_function(X)
    points = unit(baseline.mapper_.predict(X))
    alone = points @ baseline.label_vectors_.T
    for row, point in enumerate(points):
        for label, others in enumerate([[1, 2, 3], [0, 2, 3], [0, 1, 3], [0, 1, 2]]):
            some = [s for size in range(4) for s in itertools.combinations(others, size)]
            sums = unit([baseline.label_vectors_[[label, *s]].sum(axis=0) for s in some])
            expected = 1e-6 * alone[row, label] - min(math.dist(one, point) for one in sums)
            assert scores[row, label] == pytest.approx(expected, abs=1e-9)


def test_large_vocabularies_and_vectors_that_cancel_are_refused_before_any_work(
    world, truthful, monkeypatch
):
    def never(*arguments, **named):
        raise AssertionError("work was done")

    monkeypatch.setattr(words_module.InstanceMapper, "fit", never)
    message = r"29 labels with a word vector make 2\^29 - 1 = 5.37e\+08 .* `max_labels` = 16 labels"
    with pytest.raises(InputError, match=message):
        Composition(vectors=truthful).fit(
            world.X, world.documents, world.label_sets, label_sets_only=True
        )
    with pytest.raises(InputError, match="cancel out in every document"):
        opposite = WordVectors({"a": [1.0], "b": [-1.0]})
        Composition(vectors=opposite).fit(np.eye(2), [("a", "b"), ("a", "b")])
