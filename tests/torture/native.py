"""The compiled search under the address and undefined-behaviour sanitizers.

It is built from its sources anew, with sanitizers, and driven over shapes, types, alignments and
numbers at the edges by every instruction set that this processor has, in a process of its own.
Each answer is compared with the reference way; what the sanitizers report ends the process, and
is a fault.
"""

from __future__ import annotations

import itertools
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from torture import Tried, UnavailableError
from torture.worker import HELD, Worker, judged, work

_SANITIZED = "-fsanitize=address,undefined -fno-sanitize-recover=all -g"
_SIZES = (0, 1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 31, 32, 33, 63, 64, 65, 100, 251, 252, 253, 600)
_SHIFTS = (0.0, 0.0, 1.0, -1e3, 1e8, 1e14)
_SCALES = (1.0, 1.0, 1e-3, 1e-12, 1e-30, 1e-42, 1e10, 9e14)
_WILD = (np.nan, np.inf, -np.inf, 1e15, -1e15, 1.1e15, 0.0, -0.0, 1e-45)


def _runtime() -> tuple[str, str]:
    """Return a compiler with sanitizers, and the library that must be loaded before all others."""
    compiler = shutil.which(os.environ.get("CC") or "cc")
    if compiler is None:
        raise UnavailableError("there is no C compiler")
    asked = [compiler, "-print-file-name=libasan.so"]
    told = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()
    if not sys.platform.startswith("linux") or not Path(told).is_file():
        raise UnavailableError(f"{compiler} has no sanitizers")
    return compiler, str(Path(told).resolve())


# ---------------------------------------------------------------------- one search


def _held_as(rng: random.Random, numbers: np.ndarray) -> np.ndarray:
    """Return the same numbers in another type, order of bytes or of memory, or place."""
    how = rng.choice(["plain", "plain", "double", "half", "whole", "columns", "apart", "shifted"])
    if how == "double":
        return numbers.astype(np.float64)
    if how in ("half", "whole"):
        with np.errstate(all="ignore"):
            return numbers.astype(np.float16 if how == "half" else np.int32)
    if how == "columns":
        return np.asfortranarray(numbers)
    if how == "apart":
        return np.repeat(np.repeat(numbers, 2, axis=0), 3, axis=1)[::2, ::3]
    if how == "shifted":  # begins at an address that is no multiple of a number's size
        room = np.empty(numbers.nbytes + 1, dtype=np.uint8)
        moved = room[1:].view(np.uint8)
        moved[:] = np.frombuffer(numbers.tobytes(), dtype=np.uint8)
        return np.frombuffer(moved.data, dtype=numbers.dtype).reshape(numbers.shape)
    return numbers


