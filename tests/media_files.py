"""What tests of media share: makers of odd and broken picture files."""

from __future__ import annotations

import gzip
import os
import struct
import zlib
from pathlib import Path

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
    rows: bytes,
    size: tuple[int, int],
    *,
    depth: int,
    colour: int,
    before: tuple[tuple[bytes, bytes], ...] = (),
) -> bytes:
    """A PNG of raw rows (each after its filter byte), with chunks before the pixels."""
    header = struct.pack(">IIBBBBB", *size, depth, colour, 0, 0, 0)
    chunks = [(b"IHDR", header), *before, (b"IDAT", zlib.compress(rows)), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(*chunk) for chunk in chunks)


def _chunk(kind: bytes, content: bytes) -> bytes:
    check = struct.pack(">I", zlib.crc32(kind + content))
    return struct.pack(">I", len(content)) + kind + content + check


def png16(pixels: NDArray[np.uint16], *before: tuple[bytes, bytes]) -> bytes:
    """A PNG of 16 bits a value, gray (h, w) or colour (h, w, 3)."""
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in pixels)
    size = (pixels.shape[1], pixels.shape[0])
    return png(rows, size, depth=16, colour=2 if pixels.ndim == 3 else 0, before=before)


def tiff(
    pixels: NDArray[np.generic],
    *,
    big_endian: bool = False,
    photometric: int = 1,
    packed: bool = False,
    planar: bool = False,
) -> bytes:
    """A TIFF of any bit depth, gray (h, w) or with channels (h, w, c), in one strip."""
    order = ">" if big_endian else "<"
    height, width = pixels.shape[:2]
    channels = pixels.shape[2] if pixels.ndim == 3 else 1
    ordered = pixels.astype(pixels.dtype.newbyteorder(order))
    planes = list(np.moveaxis(ordered, 2, 0)) if planar else [ordered]
    strips = [zlib.compress(p.tobytes()) if packed else p.tobytes() for p in planes]
    starts = [8 + sum(len(strip) for strip in strips[:i]) for i in range(len(strips))]
    sample = {"u": 1, "i": 2, "f": 3}[pixels.dtype.kind]
    entries: list[tuple[int, str, list[int]]] = [
        (256, "I", [width]),
        (257, "I", [height]),
        (258, "H", [pixels.dtype.itemsize * 8] * channels),
        (259, "H", [8 if packed else 1]),
        (262, "H", [photometric]),
        (273, "I", starts),
        (277, "H", [channels]),
        (278, "I", [height]),
        (279, "I", [len(strip) for strip in strips]),
        (284, "H", [2 if planar else 1]),
        (339, "H", [sample] * channels),
    ]
    data = b"".join(strips)
    data += b"\0" * (len(data) % 2)
    after = 8 + len(data) + 2 + 12 * len(entries) + 4
    directory, extra = struct.pack(order + "H", len(entries)), b""
    for tag, kind, values in entries:
        packed_values = struct.pack(f"{order}{len(values)}{kind}", *values)
        if len(packed_values) > 4:
            place = struct.pack(order + "I", after + len(extra))
            extra += packed_values
        else:
            place = packed_values.ljust(4, b"\0")
        directory += struct.pack(order + "HHI", tag, 3 if kind == "H" else 4, len(values)) + place
    start = (b"MM" if big_endian else b"II") + struct.pack(order + "HI", 42, 8 + len(data))
    return start + data + directory + bytes(4) + extra


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


def exif(orientation: int) -> bytes:
    """An EXIF block that says how a picture is to be turned."""
    block = Image.Exif()
    block[274] = orientation
    return block.tobytes()


def make_odd_pictures(folder: Path) -> dict[str, str]:
    """Write odd picture files and things that only look like them.

    Returns for each relative path: "good" (must be read), "broken" (named like a picture, must be
    skipped with a reason) or "other" (no picture by its name or kind, must be passed over).
    """
    folder.mkdir(parents=True, exist_ok=True)
    found = dict.fromkeys([*_photos(folder), *_plain_files(folder), *_tiffs(folder)], "good")
    found |= dict.fromkeys([*_with_alpha(folder), *_drawings(folder)], "good")
    found |= dict.fromkeys(_broken(folder), "broken")
    found |= dict.fromkeys(_others(folder), "other")
    return found | _links(folder)


