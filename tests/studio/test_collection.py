"""Items that people review: encoded once, searched, shown, and nothing else is opened."""

from __future__ import annotations

import io
from concurrent.futures import ThreadPoolExecutor
from typing import ClassVar

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose
from PIL import Image

from media_files import DRAWING, make_odd_pictures, quadrants, svg_bomb
from polyseme import ZeroShotTagger
from polyseme.base.validation import InputError
from polyseme.io import Table
from polyseme.media import AudioFeatures, ImageFeatures, TextFeatures, base
from polyseme.media.audio import SUFFIXES
from polyseme.media.base import Extracted
from polyseme.media.pictures import read_thumbnail
from polyseme.studio import collection as module
from polyseme.studio.collection import Collection, UnknownItemError
from sound_files import tone, wav


@pytest.fixture
def features(world):
    return world.X_test.astype(np.float32)


@pytest.fixture
def names(world):
    return [f"{theme}/{row}.png" for row, theme in enumerate(world.themes_test)]


@pytest.fixture
def named(names, features):
    """The test items under names, with some tags."""
    tags = [("Sand", "unknown thing") if "beach" in name else () for name in names]
    return Collection(names, features, tags)


def collection_of(files, **options):
    """Return a collection of files without features."""
    return Collection([*files], np.zeros((len(files), 1)), None, files, **options)


def items_of(questions):
    return [question.item for question in questions]


def test_items_are_found_by_words_of_ids_and_tags(named, names):
    assert len(named) == 25
    assert named.ids[0] in named
    assert "x" not in named
    assert list(named) == named.find() == named.find("  ") == list(named.ids)
    assert named.find("BEACH") == [name for name in names if "beach" in name]
    at_beach = named.find("sand")
    assert named.find("sand 2.png") == [name for name in at_beach if "2.png" in name]
    assert named.find("sand forest") == []


def test_tags_and_reviewed_items_are_counted(named):
    assert named.tags_of("beach/2.png") == ("Sand", "unknown thing")
    assert named.tag_counts == {"Sand": 5, "unknown thing": 5}
    assert named.n_reviewed({"beach/2.png", "elsewhere"}) == 1


