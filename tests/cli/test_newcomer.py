"""What a new user tries with their own tables works, or is refused in one sentence."""

from __future__ import annotations

import contextlib
import json
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as parquet
import pytest
from safetensors.numpy import save_file
from sklearn.model_selection import train_test_split

import polyseme
from polyseme import LabelCorpus
from polyseme.base.validation import InputError, PolysemeWarning
from polyseme.cli.app import TableOptions
from polyseme.cli.inputs import TableReader, read_items
from polyseme.documents.corpus import as_corpus
from polyseme.documents.vocabulary import Vocabulary
from polyseme.io import (
    Table,
    columns,
    read_documents,
    read_features,
    read_table,
    tag_cells,
    unpacking,
)
from polyseme.media import Extracted
from polyseme.metrics import evaluate_tagger
from polyseme.scoring.senses import label_senses
from polyseme_experiments.baselines import Popularity
from polyseme_experiments.datasets import load_dataset

NAMES = [f"x{column}" for column in range(5)]
READING = TableReader()
STRICT = TableReader(TableOptions(strict=True))


def column(records, field):
    return [record[field] for record in records]


def frame_of(X, **ids):
    """Return rows of features as a frame with names of columns, and maybe ids."""
    return pd.DataFrame(X, columns=NAMES).assign(**ids)


@pytest.fixture(scope="module")
def frame(world):
    """The ids, features and tags of the toy world's items in one frame."""
    table = frame_of(world.X)
    table.insert(0, "id", [f"photo-{row}" for row in range(len(table))])
    table["tags"] = [sorted(document) for document in world.documents]
    return table


@pytest.fixture(scope="module")
def named_model(world, tiny_space, tmp_path_factory) -> Path:
    """A saved tagger that knows its columns by name."""
    space = tiny_space(n_steps=40)
    tagger = polyseme.ZeroShotTagger(space=space, random_state=0, n_validations=0)
    tagger.fit(frame_of(world.X), world.documents, world.label_sets)
    path = tmp_path_factory.mktemp("named") / "model"
    tagger.save(path)
    return path


def write_documents(path, ids, documents):
    lines = []
    for name, document in zip(ids, documents, strict=True):
        record = {"id": name, "tags": list(document)}
        lines.append(json.dumps(record) + "\n")
    path.write_text("".join(lines))
    return path


def write_frame(frame, path):
    """Write a frame in the form that a file's suffix names."""
    if path.suffix == ".csv":
        frame.to_csv(path, index=False)
    elif path.suffix == ".jsonl":
        frame.to_json(path, orient="records", lines=True, double_precision=15)
    elif path.suffix == ".arrow":
        feather.write_feather(frame, path)
    else:
        frame.to_parquet(path, index=False)
    return path


def as_sets(documents):
    return [set(document) for document in documents]


# --- joined by id ---------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["csv", "parquet", "npz"])
def test_features_and_tags_in_another_order_are_joined_by_id(tmp_path, form, frame, capsys):
    shuffled = frame.sample(frac=1, random_state=0)
    path = tmp_path / f"wide.{form}"
    if form == "npz":
        ids = shuffled["id"].to_numpy(dtype=str)
        np.savez(path, vectors=shuffled[NAMES].to_numpy(), ids=ids)
    else:
        write_frame(shuffled[["id", *NAMES]], path)
    documents = write_documents(tmp_path / "t.jsonl", frame["id"], frame["tags"])
    items = read_items(path, documents, None, READING)
    assert items.documents.ids == tuple(shuffled["id"])
    assert as_sets(items.documents) == as_sets(shuffled["tags"])
    np.testing.assert_allclose(items.X.to_numpy(), shuffled[NAMES].to_numpy())
    assert f"joined by id: {len(frame)} items\n" in capsys.readouterr().err


def test_ids_that_do_not_match_are_counted_and_refused_when_strict(tmp_path, capsys):
    features = pd.DataFrame({"id": ["a", "b", "x"], "u": [1, 2, 3]})
    path = write_frame(features, tmp_path / "x.csv")
    documents = write_documents(tmp_path / "t.jsonl", "bac", [["p", "q"], ["q"], ["p"]])
    items = read_items(path, documents, None, READING)
    assert items.documents.ids == ("a", "b")
    assert items.X.to_numpy().tolist() == [[1], [2]]
    assert items.everything is not None
    assert items.everything.ids == ("b", "a", "c")
    line = capsys.readouterr().err.splitlines()[-1]
    assert line == (
        "joined by id: 2 items; 1 item without a document (x); 1 document without an item (c)"
    )
    with pytest.raises(InputError, match=r"^Ids do not fit: 1 item without .*drop --strict"):
        read_items(path, documents, None, STRICT)