def _write(folder: Path, files: dict[str, bytes]) -> list[str]:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return list(files)


def _photos(folder: Path) -> list[str]:
    photo = Image.fromarray(quadrants())
    photo.save(folder / "photo.jpg", quality=95)
    photo.save(folder / "progressive.jpeg", progressive=True)
    photo.convert("L").save(folder / "gray.jpg")
    photo.convert("CMYK").save(folder / "cmyk.jpg")
    photo.save(folder / "broken-exif.jpg", exif=b"Exif\0\0II*\0\xff\xff\xff\xff" + b"\xff" * 40)
    photo.save(folder / "UPPER.JPG")
    photo.save(folder / "png-inside.jpg", format="PNG")
    photo.save(folder / "jpeg-inside.svg", format="JPEG")
    (folder / "sub folder").mkdir(exist_ok=True)
    photo.save(folder / "sub folder" / "päöß 写真 (1).jpg")
    return [
        *("photo.jpg", "progressive.jpeg", "gray.jpg", "cmyk.jpg", "broken-exif.jpg"),
        *("UPPER.JPG", "png-inside.jpg", "jpeg-inside.svg"),
        "sub folder/päöß 写真 (1).jpg",
    ]


def _plain_files(folder: Path) -> list[str]:
    photo = Image.fromarray(quadrants())
    other = Image.fromarray(quadrants()[::-1].copy())
    photo.convert("1").save(folder / "bit.png")
    photo.quantize(4).save(folder / "palette.png")
    photo.save(folder / "plain.bmp")
    photo.save(folder / "plain.ppm")
    photo.convert("1").save(folder / "bit.pbm")
    photo.save(folder / "lossy.webp")
    for name in ("moving.gif", "moving.webp", "moving.png"):
        photo.save(folder / name, save_all=True, append_images=[other], duration=50)
    photo.resize((1, 1)).save(folder / "dot.png")
    Image.fromarray(quadrants(20000, 1)).save(folder / "wide.png")
    Image.fromarray(quadrants(1, 20000)).save(folder / "tall.png")
    deep = quadrants().astype(np.uint16) * 257
    files = _write(folder, {"rgb16.png": png16(deep), "gray16.png": png16(deep[:, :, 0])})
    return [
        *("bit.png", "palette.png", "plain.bmp", "plain.ppm", "bit.pbm", "lossy.webp"),
        *("moving.gif", "moving.webp", "moving.png", "dot.png", "wide.png", "tall.png"),
        *files,
    ]


def _with_alpha(folder: Path) -> list[str]:
    half = Image.fromarray(np.dstack([quadrants(), np.full((32, 48), 128, np.uint8)]))
    half.save(folder / "rgba.png")
    half.convert("LA").save(folder / "la.png")
    half.save(folder / "lossless.webp", lossless=True)
    palette = Image.fromarray(quadrants()).quantize(4)
    palette.save(folder / "clear.gif", transparency=0)
    palette.save(folder / "clear.png", transparency=bytes((0, 80, 160, 255)))
    four = png(b"\0\x1b" * 4, (4, 4), depth=2, colour=0, before=((b"tRNS", b"\0\1"),))
    _write(folder, {"clear-gray.png": four})
    return ["rgba.png", "la.png", "lossless.webp", "clear.gif", "clear.png", "clear-gray.png"]


def _tiffs(folder: Path) -> list[str]:
    photo = Image.fromarray(quadrants())
    photo.save(folder / "pages.tif", save_all=True, append_images=[photo.convert("L")])
    photo.save(folder / "lzw.tiff", compression="tiff_lzw")
    photo.convert("CMYK").save(folder / "cmyk.tif")
    photo.convert("1").save(folder / "fax.tif", compression="group4")
    gray = np.linspace(0, 1, 32 * 48, dtype=np.float32).reshape(32, 48)
    files = {
        "gray16.tif": tiff((gray * 65535).astype(np.uint16)),
        "rgb16.tif": tiff(quadrants().astype(np.uint16) * 257, photometric=2, big_endian=True),
        "int32.tif": tiff((gray * 1e6 - 5e5).astype(np.int32)),
        "float.tif": tiff(gray, packed=True),
    }
    return ["pages.tif", "lzw.tiff", "cmyk.tif", "fax.tif", *_write(folder, files)]


