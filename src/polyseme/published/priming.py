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

from polyseme._validation import IntArray, check_number, check_option, warn_dropped
from polyseme.corpus import LabelCorpus, unique_rows
from polyseme.documents import (
    Known,
    documents_of,
    labels_of,
    no_documents,
    unmet_documents,
    with_documents,
    without_documents,
)
from polyseme.index import ConceptIndex
from polyseme.persistence import State
from polyseme.published.embedding import ConceptEmbedding
from polyseme.schema import (
    UNIT,
    Array,
    Csr,
    Fields,
    Several,
    Text,
    Whole,
    check_arrays,
    check_places,
    require,
)
from polyseme.tags import label_preference, rank_blocks, rank_labels

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
        none = np.empty(0, dtype=np.int64)
        points = np.empty((0, embedding.n_components), dtype=np.float32)
        return cls(*no_documents(embedding.classes_), points, none, none)

    @classmethod
    def of(
        cls, embedding: ConceptEmbedding, semantics: LabelCorpus, corpus: LabelCorpus
    ) -> tuple[PrimingStore, tuple[str, ...]]:
        """Collect label sets, then instances' that are new: the store, and what a warning names."""
        store, _, dropped = cls.empty(embedding).add(embedding, semantics)
        n_documents = len(semantics)
        if corpus is not semantics:
            new = unmet_documents(corpus, semantics)
            store, _, more = store.add(embedding, new)
            dropped += more
            n_documents += len(new)
        warn_dropped(dropped, n_documents)
        return store, dropped

    def add(
        self, embedding: ConceptEmbedding, corpus: LabelCorpus
    ) -> tuple[PrimingStore, tuple[str, ...], tuple[str, ...]]:
        """Take in documents; labels outside the vocabulary become oov labels.

        Gives the larger store (this one is left as it was), the names of the documents taken in,
        and of those left out because they hold no label of the vocabulary.
        """
        grown = with_documents(self._documents, corpus)
        new, labels = grown.fresh, grown.known.labels
        n_sets, n_before = int(self.sets.max(initial=-1)) + 1, len(self.points)
        new_sets = np.repeat(np.arange(new.shape[0], dtype=np.int64), np.diff(new.indptr))
        label_ids = np.concatenate([self.label_ids, new.indices.astype(np.int64)])
        set_ids = np.concatenate([self.set_ids, n_sets + new_sets])
        order = np.argsort(label_ids, kind="stable")
        place = np.argsort(order)
        # Points are written once, where they belong: they are most of the memory.
        points = np.empty((len(order), self.points.shape[1]), dtype=np.float32)
        points[place[:n_before]] = self.points
        for start in range(0, new.shape[0], _BLOCK):
            part = sp.csr_matrix(new[start : start + _BLOCK])
            ids = tuple(map(str, range(part.shape[0])))
            embedded = LabelCorpus(labels, part, ids, numbered=True, normalize=False)
            rows = slice(*(n_before + new.indptr[[start, start + part.shape[0]]]))
            points[place[rows]] = embedding.transform(embedded).points
        store = PrimingStore(*grown.known, points, label_ids[order], set_ids[order])
        return store, grown.ids, grown.dropped

    @property
    def _documents(self) -> Known:
        """What is known, apart from its concepts."""
        return Known(self.labels, self.n_vocabulary, self.ids, self.matrix, self.sets)

    def remove(self, ids: Collection[str]) -> PrimingStore:
        """Return the store without documents of some names; oov labels left without any go too."""
        shrunk = without_documents(self._documents, ids)
        new_column = np.full(len(self.labels), -1, dtype=np.int64)
        new_column[shrunk.columns] = np.arange(len(shrunk.columns))
        renumbered = np.full(int(self.sets.max(initial=-1)) + 1, -1, dtype=np.int64)
        renumbered[self.sets[shrunk.kept]] = shrunk.known.sets
        rows = np.flatnonzero(renumbered[self.set_ids] >= 0)
        rows = rows[np.lexsort((renumbered[self.set_ids[rows]], self.label_ids[rows]))]
        return PrimingStore(
            *shrunk.known,
            self.points[rows],
            new_column[self.label_ids[rows]],
            renumbered[self.set_ids[rows]],
        )

    def index(self, memory_mb: float) -> ConceptIndex:
        """Build the search index over all concepts, each counted once per document."""
        counts = np.bincount(self.sets, minlength=int(self.set_ids.max(initial=-1)) + 1)
        return ConceptIndex(
            self.points, self.label_ids, len(self.labels),
            counts=counts[self.set_ids], memory_mb=memory_mb,
        )  # fmt: skip

    def nearest(self, point: NDArray[np.float32], column: int, k: int) -> list[Explanation]:
        """Return the k concepts of a label's column that are nearest to a point (n_components,)."""
        rows = np.flatnonzero(self.label_ids == column)
        gaps = self.points[rows].astype(np.float64) - point
        distances = np.sqrt(np.einsum("ij,ij->i", gaps, gaps))
        nearest = []
        for place in np.argsort(distances, kind="stable")[:k]:
            members = np.flatnonzero(self.sets == self.set_ids[rows[place]])
            document, names = self.document(int(members[0])), tuple(self.ids[m] for m in members)
            concept = Explanation(self.labels[column], document, names, float(distances[place]))
            nearest.append(concept)
        return nearest

    def document(self, row: int) -> tuple[str, ...]:
        """Return the labels of one document."""
        return labels_of(self._documents, row)

    def get_state(self) -> State:
        """Return the store as JSON values and arrays, for saving without pickle."""
        config = {"labels": list(self.labels), "n_vocabulary": self.n_vocabulary}
        arrays = {name: getattr(self, name) for name in _ARRAYS}
        for name in ("indices", "indptr"):
            arrays[name] = getattr(self.matrix, name).astype(np.int64)
        return config | {"ids": list(self.ids)}, arrays

    @classmethod
    def from_state(
        cls, config: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]
    ) -> PrimingStore:
        """Rebuild a store from `get_state`."""
        _VALUES.check(config)
        labels, ids = tuple(config["labels"]), tuple(config["ids"])
        require(config["n_vocabulary"] <= len(labels), "n_vocabulary", "a number of its labels")
        check_arrays(arrays, _DECLARED, n_documents=len(ids), n_labels=len(labels))
        matrix = documents_of(arrays, ids, labels)
        distinct, sets = unique_rows(matrix)
        concepts = distinct.tocsc()
        concepts.sort_indices()
        by_label = np.repeat(np.arange(len(labels)), np.diff(concepts.indptr))
        check_places(arrays["sets"], sets, "sets")
        check_places(arrays["label_ids"], by_label, "label_ids")
        check_places(arrays["set_ids"], concepts.indices, "set_ids")
        learned = (np.array(arrays[name]) for name in _ARRAYS)
        return cls(labels, config["n_vocabulary"], ids, matrix, *learned)


