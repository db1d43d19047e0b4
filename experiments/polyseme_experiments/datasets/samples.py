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

from polyseme.base.validation import IntArray
from polyseme.documents.corpus import LabelCorpus
from polyseme_experiments.datasets.base import DatasetContent

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
        """Return the sample."""
        generator = np.random.default_rng(self.seed)
        group_numbers = self._groups()
        topics = group_numbers % len(self.topics)
        documents = self._documents(topics, group_numbers, generator)
        ids = [f"sample-{row:03d}" for row in range(self.n_documents)]
        corpus = LabelCorpus.from_documents(documents, ids=ids)
        groups = None
        if self.group_size:
            groups = tuple(f"group-{number:03d}" for number in group_numbers)
        splits = self._splits(group_numbers, generator)
        corpus = replace(corpus, groups=groups, splits=splits)
        if self.features is None:
            return DatasetContent(corpus)
        X = self._features(corpus, topics, generator)
        names = corpus.labels if self.features == "detectors" else self.feature_names
        return DatasetContent(corpus, X, names)

    def _groups(self) -> IntArray:
        """Return the number of every document's group; sizes go round from 1 to 2 * mean - 1."""
        rows = np.arange(self.n_documents, dtype=np.int64)
        if not self.group_size:
            return rows
        # Topics go round from group to group; a size must meet all of them.
        rounds = rows // len(self.topics)
        n_sizes = 2 * self.group_size - 1
        sizes = 1 + rounds % n_sizes
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
                shuffled_units = generator.permutation(np.unique(units))
                n_holders = max(2, round(chance * len(shuffled_units)))
                holders = shuffled_units[:n_holders]
                for row in rows[np.isin(units, holders)]:
                    documents[row].add(label)
            default_label = self.topics[topic][0]
            for row in rows:
                # A document of a topic that drew nothing would be empty by accident.
                documents[row] = documents[row] or {default_label}
        shuffled_rows = generator.permutation(len(documents))
        for row in shuffled_rows[: self.n_empty]:
            documents[row] = set()
        return documents

    def _chances(self, topic: str) -> dict[str, float]:
        """Return the chance of each label of a topic in this dataset."""
        chances = dict(zip(self.topics[topic], _CHANCES, strict=True))
        extra_labels = self.own.get(topic, ())
        chances.update(zip(extra_labels, _OWN_CHANCES, strict=False))
        return {label: chance for label, chance in chances.items() if label not in self.without}

    def _splits(self, groups: IntArray, generator: np.random.Generator) -> tuple[str, ...] | None:
        """Share the groups out over the parts of the official split."""
        if not self.splits:
            return None
        names = list(self.splits)
        n_groups = int(groups.max()) + 1
        ranks = np.argsort(generator.permutation(n_groups))
        shares = list(self.splits.values())
        ends = np.cumsum(shares)[:-1] * n_groups
        numbers = np.searchsorted(ends, ranks[groups], side="right")
        return tuple(names[number] for number in numbers)

    def _features(
        self, corpus: LabelCorpus, topics: IntArray, generator: np.random.Generator
    ) -> NDArray[np.float32]:
        """Draw noisy features (n_documents, n_features) from labels and topics."""
        labels = corpus.matrix.toarray().astype(np.float64)
        n_documents, n_labels = labels.shape
        if self.features == "detectors":
            # Detectors of the labels of the same topic fire a little too.
            rows = []
            for topic in self.topics:
                chances = self._chances(topic)
                rows.append([label in chances for label in corpus.labels])
            related = np.array(rows)
            noise = 0.15 * generator.standard_normal(labels.shape)
            activations = 0.1 + 0.5 * labels + 0.1 * related[topics] + noise
            X = np.clip(activations, 0.0, 1.0)
        else:
            n_columns = len(self.feature_names or ()) or _DENSE_COLUMNS
            label_points = generator.standard_normal((n_labels, n_columns))
            topic_points = generator.standard_normal((len(self.topics), n_columns))
            noise = 0.5 * generator.standard_normal((n_documents, n_columns))
            X = labels @ label_points + topic_points[topics] + noise
        # Rounded, to drop the digits in which machines may differ.
        return np.round(X, 3).astype(np.float32)
