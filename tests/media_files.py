"""Odd and broken picture files, written byte by byte where Pillow cannot."""

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
    """Return a picture (height, width, 3): red and green above, blue and yellow below."""
    pixels = np.empty((height, width, 3), np.uint8)
    top = height // 2
    left = width // 2
    pixels[:top, :left] = RED
    pixels[:top, left:] = GREEN
    pixels[top:, :left] = BLUE
    pixels[top:, left:] = YELLOW
    return pixels


def png(
    rows: bytes, size: tuple[int, int], *before: tuple[bytes, bytes], depth: int, colour: int
) -> bytes:
    """Return a PNG of raw rows (each after its filter byte), with chunks before the pixels."""
    header = struct.pack(">IIBBBBB", *size, depth, colour, 0, 0, 0)
    content = b"\x89PNG\r\n\x1a\n"
    pixels = (b"IDAT", zlib.compress(rows))
    for kind, data in [(b"IHDR", header), *before, pixels, (b"IEND", b"")]:
        length = struct.pack(">I", len(data))
        checksum = struct.pack(">I", zlib.crc32(kind + data))
        content += length + kind + data + checksum
    return content


def png16(pixels: NDArray[np.uint16], *before: tuple[bytes, bytes]) -> bytes:
    """Return a PNG of 16 bits a value, gray (h, w) or colour (h, w, 3)."""
    big_endian = pixels.astype(">u2")
    rows = [b"\0" + row.tobytes() for row in big_endian]
    height, width = pixels.shape[:2]
    colour = 2 if pixels.ndim == 3 else 0
    return png(b"".join(rows), (width, height), *before, depth=16, colour=colour)


def tiff(
    pixels: NDArray[np.generic],
    *,
    big_endian: bool = False,
    photometric: int = 1,
    packed: bool = False,
    planar: bool = False,
) -> bytes:
    """Return a TIFF of any bit depth, gray (h, w) or with channels (h, w, c), a strip a plane."""
    order = ">" if big_endian else "<"
    height, width, channels = (*pixels.shape, 1)[:3]
    ordered = pixels.astype(pixels.dtype.newbyteorder(order))
    planes = np.moveaxis(ordered, 2, 0) if planar else [ordered]
    strips = [plane.tobytes() for plane in planes]
    if packed:
        strips = [zlib.compress(strip) for strip in strips]
    lengths = [len(strip) for strip in strips]
    *starts, end = np.cumsum([8, *lengths]).tolist()
    sample_format = {"u": 1, "i": 2, "f": 3}[pixels.dtype.kind]
    tags = {
        256: [width],
        257: [height],
        258: [pixels.dtype.itemsize * 8] * channels,
        259: [8 if packed else 1],  # compression
        262: [photometric],
        273: starts,
        277: [channels],
        278: [height],  # rows of a strip
        279: lengths,
        284: [2 if planar else 1],
        339: [sample_format] * channels,
    }
    directory = struct.pack(order + "H", len(tags))
    long_values = b""
    long_values_start = end + 2 + 12 * len(tags) + 4
    for tag, values in tags.items():
        content = struct.pack(f"{order}{len(values)}I", *values)
        if len(values) > 1:
            address = long_values_start + len(long_values)
            long_values += content
            content = struct.pack(order + "I", address)
        directory += struct.pack(order + "HHI", tag, 4, len(values)) + content
    header = b"MM" if big_endian else b"II"
    header += struct.pack(order + "HI", 42, end)
    return header + b"".join(strips) + directory + bytes(4) + long_values


def svg_bomb(levels: int = 12) -> str:
    """Return an SVG of a few kilobytes that draws 10 ** (levels - 1) squares."""
    groups = ['<g id="a0"><rect width="1" height="1"/></g>']
    for level in range(1, levels):
        uses = f'<use xlink:href="#a{level - 1}"/>' * 10
        groups.append(f'<g id="a{level}">{uses}</g>')
    definitions = "".join(groups)
    use = f'<use xlink:href="#a{levels - 1}"/>'
    return f'<svg {SVG} width="9" height="9"><defs>{definitions}</defs>{use}</svg>'


def slow_svg() -> str:
    """Return an SVG of one element that takes minutes to draw."""
    noise = '<filter id="f"><feTurbulence numOctaves="100000000" baseFrequency="0.1"/></filter>'
    rect = '<rect width="9" height="9" filter="url(#f)"/>'
    return f'<svg {SVG} width="9" height="9">{noise}{rect}</svg>'


def make_odd_pictures(folder: Path) -> dict[str, str]:
    """Write odd picture files and things that only look like them, one of each family.

    Returns for each relative path: "good" (must be read), "broken" (named like a picture, must be
    skipped with a reason) or "other" (no picture by its name or kind, must be ignored).
    """
    (folder / "sub folder").mkdir(parents=True, exist_ok=True)
    good = [*_saved(folder), *_write(folder, _good_bytes())]
    kinds = dict.fromkeys(good, "good")
    kinds |= dict.fromkeys(_write(folder, _broken_bytes(folder)), "broken")
    photo = (folder / "photo.jpg").read_bytes()
    no_pictures = {"notes.txt": b"a text", "no-suffix": photo, ".hidden.jpg": photo}
    kinds |= dict.fromkeys(_write(folder, no_pictures), "other")
    (folder / "folder.png").mkdir(exist_ok=True)
    kinds["folder.png"] = "other"
    if hasattr(os, "mkfifo"):
        os.mkfifo(folder / "pipe.png")
        kinds["pipe.png"] = "other"
    links = [
        ("link.jpg", "photo.jpg", "good"),
        ("lost-link.jpg", "nowhere.jpg", "broken"),
        ("circle.png", "circle.png", "broken"),
    ]
    for name, target, kind in links:
        with contextlib.suppress(OSError):  # not every system lets everyone make links
            (folder / name).symlink_to(target)
            kinds[name] = kind
    return kinds


def _write(folder: Path, files: dict[str, bytes]) -> list[str]:
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return list(files)


def _saved(folder: Path) -> list[str]:
    """Write what Pillow can write."""
    pixels = quadrants()
    photo = Image.fromarray(pixels)
    flipped = Image.fromarray(pixels[::-1].copy())
    opacity = np.full((32, 48), 128, np.uint8)
    transparent = Image.fromarray(np.dstack([pixels, opacity]))
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
        "moving.gif": (photo, {"save_all": True, "append_images": [flipped], "duration": 50}),
        "dot.png": (photo.resize((1, 1)), {}),
        "wide.png": (Image.fromarray(quadrants(20000, 1)), {}),
        "rgba.png": (transparent, {}),
        "clear.gif": (photo.quantize(4), {"transparency": 0}),
        "pages.tif": (photo, {"save_all": True, "append_images": [photo.convert("L")]}),
        "lzw.tiff": (photo, {"compression": "tiff_lzw"}),
        "fax.tif": (photo.convert("1"), {"compression": "group4"}),
    }
    for name, (picture, options) in pictures.items():
        picture.save(folder / name, **options)
    return list(pictures)


def _good_bytes() -> dict[str, bytes]:
    """Return files that Pillow reads but does not write, and drawings."""
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
    """Return files that are cut off, no pictures, of kinds that are not read, or too large."""
    bomb = (b"zTXt", b"a\0\0" + zlib.compress(bytes(100_000_000), 9))
    return {
        "cut.jpg": (folder / "photo.jpg").read_bytes()[:-400],
        "cut.png": (folder / "rgb16.png").read_bytes()[:-60],
        "cut.tiff": (folder / "lzw.tiff").read_bytes()[:-400],
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
