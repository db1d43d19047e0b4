"""Whole experiments on samples: what is run, kept, resumed and told."""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from joblib.externals.loky import reusable_executor
from threadpoolctl import threadpool_info, threadpool_limits

from html_pages import Parsed
from polyseme.base.validation import InputError
from polyseme.storage.atomic_files import MARK_FILE
from polyseme_experiments import EXPERIMENTS
from polyseme_experiments.datasets import load_dataset
from polyseme_experiments.figures import get_experiment
from polyseme_experiments.records import RecordStore
from polyseme_experiments.reproduce import reproduce
from polyseme_experiments.runner import Run, make_tasks, run_tasks
from polyseme_experiments.sampling import RunConfig

QUICK = RunConfig(quick=True)


def records_of(folder):
    records = {}
    for path in (folder / "records").glob("*.jsonl"):
        for line in path.read_text().splitlines():
            record = json.loads(line)
            run = (record["setting"], record["method"], record["trial"])
            records[run] = record
    return records


@pytest.fixture(scope="module")
def fig9(tmp_path_factory):
    """One figure, by two processes."""
    folder = tmp_path_factory.mktemp("fig9")
    (section,) = reproduce(["fig9"], QUICK, out=folder, workers=2)
    return folder, section


def has_note(table, word):
    return any(word in note for note in table.notes)


@pytest.mark.reproduction
def test_quick_runs_every_table_and_figure(tmp_path):
    """`polyseme reproduce --quick` as a user runs it."""
    command = [sys.executable, "-m", "polyseme", "reproduce", "--quick", "--out", str(tmp_path)]
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr
    assert re.search(r"\[\d+/\d+\] hsun, trial \d: .* left", process.stderr)
    path = tmp_path / "report.html"
    assert f"report: {path}" in process.stderr
    rows = [json.loads(line) for line in process.stdout.splitlines()]
    printed_tables = {row["table"] for row in rows}
    assert printed_tables >= {"table1", "fig9", "compare-hsun"}

    runs = set()
    for name in EXPERIMENTS:
        runs |= set(get_experiment(name).runs(3, quick=True))
    records = records_of(tmp_path)
    assert records.keys() == runs
    for record in records.values():
        assert record["audit"]["passed"]

    # All of it is recorded now, so this only reads.
    sections = reproduce(["all"], QUICK, out=tmp_path)
    assert [section.name for section in sections] == list(EXPERIMENTS)
    page = path.read_text()
    markdown = (tmp_path / "README.md").read_text()
    ids = Parsed(page).values("id")
    assert len(ids) == len(set(ids))
    for section in sections:
        for figure in section.figures:
            assert figure.svg in page
        for table in section.tables:
            assert f"table-{table.name}" in ids
            assert table.title in markdown
            text = (tmp_path / "tables" / f"{table.name}.csv").read_text()
            assert list(csv.DictReader(text.splitlines()))
            if not table.name.endswith("-tests"):
                assert has_note(table, "SAMPLES")
        if section.name in ("fig6", "fig8", "fig10", "fig11", "fig12", "fig13", "fig14"):
            assert has_note(section.tables[0], "STAND-IN")


def test_published_values_stand_beside_ours_and_samples_are_declared(fig9):
    folder, section = fig9
    (table,) = section.tables
    rows = {row[:2]: row[2:] for row in table.rows}
    cells = rows["concept embedding", "E-MAP"]
    published = [(cell.published, cell.published_error) for cell in cells]
    assert published == [(58.20, 0.29), (56.06, 0.16), (None, None)]
    n_trials = {cell.n for cell in table.cells() if cell.mean is not None}
    assert n_trials <= {1, 2}
    assert has_note(table, "SAMPLES")
    assert has_note(table, "default preset")
    runs = get_experiment("fig9").runs(3, quick=True)
    assert set(records_of(folder)) == set(runs)


@pytest.fixture
def copied_records(fig9, tmp_path):
    """A folder of results with the records of Figure 9 and nothing else."""
    folder, _ = fig9
    shutil.copytree(folder / "records", tmp_path / "records")
    shutil.copy(folder / MARK_FILE, tmp_path)
    return tmp_path


def test_what_is_recorded_is_not_run_again(copied_records):
    lines = []
    reproduce(["fig9"], QUICK, out=copied_records, log=lines.append)
    assert lines[0] == "10 runs are recorded already; 0 to go"
    assert lines[1].startswith("the report leaves out default, parts, compare: recorded in part")


def test_a_report_from_records_needs_no_data(fig9, copied_records, monkeypatch):
    folder, _ = fig9
    monkeypatch.delenv("POLYSEME_DATA", raising=False)
    reproduce(["fig9"], QUICK, out=copied_records, from_records=True)
    for name in ("report.html", "README.md", "tables/fig9.csv", "records/hsun.jsonl"):
        content = (copied_records / name).read_bytes()
        assert content == (folder / name).read_bytes()


def test_a_report_from_records_names_the_runs_that_are_missing(copied_records):
    with pytest.raises(InputError, match=r"lacks 6 of the 6 runs of 'fig7' .* run it first"):
        reproduce(["fig7"], QUICK, out=copied_records, from_records=True)
    path = copied_records / "records" / "hsun.jsonl"
    _, *lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines))
    with pytest.raises(InputError, match=r"lacks 1 of the 10 runs of 'fig9'"):
        reproduce(["fig9"], QUICK, out=copied_records, from_records=True)


