"""SVG markup becomes PNG bytes, in a process of its own that may hang or die.

In: the bytes of an .svg or .svgz file. Out: the bytes of a PNG, or a `MediaError`.
One process serves all threads in turn; it is started when first needed and ends with this one.
"""

from __future__ import annotations

import atexit
import gzip
import io
import os
import subprocess
import sys
import threading
import zlib
from importlib.util import find_spec
from typing import IO

from polyseme.features import _svg_worker
from polyseme.features._svg_worker import ANSWER, DRAWN, READY, REQUEST
from polyseme.features.media import MediaError, needs

TIMEOUT = 10.0
START = 60.0
MOST_BYTES = 10_000_000
UNREADABLE = "is no picture that can be read"
TOO_MUCH = "is more than the SVG renderer can take"


class _Worker:
    """The running process; every failure to talk to it raises `EOFError` or `OSError`."""

    def __init__(self) -> None:
        # The parent's own path, less the current folder: its files may be a stranger's.
        path = os.pathsep.join(entry for entry in sys.path if entry)
        self._process = subprocess.Popen(
            [sys.executable, "-P", _svg_worker.__file__],  # by its file: starts without polyseme
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,  # nothing unsent can be left for a forked process to send again
            env={**os.environ, "PYTHONPATH": path},
        )
        assert self._process.stdin is not None and self._process.stdout is not None
        self._requests: IO[bytes] = self._process.stdin
        self._answers: IO[bytes] = self._process.stdout
        self._expired = False
        try:
            kind, _ = self._within(START, b"")
            if kind != READY:
                raise EOFError("no sign of life")
        except BaseException:
            self.end()
            raise

    @property
    def pid(self) -> int:
        """The process's number."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether the process is still there."""
        return self._process.poll() is None

    @property
    def expired(self) -> bool:
        """Whether it was killed for being too slow."""
        return self._expired

    def draw(self, markup: bytes, side: int, *, cover: bool, seconds: float) -> tuple[int, bytes]:
        """Send one request and return the kind of its answer and the content."""
        head = REQUEST.pack(int(seconds) + 1, side, cover, len(markup))
        return self._within(seconds, head + markup)

    def _within(self, seconds: float, request: bytes) -> tuple[int, bytes]:
        """Talk to the process and kill it when that takes too long."""
        timer = threading.Timer(seconds, self._expire)
        timer.daemon = True
        timer.start()
        try:
            rest = memoryview(request)
            while rest:
                rest = rest[self._requests.write(rest) :]
            kind, length = ANSWER.unpack(self._exactly(ANSWER.size))
            return int(kind), self._exactly(length)
        finally:
            timer.cancel()
            timer.join()  # so that a late kill cannot hit the next request unnoticed

    def _exactly(self, length: int) -> bytes:
        """Read so many bytes."""
        content = bytearray()
        while len(content) < length:
            part = self._answers.read(length - len(content))
            if not part:
                raise EOFError("the answer breaks off")
            content += part
        return bytes(content)

    def _expire(self) -> None:
        self._expired = True
        self._process.kill()

    def end(self) -> None:
        """Kill the process; it holds nothing that could be lost."""
        self._process.kill()
        self._requests.close()
        self._answers.close()
        self._process.wait()

    def disown(self) -> None:
        """Forget a process that belongs to the parent this process was forked from."""
        self._requests.close()
        self._answers.close()
        self._process.returncode = 0  # it is not ours to wait for


_lock = threading.Lock()
_worker: _Worker | None = None


def rasterise(content: bytes, *, side: int, cover: bool, seconds: float | None = None) -> bytes:
    """Draw an SVG.

    Parameters
    ----------
    content : bytes
        The file, plain or gzipped.
    side : int
        The length in pixels of the longer side, or, to `cover`, of the shorter one (then the
        longer side has at most four times as many).
    cover : bool
        Which side `side` speaks of.
    seconds : float, optional
        The time allowed; `TIMEOUT` when None.

    Returns
    -------
    bytes
        A PNG file with alpha. An SVG that states no size has that of its drawing, and one that
        draws nothing is an empty square. Text is left out (no font of the machine is used), and
        so are pictures that the file refers to but does not hold.

    Raises
    ------
    MediaError
        When the content is no SVG, too big, too slow or too much for the renderer.
    """
    markup = _plain(content)
    seconds = TIMEOUT if seconds is None else seconds
    with _lock:
        worker = _running()
        try:
            kind, answer = worker.draw(markup, side, cover=cover, seconds=seconds)
        except (EOFError, OSError) as error:
            reason = f"takes more than {seconds:g} seconds to draw" if worker.expired else TOO_MUCH
            _stop()
            raise MediaError(reason) from error
        if worker.expired:  # killed just after it had answered
            _stop()
    if kind != DRAWN:
        said = answer.decode("utf-8", "replace")
        raise MediaError(TOO_MUCH if "limit" in said else UNREADABLE) from ValueError(said)
    return answer


def _plain(content: bytes) -> bytes:
    """Unpack what is gzipped, and bound the size."""
    if content.startswith(b"\x1f\x8b"):
        try:
            content = gzip.GzipFile(fileobj=io.BytesIO(content)).read(MOST_BYTES + 1)
        except EOFError as error:
            raise MediaError("is truncated") from error
        except (OSError, zlib.error) as error:
            raise MediaError(UNREADABLE) from error
    if len(content) > MOST_BYTES:
        raise MediaError(f"has more than the {MOST_BYTES // 10**6} MB allowed for an SVG")
    return content


def _running() -> _Worker:
    """Return a worker that is alive; the lock is held."""
    global _worker
    if _worker is None or not _worker.alive:
        _stop()
        if find_spec("resvg_py") is None:
            raise needs("image", "Reading SVG pictures")
        try:
            _worker = _Worker()
        except (EOFError, OSError) as error:
            raise MediaError("cannot be drawn: the SVG renderer does not start") from error
    return _worker


def _stop() -> None:
    """End the worker, if there is one."""
    global _worker
    if _worker is not None:
        _worker.end()
        _worker = None


def _after_fork() -> None:
    """Start over in a forked process: the pipes are the parent's, the lock may be held."""
    global _lock, _worker
    _lock = threading.Lock()
    if _worker is not None:
        _worker.disown()
        _worker = None


atexit.register(_stop)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
