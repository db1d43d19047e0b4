"""What every benchmark gives back: tables, ratios with their targets, and curves.

A benchmark is one file `bench_NAME.py` with a function `measure(size) -> Report`; `run.py` calls
it, prints its ratios, and keeps the report as `NAME.json`, from which page and tables are made.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import resource
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
SIZES = ("full", "quick")
Cell = str | float | int | None
PAUSE = 0.15


@dataclass
class Table:
    """Figures side by side; each table varies one thing.

    Attributes
    ----------
    title : str
    varies : str
        What differs from row to row, in a few words.
    columns : list of str
        Names with their units, such as "seconds" or "memory, MB".
    rows : list of lists
        Texts and numbers; None for what does not apply.
    note : str
        What a reader must know to trust the figures.
    bars : list of str, optional
        Columns that the page draws as bars; by default up to two that hold times, where the first
        column names ways.
    """

    title: str
    varies: str
    columns: list[str]
    rows: list[list[Cell]]
    note: str = ""
    bars: list[str] | None = None


@dataclass
class Ratio:
    """A figure that has a target.

    Attributes
    ----------
    what : str
        "ours against theirs, at which size".
    value : float
    target : float
    at_least : bool
        Whether the value must not lie below the target; else it must not lie above.
    unit : str
        "x" for ratios.
    """

    what: str
    value: float
    target: float
    at_least: bool = True
    unit: str = "x"

    @property
    def met(self) -> bool:
        """Whether the target is reached."""
        return self.value >= self.target if self.at_least else self.value <= self.target


@dataclass
class Curve:
    """Growth of one figure with one size, for the page.

    Attributes
    ----------
    title : str
    x, y : str
        Names of the axes, both drawn in logarithms.
    series : dict of str to list of [x, y]
    """

    title: str
    x: str
    y: str
    series: dict[str, list[list[float]]]


@dataclass
class Report:
    """What one benchmark found.

    Attributes
    ----------
    name, title, text : str
        File name, heading, and a paragraph: what is compared with what, on which data.
    """

    name: str
    title: str
    text: str
    tables: list[Table] = field(default_factory=list)
    ratios: list[Ratio] = field(default_factory=list)
    curves: list[Curve] = field(default_factory=list)
    machine: dict[str, Any] = field(default_factory=dict)
    size: str = "full"
    seconds: float = 0.0

    def write(self, folder: Path = FOLDER, suffix: str = "") -> Path:
        """Keep the report as JSON; `suffix` tells runs on other machines apart ("-gpu")."""
        path = folder / f"{self.name}{suffix}.json"
        fields = asdict(self)
        text = json.dumps(fields, indent=1, default=_plain, ensure_ascii=False)
        path.write_text(text + "\n", "utf-8")
        return path


def read_reports(folder: Path, names: Sequence[str]) -> dict[str, Report]:
    """Take back all reports of a folder, benchmark by benchmark, other machines' after its own.

    Parameters
    ----------
    folder : Path
    names : sequence of str
        The benchmarks in their order.

    Returns
    -------
    dict of str to Report
        By file name without its ending: "fit", "fit-gpu".
    """
    reports = {}
    for name in names:
        further_paths = sorted(folder.glob(f"{name}-*.json"))
        own_path = folder / f"{name}.json"
        for path in (own_path, *further_paths):
            if path.exists():
                reports[path.stem] = read_report(path)
    return reports


def read_report(path: Path) -> Report:
    """Take back a report that `Report.write` wrote."""
    text = path.read_text("utf-8")
    facts = json.loads(text)
    facts["tables"] = [Table(**fields) for fields in facts["tables"]]
    facts["ratios"] = [Ratio(**fields) for fields in facts["ratios"]]
    facts["curves"] = [Curve(**fields) for fields in facts["curves"]]
    return Report(**facts)


def seconds_of(
    ways: Mapping[str, Callable[[], object]], repeats: int = 3, warm: bool = True
) -> dict[str, float]:
    """Time several ways in turn, so that all meet the same machine; give the least of each.

    A pause before each call lets threads that wait by spinning, as those of numerical libraries
    do for some 80 ms after a product, go to sleep: otherwise a way pays for the one before it.

    Parameters
    ----------
    ways : mapping of name to callable
    repeats : int
        Rounds; each runs every way once.
    warm : bool
        Whether a round that does not count comes first.
    """
    least_seconds = dict.fromkeys(ways, math.inf)
    n_rounds = repeats + warm
    for number in range(n_rounds):
        for name, way in ways.items():
            time.sleep(PAUSE)
            start = time.perf_counter()
            way()
            seconds = time.perf_counter() - start
            if number >= warm:
                least_seconds[name] = min(least_seconds[name], seconds)
    return least_seconds


def exponent(points: Sequence[Sequence[float]]) -> float:
    """Fit ``y = c x^p`` by least squares in logarithms; give p."""
    logs = [(math.log(x), math.log(y)) for x, y in points]
    n = len(logs)
    x_mean = sum(x for x, _ in logs) / n
    y_mean = sum(y for _, y in logs) / n
    covariance = 0.0
    variance = 0.0
    for x, y in logs:
        x_gap = x - x_mean
        y_gap = y - y_mean
        covariance += x_gap * y_gap
        variance += x_gap**2
    return covariance / variance


def peak_mb() -> float:
    """Return the most memory this process has held so far, in megabytes."""
    status = Path("/proc/self/status")
    if status.exists():
        # Not `getrusage`, which also counts what the parent held when it started this process.
        for line in status.read_text("utf-8").splitlines():
            if line.startswith("VmHWM"):
                kilobytes = int(line.split()[1])
                return kilobytes / 1024
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_maxrss / 1024


def machine() -> dict[str, Any]:
    """Name the machine: processor, cores, libraries, graphics card."""
    import numpy as np
    import torch

    model = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        lines = cpuinfo.read_text("utf-8").splitlines()
        model = next((line.split(":")[1].strip() for line in lines if "model name" in line), model)
    card = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    return {
        "processor": model,
        "cores": len(os.sched_getaffinity(0)),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "torch": torch.__version__,
        "gpu": card,
    }


def machine_name(about: Mapping[str, Any]) -> str:
    """Name a machine in a few words: its graphics card if it has one, else its processor."""
    cores = about.get("cores")
    processor = about.get("processor") or "unnamed machine"
    name = about.get("gpu") or processor
    if not cores:
        return str(name)
    ending = "" if cores == 1 else "s"
    return f"{name}, {cores} core{ending}"


def software(about: Mapping[str, Any]) -> str:
    """List what ran on a machine, with versions."""
    hardware = {"processor", "cores", "gpu"}
    facts = []
    processor = about.get("processor")
    if processor and about.get("gpu"):
        facts.append(str(processor))
    for name, value in about.items():
        if not value:
            continue
        if name not in hardware:
            facts.append(f"{name} {value}")
    return ", ".join(facts)


def new_text(report: Report, earlier: Iterable[Report]) -> str:
    """Return the paragraphs of a report that none of the others has."""
    repeated: set[str] = set()
    for former in earlier:
        former_paragraphs = former.text.split("\n\n")
        repeated.update(former_paragraphs)
    paragraphs = []
    for paragraph in report.text.split("\n\n"):
        if paragraph not in repeated:
            paragraphs.append(paragraph)
    return "\n\n".join(paragraphs)


def text_below(table: Table) -> str:
    """Return what differs from row to row, and the table's note."""
    sentences = []
    if table.varies:
        sentences.append(f"Varies: {table.varies}.")
    if table.note:
        sentences.append(table.note)
    return " ".join(sentences)


