"""Examples and pairs, steps against the tape, and what training remembers."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from torch.nn.functional import softplus

import polyseme.published.network
import polyseme.published.pairs
import polyseme.published.training
from polyseme.published.descriptors import LabelDescriptor
from polyseme.published.losses import WEIGHTINGS, LossSettings, positive_weight
from polyseme.published.network import ConceptNetwork
from polyseme.published.pairs import PairBatch, PairSampler
from polyseme.published.training import (
    LOOK_EVERY,
    ConceptTrainer,
    TrainingPlan,
    error_free_score,
    hold_out,
    pretrain_layer,
)

N_TOPICS = 5
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA GPU here")


def documents(n=120, n_labels=30):
    """Draw documents with one label at the least; the first holds every label, the second one."""
    generator = np.random.default_rng(0)
    held = generator.random((n, n_labels)) < 0.1
    held[np.arange(n), generator.integers(0, n_labels, n)] = True
    held[0], held[1] = True, np.arange(n_labels) == 3
    return sp.csr_matrix(held)


# --- examples and pairs ---------------------------------------------------------------------


def epoch(matrix, seed=0, **options):
    """Collect the batches of one epoch."""
    sampler = PairSampler(sp.csr_matrix(matrix), **({"batch_size": 16} | options))
    return list(sampler.epoch(np.random.default_rng(seed)))


def positives(batches):
    """Count the positive (document, label) examples of some batches."""
    return Counter(
        pair
        for labels, rows, positive in batches
        for pair in zip(rows[positive].tolist(), labels[positive].tolist(), strict=True)
    )


@pytest.mark.parametrize("batch_size", [2, 3, 7, 16, 1000])
@pytest.mark.parametrize("n_negatives", [1, 2, 3])
def test_every_positive_comes_once_with_negatives_of_its_document(batch_size, n_negatives):
    matrix = documents(40, 9).toarray()
    matrix[1] = False
    if batch_size < 16:
        matrix[0] = matrix[3]  # an example without negatives would be alone in its batch
    batches = epoch(matrix, batch_size=batch_size, n_negatives=n_negatives)
    places = (place.tolist() for place in np.nonzero(matrix))
    assert positives(batches) == Counter(zip(*places, strict=True))
    sizes = [len(batch.label_ids) for batch in batches]
    assert max(sizes) <= max(batch_size, 1 + n_negatives)
    assert all(size % 2 == 0 for size in sizes)
    for labels, rows, positive in batches:
        np.testing.assert_array_equal(matrix[rows, labels], positive)
        assert set(rows[~positive]) <= set(rows[positive])
    n_wanted = matrix[~matrix.all(axis=1)].sum() * n_negatives
    n_drawn = sum(int((~batch.positive).sum()) for batch in batches)
    assert 0 <= n_wanted - n_drawn <= len(batches), "an odd batch gives up one negative"


@pytest.mark.parametrize("n_examples", [33, 34])
def test_without_negatives_at_most_one_positive_finds_no_partner(n_examples):
    matrix = (np.arange(40) < n_examples).reshape(8, 5)
    batches = epoch(matrix, batch_size=7, n_negatives=0)
    assert all(batch.positive.all() and len(batch.positive) % 2 == 0 for batch in batches)
    counts = positives(batches)
    assert max(counts.values()) == 1 and len(counts) == n_examples - n_examples % 2
    assert epoch(np.zeros((3, 4), dtype=bool)) == []


def test_negatives_are_uniform_over_the_absent_labels():
    matrix = np.array([[1, 0, 0, 1, 0, 0, 1], [0] * 7, [0, 1, 1, 1, 1, 1, 1]], dtype=bool)
    sampler = PairSampler(sp.csr_matrix(matrix), batch_size=4)
    for row, document in enumerate(matrix):
        drawn = sampler.absent_labels(np.full(20_000, row), np.random.default_rng(row))
        counts = np.bincount(drawn, minlength=7)
        assert not counts[document].any()
        n_absent = (~document).sum()
        expected = 20_000 / n_absent
        chi_square = ((counts[~document] - expected) ** 2 / expected).sum()
        # Mean n_absent - 1, standard deviation sqrt(2 (n_absent - 1)): five of them above.
        assert chi_square <= (n_absent - 1) + 5 * np.sqrt(2 * (n_absent - 1))


def test_random_pairs_are_one_two_one_and_come_from_the_seed():
    matrix = documents(400, 12)
    batches, again = (epoch(matrix, batch_size=512) for _ in range(2))
    for batch, same in zip(batches, again, strict=True):
        assert all(np.array_equal(*parts) for parts in zip(batch, same, strict=True))
    assert positives(epoch(matrix, seed=1)) == positives(batches)
    kinds = [batch.positive[0::2].astype(int) + batch.positive[1::2] for batch in batches]
    shares = np.bincount(np.concatenate(kinds)) / sum(map(len, kinds))
    np.testing.assert_allclose(shares, [0.25, 0.5, 0.25], atol=0.06)


# --- one step -------------------------------------------------------------------------------


def trainer(
    matrix=None, *, weighting="balanced", hidden=(20, 15), dtype=torch.float64, device="cpu", **plan
):
    """Make a trainer with known constants; two contexts are the same."""
    matrix = documents() if matrix is None else matrix
    drawn = torch.Generator().manual_seed(0)
    descriptors = LabelDescriptor().fit(matrix).descriptors_
    contexts = np.random.default_rng(1).dirichlet(np.ones(N_TOPICS), matrix.shape[0])
    contexts[3] = contexts[2]
    return ConceptTrainer(
        ConceptNetwork(descriptors, N_TOPICS, hidden, 10, drawn, dtype),
        matrix,
        contexts.astype(np.float32),
        TrainingPlan(**({"batch_size": 64} | plan)),
        LossSettings(weighting, 0.6, 3.0, 0.5, 0.7),
        np.random.default_rng(0),
        device=device,
    )


def drawn_batch(tested, seed=1):
    """Return the first batch of an epoch."""
    return next(tested.sampler.epoch(np.random.default_rng(seed)))


def plain_losses(tested, vector, batch, matrix=None):
    """Return each pair's prediction and distance loss by torch's operations, (n_pairs,) each."""
    held = torch.from_numpy(
        (documents() if matrix is None else matrix)[batch.document_ids].toarray()
    )
    contexts = tested.contexts[torch.from_numpy(batch.document_ids)]
    *layers, output = tested.network.views(vector)
    codes = torch.cat([tested.network.descriptor_rows(torch.tensor(batch.label_ids)), contexts], 1)
    for layer in layers:
        codes = torch.tanh(codes @ layer.weight.t() + layer.bias)
    a = 2.0 * (codes @ output.weight.t() + output.bias)
    positive = torch.from_numpy(batch.positive)
    target = (held == positive[:, None]).to(a.dtype)
    kappa = positive_weight(target.mean(dim=1, keepdim=True), tested.loss.weighting)
    log2 = float(np.log(2))
    named, others = kappa * target * (log2 - softplus(-a)), (1 - target) * (log2 - softplus(a))
    prediction = -2.0 * (named + (1 - kappa) * others).mean(dim=1)
    p, q = contexts[0::2], contexts[1::2]
    likeness = torch.exp(-0.5 * tested.loss.sensitivity * ((p - q) * (p / q).log()).sum(dim=1))
    e = torch.sqrt((codes[0::2] - codes[1::2]).square().sum(dim=1) + 1e-12)
    by_context = (e - tested.loss.scale * (1.0 - likeness)).square()
    n_positive = positive[0::2].int() + positive[1::2].int()
    same = torch.where(n_positive == 2, by_context, tested.loss.negative_weight * by_context)
    mixed = likeness * (e - tested.loss.scale).square()
    return prediction[0::2] + prediction[1::2], torch.where(n_positive == 1, mixed, same)


def by_tape(tested, batch, *, siamese=True, matrix=None):
    """Return the gradient by automatic differentiation, and both losses summed over pairs."""
    vector = tested.network.weights.detach().clone().requires_grad_()
    prediction, distance = plain_losses(tested, vector, batch, matrix)
    combined = prediction + tested.loss.distance_weight * distance if siamese else prediction
    loss = combined.mean() if tested.plan.reduction == "mean" else combined.sum()
    (gradient,) = torch.autograd.grad(loss, vector)
    return gradient, [float(part.detach().sum()) for part in (prediction, distance)]


def by_hand(tested, batch, *, siamese=True, look=True):
    """Return the same by the step."""
    n = len(batch.label_ids)
    share = 2.0 / n if tested.plan.reduction == "mean" else 1.0
    (step,) = tested.collate([batch], share=share, siamese=siamese)
    tested._losses.zero_()
    tested.compute_gradient(step, look)
    return tested.gradient.clone(), tested._losses.tolist()


def assert_same(tested, found, expected, tolerance):
    """Compare gradients layer by layer, relative to the largest entry of each."""
    for layer, other in zip(*map(tested.network.views, (found, expected)), strict=True):
        for part, wanted in zip(layer, other, strict=True):
            most = max(float(wanted.abs().max()), 1e-30)
            np.testing.assert_allclose(part, wanted, rtol=0, atol=tolerance * most)


EVERY = np.ones(8, dtype=bool)
BATCHES = {
    "drawn": None,
    "one label all over": PairBatch(np.full(8, 3), np.array([0, 1] * 4), EVERY),
    "one document all over": PairBatch(np.arange(8), np.zeros(8, dtype=np.int64), EVERY),
    "both sides the same": PairBatch(np.repeat(np.arange(4), 2), np.repeat([0, 1, 4, 5], 2), EVERY),
    "the same context": PairBatch(np.arange(8) % 4, np.array([2, 3] * 4), EVERY),
    "negatives only": PairBatch(np.arange(8), np.array([1, 5, 6, 7] * 2), ~EVERY),
    "a single pair": PairBatch(np.array([3, 9]), np.array([1, 1]), np.array([True, False])),
}


@pytest.mark.parametrize("name", BATCHES)
@pytest.mark.parametrize("weighting", WEIGHTINGS)
@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("siamese", [True, False])
@pytest.mark.parametrize("hidden", [(), (1,), (20, 15)])
def test_the_step_has_the_gradient_of_the_tape(name, weighting, reduction, siamese, hidden):
    tested = trainer(weighting=weighting, hidden=hidden, reduction=reduction)
    batch = BATCHES[name] or drawn_batch(tested)
    expected, losses = by_tape(tested, batch, siamese=siamese)
    found, values = by_hand(tested, batch, siamese=siamese)
    assert_same(tested, found, expected, 1e-10)
    np.testing.assert_allclose(values, losses, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("factor", [1e-12, 1e-3, 30.0, 1e4])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-9), (torch.float32, 2e-3)])
def test_tiny_and_saturating_weights_have_the_gradient_of_the_tape(factor, dtype, tolerance):
    tested = trainer(dtype=dtype)
    tested.network.weights.mul_(factor)
    batch = drawn_batch(tested)
    # Between codes that coincide but for rounding, the way apart is rounding too.
    siamese = factor > 1
    found = by_hand(tested, batch, siamese=siamese)[0]
    expected = by_tape(tested, batch, siamese=siamese)[0]
    assert torch.isfinite(found).all()
    least = max(tolerance * float(expected.abs().max()), 8 * torch.finfo(dtype).eps)
    np.testing.assert_allclose(found, expected, rtol=0, atol=least)


@pytest.mark.parametrize("way", ["onednn", "torch", "in used memory"])
@pytest.mark.parametrize("look", [True, False])
def test_every_way_to_multiply_has_the_gradient_of_the_tape(way, look, monkeypatch):
    if way == "torch":
        monkeypatch.setattr(polyseme.published.network, "_ONEDNN", None)
    if way == "in used memory":
        monkeypatch.setattr(polyseme.published.training, "_MOST_NEW", 0)
    tested = trainer(dtype=torch.float32)
    batch = drawn_batch(tested)
    expected, losses = by_tape(tested, batch)
    for _ in range(2):  # what the first step leaves in its table must not show
        found, values = by_hand(tested, batch, look=look)
        assert_same(tested, found, expected, 1e-5)
        np.testing.assert_allclose(values, losses if look else [0, 0], rtol=1e-5)


@pytest.mark.parametrize("most", [0, 2**20])
def test_steps_made_together_are_those_of_plain_adam(most, monkeypatch):
    monkeypatch.setattr(polyseme.published.pairs, "_MOST_PLACES", most)
    tested, plain = trainer(), trainer()
    # Of several sizes: the last of an epoch, and those that hold the document with every label.
    batches = 2 * list(tested.sampler.epoch(np.random.default_rng(4)))
    assert len({len(batch.label_ids) for batch in batches}) > 1
    prediction, distance = tested.take_steps(batches)
    assert np.isfinite([prediction, distance]).all()
    vector = torch.nn.Parameter(plain.network.weights.clone())
    optimizer = torch.optim.Adam([vector], lr=1e-3)
    for batch in batches:
        optimizer.zero_grad()
        losses = plain_losses(plain, vector, batch)
        (losses[0] + plain.loss.distance_weight * losses[1]).mean().backward()
        optimizer.step()
    np.testing.assert_allclose(tested.network.weights, vector.detach(), atol=1e-6)


def test_steps_filled_up_to_one_size_are_the_same():
    matrix = documents()[1:]  # a document with every label has batches of another size
    tested = trainer(matrix, dtype=torch.float32)
    batches = list(tested.sampler.epoch(np.random.default_rng(4)))[:-1]
    n = len(batches[0].label_ids)
    filled = list(tested.collate(batches, share=2.0 / n, siamese=True, one_size=True))
    assert {len(step.prediction.places) % n for step in filled} == {0}
    tested._rooms[n] = torch.full((n + 1, 30), torch.nan)
    tested._room = tested._rooms.get
    for batch, step in zip(batches, filled, strict=True):
        tested._losses.zero_()
        tested._rooms[n][-1] = 0.0
        tested.compute_gradient(step)
        expected, losses = by_tape(tested, batch, matrix=matrix)
        assert_same(tested, tested.gradient, expected, 1e-5)
        np.testing.assert_allclose(tested._losses, losses, rtol=1e-5)


@needs_gpu
def test_a_gpu_trains_the_same_network():
    plan = {"max_epochs": 3, "min_steps": 40, "dtype": torch.float32}
    here, there = trainer(**plan), trainer(device="cuda", **plan)
    here.run()
    there.run()
    np.testing.assert_allclose(there.network.weights.cpu(), here.network.weights, atol=2e-3)
    for record, other in zip(here.history, there.history, strict=True):
        assert record["loss"] == pytest.approx(other["loss"], rel=0.05)


@needs_gpu
def test_graphs_take_the_steps_that_would_be_taken_one_by_one(monkeypatch):
    graphs, plain = (trainer(dtype=torch.float32, device="cuda") for _ in range(2))
    first = next(iter(graphs.sampler.epoch(np.random.default_rng(4))))
    batches = [first] * 2 * LOOK_EVERY  # of one size, enough for a graph to be worth it
    losses = graphs.take_steps(batches)

    monkeypatch.setattr(plain, "_replay", plain.compute_gradient)
    expected = plain.take_steps(batches)
    assert graphs._graphs and not plain._graphs
    np.testing.assert_allclose(losses, expected, rtol=1e-4)
    np.testing.assert_allclose(graphs.network.weights.cpu(), plain.network.weights.cpu(), atol=1e-5)


# --- epochs and stages ----------------------------------------------------------------------


def test_an_epoch_has_the_least_and_the_most_steps():
    for plan, expected in (({"max_steps": 3}, 3), ({"min_steps": 50}, 50)):
        tested = trainer(**({"batch_size": 16, "min_steps": 1} | plan))
        n_pass = len(list(tested.sampler.epoch(np.random.default_rng(0))))
        n_steps = len(list(tested._batches()))
        assert n_steps == (expected if "max_steps" in plan else max(n_pass, expected))


@pytest.mark.parametrize("number", [0, 1, 2])
def test_pretraining_lowers_the_error_of_its_own_layer_only(number):
    tested, before = trainer().network, trainer().network
    sampler, contexts = trainer().sampler, trainer().contexts
    generator = np.random.default_rng(0)
    errors = [
        pretrain_layer(tested, number, sampler.epoch(generator), contexts, generator)
        for _ in range(40)
    ]
    assert 0 < errors[-1] < 0.8 * errors[0]
    both = zip(tested.views(tested.weights), before.views(before.weights), strict=True)
    changed = [not torch.equal(layer.weight, other.weight) for layer, other in both]
    assert changed == [place == number for place in range(4)]


def test_held_out_documents_have_labels_and_leave_some_to_learn_from():
    matrix = documents(40).toarray()
    matrix[1] = False
    matrix = sp.csr_matrix(matrix)
    rows = hold_out(matrix, 0.3, np.random.default_rng(0))
    assert len(rows) == 11 and 1 not in rows and (np.diff(rows) > 0).all()
    assert len(hold_out(matrix[:3], 0.9, np.random.default_rng(0))) == 0


def test_held_out_documents_are_scored_block_by_block(monkeypatch):
    tested, matrix = trainer(dtype=torch.float32), documents()
    contexts = tested.contexts.numpy()

    def score():
        parts = (matrix[:80], contexts[:80], matrix[80:], contexts[80:])
        return error_free_score(*parts)(tested.network)

    whole = score()
    monkeypatch.setattr(polyseme.published.training, "_SCORED_TOGETHER", 7)
    assert score() == pytest.approx(whole, rel=1e-9)
    monkeypatch.setattr(polyseme.published.training, "_MOST_KNOWN", 20)
    assert 0 < score() < 1 and score() != whole