def _drawings(folder: Path) -> list[str]:
    files = {
        "drawing.svg": DRAWING.encode(),
        "packed.svgz": gzip.compress(DRAWING.encode(), mtime=0),
        "unsized.svg": f'<svg {SVG}><circle cx="9" cy="9" r="5"/></svg>'.encode(),
        "wide-chars.svg": ('<?xml version="1.0" encoding="UTF-16"?>' + DRAWING).encode("utf-16"),
    }
    return _write(folder, files)


def _broken(folder: Path) -> list[str]:
    photo, painting = (folder / "photo.jpg").read_bytes(), (folder / "rgb16.png").read_bytes()
    still, pages = (folder / "lossy.webp").read_bytes(), (folder / "lzw.tiff").read_bytes()
    text = zlib.compress(bytes(100_000_000), 9)
    blank, line = ((4, 4), b"\0" * 5 * 4)
    return _write(
        folder,
        {
            "empty.jpg": b"",
            "cut.jpg": photo[: len(photo) // 2],
            "header.jpg": photo[:20],
            "cut.png": painting[: len(painting) * 2 // 3],
            "cut.webp": still[: len(still) // 2],
            "cut.tif": pages[: len(pages) // 2],
            "cut.gif": (folder / "moving.gif").read_bytes()[:40],
            "cut.bmp": (folder / "plain.bmp").read_bytes()[:1000],
            "text.jpg": b"These are only words.\n" * 9,
            "page.jpg": b"<!DOCTYPE html><html><body>404<br></body></html>",
            "zeros.png": bytes(5000),
            "noise.gif": b"GIF89a" + bytes(range(256)),
            "script.jpg": b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\nshowpage\n",
            "huge.png": png(b"", (20000, 20000), depth=8, colour=2),
            "absurd.png": png(b"", (2**31 - 1, 2**31 - 1), depth=16, colour=6),
            "text-bomb.png": png(
                line, blank, depth=8, colour=0, before=((b"zTXt", b"a\0\0" + text),)
            ),
            "bad-header.png": png(line, blank, depth=7, colour=5),
            "planes.tif": tiff(quadrants().astype(np.uint16), photometric=2, planar=True),
            "double.tif": tiff(np.zeros((4, 4))),
            "unclosed.svg": DRAWING[:-6].encode(),
            "words.svg": b"no markup at all",
            "bomb.svg": svg_bomb().encode(),
            "sizeless.svg": f'<svg {SVG} width="0" height="0"/>'.encode(),
            "cut.svgz": gzip.compress(DRAWING.encode(), mtime=0)[:30],
        },
    )


def _others(folder: Path) -> list[str]:
    photo = (folder / "photo.jpg").read_bytes()
    others = _write(
        folder,
        {
            "notes.txt": b"a text",
            "no-suffix": photo,
            "photo.xmp": b"<x:xmpmeta xmlns:x='adobe:ns:meta/'/>",
            ".hidden.jpg": photo,
            "._photo.jpg": b"\0\5\x16\7\0\2\0\0Mac OS X        " + bytes(50),
        },
    )
    (folder / "folder.png").mkdir(exist_ok=True)
    others.append("folder.png")
    if hasattr(os, "mkfifo"):
        pipe = folder / "pipe.png"
        pipe.unlink(missing_ok=True)
        os.mkfifo(pipe)
        others.append("pipe.png")
    return others


def _links(folder: Path) -> dict[str, str]:
    links = {"link.jpg": ("photo.jpg", "good"), "lost-link.jpg": ("nowhere.jpg", "broken")}
    links |= {"circle.png": ("circle.png", "broken")}
    try:
        for name, (goal, _) in links.items():
            (folder / name).unlink(missing_ok=True)
            (folder / name).symlink_to(goal)
    except OSError:  # not every system lets everyone make links
        return {}
    return {name: verdict for name, (_, verdict) in links.items()}
