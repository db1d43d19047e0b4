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
from polyseme._validation import InputError
from polyseme.datasets import load_dataset
from polyseme_experiments import EXPERIMENTS
from polyseme_experiments.figures import get_experiment
from polyseme_experiments.records import RecordStore
from polyseme_experiments.reproduce import reproduce
from polyseme_experiments.runner import Run, make_tasks, run_tasks
from polyseme_experiments.sampling import RunConfig

QUICK = RunConfig(quick=True)


def records_of(folder):
    lines = (path.read_text().splitlines() for path in (folder / "records").glob("*.jsonl"))
    records = [json.loads(line) for some in lines for line in some]
    return {(one["setting"], one["method"], one["trial"]): one for one in records}


@pytest.fixture(scope="module")
def fig9(tmp_path_factory):
    """One figure, by two processes."""
    folder = tmp_path_factory.mktemp("fig9")
    (section,) = reproduce(["fig9"], QUICK, out=folder, workers=2)
    return folder, section


@pytest.mark.reproduction
def test_quick_runs_every_table_and_figure(tmp_path):
    """`polyseme reproduce --quick` as a user runs it."""
    command = [sys.executable, "-m", "polyseme", "reproduce", "--quick", "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert re.search(r"\[\d+/\d+\] hsun, trial \d: .* left", done.stderr)
    assert f"report: {tmp_path / 'report.html'}" in done.stderr
    printed = [json.loads(line) for line in done.stdout.splitlines()]
    assert {row["table"] for row in printed} >= {"table1", "fig9", "compare-hsun"}
    wanted = {run for name in EXPERIMENTS for run in get_experiment(name).runs(3, quick=True)}
    assert records_of(tmp_path).keys() == wanted
    assert all(record["audit"]["passed"] for record in records_of(tmp_path).values())
    # All of it is recorded now, so this only reads.
    sections = reproduce(["all"], QUICK, out=tmp_path)
    assert [section.name for section in sections] == list(EXPERIMENTS)
    page, markdown = (tmp_path / "report.html").read_text(), (tmp_path / "README.md").read_text()
    ids = Parsed(page).values("id")
    assert len(ids) == len(set(ids))
    for table in (table for section in sections for table in section.tables):
        assert f"table-{table.name}" in ids and table.title in markdown
        with (tmp_path / "tables" / f"{table.name}.csv").open() as file:
            assert list(csv.DictReader(file))
        assert table.name.endswith("-tests") or any("SAMPLES" in note for note in table.notes)
    for section in sections:
        assert all(figure.svg in page for figure in section.figures)
        if section.name in ("fig6", "fig8", "fig10", "fig11", "fig12", "fig13", "fig14"):
            assert any("STAND-IN" in note for note in section.tables[0].notes)


def test_published_values_stand_beside_ours_and_samples_are_declared(fig9):
    folder, section = fig9
    (table,) = section.tables
    (row,) = (r for r in table.rows if r[:2] == ("concept embedding", "E-MAP"))
    published = [(cell.published, cell.published_error) for cell in row[2:]]
    assert published == [(58.20, 0.29), (56.06, 0.16), (None, None)]
    assert {cell.n for cell in table.cells() if cell.mean is not None} <= {1, 2}
    assert any("SAMPLES" in note for note in table.notes)
    assert any("default preset" in note for note in table.notes)
    assert set(records_of(folder)) == set(get_experiment("fig9").runs(3, quick=True))


def test_what_is_recorded_is_not_run_again_and_the_report_needs_no_data(
    fig9, tmp_path, monkeypatch
):
    folder, _ = fig9
    log = []
    shutil.copytree(folder / "records", tmp_path / "records")
    shutil.copy(folder / ".polyseme", tmp_path)
    reproduce(["fig9"], QUICK, out=tmp_path, log=log.append)
    assert log[0] == "10 runs are recorded already; 0 to go"
    assert log[1].startswith("the report leaves out default, parts, compare: recorded in part")
    monkeypatch.delenv("POLYSEME_DATA", raising=False)
    reproduce(["fig9"], QUICK, out=tmp_path, from_records=True)
    for name in ("report.html", "README.md", "tables/fig9.csv", "records/hsun.jsonl"):
        assert (tmp_path / name).read_bytes() == (folder / name).read_bytes()
    with pytest.raises(InputError, match=r"lacks 6 of the 6 runs of 'fig7' .* run it first"):
        reproduce(["fig7"], QUICK, out=tmp_path, from_records=True)
    lines = (tmp_path / "records" / "hsun.jsonl").read_text().splitlines()
    (tmp_path / "records" / "hsun.jsonl").write_text("\n".join(lines[1:]) + "\n")
    with pytest.raises(InputError, match=r"lacks 1 of the 10 runs of 'fig9'"):
        reproduce(["fig9"], QUICK, out=tmp_path, from_records=True)


def test_processes_change_no_figure_and_an_interrupted_run_goes_on(fig9, tmp_path, monkeypatch):
    add, added = RecordStore.add, []

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
    alone, together = records_of(tmp_path), records_of(fig9[0])
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
    with pytest.raises(InputError, match=r"lacks 1 of the 1 runs of 'fig1'"):
        reproduce(["fig1"], replace(QUICK, preset="paper"), out=tmp_path, from_records=True)


def test_work_in_this_process_keeps_to_one_thread_too(tmp_path, monkeypatch):
    threads = []

    def watch(trial, name):
        threads.extend(one["num_threads"] for one in threadpool_info())
        raise InputError("seen")

    monkeypatch.setattr("polyseme_experiments.runner.run_method", watch)
    with threadpool_limits(limits=2), pytest.raises(InputError, match="seen"):
        run_tasks(make_tasks([Run("hsun", "sizes", 0)]), QUICK, tmp_path)
    assert set(threads) == {1}


def test_a_process_that_dies_or_refuses_is_a_sentence(tmp_path):
    refused = make_tasks([Run("hsun", "composition", trial) for trial in range(2)])
    with pytest.raises(InputError, match="combinations"):
        run_tasks(refused, QUICK, tmp_path, n_jobs=2)
    killed = []

    def kill_once(line):
        for process in [] if killed else list(reusable_executor._executor._processes.values()):
            killed.append(process.pid)
            os.kill(process.pid, signal.SIGKILL)

    tasks = make_tasks([Run("hsun", "polyseme", trial) for trial in range(6)])
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
    sample, folder = load_dataset("hsun", sample=True), tmp_path / "data" / "hsun"
    folder.mkdir(parents=True)
    rows = zip(sample.corpus.ids, sample.corpus.splits, sample.corpus, strict=True)
    lines = [json.dumps({"id": i, "split": s, "labels": list(labels)}) for i, s, labels in rows]
    (folder / "documents.jsonl").write_text("\n".join(lines))
    np.save(folder / "features.npy", sample.X**2)
    (folder / "feature_names.txt").write_text("\n".join(sample.feature_names))
    (folder / missing).unlink()
    with pytest.raises(InputError, match=missing) as caught:
        reproduce(["fig9"], RunConfig(str(tmp_path / "data")), out=tmp_path / "out")
    assert "\n" not in str(caught.value)


def test_a_folder_of_somebody_else_is_not_written_to(tmp_path):
    mine = {"README.md": b"my thesis", "records/notes.txt": b"mine"}
    (tmp_path / "records").mkdir()
    for name, content in mine.items():
        (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=r"holds 'README.md' and no mark that polyseme made it"):
        reproduce(["fig9"], RunConfig(quick=True), out=tmp_path, from_records=True)
    assert {name: (tmp_path / name).read_bytes() for name in mine} == mine
