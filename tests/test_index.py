"""Exact search, against brute force in double precision."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import logsumexp

from polyseme._validation import InputError
from polyseme.index import ConceptIndex

# Label 3 has one concept, label 5 none, label 0 most of them.
N_LABELS = 7


def world(n=300, d=6, n_queries=40, seed=0, offset=0.0):
    """Draw concepts with repeats, their labels, and queries, some of them concepts themselves."""
    generator = np.random.default_rng(seed)
    points = (generator.standard_normal((n, d)) + offset).astype(np.float32)
    points[10:40] = points[generator.integers(0, 10, 30)]
    labels = generator.choice([0, 0, 0, 1, 2, 4, 6], n)
    labels[n // 2] = 3
    queries = (generator.standard_normal((n_queries, d)) + offset).astype(np.float32)
    queries[:5] = points[generator.integers(0, n, 5)]
    return points, labels, queries


def squared_distances(points, queries):
    """Give all squared distances, (n_queries, n_concepts), in double precision."""
    difference = queries.astype(np.float64)[:, None, :] - points.astype(np.float64)[None, :, :]
    return (difference**2).sum(axis=2)


def brute_force(points, labels, n_labels, queries):
    """Give the distance to the nearest concept of each label by looking at all of them."""
    squared = squared_distances(points, queries)
    result = np.full((len(queries), n_labels), np.inf)
    for label in range(n_labels):
        if (labels == label).any():
            result[:, label] = np.sqrt(squared[:, labels == label].min(axis=1))
    return result


# --- distances ------------------------------------------------------------------------------


@pytest.mark.parametrize("memory_mb", [1e-9, 0.1, 64.0])
@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
@pytest.mark.parametrize("d", [1, 6, 200])
def test_distances_equal_brute_force(memory_mb, scale, d):
    points, labels, queries = world(n=600, d=d)
    points, queries = points * np.float32(scale), queries * np.float32(scale)
    index = ConceptIndex(points, labels, N_LABELS, memory_mb=memory_mb)
    found = index.distances(queries)
    expected = brute_force(points, labels, N_LABELS, queries)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    assert np.isinf(found[:, 5]).all()
    assert np.isfinite(np.delete(found, 5, axis=1)).all()


@pytest.mark.parametrize("memory_mb", [1e-9, 64.0])
def test_distances_far_from_the_origin_keep_their_precision(memory_mb):
    points, labels, queries = world(d=8, offset=100.0)
    found = ConceptIndex(points, labels, N_LABELS, memory_mb=memory_mb).distances(queries)
    np.testing.assert_allclose(found, brute_force(points, labels, N_LABELS, queries), rtol=1e-5)


@pytest.mark.parametrize("offset", [0.0, 50.0])
def test_near_misses_of_crowded_concepts_are_told_apart(offset):
    generator = np.random.default_rng(2)
    centre = generator.uniform(-1, 1, (1, 50)) + offset
    points = (centre + 1e-3 * generator.standard_normal((400, 50))).astype(np.float32)
    queries = (centre + 1e-3 * generator.standard_normal((30, 50))).astype(np.float32)
    labels = np.arange(400) % 7
    found = ConceptIndex(points, labels, 7).distances(queries)
    np.testing.assert_allclose(found, brute_force(points, labels, 7, queries), rtol=1e-5)


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
@pytest.mark.parametrize("memory_mb", [1e-9, 64.0])
def test_distance_to_itself_is_exactly_zero(scale, memory_mb):
    points, labels, _ = world(n=500, d=40)
    points = points * np.float32(scale)
    found = ConceptIndex(points, labels, N_LABELS, memory_mb=memory_mb).distances(points)
    assert (found[np.arange(500), labels] == 0).all()


@settings(deadline=None, max_examples=50)
@given(
    st.lists(
        st.tuples(st.integers(-3, 3), st.integers(-3, 3), st.integers(0, 3)),
        min_size=1,
        max_size=25,
    ),
    st.lists(st.tuples(st.integers(-3, 3), st.integers(-3, 3)), min_size=1, max_size=8),
    st.integers(0, 4),
)
def test_small_grids_equal_brute_force(concepts, asked, decimals):
    table = np.array(concepts)
    points, labels = (table[:, :2] * 10.0**-decimals).astype(np.float32), table[:, 2]
    queries = (np.array(asked) * 10.0**-decimals).astype(np.float32)
    found = ConceptIndex(points, labels, 5).distances(queries)
    np.testing.assert_allclose(found, brute_force(points, labels, 5, queries), rtol=1e-5)


def test_repeats_are_stored_once_and_change_nothing():
    points, labels, queries = world()
    index = ConceptIndex(points, labels, N_LABELS)
    rows = {(int(label), *point.tolist()) for point, label in zip(points, labels, strict=True)}
    assert index.n_concepts == len(rows) < len(points)
    np.testing.assert_array_equal(index.n_occurrences, np.bincount(labels, minlength=N_LABELS))
    repeated = ConceptIndex(np.repeat(points, 3, axis=0), np.repeat(labels, 3), N_LABELS)
    assert repeated.n_concepts == index.n_concepts
    np.testing.assert_array_equal(repeated.distances(queries), index.distances(queries))
    np.testing.assert_array_equal(repeated.n_occurrences, 3 * index.n_occurrences)


def test_minus_zero_is_zero_and_equal_points_of_two_labels_stay_two():
    index = ConceptIndex([[0.0, 1.0], [-0.0, 1.0], [0.0, 1.0]], [0, 0, 1], 2)
    assert index.n_concepts == 2
    np.testing.assert_array_equal(index.n_occurrences, [2, 1])


def test_order_of_concepts_does_not_matter():
    points, labels, queries = world()
    order = np.random.default_rng(5).permutation(len(points))
    first = ConceptIndex(points, labels, N_LABELS).distances(queries)
    second = ConceptIndex(points[order], labels[order], N_LABELS).distances(queries)
    np.testing.assert_array_equal(first, second)


# --- densities ------------------------------------------------------------------------------


def plain_log_densities(points, labels, counts, n_labels, queries, bandwidth):
    """Sum the kernels of each label with scipy."""
    logs = squared_distances(points, queries) / (-2 * bandwidth**2)
    result = np.full((len(queries), n_labels), -np.inf)
    for label in range(n_labels):
        chosen = labels == label
        if chosen.any():
            result[:, label] = logsumexp(logs[:, chosen], axis=1, b=counts[chosen])
    return result


@pytest.mark.parametrize("memory_mb", [1e-9, 64.0])
@pytest.mark.parametrize("bandwidth", [1e-3, 0.5, 30.0])
@pytest.mark.parametrize("offset", [0.0, 100.0])
def test_log_densities_equal_the_plain_sum(memory_mb, bandwidth, offset):
    points, labels, queries = world(offset=offset)
    counts = np.random.default_rng(1).integers(1, 4, len(points))
    index = ConceptIndex(points, labels, N_LABELS, counts=counts, memory_mb=memory_mb)
    found = index.log_densities(queries, bandwidth)
    expected = plain_log_densities(points, labels, counts, N_LABELS, queries, bandwidth)
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-5)
    assert np.isneginf(found[:, 5]).all()


def test_counted_concepts_weigh_like_repeated_ones():
    points, labels, queries = world()
    counts = np.random.default_rng(1).integers(1, 4, len(points))
    counted = ConceptIndex(points, labels, N_LABELS, counts=counts)
    repeated = ConceptIndex(np.repeat(points, counts, axis=0), np.repeat(labels, counts), N_LABELS)
    np.testing.assert_array_equal(counted.n_occurrences, repeated.n_occurrences)
    np.testing.assert_allclose(
        counted.log_densities(queries, 0.7), repeated.log_densities(queries, 0.7), rtol=1e-12
    )


# --- edges ----------------------------------------------------------------------------------


@pytest.mark.parametrize("n_labels", [0, 3])
def test_empty_index_is_infinitely_far_from_everything(n_labels):
    index = ConceptIndex(np.zeros((0, 2)), [], n_labels)
    assert index.n_concepts == 0
    np.testing.assert_array_equal(index.n_occurrences, np.zeros(n_labels))
    np.testing.assert_array_equal(index.distances(np.ones((4, 2))), np.full((4, n_labels), np.inf))
    densities = index.log_densities(np.ones((4, 2)), 1.0)
    np.testing.assert_array_equal(densities, np.full((4, n_labels), -np.inf))


def test_no_queries_give_no_rows():
    points, labels, _ = world()
    index = ConceptIndex(points, labels, N_LABELS)
    assert index.distances(np.zeros((0, 6))).shape == (0, N_LABELS)
    assert index.log_densities(np.zeros((0, 6)), 1.0).shape == (0, N_LABELS)


def test_one_concept_and_one_query():
    index = ConceptIndex([[3.0, 4.0]], [1], 2)
    np.testing.assert_array_equal(index.distances([[0.0, 0.0]]), [[np.inf, 5.0]])
    np.testing.assert_allclose(index.log_densities([[0.0, 0.0]], 5.0), [[-np.inf, -0.5]])


@pytest.mark.parametrize("n_queries", [1, 600])
@pytest.mark.parametrize("search", ["distances", "log_densities"])
def test_working_memory_is_bounded(n_queries, search):
    generator = np.random.default_rng(0)
    points = generator.standard_normal((30_000, 20)).astype(np.float32)
    queries = generator.standard_normal((n_queries, 20)).astype(np.float32)
    index = ConceptIndex(points, generator.integers(0, 50, 30_000), 50, memory_mb=2.0)
    run = index.distances if search == "distances" else lambda q: index.log_densities(q, 1.0)
    tracemalloc.start()
    result = run(queries)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    fixed = 4 * result.nbytes + queries.nbytes * 4 + 30_000 * 8
    assert peak - fixed < 2.0e6


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([[1.0]], [0, 1], 2), r"`points` \(1, 1\), `label_ids` \(2,\) .* do not belong together"),
        (([1.0], [0], 2), r"`points` \(1,\), .* expected \(m, d\)"),
        (([[1.0]], [2], 2), r"`label_ids` of `ConceptIndex` must lie in 0\.\.1; got 2\.\.2"),
        (([[1.0]], [-1], 2), r"must lie in 0\.\.1; got -1\.\.-1"),
        (([[np.nan]], [0], 2), "`points` of `ConceptIndex` hold NaN or infinity"),
        (([[1e30]], [0], 2), "`points` of `ConceptIndex` hold .* numbers beyond 1e15"),
        (([[1.0]], [0], -1), "`n_labels` of `ConceptIndex` must be a whole number at least 0"),
    ],
)
def test_unusable_concepts_are_refused(arguments, message):
    with pytest.raises(InputError, match=message):
        ConceptIndex(*arguments)


def test_unusable_options_are_refused():
    with pytest.raises(InputError, match=r"`counts` \(2,\) of `ConceptIndex` do not belong"):
        ConceptIndex([[1.0]], [0], 1, counts=[1, 2])
    with pytest.raises(InputError, match="`counts` of `ConceptIndex` must be at least 1; got 0"):
        ConceptIndex([[1.0]], [0], 1, counts=[0])
    with pytest.raises(InputError, match="`memory_mb` of `ConceptIndex` must be a number above 0"):
        ConceptIndex([[1.0]], [0], 1, memory_mb=0)


@pytest.mark.parametrize(
    ("queries", "message"),
    [
        ([[1.0, 2.0]], r"`queries` of `ConceptIndex` have shape \(1, 2\); expected \(q, 1\)"),
        ([1.0], r"have shape \(1,\); expected \(q, 1\)"),
        ([[np.inf]], "`queries` of `ConceptIndex` hold NaN or infinity"),
    ],
)
def test_unusable_queries_are_refused(queries, message):
    index = ConceptIndex([[1.0]], [0], 1)
    with pytest.raises(InputError, match=message):
        index.distances(queries)
    with pytest.raises(InputError, match=message):
        index.log_densities(queries, 1.0)


def test_bandwidth_must_be_positive():
    with pytest.raises(InputError, match="`bandwidth` of `ConceptIndex` must be a number above 0"):
        ConceptIndex([[1.0]], [0], 1).log_densities([[1.0]], 0.0)