def test_files_without_a_common_id_are_refused(tmp_path):
    path = write_frame(pd.DataFrame({"id": ["a", "b"], "u": [1, 2]}), tmp_path / "x.csv")
    documents = write_documents(tmp_path / "t.jsonl", "01", [["p"], ["q"]])
    message = r"No id of '.*x\.csv' \(a, b\) is among those of .*0, 1"
    with pytest.raises(InputError, match=message):
        read_items(path, documents, None, READING)


def test_rows_without_ids_are_paired_in_order_with_a_note(tmp_path, capsys):
    np.save(tmp_path / "x.npy", np.eye(2))
    documents = write_documents(tmp_path / "t.jsonl", "ab", [["p", "q"], ["q"]])
    items = read_items(tmp_path / "x.npy", documents, None, READING)
    assert items.documents.ids == ("a", "b")
    stderr = capsys.readouterr().err
    note = "rows and documents are paired in order: no ids in x.npy\n"
    assert stderr.count(note) == 1
    assert "t.jsonl: 2 tags, 1.5 a document; first document: p, q\n" in stderr


def test_a_split_is_selected_after_the_join(tmp_path):
    features = pd.DataFrame({"id": ["b", "a", "c"], "u": [2, 1, 3]})
    path = write_frame(features, tmp_path / "x.csv")
    documents = tmp_path / "t.csv"
    documents.write_text("id,tags,split\na,p;q,train\nb,q;r,test\nc,p;r,train\n")
    items = read_items(path, documents, "train", READING)
    assert items.documents.ids == ("a", "c")
    assert items.X.to_numpy().tolist() == [[1], [3]]


@pytest.fixture
def corpus(frame):
    return LabelCorpus.from_documents(frame["tags"], ids=frame["id"].tolist())


@pytest.mark.parametrize(
    "convert", [lambda frame: frame, pl.from_pandas, pa.Table.from_pandas], ids=range(3)
)
def test_python_joins_frames_and_corpora_by_id(frame, corpus, convert):
    without_tags = frame.drop(columns="tags")
    shuffled = without_tags.sample(frac=1, random_state=1)
    features = convert(shuffled)
    X, documents = polyseme.documents.corpus.in_order_of(features, corpus, corpus)
    assert len(X) == len(frame)
    assert documents.ids == tuple(shuffled["id"])


def test_an_estimator_joins_a_frame_and_a_corpus_by_id(frame, corpus):
    shuffled = frame.drop(columns="tags").sample(frac=1, random_state=1)
    X, _ = polyseme.documents.corpus.in_order_of(shuffled, corpus, corpus)
    assert list(X.columns) == NAMES
    assert Popularity().fit(shuffled, corpus).n_features_in_ == 5


def test_an_estimator_refuses_ids_that_do_not_match(frame, corpus):
    X = frame.drop(columns="tags")[1:]
    message = r"0 rows are without a document \(\), 1 documents withou"
    with pytest.raises(InputError, match=message):
        Popularity().fit(X, corpus)


def test_an_estimator_refuses_an_index_in_another_order(frame):
    X, tags = frame[NAMES], frame["tags"]
    message = r"same index in another order; pass `y\.loc\[X\.index\]`"
    with pytest.raises(InputError, match=message):
        Popularity().fit(X, tags.iloc[::-1])
    Popularity().fit(X.iloc[::-1], tags.iloc[::-1])


# --- ids and column names through the commands ----------------------------------------------


@pytest.mark.parametrize("form", ["csv", "parquet", "arrow", "jsonl"])
def test_rankings_have_ids_and_columns_are_matched_by_name(
    succeed, tmp_path, form, named_model, world
):
    ids = list("fedcba")
    X = world.X_test[:6]
    table = frame_of(X, id=ids)
    reversed_table = table[[*NAMES[::-1], "id"]]
    path = write_frame(reversed_table, tmp_path / f"new.{form}")
    rankings = succeed("rank", named_model, path, "-k", 3).records
    assert column(rankings, "id") == ids
    tagger = polyseme.load(named_model)
    labels, _ = tagger.rank(X, k=3)
    assert column(rankings, "labels") == labels.tolist()


