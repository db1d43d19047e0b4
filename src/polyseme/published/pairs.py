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

from polyseme.base.validation import IntArray
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


class PairBatch(NamedTuple):
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
        n_documents, self.n_labels = matrix.shape
        self.starts = matrix.indptr.astype(np.int64)
        self.batch_size = batch_size
        self.n_negatives = n_negatives
        self.lengths = np.diff(self.starts)
        self.label_ids = matrix.indices.astype(np.int64)
        rows = np.arange(n_documents, dtype=np.int64)
        self.document_ids = np.repeat(rows, self.lengths)
        # Number of absent labels before each present one; rising inside a document.
        first_entries = self.starts[self.document_ids]
        ranks = np.arange(len(self.label_ids)) - first_entries
        row_keys = self.document_ids * (self.n_labels + 1)
        self._gaps = row_keys + self.label_ids - ranks

    def absent_labels(self, document_ids: IntArray, generator: np.random.Generator) -> IntArray:
        """Draw a uniform label outside each document, (n,); -1 where it holds all of them."""
        lengths = self.lengths[document_ids]
        n_absent = self.n_labels - lengths
        n_draws = len(document_ids)
        uniform = generator.random(n_draws)
        absent_ranks = (uniform * n_absent).astype(np.int64)
        row_keys = document_ids * (self.n_labels + 1)
        keys = row_keys + absent_ranks
        entries = np.searchsorted(self._gaps, keys, side="right")
        n_before = entries - self.starts[document_ids]
        labels = absent_ranks + n_before
        return np.where(n_absent > 0, labels, -1)

    def epoch(self, generator: np.random.Generator) -> Iterator[PairBatch]:
        """Iterate over the batches of a pass; without negatives, one positive may sit it out."""
        per_batch = max(1, self.batch_size // (1 + self.n_negatives))
        if not self.n_negatives:
            even = per_batch - per_batch % 2
            per_batch = max(2, even)
        order = generator.permutation(len(self.label_ids))
        n_whole = len(order) - len(order) % per_batch
        whole_batches = order[:n_whole].reshape(-1, per_batch)
        last_batch = order[None, n_whole:]
        for start in range(0, len(whole_batches), _DRAWN_TOGETHER):
            stop = start + _DRAWN_TOGETHER
            yield from self._batches(whole_batches[start:stop], generator)
        if last_batch.size:
            yield from self._batches(last_batch, generator)

    def _batches(self, chosen: IntArray, generator: np.random.Generator) -> Iterator[PairBatch]:
        """Add the negatives of the chosen positives, a row for each batch, and pair both."""
        positive_documents = self.document_ids[chosen]
        negative_documents = np.repeat(positive_documents, self.n_negatives, axis=1)
        negative_labels = self.absent_labels(negative_documents.ravel(), generator)
        negative_labels = negative_labels.reshape(negative_documents.shape)
        labels = np.concatenate([self.label_ids[chosen], negative_labels], axis=1)
        documents = np.concatenate([positive_documents, negative_documents], axis=1)

        n_examples = labels.shape[1]
        order = np.broadcast_to(np.arange(n_examples), labels.shape)
        order = generator.permuted(order, axis=1)
        labels = np.take_along_axis(labels, order, 1)
        documents = np.take_along_axis(documents, order, 1)
        positive = order < chosen.shape[1]
        for batch in map(PairBatch, labels, documents, positive):
            if n_examples % 2 or (batch.label_ids < 0).any():
                batch = _even(batch)
            if len(batch.label_ids):
                yield batch


def _even(batch: PairBatch) -> PairBatch:
    """Leave out examples without a label, and one more where the number is odd."""
    rows = np.flatnonzero(batch.label_ids >= 0)
    if len(rows) % 2:
        # A negative one if there is any: they are drawn again.
        is_negative = ~batch.positive[rows]
        negatives = np.flatnonzero(is_negative)
        last = negatives[-1] if len(negatives) else -1
        rows = np.delete(rows, last)
    label_ids = batch.label_ids[rows]
    document_ids = batch.document_ids[rows]
    positive = batch.positive[rows]
    return PairBatch(label_ids, document_ids, positive)


class StepInput(NamedTuple):
    """The n examples of a step, first sides of all pairs, then second sides: fourteen tensors."""

    label_ids: Tensor  # (n,)
    contexts: Tensor  # (n, n_topics)
    prediction: PredictionTargets  # of equation (1)
    distance: DistanceTargets  # of equation (3)

    @classmethod
    def of(cls, tensors: Sequence[Tensor]) -> StepInput:
        """Make a step of the tensors that `tensors` lists."""
        label_ids, contexts = tensors[:2]
        prediction = PredictionTargets(*tensors[2:11])
        distance = DistanceTargets(*tensors[11:])
        return cls(label_ids, contexts, prediction, distance)

    @property
    def tensors(self) -> list[Tensor]:
        """All parts in order."""
        return [self.label_ids, self.contexts, *self.prediction, *self.distance]


class Collator:
    """Compute from batches all that a step needs and that does not depend on weights.

    It is made where the contexts are, (n_documents, n_topics).
    """

    def __init__(self, matrix: sp.csr_matrix, contexts: Tensor, loss: LossSettings) -> None:
        def to_tensor(array: NDArray[Any]) -> Tensor:
            return torch.from_numpy(array.astype(np.int64)).to(contexts.device)

        self.counts = np.diff(matrix.indptr).astype(np.int64)
        self.lengths = to_tensor(self.counts)
        self.starts = to_tensor(matrix.indptr[:-1])
        self.indices = to_tensor(matrix.indices)
        self.contexts = contexts
        self.loss = loss
        self.n_labels = int(matrix.shape[1])

    def __call__(
        self, batches: Sequence[PairBatch], *, share: float, siamese: bool, one_size: bool = False
    ) -> Iterator[StepInput]:
        """Make the steps of batches with the same number of examples.

        `share` is the weight of a pair's loss in the step's; the distance loss counts only with
        `siamese`. With `one_size` all steps are filled up to one number of places, a multiple of
        the number of examples.
        """
        n = len(batches[0].label_ids)
        n_batches = len(batches)
        sizes = [int(self.counts[batch.document_ids].sum()) for batch in batches]
        capacity = max(sizes)
        if n_batches > 1 and not one_size and n_batches * capacity > _MOST_PLACES:
            for batch in batches:
                yield from self([batch], share=share, siamese=siamese)
            return
        if one_size:
            capacity = -(-capacity // n) * n
            sizes = [capacity] * n_batches

        labels, documents, positive = map(self._sides, zip(*batches, strict=True))
        negative = (~positive).to(self.contexts.dtype)
        contexts = self.contexts[documents]
        places, owners = self._places(documents, capacity)
        prediction = prediction_targets(
            places,
            owners,
            self.lengths[documents],
            negative,
            self.n_labels,
            weighting=self.loss.weighting,
            share=share,
        )
        distance = self._distance_targets(contexts, negative, share=share if siamese else 0.0)

        # In one row of numbers a step: sums of products depend in their last digits on where the
        # operands lie in memory.
        ids = torch.cat([labels, places], 1)
        numbers = torch.cat([contexts.flatten(1), *prediction[:3], *prediction[4:], *distance], 1)
        widths = [contexts[0].numel(), n, n, n]
        widths += [capacity] * 5
        widths += [n // 2] * 3
        for size, id_row, row in zip(sizes, ids, numbers, strict=True):
            context, *tensors = torch.split(row, widths)
            slots = [id_row[n:], *tensors[3:8]]
            tensors[3:8] = [values[:size] for values in slots]
            yield StepInput.of([id_row[:n], context.view(n, -1), *tensors])

    def _distance_targets(
        self, contexts: Tensor, negative: Tensor, *, share: float
    ) -> DistanceTargets:
        """Compute equation (3)'s targets from contexts (n_batches, n, n_topics) of both sides."""
        half = negative.shape[1] // 2
        first = contexts[:, :half].flatten(0, 1)
        second = contexts[:, half:].flatten(0, 1)
        similarity = context_similarity(first, second, self.loss.sensitivity)
        first_negative = negative[:, :half]
        second_negative = negative[:, half:]
        n_negative = first_negative + second_negative
        pair_share = share * self.loss.distance_weight
        return distance_targets(
            similarity.view(-1, half),
            n_negative,
            scale=self.loss.scale,
            negative_weight=self.loss.negative_weight,
            share=pair_share,
        )

    def _sides(self, arrays: Sequence[NDArray[Any]]) -> Tensor:
        """Stack batches' arrays, first sides of all pairs before second ones, (n_batches, n)."""
        rows = []
        for array in arrays:
            first_sides = array[0::2]
            second_sides = array[1::2]
            row = np.concatenate([first_sides, second_sides])
            rows.append(row)
        table = torch.from_numpy(np.stack(rows))
        return table.to(self.contexts.device)

    def _places(self, documents: Tensor, capacity: int) -> tuple[Tensor, Tensor]:
        """Find the documents' labels in the table: places and owners, (n_batches, capacity)."""
        n_batches, n = documents.shape
        lengths = self.lengths[documents]
        ends = lengths.cumsum(1)
        # A slot belongs to the example whose number is the number of documents that end before it.
        marks = ends.new_zeros((n_batches, capacity + 1))
        marks.scatter_add_(1, ends, torch.ones_like(ends))
        owners = marks.cumsum(1)[:, :capacity]
        filled = owners < n
        owners = torch.where(filled, owners, 0)

        offsets = self.starts[documents] - (ends - lengths)
        slots = torch.arange(capacity, device=documents.device)
        entries = offsets.gather(1, owners) + slots
        columns = self.indices[torch.where(filled, entries, 0)]
        places = owners * self.n_labels + columns
        places = torch.where(filled, places, n * self.n_labels)
        return places, owners
