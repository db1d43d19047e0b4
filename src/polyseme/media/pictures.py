"""Convert pictures, files or arrays, to squares of bytes: the first step of `ImageFeatures`.

In: a path (JPEG, PNG, WebP, GIF, BMP, TIFF, PPM, AVIF, HEIC, SVG) or a user's array. Out: uint8 of
shape (size, size, 3), or a `MediaError` with a short reason, whatever is wrong with the file.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import math
import os
import re
import subprocess
import sys
import threading
import zlib
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any, cast

import numpy as np
from numpy.typing import NDArray

from polyseme.base.text import error_text
from polyseme.base.validation import InputError
from polyseme.media.base import MediaError, check_file, needs
from polyseme.media.image import FORMATS

try:
    from PIL import Image, ImageChops
    from PIL.ImageFile import ImageFile
except ImportError as error:
    raise needs("image", "Reading pictures") from error

Image.init()  # with all its formats
with contextlib.suppress(ImportError):
    from pillow_heif import register_heif_opener

    register_heif_opener(thumbnails=False)
MOST_BYTES = 2_000_000_000
SVG_BYTES = 10_000_000
SVG_SECONDS = 10.0

# In pixels: the size of a large picture, and of a block that is composed at a time.
_LARGE = 20_000_000
_BAND = 4_000_000
_PIXEL_BYTES = 4  # of a decoded pixel, as red, green, blue and transparency take; deeper ones count
_TRANSPOSED = {2: 0, 3: 3, 4: 1, 5: 5, 6: 4, 7: 6, 8: 2}  # EXIF orientation: Pillow's transposition
_MARKUP = re.compile(rb"\xef\xbb\xbf\s*<|\xff\xfe<\0|\xfe\xff\0<|\s*<|\x1f\x8b")
# The kinds of an ISO file that HEIC pictures have, after the size of the first box.
_HEIC = re.compile(rb".{4}ftyp(hei[cxms]|hev[cxms]|mif1|msf1)", re.DOTALL)
# Of 255: a drawing whose values lie closer together on white can hardly be seen there.
_FAINT = 24
_UNREADABLE = "is no picture that can be read"

# Many threads read at once, but only one of them may hold a large picture.
_one_large = threading.Lock()


def read_picture(
    path: Path, *, size: int, framing: str = "stretch", max_megapixels: float = 100.0
) -> NDArray[np.uint8]:
    """Read a picture file and bring it to a square, (size, size, 3).

    For the parameters see `ImageFeatures`. The content decides what a file is, not its suffix. Of
    several frames or pages the first counts. EXIF rotation is followed, transparency is laid on
    white, or on black where white would hide the drawing; colour profiles are ignored. Of 16 bits
    the upper 8 are kept; 32 bits have no agreed white, and are scaled so that the smallest value is
    black and the largest white. An SVG is drawn without text and without pictures that it does not
    hold.
    """
    small, ground = _read_file(path, size, framing, max_megapixels)
    return _to_square(small, size, ground)


def read_thumbnail(
    path: Path, *, size: int, max_megapixels: float = 100.0, quality: int = 85
) -> bytes:
    """Return a picture file in its own proportions, no larger than `size` a side, as JPEG.

    What is smaller stays as it is, but for drawings; for all else see `read_picture`.
    """
    small, _ = _read_file(path, size, "pad", max_megapixels, enlarge=False)
    stream = io.BytesIO()
    small.save(stream, "JPEG", quality=quality)
    return stream.getvalue()


def _read_file(
    path: Path, size: int, framing: str, max_megapixels: float, *, enlarge: bool = True
) -> tuple[Image.Image, str]:
    """Read a picture file, with all that limits it, and resample the part that is used.

    Returns it with the colour of its ground, as `_flatten` does.
    """
    n_bytes = check_file(path)
    if n_bytes > MOST_BYTES:
        raise MediaError(f"has {n_bytes / 1e9:.1f} GB, more than the {MOST_BYTES / 1e9:g} allowed")
    try:
        # Pillow gets no file name, so it maps nothing into memory that could shrink under it.
        with path.open("rb") as file:
            if not _MARKUP.match(file.read(512)):
                return _read(file, size, framing, max_megapixels, enlarge=enlarge)
            file.seek(0)
            markup = file.read(SVG_BYTES + 1)
        png = _draw_svg(markup, size, cover=framing != "pad")
        return _read(io.BytesIO(png), size, framing, math.inf)
    except InputError:
        raise
    except MemoryError as error:
        raise MediaError("needs more memory than there is") from error
    except Exception as error:  # decoders raise nearly everything on broken files
        is_truncated = isinstance(error, EOFError) or "truncated" in str(error).lower()
        reason = "is truncated" if is_truncated else f"is damaged ({error_text(error, 50)})"
        raise MediaError(reason) from error


def picture_from_array(array: object, *, size: int, framing: str = "stretch") -> NDArray[np.uint8]:
    """Bring a picture that is already an array to a square, (size, size, 3).

    Arrays are gray (h, w) or (h, w, 1), red-green-blue (h, w, 3), or that with alpha (h, w, 4),
    laid on white or black as files are; of uint8, uint16 (the upper 8 bits are kept), bool, or
    floats in 0..1.
    """
    pixels = _as_bytes(np.asarray(array))
    if pixels.shape[2:] == (1,):
        pixels = pixels[:, :, 0]
    contiguous = np.ascontiguousarray(pixels)
    picture, ground = _flatten(Image.fromarray(contiguous))
    framed = _frame(picture, size, framing)
    return _to_square(framed, size, ground)


def _as_bytes(array: NDArray[Any]) -> NDArray[np.uint8]:
    """Return a user's array scaled to 0..255; raise for arrays that are no picture."""
    dtype = array.dtype
    shape = array.shape
    is_float = dtype.kind == "f" and array.size > 0
    # So that NaN fails as well; 16 bits may be in either byte order.
    in_unit_range = is_float and array.min() >= 0 and array.max() <= 1
    is_16_bits = dtype.kind == "u" and dtype.itemsize == 2
    has_type = in_unit_range or dtype in (np.uint8, np.bool_) or is_16_bits
    has_shape = len(shape) > 1 and shape[2:] in ((), (1,), (3,), (4,))
    if not (has_type and has_shape and array.size):
        values = f"{array.min():g} to {array.max():g}" if is_float else dtype
        raise InputError(
            "`array` of `picture_from_array` must be uint8, uint16, bool or floats in 0..1 of the "
            f"shape (h, w), (h, w, 1), (h, w, 3) or (h, w, 4); got {values} of the shape {shape}."
        )
    if dtype == np.uint8:
        return cast("NDArray[np.uint8]", array)
    if dtype == np.bool_:
        return array.astype(np.uint8) * np.uint8(255)
    if dtype.kind == "u":
        return (array >> 8).astype(np.uint8)
    scaled = array.astype(np.float64) * 255
    return np.rint(scaled).astype(np.uint8)


