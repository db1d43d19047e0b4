"""The store of known documents: what it takes in, who votes, and who is nearest."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from polyseme._validation import InputError
from polyseme.corpus import LabelCorpus
from polyseme.datasets.toy import THEMES
from polyseme.documents import label_column
from polyseme.space import TEMPERATURE
from polyseme.store import ConceptStore


@pytest.fixture(scope="module")
def space(toy_tagger):
    return toy_tagger.space_


@pytest.fixture(scope="module")
def labels(toy_tagger):
    return toy_tagger.store_.labels


def corpus_of(documents, ids=None):
    return LabelCorpus.from_documents(documents, ids=ids)


@pytest.fixture
def few(space, labels):
    """A store of twelve documents, two of which hold the same labels as another."""
    documents = [theme[first : first + 3] for theme in THEMES.values() for first in (0, 2)]
    documents += [documents[3], documents[0]]
    corpus = corpus_of(documents, [f"d{row}" for row in range(12)])
    return ConceptStore.of(space, labels, corpus, corpus)[0]


def parts(store):
    """Give all that a store is made of, to be compared."""
    return (
        store.labels,
        store.n_learned,
        store.ids,
        store.matrix.shape,
        [store.document(row) for row in range(len(store.ids))],
        store.sets.tolist(),
        store.points.tolist(),
    )


def test_label_sets_come_first_and_items_documents_if_they_are_new(space, labels):
    semantics = corpus_of([("sea", "sand"), ("oak",)], ["a", "b"])
    items = corpus_of([("sea", "sand"), ("oak", "moss"), ("bus",)], ["a", "b", "c"])
    store, dropped = ConceptStore.of(space, labels, semantics, items)
    assert store.ids == ("a", "b", "instance:b", "c") and dropped == ()
    assert store.document(2) == ("moss", "oak")
    assert store.labels == labels and store.n_learned == len(labels)


def test_points_are_those_of_the_documents(few, space):
    assert few.sets.tolist() == [*range(10), 3, 0] and len(few.points) == 10
    for row in range(12):
        document = few.document(row)
        table = np.isin(np.asarray(few.labels), document)[None].astype(float)
        point = space.points(space.document_codes(sp.csr_matrix(table)))[0]
        np.testing.assert_allclose(few.points[few.sets[row]], point, atol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(few.points, axis=1), 1, rtol=1e-5)


def test_documents_without_a_learned_label_are_dropped_by_name(few, space):
    more = corpus_of(
        [("sea", "squid"), ("squid", "kraken"), (), ("kraken",)], ["m0", "m1", "m2", "m3"]
    )
    grown, ids, dropped = few.add(space, more)
    assert ids == ("m0",) and dropped == ("m1", "m2", "m3")
    assert grown.labels == (*few.labels, "squid"), "a label is not known by documents left out"
    assert grown.n_learned == few.n_learned
    assert grown.document(12) == ("sea", "squid")
    assert len(few.ids) == 12, "the smaller store is left as it was"


def test_new_labels_stand_in_the_order_they_were_met(few, space):
    grown = few.add(space, corpus_of([("sea", "zebra")]))[0]
    again, ids, _ = grown.add(space, corpus_of([("sea", "ape"), ("sea", "zebra", "bee")]))
    assert again.labels[few.n_learned :] == ("zebra", "ape", "bee")
    assert again.document(again.ids.index(ids[1])) == ("sea", "zebra", "bee")
    assert again.counts[-3:].tolist() == [2, 1, 1]


def test_taken_and_unknown_names_are_refused_and_nameless_documents_get_free_numbers(few, space):
    with pytest.raises(InputError, match="A document named 'd3' is known already"):
        few.add(space, corpus_of([("sea",), ("oak",)], ["new", "d3"]))
    numbered = few.add(space, corpus_of([("sea",)], ["13"]))[0]
    grown, ids, _ = numbered.add(space, corpus_of([("sea",), ("oak",), ("bus",)]))
    assert ids == ("14", "15", "16") and len(set(grown.ids)) == 16
    with pytest.raises(InputError, match="No known document is named 'nobody'; nothing was"):
        few.remove(["d0", "nobody"])


def test_a_tag_set_of_two_documents_is_placed_once(few, space):
    grown, _, _ = few.add(space, corpus_of([few.document(5), ("sea", "squid"), ("squid", "sea")]))
    assert grown.sets[12:].tolist() == [5, 10, 10]
    assert len(grown.points) == 11
    # A new label has no place in a code: the set lies where its learned labels lie.
    alone = few.add(space, corpus_of([("sea",)]))[0]
    np.testing.assert_allclose(grown.points[10], alone.points[10], atol=1e-6)


@pytest.mark.parametrize("gone", ["m0", ["m0", "m2"], {"d3"}, ["d0", "d11", "m1"], []])
def test_what_is_removed_was_never_there(few, space, gone):
    new = corpus_of([("sea", "squid"), ("sea", "kraken"), ("oak", "squid")], ["m0", "m1", "m2"])
    grown = few.add(space, new)[0]
    names = {gone} if isinstance(gone, str) else set(gone)
    found = grown.remove(gone)
    kept = [row for row, name in enumerate(grown.ids) if name not in names]
    documents = [grown.document(row) for row in kept]
    ids = [grown.ids[row] for row in kept]
    left = corpus_of(documents, ids)
    wanted = ConceptStore.of(space, few.labels, left, left)[0]
    assert parts(found)[:-1] == parts(wanted)[:-1]
    np.testing.assert_allclose(found.points, wanted.points, atol=1e-6)


def test_all_documents_may_go(few, space):
    empty = few.remove(few.ids)
    assert empty.ids == () and empty.labels == few.labels and not empty.counts.any()
    assert not empty.votes(few.points[:2]).any()
    assert empty.nearest(few.points[0], 0, 3) == ()
    again, _, _ = empty.add(space, corpus_of([("sea",)]))
    assert again.sets.tolist() == [0]


# ------------------------------------------------------------------ inference


def test_every_document_votes_and_the_nearer_the_more(few, space, world):
    points = space.points(space.item_codes(world.X_test[:6]))
    found = few.votes(points)
    for row, point in enumerate(points):
        votes, total = np.zeros(len(few.labels)), 0.0
        for document in range(12):  # not only distinct ones
            strength = np.exp(float(point @ few.points[few.sets[document]]) / TEMPERATURE)
            total += strength
            for label in few.document(document):
                votes[few.labels.index(label)] += strength
        np.testing.assert_allclose(found[row], votes / total, rtol=1e-4)


def test_neighbours_come_from_near_to_far_with_all_their_names(few, space, world):
    point = space.points(space.item_codes(world.X_test[:1]))[0]
    column = few.labels.index("phone")
    found = few.nearest(point, column, 20)
    assert len(found) == 10
    distances = [one.distance for one in found]
    assert distances == sorted(distances) and distances[0] < distances[-1]
    assert sum(one.share for one in found) == pytest.approx(1)
    assert few.nearest(point, column, 3) == found[:3]
    names = [name for one in found for name in one.document_ids]
    assert sorted(names) == sorted(few.ids)
    assert {"d3", "d10"} in [set(one.document_ids) for one in found]
    for one in found:
        rows = [few.ids.index(name) for name in one.document_ids]
        assert {few.document(row) for row in rows} == {one.document}
        assert one.holds == ("phone" in one.document)
        cosine = float(few.points[few.sets[rows[0]]].astype(float) @ point.astype(float))
        assert one.distance == pytest.approx(1 - cosine, abs=1e-6)
    # Shares are votes: those that hold the label have as much as it has.
    held = sum(one.share for one in found if one.holds)
    assert held == pytest.approx(float(few.votes(point[None])[0, column]), rel=1e-4)


def test_a_column_is_found_by_any_spelling_and_close_ones_are_named(few):
    assert label_column(few.labels, "  APPLE ", normalize=True) == few.labels.index("apple")
    with pytest.raises(
        InputError, match=r"Unknown label 'appel'; close to it: apple.*all 29 known"
    ):
        label_column(few.labels, "appel", normalize=True)
    with pytest.raises(InputError, match="Unknown label 'APPLE'"):
        label_column(few.labels, "APPLE", normalize=False)


def test_concepts_are_labels_where_their_documents_lie(few):
    concepts = few.concepts()
    assert len(concepts) == few.matrix.nnz and concepts.labels == few.labels
    for point, label, row in zip(
        concepts.points, concepts.label_ids, concepts.document_ids, strict=True
    ):
        assert few.labels[label] in few.document(int(row))
        np.testing.assert_array_equal(point, few.points[few.sets[row]])
