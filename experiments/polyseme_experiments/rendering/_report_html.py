"""The elements of the report's page.

In: sections, tables and facts. Out: HTML in which everything but the plots is escaped.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape
from itertools import zip_longest
from typing import TYPE_CHECKING

from polyseme_experiments.rendering.cells import Cell, Table, Value, legend, value_text, with_error
from polyseme_experiments.rendering.comparisons import ABOVE
from polyseme_experiments.rendering.facts import DataFact, Facts, data_role

if TYPE_CHECKING:
    from polyseme_experiments.rendering.report import Figure, Section

_UNPRINTABLE = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff]")
_MOST_COLUMNS_BESIDE_A_PLOT = 4


def text_of(text: str) -> str:
    """Escape text for HTML, without the characters that no page may hold."""
    return escape(_UNPRINTABLE.sub("\ufffd", text))


def words_of(text: str) -> str:
    """Escape text for HTML; what stands between backticks becomes code."""
    parts = text_of(text).split("`")
    if len(parts) % 2 == 0:
        return "`".join(parts)
    return "".join(
        f"<code>{part}</code>" if place % 2 else part for place, part in enumerate(parts)
    )


def paragraphs(text: str, kind: str = "") -> str:
    """Give text as paragraphs."""
    opening = f'<p class="{kind}">' if kind else "<p>"
    return "\n".join(
        f"{opening}{words_of(part.strip())}</p>"
        for part in re.split(r"\n\s*\n", text)
        if part.strip()
    )


def summary_of(facts: Facts) -> str:
    """Give what stands on top: summary, numbers, the box, commands, data and versions."""
    parts = [f'<div id="summary">{paragraphs(facts.summary, "lead")}</div>']
    if warned := facts.warnings():
        listed = "".join(f"<li>{words_of(one)}</li>" for one in warned)
        parts.append(
            f'<div class="alert" role="note"><h2>Read this first</h2><ul>{listed}</ul></div>'
        )
    if facts.numbers:
        tiles = "".join(
            f"<li><strong>{text_of(number)}</strong><span>{text_of(words)}</span></li>"
            for number, words in facts.numbers
        )
        parts.append(f'<ul class="numbers">{tiles}</ul>')
    if facts.commands:
        lines = "\n".join(text_of(command) for command in facts.commands)
        parts.append(f"<h3>Make it again</h3><pre><code>{lines}</code></pre>")
    if facts.data:
        parts.append(f"<h3>Data</h3>{data_table(facts.data)}")
    if facts.versions:
        pairs = "".join(
            f"<dt>{text_of(name)}</dt><dd>{text_of(value)}</dd>" for name, value in facts.versions
        )
        parts.append(f"<h3>Versions</h3><dl>{pairs}</dl>")
    return "\n".join(parts)


def data_table(data: Sequence[DataFact]) -> str:
    """Give the table of datasets."""
    rows = "".join(
        f'<tr><th scope="row">{text_of(one.title or one.name)}</th>'
        f'<td class="text">{text_of(data_role(one))}</td>'
        f'<td class="text sum">{text_of(one.checksum)}</td></tr>'
        for one in data
    )
    return (
        '<div class="scroll" tabindex="0"><table><thead><tr><th scope="col">dataset</th>'
        '<th scope="col" class="text">used as</th><th scope="col" class="text">SHA-256</th></tr>'
        f"</thead><tbody>{rows}</tbody></table></div>"
    )


def section_of(section: Section) -> str:
    """Give one section: text, tables with their plots beside them, notes."""
    exhibits = "".join(
        ("" if table is None else exhibit_of(table, section.title))
        + ("" if figure is None else figure_of(figure))
        for table, figure in zip_longest(section.tables, section.figures)
    )
    return (
        f'<section id="{section.name}">\n<h2>{text_of(section.title)}</h2>\n'
        f"{paragraphs(section.text)}\n"
        + (f'<div class="exhibits">{exhibits}</div>\n' if exhibits else "")
        + ("<h3>Notes on this section</h3>" if section.notes else "")
        + notes_of(section.notes, section.name)
        + "</section>"
    )


def figure_of(figure: Figure) -> str:
    """Give one plot; on small screens it scrolls sideways."""
    caption = f"<figcaption>{words_of(figure.caption)}</figcaption>" if figure.caption else ""
    return f'<figure><div class="canvas" tabindex="0">{figure.svg}</div>{caption}</figure>'


def notes_of(notes: Sequence[str], name: str) -> str:
    """Give numbered notes that can be linked to."""
    if not notes:
        return ""
    items = "".join(
        f'<li id="{name}-note-{number}">{words_of(note)}</li>'
        for number, note in enumerate(notes, start=1)
    )
    return f'<ol class="notes">{items}</ol>'


def exhibit_of(table: Table, heading: str = "") -> str:
    """Give one table with how to read it, its notes and its command; no title twice."""
    told = legend(table)
    is_wide = len(table.header) > _MOST_COLUMNS_BESIDE_A_PLOT
    is_marked = any(cell.mark for cell in table.cells())
    return (
        f'<div class="exhibit{" wide" if is_wide else ""}" id="table-{table.name}">'
        f'<p class="caption{" told" if table.title == heading else ""}" '
        f'id="caption-{table.name}">{text_of(table.title)}</p>'
        f'<div class="scroll" tabindex="0"><table{class_of("marked" if is_marked else "")} '
        f'aria-labelledby="caption-{table.name}">{_rows(table)}</table></div>'
        + (f'<p class="note">{text_of(told)}</p>' if told else "")
        + notes_of(table.notes, f"table-{table.name}")
        + (f'<p class="note"><code>{text_of(table.command)}</code></p>' if table.command else "")
        + "</div>"
    )


def _rows(table: Table) -> str:
    """Give the rows of a table; a row that begins like the one before it is set back."""
    kinds = _column_kinds(table)
    head = "".join(
        f'<th scope="col"{class_of(kind)}>{linked(table, name)}</th>'
        for name, kind in zip(table.header, kinds, strict=True)
    )
    body = ""
    before: tuple[Value, ...] = ()
    for row in table.rows:
        looks = ["again"] if before[:1] == row[:1] and isinstance(row[0], str) else []
        words = [table.split_note(value)[0] for value in row if isinstance(value, str)]
        looks += ["ours"] if table.reference in words else []
        cells = "".join(cell_of(table, row, place, kind) for place, kind in enumerate(kinds))
        body += f"<tr{class_of(' '.join(looks))}>{cells}</tr>"
        before = row
    return f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody>"


def _column_kinds(table: Table) -> list[str]:
    """Say for each column whether it holds measured cells, text, or plain numbers."""
    kinds = []
    for place, is_measured in enumerate(table.measured()):
        is_text = any(isinstance(row[place], str) for row in table.rows)
        kinds.append("num" if is_measured else "text" if is_text else "")
    return kinds


def class_of(kind: str) -> str:
    """Give the attribute, if there is anything in it."""
    return f' class="{kind}"' if kind else ""


def linked(table: Table, text: str) -> str:
    """Escape a text, and link to the note that it refers to."""
    words, note = table.split_note(text)
    if note is None:
        return text_of(words)
    return f'{text_of(words)}<sup><a href="#table-{table.name}-note-{note}">{note}</a></sup>'


def cell_of(table: Table, row: tuple[Value, ...], place: int, kind: str) -> str:
    """Give one value of a table as an element."""
    value = row[place]
    if isinstance(value, Cell):
        return f'<td class="num">{measured_of(value, table.common_n())}</td>'
    text = linked(table, value) if isinstance(value, str) else text_of(value_text(value))
    if place == 0:
        return f'<th scope="row">{text}</th>'
    return f"<td{class_of(kind)}>{text}</td>"


def measured_of(cell: Cell, common_n: int | None) -> str:
    """Give a cell: mean and error, mark, another number of trials, and below the published."""
    mean, plus, error = with_error(cell.mean, cell.error, cell.digits).partition(" ± ")
    text = f"<b>{mean}</b>" if cell.best else mean
    text += f"<i>{plus}{error}</i>" if error else ""
    others = []
    if cell.mark:
        kind = "above" if cell.mark == ABOVE else "below"
        text += (
            f'<span class="mark {kind}" aria-hidden="true">{text_of(cell.mark)}</span>'
            f'<span class="vh"> (significantly {kind})</span>'
        )
    if cell.is_known and common_n not in (None, cell.n):
        others.append(f"[n = {cell.n}]")
    if cell.published is not None:
        others.append(f"({with_error(cell.published, cell.published_error, cell.digits)})")
    return text + "".join(f"<small>{one}</small>" for one in others)