def _drawn(rng: random.Random, n: int, d: int) -> np.ndarray:
    """Draw points: spread, far away, tiny, alike, or with a wild number among them."""
    draws = np.random.default_rng(rng.randrange(2**32))
    points = draws.normal(size=(n, d)) * rng.choice(_SCALES) + rng.choice(_SHIFTS)
    if n and rng.random() < 0.3:
        points = points[draws.integers(0, max(1, n // 3), n)]
    if points.size and rng.random() < 0.15:
        points[rng.randrange(n), rng.randrange(d)] = rng.choice(_WILD)
    with np.errstate(all="ignore"):
        return np.ascontiguousarray(points, dtype=np.float32)


def _in_pieces(rng: random.Random, index: Any, queries: np.ndarray, level: int) -> np.ndarray:
    """Search by several calls, cut anywhere, as threads do; all arrays are as long as told."""
    packed = index._packed
    held, library = packed.concepts, packed.library
    n, d = held.points.shape
    found = np.full((len(queries), index.n_labels), np.inf, dtype=np.float32)
    cuts = sorted({0, n, *(rng.randrange(n + 1) for _ in range(rng.randrange(4)))})
    work_bytes = library.polyseme_workspace(d, len(queries))
    arrays = (held.points, packed.packed, packed.terms, held.centre, held.starts, held.segments)
    for first, last in itertools.pairwise(cuts):
        room = np.empty(work_bytes, dtype=np.uint8)
        library.polyseme_nearest(
            level, *(one.ctypes.data for one in arrays), n, d, len(held.segments),
            queries.ctypes.data, len(queries), first, last, found.ctypes.data, index.n_labels,
            room.ctypes.data,
        )  # fmt: skip
    return found


def _check(found: np.ndarray, expected: np.ndarray) -> None:
    """Compare distances with those of the reference way, as closely as is promised."""
    if found.shape != expected.shape or (np.isinf(found) != np.isinf(expected)).any():
        raise AssertionError(f"distances {found.shape} are not those of the reference way")
    known = np.isfinite(expected) & (np.maximum(found, expected) > 1e-18)
    gaps = np.abs(found[known] / expected[known] - 1)
    if (gaps > 1e-5).any() or np.isnan(found).any():
        raise AssertionError(f"distances differ by up to {gaps.max(initial=0):g} of themselves")


def search(seed: int) -> str:
    """Search once by every instruction set; give what was searched."""
    from polyseme import _native
    from polyseme.index import ConceptIndex, _nearest

    rng = random.Random(seed)
    n, q = rng.choice(_SIZES), rng.choice(_SIZES[:-3])
    d = rng.choice(
        [1, 2, 3, 4, 5, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 129, rng.choice(_SIZES)]
    )
    n_labels = rng.choice([1, 2, 7, n // 9 + 1, n // 2 + 1, n + 3])
    labels = np.random.default_rng(rng.randrange(2**32)).integers(0, n_labels, n)
    points, queries = _held_as(rng, _drawn(rng, n, d)), _held_as(rng, _drawn(rng, q, d))
    if rng.random() < 0.3 and n and q:
        queries = np.asarray(points, dtype=np.float32)[np.arange(q) % n]
    for level, name in enumerate(_native.LEVELS):
        os.environ["POLYSEME_NATIVE"] = name
        if _native.level() == level:
            index = ConceptIndex(points, labels, n_labels)
            rows = index._queries(queries)
            expected = index._reference(rows, _nearest, np.float32(np.inf))
            _check(index.distances(queries), expected)
            if index._packed is not None and q:
                _check(index._packed.distances(rows, n_labels), expected)
                _check(_in_pieces(rng, index, np.array(rows, order="C"), level), expected)
    return f"{n} concepts, {q} queries, {d} components"


# ---------------------------------------------------------------------- processes


def _work(folder: Path) -> None:
    """Build the library with sanitizers in a folder, and search with it."""
    from polyseme import _native
    from polyseme._native import build

    preloaded = os.environ.pop("LD_PRELOAD")  # the compiler itself can do without
    for name in build.SOURCES:
        shutil.copy(build.FOLDER / name, folder / name)
    # As far as it can be without hiding what the sanitizers look for.
    build.FLAGS = tuple("-O1" if flag == "-O3" else flag for flag in build.FLAGS)
    path = build.build(folder)
    os.environ["LD_PRELOAD"] = preloaded
    _native.library_path = lambda: path  # type: ignore[assignment]
    if _native.library() is None or b"__asan" not in path.read_bytes():
        raise RuntimeError("the library with sanitizers is not used")
    work(lambda seed: judged(lambda: search(seed)))


def attack(place: Path, rng: random.Random) -> Iterator[Tried]:
    """Search again and again."""
    compiler, library = _runtime()
    worker = Worker(
        *("-m", __name__, str(place)),
        CC=f"{compiler} {_SANITIZED}",
        LD_PRELOAD=library,
        ASAN_OPTIONS="abort_on_error=1:detect_leaks=0",
        UBSAN_OPTIONS="abort_on_error=1",
        OMP_NUM_THREADS="2",
    )
    try:
        while True:
            seed = rng.randrange(2**40)
            found = worker.ask(seed)
            yield Tried(f"search {seed}", found.outcome, found.outcome in HELD, found.detail)
    finally:
        worker.close()


if __name__ == "__main__":
    _work(Path(sys.argv[1]))
