"""Taggers: what both keep to, and what the default one takes, says, refuses and remembers."""

from __future__ import annotations

import copy
import pickle
import sqlite3
import warnings
from dataclasses import replace
from threading import Event, Thread

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.kernel_ridge import KernelRidge

import polyseme
from polyseme import ConceptSpace, LabelCorpus, SpacePlan, ZeroShotTagger
from polyseme.base.progress import FileProgress
from polyseme.base.validation import InputError, NotFittedError, PolysemeWarning
from polyseme.documents import tags as tags_module
from polyseme.documents.tags import label_preference, rank_blocks, rank_labels
from polyseme.documents.toy import toy_world
from polyseme.documents.word_vectors import WordVectors, name_likeness
from polyseme.feedback.corrections import Corrections, _cache_key, _reference_sample
from polyseme.feedback.verdict_log import Verdict, VerdictLog
from polyseme.media import Extracted, MediaError
from polyseme.media.base import MediaFeatures
from polyseme.metrics import example_map
from polyseme.scoring.known_documents import KnownDocuments
from polyseme.scoring.scorer import LabelScorer
from polyseme.scoring.senses import label_senses
from polyseme.space.training import SpaceTraining
from polyseme.storage.model_file import (
    ModelFileError,
    write_model,
)


def points_of(tagger, X):
    return tagger.space_.points(tagger.transform(X))


PLAN = SpacePlan(hidden=16, code=12, document_batch=24, item_batch=16, probable_batch=8)


def tiny(n_steps=8, n_folds=2, **parameters):
    """Make a tagger that learns next to nothing, quickly."""
    made = ConceptSpace(n_folds=n_folds, n_steps=n_steps, plan=PLAN)
    return ZeroShotTagger(space=made, **({"random_state": 0} | parameters))


def column_of(tagger, label):
    return list(tagger.classes_).index(label)


def at(world, theme):
    """Return which test items are of a theme."""
    return np.array([one == theme for one in world.themes_test])


# ------------------------------------------------------------------ what every tagger keeps to


@pytest.fixture(params=["toy_tagger", "published_tagger"], scope="session", ids=["space", "paper"])
def tagger(request):
    """A fitted tagger, which no test may change."""
    return request.getfixturevalue(request.param)


@pytest.fixture
def own(tagger, tmp_path):
    """A copy that a test may change."""
    copy.copy(tagger).save(tmp_path / "model")
    return polyseme.load(tmp_path / "model")


def test_all_labels_of_the_theme_rank_above_all_others(tagger, world):
    truth, scores = world.truth(tagger.classes_), tagger.decision_function(world.X_test)
    assert example_map(truth, scores) > 0.97
    for kind in ("seen", "unseen", "oov"):
        columns = tagger.kinds_ == kind
        for row, true in zip(scores[:, columns], truth[:, columns], strict=True):
            assert not true.any() or row[true].min() > row[~true].max()


def test_kinds_say_what_training_met(tagger, world):
    kinds = dict(zip(tagger.classes_, tagger.kinds_, strict=True))
    assert {label for label, kind in kinds.items() if kind == "unseen"} == set(world.unseen)
    assert {label for label, kind in kinds.items() if kind == "oov"} == set(world.oov)
    assert kinds["apple"] == "seen"
    assert tagger.seen_ == {label for label, kind in kinds.items() if kind == "seen"}
    assert tagger.n_features_in_ == 5 and tagger.dropped_ == ()


def test_features_in_every_form_give_the_same_scores(tagger, world, monkeypatch):
    X = world.X_test
    columns = [f"f{i}" for i in range(X.shape[1])]
    expected, (labels, _) = tagger.decision_function(X), tagger.rank(X, k=4)
    frames = [pd.DataFrame(X, columns=columns), pl.DataFrame(X, columns)]
    for form in [X.tolist(), sp.csr_matrix(X), sp.coo_array(X), *frames]:
        np.testing.assert_allclose(tagger.decision_function(form), expected, rtol=1e-4)
    single = np.concatenate([tagger.decision_function(x[None]) for x in X])
    np.testing.assert_allclose(single, expected, rtol=1e-4)
    monkeypatch.setattr(tags_module, "_BLOCK_NUMBERS", 7 * len(tagger.classes_))
    np.testing.assert_allclose(tagger.decision_function(X), expected, rtol=1e-4)
    np.testing.assert_array_equal(tagger.rank(X, k=4)[0], labels)


@settings(deadline=None, max_examples=25)
@given(
    X=st.lists(
        st.lists(st.floats(-1e3, 1e3, allow_nan=False), min_size=5, max_size=5),
        min_size=1,
        max_size=4,
    ),
    k=st.integers(1, 40),
)
def test_any_finite_features_give_a_whole_ranking(tagger, X, k):
    labels, scores = tagger.rank(X, k=k)
    width = min(k, len(tagger.classes_))
    assert labels.shape == scores.shape == (len(X), width)
    assert np.isfinite(scores).all()
    assert all(len(set(row)) == width for row in labels)


def test_completion_follows_the_context_of_one_or_several_tag_sets(tagger, world):
    contexts = {"office": ["apple", "phone", "desk"], "kitchen": ["apple", "oven", "pie"]}
    labels, scores = tagger.complete(list(contexts.values()), k=3)
    assert labels.shape == scores.shape == (2, 3)
    for row, (theme, tags) in zip(labels, contexts.items(), strict=True):
        assert set(row) <= set(world.themes[theme])
        assert row.tolist() == tagger.complete(tags, k=3)[0].tolist()
    sea = tagger.complete(["sea"], k=4)[0].tolist()
    assert tagger.complete("sea", k=4)[0].tolist() == sea
    assert tagger.complete(["  SEA "], k=4)[0].tolist() == sea, "spelling does not matter"


def test_unknown_tags_are_named_and_all_unknown_is_an_error(tagger):
    with pytest.warns(PolysemeWarning, match="Unknown tags are passed over: zeppelin") as told:
        labels, _ = tagger.complete(["sea", "zeppelin"])
    assert len(told) == 1, "said once"
    assert labels.tolist() == tagger.complete(["sea"])[0].tolist()
    with pytest.raises(InputError, match="None of the tags is known: zeppelin"):
        tagger.complete(["zeppelin"])
    with pytest.raises(InputError, match="no tag was given"):
        tagger.complete([])


def test_dropped_documents_are_reported(own):
    with pytest.warns(PolysemeWarning, match="1 of 2 documents hold no label"):
        ids = own.add_documents([("zeppelin",), ("sea", "zeppelin")])
    assert len(ids) == 1 and len(own.dropped_) == 1


def test_a_loaded_tagger_writes_the_same_bytes_and_can_grow_and_be_saved_again(
    tagger, own, tmp_path, world
):
    own.save(tmp_path / "again")
    tagger.save(tmp_path / "first")
    first, again = (
        {path.name: path.read_bytes() for path in (tmp_path / name).iterdir()}
        for name in ("first", "again")
    )
    assert first == again
    own.add_documents([("sea", "jellyfish"), ("oak", "lichen")])
    own.add_documents([("moss", "lichen")])
    own.save(tmp_path / "grown")
    grown = polyseme.load(tmp_path / "grown")
    assert list(grown.classes_) == list(own.classes_)
    scores = [one.decision_function(world.X_test) for one in (grown, own)]
    np.testing.assert_array_equal(*scores)


def test_wrong_columns_at_ranking_are_named(tagger):
    name = type(tagger).__name__
    with pytest.raises(InputError, match=f"X has 3 features, but {name} is expecting 5"):
        tagger.rank(np.zeros((1, 3)))


# ------------------------------------------------------------------ ranking


@settings(deadline=None, max_examples=80)
@given(
    st.lists(
        st.lists(
            st.sampled_from([0.0, 0.1, 0.1 + 1e-16, 0.5, 1e-12, 1e12, -np.inf]),
            min_size=40,
            max_size=40,
        ),
        min_size=1,
        max_size=4,
    ),
    st.lists(st.integers(0, 3), min_size=40, max_size=40),
    st.integers(1, 50),
)
def test_ranks_equal_a_plain_sort_whatever_ties(scores, occurrences, k):
    label_ids, best = rank_labels(scores, label_preference(occurrences), k)
    for row, ids in zip(scores, label_ids, strict=True):
        wanted = sorted(range(40), key=lambda c: (-row[c], -occurrences[c], c))[:k]
        assert ids.tolist() == wanted
    np.testing.assert_array_equal(best, np.take_along_axis(np.array(scores), label_ids, axis=1))


def test_scores_that_are_no_numbers_come_last():
    scores = np.full((2, 40), np.nan)
    scores[0, 7] = 0.5
    label_ids, best = rank_labels(scores, label_preference(np.zeros(40)), 3)
    assert label_ids[0, 0] == 7 and best[0, 0] == 0.5
    assert np.isnan(best[0, 1:]).all() and np.isnan(best[1]).all()


@pytest.mark.parametrize(("n", "n_labels"), [(0, 5), (1, 1), (7, 3), (100, 10**9), (5, 0)])
def test_blocks_cover_every_row_once(n, n_labels):
    rows = [row for block in rank_blocks(n, n_labels) for row in range(block.start, block.stop)]
    assert rows == list(range(n))


def test_of_equal_scores_the_commoner_label_is_first(own_tagger, world, monkeypatch):
    def level(self, codes):
        return np.zeros((len(codes), len(self.labels)))

    monkeypatch.setattr(LabelScorer, "plain_logits", level)
    labels, scores = own_tagger.rank(world.X_test[:2], k=50)
    assert (scores == 0.5).all()
    order = np.argsort(-own_tagger.store_.counts, kind="stable")
    assert labels[0].tolist() == labels[1].tolist() == own_tagger.classes_[order].tolist()