# ---------------------------------------------------------------------- from pixels to a square


def _read(
    file: IO[bytes], size: int, framing: str, max_megapixels: float, *, enlarge: bool = True
) -> tuple[Image.Image, str]:
    """Decode one raster file, in the order: header, limits, pixels, used part."""
    with open_picture(file) as picture:
        pixels = picture.width * picture.height
        size = size if enlarge else min(size, max(picture.size))
        if picture.format in ("JPEG", "MPO"):
            width, height = _target(picture.size, size, framing)
            picture.draft(None, (2 * width, 2 * height))
            # All coefficients of a progressive file are held, whatever is made of them.
            if not picture.info.get("progressive"):
                pixels = picture.width * picture.height
        if pixels > max_megapixels * 1e6:
            megapixels = math.ceil(pixels / 1e5) / 10
            raise MediaError(
                f"has {megapixels:g} megapixels, more than the {max_megapixels:g} allowed"
            )
        decoded = pixels * _pixel_bytes(picture)
        allowed = _PIXEL_BYTES * max_megapixels * 1e6
        if decoded > allowed:
            raise MediaError(
                f"unpacks to {decoded / 1e6:.0f} MB, more than the {allowed / 1e6:.0f} allowed"
            )
        _correct(picture)
        with _one_large if pixels > _LARGE else contextlib.nullcontext():
            picture.load()
            flat, ground = _flatten(picture)
            small = _frame(flat, size, framing)
        # Only now: Pillow turns some pictures itself on loading, and then forgets the tag.
        return _rotate_upright(small, picture), ground


