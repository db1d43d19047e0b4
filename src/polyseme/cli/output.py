"""How the command prints: a table for people, JSON lines or CSV for programs."""

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

_HALF = 9  # letters of a bar on either side of zero
_NAMED = 3  # documents that a known tag set names
_LABELS = 5  # labels that are named where answers are counted
_RIGHT: dict[str, Any] = {"justify": "right"}


class Form(StrEnum):
    """The forms of output."""

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
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            with suppress(OSError):
                os.open(os.devnull, os.O_RDWR)
    before = sys.stderr
    quiet: Any = Quiet(before)
    sys.stderr = quiet
    # A path is printed as the bytes that it has.
    reconfigure = getattr(sys.stdout, "reconfigure", None)
    if reconfigure is not None:
        with suppress(OSError, ValueError):
            reconfigure(errors="surrogateescape")
    try:
        yield
    finally:
        sys.stderr = before
        try:
            if before is not None:
                before.flush()
        except (OSError, ValueError):
            _write_nowhere(before)  # Python would end with a code of its own


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

        closed = select.POLLERR | select.POLLHUP
        poll = select.poll()
        poll.register(sys.stdout.fileno(), select.POLLERR)
        events = poll.poll(0)
    except (AttributeError, OSError, ValueError):
        return False
    return not any(event & closed for _, event in events)


def _write_nowhere(stream: TextIO) -> None:
    """Redirect a stream to nowhere, so that Python reports no error at exit."""
    with suppress(AttributeError, OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


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
    yes = Counter[str]()
    no = Counter[str]()
    for verdict in verdicts:
        counts = yes if verdict.answer else no
        counts[verdict.label] += 1
    labels = list(yes | no)
    texts = []
    for label in labels[:_LABELS]:
        texts.append(f"{label} ({yes[label]} yes, {no[label]} no)")
    listed = ", ".join(texts) or "none"
    n_more = len(labels) - _LABELS
    if n_more > 0:
        listed += f" and {n_more} more"
    n_answers = yes.total() + no.total()
    return f"{counted(n_answers, 'answer')}: {listed}"


def for_people(form: Form) -> bool:
    """Return whether output in this form is a table for people."""
    on_terminal = sys.stdout is not None and sys.stdout.isatty()
    return form == Form.table or (form == Form.auto and on_terminal)


def emit(records: Iterable[Mapping[str, Any]], form: Form, title: str = "") -> None:
    """Print records, all with the same keys, on standard output; a title stands above a table."""
    if sys.stdout is None:
        raise ValueError("Standard output is closed; there is nowhere to print the results.")
    if not for_people(form):
        from polyseme.io.records import write_records

        stream: Any = sys.stdout
        if stream.isatty():
            stream = _SafeTerminal(stream)
        write_records(records, stream, "csv" if form == Form.csv else "jsonl")
        return
    rows = list(records)
    columns: dict[str, dict[str, Any]] = {}
    for name in rows[0] if rows else ():
        are_numbers = all(isinstance(row[name], (int, float)) for row in rows)
        # Folded, so that no digit is ever cut off.
        columns[name] = {"overflow": "fold", "justify": "right" if are_numbers else "left"}
    _print_table(title, columns, [row.values() for row in rows])


def _print_table(
    title: str, columns: Mapping[str, dict[str, Any]], rows: Sequence[Iterable[Any]]
) -> None:
    """Print a table; text in it is plain, since labels may look like rich's markup."""
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
    """Write one value for people."""
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


def emit_evidence(item: dict[str, Any], evidence: Evidence, form: Form) -> None:
    """Print where a label's score for an item, a row or a file, comes from.

    As tables with bars, as one JSON record with everything, or as CSV with a row for each part.
    """
    if for_people(form):
        _show_parts(item, evidence)
        if evidence.neighbours:
            _show_neighbours(evidence)
    elif form == Form.csv:
        emit(_parts(evidence), form)
    else:
        emit([item | _record(evidence)], form)


def _record(evidence: Evidence) -> dict[str, Any]:
    """Return all of the evidence as one record."""
    record: dict[str, Any] = _rounded(asdict(evidence))
    neighbours = []
    for neighbour in record["neighbours"]:
        ids = neighbour["document_ids"]
        fields: dict[str, Any] = {"document": neighbour["document"]}
        fields["known_as"] = ids[:_NAMED]
        fields["times"] = len(ids)
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


def _parts(evidence: Evidence) -> list[dict[str, Any]]:
    """Return a record for each part of the logit, then their sum."""
    records: list[dict[str, Any]] = []
    for name, logit in evidence.parts():
        records.append({"part": name, "probability": None, "logit": logit, "without": None})
    # The tags follow the first two parts; by place, as a tag may be called like another part.
    for record, tag in zip(records[2:], evidence.tags, strict=False):
        record["probability"] = tag.probability
        record["without"] = tag.without
    total = {"part": "sum", "probability": evidence.probability}
    records.append(total | {"logit": evidence.logit, "without": None})
    rounded: list[dict[str, Any]] = _rounded(records)
    return rounded


def _show_parts(item: dict[str, Any], evidence: Evidence) -> None:
    """Print the parts of the logit with bars, then their sum."""
    title = f"why {evidence.label} ({evidence.kind}) has the probability {evidence.probability:.3f}"
    if item:
        name, value = next(iter(item.items()))
        title += f" for {value}" if name == "file" else f" for {name} {value}"
    records = _parts(evidence)
    largest = max(abs(record["logit"]) for record in records) or 1.0
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
        logit_bar = bar(logit / largest)
        rows.append([record["part"], probability_text, f"{logit:+.2f}", logit_bar, without_text])
    rows.insert(-1, [""])
    columns = {"part": {"overflow": "fold", "min_width": 12}, "probability": _RIGHT}
    columns |= {"logit": _RIGHT, "": {"no_wrap": True}, "without": _RIGHT}
    _print_table(title, columns, rows)


def bar(share: float, *, ascii_only: bool | None = None) -> Text:
    """Draw a number between -1 and 1 to the left or to the right of a line."""
    from rich.console import Console
    from rich.text import Text

    if ascii_only is None:
        ascii_only = Console().options.ascii_only
    full, left, right, line = ("█", "▐", "▌", "│")
    if ascii_only:
        full, left, right, line = ("#", "", "", "|")
    n_halves = round(2 * _HALF * abs(share))
    n_full = n_halves // 2
    n_half = n_halves % 2
    empty = " " * _HALF
    if share < 0:
        blocks = left * n_half + full * n_full
        return Text.assemble((blocks.rjust(_HALF), "red"), (line, "dim"), empty)
    blocks = full * n_full + right * n_half
    return Text.assemble(empty, (line, "dim"), (blocks.ljust(_HALF), "green"))


def _show_neighbours(evidence: Evidence) -> None:
    """Print the nearest known tag sets."""
    takes_part = "" if evidence.known else ", which take no part in this score"
    columns = {"distance": _RIGHT, "votes": _RIGHT, "holds it": {"no_wrap": True}}
    columns |= {"tag set": {"overflow": "fold"}, "times": _RIGHT}
    rows = []
    for near in evidence.neighbours:
        votes = f"{near.share:.1%}"
        holds = "yes" if near.holds else "no"
        rows.append([f"{near.distance:.3f}", votes, holds, near.document, len(near.document_ids)])
    _print_table(f"nearest known tag sets{takes_part}", columns, rows)
