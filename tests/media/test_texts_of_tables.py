"""Texts in a column of a table, extracted as files are."""

from __future__ import annotations

import json

import pytest
from numpy.testing import assert_array_equal

from polyseme import ImageFeatures, TextFeatures, ZeroShotTagger
from polyseme.base.validation import InputError
from polyseme.io import read_texts
from polyseme.media import read_extraction
from polyseme.media.extraction import extract_table

QUESTIONS = [
    {"id": "q1", "text": "Where do apples grow?", "tags": ["fruit", "garden"]},
    {"id": "q2", "text": "Which telephone has a long battery?", "tags": ["telephone"]},
    {"id": "q3", "text": "Where do pears grow?", "tags": ["fruit", "garden", "Fruit"]},
    {"id": "q4", "text": "…", "tags": []},
]


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "questions.jsonl"
    path.write_text("".join(json.dumps(question) + "\n" for question in QUESTIONS))
    return path


def test_rows_become_items_with_ids_and_tags(table, tmp_path):
    done = []
    summary = extract_table(
        table, tmp_path / "numbers", TextFeatures(), progress=lambda *counts: done.append(counts)
    )
    assert (summary.n_extracted, summary.n_tagged) == (4, 3)
    assert done[-1] == (4, 4, 0)
    extraction = read_extraction(tmp_path / "numbers")
    assert extraction.ids == ("q1", "q2", "q3", "q4")
    assert extraction.tags[2] == ("fruit", "garden")
    extractor = TextFeatures(random_state=0)
    from_texts = extractor.fit_transform([question["text"] for question in QUESTIONS])
    assert_array_equal(extractor.transform(extraction), from_texts)


def test_an_empty_text_is_skipped_and_the_rest_kept(tmp_path):
    path = tmp_path / "notes.csv"
    path.write_text("text,tags\napples grow,fruit\n#fruit,fruit\n")
    summary = extract_table(path, tmp_path / "numbers", TextFeatures())
    assert summary.skipped == (("1", "holds no words"),)
    assert read_extraction(tmp_path / "numbers").ids == ("0",)


def test_a_second_extraction_reads_only_what_is_new(table, tmp_path):
    extract_table(table, tmp_path / "numbers", TextFeatures())
    with table.open("a") as lines:
        lines.write('{"id": "q5", "text": "Who sells a telephone?", "tags": ["telephone"]}\n')
    summary = extract_table(table, tmp_path / "numbers", TextFeatures())
    assert (summary.n_extracted, summary.n_cached) == (5, 4)


def test_a_table_may_have_other_columns_and_no_tags(tmp_path):
    path = tmp_path / "new.tsv"
    path.write_text("id\tquestion\tyear\nn1\tWhere do plums grow?\t1999\n")
    table = read_texts(path, "question")
    assert table.texts == ["Where do plums grow?"]
    assert not table.has_tags
    extract_table(path, tmp_path / "numbers", TextFeatures(), text_column="question")
    assert read_extraction(tmp_path / "numbers").tags == ((),)


def test_what_is_no_table_of_texts_is_refused(table, tmp_path):
    with pytest.raises(InputError, match="no column 'question' of texts"):
        extract_table(table, tmp_path / "numbers", TextFeatures(), text_column="question")
    with pytest.raises(InputError, match="has no image files"):
        extract_table(table, tmp_path / "numbers", ImageFeatures())


def test_a_column_of_texts_is_learned_from_and_ranked():
    texts = [question["text"] for question in QUESTIONS[:3]] * 4
    tags = [question["tags"] for question in QUESTIONS[:3]] * 4
    tagger = ZeroShotTagger(features=TextFeatures(), n_validations=0, random_state=0)
    tagger.fit(texts, tags)
    labels, _ = tagger.rank(["Where do cherries grow?"], 1)
    assert labels[0, 0] in ("fruit", "garden")
    assert tagger.encode(texts).ids is None
