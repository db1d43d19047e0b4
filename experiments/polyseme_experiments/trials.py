"""One trial of a setting: what methods may learn from, what they share, how they are measured.

In: a setting and a trial's number. Out: a `Trial`.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from polyseme.base.validation import InputError, PolysemeWarning
from polyseme.documents.corpus import LabelCorpus, Labels
from polyseme.documents.word_vectors import WordVectors, words_of
from polyseme.media import MediaFeatures, extractor_class
from polyseme.published.tagger import PublishedTagger
from polyseme.tagger import ZeroShotTagger
from polyseme_experiments.baselines import SeenClassifiers, TunedCosta
from polyseme_experiments.embedding_cache import cached_space, make_mapper, make_space
from polyseme_experiments.leakage import FitInputs, LeakageReport, audit
from polyseme_experiments.media import raw_numbers
from polyseme_experiments.sampling import (
    RunConfig,
    draw_split,
    load_pair,
    uses_own_pictures,
    word_vectors,
)
from polyseme_experiments.settings import Setting
from polyseme_experiments.splits import evaluation_columns, measure

T = TypeVar("T")


class Trial:
    """One trial of a setting, numbered from 0.

    Its `source` teaches the semantics, instances of its `target` are mapped, `split` says which.
    Methods of a trial share its parts (a concept space, say): a part is made once, and none may
    change it.

    Attributes
    ----------
    setting : Setting
    number : int
    seed : int
        The configuration's, plus the number.
    source, target : Dataset
    split : ZeroShotSplit
        Rows of the target to train on, to validate and to test, and which labels are unseen.
    seconds : dict of float
        What each part took to learn, now or when it was cached.
    spent : float
        Seconds that parts took in this process.
    used : set of str
        Parts that were used, also by other parts, since this was cleared.
    """

    def __init__(self, setting: Setting, number: int, config: RunConfig) -> None:
        seed = config.seed + number
        source, target = load_pair(setting, config)
        self.setting = setting
        self.number = number
        self.config = config
        self.seed = seed
        self.source = source
        self.target = target
        self.split = draw_split(setting, number, config)
        self.seconds: dict[str, float] = {}
        self.spent = 0.0
        self.used: set[str] = set()
        self._parts: dict[str, tuple[Any, set[str]]] = {}  # each with the parts that it used

    @cached_property
    def _usable(self) -> tuple[NDArray[np.float32] | None, tuple[str, ...] | None]:
        """Features that may be used, and the names of their columns.

        Where features are detectors of labels, those of unseen labels would give them away.
        """
        X = self.target.X
        names = self.target.feature_names
        if self.setting.extractor is not None:
            parameters = self.setting.extractor_parameters
            extractor = extractor_class(self.setting.extractor)(**parameters)
            X = self.part("feature extractor", lambda: self.media_features(extractor))
        elif X is not None and names is not None and self.target.spec.detectors:
            key = self.split.target.key
            unseen_keys = {key(label) for label in self.split.labels.unseen}
            columns = [column for column, name in enumerate(names) if key(name) not in unseen_keys]
            X = np.ascontiguousarray(X[:, columns])
            names = tuple(names[column] for column in columns)
        return X, names

    @property
    def instance_features(self) -> NDArray[np.float32] | None:
        """Features that may be used, rows as the target's documents; None without any."""
        return self._usable[0]

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        """Names of the columns of `instance_features`."""
        return self._usable[1]

    def media_features(self, extractor: MediaFeatures) -> NDArray[np.float32]:
        """Fit an extractor to training instances; return every document's features."""
        config = self.config
        folder = None
        if uses_own_pictures(self.setting, config):
            folder = config.pictures
        raw = raw_numbers(self.target, extractor, config.cache, folder)
        parameters = extractor.get_params()
        if "random_state" in parameters:
            extractor.set_params(random_state=self.seed)
        train = self.split.train
        train_rows = train.tolist()
        train_raw = raw[train_rows]
        extractor.fit(train_raw)
        features = extractor.transform(raw)
        return np.asarray(features, dtype=np.float32)

    def features(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return features of some instances, (n_rows, n_features)."""
        if self.instance_features is None:
            raise InputError(
                f"The corpus '{self.target.name}' has no features.npy, which this method needs."
            )
        return self.instance_features[rows]

    @cached_property
    def train_features(self) -> NDArray[np.float32]:
        """Features of the training instances, (n_train, n_features)."""
        return self.features(self.split.train)

    @cached_property
    def train_documents(self) -> LabelCorpus:
        """Documents of the training instances."""
        return self.split.instances("train")

    @cached_property
    def known_documents(self) -> LabelCorpus:
        """Semantics documents."""
        return self.split.known()

    def fit_inputs(self) -> FitInputs:
        """Return the very objects that whole systems are fitted with, for the audit."""
        return FitInputs(self.train_features, self.train_documents, self.known_documents)

    def part(self, name: str, make: Callable[[], T]) -> T:
        """Return the part of a name; the first use makes it and records its seconds."""
        if name not in self._parts:
            # Parts that this one uses are collected in a set of its own.
            used_outside = self.used
            self.used = set()
            start = time.perf_counter()
            spent_before = self.spent
            new_value = make()
            # Other parts that this one had made, or loaded, count for themselves.
            elapsed = time.perf_counter() - start
            elapsed -= self.spent - spent_before
            self.spent += elapsed
            self.seconds.setdefault(name, elapsed)
            self._parts[name] = (new_value, self.used)
            self.used = used_outside
        value: T
        value, used_inside = self._parts[name]
        self.used |= {name, *used_inside}
        return value

    def space(self, n_components: int) -> PublishedTagger:
        """Return a tagger without features: the concept space and the known documents."""
        name = f"concept space {n_components}"
        # Trials on the same partition of the documents share it.
        partition = self.setting.partition(self.number)
        seed = self.config.seed + partition

        def make() -> PublishedTagger:
            space, seconds = cached_space(
                self.split,
                n_components,
                seed,
                self.config,
            )
            self.seconds[name] = seconds
            return space

        return self.part(name, make)

    def tagger(self, n_components: int) -> PublishedTagger:
        """Return the whole published system, ranking by nearest concepts."""

        def make() -> PublishedTagger:
            embedding = self.space(n_components).embedding_
            mapper = make_mapper(self.config)
            mapper.set_params(random_state=self.seed)
            tagger = PublishedTagger(
                embedding=embedding,
                mapper=mapper,
                fit_embedding=False,
            )
            return self.fitted(tagger)

        return self.part(f"mapping {n_components}", make)

    def default_tagger(
        self, name: str = "space", n_validations: int = 0, **parameters: Any
    ) -> ZeroShotTagger:
        """Return the fitted default with parameters of its `ConceptSpace`; change copies only."""
        space = make_space(self.config, **parameters)
        tagger = ZeroShotTagger(
            space=space,
            n_validations=n_validations,
            random_state=self.seed,
        )
        return self.part(name, lambda: self.fitted(tagger))

    def fitted(self, ranker: T, semantics: LabelCorpus | None = None) -> T:
        """Fit a ranker to the training instances and semantics documents, without warnings."""
        documents = self.known_documents if semantics is None else semantics
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PolysemeWarning)
            ranker.fit(  # type: ignore[attr-defined]
                self.train_features,
                self.train_documents,
                documents,
                label_sets_only=True,
            )
        return ranker

    def tuned_costa(self) -> TunedCosta:
        """Return tuned COSTA, fitted."""
        costa = TunedCosta(random_state=self.seed)
        return self.part("tuned COSTA", lambda: self.fitted(costa))

    def classifiers(self) -> SeenClassifiers:
        """Return the support vector machines that all forms of COSTA share."""
        classifiers = SeenClassifiers(random_state=self.seed)

        def make() -> SeenClassifiers:
            return classifiers.fit(self.train_features, self.train_documents)

        return self.part("classifiers", make)

    @cached_property
    def word_vectors(self) -> WordVectors:
        """Word vectors for the labels; those of samples, which nobody published, are random."""
        config = self.config
        if not config.quick:
            return word_vectors(config.data)
        labels = self.known_documents.labels
        unique_words: set[str] = set()
        for label in labels:
            words_of_label = words_of(label)
            unique_words.update(words_of_label)
        words = sorted(unique_words)
        generator = np.random.default_rng(self.seed)
        shape = (len(words), 50)
        vectors = generator.normal(size=shape)
        return WordVectors.from_arrays(words, vectors, source="random stand-ins")

    def measure(
        self, scores: NDArray[np.float64], labels: Labels, *, oov: bool = True, mix: bool = False
    ) -> dict[str, dict[str, float]]:
        """Measure scores (n, n_labels) of the test instances, or of `mixed`, in percent.

        Columns with oov labels are left out where a method does not score these (`oov`).
        """
        columns = evaluation_columns(self.split.labels)
        if not oov:
            columns.pop("all", None)
            columns.pop("oov", None)
        rows = self.mixed if mix else self.split.test
        tested = self.split.target.select(rows)
        return measure(tested, scores, labels, columns)

    @cached_property
    def mixed(self) -> NDArray[np.int64]:
        """Held-out instances as they come, with and without unseen labels."""
        return np.union1d(self.split.test, self.split.validation)

    def leakage_report(
        self, fitted: object, inputs: FitInputs | None = None, *, relearn_topics: bool = False
    ) -> LeakageReport:
        """Audit the split, what was handed to `fit`, and what was learned."""
        return audit(
            self.split,
            X=self.instance_features,
            feature_names=self.feature_names,
            detectors=self.target.spec.detectors,
            inputs=inputs,
            fitted=fitted,
            relearn_topics=relearn_topics,
        )

    def audit(self, fitted: object = None, inputs: FitInputs | None = None) -> dict[str, Any]:
        """Check that nothing hidden reached training, or raise; return facts for records."""
        report = self.leakage_report(fitted, inputs)
        report.require()
        return {
            "passed": report.passed,
            "checks": len(report.checks),
            "digest": report.digest,
        }

    def facts(self) -> dict[str, Any]:
        """Return what records say about the data."""
        checksums, as_published, originals = {}, {}, {}
        for dataset in (self.source, self.target):
            checksums[dataset.name] = dataset.checksum
            as_published[dataset.name] = dataset.as_published()
            originals[dataset.name] = self.setting.stand_ins.get(dataset.name)
        return {
            "data": checksums,
            "as_published": as_published,
            "stand_in": originals,
            "sample": self.config.quick,
            "counts": self.split.sizes(),
        }
