"""Training by several processes together: seconds a step, and what sending gradients takes.

Processes are started by torchrun on this machine, one thread each, and train the same network on
the same batches as one process with one thread does.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from _reporting import Cell, Report, Table, command_line
from _synthetic import make_themes, synthetic_matrix
from bench_training import BATCH, LOSS, N_TOPICS, WIDTH

from polyseme.published.descriptors import LabelDescriptor
from polyseme.published.nn.networks import ConceptNetwork
from polyseme.published.nn.plan import TrainingPlan
from polyseme.published.nn.processes import training_processes
from polyseme.published.nn.training import ConceptTrainer

N_PROCESSES = 2


def take_steps(n_documents: int, n_labels: int, n_steps: int, out: str) -> None:
    """Take steps as one of the processes that were started; the first writes what it found."""
    torch.set_num_threads(1)
    matrix = synthetic_matrix(n_documents, make_themes(n_labels, 0), 0)
    generator = np.random.default_rng(0)
    contexts = generator.dirichlet(np.full(N_TOPICS, 0.3), n_documents).astype(np.float32)
    contexts = np.maximum(contexts, 1e-6)
    described = LabelDescriptor().fit(matrix).descriptors_
    seed = torch.Generator().manual_seed(0)
    with training_processes("cpu") as processes:
        trainer = ConceptTrainer(
            ConceptNetwork(described, N_TOPICS, (WIDTH, WIDTH), WIDTH, seed),
            matrix,
            contexts,
            TrainingPlan(batch_size=BATCH),
            LOSS,
            np.random.default_rng(0),
            processes=processes,
        )
        drawn = trainer.sampler.epoch(np.random.default_rng(1))
        batches = [one for one, _ in zip(drawn, range(n_steps), strict=False)]
        trainer.runner.run(batches[:3], trainer.optimizer, siamese=True)
        start = time.perf_counter()
        trainer.runner.run(batches, trainer.optimizer, siamese=True)
        seconds = (time.perf_counter() - start) / len(batches)
        weights = trainer.weights.clone()
        start = time.perf_counter()
        for _ in range(10):
            processes.sum_in_place(trainer.gradient.weights.gradient)
        sending = (time.perf_counter() - start) / 10
        if processes.rank == 0:
            np.save(out, weights.numpy())
            Path(out + ".json").write_text(
                json.dumps({"weights": len(weights), "seconds": seconds, "sending": sending})
            )


def started(n_processes: int, arguments: list[str], out: str) -> tuple[dict[str, Any], Any]:
    """Start processes and give what the first one found."""
    call = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node"]
    call += [str(n_processes), __file__, "--steps", *arguments, out]
    settings = os.environ | {"OMP_NUM_THREADS": "1"}
    subprocess.run(call, env=settings, check=True, capture_output=True)
    return json.loads(Path(out + ".json").read_text("utf-8")), np.load(out)


def measure(size: str) -> Report:
    """Measure training by several processes together."""
    rows: list[list[Cell]] = []
    n_documents, n_steps = (200_000, 30) if size == "full" else (1_000, 3)
    for n_labels in (1_000, 10_000) if size == "full" else (50,):
        arguments = [str(n_documents), str(n_labels), str(n_steps)]
        with tempfile.TemporaryDirectory() as folder:
            one, alone = started(1, arguments, f"{folder}/one.npy")
            more, together = started(N_PROCESSES, arguments, f"{folder}/more.npy")
        apart = float(np.abs(alone - together).max())
        rows.append([n_labels, 1, one["weights"], 1e3 * one["seconds"], None, 1.0, None])
        gain = one["seconds"] / more["seconds"]
        sending = 1e3 * more["sending"]
        rows.append(
            [n_labels, N_PROCESSES, more["weights"], 1e3 * more["seconds"], sending, gain, apart]
        )
    columns = ["labels", "processes", "weights", "ms a step", "of them sending, ms"]
    columns += ["times faster", "largest difference of a weight"]
    return Report(
        "processes",
        "Training by several processes",
        "The same 1,024 examples a step, shared out among processes that torchrun starts on this "
        f"machine, with one thread each; gradients are summed by Gloo. {n_steps} steps.",
        [Table("Steps by processes", "the number of processes", columns, rows)],
    )


if __name__ == "__main__":
    if sys.argv[1:2] == ["--steps"]:
        take_steps(*map(int, sys.argv[2:5]), sys.argv[5])
    else:
        command_line(measure)
