"""Joining rows and documents: by id, by file and in order."""

from __future__ import annotations

from pathlib import Path

import pytest

from polyseme.base.validation import InputError
from polyseme.io.join import join_rows, match_ids

SOURCES = (Path("features.npy"), Path("tags.jsonl"))


def test_ids_are_matched_in_the_order_of_rows():
    rows, documents = match_ids(["c", "x", "a"], ["a", "b", "c"])
    assert rows.tolist() == [0, 2]
    assert documents.tolist() == [2, 0]


def test_a_join_by_id_counts_what_does_not_fit():
    join = join_rows(["c", "x", "a"], ["a", "b", "c"], SOURCES, n_documents=3)
    assert join.rows.tolist() == [0, 2]
    assert join.documents.tolist() == [2, 0]
    assert join.summary == (
        "joined by id: 2 items; 1 item without a document (x); 1 document without an item (b)"
    )


def test_a_strict_join_refuses_what_does_not_fit():
    with pytest.raises(InputError, match=r"Ids do not fit: 1 item without a document \(x\)"):
        join_rows(["a", "x"], ["a"], SOURCES, n_documents=1, strict=True)


def test_items_without_tags_may_be_expected():
    join = join_rows(["a", "x"], ["a"], SOURCES, n_documents=1, all_tagged=False, strict=True)
    assert join.summary == "joined by id: 1 item"


def test_ids_of_which_none_match_are_an_error():
    with pytest.raises(InputError, match=r"No id of 'features.npy' \(x\) is among those of"):
        join_rows(["x"], ["a"], SOURCES, n_documents=1)


def test_rows_without_ids_are_joined_in_order():
    join = join_rows(range(2), None, SOURCES, n_documents=2)
    assert join.rows.tolist() == join.documents.tolist() == [0, 1]
    assert join.summary.endswith("no ids in features.npy and tags.jsonl")


def test_rows_in_order_must_be_as_many_as_documents():
    with pytest.raises(InputError, match="has 2 rows but there are 3 documents"):
        join_rows(range(2), ["a", "b", "c"], SOURCES, n_documents=3)


def test_files_are_matched_by_their_names():
    join = join_rows(["x/a.png"], ["a", "b"], SOURCES, n_documents=2, files=True)
    assert join.documents.tolist() == [0]
    assert join.summary == "joined by name: 1 file; 1 document without a file (b)"
