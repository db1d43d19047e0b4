"""The instance mapper: what it predicts, searches, refuses and keeps."""

from __future__ import annotations

import json
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from numpy.testing import assert_allclose
from sklearn.kernel_ridge import KernelRidge
from sklearn.utils.estimator_checks import parametrize_with_checks

from polyseme.base.validation import InputError, NotFittedError, PolysemeWarning
from polyseme.published.kernels import GAMMA_GRID, rbf_kernel
from polyseme.published.mapping import C_GRID, NU_GRID, PENALTY_GRID, InstanceMapper, cross_validate
from polyseme.published.regression import landmarks_within, solve_kernel_ridge

QUICK = {"nu-svr": {"nu": 0.43, "C": 2.0}, "kernel-ridge": {"penalty": 0.5}}
kinds = pytest.mark.parametrize("kind", list(QUICK))
forms = pytest.mark.parametrize("form", [np.asarray, sp.csr_matrix])


def quick(kind="nu-svr", **parameters):
    settings = {"kind": kind, "gamma": "median", "random_state": 0}
    settings |= QUICK[kind]
    return InstanceMapper(**(settings | parameters))


def world(n=90, n_features=5, d=3, noise=0.1, seed=0):
    generator = np.random.default_rng(seed)
    inner = generator.normal(size=(n, n_features))
    directions = generator.normal(size=(n_features, d))
    smooth = np.tanh(inner @ directions)
    points = smooth + noise * generator.normal(size=(n, d))
    units = np.linspace(0.1, 50, n_features)
    return inner * units + 7, points


def counts(n=60, n_features=8, seed=0):
    generator = np.random.default_rng(seed)
    X = generator.poisson(0.5, size=(n, n_features)).astype(float)
    X[3] = 0
    total = X.sum(axis=1)
    difference = X[:, 0] - X[:, 1]
    return X, np.column_stack([np.sin(total), difference])


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
    mapper = InstanceMapper(kind=kind, random_state=0)
    mapper.fit(X[:200], points[:200])
    score = mapper.score(X[200:], points[200:])
    assert score > 0.9


@pytest.mark.parametrize("memory_mb", [1e-6, 0.01])
@forms
def test_predictions_in_blocks_equal_predictions_at_once(memory_mb, form):
    dense, points = counts()
    X = form(dense)
    mapper = quick().fit(X, points)
    expected = mapper.predict(X)
    mapper.set_params(memory_mb=memory_mb)
    predicted = mapper.predict(X)
    assert_allclose(predicted, expected, rtol=0, atol=1e-12)
    predicted_of_none = mapper.predict(X[:0])
    assert predicted_of_none.shape == (0, 2)


@kinds
@pytest.mark.parametrize("scaling", ["standard", "l2", "none"])
def test_sparse_features_predict_as_dense_ones(kind, scaling):
    X, points = counts()
    sparse_X = sp.csr_array(X)
    dense = quick(kind, scaling=scaling, tolerance=1e-7)
    dense.fit(X, points)
    sparse = quick(kind, scaling=scaling, tolerance=1e-7)
    sparse.fit(sparse_X, points)
    assert sp.issparse(sparse.X_fit_)
    expected = dense.predict(X)
    for mapper in (dense, sparse):
        for rows in (X, sp.csr_matrix(X)):
            predicted = mapper.predict(rows)
            assert np.allclose(predicted, expected, atol=1e-5)


def assert_same_predictions(X, changed_X, points, scaling, tolerance):
    """Check that fitting and predicting with changed features gives the same points."""
    mapper = quick(scaling=scaling).fit(X, points)
    expected = mapper.predict(X)
    mapper.fit(changed_X, points)
    predicted = mapper.predict(changed_X)
    assert np.allclose(predicted, expected, atol=tolerance)


def test_standard_scaling_ignores_units_and_offsets_of_columns():
    X, points = world()
    units = np.array([1e3, 1, 1e-3, 2, 5])
    offsets = np.array([4, 0, 1, 0, 1e4])
    assert_same_predictions(X, X * units - offsets, points, "standard", 1e-6)


def test_l2_scaling_ignores_lengths_of_rows():
    X, points = world()
    generator = np.random.default_rng(1)
    lengths = generator.uniform(0.1, 10, size=(len(X), 1))
    assert_same_predictions(X, X * lengths, points, "l2", 1e-6)


