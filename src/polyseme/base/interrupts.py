"""Ctrl-C, at any instant: one line, exit code 130, never a traceback, never ignored.

The first one raises `KeyboardInterrupt`, so that whoever holds something can put it down. A library
may swallow that, or wait for its threads: after some seconds, or at the second one, the process
ends as it is, which is safe, since everything that is written is written whole or not at all.

Interrupts are heeded before anything else is loaded, so that only what Python itself has loaded by
then is used here: `_signal` in place of `signal`, which loads a dozen modules.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # there are no types of it
import os
import sys

TYPE_CHECKING = False  # what `typing` calls so
if TYPE_CHECKING:
    from types import FrameType
    from typing import NoReturn

CODE = 130
_SECONDS = 3.0
_LINE = "polyseme: interrupted."


class _State:
    """What has been asked of this process, and what it has said."""

    asked = False
    told = False


def heed() -> None:
    """Let Ctrl-C end this process, unless whoever started it has it ignored."""
    if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:
        _signal.signal(_signal.SIGINT, _interrupted)
        sys.unraisablehook = _unraised


def end() -> None:
    """Let a command that is done end as it would have: nothing is left to interrupt."""
    if _signal.getsignal(_signal.SIGINT) is _interrupted:
        _signal.signal(_signal.SIGINT, _signal.SIG_IGN)


def begin() -> None:
    """Begin a command: what an earlier one of this process was told is its own affair."""
    if _State.asked:
        raise KeyboardInterrupt  # somebody swallowed it while we were loaded
    _State.told = False


def asked() -> bool:
    """Return whether somebody has pressed Ctrl-C."""
    return _State.asked


def tell(line: str = _LINE) -> None:
    """Print that it was interrupted, once."""
    if not _State.told:
        _State.told = True
        try:
            sys.stderr.write(f"{line}\n")
            sys.stderr.flush()
        except (AttributeError, OSError, ValueError):
            return  # nobody is there to read it


def leave() -> NoReturn:
    """End the process as it is."""
    try:
        if not _State.told:
            os.write(2, f"{_LINE}\n".encode())
    finally:
        os._exit(CODE)


def _unraised(swallowed: sys.UnraisableHookArgs) -> None:
    """End the process where nobody could be told that it was interrupted."""
    if isinstance(swallowed.exc_value, KeyboardInterrupt):
        leave()
    sys.__unraisablehook__(swallowed)


def _interrupted(number: int, frame: FrameType | None) -> None:
    """Interrupt what is being done; end it where it does not heed that."""
    if _State.asked:
        leave()
    _State.asked = True
    if hasattr(_signal, "setitimer"):
        _signal.signal(_signal.SIGALRM, lambda *_: leave())
        _signal.setitimer(_signal.ITIMER_REAL, _SECONDS)
    raise KeyboardInterrupt
