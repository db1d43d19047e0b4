from __future__ import annotations

import inspect

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone

import polyseme.baselines
from polyseme import WordVectors
from polyseme._validation import InputError, NotFittedError
from polyseme.baselines import (
    Chance,
    Composition,
    ConSE,
    Costa,
    Fast0Tag,
    LatentSemantic,
    NearestInstances,
    Popularity,
    SeenClassifiers,
    TunedCosta,
)
from polyseme.baselines.base import Baseline
from polyseme.corpus import LabelCorpus
from polyseme.datasets.toy import THEMES
from polyseme.metrics import example_map, mean_average_precision, roc_auc

# Made-up word vectors of whole themes; composition can only search few labels.
WORDS = WordVectors.from_documents(THEMES.values(), n_components=8)
FEW_WORDS = WordVectors.from_documents([THEMES["beach"], THEMES["street"]], n_components=8)

# Every baseline goes through this suite; a new one is a line here.
BASELINES = {
    "chance": Chance(random_state=0),
    "composition": Composition(vectors=FEW_WORDS, random_state=0),
    "ConSE": ConSE(vectors=WORDS, random_state=0),
    "COSTA": Costa(random_state=0),
    "Fast0Tag": Fast0Tag(vectors=WORDS, random_state=0),
    "latent semantic": LatentSemantic(random_state=0),
    "nearest instances": NearestInstances(random_state=0),
    "popularity": Popularity(),
    "tuned COSTA": TunedCosta(random_state=0),
}


@pytest.fixture(scope="module", params=sorted(BASELINES))
def fitted(request, world):
    return clone(BASELINES[request.param]).fit(world.X, world.documents, world.semantics)


def test_every_baseline_is_in_this_suite():
    public = {
        value
        for _, value in inspect.getmembers(polyseme.baselines, inspect.isclass)
        if issubclass(value, Baseline)
    }
    assert public == {type(baseline) for baseline in BASELINES.values()}


def test_labels_and_kinds_are_those_of_the_tagger(fitted, toy_tagger):
    assert tuple(fitted.classes_) == tuple(toy_tagger.classes_)
    assert fitted.kinds_.tolist() == toy_tagger.kinds_.tolist()


def test_scores_and_ranks_fit_together(fitted, world):
    scores = fitted.decision_function(world.X_test)
    labels, ranked = fitted.rank(world.X_test, k=4)
    assert scores.shape == (len(world.X_test), len(fitted.classes_))
    assert labels.shape == ranked.shape == (len(world.X_test), 4)
    np.testing.assert_allclose(ranked[:, 0], scores.max(axis=1))
    assert (np.diff(ranked, axis=1) <= 0).all()


def test_same_seed_same_scores(fitted, world):
    again = clone(fitted).fit(world.X, world.documents, world.semantics)
    assert np.array_equal(
        again.decision_function(world.X_test), fitted.decision_function(world.X_test)
    )


def test_bad_input_gets_one_sentence(fitted, world):
    with pytest.raises(InputError, match="299 rows but there are 300 documents"):
        clone(fitted).fit(world.X[:-1], world.documents)
    with pytest.raises(InputError, match="expecting 5 features"):
        fitted.rank(np.zeros((1, 3)))
    with pytest.raises(NotFittedError, match="not fitted yet"):
        clone(fitted).rank(world.X_test)


def test_popularity_counts_documents(world):
    documents = [("a", "b"), ("a",), ("c", "a")]
    baseline = Popularity().fit(np.zeros((3, 1)), documents, [("d", "a"), ("d",), ("d",), ("d",)])
    labels, scores = baseline.rank(np.zeros((1, 1)), k=4)
    assert labels[0].tolist() == ["a", "d", "b", "c"]
    np.testing.assert_allclose(scores[0], np.array([4, 4, 1, 1]) / 10)


