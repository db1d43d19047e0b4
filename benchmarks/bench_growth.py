"""How time and memory grow with documents, labels and dimension, stage by stage.

Each point runs in a process of its own (`_growth.py`), so that its memory is its own. The last one
is large: a million documents over ten thousand labels, trained, mapped and ranked.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from _growth import LANDMARKS, Point, Stages, measure_apart
from _reporting import Cell, Curve, Ratio, Report, Table, command_line, exponent

# What takes time, in the order it happens; the rest is in the tables but has no curve.
STAGES = (
    "label descriptors",
    "topics",
    "contexts",
    "training",
    "judging",
    "targets",
    "mapping",
    "known concepts",
    "index",
    "points of new instances",
    "ranking",
)
GROUPS = {
    "topics": ("topics",),
    "descriptors": ("label descriptors", "contexts"),
    "training": ("training",),
    "mapping": ("targets", "mapping", "points of new instances"),
    "priming": ("known concepts", "index", "ranking"),
}
BASE = Point(documents=100_000, labels=1_000, dimension=100)
VARIED = {
    "documents": (10_000, 100_000, 1_000_000),
    "labels": (100, 1_000, 10_000),
    "dimension": (50, 100, 200, 400),
}
LARGE = Point(
    documents=1_000_000,
    labels=10_000,
    dimension=200,
    sweeps=200,
    topic_documents=200_000,
    documents_a_step=1_000,
    validation=0.001,
)
QUICK_BASE = Point(documents=1_500, labels=60, dimension=8, instances=300, sweeps=5, queries=50)
QUICK_VARIED = {"documents": (500, 1_500), "labels": (30, 60), "dimension": (8, 16)}
QUICK_LARGE = replace(
    QUICK_BASE, documents=3_000, labels=200, validation=0.05, topic_documents=1_000
)
BOUND_GB = 12.0
MB_IN_GB = 1024.0


def measure(size: str) -> Report:
    """Measure growth with documents, labels and dimension, and the largest corpus."""
    base = BASE
    varied = VARIED
    large = LARGE
    n_beside = 1
    if size == "quick":
        base = QUICK_BASE
        varied = QUICK_VARIED
        large = QUICK_LARGE
        # One at a time where the figures count; a check may run two beside each other.
        n_beside = 2
    report = Report("growth", "Growth: documents, labels, dimension", _text(base))
    points_by_name = {}
    distinct: dict[Point, None] = {}
    for name, values in varied.items():
        points = [replace(base, **{name: value}) for value in values]
        points_by_name[name] = points
        distinct |= dict.fromkeys(points)
    distinct[large] = None
    with ThreadPoolExecutor(n_beside) as pool:
        measured = pool.map(measure_apart, distinct)
        stages_by_point = dict(zip(distinct, measured, strict=True))
    for name, points in points_by_name.items():
        stages_by_size = []
        for point in points:
            value = float(getattr(point, name))
            stages_by_size.append((value, stages_by_point[point]))
        report.tables.append(_table(name, base, stages_by_size))
        report.curves += _curves(name, base, stages_by_size)
    _add_large(report, large, stages_by_point[large])
    return report


def _text(base: Point) -> str:
    """Return what is measured."""
    return (
        "Made-up documents of about five labels each (Zipf, latent themes, 64 features). Stages of "
        f"`ConceptEmbedding.fit`, `InstanceMapper.fit` (kernel ridge, one setting, {LANDMARKS:,} "
        "landmarks at the most), known concepts with their index, and ranking of "
        f"{base.queries:,} new instances. Topics: {base.sweeps} sweeps over all documents. "
        f"Training: one step of 1,024 examples for every {base.documents_a_step} documents, about "
        "a quarter of a pass. Each point has a process of its own."
    )


def _table(name: str, base: Point, stages_by_size: list[tuple[float, Stages]]) -> Table:
    """Return one table: a row per size, the exponents below."""
    fixed = {key: getattr(base, key) for key in ("documents", "labels", "dimension")}
    fixed_text = ", ".join(f"{value:,} {key}" for key, value in fixed.items() if key != name)
    rows: list[list[Cell]] = [
        [
            f"{value:,.0f}",
            *(_seconds(stages, group) for group in GROUPS),
            sum(_seconds(stages, group) for group in GROUPS),
            stages.facts["peak_mb"],
            100 * stages.facts["E-MAP, error-free"],
        ]
        for value, stages in stages_by_size
    ]
    sizes = [value for value, _ in stages_by_size]
    powers: list[Cell] = []
    for column in range(1, len(rows[0]) - 1):
        points = [(x, float(row[column] or 0)) for x, row in zip(sizes, rows, strict=True)]
        powers.append(exponent(points) if all(y > 0 for _, y in points) else None)
    rows.append(["exponent", *powers, None])
    columns = [name, *(f"{group}, s" for group in GROUPS), "all, s", "memory, MB", "E-MAP, %"]
    note = (
        "Memory is the highest of the whole process, libraries included (about 400 MB). E-MAP: "
        "error-free, of documents that were not learned from."
    )
    return Table(f"Growth with {name}; {fixed_text}", name, columns, rows, note)


def _seconds(stages: Stages, group: str) -> float:
    """Add up the stages of a group."""
    seconds = 0.0
    for stage_name in GROUPS[group]:
        seconds += stages.seconds.get(stage_name, 0.0)
    return seconds


def _curves(name: str, base: Point, stages_by_size: list[tuple[float, Stages]]) -> list[Curve]:
    """Draw seconds by group, and memory, with their exponents."""
    series = {}
    for group in GROUPS:
        points = []
        for value, stages in stages_by_size:
            seconds = _seconds(stages, group)
            points.append([value, max(seconds, 1e-4)])
        series[group] = points
    memory = [[value, stages.facts["peak_mb"]] for value, stages in stages_by_size]
    seconds_series = _with_powers(series)
    memory_series = _with_powers({"memory": memory})
    return [
        Curve(f"Seconds against {name}", name, "seconds", seconds_series),
        Curve(f"Memory against {name}", name, "MB", memory_series),
    ]


def _with_powers(series: dict[str, list[list[float]]]) -> dict[str, list[list[float]]]:
    """Name each series with its exponent."""
    return {f"{name} (power {exponent(line):.2f})": line for name, line in series.items()}


def _add_large(report: Report, point: Point, stages: Stages) -> None:
    """Add the largest corpus: stage by stage, with its bound."""
    facts = stages.facts
    rows: list[list[Cell]] = [
        [name, stages.seconds[name], stages.memory_mb[name] / MB_IN_GB]
        for name in STAGES
        if name in stages.seconds
    ]
    rows.append(["all", sum(float(row[1] or 0) for row in rows), facts["peak_mb"] / MB_IN_GB])
    title = f"{point.documents:,} documents x {point.labels:,} labels"
    note = (
        f"{facts['entries']:,} labels in documents, {facts['concepts']:,} distinct concepts x "
        f"{point.dimension}; topics: {point.sweeps} sweeps over {point.topic_documents:,} "
        f"documents; {facts['steps']:,.0f} training steps; mapping learned from "
        f"{facts['instances']:,} instances; {point.queries:,} new instances ranked. Error-free "
        f"E-MAP of them {100 * facts['E-MAP, error-free']:.1f} %, from their features "
        f"{100 * facts['E-MAP, from features']:.1f} %, by popularity "
        f"{100 * facts['E-MAP, popularity']:.1f} %. Memory is the highest of each "
        "stage, of training after its last judging."
    )
    columns = ["stage", "seconds", "memory, GB"]
    report.tables.append(Table(title, "stage", columns, rows, note))
    peak = facts["peak_mb"] / MB_IN_GB
    report.ratios.append(Ratio(f"peak memory of {title}", peak, BOUND_GB, False, " GB"))


if __name__ == "__main__":
    command_line(measure)
