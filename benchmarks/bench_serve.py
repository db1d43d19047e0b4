"""What the service answers in a second, beside what the same process scores without HTTP.

The load comes from wrk on the same machine, by loopback.

    python benchmarks/bench_serve.py --out benchmarks
"""

from __future__ import annotations

import base64
import json
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from _reporting import Ratio, Report, Table, command_line
from _serving import Made, Server, load, make_tagger, serving

from polyseme.base.threads import one_blas_thread
from polyseme.studio.host import ModelHost, SuggestRequest


class Amount(NamedTuple):
    """Documents, labels and features of the model, seconds of each load, pictures and rounds."""

    documents: int
    labels: int
    features: int
    seconds: float
    pictures: int
    rounds: int


AMOUNTS = {
    "full": Amount(2560, 400, 1280, 10.0, 96, 30),
    "quick": Amount(300, 30, 64, 1.0, 8, 1),
}
CLIENTS = {"full": (1, 8, 64), "quick": (1, 8)}
ROWS = 64
RAW, JSON = "application/octet-stream", "application/json"
SUGGEST = "/v1/models/model/suggest"
# Requests a second, milliseconds, and shares of what goes without HTTP, on two cores.
RAW_TARGET, JSON_TARGET, P99_TARGET, SHARE_TARGET, PICTURE_TARGET = 1500.0, 700.0, 120.0, 0.6, 0.9
TEXT = """\
`polyseme serve` in a process of its own, asked by wrk on the same machine with {clients} clients, \
each with one request at a time, for {seconds:g} seconds: a tagger of {features:,} features, \
{codes:,} numbers of code and {labels} labels that has hardly been trained, {rows} different rows \
in turn, ten tags an answer. Raw is float32 numbers as bytes; JSON has them as decimal numbers. \
Processor time is that of the service alone. Without HTTP the same questions go to the same \
tagger in batches of {rows}, in this process, with one thread as in the service."""


def measure(size: str) -> Report:
    """Put a load on the service, and compare it with scoring alone."""
    amount = AMOUNTS[size]
    made = make_tagger(amount.documents, amount.labels, amount.features)
    text = TEXT.format(
        clients=" and ".join(map(str, CLIENTS[size])),
        rows=ROWS,
        codes=made.tagger.space_.item_codes(made.features[:1]).shape[1],
        **amount._asdict(),
    )
    report = Report("serve", "The service under load", text)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        made.tagger.save(folder / "model")
        _features(report, folder, made, amount, CLIENTS[size])
        _pictures(report, folder, amount)
    return report


def _features(
    report: Report, folder: Path, made: Made, amount: Amount, clients: tuple[int, ...]
) -> None:
    """Ask about features and tags, in every form."""
    rows = made.features[:ROWS].astype("<f4")
    bodies = _bodies(rows, made.tagger.classes_.tolist())
    alone, cpu = _alone(folder / "model", rows, amount.rounds)
    cells: list[list[Any]] = []
    found = {}
    with serving(folder / "model", "--watch", 0) as server:
        difference = _difference(server, made, rows, bodies)
        # Not counted: the map is laid out meanwhile.
        load(server, SUGGEST, bodies["JSON"][2], JSON, 8, amount.seconds, folder)
        for name, (path, kind, sent) in bodies.items():
            for n in clients:
                one = load(server, path, sent, kind, n, amount.seconds, folder)
                found[name, n] = one
                cells.append([name, n, one.a_second, one.p50_ms, one.p99_ms, one.cpu_micros])
                if one.n_failed:
                    raise SystemExit(f"{one.n_failed} requests failed: {name}, {n} clients")
    cells.append(["without HTTP, batches of 64", None, alone, None, None, 1e6 * cpu])
    columns = ["what is asked", "clients", "a second", "p50, ms", "p99, ms", "processor, µs each"]
    note = (
        f"Of {ROWS} rows, each asked in every form, all labels were those that `rank` gives, in "
        f"its order; the largest difference of a probability is {difference:.1g}, from rounding."
    )
    report.tables.append(Table("Requests", "form and clients", columns, cells, note, bars=[]))
    columns = ["rows at a time", "processor, ms a row"]
    ranked = _ranking(made.tagger, rows, amount.rounds)
    report.tables.append(Table("`rank` in this process", "rows at a time", columns, ranked))
    most = clients[-1]
    raw, plain = found["raw float32", most], found["JSON", most]
    unit = " a second"
    report.ratios += [
        Ratio(f"raw float32, {most} clients", round(raw.a_second), RAW_TARGET, unit=unit),
        Ratio(f"JSON, {most} clients", round(plain.a_second), JSON_TARGET, unit=unit),
        Ratio(f"raw float32, {most} clients, p99", raw.p99_ms, P99_TARGET, False, " ms"),
        Ratio(f"JSON, {most} clients, p99", plain.p99_ms, P99_TARGET, False, " ms"),
        Ratio(f"raw float32, {most} clients, of scoring alone", raw.a_second / alone, SHARE_TARGET),
    ]


