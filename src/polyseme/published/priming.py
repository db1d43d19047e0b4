"""Priming: labels are ranked by the known concepts around a point, seen, unseen and oov alike.

In: a fitted embedding and documents, then points in concept space. Out: a `PrimingStore` of the
concepts of all known documents, which grows and shrinks without training, and scores per label.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from polyseme.base.validation import IntArray, check_number, check_option, warn_dropped
from polyseme.documents.corpus import LabelCorpus, unique_rows
from polyseme.documents.label_sets import (
    DocumentTable,
    labels_of,
    no_documents,
    read_document_matrix,
    select_unmatched_documents,
    with_documents,
    without_documents,
)
from polyseme.documents.tags import label_preference, rank_blocks, rank_labels
from polyseme.published.embedding import ConceptEmbedding
from polyseme.published.index import ConceptIndex
from polyseme.storage.array_checks import (
    UNIT_LIMIT,
    Array,
    Csr,
    Fields,
    ListOf,
    Text,
    Whole,
    check_arrays,
    check_derived,
    require,
)
from polyseme.storage.model_file import State

RELATEDNESS = ("nearest", "density")
# Label sets embedded at a time.
_BLOCK = 32768
_ARRAYS = ("sets", "points", "label_ids", "set_ids")


@dataclass(frozen=True)
class Explanation:
    """A known concept of a label that was asked about, which its score rests on."""

    label: str
    document: tuple[str, ...]  # the labels of the known document in whose context it lies
    document_ids: tuple[str, ...]  # names of the known documents with exactly these labels
    distance: float  # from the instance's point to the concept


@dataclass(frozen=True, eq=False)  # arrays have no single truth value to compare by
class PrimingStore:
    """The documents a tagger knows, and the concepts of their labels.

    Documents with the same labels share their concepts, which are stored once.
    """

    labels: tuple[str, ...]  # the vocabulary, then the oov labels in the order they were met
    n_vocabulary: int
    ids: tuple[str, ...]  # (n_documents,): the documents' names
    matrix: sp.csr_matrix  # bool, (n_documents, n_labels)
    sets: IntArray  # (n_documents,): the distinct label set of each document
    points: NDArray[np.float32]  # (n_concepts, n_components), by label, within a label by set
    label_ids: IntArray  # (n_concepts,)
    set_ids: IntArray  # (n_concepts,)

    @classmethod
    def empty(cls, embedding: ConceptEmbedding) -> PrimingStore:
        """Make a store without documents for a fitted embedding."""
        no_ids = np.empty(0, dtype=np.int64)
        no_points = np.empty((0, embedding.n_components), dtype=np.float32)
        documents = no_documents(embedding.classes_)
        return cls(*documents, no_points, no_ids, no_ids)

    @classmethod
    def of(
        cls, embedding: ConceptEmbedding, semantics: LabelCorpus, corpus: LabelCorpus
    ) -> tuple[PrimingStore, tuple[str, ...]]:
        """Collect label sets, then new ones of instances; return the store and dropped ids."""
        store = cls.empty(embedding)
        store, _, dropped = store.add(embedding, semantics)
        n_documents = len(semantics)
        if corpus is not semantics:
            unmet = select_unmatched_documents(corpus, semantics)
            store, _, more_dropped = store.add(embedding, unmet)
            dropped += more_dropped
            n_documents += len(unmet)
        warn_dropped(dropped, n_documents)
        return store, dropped

    def add(
        self, embedding: ConceptEmbedding, corpus: LabelCorpus
    ) -> tuple[PrimingStore, tuple[str, ...], tuple[str, ...]]:
        """Take in documents; labels outside the vocabulary become oov labels.

        Gives the larger store (this one is left as it was), the names of the documents taken in,
        and of those left out because they hold no label of the vocabulary.
        """
        addition = with_documents(self._documents, corpus)
        new_sets = addition.fresh
        n_sets = int(self.sets.max(initial=-1)) + 1
        n_before = len(self.points)
        new_set_ids = np.arange(new_sets.shape[0], dtype=np.int64) + n_sets
        new_set_ids = np.repeat(new_set_ids, np.diff(new_sets.indptr))
        new_label_ids = new_sets.indices.astype(np.int64)
        set_ids = np.concatenate([self.set_ids, new_set_ids])
        label_ids = np.concatenate([self.label_ids, new_label_ids])
        order = np.argsort(label_ids, kind="stable")
        place = np.argsort(order)

        # Points are written once, where they belong: they are most of the memory.
        n_components = self.points.shape[1]
        points = np.empty((len(order), n_components), dtype=np.float32)
        points[place[:n_before]] = self.points
        for start in range(0, new_sets.shape[0], _BLOCK):
            block = sp.csr_matrix(new_sets[start : start + _BLOCK])
            ids = tuple(map(str, range(block.shape[0])))
            documents = LabelCorpus(
                addition.documents.labels, block, ids, numbered=True, normalize=False
            )
            first_row = n_before + new_sets.indptr[start]
            last_row = n_before + new_sets.indptr[start + block.shape[0]]
            concepts = embedding.transform(documents)
            points[place[first_row:last_row]] = concepts.points

        store = PrimingStore(*addition.documents, points, label_ids[order], set_ids[order])
        return store, addition.ids, addition.dropped

    @property
    def _documents(self) -> DocumentTable:
        """What is known, apart from its concepts."""
        return DocumentTable(self.labels, self.n_vocabulary, self.ids, self.matrix, self.sets)

    def remove(self, ids: Collection[str]) -> PrimingStore:
        """Return the store without documents of some names; oov labels left without any go too."""
        removal = without_documents(self._documents, ids)
        n_columns = len(removal.columns)
        new_columns = np.full(len(self.labels), -1, dtype=np.int64)
        new_columns[removal.columns] = np.arange(n_columns)
        n_sets = int(self.sets.max(initial=-1)) + 1
        new_sets = np.full(n_sets, -1, dtype=np.int64)
        new_sets[self.sets[removal.kept]] = removal.documents.sets

        set_ids = new_sets[self.set_ids]
        rows = np.flatnonzero(set_ids >= 0)
        old_labels = self.label_ids[rows]
        order = np.lexsort((set_ids[rows], old_labels))
        rows = rows[order]
        points = self.points[rows]
        label_ids = new_columns[self.label_ids[rows]]
        return PrimingStore(*removal.documents, points, label_ids, set_ids[rows])

    def index(self, memory_mb: float) -> ConceptIndex:
        """Build the search index over all concepts, each counted once per document."""
        n_sets = int(self.set_ids.max(initial=-1)) + 1
        counts = np.bincount(self.sets, minlength=n_sets)
        return ConceptIndex(
            self.points,
            self.label_ids,
            len(self.labels),
            counts=counts[self.set_ids],
            memory_mb=memory_mb,
        )

    def nearest(self, point: NDArray[np.float32], column: int, k: int) -> list[Explanation]:
        """Return the k concepts of a label's column that are nearest to a point (n_components,)."""
        rows = np.flatnonzero(self.label_ids == column)
        gaps = self.points[rows].astype(np.float64) - point
        squares = np.einsum("ij,ij->i", gaps, gaps)
        distances = np.sqrt(squares)
        order = np.argsort(distances, kind="stable")
        explanations = []
        for place in order[:k]:
            row = rows[place]
            members = np.flatnonzero(self.sets == self.set_ids[row])
            first_member = int(members[0])
            explanation = Explanation(
                label=self.labels[column],
                document=self.document(first_member),
                document_ids=tuple(self.ids[member] for member in members),
                distance=float(distances[place]),
            )
            explanations.append(explanation)
        return explanations

    def document(self, row: int) -> tuple[str, ...]:
        """Return the labels of one document."""
        return labels_of(self._documents, row)

    def get_state(self) -> State:
        """Return the store as JSON values and arrays, for saving without pickle."""
        config = {
            "labels": list(self.labels),
            "n_vocabulary": self.n_vocabulary,
            "ids": list(self.ids),
        }
        arrays = {name: getattr(self, name) for name in _ARRAYS}
        arrays["indices"] = self.matrix.indices.astype(np.int64)
        arrays["indptr"] = self.matrix.indptr.astype(np.int64)
        return config, arrays

    @classmethod
    def from_state(
        cls, config: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]
    ) -> PrimingStore:
        """Rebuild a store from `get_state`."""
        _VALUES.check(config)
        labels = tuple(config["labels"])
        ids = tuple(config["ids"])
        require(config["n_vocabulary"] <= len(labels), "n_vocabulary", "a number of its labels")
        check_arrays(arrays, _DECLARED, n_documents=len(ids), n_labels=len(labels))
        matrix = read_document_matrix(arrays, ids, labels)

        # Sets, labels and places of concepts follow from the documents.
        distinct, sets = unique_rows(matrix)
        concepts = distinct.tocsc()
        concepts.sort_indices()
        label_ids = np.repeat(np.arange(len(labels)), np.diff(concepts.indptr))
        check_derived(arrays["sets"], sets, "sets")
        check_derived(arrays["label_ids"], label_ids, "label_ids")
        check_derived(arrays["set_ids"], concepts.indices, "set_ids")
        concept_arrays = [np.array(arrays[name]) for name in _ARRAYS]
        return cls(labels, config["n_vocabulary"], ids, matrix, *concept_arrays)