def test_shuffled_features_rank_no_better_than_popularity(world, tiny_space):
    precisions = []
    for seed in range(4):
        order = np.random.default_rng(seed).permutation(len(world.X))
        tagger = ZeroShotTagger(space=tiny_space(n_steps=60), n_validations=0, random_state=0)
        tagger.fit(world.X[order], world.documents, world.label_sets, label_sets_only=True)
        truth = world.truth(tagger.classes_)
        precisions.append(example_map(truth, tagger.predict_proba(world.X_test)))
    assert np.mean(precisions) < 0.5


def test_scores_are_probabilities_and_ranks_fall(toy_tagger, world):
    scores = toy_tagger.predict_proba(world.X_test)
    assert ((scores >= 0) & (scores <= 1)).all()
    np.testing.assert_allclose(
        1 / (1 + np.exp(-toy_tagger.decision_function(world.X_test))), scores
    )
    labels, ranked = toy_tagger.rank(world.X_test, k=7)
    assert labels.shape == ranked.shape == (len(world.X_test), 7)
    assert (np.diff(ranked, axis=1) <= 0).all()
    assert scores[0, column_of(toy_tagger, labels[0, 0])] == ranked[0, 0] == scores[0].max()


def test_new_items_have_labels_as_often_as_they_are_said_to(toy_tagger):
    new = toy_world(random_state=7)
    scores = toy_tagger.predict_proba(new.X)
    seen = toy_tagger.kinds_ != "unseen"
    truth = np.array([[label in tags for label in toy_tagger.classes_] for tags in new.documents])
    np.testing.assert_allclose(scores.mean(axis=0)[seen], truth.mean(axis=0)[seen], atol=0.07)


def test_answers_with_given_tags_are_the_same_in_blocks(toy_tagger, world, monkeypatch):
    X, tags = world.X[:9], [document[:1] for document in world.documents[:9]]
    methods = ("predict_proba", "predict", "rank")
    wanted = [getattr(toy_tagger, name)(X, tags=tags) for name in methods]
    monkeypatch.setattr(tags_module, "_BLOCK_NUMBERS", 2 * len(toy_tagger.classes_))
    scores, sets, (labels, best) = (getattr(toy_tagger, name)(X, tags=tags) for name in methods)
    np.testing.assert_allclose(scores, wanted[0], rtol=1e-4, atol=1e-7)
    assert sets == wanted[1]
    np.testing.assert_array_equal(labels, wanted[2][0])
    np.testing.assert_allclose(best, wanted[2][1], rtol=1e-4)


def test_a_row_by_itself_is_ranked_as_among_many(own_tagger, world, theme_words):
    own_tagger.add_documents([["pie", "never met"]])
    own_tagger.add_labels(["beach"], theme_words)
    own_tagger.learn([("0", "pie", True), ("1", "lamp", False)], world.X_test)
    for method, kinds in (("space", None), ("space", ("seen",)), ("priming", None)):
        labels, best = own_tagger.rank(world.X_test, 30, method=method, kinds=kinds)
        for row in range(len(world.X_test)):
            x = world.X_test[row : row + 1]
            own_labels, own_best = own_tagger.rank(x, 30, method=method, kinds=kinds)
            np.testing.assert_allclose(own_best[0], best[row], rtol=0, atol=1e-6)
            # Labels whose scores are apart by more than rounding keep their places.
            apart = np.append(-np.diff(best[row]), 1.0) > 2e-6
            settled = apart & np.append(True, apart[:-1])
            assert own_labels[0][settled].tolist() == labels[row][settled].tolist()
            assert settled.any()


def test_priming_alone_gives_the_votes_of_known_documents(toy_tagger, world):
    scores = toy_tagger.predict_proba(world.X_test, method="priming")
    wanted = toy_tagger.store_.vote_shares(points_of(toy_tagger, world.X_test))
    np.testing.assert_allclose(scores, wanted, rtol=1e-6)
    assert example_map(world.truth(toy_tagger.classes_), scores) > 0.9
    _, best = toy_tagger.rank(world.X_test, k=3, method="priming")
    np.testing.assert_allclose(best[:, 0], scores.max(axis=1))
    with pytest.raises(InputError, match="`method` of `rank` must be one of 'space', 'priming'"):
        toy_tagger.rank(world.X_test, method="prime")


def test_items_are_placed_among_the_documents_of_their_theme(toy_tagger, world):
    points = points_of(toy_tagger, world.X_test)
    assert points.shape == (25, toy_tagger.space_.axes_.shape[1])
    for point, theme in zip(points, world.themes_test, strict=True):
        (nearest,) = toy_tagger.store_.nearest(point, 0, 1)
        assert set(nearest.document) <= set(world.themes[theme])
    assert toy_tagger.store_.concepts().labels == tuple(toy_tagger.classes_)


def test_no_items_have_no_tags(toy_tagger):
    nothing = np.zeros((0, 5))
    assert toy_tagger.predict_proba(nothing).shape == (0, len(toy_tagger.classes_))
    assert toy_tagger.rank(nothing, k=3)[0].shape == (0, 3)
    assert toy_tagger.predict(nothing) == []


# ------------------------------------------------------------------ tags that are known


def test_given_tags_are_certain_and_move_the_others(toy_tagger, world):
    x = np.full((1, 5), world.X.mean())  # of no theme in particular
    alone, told, nothing = (
        dict(zip(toy_tagger.classes_, toy_tagger.predict_proba(x, tags=tags)[0], strict=True))
        for tags in (None, [["sea", "sun"]], [[]])
    )
    assert told["sea"] == told["sun"] == 1
    assert all(told[label] > alone[label] for label in ("sand", "towel", "wave", "shell"))
    assert told["oven"] < alone["oven"] and nothing == alone


def test_every_row_has_its_own_tags_and_unknown_ones_are_passed_over(toy_tagger, world):
    X = world.X_test[:2]
    both = toy_tagger.predict_proba(X, tags=[["sea"], ["oak"]])
    for row, tag in enumerate(("sea", "oak")):
        with pytest.warns(PolysemeWarning, match="Unknown tags are passed over: zeppelin"):
            alone = toy_tagger.predict_proba(X[row : row + 1], tags=[[tag, "zeppelin"]])
        np.testing.assert_allclose(both[row], alone[0], rtol=1e-4)
    with pytest.raises(InputError, match="`tags` has 1 collections for 2 instances"):
        toy_tagger.predict_proba(X, tags=[["sea"]])
    with pytest.raises(InputError, match="Give features, tags, or both"):
        toy_tagger.predict_proba(None)


def test_tags_that_are_newer_than_the_space_are_certain_but_move_nothing(own_tagger, world):
    own_tagger.add_documents([("sea", "squid")])
    without, told = (
        own_tagger.predict_proba(world.X_test[:1], tags) for tags in (None, [["squid"]])
    )
    assert told[0, -1] == 1 > without[0, -1]
    np.testing.assert_array_equal(told[:, :-1], without[:, :-1])
    with pytest.raises(InputError, match="'squid' came after the concept space was learned"):
        own_tagger.complete(["squid"])
    with_sea, _ = own_tagger.complete(["squid", "sea"], k=3)
    assert with_sea.tolist() == own_tagger.complete(["sea"], k=4)[0][:3].tolist()


# ------------------------------------------------------------------ tag sets


def test_predicted_tag_sets_are_likely_enough_and_best_first(toy_tagger, world):
    scores = toy_tagger.predict_proba(world.X_test)
    for least in (0.2, 0.5):
        sets = toy_tagger.predict(world.X_test, threshold=least)
        assert any(sets)
        for row, tags in zip(scores, sets, strict=True):
            assert isinstance(tags, tuple)
            columns = [column_of(toy_tagger, label) for label in tags]
            assert (np.diff(row[columns]) <= 0).all()
            assert set(columns) == set(np.flatnonzero(row >= least))
    assert toy_tagger.predict(world.X_test[:1], threshold=1.0, tags=[["sea"]]) == [("sea",)]


def test_a_wanted_precision_is_about_what_new_items_get(toy_tagger):
    new = toy_world(random_state=3)
    seen = set(toy_tagger.classes_[toy_tagger.kinds_ != "unseen"])
    for goal in (0.4, 0.6):
        sets = toy_tagger.predict(new.X, precision=goal)
        right = [
            label in truth
            for tags, truth in zip(sets, new.documents, strict=True)
            for label in seen.intersection(tags)
        ]
        assert len(right) > 200 and np.mean(right) == pytest.approx(goal, abs=0.1)


def test_thresholds_are_those_of_the_kind(toy_tagger):
    least = toy_tagger.thresholds(0.5)
    seen = toy_tagger.space_.threshold(0.5)
    unseen = toy_tagger.validation_.threshold(0.5)
    on_items = np.isin(toy_tagger.classes_, sorted(toy_tagger.seen_ | {"owl", "shell"}))
    assert set(least[on_items]) == {seen} and set(least[~on_items]) == {unseen}
    assert (toy_tagger.thresholds(0.7) >= least).all()


@pytest.mark.parametrize("precision", [0.0, 1.0, 1.5, "high", np.nan])
def test_a_precision_that_cannot_be_is_refused(toy_tagger, world, precision):
    with pytest.raises(InputError, match=r"`precision` of `predict` must be a number at least 0\."):
        toy_tagger.predict(world.X_test, precision=precision)


# ------------------------------------------------------------------ completion and explanation


def test_completion_gives_the_numbers_of_ranking_by_tags_without_those_given(toy_tagger, world):
    n_labels = len(toy_tagger.classes_)
    labels, scores = toy_tagger.complete(["sea", "sun"], k=n_labels)
    ranked, best = toy_tagger.rank(None, k=n_labels, tags=[["sea", "sun"]])
    assert set(ranked[0, :2]) == {"sea", "sun"} and best[0, :2].tolist() == [1, 1]
    assert labels.tolist() == ranked[0, 2:].tolist()
    np.testing.assert_array_equal(scores, best[0, 2:])
    assert (np.diff(scores) <= 0).all() and ((scores > 0) & (scores < 1)).all()
    table = toy_tagger.predict_proba(None, tags=[["sea", "sun"]])[0]
    np.testing.assert_array_equal(scores, table[[column_of(toy_tagger, one) for one in labels]])
    of_items_alone, _ = toy_tagger.complete(["owl"], k=3)
    assert set(of_items_alone) <= set(world.themes["forest"])


