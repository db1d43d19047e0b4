"""The losses against the printed formulas; gradients are in `test_concept_training`."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal

from polyseme.published.losses import (
    WEIGHTINGS,
    context_similarity,
    distance_loss,
    distance_targets,
    prediction_loss,
    prediction_targets,
)
from polyseme.published.network import Layer

N_LABELS = 7
WIDTH = 4
# Rows of labels inside the documents of the examples: one label, some, all.
DOCUMENTS = [[3], [0, 2, 6], [1, 5], list(range(N_LABELS)), [4, 5], [0]]
NEGATIVE = [0, 1, 0, 0, 1, 1]


def plain_prediction(activations, target, weighting):
    """Evaluate equation (1) of one example as printed, with y in {-1, 1} and tanh."""
    n = len(target)
    n_named = sum(target)
    total = 0.0
    k = {"literal": n_named, "balanced": n - n_named, "none": n / 2}[weighting] / n
    for a, t in zip(activations, target, strict=True):
        y = 2 * t - 1
        guess = math.tanh(a)
        total += k * (1 + y) * math.log(1 + guess) + (1 - k) * (1 - y) * math.log(1 - guess)
    return -total / n


def plain_similarity(p, q, sensitivity):
    forth = sum(a * math.log(a / b) for a, b in zip(p, q, strict=True))
    back = sum(b * math.log(b / a) for a, b in zip(p, q, strict=True))
    return math.exp(-0.5 * sensitivity * (forth + back))


def plain_distance(first, second, similarity, n_positive, scale, rho):
    """Evaluate equation (3) of one pair."""
    e = math.sqrt(sum((a - b) ** 2 for a, b in zip(first, second, strict=True)))
    both = n_positive == 2
    none = n_positive == 0
    mixed = n_positive == 1
    by_context = (e - scale * (1 - similarity)) ** 2
    return both * by_context + none * rho * by_context + mixed * similarity * (e - scale) ** 2


def examples(weighting, spread=1.0, n_filling=0):
    """Draw codes and an output layer; give them and the targets of examples, some filled up."""
    generator = torch.Generator().manual_seed(0)
    codes, weight = (
        torch.randn(n, WIDTH, generator=generator, dtype=torch.float64) * spread
        for n in (len(DOCUMENTS), N_LABELS)
    )
    output = Layer(weight, torch.randn(N_LABELS, generator=generator, dtype=torch.float64))
    places = [row * N_LABELS + label for row, labels in enumerate(DOCUMENTS) for label in labels]
    owners = [row for row, labels in enumerate(DOCUMENTS) for _ in labels]
    targets = prediction_targets(
        torch.tensor(places + [len(DOCUMENTS) * N_LABELS] * n_filling),
        torch.tensor(owners + [0] * n_filling),
        torch.tensor([len(labels) for labels in DOCUMENTS]),
        torch.tensor(NEGATIVE, dtype=torch.float64),
        N_LABELS,
        weighting=weighting,
        share=1.0,
    )
    return codes, output, targets, Layer(torch.empty_like(weight), torch.empty_like(output.bias))


@pytest.mark.parametrize("weighting", WEIGHTINGS)
@pytest.mark.parametrize("n_filling", [0, 5])
def test_prediction_loss_is_the_printed_formula(weighting, n_filling):
    codes, output, targets, gradient = examples(weighting, n_filling=n_filling)
    room = torch.full((len(codes) + 1, N_LABELS), 9.0, dtype=torch.float64) if n_filling else None
    slope, loss = prediction_loss(codes, output, targets, gradient, room=room)
    activations = (codes @ output.weight.t() + output.bias).tolist()
    expected = 0.0
    for a, document, q in zip(activations, DOCUMENTS, NEGATIVE, strict=True):
        target = [float((label in document) != bool(q)) for label in range(N_LABELS)]
        expected += plain_prediction(a, target, weighting)
    assert float(loss) == pytest.approx(expected, rel=1e-9)
    again, nothing = prediction_loss(codes, output, targets, gradient, look=False, room=room)
    assert nothing is None
    assert_allclose(again, slope, atol=1e-12)


@pytest.mark.parametrize("weighting", WEIGHTINGS)
def test_prediction_loss_and_gradient_are_finite_far_out(weighting):
    *given, gradient = examples(weighting, spread=100.0)
    slope, loss = prediction_loss(*given, gradient)
    assert all(torch.isfinite(part).all() for part in (slope, loss, *gradient))
    assert loss > 100


def test_similarity_is_the_printed_formula_symmetric_and_one_only_for_the_same_context():
    drawn = np.random.default_rng(1).dirichlet(np.full(4, 0.4), (2, 6)) + 1e-6
    first, second = torch.tensor(drawn)
    found = context_similarity(first, second, 0.3)
    expected = [plain_similarity(p, q, 0.3) for p, q in zip(*drawn, strict=True)]
    assert_allclose(found, expected, rtol=1e-9)
    assert_array_equal(found, context_similarity(second, first, 0.3))
    assert ((found > 0) & (found < 1)).all()
    for part in (first, first.float()):
        assert (context_similarity(part, part, 3.0) == 1).all()
        assert (context_similarity(part, part.roll(1, 0), 0.0) == 1).all()


@pytest.mark.parametrize("rho", [0.5, 0.0, 2.0])
def test_distance_loss_is_the_printed_formula(rho):
    generator = np.random.default_rng(3)
    codes = torch.tensor(generator.uniform(-1, 1, (12, WIDTH)))
    similarity = generator.random(6)
    n_negative = [0, 1, 2, 0, 1, 2]
    rows = zip(codes[:6].tolist(), codes[6:].tolist(), similarity, n_negative, strict=True)
    expected = sum(plain_distance(a, b, s, 2 - n, 2.0, rho) for a, b, s, n in rows)
    targets = distance_targets(
        *map(torch.tensor, (similarity, n_negative)), scale=2.0, negative_weight=rho, share=0.3
    )
    loss = distance_loss(codes, targets, torch.zeros_like(codes))
    assert float(loss) == pytest.approx(expected, rel=1e-9)
