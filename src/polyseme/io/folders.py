"""Folders and files that are ours: how they are known, and what of them is ever removed.

In: paths to write to. Out: folders that carry our mark, which they got when they were new or empty,
and files that appear whole or not at all, with their digests. A file that is still being written
has a name that nobody else draws, for half of it is a digest of the other half: such files, and no
others, are swept once nobody writes them any more.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import secrets
import shutil
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from polyseme._validation import InputError

MARK = ".polyseme"
_FORMAT, _VERSION = "polyseme folder", 1
_DRAWN = re.compile(r"\.polyseme-([0-9a-f]{16})-([0-9a-f]{16})\.tmp")
_MARK_BYTES = 1 << 16
_LOCK_SECONDS = 1.0
_ROWS, _COLUMNS = 128, 4096  # of the words that are summed at a time, 4 MiB

Summary = dict[str, str | int]  # of a file: its digests and its size in bytes
Adopt = Callable[[Path], bool]


# ---------------------------------------------------------------------- folders


def mark_folder(path: Path, kind: str, adopt: Adopt | None = None) -> None:
    """Make a folder to write to, or refuse one that is not ours; sweep it.

    Parameters
    ----------
    path : Path
        New, empty, or a folder that was marked for the same kind before. What is in that must be
        regular files and folders: a link or a pipe is not of our making.
    kind : str
        What it holds, in words, such as "rankings".
    adopt : callable, optional
        Says whether a folder without a mark is nevertheless ours, by all that is in it.
    """
    make_folder(path)
    try:
        with locked(path, _LOCK_SECONDS):
            _check_mark(path, kind, adopt)
            for entry in path.iterdir():
                if entry.is_symlink() or not entry.is_dir():
                    check_regular(entry)
        _try_writing(path)
    except OSError as error:
        raise unwritable(path, error) from error
    sweep(path)


@contextmanager
def own_folder(path: Path, kind: str, adopt: Adopt | None = None) -> Iterator[None]:
    """Lock a folder that `mark_folder` made, so that no other process of ours writes to it."""
    mark_folder(path, kind, adopt)
    with locked(path, _LOCK_SECONDS):
        yield


def kind_of(path: Path) -> str | None:
    """Return the kind of content that the mark of a folder names; None without a mark of ours."""
    mark_file = path / MARK
    try:
        if not stat.S_ISREG(mark_file.lstat().st_mode):
            return None
        with mark_file.open("rb") as stream:
            mark = unsealed(stream.read(_MARK_BYTES))
    except OSError:
        return None
    if mark is None:
        return None
    if mark.get("format") != _FORMAT or mark.get("version") != _VERSION:
        return None
    return str(mark.get("kind"))


def check_file(path: Path) -> Path:
    """Raise unless a file may be written to a path, before the work of making it is done.

    Returns the file to write by `replacing`; see `file_at`.
    """
    try:
        file = file_at(path)
    except OSError as error:
        raise unwritable(path.parent, error) from error
    if not file.parent.is_dir():
        raise InputError(f"There is no folder '{file.parent}' to write '{file.name}' to.")
    check_writable(file.parent)
    return file


def file_at(path: Path) -> Path:
    """Return the file that is written where somebody names a path: the path, or where a link leads.

    Raise unless it is a regular file or not there yet. A device or a pipe is never written to: a
    file that appears as a whole would take its place.
    """
    check_link(path)
    if path.is_dir():
        raise InputError(f"'{path}' is a folder; add the name of a file.")
    file = path.resolve() if path.is_symlink() else path
    if not path.exists():
        return file
    # What a descriptor leads to, such as /dev/stdout, may be a file without a name.
    if not path.is_file() or not file.exists():
        raise InputError(f"'{path}' is no regular file, and one would replace it; name another.")
    if _is_standard_stream(path):
        raise InputError(f"'{path}' is where this command prints; name another file.")
    return file


def check_regular(path: Path, error: type[InputError] = InputError) -> None:
    """Raise where a path exists that is no regular file, such as a link or a pipe."""
    if not os.path.lexists(path):
        return
    mode = path.lstat().st_mode
    if not stat.S_ISREG(mode):
        raise error(
            f"'{path}' must be a regular file, not a link, a pipe or a folder; put the file itself "
            "in its place, or take it away."
        )


def _is_standard_stream(path: Path) -> bool:
    """Whether a file is open as one of this process's standard streams."""
    for number in range(3):
        with suppress(OSError):
            if os.path.samestat(os.fstat(number), path.stat()):
                return True
    return False


def check_writable(folder: Path) -> None:
    """Raise unless files can be written to a folder that is there; sweep it."""
    try:
        _try_writing(folder)
    except OSError as error:
        raise unwritable(folder, error) from error
    sweep(folder)


