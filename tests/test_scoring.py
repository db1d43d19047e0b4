from __future__ import annotations

import itertools
import math
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from sklearn import metrics as sklearn_metrics

from polyseme import metrics
from polyseme._validation import InputError, PolysemeWarning
from polyseme.metrics import ranking

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
ONE_VALUE = [name for name in NAMES if name != "f1_at_5"]
KINDS = ["smooth", "tied", "never"]


def world(kind, seed, n=23, n_labels=11):
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


def worlds():
    return pytest.mark.parametrize(("kind", "seed"), list(itertools.product(KINDS, range(3))))


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
        found = []
        for k in range(1, len(truth) + 1):
            hits = sum(best_first[:k])
            if hits / m >= level / 10 - 1e-9:
                found.append(hits / k)
        total += max(found)
    return total / 11


def loop_average_precision(truth, scores):
    if not any(truth):
        return math.nan
    precision = []
    for score in [score for true, score in zip(truth, scores, strict=True) if true]:
        retrieved = [j for j in range(len(truth)) if scores[j] >= score]
        precision.append(sum(truth[j] for j in retrieved) / len(retrieved))
    return sum(precision) / len(precision)


def loop_pairs(truth, scores):
    """Compare all (relevant, irrelevant) pairs: how many are wrong, tied, and how many in all."""
    wrong = tied = total = 0
    for i, j in itertools.product(range(len(truth)), repeat=2):
        if truth[i] and not truth[j]:
            total += 1
            wrong += scores[i] < scores[j]
            tied += scores[i] == scores[j]
    return wrong, tied, total


def loop_loss(truth, scores):
    if not any(truth):
        return math.nan
    wrong, tied, total = loop_pairs(truth, scores)
    return (wrong + tied) / total if total else 0.0


def loop_area(truth, scores):
    wrong, tied, total = loop_pairs(truth, scores)
    return 1 - (wrong + tied / 2) / total if total else math.nan


def loop_coverage(truth, scores):
    if not any(truth):
        return math.nan
    lowest = min(score for true, score in zip(truth, scores, strict=True) if true)
    return sum(score >= lowest for score in scores)


def loop_f1(truth, scores, k, ties):
    hits = sum(sum(ordered(row, line, ties)[:k]) for row, line in zip(truth, scores, strict=True))
    precision = hits / sum(len(row[:k]) for row in truth)
    recall = hits / sum(sum(row) for row in truth)
    return 2 * precision * recall / (precision + recall) if hits else 0.0


def each(function, truth, scores, *more):
    return np.array([function(*pair, *more) for pair in zip(truth, scores, strict=True)])


@worlds()
@pytest.mark.parametrize("ties", ["worst", "index"])
def test_example_and_concept_precision_equal_plain_loops(kind, seed, ties):
    truth, scores = world(kind, seed)
    rows = each(loop_example, truth.tolist(), scores.tolist(), ties)
    labels = each(loop_concept, truth.T.tolist(), scores.T.tolist(), ties)
    np.testing.assert_allclose(metrics.example_precision(truth, scores, ties), rows)
    np.testing.assert_allclose(metrics.concept_precision(truth, scores, ties), labels)
    assert metrics.example_map(truth, scores, ties) == pytest.approx(np.nanmean(rows))
    assert metrics.concept_map(truth, scores, ties) == pytest.approx(np.nanmean(labels))
    assert np.isnan(rows[0]) and np.isnan(labels[0])


@worlds()
@pytest.mark.parametrize(
    ("name", "loop", "over_labels"),
    [
        ("mean_average_precision", loop_average_precision, True),
        ("roc_auc", loop_area, True),
        ("label_ranking_average_precision", loop_average_precision, False),
        ("ranking_loss", loop_loss, False),
        ("coverage", loop_coverage, False),
    ],
)
def test_metric_equals_plain_loop_also_with_rows_all_relevant(kind, seed, name, loop, over_labels):
    truth, scores = world(kind, seed)
    truth[2] = True
    pair = (truth.T, scores.T) if over_labels else (truth, scores)
    expected = np.nanmean(each(loop, *(array.tolist() for array in pair)))
    assert getattr(metrics, name)(truth, scores) == pytest.approx(expected)


@worlds()
@pytest.mark.parametrize("ties", ["worst", "index"])
@pytest.mark.parametrize("k", [1, 3, 11, 40])
def test_f1_at_k_equals_plain_loop(kind, seed, ties, k):
    truth, scores = world(kind, seed)
    expected = loop_f1(truth.tolist(), scores.tolist(), k, ties)
    assert metrics.f1_at_k(truth, scores, k, ties) == pytest.approx(expected)


