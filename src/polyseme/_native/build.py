"""Compile the C library, when the package is installed; standard library only.

In: the C sources beside this file and whatever compiler there is. Out: one shared library beside
them, whose name tells platform and sources, so that nothing but these sources is ever loaded.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shlex
import subprocess
import sys
import sysconfig
from pathlib import Path

FOLDER = Path(__file__).parent
SOURCES = ("nearest.c", "search.h", "generic.h", "one_query.h", "avx2.h", "vnni.h")
# No -march: what newer processors know is chosen when the library runs. No -ffast-math: the
# search counts on infinity and on the order of roundings.
FLAGS = ("-std=c11", "-O3", "-fPIC", "-shared", "-fvisibility=hidden", "-fno-math-errno")


class BuildError(Exception):
    """The library could not be compiled; the message says why, in one line."""


def library_path(folder: Path = FOLDER) -> Path:
    """Return the path in a folder, existing or not, of the library for its sources and platform."""
    digest = hashlib.sha256()
    for name in SOURCES:
        digest.update((folder / name).read_bytes())
    ending = ".dll" if sys.platform == "win32" else ".so"
    where = f"{sys.platform}-{platform.machine().lower()}"
    return folder / f"nearest-{digest.hexdigest()[:12]}-{where}{ending}"


def build(folder: Path = FOLDER) -> Path:
    """Compile a folder's library with `$CC`, or `cc`, and remove those of other sources."""
    path = library_path(folder)
    if path.is_file():
        return path
    compiler = shlex.split(os.environ.get("CC", "")) or ["cc"]
    fresh = path.with_suffix(f".{os.getpid()}.tmp")
    command = [*compiler, *FLAGS, "-o", str(fresh), str(folder / "nearest.c"), "-lm"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
        if done.returncode:
            raise BuildError(
                f"{compiler[0]} failed: {(done.stderr.strip() or '?').splitlines()[0]}"
            )
        ctypes.CDLL(str(fresh)).polyseme_level()
        for old in folder.glob("nearest-*.so"):
            old.unlink()
        fresh.replace(path)
    except (OSError, AttributeError, subprocess.SubprocessError) as error:
        raise BuildError(str(error).splitlines()[0]) from error
    finally:
        fresh.unlink(missing_ok=True)
    return path


def wheel_tag() -> str:
    """Return the tag of a wheel with the library: any Python 3, this platform only."""
    where = sysconfig.get_platform().replace("universal2", platform.machine().lower())
    return f"py3-none-{where.replace('-', '_').replace('.', '_')}"
