"""Known concepts and the ranker: equation (9), and stores that equal ones built anew."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from polyseme import LabelCorpus
from polyseme.base.validation import InputError
from polyseme.documents import tags as tags_module
from polyseme.documents.tags import label_preference, rank_labels
from polyseme.published import priming
from polyseme.published.index import ConceptIndex
from polyseme.published.priming import PrimingRanker, PrimingStore

ARRAYS = ("sets", "points", "label_ids", "set_ids")


@pytest.fixture(scope="module")
def embedding(tiny_embedding, world):
    return tiny_embedding().fit(world.label_sets)


def store_of(embedding, documents, ids=None):
    corpus = LabelCorpus.from_documents(documents, ids=ids)
    return PrimingStore.empty(embedding).add(embedding, corpus)[0]


# ------------------------------------------------------------------ the ranker


def ranker_at(distances, **options):
    """Return a ranker and a point at these distances from one concept of each label; inf: none."""
    distances = np.asarray(distances)
    labels = np.flatnonzero(np.isfinite(distances))
    points = distances[labels][:, None]
    index = ConceptIndex(points, labels, len(distances))
    return PrimingRanker(index, 1.0, **options), [[0.0]]


def test_scores_are_inverse_distances_that_sum_to_one():
    ranker, point = ranker_at([1.0, 2.0, 4.0])
    inverse = np.array([1, 1 / 2, 1 / 4])
    expected = inverse / inverse.sum()
    assert_allclose(ranker.scores(point), [expected])


@settings(deadline=None, max_examples=50)
@given(st.lists(st.integers(1, 1000), min_size=2, max_size=8, unique=True))
def test_nearer_labels_score_higher(distances):
    ranker, point = ranker_at(distances)
    (scores,) = ranker.scores(point)
    assert scores.sum() == pytest.approx(1.0)
    order = np.argsort(-scores)
    expected_order = np.argsort(distances)
    assert order.tolist() == expected_order.tolist()


@pytest.mark.parametrize("relatedness", ["nearest", "density"])
def test_a_label_without_concept_scores_zero_and_zero_distance_is_guarded(relatedness):
    ranker, point = ranker_at([0.0, 1.0, np.inf], relatedness=relatedness)
    scores = ranker.scores(point)
    assert np.isfinite(scores).all()
    assert scores[0, 0] == pytest.approx(1.0, abs=1e-5)
    assert scores[0, 2] == 0.0


@pytest.mark.parametrize("relatedness", ["nearest", "density"])
def test_without_concepts_every_label_scores_zero(relatedness):
    index = ConceptIndex(np.empty((0, 1)), [], 2)
    ranker = PrimingRanker(index, 1.0, relatedness)
    scores = ranker.scores([[0.0]])
    assert scores.tolist() == [[0.0, 0.0]]


def test_density_prefers_the_crowd_and_nearest_the_single_neighbour():
    crowd = [[1.0, 0.0]] * 6
    index = ConceptIndex([[0.9, 0.0], *crowd], [0] + [1] * 6, 2)
    by_density = PrimingRanker(index, 1.0, "density", bandwidth=1.0)
    by_nearest = PrimingRanker(index, 1.0)
    (density,) = by_density.scores([[0.0, 0.0]])
    (nearness,) = by_nearest.scores([[0.0, 0.0]])
    assert nearness.argmax() == 0
    assert density.argmax() == 1
    assert density.sum() == pytest.approx(1.0)


def test_an_unknown_relatedness_is_refused():
    index = ConceptIndex([[0.9, 0.0]], [0], 2)
    with pytest.raises(InputError, match="`relatedness` of `PrimingRanker` must be one of"):
        PrimingRanker(index, 1.0, "best")


def test_ranking_in_blocks_is_ranking_at_once(monkeypatch):
    generator = np.random.default_rng(0)
    concepts = generator.normal(size=(60, 3))
    index = ConceptIndex(concepts, generator.integers(9, size=60), 10)
    ranker = PrimingRanker(index, 1.0)
    points = generator.normal(size=(11, 3))
    preference = label_preference(index.n_occurrences)
    expected_ids, expected_scores = rank_labels(ranker.scores(points), preference, 4)
    monkeypatch.setattr(tags_module, "_BLOCK_NUMBERS", 25)
    label_ids, scores = ranker.rank(points, 4)
    assert_array_equal(label_ids, expected_ids)
    assert_allclose(scores, expected_scores, rtol=1e-6)
    no_ids, _ = ranker.rank(points[:0], 4)
    assert no_ids.shape == (0, 4)


# ------------------------------------------------------------------ the store


@pytest.mark.parametrize("block", [1, 3, 10**6])
def test_points_are_the_concepts_sorted_by_label(embedding, world, monkeypatch, block):
    monkeypatch.setattr(priming, "_SETS_TOGETHER", block)
    documents = [*world.documents[:12], ("apple", "zeppelin"), ("sea", "blimp", "apple")]
    documents.append(documents[0][::-1])  # which shares its concepts with the first
    store = store_of(embedding, documents)
    assert store.sets[-1] == store.sets[0]
    n_points = len(store.points)
    n_occurrences = store.index(64.0).n_occurrences
    assert n_occurrences.sum() > n_points
    order = np.lexsort((store.set_ids, store.label_ids))
    assert order.tolist() == list(range(n_points))

    set_numbers = list(store.sets)
    for point, label_id, set_id in zip(store.points, store.label_ids, store.set_ids, strict=True):
        row = set_numbers.index(set_id)
        alone = embedding.transform([store.document(row)])
        labels = [alone.labels[column] for column in alone.label_ids]
        place = labels.index(store.labels[label_id])
        assert_allclose(point, alone.points[place], atol=1e-5)


def assert_same_store(store, expected):
    """Check that two stores hold the same, in the same order."""
    assert store.ids == expected.ids
    assert store.labels == expected.labels
    for name in ARRAYS:
        assert_array_equal(getattr(store, name), getattr(expected, name), err_msg=name)
    assert (store.matrix != expected.matrix).nnz == 0


@pytest.fixture
def small_store(embedding):
    return store_of(embedding, [("apple", "pie"), ("sea", "sun")], ids=["a", "b"])


def test_removing_what_was_added_gives_the_same_store(embedding, small_store):
    added = LabelCorpus.from_documents([("apple", "zeppelin"), ("sea", "sun")], ids=["c", "d"])
    extended, ids, _ = small_store.add(embedding, added)
    assert ids == ("c", "d")
    assert extended.labels[-1] == "zeppelin"
    before = extended.set_ids <= small_store.set_ids.max()
    assert_array_equal(extended.points[before], small_store.points)
    assert_same_store(extended.remove(["c", "d"]), small_store)


def test_a_store_is_restored_from_its_state(small_store):
    restored = PrimingStore.from_state(*small_store.get_state())
    assert_same_store(restored, small_store)


SETS = [
    ("apple", "pie"),
    ("sea", "sun"),
    ("apple", "phone"),
    ("oak",),
    ("sea", "zeppelin"),
    ("apple", "pie", "blimp"),
]


def replay(embedding, steps):
    """Add and remove documents step by step; return the store and the documents left."""
    store = PrimingStore.empty(embedding)
    documents = {}
    for number, (adds, set_number, place) in enumerate(steps):
        if adds or not documents:
            name = f"d{number}"
            documents[name] = SETS[set_number]
            corpus = LabelCorpus.from_documents([SETS[set_number]], ids=[name])
            store, _, _ = store.add(embedding, corpus)
        else:
            name = sorted(documents)[place % len(documents)]
            del documents[name]
            store = store.remove([name])
    return store, documents


@settings(deadline=None, max_examples=40)
@given(
    st.lists(
        st.tuples(st.booleans(), st.integers(0, 5), st.integers(0, 30)), min_size=1, max_size=12
    )
)
def test_any_adding_and_removing_equals_a_store_built_anew(embedding, steps):
    store, documents = replay(embedding, steps)
    label_sets = [set(store.document(row)) for row in range(len(store.ids))]
    stored = dict(zip(store.ids, label_sets, strict=True))
    assert stored == {name: set(labels) for name, labels in documents.items()}
    queries = embedding.targets([("apple", "pie"), ("sea", "sun")])
    distances = store.index(64.0).distances(queries)
    if not documents:
        assert np.isinf(distances).all()
        return

    expected = store_of(embedding, list(documents.values()), ids=list(documents))
    assert set(expected.labels) == set(store.labels)
    columns = [expected.labels.index(label) for label in store.labels]
    expected_distances = expected.index(64.0).distances(queries)
    assert_allclose(distances, expected_distances[:, columns], atol=1e-5)
    for column in np.unique(store.label_ids).tolist():
        for concept in store.nearest(queries[0], column, k=3):
            labels = set(concept.document)
            assert concept.label in labels
            for name in concept.document_ids:
                assert set(documents[name]) == labels


def test_unknown_names_are_not_removed_and_taken_ones_not_added(embedding):
    store = store_of(embedding, [("apple", "pie")], ids=["0"])
    with pytest.raises(InputError, match="No known document is named 'b'; nothing was removed"):
        store.remove(["0", "b"])
    corpus = LabelCorpus.from_documents([("sea",)], ids=["0"])
    with pytest.raises(InputError, match="named '0' is known already"):
        store.add(embedding, corpus)


def test_documents_without_ids_get_numbers_that_are_free(embedding):
    store = store_of(embedding, [("apple", "pie")], ids=["0"])
    corpus = LabelCorpus.from_documents([("sea",), ("sun",)])
    extended, ids, _ = store.add(embedding, corpus)
    assert len(set(extended.ids)) == 3
    assert "0" not in ids