@pytest.mark.parametrize("kind", ["smooth", "tied"])
@pytest.mark.parametrize("seed", range(4))
def test_shared_metrics_equal_scikit_learn_where_something_is_relevant(kind, seed):
    truth, scores = world(kind, seed)
    rows, labels = truth.any(axis=1), truth.any(axis=0)
    kept = truth[rows], scores[rows]
    assert metrics.ranking_loss(truth, scores) == pytest.approx(
        sklearn_metrics.label_ranking_loss(*kept)
    )
    assert metrics.coverage(truth, scores) == pytest.approx(sklearn_metrics.coverage_error(*kept))
    assert metrics.label_ranking_average_precision(truth, scores) == pytest.approx(
        sklearn_metrics.label_ranking_average_precision_score(*kept)
    )
    kept = truth[:, labels], scores[:, labels]
    assert metrics.roc_auc(truth, scores) == pytest.approx(sklearn_metrics.roc_auc_score(*kept))
    assert metrics.mean_average_precision(truth, scores) == pytest.approx(
        sklearn_metrics.average_precision_score(*kept)
    )


def test_f1_at_k_equals_scikit_learn_micro_f1_of_the_first_k():
    truth, scores = world("smooth", 0)
    predicted = np.zeros_like(truth)
    np.put_along_axis(predicted, np.argsort(-scores, axis=1)[:, :3], True, axis=1)
    expected = sklearn_metrics.f1_score(truth, predicted, average="micro")
    assert metrics.f1_at_k(truth, scores, 3) == pytest.approx(expected)


def test_one_relevant_label_scores_one_in_first_place_and_zero_in_second():
    scores = [[0.9, 0.5, 0.1]]
    assert metrics.example_map([[1, 0, 0]], scores) == 1.0
    assert metrics.example_map([[0, 1, 0]], scores) == 0.0


def test_example_map_of_three_relevant_labels_by_hand():
    truth, scores = [[1, 0, 1, 0, 1, 0]], [[6, 5, 4, 3, 2, 1]]
    assert metrics.example_map(truth, scores) == pytest.approx((1 + 1 / 2 + 2 / 3) / 3)


@pytest.mark.parametrize("k", [1, 2, 5, 7])
def test_a_single_positive_at_rank_k_gives_concept_map_one_over_k(k):
    truth = np.arange(1, 8)[:, None] == k
    scores = -np.arange(7.0)[:, None]
    assert metrics.concept_map(truth, scores) == pytest.approx(1 / k)


def test_concept_map_takes_the_best_precision_at_or_above_each_recall():
    truth, scores = np.array([[1, 0, 0, 1]]).T, np.array([[4, 3, 2, 1]]).T
    assert metrics.concept_map(truth, scores) == pytest.approx((6 * 1 + 5 * 1 / 2) / 11)


def test_three_of_ten_positives_reach_recall_level_three_tenths():
    truth = np.array([[1] * 3 + [0] * 7 + [1] * 7]).T
    scores = -np.arange(17.0)[:, None]
    assert metrics.concept_map(truth, scores) == pytest.approx((4 * 1 + 7 * 10 / 17) / 11)


def test_ties_count_against_the_ranking_unless_index_order_is_asked_for():
    truth, scores = np.array([[1, 0, 0, 0]]), np.zeros((1, 4))
    assert metrics.example_map(truth, scores) == 0.0
    assert metrics.example_map(truth, scores, ties="index") == 1.0
    assert metrics.concept_map(truth.T, scores.T) == pytest.approx(1 / 4)
    assert metrics.concept_map(truth.T, scores.T, ties="index") == 1.0
    assert metrics.f1_at_k(truth, scores, 1) == 0.0
    assert metrics.f1_at_k(truth, scores, 1, ties="index") == 1.0
    assert metrics.ranking_loss(truth, scores) == 1.0
    assert metrics.coverage(truth, scores) == 4.0
    assert metrics.label_ranking_average_precision(truth, scores) == pytest.approx(1 / 4)
    assert metrics.mean_average_precision(truth.T, scores.T) == pytest.approx(1 / 4)
    assert metrics.roc_auc(truth.T, scores.T) == 0.5


def test_f1_at_k_counts_predictions_for_rows_with_no_relevant_label():
    truth, scores = np.array([[1, 1, 0], [0, 0, 0]]), np.array([[3.0, 2, 1], [3, 2, 1]])
    assert metrics.f1_at_k(truth, scores, 2) == pytest.approx(2 * 2 / (4 + 2))


shapes = st.tuples(st.integers(1, 7), st.integers(1, 7))


