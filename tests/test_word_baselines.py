from __future__ import annotations

import copy
import gzip
import itertools
import math
import zipfile

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from polyseme.baselines.word_base import zero_shot_quality
from polyseme.word_vectors.vectors import words_of
from sklearn.base import clone

from polyseme import WordVectors
from polyseme._validation import InputError, PolysemeWarning
from polyseme.baselines import Composition, ConSE, Fast0Tag
from polyseme.baselines import composition as composition_module
from polyseme.baselines.base import hidden_groups
from polyseme.baselines.composition import best_cosines
from polyseme.baselines.conse import combine_top
from polyseme.baselines.directions import RankingProblem, ranking_directions
from polyseme.corpus import LabelCorpus
from polyseme.metrics import concept_map, example_map, roc_auc
from polyseme.word_vectors import files as word_files

# --------------------------------------------------------------------------- words and vectors


def unit(rows):
    rows = np.asarray(rows, dtype=np.float64)
    return rows / np.linalg.norm(rows, axis=-1, keepdims=True)


@pytest.mark.parametrize(
    ("label", "words"),
    [
        ("Sky", ["sky"]),
        ("close-up", ["close", "up"]),
        ("genre---deep_house", ["genre", "deep", "house"]),
        ("  New   York ", ["new", "york"]),
        ("punk/new wave", ["punk", "new", "wave"]),
        ("rock'", ["rock"]),
        ("r&b", ["r&b"]),
        ("don't", ["don't"]),
        ("--", []),
        ("STRASSE", ["strasse"]),
        ("Straße", ["strasse"]),
    ],
)
def test_labels_fall_into_words(label, words):
    assert words_of(label) == words


def test_a_label_is_the_mean_of_its_known_words_at_length_one():
    vectors = WordVectors({"deep": [3, 0, 0], "House": [0, 1, 0], "zero": [0, 0, 0]})
    labels = ["deep house", "deep xyz", "xyz", "zero", "deep-deep house"]
    found, known = vectors.label_vectors(labels)
    expected = unit([[3, 1, 0], [1, 0, 0], [1, 1, 1], [1, 1, 1], [6, 1, 0]])
    assert known.tolist() == [True, True, False, False, True]
    np.testing.assert_allclose(found[known], expected[known])
    assert not found[~known].any()


def test_opposite_words_leave_a_label_without_vector():
    _, known = WordVectors({"hot": [1, 0], "cold": [-1, 0]}).label_vectors(["hot cold", "hot"])
    assert known.tolist() == [False, True]


def test_of_words_that_differ_in_case_the_folded_one_counts():
    mixed = WordVectors({"Turkey": [1, 0], "turkey": [0, 1], "Bath": [1, 1], "BATH": [5, 5]})
    assert mixed.words == ("turkey", "bath")
    assert mixed.vectors.tolist() == [[0, 1], [1, 1]]
    assert "Turkey" in mixed and "goose" not in mixed and len(mixed) == 2


def test_word_vectors_do_not_change_and_copies_are_the_object_itself():
    vectors = WordVectors({"a": [1, 2]}, source="here")
    assert copy.deepcopy(vectors) is vectors is copy.copy(vectors)
    assert clone(ConSE(vectors=vectors)).vectors is vectors
    assert repr(vectors) == "WordVectors(1 words of 2 numbers from here)"
    with pytest.raises(ValueError, match="read-only"):
        vectors.vectors[0, 0] = 5


def test_the_given_array_stays_free():
    array = np.ones((1, 2), dtype=np.float32)
    vectors = WordVectors.from_arrays(["a"], array)
    array[0, 0] = 7
    assert vectors.vectors.tolist() == [[1, 1]]


