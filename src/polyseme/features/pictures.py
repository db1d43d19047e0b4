"""Pictures as files or arrays become squares of bytes: the first step of `ImageFeatures`.

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

from polyseme._text import said
from polyseme._validation import InputError
from polyseme.features.base import MediaError, check_file, needs
from polyseme.features.image import FORMATS

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
SVG_BYTES, SVG_SECONDS = 10_000_000, 10.0

# In pixels: what is a large picture, and what is composed on its ground at a time.
_LARGE, _BAND = 20_000_000, 4_000_000
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
    return _squared(small, size, ground)


def read_thumbnail(
    path: Path, *, size: int, max_megapixels: float = 100.0, quality: int = 85
) -> bytes:
    """Return a picture file in its own proportions, no larger than `size` a side, as JPEG.

    What is smaller stays as it is, but for drawings; for all else see `read_picture`.
    """
    small, _ = _read_file(path, size, "pad", max_megapixels, enlarge=False)
    written = io.BytesIO()
    small.save(written, "JPEG", quality=quality)
    return written.getvalue()


def _read_file(
    path: Path, size: int, framing: str, max_megapixels: float, *, enlarge: bool = True
) -> tuple[Image.Image, str]:
    """Read a picture file, with all that limits it, and resample the part that is used.

    Returns it with the colour of its ground, as `_flat` does.
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
            drawn = _draw_svg(file.read(SVG_BYTES + 1), size, cover=framing != "pad")
        return _read(io.BytesIO(drawn), size, framing, math.inf)
    except InputError:
        raise
    except MemoryError as error:
        raise MediaError("needs more memory than there is") from error
    except Exception as error:  # decoders raise nearly everything on broken files
        cut = isinstance(error, EOFError) or "truncated" in str(error).lower()
        reason = "is truncated" if cut else f"is damaged ({said(error, 50)})"
        raise MediaError(reason) from error


def picture_from_array(array: object, *, size: int, framing: str = "stretch") -> NDArray[np.uint8]:
    """Bring a picture that is already an array to a square, (size, size, 3).

    Arrays are gray (h, w) or (h, w, 1), red-green-blue (h, w, 3), or that with alpha (h, w, 4),
    laid on white or black as files are; of uint8, uint16 (the upper 8 bits are kept), bool, or
    floats in 0..1.
    """
    pixels = _as_bytes(np.asarray(array))
    pixels = pixels[:, :, 0] if pixels.shape[2:] == (1,) else pixels
    picture, ground = _flat(Image.fromarray(np.ascontiguousarray(pixels)))
    return _squared(_framed(picture, size, framing), size, ground)


def _as_bytes(array: NDArray[Any]) -> NDArray[np.uint8]:
    """Check a user's array and scale it to 0..255."""
    kind, shape = array.dtype, array.shape
    # So that NaN fails as well; 16 bits may be in either byte order.
    unit = kind.kind == "f" and array.size and array.min() >= 0 and array.max() <= 1
    known = unit or kind in (np.uint8, np.bool_) or (kind.kind == "u" and kind.itemsize == 2)
    if not (known and array.size and len(shape) > 1 and shape[2:] in ((), (1,), (3,), (4,))):
        values = f"{array.min():g} to {array.max():g}" if kind.kind == "f" and array.size else kind
        raise InputError(
            "`array` of `picture_from_array` must be uint8, uint16, bool or floats in 0..1 of the "
            f"shape (h, w), (h, w, 1), (h, w, 3) or (h, w, 4); got {values} of the shape {shape}."
        )
    if kind == np.uint8:
        return cast("NDArray[np.uint8]", array)
    if kind == np.bool_:
        return array.astype(np.uint8) * np.uint8(255)
    if kind.kind == "u":
        return (array >> 8).astype(np.uint8)
    return np.rint(array.astype(np.float64) * 255).astype(np.uint8)


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
        decoded, allowed = pixels * _pixel_bytes(picture), _PIXEL_BYTES * max_megapixels * 1e6
        if decoded > allowed:
            raise MediaError(
                f"unpacks to {decoded / 1e6:.0f} MB, more than the {allowed / 1e6:.0f} allowed"
            )
        _correct(picture)
        with _one_large if pixels > _LARGE else contextlib.nullcontext():
            picture.load()
            flat, ground = _flat(picture)
            small = _framed(flat, size, framing)
        # Only now: Pillow turns some pictures itself on loading, and then forgets the tag.
        return _upright(small, picture), ground


