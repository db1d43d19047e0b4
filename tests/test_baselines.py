from __future__ import annotations

import inspect

import numpy as np
import pytest
from sklearn.base import clone

import polyseme.baselines
from polyseme._validation import InputError, NotFittedError
from polyseme.baselines import Popularity, TunedCosta
from polyseme.baselines.base import Baseline
from polyseme.scoring import example_map, roc_auc

# Every baseline goes through this suite; a new one is a line here.
BASELINES = {"popularity": Popularity(), "tuned COSTA": TunedCosta(random_state=0)}


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
    assert fitted.labels_ == toy_tagger.labels_
    assert fitted.kinds_.tolist() == toy_tagger.kinds_.tolist()


def test_scores_and_ranks_fit_together(fitted, world):
    scores = fitted.score_labels(world.X_test)
    labels, ranked = fitted.rank(world.X_test, k=4)
    assert scores.shape == (len(world.X_test), len(fitted.labels_))
    assert labels.shape == ranked.shape == (len(world.X_test), 4)
    np.testing.assert_allclose(ranked[:, 0], scores.max(axis=1))
    assert (np.diff(ranked, axis=1) <= 0).all()


def test_same_seed_same_scores(fitted, world):
    again = clone(fitted).fit(world.X, world.documents, world.semantics)
    assert np.array_equal(again.score_labels(world.X_test), fitted.score_labels(world.X_test))


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


def test_costa_solves_the_toy_world(world):
    costa = TunedCosta(random_state=0).fit(world.X, world.documents, world.semantics)
    truth = world.truth(costa.labels_)
    assert example_map(truth, costa.score_labels(world.X_test)) > 0.9
    unseen = costa.kinds_ == "unseen"
    scores = costa.score_labels(world.X_test)
    assert roc_auc(truth[:, unseen], scores[:, unseen]) > 0.95


def test_costa_never_sees_an_unseen_label_on_an_instance(world):
    costa = TunedCosta(random_state=0).fit(world.X, world.documents, world.semantics)
    direct = {label for label, used in zip(costa.labels_, costa.direct_, strict=True) if used}
    assert not direct & set(world.unseen)
    assert set(world.oov) <= direct
