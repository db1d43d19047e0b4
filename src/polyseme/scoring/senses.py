"""The senses of a label: split its known documents by where they lie, and lay them out on a plane.

In: the concepts of known documents. Out: a `SenseMap`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from polyseme.base.validation import IntArray, RandomState, as_generator, draw_seed, first_few
from polyseme.documents.concepts import Concepts
from polyseme.documents.label_sets import label_column
from polyseme.scoring.known_documents import KnownDocuments

SENSES = (2, 3, 4)
# Documents that a sense has at least, and concepts that are looked at.
LEAST_MEMBERS, MOST_CONCEPTS = 3, 1000


@dataclass(frozen=True, eq=False)
class SenseMap:
    """The concepts of one label, split into senses.

    Attributes
    ----------
    label : str
    documents : int64 array, shape (n,)
        The row of each concept's document.
    points : float64 array, shape (n, 2)
        The concepts on their first two principal axes.
    senses : int64 array, shape (n,)
        The sense of each concept, 0 for the largest.
    words : tuple of tuple of str, one per sense
        Labels that are commoner in a sense than in the others, best first.
    background : float64 array, shape (m, 2)
        Concepts of other labels on the same axes.
    silhouette : float
        How clearly the senses are apart, at most 1.
    """

    label: str
    documents: IntArray
    points: NDArray[np.float64]
    senses: IntArray
    words: tuple[tuple[str, ...], ...]
    background: NDArray[np.float64]
    silhouette: float

    def __repr__(self) -> str:
        """Return the first word of each sense, in a line."""
        first_words = first_few([words[0] if words else "?" for words in self.words])
        size = f"{len(self.words)} senses of {len(self.documents)} tag sets"
        return f"SenseMap({self.label}: {size}: {first_words})"


def label_senses(
    documents: KnownDocuments,
    label: str,
    random_state: RandomState = 0,
    *,
    normalize: bool = True,
) -> SenseMap | None:
    """Split the known tag sets that hold a label by where they lie: its senses.

    Parameters
    ----------
    documents : KnownDocuments
        Those of a tagger, `store_`.
    label : str
        One that they hold.
    random_state : int, numpy Generator or None
        Seeds k-means, and the choice of documents and of background concepts.
    normalize : bool
        Whether the label is found by any spelling.

    Returns
    -------
    SenseMap or None
        Its words name each sense by the labels that set it apart. None where the tag sets do not
        fall apart.
    """
    column = label_column(documents.labels, label, normalize=normalize)
    generator = as_generator(random_state)
    concepts = documents.concepts()
    rows = np.flatnonzero(concepts.label_ids == column)
    rows = np.sort(generator.permutation(rows)[:MOST_CONCEPTS])
    split = split_senses(concepts.points[rows], LEAST_MEMBERS, draw_seed(generator))
    if split is None:
        return None
    senses, silhouette = split
    return sense_map(concepts, rows, senses, silhouette, generator)


def split_senses(
    points: NDArray[np.float32], min_members: int, seed: int
) -> tuple[IntArray, float] | None:
    """Split concepts (n, n_axes) by k-means into 2 to 4 senses: the largest silhouette wins.

    Returns the sense of each, (n,), and the silhouette; None where no split has `min_members` in
    every sense.
    """
    from sklearn.cluster import KMeans
    from sklearn.metrics import silhouette_score

    points = points.astype(np.float64)
    n_distinct = len(np.unique(points.round(6), axis=0))
    best: tuple[IntArray, float] | None = None
    for n_senses in SENSES:
        if n_senses >= n_distinct:
            break
        clusters = KMeans(n_senses, n_init=3, random_state=seed).fit_predict(points)
        sizes = np.bincount(clusters, minlength=n_senses)
        if sizes.min() < min_members:
            continue
        silhouette = float(silhouette_score(points, clusters))
        if best is None or silhouette > best[1]:
            # Numbered by size, so that no number depends on how k-means started.
            first = np.unique(clusters, return_index=True)[1]
            number = np.argsort(np.lexsort((first, -sizes))).astype(np.int64)
            best = number[clusters], silhouette
    return best


def sense_map(
    concepts: Concepts,
    rows: IntArray,
    senses: IntArray,
    silhouette: float,
    generator: np.random.Generator,
    n_background: int = 500,
) -> SenseMap:
    """Put a label's concepts, and some of other labels, on the label's principal axes.

    `rows` (n,) are the label's concepts, `senses` and `silhouette` as `split_senses` gives them.
    """
    label_id = int(concepts.label_ids[rows[0]])
    points = concepts.points[rows].astype(np.float64)
    centre = points.mean(axis=0)
    axes = np.linalg.svd(points - centre, full_matrices=False)[2][:2]
    # An axis has no direction of its own: let its largest entry be positive.
    axes *= np.sign(axes[np.arange(len(axes)), np.abs(axes).argmax(axis=1)])[:, None]
    other_rows = np.flatnonzero(concepts.label_ids != label_id)
    background_rows = np.sort(generator.permutation(other_rows)[:n_background])
    documents = concepts.document_ids[rows]
    background = concepts.points[background_rows].astype(np.float64)
    return SenseMap(
        label=concepts.labels[label_id],
        documents=documents,
        points=(points - centre) @ axes.T,
        senses=senses,
        words=_distinguishing_words(concepts, label_id, documents, senses),
        background=(background - centre) @ axes.T,
        silhouette=silhouette,
    )


def _distinguishing_words(
    concepts: Concepts, label_id: int, documents: IntArray, senses: IntArray, n_words: int = 3
) -> tuple[tuple[str, ...], ...]:
    """Return, for each sense, the labels whose share of its documents is most above the rest's."""
    entries = (np.ones(len(concepts)), (concepts.document_ids, concepts.label_ids))
    shape = (int(concepts.document_ids.max()) + 1, len(concepts.labels))
    holding = sp.csr_matrix(entries, shape)[documents]
    words = []
    for sense in range(int(senses.max()) + 1):
        is_inside = senses == sense
        inside = np.asarray(holding[is_inside].mean(axis=0)).ravel()
        outside = np.asarray(holding[~is_inside].mean(axis=0)).ravel()
        gain = inside - outside
        gain[label_id] = 0.0
        best = np.argsort(-gain, kind="stable")[:n_words]
        words.append(tuple(concepts.labels[column] for column in best if gain[column] > 0))
    return tuple(words)
