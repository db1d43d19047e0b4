"""Priming: the smallest distance from each query to each label's concepts, exactly."""

from __future__ import annotations

import ctypes
import os

# Threads of OpenMP that wait by spinning would slow down whoever is timed next.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import sys
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from _reporting import Cell, Ratio, Report, Table, command_line, seconds_of
from numpy.typing import NDArray
from sklearn.metrics.pairwise import euclidean_distances

Array = NDArray[Any]
D = 200
SAMPLE = 6
KEPT = "bare float32 GEMM, all products kept"


class World:
    """Concepts sorted by label, queries, and what every way needs beforehand."""

    def __init__(self, n: int, n_labels: int, n_queries: int, one_each: bool = False) -> None:
        generator = np.random.default_rng(0)
        self.n, self.n_labels = n, n_labels
        self.points = generator.standard_normal((n, D), dtype=np.float32)
        self.queries = generator.standard_normal((n_queries, D), dtype=np.float32)
        if one_each:
            sizes = np.ones(n_labels, dtype=np.int64)
        else:
            shares = 1.0 / np.arange(1, n_labels + 1)
            sizes = np.maximum(1, np.floor(n * shares / shares.sum())).astype(np.int64)
            sizes[0] += n - sizes.sum()
            generator.shuffle(sizes)
        self.labels = np.repeat(np.arange(n_labels), sizes)
        self.starts = np.append(0, np.cumsum(sizes)[:-1])
        self.squares = np.einsum("ij,ij->i", self.points, self.points)

    @cached_property
    def exact(self) -> Array:
        """Distances of a few queries in float64, from the differences."""
        found = []
        for query in self.queries[:SAMPLE].astype(np.float64):
            squared = np.empty(self.n)
            for at in range(0, self.n, 2000):
                gaps = self.points[at : at + 2000] - query
                squared[at : at + 2000] = np.einsum("ij,ij->i", gaps, gaps)
            found.append(np.sqrt(np.minimum.reduceat(squared, self.starts)))
        return np.array(found)

    def difference(self, found: Array) -> float:
        """Return the largest difference to float64 over some queries."""
        return float(np.abs(found[:SAMPLE] - self.exact).max())


# --------------------------------------------------------------------- ways


def gemm(world: World, queries: Array, block: int) -> Callable[[], None]:
    """Multiply only, in blocks whose product stays in the cache."""
    out = np.empty((block, len(queries)), dtype=np.float32)

    def run() -> None:
        for at in range(0, world.n, block):
            part = world.points[at : at + block]
            np.matmul(part, queries.T, out=out[: len(part)])

    return run


def kept_gemm(world: World, queries: Array) -> Callable[[], Array]:
    """Multiply and keep all products, which is what labels of one concept each ask for."""
    return lambda: queries @ world.points.T


