"""The real Label Studio, where it is installed: its own webhook, and a service that is killed."""

from __future__ import annotations

import base64
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from PIL import Image
from rest import column

from polyseme import load

PROGRAM = shutil.which("label-studio")
pytestmark = [
    pytest.mark.reproduction,
    pytest.mark.skipif(PROGRAM is None, reason="label-studio is not on the PATH"),
]
TOKEN = "0123456789abcdef0123456789abcdef01234567"
CONFIG = """<View><Image name="picture" value="$image"/>
<Taxonomy name="tags" toName="picture"><Choice value="fire"/><Choice value="sea"/></Taxonomy>
</View>"""
N_TASKS, AT_ONCE = 20, 10


@pytest.fixture
def start(tmp_path):
    """Start programs; every one is ended with the test."""
    processes = []

    def run(name, words, address, path, **environment):
        with (tmp_path / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                [*map(str, words)], stdout=log, stderr=log, env=os.environ | environment
            )
        processes.append(process)
        for _ in range(1800):
            assert process.poll() is None, (tmp_path / f"{name}.log").read_text()[-3000:]
            try:
                if httpx.get(address + path, timeout=60).status_code == 200:
                    return process
            except httpx.TransportError:
                pass
            time.sleep(0.1)
        raise AssertionError(f"{name} does not answer")

    yield run
    for process in processes:
        process.kill()
        process.wait()


def free_address():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{free.getsockname()[1]}"


def start_label_studio(start, folder: Path) -> httpx.Client:
    """Start Label Studio with a database of its own; return a client of its REST interface."""
    address = free_address()
    words = [PROGRAM, "start", "-b", "--internal-host", "127.0.0.1"]
    words += ["--port", address.rpartition(":")[2], "--data-dir", folder / "data"]
    words += ["--username", "ann@example.org", "--password", "only-for-a-test"]
    words += ["--user-token", TOKEN]
    start(
        "label-studio",
        words,
        address,
        "/health",
        HOME=str(folder),
        USE_DEFAULT_BANNED_SUBNETS="false",  # the service is on this machine
        LABEL_STUDIO_ENABLE_LEGACY_API_TOKEN="true",
        COLLECT_ANALYTICS="false",
        WEBHOOK_TIMEOUT=os.environ.get("WEBHOOK_TIMEOUT", "60"),
    )
    headers = {"Authorization": f"Token {TOKEN}"}
    return httpx.Client(base_url=address, headers=headers, timeout=120)


def post(client: httpx.Client, path: str, body) -> dict:
    response = client.post(path, json=body)
    assert response.status_code == 201, response.text
    return response.json()


def pictures(folder: Path) -> list[str]:
    """Draw half of the pictures into a folder; return all as Label Studio shows them."""
    addresses = []
    for number in range(N_TASKS):
        file = folder / f"{number}.png"
        Image.new("RGB", (40, 30), (200 + number, 20, 30)).save(file)
        if number % 2:
            content = base64.b64encode(file.read_bytes()).decode()
            addresses.append(f"data:image/png;base64,{content}")
            file.unlink()
        else:
            addresses.append(f"/data/local-files/?d=photos/{number}.png")
    return addresses


def annotate(label_studio: httpx.Client, backend: str, addresses: list[str]) -> None:
    """Connect a model to a new project, and annotate a task for each picture."""
    project = post(label_studio, "/api/projects/", {"title": "test", "label_config": CONFIG})["id"]
    post(label_studio, "/api/ml/", {"url": backend, "project": project})
    (webhook,) = label_studio.get(f"/api/webhooks/?project={project}").json()
    assert webhook["url"] == f"{backend}/webhook"
    tasks = [{"image": address} for address in addresses]
    post(label_studio, f"/api/projects/{project}/import", tasks)
    response = label_studio.get("/api/tasks/", params={"project": project, "page_size": 100})
    numbers = sorted(column(response.json()["tasks"], "id"))

    def choose(number: int) -> None:
        paths = {"taxonomy": [["fire"], [f"picture {number}"]]}
        result = {"from_name": "tags", "to_name": "picture", "type": "taxonomy", "value": paths}
        path = f"/api/tasks/{numbers[number]}/annotations/"
        post(label_studio, path, {"result": [result]})

    # Several at once, so that more is acknowledged than could be learned meanwhile.
    with ThreadPoolExecutor(AT_ONCE) as annotators:
        list(annotators.map(choose, range(len(numbers))))


def test_annotations_acknowledged_to_label_studio_survive_a_kill(start, pictures_model, tmp_path):
    model = Path(shutil.copytree(pictures_model, tmp_path / "model"))
    (tmp_path / "photos").mkdir()
    addresses = pictures(tmp_path / "photos")
    address = free_address()
    words = [sys.executable, "-m", "polyseme", "serve", model, "--items", tmp_path / "photos"]
    words += ["--port", address.rpartition(":")[2], "--log", "json"]
    label_studio = start_label_studio(start, tmp_path)
    service = start("service", words, address, "/health/ready")

    annotate(label_studio, f"{address}/label-studio/model", addresses)
    service.kill()
    service.wait()

    lines = (tmp_path / "service.log").read_text().splitlines()
    requests = [json.loads(line) for line in lines if line.startswith("{")]
    webhooks = [request for request in requests if request["path"].endswith("/webhook")]
    assert set(column(webhooks, "status")) == {201}
    start("service", words, address, "/health/ready")
    response = httpx.get(f"{address}/v1/models/model/verdicts?limit=1000")
    verdicts = response.json()["verdicts"]
    expected = {"fire", *(f"picture {number}" for number in range(N_TASKS))}
    assert set(column(verdicts, "label")) == expected
    tagger = load(model)
    assert len(verdicts) == len(tagger.verdicts_.standing()) == 2 * N_TASKS
    assert set(tagger.classes_) >= expected
    print(f"\n{len(webhooks)} webhooks acknowledged, {len(verdicts)} verdicts after the kill")