def test_popularity_counts_a_known_document_once():
    semantics = LabelCorpus.from_documents([("a", "b"), ("a", "c"), ("c",)], ids=["x", "y", "z"])
    baseline = Popularity().fit(np.zeros((2, 1)), semantics.select([0, 1]), semantics)
    assert dict(zip(baseline.classes_, baseline.n_occurrences_.tolist(), strict=True)) == {
        "a": 2,
        "b": 1,
        "c": 2,
    }


def test_costa_solves_the_toy_world(world):
    costa = TunedCosta(random_state=0).fit(world.X, world.documents, world.semantics)
    truth = world.truth(costa.classes_)
    assert example_map(truth, costa.decision_function(world.X_test)) > 0.9
    unseen = costa.kinds_ == "unseen"
    scores = costa.decision_function(world.X_test)
    assert roc_auc(truth[:, unseen], scores[:, unseen]) > 0.95


def test_costa_never_sees_an_unseen_label_on_an_instance(world):
    costa = TunedCosta(random_state=0).fit(world.X, world.documents, world.semantics)
    direct = {label for label, used in zip(costa.classes_, costa.direct_, strict=True) if used}
    assert not direct & set(world.unseen)
    assert set(world.oov) <= direct


# ---------------------------------------------------------------------- chance


def test_chance_is_no_better_than_the_share_of_true_labels(world):
    chance = Chance(random_state=0).fit(world.X, world.documents, world.semantics)
    X = np.random.default_rng(1).normal(size=(4000, world.X.shape[1]))
    scores = chance.decision_function(X)
    truth = np.random.default_rng(2).random(scores.shape) < 0.2
    assert abs(mean_average_precision(truth, scores) - 0.2) < 0.02
    assert abs(roc_auc(truth, scores) - 0.5) < 0.01


def test_chance_scores_an_instance_alike_in_any_company(world):
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


# ---------------------------------------------------------------------- nearest instances


def plain_votes(x, X, documents, labels, k):
    distances = np.sqrt(((X - x) ** 2).sum(axis=1))
    near = sorted(range(len(X)), key=lambda row: distances[row])[:k]
    weights = [1 / distances[row] for row in near]
    return [
        sum(w for w, row in zip(weights, near, strict=True) if label in documents[row])
        / sum(weights)
        for label in labels
    ]


def test_nearest_instances_vote_by_distance(world):
    nearest = NearestInstances(n_neighbours=7).fit(world.X, world.documents, world.semantics)
    scores = nearest.decision_function(world.X_test)
    mean, spread = world.X.mean(axis=0), world.X.std(axis=0)
    rows, queries = (world.X - mean) / spread, (world.X_test - mean) / spread
    carried = [label for label in nearest.classes_ if label not in world.unseen]
    columns = [nearest.classes_.index(label) for label in carried]
    for query, found in zip(queries[:4], scores[:4, columns], strict=True):
        np.testing.assert_allclose(found, plain_votes(query, rows, world.documents, carried, 7))


def test_nearest_instances_pass_votes_on_to_unseen_labels(world):
    nearest = NearestInstances(n_neighbours=7).fit(world.X, world.documents, world.semantics)
    scores = nearest.decision_function(world.X_test[:3])
    labels = list(nearest.classes_)
    carried = [label for label in labels if label not in world.unseen]
    for row in scores:
        total = sum(row[labels.index(t)] for t in carried)
        for z in world.unseen:
            mean = 0.0
            for t in carried:
                held = [document for document in world.semantics if t in document]
                share = sum(z in document for document in held) / max(len(held), 1)
                mean += row[labels.index(t)] * share / total
            np.testing.assert_allclose(row[labels.index(z)], mean)


def test_nearest_instances_choose_many_neighbours_where_labels_are_noisy():
    generator = np.random.default_rng(0)
    X = generator.normal(size=(400, 2))
    labels = np.array(["a", "b", "c", "d"])
    noisy = [(labels[generator.choice(4, p=[0.4, 0.3, 0.2, 0.1])],) for _ in X]
    clear = [(f"{int(x[0] > 0)}{int(10 * x[1])}",) for x in X]
    chosen = [NearestInstances(random_state=0).fit(X, one).n_neighbours_ for one in (noisy, clear)]
    assert chosen[0] > chosen[1]


