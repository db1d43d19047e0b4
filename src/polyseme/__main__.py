"""`python -m polyseme` is the command `polyseme`; it can be interrupted while it is loaded."""

from __future__ import annotations

from polyseme import _interrupts


def main() -> None:
    """Run the command; see `polyseme.cli.main`."""
    try:
        _interrupts.heed()
        from polyseme.cli import main as run

        run()
    except KeyboardInterrupt:
        _interrupts.leave()
    except SystemExit as ended:
        # Everything has been put down by now; threads that still work are not waited for.
        if ended.code == _interrupts.CODE:
            _interrupts.leave()
        _interrupts.end()
        raise


if __name__ == "__main__":
    main()
