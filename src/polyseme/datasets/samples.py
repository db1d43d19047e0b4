"""Synthetic samples in the shape of the datasets, made by code so that no file is needed.

In: what a dataset has (labels, groups, splits, features). Out: `DatasetContent` of a few hundred
documents, the same ones every time. The samples of one domain share most labels, each lacks some
and has some of its own, and a few labels mean different things in different topics. They show
that an experiment runs, nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from polyseme._validation import IntArray
from polyseme.corpus import LabelCorpus
from polyseme.datasets.base import DatasetContent

# how often a topic's documents hold its first, second, … label, and a dataset's own ones
_CHANCES = (0.9, 0.7, 0.4, 0.2, 0.12, 0.07)
_OWN_CHANCES = (0.25, 0.1)
_DENSE_COLUMNS = 24


@dataclass(frozen=True)
class SyntheticSample:
    """What the sample of one dataset has."""

    topics: Mapping[str, Sequence[str]]  # of its domain in `specs.toml`, with their labels
    seed: int  # of the one generator that everything is drawn from
    # Labels that only this dataset has, at most two to a topic.
    own: Mapping[str, Sequence[str]] = field(default_factory=dict)
    without: Sequence[str] = ()  # labels of the domain that this dataset lacks
    n_documents: int = 240
    n_empty: int = 0  # documents without a label
    group_size: int = 0  # mean number of documents in a group; 0 for no groups
    shared_labels: bool = False  # whether all documents of a group hold the same labels
    # The share of documents in each part of the official split; a group stays in one part.
    splits: Mapping[str, float] = field(default_factory=dict)
    # A noisy probability for each label, in a column of its name, or a noisy mixture of labels.
    features: Literal["detectors", "dense"] | None = None
    feature_names: Sequence[str] | None = None  # the columns of dense features

    def make(self) -> DatasetContent:
        """Make the sample."""
        generator = np.random.default_rng(self.seed)
        groups = self._groups()
        topics = groups % len(self.topics)
        documents = self._documents(topics, groups, generator)
        ids = [f"sample-{row:03d}" for row in range(self.n_documents)]
        corpus = replace(
            LabelCorpus.from_documents(documents, ids=ids),
            groups=tuple(f"group-{group:03d}" for group in groups) if self.group_size else None,
            splits=self._splits(groups, generator),
        )
        if self.features is None:
            return DatasetContent(corpus)
        names = corpus.labels if self.features == "detectors" else self.feature_names
        return DatasetContent(corpus, self._features(corpus, topics, generator), names)

    def _groups(self) -> IntArray:
        """Return the number of every document's group; sizes go round from 1 to 2 * mean - 1."""
        rows = np.arange(self.n_documents, dtype=np.int64)
        if not self.group_size:
            return rows
        # Topics go round from group to group; a size must meet all of them.
        sizes = 1 + rows // len(self.topics) % (2 * self.group_size - 1)
        return np.repeat(rows, sizes)[: self.n_documents]

    def _documents(
        self, topics: IntArray, groups: IntArray, generator: np.random.Generator
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
            for row in rows:
                # A document of a topic that drew nothing would be empty by accident.
                documents[row] = documents[row] or {self.topics[topic][0]}
        for row in generator.permutation(len(documents))[: self.n_empty]:
            documents[row] = set()
        return documents

    def _chances(self, topic: str) -> dict[str, float]:
        """Return the chance of each label of a topic in this dataset."""
        shared = zip(self.topics[topic], _CHANCES, strict=True)
        own = zip(self.own.get(topic, ()), _OWN_CHANCES, strict=False)
        return {label: chance for label, chance in (*shared, *own) if label not in self.without}

    def _splits(self, groups: IntArray, generator: np.random.Generator) -> tuple[str, ...] | None:
        """Share the groups out over the parts of the official split."""
        if not self.splits:
            return None
        order = generator.permutation(int(groups.max()) + 1)
        ends = np.cumsum(list(self.splits.values()))[:-1] * len(order)
        parts = np.searchsorted(ends, np.argsort(order)[groups], side="right")
        return tuple(list(self.splits)[part] for part in parts)

    def _features(
        self, corpus: LabelCorpus, topics: IntArray, generator: np.random.Generator
    ) -> NDArray[np.float32]:
        """Draw noisy features (n_documents, n_features) from labels and topics."""
        held = corpus.matrix.toarray().astype(np.float64)
        if self.features == "detectors":
            # Detectors of the labels of the same topic fire a little too.
            chances = [self._chances(topic) for topic in self.topics]
            near = np.array([[label in each for label in corpus.labels] for each in chances])
            noise = 0.15 * generator.standard_normal(held.shape)
            X = np.clip(0.1 + 0.5 * held + 0.1 * near[topics] + noise, 0.0, 1.0)
        else:
            n_columns = len(self.feature_names or ()) or _DENSE_COLUMNS
            of_labels = generator.standard_normal((held.shape[1], n_columns))
            of_topics = generator.standard_normal((len(self.topics), n_columns))
            noise = 0.5 * generator.standard_normal((len(held), n_columns))
            X = held @ of_labels + of_topics[topics] + noise
        # Rounded, to drop the digits in which machines may differ.
        return np.round(X, 3).astype(np.float32)
