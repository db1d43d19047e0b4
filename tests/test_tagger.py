"""The tagger's contract: what it takes, what it says, what it refuses, and what it remembers."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone

import polyseme
from polyseme import (
    ConceptSpace,
    LabelCorpus,
    SpacePlan,
    ZeroShotTagger,
    space,
)
from polyseme import (
    tags as tags_module,
)
from polyseme._progress import FileProgress
from polyseme._validation import InputError, NotFittedError, PolysemeWarning
from polyseme.datasets.toy import toy_world
from polyseme.documents import training_tables
from polyseme.features import Extracted, MediaError
from polyseme.features.base import MediaFeatures
from polyseme.metrics import example_map
from polyseme.persistence import ModelFileError, write_model
from polyseme.training import SpaceTraining

PLAN = SpacePlan(hidden=16, code=12, document_batch=24, item_batch=16, probable_batch=8)


@pytest.fixture
def own_tagger(toy_tagger, tmp_path):
    """A copy that a test may change."""
    toy_tagger.save(tmp_path / "model")
    return polyseme.load(tmp_path / "model")


def tiny(n_steps=8, n_folds=2, **parameters):
    """Make a tagger that learns next to nothing, quickly."""
    made = ConceptSpace(n_folds=n_folds, n_steps=n_steps, plan=PLAN)
    return ZeroShotTagger(space=made, **({"random_state": 0} | parameters))


# ------------------------------------------------------------------ the solvable world


def test_shuffled_features_rank_no_better_than_popularity(world, tiny_space, toy_tagger):
    order = np.random.default_rng(0).permutation(len(world.X))
    tagger = ZeroShotTagger(space=tiny_space(n_steps=60), random_state=0)
    tagger.fit(world.X[order], world.documents, world.label_sets)
    honest = example_map(world.truth(toy_tagger.classes_), toy_tagger.predict_proba(world.X_test))
    shuffled = example_map(world.truth(tagger.classes_), tagger.predict_proba(world.X_test))
    assert shuffled < 0.5 < honest


# ------------------------------------------------------------------ scores and rankings


def test_scores_are_probabilities_and_ranks_fall(toy_tagger, world):
    scores = toy_tagger.predict_proba(world.X_test)
    assert ((scores >= 0) & (scores <= 1)).all()
    np.testing.assert_array_equal(scores, toy_tagger.predict_proba(world.X_test))
    np.testing.assert_array_equal(scores, toy_tagger.predict_proba(world.X_test))
    labels, ranked = toy_tagger.rank(world.X_test, k=7)
    assert labels.shape == ranked.shape == (len(world.X_test), 7)
    assert (np.diff(ranked, axis=1) <= 0).all()
    column = list(toy_tagger.classes_).index(labels[0, 0])
    assert scores[0, column] == ranked[0, 0] == scores[0].max()


def test_new_items_have_labels_as_often_as_they_are_said_to(toy_tagger):
    fresh = toy_world(random_state=7)
    scores = toy_tagger.predict_proba(fresh.X)
    seen = toy_tagger.kinds_ != "unseen"
    held = np.array([[label in one for label in toy_tagger.classes_] for one in fresh.documents])
    np.testing.assert_allclose(scores.mean(axis=0)[seen], held.mean(axis=0)[seen], atol=0.07)


def test_documents_in_every_form_teach_the_same(world, tmp_path):
    import pandas as pd

    X, documents = world.X[:30], world.documents[:30]
    labels = sorted({label for document in documents for label in document})
    table = [[label in document for label in labels] for document in documents]
    path = tmp_path / "documents.jsonl"
    path.write_text("".join(f"{list(document)}\n".replace("'", '"') for document in documents))
    forms = [
        documents,
        [set(document) for document in documents],
        LabelCorpus.from_documents(documents),
        pd.DataFrame(table, columns=labels),
        path,
    ]
    found = [tiny(n_steps=4).fit(X, form).predict_proba(world.X_test[:3]) for form in forms]
    for other in found[1:]:
        np.testing.assert_array_equal(other, found[0])


def test_sparse_features_teach_what_dense_ones_do(world):
    X = np.where(world.X > 0.1, world.X, 0.0)
    dense = tiny().fit(X, world.documents, world.label_sets)
    sparse = tiny().fit(sp.csr_matrix(X), world.documents, world.label_sets)
    np.testing.assert_allclose(
        sparse.predict_proba(world.X_test), dense.predict_proba(world.X_test), atol=1e-3
    )


def test_of_equal_scores_the_commoner_label_is_first(own_tagger, world, monkeypatch):
    def level(self, codes, *, of_items):
        return np.zeros((len(codes), len(self.classes_)))

    monkeypatch.setattr(ZeroShotTagger, "_logits", level)
    counts = dict(zip(own_tagger.store_.labels, own_tagger.store_.counts.tolist(), strict=True))
    labels, scores = own_tagger.rank(world.X_test[:2], k=50)
    assert (scores == 0.5).all()
    wanted = sorted(
        own_tagger.classes_, key=lambda one: (-counts[one], list(own_tagger.classes_).index(one))
    )
    assert labels[0].tolist() == labels[1].tolist() == wanted


@pytest.mark.parametrize("tags", [None, "given"])
def test_answers_are_the_same_in_blocks(toy_tagger, world, monkeypatch, tags):
    X = world.X[:9]
    held = None if tags is None else [document[:1] for document in world.documents[:9]]
    asked = ("predict_proba", "predict", "rank")
    wanted = [getattr(toy_tagger, name)(X, tags=held) for name in asked]
    monkeypatch.setattr(tags_module, "_BLOCK_NUMBERS", 2 * len(toy_tagger.classes_))
    scores, sets, (labels, best) = (getattr(toy_tagger, name)(X, tags=held) for name in asked)
    np.testing.assert_allclose(scores, wanted[0], rtol=1e-4, atol=1e-7)
    assert sets == wanted[1]
    np.testing.assert_array_equal(labels, wanted[2][0])
    np.testing.assert_allclose(best, wanted[2][1], rtol=1e-4)


def test_priming_alone_gives_the_votes_of_known_documents(toy_tagger, world):
    found = toy_tagger.predict_proba(world.X_test, method="priming")
    wanted = toy_tagger.store_.votes(toy_tagger.points(world.X_test))
    np.testing.assert_allclose(found, wanted, rtol=1e-6)
    assert example_map(world.truth(toy_tagger.classes_), found) > 0.9
    _, scores = toy_tagger.rank(world.X_test, k=3, method="priming")
    np.testing.assert_allclose(scores[:, 0], found.max(axis=1))
    with pytest.raises(InputError, match="`method` of `rank` must be one of 'space', 'priming'"):
        toy_tagger.rank(world.X_test, method="prime")


def test_items_are_placed_among_the_documents_of_their_theme(toy_tagger, world):
    codes, points = toy_tagger.transform(world.X_test), toy_tagger.points(world.X_test)
    assert codes.shape == (25, toy_tagger.space_.n_dimensions)
    np.testing.assert_array_equal(points, toy_tagger.space_.points(codes))
    store = toy_tagger.store_
    for point, theme in zip(points, world.themes_test, strict=True):
        (nearest,) = store.nearest(point, 0, 1)
        assert set(nearest.document) <= set(world.themes[theme])
    concepts = toy_tagger.concepts()
    assert len(concepts) == store.matrix.nnz and concepts.labels == tuple(toy_tagger.classes_)


# ------------------------------------------------------------------ tags that are known


def test_given_tags_are_certain_and_move_the_others(toy_tagger, world):
    x = np.full((1, 5), world.X.mean())  # of no theme in particular
    alone = toy_tagger.predict_proba(x)[0]
    told = toy_tagger.predict_proba(x, tags=[["sea", "sun"]])[0]
    place = list(toy_tagger.classes_).index
    assert told[place("sea")] == told[place("sun")] == 1
    for label in ("sand", "towel", "wave", "shell"):
        assert told[place(label)] > alone[place(label)]
    assert told[place("oven")] < alone[place("oven")]
    nothing = toy_tagger.predict_proba(x, tags=[[]])[0]
    np.testing.assert_array_equal(nothing, alone)


def test_every_row_has_its_own_tags(toy_tagger, world):
    X = world.X_test[:2]
    both = toy_tagger.predict_proba(X, tags=[["sea"], ["oak"]])
    for row, tags in enumerate((["sea"], ["oak"])):
        alone = toy_tagger.predict_proba(X[row : row + 1], tags=[tags])
        np.testing.assert_allclose(both[row], alone[0], rtol=1e-4)
    with pytest.raises(InputError, match="`tags` has 1 collections for 2 instances"):
        toy_tagger.predict_proba(X, tags=[["sea"]])
    with pytest.raises(InputError, match="Give features, tags, or both"):
        toy_tagger.predict_proba(None)


def test_unknown_given_tags_are_named_and_passed_over(toy_tagger, world):
    with pytest.warns(PolysemeWarning, match="Unknown tags are passed over: zeppelin"):
        found = toy_tagger.predict_proba(world.X_test[:1], tags=[["sea", "zeppelin"]])
    wanted = toy_tagger.predict_proba(world.X_test[:1], tags=[["sea"]])
    np.testing.assert_array_equal(found, wanted)


def test_tags_that_are_newer_than_the_space_are_certain_but_move_nothing(own_tagger, world):
    own_tagger.add_documents([("sea", "squid")])
    X = world.X_test[:1]
    without, told = (
        own_tagger.predict_proba(X),
        own_tagger.predict_proba(X, tags=[["squid"]]),
    )
    assert told[0, -1] == 1 > without[0, -1]
    np.testing.assert_array_equal(told[:, :-1], without[:, :-1])


# ------------------------------------------------------------------ tag sets


def test_predicted_tag_sets_are_likely_enough_and_best_first(toy_tagger, world):
    scores = toy_tagger.predict_proba(world.X_test)
    for least in (0.2, 0.5):
        sets = toy_tagger.predict(world.X_test, threshold=least)
        for row, found in enumerate(sets):
            columns = [list(toy_tagger.classes_).index(label) for label in found]
            given_scores = scores[row, columns]
            assert (np.diff(given_scores) <= 0).all()
            assert set(columns) == set(np.flatnonzero(scores[row] >= least))
    assert any(toy_tagger.predict(world.X_test, threshold=0.2))
    assert toy_tagger.predict(world.X_test[:1], threshold=1.0, tags=[["sea"]]) == [("sea",)]


def test_a_wanted_precision_is_about_what_new_items_get(toy_tagger):
    fresh = toy_world(random_state=3)
    truth = [set(document) for document in fresh.documents]
    seen = set(np.asarray(toy_tagger.classes_)[toy_tagger.kinds_ != "unseen"])
    for goal in (0.4, 0.6):
        sets = toy_tagger.predict(fresh.X, precision=goal)
        right = [
            label in held
            for found, held in zip(sets, truth, strict=True)
            for label in found
            if label in seen
        ]
        assert len(right) > 200 and np.mean(right) == pytest.approx(goal, abs=0.1)


def test_thresholds_are_those_of_the_kind(toy_tagger):
    least = toy_tagger.thresholds(0.5)
    seen, unseen = toy_tagger.space_.thresholds(0.5)
    on_items = np.isin(np.asarray(toy_tagger.classes_), sorted(toy_tagger.seen_ | {"owl", "shell"}))
    assert set(least[on_items]) == {seen} and set(least[~on_items]) == {unseen}
    assert (toy_tagger.thresholds(0.7) >= least).all()


@pytest.mark.parametrize("precision", [0.0, 1.0, 1.5, "high", np.nan])
def test_a_precision_that_cannot_be_is_refused(toy_tagger, world, precision):
    with pytest.raises(
        InputError, match=r"`precision` of `predict` must be a number at least 0\.01"
    ):
        toy_tagger.predict(world.X_test, precision=precision)


def test_precision_of_one_item_or_one_group_is_refused_in_a_sentence(world):
    one = tiny().fit(world.X[:1], world.documents[:1], world.label_sets[:20])
    with pytest.raises(InputError, match="or there is but one"):
        one.predict(world.X_test, precision=0.5)
    assert np.isfinite(one.predict_proba(world.X_test)).all()
    documents = LabelCorpus.from_documents(world.documents[:20])
    grouped = replace(documents, groups=("g",) * 20)
    group = tiny().fit(world.X[:20], grouped)
    with pytest.raises(InputError, match="all of them are of one group"):
        group.thresholds(0.5)


# ------------------------------------------------------------------ completion and explanation


def test_completion_leaves_out_what_was_given(toy_tagger):
    n_labels = len(toy_tagger.classes_)
    labels, scores = toy_tagger.complete(["sea", "sun"], k=n_labels)
    assert len(labels) == n_labels - 2
    assert not {"sea", "sun"} & set(labels)
    assert (np.diff(scores) <= 0).all() and ((scores > 0) & (scores < 1)).all()


def test_completion_gives_the_numbers_of_ranking_by_tags_alone(toy_tagger):
    labels, scores = toy_tagger.complete(["sea", "sun"], k=6)
    ranked, best = toy_tagger.rank(None, k=8, tags=[["sea", "sun"]])
    assert set(ranked[0, :2]) == {"sea", "sun"} and best[0, :2].tolist() == [1, 1]
    assert labels.tolist() == ranked[0, 2:].tolist()
    np.testing.assert_array_equal(scores, best[0, 2:])
    table = toy_tagger.predict_proba(None, tags=[["sea", "sun"]])[0]
    np.testing.assert_array_equal(
        scores, [table[list(toy_tagger.classes_).index(one)] for one in labels]
    )


def test_unknown_tags_are_warned_of_once(toy_tagger):
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        toy_tagger.complete(["sea", "zeppelin"])
    assert len(told) == 1


def test_spelling_does_not_matter(toy_tagger):
    assert toy_tagger.complete(["  SEA "])[0].tolist() == toy_tagger.complete(["sea"])[0].tolist()


def test_labels_of_items_alone_are_completed_too(toy_tagger, world):
    labels, _ = toy_tagger.complete(["owl"], k=3)
    assert set(labels) <= set(world.themes["forest"])


def test_a_tag_that_is_newer_than_the_space_completes_nothing_by_itself(own_tagger):
    own_tagger.add_documents([("sea", "squid")])
    with pytest.raises(InputError, match="'squid' came after the concept space was learned"):
        own_tagger.complete(["squid"])
    with_sea, _ = own_tagger.complete(["squid", "sea"], k=3)
    assert with_sea.tolist() == own_tagger.complete(["sea"], k=4)[0][:3].tolist()


def test_explaining_an_unknown_label_names_close_ones(toy_tagger, world):
    with pytest.raises(InputError, match=r"Unknown label 'appel'.*apple"):
        toy_tagger.explain(world.X_test[0], "appel")
    with pytest.raises(InputError, match="takes one item; got 3"):
        toy_tagger.explain(world.X_test[:3], "apple")
    with pytest.raises(InputError, match="`k` of `explain` must be a whole number"):
        toy_tagger.explain(world.X_test[0], "apple", k=0)
    with pytest.raises(InputError, match="Give features, tags, or both"):
        toy_tagger.explain(None, "apple")


def test_one_item_is_explained_in_any_form(toy_tagger, world):
    import polars as pl

    x = world.X_test[0]
    expected = toy_tagger.explain(x, "apple", k=2)
    forms = [x.tolist(), x[None], pl.Series(x), sp.csr_matrix(x[None]), sp.csr_array(x[None])]
    for form in forms:
        found = toy_tagger.explain(form, " APPLE", k=2)
        assert found.neighbours[0].document == expected.neighbours[0].document
        assert found.logit == pytest.approx(expected.logit, abs=1e-4)
        assert [one.tag for one in found.tags] == [one.tag for one in expected.tags]


def test_what_is_not_suggested_any_more_is_explained_as_such(own_tagger, world):
    store = own_tagger.store_
    rows = [row for row in range(len(store.ids)) if "tram" in store.document(row)]
    own_tagger.remove_documents([store.ids[row] for row in rows])
    found = own_tagger.explain(world.X_test[0], "tram")
    column = list(own_tagger.classes_).index("tram")
    assert found.probability == own_tagger.predict_proba(world.X_test[:1])[0, column] == 0


# ------------------------------------------------------------------ growing and shrinking


def test_documents_come_and_go_without_training(own_tagger, world):
    before = own_tagger.predict_proba(world.X_test)
    points = own_tagger.points(world.X_test)
    ids = own_tagger.add_documents([("sea", "sand", "jellyfish"), ("wave", "jellyfish")])
    assert own_tagger.classes_[-1] == "jellyfish" and own_tagger.kinds_[-1] == "oov"
    assert np.array_equal(own_tagger.points(world.X_test), points)
    scores = own_tagger.predict_proba(world.X_test)[:, -1]
    there = np.array([theme == "beach" for theme in world.themes_test])
    assert scores[there].min() > 1.2 * scores[~there].max()
    ranked, _ = own_tagger.rank(world.X_test[there], k=8)
    assert (ranked == "jellyfish").any(axis=1).all(), "two documents are enough to be suggested"
    own_tagger.remove_documents(ids)
    assert "jellyfish" not in own_tagger.classes_
    assert np.array_equal(own_tagger.predict_proba(world.X_test), before)


def test_more_documents_of_a_known_label_make_it_likelier_where_they_lie(own_tagger, world):
    column = list(own_tagger.classes_).index("towel")
    there = np.array([theme == "beach" for theme in world.themes_test])
    before = own_tagger.predict_proba(world.X_test)[:, column]
    own_tagger.add_documents([("sea", "sun", "towel")] * 50)
    after = own_tagger.predict_proba(world.X_test)[:, column]
    assert (after[there] > before[there]).all()


def test_a_learned_label_without_documents_ranks_last_with_score_zero(own_tagger, world):
    store = own_tagger.store_
    holding = [name for row, name in enumerate(store.ids) if "tram" in store.document(row)]
    own_tagger.remove_documents(holding)
    labels, scores = own_tagger.rank(world.X_test, k=len(own_tagger.classes_))
    assert (labels[:, -1] == "tram").all() and (scores[:, -1] == 0).all()


def test_without_any_known_document_nothing_is_suggested(own_tagger, world):
    own_tagger.remove_documents(own_tagger.store_.ids)
    assert not own_tagger.predict_proba(world.X_test).any()
    assert not any(own_tagger.predict(world.X_test, threshold=1e-9))


def test_what_cannot_be_added_or_removed_changes_nothing(own_tagger, world):
    before, labels = own_tagger.predict_proba(world.X_test), own_tagger.classes_
    with pytest.raises(InputError, match="No known document is named 'nobody'"):
        own_tagger.remove_documents(["nobody"])
    twice = LabelCorpus.from_documents([("sea", "squid")], ids=[own_tagger.store_.ids[0]])
    with pytest.raises(InputError, match="is known already; remove it first or rename"):
        own_tagger.add_documents(twice)
    assert list(own_tagger.classes_) == list(labels)
    np.testing.assert_array_equal(own_tagger.predict_proba(world.X_test), before)


# ------------------------------------------------------------------ saving


def test_a_loaded_tagger_is_the_saved_one(toy_tagger, own_tagger, world):
    assert list(own_tagger.classes_) == list(toy_tagger.classes_)
    assert own_tagger.kinds_.tolist() == toy_tagger.kinds_.tolist()
    X, tags = world.X_test, [["sea"]] * 25
    for asked in ((X, None), (X, tags), (None, tags)):
        assert np.array_equal(own_tagger.predict_proba(*asked), toy_tagger.predict_proba(*asked))
    assert own_tagger.complete(["sea"])[0].tolist() == toy_tagger.complete(["sea"])[0].tolist()
    assert own_tagger.explain(X[0], "sea") == toy_tagger.explain(X[0], "sea")
    assert own_tagger.predict(X, precision=0.4) == toy_tagger.predict(X, precision=0.4)
    assert own_tagger.space_.history_ == toy_tagger.space_.history_
    assert own_tagger.seen_ == toy_tagger.seen_ and own_tagger.n_features_in_ == 5


def test_a_tagger_without_features_or_thresholds_is_saved_too(world, tmp_path):
    tagger = tiny().fit(None, world.label_sets)
    tagger.save(tmp_path / "m")
    again = polyseme.load(tmp_path / "m")
    np.testing.assert_array_equal(
        again.predict_proba(None, [["sea"]]), tagger.predict_proba(None, [["sea"]])
    )


def test_numbers_of_a_grid_search_can_be_saved(world, tmp_path):
    made = ConceptSpace(
        n_folds=np.int64(2),
        n_steps=np.int64(8),
        context=np.float32(0.4),
        priming=np.float64(0.2),
        plan=PLAN,
    )
    tagger = ZeroShotTagger(space=made, random_state=np.int64(0)).fit(world.X, world.documents)
    tagger.save(tmp_path / "m")
    scores = polyseme.load(tmp_path / "m").predict_proba(world.X_test)
    assert np.array_equal(scores, tagger.predict_proba(world.X_test))


def test_models_of_other_methods_are_refused_in_a_sentence(tmp_path):
    write_model(tmp_path / "new", "tagger", {"method": "telepathy"}, {})
    with pytest.raises(ModelFileError, match=r"the method 'telepathy'.*fit it anew"):
        polyseme.load(tmp_path / "new")


# ------------------------------------------------------------------ manners


def test_same_seed_same_bits(world):
    first, second, other = (
        tiny(random_state=seed).fit(world.X, world.documents, world.label_sets)
        for seed in (0, 0, 1)
    )
    assert np.array_equal(first.predict_proba(world.X_test), second.predict_proba(world.X_test))
    assert not np.array_equal(first.predict_proba(world.X_test), other.predict_proba(world.X_test))


def test_a_space_with_a_seed_of_its_own_keeps_it(world):
    made = ConceptSpace(n_folds=2, n_steps=8, plan=PLAN, random_state=5)
    found = [
        ZeroShotTagger(space=made, random_state=seed)
        .fit(world.X, world.documents)
        .predict_proba(world.X_test)
        for seed in (0, 1)
    ]
    np.testing.assert_array_equal(*found)
    assert not hasattr(made, "members_"), "fit must leave the given space alone"


def test_clone_and_parameters():
    tagger = clone(tiny(n_folds=3, normalize_labels=False))
    assert tagger.get_params()["space__n_folds"] == 3 and not tagger.normalize_labels
    assert tagger.set_params(space__context=0.25).space.context == 0.25
    assert ZeroShotTagger().get_params()["space"] is None


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
        tagger.fit(world.X, world.documents, world.label_sets)
    assert not hasattr(tagger, "space_")
    tagger.fit(world.X, world.documents, world.label_sets)
    assert len(tagger.space_.history_) == 4


def test_a_tagger_without_features_completes_but_does_not_rank(world):
    tagger = tiny().fit(None, world.label_sets)
    assert set(tagger.kinds_) == {"unseen"}
    assert len(tagger.complete(["sea"], k=3)[0]) == 3
    assert tagger.explain(None, "sand", tags=["sea"]).features == 0
    with pytest.raises(InputError, match="fitted without features"):
        tagger.rank(world.X_test)
    with pytest.raises(InputError, match="precision is learned on items with features"):
        tagger.predict(None, precision=0.5, tags=[["sea"]])


def test_a_tagger_without_features_grows_too(tiny_space, world):
    tagger = ZeroShotTagger(space=tiny_space(n_steps=200), random_state=0)
    tagger.fit(None, world.label_sets)
    ids = tagger.add_documents([("sea", "sand", "squid"), ("sun", "wave", "squid")])
    scores = tagger.predict_proba(None, [["sea", "sun"], ["oak", "moss"], ["bus", "car"]])
    column = list(tagger.classes_).index("squid")
    assert scores[0, column] > 1.2 * scores[1:, column].max()
    tagger.remove_documents(ids)
    assert "squid" not in tagger.classes_


def test_without_features_labels_beside_the_semantics_are_not_known(world):
    tagger = tiny().fit(None, [("sea", "kraken"), ("oak",)], world.label_sets)
    assert "kraken" not in tagger.classes_


@pytest.mark.parametrize(
    "ask",
    [
        lambda tagger: tagger.rank(np.zeros((1, 2))),
        lambda tagger: tagger.predict_proba(np.zeros((1, 2))),
        lambda tagger: tagger.predict(np.zeros((1, 2))),
        lambda tagger: tagger.complete(["a"]),
        lambda tagger: tagger.explain(np.zeros(2), "a"),
        lambda tagger: tagger.transform(np.zeros((1, 2))),
        lambda tagger: tagger.points(np.zeros((1, 2))),
        lambda tagger: tagger.concepts(),
        lambda tagger: tagger.thresholds(0.5),
        lambda tagger: tagger.add_documents([["a"]]),
        lambda tagger: tagger.remove_documents(["a"]),
        lambda tagger: tagger.add_labels(["a"], {"a": [1.0]}),
        lambda tagger: tagger.remove_labels(["a"]),
        lambda tagger: tagger.save("model"),
    ],
)
def test_asking_before_fit_says_so(ask):
    with pytest.raises(NotFittedError, match="This ZeroShotTagger is not fitted yet"):
        ask(ZeroShotTagger())


# ------------------------------------------------------------------ bad input


def nan_at(X, *rows):
    X = X.copy()
    X[list(rows), 1] = np.nan
    return X


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda X: nan_at(X, 3, 7), r"NaN or infinity in row\(s\) 3, 7"),
        (lambda X: np.where(np.arange(len(X))[:, None] == 5, np.inf, X), r"row\(s\) 5"),
        (lambda X: X[:-1], "`X` has 299 rows but there are 300 documents"),
        (lambda X: X[:, :0], "0 feature"),
        (lambda X: X[:, 0], "two dimensions"),
        (lambda X: X.astype(str) + "x", "must hold numbers only"),
    ],
)
def test_bad_features_get_one_sentence(change, message, world):
    with pytest.raises(InputError, match=message):
        tiny().fit(change(world.X), world.documents, world.label_sets)


@pytest.mark.parametrize(
    ("documents", "semantics", "message"),
    [
        ([["x"], ["y"]], [("sea", "sand")] * 3, "No item carries a label of the label sets"),
        ([(), ()], None, "All 2 documents given to `ZeroShotTagger` are empty"),
        ([["sea"], ["oak"]], [], "at least"),
        ([["sea"], 7], None, "Document 1 is int; expected a collection of labels"),
    ],
)
def test_bad_documents_get_one_sentence(documents, semantics, message, world):
    with pytest.raises(InputError, match=message):
        tiny().fit(world.X[:2], documents, semantics)


@pytest.mark.parametrize("k", [0, -1, 2.5, "all", True])
def test_a_number_of_labels_is_a_whole_number(toy_tagger, world, k):
    with pytest.raises(InputError, match="`k` of `rank` must be a whole number at least 1"):
        toy_tagger.rank(world.X_test, k=k)
    with pytest.raises(InputError, match="`k` of `complete` must be a whole number at least 1"):
        toy_tagger.complete(["sea"], k=k)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"space": ConceptSpace(n_folds=1)}, "`n_folds` of `ConceptSpace`"),
        ({"space": ConceptSpace(context=2.0)}, "`context` of `ConceptSpace`"),
        ({"device": "abacus"}, "`device` of `ConceptSpace` is 'abacus'"),
        ({"random_state": -1}, "`random_state` must not be negative"),
    ],
)
def test_a_bad_parameter_is_named_before_any_training(parameters, message, world, monkeypatch):
    monkeypatch.setattr(space.SpaceTraining, "run", lambda *_: pytest.fail("trained"))
    with pytest.raises(InputError, match=message):
        ZeroShotTagger(**parameters).fit(world.X, world.documents)


def test_a_fit_that_fails_leaves_the_tagger_as_it_was(own_tagger, world, monkeypatch):
    before, labels = own_tagger.predict_proba(world.X_test), own_tagger.classes_
    with pytest.raises(InputError, match="No item carries a label"):
        own_tagger.fit(world.X[:2], [["x"], ["y"]], world.label_sets)
    monkeypatch.setattr(
        polyseme.tagger.ConceptStore,
        "of",
        classmethod(lambda *_: (_ for _ in ()).throw(MemoryError)),
    )
    own_tagger.set_params(space=tiny().space)
    with pytest.raises(MemoryError):
        own_tagger.fit(world.X[:20, :3], world.documents[:20])
    assert list(own_tagger.classes_) == list(labels)
    assert np.array_equal(own_tagger.predict_proba(world.X_test), before)


def test_constant_features_and_fewer_items_than_folds_work(world):
    tagger = tiny(n_folds=5)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PolysemeWarning)
        tagger.fit(np.ones((2, 3)), world.documents[:2], world.label_sets)
    assert np.isfinite(tagger.predict_proba(np.zeros((1, 3)))).all()


def test_documents_without_labels_are_left_out_of_what_is_known_and_named(world):
    documents = [*world.documents[:30], ()]
    X = np.concatenate([world.X[:30], [[9.0] * 5]])
    with pytest.warns(PolysemeWarning, match="1 of 31 documents have no label and teach") as told:
        tagger = tiny().fit(X, documents, world.label_sets[:30])
    assert len(told) == 1, "said once"
    with pytest.warns(PolysemeWarning, match="1 of 31 documents") as told:
        tiny().fit(X, documents)
    assert len(told) == 1, "also where they are the semantics documents"
    assert tagger.dropped_ == ("instance:30",) and len(tagger.store_.ids) == 60
    assert np.isfinite(tagger.predict_proba(world.X_test)).all()


def test_a_label_that_nobody_uses_makes_no_document_twice(world):
    documents = LabelCorpus.from_documents(world.documents)
    wider = replace(
        documents,
        labels=(*documents.labels, "unused"),
        matrix=sp.csr_matrix(sp.hstack([documents.matrix, sp.csr_matrix((len(documents), 1))])),
    )
    tagger = tiny().fit(world.X, wider)
    assert len(tagger.store_.ids) == len(world.documents)
    once = tiny().fit(world.X, documents)
    assert np.array_equal(tagger.predict_proba(world.X_test), once.predict_proba(world.X_test))


def test_documents_that_were_taught_and_are_removed_count_no_more(world):
    tagger = tiny().fit(world.X, world.documents)
    ids = tagger.store_.ids[:10]
    tagger.add_documents([["sea", "parasol"], ["sand", "parasol"], ["sea", "sand"]])
    before = tagger.n_fitted_
    tagger.remove_documents(ids)
    assert tagger.n_fitted_ == before - 10 and len(tagger.store_.ids) - tagger.n_fitted_ == 3


def test_a_label_of_two_places_has_two_senses_and_one_of_one_place_has_fewer(toy_tagger, world):
    found = toy_tagger.senses("Apple")
    kitchen, office = (set(world.themes[name]) - {"apple"} for name in ("kitchen", "office"))
    assert found.label == "apple" and len(found.words) == 2
    assert {
        frozenset({*words} & place) == frozenset(words)
        for words in found.words
        for place in (kitchen, office)
    } == {True, False}
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
        toy_tagger.senses("appel")


def test_labels_of_items_that_no_semantics_document_holds_are_oov(world):
    documents = [(*document, "kraken") for document in world.documents[:30]]
    tagger = tiny().fit(world.X[:30], documents, world.label_sets)
    kinds = dict(zip(tagger.classes_, tagger.kinds_, strict=True))
    assert kinds["kraken"] == "oov" and tagger.classes_[-1] in {"kraken", "shell", "owl"}
    alone = tiny().fit(world.X[:30], documents)
    assert set(alone.kinds_) == {"seen"}


def test_the_same_list_as_semantics_is_known_once(world):
    once = tiny().fit(world.X, world.documents)
    twice = tiny().fit(world.X, world.documents, world.documents)
    assert twice.store_.ids == once.store_.ids
    np.testing.assert_array_equal(
        twice.predict_proba(world.X_test), once.predict_proba(world.X_test)
    )


def test_named_documents_are_known_once(world):
    ids = [f"item {i}" for i in range(len(world.documents))]
    corpus = LabelCorpus.from_documents(world.documents, ids=ids)
    tagger = tiny().fit(world.X[:100], corpus.select(np.arange(100)), corpus)
    assert tagger.store_.ids == tuple(ids)


def test_groups_of_documents_and_of_items_are_told_to_the_space():
    def corpus(documents, ids, groups=None):
        return replace(LabelCorpus.from_documents(documents, ids=ids), groups=groups)

    teaching = corpus([("a", "b"), ("a",), ("b",)], ["x", "y", "z"])
    items = corpus([("a",), ("b", "c")], ["y", "w"], ("g", "g"))
    told = training_tables(items, teaching, ("a", "b", "c"))
    assert told.item_documents.tolist() == [1, 3] and told.n_label_sets == 3
    assert told.documents.toarray().tolist() == [[1, 1, 0], [1, 0, 0], [0, 1, 0], [0, 1, 1]]
    assert told.groups[1] == told.groups[3] and len(set(told.groups.tolist())) == 3
    assert training_tables(corpus([("a",)], ["q"]), teaching, ("a", "b", "c")).groups is None


def test_spellings_stay_apart_when_asked():
    documents = [("Apple", "phone"), ("apple", "pie")] * 20
    X = np.tile([[0.0], [1.0]], (20, 1))
    apart = tiny(normalize_labels=False).fit(X, documents)
    assert set(apart.classes_) == {"Apple", "apple", "phone", "pie"}
    with pytest.raises(InputError, match="None of the tags is known: APPLE"):
        apart.complete(["APPLE"])
    assert len(apart.complete(["Apple"], k=2)[0]) == 2
    joined = tiny().fit(X, documents)
    assert len(joined.classes_) == 3


def test_no_items_have_no_tags(toy_tagger):
    nothing = np.zeros((0, 5))
    assert toy_tagger.predict_proba(nothing).shape == (0, len(toy_tagger.classes_))
    assert toy_tagger.rank(nothing, k=3)[0].shape == (0, 3)
    assert toy_tagger.predict(nothing) == []


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


def test_a_extractor_is_learned_by_fit_and_used_ever_after():
    words = ["seashore", "sandsea", "oakwood", "woodoak"] * 10
    documents = [["sea", "wet"], ["sea"], ["oak", "dry"], ["oak"]] * 10
    given_ = Words()
    tagger = tiny(n_steps=80, features=given_).fit(words, documents)
    assert not hasattr(given_, "letters_"), "fit must leave the given extractor alone"
    assert tagger.n_features_in_ == len(set("".join(words)))
    assert tagger.features_.seed_ is not None, "it is seeded by the tagger"
    labels, _ = tagger.rank(["sea", "wood"], k=1)
    assert labels.ravel().tolist() == ["sea", "oak"]
    found = tagger.explain("sea", "wet")
    raw = tagger.features_.raw(["sea"])
    extracted = Extracted("words", {"version": 1}, ("sea",), raw)
    assert tagger.explain(extracted, "wet") == found
    np.testing.assert_array_equal(tagger.predict_proba(extracted), tagger.predict_proba(["sea"]))
    with pytest.raises(InputError, match="cannot be used: is empty"):
        tagger.rank(["sea", ""])
