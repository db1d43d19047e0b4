from __future__ import annotations

import warnings

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.kernel_ridge import KernelRidge

from polyseme._validation import InputError, PolysemeWarning
from polyseme.published.solvers import operators, search
from polyseme.published.solvers.blocks import in_blocks
from polyseme.published.solvers.device import (
    DevicePredictor,
    solve_landmark_nu_svr_on,
    solve_landmark_ridge_on,
    solve_nu_svr_on,
    solve_ridge_on,
)
from polyseme.published.solvers.device_optimality import project
from polyseme.published.solvers.kernel_ridge import kernel_ridge_path, solve_kernel_ridge
from polyseme.published.solvers.kernels import rbf_kernel, rbf_predict
from polyseme.published.solvers.landmarks import (
    LandmarkRows,
    solve_landmark_nu_svr,
    solve_landmark_ridge,
)
from polyseme.published.solvers.nu_svr import SharedKernelSolver, solve_nu_svr, solve_nu_svr_libsvm
from polyseme.published.solvers.projection import project_to_box_and_budget
from polyseme.published.solvers.search import cross_validate


# An odd number of rows: with nu * n / 2 a whole number the bias need not be unique.
def noisy_problem(n=81, n_features=4, d=5, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, n_features))
    Y = np.sin(X @ rng.normal(size=(n_features, d))) + 0.3 * rng.normal(size=(n, d))
    return X, Y * np.linspace(0.5, 20, d) + np.linspace(-5, 100, d)


def predictions(kernel, solution):
    return kernel @ solution.coefficients + solution.bias


# Projection


def bisected(v, bound, budget):
    """The projection by bisection of the threshold, in plain Python."""

    def clipped(t):
        return [np.sign(x) * min(max(abs(x) - t, 0), bound) for x in v]

    if sum(map(abs, clipped(0))) <= budget:
        return clipped(0)
    low, high = 0.0, max(map(abs, v))
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
@settings(deadline=None, max_examples=200)
def test_projection_equals_bisection_from_any_guess(v, bound, budget, guess):
    z, _ = project_to_box_and_budget(
        np.array([v]), np.array([[bound]]), np.array([budget]), np.array([guess])
    )
    assert z[0] == pytest.approx(bisected(v, bound, budget), abs=1e-9)


def test_projection_treats_each_row_by_its_own_bounds():
    v = np.array([[3.0, -1.0, 0.5], [3.0, -1.0, 0.5]])
    z, threshold = project_to_box_and_budget(
        v, np.array([[1.0], [5.0]]), np.array([9.0, 2.0]), np.zeros(2)
    )
    assert z == pytest.approx(np.array([[1.0, -1.0, 0.5], [2.0, 0.0, 0.0]]))
    assert threshold == pytest.approx([0.0, 1.0])


@given(
    v=st.lists(st.floats(-10, 10), min_size=1, max_size=12),
    bound=st.floats(0.1, 5),
    budget=st.floats(0.1, 20),
    guess=st.floats(0, 10),
)
@settings(deadline=None, max_examples=100)
def test_projection_of_tensors_equals_bisection(v, bound, budget, guess):
    parts = [[v], [[bound]], [budget], [guess]]
    z, _ = project(*(torch.tensor(part, dtype=torch.float64) for part in parts))
    assert z[0].tolist() == pytest.approx(bisected(v, bound, budget), abs=1e-9)


# nu-SVR


@pytest.mark.parametrize("gamma", [0.05, 0.5, 3.0])
@pytest.mark.parametrize(("nu", "C"), [(0.1, 1.0), (0.3, 0.1), (0.4, 10.0), (0.8, 2.0), (1.0, 1.0)])
def test_solution_equals_libsvm(gamma, nu, C):
    X, Y = noisy_problem()
    kernel = rbf_kernel(X, gamma)
    ours = solve_nu_svr(kernel, Y, nu=nu, C=C, tolerance=1e-6, max_iter=20_000)
    reference = solve_nu_svr_libsvm(kernel, Y, nu=nu, C=C, tolerance=1e-6)
    apart = np.abs(predictions(kernel, ours) - predictions(kernel, reference)) / Y.std(axis=0)
    assert apart.max() <= 1e-3


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
        X, Y = np.round(X), np.round(Y)
    kernel, y = rbf_kernel(X, gamma), Y[:, 0]

    def objective(solution):
        beta = solution.coefficients[:, 0]
        return 0.5 * beta @ kernel @ beta - y @ beta

    ours = solve_nu_svr(kernel, Y, nu=nu, C=C, tolerance=1e-5, max_iter=20_000)
    reference = objective(solve_nu_svr_libsvm(kernel, Y, nu=nu, C=C, tolerance=1e-5))
    assert objective(ours) <= reference + 1e-4 * abs(reference) + 1e-9


