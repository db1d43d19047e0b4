"""Convert pictures, files or arrays, to squares of bytes: the first step of `ImageFeatures`.

In: a path (JPEG, PNG, WebP, GIF, BMP, TIFF, PPM, AVIF, HEIC, SVG) or a user's array. Out: uint8 of
shape (size, size, 3), or a `MediaError` with a short reason, whatever is wrong with the file.

Terms: the *used part* of a picture is what its framing keeps; the *ground* is the colour that
transparency is laid on, "white" or "black"; a *band* is a run of rows, by which large pictures are
converted to bound the memory; *clear* is the one gray or colour that a file declares transparent.

What changes pixels changes features: then `VERSION` in `image.py` must be raised.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import math
import re
import subprocess
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
from polyseme.media.workers import run_worker

try:
    from PIL import Image, ImageChops
    from PIL.ImageFile import ImageFile
except ImportError as error:
    raise needs("image", "Reading pictures") from error

Image.init()  # with all its formats
with contextlib.suppress(ImportError):
    from pillow_heif import register_heif_opener

    register_heif_opener(thumbnails=False)
MOST_BYTES = 2_000_000_000  # of a file
SVG_BYTES = 10_000_000  # of an SVG, unpacked
SVG_SECONDS = 10.0  # that drawing it may take

# In pixels: pictures above are decoded one at a time, and bands have about so many.
_LARGE = 20_000_000
_BAND = 4_000_000
_PIXEL_BYTES = 4  # that `max_megapixels` allows for a pixel: red, green, blue and transparency
_EXIF_ORIENTATION = 274
# For each EXIF orientation that is not upright, the number of Pillow's transposition.
_TRANSPOSITIONS = {2: 0, 3: 3, 4: 1, 5: 5, 6: 4, 7: 6, 8: 2}
# Tags of TIFF, and what is written there.
_BITS_PER_SAMPLE = 258
_COMPRESSION = 259
_NOT_COMPRESSED = 1
_PHOTOMETRIC = 262
_WHITE_IS_ZERO = 0
_SAMPLES_PER_PIXEL = 277
_PLANES = 284
_SEPARATE_PLANES = 2
_SAMPLE_FORMAT = 339
_UNSIGNED = 1
# How an SVG begins: `<` in UTF-8 or UTF-16, perhaps behind a byte order mark, or packed by gzip.
_GZIP_MARK = b"\x1f\x8b"
_MARKUP = re.compile(rb"\xef\xbb\xbf\s*<|\xff\xfe<\0|\xfe\xff\0<|\s*<|\x1f\x8b")
# The kinds of an ISO file that HEIC pictures have, after the size of the first box.
_HEIC = re.compile(rb".{4}ftyp(hei[cxms]|hev[cxms]|mif1|msf1)", re.DOTALL)
# Of 255: a drawing whose values lie closer together on white can hardly be seen there.
_LEAST_CONTRAST = 24
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
    framed, ground = _read_file(path, size, framing, max_megapixels)
    return _to_square(framed, size, ground)


def read_thumbnail(
    path: Path, *, size: int, max_megapixels: float = 100.0, quality: int = 85
) -> bytes:
    """Return a picture file in its own proportions, no larger than `size` a side, as JPEG.

    What is smaller stays as it is, but for drawings; for all else see `read_picture`.
    """
    thumbnail, _ = _read_file(path, size, "pad", max_megapixels, enlarge=False)
    stream = io.BytesIO()
    thumbnail.save(stream, "JPEG", quality=quality)
    return stream.getvalue()


def _read_file(
    path: Path, size: int, framing: str, max_megapixels: float, *, enlarge: bool = True
) -> tuple[Image.Image, str]:
    """Return the used part of a picture file, resampled and upright, and its ground.

    Whatever a decoder raises becomes a `MediaError`. For the parameters see `read_picture`; without
    `enlarge`, a smaller picture keeps its size.
    """
    n_bytes = check_file(path)
    if n_bytes > MOST_BYTES:
        gigabytes = n_bytes / 1e9
        most_gigabytes = MOST_BYTES / 1e9
        raise MediaError(f"has {gigabytes:.1f} GB, more than the {most_gigabytes:g} allowed")
    try:
        # Pillow gets no file name, so it maps nothing into memory that could shrink under it.
        with path.open("rb") as file:
            if not _MARKUP.match(file.read(512)):
                return _read(file, size, framing, max_megapixels, enlarge=enlarge)
            file.seek(0)
            markup = file.read(SVG_BYTES + 1)  # a byte more shows that it is too large
        png = _draw_svg(markup, size, cover=framing != "pad")
        return _read(io.BytesIO(png), size, framing, math.inf)
    except InputError:
        raise
    except MemoryError as error:
        raise MediaError("needs more memory than there is") from error
    except Exception as error:  # decoders raise nearly everything on broken files
        is_truncated = isinstance(error, EOFError) or "truncated" in str(error).lower()
        reason = "is truncated"
        if not is_truncated:
            reason = f"is damaged ({error_text(error, 50)})"
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
    picture = Image.fromarray(contiguous)
    flat, ground = _flatten(picture)
    framed = _frame(flat, size, framing)
    return _to_square(framed, size, ground)


def _as_bytes(array: NDArray[Any]) -> NDArray[np.uint8]:
    """Return a user's array (h, w) or (h, w, n_channels) scaled to 0..255.

    Raises for arrays that are no picture. An array of bytes is returned itself.
    """
    dtype = array.dtype
    shape = array.shape
    is_float = dtype.kind == "f" and array.size > 0
    # Both comparisons are false for NaN, which therefore fails as well.
    in_unit_range = is_float and array.min() >= 0 and array.max() <= 1
    is_16_bits = dtype.kind == "u" and dtype.itemsize == 2  # in either byte order
    has_type = in_unit_range or dtype in (np.uint8, np.bool_) or is_16_bits
    has_shape = len(shape) > 1 and shape[2:] in ((), (1,), (3,), (4,))
    if not (has_type and has_shape and array.size):
        content = str(dtype)
        if is_float:
            content = f"{array.min():g} to {array.max():g}"
        raise InputError(
            "`array` of `picture_from_array` must be uint8, uint16, bool or floats in 0..1 of the "
            f"shape (h, w), (h, w, 1), (h, w, 3) or (h, w, 4); got {content} of the shape {shape}."
        )
    if dtype == np.uint8:
        return cast("NDArray[np.uint8]", array)
    if dtype == np.bool_:
        return array.astype(np.uint8) * np.uint8(255)
    if is_16_bits:
        upper_bits = array >> 8
        return upper_bits.astype(np.uint8)
    scaled = array.astype(np.float64) * 255
    return np.rint(scaled).astype(np.uint8)


# ---------------------------------------------------------------------- from pixels to a square


def _read(
    file: IO[bytes], size: int, framing: str, max_megapixels: float, *, enlarge: bool = True
) -> tuple[Image.Image, str]:
    """Decode one raster file, in the order: header, limits, pixels, used part.

    Returns what `_read_file` does. Limits come before pixels, so that a small file that unpacks to
    gigabytes costs nothing.
    """
    with open_picture(file) as picture:
        n_pixels = picture.width * picture.height
        if not enlarge:
            size = min(size, max(picture.size))
        if picture.format in ("JPEG", "MPO"):
            # Decoded at an eighth to all of its size, but no smaller than twice what is needed.
            width, height = _framed_size(picture.size, size, framing)
            picture.draft(None, (2 * width, 2 * height))
            # All coefficients of a progressive file are held, whatever is made of them.
            if not picture.info.get("progressive"):
                n_pixels = picture.width * picture.height
        if n_pixels > max_megapixels * 1e6:
            megapixels = math.ceil(n_pixels / 1e5) / 10
            raise MediaError(
                f"has {megapixels:g} megapixels, more than the {max_megapixels:g} allowed"
            )
        decoded_bytes = n_pixels * _pixel_bytes(picture)
        most_bytes = _PIXEL_BYTES * max_megapixels * 1e6
        if decoded_bytes > most_bytes:
            raise MediaError(
                f"unpacks to {decoded_bytes / 1e6:.0f} MB, more than the {most_bytes / 1e6:.0f} "
                "allowed"
            )
        _check_and_correct(picture)
        turn = _one_large if n_pixels > _LARGE else contextlib.nullcontext()
        with turn:
            picture.load()
            flat, ground = _flatten(picture)
            framed = _frame(flat, size, framing)
        # Only now: Pillow turns some pictures itself on loading, and then forgets the tag.
        return _rotate_upright(framed, picture), ground


def _pixel_bytes(picture: ImageFile) -> float:
    """Return the bytes of a decoded pixel: as Pillow keeps it or, if that is more, in the file."""
    bytes_by_mode = {"1": 1, "L": 1, "P": 1, "I;16": 2, "I;16B": 2, "I;16L": 2}
    pillow_bytes = bytes_by_mode.get(picture.mode, 4)
    if picture.format != "TIFF":
        return pillow_bytes
    tags = cast("Any", picture).tag_v2
    # Whole strips of it, which may be all, are unpacked with all bits and channels. A stranger's
    # tags may contradict each other, so the largest reading counts.
    bits_by_channel = [float(bits) for bits in tags.get(_BITS_PER_SAMPLE, (1,))]
    n_channels = float(tags.get(_SAMPLES_PER_PIXEL, 1))
    listed_bytes = sum(bits_by_channel) / 8
    counted_bytes = max(bits_by_channel) / 8 * n_channels
    return max(pillow_bytes, listed_bytes, counted_bytes)


def open_picture(file: IO[bytes]) -> ImageFile:
    """Read a file's header by the format that its first bytes announce; pixels come with `load`.

    The file must stay open until then. Raises a `MediaError` where no format of `FORMATS` fits.
    """
    # Not `Image.open`: its limit on pixels is one for all threads, ours is a parameter.
    reason = _UNREADABLE
    file.seek(0)
    first_bytes = file.read(16).ljust(16, b"\0")
    for format_name in FORMATS:
        factory, accepts = Image.OPEN.get(format_name, (None, None))
        if factory is None or accepts is None:
            if _HEIC.match(first_bytes) and format_name == "HEIF":
                raise needs("heic", "Reading HEIC pictures")
            continue
        answer = accepts(first_bytes)
        if isinstance(answer, str):  # Pillow was built without the format
            raise MediaError(f"is {format_name}, which this Pillow was built without")
        if not answer:
            continue
        reason = "is damaged or of a kind that cannot be read"
        file.seek(0)
        with contextlib.suppress(SyntaxError):  # it is another format after all
            return factory(file, "")
    raise MediaError(reason)


def _framed_size(picture_size: tuple[int, int], size: int, framing: str) -> tuple[int, int]:
    """Return the width and height that the used part of a picture (width, height) is brought to."""
    if framing != "pad":
        return size, size
    width, height = picture_size
    longer_side = max(picture_size)
    framed_width = round(width * size / longer_side)
    framed_height = round(height * size / longer_side)
    return max(1, framed_width), max(1, framed_height)


def _frame(picture: Image.Image, size: int, framing: str) -> Image.Image:
    """Return the used part of a picture, resampled so that its longer side is `size`."""
    width, height = picture.size
    left = 0.0
    top = 0.0
    if framing == "crop" and width > height:
        left = (width - height) / 2
    elif framing == "crop":
        top = (height - width) / 2
    right = width - left
    bottom = height - top
    framed_size = _framed_size(picture.size, size, framing)
    framed_width, framed_height = framed_size
    horizontal_factor = (right - left) / framed_width
    vertical_factor = (bottom - top) / framed_height
    # Averaging first is much faster, but not exact: never for small pictures. With a gap of 3, says
    # Pillow, the result can hardly be told from an exact one.
    gap = None
    if max(horizontal_factor, vertical_factor) > 4:
        gap = 3.0
    return picture.resize(
        framed_size,
        Image.Resampling.BICUBIC,
        box=(left, top, right, bottom),
        reducing_gap=gap,
    )


def _rotate_upright(framed: Image.Image, picture: Image.Image) -> Image.Image:
    """Return a framed picture turned as the EXIF block of the whole picture says.

    Without such a block, or with a broken one, it stays as it is.
    """
    try:
        orientation = picture.getexif().get(_EXIF_ORIENTATION, 1)
        transposition = _TRANSPOSITIONS.get(orientation)
    except Exception:  # a broken EXIF block; the pixels are good
        return framed
    if transposition is None:
        return framed
    return framed.transpose(Image.Transpose(transposition))


def _to_square(framed: Image.Image, size: int, ground: str) -> NDArray[np.uint8]:
    """Return three channels of a framed picture in the centre of its ground, (size, size, 3)."""
    square = Image.new(framed.mode, (size, size), ground)
    left = (size - framed.width) // 2
    top = (size - framed.height) // 2
    square.paste(framed, (left, top))
    pixels = np.array(square)
    if pixels.ndim == 3:
        return pixels
    return np.repeat(pixels[:, :, np.newaxis], 3, axis=2)


# ---------------------------------------------------------------------- modes, bits, transparency


def _check_and_correct(picture: ImageFile) -> None:
    """Raise for TIFFs that Pillow decodes to noise; bring a PNG's clear colour to 8 bits.

    Changes `info` of the picture, whose pixels are not decoded yet.
    """
    if picture.format == "TIFF":
        tags = cast("Any", picture).tag_v2
        is_deep = max(tags.get(_BITS_PER_SAMPLE, (1,))) > 8
        is_planar = tags.get(_PLANES, 1) == _SEPARATE_PLANES
        is_packed = tags.get(_COMPRESSION, _NOT_COMPRESSED) != _NOT_COMPRESSED
        is_big_endian = tags.prefix == b"MM"
        is_swapped = is_big_endian and picture.mode in ("I", "F") and is_packed
        if is_deep and (is_planar or is_swapped):
            raise MediaError("is a TIFF of a kind that cannot be read")
    clear = picture.info.get("transparency")
    if picture.format != "PNG" or clear is None or not picture.tile:
        return
    # Pillow scales pixels of these depths to 8 bits, but not the clear colour beside them.
    raw_mode = picture.tile[0][3]
    if raw_mode == "RGB;16B":
        picture.info["transparency"] = tuple(channel >> 8 for channel in clear)
    elif raw_mode == "L;2":
        picture.info["transparency"] = clear * 85
    elif raw_mode == "L;4":
        picture.info["transparency"] = clear * 17


def _flatten(picture: Image.Image) -> tuple[Image.Image, str]:
    """Return a picture of any mode as plain gray or red-green-blue, and its ground."""
    if picture.mode.startswith(("I", "F")):
        gray = Image.fromarray(_eight_bits(picture))
        opacity = _opacity(picture)
        if opacity is None:
            return gray, "white"
        gray_with_opacity = Image.merge("LA", (gray, opacity))
        return _lay_on_ground(gray_with_opacity)
    if picture.has_transparency_data:
        return _lay_on_ground(picture)
    # Pillow takes every CMYK JPEG for an inverted one; only Adobe's are.
    if picture.mode == "CMYK" and picture.format == "JPEG" and "adobe" not in picture.info:
        picture = ImageChops.invert(picture)
    if picture.mode in ("L", "RGB"):
        return picture, "white"
    plain_mode = "L" if picture.mode == "1" else "RGB"
    return picture.convert(plain_mode), "white"


def _lay_on_ground(picture: Image.Image) -> tuple[Image.Image, str]:
    """Return a picture with transparency as red-green-blue on a ground, and the ground.

    It is white, or black where the drawing can hardly be seen on white.
    """
    on_white, contrast_on_white = _compose(picture, "white")
    if contrast_on_white >= _LEAST_CONTRAST:
        return on_white, "white"
    on_black, contrast_on_black = _compose(picture, "black")
    # They are equal where nothing is transparent, and both nothing where everything is.
    if contrast_on_black > contrast_on_white:
        return on_black, "black"
    return on_white, "white"


def _compose(picture: Image.Image, ground: str) -> tuple[Image.Image, int]:
    """Return a picture with transparency on a ground, and its contrast.

    That is the distance of its least and its largest value, of any channel, in 0..255.
    """
    flat = Image.new("RGB", picture.size)
    least = 255
    largest = 0
    for top, band in _bands(picture):
        ground_band = Image.new("RGBA", band.size, ground)
        blended = Image.alpha_composite(ground_band, band.convert("RGBA"))
        opaque = blended.convert("RGB")
        flat.paste(opaque, (0, top))
        extrema = cast("tuple[tuple[int, int], ...]", opaque.getextrema())
        for channel_least, channel_largest in extrema:
            least = min(least, channel_least)
            largest = max(largest, channel_largest)
    return flat, largest - least


def _opacity(picture: Image.Image) -> Image.Image | None:
    """Return the opacity (0 or 255) of a gray picture; None where it declares no clear gray."""
    clear = picture.info.get("transparency")
    if clear is None:
        return None
    opacity = np.empty(_array_shape(picture), dtype=np.uint8)
    for top, band in _bands(picture):
        is_clear = np.asarray(band) == clear
        rows = slice(top, top + band.height)
        opacity[rows] = np.where(is_clear, 0, 255)
    return Image.fromarray(opacity)


def _array_shape(picture: Image.Image) -> tuple[int, int]:
    """Return the shape of a picture's array: NumPy counts rows first, Pillow columns."""
    width, height = picture.size
    return height, width