# What the state of a store holds.
_VALUES = Fields(
    {
        "labels": Several(Text(), distinct=True),
        "n_vocabulary": Whole(1),
        "ids": Several(Text(), distinct=True),
    }
)
_DECLARED: dict[str, Array | Csr] = {
    "": Csr(("n_documents", "n_labels")),
    "sets": Array("int64", ("n_documents",), 0, below="n_documents"),
    "points": Array("float32", ("n_concepts", "n_components"), -UNIT, UNIT),
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
        check_option("relatedness", relatedness, RELATEDNESS, owner=type(self).__name__)
        self.index = index
        self.distance_scale = distance_scale
        self.relatedness = relatedness
        self.bandwidth = 0.15 * distance_scale if bandwidth is None else bandwidth

    def scores(self, points: ArrayLike) -> NDArray[np.float64]:
        """Score every label around points, (n, n_components) to (n, n_labels).

        Larger is better; rows sum to one (or are all 0 when no label has a concept).
        """
        if self.relatedness == "nearest":
            distances = np.asarray(self.index.distances(points), dtype=np.float64)
            # Distances below a guard are not told apart; labels without a concept are at infinity.
            weights = 1.0 / np.maximum(distances, 1e-8 * self.distance_scale)
        else:
            logs = self.index.log_densities(points, self.bandwidth)
            top = logs.max(axis=1, keepdims=True, initial=-np.inf)
            weights = np.exp(logs - np.where(np.isfinite(top), top, 0.0))
        totals = weights.sum(axis=1, keepdims=True)
        return np.asarray(np.divide(weights, totals, out=weights, where=totals > 0))

    def rank(self, points: ArrayLike, k: int) -> tuple[IntArray, NDArray[np.float64]]:
        """Return the k best labels around each point; see `rank_labels`."""
        check_number("k", k, owner="rank", low=1, whole=True)
        queries = np.asarray(points)
        preference = label_preference(self.index.n_occurrences)
        shape = (len(queries), min(k, self.index.n_labels))
        label_ids, scores = np.empty(shape, dtype=np.int64), np.empty(shape)
        for rows in rank_blocks(len(queries), self.index.n_labels):
            ranked = rank_labels(self.scores(queries[rows]), preference, k)
            label_ids[rows], scores[rows] = ranked
        return label_ids, scores

    def rank_others(
        self, point: ArrayLike, given: IntArray, k: int
    ) -> tuple[IntArray, NDArray[np.float64]]:
        """Return the k best labels, (k,), around a point (1, n_components), leaving out given ones.

        Scores, (k,), are those over all other labels, whose full list sums to one.
        """
        scores = self.scores(point)[0]
        others = np.setdiff1d(np.arange(len(scores)), given)
        total = scores[others].sum()
        shares = scores[others] / total if total > 0 else scores[others]
        preference = label_preference(self.index.n_occurrences[others])
        places, best = rank_labels(shares[None, :], preference, k)
        return others[places[0]], best[0]
