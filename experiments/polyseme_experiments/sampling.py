"""Split sampling: from a setting to a split, with data loaded and labels hidden.

In: a setting, a trial's number and the run configuration of a call. Out: datasets and a
`ZeroShotSplit`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from polyseme.base.validation import InputError
from polyseme.documents.corpus import LabelCorpus
from polyseme.documents.word_vectors import WordVectors
from polyseme_experiments import SEED
from polyseme_experiments.datasets import Dataset, choose, load_dataset
from polyseme_experiments.media import NAMED, load_pictures
from polyseme_experiments.settings import Setting, get_setting
from polyseme_experiments.splits import (
    LabelSplit,
    ZeroShotSplit,
    cross_corpora,
    labels_by_document_share,
    oov_test,
    random_labels,
    within_corpus,
)

N_ATTEMPTS = 20


@dataclass(frozen=True)
class RunConfig:
    """What all runs of a call have in common."""

    data: str | None = None  # the folder of the corpora
    seed: int = SEED  # trial t draws its labels with seed + t
    quick: bool = False  # samples and short trainings in place of the real thing
    preset: str = "default"  # how the concept space and the mapping are trained
    cache: str | None = None  # where concept spaces are kept for other runs; None keeps nothing
    pictures: str | None = None  # a folder of the user's pictures, for settings that take one


@lru_cache(maxsize=4)
def load_once(name: str, data: str | None, sample: bool) -> Dataset:
    """Load a dataset once for all trials of a process."""
    return load_dataset(name, data, sample=sample)


@lru_cache(maxsize=1)
def word_vectors(data: str | None) -> WordVectors:
    """Load the word vectors of a data folder once for all trials of a process."""
    return WordVectors.find(data)


def uses_own_pictures(setting: Setting, config: RunConfig) -> bool:
    """Return whether the user's pictures replace a setting's corpora."""
    return setting.named_pictures and config.pictures is not None


def chosen_pair(setting: Setting, config: RunConfig) -> tuple[str, str]:
    """Return the first pair of corpora whose folders exist; for samples, see `Setting`."""
    if uses_own_pictures(setting, config):
        return NAMED, NAMED
    if config.quick:
        return setting.sample_pair()
    return choose(setting.corpora, config.data)


def load_pair(setting: Setting, config: RunConfig) -> tuple[Dataset, Dataset]:
    """Load a setting's source and target, which may be one and the same."""
    if uses_own_pictures(setting, config):
        dataset = load_pictures(config.pictures or "", config.cache)
        return dataset, dataset
    source_name, target_name = chosen_pair(setting, config)
    folder = config.data
    source = load_once(source_name, folder, config.quick)
    target = load_once(target_name, folder, config.quick)
    return source, target


def draw_split(setting: Setting, trial: int, config: RunConfig) -> ZeroShotSplit:
    """Draw the labels to hide, then the sets of documents; repeat while a set is empty."""
    for attempt in range(N_ATTEMPTS):
        label_seed = config.seed + trial + 1000 * attempt
        split = _attempt(setting, trial, config, label_seed)
        if len(split.train) and len(split.test):
            return split
    raise InputError(
        f"The setting '{setting.name}' found no labels that leave instances to train and to test "
        f"in {N_ATTEMPTS} draws; its corpora may be too small."
    )


def _attempt(setting: Setting, trial: int, config: RunConfig, label_seed: int) -> ZeroShotSplit:
    """Draw the labels to hide with a seed, then the sets of documents."""
    first, second = load_pair(setting, config)
    split_seed = config.seed + setting.partition(trial)
    arguments = dict(setting.split) | {"random_state": split_seed}
    if setting.protocol != "cross":
        source = kept_labels(first, setting)
        labels = _draw_labels(setting, source, label_seed, config)
        split = within_corpus(source, labels, **arguments)
        return oov_test(split) if setting.protocol == "oov" else split

    target = second.corpus
    is_papers_source = first.name == setting.corpora[0][0]
    if setting.taught_by is not None and is_papers_source:
        # The paper's own source: labels and semantics remain those of its own test.
        taught = draw_split(get_setting(setting.taught_by), trial, config)
        return cross_corpora(taught, target, **arguments)

    # Unseen labels are drawn among those of the target, and named as the source names them.
    source = kept_labels(first, setting)
    shared = [label for label in source.labels if target.restrict([label]).labels]
    target_labels = _draw_labels(setting, target.restrict(shared), label_seed, config)
    hidden = {source.key(label) for label in target_labels.unseen}
    seen: list[str] = []
    unseen: list[str] = []
    for label in source.labels:
        side = unseen if source.key(label) in hidden else seen
        side.append(label)
    labels = LabelSplit(tuple(seen), tuple(unseen))
    return cross_corpora(source, target, labels, **arguments)


def _draw_labels(setting: Setting, corpus: LabelCorpus, seed: int, config: RunConfig) -> LabelSplit:
    """Draw the labels to hide by the setting's generator."""
    arguments: dict[str, Any] = dict(setting.labels)
    if setting.label_pick == "random":
        return random_labels(corpus, random_state=seed, **arguments)
    if config.quick:
        # A sample has few labels, so its shares of documents jump.
        arguments |= {"document_share": (0.25, 0.7)}
        if "oov_share" in arguments:
            arguments |= {"oov_document_share": (0.3, 0.6)}
    return labels_by_document_share(corpus, random_state=seed, **arguments)


def kept_labels(dataset: Dataset, setting: Setting) -> LabelCorpus:
    """Return a dataset's corpus over the labels that the setting keeps."""
    corpus = dataset.corpus
    sums = corpus.matrix.sum(axis=0)
    counts = np.asarray(sums).ravel()
    min_documents = 1
    if not dataset.is_sample:
        min_documents = setting.min_documents.get(dataset.name, 1)
    columns = np.flatnonzero(counts >= min_documents)
    if setting.n_labels is not None:
        by_frequency = np.argsort(-counts[columns], kind="stable")
        most_frequent = by_frequency[: setting.n_labels]
        columns = np.sort(columns[most_frequent])
    if len(columns) == len(counts):
        return corpus
    labels = []
    for column in columns:
        labels.append(corpus.labels[column])
    return corpus.restrict(labels)
