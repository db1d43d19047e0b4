"""The embedded emoji and clips: what they hold, and that damaged files are refused."""

from __future__ import annotations

import hashlib
import io
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from polyseme.base.validation import InputError
from polyseme.documents.corpus import LabelCorpus
from polyseme.storage.atomic_files import MARK_FILE
from polyseme_experiments.datasets import ClipCorpus, EmojiCorpus
from polyseme_experiments.datasets import clips as clips_module
from polyseme_experiments.datasets import emoji as emoji_module
from polyseme_experiments.datasets.clips import RATE, SECONDS, load_clips
from polyseme_experiments.datasets.embedded import LICENCE_FILE, TAGS_FILE
from polyseme_experiments.datasets.emoji import load_emoji

FOLDER = Path(emoji_module.__file__).parent
SUMS = "checksums.json"
N = 1610
N_CLIPS = 640
BOTH = {
    "emoji_data": (emoji_module, load_emoji, "label_rules.json"),
    "clips_data": (clips_module, load_clips, "music.json"),
}
# A copy of a corpus's files, its loader, and the names of files that must not change.
Copied = tuple[Path, Callable[..., Any], list[str]]
each_corpus = pytest.mark.parametrize("folder", BOTH)


@pytest.fixture(scope="module")
def emoji() -> EmojiCorpus:
    return load_emoji()


@pytest.fixture(scope="module")
def music() -> ClipCorpus:
    return load_clips()


def frequencies(documents: list[list[str]]) -> Counter[str]:
    return Counter(label for labels in documents for label in labels)


