"""Folders and files that are ours: how they are known, and how they are written.

In: paths to write to. Out: folders that carry our mark, which they got when they were new or empty,
and files that appear whole or not at all, with their digests. A file is written beside its place,
as `.DIGEST.polyseme-tmp`, where the digest is that of its name; what a kill leaves of it is
overwritten by the next writer of that file.

Terms: the *mark* of a folder is a file `.polyseme` in it, JSON with `format` and `kind`: whoever
changes either no longer knows folders that were written before. A file's *temporary* is what is
written before it takes the file's place. A *seal* is a SHA-256 of JSON values inside the JSON
itself. There are two kinds of locks, one inside the other: a folder's (`locked`), for as long as a
run writes to it, and a temporary's (`replacing`), as files are also written to folders that nobody
locks.
"""

from __future__ import annotations

import errno
import hashlib
import io
import json
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from polyseme.base.validation import InputError

# Fixed on disk: the name of the mark, its `format`, and the ending of temporaries.
MARK_FILE = ".polyseme"
_MARK_FORMAT = "polyseme folder"
_TEMPORARY_SUFFIX = ".polyseme-tmp"
_MOST_MARK_BYTES = 1 << 16  # that are read of a mark: a stranger's may have any size
_FOLDER_LOCK_SECONDS = 1.0  # how long to wait for another run into a folder, which may take hours
_FILE_LOCK_SECONDS = 60.0  # how long to wait for another writer of a file, which takes seconds
_LOCK_POLL_SECONDS = 0.005

# Of a file: its SHA-256 in hexadecimal digits as "sha256", and its size as "bytes". Plans, journals
# and manifests hold it on disk.
FileSummary = dict[str, str | int]


# ---------------------------------------------------------------------- folders


def mark_folder(path: Path, kind: str) -> None:
    """Create and mark a folder to write to, or raise for one that is not ours.

    Parameters
    ----------
    path : Path
        New, empty, or a folder that was marked for the same kind before. What is in that must be
        regular files and folders: a link or a pipe is not of our making.
    kind : str
        What it holds, in words, such as "rankings".
    """
    make_folder(path)
    try:
        with locked(path, _FOLDER_LOCK_SECONDS):
            _mark_if_empty(path, kind)
            for entry in path.iterdir():
                if entry.is_symlink() or not entry.is_dir():
                    check_regular(entry)
        _try_writing(path)
    except OSError as error:
        raise unwritable(path, error) from error


@contextmanager
def own_folder(path: Path, kind: str) -> Iterator[None]:
    """Mark a folder and hold its lock, so that no other run of ours writes to it meanwhile.

    Parameters
    ----------
    path, kind
        See `mark_folder`, which takes and frees the lock for itself before it is taken here.
    """
    mark_folder(path, kind)
    with locked(path, _FOLDER_LOCK_SECONDS):
        yield


def folder_kind(path: Path) -> str | None:
    """Return the kind of content that the mark of a folder names; None without a mark of ours."""
    mark_file = path / MARK_FILE
    try:
        if not stat.S_ISREG(mark_file.lstat().st_mode):
            return None
        with mark_file.open("rb") as stream:
            content = stream.read(_MOST_MARK_BYTES)
        mark = json.loads(content)
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(mark, dict) or mark.get("format") != _MARK_FORMAT:
        return None
    return str(mark.get("kind"))


def check_file(path: Path) -> Path:
    """Check that a file may be written to a path, before the work of making it is done.

    Returns
    -------
    Path
        The file to write by `replacing`: the path, or where a link leads.
    """
    try:
        file = _file_at(path)
    except OSError as error:
        raise unwritable(path.parent, error) from error
    if not file.parent.is_dir():
        raise InputError(f"There is no folder '{file.parent}' to write '{file.name}' to.")
    check_writable(file.parent)
    return file


