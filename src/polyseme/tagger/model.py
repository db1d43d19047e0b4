"""The tagger itself: its parameters, how it learns, and how it is kept.

In: tag sets and features. Out: a `ZeroShotTagger` that can be asked, grown and saved.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Self

from polyseme._validation import (
    InputError,
    RandomState,
    as_generator,
    check_fitted,
    check_number,
    check_option,
)
from polyseme.corpus import Documents
from polyseme.embedding import ConceptEmbedding
from polyseme.experts import LabelExperts
from polyseme.features.base import MediaFeatures
from polyseme.mapping import InstanceMapper
from polyseme.nn.devices import check_device
from polyseme.presets import mapper_parameters
from polyseme.tagger.growing import GrowingTagger
from polyseme.tagger.parts import PartLearner

SCORES = ("experts", "nearest", "density")


class ZeroShotTagger(GrowingTagger):
    """Rank every label for an instance: seen, unseen and oov.

    Semantics documents teach what labels mean in each other's company; instances with features
    teach the way into that space; labels are ranked by their nearest known concepts.

    Parameters
    ----------
    embedding : ConceptEmbedding, optional
        The concept space; by default `ConceptEmbedding()`.
    mapper : InstanceMapper, optional
        The way from features into the space; by default `InstanceMapper()`.
    features : MediaFeatures, optional
        A front end such as `ImageFeatures()`: X is then whatever it takes (files, pictures,
        sounds), here and in all other methods, and what it learns is learned by `fit`.
    experts : LabelExperts, optional
        For the score "experts"; by default `LabelExperts()`.
    fit_embedding : bool
        Whether `fit` learns a copy of `embedding`. False takes it as it is, already fitted, and
        its documents must be given as `semantics`.
    score : {"experts", "nearest", "density"}
        How instances get their scores: probabilities by experts that read features and labels'
        company (see `LabelExperts`), or by distances from an instance's point to known concepts
        (see `PrimingRanker`; "nearest" is the published way).
    bandwidth : float, optional
        For "density".
    memory_mb : float
        The most working memory of a search, in megabytes.
    device : str
        Where networks are trained, as torch names it ("cpu", "cuda"); parts that say "cpu" take it
        over. Trained models are used on the processor.
    verbose : bool
        Whether progress is shown on standard error.
    random_state : int, numpy Generator or None
        Seeds every part that has no seed of its own.

    Attributes
    ----------
    labels_ : tuple of str
        Every label it can rank: the semantics vocabulary, then the oov labels.
    kinds_ : array of str, shape (n_labels,)
        "seen" (has training instances), "unseen" (only in the semantics documents) or "oov" (in
        documents, never in the semantics vocabulary, or known by name alone).
    embedding_, mapper_, features_ : the fitted parts
        `mapper_` is None when no features were given, `features_` without a front end.
    experts_ : LabelExperts or None
        None without features, and for other scores.
    known_ : KnownConcepts
        The documents and concepts that labels are ranked by.
    named_ : NamedLabels or None
        Labels that are known by name alone; see `add_labels`.
    seen_ : frozenset of str
        The labels that training instances carry.
    unplaced_ : tuple of str
        Names of documents left out, because none of their labels is in the vocabulary.
    n_features_in_ : int
        Columns of X, or of what the front end makes of it; 0 without features.
    """

    def __init__(
        self,
        embedding: ConceptEmbedding | None = None,
        mapper: InstanceMapper | None = None,
        features: MediaFeatures | None = None,
        experts: LabelExperts | None = None,
        fit_embedding: bool = True,
        score: str = "experts",
        bandwidth: float | None = None,
        memory_mb: float = 64.0,
        device: str = "cpu",
        verbose: bool = False,
        random_state: RandomState = None,
    ) -> None:
        self.embedding = embedding
        self.mapper = mapper
        self.features = features
        self.experts = experts
        self.fit_embedding = fit_embedding
        self.score = score
        self.bandwidth = bandwidth
        self.memory_mb = memory_mb
        self.device = device
        self.verbose = verbose
        self.random_state = random_state

    @classmethod
    def from_preset(cls, name: str = "default", **parameters: Any) -> Self:
        """Make a tagger with a named set of parameters.

        Parameters
        ----------
        name : {"default", "paper"}
            What trains best, or the published method; see `polyseme.presets`.
        **parameters
            Overrides of single parameters.
        """
        parameters.setdefault("embedding", ConceptEmbedding.from_preset(name))
        if name != "default":
            parameters.setdefault("mapper", InstanceMapper(**mapper_parameters(name)))
            parameters.setdefault("score", "nearest")
        return cls(**parameters)

    # ------------------------------------------------------------------ learning

    def fit(
        self,
        X: object,
        documents: Documents,
        semantics: Documents | None = None,
    ) -> Self:
        """Learn the concept space, the way into it, and the known concepts.

        Parameters
        ----------
        X : array-like, scipy sparse, pandas or polars frame, shape (n, n_features), or None
            One row per instance, or what `features` takes. None learns from the documents alone:
            such a tagger completes tag sets but cannot rank instances.
        documents : LabelCorpus, iterable of label collections, indicator frame, or path
            The labels of each instance, n documents. To make a label unseen, leave out the
            instances that carry it and name it in `semantics` only.
        semantics : the same forms, optional
            Label-only documents that teach the concept space; by default `documents`.
        """
        self._check_parameters()
        learner = PartLearner(
            self.embedding,
            self.mapper,
            self.features,
            self.experts,
            fit_embedding=self.fit_embedding,
            with_experts=self.score == "experts",
            device=self.device,
            seeded=self.random_state is not None,
            verbose=self.verbose,
        )
        generator = as_generator(self.random_state)
        parts = learner.learn(X, documents, semantics, generator, owner=type(self).__name__)
        # Nothing is set before everything is learned: a fit that fails leaves the tagger as it was.
        return self.restore(parts)

    def _check_parameters(self) -> None:
        """Raise on a bad parameter before the long work begins."""
        owner = type(self).__name__
        check_option("score", self.score, SCORES, owner=owner)
        check_number("memory_mb", self.memory_mb, owner=owner, low=0, above=True)
        if self.bandwidth is not None:
            check_number("bandwidth", self.bandwidth, owner=owner, low=0, above=True)
        check_device(self.device, owner=owner)
        if self.mapper is not None:
            self.mapper.check_parameters()
        if not self.fit_embedding:
            if self.embedding is None:
                raise InputError("`fit_embedding=False` needs a fitted `embedding`; give one.")
            check_fitted(self.embedding, "network_")

    # ------------------------------------------------------------------ persistence

    def save(self, path: str | Path) -> None:
        """Write the tagger to a folder of JSON and arrays, atomically and without pickle.

        Parameters
        ----------
        path : str or Path
            A new folder, an empty one, or one that holds a polyseme model to replace.
        """
        from polyseme.storage import save_tagger

        check_fitted(self, "known_")
        save_tagger(self, path)
