"""Ranks, scores, tag sets, completion and explanation of fitted taggers."""

from __future__ import annotations

import copy

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

import polyseme
from polyseme import ZeroShotTagger
from polyseme.base.validation import InputError, PolysemeWarning
from polyseme.documents import tags as tags_module
from polyseme.documents.tags import label_preference, rank_blocks, rank_labels
from polyseme.documents.toy import toy_world
from polyseme.metrics import example_map
from polyseme.scoring.scorer import LabelScorer
from polyseme.scoring.senses import label_senses
from toy_taggers import (
    column_of,
    points_of,
)

# ------------------------------------------------------------------ what every tagger keeps to


@pytest.fixture(params=["toy_tagger", "published_tagger"], scope="session", ids=["space", "paper"])
def tagger(request):
    """A fitted tagger, which no test may change."""
    return request.getfixturevalue(request.param)


@pytest.fixture
def changeable(tagger, tmp_path):
    """A copy that a test may change."""
    copy.copy(tagger).save(tmp_path / "model")
    return polyseme.load(tmp_path / "model")


def test_all_labels_of_the_theme_rank_above_all_others(tagger, world, new_items):
    truth = world.truth(tagger.classes_)
    scores = tagger.decision_function(new_items)
    assert example_map(truth, scores) > 0.97
    for kind in ("seen", "unseen", "oov"):
        columns = tagger.kinds_ == kind
        for row, true in zip(scores[:, columns], truth[:, columns], strict=True):
            assert not true.any() or row[true].min() > row[~true].max()


def test_kinds_say_what_training_met(tagger, world):
    labels_by_kind = {"seen": set(), "unseen": set(), "oov": set()}
    for label, kind in zip(tagger.classes_, tagger.kinds_, strict=True):
        labels_by_kind[kind].add(label)
    assert labels_by_kind["unseen"] == set(world.unseen)
    assert labels_by_kind["oov"] == set(world.oov)
    assert "apple" in labels_by_kind["seen"]
    assert tagger.seen_ == labels_by_kind["seen"]
    assert tagger.n_features_in_ == 5
    assert tagger.dropped_ == ()


def test_features_in_every_form_give_the_same_scores(tagger, new_items, monkeypatch):
    X = new_items
    columns = [f"f{i}" for i in range(X.shape[1])]
    expected = tagger.decision_function(X)
    (labels, _) = tagger.rank(X, k=4)
    frames = [pd.DataFrame(X, columns=columns), pl.DataFrame(X, columns)]
    for form in [X.tolist(), sp.csr_matrix(X), sp.coo_array(X), *frames]:
        assert_allclose(tagger.decision_function(form), expected, rtol=1e-4)
    single = np.concatenate([tagger.decision_function(x[None]) for x in X])
    assert_allclose(single, expected, rtol=1e-4)
    monkeypatch.setattr(tags_module, "_BLOCK_NUMBERS", 7 * len(tagger.classes_))
    assert_allclose(tagger.decision_function(X), expected, rtol=1e-4)
    assert_array_equal(tagger.rank(X, k=4)[0], labels)


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
        expected_row = set(world.themes[theme])
        assert set(row) <= expected_row
        expected_row = tagger.complete(tags, k=3)[0].tolist()
        assert row.tolist() == expected_row
    sea = tagger.complete(["sea"], k=4)[0].tolist()
    assert tagger.complete("sea", k=4)[0].tolist() == sea
    assert tagger.complete(["  SEA "], k=4)[0].tolist() == sea, "spelling does not matter"


def test_unknown_tags_are_named_and_all_unknown_is_an_error(tagger):
    with pytest.warns(PolysemeWarning, match="Unknown tags are passed over: zeppelin") as caught:
        labels, _ = tagger.complete(["sea", "zeppelin"])
    assert len(caught) == 1, "said once"
    expected_labels = tagger.complete(["sea"])[0].tolist()
    assert labels.tolist() == expected_labels
    with pytest.raises(InputError, match="None of the tags is known: zeppelin"):
        tagger.complete(["zeppelin"])
    with pytest.raises(InputError, match="no tag was given"):
        tagger.complete([])


