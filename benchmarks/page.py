"""The page of the benchmarks: one HTML file that loads nothing, in the looks of the results page.

In: reports. Out: HTML with their targets, tables, bars and curves, machine by machine.
"""

from __future__ import annotations

from collections.abc import Mapping

from _plots import bar_columns, bars, curve_plot, margin, meter, names_of
from _reporting import (
    Cell,
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
from markupsafe import Markup
from markupsafe import escape as text_of

from polyseme_experiments.report.page import code_words as words_of
from polyseme_experiments.report.page import paragraphs, render

TITLE = "Benchmarks"
CSS = """
.met, .short { font-weight: 650; white-space: nowrap; }
.met { color: var(--m2); }
.short { color: var(--m1); }
.machine { color: var(--soft); font-size: .9rem; }
.narrow { width: fit-content; max-width: 100%; }
.overview { max-height: none; }
.meter { display: block; width: 120px; height: 14px; }
tr.head th { font-weight: 650; padding-top: 18px; max-width: none; }
.exhibits .exhibit { flex: 1 1 420px; }
.exhibit.wide { flex-basis: 100%; }
.plots { flex: 1 1 380px; min-width: 0; max-width: 560px; display: grid; gap: 14px; }
thead th { white-space: normal; min-width: 4.6em; }
tbody th { font-weight: 400; }
tbody th[scope="row"] { max-width: 26em; }
tr.ours > :first-child { font-weight: 700; }
h3:not(:first-of-type) { margin-top: 3em; }
@media (max-width: 560px) {
  th, td { padding: 6px 7px; font-size: .84rem; }
  tr.head th { max-width: 70vw; white-space: normal; }
  .narrow th:first-child { max-width: 9.5em; }
  .overview tr > :nth-child(5), .note.bars { display: none; }
  .exhibits .exhibit, .plots { flex-basis: 100%; }
  tbody th[scope="row"] { min-width: 7em; max-width: 10em; }
}
"""
SMALL = (
    '<div class="alert" role="note"><h2>Small sizes</h2>A check that everything runs; the figures '
    "mean nothing.</div>"
)
LEAD = (
    "What polyseme takes, beside what one would otherwise run: ways take turns in one process on "
    "the same data, and what the answers are worth stands beside the time. A figure with a target "
    "says whether it is reached."
)


def page(reports: Mapping[str, Report]) -> str:
    """Render all reports.

    Parameters
    ----------
    reports : mapping of str to Report
        By file name, in the order of `read_reports`.
    """
    sections: dict[str, list[str]] = {}
    titles: dict[str, str] = {}
    before: list[Report] = []
    for name, report in zip(names_of(reports), reports.values(), strict=True):
        titles.setdefault(report.name, report.title)
        sections.setdefault(report.name, []).append(_report(name, report, before))
        before.append(report)
    bodies = "\n".join(
        f'<section id="{name}">\n<h2>{text_of(titles[name])}</h2>\n{"".join(blocks)}</section>'
        for name, blocks in sections.items()
    )
    return render(
        "base.html",
        title=TITLE,
        css=Markup(CSS),
        contents=[("top", "Targets"), *titles.items()],
        summary=Markup(_summary(reports)),
        sections=Markup(bodies),
    )


def _summary(reports: Mapping[str, Report]) -> str:
    """Return what stands on top: how many targets are reached, and all of them."""
    ratios = []
    names = set()
    machines = []
    for report in reports.values():
        ratios += report.ratios
        names.add(report.name)
        machines.append(machine_name(report.machine))
    n_short = sum(not ratio.met for ratio in ratios)
    tiles = [
        (len(ratios), "figures with a target"),
        (len(ratios) - n_short, "reached"),
        (n_short, "short"),
        (len(names), "benchmarks"),
    ]
    listed = "".join(f"<li><strong>{n}</strong><span>{title}</span></li>" for n, title in tiles)
    blocks = [paragraphs(LEAD, "lead")]
    if any(report.size != "full" for report in reports.values()):
        blocks.append(SMALL)
    distinct_machines = map(text_of, dict.fromkeys(machines))
    blocks.append(f'<p class="machine">{" · ".join(distinct_machines)}</p>')
    blocks.append(f'<ul class="numbers">{listed}</ul>')
    if ratios:
        blocks.append(_overview(reports))
    return "\n".join(blocks)


def _overview(reports: Mapping[str, Report]) -> str:
    """Return all ratios, with how far past their targets they lie."""
    margins = [margin(ratio) for column in reports.values() for ratio in column.ratios]
    factors = [max(past, 1 / past) for past in margins if past is not None]
    most = min(max([2.0, *factors]), 20.0)
    several = len({machine_name(column.machine) for column in reports.values()}) > 1
    rows = ""
    for name, report in zip(names_of(reports), reports.values(), strict=True):
        if report.ratios:
            on = f" on {machine_name(report.machine)}" if several else ""
            title = f'<a href="#{name}-machine">{text_of(report.title)}</a>{text_of(on)}'
            rows += f'<tr class="head"><th scope="rowgroup" colspan="5">{title}</th></tr>'
        rows += "".join(_target(ratio, meter(ratio, most)) for ratio in report.ratios)
    head = ("what", "reached", "target", "", "past the target")
    cells = "".join(f'<th scope="col">{column}</th>' for column in head)
    return (
        '<div class="scroll narrow overview" tabindex="0"><table><thead><tr>'
        f"{cells}</tr></thead><tbody>{rows}</tbody></table></div>"
        '<p class="note bars">Bars show how many times better than its target a figure is, in '
        f"logarithms up to {shown(most)} times; to the left of the line it is short.</p>"
    )


def _report(name: str, report: Report, before: list[Report]) -> str:
    """Return what one benchmark found on one machine, without words that stand above already."""
    facts = software(report.machine)
    if report.seconds:
        facts += f"; {shown(report.seconds)} s in all"
    machine = text_of(machine_name(report.machine))
    text = new_text(report, before)
    blocks = [
        f'<h3 id="{name}-machine">On {machine}</h3>',
        f'<p class="machine">{text_of(facts)}</p>',
        paragraphs(text),
    ]
    if report.ratios:
        blocks.append(_ratios(report))
    for number, table in enumerate(report.tables):
        blocks.append(_exhibits(f"bars-{name}-{number}", table))
    figures = []
    for number, curve in enumerate(report.curves):
        svg = curve_plot(f"curve-{name}-{number}", curve)
        if svg:
            figures.append(_figure(svg))
    if figures:
        curves = "".join(figures)
        blocks.append(f'<div class="exhibits">{curves}</div>')
    filled = filter(None, blocks)
    return "\n".join(filled) + "\n"


def _exhibits(name: str, table: Table) -> str:
    """Return a table beside the bars of its columns."""
    figures = []
    columns = bar_columns(table)
    for place, column in enumerate(columns):
        svg = bars(f"{name}-{place}", table, column)
        figure = _figure(svg)
        figures.append(figure)
    is_drawn = bool(figures)
    plots = "".join(figures)
    if is_drawn:
        plots = f'<div class="plots">{plots}</div>'
    table_text = _table(table, is_drawn)
    return f'<div class="exhibits">{table_text}{plots}</div>'


def _figure(svg: str) -> str:
    """Frame a plot."""
    return f'<figure><div class="canvas" tabindex="0">{svg}</div></figure>'


def _ratios(report: Report) -> str:
    """Return a report's ratios with their targets as a table."""
    head = ("what", "reached", "target", "")
    cells = "".join(f'<th scope="col">{column}</th>' for column in head)
    rows = "".join(map(_target, report.ratios))
    return (
        '<p class="caption">Targets</p><div class="scroll narrow" tabindex="0"><table><thead><tr>'
        f"{cells}</tr></thead><tbody>{rows}</tbody></table></div>"
    )


def _target(ratio: Ratio, picture: str | None = None) -> str:
    """Return a ratio, its target and its mark as a row, with a picture if there is one."""
    value = text_of(shown(ratio.value) + ratio.unit)
    target = text_of(shown(ratio.target) + ratio.unit)
    title = words_of(ratio.what)
    mark = '<span class="short">✗ SHORT</span>'
    if ratio.met:
        mark = '<span class="met">✓ met</span>'
    bound = "≥" if ratio.at_least else "≤"
    picture_cell = ""
    if picture is not None:
        picture_cell = f"<td>{picture}</td>"
    return (
        f'<tr><th scope="row">{title}</th><td><b>{value}</b></td>'
        f'<td>{bound} {target}</td><td class="text">{mark}</td>{picture_cell}</tr>'
    )


def _table(table: Table, is_drawn: bool) -> str:
    """Return one table with its note; ours stands out."""
    kinds = []
    head = ""
    for place, name in enumerate(table.columns):
        is_text = any(isinstance(row[place], str) for row in table.rows)
        kind = ' class="text"' if is_text else ""
        kinds.append(kind)
        head += f'<th scope="col"{kind}>{words_of(name)}</th>'
    body = "".join(_row(row, kinds) for row in table.rows)
    wide = " wide" if len(table.columns) > 5 else ""
    narrow = "" if is_drawn else " narrow"
    note = ""
    note_text = text_below(table)
    if note_text:
        note = f'<p class="note">{words_of(note_text)}</p>'
    title = words_of(table.title)
    return (
        f'<div class="exhibit{wide}"><p class="caption">{title}</p>'
        f'<div class="scroll{narrow}" tabindex="0">'
        f"<table><thead><tr>{head}</tr></thead>"
        f"<tbody>{body}</tbody></table></div>{note}</div>"
    )


def _row(row: list[Cell], kinds: list[str]) -> str:
    """Return one row of a table."""
    texts = [words_of(shown(cell)) for cell in row]
    first, *further = texts
    cells = ""
    for kind, text in zip(kinds[1:], further, strict=True):
        cells += f"<td{kind}>{text}</td>"
    ours = ""
    if is_ours(row):
        ours = ' class="ours"'
    return f'<tr{ours}><th scope="row">{first}</th>{cells}</tr>'
