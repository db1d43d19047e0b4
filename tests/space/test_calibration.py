"""Calibration: intercepts, thresholds and frequencies, each against a plain loop."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from polyseme.space.calibration import (
    PRECISIONS,
    calibrate,
    expected_frequencies,
    logit,
    match_frequencies,
    new_label_frequencies,
    precision_thresholds,
    sigmoid,
)


def test_logits_and_probabilities_are_each_others_inverse():
    probabilities = np.array([0.001, 0.2, 0.5, 0.999])
    logits = logit(probabilities)
    odds = probabilities / (1 - probabilities)
    assert_allclose(logits, np.log(odds))
    assert_allclose(sigmoid(logits), probabilities)


def test_logits_are_never_infinite():
    logits = logit(np.array([0.0, 1.0]))
    assert_allclose(sigmoid(logits), [1e-6, 1 - 1e-6], rtol=1e-6)
    probabilities = sigmoid(np.array([-800.0, 800.0]))
    assert probabilities.tolist() == [0.0, 1.0]


@pytest.mark.parametrize("seed", range(3))
def test_intercepts_bring_mean_probabilities_to_frequencies(seed):
    generator = np.random.default_rng(seed)
    logits = 3 * generator.normal(size=(50, 5))
    weights = generator.random(50)
    frequencies = np.array([1e-5, 0.01, 0.3, 0.5, 0.9])
    intercepts = match_frequencies(logits, weights, frequencies)
    probabilities = 1 / (1 + np.exp(-logits - intercepts))
    means = weights @ probabilities / weights.sum()
    assert_allclose(means, frequencies, rtol=1e-6)


def intercepts_by_bisection(logits, weights, frequencies):
    """Halve the way between bounds until nothing is left of it."""
    shares = weights / weights.sum()
    low = np.full(logits.shape[1], -20.0)
    high = np.full(logits.shape[1], 20.0)
    for _ in range(50):
        middle = 0.5 * (low + high)
        below = shares @ sigmoid(logits + middle) < frequencies
        low = np.where(below, middle, low)
        high = np.where(below, high, middle)
    return 0.5 * (low + high)


@pytest.mark.parametrize("seed", range(10))
def test_intercepts_are_those_of_bisection(seed):
    generator = np.random.default_rng(seed)
    n = generator.integers(1, 300)
    spreads = 10 ** generator.uniform(-1, 1, size=30)
    middles = generator.uniform(-10, 10, size=30)
    noise = generator.normal(size=(n, 30))
    logits = noise * spreads + middles
    weights = generator.random(n) + 0.1
    frequencies = 10 ** generator.uniform(-6, -0.01, size=30)
    frequencies[:2] = 1e-6, 1 - 1e-6
    intercepts = match_frequencies(logits, weights, frequencies)
    expected = intercepts_by_bisection(logits, weights, frequencies)
    assert_allclose(intercepts, expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize(("frequency", "intercept"), [(0.0, -20), (1.0, 20)])
def test_intercepts_stay_within_bounds(frequency, intercept):
    logits = np.array([[40.0, 0.0], [-800.0, 0.0], [900.0, 0.0]])
    frequencies = np.full(2, frequency)
    intercepts = match_frequencies(logits, np.ones(3), frequencies)
    assert_allclose(intercepts, [intercept] * 2)


def test_intercepts_of_logits_that_are_far_apart_are_those_of_bisection():
    logits = np.repeat([[-10.0], [10.0]], 5, axis=0)
    weights = np.ones(10)
    intercepts = match_frequencies(logits, weights, np.array([0.3]))
    expected = intercepts_by_bisection(logits, weights, [0.3])
    assert_allclose(intercepts, expected, atol=1e-9)


def threshold_by_trial(probabilities, truth, weights, goal):
    """Try every probability that occurs as a threshold and keep the smallest that serves."""
    n, n_labels = probabilities.shape
    for threshold in sorted(set(probabilities.ravel())):
        given_ = right = 0.0
        for row in range(n):
            for label in range(n_labels):
                if probabilities[row, label] >= threshold:
                    given_ += weights[row]
                    right += weights[row] * truth[row, label]
        if given_ and right / given_ >= goal:
            return threshold
    return 1.0


def thresholds_by_trial(probabilities, truth, weights):
    return [threshold_by_trial(probabilities, truth, weights, goal) for goal in PRECISIONS]


@pytest.fixture
def labelled(seed):
    """Probabilities with ten labels or so for every value, their truth and weights."""
    generator = np.random.default_rng(seed)
    probabilities = generator.random((25, 3)).round(1)
    truth = (generator.random((25, 3)) < probabilities).astype(float)
    return probabilities, truth, generator.random(25)


@pytest.mark.parametrize("seed", range(4))
def test_thresholds_are_those_found_by_trial(labelled):
    thresholds = precision_thresholds(*labelled)
    assert thresholds.tolist() == thresholds_by_trial(*labelled)
    assert len(set(thresholds)) > 3
    assert (np.diff(thresholds) >= 0).all()


@pytest.mark.parametrize("seed", range(4))
def test_without_true_labels_every_threshold_is_one(labelled):
    probabilities, truth, weights = labelled
    nothing_true = np.zeros_like(truth)
    thresholds = precision_thresholds(probabilities, nothing_true, weights)
    assert (thresholds == 1).all()


@pytest.mark.parametrize("seed", range(4))
def test_where_few_labels_are_true_the_likeliest_are_looked_at_alone(labelled):
    probabilities, truth, _ = labelled
    small = probabilities**20
    rare = np.zeros_like(truth)
    rare[1, 1] = truth[1, 1]
    weights = np.ones(25)
    thresholds = precision_thresholds(small, rare, weights)
    expected_thresholds = thresholds_by_trial(small, rare, weights)
    assert thresholds.tolist() == expected_thresholds


def test_a_precision_that_is_met_exactly_is_met():
    probabilities = np.array([[0.9], [0.4]])
    truth = np.array([[1.0], [0.0]])
    thresholds = precision_thresholds(probabilities, truth, np.ones(2))
    expected = np.where(PRECISIONS <= 0.5, 0.4, 0.9)
    assert_array_equal(thresholds, expected)


def test_calibrated_probabilities_have_the_wanted_frequencies_and_thresholds():
    generator = np.random.default_rng(0)
    logits = 2 * generator.normal(size=(400, 5))
    weights = generator.random(400)
    true_probabilities = sigmoid(logits[:, :3])
    truth = (generator.random((400, 3)) < true_probabilities).astype(float)
    frequencies = np.array([0.2, 0.3, 0.2, 0.1, 0.4])
    calibration = calibrate(logits, truth, weights, frequencies)
    assert calibration.slopes.tolist() == [1] * 5
    probabilities = sigmoid(logits + calibration.intercepts)
    means = weights @ probabilities / weights.sum()
    assert_allclose(means, frequencies, atol=1e-9)
    expected = precision_thresholds(probabilities[:, :3], truth, weights)
    assert_array_equal(calibration.thresholds, expected)


def test_thresholds_of_equal_logits_are_the_frequency():
    truth = np.array([[1.0], [0.0], [0.0], [0.0]])
    calibration = calibrate(
        np.zeros((4, 1)),
        truth,
        np.ones(4),
        np.array([0.25]),
    )
    assert_allclose(calibration.thresholds[:24], 0.25)
    assert (calibration.thresholds[25:] == 1).all()


def test_frequencies_are_documents_where_those_are_the_items_own():
    priors = np.array([0.2, 0.6])
    of_items = np.array([0.75, 0.05])
    without_items = expected_frequencies(priors, of_items, 300, 0.0)
    assert without_items.tolist() == priors.tolist()
    of_many_items = expected_frequencies(priors, of_items, 3000, 1.0)
    assert_allclose(of_many_items, of_items, atol=1e-3)
    of_few_items = expected_frequencies(priors, of_items, 3, 1.0)
    expected = (3 * of_items + 0.5 * priors) / 3.5
    assert_allclose(of_few_items, expected)
    of_both = expected_frequencies(priors, of_items, 3, 0.5)
    assert_allclose(of_both, (priors + of_few_items) / 2)


def test_no_frequency_is_certain():
    certain = np.array([0.0, 1.0])
    frequencies = expected_frequencies(certain, certain, 3, 0.5)
    assert (frequencies > 0).all()
    assert (frequencies < 1).all()


@given(
    st.lists(st.integers(0, 50), min_size=1, max_size=4),
    st.integers(0, 500),
    st.integers(0, 2000),
    st.floats(1e-5, 0.5),
)
def test_frequencies_of_new_labels_follow_the_formula(counts, holding, added, typical):
    frequencies = new_label_frequencies(np.array(counts, dtype=float), holding, added, typical)
    n_possible = max(added, holding)
    share = holding / max(n_possible, 1)
    if n_possible == holding and n_possible:
        share = 1.0
    for count, frequency in zip(counts, frequencies, strict=True):
        shrunk = (count + 400 * typical) / (n_possible + 400)
        expected = share * typical + (1 - share) * shrunk
        assert frequency == pytest.approx(expected)
        if count <= n_possible:
            assert 0 < frequency < 1