@pytest.mark.parametrize(
    ("rows", "label", "options", "message"),
    [
        (0, "appel", {}, r"Unknown label 'appel'.*apple"),
        (slice(3), "apple", {}, "takes one item; got 3"),
        (0, "apple", {"k": 0}, "`k` of `explain` must be a whole number"),
        (None, "apple", {}, "Give features, tags, or both"),
    ],
)
def test_what_cannot_be_explained_is_said(toy_tagger, world, rows, label, options, message):
    with pytest.raises(InputError, match=message):
        toy_tagger.explain(None if rows is None else world.X_test[rows], label, **options)


def test_one_item_is_explained_in_any_form(toy_tagger, world):
    x = world.X_test[0]
    expected = toy_tagger.explain(x, "apple", k=2)
    forms = [x.tolist(), x[None], pl.Series(x), sp.csr_matrix(x[None]), sp.csr_array(x[None])]
    for form in forms:
        evidence = toy_tagger.explain(form, " APPLE", k=2)
        assert evidence.neighbours[0].document == expected.neighbours[0].document
        assert evidence.logit == pytest.approx(expected.logit, abs=1e-4)
        assert [one.tag for one in evidence.tags] == [one.tag for one in expected.tags]


def test_a_label_of_two_places_has_two_senses_and_one_of_one_place_has_fewer(toy_tagger, world):
    found = label_senses(toy_tagger.store_, "Apple")
    kitchen, office = (set(world.themes[name]) - {"apple"} for name in ("kitchen", "office"))
    assert found.label == "apple" and len(found.words) == 2
    places = [[set(words) <= place for place in (kitchen, office)] for words in found.words]
    assert sorted(places) == [[False, True], [True, False]]
    for sense in range(2):
        rows = found.documents[found.senses == sense]
        documents = [set(toy_tagger.store_.document(int(row))) for row in rows]
        assert all("apple" in document for document in documents)
        homes = {
            not document & kitchen
            for document in documents
            if bool(document & kitchen) != bool(document & office)
        }
        assert len(homes) == 1, "one place a sense"
    with pytest.raises(InputError, match="Unknown label 'appel'"):
        label_senses(toy_tagger.store_, "appel")


# ------------------------------------------------------------------ growing and shrinking


def test_documents_come_and_go_without_training(own_tagger, world):
    before = own_tagger.predict_proba(world.X_test)
    points = points_of(own_tagger, world.X_test)
    ids = own_tagger.add_documents([("sea", "sand", "jellyfish"), ("wave", "jellyfish")])
    assert own_tagger.classes_[-1] == "jellyfish" and own_tagger.kinds_[-1] == "oov"
    assert np.array_equal(points_of(own_tagger, world.X_test), points)
    scores, there = own_tagger.predict_proba(world.X_test)[:, -1], at(world, "beach")
    assert scores[there].min() > 1.2 * scores[~there].max()
    ranked, _ = own_tagger.rank(world.X_test[there], k=8)
    assert (ranked == "jellyfish").any(axis=1).all(), "two documents are enough to be suggested"
    own_tagger.remove_documents(ids)
    assert "jellyfish" not in own_tagger.classes_
    assert np.array_equal(own_tagger.predict_proba(world.X_test), before)


def test_more_documents_of_a_known_label_make_it_likelier_where_they_lie(own_tagger, world):
    X, column = world.X_test[at(world, "beach")], column_of(own_tagger, "towel")
    before = own_tagger.predict_proba(X)[:, column]
    own_tagger.add_documents([("sea", "sun", "towel")] * 50)
    assert (own_tagger.predict_proba(X)[:, column] > before).all()


def test_a_learned_label_without_documents_ranks_last_with_score_zero(own_tagger, world):
    store = own_tagger.store_
    holding = [name for row, name in enumerate(store.ids) if "tram" in store.document(row)]
    own_tagger.remove_documents(holding)
    labels, scores = own_tagger.rank(world.X_test, k=len(own_tagger.classes_))
    assert (labels[:, -1] == "tram").all() and (scores[:, -1] == 0).all()
    assert own_tagger.explain(world.X_test[0], "tram").probability == 0
    own_tagger.remove_documents(own_tagger.store_.ids)
    assert not own_tagger.predict_proba(world.X_test).any(), "nothing known, nothing suggested"
    assert not any(own_tagger.predict(world.X_test, threshold=1e-9))


def test_documents_that_were_fitted_and_are_removed_count_no_more(own_tagger):
    before, ids = own_tagger.n_fitted_, own_tagger.store_.ids[:10]
    own_tagger.add_documents([["sea", "parasol"], ["sand", "parasol"], ["sea", "sand"]])
    own_tagger.remove_documents(ids)
    assert own_tagger.n_fitted_ == before - 10 == len(own_tagger.store_.ids) - 3


def fail(*_):
    raise MemoryError


def test_what_is_refused_or_fails_leaves_the_tagger_as_it_was(
    own_tagger, world, theme_words, monkeypatch
):
    before, labels = own_tagger.predict_proba(world.X_test), list(own_tagger.classes_)
    taken = LabelCorpus.from_documents([("sea", "squid")], ids=[own_tagger.store_.ids[0]])
    lone = {"xyzzy": [1.0, 2.0]}
    for method, arguments, message in [
        ("remove_documents", [["nobody"]], "No known document is named 'nobody'"),
        ("add_documents", [taken], "is known already; remove it first or rename"),
        ("remove_labels", [["zebra"]], "Unknown label 'zebra'"),
        ("add_labels", [["beach", "xyzzy"], theme_words], "no word vectors for xyzzy"),
        ("add_labels", [["xyzzy"], lone], "None of the seen labels has a word vector"),
        ("add_labels", [["street"], "words.npz"], "must be WordVectors or a mapping"),
        ("fit", [world.X[:2], [["x"], ["y"], ["z"]]], "2 rows but there are 3"),
    ]:
        with pytest.raises(InputError, match=message):
            getattr(own_tagger, method)(*arguments)
    monkeypatch.setattr(ConceptSpace, "readout_of_names", fail)
    monkeypatch.setattr(KnownDocuments, "of", fail)
    with pytest.raises(MemoryError):
        own_tagger.add_labels(["beach"], theme_words)
    own_tagger.set_params(space=tiny().space)
    with pytest.raises(MemoryError):
        own_tagger.fit(world.X[:20, :3], world.documents[:20])
    assert list(own_tagger.classes_) == labels and own_tagger.named_ is None
    np.testing.assert_array_equal(own_tagger.predict_proba(world.X_test), before)


# ------------------------------------------------------------------ labels by name


def test_likeness_is_the_weights_of_kernel_ridge_regression():
    rng = np.random.default_rng(0)
    vectors = WordVectors({f"w{i}": rng.normal(size=5) for i in range(8)})
    seen, labels = [f"w{i}" for i in range(6)] + ["none"], ["w6", "w7"]
    likeness = name_likeness(labels, seen, vectors)
    units, _ = vectors.label_vectors([*seen[:6], *labels])
    kernel = np.exp((units @ units.T - 1) / 0.3)
    values = rng.normal(size=(6, 3))
    model = KernelRidge(alpha=0.3, kernel="precomputed").fit(kernel[:6, :6], values)
    np.testing.assert_allclose(likeness[:, :6] @ values, model.predict(kernel[6:, :6]), atol=1e-10)
    assert not likeness[:, 6].any(), "a seen label without a vector counts nothing"


def test_a_name_goes_where_names_like_it_go(own_tagger, world, theme_words):
    before = own_tagger.predict_proba(world.X_test)
    points = points_of(own_tagger, world.X_test)
    assert own_tagger.add_labels("beach", theme_words) == ("beach",), "one label, not five letters"
    assert own_tagger.classes_[-1] == "beach" and own_tagger.kinds_[-1] == "oov"
    after, there = own_tagger.predict_proba(world.X_test), at(world, "beach")
    np.testing.assert_array_equal(after[:, :-1], before, err_msg="nothing else moves")
    assert after[there, -1].mean() > 1.5 * after[~there, -1].mean()
    assert own_tagger.add_labels(["sea"], theme_words) == (), "it is known already"
    ranked, _ = own_tagger.rank(world.X_test, k=len(own_tagger.classes_))
    assert (ranked == "beach").any(axis=1).all()
    np.testing.assert_array_equal(points_of(own_tagger, world.X_test), points)
    tagged = own_tagger.predict(world.X_test[:2], precision=0.3, tags=[["beach"], []])
    assert tagged[0][0] == "beach"
    own_tagger.remove_labels(["BEACH"])
    assert "beach" not in own_tagger.classes_
    np.testing.assert_array_equal(own_tagger.predict_proba(world.X_test), before)


def test_named_labels_survive_saving_without_vectors_and_go_one_by_one(
    own_tagger, world, theme_words, tmp_path
):
    before = own_tagger.predict_proba(world.X_test)
    own_tagger.add_labels(["beach"], theme_words)
    own_tagger.add_labels(["street", "beach", " street  ", "forest"], theme_words)
    own_tagger.save(tmp_path / "again")
    loaded = polyseme.load(tmp_path / "again")
    assert tuple(loaded.classes_[-3:]) == ("beach", "forest", "street")
    scores = loaded.predict_proba(world.X_test)
    np.testing.assert_array_equal(scores, own_tagger.predict_proba(world.X_test))
    loaded.remove_labels("street")
    assert tuple(loaded.classes_[-2:]) == ("beach", "forest")
    loaded.remove_labels(["beach", "forest"]).add_labels(["forest"], theme_words)
    again = loaded.predict_proba(world.X_test)
    np.testing.assert_allclose(again[:, -1], scores[:, -2], atol=1e-6)
    loaded.remove_labels(["forest"])
    assert loaded.named_ is None
    np.testing.assert_array_equal(loaded.predict_proba(world.X_test), before)


