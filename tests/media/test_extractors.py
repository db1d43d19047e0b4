"""Another package adds a kind of media by one file and one line of its entry points."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PLUGIN = '''
from __future__ import annotations

from typing import ClassVar

import numpy as np

from polyseme.media.base import MediaError, MediaFeatures


class LetterFeatures(MediaFeatures):
    """How often each letter stands in a text file."""

    kind: ClassVar[str] = "letter"
    noun: ClassVar[str] = "letter"
    suffixes: ClassVar[frozenset[str]] = frozenset({".txt"})

    def __init__(self, device: str = "cpu", n_jobs: int | None = None):
        self.device = device
        self.n_jobs = n_jobs

    def preprocessing(self):
        return {"version": 1}

    def extract_batch(self, items):
        return [self._counts(path.read_text()) for path in items]

    def _counts(self, text):
        counts = [text.count(letter) for letter in "abcdefghijklmnopqrstuvwxyz"]
        if not any(counts):
            return MediaError("has no letters")
        return np.array(counts, dtype=np.float32)
'''
WORDS = {"sea": "wave salt shell", "wood": "tree moss leaf", "town": "road brick lamp"}


@pytest.fixture
def environment(tmp_path, monkeypatch):
    """Install a package with an extractor of texts, for other processes."""
    site = tmp_path / "site"
    metadata = site / "letters-1.0.dist-info"
    metadata.mkdir(parents=True)
    (site / "letters.py").write_text(PLUGIN)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: letters\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(
        "[polyseme.extractors]\nletter = letters:LetterFeatures\n"
    )
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(site), os.environ.get("PYTHONPATH", "")]))
    return site


def polyseme(*arguments: object) -> subprocess.CompletedProcess[str]:
    """Run a command."""
    command = [sys.executable, "-m", "polyseme", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True)


def texts(folder: Path) -> Path:
    """Write a folder of texts about three subjects."""
    folder.mkdir()
    for subject, words in WORDS.items():
        for number in range(20):
            (folder / f"{subject}{number:02d}.txt").write_text(
                f"{words} {words[number % 9] * number}"
            )
    (folder / "digits.txt").write_text("12")
    return folder


def test_a_kind_of_media_of_another_package_is_extracted_fitted_saved_and_tagged(
    environment, tmp_path
):
    folder = texts(tmp_path / "texts")
    done = polyseme("extract", "letter", folder, "--out", tmp_path / "numbers")
    assert done.returncode == 0, done.stderr
    assert "skipped digits.txt: has no letters" in done.stderr
    assert "60 of 61 letter files extracted" in done.stderr

    rows = [f"{path.name},{path.stem[:-2]}\n" for path in sorted(folder.glob("*[0-9].txt"))]
    tags = tmp_path / "tags.csv"
    tags.write_text("id,tags\n" + "".join(rows))
    model = tmp_path / "model"
    options = ("--features", tmp_path / "numbers", "--documents", tags, "--validations", 0)
    done = polyseme("fit", model, *options)
    assert done.returncode == 0, done.stderr

    done = polyseme("tag", model, folder / "wood03.txt", "--top", 1, "--form", "csv")
    assert done.returncode == 0, done.stderr
    assert "wood" in done.stdout.splitlines()[1]


def test_numbers_of_a_kind_of_media_that_is_not_installed_are_refused_in_a_sentence(
    environment, tmp_path
):
    folder = texts(tmp_path / "texts")
    numbers = tmp_path / "numbers"
    assert polyseme("extract", "letter", folder, "--out", numbers).returncode == 0
    shutil.rmtree(environment)
    done = polyseme("fit", tmp_path / "model", "--features", numbers)
    assert done.returncode == 1
    assert "Unknown kind of media 'letter'; known: audio, image, text" in done.stderr
