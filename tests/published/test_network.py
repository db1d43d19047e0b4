"""The sub-network, against the plain computation on joined inputs."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from numpy.testing import assert_allclose

import polyseme.published.network
from polyseme.published.descriptors import CentredRows
from polyseme.published.network import ConceptNetwork, _find_onednn, encode_documents, row_means

N_LABELS = 9
N_TOPICS = 4


def network(seed=0, hidden=(7, 6), n_components=3, dtype=torch.float64, descriptors=None):
    """Make a small network whose initial weights come from the seed alone; biases are not zero."""
    if descriptors is None:
        descriptors = np.random.default_rng(9).standard_normal((N_LABELS, 5))
    drawn = torch.Generator().manual_seed(seed)
    made = ConceptNetwork(descriptors, N_TOPICS, hidden, n_components, drawn, dtype)
    made.weights += 0.1
    return made


def inputs(n=12, dtype=torch.float64):
    """Draw label ids, many of them repeated, and contexts."""
    generator = np.random.default_rng(3)
    contexts = torch.tensor(generator.dirichlet(np.ones(N_TOPICS), n), dtype=dtype)
    return torch.tensor(generator.integers(0, N_LABELS, n)), contexts


def sparse_rows():
    """Make sparse centred descriptors, the last label's not in use."""
    rows = sp.random(N_LABELS, 5, 0.4, format="csr", dtype=np.float32, random_state=0)
    used = np.ones(N_LABELS, dtype=np.float32)
    used[-1] = 0
    rows = sp.csr_matrix(sp.diags(used) @ rows, dtype=np.float32)
    return CentredRows(rows, np.linspace(-1, 1, 5, dtype=np.float32), used)


@pytest.mark.parametrize("hidden", [(), (7,), (7, 6)])
@pytest.mark.parametrize("way", ["double", "onednn", "torch", "sparse"])
def test_both_passes_equal_the_computation_on_joined_inputs(hidden, way, monkeypatch):
    if way == "torch":
        monkeypatch.setattr(polyseme.published.network, "_ONEDNN", None)
    dtype, tolerance = (torch.float64, 1e-12) if way == "double" else (torch.float32, 1e-5)
    descriptors = sparse_rows() if way == "sparse" else None
    tested = network(hidden=hidden, dtype=dtype, descriptors=descriptors)
    label_ids, contexts = inputs(dtype=dtype)
    vector = tested.weights.clone().requires_grad_()
    expected = torch.cat([tested.descriptor_rows(label_ids), contexts], dim=1)
    for layer in tested.views(vector)[:-1]:
        expected = torch.tanh(expected @ layer.weight.t() + layer.bias)
    activations = tested.forward(label_ids, contexts)
    for codes in (
        activations.layers[-1],
        tested.encode(label_ids, contexts),
        tested.encode(label_ids, contexts, tested.label_inputs()),
    ):
        assert_allclose(codes, expected.detach(), atol=tolerance)
    slope = torch.linspace(-1, 1, expected.numel(), dtype=dtype).view(expected.shape)
    (by_tape,) = torch.autograd.grad((expected * slope).sum(), vector)
    gradient = torch.zeros_like(vector)
    tested.backward(slope, activations, tested.views(gradient))
    assert_allclose(gradient, by_tape, atol=10 * tolerance)


def test_products_of_sparse_rows_are_those_of_dense_ones():
    rows = sparse_rows()
    generator = np.random.default_rng(0)
    weights = torch.from_numpy(generator.standard_normal((5, 6)).astype(np.float32))
    empty = CentredRows(sp.csr_matrix((N_LABELS, 5), dtype=np.float32), rows.mean, rows.used)
    for part in (rows, rows.take(np.array([5, 0, 8, 5])), rows.take(np.array([], int)), empty):
        dense = torch.from_numpy(part.toarray())
        assert_allclose(part.times(weights), dense @ weights, atol=1e-5)
        values = torch.from_numpy(generator.standard_normal((len(dense), 6)).astype(np.float32))
        out = torch.full((5, 6), torch.nan)
        part.transposed_times(values, out)
        assert_allclose(out, dense.T @ values, atol=1e-5)


def test_shapes_follow_the_paper():
    tested = network(hidden=(7, 6), n_components=3)
    shapes = [tuple(layer.weight.shape) for layer in (*tested.layers, tested.output)]
    assert shapes == [(7, 9), (6, 7), (3, 6), (N_LABELS, 3)]
    assert tested.to("cpu") is tested
    assert tuple(tested.encode(*inputs(0)).shape) == (0, 3)


def test_initial_weights_are_glorot_uniform_and_from_the_seed_alone():
    before = torch.get_rng_state()
    first, second, other = (network(seed).weights for seed in (0, 0, 1))
    assert torch.equal(first, second)
    assert not torch.equal(first, other)
    assert torch.equal(torch.get_rng_state(), before)
    tested = network(hidden=(200, 100), n_components=50)
    tested.weights -= 0.1
    for weight, bias in (*tested.layers, tested.output):
        bound = np.sqrt(6 / sum(weight.shape))
        assert 0.95 * bound < weight.abs().max() <= bound + 1e-9
        assert float(weight.std()) == pytest.approx(bound / np.sqrt(3), rel=0.1)
        assert_allclose(bias, 0, atol=1e-12)


def test_documents_are_embedded_label_by_label_and_averaged(monkeypatch):
    tested = network(dtype=torch.float32)
    matrix = sp.csr_matrix(np.random.default_rng(0).random((20, N_LABELS)) < 0.3)
    matrix = sp.csr_matrix(sp.vstack([matrix, sp.csr_matrix((1, N_LABELS), dtype=bool)]))
    contexts = inputs(21, torch.float32)[1].numpy()
    rows, labels = matrix.nonzero()
    expected = tested.encode(torch.from_numpy(labels).long(), torch.from_numpy(contexts[rows]))
    monkeypatch.setattr(polyseme.published.network, "_AT_A_TIME", 7)
    points = encode_documents(tested, matrix, contexts)
    assert_allclose(points, expected, atol=1e-6)
    means = row_means(matrix, points)
    assert np.isnan(means[-1]).all()
    for row in range(20):
        if (rows == row).any():
            assert_allclose(means[row], points[rows == row].mean(axis=0), atol=1e-6)


@pytest.mark.parametrize("operator", [None, lambda *_: torch.ones(2, 2), lambda values: values])
def test_an_operator_that_is_missing_or_does_something_else_is_not_used(operator, monkeypatch):
    module = SimpleNamespace() if operator is None else SimpleNamespace(_linear_pointwise=operator)
    monkeypatch.setattr(torch.ops, "mkldnn", module)
    assert _find_onednn() is None
