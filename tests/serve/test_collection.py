"""Items that people review: coded once, found, shown, and nothing else is opened."""

from __future__ import annotations

import io
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import scipy.sparse as sp
from PIL import Image

from media_files import DRAWING, make_odd_pictures, quadrants, svg_bomb
from polyseme import ZeroShotTagger
from polyseme._validation import InputError
from polyseme.features.base import Extracted
from polyseme.features.pictures import read_thumbnail
from polyseme.io import Table
from polyseme.serve import collection as module
from polyseme.serve.collection import Collection, UnknownItemError
from sound_files import tone, wav


@pytest.fixture
def named(world):
    """The test items under names, with some tags."""
    ids = [f"{theme}/{row}.png" for row, theme in enumerate(world.themes_test)]
    tags = [("Sand", "unknown thing") if "beach" in name else () for name in ids]
    return Collection(ids, world.X_test.astype(np.float32), tags)


def test_items_are_found_by_words_of_ids_and_tags(named):
    assert len(named) == 25 and named.ids[0] in named and "x" not in named
    assert list(named) == named.find() == named.find("  ") == list(named.ids)
    assert named.find("BEACH") == [name for name in named.ids if "beach" in name]
    assert named.find("sand 2.png") == [name for name in named.find("sand") if "2.png" in name]
    assert named.find("sand forest") == []
    assert named.tags_of("beach/2.png") == ("Sand", "unknown thing")
    assert named.tag_counts == {"Sand": 5, "unknown thing": 5}
    assert named.n_reviewed({"beach/2.png", "elsewhere"}) == 1


@pytest.mark.parametrize("form", ["array", "sparse", "table", "extracted"])
def test_every_form_gives_rows_and_items_with_their_names(own_tagger, world, form):
    X, ids = world.X_test.astype(np.float32), [f"item {row}" for row in range(25)]
    given = {
        "array": X,
        "sparse": sp.csr_matrix(X),
        "table": Table(features=X, ids=["other"] * 25),
        "extracted": Extracted("image", {}, ("other",) * 25, X),
    }[form]
    collection = Collection(ids, given)
    np.testing.assert_allclose(collection.row("item 3"), X[3], rtol=1e-6)
    assert collection.row("item 3").dtype == np.float32
    some = collection.select(["item 4", "item 2"])
    assert list(some.ids) == ["item 4", "item 2"]
    if form != "extracted":
        own_tagger.learn([("item 2", "sand", True)], some)
        collection.items(own_tagger)
        own_tagger.learn([("item 7", "sand", True)], collection.select(["item 7"]))
        assert [one.item for one in own_tagger.verdicts_.standing()] == ["item 2", "item 7"]


def test_what_is_asked_and_suggested_is_what_the_tagger_says(toy_tagger, named, world):
    assert named.ask(toy_tagger, None, 5, "likeliest") == toy_tagger.ask(
        Table(features=world.X_test.astype(np.float32), ids=list(named.ids)),
        k=5,
        strategy="likeliest",
        tags=[("sand",) if "beach" in name else () for name in named.ids],
    )
    asked = named.ask(toy_tagger, "sand", 30, "likeliest")
    assert len(asked) == 20 and not any("beach" in one.item for one in asked)
    assert named.ask(toy_tagger, "sand", 30, "errors") == []
    missing, doubtful = "beach/2.png", "forest/4.png"
    tags = [("sand",) if "beach" in name or name == doubtful else ("desk",) for name in named]
    tags[named.ids.index(missing)] = ("desk",)
    mistaken = Collection(named.ids, world.X_test.astype(np.float32), tags)
    errors = mistaken.ask(toy_tagger, "sand", 30, "errors")
    assert {one.item: one.reason for one in errors} == {missing: "missing", doubtful: "doubtful"}
    found = named.suggest(toy_tagger, "beach/2.png", 3)
    labels, scores = toy_tagger.rank(world.X_test[[2]], 4)
    kept = [place for place, label in enumerate(labels[0]) if label != "sand"][:3]
    assert [one for one, _, _ in found] == labels[0][kept].tolist()
    np.testing.assert_allclose([score for _, score, _ in found], scores[0][kept], rtol=1e-6)
    kinds = dict(zip(toy_tagger.classes_, toy_tagger.kinds_, strict=True))
    assert [kind for _, _, kind in found] == [kinds[one] for one, _, _ in found]