def _pixel_bytes(picture: ImageFile) -> float:
    """Return the bytes of a decoded pixel: as Pillow keeps it, or in the file."""
    bytes_by_mode = {"1": 1, "L": 1, "P": 1, "I;16": 2, "I;16B": 2, "I;16L": 2}
    pillow_bytes = bytes_by_mode.get(picture.mode, 4)
    if picture.format != "TIFF":
        return pillow_bytes
    tags = cast("Any", picture).tag_v2
    # Whole strips of it, which may be all, are unpacked with all bits and channels.
    bits = [float(depth) for depth in tags.get(258, (1,))]
    n_channels = float(tags.get(277, 1))
    return max(pillow_bytes, sum(bits) / 8, max(bits) / 8 * n_channels)


def open_picture(file: IO[bytes]) -> ImageFile:
    """Read a file's header by the format that its first bytes announce."""
    # Not `Image.open`: its limit on pixels is one for all threads, ours is a parameter.
    reason = _UNREADABLE
    file.seek(0)
    start = file.read(16).ljust(16, b"\0")
    for name in FORMATS:
        factory, accept = Image.OPEN.get(name, (None, None))
        if factory is None or accept is None:
            if _HEIC.match(start) and name == "HEIF":
                raise needs("heic", "Reading HEIC pictures")
            continue
        answer = accept(start)
        if isinstance(answer, str):  # Pillow was built without the format
            raise MediaError(f"is {name}, which this Pillow was built without")
        if not answer:
            continue
        reason = "is damaged or of a kind that cannot be read"
        file.seek(0)
        with contextlib.suppress(SyntaxError):  # it is another format after all
            return factory(file, "")
    raise MediaError(reason)


def _target(shape: tuple[int, int], size: int, framing: str) -> tuple[int, int]:
    """Return the width and height that a picture's used part is brought to."""
    if framing != "pad":
        return size, size
    scale_from = max(shape)
    width, height = shape
    target_width = max(1, round(width * size / scale_from))
    target_height = max(1, round(height * size / scale_from))
    return target_width, target_height


def _frame(picture: Image.Image, size: int, framing: str) -> Image.Image:
    """Return the used part of a picture, resampled."""
    width, height = picture.size
    left = 0.0
    top = 0.0
    if framing == "crop" and width > height:
        left = (width - height) / 2
    elif framing == "crop":
        top = (height - width) / 2
    box = (left, top, width - left, height - top)
    target = _target(picture.size, size, framing)
    target_width, target_height = target
    horizontal_factor = (width - 2 * left) / target_width
    vertical_factor = (height - 2 * top) / target_height
    # Averaging first is much faster, but not exact: never for small pictures.
    gap = 3.0 if max(horizontal_factor, vertical_factor) > 4 else None
    return picture.resize(target, Image.Resampling.BICUBIC, box=box, reducing_gap=gap)


def _rotate_upright(small: Image.Image, picture: Image.Image) -> Image.Image:
    """Return a picture turned the way its EXIF block says, if there is one that can be read."""
    try:
        orientation = picture.getexif().get(274, 1)
        turn = _TRANSPOSED.get(orientation)
    except Exception:  # a broken EXIF block; the pixels are good
        return small
    if turn is None:
        return small
    return small.transpose(Image.Transpose(turn))


