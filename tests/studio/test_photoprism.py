"""PhotoPrism's interface: pictures as data URLs in, labels out, and nothing is fetched."""

from __future__ import annotations

import base64
import io

import numpy as np
import pytest
from PIL import Image
from rest import column

from polyseme.base.validation import InputError
from polyseme.media.base import Extracted
from polyseme.studio.collection import Collection
from polyseme.studio.host import ModelHost
from polyseme.studio.references import data_of, item_of

LABELS = "/api/v1/vision/labels"
RED, BLUE = (220, 20, 30), (20, 30, 220)


def data_url(colour):
    """Return a picture of one colour as a data URL."""
    file = io.BytesIO()
    picture = Image.new("RGB", (48, 32), colour)
    picture.save(file, "PNG")
    encoded = base64.b64encode(file.getvalue()).decode()
    return f"data:image/png;base64,{encoded}"


@pytest.fixture
def photos(pictures_model):
    return ModelHost(pictures_model)


def names(response):
    assert response.status_code == 200, response.text
    return column(response.json()["result"]["labels"], "name")


def test_pictures_get_labels_with_confidence_and_topicality(photos, serving):
    client = serving(photos)
    body = {
        "id": "abc",
        "model": "nasnet",
        "version": "1",
        "images": [data_url(RED)],
        "suffix": "",
    }
    response = client.post(f"{LABELS}/photos", json=body)
    content = response.json()
    assert (content["id"], content["code"]) == ("abc", 200)
    assert content["model"] == {
        "type": "labels",
        "name": "photos",
        "version": photos.snapshot.version,
    }
    assert set(names(response)) == {"fire", "warm"}
    for label in content["result"]["labels"]:
        assert 0.5 <= label["confidence"] <= 1
        assert 0.5 <= label["topicality"] <= 1
        assert label["source"] == "image"
        assert label["categories"] == []
    assert client.post(LABELS, json=body).json() == content


@pytest.mark.parametrize(("query", "n_labels"), [("?k=1", 1), ("/photos?threshold=0", 4)])
def test_the_number_of_labels_follows_the_options(photos, serving, query, n_labels):
    response = serving(photos).post(LABELS + query, json={"images": [data_url(RED)]})
    assert len(names(response)) == n_labels


def test_several_pictures_get_the_labels_of_all(photos, serving):
    pictures = [data_url(RED), data_url(BLUE)]
    client = serving(photos)
    response = client.post(LABELS, json={"images": pictures})
    assert set(names(response)) == {"fire", "warm", "sea", "cold"}


def test_an_address_names_an_item_of_the_collection_or_is_refused(photos, serving, monkeypatch):
    monkeypatch.setattr("socket.socket.connect", lambda *_: pytest.fail("went outside"))
    extractor = photos.extractor
    features = np.stack(extractor.extract_batch([np.full((32, 32, 3), BLUE, np.uint8)]))
    items = Extracted("image", extractor.preprocessing(), ("blue.png",), features)
    photos.collection = Collection(["album/blue.png"], items)
    client = serving(photos)
    response = client.post(LABELS, json={"url": "https://photos.example/album/blue.png"})
    assert set(names(response)) == {"sea", "cold"}
    response = client.post(LABELS, json={"id": "x", "url": "http://127.0.0.1:1/other.png"})
    content = response.json()
    assert response.status_code == content["code"] == 404
    assert content["id"] == "x"
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
def test_a_picture_that_cannot_be_read_is_refused_with_a_sentence(
    photos, serving, body, status, sentence
):
    client = serving(photos)
    response = client.post(LABELS, json=body)
    assert response.status_code == status
    error = response.json()["error"]
    assert sentence in error


@pytest.mark.parametrize(
    ("path", "images", "status", "sentence"),
    [
        (LABELS, [data_url(RED)], 404, ""),
        (f"{LABELS}/toy", [data_url(RED)], 422, "takes numbers, not files"),
        (f"{LABELS}/toy", ["x"] * 9, 422, ""),
    ],
    ids=["any model", "this model", "too many"],
)
def test_a_model_of_numbers_takes_no_pictures(client, path, images, status, sentence):
    response = client.post(path, json={"images": images})
    assert response.status_code == status
    error = response.json().get("error", "")
    assert sentence in error


def test_by_default_labels_reach_a_precision_of_one_half(client, host, world):
    row = world.themes_test.index("beach")
    response = client.post(f"{LABELS}/toy", json={"url": f"item-{row}"})
    tagger = host.snapshot.tagger
    features = host.collection.features_of(f"item-{row}")
    scores = dict(zip(tagger.classes_, tagger.predict_proba(features[None])[0], strict=True))
    thresholds = host.snapshot.thresholds(0.5)
    assert set(names(response)) == {
        label for label, score in scores.items() if score >= thresholds[label]
    }


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
def test_an_item_is_found_by_the_end_of_an_address(reference, name):
    collection = Collection(["a/b.png", "c d.png"], np.zeros((2, 1)))
    assert item_of(collection, reference) == name
    assert item_of(None, reference) is None


@pytest.mark.parametrize(
    ("reference", "content"),
    [
        ("data:image/png;base64,AAEC", b"\0\1\2"),
        ("data:;charset=utf-8;base64,AAEC", b"\0\1\2"),
        ("a.png", None),
    ],
)
def test_data_urls_are_decoded(reference, content):
    assert data_of(reference) == content


@pytest.mark.parametrize(
    "reference", ["data:", "data:image/png", "data:image/png;base64", "data:x;base64,A"]
)
def test_a_malformed_data_url_is_refused(reference):
    with pytest.raises(InputError, match="A data URL must be"):
        data_of(reference)
