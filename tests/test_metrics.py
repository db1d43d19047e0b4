"""Metrics against plain loops, scikit-learn and worlds whose answer is known."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from sklearn import metrics as sklearn_metrics

from polyseme import metrics
from polyseme._validation import InputError, PolysemeWarning

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
    truth[0], truth[:, 0] = False, False
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
    best_first, m = ordered(truth, scores, ties), sum(truth)
    return sum(sum(best_first[:i]) / i for i in range(1, m + 1)) / m if m else math.nan


def loop_concept(truth, scores, ties):
    best_first, m = ordered(truth, scores, ties), sum(truth)
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
    hits = sum(sum(ordered(row, line, ties)[:k]) for row, line in zip(truth, scores, strict=True))
    precision = hits / sum(len(row[:k]) for row in truth)
    recall = hits / sum(sum(row) for row in truth)
    return 2 * precision * recall / (precision + recall) if hits else 0.0


def each(function, truth, scores, *more):
    pairs = zip(truth.tolist(), scores.tolist(), strict=True)
    return np.array([function(*pair, *more) for pair in pairs])


@worlds
@pytest.mark.parametrize("ties", ["worst", "index"])
def test_metrics_with_a_choice_of_ties_equal_plain_loops(kind, ties):
    truth, scores = world(kind)
    rows = each(loop_example, truth, scores, ties)
    labels = each(loop_concept, truth.T, scores.T, ties)
    np.testing.assert_allclose(metrics.example_precision(truth, scores, ties), rows)
    np.testing.assert_allclose(metrics.concept_precision(truth, scores, ties), labels)
    assert metrics.example_map(truth, scores, ties) == pytest.approx(np.nanmean(rows))
    assert metrics.concept_map(truth, scores, ties) == pytest.approx(np.nanmean(labels))
    assert np.isnan(rows[0]) and np.isnan(labels[0])
    for k in (1, 3, 11, 40):
        expected = loop_f1(truth.tolist(), scores.tolist(), k, ties)
        assert metrics.f1_at_k(truth, scores, k, ties) == pytest.approx(expected)


@worlds
def test_shared_metrics_equal_scikit_learn_where_something_is_relevant(kind):
    truth, scores = world(kind, 2)
    truth[2] = True
    finite = np.where(np.isinf(scores), -1e6, scores)  # it refuses what never applies
    rows = truth.any(axis=1)
    labels = slice(None), truth.any(axis=0)
    for name, reference, kept in (
        ("ranking_loss", "label_ranking_loss", rows),
        ("coverage", "coverage_error", rows),
        ("label_ranking_average_precision", "label_ranking_average_precision_score", rows),
        ("roc_auc", "roc_auc_score", labels),
        ("mean_average_precision", "average_precision_score", labels),
    ):
        expected = getattr(sklearn_metrics, reference)(truth[kept], finite[kept])
        assert getattr(metrics, name)(truth, scores) == pytest.approx(expected)
    if kind == "smooth":
        predicted = np.zeros_like(truth)
        np.put_along_axis(predicted, np.argsort(-scores, axis=1)[:, :3], True, axis=1)
        expected = sklearn_metrics.f1_score(truth, predicted, average="micro")
        assert metrics.f1_at_k(truth, scores, 3) == pytest.approx(expected)


def test_the_papers_two_metrics_by_hand():
    truth, scores = [[1, 0, 1, 0, 1, 0]], [[6, 5, 4, 3, 2, 1]]
    assert metrics.example_map(truth, scores) == pytest.approx((1 + 1 / 2 + 2 / 3) / 3)
    assert metrics.example_map([[0, 1, 0]], [[0.9, 0.5, 0.1]]) == 0.0  # first place or nothing
    truth, scores = np.array([[1, 0, 0, 1]]).T, np.array([[4, 3, 2, 1]]).T
    assert metrics.concept_map(truth, scores) == pytest.approx((6 * 1 + 5 * 1 / 2) / 11)
    # Three of ten positives reach recall level 0.3 although 3 / 10 < 0.3 in floating point.
    truth, scores = np.array([[1] * 3 + [0] * 7 + [1] * 7]).T, -np.arange(17.0)[:, None]
    assert metrics.concept_map(truth, scores) == pytest.approx((4 * 1 + 7 * 10 / 17) / 11)


@st.composite
def problems(draw):
    shape = draw(st.tuples(st.integers(1, 7), st.integers(1, 7)))
    truth = draw(hnp.arrays(np.bool_, shape))
    truth[draw(st.integers(0, shape[0] - 1)), draw(st.integers(0, shape[1] - 1))] = True
    scores = draw(hnp.arrays(np.int64, shape, elements=st.integers(-4, 4)))
    return truth, scores.astype(np.float64)


@settings(deadline=None, max_examples=60)
@given(problems(), st.randoms(use_true_random=False))
@pytest.mark.filterwarnings("ignore:`roc_auc` is nan")  # a label may lack negative rows
def test_rankings_decide_alone_and_a_perfect_one_scores_one(problem, random):
    truth, scores = problem
    before = metrics.evaluate(truth, scores)
    for transform in (np.exp, np.arctan, lambda x: 5 * x - 7):
        np.testing.assert_equal(metrics.evaluate(truth, transform(scores)), before)
    rows, columns = (random.sample(range(size), size) for size in truth.shape)
    shuffled = metrics.evaluate(truth[rows][:, columns], scores[rows][:, columns])
    assert shuffled == pytest.approx(before, rel=1e-12, nan_ok=True)
    for name in ("example_map", "concept_map"):  # equals count against the ranking by default
        assert getattr(metrics, name)(truth, scores, ties="index") >= before[name] - 1e-12
    perfect = metrics.evaluate(truth, scores + 100 * truth)
    for name in ("example_map", "concept_map", "mean_average_precision"):
        assert perfect[name] == pytest.approx(1.0, abs=1e-12)
    assert perfect["ranking_loss"] == 0.0
    assert perfect["coverage"] == pytest.approx(truth[truth.any(axis=1)].sum(axis=1).mean())
    assert np.isnan(perfect["roc_auc"]) or perfect["roc_auc"] == 1.0


@worlds
def test_evaluate_gives_every_metric_in_fixed_order_whatever_the_blocks(kind, monkeypatch):
    truth, scores = world(kind)
    result = metrics.evaluate(truth, scores)
    assert list(result) == NAMES
    assert all(type(value) is float for value in result.values())
    for name in PLAIN:
        assert result[name] == getattr(metrics, name)(truth, scores)
    assert result["f1_at_5"] == metrics.f1_at_k(truth, scores, 5)
    assert "f1_at_3" in metrics.evaluate(truth, scores, k=3)
    for entries in (1, 30):
        monkeypatch.setattr(metrics, "BLOCK_ENTRIES", entries)
        assert metrics.evaluate(truth, scores) == result


def test_kinds_are_evaluated_apart_where_some_row_has_their_labels():
    truth, scores = world("smooth")
    kinds = np.array(["oov"] + ["seen"] * 6 + ["unseen"] * 4)
    result = metrics.evaluate_kinds(truth, scores, kinds)
    assert list(result) == ["all", "seen", "unseen"]  # no row has the first label
    for kind, columns in (("all", slice(None)), ("seen", slice(1, 7)), ("unseen", slice(7, None))):
        n_items = truth[:, columns].any(axis=1).sum()
        sizes = {"n_labels": truth[:, columns].shape[1], "n_items": n_items}
        expected = metrics.evaluate(truth[:, columns], scores[:, columns])
        assert result[kind] == sizes | expected


def test_probabilities_are_evaluated_with_their_calibration():
    truth, scores = world("smooth")
    probabilities = 1 / (1 + np.exp(-scores))
    kinds = ["seen"] * truth.shape[1]
    result = metrics.evaluate_kinds(truth, probabilities, kinds, probabilities=True)
    error = metrics.expected_calibration_error(truth, probabilities)
    assert result["seen"]["calibration_error"] == error


def test_every_form_of_truth_and_scores_counts_alike_and_stays_as_it_was():
    truth, scores = world("tied", 1)
    scores = np.abs(scores)
    expected, before = metrics.evaluate(truth, scores), (truth.copy(), scores.copy())
    for form in ("csr", "csc", "coo", "lil", "dok", "bsr"):
        sparse = sp.csr_matrix(truth.astype(np.int8)).asformat(form)
        assert metrics.evaluate(sparse, scores) == expected
        assert metrics.evaluate(sp.csr_array(sparse), scores) == expected
    for dtype in (np.float32, np.float16, np.int32, np.uint8):
        assert metrics.evaluate(truth, scores.astype(dtype)) == expected
    assert np.array_equal(truth, before[0]) and np.array_equal(scores, before[1])
    truth, scores = world("never", 3)
    lowered = np.where(np.isinf(scores), -1e6, scores)
    assert metrics.evaluate(truth, scores) == metrics.evaluate(truth, lowered)


def test_what_is_not_defined_warns_where_it_was_asked_and_gives_nan():
    nothing, scores = np.zeros((3, 4)), np.ones((3, 4))
    for name in (*PLAIN, "f1_at_k"):
        k = {"k": 2} if name == "f1_at_k" else {}
        with pytest.warns(PolysemeWarning, match=f"`{name}` is nan") as caught:
            assert np.isnan(getattr(metrics, name)(nothing, scores, **k))
        assert len(caught) == 1 and caught[0].filename == __file__
    with pytest.warns(PolysemeWarning, match="All metrics are nan") as caught:
        result = metrics.evaluate(nothing, scores)
    assert len(caught) == 1
    assert list(result) == NAMES and np.isnan(list(result.values())).all()
    with pytest.warns(PolysemeWarning, match="`roc_auc` is nan") as caught:
        result = metrics.evaluate(np.ones((2, 2)), np.eye(2))
    assert [name for name, value in result.items() if np.isnan(value)] == ["roc_auc"]
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


def test_unusable_parameters_are_refused():
    with pytest.raises(InputError, match="must be one of 'worst', 'index'; got 'best'"):
        metrics.concept_precision([[1, 0]], [[1, 0]], "best")
    with pytest.raises(InputError, match="`k` of `f1_at_k` must be a whole number at least 1"):
        metrics.f1_at_k([[1, 0]], [[1, 0]], 1.5)
    with pytest.raises(InputError, match="`k` of `evaluate` must be a whole number at least 1"):
        metrics.evaluate([[1, 0]], [[1, 0]], k=0)
    with pytest.raises(InputError, match="`max_points` of `scattering` must be"):
        metrics.scattering(np.eye(3), max_points=1)
    with pytest.raises(InputError, match="n_bins"):
        metrics.reliability([[1]], [[0.5]], n_bins=0)
    for metric in (metrics.reliability, metrics.log_loss):
        with pytest.raises(InputError, match="`probabilities` must lie between 0 and 1"):
            metric([[1, 0]], [[0.5, -0.1]])


# ---------------------------------------------------------------------- probabilities


def probable(seed, n=40, n_labels=7):
    rng = np.random.default_rng(seed)
    probabilities = rng.random((n, n_labels)) ** 3
    probabilities[0, :3] = 0.0, 0.2, 1.0
    return rng.random(probabilities.shape) < probabilities, probabilities


@pytest.mark.parametrize("n_bins", [1, 5, 15])
def test_reliability_is_what_a_plain_loop_finds(n_bins):
    truth, probabilities = probable(0)
    bins = [[] for _ in range(n_bins)]
    for true, p in zip(truth.ravel(), probabilities.ravel(), strict=True):
        bins[sum(p >= (border + 1) / n_bins for border in range(n_bins - 1))].append((true, p))
    curve = metrics.reliability(truth, probabilities, n_bins=n_bins)
    error = 0.0
    for place, entries in enumerate(bins):
        assert curve.counts[place] == len(entries)
        observed, predicted = np.mean(entries, axis=0) if entries else (np.nan, np.nan)
        assert curve.observed[place] == pytest.approx(observed, nan_ok=True)
        assert curve.predicted[place] == pytest.approx(predicted, nan_ok=True)
        error += len(entries) / truth.size * abs(observed - predicted) if entries else 0.0
    found = metrics.expected_calibration_error(truth, probabilities, n_bins=n_bins)
    assert found == pytest.approx(error)
    truth, probabilities = probable(2, n=20_000)  # which tell the truth
    assert metrics.expected_calibration_error(truth, probabilities, n_bins=n_bins) < 0.01


def test_log_loss_is_the_sum_of_scikit_learns_over_labels():
    truth, probabilities = probable(1)
    probabilities = np.clip(probabilities, 0.01, 0.99)
    columns = zip(truth.T, probabilities.T, strict=True)
    expected = sum(sklearn_metrics.log_loss(*pair, labels=[False, True]) for pair in columns)
    assert metrics.log_loss(truth, probabilities) == pytest.approx(expected)
    assert 20 < metrics.log_loss([[1]], [[0.0]]) < 40  # wrong for certain: much, not infinite
    assert metrics.log_loss([[1, 0]], [[1.0, 0.0]]) == pytest.approx(0.0, abs=1e-9)


# ---------------------------------------------------------------------- concept space


@pytest.mark.parametrize("offset", [0.0, 1e6])
def test_scattering_equals_the_double_loop_also_far_from_the_origin(offset):
    points = np.random.default_rng(0).normal(size=(40, 5)) + offset
    distances = np.array([math.dist(*pair) for pair in itertools.product(points, repeat=2)])
    result = metrics.scattering(points)
    assert result["s_mean"] == pytest.approx(distances.mean(), rel=1e-9)
    assert result["s_squared"] == pytest.approx((distances**2).mean(), rel=1e-9)
    assert metrics.scattering([[3.0, 4.0]]) == {"s_mean": 0.0, "s_squared": 0.0}


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


def test_regression_error_and_its_two_scales_by_hand():
    predicted, targets = [[3.0, 4.0], [0.0, 0.0]], [[0.0, 0.0], [0.0, 1.0]]
    assert metrics.regression_error(predicted, targets) == {"error": 3.0}
    points = [[0.0, 0.0], [4.0, 0.0]]  # two of four pairs are 4 apart: s_squared is 8
    result = metrics.regression_error(predicted, targets, points)
    assert list(result) == ["error", "relative_paper", "relative"]
    assert result["relative_paper"] == pytest.approx(3 / 8)
    assert result["relative"] == pytest.approx(3 / math.sqrt(8))
    with pytest.warns(PolysemeWarning, match="all `points` coincide"):
        result = metrics.regression_error([[1.0]], [[0.0]], [[0.1]] * 3)
    assert result["error"] == 1.0
    assert np.isnan(result["relative"]) and np.isnan(result["relative_paper"])


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
