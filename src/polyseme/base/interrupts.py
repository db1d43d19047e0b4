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

CODE = 130  # the exit code that shells give to a process which Ctrl-C ended: 128 + SIGINT
_GRACE_SECONDS = 3.0  # for what does not heed `KeyboardInterrupt`
_MESSAGE = "polyseme: interrupted."


class _State:
    """What has happened in this process."""

    is_interrupted = False  # somebody has pressed Ctrl-C
    has_told = False  # and has been told so


def heed() -> None:
    """Let Ctrl-C end this process, unless whoever started it has it ignored."""
    handler = _signal.getsignal(_signal.SIGINT)
    if handler is _signal.default_int_handler:
        _signal.signal(_signal.SIGINT, _interrupted)
        sys.unraisablehook = _unraised


def end() -> None:
    """Ignore Ctrl-C from here on: the command is done, and nothing is left to interrupt."""
    handler = _signal.getsignal(_signal.SIGINT)
    if handler is _interrupted:
        _signal.signal(_signal.SIGINT, _signal.SIG_IGN)


def begin() -> None:
    """Begin a command, in a process that may have had others; raise if it was interrupted already.

    Whatever an earlier command has printed, this one prints its own message.
    """
    if _State.is_interrupted:
        raise KeyboardInterrupt  # somebody swallowed it while we were loaded
    _State.has_told = False


def asked() -> bool:
    """Return whether somebody has pressed Ctrl-C."""
    return _State.is_interrupted


def tell(line: str = _MESSAGE) -> None:
    """Print on standard error that the command was interrupted, once for each command."""
    if not _State.has_told:
        _State.has_told = True
        try:
            sys.stderr.write(f"{line}\n")
            sys.stderr.flush()
        except (AttributeError, OSError, ValueError):
            return  # nobody is there to read it


def leave() -> NoReturn:
    """End the process as it is, without waiting for threads or closing anything."""
    try:
        if not _State.has_told:
            os.write(2, f"{_MESSAGE}\n".encode())
    finally:
        os._exit(CODE)


def _unraised(swallowed: sys.UnraisableHookArgs) -> None:
    """End the process where Python swallowed an interrupt, as in a destructor.

    A hook of `sys.unraisablehook`; other exceptions are printed as ever.
    """
    if isinstance(swallowed.exc_value, KeyboardInterrupt):
        leave()
    sys.__unraisablehook__(swallowed)


def _interrupted(number: int, frame: FrameType | None) -> None:
    """Raise `KeyboardInterrupt`; end the process at the second call, or after the time of grace.

    A handler of SIGINT, which calls it with the number of the signal and the stack frame.
    """
    if _State.is_interrupted:
        leave()
    _State.is_interrupted = True
    if hasattr(_signal, "setitimer"):
        _signal.signal(_signal.SIGALRM, lambda *_: leave())
        _signal.setitimer(_signal.ITIMER_REAL, _GRACE_SECONDS)
    raise KeyboardInterrupt