def test_documents_take_the_place_of_a_name_unless_they_have_no_place(own_tagger, theme_words):
    own_tagger.add_labels(["beach"], theme_words)
    with pytest.warns(PolysemeWarning):
        own_tagger.add_documents([["beach", "never met"]])
    assert own_tagger.named_ is not None and "never met" not in own_tagger.classes_
    ids = own_tagger.add_documents([("sea", "sand", "beach"), ("wave", "beach")])
    assert list(own_tagger.classes_).count("beach") == 1 and own_tagger.named_ is None
    own_tagger.remove_documents(ids)
    assert "beach" not in own_tagger.classes_


def test_items_are_expected_to_have_a_name_as_often_as_labels_usually_are(own_tagger, theme_words):
    own_tagger.add_labels(["beach", "street"], theme_words)
    new = toy_world(random_state=9).X  # of the themes that training items have, one by one
    weights = own_tagger.space_.held_out_sample_.weights
    frequencies = weights @ own_tagger.predict_proba(new)[:, -2:] / weights.sum()
    np.testing.assert_allclose(frequencies, own_tagger.space_.typical_frequency, rtol=0.1)
    by_tags = own_tagger.predict_proba(None, [["sea", "sand"], ["bus", "lamp"]])[:, -2:]
    assert by_tags[0, 0] > by_tags[0, 1] and by_tags[1, 1] > by_tags[1, 0], "tags suggest names"


def test_a_name_is_explained_by_the_tags_it_goes_with_but_completes_nothing(
    own_tagger, world, theme_words
):
    own_tagger.add_labels("beach", theme_words)
    evidence = own_tagger.explain(world.X_test[world.themes_test.index("beach")], " BEACH", k=3)
    assert (evidence.label, evidence.kind, evidence.known) == ("beach", "oov", 0)
    assert evidence.features > 0 and not any(one.holds for one in evidence.neighbours)
    assert {one.tag for one in evidence.tags if one.part > 0} <= set(world.themes["beach"])
    with pytest.raises(InputError, match="'beach' came after the concept space was learned"):
        own_tagger.complete(["beach"])
    with_sea, _ = own_tagger.complete(["beach", "sea"], k=3)
    assert set(with_sea) <= set(world.themes["beach"])


def test_names_need_no_item_that_was_held_out(world, theme_words):
    tagger = tiny().fit(
        world.X[:1], world.documents[:1], world.label_sets[:20], label_sets_only=True
    )
    tagger.add_labels(["beach"], theme_words)
    assert np.isfinite(tagger.predict_proba(world.X_test)).all()
    with pytest.raises(InputError, match="or there is but one"):
        tagger.predict(world.X_test, precision=0.5)


# ------------------------------------------------------------------ saving


def test_a_loaded_tagger_is_the_saved_one(toy_tagger, own_tagger, world):
    X, tags = world.X_test, [["sea"]] * 25

    def answers(tagger):
        yield from (list(tagger.classes_), tagger.kinds_.tolist(), tagger.seen_)
        yield from (tagger.n_features_in_, tagger.space_.history_)
        for asked in ((X, None), (X, tags), (None, tags)):
            yield tagger.predict_proba(*asked).tolist()
        yield from (tagger.explain(X[0], "sea"), tagger.predict(X, precision=0.4))

    assert list(answers(own_tagger)) == list(answers(toy_tagger))


def test_taggers_without_features_or_with_numbers_of_a_grid_search_are_saved_too(world, tmp_path):
    numbers = {"n_folds": np.int64(2), "n_steps": np.int64(8), "context": np.float32(0.4)}
    made = ConceptSpace(**numbers, priming=np.float64(0.2), plan=PLAN)
    searched = ZeroShotTagger(space=made, random_state=np.int64(0))
    for tagger, X in ((searched, world.X), (tiny(), None)):
        tagger.fit(X, world.documents).save(tmp_path / "m")
        again, tags = polyseme.load(tmp_path / "m"), [["sea"]] * 300
        np.testing.assert_array_equal(again.predict_proba(X, tags), tagger.predict_proba(X, tags))


@pytest.fixture
def unsaved(toy_tagger):
    """A tagger of which nobody has said anything."""
    return copy.copy(toy_tagger).use_log(VerdictLog())


def test_verdicts_in_memory_go_to_the_folder_where_a_tagger_is_saved_and_on_from_there(
    unsaved, tmp_path
):
    unsaved.verdicts_.append([("a.jpg", "sea", True)])
    unsaved.save(tmp_path / "m")
    unsaved.verdicts_.append([("b.jpg", "sea", False)])
    found = polyseme.load(tmp_path / "m").verdicts_.standing()
    assert [verdict.item for verdict in found] == ["a.jpg", "b.jpg"]


def test_a_tagger_saved_elsewhere_takes_its_verdicts_along(unsaved, tmp_path):
    unsaved.save(tmp_path / "m")
    loaded = polyseme.load(tmp_path / "m")
    loaded.verdicts_.append([("a.jpg", "sea", True)])
    loaded.save(tmp_path / "copy")
    assert polyseme.load(tmp_path / "copy").verdicts_.standing() == loaded.verdicts_.standing()
    assert loaded.verdicts_.file == tmp_path / "m" / "verdicts.sqlite"


def test_a_tagger_fitted_anew_and_saved_over_another_leaves_its_verdicts(unsaved, tmp_path):
    again = copy.copy(unsaved)
    unsaved.save(tmp_path / "m")
    with polyseme.load(tmp_path / "m").verdicts_ as log:
        log.append([("a.jpg", "sea", True)])
    again.save(tmp_path / "m")
    assert polyseme.load(tmp_path / "m").verdicts_.count == 1


def test_models_of_other_methods_are_refused_in_a_sentence(tmp_path):
    write_model(tmp_path / "new", "tagger", {"method": "telepathy"}, {})
    with pytest.raises(ModelFileError, match=r"the method 'telepathy'.*fit it anew"):
        polyseme.load(tmp_path / "new")


# ------------------------------------------------------------------ manners


def test_a_space_with_a_seed_of_its_own_keeps_it_and_others_get_the_taggers(world):
    for own_seed in (5, None):
        made = ConceptSpace(n_folds=2, n_steps=8, plan=PLAN, random_state=own_seed)
        first, second = (
            ZeroShotTagger(space=made, random_state=seed)
            .fit(world.X, world.documents)
            .predict_proba(world.X_test)
            for seed in (0, 1)
        )
        assert np.array_equal(first, second) == (own_seed is not None)
        assert not hasattr(made, "members_"), "fit must leave the given space alone"


def test_rounds_are_shown_where_they_are_wanted(world, capsys, monkeypatch):
    monkeypatch.setattr(FileProgress, "SECONDS", -1.0)
    tiny(verbose=True).fit(world.X[:30], world.documents[:30])
    assert "training the concept space, rounds: 1 of 4" in capsys.readouterr().err
    tiny().fit(world.X[:30], world.documents[:30])
    assert capsys.readouterr().err == ""


def test_an_interrupted_tagger_without_a_seed_resumes(world, tmp_path, monkeypatch):
    save = SpaceTraining.save

    def interrupted(self, path):
        save(self, path)
        raise KeyboardInterrupt

    tagger = tiny(random_state=None, checkpoint=tmp_path / "run")
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(SpaceTraining, "save", interrupted)
        tagger.fit(world.X, world.documents, world.label_sets, label_sets_only=True)
    assert not hasattr(tagger, "space_")
    tagger.fit(world.X, world.documents, world.label_sets, label_sets_only=True)
    assert len(tagger.space_.history_) == 4


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        *((name, [np.zeros((1, 2))]) for name in ("rank", "predict", "predict_proba", "transform")),
        *((name, [["a"]]) for name in ("complete", "remove_documents", "remove_labels")),
        ("explain", [np.zeros(2), "a"]),
        ("thresholds", [0.5]),
        ("add_documents", [[["a"]]]),
        ("add_labels", [["a"], {"a": [1.0]}]),
        ("save", ["model"]),
    ],
)
def test_asking_before_fit_says_so(name, arguments):
    with pytest.raises(NotFittedError, match="This ZeroShotTagger is not fitted yet"):
        getattr(ZeroShotTagger(), name)(*arguments)


# ------------------------------------------------------------------ what is learned from


def test_documents_in_every_form_teach_the_same(world, tmp_path):
    X, documents = world.X[:30], world.documents[:30]
    labels = sorted({label for document in documents for label in document})
    table = [[label in document for label in labels] for document in documents]
    path = tmp_path / "documents.jsonl"
    path.write_text("".join(f"{list(document)}\n".replace("'", '"') for document in documents))
    corpus = LabelCorpus.from_documents(documents)
    unused = sp.hstack([corpus.matrix, sp.csr_matrix((30, 1))], format="csr")
    forms = [
        [set(document) for document in documents],
        corpus,
        replace(corpus, labels=(*corpus.labels, "unused"), matrix=unused),
        pd.DataFrame(table, columns=labels),
        path,
    ]
    wanted = tiny(n_steps=4).fit(X, documents)
    for form in forms:
        tagger = tiny(n_steps=4).fit(X, form)
        assert len(tagger.store_.ids) == 30
        scores = tagger.predict_proba(world.X_test)
        np.testing.assert_array_equal(scores, wanted.predict_proba(world.X_test))


