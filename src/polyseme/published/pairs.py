"""Training data of the concept network: examples, their pairs, and batches as a step takes them.

In: a document-label matrix and context histograms. Out: batches of (label, document, sign) whose
neighbours form pairs, and all of a step that does not depend on weights.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor

from polyseme._validation import IntArray
from polyseme.published.losses import (
    DistanceTargets,
    LossSettings,
    PredictionTargets,
    context_similarity,
    distance_targets,
    prediction_targets,
)

# Batches drawn at a time: enough for arrays to pay, few enough to stay small.
_DRAWN_TOGETHER = 256
# Labels of documents in steps that are made together.
_MOST_PLACES = 2**20


class Batch(NamedTuple):
    """Examples of one step; examples 0 and 1, 2 and 3, … are the two sides of a pair."""

    label_ids: IntArray  # (n,), n even
    document_ids: IntArray  # (n,): the row of the example's document
    positive: NDArray[np.bool_]  # (n,): whether the label is in the document


class PairSampler:
    """Draw positive and synthetic negative examples, paired at random, epoch by epoch.

    A positive example is a label in one of its documents; a negative one couples the document with
    a label that it does not hold, drawn uniformly and anew each epoch. A document that holds every
    label has no negative example.
    """

    def __init__(self, matrix: sp.csr_matrix, batch_size: int, n_negatives: int = 1) -> None:
        matrix.sort_indices()
        self.n_labels, self.starts = matrix.shape[1], matrix.indptr.astype(np.int64)
        self.batch_size, self.n_negatives = batch_size, n_negatives
        self.lengths = np.diff(self.starts)
        self.label_ids = matrix.indices.astype(np.int64)
        self.document_ids = np.repeat(np.arange(matrix.shape[0], dtype=np.int64), self.lengths)
        # Number of absent labels before each present one; rising inside a document.
        rank = np.arange(len(self.label_ids)) - self.starts[self.document_ids]
        self._gaps = self.document_ids * (self.n_labels + 1) + self.label_ids - rank

    def absent_labels(self, document_ids: IntArray, generator: np.random.Generator) -> IntArray:
        """Draw a uniform label outside each document, (n,); -1 where it holds all of them."""
        n_absent = self.n_labels - self.lengths[document_ids]
        drawn = (generator.random(len(document_ids)) * n_absent).astype(np.int64)
        key = document_ids * (self.n_labels + 1) + drawn
        n_before = np.searchsorted(self._gaps, key, side="right") - self.starts[document_ids]
        return np.where(n_absent > 0, drawn + n_before, -1)

    def epoch(self, generator: np.random.Generator) -> Iterator[Batch]:
        """Iterate over the batches of a pass; without negatives, one positive may sit it out."""
        per_batch = max(1, self.batch_size // (1 + self.n_negatives))
        if not self.n_negatives:
            per_batch = max(2, per_batch - per_batch % 2)
        order = generator.permutation(len(self.label_ids))
        n_whole = len(order) - len(order) % per_batch
        whole, rest = order[:n_whole].reshape(-1, per_batch), order[None, n_whole:]
        for start in range(0, len(whole), _DRAWN_TOGETHER):
            yield from self._batches(whole[start : start + _DRAWN_TOGETHER], generator)
        if rest.size:
            yield from self._batches(rest, generator)

    def _batches(self, chosen: IntArray, generator: np.random.Generator) -> Iterator[Batch]:
        """Add the negatives of the chosen positives, a row for each batch, and pair both."""
        documents = self.document_ids[chosen]
        others = np.repeat(documents, self.n_negatives, axis=1)
        negatives = self.absent_labels(others.ravel(), generator).reshape(others.shape)
        labels = np.concatenate([self.label_ids[chosen], negatives], axis=1)
        documents = np.concatenate([documents, others], axis=1)
        order = np.broadcast_to(np.arange(labels.shape[1]), labels.shape)
        order = generator.permuted(order, axis=1)
        labels, documents = (np.take_along_axis(part, order, 1) for part in (labels, documents))
        for batch in map(Batch, labels, documents, order < chosen.shape[1]):
            if len(order[0]) % 2 or (batch.label_ids < 0).any():
                batch = _even(batch)
            if len(batch.label_ids):
                yield batch


def _even(batch: Batch) -> Batch:
    """Leave out what has no label, and one example more where one finds no partner."""
    kept = np.flatnonzero(batch.label_ids >= 0)
    if len(kept) % 2:
        # A negative one if there is any: they are drawn anew.
        unpaired = np.flatnonzero(~batch.positive[kept])
        kept = np.delete(kept, unpaired[-1] if len(unpaired) else -1)
    return Batch(batch.label_ids[kept], batch.document_ids[kept], batch.positive[kept])


class StepInput(NamedTuple):
    """The n examples of a step, first sides of all pairs, then second sides: fourteen tensors."""

    label_ids: Tensor  # (n,)
    contexts: Tensor  # (n, n_topics)
    prediction: PredictionTargets  # of equation (1)
    distance: DistanceTargets  # of equation (3)

    @classmethod
    def of(cls, tensors: Sequence[Tensor]) -> StepInput:
        """Make a step of what `tensors` lists."""
        prediction, distance = PredictionTargets(*tensors[2:11]), DistanceTargets(*tensors[11:])
        return cls(tensors[0], tensors[1], prediction, distance)

    @property
    def tensors(self) -> list[Tensor]:
        """All parts in order."""
        return [self.label_ids, self.contexts, *self.prediction, *self.distance]


class Collator:
    """Make of batches all that a step needs and that does not depend on weights.

    It is made where the contexts are, (n_documents, n_topics).
    """

    def __init__(self, matrix: sp.csr_matrix, contexts: Tensor, loss: LossSettings) -> None:
        self.counts = np.diff(matrix.indptr).astype(np.int64)
        self.lengths, self.starts, self.indices = (
            torch.from_numpy(part.astype(np.int64)).to(contexts.device)
            for part in (self.counts, matrix.indptr[:-1], matrix.indices)
        )
        self.contexts, self.loss, self.n_labels = contexts, loss, int(matrix.shape[1])

    def __call__(
        self, batches: Sequence[Batch], *, share: float, siamese: bool, one_size: bool = False
    ) -> Iterator[StepInput]:
        """Make the steps of batches with the same number of examples.

        `share` is the weight of a pair's loss in the step's; the distance loss counts only with
        `siamese`. With `one_size` all steps are filled up to one number of places, a multiple of
        the number of examples.
        """
        n = len(batches[0].label_ids)
        sizes = [int(self.counts[batch.document_ids].sum()) for batch in batches]
        if len(batches) > 1 and not one_size and len(batches) * max(sizes) > _MOST_PLACES:
            for batch in batches:
                yield from self([batch], share=share, siamese=siamese)
            return
        if one_size:
            sizes = [-(-max(sizes) // n) * n] * len(batches)
        labels, documents, positive = (self._sides(parts) for parts in zip(*batches, strict=True))
        negative, contexts = (~positive).to(self.contexts.dtype), self.contexts[documents]
        places, owners = self._places(documents, max(sizes))
        prediction = prediction_targets(
            places, owners, self.lengths[documents], negative, self.n_labels,
            weighting=self.loss.weighting, share=share,
        )  # fmt: skip
        halves = slice(0, n // 2), slice(n // 2, n)
        first, second = (contexts[:, part].flatten(0, 1) for part in halves)
        distance = distance_targets(
            context_similarity(first, second, self.loss.sensitivity).view(-1, n // 2),
            negative[:, halves[0]] + negative[:, halves[1]],
            scale=self.loss.scale,
            negative_weight=self.loss.negative_weight,
            share=share * self.loss.distance_weight if siamese else 0.0,
        )
        # In one row of numbers a step: sums of products depend in their last digits on where the
        # operands lie in memory.
        ids = torch.cat([labels, places], 1)
        numbers = torch.cat([contexts.flatten(1), *prediction[:3], *prediction[4:], *distance], 1)
        widths = [contexts[0].numel(), n, n, n, *[max(sizes)] * 5, *[n // 2] * 3]
        for size, label_ids, row in zip(sizes, ids, numbers, strict=True):
            context, *parts = torch.split(row, widths)
            parts[3:8] = (part[:size] for part in (label_ids[n:], *parts[3:8]))
            yield StepInput.of([label_ids[:n], context.view(n, -1), *parts])

    def _sides(self, parts: Sequence[NDArray[Any]]) -> Tensor:
        """Stack a part of batches, first sides of all pairs before second ones, (n_batches, n)."""
        stacked = np.stack([np.concatenate([part[0::2], part[1::2]]) for part in parts])
        return torch.from_numpy(stacked).to(self.contexts.device)

    def _places(self, documents: Tensor, capacity: int) -> tuple[Tensor, Tensor]:
        """Find the documents' labels in the table: places and owners, (n_batches, capacity)."""
        n_batches, n = documents.shape
        lengths = self.lengths[documents]
        ends = lengths.cumsum(1)
        # Whose a slot is says the number of documents that end before it.
        marks = ends.new_zeros((n_batches, capacity + 1))
        owners = marks.scatter_add_(1, ends, torch.ones_like(ends)).cumsum(1)[:, :capacity]
        filled = owners < n
        owners = torch.where(filled, owners, 0)
        first = (self.starts[documents] - (ends - lengths)).gather(1, owners)
        slots = torch.arange(capacity, device=documents.device)
        columns = self.indices[torch.where(filled, first + slots, 0)]
        return torch.where(filled, owners * self.n_labels + columns, n * self.n_labels), owners
