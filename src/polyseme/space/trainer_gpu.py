"""The steps of a round on a GPU: all members at once, captured as one CUDA graph.

In: a `SpaceTraining` and the items of a round, as on the processor. Out: trained members. Batches
are drawn on the device, so that a step needs nothing from the host. For terms see `steps`.

A graph replays the same operations on the same memory: tensors that it reads must be changed in
place, and shapes may not differ from step to step.
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
    """All members of a share, which take their steps together; see `Learner`.

    Attributes
    ----------
    step_number : tensor, shape ()
        Of the next step, on the device.
    graph : torch.cuda.CUDAGraph or None
        A captured step; None before the first round, and on the processor.
    """

    batches: GpuBatchSampler

    def __init__(self, training: SpaceTraining, positions: slice) -> None:
        super().__init__(training, positions)
        device = training.device
        self.step_number = torch.zeros((), device=device)
        self.graph: Any = None

    def _make_sampler(self, positions: slice) -> GpuBatchSampler:
        return GpuBatchSampler(self.training, positions)

    def train(self, items: RoundItems | None) -> list[tuple[float, float]]:
        """Take the steps of a round; return each member's last losses, (documents, items)."""
        # Ten bits of mantissa are plenty for these products, and several times as fast. The setting
        # for all devices cannot be read while `onednn_products` has changed that of processors.
        setting = torch.backends.cuda.matmul
        name = "fp32_precision"
        coarse_precision: str | bool = "tf32"
        if not hasattr(setting, name):  # before torch 2.9
            name = "allow_tf32"
            coarse_precision = True
        precision = getattr(setting, name)
        setattr(setting, name, coarse_precision)
        try:
            self._train(items)
        finally:
            setattr(setting, name, precision)
        return losses(self.batch, self.logits, self.training.plan.document_batch)

    def _train(self, items: RoundItems | None) -> None:
        """Take the steps of a round; see `train`."""
        self.batches.begin(items)
        has_graphs = self.training.device != "cpu"
        if self.graph is None and has_graphs:
            self._capture()
            self.batches.begin(items)  # the capture has drawn batches
        step_numbers = self.training.next_steps
        self.step_number.fill_(step_numbers.start)
        take_step = self._step
        if self.graph is not None:
            take_step = self.graph.replay
        for _ in step_numbers:
            take_step()

    def _capture(self) -> None:
        """Capture a step as a graph; the steps that warm it up are taken back."""
        groups = self.members.groups
        weights_before = [group.clone() for group in groups]
        moments_before = {}
        for name, moment in self.optimizer.get_state().items():
            moments_before[name] = moment.clone()
        stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        current_stream = torch.cuda.current_stream()
        stream.wait_stream(current_stream)
        with torch.cuda.stream(stream):
            for _ in range(_WARM_UP):
                self._step()
        current_stream.wait_stream(stream)
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
        for group, weights in zip(groups, weights_before, strict=True):
            group.copy_(weights)
        self.optimizer.set_state(moments_before, self.training.next_steps.start)

    def _step(self) -> None:
        """Take one step; rates are those of `SpacePlan.rate_factor`, computed on the device."""
        n_steps = self.training.plan.n_steps
        # rise * (1 + cos(π t / T)) / 2
        rising_steps = max(0.1 * n_steps, 1.0)
        rise = (self.step_number + 1) / rising_steps
        rise = rise.clamp(max=1.0)
        angle = torch.pi * self.step_number
        cosine = torch.cos(angle / n_steps)
        factor = rise * 0.5 * (1 + cosine)
        self.batch = self.batches.draw()
        self.logits = step(self.members, self.batch, self.gradients)
        self.optimizer.step(factor)
        self.step_number += 1


class GpuBatchSampler(BatchSampler):
    """Draw the batches of members on a device, in tensors that stay in place.

    Attributes
    ----------
    device_generator : torch.Generator
        Registered with the graph, so that every replay draws other numbers.
    labels : int64 tensor, shape (n_held + longest,)
        The labels of all documents, one document after the other; then numbers of no label.
    starts : int64 tensor, shape (n_documents + 1,)
        Where each document begins in `labels`.
    longest : int
        Labels of the longest document, 1 at least.
    """

    def __init__(self, training: SpaceTraining, positions: slice) -> None:
        super().__init__(training, positions)
        documents = training.data.documents
        n_labels = documents.shape[1]
        self.device_generator = torch.Generator(self.device)
        lengths = np.diff(documents.indptr)
        longest = lengths.max(initial=0)
        self.longest = max(int(longest), 1)
        # As many places are read of the last document as of the longest.
        padding = np.full(self.longest, n_labels)
        labels = np.append(documents.indices, padding).astype(np.int64)
        starts = documents.indptr.astype(np.int64)
        self.labels = torch.from_numpy(labels).to(self.device)
        self.starts = torch.from_numpy(starts).to(self.device)

    def _seed(self, seed: int) -> None:
        self.device_generator.manual_seed(seed)

    def _item_counts(self, n_visible: int, has_soft_targets: bool) -> tuple[int, int]:
        """Let every round have a graph of the same shape; see `BatchSampler.begin` for weights."""
        return self.plan.item_batch, self.plan.probable_batch

    def _pool_count(self, n_pool: int, has_pool_targets: bool) -> int:
        return min(self.plan.item_batch, n_pool)

    def _set_items(self, items: dict[str, Tensor]) -> None:
        """Copy tables to where the graph looks for them."""
        for name, table in items.items():
            if name in self.items:
                self.items[name].copy_(table)
            else:
                self.items[name] = table.to(self.device, copy=True)

    def _draw_rows(self, rows: Tensor, sizes: Tensor, n: int) -> Tensor:
        draws = self._uniform(n)
        positions = (draws * sizes).long()
        # Rounding may lead to the size itself.
        last = sizes - 1
        bounded = torch.minimum(positions, last)
        return rows.gather(1, bounded)

    def _tags_of(self, documents: Tensor) -> Tensor:
        n_labels = self.data.n_labels
        first = self.starts[documents][..., None]
        last = self.starts[documents + 1][..., None]
        offsets = torch.arange(self.longest, device=self.device)
        positions = first + offsets
        labels = torch.where(positions < last, self.labels[positions], n_labels)
        # One column more, for places that hold no label of the document.
        tags = torch.zeros(*documents.shape, n_labels + 1, device=self.device)
        tags.scatter_(2, labels, 1.0)
        return tags[..., :n_labels]

    def _sparse_tags(self, tags: Tensor) -> None:
        """Leave tags in their table: how many there are would change from step to step."""

    def _uniform(self, *shape: int) -> Tensor:
        n_members = len(self.training.members)
        return torch.rand(
            n_members,
            *shape,
            generator=self.device_generator,
            device=self.device,
        )

    def _hidden(self, n: int) -> Tensor:
        draws = self._uniform(n, self.data.n_labels)
        rates = self._uniform(n, 1)
        highest_rate = self.plan.hidden_tags
        is_hidden = draws < rates * highest_rate
        return is_hidden.float()

    def _dropout(self, share: float, *shape: int) -> Tensor:
        draws = self._uniform(*shape)
        is_on = draws >= share
        share_on = 1 - share
        return is_on.float() / share_on
