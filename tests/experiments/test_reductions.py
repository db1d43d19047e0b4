"""Reductions of Appendix A: machines, stacks and their fine-tuning by triplets."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.spatial.distance import cdist
from scipy.special import expit, logsumexp

from polyseme.base.validation import InputError
from polyseme_experiments import reductions
from polyseme_experiments.reductions import (
    BoltzmannStack,
    Machine,
    contrastive_gradient,
    draw_triplets,
    fine_tune,
    layer_sizes,
    make_reduction,
    make_triplets,
    nearest_rows,
    train_machine,
    triplet_loss,
)


def world(n=120, n_features=20, seed=0):
    """Clusters on a curved sheet, with columns of different scales, some mostly zero."""
    generator = np.random.default_rng(seed)
    centres = 2 * generator.normal(size=(8, 4))
    clusters = generator.integers(8, size=n)
    noise = generator.normal(size=(n, 4))
    inner = centres[clusters] + 0.5 * noise
    mixing = np.random.default_rng(99).normal(size=(4, n_features))
    sheet = np.maximum(inner @ mixing, 0)
    scales = np.linspace(0.1, 30, n_features)
    return sheet * scales + 3


@pytest.mark.parametrize("name", ["pca", "rbm", "uth"])
def test_a_seed_decides_the_result_and_transform_learns_nothing(name) -> None:
    X = world()
    new_rows = 100 * world(5, seed=5)
    reduction = make_reduction(name, 6, 1).fit(X)
    points = reduction.transform(X)
    assert points.shape == (120, 6)
    assert np.ptp(points, axis=0).min() > 0
    new_points = reduction.transform(new_rows)
    assert np.isfinite(new_points).all()
    assert_array_equal(reduction.transform(X), points)

    repeated = make_reduction(name, 6, 1).fit(X)
    assert_array_equal(repeated.transform(X), points)
    of_another_seed = make_reduction(name, 6, 2).fit(X)
    same_points = np.array_equal(of_another_seed.transform(X), points)
    assert same_points == (name == "pca")


def test_an_unknown_reduction_is_refused() -> None:
    with pytest.raises(InputError, match="Unknown reduction 'pcs'; known: pca, rbm, uth"):
        make_reduction("pcs", 4)


@pytest.mark.parametrize("name", ["rbm", "uth"])
@pytest.mark.parametrize(
    "X",
    [
        [[1.0]],
        [[2.0, 3.0]] * 30,
        [[0.0, 1.0]] * 5 + [[1.0, 0.0]] * 5,
        [[-1.7e308, 7.0], [1.7e308, 7.0], [0.0, 7.0]],
    ],
)
def test_tiny_and_degenerate_rows_have_finite_results(name, X) -> None:
    reduction = make_reduction(name, 5, 0).fit(X)
    points = reduction.transform(X)
    assert points.shape == (len(X), 5)
    assert np.isfinite(points).all()


def test_the_contrastive_gradient_is_that_of_row_by_row_steps() -> None:
    generator = np.random.default_rng(3)
    machine = Machine(
        generator.normal(size=(3, 2)),
        generator.normal(size=3),
        generator.normal(size=2),
    )
    rows = generator.random((4, 3))
    draws = generator.random((4, 2))
    weights, visible_bias, hidden_bias = machine
    centre = rows.mean(axis=0)

    weight_slope = np.zeros((3, 2))
    visible_slope = np.zeros(3)
    hidden_slope = np.zeros(2)
    for row, draw in zip(rows, draws, strict=True):
        hidden = expit(hidden_bias + row @ weights)
        state = (draw < hidden).astype(float)
        visible = expit(visible_bias + weights @ state)
        hidden_of_visible = expit(hidden_bias + visible @ weights)
        data_term = np.outer(row - centre, hidden - 0.5)
        model_term = np.outer(visible - centre, hidden_of_visible - 0.5)
        weight_slope += (data_term - model_term) / 4
        visible_slope += (row - visible) / 4
        hidden_slope += (hidden - hidden_of_visible) / 4
    visible_slope -= weight_slope @ np.full(2, 0.5)
    hidden_slope -= centre @ weight_slope

    gradient = contrastive_gradient(rows, machine, centre, draws)
    expected = (weight_slope, visible_slope, hidden_slope)
    for slope, expected_slope in zip(gradient, expected, strict=True):
        assert_allclose(slope, expected_slope, rtol=1e-10)


def test_training_raises_the_exact_likelihood_of_a_toy_distribution() -> None:
    # Two pairs of units that always agree: four of sixteen states, each as often.
    bits = np.arange(16)[:, None] >> np.arange(4)
    states = (bits & 1).astype(float)
    rows = np.tile(states[[0, 3, 12, 15]], (50, 1)).astype(np.float32)

    def likelihood(n_epochs):
        generator = np.random.default_rng(0)
        machine = train_machine(rows, 4, n_epochs, generator)
        weights, visible_bias, hidden_bias = [array.astype(float) for array in machine]

        def log_weight(visible):
            activations = visible @ weights + hidden_bias
            hidden = np.logaddexp(0, activations).sum(axis=1)
            return visible @ visible_bias + hidden

        log_normaliser = logsumexp(log_weight(states))
        return float(np.mean(log_weight(rows)) - log_normaliser)

    untrained = likelihood(0)
    trained = likelihood(10)
    trained_long = likelihood(60)
    best = math.log(1 / 4)
    expected = math.log(1 / 16)
    assert untrained == pytest.approx(expected, abs=0.01)
    assert untrained + 0.1 < trained < trained_long
    assert best - 0.35 < trained_long < best


def test_layers_shrink_in_equal_ratios() -> None:
    assert layer_sizes(4096, 512) == [2048, 1024, 512]
    assert layer_sizes(1, 8) == [2, 4, 8]


def test_the_top_layer_gives_probabilities_of_scaled_columns() -> None:
    X = world(40)
    X[:, 3] = 5
    stack = BoltzmannStack(4, random_state=0).fit(X)
    new_rows = world(6, seed=2) * 1.5 - 4
    spans = np.ptp(X, axis=0)
    spans[3] = np.inf
    scaled = (new_rows - X.min(axis=0)) / spans
    units = np.clip(scaled, 0, 1)
    for weights, bias in stack.layers_:
        units = expit(units @ weights.astype(float) + bias)
    assert_allclose(stack.transform(new_rows), units, atol=1e-5)


def test_nearest_rows_are_those_of_scipy() -> None:
    rows = world(60).astype(np.float32)
    neighbours = nearest_rows(rows, 5, np.arange(60))
    gaps = cdist(rows, rows, "sqeuclidean")
    np.fill_diagonal(gaps, np.inf)
    expected = np.sort(gaps, axis=1)[:, :5]
    gaps_of_neighbours = np.take_along_axis(gaps, neighbours, axis=1)
    sorted_gaps = np.sort(gaps_of_neighbours, axis=1)
    assert_allclose(sorted_gaps, expected, rtol=1e-3)


def test_batches_hold_anchors_a_neighbour_of_each_and_farther_rows() -> None:
    rows = world(60).astype(np.float32)
    neighbours = nearest_rows(rows, 5, np.arange(60))
    anchors = np.arange(3, 27, 3)
    generator = np.random.default_rng(0)
    batch = draw_triplets(rows, anchors, neighbours[anchors], generator)
    numbers = cdist(batch.rows, rows).argmin(axis=1)
    assert_array_equal(rows[numbers], batch.rows)
    assert numbers[:8].tolist() == anchors.tolist()
    for anchor, neighbour in zip(numbers[:8], numbers[8:], strict=True):
        assert neighbour in neighbours[anchor]

    gaps = cdist(batch.rows[:8], batch.rows, "sqeuclidean")
    to_neighbour = gaps[np.arange(8), np.arange(8, 16)]
    beyond = gaps - to_neighbour[:, None]
    clear = np.abs(beyond) > 1e-2 * to_neighbour[:, None]
    expected = beyond[clear] > 0
    assert_array_equal(batch.farther[clear], expected)


def test_equal_rows_are_never_farther() -> None:
    generator = np.random.default_rng(0)
    rows = np.tile(generator.random((1, 40), dtype=np.float32), (6, 1))
    rows[4:] += 1
    triplets = make_triplets(rows, np.array([1, 0, 0]))
    expected = [[False] * 4 + [True] * 2] * 3
    assert_array_equal(triplets.farther, expected)


def test_the_triplet_loss_is_that_of_plain_loops() -> None:
    import torch

    generator = np.random.default_rng(0)
    rows = generator.random((7, 3), dtype=np.float32)
    triplets = make_triplets(rows, np.array([4, 5, 6, 0]))
    outputs = generator.random((7, 2))
    gaps = cdist(outputs, outputs, "sqeuclidean")
    losses = []
    for anchor, near in enumerate(triplets.near):
        for far in np.flatnonzero(triplets.farther[anchor]):
            gap = gaps[anchor, near] - gaps[anchor, far]
            losses.append(max(0.0, 0.2 + gap))
    loss = triplet_loss(torch.from_numpy(outputs), triplets, 0.2)
    assert float(loss) == pytest.approx(np.mean(losses))


def test_fine_tuning_lowers_the_held_out_loss_and_never_sees_held_out_rows(monkeypatch) -> None:
    batches = []

    def record(*arguments):
        batch = draw_triplets(*arguments)
        batches.append(batch)
        return batch

    monkeypatch.setattr(reductions, "draw_triplets", record)
    X = world(200)
    stack = BoltzmannStack(8, tuning_steps=100, random_state=0).fit(X)
    assert stack.losses_[0] > min(stack.losses_)
    assert 0 < stack.n_steps_ <= 100
    validation_batch, *training_batches = batches
    assert len(training_batches) == 100
    held_out_rows = {row.tobytes() for row in validation_batch.rows[:20]}
    assert len(held_out_rows) == 20
    for batch in training_batches:
        training_rows = {row.tobytes() for row in batch.rows}
        assert held_out_rows.isdisjoint(training_rows)


def test_fine_tuning_that_only_harms_is_undone_when_patience_ends(monkeypatch) -> None:
    monkeypatch.setattr(reductions, "TUNING_RATE", 1e3)
    monkeypatch.setattr(reductions, "PATIENCE", 2)
    X = world()
    tuned = BoltzmannStack(5, tuning_steps=500, random_state=3).fit(X)
    assert tuned.n_steps_ == 0
    assert len(tuned.losses_) == 3
    plain = BoltzmannStack(5, random_state=3).fit(X)
    assert_array_equal(tuned.transform(X), plain.transform(X))


@pytest.mark.parametrize("X", [[[0.0, 1.0], [1.0, 0.0]], [[2.0, 3.0]] * 12])
def test_rows_without_triplets_keep_the_stack(X) -> None:
    layers = BoltzmannStack(3, random_state=0).fit(X).layers_
    assert fine_tune(np.float32(X), layers, 10, np.random.default_rng(0)) == (layers, [], 0)
