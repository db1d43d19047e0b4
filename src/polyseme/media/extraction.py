"""Extract the features of a folder of media: resumable, cached, with every file accounted for.

In: a folder of pictures or of sound. Out: a folder with their raw numbers (`features.npy` with a
row for each picture, `segments.npy` with several for each sound), a line for every file met
(`files.jsonl`), the preprocessing (`extraction.json`) and a cache.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import os
import socket
import sqlite3
import stat
import time
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol, Self

import numpy as np

from polyseme.base.validation import InputError, PolysemeWarning, first_few
from polyseme.io.arrays import refusing_damage
from polyseme.media.base import (
    Extracted,
    MediaError,
    MediaFeatures,
    Raw,
    cause,
    quiet_decoders,
)
from polyseme.media.extractors import extractor_class, extractor_classes
from polyseme.media.keywords import Keywords, keywords_of
from polyseme.storage.atomic_files import (
    check_room,
    folder_kind,
    is_intact,
    own_folder,
    replacing,
    sealed,
    unsealed,
    unwritable,
)

MANIFEST = "extraction.json"
LEDGER = "files.jsonl"
CACHE = "cache.sqlite"
FORMAT = "polyseme extraction"
FORMAT_VERSION = 3
_ARRAYS = {1: "features.npy", 2: "segments.npy"}  # by the dimensions of an item's numbers
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
_COLUMNS = {"numbers": "content, preprocessing, shape, raw", "files": "path, state, content"}
# Files that a worker of a cluster hashes, and looks at, at a time.
_HASHED_AT_ONCE = 64
_LEAST_AT_ONCE = 8
_MOST_CACHES = 16  # that are asked for files

Progress = Callable[[int, int, int], None]


class MediaFile(NamedTuple):
    """One file: its path below the folder that was named, with forward slashes, and its path."""

    id: str
    path: Path


@dataclass(frozen=True)
class Summary:
    """What became of every file; pairs are (name, reason)."""

    kind: str  # of the extractor, such as "image"
    n_extracted: int  # files with numbers
    n_cached: int  # those of them that came from the cache
    skipped: tuple[tuple[str, str], ...]  # media files that cannot be used
    others: tuple[tuple[str, str], ...]  # files that are no media of this kind
    n_tagged: int  # extracted files with keywords
    places: dict[str, int]  # files by where their keywords come from, such as XMP or sidecar
    unread: tuple[tuple[str, str], ...]  # extracted files some of whose keywords cannot be read
    alike: tuple[str, ...] = ()  # files with the same numbers as a different file

    def __repr__(self) -> str:
        """Return how many, in a line; its methods say it in sentences."""
        done = f"{self.n_extracted} {self.kind} files, {len(self.skipped)} skipped"
        return f"Summary({done}, {self.n_tagged} with keywords)"

    def sentence(self) -> str:
        """Return it as one sentence."""
        total = self.n_extracted + len(self.skipped)
        noun = extractor_class(self.kind).noun
        cached = f" ({self.n_cached:,} from the cache)" if self.n_cached else ""
        n_skipped = len(self.skipped)
        n_others = len(self.others)
        files = "file" if n_others == 1 else "files"
        return (
            f"{self.n_extracted:,} of {total:,} {noun} files extracted{cached}, "
            f"{n_skipped:,} skipped; {n_others:,} other {files} passed over"
        )

    def sameness(self) -> str:
        """Name different files with the same features; empty where there are none."""
        if not self.alike:
            return ""
        noun = extractor_class(self.kind).noun
        return (
            f"{len(self.alike):,} of {self.n_extracted:,} {noun}s have the same features as "
            f"another one, though their files differ ({first_few(self.alike, most=3)}): nothing "
            "can tell them apart; are they blank, or silent?"
        )

    def keywords(self) -> str:
        """Return how many files have keywords, and from where, in one sentence."""
        if not self.n_tagged:
            return "no file has keywords, inside or in a sidecar"
        counts: list[str] = []
        for place, count in self.places.items():
            counts.append(f"{place} {count:,}")
        listed = ", ".join(counts)
        return f"{self.n_tagged:,} of {self.n_extracted:,} files have keywords ({listed})"


class Engine(Protocol):
    """Where work is done piece by piece, such as `polyseme.batch.RayEngine`."""

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
    source = Path(folder)
    target = Path(out)
    kind = extractor.kind
    if not source.is_dir():
        raise InputError(f"There is no folder '{source}'; name the folder that holds the files.")
    if target.exists() and target.resolve() == source.resolve():
        raise InputError("Media and numbers need two folders; name another one to write to.")
    with own_folder(target, _mark(kind)):
        media, ignored = find_media([source], extractor.suffixes, leave_out=target)
        if not media:
            suffixes = ", ".join(sorted(extractor.suffixes))
            raise InputError(
                f"There is no {kind} file in '{source}' ({len(ignored)} other files); names must "
                f"end in {suffixes}."
            )
        _warn_about_damage(target)
        try:
            return _fill(source, target, extractor, media, ignored, engine, progress)
        except DamagedCacheError as damage:
            _warn(f"{damage} It is made again.")
            for name in _CACHE_FILES:
                (target / name).unlink(missing_ok=True)
            return _fill(source, target, extractor, media, ignored, engine, progress)


def _fill(
    source: Path,
    target: Path,
    extractor: MediaFeatures,
    media: Sequence[MediaFile],
    ignored: Sequence[tuple[str, str]],
    engine: Engine | None,
    progress: Progress | None,
) -> Summary:
    """Bring a folder of ours up to date with media files; see `extract_folder`."""
    kind = extractor.kind
    used: list[tuple[MediaFile, bytes]] = []
    skipped: list[tuple[str, str]] = []
    with FeatureStore(target / CACHE, extractor.digest()) as store:
        outcomes, n_cached = _extract(media, extractor, store, engine, progress)
        for file, outcome in outcomes:
            if isinstance(outcome, bytes):
                used.append((file, outcome))
            else:
                skipped.append((file.id, outcome))
        if store.n_damaged:
            _warn(f"Damaged in '{store.path}', and made again: {store.n_damaged:,} entries.")
        if not used:
            reasons = [f"{names}: {reason}" for names, reason in by_reason(skipped)]
            raise InputError(
                f"None of the {len(media)} {kind} files in '{source}' can be used: "
                f"{first_few(reasons, most=3)}."
            )
        try:
            keywords_by_row, alike = _write(target, extractor, used, skipped, ignored, store)
        except OSError as error:
            raise unwritable(target, error) from error
    places: Counter[str] = Counter()
    unread: list[tuple[str, str]] = []
    n_tagged = 0
    for (file, _), keywords in zip(used, keywords_by_row, strict=True):
        places.update(keywords.places)
        unread += [(file.id, reason) for reason in keywords.unread]
        n_tagged += bool(keywords.tags)
    return Summary(
        kind,
        n_extracted=len(used),
        n_cached=n_cached,
        skipped=tuple(skipped),
        others=tuple(ignored),
        n_tagged=n_tagged,
        places=dict(places.most_common()),
        unread=tuple(unread),
        alike=tuple(alike),
    )


def _warn(sentence: str) -> None:
    """Warn about damage."""
    warnings.warn(sentence, PolysemeWarning, stacklevel=4)


def by_reason(files: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return (names, reason) for each reason of (file, reason) pairs."""
    names_by_reason: dict[str, list[str]] = defaultdict(list)
    for name, reason in files:
        names_by_reason[reason].append(name)
    groups: list[tuple[str, str]] = []
    for reason, names in names_by_reason.items():
        listed = first_few(names, most=3)
        groups.append((listed, reason))
    return groups


