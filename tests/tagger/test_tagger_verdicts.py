"""Verdicts move scores, can be undone, and decide what is asked next."""

from __future__ import annotations

import pickle

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import polyseme
from polyseme import ZeroShotTagger
from polyseme.base.validation import InputError
from polyseme.feedback.verdict_log import VerdictLog
from toy_taggers import (
    column_of,
    copy_with_own_log,
    items_of,
    tiny_tagger,
    verdicts_on,
)


@pytest.mark.parametrize("label", ["phone", "charger", "parasol"])
def test_scores_move_towards_answers_and_those_of_others_stay(own_tagger, world, new_items, label):
    """Seen, unseen and brand-new labels, said to belong to the beach."""
    before = own_tagger.decision_function(new_items)
    labels_before = list(own_tagger.classes_)
    own_tagger.learn(verdicts_on(world, "beach", label), new_items)
    after = own_tagger.decision_function(new_items)
    on_beach = items_of(world, "beach")
    unanswered_labels = [name for name in labels_before if name != label]
    for name in unanswered_labels:
        expected_after = before[:, labels_before.index(name)]
        assert_array_equal(after[:, column_of(own_tagger, name)], expected_after)
    column = after[:, column_of(own_tagger, label)]
    gap = column[on_beach].mean() - column[~on_beach].mean()
    old = (
        before[:, labels_before.index(label)] if label in labels_before else np.zeros(len(on_beach))
    )
    assert gap > old[on_beach].mean() - old[~on_beach].mean() + 0.5


def test_a_new_label_by_two_answers_is_ranked_on_like_items(own_tagger, world, new_items):
    on_beach = items_of(world, "beach")
    rows = np.flatnonzero(on_beach)[:2]
    own_tagger.learn([(row, "parasol", True) for row in rows], new_items)
    parasol = column_of(own_tagger, "parasol")
    assert own_tagger.kinds_[parasol] == "oov"
    scores = own_tagger.predict_proba(new_items)[:, parasol]
    assert scores[on_beach].min() > scores[~on_beach].max()


@pytest.mark.parametrize("label", ["phone", "charger", "parasol"])
@pytest.mark.parametrize("reload", [False, True], ids=["at once", "after loading"])
def test_after_an_undo_every_score_is_what_it_was_before(
    own_tagger, world, new_items, tmp_path, label, reload
):
    own_tagger.learn(verdicts_on(world, "office", "sea"), new_items)
    own_tagger.learn([("3", label, True), ("1", label, False)], new_items)
    own_tagger.undo(own_tagger.learn([("1", label, True)]))
    if label == "parasol":
        own_tagger.undo([own_tagger.verdicts_.count - 3, own_tagger.verdicts_.count - 2])
    labels = list(own_tagger.classes_)
    before = own_tagger.decision_function(new_items)
    numbers = own_tagger.learn(verdicts_on(world, "beach", label), new_items)
    assert len(numbers) == 8
    assert not np.array_equal(own_tagger.decision_function(new_items), before)
    if reload:
        own_tagger.save(tmp_path / "other")
        own_tagger = polyseme.load(tmp_path / "other")
    own_tagger.undo(numbers)
    assert list(own_tagger.classes_) == labels
    assert_allclose(own_tagger.decision_function(new_items), before, atol=1e-5)


def test_the_order_of_verdicts_changes_no_score(toy_tagger, world, new_items):
    all_verdicts = verdicts_on(world, "beach", "phone") + verdicts_on(world, "office", "sea")
    scores = []
    for verdicts in (all_verdicts, all_verdicts[::-1]):
        mine = copy_with_own_log(toy_tagger)
        for verdict in verdicts:
            mine.learn([verdict], new_items)
        scores.append(mine.decision_function(new_items))
    assert_allclose(*scores, atol=1e-5)


def test_verdicts_on_a_blocked_label_count_when_it_is_suggested_again(own_tagger, world, new_items):
    verdicts = verdicts_on(world, "beach", "phone")
    column = column_of(own_tagger, "phone")
    own_tagger.block(["phone"]).learn(verdicts, new_items)
    assert not own_tagger.predict_proba(new_items)[:, column].any()
    own_tagger.block(["phone"], undo=True)
    loaded = polyseme.load(own_tagger.verdicts_.file.parent)
    expected_scores = loaded.decision_function(new_items)
    assert_array_equal(own_tagger.decision_function(new_items), expected_scores)
    with pytest.raises(InputError, match="'phone' is blocked or was removed, so that nothing"):
        own_tagger.block(["phone"]).ask(new_items, "phone")


