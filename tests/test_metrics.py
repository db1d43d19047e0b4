"""Metrics against plain loops, scikit-learn and worlds whose answer is known."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.testing import assert_allclose, assert_equal
from scipy.spatial.distance import cdist
from sklearn import metrics as sklearn_metrics

from polyseme import metrics
from polyseme.base.validation import InputError, PolysemeWarning

NAMES = [
    "example_map",
    "concept_map",
    "mean_average_precision",
    "f1_at_5",
    "ranking_loss",
    "coverage",
    "label_ranking_average_precision",
    "roc_auc",
]
PLAIN = [name for name in NAMES if name != "f1_at_5"]
worlds = pytest.mark.parametrize("kind", ["smooth", "tied", "never"])


def world(kind, seed=0, n=23, n_labels=11):
    """Random truth and scores; row 0 and label 0 hold nothing, row 1 everything but label 0."""
    rng = np.random.default_rng(seed)
    truth = rng.random((n, n_labels)) < 0.25
    truth[1] = True
    truth[0] = False
    truth[:, 0] = False
    scores = rng.normal(size=truth.shape)
    if kind == "tied":
        scores = np.round(scores)
    if kind == "never":
        scores[rng.random(truth.shape) < 0.4] = -np.inf
    return truth, scores


# Plain loops over one ranked list: `truth` and `scores` are sequences of equal length.


def ordered(truth, scores, ties):
    rank = sorted(range(len(truth)), key=lambda j: (-scores[j], ties == "worst" and truth[j], j))
    return [bool(truth[j]) for j in rank]


def loop_example(truth, scores, ties):
    n_relevant = sum(truth)
    if not n_relevant:
        return math.nan
    best_first = ordered(truth, scores, ties)
    total = 0.0
    for place in range(1, n_relevant + 1):
        total += sum(best_first[:place]) / place
    return total / n_relevant


def loop_concept(truth, scores, ties):
    best_first = ordered(truth, scores, ties)
    m = sum(truth)
    if not m:
        return math.nan
    total = 0.0
    for level in range(11):
        precision = []
        for k in range(1, len(truth) + 1):
            hits = sum(best_first[:k])
            if hits / m >= level / 10 - 1e-9:
                precision.append(hits / k)
        total += max(precision)
    return total / 11


def loop_f1(truth, scores, k, ties):
    n_hits = 0
    n_suggested = 0
    n_relevant = 0
    for row, row_scores in zip(truth, scores, strict=True):
        best_first = ordered(row, row_scores, ties)
        n_hits += sum(best_first[:k])
        n_suggested += len(row[:k])
        n_relevant += sum(row)
    return 2 * n_hits / (n_suggested + n_relevant)


def each(function, truth, scores, *more):
    pairs = zip(truth.tolist(), scores.tolist(), strict=True)
    return np.array([function(*pair, *more) for pair in pairs])


@worlds
@pytest.mark.parametrize("ties", ["worst", "index"])
def test_metrics_with_a_choice_of_ties_equal_plain_loops(kind, ties):
    truth, scores = world(kind)
    by_example = each(loop_example, truth, scores, ties)
    assert np.isnan(by_example[0])
    assert_allclose(metrics.example_precision(truth, scores, ties), by_example)
    example_map = metrics.example_map(truth, scores, ties)
    assert example_map == pytest.approx(np.nanmean(by_example))

    by_concept = each(loop_concept, truth.T, scores.T, ties)
    assert np.isnan(by_concept[0])
    assert_allclose(metrics.concept_precision(truth, scores, ties), by_concept)
    concept_map = metrics.concept_map(truth, scores, ties)
    assert concept_map == pytest.approx(np.nanmean(by_concept))


@worlds
@pytest.mark.parametrize("ties", ["worst", "index"])
@pytest.mark.parametrize("k", [1, 3, 11, 40])
def test_f1_equals_a_plain_loop(kind, ties, k):
    truth, scores = world(kind)
    expected = loop_f1(truth.tolist(), scores.tolist(), k, ties)
    f1 = metrics.f1_at_k(truth, scores, k, ties)
    assert f1 == pytest.approx(expected)


@worlds
@pytest.mark.parametrize(
    ("name", "reference", "averaged_over"),
    [
        ("ranking_loss", "label_ranking_loss", "rows"),
        ("coverage", "coverage_error", "rows"),
        (
            "label_ranking_average_precision",
            "label_ranking_average_precision_score",
            "rows",
        ),
        ("roc_auc", "roc_auc_score", "labels"),
        ("mean_average_precision", "average_precision_score", "labels"),
    ],
)
def test_shared_metrics_equal_scikit_learn_where_something_is_relevant(
    kind, name, reference, averaged_over
):
    truth, scores = world(kind, 2)
    truth[2] = True
    finite = np.where(np.isinf(scores), -1e6, scores)  # it refuses what never applies
    selection = truth.any(axis=1)
    if averaged_over == "labels":
        selection = slice(None), truth.any(axis=0)
    reference_metric = getattr(sklearn_metrics, reference)
    expected = reference_metric(truth[selection], finite[selection])
    metric = getattr(metrics, name)
    assert metric(truth, scores) == pytest.approx(expected)


def test_f1_equals_that_of_scikit_learn():
    truth, scores = world("smooth", 2)
    truth[2] = True
    best = np.argsort(-scores, axis=1)[:, :3]
    predicted = np.zeros_like(truth)
    np.put_along_axis(predicted, best, True, axis=1)
    expected = sklearn_metrics.f1_score(truth, predicted, average="micro")
    assert metrics.f1_at_k(truth, scores, 3) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("truth", "scores", "expected"),
    [
        ([1, 0, 1, 0, 1, 0], [6, 5, 4, 3, 2, 1], (1 + 1 / 2 + 2 / 3) / 3),
        ([0, 1, 0], [0.9, 0.5, 0.1], 0.0),  # first place or nothing
    ],
)
def test_example_map_by_hand(truth, scores, expected):
    assert metrics.example_map([truth], [scores]) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("truth", "expected"),
    [
        ([1, 0, 0, 1], (6 * 1 + 5 * 1 / 2) / 11),
        # Three of ten positives reach recall level 0.3 although 3 / 10 < 0.3 in floating point.
        ([1] * 3 + [0] * 7 + [1] * 7, (4 * 1 + 7 * 10 / 17) / 11),
    ],
)
def test_concept_map_by_hand(truth, expected):
    column = np.array(truth)[:, None]
    places = np.arange(float(len(truth)))
    falling_scores = -places[:, None]
    concept_map = metrics.concept_map(column, falling_scores)
    assert concept_map == pytest.approx(expected)


@st.composite
def problems(draw):
    n_rows = draw(st.integers(1, 7))
    n_labels = draw(st.integers(1, 7))
    truth = draw(hnp.arrays(np.bool_, (n_rows, n_labels)))
    row = draw(st.integers(0, n_rows - 1))
    label = draw(st.integers(0, n_labels - 1))
    truth[row, label] = True
    elements = st.integers(-4, 4)
    scores = draw(hnp.arrays(np.int64, (n_rows, n_labels), elements=elements))
    return truth, scores.astype(np.float64)


@settings(deadline=None, max_examples=60)
@given(problems(), st.sampled_from([np.exp, np.arctan, lambda x: 5 * x - 7]))
@pytest.mark.filterwarnings("ignore:`roc_auc` is nan")  # a label may lack negative rows
def test_rankings_alone_decide(problem, transform):
    truth, scores = problem
    expected = metrics.evaluate(truth, scores)
    assert_equal(metrics.evaluate(truth, transform(scores)), expected)


@settings(deadline=None, max_examples=60)
@given(problems(), st.randoms(use_true_random=False))
@pytest.mark.filterwarnings("ignore:`roc_auc` is nan")
def test_the_order_of_rows_and_labels_does_not_matter(problem, random):
    truth, scores = problem
    expected = metrics.evaluate(truth, scores)
    rows, columns = [random.sample(range(size), size) for size in truth.shape]
    shuffled_truth = truth[rows][:, columns]
    shuffled_scores = scores[rows][:, columns]
    shuffled = metrics.evaluate(shuffled_truth, shuffled_scores)
    assert shuffled == pytest.approx(expected, rel=1e-12, nan_ok=True)


@settings(deadline=None, max_examples=60)
@given(problems())
@pytest.mark.parametrize("name", ["example_map", "concept_map"])
def test_ties_count_against_the_ranking_by_default(name, problem):
    truth, scores = problem
    metric = getattr(metrics, name)
    assert metric(truth, scores, ties="index") >= metric(truth, scores) - 1e-12


@settings(deadline=None, max_examples=60)
@given(problems())
@pytest.mark.filterwarnings("ignore:`roc_auc` is nan")
def test_a_perfect_ranking_scores_one(problem):
    truth, scores = problem
    perfect = metrics.evaluate(truth, scores + 100 * truth)
    for name in ("example_map", "concept_map", "mean_average_precision"):
        assert perfect[name] == pytest.approx(1.0, abs=1e-12)
    assert perfect["ranking_loss"] == 0.0
    sizes = truth.sum(axis=1)
    expected = sizes[sizes > 0].mean()
    assert perfect["coverage"] == pytest.approx(expected)
    assert np.isnan(perfect["roc_auc"]) or perfect["roc_auc"] == 1.0


@worlds
def test_evaluate_gives_every_metric_in_fixed_order(kind):
    truth, scores = world(kind)
    result = metrics.evaluate(truth, scores)
    assert list(result) == NAMES
    assert {type(value) for value in result.values()} == {float}
    for name in PLAIN:
        metric = getattr(metrics, name)
        assert result[name] == metric(truth, scores)
    expected = metrics.f1_at_k(truth, scores, 5)
    assert result["f1_at_5"] == expected
    assert "f1_at_3" in metrics.evaluate(truth, scores, k=3)


@worlds
@pytest.mark.parametrize("entries", [1, 30])
def test_evaluate_does_not_depend_on_the_size_of_blocks(kind, entries, monkeypatch):
    truth, scores = world(kind)
    expected = metrics.evaluate(truth, scores)
    monkeypatch.setattr(metrics, "BLOCK_ENTRIES", entries)
    assert metrics.evaluate(truth, scores) == expected


@pytest.mark.parametrize("form", ["csr", "csc", "coo", "lil", "dok", "bsr"])
def test_every_form_of_truth_counts_alike_and_stays_as_it_was(form):
    truth, scores = world("tied", 1)
    truth_before = truth.copy()
    expected = metrics.evaluate(truth, scores)
    sparse = sp.csr_matrix(truth.astype(np.int8)).asformat(form)
    assert metrics.evaluate(sparse, scores) == expected
    assert metrics.evaluate(sp.csr_array(sparse), scores) == expected
    assert np.array_equal(truth, truth_before)


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int32, np.uint8])
def test_every_form_of_scores_counts_alike_and_stays_as_it_was(dtype):
    truth, scores = world("tied", 1)
    scores = np.abs(scores)
    scores_before = scores.copy()
    expected = metrics.evaluate(truth, scores)
    assert metrics.evaluate(truth, scores.astype(dtype)) == expected
    assert np.array_equal(scores, scores_before)


def test_infinitely_low_scores_count_as_very_low_ones():
    truth, scores = world("never", 3)
    is_infinite = np.isinf(scores)
    finite = np.where(is_infinite, -1e6, scores)
    expected = metrics.evaluate(truth, finite)
    assert metrics.evaluate(truth, scores) == expected


@pytest.mark.parametrize("name", [*PLAIN, "f1_at_k"])
def test_an_undefined_metric_is_nan_with_a_warning_at_its_call(name):
    metric = getattr(metrics, name)
    options = {"k": 2} if name == "f1_at_k" else {}
    with pytest.warns(PolysemeWarning, match=f"`{name}` is nan") as caught:
        value = metric(np.zeros((3, 4)), np.ones((3, 4)), **options)
    assert np.isnan(value)
    (warning,) = caught
    assert warning.filename == __file__


def test_without_true_labels_all_metrics_are_nan_with_one_warning():
    with pytest.warns(PolysemeWarning, match="All metrics are nan") as caught:
        result = metrics.evaluate(np.zeros((3, 4)), np.ones((3, 4)))
    assert len(caught) == 1
    assert list(result) == NAMES
    assert np.isnan(list(result.values())).all()


def test_where_every_label_is_true_only_the_roc_is_undefined():
    with pytest.warns(PolysemeWarning, match="`roc_auc` is nan") as caught:
        result = metrics.evaluate(np.ones((2, 2)), np.eye(2))
    undefined = [name for name, value in result.items() if np.isnan(value)]
    assert undefined == ["roc_auc"]
    assert caught[0].filename == __file__


@pytest.mark.parametrize(
    ("truth", "scores", "message"),
    [
        (np.ones((2, 3)), np.ones((2, 4)), r"`truth` has shape \(2, 3\) but `scores` has shape"),
        (np.ones(3), np.ones(3), r"must have two dimensions.*got shape \(3,\)"),
        (np.ones((0, 3)), np.ones((0, 3)), r"one row and one label; got shape \(0, 3\)"),
        ([[0.5, np.nan]], [[0.1, 0.2]], r"`truth` must hold 0 and 1 only; got 0.5"),
        (sp.coo_array(([1, 1], ([0, 0], [0, 0]))), [[0.1]], r"0 and 1 only; got 2"),
        ([[0, 1]], [[1j, 2j]], r"got data type complex128"),
        ([[0, 1]], sp.csr_array([[0.1, 0.2]]), r"`scores` must be .*; got a sparse matrix"),
        (np.ones((9, 1)), np.full((9, 1), np.nan), r"row\(s\) 0, 1, 2, 3, 4 and 4 more; use -inf"),
    ],
)
def test_unusable_truth_or_scores_are_refused_in_one_sentence(truth, scores, message):
    with pytest.raises(InputError, match=message):
        metrics.evaluate(truth, scores)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: metrics.concept_precision([[1, 0]], [[1, 0]], "best"),
            "must be one of 'worst', 'index'; got 'best'",
        ),
        (
            lambda: metrics.f1_at_k([[1, 0]], [[1, 0]], 1.5),
            "`k` of `f1_at_k` must be a whole number at least 1",
        ),
        (
            lambda: metrics.evaluate([[1, 0]], [[1, 0]], k=0),
            "`k` of `evaluate` must be a whole number at least 1",
        ),
        (
            lambda: metrics.scattering(np.eye(3), max_points=1),
            "`max_points` of `scattering` must be",
        ),
        (lambda: metrics.reliability([[1]], [[0.5]], n_bins=0), "n_bins"),
        (
            lambda: metrics.reliability([[1, 0]], [[0.5, -0.1]]),
            "`probabilities` must lie between 0 and 1",
        ),
        (
            lambda: metrics.log_loss([[1, 0]], [[0.5, -0.1]]),
            "`probabilities` must lie between 0 and 1",
        ),
    ],
)
def test_unusable_parameters_are_refused(call, message):
    with pytest.raises(InputError, match=message):
        call()


# ---------------------------------------------------------------------- probabilities


def probable(seed, n=40, n_labels=7):
    generator = np.random.default_rng(seed)
    probabilities = generator.random((n, n_labels)) ** 3
    probabilities[0, :3] = 0.0, 0.2, 1.0
    truth = generator.random(probabilities.shape) < probabilities
    return truth, probabilities


@pytest.mark.parametrize("n_bins", [1, 5, 15])
def test_reliability_is_that_of_a_plain_loop(n_bins):
    truth, probabilities = probable(0)
    borders = np.arange(1, n_bins) / n_bins
    bins = np.searchsorted(borders, probabilities, side="right")
    curve = metrics.reliability(truth, probabilities, n_bins=n_bins)
    error = 0.0
    for number in range(n_bins):
        entries = bins == number
        count = np.count_nonzero(entries)
        assert curve.counts[number] == count
        if not count:
            assert np.isnan(curve.observed[number])
            assert np.isnan(curve.predicted[number])
            continue
        observed = truth[entries].mean()
        predicted = probabilities[entries].mean()
        assert curve.observed[number] == pytest.approx(observed)
        assert curve.predicted[number] == pytest.approx(predicted)
        error += count / truth.size * abs(observed - predicted)
    calibration_error = metrics.expected_calibration_error(truth, probabilities, n_bins=n_bins)
    assert calibration_error == pytest.approx(error)


@pytest.mark.parametrize("n_bins", [1, 5, 15])
def test_true_probabilities_have_hardly_any_calibration_error(n_bins):
    truth, probabilities = probable(2, n=20_000)
    error = metrics.expected_calibration_error(truth, probabilities, n_bins=n_bins)
    assert error < 0.01


def test_log_loss_is_the_sum_of_scikit_learns_over_labels():
    truth, probabilities = probable(1)
    probabilities = np.clip(probabilities, 0.01, 0.99)
    expected = 0.0
    for column, column_probabilities in zip(truth.T, probabilities.T, strict=True):
        expected += sklearn_metrics.log_loss(column, column_probabilities, labels=[False, True])
    assert metrics.log_loss(truth, probabilities) == pytest.approx(expected)


def test_the_log_loss_of_certain_answers_is_finite():
    wrong = metrics.log_loss([[1]], [[0.0]])
    assert 20 < wrong < 40
    right = metrics.log_loss([[1, 0]], [[1.0, 0.0]])
    assert right == pytest.approx(0.0, abs=1e-9)


# ---------------------------------------------------------------------- concept space


@pytest.mark.parametrize("offset", [0.0, 1e6])
def test_scattering_equals_the_double_loop_also_far_from_the_origin(offset):
    generator = np.random.default_rng(0)
    points = generator.normal(size=(40, 5)) + offset
    distances = cdist(points, points)
    squared = distances**2
    result = metrics.scattering(points)
    assert result["s_mean"] == pytest.approx(distances.mean(), rel=1e-9)
    assert result["s_squared"] == pytest.approx(squared.mean(), rel=1e-9)


def test_a_single_point_does_not_scatter():
    assert metrics.scattering([[3.0, 4.0]]) == {"s_mean": 0.0, "s_squared": 0.0}


def test_sampled_scattering_is_repeatable_and_unbiased():
    points = np.array([[0.0], [1.0], [5.0]])
    exact = metrics.scattering(points)
    means = set()
    for seed in range(30):
        sampled = metrics.scattering(points, max_points=2, random_state=seed)
        repeated = metrics.scattering(points, max_points=2, random_state=seed)
        assert sampled == repeated
        assert sampled["s_squared"] == exact["s_squared"]
        means.add(round(sampled["s_mean"], 9))
    assert sorted(means) == pytest.approx([1 * 2 / 3, 4 * 2 / 3, 5 * 2 / 3])
    assert np.mean(list(means)) == pytest.approx(exact["s_mean"])


def test_regression_error_and_its_two_scales_by_hand():
    predicted = [[3.0, 4.0], [0.0, 0.0]]
    targets = [[0.0, 0.0], [0.0, 1.0]]
    assert metrics.regression_error(predicted, targets) == {"error": 3.0}
    points = [[0.0, 0.0], [4.0, 0.0]]  # two of four pairs are 4 apart: s_squared is 8
    result = metrics.regression_error(predicted, targets, points)
    assert list(result) == ["error", "relative_paper", "relative"]
    assert result["relative_paper"] == pytest.approx(3 / 8)
    expected = 3 / math.sqrt(8)
    assert result["relative"] == pytest.approx(expected)


def test_relative_errors_of_points_that_coincide_are_nan_with_a_warning():
    with pytest.warns(PolysemeWarning, match="all `points` coincide"):
        result = metrics.regression_error([[1.0]], [[0.0]], [[0.1]] * 3)
    assert result["error"] == 1.0
    assert np.isnan(result["relative"])
    assert np.isnan(result["relative_paper"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([[1.0]], [[1.0], [2.0]]), r"`predicted` has shape \(1, 1\) but `targets` has \(2, 1\)"),
        (([[1.0]], [[1.0]], [[1.0, 2.0]]), "`points` have 2 columns, targets 1"),
        (([1.0], [1.0]), r"`predicted` must have rows and columns; got shape \(1,\)"),
        (([[1.0]], [[np.inf]]), "`targets` contains NaN or infinity"),
    ],
)
def test_unusable_points_are_refused(arguments, message):
    with pytest.raises(InputError, match=message):
        metrics.regression_error(*arguments)