def _file_at(path: Path) -> Path:
    """Return the file that is written where somebody names a path: the path, or where a link leads.

    Raise unless it is a regular file or not there yet. A device or a pipe is never written to: a
    file that appears as a whole would take its place.
    """
    check_not_dangling(path)
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
    """Raise `error` where a path exists that is no regular file, such as a link or a pipe."""
    if not os.path.lexists(path):
        return
    mode = path.lstat().st_mode
    if not stat.S_ISREG(mode):
        raise error(
            f"'{path}' must be a regular file, not a link, a pipe or a folder; put the file itself "
            "in its place, or take it away."
        )


def _is_standard_stream(path: Path) -> bool:
    """Return whether a file is open as one of this process's standard streams."""
    for descriptor in range(3):
        with suppress(OSError):  # that stream is closed
            stream_state = os.fstat(descriptor)
            if os.path.samestat(stream_state, path.stat()):
                return True
    return False


def check_writable(folder: Path) -> None:
    """Raise unless files can be written to a folder that is there."""
    try:
        _try_writing(folder)
    except OSError as error:
        raise unwritable(folder, error) from error


def check_not_dangling(path: Path) -> None:
    """Raise if a path, or a folder above it, is a link to nothing or one of a loop of links."""
    for place in (path, *path.absolute().parents):
        is_dangling = os.path.lexists(place) and not place.exists()
        if is_dangling:
            raise InputError(
                f"'{place}' is a link that leads nowhere; mend it, or name another place to write "
                "to."
            )


def check_room(place: Path, n_bytes: int) -> None:
    """Raise unless the disk of a path, which need not exist yet, has room for so many bytes."""
    ancestors = (place, *place.absolute().parents)
    folder = next((ancestor for ancestor in ancestors if ancestor.exists()), None)
    if folder is None:
        return
    with suppress(OSError):  # a file system that does not report its free space
        n_free_bytes = shutil.disk_usage(folder).free
        if n_free_bytes < n_bytes:
            raise InputError(
                f"The disk of '{place}' has {n_free_bytes / 1e9:.2f} GB left, and "
                f"{n_bytes / 1e9:.2f} are needed; make room, or name another place."
            )


def unwritable(folder: Path, error: OSError) -> InputError:
    """Return the error for a folder that nothing can be written to; the caller raises it."""
    return InputError(f"Nothing can be written to '{folder}': {error.strerror or error}.")


def _try_writing(folder: Path) -> None:
    """Write a file to a folder and remove it, or raise OSError; on Linux it never has a name."""
    with tempfile.TemporaryFile(dir=folder, buffering=0) as stream:
        stream.write(b"polyseme")  # a full disk may have room for a name


def make_folder(folder: Path) -> None:
    """Create a folder and its parents, durably, or raise one sentence that says why not."""
    check_not_dangling(folder)
    if folder.exists() and not folder.is_dir():
        raise InputError(f"'{folder}' is a file; name a folder to write to.")
    try:
        create_folder(folder)
    except OSError as error:
        raise unwritable(folder, error) from error


