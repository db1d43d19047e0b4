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

MEMORY = 1 << 30
SECONDS = 30  # of the processor, in case the parent process has gone
LONGEST = 4  # the longer side is drawn with at most this many times the side asked for


def main(side: int, *, cover: bool) -> None:
    """Draw the markup of standard input, after giving up the right to open files."""
    markup = _text(sys.stdin.buffer.read())
    _fit('<svg xmlns="http://www.w3.org/2000/svg"/>', 1)  # the renderer opens its files now
    if not _confine():
        _refuse_links(markup)
    png = _fit(markup, side)
    if cover:
        # Only the renderer knows a picture's proportions; they stand in the PNG's first chunk.
        width, height = struct.unpack(">II", png[16:24])
        longer = max(width, height)
        shorter = min(width, height)
        wanted = -(-side * longer // shorter)
        drawn_side = min(wanted, LONGEST * side)
        if drawn_side > side:
            png = _fit(markup, drawn_side)
    sys.stdout.buffer.write(png)


def _fit(markup: str, side: int) -> bytes:
    """Return a PNG with the longer side of this length."""
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
    limits = {"CORE": 0, "AS": MEMORY, "CPU": SECONDS, "NOFILE": 3}
    for name, most in limits.items():
        try:
            resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (most, most))
        except (AttributeError, OSError, ValueError):  # not every system knows every limit
            continue
    try:
        os.close(os.open(os.devnull, os.O_RDONLY))
    except OSError:
        return True
    return False


def _text(markup: bytes) -> str:
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

    def look(_: str, attributes: dict[str, str]) -> None:
        for name, value in attributes.items():
            inside = value.strip().startswith(("#", "data:"))
            if name.rpartition(":")[2] == "href" and not inside:
                raise ValueError("refers to another file")

    parser = expat.ParserCreate()
    parser.StartElementHandler = look
    parser.Parse(markup, True)


if __name__ == "__main__":
    try:
        main(int(sys.argv[1]), cover=sys.argv[2] == "True")
    except Exception as error:  # whatever the file did
        sys.exit(str(error))
