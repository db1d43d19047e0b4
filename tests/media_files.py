"""What tests of media share: makers of odd and broken picture files."""

from __future__ import annotations

import contextlib
import gzip
import os
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

RED, GREEN, BLUE, YELLOW = (220, 20, 30), (20, 180, 40), (30, 40, 210), (230, 220, 20)
SVG = 'xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"'
DRAWING = f'<svg {SVG} viewBox="0 0 8 8"><rect width="4" height="8" fill="#dc141e"/></svg>'


def quadrants(width: int = 48, height: int = 32) -> NDArray[np.uint8]:
    """A picture (height, width, 3): red and green above, blue and yellow below."""
    pixels = np.empty((height, width, 3), np.uint8)
    top, left = height // 2, width // 2
    pixels[:top, :left], pixels[:top, left:] = RED, GREEN
    pixels[top:, :left], pixels[top:, left:] = BLUE, YELLOW
    return pixels


def png(
    rows: bytes, size: tuple[int, int], *before: tuple[bytes, bytes], depth: int, colour: int
) -> bytes:
    """A PNG of raw rows (each after its filter byte), with chunks before the pixels."""
    header = struct.pack(">IIBBBBB", *size, depth, colour, 0, 0, 0)
    content = b"\x89PNG\r\n\x1a\n"
    for kind, data in [(b"IHDR", header), *before, (b"IDAT", zlib.compress(rows)), (b"IEND", b"")]:
        check = struct.pack(">I", zlib.crc32(kind + data))
        content += struct.pack(">I", len(data)) + kind + data + check
    return content


def png16(pixels: NDArray[np.uint16], *before: tuple[bytes, bytes]) -> bytes:
    """A PNG of 16 bits a value, gray (h, w) or colour (h, w, 3)."""
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in pixels)
    size = (pixels.shape[1], pixels.shape[0])
    return png(rows, size, *before, depth=16, colour=2 if pixels.ndim == 3 else 0)


def tiff(
    pixels: NDArray[np.generic],
    *,
    big_endian: bool = False,
    photometric: int = 1,
    packed: bool = False,
    planar: bool = False,
) -> bytes:
    """A TIFF of any bit depth, gray (h, w) or with channels (h, w, c), in one strip a plane."""
    order = ">" if big_endian else "<"
    height, width, channels = (*pixels.shape, 1)[:3]
    ordered = pixels.astype(pixels.dtype.newbyteorder(order))
    planes = np.moveaxis(ordered, 2, 0) if planar else [ordered]
    strips = [zlib.compress(plane.tobytes()) if packed else plane.tobytes() for plane in planes]
    *starts, end = np.cumsum([8, *map(len, strips)]).tolist()
    kinds = {"u": 1, "i": 2, "f": 3}
    tags = {256: [width], 257: [height], 258: [pixels.dtype.itemsize * 8] * channels}
    tags |= {259: [8 if packed else 1], 262: [photometric], 273: starts, 277: [channels]}
    tags |= {278: [height], 279: [len(strip) for strip in strips], 284: [2 if planar else 1]}
    tags |= {339: [kinds[pixels.dtype.kind]] * channels}
    directory, extra = struct.pack(order + "H", len(tags)), b""
    for tag, values in tags.items():
        content = struct.pack(f"{order}{len(values)}I", *values)
        if len(values) > 1:
            place = struct.pack(order + "I", end + 2 + 12 * len(tags) + 4 + len(extra))
            content, extra = place, extra + content
        directory += struct.pack(order + "HHI", tag, 4, len(values)) + content
    start = (b"MM" if big_endian else b"II") + struct.pack(order + "HI", 42, end)
    return start + b"".join(strips) + directory + bytes(4) + extra


def svg_bomb(levels: int = 12) -> str:
    """An SVG of a few kilobytes that draws 10 ** (levels - 1) squares."""
    parts = ['<g id="a0"><rect width="1" height="1"/></g>']
    parts += [
        f'<g id="a{i}">' + f'<use xlink:href="#a{i - 1}"/>' * 10 + "</g>" for i in range(1, levels)
    ]
    use = f'<use xlink:href="#a{levels - 1}"/>'
    return f'<svg {SVG} width="9" height="9"><defs>{"".join(parts)}</defs>{use}</svg>'


def slow_svg() -> str:
    """An SVG of one element that takes minutes to draw."""
    noise = '<filter id="f"><feTurbulence numOctaves="100000000" baseFrequency="0.1"/></filter>'
    rect = '<rect width="9" height="9" filter="url(#f)"/>'
    return f'<svg {SVG} width="9" height="9">{noise}{rect}</svg>'


