"""The compiled library, if there is one: found beside this file, loaded with ctypes.

Out: functions on addresses of arrays, which run without Python's lock. Without a library, or with
the environment variable POLYSEME_NATIVE=0, callers take their way in numpy.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache

from polyseme._native.build import library_path

__all__ = ["LEVELS", "level", "library", "n_threads", "one_thread"]

LEVELS = ("generic", "avx2", "vnni")

_Address, _Count = ctypes.c_void_p, ctypes.c_int64
_SIGNATURES: dict[str, tuple[type | None, list[type]]] = {
    "polyseme_level": (ctypes.c_int, []),
    "polyseme_workspace": (_Count, [_Count, _Count]),
    "polyseme_pack": (
        None,
        [ctypes.c_int, _Address, _Address, *[_Count] * 4, *[_Address] * 2],
    ),
    "polyseme_nearest": (
        None,
        [
            *(ctypes.c_int, *[_Address] * 6, *[_Count] * 3),
            *(_Address, *[_Count] * 3, _Address, _Count, _Address),
        ],
    ),
}


# How many `one_thread` are open.
_limited = 0


@lru_cache(maxsize=1)
def _load() -> ctypes.CDLL | None:
    """Load the library that was built from the sources here, or none."""
    try:
        path = library_path().resolve()
        if not path.is_file():
            return None
        found = ctypes.CDLL(str(path))
        for name, (result, arguments) in _SIGNATURES.items():
            function = getattr(found, name)
            function.restype, function.argtypes = result, arguments
    except (OSError, AttributeError):
        return None
    return found


def library() -> ctypes.CDLL | None:
    """Give the compiled library, or None where there is none or it is not wanted.

    Returns
    -------
    ctypes.CDLL or None
        None with POLYSEME_NATIVE=0.
    """
    return None if os.environ.get("POLYSEME_NATIVE") == "0" else _load()


def level() -> int:
    """Give the instruction set to use, a place in `LEVELS`.

    Returns
    -------
    int
        The best that the processor has; POLYSEME_NATIVE=generic or =avx2 asks for less.
    """
    found = library()
    best = int(found.polyseme_level()) if found is not None else 0
    wanted = os.environ.get("POLYSEME_NATIVE", "")
    return min(best, LEVELS.index(wanted)) if wanted in LEVELS else best


@contextmanager
def one_thread() -> Iterator[None]:
    """Keep searches to one thread while this lasts, in the whole process."""
    global _limited
    _limited += 1
    try:
        yield
    finally:
        _limited -= 1


def n_threads() -> int:
    """Give the number of threads of a search: OMP_NUM_THREADS, else all processors at hand.

    Returns
    -------
    int
        At least 1; 1 inside `one_thread`.
    """
    if _limited:
        return 1
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    told = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    return max(1, min(cores or 1, int(told)) if told.isdecimal() else cores or 1)
