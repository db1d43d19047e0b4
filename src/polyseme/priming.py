"""Step 5: rank labels around a point, seen, unseen and oov alike.

In: points in concept space and the known concepts of every label. Out: scores per label, larger is
better, and rankings. `KnownConcepts` grows and shrinks with the documents behind it.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from polyseme._rows import unique_rows
from polyseme._validation import InputError, check_number, check_option
from polyseme.corpus import LabelCorpus
from polyseme.embedding import ConceptEmbedding
from polyseme.index import ConceptIndex


def relatedness(distances: ArrayLike, *, floor: float) -> NDArray[np.float64]:
    """Turn distances into scores that sum to one (in the paper: equation 9).

    Parameters
    ----------
    distances : array, shape (n, n_labels)
        Distance of each point to each label; infinity for a label without a concept.
    floor : float
        Smallest distance told apart; shorter ones count as this one.

    Returns
    -------
    float64 array, shape (n, n_labels)
        Inverse distances divided by their row sum; 0 for a label without a concept.
    """
    inverse = 1.0 / np.maximum(np.asarray(distances, dtype=np.float64), floor)
    totals = inverse.sum(axis=1, keepdims=True)
    return np.asarray(np.divide(inverse, totals, out=np.zeros_like(inverse), where=totals > 0))


def rank_labels(
    scores: ArrayLike, n_occurrences: ArrayLike, k: int
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Give the k best labels of each row.

    Labels with equal scores are ordered by their number of known concepts, then by column.

    Parameters
    ----------
    scores : array, shape (n, n_labels)
    n_occurrences : int array, shape (n_labels,)
        Known concepts of each label.
    k : int
        How many labels; all of them if there are fewer.

    Returns
    -------
    label_ids : int64 array, shape (n, min(k, n_labels))
    scores : float64 array, of the same shape
    """
    check_number("k", k, owner="rank", low=1, whole=True)
    table = np.asarray(scores, dtype=np.float64)
    preferred = np.lexsort((np.arange(table.shape[1]), -np.asarray(n_occurrences)))
    order = np.argsort(-table[:, preferred], axis=1, kind="stable")[:, :k]
    label_ids = preferred[order]
    return label_ids, np.take_along_axis(table, label_ids, axis=1)


