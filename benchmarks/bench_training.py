"""Training of the concept space beside plain PyTorch: single steps, and whole trainings.

A step is compared with what one would write down first: a `Sequential` of dense layers over
descriptor and context side by side, binary cross-entropy with logits, automatic differentiation
and torch's Adam. Both start from the same weights and take the same batches, many steps in a row,
as a training does.

    python benchmarks/bench_training.py --out benchmarks
    POLYSEME_DATA=folder python benchmarks/bench_training.py     # real corpora, whole trainings
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from _reporting import Ratio, Report, Table, command_line, peak_mb, seconds_of
from _synthetic import make_themes, synthetic_matrix
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from polyseme.published.descriptors import ContextDescriptor, LabelDescriptor
from polyseme.published.losses import LossSettings, context_similarity
from polyseme.published.network import ConceptNetwork
from polyseme.published.pairs import PairBatch
from polyseme.published.training import LOOK_EVERY, ConceptTrainer, TrainingPlan

LOSS = LossSettings("balanced", 0.6, 200**0.5, 0.5, 1.0)
WIDTH, N_TOPICS, BATCH = 200, 30, 1024
TARGETS = {1_000: 1.7, 10_000: 3.2}
# A pass over genius is 980 steps; with `max_steps` an epoch is a sample of it.
WHOLE: tuple[tuple[str, dict[str, Any]], ...] = (
    ("hsun", {}),
    ("genius", {"max_steps": 200}),
)
WHOLE_COLUMNS = {
    "corpus": "corpus",
    "plan": "plan",
    "documents": "documents",
    "labels": "labels",
    "seconds": "seconds",
    "topics": "of them topics",
    "epochs": "epochs",
    "memory": "peak memory, MB",
    "held-out E-MAP": "held-out E-MAP",
}
# Real corpora, and the size whose target they share.
REAL = {"genius": 1_000, "hetrec-lastfm": 10_000}


class PlainTraining:
    """The same training in plain PyTorch.

    Parameters
    ----------
    trainer : ConceptTrainer
        Gives weights to start from, and contexts.
    matrix : csr_matrix of bool, shape (n_documents, n_labels)
    descriptors : float32 array, shape (n_labels, n_labels)
    device : str
    """

    def __init__(
        self,
        trainer: ConceptTrainer,
        matrix: sp.csr_matrix,
        descriptors: Any,
        device: str = "cpu",
    ) -> None:
        network = trainer.network
        self.descriptors = torch.from_numpy(descriptors).to(device)
        self.contexts = trainer.contexts
        self.matrix = matrix
        layers: list[nn.Module] = []
        for layer in (*network.layers, network.output):
            copy = nn.Linear(*layer.weight.shape[::-1])
            copy.load_state_dict({name: part.clone() for name, part in layer._asdict().items()})
            layers += [copy, nn.Tanh()]
        self.body = nn.Sequential(*layers[:-2]).to(device)
        self.output = layers[-2].to(device)
        weights = [*self.body.parameters(), *self.output.parameters()]
        self.optimizer = torch.optim.Adam(weights, lr=1e-3)

    def loss(self, batch: PairBatch) -> Tensor:
        """Return the loss of one batch."""
        device = self.contexts.device
        labels = torch.from_numpy(batch.label_ids).to(device)
        documents = torch.from_numpy(batch.document_ids).to(device)
        positive = torch.from_numpy(batch.positive).to(device)
        held = torch.from_numpy(self.matrix[batch.document_ids].toarray()).to(device)
        contexts = self.contexts[documents]
        codes = self.body(torch.cat([self.descriptors[labels], contexts], dim=1))
        activations = self.output(codes)
        targets = (held == positive[:, None]).to(activations.dtype)
        share = targets.mean(dim=1, keepdim=True)
        weight = torch.where(targets > 0, 1.0 - share, share)
        entropy = binary_cross_entropy_with_logits(
            2.0 * activations, targets, weight=weight, reduction="none"
        )
        prediction = 2.0 * entropy.mean(dim=1)
        similarity = context_similarity(contexts[0::2], contexts[1::2], LOSS.sensitivity)
        n_positive = positive[0::2].int() + positive[1::2].int()
        apart = torch.sqrt((codes[0::2] - codes[1::2]).square().sum(dim=1) + 1e-12)
        by_context = (apart - LOSS.scale * (1.0 - similarity)).square()
        rho = torch.where(n_positive == 2, 1.0, LOSS.negative_weight)
        mixed = similarity * (apart - LOSS.scale).square()
        distance = torch.where(n_positive == 1, mixed, rho * by_context)
        return (prediction[0::2] + prediction[1::2] + distance).mean()

    def step(self, batch: PairBatch) -> None:
        """Take one step."""
        self.optimizer.zero_grad()
        self.loss(batch).backward()
        self.optimizer.step()

    def steps(self, batches: list[PairBatch]) -> None:
        """Take one step for each batch."""
        for batch in batches:
            self.step(batch)


def make_trainer(
    matrix: sp.csr_matrix, descriptors: Any, device: str = "cpu", **plan: Any
) -> ConceptTrainer:
    """Make a trainer over documents with drawn contexts."""
    generator = np.random.default_rng(0)
    contexts = generator.dirichlet(np.full(N_TOPICS, 0.3), matrix.shape[0]).astype(np.float32)
    contexts = np.maximum(contexts, 1e-6)
    seed = torch.Generator().manual_seed(0)
    network = ConceptNetwork(descriptors, N_TOPICS, (WIDTH, WIDTH), WIDTH, seed)
    settings = TrainingPlan(**{"batch_size": BATCH} | plan)
    return ConceptTrainer(
        network, matrix, contexts, settings, LOSS, np.random.default_rng(0), device=device
    )


def step_rows(name: str, matrix: sp.csr_matrix, repeats: int) -> tuple[list[list[Any]], float]:
    """Time steps in a row over documents; give the table's rows and plain over ours."""
    descriptors = LabelDescriptor().fit(matrix).descriptors_
    dense = descriptors if isinstance(descriptors, np.ndarray) else descriptors.toarray()
    ours = make_trainer(matrix, descriptors)
    plain = PlainTraining(ours, matrix, dense)
    drawn = ours.sampler.epoch(np.random.default_rng(1))
    batches = [b for b, _ in zip(drawn, range(LOOK_EVERY), strict=False)]
    apart = {"plain": 0.0, "ours": difference(ours, plain, batches[0])}
    # As the training loop takes them: the losses of one step in so many are looked at.
    ways = {
        "plain": lambda: plain.steps(batches),
        "ours": lambda: ours.take_steps(batches),
    }
    found = {way: s / len(batches) for way, s in seconds_of(ways, repeats).items()}
    told = {"plain": "autograd, dense descriptors", "ours": "polyseme"}
    rows = [
        [told[way], name, 1e3 * seconds, found["plain"] / seconds, apart[way]]
        for way, seconds in found.items()
    ]
    return rows, found["plain"] / found["ours"]