@pytest.mark.parametrize(
    ("vectors", "message"),
    [
        ({}, "at least one word"),
        ({"a": [1, 2], "b": [1]}, "all of one size"),
        ({"a": ["x"]}, "one list of numbers"),
        ({"a": [1, np.nan]}, "vector of 'a' in a mapping holds NaN"),
        ({"a": []}, "numbers in two dimensions"),
        ({"a": 1.0}, "numbers in two dimensions"),
        ({"": [1.0]}, "non-empty strings; got ''"),
        ({3: [1.0]}, "non-empty strings; got 3"),
        ({"a": np.ones(5000)}, "have 5000 numbers each; at most 4096"),
        ({"a": [1e300]}, "vector of 'a' in a mapping holds NaN or infinity"),
    ],
)
@pytest.mark.filterwarnings("ignore:overflow:RuntimeWarning")
def test_bad_mappings_get_one_sentence(vectors, message):
    with pytest.raises(InputError, match=message):
        WordVectors(vectors)


def test_word_and_vector_counts_must_agree():
    with pytest.raises(InputError, match="2 words but 3 vectors"):
        WordVectors.from_arrays(["a", "b"], np.ones((3, 2)))


# --------------------------------------------------------------------------- files


def test_an_npz_file_is_read(tmp_path):
    path = tmp_path / "words.npz"
    np.savez(path, words=np.array(["sky", "sea"]), vectors=np.eye(2, dtype=np.float16))
    found = WordVectors.read(path)
    assert found.words == ("sky", "sea")
    assert found.vectors.dtype == np.float32
    assert found.source == "words.npz"
    assert WordVectors.read(path, labels=["Sea shore"]).words == ("sea",)


@pytest.mark.parametrize("ending", [".txt", ".txt.gz"])
@pytest.mark.parametrize("header", ["", "4 2\n"])
def test_a_text_file_is_read(tmp_path, ending, header):
    text = header + "sky 1 0\n. . 0.5 0.5\nsea -2e-1 3 \r\nSky 9 9\n"
    path = tmp_path / f"glove{ending}"
    if ending.endswith("gz"):
        path.write_bytes(gzip.compress(text.encode()))
    else:
        path.write_text(text, newline="")
    found = WordVectors.read(path)
    assert found.words == ("sky", ". .", "sea")
    np.testing.assert_allclose(found.vectors, [[1, 0], [0.5, 0.5], [-0.2, 3]])
    assert WordVectors.read(path, labels=["sea-sky"], max_words=3).words == ("sky", "sea")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "holds no word; give another file"),
        ("sky 1 2\nsea 1\n", "Line 2 of v.txt has 1 numbers but 2 are expected"),
        ("sky 1 2\n\nsea 1 3", "Line 2 of v.txt has 0 numbers but 2"),
        ("sky\n", "Line 1 of v.txt has 0 numbers after the word"),
        ("sky 1 two\n", "Line 1 of v.txt holds something that is no number after 'sky'"),
        ("sky 1 nan\n", "vector of 'sky' in v.txt holds NaN"),
        ("sky" + " 1" * 4097, "has 4097 numbers after the word; 1 to 4096"),
        ("a 1\nb 1\nc 1\n", "more than 2 words; pass `labels`"),
    ],
)
def test_bad_text_files_get_one_sentence(tmp_path, text, message):
    path = tmp_path / "v.txt"
    path.write_text(text)
    with pytest.raises(InputError, match=message):
        WordVectors.read(path, max_words=2)


def test_broken_files_get_one_sentence(tmp_path):
    for name, content, message in [
        ("a.txt.gz", gzip.compress(b"sky 1 2\n" * 50)[:-12], "not a complete gzip file"),
        ("b.txt", b"sky \xff\xfe 1\n", "UTF-8"),
        ("c.npz", b"no archive", "not readable as a numpy file without pickled objects"),
        ("d.bin", b"PK", r"read from .npz, .txt and .txt.gz files; got d.bin"),
    ]:
        (tmp_path / name).write_bytes(content)
        with pytest.raises(InputError, match=message):
            WordVectors.read(tmp_path / name)
    with pytest.raises(InputError, match=r"not found at .*none.txt; check the path"):
        WordVectors.read(tmp_path / "none.txt")


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"words": np.array(["a"])}, "must hold `words` and `vectors`; got words"),
        ({"words": np.array([1]), "vectors": np.ones((1, 2))}, "must be a list of strings"),
        ({"words": np.array([["a"]]), "vectors": np.ones((1, 2))}, "must be a list of strings"),
        ({"words": np.array(["a", "b"]), "vectors": np.ones((1, 2))}, "2 words but 1 vectors"),
        ({"words": np.array(["a"]), "vectors": np.array([["x"]])}, "must be numbers in two"),
        ({"words": np.array(["a", "b", "c"]), "vectors": np.ones((3, 1))}, "more than 2 words"),
        ({"words": np.array(["a"], dtype=object), "vectors": np.ones((1, 1))}, "pickled objects"),
    ],
)
def test_bad_archives_get_one_sentence(tmp_path, arrays, message):
    np.savez(tmp_path / "v.npz", **arrays)
    with pytest.raises(InputError, match=message):
        WordVectors.read(tmp_path / "v.npz", max_words=2)


