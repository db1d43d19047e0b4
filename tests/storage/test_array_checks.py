"""A stranger's model may be wrong, never unsafe: what is declared is checked before it is used."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.sparse as sp

from polyseme import load
from polyseme.base.validation import InputError, check_features, check_sparse
from polyseme.documents.corpus import LabelCorpus
from polyseme.space.training import SpacePlan
from polyseme.storage.array_checks import (
    Array,
    Choice,
    Csr,
    Fields,
    Flag,
    ListOf,
    MappingOf,
    Maybe,
    Number,
    Plain,
    Text,
    Whole,
    check_arrays,
    declare_parameters,
    matrix_of,
    name_folder_in_errors,
    name_part_in_errors,
)
from polyseme.storage.model_file import ModelFileError, read_model, write_model


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        (Whole(0, 9), [0, 9], [-1, 10, 1.0, True, "1", None, 10**30]),
        (Number(0, 1), [0, 0.5, 1], [-0.1, math.inf, math.nan, "1", None, True, 10**400]),
        (Flag(), [True, False], [0, 1, None, "true"]),
        (Text(), ["", "a", "ü"], ["a\0", "\ud800", 1, None, b"a"]),
        (Choice(("a", "b")), ["a"], ["c", 1, None, ["a"]]),
        (Maybe(Whole()), [None, 1], [1.5, "1"]),
        (ListOf(Whole(), 2), [[1, 2]], [[1], [1, 2, 3], [1, "2"], 1, "12", {"a": 1}]),
        (ListOf(Text(), distinct=True), [["a", "b"]], [["a", "a"], [["a"]]]),
        (MappingOf(Number()), [{}, {"a": 1}], [{"a": "1"}, {"\ud800": 1}, [1], None]),
        (Fields({"a": Flag()}), [{"a": True}], [{}, {"a": True, "b": 1}, {"a": 1}, []]),
        (Plain(), [None, {"a": [1, "b", 0.5]}], [math.inf, [math.nan], {"a": "\0"}]),
    ],
)
def test_values_are_of_their_kind_or_refused(kind, good, bad):
    for value in good:
        kind.check(value, "x")
    for value in bad:
        with pytest.raises(ModelFileError, match=r"^'x[^\n]*' must be [^\n]*\.$"):
            kind.check(value, "x")


def test_parameters_are_declared_by_what_a_constructor_says_of_them():
    declared = declare_parameters(SpacePlan)
    assert set(declared.kinds) == set(SpacePlan.__dataclass_fields__)
    declared.kinds["dropout"].check([0.5] * 4, "x")
    with pytest.raises(ModelFileError, match="a list of 4"):
        declared.kinds["dropout"].check([0.5] * 3, "x")
    with pytest.raises(ModelFileError, match=r"'x\.hidden' must be a whole number"):
        declare_parameters(SpacePlan, "hidden").check({"hidden": "1"}, "x")


FLOATS = np.zeros((2, 3), dtype=np.float32)


@pytest.mark.parametrize(
    ("declared", "array", "complaint"),
    [
        (Array("float32", ("n", "d")), FLOATS.astype(np.float64), "an array of float32; got float"),
        (Array("float32", ("n", "d")), FLOATS[0], r"of 2 dimension\(s\); got 1"),
        (Array("float32", ("n", 4)), FLOATS, r"of shape \(2, 4\); got \(2, 3\)"),
        (Array("float32", ("n", "known")), FLOATS, r"of shape \(2, 7\)"),
        (Array("float32", ("n", "n")), FLOATS, r"of shape \(2, 2\)"),
        (Array("float32", ("known*n", "d")), FLOATS, "n"),
        (Array("float32", ("n", "d")), FLOATS + np.nan, "finite numbers from -1e.06 to 1e.06"),
        (Array("float32", ("n", "d")), FLOATS - np.inf, "finite numbers"),
        (Array("float32", ("n", "d"), 0.1), FLOATS, "finite numbers from 0.1"),
        (Array("int64", ("n",), 0, below="known"), np.array([7]), "numbers below 7; got 7"),
        (Array("int64", ("n",), 0, below="known"), np.array([-1]), "from 0 to inf; got -1"),
        (Array("int64", ("n",), 0, distinct=True), np.array([1, 1]), "of different numbers"),
        (Array("float32", ("n", "d"), longest=1), FLOATS + 1, "a length of 1 at the most"),
    ],
)
def test_arrays_are_as_declared_or_refused(declared, array, complaint):
    sizes = {"known": 7}
    if declared.shape[0] == "known*n":
        sizes["n"] = 5
        complaint = r"of shape \(35, 3\)"
    with pytest.raises(ModelFileError, match=complaint):
        check_arrays({"a": array}, {"a": declared}, **sizes)


def test_truth_values_are_0_or_1():
    wrong = np.array([0, 2], dtype=np.uint8).view(bool)
    with pytest.raises(ModelFileError, match="an array of truth values"):
        check_arrays({"a": wrong}, {"a": Array("bool", ("n",))})


def test_arrays_that_are_missing_or_unheard_of_are_refused():
    declared = {"a": Array("float32", ("n", "d")), "b": Array("bool", ("n",), optional=True)}
    assert check_arrays({"a": FLOATS}, declared) == {"n": 2, "d": 3}
    with pytest.raises(ModelFileError, match="there is no 'a'"):
        check_arrays({}, declared)
    with pytest.raises(ModelFileError, match="without 'c'"):
        check_arrays({"a": FLOATS, "c": FLOATS}, declared)


def test_an_empty_table_may_stand_for_rows_of_its_width():
    declared = {
        "a": Array("float32", ("n", "known"), or_empty=True),
        "b": Array("float32", ("n",)),
    }
    nothing = np.zeros((0, 0), dtype=np.float32)
    check_arrays({"a": nothing, "b": nothing.ravel()}, declared, known=5)
    with pytest.raises(ModelFileError, match=r"'b' must be an array of shape \(0,\)"):
        check_arrays({"a": nothing, "b": FLOATS[0]}, declared, known=5)


WRONG_ROWS = [
    ([0, 1, 5], [0, 2, 3], "indices"),
    ([0, 1, -1], [0, 2, 3], "indices"),
    ([0, 1, 2], [0, 3, 2], "indptr"),
    ([0, 1, 2], [1, 2, 3], "indptr"),
    ([0, 1, 2], [0, 2, 4], "indptr"),
    ([0, 1, 2], [0, -(2**62), 3], "indptr"),
    ([0, 1, 2], [0, 3], "indptr"),
]


@pytest.mark.parametrize(("indices", "indptr", "which"), WRONG_ROWS)
def test_the_structure_of_a_saved_sparse_matrix_is_checked(indices, indptr, which):
    arrays = {"m.indices": np.array(indices), "m.indptr": np.array(indptr)}
    with pytest.raises(ModelFileError, match=rf"'m\.{which}' must be"):
        check_arrays(arrays, {"m": Csr(("n", "d"))}, n=2, d=3)


def test_a_sound_sparse_matrix_is_given_back_with_its_data():
    matrix = sp.random(5, 4, 0.5, "csr", np.float32, random_state=0)
    arrays = {f"m.{name}": getattr(matrix, name) for name in ("data", "indices", "indptr")}
    check_arrays(arrays, {"m": Csr(("n", "d"), "float32")}, n=5, d=4)
    nnz = (matrix_of(arrays, (5, 4), "m") != matrix).nnz
    assert nnz == 0


def test_an_error_names_folder_part_and_value():
    named = r"^The model at 'here' cannot be used: 'space\.x' must be a whole number"
    with (
        pytest.raises(ModelFileError, match=named),
        name_folder_in_errors("here"),
        name_part_in_errors("space"),
    ):
        Whole(0).check(-1, "x")


def test_a_model_whose_parts_are_of_different_models_is_refused(toy_tagger, tmp_path):
    toy_tagger.save(tmp_path / "model")
    config, arrays = read_model(tmp_path / "model", "tagger")
    arrays["store.points"] = np.ascontiguousarray(arrays["store.points"][:, :-1])
    write_model(tmp_path / "other", "tagger", config, arrays)
    with pytest.raises(ModelFileError, match=r"'store\.points' must be what its other parts ask"):
        load(tmp_path / "other")


# ---------------------------------------------------------------------- sparse matrices of callers


def wrong_csr(indices, indptr, shape=(2, 3)):
    """Build a CSR matrix, then put other indices and row pointers into it."""
    matrix = sp.csr_matrix(np.ones(shape))
    matrix.data = np.ones(len(indices))
    matrix.indices = np.array(indices, dtype=np.int32)
    matrix.indptr = np.array(indptr, dtype=np.int64)
    return matrix


@pytest.mark.parametrize(("indices", "indptr", "which"), WRONG_ROWS)
def test_a_sparse_matrix_with_wrong_indices_is_refused_before_it_is_used(
    toy_tagger, indices, indptr, which
):
    n_features = toy_tagger.n_features_in_
    matrix = wrong_csr(indices, indptr, (2, n_features))
    if which == "indices":
        matrix.indices[-1] *= n_features
    with pytest.raises(InputError, match=r"`X` of `ZeroShotTagger` has (row pointers|indices)"):
        toy_tagger.rank(matrix)


@pytest.mark.parametrize("form", ["csr", "csc", "coo", "bsr", "lil", "dok", "dia"])
def test_every_form_of_a_sparse_matrix_is_checked(form):
    dense = np.array([[0.0, 1.0, 0.0], [2.0, 0.0, 3.0]])
    matrix = sp.csr_matrix(dense).asformat(form)
    assert (check_sparse(matrix, "X", owner="f").toarray() == dense).all()
    if form in ("csr", "csc", "bsr"):
        matrix.indices = matrix.indices + 5
    elif form == "coo":
        matrix = sp.coo_matrix((matrix.data, (matrix.row, matrix.col)), shape=(2, 3))
        matrix.col[0] = 10**6
    elif form == "lil":
        matrix.rows[0] = [10**6]
    elif form == "dok":
        matrix._dict[(10**6, 0)] = 1.0
    else:
        matrix.offsets = matrix.offsets[:1]
    with pytest.raises(InputError, match="build it anew"):
        check_sparse(matrix, "X", owner="f")


def test_a_sparse_matrix_with_room_to_spare_is_sound():
    matrix = wrong_csr([0, 1, 2, 0, 0], [0, 2, 3])
    assert check_features(matrix, owner="f").toarray().tolist() == [[1, 1, 0], [0, 0, 1]]


@pytest.mark.parametrize(("indices", "indptr", "which"), WRONG_ROWS)
def test_documents_with_wrong_indices_are_refused(indices, indptr, which):
    matrix = wrong_csr(indices, indptr)
    with pytest.raises(InputError, match="indicator matrix"):
        LabelCorpus.from_indicator(matrix, ["a", "b", "c"])
    with pytest.raises(InputError, match="`matrix` of `LabelCorpus`"):
        LabelCorpus(("a", "b", "c"), matrix, ("0", "1"))


def test_a_corpus_has_as_many_labels_and_ids_as_its_matrix():
    matrix = sp.csr_matrix(np.eye(2, dtype=bool))
    with pytest.raises(InputError, match=r"2 documents of 2 labels, but there are 1 ids and 3 lab"):
        LabelCorpus(("a", "b", "c"), matrix, ("0",))
