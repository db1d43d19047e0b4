"""The files of a model directory: who may write there, in which order, and what is cleared away.

In come the finished bytes of a model; out comes a directory in which they replace the old ones as
a whole or not at all. What the bytes mean is the business of `_persistence`.
"""

from __future__ import annotations

import errno
import json
import os
import re
import secrets
import stat
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from polyseme._validation import InputError

FORMAT_NAME = "polyseme"
MANIFEST = "manifest.json"
PAYLOAD = re.compile(r"config-[0-9a-f]{12}\.json|arrays-[0-9a-f]{12}\.safetensors")

_MANIFEST_LIMIT = 1 << 20
_LOCK_SECONDS = 120.0
_TEMPORARY = re.compile(rf"(?:{re.escape(MANIFEST)}|{PAYLOAD.pattern})\.[0-9a-f]{{16}}\.tmp")


class ModelFileError(InputError):
    """A model directory cannot be written or read; the message says which file and why."""


def replace_files(directory: Path, payloads: Mapping[str, bytes], manifest: bytes) -> None:
    """Put a model's files in the place of those in the directory, which may be absent or empty.

    Parameters
    ----------
    directory : Path
        The model directory.
    payloads : mapping of str to bytes
        The payload files by name.
    manifest : bytes
        The manifest that names them.

    Raises
    ------
    ModelFileError
        When the directory is not a model's, is locked for too long, or cannot be written.
    """
    try:
        _make_directory(directory)
        with _write_lock(directory) as locked:
            replaced = _files_to_replace(directory)
            _publish(directory, payloads, manifest, stale=None if locked else replaced)
    except OSError as error:
        raise ModelFileError(
            f"Could not write the model to '{directory}': {error.strerror or error}; "
            "a model that was there before is unchanged."
        ) from error


def remove_files(directory: Path) -> None:
    """Remove a model's files, manifest first, and then the directory if nothing else is in it.

    Parameters
    ----------
    directory : Path
        The model directory; if it is absent or not a model's, nothing happens.

    Raises
    ------
    ModelFileError
        When it is locked for too long or a file cannot be removed.
    """
    try:
        if not directory.is_dir():
            return
        with _write_lock(directory):
            if _is_foreign(directory):
                return
            # Without a manifest there is no model, so a kill from here on leaves none by halves.
            (directory / MANIFEST).unlink(missing_ok=True)
            _sync_directory(directory)
            for entry in list(directory.iterdir()):
                if _is_ours(entry.name) and entry.is_file() and not entry.is_symlink():
                    entry.unlink(missing_ok=True)
            # It may hold other files, be a mount point or be reached by a link: then it stays.
            with suppress(OSError):
                directory.rmdir()
    except FileNotFoundError:
        return  # somebody else removed it meanwhile
    except OSError as error:
        raise ModelFileError(
            f"Could not remove the model at '{directory}': {error.strerror or error}; "
            "remove it by hand."
        ) from error


def fault(directory: Path, name: str, what: str) -> ModelFileError:
    """Build the error about one file of a model."""
    return ModelFileError(f"File '{name}' of the model at '{directory}' {what}.")


def read_manifest(directory: Path) -> bytes:
    """Read the manifest's bytes, after checking that there is one and that it is small."""
    if not directory.is_dir():
        what = "this is a file, not a directory" if directory.exists() else "no such directory"
        raise ModelFileError(f"There is no polyseme model at '{directory}': {what}.")
    if not os.path.lexists(directory / MANIFEST):
        raise ModelFileError(f"'{directory}' is not a polyseme model: it has no {MANIFEST}.")
    return read_file(directory, MANIFEST, None)


def read_file(directory: Path, name: str, expected: int | None) -> bytes:
    """Read a regular file whose size was checked first (None: any size a manifest may have)."""
    try:
        info = (directory / name).lstat()
        size = info.st_size
        if stat.S_ISLNK(info.st_mode):
            raise fault(directory, name, "is a symbolic link; put the file itself in its place")
        if not stat.S_ISREG(info.st_mode):
            raise fault(directory, name, "is not a regular file")
        if expected is None and size > _MANIFEST_LIMIT:
            raise fault(directory, name, f"is too large ({size} bytes) to be a manifest")
        if expected is not None and size != expected:
            what = "is truncated" if size < expected else "is too long"
            what += f" ({size} bytes instead of {expected}); copy or save the model again"
            raise fault(directory, name, what)
        with (directory / name).open("rb") as stream:
            return stream.read(size)
    except FileNotFoundError as error:
        raise fault(directory, name, "is missing; copy or save the model again") from error
    except OSError as error:
        raise fault(directory, name, f"cannot be read: {error.strerror or error}") from error


def parse_object(raw: bytes) -> dict[str, Any] | None:
    """Parse bytes as one JSON object; None when they are anything else."""

    def refuse(constant: str) -> None:
        raise ValueError(constant)

    try:
        content = json.loads(raw.decode("utf-8"), parse_constant=refuse)
    except (ValueError, RecursionError):
        return None
    return content if isinstance(content, dict) else None


