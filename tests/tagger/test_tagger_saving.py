"""Saved taggers, cached corrections, and taggers that share a folder."""

from __future__ import annotations

import copy
import sqlite3
from dataclasses import replace
from threading import Event, Thread

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import polyseme
from polyseme import ConceptSpace, ZeroShotTagger
from polyseme.feedback.corrections import Corrections, _cache_key, _reference_sample
from polyseme.feedback.verdict_log import VerdictLog
from polyseme.storage.model_file import (
    ModelFileError,
    write_model,
)
from toy_taggers import (
    PLAN,
    assert_same,
    column_of,
    folder_of,
    load_without_cache,
    raise_memory_error,
    tiny_tagger,
    verdicts_on,
)

# ------------------------------------------------------------------ saving


def test_a_loaded_tagger_is_the_saved_one(toy_tagger, own_tagger, new_items):
    X = new_items
    tags = [["sea"]] * 25

    def answers(tagger):
        yield from (list(tagger.classes_), tagger.kinds_.tolist(), tagger.seen_)
        yield from (tagger.n_features_in_, tagger.space_.history_)
        for inputs in ((X, None), (X, tags), (None, tags)):
            yield tagger.predict_proba(*inputs).tolist()
        yield from (tagger.explain(X[0], "sea"), tagger.predict(X, precision=0.4))

    expected = list(answers(toy_tagger))
    assert list(answers(own_tagger)) == expected


def test_taggers_without_features_or_with_numbers_of_a_grid_search_are_saved_too(world, tmp_path):
    numbers = {"n_folds": np.int64(2), "n_steps": np.int64(8), "context": np.float32(0.4)}
    space = ConceptSpace(**numbers, priming=np.float64(0.2), plan=PLAN)
    searched = ZeroShotTagger(space=space, random_state=np.int64(0))
    for tagger, X in ((searched, world.X), (tiny_tagger(), None)):
        tagger.fit(X, world.documents).save(tmp_path / "m")
        loaded = polyseme.load(tmp_path / "m")
        tags = [["sea"]] * 300
        expected_probabilities = tagger.predict_proba(X, tags)
        assert_array_equal(loaded.predict_proba(X, tags), expected_probabilities)


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
    standing = polyseme.load(tmp_path / "m").verdicts_.standing()
    assert [verdict.item for verdict in standing] == ["a.jpg", "b.jpg"]


def test_a_tagger_saved_elsewhere_takes_its_verdicts_along(unsaved, tmp_path):
    unsaved.save(tmp_path / "m")
    loaded = polyseme.load(tmp_path / "m")
    loaded.verdicts_.append([("a.jpg", "sea", True)])
    loaded.save(tmp_path / "copy")
    standing_verdicts = polyseme.load(tmp_path / "copy").verdicts_.standing()
    assert standing_verdicts == loaded.verdicts_.standing()
    assert loaded.verdicts_.file == tmp_path / "m" / "verdicts.sqlite"


def test_a_tagger_fitted_anew_and_saved_over_another_leaves_its_verdicts(unsaved, tmp_path):
    unsaved_copy = copy.copy(unsaved)
    unsaved.save(tmp_path / "m")
    with polyseme.load(tmp_path / "m").verdicts_ as log:
        log.append([("a.jpg", "sea", True)])
    unsaved_copy.save(tmp_path / "m")
    count = polyseme.load(tmp_path / "m").verdicts_.count
    assert count == 1


def test_models_of_other_methods_are_refused_in_a_sentence(tmp_path):
    write_model(tmp_path / "new", "tagger", {"method": "telepathy"}, {})
    with pytest.raises(ModelFileError, match=r"the method 'telepathy'.*fit it anew"):
        polyseme.load(tmp_path / "new")


# ------------------------------------------------------------------ what was learned before


@pytest.fixture
def taught(own_tagger, world, new_items):
    """A tagger in a folder that was told of a seen, an unseen and a new label."""
    for theme, label in (("beach", "phone"), ("office", "shell"), ("beach", "parasol")):
        own_tagger.learn(verdicts_on(world, theme, label), new_items)
    return own_tagger


