"""JSON lines, CSV and Parquet: what is read, what is written, and the sentence for each mistake."""

from __future__ import annotations

import builtins
import gzip
import io
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from polyseme import io as readers
from polyseme.base.validation import InputError
from polyseme.io import Table, read_documents, read_features, read_table, unpacking
from polyseme.io.records import write_records
from polyseme.storage.atomic_files import replacing

WORDS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
TAGS = WORDS.map(lambda word: word.replace(";", "").strip()).filter(bool)


def put(path: Path, text: str | bytes) -> Path:
    """Write a file, gzipped if its name says so."""
    content = text.encode("utf-8") if isinstance(text, str) else text
    if path.suffix == ".gz":
        content = gzip.compress(content)
    path.write_bytes(content)
    return path


# --- any file -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("read", "name", "options", "message"),
    [
        (read_documents, "absent.csv", {}, r"no file or folder at .*absent\.csv"),
        (read_features, "", {}, "There is no shard in"),
        (read_documents, "tags.docx", {}, r"suffix '\.docx'; known: .*\.arff.*\.jsonl\.gz.*\.npz"),
        (read_features, "tags.docx", {}, r"Unknown file suffix '\.docx'; known: .*\.parquet"),
        (
            read_documents,
            "d.npz",
            {"delimiter": ";"},
            r"the labels of d\.npz are columns of their own",
        ),
        (read_documents, "d.jsonl", {}, "holds no documents"),
    ],
)
def test_what_cannot_be_read_at_all_is_refused(tmp_path, read, name, options, message):
    put(tmp_path / "tags.docx", "")
    put(tmp_path / "d.npz", "")
    put(tmp_path / "d.jsonl", "\n")
    with pytest.raises(InputError, match=message):
        read(tmp_path / name, **options)


def test_line_length_limit_counts_the_text_without_its_end(tmp_path, monkeypatch):
    monkeypatch.setattr(readers, "MAX_LINE_BYTES", 8)
    path = put(tmp_path / "d.jsonl", '["abcd"]\r\n["efgh"]\n')
    documents = read_documents(path)
    assert documents.label_sets == [["abcd"], ["efgh"]]
    with pytest.raises(InputError, match=r"Line 2 of d\.jsonl is longer than"):
        read_documents(put(path, '["abcd"]\n["abcde"]\n'))


@pytest.mark.parametrize("damage", ["truncated", "corrupt", "plain"])
def test_damaged_gzip_is_one_sentence(tmp_path, damage):
    whole = gzip.compress(b'["a", "b"]\n' * 500)
    contents = {"truncated": whole[:-12], "plain": b'["a"]\n'}
    contents["corrupt"] = whole[:14] + b"\xff\xff\xff" + whole[17:]
    path = tmp_path / "d.jsonl.gz"
    path.write_bytes(contents[damage])
    with pytest.raises(InputError, match=r"^d\.jsonl\.gz is not a complete gzip file .*again\.$"):
        read_documents(path)


def test_a_replaced_file_is_whole_or_as_before(tmp_path):
    path = put(tmp_path / "a", "old")
    path.chmod(0o640)
    with replacing(path) as stream:
        stream.write(b"new")
        assert path.read_bytes() == b"old"
    assert path.read_bytes() == b"new"
    assert path.stat().st_mode & 0o777 == 0o640
    with pytest.raises(KeyError), replacing(path) as stream:
        stream.write(b"half")
        raise KeyError
    assert path.read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [path]


