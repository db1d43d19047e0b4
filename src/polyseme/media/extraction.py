"""Extract the features of a folder of media: resumable, cached, with every file accounted for.

In: a folder of pictures or of sound. Out: a folder with their raw numbers (`features.npy` with a
row for each picture, `segments.npy` with several for each sound), a line for every file met
(`files.jsonl`), the preprocessing (`extraction.json`) and a cache.

Terms: the *ledger* is `files.jsonl`; the *manifest* is `extraction.json`, which holds digests of
the other files and is written last; a file is *extracted* if there are numbers of it, *skipped* if
it is a media file that cannot be used, *passed over* if it is no media file; a *content hash* is
the SHA-256 of a file's bytes. Within a run, an *outcome* is either a content hash, under which the
cache has the numbers, or the reason why the file is skipped.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import os
import socket
import stat
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol

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
from polyseme.media.feature_store import (
    ALL_CACHE_FILES,
    CACHE_FILE,
    DamagedCacheError,
    FeatureStore,
    FileHash,
    hash_file,
)
from polyseme.media.keywords import Keywords, keywords_of
from polyseme.media.suggestions import distinct
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

# The format on disk: files, and how the manifest names it. Another version is refused where numbers
# are read, and made again by `extract`.
MANIFEST_FILE = "extraction.json"
LEDGER_FILE = "files.jsonl"
_ARRAY_FILES = {1: "features.npy", 2: "segments.npy"}  # by `MediaFeatures.raw_axes`
FORMAT = "polyseme extraction"
FORMAT_VERSION = 3
# Files that a worker of a cluster hashes, and looks at, at a time.
_HASHED_AT_ONCE = 64
_LEAST_EXTRACTED_AT_ONCE = 8
_MOST_CACHES = 16  # that are asked for files

# Called with the files that are done, of how many, and how many of them were skipped.
Progress = Callable[[int, int, int], None]
Reason = tuple[str, str]  # a file's name, and why it is not used


class MediaFile(NamedTuple):
    """One media file."""

    id: str  # its path below the folder that was named, with forward slashes
    path: Path  # by which it is opened


class ExtractedFile(NamedTuple):
    """A media file whose numbers the cache has."""

    file: MediaFile
    content: bytes  # its content hash


@dataclass(frozen=True)
class Summary:
    """What became of every file."""

    kind: str  # of the extractor, such as "image"
    n_extracted: int  # files with numbers
    n_cached: int  # those of them that came from the cache
    skipped: tuple[Reason, ...]  # media files that cannot be used
    others: tuple[Reason, ...]  # files that are no media of this kind
    n_tagged: int  # extracted files with keywords
    places: dict[str, int]  # files by where their keywords come from, such as XMP or sidecar
    unread: tuple[Reason, ...]  # extracted files some of whose keywords cannot be read
    alike: tuple[str, ...] = ()  # names of files with the same numbers as a different file

    def __repr__(self) -> str:
        """Return how many, in a line; its methods say it in sentences."""
        n_skipped = len(self.skipped)
        counts = f"{self.n_extracted} {self.kind} files, {n_skipped} skipped"
        return f"Summary({counts}, {self.n_tagged} with keywords)"

    def sentence(self) -> str:
        """Return how many files were extracted, skipped and passed over, as one sentence."""
        noun = extractor_class(self.kind).noun
        n_skipped = len(self.skipped)
        n_media = self.n_extracted + n_skipped
        n_others = len(self.others)
        from_cache = f" ({self.n_cached:,} from the cache)" if self.n_cached else ""
        other_files = "other file" if n_others == 1 else "other files"
        return (
            f"{self.n_extracted:,} of {n_media:,} {noun} files extracted{from_cache}, "
            f"{n_skipped:,} skipped; {n_others:,} {other_files} passed over"
        )

    def sameness(self) -> str:
        """Name different files with the same features; empty where there are none."""
        if not self.alike:
            return ""
        extractor = extractor_class(self.kind)
        return (
            f"{len(self.alike):,} of {self.n_extracted:,} {extractor.noun}s have the same features "
            f"as another one, though their files differ ({first_few(self.alike, most=3)}): nothing "
            f"can tell them apart; are they {extractor.likely_alike}?"
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
        """Yield what a function returns for each piece, in the order of the pieces."""


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
        files = Source(
            str(source),
            media,
            ignored,
            extract=lambda store: _extract(media, extractor, store, engine, progress),
            keywords=lambda file: _read_keywords(file.path, kind),
        )
        return _fill(files, target, extractor)


def extract_table(
    table_file: str | Path,
    out: str | Path,
    extractor: MediaFeatures,
    *,
    text_column: str = "text",
    tags_column: str | None = None,
    delimiter: str | None = None,
    progress: Progress | None = None,
) -> Summary:
    """Extract the raw numbers of the texts in a column of a table.

    Rows are named by their ids, or by their numbers from 0; their tags, where they have some, are
    kept as files' keywords are. Interrupted, it goes on where it stopped when called again.

    Parameters
    ----------
    table_file : str or Path
        A table in any format.
    out : str or Path
        As for `extract_folder`.
    extractor : MediaFeatures
        One that takes texts, such as `TextFeatures`.
    text_column, tags_column, delimiter
        As for `polyseme.io.read_table`; without a column of tags rows have none.
    progress : callable, optional
        As for `extract_folder`.

    Returns
    -------
    Summary
    """
    from polyseme.io import read_texts

    source = Path(table_file)
    target = Path(out)
    if extractor.names_are_paths:
        raise InputError(f"A table has no {extractor.kind} files; name a folder that holds some.")
    with own_folder(target, _mark(extractor.kind)):
        table = read_texts(source, text_column, tags_column=tags_column, delimiter=delimiter)
        texts = table.texts or []
        ids = table.ids or list(map(str, range(len(texts))))
        rows = [MediaFile(row_id, Path(row_id)) for row_id in ids]
        text_by_row = dict(zip(rows, texts, strict=True))
        tags_by_row = dict(zip(rows, table.label_sets or [[]] * len(rows), strict=True))

        def keywords(row: MediaFile) -> Keywords:
            tags = distinct(tags_by_row[row])
            return Keywords(tags, [source.name] if tags else [], [])

        texts_of_table = Source(
            str(source),
            rows,
            [],
            extract=lambda store: _extract_texts(text_by_row, extractor, store, progress),
            keywords=keywords,
        )
        return _fill(texts_of_table, target, extractor)


class Source(NamedTuple):
    """Where items come from: files of a folder, or rows of a table."""

    name: str
    items: Sequence[MediaFile]
    ignored: Sequence[Reason]  # files that are no items
    # Puts numbers into the store; returns outcomes, and how many were in the store before.
    extract: Callable[[FeatureStore], tuple[list[bytes | str], int]]
    keywords: Callable[[MediaFile], Keywords]


def _fill(source: Source, target: Path, extractor: MediaFeatures) -> Summary:
    """Bring a folder of ours up to date; make its cache again where that is damaged."""
    _warn_about_damage(target)
    try:
        return _extract_and_write(source, target, extractor)
    except DamagedCacheError as damage:
        _warn(f"{damage} It is made again.")
        for file_name in ALL_CACHE_FILES:
            (target / file_name).unlink(missing_ok=True)
        return _extract_and_write(source, target, extractor)


def _extract_and_write(source: Source, target: Path, extractor: MediaFeatures) -> Summary:
    """Extract all items of a source, and write numbers, ledger and manifest."""
    kind = extractor.kind
    extracted: list[ExtractedFile] = []
    skipped: list[Reason] = []
    with FeatureStore(target / CACHE_FILE, extractor.digest()) as store:
        outcomes, n_cached = source.extract(store)
        for file, outcome in zip(source.items, outcomes, strict=True):
            if isinstance(outcome, bytes):
                extracted.append(ExtractedFile(file, outcome))
            else:
                skipped.append((file.id, outcome))
        if store.n_damaged:
            _warn(f"Damaged in '{store.path}', and made again: {store.n_damaged:,} entries.")
        if not extracted:
            reasons = [f"{names}: {reason}" for names, reason in by_reason(skipped)]
            raise InputError(
                f"None of the {len(source.items)} {kind} files in '{source.name}' can be used: "
                f"{first_few(reasons, most=3)}."
            )
        keywords_by_row = [source.keywords(file) for file, _ in extracted]
        try:
            alike = _write(
                target, extractor, extracted, keywords_by_row, skipped, source.ignored, store
            )
        except OSError as error:
            raise unwritable(target, error) from error
    places: Counter[str] = Counter()
    unread: list[Reason] = []
    n_tagged = 0
    for (file, _), keywords in zip(extracted, keywords_by_row, strict=True):
        places.update(keywords.places)
        unread += [(file.id, reason) for reason in keywords.unread]
        n_tagged += bool(keywords.tags)
    return Summary(
        kind,
        n_extracted=len(extracted),
        n_cached=n_cached,
        skipped=tuple(skipped),
        others=tuple(source.ignored),
        n_tagged=n_tagged,
        places=dict(places.most_common()),
        unread=tuple(unread),
        alike=tuple(alike),
    )


def _warn(sentence: str) -> None:
    """Warn about damage."""
    warnings.warn(sentence, PolysemeWarning, stacklevel=4)


def by_reason(files: Iterable[Reason]) -> list[tuple[str, str]]:
    """Return the first few names that have a reason, as one text, and the reason, for each."""
    names_by_reason: dict[str, list[str]] = defaultdict(list)
    for name, reason in files:
        names_by_reason[reason].append(name)
    groups: list[tuple[str, str]] = []
    for reason, names in names_by_reason.items():
        listed_names = first_few(names, most=3)
        groups.append((listed_names, reason))
    return groups


def _extract(
    media: Sequence[MediaFile],
    extractor: MediaFeatures,
    store: FeatureStore,
    engine: Engine | None,
    progress: Progress | None,
) -> tuple[list[bytes | str], int]:
    """Put the numbers of all files that can be used into the store.

    Returns the outcome of each file, in the order of `media`, and how many files' numbers were in
    the store before.
    """
    outcome_by_file: dict[MediaFile, bytes | str] = {}
    n_skipped = 0
    n_cached = 0

    def record(file: MediaFile, outcome: bytes | str) -> None:
        nonlocal n_skipped
        outcome_by_file[file] = outcome
        n_skipped += isinstance(outcome, str)
        if progress is not None:
            progress(len(outcome_by_file), len(media), n_skipped)

    def files_without_numbers() -> Iterator[tuple[MediaFile, FileHash]]:
        """Yield the files that are not in the store, and record all others."""
        nonlocal n_cached
        for file in media:
            try:
                file_hash = store.hashed(file.path)
            except OSError as error:
                record(file, f"cannot be opened ({cause(error)})")
                continue
            if store.find(file_hash.content) is not None:
                n_cached += 1
                record(file, file_hash.content)
            else:
                yield file, file_hash

    if engine is not None:
        new_paths = [file.path for file in media if store.noted(file.path) is None]
        hashes = map_files(engine, _hash_files, new_paths, _HASHED_AT_ONCE)
        for path, new_hash in zip(new_paths, hashes, strict=True):
            if new_hash is not None:
                store.note(path, new_hash)
    # The extractor takes paths ahead of the numbers that it yields; files wait for theirs.
    pending_files, queued_files = itertools.tee(files_without_numbers())
    paths = (file.path for file, _ in queued_files)
    raw_or_errors: Iterator[Raw | MediaError] = extractor.extract(paths)
    if engine is not None:
        worker_extractor = _worker_extractor(extractor)
        look = partial(look_at, worker_extractor, extractor.digest())
        # Whole batches, as one process has them.
        n_at_once = max(_LEAST_EXTRACTED_AT_ONCE, 2 * extractor.batch_size)
        raw_or_errors = map_files(engine, look, paths, n_at_once)
    for raw, (file, file_hash) in zip(raw_or_errors, pending_files, strict=True):
        if isinstance(raw, MediaError):
            record(file, str(raw))
        elif store.noted(file.path) != file_hash:
            record(file, "was changed while it was looked at; run again")
        else:
            store.put(file_hash.content, raw)
            record(file, file_hash.content)
    outcomes = [outcome_by_file[file] for file in media]
    return outcomes, n_cached


def _extract_texts(
    text_by_row: Mapping[MediaFile, str],
    extractor: MediaFeatures,
    store: FeatureStore,
    progress: Progress | None,
) -> tuple[list[bytes | str], int]:
    """Put the numbers of all texts that can be used into the store; see `_extract`."""
    content_by_row: dict[MediaFile, bytes] = {}
    for row, text in text_by_row.items():
        content_by_row[row] = hashlib.sha256(text.encode("utf-8", "replace")).digest()
    new_rows = [row for row, content in content_by_row.items() if store.find(content) is None]
    n_cached = len(text_by_row) - len(new_rows)
    outcome_by_row: dict[MediaFile, bytes | str] = dict(content_by_row)
    n_done = n_cached
    n_skipped = 0
    raw_or_errors = extractor.extract(text_by_row[row] for row in new_rows)
    for row, raw in zip(new_rows, raw_or_errors, strict=True):
        if isinstance(raw, MediaError):
            outcome_by_row[row] = str(raw)
            n_skipped += 1
        else:
            store.put(content_by_row[row], raw)
        n_done += 1
        if progress is not None:
            progress(n_done, len(text_by_row), n_skipped)
    return list(outcome_by_row.values()), n_cached


def _worker_extractor(extractor: MediaFeatures) -> MediaFeatures:
    """Return an extractor with the same numbers for a worker of a cluster, which has one thread."""
    parameters = extractor.get_params() | {"n_jobs": 1}
    if "random_state" in parameters:  # extraction draws nothing, so no generator need travel
        parameters["random_state"] = None
    return type(extractor)(**parameters)


def read_extraction(folder: str | Path) -> Extracted:
    """Read a folder that `extract_folder` wrote; the numbers stay on disk until they are used.

    Every file is compared with its digest; what is damaged is refused. Items have the order of
    `find_media`.
    """
    path = Path(folder)
    manifest = _manifest(path)
    kind = str(manifest["kind"])
    raw_axes = extractor_class(kind).raw_axes
    array_file = path / _ARRAY_FILES[raw_axes]
    ledger_file = path / LEDGER_FILE
    for file in (ledger_file, array_file):
        summary = manifest["files"].get(file.name)
        if not is_intact(file, summary):
            raise InputError(f"'{file}' {_damage_error(path)}")
    with refusing_damage(array_file):
        table = np.load(array_file, mmap_mode="r", allow_pickle=False)
    extracted_lines: list[dict[str, Any]] = []
    skipped: list[Reason] = []
    for line in _ledger_lines(path):
        if line["outcome"] == "extracted":
            extracted_lines.append(line)
        elif line["outcome"] == "skipped":
            skipped.append((line["file"], line["reason"]))
    n_rows_by_item = [line.get("segments", 1) for line in extracted_lines]
    ends = np.cumsum(n_rows_by_item)
    is_table = table.dtype == np.float32 and table.ndim == 2
    if not extracted_lines or not is_table or ends[-1] != len(table):
        raise InputError(f"'{ledger_file}' does not fit its numbers; it {_damage_error(path)}")
    raw: Sequence[Raw] = table
    if raw_axes == 2:
        raw = np.split(table, ends[:-1])
    tags = [tuple(line.get("tags", ())) for line in extracted_lines]
    return Extracted(
        kind,
        preprocessing=dict(manifest["preprocessing"]),
        ids=tuple(line["file"] for line in extracted_lines),
        raw=raw,
        tags=tuple(tags),
        skipped=tuple(skipped),
        parameters=dict(manifest.get("parameters", {})),
    )


def _ledger_lines(path: Path) -> list[dict[str, Any]]:
    """Return the lines of the ledger, one for each file, or raise where it is invalid."""
    ledger_file = path / LEDGER_FILE
    try:
        texts = ledger_file.read_bytes().split(b"\n")
        lines = [json.loads(text) for text in texts if text]
        is_valid = all(itertools.starmap(_is_line, enumerate(lines)))
    except (ValueError, RecursionError):
        is_valid = False
    if not is_valid:
        # The manifest's digests find accidents, not forgeries.
        raise InputError(f"'{ledger_file}' {_damage_error(path)}")
    return lines


def _is_line(position: int, line: Any) -> bool:
    """Whether a line of a ledger is as `_write` writes it: extracted files first, in their order.

    `position` is how many lines come before it, and of an extracted file its row.
    """
    if not isinstance(line, dict) or not isinstance(line.get("file"), str):
        return False
    outcome = line.get("outcome")
    if outcome != "extracted":
        has_reason = isinstance(line.get("reason"), str)
        return has_reason and outcome in ("skipped", "passed over")
    if line.get("row") != position:
        return False
    n_segments = line.get("segments", 1)
    if type(n_segments) is not int or n_segments < 1:  # True is an int for isinstance
        return False
    tags = line.get("tags", [])
    return isinstance(tags, list) and all(isinstance(tag, str) for tag in tags)


def is_extraction(path: Path) -> bool:
    """Return whether a path is a folder that an extraction was, or is being, written to."""
    if not path.is_dir():
        return False
    return _is_marked(path) or (path / MANIFEST_FILE).exists()


def _is_marked(path: Path) -> bool:
    """Return whether a folder is marked as ours for numbers of media files."""
    marks = [_mark(kind) for kind in extractor_classes()]
    return folder_kind(path) in marks


def _mark(kind: str) -> str:
    """Return what a folder with the numbers of a kind of media is marked as."""
    return f"numbers of {kind} files"


def caches_beside(path: Path) -> list[Path]:
    """Return the caches of extractions that lie in the same folder as a path, by name, at most 16.

    The path itself need not exist.
    """
    caches: list[Path] = []
    folder = path.absolute().parent
    for cache in folder.glob(f"*/{CACHE_FILE}"):
        if cache.is_file() and _is_marked(cache.parent):
            caches.append(cache)
    return sorted(caches)[:_MOST_CACHES]


# ---------------------------------------------------------------------- finding and matching files


def find_media(
    places: Iterable[Path], suffixes: frozenset[str], *, leave_out: Path | None = None
) -> tuple[list[MediaFile], list[Reason]]:
    """Find media files among files and in folders.

    Parameters
    ----------
    places : iterable of Path
        Files, which are taken whatever their suffix is, and folders, which are searched with all
        folders below them.
    suffixes : frozenset of str
        Of media files, in lower case.
    leave_out : Path, optional
        A folder that is not searched.

    Returns
    -------
    media : list of MediaFile
        Each file once, in the order of the places; of a folder first its files by name, then those
        of its folders.
    ignored : list of (name, reason)
        All other files of the folders.
    """
    file_by_path: dict[Path, MediaFile] = {}
    ignored: list[Reason] = []
    excluded_folder = None
    if leave_out is not None:
        excluded_folder = leave_out.resolve()
    for place in places:
        if not place.is_dir():
            if not os.path.lexists(place):
                raise InputError(f"There is no file or folder '{place}'; check the path.")
            file_by_path.setdefault(place.absolute(), MediaFile(place.as_posix(), place))
            continue
        for path in _walk(place, excluded_folder):
            name = path.relative_to(place).as_posix()
            reason = _reason_to_ignore(path, suffixes)
            if reason:
                ignored.append((name, reason))
            else:
                file_by_path.setdefault(path.absolute(), MediaFile(name, path))
    media = list(file_by_path.values())
    return media, ignored


def _walk(folder: Path, excluded_folder: Path | None) -> Iterator[Path]:
    """Yield every file, and every hidden or linked folder, which is not entered.

    The excluded folder, a resolved path, is left out. In the order of `find_media`.
    """

    def refuse(error: OSError) -> None:
        raise InputError(
            f"The folder '{error.filename}' cannot be read ({error.strerror}); check its "
            "permissions."
        ) from error

    for root, folder_names, file_names in os.walk(folder, onerror=refuse):
        entered_names: list[str] = []
        for name in sorted(folder_names):
            path = Path(root, name)
            if path.is_symlink() or name.startswith("."):
                yield path
            elif path.resolve() != excluded_folder:
                entered_names.append(name)
        folder_names[:] = entered_names  # `os.walk` enters what is left in its own list
        for name in sorted(file_names):
            yield Path(root, name)


def _reason_to_ignore(path: Path, suffixes: frozenset[str]) -> str:
    """Return why a path is passed over; empty for a media file, also for a broken link to one."""
    if path.name.startswith("."):
        return "is hidden"
    if path.is_dir():
        return "is a link to a folder"
    if path.suffix.lower() not in suffixes:
        return "has another kind of name"
    with contextlib.suppress(OSError):  # the reader reports why it cannot be opened
        is_regular = stat.S_ISREG(path.stat().st_mode)
        if not is_regular:
            return "is not a regular file"
    return ""


# ---------------------------------------------------------------------- files on a cluster


class UnseenError(MediaError):
    """A file that a worker's machine does not see; the message is the name of that machine."""


