"""Ranking shards in one process: a folder of rankings, resumed, refused with one sentence."""

from __future__ import annotations

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
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from jobs import contents, manifest_of, repeated_features, run
from numpy.testing import assert_allclose

from killed_writers import killed_while_writing
from polyseme import load
from polyseme.base.validation import InputError, PolysemeWarning
from polyseme.batch import open_engine, rank_shards, ranking, ray_engine, tagging
from polyseme.io.columns import ColumnRoles
from polyseme.io.shards import Shard, write_shards
from polyseme.media import ImageFeatures, extraction


@pytest.fixture(scope="module")
def place(tmp_path_factory, toy_tagger, world) -> Path:
    """A model, and its training items three times over as shards."""
    folder = tmp_path_factory.mktemp("shards")
    toy_tagger.save(folder / "model")
    X = repeated_features(world, 3)
    np.save(folder / "all.npy", X)
    write_shards(X, folder / "cut", 250)
    return folder


@pytest.fixture
def cut(place, tmp_path) -> Path:
    """A copy of the shards that a test may change."""
    return Path(shutil.copytree(place / "cut", tmp_path / "cut"))


@pytest.fixture
def out(tmp_path) -> Path:
    return tmp_path / "out"


@pytest.fixture
def rank(place, out):
    """Rank shards with the model."""

    model = place / "model"
    all_shards = place / "cut"

    def rank_into(shards=all_shards, folder=out, **options):
        return rank_shards(model, shards, folder, **options)

    return rank_into


# Two labels an item, and shards in their order.
SERIAL = {"k": 2, "workers": 1}


def stop_at(n, done: int, total: int, skipped: int) -> None:
    """Interrupt a job when so many rows are done."""
    if done >= n:
        raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("kind", "precision", "leaves_out"),
    [(None, 0.5, True), ("seen", 0.5, False), ("unseen", None, False), ("oov", None, False)],
)
def test_by_default_unseen_labels_without_a_reachable_precision_are_left_out(
    own_tagger, tmp_path, kind, precision, leaves_out, recwarn
):
    own_tagger.validation_ = replace(own_tagger.validation_, thresholds=(np.inf,))
    own_tagger.save(tmp_path / "model")
    suggestions = ranking.SavedRanker(tmp_path / "model", None, kind=kind)
    assert suggestions.tagger.validation_.highest_precision == 0
    assert (suggestions.precision, suggestions.leaves_out) == (precision, leaves_out)
    assert not recwarn.list, "only the command reports it where nobody set a precision"


def test_rankings_in_a_folder_are_those_that_are_printed(place, out):
    words = ("rank", place / "model", place / "cut", "-k", 3)
    assert "900 rows of 4 shards ranked" in run(*words, "--out", out).stderr
    files = sorted(out.glob("*.jsonl"))
    texts = [file.read_text("utf-8") for file in files]
    printed = run(*words).stdout
    assert "".join(texts) == printed


def test_rankings_are_those_of_the_tagger(place):
    stdout = run("rank", place / "model", place / "cut", "-k", 3).stdout
    records = [json.loads(line) for line in stdout.splitlines()]
    tagger = load(place / "model")
    labels, scores = tagger.rank(np.load(place / "all.npy"), k=3)
    rankings = pd.DataFrame(records)
    assert rankings["row"].tolist() == list(range(900))
    assert_allclose(rankings["scores"].tolist(), scores, atol=2e-6)
    is_equal = np.array(rankings["labels"].tolist()) == labels
    assert is_equal.mean() > 0.99  # labels with nearly the same score may change places


def test_the_number_of_threads_does_not_change_the_files(rank, tmp_path, monkeypatch):
    monkeypatch.setattr(ranking, "MOST_ROWS", 16)
    serial = tmp_path / "serial"
    parallel = tmp_path / "parallel"
    rank(folder=serial, workers=1)
    rank(folder=parallel, workers=2)
    assert contents(serial) == contents(parallel)


