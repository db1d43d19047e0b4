from __future__ import annotations

import json
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse as sp
import torch
from sklearn.exceptions import NotFittedError
from sklearn.utils.estimator_checks import parametrize_with_checks

from polyseme import _validation
from polyseme._validation import InputError, PolysemeWarning
from polyseme.published.mapping import InstanceMapper
from polyseme.published.solvers.search import C_GRID, GAMMA_GRID, NU_GRID, PENALTY_GRID

QUICK = {"nu-svr": {"nu": 0.4, "C": 2.0}, "kernel-ridge": {"penalty": 0.5}}
KINDS = list(QUICK)


def quick(kind="nu-svr", **parameters):
    """A mapper that searches nothing."""
    return InstanceMapper(**({"kind": kind, "gamma": "median", **QUICK[kind]} | parameters))


def world(n=90, n_features=5, d=3, noise=0.1, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, n_features)) * np.linspace(0.1, 50, n_features) + 7
    inner = (X - 7) / np.linspace(0.1, 50, n_features)
    return X, np.tanh(inner @ rng.normal(size=(n_features, d))) + noise * rng.normal(size=(n, d))


def counts(n=60, n_features=8, seed=0):
    X = np.random.default_rng(seed).poisson(0.5, size=(n, n_features)).astype(float)
    X[3] = 0
    return X, np.column_stack([np.sin(X.sum(axis=1)), X[:, 0] - X[:, 1]])


# scikit-learn

EXPECTED_FAILURES = {
    "check_fit_score_takes_y": "the second argument of `fit` is named `points`, the project's word",
    "check_dtype_object": "features that are no numbers raise our InputError, not a TypeError",
}


@parametrize_with_checks(
    [
        InstanceMapper(kind="nu-svr", nu=0.4, C=1.0, gamma="median"),
        InstanceMapper(kind="kernel-ridge", n_folds=2),
    ],
    expected_failed_checks=lambda estimator: EXPECTED_FAILURES,
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


# Predictions


@pytest.mark.parametrize("kind", KINDS)
def test_smooth_points_are_predicted_for_unseen_instances(kind):
    X, points = world(n=300, noise=0.02, n_features=3)
    mapper = InstanceMapper(kind=kind, random_state=0).fit(X[:200], points[:200])
    assert mapper.score(X[200:], points[200:]) > 0.9


@pytest.mark.parametrize("n", [100, 600])  # float64 and float32
def test_both_solvers_predict_the_same(n):
    X, points = world(n=n)
    predicted = [
        quick(solver=solver, nu=0.43, tolerance=tolerance).fit(X, points).predict(X[:50])
        for solver, tolerance in (("admm", 1e-4), ("libsvm", 1e-6))
    ]
    assert np.abs(predicted[0] - predicted[1]).max() <= 1e-3


def test_only_support_instances_are_kept():
    X, points = world(noise=0.0)
    mapper = quick(nu=0.1).fit(X, points[:, 0])
    assert len(mapper.support_) == len(mapper.X_fit_) == len(mapper.dual_coef_) < len(X)
    assert mapper.dual_coef_.any(axis=1).all()
    scaled = (X[mapper.support_] - mapper.mean_) / mapper.scale_
    assert np.allclose(mapper.X_fit_, scaled)


@pytest.mark.parametrize("kind", KINDS)
def test_one_dimensional_points_give_one_dimensional_predictions(kind):
    X, points = world()
    flat = quick(kind).fit(X, points[:, 0]).predict(X)
    column = quick(kind).fit(X, points[:, :1]).predict(X)
    assert flat.shape == (90,)
    assert column.shape == (90, 1)
    assert (flat == column[:, 0]).all()


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame, np.ndarray.tolist])
def test_frames_and_lists_give_the_same_as_arrays(frame):
    X, points = world()
    expected = quick().fit(X, points).predict(X)
    assert (quick().fit(frame(X), frame(points)).predict(frame(X)) == expected).all()