def test_a_tagger_without_features_completes_and_grows_but_does_not_rank(tiny_space, world):
    tagger = ZeroShotTagger(space=tiny_space(n_steps=200), random_state=0)
    tagger.fit(None, [("sea", "kraken"), ("oak",)], world.label_sets, label_sets_only=True)
    assert set(tagger.kinds_) == {"unseen"} and "kraken" not in tagger.classes_
    assert len(tagger.complete(["sea"], k=3)[0]) == 3
    assert tagger.explain(None, "sand", tags=["sea"]).features == 0
    with pytest.raises(InputError, match="fitted without features"):
        tagger.rank(world.X_test)
    with pytest.raises(InputError, match="precision is learned on items with features"):
        tagger.predict(None, precision=0.5, tags=[["sea"]])
    ids = tagger.add_documents([("sea", "sand", "squid"), ("sun", "wave", "squid")])
    scores = tagger.predict_proba(None, [["sea", "sun"], ["oak", "moss"], ["bus", "car"]])[:, -1]
    assert tagger.classes_[-1] == "squid" and scores[0] > 1.2 * scores[1:].max()
    tagger.remove_documents(ids)
    assert "squid" not in tagger.classes_


def test_a_label_that_was_answered_for_outlives_its_documents(own_tagger, world, tmp_path):
    own_tagger.learn([(0, "kraken", True)], world.X_test)
    before = own_tagger.predict_proba(world.X_test)
    own_tagger.remove_documents(own_tagger.add_documents([("kraken", "sea"), ("kraken", "wave")]))
    np.testing.assert_array_equal(own_tagger.predict_proba(world.X_test), before)
    own_tagger.save(tmp_path / "again")
    assert list(polyseme.load(tmp_path / "again").classes_) == list(own_tagger.classes_)


def test_labels_of_items_that_no_label_set_holds_are_oov(world):
    documents = [(*document, "kraken") for document in world.documents[:30]]
    tagger = tiny().fit(world.X[:30], documents, world.label_sets, label_sets_only=True)
    assert tagger.kinds_[column_of(tagger, "kraken")] == "oov"
    assert set(tiny().fit(world.X[:30], documents).kinds_) == {"seen"}


def test_documents_of_both_lists_are_known_once(world):
    once = tiny().fit(world.X, world.documents)
    twice = tiny().fit(world.X, world.documents, world.documents)
    assert twice.store_.ids == once.store_.ids
    np.testing.assert_array_equal(*(one.predict_proba(world.X_test) for one in (once, twice)))
    ids = [f"item {i}" for i in range(len(world.documents))]
    corpus = LabelCorpus.from_documents(world.documents, ids=ids)
    named = tiny().fit(world.X[:100], corpus.select(np.arange(100)), corpus)
    assert named.store_.ids == tuple(ids)


def test_spellings_stay_apart_when_asked():
    documents, X = [("Apple", "phone"), ("apple", "pie")] * 20, np.tile([[0.0], [1.0]], (20, 1))
    apart = tiny(normalize_labels=False).fit(X, documents)
    assert set(apart.classes_) == {"Apple", "apple", "phone", "pie"}
    with pytest.raises(InputError, match="None of the tags is known: APPLE"):
        apart.complete(["APPLE"])
    assert len(apart.complete(["Apple"], k=2)[0]) == 2
    assert len(tiny().fit(X, documents).classes_) == 3


def test_constant_features_and_fewer_items_than_folds_work(world):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PolysemeWarning)
        tagger = tiny(n_folds=5).fit(np.ones((2, 3)), world.documents[:2], world.label_sets)
    assert np.isfinite(tagger.predict_proba(np.zeros((1, 3)))).all()


def test_documents_without_labels_are_left_out_of_what_is_known_and_named(world):
    documents, X = [*world.documents[:30], ()], world.X[:31]
    for label_sets in (world.label_sets[:30], None):
        with pytest.warns(PolysemeWarning, match="1 of 31 documents have no label and") as told:
            only = label_sets is not None
            tagger = tiny().fit(X, documents, label_sets, label_sets_only=only)
        assert len(told) == 1, "said once"
        if label_sets:
            assert tagger.dropped_ == ("instance:30",) and len(tagger.store_.ids) == 60
        assert np.isfinite(tagger.predict_proba(world.X_test)).all()


# ------------------------------------------------------------------ bad input


@pytest.mark.parametrize(
    ("documents", "label_sets", "message"),
    [
        ([["x"], ["y"]], [("sea", "sand")] * 3, "No item carries a label of the label sets"),
        ([(), ()], None, "All 2 documents given to `ZeroShotTagger` are empty"),
        ([["sea"], ["oak"]], [], "at least"),
        ([["sea"], 7], None, "Document 1 is int; expected a collection of labels"),
        ([["sea"], ["oak"], ["sea"]], None, "`X` has 2 rows but there are 3 documents"),
    ],
)
def test_bad_documents_get_one_sentence(documents, label_sets, message, world):
    with pytest.raises(InputError, match=message):
        only = label_sets is not None
        tiny().fit(world.X[:2], documents, label_sets, label_sets_only=only)


@pytest.mark.parametrize("k", [0, -1, 2.5, "all", True])
def test_a_number_of_labels_is_a_whole_number(toy_tagger, world, k):
    for method, asked in (("rank", world.X_test), ("complete", ["sea"])):
        message = f"`k` of `{method}` must be a whole number at least 1"
        with pytest.raises(InputError, match=message):
            getattr(toy_tagger, method)(asked, k=k)


def test_a_bad_parameter_is_named_before_any_training(world, monkeypatch):
    monkeypatch.setattr(SpaceTraining, "run", lambda *_: pytest.fail("trained"))
    with pytest.raises(InputError, match="`device` of `ConceptSpace` is 'abacus'"):
        ZeroShotTagger(device="abacus").fit(world.X, world.documents)
    with pytest.raises(InputError, match="`random_state` must not be negative"):
        ZeroShotTagger(random_state=-1).fit(world.X, world.documents)


# ------------------------------------------------------------------ feature extractors


class Words(MediaFeatures):
    """A feature extractor for words: how often each of the letters it met occurs."""

    kind = "words"
    suffixes = frozenset({".txt"})

    def __init__(self, random_state=None, n_jobs=1):
        self.random_state = random_state
        self.n_jobs = n_jobs

    def preprocessing(self):
        return {"version": 1}

    def extract_batch(self, items):
        return [
            np.bincount([ord(letter) for letter in str(item)], minlength=128).astype(np.float32)
            if item
            else MediaError("is empty")
            for item in items
        ]

    def fit_raw(self, raw):
        self.letters_ = np.flatnonzero(np.sum(raw, axis=0))
        self.seed_ = self.random_state
        self.n_features_out_ = len(self.letters_)

    def transform_raw(self, raw):
        return np.array(raw)[:, self.letters_]


def test_an_extractor_is_learned_by_fit_and_used_ever_after():
    words = ["seashore", "sandsea", "oakwood", "woodoak"] * 10
    documents = [["sea", "wet"], ["sea"], ["oak", "dry"], ["oak"]] * 10
    extractor = Words()
    tagger = tiny(n_steps=80, features=extractor).fit(words, documents)
    assert not hasattr(extractor, "letters_"), "fit must leave the given extractor alone"
    assert tagger.n_features_in_ == len(set("".join(words)))
    assert tagger.features_.seed_ is not None, "it is seeded by the tagger"
    labels, _ = tagger.rank(["sea", "wood"], k=1)
    assert labels.ravel().tolist() == ["sea", "oak"]
    extracted = Extracted("words", {"version": 1}, ("sea",), tagger.features_.raw(["sea"]))
    assert tagger.explain(extracted, "wet") == tagger.explain("sea", "wet")
    np.testing.assert_array_equal(tagger.predict_proba(extracted), tagger.predict_proba(["sea"]))
    with pytest.raises(InputError, match="cannot be used: is empty"):
        tagger.rank(["sea", ""])


def test_only_some_kinds_are_given_where_that_is_asked_for(toy_tagger, world):
    kinds = dict(zip(toy_tagger.classes_, toy_tagger.kinds_.tolist(), strict=True))
    # Labels on training items are asked for as seen, also where no label set holds them.
    kinds |= dict.fromkeys(world.oov, "seen")
    for wanted in ("seen", "unseen"):
        labels, scores = toy_tagger.rank(world.X_test, k=3, kinds=(wanted,))
        assert {kinds[label] for label in labels[scores > 0]} == {wanted}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sets = toy_tagger.predict(world.X_test, precision=0.95, kinds=("seen",))
    assert {kinds[label] for tags in sets for label in tags} <= {"seen"}
    every = toy_tagger.predict(world.X_test, threshold=0.3)
    seen = toy_tagger.predict(world.X_test, threshold=0.3, kinds=("seen",))
    assert [[t for t in tags if kinds[t] == "seen"] for tags in every] == [list(t) for t in seen]
    with pytest.raises(InputError, match="`kinds` of `rank` must be one of 'seen'"):
        toy_tagger.rank(world.X_test, kinds=("sean",))


# ------------------------------------------------------------------ clicks


def apart(tagger):
    """Copy a tagger that has been told nothing, with a log of its own."""
    return copy.deepcopy(tagger).use_log(VerdictLog())


def answers_of(world, theme, label, n=4):
    """Yes for items of a theme, no for others, by the numbers of their rows."""
    here = at(world, theme)
    rows = [*np.flatnonzero(here)[:n], *np.flatnonzero(~here)[:n]]
    return [(str(row), label, bool(here[row])) for row in rows]


@pytest.mark.parametrize("label", ["phone", "charger", "parasol"])
def test_scores_move_towards_answers_and_those_of_others_stay(own_tagger, world, label):
    """Seen, unseen and brand-new labels, said to belong to the beach."""
    before, known = own_tagger.decision_function(world.X_test), list(own_tagger.classes_)
    own_tagger.learn(answers_of(world, "beach", label), world.X_test)
    after, here = own_tagger.decision_function(world.X_test), at(world, "beach")
    others = [name for name in known if name != label]
    for name in others:
        np.testing.assert_array_equal(
            after[:, column_of(own_tagger, name)], before[:, known.index(name)]
        )
    column = after[:, column_of(own_tagger, label)]
    gap = column[here].mean() - column[~here].mean()
    old = before[:, known.index(label)] if label in known else np.zeros(len(here))
    assert gap > old[here].mean() - old[~here].mean() + 0.5


