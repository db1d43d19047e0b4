"""The service under mixed load for half an hour: what breaks, what is lost, what grows.

Many clients suggest, learn, undo, look around, send what cannot be used, reload the model and
change its vocabulary. At the end the process is killed in the midst of it, and every verdict that
was acknowledged is looked for in the log. `POLYSEME_SOAK` gives other minutes than 30, and
`POLYSEME_PAUSE` seconds that each client waits, on average, between two requests.

    POLYSEME_SOAK=120 POLYSEME_PAUSE=0.3 python benchmarks/bench_soak.py --out benchmarks
"""

from __future__ import annotations

import asyncio
import os
import random
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple

import httpx
from _reporting import Ratio, Report, Table, command_line
from _serving import Made, Server, make_tagger, serving

from polyseme.feedback.verdict_log import Undo, Verdict, VerdictLog


class Amount(NamedTuple):
    """Documents, labels and features of the model, minutes, clients, and seconds between two."""

    documents: int
    labels: int
    features: int
    minutes: float
    clients: int
    pause: float = 0.0


AMOUNTS = {"full": Amount(2560, 400, 1280, 30.0, 12), "quick": Amount(300, 30, 64, 0.2, 6)}
ITEMS = 200  # that are answered for, again and again
LOOKS = 24  # at memory and files
BASE = "/v1/models/model"
RAW = {"Content-Type": "application/octet-stream"}
TEXT = """\
`polyseme serve` for {minutes:g} minutes, with {clients} clients that each send one request after \
another, with {pause:g} seconds between them on average, drawn at random: {kinds}. The model has \
{labels} labels and {features:,} features, and is looked at for changes every second. At the end \
the process is killed (SIGKILL) while requests are under way; then every answer that it \
acknowledged is looked for in the log of verdicts, and what was taken back must be taken back \
there. A reload holds two models for a moment, so that memory is compared by means of some looks."""


@dataclass
class Seen:
    """What the clients have sent, and what they were told."""

    statuses: dict[str, Counter[int]] = field(default_factory=dict)
    verdicts: dict[int, tuple[str, str, bool]] = field(default_factory=dict)
    undone: set[int] = field(default_factory=set)
    # Undos that were sent and not acknowledged before the kill may stand either way.
    sent: set[int] = field(default_factory=set)
    errors: list[str] = field(default_factory=list)
    killed: bool = False

    @property
    def n(self) -> int:
        """How many answers came."""
        return sum(sum(one.values()) for one in self.statuses.values())

    @property
    def n_failed(self) -> int:
        """How many of them were the service's own fault."""
        codes = (code for one in self.statuses.values() for code in one.elements())
        return sum(code >= 500 for code in codes)