@pytest.mark.parametrize("memory_mb", [1e-6, 0.01, 1.0])
@pytest.mark.parametrize("make", [np.asarray, sp.csr_matrix])
def test_predictions_in_blocks_equal_predictions_at_once(memory_mb, make):
    X, points = counts()
    mapper = quick().fit(make(X), points)
    expected = mapper.predict(make(X))
    blocked = mapper.set_params(memory_mb=memory_mb).predict(make(X))
    assert np.allclose(blocked, expected, rtol=0, atol=1e-12)


def test_no_instances_give_no_points():
    X, points = world()
    assert quick().fit(X, points).predict(X[:0]).shape == (0, 3)


# Scaling and sparse features


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("scaling", ["standard", "l2", "none"])
def test_sparse_features_predict_as_dense_ones(kind, scaling):
    X, points = counts()
    dense = quick(kind, scaling=scaling, tolerance=1e-7).fit(X, points)
    sparse = quick(kind, scaling=scaling, tolerance=1e-7).fit(sp.csr_array(X), points)
    assert sp.issparse(sparse.X_fit_)
    expected = dense.predict(X)
    for mapper in (dense, sparse):
        for form in (np.asarray, sp.csr_matrix):
            assert np.allclose(mapper.predict(form(X)), expected, atol=1e-5)


def test_standard_scaling_ignores_units_of_the_columns():
    X, points = world()
    expected = quick().fit(X, points).predict(X)
    changed = X * [1e3, 1, 1e-3, 2, 5] - [4, 0, 1, 0, 1e4]
    assert np.allclose(quick().fit(changed, points).predict(changed), expected, atol=1e-6)


def test_l2_scaling_ignores_lengths_of_the_rows():
    X, points = world()
    expected = quick(scaling="l2").fit(X, points).predict(X)
    lengths = np.random.default_rng(1).uniform(0.1, 10, size=(len(X), 1))
    assert np.allclose(
        quick(scaling="l2").fit(X * lengths, points).predict(X * lengths), expected, atol=1e-9
    )


def test_no_scaling_uses_the_features_as_they_are():
    X = np.array([[0.0, 0.0], [3.0, 4.0]])
    mapper = InstanceMapper(kind="kernel-ridge", gamma=0.1, penalty=1.0, scaling="none")
    predicted = mapper.fit(X, [0.0, 2.0]).predict(X)
    off = np.exp(-0.1 * 25)  # (K + I) c = [-1, 1]
    assert predicted == pytest.approx([1 - (1 - off) / (2 - off), 1 + (1 - off) / (2 - off)])


def test_far_offsets_cost_no_digits():
    X, points = world(n=600)  # float32
    expected = quick(scaling="none").fit(X, points).predict(X)
    assert np.allclose(
        quick(scaling="none").fit(X + 1e6, points).predict(X + 1e6), expected, atol=1e-3
    )


# Search


def test_search_covers_the_documented_grids():
    X, points = world()
    svr = InstanceMapper(random_state=0).fit(X, points)
    assert len(svr.cv_results_) == len(GAMMA_GRID) * len(C_GRID) * len(NU_GRID)
    spread = np.sqrt(points.var(axis=0).mean())
    assert {one["C"] for one in svr.cv_results_} == {spread * factor for factor in C_GRID}
    ridge = InstanceMapper(kind="kernel-ridge", random_state=0).fit(X, points)
    assert len(ridge.cv_results_) == len(GAMMA_GRID) * len(PENALTY_GRID)
    for mapper, names in ((svr, ("gamma", "C", "nu")), (ridge, ("gamma", "penalty"))):
        best = min(mapper.cv_results_, key=lambda one: one["mse"])
        assert [getattr(mapper, f"{name}_") for name in names] == [best[name] for name in names]
        assert best["mse"] == pytest.approx(np.mean(best["mse_folds"]))
    assert svr.penalty_ is ridge.nu_ is ridge.C_ is None


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("waves", "factor"), [(2.0, 4.0), (0.3, 0.25)])
def test_search_picks_the_gamma_that_fits_the_points(kind, waves, factor):
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(150, 1))
    noise = 0.05 if waves > 1 else 0.5
    points = np.sin(waves * np.pi * X) + noise * rng.normal(size=X.shape)
    mapper = quick(kind, gamma=None, random_state=0).fit(X, points)
    gammas = [one["gamma"] for one in mapper.cv_results_]
    assert mapper.gamma_ == (max(gammas) if factor > 1 else min(gammas))
    assert max(gammas) / min(gammas) == pytest.approx(16)