def test_a_new_label_by_two_answers_is_ranked_on_like_items(own_tagger, world):
    rows = np.flatnonzero(at(world, "beach"))[:2]
    own_tagger.learn([(row, "parasol", True) for row in rows], world.X_test)
    assert own_tagger.kinds_[column_of(own_tagger, "parasol")] == "oov"
    scores = own_tagger.predict_proba(world.X_test)[:, column_of(own_tagger, "parasol")]
    here = at(world, "beach")
    assert scores[here].min() > scores[~here].max()


@pytest.mark.parametrize("label", ["phone", "charger", "parasol"])
@pytest.mark.parametrize("again", [False, True], ids=["at once", "after loading"])
def test_after_an_undo_every_score_is_what_it_was_before(own_tagger, world, tmp_path, label, again):
    own_tagger.learn(answers_of(world, "office", "sea"), world.X_test)
    own_tagger.learn([("3", label, True), ("1", label, False)], world.X_test)
    own_tagger.undo(own_tagger.learn([("1", label, True)]))
    if label == "parasol":
        own_tagger.undo([own_tagger.verdicts_.count - 3, own_tagger.verdicts_.count - 2])
    labels, before = list(own_tagger.classes_), own_tagger.decision_function(world.X_test)
    numbers = own_tagger.learn(answers_of(world, "beach", label), world.X_test)
    assert len(numbers) == 8
    assert not np.array_equal(own_tagger.decision_function(world.X_test), before)
    if again:
        own_tagger.save(tmp_path / "other")
        own_tagger = polyseme.load(tmp_path / "other")
    own_tagger.undo(numbers)
    assert list(own_tagger.classes_) == labels
    np.testing.assert_allclose(own_tagger.decision_function(world.X_test), before, atol=1e-5)


def test_the_order_of_verdicts_changes_no_score(toy_tagger, world):
    said, scores = answers_of(world, "beach", "phone") + answers_of(world, "office", "sea"), []
    for verdicts in (said, said[::-1]):
        mine = apart(toy_tagger)
        for one in verdicts:
            mine.learn([one], world.X_test)
        scores.append(mine.decision_function(world.X_test))
    np.testing.assert_allclose(*scores, atol=1e-5)


def test_verdicts_on_a_blocked_label_count_when_it_is_suggested_again(own_tagger, world):
    said, column = answers_of(world, "beach", "phone"), column_of(own_tagger, "phone")
    own_tagger.block(["phone"]).learn(said, world.X_test)
    assert not own_tagger.predict_proba(world.X_test)[:, column].any()
    own_tagger.block(["phone"], undo=True)
    other = polyseme.load(own_tagger.verdicts_.file.parent)
    np.testing.assert_array_equal(
        own_tagger.decision_function(world.X_test), other.decision_function(world.X_test)
    )
    with pytest.raises(InputError, match="'phone' is blocked or was removed, so that nothing"):
        own_tagger.block(["phone"]).ask(world.X_test, "phone")


def test_a_renamed_label_keeps_its_answers(own_tagger, world, tmp_path):
    own_tagger.learn(answers_of(world, "beach", "phone"), world.X_test)
    before = own_tagger.decision_function(world.X_test)
    own_tagger.rename("phone", "telephone")
    np.testing.assert_array_equal(own_tagger.decision_function(world.X_test), before)
    own_tagger.save(tmp_path / "renamed")
    again = polyseme.load(tmp_path / "renamed")
    assert "phone" not in again.classes_, "its old name is no label of its own"
    np.testing.assert_array_equal(again.decision_function(world.X_test), before)


def test_answers_to_merged_labels_count_for_the_one_that_is_left(own_tagger, world):
    plain = apart(own_tagger).merge("phone", into="screen")
    own_tagger.learn(answers_of(world, "beach", "phone"), world.X_test)
    own_tagger.merge("phone", into="screen")
    gap, here = [], at(world, "beach")
    for tagger in (plain, own_tagger):
        scores = tagger.decision_function(world.X_test)[:, column_of(tagger, "screen")]
        gap.append(scores[here].mean() - scores[~here].mean())
    assert gap[1] > gap[0] + 0.5


def test_a_label_is_forgotten_with_all_that_was_ever_answered_for_it(own_tagger, world):
    own_tagger.learn([("3", "parasol", True), ("3", "parasol", True)], world.X_test)
    own_tagger.learn([("3", "parasol", False)])
    own_tagger.remove_labels(["parasol"])
    assert "parasol" not in own_tagger.classes_ and not own_tagger.verdicts_.standing()


def test_answers_to_a_removed_label_count_no_more(own_tagger, world):
    n = len(own_tagger.learn(answers_of(world, "beach", "parasol"), world.X_test))
    own_tagger.remove_labels(["parasol"])
    assert "parasol" not in own_tagger.classes_
    assert not own_tagger.verdicts_.standing() and own_tagger.verdicts_.count == 2 * n


def test_verdicts_survive_saving_copying_and_pickling(toy_tagger, world, tmp_path):
    mine = apart(toy_tagger)
    mine.learn(answers_of(world, "beach", "parasol"), world.X_test)
    expected = mine.decision_function(world.X_test)
    mine.save(tmp_path / "model")
    for other in (polyseme.load(tmp_path / "model"), pickle.loads(pickle.dumps(mine))):
        np.testing.assert_array_equal(other.decision_function(world.X_test), expected)
        assert len(other.verdicts_.standing()) == 8
    assert not toy_tagger.verdicts_.count, "a copy's clicks are its own"


def test_a_loaded_tagger_learns_what_its_folder_was_told_meanwhile(own_tagger, world):
    own_tagger.learn(answers_of(world, "beach", "parasol"), world.X_test)
    other = polyseme.load(own_tagger.verdicts_.file.parent)
    np.testing.assert_array_equal(
        other.decision_function(world.X_test), own_tagger.decision_function(world.X_test)
    )
    own_tagger.save(own_tagger.verdicts_.file.parent)
    other.use_log(VerdictLog())
    assert "parasol" not in other.classes_


@pytest.mark.parametrize(
    ("verdicts", "X", "message"),
    [
        ([("photo", "sea", True)], None, "Nothing is known of the item 'photo'; give `X`"),
        ([("photo", "sea", True)], "X", "X has no item 'photo'; .* numbers of their rows, from 0"),
        ([("photo", "sea", True)], "frame", "X has no item 'photo'; .* by their ids"),
        ([("0", "sea", 1)], "X", "must have True or False as `answer`"),
        ([("0", "sea")], "X", r"tuple \(item, label, answer\)"),
        ([("0", "", True)], "X", "empty"),
    ],
)
def test_what_cannot_be_learned_is_said_and_leaves_no_trace(
    own_tagger, world, verdicts, X, message
):
    frame = (
        pd.DataFrame(world.X_test).rename(columns=str).assign(id=[*map(str, world.X_test[:, 0])])
    )
    given = {None: None, "X": world.X_test, "frame": frame}[X]
    before = own_tagger.decision_function(world.X_test)
    with pytest.raises(InputError, match=message):
        own_tagger.learn(verdicts, given)
    assert not own_tagger.verdicts_.count
    np.testing.assert_array_equal(own_tagger.decision_function(world.X_test), before)


def test_a_row_of_another_table_is_not_taken_for_an_item_that_is_known(own_tagger, world):
    own_tagger.learn([(0, "sea", True)], world.X_test)
    own_tagger.learn([(0, "sea", False)], world.X_test)
    with pytest.raises(InputError, match="Row 0 is not the item '0' that verdicts were given"):
        own_tagger.learn([(0, "sea", True)], world.X_test[::-1])


def test_items_of_frames_are_known_by_their_ids(own_tagger, world):
    names = [f"photo {row}" for row in range(len(world.X_test))]
    frame = pd.DataFrame(world.X_test, columns=[*"abcde"]).assign(id=names)
    (first, *_) = own_tagger.ask(frame, "sea", k=3, strategy="likeliest")
    assert first.item == names[first.row]
    own_tagger.learn([(first.item, "sea", True)], frame)
    own_tagger.learn([(first.item, "wave", True)])
    assert first.item not in {one.item for one in own_tagger.ask(frame, "sea", k=500)}


def test_a_tagger_without_features_learns_no_verdicts(tiny_space, world):
    tagger = ZeroShotTagger(space=tiny_space(n_steps=8), random_state=0)
    tagger.fit(None, world.label_sets)
    for call in (lambda: tagger.learn([("0", "sea", True)]), lambda: tagger.ask(world.X_test)):
        with pytest.raises(InputError, match="was fitted without features"):
            call()


@pytest.mark.parametrize("label", ["phone", "parasol"])
def test_parts_of_evidence_add_up_with_answers(own_tagger, world, label):
    own_tagger.learn(answers_of(world, "beach", label), world.X_test)
    found = own_tagger.explain(world.X_test[0], label, k=100)
    parts = [found.frequency, found.features, found.other_tags, found.known, found.verdicts]
    assert found.verdicts and found.logit == pytest.approx(
        sum(parts) + sum(one.part for one in found.tags)
    )
    logits = own_tagger.decision_function(world.X_test[:1])
    assert found.logit == pytest.approx(logits[0, column_of(own_tagger, label)])


def test_questions_about_one_label_or_any_leave_out_what_is_known(own_tagger, world):
    (one, *rest) = own_tagger.ask(world.X_test, "sea", k=5, strategy="likeliest")
    assert {question.label for question in rest} == {"sea"}
    scores = own_tagger.predict_proba(world.X_test)
    assert one.probability == pytest.approx(scores[:, column_of(own_tagger, "sea")].max())
    own_tagger.learn([(one.item, "SEA", True)], world.X_test)
    asked = own_tagger.ask(world.X_test, k=10**6, strategy="likeliest")
    assert len(asked) == scores.size - 1
    assert (one.item, "sea") not in {(each.item, each.label) for each in asked}
    tags = [["sea"]] * len(world.X_test)
    with_tags = own_tagger.ask(world.X_test, k=10**6, strategy="likeliest", tags=tags)
    assert "sea" not in {each.label for each in with_tags}


