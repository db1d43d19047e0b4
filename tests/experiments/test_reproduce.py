from __future__ import annotations

import csv
import json
import multiprocessing
import os
import re
import shutil
import signal
import subprocess
import sys
from html.parser import HTMLParser

import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from polyseme._validation import InputError
from polyseme_experiments import EXPERIMENTS
from polyseme_experiments.draws import Conditions
from polyseme_experiments.figures import get_experiment
from polyseme_experiments.records import RecordStore
from polyseme_experiments.reproduce import reproduce
from polyseme_experiments.schedule import Run, make_tasks
from polyseme_experiments.workers import WorkerError, work


@pytest.fixture(scope="module")
def quick(tmp_path_factory):
    """`polyseme reproduce --quick` as a user runs it: everything, on samples, two processes."""
    folder = tmp_path_factory.mktemp("quick")
    command = [sys.executable, "-m", "polyseme", "reproduce", "--quick", "--out", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    # All of it is recorded now, so this only reads.
    sections = reproduce(["all"], quick=True, out=folder, workers=2)
    return folder, sections, done


def records_of(folder):
    records = [
        json.loads(line)
        for path in sorted((folder / "records").glob("*.jsonl"))
        for line in path.read_text().splitlines()
    ]
    return {(one["setting"], one["method"], one["trial"]): one for one in records}


# ------------------------------------------------------------------ everything, quickly


def test_quick_runs_every_table_and_figure(quick):
    folder, sections, done = quick
    assert [section.name for section in sections] == list(EXPERIMENTS)
    wanted = {run for name in EXPERIMENTS for run in get_experiment(name).runs(3, quick=True)}
    assert records_of(folder).keys() == wanted
    assert re.search(r"\[\d+/\d+\] hsun, trial \d: .* left", done.stderr)
    assert f"report: {folder / 'report.html'}" in done.stderr
    printed = [json.loads(line) for line in done.stdout.splitlines()]
    assert {row["table"] for row in printed} >= {"table1", "fig9", "compare-hsun"}
    assert all(record["audit"]["passed"] for record in records_of(folder).values())


def test_every_table_is_written_in_every_form(quick):
    folder, sections, _ = quick
    page = (folder / "report.html").read_text()
    markdown = (folder / "README.md").read_text()
    for section in sections:
        assert f'id="{section.name}"' in page
        assert section.tables
        for table in section.tables:
            assert f'id="table-{table.name}"' in page
            assert table.title in markdown
            with (folder / "tables" / f"{table.name}.csv").open() as file:
                assert list(csv.DictReader(file))
        for figure in section.figures:
            assert figure.svg in page
    assert not re.search(r'(src|href)="(https?:)?//', page)
    HTMLParser().feed(page)


def test_samples_and_stand_ins_are_declared_in_every_table_of_the_paper(quick):
    _, sections, _ = quick
    for section in sections:
        for table in section.tables:
            if table.name.endswith("-tests"):
                continue
            assert any("SAMPLES" in note for note in table.notes), table.name
            if table.name in ("fig6", "fig8", "fig10", "fig11", "fig12", "fig13", "fig14"):
                assert any("STAND-IN" in note for note in table.notes), table.name


def test_footnotes_say_how_the_concept_space_was_trained(quick, tmp_path):
    _, sections, _ = quick
    (fig7,) = (one for one in sections if one.name == "fig7")
    assert any("default preset" in note for note in fig7.tables[0].notes)
    (paper,) = reproduce(["fig7"], quick=True, preset="paper", out=tmp_path, workers=1)
    assert any("by the preset `paper`" in note for note in paper.tables[0].notes)
    assert not any("default preset" in note for note in paper.tables[0].notes)


def test_published_values_stand_beside_ours(quick):
    _, sections, _ = quick
    tables = {table.name: table for section in sections for table in section.tables}
    (row,) = (r for r in tables["fig9"].rows if r[:2] == ("concept embedding", "E-MAP"))
    assert [(cell.published, cell.published_error) for cell in row[2:]] == [
        (58.20, 0.29),
        (56.06, 0.16),
        (None, None),
    ]
    for name in ("fig6", "fig7", "fig8", "fig9", "fig10", "fig11", "fig12", "fig13", "fig14"):
        cells = tables[name].cells()
        assert any(cell.published is not None for cell in cells)
        # A sample may lack a column in one of its two trials.
        assert {cell.n for cell in cells if cell.is_known} <= {1, 2}


def test_what_is_recorded_is_not_run_again(quick):
    folder, _, _ = quick
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.suffix == ".jsonl"}
    page = (folder / "report.html").read_bytes()
    said = []
    again = reproduce(["fig9"], quick=True, out=folder, workers=2, say=said.append)
    assert [section.name for section in again] == ["fig9"]
    assert said == ["10 runs are recorded already; 0 to go"]
    assert {path: path.read_bytes() for path in before} == before
    # The report still shows everything that is complete in the folder.
    assert (folder / "report.html").read_bytes() == page


