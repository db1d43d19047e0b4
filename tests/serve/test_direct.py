"""`suggest` has a way past FastAPI's dependencies: it is described, counted, and refuses alike."""

from __future__ import annotations

import numpy as np
import pytest

SUGGEST = "/v1/models/{model}/suggest"


@pytest.mark.parametrize(
    ("path", "status", "sentence"),
    [
        (SUGGEST.format(model="toy"), 422, "Raw features are float32 numbers of 4 bytes; got 3"),
        (f"{SUGGEST.format(model='toy')}?place=perhaps", 422, "`place`: Input should be a valid"),
        (SUGGEST.format(model="other"), 404, "There is no model 'other'; there is toy."),
    ],
)
def test_what_cannot_be_used_is_a_problem_in_one_sentence(client, path, status, sentence):
    raw = {"Content-Type": "application/octet-stream"}
    answer = client.post(path, content=b"abc", headers=raw)
    told = answer.json()
    assert answer.status_code == told["status"] == status
    assert answer.headers["Content-Type"] == "application/problem+json"
    assert told["detail"].startswith(sentence)
    assert told["request_id"] == answer.headers["X-Request-Id"]


@pytest.mark.parametrize(("place", "known"), [("true", True), ("1", True), ("no", False)])
def test_a_place_is_given_where_it_is_asked_for(client, world, place, known):
    row = np.asarray(world.X_test[0], dtype=np.float32).tolist()
    answer = client.post(f"{SUGGEST.format(model='toy')}?place={place}", json={"features": row})
    assert (answer.json()["place"] is not None) == known


def test_requests_have_names_of_their_own_unless_they_bring_one(client):
    names = [client.get("/health/live").headers["X-Request-Id"] for _ in range(3)]
    assert len(set(names)) == 3
    given = client.get("/health/live", headers={"X-Request-Id": "mine-1"})
    assert given.headers["X-Request-Id"] == "mine-1"
    odd = client.get("/health/live", headers={"X-Request-Id": "two words"})
    assert odd.headers["X-Request-Id"].partition("-")[0] == names[0].partition("-")[0]


def test_the_way_is_described_once_and_counted_under_its_path(client):
    described = client.get("/openapi.json").json()["paths"][SUGGEST]
    assert set(described) == {"post"}
    assert {one["name"] for one in described["post"]["parameters"]} == {"model", "place"}
    assert client.get(SUGGEST.format(model="toy")).status_code == 405
    client.post(SUGGEST.format(model="toy"), json={"tags": ["no such tag"]})
    counted = client.get("/metrics").text.splitlines()
    wanted = f'polyseme_requests_total{{route="{SUGGEST}",status="422"}} 1.0'
    assert wanted in counted
