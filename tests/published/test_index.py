"""Exact search: every device against plain loops in double precision, also on awkward input."""

from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy.spatial.distance import cdist
from scipy.special import logsumexp
from torch.cuda import is_available

import polyseme.published.index as index_module
from polyseme.base.validation import InputError
from polyseme.published.index import ConceptIndex

# The device "cpu:0" goes the way of devices, on the processor.
needs_gpu = pytest.mark.skipif(not is_available(), reason="there is no GPU")
DEVICES = ["cpu:0", pytest.param("cuda", marks=needs_gpu)]
EVERYWHERE = ["cpu", *DEVICES]
N_LABELS = 7


def plain_distances(points, labels, n_labels, queries):
    """Return the distances by looping over queries, in double precision."""
    distances = np.full((len(queries), n_labels), np.inf)
    for row, query in enumerate(queries.astype(np.float64)):
        lengths = np.linalg.norm(points - query, axis=1)
        np.minimum.at(distances[row], labels, lengths)
    return distances


def assert_distances(device, points, labels, queries, **options):
    """Compare the distances on one device with the loop, also to a label without a concept."""
    n_labels = int(labels.max()) + 2
    index = ConceptIndex(points, labels, n_labels, device=device, **options)
    distances = index.distances(queries)
    assert distances.dtype == np.float32
    expected = plain_distances(points, labels, n_labels, queries)
    # NumPy expands squares; other devices measure every winner from its differences.
    tolerance = 1e-5 if device == "cpu" else 2e-6
    assert_allclose(distances, expected, rtol=tolerance)
    assert np.isinf(distances[:, -1]).all()


def normal(generator, *shape):
    return generator.standard_normal(shape).astype(np.float32)