def filled_documents(corpus: str) -> sp.csr_matrix:
    """Return the documents of a corpus, without empty ones and without labels that none holds."""
    from polyseme_experiments.datasets import load_dataset

    matrix = load_dataset(corpus, os.environ["POLYSEME_DATA"]).corpus.without_unused().matrix
    return sp.csr_matrix(matrix[np.diff(matrix.indptr) > 0])


def difference(trainer: ConceptTrainer, plain: PlainTraining, batch: PairBatch) -> float:
    """Compare gradients at the same weights: largest difference by largest entry."""
    plain.optimizer.zero_grad()
    plain.loss(batch).backward()
    n = len(batch.label_ids)
    (step,) = trainer.collate([batch], share=2.0 / n, siamese=True)
    trainer.compute_gradient(step)
    theirs = [*plain.body.parameters(), *plain.output.parameters()]
    ours = [part for layer in trainer.network.views(trainer.gradient) for part in layer]
    return max(
        float((mine - their.grad).abs().max() / their.grad.abs().max())
        for mine, their in zip(ours, theirs, strict=True)
        if their.grad is not None
    )


@contextmanager
def timed_method(kind: type, name: str, seconds: dict[str, float], what: str) -> Iterator[None]:
    """Note how long a method takes while this lasts."""
    plain = getattr(kind, name)

    def wrapped(self: Any, *given: Any, **named: Any) -> Any:
        start = time.perf_counter()
        found = plain(self, *given, **named)
        seconds[what] = seconds.get(what, 0.0) + time.perf_counter() - start
        return found

    setattr(kind, name, wrapped)
    try:
        yield
    finally:
        setattr(kind, name, plain)


