"""The published method: labels are ranked by known concepts around an instance's point.

In: tag sets and features. Out: a `PublishedTagger`, which ranks, completes and explains labels,
takes new documents without re-training, and can be saved.

Terms: a *document* is a set of labels. *Semantics* are the documents that teach the concept space.
An instance's *target* is where its document lies there, equation (5); its *point* is where its
features lead, equation (8). A label's *column* is its place in `classes_`.
"""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NoReturn, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from polyseme.base.estimator import Estimator, copy_of
from polyseme.base.extractors import fitted_copy
from polyseme.base.progress import working
from polyseme.base.validation import (
    InputError,
    IntArray,
    PolysemeWarning,
    RandomState,
    as_generator,
    as_row,
    check_device,
    check_features,
    check_fitted,
    check_instances,
    check_kind,
    check_number,
    check_option,
    check_path,
    column_names,
    draw_seed,
    in_order,
    warn_dropped,
)
from polyseme.documents.corpus import (
    Documents,
    LabelCorpus,
    as_corpus,
    check_corpus,
    in_order_of,
    normalize_label,
)
from polyseme.documents.label_sets import label_column, teaching_corpora
from polyseme.documents.tags import complete_each, label_kinds, rank_blocks, tag_columns
from polyseme.io.join import split_ids
from polyseme.media import extractor_of
from polyseme.media.base import MediaFeatures
from polyseme.published.embedding import ConceptEmbedding
from polyseme.published.mapping import InstanceMapper
from polyseme.published.priming import RELATEDNESS, Explanation, PrimingRanker, PrimingStore
from polyseme.storage.array_checks import (
    Anything,
    Choice,
    Fields,
    ListOf,
    MappingOf,
    Maybe,
    Number,
    Text,
    Whole,
    check_parts,
    name_part_in_errors,
    require,
)
from polyseme.storage.checkpoints import unless_refused
from polyseme.storage.model_file import (
    SavedEstimator,
    State,
    as_python_value,
    join_states,
    part_arrays,
)

Features = NDArray[np.float64] | sp.csr_matrix
StrArray = NDArray[np.object_]


