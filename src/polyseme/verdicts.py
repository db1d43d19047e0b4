"""Verdicts: yes or no to a label of an item, kept as events that are never changed.

In: verdicts, one by one, in batches or from files, and the codes of the items they are about.
Out: all events in order, and the verdicts that stand. The events lie in SQLite beside the arrays of
a model: what was acknowledged is on disk, and to undo is one more event.
"""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
import tempfile
import threading
import warnings
import weakref
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, Self, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from polyseme._text import shown
from polyseme._validation import (
    InputError,
    PolysemeWarning,
    check_iterable,
    check_path,
    first_few,
    unknown_name,
)
from polyseme.io import PathLike, locked, replacing
from polyseme.io.folders import check_file, check_regular
from polyseme.persistence import VERDICTS, ModelFileError, check_destination, make_folder

MAX_TEXT = 4096  # letters of an item's id, a label, a model or a name
MAX_CODE = 2**16  # numbers of an item's code
MAX_VERDICTS = 10_000_000  # of a file or a batch
MAX_RANK = 2**31
_WAIT_SECONDS = 30.0  # for another writer
_CHECKED_BYTES = 2**26  # a larger database is checked where it is read, and by `verify`
_PAGE = 5000  # rows that are read at a time
_APPLICATION, _VERSION = 0x706F6C79, 1  # "poly", and the form of the tables
_ANSWERS = dict.fromkeys(("true", "yes", "y", "1", "1.0"), True)
_ANSWERS |= dict.fromkeys(("false", "no", "n", "0", "0.0"), False)
_TEXT_SUFFIXES = (".jsonl", ".jsonl.gz", ".csv", ".csv.gz", ".tsv", ".tsv.gz")
_BUSY = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
_OUTSIDE = {sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM}
_OUTSIDE |= {sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_AUTH}

# A number is one more than the last, so that none is used again, not even by a REPLACE.
_GUARDS = "".join(
    f"""
CREATE TRIGGER {table}_no_update BEFORE UPDATE ON {table}
BEGIN SELECT RAISE(ABORT, 'events are never changed'); END;
CREATE TRIGGER {table}_no_delete BEFORE DELETE ON {table}
BEGIN SELECT RAISE(ABORT, 'events are never removed'); END;
CREATE TRIGGER {table}_in_order BEFORE INSERT ON {table}
WHEN NEW.number IS NOT (SELECT ifnull(max(number), 0) + 1 FROM {table})
BEGIN SELECT RAISE(ABORT, 'events are numbered one after the other'); END;
"""
    for table in ("events", "codes")
)
_SCHEMA = f"""
CREATE TABLE events (
    number INTEGER PRIMARY KEY, item TEXT, label TEXT, answer INTEGER, score REAL, rank INTEGER,
    model TEXT, who TEXT, time TEXT, undoes INTEGER, digest BLOB
);
CREATE INDEX undone ON events (undoes) WHERE undoes IS NOT NULL;
CREATE TABLE codes (number INTEGER PRIMARY KEY, item TEXT, space TEXT, code BLOB, digest BLOB);
CREATE INDEX coded ON codes (space, item);
{_GUARDS}
PRAGMA application_id = {_APPLICATION};
PRAGMA user_version = {_VERSION};
"""
_COLUMNS = {"events": 11, "codes": 5}
# Of every connection; the last one keeps a file small into which a large batch was written.
_SETTINGS = ["trusted_schema = OFF", "cell_size_check = ON", "synchronous = FULL"]
_SETTINGS += ["journal_size_limit = 16777216"]

# Items that are asked for at a time.
_ASKED = 500

Row = tuple[Any, ...]
T = TypeVar("T")


class Verdict(NamedTuple):
    """What somebody says about a label of an item, and what was shown when it was said.

    `model` is the digest of the model that was asked, `time` is in ISO 8601; a log sets `time`,
    where it is missing, and `number`, always.
    """

    item: str
    label: str
    answer: bool
    score: float | None = None
    rank: int | None = None
    model: str | None = None
    who: str | None = None
    time: str | None = None
    number: int | None = None


class Undo(NamedTuple):
    """The event that takes a verdict, known by its number, back."""

    undoes: int
    who: str | None
    time: str
    number: int


class ConflictError(InputError):
    """Somebody else has meanwhile given a different answer to the same question.

    Attributes
    ----------
    standing : tuple of Verdict
        The answers that stand, with which those that were given disagree.
    """

    def __init__(self, standing: Sequence[Verdict]) -> None:
        first = standing[0]
        answer = "yes" if first.answer else "no"
        by = f" by {first.who}" if first.who else ""
        super().__init__(
            f"Meanwhile {shown(first.label)} was answered {answer} for {shown(first.item)}{by}, "
            f"which was not seen; answer again with `seen` {first.number} or higher to replace it."
        )
        self.standing = tuple(standing)