# --- JSON lines -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["d.jsonl", "D.JSONL", "d.jsonl.gz"])
def test_jsonl_gives_labels_and_fields(tmp_path, name):
    text = (
        '\ufeff{"id": "a", "labels": ["x", "y", "x"], "group": 7, "split": "train"}\r\n\n'
        '{"id": 2, "tags": [], "group": "g", "split": "test", "title": "t"}'
    )
    documents = read_documents(put(tmp_path / name, text))
    assert documents == Table(
        label_sets=[["x", "y", "x"], []],
        ids=["a", "2"],
        groups=["7", "g"],
        splits=["train", "test"],
    )
    assert len(documents) == 2


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b'{"labels": ["a"', r"is not valid JSON \(Expecting ',' delimiter\)"),
        (b"[" * 100_000, r"is not valid JSON"),
        (b'["\\ud800"]', r"is not valid JSON \(.*surrogates not allowed"),
        (b'["\xff"]', r"is not valid UTF-8 at byte 3"),
        (b'{"labels": null}', r"has no 'labels'"),
        (b'{"labels": "a;b"}', r"must have 'labels' as a list of strings; got 'a;b'"),
        (b'{"tags": ["a", 5]}', r"must have 'labels' as a list of strings; got \['a', 5\]"),
        (b"7", r"must be a JSON object or list of strings; got 7"),
    ],
)
def test_jsonl_names_the_wrong_line(tmp_path, line, message):
    content = b'["a"]\n' + line + b"\n"
    path = put(tmp_path / "d.jsonl", content)
    with pytest.raises(InputError, match=rf"^Line 2 of d\.jsonl {message}"):
        read_documents(path)


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        ('"a"', "1.5", r"Line 3 of d\.jsonl must have text or a whole number as 'id'; got 1\.5"),
        ("true", "1", r"Line 1 of d\.jsonl must have text or a whole number as 'id'; got True"),
        ("null", '"a"', r"Line 1 of d\.jsonl lacks 'id', which others have"),
    ],
)
def test_a_field_is_text_in_all_rows_or_none(tmp_path, first, second, message):
    lines = [f'{{"labels": [], "id": {value}}}\n' for value in (first, second)]
    path = put(tmp_path / "d.jsonl", "\n".join(lines))
    with pytest.raises(InputError, match=message):
        read_documents(path)


# --- tables of documents --------------------------------------------------------------------


@pytest.mark.parametrize("name", ["d.csv", "d.csv.gz", "d.tsv", "d.tsv.gz"])
def test_table_gives_labels_and_fields(tmp_path, name):
    text = '\ufeffid, tags ,group,split\r\n1,"a; b;;a",g,train\r\n\r\n2,,h, test\r\n'
    text = text.replace(",", "\t") if ".tsv" in name else text
    assert read_documents(put(tmp_path / name, text)) == Table(
        label_sets=[["a", "b", "a"], []],
        ids=["1", "2"],
        groups=["g", "h"],
        splits=["train", "test"],
    )


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        (["a;b|c,d", "e"], [["a", "b|c,d"], ["e"]]),
        (["a|b,c", "d"], [["a", "b,c"], ["d"]]),
        (["a", "b, c"], [["a"], ["b", "c"]]),
        (["a b", "c/d"], [["a b"], ["c/d"]]),
    ],
)
def test_delimiter_is_the_first_of_semicolon_bar_comma_in_the_column(tmp_path, cells, expected):
    path = put(tmp_path / "d.csv", "labels\n" + "".join(f'"{cell}"\n' for cell in cells))
    assert read_documents(path).label_sets == expected


def test_named_column_and_delimiter_are_used_and_empty_fields_count_as_absent(tmp_path):
    path = put(tmp_path / "d.csv", "tags,file,id,split\nx;y,f,rock :: pop;rock,\n")
    documents = read_documents(path, tags_column="id", delimiter="::")
    expected = Table(label_sets=[["rock", "pop;rock"]], ids=["f"])
    assert documents == expected


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("", {}, r"d\.csv is empty; its first row must hold the column names"),
        (
            "x,y\n1,2\n",
            {},
            r"neither a column 'tags' nor 'labels'; name it by `tags_column`.*: x, y",
        ),
        ("tags,labels\n1,2\n", {}, r"both a column 'tags' and 'labels'; name it by `tags_column`"),
        ("x\n1\n", {"tags_column": "y"}, r"has no column 'y'; .*: x\."),
        ("tags,tags\n1,2\n", {}, r"two columns 'tags'; rename one"),
        ("tags\na\n", {"delimiter": ""}, r"`delimiter` must not be empty"),
        ("id,tags\n1,a\n\n2\n", {}, r"Line 4 of d\.csv has 1 cells but the header has 2"),
        ("id,tags\n1,a\n ,b\n", {}, r"Line 3 of d\.csv lacks 'id', which others have"),
        ('tags\n"a', {}, r"Line 2 of d\.csv is not readable as a table row \(unexpected end"),
        (f"tags\n{'a' * 200_000}\n", {}, r"Line 2 of d\.csv .*larger than field limit"),
        (b"tags\n\xe9\n", {}, r"Line 2 of d\.csv is not valid UTF-8 at byte 1"),
    ],
)
def test_table_errors_name_their_cause(tmp_path, text, options, message):
    with pytest.raises(InputError, match=message):
        read_documents(put(tmp_path / "d.csv", text), **options)


