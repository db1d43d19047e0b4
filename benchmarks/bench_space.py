"""How the default tagger's fit grows with documents, items and labels: seconds, memory, quality.

Each point runs in a process of its own (`_space_growth.py`), so that its memory is its own. The
last one is large. Beside the quality stands tuned COSTA's where its kernel still fits.

    python benchmarks/bench_space.py --out benchmarks
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from _reporting import Cell, Curve, Ratio, Report, Table, command_line, exponent
from _space_growth import SpacePoint, measure_apart

BASE = SpacePoint(documents=20_000, labels=1_000, items=8_000, costa=True)
VARIED = {
    "documents": (20_000, 40_000, 80_000),
    "items": (4_000, 8_000, 16_000),
    "labels": (1_000, 2_000, 4_000),
}
LARGE = SpacePoint(documents=100_000, labels=5_000, items=50_000)
QUICK = SpacePoint(documents=400, labels=40, items=100, features=8, costa=True, n_steps=8)
QUICK_VARIED = {"documents": (300, 400), "items": (60, 100), "labels": (30, 40)}
MINUTES, GIGABYTES = 30.0, 6.0
TEXT = (
    "Made-up documents of about five labels (Zipf, latent themes) and items of 256 features; a "
    "twentieth of the labels is unseen. Seconds of the whole `ZeroShotTagger.fit`, the highest "
    "memory of its process, and quality on up to 1,000 held-out items with an unseen label, in "
    "percent."
)
QUALITY = ("E-MAP", "E-MAP unseen", "C-MAP unseen")


def measure(size: str) -> Report:
    """Measure growth with documents, items and labels, and the largest point."""
    base, varied, large = (BASE, VARIED, LARGE)
    if size == "quick":
        base, varied, large = QUICK, QUICK_VARIED, replace(QUICK, documents=500)
    report = Report(
        "space",
        "Growth of the default tagger",
        f"{TEXT} Steps follow the size of the data, so time hardly grows where few documents are "
        "gone over often.",
    )
    measured: dict[SpacePoint, dict[str, Any]] = {}
    for name, values in varied.items():
        points = [replace(base, **{name: value}) for value in values]
        for point in points:
            if point not in measured:
                measured[point] = measure_apart(point)
        figures_by_size = [(float(getattr(point, name)), measured[point]) for point in points]
        report.tables.append(_table(name, base, figures_by_size))
        for figure_name in ("seconds", "peak_mb"):
            line = [[x, float(figures[figure_name])] for x, figures in figures_by_size]
            unit = "seconds" if figure_name == "seconds" else "MB"
            label = f"whole fit (power {exponent(line):.2f})"
            report.curves.append(Curve(f"{unit} against {name}", name, unit, {label: line}))
    last = large_report(large, MINUTES, GIGABYTES)
    report.tables += last.tables
    report.ratios += last.ratios
    return report


def large_report(point: SpacePoint, minutes: float, gigabytes: float | None) -> Report:
    """Measure one large point against the minutes and the memory that it may take."""
    figures = measure_apart(point)
    sizes = f"{point.documents:,} documents, {point.labels:,} labels, {figures['items']:,} items"
    report = Report("space", "The default tagger at size", TEXT)
    n_documents = float(point.documents)
    table = _table("documents", point, [(n_documents, figures)], sizes)
    report.tables.append(table)
    fit_minutes = round(figures["seconds"] / 60, 2)
    report.ratios.append(Ratio(f"{sizes}: minutes", fit_minutes, minutes, False, "min"))
    if gigabytes is not None:
        peak_gigabytes = round(figures["peak_mb"] / 1024, 2)
        report.ratios.append(Ratio(f"{sizes}: memory", peak_gigabytes, gigabytes, False, "GB"))
    return report


def _table(
    name: str,
    base: SpacePoint,
    figures_by_size: list[tuple[float, dict[str, Any]]],
    title: str = "",
) -> Table:
    """Return one table: a row per size, the exponents below."""
    columns = [name, "seconds", "memory, MB", "members", "steps"]
    columns += [f"space, {quality}" for quality in QUALITY]
    columns += [f"COSTA, {quality}" for quality in QUALITY]
    columns += ["COSTA, seconds"]
    keys = ["seconds", "peak_mb", *columns[3:]]
    rows: list[list[Cell]] = []
    for value, figures in figures_by_size:
        cells = [figures.get(key) for key in keys]
        rows.append([f"{value:,.0f}", *cells])
    if len(figures_by_size) > 1:
        powers: list[Cell] = []
        for key in ("seconds", "peak_mb"):
            points = [[value, float(figures[key])] for value, figures in figures_by_size]
            powers.append(exponent(points))
        n_empty = len(columns) - 3
        rows.append(["exponent", *powers, *[None] * n_empty])
    fixed = []
    for key in ("documents", "labels", "items"):
        if key != name:
            fixed.append(f"{getattr(base, key):,} {key}")
    growth_title = f"Growth with {name}; {', '.join(fixed)}"
    return Table(title or growth_title, name, columns, rows)


if __name__ == "__main__":
    command_line(measure)
