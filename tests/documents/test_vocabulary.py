"""Care for the vocabulary: blocked labels, other names, implications; in files and in models."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from polyseme import ZeroShotTagger, load
from polyseme.base.validation import InputError
from polyseme.documents.corpus import LabelCorpus
from polyseme.documents.vocabulary import Vocabulary
from toy_fits import fit_world

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


def test_a_vocabulary_is_read_from_its_file(words):
    assert words.blocked == ("sun",)
    assert words.resolve("Ocean") == "sea"
    assert words.implied("shell") == {"beach", "wave", "sea"}
    assert sorted(words.complete(["shell", "ocean"])) == ["beach", "sea", "shell", "wave"]
    assert Vocabulary.from_state(words.get_state()) == words


def test_documents_get_preferred_names_and_implied_labels(words):
    documents = [["seas", "Sea", "sand"], ["shell"], []]
    corpus = LabelCorpus.from_documents(documents, ids=["a", "b", "c"])
    renamed = words.apply(corpus)
    label_sets = [set(tags) for tags in renamed]
    assert label_sets == [
        {"sea", "sand"},
        {"shell", "beach", "wave", "sea"},
        set(),
    ]
    assert renamed.ids == ("a", "b", "c")
    assert not renamed.numbered


def test_a_vocabulary_of_blocked_labels_leaves_documents_alone():
    corpus = LabelCorpus.from_documents([["sea", "sand"]])
    vocabulary = Vocabulary(blocked=("sand",))
    assert vocabulary.apply(corpus) is corpus


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
    path = tmp_path / "words.toml"
    path.write_text(text, "utf-8")
    with pytest.raises(InputError, match=message):
        Vocabulary.read(path)
    with pytest.raises(InputError, match="cannot be read"):
        Vocabulary.read(tmp_path / "nowhere.toml")


def test_blocked_labels_are_never_suggested_and_come_back(tagger, world):
    scores_before = tagger.predict_proba(world.X_test)
    column = list(tagger.classes_).index("sea")
    tagger.block(["Sea"])
    assert not tagger.predict_proba(world.X_test)[:, column].any()
    labels, _ = tagger.complete(["sand", "sun"], k=50)
    assert "sea" not in labels[:10]
    tags = [["sea"]] * len(world.X_test)
    scores_with_tags = tagger.predict_proba(world.X_test, tags=tags)
    assert (scores_with_tags[:, column] == 1).all(), "what is given is known all the same"
    tagger.block(["sea"], undo=True)
    assert_array_equal(tagger.predict_proba(world.X_test), scores_before)


def test_unknown_labels_cannot_be_blocked(tagger):
    with pytest.raises(InputError, match="Unknown label 'zebra'"):
        tagger.block(["zebra"])


def test_a_renamed_label_keeps_its_scores_under_both_names(tagger, world, tmp_path):
    tags = [["sea"]] * len(world.X_test)
    scores_before = tagger.predict_proba(world.X_test, tags=tags)
    renamed = tmp_path / "renamed"
    tagger.rename("sea", "Ocean").save(renamed)
    loaded = load(renamed)
    labels = list(loaded.classes_)
    assert "Ocean" in labels
    assert "sea" not in labels
    for name in ("sea", "ocean"):
        tags = [[name]] * len(world.X_test)
        scores = loaded.predict_proba(world.X_test, tags=tags)
        assert_array_equal(scores, scores_before)
    assert loaded.kinds_[labels.index("Ocean")] == "seen"
    store = loaded.store_
    documents = [store.document(row) for row in range(len(store.ids))]
    assert any("Ocean" in document for document in documents)


def test_a_label_cannot_take_the_name_of_another_one(tagger):
    with pytest.raises(InputError, match="There is a label 'sun' already; merge"):
        tagger.rename("sand", "sun")


def test_rules_about_a_label_hold_under_its_new_name():
    words = Vocabulary(blocked=("Sea", "sun"), implies={"sea": ("water",), "wave": ("SEA",)})
    renamed = words.renaming("sea", "ocean")
    assert renamed.blocked == ("ocean", "sun")
    assert renamed.resolve("sea") == "ocean"
    assert renamed.implied("wave") == {"ocean", "water"}
    assert renamed.implied("sea") == set()
    restored = renamed.renaming("ocean", "Sea")
    assert restored.blocked == ("Sea", "sun")
    assert restored.aliases == {"ocean": "Sea"}


def test_a_blocked_label_of_a_tagger_is_blocked_under_its_new_name(tagger, world, tmp_path):
    folder = tmp_path / "renamed"
    tagger.block(["sea"]).rename("sea", "ocean").save(folder)
    loaded = load(folder)
    for renamed in (tagger, loaded):
        column = list(renamed.classes_).index("ocean")
        scores = renamed.predict_proba(world.X_test)
        assert not scores[:, column].any()
        renamed.block(["ocean"], undo=True)
        scores = renamed.predict_proba(world.X_test)
        assert scores[:, column].any()


def test_merged_labels_are_one(tagger, world, tmp_path):
    labels = list(tagger.classes_)
    sea = labels.index("sea")
    sand = labels.index("sand")
    scores_before = tagger.predict_proba(world.X_test)
    merged = tmp_path / "merged"
    tagger.merge("sea", into="sand").save(merged)
    loaded = load(merged)
    scores = loaded.predict_proba(world.X_test)
    assert not scores[:, sea].any()
    # Votes of documents count for both now, so that the larger of the two is nearly a bound.
    larger = np.maximum(scores_before[:, sea], scores_before[:, sand])
    assert (scores[:, sand] > larger - 0.1).all()

    store = loaded.store_
    known_labels = set()
    for row in range(len(store.ids)):
        known_labels.update(store.document(row))
    assert "sea" not in known_labels
    assert "sand" in known_labels
    evidence = loaded.explain(world.X_test[2], "sea")
    assert evidence.label == "sand"
    with pytest.raises(InputError, match="are one label already"):
        loaded.merge("sea", into="sand")


def test_removed_labels_are_in_no_document_any_more(tagger, world):
    tagger.remove_labels(["sea"])
    column = list(tagger.classes_).index("sea")
    scores = tagger.predict_proba(world.X_test)
    assert not scores[:, column].any()
    store = tagger.store_
    assert store.counts[store.labels.index("sea")] == 0


@pytest.fixture(scope="module")
def implying_tagger(world, tiny_space):
    """A tagger for which a wave implies the sun, and the sun sand."""
    words = Vocabulary(implies={"wave": ("sun",), "sun": ("sand",)})
    tagger = ZeroShotTagger(
        space=tiny_space(n_steps=30),
        vocabulary=words,
        n_validations=0,
        random_state=0,
    )
    return fit_world(tagger, world)


def test_implied_labels_are_at_least_as_likely_as_what_implies_them(implying_tagger, world):
    labels = list(implying_tagger.classes_)
    scores = implying_tagger.predict_proba(world.X_test)
    wave, sun, sand = [scores[:, labels.index(label)] for label in ("wave", "sun", "sand")]
    assert (sun >= wave).all()
    assert (sand >= sun).all()


def test_known_documents_hold_what_their_labels_imply(implying_tagger):
    store = implying_tagger.store_
    for row in range(len(store.ids)):
        document = store.document(row)
        assert "wave" not in document or "sand" in document


def test_labels_implied_by_a_given_tag_are_certain(implying_tagger, world):
    labels = list(implying_tagger.classes_)
    (scores,) = implying_tagger.predict_proba(world.X_test[:1], tags=[["wave"]])
    for label in ("wave", "sun", "sand"):
        assert scores[labels.index(label)] == 1


@pytest.mark.parametrize("label", ["sun", "sand"])
def test_the_evidence_of_implied_labels_adds_up(implying_tagger, world, label):
    labels = list(implying_tagger.classes_)
    scores = implying_tagger.predict_proba(world.X_test)
    wave_scores = scores[:, labels.index("wave")]
    row = int(np.argmax(wave_scores))
    evidence = implying_tagger.explain(world.X_test[row], label)
    probability = scores[row, labels.index(label)]
    assert evidence.probability == pytest.approx(probability, abs=1e-5)
    values = [value for _, value in evidence.parts()]
    assert sum(values) == pytest.approx(evidence.logit)


def test_rules_about_a_label_follow_it_in_another_spelling():
    words = Vocabulary(("Bird",), {}, {"bird": ("animal",)})
    renamed = words.renaming("bird", "fowl")
    assert renamed.blocked == ("fowl",)
    assert renamed.complete(["bird"]) == ["fowl", "animal"]


def test_a_blocked_label_stays_blocked_when_it_is_renamed(tagger, world):
    n_labels = len(tagger.classes_)
    tagger.block(["phone"]).rename("phone", "telephone")
    labels, scores = tagger.rank(world.X_test, k=n_labels)
    assert not scores[labels == "telephone"].any()
    tagger.block(["telephone"], undo=True)
    labels, scores = tagger.rank(world.X_test, k=n_labels)
    assert scores[labels == "telephone"].any()


def test_long_chains_of_names_are_resolved():
    chain = {f"name {n}": f"name {n + 1}" for n in range(20_000)}
    words = Vocabulary.from_state({"aliases": chain})
    resolved = {words.resolve(name) for name in chain}
    assert resolved == {"name 20000"}


def test_a_circle_of_names_is_refused_however_it_was_made():
    with pytest.raises(InputError, match="lead round in a circle"):
        Vocabulary(aliases={"a": "b", "b": "a"}).resolve("a")


@pytest.mark.parametrize("how", ["merge", "remove"])
def test_a_later_label_that_no_document_holds_any_more_is_gone_at_once(
    tagger, world, tmp_path, how
):
    expected = load(tmp_path / "toy")
    expected.add_documents([["apple"], ["apple"]])
    tagger.add_documents([["apple", "windfall"], ["apple"]])
    if how == "merge":
        tagger.merge("windfall", "apple")
    else:
        tagger.remove_labels(["windfall"])
    assert tagger.classes_.tolist() == expected.classes_.tolist()
    # It had nothing but its documents to say, and these are the other label's now.
    scores = tagger.predict_proba(world.X_test)
    expected_scores = expected.predict_proba(world.X_test)
    assert_allclose(scores, expected_scores, rtol=1e-6)


@pytest.fixture
def answered_tagger(tagger, world):
    """A tagger with the label "Seaside", which is known by answers to six items alone."""
    has_sand = [("sand" in tags) for tags in world.documents]
    has_desk = [("desk" in tags) for tags in world.documents]
    beach_rows = np.flatnonzero(has_sand)[:3].tolist()
    office_rows = np.flatnonzero(has_desk)[:3].tolist()
    # Against what features say, so that they count wherever they are taken over.
    verdicts = [(row, "Seaside", row in office_rows) for row in beach_rows + office_rows]
    tagger.learn(verdicts, world.X)
    return tagger


def scores_of(tagger, X, label):
    return tagger.predict_proba(X)[:, tagger.classes_.tolist().index(label)]


def test_a_label_known_by_answers_alone_keeps_them_when_it_is_renamed(
    answered_tagger, world, tmp_path
):
    scores_before = scores_of(answered_tagger, world.X_test, "Seaside")
    folder = tmp_path / "renamed"
    answered_tagger.rename("Seaside", "coast").save(folder)
    loaded = load(folder)
    last_row = len(world.X) - 1
    for renamed in (answered_tagger, loaded):
        assert "Seaside" not in renamed.classes_
        scores = scores_of(renamed, world.X_test, "coast")
        assert_allclose(scores, scores_before, atol=1e-12)
        renamed.learn([(last_row, "seaside", True)], world.X)
        scores = scores_of(renamed, world.X_test, "coast")
        assert (scores != scores_before).any(), "both names are known"


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
    scores_before = scores_of(answered_tagger, world.X_test, into)
    n_verdicts = len(list(answered_tagger.verdicts_.standing()))
    folder = tmp_path / "merged"
    answered_tagger.merge(label, into).save(folder)
    loaded = load(folder)
    for merged in (answered_tagger, loaded):
        labels = merged.classes_.tolist()
        assert label not in labels
        assert into in labels
        verdicts = list(merged.verdicts_.standing())
        assert len(verdicts) == n_verdicts
        changes = scores_of(merged, world.X_test, into) - scores_before
        assert np.abs(changes).max() > 0.01, "the answers count for the other label"
        store = merged.store_
        for row in range(len(store.ids)):
            assert label not in store.document(row)
    kind_by_label = dict(zip(answered_tagger.classes_, answered_tagger.kinds_, strict=True))
    assert kind_by_label[into] == ("oov" if into == "street" else "seen")
