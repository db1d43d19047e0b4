"""Priming: labels are ranked by the known concepts around a point, seen, unseen and oov alike.

In: a fitted embedding and documents, then points in concept space. Out: a `PrimingStore` of the
concepts of all known documents, which grows and shrinks without training, and scores per label,
equation (9).

Terms: a *known document* is one that labels are ranked by, a *known concept* one of its labels in
it. A *label set* is what documents with the same labels share; it is stored once. The *vocabulary*
is the embedding's labels, an *oov* label is any other.
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

RELATEDNESS = ("nearest", "density")  # see `PrimingRanker`
# Label sets embedded at a time, which bounds memory and changes no result.
_SETS_TOGETHER = 32768
# Fields of `PrimingStore` that are saved as arrays of these names, in the order of the fields.
_ARRAY_NAMES = ("sets", "points", "label_ids", "set_ids")
# The least distance of equation (9), in units of β: its inverse is finite.
_LEAST_DISTANCE = 1e-8
# The standard deviation of the kernel of "density" in units of β, where none is given.
_DEFAULT_BANDWIDTH = 0.15


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

    Documents with the same labels share their concepts, which are stored once. A store does not
    change: `add` and `remove` return another one.
    """

    labels: tuple[str, ...]  # the vocabulary, then the oov labels in the order they were met
    n_vocabulary: int
    ids: tuple[str, ...]  # (n_documents,): the documents' names
    matrix: sp.csr_matrix  # bool, (n_documents, n_labels)
    sets: IntArray  # (n_documents,): the label set of each document, numbered as first met
    points: NDArray[np.float32]  # (n_concepts, n_components), by label, within a label by set
    label_ids: IntArray  # (n_concepts,): each concept's label, rising
    set_ids: IntArray  # (n_concepts,): each concept's label set

    @classmethod
    def empty(cls, embedding: ConceptEmbedding) -> PrimingStore:
        """Make a store without documents for a fitted embedding."""
        n_components = embedding.n_components
        no_ids = np.empty(0, dtype=np.int64)
        no_points = np.empty((0, n_components), dtype=np.float32)
        documents = no_documents(embedding.classes_)
        return cls(
            *documents,
            no_points,
            no_ids,
            no_ids,
        )

    @classmethod
    def of(
        cls, embedding: ConceptEmbedding, semantics: LabelCorpus, corpus: LabelCorpus
    ) -> tuple[PrimingStore, tuple[str, ...]]:
        """Collect the known documents: those of semantics first, then new ones of instances.

        Return the store, and the names of the documents that were left out, with a warning, because
        they hold no label of the vocabulary. Both corpora may be the same object.
        """
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
        """Return a larger store; labels outside the vocabulary become oov labels.

        Return also the names of the documents taken in, and of those left out because they hold no
        label of the vocabulary.
        """
        addition = with_documents(self._documents, corpus)
        new_sets = addition.fresh
        n_new_sets = new_sets.shape[0]
        n_sets_before = int(self.sets.max(initial=-1)) + 1
        n_concepts_before = len(self.points)
        new_set_ids = np.arange(n_new_sets, dtype=np.int64)
        new_set_ids += n_sets_before
        new_lengths = np.diff(new_sets.indptr)
        new_set_ids = np.repeat(new_set_ids, new_lengths)
        new_label_ids = new_sets.indices.astype(np.int64)
        set_ids = np.concatenate([self.set_ids, new_set_ids])
        label_ids = np.concatenate([self.label_ids, new_label_ids])
        # New sets have higher numbers, so a stable sort by label keeps sets in order.
        order = np.argsort(label_ids, kind="stable")
        place_of_concept = np.argsort(order)

        # Points are written once, where they belong: they are most of the memory.
        n_components = self.points.shape[1]
        points = np.empty((len(order), n_components), dtype=np.float32)
        former_places = place_of_concept[:n_concepts_before]
        points[former_places] = self.points
        first_concepts = n_concepts_before + new_sets.indptr  # of the new sets
        for start in range(0, n_new_sets, _SETS_TOGETHER):
            stop = min(start + _SETS_TOGETHER, n_new_sets)
            block = sp.csr_matrix(new_sets[start:stop])
            numbers = range(stop - start)
            block_corpus = LabelCorpus(
                addition.documents.labels,
                block,
                ids=tuple(map(str, numbers)),
                numbered=True,
                normalize=False,
            )
            concepts = embedding.transform(block_corpus)
            block_concepts = slice(first_concepts[start], first_concepts[stop])
            places = place_of_concept[block_concepts]
            points[places] = concepts.points

        store = PrimingStore(
            *addition.documents,
            points,
            label_ids[order],
            set_ids[order],
        )
        return store, addition.ids, addition.dropped

    @property
    def _documents(self) -> DocumentTable:
        """The known documents, without their concepts."""
        return DocumentTable(
            self.labels,
            self.n_vocabulary,
            self.ids,
            self.matrix,
            self.sets,
        )

    def remove(self, ids: Collection[str]) -> PrimingStore:
        """Return a store without documents of some names; oov labels left without any go too."""
        removal = without_documents(self._documents, ids)
        # From former to new numbers of labels and of label sets; -1 where they are gone.
        n_labels_before = len(self.labels)
        n_labels = len(removal.columns)
        new_labels = np.full(n_labels_before, -1, dtype=np.int64)
        new_labels[removal.columns] = np.arange(n_labels)
        n_sets_before = int(self.sets.max(initial=-1)) + 1
        new_sets = np.full(n_sets_before, -1, dtype=np.int64)
        former_sets = self.sets[removal.kept]
        new_sets[former_sets] = removal.documents.sets

        set_ids = new_sets[self.set_ids]
        rows = np.flatnonzero(set_ids >= 0)
        # Sets are numbered as first met, so that their order may have changed.
        order = np.lexsort((set_ids[rows], self.label_ids[rows]))
        rows = rows[order]
        former_labels = self.label_ids[rows]
        return PrimingStore(
            *removal.documents,
            points=self.points[rows],
            label_ids=new_labels[former_labels],
            set_ids=set_ids[rows],
        )

    def index(self, memory_mb: float) -> ConceptIndex:
        """Build the search index over all concepts, each counted once per document."""
        n_sets = int(self.set_ids.max(initial=-1)) + 1
        n_documents_by_set = np.bincount(self.sets, minlength=n_sets)
        return ConceptIndex(
            self.points,
            self.label_ids,
            len(self.labels),
            counts=n_documents_by_set[self.set_ids],
            memory_mb=memory_mb,
        )

    def nearest(self, point: NDArray[np.float32], column: int, k: int) -> list[Explanation]:
        """Return the k concepts of a label that are nearest to a point (n_components,), in order.

        `column` is the label's place among `labels`.
        """
        rows = np.flatnonzero(self.label_ids == column)
        label_points = self.points[rows].astype(np.float64)
        differences = label_points - point
        squares = np.einsum("ij,ij->i", differences, differences)
        distances = np.sqrt(squares)
        order = np.argsort(distances, kind="stable")
        explanations = []
        for place in order[:k]:
            row = rows[place]
            has_set = self.sets == self.set_ids[row]
            documents = np.flatnonzero(has_set)
            first_document = int(documents[0])
            explanation = Explanation(
                label=self.labels[column],
                document=self.document(first_document),
                document_ids=tuple(self.ids[document] for document in documents),
                distance=float(distances[place]),
            )
            explanations.append(explanation)
        return explanations

    def document(self, row: int) -> tuple[str, ...]:
        """Return the labels of the document in a row of `matrix`."""
        return labels_of(self._documents, row)

    def get_state(self) -> State:
        """Return the store as JSON values and arrays, for saving without pickle.

        The names of both are the format on disk; see `_STATE_SCHEMA` and `_STATE_ARRAYS`.
        """
        config = {
            "labels": list(self.labels),
            "n_vocabulary": self.n_vocabulary,
            "ids": list(self.ids),
        }
        arrays = {name: getattr(self, name) for name in _ARRAY_NAMES}
        arrays["indices"] = self.matrix.indices.astype(np.int64)
        arrays["indptr"] = self.matrix.indptr.astype(np.int64)
        return config, arrays

    @classmethod
    def from_state(
        cls, config: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]
    ) -> PrimingStore:
        """Rebuild a store from `get_state`; the arrays are checked and copied."""
        _STATE_SCHEMA.check(config)
        labels = tuple(config["labels"])
        ids = tuple(config["ids"])
        n_labels = len(labels)
        n_vocabulary = config["n_vocabulary"]
        require(n_vocabulary <= n_labels, "n_vocabulary", "a number of its labels")
        check_arrays(
            arrays,
            _STATE_ARRAYS,
            n_documents=len(ids),
            n_labels=n_labels,
        )
        matrix = read_document_matrix(arrays, ids, labels)

        # Sets, labels and places of concepts follow from the documents.
        distinct, sets = unique_rows(matrix)
        by_label = distinct.tocsc()
        by_label.sort_indices()
        n_concepts_by_label = np.diff(by_label.indptr)
        label_ids = np.repeat(np.arange(n_labels), n_concepts_by_label)
        check_derived(arrays["sets"], sets, "sets")
        check_derived(arrays["label_ids"], label_ids, "label_ids")
        check_derived(arrays["set_ids"], by_label.indices, "set_ids")
        copies = [np.array(arrays[name]) for name in _ARRAY_NAMES]
        return cls(
            labels,
            n_vocabulary,
            ids,
            matrix,
            *copies,
        )


