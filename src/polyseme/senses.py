"""Labels with several senses: find them, split them, and lay them out in two dimensions.

In: the concepts of known documents. Out: `SenseMap` records of the labels whose concepts fall apart
most clearly, chosen by a rule that nobody tunes by hand.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from polyseme._validation import RandomState, as_generator, draw_seed
from polyseme.concepts import Concepts

SENSES = (2, 3, 4)


@dataclass(frozen=True, eq=False)
class SenseMap:
    """The concepts of one label, split into senses.

    Attributes
    ----------
    label : str
    owners : int64 array, shape (n,)
        The owner of each concept's document, as the caller numbers them.
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
    agreement : float
        Adjusted mutual information of senses and an independent judge's categories, at most 1; 1
        without a judge.
    """

    label: str
    owners: NDArray[np.int64]
    points: NDArray[np.float64]
    senses: NDArray[np.int64]
    words: tuple[tuple[str, ...], ...]
    background: NDArray[np.float64]
    silhouette: float
    agreement: float


@dataclass(frozen=True)
class SenseRule:
    """Which labels are shown.

    Attributes
    ----------
    n_labels : int
        How many labels.
    fewest, most : int
        Range for the documents that hold the label: enough for senses, not too many to draw.
    min_members : int
        The fewest documents of a sense.
    max_overlap : float
        The most that a label's documents may be another shown label's: shared over all.
    """

    n_labels: int = 5
    fewest: int = 9
    most: int = 40
    min_members: int = 3
    max_overlap: float = 0.25


@dataclass(frozen=True, eq=False)
class _Candidate:
    """A label's concepts, split into senses."""

    label_id: int
    rows: NDArray[np.int64]
    senses: NDArray[np.int64]
    silhouette: float
    agreement: float

    @property
    def quality(self) -> float:
        """How clearly apart the senses are, and how far an independent judge agrees."""
        return self.silhouette * self.agreement


def find_senses(
    concepts: Concepts,
    owners: NDArray[np.int64],
    categories: Sequence[str] | None = None,
    rule: SenseRule | None = None,
    random_state: RandomState = None,
) -> tuple[SenseMap, ...]:
    """Choose labels with several senses and lay out their concepts.

    The concepts of each label are split by k-means into the number of senses (2 to 4) with the
    largest silhouette. Labels are taken by silhouette, times the agreement (adjusted mutual
    information) of senses and categories that the embedding never saw where there are any; one
    whose documents are much the same as those of a label taken before is passed over.

    Parameters
    ----------
    concepts : Concepts
        Concepts of known documents.
    owners : int64 array, shape (n_documents,)
        Whose each document is: any numbering, for example an emoji's.
    categories : sequence of str, optional
        The category of every owner, by an independent judge.
    rule : SenseRule, optional
    random_state : int, numpy Generator or None
        Seeds k-means and the choice of background concepts.

    Returns
    -------
    tuple of SenseMap
        The clearest label first.
    """
    rule = rule or SenseRule()
    generator = as_generator(random_state)
    seed = draw_seed(generator)
    found = []
    for label_id in range(len(concepts.labels)):
        rows = np.flatnonzero(concepts.label_ids == label_id)
        if rule.fewest <= len(rows) <= rule.most:
            judges = None
            if categories is not None:
                judges = [categories[owners[concepts.document_ids[row]]] for row in rows]
            candidate = _split(concepts.points, label_id, rows, judges, rule.min_members, seed)
            if candidate is not None:
                found.append(candidate)
    found.sort(key=lambda one: (-one.quality, one.label_id))
    taken: list[_Candidate] = []
    for one in found:
        if len(taken) < rule.n_labels and all(
            _overlap(concepts, one, other) <= rule.max_overlap for other in taken
        ):
            taken.append(one)
    return tuple(_lay_out(concepts, owners, one, generator) for one in taken)


def label_senses(
    concepts: Concepts,
    label_id: int,
    min_members: int = 3,
    most: int = 1000,
    random_state: RandomState = None,
) -> SenseMap | None:
    """Split one label's concepts into senses and lay them out.

    Parameters
    ----------
    concepts : Concepts
        Concepts of known documents.
    label_id : int
    min_members : int
        The fewest documents of a sense.
    most : int
        Of more documents than that, so many are looked at.
    random_state : int, numpy Generator or None
        Seeds k-means, and the choice of documents and of background concepts.

    Returns
    -------
    SenseMap or None
        Its owners are rows of documents. None where the label has one sense only.
    """
    generator = as_generator(random_state)
    rows = np.flatnonzero(concepts.label_ids == label_id)
    rows = np.sort(generator.permutation(rows)[:most])
    found = _split(concepts.points, label_id, rows, None, min_members, draw_seed(generator))
    if found is None:
        return None
    owners = np.arange(int(concepts.document_ids.max(initial=-1)) + 1)
    return _lay_out(concepts, owners, found, generator)