def test_a_manifest_lists_parquet_files_of_many_groups(place, out, monkeypatch):
    pq = pytest.importorskip("pyarrow.parquet", reason="the extra `parquet` is not installed")
    monkeypatch.setattr(ranking, "GROUP_ROWS", 100)
    options = ["--out", out, "--out-form", "parquet", "--precision", 0.9]
    run("rank", place / "model", place / "cut", *options)
    manifest = manifest_of(out)
    assert manifest["model"] == ranking.digest_of(place / "model")
    assert (manifest["rows"], manifest["top"], manifest["form"]) == (900, 10, "parquet")
    for entry in manifest["files"]:
        path = out / entry["file"]
        table = pq.ParquetFile(path)
        assert path.stat().st_size == entry["bytes"]
        assert table.num_row_groups == -(-entry["rows"] // 100)
        records = table.read().to_pylist()
        for row, record in enumerate(records, entry["first"]):
            assert record["row"] == row
            assert len(record["labels"]) == len(record["scores"])
        assert len(records) == entry["rows"]


def test_an_interrupted_run_ranks_only_the_missing_shards(rank, out, tmp_path):
    rank(folder=tmp_path / "whole", **SERIAL)
    with pytest.raises(KeyboardInterrupt):
        rank(progress=partial(stop_at, 500), **SERIAL)
    finished = ["part-00000.jsonl", "part-00001.jsonl"]
    assert sorted(contents(out)) == ["done.journal", *finished, "plan.json"]
    times = [(out / name).stat().st_mtime_ns for name in finished]
    killed_while_writing(out / "part-00002.jsonl")
    assert rank(**SERIAL) == (4, 900, 2)
    assert [(out / name).stat().st_mtime_ns for name in finished] == times
    assert contents(out) == contents(tmp_path / "whole")
    assert rank(**SERIAL).n_before == 4


def test_a_manifest_never_names_a_missing_file(rank, cut, out, monkeypatch):
    rank(cut)
    shard = cut / "part-00001.npy"
    np.save(shard, np.load(shard)[::-1])
    write = ranking._write

    def write_until(last: str, path: Path, content: bytes) -> None:
        if path.name == last:
            raise KeyboardInterrupt
        write(path, content)

    for name in ("done.journal", "plan.json"):
        monkeypatch.setattr(ranking, "_write", partial(write_until, name))
        with pytest.raises(KeyboardInterrupt):
            rank(cut)
        names = {entry["file"] for entry in manifest_of(out)["files"]}
        assert names <= contents(out).keys()


def test_other_files_in_the_folder_stay_although_they_have_names_of_ours(rank, cut, out):
    names = ["thesis.tmp", ".0123456789abcdef.tmp", "notes.txt"]
    rank(cut)
    for name in names:
        (out / name).write_text("mine")
    (out / "plan.json").unlink()  # so that there is work to do
    with pytest.warns(PolysemeWarning):
        rank(cut)
    for name in names:
        assert (out / name).read_text() == "mine"


def test_a_file_that_no_ranking_wrote_is_not_overwritten(place, rank, cut, out):
    rank(cut)
    shutil.copy(place / "all.npy", cut / "shopping.npy")
    (out / "shopping.jsonl").write_text("bread")
    with pytest.raises(InputError, match=r"holds 'shopping.jsonl', which no ranking wrote"):
        rank(cut)
    assert (out / "shopping.jsonl").read_text() == "bread"


def test_a_second_run_at_the_same_time_is_refused(rank, out, tmp_path):
    refusals = []

    def run_again(done: int, total: int, skipped: int) -> None:
        if not refusals:
            with pytest.raises(InputError, match="locked by another writer") as refusal:
                rank(workers=1)
            refusals.append(refusal.value)

    rank(progress=run_again, workers=1)
    assert refusals
    rank(folder=tmp_path / "alone", workers=1)
    assert contents(out) == contents(tmp_path / "alone")


def flip_bit(data: bytes, position: int, bit: int) -> bytes:
    return data[:position] + bytes([data[position] ^ bit]) + data[position + 1 :]


DAMAGE = {
    "cut": lambda data: data[: len(data) // 2],
    "empty": lambda data: b"",
    "bit": lambda data: flip_bit(data, 99, 1),
    "longer": lambda data: data + b"\n",
}


@pytest.mark.parametrize("finished", [True, False])
@pytest.mark.parametrize("damage", [*DAMAGE, "missing"])
def test_damaged_rankings_are_reported_and_computed_again(rank, out, damage, finished):
    if finished:
        rank(**SERIAL)
    else:
        with pytest.raises(KeyboardInterrupt):
            rank(progress=partial(stop_at, 900), **SERIAL)
    assert (out / "manifest.json").exists() == finished
    file = out / "part-00001.jsonl"
    whole = file.read_bytes()
    file.unlink()
    if damage != "missing":
        file.write_bytes(DAMAGE[damage](whole))
    with pytest.warns(PolysemeWarning, match="Damaged or gone .* made again: part-00001.jsonl"):
        assert rank(**SERIAL).n_before == 3
    assert file.read_bytes() == whole
    written = contents(out)
    for entry in manifest_of(out)["files"]:
        name = entry["file"]
        digest = sha256(written[name]).hexdigest()
        assert entry["sha256"] == digest


@pytest.mark.parametrize("name", ["plan.json", "manifest.json", "done.journal"])
def test_a_flipped_bit_in_the_records_of_a_job_does_not_change_its_files(rank, out, name):
    rank(**SERIAL)
    whole = contents(out)
    if name == "done.journal":
        manifest = manifest_of(out)
        lines = [json.dumps(entry) + "\n" for entry in manifest["files"]]
        (out / name).write_text("".join(lines))
        (out / "manifest.json").unlink()
    file = out / name
    data = file.read_bytes()
    for position in (0, len(data) // 3, len(data) // 2, len(data) - 2):
        damaged = flip_bit(data, position, 4)
        file.write_bytes(damaged)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PolysemeWarning)
            rank(**SERIAL)
        assert contents(out) == whole


def test_only_a_changed_shard_is_ranked_again(place, rank, out, tmp_path):
    X = np.load(place / "all.npy")
    shards = tmp_path / "cut"
    write_shards(X, shards, 300)
    rank(shards)
    before = contents(out)
    changed_rows = X[300:600][::-1]
    np.save(shards / "part-00001.npy", changed_rows)
    assert rank(shards).n_before == 2
    after = contents(out)
    assert after["part-00001.jsonl"] != before["part-00001.jsonl"]
    rank(shards, tmp_path / "fresh")
    fresh = contents(tmp_path / "fresh")
    for name in ("part-00000.jsonl", "part-00001.jsonl", "manifest.json"):
        assert after[name] == fresh[name]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"k": 4}, r"another top \(3 in place of 4\)"),
        ({"k": 3, "precision": 0.5}, r"another precision \(None in place of 0.5\)"),
        ({"k": 3, "form": "parquet"}, r"another form \(jsonl in place of parquet\)"),
    ],
    ids=["top", "precision", "form"],
)
def test_a_folder_of_rankings_with_other_options_is_not_changed(place, rank, out, options, message):
    features = place / "all.npy"
    rank(features, k=3)
    before = contents(out)
    with pytest.raises(InputError, match=message):
        rank(features, **options)
    assert contents(out) == before


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("mine", "holds 'letter.txt' and no mark that polyseme made it"),
        ("mine/letter.txt", "is a file; name a folder to write to"),
        ("cut", "holds shards, and no rankings; name another folder"),
        ("torn", "holds 'plan.json' and no mark"),
        ("out", r"rankings of 'part-00001.npy', which is no shard any"),
    ],
)
def test_a_folder_that_holds_something_else_is_refused(rank, cut, tmp_path, name, message):
    for file, text in (("mine/letter.txt", "dear"), ("torn/plan.json", "[")):
        path = tmp_path / file
        path.parent.mkdir()
        path.write_text(text)
    if name == "out":
        rank(cut)
        (cut / "part-00001.npy").unlink()
    with pytest.raises(InputError, match=message):
        rank(cut, tmp_path / name)


