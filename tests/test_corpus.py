"""The corpus: every accepted form, joined spellings, and the sentence for each refused input."""

from __future__ import annotations

import random
import warnings

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polyseme._validation import InputError, PolysemeWarning
from polyseme.corpus import LabelCorpus, as_corpus, check_corpus, normalize_label

LABELS = st.text("abcAB éÉßİ\t", min_size=1, max_size=4).filter(str.strip)
DOCUMENTS = st.lists(st.lists(LABELS, max_size=5), max_size=6)


def sets(corpus):
    """Give the documents as sets of labels."""
    return [set(document) for document in corpus]


# --- from documents -------------------------------------------------------------------------


def test_labels_are_sorted_and_a_repeated_label_counts_once():
    corpus = LabelCorpus.from_documents([["b", "a", "b"], [], ("c",)])
    assert corpus.labels == ("a", "b", "c")
    assert list(corpus) == [("a", "b"), (), ("c",)]
    assert corpus.matrix.dtype == bool
    assert corpus.matrix.has_sorted_indices
    np.testing.assert_array_equal(corpus.matrix.toarray(), [[1, 1, 0], [0, 0, 0], [0, 0, 1]])
    assert (len(corpus), corpus.ids, corpus.numbered) == (3, ("0", "1", "2"), True)


def test_spellings_join_under_the_most_frequent_one_and_can_be_traced():
    corpus = LabelCorpus.from_documents([["New York"], [" new   york "], ["New  York"], ["Rome"]])
    assert corpus.labels == ("New York", "Rome")
    assert list(corpus) == [("New York",)] * 3 + [("Rome",)]
    assert corpus.spellings == {" new   york ": "New York", "New  York": "New York"}


def test_white_space_does_not_split_the_votes_for_a_spelling():
    corpus = LabelCorpus.from_documents([["NY"], ["NY"], ["Ny"], ["Ny "], [" Ny"]])
    assert corpus.labels == ("Ny",)


def test_equally_frequent_spellings_are_chosen_without_regard_to_order():
    spelled = [["apple"], ["Apple"], ["APPLE"]]
    assert {LabelCorpus.from_documents(d).labels for d in (spelled, spelled[::-1])} == {("APPLE",)}


def test_composed_and_decomposed_letters_are_one_label():
    assert LabelCorpus.from_documents([["cafe\u0301"], ["CAF\u00c9"]]).matrix.shape == (2, 1)


def test_without_normalisation_spellings_stay_apart():
    corpus = LabelCorpus.from_documents([["A", "a"], ["a "]], normalize=False)
    assert corpus.labels == ("A", "a", "a ")
    assert corpus.spellings == {}
    assert corpus.restrict(["A"]).labels == ("A",)


def test_a_document_of_ten_thousand_labels():
    names = [f"label {number}" for number in range(10_000)]
    corpus = LabelCorpus.from_documents([names, names[:2]])
    assert corpus.matrix.shape == (2, 10_000)
    assert set(corpus.document(0)) == set(names)


@pytest.mark.parametrize("container", [tuple, set, frozenset, iter, np.array, pd.Series])
def test_a_document_may_be_any_collection(container):
    assert sets(as_corpus([container(["b", "a"])])) == [{"a", "b"}]
    assert all(type(label) is str for label in as_corpus([container(["b", "a"])]).labels)


@pytest.mark.parametrize(
    ("documents", "message"),
    [
        ([["a"], "beach"], r"Document 1 is the text 'beach'; .* for example \['beach'\]"),
        ([b"beach"], "Document 0 is the text b'beach'"),
        ([["a"], None], "Document 1 is NoneType; expected a collection of labels"),
        ([["a", 3]], "Document 0 holds the label 3 of type int; labels must be str"),
        ([["a"], ["b", float("nan")]], "Document 1 holds the label nan of type float"),
        ([["a", ""]], "Document 0 holds an empty label; remove it"),
        ([["a"], [" \t"]], "Document 1 holds an empty label"),
    ],
)
@pytest.mark.parametrize("normalize", [True, False])
def test_unusable_documents_are_named(documents, message, normalize):
    with pytest.raises(InputError, match=message):
        LabelCorpus.from_documents(documents, normalize=normalize)


