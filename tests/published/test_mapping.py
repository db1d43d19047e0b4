"""The instance mapper: what it predicts, searches, refuses and keeps."""

from __future__ import annotations

import json
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from sklearn.kernel_ridge import KernelRidge
from sklearn.utils.estimator_checks import parametrize_with_checks

from polyseme._validation import InputError, NotFittedError, PolysemeWarning
from polyseme.published.kernels import GAMMA_GRID, rbf_kernel
from polyseme.published.mapping import C_GRID, NU_GRID, PENALTY_GRID, InstanceMapper, cross_validate
from polyseme.published.regression import landmarks_within, solve_kernel_ridge

QUICK = {"nu-svr": {"nu": 0.43, "C": 2.0}, "kernel-ridge": {"penalty": 0.5}}
kinds = pytest.mark.parametrize("kind", list(QUICK))
forms = pytest.mark.parametrize("form", [np.asarray, sp.csr_matrix])


def quick(kind="nu-svr", **parameters):
    """A mapper that searches nothing."""
    given = {"kind": kind, "gamma": "median", "random_state": 0, **QUICK[kind]}
    return InstanceMapper(**(given | parameters))


def world(n=90, n_features=5, d=3, noise=0.1, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, n_features)) * np.linspace(0.1, 50, n_features) + 7
    inner = (X - 7) / np.linspace(0.1, 50, n_features)
    return X, np.tanh(inner @ rng.normal(size=(n_features, d))) + noise * rng.normal(size=(n, d))


def counts(n=60, n_features=8, seed=0):
    X = np.random.default_rng(seed).poisson(0.5, size=(n, n_features)).astype(float)
    X[3] = 0
    return X, np.column_stack([np.sin(X.sum(axis=1)), X[:, 0] - X[:, 1]])


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


# ------------------------------------------------------------------ predictions


@kinds
def test_smooth_points_are_predicted_for_unseen_instances(kind):
    X, points = world(n=300, noise=0.02, n_features=3)
    mapper = InstanceMapper(kind=kind, random_state=0).fit(X[:200], points[:200])
    assert mapper.score(X[200:], points[200:]) > 0.9


@pytest.mark.parametrize("memory_mb", [1e-6, 0.01])
@forms
def test_predictions_in_blocks_equal_predictions_at_once(memory_mb, form):
    X, points = counts()
    mapper = quick().fit(form(X), points)
    expected = mapper.predict(form(X))
    blocked = mapper.set_params(memory_mb=memory_mb).predict(form(X))
    assert np.allclose(blocked, expected, rtol=0, atol=1e-12)
    assert mapper.predict(form(X)[:0]).shape == (0, 2)


@kinds
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


def test_scaling_ignores_units_of_columns_lengths_of_rows_and_far_offsets():
    X, points = world()
    lengths = np.random.default_rng(1).uniform(0.1, 10, size=(len(X), 1))
    for scaling, changed in (
        ("standard", X * [1e3, 1, 1e-3, 2, 5] - [4, 0, 1, 0, 1e4]),
        ("l2", X * lengths),
    ):
        expected = quick(scaling=scaling).fit(X, points).predict(X)
        predicted = quick(scaling=scaling).fit(changed, points).predict(changed)
        assert np.allclose(predicted, expected, atol=1e-6)
    X, points = world(n=600)  # float32
    expected = quick(scaling="none").fit(X, points).predict(X)
    far = quick(scaling="none").fit(X + 1e6, points).predict(X + 1e6)
    assert np.allclose(far, expected, atol=1e-3)


# ------------------------------------------------------------------ kernel ridge


@pytest.mark.parametrize("make", [np.asarray, torch.from_numpy], ids=["numpy", "torch"])
@pytest.mark.parametrize("penalty", [0.01, 1.0, 30.0])
def test_kernel_ridge_equals_scikit_learn_on_centred_targets(penalty, make):
    X, Y = world()
    kernel = rbf_kernel(X, 1e-3)
    coefficients, bias = solve_kernel_ridge(make(kernel), Y, penalty)
    reference = KernelRidge(alpha=penalty, kernel="precomputed").fit(kernel, Y - Y.mean(axis=0))
    assert np.allclose(coefficients, reference.dual_coef_)
    assert np.allclose(bias, Y.mean(axis=0))


def test_kernel_ridge_turns_to_double_precision_where_single_fails():
    X = np.random.default_rng(0).normal(size=(200, 1)).astype(np.float32)
    kernel = rbf_kernel(X, 0.01)
    Y = np.sin(X)
    coefficients, _ = solve_kernel_ridge(kernel, Y, 2e-6)
    assert coefficients.dtype == np.float32
    exact, _ = solve_kernel_ridge(kernel.astype(np.float64), Y, 2e-6)
    assert np.allclose(coefficients, exact, rtol=1e-3)
    for make in (np.asarray, torch.from_numpy):
        with pytest.raises(InputError, match="`penalty` is too small for this kernel"):
            solve_kernel_ridge(make(np.ones((3, 3))), np.eye(3), 1e-17)


