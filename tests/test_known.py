from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polyseme import LabelCorpus
from polyseme._validation import InputError
from polyseme.documents import unmet_documents
from polyseme.published.known import KnownConcepts


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
        known, ids, dropped = known.add(embedding, LabelCorpus.from_documents([document]))
        assert len(ids) == 1 and dropped == ()
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


@settings(deadline=None, max_examples=40)
@given(
    st.lists(
        st.tuples(st.booleans(), st.integers(0, 5), st.integers(0, 30)), min_size=1, max_size=12
    )
)
def test_any_adding_and_removing_equals_a_store_built_anew(embedding, steps):
    sets = [
        ("apple", "pie"),
        ("sea", "sun"),
        ("apple", "phone"),
        ("oak",),
        ("sea", "zeppelin"),
        ("apple", "pie", "blimp"),
    ]
    known, held = KnownConcepts.none(embedding), {}
    for number, (adding, which, place) in enumerate(steps):
        if adding or not held:
            name = f"d{number}"
            held[name] = sets[which]
            corpus = LabelCorpus.from_documents([sets[which]], ids=[name])
            known, _, _ = known.add(embedding, corpus)
        else:
            name = sorted(held)[place % len(held)]
            del held[name]
            known = known.remove([name])
    assert {n: set(known.document(i)) for i, n in enumerate(known.ids)} == {
        name: set(labels) for name, labels in held.items()
    }
    queries = embedding.targets([("apple", "pie"), ("sea", "sun")])
    found = known.index(64.0).distances(queries)
    if held:
        anew = known_of(embedding, list(held.values()), ids=list(held))
        assert set(anew.labels) == set(known.labels)
        columns = [anew.labels.index(label) for label in known.labels]
        np.testing.assert_allclose(
            found, anew.index(64.0).distances(queries)[:, columns], atol=1e-5
        )
        for column in np.unique(known.label_ids):
            for one in known.nearest(queries[0], int(column), k=3):
                assert one.label in one.document
                assert all(set(held[name]) == set(one.document) for name in one.document_ids)
    else:
        assert np.isinf(found).all()


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
