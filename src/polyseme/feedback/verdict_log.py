"""Verdicts: yes or no to a label of an item, kept as events that are never changed.

In: verdicts, and vectors of the items they are about. Out: all events in order, and the verdicts
that stand. The log is an SQLite database beside a model: what was acknowledged is on disk, several
processes may append, and to undo a verdict is one more event.

Terms: *events* are verdicts and undos, *numbered* from 1 on in the order in which they came. On
each label of each item the latest verdict *stands* that was not undone. *Vectors* of items are
numbered likewise; they belong to a concept space, which its *digest* stands for. A *row* is a tuple
as SQLite returns it. The file may be a stranger's, so whatever is read is checked.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import sqlite3
import tempfile
import threading
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from polyseme.base.text import shown
from polyseme.base.validation import InputError, check_iterable, check_path
from polyseme.io import PathLike
from polyseme.storage.atomic_files import check_regular, locked, replacing
from polyseme.storage.model_file import VERDICTS_FILE, ModelFileError, check_destination

MAX_TEXT = 4096  # letters of an item's id, a label, a model or a name
MAX_VERDICTS = 10_000_000  # of a file or a batch
MAX_RANK = 2**31
_TEXT_FIELDS = ("item", "label", "model", "who")  # of a verdict
_MAX_NUMBER = 2**53  # of an event or a vector: browsers read JSON exactly up to here
_MAX_CELL_BYTES = 2**20
_WAIT_SECONDS = 30.0  # for another writer
_VECTOR_TYPE = np.dtype("<f4")  # in the file, least significant byte first
_DIGEST_BYTES = 16  # of the SHA-256 digest of a vector that are stored

# The format on disk: other tables are refused (see `_open`), and logs of users have these.
_SCHEMA = """
CREATE TABLE log (id TEXT PRIMARY KEY);
CREATE TABLE events (
    number INTEGER PRIMARY KEY,
    item TEXT, label TEXT, answer INTEGER, score REAL, rank INTEGER, model TEXT,
    who TEXT, time TEXT NOT NULL,
    undoes INTEGER REFERENCES events (number)
);
CREATE UNIQUE INDEX events_by_undone ON events (undoes) WHERE undoes IS NOT NULL;
CREATE TABLE item_vectors (
    number INTEGER PRIMARY KEY,
    space_digest TEXT NOT NULL, item TEXT NOT NULL, digest BLOB NOT NULL, vector BLOB NOT NULL
);
CREATE INDEX item_vectors_by_item ON item_vectors (space_digest, item, digest);
CREATE TABLE corrections (key BLOB PRIMARY KEY, weights BLOB NOT NULL, intercept REAL NOT NULL);
"""
# A commit is on disk when it returns (FULL), and the database may come from a stranger.
_PRAGMAS = (
    "synchronous = FULL",
    "foreign_keys = ON",
    "trusted_schema = OFF",
    "journal_size_limit = 16777216",
)
# The fields of `Verdict` but the number, in their order.
_VERDICT_COLUMNS = "item, label, answer, score, rank, model, who, time"
_N_VERDICT_COLUMNS = 8
_EVENT_COLUMNS = f"number, {_VERDICT_COLUMNS}, undoes"
_INSERT_EVENT = f"INSERT INTO events ({_EVENT_COLUMNS}) VALUES (?,?,?,?,?,?,?,?,?,?)"
_INSERT_VECTOR = (
    "INSERT INTO item_vectors (number, space_digest, item, digest, vector) VALUES (?,?,?,?,?)"
)
_SELECT_EVENTS = f"SELECT {_EVENT_COLUMNS} FROM events"
# A page of rows between two numbers; how many, so that it takes some megabytes at the most.
_PAGE = "WHERE number > ? AND number <= ? ORDER BY number LIMIT"
_EVENT_PAGE = f"{_SELECT_EVENTS} {_PAGE} 5000"
_VECTOR_PAGE = f"SELECT number, space_digest, item, digest, vector FROM item_vectors {_PAGE} 100"

Row = tuple[Any, ...]


class Verdict(NamedTuple):
    """Yes or no to a label of an item, and what was shown when it was given.

    Files, REST answers and the columns of the log have these names and this order.

    Attributes
    ----------
    item, label : str
        The item's id, or the number of its row; the label as it was called then.
    answer : bool
        True for yes.
    score, rank : float and int, optional
        The probability (0 to 1) and the place among labels (from 1 on) that were shown.
    model, who : str, optional
        The digest of the model that was asked, and the person who answered.
    time : str, optional
        In ISO 8601 and UTC; a log sets it where it is missing.
    number : int, optional
        The number of the event, which a log always sets.
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
    """The event that undoes a verdict, which is known by its number."""

    undoes: int
    who: str | None
    time: str
    number: int


