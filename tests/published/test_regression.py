"""Kernels, nu-SVR and landmarks: loops, libsvm and plain matrices are the oracles.

Everything is solve twice, with numpy arrays and with torch tensors.
"""

from __future__ import annotations

import warnings
from functools import partial

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.spatial.distance import cdist
from sklearn.svm import NuSVR

from polyseme.base.validation import InputError, PolysemeWarning
from polyseme.published import regression
from polyseme.published.admm import project
from polyseme.published.kernels import (
    column_statistics,
    kernel_widths,
    rbf_kernel,
    rbf_predict,
    scale_rows,
    to_numpy,
)
from polyseme.published.regression import (
    MOST_LANDMARKS,
    LandmarkKernel,
    SharedKernelSolver,
    landmarks_within,
    solve_kernel_ridge,
)

arrays_and_tensors = pytest.mark.parametrize(
    "make", [np.array, torch.tensor], ids=["numpy", "torch"]
)
dtypes = pytest.mark.parametrize("dtype", [np.float32, np.float64])


# An odd number of rows: with nu * n / 2 a whole number the bias need not be unique.
def noisy_problem(n=81, n_features=4, d=5, seed=0):
    """Make instances and noisy smooth targets of several scales and offsets."""
    generator = np.random.default_rng(seed)
    X = generator.normal(size=(n, n_features))
    directions = generator.normal(size=(n_features, d))
    noise = generator.normal(size=(n, d))
    Y = np.sin(X @ directions) + 0.3 * noise
    scales = np.linspace(0.5, 20, d)
    offsets = np.linspace(-5, 100, d)
    return X, Y * scales + offsets


def solve(kernel, Y, nu, C, make=np.array, **options):
    """Coefficients and bias by the solver, which uses the kernel it is given up."""
    return SharedKernelSolver(make(kernel)).solve(Y, nu, C, **options)


def libsvm(kernel, Y, nu, C, tolerance=1e-6):
    """Return coefficients and bias by libsvm, one standardised output at a time."""
    gram = kernel.astype(np.float64)
    coefficients = np.zeros(Y.shape)
    bias = np.zeros(Y.shape[1])
    spreads = spreads_of(Y)
    for output, spread in enumerate(spreads):
        mean = Y[:, output].mean()
        standardised = (Y[:, output] - mean) / spread
        model = NuSVR(
            kernel="precomputed",
            nu=nu,
            C=C / spread,
            tol=tolerance,
        )
        model.fit(gram, standardised)
        coefficients[model.support_, output] = spread * model.dual_coef_[0]
        bias[output] = spread * model.intercept_[0] + mean
    return coefficients, bias


def predictions(kernel, solution):
    coefficients, bias = solution[:2]
    return kernel @ coefficients + bias


def spreads_of(Y):
    """Return the standard deviation of each output, 1 for constant ones."""
    constant = np.ptp(Y, axis=0) == 0
    return np.where(constant, 1.0, Y.std(axis=0))


def largest_difference(predicted, expected, Y):
    """Return the largest difference in spreads of the targets."""
    differences = np.abs(predicted - expected)
    return (differences / spreads_of(Y)).max()


def assert_feasible(beta, nu, C):
    """Check the constraints of the dual."""
    n = len(beta)
    sums = np.abs(beta.sum(axis=0))
    assert sums.max() <= 1e-5 * C * n
    sizes = np.abs(beta)
    assert sizes.max() <= C * (1 + 1e-6)
    budgets = sizes.sum(axis=0)
    assert budgets.max() <= C * nu * n * (1 + 1e-5)


# ------------------------------------------------------------------ kernels


@arrays_and_tensors
@dtypes
def test_kernels_are_those_of_scipy(dtype, make):
    generator = np.random.default_rng(2)
    rows = generator.normal(size=(7, 3)).astype(dtype)
    kernel = to_numpy(rbf_kernel(make(rows), 0.3))
    assert kernel.dtype == dtype
    assert (np.diag(kernel) == 1).all()
    assert (kernel == kernel.T).all()
    squared_distances = cdist(rows, rows, "sqeuclidean")
    expected = np.exp(-0.3 * squared_distances)
    assert_allclose(kernel, expected, rtol=1e-5)