def test_single_precision_solution_equals_libsvm():
    X, Y = noisy_problem(n=300)
    kernel = rbf_kernel(X.astype(np.float32), 0.3)
    ours = solve_nu_svr(kernel, Y, nu=0.4, C=2.0)
    reference = solve_nu_svr_libsvm(kernel, Y, nu=0.4, C=2.0, tolerance=1e-6)
    assert ours.coefficients.dtype == ours.bias.dtype == np.float32
    apart = np.abs(predictions(kernel, ours) - predictions(kernel, reference)) / Y.std(axis=0)
    assert apart.max() <= 1e-3


def test_duplicated_rows_change_nothing_against_libsvm():
    X, Y = noisy_problem(n=30)
    X, Y = np.vstack([X, X, X[:5]]), np.vstack([Y, Y + 0.5, Y[:5]])
    kernel = rbf_kernel(X, 0.4)
    ours = solve_nu_svr(kernel, Y, nu=0.45, C=1.0, tolerance=1e-6, max_iter=20_000)
    reference = solve_nu_svr_libsvm(kernel, Y, nu=0.45, C=1.0, tolerance=1e-6)
    apart = np.abs(predictions(kernel, ours) - predictions(kernel, reference)) / Y.std(axis=0)
    assert apart.max() <= 1e-3


@pytest.mark.parametrize("solve", [solve_nu_svr, solve_nu_svr_libsvm])
def test_constant_targets_are_predicted_exactly(solve):
    X, Y = noisy_problem(n=20)
    Y[:, [1, 3]] = [0.0, 7.25]
    kernel = rbf_kernel(X, 0.4)
    predicted = predictions(kernel, solve(kernel, Y, nu=0.3, C=1.0))
    assert predicted[:, [1, 3]] == pytest.approx(np.tile([0.0, 7.25], (20, 1)), abs=1e-9)


@pytest.mark.parametrize("n", [1, 2, 3])
def test_tiny_problems_equal_libsvm(n):
    X, Y = noisy_problem(n=n)
    kernel = rbf_kernel(X, 0.2)
    ours = solve_nu_svr(kernel, Y, nu=0.5, C=100.0, tolerance=1e-6)
    reference = solve_nu_svr_libsvm(kernel, Y, nu=0.5, C=100.0, tolerance=1e-6)
    assert predictions(kernel, ours) == pytest.approx(predictions(kernel, reference), abs=1e-3)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_identical_rows_get_one_prediction_inside_their_targets(dtype):
    kernel, Y = np.ones((4, 4), dtype=dtype), np.array([[0.0], [1.0], [2.0], [10.0]])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        predicted = predictions(kernel, solve_nu_svr(kernel, Y, nu=0.5, C=1.0))
    assert np.ptp(predicted) <= 1e-6
    assert 0 <= predicted[0, 0] <= 10


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("nu", "C"), [(0.1, 0.5), (0.4, 3.0), (0.9, 50.0)])
def test_solution_is_feasible(nu, C, dtype):
    X, Y = noisy_problem()
    beta = solve_nu_svr(rbf_kernel(X.astype(dtype), 0.5), Y, nu=nu, C=C).coefficients.astype(float)
    assert np.abs(beta.sum(axis=0)).max() <= 1e-5 * C * len(Y)
    assert np.abs(beta).max() <= C * (1 + 1e-6)
    assert np.abs(beta).sum(axis=0).max() <= C * nu * len(Y) * (1 + 1e-5)


def test_solution_meets_the_optimality_conditions():
    X, Y = noisy_problem()
    kernel, C = rbf_kernel(X, 0.5), 2.0
    solution = solve_nu_svr(kernel, Y, nu=0.3, C=C, tolerance=1e-6, max_iter=20_000)
    for output, spread in enumerate(Y.std(axis=0)):
        beta = solution.coefficients[:, output]
        error = Y[:, output] - predictions(kernel, solution)[:, output]
        free = (np.abs(beta) > 1e-9) & (np.abs(beta) < C - 1e-9)
        tube, slack = np.abs(error[free]).mean(), 1e-4 * spread
        for coefficient, miss in zip(beta, error, strict=True):
            if abs(coefficient) <= 1e-9:
                assert abs(miss) <= tube + slack
            else:
                assert np.sign(coefficient) == np.sign(miss)
                assert abs(miss) >= tube - slack
            if 1e-9 < abs(coefficient) < C - 1e-9:
                assert abs(miss) <= tube + slack


