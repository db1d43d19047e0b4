"""Kernels, nu-SVR and landmarks: loops, libsvm and plain matrices are the oracles.

Everything is solved twice, with numpy arrays and with torch tensors.
"""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from sklearn.svm import NuSVR

from polyseme._validation import InputError, PolysemeWarning
from polyseme.published import regression
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
    project,
    solve_kernel_ridge,
)

arrays_and_tensors = pytest.mark.parametrize(
    "make", [np.array, torch.tensor], ids=["numpy", "torch"]
)
dtypes = pytest.mark.parametrize("dtype", [np.float32, np.float64])


# An odd number of rows: with nu * n / 2 a whole number the bias need not be unique.
def noisy_problem(n=81, n_features=4, d=5, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, n_features))
    Y = np.sin(X @ rng.normal(size=(n_features, d))) + 0.3 * rng.normal(size=(n, d))
    return X, Y * np.linspace(0.5, 20, d) + np.linspace(-5, 100, d)


def solved(kernel, Y, nu, C, make=np.array, **options):
    """Coefficients and bias by the solver, which uses the kernel it is given up."""
    return SharedKernelSolver(make(kernel)).solve(Y, nu, C, **options)


def libsvm(kernel, Y, nu, C, tolerance=1e-6):
    """Coefficients and bias by libsvm, one standardised output at a time."""
    gram = kernel.astype(np.float64)
    spread = np.where(np.ptp(Y, axis=0) > 0, Y.std(axis=0), 1.0)
    coefficients = np.zeros(Y.shape)
    bias = np.zeros(Y.shape[1])
    for output, unit in enumerate(spread):
        mean = Y[:, output].mean()
        model = NuSVR(kernel="precomputed", nu=nu, C=C / unit, tol=tolerance)
        model.fit(gram, (Y[:, output] - mean) / unit)
        coefficients[model.support_, output] = model.dual_coef_[0] * unit
        bias[output] = model.intercept_[0] * unit + mean
    return coefficients, bias


def predictions(kernel, solution):
    return kernel @ solution[0] + solution[1]


def apart(one, other, Y):
    """The largest difference in spreads of the targets."""
    spread = Y.std(axis=0)
    return (np.abs(one - other) / np.where(spread > 0, spread, 1)).max()


def assert_feasible(beta, nu, C):
    """Check the constraints of the dual."""
    assert np.abs(beta.sum(axis=0)).max() <= 1e-5 * C * len(beta)
    assert np.abs(beta).max() <= C * (1 + 1e-6)
    assert np.abs(beta).sum(axis=0).max() <= C * nu * len(beta) * (1 + 1e-5)


# ------------------------------------------------------------------ kernels


@arrays_and_tensors
@dtypes
def test_kernels_equal_a_plain_loop(dtype, make):
    rng = np.random.default_rng(2)
    rows, queries = (rng.normal(size=(n, 3)).astype(dtype) for n in (7, 4))
    coefficients = rng.normal(size=(7, 2)).astype(dtype)
    bias = np.array([1.0, -2.0], dtype)
    kernel = to_numpy(rbf_kernel(make(rows), 0.3))
    assert kernel.dtype == dtype
    assert (np.diag(kernel) == 1).all()
    assert (kernel == kernel.T).all()
    for i, one in enumerate(rows.astype(float)):
        for j, other in enumerate(rows.astype(float)):
            assert kernel[i, j] == pytest.approx(np.exp(-0.3 * ((one - other) ** 2).sum()), 1e-5)
    predicted = to_numpy(
        rbf_predict(*map(make, (queries, rows)), 0.7, make(coefficients), make(bias))
    )
    for i, query in enumerate(queries):
        total = bias.astype(float)
        for row, coefficient in zip(rows, coefficients, strict=True):
            total = total + coefficient * np.exp(-0.7 * ((query - row) ** 2).sum())
        assert predicted[i] == pytest.approx(total, rel=1e-4)


