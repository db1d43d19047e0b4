"""Names in requests, of items and labels: any name is found, and none is taken for a path."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from pathlib import Path
from urllib.parse import quote

import httpx
import numpy as np
import pytest
from PIL import Image

from polyseme import ZeroShotTagger
from polyseme._validation import InputError
from polyseme.features import Extracted
from polyseme.serve.app import Settings, create_app
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


class Asking:
    """A client that sends addresses as they are; the usual one decodes them twice."""

    def __init__(self, host):
        self.app = create_app([host], Settings(watch=0))

    def __call__(self, method, path, json=None):
        async def ask():
            transport = httpx.ASGITransport(self.app)
            async with httpx.AsyncClient(
                transport=transport, base_url="http://localhost"
            ) as client:
                return await client.request(method, path, json=json)

        return asyncio.run(ask())

    def get(self, path):
        return self("GET", path)

    def post(self, path, json=None):
        return self("POST", path, {} if json is None else json)

    def delete(self, path):
        return self("DELETE", path)


# ---------------------------------------------------------------------- labels

LABELS = [
    "AC/DC",
    "/",
    "//",
    "a//b",
    "/etc/passwd",
    "left/",
    "rename",
    "AC/rename",
    "AC/DC/block",
    "a/../b",
    "../../models",
    ".",
    "..",
    "...",
    ". .",
    "what?",
    "what?query=1",
    "#tag",
    "100%",
    "%2F",
    "AC%2FDC",
    "a;b=c",
    "a+b",
    "日本/語",
    "x" * 1000,
]
SPACED = ["two\nlines", "last line\n", "tab\there", ". ", ".. ", " sea"]


def address(name):
    """Return a name as a part of an address; see docs/serve.md."""
    dots = name.rstrip(" ") in (".", "..")
    return quote(name + " " if dots else name, safe="")


def of_label(name, *parts):
    return "/".join(["/v1/models/toy/labels", address(name), *parts])


@pytest.mark.parametrize("label", LABELS)
def test_any_label_is_found_changed_and_removed_by_its_address(host, label):
    client = Asking(host)
    host.change("add", "", None, lambda tagger: tagger.add_documents([[label, "sand"]]))
    own = host.now.known(label)
    card = client.get(of_label(label))
    assert card.status_code == 200 and card.json()["label"] == own, card.text
    assert client.post(of_label(label, "block"), json={}).status_code == 200
    assert own in host.now.tagger.vocabulary_.blocked
    assert client.post(of_label(label, "block"), json={"undo": True}).status_code == 200
    renamed = client.post(of_label(label, "rename"), json={"name": "new/name"})
    assert renamed.status_code == 200, renamed.text
    assert client.get(of_label("new/name")).json()["aliases"] == [own]
    assert client.get(of_label(label)).json()["label"] == "new/name"
    back = client.post(of_label("new/name", "rename"), json={"name": "other"})
    assert back.status_code == 200
    merged = client.post(of_label("other", "merge"), json={"into": "sea"})
    assert merged.status_code == 200
    host.change("add", "", None, lambda tagger: tagger.add_documents([["fresh/one", "sand"]]))
    assert client.delete(of_label("fresh/one")).status_code == 200
    assert "fresh/one" not in host.now.kinds


@pytest.mark.parametrize("label", [*LABELS, *SPACED])
def test_labels_that_are_kept_as_they_were_written_are_found_by_their_addresses(exact_model, label):
    client = Asking(exact_model)
    card = client.get(of_label(label))
    assert card.status_code == 200, card.text
    assert card.json()["label"] == label and card.json()["count"] == 2
    assert client.delete(of_label(label)).status_code == 200
    assert client.get(of_label(label)).json()["count"] == 0


@pytest.fixture
def exact_model(saved_exact_model, tmp_path):
    return ModelHost(shutil.copytree(saved_exact_model, tmp_path / "toy"))


@pytest.fixture(scope="module")
def saved_exact_model(tmp_path_factory, tiny_space):
    """A model that has labels as they were written, spaces and all."""
    documents = [[label, "sand"] for label in (*LABELS, *SPACED)] * 2
    tagger = ZeroShotTagger(
        tiny_space(n_steps=20), n_validations=0, normalize_labels=False, random_state=0
    )
    folder = tmp_path_factory.mktemp("exact") / "toy"
    tagger.fit(None, documents).save(folder)
    return folder


def test_a_label_that_is_not_known_is_404_whatever_it_is(host):
    client = Asking(host)
    for label in (*LABELS, *SPACED[:2]):
        for response in (
            client.get(of_label(label)),
            client.delete(of_label(label)),
            client.post(of_label(label, "block"), json={}),
        ):
            assert response.status_code == 404, label
            assert response.json()["detail"].startswith("There is no label"), label


def test_a_label_takes_no_other_method(host):
    assert Asking(host).post(of_label("sand")).status_code == 405


# ---------------------------------------------------------------------- items, by their addresses


@pytest.mark.parametrize("item", [*LABELS[:-1], *SPACED, "  "])
def test_any_item_is_found_by_its_address(model, world, tmp_path, item):
    file = tmp_path / "item.png"
    Image.new("RGB", (20, 10), (220, 20, 30)).save(file)
    collection = Collection([item, "other"], world.X_test[:2], None, {item: file, "other": file})
    client = Asking(ModelHost(model, collection))
    (listed, _) = client.get("/v1/models/toy/items").json()["items"]
    shown = client.get(f"/v1/models/toy/items/{address(item)}").json()
    assert shown["id"] == listed["id"] == item and shown["media"] == listed["media"]
    for path in (listed["media"], listed["thumbnail"], f"/v1/models/toy/media/{address(item)}"):
        assert client.get(path).headers["content-type"] == "image/jpeg", path


def test_an_item_whose_name_is_no_unicode_is_listed(model, world, tmp_path):
    name = os.fsdecode(b"caf\xe9.png")
    collection = Collection([name], world.X_test[:1], None, {name: tmp_path / name})
    listed = Asking(ModelHost(model, collection)).get("/v1/models/toy/items")
    assert listed.status_code == 200 and listed.json()["items"][0]["id"] == "caf?.png"


@pytest.mark.parametrize("name", ["two words", "100%", "a?b", "a#b", "ü", "x" * 250])
def test_a_model_is_found_by_its_name_whatever_it_is(model, name):
    client = Asking(ModelHost(model, name=name))
    start = f"/v1/models/{address(name)}"
    assert client.get(start).json()["id"] == name
    assert client.post(f"{start}/suggest", json={"tags": ["sand"]}).status_code == 200
    points = client.get(f"{start}/space").json()["points"]
    assert client.get(points).status_code == 200
    assert client.get(f"/label-studio/{address(name)}/health").status_code == 200
    assert client.get(f"/v1/projects/{address(name)}").status_code == 200


@pytest.mark.parametrize("name", ["", ".", "..", "a/b"])
def test_a_name_by_which_no_model_can_be_asked_for_is_refused(model, name):
    with pytest.raises(InputError, match="name of a model"):
        ModelHost(model, name=name)