def test_clean_targets_converge_without_a_warning():
    X = np.linspace(-3, 3, 60)[:, None]
    kernel, Y = rbf_kernel(X, 1.0), np.hstack([np.sin(X), np.cos(X)])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        solution = solve_nu_svr(kernel, Y, nu=0.4, C=10.0)
    assert np.abs(predictions(kernel, solution) - Y).max() <= 0.01


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
    solver = SharedKernelSolver(kernel)
    solver.solve(Y, 0.2, 1000.0)
    again = solver.solve(Y, 0.4, 0.5, tolerance=1e-7, max_iter=20_000)
    fresh = solve_nu_svr(kernel, Y, nu=0.4, C=0.5, tolerance=1e-7, max_iter=20_000)
    assert predictions(kernel, again) == pytest.approx(predictions(kernel, fresh), abs=1e-4)


def test_solver_overwrites_the_kernel_only_when_allowed():
    X, Y = noisy_problem(n=20)
    kernel = rbf_kernel(X, 0.5)
    before = kernel.copy()
    kept = SharedKernelSolver(kernel).solve(Y, 0.4, 1.0)
    assert (kernel == before).all()
    used = SharedKernelSolver(kernel, overwrite=True).solve(Y, 0.4, 1.0)
    assert (kernel != before).any()
    assert (used.coefficients == kept.coefficients).all()


def test_stopping_early_warns_with_what_remains():
    X, Y = noisy_problem()
    kernel = rbf_kernel(X, 0.05)
    with pytest.warns(PolysemeWarning, match=r"of 5 outputs did not converge in 10 iterations.*up"):
        solution = solve_nu_svr(kernel, Y, nu=0.4, C=100.0, max_iter=10)
    assert solution.n_iter == 10
    with pytest.warns(PolysemeWarning, match="5 of 5 outputs did not converge in 3 libsvm steps"):
        solve_nu_svr_libsvm(kernel, Y, nu=0.4, C=100.0, max_iter=3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        SharedKernelSolver(kernel).solve(Y, 0.4, 100.0, max_iter=10, quiet=True)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"nu": 0.0}, "`nu` of `solve_nu_svr` must be a number above 0 and at most 1; got 0.0"),
        ({"nu": 1.5}, "`nu` of `solve_nu_svr` must be"),
        ({"C": -1.0}, "`C` of `solve_nu_svr` must be a number above 0; got -1.0"),
        ({"tolerance": 0.0}, "`tolerance` of `solve_nu_svr` must be"),
        ({"targets": np.zeros(3)}, r"`targets` must have one row per row of the kernel \(3\)"),
        ({"targets": np.zeros((4, 1))}, r"got shape \(4, 1\)"),
    ],
)
@pytest.mark.parametrize("solve", [solve_nu_svr, solve_nu_svr_libsvm])
def test_unusable_arguments_are_named(solve, change, message):
    arguments = {"targets": np.zeros((3, 1)), "nu": 0.4, "C": 1.0} | change
    with pytest.raises(InputError, match=message):
        solve(np.eye(3), **arguments)


def test_unusable_kernels_are_refused():
    with pytest.raises(InputError, match="must be a square matrix"):
        SharedKernelSolver(np.zeros((2, 3)))
    with pytest.raises(InputError, match="must be positive semi-definite"):
        solve_nu_svr(np.diag([1.0, -50.0, 1.0]), np.arange(3.0)[:, None], nu=0.5, C=1.0)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("nu", "C"), [(0.1, 1.0), (0.4, 10.0), (1.0, 1.0)])
def test_triangular_solutions_equal_the_inverse(monkeypatch, dtype, nu, C):
    X, Y = noisy_problem(n=151)
    kernel = rbf_kernel(X.astype(dtype), 0.5)
    inverse = solve_nu_svr(kernel, Y, nu=nu, C=C)
    monkeypatch.setattr(operators, "_INVERSE_ROWS", 0)
    factor = solve_nu_svr(kernel, Y, nu=nu, C=C)
    apart = np.abs(predictions(kernel, inverse) - predictions(kernel, factor)) / Y.std(axis=0)
    assert apart.max() <= 5e-4


