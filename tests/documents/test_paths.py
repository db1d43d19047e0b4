"""Labels that are paths, such as people|adults: what they imply, and how branches change."""

from __future__ import annotations

import numpy as np
import pytest

from polyseme import ConceptSpace, LabelCorpus, ZeroShotTagger, load
from polyseme.base.paths import ancestors, leaf_of, moved, parts_of
from polyseme.base.validation import InputError
from polyseme.documents.vocabulary import Vocabulary
from toy_taggers import PLAN

CRANES = ["animals|birds|crane", "machines|crane"]


@pytest.mark.parametrize(
    ("label", "words"),
    [
        ("people|adults|figure", ["people", "adults", "figure"]),
        ("Places | Europe | Lisbon", ["Places", "Europe", "Lisbon"]),
        ("flat", ["flat"]),
        ("|", ["|"]),
        ("a||b", ["a||b"]),
        ("a|", ["a|"]),
        ("AC/DC", ["AC/DC"]),
    ],
)
def test_parts_of_paths(label, words):
    assert parts_of(label) == words
    assert leaf_of(label) == words[-1]
    assert ancestors(label) == ["|".join(words[:end]) for end in range(len(words) - 1, 0, -1)]
    assert Vocabulary().ancestors(label) == ancestors(label)


def test_a_path_moves_with_its_branch():
    assert moved("people|adults|figure", "people", "persons") == "persons|adults|figure"
    assert moved("a/b/c", "a/b", "x", "/") == "x/c"


def test_documents_hold_what_lies_above_their_labels():
    corpus = LabelCorpus.from_documents([["animals|birds|crane"], ["machines|crane", "sky"]])
    completed = Vocabulary().apply(corpus)
    assert list(map(set, completed)) == [
        {"animals", "animals|birds", "animals|birds|crane"},
        {"machines", "machines|crane", "sky"},
    ]
    assert Vocabulary(separator="").apply(corpus) is corpus
    slashes = LabelCorpus.from_documents([["Places/Lisbon"]])
    assert set(Vocabulary(separator="/").apply(slashes).labels) == {"Places", "Places/Lisbon"}
    assert Vocabulary().apply(slashes) is slashes


def make_tagger(**options):
    """Return a tagger of two kinds of cranes, by features that tell them apart."""
    generator = np.random.default_rng(0)
    documents = []
    rows = []
    for number in range(80):
        kind = number % 2
        documents.append([CRANES[kind], ("sky", "harbour")[(number // 2) % 2]])
        rows.append(np.eye(2)[kind] + 0.1 * generator.normal(size=2))
    tagger = ZeroShotTagger(
        space=ConceptSpace(n_folds=2, n_steps=40, plan=PLAN),
        n_validations=0,
        random_state=0,
        **options,
    )
    return tagger.fit(np.array(rows), documents)


@pytest.fixture(scope="module")
def tagger():
    return make_tagger()


def test_equal_leaves_are_two_labels_and_branches_are_never_below_what_lies_in_them(tagger):
    labels = list(tagger.classes_)
    assert {*CRANES, "animals", "animals|birds", "machines"} <= set(labels)
    scores = tagger.predict_proba(np.eye(2))
    for row, column in ((0, CRANES[0]), (1, CRANES[1])):
        other_crane = CRANES[1 - row]
        assert scores[row, labels.index(column)] > scores[row, labels.index(other_crane)]
    for label in labels:
        for ancestor in ancestors(label):
            assert (scores[:, labels.index(ancestor)] >= scores[:, labels.index(label)]).all()


def test_branches_can_be_left_out_of_suggestions():
    tagger = make_tagger(vocabulary=Vocabulary(suggest_branches=False))
    labels, scores = tagger.rank(np.eye(2), len(tagger.classes_))
    suggested = {str(label) for label, score in zip(labels[0], scores[0], strict=True) if score > 0}
    assert suggested == {*CRANES, "sky", "harbour"}


def test_blocking_a_branch_blocks_what_lies_below(tagger, tmp_path):
    tagger.save(tmp_path / "model")
    changed = load(tmp_path / "model")
    changed.block(["animals"])
    labels = list(changed.classes_)
    scores = changed.predict_proba(np.eye(2))
    for label in ("animals", "animals|birds", CRANES[0]):
        assert not scores[:, labels.index(label)].any()
    assert scores[:, labels.index(CRANES[1])].all()
    changed.block(["animals"], undo=True)
    assert (changed.predict_proba(np.eye(2)) == tagger.predict_proba(np.eye(2))).all()


def test_a_branch_is_renamed_with_all_below(tagger, tmp_path):
    tagger.save(tmp_path / "model")
    changed = load(tmp_path / "model")
    changed.rename("animals", "fauna")
    assert {"fauna", "fauna|birds", "fauna|birds|crane"} <= set(changed.classes_)
    assert not any(label.startswith("animals") for label in changed.classes_)
    assert (changed.predict_proba(np.eye(2)) == tagger.predict_proba(np.eye(2))).all()
    changed.save(tmp_path / "changed")
    completed = load(tmp_path / "changed").vocabulary_.complete(["animals|birds|crane"])
    assert set(completed) == {"fauna|birds|crane", "fauna|birds", "fauna"}
    with pytest.raises(InputError, match="merge 'machines' into"):
        changed.rename("machines", "fauna")


def test_a_branch_is_merged_with_all_below(tagger, tmp_path):
    tagger.save(tmp_path / "model")
    changed = load(tmp_path / "model")
    changed.merge("animals|birds", "machines")
    labels = set(changed.classes_)
    assert "machines|crane" in labels
    scores = changed.predict_proba(np.eye(2))
    columns = [list(changed.classes_).index(label) for label in ("machines", "machines|crane")]
    assert (scores[:, columns] > 0.5).all()
    with pytest.raises(InputError, match="lies below"):
        changed.merge("machines", "machines|crane")


def test_a_vocabulary_file_says_how_paths_are_written(tmp_path):
    path = tmp_path / "words.toml"
    path.write_text('separator = "/"\nsuggest_branches = false\n')
    vocabulary = Vocabulary.read(path)
    assert (vocabulary.separator, vocabulary.suggest_branches) == ("/", False)
    assert Vocabulary.from_state(vocabulary.get_state()) == vocabulary
    for wrong in ("separator = 3", 'suggest_branches = "no"', 'separator = "123456789"'):
        path.write_text(wrong)
        with pytest.raises(InputError, match="separator"):
            Vocabulary.read(path)


def test_a_path_is_known_by_its_last_part_where_no_other_label_has_it(tagger, tmp_path):
    tagger.save(tmp_path / "model")
    changed = load(tmp_path / "model")
    changed.block(["birds"])
    assert changed.vocabulary_.blocked == ("animals|birds",)
    with pytest.raises(InputError, match="crane"):
        changed.block(["crane"])
