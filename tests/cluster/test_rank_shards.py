"""Ranking shards in one process: a folder of rankings, resumed, refused with one sentence."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import pickle
import shutil
import socket
import sys
import threading
import warnings
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from typer.testing import CliRunner

from killed_writers import killed_while_writing
from polyseme import load
from polyseme._validation import InputError, PolysemeWarning
from polyseme.cli import app
from polyseme.cluster import engine, media, open_engine, rank_shards, ranking
from polyseme.features import ImageFeatures, extraction
from polyseme.io.columns import Roles
from polyseme.io.folders import MARK
from polyseme.io.shards import Shard, write_shards


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
    """All files but the mark, which is each folder's own."""
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name != MARK}


def run(*words: object, code: int = 0):
    done = CliRunner().invoke(app, [str(word) for word in words])
    assert done.exit_code == code, (done.output, done.exception)
    return done


@pytest.mark.parametrize(
    ("kind", "precision", "leaves_out"),
    [(None, 0.5, True), ("seen", 0.5, False), ("unseen", None, False), ("oov", None, False)],
)
def test_unseen_labels_that_cannot_be_promised_are_left_out_unless_asked_for(
    own_tagger, tmp_path, kind, precision, leaves_out, recwarn
):
    own_tagger.validation_ = replace(own_tagger.validation_, thresholds=(np.inf,))
    own_tagger.save(tmp_path / "model")
    suggestions = ranking.SavedRanker(tmp_path / "model", None, kind=kind)
    assert suggestions.tagger.validation_.highest_precision == 0
    assert (suggestions.precision, suggestions.leaves_out) == (precision, leaves_out)
    assert not recwarn.list, "the command tells of it where nobody asked for a precision"


def test_rankings_of_shards_are_what_the_tagger_says_and_what_is_printed(
    place, tmp_path, monkeypatch
):
    done = run("rank", place / "model", place / "cut", "-k", 3, "--out", tmp_path / "out")
    assert "900 rows of 4 shards ranked" in done.stderr
    text = "".join(p.read_text("utf-8") for p in sorted((tmp_path / "out").glob("*.jsonl")))
    assert text == run("rank", place / "model", place / "cut", "-k", 3).stdout
    lines = [json.loads(line) for line in text.splitlines()]
    assert [line["row"] for line in lines] == list(range(900))
    labels, scores = load(place / "model").rank(np.load(place / "all.npy"), k=3)
    np.testing.assert_allclose([line["scores"] for line in lines], scores, atol=2e-6)
    same = np.array([line["labels"] for line in lines]) == labels
    assert same.mean() > 0.99  # labels with nearly the same score may change places
    monkeypatch.setattr(ranking, "MOST_ROWS", 16)
    for workers in (1, 2):
        rank_shards(place / "model", place / "cut", tmp_path / str(workers), workers=workers)
    assert contents(tmp_path / "1") == contents(tmp_path / "2"), "the order of threads"


