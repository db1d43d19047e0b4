"""The known documents: tag sets as points of the space, found by nearness.

In: documents, encoded by a concept space. Out: which known tag sets lie near a code, and the votes
of all of them. They grow and shrink without training.

Terms:

- A *document* has a name and a tag set; documents with equal tag sets share one *set*, and sets
  are numbered as documents first hold them.
- A *point* is the code of a tag set on the principal axes of the space, at length 1, so that the
  product of two points is their cosine. Every set has one; a document's is `points[sets[row]]`.
- The *learned labels* are the first `n_learned` columns: those that the space has been trained on.
  *New labels* came with documents that were added later. The space cannot encode them, so points
  depend on learned labels alone.
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

# No share of votes is divided by less, so that it stays a number where all documents are far away.
_SMALLEST_TOTAL = 1e-30


@dataclass(frozen=True)
class Neighbour:
    """A known tag set near a code, as users, REST answers and `Evidence` show it.

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

    Replaced rather than changed: taggers share their arrays, and results are cached.

    Attributes
    ----------
    labels : tuple of str
        Those that the space has learned, then new ones in the order they were met.
    n_learned : int
        How many of them the space has learned.
    ids : tuple of str, length n_documents
        The documents' names, all different.
    matrix : csr_matrix of bool, shape (n_documents, n_labels)
        Which labels each document holds. It stores no False.
    sets : int64 array, shape (n_documents,)
        The number of each document's tag set; 0, 1, 2 … as they first occur.
    points : float32 array, shape (n_sets, n_axes)
        Of the tag sets, in the order of their numbers; see `ConceptSpace.points`.
    """

    labels: tuple[str, ...]
    n_learned: int
    ids: tuple[str, ...]
    matrix: sp.csr_matrix
    sets: IntArray
    points: Floats

    def __repr__(self) -> str:
        """Return its size, in a line."""
        n_documents = len(self.ids)
        n_sets = len(self.points)
        n_labels = len(self.labels)
        return f"KnownDocuments({n_documents} documents, {n_sets} tag sets, {n_labels} labels)"

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
            Those that the space has learned, in its order.
        label_sets, corpus : LabelCorpus
            The documents that teach what labels mean, and those of items. They may be the same.

        Returns
        -------
        documents : KnownDocuments
        dropped : tuple of str
            The names of documents without a label that the space has learned.
        """
        n_axes = space.axes_.shape[1]
        no_points = np.zeros((0, n_axes), dtype=np.float32)
        no_table = no_documents(labels)
        empty = cls(*no_table, no_points)
        documents, _, dropped = empty.add(space, label_sets)
        if corpus is not label_sets:
            new_documents = select_unmatched_documents(corpus, label_sets)
            documents, _, dropped_items = documents.add(space, new_documents)
            dropped += dropped_items
        return documents, dropped

    def add(
        self, space: ConceptSpace, corpus: LabelCorpus
    ) -> tuple[KnownDocuments, tuple[str, ...], tuple[str, ...]]:
        """Return them with more documents; labels that the space has not learned are new labels.

        Documents and labels that were known keep their rows and columns.

        Returns
        -------
        documents : KnownDocuments
        ids, dropped : tuples of str
            The names of the documents taken in, and of those that hold no label the space has
            learned.
        """
        addition = with_documents(self._documents, corpus)
        new_sets = addition.fresh
        learned_tags = new_sets[:, : self.n_learned]
        new_points = space.document_points(learned_tags)
        points = np.concatenate([self.points, new_points])
        documents = KnownDocuments(*addition.documents, points)
        return documents, addition.ids, addition.dropped

    def remove(self, ids: Collection[str]) -> KnownDocuments:
        """Return them without the documents of some names; new labels that none holds disappear.

        The others stay in their order, and their tag sets are numbered anew.
        """
        removal = without_documents(self._documents, ids)
        remaining = removal.documents
        # The points stay as they are, in the order of the new numbers of their sets.
        _, first_rows = np.unique(remaining.sets, return_index=True)
        former_sets = self.sets[removal.kept]
        set_order = former_sets[first_rows]
        points = self.points[set_order]
        return KnownDocuments(*remaining, points)

    def without_labels(self, space: ConceptSpace, labels: Collection[str]) -> KnownDocuments:
        """Return them with some labels taken out of all documents, which are encoded again.

        Learned labels keep their columns, without a document; other labels disappear. Documents
        that hold no label any more stay.
        """
        removed_labels = set(labels)
        stays = [label not in removed_labels for label in self.labels]
        # A product with this diagonal matrix leaves the columns that stay, and empties the others.
        diagonal = np.array(stays, dtype=np.int8)
        column_selector = sp.diags_array(diagonal, dtype=np.int8)
        matrix = sp.csr_matrix(self.matrix @ column_selector)
        return self._with_matrix(space, matrix)

    def merged(self, space: ConceptSpace, targets: Mapping[str, str]) -> KnownDocuments:
        """Return them with some labels in place of others, encoded again.

        Parameters
        ----------
        space : ConceptSpace
        targets : mapping of str to str
            By label: the one that takes its place, which itself stays. The column of a label is
            left empty if the space has learned it, and else disappears.
        """
        n_labels = len(self.labels)
        columns = np.arange(n_labels)
        column_by_label = dict(zip(self.labels, columns.tolist(), strict=True))
        new_columns = columns.copy()
        for label, target in targets.items():
            new_columns[column_by_label[label]] = column_by_label[target]
        # A product with this matrix adds one column to the other; entries above 1 become True.
        entry_values = np.ones(n_labels, dtype=np.int8)
        entries = (entry_values, (columns, new_columns))
        column_map = sp.csr_matrix(entries, shape=(n_labels, n_labels))
        matrix = sp.csr_matrix(self.matrix @ column_map, dtype=bool)
        return self._with_matrix(space, matrix)

    def renamed(self, label: str, name: str) -> KnownDocuments:
        """Return them with another name for a label that they hold, which keeps its column."""
        column = self.labels.index(label)
        new_labels = list(self.labels)
        new_labels[column] = name
        labels = tuple(new_labels)
        return replace(self, labels=labels)

    def _with_matrix(self, space: ConceptSpace, matrix: sp.csr_matrix) -> KnownDocuments:
        """Return documents of the same names that hold other labels, and encode them again.

        New labels that none of them holds disappear, as they do when documents are removed.

        Parameters
        ----------
        space : ConceptSpace
        matrix : csr_matrix, shape (n_documents, n_labels)
            Not 0 where a document holds a label; columns are those of `labels`.
        """
        documents = sp.csr_matrix(matrix, dtype=bool)
        documents.eliminate_zeros()
        column_sums = documents.sum(axis=0)
        counts = np.asarray(column_sums).ravel()
        keeps_column = counts > 0
        keeps_column[: self.n_learned] = True
        documents = documents[:, keeps_column]
        labels = tuple(compress(self.labels, keeps_column))
        distinct_sets, set_numbers = unique_rows(documents)
        learned_tags = distinct_sets[:, : self.n_learned]
        points = space.document_points(learned_tags)
        return replace(
            self,
            labels=labels,
            matrix=documents,
            sets=set_numbers,
            points=points,
        )

    @property
    def _documents(self) -> DocumentTable:
        """All but the points, as functions of `documents.label_sets` take and return it."""
        return DocumentTable(self.labels, self.n_learned, self.ids, self.matrix, self.sets)

    # ------------------------------------------------------------------ inference

    @cached_property
    def _set_counts(self) -> IntArray:
        """How many documents have each tag set, (n_sets,); read-only."""
        n_sets = len(self.points)
        counts = np.bincount(self.sets, minlength=n_sets)
        set_counts = counts.astype(np.int64)
        set_counts.setflags(write=False)
        return set_counts

    @cached_property
    def _voters(self) -> Voters:
        """The tag sets with their points, each of which votes once for every document it has."""
        _, first_rows = np.unique(self.sets, return_index=True)
        set_labels = self.matrix[first_rows]
        return Voters.of(self.points, set_labels, self._set_counts)

    @cached_property
    def counts(self) -> IntArray:
        """How many documents hold each label, (n_labels,); read-only."""
        column_sums = self.matrix.sum(axis=0)
        counts_row = np.array(column_sums, dtype=np.int64)
        counts = counts_row.ravel()
        counts.setflags(write=False)
        return counts

    @cached_property
    def digest(self) -> bytes:
        """The SHA-256 digest of all that decides votes; names of documents have no part in it.

        It is part of the keys of cached corrections, which are fitted again where it changes.
        """
        shape_text = f"{self.matrix.shape}"
        sha256 = hashlib.sha256(shape_text.encode())
        _, arrays = self.get_state()
        for name, array in arrays.items():
            description = f"{name} {array.dtype.str} {array.shape}"
            sha256.update(description.encode())
            sha256.update(array.tobytes())
        return sha256.digest()

    def vote_shares(self, points: Floats) -> Matrix:
        """Return the share of votes that each label gets, (n, n_labels), for (n, n_axes) points."""
        return self._voters.shares(points)

    def label_vote_shares(self, points: Floats, column: int, totals: Matrix) -> Matrix:
        """Return the share of votes that one label gets, (n,), for points (n, n_axes).

        Only documents that hold the label are looked at. `totals` (n,) are `total_votes` of the
        same points, which are computed once for all labels.
        """
        return self._voters.label_shares(points, column, totals)

    def total_votes(self, points: Floats) -> Matrix:
        """Return the sums of the votes of all documents, (n,), for points (n, n_axes)."""
        return self._voters.totals(points)

    def nearest(self, point: Floats, column: int, k: int) -> tuple[Neighbour, ...]:
        """Return the k known tag sets that are nearest to a point, from near to far.

        Parameters
        ----------
        point : float32 array, shape (n_axes,)
        column : int
            Of the label that was asked about: neighbours say whether they hold it. A label that is
            known by name alone has a column beyond those of documents, and none holds it.
        k : int
        """
        cosines = self.points @ point
        cosines = cosines.astype(np.float64)
        # vote = count * exp((cosine - 1) / temperature)
        exponents = (cosines - 1) / TEMPERATURE
        kernel = np.exp(exponents)
        votes = kernel * self._set_counts
        total_votes = float(votes.sum())
        total_votes = max(total_votes, _SMALLEST_TOTAL)
        shares = votes / total_votes
        label = None
        if column < len(self.labels):
            label = self.labels[column]
        nearest_first = np.argsort(-cosines, kind="stable")
        neighbours = []
        for set_number in nearest_first[:k].tolist():
            rows = np.flatnonzero(self.sets == set_number)
            first_row = int(rows[0])
            document = self.document(first_row)
            cosine = float(cosines[set_number])
            distance = 1 - cosine
            neighbour = Neighbour(
                document=document,
                document_ids=tuple(self.ids[row] for row in rows),
                distance=max(distance, 0.0),
                share=float(shares[set_number]),
                holds=label in document,
            )
            neighbours.append(neighbour)
        return tuple(neighbours)

    def document(self, row: int) -> tuple[str, ...]:
        """Return the labels of one document, in the order of columns."""
        return labels_of(self._documents, row)

    def concepts(self) -> Concepts:
        """Return every label in every known document as a point: where the document lies."""
        from polyseme.documents.concepts import Concepts

        n_documents = len(self.ids)
        document_rows = np.arange(n_documents, dtype=np.int64)
        label_counts = np.diff(self.matrix.indptr)  # of each document
        concept_documents = np.repeat(document_rows, label_counts)
        concept_sets = self.sets[concept_documents]
        return Concepts(
            points=self.points[concept_sets],
            label_ids=self.matrix.indices.astype(np.int64),
            document_ids=concept_documents,
            labels=self.labels,
            dropped=np.zeros(0, dtype=np.int64),
        )

    # ------------------------------------------------------------------ persistence

    def get_state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return them as JSON values and arrays, for saving without pickle.

        Names, types and shapes are the format of the model file (docs/own-data.md); `from_state`
        checks them. The arrays may be the attributes themselves, so they must not be changed.
        """
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
        """Rebuild them from what `get_state` returned; a state that does not fit is refused."""
        _CONFIG_FIELDS.check(config)
        labels = tuple(config["labels"])
        ids = tuple(config["ids"])
        n_learned = config["n_learned"]
        require(n_learned <= len(labels), "n_learned", "a number of its labels")
        check_arrays(
            arrays,
            _ARRAY_FORMATS,
            n_documents=len(ids),
            n_labels=len(labels),
        )
        matrix = read_document_matrix(arrays, ids, labels)
        # The numbers of sets follow from the documents, so that saved ones are only compared.
        distinct_sets, set_numbers = unique_rows(matrix)
        check_derived(arrays["sets"], set_numbers, "sets")
        points = np.array(arrays["points"])
        n_sets = distinct_sets.shape[0]
        require(len(points) == n_sets, "points", "as many as tag sets")
        return cls(labels, n_learned, ids, matrix, set_numbers, points)


# What `get_state` returns: the JSON values, and the arrays beside them. An unnamed Csr has its
# arrays `indices` and `indptr` among them.
_CONFIG_FIELDS = Fields(
    {
        "labels": ListOf(Text(), distinct=True),
        "n_learned": Whole(0),
        "ids": ListOf(Text(), distinct=True),
    }
)
_ARRAY_FORMATS: dict[str, Array | Csr] = {
    "": Csr(("n_documents", "n_labels")),
    "sets": Array("int64", ("n_documents",), 0, below="n_documents"),
    "points": Array("float32", ("n_sets", "n_axes"), longest=UNIT_LIMIT),
}