@pytest.fixture
def copied(folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Copied:
    """Return a copy of a corpus's files, its loader, and the names that may not change."""
    module, load, by_hand = BOTH[folder]
    checksums = json.loads((FOLDER / folder / SUMS).read_text("utf-8"))
    for name, checksum in checksums.items():
        content = (FOLDER / folder / name).read_bytes()
        assert hashlib.sha256(content).hexdigest() == checksum, name
        (tmp_path / name).write_bytes(content)
    (tmp_path / SUMS).write_text(json.dumps(checksums))
    monkeypatch.setattr(module, "_data_folder", lambda: tmp_path)
    names = sorted(set(checksums) - {by_hand})
    return tmp_path, load, names


@each_corpus
def test_changed_files_are_named(copied: Copied) -> None:
    root, load, names = copied
    assert load()
    for name in names:
        path = root / name
        content = path.read_bytes()
        changed = bytearray(content)
        changed[len(content) // 2] ^= 1
        path.write_bytes(changed)
        with pytest.raises(InputError, match=f"'{name}' is damaged.*reinstall polyseme"):
            load()
        path.write_bytes(content)


@each_corpus
def test_missing_files_are_named(copied: Copied) -> None:
    root, load, names = copied
    for name in names:
        path = root / name
        content = path.read_bytes()
        path.unlink()
        with pytest.raises(InputError, match=f"'{name}' cannot be read; reinstall polyseme"):
            load()
        path.write_bytes(content)


@each_corpus
@pytest.mark.parametrize("content", [b"{", b"[1]", b"{}", b"\xff"])
def test_damaged_checksums_are_refused(content: bytes, copied: Copied) -> None:
    root, load, _ = copied
    (root / SUMS).write_bytes(content)
    with pytest.raises(InputError, match=r"is damaged.*reinstall polyseme"):
        load()


@each_corpus
def test_min_count_keeps_exactly_the_frequent_labels(folder: str) -> None:
    _, load, _ = BOTH[folder]
    documents = load(min_count=1).documents
    counts = frequencies(documents)
    expected = []
    for labels in documents:
        expected.append([label for label in labels if counts[label] >= 60])
    assert load(min_count=60).documents == expected
    with pytest.raises(InputError, match=r"`min_count` of `load_\w+` must be a whole number"):
        load(min_count=2.5)


@each_corpus
def test_every_licence_is_named_in_the_readme(folder: str) -> None:
    root = FOLDER / folder
    readme = (root / "README.md").read_text("utf-8")
    licences = list((root / "licences").iterdir())
    assert licences
    for path in licences:
        assert f"licences/{path.name}" in readme


def test_emoji_have_one_entry_each(emoji: EmojiCorpus) -> None:
    for field in ("ids", "characters", "names", "categories", "subcategories", "documents"):
        assert len(getattr(emoji, field)) == N
    for code, character in zip(emoji.ids, emoji.characters, strict=True):
        points = [f"{ord(point):04X}" for point in character]
        assert "-".join(points) == code


def test_emoji_have_two_drawings_each(emoji: EmojiCorpus) -> None:
    assert emoji.features.shape == (2 * N, 1280)
    assert np.isfinite(emoji.features).all()
    expected = ["noto"] * N + ["twemoji"] * N
    assert emoji.drawing == expected
    expected_groups = np.tile(np.arange(N), 2)
    assert_array_equal(emoji.group, expected_groups)


def test_emoji_carry_the_labels_of_their_names(emoji: EmojiCorpus) -> None:
    assert len(frequencies(emoji.documents)) == 262
    characters_by_label = {
        "fruit": "🍊",
        "music": "🎸",
        "letter": "📨🔠",
        "note": "🎶💶",
        "palm": "✋🌴",
    }
    for label, characters in characters_by_label.items():
        for character in characters:
            number = emoji.characters.index(character)
            assert label in emoji.documents[number]


def test_emoji_have_a_cell_in_the_picture_of_all(emoji: EmojiCorpus) -> None:
    assert emoji.cell(39) == (2496, 0, 2560, 64)
    assert emoji.cell(40) == (0, 64, 64, 128)
    with pytest.raises(InputError, match="`emoji` of `cell` must be a whole number at least 0"):
        emoji.cell(N)


def test_clips_have_true_tags(music: ClipCorpus) -> None:
    expected = [f"{number:04d}.ogg" for number in range(1, N_CLIPS + 1)]
    assert music.ids == expected
    group_sizes = Counter(music.groups).values()
    assert set(group_sizes) == {2}
    assert len(frequencies(music.documents)) == 53
    for labels, complete in zip(music.documents, music.complete, strict=True):
        assert labels == sorted(set(labels))
        assert set(labels) <= set(complete)


@pytest.mark.parametrize("clip", range(0, N_CLIPS, N_CLIPS // 20))
def test_clips_decode_to_the_stated_length_rate_and_level(clip: int, music: ClipCorpus) -> None:
    soundfile: Any = pytest.importorskip("soundfile", reason="the extra `audio` is not installed")
    sound = io.BytesIO(music.sounds[clip])
    samples, rate = soundfile.read(sound)
    assert rate == RATE
    assert samples.shape == (round(RATE * SECONDS),)
    power = np.mean(samples**2)
    level = 10 * np.log10(power)
    expected = music.facts[clip]["level"]
    assert level == pytest.approx(expected, abs=0.2)


def test_clips_are_written_beside_their_tags(music: ClipCorpus, tmp_path: Path) -> None:
    folder = tmp_path / "new"
    names = music.ids[:8]
    paths = music.write(folder, names)
    contents = [path.read_bytes() for path in paths]
    assert contents == music.sounds[:8]
    written_names = {path.name for path in folder.iterdir()}
    assert written_names == {*names, TAGS_FILE, LICENCE_FILE, MARK_FILE}
    tags = LabelCorpus.read(folder / TAGS_FILE)
    documents = [sorted(tags.document(row)) for row in range(8)]
    assert documents == music.documents[:8]


def test_missing_clips_are_written_again_and_nothing_is_overwritten(
    music: ClipCorpus, tmp_path: Path
) -> None:
    folder = tmp_path / "new"
    names = music.ids[:8]
    paths = music.write(folder, names)
    paths[5].unlink()
    assert music.write(folder, names) == paths
    content = paths[5].read_bytes()
    assert content == music.sounds[5]
    paths[3].write_text("mine", "utf-8")
    with pytest.raises(InputError, match=r"0004\.ogg' exists and is not the file"):
        music.write(folder, names)
    with pytest.raises(InputError, match=r"is a file; name a folder to write to"):
        music.write(paths[3], names)


def test_pictures_are_written_with_their_licence(emoji: EmojiCorpus, tmp_path: Path) -> None:
    folder = tmp_path / "emoji"
    names = emoji.picture_names()[N - 2 : N + 2]
    paths = emoji.write(folder, names)
    written_names = [path.relative_to(folder).as_posix() for path in paths]
    assert written_names == names
    paths[0].unlink()
    assert emoji.write(folder, names) == paths
    assert paths[0].exists()
    licence = (folder / LICENCE_FILE).read_text("utf-8")
    assert "CC-BY 4.0" in licence
