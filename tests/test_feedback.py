"""What people said, by label, and what to ask them next."""

from __future__ import annotations

import numpy as np
import pytest

from polyseme import feedback as module
from polyseme._validation import InputError
from polyseme.feedback import (
    STRATEGIES,
    Block,
    Feedback,
    answer_table,
    as_verdict,
    check_strategy,
    choose,
)
from polyseme.verdicts import Verdict, VerdictLog

N, N_LABELS = 23, 5


def drawn(seed=0):
    """Logits, what was answered and what is tagged, of 23 items and 5 labels."""
    rng = np.random.default_rng(seed)
    shape = (N, N_LABELS)
    logits = rng.normal(size=shape)
    logits[:, 4] = -np.inf
    return logits, rng.random(shape) < 0.2, rng.random(shape) < 0.3


def blocks_of(size, tables):
    for start in range(0, N, size):
        yield Block(start, *(table[start : start + size] for table in tables))


def chosen(strategy, k=6, size=N, seed=0):
    return choose(blocks_of(size, drawn()), k, strategy, np.random.default_rng(seed))


@pytest.mark.parametrize("size", [1, 4, N - 1])
@pytest.mark.parametrize("strategy", ["active", "likeliest", "errors"])
@pytest.mark.parametrize("k", [1, 6, 1000])
def test_questions_are_the_same_in_blocks_and_from_one_table(strategy, k, size):
    assert chosen(strategy, k, size) == chosen(strategy, k)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_nothing_is_asked_that_was_answered_or_must_not_be_asked(strategy):
    logits, answered, tagged = drawn()
    found = chosen(strategy, k=1000)
    places = [(row, column) for row, column, _, _ in found]
    assert len(places) == len(set(places)) > 0
    for row, column in places:
        assert np.isfinite(logits[row, column]) and not answered[row, column]
        assert strategy == "errors" or not tagged[row, column]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_enough_questions_come_where_there_are_enough(strategy):
    assert len(chosen(strategy, k=8)) == 8


def test_the_likeliest_come_first():
    logits, answered, tagged = drawn()
    may = np.where(answered | tagged, -np.inf, logits)
    expected = np.sort(may, axis=None)[::-1][:6]
    found = chosen("likeliest")
    np.testing.assert_array_equal([logits[row, column] for row, column, _, _ in found], expected)
    np.testing.assert_allclose([one[2] for one in found], 1 / (1 + np.exp(-expected)))
    assert {one[3] for one in found} == {"likely"}


def test_an_active_choice_is_half_likely_and_half_uncertain():
    logits = drawn()[0]
    found = chosen("active", k=6)
    assert [one[3] for one in found] == ["likely"] * 3 + ["uncertain"] * 3
    assert found[:3] == chosen("likeliest", k=3)
    sizes = [abs(logits[row, column]) for row, column, _, _ in found[3:]]
    assert sizes == sorted(sizes) and max(sizes) < 0.5


def test_errors_are_unlikely_tags_and_likely_ones_that_are_missing():
    logits, _, tagged = drawn()
    found = chosen("errors", k=20)
    assert {one[3] for one in found} == {"missing", "wrong"}
    surprise = [logits[r, c] if why == "missing" else -logits[r, c] for r, c, _, why in found]
    assert surprise == sorted(surprise, reverse=True)
    assert all(tagged[r, c] == (why == "wrong") for r, c, _, why in found)


def test_random_questions_follow_their_seed():
    assert chosen("random", seed=1) == chosen("random", seed=1) != chosen("random", seed=2)


def test_no_items_give_no_questions():
    assert choose([], 3, "active", np.random.default_rng(0)) == []


@pytest.mark.parametrize(
    ("strategy", "message"), [("best", "must be one of active"), ("errors", "give the items' tags")]
)
def test_strategies_that_cannot_be_are_refused(strategy, message):
    with pytest.raises(InputError, match=message):
        check_strategy(strategy, tagged=False)


# ------------------------------------------------------------------ tables and verdicts


def test_a_table_of_answers_passes_over_what_is_not_there_and_the_last_counts():
    said = [("a", "x", True), ("a", "y", False), ("b", "x", True), ("b", "x", False)]
    said += [("nobody", "x", True), ("a", "nothing", True)]
    found = answer_table(said, {"a": 0, "b": 2}, {"x": 0, "y": 1}.get, (3, 2))
    np.testing.assert_array_equal(found.toarray(), [[1, -1], [0, 0], [-1, 0]])
    assert answer_table(said[4:], {"a": 0}, {"x": 0}.get, (1, 1)) is None


@pytest.mark.parametrize("given", [("item", "label"), ("a",) * 12, 3])
def test_what_is_no_verdict_is_refused_in_a_sentence(given):
    with pytest.raises(InputError, match=r"A verdict must be .* \(item, label, answer\); got"):
        as_verdict(given, "space")


def test_a_verdict_remembers_the_model_that_was_asked():
    assert as_verdict((7, "x", True), "space") == Verdict("7", "x", True, model="space")
    assert as_verdict(Verdict("7", "x", True, model="old"), "space").model == "old"


# ------------------------------------------------------------------ a log


@pytest.fixture(params=[None, "log.sqlite"], ids=["memory", "file"])
def log(request, tmp_path):
    return VerdictLog(None if request.param is None else tmp_path / request.param)


def told(log):
    """Feedback with two labels of three items, one of which was answered anew."""
    found = Feedback(log, "space")
    vectors = {name: np.full(3, number, dtype=np.float32) for number, name in enumerate("abc")}
    said = [Verdict("c", "x", True), Verdict("a", "x", True), Verdict("b", "y", False)]
    found.add(said, vectors)
    found.add([Verdict("c", "x", False)], {})
    return found


def facts(one):
    vectors, answers = one.placed(["x", "y"])
    return sorted(one.labels), list(one.items()), len(one), vectors.tolist(), answers.tolist()


def test_what_is_read_from_the_log_is_what_was_added(log):
    added = told(log)
    labels, _, n, vectors, answers = facts(added)
    assert (labels, n, answers) == (["x", "y"], 3, [True, False, False])
    assert vectors == [[0.0] * 3, [1.0] * 3, [2.0] * 3]
    read = facts(Feedback(log, "space"))
    assert read[0] == labels and read[2:] == (n, vectors, answers)


def test_undoing_brings_back_what_stood_before_and_says_for_which_labels(log):
    found = told(log)
    assert found.undo([4]) == {"x"}
    assert found.answers(["x"]) == {"a": True, "c": True}
    assert found.undo([3]) == {"y"} and found.labels == ("x",)
    assert found.numbers(["x"]) == [1, 2]


def test_of_two_names_the_latest_answer_counts(log):
    found = Feedback(log, "space")
    found.add([Verdict("a", "new", True), Verdict("a", "old", False)], {})
    for names in (["new", "old"], ["old", "new"]):
        assert found.answers(names) == {"a": False}


def test_vectors_of_another_space_are_passed_over(log):
    told(log)
    vectors, answers = Feedback(log, "other").placed(["x"])
    assert vectors.shape == (0, 0) and answers.shape == (0,)


def test_vectors_beyond_what_is_held_are_read_again(log, monkeypatch):
    expected = facts(told(log))
    monkeypatch.setattr(module, "_HELD_BYTES", 24)  # two of three
    small = Feedback(log, "space")
    for _ in range(2):
        assert facts(small)[3] == expected[3]
        assert len(small._held) <= 2
