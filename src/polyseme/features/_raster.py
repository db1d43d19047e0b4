"""Raster files by Pillow: what a file is, and its pixels as plain gray or red-green-blue.

In: an open file of whatever content. Out: Pillow pictures that the rest need not look into. Here
stands everything about modes, bits and transparency, and what Pillow gets wrong about them.
"""

from __future__ import annotations

import contextlib
import re
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import IO, TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from polyseme.features._svg import UNREADABLE
from polyseme.features.media import MediaError, needs

if TYPE_CHECKING:
    from PIL.Image import Image
    from PIL.ImageFile import ImageFile

# What strangers' files are tried as. Decoders that run other programs are not among them.
_FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "DIB", "TIFF", "PPM")
_BAND = 4_000_000
_PILLOW, _NOTHING = re.compile(r"PIL\."), re.compile(r"(?!)")


def load_pillow() -> None:
    """Import the decoders that are used, which also enters them in Pillow's register."""
    try:
        from PIL import (  # noqa: F401 - importing registers them
            BmpImagePlugin,
            GifImagePlugin,
            JpegImagePlugin,
            PngImagePlugin,
            PpmImagePlugin,
            TiffImagePlugin,
            WebPImagePlugin,
        )
    except ImportError as error:
        raise needs("image", "Reading pictures") from error


class _Reading(threading.local):
    """A pattern of module names: Pillow's in the thread that reads, while it does, else none."""

    pattern = _NOTHING.pattern
    match: Callable[[str], object] = _NOTHING.match

    def __reduce__(self) -> tuple[object, ...]:
        """Say nothing in other processes; scikit-learn takes the filters along to its workers."""
        return re.compile, (self.pattern,)


@contextlib.contextmanager
def quiet_pillow() -> Iterator[None]:
    """Ignore Pillow's warnings in this thread, also under `-W error`, until the block ends."""
    # `warnings.catch_warnings` would change what other threads hear.
    reading = _Reading()
    reading.match = _PILLOW.match
    one = ("ignore", None, Warning, reading, 0)
    filters = cast("list[object]", warnings.filters)
    filters.insert(0, one)
    try:
        yield
    finally:
        reading.match = _NOTHING.match  # somebody may have copied the filters meanwhile
        with contextlib.suppress(ValueError):
            filters.remove(one)


def identified(file: IO[bytes]) -> ImageFile:
    """Read a file's header by the format that its first bytes announce."""
    # Not `Image.open`: its limit on pixels is one for all threads, ours is a parameter.
    from PIL import Image

    file.seek(0)
    start = file.read(16)
    announced = False
    for name in _FORMATS:
        factory, accept = Image.OPEN[name]
        if accept is None or not _said_yes(accept(start)):
            continue
        announced = True
        file.seek(0)
        try:
            return factory(file, "")
        except SyntaxError:  # how Pillow says that it is another format after all
            continue
    raise MediaError("is damaged or of a kind that cannot be read" if announced else UNREADABLE)


def _said_yes(answer: object) -> bool:
    """Tell a match from a text that explains why the format is not supported."""
    return bool(answer) and not isinstance(answer, str)


def refuse_misread(picture: ImageFile) -> None:
    """Raise for TIFF forms that Pillow decodes to noise without a word."""
    if picture.format != "TIFF":
        return
    tags = cast("Any", picture).tag_v2
    deep = max(tags.get(258, (1,))) > 8
    swapped = tags.prefix == b"MM" and picture.mode in ("I", "F") and tags.get(259, 1) != 1
    if deep and (tags.get(284, 1) == 2 or swapped):
        raise MediaError("is a TIFF of a kind that cannot be read")


def mend_transparency(picture: ImageFile) -> None:
    """Bring a PNG's transparent colour to the 8 bits that its pixels will have."""
    colour = picture.info.get("transparency")
    if picture.format != "PNG" or colour is None or not picture.tile:
        return
    raw = picture.tile[0][3]
    if raw == "RGB;16B":
        picture.info["transparency"] = tuple(value >> 8 for value in colour)
    elif raw in ("L;2", "L;4"):
        picture.info["transparency"] = colour * (85 if raw == "L;2" else 17)


def flat(picture: Image) -> Image:
    """Turn any mode into plain gray or red-green-blue, on white."""
    from PIL import Image, ImageChops

    if picture.mode.startswith(("I", "F")):
        return Image.fromarray(_eight_bits(picture))
    if picture.has_transparency_data:
        return _on_white(picture)
    # Pillow takes every CMYK JPEG for an inverted one; only Adobe's are.
    if picture.mode == "CMYK" and picture.format == "JPEG" and "adobe" not in picture.info:
        picture = ImageChops.invert(picture)
    if picture.mode in ("L", "RGB"):
        return picture
    return picture.convert("L" if picture.mode == "1" else "RGB")


def _on_white(picture: Image) -> Image:
    """Compose on white, a band at a time to bound the memory."""
    from PIL import Image

    width, height = picture.size
    rows = max(1, _BAND // width)
    if rows >= height:
        white = Image.new("RGBA", picture.size, "white")
        return Image.alpha_composite(white, picture.convert("RGBA")).convert("RGB")
    flat = Image.new("RGB", picture.size)
    for top in range(0, height, rows):
        band = picture.crop((0, top, width, min(top + rows, height)))
        flat.paste(_on_white(band), (0, top))
    return flat


def _eight_bits(picture: Image) -> NDArray[np.uint8]:
    """Scale gray values of 16 or 32 bits as `read_picture` documents."""
    values = np.asarray(picture)
    tags = getattr(picture, "tag_v2", {})
    if picture.mode.startswith("I;16") or picture.format in ("PNG", "PPM"):
        if tags.get(262) == 0:
            values = np.iinfo(np.uint16).max - values
        gray = (values >> 8).astype(np.uint8)
        gray[values == picture.info.get("transparency", -1)] = 255
        return gray
    if picture.mode == "I":
        if max(tags.get(258, (0,))) == 32 and tags.get(339, (1,))[0] == 1:
            values = values.view(np.uint32)
        low, high = int(values.min()), int(values.max())
        if low >= 0 and high <= 65535:
            return (values if high <= 255 else values >> 8).astype(np.uint8)
        return _between(values, low, high)
    finite = values[np.isfinite(values)]
    least, most = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 1.0)
    if least >= 0 and most <= 1:
        least, most = 0.0, 1.0
    return _between(values, least, most)


def _between(values: NDArray[Any], low: float, high: float) -> NDArray[np.uint8]:
    """Scale so that `low` is black and `high` white; one value alone is black or white by sign."""
    span = (high - low) or 1.0
    low = low if high > low else 0.0
    with np.errstate(invalid="ignore"):  # a float that is no number becomes black below
        share = np.clip((values.astype(np.float64) - low) / span, 0, 1)
    return np.rint(np.nan_to_num(share) * 255).astype(np.uint8)