def test_a_manifest_lists_parquet_files_of_many_groups(place, tmp_path, monkeypatch):
    pq = pytest.importorskip("pyarrow.parquet", reason="the extra `parquet` is not installed")
    monkeypatch.setattr(ranking, "GROUP_ROWS", 100)
    words = ["--out", tmp_path / "out", "--out-form", "parquet", "--precision", 0.9]
    run("rank", place / "model", place / "cut", *words)
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_bytes())
    assert manifest["model"] == ranking.digest_of(place / "model")
    assert (manifest["rows"], manifest["top"], manifest["form"]) == (900, 10, "parquet")
    for entry in manifest["files"]:
        path = tmp_path / "out" / entry["file"]
        table = pq.ParquetFile(path)
        assert path.stat().st_size == entry["bytes"]
        assert table.num_row_groups == -(-entry["rows"] // 100)
        records = table.read().to_pylist()
        assert all(len(record["labels"]) == len(record["scores"]) for record in records)
        rows = range(entry["first"], entry["first"] + entry["rows"])
        assert [record["row"] for record in records] == list(rows)


def test_an_interrupted_run_goes_on_with_what_is_missing(place, tmp_path):
    def stop(done: int, total: int, skipped: int) -> None:
        if done >= 500:
            raise KeyboardInterrupt

    options = {"k": 2, "workers": 1}
    rank_shards(place / "model", place / "cut", tmp_path / "whole", **options)
    with pytest.raises(KeyboardInterrupt):
        rank_shards(place / "model", place / "cut", tmp_path / "out", progress=stop, **options)
    left = sorted(contents(tmp_path / "out"))
    assert left == ["done.journal", "part-00000.jsonl", "part-00001.jsonl", "plan.json"]
    before = [(tmp_path / "out" / name).stat().st_mtime_ns for name in left[1:3]]
    killed_while_writing(tmp_path / "out" / "part-00002.jsonl")
    done = rank_shards(place / "model", place / "cut", tmp_path / "out", **options)
    assert done == (4, 900, 2)
    assert [(tmp_path / "out" / name).stat().st_mtime_ns for name in left[1:3]] == before
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")
    assert rank_shards(place / "model", place / "cut", tmp_path / "out", **options).n_before == 4


def test_a_manifest_goes_before_anything_that_it_names(place, tmp_path, monkeypatch):
    cut, out = Path(shutil.copytree(place / "cut", tmp_path / "cut")), tmp_path / "out"
    rank_shards(place / "model", cut, out)
    shard = cut / "part-00001.npy"
    np.save(shard, np.load(shard)[::-1])
    write = ranking._write
    for name in ("done.journal", "plan.json"):

        def killed(path: Path, content: bytes, name: str = name) -> None:
            if path.name == name:
                raise KeyboardInterrupt
            write(path, content)

        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(ranking, "_write", killed)
            rank_shards(place / "model", cut, out)
        manifest = json.loads((out / "manifest.json").read_bytes())
        assert {one["file"] for one in manifest["files"]} <= contents(out).keys()


def test_files_of_somebody_else_stay_as_they_are(place, tmp_path):
    """Also while it works, and those that are called like what it writes."""
    out, mine = tmp_path / "out", ["thesis.tmp", ".0123456789abcdef.tmp", "notes.txt"]
    shutil.copytree(place / "cut", tmp_path / "cut")
    rank_shards(place / "model", tmp_path / "cut", out)
    for name in mine:
        (out / name).write_text("mine")
    (out / "plan.json").unlink()  # so that it is not all done
    with pytest.warns(PolysemeWarning):
        rank_shards(place / "model", tmp_path / "cut", out)
    assert {name: contents(out)[name] for name in mine} == dict.fromkeys(mine, b"mine")
    shutil.copy(place / "all.npy", tmp_path / "cut" / "shopping.npy")
    (out / "shopping.jsonl").write_text("bread")
    with pytest.raises(InputError, match=r"holds 'shopping.jsonl', which no ranking wrote"):
        rank_shards(place / "model", tmp_path / "cut", out)
    assert (out / "shopping.jsonl").read_text() == "bread"


def test_a_second_run_at_the_same_time_waits_for_its_turn(place, tmp_path):
    told = []

    def again(done: int, total: int, skipped: int) -> None:
        if not told:
            with pytest.raises(InputError, match="locked by another writer") as refused:
                rank_shards(place / "model", place / "cut", tmp_path / "out", workers=1)
            told.append(refused.value)

    rank_shards(place / "model", place / "cut", tmp_path / "out", progress=again, workers=1)
    rank_shards(place / "model", place / "cut", tmp_path / "alone", workers=1)
    assert told and contents(tmp_path / "out") == contents(tmp_path / "alone")


@pytest.mark.parametrize("finished", [True, False])
@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[: len(data) // 2],
        lambda data: b"",
        lambda data: data[:99] + bytes([data[99] ^ 1]) + data[100:],
        lambda data: data + b"\n",
        None,
    ],
    ids=["cut", "empty", "bit", "longer", "gone"],
)
def test_rankings_that_are_damaged_are_told_and_made_again(place, tmp_path, damage, finished):
    def stop(done: int, total: int, skipped: int) -> None:
        if done >= 900 and not finished:
            raise KeyboardInterrupt

    out, options = tmp_path / "out", {"k": 2, "workers": 1}
    with contextlib.suppress(KeyboardInterrupt):
        rank_shards(place / "model", place / "cut", out, progress=stop, **options)
    assert (out / "manifest.json").exists() == finished
    good = (out / "part-00001.jsonl").read_bytes()
    if damage is None:
        (out / "part-00001.jsonl").unlink()
    else:
        (out / "part-00001.jsonl").write_bytes(damage(good))
    with pytest.warns(PolysemeWarning, match="Damaged or gone .* made again: part-00001.jsonl"):
        assert rank_shards(place / "model", place / "cut", out, **options).n_before == 3
    assert (out / "part-00001.jsonl").read_bytes() == good
    manifest = json.loads((out / "manifest.json").read_bytes())
    for entry in manifest["files"]:
        data = (out / entry["file"]).read_bytes()
        assert entry["sha256"] == hashlib.sha256(data).hexdigest()