class VerdictLog:
    """Verdicts as events in a file that only grows, and the codes of the items they are about.

    Parameters
    ----------
    path : str or path, optional
        The folder of a model, in which the log is `verdicts.sqlite`, or a `.sqlite` file; without
        one the events are kept in memory until `copy_to`. A log that is not there yet is empty,
        and is made by the first event.

    Notes
    -----
    Several threads and processes may append to one log; each waits for the others. Saving a model
    replaces files inside its folder and never touches the log, which is one file for as long as
    the model is there: whoever has it open during a save goes on writing to the same events.
    """

    def __init__(self, path: PathLike | None = None) -> None:
        file = None if path is None else check_path(path, what="A log of verdicts")
        if file is not None and (file.is_dir() or file.suffix != ".sqlite"):
            file = file / VERDICTS
        self.file = file
        self._lock = threading.RLock()
        self._connection: sqlite3.Connection | None = None
        self._opened: tuple[int, ...] = ()  # which file
        _LOGS.add(self)

    # ------------------------------------------------------------------ writing

    def append(
        self,
        verdicts: Iterable[Verdict | tuple[Any, ...]],
        codes: Mapping[str, ArrayLike] | None = None,
        space: str | None = None,
        seen: int | None = None,
        key: Callable[[str], Hashable] = str,
    ) -> range:
        """Add verdicts, all or none; they are on disk when this returns.

        Parameters
        ----------
        verdicts : iterable of Verdict or tuple
            Tuples begin with item, label and answer. Numbers they may have are not kept.
        codes : mapping of str to float array, shape (n_axes,), optional
            The codes of items; of several for one item the last one counts.
        space : str, optional
            The digest of the space that the codes belong to; needed with codes.
        seen : int, optional
            The number of the last event that whoever answers has seen. Without it a verdict
            replaces any other on the same label of the same item.
        key : callable
            By what labels are compared with those that were answered for since `seen`: labels may
            be renamed meanwhile, and spelled in several ways.

        Returns
        -------
        range
            The numbers of the verdicts, in order.

        Raises
        ------
        ConflictError
            Where verdicts that came after `seen` stand and say otherwise; nothing is added.
        """
        check_iterable(verdicts, "verdicts")
        now = datetime.now(UTC).isoformat()
        checked = []
        for place, given in enumerate(verdicts):
            _check_count(place + 1, "A batch of verdicts")
            checked.append(_checked(given, f"Verdict {place}", now))
        vectors = _checked_codes(codes, space)
        if not checked and not vectors:
            return range(self.count + 1, self.count + 1)
        with self._transaction() as connection:
            if seen is not None:
                _check_conflicts(connection, checked, seen, key)
            _insert_codes(connection, vectors, space)
            rows = ((*one[:2], int(one.answer), *one[3:8], None) for one in checked)
            return _insert_events(connection, rows)

    def undo(self, numbers: Iterable[int], who: str | None = None) -> range:
        """Take verdicts back by one event each, all or none; nothing is removed.

        Parameters
        ----------
        numbers : iterable of int
            Numbers of verdicts that have not been undone.
        who : str, optional
            Who does it.

        Returns
        -------
        range
            The numbers of these events.
        """
        if who is not None:
            who = _text(who, "who", "An undo")
        now = datetime.now(UTC).isoformat()
        check_iterable(numbers, "numbers of verdicts")
        wanted = list(
            dict.fromkeys(one if isinstance(one, Hashable) else shown(one) for one in numbers)
        )
        if not wanted:
            return range(self.count + 1, self.count + 1)
        if not self.count:
            raise InputError(f"There is no verdict {shown(wanted[0])}; the log is empty.")
        with self._transaction() as connection:
            for number in wanted:
                _check_undoable(connection, number)
            rows = ((None,) * 6 + (who, now, int(number)) for number in wanted)
            return _insert_events(connection, rows)

    def copy_to(self, path: PathLike) -> None:
        """Bring the log of another place up to this one, in one transaction.

        Parameters
        ----------
        path : str or path
            As in `VerdictLog`. Its log must be missing, or an earlier or later copy of this one;
            it is never replaced, so that nobody who writes to it is cut off. Codes that both have
            got since stand beside each other there.

        Raises
        ------
        ModelFileError
            When there are verdicts that this log does not have.
        """
        last = {table: number for table, (number, _) in self.heads().items()}
        target = VerdictLog(path)
        if target.file is None or not any(last.values()):
            return
        if self.file is not None and self.file.resolve() == target.file.resolve():
            return
        if target.file.name == VERDICTS:
            check_destination(target.file.parent)
            make_folder(target.file.parent)
        with closing(target), target._transaction() as connection:
            for table, number in last.items():
                held, _ = _last(connection, table)
                common = min(held, number)
                if self._digest_of(table, common) == target._digest_of(table, common):
                    marks = ", ".join("?" * _COLUMNS[table])
                    for page in self._pages(table, held, number):
                        connection.executemany(f"INSERT INTO {table} VALUES ({marks})", page)
                elif table == "codes":
                    # Somebody learned there meanwhile. The events, which come first, are the same,
                    # and codes are values: those of spaces and items without any are added.
                    for space, codes in self._codes_by_space().items():
                        known = target.coded(space)
                        missing = {item: code for item, code in codes.items() if item not in known}
                        _insert_codes(connection, missing, space)
                else:
                    raise ModelFileError(
                        f"'{target.file}' has verdicts of its own, which are not among those to be "
                        "saved there; choose another path, or move that file away."
                    )

    def _codes_by_space(self) -> dict[str, dict[str, bytes]]:
        """Return the latest code of every item, as bytes, by space."""
        found: dict[str, dict[str, bytes]] = {}
        for space, item, code in self._read("SELECT space, item, code FROM codes ORDER BY number"):
            found.setdefault(space, {})[item] = code
        return found

    # ------------------------------------------------------------------ reading

    @property
    def count(self) -> int:
        """How many events there are, which is the number of the last one."""
        return self._last("events")[0]

    def head(self) -> tuple[int, str]:
        """Return the number and the digest of the last event, for `verify`; (0, "") without any."""
        number, digest = self._last("events")
        return number, digest.hex()

    def events(self, after: int = 0) -> Iterator[Verdict | Undo]:
        """Yield all events in order.

        Parameters
        ----------
        after : int
            Leave out the events up to this number.

        Yields
        ------
        Verdict or Undo
        """
        for page in self._pages("events", after, self.count):
            for row in page:
                yield self._event(row)

    def heads(self) -> dict[str, tuple[int, bytes]]:
        """Return number and digest of the last event, and of the last code; see `holds`."""
        # Codes come with events, so that those of all events are there.
        return {table: self._last(table) for table in _COLUMNS}

    def holds(self, heads: Mapping[str, tuple[int, bytes]]) -> bool:
        """Return whether all is here that was here when `heads` gave this."""
        return all(self._digest_of(table, head[0]) == head[1] for table, head in heads.items())

    def standing(self, labels: Collection[str] | None = None) -> list[Verdict]:
        """Return the verdicts that stand now, in order: not undone, and the latest on their label.

        Parameters
        ----------
        labels : collection of str, optional
            On these labels alone; by default on all.

        Returns
        -------
        list of Verdict
            One at most for each item and label, whoever gave it; where the latest was undone, the
            one before stands again.
        """
        last = self.count
        query = "SELECT undoes FROM events WHERE undoes IS NOT NULL AND number <= ?"
        undone = {number for (number,) in self._read(query, (last,))}
        pages: Iterable[list[Row]] = self._pages("events", 0, last)
        if labels is not None:
            query = "SELECT * FROM events WHERE number <= ? AND label IN ({}) ORDER BY number"
            pages = [self._read(query.format(marks), (last, *some)) for marks, some in _cut(labels)]
        latest: dict[tuple[str, str], Verdict] = {}
        for page in pages:
            for row in page:
                if row[9] is None and row[0] not in undone:
                    verdict = self._verdict(row)
                    latest[verdict.item, verdict.label] = verdict
        return sorted(latest.values(), key=lambda verdict: verdict.number or 0)

    def labels_of(self, numbers: Collection[int]) -> set[str]:
        """Return the labels that verdicts of some numbers are about."""
        query = "SELECT DISTINCT label FROM events WHERE undoes IS NULL AND number IN ({})"
        cut = [self._read(query.format(marks), some) for marks, some in _cut(numbers)]
        return {label for rows in cut for (label,) in rows}

    def coded(
        self, space: str, items: Collection[str] | None = None, after: int = 0
    ) -> dict[str, int]:
        """Return the numbers of items' codes in one space.

        Parameters
        ----------
        space : str
            The digest of the space.
        items : collection of str, optional
            Of these alone; by default of all.
        after : int
            Leave out codes up to this number.

        Returns
        -------
        dict of str to int
            The number of the latest code of each, in the order in which the items came.
        """
        # Answered by the index of items alone, or, where only the last are wanted, by numbers.
        query = "SELECT item, max(number), min(number) FROM codes WHERE {} GROUP BY item"
        where = "+space = ? AND number > ?" if after else "space = ? AND number > ?"
        cut = [("", ())] if items is None else [(f" AND item IN ({m})", s) for m, s in _cut(items)]
        rows: list[Row] = []
        for among, some in cut:
            rows += self._read(query.format(where + among), (space, after, *some))
        if any(type(item) is not str for item, _, _ in rows):
            raise self._damaged("a code is of another type")
        return {item: number for item, number, _ in sorted(rows, key=lambda row: row[2])}

    def vectors(self, numbers: Collection[int]) -> NDArray[np.float32]:
        """Return codes by their numbers, (n, n_axes), all of one space."""
        query = "SELECT number, code FROM codes WHERE number IN ({})"
        found: dict[int, Any] = {}
        for marks, some in _cut(numbers):
            found.update(self._read(query.format(marks), some))
        rows: list[Any] = [found.get(number) for number in numbers]
        if any(type(row) is not bytes for row in rows):
            raise self._damaged("a code is missing or of another type")
        sizes = {len(row) for row in rows}
        if len(sizes) > 1 or any(size % 4 or not size for size in sizes):
            raise self._damaged("codes of one space differ in length")
        data = np.frombuffer(b"".join(rows), dtype="<f4").astype(np.float32, copy=False)
        if not np.isfinite(data).all():
            raise self._damaged("a code holds what is no number")
        return data.reshape(len(rows), -1) if rows else data.reshape(0, 0)

    def codes(
        self, space: str, items: Collection[str] | None = None
    ) -> dict[str, NDArray[np.float32]]:
        """Return the codes of items in one space; for parameters see `coded`.

        Returns
        -------
        dict of str to float32 array, shape (n_axes,)
            In the order in which the items came; they are rows of one array.
        """
        numbers = self.coded(space, items)
        return dict(zip(numbers, self.vectors(numbers.values()), strict=True))

    def code_digest(self, number: int) -> bytes:
        """Return the digest of a code, in which all codes before it have a part."""
        digest = self._digest_of("codes", number)
        if type(digest) is not bytes:
            raise self._damaged(f"code {number} is missing")
        return digest

    def verify(self, head: tuple[int, str] | None = None) -> None:
        """Check every event and code against the chain of digests.

        A change, a removal or an addition by anything but a log is noticed. This does not prove
        who wrote the log: somebody may have written a whole one anew.

        Parameters
        ----------
        head : (int, str), optional
            What `head` gave earlier: a log that ends before it, or holds something else there, is
            refused, too.

        Raises
        ------
        ModelFileError
            When an event is not as it was written; the message has its number.
        """
        self._check_pages()
        for table in ("events", "codes"):
            last, digest = self._last(table)[0], b""
            number = 0
            for page in self._pages(table, 0, last):
                for row in page:
                    number += 1
                    digest = _digest(digest, row[:-1])
                    if row[0] != number or row[-1] != digest:
                        what = "event" if table == "events" else "code"
                        raise self._damaged(f"{what} {number} is not as it was written")
                    if table == "events":
                        self._event(row)
        if head is not None and self._digest_of("events", head[0]) != bytes.fromhex(head[1]):
            raise self._damaged(f"event {head[0]} is missing or not the one that was learned")

    def close(self) -> None:
        """Let go of the file; the next call opens it again. Events in memory stay."""
        with self._lock:
            if self.file is not None and self._connection is not None:
                self._connection.close()
                self._connection = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_connection", None) is not None:
            self.close()

    def __repr__(self) -> str:
        """Return where it is and how many events it has."""
        return f"VerdictLog({str(self.file) if self.file else 'in memory'}: {self.count} events)"

    def __getstate__(self) -> dict[str, Any]:
        """Return the place of the log, and what is kept in memory alone."""
        held = {}
        if self.file is None:
            held = {table: self._read(f"SELECT * FROM {table}") for table in _COLUMNS}
        return {"file": self.file, "held": held}

    def __setstate__(self, state: dict[str, Any]) -> None:
        VerdictLog.__init__(self, state["file"])
        for table, rows in state["held"].items():
            marks = ", ".join("?" * _COLUMNS[table])
            with self._transaction() as connection:
                connection.executemany(f"INSERT INTO {table} VALUES ({marks})", rows)

    # ------------------------------------------------------------------ the database

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """Hold the log for writing; what happens inside happens whole or not at all."""
        with self._lock, self._explained():
            if self.file is not None and not os.path.lexists(self.file):
                _create(self.file)
            connection = self._connected()
            assert connection is not None
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise

    def _read(self, query: str, values: Row = ()) -> list[Row]:
        """Return the rows of a query; none where there is no log."""
        with self._lock, self._explained():
            connection = self._connected()
            return [] if connection is None else connection.execute(query, values).fetchall()

    def _pages(self, table: str, after: int, last: int) -> Iterator[list[Row]]:
        """Yield rows by number, some at a time, so that no reader holds up a writer."""
        query = f"SELECT * FROM {table} WHERE number > ? AND number <= ? ORDER BY number LIMIT ?"
        while after < last:
            page = self._read(query, (after, last, _PAGE))
            if not page:
                raise self._damaged(f"nothing follows number {after} of {last}")
            yield page
            after = page[-1][0]

    def _last(self, table: str) -> tuple[int, bytes]:
        """Return number and digest of the last row; (0, b"") without any."""
        with self._lock, self._explained():
            connection = self._connected()
            return (0, b"") if connection is None else _last(connection, table)

    def _digest_of(self, table: str, number: int) -> object:
        """Return the digest of one row; b"" before the first, None where it is missing."""
        found = self._read(f"SELECT digest FROM {table} WHERE number = ?", (number,))
        return found[0][0] if found else (None if number else b"")

    def _connected(self) -> sqlite3.Connection | None:
        """Return the connection to the file that is there now; None without one."""
        if self.file is None:
            if self._connection is None:
                self._connection = _connect(":memory:")
                self._connection.executescript(_SCHEMA)
            return self._connection
        try:
            info = self.file.lstat()
        except (FileNotFoundError, NotADirectoryError):
            self.close()
            return None
        place = (info.st_dev, info.st_ino)
        if self._connection is not None and self._opened != place:
            self.close()  # another file has taken its place
        if self._connection is None:
            _check_files(self.file)
            connection = self._open(self.file)
            self._connection, self._opened = connection, place
            try:
                self._check_schema(connection)
                if info.st_size <= _CHECKED_BYTES:
                    self._check_pages()
            except BaseException:
                self.close()
                raise
        return self._connection

    def _open(self, file: Path) -> sqlite3.Connection:
        """Open a file that is there, for reading alone where nothing can be written."""
        address = file.absolute().as_uri()
        try:
            return _connect(f"{address}?mode=rw")
        except sqlite3.Error as error:
            log = Path(f"{file}-wal")
            complete = not log.exists() or not log.stat().st_size
            if _code(error) not in _OUTSIDE or os.access(file.parent, os.W_OK) or not complete:
                raise
            return _connect(f"{address}?mode=ro&immutable=1")

    def _check_schema(self, connection: sqlite3.Connection) -> None:
        """Refuse a database with other tables, views or triggers than ours."""
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if application == _APPLICATION and version > _VERSION:
            raise ModelFileError(
                f"The verdicts at '{self.file}' have the format {version}, and this version of "
                f"polyseme reads {_VERSION}; upgrade polyseme."
            )
        if _schema(connection) != _own_schema() or application != _APPLICATION:
            raise self._damaged("its tables are not those of polyseme")

    def _check_pages(self) -> None:
        """Refuse a database whose pages do not fit together."""
        found = self._read("PRAGMA quick_check(1)")
        if found and found != [("ok",)]:
            raise self._damaged(str(found[0][0]).rpartition("\n")[2])

    def _event(self, row: Row) -> Verdict | Undo:
        """Return a row of the log as an event; strangers' files may hold anything."""
        number, who, time, undoes = row[0], *row[7:10]
        if undoes is None:
            return self._verdict(row)
        if type(undoes) is int and 0 < undoes < number and type(time) is str and _maybe(who, str):
            return Undo(undoes, who, time, number)
        raise self._damaged(f"event {number} holds what no verdict can")

    def _verdict(self, row: Row) -> Verdict:
        """Return a row of the log that undoes nothing as a verdict."""
        number, item, label, answer, score, rank, model, who, time, _, _ = row
        if (
            type(item) is type(label) is type(time) is str
            and type(answer) is int
            and 0 <= answer <= 1
            and (score is None or (type(score) is float and 0 <= score <= 1))
            and _maybe(rank, int)
            and _maybe(model, str)
            and _maybe(who, str)
        ):
            return Verdict(item, label, answer == 1, score, rank, model, who, time, number)
        raise self._damaged(f"event {number} holds what no verdict can")

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Raise one sentence for what SQLite or the system refuses."""
        try:
            yield
        except sqlite3.Error as error:
            code = _code(error)
            if code in _BUSY:
                raise ModelFileError(
                    f"Another process has been writing to '{self.file}' for {_WAIT_SECONDS:g} s; "
                    "try again when it is done."
                ) from error
            if code in _OUTSIDE:
                raise ModelFileError(
                    f"The verdicts at '{self.file}' cannot be opened or written ({error}); check "
                    "permissions and space: events that were acknowledged are there."
                ) from error
            raise self._damaged(str(error)) from error
        except UnicodeDecodeError as error:  # SQLite quotes what it found
            raise self._damaged("its text is not UTF-8") from error
        except OSError as error:
            raise ModelFileError(
                f"The verdicts at '{self.file}' cannot be opened or written "
                f"({error.strerror or error}); check the path and its permissions."
            ) from error

    def _damaged(self, what: str) -> ModelFileError:
        """Build the error about a file that is not what a log wrote."""
        return ModelFileError(
            f"The verdicts at '{self.file or 'memory'}' are damaged or were changed ({what}); put "
            "a copy of the file in its place, or move it away."
        )


# ---------------------------------------------------------------------- SQLite

_LOGS: weakref.WeakSet[VerdictLog] = weakref.WeakSet()
_HELD: list[threading.RLock] = []


def _before_fork() -> None:
    """Close all logs: a child with its parent's connection writes where nobody else looks."""
    for log in list(_LOGS):
        log._lock.acquire()
        log.close()
        _HELD.append(log._lock)