def _pixel_bytes(picture: ImageFile) -> float:
    """Return the bytes of a decoded pixel: as Pillow keeps it, or in the file."""
    kept = {"1": 1, "L": 1, "P": 1, "I;16": 2, "I;16B": 2, "I;16L": 2}.get(picture.mode, 4)
    if picture.format != "TIFF":
        return kept
    tags = cast("Any", picture).tag_v2
    # Whole strips of it, which may be all, are unpacked with all bits and channels.
    bits = [float(depth) for depth in tags.get(258, (1,))]
    return max(kept, sum(bits) / 8, max(bits) / 8 * float(tags.get(277, 1)))


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
    width, height = (max(1, round(side * size / max(shape))) for side in shape)
    return width, height


def _framed(picture: Image.Image, size: int, framing: str) -> Image.Image:
    """Resample the part that is used."""
    width, height = picture.size
    cut = max(width, height) - min(width, height) if framing == "crop" else 0
    left, top = (cut / 2, 0.0) if width > height else (0.0, cut / 2)
    box = (left, top, width - left, height - top)
    target = _target(picture.size, size, framing)
    factor = max((box[2] - box[0]) / target[0], (box[3] - box[1]) / target[1])
    # Averaging first is much faster, but not exact: never for what is small anyway.
    gap = 3.0 if factor > 4 else None
    return picture.resize(target, Image.Resampling.BICUBIC, box=box, reducing_gap=gap)


def _upright(small: Image.Image, picture: Image.Image) -> Image.Image:
    """Turn a picture the way its EXIF block says, if there is one that can be read."""
    try:
        turn = _TRANSPOSED.get(picture.getexif().get(274, 1))
    except Exception:  # a broken block says nothing; the pixels were good
        return small
    return small if turn is None else small.transpose(Image.Transpose(turn))


