"""The benchmarks: each runs, its report is kept and shown whole, and README says what it says."""

from __future__ import annotations

import importlib
import json
import math
import os
import subprocess
import sys
from collections.abc import Callable
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


@pytest.mark.slow
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


def test_reports_of_other_machines_follow_their_benchmark(
    report: Any, reporting: Any, tmp_path: Path
) -> None:
    for name, suffix in (("fit", ""), ("priming", "-gpu"), ("priming", ""), ("other", "")):
        report.name = name
        report.write(tmp_path, suffix)
    found = reporting.read_reports(tmp_path, ["priming", "growth", "fit"])
    assert list(found) == ["priming", "priming-gpu", "fit"]


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


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "\u2013"),
        ("way", "way"),
        (0.12345, "0.123"),
        (999.7, "1,000"),
        (12345.6, "12,346"),
        (4357, "4,357"),
        (np.int64(100_000), "100,000"),
        (np.float32(0.5), "0.5"),
        (True, "yes"),
        (2.03e-5, "2.03e-05"),
        (math.inf, "inf"),
    ],
)
def test_cells_are_shown_with_three_digits(reporting: Any, value: Any, text: str) -> None:
    assert reporting.shown(value) == text


@pytest.mark.parametrize("power", [0.0, 0.5, 1.0, 2.3])
def test_exponent_recovers_a_known_power(reporting: Any, power: float) -> None:
    points = [[x, 3.7 * x**power] for x in (10.0, 70.0, 1e3, 1e6)]
    assert reporting.exponent(points) == pytest.approx(power, abs=1e-12)


def test_ways_are_timed_in_turn_after_a_round_that_does_not_count(reporting: Any) -> None:
    called: list[str] = []
    ways: dict[str, Callable[[], object]] = {
        name: lambda name=name: called.append(name) for name in ("a", "b")
    }
    found = reporting.seconds_of(ways, repeats=2)
    assert called == ["a", "b"] * 3
    assert all(0 <= one < math.inf for one in found.values())


# ---------------------------------------------------------------------- README and page


def test_readme_holds_the_tables_of_the_committed_reports(
    modules: dict[str, ModuleType], committed: Any
) -> None:
    markdown = modules["_markdown"]
    readme = (FOLDER / "README.md").read_text("utf-8")
    assert readme == markdown.with_figures(readme, markdown.figures(committed)), (
        "README.md is not what the reports say; run `python benchmarks/run.py --render`"
    )


def test_committed_reports_are_full_runs_on_a_named_machine(committed: Any) -> None:
    for name, one in committed.items():
        assert one.size == "full", name
        assert one.machine["processor"], name
        assert name.startswith(one.name)


def test_tables_and_ratios_become_markdown(modules: dict[str, ModuleType], report: Any) -> None:
    made = modules["_markdown"].figures({"priming": report})
    assert "| **polyseme** | 0.5 | 2 | 1e-06 |" in made
    assert "| a\\|b | 120 | 3 | \u2013 |" in made
    assert "Ratios with a target: 2; short of it: 1." in made
    assert "| too large | 0.5x | ≤ 0.35x | **SHORT** |" in made
    assert "- Time, ours: grows with documents to the power 1.00" in made
    assert "On a processor, 2 cores" in made


def test_a_readme_without_markers_is_refused(modules: dict[str, ModuleType]) -> None:
    with pytest.raises(ValueError, match=r"README\.md must hold"):
        modules["_markdown"].with_figures("# Benchmarks\n", "figures")


def test_the_page_shows_every_committed_report(
    modules: dict[str, ModuleType], committed: Any
) -> None:
    shown = modules["_reporting"].shown
    parsed = Parsed(modules["page"].page(committed))
    text = " ".join(parsed.text)
    for one in committed.values():
        assert one.title in text
        assert modules["_reporting"].machine_name(one.machine) in text
        for table in one.tables:
            assert table.title in text
            assert all(shown(cell) in text for row in table.rows for cell in row)
        for ratio in one.ratios:
            assert ratio.what in text
    assert not parsed.open


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


def test_figures_that_cannot_be_drawn_do_not_stop_the_page(
    modules: dict[str, ModuleType], reporting: Any, report: Any
) -> None:
    nothing = {"none": [], "zero": [[1.0, 0.0]], "lost": [[math.nan, 1.0]]}
    odd = [["a", None], ["b", math.nan], ["c", 0.0], ["d", -1.0], ["e", math.inf], ["f", "failed"]]
    report.tables = [
        reporting.Table("Odd", "", ["way", "seconds"], odd, bars=["seconds"]),
        reporting.Table("Empty", "", ["way", "seconds"], []),
        reporting.Table("One", "", ["way", "seconds"], [["a", 3.0]], bars=["seconds"]),
    ]
    report.curves = [
        reporting.Curve("Nothing", "x", "y", nothing),
        reporting.Curve("One point", "x", "y", {"a": [[10.0, 2.0]]}),
    ]
    report.ratios = [
        reporting.Ratio(f"to {value}", value, target)
        for value in (0.0, math.nan, math.inf, -1.0)
        for target in (0.0, 2.0)
    ]
    parsed = Parsed(modules["page"].page({"priming": report}))
    assert len(parsed.of_class("plot")) == 2
    assert "grows" not in modules["_markdown"].figures({"priming": report})


def test_bars_are_drawn_for_times_of_ways_unless_columns_are_named(
    modules: dict[str, ModuleType], report: Any
) -> None:
    chosen = modules["_plots"].bar_columns
    ways, sizes = report.tables
    assert chosen(ways) == ["seconds"]
    assert chosen(sizes) == []
    sizes.rows = [["1,000", 1.0], ["10,000", 2.0], ["exponent", 0.3]]
    assert chosen(sizes) == []
    ways.bars = ["memory, MB"]
    assert chosen(ways) == ["memory, MB"]


def test_rates_and_ratios_are_not_taken_for_times(
    modules: dict[str, ModuleType], reporting: Any
) -> None:
    names = ["way", "steps/s", "rows a second", "ratio", "fit, s", "ms a step"]
    table = reporting.Table("x", "way", names, [["a", *[1.0] * 5], ["b", *[2.0] * 5]])
    assert modules["_plots"].bar_columns(table) == ["fit, s", "ms a step"]


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


def test_a_full_run_writes_reports_page_and_readme_side_by_side(
    two_benchmarks: ModuleType, modules: dict[str, ModuleType], tmp_path: Path
) -> None:
    markdown = modules["_markdown"]
    readme = tmp_path / "README.md"
    readme.write_text(f"# Mine\n\n{markdown.BEGIN}\nold\n{markdown.END}\nrest\n", "utf-8")
    assert two_benchmarks.main(["good", "--suffix=-gpu"]) == 0
    assert json.loads((tmp_path / "good-gpu.json").read_text("utf-8"))["size"] == "full"
    text = readme.read_text("utf-8")
    assert text.startswith("# Mine\n") and text.endswith(f"{markdown.END}\nrest\n")
    assert "| good | speed | 1x | ≥ 2x | **SHORT** |" in text and "old" not in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["bath"], "unknown benchmark 'bath'; known: bad, good, far"),
        (["--size", "quick", "--out", "."], "does not overwrite the full reports"),
    ],
)
def test_the_command_refuses(
    two_benchmarks: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit, match="2"):
        two_benchmarks.main(arguments)
    assert message in capsys.readouterr().err
