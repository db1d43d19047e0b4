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
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from _reporting import Report, Table, command_line
from _synthetic import make_themes, synthetic_features, synthetic_matrix

from polyseme.batch import RayEngine, RayTraining, open_engine, rank_shards
from polyseme.documents.corpus import LabelCorpus
from polyseme.io.shards import write_shards
from polyseme.media.feature_store import FeatureStore, FileHash
from polyseme.media.xmp import merge_tags
from polyseme.published.descriptors import ContextDescriptor
from polyseme.published.embedding import ConceptEmbedding
from polyseme.published.mapping import InstanceMapper
from polyseme.published.tagger import PublishedTagger
from polyseme.published.training import TrainingPlan
from polyseme.space.concept_space import ConceptSpace
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
thread, and by workers of a Ray cluster on this machine. Ray is started before the clock is; its \
workers start, load their libraries and the model while the clock runs, as for every command. The \
ways take turns, and the least of {repeats} rounds counts."""
Ways = dict[str, RayEngine | None]


# A job whose pieces do nothing: what is left is what Ray takes for a piece.
NOTHING = bool


def measure(size: str) -> Report:
    """Compare one process with one and two workers of Ray."""
    amount = AMOUNTS[size]
    with tempfile.TemporaryDirectory() as work, open_engine("ray", workers=2) as engine:
        assert engine is not None
        ways = {
            "one process": None,
            "Ray, 1 worker": RayEngine(engine.ray, 1),
            "Ray, 2 workers": engine,
        }
        tables = _tables(amount, Path(work), ways)
    tables.append(_training(amount))
    text = TEXT.format(columns=N_FEATURES, **amount._asdict())
    return Report("ray", "One process and a Ray cluster", text, tables)


def _tables(amount: Amount, folder: Path, ways: Ways) -> list[Table]:
    """Measure all ways for each score."""
    themes = make_themes(amount.labels, 0, n_features=N_FEATURES)
    matrix = synthetic_matrix(amount.documents, themes, 0)
    features = synthetic_features(matrix, themes, 0)
    corpus = LabelCorpus.from_indicator(
        matrix, labels=[f"label {n}" for n in range(themes.n_labels)]
    )
    rows = np.random.default_rng(0).integers(amount.documents, size=amount.rows)
    write_shards(features[rows], folder / "shards", amount.shard)
    tables = []
    for score in amount.scores:
        model = folder / score
        _model(score).fit(features, corpus).save(model)
        tables.append(_ranking(score, model, amount, ways))
    if importlib.util.find_spec("efficientnet_lite_pytorch") is not None:
        tables.append(_extraction(amount, folder, ways))
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
    trainers: dict[str, Any] = {
        "one process": None,
        "Ray Train, 1 worker": RayTraining(1),
        "Ray Train, 2 workers": RayTraining(2),
    }
    space = ConceptSpace(n_steps=None if amount.rows > 2000 else 8)
    rows: list[list[Any]] = []
    for name, trainer in trainers.items():
        tagger = ZeroShotTagger(space, random_state=0)
        start = time.perf_counter()
        tagger.fit(features, corpus, trainer=trainer)
        seconds = time.perf_counter() - start
        scores = tagger.predict_proba(features[:500])
        losses = [list(round_losses.values()) for round_losses in tagger.space_.history_]
        if not rows:
            seconds_alone = seconds
            scores_alone = scores
            losses_alone = losses
        has_scores = np.array_equal(scores, scores_alone)
        has_losses = np.allclose(losses, losses_alone, rtol=1e-12)
        verdict = "the same" if has_scores and has_losses else "others"
        rows.append([name, seconds, seconds / seconds_alone, verdict])
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


def _ranking(score: str, model: Path, amount: Amount, ways: Ways) -> Table:
    """Rank all shards in every way, in turn; compare seconds and bytes."""
    folder = model.parent
    seconds: dict[str, list[float]] = {}
    written: dict[str, dict[str, bytes]] = {}
    for _ in range(amount.repeats):
        for name, engine in ways.items():
            out = folder / "rankings"
            start = time.perf_counter()
            rank_shards(model, folder / "shards", out, engine=engine, workers=1)
            seconds.setdefault(name, []).append(time.perf_counter() - start)
            written[name] = {path.name: path.read_bytes() for path in out.iterdir()}
            shutil.rmtree(out)
    size = sum(len(data) for data in written["one process"].values()) / amount.rows
    note = f"{4 * N_FEATURES} bytes in and {size:.0f} bytes out for each row."
    columns = ["way", "seconds", "against one process", "µs a row", "output"]
    rows = _rows(seconds, written, amount.rows, 1e6)
    return Table(f"The {score} tagger", "where rows are ranked", columns, rows, note)


def _rows(
    seconds: dict[str, list[float]],
    written: dict[str, dict[str, bytes]],
    n_items: int,
    unit: float,
) -> list[list[Any]]:
    """Put the ways side by side, the least of all rounds, and whether they wrote the same."""
    alone = "one process"
    least_alone = min(seconds[alone])
    rows = []
    for name, times in seconds.items():
        least = min(times)
        is_equal = written[name] == written[alone]
        output = "the same bytes" if is_equal else "other bytes"
        an_item = unit * least / n_items
        rows.append([name, least, least / least_alone, an_item, output])
    return rows


def _pieces(amount: Amount, ways: Ways) -> Table:
    """Measure what Ray takes for a piece of work that is nothing."""
    rows: list[list[Any]] = []
    for name, engine in ways.items():
        if engine is None:
            continue
        for n_bytes in (100, 10**6):
            piece = b"x" * n_bytes
            pieces = [piece] * amount.pieces
            results = engine.map(NOTHING, pieces)
            next(results)  # workers have started
            start = time.perf_counter()
            n_more = len(list(results))
            seconds = time.perf_counter() - start
            milliseconds = 1e3 * seconds / n_more
            rows.append([name, n_bytes, milliseconds])
    columns = ["way", "bytes sent", "a piece, ms"]
    return Table("Pieces that do nothing", "what is sent along", columns, rows)


def _extraction(amount: Amount, folder: Path, ways: Ways) -> Table:
    """Extract drawn emoji in every way, in turn; compare seconds and bytes."""
    from polyseme.media import ImageFeatures, extract_folder
    from polyseme_experiments.datasets import known_specs

    spec = known_specs()["emoji"]
    assert spec.embedded is not None and spec.write_media is not None
    spec.write_media(folder / "pictures", spec.embedded().corpus.ids[: amount.pictures])
    extractor = ImageFeatures(n_jobs=1)
    seconds: dict[str, list[float]] = {}
    written: dict[str, dict[str, bytes]] = {}
    for _ in range(amount.repeats):
        for name, engine in ways.items():
            out = folder / "numbers"
            start = time.perf_counter()
            extract_folder(folder / "pictures", out, extractor, engine=engine)
            seconds.setdefault(name, []).append(time.perf_counter() - start)
            files = ("features.npy", "files.jsonl", "extraction.json")
            written[name] = {file: (out / file).read_bytes() for file in files}
            shutil.rmtree(out)
    rows = _rows(seconds, written, amount.pictures, 1e3)
    columns = ["way", "seconds", "against one process", "ms a picture", "output"]
    title = f"Extraction of {amount.pictures} pictures of 64 pixels"
    return Table(title, "where pictures are looked at", columns, rows)


def _writing(amount: Amount, folder: Path) -> Table:
    """Measure what the one process that writes takes for each file."""
    number, place = 10 * amount.pieces, folder / "writing"
    place.mkdir()
    paths = [place / f"{n}.png" for n in range(number)]
    hashes = [hashlib.sha256(path.name.encode()).digest() for path in paths]
    numbers = np.zeros(1280, dtype=np.float32)
    (place / "megabyte").write_bytes(os.urandom(10**6))
    rows: list[list[Any]] = []

    def timed(title: str, n: int, call: Callable[[int], object]) -> None:
        start = time.perf_counter()
        for place in range(n):
            call(place)
        each = (time.perf_counter() - start) / n
        rows.append([title, 1e6 * each, 1 / each])

    with FeatureStore(place / "cache.sqlite", "recipe") as store:
        timed(
            "note a content hash",
            number,
            lambda n: store.note(paths[n], FileHash("state", hashes[n])),
        )
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