def test_rankings_as_csv_and_table_have_ids(succeed, tmp_path, named_model, world):
    table = frame_of(world.X_test[:6], id=list("fedcba"))
    path = write_frame(table, tmp_path / "new.csv")
    stdout = succeed("rank", named_model, path, "-k", 1, "-f", "csv").stdout
    assert stdout.startswith("row,id,labels,kinds,scores\n")
    stdout = succeed("rank", named_model, path, "-k", 1, "-f", "table").stdout
    assert " id " in stdout
    assert " row " not in stdout


@pytest.mark.parametrize("form", ["csv", "parquet"])
@pytest.mark.parametrize(
    ("names", "message"),
    [(NAMES[:4], "lacks the column(s) x4"), ([*NAMES, "more"], "unknown: more")],
    ids=["missing", "unknown"],
)
def test_missing_and_unknown_columns_are_refused(fail, tmp_path, names, message, form, named_model):
    table = pd.DataFrame(np.ones((2, len(names))), columns=names)
    path = write_frame(table, tmp_path / f"new.{form}")
    assert message in fail("rank", named_model, path)


@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_rankings_of_shards_have_ids(succeed, tmp_path, form, named_model, world):
    shards, out = tmp_path / "in", tmp_path / "out"
    shards.mkdir()
    table = frame_of(world.X_test[:4])
    table.assign(id=list("abcd")).to_parquet(shards / "p-0.parquet")
    table[NAMES[::-1]].assign(id=list("efgh")).to_parquet(shards / "p-1.parquet")
    succeed("rank", named_model, shards, "--out", out, "--out-form", form, "-k", 2)
    read = {"parquet": pd.read_parquet, "jsonl": partial(pd.read_json, lines=True)}[form]
    first = read(out / f"p-0.{form}")
    second = read(out / f"p-1.{form}")
    assert "".join(first["id"]) == "abcd"
    assert "".join(second["id"]) == "efgh"
    for first_labels, second_labels in zip(first["labels"], second["labels"], strict=True):
        assert list(first_labels) == list(second_labels)


def test_tags_of_items_are_matched_by_id(succeed, fail, tmp_path, named_model, world):
    path = write_frame(frame_of(world.X_test[:3], id=list("abc")), tmp_path / "new.csv")
    tags = write_documents(tmp_path / "tags.jsonl", "cz", [["keyboard"], ["sea"]])
    words = ["rank", named_model, path, "-k", 3, "--tags", tags]
    result = succeed(*words)
    assert "joined by id: 1 item; 1 document without an item (z)" in result.stderr
    tagger = polyseme.load(named_model)
    labels, _ = tagger.rank(world.X_test[:3], k=3, tags=[[], [], ["keyboard"]])
    assert column(result.records, "labels") == labels.tolist()
    assert "Ids do not fit: 1 document without an item" in fail(*words, "--strict")


def test_a_row_is_explained_by_its_id(succeed, tmp_path, named_model, world):
    table = frame_of(world.X_test[:3], id=list("abc"))
    reversed_table = table[[*NAMES[::-1], "id"]]
    path = write_frame(reversed_table, tmp_path / "new.csv")
    words = ["explain", named_model, path, "apple", "--row", "b", "-f", "jsonl"]
    (record,) = succeed(*words).records
    tagger = polyseme.load(named_model)
    evidence = tagger.explain(world.X_test[1:2], "apple")
    assert record["id"] == "b"
    assert record["row"] == 1
    assert record["logit"] == pytest.approx(evidence.logit, abs=1e-5)


# --- tag columns ----------------------------------------------------------------------------

PRINTED = {
    "json": '["apple", "desk"]',
    "python": "['apple', 'desk']",
    "numpy": "['apple' 'desk']",
    "numpy in lines": "['apple'\n 'desk']",
    "array": "array(['apple', 'desk'], dtype=object)",
    "set": "{'apple', 'desk'}",
    "tuple": "('apple', 'desk')",
    "bare words": "[apple, desk]",
    "semicolons": "apple; desk",
}


@pytest.mark.parametrize("cell", PRINTED.values(), ids=PRINTED)
def test_printed_lists_in_a_file_are_read_as_lists(tmp_path, cell):
    path = write_frame(pd.DataFrame({"tags": [cell, cell]}), tmp_path / "t.csv")
    assert read_documents(path).label_sets == [["apple", "desk"]] * 2