def test_given_settings_are_used_and_not_searched():
    X, points = world()
    mapper = InstanceMapper(nu=0.3, C=1, gamma=1, scaling="l2").fit(X, points)
    assert (mapper.nu_, mapper.C_, mapper.gamma_) == (0.3, 1.0, 1.0)
    assert mapper.cv_results_ == []
    partly = InstanceMapper(nu=0.3, C=1.0, random_state=0).fit(X, points)
    assert {one["nu"] for one in partly.cv_results_} == {0.3}
    assert len(partly.cv_results_) == len(GAMMA_GRID)


def test_gamma_by_name_follows_the_heuristic():
    X, points = world()
    scaled = (X - X.mean(axis=0)) / X.std(axis=0)
    pairs = ((scaled[:, None] - scaled) ** 2).sum(axis=2)[np.triu_indices(len(X), 1)]
    assert quick(gamma="median").fit(X, points).gamma_ == pytest.approx(1 / np.median(pairs))
    assert quick(gamma="variance").fit(X, points).gamma_ == pytest.approx(1 / 5)


def test_same_seed_gives_the_same_model_and_another_another_search():
    X, points = world()
    first, again, other = (
        InstanceMapper(nu=0.4, C=1.0, random_state=seed).fit(X, points) for seed in (3, 3, 4)
    )
    assert (first.predict(X) == again.predict(X)).all()
    assert first.cv_results_ == again.cv_results_
    assert first.cv_results_ != other.cv_results_


def test_search_size_limits_the_search_and_not_the_fit():
    X, points = world(n=200)
    small = InstanceMapper(kind="kernel-ridge", search_size=40, random_state=0).fit(X, points)
    whole = InstanceMapper(kind="kernel-ridge", random_state=0).fit(X, points)
    assert small.cv_results_[0]["gamma"] == whole.cv_results_[0]["gamma"]
    assert small.cv_results_[0]["mse"] > whole.cv_results_[0]["mse"]
    assert len(small.X_fit_) == 200


# Degenerate input


def test_fewer_instances_than_folds_lower_the_folds_with_a_warning():
    X, points = world(n=2)
    with pytest.warns(PolysemeWarning, match="`n_folds` of `InstanceMapper` is 3 but there are on"):
        mapper = InstanceMapper(random_state=0).fit(X, points)
    assert len(mapper.cv_results_[0]["mse_folds"]) == 2
    assert np.isfinite(mapper.predict(X)).all()


@pytest.mark.parametrize("kind", KINDS)
def test_one_instance_makes_a_constant_predictor(kind):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        mapper = InstanceMapper(kind=kind).fit([[1.0, 2.0]], [[3.0, -4.0]])
    assert mapper.predict([[1.0, 2.0], [50.0, 0.0]]).tolist() == [[3.0, -4.0]] * 2


@pytest.mark.parametrize("kind", KINDS)
def test_constant_features_and_points_are_fine(kind):
    mapper = InstanceMapper(kind=kind, random_state=0)
    same_rows = mapper.fit(np.ones((12, 3)), np.arange(12.0)).predict(np.ones((2, 3)))
    assert same_rows[0] == same_rows[1]
    assert 0 <= same_rows[0] <= 11
    X, _ = world(n=12)
    constant = mapper.fit(X, np.full((12, 2), 0.1)).predict(X)
    assert np.allclose(constant, 0.1, atol=1e-12)


