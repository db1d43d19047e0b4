from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polyseme import LabelCorpus
from polyseme._validation import InputError
from polyseme.index import ConceptIndex
from polyseme.priming import (
    KnownConcepts,
    PrimingRanker,
    rank_labels,
    relatedness,
    unmet_documents,
)

# ------------------------------------------------------------------ equation (9)


def test_scores_are_inverse_distances_that_sum_to_one():
    scores = relatedness([[1.0, 2.0, 4.0]], floor=1e-9)
    total = 1 + 1 / 2 + 1 / 4
    np.testing.assert_allclose(scores, [[1 / total, 0.5 / total, 0.25 / total]])


def test_a_label_without_concept_scores_zero_and_zero_distance_is_guarded():
    scores = relatedness([[0.0, 1.0, np.inf]], floor=1e-6)
    assert scores[0, 2] == 0.0
    assert np.isfinite(scores).all()
    assert scores[0, 0] == pytest.approx(1.0, abs=1e-5)
    assert relatedness([[np.inf, np.inf]], floor=1e-6).tolist() == [[0.0, 0.0]]


@settings(deadline=None, max_examples=50)
@given(st.lists(st.integers(1, 1000), min_size=2, max_size=8, unique=True))
def test_nearer_labels_score_higher(distances):
    scores = relatedness([distances], floor=1e-9)[0]
    assert scores.sum() == pytest.approx(1.0)
    assert np.argsort(-scores).tolist() == np.argsort(distances).tolist()


# ------------------------------------------------------------------ ranking


def test_ties_go_to_the_label_with_more_concepts_then_to_the_first():
    label_ids, scores = rank_labels([[0.2, 0.3, 0.2, 0.3]], [1, 4, 9, 4], k=4)
    assert label_ids.tolist() == [[1, 3, 2, 0]]
    assert scores.tolist() == [[0.3, 0.3, 0.2, 0.2]]


def test_k_beyond_the_labels_gives_all_of_them():
    label_ids, scores = rank_labels([[0.1, 0.9]], [1, 1], k=10)
    assert label_ids.shape == scores.shape == (1, 2)


@pytest.mark.parametrize("k", [0, -1, 1.5])
def test_a_bad_k_is_named(k):
    with pytest.raises(InputError, match="`k` of `rank` must be a whole number at least 1"):
        rank_labels([[0.1, 0.9]], [1, 1], k=k)


def test_density_prefers_the_crowd_and_nearest_the_single_neighbour():
    crowd = [[1.0, 0.0]] * 6
    index = ConceptIndex([[0.9, 0.0], *crowd], [0] + [1] * 6, 2)
    point = [[0.0, 0.0]]
    nearest = PrimingRanker(index, 1.0).scores(point)
    density = PrimingRanker(index, 1.0, score="density", bandwidth=1.0).scores(point)
    assert nearest[0].argmax() == 0
    assert density[0].argmax() == 1
    assert density.sum() == pytest.approx(1.0)


def test_an_unknown_score_is_named():
    with pytest.raises(InputError, match="`score` of `PrimingRanker` must be one of"):
        PrimingRanker(ConceptIndex([[0.0]], [0], 1), 1.0, score="best")


# ------------------------------------------------------------------ the store


@pytest.fixture(scope="module")
def embedding(tiny_embedding, world):
    return tiny_embedding().fit(world.semantics)


def known_of(embedding, documents, ids=None):
    corpus = LabelCorpus.from_documents(documents, ids=ids)
    return KnownConcepts.none(embedding).add(embedding, corpus)[0]


def test_documents_with_the_same_labels_share_their_concepts(embedding):
    known = known_of(embedding, [("apple", "pie"), ("sea",), ("pie", "apple")])
    assert len(known.points) == 3
    assert known.sets.tolist() == [0, 1, 0]
    index = known.index(64.0)
    counted = dict(zip(known.labels, index.n_occurrences, strict=True))
    assert counted["apple"] == 2 and counted["sea"] == 1


def test_adding_at_once_or_one_by_one_is_the_same(embedding, world):
    documents = [*world.documents[:20], ("apple", "zeppelin")]
    together = known_of(embedding, documents)
    known = KnownConcepts.none(embedding)
    for document in documents:
        known, ids, unplaced = known.add(embedding, LabelCorpus.from_documents([document]))
        assert len(ids) == 1 and unplaced == ()
    assert known.ids == together.ids
    assert set(known.labels) == set(together.labels)
    columns = [together.labels.index(label) for label in known.labels]
    queries = embedding.targets([("apple", "pie"), ("sea", "sun")])
    np.testing.assert_allclose(
        known.index(64.0).distances(queries),
        together.index(64.0).distances(queries)[:, columns],
        atol=1e-5,
    )


def test_removing_what_was_added_gives_back_what_was_there(embedding):
    before = known_of(embedding, [("apple", "pie"), ("sea", "sun")], ids=["a", "b"])
    more = LabelCorpus.from_documents([("apple", "zeppelin"), ("sea", "sun")], ids=["c", "d"])
    after, ids, _ = before.add(embedding, more)
    assert ids == ("c", "d") and after.labels[-1] == "zeppelin"
    again = after.remove(["c", "d"])
    assert again.ids == before.ids and again.labels == before.labels
    for name in ("sets", "points", "label_ids", "set_ids"):
        assert np.array_equal(getattr(again, name), getattr(before, name)), name
    assert (again.matrix != before.matrix).nnz == 0


def test_removing_an_unknown_document_changes_nothing(embedding):
    known = known_of(embedding, [("apple", "pie")], ids=["a"])
    with pytest.raises(InputError, match="No known document is named 'b'; nothing was removed"):
        known.remove(["a", "b"])
    assert known.ids == ("a",)


def test_a_name_that_is_taken_is_refused_and_numbers_are_made_fresh(embedding):
    known = known_of(embedding, [("apple", "pie")], ids=["0"])
    with pytest.raises(InputError, match="named '0' is known already"):
        known.add(embedding, LabelCorpus.from_documents([("sea",)], ids=["0"]))
    more, ids, _ = known.add(embedding, LabelCorpus.from_documents([("sea",), ("sun",)]))
    assert len(set(more.ids)) == 3 and "0" not in ids


def test_a_document_met_twice_counts_once_and_a_namesake_is_renamed():
    taught = LabelCorpus.from_documents([("a", "b"), ("c", "b")], ids=["x", "y"])
    instances = LabelCorpus.from_documents([("B", "A"), ("c", "d"), ("a",)], ids=["x", "y", "z"])
    fresh = unmet_documents(instances, taught)
    assert fresh.ids == ("instance:y", "z")
    assert [set(document) for document in fresh] == [{"c", "d"}, {"A"}]
