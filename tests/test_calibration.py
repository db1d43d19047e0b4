"""Calibration: intercepts, thresholds and frequencies, each against a plain loop."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from polyseme.calibration import (
    PRECISIONS,
    calibrate,
    expected_frequencies,
    logit,
    match_frequencies,
    new_label_frequencies,
    precision_thresholds,
    sigmoid,
)


def test_logits_and_probabilities_are_each_others_inverse_and_never_infinite():
    given_ = np.array([0.001, 0.2, 0.5, 0.999])
    assert_allclose(sigmoid(logit(given_)), given_)
    assert_allclose(logit(given_), [np.log(p / (1 - p)) for p in given_])
    ends = logit(np.array([0.0, 1.0]))
    assert_allclose(sigmoid(ends), [1e-6, 1 - 1e-6], rtol=1e-6)
    assert sigmoid(np.array([-800.0, 800.0])).tolist() == [0.0, 1.0]


@pytest.mark.parametrize("seed", range(3))
def test_intercepts_bring_mean_probabilities_to_frequencies(seed):
    rng = np.random.default_rng(seed)
    logits = 3 * rng.normal(size=(50, 5))
    weights = rng.random(50)
    frequencies = np.array([1e-5, 0.01, 0.3, 0.5, 0.9])
    found = match_frequencies(logits, weights, frequencies)
    for label in range(5):
        mean = total = 0.0
        for row in range(50):
            mean += weights[row] / (1 + np.exp(-logits[row, label] - found[label]))
            total += weights[row]
        assert mean / total == pytest.approx(frequencies[label], rel=1e-6)


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
    rng = np.random.default_rng(seed)
    n = rng.integers(1, 300)
    spreads = 10 ** rng.uniform(-1, 1, size=30)
    middles = rng.uniform(-10, 10, size=30)
    logits = rng.normal(size=(n, 30)) * spreads + middles
    weights = rng.random(n) + 0.1
    frequencies = 10 ** rng.uniform(-6, -0.01, size=30)
    frequencies[:2] = 1e-6, 1 - 1e-6
    found = match_frequencies(logits, weights, frequencies)
    wanted = intercepts_by_bisection(logits, weights, frequencies)
    assert_allclose(found, wanted, rtol=0, atol=1e-9)


def test_intercepts_stay_within_bounds_whatever_is_asked():
    logits = np.array([[40.0, 0.0], [-800.0, 0.0], [900.0, 0.0]])
    weights = np.ones(3)
    for frequency, wanted in ((0.0, [-20, -20]), (1.0, [20, 20])):
        found = match_frequencies(logits, weights, np.full(2, frequency))
        assert_allclose(found, wanted)
    split = np.repeat([[-10.0], [10.0]], 5, axis=0)  # half of it is on either side, far away
    found = match_frequencies(split, np.ones(10), np.array([0.3]))
    assert_allclose(found, intercepts_by_bisection(split, np.ones(10), [0.3]), atol=1e-9)


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


@pytest.mark.parametrize("seed", range(4))
def test_thresholds_are_those_found_by_trial(seed):
    rng = np.random.default_rng(seed)
    probabilities = rng.random((25, 3)).round(1)  # ten labels or so for every probability
    truth = (rng.random((25, 3)) < probabilities).astype(float)
    weights = rng.random(25)
    found = precision_thresholds(probabilities, truth, weights)
    assert found.tolist() == [
        threshold_by_trial(probabilities, truth, weights, goal) for goal in PRECISIONS
    ]
    assert len(set(found)) > 3
    assert (np.diff(found) >= 0).all()
    assert (precision_thresholds(probabilities, np.zeros((25, 3)), weights) == 1).all()
    # Where few labels are true, the likeliest are looked at alone.
    rare = truth * (np.arange(75).reshape(25, 3) == 4)
    found = precision_thresholds(probabilities**20, rare, np.ones(25))
    assert found.tolist() == [
        threshold_by_trial(probabilities**20, rare, np.ones(25), goal) for goal in PRECISIONS
    ]


def test_a_precision_that_is_met_exactly_is_met():
    found = precision_thresholds(np.array([[0.9], [0.4]]), np.array([[1.0], [0.0]]), np.ones(2))
    assert_array_equal(found, np.where(PRECISIONS <= 0.5, 0.4, 0.9))


def test_calibration_promises_what_it_says():
    rng = np.random.default_rng(0)
    logits = 2 * rng.normal(size=(400, 5))
    weights = rng.random(400)
    truth = (rng.random((400, 3)) < sigmoid(logits[:, :3])).astype(float)
    frequencies = np.array([0.2, 0.3, 0.2, 0.1, 0.4])
    calibration = calibrate(logits, truth, weights, frequencies)
    found = sigmoid(logits + calibration.intercepts)
    assert_allclose(weights @ found / weights.sum(), frequencies, atol=1e-9)
    assert calibration.slopes.tolist() == [1] * 5
    wanted = precision_thresholds(found[:, :3], truth, weights)
    assert_array_equal(calibration.thresholds, wanted)
    alone = calibrate(np.zeros((4, 1)), np.eye(4)[:, :1], np.ones(4), np.array([0.25]))
    assert_allclose(alone.thresholds[:24], 0.25)
    assert (alone.thresholds[25:] == 1).all()


def test_frequencies_are_documents_where_those_are_the_items_own():
    priors = np.array([0.2, 0.6])
    here = np.array([0.75, 0.05])
    assert expected_frequencies(priors, here, 300, 0.0).tolist() == priors.tolist()
    assert_allclose(expected_frequencies(priors, here, 3000, 1.0), here, atol=1e-3)
    found = expected_frequencies(priors, here, 3, 1.0)
    assert_allclose(found, (3 * here + 0.5 * priors) / 3.5)
    half = expected_frequencies(priors, here, 3, 0.5)
    assert_allclose(half, (priors + found) / 2)
    certain = expected_frequencies(np.array([0.0, 1.0]), np.array([0.0, 1.0]), 3, 0.5)
    assert ((certain > 0) & (certain < 1)).all()


@given(
    st.lists(st.integers(0, 50), min_size=1, max_size=4),
    st.integers(0, 500),
    st.integers(0, 2000),
    st.floats(1e-5, 0.5),
)
def test_frequencies_of_new_labels_follow_the_formula(counts, holding, added, typical):
    found = new_label_frequencies(np.array(counts, dtype=float), holding, added, typical)
    could = max(added, holding)
    picked = 1.0 if could == holding and could else holding / max(could, 1)
    for count, frequency in zip(counts, found, strict=True):
        wanted = picked * typical + (1 - picked) * (count + 400 * typical) / (could + 400)
        assert frequency == pytest.approx(wanted)
        if count <= could:
            assert 0 < frequency < 1
