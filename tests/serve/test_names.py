"""Names in requests, of items and labels: any name is found, and none is taken for a path."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from polyseme.features import Extracted
from polyseme.serve.collection import Collection
from polyseme.serve.host import ModelHost
from polyseme.verdicts import Verdict

MODEL = "/v1/models/photos"
_opened: list[str] = []


def _note_opened(event, arguments):
    if event == "open":
        _opened.append(str(arguments[0]))


sys.addaudithook(_note_opened)


@pytest.fixture
def photos(pictures_model, tmp_path):
    """A model of pictures with one item."""
    host = ModelHost(shutil.copytree(pictures_model, tmp_path / "photos"))
    extractor = host.extractor
    blue = np.full((32, 32, 3), (20, 30, 220), np.uint8)
    numbers = np.stack(extractor.extract_batch([blue]))
    items = Extracted("image", extractor.preprocessing(), ("blue.png",), numbers)
    host.collection = Collection(["blue.png"], items)
    return host


# ---------------------------------------------------------------------- items


def _verdict(item, label="sea"):
    return {"item": item, "label": label, "answer": True}


ASKING = {
    "learn": lambda item: {"verdicts": [_verdict(item)]},
    "learn beside a known item": lambda item: {"verdicts": [_verdict("blue.png"), _verdict(item)]},
    "learn a new label": lambda item: {"verdicts": [_verdict(item, "brand new")]},
    "suggest": lambda item: {"item": item},
    "explain": lambda item: {"item": item, "label": "sea"},
    "neighbours": lambda item: {"item": item},
    "place": lambda item: {"item": item},
    "labels": lambda item: {"label": "sky", "items": [item]},
    "labels beside a known item": lambda item: {"label": "sky", "items": ["blue.png", item]},
}


@pytest.mark.parametrize("way", ASKING)
@pytest.mark.parametrize("kind", ["file", "relative file", "folder", "missing file"])
def test_an_item_that_is_not_known_is_404_and_no_file_is_opened(
    photos, serving, tmp_path, monkeypatch, way, kind
):
    client = serving(photos)
    Image.new("RGB", (32, 32), (220, 20, 30)).save(tmp_path / "secret.png")
    monkeypatch.chdir(tmp_path)
    item = {
        "file": str(tmp_path / "secret.png"),
        "relative file": "secret.png",
        "folder": str(tmp_path),
        "missing file": "missing.png",
    }[kind]
    _opened.clear()
    response = client.post(f"{MODEL}/{way.split()[0]}", json=ASKING[way](item))
    assert response.status_code == 404, response.text
    assert response.json()["detail"].startswith(f"There is no item '{item[:60]}'")
    assert not [path for path in _opened if Path(path).name == Path(item).name]
    assert not photos.now.n_events and "sky" not in photos.now.kinds


def test_an_item_that_is_not_known_is_404_by_its_address_and_in_a_batch(photos, serving):
    client = serving(photos)
    for path in ("items/secret.png", "media/secret.png"):
        assert client.get(f"{MODEL}/{path}").status_code == 404
    batch = client.post(f"{MODEL}/suggest-batch", json={"items": [{"item": "secret.png"}]})
    assert batch.json()["results"][0]["error"]["status"] == 404
    vision = client.post("/api/v1/vision/labels/photos", json={"url": "secret.png"})
    assert vision.status_code == vision.json()["code"] == 404


def test_answers_may_be_about_items_given_listed_or_answered_for_before(photos, serving, tmp_path):
    client = serving(photos)
    row = photos.collection.row("blue.png").tolist()

    def learn(*items, **more):
        said = {"verdicts": [_verdict(item, "cold") for item in items]} | more
        return client.post(f"{MODEL}/learn", json=said)

    mixed = learn("mine", "blue.png", features={"mine": row})
    assert mixed.status_code == 200, mixed.text
    again = learn("mine")
    assert again.status_code == 200, again.text
    refused = learn("mine", "yours", features={"mine": row})
    assert refused.status_code == 404
    assert "There is no item 'yours'" in refused.json()["detail"]
    assert set(photos.now.reviewed) == {"mine", "blue.png"}


def test_a_tagger_opens_no_file_that_only_a_verdict_names(photos, tmp_path):
    file = tmp_path / "red.png"
    Image.new("RGB", (32, 32), (220, 20, 30)).save(file)
    tagger, said = photos.now.tagger, [Verdict(str(file), "warm", True)]
    _opened.clear()
    with pytest.raises(ValueError, match="Nothing is known of the item"):
        tagger.learn(said)
    assert str(file) not in _opened
    tagger.learn(said, [file])
    assert [one.item for one in tagger.verdicts_.standing()] == [str(file)]
