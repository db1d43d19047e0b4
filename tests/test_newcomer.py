"""What a first user tries with tables of their own: it works, or is refused in one sentence."""

from __future__ import annotations

import contextlib
import json
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
from polyseme._validation import InputError, PolysemeWarning
from polyseme.baselines import Popularity
from polyseme.cli.app import TableOptions
from polyseme.cli.reading import Reading, read_items
from polyseme.corpus import as_corpus
from polyseme.datasets import load_dataset
from polyseme.features import Extracted
from polyseme.io import (
    Table,
    columns,
    read_documents,
    read_features,
    read_table,
    tag_cells,
    unpacking,
)
from polyseme.metrics import evaluate_tagger
from polyseme.senses import label_senses
from polyseme.vocabulary import Vocabulary

NAMES = [f"x{column}" for column in range(5)]
READING = Reading()
STRICT = Reading(TableOptions(strict=True))


def records(text):
    return [json.loads(line) for line in text.splitlines()]


@pytest.fixture(scope="module")
def frame(world):
    """All that is known of the toy world's items, in one frame."""
    table = pd.DataFrame(world.X, columns=NAMES)
    table.insert(0, "id", [f"photo-{row}" for row in range(len(table))])
    table["tags"] = [sorted(document) for document in world.documents]
    return table


@pytest.fixture(scope="module")
def named_model(world, tiny_space, tmp_path_factory) -> Path:
    """A saved tagger that knows its columns by name."""
    tagger = polyseme.ZeroShotTagger(space=tiny_space(n_steps=40), random_state=0, n_validations=0)
    tagger.fit(pd.DataFrame(world.X, columns=NAMES), world.documents, world.label_sets)
    path = tmp_path_factory.mktemp("named") / "model"
    tagger.save(path)
    return path


def write_documents(path, ids, documents):
    lines = zip(ids, documents, strict=True)
    path.write_text("".join(json.dumps({"id": i, "tags": list(d)}) + "\n" for i, d in lines))
    return path


# --- joined by id ---------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["csv", "parquet", "npz"])
def test_features_and_tags_in_another_order_are_joined_by_id(tmp_path, form, frame, capsys):
    shuffled = frame.sample(frac=1, random_state=0)
    path = tmp_path / f"wide.{form}"
    if form == "csv":
        shuffled[["id", *NAMES]].to_csv(path, index=False)
    elif form == "parquet":
        shuffled[["id", *NAMES]].to_parquet(path, index=False)
    else:
        ids = shuffled["id"].to_numpy(dtype=str)
        np.savez(path, vectors=shuffled[NAMES].to_numpy(), ids=ids)
    documents = write_documents(tmp_path / "t.jsonl", frame["id"], frame["tags"])
    items = read_items(path, documents, None, READING)
    assert items.documents.ids == tuple(shuffled["id"])
    assert [set(d) for d in items.documents] == [set(tags) for tags in shuffled["tags"]]
    np.testing.assert_allclose(items.X.to_numpy(), shuffled[NAMES].to_numpy())
    assert f"joined by id: {len(frame)} items\n" in capsys.readouterr().err


def test_ids_that_do_not_fit_are_counted_and_refused_when_strict(tmp_path, capsys):
    pd.DataFrame({"id": ["a", "b", "x"], "u": [1, 2, 3]}).to_csv(tmp_path / "x.csv", index=False)
    documents = write_documents(tmp_path / "t.jsonl", "bac", [["p", "q"], ["q"], ["p"]])
    items = read_items(tmp_path / "x.csv", documents, None, READING)
    assert items.documents.ids == ("a", "b") and items.X.to_numpy().tolist() == [[1], [2]]
    assert items.everything is not None and items.everything.ids == ("b", "a", "c")
    line = capsys.readouterr().err.splitlines()[-1]
    assert line == (
        "joined by id: 2 items; 1 item without a document (x); 1 document without an item (c)"
    )
    with pytest.raises(InputError, match=r"^Ids do not fit: 1 item without .*drop --strict"):
        read_items(tmp_path / "x.csv", documents, None, STRICT)