def test_cached_corrections_are_not_fitted_again(taught, new_items, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr("polyseme.feedback.corrections.fit_correction", raise_memory_error)
        loaded = polyseme.load(folder_of(taught))
        loaded.block(["sea"]).block(["sea"], undo=True)
    assert len(loaded._corrections.by_column) == 3
    assert_same(loaded, taught, new_items)
    assert_same(load_without_cache(folder_of(taught)), taught, new_items)


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
def test_the_cache_stays_right_when_a_tagger_is_changed(
    taught, new_items, tmp_path, change, elsewhere
):
    taught.learn([("2", "sun", True)], new_items)
    CHANGES[change](taught)
    folder = tmp_path / "other" if elsewhere else folder_of(taught)
    taught.save(folder)
    assert_same(polyseme.load(folder), taught, new_items)
    assert_same(load_without_cache(folder), taught, new_items)


def test_a_change_that_is_not_saved_does_not_change_a_loaded_tagger(taught, new_items):
    before = taught.decision_function(new_items)
    taught.add_documents([["phone", "sea"]] * 5)
    taught.undo(taught.learn([("9", "sun", True)], new_items))
    loaded = polyseme.load(folder_of(taught))
    assert_allclose(loaded.decision_function(new_items), before, atol=1e-5)


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
def test_a_damaged_cache_is_ignored_and_written_again(taught, new_items, monkeypatch, damage):
    folder = folder_of(taught)
    with sqlite3.connect(folder / "verdicts.sqlite") as database:
        database.execute(damage)
    database.close()
    assert_same(polyseme.load(folder), taught, new_items)
    monkeypatch.setattr("polyseme.feedback.corrections.fit_correction", raise_memory_error)
    assert_same(polyseme.load(folder), taught, new_items)


def test_a_log_that_cannot_be_written_is_learned_from(taught, new_items, monkeypatch):
    def refuse(*_):
        raise ModelFileError("read-only")

    with VerdictLog(folder_of(taught)) as log:
        log.cache_corrections([])
    monkeypatch.setattr(VerdictLog, "cache_corrections", refuse)
    assert_same(polyseme.load(folder_of(taught)), taught, new_items)


def test_known_documents_decide_corrections_of_labels_that_they_vote_for(taught):
    scorer = taught._scorer
    reference = _reference_sample(scorer)

    def keys():
        columns = [column_of(taught, label) for label in ("phone", "parasol")]
        return [_cache_key(scorer, reference, column, b"verdicts") for column in columns]

    phone, parasol = keys()
    store = taught.store_.remove(taught.store_.ids[:1])
    scorer = replace(scorer, store=store)
    assert keys()[0] != phone
    assert keys()[1] == parasol


def test_the_cache_is_not_written_for_every_answer(taught, new_items):
    def n_cached():
        return len(taught.verdicts_.cached_corrections())

    labels = [label for label in taught.classes_ if label not in ("phone", "shell", "parasol")][:13]
    taught.learn([("2", label, True) for label in labels], new_items)
    assert n_cached() == 16
    before = taught.verdicts_.cached_corrections()
    taught.learn([("3", labels[0], True), ("3", labels[1], True)], new_items)
    assert taught.verdicts_.cached_corrections() == before, "two of sixteen are fitted quickly"
    taught.learn([("3", labels[2], True)], new_items)
    assert taught.verdicts_.cached_corrections() != before


# ------------------------------------------------------------------ what others say


def both(taught):
    """The same model, loaded twice."""
    return taught, polyseme.load(folder_of(taught))


def test_a_tagger_catches_up_with_what_another_was_told(taught, world, new_items):
    teacher, follower = both(taught)
    assert not follower.refresh()
    numbers = teacher.learn(verdicts_on(world, "beach", "canoe"), new_items)
    teacher.learn([("1", "phone", True)])
    assert follower.refresh()
    assert not follower.refresh()
    assert_same(follower, teacher, new_items)
    teacher.undo((*numbers[:1], 1))
    teacher.undo(numbers[1:])
    assert follower.refresh()
    assert "canoe" not in follower.classes_
    assert_same(follower, teacher, new_items)
    assert_same(follower, load_without_cache(folder_of(teacher)), new_items)


def test_only_labels_that_were_answered_for_are_corrected_anew(taught, world, monkeypatch):
    teacher, follower = both(taught)
    teacher.learn([("1", "phone", True)])
    fitted = []
    fit = Corrections._fit

    def recorded_fit(self, scorer, reference, column, *values):
        fitted.append(scorer.labels[column])
        return fit(self, scorer, reference, column, *values)

    monkeypatch.setattr(Corrections, "_fit", recorded_fit)
    assert follower.refresh()
    assert fitted == ["phone"]


@pytest.mark.parametrize("seed", range(3))
def test_whoever_speaks_in_whatever_order_all_end_where_a_new_one_begins(taught, new_items, seed):
    rng = np.random.default_rng(seed)
    taggers = both(taught)
    labels = ["phone", "Canoe", "sun", "parasol", "aloe", "canoe"]
    for _ in range(8):
        tagger = taggers[rng.integers(2)]
        mine = [verdict.number for verdict in taught.verdicts_.standing()]
        if rng.random() < 0.4:
            tagger.undo(rng.choice(mine, size=3, replace=False).tolist())
        else:
            rows = rng.integers(len(new_items), size=2)
            label = rng.choice(labels)
            tagger.learn([(row, label, bool(rng.random() < 0.5)) for row in rows], new_items)
        new = polyseme.load(folder_of(taught))
        assert_same(tagger, new, new_items)
    for tagger in taggers:
        tagger.refresh()
        assert_same(tagger, load_without_cache(folder_of(taught)), new_items)


def test_an_item_that_another_has_placed_again_moves_its_labels(taught, new_items):
    teacher, follower = both(taught)
    (item, *_) = follower._corrections.feedback.items()
    vector = follower._corrections.feedback.vectors([item])[item]
    teacher.verdicts_.append([], {item: vector[::-1]}, teacher.space_.digest_)
    before = follower.decision_function(new_items)
    assert follower.refresh()
    assert not np.array_equal(follower.decision_function(new_items), before)
    assert_same(follower, polyseme.load(folder_of(taught)), new_items)


def test_answers_that_could_not_be_learned_are_learned_later(taught, new_items, monkeypatch):
    before = taught.decision_function(new_items)
    with monkeypatch.context() as patched, pytest.raises(MemoryError):
        patched.setattr("polyseme.feedback.corrections.fit_correction", raise_memory_error)
        taught.learn([("1", "canoe", True)])
    assert_array_equal(taught.decision_function(new_items), before)
    assert "canoe" not in taught.classes_
    assert taught.refresh()
    assert_same(taught, polyseme.load(folder_of(taught)), new_items)


def test_labels_by_answers_alone_come_in_the_order_of_their_names(taught, world):
    taught.learn([("1", "zebra", True), ("1", "canoe", True)])
    taught.add_labels(["seaside"], {"seaside": [1.0, 0.0], "sea": [1.0, 0.1]})
    classes = list(taught.classes_[-4:])
    assert classes == ["seaside", "canoe", "parasol", "zebra"]


# ------------------------------------------------------------------ a copy that learns meanwhile


def doings(world):
    """What a service does to copies of a tagger, as functions of a copy."""
    yield lambda one: one.learn(verdicts_on(world, "beach", "phone", 7), world.X_test)
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
    queries = tagger.ask(world.X_test, "phone", k=9)
    return labels.tolist(), scores.tolist(), queries, tagger.explain(world.X_test[0], "phone")


def test_a_copy_that_learns_leaves_the_original_as_it_is(taught, world):
    before = looks(taught, world)
    state = dict(vars(taught))
    answers = (
        copy.deepcopy(taught._corrections.feedback._answers),
        dict(taught._corrections.feedback._vector_keys),
    )
    corrections = copy.deepcopy(taught._corrections.by_column)
    for doing in doings(world):
        clone = copy.copy(taught)
        doing(clone)
        assert looks(taught, world) == before
        assert all(vars(taught)[name] is value for name, value in state.items())
        assert (
            taught._corrections.feedback._answers,
            taught._corrections.feedback._vector_keys,
        ) == answers
        keys = {
            column: correction.key for column, correction in taught._corrections.by_column.items()
        }
        expected_keys = {column: correction.key for column, correction in corrections.items()}
        assert keys == expected_keys


def test_others_rank_and_ask_with_the_original_while_a_copy_learns(taught, world, new_items):
    """What a service does: a copy learns and takes the place, nobody waits or sees half of it."""
    serving = [taught]
    expected = {id(taught): looks(taught, world)}
    failures = []
    done = Event()
    references = [taught]  # so that no two have one identity

    def rank():
        while not done.is_set():
            served = serving[0]
            try:
                if looks(served, world) != expected[id(served)]:
                    failures.append("another answer")
            except Exception as error:  # what a thread raises is lost else
                failures.append(error)

    readers = [Thread(target=rank) for _ in range(2)]
    for reader in readers:
        reader.start()
    for turn in range(6):
        clone = copy.copy(serving[0])
        numbers = clone.learn(verdicts_on(world, "beach", "phone", 2 + turn), new_items)
        clone.learn([(turn, "canoe", True)], new_items)
        clone.undo(numbers[:1])
        expected[id(clone)] = looks(clone, world)
        references.append(clone)
        serving[0] = clone
    done.set()
    for reader in readers:
        reader.join()
    assert not failures
    assert len(expected) == 7
    assert_same(serving[0], polyseme.load(folder_of(taught)), new_items)
