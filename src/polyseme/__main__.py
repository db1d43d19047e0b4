"""`python -m polyseme` is the command `polyseme`."""

from __future__ import annotations

from polyseme.cli import main

if __name__ == "__main__":
    main()
