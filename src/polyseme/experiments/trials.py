"""One trial of a setting: data loaded, labels hidden, documents split, shared parts learned once.

In: a setting and a trial's number. Out: a `Trial`, which methods ask for what they may learn from
and which measures their scores.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from polyseme._persistence import remove_model
from polyseme._validation import InputError, PolysemeWarning
from polyseme.baselines import WordVectors
from polyseme.baselines.classifiers import SeenClassifiers
from polyseme.corpus import LabelCorpus
from polyseme.datasets import Dataset, choose, load_dataset
from polyseme.descriptors import ContextDescriptor
from polyseme.embedding import ConceptEmbedding
from polyseme.experiments.records import config_hash
from polyseme.experiments.settings import Setting
from polyseme.mapping import InstanceMapper
from polyseme.nn.plan import TrainingPlan
from polyseme.protocols import (
    Given,
    LabelSplit,
    Receipt,
    ZeroShotSplit,
    audit,
    cross_corpora,
    evaluation_columns,
    labels_by_document_share,
    measure,
    oov_test,
    random_labels,
    within_corpus,
)
from polyseme.storage import load
from polyseme.tagger import ZeroShotTagger

T = TypeVar("T")
Scores = NDArray[np.float64]
N_ATTEMPTS = 20


@dataclass(frozen=True)
class Conditions:
    """What all runs of a call have in common.

    Attributes
    ----------
    data : str or None
        The folder of the corpora.
    seed : int
        Trial t draws its labels with seed + t.
    quick : bool
        Samples and short trainings in place of the real thing.
    preset : str
        The embedding's preset.
    cache : str or None
        Where learned concept spaces are kept for other runs; None keeps nothing.
    """

    data: str | None = None
    seed: int = 0
    quick: bool = False
    preset: str = "default"
    cache: str | None = None


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
    parts : dict of str to float
        Seconds that each shared part took to learn.
    asked : set of str
        Shared parts that were asked for; whoever wants to know clears it first.
    """

    def __init__(self, setting: Setting, number: int, conditions: Conditions) -> None:
        self.setting = setting
        self.number = number
        self.conditions = conditions
        self.seed = conditions.seed + number
        self.partition_seed = conditions.seed + setting.partition(number)
        self.parts: dict[str, float] = {}
        self.asked: set[str] = set()
        self._made: dict[str, Any] = {}
        self.source, self.target = load_pair(setting, conditions)
        self.split = self._draw()

    # ------------------------------------------------------------------ the split

    def _draw(self) -> ZeroShotSplit:
        """Draw the labels to hide, then who learns from what; again if nobody is left."""
        for attempt in range(N_ATTEMPTS):
            split = self._attempt(self.seed + 1000 * attempt)
            if len(split.train) and len(split.test):
                return split
        raise InputError(
            f"The setting '{self.setting.name}' found no labels in '{self.target.name}' that leave "
            f"instances to train and to test in {N_ATTEMPTS} draws."
        )

    def _attempt(self, label_seed: int) -> ZeroShotSplit:
        """Draw the labels to hide with a seed, then who learns from what."""
        setting = self.setting
        source = _prepared(self.source, setting)
        arguments = dict(setting.split) | {"random_state": self.partition_seed}
        if setting.protocol == "cross":
            target = self.target.corpus
            shared = [label for label in source.labels if target.restrict([label]).labels]
            labels = self._draw_labels(target.restrict(shared), label_seed)
            unseen = {source.key(label) for label in labels.unseen}
            hidden = tuple(label for label in source.labels if source.key(label) in unseen)
            seen = tuple(label for label in source.labels if source.key(label) not in unseen)
            return cross_corpora(source, target, LabelSplit(seen, hidden), **arguments)
        split = within_corpus(source, self._draw_labels(source, label_seed), **arguments)
        return oov_test(split) if setting.protocol == "oov" else split

    def _draw_labels(self, corpus: LabelCorpus, seed: int) -> LabelSplit:
        """Draw the labels to hide by the setting's generator."""
        arguments = dict(self.setting.labels)
        if self.conditions.quick and self.setting.label_pick != "random":
            # A sample has few labels, so its shares of documents jump.
            arguments |= {"document_share": (0.25, 0.7)}
            if "oov_share" in arguments:
                arguments |= {"oov_document_share": (0.3, 0.6)}
        if self.setting.label_pick == "random":
            return random_labels(corpus, random_state=seed, **arguments)
        return labels_by_document_share(corpus, random_state=seed, **arguments)

    @cached_property
    def instance_features(self) -> NDArray[np.float32] | None:
        """Features that may be used, rows as the target's documents; None without any."""
        if self.target.X is None or not self.target.form.detectors:
            return self.target.X
        names = self.target.feature_names or ()
        key = self.split.target.key
        hidden = {key(label) for label in self.split.labels.unseen}
        return np.ascontiguousarray(self.target.X[:, [key(name) not in hidden for name in names]])

    @cached_property
    def feature_names(self) -> tuple[str, ...] | None:
        """Names of the columns of `instance_features`."""
        names = self.target.feature_names
        if names is None or not self.target.form.detectors:
            return names
        key = self.split.target.key
        hidden = {key(label) for label in self.split.labels.unseen}
        return tuple(name for name in names if key(name) not in hidden)

    def features(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """Give features of some instances."""
        if self.instance_features is None:
            raise InputError(
                f"The corpus '{self.target.name}' has no features.npy, which this method needs."
            )
        return self.instance_features[rows]

    # ------------------------------------------------------------------ what methods share

    def part(self, name: str, make: Callable[[], T]) -> T:
        """Give a shared part; the first who asks has it made, and its seconds are noted."""
        self.asked.add(name)
        if name not in self._made:
            start, before = time.perf_counter(), sum(self.parts.values())
            self._made[name] = make()
            inner = sum(self.parts.values()) - before
            self.parts[name] = time.perf_counter() - start - inner
        made: T = self._made[name]
        return made

    def template(self, n_components: int) -> ConceptEmbedding:
        """Give the embedding to learn, with its seed."""
        parameters: dict[str, Any] = {"n_components": n_components}
        if self.conditions.quick:
            parameters |= {
                "hidden_sizes": (24,),
                "context_descriptor": ContextDescriptor(n_topics=8, n_iter=30),
                "training": TrainingPlan(max_epochs=3, min_epochs=0, min_steps=8, batch_size=128),
            }
        made = ConceptEmbedding.from_preset(self.conditions.preset, **parameters)
        return made.set_params(random_state=self.partition_seed)

    def space(self, n_components: int) -> ZeroShotTagger:
        """Give a tagger without features: the concept space and the known documents."""
        return self.part(f"concept space {n_components}", lambda: self._space(n_components))

    def _space(self, n_components: int) -> ZeroShotTagger:
        """Load the concept space if some run has left it, learn it otherwise."""
        embedding, folder = self.template(n_components), self.cache_folder(n_components)
        if folder is not None and (folder / "manifest.json").exists():
            return load(folder)
        if folder is not None:
            embedding.set_params(checkpoint=folder.with_suffix(".training"))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PolysemeWarning)
            embedding.fit(self.split.teaching(), validation=self.split.held_out())
            space = ZeroShotTagger(embedding=embedding, fit_embedding=False)
            space.fit(None, self.split.known())
        if folder is not None:
            space.save(folder)
            remove_model(folder.with_suffix(".training"))
        return space

    def cache_folder(self, n_components: int) -> Path | None:
        """Give the folder where this trial's concept space is kept."""
        if self.conditions.cache is None:
            return None
        teaching = self.split.teaching()
        held_out = self.split.held_out()
        digest = config_hash(
            {
                "parameters": str(sorted(self.template(n_components).get_params().items())),
                "documents": [list(document) for document in teaching],
                "ids": teaching.ids,
                "held out": [list(document) for document in held_out],
                "known": self.split.known().ids,
            }
        )
        return Path(self.conditions.cache) / f"space-{n_components}-{digest}"

    def tagger(self, n_components: int) -> ZeroShotTagger:
        """Give the whole system, mapped by nu-SVR as in the paper, ranking by nearest concepts."""
        split = self.split

        def make() -> ZeroShotTagger:
            space = self.space(n_components)
            mapper = InstanceMapper(random_state=self.seed)
            tagger = ZeroShotTagger(embedding=space.embedding_, mapper=mapper, fit_embedding=False)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", PolysemeWarning)
                return tagger.fit(
                    self.features(split.train), split.instances("train"), split.known()
                )

        return self.part(f"mapping {n_components}", make)

    def classifiers(self) -> SeenClassifiers:
        """Give the support vector machines that all forms of COSTA share."""

        def make() -> SeenClassifiers:
            classifiers = SeenClassifiers(random_state=self.seed)
            return classifiers.fit(self.features(self.split.train), self.split.instances("train"))

        return self.part("classifiers", make)

    @cached_property
    def word_vectors(self) -> WordVectors:
        """Word vectors for the labels; samples get vectors made from their documents."""
        if self.conditions.quick:
            return WordVectors.from_documents(self.split.known(), random_state=self.seed)
        return WordVectors.find(self.conditions.data)

    # ------------------------------------------------------------------ measuring

    def measure(
        self, scores: Scores, labels: Sequence[str], *, oov: bool = True
    ) -> dict[str, dict[str, float]]:
        """Measure scores of the test instances over the evaluation columns.

        Parameters
        ----------
        scores : float64 array, shape (n_test, n_labels)
        labels : sequence of str
            The labels of the scores' columns.
        oov : bool
            Whether the method scores oov labels at all; if not, columns with them are left out.

        Returns
        -------
        dict of str to dict of str to float
            In percent where the measure is a share.
        """
        columns = evaluation_columns(self.split.labels)
        if not oov:
            columns = {name: one for name, one in columns.items() if name not in ("all", "oov")}
        return measure(self.split.instances("test"), scores, labels, columns)

    def receipt(self, fitted: object, given: Given | None = None) -> Receipt:
        """Audit the split, what was handed to `fit`, and what was learned."""
        return audit(
            self.split,
            X=self.instance_features,
            feature_names=self.feature_names,
            detectors=self.target.form.detectors,
            given=given,
            fitted=fitted,
        )

    def audit(self, fitted: object = None, given: Given | None = None) -> dict[str, Any]:
        """Prove that nothing hidden reached training; raise if it did; give facts for records."""
        receipt = self.receipt(fitted, given)
        receipt.require()
        return {"passed": receipt.passed, "checks": len(receipt.checks), "digest": receipt.digest}

    def lessons(self) -> Given:
        """Give what a whole system may learn from: features, documents, semantics documents."""
        split = self.split
        return Given(self.features(split.train), split.instances("train"), split.known())

    def facts(self) -> dict[str, Any]:
        """Give what records say about the data."""
        datasets = {one.name: one for one in (self.source, self.target)}
        return {
            "data": {name: one.checksum for name, one in datasets.items()},
            "stand_in": {name: self.setting.stand_ins.get(name) for name in datasets},
            "sample": self.conditions.quick,
            "counts": self.split.sizes(),
        }


