"""Care for the vocabulary: blocked labels, other names, implications; in files and in models."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from polyseme import ZeroShotTagger, load
from polyseme._validation import InputError
from polyseme.corpus import LabelCorpus
from polyseme.vocabulary import Vocabulary

TEXT = """
blocked = ["sun"]
[aliases]
seas = "sea"
ocean = "seas"
[implies]
wave = "sea"
shell = ["beach", "wave"]
"""


@pytest.fixture
def words(tmp_path):
    (tmp_path / "vocabulary.toml").write_text(TEXT, "utf-8")
    return Vocabulary.read(tmp_path / "vocabulary.toml")


@pytest.fixture
def tagger(toy_tagger, tmp_path):
    toy_tagger.save(tmp_path / "toy")
    return load(tmp_path / "toy")


def test_a_file_says_what_people_say_about_labels(words):
    assert words.blocked == ("sun",)
    assert words.resolve("Ocean") == "sea"
    assert words.implied("shell") == {"beach", "wave", "sea"}
    assert sorted(words.complete(["shell", "ocean"])) == ["beach", "sea", "shell", "wave"]
    assert Vocabulary.from_state(words.get_state()) == words


def test_documents_get_own_names_and_what_is_implied(words):
    corpus = LabelCorpus.from_documents(
        [["seas", "Sea", "sand"], ["shell"], []], ids=["a", "b", "c"]
    )
    made = words.apply(corpus)
    assert [set(tags) for tags in made] == [
        {"sea", "sand"},
        {"shell", "beach", "wave", "sea"},
        set(),
    ]
    assert made.ids == ("a", "b", "c")
    assert not made.numbered
    assert Vocabulary(blocked=("sand",)).apply(corpus) is corpus


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("blocked = 3", "holds a list of labels as `blocked`"),
        ("block = []", "unknown: block"),
        ("[aliases]\na = 1", r"\[aliases\]"),
        ("[implies]\na = [1]", r"\[implies\]"),
        ("[aliases]\na = 'b'\nb = 'A'", "lead round in a circle"),
        ("not toml", "cannot be read"),
    ],
)
def test_a_wrong_file_is_refused_in_one_sentence(tmp_path, text, message):
    (tmp_path / "words.toml").write_text(text, "utf-8")
    with pytest.raises(InputError, match=message):
        Vocabulary.read(tmp_path / "words.toml")
    with pytest.raises(InputError, match="cannot be read"):
        Vocabulary.read(tmp_path / "nowhere.toml")


def test_blocked_labels_are_never_suggested_and_come_back(tagger, world):
    before = tagger.predict_proba(world.X_test)
    column = list(tagger.classes_).index("sea")
    tagger.block(["Sea"])
    assert not tagger.predict_proba(world.X_test)[:, column].any()
    assert "sea" not in tagger.complete(["sand", "sun"], k=50)[0][:10]
    given = tagger.predict_proba(world.X_test, tags=[["sea"]] * len(world.X_test))
    assert (given[:, column] == 1).all(), "what is given is known all the same"
    assert_array_equal(tagger.block(["sea"], undo=True).predict_proba(world.X_test), before)
    with pytest.raises(InputError, match="Unknown label 'zebra'"):
        tagger.block(["zebra"])


def test_a_renamed_label_has_its_scores_and_answers_to_both_names(tagger, world, tmp_path):
    before = tagger.predict_proba(world.X_test, tags=[["sea"]] * len(world.X_test))
    tagger.rename("sea", "Ocean").save(tmp_path / "renamed")
    again = load(tmp_path / "renamed")
    assert "Ocean" in again.classes_
    assert "sea" not in again.classes_
    for name in ("sea", "ocean"):
        given = again.predict_proba(world.X_test, tags=[[name]] * len(world.X_test))
        assert_array_equal(given, before)
    assert again.kinds_[list(again.classes_).index("Ocean")] == "seen"
    assert any("Ocean" in again.store_.document(row) for row in range(len(again.store_.ids)))
    with pytest.raises(InputError, match="There is a label 'sun' already; merge"):
        again.rename("sand", "sun")


def test_what_was_said_of_a_label_is_so_under_its_new_name(tagger, world, tmp_path):
    words = Vocabulary(blocked=("Sea", "sun"), implies={"sea": ("water",), "wave": ("SEA",)})
    renamed = words.renaming("sea", "ocean")
    assert renamed.blocked == ("ocean", "sun")
    assert renamed.resolve("sea") == "ocean"
    assert renamed.implied("wave") == {"ocean", "water"}
    assert renamed.implied("sea") == set()
    back = renamed.renaming("ocean", "Sea")
    assert back.blocked == ("Sea", "sun")
    assert back.aliases == {"ocean": "Sea"}
    tagger.block(["sea"]).rename("sea", "ocean").save(tmp_path / "renamed")
    for one in (tagger, load(tmp_path / "renamed")):
        ocean = list(one.classes_).index("ocean")
        assert not one.predict_proba(world.X_test)[:, ocean].any()
        assert one.block(["ocean"], undo=True).predict_proba(world.X_test)[:, ocean].any()


def test_merged_labels_are_one(tagger, world, tmp_path):
    both = tagger.predict_proba(world.X_test)
    sea, sand = (list(tagger.classes_).index(label) for label in ("sea", "sand"))
    tagger.merge("sea", into="sand").save(tmp_path / "merged")
    again = load(tmp_path / "merged")
    scores = again.predict_proba(world.X_test)
    assert not scores[:, sea].any()
    # Votes of documents count for both now, so that the larger of the two is nearly a bound.
    assert (scores[:, sand] > np.maximum(both[:, sea], both[:, sand]) - 0.1).all()
    held = [set(again.store_.document(row)) for row in range(len(again.store_.ids))]
    assert not any("sea" in tags for tags in held)
    assert any("sand" in tags for tags in held)
    assert again.explain(world.X_test[2], "sea").label == "sand"
    with pytest.raises(InputError, match="are one label already"):
        again.merge("sea", into="sand")


def test_removed_labels_are_in_no_document_any_more(tagger, world):
    tagger.remove_labels(["sea"])
    assert not tagger.predict_proba(world.X_test)[:, list(tagger.classes_).index("sea")].any()
    assert tagger.store_.counts[tagger.store_.labels.index("sea")] == 0


def test_what_is_implied_is_as_likely_as_what_implies_it(world, tiny_space):
    words = Vocabulary(implies={"wave": ("sun",), "sun": ("sand",)})
    tagger = ZeroShotTagger(
        space=tiny_space(n_steps=30), vocabulary=words, n_validations=0, random_state=0
    )
    tagger.fit(world.X, world.documents, world.label_sets, label_sets_only=True)
    wave, sun, sand = (list(tagger.classes_).index(label) for label in ("wave", "sun", "sand"))
    scores = tagger.predict_proba(world.X_test)
    assert (scores[:, sand] >= scores[:, sun]).all()
    assert (scores[:, sun] >= scores[:, wave]).all()
    held = [tagger.store_.document(row) for row in range(len(tagger.store_.ids))]
    assert all("sand" in tags for tags in held if "wave" in tags)
    given = tagger.predict_proba(world.X_test[:1], tags=[["wave"]])
    assert given[0, [wave, sun, sand]].tolist() == [1, 1, 1]
    row = int(np.argmax(scores[:, wave]))
    column = {"sun": sun, "sand": sand}
    for label in column:
        evidence = tagger.explain(world.X_test[row], label)
        assert evidence.probability == pytest.approx(scores[row, column[label]])
        assert sum(part for _, part in evidence.parts()) == pytest.approx(evidence.logit)


def test_what_was_said_of_a_label_stays_said_when_it_is_renamed():
    words = Vocabulary(("Bird",), {}, {"bird": ("animal",)}).renaming("bird", "fowl")
    assert words.blocked == ("fowl",)
    assert words.complete(["bird"]) == ["fowl", "animal"]


def test_a_blocked_label_stays_blocked_when_it_is_renamed(tagger, world):
    tagger.block(["phone"]).rename("phone", "telephone")
    labels, scores = tagger.rank(world.X_test, k=len(tagger.classes_))
    assert not scores[labels == "telephone"].any()
    tagger.block(["telephone"], undo=True)
    labels, scores = tagger.rank(world.X_test, k=len(tagger.classes_))
    assert scores[labels == "telephone"].any()


def test_many_names_and_long_ways_from_one_to_another_take_no_time():
    chain = {f"name {n}": f"name {n + 1}" for n in range(20_000)}
    words = Vocabulary.from_state({"aliases": chain})
    assert {words.resolve(name) for name in chain} == {"name 20000"}


def test_a_circle_of_names_is_refused_however_it_was_made():
    with pytest.raises(InputError, match="lead round in a circle"):
        Vocabulary(aliases={"a": "b", "b": "a"}).resolve("a")


@pytest.mark.parametrize("how", ["merge", "remove"])
def test_a_later_label_that_no_document_holds_any_more_is_gone_at_once(
    tagger, world, tmp_path, how
):
    other = load(tmp_path / "toy")
    other.add_documents([["apple"], ["apple"]])
    tagger.add_documents([["apple", "windfall"], ["apple"]])
    if how == "merge":
        tagger.merge("windfall", "apple")
    else:
        tagger.remove_labels(["windfall"])
    assert tagger.classes_.tolist() == other.classes_.tolist()
    # It had nothing but its documents to say, and these are the other label's now.
    found, expected = (one.predict_proba(world.X_test) for one in (tagger, other))
    assert_allclose(found, expected, rtol=1e-6)


@pytest.fixture
def answered_tagger(tagger, world):
    """A tagger with the label "Seaside", which is known by answers to six items alone."""
    beach = np.flatnonzero(["sand" in tags for tags in world.documents])[:3].tolist()
    office = np.flatnonzero(["desk" in tags for tags in world.documents])[:3].tolist()
    # Against what features say, so that they count wherever they are taken over.
    answers = [(row, "Seaside", row in office) for row in (*beach, *office)]
    tagger.learn(answers, world.X)
    return tagger


def scores_of(tagger, X, label):
    return tagger.predict_proba(X)[:, tagger.classes_.tolist().index(label)]


def test_a_label_known_by_answers_alone_keeps_them_when_it_is_renamed(
    answered_tagger, world, tmp_path
):
    before = scores_of(answered_tagger, world.X_test, "Seaside")
    answered_tagger.rename("Seaside", "coast").save(tmp_path / "renamed")
    for renamed in (answered_tagger, load(tmp_path / "renamed")):
        assert "Seaside" not in renamed.classes_
        assert_allclose(scores_of(renamed, world.X_test, "coast"), before, atol=1e-12)
        renamed.learn([(world.X.shape[0] - 1, "seaside", True)], world.X)
        assert (scores_of(renamed, world.X_test, "coast") != before).any(), "both names are known"


def test_a_former_name_of_another_label_is_not_taken_over_with_its_answers(answered_tagger, world):
    answered_tagger.rename("Seaside", "coast")
    before = scores_of(answered_tagger, world.X_test, "coast")
    with pytest.raises(InputError, match="'seaside' is a name of 'coast' already; merge"):
        answered_tagger.rename("desk", "seaside")
    assert_array_equal(scores_of(answered_tagger, world.X_test, "coast"), before)
    answered_tagger.rename("coast", "seaside")  # its own former name is free
    assert_allclose(scores_of(answered_tagger, world.X_test, "seaside"), before)


def test_a_label_known_by_its_name_alone_is_renamed(tagger, world, theme_words):
    tagger.add_labels(["street"], theme_words)
    before = scores_of(tagger, world.X_test, "street")
    tagger.rename("street", "road")
    assert_array_equal(scores_of(tagger, world.X_test, "road"), before)


@pytest.mark.parametrize(
    ("label", "into"), [("Seaside", "sand"), ("sand", "Seaside"), ("Seaside", "street")]
)
def test_a_label_known_by_answers_alone_is_merged_with_its_answers(
    answered_tagger, world, theme_words, tmp_path, label, into
):
    answered_tagger.add_labels(["street"], theme_words)
    before = scores_of(answered_tagger, world.X_test, into)
    n_answers = len(list(answered_tagger.verdicts_.standing()))
    answered_tagger.merge(label, into).save(tmp_path / "merged")
    for merged in (answered_tagger, load(tmp_path / "merged")):
        assert label not in merged.classes_.tolist()
        assert into in merged.classes_.tolist()
        assert len(list(merged.verdicts_.standing())) == n_answers
        changes = scores_of(merged, world.X_test, into) - before
        assert np.abs(changes).max() > 0.01, "the answers count for the other label"
        held = {tag for row in range(len(merged.store_.ids)) for tag in merged.store_.document(row)}
        assert label not in held
    kinds = dict(zip(answered_tagger.classes_, answered_tagger.kinds_, strict=True))
    assert kinds[into] == ("oov" if into == "street" else "seen")
