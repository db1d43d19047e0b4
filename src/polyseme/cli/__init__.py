"""The command `polyseme`: parse, call the library, print. Results on stdout, the rest on stderr."""

from __future__ import annotations

import os
import sys
import warnings

from polyseme._plugins import load_plugins
from polyseme.cli import answers, commands, serving
from polyseme.cli.app import app
from polyseme.cli.output import say

__all__ = ["app", "main"]

# Importing the modules has put their commands into the application; other packages add theirs by
# the entry points "polyseme.commands".
_COMMANDS = [commands, answers, serving, *load_plugins("polyseme.commands").values()]


def main() -> None:
    """Run the command; end with exit code 0 (done), 1 (could not) or 2 (wrong usage)."""
    # A warning is one line, without the place in our source.
    warnings.showwarning = lambda message, *_, **__: say(f"polyseme: note: {message}")
    try:
        app(prog_name="polyseme")
    except SystemExit as ended:
        # Typer ends an interrupted command with 130; ours are 0, 1 and 2.
        if ended.code == 130:
            _fail("interrupted.")
        raise
    except BrokenPipeError:
        # The reader of our output has gone (`| head`): nothing is wrong.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(0) from None
    except Exception as error:
        if os.environ.get("POLYSEME_DEBUG"):
            raise
        words = " ".join(str(error).split())
        if isinstance(error, (ValueError, OSError)) and words:
            _fail(words)
        _fail(f"unexpected {type(error).__name__}: {words}; POLYSEME_DEBUG=1 shows where.")


def _fail(message: str) -> None:
    """Print one sentence and end with exit code 1."""
    say(f"polyseme: {message}")
    raise SystemExit(1) from None