FORMS = {
    "array": lambda X: X,
    "sparse": sp.csr_matrix,
    "table": lambda X: Table(features=X, ids=["other"] * 25),
    "extracted": lambda X: Extracted("image", {}, ("other",) * 25, X),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_features_gives_rows_by_the_names_of_items(features, form):
    collection = Collection([f"item {row}" for row in range(25)], FORMS[form](features))
    row = collection.features_of("item 3")
    assert_allclose(row, features[3], rtol=1e-6)
    assert row.dtype == np.float32
    selection = collection.select(["item 4", "item 2"])
    assert list(selection.ids) == ["item 4", "item 2"]


@pytest.mark.parametrize("form", ["array", "sparse", "table"])
def test_selected_items_can_be_learned_from(own_tagger, features, form):
    ids = [f"item {row}" for row in range(25)]
    collection = Collection(ids, FORMS[form](features))
    selection = collection.select(["item 4", "item 2"])
    own_tagger.learn([("item 2", "sand", True)], selection)
    collection.items(own_tagger)
    selection = collection.select(["item 7"])
    own_tagger.learn([("item 7", "sand", True)], selection)
    standing = own_tagger.verdicts_.standing()
    assert items_of(standing) == ["item 2", "item 7"]


def test_questions_are_those_of_the_tagger(toy_tagger, named, names, features):
    expected = toy_tagger.ask(
        Table(features=features, ids=names),
        k=5,
        strategy="likeliest",
        tags=[("sand",) if "beach" in name else () for name in names],
    )
    assert named.ask(toy_tagger, None, 5, "likeliest") == expected


def test_no_question_is_about_a_tag_that_an_item_has(toy_tagger, named):
    questions = named.ask(toy_tagger, "sand", 30, "likeliest")
    assert len(questions) == 20
    assert not any("beach" in item for item in items_of(questions))
    assert named.ask(toy_tagger, "sand", 30, "errors") == []


def test_likely_errors_are_missing_and_doubtful_tags(toy_tagger, names, features):
    missing, doubtful = "beach/2.png", "forest/4.png"
    tags = {name: ("sand",) if "beach" in name else ("desk",) for name in names}
    tags |= {missing: ("desk",), doubtful: ("sand",)}
    collection = Collection(names, features, list(tags.values()))
    errors = collection.ask(toy_tagger, "sand", 30, "errors")
    reasons = {question.item: question.reason for question in errors}
    assert reasons == {missing: "missing", doubtful: "doubtful"}


def test_suggestions_are_those_of_the_tagger_without_the_item_s_own_tags(toy_tagger, named, world):
    suggestions = named.suggest(toy_tagger, "beach/2.png", 3)
    labels, scores, kinds = zip(*suggestions, strict=True)
    ranked_labels, ranked_scores = toy_tagger.rank(world.X_test[[2]], 4)
    is_new = ranked_labels != "sand"
    assert list(labels) == ranked_labels[is_new][:3].tolist()
    assert_allclose(scores, ranked_scores[is_new][:3], rtol=1e-6)
    kind_by_label = dict(zip(toy_tagger.classes_, toy_tagger.kinds_, strict=True))
    assert list(kinds) == [kind_by_label[label] for label in labels]


def test_tags_of_an_item_count_under_the_label_s_new_name(own_tagger, world):
    own_tagger.rename("sand", "shore").block(["sea"])
    collection = Collection(["a"], world.X_test[[2]], [["sand"]])
    labels = {label for label, _, _ in collection.suggest(own_tagger, "a", 100)}
    assert labels.isdisjoint({"shore", "sand", "sea"})
    assert collection.ask(own_tagger, "shore", 5, "likeliest") == []


def test_questions_do_not_warn_of_unknown_tags(toy_tagger, named, recwarn):
    named.ask(toy_tagger, "sea", 3, "active")
    named.ask(toy_tagger, None, 3, "errors")
    messages = [str(warning.message) for warning in recwarn]
    assert "not known" not in " ".join(messages)


def test_items_are_encoded_once_for_a_space(monkeypatch, own_tagger, named, world, tiny_space):
    encoding_spaces = []
    encode = ZeroShotTagger.encode

    def counting_encode(tagger, *arguments):
        encoding_spaces.append(tagger.space_.digest_)
        return encode(tagger, *arguments)

    monkeypatch.setattr(ZeroShotTagger, "encode", counting_encode)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: named.warm(own_tagger), range(8)))
    own_tagger.learn([("beach/2.png", "sea", True)], named.items(own_tagger))
    own_tagger.add_documents([["sea", "seal"]])
    named.ask(own_tagger, "seal", 3, "active")
    named.suggest(own_tagger, "beach/2.png", 3)
    assert encoding_spaces == [own_tagger.space_.digest_]
    refitted = ZeroShotTagger(tiny_space(n_steps=4), n_validations=0, random_state=1)
    refitted.fit(world.X, world.documents, world.label_sets, label_sets_only=True)
    named.ask(refitted, "sea", 3, "active")
    assert len(encoding_spaces) == 2
    assert encoding_spaces[1] == refitted.space_.digest_


@pytest.fixture
def small_and_large(names, features):
    """The same items in little and in much memory."""
    return Collection(names, features, most_bytes=0), Collection(names, features)


@pytest.mark.parametrize("strategy", ["likeliest", "active", "random"])
def test_little_memory_gives_the_same_questions(toy_tagger, small_and_large, strategy):
    small, large = small_and_large
    assert small.items(toy_tagger).codes is None
    assert large.items(toy_tagger).codes is not None
    questions = small.ask(toy_tagger, "pie", 9, strategy)
    assert questions == large.ask(toy_tagger, "pie", 9, strategy)


def test_little_memory_gives_the_same_suggestions(toy_tagger, small_and_large, names):
    small, large = (
        [label for label, _, _ in collection.suggest(toy_tagger, names[0], 5)]
        for collection in small_and_large
    )
    assert small == large


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((["a", "a"], np.zeros((2, 1))), "Items are named twice: a; give each an id"),
        ((["a"], np.zeros((2, 1))), "There are 1 items and 2 rows of features"),
        ((["a"], np.zeros((1, 1)), []), "There are 1 items and 0 tag sets"),
    ],
    ids=["names", "features", "tags"],
)
def test_names_features_and_tags_must_fit_together(arguments, message):
    with pytest.raises(InputError, match=message):
        Collection(*arguments)


