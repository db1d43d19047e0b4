"""Members of a concept space: what they compute, and the step that was written by hand."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from polyseme.members import Members, Shape, likely, mean_of
from polyseme.steps import MemberOptimizer, SparseTags, TrainingBatch, start_members, step

N_MEMBERS, N_ROWS, N_ITEMS = 3, 6, 4
SHAPE = Shape(n_labels=5, n_outputs=7, n_features=4, hidden=6, code=3)


def random_members(shape, n_members=N_MEMBERS, dtype=torch.float64, seed=0):
    """Return members whose weights and biases are all drawn."""
    draws = torch.Generator().manual_seed(seed)
    sizes = start_members(shape, np.full(shape.n_outputs, 0.5), range(n_members)).groups
    groups = (torch.randn(group.shape, generator=draws, dtype=dtype) for group in sizes)
    return Members(shape, *groups)


def random_batch(shape, columns=None, n_members=N_MEMBERS, seed=1):
    draws = torch.Generator().manual_seed(seed)

    def drawn(*sizes):
        return torch.rand(n_members, *sizes, generator=draws, dtype=torch.float64)

    n_items = N_ITEMS if shape.n_features else 0
    n_columns = shape.n_outputs if columns is None else len(columns)
    rows = N_ROWS + n_items
    factors = [(n_items, shape.n_features), (n_items, shape.hidden), (N_ROWS, shape.hidden)]
    factors.append((rows, shape.code))
    return TrainingBatch(
        tags=drawn(N_ROWS, shape.n_labels),
        features=drawn(n_items, shape.n_features) - 0.5 if n_items else None,
        targets=drawn(rows, n_columns),
        weights=drawn(rows, n_columns),
        columns=columns,
        dropout=[(drawn(*sizes) < 0.7) / 0.7 for sizes in factors],
    )


def cut(flat, *sizes):
    """Cut one member's flat weights into (weights, bias) of each layer."""
    layers, at = [], 0
    for below, above in pairwise(sizes):
        weights = flat[at : at + below * above].reshape(below, above)
        at += below * above
        layers.append((weights, flat[at : at + above]))
        at += above
    return layers


def plain_codes(inputs, flat, dropout=1.0):
    """One encoder, as anybody would write it."""
    (first, bias), (second, offset) = cut(flat, inputs.shape[1], SHAPE.hidden, SHAPE.code)
    return torch.tanh(torch.relu(inputs @ first + bias) * dropout @ second + offset)


def plain_loss(weights, batch, member):
    """One member's loss, as anybody would write it."""
    items, documents, readout = weights
    on_features, on_items, on_documents, on_codes = (factors[member] for factors in batch.dropout)
    codes = [plain_codes(batch.tags[member], documents, on_documents)]
    if batch.features is not None:
        codes.append(plain_codes(batch.features[member] * on_features, items, on_items))
    ((labels, bias),) = cut(readout, SHAPE.code, SHAPE.n_outputs)
    logits = torch.cat(codes) * on_codes @ labels + bias
    if batch.columns is not None:
        logits = logits[:, batch.columns]
    entropies = torch.nn.functional.binary_cross_entropy_with_logits(
        logits, batch.targets[member], reduction="none"
    )
    return (entropies * batch.weights[member]).sum(), logits


@pytest.mark.parametrize("n_members", [1, 3])
@pytest.mark.parametrize("columns", [None, [1, 2, 6]], ids=["all outputs", "some outputs"])
@pytest.mark.parametrize("n_features", [0, 4], ids=["documents", "documents and items"])
def test_gradients_are_those_of_autograd(n_features, columns, n_members):
    shape = SHAPE._replace(n_features=n_features)
    members = random_members(shape, n_members)
    batch = random_batch(shape, None if columns is None else torch.tensor(columns), n_members)
    gradients = members.to("cpu")
    for group in gradients.groups:
        group.fill_(torch.nan)
    before = [group.clone() for group in members.groups]
    logits = step(members, batch, gradients)
    for member in range(n_members):
        leaves = [group[member].clone().requires_grad_() for group in before]
        loss, wanted = plain_loss(leaves, batch, member)
        loss.backward()
        torch.testing.assert_close(logits[member], wanted.detach(), rtol=0, atol=1e-12)
        for leaf, found in zip(leaves, gradients.groups, strict=True):
            if leaf.numel():
                assert leaf.grad is not None and leaf.grad.abs().sum() > 0
                torch.testing.assert_close(found[member], leaf.grad, rtol=1e-9, atol=1e-12)
    for group, kept in zip(members.groups, before, strict=True):
        assert torch.equal(group, kept), "a step moves no weight itself"


@pytest.mark.parametrize("n_rows", [0, 2, N_ROWS])
def test_tags_that_are_held_one_by_one_give_what_their_table_gives(n_rows):
    members, batch = random_members(SHAPE, 1), random_batch(SHAPE, torch.tensor([1, 2, 6]), 1)
    batch.tags[:, :n_rows] = (batch.tags[:, :n_rows] < 0.4).double()
    _, rows, labels = batch.tags[:, :n_rows].nonzero(as_tuple=True)
    found, wanted = members.to("cpu"), members.to("cpu")
    sparse_tags = replace(batch, sparse_tags=SparseTags(n_rows, rows, labels))
    torch.testing.assert_close(step(members, sparse_tags, found), step(members, batch, wanted))
    for group, other in zip(found.groups, wanted.groups, strict=True):
        torch.testing.assert_close(group, other)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_codes_and_logits_are_those_of_each_member(dtype):
    members, draws = random_members(SHAPE, dtype=dtype), torch.Generator().manual_seed(2)
    for name, size in (("documents", SHAPE.n_labels), ("items", SHAPE.n_features)):
        inputs = torch.rand(4, size, generator=draws, dtype=dtype)
        codes = getattr(members, f"encode_{name}")(inputs)
        for member in range(N_MEMBERS):
            wanted = plain_codes(inputs, getattr(members, name)[member])
            torch.testing.assert_close(codes[member], wanted, rtol=0, atol=1e-6)
            ((labels, bias),) = cut(members.readout[member], SHAPE.code, SHAPE.n_outputs)
            for columns in (slice(None), slice(2, 5)):
                read, logits = members.read(codes, columns)[member], wanted @ labels + bias
                torch.testing.assert_close(read, logits[:, columns], rtol=0, atol=1e-5)


