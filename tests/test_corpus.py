"""The corpus: every accepted form, joined spellings, and the sentence for each refused input."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from polyseme._validation import InputError, PolysemeWarning
from polyseme.corpus import LabelCorpus, as_corpus, check_corpus, normalize_label

LABELS = st.text("abcAB éÉßİ\t", min_size=1, max_size=4).filter(str.strip)
DOCUMENTS = st.lists(st.lists(LABELS, max_size=5), max_size=6)


# --- from documents -------------------------------------------------------------------------


def test_labels_are_sorted_and_a_repeated_label_counts_once():
    corpus = LabelCorpus.from_documents([["b", "a", "b"], [], ("c",)])
    assert corpus.labels == ("a", "b", "c")
    assert list(corpus) == [("a", "b"), (), ("c",)]
    assert corpus.matrix.dtype == bool
    assert corpus.matrix.has_sorted_indices
    assert_array_equal(corpus.matrix.toarray(), [[1, 1, 0], [0, 0, 0], [0, 0, 1]])
    assert (corpus.counts.tolist(), corpus.lengths.tolist()) == ([1, 1, 1], [2, 0, 1])
    assert (len(corpus), corpus.ids, corpus.numbered) == (3, ("0", "1", "2"), True)


@pytest.mark.parametrize(
    ("names", "labels", "spellings"),
    [
        (["New York", " new   york ", "New  York", "Rome"], ("New York", "Rome"), 2),
        (["NY", "NY", "Ny", "Ny ", " Ny"], ("Ny",), 3),  # white space does not split the votes
        (["apple", "Apple", "APPLE"], ("APPLE",), 2),  # ties do not depend on the order
        (["APPLE", "Apple", "apple"], ("APPLE",), 2),
        (["cafe\u0301", "CAF\u00c9"], ("CAF\u00c9",), 1),  # letters are composed
    ],
)
def test_spellings_join_under_the_most_frequent_one_and_can_be_traced(names, labels, spellings):
    corpus = LabelCorpus.from_documents([[name] for name in names])
    assert corpus.labels == labels
    assert len(corpus.spellings) == spellings
    assert set(corpus.spellings) < set(names)
    assert [corpus.spellings.get(name, name) for name in names] == [d[0] for d in corpus]


def test_without_normalisation_spellings_stay_apart():
    corpus = LabelCorpus.from_documents([["A", "a"], ["a "]], normalize=False)
    assert (corpus.labels, corpus.spellings) == (("A", "a", "a "), {})
    assert corpus.restrict(["A"]).labels == ("A",)


@pytest.mark.parametrize("container", [tuple, set, frozenset, iter, np.array, pd.Series])
def test_a_document_may_be_any_collection(container):
    corpus = as_corpus([container(["b", "a"])])
    assert list(corpus) == [("a", "b")]
    assert all(type(label) is str for label in corpus.labels)


@pytest.mark.parametrize(
    ("documents", "message"),
    [
        ([["a"], "beach"], r"Document 1 is the text 'beach'; .* for example \['beach'\]"),
        ([b"beach"], "Document 0 is the text b'beach'"),
        ([{"id": "a", "tags": ["x"]}], "Document 0 is a mapping with id, tags; expected a"),
        ([["a"], None], "Document 1 is NoneType; expected a collection of labels"),
        ([["a"], ["b", float("nan")]], "Document 1 holds the label nan of type float"),
        ([["a", ""]], "Document 0 holds an empty label; remove it"),
        ([["a"], [" \t"]], "Document 1 holds an empty label"),
    ],
)
def test_unusable_documents_are_named(documents, message):
    with pytest.raises(InputError, match=message):
        LabelCorpus.from_documents(documents)


def test_ids_must_be_unique_and_complete():
    documents = [["a"], ["b"]]
    corpus = LabelCorpus.from_documents(documents, ids=[7, "x"])
    assert (corpus.ids, corpus.numbered) == (("7", "x"), False)
    with pytest.raises(InputError, match="Document id 'x' is given twice; ids must be unique"):
        LabelCorpus.from_documents(documents, ids=["x", "x"])
    with pytest.raises(InputError, match="3 ids were given for 2 documents"):
        LabelCorpus.from_indicator(np.eye(2), ["a", "b"], ids=["1", "2", "3"])


@settings(deadline=None, max_examples=60)
@given(DOCUMENTS, st.booleans(), st.randoms(use_true_random=False))
def test_documents_survive_the_round_trip_in_any_order(documents, normalize, shuffler):
    corpus = LabelCorpus.from_documents(documents, normalize=normalize)
    key = normalize_label if normalize else str
    held = [{key(label) for label in row} for row in corpus]
    assert held == [set(map(key, document)) for document in documents]
    again = LabelCorpus.from_documents(corpus, normalize=normalize)
    assert again.labels == corpus.labels
    assert list(again) == list(corpus)
    met = {spelling for document in documents for spelling in document}
    assert met <= set(corpus.labels) | set(corpus.spellings)
    assert set(corpus.spellings.values()) <= set(corpus.labels)
    assert all(key(spelling) == key(label) for spelling, label in corpus.spellings.items())
    order = shuffler.sample(range(len(documents)), len(documents))
    shuffled = LabelCorpus.from_documents([documents[row] for row in order], normalize=normalize)
    assert shuffled.labels == corpus.labels
    assert_array_equal(shuffled.matrix.toarray(), corpus.matrix.toarray()[order])


# --- asking a corpus ------------------------------------------------------------------------


@pytest.fixture
def corpus():
    return LabelCorpus.from_documents([["a", "B"], ["b"], [], ["c", "a"]], ids="wxyz")


def test_a_corpus_passes_through_and_gives_single_documents(corpus):
    assert as_corpus(corpus) is corpus
    assert corpus == corpus != LabelCorpus.from_documents(corpus)
    assert corpus.document(-1) == corpus.document(3) == ("a", "c")
    with pytest.raises(IndexError, match="out of range"):
        corpus.document(4)


@pytest.mark.parametrize(
    ("rows", "ids"),
    [([3, 0], "zw"), (np.array([True, False, True, False]), "wy"), ([], ""), ([-1], "z")],
)
def test_select_cuts_rows_ids_groups_and_splits_alike(corpus, rows, ids):
    marked = LabelCorpus(
        corpus.labels, corpus.matrix, corpus.ids, groups=tuple("GHIJ"), splits=tuple("1234")
    )
    chosen = marked.select(rows)
    places = ["wxyz".index(name) for name in ids]
    assert (chosen.ids, chosen.labels) == (tuple(ids), corpus.labels)
    assert chosen.groups == tuple("GHIJ"[row] for row in places)
    assert chosen.splits == tuple("1234"[row] for row in places)
    assert list(chosen) == [corpus.document(row) for row in places]
    with pytest.raises(InputError, match="name a document twice; drop repeats"):
        corpus.select([0, -4])


@pytest.mark.parametrize(
    ("labels", "kept"), [(["C", " b"], ("B", "c")), ([], ()), (["unheard of", "a"], ("a",))]
)
def test_restrict_keeps_all_documents_over_fewer_labels(corpus, labels, kept):
    fewer = corpus.restrict(labels)
    assert (fewer.labels, fewer.ids) == (kept, corpus.ids)
    assert [set(d) for d in fewer] == [set(document) & set(kept) for document in corpus]
    assert set(fewer.spellings.values()) <= set(kept)


def test_align_puts_the_other_vocabulary_first_and_its_own_labels_in_use_after(corpus):
    matrix, extra = corpus.align(["C", "zebra", "b"])
    assert extra == ("a",)
    assert matrix.dtype == bool
    assert matrix.has_sorted_indices
    assert_array_equal(matrix.toarray(), [[0, 0, 1, 1], [0, 0, 1, 0], [0, 0, 0, 0], [1, 0, 0, 1]])
    matrix, extra = corpus.select([1]).align(["c"])
    assert extra == ("B",)
    assert_array_equal(matrix.toarray(), [[0, 1]])
    assert corpus.select([1]).used(["C", "zebra", "b"]) == {"b"}
    assert corpus.select([1]).without_unused().labels == ("B",)


# --- what can be learned from ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("documents", "message"),
    [
        ([], "`Thing` got no documents; pass at least two with labels"),
        ([[], []], "All 2 documents given to `Thing` are empty"),
        ([["Sea"], ["sea"]], "`Thing` needs at least two different labels; got only 'Sea'"),
    ],
)
def test_corpora_that_teach_nothing_are_refused(documents, message):
    with pytest.raises(InputError, match=message):
        check_corpus(as_corpus(documents), owner="Thing")


def test_one_label_is_enough_where_asked_and_empty_documents_warn():
    one = as_corpus([["a"], ["a"]])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert check_corpus(one, owner="Thing", n_labels=1) is one
    with pytest.warns(PolysemeWarning, match="1 of 3 documents have no label and teach nothing"):
        check_corpus(as_corpus([["a"], [], ["b"]]), owner="Thing")
