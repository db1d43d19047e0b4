"""Pictures as files or arrays become squares of bytes: the first step of `ImageFeatures`.

In: a path (JPEG, PNG, WebP, GIF, BMP, TIFF, PPM, SVG) or a user's array. Out: uint8 of shape
(size, size, 3), or a `MediaError` with a short reason, whatever is wrong with the file.
"""

from __future__ import annotations

import contextlib
import errno
import io
import math
import os
import re
import stat
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from polyseme._validation import InputError, check_number, check_option
from polyseme.features._raster import (
    flat,
    identified,
    load_pillow,
    mend_transparency,
    quiet_pillow,
    refuse_misread,
)
from polyseme.features._svg import MOST_BYTES, rasterise
from polyseme.features.media import MediaError, Source

if TYPE_CHECKING:
    from PIL.Image import Image

FRAMINGS = ("stretch", "crop", "pad")
_COMMON_SUFFIXES = (".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".apng", ".webp", ".gif", ".bmp")
_RARER_SUFFIXES = (".dib", ".tif", ".tiff", ".ppm", ".pgm", ".pbm", ".pnm", ".svg", ".svgz")
SUFFIXES = frozenset(_COMMON_SUFFIXES + _RARER_SUFFIXES)

_MOST_BYTES = 2_000_000_000
_LARGE = 20_000_000
_TRANSPOSED = {2: 0, 3: 3, 4: 1, 5: 5, 6: 4, 7: 6, 8: 2}  # EXIF orientation: Pillow's transposition
_MARKUP = re.compile(rb"\xef\xbb\xbf\s*<|\xff\xfe<\0|\xfe\xff\0<|\s*<|\x1f\x8b")

# Many threads read at once, but only one of them may hold a large picture.
_one_large = threading.Lock()


def read_picture(
    path: Source, *, size: int, framing: str = "stretch", max_megapixels: float = 100.0
) -> NDArray[np.uint8]:
    """Read a picture file and bring it to a square.

    The content decides what a file is, not its suffix. Of several frames or pages the first
    counts. EXIF rotation is followed, transparency is laid on white, colour profiles are ignored.
    Of 16 bits the upper 8 are kept. TIFF values of 32 bits have no agreed white: whole numbers in
    0..255 stay, in 0..65535 count as 16 bits, and floats in 0..1 are multiplied by 255; all others
    are scaled so that the smallest value is black and the largest white (NaN is black).

    Parameters
    ----------
    path : str or path-like
        The file. It may be read from several threads at once.
    size : int
        Pixels a side of the result.
    framing : {"stretch", "crop", "pad"}
        Both sides to `size`; or the shorter side to `size` and the centre cut out; or the longer
        side to `size` with white around.
    max_megapixels : float
        Larger pictures are refused before they are decoded. A JPEG counts with the size that it
        is decoded to, which is as small as serves `size` (a progressive one with its full size).

    Returns
    -------
    ndarray of uint8, shape (size, size, 3)

    Raises
    ------
    MediaError
        When the file cannot be used.
    InputError
        When a parameter is wrong or the extra `image` is not installed.
    """
    _check_square(size, framing, owner="read_picture")
    check_number("max_megapixels", max_megapixels, owner="read_picture", low=0, above=True)
    load_pillow()
    try:
        with quiet_pillow(), _opened(Path(path)) as file:
            if _MARKUP.match(file.read(512)):
                file.seek(0)
                content = file.read(MOST_BYTES + 1)
                drawn = rasterise(content, side=size, cover=framing != "pad")
                return _read(io.BytesIO(drawn), size, framing, math.inf)
            return _read(file, size, framing, max_megapixels)
    except InputError:
        raise
    except Exception as error:  # decoders raise nearly everything on broken files
        raise MediaError(_reason(error)) from error


def picture_from_array(array: object, *, size: int, framing: str = "stretch") -> NDArray[np.uint8]:
    """Bring a picture that is already an array to a square.

    Parameters
    ----------
    array : array-like, shape (h, w), (h, w, 1), (h, w, 3) or (h, w, 4)
        Gray, red-green-blue, or that with alpha (laid on white); uint8, uint16 (the upper 8 bits
        are kept), bool, or floats in 0..1.
    size, framing : int, str
        As for `read_picture`.

    Returns
    -------
    ndarray of uint8, shape (size, size, 3)
    """
    _check_square(size, framing, owner="picture_from_array")
    load_pillow()
    from PIL import Image

    pixels = _as_bytes(np.asarray(array))
    if pixels.ndim == 3 and pixels.shape[2] == 1:
        pixels = pixels[:, :, 0]
    picture = flat(Image.fromarray(np.ascontiguousarray(pixels)))
    return _squared(_framed(picture, size, framing), size)


def _check_square(size: object, framing: object, *, owner: str) -> None:
    """Check the two parameters that both readers share."""
    check_number("size", size, owner=owner, low=1, high=8192, whole=True)
    check_option("framing", framing, FRAMINGS, owner=owner)


def _as_bytes(array: NDArray[Any]) -> NDArray[np.uint8]:
    """Check a user's array and scale it to 0..255."""
    if array.ndim not in (2, 3) or (array.ndim == 3 and array.shape[2] not in (1, 3, 4)):
        raise InputError(
            "`array` of `picture_from_array` must have the shape (h, w), (h, w, 1), (h, w, 3) or "
            f"(h, w, 4); got {array.shape}."
        )
    if not array.size:
        raise InputError(
            f"`array` of `picture_from_array` must hold pixels; got the shape {array.shape}."
        )
    if array.dtype == np.uint8:
        return cast("NDArray[np.uint8]", array)
    if array.dtype.kind == "u" and array.dtype.itemsize == 2:  # in either byte order
        return (array >> 8).astype(np.uint8)
    if array.dtype == np.bool_:
        return array.astype(np.uint8) * np.uint8(255)
    if array.dtype.kind != "f":
        raise InputError(
            "`array` of `picture_from_array` must be uint8, uint16, bool or floats in 0..1; "
            f"got {array.dtype}."
        )
    if not (array.min() >= 0 and array.max() <= 1):  # so that NaN fails as well
        raise InputError(
            "`array` of `picture_from_array` must have floats in 0..1; "
            f"got {array.min():g} to {array.max():g}."
        )
    scaled: NDArray[np.uint8] = np.rint(array.astype(np.float64) * 255).astype(np.uint8)
    return scaled


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[IO[bytes]]:
    """Open a regular file, and nothing else: a pipe or a device is not even touched."""
    # Pillow gets no file name, so it maps nothing into memory that could shrink under it.
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    try:
        _check_kind(path.stat())
        file = os.fdopen(os.open(path, flags), "rb")
    except MediaError:
        raise
    except (OSError, ValueError) as error:  # a name that no system allows is a ValueError
        raise MediaError(_absence(path, error)) from error
    with file:
        _check_kind(os.fstat(file.fileno()))  # it may have been exchanged meanwhile
        yield file


def _check_kind(status: os.stat_result) -> None:
    """Raise unless this is a regular file of a sensible size."""
    if stat.S_ISDIR(status.st_mode):
        raise MediaError("is a folder")
    if not stat.S_ISREG(status.st_mode):
        raise MediaError("is no regular file")
    if not status.st_size:
        raise MediaError("is empty")
    if status.st_size > _MOST_BYTES:
        raise MediaError(
            f"has {status.st_size / 1e9:.1f} GB, more than the {_MOST_BYTES / 1e9:g} allowed"
        )


def _absence(path: Path, error: OSError | ValueError) -> str:
    """Say why a file could not be opened."""
    number = error.errno if isinstance(error, OSError) else None
    if number == errno.ELOOP:
        return "is a link that leads in a circle"
    if number == errno.ENOENT:
        return "is a link to a missing file" if path.is_symlink() else "does not exist"
    if isinstance(error, OSError) and error.strerror:
        return f"cannot be opened ({error.strerror.lower()})"
    return "cannot be opened"


def _reason(error: Exception) -> str:
    """Say in a few words what a decoder meant."""
    from PIL.Image import DecompressionBombError

    text = str(error).lower()
    if isinstance(error, MemoryError):
        return "needs more memory than there is"
    if isinstance(error, DecompressionBombError):
        return "has more pixels than PIL.Image.MAX_IMAGE_PIXELS allows this format"
    if isinstance(error, EOFError) or "truncated" in text:
        return "is truncated"
    if "max_text" in text:
        return "holds more text than a picture may"
    if isinstance(error, OSError) and error.errno and error.strerror:
        return f"cannot be read ({error.strerror.lower()})"
    return "is damaged"


def _read(file: IO[bytes], size: int, framing: str, max_megapixels: float) -> NDArray[np.uint8]:
    """Decode one raster file, in the order: header, limits, pixels, square."""
    with identified(file) as picture:
        pixels = picture.width * picture.height
        if picture.format in ("JPEG", "MPO"):
            width, height = _target(picture.size, size, framing)
            picture.draft(None, (2 * width, 2 * height))
            # All coefficients of a progressive file are held, whatever is made of them.
            if not picture.info.get("progressive"):
                pixels = picture.width * picture.height
        if pixels > max_megapixels * 1e6:
            found = math.ceil(pixels / 1e5) / 10
            raise MediaError(f"has {found:g} megapixels, more than the {max_megapixels:g} allowed")
        refuse_misread(picture)
        mend_transparency(picture)
        with _one_large if pixels > _LARGE else contextlib.nullcontext():
            picture.load()
            small = _framed(flat(picture), size, framing)
        # Only now: Pillow turns some pictures itself on loading, and then forgets the tag.
        return _squared(_upright(small, picture), size)


def _target(shape: tuple[int, int], size: int, framing: str) -> tuple[int, int]:
    """Tell the width and height that a picture's used part is brought to."""
    if framing != "pad":
        return size, size
    width, height = (max(1, round(side * size / max(shape))) for side in shape)
    return width, height


def _framed(picture: Image, size: int, framing: str) -> Image:
    """Resample the part that is used."""
    from PIL.Image import Resampling

    width, height = picture.size
    box = (0.0, 0.0, float(width), float(height))
    if framing == "crop":
        side = min(width, height)
        left, top = (width - side) / 2, (height - side) / 2
        box = (left, top, left + side, top + side)
    target = _target(picture.size, size, framing)
    factor = max((box[2] - box[0]) / target[0], (box[3] - box[1]) / target[1])
    # Averaging first is much faster, but not exact: never for what is small anyway.
    gap = 3.0 if factor > 4 else None
    return picture.resize(target, Resampling.BICUBIC, box=box, reducing_gap=gap)


def _upright(small: Image, picture: Image) -> Image:
    """Turn a picture the way its EXIF block says, if there is one that can be read."""
    from PIL.Image import Transpose

    try:
        turn = _TRANSPOSED.get(picture.getexif().get(274, 1))
    except Exception:  # a broken block says nothing; the pixels were good
        return small
    return small if turn is None else small.transpose(Transpose(turn))


def _squared(small: Image, size: int) -> NDArray[np.uint8]:
    """Centre on white and hand over three channels."""
    from PIL import Image

    if small.size != (size, size):
        square = Image.new(small.mode, (size, size), "white")
        square.paste(small, ((size - small.width) // 2, (size - small.height) // 2))
        small = square
    pixels = np.array(small)
    return pixels if pixels.ndim == 3 else np.repeat(pixels[:, :, np.newaxis], 3, axis=2)


def _after_fork() -> None:
    """Start over in a forked process, where the lock may be held by nobody."""
    global _one_large
    _one_large = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
