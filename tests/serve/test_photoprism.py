"""PhotoPrism's interface: pictures as data URLs in, labels out, and nothing is fetched."""

from __future__ import annotations

import base64
import io

import numpy as np
import pytest
from PIL import Image

from polyseme._validation import InputError
from polyseme.features.base import Extracted
from polyseme.serve.collection import Collection
from polyseme.serve.host import ModelHost
from polyseme.serve.references import data_of, item_of

LABELS = "/api/v1/vision/labels"
RED, BLUE = (220, 20, 30), (20, 30, 220)


def picture(colour):
    written = io.BytesIO()
    Image.new("RGB", (48, 32), colour).save(written, "PNG")
    return f"data:image/png;base64,{base64.b64encode(written.getvalue()).decode()}"


@pytest.fixture
def photos(pictures_model):
    return ModelHost(pictures_model)


def names(response):
    assert response.status_code == 200, response.text
    return [one["name"] for one in response.json()["result"]["labels"]]


def test_pictures_have_labels_with_confidence_and_topicality(photos, serving):
    client = serving(photos)
    sent = {"id": "abc", "model": "nasnet", "version": "1", "images": [picture(RED)], "suffix": ""}
    response = client.post(f"{LABELS}/photos", json=sent)
    content = response.json()
    assert (content["id"], content["code"]) == ("abc", 200)
    assert content["model"] == {"type": "labels", "name": "photos", "version": photos.now.version}
    assert set(names(response)) == {"fire", "warm"}
    for one in content["result"]["labels"]:
        assert 0.5 <= one["confidence"] <= 1 and 0.5 <= one["topicality"] <= 1
        assert one["source"] == "image" and one["categories"] == []
    assert client.post(LABELS, json=sent).json() == content
    several = client.post(LABELS, json={"images": [picture(RED), picture(BLUE)]})
    assert set(names(several)) == {"fire", "warm", "sea", "cold"}
    assert len(names(client.post(f"{LABELS}?k=1", json=sent))) == 1
    assert len(names(client.post(f"{LABELS}/photos?threshold=0", json=sent))) == 4


def test_an_address_is_an_item_of_the_collection_or_refused(photos, serving, monkeypatch):
    monkeypatch.setattr("socket.socket.connect", lambda *_: pytest.fail("went outside"))
    extractor = photos.extractor
    raw = np.stack(extractor.extract_batch([np.full((32, 32, 3), BLUE, np.uint8)]))
    numbers = Extracted("image", extractor.preprocessing(), ("blue.png",), raw)
    photos.collection = Collection(["album/blue.png"], numbers)
    client = serving(photos)
    found = client.post(LABELS, json={"url": "https://photos.example/album/blue.png"})
    assert set(names(found)) == {"sea", "cold"}
    refused = client.post(LABELS, json={"id": "x", "url": "http://127.0.0.1:1/other.png"})
    content = refused.json()
    assert refused.status_code == content["code"] == 404 and content["id"] == "x"
    assert "nothing is fetched from elsewhere" in content["error"] == content["detail"]


@pytest.mark.parametrize(
    ("body", "status", "sentence"),
    [
        ({}, 422, "Send `images` as data URLs"),
        ({"images": ["data:image/png;base64,!!!"]}, 422, "A data URL must be"),
        ({"images": ["data:image/png,plain"]}, 422, "A data URL must be"),
        ({"images": ["data:image/png;base64,"]}, 422, "The file is empty"),
        ({"images": ["data:image/png;base64,AAAA"]}, 422, "is no picture that can be read"),
        ({"images": ["file:///etc/hostname"]}, 404, "nothing is fetched from elsewhere"),
    ],
)
def test_what_is_no_picture_is_told_in_a_sentence(photos, serving, body, status, sentence):
    refused = serving(photos).post(LABELS, json=body)
    assert refused.status_code == status and sentence in refused.json()["error"]


def test_a_model_of_numbers_takes_no_pictures(client):
    assert client.post(LABELS, json={"images": [picture(RED)]}).status_code == 404
    refused = client.post(f"{LABELS}/toy", json={"images": [picture(RED)]})
    assert refused.status_code == 422 and "takes numbers, not files" in refused.json()["error"]
    assert client.post(f"{LABELS}/toy", json={"images": ["x"] * 9}).status_code == 422


def test_half_of_what_is_given_should_be_true_where_that_can_be_promised(client, host, world):
    name = f"item-{world.themes_test.index('beach')}"
    found = client.post(f"{LABELS}/toy", json={"url": name}).json()["result"]["labels"]
    least = host.now.least(0.5)
    scores = host.now.tagger.predict_proba(host.collection.row(name)[None])[0]
    expected = {
        label
        for label, score in zip(host.now.tagger.classes_, scores, strict=True)
        if score >= least[label]
    }
    assert {one["name"] for one in found} == expected


# ---------------------------------------------------------------------- references


@pytest.mark.parametrize(
    ("reference", "name"),
    [
        ("a/b.png", "a/b.png"),
        ("/photos/a/b.png", "a/b.png"),
        ("https://x.example/y/a/b.png?size=3", "a/b.png"),
        ("/data/local-files/?d=z/a/b.png", "a/b.png"),
        ("/data/upload/1/0123abcd-c d.png", "c d.png"),
        ("/c%20d.png", "c d.png"),
        ("s3://bucket/deep/a/b.png", "a/b.png"),
        ("b.png", None),
        ("..\\a\\b.png", "a/b.png"),
        ("http://[bad/a/b.png", None),
        ("", None),
        ("x/" * 4000 + "a/b.png", None),
    ],
)
def test_items_are_found_by_what_an_address_ends_with(reference, name):
    collection = Collection(["a/b.png", "c d.png"], np.zeros((2, 1)))
    assert item_of(collection, reference) == name
    assert item_of(None, reference) is None


def test_data_urls_are_decoded_and_others_are_none():
    assert data_of("data:image/png;base64,AAEC") == b"\0\1\2"
    assert data_of("data:;charset=utf-8;base64,AAEC") == b"\0\1\2"
    assert data_of("a.png") is None
    for wrong in ("data:", "data:image/png", "data:image/png;base64", "data:x;base64,A"):
        with pytest.raises(InputError, match="A data URL must be"):
            data_of(wrong)