def test_ids_of_which_none_fits_are_refused(tmp_path):
    pd.DataFrame({"id": ["a", "b"], "u": [1, 2]}).to_csv(tmp_path / "x.csv", index=False)
    documents = write_documents(tmp_path / "t.jsonl", "01", [["p"], ["q"]])
    with pytest.raises(InputError, match=r"No id of '.*x\.csv' \(a, b\) is among those of .*0, 1"):
        read_items(tmp_path / "x.csv", documents, None, READING)


def test_rows_without_ids_are_paired_and_that_is_said(tmp_path, capsys):
    np.save(tmp_path / "x.npy", np.eye(2))
    documents = write_documents(tmp_path / "t.jsonl", "ab", [["p", "q"], ["q"]])
    items = read_items(tmp_path / "x.npy", documents, None, READING)
    assert items.documents.ids == ("a", "b")
    err = capsys.readouterr().err
    assert err.count("rows and documents are paired in order: no ids in x.npy\n") == 1
    assert "t.jsonl: 2 tags, 1.5 a document; first document: p, q\n" in err


def test_a_split_is_cut_after_the_join(tmp_path):
    pd.DataFrame({"id": ["b", "a", "c"], "u": [2, 1, 3]}).to_csv(tmp_path / "x.csv", index=False)
    text = "id,tags,split\na,p;q,train\nb,q;r,test\nc,p;r,train\n"
    (tmp_path / "t.csv").write_text(text)
    items = read_items(tmp_path / "x.csv", tmp_path / "t.csv", "train", READING)
    assert items.documents.ids == ("a", "c") and items.X.to_numpy().tolist() == [[1], [3]]


def test_python_joins_frames_and_corpora_by_id(frame):
    corpus = LabelCorpus.from_documents(frame["tags"], ids=frame["id"].tolist())
    shuffled = frame.drop(columns="tags").sample(frac=1, random_state=1)
    X, documents = polyseme.corpus.in_order_of(shuffled, corpus, corpus)
    assert list(X.columns) == NAMES and documents.ids == tuple(shuffled["id"])
    for kind in (pl.from_pandas, pa.Table.from_pandas):
        X, documents = polyseme.corpus.in_order_of(kind(shuffled), corpus, corpus)
        assert documents.ids == tuple(shuffled["id"])
    model = Popularity().fit(shuffled, corpus)
    assert model.n_features_in_ == 5


def test_python_refuses_ids_that_do_not_fit(frame):
    corpus = LabelCorpus.from_documents(frame["tags"], ids=frame["id"].tolist())
    with pytest.raises(InputError, match=r"0 rows are without a document \(\), 1 documents withou"):
        Popularity().fit(frame.drop(columns="tags")[1:], corpus)
    X, tags = frame[NAMES], frame["tags"]
    with pytest.raises(InputError, match=r"same index in another order; pass `y\.loc\[X\.index\]`"):
        Popularity().fit(X, tags.iloc[::-1])
    Popularity().fit(X.iloc[::-1], tags.iloc[::-1])


# --- ids and column names through the commands ----------------------------------------------


@pytest.mark.parametrize("form", ["csv", "parquet", "arrow", "jsonl"])
def test_ranks_carry_ids_and_know_columns_by_name(run, tmp_path, form, named_model, world):
    table = pd.DataFrame(world.X_test[:6], columns=NAMES)[NAMES[::-1]]
    table["id"] = list("fedcba")
    path = tmp_path / f"new.{form}"
    if form == "csv":
        table.to_csv(path, index=False)
    elif form == "jsonl":
        table.to_json(path, orient="records", lines=True, double_precision=15)
    elif form == "arrow":
        feather.write_feather(table, path)
    else:
        table.to_parquet(path, index=False)
    code, out, err = run("rank", named_model, path, "-k", 3)
    assert code == 0, err
    assert [row["id"] for row in records(out)] == list("fedcba")
    labels, _ = polyseme.load(named_model).rank(world.X_test[:6], k=3)
    assert [row["labels"] for row in records(out)] == labels.tolist()
    code, out, _ = run("rank", named_model, path, "-k", 1, "-f", "csv")
    assert out.splitlines()[0] == "row,id,labels,kinds,scores"
    code, out, _ = run("rank", named_model, path, "-k", 1, "-f", "table")
    assert " id " in out and " row " not in out


