from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import polyseme.published.mapping
from polyseme import LabelCorpus, PublishedTagger
from polyseme._folds import fold_numbers, group_numbers
from polyseme._validation import InputError
from polyseme.published.mapping import InstanceMapper


@given(st.lists(st.integers(0, 12), min_size=1, max_size=60), st.integers(1, 6), st.integers(0, 99))
@settings(deadline=None, max_examples=60)
def test_a_group_is_in_one_fold_and_folds_are_numbered_without_gaps(groups, n_folds, seed):
    folds = fold_numbers(len(groups), n_folds, np.random.default_rng(seed), groups)
    for group in set(groups):
        assert len({fold for fold, one in zip(folds, groups, strict=True) if one == group}) == 1
    n_groups = len(set(groups))
    assert sorted(set(folds.tolist())) == list(range(min(n_folds, n_groups)))


@pytest.mark.parametrize(("n", "n_folds", "sizes"), [(10, 3, [4, 3, 3]), (2, 4, [1, 1])])
@pytest.mark.parametrize("grouped", [False, True])
def test_folds_of_single_rows_are_balanced(n, n_folds, sizes, grouped):
    groups = [f"g{row}" for row in range(n)] if grouped else None
    folds = fold_numbers(n, n_folds, np.random.default_rng(0), groups)
    assert sorted(np.bincount(folds).tolist(), reverse=True) == sizes


def test_the_seed_decides_the_folds():
    groups = np.repeat(np.arange(20), 3)
    first, again, other = (
        fold_numbers(60, 3, np.random.default_rng(seed), groups) for seed in (0, 0, 1)
    )
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def test_groups_of_the_wrong_length_get_one_sentence():
    with pytest.raises(InputError, match=r"one group for each of the 3 rows; got shape \(2,\)"):
        group_numbers(["a", "b"], 3)
    with pytest.raises(InputError, match=r"one group for each of the 4 rows"):
        InstanceMapper().fit(np.zeros((4, 1)), np.zeros((4, 1)), groups=["a"])


@pytest.fixture
def doubles():
    """Rows in pairs: the second of a pair repeats the first's features, and its target."""
    generator = np.random.default_rng(0)
    X = np.repeat(generator.normal(size=(60, 4)), 2, axis=0)
    points = np.repeat(generator.normal(size=(60, 3)), 2, axis=0)
    return X, points, np.repeat(np.arange(60), 2)


def test_a_mapper_that_knows_the_groups_is_not_fooled_by_repeats(doubles):
    X, points, groups = doubles
    naive = InstanceMapper(kind="kernel-ridge", random_state=0).fit(X, points)
    wary = InstanceMapper(kind="kernel-ridge", random_state=0).fit(X, points, groups)
    best = [min(row["mse"] for row in mapper.cv_results_) for mapper in (naive, wary)]
    # Targets are noise: what is predicted better than their mean was copied from the other half.
    assert best[0] < 0.7 * best[1]
    assert wary.penalty_ > naive.penalty_


def test_a_mapper_with_one_group_takes_the_first_settings(doubles):
    X, points, _ = doubles
    mapper = InstanceMapper(kind="kernel-ridge", random_state=0).fit(X, points, np.zeros(len(X)))
    assert mapper.cv_results_ == []
    assert mapper.penalty_ == polyseme.published.mapping.PENALTY_GRID[0]


def grouped(documents, size):
    corpus = LabelCorpus.from_documents(documents)
    return replace(corpus, groups=tuple(f"g{row // size}" for row in range(len(corpus))))


def test_the_tagger_tells_its_mapper_the_groups_of_placed_instances(
    world, tiny_embedding, monkeypatch
):
    told = []
    fit = InstanceMapper.fit
    monkeypatch.setattr(
        InstanceMapper,
        "fit",
        lambda self, X, points, groups=None: told.append(groups) or fit(self, X, points, groups),
    )
    documents = [("owl",), *world.documents[1:]]  # an oov label alone cannot be placed
    mapper = InstanceMapper(kind="kernel-ridge")
    tagger = PublishedTagger(embedding=tiny_embedding(), mapper=mapper, random_state=0)
    with pytest.warns(UserWarning, match="1 of 600 documents hold no label"):
        tagger.fit(world.X, grouped(documents, 7), world.label_sets)
    assert told == [tuple(f"g{row // 7}" for row in range(1, 300))]
