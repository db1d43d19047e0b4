from __future__ import annotations

import json
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from polyseme._validation import InputError, PolysemeWarning
from polyseme.published.mapping import InstanceMapper
from polyseme.published.solvers.kernel_ridge import solve_kernel_ridge
from polyseme.published.solvers.kernels import rbf_kernel, rbf_predict
from polyseme.published.solvers.landmarks import (
    MOST_LANDMARKS,
    LandmarkKernel,
    LandmarkRows,
    draw_landmarks,
    landmarks_within,
    solve_landmark_nu_svr,
    solve_landmark_ridge,
    tube_middles,
)
from polyseme.published.solvers.nu_svr import solve_nu_svr

GAMMA = 0.2
KINDS = {"nu-svr": {"nu": 0.43, "C": 2.0}, "kernel-ridge": {"penalty": 0.5}}
kinds = pytest.mark.parametrize("kind", list(KINDS))


def smooth(n=150, n_features=4, d=3, seed=0, dtype=np.float64):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, n_features)).astype(dtype)
    Y = np.sin(X @ rng.normal(size=(n_features, d))) + 0.3 * rng.normal(size=(n, d))
    return X, Y * np.geomspace(0.1, 5, d) + np.linspace(-5, 50, d)


def landmark_rows(X, chosen, memory=1e9):
    return LandmarkRows(lambda part: X[part], len(X), X[chosen], GAMMA, memory)


def mapper(kind="kernel-ridge", **parameters):
    return InstanceMapper(
        **({"kind": kind, "gamma": "median", "random_state": 0, **KINDS[kind]} | parameters)
    )


def apart(one, other, points):
    """The largest difference in units of the targets' spread."""
    spread = points.std(axis=0)
    return (np.abs(one - other) / np.where(spread > 0, spread, 1)).max()


# Drawing


@pytest.mark.parametrize(("n", "m"), [(150, 40), (3, 3), (2, 5), (1, 1)])
def test_landmarks_are_different_rows_in_order(n, m):
    drawn = draw_landmarks(n, m, np.random.default_rng(0))
    assert len(drawn) == min(n, m)
    assert (np.diff(drawn) > 0).all()
    assert set(drawn) <= set(range(n))
    assert drawn.dtype == np.int64


@pytest.mark.parametrize(
    ("n", "memory", "row_bytes", "expected"),
    [
        (10**6, 2**31, 0, MOST_LANDMARKS),
        (10**6, 2**31, 4, 241),
        (10, 2**31, 4, 10),
        (10**6, 1.0, 4, 1),
        (10**6, 2**20, 0, 128),
    ],
)
def test_landmarks_fit_the_memory_bound(n, memory, row_bytes, expected):
    assert landmarks_within(n, memory, row_bytes) == expected


# The kernel of the landmarks


@pytest.mark.parametrize("stored", [True, False])
@pytest.mark.parametrize("memory", [1e9, 2e4])
def test_operator_equals_plain_matrices(stored, memory):
    X, Y = smooth(n=80)
    rows = landmark_rows(X, np.arange(0, 80, 3), memory)
    if stored:
        rows.store()
    kernel = LandmarkKernel(rows)
    across = rbf_kernel(X, GAMMA)[:, ::3]
    low = across @ np.linalg.inv(across[::3]) @ across.T
    middle = np.eye(80) - 1 / 80
    centred = middle @ low @ middle
    q = Y.T.copy()
    assert kernel.roughness == pytest.approx(np.diag(centred).mean())
    kernel.factorise(0.7)
    inner = kernel.fit(q)
    fitted = np.linalg.solve(centred + 0.7 * np.eye(80), q.T).T @ centred
    predicted = kernel.weights(inner) @ (across - kernel.means).T
    assert np.allclose(predicted, fitted)
    assert np.allclose(kernel.changes(inner), np.sqrt((fitted**2).mean(axis=1)))
    solved = np.linalg.solve(centred + 0.7 * np.eye(80), q.T).T
    kernel.subtract(q, inner, 1 / 0.7)
    assert np.allclose(q, solved - solved.mean(axis=1, keepdims=True))


