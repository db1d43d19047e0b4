"""Every file form: what is read, what is written, and the sentence for each thing that is wrong."""

from __future__ import annotations

import builtins
import gzip
import io
import json
import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from polyseme import io as readers
from polyseme._validation import InputError
from polyseme.io import read_documents, read_features, write_indicator, write_records

WORDS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
TAGS = WORDS.map(lambda word: word.replace(";", "").strip()).filter(bool)


def put(path: Path, text: str | bytes) -> Path:
    """Write a file, gzipped if its name says so."""
    content = text if isinstance(text, bytes) else text.encode("utf-8")
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


# --- the registry ---------------------------------------------------------------------------


@pytest.mark.parametrize("read", [read_documents, read_features])
def test_missing_file_is_named_with_its_path(tmp_path, read):
    with pytest.raises(InputError, match=r"file not found at .*absent\.csv"):
        read(tmp_path / "absent.csv")


@pytest.mark.parametrize("read", [read_documents, read_features])
def test_a_folder_is_refused(tmp_path, read):
    with pytest.raises(InputError, match="is a folder"):
        read(tmp_path)


def test_unknown_suffix_lists_the_known_ones(tmp_path):
    path = put(tmp_path / "tags.docx", "")
    with pytest.raises(InputError, match=r"suffix '\.docx'; known: .*\.arff.*\.jsonl\.gz.*\.npz"):
        read_documents(path)
    with pytest.raises(InputError, match=r"features file suffix '\.docx'; known: .*\.parquet"):
        read_features(path)


def test_suffix_is_read_in_any_case(tmp_path):
    assert read_documents(put(tmp_path / "TAGS.JSONL", '["a"]')).label_sets == [["a"]]


def test_every_registered_module_offers_what_it_is_registered_for():
    for forms, function in (
        (readers.DOCUMENT_FORMS, "read_documents"),
        (readers.FEATURE_FORMS, "read_features"),
    ):
        assert all(hasattr(readers._module(form), function) for form in forms.values())


@pytest.mark.parametrize("option", [{"tags_column": "x"}, {"delimiter": ";"}])
def test_table_options_are_refused_for_other_forms(tmp_path, option):
    path = put(tmp_path / "d.jsonl", '["a"]')
    with pytest.raises(InputError, match=r"apply to \.csv and \.tsv files only; got d\.jsonl"):
        read_documents(path, **option)


def test_importing_files_imports_no_heavy_library():
    # A bare package stands in for polyseme, whose own __init__ may import more.
    code = (
        "import sys, types; p = types.ModuleType('polyseme'); p.__path__ = [sys.argv[1]];"
        "sys.modules['polyseme'] = p; import polyseme.io as f;"
        "heavy = {'pandas', 'polars', 'torch', 'sklearn', 'scipy.io', 'xml.parsers.expat'};"
        "print(sorted(heavy & set(sys.modules)))"
    )
    package = str(Path(readers.__file__).parents[1])
    run = subprocess.run([sys.executable, "-c", code, package], capture_output=True, text=True)
    assert run.stdout.strip() == "[]", run.stderr


# --- JSON lines -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["d.jsonl", "d.jsonl.gz"])
def test_jsonl_gives_labels_and_fields(tmp_path, name):
    text = (
        '\ufeff{"id": "a", "labels": ["x", "y", "x"], "group": 7, "split": "train"}\r\n\n'
        '{"id": 2, "tags": [], "group": "g", "split": "test", "title": "t"}'
    )
    read = read_documents(put(tmp_path / name, text))
    assert read == readers.RawDocuments(
        ids=["a", "2"],
        label_sets=[["x", "y", "x"], []],
        indicator=None,
        labels=None,
        groups=["7", "g"],
        splits=["train", "test"],
    )
    assert len(read) == 2


def test_jsonl_takes_plain_lists_and_names_no_ids(tmp_path):
    read = read_documents(put(tmp_path / "d.jsonl", '["a", "b"]\n  \n[]\n'))
    assert (read.ids, read.label_sets, read.groups, read.splits) == (
        None,
        [["a", "b"], []],
        None,
        None,
    )


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b'{"labels": ["a"', r"Line 2 of d\.jsonl is not valid JSON \(Expecting ',' delimiter\)"),
        (b"[" * 100_000, r"Line 2 of d\.jsonl is not valid JSON"),
        (b'{"id": "a"}', r"Line 2 of d\.jsonl has no 'labels'"),
        (b'{"labels": null}', r"Line 2 of d\.jsonl has no 'labels'"),
        (b'{"labels": "a;b"}', r"Line 2 of d\.jsonl must have 'labels' as a list.*got 'a;b'"),
        (b'{"tags": {"a": 1}}', r"Line 2 of d\.jsonl must have 'tags' as a list.*got \{'a': 1\}"),
        (b'{"labels": ["a", 5]}', r"Line 2 of d\.jsonl must have only strings in 'labels'; got 5"),
        (b"[null]", r"Line 2 of d\.jsonl must have only strings.*got None"),
        (b"7", r"Line 2 of d\.jsonl must be a JSON object or list of strings; got 7"),
        (b'{"labels": [], "id": 1.5}', r"Line 2 of d\.jsonl must have a string as 'id'; got 1\.5"),
        (b'{"labels": [], "split": true}', r"a string as 'split'; got True"),
        (b'{"labels": [], "id": "a"}', r"Line 2 of d\.jsonl has 'id' while the documents before"),
        (b'["\xff"]', r"Line 2 of d\.jsonl is not valid UTF-8 at byte 3"),
        (b'["\\ud800"]', r"Line 2 of d\.jsonl holds half of a surrogate pair"),
    ],
)
def test_jsonl_names_the_wrong_line(tmp_path, line, message):
    path = put(tmp_path / "d.jsonl", b'["a"]\n' + line + b"\n")
    with pytest.raises(InputError, match=message):
        read_documents(path)