def test_processes_change_no_figure_and_an_interrupted_run_goes_on(fig9, tmp_path, monkeypatch):
    add = RecordStore.add
    added = []

    def impatient(self, record):
        if len(added) == 4:
            raise KeyboardInterrupt
        add(self, record)
        added.append(record)

    monkeypatch.setattr(RecordStore, "add", impatient)
    with pytest.raises(KeyboardInterrupt):
        reproduce(["fig9"], QUICK, out=tmp_path, workers=1)
    assert len(records_of(tmp_path)) == 4
    monkeypatch.undo()
    log = []
    reproduce(["fig9"], QUICK, out=tmp_path, workers=1, log=log.append)
    assert log[0] == "4 runs are recorded already; 6 to go"
    alone = records_of(tmp_path)
    together = records_of(fig9[0])
    assert alone.keys() == together.keys()
    for run, record in alone.items():
        assert record["metrics"] == together[run]["metrics"], run
        assert record["audit"] == together[run]["audit"]


def test_fresh_learns_again_and_another_model_is_not_shown_as_this_one(tmp_path, monkeypatch):
    reproduce(["fig1"], QUICK, out=tmp_path, workers=1)
    (clock,) = (tmp_path / "cache").glob("*.seconds")
    clock.write_text("1e9")  # what it took, if it were kept
    reproduce(["fig1"], QUICK, out=tmp_path, workers=1, fresh=True)
    assert float(clock.read_text()) < 1e9
    of_paper = replace(QUICK, preset="paper")
    with pytest.raises(InputError, match=r"lacks 1 of the 1 runs of 'fig1'"):
        reproduce(["fig1"], of_paper, out=tmp_path, from_records=True)


def test_work_in_this_process_keeps_to_one_thread_too(tmp_path, monkeypatch):
    n_threads = set()

    def watch(trial, name):
        n_threads.update(library["num_threads"] for library in threadpool_info())
        raise InputError("seen")

    monkeypatch.setattr("polyseme_experiments.runner.run_method", watch)
    tasks = make_tasks([Run("hsun", "sizes", 0)])
    with threadpool_limits(limits=2), pytest.raises(InputError, match="seen"):
        run_tasks(tasks, QUICK, tmp_path)
    assert n_threads == {1}


def test_a_refusal_of_another_process_is_raised_here(tmp_path):
    runs = [Run("hsun", "composition", trial) for trial in range(2)]
    tasks = make_tasks(runs)
    with pytest.raises(InputError, match="combinations"):
        run_tasks(tasks, QUICK, tmp_path, n_jobs=2)


def test_the_death_of_another_process_gets_one_sentence(tmp_path):
    killed = []

    def kill_once(line):
        if killed:
            return
        processes = reusable_executor._executor._processes
        for process in list(processes.values()):
            killed.append(process.pid)
            os.kill(process.pid, signal.SIGKILL)

    runs = [Run("hsun", "polyseme", trial) for trial in range(6)]
    tasks = make_tasks(runs)
    with pytest.raises(InputError, match=r"died .* run the same command again to go on"):
        run_tasks(tasks, QUICK, tmp_path, n_jobs=2, log=kill_once)


def test_bad_input_gets_one_sentence(tmp_path, monkeypatch):
    monkeypatch.delenv("POLYSEME_DATA", raising=False)
    unknown = r"Unknown experiment 'fig99'; known: all, calibration, .*; did you mean 'fig9'"
    for names, config, options, sentence in (
        (["fig9", "fig99"], QUICK, {}, unknown),
        ([], QUICK, {}, "Name what to reproduce: all, fig1"),
        (["fig9"], QUICK, {"trials": 0}, "`trials` of `reproduce` must be"),
        (["fig9"], RunConfig(), {}, "POLYSEME_DATA"),
        (["fig9"], RunConfig(str(tmp_path)), {}, "None of hsun has its folder in"),
    ):
        with pytest.raises(InputError, match=sentence):
            reproduce(names, config, out=tmp_path, **options)
    assert not list(tmp_path.iterdir())
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"file' is a file; name a folder to write to"):
        reproduce(["fig9"], QUICK, out=tmp_path / "file")


@pytest.mark.parametrize("missing", ["features.npy", "documents.jsonl"])
def test_bad_folders_get_one_sentence(tmp_path, missing):
    sample = load_dataset("hsun", sample=True)
    corpus = sample.corpus
    data = tmp_path / "data"
    folder = data / "hsun"
    folder.mkdir(parents=True)
    lines = []
    for identifier, split, labels in zip(corpus.ids, corpus.splits, corpus, strict=True):
        document = {"id": identifier, "split": split, "labels": list(labels)}
        lines.append(json.dumps(document))
    (folder / "documents.jsonl").write_text("\n".join(lines))
    np.save(folder / "features.npy", sample.X**2)
    (folder / "feature_names.txt").write_text("\n".join(sample.feature_names))
    (folder / missing).unlink()
    config = RunConfig(str(data))
    with pytest.raises(InputError, match=missing) as caught:
        reproduce(["fig9"], config, out=tmp_path / "out")
    assert "\n" not in str(caught.value)


def test_a_folder_of_somebody_else_is_not_written_to(tmp_path):
    thesis = tmp_path / "README.md"
    notes = tmp_path / "records" / "notes.txt"
    notes.parent.mkdir()
    thesis.write_bytes(b"my thesis")
    notes.write_bytes(b"mine")
    with pytest.raises(InputError, match=r"holds 'README.md' and no mark that polyseme made it"):
        reproduce(["fig9"], RunConfig(quick=True), out=tmp_path, from_records=True)
    assert thesis.read_bytes() == b"my thesis"
    assert notes.read_bytes() == b"mine"
