"""Examples and pairs, steps against the tape, and what training remembers."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from numpy.testing import assert_allclose, assert_array_equal
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
    generator = np.random.default_rng(0)
    matrix = generator.random((n, n_labels)) < 0.1
    certain_labels = generator.integers(0, n_labels, n)
    matrix[np.arange(n), certain_labels] = True
    matrix[0] = True
    matrix[1] = np.arange(n_labels) == 3
    return sp.csr_matrix(matrix)


# --- examples and pairs ---------------------------------------------------------------------


def epoch(matrix, seed=0, **options):
    settings = {"batch_size": 16} | options
    sampler = PairSampler(sp.csr_matrix(matrix), **settings)
    generator = np.random.default_rng(seed)
    return list(sampler.epoch(generator))


def positives(batches):
    """Count the positive (document, label) examples of some batches."""
    counts = Counter()
    for labels, rows, positive in batches:
        positive_rows = rows[positive].tolist()
        positive_labels = labels[positive].tolist()
        counts.update(zip(positive_rows, positive_labels, strict=True))
    return counts


@pytest.mark.parametrize("batch_size", [2, 3, 7, 16, 1000])
@pytest.mark.parametrize("n_negatives", [1, 2, 3])
def test_every_positive_comes_once_with_negatives_of_its_document(batch_size, n_negatives):
    matrix = documents(40, 9).toarray()
    matrix[1] = False
    if batch_size < 16:
        matrix[0] = matrix[3]  # an example without negatives would be alone in its batch
    batches = epoch(matrix, batch_size=batch_size, n_negatives=n_negatives)

    pairs = np.argwhere(matrix).tolist()
    assert positives(batches) == Counter(map(tuple, pairs))
    largest = max(batch_size, 1 + n_negatives)
    n_negatives_given = 0
    for labels, rows, positive in batches:
        assert len(labels) <= largest
        assert len(labels) % 2 == 0
        assert_array_equal(matrix[rows, labels], positive)
        negative_rows = set(rows[~positive])
        assert negative_rows <= set(rows[positive])
        n_negatives_given += np.count_nonzero(~positive)

    with_negatives = ~matrix.all(axis=1)
    n_wanted = n_negatives * matrix[with_negatives].sum()
    n_missing = n_wanted - n_negatives_given
    assert 0 <= n_missing <= len(batches), "an odd batch gives up one negative"


@pytest.mark.parametrize("n_examples", [33, 34])
def test_without_negatives_at_most_one_positive_finds_no_partner(n_examples):
    matrix = (np.arange(40) < n_examples).reshape(8, 5)
    batches = epoch(matrix, batch_size=7, n_negatives=0)
    for batch in batches:
        assert batch.positive.all()
        assert len(batch.positive) % 2 == 0
    counts = positives(batches)
    assert max(counts.values()) == 1
    assert len(counts) == n_examples - n_examples % 2


def test_documents_without_labels_make_no_batch():
    matrix = np.zeros((3, 4), dtype=bool)
    assert epoch(matrix, batch_size=7, n_negatives=0) == []
    assert epoch(matrix) == []


def test_negatives_are_uniform_over_the_absent_labels():
    rows = [[1, 0, 0, 1, 0, 0, 1], [0] * 7, [0, 1, 1, 1, 1, 1, 1]]
    matrix = np.array(rows, dtype=bool)
    sampler = PairSampler(sp.csr_matrix(matrix), batch_size=4)
    for row, document in enumerate(matrix):
        generator = np.random.default_rng(row)
        labels = sampler.absent_labels(np.full(20_000, row), generator)
        counts = np.bincount(labels, minlength=7)
        assert not counts[document].any()
        absent_counts = counts[~document]
        expected = 20_000 / len(absent_counts)
        deviations = (absent_counts - expected) ** 2
        chi_square = deviations.sum() / expected
        # Its mean is the degrees of freedom, its variance twice as many: five deviations above.
        freedom = len(absent_counts) - 1
        assert chi_square <= freedom + 5 * np.sqrt(2 * freedom)


def test_batches_come_from_the_seed():
    matrix = documents(400, 12)
    first_epoch = epoch(matrix, batch_size=512)
    second_epoch = epoch(matrix, batch_size=512)
    for first, second in zip(first_epoch, second_epoch, strict=True):
        assert_array_equal(first.label_ids, second.label_ids)
        assert_array_equal(first.document_ids, second.document_ids)
        assert_array_equal(first.positive, second.positive)
    assert positives(epoch(matrix, seed=1)) == positives(first_epoch)


def test_a_quarter_of_random_pairs_is_positive_and_half_of_them_mixed():
    batches = epoch(documents(400, 12), batch_size=512)
    positive = np.concatenate([batch.positive for batch in batches])
    n_positive_of_pair = positive.reshape(-1, 2).sum(axis=1)
    counts = np.bincount(n_positive_of_pair)
    shares = counts / len(n_positive_of_pair)
    assert_allclose(shares, [0.25, 0.5, 0.25], atol=0.06)


# --- one step -------------------------------------------------------------------------------


def trainer(
    matrix=None, *, weighting="balanced", hidden=(20, 15), dtype=torch.float64, device="cpu", **plan
):
    """Make a trainer with known constants; two contexts are the same."""
    matrix = documents() if matrix is None else matrix
    weight_generator = torch.Generator().manual_seed(0)
    descriptors = LabelDescriptor().fit(matrix).descriptors_
    context_generator = np.random.default_rng(1)
    contexts = context_generator.dirichlet(np.ones(N_TOPICS), matrix.shape[0])
    contexts[3] = contexts[2]
    plan_settings = {"batch_size": 64} | plan
    return ConceptTrainer(
        ConceptNetwork(descriptors, N_TOPICS, hidden, 10, weight_generator, dtype),
        matrix,
        contexts.astype(np.float32),
        TrainingPlan(**plan_settings),
        LossSettings(weighting, 0.6, 3.0, 0.5, 0.7),
        np.random.default_rng(0),
        device=device,
    )


def first_batch(tested, seed=1):
    """Return the first batch of an epoch."""
    generator = np.random.default_rng(seed)
    return next(tested.sampler.epoch(generator))


def plain_prediction_losses(tested, codes, output, document_rows, positive):
    """Return the prediction loss of each example by torch's operations."""
    activations = 2.0 * (codes @ output.weight.t() + output.bias)
    target = (document_rows == positive[:, None]).to(activations.dtype)
    share_named = target.mean(dim=1, keepdim=True)
    kappa = positive_weight(share_named, tested.loss.weighting)
    log2 = float(np.log(2))
    named = target * (log2 - softplus(-activations))
    unnamed = (1 - target) * (log2 - softplus(activations))
    weighted = kappa * named + (1 - kappa) * unnamed
    return -2.0 * weighted.mean(dim=1)


