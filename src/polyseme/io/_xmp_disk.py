"""The disk side of XMP sidecars: reading a whole file, the lock of its folder, replacing it.

In come a path and finished bytes; out come the bytes of a file of reasonable size, or a file that
is replaced as a whole or not at all.
"""

from __future__ import annotations

import os
import secrets
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from polyseme._validation import InputError

MAX_BYTES = 16 * 2**20

_LOCK_SECONDS = 60.0


def content(path: Path) -> bytes | None:
    """Read a sidecar of reasonable size; None where there is none."""
    try:
        kind = path.stat().st_mode
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(kind):
        what = "a folder" if stat.S_ISDIR(kind) else "no regular file"
        raise InputError(f"{path} is {what}; name a sidecar file.")
    with path.open("rb") as stream:
        raw = stream.read(MAX_BYTES + 1)
    if len(raw) > MAX_BYTES:
        raise InputError(f"{path} is larger than {MAX_BYTES >> 20} MiB, so it is no sidecar.")
    return raw


@contextmanager
def lock(path: Path) -> Iterator[None]:
    """Hold the lock of the sidecar's folder, where there is one; a kill releases it.

    The sidecar itself cannot carry the lock, since it is replaced or not there yet.
    """
    try:
        import fcntl

        descriptor = os.open(path.parent, os.O_RDONLY)
    except (ImportError, OSError):
        yield
        return
    give_up = time.monotonic() + _LOCK_SECONDS
    try:
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError as error:
                if time.monotonic() > give_up:
                    raise InputError(
                        f"{path.parent} has been locked by another program for "
                        f"{_LOCK_SECONDS:g} s; try again when that one is done."
                    ) from error
                time.sleep(0.005)
            except OSError:
                break  # a file system without locks
        yield
    finally:
        # A process forked meanwhile shares the lock, so closing alone would not free it.
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_UN)
        os.close(descriptor)


def replace(path: Path, data: bytes) -> None:
    """Put a file in the place of another, or of none, as a whole; keep owner and permissions."""
    if len(data) > MAX_BYTES:
        raise InputError(f"{path} would grow beyond {MAX_BYTES >> 20} MiB; add fewer tags.")
    old = path.stat() if path.exists() else None
    # A short name of its own: that of the sidecar may be as long as names can be.
    temporary = path.with_name(f".polyseme-{secrets.token_hex(8)}.tmp")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    try:
        with os.fdopen(os.open(temporary, flags, 0o600 if old else 0o666), "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        if old is not None:
            if hasattr(os, "chown"):
                with suppress(OSError):
                    os.chown(temporary, old.st_uid, old.st_gid)
            temporary.chmod(stat.S_IMODE(old.st_mode))
        temporary.replace(path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
    with suppress(OSError):
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
