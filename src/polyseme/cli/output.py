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

from polyseme._progress import Quiet
from polyseme._text import counted, printable

if TYPE_CHECKING:
    from rich.text import Text

    from polyseme.evidence import Evidence
    from polyseme.verdicts import Verdict

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
    """Let nothing go wrong that was only to be told; close no door that a file could come in by.

    Where the standard streams are closed (`2>&-`), the next file that is opened would take their
    numbers, and libraries would write their remarks into it.
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
    """Write what is left of standard output; nobody may be there to read it."""
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
    """Return whether nobody reads standard output any more (`| head`); write nothing more then."""
    if _is_read():
        return False
    _write_nowhere(sys.stdout)
    return True


def _is_read() -> bool:
    """Return whether somebody reads standard output; no where it cannot be told."""
    try:
        import select

        poll = select.poll()
        poll.register(sys.stdout.fileno(), select.POLLERR)
        return not any(events & (select.POLLERR | select.POLLHUP) for _, events in poll.poll(0))
    except (AttributeError, OSError, ValueError):
        return False


def _write_nowhere(stream: TextIO) -> None:
    """Let a stream go nowhere from now on, so that nothing is said of it at the end."""
    with suppress(AttributeError, OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def say(message: str) -> None:
    """Print a line for people on standard error; what would steer their terminal is spelled out."""
    if sys.stderr is not None:
        sys.stderr.write(f"{printable(message, kept=chr(10))}\n")


class _SafeTerminal(io.TextIOBase):
    """Standard output where it is a terminal: what would steer it is spelled out."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write a text that steers nothing."""
        return self._stream.write(printable(text, kept="\n"))


def summarize_verdicts(verdicts: Iterable[Verdict]) -> str:
    """Return how many answers there are, and to which labels; the first ones are named."""
    yes = Counter[str]()
    no = Counter[str]()
    for verdict in verdicts:
        counts = yes if verdict.answer else no
        counts[verdict.label] += 1
    labels = list(yes | no)
    texts = [f"{label} ({yes[label]} yes, {no[label]} no)" for label in labels[:_LABELS]]
    listed = ", ".join(texts) or "none"
    if len(labels) > _LABELS:
        listed += f" and {len(labels) - _LABELS} more"
    return f"{counted(yes.total() + no.total(), 'answer')}: {listed}"


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

        target: Any = _SafeTerminal(sys.stdout) if sys.stdout.isatty() else sys.stdout
        write_records(records, target, "csv" if form == Form.csv else "jsonl")
        return
    listed = list(records)
    columns: dict[str, dict[str, Any]] = {}
    for name in listed[0] if listed else ():
        numbers = all(isinstance(record[name], (int, float)) for record in listed)
        # Folded, so that no digit is ever cut off.
        columns[name] = {"overflow": "fold", "justify": "right" if numbers else "left"}
    _print_table(title, columns, [record.values() for record in listed])


def _print_table(
    title: str, columns: Mapping[str, dict[str, Any]], rows: Sequence[Iterable[Any]]
) -> None:
    """Print a table; text in it is plain, since labels may look like rich's markup."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(title=_cell(title) if title else None, title_justify="left", box=box.SIMPLE_HEAD)
    for name, settings in columns.items():
        table.add_column(name.replace("_", " "), **settings)
    for row in rows:
        table.add_row(*map(_cell, row))
    Console(highlight=False).print(table)


def _cell(value: Any) -> Text:
    """Write one value for people."""
    from rich.text import Text

    if isinstance(value, Text):
        return value
    if isinstance(value, float):
        return Text(f"{value:.4g}")
    if isinstance(value, (list, tuple)):
        return Text(printable(", ".join(str(item) for item in value)))
    return Text("" if value is None else printable(str(value)))


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
    for neighbour in record["neighbours"]:
        ids, distance, share, holds = (
            neighbour.pop(name) for name in ("document_ids", "distance", "share", "holds")
        )
        neighbour |= {"known_as": ids[:_NAMED], "times": len(ids)}
        neighbour |= {"distance": distance, "share": share, "holds": holds}
    return record


def _rounded(value: Any) -> Any:
    """Return all numbers in a record six digits."""
    if isinstance(value, dict):
        return {name: _rounded(inner) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_rounded(inner) for inner in value]
    return round(value, 6) if isinstance(value, float) else value


def _parts(evidence: Evidence) -> list[dict[str, Any]]:
    """Return a record for each part of the logit, then their sum."""
    rows: list[tuple[Any, ...]] = [(name, None, logit, None) for name, logit in evidence.parts()]
    # By place: a tag may be called like another part.
    rows[2 : 2 + len(evidence.tags)] = [
        (tag.tag, tag.probability, tag.part, tag.without) for tag in evidence.tags
    ]
    rows.append(("sum", evidence.probability, evidence.logit, None))
    names = ("part", "probability", "logit", "without")
    return [dict(zip(names, _rounded(row), strict=True)) for row in rows]


def _show_parts(item: dict[str, Any], evidence: Evidence) -> None:
    """Print the parts of the logit with bars, then their sum."""
    title = f"why {evidence.label} ({evidence.kind}) has the probability {evidence.probability:.3f}"
    for name, value in list(item.items())[:1]:
        title += f" for {value}" if name == "file" else f" for {name} {value}"
    records = _parts(evidence)
    largest = max(abs(record["logit"]) for record in records) or 1.0
    rows: list[list[Any]] = []
    for record in records:
        name, probability, logit, without = record.values()
        # Parts that are nothing are left out, such as features where there are none.
        if not logit and probability is None:
            continue
        probability_text = "" if probability is None else f"{probability:.3f}"
        without_text = "" if without is None else f"{without:+.2f}"
        logit_bar = bar(logit / largest)
        rows.append([name, probability_text, f"{logit:+.2f}", logit_bar, without_text])
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
    whole, half = divmod(round(2 * _HALF * abs(share)), 2)
    full, left, right, line = ("#", "", "", "|") if ascii_only else ("█", "▐", "▌", "│")
    empty = " " * _HALF
    if share < 0:
        blocks = (left * half + full * whole).rjust(_HALF)
        return Text.assemble((blocks, "red"), (line, "dim"), empty)
    blocks = (full * whole + right * half).ljust(_HALF)
    return Text.assemble(empty, (line, "dim"), (blocks, "green"))


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
