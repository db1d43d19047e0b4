"""What to ask people next."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from polyseme.base.validation import InputError
from polyseme.feedback.active_learning import STRATEGIES, Block, check_strategy, choose

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
    return choose(lambda: blocks_of(size, drawn()), k, strategy, np.random.default_rng(seed))


@pytest.mark.parametrize("size", [1, 4, N - 1])
@pytest.mark.parametrize("strategy", ["active", "likeliest"])
@pytest.mark.parametrize("k", [1, 6, 1000])
def test_questions_are_the_same_in_blocks_and_from_one_table(strategy, k, size):
    assert chosen(strategy, k, size) == chosen(strategy, k)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_nothing_is_asked_that_was_answered_or_must_not_be_asked(strategy):
    logits, answered, tagged = drawn()
    choices = chosen(strategy, k=1000)
    places = [(row, column) for row, column, _, _ in choices]
    assert len(places) == len(set(places)) > 0 or strategy == "errors"
    for row, column in places:
        assert np.isfinite(logits[row, column])
        assert not answered[row, column]
        assert strategy == "errors" or not tagged[row, column]


@pytest.mark.parametrize("strategy", ["active", "likeliest", "random"])
def test_enough_questions_come_where_there_are_enough(strategy):
    assert len(chosen(strategy, k=8)) == 8


def test_the_likeliest_come_first():
    logits, answered, tagged = drawn()
    may = np.where(answered | tagged, -np.inf, logits)
    expected = np.sort(may, axis=None)[::-1][:6]
    choices = chosen("likeliest")
    assert_array_equal([logits[row, column] for row, column, _, _ in choices], expected)
    assert_allclose([choice[2] for choice in choices], 1 / (1 + np.exp(-expected)))
    assert {choice[3] for choice in choices} == {"likely"}


def test_an_active_choice_is_half_likely_and_half_uncertain():
    logits = drawn()[0]
    choices = chosen("active", k=6)
    expected = ["likely"] * 3 + ["uncertain"] * 3
    assert [choice[3] for choice in choices] == expected
    assert choices[:3] == chosen("likeliest", k=3)
    sizes = [abs(logits[row, column]) for row, column, _, _ in choices[3:]]
    assert sizes == sorted(sizes)
    assert max(sizes) < 0.5


def errors_of(logits, tagged, k=100):
    """Rows that are listed as errors of one label, by reason."""
    logits, tagged = np.array([logits]).T, np.array([tagged], dtype=bool).T
    block = Block(0, logits, np.zeros_like(tagged), tagged)
    choices = choose(lambda: [block], k, "errors", np.random.default_rng(0))
    reasons = ("doubtful", "missing")
    return {reason: [row for row, _, _, why in choices if why == reason] for reason in reasons}


NONE = {"doubtful": [], "missing": []}


def test_tags_that_the_model_agrees_with_are_no_errors():
    # As a person met it: holders at 0.94 and 0.83, and one without at 0.07.
    logits = [2.75, 1.6, 3.1, -2.6, -4.0, -5.0]
    assert errors_of(logits, [1, 1, 1, 0, 0, 0]) == NONE


def test_a_tag_is_doubtful_where_it_is_far_below_the_others_that_have_it():
    logits = [3.0, 2.0, 1.0, 2.0, -4.5, -4.0, -5.0, -6.0]
    assert errors_of(logits, [1, 1, 1, 1, 1, 0, 0, 0]) == NONE | {"doubtful": [4]}


def test_a_tag_that_is_hard_to_see_is_not_doubtful_wherever_it_is_unlikely():
    logits = [-1.0, -1.5, -2.0, -2.5, -6.0, -6.5, -7.0]
    assert errors_of(logits, [1, 1, 1, 1, 0, 0, 0]) == NONE


def test_a_tag_is_perhaps_missing_where_it_is_far_above_the_others_without_it():
    without_tag = np.linspace(-7, -5, 40).tolist()
    tagged = [1, 1, 0] + [0] * 40
    assert errors_of([2.0, 1.0, 1.5, *without_tag], tagged) == NONE | {"missing": [2]}
    # Less likely than not, it is not listed, however far it is above the others.
    assert errors_of([2.0, 1.0, -0.1, *without_tag], tagged) == NONE


def test_a_label_that_often_seems_to_be_there_is_not_missing_wherever_it_is_likely():
    logits = [2.0, 1.0, 0.5, -1.0, -2.0, 1.0, -3.0]
    assert errors_of(logits, [1, 1, 0, 0, 0, 0, 0]) == NONE


@pytest.mark.parametrize("tagged", [0, 1])
def test_an_item_that_no_other_can_be_compared_with_is_no_error(tagged):
    logits = [3.0 - 6.0 * tagged]
    assert errors_of(logits, [tagged]) == NONE


def mistaken(n=300, seed=0):
    """Logits and tags of items, of which some have been tagged wrongly."""
    rng = np.random.default_rng(seed)
    truth = rng.random((n, N_LABELS)) < 0.3
    logits = np.where(truth, 3, -5) + rng.normal(size=truth.shape)
    wrong = rng.random(truth.shape) < 0.03
    return logits, np.zeros_like(wrong), truth ^ wrong, wrong


def test_mistaken_tags_are_found_in_any_blocks_the_most_surprising_first():
    *tables, wrong = mistaken()
    logits, _, tagged = tables

    def found_in(size):
        starts = range(0, len(wrong), size)
        blocks = [
            Block(start, *(table[start : start + size] for table in tables)) for start in starts
        ]
        return choose(lambda: iter(blocks), 1000, "errors", np.random.default_rng(0))

    choices = found_in(len(wrong))
    expected = [choice[:2] for choice in choices]
    assert [choice[:2] for choice in found_in(7)] == expected
    listed = np.zeros_like(wrong)
    listed[[row for row, *_ in choices], [column for _, column, *_ in choices]] = True
    assert wrong[listed].mean() > 0.9
    assert listed[wrong].mean() > 0.9
    surprise = [logits[r, c] if why == "missing" else -logits[r, c] for r, c, _, why in choices]
    assert surprise == sorted(surprise, reverse=True)
    assert {choice[3] for choice in choices} == {"missing", "doubtful"}
    assert all(tagged[r, c] == (why == "doubtful") for r, c, _, why in choices)


def test_random_questions_follow_their_seed():
    assert chosen("random", seed=1) == chosen("random", seed=1) != chosen("random", seed=2)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_no_items_give_no_questions(strategy):
    assert choose(list, 3, strategy, np.random.default_rng(0)) == []


@pytest.mark.parametrize(
    ("strategy", "message"), [("best", "must be one of active"), ("errors", "give the items' tags")]
)
def test_strategies_that_cannot_be_are_refused(strategy, message):
    with pytest.raises(InputError, match=message):
        check_strategy(strategy, tagged=False)
