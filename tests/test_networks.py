"""The sub-network and its pre-training, against the plain computation on joined inputs."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from polyseme.published.descriptors import LabelDescriptor
from polyseme.published.nn.networks import ConceptNetwork
from polyseme.published.nn.pairs import PairSampler
from polyseme.published.nn.pretraining import pretrain_layer

N_LABELS, N_TOPICS = 9, 4


def network(seed=0, hidden=(7, 6), n_components=3, dtype=torch.float64, descriptors=None):
    """Make a small network whose initial weights come from the seed alone."""
    if descriptors is None:
        descriptors = np.random.default_rng(9).standard_normal((N_LABELS, 5))
    drawn = torch.Generator().manual_seed(seed)
    return ConceptNetwork(descriptors, N_TOPICS, hidden, n_components, drawn, dtype)


def inputs(n=12, dtype=torch.float64):
    """Draw label ids, many of them repeated, and contexts."""
    generator = np.random.default_rng(3)
    contexts = torch.tensor(generator.dirichlet(np.ones(N_TOPICS), n), dtype=dtype)
    return torch.tensor(generator.integers(0, N_LABELS, n)), contexts


def plain_forward(tested, label_ids, contexts):
    """Run the network on the joined inputs with numpy, layer by layer."""
    rows = [np.r_[tested.descriptors[i], c] for i, c in zip(label_ids, contexts, strict=True)]
    hidden = np.array(rows)
    for layer in tested.layers:
        hidden = np.tanh(hidden @ layer.weight.detach().numpy().T + layer.bias.detach().numpy())
    output = tested.output
    return hidden, hidden @ output.weight.detach().numpy().T + output.bias.detach().numpy()


@pytest.mark.parametrize("hidden", [(), (7,), (7, 6)])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-5)])
def test_forward_equals_the_computation_on_joined_inputs(hidden, dtype, tolerance):
    tested = network(hidden=hidden, dtype=dtype)
    with torch.no_grad():
        for parameter in tested.parameters():
            parameter += 0.1
    label_ids, contexts = inputs(dtype=dtype)
    codes, activations = tested(label_ids, contexts)
    expected_codes, expected_activations = plain_forward(tested, label_ids, contexts)
    np.testing.assert_allclose(codes.detach(), expected_codes, rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(
        activations.detach(), expected_activations, rtol=tolerance, atol=tolerance
    )
    assert codes.dtype == activations.dtype == dtype
    np.testing.assert_array_equal(tested.encode(label_ids, contexts).detach(), codes.detach())


def test_shapes_follow_the_paper():
    tested = network(hidden=(7, 6), n_components=3)
    assert [tuple(layer.weight.shape) for layer in tested.layers] == [(7, 9), (6, 7), (3, 6)]
    assert tuple(tested.output.weight.shape) == (N_LABELS, 3)
    codes, activations = tested(*inputs())
    assert (tuple(codes.shape), tuple(activations.shape)) == ((12, 3), (12, N_LABELS))
    assert codes.abs().max() < 1


def test_no_examples_give_no_codes():
    codes, activations = network()(*inputs(0))
    assert (tuple(codes.shape), tuple(activations.shape)) == ((0, 3), (0, N_LABELS))


def test_descriptors_are_stored_but_not_learned():
    tested = network()
    assert "descriptors" in tested.state_dict()
    assert "descriptors" not in dict(tested.named_parameters())


def test_same_seed_gives_the_same_weights_without_touching_the_global_generator():
    before = torch.get_rng_state()
    first, second, other = (network(seed).state_dict() for seed in (0, 0, 1))
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert not torch.equal(first["layers.0.weight"], other["layers.0.weight"])
    assert torch.equal(torch.get_rng_state(), before)


def test_initial_weights_are_glorot_uniform():
    tested = network(hidden=(200, 100), n_components=50)
    for layer in [*tested.layers, tested.output]:
        bound = np.sqrt(6 / (layer.in_features + layer.out_features))
        weights = layer.weight.detach().numpy()
        assert 0.95 * bound < np.abs(weights).max() <= bound
        assert weights.std() == pytest.approx(bound / np.sqrt(3), rel=0.1)
        assert not layer.bias.any()


# --- pre-training ---------------------------------------------------------------------------


def corpus(n_documents=90):
    """Make documents of three blocks of labels, and contexts that say which."""
    generator = np.random.default_rng(4)
    matrix = np.zeros((n_documents, N_LABELS), dtype=bool)
    contexts = np.full((n_documents, N_TOPICS), 0.05)
    for row in range(n_documents):
        matrix[row, row % 3 * 3 + generator.permutation(3)[:2]] = True
        contexts[row, row % 3] = 0.85
    return matrix, torch.tensor(contexts)


def pretrained(layer, n_passes, seed=0):
    """Pre-train one layer of a fresh network; give the network and its error."""
    matrix, contexts = corpus()
    tested = network(descriptors=LabelDescriptor().fit(matrix).descriptors_)
    sampler = PairSampler(sp.csr_matrix(matrix), batch_size=32)
    generator = np.random.default_rng(seed)
    error = pretrain_layer(tested, layer, sampler, contexts, generator, n_passes=n_passes)
    return tested, error


@pytest.mark.parametrize("layer", [0, 1, 2])
def test_pretraining_lowers_the_reconstruction_error(layer):
    first = pretrained(layer, 1)[1]
    last = pretrained(layer, 60)[1]
    assert 0 < last < 0.7 * first


def test_pretrained_layer_gives_back_what_comes_in():
    def unexplained(tested):
        matrix, contexts = corpus()
        rows, labels = np.nonzero(matrix)
        inputs = np.c_[tested.descriptors[labels], contexts[rows]]
        weight, bias = (t.detach().numpy() for t in tested.layers[0].parameters())
        left = inputs - np.tanh(inputs @ weight.T + bias) @ weight
        return left.var(axis=0).sum() / inputs.var(axis=0).sum()

    assert unexplained(pretrained(0, 60)[0]) < 0.1 < 0.3 < unexplained(pretrained(0, 0)[0])


def test_pretraining_changes_its_own_layer_only():
    trained, fresh = (dict(pretrained(1, n)[0].named_parameters()) for n in (3, 0))
    changed = {name for name in trained if not torch.equal(trained[name], fresh[name])}
    assert changed == {"layers.1.weight", "layers.1.bias"}


def test_pretraining_repeats_with_its_generator():
    first, second, other = (pretrained(0, 2, seed) for seed in (0, 0, 1))
    assert first[1] == second[1] != other[1]
    assert torch.equal(first[0].layers[0].weight, second[0].layers[0].weight)
