"""Files: the step before the corpus, which turns files into plain Python and numpy structures.

In come tag sets and instance features in any of the file formats registered below; out go
`RawDocuments` and feature matrices. A new format is one new module here and one line in a table.
"""

from __future__ import annotations

import gzip
import os
import secrets
import shutil
import time
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, BinaryIO, TypeAlias, cast

import scipy.sparse as sp

from polyseme._validation import FloatArray, InputError, unknown_name

__all__ = ["RawDocuments", "read_documents", "read_features"]

PathLike: TypeAlias = str | os.PathLike[str]

# suffix -> the module of this folder that reads it, imported only when such a file is read
_TABLES = dict.fromkeys((".csv", ".csv.gz", ".tsv", ".tsv.gz"), "tables")
_ARFF = dict.fromkeys((".arff", ".arff.gz"), "arff")
DOCUMENT_FORMATS = {".jsonl": "tables", ".jsonl.gz": "tables", ".npz": "arrays", **_TABLES, **_ARFF}
FEATURE_FORMATS = {".npy": "arrays", ".npz": "arrays", ".parquet": "shards", **_TABLES, **_ARFF}
MAX_LINE_BYTES = 16 * 2**20
# How the name of a file ends that is still being written.
UNFINISHED = ".tmp"


@dataclass(frozen=True)
class RawDocuments:
    """The documents of one file, as written there: `label_sets`, or `indicator` with `labels`."""

    label_sets: list[list[str]] | None = None  # in the order of the file, duplicates kept
    indicator: sp.csr_matrix | None = None  # (n, n_labels), 1 where a document has a label
    labels: list[str] | None = None  # the columns of `indicator`
    # One per document, where the file has them; a split is 'train' or 'test'.
    ids: list[str] | None = None
    groups: list[str] | None = None
    splits: list[str] | None = None

    def __len__(self) -> int:
        if self.label_sets is not None:
            return len(self.label_sets)
        return 0 if self.indicator is None else int(self.indicator.shape[0])


def read_documents(
    path: PathLike, *, tags_column: str | None = None, delimiter: str | None = None
) -> RawDocuments:
    """Read the documents (tag sets) of a file; the suffix says which format it has.

    Parameters
    ----------
    path : str or path
        A `.jsonl`, `.csv`, `.tsv` or `.arff` file, gzipped or not, or an `.npz` file.
    tags_column : str, optional
        For `.csv` and `.tsv`: the column with the tags; `tags` or `labels` otherwise.
    delimiter : str, optional
        For `.csv` and `.tsv`: what separates the tags in a cell. Otherwise the first of
        `;`, `|` and `,` that occurs anywhere in the column; where none does, a cell is one tag.

    Returns
    -------
    RawDocuments
        At least one document.
    """
    file, suffix, reader = _find(path, DOCUMENT_FORMATS, kind="Documents")
    options = {"tags_column": tags_column, "delimiter": delimiter} if suffix in _TABLES else {}
    if not options and (tags_column, delimiter) != (None, None):
        raise InputError(
            f"`tags_column` and `delimiter` apply to .csv and .tsv files only; got {file.name}."
        )
    documents = cast(RawDocuments, reader.read_documents(file, **options))
    if len(documents) == 0:
        raise InputError(f"{file.name} holds no documents; give a file with at least one.")
    return documents


def read_features(path: PathLike) -> FloatArray | sp.csr_matrix:
    """Read the instance features of a file; the suffix says which format it has.

    Parameters
    ----------
    path : str or path
        An `.npy`, `.npz` or `.parquet` file, or a `.csv`, `.tsv` or `.arff` file, gzipped or not.

    Returns
    -------
    float array or csr_matrix, shape (n, n_features)
        One row per instance in the order of the file; missing values are NaN.
    """
    file, _, reader = _find(path, FEATURE_FORMATS, kind="Features")
    features = cast("FloatArray | sp.csr_matrix", reader.read_features(file))
    if 0 in features.shape:
        raise InputError(
            f"{file.name} holds features of shape {features.shape}; "
            "give at least one row and one column."
        )
    return features