def map_files(
    engine: Engine | None, function: Callable[[Any], Any], paths: Iterable[Path], n_at_once: int
) -> Iterator[Any]:
    """Yield what a function returns for each file, in the order of the paths.

    The function is called with at most `n_at_once` absolute paths as texts, and returns as many
    results; an engine's workers call it, or without an engine this process. A file that has
    vanished meanwhile is a `MediaError`; one that only a worker's machine does not see ends the
    work.
    """
    absolute_paths = [str(path.absolute()) for path in paths]
    starts = range(0, len(absolute_paths), n_at_once)
    blocks = [absolute_paths[start : start + n_at_once] for start in starts]
    results_by_block: Iterator[Any] = map(function, blocks)
    if engine is not None:
        results_by_block = engine.map(function, blocks)
    results = itertools.chain.from_iterable(results_by_block)
    for absolute_path, result in zip(absolute_paths, results, strict=True):
        if not isinstance(result, UnseenError):
            yield result
        elif os.path.lexists(absolute_path):
            raise unseen(str(result), absolute_path)
        else:
            yield MediaError("cannot be opened (no such file or directory)")


def look_at(extractor: MediaFeatures, digest: str, paths: Sequence[str]) -> list[Raw | MediaError]:
    """Return the raw numbers of files, or why there are none; runs in workers of `map_files`.

    `digest` is the extractor's where the work was handed out: workers with other versions of
    libraries would make other numbers.
    """
    if extractor.digest() != digest:
        raise InputError(
            f"The machine '{socket.gethostname()}' would make other numbers of {extractor.kind} "
            "files; install the same versions on all machines."
        )
    outcomes: list[Raw | MediaError] = []
    with quiet_decoders():
        raw_or_errors = extractor.extract(map(Path, paths))
        for path, outcome in zip(paths, raw_or_errors, strict=True):
            if isinstance(outcome, MediaError) and not os.path.lexists(path):
                outcomes.append(UnseenError(socket.gethostname()))
            else:
                outcomes.append(outcome)
    return outcomes


