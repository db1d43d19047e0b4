"""Synthetic samples have the shape of their datasets; the toy world's right answers are right."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from polyseme.documents.toy import AMBIGUOUS, OOV, THEMES, UNSEEN, toy_world
from polyseme_experiments.datasets import known_specs, load_dataset

# The sample of an embedded dataset is a part of it, not a synthetic one.
SPECS = {name: spec for name, spec in known_specs().items() if spec.embedded is None}
each_spec = pytest.mark.parametrize("spec", SPECS.values(), ids=list(SPECS))


@pytest.fixture(scope="module")
def samples():
    return {name: load_dataset(name, sample=True) for name in SPECS}


@each_spec
def test_a_sample_has_the_shape_of_its_dataset(spec, samples):
    sample = samples[spec.name]
    assert sample.spec is spec
    assert sample.is_sample
    assert not sample.as_published()
    assert sample.files == {}
    assert (sample.X is not None) == spec.has_features
    corpus = sample.corpus
    assert 200 <= len(corpus) <= 300
    if spec.has_groups:
        assert corpus.groups is not None
    if spec.has_splits:
        assert {"train", "test"} <= set(corpus.splits)


@each_spec
def test_a_sample_has_a_few_rare_labels_and_few_labels_a_document(spec, samples):
    corpus = samples[spec.name].corpus
    assert 24 <= len(corpus.labels) <= 40
    counts = np.asarray(corpus.matrix.sum(axis=0)).ravel()
    assert counts.min() >= 2
    assert np.count_nonzero(counts <= 5) >= 3
    sizes = np.diff(corpus.matrix.indptr)
    n_empty = {"hsun": 3, "corel5k": 2}.get(spec.name, 0)
    assert np.count_nonzero(sizes == 0) == n_empty
    assert 2 <= sizes.mean() <= 4


@each_spec
def test_a_sample_is_always_the_same_and_differs_from_all_others(spec, samples):
    checksum = samples[spec.name].checksum
    reloaded = load_dataset(spec.name, sample=True)
    assert reloaded.checksum == checksum
    checksums = [sample.checksum for sample in samples.values()]
    assert checksums.count(checksum) == 1


def test_the_digest_of_a_sample_covers_all_it_holds():
    music = SPECS["mtg-jamendo"].sample()
    contents = [music]
    for name in ("ids", "groups", "splits", "matrix", "labels"):
        reversed_field = getattr(music.corpus, name)[::-1]
        corpus = replace(music.corpus, **{name: reversed_field})
        contents.append(replace(music, corpus=corpus))

    scenes = SPECS["hsun"].sample()
    contents.append(scenes)
    contents.append(replace(scenes, X=scenes.X + 1))
    contents.append(replace(scenes, feature_names=scenes.feature_names[::-1]))
    digests = {content.digest() for content in contents}
    assert len(digests) == len(contents)


@pytest.fixture(scope="module")
def small_world():
    return toy_world(n_documents=100, n_test=10, random_state=0)


def test_the_toy_world_has_seen_unseen_and_oov_labels(small_world):
    assert small_world.X.shape == (100, 5)
    assert small_world.X_test.shape == (10, 5)
    labels = set().union(*THEMES.values())
    labels_of_sets = set().union(*small_world.label_sets)
    assert labels_of_sets == labels.difference(OOV)
    labels_of_items = set().union(*small_world.documents)
    assert labels_of_items == labels.difference(UNSEEN)


def test_every_document_of_the_toy_world_keeps_to_a_theme(small_world):
    for document in small_world.label_sets + small_world.documents:
        assert any(set(document) <= set(theme) for theme in THEMES.values())


def test_features_of_the_toy_world_are_anticorrelated(small_world):
    correlations = np.corrcoef(small_world.X.T)
    off_diagonal = correlations[~np.eye(5, dtype=bool)]
    assert off_diagonal.max() < 0


def test_the_truth_of_the_toy_world_holds_six_labels_an_item(small_world):
    labels = sorted(set().union(*THEMES.values()))
    truth = small_world.truth(tuple(labels))
    sizes = truth.sum(axis=1)
    assert sizes.tolist() == [6] * 10
    ambiguous = truth[:, labels.index(AMBIGUOUS)]
    assert ambiguous.sum() == 4


def test_the_toy_world_comes_from_its_seed(small_world):
    repeated = toy_world(n_documents=100, n_test=10, random_state=0)
    assert np.array_equal(small_world.X, repeated.X)
    assert small_world.label_sets == repeated.label_sets
    of_another_seed = toy_world(n_documents=100, n_test=10, random_state=1)
    assert small_world.label_sets != of_another_seed.label_sets
