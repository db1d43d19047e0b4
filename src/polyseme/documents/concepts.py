"""Concepts, that is labels in context, as points, of either tagger.

In: what an embedding computes. Out: one record of points with their labels and documents.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Concepts:
    """Labels in context as points, one row per (label, document).

    Attributes
    ----------
    points : float32 array, shape (n_concepts, n_components)
        The concepts, document by document.
    label_ids : int64 array, shape (n_concepts,)
        Each concept's label, as a place in `labels`.
    document_ids : int64 array, shape (n_concepts,)
        Each concept's document, as a place among the documents given.
    labels : tuple of str
        The vocabulary of the embedding, then the oov labels that the documents hold.
    dropped : int64 array, shape (n_dropped,)
        Documents that could not be embedded, because none of their labels is in the vocabulary.
    """

    points: NDArray[np.float32]
    label_ids: NDArray[np.int64]
    document_ids: NDArray[np.int64]
    labels: tuple[str, ...]
    dropped: NDArray[np.int64]

    def __repr__(self) -> str:
        """Return its size, in a line."""
        n_concepts, n_components = self.points.shape
        return f"Concepts({n_concepts} of {len(self.labels)} labels, {n_components} components)"

    def __len__(self) -> int:
        """Count the concepts."""
        return len(self.label_ids)
