"""Priming on one GPU: 100,000 queries against 10,000,000 concepts, as a fraction of its peak.

A plain script: `python benchmarks/gpu_priming.py --queries 100000 --concepts 10000000 --out DIR`.
Without a GPU small sizes run on the processor, to test the script.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from _reporting import machine

from polyseme.published.index import ConceptIndex

D = 200


def main() -> None:
    """Measure, print, and write what was found if asked to."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--queries", type=int, default=100_000)
    parser.add_argument("--concepts", type=int, default=10_000_000)
    parser.add_argument("--labels", type=int, default=1000)
    parser.add_argument("--memory-mb", type=float, default=16_000.0)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--out", type=Path, help="folder for gpu_priming.json")
    options = parser.parse_args()
    if options.device == "cpu":
        options.queries, options.concepts = min(options.queries, 200), min(options.concepts, 20_000)
        options.labels, options.memory_mb = min(options.labels, 50), min(options.memory_mb, 64.0)
    found: dict[str, Any] = {"machine": machine(), "command": vars(options) | {"out": None}}
    found |= measure(options)
    print(json.dumps(found, indent=1))
    if options.out:
        (options.out / "gpu_priming.json").write_text(json.dumps(found, indent=1) + "\n", "utf-8")


def reference(points: Any, labels: Any, queries: Any, n_labels: int) -> Any:
    """Return exact distances in float64."""
    result = np.full((len(queries), n_labels), np.inf)
    for row, query in enumerate(queries.astype(np.float64)):
        for start in range(0, len(points), 100_000):
            part = labels[start : start + 100_000]
            gaps = points[start : start + 100_000] - query
            found = np.sqrt(np.einsum("ij,ij->i", gaps, gaps))
            np.minimum.at(result[row], part, found)
    return result


def relative(found: Any, exact: Any) -> float:
    """Return the largest relative error; infinite where one is and the other is not."""
    finite = np.isfinite(exact)
    if not np.array_equal(finite, np.isfinite(found)):
        return float("inf")
    return float(np.max(np.abs(found[finite] - exact[finite]) / np.maximum(exact[finite], 1e-30)))


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Time the search, on a twentieth of the queries, and the bare products of the same shape."""
    n, q, n_labels, device = options.concepts, options.queries, options.labels, options.device
    generator = np.random.default_rng(0)
    points = np.empty((n, D), dtype=np.float32)
    for start in range(0, n, 2**18):
        part = points[start : start + 2**18]
        part[...] = generator.standard_normal(part.shape, dtype=np.float32)
    queries = generator.standard_normal((q, D), dtype=np.float32)
    shares = 1.0 / np.arange(1, n_labels + 1)
    sizes = np.maximum(1, np.floor(n * shares / shares.sum())).astype(np.int64)
    sizes[0] += n - sizes.sum()
    labels = np.repeat(np.arange(n_labels), generator.permutation(sizes))
    rates = {name: rate(name, device, n, q) for name in ("fp32", "tf32", "bf16", "fp16")}
    sample = np.linspace(0, q - 1, min(q, 8)).astype(int)
    index = ConceptIndex(points, labels, n_labels, memory_mb=options.memory_mb, device=device)
    timed = queries[: max(1, q // 20)]
    index.distances(timed[:256])
    synchronise(device)
    start_time = time.perf_counter()
    index.distances(timed)
    seconds = (time.perf_counter() - start_time) * q / len(timed)
    tflops = 2.0 * n * q * D / seconds / 1e12
    exact = reference(points, labels, queries[sample], n_labels)
    return {
        "gemm_tflops": rates,
        "seconds": seconds,
        "queries_timed": len(timed),
        "tflops": tflops,
        "fraction_of_fastest_gemm": tflops / max(rates.values()),
        "fraction_of_fp32_gemm": tflops / rates["fp32"],
        "largest_relative_difference": relative(index.distances(queries[sample]), exact),
        "peak_gb": torch.cuda.max_memory_allocated() / 1e9 if device != "cpu" else 0.0,
    }


def rate(kind: str, device: str, n: int, q: int) -> float:
    """Measure torch's own product of queries and concepts, in blocks, in TFLOP/s."""
    dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(kind, torch.float32)
    rows, columns = min(q, 8192), min(n, 65_536)
    left = torch.randn(rows, D, device=device).to(dtype)
    right = torch.randn(columns, D, device=device).to(dtype)
    out = torch.empty(rows, columns, device=device, dtype=dtype)
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = kind == "tf32"
    repeats = 20 if device != "cpu" else 1

    def run() -> None:
        for _ in range(repeats):
            torch.mm(left, right.T, out=out)

    seconds = best_of(run, device)
    torch.backends.cuda.matmul.allow_tf32 = before
    return 2.0 * rows * columns * D * repeats / seconds / 1e12


def best_of(run: Callable[[], None], device: str) -> float:
    """Return the least seconds of a few runs."""
    found = []
    for _ in range(4):
        synchronise(device)
        start = time.perf_counter()
        run()
        synchronise(device)
        found.append(time.perf_counter() - start)
    return min(found[1:])


def synchronise(device: str) -> None:
    """Wait until the device has done everything."""
    if device != "cpu":
        torch.cuda.synchronize()


if __name__ == "__main__":
    main()