def named_files(content: Mapping[str, Any]) -> frozenset[str] | None:
    """Return the file names a manifest holds, or None when it holds no such table."""
    files = content.get("files")
    return frozenset(files) if isinstance(files, dict) else None


def _make_directory(directory: Path) -> None:
    """Create the model directory and its parents, and make the new entries durable."""
    if directory.exists() and not directory.is_dir():
        raise ModelFileError(
            f"Cannot write a model to '{directory}': a model is a directory, and this is a file; "
            "choose another path."
        )
    missing = [place for place in (directory, *directory.parents) if not place.exists()]
    if missing:
        directory.mkdir(parents=True, exist_ok=True)
    for place in missing:
        _sync_directory(place.parent)


@contextmanager
def _write_lock(directory: Path) -> Iterator[bool]:
    """Hold the directory's write lock, which a kill releases; False where there is none."""
    try:
        import fcntl
    except ImportError:
        yield False
        return
    descriptor = os.open(directory, os.O_RDONLY)
    give_up = time.monotonic() + _LOCK_SECONDS
    locked = False
    try:
        while not locked:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                locked = True
            except BlockingIOError as error:
                # Waiting without end would hang a signal handler that saves during a save.
                if time.monotonic() > give_up:
                    raise ModelFileError(
                        f"The model at '{directory}' has been locked by another writer for "
                        f"{_LOCK_SECONDS:g} s; try again when that one is done."
                    ) from error
                time.sleep(0.01)
            except OSError:
                break
        yield locked
    finally:
        if locked:
            # A process forked meanwhile shares the lock, so closing alone would not free it.
            fcntl.flock(descriptor, fcntl.LOCK_UN)
        os.close(descriptor)


def _files_to_replace(directory: Path) -> frozenset[str]:
    """Refuse a directory that is not ours; return the file names its manifest holds."""
    foreign = sorted(entry.name for entry in directory.iterdir() if not _is_ours(entry.name))
    if MANIFEST in foreign:
        content = parse_object(read_manifest(directory)) or {}
        if content.get("format") == FORMAT_NAME:
            return named_files(content) or frozenset()
        found = f"its {MANIFEST} is not one of polyseme's"
    elif foreign:
        found = f"it holds '{foreign[0]}' and no {MANIFEST}"
    else:
        return frozenset()
    raise ModelFileError(
        f"Refusing to write a model to '{directory}': the directory is neither empty nor a "
        f"polyseme model ({found}); choose another path."
    )


def check_folder(directory: Path) -> None:
    """Raise unless a directory is absent, empty or a model's, and its parents are directories."""
    if directory.is_dir():
        _files_to_replace(directory)
    elif directory.exists():
        raise ModelFileError(
            f"Refusing to write a model to '{directory}': it is a file; choose another path."
        )


def _is_foreign(directory: Path) -> bool:
    """Tell whether a directory is one that no model may be written to."""
    try:
        _files_to_replace(directory)
    except ModelFileError:
        return True
    return False


def _publish(
    directory: Path, payloads: Mapping[str, bytes], manifest: bytes, *, stale: frozenset[str] | None
) -> None:
    """Put payloads, then the manifest, on disk, and remove what is stale (None: all leftovers)."""
    try:
        for name, data in payloads.items():
            _put(directory, name, data)
        _sync_directory(directory)
        _put(directory, MANIFEST, manifest)
    except OSError:
        _remove_stale(directory, stale)
        raise
    try:
        _sync_directory(directory)
    except OSError as error:
        # The old payload stays: after a power failure the old manifest may be back.
        raise ModelFileError(
            f"The model at '{directory}' was replaced, but the file system could not confirm that "
            f"it is on disk ({error.strerror or error}); write it again."
        ) from error
    _remove_stale(directory, stale)


def _put(directory: Path, name: str, data: bytes) -> None:
    """Write one file under a temporary name, force it to disk and rename it."""
    temporary = directory / f"{name}.{secrets.token_hex(8)}.tmp"
    try:
        with temporary.open("xb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(directory / name)
    except BaseException:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise


def _sync_directory(directory: Path) -> None:
    """Force the directory's entries to disk, where the system can do that."""
    try:
        descriptor = os.open(directory, os.O_RDONLY)
    except PermissionError:
        return  # Windows opens no directories; on POSIX a parent may be writable but unreadable.
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)


def _remove_stale(directory: Path, stale: frozenset[str] | None) -> None:
    """Remove files of ours that the manifest on disk does not name; leftovers do no harm."""
    with suppress(OSError, ModelFileError):
        entries = [entry.name for entry in directory.iterdir()]
        kept: frozenset[str] | None = frozenset()
        if MANIFEST in entries:
            kept = named_files(parse_object(read_manifest(directory)) or {})
        for name in entries:
            if kept is None or name in kept or not _is_ours(name):
                continue
            if stale is None or name in stale:
                with suppress(OSError):
                    (directory / name).unlink()


def _is_ours(name: str) -> bool:
    """Tell whether a file name is that of a payload or of an abandoned temporary file."""
    return bool(PAYLOAD.fullmatch(name) or _TEMPORARY.fullmatch(name))