def test_an_archive_that_unpacks_to_too_much_is_refused_unread(tmp_path, monkeypatch):
    path = tmp_path / "v.npz"
    np.savez_compressed(path, words=np.array(["a"]), vectors=np.zeros((1, 4000)))
    monkeypatch.setattr(word_files, "MAX_BYTES", 10_000)
    with pytest.raises(InputError, match=r"unpacks to .* GiB; at most"):
        WordVectors.read(path)
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None


def test_the_default_file_is_found_in_the_data_folder(tmp_path, monkeypatch):
    monkeypatch.delenv("POLYSEME_DATA", raising=False)
    with pytest.raises(InputError, match="set POLYSEME_DATA to the folder"):
        WordVectors.find()
    with pytest.raises(InputError, match="No word vectors at"):
        WordVectors.find(tmp_path)
    path = tmp_path / "glove100-label-words.npz"
    np.savez(path, words=np.array(["sky", "sea"]), vectors=np.eye(2))
    assert WordVectors.find(tmp_path).words == ("sky", "sea")
    monkeypatch.setenv("POLYSEME_DATA", str(tmp_path))
    assert WordVectors.find(labels=["sea"]).words == ("sea",)
    baseline = ConSE(n_top=1, random_state=0).fit(np.eye(4), [("sky",), ("sea",)] * 2)
    assert baseline.label_vectors_.shape == (2, 2)


def test_the_real_vectors_know_the_labels_of_pictures(data):
    vectors = WordVectors.find(data)
    found, known = vectors.label_vectors(["sky", "close-up", "sea", "f-16"])
    assert known.tolist() == [True, True, True, False]
    assert found[0] @ found[2] > found[1] @ found[2]


# --------------------------------------------------------------------------- stand-in vectors


def test_stand_in_vectors_put_words_of_one_theme_together(world):
    vectors = WordVectors.from_documents(world.semantics, n_components=6, random_state=0)
    found, known = vectors.label_vectors(["sand", "sea", "bus", "owl"])
    assert known.tolist() == [True, True, True, False]  # owl is in no semantics document
    assert found[0] @ found[1] > 0.7 > 0.4 > abs(found[0] @ found[2])
    again = WordVectors.from_documents(world.semantics, n_components=6, random_state=0)
    assert np.array_equal(again.vectors, vectors.vectors)
    assert "stand-in learned from 300 documents" in repr(vectors)


def test_stand_in_vectors_refuse_documents_without_words():
    with pytest.raises(InputError, match="hold no words"):
        WordVectors.from_documents([("--",)])
    with pytest.raises(InputError, match="`n_components` of `WordVectors` must be"):
        WordVectors.from_documents([("a",)], n_components=0)


def test_stand_in_vectors_are_no_longer_than_there_are_words():
    assert WordVectors.from_documents([("a b", "c"), ("c",)]).vectors.shape == (3, 3)


# --------------------------------------------------------------------------- a world of words


@pytest.fixture(scope="module")
def truthful(world):
    """Word vectors that know the themes: each word is the mean of its themes' corners."""
    generator = np.random.default_rng(3)
    themes = list(world.themes)
    vectors = {}
    for label in sorted({label for held in world.themes.values() for label in held}):
        vector = 0.15 * generator.standard_normal(8)
        for place, theme in enumerate(themes):
            vector[place] += label in world.themes[theme]
        vectors[label] = vector
    return WordVectors(vectors)


