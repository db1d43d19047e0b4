"""The page on the service: every curl on it is sent to a real service and answered as shown."""

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
from polyseme.studio.app import Settings, create_app
from polyseme.studio.collection import Collection
from polyseme.studio.host import ModelHost

PAGE = Path(__file__).parents[2] / "docs" / "serve.md"
ADDRESS = "http://127.0.0.1:8080"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed"),
]


@pytest.fixture(scope="module")
def curl(world, tiny_space, tmp_path_factory) -> Iterator[Callable[[str], str]]:
    """Run a curl of the page against a service with the model and items of the page."""
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
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = uvicorn.Server(uvicorn.Config(app, log_level="error"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        while not app.state.ready:
            time.sleep(0.05)
        port = listener.getsockname()[1]
        address = f"http://127.0.0.1:{port}"

        def run(command: str) -> str:
            text, _, _ = command.replace(ADDRESS, address).partition(" > ")
            words = shlex.split(text)
            process = subprocess.run(words, cwd=folder, capture_output=True, text=True)
            assert process.returncode == 0, command + process.stderr
            return process.stdout

        try:
            yield run
        finally:
            server.should_exit = True
            thread.join()


def shape(value: Any) -> Any:
    """Return the form of an answer: names of fields, not what they hold."""
    if isinstance(value, dict):
        return {name: shape(field) for name, field in value.items()}
    if isinstance(value, list):
        return [shape(element) for element in value[:1]]
    return None


def commands() -> list[tuple[str, Any]]:
    """Return every curl of the page with the answer that is shown for it, or None."""
    page = PAGE.read_text("utf-8")
    pairs: list[tuple[str, Any]] = []
    for language, text in re.findall(r"^```(\w+)\n(.*?)^```$", page, re.M | re.S):
        if language == "sh":
            lines = text.splitlines()
            curls = [line for line in lines if line.startswith("curl") and ADDRESS in line]
            pairs += [(command, None) for command in curls]
        elif language == "json":
            command, _ = pairs[-1]
            pairs[-1] = (command, json.loads(text))
    return pairs


def test_every_curl_is_answered_as_the_page_shows(curl):
    pairs = commands()
    n_with_content = sum(content is not None for _, content in pairs)
    assert len(pairs) >= 20
    assert n_with_content >= 3
    for command, expected in pairs:
        answer = curl(command)
        if command.endswith(".tsv"):
            assert answer.startswith("<urn:polyseme:")
            continue
        content = json.loads(answer)
        if expected is None:
            assert "detail" not in content, f"{command}\n{answer}"
        else:
            assert shape(content) == shape(expected), f"{command}\n{answer}"
            assert content.get("detail") == expected.get("detail")


def test_the_limits_on_the_page_are_those_of_the_service():
    text = PAGE.read_text("utf-8")
    settings = Settings()
    assert f"| {settings.max_body // 2**20} MiB |" in text
    assert f"| {settings.deadline:g}, then 503 |" in text


def test_the_metrics_on_the_page_are_those_of_the_service(curl):
    model = f"{ADDRESS}/v1/models/model"
    verdict = '{"item": "0", "label": "sand", "answer": true}'
    curl(f'curl -s --json \'{{"tags": ["apple"]}}\' {model}/suggest')
    curl(f"curl -s --json '{{\"verdicts\": [{verdict}]}}' {model}/learn")
    series = re.findall(r"^(polyseme_\w+)", curl(f"curl -s {ADDRESS}/metrics"), re.M)
    metrics = {re.sub(r"_(total|bucket|count|sum|created)$", "", name) for name in series}
    names = re.findall(r"`(polyseme_\w+)", PAGE.read_text("utf-8"))
    assert {name.removesuffix("_total") for name in names} == metrics