def test_jsonl_refuses_a_field_that_only_some_documents_have(tmp_path):
    path = put(tmp_path / "d.jsonl", '{"labels": [], "group": "g"}\n{"labels": []}')
    with pytest.raises(InputError, match=r"Line 2 .*lacks 'group' while the documents before have"):
        read_documents(path)


def test_line_length_limit_counts_the_text_without_its_end(tmp_path, monkeypatch):
    monkeypatch.setattr(readers, "MAX_LINE_BYTES", 8)
    path = put(tmp_path / "d.jsonl", '["abcd"]\r\n["efgh"]\n')
    assert read_documents(path).label_sets == [["abcd"], ["efgh"]]
    with pytest.raises(InputError, match=r"Line 2 of d\.jsonl is longer than"):
        read_documents(put(path, '["abcd"]\n["abcde"]\n'))


def test_line_length_limit_is_16_mib(tmp_path):
    path = put(tmp_path / "d.jsonl", b'["' + b"a" * 2**24 + b'"]')
    with pytest.raises(InputError, match="is longer than 16 MiB"):
        read_documents(path)


@pytest.mark.parametrize("form", ["truncated", "corrupt", "plain"])
def test_damaged_gzip_is_one_sentence(tmp_path, form):
    whole = gzip.compress(b'["a", "b"]\n' * 500)
    damaged = {
        "truncated": whole[:-12],
        "corrupt": whole[:14] + b"\xff\xff\xff" + whole[17:],
        "plain": b'["a"]\n',
    }[form]
    path = tmp_path / "d.jsonl.gz"
    path.write_bytes(damaged)
    with pytest.raises(InputError, match=r"^d\.jsonl\.gz is not a complete gzip file .*again\.$"):
        read_documents(path)


@pytest.mark.parametrize("name", ["d.jsonl", "d.csv"])
def test_file_without_documents_is_refused(tmp_path, name):
    with pytest.raises(InputError, match="holds no documents"):
        read_documents(put(tmp_path / name, "tags\n" if name == "d.csv" else "\n"))


# --- tables of documents --------------------------------------------------------------------


@pytest.mark.parametrize("name", ["d.csv", "d.csv.gz", "d.tsv", "d.tsv.gz"])
def test_table_gives_labels_and_fields(tmp_path, name):
    text = '\ufeffid, tags ,group,split\r\n1,"a; b;;a",g,train\r\n\r\n2,,h, test\r\n'
    text = text.replace(",", "\t") if ".tsv" in name else text
    read = read_documents(put(tmp_path / name, text))
    assert (read.ids, read.label_sets) == (["1", "2"], [["a", "b", "a"], []])
    assert (read.groups, read.splits) == (["g", "h"], ["train", "test"])
    assert (read.indicator, read.labels) == (None, None)


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


def test_given_column_and_delimiter_are_used(tmp_path):
    path = put(tmp_path / "d.csv", "tags,genre\nx;y,rock :: pop;rock\n")
    read = read_documents(path, tags_column="genre", delimiter="::")
    assert read.label_sets == [["rock", "pop;rock"]]


def test_wholly_empty_field_column_counts_as_absent(tmp_path):
    read = read_documents(put(tmp_path / "d.csv", "id,tags,split\n1,a,\n2,b, \n"))
    assert (read.ids, read.splits) == (["1", "2"], None)