@pytest.mark.parametrize("name", ["plan.json", "manifest.json", "done.journal"])
def test_no_bit_of_what_is_noted_can_change_what_comes_out(place, tmp_path, name):
    out, options = tmp_path / "out", {"k": 2, "workers": 1}
    rank_shards(place / "model", place / "cut", out, **options)
    whole = contents(out)
    if name == "done.journal":
        lines = json.loads((out / "manifest.json").read_bytes())["files"]
        (out / name).write_text("".join(json.dumps(line) + "\n" for line in lines))
        (out / "manifest.json").unlink()
    data = (out / name).read_bytes()
    for at in (0, len(data) // 3, len(data) // 2, len(data) - 2):
        (out / name).write_bytes(data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PolysemeWarning)
            rank_shards(place / "model", place / "cut", out, **options)
        assert contents(out) == whole


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


def test_a_folder_of_other_rankings_is_left_alone(place, tmp_path):
    rank_shards(place / "model", place / "all.npy", tmp_path / "out", k=3)
    before = contents(tmp_path / "out")
    for options, message in (
        ({"k": 4}, r"another top \(3 in place of 4\)"),
        ({"k": 3, "precision": 0.5}, r"another precision \(None in place of 0.5\)"),
        ({"k": 3, "form": "parquet"}, r"another form \(jsonl in place of parquet\)"),
    ):
        with pytest.raises(InputError, match=message):
            rank_shards(place / "model", place / "all.npy", tmp_path / "out", **options)
    assert contents(tmp_path / "out") == before


def test_places_that_hold_something_else_are_refused(place, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").write_text("dear")
    (tmp_path / "torn").mkdir()
    (tmp_path / "torn" / "plan.json").write_text("[")
    write_shards(np.load(place / "all.npy"), tmp_path / "cut", 450)
    rank_shards(place / "model", tmp_path / "cut", tmp_path / "out")
    (tmp_path / "cut" / "part-00001.npy").unlink()
    for out, message in {
        tmp_path / "mine": "holds 'letter.txt' and no mark that polyseme made it",
        tmp_path / "mine" / "letter.txt": "is a file; name a folder to write to",
        tmp_path / "cut": "holds shards, and no rankings; name another folder",
        tmp_path / "torn": "holds 'plan.json' and no mark",
        tmp_path / "out": r"rankings of 'part-00001.npy', which is no shard any",
    }.items():
        with pytest.raises(InputError, match=message):
            rank_shards(place / "model", tmp_path / "cut", out)


def test_options_that_do_not_go_together_are_refused(place, tmp_path):
    out = ["--out", tmp_path / "out"]
    cut = place / "cut"
    run("rank", place / "model", cut, *out, "--tags", "x.jsonl", code=2)
    run("rank", place / "model", cut, *out, "--form", "csv", code=2)
    done = run("rank", place / "model", cut, "--address", "auto", code=1)
    assert "needs the engine 'ray'" in str(done.exception)


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
    ("words", "message"),
    [
        (("spark",), "`engine` of `open_engine` must be one of 'local', 'ray'"),
        (("ray", None, 0), "`workers` of `open_engine` must be a whole number at least 1"),
        (("ray", "127.0.0.1:1"), r"No Ray cluster answers at '127.0.0.1:1' within 10 seconds"),
        (("ray", "ray://host:10001"), "must be 'auto', 'local' or HOST:PORT"),
        (("ray", b"HTTP/1.0 400 Bad Request"), "what answers is not Ray"),
        (("ray", b""), "what answers is not Ray"),
    ],
)
def test_engines_and_addresses_are_checked(words, message, monkeypatch):
    pytest.importorskip("ray", reason="the extra `ray` is not installed")
    words = [answering(word) if isinstance(word, bytes) else word for word in words]
    with pytest.raises(InputError, match=message):
        open_engine(*words).__enter__()
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(InputError, match=r"needs the extra `ray`; pip install '.\[ray\]'"):
        open_engine("ray").__enter__()


def test_a_worker_refuses_in_a_sentence(place, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(get=lambda pieces: pieces))
    replaced, moved = (ranking.SavedRanker(place / "model", 1) for _ in range(2))
    replaced.digest, moved.model = "0" * 64, tmp_path / "no"
    shard = Shard(tmp_path / "no.npy", 0, 1, Roles({}, None, None, (), ()))
    here = engine.own_version()
    for function, piece, version, message in (
        (str, 1, "0.0.1", "in place of 0.0.1; install the same version on all machines."),
        (partial(media._tag, replaced, 1, []), [], here, "is another one; use a folder that all"),
        (partial(ranking._rank_piece, moved), (shard, None), here, "cannot see"),
        (partial(ranking._rank_shard, moved, tmp_path / "out", "jsonl"), shard, here, "cannot see"),
        (
            partial(extraction.look_at, ImageFeatures(), "0"),
            [],
            here,
            "would make other numbers of image files",
        ),
        (os.listdir, "/no/folder", here, "cannot go on: [Errno 2]"),
    ):
        worker = engine._Worker(function, [piece], version)
        ((_, sentence),) = worker({"piece": [0]})["outcome"]
        assert message in sentence
    moved.tagger = SimpleNamespace(classes_=range(100_000))
    assert moved.n_rows == 41, "tables of scores stay small"
    assert not {"tagger", "n_rows"} & vars(pickle.loads(pickle.dumps(moved))).keys()


def test_a_head_that_is_gone_is_told_once(monkeypatch, capsys):
    """Ray ends the process then, without a word."""
    monkeypatch.setattr(engine, "_LOOK_SECONDS", 0.01)
    before = set(threading.enumerate())

    def watcher():
        (thread,) = set(threading.enumerate()) - before
        return thread

    with socket.create_server(("127.0.0.1", 0)) as head:
        port = head.getsockname()[1]
        with engine._watch_head(f"127.0.0.1:{port}"):
            head.accept()  # it was looked at
            there = watcher()
        there.join()
        assert capsys.readouterr().err == ""
    with engine._watch_head(f"127.0.0.1:{port}"):
        watcher().join()
    assert capsys.readouterr().err.count("is gone, and Ray ends this process") == 1


def test_a_file_that_only_a_worker_lacks_ends_the_work(tmp_path):
    (tmp_path / "seen.png").touch()
    blind = SimpleNamespace(map=lambda *_: [[extraction.UnseenError("elsewhere")]])
    with pytest.raises(InputError, match=r"The machine 'elsewhere' cannot see '.*seen.png'"):
        list(extraction.map_files(blind, len, [tmp_path / "seen.png"], 8))
