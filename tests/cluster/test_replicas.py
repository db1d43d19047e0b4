"""Two replicas of the service on a real Ray cluster on this machine."""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from polyseme._validation import InputError
from polyseme.cli.serving import make_app
from polyseme.serve import replicas
from polyseme.verdicts import VerdictLog
from ray_workers import kill_one

pytest.importorskip("ray.serve", reason="the extra `ray-serve` is not installed")
httpx = pytest.importorskip("httpx", reason="httpx is not installed")

PATIENCE = 120.0  # seconds; a bound for a busy machine, not what it takes
MODEL = "/v1/models/model"


@pytest.fixture(scope="module")
def model(tmp_path_factory, toy_tagger) -> Path:
    folder = tmp_path_factory.mktemp("replicas") / "model"
    toy_tagger.save(folder)
    return folder


@pytest.fixture(scope="module")
def client(model) -> Iterator[Any]:
    """Two replicas, behind one address."""
    with socket.create_server(("127.0.0.1", 0)) as line:
        port = line.getsockname()[1]
    plan = {"models": [str(model)], "watch": 0.2, "deadline": PATIENCE}
    with (
        replicas.replicas(make_app, plan, "127.0.0.1", port, 2),
        httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE) as made,
    ):
        yield made


def until(client: Any, enough: Callable[[dict[str, str]], bool]) -> dict[str, str]:
    """Ask until each replica's version is as it should be; give what each said last."""
    said: dict[str, str] = {}
    end = time.monotonic() + PATIENCE
    while not enough(said):
        assert time.monotonic() < end, said
        answer = client.get(MODEL)
        assert answer.status_code == 200, answer.text
        said[answer.headers["X-Replica"]] = answer.json()["version"]
    return said


@pytest.mark.reproduction
def test_both_answer_as_the_tagger_does(client, toy_tagger, world):
    row = np.asarray(world.X[:1], dtype="<f4")
    labels = toy_tagger.rank(row, 3)[0][0].tolist()
    seen: set[str] = set()
    end = time.monotonic() + PATIENCE
    while len(seen) < 2:
        assert time.monotonic() < end, seen
        answer = client.post(
            f"{MODEL}/suggest?k=3",
            content=row.tobytes(),
            headers={"Content-Type": "application/octet-stream", "X-Request-Id": "mine"},
        )
        assert [one["label"] for one in answer.json()["suggestions"]] == labels
        assert answer.headers.get_list("X-Request-Id") == ["mine"]
        seen.add(answer.headers["X-Replica"])
    wrong = client.post(f"{MODEL}/suggest", json={"features": [1.0]})
    assert wrong.status_code == 422
    assert wrong.headers["Content-Type"] == "application/problem+json"


@pytest.mark.reproduction
def test_what_one_is_told_the_other_learns(client, model, world):
    row = np.asarray(world.X[0], dtype=float).tolist()
    until(client, lambda said: len(said) == 2)
    told = client.post(
        f"{MODEL}/learn",
        json={
            "verdicts": [{"item": "a", "label": "sand", "answer": True}],
            "features": {"a": row},
        },
    )
    assert told.status_code == 200, told.text
    version, numbers = told.json()["version"], told.json()["numbers"]
    until(client, lambda said: len(said) == 2 and set(said.values()) == {version})
    assert [one.number for one in VerdictLog(model).standing()] == numbers
    renamed = client.post(f"{MODEL}/labels/sand/rename", json={"name": "beach sand"})
    assert renamed.status_code == 200, renamed.text
    version = renamed.json()["version"]
    until(client, lambda said: len(said) == 2 and set(said.values()) == {version})


@pytest.mark.reproduction
def test_one_that_is_killed_is_replaced(client):
    before = set(until(client, lambda said: len(said) == 2))
    assert kill_one("ServeReplica")
    replica, said, end = None, set[str](), time.monotonic() + PATIENCE
    while replica is None:
        assert time.monotonic() < end, said
        try:
            answer = client.get(MODEL)
        except httpx.HTTPError:
            continue
        # What was under way in the killed process is lost, and told by Ray's proxy.
        if answer.status_code == 200:
            said.add(answer.headers["X-Replica"])
            replica = next(iter(said - before), None)


def test_what_is_wrong_is_told_before_anything_is_started(tmp_path):
    plan = {"models": [str(tmp_path / "nothing")]}
    with (
        pytest.raises(InputError, match=re.escape(str(tmp_path / "nothing"))),
        replicas.replicas(make_app, plan, "127.0.0.1", 1, 2),
    ):
        pass


def test_paths_are_made_absolute(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    seen: dict[str, Any] = {}

    def stop(**plan: Any) -> None:
        seen.update(plan)
        raise InputError("enough")

    with (
        pytest.raises(InputError, match="enough"),
        replicas.replicas(stop, {"items": Path("photos"), "watch": 2.0}, "127.0.0.1", 1, 2),
    ):
        pass
    assert seen == {"items": tmp_path.resolve() / "photos", "watch": 2.0}