def check_link(path: Path) -> None:
    """Raise if a path, or a folder above it, is a link to nothing or one of a loop of links."""
    for place in (path, *path.absolute().parents):
        if os.path.lexists(place) and not place.exists():
            raise InputError(
                f"'{place}' is a link that leads nowhere; mend it, or name another place to write "
                "to."
            )


def check_room(place: Path, n_bytes: int) -> None:
    """Raise unless a disk has room for so many bytes; `place` need not exist yet."""
    ancestors = (place, *place.absolute().parents)
    folder = next((ancestor for ancestor in ancestors if ancestor.exists()), None)
    if folder is None:
        return
    with suppress(OSError):  # a file system that does not report its free space
        free = shutil.disk_usage(folder).free
        if free < n_bytes:
            raise InputError(
                f"The disk of '{place}' has {free / 1e9:.2f} GB left, and {n_bytes / 1e9:.2f} are "
                "needed; make room, or name another place."
            )


def unwritable(folder: Path, error: OSError) -> InputError:
    """Build the error for a folder that nothing can be written to."""
    return InputError(f"Nothing can be written to '{folder}': {error.strerror or error}.")


def _try_writing(folder: Path) -> None:
    """Write a file to a folder and remove it."""
    descriptor, temporary = _draw(folder, 0o600)
    try:
        os.write(descriptor, b"polyseme")  # a full disk may have room for a name
    finally:
        os.close(descriptor)
        temporary.unlink(missing_ok=True)  # somebody may have swept it, now that it is closed


def make_folder(folder: Path) -> None:
    """Make a folder and its parents where they are not there."""
    check_link(folder)
    if folder.exists() and not folder.is_dir():
        raise InputError(f"'{folder}' is a file; name a folder to write to.")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise unwritable(folder, error) from error


def _check_mark(folder: Path, kind: str, adopt: Adopt | None) -> None:
    """Mark a folder that is new, empty or adopted; raise for one that is not ours."""
    names = sorted(entry.name for entry in folder.iterdir() if not is_drawn(entry.name))
    if MARK in names:
        marked_kind = kind_of(folder)
        if marked_kind is None:
            raise InputError(
                f"The mark '{MARK}' in '{folder}' is damaged or not ours; name another folder."
            )
        if marked_kind != kind:
            raise InputError(f"'{folder}' holds {marked_kind}, and no {kind}; name another folder.")
        return
    is_adopted = adopt is not None and bool(names) and adopt(folder)
    if names and not is_adopted:
        raise InputError(
            f"'{folder}' holds '{names[0]}' and no mark that polyseme made it; name a folder "
            f"that is new or empty for {kind}."
        )
    mark = {
        "format": _FORMAT,
        "version": _VERSION,
        "kind": kind,
        "owner": secrets.token_hex(16),
    }
    with replacing(folder / MARK) as stream:
        stream.write(sealed(mark))


# ---------------------------------------------------------------------- files


class Writer(io.BufferedWriter):
    """A file that is written from its start to its end, and digested on the way."""

    def __init__(self, descriptor: int, path: Path) -> None:
        raw_file = io.FileIO(descriptor, "wb")
        super().__init__(raw_file)
        self.path = path  # while it is written
        self._digest = hashlib.sha256()
        self._size = 0

    def write(self, data: Any, /) -> int:
        """Write and digest bytes."""
        self._digest.update(data)
        written = super().write(data)
        self._size += written
        return written

    def settle(self) -> None:
        """Flush everything that has been written so far to the disk."""
        self.flush()
        os.fsync(self.fileno())

    def summary(self) -> Summary:
        """Return what has been written so far; see `summary_of`."""
        return {"sha256": self._digest.hexdigest(), "bytes": self._size}

    def quick_summary(self) -> Summary:
        """Return the same with a digest that a large file is compared with faster."""
        self.flush()
        return self.summary() | {"quick": quick_digest(self.path)}


def summary_of(path: Path) -> Summary | None:
    """Return a file's SHA-256 and size in bytes; None where it cannot be read."""
    try:
        with path.open("rb") as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
            return {"sha256": digest, "bytes": stream.tell()}
    except OSError:
        return None


def quick_digest(path: Path) -> str:
    """Return a digest of a file at the speed of memory: of sums of words in the same column.

    It finds accidents as surely as a checksum of 64 bits does; against intent use SHA-256.
    """
    digest = hashlib.sha256()
    block = np.zeros((_ROWS, _COLUMNS), dtype="<u8")
    buffer = block.data.cast("B")
    n_buffer = len(buffer)
    with path.open("rb", buffering=0) as stream:
        while n_read := stream.readinto(buffer):
            buffer[n_read:] = bytes(n_buffer - n_read)
            column_sums = np.add.reduce(block, axis=0)
            digest.update(column_sums.data)
            digest.update(n_read.to_bytes(8, "little"))
    return digest.hexdigest()


