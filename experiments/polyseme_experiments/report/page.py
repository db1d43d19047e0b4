"""The report: one HTML page that loads nothing from anywhere, its Markdown form, and CSV files.

In: sections of tables and plots, and the records of the runs. Out: files; in the page everything
but the plots is escaped.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup, escape

from polyseme.storage.atomic_files import make_folder, replacing
from polyseme_experiments.report.statistics import ABOVE
from polyseme_experiments.report.tables import (
    Table,
    escape_markdown,
    legend,
    remarks_of,
    to_csv,
    value_text,
    with_error,
)

Record = Mapping[str, Any]


@dataclass(frozen=True)
class Figure:
    """One plot of a section: an SVG element of `report.plots`, and what stands below it."""

    svg: str
    caption: str = ""


@dataclass(frozen=True)
class Section:
    """One part of a report: text in which words between backticks are code, tables and plots."""

    name: str
    title: str
    text: str = ""
    tables: tuple[Table, ...] = ()
    figures: tuple[Figure, ...] = ()


@dataclass(frozen=True)
class Facts:
    """What stands on top of a report; an empty line separates paragraphs of the summary."""

    summary: str
    command: str  # makes the report again
    numbers: tuple[tuple[str, str], ...] = ()
    data: tuple[tuple[str, str, str], ...] = ()  # title, what it is used as, SHA-256
    versions: tuple[tuple[str, str], ...] = ()
    warnings: tuple[str, ...] = ()  # what a reader must know first


def facts_of(
    records: Sequence[Record], *, summary: str, command: str, titles: Mapping[str, str]
) -> Facts:
    """Gather the facts of runs from their records; `titles` are names of datasets in words."""
    versions: dict[str, set[str]] = {"polyseme": set()}
    checksums: dict[str, set[str]] = {}
    stands: dict[str, set[str]] = {}
    published: dict[str, bool] = {}
    for record in records:
        for name, value in ({"polyseme": record["version"]} | record["libraries"]).items():
            versions.setdefault(name, set()).add(str(value))
        for name, checksum in record["data"].items():
            checksums.setdefault(name, set()).add(checksum)
            stands.setdefault(name, set()).update(filter(None, [record["stand_in"].get(name)]))
        published |= {} if record["sample"] else record.get("as_published", {})
    samples = {name for record in records if record["sample"] for name in record["data"]}
    data, warnings = [], []
    for name in sorted(checksums):
        title, original = titles.get(name) or name, " and ".join(sorted(stands[name]))
        role = f"stand-in for {original}" if original else "itself"
        if name in samples:
            role = f"tiny sample, {role}"
            warnings.append(
                f"{title}: a tiny sample that we made; its figures mean nothing beside the "
                "published ones."
            )
        if original:
            warnings.append(
                f"{title} stands in for {original}, of which we have no files; published "
                "values are for the original."
            )
        if published.get(name) is False:
            warnings.append(f"{title}: other files than those of our published figures.")
        files = {True: ", the files of our figures", False: ", other files"}
        role += files[published[name]] if name in published else ""
        data.append((title, role, ", ".join(sorted(checksums[name]))))
    warnings += [
        f"Runs of several versions of {name} are mixed: {', '.join(sorted(several))}."
        for name, several in versions.items()
        if len(several) > 1
    ]
    warnings += [
        f"Runs on several states of the dataset {name} are mixed."
        for name in sorted(checksums)
        if len(checksums[name]) > 1
    ]
    order = sorted(versions, key=lambda name: (name != "polyseme", name))
    listed = [(name, ", ".join(sorted(versions[name]))) for name in order if versions[name]]
    if days := sorted(record["finished"] for record in records):
        listed.append(("runs finished", " to ".join(dict.fromkeys((days[0], days[-1])))))
    numbers = _numbers(records, len(checksums))
    return Facts(summary, command, numbers, tuple(data), tuple(listed), tuple(warnings))


def _numbers(records: Sequence[Record], n_data: int) -> tuple[tuple[str, str], ...]:
    """Count settings, methods, runs and their time."""
    counts = {
        "setting": len({record["setting"] for record in records}),
        "method": len({record["method"] for record in records}),
        "run": len(records),
        "dataset": n_data,
    }
    run_seconds = 0
    # A part that was learned once has the same seconds wherever it is used, also across trials.
    shared = set()
    for record in records:
        seconds_by_part = record["parts"]
        run_seconds += record["seconds"] - sum(seconds_by_part.values())
        for name, part_seconds in seconds_by_part.items():
            shared.add((record["setting"], name, part_seconds))
    shared_seconds = sum(part_seconds for _, _, part_seconds in shared)
    seconds = max(run_seconds, 0.0) + shared_seconds
    time = f"{seconds / 3600:.1f} h" if seconds >= 3600 else f"{seconds / 60:.1f} min"
    listed = ((f"{n:,}", word if n == 1 else f"{word}s") for word, n in counts.items())
    return (*listed, (time, "of computing"))


def code_words(text: str) -> Markup:
    """Escape text for HTML; what stands between backticks becomes code."""
    pieces = [escape(piece) for piece in text.split("`")]
    n_pieces = len(pieces)
    if n_pieces % 2 == 0:
        backtick = Markup("`")
        return backtick.join(pieces)  # a backtick without its partner
    code = Markup("<code>{}</code>")
    for place in range(1, n_pieces, 2):
        piece = pieces[place]
        pieces[place] = code.format(piece)
    nothing = Markup("")
    return nothing.join(pieces)


def text_parts(text: str) -> list[str]:
    """Return the paragraphs of a text, which empty lines separate."""
    texts = re.split(r"\n\s*\n", text.strip())
    return [paragraph for paragraph in texts if paragraph]


def paragraphs(text: str, kind: str = "") -> Markup:
    """Return text as HTML paragraphs."""
    opening = Markup("<p>")
    if kind:
        template = Markup('<p class="{}">')
        opening = template.format(kind)
    closing = Markup("</p>")
    elements = []
    for paragraph in text_parts(text):
        content = code_words(paragraph)
        element = opening + content + closing
        elements.append(element)
    newline = Markup("\n")
    return newline.join(elements)


def _markdown_words(text: str) -> str:
    """Escape text for Markdown on one line; what stands between backticks stays code."""
    line = " ".join(text.split())
    pieces = line.split("`")
    if len(pieces) % 2 == 0:
        return escape_markdown(text)
    for place, piece in enumerate(pieces):
        if place % 2:
            pieces[place] = f"`{piece}`"
        else:
            # Spaces around code stay as they are.
            pieces[place] = re.sub(r"\S.*\S|\S", _escape_match, piece)
    return "".join(pieces)


def _escape_match(match: re.Match[str]) -> str:
    """Escape matched text for Markdown."""
    return escape_markdown(match[0])


def _column_kinds(table: Table) -> list[str]:
    """Return for each column whether it holds measured cells, text, or plain numbers."""
    kinds = []
    columns = zip(*table.rows, strict=True)
    for is_measured, values in zip(table.measured(), columns, strict=True):
        if is_measured:
            kind = "num"
        elif any(isinstance(value, str) for value in values):
            kind = "text"
        else:
            kind = ""
        kinds.append(kind)
    return kinds


def render(template: str, **values: Any) -> str:
    """Fill a template of this package's folder `templates`; HTML is escaped unless it is safe."""
    loader = jinja2.PackageLoader("polyseme_experiments.report")
    environment = jinja2.Environment(
        loader=loader,
        autoescape=lambda name: not str(name).endswith(".md"),
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters |= {"code": code_words, "paragraphs": paragraphs, "parts": text_parts}
    environment.filters |= {"md": escape_markdown, "md_code": _markdown_words}
    functions = (value_text, with_error, remarks_of, legend, zip_longest)
    environment.globals |= {function.__name__: function for function in functions}
    environment.globals |= {"column_kinds": _column_kinds, "ABOVE": ABOVE}
    return environment.get_template(template).render({"css": ""} | values)


def write_report(folder: Path, sections: Sequence[Section], *, title: str, facts: Facts) -> None:
    """Write report.html, README.md with figures/*.svg, and tables/*.csv to a folder."""
    contents = [("summary", "Summary")]
    contents += [(section.name, section.title) for section in sections]
    values: dict[str, Any] = {"title": title, "facts": facts, "sections": sections}
    files = {
        "report.html": render("report.html", contents=contents, **values),
        "README.md": render("report.md", **values),
    }
    for section in sections:
        files |= {f"tables/{table.name}.csv": to_csv(table) for table in section.tables}
        for number, figure in enumerate(section.figures, start=1):
            svg = f'<?xml version="1.0" encoding="utf-8"?>\n{figure.svg}\n'
            files[f"figures/{section.name}-{number}.svg"] = svg
    for name, text in files.items():
        make_folder((folder / name).parent)
        with replacing(folder / name) as file:
            file.write(text.encode())