@pytest.mark.parametrize("names", [NAMES[:4], [*NAMES, "more"]])
def test_missing_and_unknown_columns_are_refused(run, tmp_path, names, named_model):
    for path in (tmp_path / "new.csv", tmp_path / "new.parquet"):
        table = pd.DataFrame(np.ones((2, len(names))), columns=names)
        table.to_csv(path, index=False) if path.suffix == ".csv" else table.to_parquet(path)
        code, out, err = run("rank", named_model, path)
        assert (code, out) == (1, "")
        assert "lacks the column(s) x4" in err or "unknown: more" in err


@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_rankings_of_shards_carry_ids(run, tmp_path, form, named_model, world):
    (tmp_path / "in").mkdir()
    table = pd.DataFrame(world.X_test[:4], columns=NAMES).assign(id=list("abcd"))
    table.to_parquet(tmp_path / "in" / "p-0.parquet")
    table[[*NAMES[::-1], "id"]].assign(id=list("efgh")).to_parquet(tmp_path / "in" / "p-1.parquet")
    words = ["--out", tmp_path / "out", "--out-form", form, "-k", 2]
    assert run("rank", named_model, tmp_path / "in", *words)[0] == 0
    read = pd.read_parquet if form == "parquet" else lambda path: pd.read_json(path, lines=True)
    first, second = (read(tmp_path / "out" / f"p-{part}.{form}") for part in (0, 1))
    assert [*first["id"], *second["id"]] == list("abcdefgh")
    assert [*map(list, first["labels"])] == [*map(list, second["labels"])]


def test_given_tags_are_found_by_id(run, tmp_path, named_model, world):
    table = pd.DataFrame(world.X_test[:3], columns=NAMES).assign(id=list("abc"))
    table.to_csv(tmp_path / "new.csv", index=False)
    tags = write_documents(tmp_path / "tags.jsonl", "cz", [["keyboard"], ["sea"]])
    words = ["rank", named_model, tmp_path / "new.csv", "-k", 3, "--tags", tags]
    code, out, err = run(*words)
    assert code == 0 and "joined by id: 1 item; 1 document without an item (z)" in err
    tagger = polyseme.load(named_model)
    labels, _ = tagger.rank(world.X_test[:3], k=3, tags=[[], [], ["keyboard"]])
    assert [row["labels"] for row in records(out)] == labels.tolist()
    code, out, err = run(*words, "--strict")
    assert (code, out) == (1, "") and "Ids do not fit: 1 document without an item" in err


def test_a_row_is_explained_by_its_id(run, tmp_path, named_model, world):
    table = pd.DataFrame(world.X_test[:3], columns=NAMES)[NAMES[::-1]].assign(id=list("abc"))
    table.to_csv(tmp_path / "new.csv", index=False)
    words = ["explain", named_model, tmp_path / "new.csv", "apple", "--row", "b", "-f", "jsonl"]
    code, out, err = run(*words)
    assert code == 0, err
    evidence = polyseme.load(named_model).explain(world.X_test[1:2], "apple")
    (record,) = records(out)
    assert (record["id"], record["row"]) == ("b", 1)
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
def test_printed_lists_are_lists(tmp_path, cell):
    pd.DataFrame({"tags": [cell, cell]}).to_csv(tmp_path / "t.csv", index=False)
    assert read_documents(tmp_path / "t.csv").label_sets == [["apple", "desk"]] * 2
    for column in (pd.Series([cell] * 2), pl.Series([cell] * 2), np.array([cell] * 2)):
        assert list(as_corpus(column)) == [("apple", "desk")] * 2


def test_escapes_quotes_and_commas_inside_printed_tags_stay(tmp_path):
    tags = ["it's", 'a "b"', "x, y", "caf\xa0e", "back\\slash", "[odd]"]
    assert tag_cells.label_sets([str(tags), str(tags[:2])]) == [
        ["it's", 'a "b"', "x, y", "caf\xa0e", "back\\slash", "[odd]"],
        tags[:2],
    ]
    assert tag_cells.label_sets([json.dumps(tags), "[]", None, ""]) == [tags, [], [], []]


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
    with pytest.raises(InputError, match=message):
        as_corpus(pd.DataFrame({"tags": pd.Series(cells, dtype=object)}))


@pytest.mark.parametrize("piece", ["[", "['", "'\\", '["a",'])
def test_cells_made_to_exhaust_the_reader_are_read_or_refused(piece):
    cell = f"[{piece * 20_000}]"
    with contextlib.suppress(InputError):
        tag_cells.label_sets([cell])


