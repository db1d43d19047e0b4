from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polyseme import LabelCorpus, PublishedTagger
from polyseme._folds import fold_numbers, group_numbers, hidden_groups
from polyseme._validation import InputError
from polyseme.published.mapping import PENALTY_GRID, InstanceMapper


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


def test_every_label_is_hidden_once():
    groups = list(hidden_groups(10, 4, np.random.default_rng(0)))
    assert np.array_equal(np.sum(groups, axis=0), np.ones(10))
    assert len(groups) == 4
    assert list(hidden_groups(1, 4, np.random.default_rng(0))) == []


def test_groups_of_the_wrong_length_get_one_sentence():
    with pytest.raises(InputError, match=r"one group for each of the 3 rows; got shape \(2,\)"):
        group_numbers(["a", "b"], 3)
    with pytest.raises(InputError, match=r"one group for each of the 4 rows"):
        InstanceMapper().fit(np.zeros((4, 1)), np.zeros((4, 1)), groups=["a"])


def test_a_mapper_that_knows_the_groups_is_not_fooled_by_repeats():
    generator = np.random.default_rng(0)
    X = np.repeat(generator.normal(size=(60, 4)), 2, axis=0)
    points = np.repeat(generator.normal(size=(60, 3)), 2, axis=0)
    groups = np.repeat(np.arange(60), 2)
    naive, wary, single = (
        InstanceMapper(kind="kernel-ridge", random_state=0).fit(X, points, chosen)
        for chosen in (None, groups, np.zeros(len(X)))
    )
    best = [min(row["mse"] for row in mapper.cv_results_) for mapper in (naive, wary)]
    # Targets are noise: what is predicted better than their mean was copied from the other half.
    assert best[0] < 0.7 * best[1]
    assert wary.penalty_ > naive.penalty_
    assert single.cv_results_ == []  # with one group the first settings are taken
    assert single.penalty_ == PENALTY_GRID[0]


def test_the_tagger_tells_its_mapper_the_groups_of_placed_instances(
    world, tiny_embedding, monkeypatch
):
    noted = []
    fit = InstanceMapper.fit
    monkeypatch.setattr(
        InstanceMapper,
        "fit",
        lambda self, X, points, groups=None: noted.append(groups) or fit(self, X, points, groups),
    )
    # An oov label alone cannot be placed.
    documents = LabelCorpus.from_documents([("owl",), *world.documents[1:]])
    documents = replace(documents, groups=tuple(f"g{row // 7}" for row in range(300)))
    mapper = InstanceMapper(kind="kernel-ridge")
    tagger = PublishedTagger(embedding=tiny_embedding(), mapper=mapper, random_state=0)
    with pytest.warns(UserWarning, match="1 of 600 documents hold no label"):
        tagger.fit(world.X, documents, world.label_sets, label_sets_only=True)
    assert noted == [tuple(f"g{row // 7}" for row in range(1, 300))]