@pytest.mark.parametrize("nu", [0.1, 0.37, 0.5, 1.0])
@pytest.mark.parametrize("n", [1, 2, 7, 20])
def test_middle_of_the_tube_has_the_least_loss(nu, n):
    t = np.random.default_rng(n).normal(size=(1, n)) ** 3

    def loss(bias):
        miss = np.abs(t[0] - bias)
        return min(nu * n * tube + np.maximum(miss - tube, 0).sum() for tube in [0, *miss])

    found = loss(tube_middles(t, nu)[0])
    edges = [(one + other) / 2 for one in t[0] for other in t[0]]
    assert found <= min(map(loss, edges)) + 1e-9


def test_landmarks_that_others_explain_are_left_out():
    X, Y = smooth()
    rows = landmark_rows(X, np.array([0, 1, 1, 2, 0]))
    assert len(rows) == 3
    assert set(rows.kept) <= {0, 1, 2, 3, 4}
    assert np.isfinite(solve_landmark_ridge(rows, Y, penalty=1e-3).coefficients).all()


@pytest.mark.parametrize(("dtype", "within"), [(np.float64, 1e-6), (np.float32, 1e-3)])
def test_ridge_with_every_row_a_landmark_is_exact(dtype, within):
    X, Y = smooth(dtype=dtype)
    kernel = rbf_kernel(X, GAMMA)
    exact = solve_kernel_ridge(kernel, Y, penalty=0.5)
    rows = landmark_rows(X, np.arange(len(X)))
    found = solve_landmark_ridge(rows, Y, penalty=0.5)
    predicted = rbf_predict(X, rows.landmarks, GAMMA, found.coefficients, found.bias)
    assert apart(predicted, kernel @ exact.coefficients + exact.bias, Y) <= within


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("memory", [1e9, 3e4])  # at once, and outputs and rows one by one
def test_nu_svr_with_every_row_a_landmark_is_exact_within_its_tolerance(dtype, memory):
    X, Y = smooth(dtype=dtype)
    kernel = rbf_kernel(X, GAMMA)
    exact = solve_nu_svr(kernel, Y, nu=0.43, C=2.0)
    rows = landmark_rows(X, np.arange(len(X)), memory)
    found = solve_landmark_nu_svr(rows, Y, nu=0.43, C=2.0, tolerance=1e-3)
    predicted = rbf_predict(X, rows.landmarks, GAMMA, found.coefficients, found.bias)
    assert apart(predicted, kernel @ exact.coefficients + exact.bias, Y) <= 0.02


def test_nu_svr_of_few_landmarks_equals_the_exact_solver_on_the_same_kernel():
    X, Y = smooth()
    chosen = np.arange(0, len(X), 5)
    across = rbf_kernel(X, GAMMA)[:, chosen]
    low = across @ np.linalg.inv(across[chosen]) @ across.T
    exact = solve_nu_svr((low + low.T) / 2, Y, nu=0.43, C=2.0, tolerance=1e-5, max_iter=20_000)
    rows = landmark_rows(X, chosen)
    found = solve_landmark_nu_svr(rows, Y, nu=0.43, C=2.0, tolerance=1e-3)
    predicted = rbf_predict(X, rows.landmarks, GAMMA, found.coefficients, found.bias)
    assert apart(predicted, low @ exact.coefficients + exact.bias, Y) <= 0.02


@given(seed=st.integers(0, 1000), n=st.integers(1, 40), m=st.integers(1, 40))
@settings(deadline=None, max_examples=25)
def test_ridge_equals_a_regression_on_nystroem_features(seed, n, m):
    X, Y = smooth(n=n, seed=seed)
    chosen = draw_landmarks(n, m, np.random.default_rng(seed))
    rows = landmark_rows(X, chosen)
    found = solve_landmark_ridge(rows, Y, penalty=0.5)
    across = rbf_kernel(X, GAMMA)[:, chosen[rows.kept]]
    features = across @ rows.root
    weights = np.linalg.solve(
        features.T @ features + 0.5 * np.eye(len(rows)), features.T @ (Y - Y.mean(axis=0))
    )
    predicted = across @ found.coefficients + found.bias
    assert np.allclose(predicted, features @ weights + Y.mean(axis=0), atol=1e-6)