@pytest.mark.parametrize("baseline", [ConSE(random_state=0), Fast0Tag(random_state=0)])
def test_where_words_tell_the_truth_unseen_labels_are_found(baseline, world, truthful):
    baseline = clone(baseline).set_params(vectors=truthful)
    baseline.fit(world.X, world.documents, world.semantics)
    scores, truth = baseline.decision_function(world.X_test), world.truth(baseline.classes_)
    unseen = baseline.kinds_ == "unseen"
    assert roc_auc(truth[:, unseen], scores[:, unseen]) > 0.95
    assert example_map(truth, scores) > 0.9
    assert baseline.without_vector_ == ()


def test_where_words_tell_the_truth_composition_finds_unseen_labels(world, truthful):
    themes = ("beach", "street")
    kept = [label for theme in themes for label in world.themes[theme]]
    rows = [row for row, held in enumerate(world.documents) if set(held) & set(kept)]
    tested = [row for row, theme in enumerate(world.themes_test) if theme in themes]
    baseline = Composition(vectors=truthful, random_state=0)
    semantics = LabelCorpus.from_documents(world.semantics).restrict(kept)
    with pytest.warns(PolysemeWarning, match="have no label"):
        documents = LabelCorpus.from_documents(world.documents).restrict(kept)
        baseline.fit(world.X, documents, semantics)
    assert baseline.n_combinations_ == 2 ** len(kept) - 1
    assert len(baseline.mapper_.mean_) == world.X.shape[1] and len(rows) == 120
    scores = baseline.decision_function(world.X_test[tested])
    truth = world.truth(baseline.classes_)[tested]
    unseen = baseline.kinds_ == "unseen"
    assert unseen.sum() == 2
    assert roc_auc(truth[:, unseen], scores[:, unseen]) > 0.95


@pytest.mark.parametrize(
    "baseline",
    [ConSE(random_state=0), Fast0Tag(random_state=0), Composition(random_state=0)],
)
def test_labels_without_a_vector_come_last_and_are_named(baseline):
    vectors = WordVectors({"a": [1, 0], "b": [0, 1], "c": [1, 1]})
    documents = [("a", "x"), ("b", "x"), ("a",), ("b",), ("x",)] * 4
    X = np.tile(np.array([[1, 0, 0], [0, 1, 0], [1, 0, 1], [0, 1, 1], [0, 0, 1.0]]), (4, 1))
    baseline = clone(baseline).set_params(vectors=vectors)
    with pytest.warns(PolysemeWarning, match=r"2 of 5 labels have no word vector .* last: x, y\."):
        baseline.fit(X, documents, [("a", "c", "x"), ("b", "y")])
    assert baseline.without_vector_ == ("x", "y")
    scores = baseline.decision_function(X)
    known = np.array([label in vectors for label in baseline.classes_])
    assert (scores[:, known].min(axis=1) > scores[:, ~known].max(axis=1)).all()
    assert np.isfinite(scores[:, known]).all()
    names, _ = baseline.rank(X[:1], k=5)
    assert set(names[0, 3:]) == {"x", "y"}


@pytest.mark.parametrize("baseline", [ConSE(), Fast0Tag(), Composition()])
def test_refusals_name_what_is_wrong(baseline):
    X, documents = np.eye(3), [("a",), ("b",), ("a", "b")]
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
        (ConSE(candidates=()), "`candidates` of `ConSE` must hold at least one"),
        (ConSE(candidates=(1, 2.5)), "`candidates` of `ConSE` must be a whole number"),
        (ConSE(n_folds=1), "`n_folds` of `ConSE`"),
        (Fast0Tag(penalty=0.0), "`penalty` of `Fast0Tag` must be a number above 0"),
        (Fast0Tag(penalties=()), "`penalties` of `Fast0Tag` must hold at least one"),
        (Fast0Tag(penalties=(-1.0,)), "`penalties` of `Fast0Tag` must be a number above 0"),
        (Fast0Tag(search_size=1), "`search_size` of `Fast0Tag`"),
        (Fast0Tag(max_iter=0), "`max_iter` of `Fast0Tag`"),
        (Fast0Tag(tolerance=0), "`tolerance` of `Fast0Tag`"),
        (Composition(max_labels=25), "`max_labels` of `Composition` must be .* at most 24"),
    ],
)
def test_parameters_out_of_range_are_refused_before_anything_is_read(
    baseline, message, monkeypatch
):
    monkeypatch.delenv("POLYSEME_DATA", raising=False)
    with pytest.raises(InputError, match=message):
        baseline.fit(np.eye(2), [("a",), ("b",)])


