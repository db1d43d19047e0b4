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

from polyseme_experiments.report.statistics import ABOVE
from polyseme_experiments.report.tables import (
    Table,
    escape_markdown,
    legend,
    markdown_table,
    remarks_of,
    to_csv,
    to_markdown,
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


# ---------------------------------------------------------------------- facts of the runs


@dataclass(frozen=True)
class DataFact:
    """One dataset of a report; `checksum` is the SHA-256 over what was read."""

    title: str
    checksum: str
    stands_for: str = ""  # the dataset in whose place it is used
    is_sample: bool = False
    as_published: bool | None = None  # whether the files are those of our published figures

    @property
    def role(self) -> str:
        """Say in words what a dataset is in a report."""
        role = f"stand-in for {self.stands_for}" if self.stands_for else "itself"
        role = f"tiny sample, {role}" if self.is_sample else role
        known = {True: ", the files of our figures", False: ", other files", None: ""}
        return role + known[self.as_published]


@dataclass(frozen=True)
class Facts:
    """What stands on top of a report; an empty line separates paragraphs of the summary."""

    summary: str
    command: str  # makes the report again
    numbers: tuple[tuple[str, str], ...] = ()
    data: tuple[DataFact, ...] = ()
    versions: tuple[tuple[str, str], ...] = ()
    alerts: tuple[str, ...] = ()  # what a reader must know first, beside samples and stand-ins

    def warnings(self) -> list[str]:
        """Give what a reader must know first: samples, stand-ins, other files, then the alerts."""
        found = []
        for one in self.data:
            if one.is_sample:
                found.append(
                    f"{one.title}: a tiny sample of our own making; its figures mean nothing "
                    "beside the published ones."
                )
            if one.stands_for:
                found.append(
                    f"{one.title} stands in for {one.stands_for}, which was not at hand; published "
                    "values are for the original."
                )
            if one.as_published is False:
                found.append(f"{one.title}: other files than those of our published figures.")
        return [*found, *self.alerts]


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
    alerts = [
        f"Runs of several versions of {name} are mixed: {', '.join(sorted(found))}."
        for name, found in versions.items()
        if len(found) > 1
    ]
    alerts += [
        f"Runs on several states of the dataset {name} are mixed."
        for name in sorted(checksums)
        if len(checksums[name]) > 1
    ]
    days = sorted(record["finished"] for record in records)
    order = sorted(versions, key=lambda name: (name != "polyseme", name))
    return Facts(
        summary,
        command,
        _numbers(records, len(checksums)),
        tuple(
            DataFact(
                titles.get(name) or name,
                ", ".join(sorted(checksums[name])),
                " and ".join(sorted(stands[name])),
                name in samples,
                published.get(name),
            )
            for name in sorted(checksums)
        ),
        (
            *((name, ", ".join(sorted(versions[name]))) for name in order if versions[name]),
            *([("runs finished", " to ".join(dict.fromkeys((days[0], days[-1]))))] if days else []),
        ),
        tuple(alerts),
    )


def _numbers(records: Sequence[Record], n_data: int) -> tuple[tuple[str, str], ...]:
    """Count settings, methods, runs and their time."""
    counts = {
        "setting": len({record["setting"] for record in records}),
        "method": len({record["method"] for record in records}),
        "run": len(records),
        "dataset": n_data,
    }
    own = sum(record["seconds"] - sum(record["parts"].values()) for record in records)
    # A part that was learned once has the same seconds wherever it is used, also across trials.
    shared = {
        (record["setting"], name, seconds)
        for record in records
        for name, seconds in record["parts"].items()
    }
    seconds = max(own, 0.0) + sum(part[2] for part in shared)
    time = f"{seconds / 3600:.1f} h" if seconds >= 3600 else f"{seconds / 60:.1f} min"
    listed = ((f"{n:,}", word if n == 1 else f"{word}s") for word, n in counts.items())
    return (*listed, (time, "of computing"))


# ---------------------------------------------------------------------- HTML


def code_words(text: str) -> Markup:
    """Escape text for HTML; what stands between backticks becomes code."""
    parts = [escape(part) for part in text.split("`")]
    if len(parts) % 2 == 0:
        return Markup("`").join(parts)
    marked = (
        Markup("<code>{}</code>").format(part) if place % 2 else part
        for place, part in enumerate(parts)
    )
    return Markup("").join(marked)


def paragraphs(text: str, kind: str = "") -> Markup:
    """Give text as HTML paragraphs."""
    opening = Markup('<p class="{}">').format(kind) if kind else Markup("<p>")
    parts = (part for part in re.split(r"\n\s*\n", text.strip()) if part)
    return Markup("\n").join(opening + code_words(part) + Markup("</p>") for part in parts)


def _column_kinds(table: Table) -> list[str]:
    """Say for each column whether it holds measured cells, text, or plain numbers."""
    texts = [
        any(isinstance(value, str) for value in column) for column in zip(*table.rows, strict=True)
    ]
    return [
        "num" if is_measured else "text" if is_text else ""
        for is_measured, is_text in zip(table.measured(), texts, strict=True)
    ]


def render(template: str, **values: Any) -> str:
    """Fill a template of this package's folder `templates`; values are escaped unless safe."""
    loader = jinja2.PackageLoader("polyseme_experiments.report")
    environment = jinja2.Environment(
        loader=loader,
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters |= {"code": code_words, "paragraphs": paragraphs}
    functions = (value_text, with_error, remarks_of, legend, zip_longest)
    environment.globals |= {function.__name__: function for function in functions}
    environment.globals |= {"column_kinds": _column_kinds, "ABOVE": ABOVE}
    return environment.get_template(template).render({"css": ""} | values)


# ---------------------------------------------------------------------- Markdown


def _markdown_words(text: str) -> str:
    """Escape text for Markdown on one line; what stands between backticks stays code."""
    parts = " ".join(text.split()).split("`")
    if len(parts) % 2 == 0:
        return escape_markdown(text)
    return "".join(
        f"`{part}`" if place % 2 else re.sub(r"\S.*\S|\S", lambda at: escape_markdown(at[0]), part)
        for place, part in enumerate(parts)
    )


def _markdown_facts(facts: Facts) -> list[str]:
    """Give what stands on top."""
    parts = [_markdown_words(part) for part in re.split(r"\n\s*\n", facts.summary.strip()) if part]
    if warnings := facts.warnings():
        listed = "\n".join(f"> - {_markdown_words(warning)}" for warning in warnings)
        parts.append(f"> **Read this first**\n>\n{listed}")
    parts.append(", ".join(escape_markdown(" ".join(pair)) for pair in facts.numbers))
    parts.append(f"    {facts.command}")
    rows = [map(escape_markdown, (one.title, one.role, one.checksum)) for one in facts.data]
    parts.append(markdown_table(("dataset", "used as", "SHA-256"), rows, [False] * 3))
    parts.append(", ".join(escape_markdown(" ".join(pair)) for pair in facts.versions))
    return parts


# ---------------------------------------------------------------------- files


def write_report(folder: Path, sections: Sequence[Section], *, title: str, facts: Facts) -> None:
    """Write report.html, README.md with figures/*.svg, and tables/*.csv to a folder."""
    for name in ("figures", "tables"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    contents = [("summary", "Summary"), *((one.name, one.title) for one in sections)]
    page = render("report.html", title=title, contents=contents, facts=facts, sections=sections)
    (folder / "report.html").write_text(page, "utf-8")
    parts = [f"# {escape_markdown(title)}", *_markdown_facts(facts)]
    for section in sections:
        parts += [f"## {escape_markdown(section.title)}", _markdown_words(section.text)]
        for table in section.tables:
            parts.append(to_markdown(table).rstrip())
            (folder / "tables" / f"{table.name}.csv").write_text(to_csv(table), "utf-8")
        for number, figure in enumerate(section.figures, start=1):
            name = f"figures/{section.name}-{number}.svg"
            svg = f'<?xml version="1.0" encoding="utf-8"?>\n{figure.svg}\n'
            (folder / name).write_text(svg, "utf-8")
            parts.append(f"![{escape_markdown(figure.caption or section.title)}]({name})")
    (folder / "README.md").write_text("\n\n".join(parts) + "\n", "utf-8")