def test_tags_in_the_id_column_are_no_ids(tmp_path):
    read = read_documents(put(tmp_path / "d.csv", "id,x\na;b,1\n"), tags_column="id")
    assert (read.ids, read.label_sets) == (None, [["a", "b"]])


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("", {}, r"d\.csv is empty; its first row must hold the column names"),
        ("x,y\n1,2\n", {}, r"neither a column 'tags' nor 'labels'; pass `tags_column`.*: x, y"),
        ("tags,labels\n1,2\n", {}, r"both a column 'tags' and 'labels'; pass `tags_column`"),
        ("x\n1\n", {"tags_column": "y"}, r"has no column 'y'; its columns: x"),
        ("tags,tags\n1,2\n", {}, r"two columns 'tags'; rename one"),
        ("tags\na\n", {"delimiter": ""}, r"`delimiter` of `read_documents` must not be empty"),
        ("id,tags\n1,a\n\n2\n", {}, r"Line 4 of d\.csv has 1 cells but the header has 2"),
        ("id,tags\n1,a\n ,b\n", {}, r"Line 3 of d\.csv has an empty 'id'"),
        ('tags\n"a', {}, r"Line 2 of d\.csv is not readable as a table row \(unexpected end"),
        ('tags\n"a"b\n', {}, r"Line 2 of d\.csv is not readable as a table row"),
        (f"tags\n{'a' * 200_000}\n", {}, r"Line 2 of d\.csv .*larger than field limit"),
        (b"tags\n\xe9\n", {}, r"Line 2 of d\.csv is not valid UTF-8 at byte 1"),
    ],
)
def test_table_errors_say_what_is_wrong(tmp_path, text, options, message):
    with pytest.raises(InputError, match=message):
        read_documents(put(tmp_path / "d.csv", text), **options)


# --- writing --------------------------------------------------------------------------------


@settings(deadline=None, max_examples=60)
@given(records=st.lists(st.tuples(WORDS, st.lists(WORDS)), min_size=1, max_size=6))
def test_jsonl_round_trip(tmp_path_factory, records):
    path = tmp_path_factory.mktemp("round") / "d.jsonl"
    with path.open("w", encoding="utf-8", newline="") as target:
        write_records(({"id": i, "labels": labels} for i, labels in records), target, "jsonl")
    read = read_documents(path)
    assert (read.ids, read.label_sets) == (
        [i for i, _ in records],
        [labels for _, labels in records],
    )


@settings(deadline=None, max_examples=60)
@given(records=st.lists(st.tuples(TAGS, st.lists(TAGS)), min_size=1, max_size=6))
def test_csv_round_trip(tmp_path_factory, records):
    path = tmp_path_factory.mktemp("round") / "d.csv"
    with path.open("w", encoding="utf-8", newline="") as target:
        write_records(({"id": i, "tags": tags} for i, tags in records), target, "csv")
    read = read_documents(path, delimiter=";")
    assert (read.ids, read.label_sets) == ([i for i, _ in records], [tags for _, tags in records])


def written(records, form):
    target = io.StringIO()
    write_records(records, target, form)
    return target.getvalue()


def test_records_keep_numbers_and_write_nan_as_nothing():
    record = {
        "id": "é",
        "scores": np.array([0.5, np.nan], dtype=np.float32),
        "n": np.int64(3),
        "pair": (1, None),
        "flag": True,
    }
    line = written([record], "jsonl")
    assert "é" in line
    assert json.loads(line) == {
        "id": "é",
        "scores": [0.5, None],
        "n": 3,
        "pair": [1, None],
        "flag": True,
    }
    assert written([record], "csv") == "id,scores,n,pair,flag\né,0.5;,3,1;,True\n"


def test_csv_fills_missing_keys_with_empty_cells():
    assert written([{"a": 0.1, "b": "x,y"}, {"a": float("nan")}], "csv") == 'a,b\n0.1,"x,y"\n,\n'


@pytest.mark.parametrize("form", ["jsonl", "csv"])
def test_no_records_write_nothing(form):
    assert written([], form) == ""


@pytest.mark.parametrize(
    ("records", "form", "message"),
    [
        ([{"a": 1}], "xml", r"`form` of `write_records` must be one of 'jsonl', 'csv'; got 'xml'"),
        ([{"a": 1}, {"b": 2}], "csv", r"Record 2 has 'b', which the first record lacks"),
        ([{"a": ["x;y"]}], "csv", r"'a' of record 1 holds 'x;y', and ';' separates"),
        ([{"a": [["x"]]}], "csv", r"'a' of record 1 is nested too deep for CSV"),
        ([{"a": {"b": 1}}], "csv", r"'a' of record 1 is nested too deep for CSV"),
        (
            [{"a": 1.0}, {"a": np.inf}],
            "jsonl",
            r"Record 2 must hold finite numbers or NaN; got inf",
        ),
        ([{"a": {"x"}}], "jsonl", r"Record 1 must hold numbers, strings, lists or None; got set"),
    ],
)
def test_records_that_cannot_be_written_are_named(records, form, message):
    with pytest.raises(InputError, match=message):
        written(records, form)


# --- features in tables ---------------------------------------------------------------------


@pytest.mark.parametrize("name", ["x.csv", "x.tsv.gz"])
def test_numeric_table_leaves_out_the_id_and_reads_empty_as_nan(tmp_path, name):
    text = "b,id,a\n1.5,p,-2e3\n ,q,4\n"
    text = text.replace(",", "\t") if ".tsv" in name else text
    np.testing.assert_array_equal(
        read_features(put(tmp_path / name, text)), [[1.5, -2000.0], [np.nan, 4.0]]
    )