def _find(path: PathLike, formats: Mapping[str, str], *, kind: str) -> tuple[Path, str, ModuleType]:
    """Give an existing file, its suffix and the module that reads it, the longest suffix first."""
    file = Path(path)
    if file.is_dir():
        raise InputError(f"{file} is a folder; name a file in it.")
    if not file.exists():
        raise InputError(f"{kind} file not found at {file}; check the path.")
    suffixes = [suffix for suffix in formats if file.name.lower().endswith(suffix)]
    if not suffixes:
        suffix = "".join(file.suffixes[-2:]) or file.name
        raise unknown_name(f"{kind.lower()} file suffix", suffix, formats)
    suffix = max(suffixes, key=len)
    return file, suffix, import_module(f"polyseme.io.{formats[suffix]}")


def numbered_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield (line number from 1, text with its line end) of a UTF-8 file, gzipped or not."""
    number = 0
    zipped = path.name.lower().endswith(".gz")
    try:
        with cast(BinaryIO, gzip.open(path)) if zipped else path.open("rb") as stream:
            # Two bytes more than allowed leave room for the line end of the longest line.
            while line := stream.readline(MAX_LINE_BYTES + 2):
                number += 1
                if len(line.rstrip(b"\r\n")) > MAX_LINE_BYTES:
                    limit = f"{MAX_LINE_BYTES / 2**20:g} MiB"
                    raise line_error(path, number, f"is longer than {limit}; split the line.")
                # Some editors put a mark before the first line.
                yield number, line.decode("utf-8-sig" if number == 1 else "utf-8")
    except UnicodeDecodeError as error:
        what = f"is not valid UTF-8 at byte {error.start + 1}; save the file as UTF-8."
        raise line_error(path, number, what) from error
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InputError(
            f"{path.name} is not a complete gzip file ({error}); fetch or compress it again."
        ) from error
    except OSError as error:
        raise InputError(
            f"{path} cannot be read ({error.strerror}); check the file and its permissions."
        ) from error


def line_error(path: Path, number: int, what: str) -> InputError:
    """Build the error for one line of a file; `what` completes "Line 3 of tags.csv …"."""
    return InputError(f"Line {number} of {path.name} {what}")


def parse_xml(data: bytes, name: str, encoding: str | None = None) -> Any:
    """Parse XML without entities, network or deep nesting; give lxml's root element."""
    try:
        from lxml import etree
    except ImportError as error:
        raise InputError(
            f"{name} needs lxml, which comes with the extras `image`, `audio` and `arff`; "
            "run pip install '.[arff]' in a checkout."
        ) from error
    options = {"resolve_entities": False, "no_network": True, "strip_cdata": False}
    try:
        root = etree.fromstring(data, etree.XMLParser(encoding=encoding, **options))
    except etree.XMLSyntaxError as error:
        raise InputError(
            f"{name} is not well-formed XML ({error.msg}); repair it or move it away."
        ) from error
    if root.getroottree().docinfo.doctype:
        raise InputError(f"{name} has a DOCTYPE, which is not supported; remove it.")
    return root


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Write a file under a temporary name; it replaces `path` as a whole, or not at all.

    A file that was there before keeps its owner, where the system lets it, and its permissions.
    """
    temporary = path.with_name(f".{secrets.token_hex(8)}{UNFINISHED}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    try:
        # Nobody else reads it before it has the permissions of the file that was there.
        descriptor = os.open(temporary, flags, 0o600 if path.exists() else 0o666)
        with os.fdopen(descriptor, "wb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        if path.exists():
            with suppress(OSError, AttributeError):  # a system without owners
                shutil.chown(temporary, path.stat().st_uid, path.stat().st_gid)
            shutil.copymode(path, temporary)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


@contextmanager
def locked(folder: Path, seconds: float, error: type[InputError] = InputError) -> Iterator[bool]:
    """Hold the lock of a folder, which a kill frees; False where there is none to have."""
    try:
        import fcntl
    except ImportError:
        yield False
        return
    descriptor = os.open(folder, os.O_RDONLY)
    give_up, is_locked = time.monotonic() + seconds, False
    try:
        while not is_locked:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                is_locked = True
            except BlockingIOError as busy:
                # Waiting without end would hang a signal handler that saves during a save.
                if time.monotonic() > give_up:
                    raise error(
                        f"'{folder}' has been locked by another writer for {seconds:g} s; try "
                        "again when that one is done."
                    ) from busy
                time.sleep(0.005)
            except OSError:
                break  # a file system without locks
        yield is_locked
    finally:
        if is_locked:
            # A process forked meanwhile shares the lock, so closing alone would not free it.
            fcntl.flock(descriptor, fcntl.LOCK_UN)
        os.close(descriptor)
