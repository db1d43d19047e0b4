"""The steps of a round on a GPU: all members at once, captured as one CUDA graph.

In: a `SpaceTraining` and the items of a round, as on the processor. Out: trained members. Batches
are drawn on the device, so that a step needs nothing from the host.
"""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import torch
from torch import Tensor

from polyseme.space.steps import BatchSampler, Learner, losses, step
from polyseme.space.training import RoundItems, SpaceTraining

# Steps that are taken, and taken back, before the graph is captured.
_WARM_UP = 3


class GpuLearner(Learner):
    """All members of a share, which take their steps together; see `Learner`."""

    batches: GpuBatchSampler

    def __init__(self, training: SpaceTraining, places: slice) -> None:
        super().__init__(training, places)
        self.number = torch.zeros((), device=training.device)
        self.graph: Any = None

    def _make_sampler(self, places: slice) -> GpuBatchSampler:
        return GpuBatchSampler(self.training, places)

    def train(self, items: RoundItems | None) -> list[tuple[float, float]]:
        """Take the steps of a round; give the last step's losses, (documents, items)."""
        # Ten bits of mantissa are plenty for these products, and several times as fast.
        precision = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision("high")
        try:
            self._train(items)
        finally:
            torch.set_float32_matmul_precision(precision)
        return losses(self.batch, self.logits, self.training.plan.document_batch)

    def _train(self, items: RoundItems | None) -> None:
        """Take the steps of a round; see `train`."""
        self.batches.begin(items)
        if self.graph is None and self.training.device != "cpu":
            self._capture()
            self.batches.begin(items)
        self.number.fill_(self.training.next_steps.start)
        take_step = self._step if self.graph is None else self.graph.replay
        for _ in self.training.next_steps:
            take_step()

    def _capture(self) -> None:
        """Capture a step as a graph; the steps that warm it up are taken back."""
        weights = [group.clone() for group in self.members.groups]
        moments = {name: moment.clone() for name, moment in self.optimizer.get_state().items()}
        stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(_WARM_UP):
                self._step()
        torch.cuda.current_stream().wait_stream(stream)
        self.graph = torch.cuda.CUDAGraph()
        self.graph.register_generator_state(self.batches.device_generator)
        # An earlier training's graph that is collected while this one is captured would end it.
        gc.collect()
        gc.disable()
        try:
            with torch.cuda.graph(self.graph):
                self._step()
        finally:
            gc.enable()
        for group, before in zip(self.members.groups, weights, strict=True):
            group.copy_(before)
        self.optimizer.set_state(moments, self.training.next_steps.start)

    def _step(self) -> None:
        """Take one step; rates are those of `SpacePlan.rate_factor`, computed on the device."""
        n_steps = self.training.plan.n_steps
        n_warm_up = max(0.1 * n_steps, 1.0)
        warm_up = ((self.number + 1) / n_warm_up).clamp(max=1.0)
        cosine = torch.cos(torch.pi * self.number / n_steps)
        factor = warm_up * 0.5 * (1 + cosine)
        self.batch = self.batches.draw()
        self.logits = step(self.members, self.batch, self.gradients)
        self.optimizer.step(factor)
        self.number += 1


class GpuBatchSampler(BatchSampler):
    """Draw the batches of members on a device, in tensors that stay in place."""

    def __init__(self, training: SpaceTraining, places: slice) -> None:
        super().__init__(training, places)
        documents = training.data.documents
        n_labels = documents.shape[1]
        self.device_generator = torch.Generator(self.device)
        # Documents as one list of labels, and where each one's begin.
        lengths = np.diff(documents.indptr)
        self.longest = max(int(lengths.max(initial=0)), 1)
        # Beyond the last document stand numbers of no label.
        padding = np.full(self.longest, n_labels)
        labels = np.append(documents.indices, padding).astype(np.int64)
        starts = documents.indptr.astype(np.int64)
        self.labels = torch.from_numpy(labels).to(self.device)
        self.starts = torch.from_numpy(starts).to(self.device)

    def _seed(self, seed: int) -> None:
        self.device_generator.manual_seed(seed)

    def _item_counts(self, n_visible: int, soft: bool) -> tuple[int, int]:
        """Let every round have a graph of the same shape; see `BatchSampler.begin` for weights."""
        return self.plan.item_batch, self.plan.probable_batch

    def _pool_count(self, n: int, pooled: bool) -> int:
        return min(self.plan.item_batch, n)

    def _set_items(self, items: dict[str, Tensor]) -> None:
        """Copy tables to where the graph looks for them."""
        for name, table in items.items():
            if name in self.items:
                self.items[name].copy_(table)
            else:
                self.items[name] = table.to(self.device, copy=True)

    def _choose(self, rows: Tensor, sizes: Tensor, n: int) -> Tensor:
        places = (self._uniform(n) * sizes).long()
        return rows.gather(1, torch.minimum(places, sizes - 1))

    def _tags_of(self, documents: Tensor) -> Tensor:
        n_labels = self.data.n_labels
        first = self.starts[documents][..., None]
        last = self.starts[documents + 1][..., None]
        offsets = torch.arange(self.longest, device=self.device)
        places = first + offsets
        labels = torch.where(places < last, self.labels[places], n_labels)
        tags = torch.zeros(*documents.shape, n_labels + 1, device=self.device)
        tags.scatter_(2, labels, 1.0)
        return tags[..., :n_labels]

    def _sparse_tags(self, tags: Tensor) -> None:
        """Leave tags in their table: how many there are would change from step to step."""

    def _uniform(self, *shape: int) -> Tensor:
        n_members = len(self.training.members)
        return torch.rand(n_members, *shape, generator=self.device_generator, device=self.device)

    def _hidden(self, n: int) -> Tensor:
        numbers = self._uniform(n, self.data.n_labels)
        rates = self._uniform(n, 1) * self.plan.hidden_tags
        return (numbers < rates).float()

    def _dropout(self, share: float, *shape: int) -> Tensor:
        is_on = self._uniform(*shape) >= share
        return is_on.float() / (1 - share)
