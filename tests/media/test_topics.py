"""Topics of texts: what goes together in texts is near, in every language, from few texts on."""

from __future__ import annotations

import json
import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from polyseme.base.validation import InputError
from polyseme.media.topics import Topics
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
    (vector,) = topics.transform([new])
    likeness_to_ships = topics.transform(ships) @ vector
    likeness_to_food = topics.transform(food) @ vector
    assert likeness_to_ships.mean() > 2 * max(likeness_to_food.mean(), 0.01)


def test_with_a_topic_for_each_text_products_are_those_of_the_terms():
    texts = ["a ship at sea", "the ship", "bread", "bread and a ship", "sea bread"]
    topics = Topics(100).fit(texts)
    assert len(topics.components_) == 5
    terms = topics._terms(texts)
    vectors = topics.transform(texts)
    assert_allclose(vectors @ vectors.T, (terms @ terms.T).toarray(), atol=2e-3)


@pytest.mark.parametrize("texts", [["one"], ["same words"] * 3, ["x", "y"], ["a"] * 60])
def test_few_and_equal_texts_are_topics_too(texts):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        topics = Topics(256).fit(texts)
        vectors = topics.transform([*texts, "never seen", "?!"])
    assert 1 <= vectors.shape[1] <= len(texts)
    assert np.isfinite(vectors).all()
    assert np.abs(vectors[: len(texts)]).max(axis=1).min() > 0.1
    assert not vectors[-1].any()


def test_of_many_texts_terms_of_single_ones_are_left_out():
    many = [f"common words number{row}" for row in range(60)]
    vocabulary = Topics(4).fit(many).vectorizers_[0].vocabulary_
    assert set(vocabulary) == {"common", "words"}
    different = [f"word{row}" for row in range(60)]
    assert len(Topics(4).fit(different).vectorizers_[0].vocabulary_) == 60


@pytest.mark.parametrize("texts", [["?"], ["...", "!!!"], ["👍"]])
def test_texts_without_a_word_are_refused(texts):
    with pytest.raises(InputError, match="None of these texts holds a word"):
        Topics(4).fit(texts)


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
    topics = Topics.from_state(*restored.get_state())
    assert_array_equal(topics.transform(texts), restored.transform(texts))
    original = Topics(3).fit(["a ship at sea", "the ship", "bread", "the sea, خبز", "😀 猫"])
    assert_array_equal(original.transform(texts), restored.transform(texts))


def changed(mapping, name, value):
    return {**mapping, name: value}


CRAFTED = {
    "no words": lambda c, a: (changed(c, "words", []), a),
    "words twice": lambda c, a: (changed(c, "words", [c["words"][0]] * len(c["words"])), a),
    "numbers for words": lambda c, a: (changed(c, "words", list(range(len(c["words"])))), a),
    "half characters": lambda c, a: (changed(c, "words", ["\ud800", *c["words"][1:]]), a),
    "a word more": lambda c, a: (changed(c, "words", [*c["words"], "more"]), a),
    "no list": lambda c, a: (changed(c, "words", "words"), a),
    "another key": lambda c, a: (changed(c, "more", ["a"]), a),
    "weights missing": lambda c, a: (c, {k: v for k, v in a.items() if k != "words_weights"}),
    "weights too large": lambda c, a: (c, changed(a, "words_weights", a["words_weights"] * 1e300)),
    "negative weights": lambda c, a: (c, changed(a, "words_weights", -a["words_weights"])),
    "weights of no number": lambda c, a: (c, changed(a, "letters_weights", a["letters_weights"] * np.nan)),
    "other types": lambda c, a: (c, changed(a, "components", a["components"].astype(np.float64))),
    "axes without terms": lambda c, a: (c, changed(a, "components", a["components"][:, :3])),
    "one number": lambda c, a: (c, changed(a, "components", np.float16(1))),
    "large axes": lambda c, a: (c, changed(a, "components", a["components"] * 100)),
    "another array": lambda c, a: (c, changed(a, "more", np.zeros(2))),
}  # fmt: skip


@pytest.mark.parametrize("name", CRAFTED)
def test_crafted_topics_are_refused_in_a_sentence(state, name):
    config, arrays = CRAFTED[name](*state)
    with pytest.raises(ModelFileError, match=r"^[^\n]*\.$"):
        Topics.from_state(config, arrays)