def _extract(
    media: Sequence[MediaFile],
    extractor: MediaFeatures,
    store: FeatureStore,
    engine: Engine | None,
    progress: Progress | None,
) -> tuple[list[tuple[MediaFile, bytes | str]], int]:
    """Fill the store; return each file's SHA-256 or why it is skipped, and how many were cached."""
    outcomes: dict[MediaFile, bytes | str] = {}
    n_skipped = n_cached = 0

    def note(file: MediaFile, outcome: bytes | str) -> None:
        nonlocal n_skipped
        outcomes[file] = outcome
        n_skipped += isinstance(outcome, str)
        if progress is not None:
            progress(len(outcomes), len(media), n_skipped)

    def unknown() -> Iterator[tuple[MediaFile, str, bytes]]:
        """Yield the files that are not in the cache, with their state and hash."""
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
        new_paths = [file.path for file in media if store.noted(file.path) is None]
        hashes = map_files(engine, _hash_files, new_paths, _HASHED_AT_ONCE)
        for path, hashed in zip(new_paths, hashes, strict=True):
            if hashed is not None:
                store.note(path, *hashed)
    files, queue = itertools.tee(unknown())
    paths = (file.path for file, _, _ in queue)
    extracted: Iterator[Raw | MediaError] = extractor.extract(paths)
    if engine is not None:
        # Workers use one thread each, and see whole batches, as one process does.
        parameters = extractor.get_params() | {"n_jobs": 1}
        if "random_state" in parameters:
            parameters["random_state"] = None
        worker_extractor = type(extractor)(**parameters)
        look = partial(look_at, worker_extractor, extractor.digest())
        n_at_once = max(_LEAST_AT_ONCE, 2 * extractor.batch_size)
        extracted = map_files(engine, look, paths, n_at_once)
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
    """Read a folder that `extract_folder` wrote; the numbers stay on disk until they are used.

    Every file is compared with its digest; what is damaged is refused.
    """
    path = Path(folder)
    manifest = _manifest(path)
    kind = str(manifest["kind"])
    raw_axes = extractor_class(kind).raw_axes
    array_file = path / _ARRAYS[raw_axes]
    for file in (path / LEDGER, array_file):
        if not is_intact(file, manifest["files"].get(file.name)):
            raise InputError(f"'{file}' {_damage_error(path)}")
    with refusing_damage(array_file):
        table = np.load(array_file, mmap_mode="r", allow_pickle=False)
    rows = _ledger(path)
    used = [row for row in rows if row["outcome"] == "extracted"]
    skipped = [row for row in rows if row["outcome"] == "skipped"]
    ends = np.cumsum([row.get("segments", 1) for row in used])
    has_type = table.dtype == np.float32 and table.ndim == 2
    if not used or not has_type or ends[-1] != len(table):
        raise InputError(f"'{path / LEDGER}' does not fit its numbers; it {_damage_error(path)}")
    return Extracted(
        kind,
        preprocessing=dict(manifest["preprocessing"]),
        ids=tuple(row["file"] for row in used),
        raw=table if raw_axes == 1 else np.split(table, ends[:-1]),
        tags=tuple(tuple(row.get("tags", ())) for row in used),
        skipped=tuple((row["file"], row["reason"]) for row in skipped),
        parameters=dict(manifest.get("parameters", {})),
    )


