"""Steps laid out together or alone, multiplied by oneDNN or without it: always the same steps."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import polyseme.published.nn.runners
import polyseme.published.nn.steps
from polyseme.published.nn.runners import LOOK_EVERY
from test_steps import BATCHES, assert_same, by_hand, by_tape, documents, drawn_batch, trainer


def test_batches_laid_out_together_are_those_laid_out_alone():
    tested = trainer(documents()[1:], dtype=torch.float32)
    batches = list(tested.sampler.epoch(np.random.default_rng(4)))[:-1]
    settings = {"share": 0.1, "siamese": True}
    stager = tested.runner.stager
    assert len({stager.most([batch]) for batch in batches}) > 1
    together = stager.several(batches, **settings)
    for batch, found in zip(batches, together, strict=True):
        expected = stager.one(batch, **settings)
        assert len(found.places) == stager.most([batch])
        for name, part in expected._asdict().items():
            np.testing.assert_array_equal(getattr(found, name), part, err_msg=name)


@pytest.mark.parametrize("most", [0, 2**20])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_run_takes_the_steps_that_would_be_taken_one_by_one(most, dtype, monkeypatch):
    monkeypatch.setattr(polyseme.published.nn.runners, "_MOST_PLACES", most)
    together, alone = trainer(dtype=dtype), trainer(dtype=dtype)
    # Of several sizes: the last of an epoch, and those that hold the document with every label.
    batches = 3 * list(together.sampler.epoch(np.random.default_rng(4)))
    assert len({len(batch.label_ids) for batch in batches}) > 1
    losses, n_pairs = together.runner.run(iter(batches), together.optimizer, siamese=True)
    totals, n_looked = torch.zeros(2, dtype=torch.float64), 0
    for number, batch in enumerate(batches):
        look = number % LOOK_EVERY == 0
        values = alone.runner.step(batch, alone.optimizer, siamese=True, look=look)
        if values is not None:
            totals += values
            n_looked += len(batch.label_ids) // 2
    assert n_pairs == n_looked
    # Not to the last bit: products depend on where in memory their factors begin.
    tolerance = 1e-5 if dtype == torch.float32 else 1e-10
    np.testing.assert_allclose(losses, totals, rtol=tolerance)
    np.testing.assert_allclose(together.weights, alone.weights, atol=tolerance)


def test_runs_from_one_seed_are_the_same_to_the_last_bit():
    ended = []
    for _ in range(2):
        tested = trainer(dtype=torch.float32, max_epochs=2, min_steps=20)
        tested.run()
        ended.append(tested.weights.clone())
    assert torch.equal(*ended)


# --- products by oneDNN, and without it -------------------------------------------------------


@pytest.mark.parametrize(("name", "value"), [("_FUSED", None), ("_MOST_NEW", 0)])
@pytest.mark.parametrize("look", [True, False])
def test_every_way_to_multiply_has_the_gradient_of_the_tape(name, value, look, monkeypatch):
    tested = trainer(dtype=torch.float32)
    batch = drawn_batch(tested)
    expected = by_tape(tested, batch)[0]
    given = tested.runner.stager.one(batch, share=2.0 / len(batch.label_ids), siamese=True)
    for _ in range(2):
        values = tested.gradient.compute(given, look=look)
        assert (values is not None) == look
        assert_same(tested.gradient.weights.views, expected, 1e-5)
        monkeypatch.setattr(polyseme.published.nn.steps, name, value)


@pytest.mark.parametrize("hidden", [(1,), (1, 1), (7, 1), (1, 33)])
@pytest.mark.parametrize("name", BATCHES)
def test_narrow_layers_have_the_gradient_of_the_tape(name, hidden):
    single, double = trainer(hidden=hidden, dtype=torch.float32), trainer(hidden=hidden)
    double.weights.copy_(single.weights)
    # Sides that coincide but for rounding have no way apart that single precision could tell.
    siamese = name != "both sides the same"
    found = by_hand(single, BATCHES[name], siamese=siamese)[0]
    assert_same(found, by_tape(double, BATCHES[name], siamese=siamese)[0], 2e-4)


@pytest.mark.parametrize("precision", ["single", "mixed"])
@pytest.mark.parametrize("look", [True, False])
def test_biases_as_columns_have_the_same_gradient(precision, look, monkeypatch):
    monkeypatch.setattr(polyseme.published.nn.steps, "_FUSED", None)
    found = []
    for widens in (False, True):
        monkeypatch.setattr(polyseme.published.nn.steps, "_widens", lambda values, w=widens: w)
        tested = trainer(dtype=torch.float32, precision=precision)
        batch = drawn_batch(tested)
        given = tested.runner.stager.one(batch, share=2.0 / len(batch.label_ids), siamese=True)
        for _ in range(2):  # what the first step leaves in its tables must not show
            values = tested.gradient.compute(given, look=look)
        views = {name: part.clone() for name, part in tested.gradient.weights.views.items()}
        found.append((values, views))
    (plain_values, plain), (wide_values, wide) = found
    single = precision == "single"
    assert_same(wide, plain, 1e-5 if single else 2e-2)
    if look:
        np.testing.assert_allclose(wide_values, plain_values, rtol=1e-5 if single else 1e-2)


def test_an_operator_that_is_missing_or_does_something_else_is_not_used(monkeypatch):
    class Other:
        @staticmethod
        def _linear_pointwise(values, weight, bias, *rest):
            return values @ weight.t()

    class Strict:
        @staticmethod
        def _linear_pointwise(values, weight):
            return values @ weight.t()

    for found in (object(), Other, Strict):
        monkeypatch.setattr(torch.ops, "mkldnn", found)
        assert polyseme.published.nn.steps._fused_product() is None