def awkward():
    """Make concepts, labels and queries on which a fast search may go wrong."""
    generator = np.random.default_rng(0)
    points = normal(generator, 1500, 30)
    queries = normal(generator, 40, 30)
    zipf = np.sort(generator.zipf(1.3, 1500) % 40)
    cases = {
        "zipf": (points, zipf, queries),
        "one query": (points, zipf, queries[:1]),
        "seven queries": (points, zipf, queries[:7]),
        "one label": (points, np.zeros(1500, dtype=int), queries),
        "one-concept labels": (points[:300], np.arange(300), queries),
        "one-concept labels with gaps": (points[:300], 3 * np.arange(300), queries),
        "pairs and threes": (points, np.arange(1500) * 2 // 5, queries),
        "small labels among large ones": (
            points,
            np.sort(np.append(np.arange(700), np.repeat([50, 200, 690, 699], 200))),
            queries,
        ),
        "unsorted": (points, generator.permutation(zipf), queries),
        "one concept": (points[:1], np.array([2]), queries),
        "one column": (points[:, :1], zipf, queries[:, :1]),
        "three columns": (points[:, :3], zipf, queries[:, :3]),
        "queries are concepts": (points, zipf, points[::40].copy()),
        "repeats": (np.repeat(points[:100], 15, axis=0), zipf, points[:60]),
        "ties": (np.sign(points), zipf, np.zeros_like(queries)),
        "zero rows": (points * (np.arange(1500)[:, None] % 3 > 0), zipf, queries),
        "all zero": (np.zeros_like(points), zipf, queries),
        "all equal": (np.ones_like(points), zipf, np.ones_like(queries)),
        "constant columns": (np.where(np.arange(30) % 2, points, 7.0), zipf, queries),
        "far from the origin": (points + 1000, zipf, queries + 1000),
        "far queries": (points, zipf, queries * 1e9),
        "one far concept": (np.append(points[:-1], points[:1] * 1e8, axis=0), zipf, queries),
        "mixed scales": (points * 10.0 ** generator.uniform(-9, 9, (1500, 1)), zipf, queries),
        "crowded": (1 + 1e-4 * points, zipf, 1 + 1e-4 * queries),
        "crowded and large": (1e3 + 1e-2 * points, zipf, 1e3 + 1e-2 * queries),
        "largest": (np.sign(points) * 1e15, zipf, np.sign(queries) * 1e15),
        "wide": (normal(generator, 200, 3001), np.arange(200) // 50, normal(generator, 9, 3001)),
    }
    for power in (-18, -12, -6, 6, 12):
        cases[f"scale 1e{power}"] = (points * 10.0**power, zipf, queries * 10.0**power)
    return {
        name: (np.asarray(p, np.float32), labels.astype(np.int64), np.asarray(q, np.float32))
        for name, (p, labels, q) in cases.items()
    }


CASES = awkward()


# --- distances ------------------------------------------------------------------------------


@pytest.mark.parametrize("device", EVERYWHERE)
@pytest.mark.parametrize("name", CASES)
def test_distances_equal_the_loop(device, name):
    assert_distances(device, *CASES[name])


@pytest.mark.parametrize("device", EVERYWHERE)
@pytest.mark.parametrize("name", ["queries are concepts", "all equal", "crowded and large"])
def test_distance_to_a_concept_itself_is_zero(device, name):
    points, labels, _ = CASES[name]
    n_labels = int(labels.max()) + 1
    index = ConceptIndex(points, labels, n_labels, device=device)
    distances = index.distances(points[:200])
    own_distances = distances[np.arange(200), labels[:200]]
    assert (own_distances == 0).all()


SIZES = [(n, 13) for n in (1, 11, 12, 13, 16, 63, 65, 251, 252, 253, 504, 512, 513, 1100)]
SIZES += [(700, n_queries) for n_queries in (1, 5, 6, 15, 16, 17, 31, 32, 33, 64, 65, 530)]


@pytest.mark.parametrize("device", EVERYWHERE)
@pytest.mark.parametrize(("n", "n_queries"), SIZES)
def test_every_number_of_concepts_and_queries_is_searched_to_its_end(device, n, n_queries):
    generator = np.random.default_rng(n + n_queries)
    labels = np.sort(generator.zipf(1.5, n) % 20)
    points = normal(generator, n, 5)
    queries = normal(generator, n_queries, 5)
    assert_distances(device, points, labels, queries)


@pytest.mark.parametrize("device", EVERYWHERE)
@pytest.mark.parametrize("memory_mb", [1e-9, 0.1, 1.0])
@pytest.mark.parametrize("name", ["zipf", "far from the origin", "small labels among large ones"])
def test_blocks_of_any_size_agree(device, memory_mb, name):
    assert_distances(device, *CASES[name], memory_mb=memory_mb)


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.integers(1, 400), min_size=1, max_size=30),
    st.integers(1, 9),
    st.integers(1, 70),
    st.integers(-12, 12),
    st.integers(0, 1000),
)
def test_ties_and_repeats_of_any_scale_are_searched(sizes, d, n_queries, power, seed):
    generator = np.random.default_rng(seed)
    labels = np.repeat(np.arange(len(sizes)), sizes)
    scale = 10.0**power
    # Few distinct values: ties and repeats are common.
    points = scale * generator.integers(-3, 4, (len(labels), d))
    queries = scale * generator.integers(-3, 4, (n_queries, d))
    assert_distances(
        "cpu",
        points.astype(np.float32),
        labels,
        queries.astype(np.float32),
    )


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_threads_change_nothing(threads, monkeypatch):
    shared = []
    run_all = index_module.run_all
    monkeypatch.setattr(index_module, "n_threads", lambda: threads)
    monkeypatch.setattr(index_module, "_BLOCK_QUERIES", 9)
    monkeypatch.setattr(
        index_module, "run_all", lambda calls, n: shared.append(n) or run_all(calls, n)
    )
    points, labels, queries = CASES["zipf"]
    for n_queries in (2, 7, 40):
        assert_distances("cpu", points, labels, queries[:n_queries])
        assert shared[-1] == threads


def test_unknown_devices_are_refused():
    index = ConceptIndex([[1.0]], [0], 1, device="nowhere")
    with pytest.raises(InputError, match="`device` of `ConceptIndex` must be a device of torch"):
        index.distances([[1.0]])


# --- repeats and order ----------------------------------------------------------------------