@dtypes
@pytest.mark.parametrize("scale", [1e-12, 1.0, 1e12])
def test_kernels_in_blocks_are_exact_and_symmetric(scale, dtype):
    rows = (np.random.default_rng(0).normal(size=(600, 4)) * scale).astype(dtype)
    rows[100:200] = rows[0]
    rows[300:310] = 0
    kernel = rbf_kernel(rows, 0.3 / scale**2)
    wide = rows.astype(np.float64) / scale
    expected = np.exp(-0.3 * ((wide[:, None, :] - wide[None, ::7]) ** 2).sum(axis=2))
    assert np.allclose(kernel[:, ::7], expected, atol=1e-5)
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
    generator = np.random.default_rng(0)
    assert kernel_widths(np.array(rows), "median", generator) == pytest.approx([gamma])
    assert kernel_widths(np.array(rows), None, generator) == pytest.approx(
        [gamma, gamma / 4, gamma * 4]
    )
    assert kernel_widths(np.array(rows), 3, generator) == (3.0,)


def test_sparse_rows_are_scaled_as_dense_ones_and_stay_sparse():
    dense = np.random.default_rng(5).poisson(0.3, size=(60, 6)).astype(float)
    dense[:, 2] = 0
    mean, scale = column_statistics(dense, "standard")
    rows = scale_rows(dense, "standard", mean, scale, np.float64)
    assert np.allclose(rows.mean(axis=0), 0)
    assert np.allclose(rows.std(axis=0), [1, 1, 0, 1, 1, 1])
    zeros, same = column_statistics(sp.csr_matrix(dense), "standard")
    rows = scale_rows(sp.csr_matrix(dense), "standard", zeros, same, np.float64)
    assert (zeros == 0).all()
    assert sp.issparse(rows)
    assert np.allclose(scale, same)
    assert np.allclose(rows.toarray(), dense / scale)
    assert np.allclose(rbf_kernel(rows, 0.2), rbf_kernel(dense / scale, 0.2), atol=1e-12)
    single = (3 + 0.05 * np.random.default_rng(0).standard_normal((200_000, 2))).astype(np.float32)
    for form in (np.asarray, sp.csr_matrix):
        _, scale = column_statistics(form(single), "standard")
        assert_allclose(scale, single.astype(np.float64).std(axis=0), rtol=1e-6)


# ------------------------------------------------------------------ projection


def bisected(v, bound, budget):
    """The projection by bisection of the threshold, in plain Python."""

    def clipped(t):
        return [np.sign(x) * min(max(abs(x) - t, 0), bound) for x in v]

    if sum(map(abs, clipped(0))) <= budget:
        return clipped(0)
    low = 0.0
    high = max(map(abs, v))
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if sum(map(abs, clipped(middle))) > budget else (low, middle)
    return clipped(high)


@given(
    v=st.lists(st.floats(-10, 10), min_size=1, max_size=12),
    bound=st.floats(0.1, 5),
    budget=st.floats(0.1, 20),
    guess=st.floats(0, 10),
)
@settings(deadline=None, max_examples=150)
def test_projection_equals_bisection_from_any_guess(v, bound, budget, guess):
    rows = [v, v]
    bounds = [[bound], [2 * bound]]
    budgets = [budget, budget / 2]
    for make in (np.array, lambda values: torch.tensor(values, dtype=torch.float64)):
        z, _ = project(*map(make, (rows, bounds, budgets, [guess, guess])))
        for row, ((most,), total) in enumerate(zip(bounds, budgets, strict=True)):
            assert z[row].tolist() == pytest.approx(bisected(v, most, total), abs=1e-9)


# ------------------------------------------------------------------ nu-SVR


