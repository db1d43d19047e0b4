"""Word vectors: words of labels, every form of file, stand-ins, and the sentence for each refusal."""

from __future__ import annotations

import copy
import gzip
import zipfile

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.base import clone

from polyseme import WordVectors
from polyseme.base.validation import InputError
from polyseme.documents.word_vectors import words_of
from polyseme.io import unpacking
from polyseme_experiments.baselines import ConSE


@pytest.mark.parametrize(
    ("label", "words"),
    [
        ("close-up", ["close", "up"]),
        ("genre---deep_house", ["genre", "deep", "house"]),
        ("punk/new wave", ["punk", "new", "wave"]),
        ("rock'", ["rock"]),
        ("r&b", ["r&b"]),
        ("don't", ["don't"]),
        ("--", []),
        ("Straße", ["strasse"]),
    ],
)
def test_labels_fall_into_words(label, words):
    assert words_of(label) == words


def test_a_label_is_the_mean_of_its_known_words_at_length_one():
    words = {"deep": [3, 0, 0], "House": [0, 1, 0], "zero": [0, 0, 0], "shallow": [-3, 0, 0]}
    labels = ["deep house", "deep xyz", "deep-deep house", "xyz", "zero", "shallow deep"]
    vectors, has_vector = WordVectors(words).label_vectors(labels)
    assert has_vector.tolist() == [True] * 3 + [False] * 3
    sums = np.array([[3, 1, 0], [1, 0, 0], [6, 1, 0]])
    lengths = np.linalg.norm(sums, axis=1, keepdims=True)
    assert_allclose(vectors[has_vector], sums / lengths)
    assert not vectors[~has_vector].any()


def test_of_words_that_differ_in_case_the_folded_one_counts():
    mixed = WordVectors({"Turkey": [1, 0], "turkey": [0, 1], "Bath": [1, 1], "BATH": [5, 5]})
    assert mixed.words == ("turkey", "bath")
    assert mixed.vectors.tolist() == [[0, 1], [1, 1]]
    assert "Turkey" in mixed
    assert "goose" not in mixed
    assert len(mixed) == 2


def test_copies_of_word_vectors_are_the_object_itself():
    vectors = WordVectors({"a": [1, 2]}, source="here")
    assert copy.copy(vectors) is vectors
    assert copy.deepcopy(vectors) is vectors
    baseline = clone(ConSE(vectors=vectors))
    assert baseline.vectors is vectors
    assert repr(vectors) == "WordVectors(1 words of 2 numbers from here)"


def test_word_vectors_do_not_change():
    array = np.ones((1, 2), dtype=np.float32)
    vectors = WordVectors.from_arrays(["a"], array)
    array[0, 0] = 7
    assert vectors.vectors.tolist() == [[1, 1]]
    with pytest.raises(ValueError, match="read-only"):
        vectors.vectors[0, 0] = 5


def test_every_word_needs_a_vector():
    with pytest.raises(InputError, match="2 words but 3 vectors"):
        WordVectors.from_arrays(["a", "b"], np.ones((3, 2)))


@pytest.mark.parametrize(
    ("vectors", "message"),
    [
        ({}, "at least one word"),
        ({"a": [1, 2], "b": [1]}, "all of one size"),
        ({"a": [1, np.nan]}, "vector of 'a' in a mapping holds NaN"),
        ({"a": []}, "numbers in two dimensions"),
        ({3: [1.0]}, "non-empty strings; got 3"),
        ({"a": np.ones(5000)}, "at most 4096 numbers"),
        ({"a": [1e300]}, "vector of 'a' in a mapping holds NaN or infinity"),
    ],
)
@pytest.mark.filterwarnings("ignore:overflow:RuntimeWarning")
def test_bad_mappings_get_one_sentence(vectors, message):
    with pytest.raises(InputError, match=message):
        WordVectors(vectors)


# --------------------------------------------------------------------------- files


def test_an_npz_file_is_read(tmp_path):
    path = tmp_path / "words.npz"
    vectors = np.eye(2, dtype=np.float16)
    np.savez(path, words=np.array(["sky", "sea"]), vectors=vectors)
    loaded = WordVectors.read(path)
    assert loaded.words == ("sky", "sea")
    assert loaded.vectors.dtype == np.float32
    assert loaded.source == "words.npz"
    of_labels = WordVectors.read(path, labels=["Sea shore"])
    assert of_labels.words == ("sea",)