def test_the_report_is_made_of_records_alone(quick, tmp_path, monkeypatch):
    folder, _, _ = quick
    shutil.copytree(folder / "records", tmp_path / "records")
    monkeypatch.delenv("POLYSEME_DATA", raising=False)
    reproduce(["all"], quick=True, out=tmp_path, from_records=True)
    for name in ("report.html", "README.md", "tables/fig9.csv"):
        assert (tmp_path / name).read_bytes() == (folder / name).read_bytes()
    (tmp_path / "records" / "hsun.jsonl").unlink()
    with pytest.raises(InputError, match=r"lacks 10 of the 10 runs of 'fig9' .* run it first"):
        reproduce(["fig9"], quick=True, out=tmp_path, from_records=True)


def test_records_of_another_model_are_not_shown_as_this_one(quick, tmp_path, monkeypatch):
    shutil.copytree(quick[0] / "records", tmp_path / "records")
    monkeypatch.setattr("polyseme.space.SLOPES", (0.5, 0.5))
    with pytest.raises(InputError, match=r"lacks \d+ of the \d+ runs of 'default'"):
        reproduce(["default"], quick=True, out=tmp_path, from_records=True)


def test_a_folder_that_cannot_be_written_gets_one_sentence(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"Nothing can be written to .*Not a directory; name"):
        reproduce(["fig9"], quick=True, out=tmp_path / "file")


def test_fresh_learns_again(tmp_path):
    reproduce(["fig1"], quick=True, out=tmp_path, workers=1)
    (clock,) = (tmp_path / "cache").glob("*.seconds")
    clock.write_text("1e9")  # what it took, if it were kept
    reproduce(["fig1"], quick=True, out=tmp_path, workers=1, fresh=True)
    assert float(clock.read_text()) < 1e9


def test_processes_change_no_figure(quick, tmp_path):
    folder, _, _ = quick
    reproduce(["fig9"], quick=True, out=tmp_path, workers=1)
    alone, together = records_of(tmp_path), records_of(folder)
    assert len(alone) == 10
    for run, record in alone.items():
        assert record["metrics"] == together[run]["metrics"], run
        assert record["audit"] == together[run]["audit"]


def test_work_in_this_process_keeps_to_one_thread_too(monkeypatch):
    def watch(task, conditions):
        yield "threads", [one["num_threads"] for one in threadpool_info()]

    monkeypatch.setattr("polyseme_experiments.workers.perform", watch)
    tasks = make_tasks([Run("hsun", "sizes", 0)])
    with threadpool_limits(limits=2):
        assert 2 in [one["num_threads"] for one in threadpool_info()]
        messages = list(work(tasks, Conditions(quick=True), 1))
    (threads,) = (content for _, _, kind, content in messages if kind == "threads")
    assert set(threads) == {1}


def test_what_the_report_leaves_out_is_said(quick, tmp_path):
    folder, _, _ = quick
    shutil.copytree(folder / "records", tmp_path / "records")
    lines = (tmp_path / "records" / "magtag.jsonl").read_text().splitlines()
    (tmp_path / "records" / "magtag.jsonl").write_text("\n".join(lines[1:]) + "\n")
    said = []
    reproduce(["fig9"], quick=True, out=tmp_path, from_records=True, say=said.append)
    assert said == [
        "the report leaves out fig6: recorded in part, but not for all of 3 trials with seed 10"
    ]


# ------------------------------------------------------------------ interruptions