# --------------------------------------------------------------------------- ConSE


def test_the_combination_is_convex_and_by_hand():
    predicted = np.array([[0.6, 0.3, -0.2, 0.1], [-1.0, -0.5, 0.0, -2.0], [0.2, 0.2, 0.2, 0.2]])
    vectors = unit([[1, 0], [0, 1], [1, 1], [-1, 2]])
    shares = np.array([0.4, 0.3, 0.2, 0.1])
    found = combine_top(predicted, vectors, 2, shares)
    expected = []
    for row in predicted:
        weights = [max(value, 0.0) for value in row]
        if not any(weights):
            weights = list(shares)
        best = sorted(range(4), key=lambda label: (-weights[label], label))[:2]
        total = sum(weights[label] for label in best)
        expected.append(sum(weights[label] / total * vectors[label] for label in best))
    np.testing.assert_allclose(found, unit(expected), atol=1e-12)
    assert predicted[0, 2] == -0.2  # the input is left alone
    everything = combine_top(predicted[:1], vectors, 10, shares)
    np.testing.assert_allclose(everything[0], unit(np.array([0.6, 0.3, 0, 0.1]) @ vectors))


def test_opposite_vectors_combine_to_nothing():
    found = combine_top(np.ones((1, 2)), np.array([[1.0, 0], [-1.0, 0]]), 2, np.ones(2))
    assert found.tolist() == [[0, 0]]


def test_conse_scores_are_cosines_with_the_combination(world, truthful):
    baseline = ConSE(vectors=truthful, n_top=3, random_state=0)
    baseline.fit(world.X, world.documents, world.semantics)
    assert baseline.n_top_ == 3
    scores = baseline.decision_function(world.X_test)
    predicted = baseline.classifier_.predict(world.X_test)
    direct = np.flatnonzero(baseline.direct_)
    for row in range(3):
        best = np.argsort(-predicted[row])[:3]
        weights = np.maximum(predicted[row, best], 0)
        point = weights @ baseline.label_vectors_[direct[best]]
        for label, vector in enumerate(baseline.label_vectors_):
            assert scores[row, label] == pytest.approx(vector @ point / np.linalg.norm(point))


def test_conse_never_combines_an_unseen_label(world, truthful):
    baseline = ConSE(vectors=truthful, n_top=5, random_state=0)
    baseline.fit(world.X, world.documents, world.semantics)
    used = {name for name, one in zip(baseline.classes_, baseline.direct_, strict=True) if one}
    assert not used & set(world.unseen)
    assert set(world.oov) <= used


def test_conse_chooses_among_its_candidates(world, truthful):
    baseline = ConSE(vectors=truthful, candidates=(2, 4), random_state=0)
    assert baseline.fit(world.X, world.documents, world.semantics).n_top_ in (2, 4)


# --------------------------------------------------------------------------- Fast0Tag


@pytest.fixture(scope="module")
def problem():
    generator = np.random.default_rng(5)
    vectors = unit(generator.standard_normal((7, 4)))
    truth = generator.random((12, 7)) < 0.4
    truth[:, 0] |= ~truth.any(axis=1)
    truth[:, 1] &= ~truth.all(axis=1)
    return vectors, truth[np.argsort(-truth.sum(axis=1), kind="stable")]


def objective(w, vectors, row, penalty):
    """The objective of one document as plain loops."""
    inside, outside = np.flatnonzero(row), np.flatnonzero(~row)
    total = 0.0
    for p in inside:
        for n in outside:
            total += max(0.0, 1.0 - w @ (vectors[p] - vectors[n])) ** 2
    return 0.5 * penalty * w @ w + 0.5 * total / (len(inside) * len(outside))


