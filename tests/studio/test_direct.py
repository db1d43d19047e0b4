"""`suggest` bypasses FastAPI's dependencies: it is described, counted, and refuses as others do."""

from __future__ import annotations

import numpy as np
import pytest
from rest import RAW, column, refused

ROUTE = "/v1/models/{model}/suggest"
SUGGEST = "/v1/models/toy/suggest"


@pytest.mark.parametrize(
    ("path", "status", "sentence"),
    [
        (SUGGEST, 422, "Raw features are float32 numbers of 4 bytes; got 3"),
        (f"{SUGGEST}?place=perhaps", 422, "`place`: Input should be a valid"),
        (ROUTE.format(model="other"), 404, "There is no model 'other'; there is toy."),
    ],
)
def test_a_wrong_request_is_a_problem_in_one_sentence(client, path, status, sentence):
    response = client.post(path, content=b"abc", headers=RAW)
    assert refused(response, status).startswith(sentence)


@pytest.mark.parametrize(("place", "has_place"), [("true", True), ("1", True), ("no", False)])
def test_a_place_on_the_map_is_returned_on_request(toy, world, place, has_place):
    row = world.X_test[0].astype(np.float32).tolist()
    content = toy.post(f"/suggest?place={place}", {"features": row})
    assert (content["place"] is not None) == has_place


def test_requests_get_ids_unless_they_bring_valid_ones(client):
    def id_of(**headers):
        return client.get("/health/live", headers=headers).headers["X-Request-Id"]

    ids = [id_of() for _ in range(3)]
    assert len(set(ids)) == 3
    assert id_of(**{"X-Request-Id": "mine-1"}) == "mine-1"
    replaced = id_of(**{"X-Request-Id": "two words"})
    assert replaced.partition("-")[0] == ids[0].partition("-")[0]


def test_the_route_is_described_once_and_counted_under_its_path(client):
    methods = client.get("/openapi.json").json()["paths"][ROUTE]
    assert set(methods) == {"post"}
    assert set(column(methods["post"]["parameters"], "name")) == {"model", "place"}
    assert client.get(SUGGEST).status_code == 405
    client.post(SUGGEST, json={"tags": ["no such tag"]})
    metrics = client.get("/metrics").text.splitlines()
    assert f'polyseme_requests_total{{route="{ROUTE}",status="422"}} 1.0' in metrics
