"""What a tagger learns from, and what it refuses."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse as sp
from numpy.testing import assert_array_equal

import polyseme
from polyseme import ConceptSpace, LabelCorpus, ZeroShotTagger
from polyseme.base.progress import FileProgress
from polyseme.base.validation import InputError, NotFittedError, PolysemeWarning
from polyseme.feedback.verdict_log import Verdict
from polyseme.media import Extracted, MediaError
from polyseme.media.base import MediaFeatures
from polyseme.space.training import SpaceTraining
from toy_taggers import (
    PLAN,
    column_of,
    raise_memory_error,
    tiny_tagger,
    verdicts_on,
)

# ------------------------------------------------------------------ manners


def test_a_space_with_a_seed_of_its_own_keeps_it_and_others_get_the_taggers(world, new_items):
    for own_seed in (5, None):
        space = ConceptSpace(n_folds=2, n_steps=8, plan=PLAN, random_state=own_seed)
        first, second = (
            ZeroShotTagger(space=space, random_state=seed)
            .fit(world.X, world.documents)
            .predict_proba(new_items)
            for seed in (0, 1)
        )
        assert np.array_equal(first, second) == (own_seed is not None)
        assert not hasattr(space, "members_"), "fit must leave the given space alone"


def test_rounds_are_shown_where_they_are_wanted(world, capsys, monkeypatch):
    monkeypatch.setattr(FileProgress, "SECONDS", -1.0)
    tiny_tagger(verbose=True).fit(world.X[:30], world.documents[:30])
    assert "training the concept space, rounds: 1 of 4" in capsys.readouterr().err
    tiny_tagger().fit(world.X[:30], world.documents[:30])
    assert capsys.readouterr().err == ""


def test_an_interrupted_tagger_without_a_seed_resumes(world, tmp_path, monkeypatch):
    save = SpaceTraining.save

    def interrupted(self, path):
        save(self, path)
        raise KeyboardInterrupt

    tagger = tiny_tagger(random_state=None, checkpoint=tmp_path / "run")
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


def test_documents_in_every_form_teach_the_same(world, new_items, tmp_path):
    X = world.X[:30]
    documents = world.documents[:30]
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
    wanted = tiny_tagger(n_steps=4).fit(X, documents)
    for form in forms:
        tagger = tiny_tagger(n_steps=4).fit(X, form)
        assert len(tagger.store_.ids) == 30
        scores = tagger.predict_proba(new_items)
        expected_scores = wanted.predict_proba(new_items)
        assert_array_equal(scores, expected_scores)


def test_a_tagger_without_features_completes_and_grows_but_does_not_rank(
    tiny_space, world, new_items
):
    tagger = ZeroShotTagger(space=tiny_space(n_steps=200), random_state=0)
    tagger.fit(None, [("sea", "kraken"), ("oak",)], world.label_sets, label_sets_only=True)
    assert set(tagger.kinds_) == {"unseen"}
    assert "kraken" not in tagger.classes_
    assert len(tagger.complete(["sea"], k=3)[0]) == 3
    assert tagger.explain(None, "sand", tags=["sea"]).features == 0
    with pytest.raises(InputError, match="fitted without features"):
        tagger.rank(new_items)
    with pytest.raises(InputError, match="precision is learned on items with features"):
        tagger.predict(None, precision=0.5, tags=[["sea"]])
    ids = tagger.add_documents([("sea", "sand", "squid"), ("sun", "wave", "squid")])
    scores = tagger.predict_proba(None, [["sea", "sun"], ["oak", "moss"], ["bus", "car"]])[:, -1]
    assert tagger.classes_[-1] == "squid"
    assert scores[0] > 1.2 * scores[1:].max()
    tagger.remove_documents(ids)
    assert "squid" not in tagger.classes_


def test_a_label_that_was_answered_for_outlives_its_documents(own_tagger, new_items, tmp_path):
    own_tagger.learn([(0, "kraken", True)], new_items)
    before = own_tagger.predict_proba(new_items)
    own_tagger.remove_documents(own_tagger.add_documents([("kraken", "sea"), ("kraken", "wave")]))
    assert_array_equal(own_tagger.predict_proba(new_items), before)
    own_tagger.save(tmp_path / "again")
    classes = list(polyseme.load(tmp_path / "again").classes_)
    assert classes == list(own_tagger.classes_)


def test_labels_of_items_that_no_label_set_holds_are_oov(world):
    documents = [(*document, "kraken") for document in world.documents[:30]]
    tagger = tiny_tagger().fit(world.X[:30], documents, world.label_sets, label_sets_only=True)
    assert tagger.kinds_[column_of(tagger, "kraken")] == "oov"
    kinds = set(tiny_tagger().fit(world.X[:30], documents).kinds_)
    assert kinds == {"seen"}


def test_documents_of_both_lists_are_known_once(world, new_items):
    once = tiny_tagger().fit(world.X, world.documents)
    twice = tiny_tagger().fit(world.X, world.documents, world.documents)
    assert twice.store_.ids == once.store_.ids
    expected = once.predict_proba(new_items)
    assert_array_equal(twice.predict_proba(new_items), expected)
    ids = [f"item {number}" for number in range(len(world.documents))]
    corpus = LabelCorpus.from_documents(world.documents, ids=ids)
    first_rows = np.arange(100)
    first_documents = corpus.select(first_rows)
    named = tiny_tagger().fit(world.X[:100], first_documents, corpus)
    assert named.store_.ids == tuple(ids)


def test_spellings_stay_apart_when_asked():
    documents = [("Apple", "phone"), ("apple", "pie")] * 20
    X = np.tile([[0.0], [1.0]], (20, 1))
    apart = tiny_tagger(normalize_labels=False).fit(X, documents)
    assert set(apart.classes_) == {"Apple", "apple", "phone", "pie"}
    with pytest.raises(InputError, match="None of the tags is known: APPLE"):
        apart.complete(["APPLE"])
    assert len(apart.complete(["Apple"], k=2)[0]) == 2
    n_classes = len(tiny_tagger().fit(X, documents).classes_)
    assert n_classes == 3


def test_constant_features_and_fewer_items_than_folds_work(world):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PolysemeWarning)
        tagger = tiny_tagger(n_folds=5).fit(np.ones((2, 3)), world.documents[:2], world.label_sets)
    assert np.isfinite(tagger.predict_proba(np.zeros((1, 3)))).all()


def test_documents_without_labels_are_left_out_of_what_is_known_and_named(world, new_items):
    documents = [*world.documents[:30], ()]
    X = world.X[:31]
    for label_sets in (world.label_sets[:30], None):
        with pytest.warns(PolysemeWarning, match="1 of 31 documents have no label and") as caught:
            only = label_sets is not None
            tagger = tiny_tagger().fit(X, documents, label_sets, label_sets_only=only)
        assert len(caught) == 1, "said once"
        if label_sets:
            assert tagger.dropped_ == ("instance:30",)
            assert len(tagger.store_.ids) == 60
        assert np.isfinite(tagger.predict_proba(new_items)).all()


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
        tiny_tagger().fit(world.X[:2], documents, label_sets, label_sets_only=only)


@pytest.mark.parametrize("k", [0, -1, 2.5, "all", True])
def test_a_number_of_labels_is_a_whole_number(toy_tagger, new_items, k):
    for method, query in (("rank", new_items), ("complete", ["sea"])):
        message = f"`k` of `{method}` must be a whole number at least 1"
        with pytest.raises(InputError, match=message):
            getattr(toy_tagger, method)(query, k=k)


def test_a_bad_parameter_is_named_before_any_training(world, monkeypatch):
    monkeypatch.setattr(SpaceTraining, "run", lambda *_: pytest.raise_memory_error("trained"))
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
    tagger = tiny_tagger(n_steps=80, features=extractor).fit(words, documents)
    assert not hasattr(extractor, "letters_"), "fit must leave the given extractor alone"
    expected_n_features_in = len(set("".join(words)))
    assert tagger.n_features_in_ == expected_n_features_in
    assert tagger.features_.seed_ is not None, "it is seeded by the tagger"
    labels, _ = tagger.rank(["sea", "wood"], k=1)
    assert labels.ravel().tolist() == ["sea", "oak"]
    extracted = Extracted("words", {"version": 1}, ("sea",), tagger.features_.raw(["sea"]))
    assert tagger.explain(extracted, "wet") == tagger.explain("sea", "wet")
    assert_array_equal(tagger.predict_proba(extracted), tagger.predict_proba(["sea"]))
    with pytest.raises(InputError, match="cannot be used: is empty"):
        tagger.rank(["sea", ""])


def test_only_some_kinds_are_given_where_that_is_asked_for(toy_tagger, world, new_items):
    kinds = dict(zip(toy_tagger.classes_, toy_tagger.kinds_.tolist(), strict=True))
    # Labels on training items are asked for as seen, also where no label set holds them.
    kinds |= dict.fromkeys(world.oov, "seen")
    for wanted in ("seen", "unseen"):
        labels, scores = toy_tagger.rank(new_items, k=3, kinds=(wanted,))
        assert {kinds[label] for label in labels[scores > 0]} == {wanted}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sets = toy_tagger.predict(new_items, precision=0.95, kinds=("seen",))
    assert {kinds[label] for tags in sets for label in tags} <= {"seen"}
    every = toy_tagger.predict(new_items, threshold=0.3)
    seen = toy_tagger.predict(new_items, threshold=0.3, kinds=("seen",))
    expected_tags = [list(t) for t in seen]
    assert [[t for t in tags if kinds[t] == "seen"] for tags in every] == expected_tags
    with pytest.raises(InputError, match="`kinds` of `rank` must be one of 'seen'"):
        toy_tagger.rank(new_items, kinds=("sean",))


# ------------------------------------------------------------------ items without tags


def test_without_validation_the_pool_is_used_as_told(world, new_items):
    fitted = tiny_tagger(n_validations=0).fit(
        world.X, world.documents, world.label_sets, unlabelled=new_items
    )
    plain = tiny_tagger(n_validations=0).fit(world.X, world.documents, world.label_sets)
    assert (fitted.pooled_, plain.pooled_, fitted.validation_) == (True, False, None)
    assert fitted.space_.digest_ != plain.space_.digest_


@pytest.mark.parametrize(("gain", "used"), [(0.02, True), (-0.02, False), (0.0, False)])
def test_the_pool_is_used_where_it_helps_on_labels_made_unseen(
    world, new_items, monkeypatch, gain, used
):
    monkeypatch.setattr("polyseme.fitting.holdout_validation.Validation.gain_over", lambda *_: gain)
    fitted = tiny_tagger().fit(
        world.X, world.documents, world.label_sets, unlabelled=new_items, label_sets_only=True
    )
    plain = tiny_tagger().fit(world.X, world.documents, world.label_sets, label_sets_only=True)
    assert fitted.pooled_ == used
    assert fitted.validation_.pool_gain == gain
    assert (fitted.space_.digest_ == plain.space_.digest_) != used


def test_a_pool_in_every_form_is_the_same_and_columns_are_put_in_order(world, new_items):
    names = [*"abcde"]
    X, pool = (pd.DataFrame(table, columns=names) for table in (world.X, new_items))
    forms = [pool, pool[names[::-1]], pl.DataFrame(new_items, names)[names[::-1]]]
    digests = {
        tiny_tagger(n_validations=0)
        .fit(X, world.documents, world.label_sets, unlabelled=form, label_sets_only=True)
        .space_.digest_
        for form in forms
    }
    assert len(digests) == 1
    with pytest.raises(InputError, match="columns"):
        tiny_tagger().fit(X, world.documents, unlabelled=pool.rename(columns={"a": "z"}))
    with pytest.raises(InputError, match="features"):
        tiny_tagger().fit(world.X, world.documents, unlabelled=new_items[:, :3])
    with pytest.raises(InputError, match="give X, too"):
        tiny_tagger().fit(None, world.documents, unlabelled=new_items)


def test_a_pool_of_files_is_known_by_their_names():
    words = ["seashore", "sandsea", "oakwood", "woodoak"] * 10
    documents = [["sea", "wet"], ["sea"], ["oak", "dry"], ["oak"]] * 10
    pool = ["sea", "wood", "sandshore"]
    tagger = tiny_tagger(features=Words(), n_validations=0).fit(words, documents, unlabelled=pool)
    items = {query.item for query in tagger.ask(pool, k=50)}
    assert items == set(pool)
    verdicts = [("sandshore", "wet", False), ("wood", "wet", True)]
    with pytest.raises(InputError, match="Nothing is known of the item 'sandshore'"):
        tagger.learn(verdicts)
    tagger.learn(verdicts, ["sandshore", "wood"])
    with warnings.catch_warnings():
        warnings.filterwarnings("error", "Verdicts on", PolysemeWarning)
        tagger.fit(words, documents, unlabelled=pool)
    shape = tagger.space_.project(np.ones((1, tagger.n_features_in_))).shape
    assert shape == (1, 10)
    assert tagger._corrections.by_column, "what was said of files is placed in the new space"


def test_verdicts_teach_the_next_fit_and_new_labels_come_back(world, new_items):
    tagger = tiny_tagger(n_validations=0)
    training_data = (world.X, world.documents, world.label_sets)
    tagger.fit(*training_data, unlabelled=new_items)
    plain = tagger.space_.digest_
    tagger.learn(verdicts_on(world, "beach", "phone"), new_items)
    tagger.learn(verdicts_on(world, "beach", "parasol"), new_items)
    tagger.fit(*training_data, unlabelled=new_items)
    assert tagger.space_.digest_ != plain
    assert "parasol" in tagger.classes_
    assert len(tagger._corrections.by_column) == 2
    assert len(tagger.verdicts_.standing()) == 16
    verdicts = [Verdict(*answer) for answer in verdicts_on(world, "beach", "phone")]
    retaught = tiny_tagger(n_validations=0).fit(
        *training_data, unlabelled=new_items, verdicts=verdicts
    )
    assert retaught.space_.digest_ == tagger.space_.digest_


def test_numbers_of_rows_that_are_other_items_now_are_passed_over(world, new_items):
    tagger = tiny_tagger(n_validations=0).fit(world.X, world.documents)
    tagger.learn([(0, "sea", True), (1, "sea", False)], new_items)
    with pytest.warns(PolysemeWarning, match="Verdicts on 2 items are kept but not learned from"):
        tagger.set_params(random_state=1).fit(world.X, world.documents)
    assert not tagger._corrections.by_column
    assert len(tagger.verdicts_.standing()) == 2


def test_a_fit_that_fails_leaves_scores_and_verdicts(own_tagger, world, new_items, monkeypatch):
    own_tagger.set_params(space=tiny_tagger().space, n_validations=0)
    own_tagger.learn(verdicts_on(world, "beach", "phone"), new_items)
    before = own_tagger.decision_function(new_items)
    log = own_tagger.verdicts_
    monkeypatch.setattr(
        "polyseme.fitting.training_set.TrainingSet.store_answered_vectors", raise_memory_error
    )
    with pytest.raises(MemoryError):
        own_tagger.fit(world.X, world.documents, verdicts=[])
    assert own_tagger.verdicts_ is log
    assert_array_equal(own_tagger.decision_function(new_items), before)
    own_tagger.learn([("0", "sun", True)], new_items)
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
