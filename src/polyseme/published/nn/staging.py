"""Batches laid out as the training step takes them: all of it that does not depend on weights.

In: batches of label and document numbers. Out: `StepInput`, the examples of one step with their
contexts, weights and targets, as views of one row of whole numbers and one of others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor

from polyseme.published.nn.losses import context_similarity
from polyseme.published.nn.pairs import Batch

Kind = TypeVar("Kind", bound=np.generic)


@dataclass(frozen=True)
class LossSettings:
    """Constants of the combined loss (in the paper: equation 4).

    Attributes
    ----------
    weighting : str
        Reading of κ: "balanced", "literal" or "none".
    sensitivity : float
        λ.
    scale : float
        β.
    negative_weight : float
        ρ.
    distance_weight : float
        α.
    """

    weighting: str
    sensitivity: float
    scale: float
    negative_weight: float
    distance_weight: float


class StepInput(NamedTuple):
    """The examples of one step: first sides of all pairs, then second sides in the same order.

    Attributes
    ----------
    label_ids : int64 tensor, shape (n,)
    places : int64 tensor, shape (m,)
        Where the labels of the examples' documents stand in a table of n rows and `width`
        columns, row by row. Places in a column beyond the labels only fill up.
    contexts : tensor, shape (n, n_topics)
    negative : tensor of 0/1, shape (n,)
        1 for a negative example.
    outside : tensor, shape (n,)
        Weight of the labels outside the example's document.
    factor : tensor, shape (n,)
        The same, as the step's loss weighs it.
    scale, offset : tensors, shape (m,)
        What the labels inside are multiplied by and what is added, so that `factor` fits them too.
    inside, instead, side : tensors, shape (m,)
        The weight that labels inside have, the one they do not have (both 0 for what only fills
        up), and the sign of their example.
    target, weight, pull : tensors, shape (n / 2,)
        The distance each pair should have, the weight of its error, and the same as the gradient
        weighs it.
    width : int
        Columns of the table: the number of labels, or more.
    """

    label_ids: Tensor
    places: Tensor
    contexts: Tensor
    negative: Tensor
    outside: Tensor
    factor: Tensor
    scale: Tensor
    offset: Tensor
    inside: Tensor
    instead: Tensor
    side: Tensor
    target: Tensor
    weight: Tensor
    pull: Tensor
    width: int


class Steps(NamedTuple):
    """Many steps of one size, a row for each.

    Attributes
    ----------
    whole : int64 tensor, shape (n_steps, n + m)
    other : tensor, shape (n_steps, ...)
        `StepInput`'s other parts, one after another.
    """

    whole: Tensor
    other: Tensor


class Stager:
    """Lay batches out, where they are computed with.

    Parameters
    ----------
    matrix : csr_matrix of bool, shape (n_documents, n_labels)
        The documents that batches speak of.
    contexts : tensor, shape (n_documents, n_topics)
        Their histograms; steps are laid out on the same device.
    loss : LossSettings
    spare : bool
        Whether the table has columns beyond the labels, so that steps whose documents hold fewer
        labels than others' can be filled up to one size.
    """

    def __init__(
        self, matrix: sp.csr_matrix, contexts: Tensor, loss: LossSettings, spare: bool = False
    ) -> None:
        device = contexts.device
        self.counts = np.diff(matrix.indptr).astype(np.int64)
        self.lengths = torch.from_numpy(self.counts).to(device)
        self.starts = torch.from_numpy(matrix.indptr[:-1].astype(np.int64)).to(device)
        self.indices = torch.from_numpy(matrix.indices.astype(np.int64)).to(device)
        self.contexts = contexts
        self.loss = loss
        self.n_labels = int(matrix.shape[1])
        # Rows that begin at round addresses are what fast products are made for.
        self.width = (self.n_labels // 64 + 1) * 64 if spare else self.n_labels

    def most(self, batches: Sequence[Batch]) -> int:
        """Give the most labels that the documents of one batch hold together."""
        return max(int(self.counts[batch.document_ids].sum()) for batch in batches)

    def one(self, batch: Batch, *, share: float, siamese: bool) -> StepInput:
        """Lay out one batch.

        Parameters
        ----------
        batch : Batch
        share : float
            Weight of each pair's loss in the step's: one over the number of pairs, or 1.
        siamese : bool
            Whether the distance loss counts.

        Returns
        -------
        StepInput
        """
        return self.several([batch], share=share, siamese=siamese)[0]

    def several(self, batches: Sequence[Batch], *, share: float, siamese: bool) -> list[StepInput]:
        """Lay out batches of one size together, each without filling.

        Parameters
        ----------
        batches : sequence of Batch
        share, siamese : as `one` has them

        Returns
        -------
        list of StepInput
        """
        n, sizes = len(batches[0].label_ids), [self.most([batch]) for batch in batches]
        steps = self.many(batches, max(sizes), share=share, siamese=siamese)
        rows = zip(steps.whole, steps.other, sizes, strict=True)
        return [self.views(whole, other, n, m) for whole, other, m in rows]

    def many(
        self, batches: Sequence[Batch], capacity: int, *, share: float, siamese: bool
    ) -> Steps:
        """Lay out batches of one size.

        Parameters
        ----------
        batches : sequence of Batch
        capacity : int
            Room for the labels of a step's documents, at least `most`.
        share, siamese : as `one` has them

        Returns
        -------
        Steps
        """
        labels = self._moved(np.stack([_halves(one.label_ids) for one in batches]))
        documents = self._moved(np.stack([_halves(one.document_ids) for one in batches]))
        negative = self._moved(~np.stack([_halves(one.positive) for one in batches]))
        negative = negative.to(self.contexts.dtype)
        places, owners, filled = self._places(documents, capacity)
        outside, inside = self._weights(documents, negative)
        # A weight of zero outside happens when a document holds every label, under "literal".
        outside = outside.clamp_min(torch.finfo(torch.float32).tiny ** 0.5)
        owned = [part.gather(1, owners) for part in (inside, outside, negative)]
        scale = owned[0] / owned[1]
        offset = scale * (owned[2] - 1.0) + owned[2]
        contexts = self.contexts.index_select(0, documents.flatten()).view(*documents.shape, -1)
        target, weight = self._pairs(contexts, negative)
        pull = weight * (2.0 * share * self.loss.distance_weight if siamese else 0.0)
        parts = [contexts.flatten(1), negative, outside, outside * share, scale, offset]
        parts += [owned[0] * filled, owned[1] * filled, 1.0 - 2.0 * owned[2]]
        return Steps(torch.cat([labels, places], 1), torch.cat([*parts, target, weight, pull], 1))

    def views(self, whole: Tensor, other: Tensor, n: int, m: int | None = None) -> StepInput:
        """Give one step of n examples as views of its two rows.

        Parameters
        ----------
        whole, other : tensors
            A row of each part of `Steps`.
        n : int
        m : int, optional
            The labels of the step's documents, to leave out what only fills up.

        Returns
        -------
        StepInput
        """
        capacity, n_topics = len(whole) - n, self.contexts.shape[1]
        half = n // 2
        sizes = [n * n_topics, n, n, n, *[capacity] * 5, half, half, half]
        contexts, negative, outside, factor, *rest = torch.split(other, sizes)
        label_ids, places = torch.split(whole, [n, capacity])
        inside = [part[:m] for part in (places, *rest[:5])]
        parts = [label_ids, inside[0], contexts.view(n, n_topics), negative, outside, factor]
        parts += [*inside[1:], *rest[5:]]
        return StepInput(**dict(zip(StepInput._fields, parts, strict=False)), width=self.width)

    def _moved(self, values: NDArray[Kind]) -> Tensor:
        """Bring an array to where steps are computed."""
        tensor = torch.from_numpy(values)
        if self.contexts.is_cuda:
            # Pinned memory travels while this goes on.
            return tensor.pin_memory().to(self.contexts.device, non_blocking=True)
        return tensor.to(self.contexts.device)

    def _places(self, documents: Tensor, capacity: int) -> tuple[Tensor, Tensor, Tensor]:
        """Find the documents' labels in the table: places, owners, and which are no filling."""
        n_steps, n = documents.shape
        lengths = self.lengths[documents]
        ends = lengths.cumsum(1)
        slots = torch.arange(capacity, device=documents.device).expand(n_steps, capacity)
        # Whose a slot is says the number of documents that end before it.
        marks = ends.new_zeros((n_steps, capacity + 1))
        owners = marks.scatter_add_(1, ends, torch.ones_like(ends)).cumsum(1)[:, :capacity]
        filled = owners < n
        owners = torch.where(filled, owners, 0)
        first = (self.starts[documents] - (ends - lengths)).gather(1, owners)
        columns = self.indices[torch.where(filled, first + slots, 0)]
        places = torch.where(filled, owners * self.width + columns, self.n_labels)
        return places, owners, filled

    def _weights(self, documents: Tensor, negative: Tensor) -> tuple[Tensor, Tensor]:
        """Give each example's weights on labels outside and inside its document."""
        held = self.lengths[documents].to(negative.dtype) / self.n_labels
        positive = negative == 0
        share = torch.where(positive, held, 1.0 - held)
        if self.loss.weighting == "none":
            kappa = torch.full_like(share, 0.5)
        else:
            kappa = share if self.loss.weighting == "literal" else 1.0 - share
        named, other = 4.0 * kappa / self.n_labels, 4.0 * (1.0 - kappa) / self.n_labels
        return torch.where(positive, other, named), torch.where(positive, named, other)

    def _pairs(self, contexts: Tensor, negative: Tensor) -> tuple[Tensor, Tensor]:
        """Give the distance each pair should have, and the weight of its error."""
        half = negative.shape[1] // 2
        first, second = contexts[:, :half].flatten(0, 1), contexts[:, half:].flatten(0, 1)
        similarity = context_similarity(first, second, self.loss.sensitivity)
        similarity = similarity.view(len(negative), half)
        n_negative = negative[:, :half] + negative[:, half:]
        scale = self.loss.scale
        target = torch.where(n_negative == 1, scale, scale * (1.0 - similarity))
        same = torch.where(n_negative == 0, 1.0, self.loss.negative_weight)
        return target, torch.where(n_negative == 1, similarity, same.to(similarity.dtype))


def _halves(values: NDArray[Kind]) -> NDArray[Kind]:
    """Put the first sides of all pairs before their second sides."""
    return np.concatenate([values[0::2], values[1::2]])