def test_outputs_of_very_different_scales_are_solved_together():
    X, Y = noisy_problem(n=201)
    Y = (Y - Y.mean(axis=0)) / Y.std(axis=0) * np.geomspace(1e-4, 1e2, Y.shape[1])
    kernel = rbf_kernel(X, 0.4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PolysemeWarning)
        ours = solve_nu_svr(kernel, Y, nu=0.4, C=1.0, tolerance=1e-5, max_iter=5000)
    reference = solve_nu_svr_libsvm(kernel, Y, nu=0.4, C=1.0, tolerance=1e-6)
    apart = np.abs(predictions(kernel, ours) - predictions(kernel, reference)) / Y.std(axis=0)
    assert apart.max() <= 5e-3


@pytest.mark.parametrize("shape", [(0, 5), (1, 1), (3, 200_000), (700, 700)])
def test_blocks_cover_every_row_once(shape):
    seen = np.zeros(shape[0], dtype=int)

    def count(rows):
        seen[rows] += 1

    in_blocks(count, *shape)
    assert (seen == 1).all()


def test_what_fails_in_a_block_is_raised():
    def fail(rows):
        raise ValueError("in a block")

    with pytest.raises(ValueError, match="in a block"):
        in_blocks(fail, 1000, 1000)


# The same with tensors: here on the processor, where they must equal numpy's


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("nu", "C"), [(0.1, 1.0), (0.43, 10.0), (0.8, 2.0), (1.0, 0.1)])
def test_tensors_solve_nu_svr_as_arrays_do(dtype, nu, C):
    X, Y = noisy_problem(n=151)
    kernel = rbf_kernel(X.astype(dtype), 0.5)
    ours = solve_nu_svr(kernel, Y, nu=nu, C=C)
    found = solve_nu_svr_on("cpu", X.astype(dtype), Y, gamma=0.5, nu=nu, C=C)
    assert found.coefficients.dtype == found.bias.dtype == dtype
    apart = np.abs(predictions(kernel, ours) - predictions(kernel, found)) / Y.std(axis=0)
    assert apart.max() <= 1e-3


@pytest.mark.parametrize("n", [1, 2, 30])
def test_tensors_solve_degenerate_problems(n):
    X, Y = noisy_problem(n=n)
    X, Y = np.round(X), np.round(Y)
    Y[:, 1] = 3.0
    kernel = rbf_kernel(X, 0.2)
    ours = solve_nu_svr(kernel, Y, nu=0.43, C=5.0, tolerance=1e-6)
    found = solve_nu_svr_on("cpu", X, Y, gamma=0.2, nu=0.43, C=5.0, tolerance=1e-6)
    assert predictions(kernel, found) == pytest.approx(predictions(kernel, ours), abs=1e-2)


def test_tensors_that_do_not_converge_warn():
    X, Y = noisy_problem()
    with pytest.warns(PolysemeWarning, match="of 5 outputs did not converge in 10 iterations"):
        solve_nu_svr_on("cpu", X, Y, gamma=0.05, nu=0.4, C=100.0, max_iter=10)


@pytest.mark.parametrize(("dtype", "within"), [(np.float32, 1e-3), (np.float64, 1e-9)])
def test_tensors_solve_kernel_ridge_as_arrays_do(dtype, within):
    X, Y = noisy_problem()
    rows = X.astype(dtype)
    ours = solve_kernel_ridge(rbf_kernel(rows, 0.4), Y, penalty=0.3)
    coefficients, bias = solve_ridge_on("cpu", rows, Y, gamma=0.4, penalty=0.3)
    expected = rbf_predict(rows, rows, 0.4, *ours)
    found = DevicePredictor("cpu", rows, 0.4, coefficients, bias).predict(rows)
    assert found.dtype == dtype
    assert np.abs((found - expected) / Y.std(axis=0)).max() <= within
    with pytest.raises(InputError, match="`penalty` is too small for this kernel"):
        solve_ridge_on("cpu", np.ones((3, 1)), np.eye(3), gamma=1.0, penalty=1e-17)