def test_options_that_do_not_go_together_are_refused(place, out):
    words = ("rank", place / "model", place / "cut")
    run(*words, "--out", out, "--tags", "x.jsonl", code=2)
    run(*words, "--out", out, "--form", "csv", code=2)


def test_an_address_needs_the_engine_ray(place):
    words = ("rank", place / "model", place / "cut")
    result = run(*words, "--address", "auto", code=1)
    sentence = str(result.exception)
    assert "needs the engine 'ray'" in sentence


def start_answering(reply: bytes) -> str:
    """Listen on a free port and answer one caller; return the address."""
    server = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with server:
            caller, _ = server.accept()
            with caller:
                caller.recv(1000)
                caller.sendall(reply)

    threading.Thread(target=serve, daemon=True).start()
    port = server.getsockname()[1]
    return f"127.0.0.1:{port}"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("spark",), "`engine` of `open_engine` must be one of 'local', 'ray'"),
        (("ray", None, 0), "`workers` of `open_engine` must be a whole number at least 1"),
        (("ray", "127.0.0.1:1"), r"No Ray cluster answers at '127.0.0.1:1' within 10 seconds"),
        (("ray", "ray://host:10001"), "must be 'auto', 'local' or HOST:PORT"),
    ],
    ids=["engine", "workers", "nobody", "address"],
)
def test_a_wrong_engine_or_address_is_refused(arguments, message):
    pytest.importorskip("ray", reason="the extra `ray` is not installed")
    with pytest.raises(InputError, match=message), open_engine(*arguments):
        pass