def test_ids_must_be_unique_and_complete():
    documents = [["a"], ["b"]]
    corpus = LabelCorpus.from_documents(documents, ids=[7, "x"])
    assert (corpus.ids, corpus.numbered) == (("7", "x"), False)
    with pytest.raises(InputError, match="Document id 'x' is given twice; ids must be unique"):
        LabelCorpus.from_documents(documents, ids=["x", "x"])
    with pytest.raises(InputError, match="3 ids were given for 2 documents"):
        LabelCorpus.from_indicator(np.eye(2), ["a", "b"], ids=["1", "2", "3"])


@settings(deadline=None, max_examples=60)
@given(DOCUMENTS, st.booleans())
def test_documents_survive_the_round_trip(documents, normalize):
    corpus = LabelCorpus.from_documents(documents, normalize=normalize)
    key = normalize_label if normalize else str
    assert [{key(label) for label in row} for row in corpus] == [
        set(map(key, d)) for d in documents
    ]
    again = LabelCorpus.from_documents(corpus, normalize=normalize)
    assert again.labels == corpus.labels
    assert list(again) == list(corpus)
    met = {spelling for document in documents for spelling in document}
    assert met <= set(corpus.labels) | set(corpus.spellings)
    assert set(corpus.spellings.values()) <= set(corpus.labels)
    assert all(key(spelling) == key(label) for spelling, label in corpus.spellings.items())


@settings(deadline=None, max_examples=60)
@given(DOCUMENTS, st.randoms(use_true_random=False))
def test_permuting_documents_permutes_rows(documents, shuffler: random.Random):
    order = list(range(len(documents)))
    shuffler.shuffle(order)
    corpus = LabelCorpus.from_documents(documents)
    shuffled = LabelCorpus.from_documents([documents[row] for row in order])
    assert shuffled.labels == corpus.labels
    np.testing.assert_array_equal(shuffled.matrix.toarray(), corpus.matrix.toarray()[order])


# --- asking a corpus ------------------------------------------------------------------------


@pytest.fixture
def corpus():
    made = LabelCorpus.from_documents([["a", "B"], ["b"], [], ["c", "a"]], ids="wxyz")
    return as_corpus(made)


def test_a_corpus_passes_through_and_compares_without_error(corpus):
    assert as_corpus(corpus) is corpus
    assert corpus != LabelCorpus.from_documents(corpus)
    assert corpus == corpus


def test_document_counts_from_the_end_and_refuses_other_rows(corpus):
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
    at = ["wxyz".index(name) for name in ids]
    assert chosen.ids == tuple(ids)
    assert chosen.groups == tuple("GHIJ"[row] for row in at)
    assert chosen.splits == tuple("1234"[row] for row in at)
    assert list(chosen) == [corpus.document(row) for row in at]
    assert chosen.labels == corpus.labels


def test_select_keeps_ids_unique(corpus):
    with pytest.raises(InputError, match="name a document twice; drop repeats"):
        corpus.select([0, -4])


@pytest.mark.parametrize(
    ("labels", "kept"), [(["C", " b"], ("B", "c")), ([], ()), (["unheard of", "a"], ("a",))]
)
def test_restrict_keeps_all_documents_over_fewer_labels(corpus, labels, kept):
    fewer = corpus.restrict(labels)
    assert fewer.labels == kept
    assert sets(fewer) == [set(document) & set(kept) for document in corpus]
    assert fewer.ids == corpus.ids
    assert set(fewer.spellings.values()) <= set(kept)


def test_align_puts_the_other_vocabulary_first_and_its_own_labels_after(corpus):
    matrix, extra = corpus.align(["C", "zebra", "b"])
    assert extra == ("a",)
    assert matrix.dtype == bool
    assert matrix.has_sorted_indices
    np.testing.assert_array_equal(
        matrix.toarray(), [[0, 0, 1, 1], [0, 0, 1, 0], [0, 0, 0, 0], [1, 0, 0, 1]]
    )


def test_align_leaves_out_labels_that_no_document_uses(corpus):
    matrix, extra = corpus.select([1]).align(["c"])
    assert extra == ("B",)
    np.testing.assert_array_equal(matrix.toarray(), [[0, 1]])


# --- what can be learned from ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("documents", "message"),
    [
        ([], "`Thing` got no documents; pass at least two with labels"),
        ([[], []], "All 2 documents given to `Thing` are empty"),
        ([["Sea"], ["sea"]], "`Thing` needs at least two different labels .* only 'Sea'"),
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
    with pytest.warns(PolysemeWarning, match="1 of 3 documents have no label and teach `Thing`"):
        check_corpus(as_corpus([["a"], [], ["b"]]), owner="Thing")