def test_missing_and_wrong_tags_are_found(own_tagger, world):
    wrong = [list(world.themes[theme]) for theme in world.themes_test]
    row = next(row for row, tags in enumerate(wrong) if "sea" in tags and "desk" not in tags)
    wrong[row] = [tag for tag in wrong[row] if tag != "sea"] + ["desk"]
    found = own_tagger.ask(world.X_test, "desk", k=3, strategy="errors", tags=wrong)
    assert (found[0].row, found[0].reason) == (row, "doubtful")
    found = own_tagger.ask(world.X_test, k=30, strategy="errors", tags=wrong)
    reasons = {(one.row, one.label): one.reason for one in found}
    assert reasons == {(row, "desk"): "doubtful", (row, "sea"): "missing"}
    # Nobody has tagged it yet: that is no error.
    wrong[row] = []
    assert own_tagger.ask(world.X_test, k=30, strategy="errors", tags=wrong) == []


def test_questions_of_an_indicator_matrix_are_about_its_columns(world, tiny_space):
    frame = pd.DataFrame({"phone": [1, 0] * 20, "sea": [0, 1] * 20, "sun": [0, 1] * 20})
    X = np.eye(2)[[0, 1] * 20] + np.random.default_rng(0).normal(size=(40, 2)) / 9
    tagger = tiny(n_steps=60, n_validations=0).fit(X, frame)
    asked = tagger.ask(X, "sea", k=4, strategy="likeliest")
    assert {(one.label, one.row % 2) for one in asked} == {("sea", 1)}


# ------------------------------------------------------------------ what was learned before


def folder_of(tagger):
    return tagger.verdicts_.file.parent


def assert_same(one, other, world):
    """Two taggers know the same labels and score them alike."""
    assert list(one.classes_) == list(other.classes_)
    np.testing.assert_allclose(
        one.decision_function(world.X_test), other.decision_function(world.X_test), atol=1e-5
    )


def load_without_cache(folder):
    """Load a tagger that finds no cached correction."""
    with VerdictLog(folder) as log:
        log.cache_corrections([])
    return polyseme.load(folder)


@pytest.fixture
def told(own_tagger, world):
    """A tagger in a folder that was told of a seen, an unseen and a new label."""
    for theme, label in (("beach", "phone"), ("office", "shell"), ("beach", "parasol")):
        own_tagger.learn(answers_of(world, theme, label), world.X_test)
    return own_tagger