def test_dropped_documents_are_reported(changeable):
    with pytest.warns(PolysemeWarning, match="1 of 2 documents hold no label"):
        ids = changeable.add_documents([("zeppelin",), ("sea", "zeppelin")])
    assert len(ids) == 1
    assert len(changeable.dropped_) == 1


def test_a_loaded_tagger_writes_the_same_bytes_and_can_grow_and_be_saved_again(
    tagger, changeable, tmp_path, new_items
):
    changeable.save(tmp_path / "again")
    tagger.save(tmp_path / "first")
    first, second = (
        {path.name: path.read_bytes() for path in (tmp_path / name).iterdir()}
        for name in ("first", "again")
    )
    assert first == second
    changeable.add_documents([("sea", "jellyfish"), ("oak", "lichen")])
    changeable.add_documents([("moss", "lichen")])
    changeable.save(tmp_path / "grown")
    grown = polyseme.load(tmp_path / "grown")
    assert list(grown.classes_) == list(changeable.classes_)
    scores = [model.decision_function(new_items) for model in (grown, changeable)]
    assert_array_equal(*scores)


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
    preference = label_preference(occurrences)
    label_ids, best = rank_labels(scores, preference, k)
    for row, ids in zip(scores, label_ids, strict=True):
        keys = [(-row[column], -occurrences[column], column) for column in range(40)]
        expected_ids = [column for _, _, column in sorted(keys)]
        assert ids.tolist() == expected_ids[:k]
    expected_best = np.take_along_axis(np.array(scores), label_ids, axis=1)
    assert_array_equal(best, expected_best)


def test_scores_that_are_no_numbers_come_last():
    scores = np.full((2, 40), np.nan)
    scores[0, 7] = 0.5
    label_ids, best = rank_labels(scores, label_preference(np.zeros(40)), 3)
    assert label_ids[0, 0] == 7
    assert best[0, 0] == 0.5
    assert np.isnan(best[0, 1:]).all()
    assert np.isnan(best[1]).all()


@pytest.mark.parametrize(("n", "n_labels"), [(0, 5), (1, 1), (7, 3), (100, 10**9), (5, 0)])
def test_blocks_cover_every_row_once(n, n_labels):
    rows = [row for block in rank_blocks(n, n_labels) for row in range(block.start, block.stop)]
    expected_rows = list(range(n))
    assert rows == expected_rows


def test_of_equal_scores_the_commoner_label_is_first(own_tagger, new_items, monkeypatch):
    def level(self, codes, features):
        return np.zeros((len(codes), len(self.labels)))

    monkeypatch.setattr(LabelScorer, "plain_logits", level)
    labels, scores = own_tagger.rank(new_items[:2], k=50)
    assert (scores == 0.5).all()
    order = np.argsort(-own_tagger.store_.counts, kind="stable")
    assert labels[0].tolist() == labels[1].tolist() == own_tagger.classes_[order].tolist()


def test_shuffled_features_rank_no_better_than_popularity(world, new_items, tiny_space):
    precisions = []
    for seed in range(4):
        order = np.random.default_rng(seed).permutation(len(world.X))
        tagger = ZeroShotTagger(space=tiny_space(n_steps=60), n_validations=0, random_state=0)
        tagger.fit(world.X[order], world.documents, world.label_sets, label_sets_only=True)
        truth = world.truth(tagger.classes_)
        precisions.append(example_map(truth, tagger.predict_proba(new_items)))
    assert np.mean(precisions) < 0.5


