"""From a folder of media to a folder of numbers: resumable, cached, with every file accounted for.

In: a folder of pictures or of sound. Out: a folder with their raw numbers (`features.npy` for
pictures, `segments.npy` for sound), a line for every file met (`files.jsonl`), the recipe
(`extraction.json`) and a cache.
"""

from __future__ import annotations

import json
import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from polyseme._validation import InputError, first_few
from polyseme.features.base import Extracted, MediaFeatures, Raw
from polyseme.features.executor import Executor
from polyseme.features.finding import Found, MediaFile, find_media
from polyseme.features.media import MediaError
from polyseme.features.store import FeatureStore, state_of
from polyseme.io import replacing
from polyseme.io.xmp import read_tags, sidecar_of

MANIFEST, LEDGER, CACHE = "extraction.json", "files.jsonl", "cache.sqlite"
FORMAT, FORMAT_VERSION = "polyseme extraction", 1
_TABLES = {"image": "features.npy", "audio": "segments.npy"}

Tell = Callable[[int, int, int], None]


@dataclass(frozen=True)
class Summary:
    """What became of every file.

    Attributes
    ----------
    kind : str
        "image" or "audio".
    n_extracted, n_cached : int
        Files with numbers, and how many of them had been looked at before.
    skipped : tuple of (str, str)
        Media files that could not be used, and why.
    others : tuple of (str, str)
        Files that are no media of this kind, and why.
    sidecars : tuple of (str, str)
        Extracted files whose sidecar cannot be read, and why.
    """

    kind: str
    n_extracted: int
    n_cached: int
    skipped: tuple[tuple[str, str], ...]
    others: tuple[tuple[str, str], ...]
    sidecars: tuple[tuple[str, str], ...]

    def sentence(self) -> str:
        """Say it in one sentence."""
        total = self.n_extracted + len(self.skipped)
        noun = {"image": "picture", "audio": "sound"}[self.kind]
        told = f"{self.n_extracted:,} of {total:,} {noun} files extracted"
        if self.n_cached:
            told += f" ({self.n_cached:,} from the cache)"
        told += f", {len(self.skipped):,} skipped"
        others = "file" if len(self.others) == 1 else "files"
        return told + f"; {len(self.others):,} other {others} passed over"


@dataclass(frozen=True, eq=False)
class Extraction(Extracted):
    """What `extract_folder` wrote.

    Attributes
    ----------
    tags : tuple of tuples of str
        The tags in each item's sidecar file, without those that polyseme suggested; empty where
        there is none.
    skipped : tuple of (str, str)
        Media files that could not be used, and why.
    """

    tags: tuple[tuple[str, ...], ...] = ()
    skipped: tuple[tuple[str, str], ...] = ()


def extract_folder(
    folder: str | Path,
    out: str | Path,
    extractor: MediaFeatures,
    *,
    tell: Tell | None = None,
    executor: Executor | None = None,
) -> Summary:
    """Extract the raw numbers of all media files of a folder.

    Interrupted, it goes on where it stopped when called again; files that were looked at before
    (by content, whatever their name is now) are not looked at again.

    Parameters
    ----------
    folder : str or Path
        Looked through with all folders below it; nothing in it is changed.
    out : str or Path
        A folder to write to: new, empty, or one that an extraction was written to before.
    extractor : MediaFeatures
        Says which files are media and how they become numbers; it need not be fitted.
    tell : callable, optional
        Called after each file with the number done, of how many, and how many were skipped.
    executor : Executor, optional
        Who reads files and looks at them; by default this process.

    Returns
    -------
    Summary
    """
    source, target = Path(folder), Path(out)
    if not source.is_dir():
        raise InputError(f"There is no folder '{source}'; name the folder that holds the files.")
    _prepare(source, target, extractor.kind)
    found = find_media([source], extractor.suffixes, leave_out=target)
    if not found.media:
        raise InputError(
            f"There is no {extractor.kind} file in '{source}' ({len(found.others)} other files); "
            f"names must end in {', '.join(sorted(extractor.suffixes))}."
        )
    with FeatureStore(target / CACHE, extractor.digest()) as store:
        if executor is not None:
            executor.prepare(found.media, store)
        extract = extractor.extract if executor is None else executor.extract
        contents, skipped, n_cached = _extract(found.media, extract, store, tell)
        kept = [file for file in found.media if file.id in contents]
        if not kept:
            raise InputError(
                f"None of the {len(found.media)} {extractor.kind} files in '{source}' can be used: "
                f"{first_few([f'{name} {why}' for name, why in skipped.items()], most=3)}."
            )
        pairs = [(file, contents[file.id]) for file in kept]
        sidecars = _write(target, extractor, found, pairs, skipped, store)
    return Summary(
        extractor.kind,
        len(kept),
        n_cached,
        tuple(skipped.items()),
        tuple(found.others),
        tuple(sidecars),
    )


