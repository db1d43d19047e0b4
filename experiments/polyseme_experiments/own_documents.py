"""Whether a test instance's own document may help to find its labels.

In: known concepts, test documents and their points. Out: scores, either with every known document
(the paper's reading) or without each instance's own one (the strict reading).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from polyseme._validation import InputError, check_option
from polyseme.corpus import LabelCorpus
from polyseme.index import ConceptIndex
from polyseme.published.embedding import ConceptEmbedding
from polyseme.published.priming import PrimingRanker, PrimingStore
from polyseme.splits.documents import Rows


def own_document_scores(
    known: PrimingStore,
    embedding: ConceptEmbedding,
    documents: LabelCorpus,
    points: ArrayLike | None = None,
    *,
    own: str = "strict",
    score: str = "nearest",
    bandwidth: float | None = None,
    memory_mb: float = 64.0,
) -> NDArray[np.float64]:
    """Score every known label around test instances.

    Parameters
    ----------
    known : PrimingStore
        The known concepts.
    embedding : ConceptEmbedding
        The embedding they come from.
    documents : LabelCorpus
        The own documents of n test instances.
    points : array, shape (n, n_components), optional
        Where the instances lie; by default the true points of their documents, which is the
        paper's error-free setting.
    own : {"strict", "paper"}
        "strict": an instance's own document does not count for it. "paper": it counts, if it is
        known. A document is an instance's own when it has its name and its labels; others with
        the same labels always count.
    score, bandwidth, memory_mb
        As in `PublishedTagger`, where `score` is called `relatedness`.

    Returns
    -------
    float64 array, shape (n, n_labels)
        Larger is better, over `known.labels`; 0 throughout for an instance without a point.
    """
    check_option("own", own, ("strict", "paper"), owner="own_document_scores")
    places = np.asarray(embedding.targets(documents) if points is None else points)
    if len(places) != len(documents):
        raise InputError(
            f"`points` of `own_document_scores` are {len(places)}, but there are {len(documents)} "
            "documents; give one point per document."
        )
    placed = np.flatnonzero(np.isfinite(places).all(axis=1))
    index = (
        known.index(memory_mb)
        if own == "paper"
        else IndexWithoutOwn(known, known_rows(known, documents)[placed], memory_mb=memory_mb)
    )
    ranker = PrimingRanker(index, embedding.distance_scale_, score, bandwidth)
    scores = np.zeros((len(places), len(known.labels)))
    scores[placed] = ranker.scores(places[placed])
    return scores


def known_rows(known: PrimingStore, documents: LabelCorpus) -> Rows:
    """Find documents among the known ones, by name and labels.

    Parameters
    ----------
    known : PrimingStore
    documents : LabelCorpus

    Returns
    -------
    int64 array, shape (n_documents,)
        The row of each document; -1 where it is not known.
    """
    rows = {name: row for row, name in enumerate(known.ids)}
    found = np.full(len(documents), -1, dtype=np.int64)
    for place, name in enumerate(documents.ids):
        row = rows.get(name, -1)
        if row >= 0 and {documents.key(label) for label in known.document(row)} == {
            documents.key(label) for label in documents.document(place)
        }:
            found[place] = row
    return found


class IndexWithoutOwn(ConceptIndex):
    """Known concepts, searched by queries each of which leaves out one known document.

    Results are those of an index over all other documents; only the labels of a query's own
    document are searched again.

    Parameters
    ----------
    known : PrimingStore
    own : int array, shape (q,)
        For each query the known document that does not count; -1 for none.
    memory_mb : float
        The most working memory of a search, in megabytes.
    """

    def __init__(
        self, known: PrimingStore, own: Sequence[int] | Rows, *, memory_mb: float = 64.0
    ) -> None:
        rows = np.asarray(own, dtype=np.int64)
        if rows.ndim != 1 or (len(rows) and not -1 <= rows.min() <= rows.max() < len(known.ids)):
            raise InputError(
                f"`own` of `IndexWithoutOwn` must be rows in -1..{len(known.ids) - 1}, one per "
                "query."
            )
        n_sets = int(known.set_ids.max(initial=-1)) + 1
        sizes = np.bincount(known.sets, minlength=n_sets)
        super().__init__(
            known.points,
            known.label_ids,
            len(known.labels),
            counts=sizes[known.set_ids],
            memory_mb=memory_mb,
        )
        self._known, self._own, self._sizes = known, rows, sizes

    def distances(self, queries: ArrayLike) -> NDArray[np.float32]:
        """Give the distance to the nearest concept of each label; see `ConceptIndex.distances`.

        Parameters
        ----------
        queries : array, shape (q, n_components)

        Returns
        -------
        float32 array, shape (q, n_labels)
        """
        asked = self._one_each(queries)
        result = super().distances(asked)
        own_sets = np.where(self._own >= 0, self._known.sets[self._own], -1)
        # Another document with the same labels has the same concepts, so nothing changes.
        alone = np.flatnonzero((own_sets >= 0) & (self._sizes[own_sets] == 1))
        for label, rows, concepts in self._labels_of(alone):
            points, sets = self._known.points[concepts], self._known.set_ids[concepts]
            for part, squared in _squared(points, asked[rows], self.memory_mb):
                squared[sets[:, None] == own_sets[rows[part]]] = np.inf
                result[rows[part], label] = _nearest(squared, points, asked[rows[part]])
        return result

    def log_densities(self, queries: ArrayLike, bandwidth: float) -> NDArray[np.float64]:
        """Give the log of each label's density; see `ConceptIndex.log_densities`.

        Parameters
        ----------
        queries : array, shape (q, n_components)
        bandwidth : float

        Returns
        -------
        float64 array, shape (q, n_labels)
        """
        asked = self._one_each(queries)
        result = super().log_densities(asked, bandwidth)
        own_sets = np.where(self._own >= 0, self._known.sets[self._own], -1)
        for label, rows, concepts in self._labels_of(np.flatnonzero(own_sets >= 0)):
            points, sets = self._known.points[concepts], self._known.set_ids[concepts]
            for part, squared in _squared(points, asked[rows], self.memory_mb):
                counts = self._sizes[sets][:, None] - (sets[:, None] == own_sets[rows[part]])
                squared /= -2.0 * bandwidth**2
                with np.errstate(divide="ignore"):  # a count of 0 weighs nothing
                    squared += np.log(counts)
                result[rows[part], label] = np.logaddexp.reduce(squared, axis=0)
        return result

    def _one_each(self, queries: ArrayLike) -> NDArray[np.float32]:
        """Check that there is one query for each own document."""
        asked = self._queries(queries)
        if len(asked) != len(self._own):
            raise InputError(
                f"`queries` of `IndexWithoutOwn` are {len(asked)}, but `own` names "
                f"{len(self._own)} documents; give one query for each."
            )
        return asked

    def _labels_of(self, queries: Rows) -> Iterator[tuple[int, Rows, Rows]]:
        """Yield each label of the queries' own documents, with its queries and its concepts."""
        documents = self._known.matrix[self._own[queries]].tocsc()
        order = np.argsort(self._known.label_ids, kind="stable")
        ends = np.cumsum(np.bincount(self._known.label_ids, minlength=self.n_labels))
        for label in np.flatnonzero(np.diff(documents.indptr)).tolist():
            rows = documents.indices[documents.indptr[label] : documents.indptr[label + 1]]
            start = ends[label - 1] if label else 0
            yield label, queries[rows], order[start : ends[label]]