@pytest.mark.parametrize("make_column", [pd.Series, pl.Series, np.array])
@pytest.mark.parametrize("cell", PRINTED.values(), ids=PRINTED)
def test_printed_lists_in_a_column_are_read_as_lists(make_column, cell):
    assert list(as_corpus(make_column([cell] * 2))) == [("apple", "desk")] * 2


def test_escapes_quotes_and_commas_inside_printed_tags_stay():
    tags = ["it's", 'a "b"', "x, y", "caf\xa0e", "back\\slash", "[odd]"]
    assert tag_cells.parse_tag_cells([str(tags), str(tags[:2])]) == [tags, tags[:2]]
    cells = [json.dumps(tags), "[]", None, ""]
    assert tag_cells.parse_tag_cells(cells) == [tags, [], [], []]


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        (["['a', 'b' ... 'z']"], "Document 0 holds a list that was cut short"),
        (["['a', open('x')]"], "which is no list of strings in 'tags'"),
        ([["a"], "b"], "Document 1 must have 'tags' as a list of strings; got 'b'"),
        (["b", ["a"]], r"Document 1 must have 'tags' as text; got \['a'\]"),
        ([["a"], [1]], r"Document 1 must have 'tags' as a list of strings; got \[1\]"),
        (["x" * 40], "has a cell of 40 letters in 'tags'; 30 are the most"),
        (["a;b;c;d"], "has 4 labels in 'tags'; 3 are the most"),
    ],
)
def test_cells_that_are_no_tags_are_refused(monkeypatch, cells, message):
    monkeypatch.setattr(tag_cells, "MAX_CELL", 30)
    monkeypatch.setattr(tag_cells, "MAX_LABELS", 3)
    tags = pd.Series(cells, dtype=object)
    frame = pd.DataFrame({"tags": tags})
    with pytest.raises(InputError, match=message):
        as_corpus(frame)


@pytest.mark.parametrize("piece", ["[", "['", "'\\", '["a",'])
def test_deeply_nested_cells_are_read_or_refused(piece):
    cell = f"[{piece * 20_000}]"
    with contextlib.suppress(InputError):
        tag_cells.parse_tag_cells([cell])


@pytest.mark.parametrize(
    ("tag_sets", "message"),
    [
        (
            [["apple desk"], ["sea sun sand"]] * 6,
            "if blanks separate tags, say so by the delimiter",
        ),
        ([["apple"], ["sea"]] * 6, "every document has one label"),
        ([["['fern'", "'towel']"], ["sea", "sun"]] * 6, "hold brackets or quotes, such as"),
        ([[f"a{row}", f"b{row}"] for row in range(12)], "nearly all of the 24 labels occur once"),
    ],
)
def test_suspicious_tags_get_a_warning_with_a_remedy(tmp_path, tag_sets, message):
    path = write_documents(tmp_path / "t.jsonl", map(str, range(len(tag_sets))), tag_sets)
    with pytest.warns(PolysemeWarning, match=message) as warnings:
        LabelCorpus.read(path)
    (warning,) = warnings
    assert "--delimiter" in str(warning.message)


def test_usual_tags_are_not_suspicious(world):
    assert tag_cells.diagnose_tags([*map(list, world.documents)]) is None
    assert (
        tag_cells.diagnose_tags([["rock [live]", "80's", "R&B"], ["(untitled)", "pop"]] * 9) is None
    )


@pytest.mark.parametrize("kind", [pd.DataFrame, pl.DataFrame, pa.table])
@pytest.mark.parametrize("tags", [[["a", "b"], ["b"]], ["a;b", "b"]])
def test_a_frame_with_a_column_of_tags_is_a_corpus(kind, tags):
    corpus = as_corpus(kind({"id": ["p", "q"], "tags": tags, "split": ["train", "test"]}))
    assert list(corpus) == [("a", "b"), ("b",)]
    assert (corpus.ids, corpus.splits) == (("p", "q"), ("train", "test"))
    assert list(as_corpus(kind({"keywords": tags}))) == [("a", "b"), ("b",)]


def test_texts_are_documents_only_with_a_delimiter():
    corpus = LabelCorpus.from_documents(["a b", "b"], delimiter=" ")
    assert list(corpus) == [("a", "b"), ("b",)]
    with pytest.raises(InputError, match="Document 0 is the text 'a b'"):
        LabelCorpus.from_documents(["a b", "b"])


# --- one table ------------------------------------------------------------------------------


