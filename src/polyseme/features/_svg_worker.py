"""The process that draws SVG files, so that a hostile one can be given up on.

In: requests on standard input. Out: PNG bytes on standard output, one answer a request.
Only the standard library and `resvg_py` are imported: it must start at once.
"""

from __future__ import annotations

import os
import re
import signal
import struct
import sys
from typing import BinaryIO
from xml.parsers import expat

REQUEST = struct.Struct(">IIBI")  # seconds, side, whether the shorter side counts, bytes to come
ANSWER = struct.Struct(">BI")  # what follows, bytes to come
READY, DRAWN, REFUSED = 0, 1, 2
CODECS = ("utf-8-sig", "utf-16", "latin-1", "iso8859-15", "cp1252", "cp1251")

MEMORY = 1 << 30
LONGEST = 4  # the longer side is drawn with at most this many times the side asked for


def main() -> None:
    """Answer requests until the other side is gone."""
    import resvg_py  # before the gate closes: from then on no file can be opened

    requests, answers = sys.stdin.buffer, sys.stdout.buffer
    resvg_py.svg_to_bytes(svg_string='<svg xmlns="http://www.w3.org/2000/svg"/>')
    for codec in CODECS:
        "".encode(codec)  # is loaded from a file
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # ctrl-c is the parent's to handle
    closed = _confine()
    _send(answers, READY, b"")
    while (head := requests.read(REQUEST.size)) and len(head) == REQUEST.size:
        seconds, side, cover, length = REQUEST.unpack(head)
        _alarm(seconds + 5)
        try:
            markup = _text(requests.read(length))
            if not closed:
                _refuse_links(markup)
            _send(answers, DRAWN, _draw(markup, side, cover=bool(cover)))
        except Exception as error:  # whatever the file did: the next one may be good
            _send(answers, REFUSED, str(error).encode("utf-8", "replace")[:200])
        _alarm(0)


def _send(answers: BinaryIO, kind: int, content: bytes) -> None:
    """Write one answer."""
    answers.write(ANSWER.pack(kind, len(content)) + content)
    answers.flush()


def _confine() -> bool:
    """Bound memory and open files; return whether files can no longer be opened."""
    try:
        import resource
    except ImportError:
        return False
    for kind, most in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_AS, MEMORY),
        (resource.RLIMIT_NOFILE, 3),
    ):
        try:
            resource.setrlimit(kind, (most, most))
        except (OSError, ValueError):  # not every system knows every limit
            continue
    try:
        os.close(os.open(os.devnull, os.O_RDONLY))
    except OSError:
        return True
    return False


def _alarm(seconds: int) -> None:
    """End this process after so many seconds, even where its parent is gone; 0 calls it off."""
    if hasattr(signal, "alarm"):
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(seconds)


def _text(markup: bytes) -> str:
    """Decode XML by its mark or its own declaration; the renderer takes text only."""
    if markup.startswith((b"\xff\xfe", b"\xfe\xff")):
        return markup.decode("utf-16")
    declared = re.match(rb"""<\?xml[^>]*?encoding\s*=\s*["']([A-Za-z0-9._-]+)""", markup)
    for encoding in ("utf-8-sig", declared[1].decode("ascii") if declared else "latin-1"):
        try:
            return markup.decode(encoding)
        except (LookupError, UnicodeError, OSError, ImportError):  # the codec is not at hand
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


def _draw(markup: str, side: int, *, cover: bool) -> bytes:
    """Draw with the longer side (or, to `cover`, the shorter one) as long as asked."""
    drawn = _fit(markup, side)
    if not cover:
        return drawn
    # Only the renderer knows a picture's proportions; they stand in the PNG's first chunk.
    width, height = struct.unpack(">II", drawn[16:24])
    longer = min(-(-side * max(width, height) // min(width, height)), LONGEST * side)
    return drawn if longer <= side else _fit(markup, longer)


def _fit(markup: str, side: int) -> bytes:
    """Draw with the longer side of this length."""
    import resvg_py

    # Without the machine's fonts a picture is the same everywhere; lengths in mm need a dpi.
    return bytes(
        resvg_py.svg_to_bytes(
            svg_string=markup, width=side, height=side, dpi=96.0, skip_system_fonts=True
        )
    )


if __name__ == "__main__":
    main()
