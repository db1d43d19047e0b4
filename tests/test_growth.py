"""Large corpora: blocks give what the whole gives, and no dense matrix is made of them."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from polyseme import ConceptSpace, LabelCorpus, SpacePlan
from polyseme import (
    tags as tags_module,
)
from polyseme._validation import InputError
from polyseme.corpus import unique_rows
from polyseme.documents import met_documents, unmet_documents
from polyseme.published.descriptors import ContextDescriptor
from polyseme.published.embedding import ConceptEmbedding
from polyseme.published.priming import PrimingRanker, PrimingStore
from polyseme.published.training import TrainingPlan
from polyseme.store import ConceptStore
from polyseme.tags import rank_blocks, rank_labels

# ------------------------------------------------------------------ distinct rows


@settings(deadline=None, max_examples=60)
@given(st.lists(st.frozensets(st.integers(0, 6)), max_size=20))
def test_distinct_rows_are_those_met_first(documents):
    matrix = np.array([[c in d for c in range(7)] for d in documents], dtype=bool).reshape(-1, 7)
    distinct, places = unique_rows(sp.csr_matrix(matrix))
    met = list(dict.fromkeys(documents))
    assert [frozenset(np.flatnonzero(row)) for row in distinct.toarray()] == met
    assert places.tolist() == [met.index(document) for document in documents]


# ------------------------------------------------------------------ matched documents


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


def test_a_document_met_twice_counts_once_and_a_namesake_is_renamed():
    semantics = LabelCorpus.from_documents([("a", "b"), ("c", "b")], ids=["x", "y"])
    instances = LabelCorpus.from_documents([("B", "A"), ("c", "d"), ("a",)], ids=["x", "y", "z"])
    new = unmet_documents(instances, semantics)
    assert new.ids == ("instance:y", "z")
    assert [set(document) for document in new] == [{"c", "d"}, {"A"}]


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


@pytest.mark.parametrize("k", [0, -1, 1.5])
def test_a_bad_k_is_named(k):
    with pytest.raises(InputError, match="`k` of `rank` must be a whole number at least 1"):
        rank_labels([[0.1, 0.9]], [1, 1], k=k)


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
    store = PrimingStore.empty(embedding)
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
