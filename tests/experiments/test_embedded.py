"""What holds for both embedded corpora: damaged files and meaningless parameters are refused."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pytest

from polyseme._validation import InputError
from polyseme_experiments.datasets import clips, emoji

SUMS = "checksums.json"


@dataclass(frozen=True)
class Embedded:
    """A corpus that comes with the package."""

    module: ModuleType
    load: Callable[..., object]
    folder: str
    files: tuple[str, ...]
    by_hand: str

    @property
    def path(self) -> Path:
        """The folder of its files."""
        return Path(self.module.__file__ or "").parent / self.folder


CLIPS = Embedded(
    clips, clips.load_clips, "clips_data", ("clips.zip", "documents.jsonl.gz"), "music.json"
)
EMOJI = Embedded(
    emoji,
    emoji.load_emoji,
    "emoji_data",
    ("documents.jsonl.gz", "noto.npy", "noto.webp", "twemoji.npy", "twemoji.webp"),
    "label_rules.json",
)
BOTH = (CLIPS, EMOJI)
each_corpus = pytest.mark.parametrize("corpus", BOTH, ids=lambda one: one.folder)
each_file = pytest.mark.parametrize(
    ("corpus", "name"),
    [pytest.param(one, name, id=f"{one.folder}-{name}") for one in BOTH for name in one.files],
)


@pytest.fixture
def copy(corpus: Embedded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stand a folder of links in for the data; a test may replace one file of it."""
    for name in (*corpus.files, SUMS):
        (tmp_path / name).symlink_to(corpus.path / name)
    monkeypatch.setattr(corpus.module, "_data_folder", lambda: tmp_path)
    return tmp_path


def replace(path: Path, content: bytes) -> None:
    """Put a file in the place of a link."""
    path.unlink()
    path.write_bytes(content)


@each_corpus
def test_links_in_place_of_the_files_are_read(corpus: Embedded, copy: Path) -> None:
    assert corpus.load()


@each_corpus
def test_checksums_are_those_of_all_data_files(corpus: Embedded) -> None:
    sums = json.loads((corpus.path / SUMS).read_text("utf-8"))
    assert sorted(sums) == sorted([*corpus.files, corpus.by_hand])
    for name, digest in sums.items():
        assert hashlib.sha256((corpus.path / name).read_bytes()).hexdigest() == digest, name


@each_file
def test_a_changed_byte_is_refused(corpus: Embedded, copy: Path, name: str) -> None:
    content = bytearray((corpus.path / name).read_bytes())
    content[len(content) // 2] ^= 1
    replace(copy / name, bytes(content))
    with pytest.raises(InputError, match=f"'{name}' is damaged.*reinstall polyseme"):
        corpus.load()


@each_file
def test_a_missing_file_is_named(corpus: Embedded, copy: Path, name: str) -> None:
    (copy / name).unlink()
    with pytest.raises(InputError, match=f"'{name}' cannot be read; reinstall polyseme"):
        corpus.load()


@each_corpus
def test_missing_checksums_are_named(corpus: Embedded, copy: Path) -> None:
    (copy / SUMS).unlink()
    with pytest.raises(InputError, match=f"'{SUMS}' cannot be read; reinstall polyseme"):
        corpus.load()


@each_corpus
@pytest.mark.parametrize("content", [b"{", b"[]", b"{}", b"\xff"])
def test_damaged_checksums_are_refused(corpus: Embedded, copy: Path, content: bytes) -> None:
    replace(copy / SUMS, content)
    with pytest.raises(InputError, match=r"is damaged.*reinstall polyseme"):
        corpus.load()


@each_corpus
@pytest.mark.parametrize("min_count", [0, -3, 2.5, "ten"])
def test_a_meaningless_min_count_is_refused(corpus: Embedded, min_count: object) -> None:
    owner = corpus.load.__name__
    with pytest.raises(InputError, match=f"`min_count` of `{owner}` must be a whole number"):
        corpus.load(min_count=min_count)
