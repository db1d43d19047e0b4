"""Synthetic samples have the shape of their datasets; the toy world's right answers are right."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from polyseme.datasets import SPECS as ALL_SPECS
from polyseme.datasets import load_dataset
from polyseme.datasets.samples import TOPICS
from polyseme.datasets.toy import AMBIGUOUS, OOV, THEMES, UNSEEN, toy_world

# The sample of an embedded dataset is a part of it, not a synthetic one.
SPECS = {name: spec for name, spec in ALL_SPECS.items() if spec.embedded is None}
# labels that stand for two things: an instrument or a sound, a machine or a bird, …
TWO_TOPICS = {"music": {"guitar", "piano", "bass", "synth"}, "images": {"crane", "mouse", "rock"}}
each_spec = pytest.mark.parametrize("spec", SPECS.values(), ids=list(SPECS))


@pytest.fixture(scope="module")
def samples():
    return {name: load_dataset(name, sample=True) for name in SPECS}


@each_spec
def test_a_sample_has_the_shape_of_its_dataset(spec, samples):
    sample = samples[spec.name]
    corpus = sample.corpus
    sizes, counts = np.diff(corpus.matrix.indptr), np.asarray(corpus.matrix.sum(axis=0)).ravel()
    assert 200 <= len(corpus) <= 300 and 24 <= len(corpus.labels) <= 40
    assert counts.min() >= 2 and (counts <= 5).sum() >= 3, "a few rare labels"
    assert (sizes == 0).sum() == {"hsun": 3, "corel5k": 2}.get(spec.name, 0)
    assert 2 <= sizes.mean() <= 4
    assert sample.is_sample and not sample.as_published() and sample.files == {}
    assert sample.spec is spec and (sample.X is not None) == spec.has_features
    assert not spec.has_groups or corpus.groups is not None
    assert not spec.has_splits or {"train", "test"} <= set(corpus.splits)


@each_spec
def test_a_sample_is_the_same_every_time_and_no_two_are_alike(spec, samples):
    again, first = load_dataset(spec.name, sample=True), samples[spec.name]
    assert again.checksum == first.checksum
    assert sum(other.checksum == first.checksum for other in samples.values()) == 1
    assert again.X is None or np.array_equal(again.X, first.X)


def test_the_digest_of_a_sample_covers_all_it_holds():
    content, featured = SPECS["mtg-jamendo"].sample(), SPECS["hsun"].sample()
    corpus = content.corpus
    changed = [
        replace(content, corpus=replace(corpus, **{name: getattr(corpus, name)[::-1]}))
        for name in ("ids", "groups", "splits", "matrix", "labels")
    ]
    changed += [featured, replace(featured, X=featured.X + 1)]
    changed += [replace(featured, feature_names=featured.feature_names[::-1])]
    assert len({each.digest() for each in (content, *changed)}) == len(changed) + 1


@each_spec
def test_a_sample_holds_the_labels_of_its_domain_and_its_own(spec, samples):
    sample = spec.sample.__self__
    topics = Counter(label for labels in TOPICS[spec.domain].values() for label in labels)
    own = {label for labels in sample.own.values() for label in labels}
    assert set(sample.own) <= set(TOPICS[spec.domain]) and not own & set(topics)
    assert set(sample.without) < set(topics)
    labels = set(samples[spec.name].corpus.labels)
    assert labels == (set(topics) | own) - set(sample.without)
    assert labels >= TWO_TOPICS[spec.domain]
    assert all(topics[label] > 1 for label in TWO_TOPICS[spec.domain])


@pytest.mark.parametrize("name", [name for name in SPECS if SPECS[name].has_groups])
def test_groups_of_a_sample_stay_in_one_part_of_the_split(name, samples):
    corpus = samples[name].corpus
    sizes = Counter(corpus.groups)
    assert len(set(sizes.values())) > 2 and len(sizes) >= 40
    if corpus.splits is not None:
        assert len(set(zip(corpus.groups, corpus.splits, strict=True))) == len(sizes)
    # Where tags are given to artists, songs of an artist share their labels.
    n_sets = len(set(zip(corpus.groups, corpus, strict=True)))
    assert (n_sets == len(sizes)) == (name == "msd-subset")


def test_the_toy_world_keeps_its_promises():
    world = toy_world(n_documents=100, n_test=10, random_state=0)
    assert world.X.shape == (100, 5) and world.X_test.shape == (10, 5)
    labels = tuple(sorted({label for theme in THEMES.values() for label in theme}))
    assert set().union(*world.semantics) == set(labels) - set(OOV)
    assert set().union(*world.documents) == set(labels) - set(UNSEEN)
    for document in world.semantics + world.documents:
        assert any(set(document) <= set(theme) for theme in THEMES.values())
    assert np.corrcoef(world.X.T).max(initial=-1, where=~np.eye(5, dtype=bool)) < 0
    truth = world.truth(labels)
    assert truth.sum(axis=1).tolist() == [6] * 10
    assert truth[:, labels.index(AMBIGUOUS)].sum() == 4
    again, other = (toy_world(n_documents=100, n_test=10, random_state=seed) for seed in (0, 1))
    assert np.array_equal(world.X, again.X) and world.semantics == again.semantics
    assert world.semantics != other.semantics
