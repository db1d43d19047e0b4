from __future__ import annotations

import json
import math

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.decomposition import PCA

from polyseme._persistence import read_model, write_model
from polyseme._validation import InputError, NotFittedError, PolysemeWarning
from polyseme.features.reductions import (
    REDUCTIONS,
    BoltzmannStack,
    PrincipalComponents,
    TripletHashing,
    make_reduction,
    reduction_from_state,
)
from polyseme.features.reductions.boltzmann import layer_sizes
from polyseme.features.reductions.machine import (
    Machine,
    Schedule,
    contrastive_gradient,
    free_energy,
    reconstruction_error,
    train_machine,
)
from polyseme.features.reductions.neighbours import nearest_rows, squared_distances
from polyseme.features.reductions.tuning import (
    draw_triplets,
    kept_order,
    make_triplets,
    triplet_loss,
)

KINDS = list(REDUCTIONS)
kinds = pytest.mark.parametrize("kind", KINDS)


def world(n=120, n_features=20, seed=0):
    """Clusters on a curved sheet, with columns of different scales, some mostly zero."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(8, 4)) * 2
    inner = centres[rng.integers(8, size=n)] + 0.5 * rng.normal(size=(n, 4))
    mixing = np.random.default_rng(99).normal(size=(4, n_features))
    return np.maximum(inner @ mixing, 0) * np.linspace(0.1, 30, n_features) + 3


def quick(kind, n_components=6, seed=0):
    """A reduction that is fitted in a moment."""
    reduction = make_reduction(kind, n_components, seed)
    if kind == "rbm":
        reduction.set_params(n_epochs=3)
    if kind == "uth":
        reduction.set_params(n_steps=40, n_layers=2)
    return reduction


def tiny_machine(n_visible, n_hidden, seed=0):
    rng = np.random.default_rng(seed)
    return Machine(
        rng.normal(size=(n_visible, n_hidden)),
        rng.normal(size=n_visible),
        rng.normal(size=n_hidden),
    )


# The registry


def test_the_registry_names_the_three_reductions() -> None:
    assert KINDS == ["pca", "rbm", "uth"]
    for kind in KINDS:
        made = make_reduction(kind, 7, 3)
        assert isinstance(made, REDUCTIONS[kind])
        assert (made.n_components, made.random_state) == (7, 3)


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(InputError, match="Unknown reduction 'pcs'; known: pca, rbm, uth"):
        make_reduction("pcs", 4)
    with pytest.raises(InputError, match="Unknown reduction 'None'; known: pca, rbm, uth"):
        reduction_from_state({}, {})


# What all have in common


@kinds
def test_the_result_is_float32_with_the_wanted_columns(kind) -> None:
    X = world()
    reduction = quick(kind)
    found = reduction.fit(X).transform(X[:5])
    assert found.dtype == np.float32
    assert found.shape == (5, 6)
    assert (reduction.n_features_in_, reduction.n_components_) == (20, 6)
    assert reduction.transform(X[:0]).shape == (0, 6)
    assert np.ptp(found, axis=0).min() > 0


@kinds
def test_a_seed_decides_the_result(kind) -> None:
    X = world()
    first, again, other = (quick(kind, seed=seed).fit(X).transform(X) for seed in (1, 1, 2))
    assert_array_equal(first, again)
    assert np.array_equal(first, other) == (kind == "pca")
    generator = quick(kind, seed=np.random.default_rng(1)).fit(X).transform(X)
    assert_array_equal(first, generator)


@kinds
def test_a_row_alone_is_transformed_as_in_a_batch(kind) -> None:
    X = world()
    reduction = quick(kind).fit(X)
    whole = reduction.transform(X)
    alone = np.vstack([reduction.transform(row[None]) for row in X[:10]])
    assert_allclose(alone, whole[:10], rtol=1e-4, atol=1e-4)


@kinds
def test_blocks_of_rows_change_nothing(kind, monkeypatch) -> None:
    X = world()
    reduction = quick(kind).fit(X)
    whole = reduction.transform(X)
    module = "pca" if kind == "pca" else "boltzmann"
    monkeypatch.setattr(f"polyseme.features.reductions.{module}.BLOCK_ROWS", 7)
    assert_allclose(reduction.transform(X), whole, rtol=1e-4, atol=1e-4)


@kinds
def test_transform_changes_neither_the_state_nor_the_rows(kind) -> None:
    X = world()
    given_rows = X.copy()
    reduction = quick(kind).fit(X)
    assert_array_equal(X, given_rows)
    before = {name: array.copy() for name, array in reduction.get_state()[1].items()}
    config = json.dumps(reduction.get_state()[0])
    outlying = world(seed=5) * 100 - 7
    first = reduction.transform(X)
    reduction.transform(outlying)
    assert json.dumps(reduction.get_state()[0]) == config
    for name, array in reduction.get_state()[1].items():
        assert_array_equal(array, before[name])
    assert_array_equal(reduction.transform(X), first)


@kinds
def test_a_saved_state_transforms_bit_for_bit_the_same(kind, tmp_path) -> None:
    X = world()
    reduction = quick(kind, seed=np.random.default_rng(0)).fit(X)
    config, arrays = reduction.get_state()
    write_model(tmp_path / "model", "reduction", config, arrays)
    stored, held = read_model(tmp_path / "model", "reduction")
    restored = reduction_from_state(stored, held)
    assert type(restored) is REDUCTIONS[kind]
    assert_array_equal(restored.transform(X), reduction.transform(X))
    again, arrays_again = restored.get_state()
    assert json.loads(json.dumps(again)) == json.loads(json.dumps(config))
    assert set(arrays_again) == set(arrays)


@kinds
def test_a_damaged_state_is_refused_in_one_sentence(kind) -> None:
    config, arrays = quick(kind).fit(world()).get_state()
    name = sorted(arrays)[0]
    with pytest.raises(InputError, match=rf"^The saved \w+ lacks the array\(s\) {name}\.$"):
        reduction_from_state(config, {key: arrays[key] for key in arrays if key != name})
    with pytest.raises(InputError, match=f"^The array '{name}' of the saved .* the shape"):
        reduction_from_state(config, arrays | {name: arrays[name][:-1]})


@kinds
def test_frames_and_sparse_rows_give_what_arrays_give(kind) -> None:
    X = world()
    reduction = quick(kind).fit(X)
    expected = reduction.transform(X)
    assert_array_equal(reduction.transform(pd.DataFrame(X)), expected)
    assert_array_equal(reduction.transform(sp.csr_matrix(X)), expected)
    assert_array_equal(quick(kind).fit(sp.csr_matrix(X)).transform(X), expected)


@kinds
def test_unusable_features_are_refused(kind) -> None:
    X = world()
    with pytest.raises(NotFittedError, match="is not fitted yet; call `fit` first"):
        quick(kind).transform(X)
    with pytest.raises(NotFittedError, match="is not fitted yet; call `fit` first"):
        quick(kind).get_state()
    with pytest.raises(InputError, match="has 0 rows while a minimum of 1 is required"):
        quick(kind).fit(X[:0])
    broken = X.copy()
    broken[3, 2] = np.nan
    with pytest.raises(InputError, match=r"NaN or infinity in row\(s\) 3;"):
        quick(kind).fit(broken)
    reduction = quick(kind).fit(X)
    with pytest.raises(InputError, match=r"NaN or infinity in row\(s\) 3;"):
        reduction.transform(broken)
    with pytest.raises(InputError, match=r"X has 3 features, but .* is expecting 20 features"):
        reduction.transform(X[:, :3])


@pytest.mark.filterwarnings("ignore::polyseme._validation.PolysemeWarning")
@kinds
@pytest.mark.parametrize(
    "X",
    [
        [[1.0]],
        [[1.0], [2.0]],
        [[1.0, 5.0], [1.0, 5.0]],
        [[0.0, 5.0, 1.0], [1.0, 5.0, 1.0]],
        [[2.0, 3.0]] * 30,
        [[0.0, 1.0]] * 5 + [[1.0, 0.0]] * 5,
        [[0.0, 7.0], [1.0, 7.0], [3.0, 7.0]],
        [[1e-320, 0.0], [2e-320, 1.0], [0.0, 2.0]],
    ],
)
def test_tiny_and_degenerate_rows_have_finite_results(kind, X) -> None:
    reduction = quick(kind, n_components=5).fit(X)
    found = reduction.transform(X)
    assert found.shape == (len(X), reduction.n_components_)
    assert np.isfinite(found).all()
    for row, other in zip(found, np.asarray(X), strict=True):
        twins = (np.asarray(X) == other).all(axis=1)
        assert_allclose(found[twins], np.broadcast_to(row, found[twins].shape), atol=1e-5)


@pytest.mark.parametrize("kind", ["rbm", "uth"])
def test_a_range_too_wide_for_a_float_is_scaled(kind) -> None:
    X = [[-1.7e308, 0.0], [1.7e308, 1.0], [0.0, 2.0]]
    reduction = quick(kind, n_components=5).fit(X)
    assert np.isfinite(reduction.transform(X)).all()
    scaled = (reduction if kind == "rbm" else reduction.stack_).scale(np.array(X))
    assert_allclose(scaled, [[0, 0], [1, 0.5], [0.5, 1]])


WRONG = [
    ("pca", {"n_components": 0}, "`n_components` of `PrincipalComponents` must be a whole number"),
    ("rbm", {"n_components": 2.5}, "`n_components` of `BoltzmannStack` must be a whole number"),
    ("rbm", {"n_layers": 0}, "`n_layers` of `BoltzmannStack` must be a whole number at least 1"),
    ("rbm", {"momentum": 1.0}, "`momentum` of `BoltzmannStack` must be below 1; got 1.0"),
    ("rbm", {"hidden_sizes": 5}, "`hidden_sizes` of `BoltzmannStack` must be None or a sequence"),
    ("rbm", {"hidden_sizes": [4, 0]}, "`hidden_sizes` of `BoltzmannStack` must be a whole number"),
    ("rbm", {"n_epochs": -1}, "`n_epochs` of `BoltzmannStack` must be a whole number at least 0"),
    ("rbm", {"learning_rate": 0}, "`learning_rate` of `BoltzmannStack` must be a number above 0"),
    ("rbm", {"weight_decay": -1.0}, "`weight_decay` of `BoltzmannStack` must be a number at least"),
    ("uth", {"margin": 0.0}, "`margin` of `TripletHashing` must be a number above 0; got 0.0"),
    ("uth", {"n_neighbors": 0}, "`n_neighbors` of `TripletHashing` must be a whole number"),
    ("uth", {"held_out": 0.6}, "`held_out` of `TripletHashing` must be a number at least 0 and"),
    ("uth", {"hidden_sizes": "ab"}, "`hidden_sizes` of `TripletHashing` must be None or a"),
    ("uth", {"n_steps": 1.5}, "`n_steps` of `TripletHashing` must be a whole number at least 0"),
]


@pytest.mark.parametrize(("kind", "parameters", "message"), WRONG)
def test_a_parameter_out_of_range_is_named(kind, parameters, message) -> None:
    reduction = clone(make_reduction(kind, 4, 0)).set_params(**parameters)
    with pytest.raises(InputError, match=message) as caught:
        reduction.fit(world(20))
    assert str(caught.value).count(". ") == 0


# Principal components


@pytest.mark.parametrize("n", [30, 90])  # the decomposition of the rows and that of the covariance
def test_principal_components_are_those_of_scikit_learn(n) -> None:
    X, others = world(n), world(12, seed=4)
    ours = PrincipalComponents(5, random_state=0).fit(X)
    theirs = PCA(5, svd_solver="full").fit(X)
    expected = theirs.transform(others)
    found = ours.transform(others)
    signs = np.sign((found * expected).sum(axis=0))
    assert_allclose(found * signs, expected, rtol=1e-4, atol=1e-3)
    assert_allclose(ours.explained_variance_, theirs.explained_variance_, rtol=1e-8)


def test_large_matrices_are_decomposed_by_the_seeded_solver(monkeypatch) -> None:
    monkeypatch.setattr("polyseme.features.reductions.pca._EXACT_SIDE", 10)
    X = world(60)
    first, again = (PrincipalComponents(3, random_state=4).fit(X).components_ for _ in range(2))
    assert_array_equal(first, again)
    monkeypatch.undo()
    exact = PrincipalComponents(3, random_state=4).fit(X).components_
    assert_allclose(np.abs(first @ exact.T), np.eye(3), atol=1e-2)


@pytest.mark.parametrize("shape", [(4, 20), (50, 3)])
def test_more_components_than_there_are_warn_and_give_all(shape) -> None:
    X = world(*shape)
    reduction = PrincipalComponents(10)
    with pytest.warns(PolysemeWarning, match=r"is 10 but .* have \d component\(s\); keeping these"):
        reduction.fit(X)
    assert reduction.n_components_ == min(shape)
    gaps = squared_distances(*[reduction.transform(X)] * 2)
    assert_allclose(gaps, ((X[:, None] - X) ** 2).sum(axis=2), rtol=1e-3, atol=0.5)


# One machine


def test_the_contrastive_gradient_is_that_of_plain_loops() -> None:
    rng = np.random.default_rng(3)
    n, n_visible, n_hidden = 4, 3, 2
    machine = tiny_machine(n_visible, n_hidden)
    rows, draws = rng.random((n, n_visible)), rng.random((n, n_hidden))
    centre = rows.mean(axis=0)

    def on(total):
        return 1 / (1 + math.exp(-total))

    W, b, c = (part.tolist() for part in machine)
    weights = np.zeros((n_visible, n_hidden))
    to_visible, to_hidden = np.zeros(n_visible), np.zeros(n_hidden)
    for r in range(n):
        up, again, up_again = [], [], []
        for j in range(n_hidden):
            up.append(on(c[j] + sum(rows[r, i] * W[i][j] for i in range(n_visible))))
        state = [1.0 if draws[r, j] < up[j] else 0.0 for j in range(n_hidden)]
        for i in range(n_visible):
            again.append(on(b[i] + sum(state[j] * W[i][j] for j in range(n_hidden))))
        for j in range(n_hidden):
            up_again.append(on(c[j] + sum(again[i] * W[i][j] for i in range(n_visible))))
        for i in range(n_visible):
            to_visible[i] += (rows[r, i] - again[i]) / n
            for j in range(n_hidden):
                data = (rows[r, i] - centre[i]) * (up[j] - 0.5)
                model = (again[i] - centre[i]) * (up_again[j] - 0.5)
                weights[i, j] += (data - model) / n
        for j in range(n_hidden):
            to_hidden[j] += (up[j] - up_again[j]) / n
    for i in range(n_visible):
        to_visible[i] -= sum(weights[i, j] * 0.5 for j in range(n_hidden))
    for j in range(n_hidden):
        to_hidden[j] -= sum(weights[i, j] * centre[i] for i in range(n_visible))

    found = contrastive_gradient(rows, machine, centre, draws)
    assert_allclose(found.weights, weights, rtol=1e-10)
    assert_allclose(found.visible_bias, to_visible, rtol=1e-10)
    assert_allclose(found.hidden_bias, to_hidden, rtol=1e-10)


def all_states(n):
    """Every binary vector of a length."""
    return ((np.arange(2**n)[:, None] >> np.arange(n)) & 1).astype(float)


def test_the_free_energy_sums_over_all_hidden_states() -> None:
    machine = tiny_machine(4, 3)
    visible, hidden = all_states(4), all_states(3)
    energy = -(
        visible @ machine.weights @ hidden.T
        + (visible @ machine.visible_bias)[:, None]
        + hidden @ machine.hidden_bias
    )
    assert_allclose(free_energy(visible, machine), -np.log(np.exp(-energy).sum(axis=1)))


def test_training_raises_the_exact_likelihood_of_a_toy_distribution() -> None:
    # Two pairs of units that always agree: four of sixteen states, each as often.
    rows = np.tile(all_states(2)[:, [0, 0, 1, 1]], (50, 1)).astype(np.float32)

    def likelihood(n_epochs):
        schedule = Schedule(n_epochs, 20, 0.2, 0.9, 1e-4)
        machine = train_machine(rows, 4, schedule, np.random.default_rng(0))
        machine = Machine(*(part.astype(float) for part in machine))
        log_total = np.log(np.exp(-free_energy(all_states(4), machine)).sum())
        return float(np.mean(-free_energy(rows, machine) - log_total))

    found = [likelihood(n) for n in (0, 10, 60)]
    assert found[0] == pytest.approx(math.log(1 / 16), abs=0.01)
    assert found[0] + 0.1 < found[1] < found[2]
    assert math.log(1 / 4) - 0.35 < found[2] < math.log(1 / 4)  # the best there is


def test_training_lowers_the_reconstruction_error_and_parts_data_from_noise() -> None:
    X = world(200)
    rows = ((X - X.min(axis=0)) / np.ptp(X, axis=0)).astype(np.float32)
    learning, held = rows[:150], rows[150:]
    noise = np.random.default_rng(1).permuted(held, axis=0)
    errors, gaps = [], []
    for n_epochs in (0, 10, 100):
        schedule = Schedule(n_epochs, 16, 0.2, 0.9, 2e-4)
        machine = train_machine(learning, 12, schedule, np.random.default_rng(0))
        errors.append(reconstruction_error(held, machine))
        gaps.append(float(free_energy(noise, machine).mean() - free_energy(held, machine).mean()))
    assert errors[0] > 1.5 * errors[1] > 1.5 * 1.1 * errors[2]
    assert abs(gaps[0]) < 0.1 < gaps[1] < gaps[2]


# The stack


@pytest.mark.parametrize(
    ("n_features", "n_components", "n_layers", "expected"),
    [
        (4096, 512, 3, [2048, 1024, 512]),
        (1280, 512, 3, [943, 695, 512]),
        (10, 10, 3, [10, 10, 10]),
        (1, 8, 3, [2, 4, 8]),
        (8, 1, 3, [4, 2, 1]),
        (100, 7, 1, [7]),
    ],
)
def test_layers_shrink_in_equal_ratios(n_features, n_components, n_layers, expected) -> None:
    assert layer_sizes(n_features, n_components, n_layers) == expected


def test_given_sizes_replace_the_number_of_layers() -> None:
    stack = BoltzmannStack(3, hidden_sizes=(9, 5), n_layers=1, n_epochs=1, random_state=0)
    stack.fit(world())
    assert [weights.shape for weights, _ in stack.layers_] == [(20, 9), (9, 5), (5, 3)]
    restored = reduction_from_state(*stack.get_state())
    assert list(restored.hidden_sizes) == [9, 5]


def test_the_top_layer_gives_probabilities_of_the_scaled_columns() -> None:
    X = world(40)
    X[:, 3] = 5
    stack = BoltzmannStack(4, n_layers=1, n_epochs=2, random_state=0).fit(X)
    ((weights, bias),) = stack.layers_
    others = world(6, seed=2) * 1.5 - 4
    scaled = np.zeros_like(others)
    for j in range(20):
        low, high = X[:, j].min(), X[:, j].max()
        for i in range(6):
            if high > low:
                scaled[i, j] = min(max((others[i, j] - low) / (high - low), 0), 1)
    expected = 1 / (1 + np.exp(-(scaled @ weights.astype(float) + bias)))
    assert_allclose(stack.transform(others), expected, atol=1e-5)
    assert scaled.min() == 0 and scaled.max() == 1


def test_the_units_of_a_stack_neither_saturate_nor_fall_silent() -> None:
    X = world(300) ** 2
    X[:, ::2] *= np.random.default_rng(0).random((300, 10)) < 0.1  # mostly zero
    stack = BoltzmannStack(8, random_state=0).fit(X)
    for layer in stack.diagnostics_:
        assert 0.3 < layer["mean_activation"] < 0.7
        assert layer["saturated"] < 0.4
    assert stack.transform(X).std(axis=0).min() > 0.02
    found = stack.transform(X)
    near = float(np.mean((found < 0.02) | (found > 0.98)))
    assert stack.diagnostics_[-1]["saturated"] == pytest.approx(near, abs=1e-3)


def test_few_rows_get_more_epochs_than_many() -> None:
    stack = BoltzmannStack()
    assert [stack._schedule(n).n_epochs for n in (1, 320, 3200, 10**6)] == [800, 80, 8, 3]


# Triplets


@given(st.integers(2, 30), st.integers(1, 5), st.integers(0, 100))
@settings(deadline=None, max_examples=25)
def test_the_nearest_rows_are_the_nearest(n, n_features, seed) -> None:
    rows = np.random.default_rng(seed).random((n, n_features), dtype=np.float32)
    k = min(3, n - 1)
    found = nearest_rows(rows, k)
    gaps = ((rows[:, None] - rows) ** 2).sum(axis=2)
    for i in range(n):
        assert i not in found[i]
        expected = sorted(gaps[i, j] for j in range(n) if j != i)[:k]
        assert_allclose(sorted(gaps[i, found[i]]), expected, atol=1e-5)


def test_neighbours_do_not_depend_on_the_blocks(monkeypatch) -> None:
    rows = world(50).astype(np.float32)
    whole = np.sort(nearest_rows(rows, 4), axis=1)
    monkeypatch.setattr("polyseme.features.reductions.neighbours._BLOCK_ROWS", 7)
    assert_array_equal(np.sort(nearest_rows(rows, 4), axis=1), whole)


def test_a_batch_holds_anchors_a_neighbour_of_each_and_farther_rows() -> None:
    rows = world(60).astype(np.float32)
    neighbours = nearest_rows(rows, 5)
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


def test_equal_rows_are_never_taken_as_farther() -> None:
    rows = np.tile(np.random.default_rng(0).random((1, 40), dtype=np.float32), (6, 1))
    rows[4:] += 1
    triplets = make_triplets(rows, np.array([1, 0, 0]))
    assert_array_equal(triplets.farther, [[False] * 4 + [True] * 2] * 3)


def test_the_triplet_loss_is_that_of_plain_loops() -> None:
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    triplets = make_triplets(rng.random((7, 3), dtype=np.float32), np.array([4, 5, 6, 0]))
    outputs = rng.random((7, 2))
    losses, kept = [], []
    for anchor, near in enumerate(triplets.near):
        for far in range(7):
            if triplets.farther[anchor, far]:
                gap = ((outputs[anchor] - outputs[near]) ** 2).sum()
                gap -= ((outputs[anchor] - outputs[far]) ** 2).sum()
                losses.append(max(0.0, 0.2 + gap))
                kept.append(gap < 0)
    assert 0 < sum(kept) < len(kept)
    found = triplet_loss(torch.from_numpy(outputs), triplets, 0.2)
    assert float(found) == pytest.approx(np.mean(losses))
    assert kept_order(outputs.astype(np.float32), triplets) == pytest.approx(np.mean(kept))


def sheet(n, seed):
    """Rows on a curved sheet of ten dimensions among a hundred columns, mostly zero."""
    mixing = np.random.default_rng(99).normal(size=(10, 100))
    return np.maximum(np.random.default_rng(seed).normal(size=(n, 10)) @ mixing - 2, 0)


def test_fine_tuning_keeps_the_order_of_held_out_triplets_better() -> None:
    lost_before, lost_after = [], []
    for seed in range(2):
        X, others = sheet(400, seed), sheet(100, 100 + seed)
        hashing = TripletHashing(32, random_state=seed).fit(X)
        plain = BoltzmannStack(32, random_state=seed).fit(X)
        rows = plain.scale(others)
        triplets = make_triplets(rows, nearest_rows(rows, 3)[:, 1])
        lost_before.append(1 - kept_order(plain.transform(others), triplets))
        lost_after.append(1 - kept_order(hashing.transform(others), triplets))
        assert hashing.losses_[0] > min(hashing.losses_)
        assert 0 < hashing.n_steps_ <= 300
    assert np.mean(lost_after) < 0.9 * np.mean(lost_before)


def test_without_steps_the_stack_is_as_it_was_pre_trained() -> None:
    X = world()
    plain = TripletHashing(5, n_steps=0, random_state=3).fit(X)
    stack = BoltzmannStack(5, random_state=3).fit(X)
    assert_array_equal(plain.transform(X), stack.transform(X))


def test_fine_tuning_that_only_harms_is_taken_back() -> None:
    X = world()
    hashing = TripletHashing(5, learning_rate=1e3, n_steps=60, random_state=3).fit(X)
    assert hashing.n_steps_ == 0
    assert_array_equal(hashing.transform(X), BoltzmannStack(5, random_state=3).fit(X).transform(X))


def test_fine_tuning_stops_when_patience_is_out() -> None:
    hashing = TripletHashing(5, learning_rate=1e3, patience=2, n_steps=500, random_state=3)
    assert len(hashing.fit(world()).losses_) == 3


def test_no_held_out_row_is_learned_from(monkeypatch) -> None:
    drawn = []

    def spy(rows, anchors, neighbours, generator):
        drawn.append(draw_triplets(rows, anchors, neighbours, generator))
        return drawn[-1]

    monkeypatch.setattr("polyseme.features.reductions.tuning.draw_triplets", spy)
    TripletHashing(3, n_steps=30, n_layers=1, held_out=0.2, random_state=0).fit(world(100))
    check, *batches = drawn
    held = {row.tobytes() for row in check.rows[:20]}
    assert len(check.near) == len(held) == 20
    learned = {row.tobytes() for batch in batches for row in batch.rows}
    assert len(batches) == 30
    assert not held & learned
    assert len(learned) == 80


@pytest.mark.parametrize("X", [[[0.0, 1.0], [1.0, 0.0]], [[2.0, 3.0]] * 12])
def test_rows_without_triplets_warn_and_keep_the_stack(X) -> None:
    with pytest.warns(PolysemeWarning, match="no row that is farther .* as it was pre-trained"):
        hashing = TripletHashing(3, random_state=0).fit(X)
    assert hashing.losses_ == []
    assert_array_equal(hashing.transform(X), hashing.stack_.transform(X))


def test_of_many_rows_some_are_drawn_for_fine_tuning(monkeypatch) -> None:
    seen = []
    module = "polyseme.features.reductions.tuning.nearest_rows"
    monkeypatch.setattr(
        module, lambda rows, *rest: seen.append(len(rows)) or nearest_rows(rows, *rest)
    )
    monkeypatch.setattr("polyseme.features.reductions.triplets._MOST_ROWS", 50)
    TripletHashing(3, n_steps=1, held_out=0.4, random_state=0).fit(world(200))
    assert sorted(seen) == [30, 50]