def _bodies(rows: Any, labels: list[str]) -> dict[str, tuple[str, str, list[bytes]]]:
    """Return path, content type and bodies of every form of question."""

    def encoded(content: Any) -> bytes:
        return json.dumps(content).encode()

    def based(row: Any) -> dict[str, str]:
        return {"base64": base64.b64encode(row.tobytes()).decode()}

    pairs = [labels[n : n + 2] for n in range(min(ROWS, len(labels) - 1))]
    return {
        "raw float32": (SUGGEST, RAW, [row.tobytes() for row in rows]),
        "JSON": (SUGGEST, JSON, [encoded({"features": row.tolist()}) for row in rows]),
        "base64 in JSON": (SUGGEST, JSON, [encoded({"features": based(row)}) for row in rows]),
        "two tags": (SUGGEST, JSON, [encoded({"tags": pair}) for pair in pairs]),
        "/health/live": ("/health/live", JSON, []),
    }


def _alone(model: Path, rows: Any, rounds: int) -> tuple[float, float]:
    """Return how many questions a second go without HTTP, and the processor seconds of one.

    Both are of the best of some rounds.
    """
    host = ModelHost(model)
    asks = [SuggestRequest(np.ascontiguousarray(row)) for row in rows]
    with one_blas_thread():
        host.suggest(asks)
        seconds, cpu = [], []
        for _ in range(rounds):
            start, busy = time.perf_counter(), time.process_time()
            host.suggest(asks)
            seconds.append(time.perf_counter() - start)
            cpu.append(time.process_time() - busy)
    return len(asks) / min(seconds), min(cpu) / len(asks)


def _ranking(tagger: Any, rows: Any, rounds: int) -> list[list[Any]]:
    """Return processor milliseconds of `rank` a row, for one row and for all at a time.

    They are of the best of some rounds.
    """
    table, cells = rows.astype(np.float64), list[list[Any]]()
    with one_blas_thread():
        for n in (1, len(table)):
            blocks = [table[start : start + n] for start in range(0, len(table), n)]
            tagger.rank(blocks[0])
            cpu = []
            for _ in range(rounds):
                busy = time.process_time()
                for block in blocks:
                    tagger.rank(block)
                cpu.append(time.process_time() - busy)
            cells.append([n, 1000 * min(cpu) / len(table)])
    return cells


def _difference(server: Server, made: Made, rows: Any, bodies: dict[str, Any]) -> float:
    """Compare answers with what the tagger ranks; give the largest difference of probabilities."""
    largest = 0.0
    labels, scores = made.tagger.rank(rows, 10)
    for name in ("raw float32", "JSON", "base64 in JSON"):
        path, kind, sent = bodies[name]
        for body, names, values in zip(sent, labels, scores, strict=True):
            told = server.ask(path, body, kind)["suggestions"]
            wanted = [(one, value) for one, value in zip(names, values, strict=True) if value > 0]
            if [one["label"] for one in told] != [one for one, _ in wanted]:
                raise SystemExit(f"{name}: the service answers otherwise than the tagger")
            given = np.array([one["probability"] for one in told])
            largest = max(largest, float(np.abs(given - [value for _, value in wanted]).max()))
    return largest


def _pictures(report: Report, folder: Path, amount: Amount) -> None:
    """Upload pictures, beside what the network alone looks at."""
    from bench_extraction import photographs

    from polyseme.media import ImageFeatures
    from polyseme.space.concept_space import ConceptSpace
    from polyseme.tagger import ZeroShotTagger

    files = photographs(folder / "pictures", amount.pictures)
    extractor = ImageFeatures()
    tags = [[f"tag {n % 7}", f"tag {n % 5 + 7}"] for n in range(len(files))]
    tagger = ZeroShotTagger(
        ConceptSpace(n_steps=8), features=extractor, n_validations=0, random_state=0
    )
    tagger.fit(files, tags).save(folder / "model")
    alone, cpu = _looking(extractor, files)
    bodies, cells = [path.read_bytes() for path in files], []
    with serving(folder / "model", "--watch", 0) as server:
        server.ask(SUGGEST, bodies[0], "image/jpeg")  # the network is loaded
        for n in (1, 8):
            one = load(server, SUGGEST, bodies, "image/jpeg", n, amount.seconds, folder)
            cells.append([f"uploads, {n} clients", one.a_second, one.p99_ms, one.cpu_micros / 1000])
            if one.n_failed:
                raise SystemExit(f"{one.n_failed} uploads failed")
    cells.append(["the network alone, batches of 8", alone, None, 1000 * cpu])
    columns = ["way", "pictures a second", "p99, ms", "processor, ms each"]
    note = "EfficientNet-Lite0 on 1.9-megapixel JPEG files, decoded and looked at by one thread."
    report.tables.append(Table("Pictures", "the way", columns, cells, note))
    share = one.a_second / alone
    report.ratios.append(Ratio("uploads, 8 clients, of the network alone", share, PICTURE_TARGET))


def _looking(extractor: Any, files: list[Path]) -> tuple[float, float]:
    """Return how many pictures a second one thread looks at, and the processor seconds of one."""
    batches = [files[start : start + 8] for start in range(0, len(files), 8)]
    with extractor.single_threaded():
        extractor.extract_batch(batches[0])
        start, busy = time.perf_counter(), time.process_time()
        for batch in batches:
            extractor.extract_batch(batch)
        cpu = time.process_time() - busy
    return len(files) / (time.perf_counter() - start), cpu / len(files)


if __name__ == "__main__":
    command_line(measure)
