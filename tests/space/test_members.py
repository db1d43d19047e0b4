"""Members of a concept space: what they compute, and the step that was written by hand."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from numpy.testing import assert_allclose, assert_array_equal
from torch.testing import assert_close

from polyseme.space.members import Members, Shape, mean_of, probabilities_of
from polyseme.space.steps import MemberOptimizer, SparseTags, TrainingBatch, start_members, step

N_MEMBERS = 3
N_ROWS = 6
N_ITEMS = 4
SHAPE = Shape(n_labels=5, n_outputs=7, n_features=4, hidden=6, code=3)


def random_members(shape, n_members=N_MEMBERS, dtype=torch.float64, seed=0):
    """Return members whose weights and biases are all drawn."""
    generator = torch.Generator().manual_seed(seed)
    priors = np.full(shape.n_outputs, 0.5)
    started = start_members(shape, priors, range(n_members))
    groups = []
    for group in started.groups:
        groups.append(torch.randn(group.shape, generator=generator, dtype=dtype))
    return Members(shape, *groups)


def random_batch(shape, columns=None, n_members=N_MEMBERS, seed=1):
    generator = torch.Generator().manual_seed(seed)

    def random(*sizes):
        return torch.rand(n_members, *sizes, generator=generator, dtype=torch.float64)

    n_items = N_ITEMS if shape.n_features else 0
    n_columns = shape.n_outputs if columns is None else len(columns)
    n_rows = N_ROWS + n_items
    dropout_sizes = [
        (n_items, shape.n_features),
        (n_items, shape.hidden),
        (N_ROWS, shape.hidden),
        (n_rows, shape.code),
    ]
    return TrainingBatch(
        tags=random(N_ROWS, shape.n_labels),
        features=random(n_items, shape.n_features) - 0.5 if n_items else None,
        targets=random(n_rows, n_columns),
        weights=random(n_rows, n_columns),
        columns=columns,
        dropout=[(random(*sizes) < 0.7) / 0.7 for sizes in dropout_sizes],
    )


def cut(flat, *sizes):
    """Cut one member's flat weights into (weights, bias) of each layer."""
    layers = []
    remaining = flat
    for below, above in pairwise(sizes):
        size = below * above
        weights, bias, remaining = remaining.split([size, above, len(remaining) - size - above])
        layers.append((weights.reshape(below, above), bias))
    return layers


def plain_codes(inputs, flat, dropout=1.0):
    """One encoder, as anybody would write it."""
    (first, bias), (second, offset) = cut(flat, inputs.shape[1], SHAPE.hidden, SHAPE.code)
    return torch.tanh(torch.relu(inputs @ first + bias) * dropout @ second + offset)


def plain_loss(weights, batch, member):
    """Return one member's loss and logits, as anybody would write it."""
    items, documents, readout = weights
    on_features, on_items, on_documents, on_codes = [factors[member] for factors in batch.dropout]
    codes = plain_codes(batch.tags[member], documents, on_documents)
    if batch.features is not None:
        features = batch.features[member] * on_features
        item_codes = plain_codes(features, items, on_items)
        codes = torch.cat([codes, item_codes])
    ((labels, bias),) = cut(readout, SHAPE.code, SHAPE.n_outputs)
    logits = (codes * on_codes) @ labels + bias
    if batch.columns is not None:
        logits = logits[:, batch.columns]
    entropies = torch.nn.functional.binary_cross_entropy_with_logits(
        logits,
        batch.targets[member],
        reduction="none",
    )
    loss = (entropies * batch.weights[member]).sum()
    return loss, logits


