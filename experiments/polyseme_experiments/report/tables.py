"""Cells and tables of the report, and their text: for people, Markdown, CSV and plain records.

In: the values of each trial. Out: `Cell` and `Table` records, and text.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from polyseme.base.validation import InputError
from polyseme_experiments.report.statistics import ABOVE, ALPHA, BELOW, mean_and_error, measured

NOTHING = "\u2013"  # an en dash
FIELDS = ("mean", "standard_error", "n", "published", "published_error", "mark")

_MARKDOWN = re.compile(r"([\\`*_\[\]<>|~])")


@dataclass(frozen=True)
class Cell:
    """One measured value."""

    mean: float | None  # over the trials; None where nothing was measured
    error: float | None  # standard error of the mean; None for fewer than two trials
    n: int  # trials
    published: float | None = None
    published_error: float | None = None
    mark: str = ""  # significantly `ABOVE` or `BELOW` the table's reference method
    best: bool = False
    digits: int = 2

    @classmethod
    def of(
        cls,
        values: Sequence[float | None],
        published: tuple[float | None, float | None] | float | None = None,
        *,
        mark: str = "",
        best: bool = False,
        digits: int = 2,
    ) -> Cell:
        """Make the cell of some trials' values; None and NaN count as not measured."""
        pair = published if isinstance(published, tuple) else (published, None)
        return cls(*mean_and_error(values), len(measured(values)), *pair, mark, best, digits)


Value: TypeAlias = str | int | float | Cell | None
Row: TypeAlias = tuple[Value, ...]
Plain: TypeAlias = str | int | float | None


@dataclass(frozen=True)
class Table:
    """One table; a column with a `Cell` in any row is measured, others say what a row is about."""

    name: str  # names its file
    title: str
    header: tuple[str, ...]
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()
    command: str = ""  # makes it again
    reference: str = ""  # the method that marks compare with
    caution: str = ""  # what no figure may be read without: a sample, a stand-in

    def __post_init__(self) -> None:
        if {len(row) for row in self.rows} - {len(self.header)}:
            raise InputError(f"Each row of table '{self.name}' must have one value per column.")

    def cells(self) -> list[Cell]:
        """Return every cell, row by row."""
        cells = []
        for row in self.rows:
            for value in row:
                if isinstance(value, Cell):
                    cells.append(value)
        return cells

    def measured(self) -> list[bool]:
        """Return for each column whether it holds measured values."""
        is_measured = []
        for place in range(len(self.header)):
            has_cell = False
            for row in self.rows:
                if isinstance(row[place], Cell):
                    has_cell = True
            is_measured.append(has_cell)
        return is_measured

    def common_n(self) -> int | None:
        """Return the number of trials that most cells have; None without a measured cell."""
        counts = Counter(cell.n for cell in self.cells() if cell.mean is not None)
        return max(counts, key=lambda n: (counts[n], n)) if counts else None


def with_error(mean: float | None, error: float | None, digits: int = 2) -> str:
    """Write a mean, and its error where there is one."""
    if mean is None:
        return NOTHING
    text = f"{mean:,.{digits}f}"
    if error is None:
        return text
    # A count that is the same in every trial needs no error.
    if digits == 0 and round(error) == 0:
        return text
    return f"{text} ± {error:,.{digits}f}"


def remarks_of(cell: Cell, common_n: int | None = None) -> list[str]:
    """Return another number of trials than the table's, and the published value in brackets."""
    remarks = []
    has_other_n = common_n is not None and cell.n != common_n
    if has_other_n and cell.mean is not None:
        remarks.append(f"[n = {cell.n}]")
    if cell.published is not None:
        published = with_error(
            cell.published,
            cell.published_error,
            cell.digits,
        )
        remarks.append(f"({published})")
    return remarks


