"""numpy files: features and 0/1 matrices are read, pickles and damage refused."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_array_equal
from typer.testing import CliRunner

from polyseme.base.validation import InputError
from polyseme.cli import app
from polyseme.documents.corpus import LabelCorpus
from polyseme.io import read_documents, read_features, unpacking

INDICATOR = np.array([[0, 1, 1], [0, 0, 0], [1, 0, 0]])


@pytest.mark.parametrize(
    ("stored_type", "read_type"),
    [("f2", "f4"), ("f4", "f4"), ("f8", "f8"), (">f8", "f8"), ("i4", "f8"), ("?", "f8")],
)
def test_npy_gives_floats(tmp_path, stored_type, read_type):
    values = np.array([[0, 1, 1], [1, 0, 0]], dtype=stored_type)
    path = tmp_path / "x.npy"
    np.save(path, values)
    features = read_features(path)
    assert type(features) is np.ndarray
    assert features.dtype == np.dtype(read_type)
    assert_array_equal(features, values)


@pytest.mark.parametrize("layout", ["csr", "csc", "coo", "bsr", "dia"])
def test_npz_of_scipy_stays_sparse(tmp_path, layout):
    values = np.array([[0, 2.5, 0], [0, 0, 0], [1, 0, -1]])
    csr = sp.csr_matrix(values)
    matrix = csr.asformat(layout)
    path = tmp_path / "x.npz"
    sp.save_npz(path, matrix)
    features = read_features(path)
    assert isinstance(features, sp.csr_matrix)
    assert_array_equal(features.toarray(), values)


class Trap:
    """Would create a file when unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (Path.touch, (self.path,))


@pytest.mark.parametrize("kind", ["npy", "npz", "bare pickle", "sparse"])
def test_pickles_are_refused_and_never_run(tmp_path, kind):
    sprung = tmp_path / "sprung"
    trap = np.array([[Trap(sprung)]], dtype=object)
    path = tmp_path / ("x.npy" if kind in ("npy", "bare pickle") else "x.npz")
    if kind == "npy":
        np.save(path, trap, allow_pickle=True)
    elif kind == "bare pickle":
        path.write_bytes(pickle.dumps(Trap(sprung)))
    elif kind == "npz":
        np.savez(path, trap)
    else:
        layout = np.array(b"csr")
        np.savez(
            path,
            format=layout,
            data=trap,
            indices=[0],
            indptr=[0, 1],
            shape=[1, 1],
        )
    with pytest.raises(InputError, match="is not readable as a numpy file without pickled objects"):
        read_features(path)
    assert not sprung.exists()


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
    save = np.save if name == "x.npy" else np.savez
    save(path, array)
    with pytest.raises(InputError, match=message):
        read_features(path)


def test_an_archive_of_several_arrays_is_refused(tmp_path):
    archive = tmp_path / "a.npz"
    identity = np.eye(2)
    np.savez(archive, identity, b=identity)
    with pytest.raises(InputError, match=r"a\.npz must hold a single array, .*got arr_0, b"):
        read_features(archive)


def test_misnamed_numpy_files_are_refused(tmp_path):
    archive = tmp_path / "a.npz"
    np.savez(archive, np.eye(2))
    misnamed_archive = archive.rename(tmp_path / "a.npy")
    with pytest.raises(InputError, match=r"a\.npy is an archive of arrays; rename it"):
        read_features(misnamed_archive)

    array = tmp_path / "b.npy"
    np.save(array, np.eye(2))
    misnamed_array = array.rename(tmp_path / "b.npz")
    with pytest.raises(InputError, match=r"b\.npz is a single array; rename it"):
        read_features(misnamed_array)


def test_a_cut_numpy_file_is_refused(tmp_path):
    path = tmp_path / "b.npy"
    np.save(path, np.eye(2))
    content = path.read_bytes()
    path.write_bytes(content[:-8])
    with pytest.raises(InputError, match=r"b\.npy is not readable as a numpy file"):
        read_features(path)


def test_sparse_npz_with_indices_out_of_range_is_refused(tmp_path):
    arrays = {"data": [1.0], "indices": [9], "indptr": [0, 1], "shape": [1, 2]}
    features = tmp_path / "x.npz"
    layout = np.array(b"csr")
    np.savez(features, format=layout, **arrays)
    with pytest.raises(InputError, match="is not readable as a numpy file"):
        read_features(features)
    documents = tmp_path / "y.npz"
    labels = np.array(["a", "b"])
    np.savez(documents, labels=labels, **arrays)
    with pytest.raises(InputError, match="is not readable as a numpy file"):
        read_documents(documents)


@pytest.mark.parametrize("shape", [(10**12, 1), (1, 10**12)])
def test_sparse_npz_that_states_an_absurd_size_is_refused(tmp_path, shape):
    path = tmp_path / "x.npz"
    entry = ([1.0], ([0], [0]))
    matrix = sp.coo_matrix(entry, shape=shape)
    sp.save_npz(path, matrix)
    with pytest.raises(InputError, match=r"states 1\d* rows and 1\d* columns for 1 values"):
        read_features(path)