def plain_numpy(world: World, queries: Array) -> Array:
    """All distances of a few hundred queries at once, then `reduceat`: what one writes first."""
    step = max(1, 200_000_000 // world.n)
    found = []
    for at in range(0, len(queries), step):
        part = queries[at : at + step]
        squared = part @ world.points.T
        squared *= -2.0
        squared += world.squares
        squared += np.einsum("ij,ij->i", part, part)[:, None]
        np.maximum(squared, 0.0, out=squared)
        found.append(np.sqrt(np.minimum.reduceat(squared, world.starts, axis=1)))
    return np.concatenate(found)


def one_query_numpy(world: World, query: Array) -> Array:
    """Do the same for one query."""
    squared = world.points @ query[0]
    squared *= -2.0
    squared += world.squares
    squared += query[0] @ query[0]
    nearest = np.minimum.reduceat(squared, world.starts)
    return np.sqrt(np.maximum(nearest, 0.0))[None]


def torch_cdist(world: World, queries: Array) -> Array:
    """Distances by `torch.cdist`, smallest of each label by `scatter_reduce`."""
    points, labels = torch.from_numpy(world.points), torch.from_numpy(world.labels)
    step = max(1, 100_000_000 // world.n)
    found = []
    for at in range(0, len(queries), step):
        part = torch.cdist(torch.from_numpy(queries[at : at + step]), points)
        result = torch.full((len(part), world.n_labels), torch.inf)
        found.append(result.scatter_reduce(1, labels.expand(len(part), -1), part, "amin"))
    return np.asarray(torch.cat(found))


def scikit(world: World, queries: Array) -> Array:
    """Distances by scikit-learn, some queries at a time, smallest of each label by `reduceat`."""
    step = max(1, 50_000_000 // world.n)
    return np.concatenate(
        [
            np.minimum.reduceat(
                euclidean_distances(queries[at : at + step], world.points), world.starts, axis=1
            )
            for at in range(0, len(queries), step)
        ]
    )


def faiss_flat(world: World) -> Callable[[Array], object] | None:
    """Ten nearest concepts of all, exactly; faiss has no minimum by label."""
    try:
        import faiss
    except ImportError:
        return None
    faiss.omp_set_num_threads(len(os.sched_getaffinity(0)))
    index = faiss.IndexFlatL2(D)
    index.add(world.points)
    return lambda queries: index.search(queries, 10)


# --------------------------------------------------------------------- memory


def working_mb(way: Callable[[], object]) -> float | None:
    """Return the most memory a call holds beyond what was there and what it returns."""
    status, marks = Path("/proc/self/status"), Path("/proc/self/clear_refs")
    if sys.platform != "linux" or not os.access(marks, os.W_OK):
        return None
    ctypes.CDLL(None).malloc_trim(0)
    marks.write_text("5")  # the peak starts again from here
    before = _status_kb(status, "VmRSS")
    result = way()
    peak = _status_kb(status, "VmHWM") - before
    return max(0.0, peak / 1024 - getattr(result, "nbytes", 0) / 2**20)


def _status_kb(path: Path, name: str) -> int:
    line = next(one for one in path.read_text().splitlines() if one.startswith(name))
    return int(line.split()[1])


# --------------------------------------------------------------------- tables


def batch(
    world: World, slow_queries: int, repeats: int, title: str
) -> tuple[Table, dict[str, float]]:
    """Compare all ways on many queries; slow ones on fewer, scaled up."""
    from polyseme.published.index import ConceptIndex

    queries, fewer = world.queries, world.queries[:slow_queries]
    index = ConceptIndex(world.points, world.labels, world.n_labels)
    index.distances(queries[:1])
    searches = faiss_flat(world)
    quick: dict[str, Callable[[], Any]] = {
        "bare float32 GEMM, blocks of 1,024": gemm(world, queries, 1024),
        "bare float32 GEMM, blocks of 16,384": gemm(world, queries, 16384),
        "polyseme": lambda: index.distances(queries),
    }
    if world.n == world.n_labels:
        quick[KEPT] = kept_gemm(world, queries)
    if searches is not None:
        quick["faiss flat, top 10 (no minima by label)"] = lambda: searches(queries)
    slow: dict[str, Callable[[], Any]] = {
        "numpy distances + reduceat": lambda: plain_numpy(world, fewer),
        "torch cdist + scatter amin": lambda: torch_cdist(world, fewer),
        "scikit-learn distances + reduceat": lambda: scikit(world, fewer),
    }
    seconds = seconds_of(quick, repeats)
    scale = len(queries) / len(fewer)
    seconds |= {name: s * scale for name, s in seconds_of(slow, 1, warm=False).items()}
    bare = min(value for name, value in seconds.items() if "GEMM" in name and name != KEPT)
    rows: list[list[Cell]] = []
    for name, way in (quick | slow).items():
        found: list[Any] = []
        memory = working_mb(lambda way=way, found=found: found.append(way()) or found[0])
        exact = isinstance(found[0], np.ndarray) and name != KEPT
        error = world.difference(found[0]) if exact else None
        rows.append([name, seconds[name], seconds[name] / bare, memory, error])
        del found
    if searches is None:
        rows.append(["faiss flat (not installed)", None, None, None, None])
    columns = ["way", "seconds", "times the GEMM", "working memory, MB", "largest difference"]
    note = (
        "Working memory beyond inputs, index and result; difference to float64 on "
        f"{SAMPLE} queries. Ways from numpy's distances on: {len(fewer)} queries, seconds scaled "
        f"to {len(queries)}."
    )
    return Table(title, "the way", columns, rows, note), {k: v / bare for k, v in seconds.items()}


def single(world: World, repeats: int) -> list[list[Cell]]:
    """Compare ways on one query."""
    from polyseme.published.index import ConceptIndex

    query = world.queries[:1]
    index = ConceptIndex(world.points, world.labels, world.n_labels)
    index.distances(query)
    searches = faiss_flat(world)
    ways: dict[str, Callable[[], Any]] = {
        "numpy, product + reduceat": lambda: one_query_numpy(world, query),
        "polyseme": lambda: index.distances(query),
    }
    if searches is not None:
        ways["faiss flat, top 10"] = lambda: searches(query)
    seconds = seconds_of(ways, repeats)
    bare = seconds["numpy, product + reduceat"]
    return [[f"{world.n:,}", name, 1000 * value, bare / value] for name, value in seconds.items()]


def measure(size: str) -> Report:
    """Compare exact priming with a bare matrix product and with what one would write instead."""
    full = size == "full"
    sizes = (100_000, 1_000_000) if full else (4_000, 20_000)
    n_labels, n_queries = (1000, 1000) if full else (100, 60)
    report = Report(
        "priming",
        "Priming: exact minimum distance per label",
        f"{n_queries:,} queries, {D} components, {n_labels:,} labels whose numbers of concepts "
        "follow Zipf's law; normal random numbers. Ratios are taken in one process, ways in turn. "
        "Labels of one concept each ask for every product, so that their search is judged by a "
        "product that is kept; the table has its ratio to one that is dropped block by block too.",
    )
    alone: list[list[Cell]] = []
    for n in sizes:
        world = World(n, n_labels, n_queries)
        table, ratios = batch(
            world, (100 if n <= 100_000 else 20) if full else 20, 3, f"{n:,} concepts"
        )
        report.tables.append(table)
        what = f"priming against a bare GEMM, {n:,} concepts"
        report.ratios.append(Ratio(what, ratios["polyseme"], 1.4, at_least=False))
        memory = next(row[3] for row in table.rows if row[0] == "polyseme")
        if isinstance(memory, float):
            what = f"working memory of priming, {n:,} concepts"
            report.ratios.append(Ratio(what, memory, 20.0, at_least=False, unit=" MB"))
        alone += single(world, 20)
    columns = ["concepts", "way", "milliseconds", "times faster than numpy"]
    report.tables.append(Table("One query", "the way", columns, alone))
    world = World(sizes[0] // 2, sizes[0] // 2, n_queries // 2, one_each=True)
    table, ratios = batch(world, 20, 3, f"{world.n:,} labels of one concept each")
    report.tables.append(table)
    report.ratios.append(
        Ratio(
            f"priming against a GEMM that is kept, {world.n:,} one-concept labels",
            ratios["polyseme"] / ratios[KEPT],
            1.4,
            at_least=False,
        )
    )
    return report


if __name__ == "__main__":
    command_line(measure)