def _bands(picture: Image.Image) -> Iterator[tuple[int, Image.Image]]:
    """Yield a picture in bands, from the top down, each with the number of its first row."""
    width, height = picture.size
    n_rows = max(1, _BAND // width)
    for top in range(0, height, n_rows):
        bottom = min(top + n_rows, height)
        box = (0, top, width, bottom)
        yield top, picture.crop(box)


def _eight_bits(picture: Image.Image) -> NDArray[np.uint8]:
    """Return a gray picture of 16 or 32 bits scaled to 8, (height, width).

    How, `read_picture` documents.
    """
    if picture.mode.startswith("I;16") or picture.format in ("PNG", "PPM"):
        return _upper_eight_bits(picture)
    grays: list[float] = []
    for _, band in _bands_of_32_bits(picture):
        finite = band[np.isfinite(band)]
        if finite.size:
            grays += [float(finite.min()), float(finite.max())]
    black = min(grays, default=0.0)
    white = max(grays, default=1.0)
    distance = (white - black) or 1.0
    eight_bits = np.empty(_array_shape(picture), dtype=np.uint8)
    for top, band in _bands_of_32_bits(picture):
        with np.errstate(invalid="ignore"):  # a float that is no number becomes black
            shares = (band.astype(np.float64) - black) / distance
            shares = np.clip(shares, 0, 1)
        rows = slice(top, top + len(band))
        scaled = np.nan_to_num(shares) * 255
        eight_bits[rows] = np.rint(scaled).astype(np.uint8)
    return eight_bits


def _upper_eight_bits(picture: Image.Image) -> NDArray[np.uint8]:
    """Return the upper half of a gray picture of 16 bits, (height, width)."""
    tags = getattr(picture, "tag_v2", {})
    is_inverted = tags.get(_PHOTOMETRIC) == _WHITE_IS_ZERO
    eight_bits = np.empty(_array_shape(picture), dtype=np.uint8)
    for top, band in _bands(picture):
        grays = np.asarray(band)
        if is_inverted:
            grays = np.iinfo(np.uint16).max - grays
        rows = slice(top, top + len(grays))
        upper_bits = grays >> 8
        eight_bits[rows] = upper_bits.astype(np.uint8)
    return eight_bits


def _bands_of_32_bits(picture: Image.Image) -> Iterator[tuple[int, NDArray[Any]]]:
    """Yield bands as `_bands` does, as arrays; Pillow reads unsigned numbers as signed ones."""
    tags = getattr(picture, "tag_v2", {})
    has_32_bits = max(tags.get(_BITS_PER_SAMPLE, (0,))) == 32
    is_unsigned = has_32_bits and tags.get(_SAMPLE_FORMAT, (_UNSIGNED,))[0] == _UNSIGNED
    for top, band in _bands(picture):
        grays = np.asarray(band)
        if is_unsigned:
            grays = grays.view(np.uint32)
        yield top, grays


# ---------------------------------------------------------------------- drawings


def _draw_svg(content: bytes, side: int, *, cover: bool) -> bytes:
    """Return an SVG, perhaps packed by gzip, as a PNG, drawn by a process of its own.

    `side` is the length of its longer side in pixels; with `cover`, of the shorter one. A hostile
    file cannot take more than that process, which is stopped after `SVG_SECONDS`.
    """
    if content.startswith(_GZIP_MARK):
        try:
            packed = io.BytesIO(content)
            content = gzip.GzipFile(fileobj=packed).read(SVG_BYTES + 1)
        except (gzip.BadGzipFile, zlib.error) as error:
            raise MediaError(_UNREADABLE) from error
    if len(content) > SVG_BYTES:
        raise MediaError(f"has more than the {SVG_BYTES // 10**6} MB allowed for an SVG")
    if find_spec("resvg_py") is None:
        raise needs("image", "Reading SVG pictures")
    try:
        process = run_worker("_svg_worker.py", content, side, cover, seconds=SVG_SECONDS)
    except subprocess.TimeoutExpired as error:
        raise MediaError(f"takes more than {SVG_SECONDS:g} seconds to draw") from error
    # The worker exits by 1 where the file is wrong, which a limit of memory or time can cause too.
    if process.returncode == 1 and b"limit" not in process.stderr:
        reason = process.stderr.decode("utf-8", "replace")
        raise MediaError(_UNREADABLE) from ValueError(reason)
    if process.returncode:
        raise MediaError("is more than the SVG renderer can take")
    return process.stdout
