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
    limits = []
    with suppress(AttributeError, ValueError, OSError):
        n_pages = os.sysconf("SC_PHYS_PAGES")
        page_size = os.sysconf("SC_PAGE_SIZE")
        limits.append(n_pages * page_size)
    for file in _LIMITS:
        with suppress(OSError, ValueError):
            text = Path(file).read_text()
            limits.append(int(text))
    return min(limits, default=2**62)


def check_memory(needed: float, subject: str, advice: str) -> None:
    """Raise where a job needs more memory than there is.

    Parameters
    ----------
    needed : float
        Bytes.
    subject : str
        What needs them, as the beginning of a sentence.
    advice : str
        What to do instead.
    """
    available = machine_bytes()
    if needed > available:
        raise InputError(
            f"{subject} would need {in_bytes(needed)} of memory, and this machine has "
            f"{in_bytes(available)}; {advice}."
        )


def in_bytes(count: float) -> str:
    """Return a number of bytes for people."""
    return f"{count / 1e9:,.0f} GB" if count >= 1e10 else f"{max(count / 1e9, 0.1):.1f} GB"
