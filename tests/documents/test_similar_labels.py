"""Labels that may be one: what is suggested, what is not, and merging several."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from polyseme import LabelCorpus, load
from polyseme.base.validation import InputError
from polyseme.documents.label_names import LabelNames
from polyseme.documents.similar_labels import similar_labels
from polyseme.label_changes import suggest_merges

FILLERS = [f"other {word}" for word in ("red", "green", "blue", "grey", "pink", "gold")]
# Companions by label: cat and dog have some in common, film and movies the same.
COMPANIONS = {
    "film": ("actor", "director", "cinema"),
    "movies": ("actor", "director", "cinema"),
    "cat": ("pet", "animal", "purr", "whiskers", "mouse", "milk"),
    "dog": ("pet", "animal", "leash", "bark", "bone", "walk"),
}
# As vectors of words have them: cat is nearer to dog than film to movies.
VECTORS = {
    "film": (1.0, 0.0, 0.0, 0.0),
    "movies": (0.9, 0.3, 0.0, 0.0),
    "cat": (0.0, 0.0, 1.0, 0.0),
    "dog": (0.0, 0.0, 0.95, 0.2),
    "pet": (-1.0, 0.0, 0.0, 0.0),
    "actor": (0.0, -1.0, 0.0, 0.0),
    "mouse": (0.0, 0.0, -1.0, -1.0),
}


def spelled_alike(*labels):
    """Return the pairs by spelling of labels that are used alike, beside some other labels."""
    documents = [[label, *FILLERS[:3]] for label in labels for _ in range(3)]
    documents += [[filler] for filler in FILLERS for _ in range(20)]
    return pairs_of(documents, "spelling")


def pairs_of(documents, reason, **options):
    """Return the pairs that are suggested for a reason."""
    corpus = LabelCorpus.from_documents(documents, normalize=False)
    suggestions = similar_labels(corpus.matrix, corpus.labels, **options)
    return [{pair.label, pair.into} for pair in suggestions if pair.reason == reason]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("card", "cards"),
        ("church", "churches"),
        ("house", "houses"),
        ("bus", "buses"),
        ("cookie", "cookies"),
        ("city", "cities"),
        ("hip hop", "hip-hop"),
        ("synthpop", "Synth Pop"),
        ("rock & roll", "rock and roll"),
        ("Beatles", "the beatles"),
        ("café", "cafe"),
        ("jazz guitar", "guitar jazz"),
        ("70's", "70s"),
        ("psychedelic", "psychadelic"),
        ("psychedelic", "pyschedelic"),
    ],
)
def test_names_that_are_spelled_alike_are_suggested(first, second):
    assert spelled_alike(first, second) == [{first, second}]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("fir", "fire"),
        ("pin", "pine"),
        ("cap", "cape"),
        ("bass", "base"),
        ("glass", "gas"),
        ("80s punk", "90s punk"),
        ("metal", "death metal"),
        ("battle", "bottle"),
        ("🌊", "🔥"),
    ],
)
def test_names_of_other_words_are_not(first, second):
    assert spelled_alike(first, second) == []


def test_names_that_differ_in_case_alone_cannot_be_merged_and_are_not_suggested():
    assert spelled_alike("God", "god") == []


def test_names_that_differ_in_a_letter_have_to_be_used_alike():
    documents = [["carriage", *FILLERS[:3]], ["marriage", *FILLERS[3:]]] * 5
    assert pairs_of(documents, "spelling") == []
    same_use = [["carriage", *FILLERS[:3]], ["marriage", *FILLERS[:3]]] * 5
    filling = [[filler] for filler in FILLERS for _ in range(20)]
    assert pairs_of(same_use + filling, "spelling") == [{"carriage", "marriage"}]


def test_each_spelling_is_merged_into_the_commonest():
    documents = [["hip hop"]] * 3 + [["hip-hop"]] * 5 + [["hiphop"]] * 1
    corpus = LabelCorpus.from_documents(documents)
    suggestions = similar_labels(corpus.matrix, corpus.labels)
    pairs = [(pair.label, pair.into) for pair in suggestions]
    assert sorted(pairs) == [("hip hop", "hip-hop"), ("hiphop", "hip-hop")]


@pytest.fixture
def pets_and_films():
    """Documents of labels with some of their companions, and the vectors of all names."""
    generator = np.random.default_rng(0)
    documents = []
    for label, companions in COMPANIONS.items():
        for _ in range(30):
            chosen = generator.choice(companions, size=min(3, len(companions)), replace=False)
            documents.append([label, *chosen.tolist()])
    labels = tuple(VECTORS)
    return documents, LabelNames(labels, np.array(list(VECTORS.values())))


@pytest.mark.parametrize("are_words", [False, True])
def test_film_and_movies_mean_the_same_but_cat_and_dog_do_not(pets_and_films, are_words):
    documents, names = pets_and_films
    options = {"names": names, "names_are_words": are_words}
    assert pairs_of(documents, "meaning", **options) == [{"film", "movies"}]
    assert pairs_of(documents, "meaning") == []


def test_names_that_share_a_word_or_have_other_digits_are_no_pairs_by_meaning(pets_and_films):
    documents, names = pets_and_films
    for first, second in (("action film", "film"), ("film 1", "film 2")):
        new_name = {"film": first, "movies": second}
        renamed = [[new_name.get(label, label) for label in tags] for tags in documents]
        labels = tuple(new_name.get(label, label) for label in names.labels)
        assert pairs_of(renamed, "meaning", names=names._replace(labels=labels)) == []


def test_figures_stand_behind_each_reason(pets_and_films):
    documents, names = pets_and_films
    corpus = LabelCorpus.from_documents(documents)
    suggestions = similar_labels(corpus.matrix, corpus.labels, names=names)
    (pair,) = [pair for pair in suggestions if pair.reason == "meaning"]
    assert pair.spelling < 0.3
    assert pair.use > 0.9
    assert 0.6 < pair.meaning < 1
    without_names = similar_labels(corpus.matrix, corpus.labels)
    by_use = [pair for pair in without_names if {pair.label, pair.into} == {"film", "movies"}]
    assert [(pair.reason, pair.meaning) for pair in by_use] == [("use", None)]


def test_so_many_pairs_are_returned_for_each_reason(pets_and_films):
    documents, names = pets_and_films
    documents = [*documents, *([["card", "pet"], ["cards", "pet"], ["bus"], ["buses"]] * 2)]
    corpus = LabelCorpus.from_documents(documents)
    for most, counts in ((1, {"spelling": 1, "meaning": 1}), (9, {"spelling": 2, "meaning": 1})):
        suggestions = similar_labels(corpus.matrix, corpus.labels, most, names)
        reasons = [pair.reason for pair in suggestions]
        for reason, count in counts.items():
            assert reasons.count(reason) == count


def test_a_label_of_no_document_is_in_no_pair():
    matrix = sp.csr_matrix(np.array([[1, 0], [1, 0]], dtype=bool))
    assert similar_labels(matrix, ("card", "cards")) == []
    empty = sp.csr_matrix((0, 0), dtype=bool)
    assert similar_labels(empty, ()) == []


# ------------------------------------------------------------------ of a tagger


def test_a_tagger_takes_vectors_of_words_or_an_encoder(toy_tagger):
    vectors = {"phone": [1, 0.1, 0], "screen": [1, 0.11, 0], "sea": [0, 1, 0], "pie": [0, 0, 1]}

    def encode(texts):
        return [vectors.get(text, [0, 0, 0]) for text in texts]

    for names in (vectors, encode):
        suggestions = suggest_merges(toy_tagger, names)
        (pair,) = [pair for pair in suggestions if pair.reason == "meaning"]
        assert {pair.label, pair.into} == {"phone", "screen"}
    assert not [pair for pair in suggest_merges(toy_tagger) if pair.reason == "meaning"]
    sparse = suggest_merges(toy_tagger, lambda texts: sp.csr_matrix(np.array(encode(texts))))
    assert not [pair for pair in sparse if pair.meaning is not None]


def test_several_labels_are_merged_as_one_after_the_other(own_tagger, world, tmp_path):
    folder = tmp_path / "one"
    own_tagger.save(folder)
    pairs = [("sea", "sand"), ("phone", "screen"), ("sand", "sun"), ("sea", "sun")]
    together = load(folder).merge(pairs)
    one_by_one = load(folder).merge("sea", "sand").merge("phone", "screen").merge("sand", "sun")
    scores = together.predict_proba(world.X_test)
    np.testing.assert_allclose(scores, one_by_one.predict_proba(world.X_test), atol=1e-6)
    assert together.vocabulary_ == one_by_one.vocabulary_
    assert together.vocabulary_.resolve("sea") == "sun"


def test_labels_of_which_no_document_holds_one_are_merged_among_others(own_tagger):
    own_tagger.add_labels(["parasol", "ocean"], {"parasol": [1.0], "ocean": [1.0], "sea": [1.0]})
    own_tagger.merge([("ocean", "sea"), ("sand", "parasol"), ("sun", "sea")])
    assert {own_tagger.vocabulary_.resolve(name) for name in ("ocean", "sun")} == {"sea"}
    assert "parasol" in own_tagger.store_.labels
    assert own_tagger.named_ is None


def test_an_unknown_label_leaves_a_tagger_as_it_was(own_tagger):
    with pytest.raises(InputError, match="nowhere"):
        own_tagger.merge([("sea", "sand"), ("sun", "nowhere")])
    with pytest.raises(InputError, match="must be two texts"):
        own_tagger.merge([("sea", "sand"), "sun"])
    with pytest.raises(InputError, match="the one to merge it into"):
        own_tagger.merge("sea")
    assert not own_tagger.vocabulary_.aliases
    assert own_tagger.store_.counts[own_tagger.store_.labels.index("sea")] > 0