def save_to_disk(table, folder):
    """Write a table as `save_to_disk` of Hugging Face datasets does, with a stray cache file."""
    folder.mkdir()
    path = str(folder / "data.arrow")
    with pa.OSFile(path, "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    (folder / "cache-1f.arrow").write_bytes(b"no table")
    state = {"_data_files": [{"filename": "data.arrow"}]}
    (folder / "state.json").write_text(json.dumps(state))


def save_shards(table, folder):
    folder.mkdir()
    parquet.write_table(table.slice(0, 7), folder / "a.parquet")
    parquet.write_table(table.slice(7), folder / "b.parquet")


def with_vectors(frame):
    """Return ids, tags and lists of numbers."""
    vectors = frame[NAMES].to_numpy(dtype=np.float32)
    return frame[["id", "tags"]].assign(embedding=vectors.tolist())


def fixed_table(frame):
    """Return ids, tags and lists of a fixed size as an Arrow table."""
    numbers = frame[NAMES].to_numpy(dtype=np.float32).ravel()
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(numbers), 5)
    return pa.Table.from_pandas(with_vectors(frame)).set_column(2, "embedding", vectors)


# Ids, tags and vectors (or columns of numbers) as one table.
FORMS = {
    "parquet": lambda frame, path: with_vectors(frame).to_parquet(path),
    "fixed.parquet": lambda frame, path: parquet.write_table(fixed_table(frame), path),
    "feather": lambda frame, path: feather.write_feather(fixed_table(frame), path),
    "jsonl": lambda frame, path: write_frame(with_vectors(frame), path),
    "csv": lambda frame, path: write_frame(with_vectors(frame), path),
    "dataset": lambda frame, path: save_to_disk(fixed_table(frame), path),
    "shards": lambda frame, path: save_shards(fixed_table(frame), path),
    "wide.csv": write_frame,
}


def write_table(form, frame, folder):
    path = folder / f"one.{form}"
    FORMS[form](frame, path)
    return path


@pytest.mark.parametrize("form", [form for form in FORMS if form != "wide.csv"])
@pytest.mark.parametrize("argument", ["features", "documents"])
def test_one_table_with_vectors_is_enough(tmp_path, form, argument, frame):
    path = write_table(form, frame, tmp_path)
    features, documents = (path, None) if argument == "features" else (None, path)
    items = read_items(features, documents, None, READING)
    assert items.documents.ids == tuple(frame["id"])
    assert as_sets(items.documents) == as_sets(frame["tags"])
    np.testing.assert_allclose(items.X.to_numpy(), frame[NAMES], rtol=1e-6)


@pytest.mark.parametrize("form", ["parquet", "dataset", "wide.csv"])
def test_every_command_takes_one_table(succeed, tmp_path, form, frame, tiny_space, monkeypatch):
    path = write_table(form, frame, tmp_path)
    monkeypatch.setattr("polyseme.tagger.ConceptSpace", lambda: tiny_space(n_steps=20))
    model = tmp_path / "m"
    stderr = succeed("fit", model, "-x", path, "--validations", 0).stderr
    assert "first document: " in stderr
    measures = succeed("validate", "-x", path, "--draws", 1, "-f", "jsonl").records
    assert column(measures, "labels") == ["seen", "unseen"]
    monkeypatch.undo()
    measures = succeed("evaluate", model, path, "-f", "jsonl").records
    assert measures[0]["n_items"] == len(frame)
    rankings = succeed("rank", model, path, "-k", 1).records
    assert column(rankings, "id") == frame["id"].tolist()


def test_an_estimator_takes_one_table(tmp_path, frame, tiny_space):
    table = read_table(write_table("parquet", frame, tmp_path))
    space = tiny_space(n_steps=20)
    tagger = polyseme.ZeroShotTagger(space=space, random_state=0, n_validations=1)
    tagger.fit(table, table)
    assert tagger.store_.ids == tuple(frame["id"])
    assert tagger.validation_.seen.n_items > 9
    assert evaluate_tagger(tagger, table, table)["example_map"] > 0.3


TWO = {"id": ["a", "b"], "tags": [["p"], ["q"]], "u": [[1.0], [2.0]], "v": [[3.0], [4.0]]}


@pytest.mark.parametrize("form", ["parquet", "jsonl", "npz"])
def test_of_several_columns_of_vectors_one_must_be_named(tmp_path, form):
    path = tmp_path / f"x.{form}"
    if form == "npz":
        np.savez(path, u=TWO["u"], v=TWO["v"])
    else:
        write_frame(pd.DataFrame(TWO), path)
    assert read_features(path, features_column="v").tolist() == [[3], [4]]
    message = r"x\..*\bu, v\b.*--features-column|--features-.*\bu, v"
    for options in ({}, {"features_column": "w"}):
        with pytest.raises(InputError, match=message):
            read_features(path, **options)