# --- tables of features ---------------------------------------------------------------------


@pytest.mark.parametrize("name", ["x.csv", "x.tsv.gz"])
def test_numeric_table_leaves_out_the_id_and_reads_empty_as_nan(tmp_path, name):
    text = "b,id,a\n1.5,p,-2e3\n ,q,4\n"
    if ".tsv" in name:
        text = text.replace(",", "\t")
    path = put(tmp_path / name, text)
    features = read_features(path)
    assert_array_equal(features, [[1.5, -2000.0], [np.nan, 4.0]])


def test_columns_named_by_their_position_have_names(tmp_path):
    path = put(tmp_path / "y.csv", "0,1\n2,3\n")
    features = read_features(path)
    assert_array_equal(features, [[2, 3]])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,b\n1,2\n3,x\n", r"Line 3 of x\.csv must hold a number in column 'b'; got 'x'"),
        ("0.5,1.5\n2,3\n", r"first row of x\.csv must hold column names; got numbers"),
        (",a\n0,1\n", r"Column 1 of x\.csv has no name; name it \(`id` if it numbers the rows\)"),
        ("a,b\n", r"holds features of shape \(0, 2\); give at least one row and one column"),
        ("id\n1\n", r"holds features of shape \(1, 0\)"),
    ],
)
def test_feature_table_errors(tmp_path, text, message):
    with pytest.raises(InputError, match=message):
        read_features(put(tmp_path / "x.csv", text))


def test_parquet_gives_its_numeric_columns(tmp_path):
    polars = pytest.importorskip("polars")
    columns = {"id": ["p", "q"], "a": [1, None], "b": [0.5, 1.5], "c": [True, False]}
    path = tmp_path / "x[1].parquet"
    polars.DataFrame(columns).write_parquet(path)
    features = read_features(path)
    assert_array_equal(features, [[1, 0.5, 1], [np.nan, 1.5, 0]])


@pytest.mark.parametrize(
    ("name", "library", "extra"), [("x.parquet", "pyarrow", "parquet"), ("x.arff", "lxml", "arff")]
)
def test_a_missing_library_is_named_by_its_extra(tmp_path, monkeypatch, name, library, extra):
    real = builtins.__import__

    def refuse(module, *rest):
        if module == library:
            raise ImportError(module)
        return real(module, *rest)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(InputError, match=rf"pip install '.\[{extra}\]' in a checkout"):
        put(tmp_path / "x.xml", "<labels/>")
        read_features(put(tmp_path / name, ""))


# --- writing --------------------------------------------------------------------------------


@pytest.mark.parametrize(("file_format", "key"), [("jsonl", "labels"), ("csv", "tags")])
@settings(deadline=None, max_examples=60)
@given(label_sets=st.dictionaries(TAGS, st.lists(TAGS), min_size=1, max_size=6))
def test_written_records_are_read_back(tmp_path_factory, file_format, key, label_sets):
    path = tmp_path_factory.mktemp("round") / f"d.{file_format}"
    records = [{"id": name, key: tags} for name, tags in label_sets.items()]
    with path.open("w", encoding="utf-8", newline="") as target:
        write_records(iter(records), target, file_format)
    delimiter = ";" if file_format == "csv" else None
    documents = read_documents(path, delimiter=delimiter)
    assert documents.ids == list(label_sets)
    expected = list(label_sets.values())
    assert documents.label_sets == expected


def written(records, file_format):
    target = io.StringIO()
    write_records(records, target, file_format)
    return target.getvalue()


@pytest.fixture
def record():
    return {
        "id": "é",
        "scores": np.array([0.5, np.nan], dtype=np.float32),
        "n": np.int64(3),
        "pair": (1, None),
        "flag": True,
    }


def test_jsonl_keeps_numbers_and_writes_nan_as_null(record):
    line = written([record], "jsonl")
    assert "é" in line
    assert json.loads(line) == {
        "id": "é",
        "scores": [0.5, None],
        "n": 3,
        "pair": [1, None],
        "flag": True,
    }


