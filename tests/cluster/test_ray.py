"""Work on a real Ray cluster on this machine: the same bytes as in one process, whoever dies."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import shutil
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from typer.testing import CliRunner

from polyseme import ConceptSpace, SpacePlan, ZeroShotTagger
from polyseme._validation import InputError
from polyseme.cli import app
from polyseme.cluster import RayEngine, RayExecutor, RayTraining, open_engine, rank_shards
from polyseme.cluster.training import run_name
from polyseme.features import ImageFeatures, extract_folder
from polyseme.io.shards import write_shards
from polyseme.io.xmp import read_tags

pytest.importorskip("ray", reason="the extra `ray` is not installed")
pytest.importorskip("pyarrow", reason="the extra `ray` is not installed")


@pytest.fixture(scope="module")
def engine() -> Iterator[RayEngine]:
    with open_engine("ray", workers=2) as made:
        assert made is not None
        yield made


@pytest.fixture(scope="module")
def place(tmp_path_factory, toy_tagger, world) -> Path:
    """A model, and its training items many times over as shards, with their rankings."""
    folder = tmp_path_factory.mktemp("cluster")
    toy_tagger.save(folder / "model")
    X = np.tile(np.asarray(world.X, dtype=np.float32), (20, 1))
    np.save(folder / "all.npy", X)
    write_shards(X, folder / "cut", 500)
    write_shards(X[:1300], folder / "columns", 500, "parquet")
    rank_shards(folder / "model", folder / "cut", folder / "rankings")
    return folder


@pytest.fixture(scope="module")
def pictures(tmp_path_factory) -> Path:
    """Emoji with broken and odd files among them, what one process extracts, and a model."""
    pytest.importorskip("efficientnet_lite_pytorch", reason="the extra `image` is not installed")
    place = tmp_path_factory.mktemp("pictures")
    run("sample", "image", place / "files", "--limit", 80)
    extra = place / "files" / "noto"
    some = sorted(extra.glob("*.png"))
    shutil.copy(some[5], extra / "again.png")
    (extra / "AA-torn.png").write_bytes(b"\x89PNG\r\n\x1a\n torn")
    (extra / "notes.md").write_text("no picture")
    (extra / "lost.png").symlink_to("nowhere.png")
    run("extract", "image", place / "files", "--out", place / "numbers", "--size", 64)
    tags = place / "files" / "tags.jsonl"
    small = ["--preset", "paper", "--components", 8, "--topics", 4, "--epochs", 2]
    small += ["--mapper", "kernel-ridge"]
    run("fit", place / "model", "-x", place / "numbers", "-d", tags, *small)
    return place


def run(*words: object, code: int = 0):
    done = CliRunner().invoke(app, [str(word) for word in words])
    assert done.exit_code == code, (done.output, done.exception)
    return done


def contents(folder: Path) -> dict[str, bytes]:
    """Read a folder, apart from an extraction's cache, whose pages lie in any order."""
    return {path.name: path.read_bytes() for path in folder.iterdir() if "cache" not in path.name}


def kill_one(kind: str) -> bool:
    """Kill one worker of a kind, of this test's own cluster; say whether there was one."""
    parents, found = {}, []
    for folder in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            parents[int(folder.name)] = int(fields[1])
            if kind.encode() in (folder / "cmdline").read_bytes() and fields[0] != "Z":
                found.append(int(folder.name))
    for pid in found:
        ancestor = pid
        while ancestor in parents and ancestor != os.getpid():
            ancestor = parents[ancestor]
        if ancestor == os.getpid():
            os.kill(pid, signal.SIGKILL)
            return True
    return False


class KillOnce:
    """A callback that kills a worker as soon as something is done."""

    def __init__(self) -> None:
        self.killed = False

    def __call__(self, done: int, total: int, skipped: int) -> None:
        self.killed = self.killed or kill_one("MapWorker")


def stop_at(n: int):
    def stop(done: int, total: int, skipped: int) -> None:
        if done >= n:
            raise KeyboardInterrupt

    return stop


# ---------------------------------------------------------------------- pieces


