"""Training data of the concept network: examples, their pairs, and batches as a step takes them.

In: a document-label matrix and context histograms. Out: batches of (label, document, sign) whose
neighbours form pairs, and all of a step that does not depend on weights.

Terms: an *example* is a label in the context of a document; positive if the document has the label,
else negative (in the paper: synthetic). An *entry* is a label of a document in the CSR matrix, so
there is one for each positive example. Label and document ids are columns and rows of the matrix.
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

# Batches drawn at a time: enough for arrays to pay, few enough to stay small. Another number draws
# other negatives, so fitted models would change.
_BATCHES_DRAWN_TOGETHER = 256
# Places (see `Collator`) of the steps that are made together, which bounds their memory.
_MOST_PLACES = 2**20


class PairBatch(NamedTuple):
    """Examples of one step; examples 0 and 1, 2 and 3, … are the two sides of a pair."""

    label_ids: IntArray  # (n,), n even
    document_ids: IntArray  # (n,)
    positive: NDArray[np.bool_]  # (n,): whether the document has the label


class PairSampler:
    """Draw positive and synthetic negative examples, paired at random, epoch by epoch.

    A positive example is a label in one of its documents; a negative one couples the document with
    a label that it does not hold, drawn uniformly and anew each epoch. A document that holds every
    label has no negative example.

    Parameters
    ----------
    matrix : boolean csr_matrix, shape (n_documents, n_labels)
        Its indices are put in order.
    batch_size : int
        Examples of a batch, positive and negative together.
    n_negatives : int
        Negative examples for each positive one.
    """

    def __init__(self, matrix: sp.csr_matrix, batch_size: int, n_negatives: int = 1) -> None:
        matrix.sort_indices()
        n_documents, self.n_labels = matrix.shape
        self.batch_size = batch_size
        self.n_negatives = n_negatives
        # The first entry and the number of entries of each document.
        self.starts = matrix.indptr.astype(np.int64)
        self.lengths = np.diff(self.starts)
        # The label and the document of each entry.
        self.label_ids = matrix.indices.astype(np.int64)
        rows = np.arange(n_documents, dtype=np.int64)
        self.document_ids = np.repeat(rows, self.lengths)
        # How many labels before each entry's its document lacks, which rises inside a document;
        # made to rise over all entries by the document's id.
        n_entries = len(self.label_ids)
        first_entries = self.starts[self.document_ids]
        ranks = np.arange(n_entries) - first_entries
        n_absent_before = self.label_ids - ranks
        self._absent_keys = self._keys(self.document_ids, n_absent_before)

    def _keys(self, document_ids: IntArray, n_absent: IntArray) -> IntArray:
        """Return numbers that sort by document first, then by a number of absent labels."""
        return document_ids * (self.n_labels + 1) + n_absent

    def absent_labels(self, document_ids: IntArray, generator: np.random.Generator) -> IntArray:
        """Draw a uniform label outside each document, (n,) to (n,); -1 where it has all labels."""
        lengths = self.lengths[document_ids]
        n_absent = self.n_labels - lengths
        n_draws = len(document_ids)
        uniform = generator.random(n_draws)
        # The rank of the label among those that the document lacks; before it come so many of
        # these, and the document's labels that have no more of these before them.
        absent_ranks = uniform * n_absent
        absent_ranks = absent_ranks.astype(np.int64)
        keys = self._keys(document_ids, absent_ranks)
        entries = np.searchsorted(
            self._absent_keys,
            keys,
            side="right",
        )
        first_entries = self.starts[document_ids]
        n_present_before = entries - first_entries
        label_ids = absent_ranks + n_present_before
        has_absent = n_absent > 0
        return np.where(has_absent, label_ids, -1)

    def epoch(self, generator: np.random.Generator) -> Iterator[PairBatch]:
        """Yield the batches of a pass over all positive examples, in random order.

        Without negatives, one positive may sit it out.
        """
        per_positive = 1 + self.n_negatives
        n_positives = max(1, self.batch_size // per_positive)
        if not self.n_negatives:
            # Positives are paired with each other.
            even = n_positives - n_positives % 2
            n_positives = max(2, even)
        n_entries = len(self.label_ids)
        order = generator.permutation(n_entries)
        n_whole = n_entries - n_entries % n_positives
        # Entries of the positive examples, a row for each batch.
        whole_batches = order[:n_whole].reshape(-1, n_positives)
        last_batch = order[None, n_whole:]
        for start in range(0, len(whole_batches), _BATCHES_DRAWN_TOGETHER):
            stop = start + _BATCHES_DRAWN_TOGETHER
            yield from self._batches(whole_batches[start:stop], generator)
        if last_batch.size:
            yield from self._batches(last_batch, generator)

    def _batches(self, entries: IntArray, generator: np.random.Generator) -> Iterator[PairBatch]:
        """Yield a batch for each row of `entries`, (n_batches, n_positives).

        The positive examples of these entries get their negatives; both are paired at random.
        """
        positive_labels = self.label_ids[entries]
        positive_documents = self.document_ids[entries]
        negative_documents = np.repeat(positive_documents, self.n_negatives, axis=1)
        drawn_labels = self.absent_labels(negative_documents.ravel(), generator)
        negative_labels = drawn_labels.reshape(negative_documents.shape)
        labels = np.concatenate([positive_labels, negative_labels], axis=1)
        documents = np.concatenate([positive_documents, negative_documents], axis=1)

        n_positives = entries.shape[1]
        n_examples = labels.shape[1]
        numbers = np.arange(n_examples)
        numbers = np.broadcast_to(numbers, labels.shape)
        order = generator.permuted(numbers, axis=1)
        labels = np.take_along_axis(labels, order, 1)
        documents = np.take_along_axis(documents, order, 1)
        positive = order < n_positives
        for batch in map(PairBatch, labels, documents, positive):
            lacks_labels = (batch.label_ids < 0).any()
            if n_examples % 2 or lacks_labels:
                batch = _pairable(batch)
            if len(batch.label_ids):
                yield batch


def _pairable(batch: PairBatch) -> PairBatch:
    """Return a batch without examples of label -1, and of an even number."""
    has_label = batch.label_ids >= 0
    numbers = np.flatnonzero(has_label)
    if len(numbers) % 2:
        # Leave out a negative one if there is any: they are drawn again.
        is_negative = ~batch.positive[numbers]
        negatives = np.flatnonzero(is_negative)
        left_out = negatives[-1] if len(negatives) else -1
        numbers = np.delete(numbers, left_out)
    return PairBatch(
        batch.label_ids[numbers],
        batch.document_ids[numbers],
        batch.positive[numbers],
    )


class StepInput(NamedTuple):
    """The n examples of a step, first sides of all pairs, then second sides: fourteen tensors.

    Examples i and i + n / 2 are a pair.
    """

    label_ids: Tensor  # (n,)
    contexts: Tensor  # (n, n_topics)
    prediction: PredictionTargets  # of equation (1)
    distance: DistanceTargets  # of equation (3), of n / 2 pairs

    @classmethod
    def of(cls, tensors: Sequence[Tensor]) -> StepInput:
        """Make a step of its fourteen tensors, in the order of the property `tensors`."""
        n_prediction = len(PredictionTargets._fields)
        label_ids, contexts, *targets = tensors
        prediction = PredictionTargets(*targets[:n_prediction])
        distance = DistanceTargets(*targets[n_prediction:])
        return cls(label_ids, contexts, prediction, distance)

    @property
    def tensors(self) -> list[Tensor]:
        """The fourteen tensors, targets in the order of their fields."""
        return [self.label_ids, self.contexts, *self.prediction, *self.distance]


class Collator:
    """Compute from batches all that a step needs and that does not depend on weights.

    Terms: the predictions of a step's n examples are a table (n, n_labels). The *places* of a step
    are those of the labels inside in the flat table: one for each label of each example's document.
    The *owner* of a place is the number of its example.

    Parameters
    ----------
    matrix : boolean csr_matrix, shape (n_documents, n_labels)
    contexts : tensor, shape (n_documents, n_topics)
        Steps are made on its device, in its type of number.
    loss : LossSettings
    """

    def __init__(self, matrix: sp.csr_matrix, contexts: Tensor, loss: LossSettings) -> None:
        device = contexts.device

        def to_tensor(array: NDArray[Any]) -> Tensor:
            whole_numbers = array.astype(np.int64)
            tensor = torch.from_numpy(whole_numbers)
            return tensor.to(device)

        lengths = np.diff(matrix.indptr)
        self.host_lengths = lengths.astype(np.int64)  # labels of each document, in numpy
        self.lengths = to_tensor(lengths)  # the same on the device
        self.starts = to_tensor(matrix.indptr[:-1])
        self.indices = to_tensor(matrix.indices)
        self.contexts = contexts
        self.loss = loss
        self.n_labels = int(matrix.shape[1])

    def __call__(
        self, batches: Sequence[PairBatch], *, share: float, siamese: bool, one_size: bool = False
    ) -> Iterator[StepInput]:
        """Yield the steps of batches that all have the same number n of examples, in order.

        `share` is the weight of a pair's loss in the step's; the distance loss counts only with
        `siamese`. With `one_size` all steps are filled up to one number of places, a multiple of
        n, so that a graph of a GPU serves more of them.
        """
        n = len(batches[0].label_ids)
        n_batches = len(batches)
        sizes: list[int] = []
        for batch in batches:
            batch_lengths = self.host_lengths[batch.document_ids]
            sizes.append(int(batch_lengths.sum()))
        capacity = max(sizes)
        n_places = n_batches * capacity
        if n_batches > 1 and not one_size and n_places > _MOST_PLACES:
            for batch in batches:
                yield from self([batch], share=share, siamese=siamese)
            return
        if one_size:
            rows_of_places = -(-capacity // n)  # rounded up
            capacity = rows_of_places * n
            sizes = [capacity] * n_batches

        columns = zip(*batches, strict=True)
        labels, documents, positive = map(self._sides, columns)
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
        distance_share = share if siamese else 0.0
        distance = self._distance_targets(contexts, negative, share=distance_share)

        # The numbers of a step lie in one row: sums of products depend in their last digits on
        # where the operands lie in memory. The fourth of the prediction's fields are places, which
        # are no such numbers and lie behind the labels.
        ids = torch.cat([labels, places], 1)
        flat_contexts = contexts.flatten(1)
        by_example = prediction[:3]
        by_place = prediction[4:]
        numbers = torch.cat([flat_contexts, *by_example, *by_place, *distance], 1)
        widths = [flat_contexts.shape[1], n, n, n]
        widths += [capacity] * len(by_place)
        widths += [n // 2] * len(distance)
        for size, id_row, number_row in zip(sizes, ids, numbers, strict=True):
            context_row, *tensors = torch.split(number_row, widths)
            # Places beyond the step's own are left out.
            place_tensors = [id_row[n:], *tensors[3:8]]
            tensors[3:8] = [tensor[:size] for tensor in place_tensors]
            step_labels = id_row[:n]
            step_contexts = context_row.view(n, -1)
            yield StepInput.of([step_labels, step_contexts, *tensors])

    def _distance_targets(
        self, contexts: Tensor, negative: Tensor, *, share: float
    ) -> DistanceTargets:
        """Compute equation (3)'s targets, (n_batches, n / 2) each.

        Contexts are (n_batches, n, n_topics); `negative`, (n_batches, n), is 1 for a negative
        example. `share` is the weight of a pair's loss in the step's.
        """
        n_pairs = negative.shape[1] // 2
        first_contexts = contexts[:, :n_pairs].flatten(0, 1)
        second_contexts = contexts[:, n_pairs:].flatten(0, 1)
        similarity = context_similarity(first_contexts, second_contexts, self.loss.sensitivity)
        first_negative = negative[:, :n_pairs]
        second_negative = negative[:, n_pairs:]
        n_negative = first_negative + second_negative
        distance_share = share * self.loss.distance_weight
        return distance_targets(
            similarity.view(-1, n_pairs),
            n_negative,
            scale=self.loss.scale,
            negative_weight=self.loss.negative_weight,
            share=distance_share,
        )

    def _sides(self, arrays: Sequence[NDArray[Any]]) -> Tensor:
        """Stack an array of each batch, first sides of all pairs before second: (n_batches, n)."""
        rows = []
        for array in arrays:
            first_sides = array[0::2]
            second_sides = array[1::2]
            row = np.concatenate([first_sides, second_sides])
            rows.append(row)
        table = torch.from_numpy(np.stack(rows))
        return table.to(self.contexts.device)

    def _places(self, documents: Tensor, capacity: int) -> tuple[Tensor, Tensor]:
        """Find the labels inside of examples with these documents, (n_batches, n).

        Return places and owners, (n_batches, capacity) each; a batch's padding, at its end, has the
        place n · n_labels, one beyond the table, and owner 0.
        """
        n_batches, n = documents.shape
        lengths = self.lengths[documents]
        ends = lengths.cumsum(1)
        # A slot belongs to the example whose number is the number of documents that end before it.
        end_marks = ends.new_zeros((n_batches, capacity + 1))
        end_marks.scatter_add_(1, ends, torch.ones_like(ends))
        n_ended = end_marks.cumsum(1)
        owners = n_ended[:, :capacity]
        filled = owners < n
        owners = torch.where(filled, owners, 0)

        # From slots of the batch to entries of the matrix.
        first_slots = ends - lengths
        offsets = self.starts[documents] - first_slots
        slots = torch.arange(capacity, device=documents.device)
        entries = offsets.gather(1, owners) + slots
        entries = torch.where(filled, entries, 0)
        columns = self.indices[entries]
        places = owners * self.n_labels
        places = places + columns
        table_size = n * self.n_labels
        places = torch.where(filled, places, table_size)
        return places, owners
