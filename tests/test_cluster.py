"""Work on a real Ray cluster of two machines (on this one): the same bytes, whatever dies."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from polyseme._validation import InputError
from polyseme.cli import app
from polyseme.cluster import open_engine, rank_shards
from polyseme.cluster.engines import RayEngine
from polyseme.io.shards import write_shards
from polyseme.io.xmp import read_tags

# Nothing is reported to anybody, and workers do not stand back behind other tests.
os.environ.update(RAY_USAGE_STATS_ENABLED="0", RAY_worker_niceness="0")
ray = pytest.importorskip("ray", reason="the extra `ray` is not installed")
pytest.importorskip("pyarrow", reason="the extra `ray` is not installed")

STORE = 80 * 2**20  # about the least that Ray accepts


class Machines:
    """A cluster of two machines with one processor each, and what is needed to disturb it."""

    def __init__(self) -> None:
        from ray.cluster_utils import Cluster

        node: dict[str, Any] = {"num_cpus": 1, "object_store_memory": STORE}
        self.cluster = Cluster(
            initialize_head=True, head_node_args=node | {"include_dashboard": False}
        )
        self.second = self.cluster.add_node(**node)
        ray.init(address=self.cluster.address, log_to_driver=False, logging_level="error")
        # Workers cannot import this file; its jobs travel whole.
        ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
        self.engine = RayEngine(ray)

    def pids(self) -> set[int]:
        """Give the processes that do the work; both machines must have one."""
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            found = set(self.engine.run(Named(0.2), range(4)))
            if len(found) > 1:
                return found
        raise AssertionError("only one machine works")

    def close(self) -> None:
        ray.cloudpickle.unregister_pickle_by_value(sys.modules[__name__])
        processes = [
            one.process
            for node in self.cluster.list_all_nodes()
            for some in node.all_processes.values()
            for one in some
        ]
        ray.shutdown()
        self.cluster.shutdown()
        assert processes and all(one.poll() is not None for one in processes)


@dataclass(frozen=True)
class Named:
    """A job whose pieces take a while and give the process that did them."""

    seconds: float

    def start(self) -> Callable[[Any], Any]:
        def stay(piece: object) -> int:
            time.sleep(self.seconds)
            return os.getpid()

        return stay

    def name_of(self, piece: Any) -> str:
        return f"piece {piece}"


@dataclass(frozen=True)
class Deadly(Named):
    """A job that kills its process at one piece, as often as the folder has room for."""

    notes: str
    at: int
    times: int

    def start(self) -> Callable[[Any], Any]:
        folder = Path(self.notes)
        (folder / f"start-{os.getpid()}-{time.monotonic_ns()}").touch()

        def double(piece: int) -> int:
            time.sleep(self.seconds)
            if piece == self.at and len(list(folder.glob("death-*"))) < self.times:
                (folder / f"death-{os.getpid()}").touch()
                os.kill(os.getpid(), signal.SIGKILL)
            if piece < 0:
                raise InputError(f"Piece {piece} is negative.")
            return 2 * piece

        return double


@pytest.fixture(scope="module")
def machines() -> Iterator[Machines]:
    made = Machines()
    try:
        yield made
    finally:
        made.close()


@pytest.fixture(scope="module")
def place(tmp_path_factory, toy_tagger, world) -> Path:
    """A model, and its training items many times over as shards."""
    folder = tmp_path_factory.mktemp("cluster")
    toy_tagger.save(folder / "model")
    X = np.tile(np.asarray(world.X, dtype=np.float32), (20, 1))
    np.save(folder / "all.npy", X)
    write_shards(X, folder / "cut", 500)
    write_shards(X[:1300], folder / "columns", 500, "parquet")
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
    (extra / "zz-torn.png").write_bytes(b"")
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
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def is_alive(pid: int) -> bool:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


# ---------------------------------------------------------------------- pieces


def test_every_piece_is_done_once_and_in_order_though_a_worker_dies(machines, tmp_path):
    job = Deadly(0.05, str(tmp_path), at=7, times=1)
    assert list(machines.engine.run(job, range(20))) == list(range(0, 40, 2))
    assert len(list(tmp_path.glob("death-*"))) == 1
    # Each process begins the job once, however many pieces it does.
    starts = [path.name.split("-")[1] for path in tmp_path.glob("start-*")]
    assert len(starts) == len(set(starts)) <= 4


def test_a_piece_that_kills_every_worker_is_named(machines, tmp_path):
    job = Deadly(0.0, str(tmp_path), at=1, times=99)
    with pytest.raises(InputError, match=r"The worker of piece 1 died again and again") as caught:
        list(machines.engine.run(job, range(3)))
    assert "\n" not in str(caught.value)


def test_what_a_worker_refuses_is_told_as_here(machines, tmp_path):
    job = Deadly(0.0, str(tmp_path), at=99, times=0)
    with pytest.raises(InputError, match=r"^Piece -1 is negative\.$"):
        list(machines.engine.run(job, [1, -1, 2]))


def test_a_module_that_workers_lack_is_named(machines, tmp_path, monkeypatch):
    (tmp_path / "only_here.py").write_text("class Job:\n    name_of = str\n")
    monkeypatch.syspath_prepend(tmp_path)
    job = importlib.import_module("only_here").Job()
    with pytest.raises(InputError, match="A worker lacks the module 'only_here'; install polyseme"):
        list(machines.engine.run(job, [1]))


def test_pieces_are_taken_only_as_workers_become_free(machines):
    taken: list[int] = []

    def pieces() -> Iterator[int]:
        for number in range(100):
            taken.append(number)
            yield number

    found = machines.engine.run(Named(0.01), pieces(), ahead=2)
    next(found)
    assert len(taken) <= 9  # two processors, two pieces for each, twice that may wait
    found.close()


# ---------------------------------------------------------------------- rank


def test_rankings_on_a_cluster_are_the_same_bytes(machines, place, tmp_path):
    for form, shards in (("jsonl", "cut"), ("parquet", "columns")):
        options = {"k": 4, "form": form}
        rank_shards(place / "model", place / shards, tmp_path / f"{form}-here", **options)
        with open_engine("ray") as engine:
            assert engine is not None
            done = rank_shards(
                place / "model",
                place / shards,
                tmp_path / f"{form}-there",
                engine=engine,
                **options,
            )
        assert done.n_before == 0
        assert contents(tmp_path / f"{form}-here") == contents(tmp_path / f"{form}-there")
    assert ray.is_initialized(), "a connection that others made is left alone"


def test_a_killed_worker_changes_no_byte_of_the_rankings(machines, place, tmp_path):
    rank_shards(place / "model", place / "cut", tmp_path / "here")
    victim = min(machines.pids())

    def kill_once(done: int, total: int, skipped: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(victim, signal.SIGKILL)

    options = {"engine": machines.engine, "tell": kill_once}
    rank_shards(place / "model", place / "cut", tmp_path / "there", **options)
    assert not is_alive(victim)
    assert contents(tmp_path / "here") == contents(tmp_path / "there")


def test_an_interrupted_ranking_goes_on(machines, place, tmp_path):
    def stop(done: int, total: int, skipped: int) -> None:
        if done >= 1500:
            raise KeyboardInterrupt

    # One at a time: what is under way when somebody interrupts still ends.
    options = {"engine": machines.engine, "workers": 1}
    with pytest.raises(KeyboardInterrupt):
        rank_shards(place / "model", place / "cut", tmp_path / "there", tell=stop, **options)
    left = contents(tmp_path / "there")
    finished = [name for name in left if name.endswith(".jsonl")]
    assert "manifest.json" not in left and len(finished) >= 3
    done = rank_shards(place / "model", place / "cut", tmp_path / "there", **options)
    assert len(finished) <= done.n_before < 12
    rank_shards(place / "model", place / "cut", tmp_path / "here")
    assert contents(tmp_path / "here") == contents(tmp_path / "there")


def test_tables_printed_by_a_cluster_are_the_same(machines, place, world, tmp_path):
    np.savetxt(
        tmp_path / "x.csv", np.asarray(world.X), delimiter=",", header="a,b,c,d,e", comments=""
    )
    tags = tmp_path / "tags.jsonl"
    tags.write_text("\n".join(json.dumps(list(one)[:1]) for one in world.documents))
    for words in (
        [place / "all.npy", "-k", 3],
        [place / "columns", "-k", 2, "--precision", 0.5],
        [tmp_path / "x.csv", "--tags", tags, "--form", "csv"],
    ):
        here = run("rank", place / "model", *words)
        there = run("rank", place / "model", *words, "--engine", "ray")
        assert here.stdout == there.stdout
        assert here.stdout.count("\n") >= 300


def test_gaps_and_other_columns_are_told_by_workers_too(machines, place, tmp_path):
    X = np.load(place / "all.npy")[:900]
    X[700, 0] = np.inf
    write_shards(X, tmp_path / "gap", 300)
    write_shards(X[:, :3], tmp_path / "narrow", 300)
    for shards, message in (
        ("gap", r"'part-00002.npy' contains NaN or infinity in row\(s\) 100;"),
        ("narrow", "X has 3 features, but ZeroShotTagger is expecting 5"),
    ):
        out = tmp_path / f"{shards}-out"
        with pytest.raises(InputError, match=message):
            rank_shards(place / "model", tmp_path / shards, out, engine=machines.engine)
        assert not (out / "manifest.json").exists()


# ---------------------------------------------------------------------- extract and tag


def written(folder: Path) -> dict[str, bytes]:
    """Read what an extraction gives, apart from its cache, whose pages lie in any order."""
    return {name: data for name, data in contents(folder).items() if "cache" not in name}


def test_extraction_on_a_cluster_is_the_same_bytes_though_a_worker_dies(
    machines, pictures, tmp_path
):
    words = ["extract", "image", pictures / "files", "--out", tmp_path / "numbers", "--size", 64]
    from polyseme.cluster import extract_media
    from polyseme.features import ImageFeatures

    victim = min(machines.pids())

    def kill_once(done: int, total: int, skipped: int) -> None:
        if done >= 20:
            with contextlib.suppress(ProcessLookupError):
                os.kill(victim, signal.SIGKILL)

    summary = extract_media(
        pictures / "files",
        tmp_path / "numbers",
        ImageFeatures(size=64),
        engine=machines.engine,
        tell=kill_once,
    )
    assert not is_alive(victim)
    assert {name.rpartition("/")[2] for name, _ in summary.skipped} == {
        "AA-torn.png",
        "zz-torn.png",
        "lost.png",
    }
    assert written(tmp_path / "numbers") == written(pictures / "numbers")
    ledger = (tmp_path / "numbers" / "files.jsonl").read_text("utf-8").splitlines()
    names = [json.loads(line)["file"] for line in ledger]
    assert len(names) == len(set(names))
    again = run(*words, "--engine", "ray")
    assert f"({summary.n_extracted} from the cache)" in again.stderr
    assert written(tmp_path / "numbers") == written(pictures / "numbers")


def test_an_interrupted_extraction_goes_on_elsewhere(machines, pictures, tmp_path):
    from polyseme.cluster import extract_media
    from polyseme.features import ImageFeatures

    def stop(done: int, total: int, skipped: int) -> None:
        if done >= 40:
            raise KeyboardInterrupt

    places = pictures / "files", tmp_path / "numbers", ImageFeatures(size=64)
    with pytest.raises(KeyboardInterrupt):
        extract_media(*places, engine=machines.engine, tell=stop)
    summary = extract_media(*places)  # begun on the cluster, ended here
    assert summary.n_cached >= 30
    assert written(tmp_path / "numbers") == written(pictures / "numbers")


def test_tags_from_a_cluster_are_the_same(machines, pictures, tmp_path):
    words = ["tag", pictures / "model", pictures / "files", "--top", 4, "--form", "jsonl"]
    here, there = run(*words), run(*words, "--engine", "ray")
    assert here.stdout == there.stdout
    assert here.stderr == there.stderr and "AA-torn.png" in here.stderr
    numbers = ["rank", pictures / "model", pictures / "numbers", "-k", 4]
    assert run(*numbers).stdout == run(*numbers, "--engine", "ray").stdout


def test_sidecars_are_written_once_and_alike(machines, pictures, tmp_path):
    for name, options in (("here", []), ("there", ["--engine", "ray"])):
        shutil.copytree(pictures / "files" / "noto", tmp_path / name, symlinks=True)
        words = ["tag", pictures / "model", tmp_path / name, "--sidecars", "-k", 2, *options]
        records = [json.loads(line) for line in run(*words).stdout.splitlines()]
        assert all(len(record["added"]) == 2 for record in records)
        assert all(read_tags(Path(one["sidecar"])) == one["added"] for one in records)
    sidecars = [sorted((tmp_path / name).glob("*.xmp")) for name in ("here", "there")]
    assert len(sidecars[0]) > 30
    assert [path.read_bytes() for path in sidecars[0]] == [
        path.read_bytes() for path in sidecars[1]
    ]


# ---------------------------------------------------------------------- last: a machine goes


def test_a_machine_that_goes_away_takes_nothing_with_it(machines, tmp_path):
    job = Deadly(0.3, str(tmp_path), at=99, times=0)
    found = machines.engine.run(job, range(12))
    first = [next(found) for _ in range(3)]
    machines.cluster.remove_node(machines.second, allow_graceful=False)
    assert first + list(found) == list(range(0, 24, 2))