def test_workers_that_cannot_go_on_are_told_of_in_a_sentence(engine, tmp_path, monkeypatch):
    with pytest.raises(InputError, match=r"Workers died again and again, at 1 or soon") as caught:
        list(engine.map(partial(partial, os._exit), [1]))
    assert "\n" not in str(caught.value)
    (tmp_path / "only_here.py").write_text("def job():\n    return str\n")
    monkeypatch.syspath_prepend(tmp_path)
    job = importlib.import_module("only_here").job
    with pytest.raises(InputError, match="A worker lacks the module 'only_here'; install polyseme"):
        list(engine.map(job, [1]))
    assert list(engine.map(partial(partial, max, 3), [])) == []


# ---------------------------------------------------------------------- rank


def test_rankings_are_the_same_bytes_though_a_worker_dies(engine, place, tmp_path):
    kill = KillOnce()
    rank_shards(place / "model", place / "cut", tmp_path / "there", engine=engine, progress=kill)
    assert kill.killed
    assert contents(place / "rankings") == contents(tmp_path / "there")
    for name, where in (("here", None), ("columns", engine)):
        options = {"k": 4, "form": "parquet", "engine": where}
        rank_shards(place / "model", place / "columns", tmp_path / name, **options)
    assert contents(tmp_path / "here") == contents(tmp_path / "columns")


def test_an_interrupted_ranking_goes_on_here(engine, place, tmp_path):
    places = place / "model", place / "cut", tmp_path / "there"
    with pytest.raises(KeyboardInterrupt):
        rank_shards(*places, engine=engine, progress=stop_at(1500))
    assert not (tmp_path / "there" / "manifest.json").exists()
    assert rank_shards(*places).n_before >= 3
    assert contents(place / "rankings") == contents(tmp_path / "there")


def test_printed_tables_are_the_same(engine, place, world, tmp_path):
    table = tmp_path / "x.csv"
    np.savetxt(table, np.asarray(world.X), delimiter=",", header="a,b,c,d,e", comments="")
    tags = tmp_path / "tags.jsonl"
    tags.write_text("\n".join(json.dumps(list(labels)[:1]) for labels in world.documents))
    for words in (
        [place / "columns", "-k", 2, "--precision", 0.5],
        [table, "--tags", tags, "--form", "csv"],
    ):
        here = run("rank", place / "model", *words).stdout
        assert here == run("rank", place / "model", *words, "--engine", "ray").stdout
        assert here.count("\n") >= 300


# ---------------------------------------------------------------------- extract and tag


def test_extraction_is_the_same_bytes_though_a_worker_dies(engine, pictures, tmp_path):
    extractor, kill = ImageFeatures(size=64), KillOnce()
    places = pictures / "files", tmp_path / "numbers", extractor
    summary = extract_folder(*places, progress=kill, executor=RayExecutor(engine, extractor))
    assert kill.killed
    skipped = {name.rpartition("/")[2] for name, _ in summary.skipped}
    assert skipped == {"AA-torn.png", "lost.png"}
    assert contents(tmp_path / "numbers") == contents(pictures / "numbers")
    words = ["extract", "image", pictures / "files", "--out", tmp_path / "numbers", "--size", 64]
    again = run(*words, "--engine", "ray")
    assert f"({summary.n_extracted} from the cache)" in again.stderr
    assert contents(tmp_path / "numbers") == contents(pictures / "numbers")


def test_an_interrupted_extraction_goes_on_here(engine, pictures, tmp_path):
    extractor = ImageFeatures(size=64)
    places = pictures / "files", tmp_path / "numbers", extractor
    with pytest.raises(KeyboardInterrupt):
        extract_folder(*places, progress=stop_at(40), executor=RayExecutor(engine, extractor))
    assert extract_folder(*places).n_cached >= 30
    assert contents(tmp_path / "numbers") == contents(pictures / "numbers")


