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

from polyseme._validation import InputError, PolysemeWarning
from polyseme.baselines import SeenClassifiers, TunedCosta
from polyseme.corpus import LabelCorpus, Labels
from polyseme.features import MediaFeatures, extractor_class
from polyseme.published.tagger import PublishedTagger
from polyseme.space import ConceptSpace
from polyseme.splits import evaluation_columns, measure
from polyseme.tagger import ZeroShotTagger
from polyseme.word_vectors import WordVectors
from polyseme_experiments.audit import Given, Receipt, audit
from polyseme_experiments.draws import (
    Conditions,
    draw_split,
    load_pair,
    takes_named,
    word_vectors,
)
from polyseme_experiments.media import raw_numbers
from polyseme_experiments.settings import Setting
from polyseme_experiments.spaces import SpaceStore, make_mapper, make_space
from polyseme_experiments.stand_in_words import stand_in_vectors

T = TypeVar("T")
Scores = NDArray[np.float64]


class Trial:
    """One trial of a setting.

    Parameters
    ----------
    setting : Setting
    number : int
        Trials count from 0.
    conditions : Conditions

    Attributes
    ----------
    source, target : Dataset
        Whose documents teach the semantics, and whose instances are mapped.
    split : ZeroShotSplit
    seconds : dict of str to float
        What each shared part took to learn, now or when it was kept for later.
    spent : float
        Seconds that went into shared parts in this process.
    asked : set of str
        Shared parts that were asked for, also by other parts; whoever wants to know clears it.
    """

    def __init__(self, setting: Setting, number: int, conditions: Conditions) -> None:
        self.setting = setting
        self.number = number
        self.conditions = conditions
        self.seed = conditions.seed + number
        self.source, self.target = load_pair(setting, conditions)
        self.split = draw_split(setting, number, conditions)
        self.seconds: dict[str, float] = {}
        self.spent = 0.0
        self.asked: set[str] = set()
        self._made: dict[str, Any] = {}
        self._used_by: dict[str, set[str]] = {}

    # ------------------------------------------------------------------ what may be learned from

    @cached_property
    def _columns(self) -> NDArray[np.bool_] | None:
        """Which columns of the features may be used; None: all."""
        names = self.target.feature_names
        if names is None or not self.target.spec.detectors:
            return None
        key = self.split.target.key
        hidden = {key(label) for label in self.split.labels.unseen}
        return np.array([key(name) not in hidden for name in names])

    @cached_property
    def instance_features(self) -> NDArray[np.float32] | None:
        """Features that may be used, rows as the target's documents; None without any."""
        if self.setting.extractor is not None:
            extractor = extractor_class(self.setting.extractor)()
            return self.part("feature extractor", lambda: (self.media_features(extractor), None))
        if self.target.X is None or self._columns is None:
            return self.target.X
        return np.ascontiguousarray(self.target.X[:, self._columns])

    def media_features(self, extractor: MediaFeatures) -> NDArray[np.float32]:
        """Make features from media files; what is learned is learned from training instances.

        Parameters
        ----------
        extractor : MediaFeatures
            Is fitted here, with the trial's seed.

        Returns
        -------
        float32 array, shape (n_documents, n_features)
            Rows as the target's documents.
        """
        named = takes_named(self.setting, self.conditions)
        folder = self.conditions.pictures if named else None
        raw = raw_numbers(self.target, extractor, self.conditions.cache, folder)
        if "random_state" in extractor.get_params():
            extractor.set_params(random_state=self.seed)
        extractor.fit(raw.select(self.split.train.tolist()))
        return np.asarray(extractor.transform(raw), dtype=np.float32)

    @cached_property
    def feature_names(self) -> tuple[str, ...] | None:
        """Names of the columns of `instance_features`."""
        names = self.target.feature_names
        if names is None or self._columns is None:
            return names
        return tuple(name for name, kept in zip(names, self._columns, strict=True) if kept)

    def features(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """Give features of some instances."""
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

    def given(self) -> Given:
        """Give the very objects that whole systems are fitted with, for the audit."""
        return Given(self.train_features, self.train_documents, self.known_documents)

    # ------------------------------------------------------------------ what methods share

    def part(self, name: str, make: Callable[[], tuple[T, float | None]]) -> T:
        """Give a shared part; the first who asks has it made, and its seconds are noted.

        Parameters
        ----------
        name : str
        make : callable
            Gives the part, and what it took where the clock here would not tell.
        """
        if name not in self._made:
            outer, self.asked = self.asked, set()
            start, before = time.perf_counter(), self.spent
            self._made[name], told = make()
            # Other parts that this one had made, or loaded, are theirs to count.
            elapsed = time.perf_counter() - start - (self.spent - before)
            self.spent += elapsed
            self.seconds[name] = elapsed if told is None else told
            self._used_by[name], self.asked = self.asked, outer
        self.asked |= {name} | self._used_by[name]
        made: T = self._made[name]
        return made

    def space(self, n_components: int) -> PublishedTagger:
        """Give a tagger without features: the concept space and the known documents."""
        store, seed = SpaceStore(self.conditions), self._partition_seed
        return self.part(
            f"concept space {n_components}", lambda: store.get(self.split, n_components, seed)
        )

    @property
    def _partition_seed(self) -> int:
        """The seed that trials on the same partition of the documents share."""
        return self.conditions.seed + self.setting.partition(self.number)

    def tagger(self, n_components: int) -> PublishedTagger:
        """Give the whole published system, ranking by nearest concepts."""

        def make() -> tuple[PublishedTagger, None]:
            space = self.space(n_components)
            mapper = make_mapper(self.conditions).set_params(random_state=self.seed)
            tagger = PublishedTagger(embedding=space.embedding_, mapper=mapper, fit_embedding=False)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", PolysemeWarning)
                tagger.fit(self.train_features, self.train_documents, self.known_documents)
            return tagger, None

        return self.part(f"mapping {n_components}", make)

    def default_tagger(self) -> ZeroShotTagger:
        """Give the default tagger, fitted; whoever changes it must change a copy."""
        return self.variant_tagger("space", make_space(self.conditions))

    def variant_tagger(self, name: str, space: ConceptSpace) -> ZeroShotTagger:
        """Give a tagger with another space, fitted; `name` tells these apart."""

        def make() -> tuple[ZeroShotTagger, None]:
            return self.fitted(space, self.known_documents), None

        return self.part(name, make)

    def fitted(self, space: ConceptSpace, semantics: LabelCorpus) -> ZeroShotTagger:
        """Fit a tagger to the training instances and some semantics documents."""
        tagger = ZeroShotTagger(space=space, random_state=self.seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PolysemeWarning)
            return tagger.fit(self.train_features, self.train_documents, semantics)

    def tuned_costa(self) -> TunedCosta:
        """Give tuned COSTA, fitted."""

        def make() -> tuple[TunedCosta, None]:
            costa = TunedCosta(random_state=self.seed)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", PolysemeWarning)
                costa.fit(self.train_features, self.train_documents, self.known_documents)
            return costa, None

        return self.part("tuned COSTA", make)

    def classifiers(self) -> SeenClassifiers:
        """Give the support vector machines that all forms of COSTA share."""

        def make() -> tuple[SeenClassifiers, None]:
            classifiers = SeenClassifiers(random_state=self.seed)
            return classifiers.fit(self.train_features, self.train_documents), None

        return self.part("classifiers", make)

    @cached_property
    def word_vectors(self) -> WordVectors:
        """Word vectors for the labels; samples get vectors made from their documents."""
        if self.conditions.quick:
            return stand_in_vectors(self.known_documents, random_state=self.seed)
        return word_vectors(self.conditions.data)

    # ------------------------------------------------------------------ measuring

    def measure(
        self, scores: Scores, labels: Labels, *, oov: bool = True, mix: bool = False
    ) -> dict[str, dict[str, float]]:
        """Measure scores of the test instances over the evaluation columns.

        Parameters
        ----------
        scores : float64 array, shape (n_test, n_labels)
        labels : sequence of str
            The labels of the scores' columns.
        oov : bool
            Whether the method scores oov labels at all; if not, columns with them are left out.
        mix : bool
            Whether scores are those of `mixed` instead of the test instances.

        Returns
        -------
        dict of str to dict of str to float
            In percent where the measure is a share.
        """
        columns = evaluation_columns(self.split.labels)
        if not oov:
            columns = {name: one for name, one in columns.items() if name not in ("all", "oov")}
        tested = self.split.target.select(self.mixed if mix else self.split.test)
        return measure(tested, scores, labels, columns)

    @cached_property
    def mixed(self) -> NDArray[np.int64]:
        """Held-out instances as they come, with and without unseen labels."""
        return np.union1d(self.split.test, self.split.validation)

    def receipt(
        self, fitted: object, given: Given | None = None, *, relearn_topics: bool = False
    ) -> Receipt:
        """Audit the split, what was handed to `fit`, and what was learned."""
        return audit(
            self.split,
            X=self.instance_features,
            feature_names=self.feature_names,
            detectors=self.target.spec.detectors,
            given=given,
            fitted=fitted,
            relearn_topics=relearn_topics,
        )

    def audit(self, fitted: object = None, given: Given | None = None) -> dict[str, Any]:
        """Prove that nothing hidden reached training; raise if it did; give facts for records."""
        receipt = self.receipt(fitted, given)
        receipt.require()
        return {"passed": receipt.passed, "checks": len(receipt.checks), "digest": receipt.digest}

    def facts(self) -> dict[str, Any]:
        """Give what records say about the data."""
        datasets = {one.name: one for one in (self.source, self.target)}
        return {
            "data": {name: one.checksum for name, one in datasets.items()},
            "as_published": {name: one.as_published() for name, one in datasets.items()},
            "stand_in": {name: self.setting.stand_ins.get(name) for name in datasets},
            "sample": self.conditions.quick,
            "counts": self.split.sizes(),
        }