def _to_square(small: Image.Image, size: int, ground: str) -> NDArray[np.uint8]:
    """Return three channels of a picture in the centre of its ground, (size, size, 3)."""
    square = Image.new(small.mode, (size, size), ground)
    left = (size - small.width) // 2
    top = (size - small.height) // 2
    square.paste(small, (left, top))
    pixels = np.array(square)
    if pixels.ndim == 3:
        return pixels
    return np.repeat(pixels[:, :, np.newaxis], 3, axis=2)


# ---------------------------------------------------------------------- modes, bits, transparency


def _correct(picture: ImageFile) -> None:
    """Raise for TIFFs that Pillow decodes to noise; bring a PNG's clear colour to 8 bits."""
    if picture.format == "TIFF":
        tags = cast("Any", picture).tag_v2
        is_deep = max(tags.get(258, (1,))) > 8
        is_planar = tags.get(284, 1) == 2
        is_packed = tags.get(259, 1) != 1
        is_swapped = tags.prefix == b"MM" and picture.mode in ("I", "F") and is_packed
        if is_deep and (is_planar or is_swapped):
            raise MediaError("is a TIFF of a kind that cannot be read")
    clear = picture.info.get("transparency")
    if picture.format != "PNG" or clear is None or not picture.tile:
        return
    raw_mode = picture.tile[0][3]
    if raw_mode == "RGB;16B":
        picture.info["transparency"] = tuple(value >> 8 for value in clear)
    elif raw_mode == "L;2":
        picture.info["transparency"] = clear * 85
    elif raw_mode == "L;4":
        picture.info["transparency"] = clear * 17


def _flatten(picture: Image.Image) -> tuple[Image.Image, str]:
    """Return any mode as plain gray or red-green-blue, and the colour of the ground it lies on."""
    if picture.mode.startswith(("I", "F")):
        gray = Image.fromarray(_eight_bits(picture))
        opacity = _opacity(picture)
        if opacity is None:
            return gray, "white"
        return _on_ground(Image.merge("LA", (gray, opacity)))
    if picture.has_transparency_data:
        return _on_ground(picture)
    # Pillow takes every CMYK JPEG for an inverted one; only Adobe's are.
    if picture.mode == "CMYK" and picture.format == "JPEG" and "adobe" not in picture.info:
        picture = ImageChops.invert(picture)
    if picture.mode in ("L", "RGB"):
        return picture, "white"
    return picture.convert("L" if picture.mode == "1" else "RGB"), "white"


def _on_ground(picture: Image.Image) -> tuple[Image.Image, str]:
    """Return a picture on white, or on black where the drawing can hardly be seen on white."""
    on_white, spread_on_white = _compose(picture, "white")
    if spread_on_white >= _FAINT:
        return on_white, "white"
    on_black, spread_on_black = _compose(picture, "black")
    # They are equal where nothing is transparent, and both nothing where everything is.
    if spread_on_black > spread_on_white:
        return on_black, "black"
    return on_white, "white"


def _compose(picture: Image.Image, ground: str) -> tuple[Image.Image, int]:
    """Return a picture on a ground, composed a band at a time to bound the memory.

    The number beside it is the distance of its least and its largest value, of any channel.
    """
    flat = Image.new("RGB", picture.size)
    least = 255
    largest = 0
    for top, band in _bands(picture):
        below = Image.new("RGBA", band.size, ground)
        blended = Image.alpha_composite(below, band.convert("RGBA"))
        opaque = blended.convert("RGB")
        flat.paste(opaque, (0, top))
        extrema = cast("tuple[tuple[int, int], ...]", opaque.getextrema())
        for low, high in extrema:
            least = min(least, low)
            largest = max(largest, high)
    return flat, largest - least


