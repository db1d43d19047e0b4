"""numpy files: features and 0/1 matrices are read, pickles and damage refused."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_array_equal
from typer.testing import CliRunner

from polyseme._validation import InputError
from polyseme.cli import app
from polyseme.corpus import LabelCorpus
from polyseme.io import read_documents, read_features, unpacking

INDICATOR = np.array([[0, 1, 1], [0, 0, 0], [1, 0, 0]])


@pytest.mark.parametrize(
    ("stored_type", "read_type"),
    [("f2", "f4"), ("f4", "f4"), ("f8", "f8"), (">f8", "f8"), ("i4", "f8"), ("?", "f8")],
)
def test_npy_gives_floats(tmp_path, stored_type, read_type):
    values = np.array([[0, 1, 1], [1, 0, 0]], dtype=stored_type)
    np.save(tmp_path / "x.npy", values)
    features = read_features(tmp_path / "x.npy")
    assert_array_equal(features, values)
    assert features.dtype == np.dtype(read_type)
    assert type(features) is np.ndarray


@pytest.mark.parametrize("layout", ["csr", "csc", "coo", "bsr", "dia"])
def test_npz_of_scipy_stays_sparse(tmp_path, layout):
    values = np.array([[0, 2.5, 0], [0, 0, 0], [1, 0, -1]])
    sp.save_npz(tmp_path / "x.npz", sp.csr_matrix(values).asformat(layout))
    features = read_features(tmp_path / "x.npz")
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
    trap = np.array([[Trap(tmp_path / "sprung")]], dtype=object)
    path = tmp_path / ("x.npy" if kind in ("npy", "bare pickle") else "x.npz")
    if kind == "npy":
        np.save(path, trap, allow_pickle=True)
    elif kind == "bare pickle":
        path.write_bytes(pickle.dumps(Trap(tmp_path / "sprung")))
    elif kind == "npz":
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
    with pytest.raises(InputError, match=r"a\.npz must hold a single array, .*got arr_0, b"):
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


@pytest.mark.parametrize("shape", [(10**12, 1), (1, 10**12)])
def test_sparse_npz_that_states_an_absurd_size_is_refused(tmp_path, shape):
    sp.save_npz(tmp_path / "x.npz", sp.coo_matrix(([1.0], ([0], [0])), shape=shape))
    with pytest.raises(InputError, match=r"states 1\d* rows and 1\d* columns for 1 values"):
        read_features(tmp_path / "x.npz")


def test_an_indicator_is_read_dense_or_in_parts(tmp_path):
    labels = np.array(["a", "é", "c d"])
    csr = sp.csr_matrix(INDICATOR.astype(np.int8))
    parts = {"data": csr.data, "indices": csr.indices, "indptr": csr.indptr, "shape": csr.shape}
    np.savez(tmp_path / "dense.npz", indicator=INDICATOR, labels=labels)
    np.savez_compressed(tmp_path / "parts.npz", labels=labels, **parts)
    for name in ("dense.npz", "parts.npz"):
        documents = read_documents(tmp_path / name)
        assert documents.labels == ["a", "é", "c d"]
        assert len(documents) == 3
        assert isinstance(documents.indicator, sp.csr_matrix)
        assert_array_equal(documents.indicator.toarray(), INDICATOR)
        assert documents.ids is documents.label_sets is None


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
    np.savez(tmp_path / "d.npz", **arrays)
    with pytest.raises(InputError, match=message):
        LabelCorpus.read(tmp_path / "d.npz")


@pytest.mark.parametrize("kind", [np.float64, np.float32, np.int8])
def test_an_archive_takes_no_more_memory_than_it_unpacks_to(tmp_path, most_bytes, kind):
    np.savez_compressed(tmp_path / "x.npz", features=np.zeros((2_000, 1_000), dtype=kind))
    assert (tmp_path / "x.npz").stat().st_size < 50_000
    numbers, held = most_bytes(read_features, tmp_path / "x.npz")
    assert held < numbers.nbytes + 2_000_000 * np.dtype(kind).itemsize * (kind == np.int8) + 2e6
    with unpacking(0.007), pytest.raises(InputError, match=r"x.npz unpacks to 0.0\d+ GB or more"):
        read_features(tmp_path / "x.npz")


def test_more_is_unpacked_where_it_is_allowed(tmp_path):
    np.savez_compressed(tmp_path / "x.npz", features=np.zeros((200, 1000)))
    (tmp_path / "tags.jsonl").write_text('["a", "b"]\n' * 200)
    words = ["validate", "-d", str(tmp_path / "tags.jsonl"), "-x", str(tmp_path / "x.npz")]
    for limit, sentence in (("0.01", "too few items"), ("0.001", "x.npz unpacks to 0.0016 GB")):
        done = CliRunner().invoke(app, ["--max-unpacked", limit, *words])
        assert sentence in f"{done.exception} {done.output}"
    with pytest.raises(InputError, match="`gigabytes` of `unpacking` must be a number above 0"):
        unpacking(0).__enter__()


@pytest.mark.parametrize("order", ["<", ">"])
def test_text_that_is_none_is_refused(tmp_path, order):
    letters = np.array([[0x41, 0x110000]], dtype=f"{order}u4").view(f"{order}U2")[0]
    np.savez(tmp_path / "x.npz", labels=letters, indicator=np.ones((2, 1)))
    with pytest.raises(InputError, match=r"^x.npz holds invalid text"):
        read_documents(tmp_path / "x.npz")


@pytest.mark.parametrize("header", ["(" * 5000, "{'descr': (", "{'descr': f(), 'shape': (1, 1)}"])
def test_a_header_that_is_no_header_is_told_without_addresses(tmp_path, header):
    data = b"\x93NUMPY\1\0" + len(header).to_bytes(2, "little") + header.encode()
    (tmp_path / "x.npy").write_bytes(data)
    with pytest.raises(InputError, match=r"^x.npy is not readable") as refused:
        read_features(tmp_path / "x.npy")
    assert " at 0x" not in str(refused.value)
    assert "\n" not in str(refused.value)