def whole_training(
    corpus: str, device: str, *, sweeps: int | None = None, **plan: Any
) -> dict[str, Any]:
    """Train on a corpus to its early-stopping point; hold 1,000 documents out of everything."""
    from polyseme import LabelCorpus
    from polyseme.published.embedding import ConceptEmbedding
    from polyseme.published.training import error_free_score
    from polyseme_experiments.datasets import load_dataset

    documents = load_dataset(corpus, os.environ["POLYSEME_DATA"]).corpus
    filled = np.flatnonzero(np.diff(documents.matrix.indptr))
    held = np.sort(np.random.default_rng(7).permutation(filled)[:1000])
    kept = np.setdiff1d(filled, held)
    taught: LabelCorpus = documents.select(kept).without_unused()
    seconds: dict[str, float] = {}
    with timed_method(ContextDescriptor, "fit", seconds, "topics"):
        start = time.perf_counter()
        embedding = ConceptEmbedding(
            context_descriptor=(
                ContextDescriptor(n_iter=sweeps, max_visits=None) if sweeps else None
            ),
            training=TrainingPlan(**plan),
            device=device,
            random_state=0,
        ).fit(taught)
        seconds["all"] = time.perf_counter() - start
    asked = sp.csr_matrix(documents.select(held).align(embedding.classes_)[0])
    asked = sp.csr_matrix(asked[:, : len(embedding.classes_)])
    asked = sp.csr_matrix(asked[np.diff(asked.indptr) > 0])
    contexts = embedding.context_descriptor_.transform
    score = error_free_score(taught.matrix, contexts(taught.matrix), asked, contexts(asked))
    return {
        "corpus": corpus,
        "documents": len(taught),
        "labels": len(embedding.classes_),
        "seconds": seconds["all"],
        "topics": seconds["topics"],
        "epochs": len(embedding.history_),
        "memory": peak_mb(),
        "held-out E-MAP": 100 * score(embedding.network_),
    }


def whole_rows() -> list[list[Any]]:
    """Train on each corpus in a process of its own, so that its memory is its own."""
    rows = []
    for corpus, plan in WHOLE:
        call = [sys.executable, __file__, "--whole", corpus, json.dumps(plan)]
        answer = subprocess.run(call, check=True, capture_output=True, text=True)
        one = json.loads(answer.stdout.splitlines()[-1])
        one["plan"] = told_plan(plan)
        rows.append([one[name] for name in WHOLE_COLUMNS])
    return rows


def told_plan(plan: dict[str, Any]) -> str:
    """Return in what a training plan differs from the default."""
    return ", ".join(f"{name}={value!r}" for name, value in plan.items()) or "default"


def measure(size: str) -> Report:
    """Compare training with plain PyTorch."""
    report = Report(
        "training",
        "Training",
        "One step of 1,024 examples (512 pairs), d = 200, two hidden layers of 200, Adam, beside "
        "plain PyTorch with dense descriptors. "
        "Gradients are compared at the same weights on the same batch.",
    )
    full = size == "full"
    rows: list[list[Any]] = []
    for n_labels in (100, 1_000, 10_000) if full else (200,):
        matrix = synthetic_matrix(200_000 if full else 2_000, make_themes(n_labels, 0), 0)
        more, ratio = step_rows(f"{n_labels:,} labels", matrix, 8 if full else 2)
        rows += more
        if n_labels in TARGETS:
            what = f"training step against plain autograd, {n_labels:,} labels"
            report.ratios.append(Ratio(what, ratio, TARGETS[n_labels]))
    if full and "POLYSEME_DATA" in os.environ:
        for name, target in REAL.items():
            matrix = filled_documents(name)
            told = f"{name}, {matrix.shape[1]:,} labels"
            more, ratio = step_rows(told, matrix, 8)
            rows += more
            what = f"training step against plain autograd, {told}"
            report.ratios.append(Ratio(what, ratio, TARGETS[target]))
    report.tables.append(
        Table(
            "One step",
            "the number of labels",
            ["way", "documents", "ms a step", "times faster", "largest gradient difference"],
            rows,
            "Differences are relative to the largest entry of a parameter's gradient. Two threads "
            "for both; synthetic unless a corpus is named. The mean of so many steps in a row: "
            f"{LOOK_EVERY}. Ours are laid out together, with the losses of one, as in training.",
        )
    )
    if "POLYSEME_DATA" in os.environ and size == "full":
        report.tables.append(
            Table(
                "Whole trainings",
                "the corpus and its plan",
                list(WHOLE_COLUMNS.values()),
                whole_rows(),
                "To early stopping, topics and descriptors included; E-MAP of priming from the "
                "true targets, on 1,000 documents of which nothing was learned.",
            )
        )
    return report


if __name__ == "__main__":
    if sys.argv[1:2] == ["--whole"]:
        print(json.dumps(whole_training(sys.argv[2], "cpu", **json.loads(sys.argv[3]))))
    else:
        command_line(measure)
