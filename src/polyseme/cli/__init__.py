"""The command `polyseme`: parse, call the library, print. Results on stdout, the rest on stderr."""

from __future__ import annotations

import os
import re
import warnings
from importlib import import_module

from polyseme.base import interrupts
from polyseme.base.plugins import load_plugins
from polyseme.cli.app import app
from polyseme.cli.output import end_output, kept_streams, reader_gone, say

__all__ = ["app", "main"]

# Importing a module registers its commands; the help lists them in this order. Other packages add
# theirs by the entry points "polyseme.commands".
_MODULES = (
    "fitting",
    "ranking",
    "measuring",
    "description",
    "vocabulary",
    "media",
    "answers",
    "serving",
)
_COMMANDS = [import_module(f"polyseme.cli.{name}") for name in _MODULES]
_COMMANDS += load_plugins("polyseme.commands").values()
# What libraries say that are not given memory.
_NO_MEMORY = re.compile("failed to map segment|cannot allocate memory|PyObject pointer is null")
# The words of an error, at the most.
_MOST_LETTERS = 650


def main() -> None:
    """Run the command; end with 0 (done), 1 (could not), 2 (wrong usage) or 130 (interrupted)."""
    # A warning is one line, without the place in our source.
    warnings.showwarning = lambda message, *_, **__: say(f"polyseme: note: {message}")
    with kept_streams():
        _run()


def _run() -> None:
    """Run the command, and turn whatever it raises into a sentence and an exit code."""
    try:
        interrupts.begin()
        app(prog_name="polyseme")
    except SystemExit as ended:
        if ended.code == interrupts.CODE:
            _end_interrupted()
        # The frame of commands takes a reader that has gone for a failure.
        if isinstance(ended.__context__, BrokenPipeError) and reader_gone():
            ended.code = 0
        end_output()
        # What swallowed the interrupt did not know that it was meant for us.
        if interrupts.asked():
            _end_interrupted()
        raise
    except KeyboardInterrupt:
        _end_interrupted()
    except BaseException as error:  # a panic in Rust code is not an Exception
        if interrupts.asked():
            _end_interrupted()  # an import that was interrupted may end in anything
        if os.environ.get("POLYSEME_DEBUG"):
            raise
        end_output()  # which reports a failure of standard output itself
        words = " ".join(str(error).split())
        if isinstance(error, OSError) and error.strerror:
            words = f"{error.strerror}{f': {error.filename!r}' if error.filename else ''}."
        if len(words) > _MOST_LETTERS:
            words = f"{words[:_MOST_LETTERS]}…"
        if isinstance(error, MemoryError) or _NO_MEMORY.search(words):
            _fail("there is not enough memory for this; give it fewer rows or labels at a time.")
        if isinstance(error, RecursionError):
            _fail("something that was given, such as a path, is nested too deeply.")
        if isinstance(error, (ValueError, OSError)) and words:
            _fail(words)
        _fail(f"unexpected {type(error).__name__}: {words}; POLYSEME_DEBUG=1 shows where.")


def _end_interrupted() -> None:
    """Print the interruption, unless it was printed, and exit with 130."""
    interrupts.tell()
    raise SystemExit(interrupts.CODE) from None


def _fail(message: str) -> None:
    """Print one sentence and end with exit code 1."""
    say(f"polyseme: {message}")
    end_output()
    raise SystemExit(1) from None
