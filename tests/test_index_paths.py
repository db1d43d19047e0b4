"""Every way of searching gives the same distances, on ordinary and on awkward concepts."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polyseme import _native
from polyseme._validation import InputError
from polyseme.index import ConceptIndex, compiled, portable
from polyseme.index.by_label import SortedConcepts
from polyseme.index.device import DeviceConcepts
from polyseme.index.distinct import distinct

PATHS = ["numpy", "generic", "avx2", "vnni", "torch"]


def search(path, points, labels, n_labels, queries, memory_mb=64.0):
    """Search along one path, or skip where it is not there."""
    counts = np.ones(len(labels), dtype=np.int64)
    concepts = SortedConcepts(*distinct(points, labels, counts))
    if path == "numpy":
        return portable.distances(concepts, queries, n_labels, memory_mb)
    if path == "torch":
        return DeviceConcepts(concepts, n_labels, "cpu", memory_mb).distances(queries)
    library = _native.library()
    if library is None:
        pytest.skip("the native library was not built or is turned off")
    if _native.LEVELS.index(path) > library.polyseme_level():
        pytest.skip(f"this processor does not know {path}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("POLYSEME_NATIVE", path)
        packed = compiled.searcher(concepts)
        assert packed is not None
        return packed.distances(queries, n_labels)


def plain(points, labels, n_labels, queries):
    """Give the distances by looping over queries, in double precision."""
    result = np.full((len(queries), n_labels), np.inf)
    for row, query in enumerate(queries.astype(np.float64)):
        np.minimum.at(result[row], labels, np.sqrt(((points - query) ** 2).sum(axis=1)))
    return result


def normal(generator, *shape):
    return generator.standard_normal(shape).astype(np.float32)


def awkward():
    """Make concepts, labels and queries on which a fast way may go wrong."""
    generator = np.random.default_rng(0)
    points, queries = normal(generator, 1500, 30), normal(generator, 40, 30)
    zipf = np.sort(generator.zipf(1.3, 1500) % 40)
    cases = {
        "zipf": (points, zipf, queries),
        "one query": (points, zipf, queries[:1]),
        "two queries": (points, zipf, queries[:2]),
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
    }
    for power in (-18, -12, -6, 6, 12):
        cases[f"scale 1e{power}"] = (points * 10.0**power, zipf, queries * 10.0**power)
    return {
        name: (np.asarray(p, np.float32), labels.astype(np.int64), np.asarray(q, np.float32))
        for name, (p, labels, q) in cases.items()
    }


CASES = awkward()


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("name", CASES)
def test_every_path_equals_the_plain_loop(path, name):
    points, labels, queries = CASES[name]
    n_labels = int(labels.max()) + 2
    found = search(path, points, labels, n_labels, queries)
    expected = plain(points, labels, n_labels, queries)
    assert found.dtype == np.float32
    # The numpy path expands squares; the others measure every winner from its differences.
    np.testing.assert_allclose(found, expected, rtol=1e-5 if path == "numpy" else 2e-6)
    assert np.isinf(found[:, -1]).all()


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("name", ["queries are concepts", "all equal", "crowded and large"])
def test_distance_to_a_concept_itself_is_zero_on_every_path(path, name):
    points, labels, _ = CASES[name]
    found = search(path, points, labels, int(labels.max()) + 1, points[:200])
    assert (found[np.arange(200), labels[:200]] == 0).all()


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("n", [1, 11, 12, 13, 16, 63, 65, 251, 252, 253, 504, 512, 513, 1100])
def test_every_number_of_concepts_is_searched_to_its_end(path, n):
    generator = np.random.default_rng(n)
    points, queries = normal(generator, n, 5), normal(generator, 13, 5)
    labels = np.sort(generator.integers(0, 4, n))
    found = search(path, points, labels, 4, queries)
    np.testing.assert_allclose(found, plain(points, labels, 4, queries), rtol=1e-5)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("n_queries", [1, 5, 6, 15, 16, 17, 31, 32, 33, 64, 65, 530])
def test_every_number_of_queries_is_answered(path, n_queries):
    generator = np.random.default_rng(n_queries)
    points, queries = normal(generator, 700, 9), normal(generator, n_queries, 9)
    labels = np.sort(generator.zipf(1.5, 700) % 20)
    found = search(path, points, labels, 20, queries)
    np.testing.assert_allclose(found, plain(points, labels, 20, queries), rtol=1e-5)


def test_what_fails_in_a_thread_is_raised():
    done = []

    def fail(error):
        raise error("no room")

    for error in (MemoryError, IndexError):
        with pytest.raises(error, match="no room"):
            compiled._run(
                [lambda error=error: fail(error), *[lambda: done.append(1)] * 3], threads=2
            )
    compiled._run([lambda: done.append(2)] * 5, threads=3)
    assert done.count(2) == 5


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.integers(1, 400), min_size=1, max_size=30),
    st.integers(1, 9),
    st.integers(1, 70),
    st.integers(-12, 12),
    st.integers(0, 1000),
)
def test_compiled_and_numpy_agree(sizes, d, n_queries, power, seed):
    generator = np.random.default_rng(seed)
    labels = np.repeat(np.arange(len(sizes)), sizes)
    # Few distinct values: ties and repeats are common.
    points = (generator.integers(-3, 4, (len(labels), d)) * 10.0**power).astype(np.float32)
    queries = (generator.integers(-3, 4, (n_queries, d)) * 10.0**power).astype(np.float32)
    by_numpy = search("numpy", points, labels, len(sizes), queries)
    level = _native.LEVELS[_native.level()]
    np.testing.assert_allclose(
        search(level, points, labels, len(sizes), queries), by_numpy, rtol=1e-5
    )


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("path", _native.LEVELS)
def test_threads_change_nothing(path, threads, monkeypatch):
    if _native.library() is None:
        pytest.skip("the native library was not built or is turned off")
    started = []
    start = compiled.start_new_thread
    monkeypatch.setattr(_native, "n_threads", lambda: threads)
    monkeypatch.setattr(compiled, "_ENOUGH", 1e4)
    monkeypatch.setattr(compiled, "_WORTH", 1.0)
    monkeypatch.setattr(
        compiled, "start_new_thread", lambda *given: started.append(1) or start(*given)
    )
    points, labels, queries = CASES["zipf"]
    expected = plain(points, labels, 40, queries)
    for n_queries in (2, 7, 40):
        started.clear()
        found = search(path, points, labels, 40, queries[:n_queries])
        np.testing.assert_allclose(found, expected[:n_queries], rtol=2e-6)
        assert (len(started) > 0) == (threads > 1)


@pytest.mark.parametrize("missing", ["affinity", "threads"])
def test_searches_do_with_what_the_system_gives(missing, monkeypatch):
    def refuse(*_):
        raise PermissionError("no") if missing == "affinity" else RuntimeError("no more threads")

    monkeypatch.setattr(_native, "n_threads", lambda: 3)
    if missing == "affinity":
        monkeypatch.setattr("os.sched_setaffinity", refuse, raising=False)
    else:
        monkeypatch.setattr(compiled, "start_new_thread", refuse)
    done = []
    compiled._run([lambda: done.append(1)] * 20)
    assert len(done) == 20


def test_wide_concepts_are_searched():
    generator = np.random.default_rng(0)
    points, queries = normal(generator, 200, 3001), normal(generator, 9, 3001)
    labels = np.arange(200) // 50
    expected = plain(points, labels, 4, queries)
    for path in ["numpy", _native.LEVELS[_native.level()]]:
        np.testing.assert_allclose(search(path, points, labels, 4, queries), expected, rtol=1e-5)


def test_the_index_falls_back_to_numpy_by_itself(monkeypatch):
    points, labels, queries = CASES["zipf"]
    monkeypatch.setenv("POLYSEME_NATIVE", "0")
    index = ConceptIndex(points, labels, 40)
    found = index.distances(queries)
    assert index._compiled is None
    monkeypatch.delenv("POLYSEME_NATIVE")
    np.testing.assert_allclose(
        ConceptIndex(points, labels, 40).distances(queries), found, rtol=1e-5
    )


def test_concepts_without_components_lie_at_distance_zero():
    index = ConceptIndex(np.zeros((3, 0)), [0, 0, 2], 4)
    assert index.n_concepts == 2
    expected = [[0.0, np.inf, 0.0, np.inf]] * 5
    np.testing.assert_array_equal(index.distances(np.zeros((5, 0))), expected)


@pytest.mark.parametrize("memory_mb", [1e-9, 1.0])
def test_torch_blocks_of_any_size_agree(memory_mb):
    points, labels, queries = CASES["zipf"]
    found = search("torch", points, labels, 41, queries, memory_mb=memory_mb)
    np.testing.assert_allclose(found, plain(points, labels, 41, queries), rtol=2e-6)


def test_torch_densities_equal_those_of_numpy():
    points, labels, queries = CASES["unsorted"]
    counts = np.random.default_rng(3).integers(1, 5, len(labels))
    concepts = SortedConcepts(*distinct(points, labels, counts))
    found = DeviceConcepts(concepts, 42, "cpu", 0.2).log_densities(queries, 0.8)
    expected = ConceptIndex(points, labels, 42, counts=counts).log_densities(queries, 0.8)
    np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_unknown_devices_are_refused():
    index = ConceptIndex([[1.0]], [0], 1, device="nowhere")
    with pytest.raises(InputError, match="`device` of `ConceptIndex` must be a device of torch"):
        index.distances([[1.0]])


def test_cuda_equals_the_plain_loop():
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("there is no GPU")
    for name, (points, labels, queries) in CASES.items():
        n_labels = int(labels.max()) + 2
        found = ConceptIndex(points, labels, n_labels, device="cuda").distances(queries)
        expected = plain(points, labels, n_labels, queries)
        np.testing.assert_allclose(found, expected, rtol=2e-6, err_msg=name)


def test_fused_kernel_equals_the_plain_loop(monkeypatch):
    torch = pytest.importorskip("torch")
    pytest.importorskip("triton", reason="triton is not installed")
    if not torch.cuda.is_available():
        pytest.skip("there is no GPU")
    monkeypatch.setattr("polyseme.index.fused._MOST_PADDING", 1e9)
    for name, (points, labels, queries) in CASES.items():
        n_labels = int(labels.max()) + 2
        concepts = SortedConcepts(*distinct(points, labels, np.ones(len(labels), dtype=np.int64)))
        held = DeviceConcepts(concepts, n_labels, "cuda", 256.0, fused=True)
        assert held.fused is not None
        expected = plain(points, labels, n_labels, queries)
        np.testing.assert_allclose(held.distances(queries), expected, rtol=2e-6, err_msg=name)


@pytest.mark.parametrize("n_queries", [1, 600])
def test_working_memory_stays_small_at_the_default_limit(n_queries):
    generator = np.random.default_rng(0)
    points = generator.standard_normal((40_000, 60), dtype=np.float32)
    labels = np.sort(generator.integers(0, 100, 40_000))
    queries = generator.standard_normal((n_queries, 60), dtype=np.float32)
    concepts = SortedConcepts(points, labels, np.ones(40_000, dtype=np.int64))
    tracemalloc.start()
    result = portable.distances(concepts, queries, 100, 64.0)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak - result.nbytes < 20e6
