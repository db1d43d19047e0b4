"""`serve` without a model learns one from the items."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from polyseme import ZeroShotTagger
from polyseme.cli import serving
from polyseme.media import Extracted, ImageFeatures

pytest.importorskip("efficientnet_lite_pytorch", reason="the extra image is not installed")


@pytest.fixture
def folder(tmp_path):
    """Three pictures, of which one has a tag."""
    folder = tmp_path / "photos"
    folder.mkdir()
    for number in range(3):
        colour = (80 * number, 90, 10)
        Image.new("RGB", (40, 30), colour).save(folder / f"{number}.png")
    (tmp_path / "tags.jsonl").write_text('{"file": "1.png", "labels": ["sand"]}\n')
    return folder


@pytest.fixture
def quick_fit(world, tiny_space, monkeypatch):
    """Learn a model from random features in place of those of pictures."""

    def fit(model, *, documents, features, tables):
        rng = np.random.default_rng(0)
        X = rng.normal(size=(len(world.X), 1280)).astype(np.float32)
        names = tuple(f"known-{row}" for row in range(len(X)))
        extractor = ImageFeatures()
        items = Extracted("image", extractor.preprocessing(), names, X)
        tagger = ZeroShotTagger(tiny_space(), extractor, n_validations=0, random_state=0)
        tagger.fit(items, world.documents).save(model)

    monkeypatch.setattr(serving, "fit", fit)


def test_without_items_no_model_is_learned(run, tmp_path):
    (tmp_path / "empty").mkdir()
    code, _, stderr = run("serve", tmp_path / "tagger", "--items", tmp_path / "empty")
    assert code == 1
    assert "no picture, sound or text in" in stderr
    code, _, stderr = run("serve", tmp_path / "tagger")
    assert code == 1
    assert "give --items a folder to learn it from" in stderr


def test_every_start_reads_the_files_once_also_where_it_learns_a_model_from_them(
    run, tmp_path, folder, quick_fit, monkeypatch
):
    readings, apps = [], []
    look_at = serving.extract_and_report
    monkeypatch.setattr(
        serving, "extract_and_report", lambda *paths: readings.append(look_at(*paths))
    )
    monkeypatch.setattr("polyseme.studio.process.run", lambda app, *_, **__: apps.append(app))
    options = ("--items", folder, "--documents", tmp_path / "tags.jsonl")
    for n_starts in (1, 2):  # the second start looks for files that were added
        code, _, stderr = run("serve", tmp_path / "tagger", *options)
        assert code == 0, stderr
        assert len(readings) == n_starts
        assert stderr.splitlines()[-1].startswith("the studio: http://127.0.0.1:8080/")
        collection = apps[-1].state.hosts["tagger"].collection
        assert collection.ids == ("0.png", "1.png", "2.png")
        assert collection.media == "image"
        assert collection.tags_of("1.png") == ("sand",)
        assert collection.tags_of("0.png") == ()