def _ledger(path: Path) -> list[dict[str, Any]]:
    """Return the rows of the ledger, one for each file, or raise where it is invalid."""
    ledger = path / LEDGER
    try:
        lines = ledger.read_bytes().split(b"\n")
        rows = [json.loads(line) for line in lines if line]
        is_sound = all(itertools.starmap(_is_line, enumerate(rows)))
    except (ValueError, RecursionError):
        is_sound = False
    if not is_sound:
        # Digests find accidents, not forgeries.
        raise InputError(f"'{ledger}' {_damage_error(path)}")
    return rows


def _is_line(place: int, row: Any) -> bool:
    """Whether a line of a ledger is sound: extracted files come first, in their order."""
    if not isinstance(row, dict) or not isinstance(row.get("file"), str):
        return False
    outcome = row.get("outcome")
    if outcome != "extracted":
        has_reason = isinstance(row.get("reason"), str)
        return has_reason and outcome in ("skipped", "passed over")
    segments = row.get("segments", 1)
    if row.get("row") != place or type(segments) is not int or segments < 1:
        return False
    tags = row.get("tags", [])
    return isinstance(tags, list) and all(isinstance(tag, str) for tag in tags)


def is_extraction(path: Path) -> bool:
    """Return whether a path is a folder that an extraction was, or is being, written to."""
    return path.is_dir() and (_is_marked(path) or (path / MANIFEST).exists())


def _is_marked(path: Path) -> bool:
    """Return whether a folder is marked as ours for numbers of media files."""
    marks = [_mark(kind) for kind in extractor_classes()]
    return folder_kind(path) in marks


def _mark(kind: str) -> str:
    """Return what a folder with the numbers of a kind of media is marked as."""
    return f"numbers of {kind} files"


# ---------------------------------------------------------------------- finding and matching files


