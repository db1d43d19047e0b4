"""The toy world in files, and models of it, for tests of commands."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

import polyseme
from command_files import write_jsonl


@pytest.fixture(scope="module")
def files(tmp_path_factory, world) -> Path:
    """The toy world in files."""
    folder = tmp_path_factory.mktemp("files")
    n_items = len(world.X_test)
    write_jsonl(folder / "documents.jsonl", world.documents)
    write_jsonl(folder / "semantics.jsonl", world.label_sets)
    write_jsonl(folder / "truth.jsonl", [world.themes[theme] for theme in world.themes_test])
    write_jsonl(folder / "given.jsonl", [["keyboard"]] + [[]] * (n_items - 1))
    write_jsonl(folder / "more.jsonl", [["sea", "jellyfish"], ["sand", "jellyfish"]])
    np.save(folder / "features.npy", world.X)
    np.save(folder / "test.npy", world.X_test)
    words = np.array(["sea", "sand", "desk", "phone", "coast"])
    vectors = np.array([[1, 0.1], [1, 0.0], [0, 1], [0.1, 1], [1, 0.05]])
    np.savez(folder / "words.npz", words=words, vectors=vectors)
    with (folder / "documents.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "tags"])
        for row, document in enumerate(world.documents):
            writer.writerow([f"item {row}", ";".join(document)])
    return folder


@pytest.fixture
def inputs(files) -> list:
    """The options of documents and features."""
    return ["-d", files / "documents.jsonl", "-x", files / "features.npy"]


@pytest.fixture
def test_rows(files) -> Path:
    return files / "test.npy"


@pytest.fixture(scope="module")
def model(files, toy_tagger) -> Path:
    toy_tagger.save(files / "model")
    return files / "model"


@pytest.fixture(scope="module")
def published(files, published_tagger) -> Path:
    published_tagger.save(files / "published")
    return files / "published"


@pytest.fixture
def own_model(model, tmp_path) -> Path:
    """A copy of the model that a test may change."""
    polyseme.load(model).save(tmp_path / "own")
    return tmp_path / "own"


@pytest.fixture
def small_space(tiny_space, monkeypatch) -> None:
    """Let commands learn small spaces."""
    monkeypatch.setattr("polyseme.fit_stages.ConceptSpace", tiny_space)


@pytest.fixture
def quick_space(tiny_space, monkeypatch) -> None:
    """Let commands learn small spaces, badly."""

    def make() -> polyseme.ConceptSpace:
        return tiny_space(n_steps=20)

    make.from_state = polyseme.ConceptSpace.from_state
    monkeypatch.setattr("polyseme.fit_stages.ConceptSpace", make)


@pytest.fixture
def no_training(monkeypatch) -> None:
    """Fail where a space is trained."""
    monkeypatch.setattr(polyseme.ConceptSpace, "fit", lambda *_, **__: pytest.fail("trained"))
