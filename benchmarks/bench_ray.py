"""What a Ray cluster costs beside one process: shards of features ranked into a folder, either way.

One process with one thread, Ray with one worker and Ray with two, all on this machine; and the
bytes that they write, which must not differ.

    python benchmarks/bench_ray.py --out benchmarks
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from _reporting import Report, Table, command_line
from _synthetic import make_themes, synthetic_features, synthetic_matrix

from polyseme import ConceptEmbedding, ContextDescriptor, InstanceMapper, TrainingPlan
from polyseme.cluster import RayTraining, extract_media, open_engine, rank_shards
from polyseme.cluster.engines import RayEngine
from polyseme.corpus import LabelCorpus
from polyseme.features.extraction import FeatureStore
from polyseme.io.shards import write_shards
from polyseme.io.xmp import merge_tags
from polyseme.published.tagger import PublishedTagger
from polyseme.space import ConceptSpace
from polyseme.tagger import ZeroShotTagger


class Amount(NamedTuple):
    """Rows, rows a shard, documents and labels of the models, and which taggers."""

    rows: int
    shard: int
    documents: int
    labels: int
    repeats: int
    pieces: int
    pictures: int
    scores: tuple[str, ...]


AMOUNTS = {
    "full": Amount(200_000, 10_000, 3000, 100, 2, 500, 128, ("published", "default")),
    "quick": Amount(2000, 500, 200, 20, 1, 20, 16, ("default",)),
}
N_FEATURES = 128
TEXT = """\
{rows:,} rows of {columns} features in shards of {shard:,}, ranked by `rank_shards` (the ten best \
of {labels} labels, JSON lines) with a model of {documents:,} documents: in this process with one \
thread, and by workers of a Ray cluster on this machine. Workers are started before the clock is, \
and have loaded the model; the ways take turns, and the least of {repeats} rounds counts."""


COLUMNS = ("against one process", "processor against one process")
NOTE = """\
Processor seconds are those of the asking process and of all workers together; they hardly depend \
on what else the machine does."""
Ways = dict[str, RayEngine | None]


class Small:
    """What the jobs of this file have in common."""

    def name_of(self, piece: Any) -> str:
        """Name a piece."""
        return "a piece"


class Nothing(Small):
    """A job whose pieces do nothing: what is left is what Ray takes for a piece."""

    def start(self) -> Callable[[Any], Any]:
        """Give the function that does nothing."""
        return lambda piece: None


class Named(Small):
    """A job whose pieces wait a little and name their process."""

    def start(self) -> Callable[[Any], Any]:
        """Give the function that names a process."""

        def name(piece: int) -> int:
            time.sleep(0.1)
            return os.getpid()

        return name


def measure(size: str) -> Report:
    """Compare one process with one and two workers of Ray."""
    amount = AMOUNTS[size]
    with tempfile.TemporaryDirectory() as made, open_engine("ray", workers=2) as engine:
        assert engine is not None
        if __name__ != "__main__":
            # Workers cannot import this file; its jobs travel whole.
            engine.ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
        ways = {"one process": None, "Ray, 1 worker": RayEngine(engine.ray, 1)}
        pids = {os.getpid(), *engine.run(Named(), range(8))}
        tables = _tables(amount, Path(made), ways | {"Ray, 2 workers": engine}, pids)
    tables.append(_training(amount))
    text = TEXT.format(columns=N_FEATURES, **amount._asdict())
    return Report("ray", "One process and a Ray cluster", text, tables)


def _tables(amount: Amount, folder: Path, ways: Ways, pids: set[int]) -> list[Table]:
    """Measure all ways for each score."""
    themes = make_themes(amount.labels, 0, n_features=N_FEATURES)
    matrix = synthetic_matrix(amount.documents, themes, 0)
    features = synthetic_features(matrix, themes, 0)
    corpus = LabelCorpus.from_indicator(
        matrix, labels=[f"label {n}" for n in range(themes.n_labels)]
    )
    rows = np.random.default_rng(0).integers(amount.documents, size=amount.rows)
    write_shards(features[rows], folder / "shards", amount.shard)
    write_shards(features[:160], folder / "few", 20)
    tables = []
    for score in amount.scores:
        model = folder / score
        _model(score).fit(features, corpus).save(model)
        tables.append(_ranking(score, model, amount, ways, pids))
    if importlib.util.find_spec("efficientnet_lite_pytorch") is not None:
        tables.append(_extraction(amount, folder, ways, pids))
    tables.append(_pieces(amount, ways))
    tables.append(_writing(amount, folder))
    return tables


def _training(amount: Amount) -> Table:
    """Fit the default in this process and by workers of Ray Train; compare seconds and scores."""
    themes = make_themes(amount.labels, 0, n_features=N_FEATURES)
    matrix = synthetic_matrix(amount.documents, themes, 0)
    features = synthetic_features(matrix, themes, 0)
    labels = [f"label {n}" for n in range(themes.n_labels)]
    corpus = LabelCorpus.from_indicator(matrix, labels=labels)
    ways: dict[str, Any] = {"one process": None}
    ways |= {f"Ray Train, {n} worker{'s'[: n - 1]}": RayTraining(n) for n in (1, 2)}
    space = ConceptSpace(n_steps=None if amount.rows > 2000 else 8)
    rows: list[list[Any]] = []
    for name, trainer in ways.items():
        start = time.perf_counter()
        tagger = ZeroShotTagger(space, random_state=0).fit(features, corpus, trainer=trainer)
        seconds, scores = time.perf_counter() - start, tagger.predict_proba(features[:500])
        losses = [list(one.values()) for one in tagger.space_.history_]
        if not rows:
            alone = (seconds, scores, losses)
        same = np.array_equal(scores, alone[1]) and np.allclose(losses, alone[2], rtol=1e-12)
        rows.append([name, seconds, seconds / alone[0], "the same" if same else "others"])
    columns = ["way", "seconds", "against one process", "losses of all rounds, and scores"]
    note = "With Ray's own start. One process has a thread for each processor."
    title = f"Training the default: {amount.documents:,} documents, {amount.labels} labels"
    return Table(title, "who trains", columns, rows, note)


def _model(score: str) -> ZeroShotTagger | PublishedTagger:
    """Make a tagger that is fitted quickly: how good it is does not matter here."""
    if score == "default":
        return ZeroShotTagger(ConceptSpace(n_steps=20), random_state=0)
    embedding = ConceptEmbedding(
        n_components=32,
        hidden_sizes=(64,),
        context_descriptor=ContextDescriptor(n_topics=8, n_iter=30),
        training=TrainingPlan(max_epochs=2, min_steps=5),
    )
    mapper = InstanceMapper(kind="kernel-ridge")
    return PublishedTagger(embedding=embedding, mapper=mapper, random_state=0)


def _ranking(score: str, model: Path, amount: Amount, ways: Ways, pids: set[int]) -> Table:
    """Rank all shards in every way, in turn; compare seconds and bytes."""
    folder = model.parent
    seconds: dict[str, list[float]] = {}
    work: dict[str, list[float]] = {}
    written: dict[str, dict[str, bytes]] = {}
    for _ in range(amount.repeats):
        for name, engine in ways.items():
            out = folder / "rankings"
            # One thread in this process; a cluster has its own number of workers.
            workers = 1 if engine is None else None
            # Every worker loads the model before the clock runs.
            rank_shards(model, folder / "few", out, engine=engine, workers=workers)
            shutil.rmtree(out)
            before, start = _clocks(pids), time.perf_counter()
            rank_shards(model, folder / "shards", out, engine=engine, workers=workers)
            seconds.setdefault(name, []).append(time.perf_counter() - start)
            work.setdefault(name, []).append(_spent(before, _clocks(pids)))
            written[name] = {path.name: path.read_bytes() for path in out.iterdir()}
            shutil.rmtree(out)
    size = sum(len(data) for data in written["one process"].values()) / amount.rows
    note = f"{4 * N_FEATURES} bytes in and {size:.0f} bytes out for each row. {NOTE}"
    rows = _rows(seconds, work, written, amount.rows, 1e6)
    columns = ["way", "seconds", *COLUMNS, "processor, µs a row", "output"]
    return Table(f"The {score} tagger", "where rows are ranked", columns, rows, note)


def _rows(
    seconds: dict[str, list[float]],
    work: dict[str, list[float]],
    written: dict[str, dict[str, bytes]],
    n_items: int,
    unit: float,
) -> list[list[Any]]:
    """Put the ways side by side, the least of all rounds, and whether they wrote the same."""
    alone = "one process"
    return [
        [
            *(name, min(times), min(times) / min(seconds[alone])),
            min(work[name]) / min(work[alone]),
            unit * min(work[name]) / n_items,
            "the same bytes" if written[name] == written[alone] else "other bytes",
        ]
        for name, times in seconds.items()
    ]


def _clocks(pids: set[int]) -> dict[int, float]:
    """Read how long processes have been at work."""
    ticks = os.sysconf("SC_CLK_TCK")
    found = {}
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()
        found[pid] = (int(fields[11]) + int(fields[12])) / ticks
    return found


def _spent(before: dict[int, float], after: dict[int, float]) -> float:
    """Add up what all processes worked between two readings."""
    return sum(after[pid] - before[pid] for pid in after)


def _pieces(amount: Amount, ways: Ways) -> Table:
    """Measure what Ray takes for a piece of work that is nothing."""
    rows: list[list[Any]] = []
    for name, engine in ways.items():
        for bytes_a_piece in (100, 10**6) if engine is not None else ():
            pieces = [b"x" * bytes_a_piece] * amount.pieces
            list(engine.run(Nothing(), pieces[:20]))
            times = []
            for _ in range(3):
                start = time.perf_counter()
                list(engine.run(Nothing(), pieces))
                times.append(time.perf_counter() - start)
            rows.append([name, bytes_a_piece, 1e3 * statistics.median(times) / len(pieces)])
    columns = ["way", "bytes sent", "a piece, ms"]
    return Table("Pieces that do nothing", "what is sent along", columns, rows)


def _extraction(amount: Amount, folder: Path, ways: Ways, pids: set[int]) -> Table:
    """Extract drawn emoji in every way, in turn; compare seconds and bytes."""
    from polyseme.datasets import SPECS
    from polyseme.features import ImageFeatures

    spec = SPECS["emoji"]
    assert spec.embedded is not None and spec.write_media is not None
    spec.write_media(folder / "pictures", spec.embedded().corpus.ids[: amount.pictures])
    extractor = ImageFeatures(n_jobs=1)
    seconds: dict[str, list[float]] = {}
    work: dict[str, list[float]] = {}
    written: dict[str, dict[str, bytes]] = {}
    for number in range(amount.repeats + 1):  # in the first round workers load the network
        for name, engine in ways.items():
            out = folder / "numbers"
            before, start = _clocks(pids), time.perf_counter()
            extract_media(folder / "pictures", out, extractor, engine=engine)
            if number:
                seconds.setdefault(name, []).append(time.perf_counter() - start)
                work.setdefault(name, []).append(_spent(before, _clocks(pids)))
            kept = ("features.npy", "files.jsonl", "extraction.json")
            written[name] = {one: (out / one).read_bytes() for one in kept}
            shutil.rmtree(out)
    rows = _rows(seconds, work, written, amount.pictures, 1e3)
    columns = ["way", "seconds", *COLUMNS, "processor, ms a picture", "output"]
    title = f"Extraction of {amount.pictures} pictures of 64 pixels"
    return Table(title, "where pictures are looked at", columns, rows, NOTE)


def _writing(amount: Amount, folder: Path) -> Table:
    """Measure what the one process that writes takes for each file."""
    number, place = 10 * amount.pieces, folder / "writing"
    place.mkdir()
    paths = [place / f"{n}.png" for n in range(number)]
    hashes = [hashlib.sha256(path.name.encode()).digest() for path in paths]
    numbers = np.zeros(1280, dtype=np.float32)
    (place / "megabyte").write_bytes(os.urandom(10**6))
    rows: list[list[Any]] = []

    def timed(what: str, n: int, one: Callable[[int], object]) -> None:
        start = time.perf_counter()
        for place in range(n):
            one(place)
        each = (time.perf_counter() - start) / n
        rows.append([what, 1e6 * each, 1 / each])

    with FeatureStore(place / "cache.sqlite", "recipe") as store:
        timed("note a content hash", number, lambda n: store.note(paths[n], "state", hashes[n]))
        timed("keep 1,280 numbers", number, lambda n: store.put(hashes[n], numbers))
        timed("fetch them for the table", number, lambda n: store.get(hashes[n]))
    timed("write a sidecar", amount.pieces, lambda n: merge_tags(paths[n], ["a", "b", "c"]))
    timed("hash a megabyte (workers)", 100, lambda n: _hash(place / "megabyte"))
    columns = ["what", "µs", "a second"]
    return Table("What is done once for each file", "what is done", columns, rows)


def _hash(path: Path) -> bytes:
    """Hash a file as an extraction does."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").digest()


if __name__ == "__main__":
    command_line(measure)
