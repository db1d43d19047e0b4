"""The steps of a round on an accelerator: all members at once, on a GPU captured as one graph.

In: a `SpaceTraining` and the items of a round, as on the processor. Out: trained members. Batches
are drawn on the device, so that a step needs nothing from the host.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from polyseme.members import Batch, MemberOptimizer, step
from polyseme.training import read_columns

if TYPE_CHECKING:
    from polyseme.training import Round, SpaceTraining

# Steps that are taken, and taken back, before the graph is captured.
_WARM_UP = 3


class CapturedLearner:
    """All members of a share, which take their steps together on a device.

    Parameters
    ----------
    training : SpaceTraining
    """

    def __init__(self, training: SpaceTraining) -> None:
        self.training, device = training, training.device
        data, plan = training.data, training.plan
        self.members = training.members
        self.gradients = self.members.to(device)
        self.optimizer = MemberOptimizer(
            self.members, self.gradients, plan.learning_rates, plan.decays
        )
        self.number = torch.zeros((), device=device)
        self.draws = torch.Generator(device)
        self.graph: Any = None
        self._place_documents(data.documents)
        others = data.folds != training.fold_of[:, None]
        if training.n_folds == 1:
            others[:] = True
        self.others: NDArray[np.bool_] = others
        self.visible, self.n_visible = self._padded(others)
        self.by_label = torch.from_numpy(data.label_weights(plan.rarity)).to(device)
        self.soft = torch.zeros((), device=device)
        self.now: dict[str, Tensor] = {}

    def _place_documents(self, documents: Any) -> None:
        """Put documents on the device as one list of labels, and where each one's begin."""
        device = self.training.device
        self.longest = max(int(np.diff(documents.indptr).max(initial=0)), 1)
        # What is read beyond the last document stands for no label.
        labels = np.append(documents.indices, np.full(self.longest, documents.shape[1]))
        self.labels = torch.from_numpy(labels.astype(np.int64)).to(device)
        self.starts = torch.from_numpy(documents.indptr.astype(np.int64)).to(device)

    def _documents(self, chosen: Tensor) -> Tensor:
        """Give documents as rows, (n_members, n, n_labels)."""
        n_labels, device = self.training.data.n_labels, self.training.device
        first, last = self.starts[chosen][..., None], self.starts[chosen + 1][..., None]
        places = first + torch.arange(self.longest, device=device)
        labels = torch.where(places < last, self.labels[places], n_labels)
        rows = torch.zeros(*chosen.shape, n_labels + 1, device=device)
        return rows.scatter_(2, labels, 1.0)[..., :n_labels]

    def _padded(self, chosen: NDArray[np.bool_]) -> tuple[Tensor, Tensor]:
        """Give the rows that each member may see, (n_members, most), and how many they are."""
        sizes = np.maximum(chosen.sum(axis=1), 1)
        rows = np.zeros((len(chosen), int(sizes.max())), dtype=np.int64)
        for place, one in enumerate(chosen):
            found = np.flatnonzero(one)
            rows[place, : len(found)] = found
        device = self.training.device
        return torch.from_numpy(rows).to(device), torch.from_numpy(sizes)[:, None].to(device)

    # ------------------------------------------------------------------ rounds

    def train(self, now: Round | None) -> list[tuple[float, float]]:
        """Take the steps of a round; give the last step's losses, (documents, items)."""
        # Ten bits of mantissa are plenty for these products, and several times as fast.
        precision = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision("high")
        try:
            return self._train(now)
        finally:
            torch.set_float32_matmul_precision(precision)

    def _train(self, now: Round | None) -> list[tuple[float, float]]:
        """Take the steps of a round; see `train`."""
        training, plan = self.training, self.training.plan
        self._take_over(now)
        first = training.n_steps_done
        last = min(first + plan.round_steps, plan.n_steps)
        if self.graph is None and training.device != "cpu":
            self._capture()
        self.number.fill_(first)
        self.draws.manual_seed(training.seed_of(int(training.numbers[0]), 1, training.round))
        for _ in range(first, last):
            if self.graph is None:
                self._step()
            else:
                self.graph.replay()
        return self._losses()

    def _take_over(self, now: Round | None) -> None:
        """Copy the items of a round to where the graph looks for them."""
        if now is None:
            return
        self.soft.fill_(float(now.soft))
        held = {
            "features": now.features,
            "targets": now.targets,
            "probable": now.probable,
            "weights": now.weights,
        }
        chosen = self.others[:, self.training.data.own[now.rows]]
        chosen[~chosen.any(axis=1)] = True
        rows, sizes = self._padded(chosen)
        widest = torch.zeros(len(rows), len(now.rows), dtype=torch.int64, device=rows.device)
        widest[:, : rows.shape[1]] = rows
        tensors = {name: torch.from_numpy(one).to(rows.device) for name, one in held.items()}
        tensors |= {"rows": widest, "sizes": sizes}
        for name, one in tensors.items():
            if name in self.now:
                self.now[name].copy_(one)
            else:
                self.now[name] = one

    def _capture(self) -> None:
        """Capture a step as a graph; the steps that warm it up are taken back."""
        weights = [one.clone() for one in self.members.groups]
        memory = {name: one.clone() for name, one in self.optimizer.get_state().items()}
        aside = torch.cuda.Stream()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            for _ in range(_WARM_UP):
                self._step()
        torch.cuda.current_stream().wait_stream(aside)
        self.graph = torch.cuda.CUDAGraph()
        self.graph.register_generator_state(self.draws)
        with torch.cuda.graph(self.graph):
            self._step()
        for group, before in zip(self.members.groups, weights, strict=True):
            group.copy_(before)
        self.optimizer.set_state(memory, self.training.n_steps_done)

    # ------------------------------------------------------------------ steps

    def _step(self) -> None:
        """Take one step."""
        n_steps = self.training.plan.n_steps
        warm = ((self.number + 1) / max(0.1 * n_steps, 1.0)).clamp(max=1.0)
        factor = warm * 0.5 * (1 + torch.cos(torch.pi * self.number / n_steps))
        self.batch = self._draw()
        self.logits = step(self.members, self.batch, self.gradients)
        self.optimizer.step(factor)
        self.number += 1

    def _rand(self, *shape: int) -> Tensor:
        """Draw numbers between 0 and 1."""
        return torch.rand(*shape, generator=self.draws, device=self.training.device)

    def _chosen(self, rows: Tensor, sizes: Tensor, n: int) -> Tensor:
        """Draw n of each member's rows, (n_members, n)."""
        return rows.gather(
            1, (self._rand(len(rows), n) * sizes).long().clamp(max=rows.shape[1] - 1)
        )

    def _factors(self, share: float, *shape: int) -> Tensor:
        """Draw factors that leave a share of units out and strengthen the others."""
        return (self._rand(*shape) >= share).float() / (1 - share)

    def _draw(self) -> Batch:
        """Draw one batch for every member; see `polyseme.training.Batches`."""
        data, plan, n_members = self.training.data, self.training.plan, len(self.members)
        n, n_seen, n_labels, n_outputs = (
            plan.document_batch,
            data.n_seen,
            data.n_labels,
            data.n_outputs,
        )
        chosen = self._chosen(self.visible, self.n_visible, n)
        truth = self._documents(chosen)
        hidden = (self._rand(n_members, n, n_labels)) < self._rand(
            n_members, n, 1
        ) * plan.hidden_tags
        scale = 1 / (n * n_outputs)
        weights = torch.full(
            (n_members, n, n_outputs), plan.seen_weight * scale, device=self.training.device
        )
        targets = truth
        if data.n_unseen:
            all_unseen = self._rand(n_members, n, 1) < plan.unseen_hidden
            hidden = torch.cat([hidden[..., :n_seen], hidden[..., n_seen:] | all_unseen], dim=2)
            telling = (chosen < data.n_semantics).float()[..., None] * scale
            kept = plan.kept_weight
            weights[..., n_seen:n_labels] = (hidden[..., n_seen:] * (1 - kept) + kept) * telling
            weights[..., n_labels:] = all_unseen * telling
            targets = torch.cat([truth, truth[..., n_seen:].amax(dim=2, keepdim=True)], dim=2)
        tags, features, n_items = truth * ~hidden, None, 0
        if self.now:
            n_items, n_probable = plan.item_batch, plan.probable_batch
            items = self._chosen(self.now["rows"], self.now["sizes"], n_items)
            features = self.now["features"][items]
            aims = self.now["targets"][items]
            by_item = torch.ones(n_outputs, device=self.training.device)
            by_item[n_seen:] = plan.soft_weight * self.soft
            by_item[n_labels:] = 0
            counts = self.now["weights"][items][..., None] * by_item / n_outputs
            probable = torch.zeros(n_members, n_probable, n_labels, device=self.training.device)
            probable[..., :n_seen] = self.now["probable"][items[:, :n_probable]]
            tags = torch.cat([tags, probable], dim=1)
            targets = torch.cat([targets, aims[:, :n_probable], aims], dim=1)
            by_tags = counts[:, :n_probable] * (plan.probable_weight / n_probable) * self.soft
            weights = torch.cat([weights, by_tags, counts / n_items], dim=1)
        weights = weights * self.by_label
        columns = None
        if n_outputs > plan.label_block:
            columns, factors = read_columns(targets, self._rand(n_outputs), plan.label_block)
            targets, weights = targets[..., columns], weights[..., columns] * factors
        shares, rows = plan.dropout, tags.shape[1]
        n_features = 0 if features is None else features.shape[2]
        dropout = [
            self._factors(shares[0], n_members, n_items, n_features),
            self._factors(shares[1], n_members, n_items, plan.hidden),
            self._factors(shares[2], n_members, rows, plan.hidden),
            self._factors(shares[3], n_members, rows + n_items, plan.code),
        ]
        return Batch(tags, features, targets, weights, columns, dropout)

    def _losses(self) -> list[tuple[float, float]]:
        """Give the mean cross-entropy of the last step's documents and items."""
        each = torch.nn.functional.binary_cross_entropy_with_logits(
            self.logits, self.batch.targets, reduction="none"
        )
        sums = (each * self.batch.weights).sum(dim=2).cpu()
        n = self.training.plan.document_batch
        first = self.batch.tags.shape[1]
        return [(float(one[:n].sum()), float(one[first:].sum())) for one in sums]