def test_more_neighbours_than_instances_are_all_of_them():
    nearest = NearestInstances(n_neighbours=50).fit([[0.0], [1.0], [3.0]], [("a",), ("b",), ("a",)])
    labels, scores = nearest.rank([[1.0]], k=2)
    assert labels[0].tolist() == ["b", "a"]
    np.testing.assert_allclose(scores.sum(), 1)


# ---------------------------------------------------------------------- COSTA as published


@pytest.fixture(scope="module")
def classifiers(world):
    return SeenClassifiers(random_state=5).fit(world.X, world.documents)


@pytest.mark.parametrize("transfer", ["regression", "normalised", "dice", "square-root"])
def test_published_costa_with_shared_classifiers_scores_as_with_its_own(
    transfer, classifiers, world
):
    own = Costa(transfer, classifiers=SeenClassifiers(random_state=5), random_state=0)
    shared = Costa(transfer, classifiers=classifiers, fit_classifiers=False, random_state=0)
    scores = [
        costa.fit(world.X, world.documents, world.semantics).decision_function(world.X_test)
        for costa in (own, shared)
    ]
    assert np.array_equal(*scores)
    truth = world.truth(own.classes_)
    unseen = own.kinds_ == "unseen"
    assert roc_auc(truth[:, unseen], scores[0][:, unseen]) > 0.95


@pytest.mark.parametrize("transfer", ["normalised", "dice", "square-root"])
def test_published_costa_is_a_plain_mean_of_probabilities(transfer, classifiers, world):
    costa = Costa(transfer, False, classifiers, fit_classifiers=False)
    costa.fit(world.X, world.documents, world.semantics)
    scores = costa.decision_function(world.X_test[:2])
    likely = classifiers.probabilities(world.X_test[:2])
    labels = list(costa.classes_)
    seen = [label for label in labels if label not in (*world.unseen, *world.oov)]

    def count(*names):
        return sum(set(names) <= set(document) for document in world.semantics)

    def weight(z, k):
        sizes = {"normalised": count(z), "dice": count(z) + count(k)}
        return count(z, k) ** 0.5 if transfer == "square-root" else count(z, k) / sizes[transfer]

    for z in world.unseen:
        weights = np.array([weight(z, k) for k in seen])
        columns = [classifiers.classes_.index(k) for k in seen]
        expected = likely[:, columns] @ weights / weights.sum()
        np.testing.assert_allclose(scores[:, labels.index(z)], np.clip(expected, 1e-6, 1))


def test_published_costa_applies_priors_as_the_paper_prints_them(classifiers, world):
    without, with_priors = (
        Costa(use_priors=priors, classifiers=classifiers, fit_classifiers=False, random_state=0)
        for priors in (False, True)
    )
    plain, weighed = (
        costa.fit(world.X, world.documents, world.semantics).decision_function(world.X_test)
        for costa in (without, with_priors)
    )
    for column, label in enumerate(with_priors.classes_):
        prior = sum(label in document for document in world.semantics) / len(world.semantics)
        np.testing.assert_allclose(
            weighed[:, column], plain[:, column] / plain.sum(axis=1) * prior, atol=1e-15
        )


def test_published_costa_trains_no_classifier_for_an_unseen_label(world):
    costa = Costa(random_state=0).fit(world.X, world.documents, world.semantics)
    assert not set(costa.classifiers_.classes_) & set(world.unseen)
    assert costa.weights_.shape == ((costa.kinds_ == "seen").sum(), len(world.unseen))
    assert costa.penalty_ in (1e-4, 1e-3, 1e-2, 1e-1, 1.0)


def test_published_costa_ignores_oov_labels(classifiers, world):
    costa = Costa(classifiers=classifiers, fit_classifiers=False, random_state=0)
    costa.fit(world.X, world.documents, world.semantics)
    scores = costa.decision_function(world.X_test)
    oov = costa.kinds_ == "oov"
    assert oov.sum() == len(world.oov)
    assert not scores[:, oov].any()
    assert scores[:, ~oov].min() > 0


