"""Known concepts and the ranker: equation (9), and stores that equal ones built anew."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from polyseme import LabelCorpus
from polyseme import tags as tags_module
from polyseme._validation import InputError
from polyseme.index import ConceptIndex
from polyseme.published import priming
from polyseme.published.priming import PrimingRanker, PrimingStore
from polyseme.tags import label_preference, rank_labels

ARRAYS = ("sets", "points", "label_ids", "set_ids")


@pytest.fixture(scope="module")
def embedding(tiny_embedding, world):
    return tiny_embedding().fit(world.label_sets)


def store_of(embedding, documents, ids=None):
    corpus = LabelCorpus.from_documents(documents, ids=ids)
    return PrimingStore.empty(embedding).add(embedding, corpus)[0]


# ------------------------------------------------------------------ the ranker


def ranker_at(distances, **options):
    """A ranker and a point at these distances from one concept of each label; inf: from none."""
    near = np.flatnonzero(np.isfinite(distances))
    index = ConceptIndex(np.asarray(distances)[near][:, None], near, len(distances))
    return PrimingRanker(index, 1.0, **options), [[0.0]]


def test_scores_are_inverse_distances_that_sum_to_one():
    ranker, point = ranker_at([1.0, 2.0, 4.0])
    total = 1 + 1 / 2 + 1 / 4
    assert_allclose(ranker.scores(point), [[1 / total, 0.5 / total, 0.25 / total]])


@settings(deadline=None, max_examples=50)
@given(st.lists(st.integers(1, 1000), min_size=2, max_size=8, unique=True))
def test_nearer_labels_score_higher(distances):
    ranker, point = ranker_at(distances)
    (scores,) = ranker.scores(point)
    assert scores.sum() == pytest.approx(1.0)
    assert np.argsort(-scores).tolist() == np.argsort(distances).tolist()


@pytest.mark.parametrize("relatedness", ["nearest", "density"])
def test_a_label_without_concept_scores_zero_and_zero_distance_is_guarded(relatedness):
    ranker, point = ranker_at([0.0, 1.0, np.inf], relatedness=relatedness)
    scores = ranker.scores(point)
    assert scores[0, 2] == 0.0
    assert np.isfinite(scores).all()
    assert scores[0, 0] == pytest.approx(1.0, abs=1e-5)
    empty = PrimingRanker(ConceptIndex(np.empty((0, 1)), [], 2), 1.0, relatedness)
    assert empty.scores(point).tolist() == [[0.0, 0.0]]


def test_density_prefers_the_crowd_and_nearest_the_single_neighbour():
    crowd = [[1.0, 0.0]] * 6
    index = ConceptIndex([[0.9, 0.0], *crowd], [0] + [1] * 6, 2)
    density = PrimingRanker(index, 1.0, "density", bandwidth=1.0).scores([[0.0, 0.0]])
    assert PrimingRanker(index, 1.0).scores([[0.0, 0.0]])[0].argmax() == 0
    assert density[0].argmax() == 1
    assert density.sum() == pytest.approx(1.0)
    with pytest.raises(InputError, match="`relatedness` of `PrimingRanker` must be one of"):
        PrimingRanker(index, 1.0, "best")


def test_ranking_in_blocks_is_ranking_at_once(monkeypatch):
    generator = np.random.default_rng(0)
    index = ConceptIndex(generator.normal(size=(60, 3)), generator.integers(9, size=60), 10)
    ranker = PrimingRanker(index, 1.0)
    points = generator.normal(size=(11, 3))
    preference = label_preference(index.n_occurrences)
    wanted = rank_labels(ranker.scores(points), preference, 4)
    monkeypatch.setattr(tags_module, "_BLOCK_NUMBERS", 25)
    label_ids, scores = ranker.rank(points, 4)
    assert_array_equal(label_ids, wanted[0])
    assert_allclose(scores, wanted[1], rtol=1e-6)
    assert ranker.rank(points[:0], 4)[0].shape == (0, 4)


# ------------------------------------------------------------------ the store


@pytest.mark.parametrize("block", [1, 3, 10**6])
def test_points_are_the_concepts_sorted_by_label(embedding, world, monkeypatch, block):
    monkeypatch.setattr(priming, "_BLOCK", block)
    documents = [*world.documents[:12], ("apple", "zeppelin"), ("sea", "blimp", "apple")]
    documents.append(documents[0][::-1])  # which shares its concepts with the first
    store = store_of(embedding, documents)
    assert store.sets[-1] == store.sets[0]
    assert store.index(64.0).n_occurrences.sum() > len(store.points)
    assert np.lexsort((store.set_ids, store.label_ids)).tolist() == list(range(len(store.points)))
    row_of = {int(number): row for row, number in reversed(list(enumerate(store.sets)))}
    for point, label, number in zip(store.points, store.label_ids, store.set_ids, strict=True):
        alone = embedding.transform([store.document(row_of[int(number)])])
        place = [alone.labels[column] for column in alone.label_ids].index(store.labels[label])
        assert_allclose(point, alone.points[place], atol=1e-5)


def test_removing_what_was_added_gives_back_what_was_there(embedding):
    before = store_of(embedding, [("apple", "pie"), ("sea", "sun")], ids=["a", "b"])
    more = LabelCorpus.from_documents([("apple", "zeppelin"), ("sea", "sun")], ids=["c", "d"])
    after, ids, _ = before.add(embedding, more)
    assert ids == ("c", "d")
    assert after.labels[-1] == "zeppelin"
    old = after.set_ids <= before.set_ids.max()
    assert_array_equal(after.points[old], before.points)
    for again in (after.remove(["c", "d"]), PrimingStore.from_state(*before.get_state())):
        assert again.ids == before.ids
        assert again.labels == before.labels
        for name in ARRAYS:
            assert np.array_equal(getattr(again, name), getattr(before, name)), name
        assert (again.matrix != before.matrix).nnz == 0


@settings(deadline=None, max_examples=40)
@given(
    st.lists(
        st.tuples(st.booleans(), st.integers(0, 5), st.integers(0, 30)), min_size=1, max_size=12
    )
)
def test_any_adding_and_removing_equals_a_store_built_anew(embedding, steps):
    sets = [("apple", "pie"), ("sea", "sun"), ("apple", "phone"), ("oak",), ("sea", "zeppelin")]
    sets.append(("apple", "pie", "blimp"))
    store = PrimingStore.empty(embedding)
    documents = {}
    for number, (adding, which, place) in enumerate(steps):
        if adding or not documents:
            documents[f"d{number}"] = sets[which]
            corpus = LabelCorpus.from_documents([sets[which]], ids=[f"d{number}"])
            store, _, _ = store.add(embedding, corpus)
        else:
            name = sorted(documents)[place % len(documents)]
            del documents[name]
            store = store.remove([name])
    assert {name: set(store.document(row)) for row, name in enumerate(store.ids)} == {
        name: set(labels) for name, labels in documents.items()
    }
    queries = embedding.targets([("apple", "pie"), ("sea", "sun")])
    distances = store.index(64.0).distances(queries)
    if not documents:
        assert np.isinf(distances).all()
        return
    anew = store_of(embedding, list(documents.values()), ids=list(documents))
    assert set(anew.labels) == set(store.labels)
    columns = [anew.labels.index(label) for label in store.labels]
    expected = anew.index(64.0).distances(queries)[:, columns]
    assert_allclose(distances, expected, atol=1e-5)
    for column in np.unique(store.label_ids):
        for concept in store.nearest(queries[0], int(column), k=3):
            assert concept.label in concept.document
            assert all(set(documents[n]) == set(concept.document) for n in concept.document_ids)


def test_unknown_and_taken_names_are_refused_and_numbers_are_made_anew(embedding):
    store = store_of(embedding, [("apple", "pie")], ids=["0"])
    with pytest.raises(InputError, match="No known document is named 'b'; nothing was removed"):
        store.remove(["0", "b"])
    with pytest.raises(InputError, match="named '0' is known already"):
        store.add(embedding, LabelCorpus.from_documents([("sea",)], ids=["0"]))
    more, ids, _ = store.add(embedding, LabelCorpus.from_documents([("sea",), ("sun",)]))
    assert len(set(more.ids)) == 3
    assert "0" not in ids