def unseen(host: str, path: str | Path) -> InputError:
    """Build the error for a machine that lacks a file or folder."""
    return InputError(
        f"The machine '{host}' cannot see '{path}'; on a cluster, models and files must lie where "
        "all machines see them under the same path."
    )


def _hash_files(paths: Sequence[str]) -> list[FileHash | None]:
    """Return the hashes of files, None for one that cannot be read; runs in workers."""
    hashes: list[FileHash | None] = []
    for path in paths:
        file_hash = None
        with contextlib.suppress(OSError):
            file_hash = hash_file(Path(path))
        hashes.append(file_hash)
    return hashes


# ---------------------------------------------------------------------- the folder of numbers


def _warn_about_damage(target: Path) -> None:
    """Warn of a manifest that is damaged, or another version's, before it is made again."""
    if not (target / MANIFEST_FILE).exists():
        return
    if _read_manifest(target) is None:
        _warn(f"Damaged or of another version in '{target}', and made again: {MANIFEST_FILE}.")


def _write(
    target: Path,
    extractor: MediaFeatures,
    extracted: Sequence[ExtractedFile],
    keywords_by_row: Sequence[Keywords],
    skipped: Sequence[Reason],
    ignored: Sequence[Reason],
    store: FeatureStore,
) -> list[str]:
    """Write numbers, ledger and manifest; the manifest last, without which nothing is read.

    Returns the names of different files with the same numbers.
    """
    kind = extractor.kind
    array_name = _ARRAY_FILES[extractor.raw_axes]
    manifest: dict[str, Any] = {
        "format": FORMAT,
        "version": FORMAT_VERSION,
        "kind": kind,
        "preprocessing": extractor.preprocessing(),
        "parameters": extractor.plain_parameters(),
        "trained_tags": list(extractor.trained_tags()),
        "extracted": len(extracted),
        "skipped": len(skipped),
        "passed over": len(ignored),
    }
    shapes = [store.shape_of(content) for _, content in extracted]
    lines = _extracted_lines(extracted, shapes, keywords_by_row)
    n_rows = sum(line.get("segments", 1) for line in lines)
    for outcome, files in (("skipped", skipped), ("passed over", ignored)):
        lines += [{"file": name, "outcome": outcome, "reason": reason} for name, reason in files]
    n_columns = shapes[0][-1]
    header = {"descr": "<f4", "fortran_order": False, "shape": (n_rows, n_columns)}
    n_bytes = 4 * n_rows * n_columns
    check_room(target, n_bytes)
    with (
        replacing(target / MANIFEST_FILE) as manifest_stream,
        replacing(target / LEDGER_FILE) as ledger,
        replacing(target / array_name) as table,
    ):
        np.lib.format.write_array_header_1_0(table, header)
        # To find different files with the same numbers: content hashes by digest of the numbers.
        contents_by_digest: dict[bytes, set[bytes]] = defaultdict(set)
        digests: list[bytes] = []  # of each extracted file's numbers
        for _, content in extracted:
            raw_bytes = store.get(content).tobytes()
            table.write(raw_bytes)
            digest = hashlib.sha256(raw_bytes).digest()
            digests.append(digest)
            contents_by_digest[digest].add(content)
        for line in lines:
            text = json.dumps(line, ensure_ascii=False) + "\n"
            try:
                ledger.write(text.encode())
            except UnicodeEncodeError:  # a file name that is no text keeps its bytes as escapes
                ledger.write((json.dumps(line) + "\n").encode())
        summaries = {LEDGER_FILE: ledger.summary(), array_name: table.summary()}
        manifest_stream.write(sealed(manifest | {"files": summaries}))
        for stream in (table, ledger, manifest_stream):
            stream.settle()
        # Everything is written; without a manifest there is no extraction while names change.
        (target / MANIFEST_FILE).unlink(missing_ok=True)
    alike: list[str] = []
    for (file, _), digest in zip(extracted, digests, strict=True):
        if len(contents_by_digest[digest]) > 1:
            alike.append(file.id)
    return alike