@pytest.mark.parametrize(
    ("sets", "words"),
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
def test_a_suspicious_reading_is_a_warning_with_its_remedy(tmp_path, sets, words):
    text = "".join(json.dumps({"tags": labels}) + "\n" for labels in sets)
    (tmp_path / "t.jsonl").write_text(text)
    with pytest.warns(PolysemeWarning, match=words) as caught:
        LabelCorpus.read(tmp_path / "t.jsonl")
    assert len(caught) == 1 and "--delimiter" in str(caught[0].message)


def test_usual_tags_are_not_suspicious(world):
    assert tag_cells.suspicion([*map(list, world.documents)]) is None
    assert tag_cells.suspicion([["rock [live]", "80's", "R&B"], ["(untitled)", "pop"]] * 9) is None


@pytest.mark.parametrize("kind", [pd.DataFrame, pl.DataFrame, pa.table])
@pytest.mark.parametrize("tags", [[["a", "b"], ["b"]], ["a;b", "b"]])
def test_a_frame_with_a_column_of_tags_is_documents(kind, tags):
    corpus = as_corpus(kind({"id": ["p", "q"], "tags": tags, "split": ["train", "test"]}))
    assert list(corpus) == [("a", "b"), ("b",)]
    assert (corpus.ids, corpus.splits) == (("p", "q"), ("train", "test"))
    assert list(as_corpus(kind({"keywords": tags}))) == [("a", "b"), ("b",)]


def test_texts_are_documents_where_the_delimiter_is_given():
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
    (folder / "state.json").write_text(json.dumps({"_data_files": [{"filename": "data.arrow"}]}))


def write_one(form, frame, folder):
    """Write ids, tags and vectors (or columns of numbers) as one table of some form."""
    path, vectors = folder / f"one.{form}", frame[NAMES].to_numpy(dtype=np.float32)
    lists = frame[["id", "tags"]].assign(embedding=vectors.tolist())
    table = pa.Table.from_pandas(lists)
    sized = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), 5)
    fixed = table.set_column(2, "embedding", sized)
    if form == "shards":
        path.mkdir()
        parquet.write_table(fixed.slice(0, 7), path / "a.parquet")
        parquet.write_table(fixed.slice(7), path / "b.parquet")
        return path
    {
        "parquet": lambda: parquet.write_table(table, path),
        "fixed.parquet": lambda: parquet.write_table(fixed, path),
        "feather": lambda: feather.write_feather(fixed, path),
        "jsonl": lambda: lists.to_json(path, orient="records", lines=True, double_precision=10),
        "csv": lambda: lists.to_csv(path, index=False),
        "wide.csv": lambda: frame.to_csv(path, index=False),
        "dataset": lambda: save_to_disk(fixed, path),
    }[form]()
    return path


FORMS = ["parquet", "fixed.parquet", "feather", "jsonl", "csv", "dataset", "shards"]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("given_as", ["features", "documents"])
def test_one_table_with_vectors_is_enough(tmp_path, form, given_as, frame):
    path = write_one(form, frame, tmp_path)
    places = (path, None) if given_as == "features" else (None, path)
    items = read_items(*places, None, READING)
    assert items.documents.ids == tuple(frame["id"])
    assert [set(d) for d in items.documents] == [set(tags) for tags in frame["tags"]]
    np.testing.assert_allclose(items.X.to_numpy(), frame[NAMES], rtol=1e-6)


@pytest.mark.parametrize("form", ["parquet", "dataset", "wide.csv"])
def test_every_command_takes_the_one_table(run, tmp_path, form, frame, tiny_space, monkeypatch):
    path = write_one(form, frame, tmp_path)
    monkeypatch.setattr("polyseme.fit_stages.ConceptSpace", lambda: tiny_space(n_steps=20))
    code, _, err = run("fit", tmp_path / "m", "-x", path, "--validations", 0)
    assert code == 0 and "first document: " in err, err
    code, out, err = run("validate", "-x", path, "--draws", 1, "-f", "jsonl")
    assert code == 0 and [row["labels"] for row in records(out)] == ["seen", "unseen"], err
    monkeypatch.undo()
    code, out, err = run("evaluate", tmp_path / "m", path, "-f", "jsonl")
    assert code == 0 and records(out)[0]["n_items"] == len(frame), err
    code, out, err = run("rank", tmp_path / "m", path, "-k", 1)
    assert code == 0 and [row["id"] for row in records(out)] == frame["id"].tolist(), err