class VectorKey(NamedTuple):
    """The number of an item's vector in a log, and a digest of the vector."""

    number: int
    digest: bytes


class LogPosition(NamedTuple):
    """How far a log goes, or has been read; another log has another id."""

    log_id: str  # empty without a log
    event: int  # the number of the last event, 0 for none
    vector: int  # the number of the last vector, 0 for none


class ConflictError(InputError):
    """Somebody else has meanwhile given a different answer to the same question.

    Attributes
    ----------
    standing : tuple of Verdict
        The verdicts that stand and disagree.
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
    """Verdicts as events in a file that only grows, and vectors of the items they are about.

    Several threads and processes may append to one log; each waits for the others. When `append`
    or `undo` returns, its events survive a kill of the process and a loss of power.

    Parameters
    ----------
    path : str or path, optional
        The folder of a model, in which the log is `verdicts.sqlite`, or a `.sqlite` file. Without
        a path events are kept in memory until `copy_to`. A log that does not exist yet is empty;
        the first event creates it.
    """

    def __init__(self, path: PathLike | None = None) -> None:
        self.file = None
        if path is not None:
            file = check_path(path, subject="A log of verdicts")
            is_log = file.suffix == ".sqlite" and not file.is_dir()
            self.file = file if is_log else file / VERDICTS_FILE
        self._lock = threading.RLock()
        self._connection: sqlite3.Connection | None = None
        self._opened_by: tuple[int, ...] = ()  # process, device and inode of the connection

    # ------------------------------------------------------------------ writing

    def append(
        self,
        verdicts: Iterable[Verdict | tuple[Any, ...]],
        vectors: Mapping[str, ArrayLike] | None = None,
        space_digest: str | None = None,
        seen: int | None = None,
        key: Callable[[str], Hashable] = str,
    ) -> range:
        """Append verdicts, all or none, and return their numbers.

        Parameters
        ----------
        verdicts : iterable of Verdict or tuple
            Tuples begin with item, label and answer. Their numbers, if any, are ignored.
        vectors : mapping of str to float array, shape (n_numbers,), optional
            Vectors of items in one space; the latest vector of an item counts.
        space_digest : str, optional
            The digest of that space.
        seen : int, optional
            The number of the last event that the person who answers has seen; where later verdicts
            stand and disagree, a `ConflictError` is raised. By default the latest answer counts.
        key : callable
            Returns what labels are compared by when looking for conflicts: labels may have been
            renamed since, and spelled in several ways.

        Returns
        -------
        range
            Of the verdicts, in their order. They are on disk.
        """
        check_iterable(verdicts, "verdicts")
        now = datetime.now(UTC).isoformat()
        checked: list[Verdict] = []
        for place, verdict in enumerate(verdicts):
            check_count(place + 1, "A batch of verdicts")
            checked.append(check_verdict(verdict, f"Verdict {place}", now))
        vector_rows = _vector_rows(vectors or {}, space_digest)
        if not checked and not vector_rows:
            next_number = self.count + 1
            return range(next_number, next_number)
        event_rows = [(*verdict[:_N_VERDICT_COLUMNS], None) for verdict in checked]
        with self._transaction() as connection:
            if seen is not None:
                _check_conflicts(connection, checked, seen, key)
            _insert_vectors(connection, vector_rows)
            return _insert_events(connection, event_rows)

    def undo(self, numbers: Iterable[int], author: str | None = None) -> range:
        """Undo verdicts by their numbers, all or none, and return the numbers of these events.

        Who undoes them is `author`, the field `who` of the events. The verdict that stood before on
        the same label of the same item stands again.
        """
        if author is not None:
            author = _check_text(author, "author", "An undo")
        check_iterable(numbers, "numbers of verdicts")
        n_events = self.count
        next_number = n_events + 1
        checked: dict[int, None] = {}
        for number in numbers:
            is_event = _is_whole(number) and 0 < number <= n_events
            if not is_event:
                got = shown(number)
                raise InputError(f"There is no verdict {got}; see `events` for all.")
            event = int(number)
            checked[event] = None
        if not checked:
            return range(next_number, next_number)
        now = datetime.now(UTC).isoformat()
        no_verdict = [None] * 6  # item to model
        event_rows = [(*no_verdict, author, now, event) for event in checked]
        with self._transaction() as connection:
            for event in checked:
                _check_undoable(connection, event)
            return _insert_events(connection, event_rows)

    def copy_to(self, path: PathLike) -> None:
        """Append to the log of another place what it lacks of this one, in one transaction.

        The log there must be missing, or an earlier or later copy of this one; verdicts that this
        log does not have are a `ModelFileError`. It is never replaced: others may write to it.
        """
        target = VerdictLog(path)
        position = self.position
        if target.file is None or not (position.event or position.vector):
            return
        if self.file is not None and self.file.resolve() == target.file.resolve():
            return
        # That of a model, whose folder may not be there yet.
        if target.file.name == VERDICTS_FILE:
            check_destination(target.file.parent)
            target.file.parent.mkdir(parents=True, exist_ok=True)
        with closing(target), target._transaction() as connection:
            # Events that both have must be the same, then those that only this log has follow.
            n_target = _last_number(connection, "events")
            n_common = min(n_target, position.event)
            pages = self._pages(_EVENT_PAGE, 0, n_common)
            target_pages = target._pages(_EVENT_PAGE, 0, n_common)
            for rows, target_rows in zip(pages, target_pages, strict=False):
                if rows != target_rows:
                    raise ModelFileError(
                        f"'{target.file}' has verdicts of its own, which are not among those to be "
                        "saved there; choose another path, or move that file away."
                    )
            for rows in self._pages(_EVENT_PAGE, n_target, position.event):
                connection.executemany(_INSERT_EVENT, rows)
            # Vectors may have come in another order there, so each is looked for.
            n_target_vectors = _last_number(connection, "item_vectors")
            has_vector = (
                "SELECT 1 FROM item_vectors "
                "WHERE space_digest = ? AND item = ? AND digest = ? AND number <= ?"
            )
            for rows in self._pages(_VECTOR_PAGE, 0, position.vector):
                for _, space_digest, item, digest, vector in rows:
                    values = (space_digest, item, digest, n_target_vectors)
                    found_row = connection.execute(has_vector, values).fetchone()
                    if found_row is None:
                        vector_row = (space_digest, item, digest, vector)
                        _insert_vectors(connection, [vector_row])
            query = "INSERT OR IGNORE INTO corrections (key, weights, intercept) VALUES (?, ?, ?)"
            connection.executemany(query, self.cached_corrections())

    def cache_corrections(self, corrections: Iterable[tuple[bytes, bytes, float]]) -> None:
        """Replace the cache of corrections: key, bytes of the weights and intercept of each."""
        query = "INSERT INTO corrections (key, weights, intercept) VALUES (?, ?, ?)"
        with self._transaction() as connection:
            connection.execute("DELETE FROM corrections")
            connection.executemany(query, corrections)

    # ------------------------------------------------------------------ reading

    @property
    def position(self) -> LogPosition:
        """How far the log goes now."""
        query = (
            "SELECT id, (SELECT max(number) FROM events), (SELECT max(number) FROM item_vectors) "
            "FROM log"
        )
        rows = self._read(query)
        if not rows:
            return LogPosition("", 0, 0)
        log_id, event, vector = rows[0]
        return LogPosition(str(log_id), _checked_number(event), _checked_number(vector))

    @property
    def count(self) -> int:
        """How many events there are, which is the number of the last one."""
        return self.position.event

    def events(self, after: int = 0) -> Iterator[Verdict | Undo]:
        """Yield all events in order, or those whose numbers are above `after`."""
        for rows in self._pages(_EVENT_PAGE, after, self.count):
            for row in rows:
                yield self._event(row)

    def standing(self, labels: Collection[str] | None = None) -> list[Verdict]:
        """Return the verdicts that stand now, in order, on all labels or on some.

        On each label of each item the latest stands that was not undone.
        """
        pages: Iterable[list[Row]]
        if labels is None:
            pages = self._pages(_EVENT_PAGE, 0, self.count)
        else:
            query = f"{_SELECT_EVENTS} WHERE label = ?"
            pages = [self._read(query, (label,)) for label in labels]
        undone_rows = self._read("SELECT undoes FROM events WHERE undoes > 0")
        undone_numbers = {number for (number,) in undone_rows}
        latest_rows: dict[tuple[str, str], Row] = {}
        for rows in pages:
            for row in rows:
                number, item, label, *_, undoes = row
                is_verdict = undoes is None
                if is_verdict and number not in undone_numbers:
                    latest_rows[item, label] = row
        standing_rows = sorted(latest_rows.values())  # by number
        return [self._verdict(row[:-1]) for row in standing_rows]

    def labels_of(self, numbers: Iterable[int]) -> set[str]:
        """Return the labels that verdicts of some numbers are about; undos are about none."""
        query = "SELECT label FROM events WHERE undoes IS NULL AND number = ?"
        values = [(number,) for number in numbers]
        rows = self._read_each(query, values)
        return {str(label) for (label,) in rows}

    def vector_keys(
        self, space_digest: str, items: Collection[str] | None = None, after: int = 0
    ) -> dict[str, VectorKey]:
        """Return the keys of items' latest vectors in one space, by the items' names.

        Parameters
        ----------
        space_digest : str
        items : collection of str, optional
            By default all that have a vector there.
        after : int
            Only vectors with higher numbers count.
        """
        # Those that came later are found by their numbers, others by the index of items. With
        # max(number), SQLite takes the digest from the same row.
        table = "item_vectors NOT INDEXED" if after else "item_vectors"
        condition = "space_digest = ? AND number > ?"
        query = f"SELECT item, max(number), digest FROM {table} WHERE {condition}"
        if items is None:
            rows = self._read(f"{query} GROUP BY item", (space_digest, after))
        else:
            values = [(space_digest, after, item) for item in items]
            rows = self._read_each(f"{query} AND item = ? GROUP BY item", values)
        keys: dict[str, VectorKey] = {}
        for item, number, digest in rows:
            if type(item) is not str or type(digest) is not bytes:
                raise self._unusable(f"vector {number} has no item or no digest")
            keys[item] = VectorKey(number, digest)
        return keys

    def vectors(self, numbers: Collection[int]) -> NDArray[np.float32]:
        """Return vectors by their numbers in the log, a row for each, all of one space.

        They are read-only where this machine stores numbers as the file does.
        """
        n_vectors = len(numbers)
        if not n_vectors:
            return np.zeros((0, 0), dtype=np.float32)
        query = "SELECT vector FROM item_vectors WHERE number = ?"
        values = [(number,) for number in numbers]
        rows = self._read_each(query, values)
        blobs = [blob for (blob,) in rows if type(blob) is bytes]
        sizes = {len(blob) for blob in blobs}
        if len(blobs) != n_vectors or len(sizes) > 1:
            raise self._unusable("vectors are missing or differ in length")
        (size,) = sizes
        if size == 0 or size % _VECTOR_TYPE.itemsize:
            raise self._unusable("vectors have no length")
        content = b"".join(blobs)
        flat_vectors = np.frombuffer(content, dtype=_VECTOR_TYPE)
        vectors = flat_vectors.reshape(n_vectors, -1)
        is_finite = np.isfinite(vectors)
        if not is_finite.all():
            raise self._unusable("a vector is not finite")
        return vectors.astype(np.float32, copy=False)

    def cached_corrections(self) -> list[Row]:
        """Return what `cache_corrections` wrote; the file may be a stranger's."""
        return self._read("SELECT key, weights, intercept FROM corrections")

    # ------------------------------------------------------------------ opening and closing

    def close(self) -> None:
        """Close the file; the next call opens it again. Events in memory stay."""
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
        """Return the path, and the database if it is in memory."""
        database = None
        if self.file is None and self._connection is not None:
            database = self._connection.serialize()
        return {"file": self.file, "database": database}

    def __setstate__(self, state: dict[str, Any]) -> None:
        VerdictLog.__init__(self, state["file"])
        if state["database"] is not None:
            self._connection = _connect(":memory:")
            self._connection.deserialize(state["database"])

    def _connected(self) -> sqlite3.Connection | None:
        """Return the connection to the file that is there now; None without a file."""
        if self.file is None:
            if self._connection is None:
                self._connection = _connect(":memory:")
                _create_tables(self._connection)
            return self._connection
        if not os.path.lexists(self.file):
            self.close()
            return None
        # Another file may have taken its place, and a forked process needs its own connection.
        info = self.file.lstat()
        place = (os.getpid(), info.st_dev, info.st_ino)
        if self._opened_by != place:
            self.close()
        if self._connection is None:
            self._connection = _open(self.file)
            self._opened_by = place
        return self._connection

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """Lock the log for writing; what happens inside happens as a whole or not at all."""
        with self._lock, self._translated_errors():
            if self.file is not None and not os.path.lexists(self.file):
                _create(self.file)
            connection = self._connected()
            if connection is None:
                raise FileNotFoundError("it was removed")
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise

    def _read(self, query: str, values: Row = ()) -> list[Row]:
        """Return the rows of a query; none without a log."""
        return self._read_each(query, [values])

    def _read_each(self, query: str, values: Iterable[Row]) -> list[Row]:
        """Return the rows of a query for each of several tuples of values, one after another."""
        rows: list[Row] = []
        with self._lock, self._translated_errors():
            connection = self._connected()
            if connection is not None:
                for value in values:
                    rows.extend(connection.execute(query, value))
        return rows

    def _pages(self, query: str, after: int, last: int) -> Iterator[list[Row]]:
        """Yield rows whose numbers are above `after` and up to `last`, a page at a time.

        The query is `_EVENT_PAGE` or `_VECTOR_PAGE`. No page is read before it is asked for, so
        that a slow reader blocks no writer.
        """
        while after < last:
            rows = self._read(query, (after, last))
            if not rows:
                return
            yield rows
            after = rows[-1][0]

    # ------------------------------------------------------------------ rows and errors

    def _event(self, row: Row) -> Verdict | Undo:
        """Return a row of `_SELECT_EVENTS` as an event, or raise: the file may be a stranger's."""
        *verdict_row, undoes = row
        if undoes is None:
            return self._verdict(tuple(verdict_row))
        number, *_, author, time = verdict_row
        has_times = type(undoes) is int and type(time) is str
        has_author = author is None or type(author) is str
        if not has_times or not has_author:
            raise self._unusable(f"event {number} holds values of other types")
        return Undo(undoes, author, time, number)

    def _verdict(self, row: Row) -> Verdict:
        """Return a row (number and `_VERDICT_COLUMNS`) as a verdict, or raise."""
        number, item, label, answer, *values = row
        if answer in (0, 1):
            answer = bool(answer)
        where = f"event {number}"
        fields = (item, label, answer, *values, number)
        try:
            return check_verdict(fields, where)
        except InputError as error:
            message = str(error)
            reason = message.removesuffix(".")
            raise self._unusable(reason) from error

    @contextmanager
    def _translated_errors(self) -> Iterator[None]:
        """Raise one sentence for what SQLite or the system refuses."""
        try:
            yield
        except (sqlite3.Error, OSError, UnicodeDecodeError) as error:
            if getattr(error, "sqlite_errorname", "") in ("SQLITE_BUSY", "SQLITE_LOCKED"):
                raise ModelFileError(
                    f"Another process has been writing to '{self.file}' for {_WAIT_SECONDS:g} s; "
                    "try again when it is done."
                ) from error
            raise self._unusable(str(error)) from error

    def _unusable(self, reason: str) -> ModelFileError:
        """Return the error about a log that is damaged, foreign or out of reach."""
        return ModelFileError(
            f"The verdicts at '{self.file or 'memory'}' cannot be used: {reason}. Check space and "
            "permissions, or put a copy of the file in its place."
        )


