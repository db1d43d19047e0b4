"""Progress for people, on standard error: a bar where there is a count, a clock for the rest.

What is counted are files, and also rows of a ranking and rounds of a training.
"""

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
        """Write, if anybody is there, and return the number of characters as though all were."""
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
        """Return the file descriptor; that of standard error where the stream was closed."""
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
    seconds = time.perf_counter() - start
    console.print(f"{message}: {seconds:.0f} s")


class FileProgress:
    """Show how many files, rows or rounds are done, how fast it goes and how long it may take.

    A bar on a terminal; elsewhere a line every ten seconds.

    Parameters
    ----------
    message : str
        What is done with them, in front of the bar or line.
    verbose : bool
        Whether anything is shown at all.

    Attributes
    ----------
    bar : rich.progress.Progress or None
        None where there is no terminal, and before it is opened.
    """

    SECONDS = 10.0  # between two lines, where there is no bar

    def __init__(self, message: str, verbose: bool = True) -> None:
        self.message = message
        self.verbose = verbose
        self.bar: Any = None
        now = time.monotonic()
        self._start = now
        self._last_line = now  # when the last line was written

    def __enter__(self) -> Self:
        """Open the bar."""
        if self.verbose and sys.stderr is not None and sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TimeRemainingColumn

            columns = (
                "{task.description}",
                BarColumn(),
                "{task.completed:,}/{task.total:,}",
                "{task.fields[note]}",
                TimeRemainingColumn(),
            )
            console = Console(stderr=True)
            self.bar = Progress(*columns, console=console)
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
        elapsed = now - self._start
        seconds = max(elapsed, 1e-9)
        rate = done / seconds
        decimals = 0 if rate >= 10 else 1
        note = f"{rate:.{decimals}f}/s"
        if skipped:
            note += f", {skipped:,} skipped"
        if self.bar is not None:
            self.bar.update(self.task, completed=done, total=total, note=note)
            return
        silence = now - self._last_line
        is_due = silence > self.SECONDS and done < total
        if self.verbose and is_due and sys.stderr:
            self._last_line = now
            line = f"{self.message}: {done:,} of {total:,}, {note}"
            if done:
                seconds_left = (total - done) / rate
                line += f", about {seconds_left:.0f} s left"
            sys.stderr.write(f"{line}\n")