def test_python_takes_the_one_table(tmp_path, frame, tiny_space):
    table = read_table(write_one("parquet", frame, tmp_path))
    tagger = polyseme.ZeroShotTagger(space=tiny_space(n_steps=20), random_state=0, n_validations=1)
    tagger.fit(table, table)
    assert tagger.store_.ids == tuple(frame["id"]) and tagger.validation_.seen.n_items > 9
    assert evaluate_tagger(tagger, table, table)["example_map"] > 0.3


TWO = {"id": ["a", "b"], "tags": [["p"], ["q"]], "u": [[1.0], [2.0]], "v": [[3.0], [4.0]]}


@pytest.mark.parametrize("form", ["parquet", "jsonl", "npz"])
def test_of_several_columns_of_vectors_one_is_named(tmp_path, form):
    path = tmp_path / f"x.{form}"
    if form == "parquet":
        parquet.write_table(pa.table(TWO), path)
    elif form == "jsonl":
        pd.DataFrame(TWO).to_json(path, orient="records", lines=True)
    else:
        np.savez(path, u=TWO["u"], v=TWO["v"])
    assert read_features(path, features_column="v").tolist() == [[3], [4]]
    for options in ({}, {"features_column": "w"}):
        with pytest.raises(
            InputError, match=r"x\..*\bu, v\b.*--features-column|--features-.*\bu, v"
        ):
            read_features(path, **options)


def test_a_frame_with_several_columns_of_vectors_is_refused():
    with pytest.raises(InputError, match=r"several columns of vectors \(u, v\); pass one of them"):
        Popularity().fit(pd.DataFrame(TWO), pd.DataFrame(TWO)[["id", "tags"]])


def test_commands_name_the_column_of_vectors(run, tmp_path, named_model, world):
    table = pa.table(
        {"words": [["sea"]] * 3, "u": [[1.0]] * 3, "v": world.X_test[:3].tolist(), "id": [*"abc"]}
    )
    parquet.write_table(table, tmp_path / "x.parquet")
    options = ["--tags-column", "words", "--features-column", "v"]
    words = ["rank", named_model, tmp_path / "x.parquet", "-k", 3]
    code, out, err = run(*words, *options)
    assert code == 0, err
    labels = [row["labels"] for row in records(out)]
    assert labels == polyseme.load(named_model).rank(world.X_test[:3], k=3)[0].tolist()
    code, _, err = run(*words, *options, "--out", tmp_path / "out")
    assert code == 0, err
    written = records((tmp_path / "out" / "x.jsonl").read_text())
    assert [row["labels"] for row in written] == labels
    explained = ["explain", named_model, words[2], "sea", "--row", "b", *options, "-f", "jsonl"]
    assert run(*explained)[0] == 0
    assert run("evaluate", named_model, words[2], *options)[0] == 0
    code, out, err = run(*words)
    assert (code, out) == (1, "") and "several columns of vectors (u, v); name one by" in err


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_the_index_that_pandas_wrote_is_no_feature(tmp_path, form):
    frame = pd.DataFrame({"tags": ["p;q", "q"], "u": [1.0, 2.0]}, index=[7, 3])
    path = tmp_path / f"x.{form}"
    if form == "parquet":
        frame.to_parquet(path)
        assert read_table(path).columns == ("u",)
        return
    for _ in range(2):  # and once more with the name that it has when it is read again
        frame.to_csv(path)
        with pytest.raises(InputError, match=r"Column \d of x\.csv has no name; name it \(`id`"):
            read_table(path)
        frame = pd.read_csv(path).set_index("tags")


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_columns_of_numbers_are_features_where_they_are_asked_for(tmp_path, form, frame, capsys):
    path = tmp_path / f"one.{form}"
    frame.to_csv(path, index=False) if form == "csv" else frame.to_parquet(path, index=False)
    items = read_items(path, None, None, READING)
    assert items.X.columns == tuple(NAMES) and items.documents.ids == tuple(frame["id"])
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
TOLD = r"^Ids stand more than once in {} \(a\): 3 rows become 2; tags .* united, .*--strict"