@arrays_and_tensors
@dtypes
def test_predictions_are_weighted_kernels_and_a_bias(dtype, make):
    generator = np.random.default_rng(2)
    rows = generator.normal(size=(7, 3)).astype(dtype)
    queries = generator.normal(size=(4, 3)).astype(dtype)
    coefficients = generator.normal(size=(7, 2)).astype(dtype)
    bias = np.array([1.0, -2.0], dtype)
    predicted = rbf_predict(
        make(queries),
        make(rows),
        0.7,
        make(coefficients),
        make(bias),
    )
    kernel = np.exp(-0.7 * cdist(queries, rows, "sqeuclidean"))
    expected = kernel @ coefficients + bias
    assert_allclose(to_numpy(predicted), expected, rtol=1e-4)


@dtypes
@pytest.mark.parametrize("scale", [1e-12, 1.0, 1e12])
def test_kernels_in_blocks_are_exact_and_symmetric(scale, dtype):
    generator = np.random.default_rng(0)
    rows = (scale * generator.normal(size=(600, 4))).astype(dtype)
    rows[100:200] = rows[0]
    rows[300:310] = 0
    kernel = rbf_kernel(rows, 0.3 / scale**2)
    unscaled = rows.astype(np.float64) / scale
    squared_distances = cdist(unscaled, unscaled, "sqeuclidean")
    assert np.allclose(kernel, np.exp(-0.3 * squared_distances), atol=1e-5)
    assert (kernel == kernel.T).all()
    assert (np.diag(kernel) == 1).all()


@pytest.mark.parametrize(
    ("rows", "gamma"),
    [
        ([[0.0], [1.0], [3.0]], 0.25),  # squared distances 1, 4, 9
        ([[2.0]], 1.0),
        ([[2.0], [2.0]], 1.0),
        ([[0.0], [0.0], [0.0], [2.0]], 0.5),
    ],
)
def test_median_heuristic_is_one_over_the_median_squared_distance(rows, gamma):
    instances = np.array(rows)
    generator = np.random.default_rng(0)
    median = kernel_widths(instances, "median", generator)
    assert median == pytest.approx([gamma])
    searched = kernel_widths(instances, None, generator)
    assert searched == pytest.approx([gamma, gamma / 4, gamma * 4])
    assert kernel_widths(instances, 3, generator) == (3.0,)


@pytest.fixture
def word_counts():
    """Make counts of words, the third of which never occurs."""
    generator = np.random.default_rng(5)
    counts = generator.poisson(0.3, size=(60, 6)).astype(float)
    counts[:, 2] = 0
    return counts


def test_dense_rows_are_scaled_to_mean_zero_and_deviation_one(word_counts):
    mean, scale = column_statistics(word_counts, "standard")
    rows = scale_rows(word_counts, "standard", mean, scale, np.float64)
    assert np.allclose(rows.mean(axis=0), 0)
    assert np.allclose(rows.std(axis=0), [1, 1, 0, 1, 1, 1])


def test_sparse_rows_get_the_same_scale_and_stay_sparse(word_counts):
    sparse_counts = sp.csr_matrix(word_counts)
    _, expected_scale = column_statistics(word_counts, "standard")
    mean, scale = column_statistics(sparse_counts, "standard")
    assert (mean == 0).all()
    assert np.allclose(scale, expected_scale)
    rows = scale_rows(sparse_counts, "standard", mean, scale, np.float64)
    assert sp.issparse(rows)
    expected_rows = word_counts / expected_scale
    assert np.allclose(rows.toarray(), expected_rows)
    kernel = rbf_kernel(rows, 0.2)
    assert np.allclose(kernel, rbf_kernel(expected_rows, 0.2), atol=1e-12)


@pytest.mark.parametrize("form", [np.asarray, sp.csr_matrix])
def test_scales_of_many_rows_in_single_precision_are_exact(form):
    generator = np.random.default_rng(0)
    noise = generator.standard_normal((200_000, 2))
    rows = (3 + 0.05 * noise).astype(np.float32)
    _, scale = column_statistics(form(rows), "standard")
    expected = rows.astype(np.float64).std(axis=0)
    assert_allclose(scale, expected, rtol=1e-6)


