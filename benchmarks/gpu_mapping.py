"""Mapping on a graphics card: `python benchmarks/gpu_mapping.py [--device cuda] [--out FOLDER]`.

Fits with all instances and with landmarks, beside numpy on the same machine's processor.
"""

from __future__ import annotations

import argparse
import time
import warnings
from pathlib import Path

import numpy as np
from _reporting import Report, Table, machine, show
from bench_mapping import world
from numpy.typing import NDArray

from polyseme.base.validation import PolysemeWarning
from polyseme.published.mapping import InstanceMapper

Array = NDArray[np.float64]


def make(kind: str, device: str, **parameters: object) -> InstanceMapper:
    """Make a mapper with the settings of `bench_mapping`."""
    own = {"penalty": 1.0} if kind == "kernel-ridge" else {"nu": 0.2, "C": 1.0}
    return InstanceMapper(
        kind, gamma=1.0, scaling="l2", device=device, random_state=0, **own, **parameters
    )


def timed(mapper: InstanceMapper, X: Array, Y: Array, queries: Array) -> tuple[float, float, Array]:
    """Return the seconds of a fit and of a prediction, and the points predicted."""
    start = time.perf_counter()
    mapper.fit(X, Y)
    middle = time.perf_counter()
    points = mapper.predict(queries)
    return middle - start, time.perf_counter() - middle, points


def exact(sizes: list[int], most: int, device: str, d: int) -> Table:
    """Vary the rows: all instances, device against processor (up to `most` rows there)."""
    rows: list[list[str | float | int | None]] = []
    for n in sizes:
        X, Y, queries, truth = world(n, 512, d)
        spread = Y.std(axis=0)
        for kind in ("kernel-ridge", "nu-svr"):
            make(kind, device, memory_mb=120_000).fit(X[:600], Y[:600])  # wakes the device
            quick = timed(make(kind, device, memory_mb=120_000), X, Y, queries)
            error = float((((quick[2] - truth) / spread) ** 2).mean())
            row: list[str | float | int | None] = [kind, n, quick[0], quick[1]]
            if n <= most:
                slow = timed(make(kind, "cpu", memory_mb=120_000), X, Y, queries)
                apart = float((np.abs(quick[2] - slow[2]) / spread).max())
                row += [slow[0], slow[1], slow[0] / quick[0], apart]
            else:
                row += [None] * 4
            rows.append([*row, error])
    return Table(
        f"All instances: {device} against numpy",
        "rows",
        [
            "kind",
            "rows",
            f"fit {device}, s",
            f"predict 2,000 {device}, s",
            "fit numpy, s",
            "predict numpy, s",
            "times faster",
            "largest difference, spreads",
            "mean squared error",
        ],
        rows,
        f"512 features, {d} outputs; seconds hold the way to the device and back.",
    )


def landmarks(n: int, counts: list[int], memory_mb: float, device: str, d: int) -> Table:
    """Vary the number of landmarks for very many rows of 64 features."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n + 2000, 64)).astype(np.float32)
    Y = np.empty((len(X), d), dtype=np.float32)
    maps = rng.normal(size=(64, d)).astype(np.float32) / 8
    for start in range(0, len(X), 10_000):
        part = slice(start, start + 10_000)
        Y[part] = np.sin(X[part] @ maps)
        Y[part] += 0.3 * rng.normal(size=Y[part].shape).astype(np.float32)
    rows: list[list[str | float | int | None]] = []
    spread = Y[:n].std(axis=0, dtype=np.float64)
    for kind in ("kernel-ridge", "nu-svr"):
        for count in counts:
            mapper = make(kind, device, n_landmarks=count, memory_mb=memory_mb)
            fit, predict, points = timed(mapper, X[:n], Y[:n], X[n:])
            error = float((((points - Y[n:]) / spread) ** 2).mean())
            rows.append([kind, count, fit, predict, error])
    return Table(
        f"Landmarks: {n:,} rows of 64 features, {d} outputs, on {device}",
        "landmarks",
        ["kind", "landmarks", "fit, s", "predict 2,000, s", "mean squared error"],
        rows,
        f"`memory_mb` is {memory_mb:g}; float32 inputs.",
    )


def main() -> None:
    """Measure and print; write the report where `--out` says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--size", choices=("full", "quick"), default="full")
    options = parser.parse_args()
    warnings.simplefilter("ignore", PolysemeWarning)
    start = time.perf_counter()
    report = Report(
        "mapping",
        "Mapping on a graphics card",
        "The same fits by torch on the GPU and by numpy on the processor beside it.",
    )
    if options.size == "full":
        report.tables.append(exact([10_000, 50_000], 10_000, options.device, 200))
        report.tables.append(landmarks(1_000_000, [500, 1000, 2000], 60_000, options.device, 200))
    else:
        report.tables.append(exact([600, 1200], 1200, options.device, 8))
        report.tables.append(landmarks(3000, [50, 100], 100, options.device, 8))
    report.seconds, report.machine = round(time.perf_counter() - start, 1), machine()
    report.size = options.size
    show(report)
    if options.out:
        print(report.write(options.out, "-gpu"))


if __name__ == "__main__":
    main()