def test_columns_named_by_their_position_are_names(tmp_path):
    np.testing.assert_array_equal(read_features(put(tmp_path / "x.csv", "0,1\n2,3\n")), [[2, 3]])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,b\n1,2\n3,x\n", r"Line 3 of x\.csv must hold a number in column 'b'; got 'x'"),
        ("0.5,1.5\n2,3\n", r"first row of x\.csv must hold column names; got numbers"),
        (",a\n0,1\n", r"Column 1 of x\.csv has no name; name it \(`id` if it numbers the rows\)"),
        ("a,b\n", r"holds features of shape \(0, 2\); give at least one row and one column"),
        ("id\n1\n", r"holds features of shape \(0, 0\)"),
    ],
)
def test_feature_table_errors(tmp_path, text, message):
    with pytest.raises(InputError, match=message):
        read_features(put(tmp_path / "x.csv", text))


def test_parquet_with_polars(tmp_path):
    polars = pytest.importorskip("polars")
    path = tmp_path / "x[1].parquet"
    frame = polars.DataFrame(
        {"id": ["p", "q"], "a": [1, None], "b": [0.5, 1.5], "c": [True, False]}
    )
    frame.write_parquet(path)
    np.testing.assert_array_equal(read_features(path), [[1, 0.5, 1], [np.nan, 1.5, 0]])
    frame.with_columns(a=polars.lit("x")).write_parquet(path)
    with pytest.raises(InputError, match=r"Column 'a' of x\[1\]\.parquet must hold numbers; got"):
        read_features(path)


def test_parquet_that_is_none_is_refused(tmp_path):
    pytest.importorskip("polars")
    with pytest.raises(InputError, match=r"x\.parquet is not readable as Parquet"):
        read_features(put(tmp_path / "x.parquet", "no parquet"))


def without(monkeypatch, *names):
    """Make imports of these libraries fail."""
    real = builtins.__import__

    def refuse(name, *rest):
        if name in names:
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", refuse)


def test_parquet_with_pandas_in_place_of_polars(tmp_path, monkeypatch):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"id": ["p", "q"], "a": [1, 2], "b": [0.5, np.nan]})
    monkeypatch.setattr(pandas, "read_parquet", lambda stream: frame)
    without(monkeypatch, "polars")
    path = put(tmp_path / "x.parquet", "stands in")
    np.testing.assert_array_equal(read_features(path), [[1, 0.5], [2, np.nan]])
    frame["a"] = ["x", "y"]
    with pytest.raises(InputError, match=r"Column 'a' of x\.parquet must hold numbers"):
        read_features(path)


def test_parquet_without_a_library_names_the_extra(tmp_path, monkeypatch):
    without(monkeypatch, "polars", "pandas")
    with pytest.raises(InputError, match=r"pip install 'polyseme\[frames\]'"):
        read_features(put(tmp_path / "x.parquet", ""))


# --- numpy files ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given_type", "read_type"),
    [("f2", "f4"), ("f4", "f4"), ("f8", "f8"), (">f8", "f8"), ("i4", "f8"), ("?", "f8")],
)
def test_npy_gives_floats(tmp_path, given_type, read_type):
    values = np.array([[0, 1, 1], [1, 0, 0]], dtype=given_type)
    np.save(tmp_path / "x.npy", values)
    read = read_features(tmp_path / "x.npy")
    np.testing.assert_array_equal(read, values)
    assert read.dtype == np.dtype(read_type) and type(read) is np.ndarray


@pytest.mark.parametrize("form", ["csr", "csc", "coo", "bsr", "dia"])
def test_npz_of_scipy_stays_sparse(tmp_path, form):
    values = np.array([[0, 2.5, 0], [0, 0, 0], [1, 0, -1]])
    sp.save_npz(tmp_path / "x.npz", sp.csr_matrix(values).asformat(form))
    read = read_features(tmp_path / "x.npz")
    assert isinstance(read, sp.csr_matrix)
    np.testing.assert_array_equal(read.toarray(), values)


def test_npz_with_a_single_array_of_any_name(tmp_path):
    np.savez(tmp_path / "x.npz", anything=np.eye(2))
    np.testing.assert_array_equal(read_features(tmp_path / "x.npz"), np.eye(2))


