"""The command `serve` as a process: it starts, ends in order, and loses nothing when it is killed."""

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

from polyseme import load
from polyseme.serve.process import impatient

pytestmark = pytest.mark.slow


@pytest.fixture
def start():
    """Start a service; every process is ended with the test."""
    running = []

    def run(*words):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        command = [sys.executable, "-m", "polyseme", "serve", *map(str, words), "--port", str(port)]
        process = subprocess.Popen(
            command, stderr=subprocess.PIPE, env=os.environ | {"OMP_NUM_THREADS": "1"}
        )
        running.append(process)
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
    for process in running:
        process.kill()
        process.communicate()


def wait_until_blocked(client, label):
    for _ in range(600):
        if client.get(f"/v1/models/toy/labels/{label}").json()["blocked"]:
            return
        time.sleep(0.1)
    raise AssertionError("the change was not taken up")


def test_what_was_acknowledged_is_there_after_a_kill(start, model, world):
    process, client = start(model)
    features = {"x": world.X_test[0].tolist()}
    said = {"verdicts": [{"item": "x", "label": "sand", "answer": True}], "features": features}
    numbers = client.post("/v1/models/toy/learn", json=said).json()["numbers"]
    assert (
        client.post("/v1/models/toy/labels/sea/rename", json={"name": "ocean"}).status_code == 200
    )
    process.send_signal(signal.SIGKILL)
    process.wait(60)
    tagger = load(model)
    assert [one.number for one in tagger.verdicts_.standing()] == numbers
    assert "ocean" in tagger.classes_
    _, client = start(model)
    listed = client.get("/v1/models/toy/versions").json()["versions"]
    assert [one["action"] for one in listed] == ["opened", "rename"]


def test_annotations_of_label_studio_are_there_after_a_kill(start, model, world):
    process, client = start(model)
    config = '<View><Text name="t" value="$t"/><Taxonomy name="tags" toName="t"/></View>'
    for number in range(20):
        chosen = {"from_name": "tags", "value": {"taxonomy": [["sand"], [f"new {number}"]]}}
        body = {
            "action": "ANNOTATION_CREATED",
            "project": {"id": 1, "label_config": config},
            "task": {"id": number, "data": {"features": world.X_test[number].tolist()}},
            "annotation": {"id": number, "result": [chosen]},
        }
        response = client.post("/label-studio/toy/webhook", json=body)
        assert response.status_code == 201, response.text
    process.send_signal(signal.SIGKILL)
    process.wait(60)
    answers = {(one.item, one.label) for one in load(model).verdicts_.standing()}
    assert answers == {
        (f"label-studio 1 {number}", label)
        for number in range(20)
        for label in ("sand", f"new {number}")
    }


def test_it_ends_in_order_when_it_is_told_to(start, model):
    process, client = start(model)
    assert client.get("/").headers["content-type"].startswith("text/html")
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) in (0, -signal.SIGTERM)
    assert b"Traceback" not in process.stderr.read()


def test_a_changed_folder_is_taken_up_while_it_runs(start, model):
    _, client = start(model, "--watch", "0.1")
    load(model).block(["sand"]).save(model)
    wait_until_blocked(client, "sand")


def test_told_to_it_looks_at_the_folder(start, model):
    process, client = start(model, "--watch", "0")
    load(model).block(["sand"]).save(model)
    process.send_signal(signal.SIGHUP)
    wait_until_blocked(client, "sand")


def test_strangers_are_not_let_in_without_tokens(run, model):
    code, _, err = run("serve", model, "--host", "0.0.0.0")
    assert code == 1 and "polyseme token" in err


def test_tokens_are_made_at_the_command_line(run, tmp_path):
    code, out, err = run("token", tmp_path / "tokens.json", "ann", "--scope", "admin")
    assert code == 0 and out.startswith("ps_") and "ann" in err


def test_models_of_one_name_and_missing_ones_are_refused(run, model, tmp_path):
    code, _, err = run("serve", model, model)
    assert code == 1 and "must differ" in err
    code, _, err = run("serve", tmp_path / "none")
    assert code == 1 and "--items" in err


async def _slow(scope, receive, send):
    """Answer after longer than a head may take."""
    await asyncio.sleep(0.5)
    await send(
        {"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"4")]}
    )
    await send({"type": "http.response.body", "body": b"done"})


async def _left(reader: asyncio.StreamReader) -> bytes:
    """Read until the other side closes; what it did not read any more makes that a reset."""
    try:
        return await asyncio.wait_for(reader.read(), 60)
    except ConnectionResetError:
        return b""


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\nHost: x\r\nX-A: "])
def test_a_connection_on_which_no_request_begins_is_closed(sent):
    async def talk():
        config = uvicorn.Config(_slow, port=0, lifespan="off", http=impatient(0.1), log_config=None)
        server = uvicorn.Server(config)
        serving = asyncio.create_task(server.serve())
        while not server.started:
            await asyncio.sleep(0.01)
        port = server.servers[0].sockets[0].getsockname()[1]
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n")
        answered = await reader.readuntil(b"done")
        writer.write(sent)
        left = await _left(reader)
        fresh, other = await asyncio.open_connection("127.0.0.1", port)
        other.write(sent)
        assert (answered[:15], left, await _left(fresh)) == (
            b"HTTP/1.1 200 OK",
            b"",
            b"",
        )
        writer.close()
        other.close()
        server.should_exit = True
        await serving

    asyncio.run(talk())
