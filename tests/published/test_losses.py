"""The losses against the printed formulas; gradients are in `test_concept_training`."""

from __future__ import annotations

import math
from functools import partial

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
    n = len(target)
    n_named = sum(target)
    share_by_weighting = {"literal": n_named, "balanced": n - n_named, "none": n / 2}
    kappa = share_by_weighting[weighting] / n
    total = 0.0
    for activation, is_named in zip(activations, target, strict=True):
        y = 2 * is_named - 1
        guess = math.tanh(activation)
        named = (1 + y) * math.log(1 + guess)
        unnamed = (1 - y) * math.log(1 - guess)
        total += kappa * named
        total += (1 - kappa) * unnamed
    return -total / n


def plain_similarity(p, q, sensitivity):
    divergence = 0.0
    for a, b in zip(p, q, strict=True):
        divergence += a * math.log(a / b)
        divergence += b * math.log(b / a)
    return math.exp(-0.5 * sensitivity * divergence)


def plain_distance(first, second, similarity, n_positive, scale, rho):
    e = math.dist(first, second)
    by_context = (e - scale * (1 - similarity)) ** 2
    if n_positive == 2:
        return by_context
    if n_positive == 0:
        return rho * by_context
    return similarity * (e - scale) ** 2


def examples(weighting, spread=1.0, n_filling=0):
    generator = torch.Generator().manual_seed(0)
    normal = partial(torch.randn, generator=generator, dtype=torch.float64)
    codes = spread * normal(len(DOCUMENTS), WIDTH)
    weight = spread * normal(N_LABELS, WIDTH)
    output = Layer(weight, normal(N_LABELS))

    filling = len(DOCUMENTS) * N_LABELS
    places = []
    owners = []
    for row, labels in enumerate(DOCUMENTS):
        places += [row * N_LABELS + label for label in labels]
        owners += [row] * len(labels)
    targets = prediction_targets(
        torch.tensor(places + [filling] * n_filling),
        torch.tensor(owners + [0] * n_filling),
        torch.tensor([len(labels) for labels in DOCUMENTS]),
        torch.tensor(NEGATIVE, dtype=torch.float64),
        N_LABELS,
        weighting=weighting,
        share=1.0,
    )
    gradient = Layer(torch.empty_like(weight), torch.empty_like(output.bias))
    return codes, output, targets, gradient


@pytest.mark.parametrize("weighting", WEIGHTINGS)
@pytest.mark.parametrize("n_filling", [0, 5])
def test_prediction_loss_is_the_printed_formula(weighting, n_filling):
    codes, output, targets, gradient = examples(weighting, n_filling=n_filling)
    room = None
    if n_filling:
        room = torch.full((len(codes) + 1, N_LABELS), 9.0, dtype=torch.float64)
    slope, loss = prediction_loss(codes, output, targets, gradient, room=room)

    activations = codes @ output.weight.t() + output.bias
    rows = zip(activations.tolist(), DOCUMENTS, NEGATIVE, strict=True)
    expected = 0.0
    for row_activations, document, is_negative in rows:
        target = [float((label in document) != bool(is_negative)) for label in range(N_LABELS)]
        expected += plain_prediction(row_activations, target, weighting)
    assert float(loss) == pytest.approx(expected, rel=1e-9)

    unseen_slope, no_loss = prediction_loss(
        codes,
        output,
        targets,
        gradient,
        look=False,
        room=room,
    )
    assert no_loss is None
    assert_allclose(unseen_slope, slope, atol=1e-12)


@pytest.mark.parametrize("weighting", WEIGHTINGS)
def test_prediction_loss_and_gradient_are_finite_far_out(weighting):
    codes, output, targets, gradient = examples(weighting, spread=100.0)
    slope, loss = prediction_loss(codes, output, targets, gradient)
    for tensor in (slope, loss, *gradient):
        assert torch.isfinite(tensor).all()
    assert loss > 100


def test_similarity_is_the_printed_formula_symmetric_and_below_one():
    generator = np.random.default_rng(1)
    contexts = generator.dirichlet(np.full(4, 0.4), (2, 6)) + 1e-6
    first, second = torch.tensor(contexts)
    similarity = context_similarity(first, second, 0.3)
    expected = [plain_similarity(p, q, 0.3) for p, q in zip(*contexts, strict=True)]
    assert_allclose(similarity, expected, rtol=1e-9)
    mirrored = context_similarity(second, first, 0.3)
    assert_array_equal(similarity, mirrored)
    assert (similarity > 0).all()
    assert (similarity < 1).all()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_similarity_of_equal_contexts_or_without_sensitivity_is_one(dtype):
    generator = np.random.default_rng(1)
    contexts = generator.dirichlet(np.full(4, 0.4), 6) + 1e-6
    rows = torch.tensor(contexts, dtype=dtype)
    following_rows = rows.roll(1, 0)
    assert (context_similarity(rows, rows, 3.0) == 1).all()
    assert (context_similarity(rows, following_rows, 0.0) == 1).all()


@pytest.mark.parametrize("rho", [0.5, 0.0, 2.0])
def test_distance_loss_is_the_printed_formula(rho):
    generator = np.random.default_rng(3)
    codes = torch.tensor(generator.uniform(-1, 1, (12, WIDTH)))
    first_codes = codes[:6].tolist()
    second_codes = codes[6:].tolist()
    similarity = generator.random(6)
    n_negative = [0, 1, 2, 0, 1, 2]
    expected = 0.0
    for pair in range(6):
        expected += plain_distance(
            first_codes[pair],
            second_codes[pair],
            similarity[pair],
            2 - n_negative[pair],
            2.0,
            rho,
        )
    targets = distance_targets(
        torch.tensor(similarity),
        torch.tensor(n_negative),
        scale=2.0,
        negative_weight=rho,
        share=0.3,
    )
    loss = distance_loss(codes, targets, torch.zeros_like(codes))
    assert float(loss) == pytest.approx(expected, rel=1e-9)