class Trap:
    """Would create a file when unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (Path.touch, (self.path,))


@pytest.mark.parametrize("form", ["npy", "npz", "bare pickle", "sparse"])
def test_pickles_are_refused_and_never_run(tmp_path, form):
    trap = np.array([[Trap(tmp_path / "sprung")]], dtype=object)
    path = tmp_path / ("x.npy" if form in ("npy", "bare pickle") else "x.npz")
    if form == "npy":
        np.save(path, trap, allow_pickle=True)
    elif form == "bare pickle":
        path.write_bytes(pickle.dumps(Trap(tmp_path / "sprung")))
    elif form == "npz":
        np.savez(path, trap)
    else:
        np.savez(path, format=np.array(b"csr"), data=trap, indices=[0], indptr=[0, 1], shape=[1, 1])
    with pytest.raises(InputError, match="is not readable as a numpy file without pickled objects"):
        read_features(path)
    assert not (tmp_path / "sprung").exists()


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros(3), r"must have two dimensions \(instances, features\); got 1"),
        (np.zeros((2, 2), dtype=complex), r"must be numbers; got the type complex128"),
        (np.array([["a"]]), r"must be numbers; got the type <U1"),
        (np.zeros((0, 3)), r"shape \(0, 3\)"),
    ],
)
@pytest.mark.parametrize("name", ["x.npy", "x.npz"])
def test_arrays_that_are_no_features_are_refused(tmp_path, array, message, name):
    path = tmp_path / name
    np.save(path, array) if name == "x.npy" else np.savez(path, array)
    with pytest.raises(InputError, match=message):
        read_features(path)


def test_misnamed_and_damaged_numpy_files_are_refused(tmp_path):
    np.savez(tmp_path / "a.npz", np.eye(2), b=np.eye(2))
    with pytest.raises(InputError, match=r"a\.npz must hold a single array .*got arr_0, b"):
        read_features(tmp_path / "a.npz")
    (tmp_path / "a.npz").rename(tmp_path / "a.npy")
    with pytest.raises(InputError, match=r"a\.npy is an archive of arrays; rename it"):
        read_features(tmp_path / "a.npy")
    np.save(tmp_path / "b.npy", np.eye(2))
    whole = (tmp_path / "b.npy").read_bytes()
    (tmp_path / "b.npz").write_bytes(whole)
    with pytest.raises(InputError, match=r"b\.npz is a single array; rename it"):
        read_features(tmp_path / "b.npz")
    (tmp_path / "b.npy").write_bytes(whole[:-8])
    with pytest.raises(InputError, match=r"b\.npy is not readable as a numpy file"):
        read_features(tmp_path / "b.npy")


def test_sparse_npz_with_indices_out_of_range_is_refused(tmp_path):
    parts = {"data": [1.0], "indices": [9], "indptr": [0, 1], "shape": [1, 2]}
    np.savez(tmp_path / "x.npz", format=np.array(b"csr"), **parts)
    with pytest.raises(InputError, match="is not readable as a numpy file"):
        read_features(tmp_path / "x.npz")
    np.savez(tmp_path / "y.npz", labels=np.array(["a", "b"]), **parts)
    with pytest.raises(InputError, match="is not readable as a numpy file"):
        read_documents(tmp_path / "y.npz")


def test_sparse_npz_that_states_absurdly_many_rows_is_refused(tmp_path):
    sp.save_npz(tmp_path / "x.npz", sp.coo_matrix(([1.0], ([0], [0])), shape=(10**12, 1)))
    with pytest.raises(InputError, match="states 1000000000000 rows for 1 values"):
        read_features(tmp_path / "x.npz")


# --- documents as a 0/1 matrix --------------------------------------------------------------

INDICATOR = np.array([[0, 1, 1], [0, 0, 0], [1, 0, 0]])


@pytest.mark.parametrize(
    "matrix", [INDICATOR.tolist(), INDICATOR.astype(bool), sp.coo_array(INDICATOR.astype(float))]
)
def test_indicator_round_trip(tmp_path, matrix):
    write_indicator(tmp_path / "d.npz", matrix, ("a", "é", "c d"))
    read = read_documents(tmp_path / "d.npz")
    assert read.labels == ["a", "é", "c d"]
    assert isinstance(read.indicator, sp.csr_matrix) and read.indicator.dtype == np.int64
    np.testing.assert_array_equal(read.indicator.toarray(), INDICATOR)
    assert (read.ids, read.label_sets, read.groups, read.splits) == (None, None, None, None)
    assert len(read) == 3


def test_dense_indicator_is_read(tmp_path):
    np.savez(tmp_path / "d.npz", indicator=INDICATOR, labels=np.array(["a", "b", "c"]))
    np.testing.assert_array_equal(read_documents(tmp_path / "d.npz").indicator.toarray(), INDICATOR)


def test_stored_zeros_and_repeated_entries_are_merged(tmp_path):
    parts = {"data": [1, 1, 0], "indices": [1, 1, 0], "indptr": [0, 2, 3], "shape": [2, 2]}
    np.savez(tmp_path / "d.npz", labels=np.array(["a", "b"]), **parts)
    read = read_documents(tmp_path / "d.npz").indicator
    np.testing.assert_array_equal(read.toarray(), [[0, 1], [0, 0]])
    assert read.nnz == 1


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"indicator": INDICATOR}, r"must hold `labels` with `indicator` or .*; got indicator"),
        ({"labels": ["a"], "data": [1]}, r"must hold `labels` with .*; got data, labels"),
        ({"indicator": 2 * INDICATOR, "labels": list("abc")}, r"0 and 1 only; got 2"),
        ({"indicator": [[np.nan]], "labels": ["a"]}, r"0 and 1 only; got nan"),
        ({"indicator": INDICATOR, "labels": ["a"]}, r"has 1 names but the matrix has 3 columns"),
        ({"indicator": INDICATOR, "labels": list("aba")}, r"must be distinct; got 'a' twice"),
        ({"indicator": INDICATOR, "labels": [1, 2, 3]}, r"must be a list of strings; got int64"),
        ({"indicator": [0, 1], "labels": ["a"]}, r"must have two dimensions; got 1"),
        ({"indicator": [["a"]], "labels": ["a"]}, r"must hold numbers; got <U1"),
        (
            {"data": [1], "indices": [0.0], "indptr": [0, 1], "shape": [1, 1], "labels": ["a"]},
            r"`indices` and `indptr` in d\.npz must be whole numbers",
        ),
    ],
)
def test_indicator_errors(tmp_path, arrays, message):
    np.savez(tmp_path / "d.npz", **arrays)
    with pytest.raises(InputError, match=message):
        read_documents(tmp_path / "d.npz")


@pytest.mark.parametrize(
    ("name", "matrix", "labels", "message"),
    [
        ("d.npy", INDICATOR, list("abc"), r"`path` of `write_indicator` must end in \.npz"),
        ("d.npz", -INDICATOR, list("abc"), r"must hold 0 and 1 only; got -1"),
        ("d.npz", INDICATOR, list("ab"), r"has 2 names but the matrix has 3 columns"),
        ("d.npz", INDICATOR, ["a", "b", 3], r"`labels` of `write_indicator` must be strings"),
        ("d.npz", INDICATOR, ["a", "b", "c\0"], r"must not end in a NUL character"),
        ("d.npz", sp.csr_matrix([[1j]]), ["a"], r"must hold numbers; got complex128"),
    ],
)
def test_write_indicator_errors(tmp_path, name, matrix, labels, message):
    with pytest.raises(InputError, match=message):
        write_indicator(tmp_path / name, matrix, labels)
    assert not list(tmp_path.iterdir())


# --- MULAN ----------------------------------------------------------------------------------

DENSE = r"""% a comment
@RELATION 'some thing: -C 2'