class Client:
    """One who asks; several share what they have seen."""

    def __init__(self, http: httpx.AsyncClient, made: Made, seen: Seen, seed: int) -> None:
        self.http, self.seen, self.rng = http, seen, random.Random(seed)
        self.rows = made.features[:ITEMS].astype("<f4")
        self.labels = made.tagger.classes_.tolist()
        # Each changes labels of its own, so that none undoes what another expects.
        self.own = self.labels[-1 - seed]

    async def post(self, path: str, **given: Any) -> httpx.Response:
        """Send one request below the model."""
        return await self.http.post(BASE + path, **given)

    async def suggest_raw(self) -> httpx.Response:
        """Ask about numbers."""
        row = self.rows[self.rng.randrange(ITEMS)]
        return await self.post("/suggest", content=row.tobytes(), headers=RAW)

    async def suggest_json(self) -> httpx.Response:
        """Ask about numbers and a tag."""
        row = self.rows[self.rng.randrange(ITEMS)].tolist()
        return await self.post("/suggest", json={"features": row, "tags": [self.labels[0]], "k": 5})

    async def suggest_tags(self) -> httpx.Response:
        """Ask about tags alone."""
        return await self.post("/complete", json={"tags": self.rng.sample(self.labels[:9], 2)})

    async def learn(self) -> httpx.Response:
        """Answer yes or no to a label of an item."""
        item = self.rng.randrange(ITEMS)
        name, yes = f"item {item}", self.rng.random() < 0.5
        label = self.rng.choice(self.labels[:20])
        one = {"item": name, "label": label, "answer": yes}
        features = {name: self.rows[item].tolist()}
        answer = await self.post("/learn", json={"verdicts": [one], "features": features})
        if answer.status_code == 200:
            self.seen.verdicts[answer.json()["numbers"][0]] = (name, label, yes)
        return answer

    async def undo(self) -> httpx.Response:
        """Take an answer back that nobody else takes back."""
        left = list(self.seen.verdicts.keys() - self.seen.sent)[:50]
        if not left:
            return await self.learn()
        number = self.rng.choice(left)
        self.seen.sent.add(number)
        answer = await self.post("/undo", json={"numbers": [number]})
        if answer.status_code == 200:
            self.seen.undone.add(number)
        return answer

    async def look(self) -> httpx.Response:
        """Look around."""
        paths = ["", "/labels?limit=20", f"/labels/{self.labels[0]}", "/space", "/versions"]
        paths += ["/verdicts?limit=20", "/candidates", "/export"]
        return await self.http.get(BASE + self.rng.choice(paths))

    async def malformed(self) -> httpx.Response:
        """Send what cannot be used."""
        wrong: list[Callable[[], Awaitable[httpx.Response]]] = [
            lambda: self.post("/suggest", content=b"abc", headers=RAW),
            lambda: self.post("/suggest", content=b"\0" * 4, headers=RAW),
            lambda: self.post("/suggest", content=b"\xff" * self.rows[0].nbytes, headers=RAW),
            lambda: self.post("/suggest", json={"features": [1.0, 2.0]}),
            lambda: self.post("/suggest", json={"features": {"base64": "?", "dtype": "float32"}}),
            lambda: self.post("/suggest", content=b"{", headers={"Content-Type": RAW_JSON}),
            lambda: self.post("/suggest", content=b"x", headers={"Content-Type": "text/html"}),
            lambda: self.post("/complete", json={"tags": ["no such tag at all"]}),
            lambda: self.post("/learn", json={"verdicts": [{"item": "nobody", "label": "x"}]}),
            lambda: self.post("/undo", json={"numbers": [10**9]}),
            lambda: self.post("/labels/nothing/rename", json={"name": "x"}),
            lambda: self.http.get("/v1/models/other"),
            lambda: self.http.put("/v1/models/model"),
            lambda: self.http.get("/nowhere", headers={"Origin": "http://elsewhere.example"}),
            lambda: self.post("/suggest", content=b"\0" * 2**21, headers=RAW),
        ]
        answer = await self.rng.choice(wrong)()
        if not 400 <= answer.status_code < 500:
            self.seen.errors.append(f"{answer.request.url.path}: {answer.status_code}")
        return answer

    async def change(self) -> httpx.Response:
        """Block a label and let it come back, or rename it there and back."""
        if self.rng.random() < 0.5:
            await self.post(f"/labels/{self.own}/block", json={"undo": False})
            return await self.post(f"/labels/{self.own}/block", json={"undo": True})
        await self.post(f"/labels/{self.own}/rename", json={"name": f"{self.own} again"})
        return await self.post(f"/labels/{self.own} again/rename", json={"name": self.own})

    async def grow(self) -> httpx.Response:
        """Add a label by a tag set, and remove it."""
        name = f"late {self.own}"
        await self.post("/labels", json={"documents": [[name, *self.labels[:2]]]})
        return await self.http.delete(f"{BASE}/labels/{name}")

    async def reload(self) -> httpx.Response:
        """Load the model on disk again."""
        return await self.post("/reload")


RAW_JSON = "application/json"
# How often each is drawn.
KINDS: dict[str, tuple[Callable[[Client], Awaitable[httpx.Response]], float]] = {
    "suggest, raw numbers": (Client.suggest_raw, 100),
    "suggest, JSON": (Client.suggest_json, 60),
    "complete": (Client.suggest_tags, 40),
    "look around": (Client.look, 10),
    "malformed": (Client.malformed, 20),
    "learn": (Client.learn, 6),
    "undo": (Client.undo, 2),
    "rename, block": (Client.change, 0.3),
    "add, remove": (Client.grow, 0.3),
    "reload": (Client.reload, 0.3),
}


