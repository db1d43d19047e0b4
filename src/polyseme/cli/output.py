"""How the command prints: a table for people, JSON lines or CSV for programs.

In: records, dicts that all have the same keys, and sentences. Out: records on standard output,
sentences on standard error.
"""

from __future__ import annotations

import io
import os
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from enum import StrEnum
from typing import TYPE_CHECKING, Any, TextIO

from polyseme.base.progress import Quiet
from polyseme.base.text import counted, printable

if TYPE_CHECKING:
    from rich.text import Text

    from polyseme.feedback.verdict_log import Verdict
    from polyseme.scoring.evidence import Evidence

_HALF_WIDTH = 9  # letters of a bar on either side of zero
_MOST_IDS = 3  # that are named of the documents with one tag set
_MOST_LABELS = 5  # that are named where answers are counted
_RIGHT: dict[str, Any] = {"justify": "right"}  # a column's setting for rich


class Form(StrEnum):
    """The forms of output; `auto` is a table on a terminal and JSON lines elsewhere."""

    auto = "auto"
    table = "table"
    jsonl = "jsonl"
    csv = "csv"


@contextmanager
def kept_streams() -> Iterator[None]:
    """Make the standard streams safe to write to, and restore them at the end.

    Where one is closed (`2>&-`), the next file that is opened would take its number, and libraries
    would write messages into that file.
    """
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            with suppress(OSError):
                os.open(os.devnull, os.O_RDWR)  # takes the lowest free number, which is this one
    former_stderr = sys.stderr
    quiet_stderr: Any = Quiet(former_stderr)
    sys.stderr = quiet_stderr
    # A path that is no valid text is printed as the bytes that it has.
    reconfigure = getattr(sys.stdout, "reconfigure", None)
    if reconfigure is not None:
        with suppress(OSError, ValueError):
            reconfigure(errors="surrogateescape")
    try:
        yield
    finally:
        sys.stderr = former_stderr
        try:
            if former_stderr is not None:
                former_stderr.flush()
        except (OSError, ValueError):
            _write_nowhere(former_stderr)  # else Python fails at exit, with a code of its own


def end_output() -> None:
    """Flush standard output, whose reader may have gone."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:
        _write_nowhere(sys.stdout)
    except OSError as error:
        _write_nowhere(sys.stdout)
        say(f"polyseme: Standard output cannot be written: {error.strerror or error}.")
        raise SystemExit(1) from None


def reader_gone() -> bool:
    """Return whether the reader of standard output has gone (`| head`); then write nothing more."""
    if _is_read():
        return False
    _write_nowhere(sys.stdout)
    return True


def _is_read() -> bool:
    """Return whether somebody reads standard output; False where the system cannot tell."""
    try:
        import select

        closing_events = select.POLLERR | select.POLLHUP
        poll = select.poll()
        poll.register(sys.stdout.fileno(), select.POLLERR)
        events = poll.poll(0)
    except (AttributeError, OSError, ValueError):
        return False
    return not any(event & closing_events for _, event in events)


def _write_nowhere(stream: TextIO) -> None:
    """Redirect a stream to nowhere, so that Python reports no error at exit."""
    with suppress(AttributeError, OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())


def say(message: str) -> None:
    """Print a line for people on standard error, with control characters escaped."""
    if sys.stderr is not None:
        sys.stderr.write(f"{printable(message, allowed=chr(10))}\n")


class _SafeTerminal(io.TextIOBase):
    """Standard output where it is a terminal, with control characters escaped."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write a text with control characters escaped."""
        return self._stream.write(printable(text, allowed="\n"))


def summarize_verdicts(verdicts: Iterable[Verdict]) -> str:
    """Return how many answers there are, and to which labels; the first ones are named."""
    yes_counts = Counter[str]()
    no_counts = Counter[str]()
    for verdict in verdicts:
        counts = yes_counts if verdict.answer else no_counts
        counts[verdict.label] += 1
    labels = list(yes_counts | no_counts)
    texts = []
    for label in labels[:_MOST_LABELS]:
        texts.append(f"{label} ({yes_counts[label]} yes, {no_counts[label]} no)")
    listed = ", ".join(texts) or "none"
    n_more = len(labels) - _MOST_LABELS
    if n_more > 0:
        listed += f" and {n_more} more"
    n_answers = yes_counts.total() + no_counts.total()
    return f"{counted(n_answers, 'answer')}: {listed}"


