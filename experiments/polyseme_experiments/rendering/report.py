"""The report: one HTML file that loads nothing from anywhere, its Markdown form, and CSV files.

In: sections of tables, plots and notes, and the facts of the runs. Out: files, written as a whole
or not at all; everything but the plots is escaped.
"""

from __future__ import annotations

import os
import re
import secrets
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from string import Template

from polyseme._validation import InputError
from polyseme_experiments.rendering._report_html import section_of, summary_of, text_of
from polyseme_experiments.rendering.cells import Table
from polyseme_experiments.rendering.facts import Facts, data_role
from polyseme_experiments.rendering.tables import code_span, escape_markdown, to_csv, to_markdown

_NAME = re.compile(r"[a-z][a-zA-Z0-9-]*")


@dataclass(frozen=True)
class Figure:
    """One plot of a section.

    Attributes
    ----------
    svg : str
        What a function of `polyseme_experiments.rendering.plots` gave; it enters the page as it is.
    caption : str
        Stands below.
    name : str
        Names its file beside a Markdown report; by default its section's name and number.
    """

    svg: str
    caption: str = ""
    name: str = ""


@dataclass(frozen=True)
class Section:
    """One part of a report: a table or figure of the paper.

    Attributes
    ----------
    name : str
        Short and unique; letters, digits and hyphens, a small letter first.
    title : str
        Its heading.
    text : str
        Paragraphs parted by empty lines; words between backticks are code.
    tables : tuple of Table
    figures : tuple of Figure
        The first stands beside the first table, and so on.
    notes : tuple of str
        Footnotes: departures from the paper and stand-ins that concern the whole section.
    """

    name: str
    title: str
    text: str = ""
    tables: tuple[Table, ...] = ()
    figures: tuple[Figure, ...] = ()
    notes: tuple[str, ...] = ()


def write_report(
    path: str | Path, sections: Sequence[Section], *, title: str, facts: Facts
) -> None:
    """Write the report as one HTML file.

    Parameters
    ----------
    path : str or Path
        The file; its folder is made where it is missing.
    sections : sequence of Section
    title : str
        Heads the page.
    facts : Facts
        Stand on top.
    """
    _write(Path(path), report_page(sections, title=title, facts=facts))


def report_page(sections: Sequence[Section], *, title: str, facts: Facts) -> str:
    """Give the report as HTML; see `write_report`."""
    _check(sections)
    contents = [("summary", "Summary"), *((one.name, one.title) for one in sections)]
    page = Template(_read("report.html")).substitute(
        css=_read("report.css").strip(),
        title=text_of(title),
        contents="\n".join(
            f'<li><a href="#{name}">{text_of(words)}</a></li>' for name, words in contents
        ),
        summary=summary_of(facts),
        sections="\n".join(section_of(one) for one in sections),
    )
    # Plots bring ids of their own, which begin with their names.
    _refuse_doubles("id", re.findall(r'\sid="([^"]+)"', page))
    return page


def write_markdown(
    path: str | Path, sections: Sequence[Section], *, title: str, facts: Facts
) -> None:
    """Write the report as Markdown, its plots as SVG files in the folder `figures` beside it.

    Parameters
    ----------
    path : str or Path
        The file; its folder is made where it is missing.
    sections : sequence of Section
    title : str
        Heads the page.
    facts : Facts
        Stand on top.
    """
    _check(sections)
    target = Path(path)
    parts = [f"# {escape_markdown(title)}", *_markdown_facts(facts)]
    for section in sections:
        parts += [f"## {escape_markdown(section.title)}", *_markdown_paragraphs(section.text)]
        parts += [to_markdown(table).rstrip() for table in section.tables]
        for number, figure in enumerate(section.figures, start=1):
            name = figure.name or f"{section.name}-{number}"
            _write(target.parent / "figures" / f"{name}.svg", _stand_alone(figure.svg))
            caption = escape_markdown(figure.caption or section.title)
            parts.append(f"![{caption}](figures/{name}.svg)")
        if section.notes:
            parts.append("\n".join(f"- {_markdown_words(note)}" for note in section.notes))
    _write(target, "\n\n".join(parts) + "\n")