def plain_distance_losses(tested, codes, contexts, positive):
    """Return the distance loss of each pair by torch's operations."""
    settings = tested.loss
    p = contexts[0::2]
    q = contexts[1::2]
    divergence = ((p - q) * (p / q).log()).sum(dim=1)
    likeness = torch.exp(-0.5 * settings.sensitivity * divergence)

    gap = codes[0::2] - codes[1::2]
    squared = gap.square().sum(dim=1)
    distance = torch.sqrt(squared + 1e-12)
    by_context = (distance - settings.scale * (1.0 - likeness)).square()
    mixed = likeness * (distance - settings.scale).square()

    n_positive = positive[0::2].int() + positive[1::2].int()
    negative = settings.negative_weight * by_context
    unmixed = torch.where(n_positive == 2, by_context, negative)
    return torch.where(n_positive == 1, mixed, unmixed)


def plain_losses(tested, vector, batch, matrix=None):
    """Return each pair's prediction and distance loss by torch's operations, (n_pairs,) each."""
    matrix = documents() if matrix is None else matrix
    document_rows = torch.from_numpy(matrix[batch.document_ids].toarray())
    contexts = tested.contexts[torch.from_numpy(batch.document_ids)]
    positive = torch.from_numpy(batch.positive)
    label_rows = tested.network.descriptor_rows(torch.tensor(batch.label_ids))

    *layers, output = tested.network.views(vector)
    codes = torch.cat([label_rows, contexts], 1)
    for layer in layers:
        product = codes @ layer.weight.t()
        codes = torch.tanh(product + layer.bias)

    predictions = plain_prediction_losses(tested, codes, output, document_rows, positive)
    distances = plain_distance_losses(tested, codes, contexts, positive)
    return predictions[0::2] + predictions[1::2], distances


def by_tape(tested, batch, *, siamese=True, matrix=None):
    """Return the gradient by automatic differentiation, and both losses summed over pairs."""
    vector = tested.network.weights.detach().clone().requires_grad_()
    predictions, distances = plain_losses(tested, vector, batch, matrix)
    losses = predictions
    if siamese:
        losses = losses + tested.loss.distance_weight * distances
    reduce = getattr(losses, tested.plan.reduction)
    (gradient,) = torch.autograd.grad(reduce(), vector)
    prediction = float(predictions.detach().sum())
    distance = float(distances.detach().sum())
    return gradient, [prediction, distance]