def _opacity(picture: Image.Image) -> Image.Image | None:
    """Return the opacity of gray values of 16 bits; None where none of them is transparent."""
    clear = picture.info.get("transparency")
    if clear is None:
        return None
    opacity = np.empty(picture.size[::-1], dtype=np.uint8)
    for top, band in _bands(picture):
        is_clear = np.asarray(band) == clear
        rows = slice(top, top + band.height)
        opacity[rows] = np.where(is_clear, 0, 255)
    return Image.fromarray(opacity)


def _bands(picture: Image.Image) -> Iterator[tuple[int, Image.Image]]:
    """Yield a picture in bands, from the top down, each with its first row."""
    width, height = picture.size
    n_rows = max(1, _BAND // width)
    for top in range(0, height, n_rows):
        bottom = min(top + n_rows, height)
        yield top, picture.crop((0, top, width, bottom))


def _eight_bits(picture: Image.Image) -> NDArray[np.uint8]:
    """Return gray values of 16 or 32 bits scaled as `read_picture` documents, a band at a time."""
    tags = getattr(picture, "tag_v2", {})
    gray = np.empty(picture.size[::-1], dtype=np.uint8)
    if picture.mode.startswith("I;16") or picture.format in ("PNG", "PPM"):
        is_inverted = tags.get(262) == 0
        for top, band in _bands(picture):
            values = np.asarray(band)
            if is_inverted:
                values = np.iinfo(np.uint16).max - values
            rows = slice(top, top + len(values))
            gray[rows] = (values >> 8).astype(np.uint8)
        return gray
    is_unsigned = max(tags.get(258, (0,))) == 32 and tags.get(339, (1,))[0] == 1

    def bands() -> Iterator[tuple[int, NDArray[Any]]]:
        for top, band in _bands(picture):
            values = np.asarray(band)
            yield top, values.view(np.uint32) if is_unsigned else values

    extremes: list[float] = []
    for _, values in bands():
        finite = values[np.isfinite(values)]
        if finite.size:
            extremes += [float(finite.min()), float(finite.max())]
    low = min(extremes, default=0.0)
    high = max(extremes, default=1.0)
    spread = (high - low) or 1.0
    for top, values in bands():
        with np.errstate(invalid="ignore"):  # a float that is no number becomes black
            shares = np.clip((values.astype(np.float64) - low) / spread, 0, 1)
        rows = slice(top, top + len(values))
        gray[rows] = np.rint(np.nan_to_num(shares) * 255).astype(np.uint8)
    return gray


# ---------------------------------------------------------------------- drawings


def _draw_svg(content: bytes, side: int, *, cover: bool) -> bytes:
    """Return an SVG as a PNG, drawn by a process of its own; `side` is of the longer side.

    With `cover`, it is of the shorter one.
    """
    if content.startswith(b"\x1f\x8b"):
        try:
            content = gzip.GzipFile(fileobj=io.BytesIO(content)).read(SVG_BYTES + 1)
        except (gzip.BadGzipFile, zlib.error) as error:
            raise MediaError(_UNREADABLE) from error
    if len(content) > SVG_BYTES:
        raise MediaError(f"has more than the {SVG_BYTES // 10**6} MB allowed for an SVG")
    if find_spec("resvg_py") is None:
        raise needs("image", "Reading SVG pictures")
    # By its file, without the `site` module and polyseme: starts in 30 ms. The path is our own,
    # less the current folder, whose files may be a stranger's.
    worker = Path(__file__).with_name("_svg_worker.py")
    path = os.pathsep.join(entry for entry in sys.path if entry)
    try:
        process = subprocess.run(
            [sys.executable, "-S", "-P", str(worker), str(side), str(cover)],
            input=content,
            capture_output=True,
            timeout=SVG_SECONDS,
            env={**os.environ, "PYTHONPATH": path},
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise MediaError(f"takes more than {SVG_SECONDS:g} seconds to draw") from error
    if process.returncode == 1 and b"limit" not in process.stderr:
        reason = process.stderr.decode("utf-8", "replace")
        raise MediaError(_UNREADABLE) from ValueError(reason)
    if process.returncode:
        raise MediaError("is more than the SVG renderer can take")
    return process.stdout