@pytest.mark.parametrize("method", ["features_of", "tags_of", "has_media", "file_of"])
def test_an_unknown_item_is_refused(named, method):
    with pytest.raises(UnknownItemError, match=r"no item '\.\./secret'"):
        getattr(named, method)("../secret")


# ---------------------------------------------------------------------- pictures and sounds


def picture(collection, name, size):
    content, content_type = collection.preview(name, size)
    assert content_type == "image/jpeg"
    file = io.BytesIO(content)
    return Image.open(file)


@pytest.fixture
def pictures(tmp_path):
    """A collection of a wide picture, a drawing, and an item without a file."""
    Image.fromarray(quadrants(400, 200)).save(tmp_path / "wide.png")
    (tmp_path / "drawing.svg").write_text(DRAWING)
    files = {name: tmp_path / name for name in ("wide.png", "drawing.svg")}
    return Collection([*files, "bare"], np.zeros((3, 1)), None, files)


@pytest.mark.parametrize(
    ("name", "largest_side", "size"),
    [
        ("wide.png", 100, (100, 50)),
        ("wide.png", 1024, (400, 200)),
        ("wide.png", 10**9, (400, 200)),
        ("drawing.svg", 64, (64, 64)),
    ],
)
def test_a_picture_is_no_larger_than_requested_and_keeps_its_proportions(
    pictures, name, largest_side, size
):
    assert picture(pictures, name, largest_side).size == size


def test_a_small_picture_has_the_colours_of_the_large_one(pictures):
    small = picture(pictures, "wide.png", 100)
    red, green, _ = small.getpixel((9, 9))
    assert red > 180
    assert green < 80
    red, green, blue = small.getpixel((90, 40))
    assert min(red, green) > 180
    assert blue < 80


def test_an_item_without_a_file_has_no_picture(pictures):
    assert pictures.media == "image"
    assert not pictures.has_media("bare")
    with pytest.raises(InputError, match="'bare' has no file to show"):
        pictures.preview("bare", 100)


def test_every_picture_that_can_be_read_has_a_thumbnail(tmp_path):
    kinds = make_odd_pictures(tmp_path)
    readable = [name for name, kind in kinds.items() if kind == "good"]
    assert len(readable) > 20
    for name in readable:
        thumbnail = Image.open(io.BytesIO(read_thumbnail(tmp_path / name, size=20)))
        assert thumbnail.format == "JPEG"
        assert 1 <= max(thumbnail.size) <= 20


@pytest.mark.parametrize("name", ["cut.png", "bomb.svg", "folder.png", "missing.png"])
def test_a_picture_that_cannot_be_read_is_refused_with_a_sentence(tmp_path, name):
    (tmp_path / "cut.png").write_bytes(b"\x89PNG\r\n\x1a\n cut")
    (tmp_path / "bomb.svg").write_text(svg_bomb())
    (tmp_path / "folder.png").mkdir()
    collection = collection_of({name: tmp_path / name})
    with pytest.raises(InputError, match=f"The file of '{name}' .*[a-z)]\\.$"):
        collection.preview(name, 100)


def test_thumbnails_are_cached_up_to_a_size_and_computed_again_when_files_change(
    tmp_path, monkeypatch
):
    computed_sizes = []

    def small_picture(file, size):
        computed_sizes.append(size)
        return b"1234"

    monkeypatch.setattr(ImageFeatures, "preview", small_picture)
    file = tmp_path / "a.png"
    Image.fromarray(quadrants()).save(file)
    collection = collection_of({"a": file}, cache_bytes=11)
    for size in (16, 32, 16, 64, 16, 32):
        collection.preview("a", size)
    # Two fit; the third replaces the one that was not requested for the longest time.
    assert computed_sizes == [16, 32, 64, 32]
    Image.fromarray(quadrants(60, 60)).save(file)
    collection.preview("a", 32)
    assert computed_sizes[4:] == [32]
    assert collection._previews.n_bytes <= 11


