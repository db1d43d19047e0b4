"""Topics of texts: what goes together in texts is near, in every language, from few texts on."""

from __future__ import annotations

import json
import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from polyseme.media.topics import N_BUCKETS, Topics
from polyseme.storage.model_file import ModelFileError

LANGUAGES = {
    "English": (
        ["ships in the harbour at dawn", "a boat leaves the harbour", "the ship and its sails"],
        ["bread with butter and cheese", "baking a loaf of bread", "cheese and butter"],
        "boats and ships in a harbour",
    ),
    "Finnish": (
        ["laivat satamassa aamulla", "vene lähtee satamasta", "laivan purjeet satamaan"],
        ["leipää voilla ja juustolla", "leivän leipominen", "juustoa ja voita leivällä"],
        "satamien laivoissa",
    ),
    "Chinese": (
        ["清晨港口里的船只", "一艘船离开港口", "港口的船帆"],
        ["面包和黄油还有奶酪", "烤一条面包", "奶酪和黄油"],
        "港口里的船",
    ),
    "Arabic": (
        ["سفن في الميناء عند الفجر", "القارب يغادر الميناء", "السفينة وأشرعتها"],
        ["خبز مع الزبدة والجبن", "خبز رغيف من الخبز", "الجبن والزبدة"],
        "السفن في الميناء",
    ),
}


@pytest.mark.parametrize("language", LANGUAGES)
def test_texts_of_one_topic_are_near_in_every_language(language):
    ships, food, new = LANGUAGES[language]
    topics = Topics(4).fit(ships + food)
    for ships_kind, food_kind, new_kind in zip(
        topics.transform(ships), topics.transform(food), topics.transform([new]), strict=True
    ):
        likeness_to_ships = (ships_kind @ new_kind.T).mean()
        likeness_to_food = (food_kind @ new_kind.T).mean()
        assert likeness_to_ships > 2 * max(likeness_to_food, 0.01)


def test_with_a_topic_for_each_text_products_are_those_of_the_terms():
    texts = ["a ship at sea", "the ship", "bread", "bread and a ship", "sea bread"]
    topics = Topics(100).fit(texts)
    assert len(topics.components_) == 5
    vectors, letters = topics.transform(texts)
    terms = topics._frequent_terms(texts, topics.letters_.transform(texts))
    assert_allclose(vectors @ vectors.T, (terms @ terms.T).toarray(), atol=2e-3)
    lengths = np.sqrt(letters.multiply(letters).sum(axis=1))
    assert_allclose(lengths, 1, atol=1e-6)


@pytest.mark.parametrize("texts", [["one"], ["same words"] * 3, ["x", "y"], ["a"] * 60])
def test_few_and_equal_texts_are_topics_too(texts):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        topics = Topics(256).fit(texts)
        vectors, letters = topics.transform([*texts, "never seen", "?!"])
    assert letters.shape == (len(texts) + 2, N_BUCKETS)
    assert 1 <= vectors.shape[1] <= len(texts)
    assert np.isfinite(vectors).all()
    assert np.abs(vectors[: len(texts)]).max(axis=1).min() > 0.1


def test_of_many_texts_terms_of_single_ones_are_left_out():
    many = [f"common words number{row}" for row in range(60)]
    topics = Topics(4).fit(many)
    assert len(topics.words_.columns_) == 2
    different = [chr(0x4E00 + 7 * row) for row in range(60)]
    topics = Topics(4).fit(different)
    assert len(topics.words_.columns_) == 60
    assert topics.transform(different)[0].any(axis=1).all()


@pytest.mark.parametrize("texts", [["?"], ["...", "!!!"], ["👍", "👍👎"]])
def test_texts_without_a_word_are_told_apart_by_their_signs(texts):
    topics = Topics(4).fit(texts)
    vectors, letters = topics.transform(texts)
    assert vectors.any(axis=1).all()
    assert len({row.tobytes() for row in letters.toarray()}) == len(texts)
    restored = Topics.from_state(*topics.get_state())
    assert_array_equal(restored.transform(texts)[0], vectors)


