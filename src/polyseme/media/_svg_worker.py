"""Draw one SVG file in a process of its own, so that a hostile one can be killed.

In: markup on standard input, the side in pixels and whether the shorter one counts as arguments.
Out: PNG bytes on standard output, or exit code 1 with the reason on the error stream. Only the
standard library and `resvg_py` are imported: it must start at once.
"""

from __future__ import annotations

import os
import re
import struct
import sys
from xml.parsers import expat

import resvg_py

MOST_MEMORY = 1 << 30  # bytes
MOST_SECONDS = 30  # of the processor, in case the parent process has gone
MOST_STRETCH = 4  # the longer side is drawn with at most this many times the side asked for


def main(side: int, *, cover: bool) -> None:
    """Draw the markup of standard input, after giving up the right to open files.

    `side` is the length in pixels of the picture's longer side; with `cover`, of the shorter one.
    """
    markup = _decode(sys.stdin.buffer.read())
    _draw('<svg xmlns="http://www.w3.org/2000/svg"/>', 1)  # the renderer opens its files now
    if not _confine():
        _refuse_links(markup)
    png = _draw(markup, side)
    if cover:
        # Only the renderer knows a picture's proportions; they stand in the PNG's first chunk.
        width, height = struct.unpack(">II", png[16:24])
        longer = max(width, height)
        shorter = min(width, height)
        longer_side = -(-side * longer // shorter)  # rounded up
        longer_side = min(longer_side, MOST_STRETCH * side)
        if longer_side > side:
            png = _draw(markup, longer_side)
    sys.stdout.buffer.write(png)


def _draw(markup: str, side: int) -> bytes:
    """Return a PNG whose longer side has this many pixels."""
    # Without the machine's fonts a picture is the same everywhere; lengths in mm need a dpi.
    png = resvg_py.svg_to_bytes(
        svg_string=markup, width=side, height=side, dpi=96.0, skip_system_fonts=True
    )
    return bytes(png)


def _confine() -> bool:
    """Bound memory, time and open files; return whether files can no longer be opened."""
    try:
        import resource
    except ImportError:
        return False
    # Three open files are the standard streams.
    limits = {"CORE": 0, "AS": MOST_MEMORY, "CPU": MOST_SECONDS, "NOFILE": 3}
    for name, limit in limits.items():
        try:
            resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (limit, limit))
        except (AttributeError, OSError, ValueError):  # not every system knows every limit
            continue
    try:
        os.close(os.open(os.devnull, os.O_RDONLY))
    except OSError:
        return True
    return False


def _decode(markup: bytes) -> str:
    """Return XML decoded by its mark or its own declaration; the renderer takes text only."""
    if markup.startswith((b"\xff\xfe", b"\xfe\xff")):
        return markup.decode("utf-16")
    declaration = re.match(rb"""<\?xml[^>]*?encoding\s*=\s*["']([A-Za-z0-9._-]+)""", markup)
    declared_encoding = declaration[1].decode("ascii") if declaration else "latin-1"
    for encoding in ("utf-8-sig", declared_encoding):
        try:
            return markup.decode(encoding)
        except (LookupError, UnicodeError):
            continue
    return markup.decode("latin-1")


def _refuse_links(markup: str) -> None:
    """Raise where an element refers to another file; for systems that cannot bar opening."""

    def check_element(_: str, attributes: dict[str, str]) -> None:
        for name, link in attributes.items():
            local_name = name.rpartition(":")[2]
            stays_inside = link.strip().startswith(("#", "data:"))
            if local_name == "href" and not stays_inside:
                raise ValueError("refers to another file")

    parser = expat.ParserCreate()
    parser.StartElementHandler = check_element
    parser.Parse(markup, True)


if __name__ == "__main__":
    try:
        main(int(sys.argv[1]), cover=sys.argv[2] == "True")
    except Exception as error:  # whatever the file did
        sys.exit(str(error))