def for_people(form: Form) -> bool:
    """Return whether output in this form is a table for people."""
    on_terminal = sys.stdout is not None and sys.stdout.isatty()
    return form == Form.table or (form == Form.auto and on_terminal)


def emit(records: Iterable[Mapping[str, Any]], form: Form, title: str = "") -> None:
    """Print records on standard output; a title stands above a table.

    JSON lines and CSV are printed one by one, as the records come; a table needs all of them.
    """
    if sys.stdout is None:
        raise ValueError("Standard output is closed; there is nowhere to print the results.")
    if not for_people(form):
        from polyseme.io.records import write_records

        stream: Any = sys.stdout
        if stream.isatty():
            stream = _SafeTerminal(stream)
        write_records(records, stream, "csv" if form == Form.csv else "jsonl")
        return
    all_records = list(records)
    names = list(all_records[0]) if all_records else []
    columns: dict[str, dict[str, Any]] = {}
    for name in names:
        are_numbers = all(isinstance(record[name], (int, float)) for record in all_records)
        justify = "right" if are_numbers else "left"
        # Long cells are folded, so that no digit is ever cut off.
        columns[name] = {"overflow": "fold", "justify": justify}
    rows = [record.values() for record in all_records]
    _print_table(title, columns, rows)


def _print_table(
    title: str, columns: Mapping[str, dict[str, Any]], rows: Sequence[Iterable[Any]]
) -> None:
    """Print a table; text in it is plain, since labels may look like rich's markup.

    Parameters
    ----------
    title : str
        May be empty.
    columns : dict of str to dict
        For each column its name, and the settings of rich's `add_column`.
    rows : sequence of iterables
        The cells of each row.
    """
    from rich import box
    from rich.console import Console
    from rich.table import Table

    title_text = _cell(title) if title else None
    table = Table(title=title_text, title_justify="left", box=box.SIMPLE_HEAD)
    for name, settings in columns.items():
        header = name.replace("_", " ")
        table.add_column(header, **settings)
    for row in rows:
        cells = map(_cell, row)
        table.add_row(*cells)
    console = Console(highlight=False)
    console.print(table)


def _cell(value: Any) -> Text:
    """Return a value as people read it: 4 digits, lists with commas, nothing for None."""
    from rich.text import Text

    if isinstance(value, Text):
        return value
    if value is None:
        text = ""
    elif isinstance(value, float):
        text = f"{value:.4g}"
    elif isinstance(value, (list, tuple)):
        text = ", ".join(map(str, value))
    else:
        text = str(value)
    return Text(printable(text))


# ---------------------------------------------------------------------- evidence


def emit_evidence(head: dict[str, Any], evidence: Evidence, form: Form) -> None:
    """Print where a label's score for an item comes from.

    As tables with bars, as one JSON record with everything, or as CSV with a row for each part.

    Parameters
    ----------
    head : dict
        The item's `id`, `row` or `file`; empty for tags alone.
    evidence : Evidence
    form : Form
    """
    if for_people(form):
        _print_parts(head, evidence)
        if evidence.neighbours:
            _print_neighbours(evidence)
    elif form == Form.csv:
        emit(_part_records(evidence), form)
    else:
        emit([head | _evidence_record(evidence)], form)


def _evidence_record(evidence: Evidence) -> dict[str, Any]:
    """Return all of the evidence as one record."""
    record: dict[str, Any] = _rounded(asdict(evidence))
    neighbours = []
    for neighbour in record["neighbours"]:
        document_ids = neighbour["document_ids"]
        fields: dict[str, Any] = {"document": neighbour["document"]}
        fields["known_as"] = document_ids[:_MOST_IDS]
        fields["times"] = len(document_ids)
        for name in ("distance", "share", "holds"):
            fields[name] = neighbour[name]
        neighbours.append(fields)
    record["neighbours"] = neighbours
    return record