def measure(size: str) -> Report:
    """Put mixed load on the service, kill it, and count what was lost."""
    amount = AMOUNTS[size]
    minutes = float(os.environ.get("POLYSEME_SOAK", 0)) or amount.minutes
    pause = float(os.environ.get("POLYSEME_PAUSE", 0)) or amount.pause
    amount = amount._replace(minutes=minutes, pause=pause)
    made = make_tagger(amount.documents, amount.labels, amount.features)
    text = TEXT.format(kinds=", ".join(KINDS), **amount._asdict())
    report = Report("soak", "The service under mixed load", text)
    seen = Seen()
    with tempfile.TemporaryDirectory() as place:
        model = Path(place) / "model"
        made.tagger.save(model)
        with serving(model, "--watch", 1, "--max-body", 1) as server:
            looks = asyncio.run(_soak(server, made, seen, amount))
        lost, n_events = _lost(model, seen)
    if seen.errors:
        raise SystemExit(
            f"what cannot be used was taken, {len(seen.errors)} times: {seen.errors[0]}"
        )
    rows: list[list[Any]] = [
        [name, *(_counted(found, low) for low in (200, 400, 500)), _told(found)]
        for name, found in seen.statuses.items()
    ]
    columns = ["what", "2xx", "4xx", "5xx", "by status"]
    report.tables.append(Table("Answers", "what was sent", columns, rows, bars=[]))
    columns = ["minutes", "requests so far", "memory, MB", "files open"]
    report.tables.append(Table("Memory and files", "time", columns, looks, bars=[]))
    rows = [
        ["acknowledged answers", len(seen.verdicts)],
        ["of these taken back, acknowledged", len(seen.undone)],
        ["events in the log", n_events],
        ["lost", lost],
    ]
    report.tables.append(Table("Verdicts after the kill", "what", ["what", "n"], rows, bars=[]))
    third = len(looks) // 3
    grown = mean(look[2] for look in looks[-third:]) / mean(look[2] for look in looks[third:-third])
    report.ratios += [
        Ratio("5xx answers", seen.n_failed, 0, False, ""),
        Ratio("acknowledged verdicts that were lost", lost, 0, False, ""),
        Ratio("memory in the last third, of that in the second", grown, 1.1, False),
        Ratio("files open, more than after a third", looks[-1][3] - looks[third][3], 8, False, ""),
    ]
    return report


def _counted(found: Counter[int], low: int) -> int:
    """Count statuses of a hundred."""
    return sum(n for code, n in found.items() if low <= code < low + 100)


def _told(found: Counter[int]) -> str:
    """Return counts by status."""
    return ", ".join(f"{code}: {n:,}" for code, n in sorted(found.items()))


async def _soak(server: Server, made: Made, seen: Seen, amount: Amount) -> list[list[Any]]:
    """Let all clients ask until the time is over, then kill the service; give the looks at it."""
    start, looks = time.monotonic(), []
    limits = httpx.Limits(max_connections=2 * amount.clients)
    async with httpx.AsyncClient(base_url=server.url, timeout=60, limits=limits) as http:
        clients = [Client(http, made, seen, seed) for seed in range(amount.clients)]
        tasks = [asyncio.create_task(_ask(one, seen, amount.pause)) for one in clients]
        for _ in range(LOOKS):
            await asyncio.sleep(60 * amount.minutes / LOOKS)
            for task in tasks:
                if task.done():
                    task.result()
            gone = (time.monotonic() - start) / 60
            looks.append([round(gone, 2), seen.n, server.memory_mb, server.n_handles])
        seen.killed = True
        server.kill()
        await asyncio.gather(*tasks)
    return looks


async def _ask(client: Client, seen: Seen, pause: float) -> None:
    """Ask one thing after another until the service is killed."""
    names = list(KINDS)
    weights = [KINDS[name][1] for name in names]
    while not seen.killed:
        (name,) = client.rng.choices(names, weights)
        try:
            answer = await KINDS[name][0](client)
        except httpx.HTTPError:
            if not seen.killed:
                raise
            return
        seen.statuses.setdefault(name, Counter())[answer.status_code] += 1
        if pause:
            await asyncio.sleep(client.rng.expovariate(1 / pause))


def _lost(model: Path, seen: Seen) -> tuple[int, int]:
    """Count acknowledged answers that the log does not have as they were given; and its events."""
    log = VerdictLog(model)
    events = list(log.events())
    kept = {
        one.number: (one.item, one.label, one.answer) for one in events if isinstance(one, Verdict)
    }
    undone = {one.undoes for one in events if isinstance(one, Undo)}
    missing = [number for number, said in seen.verdicts.items() if kept.get(number) != said]
    missing += [number for number in seen.undone if number not in undone]
    missing += [number for number in undone if number not in seen.sent]
    return len(missing), len(events)


if __name__ == "__main__":
    command_line(measure)