def test_a_renamed_label_keeps_its_answers(own_tagger, world, new_items, tmp_path):
    own_tagger.learn(verdicts_on(world, "beach", "phone"), new_items)
    before = own_tagger.decision_function(new_items)
    own_tagger.rename("phone", "telephone")
    assert_array_equal(own_tagger.decision_function(new_items), before)
    own_tagger.save(tmp_path / "renamed")
    loaded = polyseme.load(tmp_path / "renamed")
    assert "phone" not in loaded.classes_, "its old name is no label of its own"
    assert_array_equal(loaded.decision_function(new_items), before)


def test_answers_to_merged_labels_count_for_the_one_that_is_left(own_tagger, world, new_items):
    plain = copy_with_own_log(own_tagger).merge("phone", into="screen")
    own_tagger.learn(verdicts_on(world, "beach", "phone"), new_items)
    own_tagger.merge("phone", into="screen")
    gap = []
    on_beach = items_of(world, "beach")
    for tagger in (plain, own_tagger):
        scores = tagger.decision_function(new_items)[:, column_of(tagger, "screen")]
        gap.append(scores[on_beach].mean() - scores[~on_beach].mean())
    assert gap[1] > gap[0] + 0.5


def test_a_label_is_forgotten_with_all_that_was_ever_answered_for_it(own_tagger, new_items):
    own_tagger.learn([("3", "parasol", True), ("3", "parasol", True)], new_items)
    own_tagger.learn([("3", "parasol", False)])
    own_tagger.remove_labels(["parasol"])
    assert "parasol" not in own_tagger.classes_
    assert not own_tagger.verdicts_.standing()


def test_answers_to_a_removed_label_count_no_more(own_tagger, world, new_items):
    n = len(own_tagger.learn(verdicts_on(world, "beach", "parasol"), new_items))
    own_tagger.remove_labels(["parasol"])
    assert "parasol" not in own_tagger.classes_
    assert not own_tagger.verdicts_.standing()
    assert own_tagger.verdicts_.count == 2 * n


def test_verdicts_survive_saving_copying_and_pickling(toy_tagger, world, new_items, tmp_path):
    mine = copy_with_own_log(toy_tagger)
    mine.learn(verdicts_on(world, "beach", "parasol"), new_items)
    expected = mine.decision_function(new_items)
    mine.save(tmp_path / "model")
    for duplicate in (polyseme.load(tmp_path / "model"), pickle.loads(pickle.dumps(mine))):
        assert_array_equal(duplicate.decision_function(new_items), expected)
        assert len(duplicate.verdicts_.standing()) == 8
    assert not toy_tagger.verdicts_.count, "a copy's clicks are its own"


def test_a_loaded_tagger_learns_what_its_folder_was_told_meanwhile(own_tagger, world, new_items):
    own_tagger.learn(verdicts_on(world, "beach", "parasol"), new_items)
    loaded = polyseme.load(own_tagger.verdicts_.file.parent)
    expected_scores = own_tagger.decision_function(new_items)
    assert_array_equal(loaded.decision_function(new_items), expected_scores)
    own_tagger.save(own_tagger.verdicts_.file.parent)
    loaded.use_log(VerdictLog())
    assert "parasol" not in loaded.classes_


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
    own_tagger, new_items, verdicts, X, message
):
    frame = pd.DataFrame(new_items).rename(columns=str).assign(id=[*map(str, new_items[:, 0])])
    features = {None: None, "X": new_items, "frame": frame}[X]
    before = own_tagger.decision_function(new_items)
    with pytest.raises(InputError, match=message):
        own_tagger.learn(verdicts, features)
    assert not own_tagger.verdicts_.count
    assert_array_equal(own_tagger.decision_function(new_items), before)


def test_a_row_of_another_table_is_not_taken_for_an_item_that_is_known(own_tagger, new_items):
    own_tagger.learn([(0, "sea", True)], new_items)
    own_tagger.learn([(0, "sea", False)], new_items)
    with pytest.raises(InputError, match="Row 0 is not the item '0' that verdicts were given"):
        own_tagger.learn([(0, "sea", True)], new_items[::-1])