def test_scores_are_probabilities_and_ranks_fall(toy_tagger, new_items):
    scores = toy_tagger.predict_proba(new_items)
    assert scores.min() >= 0
    assert scores.max() <= 1
    logits = toy_tagger.decision_function(new_items)
    assert_allclose(1 / (1 + np.exp(-logits)), scores)
    labels, ranked_scores = toy_tagger.rank(new_items, k=7)
    assert labels.shape == ranked_scores.shape == (len(new_items), 7)
    steps = np.diff(ranked_scores, axis=1)
    assert (steps <= 0).all()
    best_column = column_of(toy_tagger, labels[0, 0])
    assert scores[0, best_column] == ranked_scores[0, 0] == scores[0].max()


def test_new_items_have_labels_as_often_as_they_are_said_to(toy_tagger):
    new = toy_world(random_state=7)
    scores = toy_tagger.predict_proba(new.X)
    seen = toy_tagger.kinds_ != "unseen"
    truth = np.array([[label in tags for label in toy_tagger.classes_] for tags in new.documents])
    expected = truth.mean(axis=0)[seen]
    assert_allclose(scores.mean(axis=0)[seen], expected, atol=0.07)


def test_answers_with_given_tags_are_the_same_in_blocks(toy_tagger, world, monkeypatch):
    X = world.X[:9]
    tags = [document[:1] for document in world.documents[:9]]
    methods = ("predict_proba", "predict", "rank")
    wanted = [getattr(toy_tagger, name)(X, tags=tags) for name in methods]
    monkeypatch.setattr(tags_module, "_BLOCK_NUMBERS", 2 * len(toy_tagger.classes_))
    scores, sets, (labels, best) = (getattr(toy_tagger, name)(X, tags=tags) for name in methods)
    assert_allclose(scores, wanted[0], rtol=1e-4, atol=1e-7)
    assert sets == wanted[1]
    assert_array_equal(labels, wanted[2][0])
    assert_allclose(best, wanted[2][1], rtol=1e-4)


def test_a_row_by_itself_is_ranked_as_among_many(own_tagger, new_items, theme_words):
    own_tagger.add_documents([["pie", "never met"]])
    own_tagger.add_labels(["beach"], theme_words)
    own_tagger.learn([("0", "pie", True), ("1", "lamp", False)], new_items)
    for method, kinds in (("space", None), ("space", ("seen",)), ("priming", None)):
        labels, best = own_tagger.rank(new_items, 30, method=method, kinds=kinds)
        for row in range(len(new_items)):
            x = new_items[row : row + 1]
            own_labels, own_best = own_tagger.rank(x, 30, method=method, kinds=kinds)
            assert_allclose(own_best[0], best[row], rtol=0, atol=1e-6)
            # Labels whose scores are apart by more than rounding keep their places.
            apart = np.append(-np.diff(best[row]), 1.0) > 2e-6
            settled = apart & np.append(True, apart[:-1])
            expected = labels[row][settled].tolist()
            assert own_labels[0][settled].tolist() == expected
            assert settled.any()


def test_priming_alone_gives_the_votes_of_known_documents(toy_tagger, world, new_items):
    scores = toy_tagger.predict_proba(new_items, method="priming")
    wanted = toy_tagger.store_.vote_shares(points_of(toy_tagger, new_items))
    assert_allclose(scores, wanted, rtol=1e-6)
    assert example_map(world.truth(toy_tagger.classes_), scores) > 0.9
    _, best = toy_tagger.rank(new_items, k=3, method="priming")
    assert_allclose(best[:, 0], scores.max(axis=1))
    with pytest.raises(InputError, match="`method` of `rank` must be one of 'space', 'priming'"):
        toy_tagger.rank(new_items, method="prime")


def test_items_are_placed_among_the_documents_of_their_theme(toy_tagger, world, new_items):
    points = points_of(toy_tagger, new_items)
    expected_shape = (25, toy_tagger.space_.axes_.shape[1])
    assert points.shape == expected_shape
    for point, theme in zip(points, world.themes_test, strict=True):
        (nearest,) = toy_tagger.store_.nearest(point, 0, 1)
        expected_document = set(world.themes[theme])
        assert set(nearest.document) <= expected_document
    assert toy_tagger.store_.concepts().labels == tuple(toy_tagger.classes_)