@pytest.mark.parametrize("reply", [b"HTTP/1.0 400 Bad Request", b""])
def test_a_server_that_is_not_ray_is_refused(reply):
    pytest.importorskip("ray", reason="the extra `ray` is not installed")
    address = start_answering(reply)
    with pytest.raises(InputError, match="what answers is not Ray"), open_engine("ray", address):
        pass


def test_without_ray_the_extra_to_install_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    message = r"needs the extra `ray`; pip install '.\[ray\]'"
    with pytest.raises(InputError, match=message), open_engine("ray"):
        pass


def refusal_of_worker(function, piece, version=None) -> str:
    """Return the sentence with which a worker refuses a piece of work."""
    worker = ray_engine._Worker(function, [piece], version or ray_engine.own_version())
    result = worker({"piece": [0]})
    ((_, sentence),) = result["outcome"]
    return sentence


@pytest.fixture
def suggestions(place, monkeypatch):
    """What the workers of a ranking get."""
    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(get=lambda pieces: pieces))
    return ranking.SavedRanker(place / "model", 1)


def test_a_worker_refuses_another_model(suggestions):
    suggestions.digest = "0" * 64
    tag = partial(tagging._tag, suggestions, 1, [])
    refusal = refusal_of_worker(tag, [])
    assert "is another one; use a folder that all" in refusal


def test_a_worker_refuses_a_model_or_shard_that_it_cannot_see(suggestions, tmp_path):
    suggestions.model = tmp_path / "no"
    shard = Shard(tmp_path / "no.npy", 0, 1, ColumnRoles({}, None, None, (), ()))
    rank_piece = partial(ranking._rank_piece, suggestions)
    assert "cannot see" in refusal_of_worker(rank_piece, (shard, None))
    rank_shard = partial(ranking._rank_shard, suggestions, tmp_path / "out", "jsonl")
    assert "cannot see" in refusal_of_worker(rank_shard, shard)


def test_a_worker_refuses_another_version_other_features_and_errors(suggestions):
    refusal = refusal_of_worker(str, 1, "0.0.1")
    assert "in place of 0.0.1; install the same version on all machines." in refusal
    refusal = refusal_of_worker(partial(extraction.look_at, ImageFeatures(), "0"), [])
    assert "would make other numbers of image files" in refusal
    assert "cannot go on: [Errno 2]" in refusal_of_worker(os.listdir, "/no/folder")


def test_suggestions_for_workers_are_small(suggestions):
    suggestions.tagger = SimpleNamespace(classes_=range(100_000))
    assert suggestions.block_rows == 41, "tables of scores stay small"
    pickled = pickle.dumps(suggestions)
    copy = pickle.loads(pickled)
    assert "tagger" not in vars(copy)
    assert "block_rows" not in vars(copy)


def test_a_head_node_that_is_gone_is_reported_once(monkeypatch, capsys):
    """Ray ends the process then, without a word."""
    monkeypatch.setattr(ray_engine, "_LOOK_SECONDS", 0.01)
    threads = set(threading.enumerate())

    def watcher():
        (thread,) = set(threading.enumerate()) - threads
        return thread

    with socket.create_server(("127.0.0.1", 0)) as head:
        port = head.getsockname()[1]
        with ray_engine._watch_head(f"127.0.0.1:{port}"):
            head.accept()  # it was looked at
            watching = watcher()
        watching.join()
        assert capsys.readouterr().err == ""
    with ray_engine._watch_head(f"127.0.0.1:{port}"):
        watcher().join()
    assert capsys.readouterr().err.count("is gone, and Ray ends this process") == 1


def test_a_file_that_only_a_worker_lacks_ends_the_job(tmp_path):
    (tmp_path / "seen.png").touch()
    blind = SimpleNamespace(map=lambda *_: [[extraction.UnseenError("elsewhere")]])
    with pytest.raises(InputError, match=r"The machine 'elsewhere' cannot see '.*seen.png'"):
        list(extraction.map_files(blind, len, [tmp_path / "seen.png"], 8))
