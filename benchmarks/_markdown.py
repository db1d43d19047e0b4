"""The tables of README.md, made from the reports, so that the two cannot disagree.

In: reports. Out: Markdown, and README's text with it between two markers.
"""

from __future__ import annotations

from collections.abc import Mapping

from _reporting import (
    Ratio,
    Report,
    Table,
    is_ours,
    machine_name,
    new_text,
    shown,
    software,
    told_below,
)

BEGIN = "<!-- made by run.py from the JSON files; do not edit -->"
END = "<!-- end of what run.py makes -->"


def with_figures(readme: str, made: str) -> str:
    """Put what is made between the markers of a README."""
    before, begin, rest = readme.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"README.md must hold the lines {BEGIN!r} and {END!r}.")
    return f"{before}{BEGIN}\n{made}{END}{after}"


def figures(reports: Mapping[str, Report]) -> str:
    """Return everything between the markers: all targets, then benchmark by benchmark."""
    parts = [_targets(reports)]
    before: list[Report] = []
    for report in reports.values():
        if report.name not in {one.name for one in before}:
            parts.append(f"## {report.title}")
        parts += [f"### On {machine_name(report.machine)}", new_text(report, before).strip()]
        parts += [f"Run with {_about(report)}."]
        before.append(report)
        parts += [_table(table) for table in report.tables]
        parts += [_exponents(report)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _about(report: Report) -> str:
    """Return what ran and how long it took."""
    told = [software(report.machine)]
    if report.seconds:
        told.append(f"{shown(report.seconds)} s in all")
    return "; ".join(one for one in told if one)


def _targets(reports: Mapping[str, Report]) -> str:
    """Return the table of all ratios, with what falls short in bold."""
    ratios = [(report, ratio) for report in reports.values() for ratio in report.ratios]
    if not ratios:
        return ""
    short = sum(not ratio.met for _, ratio in ratios)
    rows = [[r.name, o.what, *target_cells(o), machine_name(r.machine)] for r, o in ratios]
    lines = _lines(["benchmark", "what", "reached", "target", "", "machine"], rows, [2, 3])
    told = f"Ratios with a target: {len(ratios)}; short of it: {short}."
    return f"## Targets\n\n{told}\n\n{lines}"


def target_cells(ratio: Ratio) -> list[str]:
    """Return value, bound and mark of a ratio."""
    bound = "≥" if ratio.at_least else "≤"
    value, target = (f"{shown(one)}{ratio.unit}" for one in (ratio.value, ratio.target))
    return [value, f"{bound} {target}", "ok" if ratio.met else "**SHORT**"]


def _table(table: Table) -> str:
    """Return one table under its title, ours in bold."""
    rows = []
    for row in table.rows:
        cells = [shown(cell) for cell in row]
        if is_ours(row):
            cells[0] = f"**{cells[0]}**"
        rows.append(cells)
    numeric = [
        place
        for place in range(len(table.columns))
        if not any(isinstance(row[place], str) for row in table.rows)
    ]
    parts = [f"**{table.title}**", _lines(table.columns, rows, numeric)]
    return "\n\n".join(part for part in [*parts, told_below(table)] if part)


def _exponents(report: Report) -> str:
    """List how the figures of the curves grow."""
    from _plots import growth

    lines = [
        f"- {curve.title}, {name}: {told}"
        for curve in report.curves
        for name, points in curve.series.items()
        if (told := growth(points, curve.x))
    ]
    return "\n".join(["Growth, fitted by least squares in logarithms:\n", *lines]) if lines else ""


def _lines(columns: list[str], rows: list[list[str]], right: list[int]) -> str:
    """Lay out a Markdown table; columns of numbers stand to the right."""
    rule = ["---:" if place in right else "---" for place in range(len(columns))]
    cells = [columns, rule, *rows]
    return "\n".join(
        "| " + " | ".join(" ".join(cell.split()).replace("|", "\\|") for cell in row) + " |"
        for row in cells
    )
