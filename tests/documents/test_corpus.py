"""The corpus: every accepted form, joined spellings, and the sentence for each refused input."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from polyseme.base.validation import InputError, PolysemeWarning
from polyseme.documents.corpus import LabelCorpus, as_corpus, check_corpus, normalize_label

LABELS = st.text("abcAB éÉßİ\t", min_size=1, max_size=4).filter(str.strip)
DOCUMENTS = st.lists(st.lists(LABELS, max_size=5), max_size=6)


# --- from documents -------------------------------------------------------------------------


def test_labels_are_sorted_and_a_repeated_label_counts_once():
    corpus = LabelCorpus.from_documents([["b", "a", "b"], [], ("c",)])
    assert corpus.labels == ("a", "b", "c")
    assert list(corpus) == [("a", "b"), (), ("c",)]
    assert corpus.matrix.dtype == bool
    assert corpus.matrix.has_sorted_indices
    expected = [[1, 1, 0], [0, 0, 0], [0, 0, 1]]
    assert_array_equal(corpus.matrix.toarray(), expected)
    assert corpus.counts.tolist() == [1, 1, 1]
    assert corpus.lengths.tolist() == [2, 0, 1]
    assert len(corpus) == 3
    assert corpus.ids == ("0", "1", "2")
    assert corpus.numbered is True


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
    for name, document in zip(names, corpus, strict=True):
        label = corpus.spellings.get(name, name)
        assert document == (label,)


def test_without_normalisation_spellings_stay_apart():
    corpus = LabelCorpus.from_documents([["A", "a"], ["a "]], normalize=False)
    assert corpus.labels == ("A", "a", "a ")
    assert corpus.spellings == {}
    restricted = corpus.restrict(["A"])
    assert restricted.labels == ("A",)


@pytest.mark.parametrize("container", [tuple, set, frozenset, iter, np.array, pd.Series])
def test_a_document_may_be_any_collection(container):
    document = container(["b", "a"])
    corpus = as_corpus([document])
    assert list(corpus) == [("a", "b")]
    assert {type(label) for label in corpus.labels} == {str}


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
    assert corpus.ids == ("7", "x")
    assert corpus.numbered is False
    with pytest.raises(InputError, match="Document id 'x' is given twice; ids must be unique"):
        LabelCorpus.from_documents(documents, ids=["x", "x"])
    with pytest.raises(InputError, match="3 ids were given for 2 documents"):
        LabelCorpus.from_indicator(np.eye(2), ["a", "b"], ids=["1", "2", "3"])


@settings(deadline=None, max_examples=60)
@given(DOCUMENTS, st.booleans())
def test_documents_survive_the_round_trip(documents, normalize):
    corpus = LabelCorpus.from_documents(documents, normalize=normalize)
    key = normalize_label if normalize else str
    for labels, document in zip(corpus, documents, strict=True):
        assert {key(label) for label in labels} == {key(label) for label in document}
    repeated = LabelCorpus.from_documents(corpus, normalize=normalize)
    assert repeated.labels == corpus.labels
    assert list(repeated) == list(corpus)


@settings(deadline=None, max_examples=60)
@given(DOCUMENTS, st.booleans())
def test_every_spelling_leads_to_a_label(documents, normalize):
    corpus = LabelCorpus.from_documents(documents, normalize=normalize)
    key = normalize_label if normalize else str
    names = set().union(*documents)
    assert names <= set(corpus.labels) | set(corpus.spellings)
    assert set(corpus.spellings.values()) <= set(corpus.labels)
    for spelling, label in corpus.spellings.items():
        assert key(spelling) == key(label)


@settings(deadline=None, max_examples=60)
@given(DOCUMENTS, st.booleans(), st.randoms(use_true_random=False))
def test_the_order_of_documents_does_not_change_the_labels(documents, normalize, shuffler):
    corpus = LabelCorpus.from_documents(documents, normalize=normalize)
    order = shuffler.sample(range(len(documents)), len(documents))
    reordered = [documents[row] for row in order]
    shuffled = LabelCorpus.from_documents(reordered, normalize=normalize)
    assert shuffled.labels == corpus.labels
    matrix = corpus.matrix.toarray()
    assert_array_equal(shuffled.matrix.toarray(), matrix[order])


# --- asking a corpus ------------------------------------------------------------------------


@pytest.fixture
def corpus():
    return LabelCorpus.from_documents([["a", "B"], ["b"], [], ["c", "a"]], ids="wxyz")


def test_a_corpus_passes_through_and_gives_single_documents(corpus):
    assert as_corpus(corpus) is corpus
    assert corpus == corpus
    assert corpus != LabelCorpus.from_documents(corpus)
    assert corpus.document(3) == ("a", "c")
    assert corpus.document(-1) == ("a", "c")
    with pytest.raises(IndexError, match="out of range"):
        corpus.document(4)


@pytest.mark.parametrize(
    ("rows", "ids"),
    [([3, 0], "zw"), (np.array([True, False, True, False]), "wy"), ([], ""), ([-1], "z")],
)
def test_select_cuts_rows_ids_groups_and_splits_alike(corpus, rows, ids):
    marked = LabelCorpus(
        corpus.labels,
        corpus.matrix,
        corpus.ids,
        groups=tuple("GHIJ"),
        splits=tuple("1234"),
    )
    selected = marked.select(rows)
    places = ["wxyz".index(name) for name in ids]
    assert selected.ids == tuple(ids)
    assert selected.labels == corpus.labels
    expected = tuple("GHIJ"[place] for place in places)
    assert selected.groups == expected
    assert selected.splits == tuple("1234"[place] for place in places)
    assert list(selected) == [corpus.document(place) for place in places]


def test_select_refuses_repeated_documents(corpus):
    with pytest.raises(InputError, match="name a document twice; drop repeats"):
        corpus.select([0, -4])


@pytest.mark.parametrize(
    ("labels", "expected"), [(["C", " b"], ("B", "c")), ([], ()), (["unheard of", "a"], ("a",))]
)
def test_restrict_keeps_all_documents_over_fewer_labels(corpus, labels, expected):
    restricted = corpus.restrict(labels)
    assert restricted.labels == expected
    assert restricted.ids == corpus.ids
    for document, whole_document in zip(restricted, corpus, strict=True):
        assert set(document) == set(whole_document) & set(expected)
    assert set(restricted.spellings.values()) <= set(expected)


def test_align_puts_the_given_vocabulary_first_and_further_labels_after(corpus):
    matrix, further = corpus.align(["C", "zebra", "b"])
    assert further == ("a",)
    assert matrix.dtype == bool
    assert matrix.has_sorted_indices
    expected = [[0, 0, 1, 1], [0, 0, 1, 0], [0, 0, 0, 0], [1, 0, 0, 1]]
    assert_array_equal(matrix.toarray(), expected)


def test_labels_of_no_selected_document_are_not_in_use(corpus):
    selected = corpus.select([1])
    matrix, further = selected.align(["c"])
    assert further == ("B",)
    assert_array_equal(matrix.toarray(), [[0, 1]])
    assert selected.used(["C", "zebra", "b"]) == {"b"}
    assert selected.without_unused().labels == ("B",)


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


def test_one_label_is_enough_where_asked():
    corpus = as_corpus([["a"], ["a"]])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        checked = check_corpus(corpus, owner="Thing", n_labels=1)
    assert checked is corpus


def test_empty_documents_cause_a_warning():
    corpus = as_corpus([["a"], [], ["b"]])
    with pytest.warns(PolysemeWarning, match="1 of 3 documents have no label and teach nothing"):
        check_corpus(corpus, owner="Thing")
