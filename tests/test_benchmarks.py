"""The benchmarks: each runs, its report is kept and shown whole, and README says what it says."""

from __future__ import annotations

import importlib
import json
import math
import os
import subprocess
import sys
from dataclasses import asdict
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
        names = {"reporting": "_reporting", "markdown": "_markdown", "page": "page", "run": "run"}
        modules = {short: importlib.import_module(name) for short, name in names.items()}
        yield SimpleNamespace(**modules)
    finally:
        sys.path.remove(str(FOLDER))


@pytest.fixture
def report(bench):
    """A report with everything that a report can hold, and signs that pages must escape."""
    Table, Ratio, Curve = (getattr(bench.reporting, name) for name in ("Table", "Ratio", "Curve"))
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
    (benchmark,) = (known for known in bench.run.BENCHMARKS if known.name == name)
    if missing := benchmark.missing():
        pytest.skip(f"not installed: {', '.join(missing)}")
    command = [sys.executable, str(FOLDER / "run.py"), name, "--size", "quick"]
    done = subprocess.run(
        [*command, "--out", str(tmp_path)],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=180,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    report = bench.reporting.read_report(tmp_path / f"{name}.json")
    assert (report.name, report.size) == (name, "quick")
    assert report.title and report.text and report.machine["cores"] >= 1
    assert report.tables or report.curves
    for ratio in report.ratios:
        assert bench.reporting.told(ratio) in done.stdout
        assert math.isfinite(ratio.value)
    for table in report.tables:
        assert {len(row) for row in table.rows} == {len(table.columns)}
    assert report.title in "".join(Parsed((tmp_path / "index.html").read_text("utf-8")).text)


# ---------------------------------------------------------------------- reports


def test_a_report_survives_being_written_and_read(report, bench, tmp_path):
    path = report.write(tmp_path, "-gpu")
    assert path.name == "priming-gpu.json"
    assert asdict(bench.reporting.read_report(path)) == asdict(report)
    report.write(tmp_path)
    found = bench.reporting.read_reports(tmp_path, ["growth", "priming"])
    assert list(found) == ["priming", "priming-gpu"], "those of other machines follow"


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
def test_what_misses_its_target_is_told_to_be_short(bench, value, target, at_least, mark):
    told = bench.reporting.told(bench.reporting.Ratio("one thing", value, target, at_least))
    assert told.split()[0] == mark
    assert f"{'at least' if at_least else 'at most'} {target:g}x" in told


def test_readme_and_page_say_what_the_committed_reports_say(bench):
    assert set(NAMED) == set(bench.run.NAMES), "every script is registered"
    committed = bench.reporting.read_reports(FOLDER, bench.run.NAMES)
    readme = (FOLDER / "README.md").read_text("utf-8")
    assert readme == bench.markdown.with_figures(readme, bench.markdown.figures(committed)), (
        "README.md is not what the reports say; run `python benchmarks/run.py --render`"
    )
    text = " ".join(Parsed(bench.page.page(committed)).text)
    assert committed
    for name, report in committed.items():
        assert report.size == "full" and report.machine["processor"] and report.title in text
        assert name.startswith(report.name)
        cells = [cell for table in report.tables for row in table.rows for cell in row]
        assert all(bench.reporting.shown(cell) in text for cell in cells)


def test_tables_and_ratios_become_markdown(bench, report):
    made = bench.markdown.figures({"priming": report})
    assert "| **polyseme** | 0.5 | 2 | 1e-06 |" in made
    assert "| a\\|b | 120 | 3 | \u2013 |" in made
    assert "Ratios with a target: 2; short of it: 1." in made
    assert "| too large | 0.5x | ≤ 0.35x | **SHORT** |" in made
    assert "- Time, ours: grows with documents to the power 1.00" in made
    assert "On a processor, 2 cores" in made
    with pytest.raises(ValueError, match=r"README\.md must hold"):
        bench.markdown.with_figures("# Benchmarks\n", made)


def test_the_page_loads_nothing_and_marks_shortfalls(bench, report):
    page = bench.page.page({"priming": report, "priming-gpu": report})
    parsed = Parsed(page)
    links = [*parsed.values("href"), *parsed.values("src")]
    assert all(link.startswith(("#", "data:")) for link in links)
    ids = parsed.values("id")
    assert len(ids) == len(set(ids))
    assert {link[1:] for link in links if len(link) > 1 and link[0] == "#"} <= {*ids, "top"}
    # Each report's ratios stand in the overview and in its own section.
    assert len(parsed.of_class("short")) == len(parsed.of_class("met")) == 4
    assert "exponent 1.00" in " ".join(parsed.text)
    assert "Priming <& co>" in parsed.text
    assert page == bench.page.page({"priming": report, "priming-gpu": report})


def test_figures_that_cannot_be_drawn_do_not_stop_the_page(bench, report):
    values = [None, math.nan, 0.0, -1.0, math.inf, "failed"]
    rows, nothing = [["a", value] for value in values], {"none": [], "zero": [[1.0, 0.0]]}
    report.tables = [bench.reporting.Table("Odd", "", ["way", "seconds"], rows, bars=["seconds"])]
    report.curves = [
        bench.reporting.Curve("Nothing", "x", "y", nothing | {"lost": [[math.nan, 1]]})
    ]
    report.ratios = [bench.reporting.Ratio("odd", value, 0.0) for value in values[1:5]]
    assert not Parsed(bench.page.page({"priming": report})).of_class("plot")
    assert "grows" not in bench.markdown.figures({"priming": report})


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
    needs = {"bad": (), "good": (), "far": ("no_such_package",)}
    known = tuple(bench.run.Benchmark(name, needs=packages) for name, packages in needs.items())
    replaced = {"FOLDER": tmp_path, "QUICK": tmp_path / "quick", "BENCHMARKS": known}
    for name, value in (replaced | {"NAMES": tuple(needs)}).items():
        monkeypatch.setattr(bench.run, name, value)
    return bench.run.main


def test_a_failure_is_told_in_one_line_and_the_others_go_on(command, tmp_path, capsys):
    assert command(["--size", "quick"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert "FAILED bad: no corpora here" in lines
    assert any(line.startswith("FAILED far: needs no_such_package; ") for line in lines)
    assert "good: SHORT speed: 1x (at least 2x)" in lines
    assert "Ratios with a target: 1; SHORT: 1" in lines
    assert json.loads((tmp_path / "quick" / "good.json").read_text("utf-8"))["size"] == "quick"
    assert (tmp_path / "quick" / "index.html").exists()


def test_a_full_run_writes_its_report_and_readme(command, bench, tmp_path):
    begin, end, readme = bench.markdown.BEGIN, bench.markdown.END, tmp_path / "README.md"
    readme.write_text(f"# Mine\n\n{begin}\nold\n{end}\nrest\n", "utf-8")
    assert command(["good", "--suffix=-gpu"]) == 0
    assert json.loads((tmp_path / "good-gpu.json").read_text("utf-8"))["size"] == "full"
    text = readme.read_text("utf-8")
    assert text.startswith("# Mine\n") and text.endswith(f"{end}\nrest\n")
    assert "| good | speed | 1x | ≥ 2x | **SHORT** |" in text and "old" not in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["bath"], "unknown benchmark 'bath'; known: bad, good, far"),
        (["--size", "quick", "--out", "."], "does not overwrite the full reports"),
    ],
)
def test_the_command_refuses(command, capsys, arguments, message):
    with pytest.raises(SystemExit, match="2"):
        command(arguments)
    assert message in capsys.readouterr().err
