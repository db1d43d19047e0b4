"""The store of known documents: documents as points of the space, found by nearness.

In: documents, coded by a concept space. Out: which known tag sets lie near a code, and the votes of
all of them; the store grows and shrinks without training.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import compress
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from polyseme._validation import IntArray
from polyseme.concepts import Concepts
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
from polyseme.space import TEMPERATURE, ConceptSpace, Voters

Floats = NDArray[np.float32]
Matrix = NDArray[np.float64]


@dataclass(frozen=True)
class Neighbour:
    """A known tag set near a code.

    Attributes
    ----------
    document : tuple of str
        Its labels.
    document_ids : tuple of str
        The names of the documents that hold just these labels.
    distance : float
        One less the cosine of the two codes; smaller is closer.
    share : float
        Its share of all known documents' votes.
    holds : bool
        Whether it holds the label that was asked about.
    """

    document: tuple[str, ...]
    document_ids: tuple[str, ...]
    distance: float
    share: float
    holds: bool


@dataclass(frozen=True, eq=False)  # arrays have no single truth value to compare by
class ConceptStore:
    """The documents a tagger knows, and where they lie.

    Attributes
    ----------
    labels : tuple of str
        Those that the space has learned, then new ones in the order they were met.
    n_learned : int
        How many of them the space has learned.
    ids : tuple of str, length n_documents
        The documents' names.
    matrix : csr_matrix of bool, shape (n_documents, n_labels)
    sets : int64 array, shape (n_documents,)
        The distinct tag set of each document.
    points : float32 array, shape (n_sets, n_axes)
        Of the distinct tag sets; see `ConceptSpace.points`.
    """

    labels: tuple[str, ...]
    n_learned: int
    ids: tuple[str, ...]
    matrix: sp.csr_matrix
    sets: IntArray
    points: Floats

    def __repr__(self) -> str:
        """Return its size, in a line."""
        n_sets, n_labels = len(self.points), len(self.labels)
        return f"ConceptStore({len(self.ids)} documents, {n_sets} tag sets, {n_labels} labels)"

    @classmethod
    def of(
        cls,
        space: ConceptSpace,
        labels: tuple[str, ...],
        label_sets: LabelCorpus,
        corpus: LabelCorpus,
    ) -> tuple[ConceptStore, tuple[str, ...]]:
        """Collect the documents a tagger knows: label sets first, then items' that are new.

        `labels` are the columns of a fitted space; both corpora may be the same. Gives the store,
        and the names of documents without a label.
        """
        points = np.zeros((0, space.axes_.shape[1]), dtype=np.float32)
        store, _, dropped = cls(*no_documents(labels), points).add(space, label_sets)
        if corpus is not label_sets:
            store, _, more = store.add(space, unmet_documents(corpus, label_sets))
            dropped += more
        return store, dropped

    def add(
        self, space: ConceptSpace, corpus: LabelCorpus
    ) -> tuple[ConceptStore, tuple[str, ...], tuple[str, ...]]:
        """Take in documents; labels that the space has not learned become new labels.

        Gives the larger store, the names of the documents taken in, and of those that hold no label
        the space has learned. This store is left as it was.
        """
        grown = with_documents(self._documents, corpus)
        points = space.document_points(grown.fresh[:, : self.n_learned])
        store = ConceptStore(*grown.known, np.concatenate([self.points, points]))
        return store, grown.ids, grown.dropped

    def remove(self, ids: Collection[str]) -> ConceptStore:
        """Return the store without some documents; new labels that none holds disappear."""
        shrunk = without_documents(self._documents, ids)
        _, first = np.unique(shrunk.known.sets, return_index=True)
        return ConceptStore(*shrunk.known, self.points[self.sets[shrunk.kept][first]])

    def without_labels(self, space: ConceptSpace, labels: Collection[str]) -> ConceptStore:
        """Return the store with some labels taken out of all documents."""
        gone = set(labels)
        left = np.array([label not in gone for label in self.labels], dtype=bool)
        matrix = sp.csr_matrix(self.matrix @ sp.diags_array(left.astype(np.int8), dtype=np.int8))
        return self._with(space, matrix, self.labels)

    def merged(self, space: ConceptSpace, label: str, into: str) -> ConceptStore:
        """Return the store with one label in place of another in all documents."""
        columns = np.arange(len(self.labels))
        places = columns.copy()
        places[self.labels.index(label)] = self.labels.index(into)
        entries = (np.ones(len(columns), dtype=np.int8), (columns, places))
        joiner = sp.csr_matrix(entries, shape=(len(columns), len(columns)))
        return self._with(space, sp.csr_matrix(self.matrix @ joiner), self.labels)

    def renamed(self, label: str, name: str) -> ConceptStore:
        """Return the store with another name for a label."""
        names = tuple(name if one == label else one for one in self.labels)
        return replace(self, labels=names)

    def _with(
        self, space: ConceptSpace, matrix: sp.csr_matrix, labels: tuple[str, ...]
    ) -> ConceptStore:
        """Return the store with other documents (n_documents, n_labels) under the same names.

        New labels that none of them holds disappear, as they do when documents are removed.
        """
        documents = sp.csr_matrix(matrix, dtype=bool)
        documents.eliminate_zeros()
        held = np.asarray(documents.sum(axis=0)).ravel() > 0
        held[: self.n_learned] = True
        documents, labels = documents[:, held], tuple(compress(labels, held))
        distinct, sets = unique_rows(documents)
        points = space.document_points(distinct[:, : self.n_learned])
        return ConceptStore(labels, self.n_learned, self.ids, documents, sets, points)

    @property
    def _documents(self) -> Known:
        """What is known, apart from its points."""
        return Known(self.labels, self.n_learned, self.ids, self.matrix, self.sets)

    # ------------------------------------------------------------------ inference

    @cached_property
    def _set_counts(self) -> IntArray:
        """How many documents each distinct tag set stands for, (n_sets,)."""
        return np.bincount(self.sets, minlength=len(self.points)).astype(np.int64)

    @cached_property
    def _voters(self) -> Voters:
        """The distinct tag sets, as often as documents hold them."""
        _, first = np.unique(self.sets, return_index=True)
        return Voters.of(self.points, self.matrix[first], self._set_counts)

    @cached_property
    def counts(self) -> IntArray:
        """How many documents hold each label, (n_labels,)."""
        return np.asarray(self.matrix.sum(axis=0), dtype=np.int64).ravel()

    @cached_property
    def digest(self) -> bytes:
        """The digest of all that decides `votes`; names have no part in them."""
        digest = hashlib.sha256(f"{self.matrix.shape}".encode())
        for name, array in self.get_state()[1].items():
            digest.update(f"{name} {array.dtype.str} {array.shape}".encode() + array.tobytes())
        return digest.digest()

    def votes(self, points: Floats) -> Matrix:
        """Return all known documents' shares of votes, (n, n_labels), for points (n, n_axes)."""
        return self._voters.votes(points)

    def label_votes(self, points: Floats, column: int, totals: Matrix) -> Matrix:
        """Compute the shares of votes that one label gets, (n,), for points (n, n_axes).

        It takes the documents that hold the label, and `totals` (n,) as `total_votes` gives them.
        """
        return self._voters.label_votes(points, column) / np.maximum(totals, 1e-30)

    def total_votes(self, points: Floats) -> Matrix:
        """Return the sums of the votes of all known documents, (n,), for points (n, n_axes)."""
        return self._voters.total_votes(points)

    def nearest(self, point: Floats, column: int, k: int) -> tuple[Neighbour, ...]:
        """Return the k known tag sets that are nearest to a point (n_axes,), from near to far.

        They say whether they hold the label of a column; one beyond those of documents is held by
        none.
        """
        cosines = (self.points @ point).astype(np.float64)
        strength = np.exp((cosines - 1) / TEMPERATURE) * self._set_counts
        shares = strength / max(float(strength.sum()), 1e-30)
        label = self.labels[column] if column < len(self.labels) else None
        neighbours = []
        for place in np.argsort(-cosines, kind="stable")[:k].tolist():
            rows = np.flatnonzero(self.sets == place)
            document = self.document(int(rows[0]))
            neighbours.append(
                Neighbour(
                    document,
                    tuple(self.ids[row] for row in rows),
                    max(1 - float(cosines[place]), 0.0),
                    float(shares[place]),
                    label in document,
                )
            )
        return tuple(neighbours)

    def document(self, row: int) -> tuple[str, ...]:
        """Return the labels of one document."""
        return labels_of(self._documents, row)

    def concepts(self) -> Concepts:
        """Return every label in every known document as a point: where the document lies."""
        documents = np.repeat(np.arange(len(self.ids), dtype=np.int64), np.diff(self.matrix.indptr))
        points, labels = self.points[self.sets[documents]], self.matrix.indices.astype(np.int64)
        return Concepts(points, labels, documents, self.labels, np.zeros(0, dtype=np.int64))

    # ------------------------------------------------------------------ persistence

    def get_state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return the store as JSON values and arrays, for saving without pickle."""
        config = {"labels": list(self.labels), "n_learned": self.n_learned, "ids": list(self.ids)}
        return config, {
            "indices": self.matrix.indices.astype(np.int64),
            "indptr": self.matrix.indptr.astype(np.int64),
            "sets": self.sets,
            "points": self.points,
        }

    @classmethod
    def from_state(
        cls, config: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]
    ) -> ConceptStore:
        """Rebuild a store from `get_state`."""
        _VALUES.check(config)
        labels, ids = tuple(config["labels"]), tuple(config["ids"])
        require(config["n_learned"] <= len(labels), "n_learned", "a number of its labels")
        check_arrays(arrays, _DECLARED, n_documents=len(ids), n_labels=len(labels))
        matrix = documents_of(arrays, ids, labels)
        distinct, sets = unique_rows(matrix)
        check_places(arrays["sets"], sets, "sets")
        require(len(arrays["points"]) == distinct.shape[0], "points", "as many as tag sets")
        return cls(labels, config["n_learned"], ids, matrix, sets, np.array(arrays["points"]))


_VALUES = Fields(
    {
        "labels": Several(Text(), distinct=True),
        "n_learned": Whole(0),
        "ids": Several(Text(), distinct=True),
    }
)
_DECLARED: dict[str, Array | Csr] = {
    "": Csr(("n_documents", "n_labels")),
    "sets": Array("int64", ("n_documents",), 0, below="n_documents"),
    "points": Array("float32", ("n_sets", "n_axes"), longest=UNIT),
}