# What the state of a store holds.
_VALUES = Fields(
    {
        "labels": ListOf(Text(), distinct=True),
        "n_vocabulary": Whole(1),
        "ids": ListOf(Text(), distinct=True),
    }
)
_DECLARED: dict[str, Array | Csr] = {
    "": Csr(("n_documents", "n_labels")),
    "sets": Array("int64", ("n_documents",), 0, below="n_documents"),
    "points": Array("float32", ("n_concepts", "n_components"), -UNIT_LIMIT, UNIT_LIMIT),
    "label_ids": Array("int64", ("n_concepts",), 0, below="n_labels"),
    "set_ids": Array("int64", ("n_concepts",), 0, below="n_documents"),
}


class PrimingRanker:
    """Score every label around points in concept space.

    "nearest" takes the inverse distance to a label's nearest concept, equation (9); "density" a
    Gaussian kernel density over all of its concepts, whose standard deviation is the bandwidth, by
    default 0.15 times `distance_scale` (in the paper: β).
    """

    def __init__(
        self,
        index: ConceptIndex,
        distance_scale: float,
        relatedness: str = "nearest",
        bandwidth: float | None = None,
    ) -> None:
        owner = type(self).__name__
        check_option("relatedness", relatedness, RELATEDNESS, owner=owner)
        if bandwidth is None:
            bandwidth = 0.15 * distance_scale
        self.index = index
        self.distance_scale = distance_scale
        self.relatedness = relatedness
        self.bandwidth = bandwidth

    def scores(self, points: ArrayLike) -> NDArray[np.float64]:
        """Score every label around points, (n, n_components) to (n, n_labels).

        Equation (9) is ``(1 / E) / Σ (1 / E)``, with the distance E to a label's nearest concept.
        Larger is better; rows sum to one (or are all 0 when no label has a concept).
        """
        if self.relatedness == "nearest":
            distances = self.index.distances(points)
            distances = np.asarray(distances, dtype=np.float64)
            # Concepts closer than this count as equally near; labels without one are at infinity.
            least_distance = 1e-8 * self.distance_scale
            distances = np.maximum(distances, least_distance)
            weights = 1.0 / distances
        else:
            log_densities = self.index.log_densities(points, self.bandwidth)
            largest = log_densities.max(axis=1, keepdims=True, initial=-np.inf)
            is_finite = np.isfinite(largest)
            shift = np.where(is_finite, largest, 0.0)
            weights = np.exp(log_densities - shift)
        totals = weights.sum(axis=1, keepdims=True)
        shares = np.divide(weights, totals, out=weights, where=totals > 0)
        return np.asarray(shares)

    def rank(self, points: ArrayLike, k: int) -> tuple[IntArray, NDArray[np.float64]]:
        """Return the k best labels around each point; see `rank_labels`."""
        check_number("k", k, owner="rank", low=1, whole=True)
        queries = np.asarray(points)
        n_queries = len(queries)
        n_labels = self.index.n_labels
        preference = label_preference(self.index.n_occurrences)
        shape = (n_queries, min(k, n_labels))
        label_ids = np.empty(shape, dtype=np.int64)
        scores = np.empty(shape)
        for rows in rank_blocks(n_queries, n_labels):
            block_scores = self.scores(queries[rows])
            places, best_scores = rank_labels(block_scores, preference, k)
            label_ids[rows] = places
            scores[rows] = best_scores
        return label_ids, scores

    def rank_others(
        self, point: ArrayLike, excluded: IntArray, k: int
    ) -> tuple[IntArray, NDArray[np.float64]]:
        """Return the k best labels, (k,), around a point (1, n_components), without excluded ones.

        Scores, (k,), are those over all other labels, whose full list sums to one.
        """
        (scores,) = self.scores(point)
        n_labels = len(scores)
        candidates = np.setdiff1d(np.arange(n_labels), excluded)
        shares = scores[candidates]
        total = shares.sum()
        if total > 0:
            shares = shares / total
        n_occurrences = self.index.n_occurrences[candidates]
        preference = label_preference(n_occurrences)
        places, best_shares = rank_labels(shares[None, :], preference, k)
        best = candidates[places[0]]
        return best, best_shares[0]