# ------------------------------------------------------------------ search


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


def test_given_settings_are_used_and_not_searched():
    X, points = world()
    mapper = InstanceMapper(nu=0.3, C=1, gamma=1, scaling="l2").fit(X, points)
    assert (mapper.nu_, mapper.C_, mapper.gamma_) == (0.3, 1.0, 1.0)
    assert mapper.cv_results_ == []
    partly = InstanceMapper(nu=0.3, C=1.0, random_state=0).fit(X, points)
    assert [one["nu"] for one in partly.cv_results_] == [0.3] * len(GAMMA_GRID)


@pytest.mark.parametrize("n_landmarks", [None, 30])
def test_same_seed_gives_the_same_model_and_another_another(n_landmarks):
    X, points = world()
    first, again, other = (
        InstanceMapper(nu=0.4, C=1.0, n_landmarks=n_landmarks, random_state=seed).fit(X, points)
        for seed in (3, 3, 4)
    )
    assert (first.predict(X) == again.predict(X)).all()
    assert first.cv_results_ == again.cv_results_ != other.cv_results_
    assert len(first.support_) == len(first.X_fit_) == len(first.dual_coef_) < len(X)
    assert np.allclose(first.X_fit_, (X[first.support_] - first.mean_) / first.scale_)


def test_cross_validation_error_equals_a_plain_loop():
    X, Y = world(n=30)
    setting = {"gamma": 0.3, "penalty": 0.5}
    errors = cross_validate(X, Y, [setting], 3, 100, np.random.default_rng(5))
    folds = np.array_split(np.random.default_rng(5).permutation(30), 3)
    for held_out, error in zip(folds, errors[:, 0], strict=True):
        train = np.setdiff1d(np.arange(30), held_out)
        model = KernelRidge(alpha=0.5, kernel="rbf", gamma=0.3)
        mean = Y[train].mean(axis=0)
        predicted = model.fit(X[train], Y[train] - mean).predict(X[held_out]) + mean
        assert error == pytest.approx(((predicted - Y[held_out]) ** 2).mean())


# ------------------------------------------------------------------ degenerate input


def test_fewer_instances_than_folds_lower_the_folds_with_a_warning():
    X, points = world(n=2)
    with pytest.warns(PolysemeWarning, match="`n_folds` of `InstanceMapper` is 3 but there are on"):
        mapper = InstanceMapper(random_state=0).fit(X, points)
    assert len(mapper.cv_results_[0]["mse_folds"]) == 2
    assert np.isfinite(mapper.predict(X)).all()


@kinds
def test_one_instance_and_constant_features_or_points_are_fine(kind):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        mapper = InstanceMapper(kind=kind, random_state=0).fit([[1.0, 2.0]], [[3.0, -4.0]])
    assert mapper.predict([[1.0, 2.0], [50.0, 0.0]]).tolist() == [[3.0, -4.0]] * 2
    same_rows = mapper.fit(np.ones((12, 3)), np.arange(12.0)).predict(np.ones((2, 3)))
    assert same_rows[0] == same_rows[1]
    assert 0 <= same_rows[0] <= 11
    X, _ = world(n=12)
    constant = mapper.fit(X, np.full((12, 2), 0.1)).predict(X)
    assert np.allclose(constant, 0.1, atol=1e-12)


# ------------------------------------------------------------------ errors


@pytest.mark.parametrize(
    ("parameters", "points", "message"),
    [
        ({"kind": "svm"}, [1.0] * 3, "`kind` .* must be one of 'nu-svr', 'kernel-ridge'"),
        ({"nu": 0}, [1.0] * 3, "`nu` of `InstanceMapper` must be a number above 0 and at most 1"),
        ({"gamma": "scale"}, [1.0] * 3, "`gamma` of `InstanceMapper` must be one of 'median'"),
        ({"n_landmarks": 1.5}, [1.0] * 3, "`n_landmarks` .* must be a whole number"),
        ({"device": "nowhere"}, [1.0] * 3, "`device` .* is 'nowhere', which torch cannot"),
        ({}, None, "requires y to be passed"),
        ({}, [1.0, 2.0], r"one point for each of the 3 rows of `X` .* got shape \(2,\)"),
        ({}, [[1.0], [np.nan], [np.inf]], r"NaN or infinity, first in row 1; .* \(2 in all\)"),
        ({}, [["a"], ["b"], ["c"]], "`points` of `InstanceMapper` must hold numbers only"),
        ({}, np.zeros((3, 0)), r"at least one coordinate; got shape \(3, 0\)"),
    ],
)
def test_unusable_parameters_and_points_are_named(parameters, points, message):
    with pytest.raises(InputError, match=message):
        quick().set_params(**parameters).fit([[1.0], [2.0], [3.0]], points)


def test_unfitted_mappers_say_so():
    for ask in (lambda mapper: mapper.predict([[1.0]]), InstanceMapper.get_state):
        with pytest.raises(
            NotFittedError, match="This InstanceMapper is not fitted yet; call `fit"
        ):
            ask(InstanceMapper())