def test_own_tags_count_under_other_names(own_tagger, world):
    own_tagger.rename("sand", "shore").block(["sea"])
    collection = Collection(["a"], world.X_test[[2]], [["sand"]])
    assert {"shore", "sand", "sea"}.isdisjoint(
        label for label, _, _ in collection.suggest(own_tagger, "a", 100)
    )
    assert collection.ask(own_tagger, "shore", 5, "likeliest") == []


def test_tags_that_are_not_known_are_no_warning_for_every_question(toy_tagger, named, recwarn):
    named.ask(toy_tagger, "sea", 3, "active")
    named.ask(toy_tagger, None, 3, "errors")
    assert not [one for one in recwarn if "not known" in str(one.message)]


def test_items_are_coded_once_for_a_space(monkeypatch, own_tagger, named, world, tiny_space):
    encoded = []
    encode = ZeroShotTagger.encode

    def counting(self, *given):
        encoded.append(self.space_.digest_)
        return encode(self, *given)

    monkeypatch.setattr(ZeroShotTagger, "encode", counting)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: named.warm(own_tagger), range(8)))
    own_tagger.learn([("beach/2.png", "sea", True)], named.items(own_tagger))
    own_tagger.add_documents([["sea", "seal"]])
    named.ask(own_tagger, "seal", 3, "active")
    named.suggest(own_tagger, "beach/2.png", 3)
    assert len(encoded) == 1
    other = ZeroShotTagger(tiny_space(n_steps=4), n_validations=0, random_state=1)
    other.fit(world.X, world.documents, world.label_sets, label_sets_only=True)
    named.ask(other, "sea", 3, "active")
    assert encoded == [own_tagger.space_.digest_, other.space_.digest_]


def test_little_memory_gives_the_same_answers(toy_tagger, named, world):
    small = Collection(named.ids, world.X_test.astype(np.float32), most_bytes=0)
    large = Collection(named.ids, world.X_test.astype(np.float32))
    assert small.items(toy_tagger).codes is None and large.items(toy_tagger).codes is not None
    for strategy in ("likeliest", "active", "random"):
        assert small.ask(toy_tagger, "pie", 9, strategy) == large.ask(
            toy_tagger, "pie", 9, strategy
        )
    few, all_kept = (one.suggest(toy_tagger, one.ids[0], 5) for one in (small, large))
    assert [label for label, _, _ in few] == [label for label, _, _ in all_kept]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ((["a", "a"], np.zeros((2, 1))), "Items are named twice: a; give each an id"),
        ((["a"], np.zeros((2, 1))), "There are 1 items and 2 rows of features"),
        ((["a"], np.zeros((1, 1)), []), "There are 1 items and 0 tag sets"),
    ],
)
def test_what_does_not_fit_together_is_refused(given, message):
    with pytest.raises(InputError, match=message):
        Collection(*given)


@pytest.mark.parametrize("method", ["row", "tags_of", "has_media", "file_of"])
def test_no_other_item_is_known(named, method):
    with pytest.raises(UnknownItemError, match=r"no item '\.\./secret'"):
        getattr(named, method)("../secret")


# ---------------------------------------------------------------------- pictures and sounds


def shown(collection, name, size):
    content, kind = collection.picture(name, size)
    assert kind == "image/jpeg"
    return Image.open(io.BytesIO(content))