def is_intact(path: Path, summary: object) -> bool:
    """Return whether a file is as it was written, by its size first."""
    if not isinstance(summary, Mapping):
        return False
    try:
        if path.stat().st_size != summary.get("bytes"):
            return False
        if "quick" in summary:
            return bool(quick_digest(path) == summary["quick"])
    except OSError:
        return False
    return summary_of(path) == summary


def sealed(content: Mapping[str, Any]) -> bytes:
    """Return values as JSON, with a digest of all of them; see `unsealed`."""
    text = json.dumps(content, indent=1)
    digest = hashlib.sha256(text.encode()).hexdigest()
    sealed_text = json.dumps({**content, "sha256": digest}, indent=1)
    return (sealed_text + "\n").encode()


def unsealed(data: bytes) -> dict[str, Any] | None:
    """Return the values that `sealed` wrote; None where as much as a bit of it has changed."""
    try:
        content = json.loads(data)
        body = {name: value for name, value in content.items() if name != "sha256"}
        is_unchanged = sealed(body) == data
    except (ValueError, AttributeError, RecursionError):
        return None
    return body if is_unchanged else None


def is_drawn(name: str) -> bool:
    """Whether a name is one that `replacing` draws for a file that is not finished."""
    match = _DRAWN.fullmatch(name)
    if match is None:
        return False
    token, signature = match.groups()
    return bool(signature == _signature(token))


def _signature(token: str) -> str:
    """Return the half of a drawn name that follows from the other one."""
    return hashlib.sha256(f"polyseme unfinished {token}".encode()).hexdigest()[:16]


@contextmanager
def replacing(path: Path, mode: int = 0o666) -> Iterator[Writer]:
    """Write a file under a temporary name; it replaces `path` as a whole, or not at all.

    A file that was there before keeps its permissions, and its owner and extended attributes where
    the system lets it; a new one has those of `mode` that the process's mask leaves. What is no
    regular file is refused, a link as well: follow it by `check_file` where people name it. What a
    kill leaves is swept by name; see `sweep`.
    """
    check_regular(path)
    # Nobody else reads it before it has the permissions of the file that was there.
    descriptor, temporary = _draw(path.parent, 0o600 if path.exists() else mode)
    try:
        with Writer(descriptor, temporary) as stream:
            yield stream
            stream.settle()
            if path.exists():
                with suppress(OSError, AttributeError):  # a system without owners
                    shutil.chown(temporary, path.stat().st_uid, path.stat().st_gid)
                shutil.copymode(path, temporary)
                _copy_attributes(path, temporary)
            if os.name == "posix":
                temporary.replace(path)  # while it is locked, so that nobody sweeps it
        if os.name != "posix":
            temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _copy_attributes(source: Path, target: Path) -> None:
    """Copy extended attributes, such as access lists and tags, where the system has some."""
    with suppress(OSError, AttributeError):
        for name in os.listxattr(source):
            with suppress(OSError):
                os.setxattr(target, name, os.getxattr(source, name))


def sweep(folder: Path) -> None:
    """Remove files of a folder that `replacing` has begun and that nobody writes any more."""
    with suppress(OSError):
        unfinished = [path for path in folder.iterdir() if is_drawn(path.name)]
        for path in unfinished:
            with suppress(OSError):
                _remove_abandoned(path)


def _draw(folder: Path, mode: int) -> tuple[int, Path]:
    """Open a new file in a folder under a drawn name, locked as long as it is open."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    while True:
        token = secrets.token_hex(8)
        path = folder / f".polyseme-{token}-{_signature(token)}.tmp"
        descriptor = os.open(path, flags, mode)
        with suppress(ImportError, OSError):  # a system, or a file system, without locks
            import fcntl

            fcntl.flock(descriptor, fcntl.LOCK_EX)
        if os.name != "posix" or os.fstat(descriptor).st_nlink:
            return descriptor, path
        os.close(descriptor)  # somebody swept it before it was locked


def _remove_abandoned(path: Path) -> None:
    """Remove a file with a drawn name unless somebody has it open to write."""
    try:
        import fcntl
    except ImportError:
        path.unlink()  # which such a system refuses while it is open
        return
    if not stat.S_ISREG(path.lstat().st_mode):
        return
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        path.unlink()
    finally:
        os.close(descriptor)


@contextmanager
def locked(folder: Path, seconds: float, error: type[InputError] = InputError) -> Iterator[bool]:
    """Lock a folder, which a kill unlocks; yield False where the system has no locks."""
    try:
        import fcntl
    except ImportError:
        yield False
        return
    descriptor = os.open(folder, os.O_RDONLY)
    deadline = time.monotonic() + seconds
    is_locked = False
    try:
        while not is_locked:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                is_locked = True
            except BlockingIOError as busy:
                # Waiting without end would hang a signal handler that saves during a save.
                if time.monotonic() > deadline:
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
