"""How the command prints: a table for people, JSON lines or CSV for programs."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any, Literal


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