def value_text(value: Value, common_n: int | None = None) -> str:
    """Write any value: cells as `57.87 ± 0.16 ▼ (56.06 ± 0.16)`, `–` for nothing.

    A cell with another number of trials than the table's, `common_n`, says so.
    """
    if isinstance(value, Cell):
        words = [with_error(value.mean, value.error, value.digits)]
        if value.mark:
            words.append(value.mark)
        words += remarks_of(value, common_n)
        return " ".join(words)
    if value is None:
        return NOTHING
    if isinstance(value, float):
        is_finite = math.isfinite(value)
        return f"{value:,.2f}" if is_finite else NOTHING
    if isinstance(value, int):
        return f"{value:,}"
    return value


def legend(table: Table) -> str:
    """Return how to read a table's cells; empty without a measured one."""
    cells, common = table.cells(), table.common_n()
    words = []
    if common is not None:
        several = any(cell.error is not None for cell in cells)
        trials = f"{common} trial{'s' if common > 1 else ''}"
        first = f"Mean ± standard error over {trials}" if several else f"From {trials}"
        has_other_n = any(cell.n != common and cell.mean is not None for cell in cells)
        words.append(f"{first}{' where no other n is given' if has_other_n else ''}.")
    if any(cell.published is not None for cell in cells):
        words.append("In brackets: the published value.")
    if any(cell.mark for cell in cells):
        words.append(
            f"{ABOVE} {BELOW}: significantly above, below {table.reference} (paired t-test over "
            f"trials, p < {ALPHA} after Holm's correction)."
        )
    if any(cell.best for cell in cells):
        words.append("Bold: the best.")
    return " ".join(words)


def escape_markdown(text: str) -> str:
    """Write any text so that Markdown shows it as it is, on one line."""
    return _MARKDOWN.sub(r"\\\1", " ".join(text.split()).replace("&", "&amp;"))


def wide_records(table: Table) -> list[dict[str, Plain]]:
    """Return one record per row with cells as they are printed, for people."""
    common = table.common_n()
    records = []
    for row in table.rows:
        record: dict[str, Plain] = {}
        for name, value in zip(table.header, row, strict=True):
            if isinstance(value, Cell):
                record[name] = value_text(value, common)
            else:
                record[name] = value
        records.append(record)
    return records


def long_records(table: Table) -> list[dict[str, Plain]]:
    """Return one record per measured cell, or per row of a table without any, for programs.

    Their keys: `table`, what the row is about, `column`, `mean`, `standard_error`, `n`,
    `published`, `published_error`, `mark`, `caution`. Floats are not rounded.
    """
    is_measured = table.measured()
    keys = _keys(table)
    caution: dict[str, Plain] = {"caution": table.caution or None}
    records = []
    for row in table.rows:
        about: dict[str, Plain] = {"table": table.name}
        about |= {key: _plain(row[place]) for place, key in keys.items()}
        if not any(is_measured):
            records.append(about | caution)
        for place, value in enumerate(row):
            if place in keys or value is None:
                continue
            numbers: tuple[Plain, ...] = (_plain(value), *[None] * 5)
            if isinstance(value, Cell):
                published = value.published, value.published_error
                numbers = (value.mean, value.error, value.n, *published, value.mark or None)
            fields = dict(zip(FIELDS, numbers, strict=True))
            records.append({**about, "column": table.header[place], **fields, **caution})
    return records


def to_csv(table: Table) -> str:
    """Write `long_records` as CSV, which pandas reads and pivots as it is."""
    header = ["table", *_keys(table).values()]
    if any(table.measured()):
        header += ["column", *FIELDS]
    header.append("caution")
    out = io.StringIO()
    writer = csv.DictWriter(out, header, lineterminator="\n")
    writer.writeheader()
    writer.writerows(long_records(table))
    return out.getvalue()


def _keys(table: Table) -> dict[int, str]:
    """Name the columns that say what a row is about; one named like a field gets an underscore."""
    field_names = {"table", "column", *FIELDS, "caution"}
    is_measured = table.measured()
    keys = {}
    for place, name in enumerate(table.header):
        if not is_measured[place]:
            keys[place] = f"{name}_" if name in field_names else name
    return keys


def _plain(value: Value) -> Plain:
    """Return a value without what belongs to a cell."""
    return value.mean if isinstance(value, Cell) else value