def test_csv_keeps_numbers_and_writes_nan_as_nothing(record):
    assert written([record], "csv") == "id,scores,n,pair,flag\né,0.5;,3,1;,True\n"
    records = [{"a": 0.1, "b": "x,y"}, {"a": float("nan")}]
    assert written(records, "csv") == 'a,b\n0.1,"x,y"\n,\n'


@pytest.mark.parametrize("file_format", ["jsonl", "csv"])
def test_no_records_are_written_as_nothing(file_format):
    assert written([], file_format) == ""


@pytest.mark.parametrize(
    ("records", "file_format", "message"),
    [
        ([{"a": 1}], "xml", r"`file_format` of `write_records` must be one of 'jsonl', 'csv'"),
        ([{"a": 1}, {"b": 2}], "csv", r"Record 2 has 'b', which the first record lacks"),
        ([{"a": ["x;y"]}], "csv", r"'a' of record 1 holds 'x;y', and ';' separates"),
        ([{"a": [["x"]]}], "csv", r"'a' of record 1 is nested too deep for CSV"),
        ([{"a": 1.0}, {"a": np.inf}], "jsonl", r"Record 2 must hold finite numbers or NaN; got"),
        ([{"a": {"x"}}], "jsonl", r"Record 1 must hold numbers, strings, lists or None; got set"),
    ],
)
def test_records_that_cannot_be_written_are_named(records, file_format, message):
    with pytest.raises(InputError, match=message):
        written(records, file_format)


# ---- what files unpack to


@pytest.mark.parametrize(
    ("n_members", "limit"), [(1, 0.005), (3, 0.01)], ids=["stated", "not stated"]
)
def test_a_gzip_file_is_read_no_further_than_it_may_unpack_to(
    tmp_path, most_bytes, n_members, limit
):
    path = tmp_path / "x.jsonl.gz"
    line = b'{"labels": ["a", "b"]}' + b" " * 1000 + b"\n"
    member = gzip.compress(line * 6000)
    path.write_bytes(member * n_members)

    def assert_refused() -> None:
        with pytest.raises(InputError, match=r"x.jsonl.gz unpacks to 0.0\d+ GB or more, and 0"):
            read_documents(path)

    with unpacking(limit):
        _, peak = most_bytes(assert_refused)
    assert peak < 10_000_000
    documents = read_documents(path)
    assert len(documents) == 6000 * n_members


@pytest.mark.parametrize("stated_size", [b"\xff\xff\xff\xff", b"\0\0\0\0"])
def test_a_cut_gzip_file_is_refused_whatever_size_it_states(tmp_path, stated_size):
    data = gzip.compress(b'["a"]\n' * 1000)
    path = tmp_path / "x.jsonl.gz"
    without_end = data[:-8]
    path.write_bytes(without_end + stated_size)
    with pytest.raises(InputError, match="is not a complete gzip file"):
        read_documents(path)


@pytest.mark.parametrize("name", ["x.jsonl.gz", "x.csv", "x.tsv.gz"])
def test_endless_blank_lines_end(tmp_path, name):
    first_line = b'["a"]' if "json" in name else b"id\ttags"
    path = put(tmp_path / name, first_line + b"\n" * 1_200_000)
    with pytest.raises(InputError, match=r"is the last of 1,000,001 blank lines; remove them"):
        read_documents(path)


def test_many_blank_lines_are_passed_over(tmp_path):
    path = put(tmp_path / "y.jsonl", b'["a"]\n' + b"\n" * 100_000 + b'["b"]\n')
    documents = read_documents(path)
    assert len(documents) == 2


@pytest.mark.parametrize("row", ['{"x": 1HUGE}', '{"embedding": [0.5, 1HUGE]}'])
def test_whole_numbers_that_no_float_can_hold_are_refused(tmp_path, row):
    text = row.replace("HUGE", "0" * 400)
    path = put(tmp_path / "x.jsonl", f"{text}\n")
    with pytest.raises(InputError, match=r"^Line 1 of x.jsonl holds a number that is too large"):
        read_features(path)


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ("y" * 5000 + ",tags", "has a column whose name has 5,000 letters; 200 are the most"),
        (",".join(["y" * 5000] * 2), r"has two columns 'y{99}…'; rename one"),
    ],
)
def test_names_of_columns_without_end_are_refused_in_a_short_sentence(tmp_path, header, message):
    path = tmp_path / "x.csv"
    path.write_text(f"{header}\n1,2\n")
    with pytest.raises(InputError, match=message):
        read_table(path)