@st.composite
def problems(draw, low=-4, high=4):
    shape = draw(shapes)
    truth = draw(hnp.arrays(np.bool_, shape))
    truth[draw(st.integers(0, shape[0] - 1)), draw(st.integers(0, shape[1] - 1))] = True
    scores = draw(hnp.arrays(np.int64, shape, elements=st.integers(low, high)))
    return truth, scores.astype(np.float64)


def evaluate_quietly(truth, scores):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PolysemeWarning)  # a label may lack negative rows
        return metrics.evaluate(truth, scores, k=2)


@settings(deadline=None, max_examples=60)
@given(problems())
def test_perfect_ranking_scores_one(problem):
    truth, noise = problem
    result = evaluate_quietly(truth, noise + 100 * truth)
    perfect = ["example_map", "concept_map", "mean_average_precision"]
    for name in [*perfect, "label_ranking_average_precision"]:
        assert result[name] == pytest.approx(1.0, abs=1e-12)
    assert result["ranking_loss"] == 0.0
    assert result["coverage"] == pytest.approx(truth[truth.any(axis=1)].sum(axis=1).mean())
    assert np.isnan(result["roc_auc"]) or result["roc_auc"] == 1.0


@settings(deadline=None, max_examples=60)
@given(problems(), st.sampled_from([np.exp, np.arctan, lambda x: x**3, lambda x: 5 * x - 7]))
def test_increasing_transforms_of_the_scores_change_nothing(problem, transform):
    truth, scores = problem
    before, after = evaluate_quietly(truth, scores), evaluate_quietly(truth, transform(scores))
    np.testing.assert_array_equal(list(before.values()), list(after.values()))


@settings(deadline=None, max_examples=60)
@given(problems(), st.randoms(use_true_random=False))
def test_order_of_columns_and_rows_does_not_matter_under_worst_ties(problem, random):
    truth, scores = problem
    rows, columns = (random.sample(range(size), size) for size in truth.shape)
    before = evaluate_quietly(truth, scores)
    after = evaluate_quietly(truth[rows][:, columns], scores[rows][:, columns])
    np.testing.assert_allclose(list(before.values()), list(after.values()), rtol=1e-12)


@settings(deadline=None, max_examples=60)
@given(problems(low=0, high=2))
def test_index_order_is_never_worse_than_the_worst_case(problem):
    truth, scores = problem
    for metric in (metrics.example_precision, metrics.concept_precision):
        gain = metric(truth, scores, "index") - metric(truth, scores)
        assert np.nanmin(gain) >= -1e-12
    assert metrics.f1_at_k(truth, scores, 2, "index") >= metrics.f1_at_k(truth, scores, 2)


@worlds()
def test_evaluate_returns_every_metric_in_fixed_order(kind, seed):
    truth, scores = world(kind, seed)
    result = metrics.evaluate(truth, scores)
    assert list(result) == NAMES
    assert all(type(value) is float for value in result.values())
    for name in ONE_VALUE:
        assert result[name] == getattr(metrics, name)(truth, scores)
    assert result["f1_at_5"] == metrics.f1_at_k(truth, scores, 5)
    assert "f1_at_3" in metrics.evaluate(truth, scores, k=3)


@pytest.mark.parametrize("form", ["csr", "csc", "coo", "lil", "dok", "bsr"])
@pytest.mark.parametrize("dtype", [np.bool_, np.int8, np.float64])
def test_sparse_truth_scores_like_dense_truth(form, dtype):
    truth, scores = world("tied", 1)
    sparse = sp.csr_matrix(truth.astype(dtype)).asformat(form)
    assert metrics.evaluate(sparse, scores) == metrics.evaluate(truth, scores)
    assert metrics.evaluate(sp.csr_array(sparse), scores) == metrics.evaluate(truth, scores)


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int32, np.uint8])
def test_scores_of_other_number_types_are_accepted(dtype):
    truth, scores = world("tied", 2)
    scores = np.abs(scores)
    assert metrics.evaluate(truth, scores.astype(dtype)) == metrics.evaluate(truth, scores)


def test_never_is_the_lowest_score():
    truth, scores = world("never", 3)
    assert np.isinf(scores).any()
    lowered = np.where(np.isinf(scores), -1e6, scores)
    assert metrics.evaluate(truth, scores) == metrics.evaluate(truth, lowered)


@pytest.mark.parametrize("entries", [1, 30, 100])
def test_blocks_of_rows_do_not_change_the_result(entries, monkeypatch):
    truth, scores = world("tied", 0)
    whole = metrics.evaluate(truth, scores)
    monkeypatch.setattr(ranking, "BLOCK_ENTRIES", entries)
    assert metrics.evaluate(truth, scores) == whole