def test_a_frame_with_several_columns_of_vectors_is_refused():
    frame = pd.DataFrame(TWO)
    message = r"several columns of vectors \(u, v\); pass one of them"
    with pytest.raises(InputError, match=message):
        Popularity().fit(frame, frame[["id", "tags"]])


def test_commands_take_the_name_of_the_column_of_vectors(
    succeed, fail, tmp_path, named_model, world
):
    table = {
        "words": [["sea"]] * 3,
        "u": [[1.0]] * 3,
        "v": world.X_test[:3].tolist(),
        "id": [*"abc"],
    }
    path = write_frame(pd.DataFrame(table), tmp_path / "x.parquet")
    options = ["--tags-column", "words", "--features-column", "v"]
    words = ["rank", named_model, path, "-k", 3]
    printed = succeed(*words, *options).records
    tagger = polyseme.load(named_model)
    labels, _ = tagger.rank(world.X_test[:3], k=3)
    assert column(printed, "labels") == labels.tolist()
    succeed(*words, *options, "--out", tmp_path / "out")
    written = pd.read_json(tmp_path / "out" / "x.jsonl", lines=True)
    assert written["labels"].tolist() == labels.tolist()
    succeed("explain", named_model, path, "sea", "--row", "b", *options, "-f", "jsonl")
    succeed("evaluate", named_model, path, *options)
    assert "several columns of vectors (u, v); name one by" in fail(*words)


@pytest.fixture
def indexed_frame():
    return pd.DataFrame({"tags": ["p;q", "q"], "u": [1.0, 2.0]}, index=[7, 3])


def test_an_index_in_parquet_is_no_feature(tmp_path, indexed_frame):
    indexed_frame.to_parquet(tmp_path / "x.parquet")
    assert read_table(tmp_path / "x.parquet").columns == ("u",)


def test_an_index_in_csv_must_get_a_name(tmp_path, indexed_frame):
    path = tmp_path / "x.csv"
    message = r"Column \d of x\.csv has no name; name it \(`id`"
    indexed_frame.to_csv(path)
    with pytest.raises(InputError, match=message):
        read_table(path)
    # It has another name when pandas has read it and writes it again.
    pd.read_csv(path).set_index("tags").to_csv(path)
    with pytest.raises(InputError, match=message):
        read_table(path)


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_columns_of_numbers_are_features_only_of_a_table_of_features(tmp_path, form, frame, capsys):
    path = write_frame(frame, tmp_path / f"one.{form}")
    items = read_items(path, None, None, READING)
    assert items.X.columns == tuple(NAMES)
    assert items.documents.ids == tuple(frame["id"])
    assert read_items(None, path, None, READING).X is None
    assert "are not used (x0, x1, x2 and 2 more); --features" in capsys.readouterr().err


REPEATED = pd.DataFrame(
    {
        "id": [*"aba"],
        "tags": ["p;q", "q", "r;p"],
        "u": [1, 2, 3],
        "split": ["train", "test", "test"],
    }
)
MERGED = r"^Ids stand more than once in {} \(a\): 3 rows become 2; tags .* united, .*--strict"


REPEATED_FEATURES = REPEATED.drop(columns=["tags", "split"])
MERGED_DOCUMENTS = pd.DataFrame({"id": [*"ab"], "tags": ["p;q;r", "q"]})


@pytest.mark.parametrize(
    ("features", "documents", "n_warnings"),
    [
        (REPEATED, None, 1),
        (REPEATED_FEATURES, MERGED_DOCUMENTS, 1),
        (REPEATED_FEATURES[:2], REPEATED, 1),
        (REPEATED_FEATURES, REPEATED, 2),
    ],
    ids=["one table", "features", "documents", "both"],
)
def test_rows_of_the_same_id_are_merged_with_a_warning(tmp_path, features, documents, n_warnings):
    path = write_frame(features, tmp_path / "x.csv")
    documents_path = None if documents is None else write_frame(documents, tmp_path / "t.csv")
    with pytest.warns(PolysemeWarning, match=MERGED.format(r"[xt]\.csv")) as warnings:
        items = read_items(path, documents_path, None, READING)
    assert len(warnings) == n_warnings
    assert items.documents.ids == ("a", "b")
    assert items.X.to_numpy().tolist() == [[1], [2]]
    assert as_sets(items.documents) == [{"p", "q", "r"}, {"q"}]
    message = r"^Ids stand more .*\(a\); give each row an id of its own\.$"
    with pytest.raises(InputError, match=message):
        read_items(path, documents_path, None, STRICT)