# ---------------------------------------------------------------------- SQLite


def _connect(address: str) -> sqlite3.Connection:
    """Connect to a database whose content is not trusted."""
    connection = sqlite3.connect(
        address,
        uri=True,
        timeout=_WAIT_SECONDS,
        isolation_level=None,
        check_same_thread=False,
    )
    try:
        for pragma in _PRAGMAS:
            connection.execute(f"PRAGMA {pragma}")
        connection.execute("SELECT count(*) FROM sqlite_master")  # opens the file
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _MAX_CELL_BYTES)
        connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
    except BaseException:
        connection.close()
        raise
    return connection


def _open(file: Path) -> sqlite3.Connection:
    """Open a log, for reading only where the folder cannot be written; refuse other databases."""
    wal = Path(f"{file}-wal")
    for path in (file, wal, Path(f"{file}-shm"), Path(f"{file}-journal")):
        check_regular(path, ModelFileError)
    address = file.absolute().as_uri()
    try:
        connection = _connect(f"{address}?mode=rw")
    except sqlite3.Error:
        if os.access(file.parent, os.W_OK) or (wal.exists() and wal.stat().st_size):
            raise
        connection = _connect(f"{address}?mode=ro&immutable=1")
    try:
        # Triggers, views and virtual tables would run a stranger's code.
        if _tables(connection) != _expected_tables():
            raise sqlite3.DatabaseError("it is no log of polyseme")
    except BaseException:
        connection.close()
        raise
    return connection


