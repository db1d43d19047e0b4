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
    if descriptors is None:
        generator = np.random.default_rng(9)
        descriptors = generator.standard_normal((N_LABELS, 5))
    weight_generator = torch.Generator().manual_seed(seed)
    network = ConceptNetwork(
        descriptors,
        N_TOPICS,
        hidden,
        n_components,
        weight_generator,
        dtype,
    )
    network.weights += 0.1
    return network


def inputs(n=12, dtype=torch.float64):
    generator = np.random.default_rng(3)
    uniform = np.ones(N_TOPICS)
    contexts = generator.dirichlet(uniform, n)
    label_ids = generator.integers(0, N_LABELS, n)
    return torch.tensor(label_ids), torch.tensor(contexts, dtype=dtype)


def sparse_rows():
    used = np.ones(N_LABELS, dtype=np.float32)
    used[-1] = 0
    rows = sp.random(
        N_LABELS,
        5,
        0.4,
        format="csr",
        dtype=np.float32,
        random_state=0,
    )
    used_rows = sp.csr_matrix(sp.diags(used) @ rows, dtype=np.float32)
    mean = np.linspace(-1, 1, 5, dtype=np.float32)
    return CentredRows(used_rows, mean, used)


@pytest.mark.parametrize("hidden", [(), (7,), (7, 6)])
@pytest.mark.parametrize("way", ["double", "onednn", "torch", "sparse"])
def test_both_passes_equal_the_computation_on_joined_inputs(hidden, way, monkeypatch):
    if way == "torch":
        monkeypatch.setattr(polyseme.published.network, "_ONEDNN", None)
    dtype = torch.float64 if way == "double" else torch.float32
    tolerance = 1e-12 if way == "double" else 1e-5
    descriptors = sparse_rows() if way == "sparse" else None
    tested = network(hidden=hidden, dtype=dtype, descriptors=descriptors)
    label_ids, contexts = inputs(dtype=dtype)

    vector = tested.weights.clone().requires_grad_()
    label_rows = tested.descriptor_rows(label_ids)
    expected = torch.cat([label_rows, contexts], dim=1)
    for layer in tested.views(vector)[:-1]:
        product = expected @ layer.weight.t()
        expected = torch.tanh(product + layer.bias)

    activations = tested.forward(label_ids, contexts)
    computed_codes = [
        activations.layers[-1],
        tested.encode(label_ids, contexts),
        tested.encode(label_ids, contexts, tested.label_inputs()),
    ]
    for codes in computed_codes:
        assert_allclose(codes, expected.detach(), atol=tolerance)

    slope = torch.linspace(-1, 1, expected.numel(), dtype=dtype).view(expected.shape)
    loss = (expected * slope).sum()
    (by_tape,) = torch.autograd.grad(loss, vector)
    gradient = torch.zeros_like(vector)
    tested.backward(slope, activations, tested.views(gradient))
    assert_allclose(gradient, by_tape, atol=10 * tolerance)


@pytest.mark.parametrize("selection", ["all", "some", "none", "empty rows"])
def test_products_of_sparse_rows_are_those_of_dense_ones(selection):
    rows = sparse_rows()
    if selection == "some":
        rows = rows.take(np.array([5, 0, 8, 5]))
    elif selection == "none":
        rows = rows.take(np.array([], int))
    elif selection == "empty rows":
        no_entries = sp.csr_matrix((N_LABELS, 5), dtype=np.float32)
        rows = CentredRows(no_entries, rows.mean, rows.used)
    dense = torch.from_numpy(rows.toarray())

    generator = torch.Generator().manual_seed(0)
    weights = torch.randn(5, 6, generator=generator)
    assert_allclose(rows.times(weights), dense @ weights, atol=1e-5)

    values = torch.randn(len(dense), 6, generator=generator)
    product = torch.full((5, 6), torch.nan)
    rows.transposed_times(values, product)
    expected = dense.T @ values
    assert_allclose(product, expected, atol=1e-5)


def test_shapes_follow_the_paper():
    tested = network(hidden=(7, 6), n_components=3)
    layers = (*tested.layers, tested.output)
    shapes = [tuple(layer.weight.shape) for layer in layers]
    assert shapes == [(7, 9), (6, 7), (3, 6), (N_LABELS, 3)]
    assert tested.to("cpu") is tested
    label_ids, contexts = inputs(0)
    codes = tested.encode(label_ids, contexts)
    assert tuple(codes.shape) == (0, 3)


def test_initial_weights_come_from_the_seed_alone():
    state = torch.get_rng_state()
    first = network(0)
    second = network(0)
    different = network(1)
    assert torch.equal(first.weights, second.weights)
    assert not torch.equal(first.weights, different.weights)
    assert torch.equal(torch.get_rng_state(), state)


def test_initial_weights_are_glorot_uniform():
    tested = network(hidden=(200, 100), n_components=50)
    tested.weights -= 0.1
    for weight, bias in (*tested.layers, tested.output):
        bound = np.sqrt(6 / sum(weight.shape))
        largest = weight.abs().max()
        assert 0.95 * bound < largest <= bound + 1e-9
        deviation = float(weight.std())
        expected = bound / np.sqrt(3)
        assert deviation == pytest.approx(expected, rel=0.1)
        assert_allclose(bias, 0, atol=1e-12)


def test_documents_are_embedded_label_by_label_and_averaged(monkeypatch):
    tested = network(dtype=torch.float32)
    generator = np.random.default_rng(0)
    dense = generator.random((21, N_LABELS)) < 0.3
    dense[20] = False  # a document without labels
    matrix = sp.csr_matrix(dense)
    _, all_contexts = inputs(21, torch.float32)
    contexts = all_contexts.numpy()
    rows, labels = matrix.nonzero()
    label_ids = torch.from_numpy(labels).long()
    label_contexts = torch.from_numpy(contexts[rows])
    expected = tested.encode(label_ids, label_contexts)

    monkeypatch.setattr(polyseme.published.network, "_CONCEPTS_TOGETHER", 7)
    points = encode_documents(tested, matrix, contexts)
    assert_allclose(points, expected, atol=1e-6)

    means = row_means(matrix, points)
    assert np.isnan(means[20]).all()
    for row in np.unique(rows):
        mean = points[rows == row].mean(axis=0)
        assert_allclose(means[row], mean, atol=1e-6)


@pytest.mark.parametrize("operator", [None, lambda *_: torch.ones(2, 2), lambda values: values])
def test_an_operator_that_is_missing_or_does_something_else_is_not_used(operator, monkeypatch):
    module = SimpleNamespace()
    if operator is not None:
        module._linear_pointwise = operator
    monkeypatch.setattr(torch.ops, "mkldnn", module)
    assert _find_onednn() is None
