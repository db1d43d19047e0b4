"""The service, ended and killed under load, with a disk, a model and a log that fail while it runs.

Everything that it acknowledged is there afterwards, every request that was under way is answered,
what it cannot do is one sentence, and it goes on answering with what it has.
"""

from __future__ import annotations

import http.client
import json
import os
import random
import shutil
import signal
import socket
import sqlite3
import time
from collections.abc import Callable, Iterator
from itertools import cycle
from pathlib import Path
from typing import Any, Self

from polyseme.storage.model_file import MODEL_FILE
from torture import Tried
from torture.commands import State, Workshop, workshop
from torture.faults import FULL, KILL, NOTHING, Ended, Fault

_MODEL = "/v1/models/served"
_ROW = [0.1, 0.2, 0.3, 0.4, 0.5]
_ASK = {"features": _ROW, "k": 3}
_SUGGEST = f"{_MODEL}/suggest"
_TRIES = 600  # looks at something that is about to happen


class FaultError(Exception):
    """Something that must not be."""


def require(holds: object, sentence: str) -> None:
    """Raise unless something holds."""
    if not holds:
        raise FaultError(sentence)


class Service:
    """One that runs, and what it has acknowledged."""

    def __init__(self, work: Workshop, folder: Path, *words: str, fault: Fault = NOTHING) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.work, self.folder, self.model = work, folder, folder / "served"
        self.told: dict[int, str] = {}  # acknowledged answers
        self.ended: Ended | None = None
        options = ["--port", str(self.port), "--deadline", "5", *(words or ("--watch", "0"))]
        self.child = work.host.start(folder, "serve", "served", *options, fault=fault)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.ended is None:
            self.end(signal.SIGKILL)

    def until(self, holds: Callable[[], object], description: str) -> None:
        """Look until something is so."""
        for _ in range(_TRIES):
            if holds():
                return
            time.sleep(0.05)
        raise FaultError(f"it never came: {description}")

    def ready(self) -> Self:
        """Wait until it answers."""
        self.until(lambda: self.ask("/health/ready")[0] == 200, "the service")
        return self

    def ask(self, path: str, body: Any = None) -> tuple[int, Any]:
        """Send a request; give status and content, or 0 where there is no answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            method = "GET" if body is None else "POST"
            sent = None if body is None else json.dumps(body)
            connection.request(method, path, sent, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())
        except (OSError, http.client.HTTPException):
            return 0, None
        finally:
            connection.close()

    def good(self, path: str, body: Any = None) -> Any:
        """Send a request that must be answered."""
        status, content = self.ask(path, body)
        require(status == 200, f"{path} is answered by {status}: {content}")
        return content

    def learn(self, item: str, label: str = "tag5") -> int:
        """Answer a question; note what is acknowledged."""
        request = {"verdicts": [{"item": item, "label": label, "answer": True}]}
        status, content = self.ask(f"{_MODEL}/learn", request | {"features": {item: _ROW}})
        if status == 200:
            self.told |= dict.fromkeys(content["numbers"], item)
        elif status:
            self.refused(status, content)
        return status

    def refused(self, status: int, content: Any) -> None:
        """See that a refusal is one sentence that says nothing of our insides."""
        require(status in (409, 422, 503), f"status {status}: {content}")
        require(isinstance(content, dict), f"no sentence: {content}")
        detail = content.get("detail", "")
        require(detail.endswith("."), f"no sentence: {content}")
        require("Traceback" not in detail, f"no sentence: {content}")

    def end(self, number: int) -> Ended:
        """Send a signal and wait for the end."""
        os.kill(self.child, number)
        return self.wait()

    def wait(self) -> Ended:
        """Wait for the end."""
        self.ended = self.work.host.wait(self.child)
        return self.ended

    def check(self) -> None:
        """See that the model is whole and everything is there that was acknowledged."""
        from polyseme.feedback.verdict_log import VerdictLog

        state = State.of(self.model)
        for name, digest in state.seen.items():
            require(not digest.startswith("refused"), f"damaged: {name} is {digest}")
        with VerdictLog(self.model) as log:
            events = list(log.events())
        logged_items = {event.number: getattr(event, "item", None) for event in events}
        for number, item in self.told.items():
            require(logged_items.get(number) == item, f"lost: {number}, {item}")


# ---------------------------------------------------------------------- what goes wrong


def ended_with_requests_under_way(work: Workshop, folder: Path, rng: random.Random) -> str:
    """SIGTERM while requests have been begun; each of them is answered."""
    with Service(work, folder).ready() as service:
        features = {str(n): _ROW for n in range(4)}
        bodies: list[tuple[str, Any]] = [(_SUGGEST, _ASK)] * rng.randint(1, 4)
        for item in features:
            verdicts = [{"item": item, "label": "tag5", "answer": True}]
            bodies.append((f"{_MODEL}/learn", {"verdicts": verdicts, "features": {item: _ROW}}))
        rng.shuffle(bodies)
        begun = [_begin(service.port, path, body) for path, body in bodies]
        os.kill(service.child, signal.SIGTERM)
        for (path, body), (connection, sent) in zip(bodies, begun, strict=True):
            status, content = _finish(connection, sent)
            require(status == 200, f"{path} was under way and is answered by {status}: {content}")
            if path.endswith("learn"):
                service.told[content["numbers"][0]] = body["verdicts"][0]["item"]
        ended = service.wait()
        require(ended.code in (0, -signal.SIGTERM), f"exit code {ended.code}: {ended.err[-500:]}")
        require("Traceback" not in ended.err, ended.err[-500:])
        require(len(service.told) == 4, f"answered: {service.told}")
        service.check()
    return "all answered"


def _begin(port: int, path: str, body: Any) -> tuple[socket.socket, bytes]:
    """Begin a request and wait until the service asks for the rest of it."""
    data = json.dumps(body).encode()
    connection = socket.create_connection(("127.0.0.1", port), timeout=60)
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    head += f"Content-Length: {len(data)}\r\nExpect: 100-continue\r\nConnection: close\r\n\r\n"
    connection.sendall(head.encode())
    received = connection.recv(1000)
    require(received.startswith(b"HTTP/1.1 100"), f"it did not ask for more: {received!r}")
    return connection, data


def _finish(connection: socket.socket, data: bytes) -> tuple[int, Any]:
    """Send the rest of a request; give status and content."""
    with connection:
        try:
            connection.sendall(data)
            answer = http.client.HTTPResponse(connection)
            answer.begin()
            return answer.status, json.loads(answer.read())
        except (OSError, http.client.HTTPException) as error:
            return 0, repr(error)


def _use(service: Service, rng: random.Random) -> None:
    """Ask, answer, take back and change until there are enough, or nobody answers any more."""
    for number in range(12):
        status = service.learn(f"item {number}")
        if not status:
            return
        if number % 4 == 1 and service.told:
            status, content = service.ask(f"{_MODEL}/undo", {"numbers": [max(service.told)]})
        elif number % 4 == 3:
            name = {"name": f"name {number}"}
            status, content = service.ask(f"{_MODEL}/labels/tag{number % 3 + 6}/rename", name)
        else:
            status, content = service.ask(_SUGGEST, _ASK)
        if status not in (0, 200, 404):
            service.refused(status, content)


def killed_at_an_instant(work: Workshop, folder: Path, rng: random.Random) -> str:
    """SIGKILL at an instant at which a file is changed; a new one goes on from there."""
    with Service(work, folder, fault=KILL.placed(rng.randint(20, 400))) as service:
        try:
            service.ready()
        except FaultError:
            require(service.wait().code == -9, f"it did not start: {service.ended}")
        _use(service, rng)
        if service.ended is None:
            require(service.end(signal.SIGKILL).code == -9, f"it ended: {service.ended}")
        service.check()
        with Service(work, folder).ready() as second:
            second.good(_SUGGEST, _ASK)
            require(second.learn("after") == 200, "it takes no answers any more")
            require(second.end(signal.SIGTERM).code in (0, -15), f"{second.ended}")
            second.check()
        service.check()
    return "killed"


def full_while_it_learns(work: Workshop, folder: Path, rng: random.Random) -> str:
    """A disk that is full from some moment on; questions are answered all the same."""
    # After the first: as many instants as opening the model takes.
    with Service(work, folder, fault=FULL.placed(rng.randint(30, 120))) as service:
        try:
            service.ready()
        except FaultError:
            ended = service.wait()
            require(ended.sentence(), f"it did not start: {ended}")
            return "one sentence"
        _use(service, rng)
        service.good(_SUGGEST, _ASK)
        ended = service.end(signal.SIGTERM)
        require(ended.code in (0, -15), f"exit code {ended.code}: {ended.err[-500:]}")
        service.check()
    return "went on"


def model_broken_on_disk(work: Workshop, folder: Path, rng: random.Random) -> str:
    """A model that is cut, crafted or half copied over; the one in use goes on, and says so."""
    words = rng.choice([("--watch", "0"), ("--watch", "0.05")])
    with Service(work, folder, *words).ready() as service:
        before = service.good(_SUGGEST, _ASK)
        good = Path(shutil.copytree(service.model, folder / "good"))
        how = rng.choice([_cut, _flipped, _crafted, _half_copied, _without])
        how(service.model, rng)
        if words[1] == "0":
            status, content = service.ask(f"{_MODEL}/reload", {})
            require(status != 200, f"{how.__name__}: it was taken")
            service.refused(status, content)
        service.until(lambda: service.good(_MODEL).get("trouble"), f"{how.__name__}: trouble")
        now = service.good(_SUGGEST, _ASK)
        require(now == before, f"{how.__name__}: {now} in place of {before}")
        for file in good.iterdir():
            if file.is_file() and not file.name.startswith("verdicts"):
                shutil.copy(file, service.model)
        if words[1] == "0":
            service.good(f"{_MODEL}/reload", {})
        service.until(lambda: not service.good(_MODEL).get("trouble"), f"{how.__name__}: no end")
        require(service.good(_SUGGEST, _ASK)["suggestions"], "no answers")
        require(service.end(signal.SIGTERM).code in (0, -15), f"{service.ended}")
        require("Traceback" not in service.ended.err, service.ended.err[-500:])  # type: ignore[union-attr]
    return "went on with the former model"


def _cut(model: Path, rng: random.Random) -> None:
    data = (model / MODEL_FILE).read_bytes()
    (model / MODEL_FILE).write_bytes(data[: rng.randrange(len(data))])


def _flipped(model: Path, rng: random.Random) -> None:
    file = model / MODEL_FILE
    data = bytearray(file.read_bytes())
    position = rng.randrange(len(data))
    bit = rng.randrange(8)
    data[position] ^= 1 << bit
    file.write_bytes(bytes(data))


def _crafted(model: Path, rng: random.Random) -> None:
    """A digest that fits arrays which do not fit each other."""
    from polyseme.storage.model_file import read_model, write_model

    config, arrays = read_model(model, "tagger")
    name = rng.choice([name for name in arrays if arrays[name].size > 1])
    arrays[name] = arrays[name].ravel()[:-1]
    write_model(model, "tagger", config, arrays)


def _half_copied(model: Path, rng: random.Random) -> None:
    """The first part of another model, whose rest is on its way."""
    data = (model.with_name("plain") / MODEL_FILE).read_bytes()
    (model / MODEL_FILE).write_bytes(data[: len(data) // 2])


def _without(model: Path, rng: random.Random) -> None:
    (model / MODEL_FILE).unlink()


def copied_slowly(work: Workshop, folder: Path, rng: random.Random) -> str:
    """A model that is copied over slowly is taken up when all of it is there."""
    with Service(work, folder, "--watch", "0.05").ready() as service:
        before = service.good(_SUGGEST, _ASK)["version"].partition("-")[0]
        _half_copied(service.model, rng)
        service.until(lambda: service.good(_MODEL).get("trouble"), "trouble")
        shutil.copy(service.model.with_name("plain") / MODEL_FILE, service.model)

        def is_new() -> bool:
            return service.good(_SUGGEST, _ASK)["version"].partition("-")[0] != before

        service.until(is_new, "the copied model")
        require(service.end(signal.SIGTERM).code in (0, -15), f"{service.ended}")
    return "taken up when it was whole"


def log_locked_by_another(work: Workshop, folder: Path, rng: random.Random) -> str:
    """Another process holds the log: questions are answered, answers wait or are refused."""
    with Service(work, folder, "--watch", "0", "--deadline", "1").ready() as service:
        service.learn("before")
        with sqlite3.connect(service.model / "verdicts.sqlite", timeout=60) as database:
            database.execute("BEGIN IMMEDIATE")
            status = service.learn("meanwhile")
            require(status == 503, f"status {status} while the log was locked")
            service.good(_SUGGEST, _ASK)
            database.execute("ROLLBACK")
        database.close()
        service.until(lambda: service.learn("after") == 200, "the log, free again")
        require(service.end(signal.SIGTERM).code in (0, -15), f"{service.ended}")
        service.check()
    return "refused meanwhile"


def log_damaged(work: Workshop, folder: Path, rng: random.Random) -> str:
    """The log is overwritten while it is in use, or before: told, and never added to."""
    file = folder / "served" / "verdicts.sqlite"
    at_start = rng.random() < 0.5
    if at_start:
        _damage(file, rng)
    with Service(work, folder) as service:
        if at_start:
            ended = service.wait()
            require(ended.code == 1 and ended.sentence(), f"{ended.code}: {ended.err[-500:]}")
            return "one sentence at the start"
        service.ready()
        _damage(file, rng)
        service.learn("later")
        service.good(_SUGGEST, _ASK)
        ended = service.end(signal.SIGTERM)
        require(ended.code in (0, -15), f"exit code {ended.code}: {ended.err[-500:]}")
        require("Traceback" not in ended.err, ended.err[-500:])
    return "went on"


def _damage(file: Path, rng: random.Random) -> None:
    """Put something else in the place of a log, or of its first page."""
    data = bytearray(file.read_bytes())
    if rng.random() < 0.5:
        file.unlink()
        file.write_bytes(b"no database" * 100)
    else:
        start = rng.choice([0, 16, 100])
        data[start : start + 200] = rng.randbytes(200)
        file.write_bytes(data)


_SCENES = [
    ended_with_requests_under_way,
    killed_at_an_instant,
    model_broken_on_disk,
    log_damaged,
    full_while_it_learns,
    log_locked_by_another,
    copied_slowly,
]


def attack(place: Path, rng: random.Random) -> Iterator[Tried]:
    """Let one thing after another go wrong."""
    work = workshop()
    for scene in cycle(_SCENES):
        name = scene.__name__.replace("_", " ")
        with work.copy(["served", "plain"]) as folder:
            try:
                outcome = scene(work, folder, rng)
                yield Tried(name, f"{name}: {outcome}", True)
            except FaultError as error:
                yield Tried(name, f"{name}: fault", False, str(error)[:1500])