def test_inputs_are_left_as_they_were():
    truth, scores = world("tied", 0)
    twice = sp.coo_array(([1, 0, 1], ([0, 0, 1], [0, 0, 1])), shape=(2, 2))
    before = truth.copy(), scores.copy()
    metrics.evaluate(truth, scores)
    metrics.evaluate(twice, [[1, 2], [3, 4]])
    np.testing.assert_array_equal(truth, before[0])
    np.testing.assert_array_equal(scores, before[1])
    assert twice.nnz == 3


@pytest.mark.parametrize("name", [*ONE_VALUE, "f1_at_k"])
def test_no_relevant_label_anywhere_warns_and_gives_nan(name):
    more = (2,) if name == "f1_at_k" else ()
    with pytest.warns(PolysemeWarning, match=f"`{name}` is nan") as caught:
        assert np.isnan(getattr(metrics, name)(np.zeros((3, 4)), np.ones((3, 4)), *more))
    assert len(caught) == 1 and caught[0].filename == __file__


def test_evaluate_warns_once_when_nothing_is_relevant():
    with pytest.warns(PolysemeWarning, match="All metrics are nan") as caught:
        result = metrics.evaluate(np.zeros((3, 4)), np.ones((3, 4)))
    assert len(caught) == 1
    assert list(result) == NAMES and np.isnan(list(result.values())).all()


def test_roc_auc_alone_is_nan_when_no_label_has_a_negative_row():
    with pytest.warns(PolysemeWarning, match="`roc_auc` is nan") as caught:
        result = metrics.evaluate(np.ones((2, 2)), np.eye(2))
    assert [name for name, value in result.items() if np.isnan(value)] == ["roc_auc"]
    assert caught[0].filename == __file__


@pytest.mark.parametrize(
    ("truth", "scores", "message"),
    [
        (np.ones((2, 3)), np.ones((2, 4)), r"`truth` has shape \(2, 3\) but `scores` has shape"),
        (sp.eye_array(3), np.ones((3, 4)), r"`truth` has shape \(3, 3\) but"),
        (np.ones(3), np.ones(3), r"must have two dimensions.*got shape \(3,\)"),
        (np.ones((0, 3)), np.ones((0, 3)), r"at least one row and one label; got shape \(0, 3\)"),
        (np.ones((3, 0)), np.ones((3, 0)), r"got shape \(3, 0\)"),
        ([[0, 2]], [[0.1, 0.2]], r"`truth` must hold 0 and 1 only; got 2"),
        ([[-1, 1]], [[0.1, 0.2]], r"0 and 1 only; got -1"),
        ([[0.5, np.nan]], [[0.1, 0.2]], r"0 and 1 only; got 0.5"),
        (sp.csr_array([[0, 3]]), [[0.1, 0.2]], r"0 and 1 only; got 3"),
        (sp.coo_array(([1, 1], ([0, 0], [0, 0]))), [[0.1]], r"0 and 1 only; got 2"),
        ([["a", "b"]], [[0.1, 0.2]], r"`truth` must be a dense array of real numbers; got data"),
        ([[0, 1]], [["a", "b"]], r"`scores` must be a dense array of real numbers; got data"),
        ([[0, 1]], [[1j, 2j]], r"got data type complex128"),
        ([[0, 1]], sp.csr_array([[0.1, 0.2]]), r"`scores` must be .*; got a sparse matrix"),
        ([[0, 1], [0, 1]], [[1, 2], [np.nan, 1]], r"`scores` contains NaN in row\(s\) 1; use -inf"),
        (np.ones((9, 1)), np.full((9, 1), np.nan), r"row\(s\) 0, 1, 2, 3, 4 and 4 more; use"),
    ],
)
def test_unusable_truth_or_scores_are_refused_in_one_sentence(truth, scores, message):
    for metric in [*(getattr(metrics, name) for name in ONE_VALUE), metrics.evaluate]:
        with pytest.raises(InputError, match=message):
            metric(truth, scores)


@pytest.mark.parametrize("metric", [metrics.example_precision, metrics.concept_precision])
def test_unknown_ties_are_refused(metric):
    with pytest.raises(InputError, match="must be one of 'worst', 'index'; got 'best'"):
        metric([[1, 0]], [[1, 0]], "best")


@pytest.mark.parametrize("k", [0, -1, 1.5, True])
def test_list_length_must_be_a_whole_number_above_zero(k):
    with pytest.raises(InputError, match="`k` of `f1_at_k` must be a whole number at least 1"):
        metrics.f1_at_k([[1, 0]], [[1, 0]], k)
    with pytest.raises(InputError, match="`k` of `evaluate` must be a whole number at least 1"):
        metrics.evaluate([[1, 0]], [[1, 0]], k=k)
