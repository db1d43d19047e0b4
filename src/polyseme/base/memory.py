"""How much memory there is, and the refusal of what needs more."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from polyseme.base.validation import InputError

# Where a container says how much memory it may have.
_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def machine_bytes() -> int:
    """Return the memory that this machine, or this container, has; very much where nobody says."""
    found = []
    with suppress(AttributeError, ValueError, OSError):
        found.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    for place in _LIMITS:
        with suppress(OSError, ValueError):
            found.append(int(Path(place).read_text()))
    return min(found, default=2**62)


def check_memory(needed: float, what: str, way_round: str) -> None:
    """Raise where a job needs more memory than there is.

    Parameters
    ----------
    needed : float
        Bytes.
    what : str
        What needs them, as the beginning of a sentence.
    way_round : str
        What to do instead.
    """
    there = machine_bytes()
    if needed > there:
        raise InputError(
            f"{what} would need {in_bytes(needed)} of memory, and this machine has "
            f"{in_bytes(there)}; {way_round}."
        )


def in_bytes(count: float) -> str:
    """Return a number of bytes for people."""
    return f"{count / 1e9:,.0f} GB" if count >= 1e10 else f"{max(count / 1e9, 0.1):.1f} GB"