def by_hand(tested, batch, *, siamese=True, look=True):
    """Return the same by the step."""
    share = 1.0
    if tested.plan.reduction == "mean":
        share = 2.0 / len(batch.label_ids)
    (step,) = tested.collate([batch], share=share, siamese=siamese)
    tested._losses.zero_()
    tested.compute_gradient(step, look)
    gradient = tested.gradient.clone()
    return gradient, tested._losses.tolist()


def assert_same_gradient(tested, gradient, expected, tolerance):
    """Compare gradients layer by layer, relative to the largest entry of each."""
    layers = tested.network.views(gradient)
    expected_layers = tested.network.views(expected)
    for layer, expected_layer in zip(layers, expected_layers, strict=True):
        for tensor, expected_tensor in zip(layer, expected_layer, strict=True):
            largest = float(expected_tensor.abs().max())
            atol = tolerance * max(largest, 1e-30)
            assert_allclose(tensor, expected_tensor, rtol=0, atol=atol)


EVERY = np.ones(8, dtype=bool)
BATCHES = {
    "random": None,
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
    batch = BATCHES[name] or first_batch(tested)
    expected, expected_losses = by_tape(tested, batch, siamese=siamese)
    gradient, losses = by_hand(tested, batch, siamese=siamese)
    assert_same_gradient(tested, gradient, expected, 1e-10)
    assert_allclose(losses, expected_losses, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("factor", [1e-12, 1e-3, 30.0, 1e4])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-9), (torch.float32, 2e-3)])
def test_tiny_and_saturating_weights_have_the_gradient_of_the_tape(factor, dtype, tolerance):
    tested = trainer(dtype=dtype)
    tested.network.weights.mul_(factor)
    batch = first_batch(tested)
    # Between codes that coincide but for rounding, the way apart is rounding too.
    siamese = factor > 1
    gradient, _ = by_hand(tested, batch, siamese=siamese)
    expected, _ = by_tape(tested, batch, siamese=siamese)
    assert torch.isfinite(gradient).all()
    largest = float(expected.abs().max())
    rounding = 8 * torch.finfo(dtype).eps
    atol = max(tolerance * largest, rounding)
    assert_allclose(gradient, expected, rtol=0, atol=atol)


@pytest.mark.parametrize("way", ["onednn", "torch", "in used memory"])
@pytest.mark.parametrize("look", [True, False])
def test_every_way_to_multiply_has_the_gradient_of_the_tape(way, look, monkeypatch):
    if way == "torch":
        monkeypatch.setattr(polyseme.published.network, "_ONEDNN", None)
    if way == "in used memory":
        monkeypatch.setattr(polyseme.published.training, "_MOST_NEW", 0)
    tested = trainer(dtype=torch.float32)
    batch = first_batch(tested)
    expected, losses = by_tape(tested, batch)
    expected_losses = losses if look else [0, 0]
    for _ in range(2):  # what the first step leaves in its table must not show
        gradient, losses = by_hand(tested, batch, look=look)
        assert_same_gradient(tested, gradient, expected, 1e-5)
        assert_allclose(losses, expected_losses, rtol=1e-5)


@pytest.mark.parametrize("most", [0, 2**20])
def test_steps_made_together_are_those_of_plain_adam(most, monkeypatch):
    monkeypatch.setattr(polyseme.published.pairs, "_MOST_PLACES", most)
    tested = trainer()
    plain = trainer()
    generator = np.random.default_rng(4)
    # Of several sizes: the last of an epoch, and those that hold the document with every label.
    batches = 2 * list(tested.sampler.epoch(generator))
    sizes = {len(batch.label_ids) for batch in batches}
    assert len(sizes) > 1
    prediction, distance = tested.take_steps(batches)
    assert np.isfinite([prediction, distance]).all()

    vector = torch.nn.Parameter(plain.network.weights.clone())
    optimizer = torch.optim.Adam([vector], lr=1e-3)
    for batch in batches:
        optimizer.zero_grad()
        predictions, distances = plain_losses(plain, vector, batch)
        losses = predictions + plain.loss.distance_weight * distances
        losses.mean().backward()
        optimizer.step()
    assert_allclose(tested.network.weights, vector.detach(), atol=1e-6)


def test_steps_filled_up_to_one_size_are_the_same():
    matrix = documents()[1:]  # a document with every label has batches of another size
    tested = trainer(matrix, dtype=torch.float32)
    generator = np.random.default_rng(4)
    *batches, _ = tested.sampler.epoch(generator)
    n = len(batches[0].label_ids)
    steps = tested.collate(batches, share=2.0 / n, siamese=True, one_size=True)
    tested._rooms[n] = torch.full((n + 1, 30), torch.nan)
    tested._room = tested._rooms.get
    for batch, step in zip(batches, list(steps), strict=True):
        assert len(step.prediction.places) % n == 0
        tested._losses.zero_()
        tested._rooms[n][-1] = 0.0
        tested.compute_gradient(step)
        expected, losses = by_tape(tested, batch, matrix=matrix)
        assert_same_gradient(tested, tested.gradient, expected, 1e-5)
        assert_allclose(tested._losses, losses, rtol=1e-5)


