"""From a folder of media to a folder of numbers: resumable, cached, with every file accounted for.

In: a folder of pictures or of sound. Out: a folder with their raw numbers (`features.npy` for
pictures, `segments.npy` for sound), a line for every file met (`files.jsonl`), the preprocessing
(`extraction.json`) and a cache.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import os
import re
import socket
import sqlite3
import stat
import time
import unicodedata
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple, Protocol, Self

import numpy as np

from polyseme._validation import InputError, IntArray, PolysemeWarning, first_few
from polyseme.features.base import (
    Extracted,
    MediaError,
    MediaFeatures,
    Raw,
    cause,
    quiet_decoders,
)
from polyseme.features.keywords import Keywords, keywords_of
from polyseme.io.arrays import refusing_damage
from polyseme.io.folders import (
    check_room,
    is_intact,
    kind_of,
    own_folder,
    replacing,
    sealed,
    unsealed,
    unwritable,
)

MANIFEST, LEDGER, CACHE = "extraction.json", "files.jsonl", "cache.sqlite"
FORMAT, FORMAT_VERSION = "polyseme extraction", 3
_ARRAYS = {"image": "features.npy", "audio": "segments.npy"}
_KINDS = {kind: f"numbers of {kind} files" for kind in _ARRAYS}  # as the mark says it
# Temporary files of version 2 had nothing of us in their names: they are left alone.
_LEFT_BEHIND = re.compile(r"\.[0-9a-f]{16}\.tmp")
_CACHE_FILES = [f"{CACHE}{suffix}" for suffix in ("", "-wal", "-shm", "-journal")]
_COMMIT_SECONDS = 2.0
# Locked until it is closed: two that write at a time would wait for each other anyway.
_SCHEMA = """
PRAGMA locking_mode = EXCLUSIVE;
PRAGMA journal_mode = WAL;
PRAGMA synchronous = NORMAL;
CREATE TABLE IF NOT EXISTS numbers (content BLOB, preprocessing TEXT, shape TEXT, raw BLOB,
    digest BLOB, PRIMARY KEY (content, preprocessing)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS files (path BLOB PRIMARY KEY, state TEXT, content BLOB, digest BLOB)
    WITHOUT ROWID;
"""
# What a table's digests are of. Tables of version 2 had none, and get them as they are.
_DIGESTED = {"numbers": "content, preprocessing, shape, raw", "files": "path, state, content"}
# Files that a worker of a cluster hashes, and looks at, at a time.
_HASHED_AT_ONCE, _LEAST_AT_ONCE = 64, 8
_MOST_CACHES = 16  # that are asked for files

Progress = Callable[[int, int, int], None]


class MediaFile(NamedTuple):
    """One file: its path below the folder that was named, with forward slashes, and its path."""

    id: str
    path: Path


@dataclass(frozen=True)
class Summary:
    """What became of every file; pairs are (name, reason)."""

    kind: str  # "image" or "audio"
    n_extracted: int  # files with numbers
    n_cached: int  # those of them that had been looked at before
    skipped: tuple[tuple[str, str], ...]  # media files that cannot be used
    others: tuple[tuple[str, str], ...]  # files that are no media of this kind
    n_tagged: int  # extracted files with keywords
    places: dict[str, int]  # files by where their keywords come from, such as XMP or sidecar
    unread: tuple[tuple[str, str], ...]  # extracted files some of whose keywords cannot be read
    alike: tuple[str, ...] = ()  # files whose numbers are those of a file with another content

    def __repr__(self) -> str:
        """Return how many, in a line; its methods say it in sentences."""
        done = f"{self.n_extracted} {self.kind} files, {len(self.skipped)} skipped"
        return f"Summary({done}, {self.n_tagged} with keywords)"

    def sentence(self) -> str:
        """Return it as one sentence."""
        total = self.n_extracted + len(self.skipped)
        noun = {"image": "picture", "audio": "sound"}[self.kind]
        cached = f" ({self.n_cached:,} from the cache)" if self.n_cached else ""
        others = f"{len(self.others):,} other {'file' if len(self.others) == 1 else 'files'}"
        return (
            f"{self.n_extracted:,} of {total:,} {noun} files extracted{cached}, "
            f"{len(self.skipped):,} skipped; {others} passed over"
        )

    def sameness(self) -> str:
        """Name the files that their numbers do not tell apart; empty where there are none."""
        if not self.alike:
            return ""
        noun = {"image": "pictures", "audio": "sounds"}[self.kind]
        return (
            f"{len(self.alike):,} of {self.n_extracted:,} {noun} have the same features as "
            f"another one, though their files differ ({first_few(self.alike, most=3)}): nothing "
            "can tell them apart; are they blank, or silent?"
        )

    def keywords(self) -> str:
        """Return how many files have keywords, and from where, in one sentence."""
        if not self.n_tagged:
            return "no file has keywords, inside or in a sidecar"
        listed = ", ".join(f"{place} {count:,}" for place, count in self.places.items())
        return f"{self.n_tagged:,} of {self.n_extracted:,} files have keywords ({listed})"


class Engine(Protocol):
    """Where work is done piece by piece, such as `polyseme.cluster.RayEngine`."""

    def map(self, function: Callable[[Any], Any], pieces: Sequence[Any]) -> Iterator[Any]:
        """Apply a function to pieces; yield its values in their order."""


def extract_folder(
    folder: str | Path,
    out: str | Path,
    extractor: MediaFeatures,
    *,
    progress: Progress | None = None,
    engine: Engine | None = None,
) -> Summary:
    """Extract the raw numbers of all media files of a folder.

    Interrupted, it goes on where it stopped when called again; files that were looked at before
    (by content, whatever their name is now) are not looked at again.

    Parameters
    ----------
    folder : str or Path
        Searched with all folders below it; nothing in it is changed.
    out : str or Path
        A folder to write to: new, empty, or one that an extraction was written to before, which
        carries our mark.
    extractor : MediaFeatures
        Says which files are media and how they become numbers; it need not be fitted.
    progress : callable, optional
        Called after each file with the number done, of how many, and how many were skipped.
    engine : Engine, optional
        Whose workers read files and look at them; by default this process does.

    Returns
    -------
    Summary
    """
    source, target, kind = Path(folder), Path(out), extractor.kind
    if not source.is_dir():
        raise InputError(f"There is no folder '{source}'; name the folder that holds the files.")
    if target.exists() and target.resolve() == source.resolve():
        raise InputError("Media and numbers need two folders; name another one to write to.")
    with own_folder(target, _KINDS[kind], adopt=partial(_is_former, kind=kind)):
        media, others = find_media([source], extractor.suffixes, leave_out=target)
        if not media:
            raise InputError(
                f"There is no {kind} file in '{source}' ({len(others)} other files); names must "
                f"end in {', '.join(sorted(extractor.suffixes))}."
            )
        _tell_of_damage(target)
        try:
            return _fill(source, target, extractor, media, others, engine, progress)
        except DamagedCacheError as damage:
            _warn(f"{damage} It is made again.")
            for name in _CACHE_FILES:
                (target / name).unlink(missing_ok=True)
            return _fill(source, target, extractor, media, others, engine, progress)


def _fill(
    source: Path,
    target: Path,
    extractor: MediaFeatures,
    media: Sequence[MediaFile],
    others: Sequence[tuple[str, str]],
    engine: Engine | None,
    progress: Progress | None,
) -> Summary:
    """Bring a folder of ours up to date with media files; see `extract_folder`."""
    kind = extractor.kind
    with FeatureStore(target / CACHE, extractor.digest()) as store:
        outcomes, n_cached = _extract(media, extractor, store, engine, progress)
        used = [(file, content) for file, content in outcomes if isinstance(content, bytes)]
        skipped = [(file.id, reason) for file, reason in outcomes if isinstance(reason, str)]
        if store.n_damaged:
            _warn(f"Damaged in '{store.path}', and made again: {store.n_damaged:,} entries.")
        if not used:
            raise InputError(
                f"None of the {len(media)} {kind} files in '{source}' can be used: "
                f"{first_few([f'{names}: {why}' for names, why in by_reason(skipped)], most=3)}."
            )
        try:
            found, alike = _write(target, extractor, used, skipped, others, store)
        except OSError as error:
            raise unwritable(target, error) from error
    places = Counter(place for keywords in found for place in keywords.places)
    unread = [
        (file.id, reason)
        for (file, _), keywords in zip(used, found, strict=True)
        for reason in keywords.unread
    ]
    n_tagged = sum(bool(keywords.tags) for keywords in found)
    outcomes_of = (tuple(skipped), tuple(others), n_tagged, dict(places.most_common()))
    return Summary(kind, len(used), n_cached, *outcomes_of, tuple(unread), tuple(alike))


def _warn(sentence: str) -> None:
    """Warn of what was found damaged."""
    warnings.warn(sentence, PolysemeWarning, stacklevel=4)


def by_reason(files: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return (names, reason) for each reason that (file, reason) pairs have, said once."""
    names: dict[str, list[str]] = defaultdict(list)
    for name, reason in files:
        names[reason].append(name)
    return [(first_few(listed, most=3), reason) for reason, listed in names.items()]


def _extract(
    media: Sequence[MediaFile],
    extractor: MediaFeatures,
    store: FeatureStore,
    engine: Engine | None,
    progress: Progress | None,
) -> tuple[list[tuple[MediaFile, bytes | str]], int]:
    """Fill the store; give each file's SHA-256 or why it is skipped, and how many were known."""
    outcomes: dict[MediaFile, bytes | str] = {}
    n_skipped = n_cached = 0

    def note(file: MediaFile, outcome: bytes | str) -> None:
        nonlocal n_skipped
        outcomes[file] = outcome
        n_skipped += isinstance(outcome, str)
        if progress is not None:
            progress(len(outcomes), len(media), n_skipped)

    def unknown() -> Iterator[tuple[MediaFile, str, bytes]]:
        """Yield what has to be looked at, with its state and hash."""
        nonlocal n_cached
        for file in media:
            try:
                state, content = store.hashed(file.path)
            except OSError as error:
                note(file, f"cannot be opened ({cause(error)})")
                continue
            if store.find(content) is not None:
                n_cached += 1
                note(file, content)
            else:
                yield file, state, content

    if engine is not None:
        unread = [file.path for file in media if store.noted(file.path) is None]
        hashes = map_files(engine, _hash_files, unread, _HASHED_AT_ONCE)
        for path, hashed in zip(unread, hashes, strict=True):
            if hashed is not None:
                store.note(path, *hashed)
    files, waiting = itertools.tee(unknown())
    paths = (file.path for file, _, _ in waiting)
    extracted: Iterator[Raw | MediaError] = extractor.extract(paths)
    if engine is not None:
        # Workers use one thread each, and see whole batches, as one process does.
        parameters = extractor.get_params() | {"n_jobs": 1}
        parameters |= {"random_state": None} if "random_state" in parameters else {}
        there = partial(look_at, type(extractor)(**parameters), extractor.digest())
        n_at_once = max(_LEAST_AT_ONCE, 2 * extractor.batch_size)
        extracted = map_files(engine, there, paths, n_at_once)
    for raw, (file, state, content) in zip(extracted, files, strict=True):
        if isinstance(raw, MediaError):
            note(file, str(raw))
        elif store.noted(file.path) != (state, content):
            note(file, "was changed while it was looked at; run again")
        else:
            store.put(content, raw)
            note(file, content)
    return [(file, outcomes[file]) for file in media], n_cached


def read_extraction(folder: str | Path) -> Extracted:
    """Read what `extract_folder` wrote; the numbers stay on disk until they are used.

    Every file is compared with its digest; what is damaged is refused.
    """
    path = Path(folder)
    manifest = _manifest(path)
    kind = str(manifest["kind"])
    for name in (LEDGER, _ARRAYS[kind]):
        if not is_intact(path / name, manifest["files"].get(name)):
            raise InputError(f"'{path / name}' {_damaged(path)}")
    with refusing_damage(path / _ARRAYS[kind]):
        table = np.load(path / _ARRAYS[kind], mmap_mode="r", allow_pickle=False)
    rows = _ledger(path)
    used = [row for row in rows if row["outcome"] == "extracted"]
    ends = np.cumsum([row.get("segments", 1) for row in used])
    sound = table.dtype == np.float32 and table.ndim == 2
    if not used or not sound or ends[-1] != len(table):
        raise InputError(f"'{path / LEDGER}' does not fit its numbers; it {_damaged(path)}")
    return Extracted(
        kind,
        dict(manifest["preprocessing"]),
        tuple(row["file"] for row in used),
        table if kind == "image" else np.split(table, ends[:-1]),
        tuple(tuple(row.get("tags", ())) for row in used),
        tuple((row["file"], row["reason"]) for row in rows if row["outcome"] == "skipped"),
        dict(manifest.get("parameters", {})),
    )


def _ledger(path: Path) -> list[dict[str, Any]]:
    """Read the ledger, a row for each file; refuse what no extraction writes."""
    try:
        rows = [json.loads(line) for line in (path / LEDGER).read_bytes().split(b"\n") if line]
        sound = all(itertools.starmap(_is_line, enumerate(rows)))
    except (ValueError, RecursionError):
        sound = False
    if not sound:
        # Digests find accidents: who wrote all of it anew may have written anything.
        raise InputError(f"'{path / LEDGER}' {_damaged(path)}")
    return rows


def _is_line(place: int, row: Any) -> bool:
    """Return whether a line of a ledger is sound: extracted files come first, in their order."""
    if not isinstance(row, dict) or not isinstance(row.get("file"), str):
        return False
    if row.get("outcome") != "extracted":
        told = isinstance(row.get("reason"), str)
        return told and row.get("outcome") in ("skipped", "passed over")
    segments, tags = row.get("segments", 1), row.get("tags", [])
    numbered = row.get("row") == place and type(segments) is int and segments > 0
    return numbered and isinstance(tags, list) and all(isinstance(tag, str) for tag in tags)


def is_extraction(path: Path) -> bool:
    """Return whether a path is a folder that an extraction was, or is being, written to."""
    return path.is_dir() and (_is_marked(path) or (path / MANIFEST).exists())


def _is_marked(path: Path) -> bool:
    """Return whether a folder is marked as ours for numbers of media files."""
    return kind_of(path) in _KINDS.values()


# ---------------------------------------------------------------------- finding and matching files


def find_media(
    places: Iterable[Path], suffixes: frozenset[str], *, leave_out: Path | None = None
) -> tuple[list[MediaFile], list[tuple[str, str]]]:
    """Find files by suffix in and below folders, but for one, and named files; and the others."""
    media: dict[Path, MediaFile] = {}
    others: list[tuple[str, str]] = []
    for place in places:
        if not place.is_dir():
            if not os.path.lexists(place):
                raise InputError(f"There is no file or folder '{place}'; check the path.")
            media.setdefault(place.absolute(), MediaFile(place.as_posix(), place))
            continue
        for path in _walk(place, None if leave_out is None else leave_out.resolve()):
            name = path.relative_to(place).as_posix()
            if reason := _no_media(path, suffixes):
                others.append((name, reason))
            else:
                media.setdefault(path.absolute(), MediaFile(name, path))
    return list(media.values()), others


def _walk(folder: Path, leave_out: Path | None) -> Iterator[Path]:
    """Yield every file, and every hidden or linked folder, which is not entered."""

    def refuse(error: OSError) -> None:
        raise InputError(
            f"The folder '{error.filename}' cannot be read ({error.strerror}); check its "
            "permissions."
        ) from error

    for root, folders, files in os.walk(folder, onerror=refuse):
        paths = [Path(root, name) for name in sorted(folders)]
        closed = [path for path in paths if path.is_symlink() or path.name.startswith(".")]
        opened = [path for path in paths if path not in closed and path.resolve() != leave_out]
        folders[:] = [path.name for path in opened]
        yield from [*closed, *(Path(root, name) for name in sorted(files))]


def _no_media(path: Path, suffixes: frozenset[str]) -> str:
    """Return why a path is passed over; empty for a media file, also for a broken link to one."""
    if path.name.startswith("."):
        return "is hidden"
    if path.is_dir():
        return "is a link to a folder"
    if path.suffix.lower() not in suffixes:
        return "has another kind of name"
    with contextlib.suppress(OSError):  # who looks at it says why it cannot be opened
        return "" if stat.S_ISREG(path.stat().st_mode) else "is not a regular file"
    return ""


def match_documents(files: Sequence[str], documents: Sequence[str]) -> tuple[IntArray, IntArray]:
    """Find the document of each file: (file rows, document rows), in the order of the documents.

    A document may be named as the file is, path and all, by the file's name alone, or by its name
    without the ending; folders above the one that was extracted, and case where nothing else fits,
    do not matter.
    """
    # Rows by path (0), name (1) and stem (2); then again without regard to case (3 to 5).
    rows: dict[tuple[int, str], list[int]] = defaultdict(list)
    for row, file in enumerate(files):
        path = _plain(file)
        names = [str(path), path.name, path.stem]
        for key in enumerate([*names, *map(str.casefold, names)]):
            rows[key].append(row)
    owner: dict[int, int] = {}
    for row, document in enumerate(documents):
        wanted = _plain(document)
        tries = [(level, str(wanted)) for level in range(3)]
        tries += [(0, "/".join(wanted.parts[n:])) for n in range(1, len(wanted.parts))]
        tries += [(level, str(wanted).casefold()) for level in range(3, 6)]
        matches = next((rows[key] for key in tries if key in rows), [])
        if len(matches) > 1:
            raise InputError(
                f"Several files are called '{wanted}', such as "
                f"{first_few([files[match] for match in matches], most=3)}; name each document by "
                "its file's path below the folder."
            )
        for match in matches:
            if match in owner:
                raise InputError(
                    f"The documents '{documents[owner[match]]}' and '{document}' both name the "
                    f"file '{files[match]}'; give each file one document."
                )
            owner[match] = row
    if not owner:
        raise InputError(
            f"No document names one of the files: documents are called "
            f"{first_few(list(documents), most=3)}, files {first_few(list(files), most=3)}; give "
            "documents an `id` (or `file`) that is the file's name."
        )
    return np.array(list(owner), dtype=np.int64), np.array(list(owner.values()), dtype=np.int64)


def _plain(name: str) -> PurePosixPath:
    """Return a name with forward slashes and composed letters, whatever system it comes from."""
    return PurePosixPath(unicodedata.normalize("NFC", name.replace("\\", "/")))


# ---------------------------------------------------------------------- files on a cluster


class UnseenError(MediaError):
    """A file that the machine which this error names does not see."""


def map_files(
    engine: Engine | None, function: Callable[[Any], Any], paths: Iterable[Path], n_at_once: int
) -> Iterator[Any]:
    """Apply a function that takes some paths; yield what it gives for each file, in order.

    A file that has vanished meanwhile is a `MediaError`; one that only a worker's machine does not
    see ends the work.
    """
    names = [str(path.absolute()) for path in paths]
    blocks = [names[n : n + n_at_once] for n in range(0, len(names), n_at_once)]
    outcomes = map(function, blocks) if engine is None else engine.map(function, blocks)
    for name, outcome in zip(names, itertools.chain.from_iterable(outcomes), strict=True):
        if not isinstance(outcome, UnseenError):
            yield outcome
        elif os.path.lexists(name):
            raise unseen(str(outcome), name)
        else:
            yield MediaError("cannot be opened (no such file or directory)")


def look_at(extractor: MediaFeatures, digest: str, paths: Sequence[str]) -> list[Raw | MediaError]:
    """Return the raw numbers of files, or why there are none; for `map_files`.

    `digest` is the extractor's where the work was handed out.
    """
    if extractor.digest() != digest:
        raise InputError(
            f"The machine '{socket.gethostname()}' would make other numbers of {extractor.kind} "
            "files; install the same versions on all machines."
        )
    with quiet_decoders():
        outcomes = list(extractor.extract(map(Path, paths)))
    for n, path in enumerate(paths):
        if isinstance(outcomes[n], MediaError) and not os.path.lexists(path):
            outcomes[n] = UnseenError(socket.gethostname())
    return outcomes


def unseen(host: str, place: str | Path) -> InputError:
    """Build the error for a machine that lacks a file or folder."""
    return InputError(
        f"The machine '{host}' cannot see '{place}'; on a cluster, models and files must lie where "
        "all machines see them under the same path."
    )


def _hash_files(paths: Sequence[str]) -> list[tuple[str, bytes] | None]:
    """Return states and hashes of files; None where who asked finds out by itself what is wrong."""
    hashes: list[tuple[str, bytes] | None] = [None] * len(paths)
    for n, path in enumerate(paths):
        with contextlib.suppress(OSError):
            hashes[n] = _hash(Path(path))
    return hashes


# ---------------------------------------------------------------------- the cache


class DamagedCacheError(InputError):
    """A cache that SQLite cannot read."""


class FeatureStore:
    """A cache of raw numbers by content hash and `MediaFeatures.digest`, in one SQLite file.

    Entered, it is locked against other writers; what was put stays also after an interruption.
    To read only, it takes no lock and notes nothing.
    """

    def __init__(self, path: Path, preprocessing: str, *, read_only: bool = False) -> None:
        self.path = path
        self.preprocessing = preprocessing
        self.read_only = read_only
        self.n_damaged = 0  # entries that were found damaged, and are forgotten
        self._committed = time.monotonic()

    def __enter__(self) -> Self:
        try:
            if self.read_only:
                address = f"{self.path.absolute().as_uri()}?mode=ro"
                self._connection = sqlite3.connect(address, timeout=0.1, uri=True)
                return self
            self._connection = sqlite3.connect(self.path, timeout=1.0)
            self._connection.executescript(_SCHEMA)
            self._add_digests()
        except sqlite3.Error as error:
            raise self._unusable(error) from error
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        try:
            self._connection.commit()
        except sqlite3.Error as failed:
            if error is None:  # or else there is a better reason to end
                raise self._unusable(failed) from failed
        finally:
            with contextlib.suppress(sqlite3.Error):
                self._connection.close()

    def _add_digests(self) -> None:
        """Bring tables of version 2 to this one."""
        self._connection.create_function("digested", -1, _digested, deterministic=True)
        for table, columns in _DIGESTED.items():
            known = self._connection.execute(f"SELECT * FROM {table} LIMIT 0").description
            if "digest" not in [column[0] for column in known]:
                self._connection.execute(f"ALTER TABLE {table} ADD COLUMN digest BLOB")
                self._connection.execute(f"UPDATE {table} SET digest = digested({columns})")
        self._connection.commit()

    def hashed(self, path: Path) -> tuple[str, bytes]:
        """Return the state and SHA-256 of a file; one not touched since is not read again."""
        hashed = self.noted(path)
        if hashed is None:
            hashed = _hash(path)
            if not self.read_only:
                self.note(path, *hashed)
        return hashed

    def noted(self, path: Path) -> tuple[str, bytes] | None:
        """Return the state and SHA-256 that were noted of a file, if it is still in that state."""
        name = os.fsencode(path.absolute())
        query = "SELECT state, content, digest FROM files WHERE path = ?"
        row: tuple[str, bytes, bytes] | None = self._run(query, name).fetchone()
        try:
            if row is None or row[0] != _state(path):
                return None
        except OSError:
            return None
        if row[2] != _digested(name, *row[:2]):
            self.n_damaged += 1
            return None
        return row[:2]

    def note(self, path: Path, state: str, content: bytes) -> None:
        """Keep the SHA-256 that a file had in a state: its size, times, and which file it is."""
        self._put("files", os.fsencode(path.absolute()), state, content)

    def find(self, content: bytes) -> Raw | None:
        """Return the raw numbers under a hash; None where there are none that can be trusted."""
        query = "SELECT shape, raw, digest FROM numbers WHERE content = ? AND preprocessing = ?"
        row = self._run(query, content, self.preprocessing).fetchone()
        if row is None:
            return None
        shape, raw, digest = row
        try:
            if digest == _digested(content, self.preprocessing, shape, raw):
                return np.frombuffer(raw, "<f4").reshape(json.loads(shape))
        except (TypeError, ValueError):  # digested as it is, and nevertheless no numbers
            pass
        self.n_damaged += 1
        return None

    def get(self, content: bytes) -> Raw:
        """Return the raw numbers under a hash that is in the store."""
        raw = self.find(content)
        if raw is None:
            raise DamagedCacheError(f"The cache '{self.path}' was damaged while it was read.")
        return raw

    def shape_of(self, content: bytes) -> tuple[int, ...]:
        """Return the shape of the raw numbers under a hash that is in the store."""
        query = "SELECT shape FROM numbers WHERE content = ? AND preprocessing = ?"
        return tuple(json.loads(self._run(query, content, self.preprocessing).fetchone()[0]))

    def put(self, content: bytes, raw: Raw) -> None:
        """Keep raw numbers under a hash; they reach the disk within seconds."""
        shape, values = json.dumps(raw.shape), raw.astype("<f4").tobytes()
        self._put("numbers", content, self.preprocessing, shape, values)

    def _put(self, table: str, *values: Any) -> None:
        """Keep a row with its digest, in place of another one with the same key."""
        places = ", ".join("?" * (len(values) + 1))
        command = f"INSERT OR REPLACE INTO {table} ({_DIGESTED[table]}, digest) VALUES ({places})"
        self._run(command, *values, _digested(*values))

    def _run(self, command: str, *values: object) -> sqlite3.Cursor:
        """Run one statement; changes reach the disk within seconds."""
        try:
            cursor = self._connection.execute(command, values)
            if time.monotonic() - self._committed > _COMMIT_SECONDS:
                self._connection.commit()
                self._committed = time.monotonic()
        except sqlite3.Error as error:
            raise self._unusable(error) from error
        return cursor

    def _unusable(self, error: sqlite3.Error) -> InputError:
        """Build the error for what SQLite complains of."""
        folder, code = self.path.parent, getattr(error, "sqlite_errorcode", None)
        if "locked" in str(error):
            return InputError(
                f"Another extraction is writing to '{folder}'; wait until it is done."
            )
        if code is not None and code & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
            return DamagedCacheError(f"The cache '{self.path}' is damaged ({error}).")
        return InputError(
            f"Nothing can be written to '{folder}' ({error}); make room there and run again: what "
            "was looked at until a moment ago is kept."
        )


def caches_beside(place: Path) -> list[Path]:
    """Return the caches of the extractions that lie in the same folder as something else."""
    found = place.absolute().parent.glob(f"*/{CACHE}")
    ours = (path for path in found if path.is_file() and _is_marked(path.parent))
    return sorted(ours)[:_MOST_CACHES]


def from_caches(caches: Iterable[Path], digest: str, paths: Sequence[Path]) -> dict[Path, Raw]:
    """Return the raw numbers that caches have of files; what cannot be read there is left out."""
    known: dict[Path, Raw] = {}
    for cache in caches:
        with (
            contextlib.suppress(ValueError, TypeError),  # being written, or damaged
            FeatureStore(cache, digest, read_only=True) as store,
        ):
            for path in [path for path in paths if path not in known]:
                with contextlib.suppress(OSError):
                    raw = store.find(store.hashed(path)[1])
                    if raw is not None:
                        known[path] = raw
    return known


def _digested(*values: Any) -> bytes:
    """Digest the values of a row; how long each is belongs to it."""
    digest = hashlib.sha256()
    for value in values:
        data = value if isinstance(value, bytes) else str(value).encode("utf-8", "surrogatepass")
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.digest()


def _hash(path: Path) -> tuple[str, bytes]:
    """Read a file; give the state it was in, and its SHA-256."""
    state = _state(path)
    with path.open("rb") as stream:
        return state, hashlib.file_digest(stream, "sha256").digest()


def _state(path: Path) -> str:
    """Return what changes whenever a file does: size, times, and which file it is."""
    info = path.stat()
    return f"{info.st_size} {info.st_mtime_ns} {info.st_ctime_ns} {info.st_ino}"


# ---------------------------------------------------------------------- the folder of numbers


def _is_former(folder: Path, kind: str) -> bool:
    """Return whether a folder is an extraction of version 2, which had no mark.

    Its cache may be worth hours, so it is taken over where nothing in it is somebody else's.
    """
    names = {path.name for path in folder.iterdir() if not _LEFT_BEHIND.fullmatch(path.name)}
    if not names <= {MANIFEST, LEDGER, _ARRAYS[kind], *_CACHE_FILES} or CACHE not in names:
        return False
    try:
        manifest = json.loads((folder / MANIFEST).read_bytes())
        if _version_of(folder) != 2 or manifest["kind"] != kind:
            return False
        # Without a journal, a lock or anything else that would be written beside it.
        address = f"{(folder / CACHE).absolute().as_uri()}?mode=ro&immutable=1"
        with contextlib.closing(sqlite3.connect(address, uri=True)) as connection:
            tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
            return {name for (name,) in tables} == {*_DIGESTED}
    except (OSError, ValueError, KeyError, TypeError, sqlite3.Error):
        return False


def _tell_of_damage(target: Path) -> None:
    """Warn of a manifest that is damaged, before it is made again."""
    there = (target / MANIFEST).exists() and _version_of(target) != 2
    if there and _read_manifest(target) is None:
        _warn(f"Damaged in '{target}', and made again: {MANIFEST}.")


def _write(
    target: Path,
    extractor: MediaFeatures,
    used: Sequence[tuple[MediaFile, bytes]],
    skipped: Sequence[tuple[str, str]],
    others: Sequence[tuple[str, str]],
    store: FeatureStore,
) -> tuple[list[Keywords], list[str]]:
    """Write numbers, ledger and manifest; return each used file's keywords, and who is alike."""
    manifest: dict[str, Any] = {
        "format": FORMAT,
        "version": FORMAT_VERSION,
        "kind": extractor.kind,
        "preprocessing": extractor.preprocessing(),
        "parameters": extractor.plain_parameters(),
        "trained_tags": list(extractor.trained_tags()),
        "extracted": len(used),
        "skipped": len(skipped),
        "passed over": len(others),
    }
    shapes = [store.shape_of(content) for _, content in used]
    # A model must not learn from what a model suggested: such keywords are left out.
    found = [_keywords(file.path, extractor.kind) for file, _ in used]
    lines: list[dict[str, Any]] = []
    for row, ((file, content), shape) in enumerate(zip(used, shapes, strict=True)):
        line = {"file": file.id, "outcome": "extracted", "row": row, "sha256": content.hex()}
        segments = {"segments": shape[0]} if extractor.kind == "audio" else {}
        keywords = {"tags": found[row].tags, "tags_from": found[row].places}
        keywords |= {"unread": found[row].unread}
        lines.append(line | {name: held for name, held in keywords.items() if held} | segments)
    for outcome, files in (("skipped", skipped), ("passed over", others)):
        lines += [{"file": name, "outcome": outcome, "reason": reason} for name, reason in files]
    n_rows = sum(line.get("segments", 1) for line in lines[: len(used)])
    header = {"descr": "<f4", "fortran_order": False, "shape": (n_rows, shapes[0][-1])}
    check_room(target, 4 * n_rows * shapes[0][-1])
    with (
        replacing(target / MANIFEST) as last,
        replacing(target / LEDGER) as ledger,
        replacing(target / _ARRAYS[extractor.kind]) as table,
    ):
        np.lib.format.write_array_header_1_0(table, header)
        contents_by_numbers: dict[bytes, set[bytes]] = defaultdict(set)
        numbers_of_row: list[bytes] = []
        for _, content in used:
            values = store.get(content).tobytes()
            table.write(values)
            numbers_of_row.append(hashlib.sha256(values).digest())
            contents_by_numbers[numbers_of_row[-1]].add(content)
        for line in lines:
            text = json.dumps(line, ensure_ascii=False) + "\n"
            try:
                ledger.write(text.encode())
            except UnicodeEncodeError:  # a file name that is no text keeps its bytes as escapes
                ledger.write((json.dumps(line) + "\n").encode())
        numbers = {_ARRAYS[extractor.kind]: table.quick_summary()}
        last.write(sealed(manifest | {"files": {LEDGER: ledger.summary()} | numbers}))
        for stream in (table, ledger, last):
            stream.settle()
        # Everything is written; without a manifest there is no extraction while names change.
        (target / MANIFEST).unlink(missing_ok=True)
    alike = [
        file.id
        for (file, _), numbers_digest in zip(used, numbers_of_row, strict=True)
        if len(contents_by_numbers[numbers_digest]) > 1
    ]
    return found, alike


def _keywords(path: Path, kind: str) -> Keywords:
    """Read a file's keywords; one that has vanished meanwhile has none."""
    try:
        return keywords_of(path, kind)
    except OSError as error:
        return Keywords([], [], [f"cannot be opened ({cause(error)})"])


def _manifest(path: Path) -> dict[str, Any]:
    """Read the manifest, or say what is there instead."""
    if not is_extraction(path):
        raise InputError(
            f"'{path}' is no folder that `polyseme extract` wrote; `polyseme tag` takes media "
            "files themselves."
        )
    if not (path / MANIFEST).exists():
        raise InputError(
            f"The extraction in '{path}' is not finished; run `polyseme extract` on it again."
        )
    manifest = _read_manifest(path)
    if manifest is not None:
        return manifest
    version = _version_of(path)
    if version in (None, FORMAT_VERSION):
        raise InputError(f"'{path / MANIFEST}' {_damaged(path)}")
    mend = "extract the files to another folder"
    if version == 2:
        mend = f"`polyseme extract` with --out '{path}' brings it up to date from its cache"
    raise InputError(f"'{path}' was written by another version of polyseme; {mend}.")


def _read_manifest(path: Path) -> dict[str, Any] | None:
    """Read the manifest; None where it is damaged, or another version's."""
    try:
        manifest = unsealed((path / MANIFEST).read_bytes())
    except OSError:
        return None
    if manifest is None or manifest.get("kind") not in [*_ARRAYS]:  # it may be no text
        return None
    known = (manifest.get("format"), manifest.get("version")) == (FORMAT, FORMAT_VERSION)
    tables = (manifest.get("files"), manifest.get("preprocessing"), manifest.get("parameters", {}))
    return manifest if known and all(isinstance(one, dict) for one in tables) else None


def _version_of(path: Path) -> object:
    """Return the version that a manifest names, whatever else is wrong; None without one."""
    with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
        found = json.loads((path / MANIFEST).read_bytes())
        return found["version"] if found["format"] == FORMAT else None
    return None


def _damaged(path: Path) -> str:
    """Return of a file that it is damaged, and what to do."""
    return (
        "was damaged or changed after it was written; `polyseme extract` with --out "
        f"'{path}' makes it again."
    )