def _create(file: Path) -> None:
    """Create an empty log; it appears as a whole, whoever else creates it at the same time."""
    if not file.parent.is_dir():
        raise ModelFileError(
            f"There is no folder at '{file.parent}' for verdicts; save the model there first."
        )
    with tempfile.TemporaryDirectory() as folder:
        draft = Path(folder) / VERDICTS_FILE
        with closing(sqlite3.connect(draft)) as connection:
            connection.execute("PRAGMA journal_mode = WAL")
            _create_tables(connection)
        database = draft.read_bytes()
    with locked(file.parent, _WAIT_SECONDS, ModelFileError):
        if not os.path.lexists(file):
            with replacing(file) as stream:
                stream.write(database)


def _create_tables(connection: sqlite3.Connection) -> None:
    """Create the tables of a log, with a random id."""
    connection.executescript(_SCHEMA)
    connection.execute("INSERT INTO log (id) VALUES (?)", (secrets.token_hex(16),))
    connection.commit()


def _tables(connection: sqlite3.Connection) -> list[Row]:
    """Return what a database holds: a row for each column of each table, index, view or trigger.

    A hundred rows at the most: a log has fewer, and a crafted file could have any number.
    """
    query = (
        "SELECT m.type, m.name, m.rootpage > 0, c.name, c.type, c.pk, c.hidden "
        "FROM sqlite_master m LEFT JOIN pragma_table_xinfo(m.name) c "
        "ORDER BY m.name, c.cid LIMIT 100"
    )
    return connection.execute(query).fetchall()


