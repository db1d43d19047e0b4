from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn import metrics

from polyseme._validation import InputError
from polyseme.metrics import expected_calibration_error, log_loss, reliability


def world(seed, n=40, n_labels=7):
    rng = np.random.default_rng(seed)
    given = rng.random((n, n_labels)) ** 3
    given[0, :3] = 0.0, 0.2, 1.0
    return rng.random(given.shape) < given, given


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("n_bins", [1, 5, 15])
def test_the_curve_is_what_a_plain_loop_finds(seed, n_bins):
    truth, given = world(seed)
    bins = [[] for _ in range(n_bins)]
    for held, p in zip(truth.ravel(), given.ravel(), strict=True):
        place = sum(p >= (border + 1) / n_bins for border in range(n_bins - 1))
        bins[place].append((bool(held), p))
    found = reliability(truth, given, n_bins=n_bins)
    error = 0.0
    for place, entries in enumerate(bins):
        assert found.counts[place] == len(entries)
        if not entries:
            assert np.isnan(found.predicted[place]) and np.isnan(found.observed[place])
            continue
        observed, predicted = np.mean(entries, axis=0)
        assert found.observed[place] == pytest.approx(observed)
        assert found.predicted[place] == pytest.approx(predicted)
        error += len(entries) / truth.size * abs(observed - predicted)
    assert expected_calibration_error(truth, given, n_bins=n_bins) == pytest.approx(error)


def test_probabilities_that_tell_the_truth_have_next_to_no_error_and_others_have():
    rng = np.random.default_rng(0)
    given = rng.random((4000, 20))
    truth = rng.random(given.shape) < given
    assert expected_calibration_error(truth, given) < 0.01
    assert expected_calibration_error(truth, given**2) > 0.1


@pytest.mark.parametrize("seed", range(3))
def test_log_loss_is_the_sum_of_scikit_learns_over_labels(seed):
    truth, given = world(seed)
    given = np.clip(given, 0.01, 0.99)
    each = [
        metrics.log_loss(truth[:, label], given[:, label], labels=[False, True])
        for label in range(truth.shape[1])
    ]
    assert log_loss(truth, given) == pytest.approx(sum(each))
    assert log_loss(sp.csr_matrix(truth), given) == pytest.approx(sum(each))


def test_certainty_that_is_wrong_costs_much_but_not_infinitely():
    assert 20 < log_loss([[1]], [[0.0]]) < 40
    assert log_loss([[1, 0]], [[1.0, 0.0]]) == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize("measure", [reliability, expected_calibration_error, log_loss])
@pytest.mark.parametrize("wrong", [-0.1, 1.5])
def test_what_is_no_probability_is_refused(measure, wrong):
    with pytest.raises(InputError, match="between 0 and 1"):
        measure([[1, 0]], [[0.5, wrong]])


def test_bins_are_counted():
    with pytest.raises(InputError, match="n_bins"):
        reliability([[1]], [[0.5]], n_bins=0)