def test_far_offsets_are_no_matter_in_single_precision():
    X, points = world(n=600)
    assert_same_predictions(X, X + 1e6, points, "none", 1e-3)


# ------------------------------------------------------------------ kernel ridge


@pytest.mark.parametrize("make", [np.asarray, torch.from_numpy], ids=["numpy", "torch"])
@pytest.mark.parametrize("penalty", [0.01, 1.0, 30.0])
def test_kernel_ridge_equals_scikit_learn_on_centred_targets(penalty, make):
    X, Y = world()
    mean = Y.mean(axis=0)
    kernel = rbf_kernel(X, 1e-3)
    coefficients, bias = solve_kernel_ridge(make(kernel), Y, penalty)
    reference = KernelRidge(alpha=penalty, kernel="precomputed")
    reference.fit(kernel, Y - mean)
    assert np.allclose(coefficients, reference.dual_coef_)
    assert np.allclose(bias, mean)


def test_kernel_ridge_turns_to_double_precision_where_single_fails():
    generator = np.random.default_rng(0)
    X = generator.normal(size=(200, 1)).astype(np.float32)
    Y = np.sin(X)
    kernel = rbf_kernel(X, 0.01)
    coefficients, _ = solve_kernel_ridge(kernel, Y, 2e-6)
    assert coefficients.dtype == np.float32
    exact, _ = solve_kernel_ridge(kernel.astype(np.float64), Y, 2e-6)
    assert np.allclose(coefficients, exact, rtol=1e-3)


@pytest.mark.parametrize("make", [np.asarray, torch.from_numpy], ids=["numpy", "torch"])
def test_a_penalty_that_is_too_small_for_the_kernel_is_refused(make):
    singular_kernel = make(np.ones((3, 3)))
    with pytest.raises(InputError, match="`penalty` is too small for this kernel"):
        solve_kernel_ridge(singular_kernel, np.eye(3), 1e-17)


# ------------------------------------------------------------------ search


@pytest.mark.parametrize(
    ("kind", "names", "n_settings"),
    [
        ("nu-svr", ("gamma", "C", "nu"), len(GAMMA_GRID) * len(C_GRID) * len(NU_GRID)),
        ("kernel-ridge", ("gamma", "penalty"), len(GAMMA_GRID) * len(PENALTY_GRID)),
    ],
)
def test_search_covers_the_documented_grid_and_takes_its_best(kind, names, n_settings):
    X, points = world()
    mapper = InstanceMapper(kind=kind, random_state=0)
    mapper.fit(X, points)
    assert len(mapper.cv_results_) == n_settings
    best = min(mapper.cv_results_, key=lambda result: result["mse"])
    for name in names:
        assert getattr(mapper, f"{name}_") == best[name]
    expected = np.mean(best["mse_folds"])
    assert best["mse"] == pytest.approx(expected)
    for name in {"C", "nu", "penalty"}.difference(names):
        assert getattr(mapper, f"{name}_") is None


def test_the_grid_of_c_follows_the_spread_of_the_points():
    X, points = world()
    mapper = InstanceMapper(random_state=0).fit(X, points)
    spread = np.sqrt(points.var(axis=0).mean())
    searched = {result["C"] for result in mapper.cv_results_}
    expected = {spread * factor for factor in C_GRID}
    assert searched == expected


def test_given_settings_are_used_and_not_searched():
    X, points = world()
    mapper = InstanceMapper(nu=0.3, C=1, gamma=1, scaling="l2")
    mapper.fit(X, points)
    assert mapper.nu_ == 0.3
    assert mapper.C_ == 1.0
    assert mapper.gamma_ == 1.0
    assert mapper.cv_results_ == []
    mapper_of_some = InstanceMapper(nu=0.3, C=1.0, random_state=0)
    mapper_of_some.fit(X, points)
    searched_nu = [result["nu"] for result in mapper_of_some.cv_results_]
    expected = [0.3] * len(GAMMA_GRID)
    assert searched_nu == expected