# ------------------------------------------------------------------ projection


def bisected(v, bound, budget):
    """Return the projection by bisection of the threshold."""
    values = np.array(v)

    def clip(threshold):
        sizes = np.clip(np.abs(values) - threshold, 0, bound)
        return np.sign(values) * sizes

    def within_budget(threshold):
        return np.abs(clip(threshold)).sum() <= budget

    if within_budget(0):
        return clip(0)
    low = 0.0
    high = np.abs(values).max()
    for _ in range(200):
        middle = (low + high) / 2
        if within_budget(middle):
            high = middle
        else:
            low = middle
    return clip(high)


@pytest.mark.parametrize("make", [np.array, partial(torch.tensor, dtype=torch.float64)])
@given(
    v=st.lists(st.floats(-10, 10), min_size=1, max_size=12),
    bound=st.floats(0.1, 5),
    budget=st.floats(0.1, 20),
    guess=st.floats(0, 10),
)
@settings(deadline=None, max_examples=150)
def test_projection_equals_bisection_from_any_guess(make, v, bound, budget, guess):
    projected, _ = project(
        make([v, v]),
        make([[bound], [2 * bound]]),
        make([budget, budget / 2]),
        make([guess, guess]),
    )
    first, second = projected.tolist()
    expected = bisected(v, bound, budget)
    assert_allclose(first, expected, rtol=1e-6, atol=1e-9)
    assert_allclose(
        second,
        bisected(v, 2 * bound, budget / 2),
        rtol=1e-6,
        atol=1e-9,
    )


# ------------------------------------------------------------------ nu-SVR


@pytest.mark.parametrize("gamma", [0.05, 0.5, 3.0])
@pytest.mark.parametrize(("nu", "C"), [(0.1, 1.0), (0.3, 0.1), (0.4, 10.0), (0.8, 2.0), (1.0, 1.0)])
def test_solution_equals_libsvm(gamma, nu, C):
    X, Y = noisy_problem()
    kernel = rbf_kernel(X, gamma)
    solution = solve(kernel, Y, nu, C, tolerance=1e-6, max_iter=20_000)
    predicted = predictions(kernel, solution)
    expected = predictions(kernel, libsvm(kernel, Y, nu, C))
    assert largest_difference(predicted, expected, Y) <= 1e-3
    assert_feasible(solution.coefficients, nu, C)


def special_problem(case):
    """Make a problem that asks more of a solver than most."""
    n = {"one row": 1, "three rows": 3, "single precision": 301}.get(case, 81)
    X, Y = noisy_problem(n=n)
    if case == "single precision":
        X = X.astype(np.float32)
    elif case == "duplicates":
        X = np.vstack([X, X, X[:5]])
        Y = np.vstack([Y, Y + 0.5, Y[:5]])
    elif case == "constant targets":
        Y[:, [1, 3]] = [0.0, 7.25]
    elif case == "scales":
        standardised = (Y - Y.mean(axis=0)) / Y.std(axis=0)
        Y = standardised * np.geomspace(1e-4, 1e2, Y.shape[1])
    return X, Y


@arrays_and_tensors
@pytest.mark.parametrize(
    ("case", "tolerance"),
    [
        ("single precision", 1e-3),
        ("duplicates", 1e-3),
        ("constant targets", 1e-3),
        ("one row", 1e-3),
        ("three rows", 1e-3),
        ("scales", 5e-3),
    ],
)
def test_special_problems_equal_libsvm(make, case, tolerance):
    X, Y = special_problem(case)
    kernel = rbf_kernel(X, 0.4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PolysemeWarning)
        solution = solve(kernel, Y, 0.43, 2.0, make, tolerance=1e-5, max_iter=5000)
    assert solution.coefficients.dtype == kernel.dtype
    assert solution.bias.dtype == kernel.dtype
    predicted = predictions(kernel, solution)
    expected = predictions(kernel, libsvm(kernel, Y, 0.43, 2.0))
    assert largest_difference(predicted, expected, Y) <= tolerance
    assert_feasible(solution.coefficients.astype(float), 0.43, 2.0)