def test_no_items_have_no_tags(toy_tagger):
    nothing = np.zeros((0, 5))
    expected_shape = (0, len(toy_tagger.classes_))
    assert toy_tagger.predict_proba(nothing).shape == expected_shape
    shape = toy_tagger.rank(nothing, k=3)[0].shape
    assert shape == (0, 3)
    assert toy_tagger.predict(nothing) == []


# ------------------------------------------------------------------ tags that are known


def test_given_tags_are_certain_and_move_the_others(toy_tagger, world):
    x = np.full((1, 5), world.X.mean())  # of no theme in particular
    alone, with_tags, nothing = (
        dict(zip(toy_tagger.classes_, toy_tagger.predict_proba(x, tags=tags)[0], strict=True))
        for tags in (None, [["sea", "sun"]], [[]])
    )
    assert with_tags["sea"] == with_tags["sun"] == 1
    assert all(with_tags[label] > alone[label] for label in ("sand", "towel", "wave", "shell"))
    assert with_tags["oven"] < alone["oven"]
    assert nothing == alone


def test_every_row_has_its_own_tags_and_unknown_ones_are_passed_over(toy_tagger, new_items):
    X = new_items[:2]
    both = toy_tagger.predict_proba(X, tags=[["sea"], ["oak"]])
    for row, tag in enumerate(("sea", "oak")):
        with pytest.warns(PolysemeWarning, match="Unknown tags are passed over: zeppelin"):
            alone = toy_tagger.predict_proba(X[row : row + 1], tags=[[tag, "zeppelin"]])
        assert_allclose(both[row], alone[0], rtol=1e-4)
    with pytest.raises(InputError, match="`tags` has 1 tag sets for 2 items"):
        toy_tagger.predict_proba(X, tags=[["sea"]])
    with pytest.raises(InputError, match="Give features, tags, or both"):
        toy_tagger.predict_proba(None)


def test_tags_that_are_newer_than_the_space_are_certain_but_move_nothing(own_tagger, new_items):
    own_tagger.add_documents([("sea", "squid")])
    without, with_tags = (
        own_tagger.predict_proba(new_items[:1], tags) for tags in (None, [["squid"]])
    )
    assert with_tags[0, -1] == 1 > without[0, -1]
    expected_without = without[:, :-1]
    assert_array_equal(with_tags[:, :-1], expected_without)
    with pytest.raises(InputError, match="'squid' came after the concept space was learned"):
        own_tagger.complete(["squid"])
    with_sea, _ = own_tagger.complete(["squid", "sea"], k=3)
    expected_with_sea = own_tagger.complete(["sea"], k=4)[0][:3].tolist()
    assert with_sea.tolist() == expected_with_sea


# ------------------------------------------------------------------ tag sets


def test_predicted_tag_sets_are_likely_enough_and_best_first(toy_tagger, new_items):
    scores = toy_tagger.predict_proba(new_items)
    for least in (0.2, 0.5):
        sets = toy_tagger.predict(new_items, threshold=least)
        assert any(sets)
        for row, tags in zip(scores, sets, strict=True):
            assert isinstance(tags, tuple)
            columns = [column_of(toy_tagger, label) for label in tags]
            assert (np.diff(row[columns]) <= 0).all()
            expected_columns = set(np.flatnonzero(row >= least))
            assert set(columns) == expected_columns
    predictions = toy_tagger.predict(new_items[:1], threshold=1.0, tags=[["sea"]])
    assert predictions == [("sea",)]


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
        assert len(right) > 200
        assert np.mean(right) == pytest.approx(goal, abs=0.1)