def world(n=300, d=6, n_queries=40, offset=0.0):
    """Draw concepts with repeats, their labels (one for 3, none for 5), counts and queries."""
    generator = np.random.default_rng(0)
    points = normal(generator, n, d) + np.float32(offset)
    repeated_rows = generator.integers(0, 10, 30)
    points[10:40] = points[repeated_rows]
    labels = generator.choice([0, 0, 0, 1, 2, 4, 6], n)
    labels[n // 2] = 3
    queries = normal(generator, n_queries, d) + np.float32(offset)
    counts = generator.integers(1, 4, n)
    return points, labels, counts, queries


def test_repeats_are_stored_once_and_change_nothing():
    points, labels, _, queries = world()
    index = ConceptIndex(points, labels, N_LABELS)
    concepts = np.unique(np.column_stack([labels, points]), axis=0)
    assert index.n_concepts == len(concepts)
    assert len(concepts) < len(points)
    counts = np.bincount(labels, minlength=N_LABELS)
    assert_array_equal(index.n_occurrences, counts)

    rows = np.repeat(np.arange(len(points)), 3)
    generator = np.random.default_rng(5)
    order = generator.permutation(rows)
    repeated = ConceptIndex(points[order], labels[order], N_LABELS)
    assert repeated.n_concepts == index.n_concepts
    assert_array_equal(repeated.n_occurrences, 3 * counts)
    distances = repeated.distances(queries)
    assert_array_equal(distances, index.distances(queries))


@settings(deadline=None, max_examples=100)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 2), st.integers(1, 3), *[st.sampled_from([-1.0, -0.0, 0.0, 1.0])] * 3
        ),
        min_size=1,
        max_size=40,
    )
)
def test_equal_concepts_of_a_label_are_joined(table):
    rows = np.array(table)
    labels = rows[:, 0]
    counts = rows[:, 1]
    points = rows[:, 2:] + 0.0  # which makes negative zeros positive
    totals = Counter()
    for label, count, point in zip(labels.tolist(), counts, points.tolist(), strict=True):
        totals[label, *point] += count
    index = ConceptIndex(rows[:, 2:], labels, 3, counts=counts)
    assert index.n_concepts == len(totals)

    concepts = index._concepts
    joined_labels = np.repeat(concepts.segments, np.diff(concepts.starts)).tolist()
    joined_points = (concepts.points + 0.0).tolist()
    joined = {}
    for label, point, count in zip(joined_labels, joined_points, concepts.counts, strict=True):
        joined[label, *point] = count
    assert joined == totals


def test_keys_that_collide_change_no_result(monkeypatch):
    points, labels, counts, queries = world()
    expected = ConceptIndex(points, labels, N_LABELS, counts=counts)

    def equal_keys(points, labels):
        return np.zeros(len(labels), dtype=np.uint64)

    monkeypatch.setattr(index_module, "_keys", equal_keys)
    index = ConceptIndex(points, labels, N_LABELS, counts=counts)
    assert_array_equal(index.n_occurrences, expected.n_occurrences)
    distances = index.distances(queries)
    assert_allclose(distances, expected.distances(queries), rtol=1e-6)
    densities = index.log_densities(queries, 0.7)
    assert_allclose(densities, expected.log_densities(queries, 0.7), rtol=1e-12)


ALL_SIGNS = np.array(list(itertools.product([-1.0, 1.0], repeat=10)), dtype=np.float32)


@pytest.mark.parametrize("rows", [ALL_SIGNS, np.eye(50, dtype=np.float32)], ids=["signs", "places"])
def test_keys_tell_signs_and_places_apart(rows):
    label = np.zeros(len(rows), dtype=np.int64)
    keys = index_module._keys(rows, label)
    assert len(np.unique(keys)) == len(rows)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_no_more_than_one_copy_is_held(dtype, most_bytes):
    generator = np.random.default_rng(0)
    points = normal(generator, 60_000, 100).astype(dtype)
    labels = generator.integers(0, 9, 60_000)
    index, peak = most_bytes(ConceptIndex, points, labels, 9)
    assert index._concepts.points.nbytes == 24e6
    assert peak < 1.7 * 24e6


def test_sorted_points_are_not_copied():
    points = normal(np.random.default_rng(0), 60_000, 100).astype(np.float32)
    sorted_labels = np.arange(60_000) // 7
    index = ConceptIndex(points, sorted_labels, 10_000)
    assert index._concepts.points is points


# --- densities ------------------------------------------------------------------------------


@pytest.mark.parametrize("device", EVERYWHERE)
@pytest.mark.parametrize("memory_mb", [1e-9, 64.0])
@pytest.mark.parametrize("bandwidth", [1e-3, 0.5, 30.0])
@pytest.mark.parametrize("offset", [0.0, 100.0])
def test_log_densities_equal_the_plain_sum(device, memory_mb, bandwidth, offset):
    points, labels, counts, queries = world(offset=offset)
    index = ConceptIndex(
        points,
        labels,
        N_LABELS,
        counts=counts,
        memory_mb=memory_mb,
        device=device,
    )
    densities = index.log_densities(queries, bandwidth)
    squared_distances = cdist(queries, points, "sqeuclidean")
    kernels = squared_distances / (-2 * bandwidth**2)
    expected = np.full((len(queries), N_LABELS), -np.inf)
    for label in np.unique(labels):
        rows = labels == label
        expected[:, label] = logsumexp(kernels[:, rows], axis=1, b=counts[rows])
    assert_allclose(densities, expected, rtol=1e-6, atol=1e-5)
    assert np.isneginf(densities[:, 5]).all()