# The format of a store's state: JSON values and arrays.
_STATE_SCHEMA = Fields(
    {
        "labels": ListOf(Text(), distinct=True),
        "n_vocabulary": Whole(1),
        "ids": ListOf(Text(), distinct=True),
    }
)
_STATE_ARRAYS: dict[str, Array | Csr] = {
    "": Csr(("n_documents", "n_labels")),
    "sets": Array("int64", ("n_documents",), 0, below="n_documents"),
    "points": Array("float32", ("n_concepts", "n_components"), -UNIT_LIMIT, UNIT_LIMIT),
    "label_ids": Array("int64", ("n_concepts",), 0, below="n_labels"),
    "set_ids": Array("int64", ("n_concepts",), 0, below="n_documents"),
}


class PrimingRanker:
    """Score every label around points in concept space.

    Parameters
    ----------
    index : ConceptIndex
        The known concepts.
    distance_scale : float
        The embedding's scale of distances (in the paper: β).
    relatedness : {"nearest", "density"}
        The inverse distance to a label's nearest concept, equation (9), or a Gaussian kernel
        density over all of its concepts, which the paper has not.
    bandwidth : float, optional
        For "density": the kernel's standard deviation; by default 0.15 β.
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
            bandwidth = _DEFAULT_BANDWIDTH * distance_scale
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
            single_distances = self.index.distances(points)
            distances = np.asarray(single_distances, dtype=np.float64)
            # Concepts closer than this count as equally near; labels without one are at infinity.
            least_distance = _LEAST_DISTANCE * self.distance_scale
            distances = np.maximum(distances, least_distance)
            weights = 1.0 / distances
        else:
            log_densities = self.index.log_densities(points, self.bandwidth)
            # Only ratios matter; a point far from all concepts would have densities of 0 alone.
            largest = log_densities.max(
                axis=1,
                keepdims=True,
                initial=-np.inf,
            )
            is_finite = np.isfinite(largest)
            shift = np.where(is_finite, largest, 0.0)
            weights = np.exp(log_densities - shift)
        totals = weights.sum(axis=1, keepdims=True)
        has_weight = totals > 0
        shares = np.divide(
            weights,
            totals,
            out=weights,
            where=has_weight,
        )
        return np.asarray(shares)

    def rank(self, points: ArrayLike, k: int) -> tuple[IntArray, NDArray[np.float64]]:
        """Return the k best labels around each point (n, n_components), and their scores.

        Both are (n, min(k, n_labels)), from the best on; see `rank_labels`.
        """
        check_number("k", k, owner="rank", low=1, whole=True)
        queries = np.asarray(points)
        n_queries = len(queries)
        n_labels = self.index.n_labels
        n_ranked = min(k, n_labels)
        preference = label_preference(self.index.n_occurrences)
        label_ids = np.empty((n_queries, n_ranked), dtype=np.int64)
        scores = np.empty((n_queries, n_ranked))
        for rows in rank_blocks(n_queries, n_labels):
            block_scores = self.scores(queries[rows])
            best_labels, best_scores = rank_labels(block_scores, preference, k)
            label_ids[rows] = best_labels
            scores[rows] = best_scores
        return label_ids, scores

    def rank_others(
        self, point: ArrayLike, excluded: IntArray, k: int
    ) -> tuple[IntArray, NDArray[np.float64]]:
        """Return the k best labels, (k,), around a point (1, n_components), without excluded ids.

        Scores, (k,), are those over all other labels, whose full list sums to one.
        """
        (scores,) = self.scores(point)
        n_labels = len(scores)
        label_ids = np.arange(n_labels)
        candidates = np.setdiff1d(label_ids, excluded)
        shares = scores[candidates]
        total = shares.sum()
        if total > 0:
            shares = shares / total
        n_occurrences = self.index.n_occurrences[candidates]
        preference = label_preference(n_occurrences)
        table = shares[None, :]
        place_rows, share_rows = rank_labels(table, preference, k)
        best_places = place_rows[0]
        return candidates[best_places], share_rows[0]
