"""Ranking shards without a cluster: one folder of rankings, resumed, refused with one sentence."""

from __future__ import annotations

import json
import socket
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from typer.testing import CliRunner

from polyseme import load
from polyseme._validation import InputError
from polyseme.cli import app
from polyseme.cluster import open_engine, outputs, rank_shards
from polyseme.cluster.jobs import digest_of, load_same, work
from polyseme.cluster.media_jobs import HashFiles, Outcome
from polyseme.cluster.suggestions import Suggestions
from polyseme.io.shards import write_shards


@pytest.fixture(scope="module")
def place(tmp_path_factory, toy_tagger, world) -> Path:
    """A model, and its training items three times over as shards."""
    folder = tmp_path_factory.mktemp("shards")
    toy_tagger.save(folder / "model")
    X = np.tile(np.asarray(world.X, dtype=np.float32), (3, 1))
    np.save(folder / "all.npy", X)
    write_shards(X, folder / "cut", 250)
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def run(*words: object, code: int = 0):
    done = CliRunner().invoke(app, [str(word) for word in words])
    assert done.exit_code == code, (done.output, done.exception)
    return done


def test_rankings_of_shards_are_what_the_tagger_says(place, tmp_path):
    done = rank_shards(place / "model", place / "cut", tmp_path / "out", k=3, workers=1)
    assert (done.n_shards, done.n_rows, done.n_before) == (4, 900, 0)
    lines = [
        json.loads(line)
        for path in sorted((tmp_path / "out").glob("*.jsonl"))
        for line in path.read_text("utf-8").splitlines()
    ]
    assert [line["row"] for line in lines] == list(range(900))
    labels, scores = load(place / "model").rank(np.load(place / "all.npy"), k=3)
    np.testing.assert_allclose([line["scores"] for line in lines], scores, atol=2e-6)
    same = np.array([line["labels"] for line in lines]) == labels
    assert same.mean() > 0.99  # labels with nearly the same score may change places


def test_the_order_of_threads_changes_nothing(place, tmp_path, monkeypatch):
    monkeypatch.setattr("polyseme.cluster.suggestions.MOST_ROWS", 16)
    for workers in (1, 2):
        rank_shards(place / "model", place / "cut", tmp_path / str(workers), workers=workers)
    assert contents(tmp_path / "1") == contents(tmp_path / "2")


def test_standard_output_of_a_folder_is_all_its_files(place, tmp_path):
    printed = run("rank", place / "model", place / "cut", "-k", 3).stdout
    done = run("rank", place / "model", place / "cut", "-k", 3, "--out", tmp_path / "out")
    assert "900 rows of 4 shards ranked" in done.stderr
    files = sorted((tmp_path / "out").glob("*.jsonl"))
    assert "".join(path.read_text("utf-8") for path in files) == printed


def test_a_manifest_says_what_is_there(place, tmp_path):
    pytest.importorskip("pyarrow", reason="the extra `parquet` is not installed")
    import pyarrow.parquet as pq

    run("rank", place / "model", place / "cut", "--out", tmp_path / "out", "--out-form", "parquet")
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_bytes())
    assert manifest["model"] == digest_of(place / "model")
    assert (manifest["rows"], manifest["top"], manifest["form"]) == (900, 10, "parquet")
    for told in manifest["files"]:
        path = tmp_path / "out" / told["file"]
        assert path.stat().st_size == told["bytes"]
        rows = pq.read_table(path).column("row").to_pylist()
        assert rows == list(range(told["first"], told["first"] + told["rows"]))


def test_an_interrupted_run_goes_on_with_what_is_missing(place, tmp_path):
    def stop(done: int, total: int, skipped: int) -> None:
        if done > 500:
            raise KeyboardInterrupt

    options = {"k": 2, "workers": 1}
    rank_shards(place / "model", place / "cut", tmp_path / "whole", **options)
    with pytest.raises(KeyboardInterrupt):
        rank_shards(place / "model", place / "cut", tmp_path / "out", tell=stop, **options)
    left = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert left == ["part-00000.jsonl", "part-00001.jsonl", "plan.json"]
    before = [(tmp_path / "out" / name).stat().st_mtime_ns for name in left[:2]]
    (tmp_path / "out" / f"part-00002.jsonl.{'0' * 16}.tmp").write_text("of a dead process")
    done = rank_shards(place / "model", place / "cut", tmp_path / "out", **options)
    assert done.n_before == 2
    assert [(tmp_path / "out" / name).stat().st_mtime_ns for name in left[:2]] == before
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")
    assert rank_shards(place / "model", place / "cut", tmp_path / "out", **options).n_before == 4


