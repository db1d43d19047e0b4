"""Training on a GPU: steps as a captured graph beside plain PyTorch, and genius as a whole.

Without a GPU it runs small sizes on the processor, to check itself.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from _reporting import Ratio, Table
from _synthetic import make_themes, synthetic_matrix
from bench_training import WIDTH, PlainTraining, make_trainer, told_plan, whole_training

from polyseme.published.descriptors import LabelDescriptor
from polyseme.published.network import ConceptNetwork
from polyseme.published.pairs import PairBatch
from polyseme.published.training import ConceptTrainer

COLUMNS = ["batch", "labels", "way", "ms a step", "times faster", "TFLOP/s", "share of matrix rate"]


def wait(device: str) -> None:
    """Wait until a device has done what it was told."""
    if device == "cuda":
        torch.cuda.synchronize()


def matrix_rate(device: str, dtype: torch.dtype, n: int) -> float:
    """Measure torch's own products of square matrices, in TFLOP/s."""
    first, second = (torch.randn(n, n, device=device).to(dtype) for _ in range(2))
    best = float("inf")
    for _ in range(5):
        wait(device)
        start = time.perf_counter()
        for _ in range(4):
            first @ second
        wait(device)
        best = min(best, (time.perf_counter() - start) / 4)
    return 2 * n**3 / best / 1e12


def step_flops(network: ConceptNetwork, n: int) -> float:
    """Count the multiplications and additions of one step's matrix products."""
    looked_up = min(n, network.n_labels) if network.n_labels <= 2 * n else n
    first = 2 * looked_up * network.n_label_features * WIDTH * 2
    hidden = sum(6 * n * layer.weight.numel() for layer in network.layers[1:])
    return first + hidden + 6 * n * WIDTH * network.n_labels


def seconds_a_step(run: Callable[[], object], n_steps: int, device: str) -> float:
    """Time a run of so many steps, after one that does not count."""
    found = []
    for _ in range(3):
        wait(device)
        start = time.perf_counter()
        run()
        wait(device)
        found.append((time.perf_counter() - start) / n_steps)
    return min(found[1:])


def run_plain(plain: PlainTraining, batches: list[PairBatch]) -> None:
    """Take a plain step for each batch."""
    for batch in batches:
        plain.step(batch)


def run_ours(trainer: ConceptTrainer, batches: list[PairBatch]) -> None:
    """Take our step for each batch."""
    trainer.take_steps(batches)


def step_table(device: str, sizes: dict[tuple[int, int], int]) -> tuple[Table, list[Ratio]]:
    """Time steps for pairs of batch size and labels, each with so many steps."""
    matrix_tflops = matrix_rate(device, torch.float32, 8192 if device == "cuda" else 256)
    rows: list[list[Any]] = []
    ratios = []
    for (batch, n_labels), n_steps in sizes.items():
        matrix = synthetic_matrix(100_000 if device == "cuda" else 500, make_themes(n_labels, 0), 0)
        descriptors = LabelDescriptor().fit(matrix).descriptors_
        dense = descriptors if isinstance(descriptors, np.ndarray) else descriptors.toarray()
        trainer = make_trainer(matrix, descriptors, device, batch_size=batch)
        plain = PlainTraining(trainer, matrix, dense, device)
        batches: list[PairBatch] = []
        while len(batches) < n_steps:
            drawn = trainer.sampler.epoch(np.random.default_rng(len(batches)))
            batches += [one for one in drawn if len(one.label_ids) == batch]
        batches = batches[:n_steps]
        flops = step_flops(trainer.network, batch)
        few = batches[: min(n_steps, 50)]
        base = seconds_a_step(partial(run_plain, plain, few), len(few), device)
        rows.append([batch, n_labels, "plain PyTorch", 1e3 * base, 1.0, flops / base / 1e12, None])
        ours = seconds_a_step(partial(run_ours, trainer, batches), n_steps, device)
        rate = flops / ours / 1e12
        times = base / ours
        rows.append([batch, n_labels, "polyseme", 1e3 * ours, times, rate, rate / matrix_tflops])
        if (batch, n_labels) == (1024, 1000):
            what = "GPU steps a second, against 3.5 ms a step, batch 1,024, 1,000 labels"
            ratios.append(Ratio(what, 3.5e-3 / ours, 10))
            what = "GPU step against plain PyTorch on the same card"
            ratios.append(Ratio(what, times, 10))
    note = (
        "Making and moving the batches is counted. Matrix rate of this card by torch: "
        f"{matrix_tflops:.0f} TFLOP/s in float32."
    )
    return Table("Training steps", "batch size and labels", COLUMNS, rows, note), ratios


def genius_table(device: str) -> tuple[Table, list[Ratio]]:
    """Train on genius to its early-stopping point, with every example and with samples."""
    rows = []
    ratios = []
    for plan in ({}, {"sweeps": 500}, {"max_steps": 200}):
        one = whole_training("genius", device, **plan)
        numbers = (one["seconds"], one["topics"], one["epochs"], one["held-out E-MAP"])
        rows.append(["genius", told_plan(plan), *numbers])
        if not plan:
            what = "genius trained on a GPU by default, topics included"
            ratios.append(Ratio(what, one["seconds"], 60, at_least=False, unit=" s"))
    columns = ["corpus", "plan", "seconds", "of them topics", "epochs", "held-out E-MAP"]
    note = (
        "Topics are sampled on one core of the processor, as everywhere; by default 104 sweeps "
        "over so many documents (`max_visits`)."
    )
    return Table("Genius, 193,230 documents", "the plan", columns, rows, note), ratios
