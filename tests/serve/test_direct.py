"""`suggest` has a way past FastAPI's dependencies: it is described, and refuses alike."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

pytest.importorskip("fastapi", reason="the extra `serve` is not installed")

from fastapi.testclient import TestClient

from polyseme.serve.app import Settings, create_app
from polyseme.serve.host import ModelHost

PATH = "/v1/models/model/suggest"
RAW = {"Content-Type": "application/octet-stream"}


@pytest.fixture(scope="module")
def client(toy_tagger, tmp_path_factory) -> Iterator[TestClient]:
    folder = tmp_path_factory.mktemp("direct") / "model"
    toy_tagger.save(folder)
    app = create_app([ModelHost(folder)], Settings(watch=0))
    with TestClient(app, base_url="http://127.0.0.1") as made:
        yield made


def test_raw_numbers_get_the_tags_that_the_tagger_ranks(client, toy_tagger, world):
    row = np.asarray(world.X[:1], dtype="<f4")
    answer = client.post(f"{PATH}?k=3&place=true", content=row.tobytes(), headers=RAW)
    assert answer.status_code == 200
    labels, scores = toy_tagger.rank(row, 3)
    told = answer.json()
    assert [one["label"] for one in told["suggestions"]] == labels[0].tolist()
    found = [one["probability"] for one in told["suggestions"]]
    assert found == pytest.approx(scores[0].tolist(), abs=1e-6)
    assert set(told["place"]) == {"x", "y"}
    assert told["version"] == answer.headers["X-Model-Version"]


@pytest.mark.parametrize(
    ("path", "status", "sentence"),
    [
        (PATH, 422, "This model takes 5 features an item; got 1."),
        (f"{PATH}?place=perhaps", 422, "`place`: Input should be a valid boolean"),
        (f"{PATH}?k=0", 422, "`k`: Input should be greater than or equal to 1."),
        ("/v1/models/other/suggest", 404, "There is no model 'other'; there is model."),
    ],
)
def test_what_cannot_be_used_is_a_problem_in_one_sentence(client, path, status, sentence):
    answer = client.post(path, content=b"\0\0\0\0", headers=RAW)
    told = answer.json()
    assert answer.status_code == told["status"] == status
    assert answer.headers["Content-Type"] == "application/problem+json"
    assert told["detail"].startswith(sentence)
    assert told["request_id"] == answer.headers["X-Request-Id"]


def test_requests_have_names_of_their_own_unless_they_bring_one(client):
    names = [client.get("/health/live").headers["X-Request-Id"] for _ in range(3)]
    assert len(set(names)) == 3
    given = client.get("/health/live", headers={"X-Request-Id": "mine-1"})
    assert given.headers["X-Request-Id"] == "mine-1"
    odd = client.get("/health/live", headers={"X-Request-Id": "two words"})
    assert odd.headers["X-Request-Id"].partition("-")[0] == names[0].partition("-")[0]


def test_the_way_is_described_once_and_counted_under_its_path(client):
    described = client.get("/openapi.json").json()["paths"]["/v1/models/{model}/suggest"]
    assert set(described) == {"post"}
    assert {one["name"] for one in described["post"]["parameters"]} == {"model", "place"}
    assert client.get(PATH).status_code == 405
    before = "polyseme_requests_total"
    client.post(PATH, json={"tags": ["no such tag"]})
    lines = client.get("/metrics").text.splitlines()
    counted = [one for one in lines if one.startswith(before) and 'status="422"' in one]
    assert any('route="/v1/models/{model}/suggest"' in one for one in counted)
