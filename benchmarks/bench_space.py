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
    found: dict[SpacePoint, dict[str, Any]] = {}
    for name, values in varied.items():
        points = [replace(base, **{name: value}) for value in values]
        for point in points:
            if point not in found:
                found[point] = measure_apart(point)
        told = [(float(getattr(point, name)), found[point]) for point in points]
        report.tables.append(_table(name, base, told))
        for what in ("seconds", "peak_mb"):
            line = [[x, float(one[what])] for x, one in told]
            unit = "seconds" if what == "seconds" else "MB"
            label = f"whole fit (power {exponent(line):.2f})"
            report.curves.append(Curve(f"{unit} against {name}", name, unit, {label: line}))
    last = large_report(large, MINUTES, GIGABYTES)
    report.tables += last.tables
    report.ratios += last.ratios
    return report


def large_report(point: SpacePoint, minutes: float, gigabytes: float | None) -> Report:
    """Measure one large point against the minutes and the memory that it may take."""
    found = measure_apart(point)
    sizes = f"{point.documents:,} documents, {point.labels:,} labels, {found['items']:,} items"
    report = Report("space", "The default tagger at size", TEXT)
    report.tables.append(_table("documents", point, [(float(point.documents), found)], sizes))
    told = round(found["seconds"] / 60, 2)
    report.ratios.append(Ratio(f"{sizes}: minutes", told, minutes, False, "min"))
    if gigabytes is not None:
        told = round(found["peak_mb"] / 1024, 2)
        report.ratios.append(Ratio(f"{sizes}: memory", told, gigabytes, False, "GB"))
    return report


def _table(
    name: str, base: SpacePoint, told: list[tuple[float, dict[str, Any]]], title: str = ""
) -> Table:
    """Return one table: a row per size, the exponents below."""
    columns = [name, "seconds", "memory, MB", "members", "steps"]
    columns += [f"space, {one}" for one in QUALITY] + [f"COSTA, {one}" for one in QUALITY]
    columns += ["COSTA, seconds"]
    keys = ["seconds", "peak_mb", *columns[3:]]
    rows: list[list[Cell]] = [
        [f"{value:,.0f}", *(one.get(key) for key in keys)] for value, one in told
    ]
    if len(told) > 1:
        powers: list[Cell] = [
            exponent([[value, float(one[key])] for value, one in told])
            for key in ("seconds", "peak_mb")
        ]
        rows.append(["exponent", *powers, *[None] * (len(columns) - 3)])
    fixed = {key: getattr(base, key) for key in ("documents", "labels", "items")}
    others = ", ".join(f"{value:,} {key}" for key, value in fixed.items() if key != name)
    return Table(title or f"Growth with {name}; {others}", name, columns, rows)


if __name__ == "__main__":
    command_line(measure)