def test_objective_and_gradient_equal_loops_and_finite_differences(problem):
    vectors, truth = problem
    ranking = RankingProblem(vectors, truth, 0.3)
    w = np.random.default_rng(1).standard_normal((len(truth), 4))
    gradient, values = ranking.gradient(w), ranking.objective(w)
    for row in range(len(truth)):
        assert values[row] == pytest.approx(objective(w[row], vectors, truth[row], 0.3))
        for axis in range(4):
            step = np.zeros(4)
            step[axis] = 1e-6
            up = objective(w[row] + step, vectors, truth[row], 0.3)
            down = objective(w[row] - step, vectors, truth[row], 0.3)
            assert gradient[row, axis] == pytest.approx((up - down) / 2e-6, abs=1e-6)


def test_the_curvature_bound_holds(problem):
    vectors, truth = problem
    bound = RankingProblem(vectors, truth, 0.3).curvature()
    for row, held in enumerate(truth):
        hessian = 0.3 * np.eye(4)
        pairs = list(itertools.product(np.flatnonzero(held), np.flatnonzero(~held)))
        for p, n in pairs:
            hessian += np.outer(vectors[p] - vectors[n], vectors[p] - vectors[n]) / len(pairs)
        assert np.linalg.eigvalsh(hessian)[-1] <= bound[row] + 1e-12


@pytest.mark.parametrize("penalty", [0.001, 0.1, 10.0])
def test_directions_are_optimal(problem, penalty):
    from scipy.optimize import minimize

    vectors, truth = problem
    found = ranking_directions(vectors, truth, penalty, tolerance=1e-5, max_iter=20_000)
    assert found.converged.all()
    for row, held in enumerate(truth):
        best = minimize(
            objective, np.zeros(4), (vectors, held, penalty), method="BFGS", options={"gtol": 1e-9}
        )
        length = np.linalg.norm(best.x)
        assert np.linalg.norm(found.directions[row] - best.x) < 1e-3 * length


def test_a_direction_ranks_the_labels_ahead_of_the_others():
    vectors = unit([[1, 0.2], [1, -0.2], [-1, 0.3], [0, 1]])
    truth = np.array([[True, True, False, False]])
    (w,) = ranking_directions(vectors, truth, 0.001).directions
    scores = vectors @ w
    assert scores[:2].min() > scores[2:].max() + 0.9


def test_one_pair_has_the_closed_form():
    vectors = np.array([[1.0, 0.0], [0.0, 1.0]])
    (w,) = ranking_directions(vectors, np.array([[True, False]]), 0.5, tolerance=1e-9).directions
    # With g = v_p - v_n the optimum is g / (penalty + ||g||^2).
    np.testing.assert_allclose(w, np.array([1, -1]) / 2.5, rtol=1e-7)


def test_the_start_and_the_order_of_documents_do_not_matter(problem):
    vectors, truth = problem
    tight = {"tolerance": 1e-7, "max_iter": 20_000}
    found = ranking_directions(vectors, truth, 0.05, **tight).directions
    order = np.random.default_rng(2).permutation(np.r_[np.arange(12), np.arange(12)])
    start = np.random.default_rng(3).standard_normal((24, 4))
    again = ranking_directions(vectors, truth[order], 0.05, start=start, **tight).directions
    np.testing.assert_allclose(again, found[order], rtol=1e-5, atol=1e-6)


def test_too_few_steps_are_said(world, truthful):
    baseline = Fast0Tag(vectors=truthful, penalty=0.001, max_iter=2, random_state=0)
    with pytest.warns(PolysemeWarning, match="not within `tolerance` after 2 steps"):
        baseline.fit(world.X, world.documents)
    assert not baseline.converged_ and baseline.n_iter_ == 2
    baseline.set_params(max_iter=2000).fit(world.X, world.documents)
    assert baseline.converged_ and 2 < baseline.n_iter_ < 2000


