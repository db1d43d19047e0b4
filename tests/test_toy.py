"""The toy world: its right answers are right."""

from __future__ import annotations

import numpy as np

from polyseme.datasets.toy import AMBIGUOUS, OOV, THEMES, UNSEEN, toy_world


def test_toy_world_keeps_its_promises():
    world = toy_world(n_documents=100, n_test=10, random_state=0)
    assert world.X.shape == (100, 5)
    assert world.X_test.shape == (10, 5)
    labels = tuple(sorted({label for theme in THEMES.values() for label in theme}))
    assert set().union(*world.semantics) == set(labels) - set(OOV)
    assert set().union(*world.documents) == set(labels) - set(UNSEEN)
    for document in world.semantics + world.documents:
        assert any(set(document) <= set(theme) for theme in THEMES.values())
    assert np.corrcoef(world.X.T).max(initial=-1, where=~np.eye(5, dtype=bool)) < 0
    truth = world.truth(labels)
    assert truth.sum(axis=1).tolist() == [6] * 10
    assert truth[:, labels.index(AMBIGUOUS)].sum() == 4


def test_toy_world_repeats_with_its_seed():
    first, second, other = (toy_world(n_documents=10, random_state=seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first.X, second.X)
    assert first.semantics == second.semantics != other.semantics