@needs_gpu
def test_a_gpu_trains_the_same_network():
    plan = {"max_epochs": 3, "min_steps": 40, "dtype": torch.float32}
    on_cpu = trainer(**plan)
    on_gpu = trainer(device="cuda", **plan)
    on_cpu.run()
    on_gpu.run()
    weights = on_gpu.network.weights.cpu()
    assert_allclose(weights, on_cpu.network.weights, atol=2e-3)
    losses = [record["loss"] for record in on_cpu.history]
    gpu_losses = [record["loss"] for record in on_gpu.history]
    assert losses == pytest.approx(gpu_losses, rel=0.05)


@needs_gpu
def test_cuda_graphs_take_the_same_steps_as_single_launches(monkeypatch):
    graphs = trainer(dtype=torch.float32, device="cuda")
    plain = trainer(dtype=torch.float32, device="cuda")
    batch = first_batch(graphs, seed=4)
    batches = [batch] * 2 * LOOK_EVERY  # of one size, enough for a graph to be worth it
    losses = graphs.take_steps(batches)

    monkeypatch.setattr(plain, "_replay", plain.compute_gradient)
    expected = plain.take_steps(batches)
    assert graphs._graphs
    assert not plain._graphs
    assert_allclose(losses, expected, rtol=1e-4)
    weights = graphs.network.weights.cpu()
    expected_weights = plain.network.weights.cpu()
    assert_allclose(weights, expected_weights, atol=1e-5)


# --- epochs and stages ----------------------------------------------------------------------


def count_steps(**plan):
    """Count the steps of an epoch under a plan."""
    tested = trainer(batch_size=16, **plan)
    return len(list(tested._batches()))


def test_an_epoch_has_no_more_steps_than_its_plan_allows():
    assert count_steps(min_steps=1, max_steps=3) == 3


def test_an_epoch_passes_over_all_documents_and_has_the_least_steps():
    tested = trainer(batch_size=16)
    generator = np.random.default_rng(0)
    batches = list(tested.sampler.epoch(generator))
    n_batches = len(batches)
    assert count_steps(min_steps=50) == max(n_batches, 50)
    twice = 2 * n_batches
    assert count_steps(min_steps=twice) == twice


@pytest.mark.parametrize("number", [0, 1, 2])
def test_pretraining_lowers_the_error_of_its_own_layer_only(number):
    fresh = trainer()
    tested = fresh.network
    before = trainer().network
    generator = np.random.default_rng(0)
    errors = []
    for _ in range(40):
        batches = fresh.sampler.epoch(generator)
        error = pretrain_layer(tested, number, batches, fresh.contexts, generator)
        errors.append(error)
    assert 0 < errors[-1] < 0.8 * errors[0]

    layers = tested.views(tested.weights)
    layers_before = before.views(before.weights)
    changed = []
    for place, (layer, layer_before) in enumerate(zip(layers, layers_before, strict=True)):
        if not torch.equal(layer.weight, layer_before.weight):
            changed.append(place)
    assert changed == [number]


def test_held_out_documents_have_labels_and_leave_some_to_learn_from():
    dense = documents(40).toarray()
    dense[1] = False
    matrix = sp.csr_matrix(dense)
    rows = hold_out(matrix, 0.3, np.random.default_rng(0))
    assert len(rows) == 11
    assert 1 not in rows
    assert (np.diff(rows) > 0).all()
    few_rows = hold_out(matrix[:3], 0.9, np.random.default_rng(0))
    assert len(few_rows) == 0


def test_held_out_documents_are_scored_block_by_block(monkeypatch):
    tested = trainer(dtype=torch.float32)
    matrix = documents()
    contexts = tested.contexts.numpy()

    def score():
        score_of = error_free_score(matrix[:80], contexts[:80], matrix[80:], contexts[80:])
        return score_of(tested.network)

    score_at_once = score()
    monkeypatch.setattr(polyseme.published.training, "_SCORED_TOGETHER", 7)
    assert score() == pytest.approx(score_at_once, rel=1e-9)
    monkeypatch.setattr(polyseme.published.training, "_MOST_KNOWN", 20)
    score_of_few = score()
    assert 0 < score_of_few < 1
    assert score_of_few != score_at_once
