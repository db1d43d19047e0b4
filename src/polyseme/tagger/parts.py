"""The parts of a tagger, learned one after another.

In: templates of the parts, features, documents and semantics documents. Out: fitted copies, with
the known concepts; the templates stay as they are.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from polyseme._estimator import copy_of
from polyseme._progress import working
from polyseme._validation import (
    InputError,
    PolysemeWarning,
    check_instances,
    draw_seed,
)
from polyseme.corpus import Documents, LabelCorpus, as_corpus, check_corpus
from polyseme.embedding import ConceptEmbedding
from polyseme.experts import LabelExperts
from polyseme.experts.lessons import lessons_of
from polyseme.experts.named import NamedLabels
from polyseme.features.base import MediaFeatures
from polyseme.known import KnownConcepts, known_documents
from polyseme.mapping import InstanceMapper

Features = NDArray[np.float64] | sp.csr_matrix


@dataclass(frozen=True)
class Parts:
    """What a tagger has learned.

    Attributes
    ----------
    embedding : ConceptEmbedding
    mapper : InstanceMapper or None
        None without features.
    features : MediaFeatures or None
        The front end, where there is one.
    experts : LabelExperts or None
        None without features, and for scores other than "experts".
    expert_labels : tuple of str
        The experts' columns.
    known : KnownConcepts
    seen : frozenset of str
        The labels that training instances carry.
    unplaced : tuple of str
        Names of documents that could not be placed.
    n_features : int
        0 without features.
    n_taught : int
        Documents that were known when the experts learned.
    named : NamedLabels or None
        Labels that were added by name.
    """

    embedding: ConceptEmbedding
    mapper: InstanceMapper | None
    features: MediaFeatures | None
    experts: LabelExperts | None
    expert_labels: tuple[str, ...]
    known: KnownConcepts
    seen: frozenset[str]
    unplaced: tuple[str, ...]
    n_features: int
    n_taught: int
    named: NamedLabels | None = None


@dataclass(frozen=True)
class PartLearner:
    """Learn copies of a tagger's parts.

    Attributes
    ----------
    embedding, mapper, features, experts : templates or None
        As `ZeroShotTagger` has them.
    fit_embedding : bool
        Whether the embedding is learned, or taken as it is.
    with_experts : bool
        Whether experts are learned; then points only explain, and the quick mapper will do.
    device : str
        Where networks are trained, unless a part says otherwise.
    seeded : bool
        Whether the tagger has a seed. Without one the embedding draws its own, which its
        checkpoint remembers.
    verbose : bool
    """

    embedding: ConceptEmbedding | None
    mapper: InstanceMapper | None
    features: MediaFeatures | None
    experts: LabelExperts | None
    fit_embedding: bool
    with_experts: bool
    device: str
    seeded: bool
    verbose: bool

    def learn(
        self,
        X: object,
        documents: Documents,
        semantics: Documents | None,
        generator: np.random.Generator,
        *,
        owner: str,
    ) -> Parts:
        """Learn everything; see `ZeroShotTagger.fit`."""
        template = ConceptEmbedding() if self.embedding is None else self.embedding
        normalize = getattr(template, "normalize_labels_", template.normalize_labels)
        corpus = as_corpus(documents, normalize=normalize)
        teaching = corpus if semantics is None else as_corpus(semantics, normalize=normalize)
        if X is not None:
            check_corpus(corpus, owner=owner, n_labels=1)
        embedding_seed, mapper_seed = draw_seed(generator), draw_seed(generator)
        front_end, table = self._learn_features(X, draw_seed(generator))
        features = None if table is None else check_instances(table, len(corpus), owner=owner)
        embedding = self._learn_embedding(teaching, embedding_seed)
        mapper = self._learn_mapper(embedding, features, corpus, mapper_seed)
        known, unplaced = known_documents(embedding, teaching, corpus)
        experts = self._learn_experts(features, corpus, teaching, known, draw_seed(generator))
        return Parts(
            embedding,
            mapper,
            front_end,
            experts,
            known.labels,
            known,
            seen=corpus.used(embedding.labels_) if X is not None else frozenset(),
            unplaced=unplaced,
            n_features=0 if features is None else features.shape[1],
            n_taught=len(known.ids),
        )

    def _learn_features(self, X: object, seed: int) -> tuple[MediaFeatures | None, Any]:
        """Learn a copy of the front end and apply it; without one, X is what it is."""
        if self.features is None or X is None:
            return None, X
        front_end = copy_of(self.features)
        if front_end.random_state is None:
            front_end.set_params(random_state=seed)
        with working(f"learning {front_end.kind} features", shown=self.verbose):
            return front_end, front_end.fit_transform(X)

    def _learn_embedding(self, corpus: LabelCorpus, seed: int) -> ConceptEmbedding:
        """Learn a copy of the embedding, or take it as it is."""
        if not self.fit_embedding and self.embedding is not None:
            return self.embedding
        embedding = ConceptEmbedding() if self.embedding is None else copy_of(self.embedding)
        if embedding.random_state is None and self.seeded:
            embedding.set_params(random_state=seed)
        if embedding.device == "cpu":
            embedding.set_params(device=self.device)
        if self.verbose:
            embedding.set_params(verbose=True)
        return embedding.fit(corpus)

    def _learn_mapper(
        self,
        embedding: ConceptEmbedding,
        features: Features | None,
        corpus: LabelCorpus,
        seed: int,
    ) -> InstanceMapper | None:
        """Learn the way from features to the documents' target points; None without features."""
        if features is None:
            return None
        with warnings.catch_warnings():
            # Left-out documents are reported once, with all others, by `known_documents`.
            warnings.simplefilter("ignore", PolysemeWarning)
            targets = embedding.targets(corpus)
        placed = np.flatnonzero(np.isfinite(targets).all(axis=1))
        if not len(placed):
            raise InputError(
                "No instance carries a label of the semantics documents, so none can be placed in "
                "the concept space; check that both use the same labels."
            )
        if self.mapper is not None:
            mapper = copy_of(self.mapper)
        else:
            mapper = InstanceMapper(kind="kernel-ridge" if self.with_experts else "nu-svr")
        if mapper.random_state is None:
            mapper.set_params(random_state=seed)
        if mapper.device == "cpu" and mapper.solver != "libsvm":
            mapper.set_params(device=self.device)
        groups = None if corpus.groups is None else tuple(corpus.groups[row] for row in placed)
        if len(placed) < len(targets):
            features, targets = features[placed], targets[placed]
        with working(f"mapping {len(placed)} instances ({mapper.kind})", shown=self.verbose):
            # Learned where networks are, used on the processor like all else.
            return mapper.fit(features, targets, groups).set_params(device="cpu")

    def _learn_experts(
        self,
        features: Features | None,
        corpus: LabelCorpus,
        teaching: LabelCorpus,
        known: KnownConcepts,
        seed: int,
    ) -> LabelExperts | None:
        """Learn the experts over the labels that are known; None where they are not asked."""
        if features is None or not self.with_experts:
            return None
        experts = LabelExperts() if self.experts is None else copy_of(self.experts)
        if experts.random_state is None:
            experts.set_params(random_state=seed)
        if experts.device == "cpu":
            experts.set_params(device=self.device)
        lessons = lessons_of(corpus, teaching, known.labels)
        with working(f"experts on {len(corpus)} instances", shown=self.verbose):
            return experts.fit(features, *lessons)