# The mapper


@kinds
def test_landmarks_take_over_beyond_the_memory_bound_and_say_so(kind):
    X, points = smooth(n=520)
    with pytest.warns(
        PolysemeWarning, match=r"has 520 instances.*`memory_mb` is 1: points are pre"
    ) as told:
        fitted = mapper(kind, memory_mb=1).fit(X, points)
    assert len(told) == 1
    assert 0 < fitted.n_landmarks_ <= 128
    assert f"from {landmarks_within(520, 2**20, 4 if kind == 'nu-svr' else 0)} landmarks" in str(
        told[0].message
    )
    assert fitted.dual_coef_.shape == (fitted.n_landmarks_, 3)
    assert np.isfinite(fitted.predict(X)).all()


@kinds
def test_a_number_of_landmarks_forces_them_without_a_warning(kind):
    X, points = smooth(n=300)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fitted = mapper(kind, n_landmarks=60).fit(X, points)
    assert fitted.n_landmarks_ == len(fitted.X_fit_) == len(fitted.support_) == 60
    scaled = (X[fitted.support_] - fitted.mean_) / fitted.scale_
    assert np.allclose(fitted.X_fit_, scaled)
    assert mapper(kind).fit(X, points).n_landmarks_ is None


@kinds
@pytest.mark.parametrize("n", [300, 700])  # float64 and float32
def test_more_landmarks_come_closer_to_the_exact_mapping(kind, n):
    X, points = smooth(n=n)
    exact = mapper(kind).fit(X, points).predict(X)
    errors = [
        apart(mapper(kind, n_landmarks=m).fit(X, points).predict(X), exact, points)
        for m in (5, 80, n)
    ]
    assert errors[0] > errors[1] > errors[2]
    assert errors[2] <= 0.05


@kinds
@pytest.mark.parametrize("scaling", ["standard", "l2", "none"])
def test_sparse_features_stay_sparse_and_predict_as_dense_ones(kind, scaling):
    X = np.random.default_rng(0).poisson(0.5, size=(200, 8)).astype(float)
    X[3] = 0
    points = np.column_stack([np.sin(X.sum(axis=1)), X[:, 0] - X[:, 1]])
    given_ = {"n_landmarks": 50, "scaling": scaling, "gamma": 0.2}
    dense = mapper(kind, **given_).fit(X, points)
    sparse = mapper(kind, **given_).fit(sp.csr_array(X), points)
    assert sp.issparse(sparse.X_fit_)
    if scaling != "standard":  # there dense rows are centred, which moves the last digits
        assert (dense.support_ == sparse.support_).all()
    assert apart(sparse.predict(sp.csr_matrix(X)), dense.predict(X), points) <= 0.3
    assert np.allclose(sparse.predict(X), sparse.predict(sp.csr_matrix(X)), atol=1e-8)


@kinds
def test_single_precision_input_gives_nearly_the_same(kind):
    X, points = smooth(n=700)
    wide = mapper(kind, n_landmarks=60).fit(X, points)
    single = mapper(kind, n_landmarks=60).fit(X.astype(np.float32), points.astype(np.float32))
    assert (wide.support_ == single.support_).all()
    assert apart(single.predict(X.astype(np.float32)), wide.predict(X), points) <= 0.01


