"""The verdicts that stand, by label, and the vectors of their items."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from polyseme.base.validation import InputError
from polyseme.feedback import standing_verdicts as module
from polyseme.feedback.standing_verdicts import Feedback, answer_table, as_verdict
from polyseme.feedback.verdict_log import Verdict, VerdictLog

# ------------------------------------------------------------------ tables and verdicts


def test_a_table_of_answers_passes_over_what_is_not_there_and_the_last_counts():
    answers = [("a", "x", True), ("a", "y", False), ("b", "x", True), ("b", "x", False)]
    answers += [("nobody", "x", True), ("a", "nothing", True)]
    table = answer_table(answers, {"a": 0, "b": 2}, {"x": 0, "y": 1}.get, (3, 2))
    expected = [[1, -1], [0, 0], [-1, 0]]
    assert_array_equal(table.toarray(), expected)
    assert answer_table(answers[4:], {"a": 0}, {"x": 0}.get, (1, 1)) is None


@pytest.mark.parametrize("verdict", [("item", "label"), ("a",) * 12, 3])
def test_what_is_no_verdict_is_refused_in_a_sentence(verdict):
    with pytest.raises(InputError, match=r"A verdict must be .* \(item, label, answer\); got"):
        as_verdict(verdict, "space")


def test_a_verdict_remembers_the_model_that_was_asked():
    assert as_verdict((7, "x", True), "space") == Verdict("7", "x", True, model="space")
    assert as_verdict(Verdict("7", "x", True, model="old"), "space").model == "old"


# ------------------------------------------------------------------ a log


@pytest.fixture(params=[None, "log.sqlite"], ids=["memory", "file"])
def log(request, tmp_path):
    return VerdictLog(None if request.param is None else tmp_path / request.param)


def told(log):
    """Feedback with two labels of three items, one of which was answered anew."""
    vectors = {name: np.full(3, number, dtype=np.float32) for number, name in enumerate("abc")}
    log.append([("c", "x", True), ("a", "x", True), ("b", "y", False)], vectors, "space")
    log.append([("c", "x", False)])
    return Feedback(log, "space")


def facts(feedback):
    vectors, _, answers = feedback.examples(["x", "y"])
    return (
        sorted(feedback.labels),
        list(feedback.items()),
        len(feedback),
        vectors.tolist(),
        answers.tolist(),
    )


def test_the_latest_verdicts_stand_with_the_vectors_of_their_items(log):
    labels, _, n, vectors, answers = facts(told(log))
    assert (labels, n, answers) == (["x", "y"], 3, [True, False, False])
    expected_vectors = [[0.0] * 3, [1.0] * 3, [2.0] * 3]
    assert vectors == expected_vectors


def test_undoing_brings_back_what_stood_before_and_says_for_which_labels(log):
    feedback = told(log)
    log.undo([4])
    feedback, labels = feedback.refreshed()
    assert labels == {"x"}
    assert feedback.answers(["x"]) == {"a": True, "c": True}
    log.undo([3])
    feedback, labels = feedback.refreshed()
    assert labels == {"y"}
    assert feedback.labels == ("x",)
    assert feedback.numbers(["x"]) == [1, 2]


def test_of_two_names_the_latest_answer_counts(log):
    log.append([("a", "new", True), ("a", "old", False)])
    for names in (["new", "old"], ["old", "new"]):
        assert Feedback(log, "space").answers(names) == {"a": False}


def test_vectors_of_another_space_are_passed_over(log):
    told(log)
    vectors, digests, answers = Feedback(log, "other").examples(["x"])
    assert vectors.shape == (0, 0)
    assert answers.shape == (0,)
    assert digests == []


def test_vectors_beyond_the_cache_are_read_again(log, monkeypatch):
    expected = facts(told(log))
    monkeypatch.setattr(module, "_CACHE_BYTES", 24)  # two of three
    small = Feedback(log, "space")
    for _ in range(2):
        assert facts(small)[3] == expected[3]
        assert len(small._vector_cache) <= 2


# ------------------------------------------------------------------ events of others


def one_event(log, rng):
    """Add a verdict, sometimes with a vector that may be another than before, or undo some."""
    standing = [verdict.number for verdict in log.standing()]
    if standing and rng.random() < 0.4:
        log.undo(rng.choice(standing, size=min(2, len(standing)), replace=False).tolist())
        return
    item = rng.choice([*"abcd"])
    label = rng.choice([*"xyz"])
    vectors = {item: rng.integers(3, size=3)} if rng.random() < 0.5 else None
    log.append([(item, label, bool(rng.random() < 0.5))], vectors, "space")


@pytest.mark.parametrize("seed", range(5))
def test_refreshed_feedback_is_what_a_new_look_at_the_log_gives(log, seed):
    rng = np.random.default_rng(seed)
    feedback = Feedback(log, "space")
    for _ in range(25):
        for _ in range(rng.integers(1, 4)):
            one_event(log, rng)
        before, (feedback, differ) = feedback, feedback.refreshed()
        new = Feedback(log, "space")
        expected = (new._answers, new._vector_keys)
        assert (feedback._answers, feedback._vector_keys) == expected
        for label in "xyz":
            expected = new.digest([label])
            assert feedback.digest([label]) == expected
            expected = new.examples([label])[0]
            assert_array_equal(feedback.examples([label])[0], expected)
            same_digest = feedback.digest([label]) == before.digest([label])
            assert same_digest or label in differ
            assert feedback.answers([label]) == before.answers([label]) or label in differ


def test_refreshing_leaves_what_was_known_before_and_itself_where_nothing_is_new(log):
    before = told(log)
    expected = facts(before)
    log.append([("a", "x", False), ("d", "z", True)], {"d": np.ones(3), "a": np.ones(3)}, "space")
    log.undo([3])
    after, differ = before.refreshed()
    assert differ == {"x", "y", "z"}
    assert facts(after) != expected == facts(before)
    assert after.refreshed() == (after, set())


def test_an_answer_that_was_replaced_before_it_was_undone_changes_nothing(log):
    feedback = told(log)
    log.undo([1])
    after, differ = feedback.refreshed()
    assert not differ
    assert facts(after) == facts(feedback)


def test_a_log_that_another_has_taken_the_place_of_is_read_anew(tmp_path):
    feedback = told(VerdictLog(tmp_path / "log.sqlite"))
    feedback.log.close()
    other_log = VerdictLog(tmp_path / "other.sqlite")
    other_log.append([(item, "z", True) for item in "abcdef"])
    other_log.close()
    for end in ("-wal", "-shm"):
        (tmp_path / f"log.sqlite{end}").unlink(missing_ok=True)
    (tmp_path / "other.sqlite").replace(tmp_path / "log.sqlite")
    after, differ = feedback.refreshed()
    assert after.labels == ("z",)
    assert differ == {"x", "y", "z"}


def test_a_digest_tells_of_answers_items_and_vectors(log):
    feedback = told(log)
    digests = [feedback.digest(["x"]), feedback.digest(["y"]), feedback.digest(["x", "y"])]
    for verdicts, vectors in (
        ([("a", "x", False)], None),
        ([("b", "x", True)], None),
        ([], {"c": np.ones(3)}),
    ):
        log.append(verdicts, vectors, "space")
        feedback, _ = feedback.refreshed()
        digests.append(feedback.digest(["x"]))
    assert len(set(digests)) == len(digests)
    assert feedback.digest(["nothing"]) == b""
    log.append([("a", "y", True)], {"d": np.ones(3)}, "space")
    assert feedback.refreshed()[0].digest(["x"]) == digests[-1], "what is new is not about it"


def test_equal_answers_and_vectors_have_equal_digests_in_any_log():
    digests = []
    for first, vector in (("a", 1.0), ("b", 1.0), ("b", 2.0)):
        log = VerdictLog()
        log.append([], {first: np.zeros(3)}, "space")
        vectors = {"a": np.zeros(3), "b": np.full(3, vector)}
        log.append([("b", "x", True), ("a", "x", False)], vectors, "space")
        digests.append(Feedback(log, "space").digest(["x"]))
    assert digests[0] == digests[1] != digests[2]


# ------------------------------------------------------------------ rows without names


def test_rows_that_are_other_items_now_are_known_by_their_vectors(log):
    projections = np.eye(3, dtype=np.float32)
    codes = np.ones((3, 2), dtype=np.float32)
    vectors = dict(zip("012", np.hstack([projections, codes]), strict=True))
    log.append([("0", "x", True), ("1", "x", False)], vectors, "space")
    feedback = Feedback(log, "space")
    rows = {"0": 0, "1": 1, "7": 2}

    def project(table):
        return lambda rows: table[list(rows)]

    assert feedback.changed_items(rows, project(projections + np.float32(1e-6))) == set()
    assert feedback.changed_items(rows, project(projections[[0, 2, 1]])) == {"1"}
    assert Feedback(log, "other").changed_items(rows, project(projections[[0, 2, 1]])) == set()