def test_an_interrupted_run_goes_on_where_it_stopped(quick, tmp_path, monkeypatch):
    folder, _, _ = quick
    add, added = RecordStore.add, []

    def impatient(self, record):
        if len(added) == 7:
            raise KeyboardInterrupt
        add(self, record)
        added.append(record)

    monkeypatch.setattr(RecordStore, "add", impatient)
    with pytest.raises(KeyboardInterrupt):
        reproduce(["fig7", "fig9"], quick=True, out=tmp_path, workers=1)
    assert len(records_of(tmp_path)) == 7
    monkeypatch.undo()
    said = []
    reproduce(["fig7", "fig9"], quick=True, out=tmp_path, workers=1, say=said.append)
    assert said[0] == "7 runs are recorded already; 9 to go"
    whole = records_of(folder)
    for run, record in records_of(tmp_path).items():
        assert record["metrics"] == whole[run]["metrics"], run


def test_a_process_that_dies_is_a_sentence_and_leaves_no_other_behind():
    tasks = make_tasks([Run("hsun", "polyseme", trial) for trial in range(3)])
    working = work(tasks, Conditions(quick=True), 2)
    next(working)
    for child in multiprocessing.active_children():
        os.kill(child.pid, signal.SIGKILL)
    with pytest.raises(InputError, match=r"died .* run the same command again to go on"):
        list(working)
    assert not multiprocessing.active_children()


def test_what_goes_wrong_inside_a_process_is_told():
    refused = make_tasks([Run("hsun", "composition", trial) for trial in range(2)])
    with pytest.raises(InputError, match="combinations"):
        list(work(refused, Conditions(quick=True), 2))
    tasks = make_tasks([Run("hsun", "error-free-10", trial) for trial in range(2)])
    broken = Conditions(quick=True, cache=7)  # type: ignore[arg-type]  # wrong on purpose
    with pytest.raises(WorkerError, match="TypeError"):
        list(work(tasks, broken, 2))


# ------------------------------------------------------------------ bad input


def test_bad_input_gets_one_sentence(tmp_path, monkeypatch):
    with pytest.raises(
        InputError,
        match=r"Unknown experiment 'fig99'; known: all, calibration, .*; did you mean 'fig9'",
    ):
        reproduce(["fig9", "fig99"], quick=True, out=tmp_path)
    with pytest.raises(InputError, match="Name what to reproduce: all, fig1"):
        reproduce([], quick=True, out=tmp_path)
    with pytest.raises(InputError, match="`trials` of `reproduce` must be"):
        reproduce(["fig9"], trials=0, quick=True, out=tmp_path)
    monkeypatch.delenv("POLYSEME_DATA", raising=False)
    with pytest.raises(InputError, match="POLYSEME_DATA"):
        reproduce(["fig9"], out=tmp_path)
    with pytest.raises(InputError, match="The dataset 'hsun' has no folder in"):
        reproduce(["fig9"], tmp_path, out=tmp_path)
    assert not list(tmp_path.iterdir())


def shorten(path):
    path.write_text("\n".join(path.read_text().splitlines()[:-1]))


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (lambda folder: (folder / "features.npy").unlink(), "features.npy"),
        (lambda folder: (folder / "documents.jsonl").unlink(), "documents.jsonl"),
        (lambda folder: shorten(folder / "documents.jsonl"), "240 rows"),
    ],
    ids=["features", "documents", "rows"],
)
def test_bad_folders_get_one_sentence(tmp_path, spoil, sentence):
    import numpy as np

    from polyseme.datasets import load_dataset

    sample = load_dataset("hsun", sample=True)
    folder = tmp_path / "data" / "hsun"
    folder.mkdir(parents=True)
    lines = [
        json.dumps({"id": name, "split": split, "labels": list(labels)})
        for name, split, labels in zip(
            sample.corpus.ids, sample.corpus.splits, sample.corpus, strict=True
        )
    ]
    (folder / "documents.jsonl").write_text("\n".join(lines))
    np.save(folder / "features.npy", sample.X**2)
    (folder / "feature_names.txt").write_text("\n".join(sample.feature_names))
    spoil(folder)
    with pytest.raises(InputError, match=sentence) as caught:
        reproduce(["fig9"], tmp_path / "data", out=tmp_path / "out")
    assert "\n" not in str(caught.value)
