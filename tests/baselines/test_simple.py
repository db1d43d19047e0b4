"""Chance, popularity, nearest instances and latent semantics, against plain loops."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose
from sklearn.base import clone

from polyseme import LabelCorpus
from polyseme._validation import InputError
from polyseme.baselines import Chance, LatentSemantic, NearestInstances, Popularity
from polyseme.metrics import example_map, mean_average_precision, roc_auc

# --- popularity and chance ---------------------------------------------------------------------


def test_popularity_counts_documents_and_a_known_one_once():
    documents = [("a", "b"), ("a",), ("c", "a")]
    baseline = Popularity().fit(np.zeros((3, 1)), documents, [("d", "a"), ("d",), ("d",), ("d",)])
    labels, scores = baseline.rank(np.zeros((1, 1)), k=4)
    assert labels[0].tolist() == ["a", "d", "b", "c"]
    assert_allclose(scores[0], np.array([4, 4, 1, 1]) / 10)
    sets = LabelCorpus.from_documents([("a", "b"), ("a", "c"), ("c",)], ids=["x", "y", "z"])
    baseline = Popularity().fit(np.zeros((2, 1)), sets.select([0, 1]), sets)
    counts = dict(zip(baseline.classes_, baseline.n_occurrences_.tolist(), strict=True))
    assert counts == {"a": 2, "b": 1, "c": 2}


def test_chance_is_no_better_than_the_share_of_true_labels(world):
    chance = Chance(random_state=0).fit(
        world.X, world.documents, world.label_sets, label_sets_only=True
    )
    X = np.random.default_rng(1).normal(size=(4000, world.X.shape[1]))
    scores = chance.decision_function(X)
    truth = np.random.default_rng(2).random(scores.shape) < 0.2
    assert abs(mean_average_precision(truth, scores) - 0.2) < 0.02
    assert abs(roc_auc(truth, scores) - 0.5) < 0.01


def test_chance_scores_an_instance_alike_beside_any_others(world):
    chance = Chance(random_state=0).fit(world.X, world.documents)
    scores = chance.decision_function(world.X_test)
    assert np.array_equal(chance.decision_function(world.X_test[[7, 3]]), scores[[7, 3]])
    assert np.array_equal(chance.decision_function(sp.csr_matrix(world.X_test)), scores)
    assert np.array_equal(
        chance.decision_function(np.zeros((1, 5))), chance.decision_function(-np.zeros((1, 5)))
    )
    other = Chance(random_state=1).fit(world.X, world.documents).decision_function(world.X_test)
    assert np.abs(other - scores).min() > 0
    assert len(np.unique(scores)) == scores.size


# --- nearest instances -------------------------------------------------------------------------


def votes_of(x, X, documents, labels, k):
    distances = np.sqrt(((X - x) ** 2).sum(axis=1))
    near = sorted(range(len(X)), key=lambda row: distances[row])[:k]
    total = sum(1 / distances[row] for row in near)
    held = [[1 / distances[row] for row in near if label in documents[row]] for label in labels]
    return [sum(weights) / total for weights in held]


def test_nearest_instances_vote_and_pass_votes_on_to_unseen_labels(world):
    nearest = NearestInstances(n_neighbours=7).fit(
        world.X, world.documents, world.label_sets, label_sets_only=True
    )
    scores = nearest.decision_function(world.X_test[:3])
    labels = nearest.classes_.tolist()
    mean = world.X.mean(axis=0)
    spread = world.X.std(axis=0)
    rows = (world.X - mean) / spread
    queries = (world.X_test - mean) / spread
    carried = [label for label in labels if label not in world.unseen]
    columns = [labels.index(label) for label in carried]
    for query, row in zip(queries[:3], scores, strict=True):
        expected = votes_of(query, rows, world.documents, carried, 7)
        assert_allclose(row[columns], expected)
        for z in world.unseen:
            mean_share = 0.0
            for t, score in zip(carried, expected, strict=True):
                holding = [document for document in world.label_sets if t in document]
                share = sum(z in document for document in holding) / max(len(holding), 1)
                mean_share += score * share / sum(expected)
            assert_allclose(row[labels.index(z)], mean_share)


def test_many_neighbours_are_chosen_where_labels_are_noisy():
    generator = np.random.default_rng(0)
    X = generator.normal(size=(400, 2))
    labels = np.array(["a", "b", "c", "d"])
    noisy = [(labels[generator.choice(4, p=[0.4, 0.3, 0.2, 0.1])],) for _ in X]
    clear = [(f"{int(x[0] > 0)}{int(10 * x[1])}",) for x in X]
    chosen = [NearestInstances(random_state=0).fit(X, y).n_neighbours_ for y in (noisy, clear)]
    assert chosen[0] > chosen[1]


def test_more_neighbours_than_instances_are_all_of_them():
    nearest = NearestInstances(n_neighbours=50).fit([[0.0], [1.0], [3.0]], [("a",), ("b",), ("a",)])
    labels, scores = nearest.rank([[1.0]], k=2)
    assert labels[0].tolist() == ["b", "a"]
    assert_allclose(scores.sum(), 1)


# --- latent semantics --------------------------------------------------------------------------


def test_latent_semantics_reconstruct_labels_from_the_mapped_points(world):
    latent = LatentSemantic(n_components=5, random_state=0)
    latent.fit(world.X, world.documents, world.label_sets, label_sets_only=True)
    Z, Y = (
        np.array([[label in document for label in latent.classes_] for document in documents])
        for documents in (world.label_sets, world.documents)
    )
    idf = 1 + np.log((1 + len(Z)) / (1 + Z.sum(axis=0)))
    right = np.linalg.svd(Z * idf)[2][:5].T
    mapper = clone(latent.mapper_).set_params(gamma=latent.mapper_.gamma_)
    mapper.set_params(penalty=latent.mapper_.penalty_).fit(world.X, (Y * idf) @ right)
    expected = mapper.predict(world.X_test) @ (right / idf[:, None]).T
    found = latent.decision_function(world.X_test)
    inside = latent.kinds_ != "oov"
    assert_allclose(found[:, inside], expected[:, inside], atol=1e-8)
    assert np.isneginf(found[:, ~inside]).all()


def test_latent_semantics_solve_the_toy_world(world):
    latent = LatentSemantic(random_state=0).fit(
        world.X, world.documents, world.label_sets, label_sets_only=True
    )
    inside = latent.kinds_ != "oov"
    truth = world.truth(latent.classes_)
    scores = latent.decision_function(world.X_test)
    assert example_map(truth[:, inside], scores[:, inside]) > 0.9
    assert latent.n_components_ in (8, 16)


def test_latent_semantics_stay_within_the_rank_and_need_an_instance_inside():
    documents = [("a", "b"), ("c", "d"), ("a", "b"), ("c", "d")] * 5
    X = np.array([[0.0], [1.0]] * 10)
    for n_components in (None, 40):
        latent = LatentSemantic(n_components, random_state=0).fit(X, documents)
        assert latent.n_components_ == 2
        assert set(latent.rank([[1.0]], k=2)[0][0]) == {"c", "d"}
    with pytest.raises(InputError, match="No instance carries a label of the label sets"):
        sets = [("a", "b"), ("b", "c")]
        LatentSemantic().fit([[0.0], [1.0]], [("x",), ("y",)], sets, label_sets_only=True)