def write_tables(folder: str | Path, tables: Sequence[Table]) -> list[Path]:
    """Write each table as `<name>.csv`.

    Parameters
    ----------
    folder : str or Path
        Made where it is missing.
    tables : sequence of Table
        With different names.

    Returns
    -------
    list of Path
        The files.
    """
    _refuse_doubles("table name", [table.name for table in tables])
    paths = [Path(folder) / f"{table.name}.csv" for table in tables]
    for path, table in zip(paths, tables, strict=True):
        _write(path, to_csv(table))
    return paths


# ---------------------------------------------------------------------- files and checks


def _read(name: str) -> str:
    """Read a file that lies beside this module."""
    return (resources.files("polyseme_experiments.rendering") / name).read_text(encoding="utf-8")


def _write(path: Path, text: str) -> None:
    """Write a file under a temporary name and rename it."""
    if path.is_dir():
        raise InputError(f"`path` must be a file, but '{path}' is a folder; add a file name.")
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.{secrets.token_hex(8)}.tmp")
    try:
        with temporary.open("x", encoding="utf-8", newline="\n") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise


def _check(sections: Sequence[Section]) -> None:
    """Refuse names that clash in the page or cannot be file names."""
    tables = [table.name for section in sections for table in section.tables]
    for name in [*(section.name for section in sections), *tables]:
        if not _NAME.fullmatch(name):
            raise InputError(
                "Names of sections and tables must be letters, digits and hyphens, a small letter "
                f"first; got {name!r}."
            )
    _refuse_doubles("name", ["top", "summary", *(section.name for section in sections)])
    _refuse_doubles("table name", tables)


def _refuse_doubles(kind: str, names: Sequence[str]) -> None:
    """Raise when a name is used twice."""
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise InputError(
            f"The {kind} '{twice[0]}' is used twice in the report; rename a section, table or plot."
        )


# ---------------------------------------------------------------------- Markdown


def _stand_alone(svg: str) -> str:
    """Give a plot as a file of its own, as wide as it is drawn."""
    return f'<?xml version="1.0" encoding="utf-8"?>\n{svg}\n'


def _markdown_words(text: str) -> str:
    """Escape text for Markdown; what stands between backticks stays code."""
    parts = text.split("`")
    if len(parts) % 2 == 0:
        return escape_markdown(text)
    return "".join(
        code_span(part) if place % 2 else _spaced(part) for place, part in enumerate(parts)
    )


def _spaced(part: str) -> str:
    """Escape a part of a line, keeping the spaces at its ends."""
    left = " " if part[:1].isspace() else ""
    right = " " if part.strip() and part[-1:].isspace() else ""
    return f"{left}{escape_markdown(part)}{right}"


def _markdown_paragraphs(text: str) -> list[str]:
    """Give text as paragraphs."""
    return [_markdown_words(part.strip()) for part in re.split(r"\n\s*\n", text) if part.strip()]


def _markdown_facts(facts: Facts) -> list[str]:
    """Give what stands on top."""
    parts = _markdown_paragraphs(facts.summary)
    if warned := facts.warnings():
        listed = "\n".join(f"> - {_markdown_words(one)}" for one in warned)
        parts.append(f"> **Read this first**\n>\n{listed}")
    if facts.numbers:
        parts.append(", ".join(escape_markdown(f"{one} {word}") for one, word in facts.numbers))
    if facts.commands:
        parts.append("\n".join(f"    {' '.join(one.split())}" for one in facts.commands))
    if facts.data:
        lines = ["| dataset | used as | SHA-256 |", "| --- | --- | --- |"]
        for one in facts.data:
            shown = (one.title or one.name, data_role(one), one.checksum)
            lines.append(f"| {' | '.join(escape_markdown(value) for value in shown)} |")
        parts.append("\n".join(lines))
    if facts.versions:
        parts.append(", ".join(escape_markdown(f"{one} {word}") for one, word in facts.versions))
    return parts
