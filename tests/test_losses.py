"""The losses, against the printed formulas in plain loops and against finite differences."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from polyseme.published.nn.losses import (
    WEIGHTINGS,
    context_similarity,
    distance_loss,
    positive_weight,
    prediction_loss,
    reduce_loss,
)
from polyseme.published.nn.networks import ConceptNetwork
from polyseme.published.nn.pairs import Batch, PairSampler
from polyseme.published.nn.plan import TrainingPlan
from polyseme.published.nn.staging import LossSettings
from polyseme.published.nn.training import ConceptTrainer


def tensor(values):
    """Give a float64 tensor."""
    return torch.tensor(np.asarray(values), dtype=torch.float64)


def examples(n=6, n_labels=7, spread=4.9, seed=0):
    """Draw activations and 0/1 targets, among them one empty and one full."""
    generator = np.random.default_rng(seed)
    targets = (generator.random((n, n_labels)) < 0.3).astype(float)
    targets[0], targets[1] = 0.0, 1.0
    return generator.uniform(-spread, spread, (n, n_labels)), targets


def plain_weight(targets, weighting):
    """Give kappa of one example."""
    n_named = sum(1 for value in targets if value == 1)
    shares = {"literal": n_named, "balanced": len(targets) - n_named, "none": len(targets) / 2}
    return shares[weighting] / len(targets)


def plain_prediction(activations, targets, weighting):
    """Evaluate equation (1) of one example as printed, with y in {-1, 1} and tanh."""
    k = plain_weight(targets, weighting)
    total = 0.0
    for a, t in zip(activations, targets, strict=True):
        y, guess = 2 * t - 1, math.tanh(a)
        total += k * (1 + y) * math.log(1 + guess) + (1 - k) * (1 - y) * math.log(1 - guess)
    return -total / len(targets)


def plain_similarity(p, q, sensitivity):
    """Give S of one pair of histograms from the two divergences."""
    forth = sum(a * math.log(a / b) for a, b in zip(p, q, strict=True))
    back = sum(b * math.log(b / a) for a, b in zip(p, q, strict=True))
    return math.exp(-0.5 * sensitivity * (forth + back))


def plain_distance(first, second, similarity, n_positive, scale, rho):
    """Evaluate equation (3) of one pair."""
    e = math.sqrt(sum((a - b) ** 2 for a, b in zip(first, second, strict=True)))
    both, none, mixed = n_positive == 2, n_positive == 0, n_positive == 1
    by_context = (e - scale * (1 - similarity)) ** 2
    return both * by_context + none * rho * by_context + mixed * similarity * (e - scale) ** 2


# --- prediction -----------------------------------------------------------------------------


@pytest.mark.parametrize("weighting", WEIGHTINGS)
def test_prediction_loss_is_the_printed_formula(weighting):
    activations, targets = examples()
    found = prediction_loss(tensor(activations), tensor(targets), weighting)
    expected = [
        plain_prediction(a, t, weighting) for a, t in zip(activations, targets, strict=True)
    ]
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("weighting", WEIGHTINGS)
def test_weights_follow_their_reading(weighting):
    _, targets = examples()
    found = positive_weight(tensor(targets), weighting)
    assert found.shape == (6, 1)
    np.testing.assert_allclose(found[:, 0], [plain_weight(t, weighting) for t in targets])


def test_balanced_gives_both_sides_the_same_total_weight():
    _, targets = examples()
    weight = positive_weight(tensor(targets))[:, 0].numpy()
    named = targets.sum(axis=1)
    np.testing.assert_allclose(weight * named, (1 - weight) * (7 - named))


@pytest.mark.parametrize("weighting", WEIGHTINGS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_prediction_loss_and_gradient_are_finite_far_out(weighting, dtype):
    activations = torch.tensor(
        [[1000.0, -1000.0, 0.0], [-1000.0, 1000.0, 0.0]], dtype=dtype, requires_grad=True
    )
    targets = torch.tensor([[1.0, 0.0, 1.0], [1.0, 0.0, 0.0]], dtype=dtype)
    losses = prediction_loss(activations, targets, weighting)
    losses.sum().backward()
    assert torch.isfinite(losses).all()
    assert torch.isfinite(activations.grad).all()
    assert losses[1] > 100 > 0 > losses[0], "right far out is rewarded, wrong far out costs"


@pytest.mark.parametrize("weighting", WEIGHTINGS)
def test_prediction_gradient_is_the_analytic_one(weighting):
    values, targets = examples()
    activations = tensor(values).requires_grad_()
    prediction_loss(activations, tensor(targets), weighting).sum().backward()
    for row, (a, t) in enumerate(zip(values, targets, strict=True)):
        k, y = plain_weight(t, weighting), 2 * t - 1
        p = 1 / (1 + np.exp(-2 * a))
        expected = (-2 * k * (1 + y) * (1 - p) + 2 * (1 - k) * (1 - y) * p) / len(t)
        np.testing.assert_allclose(activations.grad[row], expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("weighting", WEIGHTINGS)
def test_prediction_gradient_agrees_with_finite_differences(weighting):
    values, targets = examples(n=4, n_labels=3)
    assert torch.autograd.gradcheck(
        lambda a: prediction_loss(a, tensor(targets), weighting), tensor(values).requires_grad_()
    )


# --- contexts -------------------------------------------------------------------------------


def histograms(n=5, n_topics=4, seed=1):
    """Draw strictly positive histograms."""
    drawn = np.random.default_rng(seed).dirichlet(np.full(n_topics, 0.4), n) + 1e-6
    return drawn / drawn.sum(axis=1, keepdims=True)


def test_similarity_is_the_printed_formula_and_symmetric():
    first, second = histograms(seed=1), histograms(seed=2)
    found = context_similarity(tensor(first), tensor(second), 0.3)
    expected = [plain_similarity(p, q, 0.3) for p, q in zip(first, second, strict=True)]
    np.testing.assert_allclose(found, expected, rtol=1e-9)
    np.testing.assert_array_equal(found, context_similarity(tensor(second), tensor(first), 0.3))
    assert ((found > 0) & (found < 1)).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_similarity_is_one_only_for_the_same_context(dtype):
    drawn = torch.tensor(histograms(50), dtype=dtype)
    assert (context_similarity(drawn, drawn, 3.0) == 1).all()
    assert (context_similarity(drawn, drawn.roll(1, 0), 3.0) < 1).all()
    assert (context_similarity(drawn, drawn.roll(1, 0), 0.0) == 1).all()


# --- distance -------------------------------------------------------------------------------

KINDS = torch.tensor([2, 1, 0, 2, 1, 0])


def pairs(seed=3):
    """Draw six pairs of codes and their similarities."""
    generator = np.random.default_rng(seed)
    first, second = generator.uniform(-1, 1, (2, 6, 4))
    return tensor(first), tensor(second), tensor(generator.random(6))


@pytest.mark.parametrize("rho", [0.5, 0.0, 2.0])
def test_distance_loss_is_the_printed_formula(rho):
    first, second, similarity = pairs()
    found = distance_loss(first, second, similarity, KINDS, scale=2.0, negative_weight=rho)
    rows = zip(first, second, similarity, KINDS, strict=True)
    expected = [plain_distance(a, b, float(s), int(n), 2.0, rho) for a, b, s, n in rows]
    np.testing.assert_allclose(found, expected, rtol=1e-9)


def one_distance_loss(n_positive, similarity, *, apart=1.0, rho=0.5, scale=2.0):
    """Give the loss of a single pair of codes that lie `apart`."""
    first, second = torch.zeros(1, 3), torch.tensor([[apart, 0.0, 0.0]])
    kinds = torch.tensor([n_positive])
    weights = {"scale": scale, "negative_weight": rho}
    return float(distance_loss(first, second, torch.tensor([similarity]), kinds, **weights))


def test_mixed_pairs_of_unrelated_contexts_are_free():
    assert one_distance_loss(1, 0.0) == 0.0
    assert one_distance_loss(1, 1.0) == pytest.approx(1.0)
    assert one_distance_loss(1, 1.0, apart=2.0) == pytest.approx(0.0, abs=1e-12)


def test_positive_pairs_of_one_context_should_coincide():
    assert one_distance_loss(2, 1.0, apart=0.0) == pytest.approx(0.0, abs=1e-11)
    assert one_distance_loss(2, 1.0, apart=1.0) == pytest.approx(1.0)
    assert one_distance_loss(2, 0.0, apart=2.0) == pytest.approx(0.0, abs=1e-11)


@pytest.mark.parametrize("rho", [0.5, 0.25, 3.0])
def test_negative_pairs_cost_the_given_share_of_positive_ones(rho):
    first, second, similarity = pairs()
    both, none = (
        distance_loss(first, second, similarity, torch.full((6,), n), scale=2, negative_weight=rho)
        for n in (2, 0)
    )
    np.testing.assert_array_equal(none, rho * both)


def test_distance_gradient_agrees_with_finite_differences():
    first, second, similarity = pairs()
    assert torch.autograd.gradcheck(
        lambda a, b: distance_loss(a, b, similarity, KINDS, scale=2.0, negative_weight=0.5),
        (first.requires_grad_(), second.requires_grad_()),
    )


@pytest.mark.parametrize("n_positive", [0, 1, 2])
def test_distance_gradient_of_coinciding_codes_is_finite(n_positive):
    codes = torch.ones(1, 3, requires_grad=True)
    distance_loss(
        codes, torch.ones(1, 3), torch.tensor([0.5]), torch.tensor([n_positive]),
        scale=2.0, negative_weight=0.5,
    ).sum().backward()  # fmt: skip
    assert torch.isfinite(codes.grad).all()


def test_reduction_sums_or_averages():
    values = torch.tensor([1.0, 2.0, 6.0])
    assert (float(reduce_loss(values, "sum")), float(reduce_loss(values, "mean"))) == (9.0, 3.0)


# --- the whole loss -------------------------------------------------------------------------

DOCUMENTS = np.array([[1, 1, 0, 0], [0, 1, 1, 0], [1, 0, 1, 1], [0, 0, 0, 1]], dtype=bool)


def trainer(weighting="balanced"):
    """Make a tiny float64 trainer with known constants."""
    descriptors = np.random.default_rng(5).standard_normal((4, 4))
    seed = torch.Generator().manual_seed(2)
    network = ConceptNetwork(descriptors, 3, [5], 3, seed, dtype=torch.float64)
    constants = LossSettings(weighting, 0.7, 1.7, 0.5, 0.8)
    plan = TrainingPlan(batch_size=8)
    contexts = histograms(4, 3)
    return ConceptTrainer(
        network, sp.csr_matrix(DOCUMENTS), contexts, plan, constants, np.random.default_rng(0)
    )


# Positive with positive, mixed, and negative with negative, of one and of two documents.
BATCH = Batch(
    np.array([0, 1, 1, 3, 2, 2, 3, 0, 1, 2, 0, 0]),
    np.array([0, 0, 0, 0, 0, 3, 3, 0, 2, 1, 1, 3]),
    np.array([True, True, True, False, False, False, True, True, False, True, False, False]),
)


@pytest.mark.parametrize("weighting", WEIGHTINGS)
def test_batch_losses_equal_a_loop_over_pairs(weighting):
    tested = trainer(weighting)
    with torch.no_grad():
        prediction, distance = tested.batch_losses(BATCH)
        contexts = tested.contexts[BATCH.document_ids]
        codes, logits = tested.network(torch.tensor(BATCH.label_ids), contexts)
    assert prediction.shape == distance.shape == (6,)
    for pair in range(6):
        sides = [2 * pair, 2 * pair + 1]
        expected = 0.0
        for side in sides:
            held = DOCUMENTS[BATCH.document_ids[side]].astype(float)
            target = held if BATCH.positive[side] else 1 - held
            expected += plain_prediction(logits[side], target, weighting)
        assert float(prediction[pair]) == pytest.approx(expected, rel=1e-9)
        similarity = plain_similarity(*contexts[sides], 0.7)
        n_positive = sum(BATCH.positive[sides])
        expected = plain_distance(*codes[sides], similarity, n_positive, 1.7, 0.5)
        assert float(distance[pair]) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("weighting", WEIGHTINGS)
def test_gradient_through_the_whole_network_agrees_with_finite_differences(weighting):
    tested = trainer(weighting)
    batch = next(PairSampler(tested.matrix, batch_size=12).epoch(np.random.default_rng(1)))

    def combined():
        prediction, distance = tested.batch_losses(batch)
        return (prediction + tested.loss.distance_weight * distance).sum()

    combined().backward()
    step, values = 1e-6, tested.weights
    slopes = torch.zeros_like(values)
    with torch.no_grad():
        for at in range(len(values)):
            kept = float(values[at])
            values[at] = kept + step
            above = combined()
            values[at] = kept - step
            slopes[at] = (above - combined()) / (2 * step)
            values[at] = kept
    for name, part in tested.network.named_parameters():
        # Weights and slopes are views of two vectors that are laid out alike.
        expected = slopes.as_strided(part.shape, part.stride(), part.storage_offset())
        np.testing.assert_allclose(part.grad, expected, rtol=1e-5, atol=1e-6, err_msg=name)
    tested.gradient.compute(tested.runner.stager.one(batch, share=1.0, siamese=True))
    np.testing.assert_allclose(tested.gradient.weights.gradient, slopes, rtol=1e-5, atol=1e-6)
