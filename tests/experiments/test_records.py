from __future__ import annotations

import json
from concurrent.futures import ProcessPoolExecutor

import pytest

from polyseme._validation import InputError, PolysemeWarning
from polyseme_experiments.records import RecordStore, config_hash, environment, sealed


def record(method="polyseme", trial=0, seed=0, setting="hsun", value=1.0, **config):
    config = {"trial": trial, "seed": seed} | config
    return environment() | {
        **{"setting": setting, "method": method, "trial": trial, "seed": seed},
        **{"config": config, "config_hash": config_hash(config), "seconds": 3.0},
        **{"parts": {"mapping": 2.0}, "data": {"hsun": "abc"}, "stand_in": {}, "sample": True},
        "metrics": {"zsl": {"E-MAP": value}},
    }


def add(folder, trial):
    RecordStore(folder).add(record(trial=trial))


def test_the_digest_changes_with_any_value_and_not_with_the_order():
    config = {"setting": {"share": (0.25, 0.3)}, "trial": 0}
    assert config_hash(config) == config_hash({"trial": 0, "setting": {"share": [0.25, 0.3]}})
    assert config_hash(config) != config_hash(config | {"trial": 1})
    assert config_hash(config) != config_hash({"setting": {"share": (0.25, 0.31)}, "trial": 0})


def test_records_come_back_from_disk_and_replace_older_ones(tmp_path):
    store = RecordStore(tmp_path / "records")
    for one in (record(), record(trial=1), record("popularity"), record(seed=5)):
        store.add(one)
    newer = record(value=2.0, share=0.3)
    beside = record(preset="paper")
    store.add(newer)
    store.add(beside)
    fresh = RecordStore(tmp_path / "records")
    assert fresh.find("hsun", "polyseme", 0, newer["config"]) == sealed(newer)
    assert fresh.find("hsun", "polyseme", 0, {"share": (0.3,)}) is None
    assert fresh.find("hsun", "polyseme", 0, {"seed": 5})["seed"] == 5
    assert fresh.find("corel5k", "polyseme", 0, {}) is None
    assert fresh.find("hsun", "polyseme", 0, beside["config"]) is not None
    lines = (tmp_path / "records" / "hsun.jsonl").read_text().splitlines()
    assert [json.loads(line)["method"] for line in lines] == ["polyseme"] * 4 + ["popularity"]


def test_processes_that_add_at_the_same_time_lose_nothing(tmp_path):
    with ProcessPoolExecutor(2) as pool:
        list(pool.map(add, [tmp_path] * 12, range(12)))
    assert len((tmp_path / "hsun.jsonl").read_text().splitlines()) == 12
    assert [path.name for path in tmp_path.iterdir()] == ["hsun.jsonl"]


@pytest.mark.parametrize("line", ["{", "[]", json.dumps(record() | {"metrics": 3}), "\x95"])
def test_a_damaged_file_gets_one_sentence(tmp_path, line):
    (tmp_path / "hsun.jsonl").write_text(json.dumps(sealed(record())) + "\n" + line + "\n")
    sentence = r"Line 2 of .* is not a record of a run; remove that line"
    with pytest.raises(InputError, match=sentence):
        RecordStore(tmp_path).find("hsun", "polyseme", 0, {})


def test_a_write_that_fails_leaves_the_old_file(tmp_path, monkeypatch):
    store = RecordStore(tmp_path)
    store.add(record())
    before = (tmp_path / "hsun.jsonl").read_bytes()
    monkeypatch.setattr("os.fsync", lambda number: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        store.add(record(trial=1))
    assert (tmp_path / "hsun.jsonl").read_bytes() == before


@pytest.mark.parametrize(
    "edit",
    [
        lambda line: line.replace('"E-MAP": 1.0', '"E-MAP": 9.0'),
        lambda line: line.replace('"seconds": 3.0', '"seconds": 2.0'),
        lambda line: json.dumps({k: v for k, v in json.loads(line).items() if k != "digest"}),
    ],
    ids=["measure", "seconds", "without a digest"],
)
def test_an_edited_record_is_told_and_its_run_is_run_again(tmp_path, edit):
    run = record()
    RecordStore(tmp_path).add(run)
    RecordStore(tmp_path).add(record("popularity"))
    path = tmp_path / "hsun.jsonl"
    whole = path.read_text()
    lines = whole.splitlines()
    path.write_text("\n".join([edit(lines[0]), lines[1]]) + "\n")
    assert path.read_text() != whole
    wrong = r"Line 1 of .* (was changed after it was written|has no digest); remove"
    with pytest.raises(InputError, match=wrong):
        RecordStore(tmp_path).find("hsun", "polyseme", 0, {})
    mending = RecordStore(tmp_path, mend=True)
    with pytest.warns(PolysemeWarning, match=r"Line 1 of .* its run counts as not run"):
        assert mending.find("hsun", "polyseme", 0, {}) is None
    assert mending.find("hsun", "popularity", 0, {}) is not None
    with pytest.warns(PolysemeWarning):
        mending.add(run)
    assert path.read_text() == whole


def test_records_of_before_there_were_digests_are_sealed_once(tmp_path):
    old = record()
    edited = sealed(record(trial=1)) | {"seconds": 0.0}
    (tmp_path / "hsun.jsonl").write_text(json.dumps(old) + "\n")
    RecordStore(tmp_path).seal()
    assert RecordStore(tmp_path).find("hsun", "polyseme", 0, {}) == sealed(old)
    (tmp_path / "hsun.jsonl").write_text(json.dumps(edited) + "\n")
    with pytest.raises(InputError, match="was changed after it was written"):
        RecordStore(tmp_path).seal()
