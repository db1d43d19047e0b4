"""Two replicas of the service on a real Ray cluster on this machine."""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from polyseme.base.validation import InputError
from polyseme.cli.serving import make_app
from polyseme.feedback.verdict_log import VerdictLog
from polyseme.studio import replicas
from ray_workers import kill_one

pytest.importorskip("ray.serve", reason="the extra `ray-serve` is not installed")
httpx = pytest.importorskip("httpx", reason="httpx is not installed")

PATIENCE = 120.0  # seconds; a bound for a busy machine, not what it takes
MODEL = "/v1/models/model"


@pytest.fixture(scope="module")
def model(tmp_path_factory, toy_tagger) -> Path:
    path = tmp_path_factory.mktemp("replicas") / "model"
    toy_tagger.save(path)
    return path


@pytest.fixture(scope="module")
def client(model) -> Iterator[Any]:
    """Two replicas, behind one address."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    plan = {"models": [str(model)], "watch": 0.2, "deadline": PATIENCE}
    with (
        replicas.replicas(make_app, plan, "127.0.0.1", port, 2),
        httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE) as http_client,
    ):
        yield http_client


def wait_for_both(client: Any, version: str | None = None) -> set[str]:
    """Send requests until both replicas have answered, and with this version; return their ids."""
    version_by_replica: dict[str, str] = {}
    end = time.monotonic() + PATIENCE
    while True:
        response = client.get(MODEL)
        assert response.status_code == 200, response.text
        replica = response.headers["X-Replica"]
        content = response.json()
        version_by_replica[replica] = content["version"]
        versions = set(version_by_replica.values())
        is_current = version is None or versions == {version}
        if len(version_by_replica) == 2 and is_current:
            return set(version_by_replica)
        assert time.monotonic() < end, version_by_replica


@pytest.mark.reproduction
def test_both_replicas_answer_as_the_tagger_does(client, toy_tagger, world):
    row = np.asarray(world.X[:1], dtype="<f4")
    labels, _ = toy_tagger.rank(row, 3)
    headers = {"Content-Type": "application/octet-stream", "X-Request-Id": "mine"}
    replicas_seen: set[str] = set()
    end = time.monotonic() + PATIENCE
    while len(replicas_seen) < 2:
        assert time.monotonic() < end, replicas_seen
        path = f"{MODEL}/suggest?k=3"
        response = client.post(path, content=row.tobytes(), headers=headers)
        suggestions = response.json()["suggestions"]
        assert [suggestion["label"] for suggestion in suggestions] == labels[0].tolist()
        assert response.headers.get_list("X-Request-Id") == ["mine"]
        replicas_seen.add(response.headers["X-Replica"])
    response = client.post(f"{MODEL}/suggest", json={"features": [1.0]})
    assert response.status_code == 422
    assert response.headers["Content-Type"] == "application/problem+json"


@pytest.mark.reproduction
def test_a_change_at_one_replica_reaches_the_other(client, model, world):
    def post(path: str, body: dict[str, Any]) -> dict[str, Any]:
        address = MODEL + path
        response = client.post(address, json=body)
        assert response.status_code == 200, response.text
        return response.json()

    wait_for_both(client)
    features = {"a": np.asarray(world.X[0], dtype=float).tolist()}
    verdict = {"item": "a", "label": "sand", "answer": True}
    learned = post("/learn", {"verdicts": [verdict], "features": features})
    wait_for_both(client, learned["version"])
    standing = VerdictLog(model).standing()
    assert [event.number for event in standing] == learned["numbers"]
    renamed = post("/labels/sand/rename", {"name": "beach sand"})
    wait_for_both(client, renamed["version"])


@pytest.mark.reproduction
def test_a_killed_replica_is_replaced(client):
    before = wait_for_both(client)
    assert kill_one("ServeReplica")
    replicas_seen: set[str] = set()
    end = time.monotonic() + PATIENCE
    while replicas_seen <= before:
        assert time.monotonic() < end, replicas_seen
        try:
            response = client.get(MODEL)
        except httpx.HTTPError:
            continue
        # A request that the killed process was answering is lost, and Ray's proxy reports it.
        if response.status_code == 200:
            replicas_seen.add(response.headers["X-Replica"])


def test_a_missing_model_is_reported_before_anything_is_started(tmp_path):
    plan = {"models": [str(tmp_path / "nothing")]}
    with (
        pytest.raises(InputError, match=re.escape(str(tmp_path / "nothing"))),
        replicas.replicas(make_app, plan, "127.0.0.1", 1, 2),
    ):
        pass


def test_replicas_get_absolute_paths(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    settings: dict[str, Any] = {}

    def stop(**plan: Any) -> None:
        settings.update(plan)
        raise InputError("enough")

    with (
        pytest.raises(InputError, match="enough"),
        replicas.replicas(stop, {"items": Path("photos"), "watch": 2.0}, "127.0.0.1", 1, 2),
    ):
        pass
    assert settings == {"items": tmp_path.resolve() / "photos", "watch": 2.0}