def _squared(
    points: NDArray[np.float32], queries: NDArray[np.float32], memory_mb: float
) -> Iterator[tuple[slice, NDArray[np.float64]]]:
    """Yield squared distances of all points (axis 0) to a block of queries (axis 1)."""
    # A pair takes its distance, a mask, a count and its logarithm.
    step = max(1, int(memory_mb * 1e6 / (32 * max(1, len(points)))))
    exact = points.astype(np.float64)
    lengths = np.einsum("ij,ij->i", exact, exact)
    for start in range(0, len(queries), step):
        part = slice(start, min(start + step, len(queries)))
        asked = queries[part].astype(np.float64)
        squared = exact @ (-2.0 * asked.T)
        squared += lengths[:, None]
        squared += np.einsum("ij,ij->i", asked, asked)
        yield part, np.maximum(squared, 0.0, out=squared)


def _nearest(
    squared: NDArray[np.float64], points: NDArray[np.float32], queries: NDArray[np.float32]
) -> NDArray[np.float64]:
    """Give the smallest distance to each query, infinity where all are left out, (q,)."""
    nearest = squared.min(axis=0)
    # Expanded squares cancel where points almost meet: there the differences decide.
    limit = nearest + 1e-10 * (1.0 + np.einsum("ij,ij->i", queries, queries, dtype=np.float64))
    concept, query = np.nonzero((squared <= limit) & np.isfinite(nearest))
    gaps = points[concept].astype(np.float64) - queries[query]
    exact = np.full(len(nearest), np.inf)
    np.minimum.at(exact, query, np.einsum("ij,ij->i", gaps, gaps))
    return np.asarray(np.sqrt(exact))
