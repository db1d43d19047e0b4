from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from polyseme import metrics
from polyseme._validation import InputError, PolysemeWarning


def double_loop(points, power):
    distances = [
        math.dist(one, other) ** power for one, other in itertools.product(points, repeat=2)
    ]
    return sum(distances) / len(points) ** 2


@pytest.mark.parametrize("offset", [0.0, 1e6])
def test_scattering_equals_the_double_loop_also_far_from_the_origin(offset):
    points = np.random.default_rng(0).normal(size=(40, 5)) + offset
    result = metrics.scattering(points)
    assert list(result) == ["s_mean", "s_squared"]
    assert result["s_mean"] == pytest.approx(double_loop(points, 1), rel=1e-9)
    assert result["s_squared"] == pytest.approx(double_loop(points, 2), rel=1e-9)


def test_scattering_of_several_blocks_equals_direct_distances():
    points = np.random.default_rng(1).normal(size=(4000, 2))  # 128 MB of pairs: three blocks
    total = sum(np.linalg.norm(points - point, axis=1).sum() for point in points)
    assert metrics.scattering(points)["s_mean"] == pytest.approx(total / 4000**2, rel=1e-9)


def test_sampled_scattering_is_repeatable_and_unbiased():
    points = np.array([[0.0], [1.0], [5.0]])
    exact = metrics.scattering(points)
    drawn = {}
    for seed in range(30):
        sampled = metrics.scattering(points, max_points=2, random_state=seed)
        assert sampled == metrics.scattering(points, max_points=2, random_state=seed)
        assert sampled["s_squared"] == exact["s_squared"]
        drawn[round(sampled["s_mean"], 9)] = sampled["s_mean"]
    assert sorted(drawn) == pytest.approx([1 * 2 / 3, 4 * 2 / 3, 5 * 2 / 3])
    assert np.mean(list(drawn.values())) == pytest.approx(exact["s_mean"])
    assert metrics.scattering(points, max_points=3) == exact


def test_one_point_does_not_scatter():
    assert metrics.scattering([[3.0, 4.0]]) == {"s_mean": 0.0, "s_squared": 0.0}


def test_regression_error_and_its_two_scales_by_hand():
    predicted, targets = [[3.0, 4.0], [0.0, 0.0]], [[0.0, 0.0], [0.0, 1.0]]
    assert metrics.regression_error(predicted, targets) == {"error": 3.0}
    points = [[0.0, 0.0], [4.0, 0.0]]  # two of four pairs are 4 apart: s_squared is 8
    result = metrics.regression_error(predicted, targets, points)
    assert list(result) == ["error", "relative_paper", "relative"]
    assert result["relative_paper"] == pytest.approx(3 / 8)
    assert result["relative"] == pytest.approx(3 / math.sqrt(8))


def test_coinciding_points_give_no_scale_and_a_warning():
    with pytest.warns(PolysemeWarning, match="all `points` coincide"):
        result = metrics.regression_error([[1.0]], [[0.0]], [[0.1]] * 3)
    assert result["error"] == 1.0
    assert np.isnan(result["relative"]) and np.isnan(result["relative_paper"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([[1.0]], [[1.0], [2.0]]), r"`predicted` has shape \(1, 1\) but `targets` has \(2, 1\)"),
        (([[1.0]], [[1.0]], [[1.0, 2.0]]), "`points` has 2 columns but `predicted` has 1"),
        (([1.0], [1.0]), r"`predicted` must have rows and columns; got shape \(1,\)"),
        (([[1.0]], [[np.inf]]), "`targets` contains NaN or infinity"),
        (([[1.0]], [[1.0]], np.empty((0, 1))), r"`points` must have rows .* got shape \(0, 1\)"),
    ],
)
def test_unusable_points_are_refused(arguments, message):
    with pytest.raises(InputError, match=message):
        metrics.regression_error(*arguments)


def test_too_few_sampled_points_are_refused():
    with pytest.raises(InputError, match="`max_points` of `scattering` must be a whole number at"):
        metrics.scattering([[1.0], [2.0]], max_points=1)
