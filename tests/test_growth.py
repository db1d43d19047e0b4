"""Large corpora: blocks give what the whole gives, and no dense matrix is made of them."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from polyseme import (
    ConceptEmbedding,
    ConceptSpace,
    InstanceMapper,
    LabelCorpus,
    PublishedTagger,
    SpacePlan,
)
from polyseme import (
    tags as tags_module,
)
from polyseme.corpus import unique_rows
from polyseme.documents import met_documents
from polyseme.index import ConceptIndex
from polyseme.published import known
from polyseme.published.descriptors import ContextDescriptor
from polyseme.published.known import KnownConcepts
from polyseme.published.nn.plan import TrainingPlan
from polyseme.published.priming import PrimingRanker
from polyseme.store import ConceptStore
from polyseme.tags import rank_blocks, rank_labels


@pytest.fixture(scope="module")
def embedding(tiny_embedding, world):
    return tiny_embedding().fit(world.semantics)


# ------------------------------------------------------------------ distinct rows


@settings(deadline=None, max_examples=60)
@given(st.lists(st.frozensets(st.integers(0, 6)), max_size=20))
def test_distinct_rows_are_those_met_first(documents):
    matrix = np.array([[c in d for c in range(7)] for d in documents], dtype=bool).reshape(-1, 7)
    distinct, places = unique_rows(sp.csr_matrix(matrix))
    met = list(dict.fromkeys(documents))
    assert [frozenset(np.flatnonzero(row)) for row in distinct.toarray()] == met
    assert places.tolist() == [met.index(document) for document in documents]


# ------------------------------------------------------------------ known concepts


@pytest.mark.parametrize("block", [1, 3, 10**6])
def test_known_points_are_the_concepts_sorted_by_label(embedding, world, monkeypatch, block):
    monkeypatch.setattr(known, "_BLOCK", block)
    documents = [*world.documents[:12], ("apple", "zeppelin"), ("sea", "blimp", "apple")]
    corpus = LabelCorpus.from_documents(documents)
    store = KnownConcepts.none(embedding).add(embedding, corpus)[0]
    assert np.lexsort((store.set_ids, store.label_ids)).tolist() == list(range(len(store.points)))
    row_of = {int(one): row for row, one in reversed(list(enumerate(store.sets)))}
    for point, label, one in zip(store.points, store.label_ids, store.set_ids, strict=True):
        alone = embedding.transform([store.document(row_of[int(one)])])
        at = [alone.labels[place] for place in alone.label_ids].index(store.labels[label])
        np.testing.assert_allclose(point, alone.points[at], atol=1e-5)


def test_adding_keeps_the_order_and_what_was_known(embedding, world):
    half = LabelCorpus.from_documents(world.documents[:10], ids=[f"a{n}" for n in range(10)])
    rest = LabelCorpus.from_documents(
        [*world.documents[10:20], ("apple", "zeppelin")], ids=[f"b{n}" for n in range(11)]
    )
    first = KnownConcepts.none(embedding).add(embedding, half)[0]
    both = first.add(embedding, rest)[0]
    assert (np.diff(both.label_ids) >= 0).all()
    held = both.set_ids <= first.set_ids.max()
    np.testing.assert_array_equal(both.points[held], first.points)
    np.testing.assert_array_equal(both.label_ids[held], first.label_ids)


def test_a_store_in_another_order_grows_into_the_same_one(embedding, world):
    # Models of earlier versions hold their concepts document by document.
    store = KnownConcepts.none(embedding).add(
        embedding, LabelCorpus.from_documents(world.documents[:10])
    )[0]
    order = np.lexsort((store.label_ids, store.set_ids))
    arrays = [array[order] for array in (store.points, store.label_ids, store.set_ids)]
    earlier = KnownConcepts(
        store.labels, store.n_vocabulary, store.ids, store.matrix, store.sets, *arrays
    )
    more = LabelCorpus.from_documents(world.documents[10:14])
    wanted, found = (one.add(embedding, more)[0] for one in (store, earlier))
    for name in ("points", "label_ids", "set_ids", "sets"):
        np.testing.assert_array_equal(getattr(found, name), getattr(wanted, name), err_msg=name)
    shorter = [one.remove(["3", "0"]) for one in (store, earlier)]
    for name in ("points", "label_ids", "set_ids", "sets"):
        np.testing.assert_array_equal(*(getattr(one, name) for one in shorter), err_msg=name)


def plain_met(corpus, teaching):
    """Compare namesakes one by one, by what their corpora compare labels by."""
    rows = {name: row for row, name in enumerate(teaching.ids)}
    met = []
    for row, name in enumerate(corpus.ids):
        own = {corpus.key(label) for label in corpus.document(row)}
        place = rows.get(name, -1)
        other = {teaching.key(label) for label in teaching.document(place)} if place >= 0 else None
        met.append(place if own == other else -1)
    return met


_NAMED = st.dictionaries(
    st.sampled_from("abcdef"),
    st.frozensets(st.sampled_from(["Sun", "sun", "sea", "oak  tree", "oak tree", "ash"])),
    min_size=1,
)


@settings(deadline=None, max_examples=80)
@given(_NAMED, _NAMED, st.booleans(), st.booleans())
def test_met_documents_equal_a_comparison_one_by_one(ours, theirs, normalize, other):
    corpus, teaching = (
        LabelCorpus.from_documents(held.values(), ids=list(held), normalize=one)
        for held, one in ((ours, normalize), (theirs, other))
    )
    assert met_documents(corpus, teaching).tolist() == plain_met(corpus, teaching)


# ------------------------------------------------------------------ ranking in blocks


@settings(deadline=None, max_examples=80)
@given(
    st.integers(1, 4).flatmap(
        lambda n: st.lists(
            st.lists(
                st.sampled_from([0.0, 0.1, 0.1 + 1e-16, 0.5, 1e-12, 1e12, -np.inf]),
                min_size=40,
                max_size=40,
            ),
            min_size=n,
            max_size=n,
        )
    ),
    st.lists(st.integers(0, 3), min_size=40, max_size=40),
    st.integers(1, 50),
)
def test_ranks_equal_a_plain_sort_whatever_ties(scores, occurrences, k):
    label_ids, best = rank_labels(scores, occurrences, k)
    for row, ids in zip(scores, label_ids, strict=True):
        wanted = sorted(range(40), key=lambda c: (-row[c], -occurrences[c], c))[:k]
        assert ids.tolist() == wanted
    np.testing.assert_array_equal(best, np.take_along_axis(np.array(scores), label_ids, axis=1))


def test_scores_that_are_no_numbers_come_last():
    scores = np.full((2, 40), np.nan)
    scores[0, 7] = 0.5
    label_ids, best = rank_labels(scores, np.zeros(40), 3)
    assert label_ids[0, 0] == 7 and best[0, 0] == 0.5
    assert np.isnan(best[0, 1:]).all() and np.isnan(best[1]).all()


@pytest.mark.parametrize(("n", "n_labels"), [(0, 5), (1, 1), (7, 3), (100, 10**9), (5, 0)])
def test_blocks_cover_every_row_once(n, n_labels):
    rows = [row for block in rank_blocks(n, n_labels) for row in range(block.start, block.stop)]
    assert rows == list(range(n))


def test_ranking_in_blocks_is_ranking_at_once(monkeypatch):
    generator = np.random.default_rng(0)
    index = ConceptIndex(generator.normal(size=(60, 3)), generator.integers(9, size=60), 10)
    ranker = PrimingRanker(index, 1.0)
    points = generator.normal(size=(11, 3))
    wanted = rank_labels(ranker.scores(points), index.n_occurrences, 4)
    monkeypatch.setattr(tags_module, "_BLOCK_NUMBERS", 25)
    label_ids, scores = ranker.rank(points, 4)
    np.testing.assert_array_equal(label_ids, wanted[0])
    np.testing.assert_allclose(scores, wanted[1], rtol=1e-6)
    assert ranker.rank(points[:0], 4)[0].shape == (0, 4)


def test_nearest_concepts_answer_the_same_in_blocks(tiny_embedding, world, monkeypatch):
    tagger = PublishedTagger(
        embedding=tiny_embedding(), mapper=InstanceMapper(kind="kernel-ridge"), random_state=0
    ).fit(world.X, world.documents, world.semantics)
    wanted, (labels, _) = tagger.decision_function(world.X), tagger.rank(world.X, 3)
    monkeypatch.setattr(tags_module, "_BLOCK_NUMBERS", 7 * len(tagger.classes_))
    np.testing.assert_allclose(tagger.decision_function(world.X), wanted, rtol=1e-4)
    np.testing.assert_array_equal(tagger.rank(world.X, 3)[0], labels)


# ------------------------------------------------------------------ memory


def most_bytes(function, *arguments):
    """Give what a function returns and the most memory it held, in bytes."""
    tracemalloc.start()
    try:
        found = function(*arguments)
        return found, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.fixture(scope="module")
def wide():
    """Give 3,000 documents over 10,000 labels: 30 MB were they dense, even in bits of a byte."""
    generator = np.random.default_rng(0)
    columns = (10_000 * generator.random((3_000, 4)) ** 3).astype(np.int64)
    rows = np.repeat(np.arange(3_000), 4)
    matrix = sp.csr_matrix(
        (np.ones(12_000, dtype=np.int8), (rows, columns.ravel())), (3_000, 10_000)
    )
    return LabelCorpus.from_indicator(matrix > 0, [f"t{one}" for one in range(10_000)])


def test_no_dense_matrix_is_made_of_many_labels(wide, monkeypatch):
    dense = wide.matrix.shape[0] * wide.matrix.shape[1]
    context = ContextDescriptor(n_topics=4, n_iter=2, random_state=0)
    _, most = most_bytes(context.fit, wide.matrix)
    assert most < dense / 4
    _, most = most_bytes(context.transform, wide.matrix)
    assert most < dense / 2
    plan = TrainingPlan(max_epochs=1, min_steps=1, max_steps=1, batch_size=8, validation_fraction=0)
    embedding = ConceptEmbedding(
        2, (2,), context_descriptor=context, training=plan, random_state=0
    ).fit(wide)
    store = KnownConcepts.none(embedding)
    (store, _, _), most = most_bytes(store.add, embedding, wide)
    assert most < dense / 2
    ranker = PrimingRanker(store.index(1.0), embedding.distance_scale_)
    points = np.zeros((500, 2), dtype=np.float32)
    monkeypatch.setattr(tags_module, "_BLOCK_NUMBERS", 10 * len(store.labels))
    _, most = most_bytes(ranker.rank, points, 5)
    assert most < 8 * len(points) * len(store.labels) / 4


def test_a_space_and_its_store_make_no_dense_matrix_of_many_labels(wide):
    dense = wide.matrix.shape[0] * wide.matrix.shape[1]
    plan = SpacePlan(hidden=4, code=4, document_batch=8)
    space = ConceptSpace(n_folds=2, members_per_fold=1, n_steps=1, plan=plan, random_state=0)
    space.fit(sp.csr_matrix(wide.matrix, dtype=np.float64))
    (store, dropped), most = most_bytes(ConceptStore.of, space, wide.labels, wide, wide)
    assert most < dense / 4
    assert len(store.ids) + len(dropped) == 3_000
    codes, most = most_bytes(space.document_points, store.matrix)
    assert most < dense / 4
    np.testing.assert_allclose(codes, store.points[store.sets], atol=1e-5)
    _, most = most_bytes(store.votes, store.points[:5])
    assert most < dense / 4
    _, most = most_bytes(store.remove, store.ids[::2])
    assert most < dense / 4
