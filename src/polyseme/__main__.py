"""`python -m polyseme` is the command `polyseme`; it can be interrupted while it is loaded."""

from __future__ import annotations

from polyseme.base import interrupts


def main() -> None:
    """Run the command; see `polyseme.cli.main` for the exit codes."""
    try:
        interrupts.heed()
        # Only now: what is imported takes half a second, in which Ctrl-C may come.
        from polyseme.cli import main as run_command

        run_command()
    except KeyboardInterrupt:
        interrupts.leave()
    except SystemExit as exit_request:
        # Files are closed by now. After an interrupt, threads that still work are not waited for.
        if exit_request.code == interrupts.CODE:
            interrupts.leave()
        interrupts.end()
        raise


if __name__ == "__main__":
    main()
