"""Names in requests, of items and labels: any name works, and none is used as a path."""

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
from rest import TOY, ModelClient, refused, verdict

from polyseme import ZeroShotTagger
from polyseme.base.validation import InputError
from polyseme.feedback.verdict_log import Verdict
from polyseme.media import Extracted
from polyseme.studio.app import Settings, create_app
from polyseme.studio.collection import Collection
from polyseme.studio.host import ModelHost

PHOTOS = "/v1/models/photos"
_opened: list[str] = []


def _note_opened(event, arguments):
    if event == "open":
        _opened.append(str(arguments[0]))


sys.addaudithook(_note_opened)


@pytest.fixture
def opened():
    """The files that were opened since the test began."""
    _opened.clear()
    return _opened


@pytest.fixture
def photos(pictures_model, tmp_path):
    """A model of pictures with one item."""
    host = ModelHost(shutil.copytree(pictures_model, tmp_path / "photos"))
    extractor = host.extractor
    blue = np.full((32, 32, 3), (20, 30, 220), np.uint8)
    features = np.stack(extractor.extract_batch([blue]))
    items = Extracted("image", extractor.preprocessing(), ("blue.png",), features)
    host.collection = Collection(["blue.png"], items)
    return host


@pytest.fixture
def red_picture(tmp_path):
    file = tmp_path / "red.png"
    Image.new("RGB", (32, 32), (220, 20, 30)).save(file)
    return file


# ---------------------------------------------------------------------- items

KNOWN = verdict("blue.png", "sea")
# Every route that takes the name of an item, and its body.
REQUESTS = {
    "learn": lambda item: {"verdicts": [verdict(item, "sea")]},
    "learn beside a known item": lambda item: {"verdicts": [KNOWN, verdict(item, "sea")]},
    "learn a new label": lambda item: {"verdicts": [verdict(item, "brand new")]},
    "suggest": lambda item: {"item": item},
    "explain": lambda item: {"item": item, "label": "sea"},
    "neighbours": lambda item: {"item": item},
    "place": lambda item: {"item": item},
    "labels": lambda item: {"label": "sky", "items": [item]},
    "labels beside a known item": lambda item: {"label": "sky", "items": ["blue.png", item]},
}


@pytest.mark.parametrize("request_", REQUESTS)
@pytest.mark.parametrize(
    "item", ["{folder}/red.png", "red.png", "{folder}", "missing.png"], ids=range(4)
)
def test_an_unknown_item_is_404_and_no_file_is_opened(
    photos, serving, tmp_path, red_picture, monkeypatch, opened, request_, item
):
    client = serving(photos)
    monkeypatch.chdir(tmp_path)
    name = item.format(folder=tmp_path)
    route = request_.split()[0]
    opened.clear()
    response = client.post(f"{PHOTOS}/{route}", json=REQUESTS[request_](name))
    detail = refused(response, 404)
    assert detail.startswith(f"There is no item '{name[:60]}'")
    assert Path(name).name not in {Path(path).name for path in opened}
    assert not photos.snapshot.n_events
    assert "sky" not in photos.snapshot.kinds


@pytest.mark.parametrize("path", ["items/secret.png", "media/secret.png"])
def test_the_address_of_an_unknown_item_is_404(photos, serving, path):
    assert serving(photos).get(f"{PHOTOS}/{path}").status_code == 404


def test_an_unknown_item_of_a_batch_is_404(photos, serving):
    model = ModelClient(serving(photos), PHOTOS)
    content = model.post("/suggest-batch", {"items": [{"item": "secret.png"}]})
    (result,) = content["results"]
    assert result["error"]["status"] == 404


def test_an_unknown_item_of_photoprism_is_404(photos, serving):
    response = serving(photos).post("/api/v1/vision/labels/photos", json={"url": "secret.png"})
    assert response.status_code == response.json()["code"] == 404


def test_verdicts_may_be_about_items_sent_listed_or_reviewed_before(photos, serving):
    client = serving(photos)
    model = ModelClient(client, PHOTOS)
    features = {"mine": photos.collection.features_of("blue.png").tolist()}
    mine = verdict("mine", "cold")
    model.learn(mine, verdict("blue.png", "cold"), features=features)
    model.learn(mine)
    yours = verdict("yours", "cold")
    body = {"verdicts": [mine, yours], "features": features}
    response = client.post(f"{PHOTOS}/learn", json=body)
    refused(response, 404, "There is no item 'yours'")
    assert set(photos.snapshot.reviewed) == {"mine", "blue.png"}


def test_a_tagger_opens_no_file_that_only_a_verdict_names(photos, red_picture, opened):
    tagger = photos.snapshot.tagger
    name = str(red_picture)
    verdicts = [Verdict(name, "warm", True)]
    with pytest.raises(ValueError, match="Nothing is known of the item"):
        tagger.learn(verdicts)
    assert name not in opened
    tagger.learn(verdicts, [red_picture])
    (standing,) = tagger.verdicts_.standing()
    assert standing.item == name


