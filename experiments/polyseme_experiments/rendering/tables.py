"""Tables of the paper's experiments as files: Markdown, CSV and plain records.

In: `Table` records with means over trials beside the published figures. Out: text.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Sequence
from typing import Literal

from polyseme._validation import check_option
from polyseme_experiments.rendering.cells import (
    Cell,
    Table,
    Value,
    legend,
    value_text,
    with_error,
)

FIELDS = ("mean", "standard_error", "n", "published", "published_error", "mark")

_MARKDOWN = re.compile(r"([\\`*_\[\]<>|~])")


# ---------------------------------------------------------------------- Markdown


def escape_markdown(text: str) -> str:
    """Write any text so that Markdown shows it as it is, on one line."""
    return _MARKDOWN.sub(r"\\\1", " ".join(text.split()).replace("&", "&amp;"))


def to_markdown(table: Table) -> str:
    """Write a table for GitHub: title, table, how to read it, numbered notes, command.

    Parameters
    ----------
    table : Table

    Returns
    -------
    str
        Ends in a line break.
    """
    common = table.common_n()
    numeric = [
        is_measured or all(isinstance(row[place], (int, float, type(None))) for row in table.rows)
        for place, is_measured in enumerate(table.measured())
    ]
    lines = [f"**{escape_markdown(table.title)}**", ""]
    lines.append(_line([_markdown_text(table, name) for name in table.header]))
    lines.append(_line(["---:" if right else "---" for right in numeric]))
    for row in table.rows:
        lines.append(_line([_markdown_value(table, value, common) for value in row]))
    if told := legend(table):
        lines += ["", escape_markdown(told)]
    if table.notes:
        lines.append("")
        lines += [f"{i}. {escape_markdown(note)}" for i, note in enumerate(table.notes, start=1)]
    if table.command:
        lines += ["", f"Made by {code_span(table.command)}"]
    return "\n".join(lines) + "\n"


def code_span(text: str) -> str:
    """Write text as Markdown code, fenced by more backticks than it has in a row."""
    flat = " ".join(text.split())
    longest = max((len(run) for run in re.findall(r"`+", flat)), default=0)
    fence = "`" * (longest + 1)
    return f"{fence} {flat} {fence}" if longest else f"{fence}{flat}{fence}"


def _line(cells: Sequence[str]) -> str:
    """Write one line of a Markdown table."""
    return f"| {' | '.join(cells)} |"


def _markdown_text(table: Table, text: str) -> str:
    """Escape a text and write the note it refers to as a raised number."""
    words, note = table.split_note(text)
    return escape_markdown(words) + ("" if note is None else f"<sup>{note}</sup>")


def _markdown_value(table: Table, value: Value, common: int | None) -> str:
    """Write one value of a Markdown table."""
    if isinstance(value, str):
        return _markdown_text(table, value)
    text = escape_markdown(value_text(value, common))
    if not isinstance(value, Cell) or not value.best:
        return text
    ours = with_error(value.mean, value.error, value.digits)
    return f"**{ours}**{text.removeprefix(ours)}"


# ---------------------------------------------------------------------- records and CSV


def to_records(
    table: Table, form: Literal["long", "wide"] = "long"
) -> list[dict[str, str | int | float | None]]:
    """Give a table as plain records with the same keys each.

    Parameters
    ----------
    table : Table
    form : {"long", "wide"}
        "long": one record per measured cell, for programs: `table`, what the row is about,
        `column`, `mean`, `standard_error`, `n`, `published`, `published_error`, `mark`, `caution`.
        A table without measured columns gives one record per row. "wide": one record per row with
        cells as they are printed, for people.

    Returns
    -------
    list of dict
        Floats are not rounded in the long form.
    """
    check_option("form", form, ("long", "wide"), owner="to_records")
    names = [table.split_note(name)[0] for name in table.header]
    if form == "wide":
        common = table.common_n()
        return [
            {
                name: value_text(value, common) if isinstance(value, Cell) else _plain(table, value)
                for name, value in zip(names, row, strict=True)
            }
            for row in table.rows
        ]
    return list(_long(table, names))


def to_csv(table: Table) -> str:
    """Write the long form of `to_records` as CSV, which pandas reads and pivots as it is.

    Parameters
    ----------
    table : Table

    Returns
    -------
    str
        With a header line, also for a table without rows; an empty cell where there is no value.
    """
    measured_columns = table.measured()
    names = [table.split_note(name)[0] for name in table.header]
    keys = _keys(names, measured_columns)
    fields = ["column", *FIELDS] if any(measured_columns) else []
    header = ["table", *keys.values(), *fields, "caution"]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(header)
    for record in to_records(table):
        writer.writerow(["" if value is None else value for value in record.values()])
    return out.getvalue()


def _keys(names: Sequence[str], is_measured: Sequence[bool]) -> dict[int, str]:
    """Name the columns that say what a row is about; one named like a field gets an underscore."""
    taken = {"table", "column", *FIELDS, "caution"}
    return {
        place: f"{name}_" if name in taken else name
        for place, (name, measured_column) in enumerate(zip(names, is_measured, strict=True))
        if not measured_column
    }


def _long(table: Table, names: Sequence[str]) -> Iterator[dict[str, str | int | float | None]]:
    """Yield the records of the long form."""
    is_measured = table.measured()
    keys = _keys(names, is_measured)
    for row in table.rows:
        about = {"table": table.name, **{keys[at]: _plain(table, row[at]) for at in keys}}
        caution: dict[str, str | int | float | None] = {"caution": table.caution or None}
        if not any(is_measured):
            yield about | caution
        for at, value in enumerate(row):
            if at in keys or value is None:
                continue
            cell = value if isinstance(value, Cell) else None
            numbers: tuple[str | int | float | None, ...] = (_plain(table, value), *[None] * 5)
            if cell is not None:
                published = cell.published, cell.published_error
                numbers = (cell.mean, cell.error, cell.n, *published, cell.mark or None)
            fields = dict(zip(FIELDS, numbers, strict=True))
            yield {**about, "column": names[at], **fields, **caution}


def _plain(table: Table, value: Value) -> str | int | float | None:
    """Give a value that is no cell, text without its reference to a note."""
    if isinstance(value, Cell):
        return value.mean
    return table.split_note(value)[0] if isinstance(value, str) else value
