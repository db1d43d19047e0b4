"""Verdicts in files: tables that people and other programs write, and JSON lines for them.

In: a table of items, labels and answers. Out: verdicts for a log, and the other way round.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from polyseme.base.text import shown
from polyseme.base.validation import InputError, PolysemeWarning, first_few, unknown_name
from polyseme.feedback.verdict_log import Verdict, check_count, check_verdict
from polyseme.io import PathLike
from polyseme.storage.atomic_files import check_file, replacing

# Words for yes and no in a table, in small letters.
_ANSWER_BY_WORD = dict.fromkeys(("true", "yes", "y", "1", "1.0"), True)
_ANSWER_BY_WORD |= dict.fromkeys(("false", "no", "n", "0", "0.0"), False)
_TEXT_SUFFIXES = (".jsonl", ".jsonl.gz", ".csv", ".csv.gz", ".tsv", ".tsv.gz")
# Columns about which nothing is said: those of verdicts, and the reason of a question of `ask`.
_KNOWN_COLUMNS = {*Verdict._fields, "id", "reason"}


def read_verdicts(path: PathLike) -> list[Verdict]:
    """Read verdicts from a table, without numbers.

    Parameters
    ----------
    path : str or path
        A `.jsonl`, `.csv` or `.tsv` file, gzipped or not, or a `.parquet`, `.arrow` or `.feather`
        file. Every row has `item` (or `id`), `label` and `answer` (true or false, yes or no, 1 or
        0), and may have `score`, `rank`, `model`, `who` and `time`. Rows whose `answer` is empty
        are questions that nobody has answered yet; they are skipped, with a warning.

    Raises
    ------
    InputError
        If a line cannot be read; the message has its number.
    """
    path = Path(path)
    if not path.is_file():
        raise InputError(f"There is no file at {path}; check the path.")
    verdicts: list[Verdict] = []
    columns: set[str] = set()
    n_unanswered = 0
    for where, record in _records(path):
        check_count(len(verdicts) + 1, path.name)
        columns.update(record.keys())
        is_empty = "answer" in record and record["answer"] in (None, "")
        if is_empty:
            n_unanswered += 1
            continue
        verdict = _parse_verdict(record, where)
        verdicts.append(verdict)
    if n_unanswered:
        warnings.warn(
            f"Rows of {path.name} that have no answer are passed over: {n_unanswered}.",
            PolysemeWarning,
            stacklevel=2,
        )
    unread_columns = sorted(columns - _KNOWN_COLUMNS)
    if unread_columns:
        fields = ", ".join(Verdict._fields[:-1])  # all but the number, which logs give
        warnings.warn(
            f"Column(s) of {path.name} that are not read: {first_few(unread_columns)}; verdicts "
            f"have {fields}.",
            PolysemeWarning,
            stacklevel=2,
        )
    return verdicts


def write_verdicts(verdicts: Iterable[Verdict], path: PathLike) -> None:
    """Write verdicts to a `.jsonl` file, which `read_verdicts` reads; it is replaced as a whole.

    Every line is a JSON object of a verdict's fields, without those that are None.
    """
    path = Path(path)
    if path.suffix.lower() != ".jsonl":
        raise InputError(f"Verdicts are written as .jsonl; got '{path.name}': rename it.")
    try:
        with replacing(check_file(path)) as stream:
            for place, verdict in enumerate(verdicts):
                checked = check_verdict(verdict, f"Verdict {place}")
                record: dict[str, Any] = {}
                for name, value in checked._asdict().items():
                    if value is not None:
                        record[name] = value
                text = json.dumps(record, ensure_ascii=False)
                line = f"{text}\n"
                stream.write(line.encode())
    except OSError as error:
        reason = error.strerror or error
        raise InputError(f"{path} cannot be written ({reason}); choose another path.") from error


def _records(path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the place of each row of a table, as messages name it, and its values by column.

    Lines of text are numbered from 1 as editors do, rows of Arrow files from 0.
    """
    from polyseme.io import arrow_tables, text_tables

    file_name = path.name
    lower_name = file_name.lower()
    if lower_name.endswith(_TEXT_SUFFIXES):
        for number, record in text_tables.read_records(path):
            yield f"Line {number} of {file_name}", record
    elif lower_name.endswith(arrow_tables.SUFFIXES):
        table = arrow_tables.ArrowFile(path)
        columns = list(table.kinds)
        number = 0
        for batch in table.batches(columns):
            for record in batch.to_pylist():
                yield f"Row {number} of {file_name}", record
                number += 1
    else:
        suffixes = (*_TEXT_SUFFIXES, *arrow_tables.SUFFIXES)
        suffix = path.suffix or file_name
        raise unknown_name("file suffix", suffix, suffixes)


def _parse_verdict(record: Mapping[str, Any], where: str) -> Verdict:
    """Return the values of one row, by column, as a verdict; `where` begins messages."""
    item = record.get("item")
    if item is None:
        item = record.get("id")
    if isinstance(item, int) and not isinstance(item, bool):
        item = str(item)  # as in tables of items
    cell = record.get("answer")
    word = str(cell).strip()
    answer = _ANSWER_BY_WORD.get(word.lower())
    if answer is None:
        got = shown(cell)
        raise InputError(
            f"{where} must have true or false, yes or no, 1 or 0 as `answer`; got {got}."
        )
    score = _parse_number(record.get("score"))
    rank = _parse_number(record.get("rank"))
    if isinstance(rank, float) and rank.is_integer():
        rank = int(rank)
    time = record.get("time")
    if isinstance(time, datetime):
        time = time.isoformat()
    # The cells may be of any type; `check_verdict` says what is wrong with one.
    values = (
        item,
        record.get("label"),
        answer,
        score,
        rank,
        record.get("model"),
        record.get("who"),
        time,
    )
    return check_verdict(values, where)


def _parse_number(cell: Any) -> Any:
    """Return a cell of text as a number, if it is one, and any other cell as it is."""
    if not isinstance(cell, str):
        return cell
    try:
        return float(cell)
    except ValueError:
        return cell