def test_fast0tag_scores_are_products_with_the_direction(world, truthful):
    baseline = Fast0Tag(vectors=truthful, penalty=0.1, random_state=0)
    baseline.fit(world.X, world.documents, world.semantics)
    directions = baseline.mapper_.predict(world.X_test)
    expected = [[w @ vector for vector in baseline.label_vectors_] for w in directions]
    np.testing.assert_allclose(baseline.decision_function(world.X_test), expected, atol=1e-12)


def test_fast0tag_needs_something_to_rank():
    words = WordVectors({"a": [1, 0], "b": [0, 1]})
    with pytest.raises(InputError, match="nothing to rank"):
        Fast0Tag(vectors=words).fit(np.eye(2), [("a", "b"), ("a", "b")])


def test_instances_without_or_with_all_labels_teach_fast0tag_nothing(world, truthful):
    every = sorted({label for held in world.documents for label in held})
    X = np.vstack([world.X, np.full((2, world.X.shape[1]), 50.0)])
    plain = Fast0Tag(vectors=truthful, penalty=0.1, random_state=0).fit(world.X, world.documents)
    with pytest.warns(PolysemeWarning, match="1 of 302 documents have no label"):
        more = clone(plain).fit(X, [*world.documents, (), every])
    scores = more.decision_function(world.X_test)
    np.testing.assert_allclose(scores, plain.decision_function(world.X_test), atol=1e-9)


# --------------------------------------------------------------------------- choosing settings


def test_every_label_is_hidden_once():
    groups = list(hidden_groups(10, 4, np.random.default_rng(0)))
    assert np.array_equal(np.sum(groups, axis=0), np.ones(10))
    assert len(groups) == 4
    assert list(hidden_groups(1, 4, np.random.default_rng(0))) == []


def test_quality_looks_at_instances_with_a_hidden_label():
    generator = np.random.default_rng(0)
    truth, scores = generator.random((30, 6)) < 0.3, generator.random((30, 6))
    hidden = np.array([True, False, False, True, False, False])
    rows = truth[:, 0] | truth[:, 3]
    expected = (example_map(truth[rows], scores[rows]) + concept_map(truth[rows], scores[rows])) / 2
    assert zero_shot_quality(truth, scores, hidden) == pytest.approx(expected)
    assert zero_shot_quality(truth & ~hidden, scores, hidden) == 0.0


@pytest.mark.parametrize("baseline", [ConSE(random_state=0), Fast0Tag(random_state=0)])
def test_groups_are_kept_together_when_settings_are_chosen(baseline, world, truthful, monkeypatch):
    groups = tuple(f"g{row // 3}" for row in range(len(world.documents)))
    made = LabelCorpus.from_documents(world.documents)
    corpus = LabelCorpus(made.labels, made.matrix, made.ids, groups=groups)
    baseline = clone(baseline).set_params(vectors=truthful)
    seen = []
    plain = type(baseline)._folds

    def watched(self, *arguments):
        seen.append(plain(self, *arguments))
        return seen[-1]

    monkeypatch.setattr(type(baseline), "_folds", watched)
    baseline.fit(world.X, corpus, world.semantics)
    (folds,) = seen
    assert len(set(folds)) > 1
    for group in set(groups):
        assert len({fold for fold, one in zip(folds, groups, strict=True) if one == group}) == 1


# --------------------------------------------------------------------------- composition


def nearest_by_loops(points, vectors):
    """The best cosine of each label, by going through all combinations."""
    best = np.full((len(points), len(vectors)), -1.0)
    for size in range(1, len(vectors) + 1):
        for combination in itertools.combinations(range(len(vectors)), size):
            total = vectors[list(combination)].sum(axis=0)
            length = np.linalg.norm(total)
            total = total / length if length > 1e-12 else np.zeros_like(total)
            for row, point in enumerate(points):
                for label in combination:
                    best[row, label] = max(best[row, label], point @ total)
    return best


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
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(composition_module, "_LOW_LABELS", n_low)
        patch.setattr(composition_module, "_BLOCK_ROWS", block)
        found = best_cosines(points, vectors)
    np.testing.assert_allclose(found, nearest_by_loops(points, vectors), atol=1e-12)