def read_extraction(folder: str | Path) -> Extraction:
    """Read what `extract_folder` wrote; the numbers stay on disk until they are used.

    Parameters
    ----------
    folder : str or Path

    Returns
    -------
    Extraction
    """
    path = Path(folder)
    manifest = _manifest(path)
    kind = str(manifest["kind"])
    table = _table(path / _TABLES[kind])
    rows = [json.loads(line) for line in (path / LEDGER).read_bytes().split(b"\n") if line]
    used = [row for row in rows if row["outcome"] == "extracted"]
    raw: Sequence[Raw] = table
    n_rows = len(used)
    if kind == "audio":
        ends = np.cumsum([row["segments"] for row in used])
        raw = np.split(table, ends[:-1])
        n_rows = int(ends[-1])
    if n_rows != len(table):
        raise InputError(f"'{path}' was written in part; run `polyseme extract` on it again.")
    return Extraction(
        kind,
        dict(manifest["recipe"]),
        tuple(row["file"] for row in used),
        raw,
        tuple(tuple(row.get("tags", ())) for row in used),
        tuple((row["file"], row["reason"]) for row in rows if row["outcome"] == "skipped"),
    )


def is_extraction(path: Path) -> bool:
    """Say whether a path is a folder that an extraction was, or is being, written to."""
    return path.is_dir() and any((path / name).exists() for name in (MANIFEST, CACHE))


# ---------------------------------------------------------------------- looking at files


def _extract(
    media: Sequence[MediaFile],
    extract: Callable[[Iterable[Path]], Iterator[Raw | MediaError]],
    store: FeatureStore,
    tell: Tell | None,
) -> tuple[dict[str, bytes], dict[str, str], int]:
    """Fill the store; give the content hash of every usable file, reasons, and the known ones."""
    contents: dict[str, bytes] = {}
    skipped: dict[str, str] = {}
    waiting: deque[tuple[MediaFile, bytes, str]] = deque()
    n_cached = 0

    def note() -> None:
        if tell is not None:
            tell(len(contents) + len(skipped), len(media), len(skipped))

    def unknown() -> Iterator[Path]:
        """Yield what has to be looked at; it waits in the same order for its numbers."""
        nonlocal n_cached
        for file in media:
            try:
                state = state_of(file.path)
                content = store.content_of(file.path)
            except OSError as error:
                skipped[file.id] = _why(error)
                note()
                continue
            if store.has(content):
                contents[file.id] = content
                n_cached += 1
                note()
            else:
                waiting.append((file, content, state))
                yield file.path

    for raw in extract(unknown()):
        file, content, state = waiting.popleft()
        if isinstance(raw, MediaError):
            skipped[file.id] = str(raw)
        elif _state_or_nothing(file.path) != state:
            skipped[file.id] = "was changed while it was looked at; run again"
        else:
            store.put(content, raw)
            contents[file.id] = content
        note()
    order = {file.id: place for place, file in enumerate(media)}
    return contents, dict(sorted(skipped.items(), key=lambda one: order[one[0]])), n_cached


def _state_or_nothing(path: Path) -> str:
    """Give the state of a file; nothing when it has gone."""
    try:
        return state_of(path)
    except OSError:
        return ""


def _why(error: OSError) -> str:
    """Say in a few words why a file cannot be opened."""
    return f"cannot be opened ({(error.strerror or str(error)).lower()})"


# ---------------------------------------------------------------------- the folder of numbers


def _prepare(source: Path, target: Path, kind: str) -> None:
    """Make the folder to write to, or refuse one that holds something else."""
    if target.exists() and not target.is_dir():
        raise InputError(f"'{target}' is a file; name a folder to write to.")
    if target.exists() and target.resolve() == source.resolve():
        raise InputError("Media and numbers need two folders; name another one to write to.")
    foreign = [] if not target.exists() or is_extraction(target) else list(target.iterdir())
    if foreign:
        raise InputError(
            f"'{target}' holds '{foreign[0].name}', which no extraction wrote; name another folder."
        )
    if (target / MANIFEST).exists() and _manifest(target)["kind"] != kind:
        raise InputError(
            f"'{target}' holds numbers of {_manifest(target)['kind']} files; name another folder."
        )
    try:
        target.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=target):
            pass
    except OSError as error:
        raise InputError(f"Nothing can be written to '{target}': {error.strerror}.") from None


