"""Read the timbre of Million Song Dataset files.

In: an HDF5 file of the Million Song Dataset's layout with one song. Out: its timbre (n_segments,
12) as the Echo Nest computed it, in time order.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polyseme.media.base import MediaError, check_file, needs

try:
    import h5py
except ImportError as error:
    raise needs("audio", "Reading Million Song Dataset files") from error

N_COEFFICIENTS = 12
MOST_SEGMENTS = 200_000  # far more than a song has: bounds the memory
_CHUNK_BYTES = 1 << 26  # what one chunk may unpack to; files of the dataset stay far below
# HDF5's numbers of deflate, shuffle and checksum: any other filter would have it look for a library
# to load.
_SAFE_FILTERS = {1, 2, 3}
_TIMBRE = "segments_timbre"


def read_timbre(path: Path) -> NDArray[np.float32]:
    """Read `/analysis/segments_timbre` (n_segments, 12) of the one song in a file."""
    check_file(path)
    try:
        with h5py.File(path, "r", locking=False) as file:
            songs = _dataset(file, "songs")  # one row for each song
            if songs is not None and songs.dtype.names and songs.size > 1:
                raise MediaError(f"holds {songs.size:,} songs, where one is expected")
            timbre = _dataset(file, _TIMBRE)
            return _read_segments(timbre)
    except MediaError:
        raise
    except (OSError, RuntimeError, ValueError, KeyError, TypeError, MemoryError) as error:
        raise MediaError("is damaged or not an HDF5 file") from error


def _dataset(file: Any, name: str) -> Any:
    """Return a dataset of the group `analysis` of an open file, or None where there is none.

    A stranger's file must not lead elsewhere: links to other files are refused, and so is what HDF5
    would load a library for or unpack without bounds.
    """
    dataset = file
    for key in ("analysis", name):
        is_group = isinstance(dataset, h5py.Group)
        link = dataset.get(key, getlink=True) if is_group else None
        if link is not None and not isinstance(link, h5py.HardLink):
            raise MediaError(f"has a link in the place of `{key}`")
        dataset = None if link is None else dataset[key]
    if not isinstance(dataset, h5py.Dataset):
        return None
    if dataset.is_virtual or dataset.external:
        raise MediaError(f"keeps `{name}` in other files")
    properties = dataset.id.get_create_plist()
    n_filters = properties.get_nfilters()
    filters = {properties.get_filter(position)[0] for position in range(n_filters)}
    if not filters <= _SAFE_FILTERS:
        raise MediaError(f"has `{name}` packed in a way that is not read")
    chunk_size = np.prod(dataset.chunks or 0, dtype=float)
    chunk_bytes = chunk_size * dataset.dtype.itemsize
    if chunk_bytes > _CHUNK_BYTES:
        raise MediaError(f"has `{name}` in chunks that are too large")
    return dataset


def _read_segments(timbre: Any) -> NDArray[np.float32]:
    """Return all segments of a dataset, (n_segments, 12), after checking its type and shape.

    `timbre` is None where the file has no such dataset, which is refused as well.
    """
    if timbre is None:
        raise MediaError(f"has no dataset `/analysis/{_TIMBRE}`")
    shape = timbre.shape
    dtype = timbre.dtype
    is_float = dtype.kind == "f" and dtype.itemsize <= 8
    # HDF5 knows datasets without a shape.
    has_shape = len(shape or ()) == 2 and shape[1] == N_COEFFICIENTS
    if not (is_float and has_shape):
        raise MediaError(
            f"has `{_TIMBRE}` as {dtype} of shape {shape}, where floats of shape (n, 12) are "
            "expected"
        )
    n_segments = len(timbre)
    if not 1 <= n_segments <= MOST_SEGMENTS:
        raise MediaError(f"holds {n_segments:,} segments; 1 to {MOST_SEGMENTS:,} are read")
    with np.errstate(over="ignore", invalid="ignore"):  # what overflows is refused below
        segments: NDArray[np.float32] = np.asarray(timbre[:]).astype(np.float32)
    if not np.isfinite(segments).all():
        raise MediaError("holds timbre that is not finite")
    return segments