def test_members_start_with_every_output_at_its_prior():
    priors = np.array([0.001, 0.02, 0.1, 0.3, 0.5, 0.8, 0.99])
    members = start_members(SHAPE._replace(hidden=32, code=32), priors, list(range(40)))
    wanted = np.log(priors) - np.log1p(-priors)
    nothing = members.read(members.encode_documents(torch.zeros(1, SHAPE.n_labels)))
    np.testing.assert_allclose(nothing.numpy(), np.broadcast_to(wanted, nothing.shape), atol=1e-5)
    draws = np.random.default_rng(0)
    tags = torch.from_numpy((draws.random((50, SHAPE.n_labels)) < 0.3).astype(np.float32))
    features = torch.from_numpy(draws.normal(size=(50, SHAPE.n_features)).astype(np.float32))
    for codes in (members.encode_documents(tags), members.encode_items(features)):
        assert codes.std() > 0.1, "codes differ from the start"
        off = members.read(codes).mean(dim=(0, 1)).numpy() - wanted
        assert np.abs(off).max() < 0.3


def test_a_members_first_weights_do_not_depend_on_its_companions():
    priors = np.full(SHAPE.n_outputs, 0.2)
    together = start_members(SHAPE, priors, [11, 5, 7])
    for place, seed in enumerate([11, 5, 7]):
        alone = start_members(SHAPE, priors, [seed])
        for group, one in zip(together.groups, alone.groups, strict=True):
            assert torch.equal(group[place], one[0])
    for group in together.groups:
        assert not torch.equal(group[0], group[1])


def test_a_selection_shares_its_weights_and_a_copy_does_not():
    members = random_members(SHAPE)
    some, copy = members.select(slice(1, 2)), members.to("cpu")
    assert len(some) == 1 and len(copy) == N_MEMBERS
    some.labels.fill_(9.0)
    assert (members.labels[1] == 9).all() and not (members.labels[0] == 9).any()
    assert not (copy.labels == 9).any()


@pytest.mark.parametrize("n_rows", [0, 1, 5])
def test_sparse_rows_have_the_codes_of_dense_ones(n_rows):
    members = random_members(SHAPE, dtype=torch.float32).arrays()
    tags = (np.random.default_rng(0).random((n_rows, SHAPE.n_labels)) < 0.5).astype(np.float32)
    found = members.encode_rows(sp.csr_matrix(tags))
    assert found.shape == (N_MEMBERS, n_rows, SHAPE.code)
    np.testing.assert_allclose(found, members.encode_documents(tags), atol=1e-6)


@pytest.mark.parametrize("n_rows", [1, 9])
def test_arrays_give_what_tensors_give(n_rows):
    tensors, draws = random_members(SHAPE, dtype=torch.float32), np.random.default_rng(0)
    arrays = tensors.arrays()
    for name, size in (("documents", SHAPE.n_labels), ("items", SHAPE.n_features)):
        rows = draws.normal(size=(n_rows, size)).astype(np.float32)
        kept = rows.copy()
        codes, wanted = (
            getattr(members, f"encode_{name}")(members.rows(rows)) for members in (arrays, tensors)
        )
        np.testing.assert_allclose(codes, wanted, atol=1e-6)
        for way in (mean_of, likely):
            read, known = (way(m.read(c)) for m, c in ((arrays, codes), (tensors, wanted)))
            np.testing.assert_allclose(read, known, atol=1e-5)
        np.testing.assert_array_equal(rows, kept, err_msg="what was given is not written to")
    arrays.labels.fill(9)
    assert not (tensors.labels == 9).any(), "arrays are copies"


@pytest.mark.parametrize("n_features", [0, 4])
def test_steps_are_those_of_adamw_with_rates_and_decays_of_each_group_and_can_be_resumed(
    n_features,
):
    members = random_members(SHAPE._replace(n_features=n_features))
    gradients, rates, decays = members.to("cpu"), (0.1, 0.2, 0.3), (0.0, 0.5, 0.1)
    leaves = [group.clone().requires_grad_() for group in members.groups]
    adams = [
        torch.optim.AdamW([leaf], lr=rate, weight_decay=decay)
        for leaf, rate, decay in zip(leaves, rates, decays, strict=True)
    ]
    optimizer, draws = None, torch.Generator().manual_seed(0)
    for number in range(5):
        if number in (0, 3):  # from the third step on by another one
            state = optimizer and optimizer.get_state()
            optimizer = MemberOptimizer(members, gradients, rates, decays)
            if state:
                optimizer.set_state(state, number)
        for leaf, gradient, adam in zip(leaves, gradients.groups, adams, strict=True):
            leaf.grad = torch.randn(leaf.shape, generator=draws, dtype=leaf.dtype)
            gradient.copy_(leaf.grad)
            adam.step()
            adam.param_groups[0]["lr"] *= (number + 1) / (number + 2)
        optimizer.step(1 / (number + 1))
    for group, leaf in zip(members.groups, leaves, strict=True):
        torch.testing.assert_close(group, leaf.detach(), rtol=1e-10, atol=1e-12)
