"""The plan of a training: its sizes follow the data."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from polyseme import ConceptSpace, SpacePlan


@pytest.mark.parametrize(
    ("n_documents", "hidden", "batch"),
    [(499, 128, 96), (500, 256, 96), (38_400, 256, 96), (38_401, 256, 192), (10**8, 256, 3072)],
)
def test_units_and_batches_follow_the_number_of_documents(n_documents, hidden, batch):
    plan = SpacePlan().sized(n_documents)
    assert plan.hidden == hidden
    assert plan.code == hidden
    factor = batch // 96
    assert plan.document_batch == batch
    assert plan.item_batch == 64 * factor
    assert plan.probable_batch == 32 * factor


@pytest.mark.parametrize(("n_documents", "folds", "factor"), [(20_000, 5, 1), (20_001, 3, 1.5)])
def test_with_many_documents_there_are_fewer_members_with_higher_rates(n_documents, folds, factor):
    plan = SpacePlan().sized(n_documents)
    assert plan.n_folds == folds
    factors = np.divide(plan.learning_rates, SpacePlan().learning_rates)
    assert factors == pytest.approx(np.full(3, factor))


def test_a_shortened_plan_has_fewer_steps_at_higher_rates():
    plan = SpacePlan(n_steps=400, round_steps=100)
    short = plan.shortened(100)
    assert short.n_steps == 100
    assert short.round_steps == 25
    factors = np.divide(short.learning_rates, plan.learning_rates)
    expected = np.full(3, 4**0.375)
    assert factors == pytest.approx(expected)
    assert plan.shortened(400) == plan
    assert plan.shortened(1000) == plan


@pytest.mark.parametrize(
    ("n_items", "shares"), [(7999, (1, 1, 1, 1)), (8000, (1 / 3, 0.5, 1, 3 / 7))]
)
def test_many_tagged_items_are_trained_with_less_dropout(n_items, shares):
    plan = SpacePlan()
    expected = np.multiply(shares, plan.dropout)
    sized = plan.sized(10_000, n_items)
    assert sized.dropout == pytest.approx(expected)
    planned = ConceptSpace().planned(10_000, n_items)
    assert planned.dropout == pytest.approx(expected)


@given(st.integers(1, 10**8), st.integers(0, 10**7), st.integers(1, 5000))
def test_a_sized_plan_goes_over_documents_3_to_100_times(n_documents, n_items, n_steps):
    sized = SpacePlan(n_steps=n_steps).sized(n_documents)
    plan = sized.within(n_documents, n_items)
    one_pass = max(n_documents / plan.document_batch, 1)
    least_passes = 3 if n_documents > 20_000 else 3.5
    least = least_passes * one_pass
    most = 100 * one_pass
    assert plan.n_steps in (n_steps, int(least), int(most))
    if n_documents >= SpacePlan().document_batch:
        assert least - 1 <= plan.n_steps <= most
    assert 1 <= plan.document_batch <= n_documents
    assert 1 <= plan.probable_batch <= plan.item_batch
    assert plan.item_batch <= max(n_items, 1)
    assert plan.n_rounds >= min(4, plan.n_steps)
    expected = -(-plan.n_steps // plan.round_steps)
    assert plan.n_rounds == expected


def test_rates_rise_over_a_tenth_of_the_steps_and_fall_by_half_a_cosine():
    plan = SpacePlan(n_steps=100)
    factors = [plan.rate_factor(number) for number in range(100)]
    changes = np.diff(factors)
    assert (changes[:9] > 0).all()
    assert (changes[9:] < 0).all()
    assert factors[0] == pytest.approx(0.1)
    assert factors[50] == pytest.approx(0.5)
    assert 0 < factors[99] < 0.001
    short = SpacePlan(n_steps=1)
    assert short.rate_factor(0) == 1