class ExactClient:
    """A client that sends addresses as they are; the usual one decodes them twice."""

    def __init__(self, host):
        self.app = create_app([host], Settings(watch=0))

    def request(self, method, path, json=None):
        async def request():
            transport = httpx.ASGITransport(self.app)
            async with httpx.AsyncClient(
                transport=transport, base_url="http://localhost"
            ) as client:
                return await client.request(method, path, json=json)

        return asyncio.run(request())

    def get(self, path):
        return self.request("GET", path)

    def post(self, path, json=None):
        return self.request("POST", path, {} if json is None else json)

    def delete(self, path):
        return self.request("DELETE", path)


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
    if name.rstrip(" ") in (".", ".."):
        name += " "
    return quote(name, safe="")


def label_path(name, action=""):
    return f"/labels/{address(name)}{action}"


@pytest.mark.parametrize("label", LABELS)
def test_any_label_is_read_changed_and_removed_at_its_address(host, label):
    toy = ModelClient(ExactClient(host))
    host.change("add", "", None, lambda tagger: tagger.add_documents([[label, "sand"]]))
    known_label = host.snapshot.find_label(label)
    assert toy.get(label_path(label))["label"] == known_label
    toy.post(label_path(label, "/block"), {})
    assert known_label in host.snapshot.tagger.vocabulary_.blocked
    toy.post(label_path(label, "/block"), {"undo": True})
    toy.post(label_path(label, "/rename"), {"name": "new/name"})
    assert toy.get(label_path("new/name"))["aliases"] == [known_label]
    assert toy.get(label_path(label))["label"] == "new/name"
    toy.post(label_path("new/name", "/rename"), {"name": "other"})
    toy.post(label_path("other", "/merge"), {"into": "sea"})
    toy.post("/labels", {"documents": [["fresh/one", "sand"]]})
    toy.delete(label_path("fresh/one"))
    assert "fresh/one" not in host.snapshot.kinds


@pytest.fixture(scope="module")
def saved_exact_model(tmp_path_factory, tiny_space):
    """A model that has labels as they were written, spaces and all."""
    documents = [[label, "sand"] for label in (*LABELS, *SPACED)]
    space = tiny_space(n_steps=20)
    tagger = ZeroShotTagger(space, n_validations=0, normalize_labels=False, random_state=0)
    tagger.fit(None, documents * 2)
    folder = tmp_path_factory.mktemp("exact") / "toy"
    tagger.save(folder)
    return folder


@pytest.fixture
def exact_toy(saved_exact_model, tmp_path):
    host = ModelHost(shutil.copytree(saved_exact_model, tmp_path / "toy"))
    return ModelClient(ExactClient(host))


@pytest.mark.parametrize("label", [*LABELS, *SPACED])
def test_labels_that_are_not_normalized_have_addresses_too(exact_toy, label):
    path = label_path(label)
    card = exact_toy.get(path)
    assert card["label"] == label
    assert card["count"] == 2
    exact_toy.delete(path)
    card = exact_toy.get(path)
    assert card["count"] == 0


def test_an_unknown_label_is_404_whatever_its_name(host):
    client = ExactClient(host)
    for label in (*LABELS, *SPACED[:2]):
        path = TOY + label_path(label)
        responses = [client.get(path), client.delete(path), client.post(f"{path}/block", json={})]
        for response in responses:
            assert response.status_code == 404, label
            assert response.json()["detail"].startswith("There is no label"), label


def test_a_label_takes_no_other_method(host):
    response = ExactClient(host).post(TOY + label_path("sand"))
    assert response.status_code == 405


# ---------------------------------------------------------------------- items, by their addresses


@pytest.mark.parametrize("item", [*LABELS[:-1], *SPACED, "  "])
def test_any_item_and_its_picture_are_read_at_their_addresses(model, world, red_picture, item):
    files = {item: red_picture, "other": red_picture}
    collection = Collection([item, "other"], world.X_test[:2], None, files)
    client = ExactClient(ModelHost(model, collection))
    toy = ModelClient(client)
    listed, _ = toy.get("/items")["items"]
    card = toy.get(f"/items/{address(item)}")
    assert card["id"] == listed["id"] == item
    assert card["media"] == listed["media"]
    for path in (listed["media"], listed["thumbnail"], f"{TOY}/media/{address(item)}"):
        response = client.get(path)
        assert response.headers["content-type"] == "image/jpeg", path


def test_an_item_whose_name_is_not_unicode_is_listed(model, world, tmp_path):
    name = os.fsdecode(b"caf\xe9.png")
    collection = Collection([name], world.X_test[:1], None, {name: tmp_path / name})
    toy = ModelClient(ExactClient(ModelHost(model, collection)))
    assert toy.get("/items")["items"][0]["id"] == "caf?.png"


@pytest.mark.parametrize("name", ["two words", "100%", "a?b", "a#b", "ü", "x" * 250])
def test_a_model_of_any_name_answers_at_its_address(model, name):
    client = ExactClient(ModelHost(model, name=name))
    toy = ModelClient(client, f"/v1/models/{address(name)}")
    assert toy.get()["id"] == name
    toy.post("/suggest", {"tags": ["sand"]})
    points = toy.get("/space")["points"]
    for path in (points, f"/label-studio/{address(name)}/health", f"/v1/projects/{address(name)}"):
        assert client.get(path).status_code == 200


@pytest.mark.parametrize("name", ["", ".", "..", "a/b"])
def test_a_name_that_cannot_be_part_of_an_address_is_refused(model, name):
    with pytest.raises(InputError, match="name of a model"):
        ModelHost(model, name=name)
