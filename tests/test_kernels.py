from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from polyseme.published.solvers.kernels import (
    column_statistics,
    median_gamma,
    rbf_kernel,
    rbf_predict,
    row_blocks,
    scale_rows,
    squared_distances,
    variance_gamma,
)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rbf_kernel_equals_a_plain_loop(dtype):
    rows = np.random.default_rng(0).normal(size=(7, 3)).astype(dtype)
    kernel = rbf_kernel(rows, 0.3)
    for i, a in enumerate(rows.astype(float)):
        for j, b in enumerate(rows.astype(float)):
            assert kernel[i, j] == pytest.approx(np.exp(-0.3 * ((a - b) ** 2).sum()), rel=1e-5)
    assert kernel.dtype == dtype
    assert (np.diag(kernel) == 1).all()
    assert (kernel == kernel.T).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n", [1025, 1537])  # beyond two tiles, with an odd rest
@pytest.mark.parametrize("scale", [1e-12, 1.0, 1e12])
def test_tiles_give_the_kernel_of_one_product(n, scale, dtype):
    rng = np.random.default_rng(n)
    rows = (rng.normal(size=(n, 4)) * scale).astype(dtype)
    rows[100:200] = rows[0]
    rows[300:310] = 0
    kernel = rbf_kernel(rows, 0.3 / scale**2)
    wide = rows.astype(np.float64) / scale
    expected = np.exp(-0.3 * ((wide[:, None, :] - wide[None, ::7]) ** 2).sum(axis=2))
    assert np.allclose(kernel[:, ::7], expected, atol=1e-5)
    assert (kernel == kernel.T).all()
    assert (np.diag(kernel) == 1).all()


def test_sparse_rows_give_the_dense_kernel():
    dense = np.random.default_rng(1).poisson(0.4, size=(30, 12)).astype(float)
    kernel = rbf_kernel(sp.csr_matrix(dense), 0.2)
    assert np.allclose(kernel, rbf_kernel(dense, 0.2), atol=1e-12)
    assert (kernel == kernel.T).all()


def test_squared_distances_of_equal_rows_are_not_negative():
    rows = np.full((5, 3), 1234.567, dtype=np.float32) + np.float32(0.001)
    assert (squared_distances(rows, rows) >= 0).all()


def test_rbf_predict_is_the_kernel_expansion():
    rng = np.random.default_rng(2)
    rows, queries, coefficients = (
        rng.normal(size=(6, 2)),
        rng.normal(size=(3, 2)),
        rng.normal(size=(6, 2)),
    )
    bias = np.array([1.0, -2.0])
    predicted = rbf_predict(queries, rows, 0.7, coefficients, bias)
    for i, query in enumerate(queries):
        total = bias.copy()
        for row, coefficient in zip(rows, coefficients, strict=True):
            total += coefficient * np.exp(-0.7 * ((query - row) ** 2).sum())
        assert predicted[i] == pytest.approx(total)


def test_median_gamma_is_one_over_the_median_squared_distance():
    rows = np.array([[0.0], [1.0], [3.0]])  # squared distances 1, 4, 9
    assert median_gamma(rows, np.random.default_rng(0)) == pytest.approx(0.25)


@pytest.mark.parametrize(
    ("rows", "gamma"),
    [([[2.0]], 1.0), ([[2.0], [2.0]], 1.0), ([[0.0], [0.0], [0.0], [2.0]], 0.5)],
)
def test_median_gamma_of_coinciding_rows_is_defined(rows, gamma):
    assert median_gamma(np.array(rows), np.random.default_rng(0)) == pytest.approx(gamma)


def test_median_gamma_of_many_rows_looks_at_a_sample():
    rows = np.random.default_rng(0).normal(size=(1500, 2))
    sampled = median_gamma(rows, np.random.default_rng(0))
    pairs = squared_distances(rows, rows)[np.triu_indices(1500, 1)]
    assert sampled == pytest.approx(1 / np.median(pairs), rel=0.1)


@pytest.mark.parametrize("make", [np.asarray, sp.csr_matrix])
def test_variance_gamma_is_one_over_the_total_variance(make):
    rows = np.random.default_rng(3).normal(size=(40, 3)) * [1, 2, 3] + 5
    assert variance_gamma(make(rows)) == pytest.approx(1 / rows.var(axis=0).sum())
    assert variance_gamma(make(np.ones((4, 2)))) == 1.0


@given(n=st.integers(0, 50), row=st.integers(1, 30), memory=st.integers(0, 300))
@settings(deadline=None, max_examples=50)
def test_row_blocks_cover_all_rows_within_memory(n, row, memory):
    blocks = list(row_blocks(n, row, memory))
    assert [i for block in blocks for i in range(n)[block]] == list(range(n))
    assert all((block.stop - block.start) * row <= max(memory, row) for block in blocks)


def test_standard_scaling_gives_unit_columns_and_leaves_constant_ones():
    X = np.random.default_rng(4).normal(size=(50, 3)) * [1, 100, 0] + [5, -7, 0.1]
    mean, scale = column_statistics(X, "standard")
    rows = scale_rows(X, "standard", mean, scale, np.float64)
    assert scale[2] == 1
    assert np.allclose(rows.mean(axis=0), 0)
    assert np.allclose(rows.std(axis=0), [1, 1, 0])


def test_sparse_standard_scaling_has_the_dense_scale_and_stays_sparse():
    dense = np.random.default_rng(5).poisson(0.3, size=(60, 6)).astype(float)
    dense[:, 2] = 0
    mean, scale = column_statistics(sp.csr_matrix(dense), "standard")
    rows = scale_rows(sp.csr_matrix(dense), "standard", mean, scale, np.float64)
    assert (mean == 0).all()
    assert np.allclose(scale, column_statistics(dense, "standard")[1])
    assert sp.issparse(rows)
    assert np.allclose(rows.toarray(), dense / scale)


@pytest.mark.parametrize("make", [np.asarray, sp.csr_matrix])
def test_l2_scaling_gives_unit_rows_and_leaves_zero_ones(make):
    X = make(np.array([[3.0, 4.0], [0.0, 0.0], [0.0, -2.0]]))
    rows = scale_rows(X, "l2", *column_statistics(X, "l2"), np.float64)
    dense = rows.toarray() if sp.issparse(rows) else rows
    assert np.allclose(dense, [[0.6, 0.8], [0, 0], [0, -1]])


def test_sparse_columns_in_single_precision_keep_their_spread():
    generator = np.random.default_rng(0)
    X = (3 + 0.05 * generator.standard_normal((200_000, 2))).astype(np.float32)
    _, scale = column_statistics(sp.csr_matrix(X), "standard")
    np.testing.assert_allclose(scale, X.astype(np.float64).std(axis=0), rtol=1e-6)