def find_media(
    places: Iterable[Path], suffixes: frozenset[str], *, leave_out: Path | None = None
) -> tuple[list[MediaFile], list[tuple[str, str]]]:
    """Return the files with a suffix in and below folders, but for one, and named files.

    Beside them stand the names of all other files, each with the reason it is ignored.
    """
    media: dict[Path, MediaFile] = {}
    ignored: list[tuple[str, str]] = []
    excluded = None if leave_out is None else leave_out.resolve()
    for place in places:
        if not place.is_dir():
            if not os.path.lexists(place):
                raise InputError(f"There is no file or folder '{place}'; check the path.")
            media.setdefault(place.absolute(), MediaFile(place.as_posix(), place))
            continue
        for path in _walk(place, excluded):
            name = path.relative_to(place).as_posix()
            reason = _no_media(path, suffixes)
            if reason:
                ignored.append((name, reason))
            else:
                media.setdefault(path.absolute(), MediaFile(name, path))
    return list(media.values()), ignored


def _walk(folder: Path, leave_out: Path | None) -> Iterator[Path]:
    """Yield every file, and every hidden or linked folder, which is not entered."""

    def refuse(error: OSError) -> None:
        raise InputError(
            f"The folder '{error.filename}' cannot be read ({error.strerror}); check its "
            "permissions."
        ) from error

    for root, folders, files in os.walk(folder, onerror=refuse):
        open_folders: list[str] = []
        for name in sorted(folders):
            path = Path(root, name)
            if path.is_symlink() or name.startswith("."):
                yield path
            elif path.resolve() != leave_out:
                open_folders.append(name)
        folders[:] = open_folders
        for name in sorted(files):
            yield Path(root, name)


def _no_media(path: Path, suffixes: frozenset[str]) -> str:
    """Return why a path is passed over; empty for a media file, also for a broken link to one."""
    if path.name.startswith("."):
        return "is hidden"
    if path.is_dir():
        return "is a link to a folder"
    if path.suffix.lower() not in suffixes:
        return "has another kind of name"
    with contextlib.suppress(OSError):  # the reader reports why it cannot be opened
        return "" if stat.S_ISREG(path.stat().st_mode) else "is not a regular file"
    return ""


# ---------------------------------------------------------------------- files on a cluster


class UnseenError(MediaError):
    """A file that the machine which this error names does not see."""


def map_files(
    engine: Engine | None, function: Callable[[Any], Any], paths: Iterable[Path], n_at_once: int
) -> Iterator[Any]:
    """Yield what a function that takes some paths returns for each file, in order.

    A file that has vanished meanwhile is a `MediaError`; one that only a worker's machine does not
    see ends the work.
    """
    names = [str(path.absolute()) for path in paths]
    blocks = [names[start : start + n_at_once] for start in range(0, len(names), n_at_once)]
    block_outcomes = map(function, blocks) if engine is None else engine.map(function, blocks)
    outcomes = itertools.chain.from_iterable(block_outcomes)
    for name, outcome in zip(names, outcomes, strict=True):
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
    """Return states and hashes of files; None for files that cannot be read."""
    hashes: list[tuple[str, bytes] | None] = []
    for path in paths:
        state_and_hash = None
        with contextlib.suppress(OSError):
            state_and_hash = _hash(Path(path))
        hashes.append(state_and_hash)
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
        except sqlite3.Error as error:
            raise self._cache_error(error) from error
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        try:
            self._connection.commit()
        except sqlite3.Error as failed:
            if error is None:  # or else there is a better reason to end
                raise self._cache_error(failed) from failed
        finally:
            with contextlib.suppress(sqlite3.Error):
                self._connection.close()

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
        row = self._run(query, content, self.preprocessing).fetchone()
        sizes = json.loads(row[0])
        return tuple(sizes)

    def put(self, content: bytes, raw: Raw) -> None:
        """Keep raw numbers under a hash; they reach the disk within seconds."""
        shape = json.dumps(raw.shape)
        values = raw.astype("<f4").tobytes()
        self._put("numbers", content, self.preprocessing, shape, values)

    def _put(self, table: str, *values: Any) -> None:
        """Keep a row with its digest, in place of another one with the same key."""
        n_columns = len(values) + 1
        placeholders = ", ".join(["?"] * n_columns)
        columns = f"{_COLUMNS[table]}, digest"
        command = f"INSERT OR REPLACE INTO {table} ({columns}) VALUES ({placeholders})"
        digest = _digested(*values)
        self._run(command, *values, digest)

    def _run(self, command: str, *values: object) -> sqlite3.Cursor:
        """Run one statement; changes reach the disk within seconds."""
        try:
            cursor = self._connection.execute(command, values)
            if time.monotonic() - self._committed > _COMMIT_SECONDS:
                self._connection.commit()
                self._committed = time.monotonic()
        except sqlite3.Error as error:
            raise self._cache_error(error) from error
        return cursor

    def _cache_error(self, error: sqlite3.Error) -> InputError:
        """Build the error for an error of SQLite."""
        folder = self.path.parent
        code = getattr(error, "sqlite_errorcode", None)
        if "locked" in str(error):
            return InputError(
                f"Another extraction is writing to '{folder}'; wait until it is done."
            )
        damage_codes = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
        if code is not None and code & 0xFF in damage_codes:
            return DamagedCacheError(f"The cache '{self.path}' is damaged ({error}).")
        return InputError(
            f"Nothing can be written to '{folder}' ({error}); make room there and run again: what "
            "was looked at until a moment ago is kept."
        )