@cache
def _expected_tables() -> list[Row]:
    """Return what a database that is a log holds; see `_tables`."""
    with closing(sqlite3.connect(":memory:")) as connection:
        _create_tables(connection)
        return _tables(connection)


def _last_number(connection: sqlite3.Connection, table: str) -> int:
    """Return the number of the last row of a table; 0 without any."""
    (number,) = connection.execute(f"SELECT max(number) FROM {table}").fetchone()
    return _checked_number(number)


def _checked_number(number: int | None) -> int:
    """Return the last number of a table, 0 for None, or raise if no other can follow."""
    if number is not None and not 0 < number < _MAX_NUMBER:
        raise ModelFileError("The numbers of a log of verdicts are out of range.")
    return number or 0


def _insert_vectors(connection: sqlite3.Connection, rows: Sequence[Row]) -> None:
    """Insert vectors behind the others, but for those that are the latest of their item already.

    Rows are as `_vector_rows` returns them: space digest, item, digest and bytes of each vector.
    """
    number = _last_number(connection, "item_vectors")
    first_of_space = "SELECT length(vector) / 4 FROM item_vectors WHERE space_digest = ? LIMIT 1"
    latest = "SELECT digest, max(number) FROM item_vectors WHERE space_digest = ? AND item = ?"
    for space_digest, item, digest, content in rows:
        n_numbers = len(content) // _VECTOR_TYPE.itemsize
        first_row = connection.execute(first_of_space, (space_digest,)).fetchone()
        if first_row not in (None, (n_numbers,)):
            raise InputError(
                f"Vectors of one space have one length; got {n_numbers} where the log has "
                f"{first_row[0]}: give another `space_digest`."
            )
        latest_digest, _ = connection.execute(latest, (space_digest, item)).fetchone()
        if latest_digest != digest:
            number += 1
            vector_row = (number, space_digest, item, digest, content)
            connection.execute(_INSERT_VECTOR, vector_row)


