"""Input checks: what passes, what is refused, and the one sentence that says why."""

from __future__ import annotations

import re
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal

from polyseme.base.validation import (
    InputError,
    NotFittedError,
    as_generator,
    as_row,
    check_features,
    check_fitted,
    check_number,
    check_option,
    check_ranges,
    column_names,
    draw_seed,
    unknown_name,
)
from polyseme.documents.corpus import as_corpus
from polyseme.io.join import split_ids
from polyseme.published.mapping import InstanceMapper
from polyseme.published.training import TrainingPlan

# --- randomness -----------------------------------------------------------------------------


def test_seeds_generators_and_old_states_give_generators():
    assert as_generator(3).random() == as_generator(np.int64(3)).random()
    assert as_generator(3).random() != as_generator(4).random()
    generator = np.random.default_rng(0)
    assert as_generator(generator) is generator
    assert as_generator(None).random() != as_generator(None).random()
    state = np.random.RandomState(5)
    first = as_generator(state).random()
    assert first == as_generator(np.random.RandomState(5)).random()
    assert first != as_generator(state).random()


@pytest.mark.parametrize(
    ("random_state", "message"),
    [
        ("seed", "`random_state` must be a whole number, a numpy Generator or None; got 'seed'"),
        (1.5, "`random_state` must be a whole number"),
        (-1, "`random_state` must not be negative; got -1"),
    ],
)
def test_unusable_random_states_are_refused(random_state, message):
    with pytest.raises(InputError, match=message):
        as_generator(random_state)


def test_drawn_seeds_fit_into_31_bits_and_repeat():
    generator = as_generator(0)
    seeds = [draw_seed(generator) for _ in range(50)]
    assert len(set(seeds)) == 50
    assert all(isinstance(seed, int) and 0 <= seed < 2**31 for seed in seeds)
    assert seeds[0] == draw_seed(as_generator(0))


# --- names and numbers ----------------------------------------------------------------------


def test_unknown_names_and_options_list_the_known_ones():
    error = unknown_name("label", "appel", ["pear", "apple"])
    assert str(error) == "Unknown label 'appel'; known: apple, pear; did you mean 'apple'?"
    assert str(unknown_name("label", "zzz", ["b", "a"])) == "Unknown label 'zzz'; known: a, b."
    check_option("mode", "a", ("a", "b"), owner="Thing")
    with pytest.raises(InputError, match=r"`mode` of `Thing` must be one of 'a', 'b'; got 'c'\."):
        check_option("mode", "c", ("a", "b"), owner="Thing")


@pytest.mark.parametrize(
    ("value", "limits"),
    [
        (1, {}),
        (0, {"low": 0}),
        (1.5, {"high": 1.5}),
        (np.float32(0.5), {"low": 0, "above": True}),
        (np.int16(3), {"whole": True, "low": 3, "high": 3}),
        (2**31, {"whole": True, "high": 2**63 - 1}),
    ],
)
def test_numbers_in_range_pass(value, limits):
    check_number("n", value, owner="Thing", **limits)


@pytest.mark.parametrize(
    ("value", "limits", "message"),
    [
        (-1, {"low": 0}, "`n` of `Thing` must be a number at least 0; got -1."),
        (0, {"low": 0, "above": True}, "`n` of `Thing` must be a number above 0; got 0."),
        (2, {"low": 0, "high": 1}, "a number at least 0 and at most 1; got 2."),
        (2**31, {"whole": True}, "a whole number at most 2147483647; got 2147483648."),
        (1.0, {"whole": True}, "`n` of `Thing` must be a whole number; got 1.0."),
        (True, {"whole": True}, "must be a whole number; got True."),
        ("3", {}, "must be a number; got '3'."),
        (None, {"low": 1, "whole": True}, "must be a whole number at least 1; got None."),
        (np.nan, {}, "must be a number; got nan."),
        (np.inf, {"low": 0}, "must be a number at least 0; got inf."),
    ],
)
def test_numbers_out_of_range_are_named(value, limits, message):
    with pytest.raises(InputError, match=re.escape(message)):
        check_number("n", value, owner="Thing", **limits)


def test_none_is_in_range_only_where_it_is_the_default():
    ranges = {"nu": {"low": 0, "high": 1}, "n_folds": {"low": 2, "whole": True}}
    check_ranges(InstanceMapper(nu=None), ranges)
    for wrong in ({"nu": 2.0}, {"n_folds": None}):
        with pytest.raises(InputError, match=f"`{next(iter(wrong))}` of `InstanceMapper` must be"):
            check_ranges(InstanceMapper(**wrong), ranges)


def test_unfitted_is_both_a_value_and_an_attribute_error():
    plan = TrainingPlan()
    for kind in (NotFittedError, ValueError, AttributeError):
        with pytest.raises(kind, match="This TrainingPlan is not fitted yet; call `fit` first"):
            check_fitted(plan, "learned_")
    check_fitted(plan, "optimizer")


# --- feature matrices -----------------------------------------------------------------------

NUMBERS = np.array([[1, 0], [0, 2], [3, 4]])
DENSE = [np.array, np.float32, list, pd.DataFrame, pl.DataFrame, lambda rows: rows.astype(object)]
SPARSE = [sp.csr_matrix, sp.coo_matrix, sp.csc_array, sp.lil_matrix]


@pytest.mark.parametrize("form", DENSE + SPARSE)
def test_features_of_any_form_become_float64_and_sparse_stays_sparse(form):
    matrix = check_features(form(NUMBERS), owner="Thing", n_features=2)
    assert isinstance(matrix, sp.csr_matrix if form in SPARSE else np.ndarray)
    assert matrix.dtype == np.float64
    assert_array_equal(matrix.toarray() if form in SPARSE else matrix, NUMBERS)