# Errors


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"kind": "svm"}, "`kind` of `InstanceMapper` must be one of 'nu-svr', 'kernel-ridge'"),
        ({"scaling": "max"}, "`scaling` of `InstanceMapper` must be one of"),
        ({"solver": "smo"}, "`solver` of `InstanceMapper` must be one of"),
        ({"nu": 0}, "`nu` of `InstanceMapper` must be a number above 0 and at most 1; got 0"),
        ({"C": -1.0}, "`C` of `InstanceMapper` must be a number above 0; got -1.0"),
        ({"gamma": 0.0}, "`gamma` of `InstanceMapper` must be a number above 0"),
        ({"gamma": "scale"}, "`gamma` of `InstanceMapper` must be one of 'median', 'variance'"),
        ({"penalty": 0}, "`penalty` of `InstanceMapper` must be"),
        ({"tolerance": 0}, "`tolerance` of `InstanceMapper` must be"),
        ({"n_folds": 1}, "`n_folds` of `InstanceMapper` must be a whole number at least 2"),
        ({"search_size": 1}, "`search_size` of `InstanceMapper` must be"),
        ({"memory_mb": 0}, "`memory_mb` of `InstanceMapper` must be"),
        ({"random_state": "now"}, "`random_state` must be a whole number"),
    ],
)
def test_unusable_parameters_are_named(parameters, message):
    X, points = world(n=10)
    with pytest.raises(InputError, match=message):
        InstanceMapper(**parameters).fit(X, points)


@pytest.mark.parametrize(
    ("points", "message"),
    [
        (None, "requires y to be passed"),
        ([1.0, 2.0], "`points` of `InstanceMapper` has 2 rows but `X` has 3"),
        ([[1.0], [np.nan], [np.inf]], r"NaN or infinity, first in row 1; .* \(2 in all\)"),
        ([["a"], ["b"], ["c"]], "`points` of `InstanceMapper` must hold numbers only"),
        (np.zeros((3, 0)), r"at least one .* got shape \(3, 0\)"),
        (np.zeros((3, 1, 1)), r"must have shape \(n,\) or \(n, d\)"),
    ],
)
def test_unusable_points_are_explained(points, message):
    with pytest.raises(InputError, match=message):
        quick().fit([[1.0], [2.0], [3.0]], points)


def test_unusable_features_are_explained():
    X, points = world(n=10)
    mapper = quick().fit(X, points)
    X[4, 1] = np.nan
    with pytest.raises(InputError, match=r"`X` of `InstanceMapper` contains NaN .* row\(s\) 4"):
        quick().fit(X, points)
    with pytest.raises(InputError, match="X has 2 features, but InstanceMapper is expecting 5"):
        mapper.predict(X[:, :2])


def test_kernels_beyond_the_memory_bound_are_refused_to_libsvm_with_what_fits():
    X, points = world(n=520)
    message = "has 520 instances.* `memory_mb` is 1: raise it, or fit on .* at most 256 inst"
    with pytest.raises(InputError, match=message):
        quick(memory_mb=1, solver="libsvm").fit(X, points)


@pytest.mark.parametrize("error", [NotFittedError, _validation.NotFittedError, InputError])
def test_unfitted_mappers_say_so(error):
    with pytest.raises(error, match="This InstanceMapper is not fitted yet; call `fit` first"):
        InstanceMapper().predict([[1.0]])
    with pytest.raises(error, match="not fitted yet"):
        InstanceMapper().get_state()