# ------------------------------------------------------------------ landmarks


@kinds
def test_landmarks_take_over_beyond_the_memory_bound_and_say_so(kind):
    X, points = world(n=520)
    count = landmarks_within(520, 2**20, 4 if kind == "nu-svr" else 0)
    message = rf"has 520 instances.*`memory_mb` is 1: points are predicted from {count} landmarks"
    with pytest.warns(PolysemeWarning, match=message) as caught:
        mapper = quick(kind, memory_mb=1).fit(X, points)
    assert len(caught) == 1
    assert 0 < mapper.n_landmarks_ == len(mapper.X_fit_) == len(mapper.support_) <= 128
    rows = (X[mapper.support_] - mapper.mean_) / mapper.scale_
    assert np.allclose(mapper.X_fit_, rows, atol=1e-5)
    exact = quick(kind).fit(X, points)
    few, more = (quick(kind, n_landmarks=m).fit(X, points).predict(X) for m in (5, 520))
    assert exact.n_landmarks_ is None
    assert np.abs(more - exact.predict(X)).max() < min(0.05, np.abs(few - exact.predict(X)).max())


@kinds
@pytest.mark.parametrize("scaling", ["standard", "l2", "none"])
@pytest.mark.parametrize(
    "X",
    [
        np.ones((40, 3)),
        np.repeat(np.eye(3), 20, axis=0),
        np.arange(40.0)[:, None] * [[1e12, 1e-12]],
        np.ones((1, 2)),
    ],
    ids=["constant", "duplicates", "scales", "one row"],
)
def test_landmarks_of_degenerate_features_are_fine(kind, X, scaling):
    mapper = quick(kind, n_landmarks=25, scaling=scaling).fit(X, np.linspace(0, 1, len(X)))
    assert 1 <= mapper.n_landmarks_ <= min(25, len(np.unique(X, axis=0)))
    predicted = mapper.predict(X)
    assert np.isfinite(predicted).all()
    assert (predicted >= -1).all()
    assert (predicted <= 2).all()


@kinds
@pytest.mark.parametrize("n_landmarks", [None, 40])
def test_settings_are_searched_on_a_sample_of_many_instances(kind, n_landmarks):
    X, points = world(n=1200)
    searched = {"nu-svr": {"nu": None}, "kernel-ridge": {"penalty": None}}[kind]
    few, more = (
        quick(kind, n_landmarks=n_landmarks, search_size=size, **searched).fit(X, points)
        for size in (60, 600)
    )
    errors = [min(one["mse"] for one in mapper.cv_results_) for mapper in (few, more)]
    assert len(few.cv_results_) > 1
    assert errors[1] < errors[0]
    assert few.fit(X, points, np.arange(1200) // 10).cv_results_


# ------------------------------------------------------------------ devices and state


@kinds
@pytest.mark.parametrize("n", [100, 600])  # float64 and float32
@pytest.mark.parametrize("n_landmarks", [None, 40])
@forms
def test_a_device_finds_what_the_processor_finds(kind, n, n_landmarks, form):
    X, points = counts(n=n)
    plain = quick(kind, n_landmarks=n_landmarks, device="cpu").fit(form(X), points)
    device = quick(kind, n_landmarks=n_landmarks, device="cpu:0").fit(form(X), points)
    expected = plain.predict(X)
    assert np.abs(device.predict(form(X)) - expected).max() <= (1e-3 if n_landmarks else 2e-3)
    assert np.allclose(plain.set_params(device="cpu:0").predict(X), expected, atol=1e-4)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
@kinds
@pytest.mark.parametrize("n_landmarks", [None, 100])
def test_a_gpu_finds_what_the_processor_finds(kind, n_landmarks):
    X, points = world(n=2000)
    expected, found = (
        quick(kind, n_landmarks=n_landmarks, device=device).fit(X, points).predict(X)
        for device in ("cpu", "cuda")
    )
    assert np.abs(found - expected).max() <= 5e-3


@kinds
@forms
@pytest.mark.parametrize("n", [60, 600])  # float64 and float32
@pytest.mark.parametrize("n_landmarks", [None, 30])
def test_restored_mapper_predicts_bit_for_bit_the_same(kind, form, n, n_landmarks):
    X, points = counts(n=n)
    given = {"nu": 0.4, "C": 1.0, "n_folds": 2, "search_size": 50, "device": "cpu"}
    given["random_state"] = np.random.default_rng(0)
    mapper = InstanceMapper(kind, n_landmarks=n_landmarks, **given).fit(form(X), points[:, 0])
    config, arrays = mapper.get_state()
    restored = InstanceMapper.from_state(json.loads(json.dumps(config)), dict(arrays))
    expected = mapper.predict(form(X))
    assert expected.ndim == 1
    assert restored.get_params() == mapper.get_params() | {"device": None, "random_state": None}
    assert restored.get_state()[0] == config
    for array in arrays.values():
        array[...] = 0
    assert np.array_equal(restored.predict(form(X)), expected)