def test_thresholds_are_those_of_the_kind(toy_tagger):
    least = toy_tagger.thresholds(0.5)
    seen = toy_tagger.space_.threshold(0.5)
    unseen = toy_tagger.validation_.threshold(0.5)
    on_items = np.isin(toy_tagger.classes_, sorted(toy_tagger.seen_ | {"owl", "shell"}))
    assert set(least[on_items]) == {seen}
    assert set(least[~on_items]) == {unseen}
    assert (toy_tagger.thresholds(0.7) >= least).all()


@pytest.mark.parametrize("precision", [0.0, 1.0, 1.5, "high", np.nan])
def test_a_precision_that_cannot_be_is_refused(toy_tagger, new_items, precision):
    with pytest.raises(InputError, match=r"`precision` of `predict` must be a number at least 0\."):
        toy_tagger.predict(new_items, precision=precision)


# ------------------------------------------------------------------ completion and explanation


def test_completion_gives_the_numbers_of_ranking_by_tags_without_those_given(toy_tagger, world):
    n_labels = len(toy_tagger.classes_)
    labels, scores = toy_tagger.complete(["sea", "sun"], k=n_labels)
    ranked, best = toy_tagger.rank(None, k=n_labels, tags=[["sea", "sun"]])
    assert set(ranked[0, :2]) == {"sea", "sun"}
    assert best[0, :2].tolist() == [1, 1]
    expected_labels = ranked[0, 2:].tolist()
    assert labels.tolist() == expected_labels
    assert_array_equal(scores, best[0, 2:])
    assert (np.diff(scores) <= 0).all()
    assert ((scores > 0) & (scores < 1)).all()
    table = toy_tagger.predict_proba(None, tags=[["sea", "sun"]])[0]
    expected_scores = table[[column_of(toy_tagger, label) for label in labels]]
    assert_array_equal(scores, expected_scores)
    of_items_alone, _ = toy_tagger.complete(["owl"], k=3)
    expected_of_items_alone = set(world.themes["forest"])
    assert set(of_items_alone) <= expected_of_items_alone


@pytest.mark.parametrize(
    ("rows", "label", "options", "message"),
    [
        (0, "appel", {}, r"Unknown label 'appel'.*apple"),
        (slice(3), "apple", {}, "takes one item; got 3"),
        (0, "apple", {"k": 0}, "`k` of `explain` must be a whole number"),
        (None, "apple", {}, "Give features, tags, or both"),
    ],
)
def test_what_cannot_be_explained_is_said(toy_tagger, new_items, rows, label, options, message):
    with pytest.raises(InputError, match=message):
        toy_tagger.explain(None if rows is None else new_items[rows], label, **options)


def test_one_item_is_explained_in_any_form(toy_tagger, new_items):
    x = new_items[0]
    expected = toy_tagger.explain(x, "apple", k=2)
    forms = [x.tolist(), x[None], pl.Series(x), sp.csr_matrix(x[None]), sp.csr_array(x[None])]
    for form in forms:
        evidence = toy_tagger.explain(form, " APPLE", k=2)
        assert evidence.neighbours[0].document == expected.neighbours[0].document
        assert evidence.logit == pytest.approx(expected.logit, abs=1e-4)
        expected_tags = [tag.tag for tag in expected.tags]
        tags = [tag.tag for tag in evidence.tags]
        assert tags == expected_tags


def test_a_label_of_two_places_has_two_senses_and_one_of_one_place_has_fewer(toy_tagger, world):
    label_sense = label_senses(toy_tagger.store_, "Apple")
    kitchen, office = (set(world.themes[name]) - {"apple"} for name in ("kitchen", "office"))
    assert label_sense.label == "apple"
    assert len(label_sense.words) == 2
    places = [[set(words) <= place for place in (kitchen, office)] for words in label_sense.words]
    assert sorted(places) == [[False, True], [True, False]]
    for sense in range(2):
        rows = label_sense.documents[label_sense.senses == sense]
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
