"""The losses and their gradients, against the printed formulas in plain loops."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from polyseme.published.losses import (
    WEIGHTINGS,
    context_similarity,
    distance_loss,
    distance_targets,
    prediction_loss,
    prediction_targets,
)
from polyseme.published.network import Layer

N_LABELS, WIDTH = 7, 4
# Rows of labels inside the documents of the examples: one label, some, all.
DOCUMENTS = [[3], [0, 2, 6], [1, 5], list(range(N_LABELS)), [4, 5], [0]]
NEGATIVE = [0, 1, 0, 0, 1, 1]


def plain_kappa(target, weighting):
    n_named = sum(target)
    shares = {"literal": n_named, "balanced": len(target) - n_named, "none": len(target) / 2}
    return shares[weighting] / len(target)


def plain_prediction(activations, target, weighting):
    """Evaluate equation (1) of one example as printed, with y in {-1, 1} and tanh."""
    k, total = plain_kappa(target, weighting), 0.0
    for a, t in zip(activations, target, strict=True):
        y, guess = 2 * t - 1, math.tanh(a)
        total += k * (1 + y) * math.log(1 + guess) + (1 - k) * (1 - y) * math.log(1 - guess)
    return -total / len(target)


def plain_similarity(p, q, sensitivity):
    forth = sum(a * math.log(a / b) for a, b in zip(p, q, strict=True))
    back = sum(b * math.log(b / a) for a, b in zip(p, q, strict=True))
    return math.exp(-0.5 * sensitivity * (forth + back))


def plain_distance(first, second, similarity, n_positive, scale, rho):
    """Evaluate equation (3) of one pair."""
    e = math.sqrt(sum((a - b) ** 2 for a, b in zip(first, second, strict=True)))
    both, none, mixed = n_positive == 2, n_positive == 0, n_positive == 1
    by_context = (e - scale * (1 - similarity)) ** 2
    return both * by_context + none * rho * by_context + mixed * similarity * (e - scale) ** 2


def slopes_of(function, values, step=1e-6):
    """Differentiate a function of a tensor by central differences."""
    flat, result = values.view(-1), torch.zeros_like(values).view(-1)
    for place in range(len(flat)):
        kept = float(flat[place])
        ends = []
        for value in (kept + step, kept - step):
            flat[place] = value
            ends.append(float(function()))
        flat[place] = kept
        result[place] = (ends[0] - ends[1]) / (2 * step)
    return result.view(values.shape)


# --- prediction -----------------------------------------------------------------------------


def examples(spread=1.0):
    """Draw codes and an output layer; give each example's 0/1 target."""
    generator = torch.Generator().manual_seed(0)
    codes, weight = (
        torch.randn(n, WIDTH, generator=generator, dtype=torch.float64) * spread
        for n in (len(DOCUMENTS), N_LABELS)
    )
    output = Layer(weight, torch.randn(N_LABELS, generator=generator, dtype=torch.float64))
    held = [[float(label in document) for label in range(N_LABELS)] for document in DOCUMENTS]
    targets = [[1 - t for t in row] if q else row for row, q in zip(held, NEGATIVE, strict=True)]
    return codes, output, targets


def targets_of(weighting, share=1.0, n_filling=0):
    """Collect the labels inside documents, and perhaps what only fills up."""
    places = [row * N_LABELS + label for row, labels in enumerate(DOCUMENTS) for label in labels]
    owners = [row for row, labels in enumerate(DOCUMENTS) for _ in labels]
    return prediction_targets(
        torch.tensor(places + [len(DOCUMENTS) * N_LABELS] * n_filling),
        torch.tensor(owners + [0] * n_filling),
        torch.tensor([len(labels) for labels in DOCUMENTS]),
        torch.tensor(NEGATIVE, dtype=torch.float64),
        N_LABELS,
        weighting=weighting,
        share=share,
    )


