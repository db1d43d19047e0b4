"""The whole path: tag sets and features in, ranked labels out.

`ZeroShotTagger` composes the steps (embedding, mapping, priming) behind fit, rank, complete and
explain, and is what gets saved and loaded.
"""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from polyseme._estimator import Estimator, copy_of
from polyseme._progress import working
from polyseme._validation import (
    InputError,
    PolysemeWarning,
    RandomState,
    as_generator,
    as_row,
    check_features,
    check_fitted,
    check_instances,
    check_number,
    check_option,
    draw_seed,
    first_few,
    warn_unplaced,
)
from polyseme.corpus import Documents, LabelCorpus, as_corpus, check_corpus
from polyseme.embedding import ConceptEmbedding
from polyseme.experts import LabelExperts
from polyseme.experts.lessons import lessons_of
from polyseme.experts.scorer import ExpertScorer
from polyseme.features.base import Extracted, MediaFeatures
from polyseme.known import Explanation, KnownConcepts, known_documents
from polyseme.mapping import InstanceMapper
from polyseme.presets import mapper_parameters
from polyseme.priming import PrimingRanker, rank_labels

StrArray = NDArray[np.str_]
SCORES = ("experts", "nearest", "density")


class ZeroShotTagger(Estimator):
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
        documents, never in the semantics vocabulary).
    embedding_, mapper_, features_ : the fitted parts
        `mapper_` is None when no features were given, `features_` without a front end.
    experts_ : LabelExperts or None
        None without features, and for other scores.
    known_ : KnownConcepts
        The documents and concepts that labels are ranked by.
    seen_ : frozenset of str
        The labels that training instances carry.
    unplaced_ : tuple of str
        Names of documents left out, because none of their labels is in the vocabulary.
    n_features_in_ : int
        Columns of X, or of what the front end makes of it; 0 without features.
    """

    embedding_: ConceptEmbedding
    mapper_: InstanceMapper | None
    features_: MediaFeatures | None
    experts_: LabelExperts | None
    known_: KnownConcepts
    seen_: frozenset[str]
    unplaced_: tuple[str, ...]

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
        generator = as_generator(self.random_state)
        template = ConceptEmbedding() if self.embedding is None else self.embedding
        normalize = getattr(template, "normalize_labels_", template.normalize_labels)
        corpus = as_corpus(documents, normalize=normalize)
        teaching = corpus if semantics is None else as_corpus(semantics, normalize=normalize)
        owner = type(self).__name__
        if X is not None:
            check_corpus(corpus, owner=owner, n_labels=1)
        embedding_seed, mapper_seed = draw_seed(generator), draw_seed(generator)
        front_end, table = self._fitted_features(X, draw_seed(generator))
        features = None if table is None else check_instances(table, len(corpus), owner=owner)
        embedding = self._fitted_embedding(teaching, embedding_seed)
        mapper = self._fitted_mapper(embedding, features, corpus, mapper_seed)
        known, unplaced = known_documents(embedding, teaching, corpus)
        experts = self._fitted_experts(features, corpus, teaching, known, draw_seed(generator))
        # Nothing is set before everything is learned: a fit that fails leaves the tagger as it was.
        return self.restore(
            embedding,
            mapper,
            known,
            front_end,
            experts,
            known.labels,
            seen=corpus.used(embedding.labels_) if X is not None else frozenset(),
            unplaced=unplaced,
            n_features=0 if features is None else features.shape[1],
        )

    def _check_parameters(self) -> None:
        """Raise on a bad parameter before the long work begins."""
        owner = type(self).__name__
        check_option("score", self.score, SCORES, owner=owner)
        check_number("memory_mb", self.memory_mb, owner=owner, low=0, above=True)
        if self.bandwidth is not None:
            check_number("bandwidth", self.bandwidth, owner=owner, low=0, above=True)
        if self.mapper is not None:
            self.mapper.check_parameters()
        if not self.fit_embedding:
            if self.embedding is None:
                raise InputError("`fit_embedding=False` needs a fitted `embedding`; give one.")
            check_fitted(self.embedding, "network_")

    def _fitted_features(self, X: object, seed: int) -> tuple[MediaFeatures | None, Any]:
        """Learn a copy of the front end and apply it; without one, X is what it is."""
        if self.features is None or X is None:
            return None, X
        front_end = copy_of(self.features)
        if front_end.random_state is None:
            front_end.set_params(random_state=seed)
        with working(f"learning {front_end.kind} features", shown=self.verbose):
            return front_end, front_end.fit_transform(X)

    def _fitted_embedding(self, corpus: LabelCorpus, seed: int) -> ConceptEmbedding:
        """Learn a copy of the embedding, or take it as it is."""
        if not self.fit_embedding and self.embedding is not None:
            return self.embedding
        embedding = ConceptEmbedding() if self.embedding is None else copy_of(self.embedding)
        # Without a seed of ours the embedding draws its own, which its checkpoint remembers.
        if embedding.random_state is None and self.random_state is not None:
            embedding.set_params(random_state=seed)
        if self.verbose:
            embedding.set_params(verbose=True)
        return embedding.fit(corpus)

    def _fitted_mapper(
        self,
        embedding: ConceptEmbedding,
        features: NDArray[np.float64] | sp.csr_matrix | None,
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
        mapper = self._default_mapper() if self.mapper is None else copy_of(self.mapper)
        if mapper.random_state is None:
            mapper.set_params(random_state=seed)
        groups = corpus.select(placed).groups
        with working(f"mapping {len(placed)} instances ({mapper.kind})", shown=self.verbose):
            return mapper.fit(features[placed], targets[placed], groups)

    def _default_mapper(self) -> InstanceMapper:
        """Make a mapper; where experts score, points only explain, and the quick one will do."""
        return InstanceMapper(kind="kernel-ridge" if self.score == "experts" else "nu-svr")

    def _fitted_experts(
        self,
        features: NDArray[np.float64] | sp.csr_matrix | None,
        corpus: LabelCorpus,
        teaching: LabelCorpus,
        known: KnownConcepts,
        seed: int,
    ) -> LabelExperts | None:
        """Learn the experts over the labels that are known; None where they are not asked."""
        if features is None or self.score != "experts":
            return None
        experts = LabelExperts() if self.experts is None else copy_of(self.experts)
        if experts.random_state is None:
            experts.set_params(random_state=seed)
        lessons = lessons_of(corpus, teaching, known.labels)
        with working(f"experts on {len(corpus)} instances", shown=self.verbose):
            return experts.fit(features, *lessons)

    def _refresh(self) -> None:
        """Bring labels, kinds and the search index up to date with the known concepts."""
        self.labels_ = self.known_.labels
        seen = np.isin(np.asarray(self.labels_), sorted(self.seen_))
        self.kinds_ = np.where(seen, "seen", "unseen")
        self.kinds_[self.known_.n_vocabulary :] = "oov"
        self.ranker_ = PrimingRanker(
            self.known_.index(self.memory_mb),
            self.embedding_.distance_scale_,
            "nearest" if self.score == "experts" else self.score,
            self.bandwidth,
        )
        self._scorer: ExpertScorer | None = None
        if self.experts_ is not None:
            self._scorer = ExpertScorer(self.experts_, self.expert_labels_, self.known_)

    # ------------------------------------------------------------------ asking

    def points(self, X: object) -> NDArray[np.float32]:
        """Map instances into the concept space.

        Parameters
        ----------
        X : array-like, scipy sparse or frame, shape (n, n_features), or what `features` takes

        Returns
        -------
        float32 array, shape (n, n_components)
        """
        return self._mapped(self._features_of(X))

    def _mapped(self, features: NDArray[np.float64] | sp.csr_matrix) -> NDArray[np.float32]:
        """Map checked features into the concept space."""
        assert self.mapper_ is not None  # where there are features, there is a mapper
        return np.asarray(self.mapper_.predict(features), dtype=np.float32)

    def _features_of(self, X: object) -> NDArray[np.float64] | sp.csr_matrix:
        """Check instances, after the front end where there is one, (n, n_features)."""
        check_fitted(self, "known_")
        if self.mapper_ is None:
            raise InputError(
                "This ZeroShotTagger was fitted without features, so it cannot rank instances; use "
                "`complete`, or fit it with X."
            )
        table = X if self.features_ is None else self.features_.transform(X)
        return check_features(table, owner=type(self).__name__, n_features=self.n_features_in_)

    def score_labels(
        self, X: object, tags: Iterable[Collection[str]] | None = None
    ) -> NDArray[np.float64]:
        """Score every label for each instance.

        Parameters
        ----------
        X : array-like, scipy sparse or frame, shape (n, n_features), or what `features` takes
        tags : iterable of collections of str, optional
            Labels that each instance is known to have, n collections; with the score "experts"
            only. They get the score 1 and move the others.

        Returns
        -------
        float64 array, shape (n, n_labels)
            Larger is better. With the score "experts" probabilities; otherwise rows sum to one
            (or are all 0 when no label has a concept), as in the paper's equation 9.
        """
        features = self._features_of(X)
        if self._scorer is not None:
            given = None if tags is None else self._given(tags, features.shape[0])
            return self._scorer.probabilities(features, given)
        if tags is not None:
            raise InputError("`tags` need the score 'experts'; this tagger has another one.")
        return self.ranker_.scores(self._mapped(features))

    def _given(self, tags: Iterable[Collection[str]], n: int) -> NDArray[np.float64]:
        """Give known tags as a table (n, n_labels); unknown ones are named and passed over."""
        corpus = LabelCorpus.from_documents(tags, normalize=self.embedding_.normalize_labels_)
        if len(corpus) != n:
            raise InputError(f"`tags` has {len(corpus)} collections for {n} instances.")
        matrix, unknown = corpus.align(self.labels_)
        if unknown:
            warnings.warn(
                f"Unknown tags are passed over: {first_few(unknown)}.",
                PolysemeWarning,
                stacklevel=4,
            )
        return np.asarray(matrix[:, : len(self.labels_)].toarray(), dtype=np.float64)

    def predict_proba(self, X: object) -> NDArray[np.float64]:
        """Give the probability of every label, (n, n_labels); needs the score "experts"."""
        if self.score != "experts":
            raise InputError("Probabilities need the score 'experts'; this tagger has another one.")
        return self.score_labels(X)

    def predict(
        self, X: object, threshold: float = 0.5, precision: float | None = None
    ) -> list[tuple[str, ...]]:
        """Give a tag set for each instance: the labels that are likely enough, best first.

        Parameters
        ----------
        X : array-like, scipy sparse or frame, shape (n, n_features), or what `features` takes
        threshold : float
            How likely a label must be.
        precision : float, optional
            The share of given labels that should be true, in place of `threshold`: the threshold
            is then the one that reached it on training instances held out from the experts.

        Returns
        -------
        list of tuples of str, length n
        """
        check_number("threshold", threshold, owner="predict", low=0, high=1)
        table = self.predict_proba(X)
        if precision is not None:
            check_number("precision", precision, owner="predict", low=0.01, high=0.99)
            assert self.experts_ is not None  # there would be no probabilities without
            threshold = self.experts_.threshold_for(precision)
        names = np.asarray(self.labels_)
        order = np.argsort(-table, axis=1, kind="stable")
        return [
            tuple(names[best[row[best] >= threshold]].tolist())
            for row, best in zip(table, order, strict=True)
        ]

    def decision_function(self, X: object) -> NDArray[np.float64]:
        """Score every label for each instance, under the name that scikit-learn looks for."""
        return self.score_labels(X)

    def rank(
        self, X: object, k: int = 10, tags: Iterable[Collection[str]] | None = None
    ) -> tuple[StrArray, NDArray[np.float64]]:
        """Give the k best labels for each instance.

        Parameters
        ----------
        X : array-like, scipy sparse or frame, shape (n, n_features), or what `features` takes
        k : int
            How many labels; all of them if there are fewer.
        tags : iterable of collections of str, optional
            Labels that each instance is known to have; see `score_labels`.

        Returns
        -------
        labels : array of str, shape (n, k)
        scores : float64 array, shape (n, k)
            Falling from left to right.
        """
        scores = self.score_labels(X, tags)
        label_ids, best = rank_labels(scores, self.ranker_.index.n_occurrences, k)
        return np.asarray(self.labels_)[label_ids], best

    def complete(
        self, tags: Collection[str] | Iterable[Collection[str]], k: int = 10
    ) -> tuple[StrArray, NDArray[np.float64]]:
        """Suggest labels that go with a partial tag set; no features are needed.

        Parameters
        ----------
        tags : collection of str, or several such collections
            One partial tag set (or several). Unknown tags are named in a warning and passed over.
        k : int
            How many labels to suggest; the given ones are not among them.

        Returns
        -------
        labels : array of str, shape (k,), or (n, k) for several tag sets
        scores : float64 array, of the same shape
            Scores over all labels but the given ones; each full list sums to one.
        """
        check_fitted(self, "known_")
        check_number("k", k, owner="complete", low=1, whole=True)
        given: list[Any] = [tags] if isinstance(tags, str) else list(tags)
        single = all(isinstance(tag, str) for tag in given)
        rows = [self._complete_one(one, k) for one in ([given] if single else given)]
        if single:
            return rows[0]
        width = min(len(labels) for labels, _ in rows)
        labels = np.array([labels[:width] for labels, _ in rows])
        return labels, np.array([scores[:width] for _, scores in rows])

    def _complete_one(self, tags: Collection[str], k: int) -> tuple[StrArray, NDArray[np.float64]]:
        """Complete one tag set."""
        corpus = LabelCorpus.from_documents([tags], normalize=self.embedding_.normalize_labels_)
        matrix, unknown = corpus.align(self.labels_)
        given = matrix.indices[matrix.indices < len(self.labels_)].astype(np.int64)
        if not len(given):
            raise InputError(
                f"None of the tags is known: {', '.join(unknown) or 'no tag was given'}; "
                "see `labels_` for the known ones."
            )
        if unknown:
            warnings.warn(
                f"Unknown tags are passed over: {', '.join(unknown)}.",
                PolysemeWarning,
                stacklevel=4,
            )
        label_ids, scores = self.ranker_.rank_others(self._point_of(given), given, k)
        return np.asarray(self.labels_)[label_ids], scores

    def _point_of(self, label_ids: NDArray[np.int64]) -> NDArray[np.float32]:
        """Place a tag set: the mean of its concepts, (1, n_components)."""
        inside = label_ids[label_ids < self.known_.n_vocabulary]
        if len(inside):
            tags = [self.labels_[column] for column in inside]
            return self.embedding_.targets(
                LabelCorpus.from_documents([tags], normalize=self.embedding_.normalize_labels_)
            )
        # Oov labels alone have no context of their own: take the places where they are known.
        rows = np.isin(self.known_.label_ids, label_ids)
        return np.asarray(self.known_.points[rows].mean(axis=0, keepdims=True))

    def explain(self, x: object, label: str, k: int = 5) -> list[Explanation]:
        """Give the nearest known concepts of a label: what its score rests on.

        Parameters
        ----------
        x : array-like, shape (n_features,) or (1, n_features)
            One instance.
        label : str
            One of `labels_`.
        k : int
            How many concepts; documents with the same labels share one.

        Returns
        -------
        list of Explanation
            From near to far.
        """
        check_fitted(self, "known_")
        check_number("k", k, owner="explain", low=1, whole=True)
        column = self.known_.column(label, normalize=self.embedding_.normalize_labels_)
        one = as_row(x) if self.features_ is None else x if isinstance(x, Extracted) else [x]
        point = self.points(one)
        if len(point) != 1:
            raise InputError(f"`explain` takes one instance; got {len(point)}.")
        return self.known_.nearest(point[0], column, k)

    # ------------------------------------------------------------------ growing and shrinking

    def add_documents(self, documents: Documents) -> tuple[str, ...]:
        """Let known concepts grow, without re-training; new labels become oov labels.

        Parameters
        ----------
        documents : LabelCorpus, iterable of label collections, indicator frame, or path

        Returns
        -------
        tuple of str
            The names of the documents taken in, for `remove_documents`.
        """
        check_fitted(self, "known_")
        corpus = as_corpus(documents, normalize=self.embedding_.normalize_labels_)
        self.known_, ids, unplaced = self.known_.add(self.embedding_, corpus)
        self.unplaced_ += unplaced
        warn_unplaced(unplaced, len(corpus))
        self._refresh()
        return ids

    def remove_documents(self, ids: Collection[str]) -> Self:
        """Forget known documents, without re-training.

        A vocabulary label without documents stays, with score 0; an oov label disappears.

        Parameters
        ----------
        ids : collection of str
            Names of known documents.
        """
        check_fitted(self, "known_")
        self.known_ = self.known_.remove(ids)
        self._refresh()
        return self

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

    def restore(
        self,
        embedding: ConceptEmbedding,
        mapper: InstanceMapper | None,
        known: KnownConcepts,
        features: MediaFeatures | None = None,
        experts: LabelExperts | None = None,
        expert_labels: tuple[str, ...] = (),
        *,
        seen: frozenset[str],
        unplaced: tuple[str, ...],
        n_features: int,
    ) -> Self:
        """Take back learned state; `polyseme.load` calls this."""
        self.embedding_ = embedding
        self.mapper_ = mapper
        self.known_ = known
        self.features_ = features
        self.experts_ = experts
        self.expert_labels_ = expert_labels
        self.seen_ = seen
        self.unplaced_ = unplaced
        self.n_features_in_ = n_features
        self._refresh()
        return self