@pytest.mark.parametrize("n_landmarks", [None, 30])
def test_the_seed_decides_the_model(n_landmarks):
    X, points = world()

    def fit(seed):
        mapper = InstanceMapper(nu=0.4, C=1.0, n_landmarks=n_landmarks, random_state=seed)
        return mapper.fit(X, points)

    mapper = fit(3)
    repeated = fit(3)
    of_another_seed = fit(4)
    assert (mapper.predict(X) == repeated.predict(X)).all()
    assert mapper.cv_results_ == repeated.cv_results_
    assert mapper.cv_results_ != of_another_seed.cv_results_


@pytest.mark.parametrize("n_landmarks", [None, 30])
def test_support_vectors_are_scaled_instances(n_landmarks):
    X, points = world()
    mapper = InstanceMapper(nu=0.4, C=1.0, n_landmarks=n_landmarks, random_state=3)
    mapper.fit(X, points)
    n_support = len(mapper.support_)
    assert n_support < len(X)
    assert len(mapper.dual_coef_) == n_support
    assert len(mapper.X_fit_) == n_support
    centred = X[mapper.support_] - mapper.mean_
    assert np.allclose(mapper.X_fit_, centred / mapper.scale_)


def test_cross_validation_error_equals_a_plain_loop():
    X, Y = world(n=30)
    setting = {"gamma": 0.3, "penalty": 0.5}
    generator = np.random.default_rng(5)
    errors = cross_validate(X, Y, [setting], 3, 100, generator)
    generator = np.random.default_rng(5)
    order = generator.permutation(30)
    folds = np.array_split(order, 3)
    for held_out, error in zip(folds, errors[:, 0], strict=True):
        train = np.setdiff1d(order, held_out)
        mean = Y[train].mean(axis=0)
        model = KernelRidge(alpha=0.5, kernel="rbf", gamma=0.3)
        model.fit(X[train], Y[train] - mean)
        predicted = model.predict(X[held_out]) + mean
        squared = (predicted - Y[held_out]) ** 2
        assert error == pytest.approx(squared.mean())


# ------------------------------------------------------------------ degenerate input


def test_fewer_instances_than_folds_lower_the_folds_with_a_warning():
    X, points = world(n=2)
    mapper = InstanceMapper(random_state=0)
    with pytest.warns(PolysemeWarning, match="`n_folds` of `InstanceMapper` is 3 but there are on"):
        mapper.fit(X, points)
    result = mapper.cv_results_[0]
    assert len(result["mse_folds"]) == 2
    predicted = mapper.predict(X)
    assert np.isfinite(predicted).all()