def test_items_of_frames_are_known_by_their_ids(own_tagger, new_items):
    names = [f"photo {row}" for row in range(len(new_items))]
    frame = pd.DataFrame(new_items, columns=[*"abcde"]).assign(id=names)
    (first, *_) = own_tagger.ask(frame, "sea", k=3, strategy="likeliest")
    assert first.item == names[first.row]
    own_tagger.learn([(first.item, "sea", True)], frame)
    own_tagger.learn([(first.item, "wave", True)])
    assert first.item not in {query.item for query in own_tagger.ask(frame, "sea", k=500)}


def test_a_tagger_without_features_learns_no_verdicts(tiny_space, world, new_items):
    tagger = ZeroShotTagger(space=tiny_space(n_steps=8), random_state=0)
    tagger.fit(None, world.label_sets)
    for call in (lambda: tagger.learn([("0", "sea", True)]), lambda: tagger.ask(new_items)):
        with pytest.raises(InputError, match="was fitted without features"):
            call()


@pytest.mark.parametrize("label", ["phone", "parasol"])
def test_parts_of_evidence_add_up_with_answers(own_tagger, world, new_items, label):
    own_tagger.learn(verdicts_on(world, "beach", label), new_items)
    evidence = own_tagger.explain(new_items[0], label, k=100)
    contributions = [
        evidence.frequency,
        evidence.features,
        evidence.other_tags,
        evidence.known,
        evidence.verdicts,
    ]
    assert evidence.verdicts
    assert evidence.logit == pytest.approx(
        sum(contributions) + sum(tag.part for tag in evidence.tags)
    )
    logits = own_tagger.decision_function(new_items[:1])
    assert evidence.logit == pytest.approx(logits[0, column_of(own_tagger, label)])


def test_questions_about_one_label_or_any_leave_out_what_is_known(own_tagger, new_items):
    (first, *further_queries) = own_tagger.ask(new_items, "sea", k=5, strategy="likeliest")
    assert {question.label for question in further_queries} == {"sea"}
    scores = own_tagger.predict_proba(new_items)
    sea = column_of(own_tagger, "sea")
    assert first.probability == pytest.approx(scores[:, sea].max())
    own_tagger.learn([(first.item, "SEA", True)], new_items)
    queries = own_tagger.ask(new_items, k=10**6, strategy="likeliest")
    assert len(queries) == scores.size - 1
    questions = {(query.item, query.label) for query in queries}
    assert (first.item, "sea") not in questions
    tags = [["sea"]] * len(new_items)
    with_tags = own_tagger.ask(new_items, k=10**6, strategy="likeliest", tags=tags)
    assert "sea" not in {each.label for each in with_tags}


def test_missing_and_wrong_tags_are_found(own_tagger, world, new_items):
    wrong = [list(world.themes[theme]) for theme in world.themes_test]
    row = next(row for row, tags in enumerate(wrong) if "sea" in tags and "desk" not in tags)
    wrong[row] = [tag for tag in wrong[row] if tag != "sea"] + ["desk"]
    queries = own_tagger.ask(new_items, "desk", k=3, strategy="errors", tags=wrong)
    (likeliest, *_) = queries
    assert likeliest.row == row
    assert likeliest.reason == "doubtful"
    queries = own_tagger.ask(new_items, k=30, strategy="errors", tags=wrong)
    reasons = {(query.row, query.label): query.reason for query in queries}
    expected_reasons = {(row, "desk"): "doubtful", (row, "sea"): "missing"}
    assert reasons == expected_reasons
    # Nobody has tagged it yet: that is no error.
    wrong[row] = []
    assert own_tagger.ask(new_items, k=30, strategy="errors", tags=wrong) == []


def test_questions_of_an_indicator_matrix_are_about_its_columns(world, tiny_space):
    even_rows = [1, 0] * 20
    odd_rows = [0, 1] * 20
    frame = pd.DataFrame({"phone": even_rows, "sea": odd_rows, "sun": odd_rows})
    noise = np.random.default_rng(0).normal(size=(40, 2))
    X = np.eye(2)[odd_rows] + noise / 9
    tagger = tiny_tagger(n_steps=60, n_validations=0)
    tagger.fit(X, frame)
    queries = tagger.ask(X, "sea", k=4, strategy="likeliest")
    assert {query.label for query in queries} == {"sea"}
    assert {query.row % 2 for query in queries} == {1}