def is_ours(row: Sequence[Cell]) -> bool:
    """Return whether a row is about this library: one of its first two texts names it."""
    texts = [cell for cell in row[:2] if isinstance(cell, str)]
    return any("polyseme" in text.lower() or text.lower().startswith("ours") for text in texts)


def command_line(measure: Callable[[str], Report]) -> None:
    """Run one benchmark by itself: `python benchmarks/bench_NAME.py [--size quick]`."""
    doc_lines = (measure.__doc__ or "").splitlines()
    described = next(iter(doc_lines), "")
    parser = argparse.ArgumentParser(description=described)
    add = parser.add_argument
    add("--size", choices=SIZES, default="full", help="quick: small sizes, a check")
    add("--out", type=Path, help="folder to write the report to")
    add("--suffix", default="", help="added to the file name, such as -gpu")
    options = parser.parse_args()
    report = timed(measure, options.size)
    show(report)
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)
        path = report.write(options.out, options.suffix)
        print(path)


def timed(measure: Callable[[str], Report], size: str) -> Report:
    """Run a benchmark; add the machine and the seconds it took."""
    start = time.perf_counter()
    report = measure(size)
    seconds = time.perf_counter() - start
    report.seconds = round(seconds, 1)
    report.size = size
    report.machine = machine()
    return report


def show(report: Report) -> None:
    """Print tables and ratios as plain text."""
    print(f"\n{report.title} ({report.seconds:.0f} s)")
    for table in report.tables:
        cells = [table.columns]
        for row in table.rows:
            cells.append([shown(cell) for cell in row])
        columns = zip(*cells, strict=True)
        widths = [max(map(len, column)) for column in columns]
        print(f"\n  {table.title}")
        for row in cells:
            padded = [cell.rjust(width) for cell, width in zip(row, widths, strict=True)]
            print("   ", "  ".join(padded))
    print()
    for ratio in report.ratios:
        print("  ", ratio_line(ratio))


def ratio_line(ratio: Ratio) -> str:
    """Return a ratio, its target, and whether it falls short, in one line."""
    bound = "at least" if ratio.at_least else "at most"
    mark = "ok   " if ratio.met else "SHORT"
    value = shown(ratio.value) + ratio.unit
    target = shown(ratio.target) + ratio.unit
    return f"{mark} {ratio.what}: {value} ({bound} {target})"


def shown(value: Cell) -> str:
    """Return a cell as text, numbers with three significant digits."""
    value = _plain(value)
    if value is None:
        return "\u2013"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return value
    if isinstance(value, int) or 999.5 <= abs(value) < math.inf:
        return f"{round(value):,}"
    return f"{value:.3g}"


def _plain(value: Any) -> Any:
    """Return numbers of numpy and torch as Python's own."""
    return value.item() if hasattr(value, "item") else value
