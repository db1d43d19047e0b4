"""Documents: which were met before, what the store knows of them, who votes, and who is nearest."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from polyseme import ConceptSpace, SpacePlan
from polyseme.base.validation import InputError
from polyseme.documents import tags as tags_module
from polyseme.documents.corpus import LabelCorpus, unique_rows
from polyseme.documents.label_sets import (
    find_label_set_rows,
    label_column,
    select_unmatched_documents,
    training_tables,
)
from polyseme.documents.toy import THEMES
from polyseme.published.descriptors import ContextDescriptor
from polyseme.published.embedding import ConceptEmbedding
from polyseme.published.priming import PrimingRanker, PrimingStore
from polyseme.published.training import TrainingPlan
from polyseme.scoring.known_documents import KnownDocuments
from polyseme.space.votes import Voters


def corpus_of(documents, ids=None):
    return LabelCorpus.from_documents(documents, ids=ids)


# ------------------------------------------------------------------ documents met before


@settings(deadline=None, max_examples=60)
@given(st.lists(st.frozensets(st.integers(0, 6)), max_size=20))
def test_distinct_rows_are_those_met_first(documents):
    matrix = np.zeros((len(documents), 7), dtype=bool)
    for row, document in enumerate(documents):
        matrix[row, list(document)] = True
    distinct, places = unique_rows(sp.csr_matrix(matrix))
    met = list(dict.fromkeys(documents))
    distinct_documents = [frozenset(np.flatnonzero(row)) for row in distinct.toarray()]
    assert distinct_documents == met
    expected_places = [met.index(document) for document in documents]
    assert places.tolist() == expected_places


def plain_met(corpus, teaching):
    """Compare namesakes one by one, by what their corpora compare labels by."""
    rows = {name: row for row, name in enumerate(teaching.ids)}
    met = []
    for row, name in enumerate(corpus.ids):
        document_labels = {corpus.key(label) for label in corpus.document(row)}
        place = rows.get(name, -1)
        teaching_labels = None
        if place >= 0:
            teaching_labels = {teaching.key(label) for label in teaching.document(place)}
        met.append(place if document_labels == teaching_labels else -1)
    return met


_NAMED = st.dictionaries(
    st.sampled_from("abcdef"),
    st.frozensets(st.sampled_from(["Sun", "sun", "sea", "oak  tree", "oak tree", "ash"])),
    min_size=1,
)


@settings(deadline=None, max_examples=80)
@given(_NAMED, _NAMED, st.booleans(), st.booleans())
def test_met_documents_equal_a_comparison_one_by_one(ours, theirs, normalize, normalize_teaching):
    ids = list(ours)
    teaching_ids = list(theirs)
    corpus = LabelCorpus.from_documents(ours.values(), ids=ids, normalize=normalize)
    teaching = LabelCorpus.from_documents(
        theirs.values(),
        ids=teaching_ids,
        normalize=normalize_teaching,
    )
    expected = plain_met(corpus, teaching)
    assert find_label_set_rows(corpus, teaching).tolist() == expected


def test_a_document_met_twice_counts_once_and_a_namesake_is_renamed():
    label_sets = corpus_of([("a", "b"), ("c", "b")], ["x", "y"])
    corpus = corpus_of([("B", "A"), ("c", "d"), ("a",)], ["x", "y", "z"])
    new = select_unmatched_documents(corpus, label_sets)
    assert new.ids == ("instance:y", "z")
    documents = [set(document) for document in new]
    assert documents == [{"c", "d"}, {"A"}]


def test_groups_of_documents_and_of_items_are_told_to_the_space():
    label_sets = corpus_of([("a", "b"), ("a",), ("b",)], ["x", "y", "z"])
    items = replace(corpus_of([("a",), ("b", "c")], ["y", "w"]), groups=("g", "g"))
    tables = training_tables(items, label_sets, ("a", "b", "c"))
    assert tables.item_documents.tolist() == [1, 3]
    assert tables.n_label_sets == 3
    expected_documents = [[1, 1, 0], [1, 0, 0], [0, 1, 0], [0, 1, 1]]
    assert tables.documents.toarray().tolist() == expected_documents
    assert tables.groups[1] == tables.groups[3]
    n_groups = len(set(tables.groups.tolist()))
    assert n_groups == 3
    alone = training_tables(corpus_of([("a",)], ["q"]), label_sets, ("a", "b", "c"))
    assert alone.groups is None


# ------------------------------------------------------------------ the store


@pytest.fixture(scope="module")
def space(toy_tagger):
    return toy_tagger.space_


@pytest.fixture(scope="module")
def labels(toy_tagger):
    return toy_tagger.store_.labels


@pytest.fixture
def few(space, labels):
    """A store of twelve documents, two of which hold the same labels as another."""
    documents = []
    for theme in THEMES.values():
        documents.append(theme[0:3])
        documents.append(theme[2:5])
    documents += [documents[3], documents[0]]
    ids = [f"d{row}" for row in range(12)]
    corpus = corpus_of(documents, ids)
    store, _ = KnownDocuments.of(space, labels, corpus, corpus)
    return store


def test_label_sets_come_first_and_items_documents_if_they_are_new(space, labels):
    semantics = corpus_of([("sea", "sand"), ("oak",)], ["a", "b"])
    items = corpus_of([("sea", "sand"), ("oak", "moss"), ("bus",)], ["a", "b", "c"])
    store, dropped = KnownDocuments.of(space, labels, semantics, items)
    assert store.ids == ("a", "b", "instance:b", "c")
    assert dropped == ()
    assert store.document(2) == ("moss", "oak")
    assert store.labels == labels
    assert store.n_learned == len(labels)


def test_points_are_those_of_the_documents(few, space):
    assert few.sets.tolist() == [*range(10), 3, 0]
    assert len(few.points) == 10
    for row in range(12):
        document = few.document(row)
        holds = np.isin(np.asarray(few.labels), document)
        matrix = sp.csr_matrix(holds[None].astype(float))
        codes = space.encode_documents(matrix)
        (point,) = space.points(codes)
        place = few.sets[row]
        assert_allclose(few.points[place], point, atol=1e-5)
    lengths = np.linalg.norm(few.points, axis=1)
    assert_allclose(lengths, 1, rtol=1e-5)


def test_documents_without_a_learned_label_are_dropped_by_name(few, space):
    more = corpus_of(
        [("sea", "squid"), ("squid", "kraken"), (), ("kraken",)], ["m0", "m1", "m2", "m3"]
    )
    grown, ids, dropped = few.add(space, more)
    assert ids == ("m0",)
    assert dropped == ("m1", "m2", "m3")
    assert grown.labels == (*few.labels, "squid"), "a label is not known by documents left out"
    assert grown.n_learned == few.n_learned
    assert grown.document(12) == ("sea", "squid")
    assert len(few.ids) == 12, "the smaller store is left as it was"


def test_new_labels_stand_in_the_order_they_were_met(few, space):
    first = corpus_of([("sea", "zebra")])
    second = corpus_of([("sea", "ape"), ("sea", "zebra", "bee")])
    grown, _, _ = few.add(space, first)
    regrown, ids, _ = grown.add(space, second)
    new_labels = regrown.labels[few.n_learned :]
    assert new_labels == ("zebra", "ape", "bee")
    row = regrown.ids.index(ids[1])
    assert regrown.document(row) == ("sea", "zebra", "bee")
    counts = regrown.counts[-3:].tolist()
    assert counts == [2, 1, 1]


def test_taken_and_unknown_names_are_refused_and_nameless_documents_get_free_numbers(few, space):
    with pytest.raises(InputError, match="A document named 'd3' is known already"):
        few.add(space, corpus_of([("sea",), ("oak",)], ["new", "d3"]))
    numbered = few.add(space, corpus_of([("sea",)], ["13"]))[0]
    grown, ids, _ = numbered.add(space, corpus_of([("sea",), ("oak",), ("bus",)]))
    assert ids == ("14", "15", "16")
    assert len(set(grown.ids)) == 16
    with pytest.raises(InputError, match="No known document is named 'nobody'; nothing was"):
        few.remove(["d0", "nobody"])


def test_a_tag_set_of_two_documents_is_placed_once(few, space):
    documents = [few.document(5), ("sea", "squid"), ("squid", "sea")]
    grown, _, _ = few.add(space, corpus_of(documents))
    assert grown.sets[12:].tolist() == [5, 10, 10]
    assert len(grown.points) == 11
    # A new label has no place in a code: the set lies where its learned labels lie.
    sea = corpus_of([("sea",)])
    alone, _, _ = few.add(space, sea)
    assert_allclose(grown.points[10], alone.points[10], atol=1e-6)


@pytest.mark.parametrize("gone", ["m0", ["m0", "m2"], {"d3"}, ["d0", "d11", "m1"], []])
def test_what_is_removed_was_never_there(few, space, gone):
    new_documents = [("sea", "squid"), ("sea", "kraken"), ("oak", "squid")]
    new = corpus_of(new_documents, ["m0", "m1", "m2"])
    grown, _, _ = few.add(space, new)
    names = {gone} if isinstance(gone, str) else set(gone)
    remaining = grown.remove(gone)
    remaining_rows = [row for row, name in enumerate(grown.ids) if name not in names]
    documents = [grown.document(row) for row in remaining_rows]
    remaining_ids = [grown.ids[row] for row in remaining_rows]
    corpus = corpus_of(documents, remaining_ids)
    expected, _ = KnownDocuments.of(space, few.labels, corpus, corpus)
    assert remaining.labels == expected.labels
    assert remaining.n_learned == expected.n_learned
    assert remaining.ids == expected.ids
    assert_allclose(remaining.matrix.toarray(), expected.matrix.toarray(), atol=1e-6)
    assert_allclose(remaining.sets, expected.sets, atol=1e-6)
    assert_allclose(remaining.points, expected.points, atol=1e-6)


def test_all_documents_may_go(few, space):
    empty = few.remove(few.ids)
    assert empty.ids == ()
    assert empty.labels == few.labels
    assert not empty.counts.any()
    assert not empty.vote_shares(few.points[:2]).any()
    assert empty.nearest(few.points[0], 0, 3) == ()
    regrown, _, _ = empty.add(space, corpus_of([("sea",)]))
    assert regrown.sets.tolist() == [0]


# ------------------------------------------------------------------ inference


def test_every_document_votes_not_only_distinct_ones(few, space, world):
    points = space.points(space.item_codes(world.X_test[:6]))
    document_points = few.points[few.sets]
    voters = Voters.of(document_points, few.matrix)
    wanted = voters.shares(points)
    assert_allclose(few.vote_shares(points), wanted, rtol=1e-4)


def test_a_label_gets_the_same_votes_alone_as_among_all(few, space, world):
    points = space.points(space.item_codes(world.X_test[:6]))
    wanted = few.vote_shares(points)
    totals = few.total_votes(points)
    columns = range(len(few.labels))
    shares_by_label = [few.label_vote_shares(points, column, totals) for column in columns]
    shares = np.stack(shares_by_label, 1)
    assert_allclose(shares, wanted, rtol=1e-4)
    assert (wanted == 0).any()
    assert (shares[wanted == 0] == 0).all()


def test_neighbours_come_from_near_to_far_with_all_their_names(few, space, world):
    point = space.points(space.item_codes(world.X_test[:1]))[0]
    column = few.labels.index("phone")
    neighbours = few.nearest(point, column, 20)
    assert len(neighbours) == 10
    distances = [neighbour.distance for neighbour in neighbours]
    assert distances == sorted(distances)
    assert distances[0] < distances[-1]
    assert sum(neighbour.share for neighbour in neighbours) == pytest.approx(1)
    assert few.nearest(point, column, 3) == neighbours[:3]
    names = [name for neighbour in neighbours for name in neighbour.document_ids]
    assert sorted(names) == sorted(few.ids)
    names_by_neighbour = [set(neighbour.document_ids) for neighbour in neighbours]
    assert {"d3", "d10"} in names_by_neighbour
    for neighbour in neighbours:
        rows = [few.ids.index(name) for name in neighbour.document_ids]
        documents = {few.document(row) for row in rows}
        assert documents == {neighbour.document}
        holds_label = "phone" in neighbour.document
        assert neighbour.holds == holds_label
        place = few.sets[rows[0]]
        document_point = few.points[place]
        cosine = float(document_point.astype(float) @ point.astype(float))
        assert neighbour.distance == pytest.approx(1 - cosine, abs=1e-6)
    # Shares are votes: those that hold the label have as much as it has.
    share_of_holders = sum(neighbour.share for neighbour in neighbours if neighbour.holds)
    vote_shares = few.vote_shares(point[None])
    expected_share = float(vote_shares[0, column])
    assert share_of_holders == pytest.approx(expected_share, rel=1e-4)


def test_a_column_is_found_by_any_spelling_and_close_ones_are_named(few):
    assert label_column(few.labels, "  APPLE ", normalize=True) == few.labels.index("apple")
    message = r"Unknown label 'appel'; close to it: apple.*all 29 known"
    with pytest.raises(InputError, match=message):
        label_column(few.labels, "appel", normalize=True)
    with pytest.raises(InputError, match="Unknown label 'APPLE'"):
        label_column(few.labels, "APPLE", normalize=False)


def test_concepts_are_labels_where_their_documents_lie(few):
    concepts = few.concepts()
    assert len(concepts) == few.matrix.nnz
    assert concepts.labels == few.labels
    for point, label, row in zip(
        concepts.points, concepts.label_ids, concepts.document_ids, strict=True
    ):
        assert few.labels[label] in few.document(int(row))
        expected_point = few.points[few.sets[row]]
        assert_array_equal(point, expected_point)


# ------------------------------------------------------------------ memory


@pytest.fixture(scope="module")
def wide():
    """Return 3,000 documents over 5,340 labels: a table of 16 MB with a byte for each."""
    generator = np.random.default_rng(0)
    columns = (10_000 * generator.random((3_000, 4)) ** 3).astype(int)
    documents = [{f"t{column}" for column in row} for row in columns]
    return corpus_of(documents)


def test_no_dense_matrix_is_made_of_many_labels(wide, most_bytes, monkeypatch):
    dense = wide.matrix.shape[0] * wide.matrix.shape[1]
    context = ContextDescriptor(n_topics=4, n_iter=2, random_state=0)
    _, most = most_bytes(context.fit, wide.matrix)
    assert most < dense / 4
    _, most = most_bytes(context.transform, wide.matrix)
    assert most < dense / 2
    plan = TrainingPlan(max_epochs=1, min_steps=1, max_steps=1, batch_size=8, validation_fraction=0)
    settings = {"context_descriptor": context, "training": plan}
    embedding = ConceptEmbedding(2, (2,), **settings, random_state=0).fit(wide)
    store = PrimingStore.empty(embedding)
    (store, _, _), most = most_bytes(store.add, embedding, wide)
    assert most < dense / 2
    ranker = PrimingRanker(store.index(1.0), embedding.distance_scale_)
    points = np.zeros((500, 2), dtype=np.float32)
    monkeypatch.setattr(tags_module, "_BLOCK_NUMBERS", 10 * len(store.labels))
    _, most = most_bytes(ranker.rank, points, 5)
    assert most < 8 * len(points) * len(store.labels) / 4


def test_a_space_and_its_store_make_no_dense_matrix_of_many_labels(wide, most_bytes):
    dense = wide.matrix.shape[0] * wide.matrix.shape[1]
    plan = SpacePlan(hidden=4, code=4, document_batch=8)
    space = ConceptSpace(n_folds=2, members_per_fold=1, n_steps=1, plan=plan, random_state=0)
    space.fit(sp.csr_matrix(wide.matrix, dtype=np.float64))
    (store, dropped), most = most_bytes(KnownDocuments.of, space, wide.labels, wide, wide)
    assert most < dense / 4
    assert len(store.ids) + len(dropped) == 3_000
    codes, most = most_bytes(space.document_points, store.matrix)
    assert most < dense / 4
    expected_codes = store.points[store.sets]
    assert_allclose(codes, expected_codes, atol=1e-5)
    _, most = most_bytes(store.vote_shares, store.points[:5])
    assert most < dense / 4
    _, most = most_bytes(store.remove, store.ids[::2])
    assert most < dense / 4
