"""The cells and tables of the report, and how their values are written for people.

In: the values of each trial. Out: `Cell` and `Table` records; `tables` turns them into files.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from polyseme._validation import InputError
from polyseme_experiments.rendering.comparisons import ABOVE, ALPHA, BELOW, mean_and_error, measured

NOTHING = "\u2013"  # an en dash

_NOTE = re.compile(r"\[\^(\d{1,3})\]$")


@dataclass(frozen=True)
class Cell:
    """One measured value.

    Attributes
    ----------
    mean : float or None
        Over the trials; None where nothing was measured.
    error : float or None
        Standard error of the mean; None for fewer than two trials.
    n : int
        Trials.
    published, published_error : float or None
        What the paper prints.
    mark : str
        `ABOVE` or `BELOW`: significantly above or below the table's reference method.
    best : bool
        Whether to print it in bold.
    digits : int
        Decimals to print.
    """

    mean: float | None
    error: float | None
    n: int
    published: float | None = None
    published_error: float | None = None
    mark: str = ""
    best: bool = False
    digits: int = 2

    @property
    def is_known(self) -> bool:
        """Whether anything was measured."""
        return self.mean is not None and math.isfinite(self.mean)

    @classmethod
    def of(
        cls,
        values: Sequence[float | None],
        published: float | tuple[float | None, float | None] | None = None,
        *,
        mark: str = "",
        best: bool = False,
        digits: int = 2,
    ) -> Cell:
        """Make the cell of the values of some trials.

        Parameters
        ----------
        values : sequence of float or None
            One per trial; None and NaN count as not measured.
        published : float, pair of float or None, optional
            The published mean, alone or with its standard error.
        mark : str
            As in the class.
        best : bool
            As in the class.
        digits : int
            As in the class.

        Returns
        -------
        Cell
        """
        mean, error = mean_and_error(values)
        pair = published if isinstance(published, tuple) else (published, None)
        known = len(measured(values))
        return cls(mean if known else None, error, known, *pair, mark, best, digits)


Value: TypeAlias = str | int | float | Cell | None


@dataclass(frozen=True)
class Table:
    """One table of the report.

    A column with a `Cell` in any row is measured; all others say what a row is about. Text in the
    header or a row that ends in `[^1]` refers to the first note.

    Attributes
    ----------
    name : str
        Short and unique, "fig9"; names its file.
    title : str
        Stands above it.
    header : tuple of str
        One name per column, no name twice.
    rows : tuple of tuples
        As many values each as the header has names.
    notes : tuple of str
        Footnotes: departures from the paper, stand-ins.
    command : str
        What makes it again.
    reference : str
        The method that the marks compare with.
    caution : str
        What no figure may be read without, in a few words: a sample, a stand-in.
    """

    name: str
    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[Value, ...], ...]
    notes: tuple[str, ...] = ()
    command: str = ""
    reference: str = "polyseme"
    caution: str = ""

    def __post_init__(self) -> None:
        if len(set(self.header)) < len(self.header):
            raise InputError(f"The header of table '{self.name}' has a name twice; rename one.")
        for number, row in enumerate(self.rows, start=1):
            if len(row) != len(self.header):
                raise InputError(
                    f"Row {number} of table '{self.name}' has {len(row)} values but the header "
                    f"has {len(self.header)} names; give one value per name."
                )

    def cells(self) -> list[Cell]:
        """Give every cell, row by row."""
        return [value for row in self.rows for value in row if isinstance(value, Cell)]

    def measured(self) -> list[bool]:
        """Say for each column whether it holds measured values."""
        return [
            any(isinstance(row[place], Cell) for row in self.rows)
            for place in range(len(self.header))
        ]

    def common_n(self) -> int | None:
        """Give the number of trials that most cells have; None without a measured cell."""
        counts = Counter(cell.n for cell in self.cells() if cell.is_known)
        return max(counts, key=lambda n: (counts[n], n)) if counts else None

    def split_note(self, text: str) -> tuple[str, int | None]:
        """Part a text from the number of the note it refers to, None without one."""
        found = _NOTE.search(text)
        if found is None or not 1 <= int(found[1]) <= len(self.notes):
            return text, None
        return text[: found.start()].rstrip(), int(found[1])


# ---------------------------------------------------------------------- words


def cell_text(cell: Cell, common_n: int | None = None) -> str:
    """Write a cell as `57.87 ± 0.16 (56.06 ± 0.16)`.

    Parameters
    ----------
    cell : Cell
    common_n : int, optional
        The table's number of trials; a cell with another number says so.

    Returns
    -------
    str
    """
    words = [with_error(cell.mean, cell.error, cell.digits)]
    if cell.mark:
        words.append(cell.mark)
    if cell.is_known and common_n not in (None, cell.n):
        words.append(f"[n = {cell.n}]")
    if cell.published is not None:
        published = with_error(cell.published, cell.published_error, cell.digits)
        words.append(f"({published})")
    return " ".join(words)


def value_text(value: Value, common_n: int | None = None) -> str:
    """Write any value of a table.

    Parameters
    ----------
    value : str, int, float, Cell or None
    common_n : int, optional
        As in `cell_text`.

    Returns
    -------
    str
        Floats with two decimals, thousands parted, `–` for nothing.
    """
    if isinstance(value, Cell):
        return cell_text(value, common_n)
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return NOTHING
    if isinstance(value, float):
        return f"{value:,.2f}"
    return f"{value:,}" if isinstance(value, int) else value


def legend(table: Table) -> str:
    """Say how to read a table's cells, as far as it has such; empty without a measured one."""
    cells = table.cells()
    common = table.common_n()
    words = []
    if common is not None:
        several = any(cell.error is not None for cell in cells)
        trials = f"{common} trial{'s' if common > 1 else ''}"
        first = f"Mean ± standard error over {trials}" if several else f"From {trials}"
        other = any(cell.n != common and cell.is_known for cell in cells)
        words.append(f"{first}{' where no other n is given' if other else ''}.")
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


def with_error(mean: float | None, error: float | None, digits: int = 2) -> str:
    """Write a mean, and its error where there is one."""
    if mean is None or not math.isfinite(mean):
        return NOTHING
    words = f"{mean:,.{digits}f}"
    # A count that is the same in every trial needs no error.
    if error is None or (digits == 0 and round(error) == 0):
        return words
    return f"{words} ± {error:,.{digits}f}"