@pytest.mark.parametrize("weighting", WEIGHTINGS)
@pytest.mark.parametrize("n_filling", [0, 5])
def test_prediction_loss_is_the_printed_formula_and_its_gradient(weighting, n_filling):
    codes, output, targets = examples()

    def value():
        activations = codes @ output.weight.t() + output.bias
        rows = zip(activations.tolist(), targets, strict=True)
        return sum(plain_prediction(a, t, weighting) for a, t in rows)

    gradient = Layer(torch.empty_like(output.weight), torch.empty_like(output.bias))
    room = torch.full((len(codes) + 1, N_LABELS), 9.0, dtype=torch.float64) if n_filling else None
    given = targets_of(weighting, 0.7, n_filling)
    slope, loss = prediction_loss(codes, output, given, gradient, room=room)
    assert float(loss) == pytest.approx(value(), rel=1e-9)
    for found, values in ((slope, codes), (gradient.weight, output[0]), (gradient.bias, output[1])):
        np.testing.assert_allclose(found, 0.7 * slopes_of(value, values), atol=1e-7)
    again, nothing = prediction_loss(codes, output, given, gradient, look=False, room=room)
    assert nothing is None
    np.testing.assert_allclose(again, slope, atol=1e-12)


@pytest.mark.parametrize("weighting", WEIGHTINGS)
def test_prediction_loss_and_gradient_are_finite_far_out(weighting):
    codes, output, _ = examples(spread=100.0)
    gradient = Layer(torch.empty_like(output.weight), torch.empty_like(output.bias))
    slope, loss = prediction_loss(codes, output, targets_of(weighting), gradient)
    assert all(torch.isfinite(part).all() for part in (slope, loss, *gradient))
    assert loss > 100


# --- contexts and distances -----------------------------------------------------------------


def histograms(n=6, n_topics=4, seed=1):
    """Draw strictly positive histograms."""
    drawn = np.random.default_rng(seed).dirichlet(np.full(n_topics, 0.4), n) + 1e-6
    return drawn / drawn.sum(axis=1, keepdims=True)


def test_similarity_is_the_printed_formula_symmetric_and_one_only_for_the_same_context():
    first, second = histograms(seed=1), histograms(seed=2)
    tensors = torch.tensor(first), torch.tensor(second)
    found = context_similarity(*tensors, 0.3)
    expected = [plain_similarity(p, q, 0.3) for p, q in zip(first, second, strict=True)]
    np.testing.assert_allclose(found, expected, rtol=1e-9)
    np.testing.assert_array_equal(found, context_similarity(*tensors[::-1], 0.3))
    assert ((found > 0) & (found < 1)).all()
    for dtype in (torch.float32, torch.float64):
        drawn = torch.tensor(histograms(50), dtype=dtype)
        assert (context_similarity(drawn, drawn, 3.0) == 1).all()
        assert (context_similarity(drawn, drawn.roll(1, 0), 0.0) == 1).all()


@pytest.mark.parametrize("rho", [0.5, 0.0, 2.0])
def test_distance_loss_is_the_printed_formula_and_its_gradient(rho):
    generator = np.random.default_rng(3)
    codes = torch.tensor(generator.uniform(-1, 1, (12, WIDTH)))
    similarity, n_negative = generator.random(6), [0, 1, 2, 0, 1, 2]

    def value():
        rows = zip(codes[:6].tolist(), codes[6:].tolist(), similarity, n_negative, strict=True)
        return sum(plain_distance(a, b, s, 2 - n, 2.0, rho) for a, b, s, n in rows)

    targets = distance_targets(
        *map(torch.tensor, (similarity, n_negative)), scale=2.0, negative_weight=rho, share=0.3
    )
    slope = torch.ones_like(codes)
    assert float(distance_loss(codes, targets, slope)) == pytest.approx(value(), rel=1e-9)
    np.testing.assert_allclose(slope - 1, 0.3 * slopes_of(value, codes), atol=1e-7)