def test_rows_of_the_same_id_in_a_frame_are_merged():
    frame = REPEATED.drop(columns="u")
    message = MERGED.format("the column 'tags'")
    with pytest.warns(PolysemeWarning, match=message):
        corpus = as_corpus(frame)
    assert corpus.ids == ("a", "b")
    assert corpus.splits == ("train", "test")


def test_rows_of_the_same_id_in_arrays_are_merged(tmp_path):
    path = tmp_path / "x.npz"
    indicator = {"indicator": [[1, 0], [0, 1], [1, 1]], "labels": ["p", "q"]}
    np.savez(path, features=np.diag([1, 2, 3]), ids=[*"aba"], **indicator)
    with pytest.warns(PolysemeWarning, match=MERGED.format(r"x\.npz")):
        table = read_table(path)
    assert list(as_corpus(table)) == [("p", "q"), ("q",)]
    assert table.to_numpy().tolist() == [[1, 0, 0], [0, 2, 0]]
    with pytest.raises(InputError, match="Ids stand more than once"):
        read_table(path, strict=True)


def test_npz_with_ids_is_a_table(tmp_path):
    path = tmp_path / "x.npz"
    ids = np.array(["a", "b"])
    np.savez(path, features=np.eye(2), ids=ids, other=np.eye(3))
    table = read_table(path)
    assert table.ids == ["a", "b"]


def test_safetensors_with_ids_is_a_table(tmp_path):
    path = tmp_path / "x.safetensors"
    arrays = {"embeddings": np.eye(2, dtype=np.float16), "ids": np.arange(2)}
    save_file(arrays, path)
    table = read_table(path)
    assert table.ids == ["0", "1"]
    assert table.features.dtype == np.float32


def test_npz_with_an_indicator_matrix_is_a_corpus(tmp_path):
    path = tmp_path / "y.npz"
    indicator = {"indicator": np.eye(2), "labels": np.array(["p", "q"])}
    np.savez(path, features=np.eye(2), ids=np.array(["a", "b"]), **indicator)
    assert LabelCorpus.read(path).ids == ("a", "b")
    assert read_features(path).shape == (2, 2)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (
            {"embedding": [[1.0], [2.0, 3.0]]},
            "Row 1 of x.parquet has a vector of 2 numbers where",
        ),
        (
            {"u": ["a", "b"], "v": [1, 2]},
            "Column 'u' of x.parquet must hold numbers; got text",
        ),
        (
            {"id": [0.5, 1.5], "v": [1, 2]},
            "Row 0 of x.parquet must have text or a whole number as 'id'; got 0.5",
        ),
        (
            {"id": ["a", None], "v": [1, 2]},
            "Row 1 of x.parquet lacks 'id', which others have",
        ),
    ],
)
def test_tables_that_cannot_be_features_are_refused(tmp_path, table, message):
    parquet.write_table(pa.table(table), tmp_path / "x.parquet")
    with pytest.raises(InputError, match=message):
        read_features(tmp_path / "x.parquet")


def test_folders_that_are_no_table_are_refused(tmp_path):
    folder = tmp_path / "train"
    folder.mkdir()
    (folder / "state.json").write_text("{}")
    (tmp_path / "dataset_dict.json").write_text('{"splits": ["train"]}')
    with pytest.raises(InputError, match="does not name the parts of a Hugging Face dataset"):
        read_table(tmp_path)
    state = {"_data_files": [{"filename": "../../etc/data.arrow"}]}
    (folder / "state.json").write_text(json.dumps(state))
    with pytest.raises(InputError, match=r"lacks data\.arrow; copy it whole"):
        read_table(folder)


@pytest.mark.parametrize(
    ("name", "kind"), [("x.arrow", "Arrow"), ("x.parquet", "Parquet"), ("x.safetensors", "a saf")]
)
def test_a_damaged_file_is_one_sentence(tmp_path, name, kind):
    (tmp_path / name).write_bytes(b"ARROW1 but no more")
    with pytest.raises(InputError, match=rf"{name} is not readable as {kind}"):
        read_table(tmp_path / name)


