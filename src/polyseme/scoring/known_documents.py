"""The known documents: tag sets as points of the space, found by nearness.

In: documents, encoded by a concept space. Out: which known tag sets lie near a code, and the votes
of all of them. They grow and shrink without training.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import compress
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from polyseme.base.validation import IntArray
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
from polyseme.space.concept_space import ConceptSpace
from polyseme.space.votes import TEMPERATURE, Voters
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

if TYPE_CHECKING:
    from polyseme.documents.concepts import Concepts

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
class KnownDocuments:
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
        n_sets = len(self.points)
        n_labels = len(self.labels)
        return f"KnownDocuments({len(self.ids)} documents, {n_sets} tag sets, {n_labels} labels)"

    @classmethod
    def of(
        cls,
        space: ConceptSpace,
        labels: tuple[str, ...],
        label_sets: LabelCorpus,
        corpus: LabelCorpus,
    ) -> tuple[KnownDocuments, tuple[str, ...]]:
        """Collect the documents a tagger knows: label sets first, then items' that are new.

        Parameters
        ----------
        space : ConceptSpace
            Fitted.
        labels : tuple of str
            Its columns.
        label_sets, corpus : LabelCorpus
            They may be the same.

        Returns
        -------
        documents : KnownDocuments
        dropped : tuple of str
            The names of documents without a label.
        """
        n_axes = space.axes_.shape[1]
        no_points = np.zeros((0, n_axes), dtype=np.float32)
        empty = cls(*no_documents(labels), no_points)
        documents, _, dropped = empty.add(space, label_sets)
        if corpus is not label_sets:
            new = select_unmatched_documents(corpus, label_sets)
            documents, _, dropped_items = documents.add(space, new)
            dropped += dropped_items
        return documents, dropped

    def add(
        self, space: ConceptSpace, corpus: LabelCorpus
    ) -> tuple[KnownDocuments, tuple[str, ...], tuple[str, ...]]:
        """Return them with more documents; labels that the space has not learned are new labels.

        Returns
        -------
        documents : KnownDocuments
        ids, dropped : tuples of str
            The names of the documents taken in, and of those that hold no label the space has
            learned.
        """
        addition = with_documents(self._documents, corpus)
        points = space.document_points(addition.fresh[:, : self.n_learned])
        store = KnownDocuments(*addition.documents, np.concatenate([self.points, points]))
        return store, addition.ids, addition.dropped

    def remove(self, ids: Collection[str]) -> KnownDocuments:
        """Return them without some documents; new labels that none holds disappear."""
        removal = without_documents(self._documents, ids)
        _, first_rows = np.unique(removal.documents.sets, return_index=True)
        former_sets = self.sets[removal.kept]
        return KnownDocuments(*removal.documents, self.points[former_sets[first_rows]])

    def without_labels(self, space: ConceptSpace, labels: Collection[str]) -> KnownDocuments:
        """Return them with some labels taken out of all documents."""
        removed = set(labels)
        stays = [label not in removed for label in self.labels]
        diagonal = np.array(stays, dtype=np.int8)
        selector = sp.diags_array(diagonal, dtype=np.int8)
        matrix = sp.csr_matrix(self.matrix @ selector)
        return self._with_matrix(space, matrix)

    def merged(self, space: ConceptSpace, label: str, into: str) -> KnownDocuments:
        """Return them with one label in place of another in all documents."""
        n_labels = len(self.labels)
        columns = np.arange(n_labels)
        new_columns = columns.copy()
        column = self.labels.index(label)
        new_columns[column] = self.labels.index(into)
        values = np.ones(n_labels, dtype=np.int8)
        entries = (values, (columns, new_columns))
        joiner = sp.csr_matrix(entries, shape=(n_labels, n_labels))
        matrix = sp.csr_matrix(self.matrix @ joiner)
        return self._with_matrix(space, matrix)

    def renamed(self, label: str, name: str) -> KnownDocuments:
        """Return them with another name for a label."""
        column = self.labels.index(label)
        labels = list(self.labels)
        labels[column] = name
        return replace(self, labels=tuple(labels))

    def _with_matrix(self, space: ConceptSpace, matrix: sp.csr_matrix) -> KnownDocuments:
        """Return other documents (n_documents, n_labels) under the same names.

        New labels that none of them holds disappear, as they do when documents are removed.
        """
        documents = sp.csr_matrix(matrix, dtype=bool)
        documents.eliminate_zeros()
        counts = np.asarray(documents.sum(axis=0)).ravel()
        is_held = counts > 0
        is_held[: self.n_learned] = True
        documents = documents[:, is_held]
        labels = tuple(compress(self.labels, is_held))
        distinct, sets = unique_rows(documents)
        learned_tags = distinct[:, : self.n_learned]
        points = space.document_points(learned_tags)
        return KnownDocuments(labels, self.n_learned, self.ids, documents, sets, points)

    @property
    def _documents(self) -> DocumentTable:
        """What is known, apart from its points."""
        return DocumentTable(self.labels, self.n_learned, self.ids, self.matrix, self.sets)

    # ------------------------------------------------------------------ inference

    @cached_property
    def _set_counts(self) -> IntArray:
        """How many documents each distinct tag set stands for, (n_sets,)."""
        counts = np.bincount(self.sets, minlength=len(self.points))
        return counts.astype(np.int64)

    @cached_property
    def _voters(self) -> Voters:
        """The distinct tag sets, as often as documents hold them."""
        _, first_rows = np.unique(self.sets, return_index=True)
        return Voters.of(self.points, self.matrix[first_rows], self._set_counts)

    @cached_property
    def counts(self) -> IntArray:
        """How many documents hold each label, (n_labels,)."""
        return np.asarray(self.matrix.sum(axis=0), dtype=np.int64).ravel()

    @cached_property
    def digest(self) -> bytes:
        """The digest of all that decides votes; names have no part in them."""
        digest = hashlib.sha256(f"{self.matrix.shape}".encode())
        _, arrays = self.get_state()
        for name, array in arrays.items():
            description = f"{name} {array.dtype.str} {array.shape}"
            digest.update(description.encode())
            digest.update(array.tobytes())
        return digest.digest()

    def vote_shares(self, points: Floats) -> Matrix:
        """Return the share of votes that each label gets, (n, n_labels), for (n, n_axes) points."""
        return self._voters.shares(points)

    def label_vote_shares(self, points: Floats, column: int, totals: Matrix) -> Matrix:
        """Return the share of votes that one label gets, (n,), for points (n, n_axes).

        It takes the documents that hold the label, and `totals` (n,) as `total_votes` returns them.
        """
        return self._voters.label_shares(points, column, totals)

    def total_votes(self, points: Floats) -> Matrix:
        """Return the sums of the votes of all documents, (n,), for points (n, n_axes)."""
        return self._voters.totals(points)

    def nearest(self, point: Floats, column: int, k: int) -> tuple[Neighbour, ...]:
        """Return the k known tag sets that are nearest to a point (n_axes,), from near to far.

        They say whether they hold the label of a column; one beyond those of documents is held by
        none.
        """
        cosines = (self.points @ point).astype(np.float64)
        # vote = count * exp((cosine - 1) / temperature)
        kernel = np.exp((cosines - 1) / TEMPERATURE)
        votes = kernel * self._set_counts
        total = max(float(votes.sum()), 1e-30)
        shares = votes / total
        label = self.labels[column] if column < len(self.labels) else None
        falling = np.argsort(-cosines, kind="stable")
        neighbours = []
        for tag_set in falling[:k].tolist():
            rows = np.flatnonzero(self.sets == tag_set)
            document = self.document(int(rows[0]))
            neighbour = Neighbour(
                document=document,
                document_ids=tuple(self.ids[row] for row in rows),
                distance=max(1 - float(cosines[tag_set]), 0.0),
                share=float(shares[tag_set]),
                holds=label in document,
            )
            neighbours.append(neighbour)
        return tuple(neighbours)

    def document(self, row: int) -> tuple[str, ...]:
        """Return the labels of one document."""
        return labels_of(self._documents, row)

    def concepts(self) -> Concepts:
        """Return every label in every known document as a point: where the document lies."""
        from polyseme.documents.concepts import Concepts

        rows = np.arange(len(self.ids), dtype=np.int64)
        documents = np.repeat(rows, np.diff(self.matrix.indptr))
        sets = self.sets[documents]
        columns = self.matrix.indices.astype(np.int64)
        no_senses = np.zeros(0, dtype=np.int64)
        return Concepts(self.points[sets], columns, documents, self.labels, no_senses)

    # ------------------------------------------------------------------ persistence

    def get_state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return them as JSON values and arrays, for saving without pickle."""
        config = {
            "labels": list(self.labels),
            "n_learned": self.n_learned,
            "ids": list(self.ids),
        }
        arrays: dict[str, NDArray[Any]] = {
            "indices": self.matrix.indices.astype(np.int64),
            "indptr": self.matrix.indptr.astype(np.int64),
            "sets": self.sets,
            "points": self.points,
        }
        return config, arrays

    @classmethod
    def from_state(
        cls, config: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]
    ) -> KnownDocuments:
        """Rebuild them from `get_state`."""
        _VALUES.check(config)
        labels = tuple(config["labels"])
        ids = tuple(config["ids"])
        n_learned = config["n_learned"]
        require(n_learned <= len(labels), "n_learned", "a number of its labels")
        check_arrays(arrays, _DECLARED, n_documents=len(ids), n_labels=len(labels))
        matrix = read_document_matrix(arrays, ids, labels)
        distinct, sets = unique_rows(matrix)
        check_derived(arrays["sets"], sets, "sets")
        points = np.array(arrays["points"])
        require(len(points) == distinct.shape[0], "points", "as many as tag sets")
        return cls(labels, n_learned, ids, matrix, sets, points)


_VALUES = Fields(
    {
        "labels": ListOf(Text(), distinct=True),
        "n_learned": Whole(0),
        "ids": ListOf(Text(), distinct=True),
    }
)
_DECLARED: dict[str, Array | Csr] = {
    "": Csr(("n_documents", "n_labels")),
    "sets": Array("int64", ("n_documents",), 0, below="n_documents"),
    "points": Array("float32", ("n_sets", "n_axes"), longest=UNIT_LIMIT),
}
