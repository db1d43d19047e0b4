"""The senses of a label: split its known documents by where they lie, and lay them out on a plane.

In: the concepts of known documents: labels in context, each a point of the space. A label lies
where the documents that hold it lie, so groups of these are its senses. Out: a `SenseMap`.
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

# Numbers of senses that are tried.
SENSES = (2, 3, 4)
# The fewest documents that make a sense, and the most of a label that are looked at: the silhouette
# compares all pairs.
LEAST_MEMBERS = 3
MOST_CONCEPTS = 1000
# Points that agree to so many decimals are one point for k-means.
_DECIMALS = 6


@dataclass(frozen=True, eq=False)
class SenseMap:
    """The concepts of one label, split into senses.

    Attributes
    ----------
    label : str
    documents : int64 array, shape (n,)
        The row of each concept's document among the known documents, ascending.
    points : float64 array, shape (n, 2)
        The concepts on their first two principal axes, the mean at 0.
    senses : int64 array, shape (n,)
        The sense of each concept, 0 for the largest.
    words : tuple of tuple of str, one per sense
        Labels that are commoner in a sense than in the others, best first.
    background : float64 array, shape (n_background, 2)
        Concepts of other labels on the same axes.
    silhouette : float
        The mean silhouette coefficient: how clearly the senses are apart, -1 to 1.
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
        first_words = []
        for words in self.words:
            first_words.append(words[0] if words else "?")
        n_senses = len(self.words)
        n_documents = len(self.documents)
        shown_words = first_few(first_words)
        return f"SenseMap({self.label}: {n_senses} senses of {n_documents} tag sets: {shown_words})"


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
        Whether the label is found by any spelling: case and white space do not count.

    Returns
    -------
    SenseMap or None
        Its words name each sense by the labels that set it apart. None where the tag sets do not
        fall apart.
    """
    column = label_column(documents.labels, label, normalize=normalize)
    generator = as_generator(random_state)
    concepts = documents.concepts()
    label_rows = np.flatnonzero(concepts.label_ids == column)
    shuffled_rows = generator.permutation(label_rows)
    sample_rows = np.sort(shuffled_rows[:MOST_CONCEPTS])
    points = concepts.points[sample_rows]
    seed = draw_seed(generator)
    split = split_senses(points, LEAST_MEMBERS, seed)
    if split is None:
        return None
    senses, silhouette = split
    return sense_map(concepts, sample_rows, senses, silhouette, generator)


def split_senses(
    points: NDArray[np.float32], min_members: int, seed: int
) -> tuple[IntArray, float] | None:
    """Split a label's concepts by k-means into 2 to 4 senses: the largest silhouette wins.

    Parameters
    ----------
    points : float32 array, shape (n, n_axes)
    min_members : int
        The fewest concepts that make a sense.
    seed : int
        Of k-means.

    Returns
    -------
    senses : int64 array, shape (n,)
        The sense of each concept, from 0 for the largest on.
    silhouette : float
        None stands for both where no split has `min_members` in every sense.
    """
    from sklearn.cluster import KMeans
    from sklearn.metrics import silhouette_score

    points = points.astype(np.float64)
    distinct_points = np.unique(points.round(_DECIMALS), axis=0)
    best_split: tuple[IntArray, float] | None = None
    for n_senses in SENSES:
        if n_senses >= len(distinct_points):
            break
        k_means = KMeans(n_senses, n_init=3, random_state=seed)
        clusters = k_means.fit_predict(points)
        cluster_sizes = np.bincount(clusters, minlength=n_senses)
        if cluster_sizes.min() < min_members:
            continue
        silhouette = float(silhouette_score(points, clusters))
        if best_split is not None:
            _, best_silhouette = best_split
            if silhouette <= best_silhouette:
                continue
        # Numbered by size, the first met first among equals: no number depends on how k-means
        # started.
        _, first_rows = np.unique(clusters, return_index=True)
        largest_first = np.lexsort((first_rows, -cluster_sizes))
        sense_by_cluster = np.argsort(largest_first).astype(np.int64)
        best_split = sense_by_cluster[clusters], silhouette
    return best_split


def sense_map(
    concepts: Concepts,
    rows: IntArray,
    senses: IntArray,
    silhouette: float,
    generator: np.random.Generator,
    n_background: int = 500,
) -> SenseMap:
    """Put a label's concepts, and some of other labels, on the label's principal axes.

    Parameters
    ----------
    concepts : Concepts
        Of all labels.
    rows : int64 array, shape (n,)
        The rows of the label's concepts among these.
    senses : int64 array, shape (n,)
    silhouette : float
        As `split_senses` returns them.
    generator : numpy Generator
        Draws the background.
    n_background : int
        How many concepts of other labels there are at the most.
    """
    first_row = rows[0]
    label_id = int(concepts.label_ids[first_row])
    points = concepts.points[rows].astype(np.float64)
    centre = points.mean(axis=0)
    centred = points - centre
    _, _, right_vectors = np.linalg.svd(centred, full_matrices=False)
    axes = right_vectors[:2]
    # An axis has no direction of its own: let its largest entry be positive.
    largest_columns = np.abs(axes).argmax(axis=1)
    axis_numbers = np.arange(len(axes))
    signs = np.sign(axes[axis_numbers, largest_columns])
    axes *= signs[:, None]

    other_rows = np.flatnonzero(concepts.label_ids != label_id)
    shuffled_rows = generator.permutation(other_rows)
    background_rows = np.sort(shuffled_rows[:n_background])
    background = concepts.points[background_rows]
    background_centred = background.astype(np.float64) - centre
    documents = concepts.document_ids[rows]
    return SenseMap(
        label=concepts.labels[label_id],
        documents=documents,
        points=centred @ axes.T,
        senses=senses,
        words=_distinguishing_words(concepts, label_id, documents, senses),
        background=background_centred @ axes.T,
        silhouette=silhouette,
    )


def _distinguishing_words(
    concepts: Concepts, label_id: int, documents: IntArray, senses: IntArray, n_words: int = 3
) -> tuple[tuple[str, ...], ...]:
    """Return, for each sense, the labels whose share of its documents is most above the rest's.

    Parameters
    ----------
    concepts : Concepts
        Of all labels.
    label_id : int
        The label whose senses these are; it is in all documents and distinguishes none.
    documents, senses : int64 arrays, shape (n,)
        The documents that hold the label, and the sense of each.
    n_words : int
        The most labels of each sense; fewer where fewer are commoner there.
    """
    entry_values = np.ones(len(concepts))
    entries = (entry_values, (concepts.document_ids, concepts.label_ids))
    n_documents = int(concepts.document_ids.max()) + 1
    n_labels = len(concepts.labels)
    all_documents = sp.csr_matrix(entries, (n_documents, n_labels))
    document_labels = all_documents[documents]  # 1 where a document holds a label, (n, n_labels)
    words = []
    for sense in range(int(senses.max()) + 1):
        is_inside = senses == sense
        inside_means = document_labels[is_inside].mean(axis=0)
        outside_means = document_labels[~is_inside].mean(axis=0)
        gains = np.asarray(inside_means - outside_means).ravel()
        gains[label_id] = 0.0
        best_first = np.argsort(-gains, kind="stable")
        best_columns = best_first[:n_words]
        gaining_columns = best_columns[gains[best_columns] > 0]
        words.append(tuple(concepts.labels[column] for column in gaining_columns))
    return tuple(words)
