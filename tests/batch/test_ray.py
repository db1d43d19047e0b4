"""Work on a real Ray cluster on this machine: the same bytes as in one process, whoever dies."""

from __future__ import annotations

import importlib
import json
import os
import shutil
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from jobs import contents, repeated_features, run

from polyseme.base.validation import InputError
from polyseme.batch import rank_shards
from polyseme.io.shards import write_shards
from polyseme.media import ImageFeatures, extract_folder
from polyseme.media.xmp import read_sidecar
from ray_workers import kill_one

pytest.importorskip("ray", reason="the extra `ray` is not installed")
pytest.importorskip("pyarrow", reason="the extra `ray` is not installed")

RAY = ("--engine", "ray")
# Enough where the order of results from several workers is not in question: each takes seconds.
RAY_ALONE = (*RAY, "--workers", "1")


@pytest.fixture(scope="module")
def place(tmp_path_factory, toy_tagger, world) -> Path:
    """A model, and its training items many times over as shards, with their rankings."""
    folder = tmp_path_factory.mktemp("cluster")
    model = folder / "model"
    shards = folder / "cut"
    toy_tagger.save(model)
    X = repeated_features(world, 20)
    write_shards(X, shards, 500)
    write_shards(X[:1300], folder / "columns", 500, "parquet")
    rank_shards(model, shards, folder / "rankings")
    return folder


@pytest.fixture(scope="module")
def pictures(tmp_path_factory) -> Path:
    """Emoji with broken and odd files among them, what one process extracts, and a model."""
    pytest.importorskip("efficientnet_lite_pytorch", reason="the extra `image` is not installed")
    place = tmp_path_factory.mktemp("pictures")
    run("sample", "image", place / "files", "--limit", 80)
    emoji = place / "files" / "noto"
    files = sorted(emoji.glob("*.png"))
    shutil.copy(files[5], emoji / "again.png")
    (emoji / "AA-torn.png").write_bytes(b"\x89PNG\r\n\x1a\n torn")
    (emoji / "notes.md").write_text("no picture")
    (emoji / "lost.png").symlink_to("nowhere.png")
    run("extract", "image", place / "files", "--out", place / "numbers", "--size", 64)
    tags = place / "files" / "tags.jsonl"
    options = ["--preset", "paper", "--components", 8, "--topics", 4, "--epochs", 2]
    options += ["--mapper", "kernel-ridge"]
    run("fit", place / "model", "-x", place / "numbers", "-d", tags, *options)
    return place


class KillOnce:
    """A callback that kills a worker as soon as something is done."""

    killed = False

    def __call__(self, done: int, total: int, skipped: int) -> None:
        self.killed = self.killed or kill_one("MapWorker")


def stop_at(n: int, done: int, total: int, skipped: int) -> None:
    """Interrupt the work when so much is done."""
    if done >= n:
        raise KeyboardInterrupt


def test_workers_that_die_again_and_again_end_the_job_with_a_sentence(engine):
    results = engine.map(os._exit, [1])
    with pytest.raises(InputError, match=r"Workers died again and again, at 1 or soon") as refusal:
        list(results)
    sentence = str(refusal.value)
    assert "\n" not in sentence


def test_a_module_that_a_worker_lacks_is_named(engine, tmp_path, monkeypatch):
    (tmp_path / "only_here.py").write_text("def double(n):\n    return 2 * n\n")
    monkeypatch.syspath_prepend(tmp_path)
    double = importlib.import_module("only_here").double
    with pytest.raises(InputError, match="A worker lacks the module 'only_here'; install polyseme"):
        list(engine.map(double, [1]))


def test_a_job_without_work_has_no_results(engine):
    assert list(engine.map(str, [])) == []


def test_rankings_are_the_same_bytes_although_a_worker_dies(engine, place, tmp_path):
    kill = KillOnce()
    out = tmp_path / "out"
    rank_shards(place / "model", place / "cut", out, engine=engine, progress=kill)
    assert kill.killed
    assert contents(out) == contents(place / "rankings")