def _insert_events(connection: sqlite3.Connection, rows: Sequence[Row]) -> range:
    """Insert events behind the others, and return their numbers.

    Rows have `_VERDICT_COLUMNS`, and the number of the verdict that an undo undoes.
    """
    first_number = _last_number(connection, "events") + 1
    numbered_rows = [(number, *row) for number, row in enumerate(rows, start=first_number)]
    connection.executemany(_INSERT_EVENT, numbered_rows)
    return range(first_number, first_number + len(rows))


def _check_conflicts(
    connection: sqlite3.Connection,
    verdicts: Iterable[Verdict],
    seen: int,
    key: Callable[[str], Hashable],
) -> None:
    """Raise if verdicts after the event `seen` stand and disagree with new ones.

    Labels are compared by `key`; see `VerdictLog.append`.
    """
    query = (
        f"SELECT {_VERDICT_COLUMNS}, number FROM events "
        "WHERE number > ?1 AND undoes IS NULL "
        "AND number NOT IN (SELECT undoes FROM events WHERE undoes > ?1) ORDER BY number"
    )
    last_seen = min(seen, _MAX_NUMBER)
    latest: dict[tuple[str, Hashable], Verdict] = {}
    for row in connection.execute(query, (last_seen,)):
        verdict = Verdict(*row)
        answer = bool(verdict.answer)
        label_key = key(verdict.label)
        latest[verdict.item, label_key] = verdict._replace(answer=answer)
    conflicts: list[Verdict] = []
    for verdict in verdicts:
        label_key = key(verdict.label)
        standing = latest.get((verdict.item, label_key))
        if standing is not None and standing.answer != verdict.answer:
            conflict = standing._replace(label=verdict.label)  # by its present name
            conflicts.append(conflict)
    if conflicts:
        raise ConflictError(conflicts)


