"""The command `serve` as a process: it starts, ends in order, and loses nothing when killed."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time

import httpx
import pytest
import uvicorn
from rest import ModelClient, column, verdict

from polyseme import load
from polyseme.studio.process import impatient

pytestmark = pytest.mark.slow


@pytest.fixture
def start():
    """Start a service; every process is ended with the test."""
    processes = []

    def run(*words):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        command = [sys.executable, "-m", "polyseme", "serve", *map(str, words), "--port", str(port)]
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        process = subprocess.Popen(command, stderr=subprocess.PIPE, env=environment)
        processes.append(process)
        client = httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60)
        for _ in range(1200):
            assert process.poll() is None, process.stderr.read().decode()
            try:
                if client.get("/health/ready").status_code == 200:
                    return process, client
            except httpx.TransportError:
                pass
            time.sleep(0.1)
        raise AssertionError("it does not answer")

    yield run
    for process in processes:
        process.kill()
        process.communicate()


def wait_until_blocked(client, label):
    for _ in range(600):
        if client.get(f"/v1/models/toy/labels/{label}").json()["blocked"]:
            return
        time.sleep(0.1)
    raise AssertionError("the change was not read")


def test_acknowledged_changes_survive_a_kill(start, model, world):
    process, client = start(model)
    toy = ModelClient(client)
    features = {"x": world.X_test[0].tolist()}
    numbers = toy.learn(verdict("x", "sand"), features=features)["numbers"]
    toy.rename("sea", "ocean")
    process.kill()
    process.wait(60)
    tagger = load(model)
    standing = tagger.verdicts_.standing()
    assert [event.number for event in standing] == numbers
    assert "ocean" in tagger.classes_
    _, client = start(model)
    content = ModelClient(client).get("/versions")
    actions = column(content["versions"], "action")
    assert actions == ["opened", "rename"]


def test_acknowledged_annotations_of_label_studio_survive_a_kill(start, model, world):
    process, client = start(model)
    config = '<View><Text name="t" value="$t"/><Taxonomy name="tags" toName="t"/></View>'
    expected = set()
    for number in range(20):
        labels = ["sand", f"new {number}"]
        paths = {"taxonomy": [[label] for label in labels]}
        body = {
            "action": "ANNOTATION_CREATED",
            "project": {"id": 1, "label_config": config},
            "task": {"id": number, "data": {"features": world.X_test[number].tolist()}},
            "annotation": {"id": number, "result": [{"from_name": "tags", "value": paths}]},
        }
        response = client.post("/label-studio/toy/webhook", json=body)
        assert response.status_code == 201, response.text
        expected.update((f"label-studio 1 {number}", label) for label in labels)
    process.kill()
    process.wait(60)
    standing = load(model).verdicts_.standing()
    assert {(event.item, event.label) for event in standing} == expected


def test_sigterm_ends_the_service_without_a_traceback(start, model):
    process, client = start(model)
    assert client.get("/").headers["content-type"].startswith("text/html")
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) in (0, -signal.SIGTERM)
    assert b"Traceback" not in process.stderr.read()


def test_a_changed_folder_is_read_while_the_service_runs(start, model):
    _, client = start(model, "--watch", "0.1")
    tagger = load(model).block(["sand"])
    tagger.save(model)
    wait_until_blocked(client, "sand")


def test_sighup_makes_the_service_read_the_folder(start, model):
    process, client = start(model, "--watch", "0")
    tagger = load(model).block(["sand"])
    tagger.save(model)
    process.send_signal(signal.SIGHUP)
    wait_until_blocked(client, "sand")


def test_an_open_address_needs_tokens(run, model):
    code, _, stderr = run("serve", model, "--host", "0.0.0.0")
    assert code == 1
    assert "polyseme token" in stderr


def test_tokens_are_made_at_the_command_line(run, tmp_path):
    code, stdout, stderr = run("token", tmp_path / "tokens.json", "ann", "--scope", "admin")
    assert code == 0
    assert stdout.startswith("ps_")
    assert "ann" in stderr


def test_models_of_the_same_name_and_missing_models_are_refused(run, model, tmp_path):
    code, _, stderr = run("serve", model, model)
    assert code == 1
    assert "must differ" in stderr
    code, _, stderr = run("serve", tmp_path / "none")
    assert code == 1
    assert "--items" in stderr


async def answer_slowly(scope, receive, send):
    """Answer after longer than a head may take."""
    await asyncio.sleep(0.5)
    headers = [(b"content-length", b"4")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b"done"})


async def read_to_end(reader: asyncio.StreamReader) -> bytes:
    """Read until the other side closes; it resets what it has not read."""
    try:
        return await asyncio.wait_for(reader.read(), 60)
    except ConnectionResetError:
        return b""


@pytest.mark.parametrize("beginning", [b"", b"GET / HTTP/1.1\r\nHost: x\r\nX-A: "])
def test_a_connection_on_which_no_request_is_completed_is_closed(beginning):
    async def talk():
        config = uvicorn.Config(
            answer_slowly, port=0, lifespan="off", http=impatient(0.1), log_config=None
        )
        server = uvicorn.Server(config)
        serving = asyncio.create_task(server.serve())
        while not server.started:
            await asyncio.sleep(0.01)
        port = server.servers[0].sockets[0].getsockname()[1]
        # After a request that was answered.
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n")
        answer = await reader.readuntil(b"done")
        assert answer.startswith(b"HTTP/1.1 200 OK")
        writer.write(beginning)
        assert await read_to_end(reader) == b""
        writer.close()
        # On a new connection.
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(beginning)
        assert await read_to_end(reader) == b""
        writer.close()
        server.should_exit = True
        await serving

    asyncio.run(talk())