def make_odd_pictures(folder: Path) -> dict[str, str]:
    """Write odd picture files and things that only look like them, one of each family.

    Returns for each relative path: "good" (must be read), "broken" (named like a picture, must be
    skipped with a reason) or "other" (no picture by its name or kind, must be passed over).
    """
    (folder / "sub folder").mkdir(parents=True, exist_ok=True)
    good = [*_saved(folder), *_write(folder, _good_bytes())]
    verdicts = dict.fromkeys(good, "good")
    verdicts |= dict.fromkeys(_write(folder, _broken_bytes(folder)), "broken")
    photo = (folder / "photo.jpg").read_bytes()
    others = {"notes.txt": b"a text", "no-suffix": photo, ".hidden.jpg": photo}
    verdicts |= dict.fromkeys(_write(folder, others), "other")
    (folder / "folder.png").mkdir(exist_ok=True)
    verdicts["folder.png"] = "other"
    if hasattr(os, "mkfifo"):
        os.mkfifo(folder / "pipe.png")
        verdicts["pipe.png"] = "other"
    links = {"link.jpg": ("photo.jpg", "good"), "lost-link.jpg": ("nowhere.jpg", "broken")}
    links |= {"circle.png": ("circle.png", "broken")}
    for name, (goal, verdict) in links.items():
        with contextlib.suppress(OSError):  # not every system lets everyone make links
            (folder / name).symlink_to(goal)
            verdicts[name] = verdict
    return verdicts


def _write(folder: Path, files: dict[str, bytes]) -> list[str]:
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return list(files)


def _saved(folder: Path) -> list[str]:
    """Write what Pillow can make."""
    photo, pixels = Image.fromarray(quadrants()), quadrants()
    other = Image.fromarray(pixels[::-1].copy())
    half = Image.fromarray(np.dstack([pixels, np.full((32, 48), 128, np.uint8)]))
    broken_exif = b"Exif\0\0II*\0\xff\xff\xff\xff" + b"\xff" * 40
    pictures: dict[str, tuple[Image.Image, dict[str, Any]]] = {
        "photo.jpg": (photo, {"quality": 95}),
        "progressive.jpeg": (photo, {"progressive": True}),
        "gray.jpg": (photo.convert("L"), {}),
        "cmyk.jpg": (photo.convert("CMYK"), {}),
        "broken-exif.jpg": (photo, {"exif": broken_exif}),
        "png-inside.jpg": (photo, {"format": "PNG"}),
        "jpeg-inside.svg": (photo, {"format": "JPEG"}),
        "sub folder/päöß 写真 (1).JPG": (photo, {}),
        "bit.png": (photo.convert("1"), {}),
        "palette.png": (photo.quantize(4), {}),
        "plain.bmp": (photo, {}),
        "plain.ppm": (photo, {}),
        "still.webp": (photo, {}),
        "moving.gif": (photo, {"save_all": True, "append_images": [other], "duration": 50}),
        "dot.png": (photo.resize((1, 1)), {}),
        "wide.png": (Image.fromarray(quadrants(20000, 1)), {}),
        "rgba.png": (half, {}),
        "clear.gif": (photo.quantize(4), {"transparency": 0}),
        "pages.tif": (photo, {"save_all": True, "append_images": [photo.convert("L")]}),
        "lzw.tiff": (photo, {"compression": "tiff_lzw"}),
        "fax.tif": (photo.convert("1"), {"compression": "group4"}),
    }
    for name, (picture, options) in pictures.items():
        picture.save(folder / name, **options)
    return list(pictures)


def _good_bytes() -> dict[str, bytes]:
    """Files that Pillow reads but does not write, and drawings."""
    deep = quadrants().astype(np.uint16) * 257
    gray = np.linspace(0, 1, 32 * 48, dtype=np.float32).reshape(32, 48)
    return {
        "rgb16.png": png16(deep),
        "rgb16.tif": tiff(deep, photometric=2, big_endian=True),
        "float.tif": tiff(gray, packed=True),
        "drawing.svg": DRAWING.encode(),
        "packed.svgz": gzip.compress(DRAWING.encode(), mtime=0),
        "unsized.svg": f'<svg {SVG}><circle cx="9" cy="9" r="5"/></svg>'.encode(),
        "wide-chars.svg": ('<?xml version="1.0" encoding="UTF-16"?>' + DRAWING).encode("utf-16"),
    }


def _broken_bytes(folder: Path) -> dict[str, bytes]:
    """Files that are cut off, no pictures, of kinds that are not read, or too much."""
    cut = {
        f"cut{Path(name).suffix}": (folder / name).read_bytes()[:-n]
        for name, n in (("photo.jpg", 400), ("rgb16.png", 60), ("lzw.tiff", 400))
    }
    bomb = (b"zTXt", b"a\0\0" + zlib.compress(bytes(100_000_000), 9))
    return cut | {
        "cut.gif": (folder / "moving.gif").read_bytes()[:40],
        "cut.svgz": gzip.compress(DRAWING.encode(), mtime=0)[:30],
        "empty.jpg": b"",
        "text.jpg": b"These are only words.\n" * 9,
        "page.jpg": b"<!DOCTYPE html><html><body>404<br></body></html>",
        "script.jpg": b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\nshowpage\n",
        "huge.png": png(b"", (20000, 20000), depth=8, colour=2),
        "absurd.png": png(b"", (2**31 - 1, 2**31 - 1), depth=16, colour=6),
        "text-bomb.png": png(b"\0" * 20, (4, 4), bomb, depth=8, colour=0),
        "planes.tif": tiff(quadrants().astype(np.uint16), photometric=2, planar=True),
        "bomb.svg": svg_bomb().encode(),
        "sizeless.svg": f'<svg {SVG} width="0" height="0"/>'.encode(),
    }
