"""The benchmarks run, their reports are written and shown whole, and README has their figures."""

from __future__ import annotations

import importlib
import json
import math
import os
import subprocess
import sys
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from html_pages import Parsed

FOLDER = Path(__file__).parents[1] / "benchmarks"
NAMED = [path.stem.removeprefix("bench_") for path in sorted(FOLDER.glob("bench_*.py"))]

pytest.importorskip("matplotlib", reason="the page is drawn with matplotlib")


@pytest.fixture(scope="module")
def bench():
    """Import the benchmarks' own modules, which lie outside the package."""
    sys.path.insert(0, str(FOLDER))
    try:
        yield SimpleNamespace(
            reporting=importlib.import_module("_reporting"),
            markdown=importlib.import_module("_markdown"),
            page=importlib.import_module("page"),
            run=importlib.import_module("run"),
        )
    finally:
        sys.path.remove(str(FOLDER))


@pytest.fixture
def report(bench):
    """A report with everything that a report can hold, and signs that pages must escape."""
    Table = bench.reporting.Table
    Ratio = bench.reporting.Ratio
    Curve = bench.reporting.Curve
    rows = [["a|b", 120.0, 3, None], ["polyseme", 0.5, np.float32(2.0), 1e-6]]
    columns = ["way", "seconds", "memory, MB", "exact"]
    return bench.reporting.Report(
        name="priming",
        title="Priming <& co>",
        text="One `way` beside another.\n\nAnd why.",
        tables=[
            Table("1,000 queries", "the way", columns, rows, note="In turn."),
            Table("Sizes", "documents", ["documents", "seconds"], [[10, 1.0], [20, 2.0]]),
        ],
        ratios=[Ratio("fast enough", 50.0, 45.0), Ratio("too large", 0.5, 0.35, at_least=False)],
        curves=[Curve("Time", "documents", "seconds", {"ours": [[10, 5], [100, 50], [1, 0]]})],
        machine={"processor": "a processor", "cores": 2, "python": "3.11", "gpu": None},
        seconds=12.5,
    )


@pytest.mark.reproduction
@pytest.mark.parametrize("name", NAMED)
def test_a_benchmark_runs_at_the_quick_size(name, bench, tmp_path):
    benchmarks = {benchmark.name: benchmark for benchmark in bench.run.BENCHMARKS}
    missing = benchmarks[name].missing()
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)}")
    options = ["--size", "quick", "--out", str(tmp_path)]
    process = subprocess.run(
        [sys.executable, str(FOLDER / "run.py"), name, *options],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=180,
    )
    assert process.returncode == 0, process.stdout + process.stderr
    report = bench.reporting.read_report(tmp_path / f"{name}.json")
    assert (report.name, report.size) == (name, "quick")
    assert report.title
    assert report.text
    assert report.machine["cores"] >= 1
    assert report.tables or report.curves
    for ratio in report.ratios:
        assert bench.reporting.ratio_line(ratio) in process.stdout
        assert math.isfinite(ratio.value)
    for table in report.tables:
        assert {len(row) for row in table.rows} == {len(table.columns)}
    page = Parsed((tmp_path / "index.html").read_text("utf-8"))
    assert report.title in "".join(page.text)


# ---------------------------------------------------------------------- reports


def test_a_report_is_read_as_it_was_written(report, bench, tmp_path):
    path = report.write(tmp_path, "-gpu")
    assert path.name == "priming-gpu.json"
    copy = bench.reporting.read_report(path)
    assert asdict(copy) == asdict(report)
    report.write(tmp_path)
    reports = bench.reporting.read_reports(tmp_path, ["growth", "priming"])
    assert list(reports) == ["priming", "priming-gpu"], "those of other machines follow"


@pytest.mark.parametrize(
    ("value", "target", "at_least", "mark"),
    [
        (45.0, 45.0, True, "ok"),
        (44.9, 45.0, True, "SHORT"),
        (0.35, 0.35, False, "ok"),
        (0.36, 0.35, False, "SHORT"),
        (math.nan, 0.35, False, "SHORT"),
        (math.nan, 1.0, True, "SHORT"),
    ],
)
def test_a_ratio_that_misses_its_target_is_marked_as_short(bench, value, target, at_least, mark):
    ratio = bench.reporting.Ratio("one thing", value, target, at_least)
    line = bench.reporting.ratio_line(ratio)
    assert line.split()[0] == mark
    bound = "at least" if at_least else "at most"
    assert f"{bound} {target:g}x" in line


@pytest.fixture
def committed_reports(bench):
    return bench.reporting.read_reports(FOLDER, bench.run.NAMES)


def test_every_script_is_registered(bench):
    assert set(NAMED) == set(bench.run.NAMES)


def test_readme_has_the_figures_of_the_committed_reports(bench, committed_reports):
    readme = (FOLDER / "README.md").read_text("utf-8")
    figures = bench.markdown.figures(committed_reports)
    assert readme == bench.markdown.with_figures(readme, figures), (
        "README.md is not what the reports say; run `python benchmarks/run.py --render`"
    )


def test_the_page_shows_the_committed_reports_whole(bench, committed_reports):
    assert committed_reports
    text = " ".join(Parsed(bench.page.page(committed_reports)).text)
    for name, report in committed_reports.items():
        assert report.size == "full"
        assert report.machine["processor"]
        assert report.title in text
        assert name.startswith(report.name)
        for table in report.tables:
            for cell in chain.from_iterable(table.rows):
                assert bench.reporting.shown(cell) in text