@dataclass(repr=False, eq=False)  # both are scikit-learn's
class PublishedTagger(SavedEstimator, Estimator):
    """Rank every label for an instance by the known concepts around its point, as published.

    Label sets teach what labels mean in context, instances with features the way into that space.

    Parameters
    ----------
    embedding : ConceptEmbedding, optional
        The concept space; by default `ConceptEmbedding()`.
    mapper : InstanceMapper, optional
        The way from features into the space; by default `InstanceMapper()`.
    features : MediaFeatures, optional
        A feature extractor such as `ImageFeatures()`, learned by `fit`: X is then whatever it takes
        (files, pictures, sounds), here and in all other methods.
    fit_embedding : bool
        Whether `fit` learns a copy of `embedding`. False takes it as it is, already fitted, and
        its documents must be given as `label_sets`.
    relatedness : {"nearest", "density"}
        How distances to known concepts become scores; see `PrimingRanker`. "nearest" is published.
    bandwidth : float, optional
        For "density".
    memory_mb : float
        The most working memory of a search, in megabytes.
    device : str, optional
        Where the parts are trained ("cpu", "cuda"); None leaves it to them. They are used on the
        processor.
    verbose : bool
        Whether progress is shown on standard error.
    random_state : int, numpy Generator or None
        Seeds every part that has no seed of its own.

    Attributes
    ----------
    classes_ : tuple of str
        Every label it can rank: the vocabulary of the label sets, then the oov labels.
    kinds_ : array of str, shape (n_labels,)
        "seen" (has training instances), "unseen" (only in the label sets) or "oov" (in
        documents, never in the vocabulary of the label sets).
    embedding_, mapper_, features_ : the fitted parts
        `mapper_` is None when no features were given, `features_` without a feature extractor.
    store_ : PrimingStore
        The documents and concepts that labels are ranked by.
    ranker_ : PrimingRanker
        Turns distances to the known concepts into scores.
    seen_ : frozenset of str
        The labels that training instances carry.
    dropped_ : tuple of str
        Names of documents left out, because none of their labels is in the vocabulary.
    n_features_in_ : int
        Columns of X, or of what the feature extractor makes of it; 0 without features.
    normalize_labels_ : bool
        Whether spellings of labels that differ in case or white space are one.
    """

    components: ClassVar[dict[str, type[Estimator]]] = {
        "embedding": ConceptEmbedding,
        "mapper": InstanceMapper,
    }

    embedding: ConceptEmbedding | None = None
    mapper: InstanceMapper | None = None
    features: MediaFeatures | None = None
    fit_embedding: bool = True
    relatedness: str = "nearest"
    bandwidth: float | None = None
    memory_mb: float = 64.0
    device: str | None = None
    verbose: bool = False
    random_state: RandomState = None

    @classmethod
    def from_preset(cls, name: str = "paper", **parameters: Any) -> Self:
        """Return a tagger of parts with a preset; see `ConceptEmbedding.from_preset`."""
        embedding = ConceptEmbedding.from_preset(name)
        mapper = InstanceMapper.from_preset(name)
        parameters.setdefault("embedding", embedding)
        parameters.setdefault("mapper", mapper)
        return cls(**parameters)

    def fit(
        self,
        X: object,
        y: Documents,
        label_sets: Documents | None = None,
        *,
        label_sets_only: bool = False,
    ) -> Self:
        """Learn the concept space, the way into it, and the known concepts.

        Parameters
        ----------
        X : array-like, scipy sparse, pandas or polars frame, shape (n, n_features), or None
            One row per instance, or what `features` takes. None learns from the documents alone:
            such a tagger completes tag sets but cannot rank instances.
        y : LabelCorpus, iterable of label collections, indicator frame, or path
            The labels of each instance, n documents. A label that only `label_sets` name is unseen.
        label_sets : the same forms, optional
            Further documents, without items, that teach the concept space; those of `y` do so too.
        label_sets_only : bool
            Whether `label_sets` alone teach the concept space. Labels of instances that they lack
            are "oov" then.
        """
        # Check parameters and input.
        self._check_parameters()
        owner = type(self).__name__
        generator = as_generator(self.random_state)
        template = self.embedding or ConceptEmbedding()
        normalize = getattr(template, "normalize_labels_", template.normalize_labels)
        X, corpus = in_order_of(X, y, as_corpus(y, normalize=normalize))
        further = None
        if label_sets is not None:
            further = as_corpus(label_sets, normalize=normalize)
        # The documents that teach the space, and those that are known beside them.
        semantics, documents = teaching_corpora(
            corpus,
            further,
            label_sets_only=label_sets_only,
        )
        if X is not None:
            check_corpus(corpus, owner=owner, n_labels=1)
        # The order in which seeds are drawn is part of the reproducible result of a seed.
        embedding_seed = draw_seed(generator)
        mapper_seed = draw_seed(generator)
        feature_seed = draw_seed(generator)

        # Learn the features.
        extractor = None
        table = X
        if self.features is not None and X is not None:
            with working(f"learning {self.features.kind} features", verbose=self.verbose):
                extractor, table = fitted_copy(self.features, X, feature_seed)
        features = None
        if table is not None:
            features = check_instances(table, len(corpus), owner=owner)

        # Learn the concept space, the way into it, and the known concepts.
        embedding = template
        mapper = None
        checkpoint = None
        if self.fit_embedding:
            vocabulary = semantics.without_unused().labels
            if features is not None and not corpus.used(vocabulary):
                raise _no_shared_label_error()
            embedding = self._embedding_to_fit(template, embedding_seed)
            checkpoint = embedding.checkpoint
        with unless_refused(checkpoint):
            if self.fit_embedding:
                embedding.fit(semantics)
            if features is not None:
                mapper = self._fit_mapper(embedding, features, corpus, mapper_seed)
            store, dropped = PrimingStore.of(embedding, semantics, documents)

        # Nothing is set before everything is learned: a fit that fails leaves the tagger as it was.
        self.embedding_ = embedding
        self.mapper_ = mapper
        self.features_ = extractor
        self.seen_ = frozenset() if X is None else corpus.used(embedding.classes_)
        self.dropped_ = dropped
        self.n_features_in_ = 0 if features is None else features.shape[1]
        feature_names = None
        if self.features is None:
            feature_names = column_names(X)
        self._set_feature_names(feature_names)
        return self._set_store(store)

    def _check_parameters(self) -> None:
        """Raise on a bad parameter before the long work begins."""
        owner = type(self).__name__
        check_kind("embedding", self.embedding, ConceptEmbedding, owner=owner)
        check_kind("mapper", self.mapper, InstanceMapper, owner=owner)
        check_kind("features", self.features, MediaFeatures, owner=owner)
        if self.embedding is not None and self.fit_embedding:
            self.embedding.check_parameters()
        check_option("relatedness", self.relatedness, RELATEDNESS, owner=owner)
        check_number("memory_mb", self.memory_mb, owner=owner, low=0, above=True)
        if self.bandwidth is not None:
            check_number("bandwidth", self.bandwidth, owner=owner, low=0, above=True)
        if self.device is not None:
            check_device(self.device, owner=owner)
        if self.mapper is not None:
            self.mapper.check_parameters()
        if not self.fit_embedding:
            if self.embedding is None:
                raise InputError("`fit_embedding=False` needs a fitted `embedding`; give one.")
            check_fitted(self.embedding, "network_")

    def _embedding_to_fit(self, template: ConceptEmbedding, seed: int) -> ConceptEmbedding:
        """Return a copy of the embedding with the tagger's seed, device and verbosity."""
        embedding = copy_of(template)
        # Without a seed the embedding draws its own, which its checkpoint remembers.
        if embedding.random_state is None and self.random_state is not None:
            embedding.set_params(random_state=seed)
        embedding.set_params(
            device=self.device or embedding.device,
            verbose=self.verbose or embedding.verbose,
        )
        return embedding

    def _fit_mapper(
        self, embedding: ConceptEmbedding, features: Features, corpus: LabelCorpus, seed: int
    ) -> InstanceMapper:
        """Fit a mapper from features, (n, n_features), to the targets of the n documents.

        Instances without a target, whose labels are all oov, are left out.
        """
        with warnings.catch_warnings():
            # Left-out documents are reported once, with all others, by `PrimingStore.of`.
            warnings.simplefilter("ignore", PolysemeWarning)
            targets = embedding.targets(corpus)
        has_target = np.isfinite(targets).all(axis=1)
        rows = np.flatnonzero(has_target)
        n_instances = len(rows)
        if not n_instances:
            raise _no_shared_label_error()
        mapper = copy_of(self.mapper or InstanceMapper())
        if mapper.random_state is None:
            mapper.set_params(random_state=seed)
        device = self.device or mapper.device
        mapper.set_params(device=device)
        groups = None
        if corpus.groups is not None:
            groups = tuple(corpus.groups[row] for row in rows)
        if n_instances < len(targets):
            features = features[rows]
            targets = targets[rows]
        task = f"mapping {n_instances} instances ({mapper.kind})"
        with working(task, verbose=self.verbose):
            mapper.fit(features, targets, groups)
        # Learned where networks are, used on the processor like all else.
        return mapper.set_params(device="cpu")

    def _set_store(self, store: PrimingStore) -> Self:
        """Rank by the concepts of a store from now on: set all attributes that depend on it."""
        embedding = self.embedding_
        index = store.index(self.memory_mb)
        self.ranker_ = PrimingRanker(
            index,
            embedding.distance_scale_,
            self.relatedness,
            self.bandwidth,
        )
        kinds = label_kinds(store.labels, self.seen_, store.n_vocabulary)
        self.normalize_labels_: bool = embedding.normalize_labels_
        self.store_ = store
        self.classes_ = store.labels
        self.kinds_: NDArray[np.str_] = kinds
        return self

    def points(self, X: object) -> NDArray[np.float32]:
        """Map instances into the concept space, (n, n_features) to (n, n_components)."""
        check_fitted(self, "store_")
        owner = type(self).__name__
        if self.mapper_ is None:
            raise InputError(
                f"This {owner} was fitted without features, so it cannot rank "
                "instances; use `complete`, or fit it with X."
            )
        # Columns by the names that `fit` got, or what the extractor makes of files.
        table, _ = split_ids(X)
        feature_names = getattr(self, "feature_names_in_", None)
        table = in_order(table, feature_names, owner=owner)
        if self.features_ is not None:
            table = self.features_.transform(X)
        features = check_features(
            table,
            owner=owner,
            n_features=self.n_features_in_,
        )
        points = self.mapper_.predict(features)
        return np.asarray(points, dtype=np.float32)

    def _points(self, X: object, tags: object) -> NDArray[np.float32]:
        """Map instances into the concept space, or raise where tags are given beside them."""
        points = self.points(X)
        if tags is None:
            return points
        raise InputError(
            "`tags` need the default tagger; the published method takes no tags beside features."
        )

    def decision_function(
        self, X: object, tags: Iterable[Collection[str]] | None = None
    ) -> NDArray[np.float64]:
        """Score every label for each instance; see `ZeroShotTagger.decision_function`.

        Rows, (n_labels,) each, sum to one (or are all 0 when no label has a concept), as in the
        paper's equation 9. The published method takes no tags beside features.
        """
        points = self._points(X, tags)
        n_points = len(points)
        n_labels = len(self.classes_)
        scores = np.empty((n_points, n_labels))
        for rows in rank_blocks(n_points, n_labels):
            block = points[rows]
            scores[rows] = self.ranker_.scores(block)
        return scores

    def rank(
        self, X: object, k: int = 10, tags: Iterable[Collection[str]] | None = None
    ) -> tuple[StrArray, NDArray[np.float64]]:
        """Return the k best labels for each instance; see `ZeroShotTagger.rank`."""
        check_number("k", k, owner="rank", low=1, whole=True)
        points = self._points(X, tags)
        columns, scores = self.ranker_.rank(points, k)
        return self._labels_of(columns), scores

    def _labels_of(self, columns: IntArray) -> StrArray:
        """Return the labels of columns, in an array of the same shape."""
        classes = np.array(self.classes_, dtype=object)
        labels: StrArray = classes[columns]
        return labels

    def explain(self, x: object, label: str, k: int = 5) -> list[Explanation]:
        """Return the nearest known concepts of a label, from near to far, which explain its score.

        Parameters
        ----------
        x : array-like, shape (n_features,) or (1, n_features)
            One instance.
        label : str
            One of `classes_`.
        k : int
            How many concepts; documents with the same labels share one.
        """
        check_fitted(self, "store_")
        check_number("k", k, owner="explain", low=1, whole=True)
        normalize = self.normalize_labels_
        column = label_column(self.classes_, label, normalize=normalize)
        extractor = self.features_
        if extractor is None:
            instance = as_row(x)
        else:
            instance = extractor.single(x)
        points = self.points(instance)
        n_instances = len(points)
        if n_instances != 1:
            raise InputError(f"`explain` takes one instance; got {n_instances}.")
        (point,) = points
        return self.store_.nearest(point, column, k)

    def complete(
        self, tags: Collection[str] | Iterable[Collection[str]], k: int = 10
    ) -> tuple[StrArray, NDArray[np.float64]]:
        """Suggest labels that go with a partial tag set; see `ZeroShotTagger.complete`.

        Scores are over all labels but the given ones; each full list sums to one.
        """
        check_fitted(self, "store_")
        check_number("k", k, owner="complete", low=1, whole=True)

        def complete_set(tag_set: Collection[str]) -> tuple[StrArray, NDArray[np.float64]]:
            return self._complete_set(tag_set, k)

        return complete_each(tags, complete_set)

    def _complete_set(self, tags: Collection[str], k: int) -> tuple[StrArray, NDArray[np.float64]]:
        """Complete one tag set, around the mean of its concepts: labels and scores, (k,) each."""
        store = self.store_
        normalize = self.normalize_labels_
        columns = tag_columns(tags, self.classes_, normalize=normalize)
        in_vocabulary = columns < store.n_vocabulary
        vocabulary_columns = columns[in_vocabulary]
        if len(vocabulary_columns):
            labels = [store.labels[column] for column in vocabulary_columns]
            corpus = LabelCorpus.from_documents([labels], normalize=normalize)
            target = self.embedding_.targets(corpus)
        else:
            # Oov labels alone have no context of their own: take the places where they are known.
            is_concept = np.isin(store.label_ids, columns)
            concepts = store.points[is_concept]
            target = concepts.mean(axis=0, keepdims=True)
        best_columns, scores = self.ranker_.rank_others(target, columns, k)
        return self._labels_of(best_columns), scores

    def add_documents(self, documents: Documents) -> tuple[str, ...]:
        """Add known documents without re-training; see `ZeroShotTagger.add_documents`."""
        check_fitted(self, "store_")
        corpus = as_corpus(documents, normalize=self.normalize_labels_)
        store, ids, dropped = self.store_.add(self.embedding_, corpus)
        self._set_store(store)
        self.dropped_ += dropped
        n_documents = len(corpus)
        warn_dropped(dropped, n_documents)
        return ids

    def remove_documents(self, ids: Collection[str]) -> Self:
        """Remove known documents by their names, without re-training.

        A vocabulary label without documents stays, with score 0; an oov label disappears.
        """
        check_fitted(self, "store_")
        store = self.store_.remove(ids)
        return self._set_store(store)

    def predict_proba(self, *arguments: object, **options: object) -> NoReturn:
        """Refuse: the default tagger has probabilities, the published method has none."""
        raise InputError(
            "A probability or a precision needs the default tagger; scores of the published method "
            "are no probabilities."
        )

    predict = thresholds = predict_proba

    def add_labels(self, *arguments: object, **options: object) -> NoReturn:
        """Refuse: the default tagger takes labels by their names."""
        raise InputError(
            "A label by name needs the default tagger; the published method knows labels by "
            "documents that hold them, so add documents."
        )

    def save(self, path: str | Path) -> None:
        """Write the tagger to a folder; see `ZeroShotTagger.save`."""
        path = check_path(path, subject="The folder of a model")
        self._write(path, self.get_state())

    def get_state(self) -> State:
        """Return the fitted tagger as JSON values and arrays.

        The names of both are the format on disk; see `_STATE_SCHEMA`.
        """
        check_fitted(self, "store_")
        components = {
            "embedding": self.embedding_,
            "mapper": self.mapper_,
            "features": self.features_,
            "store": self.store_,
        }
        states = {}
        for name, component in components.items():
            if component is not None:
                states[name] = component.get_state()
        config, arrays = join_states(states)
        parameters: dict[str, Any] = {}
        for name in ("relatedness", "bandwidth", "memory_mb"):
            value = getattr(self, name)
            parameters[name] = as_python_value(value)
        feature_names = list(getattr(self, "feature_names_in_", ()))
        config |= {
            "method": "published",
            "parameters": parameters,
            "media": None if self.features_ is None else self.features_.kind,
            "seen": sorted(self.seen_),
            "dropped": list(self.dropped_),
            "n_features_in": self.n_features_in_,
            "feature_names": feature_names or None,
        }
        return config, arrays

    @classmethod
    def from_state(cls, config: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Self:
        """Rebuild a fitted tagger from `get_state`; it ranks exactly the same."""
        _STATE_SCHEMA.check(config)
        check_parts(arrays, config, ("embedding", "mapper", "features", "store"), ())
        tagger = cls(**config["parameters"])
        with name_part_in_errors("embedding"):
            embedding_arrays = part_arrays(arrays, "embedding")
            embedding = ConceptEmbedding.from_state(config["embedding"], embedding_arrays)
        tagger.embedding = embedding
        tagger.embedding_ = embedding
        with name_part_in_errors("store"):
            store_arrays = part_arrays(arrays, "store")
            store = PrimingStore.from_state(config["store"], store_arrays)
        tagger.mapper_ = None
        if "mapper" in config:
            with name_part_in_errors("mapper"):
                mapper_arrays = part_arrays(arrays, "mapper")
                mapper = InstanceMapper.from_state(config["mapper"], mapper_arrays)
            mapper.set_params(device="cpu")
            tagger.mapper = mapper
            tagger.mapper_ = mapper
        extractor = extractor_of(config, arrays)
        tagger.features = extractor
        tagger.features_ = extractor
        _check_parts_fit(config, embedding, store, tagger.mapper_)
        tagger.seen_ = frozenset(config["seen"])
        tagger.dropped_ = tuple(config["dropped"])
        tagger.n_features_in_ = config["n_features_in"]
        tagger._set_feature_names(config["feature_names"])
        return tagger._set_store(store)


# The format of a tagger's state beside that of its parts, which check their own.
_STATE_SCHEMA = Fields(
    {
        "embedding": MappingOf(Anything()),
        "store": MappingOf(Anything()),
        "mapper": MappingOf(Anything()),
        "features": MappingOf(Anything()),
        "method": Choice(("published",)),
        "parameters": Fields(
            {
                "relatedness": Choice(RELATEDNESS),
                "bandwidth": Maybe(Number(1e-12, 1e12)),
                "memory_mb": Number(1e-6, 1e9),
            }
        ),
        "media": Maybe(Text()),
        "seen": ListOf(Text()),
        "dropped": ListOf(Text()),
        "n_features_in": Whole(0),
        "feature_names": Maybe(ListOf(Text())),
    },
    optional=("mapper", "features"),
)


def _check_parts_fit(
    config: Mapping[str, Any],
    embedding: ConceptEmbedding,
    store: PrimingStore,
    mapper: InstanceMapper | None,
) -> None:
    """Refuse parts that are sound by themselves but not made for each other.

    `config` is the tagger's state, whose parts were rebuilt. Error messages name its fields.
    """
    n_components = embedding.n_components
    n_features = 0
    n_outputs = n_components
    if mapper is not None:
        n_features = mapper.n_features_in_
        n_outputs = mapper.dual_coef_.shape[1]
    feature_names = config["feature_names"]
    extractor = config.get("features")
    spellings = list(store.labels)
    if embedding.normalize_labels_:
        spellings = [normalize_label(label) for label in store.labels]
    are_distinct = len(set(spellings)) == len(spellings)
    vocabulary = store.labels[: store.n_vocabulary]
    fits_by_field = {
        "store.labels": vocabulary == embedding.classes_ and are_distinct,
        "store.points": store.points.shape[1] == n_components,
        "mapper.dual_coef": n_outputs == n_components,
        "mapper.flat": mapper is None or not config["mapper"]["flat"],
        "n_features_in": config["n_features_in"] == n_features,
        "feature_names": feature_names is None or len(feature_names) == n_features,
        "media": extractor is None or extractor["n_features_out"] == n_features,
    }
    for field, fits in fits_by_field.items():
        require(fits, field, "what its other parts ask for")


def _no_shared_label_error() -> InputError:
    """Build the error for instances that no label can be learned from."""
    return InputError(
        "No instance carries a label of the label sets, so none can be placed in the concept "
        "space; check that both use the same labels."
    )