def test_a_column_whose_name_is_no_text_is_one_sentence(tmp_path):
    path = tmp_path / "x.arrow"
    table = pa.table({"colour": [1.0]})
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    content = path.read_bytes()
    path.write_bytes(content.replace(b"colour", b"col\xff\xffr"))
    with pytest.raises(InputError, match=r"x\.arrow is not readable as Arrow .* byte 0xff"):
        read_table(path)


# --- limits ---------------------------------------------------------------------------------


def test_an_archive_that_unpacks_to_too_much_is_refused(tmp_path):
    path = tmp_path / "x.npz"
    np.savez_compressed(path, np.zeros((100, 100)))
    message = r"x\.npz unpacks to .* allowed; `polyseme --max-unpacked`"
    with unpacking(1e-5), pytest.raises(InputError, match=message):
        read_features(path)


@pytest.mark.parametrize("name", ["x.parquet", "x.csv"])
def test_a_table_of_too_many_numbers_is_refused(tmp_path, monkeypatch, name):
    frame = pd.DataFrame(np.zeros((100, 3)), columns=list("abc"))
    path = write_frame(frame, tmp_path / name)
    monkeypatch.setattr(columns, "MAX_NUMBERS", 200)
    with pytest.raises(InputError, match=rf"{name} holds .* more than 200 in all"):
        read_features(path)


def test_a_table_of_too_many_columns_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "x.csv"
    path.write_text("a,b,c\n0,0,0\n")
    monkeypatch.setattr(columns, "MAX_COLUMNS", 2)
    with pytest.raises(InputError, match=r"x\.csv has 3 columns; 2 are the most"):
        read_features(path)


# --- conventions ----------------------------------------------------------------------------


def test_a_corpus_can_be_split_like_any_target():
    corpus = LabelCorpus.from_indicator([[1, 0], [0, 1], [1, 1], [1, 0]], ["a", "b"])
    rows = np.arange(4)
    train_rows, _, train, test = train_test_split(rows, corpus, test_size=1, random_state=0)
    assert list(train.ids) == [str(row) for row in train_rows]
    assert len(test) == 1


def test_a_corpus_can_be_indexed():
    corpus = LabelCorpus.from_indicator([[1, 0], [0, 1], [1, 1], [1, 0]], ["a", "b"])
    assert corpus[2] == ("a", "b")
    assert corpus[1:3].ids == ("1", "2")


REPRS = {
    "corpus": (lambda tagger, world: LabelCorpus.from_documents(world.documents), "300"),
    "extracted": (lambda *_: Extracted("image", {}, ("a",) * 900, [np.zeros(3)] * 900), "900"),
    "dataset": (lambda *_: load_dataset("hsun", sample=True), "hsun"),
    "table": (lambda *_: Table(features=np.zeros((900, 3)), ids=["a"] * 900), "900"),
    "evidence": (lambda tagger, world: tagger.explain(world.X_test[0], "apple"), "apple (seen)"),
    "senses": (lambda tagger, world: label_senses(tagger.store_, "apple"), "apple:"),
    "store": (lambda tagger, world: tagger.store_, "600"),
    "concepts": (lambda tagger, world: tagger.store_.concepts(), "Concepts("),
    "calibration": (lambda tagger, world: tagger.space_.calibration_, "99 thresholds"),
    "held-out sample": (lambda tagger, world: tagger.space_.held_out_sample_, " items"),
    "members": (lambda tagger, world: tagger.space_.members_, " dimensions"),
    "vocabulary": (
        lambda *_: Vocabulary(
            blocked=tuple("abc" * 99), aliases={str(number): "a" for number in range(99)}
        ),
        "99 other names",
    ),
}


@pytest.mark.parametrize("name", REPRS)
def test_reprs_are_short(world, toy_tagger, name):
    make, summary = REPRS[name]
    text = repr(make(toy_tagger, world))
    assert len(text) < 200
    assert summary in text


def test_info_takes_the_options_of_tables_and_prints_json_into_a_pipe(succeed, fail, tmp_path):
    path = tmp_path / "m.csv"
    path.write_text("name,words\na,x y\nb,y z\n")
    assert "--tags-column" in fail("info", path)
    words = ["info", path, "--tags-column", "words", "--delimiter", " "]
    result = succeed(*words)
    assert result.records[0]["labels"] == 3
    assert result.stdout == succeed(*words, "-f", "jsonl").stdout