@given(
    seed=st.integers(0, 10_000),
    n=st.integers(1, 60),
    nu=st.sampled_from([0.05, 0.25, 0.5, 1.0]),
    C=st.floats(0.01, 50),
    gamma=st.floats(0.02, 4),
    rounded=st.booleans(),
)
@settings(deadline=None, max_examples=40)
def test_dual_objective_is_never_worse_than_libsvm(seed, n, nu, C, gamma, rounded):
    X, Y = noisy_problem(n=n, n_features=2, d=1, seed=seed)
    if rounded:  # equal rows and equal targets
        X = np.round(X)
        Y = np.round(Y)
    kernel = rbf_kernel(X, gamma)

    def objective(coefficients):
        beta = coefficients[:, 0]
        quadratic = beta @ kernel @ beta
        return 0.5 * quadratic - Y[:, 0] @ beta

    solution = solve(kernel, Y, nu, C, tolerance=1e-5, max_iter=20_000)
    assert_feasible(solution.coefficients, nu, C)
    libsvm_coefficients, _ = libsvm(kernel, Y, nu, C, 1e-5)
    reference = objective(libsvm_coefficients)
    tolerance = 1e-4 * abs(reference) + 1e-9
    assert objective(solution.coefficients) <= reference + tolerance


def test_grid_over_nu_and_c_factorises_once():
    X, Y = noisy_problem(n=200, n_features=10)
    generator = np.random.default_rng(1)
    noise = generator.normal(size=Y.shape)
    Y += 2 * Y.std(axis=0) * noise
    Y /= Y.std(axis=0)
    kernel = rbf_kernel(X, 0.1)
    solver = SharedKernelSolver(kernel)
    for C in (2.0, 0.8, 5.0):
        for nu in (0.2, 0.4, 0.6):
            solver.solve(Y, nu, C)
    assert solver.n_factorisations == 1


def test_solution_does_not_depend_on_what_was_solved_before():
    X, Y = noisy_problem()
    kernel = rbf_kernel(X, 0.5)
    solver = SharedKernelSolver(kernel.copy())
    solver.solve(Y, 0.2, 1000.0)
    solution = solver.solve(Y, 0.4, 0.5, tolerance=1e-7, max_iter=20_000)
    fresh_solution = solve(kernel, Y, 0.4, 0.5, tolerance=1e-7, max_iter=20_000)
    predicted = predictions(kernel, solution)
    expected = predictions(kernel, fresh_solution)
    assert predicted == pytest.approx(expected, abs=1e-4)


@arrays_and_tensors
def test_stopping_early_warns_with_what_remains(make):
    X, Y = noisy_problem()
    kernel = rbf_kernel(X, 0.05)
    with pytest.warns(PolysemeWarning, match=r"of 5 outputs did not converge in 10 iterations.*up"):
        assert solve(kernel, Y, 0.4, 100.0, make, max_iter=10).n_iter == 10
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        solve(kernel, Y, 0.4, 100.0, make, max_iter=10, quiet=True)


@arrays_and_tensors
def test_kernels_that_are_not_positive_are_refused(make):
    with pytest.raises(InputError, match="must be positive semi-definite"):
        solve(np.diag([1.0, -50.0, 1.0]), np.arange(3.0)[:, None], 0.5, 1.0, make)


@dtypes
@pytest.mark.parametrize(("nu", "C"), [(0.1, 1.0), (0.4, 10.0), (1.0, 1.0)])
def test_triangular_solutions_and_tensors_equal_the_inverse(monkeypatch, dtype, nu, C):
    X, Y = noisy_problem(n=151)
    kernel = rbf_kernel(X.astype(dtype), 0.5)
    solution = solve(kernel, Y, nu, C)
    expected = predictions(kernel, solution)
    solution = solve(kernel, Y, nu, C, torch.tensor)
    predicted = predictions(kernel, solution)
    assert largest_difference(predicted, expected, Y) <= 1e-3
    monkeypatch.setattr(regression, "_INVERSE_ROWS", 0)
    solution = solve(kernel, Y, nu, C)
    predicted = predictions(kernel, solution)
    assert largest_difference(predicted, expected, Y) <= 5e-4


