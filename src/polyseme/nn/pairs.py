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
        for start in range(0, len(order), per_batch):
            chosen = order[start : start + per_batch]
            batch = self._batch(chosen, generator)
            if len(batch.label_ids) >= 2:
                yield batch

    def _order(self, generator: np.random.Generator) -> IntArray:
        """Order the positive examples: shuffled, or document by shuffled document."""
        if self.pairing == "random":
            return generator.permutation(len(self.label_ids))
        place = generator.permutation(self.matrix.shape[0])
        return np.argsort(place[self.document_ids], kind="stable")

    def _batch(self, chosen: IntArray, generator: np.random.Generator) -> Batch:
        """Add the negatives of the chosen positives and lay the pairs side by side."""
        documents = self.document_ids[chosen]
        others = np.repeat(documents, self.negatives_per_positive)
        negatives = self.absent_labels(others, generator)
        labels = np.concatenate([self.label_ids[chosen], negatives])
        documents = np.concatenate([documents, others])
        positive = np.arange(len(labels)) < len(chosen)
        if self.pairing == "random":
            order = generator.permutation(len(labels))
        else:
            order = np.argsort(documents + generator.random(len(documents)) * 0.5, kind="stable")
        order = order[labels[order] >= 0]
        if len(order) % 2:
            # One example finds no partner: a negative one if there is any, they are drawn anew.
            unpaired = np.flatnonzero(~positive[order])
            order = np.delete(order, unpaired[-1] if len(unpaired) else -1)
        return Batch(labels[order], documents[order], positive[order])