def caches_beside(place: Path) -> list[Path]:
    """Return the caches of the extractions that lie in the same folder as something else."""
    caches: list[Path] = []
    for cache in place.absolute().parent.glob(f"*/{CACHE}"):
        if cache.is_file() and _is_marked(cache.parent):
            caches.append(cache)
    return sorted(caches)[:_MOST_CACHES]


def from_caches(caches: Iterable[Path], digest: str, paths: Sequence[Path]) -> dict[Path, Raw]:
    """Return the raw numbers of files from caches; entries that cannot be read are left out."""
    raw_by_path: dict[Path, Raw] = {}
    for cache in caches:
        with (
            contextlib.suppress(ValueError, TypeError),  # being written, or damaged
            FeatureStore(cache, digest, read_only=True) as store,
        ):
            missing = [path for path in paths if path not in raw_by_path]
            for path in missing:
                with contextlib.suppress(OSError):
                    _, content = store.hashed(path)
                    raw = store.find(content)
                    if raw is not None:
                        raw_by_path[path] = raw
    return raw_by_path


def _digested(*values: Any) -> bytes:
    """Return a digest of the values of a row, and of the length of each."""
    digest = hashlib.sha256()
    for value in values:
        is_bytes = isinstance(value, bytes)
        data = value if is_bytes else str(value).encode("utf-8", "surrogatepass")
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.digest()


def _hash(path: Path) -> tuple[str, bytes]:
    """Return the state that a file is in, and its SHA-256."""
    state = _state(path)
    with path.open("rb") as stream:
        return state, hashlib.file_digest(stream, "sha256").digest()


def _state(path: Path) -> str:
    """Return a fingerprint of a file that changes with it: size, times and inode."""
    info = path.stat()
    return f"{info.st_size} {info.st_mtime_ns} {info.st_ctime_ns} {info.st_ino}"


# ---------------------------------------------------------------------- the folder of numbers


def _warn_about_damage(target: Path) -> None:
    """Warn of a manifest that is damaged, before it is made again."""
    if not (target / MANIFEST).exists():
        return
    if _read_manifest(target) is None:
        _warn(f"Damaged in '{target}', and made again: {MANIFEST}.")


