"""The compiled library, if there is one: found beside this file, loaded with ctypes.

Out: functions on addresses of arrays, which run without Python's lock. Without a library, or with
the environment variable POLYSEME_NATIVE=0, callers take their way in numpy.
"""

from __future__ import annotations

import ctypes
import os
from functools import lru_cache

from polyseme._native.build import library_path

LEVELS = ("generic", "avx2", "vnni")

_Level, _Address, _Count = ctypes.c_int, ctypes.c_void_p, ctypes.c_int64
_SIGNATURES: dict[str, tuple[type | None, list[type]]] = {
    "polyseme_level": (_Level, []),
    "polyseme_workspace": (_Count, [_Count] * 2),
    "polyseme_pack": (None, [_Level, *[_Address] * 2, *[_Count] * 4, *[_Address] * 2]),
    "polyseme_nearest": (
        None,
        [
            *(_Level, *[_Address] * 6, *[_Count] * 3),
            *(_Address, *[_Count] * 3, _Address, _Count, _Address),
        ],
    ),
}


@lru_cache(maxsize=1)
def _load() -> ctypes.CDLL | None:
    """Load the library that was built from the sources here, or none."""
    try:
        path = library_path().resolve()
        if not path.is_file():
            return None
        library = ctypes.CDLL(str(path))
        for name, (result, arguments) in _SIGNATURES.items():
            function = getattr(library, name)
            function.restype, function.argtypes = result, arguments
    except (OSError, AttributeError):
        return None
    return library


def library() -> ctypes.CDLL | None:
    """Return the compiled library; None where there is none, or with POLYSEME_NATIVE=0."""
    return None if os.environ.get("POLYSEME_NATIVE") == "0" else _load()


def level() -> int:
    """Return the instruction set to use, a place in `LEVELS`.

    Returns
    -------
    int
        The best that the processor has; POLYSEME_NATIVE=generic or =avx2 asks for less.
    """
    found = library()
    best = int(found.polyseme_level()) if found is not None else 0
    wanted = os.environ.get("POLYSEME_NATIVE", "")
    return min(best, LEVELS.index(wanted)) if wanted in LEVELS else best