class PrimingRanker:
    """Score every label around points in concept space.

    Parameters
    ----------
    index : ConceptIndex
        The known concepts.
    distance_scale : float
        Distance of unrelated concepts (in the paper: β); sets the guards.
    score : {"nearest", "density"}
        "nearest": the inverse distance to the label's nearest concept, equation (9). "density":
        a Gaussian kernel density over all of the label's concepts.
    bandwidth : float, optional
        Standard deviation of the density's kernel; default 0.15 times `distance_scale`.
    """

    def __init__(
        self,
        index: ConceptIndex,
        distance_scale: float,
        score: str = "nearest",
        bandwidth: float | None = None,
    ) -> None:
        check_option("score", score, ("nearest", "density"), owner=type(self).__name__)
        self.index = index
        self.distance_scale = distance_scale
        self.score = score
        self.bandwidth = 0.15 * distance_scale if bandwidth is None else bandwidth

    def scores(self, points: ArrayLike) -> NDArray[np.float64]:
        """Score every label around each point.

        Parameters
        ----------
        points : array, shape (n, n_components)

        Returns
        -------
        float64 array, shape (n, n_labels)
            Larger is better; rows sum to one.
        """
        if self.score == "nearest":
            return relatedness(self.index.distances(points), floor=1e-8 * self.distance_scale)
        logs = self.index.log_densities(points, self.bandwidth)
        logs -= logs.max(axis=1, keepdims=True)
        weights = np.exp(logs)
        return np.asarray(weights / weights.sum(axis=1, keepdims=True))

    def rank(self, points: ArrayLike, k: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Give the k best labels around each point; see `rank_labels`."""
        return rank_labels(self.scores(points), self.index.n_occurrences, k)


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
        Concepts of the distinct label sets.
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
        n_labels = len(embedding.labels_)
        empty = np.empty(0, dtype=np.int64)
        points = np.empty((0, embedding.n_components), dtype=np.float32)
        matrix = sp.csr_matrix(np.empty((0, n_labels), dtype=bool))
        return cls(embedding.labels_, n_labels, (), matrix, empty, points, empty, empty)

    def index(self, memory_mb: float) -> ConceptIndex:
        """Build the search index over all concepts, each counted once per document."""
        counts = np.bincount(self.sets, minlength=int(self.set_ids.max(initial=-1)) + 1)
        return ConceptIndex(
            self.points,
            self.label_ids,
            len(self.labels),
            counts=counts[self.set_ids],
            memory_mb=memory_mb,
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
        unplaced : tuple of str
            The names of documents that hold no label of the vocabulary and were left out.
        """
        matrix, extra = corpus.align(self.labels)
        placed = np.diff(matrix[:, : self.n_vocabulary].indptr) > 0
        names = self._names(corpus)
        new_ids = tuple(name for name, keep in zip(names, placed, strict=True) if keep)
        unplaced = tuple(name for name, keep in zip(names, placed, strict=True) if not keep)
        labels = self.labels + extra
        before = sp.csr_matrix(
            (self.matrix.data, self.matrix.indices, self.matrix.indptr),
            shape=(len(self.ids), len(labels)),
        )
        documents = sp.csr_matrix(sp.vstack([before, matrix[placed]], format="csr", dtype=bool))
        distinct, sets = unique_rows(documents)
        # Rows met first keep their numbers, so the sets known before stay 0..n-1.
        n_before = int(self.sets.max(initial=-1)) + 1
        fresh = LabelCorpus.from_indicator(distinct[n_before:], labels, normalize=False)
        concepts = embedding.transform(fresh) if len(fresh) else None
        parts: list[tuple[Any, Any, Any]] = [(self.points, self.label_ids, self.set_ids)]
        if concepts is not None:
            place = {label: column for column, label in enumerate(labels)}
            columns = np.array([place[label] for label in concepts.labels], dtype=np.int64)
            parts.append(
                (concepts.points, columns[concepts.label_ids], concepts.document_ids + n_before)
            )
        points, label_ids, set_ids = (np.concatenate(column) for column in zip(*parts, strict=True))
        known = KnownConcepts(
            labels,
            self.n_vocabulary,
            self.ids + new_ids,
            documents,
            sets,
            points,
            label_ids,
            set_ids,
        )
        return known, new_ids, unplaced

    def remove(self, ids: Collection[str]) -> KnownConcepts:
        """Give the store without some documents; oov labels left without any disappear.

        Parameters
        ----------
        ids : collection of str
            Names of documents.
        """
        gone = {ids} if isinstance(ids, str) else set(ids)
        missing = sorted(gone - set(self.ids))
        if missing:
            raise InputError(f"No known document is named '{missing[0]}'; nothing was removed.")
        keep = np.array([name not in gone for name in self.ids], dtype=bool)
        documents = sp.csr_matrix(self.matrix[keep])
        used = np.asarray(documents.sum(axis=0)).ravel() > 0
        used[: self.n_vocabulary] = True
        columns = np.flatnonzero(used)
        new_column = np.cumsum(used) - 1
        kept_sets, sets = np.unique(self.sets[keep], return_inverse=True)
        rows = np.isin(self.set_ids, kept_sets)
        return KnownConcepts(
            tuple(self.labels[column] for column in columns),
            self.n_vocabulary,
            tuple(name for name, stays in zip(self.ids, keep, strict=True) if stays),
            sp.csr_matrix(documents[:, columns]),
            sets.astype(np.int64),
            self.points[rows],
            new_column[self.label_ids[rows]].astype(np.int64),
            np.searchsorted(kept_sets, self.set_ids[rows]),
        )

    def column(self, label: str, *, normalize: bool = True) -> int:
        """Find a label's column.

        Parameters
        ----------
        label : str
            Unknown ones are an `InputError` that names close ones.
        normalize : bool
            Whether any spelling of it will do.
        """
        corpus = LabelCorpus.from_documents([[label]], normalize=normalize)
        matrix, unknown = corpus.align(self.labels)
        if not unknown:
            return int(matrix.indices[0])
        close = difflib.get_close_matches(label, self.labels, n=3)
        hint = f"; close to it: {', '.join(close)}" if close else ""
        raise InputError(
            f"Unknown label '{label}'{hint}; `labels_` names all {len(self.labels)} known ones."
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
        start, stop = self.matrix.indptr[row], self.matrix.indptr[row + 1]
        return tuple(self.labels[column] for column in self.matrix.indices[start:stop])

    def _names(self, corpus: LabelCorpus) -> Sequence[str]:
        """Name new documents: their own names, or fresh numbers where they have none."""
        taken = set(self.ids)
        if not corpus.numbered:
            twice = next((name for name in corpus.ids if name in taken), None)
            if twice is not None:
                raise InputError(
                    f"A document named '{twice}' is known already; remove it first or rename."
                )
            return corpus.ids
        names, number = [], len(taken)
        for _ in corpus.ids:
            while str(number) in taken:
                number += 1
            names.append(str(number))
            number += 1
        return names


def unmet_documents(corpus: LabelCorpus, teaching: LabelCorpus) -> LabelCorpus:
    """Give the instances' documents that the semantics documents do not hold already.

    Parameters
    ----------
    corpus : LabelCorpus
        The instances' documents.
    teaching : LabelCorpus
        The semantics documents.

    Returns
    -------
    LabelCorpus

    Notes
    -----
    A document is the same when its name and its labels are; another document of the same name is
    called `instance:NAME`.
    """
    if corpus.numbered:
        return corpus
    places = {name: row for row, name in enumerate(teaching.ids)}
    fresh, names = [], []
    for row, name in enumerate(corpus.ids):
        if name in places:
            labels = {corpus.key(label) for label in corpus.document(row)}
            others = {teaching.key(label) for label in teaching.document(places[name])}
            if labels == others and not teaching.numbered:
                continue
            name = f"instance:{name}"
        fresh.append(row)
        names.append(name)
    return replace(corpus.select(np.array(fresh, dtype=np.int64)), ids=tuple(names))
