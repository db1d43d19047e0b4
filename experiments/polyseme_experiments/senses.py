"""Which labels have several senses: those that fall apart most clearly, by a fixed rule.

In: the concepts of known documents and, where there is one, an independent judge's categories.
Out: `JudgedSenses` of the labels chosen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from polyseme.base.validation import IntArray, RandomState, as_generator, draw_seed
from polyseme.documents.concepts import Concepts
from polyseme.scoring.senses import SenseMap, sense_map, split_senses


@dataclass(frozen=True, eq=False)
class JudgedSenses(SenseMap):
    """Senses of a label beside an independent judge's categories."""

    owners: NDArray[np.int64]  # (n,): the owner of each concept's document, as the caller numbers
    agreement: float  # adjusted mutual information of senses and categories; 1 without a judge


@dataclass(frozen=True)
class SenseRule:
    """Which labels are shown."""

    n_labels: int = 5
    fewest: int = 9  # documents that hold the label: enough for senses
    most: int = 40  # and not too many to draw
    min_members: int = 3  # the fewest documents of a sense
    max_overlap: float = 0.25  # share of documents in common with another shown label's


class _Candidate(NamedTuple):
    """A label whose concepts fall apart into senses."""

    rows: IntArray  # its concepts
    senses: IntArray
    silhouette: float
    agreement: float
    documents: frozenset[int]  # that hold the label

    @property
    def clarity(self) -> float:
        """Silhouette times agreement: the clearest labels are chosen first."""
        return self.silhouette * self.agreement

    def overlap(self, candidate: _Candidate) -> float:
        """Return the share of documents that two labels have in common."""
        documents = self.documents
        other_documents = candidate.documents
        common = documents & other_documents
        union = documents | other_documents
        n_common = len(common)
        return n_common / len(union)


def _agreement(senses: IntArray, owners: IntArray, categories: Sequence[str] | None) -> float:
    """Return the adjusted mutual information of senses and categories; 1 without categories."""
    from sklearn.metrics import adjusted_mutual_info_score

    if categories is None:
        return 1.0
    judged = [categories[owner] for owner in owners]
    return float(adjusted_mutual_info_score(judged, senses))


def find_senses(
    concepts: Concepts,
    owners: NDArray[np.int64],
    categories: Sequence[str] | None = None,
    rule: SenseRule | None = None,
    random_state: RandomState = None,
) -> tuple[JudgedSenses, ...]:
    """Choose labels with several senses and lay out their concepts, the clearest first.

    Labels are taken by the silhouette of their senses, times the agreement (adjusted mutual
    information) of senses and categories that the embedding never saw where there are any; one
    whose documents are much the same as those of a label taken before is passed over.

    `owners` (n_documents,) numbers whose each document is, for example an emoji's; `categories` has
    the category of every owner, by an independent judge.
    """
    rule = rule or SenseRule()
    generator = as_generator(random_state)
    seed = draw_seed(generator)
    candidates = []
    for label_id in range(len(concepts.labels)):
        rows = np.flatnonzero(concepts.label_ids == label_id)
        if not rule.fewest <= len(rows) <= rule.most:
            continue
        split = split_senses(concepts.points[rows], rule.min_members, seed)
        if split is None:
            continue
        senses, silhouette = split
        documents = concepts.document_ids[rows].tolist()
        agreement = _agreement(senses, owners[documents], categories)
        candidates.append(_Candidate(rows, senses, silhouette, agreement, frozenset(documents)))

    # Equally clear ones stay in the order of labels.
    candidates.sort(key=lambda candidate: -candidate.clarity)
    maps: list[JudgedSenses] = []
    chosen: list[_Candidate] = []
    for candidate in candidates:
        if len(maps) == rule.n_labels:
            break
        overlaps = [candidate.overlap(former) for former in chosen]
        if max(overlaps, default=0.0) > rule.max_overlap:
            continue
        chosen.append(candidate)
        layout = sense_map(
            concepts,
            candidate.rows,
            candidate.senses,
            candidate.silhouette,
            generator,
        )
        fields = dict(vars(layout))
        fields["owners"] = owners[layout.documents]
        fields["agreement"] = candidate.agreement
        maps.append(JudgedSenses(**fields))
    return tuple(maps)
