"""What a tagger has learned, and what follows from it: labels, kinds, ways to score.

In: fitted parts. Out: a tagger that can be asked.
"""

from __future__ import annotations

from typing import Self

import numpy as np
from numpy.typing import NDArray

from polyseme._estimator import Estimator
from polyseme._labels import normalize_label
from polyseme.embedding import ConceptEmbedding
from polyseme.experts import LabelExperts
from polyseme.experts.named import NamedLabels
from polyseme.experts.scorer import ExpertScorer
from polyseme.features.base import MediaFeatures
from polyseme.known import KnownConcepts
from polyseme.mapping import InstanceMapper
from polyseme.priming import PrimingRanker
from polyseme.tagger.parts import Parts


class LearnedTagger(Estimator):
    """The learned state of `ZeroShotTagger`, which has the words for it."""

    score: str
    bandwidth: float | None
    memory_mb: float

    embedding_: ConceptEmbedding
    mapper_: InstanceMapper | None
    features_: MediaFeatures | None
    experts_: LabelExperts | None
    expert_labels_: tuple[str, ...]
    n_taught_: int
    known_: KnownConcepts
    named_: NamedLabels | None
    seen_: frozenset[str]
    unplaced_: tuple[str, ...]
    n_features_in_: int
    labels_: tuple[str, ...]
    kinds_: NDArray[np.str_]

    def restore(self, parts: Parts) -> Self:
        """Take back learned state; `fit` and `polyseme.load` call this.

        Parameters
        ----------
        parts : Parts
        """
        self.embedding_ = parts.embedding
        self.mapper_ = parts.mapper
        self.features_ = parts.features
        self.experts_ = parts.experts
        self.expert_labels_ = parts.expert_labels
        self.n_taught_ = parts.n_taught
        self.seen_ = parts.seen
        self.unplaced_ = parts.unplaced
        self.n_features_in_ = parts.n_features
        return self._know(parts.known, parts.named)

    def _key(self, label: str) -> str:
        """Give what labels are compared by."""
        return normalize_label(label) if self.embedding_.normalize_labels_ else label

    def _know(self, known: KnownConcepts, named: NamedLabels | None) -> Self:
        """Take over what is known from now on, with all that follows; if it cannot be, raise."""
        if named is not None:
            # Once documents hold a label, its name is not asked any more.
            held = {self._key(label) for label in known.labels}
            names = enumerate(named.labels)
            places = [at for at, label in names if self._key(label) not in held]
            named = named.select(places) if places else None
        scorer = None
        if self.experts_ is not None:
            scorer = ExpertScorer(
                self.experts_, self.expert_labels_, known, named, n_taught=self.n_taught_
            )
        ranker = PrimingRanker(
            known.index(self.memory_mb),
            self.embedding_.distance_scale_,
            "nearest" if self.score == "experts" else self.score,
            self.bandwidth,
        )
        # Nothing is set before everything is made: what is refused leaves the tagger as it was.
        self.known_, self.named_ = known, named
        self.ranker_: PrimingRanker = ranker
        self._scorer: ExpertScorer | None = scorer
        self.labels_ = known.labels + (() if named is None else named.labels)
        seen = np.isin(np.asarray(self.labels_), sorted(self.seen_))
        self.kinds_ = np.where(seen, "seen", "unseen")
        self.kinds_[known.n_vocabulary :] = "oov"
        return self