@pytest.mark.parametrize("gamma", [0.05, 0.5, 3.0])
@pytest.mark.parametrize(("nu", "C"), [(0.1, 1.0), (0.3, 0.1), (0.4, 10.0), (0.8, 2.0), (1.0, 1.0)])
def test_solution_equals_libsvm(gamma, nu, C):
    X, Y = noisy_problem()
    kernel = rbf_kernel(X, gamma)
    ours = solved(kernel, Y, nu, C, tolerance=1e-6, max_iter=20_000)
    reference = libsvm(kernel, Y, nu, C)
    assert apart(predictions(kernel, ours), predictions(kernel, reference), Y) <= 1e-3
    assert_feasible(ours.coefficients, nu, C)


@arrays_and_tensors
@pytest.mark.parametrize(
    "case",
    ["single precision", "duplicates", "constant targets", "one row", "three rows", "scales"],
)
def test_special_problems_equal_libsvm(make, case):
    n = {"one row": 1, "three rows": 3, "single precision": 301}.get(case, 81)
    X, Y = noisy_problem(n=n)
    if case == "duplicates":
        X = np.vstack([X, X, X[:5]])
        Y = np.vstack([Y, Y + 0.5, Y[:5]])
    elif case == "constant targets":
        Y[:, [1, 3]] = [0.0, 7.25]
    elif case == "scales":
        Y = (Y - Y.mean(axis=0)) / Y.std(axis=0) * np.geomspace(1e-4, 1e2, Y.shape[1])
    kernel = rbf_kernel(X.astype(np.float32) if case == "single precision" else X, 0.4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PolysemeWarning)
        ours = solved(kernel, Y, 0.43, 2.0, make, tolerance=1e-5, max_iter=5000)
    assert ours.coefficients.dtype == ours.bias.dtype == kernel.dtype
    reference = predictions(kernel, libsvm(kernel, Y, 0.43, 2.0))
    assert apart(predictions(kernel, ours), reference, Y) <= (5e-3 if case == "scales" else 1e-3)
    assert_feasible(ours.coefficients.astype(float), 0.43, 2.0)


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
    y = Y[:, 0]

    def objective(solution):
        beta = solution[0][:, 0]
        return 0.5 * beta @ kernel @ beta - y @ beta

    solution = solved(kernel, Y, nu, C, tolerance=1e-5, max_iter=20_000)
    assert_feasible(solution.coefficients, nu, C)
    reference = objective(libsvm(kernel, Y, nu, C, 1e-5))
    assert objective(solution) <= reference + 1e-4 * abs(reference) + 1e-9


def test_grid_over_nu_and_c_factorises_once():
    X, Y = noisy_problem(n=200, n_features=10)
    Y += 2 * Y.std(axis=0) * np.random.default_rng(1).normal(size=Y.shape)
    Y /= Y.std(axis=0)
    solver = SharedKernelSolver(rbf_kernel(X, 0.1))
    for C in (2.0, 0.8, 5.0):
        for nu in (0.2, 0.4, 0.6):
            solver.solve(Y, nu, C)
    assert solver.n_factorisations == 1


def test_solution_does_not_depend_on_what_was_solved_before():
    X, Y = noisy_problem()
    kernel = rbf_kernel(X, 0.5)
    solver = SharedKernelSolver(kernel.copy())
    solver.solve(Y, 0.2, 1000.0)
    again = solver.solve(Y, 0.4, 0.5, tolerance=1e-7, max_iter=20_000)
    alone = solved(kernel, Y, 0.4, 0.5, tolerance=1e-7, max_iter=20_000)
    assert predictions(kernel, again) == pytest.approx(predictions(kernel, alone), abs=1e-4)


@arrays_and_tensors
def test_stopping_early_warns_with_what_remains(make):
    X, Y = noisy_problem()
    kernel = rbf_kernel(X, 0.05)
    with pytest.warns(PolysemeWarning, match=r"of 5 outputs did not converge in 10 iterations.*up"):
        assert solved(kernel, Y, 0.4, 100.0, make, max_iter=10).n_iter == 10
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        solved(kernel, Y, 0.4, 100.0, make, max_iter=10, quiet=True)