def _squared(small: Image.Image, size: int, ground: str) -> NDArray[np.uint8]:
    """Centre a picture on its ground and return three channels, (size, size, 3)."""
    square = Image.new(small.mode, (size, size), ground)
    square.paste(small, ((size - small.width) // 2, (size - small.height) // 2))
    pixels = np.array(square)
    return pixels if pixels.ndim == 3 else np.repeat(pixels[:, :, np.newaxis], 3, axis=2)


# ---------------------------------------------------------------------- modes, bits, transparency


def _correct(picture: ImageFile) -> None:
    """Refuse TIFFs that Pillow decodes to noise; bring a PNG's clear colour to 8 bits as well."""
    if picture.format == "TIFF":
        tags = cast("Any", picture).tag_v2
        deep = max(tags.get(258, (1,))) > 8
        swapped = tags.prefix == b"MM" and picture.mode in ("I", "F") and tags.get(259, 1) != 1
        if deep and (tags.get(284, 1) == 2 or swapped):
            raise MediaError("is a TIFF of a kind that cannot be read")
    colour = picture.info.get("transparency")
    if picture.format == "PNG" and colour is not None and picture.tile:
        raw = picture.tile[0][3]
        if raw == "RGB;16B":
            picture.info["transparency"] = tuple(value >> 8 for value in colour)
        elif raw in ("L;2", "L;4"):
            picture.info["transparency"] = colour * (85 if raw == "L;2" else 17)


def _flat(picture: Image.Image) -> tuple[Image.Image, str]:
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
    """Compose on white, or on black where the drawing can hardly be seen on white."""
    on_white, spread_on_white = _composed(picture, "white")
    if spread_on_white >= _FAINT:
        return on_white, "white"
    on_black, spread_on_black = _composed(picture, "black")
    # They are equal where nothing is transparent, and both nothing where everything is.
    if spread_on_black > spread_on_white:
        return on_black, "black"
    return on_white, "white"


def _composed(picture: Image.Image, ground: str) -> tuple[Image.Image, int]:
    """Compose on a ground, a band at a time to bound the memory.

    Returns with it how far its least and its largest value, of any channel, lie apart.
    """
    flat = Image.new("RGB", picture.size)
    least, largest = 255, 0
    for top, part in _bands(picture):
        below = Image.new("RGBA", part.size, ground)
        band = Image.alpha_composite(below, part.convert("RGBA")).convert("RGB")
        flat.paste(band, (0, top))
        for low, high in cast("tuple[tuple[int, int], ...]", band.getextrema()):
            least = min(least, low)
            largest = max(largest, high)
    return flat, largest - least


def _opacity(picture: Image.Image) -> Image.Image | None:
    """Return the opacity of gray values of 16 bits; None where none of them is transparent."""
    clear = picture.info.get("transparency")
    if clear is None:
        return None
    opacity = np.empty(picture.size[::-1], dtype=np.uint8)
    for top, part in _bands(picture):
        band = np.where(np.asarray(part) == clear, 0, 255)
        opacity[top : top + len(band)] = band
    return Image.fromarray(opacity)


def _bands(picture: Image.Image) -> Iterator[tuple[int, Image.Image]]:
    """Yield a picture in bands, from the top down, each with its first row."""
    width, height = picture.size
    rows = max(1, _BAND // width)
    for top in range(0, height, rows):
        yield top, picture.crop((0, top, width, min(top + rows, height)))


def _eight_bits(picture: Image.Image) -> NDArray[np.uint8]:
    """Scale gray values of 16 or 32 bits as `read_picture` documents, a band at a time."""
    tags = getattr(picture, "tag_v2", {})
    gray = np.empty(picture.size[::-1], dtype=np.uint8)
    if picture.mode.startswith("I;16") or picture.format in ("PNG", "PPM"):
        for top, part in _bands(picture):
            values = np.asarray(part)
            if tags.get(262) == 0:
                values = np.iinfo(np.uint16).max - values
            band = (values >> 8).astype(np.uint8)
            gray[top : top + len(band)] = band
        return gray
    whole = max(tags.get(258, (0,))) == 32 and tags.get(339, (1,))[0] == 1

    def bands() -> Iterator[tuple[int, NDArray[Any]]]:
        for top, part in _bands(picture):
            values = np.asarray(part)
            yield top, values.view(np.uint32) if whole else values

    ends = []
    for _, values in bands():
        finite = values[np.isfinite(values)]
        ends += [float(finite.min()), float(finite.max())] if finite.size else []
    low, high = (min(ends), max(ends)) if ends else (0.0, 1.0)
    for top, values in bands():
        with np.errstate(invalid="ignore"):  # a float that is no number becomes black
            share = np.clip((values.astype(np.float64) - low) / ((high - low) or 1.0), 0, 1)
        gray[top : top + len(values)] = np.rint(np.nan_to_num(share) * 255).astype(np.uint8)
    return gray


# ---------------------------------------------------------------------- drawings


def _draw_svg(content: bytes, side: int, *, cover: bool) -> bytes:
    """Draw an SVG as a PNG, by a process of its own, with the longer (`cover`: shorter) side."""
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
        drawn = subprocess.run(
            [sys.executable, "-S", "-P", str(worker), str(side), str(cover)],
            input=content,
            capture_output=True,
            timeout=SVG_SECONDS,
            env={**os.environ, "PYTHONPATH": path},
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise MediaError(f"takes more than {SVG_SECONDS:g} seconds to draw") from error
    if drawn.returncode == 1 and b"limit" not in drawn.stderr:
        raise MediaError(_UNREADABLE) from ValueError(drawn.stderr.decode("utf-8", "replace"))
    if drawn.returncode:
        raise MediaError("is more than the SVG renderer can take")
    return drawn.stdout