@kinds
@pytest.mark.parametrize(
    "X",
    [
        np.ones((40, 3)),
        np.repeat(np.eye(3), 20, axis=0),
        np.zeros((30, 2)),
        np.arange(40.0)[:, None] * [[1e12, 1e-12]],
        np.ones((1, 2)),
    ],
    ids=["constant", "duplicates", "zeros", "scales", "one row"],
)
@pytest.mark.parametrize("scaling", ["standard", "l2", "none"])
def test_degenerate_features_are_fine(kind, X, scaling):
    points = np.linspace(0, 1, len(X))
    fitted = mapper(kind, n_landmarks=25, scaling=scaling, C=1.0).fit(X, points)
    assert 1 <= fitted.n_landmarks_ <= 25
    predicted = fitted.predict(X)
    assert np.isfinite(predicted).all()
    assert (predicted >= -1).all()
    assert (predicted <= 2).all()
    different = len(np.unique(X, axis=0))
    assert fitted.n_landmarks_ <= different


@kinds
@pytest.mark.parametrize("scale", [1e-12, 1e12])
def test_huge_and_tiny_points_are_mapped_alike(kind, scale):
    X, points = smooth(n=200)
    given_ = {"C": 2.0} if kind == "nu-svr" else {}
    plain = mapper(kind, n_landmarks=40, **given_).fit(X, points).predict(X)
    given_ = {"C": 2.0 * scale} if kind == "nu-svr" else {}
    scaled = mapper(kind, n_landmarks=40, **given_).fit(X, points * scale).predict(X)
    assert apart(scaled / scale, plain, points) <= 1e-3


@kinds
def test_settings_are_still_searched_on_a_sample(kind):
    X, points = smooth(n=300)
    searched = {"nu-svr": {"nu": None}, "kernel-ridge": {"penalty": None}}[kind]
    fitted = mapper(kind, n_landmarks=40, search_size=60, **searched).fit(X, points)
    assert len(fitted.cv_results_) > 1
    groups = np.arange(300) // 10
    assert mapper(kind, n_landmarks=40, **searched).fit(X, points, groups).cv_results_


@kinds
def test_same_seed_draws_the_same_landmarks_and_another_others(kind):
    X, points = smooth()
    first, again, other = (
        mapper(kind, n_landmarks=30, random_state=seed).fit(X, points) for seed in (1, 1, 2)
    )
    assert (first.support_ == again.support_).all()
    assert (first.predict(X) == again.predict(X)).all()
    assert len(first.support_) != len(other.support_) or (first.support_ != other.support_).any()


@kinds
@pytest.mark.parametrize("make", [np.asarray, sp.csr_matrix])
def test_restored_landmarks_predict_bit_for_bit_the_same(kind, make):
    X, points = smooth(n=600)
    fitted = mapper(kind, n_landmarks=50).fit(make(X), points)
    config, arrays = fitted.get_state()
    restored = InstanceMapper.from_state(json.loads(json.dumps(config)), dict(arrays))
    assert np.array_equal(restored.predict(make(X)), fitted.predict(make(X)))
    assert restored.n_landmarks_ == fitted.n_landmarks_
    assert restored.get_params() == fitted.get_params()


def test_states_of_earlier_versions_load():
    X, points = smooth()
    fitted = mapper().fit(X, points)
    config, arrays = fitted.get_state()
    del config["n_landmarks"], config["parameters"]["n_landmarks"]
    restored = InstanceMapper.from_state(config, arrays)
    assert restored.n_landmarks_ is None
    assert (restored.predict(X) == fitted.predict(X)).all()


@pytest.mark.parametrize("n_landmarks", [0, 1.5])
def test_unusable_numbers_of_landmarks_are_named(n_landmarks):
    X, points = smooth(n=10)
    with pytest.raises(
        InputError, match="`n_landmarks` of `InstanceMapper` must be a whole number"
    ):
        mapper(n_landmarks=n_landmarks).fit(X, points)


def test_libsvm_knows_no_landmarks():
    X, points = smooth(n=10)
    with pytest.raises(
        InputError, match="`solver` of `InstanceMapper` must be 'admm' for landmarks"
    ):
        mapper("nu-svr", solver="libsvm", n_landmarks=5).fit(X, points)