# Devices: "cpu:0" is the processor by way of torch


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n", [100, 600])  # float64 and float32
@pytest.mark.parametrize("n_landmarks", [None, 40])
@pytest.mark.parametrize("make", [np.asarray, sp.csr_matrix])
def test_a_device_finds_what_the_processor_finds(kind, n, n_landmarks, make):
    X, points = counts(n=n)
    given = {"n_landmarks": n_landmarks, "random_state": 0, "nu": 0.43}
    plain = quick(kind, **given).fit(make(X), points)
    device = quick(kind, device="cpu:0", **given).fit(make(X), points)
    expected = plain.predict(X)
    assert np.abs(device.predict(make(X)) - expected).max() <= 2e-3
    assert np.allclose(plain.set_params(device="cpu:0").predict(X), expected, atol=1e-4)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n_landmarks", [None, 100])
def test_a_graphics_card_finds_what_the_processor_finds(kind, n_landmarks):
    X, points = world(n=2000)
    given = {"n_landmarks": n_landmarks, "random_state": 0, "nu": 0.43}
    expected = quick(kind, **given).fit(X, points).predict(X)
    found = quick(kind, device="cuda", **given).fit(X, points).predict(X)
    assert np.abs(found - expected).max() <= 5e-3


def test_devices_are_checked_and_left_out_of_the_state():
    X, points = world(n=20)
    with pytest.raises(InputError, match="`device` of `InstanceMapper` is 'nowhere', which torch"):
        quick(device="nowhere").fit(X, points)
    with pytest.raises(InputError, match="must be 'admm' for landmarks and devices"):
        quick(solver="libsvm", device="cpu:0").fit(X, points)
    config, arrays = quick(device="cpu:0").fit(X, points).get_state()
    assert "device" not in config["parameters"]
    assert InstanceMapper.from_state(config, arrays).device == "cpu"


# Persistence


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("make", [np.asarray, sp.csr_matrix])
@pytest.mark.parametrize("n", [60, 600])  # float64 and float32
def test_restored_mapper_predicts_bit_for_bit_the_same(kind, make, n):
    X, points = counts(n=n)
    mapper = InstanceMapper(
        kind=kind, nu=0.4, C=1.0, n_folds=2, search_size=50, random_state=np.int64(0)
    ).fit(make(X), points)
    config, arrays = mapper.get_state()
    restored = InstanceMapper.from_state(json.loads(json.dumps(config)), dict(arrays))
    assert np.array_equal(restored.predict(make(X)), mapper.predict(make(X)))
    assert np.array_equal(restored.predict(X[:1]), mapper.predict(X[:1]))
    assert restored.get_params() == mapper.get_params()
    assert restored.cv_results_ == mapper.cv_results_
    again, same = restored.get_state()
    assert again == config
    assert all(np.array_equal(same[name], arrays[name]) for name in arrays)


def test_restored_mapper_is_independent_of_the_arrays_given():
    X, points = world()
    config, arrays = quick().fit(X, points[:, 0]).get_state()
    restored = InstanceMapper.from_state(config, arrays)
    expected = restored.predict(X)
    for array in arrays.values():
        array[...] = 0
    assert (restored.predict(X) == expected).all()
    assert expected.ndim == 1


def test_restored_mapper_knows_the_names_of_the_features():
    X, points = world()
    frame = pd.DataFrame(X, columns=list("abcde"))
    config, arrays = quick().fit(frame, points).get_state()
    restored = InstanceMapper.from_state(config, arrays)
    assert restored.feature_names_in_.tolist() == list("abcde")
    with pytest.raises(ValueError, match="feature names should match"):
        restored.predict(frame.rename(columns={"a": "z"}))


def test_generators_are_left_out_of_the_state():
    X, points = world()
    mapper = quick(random_state=np.random.default_rng(0)).fit(X, points)
    assert mapper.get_state()[0]["parameters"]["random_state"] is None


@pytest.mark.parametrize("missing", ["dual_coef", "rows", "mean"])
def test_incomplete_states_are_refused(missing):
    X, points = world()
    config, arrays = quick().fit(X, points).get_state()
    del arrays[missing]
    with pytest.raises(InputError, match=r"The saved InstanceMapper lacks the array\(s\)"):
        InstanceMapper.from_state(config, arrays)
