"""`serve` without a model learns one from the items."""

from __future__ import annotations

import numpy as np
import pytest

from polyseme import ZeroShotTagger
from polyseme.cli import serving
from polyseme.features import Extracted, ImageFeatures

pytest.importorskip("efficientnet_lite_pytorch", reason="the extra image is not installed")


def test_a_folder_without_media_teaches_nothing(run, tmp_path):
    (tmp_path / "empty").mkdir()
    code, _, told = run("serve", tmp_path / "tagger", "--items", tmp_path / "empty")
    assert code == 1 and "no picture or sound in" in told
    code, _, told = run("serve", tmp_path / "tagger")
    assert code == 1 and "give --items a folder to learn it from" in told


def test_files_are_looked_at_once_where_a_model_is_learned_from_them(
    run, tmp_path, world, tiny_space, monkeypatch
):
    from PIL import Image

    photos = tmp_path / "photos"
    photos.mkdir()
    for number in range(3):
        Image.new("RGB", (40, 30), (80 * number, 90, 10)).save(photos / f"{number}.png")
    looked, served = [], []

    def fit(model, *, documents, features, tables):
        raw = np.random.default_rng(0).normal(size=(len(world.X), 1280)).astype(np.float32)
        names = tuple(f"known-{row}" for row in range(len(raw)))
        items = Extracted("image", ImageFeatures().preprocessing(), names, raw)
        tagger = ZeroShotTagger(
            features=ImageFeatures(), space=tiny_space(), n_validations=0, random_state=0
        )
        tagger.fit(items, world.documents).save(model)

    extract = serving.extract_and_report
    monkeypatch.setattr(serving, "fit", fit)
    monkeypatch.setattr(
        serving, "extract_and_report", lambda *given: looked.append(extract(*given))
    )
    monkeypatch.setattr("polyseme.serve.process.run", lambda app, *_, **__: served.append(app))
    tags = tmp_path / "tags.jsonl"
    tags.write_text('{"file": "1.png", "labels": ["sand"]}\n')
    words = ("--items", photos, "--documents", tags)
    for n_looks in (1, 2):  # the next start looks for files that were added
        code, _, told = run("serve", tmp_path / "tagger", *words)
        assert (code, len(looked)) == (0, n_looks), told
        assert told.splitlines()[-1].startswith("the studio: http://127.0.0.1:8080/")
        collection = served[-1].state.hosts["tagger"].collection
        assert collection.ids == ("0.png", "1.png", "2.png") and collection.media == "image"
        assert collection.tags_of("1.png") == ("sand",) and collection.tags_of("0.png") == ()