def test_a_picture_larger_than_the_cache_is_returned_and_not_cached():
    cache = module._Cache(3)
    assert cache.get("a", lambda: b"1234") == b"1234"
    assert cache.n_bytes == 0
    assert cache.get("a", lambda: b"12") == b"12"
    assert cache.n_bytes == 2
    assert cache.get("a", lambda: b"x") == b"12"


def test_a_sound_is_sent_unchanged_with_the_type_of_its_suffix(tmp_path, monkeypatch):
    content_by_name = {
        "a.wav": wav(tone()),
        "b.mp3": b"anything",
        "c.h5": b"numbers",
        "d.png": b"picture",
    }
    for name, content in content_by_name.items():
        (tmp_path / name).write_bytes(content)
    collection = collection_of({name: tmp_path / name for name in content_by_name})
    assert collection.media == "audio"
    assert collection.preview("a.wav", 10) == (content_by_name["a.wav"], "audio/wav")
    assert collection.preview("b.mp3", 10) == (b"anything", "audio/mpeg")
    assert not collection.has_media("c.h5")
    assert not collection.has_media("d.png")
    monkeypatch.setattr(base, "MOST_PREVIEW_BYTES", 4)
    with pytest.raises(InputError, match="has more than 0 MiB"):
        collection.preview("a.wav", 20)


def test_every_suffix_of_sounds_has_a_type():
    assert set(AudioFeatures.preview_types) == SUFFIXES


def test_a_kind_of_media_of_another_package_is_shown_by_its_own_preview(tmp_path, monkeypatch):
    class LetterFeatures(AudioFeatures):
        kind = "letter"
        preview_types: ClassVar = {".txt": "text/plain"}

    classes = {"image": ImageFeatures, "letter": LetterFeatures}
    monkeypatch.setattr(module, "extractor_classes", lambda: classes)
    monkeypatch.setattr(module, "extractor_class", classes.get)
    letter = tmp_path / "letter.txt"
    letter.write_text("Dear reader")
    collection = collection_of({"letter.txt": letter})
    assert collection.media == "letter"
    assert collection.preview("letter.txt", 10) == (b"Dear reader", "text/plain")


@pytest.mark.parametrize("name", ["a.png", "a.mp3", "a.txt"])
def test_no_preview_of_any_kind_is_larger_than_allowed(tmp_path, monkeypatch, name):
    for kind in (ImageFeatures, AudioFeatures, TextFeatures):
        monkeypatch.setattr(kind, "preview", lambda file, side: b"x" * 8)
    (tmp_path / name).write_bytes(b"anything")
    collection = collection_of({name: tmp_path / name})
    assert collection.preview(name, 10)[0] == b"x" * 8
    monkeypatch.setattr(module, "MOST_PREVIEW_BYTES", 4)
    with pytest.raises(InputError, match=f"The file of '{name}' has a preview of more than 0 MiB"):
        collection.preview(name, 10)


def test_a_large_preview_is_not_cached(tmp_path, monkeypatch):
    (tmp_path / "a.mp3").write_bytes(b"anything")
    collection = collection_of({"a.mp3": tmp_path / "a.mp3"})
    monkeypatch.setattr(module, "_CACHED_BYTES", 4)
    assert collection.preview("a.mp3", 10)[0] == b"anything"
    assert collection._previews.n_bytes == 0


def test_a_text_is_shown_from_its_beginning_as_much_as_fits(tmp_path):
    note = "---\ntitle: Walks\ntags: [sea]\n---\nBy the *sea*.\n\n<b>Bold</b>\n" + "word " * 9000
    (tmp_path / "note.md").write_text(note, "utf-8")
    collection = collection_of({"note.md": tmp_path / "note.md"})
    assert collection.media == "text"
    lengths = []
    for size in (256, 1024, 2048):
        content, media_type = collection.preview("note.md", size)
        text = content.decode()
        assert media_type == "text/plain"
        assert text.startswith("Walks\n\nBy the *sea*.\n\n<b>Bold</b>\nword word")
        assert text.endswith("word …")
        lengths.append(len(text))
    assert lengths[0] < 1500 < 15_000 < lengths[1] <= lengths[2] < 21_000
