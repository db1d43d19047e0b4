"""Sampling of examples and pairs from documents, all from one given generator.

In: a document-label matrix. Out: batches of (label, document, sign) whose neighbours form pairs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

IntArray = NDArray[np.int64]

# Batches drawn at a time: enough for arrays to pay, few enough to stay small.
_AT_A_TIME = 256


@dataclass(frozen=True)
class Batch:
    """Examples of one step; examples 0 and 1, 2 and 3, … are the two sides of a pair.

    Attributes
    ----------
    label_ids, document_ids : int64 array, shape (n,)
        The example's label and the row of its document; n is even.
    positive : bool array, shape (n,)
        Whether the label is in the document.
    """

    label_ids: IntArray
    document_ids: IntArray
    positive: NDArray[np.bool_]


class PairSampler:
    """Draw positive and synthetic negative examples, paired, epoch by epoch.

    A positive example is a label in one of its documents; a negative one couples the document with
    a label that it does not hold, drawn uniformly and anew each epoch. A document that holds every
    label has no negative example.

    Parameters
    ----------
    matrix : csr_matrix of bool, shape (n_documents, n_labels)
    batch_size : int
        Examples a batch.
    negatives_per_positive : int
        Negative examples for each positive one.
    pairing : {"random", "document"}
        "random" pairs the examples of a batch at random; "document" keeps a document's examples
        together, so that many pairs share it.
    """

    def __init__(
        self,
        matrix: sp.csr_matrix,
        *,
        batch_size: int,
        negatives_per_positive: int = 1,
        pairing: str = "random",
    ) -> None:
        matrix.sort_indices()
        self.matrix = matrix
        self.batch_size = batch_size
        self.negatives_per_positive = negatives_per_positive
        self.pairing = pairing
        self.lengths = np.diff(matrix.indptr).astype(np.int64)
        self.label_ids = matrix.indices.astype(np.int64)
        self.document_ids = np.repeat(np.arange(matrix.shape[0], dtype=np.int64), self.lengths)
        # Number of absent labels before each present one; rising inside a document.
        rank = (
            np.arange(len(self.label_ids)) - matrix.indptr[:-1].astype(np.int64)[self.document_ids]
        )
        n_labels = matrix.shape[1]
        self._gaps = self.document_ids * (n_labels + 1) + self.label_ids - rank

    def absent_labels(self, document_ids: IntArray, generator: np.random.Generator) -> IntArray:
        """Draw a uniform label outside each document; -1 where a document holds all of them.

        Parameters
        ----------
        document_ids : int64 array, shape (n,)
        generator : numpy Generator

        Returns
        -------
        int64 array, shape (n,)
        """
        n_labels = self.matrix.shape[1]
        n_absent = n_labels - self.lengths[document_ids]
        drawn = (generator.random(len(document_ids)) * n_absent).astype(np.int64)
        key = document_ids * (n_labels + 1) + drawn
        n_before = np.searchsorted(self._gaps, key, side="right") - self.matrix.indptr[document_ids]
        return np.where(n_absent > 0, drawn + n_before, -1)

    def epoch(self, generator: np.random.Generator) -> Iterator[Batch]:
        """Iterate over the batches of one pass through all positive examples.

        Each comes exactly once, but for one that finds no partner in a batch without negative
        examples; it sits out this pass.

        Parameters
        ----------
        generator : numpy Generator
            Draws the order, the negative labels and the pairs.
        """
        per_batch = max(1, self.batch_size // (1 + self.negatives_per_positive))
        if not self.negatives_per_positive:
            per_batch = max(2, per_batch - per_batch % 2)
        order = self._order(generator)
        n_whole = len(order) // per_batch
        whole = order[: n_whole * per_batch].reshape(n_whole, per_batch)
        parts = [whole[start : start + _AT_A_TIME] for start in range(0, n_whole, _AT_A_TIME)]
        if len(order) % per_batch:
            parts.append(order[None, n_whole * per_batch :])
        for chosen in parts:
            for batch in self._batches(chosen, generator):
                if len(batch.label_ids) >= 2:
                    yield batch

    def _order(self, generator: np.random.Generator) -> IntArray:
        """Order the positive examples: shuffled, or document by shuffled document."""
        if self.pairing == "random":
            return generator.permutation(len(self.label_ids))
        place = generator.permutation(self.matrix.shape[0])
        return np.argsort(place[self.document_ids], kind="stable")

    def _batches(self, chosen: IntArray, generator: np.random.Generator) -> Iterator[Batch]:
        """Add the negatives of the chosen positives, a row for each batch, and pair both."""
        documents = self.document_ids[chosen]
        others = np.repeat(documents, self.negatives_per_positive, axis=1)
        negatives = self.absent_labels(others.ravel(), generator).reshape(others.shape)
        labels = np.concatenate([self.label_ids[chosen], negatives], axis=1)
        documents = np.concatenate([documents, others], axis=1)
        if self.pairing == "random":
            order = np.broadcast_to(np.arange(labels.shape[1]), labels.shape)
            order = generator.permuted(order, axis=1)
        else:
            order = np.argsort(documents + generator.random(documents.shape) * 0.5, axis=1)
        labels = np.take_along_axis(labels, order, axis=1)
        documents = np.take_along_axis(documents, order, axis=1)
        positive = order < chosen.shape[1]
        odd = (labels.shape[1] % 2 == 1) | (labels < 0).any(axis=1)
        for row, uneven in enumerate(odd):
            batch = Batch(labels[row], documents[row], positive[row])
            yield _paired(batch) if uneven else batch


def _paired(batch: Batch) -> Batch:
    """Leave out what has no label, and one example more where one finds no partner."""
    kept = np.flatnonzero(batch.label_ids >= 0)
    if len(kept) % 2:
        # A negative one if there is any: they are drawn anew.
        unpaired = np.flatnonzero(~batch.positive[kept])
        kept = np.delete(kept, unpaired[-1] if len(unpaired) else -1)
    return Batch(batch.label_ids[kept], batch.document_ids[kept], batch.positive[kept])