@arrays_and_tensors
def test_kernels_that_are_not_positive_are_refused(make):
    with pytest.raises(InputError, match="must be positive semi-definite"):
        solved(np.diag([1.0, -50.0, 1.0]), np.arange(3.0)[:, None], 0.5, 1.0, make)


@dtypes
@pytest.mark.parametrize(("nu", "C"), [(0.1, 1.0), (0.4, 10.0), (1.0, 1.0)])
def test_triangular_solutions_and_tensors_equal_the_inverse(monkeypatch, dtype, nu, C):
    X, Y = noisy_problem(n=151)
    kernel = rbf_kernel(X.astype(dtype), 0.5)
    inverse = predictions(kernel, solved(kernel, Y, nu, C))
    assert apart(predictions(kernel, solved(kernel, Y, nu, C, torch.tensor)), inverse, Y) <= 1e-3
    monkeypatch.setattr(regression, "_INVERSE_ROWS", 0)
    assert apart(predictions(kernel, solved(kernel, Y, nu, C)), inverse, Y) <= 5e-4


# ------------------------------------------------------------------ landmarks

GAMMA = 0.2


def smooth(n=150, n_features=4, d=3, seed=0, dtype=np.float64):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, n_features)).astype(dtype)
    Y = np.sin(X @ rng.normal(size=(n_features, d))) + 0.3 * rng.normal(size=(n, d))
    return X, Y * np.geomspace(0.1, 5, d) + np.linspace(-5, 50, d)


def landmark_kernel(X, chosen, memory=1e9, device="cpu", form=np.asarray):
    return LandmarkKernel(lambda part: X[part], len(X), form(X[chosen]), GAMMA, memory, device)


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
@pytest.mark.parametrize("memory", [1e9, 2e5])
@pytest.mark.parametrize("device", ["cpu", "cpu:0"])
@pytest.mark.parametrize(
    ("dtype", "form"),
    [(np.float32, np.asarray), (np.float64, np.asarray), (np.float64, sp.csr_matrix)],
)
def test_every_row_a_landmark_is_exact_within_the_tolerance(dtype, form, device, memory):
    X, Y = smooth(dtype=dtype)
    kernel = rbf_kernel(X, GAMMA)
    low_rank = landmark_kernel(X, np.arange(len(X)), memory, device, form)
    for exact, solution, within in (
        (solve_kernel_ridge(kernel, Y, 0.5), low_rank.fit_ridge(Y, 0.5), 1e-3),
        (solved(kernel, Y, 0.43, 2.0)[:2], low_rank.fit_nu_svr(Y, 0.43, 2.0, 1e-3), 0.02),
    ):
        predicted = landmark_predictions(X, low_rank, solution)
        assert apart(predicted, predictions(kernel, exact), Y) <= within


@pytest.mark.parametrize("device", ["cpu", "cpu:0"])
def test_few_landmarks_solve_the_problem_of_their_kernel_matrix(device):
    X, Y = smooth()
    chosen = np.arange(0, len(X), 5)
    across = rbf_kernel(X, GAMMA)[:, chosen]
    low = across @ np.linalg.inv(across[chosen]) @ across.T
    kernel = landmark_kernel(X, chosen, device=device)
    exact = solved((low + low.T) / 2, Y, 0.43, 2.0, tolerance=1e-5, max_iter=20_000)[:2]
    predicted = landmark_predictions(X, kernel, kernel.fit_nu_svr(Y, 0.43, 2.0, 1e-3))
    assert apart(predicted, predictions(low, exact), Y) <= 0.02
    ridge = predictions(low, solve_kernel_ridge((low + low.T) / 2, Y, 0.5))
    assert apart(landmark_predictions(X, kernel, kernel.fit_ridge(Y, 0.5)), ridge, Y) <= 1e-6
