"""Synthetic samples have the shape of their datasets; the toy world's right answers are right."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from polyseme.datasets import known_specs, load_dataset
from polyseme.datasets.toy import AMBIGUOUS, OOV, THEMES, UNSEEN, toy_world

# The sample of an embedded dataset is a part of it, not a synthetic one.
SPECS = {name: spec for name, spec in known_specs().items() if spec.embedded is None}
each_spec = pytest.mark.parametrize("spec", SPECS.values(), ids=list(SPECS))


@pytest.fixture(scope="module")
def samples():
    return {name: load_dataset(name, sample=True) for name in SPECS}


@each_spec
def test_a_sample_has_the_shape_of_its_dataset(spec, samples):
    sample = samples[spec.name]
    corpus = sample.corpus
    sizes = np.diff(corpus.matrix.indptr)
    counts = np.asarray(corpus.matrix.sum(axis=0)).ravel()
    assert 200 <= len(corpus) <= 300
    assert 24 <= len(corpus.labels) <= 40
    assert counts.min() >= 2, "a few rare labels"
    assert (counts <= 5).sum() >= 3, "a few rare labels"
    assert (sizes == 0).sum() == {"hsun": 3, "corel5k": 2}.get(spec.name, 0)
    assert 2 <= sizes.mean() <= 4
    assert sample.is_sample
    assert not sample.as_published()
    assert sample.files == {}
    assert sample.spec is spec
    assert (sample.X is not None) == spec.has_features
    assert not spec.has_groups or corpus.groups is not None
    assert not spec.has_splits or {"train", "test"} <= set(corpus.splits)
    assert load_dataset(spec.name, sample=True).checksum == sample.checksum, "not the same again"
    assert sum(other.checksum == sample.checksum for other in samples.values()) == 1


def test_the_digest_of_a_sample_covers_all_it_holds():
    content = SPECS["mtg-jamendo"].sample()
    featured = SPECS["hsun"].sample()
    corpus = content.corpus
    changed = [
        replace(content, corpus=replace(corpus, **{name: getattr(corpus, name)[::-1]}))
        for name in ("ids", "groups", "splits", "matrix", "labels")
    ]
    changed += [featured, replace(featured, X=featured.X + 1)]
    changed += [replace(featured, feature_names=featured.feature_names[::-1])]
    assert len({each.digest() for each in (content, *changed)}) == len(changed) + 1


def test_the_toy_world_keeps_its_promises():
    world = toy_world(n_documents=100, n_test=10, random_state=0)
    assert world.X.shape == (100, 5)
    assert world.X_test.shape == (10, 5)
    labels = tuple(sorted({label for theme in THEMES.values() for label in theme}))
    assert set().union(*world.label_sets) == set(labels) - set(OOV)
    assert set().union(*world.documents) == set(labels) - set(UNSEEN)
    for document in world.label_sets + world.documents:
        assert any(set(document) <= set(theme) for theme in THEMES.values())
    assert np.corrcoef(world.X.T).max(initial=-1, where=~np.eye(5, dtype=bool)) < 0
    truth = world.truth(labels)
    assert truth.sum(axis=1).tolist() == [6] * 10
    assert truth[:, labels.index(AMBIGUOUS)].sum() == 4
    again, other = (toy_world(n_documents=100, n_test=10, random_state=seed) for seed in (0, 1))
    assert np.array_equal(world.X, again.X)
    assert world.label_sets == again.label_sets
    assert world.label_sets != other.label_sets
