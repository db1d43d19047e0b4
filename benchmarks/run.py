"""Run the benchmarks one after the other; print every ratio with its target; make page and tables.

Each benchmark has a process of its own. Full runs write `NAME.json`, `index.html` and the tables
of `README.md` beside this file; quick ones, which only check that everything runs, elsewhere.

    python benchmarks/run.py [NAME ...] [--size quick] [--suffix -gpu] [--out FOLDER] [--render]
"""

from __future__ import annotations

import argparse
import codecs
import importlib.util
import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from shutil import which
from typing import IO

from _markdown import figures, with_figures
from _reporting import FOLDER, SIZES, Report, ratio_line, read_report, read_reports
from page import page

QUICK = FOLDER.parent / "build" / "benchmarks-quick"


@dataclass(frozen=True)
class Benchmark:
    """One benchmark: `bench_NAME.py`, and packages and programs that it cannot do without."""

    name: str
    needs: tuple[str, ...] = ()
    programs: tuple[str, ...] = ()

    @property
    def script(self) -> Path:
        """The file to run."""
        return FOLDER / f"bench_{self.name}.py"

    def missing(self) -> list[str]:
        """Name the packages and programs that are not installed."""
        lacking = [name for name in self.needs if importlib.util.find_spec(name) is None]
        return lacking + [f"the program {name}" for name in self.programs if not which(name)]


BENCHMARKS = (
    Benchmark("mapping"),
    Benchmark("priming", needs=("faiss",)),
    Benchmark("training"),
    Benchmark("growth"),
    Benchmark("ray", needs=("ray",)),
    Benchmark("fit"),
    Benchmark("space"),
    Benchmark("clicks"),
    Benchmark("studio", needs=("fastapi", "uvicorn", "playwright"), programs=("chromium",)),
    Benchmark("review"),
    Benchmark("extraction", needs=("efficientnet_lite_pytorch", "librosa", "soundfile")),
    Benchmark(
        "serve", needs=("fastapi", "uvicorn", "efficientnet_lite_pytorch"), programs=("wrk",)
    ),
    Benchmark("soak", needs=("fastapi", "uvicorn", "httpx")),
)
NAMES = tuple(one.name for one in BENCHMARKS)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what is asked for and render everything; 1 where a benchmark failed."""
    options = _options(arguments)
    default_folder = FOLDER if options.size == "full" else QUICK
    out: Path = options.out or default_folder
    out.mkdir(parents=True, exist_ok=True)
    names = options.names or NAMES
    if options.render:
        names = ()
    failures = []
    finished: dict[str, Report] = {}
    for benchmark in BENCHMARKS:
        name = benchmark.name
        if name not in names:
            continue
        print(f"\n== {name} ==", flush=True)
        reason = run(benchmark, options.size, out, options.suffix)
        if reason:
            failure = f"FAILED {name}: {reason}"
            failures.append(failure)
            print(failure, flush=True)
        else:
            path = out / f"{name}{options.suffix}.json"
            finished[name] = read_report(path)
    reports = read_reports(out, NAMES)
    lines = summary(reports if options.render else finished)
    print("\n".join(["", *lines, *failures]))
    if options.size == "quick":
        print("Small sizes: a check that everything runs; the figures mean nothing.")
    for path in render(out, reports):
        print(path)
    return 1 if failures else 0


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Run the benchmarks and make their page.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which (default: {NAMES})")
    parser.add_argument("--size", choices=SIZES, default="full", help="quick: small sizes, a check")
    parser.add_argument("--out", type=Path, help="folder of the reports")
    parser.add_argument("--suffix", default="", help="names another machine's run, such as -gpu")
    parser.add_argument("--render", action="store_true", help="run nothing; page and tables only")
    options = parser.parse_args(arguments)
    unknown = [name for name in options.names if name not in NAMES]
    if unknown:
        parser.error(f"unknown benchmark '{unknown[0]}'; known: {', '.join(NAMES)}")
    if options.size == "quick" and options.out and options.out.resolve() == FOLDER.resolve():
        parser.error("a quick run does not overwrite the full reports; name another folder")
    return options


def run(benchmark: Benchmark, size: str, out: Path, suffix: str = "") -> str:
    """Run one benchmark in a process of its own, its output shown as it comes.

    Returns
    -------
    str
        Why it failed, in one line; empty where it did not.
    """
    if missing := benchmark.missing():
        return (
            f"needs {', '.join(missing)}; install packages with pip install '.[bench]' in a "
            "checkout, programs as your system does (Debian: apt install)"
        )
    if not benchmark.script.exists():
        return f"there is no {benchmark.script.name}"
    command = [sys.executable, str(benchmark.script), "--size", size, "--out", str(out)]
    process = subprocess.Popen(
        [*command, f"--suffix={suffix}"],
        stderr=subprocess.PIPE,
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
    )
    seen: list[str] = []
    echoing = threading.Thread(target=_echo, args=(process.stderr, seen), daemon=True)
    echoing.start()
    code = process.wait()
    # Whoever the benchmark left running may hold its output open for ever.
    echoing.join(timeout=5)
    if code == 0:
        return ""
    lines = "".join(seen[-100:]).split("\n")
    last = next((line.strip() for line in reversed(lines) if line.strip()), "")
    return f"ended by signal {-code}" if code < 0 else last or f"ended with code {code}"


def _echo(stream: IO[bytes], seen: list[str]) -> None:
    """Show what a process writes as it comes, and keep it."""
    make_decoder = codecs.getincrementaldecoder("utf-8")
    decoder = make_decoder("replace")
    descriptor = stream.fileno()
    while chunk := os.read(descriptor, 1 << 16):
        text = decoder.decode(chunk)
        seen.append(text)
        sys.stderr.write(text)
        sys.stderr.flush()


def summary(reports: dict[str, Report]) -> list[str]:
    """List every ratio with its target, and count what falls short."""
    lines = []
    n_short = 0
    for name, report in reports.items():
        for ratio in report.ratios:
            lines.append(f"{name}: {ratio_line(ratio)}")
            if not ratio.met:
                n_short += 1
    total = f"Ratios with a target: {len(lines)}; SHORT: {n_short}"
    return [*lines, total]


def render(out: Path, reports: dict[str, Report]) -> list[Path]:
    """Write the page, and the tables into README.md where the reports are those that it shows."""
    index = out / "index.html"
    index.write_text(page(reports), "utf-8")
    if out.resolve() != FOLDER.resolve():
        return [index]
    readme = FOLDER / "README.md"
    former = readme.read_text("utf-8")
    text = with_figures(former, figures(reports))
    readme.write_text(text, "utf-8")
    return [index, readme]


if __name__ == "__main__":
    sys.exit(main())
