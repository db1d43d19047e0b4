"""Million Song Dataset files become timbre.

In: an HDF5 file of the Million Song Dataset's layout, with one song or several. Out: the timbre
(n_segments, 12) of each song as the Echo Nest computed it, in time order.
"""

from __future__ import annotations

import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polyseme.features.media import MediaError, needs

SUFFIXES = frozenset({".h5", ".hdf5"})
N_COEFFICIENTS = 12
MOST_SEGMENTS = 200_000
MOST_SONGS = 2_000_000

# What one chunk may unpack to; files of the dataset stay far below.
_CHUNK_BYTES = 1 << 26
# Deflate, shuffle, checksum: any other filter would have HDF5 look for a library to load.
_FILTERS = (1, 2, 3)
_TIMBRE = "segments_timbre"
_STARTS = "idx_segments_timbre"

Timbre = NDArray[np.float32]


def read_timbre(path: Path) -> Timbre:
    """Read the timbre of the one song in a file.

    Parameters
    ----------
    path : Path
        A regular file with the dataset `/analysis/segments_timbre`, shape (n_segments, 12).

    Returns
    -------
    float32 array, shape (n_segments, 12)
        At least one segment.

    Raises
    ------
    MediaError
        When the file cannot be used, or holds several songs.
    """
    with _opened(path) as file:
        timbre, songs = _timbre(file), _songs(file)
        if songs is not None and len(songs) > 1:
            raise MediaError(f"holds {len(songs):,} songs, where one is expected")
        if not len(timbre):
            raise MediaError("holds no segments")
        return _rows(timbre, 0, len(timbre))


def read_songs(path: Path) -> Iterator[tuple[str, Timbre]]:
    """Read the timbre of every song in a file, one after the other.

    Parameters
    ----------
    path : Path
        A file of one song, or one into which several were put, where
        `/analysis/songs['idx_segments_timbre']` says at which row each song starts.

    Yields
    ------
    track_id : str
        From `/analysis/songs['track_id']`; without such a table, the file's name less its suffix.
    timbre : float32 array, shape (n_segments, 12)
        A song without segments has no rows.

    Raises
    ------
    MediaError
        When the file, or the song that comes next, cannot be used.
    """
    with _opened(path) as file:
        timbre, songs = _timbre(file), _songs(file)
        if songs is None:
            yield path.stem, _rows(timbre, 0, len(timbre))
            return
        names, starts = _track_ids(songs), _starts(songs, len(timbre))
        for name, start, end in zip(names, starts[:-1], starts[1:], strict=True):
            yield name, _rows(timbre, int(start), int(end))


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    """Open a file for reading; whatever HDF5 finds wrong with it becomes a reason."""
    try:
        import h5py
    except ImportError as error:
        raise needs("audio", "Reading Million Song Dataset files") from error
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise MediaError("is not a regular file")
        with path.open("rb"):
            pass
        with h5py.File(path, "r", locking=False) as file:
            yield file
    except MediaError:
        raise
    except FileNotFoundError as error:
        raise MediaError("is not there") from error
    except PermissionError as error:
        raise MediaError("may not be read (permission denied)") from error
    except (OSError, RuntimeError, ValueError, KeyError, TypeError, MemoryError) as error:
        raise MediaError("is damaged or not an HDF5 file") from error


def _member(group: Any, name: str) -> Any:
    """Give what a group holds under a name, or None; never what a link elsewhere leads to."""
    import h5py

    link = group.get(name, getlink=True)
    if link is None:
        return None
    if not isinstance(link, h5py.HardLink):
        raise MediaError(f"has a link in the place of `{name}`")
    return group[name]


def _dataset(file: Any, name: str) -> Any:
    """Give a dataset of the group `analysis`, or None, after a look at how it is stored."""
    import h5py

    group = _member(file, "analysis")
    found = _member(group, name) if isinstance(group, h5py.Group) else None
    if not isinstance(found, h5py.Dataset):
        return None
    if found.is_virtual or found.external:
        raise MediaError(f"keeps `{name}` in other files")
    created = found.id.get_create_plist()
    filters = {created.get_filter(number)[0] for number in range(created.get_nfilters())}
    if not filters <= set(_FILTERS):
        raise MediaError(f"has `{name}` packed in a way that is not read")
    if found.chunks and np.prod(found.chunks, dtype=float) * found.dtype.itemsize > _CHUNK_BYTES:
        raise MediaError(f"has `{name}` in chunks that are too large")
    return found


def _timbre(file: Any) -> Any:
    """Give the dataset of all songs' segments."""
    found = _dataset(file, _TIMBRE)
    if found is None:
        raise MediaError(f"has no dataset `/analysis/{_TIMBRE}`")
    if len(found.shape or ()) != 2 or found.shape[1] != N_COEFFICIENTS:
        raise MediaError(f"has `{_TIMBRE}` of shape {found.shape}, where (n, 12) is expected")
    if found.dtype.kind != "f" or found.dtype.itemsize > 8:
        raise MediaError(f"has `{_TIMBRE}` of type {found.dtype}, where floats are expected")
    return found


def _songs(file: Any) -> Any:
    """Give the table of songs; None when there is none."""
    found = _dataset(file, "songs")
    if found is None or found.dtype.names is None or len(found.shape) != 1 or not len(found):
        return None
    if len(found) > MOST_SONGS:
        raise MediaError(f"holds {len(found):,} songs; up to {MOST_SONGS:,} are read")
    return found


def _track_ids(songs: Any) -> list[str]:
    """Read the songs' ids."""
    if "track_id" not in songs.dtype.names:
        raise MediaError("has no `track_id` in its table of songs")
    ids = np.asarray(songs.fields("track_id")[:]).tolist()
    return [one.decode("utf-8", "replace") if isinstance(one, bytes) else str(one) for one in ids]


def _starts(songs: Any, n_segments: int) -> NDArray[np.int64]:
    """Read the row at which each song starts, and the end of the last, (n_songs + 1,)."""
    if _STARTS not in songs.dtype.names:
        if len(songs) > 1:
            raise MediaError(f"has no `{_STARTS}` in its table of songs")
        return np.array([0, n_segments])
    given = np.asarray(songs.fields(_STARTS)[:])
    starts = np.append(given.astype(np.int64) if given.dtype.kind in "iu" else -1, n_segments)
    if starts[0] != 0 or (np.diff(starts) < 0).any():
        raise MediaError(f"has rows in `{_STARTS}` that do not ascend from 0 to its segments")
    return starts


def _rows(timbre: Any, start: int, end: int) -> Timbre:
    """Read some segments and refuse numbers that are none."""
    if end - start > MOST_SEGMENTS:
        raise MediaError(
            f"has a song of {end - start:,} segments; up to {MOST_SEGMENTS:,} are read"
        )
    with np.errstate(over="ignore", invalid="ignore"):
        rows: Timbre = np.asarray(timbre[start:end]).astype(np.float32)
    if not np.isfinite(rows).all():
        raise MediaError("holds timbre that is not finite")
    return rows