def create_folder(folder: Path) -> None:
    """Create a folder and its parents where they are missing; they survive a loss of power.

    Raises OSError where the system refuses; `make_folder` turns that into a sentence.
    """
    lineage = (folder, *folder.parents)
    missing_folders = [place for place in lineage if not place.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    # A new folder is an entry of its parent, which the system may keep in memory for long.
    for missing_folder in missing_folders:
        sync_folder(missing_folder.parent)


def sync_folder(folder: Path) -> None:
    """Force the folder's entries to disk, where the system can do that."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except PermissionError:
        return  # Windows opens no folders; on POSIX a parent may be writable but unreadable.
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)


def _mark_if_empty(folder: Path, kind: str) -> None:
    """Write the mark into a folder that is empty; raise for one that is not ours, or of a kind."""
    all_names = [entry.name for entry in folder.iterdir()]
    names = sorted(name for name in all_names if not is_temporary(name))
    if MARK_FILE in names:
        marked_kind = folder_kind(folder)
        if marked_kind is None:
            raise InputError(
                f"The mark '{MARK_FILE}' in '{folder}' is damaged or not ours; name another folder."
            )
        if marked_kind != kind:
            raise InputError(f"'{folder}' holds {marked_kind}, and no {kind}; name another folder.")
        return
    if names:
        raise InputError(
            f"'{folder}' holds '{names[0]}' and no mark that polyseme made it; name a folder "
            f"that is new or empty for {kind}."
        )
    mark = json.dumps({"format": _MARK_FORMAT, "kind": kind})
    with replacing(folder / MARK_FILE) as stream:
        stream.write(f"{mark}\n".encode())


# ---------------------------------------------------------------------- files


class Writer(io.BufferedWriter):
    """A temporary that is written from its start to its end, and digested on the way.

    Whoever seeks and writes again gets a wrong digest.

    Attributes
    ----------
    path : Path
        The temporary, which is gone once it has taken the file's place.
    """

    def __init__(self, descriptor: int, path: Path) -> None:
        raw_file = io.FileIO(descriptor, "wb")
        super().__init__(raw_file)
        self.path = path
        self._digest = hashlib.sha256()
        self._size = 0

    def write(self, data: Any, /) -> int:
        """Write and digest bytes."""
        self._digest.update(data)
        n_written = super().write(data)
        self._size += n_written
        return n_written

    def settle(self) -> None:
        """Force everything that has been written so far to the disk."""
        self.flush()
        os.fsync(self.fileno())

    def summary(self) -> FileSummary:
        """Return digest and size of what has been written so far; see `FileSummary`."""
        return {"sha256": self._digest.hexdigest(), "bytes": self._size}


def summary_of(path: Path) -> FileSummary | None:
    """Return digest and size of a file on disk; None where it cannot be read."""
    try:
        with path.open("rb") as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
            return {"sha256": digest, "bytes": stream.tell()}
    except OSError:
        return None


def is_intact(path: Path, summary: object) -> bool:
    """Return whether a file is as it was written, by its size first, as reading takes time.

    Parameters
    ----------
    path : Path
    summary : object
        What a file of ours says was written, a `FileSummary` where that is sound.
    """
    if not isinstance(summary, Mapping):
        return False
    try:
        if path.stat().st_size != summary.get("bytes"):
            return False
    except OSError:
        return False
    return summary_of(path) == summary


def sealed(content: Mapping[str, Any]) -> bytes:
    """Return values as JSON with a digest of all of them as their last key, "sha256".

    The form is fixed, blanks and the order of keys included: `unsealed` writes what it has read
    once more, and compares. Manifests and plans on disk have it.
    """
    text = json.dumps(content, indent=1)
    digest = hashlib.sha256(text.encode()).hexdigest()
    content_with_digest = {**content, "sha256": digest}
    sealed_text = json.dumps(content_with_digest, indent=1)
    return f"{sealed_text}\n".encode()


def unsealed(data: bytes) -> dict[str, Any] | None:
    """Return the values that `sealed` wrote; None where as much as a bit of it has changed."""
    try:
        content = json.loads(data)
        values = {name: value for name, value in content.items() if name != "sha256"}
        is_unchanged = sealed(values) == data
    except (ValueError, AttributeError, RecursionError):
        return None
    return values if is_unchanged else None


def temporary_of(path: Path) -> Path:
    """Return the temporary that `replacing` writes before it takes the place of a file.

    It is the same for every writer of the file, so that they find each other's lock, and what a
    kill left. The name is a digest, as the file's own may be as long as the system allows.
    """
    name_digest = hashlib.sha256(os.fsencode(path.name)).hexdigest()
    return path.with_name(f".{name_digest[:16]}{_TEMPORARY_SUFFIX}")


def is_temporary(name: str) -> bool:
    """Return whether a name is that of a temporary, of a writer at work or one that was killed."""
    return name.startswith(".") and name.endswith(_TEMPORARY_SUFFIX)


@contextmanager
def replacing(path: Path, mode: int = 0o666) -> Iterator[Writer]:
    """Write a file under a temporary name; it replaces `path` as a whole, or not at all.

    A kill at any instant leaves the old file or the new one. An error inside the block leaves the
    old one. A file that was there before keeps its permissions, and its owner and extended
    attributes where the system lets it. What is no regular file is refused, a link as well: follow
    it by `check_file` where people name it. Several writers of one file wait for each other.

    Parameters
    ----------
    path : Path
    mode : int
        The permissions of a new file, less those that the process's mask takes away.
    """
    check_regular(path)
    temporary = temporary_of(path)
    # Nobody else reads it before it has the permissions of the file that was there.
    first_mode = 0o600 if path.exists() else mode
    descriptor = _open_temporary(temporary, first_mode)
    with Writer(descriptor, temporary) as stream:
        try:
            stream.truncate(0)  # a kill may have left a part of an older one
            yield stream
            stream.settle()
            if path.exists():
                _copy_attributes(path, temporary)
            if os.name == "posix":
                temporary.replace(path)  # while it is locked: the next writer sees that it moved
        except BaseException:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)
            raise
    if os.name != "posix":
        temporary.replace(path)  # Windows moves no open file


def _open_temporary(path: Path, mode: int) -> int:
    """Open a temporary, locked against other writers of the same file; return its descriptor."""
    flags = os.O_WRONLY | os.O_CREAT
    # One is of Windows alone, the other of POSIX: a link in its place is not followed.
    flags |= getattr(os, "O_BINARY", 0)
    flags |= getattr(os, "O_NOFOLLOW", 0)
    while True:
        check_regular(path)
        descriptor = os.open(path, flags, mode)
        try:
            _lock(descriptor, path, _FILE_LOCK_SECONDS, InputError)
            with suppress(FileNotFoundError):
                # While we waited, the writer before us may have moved it to its place: then we hold
                # the lock of the finished file, and open a new temporary.
                open_file = os.fstat(descriptor)
                if os.path.samestat(open_file, path.stat()):
                    return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def _copy_attributes(source: Path, target: Path) -> None:
    """Copy permissions and, where the system has and allows them, owner and attributes.

    Permissions follow the owner, as a change of owner may clear some of them.
    """
    state = source.stat()
    with suppress(OSError, AttributeError):
        shutil.chown(target, state.st_uid, state.st_gid)
    shutil.copymode(source, target)
    with suppress(OSError, AttributeError):
        for name in os.listxattr(source):
            with suppress(OSError):
                value = os.getxattr(source, name)
                os.setxattr(target, name, value)


# ---------------------------------------------------------------------- locks


@contextmanager
def locked(folder: Path, seconds: float, error: type[InputError] = InputError) -> Iterator[None]:
    """Lock a folder, which a kill unlocks; a system without such locks goes on without.

    Parameters
    ----------
    folder : Path
    seconds : float
        How long to wait for another process, or another thread, that has it.
    error : type
        What to raise after that.
    """
    if os.name != "posix":
        yield
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        _lock(descriptor, folder, seconds, error)
        yield
    finally:
        _unlock(descriptor)
        os.close(descriptor)


def _lock(descriptor: int, path: Path, seconds: float, error: type[InputError]) -> None:
    """Lock an open file or folder; raise `error` where another has it for all these seconds."""
    try:
        import fcntl
    except ImportError:
        return
    deadline = time.monotonic() + seconds
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as busy:
            # Waiting without end would hang a signal handler that writes during a write.
            if time.monotonic() > deadline:
                raise error(
                    f"'{path}' has been locked by another writer for {seconds:g} s; try again when "
                    "that one is done."
                ) from busy
            time.sleep(_LOCK_POLL_SECONDS)
        except OSError:
            return  # a file system without locks
        else:
            return


def _unlock(descriptor: int) -> None:
    """Unlock at once: a process forked meanwhile shares the lock, and closing would not free it."""
    with suppress(ImportError, OSError):
        import fcntl

        fcntl.flock(descriptor, fcntl.LOCK_UN)