@Attribute 'sky blue' {0, 1}
@attribute x1 NUMERIC
@attribute "it\'s \"x2\"" real  % a comment
	@attribute	x3	integer
@attribute flag {'0','1'}
@attribute b\c {1,0}
@DATA
% another
1, 0.5, -1e3, 3, 1, 0
0,?,2,?,'0',1 % a comment

'1',0,0,0,?,1
"""
LABELS = """<?xml version="1.0" encoding="utf-8"?>
<labels xmlns="http://mulan.sourceforge.net/labels">
<label name="b\\c"><label name="sky blue"/></label>
</labels>"""
SPARSE = """@relation s
@attribute x1 numeric
@attribute a {0,1}
@attribute x2 {0,1}
@attribute 'b, c' numeric
@data
{0 2.5,1 1, 3 1}
{}
{ 3	1, 2 ? }
{2 1,0 0,1 0} % a comment
"""
SPARSE_LABELS = '<labels><label name="a"/><label name="b, c"/></labels>'


def mulan(folder: Path, arff: str, xml: str, name: str = "x.arff", label_file: str = "x.xml"):
    put(folder / label_file, xml)
    return put(folder / name, arff)


@pytest.mark.parametrize(
    ("name", "label_file"), [("x.arff", "x.xml"), ("x.arff.gz", "x.xml.gz"), ("x.ARFF", "x.xml")]
)
def test_dense_arff(tmp_path, name, label_file):
    path = mulan(tmp_path, DENSE, LABELS, name, label_file)
    read = read_documents(path)
    assert read.labels == ["sky blue", "b\\c"]
    assert isinstance(read.indicator, sp.csr_matrix) and read.indicator.dtype == np.int64
    np.testing.assert_array_equal(read.indicator.toarray(), [[1, 0], [0, 1], [1, 1]])
    assert (read.ids, read.label_sets, read.groups, read.splits) == (None, None, None, None)
    features = read_features(path)
    assert isinstance(features, np.ndarray)
    np.testing.assert_array_equal(
        features, [[0.5, -1000, 3, 1], [np.nan, 2, np.nan, 0], [0, 0, 0, np.nan]]
    )


def test_sparse_arff_stays_sparse(tmp_path):
    path = mulan(tmp_path, SPARSE, SPARSE_LABELS)
    read = read_documents(path)
    assert read.labels == ["a", "b, c"]
    np.testing.assert_array_equal(read.indicator.toarray(), [[1, 1], [0, 0], [0, 1], [0, 0]])
    features = read_features(path)
    assert isinstance(features, sp.csr_matrix) and features.nnz == 3
    np.testing.assert_array_equal(features.toarray(), [[2.5, 0], [0, 0], [0, np.nan], [0, 1]])


def test_wide_sparse_arff_is_not_made_dense(tmp_path):
    n = 20_000
    header = "".join(f"@attribute f{at} numeric\n" for at in range(n))
    rows = "".join(f"{{{at} 1,{n} 1}}\n" for at in range(0, n, 4))
    arff = f"@relation w\n{header}@attribute l {{0,1}}\n@data\n{rows}"
    features = read_features(mulan(tmp_path, arff, '<labels><label name="l"/></labels>'))
    # Dense, these 5000 rows would take 800 MB.
    assert features.shape == (n // 4, n) and features.nnz == n // 4


@pytest.mark.parametrize(
    ("name", "label_file"),
    [
        ("Corel-train-sparse.arff", "Corel.xml"),
        ("Corel-test.arff.gz", "Corel.xml.gz"),
        ("Corel-sparse.arff", "Corel-sparse.xml"),
        ("Corel.orig.arff.gz", "Corel.xml"),
    ],
)
def test_label_file_is_found_without_the_additions_to_the_name(tmp_path, name, label_file):
    assert len(read_documents(mulan(tmp_path, DENSE, LABELS, name, label_file))) == 3


def test_own_label_file_goes_before_the_shared_one(tmp_path):
    mulan(tmp_path, SPARSE, SPARSE_LABELS, "x-train.arff", "x.xml")
    path = mulan(
        tmp_path, SPARSE, '<labels><label name="a"/></labels>', "x-train.arff", "x-train.xml"
    )
    assert read_documents(path).labels == ["a"]


def test_missing_label_file_lists_what_was_tried(tmp_path):
    path = put(tmp_path / "x-train.arff", DENSE)
    message = r"Label file of x-train\.arff not found at .*: x-train\.xml, .*, x\.xml, x\.xml\.gz"
    with pytest.raises(InputError, match=message):
        read_features(path)


def test_features_that_are_no_numbers_do_not_hinder_the_labels(tmp_path):
    arff = (
        "@relation r\n@attribute name string\n@attribute colour {red,'dark, green'}\n"
        "@attribute l {0,1}\n@data\n'a, \\'b\\' % c','dark, green',1\ndon't,red,0\n"
    )
    path = mulan(tmp_path, arff, '<labels><label name="l"/></labels>')
    np.testing.assert_array_equal(read_documents(path).indicator.toarray(), [[1], [0]])
    with pytest.raises(InputError, match=r"Attribute 'name' of x\.arff must be numeric or \{0,1\}"):
        read_features(path)


def test_nominal_feature_is_named(tmp_path):
    arff = DENSE.replace("x1 NUMERIC", "x1 {red,green}")
    message = r"Attribute 'x1' of x\.arff must be numeric or \{0,1\} to be a feature; got '\{red"
    with pytest.raises(InputError, match=message):
        read_features(mulan(tmp_path, arff, LABELS))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("@data", "", r"Line 7 of x\.arff must be an @attribute or the @data line; got '\{0 2\.5"),
        ("{0 2.5,1 1, 3 1}", "0,2", r"Line 7 of x\.arff is no ARFF row: it has 2 values for 4"),
        ("{}", "{", r"Line 8 of x\.arff is no ARFF row: a brace is not closed"),
        ("{}", "{1}", r"Line 8 .*'1' is not an attribute number and a value"),
        ("{}", "{-1 1}", r"Line 8 .*'-1 1' is not an attribute number and a value"),
        ("{}", "{4 1}", r"Line 8 .*attribute number 4 is not below 4"),
        ("{}", "{1 1,1 1}", r"Line 8 .*attribute number 1 is given twice"),
        ("{}", "{1 1},{5}", r"Line 8 of x\.arff is no ARFF row"),
        ("{}", "{1 'x}", r"Line 8 .*a quote is not closed"),
        ("{}", "{1 x}", r"Line 8 .*could not convert string to float: 'x'"),
        ("{}", "{1 2}", r"Line 8 of x\.arff must have 0 or 1 for 'a'; got 2"),
        ("{}", "{3 ?}", r"Line 8 of x\.arff must have 0 or 1 for 'b, c'; got \?"),
        ("a {0,1}", "a {1,0}", r"Line 7 .*'a' is declared \{1,0\}, so that leaving it out means 1"),
        ("a {0,1}", "a {n,y}", r"Label 'a' of x\.arff must be declared as \{0,1\}; got '\{n,y\}'"),
        ("a {0,1}", "a {0,1", r"Line 3 of x\.arff is no ARFF attribute: a brace is not closed"),
        ("a {0,1}", "a", r"Line 3 of x\.arff is no ARFF attribute: 'a' has no type"),
        ("'b, c' n", "'b, c n", r"Line 5 of x\.arff is no ARFF attribute: a quote is not closed"),
        ("attribute a", "attribute z", r"x\.arff has no attribute 'a', which its label file names"),
        ("attribute x1", "attribute a", r"x\.arff has a label attribute twice"),
    ],
)
def test_arff_errors(tmp_path, old, new, message):
    path = mulan(tmp_path, SPARSE.replace(old, new, 1), SPARSE_LABELS)
    with pytest.raises(InputError, match=message):
        read_documents(path)


def test_arff_that_ends_in_its_header_is_refused(tmp_path):
    path = mulan(tmp_path, SPARSE.partition("@data")[0], SPARSE_LABELS)
    with pytest.raises(InputError, match=r"x\.arff has no @data line"):
        read_features(path)


def test_features_are_refused_when_the_label_file_names_other_labels(tmp_path):
    path = mulan(tmp_path, SPARSE, '<labels><label name="a"/><label name="elsewhere"/></labels>')
    with pytest.raises(InputError, match=r"x\.arff has no attribute 'elsewhere'"):
        read_features(path)


def test_binary_feature_with_another_value_is_refused(tmp_path):
    path = mulan(tmp_path, SPARSE.replace("{}", "{2 7}"), SPARSE_LABELS)
    with pytest.raises(InputError, match=r"Line 8 of x\.arff must have 0 or 1 for 'x2'; got 7"):
        read_features(path)


def test_arff_with_labels_only_has_no_features(tmp_path):
    arff = "@relation r\n@attribute l {0,1}\n@data\n1\n"
    path = mulan(tmp_path, arff, '<labels><label name="l"/></labels>')
    with pytest.raises(InputError, match=r"holds features of shape \(1, 0\)"):
        read_features(path)


BOMB = '<!DOCTYPE l [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]><labels><label name="&b;"/></labels>'


@pytest.mark.parametrize(
    ("xml", "message"),
    [
        (BOMB, r"x\.xml must not have a DOCTYPE or ENTITY"),
        (BOMB.lower(), r"x\.xml must not have a DOCTYPE or ENTITY"),
        (BOMB.encode("utf-16"), r"Line 1 of x\.xml is not valid UTF-8"),
        (BOMB.encode("utf-16-le"), r"x\.xml must not have a DOCTYPE or ENTITY"),
        (b'<?xml version="1.0" encoding="cp037"?>' + BOMB.encode("cp037"), r"x\.xml is not valid"),
        ("<labels><label", r"x\.xml is not valid XML .*check the label file"),
        ("<labels/>", r"x\.xml must list labels as <label name="),
        ("<labels><label/></labels>", r"x\.xml must list labels as <label name="),
        ('<l><label name="a"/><label name="a"/></l>', r"x\.xml must name each label once; got 'a'"),
    ],
)
def test_label_file_errors(tmp_path, xml, message):
    with pytest.raises(InputError, match=message):
        read_documents(mulan(tmp_path, SPARSE, xml))


def test_overlong_label_file_is_refused(tmp_path):
    xml = SPARSE_LABELS + 17 * (2**20 * " " + "\n")
    with pytest.raises(InputError, match=r"x\.xml\.gz is longer than any label file should be"):
        read_documents(mulan(tmp_path, SPARSE, xml, label_file="x.xml.gz"))


# --- real files -----------------------------------------------------------------------------


@pytest.fixture
def data() -> Path:
    folder = os.environ.get("POLYSEME_DATA")
    if not folder or not (Path(folder) / "mulan").is_dir():
        pytest.skip("POLYSEME_DATA names no folder with mulan/ in it")
    return Path(folder)


@pytest.mark.parametrize(
    ("name", "n", "n_labels", "n_features", "n_ones", "sparse"),
    [
        ("Corel5k-sparse.arff", 5000, 374, 499, 17610, True),
        ("Corel5k-train-sparse.arff", 4500, 374, 499, 15847, True),
        ("Corel5k-test-sparse.arff", 500, 374, 499, 1763, True),
        ("CAL500.arff.gz", 502, 174, 68, 13074, False),
        ("CAL500.orig.arff.gz", 502, 174, 68, 13074, False),
        ("emotions.arff.gz", 593, 6, 72, 1108, False),
        ("emotions.orig.arff.gz", 593, 6, 72, 1108, False),
    ],
)
def test_real_mulan_files(data, name, n, n_labels, n_features, n_ones, sparse):
    documents = read_documents(data / "mulan" / name)
    assert documents.indicator.shape == (n, n_labels) and len(documents.labels) == n_labels
    assert documents.indicator.nnz == n_ones
    features = read_features(data / "mulan" / name)
    assert features.shape == (n, n_features) and sp.issparse(features) == sparse
    assert np.isfinite(features.data if sparse else features).all()


def test_both_orders_of_the_same_real_file_agree(data):
    # The two files hold labels first and features first; nothing else differs.
    first = data / "mulan" / "emotions.arff.gz"
    second = data / "mulan" / "emotions.orig.arff.gz"
    one, two = read_documents(first), read_documents(second)
    assert one.labels == two.labels
    np.testing.assert_array_equal(one.indicator.toarray(), two.indicator.toarray())
    np.testing.assert_array_equal(read_features(first), read_features(second))


def test_real_sparse_rows_equal_a_plain_loop(data):
    path = data / "mulan" / "Corel5k-test-sparse.arff"
    lines = path.read_text().partition("@data\n")[2].splitlines()
    expected = np.zeros((len(lines), 873))
    for row, line in enumerate(lines):
        for pair in line.strip("{}").split(","):
            index, value = pair.split()
            expected[row, int(index)] = float(value)
    np.testing.assert_array_equal(read_features(path).toarray(), expected[:, :499])
    np.testing.assert_array_equal(read_documents(path).indicator.toarray(), expected[:, 499:])