@pytest.mark.parametrize("memory", [1e9, 3e4])
@pytest.mark.parametrize("make", [np.asarray, sp.csr_matrix])
def test_tensors_solve_landmarks_as_arrays_do(memory, make):
    X, Y = noisy_problem(n=151)
    X = np.round(X)
    landmarks = make(X[::4])
    rows = LandmarkRows(lambda part: X[part], len(X), landmarks, 0.3, memory)
    for ours, found, within in (
        (
            solve_landmark_ridge(rows, Y, penalty=0.3),
            solve_landmark_ridge_on("cpu", rows, Y, penalty=0.3),
            1e-6,
        ),
        (
            solve_landmark_nu_svr(rows, Y, nu=0.4, C=2.0, tolerance=1e-3),
            solve_landmark_nu_svr_on("cpu", rows, Y, nu=0.4, C=2.0, tolerance=1e-3),
            1e-3,
        ),
    ):
        expected, predicted = (rbf_predict(X, rows.landmarks, 0.3, *one) for one in (ours, found))
        assert np.abs((predicted - expected) / Y.std(axis=0)).max() <= within


# Kernel ridge


@pytest.mark.parametrize("penalty", [0.01, 1.0, 30.0])
def test_kernel_ridge_equals_scikit_learn_on_centred_targets(penalty):
    X, Y = noisy_problem()
    kernel = rbf_kernel(X, 0.4)
    solution = solve_kernel_ridge(kernel, Y, penalty=penalty)
    reference = KernelRidge(alpha=penalty, kernel="precomputed").fit(kernel, Y - Y.mean(axis=0))
    assert np.allclose(solution.coefficients, reference.dual_coef_)
    assert np.allclose(solution.bias, Y.mean(axis=0))


def test_kernel_ridge_path_gives_each_penalty_in_order():
    X, Y = noisy_problem()
    kernel = rbf_kernel(X.astype(np.float32), 0.4)
    penalties = [1.0, 0.1, 10.0]
    for penalty, found in zip(penalties, kernel_ridge_path(kernel, Y, penalties), strict=True):
        assert found.coefficients.dtype == np.float32
        alone = solve_kernel_ridge(kernel, Y, penalty=penalty)
        assert (found.coefficients == alone.coefficients).all()


def test_kernel_ridge_turns_to_double_precision_where_single_fails():
    X, Y = noisy_problem(n=200, n_features=1)
    kernel = rbf_kernel(X.astype(np.float32), 0.01)
    solution = solve_kernel_ridge(kernel, Y, penalty=2e-6)
    assert solution.coefficients.dtype == np.float32
    exact = solve_kernel_ridge(kernel.astype(np.float64), Y, penalty=2e-6)
    assert np.allclose(solution.coefficients, exact.coefficients, rtol=1e-3)


def test_kernel_ridge_names_what_is_wrong():
    with pytest.raises(InputError, match="`penalty` of `solve_kernel_ridge` must be a number abo"):
        solve_kernel_ridge(np.eye(2), np.zeros((2, 1)), penalty=0.0)
    with pytest.raises(InputError, match="`penalty` is too small for this kernel"):
        solve_kernel_ridge(np.ones((3, 3)), np.eye(3), penalty=1e-17)
    with pytest.raises(InputError, match=r"got shapes \(2,\) and \(2, 2\)"):
        solve_kernel_ridge(np.eye(2), np.zeros(2), penalty=1.0)


# Cross-validation


def test_cross_validation_error_equals_a_plain_loop():
    X, Y = noisy_problem(n=30)
    found = cross_validate(X, Y, [{"gamma": 0.3, "penalty": 0.5}], 3, 100, np.random.default_rng(5))
    folds = np.array_split(np.random.default_rng(5).permutation(30), 3)
    for held_out, error in zip(folds, found[:, 0], strict=True):
        train = np.setdiff1d(np.arange(30), held_out)
        model = KernelRidge(alpha=0.5, kernel="rbf", gamma=0.3)
        mean = Y[train].mean(axis=0)
        predicted = model.fit(X[train], Y[train] - mean).predict(X[held_out]) + mean
        assert error == pytest.approx(((predicted - Y[held_out]) ** 2).mean())


def test_cross_validation_looks_at_a_sample_of_rows_and_outputs(monkeypatch):
    shapes = []
    monkeypatch.setattr(
        search,
        "_errors",
        lambda rows, targets, *_: shapes.append((rows.shape, targets.shape)) or [],
    )
    X, Y = noisy_problem(n=100, d=50)
    cross_validate(X, Y, [], 2, 40, np.random.default_rng(0))
    assert shapes == [((40, 4), (40, 32))] * 2
