"""Progress for people, on standard error: a bar for files, a clock for the rest."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Self


class Quiet:
    """A stream for people who may have gone: what cannot be written is not worth an error.

    Parameters
    ----------
    stream : TextIO or None
        None where it was closed before anything began.
    """

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self.encoding = getattr(stream, "encoding", None) or "utf-8"

    def write(self, text: str) -> int:
        """Write, if anybody is there."""
        if self._stream is not None:
            with suppress(OSError, ValueError):
                self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        """Flush, if anybody is there."""
        if self._stream is not None:
            with suppress(OSError, ValueError):
                self._stream.flush()

    def isatty(self) -> bool:
        """Return whether it is a terminal."""
        return self._stream is not None and bool(self._stream.isatty())

    def fileno(self) -> int:
        """Return the number of the file."""
        return 2 if self._stream is None else int(self._stream.fileno())

    def __getattr__(self, name: str) -> Any:
        """Return what else a stream has."""
        return getattr(self._stream, name)


@contextmanager
def working(message: str, *, verbose: bool) -> Iterator[None]:
    """Show what is being done while it lasts, and how long it took; nothing unless `verbose`."""
    if not verbose:
        yield
        return
    from rich.console import Console

    console = Console(stderr=True, highlight=False)
    start = time.perf_counter()
    with console.status(f"{message} …"):
        yield
    console.print(f"{message}: {time.perf_counter() - start:.0f} s")


class FileProgress:
    """Show how many files are done, how fast it goes and how long it may still take.

    A bar on a terminal; elsewhere a line every ten seconds.

    Parameters
    ----------
    doing : str
        What is done with the files.
    shown : bool
        Whether anything is shown at all.
    """

    SECONDS = 10.0

    def __init__(self, message: str, verbose: bool = True) -> None:
        self.message = message
        self.verbose = verbose
        self.bar: Any = None
        self._start = self._written = time.monotonic()

    def __enter__(self) -> Self:
        """Open the bar."""
        if self.verbose and sys.stderr is not None and sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TimeRemainingColumn

            counts = ("{task.completed:,}/{task.total:,}", "{task.fields[note]}")
            columns = ("{task.description}", BarColumn(), *counts, TimeRemainingColumn())
            self.bar = Progress(*columns, console=Console(stderr=True))
            self.task = self.bar.add_task(self.message, total=0, note="")
            self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Close the bar."""
        if self.bar is not None:
            self.bar.stop()

    def tell(self, done: int, total: int, skipped: int) -> None:
        """Show how many files are done, of how many, and how many of them could not be used."""
        now = time.monotonic()
        seconds = max(now - self._start, 1e-9)
        rate = done / seconds
        decimals = 0 if rate >= 10 else 1
        note = f"{rate:.{decimals}f}/s"
        if skipped:
            note += f", {skipped:,} skipped"
        if self.bar is not None:
            self.bar.update(self.task, completed=done, total=total, note=note)
            return
        is_due = now - self._written > self.SECONDS
        if self.verbose and is_due and done < total and sys.stderr:
            self._written = now
            seconds_left = (total - done) / rate
            progress = f"{done:,} of {total:,}, {note}"
            sys.stderr.write(f"{self.message}: {progress}, about {seconds_left:.0f} s left\n")
