"""Simple rankers: ridge regression with co-occurrence, and the frequency of labels."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.linear_model import Ridge as PlainRidge
from sklearn.preprocessing import StandardScaler

from polyseme import LabelCorpus
from polyseme.linear_path import PENALTIES
from polyseme.simple_rankers import FrequencyRanker, RidgeRanker, simple_rankers


@pytest.fixture(scope="module")
def collection(world):
    items = LabelCorpus.from_documents(world.documents)
    return world.X, items, LabelCorpus.from_documents(world.label_sets)


@pytest.mark.parametrize("form", [np.asarray, sp.csr_matrix])
def test_seen_labels_are_ranked_by_ridge_regression(collection, world, form):
    X, items, label_sets = collection
    ranker = RidgeRanker().fit(form(X), items, label_sets)
    scores = ranker.decision_function(form(world.X_test))[:, ranker.seen_]
    labels = ranker.classes_[ranker.seen_].tolist()
    truth = items.align(labels)[0].toarray().astype(float)
    scaler = StandardScaler().fit(X)
    plain = [
        PlainRidge(alpha=penalty * len(X)).fit(scaler.transform(X), truth) for penalty in PENALTIES
    ]
    expected = [model.predict(scaler.transform(world.X_test)) for model in plain]
    assert min(np.abs(scores - each).max() for each in expected) < 1e-4


def test_unseen_labels_are_ranked_by_the_seen_ones_they_occur_with(collection, world):
    ranker = RidgeRanker().fit(*collection)
    assert set(world.unseen) == set(ranker.classes_[~ranker.seen_])
    scores = ranker.decision_function(world.X_test)
    for label in world.unseen:
        column = ranker.classes_.tolist().index(label)
        belongs = world.truth((label,))[:, 0]
        assert scores[belongs, column].min() > scores[~belongs, column].max()


def test_frequent_labels_come_first_for_every_item(collection, world):
    ranker = FrequencyRanker().fit(*collection)
    scores = ranker.decision_function(world.X_test)
    counts = dict(zip(collection[2].labels, collection[2].counts.tolist(), strict=True))
    order = ranker.classes_[np.argsort(-scores[0], kind="stable")]
    held = [counts.get(label, 0) for label in order]
    assert held == sorted(held, reverse=True)
    assert (scores == scores[0]).all()


def test_ridge_regression_is_left_out_where_there_are_too_many_features():
    assert list(simple_rankers(100)) == ["ridge regression", "most frequent labels"]
    assert list(simple_rankers(100_000)) == ["most frequent labels"]
