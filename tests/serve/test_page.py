"""The page on the service: every curl on it is sent to a real one, and answered as it says."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import uvicorn

from polyseme import ZeroShotTagger
from polyseme.io import Table
from polyseme.serve.app import Settings, create_app
from polyseme.serve.collection import Collection
from polyseme.serve.host import ModelHost

PAGE = Path(__file__).parents[2] / "docs" / "serve.md"
ADDRESS = "http://127.0.0.1:8080"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed"),
]


@pytest.fixture(scope="module")
def curl(world, tiny_space, tmp_path_factory) -> Iterator[Callable[[str], str]]:
    """Run a curl of the page against a service with its model and its items."""
    folder = tmp_path_factory.mktemp("page")
    features = np.concatenate([world.X, world.X_test])
    ids = [str(row) for row in range(len(features))]
    tags = [*world.documents, *([] for _ in world.X_test)]
    items = Collection(ids, Table(features=features, ids=ids), tags)
    tagger = ZeroShotTagger(space=tiny_space(), n_validations=1, random_state=0)
    tagger.fit(world.X, world.documents, label_sets=world.label_sets).save(folder / "model")
    app = create_app([ModelHost(folder / "model", items)], Settings(watch=0))
    np.save(folder / "row.npy", world.X_test[0])
    world.X_test[0].astype("<f4").tofile(folder / "row.f32")
    with socket.create_server(("127.0.0.1", 0)) as line:
        server = uvicorn.Server(uvicorn.Config(app, log_level="error"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [line]})
        thread.start()
        while not app.state.ready:
            time.sleep(0.05)
        here = f"http://127.0.0.1:{line.getsockname()[1]}"

        def run(command: str) -> str:
            words, _, _ = command.replace(ADDRESS, here).partition(" > ")
            done = subprocess.run(shlex.split(words), cwd=folder, capture_output=True, text=True)
            assert done.returncode == 0, command + done.stderr
            return done.stdout

        try:
            yield run
        finally:
            server.should_exit = True
            thread.join()


def shape(value: Any) -> Any:
    """Return the form of an answer: names of fields, not what they hold."""
    if isinstance(value, dict):
        return {name: shape(one) for name, one in value.items()}
    if isinstance(value, list):
        return [shape(one) for one in value[:1]]
    return None


def commands() -> list[tuple[str, Any]]:
    """Return every curl of the page with the answer that is shown for it, or None."""
    blocks = re.findall(r"^```(\w+)\n(.*?)^```$", PAGE.read_text("utf-8"), re.M | re.S)
    found: list[tuple[str, Any]] = []
    for language, text in blocks:
        if language == "sh":
            found += [
                (one, None) for one in text.splitlines() if ADDRESS in one and one[:4] == "curl"
            ]
        elif language == "json":
            found[-1] = (found[-1][0], json.loads(text))
    return found


def test_every_curl_is_answered_as_the_page_shows(curl):
    sent = commands()
    assert len(sent) >= 20 and sum(shown is not None for _, shown in sent) >= 3
    for command, shown in sent:
        answer = curl(command)
        if command.endswith(".tsv"):
            assert answer.startswith("<urn:polyseme:")
            continue
        told = json.loads(answer)
        if shown is None:
            assert "detail" not in told, f"{command}\n{answer}"
        else:
            assert shape(told) == shape(shown), f"{command}\n{answer}"
            assert told.get("detail") == shown.get("detail")


def test_the_limits_and_metrics_are_those_of_the_service(curl):
    text = PAGE.read_text("utf-8")
    settings = Settings()
    assert f"| {settings.max_body // 2**20} MiB |" in text
    assert f"| {settings.deadline:g}, then 503 |" in text
    named = set(re.findall(r"`(polyseme_\w+)", text))
    curl(f'curl -s --json \'{{"tags": ["apple"]}}\' {ADDRESS}/v1/models/model/suggest')
    said = ' {"item": "0", "label": "sand", "answer": true}'
    curl(f"curl -s --json '{{\"verdicts\": [{said}]}}' {ADDRESS}/v1/models/model/learn")
    counted = set(re.findall(r"^(polyseme_\w+)", curl(f"curl -s {ADDRESS}/metrics"), re.M))
    assert {name.removesuffix("_total") for name in named} == {
        re.sub(r"_(total|bucket|count|sum|created)$", "", name) for name in counted
    }