def test_only_a_changed_shard_is_ranked_again(place, tmp_path):
    X = np.load(place / "all.npy")
    write_shards(X, tmp_path / "cut", 300)
    rank_shards(place / "model", tmp_path / "cut", tmp_path / "out")
    first = (tmp_path / "out" / "part-00001.jsonl").read_bytes()
    np.save(tmp_path / "cut" / "part-00001.npy", X[300:600][::-1])
    assert rank_shards(place / "model", tmp_path / "cut", tmp_path / "out").n_before == 2
    assert (tmp_path / "out" / "part-00001.jsonl").read_bytes() != first
    rank_shards(place / "model", tmp_path / "cut", tmp_path / "fresh")
    for name in ("part-00000.jsonl", "part-00001.jsonl", "manifest.json"):
        assert contents(tmp_path / "out")[name] == contents(tmp_path / "fresh")[name]


def test_shards_before_it_are_kept_when_one_has_a_gap(place, tmp_path):
    X = np.load(place / "all.npy")
    X[700, 1] = np.nan
    write_shards(X, tmp_path / "cut", 300)
    done = run("rank", place / "model", tmp_path / "cut", "--out", tmp_path / "out", code=1)
    assert "'part-00002.npy' contains NaN or infinity in row(s) 100; " in str(done.exception)
    assert not (tmp_path / "out" / "manifest.json").exists()
    np.save(tmp_path / "cut" / "part-00002.npy", X[:300])
    done = run("rank", place / "model", tmp_path / "cut", "--out", tmp_path / "out")
    assert "3 shards ranked (2 of them before)" in done.stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"k": 4}, r"another top \(3 in place of 4\)"),
        ({"precision": 0.5}, r"another precision \(None in place of 0.5\)"),
        ({"form": "parquet"}, r"another form \(jsonl in place of parquet\)"),
    ],
)
def test_a_folder_of_other_rankings_is_left_alone(place, tmp_path, options, message):
    rank_shards(place / "model", place / "all.npy", tmp_path / "out", k=3)
    before = contents(tmp_path / "out")
    with pytest.raises(InputError, match=message):
        rank_shards(place / "model", place / "all.npy", tmp_path / "out", **({"k": 3} | options))
    assert contents(tmp_path / "out") == before


