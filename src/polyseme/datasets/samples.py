"""Tiny worlds in the shape of the datasets, made by code so that no file is needed.

In: a recipe, which says what a dataset has: labels, groups, splits, features. Out: `DatasetParts`
of a few hundred documents, the same ones every time. The words are ours; no data are in them.

The samples of one family share most labels, each lacks some and has some of its own, and a few
labels mean different things in different topics. They show that a protocol runs, nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from polyseme.corpus import LabelCorpus
from polyseme.datasets.base import DatasetParts

# topic -> its labels, the common ones first
MUSIC: Mapping[str, tuple[str, ...]] = {
    "rock": ("rock", "guitar", "drums", "loud", "punk", "distortion"),
    "classical": ("classical", "strings", "piano", "violin", "opera", "cello"),
    "electronic": ("electronic", "synth", "dance", "techno", "bass", "sampler"),
    "folk": ("folk", "acoustic", "guitar", "banjo", "fiddle", "harmonica"),
    "jazz": ("jazz", "saxophone", "piano", "bass", "trumpet", "swing"),
    "ambient": ("ambient", "slow", "synth", "drone", "quiet", "flute"),
}
IMAGES: Mapping[str, tuple[str, ...]] = {
    "street": ("building", "car", "road", "sign", "crane", "truck"),
    "coast": ("sea", "sky", "sand", "boat", "rock", "palm"),
    "mountains": ("mountain", "sky", "snow", "lake", "rock", "crane"),
    "kitchen": ("table", "stove", "chair", "sink", "plate", "kettle"),
    "office": ("desk", "chair", "screen", "lamp", "book", "mouse"),
    "field": ("grass", "tree", "horse", "fence", "barn", "mouse"),
}
# labels that stand for two things: an instrument or a sound, a machine or a bird, …
AMBIGUOUS = {"music": ("guitar", "piano", "bass", "synth"), "images": ("crane", "mouse", "rock")}

# how often a topic's documents hold its first, second, … label, and a dataset's own ones
_CHANCES = (0.9, 0.7, 0.4, 0.2, 0.12, 0.07)
_OWN_CHANCES = (0.25, 0.1)
_DENSE_COLUMNS = 24


@dataclass(frozen=True)
class SampleRecipe:
    """What the sample of one dataset has.

    Attributes
    ----------
    topics : mapping of str to tuple of str
        `MUSIC` or `IMAGES`.
    seed : int
        Of the one generator that everything is drawn from.
    own : mapping of str to tuple of str
        Labels that only this dataset has, at most two to a topic.
    without : tuple of str
        Labels of the family that this dataset lacks.
    n_documents, n_empty : int
        Documents in all, and how many of them hold no label.
    group_size : int
        The mean number of documents in a group; 0 for no groups.
    shared_labels : bool
        Whether all documents of a group hold the same labels.
    splits : mapping of str to float
        The share of documents in each part of the official split; a group stays in one part.
    features : {"detectors", "dense"} or None
        A noisy probability for each label, in a column of its name; or a noisy random mixture of
        the labels; or none.
    feature_names : tuple of str or None
        The columns of dense features.
    """

    topics: Mapping[str, tuple[str, ...]]
    seed: int
    own: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    without: tuple[str, ...] = ()
    n_documents: int = 240
    n_empty: int = 0
    group_size: int = 0
    shared_labels: bool = False
    splits: Mapping[str, float] = field(default_factory=dict)
    features: Literal["detectors", "dense"] | None = None
    feature_names: tuple[str, ...] | None = None

    def make(self) -> DatasetParts:
        """Make the sample."""
        generator = np.random.default_rng(self.seed)
        groups = self._groups()
        topics = groups % len(self.topics)
        documents = self._documents(topics, groups, generator)
        corpus = LabelCorpus.from_documents(
            documents, ids=[f"sample-{row:03d}" for row in range(self.n_documents)]
        )
        corpus = replace(
            corpus,
            groups=tuple(f"group-{group:03d}" for group in groups) if self.group_size else None,
            splits=self._splits(groups, generator),
        )
        if self.features is None:
            return DatasetParts(corpus)
        if self.features == "detectors":
            return DatasetParts(corpus, self._detectors(corpus, topics, generator), corpus.labels)
        return DatasetParts(corpus, self._dense(corpus, topics, generator), self.feature_names)

    def _groups(self) -> NDArray[np.int64]:
        """Give the number of every document's group; sizes go round from 1 to 2 * mean - 1."""
        if not self.group_size:
            return np.arange(self.n_documents, dtype=np.int64)
        # Topics go round from group to group; a size must meet all of them.
        turns = np.arange(self.n_documents) // len(self.topics)
        sizes = 1 + turns % (2 * self.group_size - 1)
        return np.repeat(np.arange(self.n_documents), sizes)[: self.n_documents].astype(np.int64)

    def _documents(
        self,
        topics: NDArray[np.int64],
        groups: NDArray[np.int64],
        generator: np.random.Generator,
    ) -> list[set[str]]:
        """Draw the documents: each label gets its share of its topic's documents exactly."""
        documents: list[set[str]] = [set() for _ in topics]
        for number, topic in enumerate(self.topics):
            rows = np.flatnonzero(topics == number)
            units = groups[rows] if self.shared_labels else rows
            for label, chance in self._chances(topic).items():
                drawn = generator.permutation(np.unique(units))
                holders = drawn[: max(2, round(chance * len(drawn)))]
                for row in rows[np.isin(units, holders)]:
                    documents[row].add(label)
            first = self.topics[topic][0]
            for row in rows:
                # A document of a topic that drew nothing would be empty by accident.
                documents[row] = documents[row] or {first}
        for row in generator.permutation(len(documents))[: self.n_empty]:
            documents[row] = set()
        return documents

    def _chances(self, topic: str) -> dict[str, float]:
        """Give the chance of each label of a topic in this dataset."""
        shared = zip(self.topics[topic], _CHANCES, strict=True)
        own = zip(self.own.get(topic, ()), _OWN_CHANCES, strict=False)
        return {label: chance for label, chance in (*shared, *own) if label not in self.without}

    def _splits(
        self, groups: NDArray[np.int64], generator: np.random.Generator
    ) -> tuple[str, ...] | None:
        """Share the groups out over the parts of the official split."""
        if not self.splits:
            return None
        order = generator.permutation(int(groups.max()) + 1)
        place = np.empty(len(order), dtype=np.int64)
        place[order] = np.arange(len(order))
        ends = np.cumsum(list(self.splits.values()))[:-1] * len(order)
        names = list(self.splits)
        return tuple(names[part] for part in np.searchsorted(ends, place[groups], side="right"))

    def _detectors(
        self, corpus: LabelCorpus, topics: NDArray[np.int64], generator: np.random.Generator
    ) -> NDArray[np.float32]:
        """Give a noisy probability of every label; labels of the same topic fire a little too."""
        held = corpus.matrix.toarray()
        near = np.array(
            [[label in self._chances(topic) for label in corpus.labels] for topic in self.topics]
        )
        noise = 0.15 * generator.standard_normal(held.shape)
        return _rounded(np.clip(0.1 + 0.5 * held + 0.1 * near[topics] + noise, 0.0, 1.0))

    def _dense(
        self, corpus: LabelCorpus, topics: NDArray[np.int64], generator: np.random.Generator
    ) -> NDArray[np.float32]:
        """Mix labels and topics into unnamed columns, with noise."""
        n_columns = len(self.feature_names) if self.feature_names else _DENSE_COLUMNS
        held = corpus.matrix.toarray().astype(np.float64)
        of_labels = generator.standard_normal((held.shape[1], n_columns))
        of_topics = generator.standard_normal((len(self.topics), n_columns))
        noise = generator.standard_normal((len(held), n_columns))
        return _rounded(held @ of_labels + of_topics[topics] + 0.5 * noise)


def _rounded(X: NDArray[np.float64]) -> NDArray[np.float32]:
    """Drop the digits in which machines may differ."""
    return np.round(X, 3).astype(np.float32)
