from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from polyseme.datasets import FORMS as ALL_FORMS
from polyseme.datasets import load_dataset
from polyseme.datasets.samples import AMBIGUOUS, IMAGES, MUSIC

FAMILIES = {"images": IMAGES, "music": MUSIC}
# The sample of an embedded dataset is a part of it, not a world of its own.
FORMS = {name: form for name, form in ALL_FORMS.items() if form.embedded is None}
each_form = pytest.mark.parametrize("form", FORMS.values(), ids=list(FORMS))


@pytest.fixture(scope="module")
def samples():
    return {name: load_dataset(name, sample=True) for name in FORMS}


# ------------------------------------------------------------------ one sample


@each_form
def test_a_sample_has_the_shape_of_its_dataset(form, samples):
    sample = samples[form.name]
    corpus = sample.corpus
    sizes, counts = np.diff(corpus.matrix.indptr), np.asarray(corpus.matrix.sum(axis=0)).ravel()
    assert 200 <= len(corpus) <= 300 and 24 <= len(corpus.labels) <= 40
    assert counts.min() >= 2 and (counts <= 5).sum() >= 3, "a few rare labels"
    assert (sizes == 0).sum() == {"hsun": 3, "corel5k": 2}.get(form.name, 0)
    assert 2 <= sizes.mean() <= 4
    assert sample.is_sample and not sample.as_published() and sample.files == {}
    assert sample.form is form and sample.name == form.name
    assert (sample.X is not None) == form.has_features
    assert not form.has_groups or corpus.groups is not None
    assert not form.has_splits or {"train", "test"} <= set(corpus.splits)


@each_form
def test_a_sample_is_the_same_every_time_and_no_two_are_alike(form, samples):
    again, first = load_dataset(form.name, sample=True), samples[form.name]
    assert again.checksum == first.checksum
    assert sum(one.checksum == first.checksum for one in samples.values()) == 1
    assert again.X is None or np.array_equal(again.X, first.X)


def test_the_digest_of_a_sample_covers_all_it_holds(samples):
    parts = FORMS["mtg-jamendo"].sample()
    featured = FORMS["hsun"].sample()
    corpus = parts.corpus
    changed = [
        replace(parts, corpus=replace(corpus, ids=corpus.ids[::-1])),
        replace(parts, corpus=replace(corpus, groups=corpus.groups[::-1])),
        replace(parts, corpus=replace(corpus, splits=corpus.splits[::-1])),
        replace(parts, corpus=replace(corpus, matrix=corpus.matrix[::-1])),
        replace(parts, corpus=replace(corpus, labels=corpus.labels[::-1])),
        featured,
        replace(featured, X=featured.X + 1),
        replace(featured, feature_names=featured.feature_names[::-1]),
    ]
    assert len({one.digest() for one in (parts, *changed)}) == len(changed) + 1


@pytest.mark.parametrize("domain", FAMILIES)
def test_some_labels_of_a_family_belong_to_two_topics(domain, samples):
    topics = Counter(label for labels in FAMILIES[domain].values() for label in labels)
    assert {label for label, count in topics.items() if count > 1} >= set(AMBIGUOUS[domain])
    for name, form in FORMS.items():
        if form.domain == domain:
            assert set(AMBIGUOUS[domain]) <= set(samples[name].corpus.labels)


@each_form
def test_no_sample_holds_a_label_that_it_should_lack(form, samples):
    recipe = form.sample.__self__
    labels = set(samples[form.name].corpus.labels)
    family = {label for labels in FAMILIES[form.domain].values() for label in labels}
    own = {label for labels in recipe.own.values() for label in labels}
    assert set(recipe.own) <= set(FAMILIES[form.domain]) and not own & family
    assert set(recipe.without) < family
    assert labels == (family | own) - set(recipe.without)


PAIRS = [
    pair
    for pair in itertools.permutations(FORMS, 2)
    if FORMS[pair[0]].domain == FORMS[pair[1]].domain
]


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_two_samples_of_a_family_share_some_labels_and_not_all(source, target, samples):
    known = set(samples[source].corpus.labels)
    corpus = samples[target].corpus
    inside = np.array([label in known for label in corpus.labels])
    assert inside.sum() >= 20 and (~inside).sum() >= 3
    held = corpus.matrix.toarray()
    n_inside, n_outside = held[:, inside].sum(axis=1), held[:, ~inside].sum(axis=1)
    usable = (n_inside >= 1) & (n_outside <= 2)
    assert usable.sum() >= 180 and (usable & (n_outside > 0)).sum() >= 15


@pytest.mark.parametrize("name", [name for name in FORMS if FORMS[name].has_groups])
def test_groups_of_a_sample_have_one_topic_and_stay_in_one_part_of_the_split(name, samples):
    corpus = samples[name].corpus
    sizes = Counter(corpus.groups)
    assert len(set(sizes.values())) > 2 and len(sizes) >= 40
    if corpus.splits is not None:
        assert len(set(zip(corpus.groups, corpus.splits, strict=True))) == len(sizes)


def test_songs_of_an_artist_share_their_labels_where_tags_are_given_to_artists(samples):
    for name, shared in (("msd-subset", True), ("genius", False)):
        corpus = samples[name].corpus
        sets = [
            tuple(corpus.matrix.indices[a:b]) for a, b in itertools.pairwise(corpus.matrix.indptr)
        ]
        n_sets = len(set(zip(corpus.groups, sets, strict=True)))
        assert (n_sets == len(set(corpus.groups))) == shared


def test_the_detectors_of_the_sample_are_named_after_labels_and_find_them(samples):
    hsun = samples["hsun"]
    assert hsun.feature_names == hsun.corpus.labels
    stored = FORMS["hsun"].sample().X
    assert np.array_equal(hsun.X, np.sqrt(stored)) and 0 <= stored.min() <= stored.max() <= 1
    held = hsun.corpus.matrix.toarray()
    for column in range(held.shape[1]):
        mine = held[:, column]
        assert hsun.X[mine, column].mean() > hsun.X[~mine, column].mean() + 0.2
    # A detector must not be perfect, or the sample would test nothing.
    assert (hsun.X[~held] > np.median(hsun.X[held])).any()


@pytest.mark.parametrize("name", ["corel5k", "labelme", "magtag5k", "msd", "msd-subset"])
def test_dense_features_of_a_sample_carry_the_labels(name, samples):
    sample = samples[name]
    held = sample.corpus.matrix.toarray().astype(float)
    half = len(held) // 2
    X = np.column_stack([sample.X, np.ones(len(held))])
    weights, *_ = np.linalg.lstsq(X[:half], held[:half], rcond=None)
    left = ((held[half:] - X[half:] @ weights) ** 2).sum()
    assert left < 0.7 * ((held[half:] - held[:half].mean(axis=0)) ** 2).sum()