def test_places_that_hold_something_else_are_refused(place, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").write_text("dear")
    for out, message in {
        tmp_path / "mine": "holds 'letter.txt', which no ranking wrote",
        tmp_path / "mine" / "letter.txt": "is a file; name a folder",
        place / "cut": "need two folders",
    }.items():
        with pytest.raises(InputError, match=message):
            rank_shards(place / "model", place / "cut", out)
    (tmp_path / "mine" / "plan.json").write_text("{}")
    with pytest.raises(InputError, match="is damaged or none of ours"):
        rank_shards(place / "model", place / "cut", tmp_path / "mine")
    write_shards(np.load(place / "all.npy"), tmp_path / "cut", 450)
    rank_shards(place / "model", tmp_path / "cut", tmp_path / "out")
    (tmp_path / "cut" / "part-00001.npy").unlink()
    with pytest.raises(InputError, match=r"rankings of 'part-00001.npy', which is no shard any"):
        rank_shards(place / "model", tmp_path / "cut", tmp_path / "out")


def test_options_that_do_not_go_together_are_refused(place, tmp_path):
    out = ["--out", tmp_path / "out"]
    cut = place / "cut"
    run("rank", place / "model", cut, *out, "--tags", "x.jsonl", code=2)
    run("rank", place / "model", cut, *out, "--form", "csv", code=2)
    done = run("rank", place / "model", cut, "--address", "auto", code=1)
    assert "needs the engine 'ray'" in str(done.exception)


def test_blocks_grow_smaller_with_many_labels(toy_tagger):
    many = SimpleNamespace(classes_=[str(n) for n in range(10**5)], kinds_=np.full(10**5, "seen"))
    assert Suggestions(toy_tagger, 1).n_rows == 1024
    assert Suggestions(many, 1).n_rows == 41


def test_without_ray_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(InputError, match=r"needs the extra `ray`; pip install 'polyseme\[ray\]'"):
        open_engine("ray").__enter__()


def answering(reply: bytes) -> str:
    """Listen on a free port and answer one caller; gives the address."""
    server = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with server:
            caller, _ = server.accept()
            with caller:
                caller.recv(1000)
                caller.sendall(reply)

    threading.Thread(target=serve, daemon=True).start()
    return f"127.0.0.1:{server.getsockname()[1]}"


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("127.0.0.1:1", r"No Ray cluster answers at '127.0.0.1:1' within 10 seconds"),
        ("somewhere", "must be 'auto', 'local' or HOST:PORT"),
        ("ray://host:10001", "must be 'auto', 'local' or HOST:PORT"),
        (b"HTTP/1.0 400 Bad Request", "what answers is not Ray"),
        (b"", "what answers is not Ray"),
    ],
)
def test_an_address_without_ray_is_told_in_a_sentence(address, message):
    pytest.importorskip("ray", reason="the extra `ray` is not installed")
    where = answering(address) if isinstance(address, bytes) else address
    with pytest.raises(InputError, match=message):
        open_engine("ray", where).__enter__()


@pytest.mark.parametrize(
    ("engine", "address", "workers", "message"),
    [
        ("spark", None, None, "`engine` of `open_engine` must be one of 'local', 'ray'"),
        ("local", "auto", None, "needs the engine 'ray'"),
        ("ray", None, 0, "`workers` of `open_engine` must be a whole number at least 1"),
    ],
)
def test_engines_are_checked(engine, address, workers, message):
    with pytest.raises(InputError, match=message):
        open_engine(engine, address, workers).__enter__()


# ---------------------------------------------------------------------- what workers refuse


def test_a_worker_of_another_version_refuses(tmp_path):
    outcome, sentence = work(HashFiles(str(tmp_path)), [], "0.0.1")
    assert outcome == "refused"
    assert "in place of 0.0.1; install the same version on all machines." in sentence


def test_a_worker_says_which_folder_it_cannot_see(tmp_path):
    from polyseme.cluster.jobs import own_version

    gone = tmp_path / "gone"
    outcome, sentence = work(HashFiles(str(gone)), [], own_version())
    assert (outcome, f"cannot see '{gone}'" in sentence) == ("refused", True)


def test_a_file_that_only_a_worker_lacks_is_an_error(tmp_path):
    here = tmp_path / "here.png"
    here.write_bytes(b"x")
    lacking = Outcome(None, "cannot be opened", "node-7")
    with pytest.raises(InputError, match=r"machine 'node-7' cannot see '.*here.png'"):
        lacking.given(here)
    assert str(lacking.given(tmp_path / "gone.png")) == "cannot be opened"


def test_a_worker_refuses_a_model_that_was_replaced(place):
    with pytest.raises(InputError, match="is another one; use a folder that all machines share"):
        load_same(str(place / "model"), "0" * 64)
    assert load_same(str(place / "model"), digest_of(place / "model")).classes_


def test_rankings_as_parquet_keep_empty_lists_and_have_many_groups(tmp_path, monkeypatch):
    parquet = pytest.importorskip("pyarrow.parquet", reason="the extra `parquet` is missing")
    monkeypatch.setattr(outputs, "GROUP_ROWS", 4)
    records = [
        {"row": row, "labels": ["a"] * n, "kinds": ["seen"] * n, "scores": [0.5] * n}
        for row, n in enumerate([0, 1, 2, 0, 3, 1, 0, 0, 2, 1])
    ]
    outputs.write_output(tmp_path / "out.parquet", records, "parquet")
    assert parquet.read_table(tmp_path / "out.parquet").to_pylist() == records
    assert parquet.ParquetFile(tmp_path / "out.parquet").num_row_groups == 3