def test_composition_scores_are_negative_distances():
    generator = np.random.default_rng(0)
    names = ["a", "b", "c", "d"]
    vectors = WordVectors({name: generator.standard_normal(3) for name in names})
    X = generator.standard_normal((20, 2))
    documents = [tuple(generator.permutation(names)[:2]) for _ in range(20)]
    baseline = Composition(vectors=vectors, random_state=0).fit(X, documents)
    points = unit(baseline.mapper_.predict(X))
    for row, point in enumerate(points):
        for label in range(4):
            distances = []
            for others in itertools.chain.from_iterable(
                itertools.combinations(range(4), size) for size in range(1, 5)
            ):
                if label in others:
                    total = unit(baseline.label_vectors_[list(others)].sum(axis=0))
                    distances.append(math.dist(total, point))
            assert baseline.decision_function(X)[row, label] == pytest.approx(
                -min(distances), abs=2e-6
            )


def test_labels_of_one_combination_are_told_apart_by_their_own_distance():
    vectors = WordVectors({"a": [1, 0, 0.1], "b": [0.2, 1, 0], "c": [0, 0.3, 1]})
    baseline = Composition(vectors=vectors, random_state=0)
    baseline.fit(np.eye(6)[:, :3] * 3, [("a", "b")] * 3 + [("a", "b", "c"), ("c",), ("c", "a")])
    X = np.eye(3) * 3
    scores = baseline.decision_function(X)
    alone = unit(baseline.mapper_.predict(X)) @ baseline.label_vectors_.T
    tied = np.isclose(scores, scores.max(axis=1, keepdims=True), atol=1e-5)
    assert (tied.sum(axis=1) > 1).any()
    for row in range(len(X)):
        members = np.flatnonzero(tied[row])
        assert len(set(scores[row, members])) == len(members)
        order = members[np.argsort(scores[row, members])]
        assert (np.diff(alone[row, order]) > 0).all()


def test_composition_targets_are_the_unit_sums_of_the_documents_labels(monkeypatch):
    given_points = []

    class Watched(composition_module.InstanceMapper):
        def fit(self, X, points, groups=None):
            given_points.append((len(X), points))
            return super().fit(X, points, groups)

    monkeypatch.setattr(composition_module, "InstanceMapper", Watched)
    vectors = WordVectors({"a": [1, 0], "b": [0, 2]})
    with pytest.warns(PolysemeWarning, match="1 of 3 labels"):
        Composition(vectors=vectors, random_state=0).fit(
            np.eye(4), [("a", "b"), ("b",), ("x",), ("a", "x")]
        )
    ((n, points),) = given_points
    assert n == 3  # the instance of x alone teaches nothing
    np.testing.assert_allclose(points, unit([[1, 1], [0, 1], [1, 0]]))


def test_composition_refuses_large_vocabularies_before_any_work(world, truthful, monkeypatch):
    def never(*arguments, **named):
        raise AssertionError("work was done")

    monkeypatch.setattr(composition_module.InstanceMapper, "fit", never)
    message = r"29 labels with a word vector make 2\^29 - 1 = 5.37e\+08 .* `max_labels` = 16 labels"
    with pytest.raises(InputError, match=message):
        Composition(vectors=truthful).fit(world.X, world.documents, world.semantics)
    few = {word: [float(place), 1.0] for place, word in enumerate(("sand", "sea", "sun"))}
    message = r"3 labels with a word vector \(26 more have no vector .*: apple, .* 2\^3 - 1 = 7 "
    with (
        pytest.warns(PolysemeWarning, match="26 of 29 labels"),
        pytest.raises(InputError, match=message),
    ):
        Composition(vectors=WordVectors(few), max_labels=2).fit(
            world.X, world.documents, world.semantics
        )


def test_vectors_that_cancel_out_are_refused():
    vectors = WordVectors({"a": [1.0], "b": [-1.0]})
    with pytest.raises(InputError, match="cancel out in every document"):
        Composition(vectors=vectors).fit(np.eye(2), [("a", "b"), ("a", "b")])