# --- edges ----------------------------------------------------------------------------------


@pytest.mark.parametrize("n_labels", [0, 3])
def test_an_empty_index_is_infinitely_far_from_everything(n_labels):
    index = ConceptIndex(np.zeros((0, 2)), [], n_labels)
    assert index.n_concepts == 0
    assert_array_equal(index.n_occurrences, np.zeros(n_labels))
    queries = np.ones((4, 2))
    infinite = np.full((4, n_labels), np.inf)
    assert_array_equal(index.distances(queries), infinite)
    densities = index.log_densities(queries, 1.0)
    assert_array_equal(densities, -infinite)


def test_no_queries_give_no_rows():
    index = ConceptIndex([[3.0, 4.0]], [1], 2)
    no_queries = np.zeros((0, 2))
    assert index.distances(no_queries).shape == (0, 2)
    assert index.log_densities(no_queries, 1.0).shape == (0, 2)


def test_points_without_components_are_at_distance_zero():
    index = ConceptIndex(np.zeros((3, 0)), [0, 0, 2], 4)
    assert index.n_concepts == 2
    distances = index.distances(np.zeros((5, 0)))
    expected = [[0.0, np.inf, 0.0, np.inf]] * 5
    assert_array_equal(distances, expected)


@pytest.mark.parametrize("n_queries", [1, 600])
@pytest.mark.parametrize("memory_mb", [2.0, 64.0])
@pytest.mark.parametrize("name", ["distances", "log_densities"])
def test_working_memory_is_bounded(n_queries, memory_mb, name, most_bytes):
    generator = np.random.default_rng(0)
    points = normal(generator, 30_000, 20)
    queries = normal(generator, n_queries, 20)
    labels = generator.integers(0, 50, 30_000)
    index = ConceptIndex(points, labels, 50, memory_mb=memory_mb)
    bandwidth = [1.0] if name == "log_densities" else []
    search = getattr(index, name)
    result, peak = most_bytes(search, queries, *bandwidth)
    fixed = 4 * result.nbytes + 4 * queries.nbytes + 30_000 * 8
    assert peak - fixed < min(memory_mb, 20.0) * 1e6


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        (([[1.0]], [0, 1], 2), {}, r"`points` \(1, 1\), `label_ids` \(2,\) .* do not belong tog"),
        (([1.0], [0], 2), {}, r"`points` \(1,\), .* expected \(m, d\)"),
        (([[1.0]], [2], 2), {}, r"`label_ids` of `ConceptIndex` must lie in 0\.\.1; got 2\.\.2"),
        (([[1.0]], [-1], 2), {}, r"must lie in 0\.\.1; got -1\.\.-1"),
        (([[np.nan]], [0], 2), {}, "`points` of `ConceptIndex` hold NaN or infinity"),
        (([[1e30]], [0], 2), {}, "`points` of `ConceptIndex` hold .* numbers beyond 1e15"),
        ((np.array([[np.inf]], np.float16), [0], 2), {}, "`points` of `ConceptIndex` hold NaN or"),
        (([[1.0]], [0], -1), {}, "`n_labels` of `ConceptIndex` must be a whole number at least 0"),
        (([[1.0]], [0], 1), {"counts": [1, 2]}, r"`counts` \(2,\) of `ConceptIndex` do not belong"),
        (([[1.0]], [0], 1), {"counts": [0]}, "`counts` of `ConceptIndex` must be at least 1; got"),
        (([[1.0]], [0], 1), {"memory_mb": 0}, "`memory_mb` of `ConceptIndex` must be a number abo"),
    ],
)
def test_unusable_concepts_and_options_are_refused(arguments, options, message):
    with pytest.raises(InputError, match=message):
        ConceptIndex(*arguments, **options)


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
    with pytest.raises(InputError, match="`bandwidth` of `ConceptIndex` must be a number above 0"):
        index.log_densities([[1.0]], 0.0)


def test_points_at_odd_addresses_are_moved():
    buffer = np.zeros(1 + 4 * 6, dtype=np.uint8)
    points = np.frombuffer(buffer.data, dtype=np.float32, offset=1).reshape(3, 2)
    assert not points.flags.aligned
    index = ConceptIndex(points, [0, 1, 2], n_labels=3)
    stored_points = index._concepts.points
    assert stored_points.flags.aligned
    distances = index.distances(points)
    assert not distances.any()