def test_rankings_in_parquet_are_the_same_bytes(engine, place, tmp_path):
    arguments = place / "model", place / "columns"
    local = tmp_path / "local"
    distributed = tmp_path / "distributed"
    rank_shards(*arguments, local, k=4, form="parquet", engine=None)
    rank_shards(*arguments, distributed, k=4, form="parquet", engine=engine)
    assert contents(local) == contents(distributed)


def test_a_ranking_interrupted_on_ray_is_completed_locally(engine, place, tmp_path):
    arguments = place / "model", place / "cut", tmp_path / "out"
    with pytest.raises(KeyboardInterrupt):
        rank_shards(*arguments, engine=engine, progress=partial(stop_at, 1500))
    assert not (tmp_path / "out" / "manifest.json").exists()
    assert rank_shards(*arguments).n_before >= 3
    assert contents(tmp_path / "out") == contents(place / "rankings")


def test_printed_rankings_of_shards_are_the_same(engine, place):
    words = ["rank", place / "model", place / "columns", "-k", 2, "--precision", 0.5]
    stdout = run(*words).stdout
    assert stdout == run(*words, *RAY).stdout
    assert stdout.count("\n") >= 300


def test_printed_rankings_of_a_table_with_tags_are_the_same(engine, place, world, tmp_path):
    table = tmp_path / "x.csv"
    np.savetxt(table, np.asarray(world.X), delimiter=",", header="a,b,c,d,e", comments="")
    tags = tmp_path / "tags.jsonl"
    lines = [json.dumps(list(labels)[:1]) for labels in world.documents]
    tags.write_text("\n".join(lines))
    words = ["rank", place / "model", table, "--tags", tags, "--form", "csv"]
    stdout = run(*words).stdout
    assert stdout == run(*words, *RAY_ALONE).stdout
    assert stdout.count("\n") >= 300


def test_extraction_is_the_same_bytes_although_a_worker_dies(engine, pictures, tmp_path):
    numbers = tmp_path / "numbers"
    kill = KillOnce()
    extractor = ImageFeatures(size=64)
    summary = extract_folder(pictures / "files", numbers, extractor, progress=kill, engine=engine)
    assert kill.killed
    skipped = {Path(name).name for name, _ in summary.skipped}
    assert skipped == {"AA-torn.png", "lost.png"}
    assert contents(numbers) == contents(pictures / "numbers")
    words = ["extract", "image", pictures / "files", "--out", numbers, "--size", 64, *RAY]
    assert f"({summary.n_extracted} from the cache)" in run(*words).stderr
    assert contents(numbers) == contents(pictures / "numbers")


def test_an_extraction_interrupted_on_ray_is_completed_locally(engine, pictures, tmp_path):
    arguments = pictures / "files", tmp_path / "numbers", ImageFeatures(size=64)
    with pytest.raises(KeyboardInterrupt):
        extract_folder(*arguments, progress=partial(stop_at, 40), engine=engine)
    assert extract_folder(*arguments).n_cached >= 30
    assert contents(tmp_path / "numbers") == contents(pictures / "numbers")


def test_printed_tags_are_the_same(engine, pictures):
    words = ["tag", pictures / "model", pictures / "files", "--top", 4, "--form", "jsonl"]
    local = run(*words)
    distributed = run(*words, *RAY)
    assert local.stdout == distributed.stdout
    assert "AA-torn.png" in local.stderr
    assert "AA-torn.png" in distributed.stderr
    words = ["rank", pictures / "model", pictures / "numbers", "-k", 4]
    assert run(*words).stdout == run(*words, *RAY_ALONE).stdout


def test_tags_written_beside_files_are_the_same(engine, pictures, tmp_path):
    def sidecars(name: str, *options: str) -> list[bytes]:
        folder = tmp_path / name
        shutil.copytree(pictures / "files" / "noto", folder, symlinks=True)
        words = ["tag", pictures / "model", folder, "--sidecars", "-k", 2, *options]
        for line in run(*words).stdout.splitlines():
            record = json.loads(line)
            assert read_sidecar(Path(record["sidecar"])).tags == record["added"]
        return [path.read_bytes() for path in sorted(folder.glob("*.xmp"))]

    local = sidecars("local")
    assert len(local) > 30
    assert local == sidecars("distributed", *RAY_ALONE)
