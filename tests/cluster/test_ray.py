"""Work on a real Ray cluster on this machine: the same bytes as in one process, whoever dies."""

from __future__ import annotations

import importlib
import json
import os
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from polyseme._validation import InputError
from polyseme.cli import app
from polyseme.cluster import RayEngine, open_engine, rank_shards
from polyseme.features import ImageFeatures, extract_folder
from polyseme.io.folders import MARK
from polyseme.io.shards import write_shards
from polyseme.io.xmp import read_sidecar
from ray_workers import kill_one

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
    own = ("cache.sqlite", MARK)
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name not in own}


class KillOnce:
    """A callback that kills a worker as soon as something is done."""

    killed = False

    def __call__(self, done: int, total: int, skipped: int) -> None:
        self.killed = self.killed or kill_one("MapWorker")


def stop_at(n: int, done: int, total: int, skipped: int) -> None:
    """Interrupt the work when so much is done."""
    if done >= n:
        raise KeyboardInterrupt


def test_workers_that_cannot_go_on_are_told_of_in_a_sentence(engine, tmp_path, monkeypatch):
    with pytest.raises(InputError, match=r"Workers died again and again, at 1 or soon") as caught:
        list(engine.map(os._exit, [1]))
    assert "\n" not in str(caught.value)
    (tmp_path / "only_here.py").write_text("def double(n):\n    return 2 * n\n")
    monkeypatch.syspath_prepend(tmp_path)
    double = importlib.import_module("only_here").double
    with pytest.raises(InputError, match="A worker lacks the module 'only_here'; install polyseme"):
        list(engine.map(double, [1]))
    assert list(engine.map(str, [])) == []


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
        rank_shards(*places, engine=engine, progress=partial(stop_at, 1500))
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


def test_extraction_is_the_same_bytes_though_a_worker_dies(engine, pictures, tmp_path):
    extractor, kill = ImageFeatures(size=64), KillOnce()
    places = pictures / "files", tmp_path / "numbers", extractor
    summary = extract_folder(*places, progress=kill, engine=engine)
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
        extract_folder(*places, progress=partial(stop_at, 40), engine=engine)
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
        assert all(read_sidecar(Path(line["sidecar"])).tags == line["added"] for line in records)
        sidecars.append([p.read_bytes() for p in sorted((tmp_path / name).glob("*.xmp"))])
    assert len(sidecars[0]) > 30 and sidecars[0] == sidecars[1]
