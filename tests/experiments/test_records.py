from __future__ import annotations

import json
from concurrent.futures import ProcessPoolExecutor

import pytest

from polyseme.base.validation import InputError, PolysemeWarning
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
    reordered = {"trial": 0, "setting": {"share": [0.25, 0.3]}}
    digest = config_hash(config)
    assert config_hash(reordered) == digest
    next_trial = config | {"trial": 1}
    assert config_hash(next_trial) != digest
    changed_share = {"setting": {"share": (0.25, 0.31)}, "trial": 0}
    assert config_hash(changed_share) != digest


def test_a_newer_record_replaces_the_older_one(tmp_path):
    store = RecordStore(tmp_path)
    store.add(record())
    newer = record(value=2.0, share=0.3)
    store.add(newer)
    loaded = RecordStore(tmp_path)
    latest = loaded.find("hsun", "polyseme", 0, newer["config"])
    assert latest == sealed(newer)
    assert loaded.find("hsun", "polyseme", 0, {"share": (0.3,)}) is None


def test_records_of_other_methods_trials_seeds_and_presets_stay_beside_each_other(tmp_path):
    records = tmp_path / "records"
    store = RecordStore(records)
    of_paper = record(preset="paper")
    for entry in (record(), record(trial=1), record("popularity"), record(seed=5), of_paper):
        store.add(entry)
    loaded = RecordStore(records)
    of_seed = loaded.find("hsun", "polyseme", 0, {"seed": 5})
    assert of_seed["seed"] == 5
    assert loaded.find("hsun", "polyseme", 0, of_paper["config"]) is not None
    assert loaded.find("corel5k", "polyseme", 0, {}) is None
    text = (records / "hsun.jsonl").read_text()
    methods = [json.loads(line)["method"] for line in text.splitlines()]
    expected = ["polyseme"] * 4 + ["popularity"]
    assert methods == expected


def test_processes_that_add_at_the_same_time_lose_nothing(tmp_path):
    with ProcessPoolExecutor(2) as pool:
        list(pool.map(add, [tmp_path] * 12, range(12)))
    (path,) = tmp_path.iterdir()
    assert path.name == "hsun.jsonl"
    lines = path.read_text().splitlines()
    assert len(lines) == 12


@pytest.mark.parametrize("line", ["{", "[]", json.dumps(record() | {"metrics": 3}), "\x95"])
def test_a_damaged_file_gets_one_sentence(tmp_path, line):
    good_line = json.dumps(sealed(record()))
    (tmp_path / "hsun.jsonl").write_text(f"{good_line}\n{line}\n")
    store = RecordStore(tmp_path)
    sentence = r"Line 2 of .* is not a record of a run; remove that line"
    with pytest.raises(InputError, match=sentence):
        store.find("hsun", "polyseme", 0, {})


def test_a_write_that_fails_leaves_the_old_file(tmp_path, monkeypatch):
    store = RecordStore(tmp_path)
    store.add(record())
    path = tmp_path / "hsun.jsonl"
    content = path.read_bytes()

    def fail(number):
        raise OSError("disk full")

    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(OSError, match="disk full"):
        store.add(record(trial=1))
    assert path.read_bytes() == content


@pytest.mark.parametrize(
    "edit",
    [
        lambda line: line.replace('"E-MAP": 1.0', '"E-MAP": 9.0'),
        lambda line: line.replace('"seconds": 3.0', '"seconds": 2.0'),
        lambda line: json.dumps({k: v for k, v in json.loads(line).items() if k != "digest"}),
    ],
    ids=["measure", "seconds", "without a digest"],
)
def test_an_edited_record_causes_a_warning_and_its_run_is_repeated(tmp_path, edit):
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


def test_records_without_digests_are_sealed(tmp_path):
    without_digest = record()
    (tmp_path / "hsun.jsonl").write_text(json.dumps(without_digest) + "\n")
    RecordStore(tmp_path).seal()
    loaded = RecordStore(tmp_path)
    assert loaded.find("hsun", "polyseme", 0, {}) == sealed(without_digest)


def test_records_that_were_edited_are_not_sealed_again(tmp_path):
    edited = sealed(record(trial=1)) | {"seconds": 0.0}
    (tmp_path / "hsun.jsonl").write_text(json.dumps(edited) + "\n")
    store = RecordStore(tmp_path)
    with pytest.raises(InputError, match="was changed after it was written"):
        store.seal()
