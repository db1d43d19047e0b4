"""Between embedding and priming: the documents a tagger knows, and the concepts of their labels.

In: a fitted embedding and documents. Out: `KnownConcepts`, which grows and shrinks with the
documents behind it and says which of them a score rests on.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from polyseme._rows import unique_rows
from polyseme._validation import InputError, IntArray, warn_unplaced
from polyseme.corpus import LabelCorpus
from polyseme.embedding import ConceptEmbedding
from polyseme.index import ConceptIndex

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
        n_labels = len(embedding.labels_)
        empty = np.empty(0, dtype=np.int64)
        points = np.empty((0, embedding.n_components), dtype=np.float32)
        matrix = sp.csr_matrix(np.empty((0, n_labels), dtype=bool))
        return cls(embedding.labels_, n_labels, (), matrix, empty, points, empty, empty)

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
        unplaced : tuple of str
            The names of documents that hold no label of the vocabulary and were left out.
        """
        matrix, extra = corpus.align(self.labels)
        placed = np.diff(matrix[:, : self.n_vocabulary].indptr) > 0
        # A label that only stands in documents without a place is not known by them.
        met = np.asarray(matrix[placed][:, len(self.labels) :].sum(axis=0)).ravel() > 0
        extra = tuple(label for label, here in zip(extra, met, strict=True) if here)
        kept = np.concatenate([np.ones(len(self.labels), dtype=bool), met])
        matrix = sp.csr_matrix(matrix[:, kept])
        names = new_names(corpus, self.ids)
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
        concepts = self._with_concepts(embedding, distinct[n_before:], labels, n_before)
        known = KnownConcepts(
            labels, self.n_vocabulary, self.ids + new_ids, documents, sets, *concepts
        )
        return known, new_ids, unplaced

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
        # `add` counts on label sets being numbered as they are first met.
        _, sets = unique_rows(documents)
        renumbered = np.full(int(self.sets.max(initial=-1)) + 1, -1, dtype=np.int64)
        renumbered[self.sets[keep]] = sets
        rows = np.flatnonzero(renumbered[self.set_ids] >= 0)
        rows = rows[np.lexsort((renumbered[self.set_ids[rows]], self.label_ids[rows]))]
        return KnownConcepts(
            tuple(self.labels[column] for column in columns),
            self.n_vocabulary,
            tuple(name for name, stays in zip(self.ids, keep, strict=True) if stays),
            sp.csr_matrix(documents[:, columns]),
            sets,
            self.points[rows],
            new_column[self.label_ids[rows]].astype(np.int64),
            renumbered[self.set_ids[rows]],
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


def new_names(corpus: LabelCorpus, taken_ids: Collection[str]) -> Sequence[str]:
    """Name new documents: their own names, or fresh numbers where they have none.

    Parameters
    ----------
    corpus : LabelCorpus
    taken_ids : collection of str
        Names that are taken; a document that has one of its own among them is refused.
    """
    taken = set(taken_ids)
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
    unplaced : tuple of str
        The names of documents left out, which a warning names too.
    """
    known, _, unplaced = KnownConcepts.none(embedding).add(embedding, teaching)
    n_documents = len(teaching)
    if corpus is not teaching:
        fresh = unmet_documents(corpus, teaching)
        known, _, more = known.add(embedding, fresh)
        unplaced += more
        n_documents += len(fresh)
    warn_unplaced(unplaced, n_documents)
    return known, unplaced


def met_documents(corpus: LabelCorpus, teaching: LabelCorpus) -> IntArray:
    """Find the instances' documents among the semantics documents.

    Parameters
    ----------
    corpus, teaching : LabelCorpus
        Instances' documents and semantics documents.

    Returns
    -------
    int64 array, shape (n_instances,)
        The row of the same document in `teaching`, or -1; see `unmet_documents`.
    """
    numbered = corpus.numbered and teaching.numbered
    if corpus is teaching or (
        numbered and _same(corpus.without_unused(), teaching.without_unused())
    ):
        return np.arange(len(corpus), dtype=np.int64)
    met = np.full(len(corpus), -1, dtype=np.int64)
    if corpus.numbered or teaching.numbered:
        return met
    places = {name: row for row, name in enumerate(teaching.ids)}
    namesakes = np.array([places.get(name, -1) for name in corpus.ids], dtype=np.int64)
    rows = np.flatnonzero(namesakes >= 0)
    keys: dict[str, int] = {}
    documents = _over_keys(corpus, keys)[rows]
    others = _over_keys(teaching, keys)[namesakes[rows]]
    same = np.diff(documents.indptr) == np.diff(others.indptr)
    rows, documents, others = rows[same], documents[same], others[same]
    owners = np.repeat(np.arange(len(rows)), np.diff(documents.indptr))
    differing = np.zeros(len(rows), dtype=bool)
    differing[owners[documents.indices != others.indices]] = True
    met[rows[~differing]] = namesakes[rows[~differing]]
    return met


def _over_keys(corpus: LabelCorpus, keys: dict[str, int]) -> sp.csr_matrix:
    """Give documents over what labels are compared by; new keys are numbered."""
    columns = [keys.setdefault(corpus.key(label), len(keys)) for label in corpus.labels]
    matrix = corpus.matrix
    places = np.array(columns, dtype=np.int64)[matrix.indices]
    over = sp.csr_matrix((matrix.data, places, matrix.indptr), (len(corpus), len(keys)))
    over.sort_indices()
    return over


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
    A document is the same when its name and its labels are. Documents without names are called
    `instance:ROW`, unless both corpora are the same list; a namesake with other labels is called
    `instance:NAME`.
    """
    met = met_documents(corpus, teaching)
    taken = set(teaching.ids) | (set() if corpus.numbered else set(corpus.ids))
    met_names = set(teaching.ids)
    fresh, names = [], []
    for row in np.flatnonzero(met < 0).tolist():
        name = corpus.ids[row]
        if corpus.numbered or name in met_names:
            name = f"instance:{name}"
            while name in taken:
                name = f"instance:{name}"
            taken.add(name)
        fresh.append(row)
        names.append(name)
    chosen = corpus.select(np.array(fresh, dtype=np.int64))
    return replace(chosen, ids=tuple(names), numbered=False)


def _same(corpus: LabelCorpus, other: LabelCorpus) -> bool:
    """Say whether two corpora hold the same documents in the same order."""
    return (
        corpus.labels == other.labels
        and corpus.matrix.shape == other.matrix.shape
        and np.array_equal(corpus.matrix.indptr, other.matrix.indptr)
        and np.array_equal(corpus.matrix.indices, other.matrix.indices)
    )