def test_a_name_is_found_in_a_text_though_no_training_text_has_it():
    topics = Topics(4).fit(["a ship at sea", "bread"])
    _, letters = topics.transform(["the harbours", "harbour", "oven"])
    likeness = (letters @ letters.T).toarray()
    assert likeness[0, 1] > 0.5
    assert likeness[0, 2] < 0.05


@pytest.mark.parametrize(("n_texts", "n_topics"), [(10, 10), (30, 16), (100, 25), (800, 100)])
def test_a_topic_is_learned_from_four_texts_or_more(n_texts, n_topics):
    generator = np.random.default_rng(0)
    words = [f"word{number}" for number in range(200)]
    texts = [" ".join(generator.choice(words, 8)) for _ in range(n_texts)]
    assert len(Topics(100).fit(texts).components_) == n_topics


def test_the_same_seed_gives_the_same_topics():
    texts = [f"{a} {b}" for a in ("ship", "bread", "tree") for b in ("red", "blue", "old", "new")]
    first = Topics(3, seed=1).fit(texts).components_
    assert_array_equal(Topics(3, seed=1).fit(texts).components_, first)


# ---------------------------------------------------------------------- saved topics


@pytest.fixture(scope="module")
def state():
    topics = Topics(3).fit(["a ship at sea", "the ship", "bread", "the sea, خبز", "😀 猫"])
    return topics.get_state()


def test_restored_topics_give_the_same_bit_for_bit(state):
    config, arrays = state
    text = json.dumps(config, allow_nan=False)
    restored = Topics.from_state(json.loads(text), arrays)
    texts = ["the ship at sea", "خبز", "nothing"]
    original = Topics(3).fit(["a ship at sea", "the ship", "bread", "the sea, خبز", "😀 猫"])
    for columns, expected in zip(restored.transform(texts), original.transform(texts), strict=True):
        assert abs(columns - expected).max() == 0


CRAFTED = {
    "another key": lambda c, a: c.update(more=["a"]),
    "columns missing": lambda c, a: a.pop("words_columns"),
    "weights missing": lambda c, a: a.pop("words_weights"),
    "axes missing": lambda c, a: a.pop("components"),
    "no axes": lambda c, a: a.update(components=a["components"][:0]),
    "columns twice": lambda c, a: a.update(words_columns=a["words_columns"] * 0),
    "columns too high": lambda c, a: a.update(words_columns=a["words_columns"] + N_BUCKETS),
    "negative columns": lambda c, a: a.update(words_columns=-1 - a["words_columns"]),
    "one column": lambda c, a: a.update(words_columns=np.int64(1)),
    "a column fewer": lambda c, a: a.update(words_columns=a["words_columns"][1:]),
    "weights too large": lambda c, a: a.update(words_weights=a["words_weights"] * 1e30),
    "negative weights": lambda c, a: a.update(words_weights=-a["words_weights"]),
    "weights of no number": lambda c, a: a.update(letters_weights=a["letters_weights"] * np.nan),
    "fewer weights": lambda c, a: a.update(letters_weights=a["letters_weights"][1:]),
    "other types": lambda c, a: a.update(components=a["components"].astype(np.float64)),
    "axes without terms": lambda c, a: a.update(components=a["components"][:, :3]),
    "one number": lambda c, a: a.update(components=np.float16(1)),
    "large axes": lambda c, a: a.update(components=a["components"] * 100),
    "another array": lambda c, a: a.update(more=np.zeros(2)),
}


@pytest.mark.parametrize("name", CRAFTED)
def test_crafted_topics_are_refused_in_a_sentence(state, name):
    config, arrays = map(dict, state)
    CRAFTED[name](config, arrays)
    with pytest.raises(ModelFileError, match=r"^[^\n]*\.$"):
        Topics.from_state(config, arrays)