def test_tables_and_ratios_become_markdown(bench, report):
    figures = bench.markdown.figures({"priming": report})
    assert "| **polyseme** | 0.5 | 2 | 1e-06 |" in figures
    assert "| a\\|b | 120 | 3 | \u2013 |" in figures
    assert "Ratios with a target: 2; short of it: 1." in figures
    assert "| too large | 0.5x | ≤ 0.35x | **SHORT** |" in figures
    assert "- Time, ours: grows with documents to the power 1.00" in figures
    assert "On a processor, 2 cores" in figures
    with pytest.raises(ValueError, match=r"README\.md must hold"):
        bench.markdown.with_figures("# Benchmarks\n", figures)


@pytest.fixture
def page(bench, report):
    """A page of the same report twice."""
    return Parsed(bench.page.page({"priming": report, "priming-gpu": report}))


def test_the_page_loads_nothing_from_elsewhere(page):
    for link in [*page.values("href"), *page.values("src")]:
        assert link.startswith(("#", "data:"))


def test_links_on_the_page_lead_to_its_sections(page):
    ids = page.values("id")
    assert len(ids) == len(set(ids))
    targets = {link.removeprefix("#") for link in page.values("href") if link.startswith("#")}
    assert targets <= {*ids, "top", ""}


def test_the_page_marks_missed_targets_and_escapes_text(page):
    # Each report's ratios are in the overview and in its own section.
    assert len(page.of_class("short")) == len(page.of_class("met")) == 4
    assert "exponent 1.00" in " ".join(page.text)
    assert "Priming <& co>" in page.text


def test_the_same_reports_give_the_same_page(bench, report):
    reports = {"priming": report}
    assert bench.page.page(reports) == bench.page.page(reports)


def test_figures_that_cannot_be_drawn_do_not_stop_the_page(bench, report):
    Table = bench.reporting.Table
    Ratio = bench.reporting.Ratio
    Curve = bench.reporting.Curve
    numbers = [math.nan, 0.0, -1.0, math.inf]
    rows = [["a", value] for value in (None, *numbers, "failed")]
    lines = {"none": [], "zero": [[1.0, 0.0]], "lost": [[math.nan, 1]]}
    report.tables = [Table("Odd", "", ["way", "seconds"], rows, bars=["seconds"])]
    report.curves = [Curve("Nothing", "x", "y", lines)]
    report.ratios = [Ratio("odd", value, 0.0) for value in numbers]
    reports = {"priming": report}
    assert not Parsed(bench.page.page(reports)).of_class("plot")
    assert "grows" not in bench.markdown.figures(reports)


# ---------------------------------------------------------------------- the command

GOOD = """
from _reporting import Ratio, Report, Table, command_line


def measure(size):
    '''Measure nothing.'''
    table = Table("t", "way", ["way", "seconds"], [["ours", 1.0]])
    return Report("good", "Good", "Text.", [table], [Ratio("speed", 1.0, 2.0)])


command_line(measure)
"""


@pytest.fixture
def command(bench, tmp_path, monkeypatch):
    """The command with a benchmark that fails, one that does not, and one that lacks a package."""
    (tmp_path / "bench_bad.py").write_text("raise SystemExit('no corpora here')\n", "utf-8")
    (tmp_path / "bench_good.py").write_text(GOOD, "utf-8")
    monkeypatch.setenv("PYTHONPATH", str(FOLDER))
    monkeypatch.chdir(tmp_path)
    Benchmark = bench.run.Benchmark
    benchmarks = (
        Benchmark("bad", needs=()),
        Benchmark("good", needs=()),
        Benchmark("far", needs=("no_such_package",)),
    )
    monkeypatch.setattr(bench.run, "FOLDER", tmp_path)
    monkeypatch.setattr(bench.run, "QUICK", tmp_path / "quick")
    monkeypatch.setattr(bench.run, "BENCHMARKS", benchmarks)
    monkeypatch.setattr(bench.run, "NAMES", ("bad", "good", "far"))
    return bench.run.main


def read_json(path):
    return json.loads(path.read_text("utf-8"))


def test_a_failure_is_one_line_and_the_other_benchmarks_still_run(command, tmp_path, capsys):
    assert command(["--size", "quick"]) == 1
    stdout = capsys.readouterr().out
    lines = stdout.splitlines()
    assert "FAILED bad: no corpora here" in lines
    assert "\nFAILED far: needs no_such_package; " in stdout
    assert "good: SHORT speed: 1x (at least 2x)" in lines
    assert "Ratios with a target: 1; SHORT: 1" in lines
    folder = tmp_path / "quick"
    assert read_json(folder / "good.json")["size"] == "quick"
    assert (folder / "index.html").exists()


def test_a_full_run_writes_its_report_and_readme(command, bench, tmp_path):
    begin = bench.markdown.BEGIN
    end = bench.markdown.END
    readme = tmp_path / "README.md"
    readme.write_text(f"# Mine\n\n{begin}\nold\n{end}\nrest\n", "utf-8")
    assert command(["good", "--suffix=-gpu"]) == 0
    assert read_json(tmp_path / "good-gpu.json")["size"] == "full"
    text = readme.read_text("utf-8")
    assert text.startswith("# Mine\n")
    assert text.endswith(f"{end}\nrest\n")
    assert "| good | speed | 1x | ≥ 2x | **SHORT** |" in text
    assert "old" not in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["bath"], "unknown benchmark 'bath'; known: bad, good, far"),
        (["--size", "quick", "--out", "."], "does not overwrite the full reports"),
    ],
)
def test_wrong_arguments_are_refused(command, capsys, arguments, message):
    with pytest.raises(SystemExit, match="2"):
        command(arguments)
    assert message in capsys.readouterr().err