def _write(
    target: Path,
    extractor: MediaFeatures,
    used: Sequence[tuple[MediaFile, bytes]],
    skipped: Sequence[tuple[str, str]],
    ignored: Sequence[tuple[str, str]],
    store: FeatureStore,
) -> tuple[list[Keywords], list[str]]:
    """Write numbers, ledger and manifest; return each used file's keywords, and who is alike."""
    kind = extractor.kind
    array_name = _ARRAYS[extractor.raw_axes]
    manifest: dict[str, Any] = {
        "format": FORMAT,
        "version": FORMAT_VERSION,
        "kind": kind,
        "preprocessing": extractor.preprocessing(),
        "parameters": extractor.plain_parameters(),
        "trained_tags": list(extractor.trained_tags()),
        "extracted": len(used),
        "skipped": len(skipped),
        "passed over": len(ignored),
    }
    shapes = [store.shape_of(content) for _, content in used]
    # A model must not learn from suggestions of a model: such keywords are left out.
    keywords_by_row = [_keywords(file.path, kind) for file, _ in used]
    lines = _extracted_lines(used, shapes, keywords_by_row)
    n_rows = sum(line.get("segments", 1) for line in lines)
    for outcome, files in (("skipped", skipped), ("passed over", ignored)):
        lines += [{"file": name, "outcome": outcome, "reason": reason} for name, reason in files]
    n_columns = shapes[0][-1]
    header = {"descr": "<f4", "fortran_order": False, "shape": (n_rows, n_columns)}
    check_room(target, 4 * n_rows * n_columns)
    with (
        replacing(target / MANIFEST) as manifest_stream,
        replacing(target / LEDGER) as ledger,
        replacing(target / array_name) as table,
    ):
        np.lib.format.write_array_header_1_0(table, header)
        contents_by_digest: dict[bytes, set[bytes]] = defaultdict(set)
        digests: list[bytes] = []  # of each row's numbers
        for _, content in used:
            values = store.get(content).tobytes()
            table.write(values)
            digest = hashlib.sha256(values).digest()
            digests.append(digest)
            contents_by_digest[digest].add(content)
        for line in lines:
            text = json.dumps(line, ensure_ascii=False) + "\n"
            try:
                ledger.write(text.encode())
            except UnicodeEncodeError:  # a file name that is no text keeps its bytes as escapes
                ledger.write((json.dumps(line) + "\n").encode())
        summaries = {LEDGER: ledger.summary(), array_name: table.summary()}
        manifest_stream.write(sealed(manifest | {"files": summaries}))
        for stream in (table, ledger, manifest_stream):
            stream.settle()
        # Everything is written; without a manifest there is no extraction while names change.
        (target / MANIFEST).unlink(missing_ok=True)
    alike: list[str] = []
    for (file, _), digest in zip(used, digests, strict=True):
        if len(contents_by_digest[digest]) > 1:
            alike.append(file.id)
    return keywords_by_row, alike


def _extracted_lines(
    used: Sequence[tuple[MediaFile, bytes]],
    shapes: Sequence[tuple[int, ...]],
    keywords_by_row: Sequence[Keywords],
) -> list[dict[str, Any]]:
    """Return the lines of the ledger for extracted files, in the order of their numbers."""
    lines: list[dict[str, Any]] = []
    for row, (file, content) in enumerate(used):
        line = {"file": file.id, "outcome": "extracted", "row": row, "sha256": content.hex()}
        line |= _keyword_entries(keywords_by_row[row])
        if len(shapes[row]) > 1:
            line["segments"] = shapes[row][0]
        lines.append(line)
    return lines


def _keyword_entries(keywords: Keywords) -> dict[str, Any]:
    """Return the keywords of a file for its line of the ledger, without empty lists."""
    entries = {"tags": keywords.tags, "tags_from": keywords.places, "unread": keywords.unread}
    return {name: values for name, values in entries.items() if values}


def _keywords(path: Path, kind: str) -> Keywords:
    """Read a file's keywords; one that has vanished meanwhile has none."""
    try:
        return keywords_of(path, kind)
    except OSError as error:
        return Keywords([], [], [f"cannot be opened ({cause(error)})"])


def _manifest(path: Path) -> dict[str, Any]:
    """Return the manifest, or raise where it is missing or another file."""
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
        raise InputError(f"'{path / MANIFEST}' {_damage_error(path)}")
    raise InputError(
        f"'{path}' was written by another version of polyseme; extract the files to another folder."
    )


def _read_manifest(path: Path) -> dict[str, Any] | None:
    """Return the manifest; None where it is damaged, or another version's."""
    try:
        content = (path / MANIFEST).read_bytes()
    except OSError:
        return None
    manifest = unsealed(content)
    if manifest is None:
        return None
    kind = manifest.get("kind")
    if not isinstance(kind, str):
        return None
    if manifest.get("format") != FORMAT or manifest.get("version") != FORMAT_VERSION:
        return None
    tables = (manifest.get("files"), manifest.get("preprocessing"), manifest.get("parameters", {}))
    if not all(isinstance(table, dict) for table in tables):
        return None
    return manifest


def _version_of(path: Path) -> object:
    """Return the version that a manifest names, whatever else is wrong; None without one."""
    with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
        manifest = json.loads((path / MANIFEST).read_bytes())
        if manifest["format"] == FORMAT:
            version: object = manifest["version"]
            return version
    return None


def _damage_error(path: Path) -> str:
    """Return the end of an error for a damaged file, with the remedy."""
    return (
        "was damaged or changed after it was written; `polyseme extract` with --out "
        f"'{path}' makes it again."
    )