def _extracted_lines(
    extracted: Sequence[ExtractedFile],
    shapes: Sequence[tuple[int, ...]],
    keywords_by_row: Sequence[Keywords],
) -> list[dict[str, Any]]:
    """Return the lines of the ledger for extracted files, in the order of their numbers.

    A line's `row` counts files; where a file has several rows in the table, `segments` is how many.
    """
    lines: list[dict[str, Any]] = []
    for row, (file, content) in enumerate(extracted):
        line = {"file": file.id, "outcome": "extracted", "row": row, "sha256": content.hex()}
        line |= _keyword_entries(keywords_by_row[row])
        shape = shapes[row]
        if len(shape) > 1:
            line["segments"] = shape[0]
        lines.append(line)
    return lines


def _keyword_entries(keywords: Keywords) -> dict[str, Any]:
    """Return the keywords of a file for its line of the ledger, without empty lists."""
    entries = {"tags": keywords.tags, "tags_from": keywords.places, "unread": keywords.unread}
    return {name: texts for name, texts in entries.items() if texts}


def _read_keywords(path: Path, kind: str) -> Keywords:
    """Read the keywords of a file of a kind; one that has vanished meanwhile has none."""
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
    if not (path / MANIFEST_FILE).exists():
        raise InputError(
            f"The extraction in '{path}' is not finished; run `polyseme extract` on it again."
        )
    manifest = _read_manifest(path)
    if manifest is not None:
        return manifest
    version = _version_of(path)
    if version in (None, FORMAT_VERSION):
        raise InputError(f"'{path / MANIFEST_FILE}' {_damage_error(path)}")
    raise InputError(
        f"'{path}' was written by another version of polyseme; extract the files to another folder."
    )


def _read_manifest(path: Path) -> dict[str, Any] | None:
    """Return the manifest; None where it is damaged, or another version's."""
    try:
        content = (path / MANIFEST_FILE).read_bytes()
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
    files = manifest.get("files")
    preprocessing = manifest.get("preprocessing")
    parameters = manifest.get("parameters", {})
    if not all(isinstance(table, dict) for table in (files, preprocessing, parameters)):
        return None
    return manifest


def _version_of(path: Path) -> object:
    """Return the version that a manifest names, whatever else is wrong; None without one."""
    with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
        manifest = json.loads((path / MANIFEST_FILE).read_bytes())
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
