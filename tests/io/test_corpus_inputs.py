"""Indicator matrices and frames as corpora: what is read and what is refused."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse as sp

from polyseme.base.validation import InputError
from polyseme.documents.corpus import as_corpus, check_corpus

TABLE = np.array([[1, 0, 1], [0, 0, 0], [0, 1, 1]])
MATRICES = [
    TABLE,
    TABLE.astype(bool),
    TABLE.astype(float),
    sp.csr_matrix(TABLE),
    sp.coo_array(TABLE),
    sp.csc_matrix(TABLE.astype(bool)),
]


@pytest.mark.parametrize("matrix", MATRICES, ids=lambda m: f"{type(m).__name__}-{m.dtype}")
def test_indicator_of_any_kind_keeps_its_column_order(matrix):
    corpus = as_corpus(matrix, ["z", "a", "m"])
    assert corpus.labels == ("z", "a", "m")
    assert list(corpus) == [("z", "m"), (), ("a", "m")]
    assert corpus.matrix.dtype == bool


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame])
@pytest.mark.parametrize("kind", [int, bool])
def test_indicator_frames_bring_their_labels(frame, kind):
    z, a, m = TABLE.astype(kind).T
    columns = {"z": z, "a": a, "m": m}
    plain = as_corpus(frame(columns))
    assert list(plain) == [("z", "m"), (), ("a", "m")]
    renamed = as_corpus(frame(columns), ["x", "y", "w"])
    assert renamed.labels == ("x", "y", "w")
    with_ids = as_corpus(frame({"id": ["p", "q", "r"], **columns}))
    assert with_ids.ids == ("p", "q", "r")


def test_columns_with_one_label_are_joined_under_the_fuller_ones_spelling():
    matrix = sp.csr_matrix([[1, 0, 1, 1], [0, 0, 1, 0], [0, 1, 0, 0]])
    names = ["pie ", "Sea", "Pie", "pie"]
    corpus = as_corpus(matrix, names)
    assert corpus.labels == ("Pie", "Sea")
    assert list(corpus) == [("Pie",), ("Pie",), ("Sea",)]
    assert corpus.spellings == {"pie ": "Pie", "pie": "Pie"}
    unnormalised = as_corpus(matrix, names, normalize=False)
    assert unnormalised.matrix.shape == (3, 4)


@pytest.mark.parametrize("kind", [int, bool])
def test_stored_zeros_and_repeated_entries_are_no_extra_labels(kind):
    data = np.array([0, 1, 1, 1], dtype=kind)
    matrix = sp.csr_matrix((data, [0, 1, 1, 0], [0, 3, 4]), shape=(2, 2))
    corpus = as_corpus(matrix, ["a", "b"])
    assert list(corpus) == [("b",), ("a",)]
    assert matrix.nnz == 4, "the caller's matrix was changed"


def test_large_sparse_indicator_is_never_made_dense(monkeypatch):
    def refuse(*_args, **_options):
        raise AssertionError("a sparse matrix was made dense")

    for kind in (sp.csr_matrix, sp.csc_matrix, sp.coo_matrix):
        monkeypatch.setattr(kind, "toarray", refuse)
        monkeypatch.setattr(kind, "todense", refuse)
    rows = np.arange(200_000)
    entries = np.ones(len(rows), dtype=np.int8)
    matrix = sp.coo_matrix((entries, (rows, rows % 50_000)), shape=(200_000, 50_000))
    labels = [f"label {column // 2}" for column in range(50_000)]
    corpus = as_corpus(matrix, labels)
    assert corpus.matrix.shape == (200_000, 25_000)
    checked = check_corpus(corpus, owner="Thing")
    assert checked.document(199_999) == ("label 24999",)
    restricted = corpus.select(rows[::1000]).restrict(labels[:10])
    assert restricted.matrix.shape == (200, 5)
    aligned, _ = corpus.align(["label 0", "another"])
    assert aligned.shape == (200_000, 25_001)


def test_corpora_that_disagree_on_spelling_are_not_mixed():
    corpus = as_corpus([["US", "law"], ["us", "we"]], normalize=True)
    with pytest.raises(InputError, match="read both with the same `normalize`"):
        corpus.align(["US", "us"])


@pytest.mark.parametrize(
    ("matrix", "labels", "message"),
    [
        (TABLE, ["a", "b"], "has 3 columns but 2 labels were given; give one label per column"),
        (TABLE * 2, ["a", "b", "c"], "must hold only 0 and 1; binarise it first"),
        (TABLE * np.nan, ["a", "b", "c"], "must hold only 0 and 1; binarise it first"),
        (TABLE, "abc", "`labels` is the text 'abc'"),
        (TABLE, ["a", "b", ""], "`labels` holds an empty label"),
        (TABLE, ["a", "b", 3], "`labels` holds the label 3 of type int"),
        (pd.DataFrame({"x": ["t"], "a": [1]}), None, "needs its tags in one column `tags` or"),
    ],
)
def test_unusable_indicators_are_refused(matrix, labels, message):
    with pytest.raises(InputError, match=message):
        as_corpus(matrix, labels)
    with pytest.raises(InputError, match="`labels` belongs to an indicator matrix"):
        as_corpus([["a", "b"]], ["a", "b"])
    with pytest.raises(InputError, match=r"Documents must be collections of labels, .* got int"):
        as_corpus(3)
