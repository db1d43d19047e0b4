"""Simple rankers: ridge regression with co-occurrence, and the frequency of labels."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.linear_model import Ridge as PlainRidge
from sklearn.preprocessing import StandardScaler

from polyseme import LabelCorpus
from polyseme.fitting.simple_rankers import FrequencyRanker, RidgeRanker, simple_rankers
from polyseme.space.linear_path import PENALTIES


@pytest.fixture(scope="module")
def collection(world):
    items = LabelCorpus.from_documents(world.documents)
    return world.X, items, LabelCorpus.from_documents(world.label_sets)


@pytest.mark.parametrize("form", [np.asarray, sp.csr_matrix])
def test_seen_labels_are_ranked_by_ridge_regression(collection, world, form):
    X, items, label_sets = collection
    ranker = RidgeRanker().fit(form(X), items, label_sets)
    seen = ranker.seen_
    scores = ranker.decision_function(form(world.X_test))[:, seen]
    labels = ranker.classes_[seen].tolist()
    matrix, _ = items.align(labels)
    truth = matrix.toarray().astype(float)
    scaler = StandardScaler().fit(X)
    errors = []
    for penalty in PENALTIES:
        reference = PlainRidge(alpha=penalty * len(X))
        reference.fit(scaler.transform(X), truth)
        expected = reference.predict(scaler.transform(world.X_test))
        errors.append(np.abs(scores - expected).max())
    assert min(errors) < 1e-4


def test_unseen_labels_are_ranked_by_the_seen_ones_they_occur_with(collection, world):
    ranker = RidgeRanker().fit(*collection)
    unseen_labels = ranker.classes_[~ranker.seen_]
    assert set(unseen_labels) == set(world.unseen)
    scores = ranker.decision_function(world.X_test)
    for label in world.unseen:
        column = ranker.classes_.tolist().index(label)
        label_scores = scores[:, column]
        belongs = world.truth((label,))[:, 0]
        assert label_scores[belongs].min() > label_scores[~belongs].max()


def test_frequent_labels_come_first_for_every_item(collection, world):
    ranker = FrequencyRanker().fit(*collection)
    scores = ranker.decision_function(world.X_test)
    assert (scores == scores[0]).all()
    _, _, label_sets = collection
    count_by_label = dict(zip(label_sets.labels, label_sets.counts.tolist(), strict=True))
    order = np.argsort(-scores[0], kind="stable")
    counts = [count_by_label.get(label, 0) for label in ranker.classes_[order]]
    assert counts == sorted(counts, reverse=True)


def test_ridge_regression_is_left_out_where_there_are_too_many_features():
    assert list(simple_rankers(100)) == ["ridge regression", "most frequent labels"]
    assert list(simple_rankers(100_000)) == ["most frequent labels"]