def _after_fork() -> None:
    """Let parent and child go on; each opens a connection of its own."""
    while _HELD:
        _HELD.pop().release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork
    )


def _connect(address: str) -> sqlite3.Connection:
    """Connect to a database whose content is not trusted; commits are on disk when they return."""
    connection = sqlite3.connect(
        address,
        uri=True,
        timeout=_WAIT_SECONDS,
        isolation_level=None,
        check_same_thread=False,
    )
    try:
        for setting in _SETTINGS:
            connection.execute(f"PRAGMA {setting}")
        connection.execute("SELECT count(*) FROM sqlite_master")  # opens the file
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 2**20)
        connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
    except BaseException:
        connection.close()
        raise
    return connection


def _create(file: Path) -> None:
    """Put an empty log where there is none; it is never there by halves."""
    if not file.parent.is_dir():
        raise ModelFileError(
            f"There is no folder at '{file.parent}' for verdicts; save the model there first."
        )
    with locked(file.parent, _WAIT_SECONDS, ModelFileError):
        if not os.path.lexists(file):
            with replacing(file) as stream:
                stream.write(_empty_database())


@cache
def _empty_database() -> bytes:
    """Return the bytes of a log without events."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / VERDICTS
        with closing(sqlite3.connect(place)) as connection:
            connection.executescript(f"PRAGMA synchronous = OFF; BEGIN; {_SCHEMA} COMMIT;")
        data = bytearray(place.read_bytes())
    # The two versions of the file format: 2 is write-ahead logging. To switch to it later, by a
    # PRAGMA, would fail for one of two processes that open a new log at once.
    data[18:20] = b"\x02\x02"
    return bytes(data)


@cache
def _own_schema() -> list[Row]:
    """Return the tables, indices and triggers that a log has."""
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(_SCHEMA)
        return _schema(connection)


def _schema(connection: sqlite3.Connection) -> list[Row]:
    """Return what a database says its tables, indices and triggers are."""
    query = "SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY name LIMIT 100"
    return connection.execute(query).fetchall()


def _check_files(file: Path) -> None:
    """Refuse links and pipes in place of the database or of the files beside it."""
    for name in (file, *(Path(f"{file}{end}") for end in ("-wal", "-shm", "-journal"))):
        check_regular(name, ModelFileError)


def _maybe(value: object, kind: type) -> bool:
    """Return whether a value is of a kind, or missing."""
    return value is None or type(value) is kind


def _cut(values: Collection[T]) -> Iterator[tuple[str, tuple[T, ...]]]:
    """Cut values into what one query may ask for, each with its marks."""
    every = tuple(values)
    for start in range(0, len(every), _ASKED):
        some = every[start : start + _ASKED]
        yield ", ".join("?" * len(some)), some


def _code(error: sqlite3.Error) -> int:
    """Return the primary result code of an error; 0 where SQLite gave none."""
    return int(getattr(error, "sqlite_errorcode", None) or 0) & 0xFF


def _last(connection: sqlite3.Connection, table: str) -> tuple[int, bytes]:
    """Return number and digest of the last row; (0, b"") without any."""
    query = f"SELECT number, digest FROM {table} ORDER BY number DESC LIMIT 1"
    number, digest = connection.execute(query).fetchone() or (0, b"")
    if type(digest) is not bytes or not 0 <= number < 2**53:
        raise sqlite3.DatabaseError("the last event is none")
    return number, digest


def _digest(previous: bytes, row: Row) -> bytes:
    """Chain a row, without its digest, to the one before; a code is told by its bytes."""
    code = row[-1] if type(row[-1]) is bytes else b""
    told = row[:-1] if code else row
    return hashlib.sha256(previous + ascii(told).encode("ascii") + code).digest()


def _insert_events(connection: sqlite3.Connection, rows: Iterable[Row]) -> range:
    """Insert events, numbered after those that are there and chained to them."""
    last, digest = _last(connection, "events")
    number = last

    def numbered() -> Iterator[Row]:
        nonlocal number, digest
        for row in rows:
            number += 1
            digest = _digest(digest, (number, *row))
            yield (number, *row, digest)

    marks = ", ".join("?" * _COLUMNS["events"])
    connection.executemany(f"INSERT INTO events VALUES ({marks})", numbered())
    return range(last + 1, number + 1)


def _insert_codes(
    connection: sqlite3.Connection, codes: Mapping[str, bytes], space: str | None
) -> None:
    """Insert the codes that are not there yet, chained to those that are."""
    if not codes:
        return
    width = len(next(iter(codes.values())))
    query = "SELECT length(code) FROM codes WHERE space = ? LIMIT 1"
    held = connection.execute(query, (space,)).fetchone()
    if held == (None,):
        raise sqlite3.DatabaseError("a code is missing")
    if held is not None and held[0] != width:
        raise InputError(
            f"Codes of one space have one length; got {width // 4} numbers where the log has "
            f"{held[0] // 4}: give another `space`."
        )
    number, digest = _last(connection, "codes")
    known = "SELECT code FROM codes WHERE space = ? AND item = ? ORDER BY number DESC LIMIT 1"
    for item, code in codes.items():
        if connection.execute(known, (space, item)).fetchone() == (code,):
            continue
        number += 1
        digest = _digest(digest, (number, item, space, code))
        row = (number, item, space, code, digest)
        connection.execute("INSERT INTO codes VALUES (?, ?, ?, ?, ?)", row)


def _check_conflicts(
    connection: sqlite3.Connection,
    verdicts: Iterable[Verdict],
    seen: int,
    key: Callable[[str], Hashable],
) -> None:
    """Raise where verdicts that came after the event `seen` stand and disagree with new ones."""
    query = (
        "SELECT item, label, answer, score, rank, model, who, time, number FROM events "
        "WHERE number > ?1 AND undoes IS NULL AND number NOT IN "
        "(SELECT undoes FROM events WHERE undoes > ?1) ORDER BY number"
    )
    standing: dict[tuple[str, Hashable], Verdict] = {}
    for row in connection.execute(query, (min(seen, 2**62),)):
        verdict = Verdict(*row)
        standing[verdict.item, key(verdict.label)] = verdict._replace(answer=bool(verdict.answer))
    conflicts = []
    for verdict in verdicts:
        other = standing.get((verdict.item, key(verdict.label)))
        if other is not None and other.answer != verdict.answer:
            conflicts.append(other._replace(label=verdict.label))  # as it is called now
    if conflicts:
        raise ConflictError(conflicts)


def _check_undoable(connection: sqlite3.Connection, number: object) -> None:
    """Raise unless a number is that of a verdict that has not been undone."""
    wanted = 0
    if isinstance(number, (int, np.integer)) and not isinstance(number, bool):
        wanted = int(number)
    query = "SELECT undoes, (SELECT number FROM events WHERE undoes = ?1) FROM events "
    query += "WHERE number = ?1"
    found = connection.execute(query, (wanted,)).fetchone() if 0 < wanted < 2**63 else None
    if found is None:
        raise InputError(f"There is no verdict {shown(number)}; see `events` for all.")
    undoes, undone_by = found
    if undoes is not None:
        raise InputError(
            f"Event {wanted} undid verdict {undoes} and cannot be undone; append that verdict "
            "again."
        )
    if undone_by is not None:
        raise InputError(f"Verdict {wanted} was undone already, by event {undone_by}.")


# ---------------------------------------------------------------------- checks


def _checked(given: Verdict | tuple[Any, ...], where: str, now: str | None) -> Verdict:
    """Return a verdict in plain types, or say what is wrong with it."""
    if not isinstance(given, (tuple, list)) or not 3 <= len(given) <= 9:
        raise InputError(
            f"{where} must be a `Verdict` or a tuple (item, label, answer); got {shown(given)}."
        )
    values: tuple[Any, ...] = (*given, *[None] * (9 - len(given)))
    item, label, answer, score, rank, model, who, time, _ = values
    if not isinstance(answer, (bool, np.bool_)):
        raise InputError(f"{where} must have True or False as `answer`; got {shown(answer)}.")
    if score is not None:
        number = isinstance(score, (int, float, np.number)) and not isinstance(score, bool)
        if not number or not 0 <= score <= 1:
            raise InputError(
                f"{where} must have a probability from 0 to 1 as `score`; got {shown(score)}."
            )
        score = float(score) + 0.0  # SQLite knows no negative zero
    if rank is not None:
        whole = isinstance(rank, (int, np.integer)) and not isinstance(rank, bool)
        if not whole or not 1 <= rank <= MAX_RANK:
            raise InputError(
                f"{where} must have a whole number from 1 on as `rank`; got {shown(rank)}."
            )
        rank = int(rank)
    return Verdict(
        _text(item, "item", where),
        _text(label, "label", where),
        bool(answer),
        score,
        rank,
        None if model is None else _text(model, "model", where),
        None if who is None else _text(who, "who", where),
        now if time is None else _checked_time(time, where),
    )


def _text(value: object, name: str, where: str) -> str:
    """Return a text as plain str, or say that it is none that can be kept."""
    if isinstance(value, str) and 0 < len(value) <= MAX_TEXT and "\0" not in value:
        with suppress(UnicodeEncodeError):  # half of a character pair
            value.encode()
            return str(value)
    raise InputError(
        f"{where} must have text of 1 to {MAX_TEXT:,} letters as `{name}`; got {shown(value)}."
    )


def _checked_time(time: object, where: str) -> str:
    """Return a time in UTC, or say that it is none."""
    with suppress(TypeError, ValueError, OverflowError):
        moment = datetime.fromisoformat(time)  # type: ignore[arg-type]  # what is no text raises
        if moment.tzinfo is not None:
            return moment.astimezone(UTC).isoformat()
    raise InputError(
        f"{where} must have an ISO 8601 time with its zone, such as 2026-01-31T12:00:00Z, as "
        f"`time`; got {shown(time)}."
    )


def _checked_codes(codes: Mapping[str, ArrayLike] | None, space: str | None) -> dict[str, bytes]:
    """Return codes as bytes of float32, all of one length."""
    checked: dict[str, bytes] = {}
    if not codes:
        return checked
    _text(space, "space", "An append with codes")
    _check_count(len(codes), "A batch of codes")
    for item, given in codes.items():
        where = f"The code of item {shown(item)}"
        try:
            with np.errstate(over="ignore"):
                code = np.asarray(given, dtype="<f4")
        except (TypeError, ValueError):
            code = np.zeros((0, 0), dtype="<f4")
        if code.ndim != 1 or not 0 < len(code) <= MAX_CODE or not np.isfinite(code).all():
            raise InputError(f"{where} must be 1 to {MAX_CODE:,} finite numbers in a row.")
        checked[_text(item, "item", where)] = code.tobytes()
    if len({len(code) for code in checked.values()}) > 1:
        raise InputError("Codes of one space have one length; got several.")
    return checked


def _check_count(count: int, what: str) -> None:
    """Refuse more than a log should be asked to keep at once."""
    if count > MAX_VERDICTS:
        raise InputError(f"{what} may hold {MAX_VERDICTS:,} at most; cut it into several.")


# ---------------------------------------------------------------------- files


def read_verdicts(path: PathLike) -> list[Verdict]:
    """Read verdicts from a table.

    Parameters
    ----------
    path : str or path
        A `.jsonl`, `.csv` or `.tsv` file, gzipped or not, or a `.parquet`, `.arrow` or `.feather`
        file. Every row has `item` (or `id`), `label` and `answer` (true or false, yes or no, 1 or
        0), and may have `score`, `rank`, `model`, `who` and `time`. Rows whose `answer` is empty
        are questions that nobody has answered yet; they are passed over, with a warning.

    Returns
    -------
    list of Verdict
        In the order of the file, without numbers: a log gives them anew.

    Raises
    ------
    InputError
        When a line cannot be read; the message has its number.
    """
    place = Path(path)
    if not place.is_file():
        raise InputError(f"There is no file at {place}; check the path.")
    verdicts: list[Verdict] = []
    unread: set[str] = set()
    open_questions = 0
    for where, record in _records(place):
        _check_count(len(verdicts) + 1, place.name)
        unread.update(record.keys())
        if "answer" in record and record["answer"] in (None, ""):
            open_questions += 1
        else:
            verdicts.append(_parsed(record, where))
    if open_questions:
        warnings.warn(
            f"Rows of {place.name} that have no answer are passed over: {open_questions}.",
            PolysemeWarning,
            stacklevel=2,
        )
    unread -= {*Verdict._fields, "id", "reason"}  # the last one says why `ask` asked
    if unread:
        warnings.warn(
            f"Column(s) of {place.name} that are not read: {first_few(sorted(unread))}; verdicts "
            f"have {', '.join(Verdict._fields[:-1])}.",
            PolysemeWarning,
            stacklevel=2,
        )
    return verdicts


def write_verdicts(verdicts: Iterable[Verdict], path: PathLike) -> None:
    """Write verdicts as JSON lines, which `read_verdicts` reads; the file is replaced as a whole.

    Parameters
    ----------
    verdicts : iterable of Verdict
        Such as `VerdictLog.standing` gives.
    path : str or path
        A `.jsonl` file.
    """
    place = Path(path)
    if place.suffix.lower() != ".jsonl":
        raise InputError(f"Verdicts are written as .jsonl; got '{place.name}': rename it.")
    try:
        with replacing(check_file(place)) as stream:
            for number, verdict in enumerate(verdicts):
                fields = _checked(verdict, f"Verdict {number}", None)._asdict()
                fields["number"] = verdict.number
                held = {name: value for name, value in fields.items() if value is not None}
                stream.write((json.dumps(held, ensure_ascii=False) + "\n").encode())
    except OSError as error:
        raise InputError(
            f"{place} cannot be written ({error.strerror or error}); choose another path."
        ) from error


def _records(path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield where each row of a table is, and its values by column."""
    from polyseme.io import arrow_tables, text_tables

    name = path.name.lower()
    if name.endswith(_TEXT_SUFFIXES):
        for number, record in text_tables.read_records(path):
            yield f"Line {number} of {path.name}", record
    elif name.endswith(arrow_tables.SUFFIXES):
        source, number = arrow_tables.ArrowFile(path), 0
        for batch in source.batches(list(source.kinds)):
            for record in batch.to_pylist():
                yield f"Row {number} of {path.name}", record
                number += 1
    else:
        suffixes = (*_TEXT_SUFFIXES, *arrow_tables.SUFFIXES)
        raise unknown_name("file suffix", path.suffix or path.name, suffixes)


def _parsed(record: Mapping[str, Any], where: str) -> Verdict:
    """Read the values of one row as a verdict."""
    item, time = record.get("item"), record.get("time")
    item = record.get("id") if item is None else item
    if isinstance(item, int) and not isinstance(item, bool):
        item = str(item)  # as tables of items are read
    answer = _ANSWERS.get(str(record.get("answer")).strip().lower())
    if answer is None:
        raise InputError(
            f"{where} must have true or false, yes or no, 1 or 0 as `answer`; got "
            f"{shown(record.get('answer'))}."
        )
    score, rank = _number(record.get("score")), _number(record.get("rank"))
    if isinstance(rank, float) and rank.is_integer():
        rank = int(rank)
    time = time.isoformat() if isinstance(time, datetime) else time
    others = (record.get("model"), record.get("who"), time)
    return _checked((item, record.get("label"), answer, score, rank, *others), where, None)


def _number(cell: Any) -> Any:
    """Read a cell of text as a number, where it is one."""
    try:
        return float(cell) if isinstance(cell, str) else cell
    except ValueError:
        return cell
