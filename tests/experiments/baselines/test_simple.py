"""Chance, popularity, nearest instances and latent semantics, against plain loops."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose
from sklearn.base import clone

from polyseme import LabelCorpus
from polyseme.base.validation import InputError
from polyseme.metrics import example_map, mean_average_precision, roc_auc
from polyseme_experiments.baselines import Chance, LatentSemantic, NearestInstances, Popularity
from toy_fits import fit_world

# --- popularity and chance ---------------------------------------------------------------------


def test_popularity_counts_items_and_label_sets():
    documents = [("a", "b"), ("a",), ("c", "a")]
    label_sets = [("d", "a"), ("d",), ("d",), ("d",)]
    popularity = Popularity()
    popularity.fit(np.zeros((3, 1)), documents, label_sets)
    labels, scores = popularity.rank(np.zeros((1, 1)), k=4)
    assert labels[0].tolist() == ["a", "d", "b", "c"]
    assert_allclose(scores[0], [0.4, 0.4, 0.1, 0.1])


def test_popularity_counts_a_document_of_both_lists_once():
    documents = [("a", "b"), ("a", "c"), ("c",)]
    sets = LabelCorpus.from_documents(documents, ids=["x", "y", "z"])
    popularity = Popularity()
    popularity.fit(np.zeros((2, 1)), sets.select([0, 1]), sets)
    assert popularity.classes_.tolist() == ["a", "b", "c"]
    assert popularity.n_occurrences_.tolist() == [2, 1, 2]


def test_chance_is_no_better_than_the_share_of_true_labels(world):
    chance = Chance(random_state=0)
    fit_world(chance, world)
    generator = np.random.default_rng(1)
    X = generator.normal(size=(4000, world.X.shape[1]))
    scores = chance.decision_function(X)
    truth = np.random.default_rng(2).random(scores.shape) < 0.2
    precision = mean_average_precision(truth, scores)
    assert precision == pytest.approx(0.2, abs=0.02)
    assert roc_auc(truth, scores) == pytest.approx(0.5, abs=0.01)


def test_chance_scores_an_instance_alike_in_any_company_and_form(world):
    chance = Chance(random_state=0).fit(world.X, world.documents)
    scores = chance.decision_function(world.X_test)
    assert len(np.unique(scores)) == scores.size
    scores_of_two = chance.decision_function(world.X_test[[7, 3]])
    assert np.array_equal(scores_of_two, scores[[7, 3]])
    scores_of_sparse = chance.decision_function(sp.csr_matrix(world.X_test))
    assert np.array_equal(scores_of_sparse, scores)


def test_chance_scores_negative_zeros_as_zeros(world):
    chance = Chance(random_state=0)
    chance.fit(world.X, world.documents)
    zeros = np.zeros((1, 5))
    scores = chance.decision_function(zeros)
    scores_of_negative = chance.decision_function(-zeros)
    assert np.array_equal(scores_of_negative, scores)


def test_every_score_of_chance_depends_on_the_seed(world):
    first = Chance(random_state=0).fit(world.X, world.documents)
    second = Chance(random_state=1).fit(world.X, world.documents)
    scores = first.decision_function(world.X_test)
    different_scores = second.decision_function(world.X_test)
    assert (scores != different_scores).all()


# --- nearest instances -------------------------------------------------------------------------


def votes_of(x, X, documents, labels, k):
    distances = np.linalg.norm(X - x, axis=1)
    nearest_rows = np.argsort(distances, kind="stable")[:k]
    total = 0.0
    votes = dict.fromkeys(labels, 0.0)
    for row in nearest_rows:
        weight = 1 / distances[row]
        total += weight
        for label in documents[row]:
            votes[label] += weight
    return np.array(list(votes.values())) / total


def share_with(label, condition, label_sets):
    """Return the share of label sets with a label among those that hold another one."""
    holding = [document for document in label_sets if condition in document]
    if not holding:
        return 0.0
    return np.mean([label in document for document in holding])


def test_nearest_instances_vote_and_pass_votes_on_to_unseen_labels(world):
    nearest = NearestInstances(n_neighbours=7)
    fit_world(nearest, world)
    scores = nearest.decision_function(world.X_test[:3])
    labels = nearest.classes_.tolist()
    carried = [label for label in labels if label not in world.unseen]
    columns = [labels.index(label) for label in carried]
    mean = world.X.mean(axis=0)
    spread = world.X.std(axis=0)
    rows = (world.X - mean) / spread
    queries = (world.X_test - mean) / spread
    for query, item_scores in zip(queries[:3], scores, strict=True):
        votes = votes_of(query, rows, world.documents, carried, 7)
        assert_allclose(item_scores[columns], votes)
        for unseen in world.unseen:
            shares = [share_with(unseen, label, world.label_sets) for label in carried]
            mean_share = votes @ np.array(shares) / votes.sum()
            column = labels.index(unseen)
            assert_allclose(item_scores[column], mean_share)


def test_many_neighbours_are_chosen_where_labels_are_noisy():
    generator = np.random.default_rng(0)
    X = generator.normal(size=(400, 2))
    noisy = generator.choice(["a", "b", "c", "d"], p=[0.4, 0.3, 0.2, 0.1], size=(400, 1))
    side = X[:, 0] > 0
    height = (10 * X[:, 1]).astype(int)
    clear = [(f"{int(x)}{y}",) for x, y in zip(side, height, strict=True)]
    nearest_to_noisy = NearestInstances(random_state=0).fit(X, noisy.tolist())
    nearest_to_clear = NearestInstances(random_state=0).fit(X, clear)
    assert nearest_to_noisy.n_neighbours_ > nearest_to_clear.n_neighbours_


def test_more_neighbours_than_instances_are_all_of_them():
    nearest = NearestInstances(n_neighbours=50)
    nearest.fit([[0.0], [1.0], [3.0]], [("a",), ("b",), ("a",)])
    labels, scores = nearest.rank([[1.0]], k=2)
    assert labels[0].tolist() == ["b", "a"]
    assert_allclose(scores.sum(), 1)


# --- latent semantics --------------------------------------------------------------------------


def indicator(documents, labels):
    rows = [[label in document for label in labels] for document in documents]
    return np.array(rows)


def test_latent_semantics_reconstruct_labels_from_the_mapped_points(world):
    latent = LatentSemantic(n_components=5, random_state=0)
    fit_world(latent, world)
    sets = indicator(world.label_sets, latent.classes_)
    tags = indicator(world.documents, latent.classes_)
    counts = sets.sum(axis=0)
    idf = 1 + np.log((1 + len(sets)) / (1 + counts))
    _, _, right_vectors = np.linalg.svd(sets * idf)
    right = right_vectors[:5].T
    mapper = clone(latent.mapper_)
    mapper.set_params(
        gamma=latent.mapper_.gamma_,
        penalty=latent.mapper_.penalty_,
    )
    mapper.fit(world.X, (tags * idf) @ right)
    points = mapper.predict(world.X_test)
    expected = points @ (right / idf[:, None]).T

    scores = latent.decision_function(world.X_test)
    oov = latent.kinds_ == "oov"
    assert_allclose(scores[:, ~oov], expected[:, ~oov], atol=1e-8)
    assert np.isneginf(scores[:, oov]).all()


def test_latent_semantics_solve_the_toy_world(world):
    latent = LatentSemantic(random_state=0)
    fit_world(latent, world)
    in_vocabulary = latent.kinds_ != "oov"
    truth = world.truth(latent.classes_)[:, in_vocabulary]
    scores = latent.decision_function(world.X_test)[:, in_vocabulary]
    assert example_map(truth, scores) > 0.9
    assert latent.n_components_ in (8, 16)


@pytest.mark.parametrize("n_components", [None, 40])
def test_latent_semantics_stay_within_the_rank(n_components):
    documents = [("a", "b"), ("c", "d")] * 10
    X = np.array([[0.0], [1.0]] * 10)
    latent = LatentSemantic(n_components, random_state=0)
    latent.fit(X, documents)
    assert latent.n_components_ == 2
    labels, _ = latent.rank([[1.0]], k=2)
    assert set(labels[0]) == {"c", "d"}


def test_latent_semantics_need_an_instance_with_a_label_of_the_label_sets():
    X = [[0.0], [1.0]]
    documents = [("x",), ("y",)]
    label_sets = [("a", "b"), ("b", "c")]
    latent = LatentSemantic()
    with pytest.raises(InputError, match="No instance carries a label of the label sets"):
        latent.fit(X, documents, label_sets, label_sets_only=True)
