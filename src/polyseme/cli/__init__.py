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
_COMMAND_MODULES = (
    "fitting",
    "ranking",
    "measuring",
    "description",
    "vocabulary",
    "media",
    "answers",
    "serving",
)
_LOADED_MODULES = [import_module(f"polyseme.cli.{name}") for name in _COMMAND_MODULES]
_LOADED_MODULES += load_plugins("polyseme.commands").values()
# Messages of libraries that get no memory and raise something else than a MemoryError.
_NO_MEMORY = re.compile("failed to map segment|cannot allocate memory|PyObject pointer is null")
_MOST_LETTERS = 650  # of the message of an error that is printed


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
    except SystemExit as exit_request:
        if exit_request.code == interrupts.CODE:
            _end_interrupted()
        # To typer a reader that has gone, as in `| head`, is a failure.
        if isinstance(exit_request.__context__, BrokenPipeError) and reader_gone():
            exit_request.code = 0
        end_output()
        # A library may have swallowed the interrupt and gone on.
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
        _fail(_sentence_of(error))


def _sentence_of(error: BaseException) -> str:
    """Return one sentence, in one line, about what a command raised."""
    message = " ".join(str(error).split())
    if isinstance(error, OSError) and error.strerror:
        place = f": {error.filename!r}" if error.filename else ""
        message = f"{error.strerror}{place}."
    if len(message) > _MOST_LETTERS:
        message = f"{message[:_MOST_LETTERS]}…"
    if isinstance(error, MemoryError) or _NO_MEMORY.search(message):
        return "there is not enough memory for this; give it fewer rows or labels at a time."
    if isinstance(error, RecursionError):
        return "the input is nested too deeply, for example a path or a JSON value."
    if isinstance(error, (ValueError, OSError)) and message:
        return message
    return f"unexpected {type(error).__name__}: {message}; POLYSEME_DEBUG=1 shows where."


def _end_interrupted() -> None:
    """Print that the command was interrupted, unless it was printed, and exit with 130."""
    interrupts.tell()
    raise SystemExit(interrupts.CODE) from None


def _fail(message: str) -> None:
    """Print one sentence and end with exit code 1."""
    say(f"polyseme: {message}")
    end_output()
    raise SystemExit(1) from None
