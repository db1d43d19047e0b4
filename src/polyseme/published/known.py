"""Between embedding and priming: the documents a tagger knows, and the concepts of their labels.

In: a fitted embedding and documents. Out: `KnownConcepts`, which grows and shrinks with the
documents behind it and says which of them a score rests on.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from polyseme._validation import warn_dropped
from polyseme.corpus import LabelCorpus
from polyseme.documents import (
    Known,
    labels_of,
    no_documents,
    unmet_documents,
    with_documents,
    without_documents,
)
from polyseme.index import ConceptIndex
from polyseme.published.embedding import ConceptEmbedding

# Label sets embedded at a time.
_BLOCK = 32768


@dataclass(frozen=True)
class Explanation:
    """A known concept behind a score.

    Attributes
    ----------
    label : str
        The label that was asked about.
    document : tuple of str
        The known document in whose context the concept lies.
    document_ids : tuple of str
        The names of the known documents with exactly these labels.
    distance : float
        From the instance's point to the concept; smaller is closer.
    """

    label: str
    document: tuple[str, ...]
    document_ids: tuple[str, ...]
    distance: float


@dataclass
class KnownConcepts:
    """The documents a tagger knows, and the concepts of their labels.

    Documents with the same labels share their concepts, which are stored once.

    Attributes
    ----------
    labels : tuple of str
        The embedding's vocabulary, then the oov labels in the order they were met.
    n_vocabulary : int
        How many of the labels are the vocabulary.
    ids : tuple of str, length n_documents
        The documents' names.
    matrix : csr_matrix of bool, shape (n_documents, n_labels)
        The documents.
    sets : int64 array, shape (n_documents,)
        The distinct label set of each document.
    points : float32 array, shape (n_concepts, n_components)
        Concepts of the distinct label sets, sorted by label and within a label by set.
    label_ids, set_ids : int64 arrays, shape (n_concepts,)
        The label and the label set of each concept.
    """

    labels: tuple[str, ...]
    n_vocabulary: int
    ids: tuple[str, ...]
    matrix: sp.csr_matrix
    sets: NDArray[np.int64]
    points: NDArray[np.float32]
    label_ids: NDArray[np.int64]
    set_ids: NDArray[np.int64]

    @classmethod
    def none(cls, embedding: ConceptEmbedding) -> KnownConcepts:
        """Make an empty store for an embedding."""
        empty = np.empty(0, dtype=np.int64)
        points = np.empty((0, embedding.n_components), dtype=np.float32)
        return cls(*no_documents(embedding.classes_), points, empty, empty)

    def index(self, memory_mb: float, device: str = "cpu") -> ConceptIndex:
        """Build the search index over all concepts, each counted once per document.

        Parameters
        ----------
        memory_mb : float
            The most working memory of a search, in megabytes.
        device : str
            Where to search: "cpu" or a device of torch.
        """
        counts = np.bincount(self.sets, minlength=int(self.set_ids.max(initial=-1)) + 1)
        return ConceptIndex(
            self.points,
            self.label_ids,
            len(self.labels),
            counts=counts[self.set_ids],
            memory_mb=memory_mb,
            device=device,
        )

    def add(
        self, embedding: ConceptEmbedding, corpus: LabelCorpus
    ) -> tuple[KnownConcepts, tuple[str, ...], tuple[str, ...]]:
        """Take in documents; labels outside the vocabulary become oov labels.

        Parameters
        ----------
        embedding : ConceptEmbedding
            The embedding of this store.
        corpus : LabelCorpus
            The documents.

        Returns
        -------
        known : KnownConcepts
            The larger store; this one is left as it was.
        ids : tuple of str
            The names of the documents taken in.
        dropped : tuple of str
            The names of documents that hold no label of the vocabulary and were left out.
        """
        grown = with_documents(self._documents, corpus)
        n_before = int(self.sets.max(initial=-1)) + 1
        concepts = self._with_concepts(embedding, grown.fresh, grown.known.labels, n_before)
        return KnownConcepts(*grown.known, *concepts), grown.ids, grown.dropped

    @property
    def _documents(self) -> Known:
        """What is known, apart from its concepts."""
        return Known(self.labels, self.n_vocabulary, self.ids, self.matrix, self.sets)

    def _with_concepts(
        self, embedding: ConceptEmbedding, fresh: sp.csr_matrix, labels: Sequence[str], first: int
    ) -> tuple[NDArray[np.float32], NDArray[np.int64], NDArray[np.int64]]:
        """Give points, labels and sets of the concepts held and of further label sets.

        Points are written once, where they belong: with many documents they are most of the
        memory.
        """
        own_sets = np.repeat(np.arange(fresh.shape[0], dtype=np.int64), np.diff(fresh.indptr))
        label_ids = np.concatenate([self.label_ids, fresh.indices.astype(np.int64)])
        set_ids = np.concatenate([self.set_ids, first + own_sets])
        order = np.argsort(label_ids, kind="stable")
        place = np.empty_like(order)
        place[order] = np.arange(len(order))
        points = np.empty((len(order), self.points.shape[1]), dtype=np.float32)
        n_held = len(self.points)
        points[place[:n_held]] = self.points
        for start in range(0, fresh.shape[0], _BLOCK):
            part = sp.csr_matrix(fresh[start : start + _BLOCK])
            ids = tuple(str(number) for number in range(part.shape[0]))
            corpus = LabelCorpus(tuple(labels), part, ids, numbered=True, normalize=False)
            rows = slice(*(n_held + fresh.indptr[[start, start + part.shape[0]]]))
            points[place[rows]] = embedding.transform(corpus).points
        return points, label_ids[order], set_ids[order]

    def remove(self, ids: Collection[str]) -> KnownConcepts:
        """Give the store without some documents; oov labels left without any disappear.

        Parameters
        ----------
        ids : collection of str
            Names of documents.
        """
        shrunk = without_documents(self._documents, ids)
        new_column = np.full(len(self.labels), -1, dtype=np.int64)
        new_column[shrunk.columns] = np.arange(len(shrunk.columns))
        renumbered = np.full(int(self.sets.max(initial=-1)) + 1, -1, dtype=np.int64)
        renumbered[self.sets[shrunk.kept]] = shrunk.known.sets
        rows = np.flatnonzero(renumbered[self.set_ids] >= 0)
        rows = rows[np.lexsort((renumbered[self.set_ids[rows]], self.label_ids[rows]))]
        return KnownConcepts(
            *shrunk.known,
            self.points[rows],
            new_column[self.label_ids[rows]],
            renumbered[self.set_ids[rows]],
        )

    def nearest(self, point: NDArray[np.float32], column: int, k: int) -> list[Explanation]:
        """Give the k concepts of a label that are nearest to a point, from near to far.

        Parameters
        ----------
        point : float32 array, shape (n_components,)
        column : int
            The label's column.
        k : int
            How many; documents with the same labels share one.
        """
        rows = np.flatnonzero(self.label_ids == column)
        gaps = self.points[rows].astype(np.float64) - point
        distances = np.sqrt(np.einsum("ij,ij->i", gaps, gaps))
        found = []
        for place in np.argsort(distances, kind="stable")[:k]:
            members = np.flatnonzero(self.sets == self.set_ids[rows[place]])
            found.append(
                Explanation(
                    self.labels[column],
                    self.document(int(members[0])),
                    tuple(self.ids[member] for member in members),
                    float(distances[place]),
                )
            )
        return found

    def document(self, row: int) -> tuple[str, ...]:
        """Give the labels of one document."""
        return labels_of(self._documents, row)


def known_documents(
    embedding: ConceptEmbedding, teaching: LabelCorpus, corpus: LabelCorpus
) -> tuple[KnownConcepts, tuple[str, ...]]:
    """Collect the documents a tagger knows: semantics first, then instances not met there.

    Parameters
    ----------
    embedding : ConceptEmbedding
        A fitted one.
    teaching, corpus : LabelCorpus
        Semantics documents and instances' documents; may be the same.

    Returns
    -------
    known : KnownConcepts
    dropped : tuple of str
        The names of documents left out, which a warning names too.
    """
    known, _, dropped = KnownConcepts.none(embedding).add(embedding, teaching)
    n_documents = len(teaching)
    if corpus is not teaching:
        fresh = unmet_documents(corpus, teaching)
        known, _, more = known.add(embedding, fresh)
        dropped += more
        n_documents += len(fresh)
    warn_dropped(dropped, n_documents)
    return known, dropped