def _split(
    points: NDArray[np.float32],
    label_id: int,
    rows: NDArray[np.int64],
    judges: Sequence[str] | None,
    min_members: int,
    seed: int,
) -> _Candidate | None:
    """Split one label's concepts into senses; None where they do not fall apart."""
    from sklearn.cluster import KMeans
    from sklearn.metrics import adjusted_mutual_info_score, silhouette_score

    own = points[rows].astype(np.float64)
    distinct = len(np.unique(own.round(6), axis=0))
    best: _Candidate | None = None
    for n_senses in SENSES:
        if n_senses > distinct - 1:
            break
        members = KMeans(n_senses, n_init=3, random_state=seed).fit_predict(own)
        sizes = np.bincount(members, minlength=n_senses)
        if sizes.min() < min_members:
            continue
        silhouette = float(silhouette_score(own, members))
        if best is None or silhouette > best.silhouette:
            agreement = 1.0
            if judges is not None:
                agreement = float(adjusted_mutual_info_score(judges, members))
            # Numbered by size, so that no number depends on how k-means started.
            rank = np.empty(n_senses, dtype=np.int64)
            first = np.array([np.flatnonzero(members == sense)[0] for sense in range(n_senses)])
            rank[np.lexsort((first, -sizes))] = np.arange(n_senses)
            best = _Candidate(label_id, rows, rank[members], silhouette, agreement)
    return best


def _overlap(concepts: Concepts, one: _Candidate, other: _Candidate) -> float:
    """Share of documents that two labels have in common, of those that hold either."""
    mine = set(concepts.document_ids[one.rows].tolist())
    theirs = set(concepts.document_ids[other.rows].tolist())
    return len(mine & theirs) / len(mine | theirs)


def _lay_out(
    concepts: Concepts,
    owners: NDArray[np.int64],
    one: _Candidate,
    generator: np.random.Generator,
    n_background: int = 500,
) -> SenseMap:
    """Put a label's concepts, and some of other labels, on the label's principal axes."""
    own = concepts.points[one.rows].astype(np.float64)
    centre = own.mean(axis=0)
    axes = np.linalg.svd(own - centre, full_matrices=False)[2][:2]
    # An axis has no direction of its own: let its largest entry be positive.
    axes *= np.sign(axes[np.arange(len(axes)), np.abs(axes).argmax(axis=1)])[:, None]
    others = np.flatnonzero(concepts.label_ids != one.label_id)
    others = np.sort(generator.permutation(others)[:n_background])
    return SenseMap(
        label=concepts.labels[one.label_id],
        owners=owners[concepts.document_ids[one.rows]],
        points=(own - centre) @ axes.T,
        senses=one.senses,
        words=_distinguishing_words(concepts, one),
        background=(concepts.points[others].astype(np.float64) - centre) @ axes.T,
        silhouette=one.silhouette,
        agreement=one.agreement,
    )


def _distinguishing_words(
    concepts: Concepts, one: _Candidate, n_words: int = 3
) -> tuple[tuple[str, ...], ...]:
    """Give, for each sense, the labels whose share of its documents is most above the rest's."""
    label_ids_of: dict[int, list[int]] = {}
    wanted = set(concepts.document_ids[one.rows].tolist())
    for label_id, document in zip(concepts.label_ids, concepts.document_ids, strict=True):
        if int(document) in wanted and label_id != one.label_id:
            label_ids_of.setdefault(int(document), []).append(int(label_id))
    words = []
    for sense in range(int(one.senses.max()) + 1):
        counts: list[Counter[int]] = [Counter(), Counter()]
        sizes = [0, 0]
        for row, member in zip(one.rows, one.senses, strict=True):
            side = int(member == sense)
            sizes[side] += 1
            counts[side].update(label_ids_of.get(int(concepts.document_ids[row]), []))
        gain = {
            label_id: counts[1][label_id] / sizes[1] - counts[0][label_id] / sizes[0]
            for label_id in counts[1]
        }
        best = sorted(gain, key=lambda label_id: (-gain[label_id], label_id))[:n_words]
        words.append(tuple(concepts.labels[label_id] for label_id in best if gain[label_id] > 0))
    return tuple(words)
