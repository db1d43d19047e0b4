"""Steps one after another: each by itself on the processor, as a captured graph on a GPU.

In: batches. Out: updated weights, and the losses of the steps that were looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import torch
from torch import Tensor

from polyseme.published.nn.moments import moments_of, put_moments
from polyseme.published.nn.pairs import Batch
from polyseme.published.nn.processes import Processes
from polyseme.published.nn.staging import Stager, StepInput, Steps
from polyseme.published.nn.steps import StepGradient

# Losses cost a pass of their own, so that only one step in so many is looked at.
LOOK_EVERY = 16
# Steps laid out at a time on the processor: what they share is shared, and caches still hold them.
_FEW_STEPS = 16
# Documents of very many labels are laid out one step at a time.
_MOST_PLACES = 2**20


def steps_at_a_time(n: int) -> int:
    """Say how many steps of n examples are laid out at a time: some 500 MB for thirty topics."""
    return max(8, min(256, 2**29 // (400 * n)))


class StepRunner:
    """Take steps of an optimiser along computed gradients.

    Parameters
    ----------
    gradient : StepGradient
    stager : Stager
    reduction : {"mean", "sum"}
        Whether a step averages its pairs' losses or sums them.
    processes : Processes
        Those that train the same network together; each takes its share of every step's pairs.
    """

    def __init__(
        self, gradient: StepGradient, stager: Stager, reduction: str, processes: Processes
    ) -> None:
        self.gradient = gradient
        self.stager = stager
        self.reduction = reduction
        self.processes = processes

    def run(
        self, batches: Iterable[Batch], optimizer: torch.optim.Optimizer, *, siamese: bool
    ) -> tuple[Tensor, int]:
        """Take one step for each batch.

        Parameters
        ----------
        batches : iterable of Batch
        optimizer : torch optimiser
            Over the flat vector of all weights.
        siamese : bool
            Whether the distance loss counts.

        Returns
        -------
        losses : tensor, shape (2,)
            Prediction and distance loss, summed over the pairs of the steps that were looked at.
        n_pairs : int
            The number of those pairs.
        """
        totals, n_pairs, number = torch.zeros(2, dtype=torch.float64), 0, 0
        for block in _alike(batches, lambda n: _FEW_STEPS):
            laid_out = self._laid_out(block, siamese=siamese)
            for batch, given in zip(block, laid_out, strict=True):
                look = number % LOOK_EVERY == 0
                values = self.step(batch, optimizer, siamese=siamese, look=look, given=given)
                if values is not None:
                    totals += values.to(totals)
                    n_pairs += len(batch.label_ids) // 2
                number += 1
        return self.processes.summed(totals), n_pairs

    def step(
        self,
        batch: Batch,
        optimizer: torch.optim.Optimizer,
        *,
        siamese: bool,
        look: bool,
        given: StepInput | None = None,
    ) -> Tensor | None:
        """Take one step.

        Parameters
        ----------
        batch : Batch
        optimizer, siamese : as `run` has them
        look : bool
            Whether to compute the losses.
        given : StepInput, optional
            This process's share of the batch, where it is laid out already.

        Returns
        -------
        tensor, shape (2,), or None
            The losses, those of this process's pairs; None unless looked at.
        """
        if given is None:
            given = self._laid_out([batch], siamese=siamese)[0]
        if given is not None:
            values = self.gradient.compute(given, look=look)
        else:
            self.gradient.weights.gradient.zero_()
            values = torch.zeros(2) if look else None
        self.processes.sum_in_place(self.gradient.weights.gradient)
        optimizer.step()
        return values

    def _laid_out(self, block: list[Batch], *, siamese: bool) -> list[StepInput | None]:
        """Lay out this process's share of batches of one size.

        None stands for a share without pairs, and for a step that is better laid out by itself.
        """
        n_pairs = len(block[0].label_ids) // 2
        share = 1.0 / n_pairs if self.reduction == "mean" else 1.0
        mine = [self.processes.share(batch) for batch in block]
        together = len(block) == 1 or self.stager.most(mine) * len(block) <= _MOST_PLACES
        if not len(mine[0].label_ids) or not together:
            return [None] * len(block)
        return list(self.stager.several(mine, share=share, siamese=siamese))


class GraphRunner(StepRunner):
    """Take the same steps on a GPU, captured once as a graph and then launched as one.

    A step is some fifty small kernels; launching them one by one takes many times as long as
    computing them. Batches are laid out and moved many at a time, and the graph itself moves on to
    the next. What is smaller than a whole batch goes step by step.
    """

    def run(
        self, batches: Iterable[Batch], optimizer: torch.optim.Optimizer, *, siamese: bool
    ) -> tuple[Tensor, int]:
        """Take one step for each batch; see `StepRunner.run`."""
        if self.processes.world > 1:
            return super().run(batches, optimizer, siamese=siamese)
        totals, n_pairs, number = torch.zeros(2, dtype=torch.float64), 0, 0
        graphs: _Graphs | None = getattr(self, "_graphs", None)
        for block in _alike(batches, steps_at_a_time):
            n = len(block[0].label_ids)
            if len(block) < LOOK_EVERY:
                for batch in block:
                    look = number % LOOK_EVERY == 0
                    values = self.step(batch, optimizer, siamese=siamese, look=look)
                    if values is not None:
                        totals += values.to(totals)
                        n_pairs += n // 2
                    number += 1
                continue
            share = 2.0 / n if self.reduction == "mean" else 1.0
            most = self.stager.most(block)
            if graphs is None or not graphs.fits(n, most, optimizer):
                if graphs is not None:
                    totals += graphs.take_losses()
                capacity = int(1.25 * most) + 64
                steps = self.stager.many(block, capacity, share=share, siamese=siamese)
                graphs = _Graphs(self.gradient, self.stager, steps, capacity, optimizer)
                self._graphs = graphs
            graphs.load(self.stager.many(block, graphs.capacity, share=share, siamese=siamese))
            for _ in block:
                look = number % LOOK_EVERY == 0
                graphs.replay(look)
                n_pairs += n // 2 if look else 0
                number += 1
        if graphs is not None:
            totals += graphs.take_losses()
        return totals, n_pairs


class _Graphs:
    """A step captured twice, with and without its losses, and the memory it reads from."""

    def __init__(
        self,
        gradient: StepGradient,
        stager: Stager,
        steps: Steps,
        capacity: int,
        optimizer: torch.optim.Optimizer,
    ) -> None:
        self.stager = stager
        self.optimizer = optimizer
        self.capacity = capacity
        self.n = steps.whole.shape[1] - capacity
        self.whole, self.other = (
            part.new_zeros((steps_at_a_time(self.n), part.shape[1])) for part in steps
        )
        self.place = self.whole.new_zeros(1)
        self.losses = torch.zeros(2, dtype=torch.float64, device=self.place.device)
        self.load(steps)
        self.graphs = {look: self._capture(gradient, look) for look in (False, True)}
        self.losses.zero_()

    def fits(self, n: int, most: int, optimizer: torch.optim.Optimizer) -> bool:
        """Say whether these graphs can take steps of n examples and so many labels."""
        return optimizer is self.optimizer and n == self.n and most <= self.capacity

    def load(self, steps: Steps) -> None:
        """Take the examples of many steps and go back to the first of them."""
        self.whole[: len(steps.whole)].copy_(steps.whole)
        self.other[: len(steps.other)].copy_(steps.other)
        self.place.zero_()

    def replay(self, look: bool) -> None:
        """Take the next step."""
        self.graphs[look].replay()

    def take_losses(self) -> Tensor:
        """Give the losses of the steps looked at since the last call."""
        found = self.losses.cpu()
        self.losses.zero_()
        return found

    def _capture(self, gradient: StepGradient, look: bool) -> torch.cuda.CUDAGraph:
        """Capture one step; weights and moments are afterwards what they were before."""
        flat, optimizer = gradient.weights.values, self.optimizer
        weights, moments = flat.clone(), moments_of(optimizer)

        def step() -> None:
            whole = self.whole.index_select(0, self.place)[0]
            other = self.other.index_select(0, self.place)[0]
            values = gradient.compute(self.stager.views(whole, other, self.n), look=look)
            if values is not None:
                self.losses.add_(values)
            optimizer.step()
            self.place.add_(1)

        stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]  # torch's own
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(3):
                step()
                self.place.zero_()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            step()
        self.place.zero_()
        flat.copy_(weights)
        put_moments(optimizer, moments)
        return graph


def _alike(batches: Iterable[Batch], most: Callable[[int], int]) -> Iterator[list[Batch]]:
    """Cut batches into runs of one size, no longer than `most` says of it."""
    waiting: list[Batch] = []
    for batch in batches:
        n = len(batch.label_ids)
        if waiting and (n != len(waiting[0].label_ids) or len(waiting) == most(n)):
            yield waiting
            waiting = []
        waiting.append(batch)
    if waiting:
        yield waiting
