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
    text_below,
)

BEGIN = "<!-- made by run.py from the JSON files; do not edit -->"
END = "<!-- end of what run.py makes -->"


def with_figures(readme: str, figures_text: str) -> str:
    """Put what is made between the markers of a README."""
    before, begin, remainder = readme.partition(BEGIN)
    if not begin or END not in remainder:
        raise ValueError(f"README.md must hold the lines {BEGIN!r} and {END!r}.")
    _, _, after = remainder.partition(END)
    head = f"{before}{BEGIN}\n"
    return f"{head}{figures_text}{END}{after}"


def figures(reports: Mapping[str, Report]) -> str:
    """Return everything between the markers: all targets, then benchmark by benchmark."""
    blocks = [_targets(reports)]
    earlier: list[Report] = []
    titled: set[str] = set()
    for report in reports.values():
        if report.name not in titled:
            titled.add(report.name)
            blocks.append(f"## {report.title}")
        machine = machine_name(report.machine)
        blocks.append(f"### On {machine}")
        text = new_text(report, earlier)
        blocks.append(text.strip())
        about = _about(report)
        blocks.append(f"Run with {about}.")
        earlier.append(report)
        tables = map(_table, report.tables)
        blocks += tables
        exponents = _exponents(report)
        blocks.append(exponents)
    filled = filter(None, blocks)
    return "\n\n".join(filled) + "\n"


def _about(report: Report) -> str:
    """Return what ran and how long it took."""
    facts = [software(report.machine)]
    if report.seconds:
        seconds = shown(report.seconds)
        facts.append(f"{seconds} s in all")
    filled = filter(None, facts)
    return "; ".join(filled)


def _targets(reports: Mapping[str, Report]) -> str:
    """Return the table of all ratios, with what falls short in bold."""
    rows = []
    n_short = 0
    for report in reports.values():
        machine = machine_name(report.machine)
        for ratio in report.ratios:
            rows.append([report.name, ratio.what, *target_cells(ratio), machine])
            if not ratio.met:
                n_short += 1
    if not rows:
        return ""
    header = ["benchmark", "what", "reached", "target", "", "machine"]
    lines = _lines(header, rows, [2, 3])
    counts = f"Ratios with a target: {len(rows)}; short of it: {n_short}."
    return f"## Targets\n\n{counts}\n\n{lines}"


def target_cells(ratio: Ratio) -> list[str]:
    """Return value, bound and mark of a ratio."""
    bound = "≥" if ratio.at_least else "≤"
    mark = "ok" if ratio.met else "**SHORT**"
    value = shown(ratio.value) + ratio.unit
    target = shown(ratio.target) + ratio.unit
    return [value, f"{bound} {target}", mark]


def _table(table: Table) -> str:
    """Return one table under its title, ours in bold."""
    rows = []
    for row in table.rows:
        cells = [shown(cell) for cell in row]
        if is_ours(row):
            cells[0] = f"**{cells[0]}**"
        rows.append(cells)
    numeric = []
    n_columns = len(table.columns)
    for place in range(n_columns):
        has_text = any(isinstance(row[place], str) for row in table.rows)
        if not has_text:
            numeric.append(place)
    lines = _lines(table.columns, rows, numeric)
    title = f"**{table.title}**"
    blocks = [title, lines, text_below(table)]
    filled = filter(None, blocks)
    return "\n\n".join(filled)


def _exponents(report: Report) -> str:
    """List how the figures of the curves grow."""
    from _plots import growth

    lines = []
    for curve in report.curves:
        for name, points in curve.series.items():
            growth_text = growth(points, curve.x)
            if growth_text:
                lines.append(f"- {curve.title}, {name}: {growth_text}")
    if not lines:
        return ""
    head = "Growth, fitted by least squares in logarithms:\n"
    return "\n".join([head, *lines])


def _lines(columns: list[str], rows: list[list[str]], right: list[int]) -> str:
    """Lay out a Markdown table; columns of numbers stand to the right."""
    n_columns = len(columns)
    rule = ["---:" if place in right else "---" for place in range(n_columns)]
    lines = []
    for row in (columns, rule, *rows):
        cells = []
        for cell in row:
            text = " ".join(cell.split())
            cells.append(text.replace("|", "\\|"))
        joined = " | ".join(cells)
        lines.append(f"| {joined} |")
    return "\n".join(lines)
