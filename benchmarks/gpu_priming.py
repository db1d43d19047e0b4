"""Priming on one GPU: 100,000 queries against 10,000,000 concepts, as a fraction of its peak.

A plain script: `python benchmarks/gpu_priming.py --queries 100000 --concepts 10000000 --out DIR`.
First the fused kernel is compared with plain torch on small awkward shapes; it is used only if it
agrees and is faster. Without a GPU small sizes run on the processor, to test the script.
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

from polyseme.index.by_label import SortedConcepts
from polyseme.index.device import DeviceConcepts

D = 200


def main() -> None:
    """Check, measure, print, and write what was found if asked to."""
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
    found["kernel"] = check(options.device)
    found |= measure(options, found["kernel"] == "ok")
    print(json.dumps(found, indent=1))
    if options.out:
        (options.out / "gpu_priming.json").write_text(json.dumps(found, indent=1) + "\n", "utf-8")


# --------------------------------------------------------------------- the kernel against torch


def awkward() -> dict[str, tuple[Any, Any, Any]]:
    """Make small problems on which a fast way may go wrong: points, labels, queries."""
    generator = np.random.default_rng(1)

    def normal(*shape: int) -> Any:
        return generator.standard_normal(shape).astype(np.float32)

    cases = {}
    for name, n, d, q in (
        ("one tile", 128, 32, 128),
        ("ragged", 1000, 200, 131),
        ("thin", 300, 1, 9),
    ):
        cases[name] = (normal(n, d), np.sort(generator.integers(0, 3, n)), normal(q, d))
    points, labels, queries = cases["ragged"]
    cases["queries are concepts"] = (points, labels, points[:200])
    cases["far from the origin"] = (points + 1000, labels, queries + 1000)
    cases["huge"] = (points * np.float32(1e12), labels, queries * np.float32(1e12))
    cases["tiny"] = (points * np.float32(1e-12), labels, queries * np.float32(1e-12))
    cases["far queries"] = (points, labels, queries * np.float32(1e9))
    cases["crowded"] = (1 + 1e-4 * points, labels, 1 + 1e-4 * queries)
    cases["all the same"] = (np.ones_like(points), labels, queries)
    cases["zeros and one far"] = (np.zeros_like(points), labels, queries)
    cases["zeros and one far"][0][-1] = 1e6
    return cases


def check(device: str) -> str:
    """Say "ok" if the fused kernel agrees with float64 on all awkward shapes, else why not."""
    import polyseme.index.fused as fused

    before, fused._MOST_PADDING = fused._MOST_PADDING, 1e9
    try:
        for name, (points, labels, queries) in awkward().items():
            concepts = SortedConcepts(points, labels, np.ones(len(labels), dtype=np.int64))
            exact = reference(points, labels, queries, 4)
            for kind in (False, True):
                held = DeviceConcepts(concepts, 4, device, 256.0, fused=kind)
                if kind and held.fused is None:
                    return "no triton here"
                error = relative(held.distances(queries), exact)
                print(f"{name:>22}  {'fused' if kind else 'torch'}  relative error {error:.2g}")
                if not error < 1e-5:
                    return f"wrong on '{name}': {error:.3g}"
    except Exception as error:  # a kernel that does not compile must not end the measurement
        return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
    finally:
        fused._MOST_PADDING = before
    return "ok"


def reference(points: Any, labels: Any, queries: Any, n_labels: int) -> Any:
    """Give exact distances in float64."""
    result = np.full((len(queries), n_labels), np.inf)
    for row, query in enumerate(queries.astype(np.float64)):
        for start in range(0, len(points), 100_000):
            part = labels[start : start + 100_000]
            gaps = points[start : start + 100_000] - query
            found = np.sqrt(np.einsum("ij,ij->i", gaps, gaps))
            np.minimum.at(result[row], part, found)
    return result


def relative(found: Any, exact: Any) -> float:
    """Give the largest relative error; infinite where one is and the other is not."""
    finite = np.isfinite(exact)
    if not np.array_equal(finite, np.isfinite(found)):
        return float("inf")
    return float(np.max(np.abs(found[finite] - exact[finite]) / np.maximum(exact[finite], 1e-30)))


# --------------------------------------------------------------------- the large problem


def measure(options: argparse.Namespace, kernel: bool) -> dict[str, Any]:
    """Time the search and the bare products of the same shape."""
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
    concepts = SortedConcepts(points, labels, np.ones(n, dtype=np.int64))
    rates = {name: rate(name, device, n, q) for name in ("fp32", "tf32", "bf16", "fp16")}
    flops = 2.0 * n * q * D
    found: dict[str, Any] = {"gemm_tflops": rates, "ways": {}}
    sample = np.linspace(0, q - 1, min(q, 8)).astype(int)
    exact = reference(points, labels, queries[sample], n_labels)
    for name in ["torch"] + ["fused"] * kernel:
        some = queries if name == "fused" else queries[: max(1, q // 20)]
        try:
            held = DeviceConcepts(concepts, n_labels, device, options.memory_mb, name == "fused")
            if name == "fused" and held.fused is None:
                continue
            held.distances(some[:256])
            synchronise(device)
            start = time.perf_counter()
            result = held.distances(some)
            seconds = (time.perf_counter() - start) * q / len(some)
        except RuntimeError as error:
            found["ways"][name] = {"failed": str(error).splitlines()[0]}
            continue
        near = held.distances(queries[sample])
        peak = max(rates.values())
        found["ways"][name] = {
            "seconds": seconds,
            "queries_timed": len(some),
            "tflops": flops / seconds / 1e12,
            "fraction_of_fastest_gemm": flops / seconds / 1e12 / peak,
            "fraction_of_fp32_gemm": flops / seconds / 1e12 / rates["fp32"],
            "largest_relative_difference": relative(near, exact),
            "same_when_batched": bool(np.array_equal(near[:1], result[sample[:1]])),
        }
        del held
        if device != "cpu":
            found["ways"][name]["peak_gb"] = torch.cuda.max_memory_allocated() / 1e9
            torch.cuda.empty_cache()
    timed = {k: v["seconds"] for k, v in found["ways"].items() if "seconds" in v}
    found["fastest"] = min(timed, key=lambda name: timed[name]) if timed else None
    return found


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
    """Give the least seconds of a few runs."""
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