def test_cached_corrections_are_not_fitted_again(told, world, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr("polyseme.feedback.corrections.fit_correction", fail)
        loaded = polyseme.load(folder_of(told))
        loaded.block(["sea"]).block(["sea"], undo=True)
    assert len(loaded._corrections.by_column) == 3
    assert_same(loaded, told, world)
    assert_same(load_without_cache(folder_of(told)), told, world)


CHANGES = {
    "block": lambda one: one.block(["phone"]),
    "rename": lambda one: one.rename("phone", "telephone"),
    "merge": lambda one: one.merge("phone", into="screen"),
    "remove": lambda one: one.remove_labels(["phone"]),
    "remove a new one": lambda one: one.remove_labels(["parasol"]),
    "documents": lambda one: one.add_documents([["phone", "sea", "canoe"], ["parasol", "sand"]]),
    "names": lambda one: one.add_labels(["seaside"], {"seaside": [1.0, 0.0], "sea": [1.0, 0.1]}),
    "undo": lambda one: one.undo([1, 2, 17]),
    "learn": lambda one: one.learn([("3", "phone", True), ("2", "aloe", False)]),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("elsewhere", [True, False], ids=["elsewhere", "over"])
def test_the_cache_stays_right_when_a_tagger_is_changed(told, world, tmp_path, change, elsewhere):
    told.learn([("2", "sun", True)], world.X_test)
    CHANGES[change](told)
    folder = tmp_path / "other" if elsewhere else folder_of(told)
    told.save(folder)
    assert_same(polyseme.load(folder), told, world)
    assert_same(load_without_cache(folder), told, world)


def test_a_change_that_is_not_saved_does_not_change_a_loaded_tagger(told, world):
    before = told.decision_function(world.X_test)
    told.add_documents([["phone", "sea"]] * 5)
    told.undo(told.learn([("9", "sun", True)], world.X_test))
    again = polyseme.load(folder_of(told))
    np.testing.assert_allclose(again.decision_function(world.X_test), before, atol=1e-5)


@pytest.mark.parametrize(
    "damage",
    [
        "DELETE FROM corrections",
        "UPDATE corrections SET weights = zeroblob(8)",
        "UPDATE corrections SET weights = zeroblob(7)",
        "UPDATE corrections SET weights = 'text'",
        "UPDATE corrections SET weights = x'" + "000000000000f87f" * 5 + "'",
        "UPDATE corrections SET intercept = 9e999",
        "UPDATE corrections SET intercept = 'text'",
        "UPDATE corrections SET key = randomblob(32)",
        "UPDATE corrections SET key = 'text' || rowid",
    ],
)
def test_a_damaged_cache_is_ignored_and_written_again(told, world, monkeypatch, damage):
    folder = folder_of(told)
    with sqlite3.connect(folder / "verdicts.sqlite") as database:
        database.execute(damage)
    database.close()
    assert_same(polyseme.load(folder), told, world)
    monkeypatch.setattr("polyseme.feedback.corrections.fit_correction", fail)
    assert_same(polyseme.load(folder), told, world)


def test_a_log_that_cannot_be_written_is_learned_from(told, world, monkeypatch):
    def refuse(*_):
        raise ModelFileError("read-only")

    with VerdictLog(folder_of(told)) as log:
        log.cache_corrections([])
    monkeypatch.setattr(VerdictLog, "cache_corrections", refuse)
    assert_same(polyseme.load(folder_of(told)), told, world)


def test_known_documents_decide_corrections_of_labels_that_they_vote_for(told):
    scorer = told._scorer
    reference = _reference_sample(scorer)

    def keys():
        columns = [column_of(told, label) for label in ("phone", "parasol")]
        return [_cache_key(scorer, reference, column, b"verdicts") for column in columns]

    phone, parasol = keys()
    scorer = replace(scorer, store=told.store_.remove(told.store_.ids[:1]))
    assert keys()[0] != phone and keys()[1] == parasol


def test_the_cache_is_not_written_for_every_answer(told, world):
    def n_cached():
        return len(told.verdicts_.cached_corrections())

    labels = [label for label in told.classes_ if label not in ("phone", "shell", "parasol")][:13]
    told.learn([("2", label, True) for label in labels], world.X_test)
    assert n_cached() == 16
    before = told.verdicts_.cached_corrections()
    told.learn([("3", labels[0], True), ("3", labels[1], True)], world.X_test)
    assert told.verdicts_.cached_corrections() == before, "two of sixteen are fitted quickly"
    told.learn([("3", labels[2], True)], world.X_test)
    assert told.verdicts_.cached_corrections() != before


# ------------------------------------------------------------------ what others say


def both(told):
    """The same model, loaded twice."""
    return told, polyseme.load(folder_of(told))


def test_a_tagger_catches_up_with_what_another_was_told(told, world):
    one, other = both(told)
    assert not other.refresh()
    numbers = one.learn(answers_of(world, "beach", "canoe"), world.X_test)
    one.learn([("1", "phone", True)])
    assert other.refresh() and not other.refresh()
    assert_same(other, one, world)
    one.undo((*numbers[:1], 1))
    one.undo(numbers[1:])
    assert other.refresh() and "canoe" not in other.classes_
    assert_same(other, one, world)
    assert_same(other, load_without_cache(folder_of(one)), world)


def test_only_labels_that_were_answered_for_are_corrected_anew(told, world, monkeypatch):
    one, other = both(told)
    one.learn([("1", "phone", True)])
    fitted = []
    fit = Corrections._fit

    def recorded_fit(self, scorer, reference, column, *values):
        fitted.append(scorer.labels[column])
        return fit(self, scorer, reference, column, *values)

    monkeypatch.setattr(Corrections, "_fit", recorded_fit)
    assert other.refresh() and fitted == ["phone"]


@pytest.mark.parametrize("seed", range(3))
def test_whoever_speaks_in_whatever_order_all_end_where_a_new_one_begins(told, world, seed):
    rng, taggers = np.random.default_rng(seed), both(told)
    labels = ["phone", "Canoe", "sun", "parasol", "aloe", "canoe"]
    for _ in range(8):
        tagger = taggers[rng.integers(2)]
        mine = [verdict.number for verdict in told.verdicts_.standing()]
        if rng.random() < 0.4:
            tagger.undo(rng.choice(mine, size=3, replace=False).tolist())
        else:
            rows, label = rng.integers(len(world.X_test), size=2), rng.choice(labels)
            tagger.learn([(row, label, bool(rng.random() < 0.5)) for row in rows], world.X_test)
        new = polyseme.load(folder_of(told))
        assert_same(tagger, new, world)
    for tagger in taggers:
        tagger.refresh()
        assert_same(tagger, load_without_cache(folder_of(told)), world)


def test_an_item_that_another_has_placed_again_moves_its_labels(told, world):
    one, other = both(told)
    (item, *_) = other._corrections.feedback.items()
    vector = other._corrections.feedback.vectors([item])[item]
    one.verdicts_.append([], {item: vector[::-1]}, one.space_.digest_)
    before = other.decision_function(world.X_test)
    assert other.refresh()
    assert not np.array_equal(other.decision_function(world.X_test), before)
    assert_same(other, polyseme.load(folder_of(told)), world)


def test_answers_that_could_not_be_learned_are_learned_later(told, world, monkeypatch):
    before = told.decision_function(world.X_test)
    with monkeypatch.context() as patched, pytest.raises(MemoryError):
        patched.setattr("polyseme.feedback.corrections.fit_correction", fail)
        told.learn([("1", "canoe", True)])
    np.testing.assert_array_equal(told.decision_function(world.X_test), before)
    assert "canoe" not in told.classes_ and told.refresh()
    assert_same(told, polyseme.load(folder_of(told)), world)


def test_labels_by_answers_alone_come_in_the_order_of_their_names(told, world):
    told.learn([("1", "zebra", True), ("1", "canoe", True)])
    told.add_labels(["seaside"], {"seaside": [1.0, 0.0], "sea": [1.0, 0.1]})
    assert list(told.classes_[-4:]) == ["seaside", "canoe", "parasol", "zebra"]


# ------------------------------------------------------------------ a copy that learns meanwhile


def doings(world):
    """What a service does to copies of a tagger, as functions of a copy."""
    yield lambda one: one.learn(answers_of(world, "beach", "phone", 7), world.X_test)
    yield lambda one: one.learn([("7", "zebra", True), ("1", "phone", False)], world.X_test)
    yield lambda one: one.undo([1, 2])
    yield lambda one: one.refresh()
    yield lambda one: one.add_documents([["canoe", "sea"], ["phone", "sand"]])
    yield lambda one: one._update()
    yield lambda one: one.block(["sun"])
    yield lambda one: one.rename("shell", "scallop")
    yield lambda one: one.use_log(VerdictLog())


def looks(tagger, world):
    """All that is read while people rank, ask and look into a label."""
    labels, scores = tagger.rank(world.X_test, k=50)
    asked = tagger.ask(world.X_test, "phone", k=9)
    return labels.tolist(), scores.tolist(), asked, tagger.explain(world.X_test[0], "phone")


def test_a_copy_that_learns_leaves_the_original_as_it_is(told, world):
    before, state = looks(told, world), dict(vars(told))
    answers = (
        copy.deepcopy(told._corrections.feedback._answers),
        dict(told._corrections.feedback._vector_keys),
    )
    corrections = copy.deepcopy(told._corrections.by_column)
    for doing in doings(world):
        clone = copy.copy(told)
        doing(clone)
        assert looks(told, world) == before
        assert all(vars(told)[name] is value for name, value in state.items())
        assert (
            told._corrections.feedback._answers,
            told._corrections.feedback._vector_keys,
        ) == answers
        keys = {column: one.key for column, one in told._corrections.by_column.items()}
        assert keys == {column: one.key for column, one in corrections.items()}


def test_others_rank_and_ask_with_the_original_while_a_copy_learns(told, world):
    """What a service does: a copy learns and takes the place, nobody waits or sees half of it."""
    serving, expected, failures, done = [told], {id(told): looks(told, world)}, [], Event()
    kept = [told]  # so that no two have one identity

    def rank():
        while not done.is_set():
            one = serving[0]
            try:
                if looks(one, world) != expected[id(one)]:
                    failures.append("another answer")
            except Exception as error:  # what a thread raises is lost else
                failures.append(error)

    readers = [Thread(target=rank) for _ in range(2)]
    for reader in readers:
        reader.start()
    for turn in range(6):
        clone = copy.copy(serving[0])
        numbers = clone.learn(answers_of(world, "beach", "phone", 2 + turn), world.X_test)
        clone.learn([(turn, "canoe", True)], world.X_test)
        clone.undo(numbers[:1])
        expected[id(clone)] = looks(clone, world)
        kept.append(clone)
        serving[0] = clone
    done.set()
    for reader in readers:
        reader.join()
    assert not failures and len(expected) == 7
    assert_same(serving[0], polyseme.load(folder_of(told)), world)


# ------------------------------------------------------------------ items without tags


def test_without_validation_the_pool_is_used_as_told(world):
    fitted = tiny(n_validations=0).fit(
        world.X, world.documents, world.label_sets, unlabelled=world.X_test
    )
    plain = tiny(n_validations=0).fit(world.X, world.documents, world.label_sets)
    assert (fitted.pooled_, plain.pooled_, fitted.validation_) == (True, False, None)
    assert fitted.space_.digest_ != plain.space_.digest_


@pytest.mark.parametrize(("gain", "used"), [(0.02, True), (-0.02, False), (0.0, False)])
def test_the_pool_is_used_where_it_helps_on_labels_made_unseen(world, monkeypatch, gain, used):
    monkeypatch.setattr("polyseme.fitting.holdout_validation.Validation.gain_over", lambda *_: gain)
    fitted = tiny().fit(
        world.X, world.documents, world.label_sets, unlabelled=world.X_test, label_sets_only=True
    )
    plain = tiny().fit(world.X, world.documents, world.label_sets, label_sets_only=True)
    assert fitted.pooled_ == used and fitted.validation_.pool_gain == gain
    assert (fitted.space_.digest_ == plain.space_.digest_) != used


def test_a_pool_in_every_form_is_the_same_and_columns_are_put_in_order(world):
    names = [*"abcde"]
    X, pool = (pd.DataFrame(table, columns=names) for table in (world.X, world.X_test))
    forms = [pool, pool[names[::-1]], pl.DataFrame(world.X_test, names)[names[::-1]]]
    digests = {
        tiny(n_validations=0)
        .fit(X, world.documents, world.label_sets, unlabelled=form, label_sets_only=True)
        .space_.digest_
        for form in forms
    }
    assert len(digests) == 1
    with pytest.raises(InputError, match="columns"):
        tiny().fit(X, world.documents, unlabelled=pool.rename(columns={"a": "z"}))
    with pytest.raises(InputError, match="features"):
        tiny().fit(world.X, world.documents, unlabelled=world.X_test[:, :3])
    with pytest.raises(InputError, match="give X, too"):
        tiny().fit(None, world.documents, unlabelled=world.X_test)


def test_a_pool_of_files_is_known_by_their_names():
    words = ["seashore", "sandsea", "oakwood", "woodoak"] * 10
    documents = [["sea", "wet"], ["sea"], ["oak", "dry"], ["oak"]] * 10
    pool = ["sea", "wood", "sandshore"]
    tagger = tiny(features=Words(), n_validations=0).fit(words, documents, unlabelled=pool)
    assert {one.item for one in tagger.ask(pool, k=50)} == set(pool)
    said = [("sandshore", "wet", False), ("wood", "wet", True)]
    with pytest.raises(InputError, match="Nothing is known of the item 'sandshore'"):
        tagger.learn(said)
    tagger.learn(said, ["sandshore", "wood"])
    with warnings.catch_warnings():
        warnings.filterwarnings("error", "Verdicts on", PolysemeWarning)
        tagger.fit(words, documents, unlabelled=pool)
    assert tagger.space_.project(np.ones((1, tagger.n_features_in_))).shape == (1, 10)
    assert tagger._corrections.by_column, "what was said of files is placed in the new space"


def test_verdicts_teach_the_next_fit_and_new_labels_come_back(world):
    tagger = tiny(n_validations=0)
    given = (world.X, world.documents, world.label_sets)
    tagger.fit(*given, unlabelled=world.X_test)
    plain = tagger.space_.digest_
    tagger.learn(answers_of(world, "beach", "phone"), world.X_test)
    tagger.learn(answers_of(world, "beach", "parasol"), world.X_test)
    tagger.fit(*given, unlabelled=world.X_test)
    assert tagger.space_.digest_ != plain and "parasol" in tagger.classes_
    assert len(tagger._corrections.by_column) == 2 and len(tagger.verdicts_.standing()) == 16
    said = [Verdict(*one) for one in answers_of(world, "beach", "phone")]
    other = tiny(n_validations=0).fit(*given, unlabelled=world.X_test, verdicts=said)
    assert other.space_.digest_ == tagger.space_.digest_


def test_numbers_of_rows_that_are_other_items_now_are_passed_over(world):
    tagger = tiny(n_validations=0).fit(world.X, world.documents)
    tagger.learn([(0, "sea", True), (1, "sea", False)], world.X_test)
    with pytest.warns(PolysemeWarning, match="Verdicts on 2 items are kept but not learned from"):
        tagger.set_params(random_state=1).fit(world.X, world.documents)
    assert not tagger._corrections.by_column and len(tagger.verdicts_.standing()) == 2


def test_a_fit_that_fails_leaves_scores_and_verdicts(own_tagger, world, monkeypatch):
    own_tagger.set_params(space=tiny().space, n_validations=0)
    own_tagger.learn(answers_of(world, "beach", "phone"), world.X_test)
    before, log = own_tagger.decision_function(world.X_test), own_tagger.verdicts_
    monkeypatch.setattr("polyseme.fitting.training_set.TrainingSet.place_answered", fail)
    with pytest.raises(MemoryError):
        own_tagger.fit(world.X, world.documents, verdicts=[])
    assert own_tagger.verdicts_ is log
    np.testing.assert_array_equal(own_tagger.decision_function(world.X_test), before)
    own_tagger.learn([("0", "sun", True)], world.X_test)
    assert log.count == 9


@pytest.mark.parametrize("form", [np.asarray, sp.csr_matrix])
def test_items_with_the_same_features_are_told(form, tiny_space):
    documents = [["a", "b"], ["b", "c"], ["a", "c"], ["c"]] * 10
    X = np.random.default_rng(0).normal(size=(40, 4))
    tagger = ZeroShotTagger(space=tiny_space(n_steps=4), n_validations=0, random_state=0)
    X[:4] = X[4]
    with warnings.catch_warnings():
        warnings.simplefilter("error", PolysemeWarning)
        X[1:5] += np.arange(4)[:, np.newaxis]
        tagger.fit(form(X), documents)
    X[10:] = 0.5
    with pytest.warns(PolysemeWarning, match="30 of 40 items have the same features: nothing"):
        tagger.fit(form(X), documents)