@pytest.mark.parametrize("n_members", [1, 3])
@pytest.mark.parametrize("columns", [None, [1, 2, 6]], ids=["all outputs", "some outputs"])
@pytest.mark.parametrize("n_features", [0, 4], ids=["documents", "documents and items"])
def test_gradients_are_those_of_autograd(n_features, columns, n_members):
    shape = SHAPE._replace(n_features=n_features)
    members = random_members(shape, n_members)
    columns = None if columns is None else torch.tensor(columns)
    batch = random_batch(shape, columns, n_members)
    gradients = members.to("cpu")
    for gradient in gradients.groups:
        gradient.fill_(torch.nan)
    groups_before = [group.clone() for group in members.groups]
    logits = step(members, batch, gradients)
    for member in range(n_members):
        leaves = [group[member].clone().requires_grad_() for group in groups_before]
        loss, expected_logits = plain_loss(leaves, batch, member)
        loss.backward()
        assert_close(logits[member], expected_logits.detach(), rtol=0, atol=1e-12)
        for leaf, gradient in zip(leaves, gradients.groups, strict=True):
            if leaf.numel():
                assert leaf.grad is not None
                assert leaf.grad.abs().sum() > 0
                assert_close(gradient[member], leaf.grad, rtol=1e-9, atol=1e-12)
    for group, group_before in zip(members.groups, groups_before, strict=True):
        assert torch.equal(group, group_before), "a step moves no weight itself"


@pytest.mark.parametrize("n_rows", [0, 2, N_ROWS])
def test_lists_of_tags_give_the_gradients_of_their_table(n_rows):
    members = random_members(SHAPE, 1)
    batch = random_batch(SHAPE, torch.tensor([1, 2, 6]), 1)
    batch.tags[:, :n_rows] = (batch.tags[:, :n_rows] < 0.4).double()
    _, rows, labels = batch.tags[:, :n_rows].nonzero(as_tuple=True)
    listed = replace(batch, sparse_tags=SparseTags(n_rows, rows, labels))
    gradients = members.to("cpu")
    expected_gradients = members.to("cpu")
    logits = step(members, listed, gradients)
    expected_logits = step(members, batch, expected_gradients)
    assert_close(logits, expected_logits)
    for gradient, expected in zip(gradients.groups, expected_gradients.groups, strict=True):
        assert_close(gradient, expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    ("name", "size"), [("documents", SHAPE.n_labels), ("items", SHAPE.n_features)]
)
def test_codes_and_logits_are_those_of_each_member(name, size, dtype):
    members = random_members(SHAPE, dtype=dtype)
    generator = torch.Generator().manual_seed(2)
    inputs = torch.rand(4, size, generator=generator, dtype=dtype)
    encode = getattr(members, f"encode_{name}")
    layers = getattr(members, name)
    codes = encode(inputs)
    for member in range(N_MEMBERS):
        expected_codes = plain_codes(inputs, layers[member])
        assert_close(codes[member], expected_codes, rtol=0, atol=1e-6)
        ((labels, bias),) = cut(members.readout[member], SHAPE.code, SHAPE.n_outputs)
        expected_logits = expected_codes @ labels + bias
        for columns in (slice(None), slice(2, 5)):
            logits = members.read(codes, columns)
            assert_close(logits[member], expected_logits[:, columns], rtol=0, atol=1e-5)


PRIORS = np.array([0.001, 0.02, 0.1, 0.3, 0.5, 0.8, 0.99])


@pytest.fixture
def started():
    """Forty members of larger layers before any training."""
    return start_members(SHAPE._replace(hidden=32, code=32), PRIORS, list(range(40)))


def test_members_start_with_every_output_at_its_prior(started):
    no_tags = torch.zeros(1, SHAPE.n_labels)
    codes = started.encode_documents(no_tags)
    logits = started.read(codes).numpy()
    prior_logits = np.log(PRIORS) - np.log1p(-PRIORS)
    expected = np.broadcast_to(prior_logits, logits.shape)
    assert_allclose(logits, expected, atol=1e-5)


@pytest.mark.parametrize("name", ["documents", "items"])
def test_codes_differ_from_the_start_and_logits_stay_near_the_priors(started, name):
    generator = np.random.default_rng(0)
    if name == "documents":
        inputs = generator.random((50, SHAPE.n_labels)) < 0.3
    else:
        inputs = generator.normal(size=(50, SHAPE.n_features))
    encode = getattr(started, f"encode_{name}")
    codes = encode(torch.from_numpy(inputs.astype(np.float32)))
    assert codes.std() > 0.1
    mean_logits = started.read(codes).mean(dim=(0, 1)).numpy()
    expected = np.log(PRIORS) - np.log1p(-PRIORS)
    assert np.abs(mean_logits - expected).max() < 0.3