def test_published_costa_refuses_classifiers_of_other_instances(classifiers, world):
    def fit(given, documents=world.documents, X=world.X):
        costa = Costa(classifiers=given, fit_classifiers=False)
        costa.fit(X, documents, world.semantics)

    with pytest.raises(InputError, match="needs fitted `classifiers`"):
        fit(None)
    with pytest.raises(NotFittedError, match="This SeenClassifiers is not fitted yet"):
        fit(SeenClassifiers())
    with pytest.raises(InputError, match="fitted with 5 features but `X` has 4"):
        fit(classifiers, X=world.X[:, :4])
    without = [tuple(set(document) - {"fern"}) or ("moss",) for document in world.documents]
    with pytest.raises(InputError, match="differ in the labels carried: fern; fit them"):
        fit(classifiers, without)
    leaking = SeenClassifiers(random_state=0).fit(
        world.X, [("wave",), ("wave",), *world.documents[2:]]
    )
    with pytest.raises(InputError, match="differ in the labels carried: wave; fit them"):
        fit(leaking)
    with pytest.raises(InputError, match="`transfer` of `Costa` must be one of"):
        Costa("binary").fit(world.X, world.documents)


def test_published_costa_finds_classifiers_by_label_whatever_the_spelling(classifiers, world):
    loud = [[label.upper() for label in document] for document in world.semantics]
    quiet, shouted = (
        Costa(classifiers=classifiers, fit_classifiers=False, random_state=0)
        .fit(world.X, world.documents, semantics)
        .decision_function(world.X_test)
        for semantics in (world.semantics, loud)
    )
    assert np.array_equal(quiet, shouted)


# ---------------------------------------------------------------------- latent semantic


def test_latent_semantic_reconstructs_labels_from_the_mapped_points(world):
    latent = LatentSemantic(n_components=5, random_state=0)
    latent.fit(world.X, world.documents, world.semantics)
    labels = list(latent.classes_)
    Y = np.array([[label in document for label in labels] for document in world.semantics])
    counts = Y.sum(axis=0)
    idf = 1 + np.log((1 + len(Y)) / (1 + counts))
    right = np.linalg.svd(Y * idf)[2][:5].T
    known = np.array([[label in document for label in labels] for document in world.documents])
    points = (known * idf) @ right
    mapper = clone(latent.mapper_).set_params(gamma=latent.mapper_.gamma_)
    mapper.set_params(penalty=latent.mapper_.penalty_).fit(world.X, points)
    expected = mapper.predict(world.X_test) @ (right / idf[:, None]).T
    found = latent.decision_function(world.X_test)
    inside = latent.kinds_ != "oov"
    np.testing.assert_allclose(found[:, inside], expected[:, inside], atol=1e-8)
    assert np.isneginf(found[:, ~inside]).all()


def test_latent_semantic_solves_the_toy_world(world):
    latent = LatentSemantic(random_state=0).fit(world.X, world.documents, world.semantics)
    inside = latent.kinds_ != "oov"
    truth, scores = world.truth(latent.classes_), latent.decision_function(world.X_test)
    assert example_map(truth[:, inside], scores[:, inside]) > 0.9
    assert latent.n_components_ in (8, 16)


def test_latent_semantic_stays_within_the_rank():
    documents = [("a", "b"), ("c", "d"), ("a", "b"), ("c", "d")] * 5
    X = np.array([[0.0], [1.0]] * 10)
    for n_components in (None, 40):
        latent = LatentSemantic(n_components, random_state=0).fit(X, documents)
        assert latent.n_components_ == 2
        assert set(latent.rank([[1.0]], k=2)[0][0]) == {"c", "d"}


def test_latent_semantic_needs_an_instance_inside_the_vocabulary():
    with pytest.raises(InputError, match="No instance carries a label of the semantics documents"):
        LatentSemantic().fit([[0.0], [1.0]], [("x",), ("y",)], [("a", "b"), ("b", "c")])