@kinds
def test_one_instance_predicts_its_own_point_everywhere(kind):
    mapper = InstanceMapper(kind=kind, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        mapper.fit([[1.0, 2.0]], [[3.0, -4.0]])
    predicted = mapper.predict([[1.0, 2.0], [50.0, 0.0]])
    assert predicted.tolist() == [[3.0, -4.0]] * 2


@kinds
def test_equal_instances_get_one_point_between_their_points(kind):
    mapper = InstanceMapper(kind=kind, random_state=0)
    mapper.fit(np.ones((12, 3)), np.arange(12.0))
    first, second = mapper.predict(np.ones((2, 3)))
    assert first == second
    assert 0 <= first <= 11


@kinds
def test_constant_points_are_predicted(kind):
    X, _ = world(n=12)
    mapper = InstanceMapper(kind=kind, random_state=0)
    mapper.fit(X, np.full((12, 2), 0.1))
    predicted = mapper.predict(X)
    assert np.allclose(predicted, 0.1, atol=1e-12)


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
    mapper = quick(kind, memory_mb=1)
    with pytest.warns(PolysemeWarning, match=message) as caught:
        mapper.fit(X, points)
    assert len(caught) == 1
    assert 0 < mapper.n_landmarks_ <= 128
    assert len(mapper.X_fit_) == mapper.n_landmarks_
    assert len(mapper.support_) == mapper.n_landmarks_
    centred = X[mapper.support_] - mapper.mean_
    assert np.allclose(mapper.X_fit_, centred / mapper.scale_, atol=1e-5)


@kinds
def test_more_landmarks_come_nearer_to_the_exact_solution(kind):
    X, points = world(n=520)
    exact = quick(kind).fit(X, points)
    assert exact.n_landmarks_ is None
    expected = exact.predict(X)
    errors = []
    for n_landmarks in (5, 520):
        mapper = quick(kind, n_landmarks=n_landmarks).fit(X, points)
        differences = np.abs(mapper.predict(X) - expected)
        errors.append(differences.max())
    error_of_few, error_of_all = errors
    assert error_of_all < 0.05
    assert error_of_all < error_of_few


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
    points = np.linspace(0, 1, len(X))
    mapper = quick(kind, n_landmarks=25, scaling=scaling).fit(X, points)
    n_distinct = len(np.unique(X, axis=0))
    assert 1 <= mapper.n_landmarks_ <= min(25, n_distinct)
    predicted = mapper.predict(X)
    assert np.isfinite(predicted).all()
    assert predicted.min() >= -1
    assert predicted.max() <= 2


@kinds
@pytest.mark.parametrize("n_landmarks", [None, 40])
def test_settings_are_searched_on_a_sample_of_many_instances(kind, n_landmarks):
    X, points = world(n=1200)
    searched = {"nu-svr": {"nu": None}, "kernel-ridge": {"penalty": None}}[kind]
    small_search = quick(kind, n_landmarks=n_landmarks, search_size=60, **searched)
    large_search = quick(kind, n_landmarks=n_landmarks, search_size=600, **searched)
    small_search.fit(X, points)
    large_search.fit(X, points)
    assert len(small_search.cv_results_) > 1
    small_error = min(result["mse"] for result in small_search.cv_results_)
    large_error = min(result["mse"] for result in large_search.cv_results_)
    assert large_error < small_error
    groups = np.arange(1200) // 10
    small_search.fit(X, points, groups)
    assert small_search.cv_results_


# ------------------------------------------------------------------ devices and state


@kinds
@pytest.mark.parametrize("n", [100, 600])  # float64 and float32
@pytest.mark.parametrize("n_landmarks", [None, 40])
@forms
def test_torch_on_the_processor_predicts_as_numpy_does(kind, n, n_landmarks, form):
    dense, points = counts(n=n)
    X = form(dense)
    with_numpy = quick(kind, n_landmarks=n_landmarks, device="cpu").fit(X, points)
    with_torch = quick(kind, n_landmarks=n_landmarks, device="cpu:0").fit(X, points)
    expected = with_numpy.predict(dense)
    predicted = with_torch.predict(X)
    tolerance = 1e-3 if n_landmarks else 2e-3
    assert_allclose(predicted, expected, rtol=0, atol=tolerance)
    with_numpy.set_params(device="cpu:0")
    predicted_by_torch = with_numpy.predict(dense)
    assert np.allclose(predicted_by_torch, expected, atol=1e-4)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
@kinds
@pytest.mark.parametrize("n_landmarks", [None, 100])
def test_a_gpu_predicts_as_the_processor_does(kind, n_landmarks):
    X, points = world(n=2000)
    on_cpu = quick(kind, n_landmarks=n_landmarks, device="cpu")
    on_gpu = quick(kind, n_landmarks=n_landmarks, device="cuda")
    expected = on_cpu.fit(X, points).predict(X)
    predicted = on_gpu.fit(X, points).predict(X)
    assert_allclose(predicted, expected, rtol=0, atol=5e-3)


@kinds
@forms
@pytest.mark.parametrize("n", [60, 600])  # float64 and float32
@pytest.mark.parametrize("n_landmarks", [None, 30])
def test_a_restored_mapper_predicts_bit_for_bit_the_same(kind, form, n, n_landmarks):
    dense, points = counts(n=n)
    X = form(dense)
    mapper = InstanceMapper(
        kind,
        nu=0.4,
        C=1.0,
        n_folds=2,
        search_size=50,
        n_landmarks=n_landmarks,
        device="cpu",
        random_state=np.random.default_rng(0),
    )
    mapper.fit(X, points[:, 0])
    expected = mapper.predict(X)
    assert expected.ndim == 1

    config, arrays = mapper.get_state()
    config_of_json = json.loads(json.dumps(config))
    restored = InstanceMapper.from_state(config_of_json, dict(arrays))
    expected_parameters = mapper.get_params() | {"device": None, "random_state": None}
    assert restored.get_params() == expected_parameters
    restored_config, _ = restored.get_state()
    assert restored_config == config
    for array in arrays.values():
        array[...] = 0
    predicted = restored.predict(X)
    assert np.array_equal(predicted, expected)