@pytest.mark.parametrize("places", ["one table", "features", "documents", "both"])
def test_rows_of_one_id_become_one_and_that_is_told(tmp_path, places):
    tables = {"t.csv": REPEATED, "x.csv": REPEATED.drop(columns=["tags", "split"])}
    if places == "features":
        tables["t.csv"] = pd.DataFrame({"id": [*"ab"], "tags": ["p;q;r", "q"]})
    elif places == "documents":
        tables["x.csv"] = tables["x.csv"][:2]
    for name, table in tables.items():
        table.to_csv(tmp_path / name, index=False)
    given = [tmp_path / "x.csv", tmp_path / "t.csv"]
    given = [given[1], None] if places == "one table" else given
    with pytest.warns(PolysemeWarning, match=TOLD.format(r"[xt]\.csv")) as caught:
        items = read_items(*given, None, READING)
    assert len(caught) == 1 + (places == "both")
    assert items.documents.ids == ("a", "b") and items.X.to_numpy().tolist() == [[1], [2]]
    assert [*map(set, items.documents)] == [{"p", "q", "r"}, {"q"}]
    with pytest.raises(
        InputError, match=r"^Ids stand more .*\(a\); give each row an id of its own\.$"
    ):
        read_items(*given, None, STRICT)


def test_rows_of_one_id_become_one_in_python(tmp_path):
    with pytest.warns(PolysemeWarning, match=TOLD.format("the column 'tags'")):
        corpus = as_corpus(REPEATED.drop(columns="u"))
    assert corpus.ids == ("a", "b") and corpus.splits == ("train", "test")
    indicator = {"indicator": [[1, 0], [0, 1], [1, 1]], "labels": ["p", "q"]}
    np.savez(tmp_path / "x.npz", features=np.diag([1, 2, 3]), ids=[*"aba"], **indicator)
    with pytest.warns(PolysemeWarning, match=TOLD.format(r"x\.npz")):
        table = read_table(tmp_path / "x.npz")
    assert list(as_corpus(table)) == [("p", "q"), ("q",)]
    assert table.to_numpy().tolist() == [[1, 0, 0], [0, 2, 0]]
    with pytest.raises(InputError, match="Ids stand more than once"):
        read_table(tmp_path / "x.npz", strict=True)


def test_arrays_with_ids_are_tables(tmp_path):
    np.savez(tmp_path / "x.npz", features=np.eye(2), ids=np.array(["a", "b"]), other=np.eye(3))
    assert read_table(tmp_path / "x.npz").ids == ["a", "b"]
    save_file(
        {"embeddings": np.eye(2, dtype=np.float16), "ids": np.arange(2)}, tmp_path / "x.safetensors"
    )
    table = read_table(tmp_path / "x.safetensors")
    assert table.ids == ["0", "1"] and table.features.dtype == np.float32
    indicator = {"indicator": np.eye(2), "labels": np.array(["p", "q"])}
    np.savez(tmp_path / "y.npz", features=np.eye(2), ids=np.array(["a", "b"]), **indicator)
    corpus = LabelCorpus.read(tmp_path / "y.npz")
    assert corpus.ids == ("a", "b") and read_features(tmp_path / "y.npz").shape == (2, 2)


def bad_tables():
    """Yield tables that cannot be features or documents, and the sentence for each."""
    yield {"embedding": [[1.0], [2.0, 3.0]]}, "Row 1 of x.parquet has a vector of 2 numbers where"
    yield {"u": ["a", "b"], "v": [1, 2]}, "Column 'u' of x.parquet must hold numbers; got text"
    yield (
        {"id": [0.5, 1.5], "v": [1, 2]},
        "Row 0 of x.parquet must have text or a whole number as 'id'; got 0.5",
    )
    yield {"id": ["a", None], "v": [1, 2]}, "Row 1 of x.parquet lacks 'id', which others have"


@pytest.mark.parametrize(("table", "message"), bad_tables())
def test_tables_that_cannot_be_features_are_refused(tmp_path, table, message):
    parquet.write_table(pa.table(table), tmp_path / "x.parquet")
    with pytest.raises(InputError, match=message):
        read_features(tmp_path / "x.parquet")


