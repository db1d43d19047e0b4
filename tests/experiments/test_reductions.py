"""Reductions of Appendix A: machines, stacks and their fine-tuning by triplets."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from polyseme._validation import InputError
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
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(8, 4)) * 2
    inner = centres[rng.integers(8, size=n)] + 0.5 * rng.normal(size=(n, 4))
    mixing = np.random.default_rng(99).normal(size=(4, n_features))
    return np.maximum(inner @ mixing, 0) * np.linspace(0.1, 30, n_features) + 3


@pytest.mark.parametrize("name", ["pca", "rbm", "uth"])
def test_a_seed_decides_the_result_and_transform_learns_nothing(name) -> None:
    X = world()
    others = world(5, seed=5) * 100
    reduction = make_reduction(name, 6, 1).fit(X)
    first = reduction.transform(X)
    assert first.shape == (120, 6)
    assert np.ptp(first, axis=0).min() > 0
    assert np.isfinite(reduction.transform(others)).all()
    assert_array_equal(first, reduction.transform(X))
    assert_array_equal(first, make_reduction(name, 6, 1).fit(X).transform(X))
    other = make_reduction(name, 6, 2).fit(X).transform(X)
    assert np.array_equal(first, other) == (name == "pca")
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
    found = make_reduction(name, 5, 0).fit(X).transform(X)
    assert found.shape == (len(X), 5)
    assert np.isfinite(found).all()


def test_the_contrastive_gradient_is_that_of_plain_loops() -> None:
    rng = np.random.default_rng(3)
    machine = Machine(rng.normal(size=(3, 2)), rng.normal(size=3), rng.normal(size=2))
    rows = rng.random((4, 3))
    draws = rng.random((4, 2))
    W, b, c = machine
    centre = rows.mean(axis=0)

    def on(total):
        return 1 / (1 + math.exp(-total))

    weights = np.zeros((3, 2))
    to_visible = np.zeros(3)
    to_hidden = np.zeros(2)
    for row, draw in zip(rows, draws, strict=True):
        up = [on(c[j] + sum(row[i] * W[i, j] for i in range(3))) for j in range(2)]
        state = [float(draw[j] < up[j]) for j in range(2)]
        again = [on(b[i] + sum(state[j] * W[i, j] for j in range(2))) for i in range(3)]
        up_again = [on(c[j] + sum(again[i] * W[i, j] for i in range(3))) for j in range(2)]
        for i in range(3):
            to_visible[i] += (row[i] - again[i]) / 4
            for j in range(2):
                data = (row[i] - centre[i]) * (up[j] - 0.5)
                weights[i, j] += (data - (again[i] - centre[i]) * (up_again[j] - 0.5)) / 4
        to_hidden += np.subtract(up, up_again) / 4
    for i in range(3):
        to_visible[i] -= sum(weights[i, j] * 0.5 for j in range(2))
    for j in range(2):
        to_hidden[j] -= sum(weights[i, j] * centre[i] for i in range(3))

    gradient = contrastive_gradient(rows, machine, centre, draws)
    for part, expected in zip(gradient, (weights, to_visible, to_hidden), strict=True):
        assert_allclose(part, expected, rtol=1e-10)


def test_training_raises_the_exact_likelihood_of_a_toy_distribution() -> None:
    # Two pairs of units that always agree: four of sixteen states, each as often.
    states = ((np.arange(16)[:, None] >> np.arange(4)) & 1).astype(float)
    rows = np.tile(states[[0, 3, 12, 15]], (50, 1)).astype(np.float32)

    def likelihood(n_epochs):
        machine = train_machine(rows, 4, n_epochs, np.random.default_rng(0))
        weights, visible_bias, hidden_bias = (part.astype(float) for part in machine)

        def log_weight(visible):
            hidden = np.logaddexp(0, visible @ weights + hidden_bias).sum(axis=1)
            return visible @ visible_bias + hidden

        return float(np.mean(log_weight(rows)) - np.log(np.exp(log_weight(states)).sum()))

    found = [likelihood(n) for n in (0, 10, 60)]
    assert found[0] == pytest.approx(math.log(1 / 16), abs=0.01)
    assert found[0] + 0.1 < found[1] < found[2]
    assert math.log(1 / 4) - 0.35 < found[2] < math.log(1 / 4)  # the best there is


def test_layers_shrink_in_equal_ratios_and_the_top_gives_probabilities_of_scaled_columns() -> None:
    assert layer_sizes(4096, 512) == [2048, 1024, 512]
    assert layer_sizes(1, 8) == [2, 4, 8]
    X = world(40)
    X[:, 3] = 5
    stack = BoltzmannStack(4, random_state=0).fit(X)
    others = world(6, seed=2) * 1.5 - 4
    spans = np.ptp(X, axis=0)
    spans[3] = np.inf
    units = np.clip((others - X.min(axis=0)) / spans, 0, 1)
    for weights, bias in stack.layers_:
        units = 1 / (1 + np.exp(-(units @ weights.astype(float) + bias)))
    assert_allclose(stack.transform(others), units, atol=1e-5)


def test_batches_hold_anchors_a_neighbour_of_each_and_farther_rows() -> None:
    rows = world(60).astype(np.float32)
    gaps = ((rows[:, None] - rows) ** 2).sum(axis=2)
    neighbours = nearest_rows(rows, 5, np.arange(60))
    for i in range(60):
        expected = sorted(gaps[i, j] for j in range(60) if j != i)[:5]
        assert_allclose(sorted(gaps[i, neighbours[i]]), expected, rtol=1e-3)
    anchors = np.arange(3, 27, 3)
    batch = draw_triplets(rows, anchors, neighbours[anchors], np.random.default_rng(0))
    numbers = [int(np.flatnonzero((rows == row).all(axis=1))[0]) for row in batch.rows]
    assert numbers[:8] == anchors.tolist()
    for i in range(8):
        assert numbers[8 + i] in neighbours[numbers[i]]
        for j in range(16):
            to_near, to_far = (((batch.rows[i] - batch.rows[k]) ** 2).sum() for k in (8 + i, j))
            if abs(to_far - to_near) > 1e-2 * to_near:
                assert batch.farther[i, j] == (to_far > to_near)


def test_the_triplet_loss_is_that_of_plain_loops_and_equal_rows_are_never_farther() -> None:
    import torch

    rng = np.random.default_rng(0)
    rows = np.tile(rng.random((1, 40), dtype=np.float32), (6, 1))
    rows[4:] += 1
    triplets = make_triplets(rows, np.array([1, 0, 0]))
    assert_array_equal(triplets.farther, [[False] * 4 + [True] * 2] * 3)
    triplets = make_triplets(rng.random((7, 3), dtype=np.float32), np.array([4, 5, 6, 0]))
    outputs = rng.random((7, 2))
    losses = []
    for anchor, near in enumerate(triplets.near):
        for far in np.flatnonzero(triplets.farther[anchor]):
            gap = ((outputs[anchor] - outputs[near]) ** 2).sum()
            gap -= ((outputs[anchor] - outputs[far]) ** 2).sum()
            losses.append(max(0.0, 0.2 + gap))
    loss = triplet_loss(torch.from_numpy(outputs), triplets, 0.2)
    assert float(loss) == pytest.approx(np.mean(losses))


def test_fine_tuning_lowers_the_held_out_loss_and_never_sees_held_out_rows(monkeypatch) -> None:
    drawn = []

    def spy(*arguments):
        drawn.append(draw_triplets(*arguments))
        return drawn[-1]

    monkeypatch.setattr(reductions, "draw_triplets", spy)
    X = world(200)
    tuned = BoltzmannStack(8, tuning_steps=100, random_state=0).fit(X)
    assert tuned.losses_[0] > min(tuned.losses_)
    assert 0 < tuned.n_steps_ <= 100
    check, *batches = drawn
    held = {row.tobytes() for row in check.rows[:20]}
    learned = {row.tobytes() for batch in batches for row in batch.rows}
    assert len(held) == 20
    assert len(batches) == 100
    assert not held & learned


def test_fine_tuning_that_only_harms_is_taken_back_when_patience_is_out(monkeypatch) -> None:
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