def _rounded(value: Any) -> Any:
    """Return a record with all numbers rounded to six digits."""
    if isinstance(value, float):
        return round(value, 6)
    if isinstance(value, dict):
        return {name: _rounded(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_rounded(item) for item in value]
    return value


def _part_records(evidence: Evidence) -> list[dict[str, Any]]:
    """Return a record for each part of the logit, then one for their sum."""
    records: list[dict[str, Any]] = []
    for name, logit in evidence.parts():
        records.append({"part": name, "probability": None, "logit": logit, "without": None})
    # The tags follow the first two parts; by place, as a tag may be called like another part.
    for record, tag in zip(records[2:], evidence.tags, strict=False):
        record["probability"] = tag.probability
        record["without"] = tag.without
    total: dict[str, Any] = {"part": "sum", "probability": evidence.probability}
    total |= {"logit": evidence.logit, "without": None}
    records.append(total)
    rounded_records: list[dict[str, Any]] = _rounded(records)
    return rounded_records


def _print_parts(head: dict[str, Any], evidence: Evidence) -> None:
    """Print the parts of the logit with bars, then their sum."""
    title = f"why {evidence.label} ({evidence.kind}) has the probability {evidence.probability:.3f}"
    if head:
        field, value = next(iter(head.items()))
        title += f" for {value}" if field == "file" else f" for {field} {value}"
    records = _part_records(evidence)
    sizes = [abs(record["logit"]) for record in records]
    largest_size = max(sizes) or 1.0
    rows: list[list[Any]] = []
    for record in records:
        probability = record["probability"]
        logit = record["logit"]
        without = record["without"]
        # Parts of nothing are left out, such as features where there are none.
        if not logit and probability is None:
            continue
        probability_text = "" if probability is None else f"{probability:.3f}"
        without_text = "" if without is None else f"{without:+.2f}"
        logit_text = f"{logit:+.2f}"
        logit_bar = bar(logit / largest_size)
        rows.append([record["part"], probability_text, logit_text, logit_bar, without_text])
    rows.insert(-1, [""])  # an empty line before the sum
    columns: dict[str, dict[str, Any]] = {
        "part": {"overflow": "fold", "min_width": 12},
        "probability": _RIGHT,
        "logit": _RIGHT,
        "": {"no_wrap": True},
        "without": _RIGHT,
    }
    _print_table(title, columns, rows)


def bar(share: float, *, ascii_only: bool | None = None) -> Text:
    """Draw a number between -1 and 1 as a bar to the left or to the right of a line.

    `ascii_only` says whether the terminal lacks block letters; by default it is asked.
    """
    from rich.console import Console
    from rich.text import Text

    if ascii_only is None:
        ascii_only = Console().options.ascii_only
    # A full block, its right and its left half, and the line at zero.
    full, right_half, left_half, line = ("█", "▐", "▌", "│")
    if ascii_only:
        full, right_half, left_half, line = ("#", "", "", "|")
    n_halves = round(2 * _HALF_WIDTH * abs(share))
    n_full, n_single_halves = divmod(n_halves, 2)
    empty_side = " " * _HALF_WIDTH
    if share < 0:
        blocks = right_half * n_single_halves + full * n_full
        padded_blocks = blocks.rjust(_HALF_WIDTH)
        return Text.assemble((padded_blocks, "red"), (line, "dim"), empty_side)
    blocks = full * n_full + left_half * n_single_halves
    padded_blocks = blocks.ljust(_HALF_WIDTH)
    return Text.assemble(empty_side, (line, "dim"), (padded_blocks, "green"))


def _print_neighbours(evidence: Evidence) -> None:
    """Print the nearest known tag sets, with their shares of the votes."""
    title = "nearest known tag sets"
    if not evidence.known:
        title += ", which take no part in this score"
    columns: dict[str, dict[str, Any]] = {
        "distance": _RIGHT,
        "votes": _RIGHT,
        "holds it": {"no_wrap": True},
        "tag set": {"overflow": "fold"},
        "times": _RIGHT,
    }
    rows: list[list[Any]] = []
    for neighbour in evidence.neighbours:
        distance = f"{neighbour.distance:.3f}"
        votes = f"{neighbour.share:.1%}"
        holds_label = "yes" if neighbour.holds else "no"
        n_documents = len(neighbour.document_ids)
        rows.append([distance, votes, holds_label, neighbour.document, n_documents])
    _print_table(title, columns, rows)