def test_a_members_first_weights_do_not_depend_on_its_companions():
    priors = np.full(SHAPE.n_outputs, 0.2)
    seeds = [11, 5, 7]
    members = start_members(SHAPE, priors, seeds)
    for place, seed in enumerate(seeds):
        single = start_members(SHAPE, priors, [seed])
        for group, single_group in zip(members.groups, single.groups, strict=True):
            assert torch.equal(group[place], single_group[0])
    for group in members.groups:
        assert not torch.equal(group[0], group[1])


def test_a_selection_shares_its_weights_and_a_copy_does_not():
    members = random_members(SHAPE)
    selection = members.select(slice(1, 2))
    copy = members.to("cpu")
    assert len(selection) == 1
    assert len(copy) == N_MEMBERS
    selection.labels.fill_(9.0)
    assert (members.labels[1] == 9).all()
    assert not (members.labels[0] == 9).any()
    assert not (copy.labels == 9).any()


@pytest.mark.parametrize("n_rows", [0, 1, 5])
def test_sparse_rows_have_the_codes_of_dense_ones(n_rows):
    members = random_members(SHAPE, dtype=torch.float32).arrays()
    generator = np.random.default_rng(0)
    carried = generator.random((n_rows, SHAPE.n_labels)) < 0.5
    tags = carried.astype(np.float32)
    codes = members.encode_sparse_documents(sp.csr_matrix(tags))
    expected_shape = (N_MEMBERS, n_rows, SHAPE.code)
    assert codes.shape == expected_shape
    expected = members.encode_documents(tags)
    assert_allclose(codes, expected, atol=1e-6)


@pytest.mark.parametrize("n_rows", [1, 9])
@pytest.mark.parametrize(
    ("name", "size"), [("documents", SHAPE.n_labels), ("items", SHAPE.n_features)]
)
def test_arrays_compute_the_same_as_tensors(name, size, n_rows):
    tensors = random_members(SHAPE, dtype=torch.float32)
    arrays = tensors.arrays()
    generator = np.random.default_rng(0)
    rows = generator.normal(size=(n_rows, size)).astype(np.float32)
    rows_before = rows.copy()
    encode_tensors = getattr(tensors, f"encode_{name}")
    encode_arrays = getattr(arrays, f"encode_{name}")
    expected_codes = encode_tensors(tensors.as_inputs(rows))
    codes = encode_arrays(arrays.as_inputs(rows))
    assert_allclose(codes, expected_codes, atol=1e-6)
    for combine in (mean_of, probabilities_of):
        combined = combine(arrays.read(codes))
        expected = combine(tensors.read(expected_codes))
        assert_allclose(combined, expected, atol=1e-5)
    assert_array_equal(rows, rows_before, err_msg="what was given is not written to")


def test_arrays_are_copies():
    tensors = random_members(SHAPE, dtype=torch.float32)
    arrays = tensors.arrays()
    arrays.labels.fill(9)
    assert not (tensors.labels == 9).any()


@pytest.mark.parametrize("n_features", [0, 4])
def test_steps_are_those_of_adamw_for_each_group_and_can_be_resumed(
    n_features,
):
    members = random_members(SHAPE._replace(n_features=n_features))
    gradients = members.to("cpu")
    rates = (0.1, 0.2, 0.3)
    decays = (0.0, 0.5, 0.1)
    leaves = [group.clone().requires_grad_() for group in members.groups]
    references = []
    for leaf, rate, decay in zip(leaves, rates, decays, strict=True):
        references.append(torch.optim.AdamW([leaf], lr=rate, weight_decay=decay))
    optimizer = MemberOptimizer(members, gradients, rates, decays)
    generator = torch.Generator().manual_seed(0)
    for number in range(5):
        if number == 3:  # from here on by another optimizer
            state = optimizer.get_state()
            optimizer = MemberOptimizer(members, gradients, rates, decays)
            optimizer.set_state(state, number)
        for leaf, gradient, reference in zip(leaves, gradients.groups, references, strict=True):
            leaf.grad = torch.randn(leaf.shape, generator=generator, dtype=leaf.dtype)
            gradient.copy_(leaf.grad)
            reference.step()
            reference.param_groups[0]["lr"] *= (number + 1) / (number + 2)
        optimizer.step(1 / (number + 1))
    for group, leaf in zip(members.groups, leaves, strict=True):
        assert_close(group, leaf.detach(), rtol=1e-10, atol=1e-12)
