"""`python -m polyseme` is the command `polyseme`; it can be interrupted while it is loaded."""

from __future__ import annotations

from polyseme.base import interrupts


def main() -> None:
    """Run the command; see `polyseme.cli.main`."""
    try:
        interrupts.heed()
        from polyseme.cli import main as run

        run()
    except KeyboardInterrupt:
        interrupts.leave()
    except SystemExit as ended:
        # Everything has been put down by now; threads that still work are not waited for.
        if ended.code == interrupts.CODE:
            interrupts.leave()
        interrupts.end()
        raise


if __name__ == "__main__":
    main()
