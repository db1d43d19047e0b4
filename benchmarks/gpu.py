"""Everything that is measured on a GPU, as reports beside those of the processor.

    python benchmarks/gpu.py --out benchmarks      # NAME-gpu.json
    python benchmarks/run.py --render              # page and tables

Each part runs by itself; one that fails is reported in a line and the others go on.
"""

from __future__ import annotations

import argparse
import os
import time
import traceback
from collections.abc import Callable
from pathlib import Path

from _reporting import FOLDER, Report, Table, machine, show

STEPS = {(1024, 1000): 512, (8192, 1000): 128, (65536, 1000): 16}
MINUTES = 10.0
STEPS |= {(1024, 10_000): 256, (65536, 10_000): 16}


def training() -> Report:
    """Training steps and whole trainings on the GPU."""
    from gpu_training import genius_table, step_table

    table, ratios = step_table("cuda", STEPS)
    report = Report(
        "training",
        "Training",
        "Steps of the concept network captured as one graph, beside plain PyTorch launched kernel "
        "by kernel on the same card; d = 200, two hidden layers of 200, Adam.",
        [table],
        ratios,
    )
    if "POLYSEME_DATA" in os.environ:
        table, ratios = genius_table("cuda")
        report.tables.append(table)
        report.ratios += ratios
    return report


def priming() -> Report:
    """Search of many concepts on the GPU."""
    from gpu_priming import measure

    options = argparse.Namespace(
        queries=100_000, concepts=10_000_000, labels=1000, memory_mb=16_000.0, device="cuda"
    )
    measured = measure(options)
    rates = measured["gemm_tflops"]
    columns = ["way", "seconds", "TFLOP/s", "share of float32 product"]
    columns += ["share of fastest product", "largest relative difference", "GPU memory, GB"]
    keys = ("seconds", "tflops", "fraction_of_fp32_gemm", "fraction_of_fastest_gemm")
    keys += ("largest_relative_difference", "peak_gb")
    rows = [["polyseme", *(measured[key] for key in keys)]]
    measured = ", ".join(f"{rate:.0f} in {name}" for name, rate in rates.items())
    return Report(
        "priming",
        "Priming: exact minimum distance per label",
        "Exact least distance to each label's concepts: 100,000 queries, 10,000,000 concepts of "
        "200 numbers, 1,000 labels, timed on a twentieth of the queries.",
        [
            Table(
                "100,000 queries, 10,000,000 concepts",
                "the way",
                columns,
                rows,
                f"Bare products of the same width by torch, TFLOP/s: {measured}.",
            )
        ],
    )


def mapping() -> Report:
    """Kernel regressions on the GPU."""
    from gpu_mapping import exact, landmarks

    return Report(
        "mapping",
        "Mapping: many nu-support-vector regressions over one kernel",
        "The same fits by torch on the GPU and by numpy on the processor beside it.",
        [
            exact([10_000, 50_000], 10_000, "cuda", 200),
            landmarks(1_000_000, [500, 1000, 2000], 60_000, "cuda", 200),
        ],
    )


def fit() -> Report:
    """Whole fits of the default tagger on real corpora, which $POLYSEME_DATA names."""
    from bench_fit import measure

    return measure("full")


def space() -> Report:
    """Fit the default tagger to a million documents."""
    from _space_growth import SpacePoint
    from bench_space import large_report

    return large_report(SpacePoint(1_000_000, 10_000, 200_000, device="cuda"), MINUTES, None)


PARTS: dict[str, Callable[[], Report]] = {
    "training": training,
    "priming": priming,
    "mapping": mapping,
    "fit": fit,
    "space": space,
}


def main() -> None:
    """Measure the parts asked for and keep their reports."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--part", action="append", choices=list(PARTS), help="default: all")
    parser.add_argument("--out", type=Path, default=FOLDER, help="folder to write reports to")
    options = parser.parse_args()
    for name in options.part or PARTS:
        start = time.perf_counter()
        try:
            report = PARTS[name]()
        except Exception:  # the others are worth having
            traceback.print_exc()
            print(f"FAILED {name}")
            continue
        report.machine, report.seconds = machine(), round(time.perf_counter() - start, 1)
        show(report)
        print(report.write(options.out, "-gpu"), flush=True)


if __name__ == "__main__":
    main()