@pytest.mark.parametrize("ending", [".txt", ".txt.gz"])
@pytest.mark.parametrize("header", ["", "4 2\n"])
def test_a_text_file_is_read(tmp_path, ending, header):
    text = header + "sky 1 0\n. . 0.5 0.5\nsea -2e-1 3 \r\nSky 9 9\n"
    content = text.encode()
    if ending.endswith("gz"):
        content = gzip.compress(content)
    path = tmp_path / f"glove{ending}"
    path.write_bytes(content)
    loaded = WordVectors.read(path)
    assert loaded.words == ("sky", ". .", "sea")
    assert_allclose(loaded.vectors, [[1, 0], [0.5, 0.5], [-0.2, 3]])
    of_labels = WordVectors.read(path, labels=["sea-sky"], max_words=3)
    assert of_labels.words == ("sky", "sea")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "holds no word; give another file"),
        ("sky 1 2\nsea 1\n", "Line 2 of v.txt has 1 numbers but 2 are expected"),
        ("y" * 5000 + " 1 two\n", r"no number after 'y{249}…'; correct it"),
        ("y" * 5000 + " 1 nan\n", r"The vector of 'y{249}…' in v.txt holds NaN"),
        ("sky 1 two\n", "Line 1 of v.txt holds something that is no number after 'sky'"),
        ("sky 1 nan\n", "vector of 'sky' in v.txt holds NaN"),
        ("sky" + " 1" * 4097, "has 4097 numbers after the word; 1 to 4096"),
        ("a 1\nb 1\nc 1\n", "more than 2 words; pass `labels`"),
    ],
)
def test_bad_text_files_get_one_sentence(tmp_path, text, message):
    path = tmp_path / "v.txt"
    path.write_text(text)
    with pytest.raises(InputError, match=message):
        WordVectors.read(path, max_words=2)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.txt.gz", gzip.compress(b"sky 1 2\n" * 50, mtime=0)[:-12], "not a complete gzip file"),
        ("b.txt", b"sky \xff\xfe 1\n", "UTF-8"),
        ("c.npz", b"no archive", "not readable as a numpy file without pickled objects"),
        ("d.bin", b"PK", r"read from .npz, .txt and .txt.gz; got d.bin"),
        ("none.txt", None, r"not found at .*none.txt; check the path"),
    ],
)
def test_broken_files_get_one_sentence(tmp_path, name, content, message):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=message):
        WordVectors.read(tmp_path / name)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"words": np.array(["a"])}, "must hold `words` and `vectors`; got words"),
        ({"words": np.array([1]), "vectors": np.ones((1, 2))}, "must be a list of strings"),
        ({"words": np.array(["a", "b"]), "vectors": np.ones((1, 2))}, "2 words but 1 vectors"),
        ({"words": np.array(["a"]), "vectors": np.array([["x"]])}, "must be numbers in two"),
        ({"words": np.array(["a", "b", "c"]), "vectors": np.ones((3, 1))}, "more than 2 words"),
        ({"words": np.array(["a"], dtype=object), "vectors": np.ones((1, 1))}, "pickled objects"),
    ],
)
def test_bad_archives_get_one_sentence(tmp_path, arrays, message):
    path = tmp_path / "v.npz"
    np.savez(path, **arrays)
    with pytest.raises(InputError, match=message):
        WordVectors.read(path, max_words=2)


def test_an_archive_that_unpacks_to_too_much_is_refused_unread(tmp_path, monkeypatch):
    path = tmp_path / "v.npz"
    np.savez_compressed(path, words=np.array(["a"]), vectors=np.zeros((1, 4000)))
    monkeypatch.setattr(np, "load", None)
    with unpacking(1e-5), pytest.raises(InputError, match=r"unpacks to .* GB or more, and 1e-05"):
        WordVectors.read(path)


@pytest.fixture
def default_file(tmp_path):
    """Word vectors under the name that is looked for."""
    path = tmp_path / "glove100-label-words.npz"
    np.savez(path, words=np.array(["sky", "sea"]), vectors=np.eye(2))
    return path


def test_a_default_file_that_is_missing_gets_one_sentence(tmp_path, monkeypatch):
    monkeypatch.delenv("POLYSEME_DATA", raising=False)
    with pytest.raises(InputError, match="since POLYSEME_DATA is not set"):
        WordVectors.find()
    with pytest.raises(InputError, match="No word vectors at"):
        WordVectors.find(tmp_path)


def test_the_default_file_is_found_in_the_data_folder(default_file, monkeypatch):
    vectors = WordVectors.find(default_file.parent)
    assert vectors.words == ("sky", "sea")
    monkeypatch.setenv("POLYSEME_DATA", str(default_file.parent))
    of_labels = WordVectors.find(labels=["sea"])
    assert of_labels.words == ("sea",)


def test_baselines_use_the_default_file(default_file, monkeypatch):
    monkeypatch.setenv("POLYSEME_DATA", str(default_file.parent))
    baseline = ConSE(n_top=1, random_state=0)
    baseline.fit(np.eye(4), [("sky",), ("sea",)] * 2)
    assert baseline.label_vectors_.shape == (2, 2)


def test_the_real_vectors_know_the_labels_of_pictures(data):
    vectors = WordVectors.find(data)
    label_vectors, has_vector = vectors.label_vectors(["sky", "close-up", "sea", "f-16"])
    assert has_vector.tolist() == [True, True, True, False]
    sky, close_up, sea, _ = label_vectors
    assert sky @ sea > close_up @ sea


@pytest.mark.parametrize("wrong", ["words", "vectors"])
def test_what_is_no_array_in_an_archive_is_refused(tmp_path, wrong):
    arrays = {"words": np.array(["sea"]), "vectors": np.ones((1, 2))}
    path = tmp_path / "words.npz"
    with zipfile.ZipFile(path, "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w") as member:
                if name == wrong:
                    member.write(b"no array")
                else:
                    np.save(member, array)
    with pytest.raises(InputError, match=r"must be|must have|must hold"):
        WordVectors.read(path)