def _check_undoable(connection: sqlite3.Connection, number: int) -> None:
    """Raise if an event is an undo, or was undone."""
    query = "SELECT number, undoes FROM events WHERE number = ?1 AND undoes > 0 OR undoes = ?1"
    for event, undone in connection.execute(query, (number,)):
        if event == number:
            raise InputError(
                f"Event {number} undid verdict {undone} and cannot be undone; append that verdict "
                "again."
            )
        raise InputError(f"Verdict {number} was undone already, by event {event}.")


# ---------------------------------------------------------------------- values


def check_verdict(
    verdict: Verdict | tuple[Any, ...], where: str, now: str | None = None
) -> Verdict:
    """Return a verdict in plain types, or raise.

    Parameters
    ----------
    verdict : Verdict or tuple
        Item, label and answer at least, in the order of `Verdict`; of any types.
    where : str
        Begins the message, such as "Verdict 3".
    now : str, optional
        The time of a verdict that has none.
    """
    is_tuple = isinstance(verdict, (tuple, list))
    if not is_tuple or not 3 <= len(verdict) <= len(Verdict._fields):
        raise InputError(
            f"{where} must be a `Verdict` or a tuple (item, label, answer); got {shown(verdict)}."
        )
    values: Row = tuple(verdict)
    fields = Verdict(*values)
    if not isinstance(fields.answer, (bool, np.bool_)):
        got = shown(fields.answer)
        raise InputError(f"{where} must have True or False as `answer`; got {got}.")
    texts: dict[str, Any] = {}
    for name in _TEXT_FIELDS:
        text = getattr(fields, name)
        if text is not None or name in ("item", "label"):
            texts[name] = _check_text(text, name, where)
    time = now
    if fields.time is not None:
        time = _check_time(fields.time, where)
    return fields._replace(
        answer=bool(fields.answer),
        score=_check_score(fields.score, where),
        rank=_check_rank(fields.rank, where),
        time=time,
        **texts,
    )


