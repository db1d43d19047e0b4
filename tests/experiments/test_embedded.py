"""The embedded emoji and clips: what they hold, and that damaged files are refused."""

from __future__ import annotations

import hashlib
import io
import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from polyseme._validation import InputError
from polyseme.corpus import LabelCorpus
from polyseme.io.folders import MARK
from polyseme_experiments.datasets import ClipCorpus, EmojiCorpus, clips, emoji
from polyseme_experiments.datasets.clips import RATE, SECONDS, load_clips
from polyseme_experiments.datasets.embedded import LICENCE_FILE, TAGS_FILE
from polyseme_experiments.datasets.emoji import load_emoji

FOLDER = Path(emoji.__file__).parent
SUMS = "checksums.json"
N = 1610
N_CLIPS = 640
BOTH = {
    "emoji_data": (emoji, load_emoji, "label_rules.json"),
    "clips_data": (clips, load_clips, "music.json"),
}
each_corpus = pytest.mark.parametrize("folder", BOTH)


@pytest.fixture(scope="module")
def drawn() -> EmojiCorpus:
    return load_emoji()


@pytest.fixture(scope="module")
def music() -> ClipCorpus:
    return load_clips()


def frequencies(documents: list[list[str]]) -> Counter[str]:
    return Counter(label for labels in documents for label in labels)


@each_corpus
def test_changed_and_missing_files_are_named(
    folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, load, by_hand = BOTH[folder]
    sums = json.loads((FOLDER / folder / SUMS).read_text("utf-8"))
    for name, digest in sums.items():
        content = (FOLDER / folder / name).read_bytes()
        assert hashlib.sha256(content).hexdigest() == digest, name
        (tmp_path / name).write_bytes(content)
    (tmp_path / SUMS).write_text(json.dumps(sums))
    monkeypatch.setattr(module, "_data_folder", lambda: tmp_path)
    assert load()
    for name in sorted(set(sums) - {by_hand}):
        content = (tmp_path / name).read_bytes()
        middle = len(content) // 2
        (tmp_path / name).write_bytes(
            content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]
        )
        with pytest.raises(InputError, match=f"'{name}' is damaged.*reinstall polyseme"):
            load()
        (tmp_path / name).unlink()
        with pytest.raises(InputError, match=f"'{name}' cannot be read; reinstall polyseme"):
            load()
        (tmp_path / name).write_bytes(content)
    for content in (b"{", b"[1]", b"{}", b"\xff"):
        (tmp_path / SUMS).write_bytes(content)
        with pytest.raises(InputError, match=r"is damaged.*reinstall polyseme"):
            load()


@each_corpus
def test_min_count_keeps_exactly_the_frequent_labels(folder: str) -> None:
    _, load, _ = BOTH[folder]
    everything = load(min_count=1).documents
    counts = frequencies(everything)
    kept = [[label for label in labels if counts[label] >= 60] for labels in everything]
    assert load(min_count=60).documents == kept
    with pytest.raises(InputError, match=r"`min_count` of `load_\w+` must be a whole number"):
        load(min_count=2.5)


@each_corpus
def test_every_licence_is_named_in_the_readme(folder: str) -> None:
    readme = (FOLDER / folder / "README.md").read_text("utf-8")
    licences = list((FOLDER / folder / "licences").iterdir())
    assert licences
    assert all(f"licences/{path.name}" in readme for path in licences)


def test_emoji_have_one_entry_each_and_two_drawings(drawn: EmojiCorpus) -> None:
    fields = ("ids", "characters", "names", "categories", "subcategories", "documents")
    assert {field: len(getattr(drawn, field)) for field in fields} == dict.fromkeys(fields, N)
    for code, character in zip(drawn.ids, drawn.characters, strict=True):
        assert "-".join(f"{ord(point):04X}" for point in character) == code
    assert drawn.features.shape == (2 * N, 1280)
    assert np.isfinite(drawn.features).all()
    assert drawn.drawing == ["noto"] * N + ["twemoji"] * N
    assert_array_equal(drawn.group, np.tile(np.arange(N), 2))
    assert len(frequencies(drawn.documents)) == 262
    known = {"fruit": "🍊", "music": "🎸", "letter": "📨🔠", "note": "🎶💶", "palm": "✋🌴"}
    for label, characters in known.items():
        for character in characters:
            assert label in drawn.documents[drawn.characters.index(character)]
    assert (drawn.cell(39), drawn.cell(40)) == ((2496, 0, 2560, 64), (0, 64, 64, 128))
    with pytest.raises(InputError, match="`emoji` of `cell` must be a whole number at least 0"):
        drawn.cell(N)


def test_clips_have_true_tags_and_decode_to_the_stated_length_rate_and_level(
    music: ClipCorpus,
) -> None:
    assert music.ids == [f"{number:04d}.ogg" for number in range(1, N_CLIPS + 1)]
    assert set(Counter(music.groups).values()) == {2}
    assert len(frequencies(music.documents)) == 53
    for labels, true in zip(music.documents, music.complete, strict=True):
        assert labels == sorted(set(labels))
        assert set(labels) <= set(true)
    soundfile: Any = pytest.importorskip("soundfile", reason="the extra `audio` is not installed")
    for clip in range(0, N_CLIPS, N_CLIPS // 20):
        samples, rate = soundfile.read(io.BytesIO(music.sounds[clip]))
        assert (rate, samples.shape) == (RATE, (round(RATE * SECONDS),))
        level = 10 * np.log10(np.mean(samples**2))
        assert level == pytest.approx(music.facts[clip]["level"], abs=0.2)


def test_media_are_written_beside_their_tags_and_overwrite_nothing(
    music: ClipCorpus, drawn: EmojiCorpus, tmp_path: Path
) -> None:
    names = music.ids[:8]
    paths = music.write(tmp_path / "new", names)
    assert [path.read_bytes() for path in paths] == music.sounds[:8]
    written_names = {path.name for path in (tmp_path / "new").iterdir()}
    assert written_names == {*names, TAGS_FILE, LICENCE_FILE, MARK}
    tags = LabelCorpus.read(tmp_path / "new" / TAGS_FILE)
    assert [sorted(tags.document(row)) for row in range(8)] == music.documents[:8]
    paths[5].unlink()
    assert music.write(tmp_path / "new", names) == paths
    assert paths[5].read_bytes() == music.sounds[5]
    paths[3].write_text("mine", "utf-8")
    with pytest.raises(InputError, match=r"0004\.ogg' exists and is not the file"):
        music.write(tmp_path / "new", names)
    with pytest.raises(InputError, match=r"is a file; name a folder to write to"):
        music.write(paths[3], names)
    pictures = drawn.picture_names()[N - 2 : N + 2]
    written = drawn.write(tmp_path / "drawn", pictures)
    assert [path.relative_to(tmp_path / "drawn").as_posix() for path in written] == pictures
    written[0].unlink()
    assert drawn.write(tmp_path / "drawn", pictures) == written
    assert written[0].exists()
    assert "CC-BY 4.0" in (tmp_path / "drawn" / LICENCE_FILE).read_text("utf-8")