def _write(
    target: Path,
    extractor: MediaFeatures,
    found: Found,
    kept: Sequence[tuple[MediaFile, bytes]],
    skipped: dict[str, str],
    store: FeatureStore,
) -> list[tuple[str, str]]:
    """Write numbers, ledger and manifest; give the files whose sidecar cannot be read."""
    manifest = {
        "format": FORMAT,
        "version": FORMAT_VERSION,
        "kind": extractor.kind,
        "recipe": extractor.recipe(),
        "extracted": len(kept),
        "skipped": len(skipped),
        "passed over": len(found.others),
    }
    damaged = []
    with (
        replacing(target / MANIFEST) as last,
        replacing(target / LEDGER) as ledger,
        replacing(target / _TABLES[extractor.kind]) as table,
    ):
        lengths = _write_table(table, extractor.kind, kept, store)
        for row, ((file, content), length) in enumerate(zip(kept, lengths, strict=True)):
            line: dict[str, Any] = {"file": file.id, "outcome": "extracted", "row": row}
            line |= {"sha256": content.hex()} | _sidecar(file.path)
            if "sidecar" in line:
                damaged.append((file.id, str(line["sidecar"])))
            if extractor.kind == "audio":
                line["segments"] = length
            ledger.write(_line(line))
        for outcome, files in (("skipped", skipped.items()), ("passed over", found.others)):
            for name, reason in files:
                ledger.write(_line({"file": name, "outcome": outcome, "reason": reason}))
        last.write((json.dumps(manifest, indent=2) + "\n").encode())
        # Everything is written; without a manifest there is no extraction while names change.
        (target / MANIFEST).unlink(missing_ok=True)
    return damaged


def _write_table(
    stream: BinaryIO, kind: str, kept: Sequence[tuple[MediaFile, bytes]], store: FeatureStore
) -> list[int]:
    """Write all raw numbers as one array, row by row; give the rows of each file."""
    lengths, n_columns = [], 0
    for _, content in kept:
        raw = store.get(content)
        assert raw is not None  # put there a moment ago
        lengths.append(len(raw) if kind == "audio" else 1)
        n_columns = raw.shape[-1]
    header = {"descr": "<f4", "fortran_order": False, "shape": (sum(lengths), n_columns)}
    np.lib.format.write_array_header_1_0(stream, header)
    for _, content in kept:
        raw = store.get(content)
        assert raw is not None
        stream.write(raw.tobytes())
    return lengths


def _sidecar(path: Path) -> dict[str, Any]:
    """Give the tags of a file's sidecar, or why they cannot be read, for the ledger."""
    sidecar = sidecar_of(path)
    if not sidecar.exists():
        return {}
    try:
        # A model must not learn from what a model suggested.
        tags = read_tags(sidecar, suggested=False)
    except InputError as error:
        return {"sidecar": str(error)}
    return {"tags": tags} if tags else {}


def _line(record: dict[str, Any]) -> bytes:
    """Write one record of the ledger."""
    try:
        return (json.dumps(record, ensure_ascii=False) + "\n").encode()
    except UnicodeEncodeError:  # a file name that is no text keeps its bytes as escapes
        return (json.dumps(record) + "\n").encode()


def _manifest(path: Path) -> dict[str, Any]:
    """Read the manifest, or say what is there instead."""
    if not is_extraction(path):
        raise InputError(
            f"'{path}' is no folder that `polyseme extract` wrote; `polyseme tag` takes media "
            "files themselves."
        )
    try:
        manifest = json.loads((path / MANIFEST).read_bytes())
    except FileNotFoundError:
        raise InputError(
            f"The extraction in '{path}' is not finished; run `polyseme extract` on it again."
        ) from None
    except ValueError:
        manifest = None
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise InputError(f"'{path / MANIFEST}' is damaged; run `polyseme extract` on it again.")
    if manifest.get("version") != FORMAT_VERSION or manifest.get("kind") not in _TABLES:
        raise InputError(
            f"'{path}' was written by another version of polyseme; extract the files again."
        )
    return manifest


def _table(path: Path) -> Any:
    """Map the raw numbers of an extraction into memory."""
    try:
        return np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError) as error:
        raise InputError(
            f"'{path}' cannot be read ({error}); run `polyseme extract` on its folder again."
        ) from error