def check_count(count: int, subject: str) -> None:
    """Raise if a batch or a file holds too many verdicts."""
    if count > MAX_VERDICTS:
        raise InputError(f"{subject} may hold {MAX_VERDICTS:,} at most; cut it into several.")


def _check_score(score: Any, where: str) -> float | None:
    """Return a probability as plain float, or raise."""
    if score is None:
        return None
    is_number = isinstance(score, (int, float, np.number)) and not isinstance(score, bool)
    if is_number and 0 <= score <= 1:
        probability = float(score)
        return probability + 0.0  # -0.0 becomes 0.0: SQLite has no negative zero
    got = shown(score)
    raise InputError(f"{where} must have a probability from 0 to 1 as `score`; got {got}.")


def _check_rank(rank: Any, where: str) -> int | None:
    """Return a rank as plain int, or raise."""
    if rank is None:
        return None
    if _is_whole(rank) and 1 <= rank <= MAX_RANK:
        return int(rank)
    got = shown(rank)
    raise InputError(f"{where} must have a whole number from 1 on as `rank`; got {got}.")


def _check_text(value: object, name: str, where: str) -> str:
    """Return a text as plain str, or raise if it cannot be stored."""
    if isinstance(value, str):
        has_length = 0 < len(value) <= MAX_TEXT
        if has_length and "\0" not in value:
            with suppress(UnicodeEncodeError):  # half of a surrogate pair
                value.encode()
                return str(value)
    got = shown(value)
    raise InputError(f"{where} must have text of 1 to {MAX_TEXT:,} letters as `{name}`; got {got}.")


def _check_time(time: object, where: str) -> str:
    """Return a time in UTC, or raise."""
    with suppress(TypeError, ValueError, OverflowError):
        moment = datetime.fromisoformat(time)  # type: ignore[arg-type]  # TypeError is handled
        if moment.tzinfo == UTC:
            return str(time)
        if moment.tzinfo is not None:
            return moment.astimezone(UTC).isoformat()
    raise InputError(
        f"{where} must have an ISO 8601 time with its zone, such as 2026-01-31T12:00:00Z, as "
        f"`time`; got {shown(time)}."
    )


def _vector_rows(vectors: Mapping[str, ArrayLike], space_digest: str | None) -> list[Row]:
    """Return rows of vectors: space digest, item, digest and bytes of each; or raise.

    Vectors (n_numbers,) are by item, as many finite numbers for each. Bytes are float32 as the file
    stores it, and digests are of these.
    """
    if not vectors:
        return []
    _check_text(space_digest, "space_digest", "An append with vectors")
    arrays = list(vectors.values())
    try:
        with np.errstate(over="ignore"):
            table = np.array(arrays, dtype=_VECTOR_TYPE)
    except (TypeError, ValueError):
        table = np.empty(0, dtype=_VECTOR_TYPE)
    has_rows = table.ndim == 2 and 0 < table[0].nbytes < _MAX_CELL_BYTES
    if not has_rows or not np.isfinite(table).all():
        raise InputError("Vectors of one space must be finite numbers, as many for each item.")
    rows: list[Row] = []
    for item, vector in zip(vectors, table, strict=True):
        name = _check_text(item, "item", "A vector")
        content = vector.tobytes()
        sha256 = hashlib.sha256(content)
        digest = sha256.digest()
        row = (space_digest, name, digest[:_DIGEST_BYTES], content)
        rows.append(row)
    return rows


def _is_whole(value: object) -> bool:
    """Whether a value is a whole number, but no bool."""
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)
