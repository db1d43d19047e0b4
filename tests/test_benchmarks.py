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
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from html_pages import Parsed

FOLDER = Path(__file__).parents[1] / "benchmarks"
NAMED = [path.stem.removeprefix("bench_") for path in sorted(FOLDER.glob("bench_*.py"))]

pytest.importorskip("matplotlib", reason="the page is drawn with matplotlib")


@pytest.fixture(scope="module")
def modules() -> Any:
    """Import the benchmarks' own modules, which lie outside the package."""
    sys.path.insert(0, str(FOLDER))
    try:
        yield {
            name: importlib.import_module(name)
            for name in ("_reporting", "_markdown", "_plots", "page", "run")
        }
    finally:
        sys.path.remove(str(FOLDER))


@pytest.fixture(scope="module")
def reporting(modules: dict[str, ModuleType]) -> Any:
    return modules["_reporting"]


@pytest.fixture
def report(reporting: Any) -> Any:
    """A report with everything that a report can hold, and signs that pages must escape."""
    return reporting.Report(
        name="priming",
        title="Priming <& co>",
        text="One `way` beside another.\n\nAnd why.",
        tables=[
            reporting.Table(
                "1,000 queries",
                "the way",
                ["way", "seconds", "memory, MB", "exact"],
                [["a|b", 120.0, 3, None], ["polyseme", 0.5, np.float32(2.0), 1e-6]],
                note="In turn.",
            ),
            reporting.Table("Sizes", "documents", ["documents", "seconds"], [[10, 1.0], [20, 2.0]]),
        ],
        ratios=[
            reporting.Ratio("fast enough", 50.0, 45.0),
            reporting.Ratio("too large", 0.5, 0.35, at_least=False),
        ],
        curves=[
            reporting.Curve("Time", "documents", "seconds", {"ours": [[10, 5], [100, 50], [1, 0]]})
        ],
        machine={"processor": "a processor", "cores": 2, "python": "3.11", "gpu": None},
        seconds=12.5,
    )


@pytest.fixture(scope="module")
def committed(modules: dict[str, ModuleType]) -> Any:
    """The reports that lie in the repository."""
    found = modules["_reporting"].read_reports(FOLDER, modules["run"].NAMES)
    assert found
    return found


# ---------------------------------------------------------------------- each benchmark


def test_every_script_is_registered(modules: dict[str, ModuleType]) -> None:
    assert set(NAMED) == set(modules["run"].NAMES)


@pytest.mark.reproduction
@pytest.mark.parametrize("name", NAMED)
def test_a_benchmark_runs_at_the_quick_size(
    name: str, modules: dict[str, ModuleType], tmp_path: Path
) -> None:
    one = next(one for one in modules["run"].BENCHMARKS if one.name == name)
    if missing := one.missing():
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
    report = modules["_reporting"].read_report(tmp_path / f"{name}.json")
    assert (report.name, report.size) == (name, "quick")
    assert report.title and report.text and report.machine["cores"] >= 1
    assert report.tables or report.curves
    for ratio in report.ratios:
        assert modules["_reporting"].told(ratio) in done.stdout
        assert math.isfinite(ratio.value)
    for table in report.tables:
        assert {len(row) for row in table.rows} == {len(table.columns)}
    assert report.title in "".join(Parsed((tmp_path / "index.html").read_text("utf-8")).text)


# ---------------------------------------------------------------------- reports


def test_a_report_survives_being_written_and_read(
    report: Any, reporting: Any, tmp_path: Path
) -> None:
    path = report.write(tmp_path, "-gpu")
    assert path.name == "priming-gpu.json"
    assert asdict(reporting.read_report(path)) == asdict(report)


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
def test_what_misses_its_target_is_told_to_be_short(
    reporting: Any, value: float, target: float, at_least: bool, mark: str
) -> None:
    told = reporting.told(reporting.Ratio("one thing", value, target, at_least))
    assert told.split()[0] == mark
    assert f"{'at least' if at_least else 'at most'} {target:g}x" in told


# ---------------------------------------------------------------------- README and page


def test_readme_holds_the_tables_of_the_committed_reports(
    modules: dict[str, ModuleType], committed: Any
) -> None:
    markdown = modules["_markdown"]
    readme = (FOLDER / "README.md").read_text("utf-8")
    assert readme == markdown.with_figures(readme, markdown.figures(committed)), (
        "README.md is not what the reports say; run `python benchmarks/run.py --render`"
    )


def test_tables_and_ratios_become_markdown(modules: dict[str, ModuleType], report: Any) -> None:
    made = modules["_markdown"].figures({"priming": report})
    assert "| **polyseme** | 0.5 | 2 | 1e-06 |" in made
    assert "| a\\|b | 120 | 3 | \u2013 |" in made
    assert "Ratios with a target: 2; short of it: 1." in made
    assert "| too large | 0.5x | ≤ 0.35x | **SHORT** |" in made
    assert "- Time, ours: grows with documents to the power 1.00" in made
    assert "On a processor, 2 cores" in made


def test_the_page_loads_nothing_and_marks_shortfalls(
    modules: dict[str, ModuleType], report: Any
) -> None:
    page = modules["page"].page({"priming": report, "priming-gpu": report})
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
    assert page == modules["page"].page({"priming": report, "priming-gpu": report})


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
def two_benchmarks(
    modules: dict[str, ModuleType], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> ModuleType:
    """The command with a benchmark that fails and, after it, one that does not."""
    run = modules["run"]
    (tmp_path / "bench_bad.py").write_text("raise SystemExit('no corpora here')\n", "utf-8")
    (tmp_path / "bench_good.py").write_text(GOOD, "utf-8")
    monkeypatch.setenv("PYTHONPATH", str(FOLDER))
    monkeypatch.setattr(run, "FOLDER", tmp_path)
    monkeypatch.setattr(run, "QUICK", tmp_path / "quick")
    known = tuple(run.Benchmark(name) for name in ("bad", "good"))
    known += (run.Benchmark("far", needs=("no_such_package",)),)
    monkeypatch.setattr(run, "BENCHMARKS", known)
    monkeypatch.setattr(run, "NAMES", ("bad", "good", "far"))
    return run


def test_a_failure_is_told_in_one_line_and_the_others_go_on(
    two_benchmarks: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert two_benchmarks.main(["--size", "quick"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert "FAILED bad: no corpora here" in lines
    assert any(line.startswith("FAILED far: needs no_such_package; ") for line in lines)
    assert "good: SHORT speed: 1x (at least 2x)" in lines
    assert "Ratios with a target: 1; SHORT: 1" in lines
    assert json.loads((tmp_path / "quick" / "good.json").read_text("utf-8"))["size"] == "quick"
    assert (tmp_path / "quick" / "index.html").exists()