@pytest.mark.parametrize(
    ("features", "message"),
    [
        ([1.0, 2.0], "`X` must have two dimensions .* for `Thing`; got 1. Reshape your data"),
        (np.zeros((3, 0)), r"0 feature\(s\) \(shape=\(3, 0\)\) while a minimum of 1 is required"),
        (np.zeros((3, 4)), "X has 4 features, but Thing is expecting 2 features as input"),
        (sp.csr_matrix((3, 4)), "X has 4 features, but Thing is expecting 2 features as input"),
        ([["a", "b"]], "`X` of `Thing` must hold numbers only; .*Encode text columns first"),
        ([[1.0, 2.0], [3.0]], "`X` of `Thing` must hold numbers only; .*inhomogeneous"),
        ([[1j, 0]], "Complex data not supported by `Thing`"),
        (sp.csr_matrix(np.array([[1j, 0]])), "Complex data not supported by `Thing`"),
    ],
)
def test_unusable_features_are_refused(features, message):
    with pytest.raises(InputError, match=message):
        check_features(features, owner="Thing", n_features=2)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("form", [np.array, sp.csr_matrix])
def test_rows_with_nan_or_infinity_are_named(bad, form):
    features = np.ones((9, 2))
    features[[1, 3, 4, 5, 6, 8], 1] = bad
    message = r"`X` of `Thing` contains NaN or infinity in row\(s\) 1, 3, 4, 5, 6 and 1"
    with pytest.raises(InputError, match=message):
        check_features(form(features), owner="Thing")


def test_neither_stored_zeros_nor_sums_of_large_numbers_hide_or_feign_infinity():
    data = [0.0, 0.0, np.nan]
    rows = [0, 1, 2]
    columns = [0, 0, 1]
    with pytest.raises(InputError, match=r"row\(s\) 2; impute or drop"):
        check_features(sp.csr_matrix((data, (rows, columns)), shape=(3, 2)), owner="Thing")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(InputError, match=r"row\(s\) 0, 1;"):
            check_features([[np.inf, 0.0], [-np.inf, 0.0]], owner="Thing")
        assert (check_features([[1e100, -1e100]], owner="Thing") == [1e100, -1e100]).all()
        with pytest.raises(InputError, match=r"beyond 1e\+100 in row\(s\) 1; scale them first"):
            check_features([[1.0, 0.0], [1e308, 1e308]], owner="Thing")


# --- the training plan ----------------------------------------------------------------------

# For each parameter: a value at the end of its range, and what lies beyond.
PLAN = {
    "optimizer": ("sgd", "rmsprop"),
    "schedule": ("step", "flat"),
    "reduction": ("sum", "max"),
    "learning_rate": (1e-9, 0),
    "decay": (1, 1.1),
    "decay_every": (1, 0),
    "batch_size": (2, 1),
    "min_steps": (1, 0),
    "max_epochs": (1, 0),
    "min_epochs": (0, -1),
    "patience": (1, 0),
    "validation_fraction": (0.9, 1.0),
    "negatives_per_positive": (0, -1),
    "pretrain_epochs": (0, -1),
    "prediction_epochs": (0, 2.5),
    "max_steps": (1, 0),
}


def test_every_parameter_of_the_plan_is_checked():
    assert set(PLAN) == set(TrainingPlan().get_params())
    TrainingPlan().check()
    TrainingPlan(**{name: value for name, (value, _) in PLAN.items()}).check()
    for name, (_, value) in PLAN.items():
        with pytest.raises(InputError, match=f"`{name}` of `TrainingPlan` must be .*; got "):
            TrainingPlan(**{name: value}).check()


def test_rates_fall_as_a_cosine_or_in_steps():
    plan = TrainingPlan(learning_rate=0.5)
    rates = [plan.rate(epoch, 10) for epoch in range(11)]
    assert_allclose([rates[0], rates[5], rates[10]], [0.5, 0.25, 0], atol=1e-15)
    assert rates == sorted(rates, reverse=True)
    plan = TrainingPlan(learning_rate=1e-4, schedule="step", decay=0.95, decay_every=200)
    assert [plan.rate(epoch, 600) for epoch in (0, 199)] == [1e-4, 1e-4]
    assert plan.rate(200, 600) == pytest.approx(0.95e-4)
    assert plan.rate(599, 600) == pytest.approx(0.95**2 * 1e-4)


def test_columns_are_known_by_their_names_and_not_by_attributes():
    X = np.arange(6.0).reshape(2, 3)
    frame = pd.DataFrame(X, columns=["ids", "column_names", "columns"])
    assert column_names(frame) == ("ids", "column_names", "columns")
    assert split_ids(frame)[1] is None
    features, ids = split_ids(frame.assign(id=["a", "b"]))
    assert ids == ["a", "b"]
    assert_array_equal(check_features(features, owner="x"), X)
    row = pd.Series(X[0], index=["ids", "column_names", "columns"])
    assert_array_equal(as_row(row), X[:1])
    assert split_ids(row)[1] is None
    corpus = as_corpus(frame > 0)
    assert corpus.labels == ("ids", "column_names", "columns")
    with pytest.raises(InputError, match=r"X names column\(s\) twice: a; rename one"):
        split_ids(pd.DataFrame(X, columns=["a", "a", "b"]))


def test_rows_that_are_no_numbers_are_refused_in_a_sentence():
    class Stubborn:
        def __array__(self, *_, **__):
            raise RuntimeError("not now")

    with pytest.raises(InputError, match="`X` of `x` must hold numbers only; not now"):
        check_features(Stubborn(), owner="x")
    for row in (Stubborn(), [[1, 2], [1]]):
        with pytest.raises(InputError, match="One item is a row of numbers"):
            as_row(row)