def test_pictures_are_shown_no_larger_than_asked_in_their_proportions(tmp_path):
    Image.fromarray(quadrants(400, 200)).save(tmp_path / "wide.png")
    (tmp_path / "drawing.svg").write_text(DRAWING)
    files = {name: tmp_path / name for name in ("wide.png", "drawing.svg")}
    collection = Collection([*files, "bare"], np.zeros((3, 1)), None, files)
    assert collection.media == "image" and not collection.has_media("bare")
    assert shown(collection, "wide.png", 100).size == (100, 50)
    assert shown(collection, "wide.png", 1024).size == (400, 200)
    assert shown(collection, "wide.png", 10**9).size == (400, 200)
    assert shown(collection, "drawing.svg", 64).size == (64, 64)
    red, *_, yellow = (shown(collection, "wide.png", 100).getpixel(at) for at in [(9, 9), (90, 40)])
    assert red[0] > 180 and red[1] < 80 and yellow[2] < 80 and min(yellow[:2]) > 180
    with pytest.raises(InputError, match="'bare' has no picture or sound"):
        collection.picture("bare", 100)


def test_every_picture_that_can_be_read_can_be_shown(tmp_path):
    for name, reason in make_odd_pictures(tmp_path).items():
        if not reason:
            small = Image.open(io.BytesIO(read_thumbnail(tmp_path / name, size=20)))
            assert small.format == "JPEG" and 1 <= max(small.size) <= 20


def test_what_cannot_be_read_is_a_sentence(tmp_path):
    (tmp_path / "cut.png").write_bytes(b"\x89PNG\r\n\x1a\n cut")
    (tmp_path / "bomb.svg").write_text(svg_bomb())
    (tmp_path / "folder.png").mkdir()
    names = ["cut.png", "bomb.svg", "folder.png", "missing.png"]
    files = {name: tmp_path / name for name in names}
    collection = Collection(names, np.zeros((4, 1)), None, files)
    for name in names:
        with pytest.raises(InputError, match=f"The file of '{name}' .*[a-z)]\\.$"):
            collection.picture(name, 100)


def test_small_pictures_are_kept_up_to_a_size_and_made_anew_when_files_change(
    tmp_path, monkeypatch
):
    made = []
    monkeypatch.setattr(module, "_small_picture", lambda file, side: made.append(side) or b"1234")
    file = tmp_path / "a.png"
    Image.fromarray(quadrants()).save(file)
    collection = Collection(["a"], np.zeros((1, 1)), None, {"a": file}, cache_bytes=11)
    for size in (16, 32, 16, 64, 16, 32):
        collection.picture("a", size)
    # Two fit; of three the one that was not asked for the longest time goes.
    assert made == [16, 32, 64, 32]
    Image.fromarray(quadrants(60, 60)).save(file)
    collection.picture("a", 32)
    assert made[4:] == [32]
    assert collection._pictures.n_bytes <= 11


def test_a_picture_larger_than_the_cache_is_shown_and_not_kept():
    cache = module._Cache(3)
    assert cache.get("a", lambda: b"1234") == b"1234" and cache.n_bytes == 0
    assert cache.get("a", lambda: b"12") == b"12" and cache.n_bytes == 2
    assert cache.get("a", lambda: b"x") == b"12"


def test_sounds_are_given_as_they_are_by_the_type_of_their_name(tmp_path, monkeypatch):
    (tmp_path / "a.wav").write_bytes(wav(tone()))
    (tmp_path / "b.mp3").write_bytes(b"anything")
    (tmp_path / "c.h5").write_bytes(b"numbers")
    (tmp_path / "d.png").write_bytes(b"picture")
    files = {name: tmp_path / name for name in ("a.wav", "b.mp3", "c.h5", "d.png")}
    collection = Collection([*files], np.zeros((4, 1)), None, files)
    assert collection.media == "audio"
    assert collection.picture("a.wav", 10) == ((tmp_path / "a.wav").read_bytes(), "audio/wav")
    assert collection.picture("b.mp3", 10) == (b"anything", "audio/mpeg")
    assert not collection.has_media("c.h5") and not collection.has_media("d.png")
    monkeypatch.setattr(module, "_SOUND_BYTES", 4)
    with pytest.raises(InputError, match="has more than 0 MiB"):
        collection.picture("b.mp3", 10)


def test_a_type_is_known_for_every_sound_that_is_read():
    from polyseme.features.audio import SUFFIXES

    assert set(module.SOUNDS) == SUFFIXES
