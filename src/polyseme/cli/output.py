"""How the command prints: a table for people, JSON lines or CSV for programs."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from polyseme.evidence import Evidence
    from polyseme.store import Neighbour


class Form(StrEnum):
    """The forms of output."""

    auto = "auto"
    table = "table"
    jsonl = "jsonl"
    csv = "csv"


def for_people(form: Form) -> bool:
    """Say whether output in this form is a table for people."""
    on_terminal = sys.stdout is not None and sys.stdout.isatty()
    return form == Form.table or (form == Form.auto and on_terminal)


def emit(records: Iterable[Mapping[str, Any]], form: Form, title: str = "") -> None:
    """Print records on standard output.

    Parameters
    ----------
    records : iterable of mappings
        All with the same keys.
    form : Form
        `auto` is a table on a terminal and JSON lines elsewhere.
    title : str
        Stands above a table.
    """
    if sys.stdout is None:
        raise ValueError("Standard output is closed; there is nowhere to print the results.")
    if for_people(form):
        _table(list(records), title)
        return
    from polyseme.io.records import write_records

    write_records(records, sys.stdout, "csv" if form == Form.csv else "jsonl")


def _table(records: list[Mapping[str, Any]], title: str) -> None:
    """Print records as a table, numbers to the right."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    # Plain text: labels may look like rich's markup.
    table = Table(title=Text(title) if title else None, title_justify="left", box=box.SIMPLE_HEAD)
    for name in records[0] if records else ():
        numbers = all(isinstance(record[name], (int, float)) for record in records)
        # Folded, so that no digit is ever cut off.
        side: Literal["left", "right"] = "right" if numbers else "left"
        table.add_column(name.replace("_", " "), justify=side, overflow="fold")
    for record in records:
        table.add_row(*(Text(_cell(value)) for value in record.values()))
    Console(highlight=False).print(table)


def _cell(value: Any) -> str:
    """Write one value for people."""
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, (list, tuple)):
        return ", ".join(str(item) for item in value)
    return "" if value is None else str(value)


def say(message: str) -> None:
    """Print a line for people on standard error."""
    sys.stderr.write(f"{message}\n")


# ---------------------------------------------------------------------- evidence

_HALF = 9  # letters of a bar on either side of zero
_NAMED = 3  # documents that a known tag set names


def emit_evidence(item: dict[str, Any], found: Evidence, form: Form) -> None:
    """Print where a label's score comes from.

    Parameters
    ----------
    item : dict
        What was asked about: a row or a file.
    found : Evidence
    form : Form
        A table with bars, one JSON record with everything, or CSV with a row for each part.
    """
    if for_people(form):
        _show(item, found)
    elif form == Form.csv:
        emit(parts_of(found), form)
    else:
        emit([item | record_of(found)], form)


def record_of(found: Evidence) -> dict[str, Any]:
    """Give all of the evidence as one record."""
    return {
        "label": found.label,
        "kind": found.kind,
        "probability": round(found.probability, 6),
        "logit": round(found.logit, 6),
        "frequency": round(found.frequency, 6),
        "features": round(found.features, 6),
        "tags": [
            {
                "tag": one.tag,
                "probability": round(one.probability, 6),
                "part": round(one.part, 6),
                "without": round(one.without, 6),
            }
            for one in found.tags
        ],
        "other_tags": round(found.other_tags, 6),
        "known": round(found.known, 6),
        "neighbours": [_neighbour(one) for one in found.neighbours],
    }


def _neighbour(one: Neighbour) -> dict[str, Any]:
    """Give a known tag set as a record."""
    return {
        "document": list(one.document),
        "known_as": list(one.document_ids[:_NAMED]),
        "times": len(one.document_ids),
        "distance": round(one.distance, 6),
        "share": round(one.share, 6),
        "holds": one.holds,
    }


def parts_of(found: Evidence) -> Iterator[dict[str, Any]]:
    """Yield a record for each part of the logit, then their sum."""
    first, tags = 2, found.tags  # by place: a tag may be called like another part
    for place, (name, part) in enumerate(found.parts()):
        tag = tags[place - first] if first <= place < first + len(tags) else None
        yield {
            "part": name,
            "probability": None if tag is None else round(tag.probability, 6),
            "logit": round(part, 6),
            "without": None if tag is None else round(tag.without, 6),
        }
    yield {
        "part": "sum",
        "probability": round(found.probability, 6),
        "logit": round(found.logit, 6),
        "without": None,
    }


def _show(item: dict[str, Any], found: Evidence) -> None:
    """Print tables of parts and of known tag sets."""
    from rich.console import Console

    console = Console(highlight=False)
    _show_parts(console, item, found)
    if found.neighbours:
        _show_neighbours(console, found)


def _show_parts(console: Console, item: dict[str, Any], found: Evidence) -> None:
    """Print the parts of the logit with bars, then their sum."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    parts = list(parts_of(found))
    # Plain text everywhere: labels may look like rich's markup.
    title = f"why {found.label} ({found.kind}) has the probability {found.probability:.3f}"
    for name, value in list(item.items())[:1]:
        title += f" for {value}" if name == "file" else f" for {name} {value}"
    table = Table(title=Text(title), title_justify="left", box=box.SIMPLE_HEAD)
    table.add_column("part", overflow="fold", min_width=12)
    table.add_column("probability", justify="right")
    table.add_column("logit", justify="right")
    table.add_column("", no_wrap=True)
    table.add_column("without", justify="right")
    largest = max(abs(one["logit"]) for one in parts) or 1.0
    for place, one in enumerate(parts):
        if place == len(parts) - 1:
            table.add_section()
        elif one["logit"] == 0 and one["probability"] is None:
            continue  # such as features, where there are none
        table.add_row(
            Text(one["part"]),
            Text("" if one["probability"] is None else f"{one['probability']:.3f}"),
            Text(f"{one['logit']:+.2f}"),
            _bar(one["logit"] / largest, ascii_only=console.options.ascii_only),
            Text("" if one["without"] is None else f"{one['without']:+.2f}"),
        )
    console.print(table)


def _bar(share: float, *, ascii_only: bool) -> Text:
    """Draw a number between -1 and 1 to the left or to the right of a line."""
    from rich.text import Text

    halves = round(2 * _HALF * abs(share))
    whole, half = divmod(halves, 2)
    full, left, right, line = ("#", "", "", "|") if ascii_only else ("█", "▐", "▌", "│")
    bar = Text()
    if share < 0:
        bar.append(((left if half else "") + full * whole).rjust(_HALF), style="red")
        bar.append(line, style="dim")
        bar.append(" " * _HALF)
    else:
        bar.append(" " * _HALF)
        bar.append(line, style="dim")
        bar.append((full * whole + (right if half else "")).ljust(_HALF), style="green")
    return bar


def _show_neighbours(console: Console, found: Evidence) -> None:
    """Print the nearest known tag sets."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    takes_part = "" if found.known else ", which take no part in this score"
    title = Text(f"nearest known tag sets{takes_part}")
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
    table.add_column("distance", justify="right")
    table.add_column("votes", justify="right")
    table.add_column("holds it", no_wrap=True)
    table.add_column("tag set", overflow="fold")
    table.add_column("times", justify="right")
    for one in found.neighbours:
        table.add_row(
            f"{one.distance:.3f}",
            f"{one.share:.1%}",
            "yes" if one.holds else "no",
            Text(", ".join(one.document)),
            str(len(one.document_ids)),
        )
    console.print(table)