# ------------------------------------------------------------------ landmarks

GAMMA = 0.2


def smooth(n=150, n_features=4, d=3, seed=0, dtype=np.float64):
    generator = np.random.default_rng(seed)
    X = generator.normal(size=(n, n_features)).astype(dtype)
    directions = generator.normal(size=(n_features, d))
    noise = generator.normal(size=(n, d))
    Y = np.sin(X @ directions) + 0.3 * noise
    scales = np.geomspace(0.1, 5, d)
    offsets = np.linspace(-5, 50, d)
    return X, Y * scales + offsets


def landmark_kernel(X, chosen, memory=1e9, device="cpu", form=np.asarray):
    landmarks = form(X[chosen])
    return LandmarkKernel(lambda rows: X[rows], len(X), landmarks, GAMMA, memory, device)


def landmark_predictions(X, kernel, solution):
    return rbf_predict(X, kernel.landmarks, GAMMA, *solution)


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


# At once, and outputs and rows in blocks; "cpu:0" is the processor by way of torch.
def every_way(test):
    """Run a test with each precision and form of rows, device and memory bound."""
    for mark in (
        pytest.mark.parametrize("memory", [1e9, 2e5]),
        pytest.mark.parametrize("device", ["cpu", "cpu:0"]),
        pytest.mark.parametrize(
            ("dtype", "form"),
            [(np.float32, np.asarray), (np.float64, np.asarray), (np.float64, sp.csr_matrix)],
        ),
    ):
        test = mark(test)
    return test


@every_way
def test_kernel_ridge_with_every_row_a_landmark_is_exact(dtype, form, device, memory):
    X, Y = smooth(dtype=dtype)
    kernel = rbf_kernel(X, GAMMA)
    expected = predictions(kernel, solve_kernel_ridge(kernel, Y, 0.5))
    low_rank = landmark_kernel(
        X,
        np.arange(len(X)),
        memory,
        device,
        form,
    )
    predicted = landmark_predictions(X, low_rank, low_rank.fit_ridge(Y, 0.5))
    assert largest_difference(predicted, expected, Y) <= 1e-3


@every_way
def test_nu_svr_with_every_row_a_landmark_is_exact_within_the_tolerance(
    dtype, form, device, memory
):
    X, Y = smooth(dtype=dtype)
    kernel = rbf_kernel(X, GAMMA)
    expected = predictions(kernel, solve(kernel, Y, 0.43, 2.0))
    low_rank = landmark_kernel(
        X,
        np.arange(len(X)),
        memory,
        device,
        form,
    )
    solution = low_rank.fit_nu_svr(Y, 0.43, 2.0, 1e-3)
    predicted = landmark_predictions(X, low_rank, solution)
    assert largest_difference(predicted, expected, Y) <= 0.02


@pytest.mark.parametrize("device", ["cpu", "cpu:0"])
def test_few_landmarks_solve_the_problem_of_their_kernel_matrix(device):
    X, Y = smooth()
    chosen = np.arange(0, len(X), 5)
    across = rbf_kernel(X, GAMMA)[:, chosen]
    low_rank = across @ np.linalg.inv(across[chosen]) @ across.T
    low_rank = (low_rank + low_rank.T) / 2
    kernel = landmark_kernel(X, chosen, device=device)

    exact_svr = solve(low_rank.copy(), Y, 0.43, 2.0, tolerance=1e-5, max_iter=20_000)
    expected = predictions(low_rank, exact_svr)
    solution = kernel.fit_nu_svr(Y, 0.43, 2.0, 1e-3)
    predicted = landmark_predictions(X, kernel, solution)
    assert largest_difference(predicted, expected, Y) <= 0.02

    exact_ridge = solve_kernel_ridge(low_rank.copy(), Y, 0.5)
    expected = predictions(low_rank, exact_ridge)
    solution = kernel.fit_ridge(Y, 0.5)
    predicted = landmark_predictions(X, kernel, solution)
    assert largest_difference(predicted, expected, Y) <= 1e-6