def test_folders_that_are_no_table_are_refused(tmp_path):
    (tmp_path / "train").mkdir()
    (tmp_path / "train" / "state.json").write_text("{}")
    (tmp_path / "dataset_dict.json").write_text('{"splits": ["train"]}')
    with pytest.raises(InputError, match="does not name the parts of a Hugging Face dataset"):
        read_table(tmp_path)
    state = {"_data_files": [{"filename": "../../etc/data.arrow"}]}
    (tmp_path / "train" / "state.json").write_text(json.dumps(state))
    with pytest.raises(InputError, match=r"lacks data\.arrow; copy it whole"):
        read_table(tmp_path / "train")


@pytest.mark.parametrize(
    ("name", "kind"), [("x.arrow", "Arrow"), ("x.parquet", "Parquet"), ("x.safetensors", "a saf")]
)
def test_a_damaged_file_is_one_sentence(tmp_path, name, kind):
    (tmp_path / name).write_bytes(b"ARROW1 but no more")
    with pytest.raises(InputError, match=rf"{name} is not readable as {kind}"):
        read_table(tmp_path / name)


# --- limits ---------------------------------------------------------------------------------


def test_tables_of_absurd_size_are_refused_unread(tmp_path, monkeypatch):
    np.savez_compressed(tmp_path / "x.npz", np.zeros((100, 100)))
    with (
        unpacking(1e-5),
        pytest.raises(InputError, match=r"x\.npz unpacks to .* allowed; `polyseme --max-unpacked`"),
    ):
        read_features(tmp_path / "x.npz")
    frame = pd.DataFrame(np.zeros((100, 3)), columns=list("abc"))
    frame.to_parquet(tmp_path / "x.parquet")
    frame.to_csv(tmp_path / "x.csv", index=False)
    monkeypatch.setattr(columns, "MAX_NUMBERS", 200)
    for name in ("x.parquet", "x.csv"):
        with pytest.raises(InputError, match=rf"{name} holds .* more than 200 in all"):
            read_features(tmp_path / name)
    monkeypatch.setattr(columns, "MAX_COLUMNS", 2)
    with pytest.raises(InputError, match=r"x\.csv has 3 columns; 2 are the most"):
        read_features(tmp_path / "x.csv")


# --- manners --------------------------------------------------------------------------------


def test_a_corpus_is_split_like_any_other_y(world):
    corpus = LabelCorpus.from_indicator([[1, 0], [0, 1], [1, 1], [1, 0]], ["a", "b"])
    X, _, train, test = train_test_split(np.arange(4), corpus, test_size=1, random_state=0)
    assert [int(name) for name in train.ids] == X.tolist() and len(test) == 1
    assert corpus[2] == ("a", "b") and corpus[1:3].ids == ("1", "2")


def test_reprs_are_short(world, toy_tagger):
    corpus = LabelCorpus.from_documents(world.documents)
    extracted = Extracted("image", {}, ("a",) * 900, [np.zeros(3)] * 900)
    things = [corpus, extracted, load_dataset("hsun", sample=True)]
    things.append(Table(features=np.zeros((900, 3)), ids=["a"] * 900))
    told = [str(len(corpus)), "900", "hsun", "900"]
    things += [
        toy_tagger.explain(world.X_test[0], "apple"),
        label_senses(toy_tagger.store_, "apple"),
    ]
    told += ["apple (seen)", "apple:"]
    space, store = toy_tagger.space_, toy_tagger.store_
    things += [store, store.concepts(), space.calibration_, space.held_out_sample_, space.members_]
    told += [str(len(store.ids)), "Concepts(", "99 thresholds", " items", " dimensions"]
    things.append(Vocabulary(blocked=tuple("abc" * 99), aliases={str(n): "a" for n in range(99)}))
    told.append("99 other names")
    for thing, words in zip(things, told, strict=True):
        assert len(repr(thing)) < 200 and words in repr(thing)


def test_info_has_one_form_for_programs_and_takes_the_options_of_tables(run, tmp_path):
    (tmp_path / "m.csv").write_text("name,words\na,x y\nb,y z\n")
    code, _, err = run("info", tmp_path / "m.csv")
    assert code == 1 and "--tags-column" in err
    words = ["info", tmp_path / "m.csv", "--tags-column", "words", "--delimiter", " "]
    (code, piped, _), (_, asked, _) = run(*words), run(*words, "-f", "jsonl")
    assert code == 0 and piped == asked and records(piped)[0]["labels"] == 3