def test_tags_are_the_same_printed_or_written_beside_files(engine, pictures, tmp_path):
    words = ["tag", pictures / "model", pictures / "files", "--top", 4, "--form", "jsonl"]
    here, there = run(*words), run(*words, "--engine", "ray")
    assert here.stdout == there.stdout
    assert "AA-torn.png" in here.stderr and "AA-torn.png" in there.stderr
    numbers = ["rank", pictures / "model", pictures / "numbers", "-k", 4]
    assert run(*numbers).stdout == run(*numbers, "--engine", "ray").stdout
    sidecars = []
    for name, options in (("here", []), ("there", ["--engine", "ray"])):
        shutil.copytree(pictures / "files" / "noto", tmp_path / name, symlinks=True)
        words = ["tag", pictures / "model", tmp_path / name, "--sidecars", "-k", 2, *options]
        records = [json.loads(line) for line in run(*words).stdout.splitlines()]
        assert all(read_tags(Path(line["sidecar"])) == line["added"] for line in records)
        sidecars.append([p.read_bytes() for p in sorted((tmp_path / name).glob("*.xmp"))])
    assert len(sidecars[0]) > 30 and sidecars[0] == sidecars[1]


# ---------------------------------------------------------------------- fit

RNG = np.random.default_rng(0)
PLACES = (["apple", "knife", "oven", "sink"], ["apple", "desk", "phone", "charger"])
SETS = [RNG.permutation(place)[:3].tolist() for place in PLACES * 20]
TAGS = [RNG.permutation(place[:3])[:2].tolist() for place in PLACES * 20]
X = RNG.normal(size=(2, 8))[[0, 1] * 20] + RNG.normal(size=(40, 8))


def tagger() -> ZeroShotTagger:
    plan = SpacePlan(hidden=16, code=16, round_steps=5)
    return ZeroShotTagger(ConceptSpace(n_folds=3, n_steps=60, plan=plan), random_state=0)


@pytest.mark.slow
def test_two_workers_train_what_one_process_trains_although_one_is_killed(engine, tmp_path):
    alone, killed = tagger().fit(X, TAGS, SETS), threading.Event()

    def kill_when_a_state_was_left() -> None:
        deadline = time.monotonic() + 240
        while time.monotonic() < deadline and not killed.is_set():
            if any(tmp_path.rglob("worker-*")) and kill_one("RayTrainWorker"):
                killed.set()
            time.sleep(0.02)

    threading.Thread(target=kill_when_a_state_was_left, daemon=True).start()
    for attempt in range(3):  # a training may be over before anybody is killed
        trainer = RayTraining(workers=2, storage=tmp_path / str(attempt))
        together = tagger().fit(X, TAGS, SETS, trainer=trainer)
        if killed.is_set():
            break
    assert np.array_equal(together.predict_proba(X), alone.predict_proba(X))
    assert together.space_.history_ == [
        {name: pytest.approx(value, rel=1e-6) for name, value in losses.items()}
        for losses in alone.space_.history_
    ]
    assert killed.is_set(), "no worker was there to be killed"


@pytest.mark.slow
def test_a_training_that_fails_for_good_is_told_in_a_sentence(engine, monkeypatch):
    from ray import train

    def fail(self: object) -> None:
        raise train.TrainingFailedError("Training failed due to worker errors:\nout of luck")

    monkeypatch.setattr("ray.train.torch.TorchTrainer.fit", fail)
    with pytest.raises(InputError, match=r"failed 4 times; the last one said: out of luck$"):
        tagger().fit(X, TAGS, SETS, trainer=RayTraining(workers=1))
    with pytest.raises(InputError, match=r"`workers` of `RayTraining` must be a whole number"):
        tagger().fit(X, TAGS, SETS, trainer=RayTraining(workers=0))


def test_only_a_training_of_the_same_data_shared_alike_is_gone_on_with():
    world = {"documents": sp.csr_matrix(np.eye(20, 6)), "X": np.ones((20, 3))}
    space = ConceptSpace(n_folds=2, n_steps=8, random_state=0)
    data, seed = space.prepare(*world.values(), None, None, None)
    other, _ = space.prepare(world["documents"], np.zeros((20, 3)), None, None, None)
    plan = space.plan_
    runs = [(data, plan, seed, 2), (other, plan, seed, 2), (data, plan, seed + 1, 2)]
    runs += [(data, plan, seed, 1), (data, replace(plan, n_steps=9), seed, 2)]
    assert len({run_name(*options) for options in runs}) == 5
    assert run_name(*runs[0]) == run_name(*runs[0])