@pytest.mark.parametrize("form", ["dense", "sparse"])
def test_an_indicator_is_read_dense_or_as_the_arrays_of_a_sparse_matrix(tmp_path, form):
    labels = np.array(["a", "é", "c d"])
    path = tmp_path / "indicator.npz"
    if form == "dense":
        np.savez(path, indicator=INDICATOR, labels=labels)
    else:
        csr = sp.csr_matrix(INDICATOR.astype(np.int8))
        np.savez_compressed(
            path,
            labels=labels,
            data=csr.data,
            indices=csr.indices,
            indptr=csr.indptr,
            shape=csr.shape,
        )
    documents = read_documents(path)
    assert len(documents) == 3
    assert documents.labels == ["a", "é", "c d"]
    assert documents.ids is None
    assert documents.label_sets is None
    assert isinstance(documents.indicator, sp.csr_matrix)
    assert_array_equal(documents.indicator.toarray(), INDICATOR)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"indicator": INDICATOR}, r"must hold `labels` with `indicator` or .*; got indicator"),
        ({"labels": ["a"], "data": [1]}, r"must hold `labels` with .*; got data, labels"),
        ({"indicator": 2 * INDICATOR, "labels": list("abc")}, r"must hold only 0 and 1"),
        ({"indicator": INDICATOR, "labels": ["a"]}, r"each of the 3 columns .*1 different names"),
        ({"indicator": INDICATOR, "labels": list("aba")}, r"3 columns .*2 different names in 3"),
        ({"indicator": INDICATOR, "labels": [1, 2, 3]}, r"must be a list of strings; got int64"),
        ({"indicator": [0, 1], "labels": ["a"]}, r"two dimensions; got int64 in 1"),
        (
            {"labels": ["a"], "data": [1], "indices": [0.5], "indptr": [0, 1], "shape": [1, 1]},
            r"`indices` in d\.npz must be whole numbers",
        ),
        ({"indicator": [["a"]], "labels": ["a"]}, r"must hold numbers in two .*got <U1"),
    ],
)
def test_indicator_errors(tmp_path, arrays, message):
    path = tmp_path / "d.npz"
    np.savez(path, **arrays)
    with pytest.raises(InputError, match=message):
        LabelCorpus.read(path)


@pytest.mark.parametrize("kind", [np.float64, np.float32, np.int8])
def test_an_archive_takes_no_more_memory_than_it_unpacks_to(tmp_path, most_bytes, kind):
    path = tmp_path / "x.npz"
    zeros = np.zeros((2_000, 1_000), dtype=kind)
    np.savez_compressed(path, features=zeros)
    assert path.stat().st_size < 50_000
    features, peak = most_bytes(read_features, path)
    allowed = features.nbytes + 2e6
    if kind == np.int8:  # which are converted
        allowed += zeros.nbytes
    assert peak < allowed


@pytest.mark.parametrize("kind", [np.float64, np.float32, np.int8])
def test_an_archive_that_unpacks_to_more_than_allowed_is_refused(tmp_path, kind):
    path = tmp_path / "x.npz"
    np.savez_compressed(path, features=np.zeros((2_000, 1_000), dtype=kind))
    with unpacking(0.007), pytest.raises(InputError, match=r"x.npz unpacks to 0.0\d+ GB or more"):
        read_features(path)


@pytest.mark.parametrize(
    ("limit", "sentence"),
    [("0.01", "too few items"), ("0.001", "x.npz unpacks to 0.0016 GB")],
)
def test_the_command_line_unpacks_as_much_as_it_may(tmp_path, limit, sentence):
    features = tmp_path / "x.npz"
    np.savez_compressed(features, features=np.zeros((200, 1000)))
    tags = tmp_path / "tags.jsonl"
    tags.write_text('["a", "b"]\n' * 200)
    words = ["validate", "-d", str(tags), "-x", str(features)]
    result = CliRunner().invoke(app, ["--max-unpacked", limit, *words])
    assert sentence in f"{result.exception} {result.output}"


def test_a_limit_of_nothing_is_refused():
    with pytest.raises(InputError, match="`gigabytes` of `unpacking` must be a number above 0"):
        unpacking(0).__enter__()


@pytest.mark.parametrize("order", ["<", ">"])
def test_text_with_invalid_characters_is_refused(tmp_path, order):
    codes = np.array([[0x41, 0x110000]], dtype=f"{order}u4")
    letters = codes.view(f"{order}U2")[0]
    path = tmp_path / "x.npz"
    np.savez(path, labels=letters, indicator=np.ones((2, 1)))
    with pytest.raises(InputError, match=r"^x.npz holds invalid text"):
        read_documents(path)


@pytest.mark.parametrize("header", ["(" * 5000, "{'descr': (", "{'descr': f(), 'shape': (1, 1)}"])
def test_a_broken_header_is_reported_without_addresses(tmp_path, header):
    length = len(header).to_bytes(2, "little")
    path = tmp_path / "x.npy"
    path.write_bytes(b"\x93NUMPY\1\0" + length + header.encode())
    with pytest.raises(InputError, match=r"^x.npy is not readable") as refused:
        read_features(path)
    message = str(refused.value)
    assert " at 0x" not in message
    assert "\n" not in message
