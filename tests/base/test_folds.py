from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polyseme import LabelCorpus, PublishedTagger
from polyseme.base.folds import fold_numbers, group_numbers, hidden_groups
from polyseme.base.validation import InputError
from polyseme.published.mapping import PENALTY_GRID, InstanceMapper


@given(st.lists(st.integers(0, 12), min_size=1, max_size=60), st.integers(1, 6), st.integers(0, 99))
@settings(deadline=None, max_examples=60)
def test_a_group_is_in_one_fold_and_folds_are_numbered_without_gaps(groups, n_folds, seed):
    generator = np.random.default_rng(seed)
    folds = fold_numbers(len(groups), n_folds, generator, groups)
    pairs = set(zip(groups, folds.tolist(), strict=True))
    n_groups = len(set(groups))
    assert len(pairs) == n_groups
    expected = range(min(n_folds, n_groups))
    assert sorted(set(folds.tolist())) == list(expected)


@pytest.mark.parametrize(("n", "n_folds", "sizes"), [(10, 3, [4, 3, 3]), (2, 4, [1, 1])])
@pytest.mark.parametrize("grouped", [False, True])
def test_folds_of_single_rows_are_balanced(n, n_folds, sizes, grouped):
    groups = None
    if grouped:
        groups = [f"g{row}" for row in range(n)]
    folds = fold_numbers(n, n_folds, np.random.default_rng(0), groups)
    counts = np.bincount(folds).tolist()
    assert sorted(counts, reverse=True) == sizes


def test_every_label_is_hidden_once():
    generator = np.random.default_rng(0)
    groups = list(hidden_groups(10, 4, generator))
    assert len(groups) == 4
    n_hidden = np.sum(groups, axis=0)
    assert np.array_equal(n_hidden, np.ones(10))


def test_a_single_label_is_never_hidden():
    generator = np.random.default_rng(0)
    assert list(hidden_groups(1, 4, generator)) == []


def test_groups_of_the_wrong_length_get_one_sentence():
    with pytest.raises(InputError, match=r"one group for each of the 3 rows; got shape \(2,\)"):
        group_numbers(["a", "b"], 3)
    mapper = InstanceMapper()
    rows = np.zeros((4, 1))
    with pytest.raises(InputError, match=r"one group for each of the 4 rows"):
        mapper.fit(rows, rows, groups=["a"])


@pytest.fixture(scope="module")
def repeated():
    """Features and points of noise, every row twice."""
    generator = np.random.default_rng(0)
    X = generator.normal(size=(60, 4))
    points = generator.normal(size=(60, 3))
    return np.repeat(X, 2, axis=0), np.repeat(points, 2, axis=0)


def fit_mapper(data, groups):
    mapper = InstanceMapper(kind="kernel-ridge", random_state=0)
    return mapper.fit(*data, groups)


def test_a_mapper_that_knows_the_groups_is_not_fooled_by_repeats(repeated):
    without_groups = fit_mapper(repeated, None)
    with_groups = fit_mapper(repeated, np.repeat(np.arange(60), 2))
    error = min(row["mse"] for row in without_groups.cv_results_)
    error_with_groups = min(row["mse"] for row in with_groups.cv_results_)
    # Targets are noise: what is predicted better than their mean was copied from the other half.
    assert error < 0.7 * error_with_groups
    assert with_groups.penalty_ > without_groups.penalty_


def test_with_one_group_the_first_settings_are_taken(repeated):
    mapper = fit_mapper(repeated, np.zeros(120))
    assert mapper.cv_results_ == []
    assert mapper.penalty_ == PENALTY_GRID[0]


def test_the_mapper_gets_the_groups_of_the_instances_that_can_be_embedded(
    world, tiny_embedding, monkeypatch
):
    groups_of_fits = []
    fit = InstanceMapper.fit

    def record(self, X, points, groups=None):
        groups_of_fits.append(groups)
        return fit(self, X, points, groups)

    monkeypatch.setattr(InstanceMapper, "fit", record)
    # An oov label alone cannot be embedded.
    corpus = LabelCorpus.from_documents([("owl",), *world.documents[1:]])
    groups = tuple(f"g{row // 7}" for row in range(300))
    documents = replace(corpus, groups=groups)
    mapper = InstanceMapper(kind="kernel-ridge")
    tagger = PublishedTagger(embedding=tiny_embedding(), mapper=mapper, random_state=0)
    with pytest.warns(UserWarning, match="1 of 600 documents hold no label"):
        tagger.fit(world.X, documents, world.label_sets, label_sets_only=True)
    assert groups_of_fits == [groups[1:]]
