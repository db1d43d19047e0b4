from __future__ import annotations

import json

import pytest

from polyseme._validation import InputError
from polyseme_experiments.records import RecordStore, config_hash, make_record


def record(method="polyseme", trial=0, seed=0, setting="hsun", value=1.0, **config):
    return make_record(
        setting=setting,
        method=method,
        trial=trial,
        seed=seed,
        config={"trial": trial} | config,
        seconds=3.0,
        parts={"mapping": 2.0},
        facts={"data": {"hsun": "abc"}, "sample": True, "stand_in": {}, "counts": {}, "audit": {}},
        metrics={"zsl": {"E-MAP": value}},
    )


def test_the_digest_changes_with_any_value_and_not_with_the_order():
    config = {"setting": {"share": (0.25, 0.3)}, "trial": 0}
    assert config_hash(config) == config_hash({"trial": 0, "setting": {"share": [0.25, 0.3]}})
    assert config_hash(config) != config_hash(config | {"trial": 1})
    assert config_hash(config) != config_hash({"setting": {"share": (0.25, 0.31)}, "trial": 0})


def test_a_record_says_all_that_a_reader_needs():
    told = record()
    for name in ("config_hash", "version", "seed", "data", "seconds", "metrics", "finished"):
        assert name in told
    assert told["libraries"].keys() >= {"numpy", "torch", "scikit-learn"}
    assert json.loads(json.dumps(told)) == told


def test_records_come_back_from_disk_and_replace_older_ones(tmp_path):
    store = RecordStore(tmp_path / "records")
    for one in (record(), record(trial=1), record("popularity"), record(seed=5)):
        store.add(one)
    newer = record(value=2.0, share=0.3)
    store.add(newer)
    beside = record(preset="paper")
    store.add(beside)
    fresh = RecordStore(tmp_path / "records")
    assert fresh.find("hsun", "polyseme", 0, 0, newer["config_hash"])["metrics"]["zsl"] == {
        "E-MAP": 2.0
    }
    assert fresh.find("hsun", "polyseme", 0, 0, record()["config_hash"]) is None
    assert fresh.find("hsun", "polyseme", 0, 5, record()["config_hash"])["seed"] == 5
    assert fresh.find("corel5k", "polyseme", 0, 0, "x") is None
    lines = (tmp_path / "records" / "hsun.jsonl").read_text().splitlines()
    assert fresh.find("hsun", "polyseme", 0, 0, beside["config_hash"]) is not None
    assert len(lines) == 5
    assert [json.loads(line)["method"] for line in lines] == ["polyseme"] * 4 + ["popularity"]


@pytest.mark.parametrize(
    "line",
    ["{", "[]", '{"method": "x"}', "12", json.dumps(record() | {"metrics": 3}), "\x95"],
)
def test_a_damaged_file_gets_one_sentence(tmp_path, line):
    (tmp_path / "hsun.jsonl").write_text(json.dumps(record()) + "\n" + line + "\n")
    sentence = r"Line 2 of .* is not a record of a run; remove that line"
    with pytest.raises(InputError, match=sentence):
        RecordStore(tmp_path).find("hsun", "polyseme", 0, 0, "x")


def test_a_write_that_fails_leaves_the_old_file(tmp_path, monkeypatch):
    store = RecordStore(tmp_path)
    store.add(record())
    before = (tmp_path / "hsun.jsonl").read_bytes()
    monkeypatch.setattr("os.fsync", lambda number: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        store.add(record(trial=1))
    assert (tmp_path / "hsun.jsonl").read_bytes() == before