@lru_cache(maxsize=4)
def _load(name: str, data: str | None, sample: bool) -> Dataset:
    """Load a dataset once for all trials of a process."""
    return load_dataset(name, data, sample=sample)


def chosen_pair(setting: Setting, conditions: Conditions) -> tuple[str, str]:
    """Give the first pair of corpora whose folders are there; samples: the last pair."""
    if conditions.quick:
        return setting.corpora[-1]
    return choose(setting.corpora, conditions.data)


def checksums(setting: Setting, conditions: Conditions) -> dict[str, str]:
    """Give the digest of each corpus of a setting."""
    return {one.name: one.checksum for one in load_pair(setting, conditions)}


def load_pair(setting: Setting, conditions: Conditions) -> tuple[Dataset, Dataset]:
    """Load a setting's source and target, which may be one and the same."""
    source, target = chosen_pair(setting, conditions)
    loaded = _load(source, conditions.data, conditions.quick)
    if source == target:
        return loaded, loaded
    return loaded, _load(target, conditions.data, conditions.quick)


def _prepared(dataset: Dataset, setting: Setting) -> LabelCorpus:
    """Give a dataset's corpus over the labels that the setting keeps."""
    corpus = dataset.corpus
    counts = np.asarray(corpus.matrix.sum(axis=0)).ravel()
    least = 1 if dataset.is_sample else setting.min_documents.get(dataset.name, 1)
    kept = np.flatnonzero(counts >= least)
    if setting.n_labels is not None:
        kept = np.sort(kept[np.argsort(-counts[kept], kind="stable")[: setting.n_labels]])
    if len(kept) == len(counts):
        return corpus
    return replace(corpus.restrict([corpus.labels[column] for column in kept]))
