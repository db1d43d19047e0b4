"""Read keywords that other programs wrote: inside media files, and in sidecars beside them.

In: the path of a picture or a sound. Out: its keywords, from which places they come, and which
places could not be read. One damaged place costs its own keywords and nothing else.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from polyseme.base.text import error_text
from polyseme.base.validation import InputError
from polyseme.media import xmp
from polyseme.media.base import MediaError, needs
from polyseme.media.xmp import Tags, distinct, lacking

# Bytes read of one file at most: blocks of keywords are small.
MOST_BYTES = 64 * 2**20
MOST_LETTERS = 1_000
# Fields of sound files that hold tags, whatever the format calls them. Comments are prose.
SOUND_FIELDS = frozenset({"genre", "mood", "style", "keywords", "tags"})
_ALIASES = {"keyw": "keywords"}
_XP_KEYWORDS = 0x9C9E
_IPTC_KEYWORDS = (2, 25)
_IPTC_CHARSET = (1, 90)
_END = bytes.fromhex("0000000049454e44ae426082")  # the last chunk
_RAW_IPTC = "Raw profile type iptc"
_SIDECAR = "sidecar"

Place = tuple[str, Callable[[], Tags]]  # its name, and the function that reads it


class Keywords(NamedTuple):
    """What a file's keywords are, but for suggested ones, and where they come from."""

    tags: list[str]
    places: list[str]  # of XMP, IPTC, EXIF, sound tags and sidecar those that hold some
    unread: list[str]  # why a place cannot be read, such as "XMP: is not well-formed"
    hierarchies: Sequence[str] = ()  # inside the file, such as `animal|bird`; the leaves are tags


def keywords_of(path: Path, kind: str) -> Keywords:
    """Return the keywords inside a media file ("image" or "audio") and in its sidecars, united."""
    tags: list[str] = []
    suggested: list[str] = []
    places: list[str] = []
    unread: list[str] = []
    hierarchies: list[str] = []
    with warnings.catch_warnings(action="ignore"):  # remarks on strangers' files
        for name, read in _places(path, kind):
            try:
                place_tags = read()
                keywords = distinct(place_tags.tags)
                _check(keywords)
                _check(place_tags.hierarchies)
            except InputError as error:
                unread.append(str(error))
                continue
            except Exception as error:  # decoders raise nearly everything on broken files
                unread.append(f"{name}: {error_text(error)}")
                continue
            suggested += place_tags.suggested
            tags += keywords
            if name != _SIDECAR:
                hierarchies += place_tags.hierarchies
            if lacking(place_tags.suggested, keywords):
                places.append(name)
    # A program may have copied a suggestion into the file, without the note that it is one.
    confirmed = lacking(suggested, distinct(tags))
    return Keywords(confirmed, distinct(places), distinct(unread), hierarchies)


def _places(path: Path, kind: str) -> Iterator[Place]:
    """Yield the places in and beside a file that may hold keywords."""
    inside = {"image": _in_picture, "audio": _in_sound}[kind]
    with path.open("rb", buffering=0) as raw:
        yield from inside(_Bounded(raw))
    for sidecar in xmp.sidecars_of(path):
        yield _SIDECAR, partial(xmp.read_sidecar, sidecar)


def _check(keywords: Sequence[str]) -> None:
    """Raise for absurd numbers and lengths of keywords."""
    if len(keywords) > xmp.MAX_TAGS:
        raise ValueError(f"more than {xmp.MAX_TAGS:,} keywords")
    longest = max(map(len, keywords), default=0)
    if longest > MOST_LETTERS:
        raise ValueError(f"a keyword of more than {MOST_LETTERS:,} letters")


class _Bounded(io.BufferedReader):
    """A file of which at most `MOST_BYTES` can be read."""

    left = MOST_BYTES

    def read(self, size: int | None = -1, /) -> bytes:
        """Read as any file does."""
        content = super().read(self.left + 1 if size is None or size < 0 else size)
        self.left -= len(content)
        if self.left < 0:
            raise ValueError(f"more than {MOST_BYTES >> 20} MiB would have to be read")
        return content


# ---------------------------------------------------------------------- pictures


def _in_picture(file: BinaryIO) -> Iterator[Place]:
    """Yield the places inside a picture."""
    from polyseme.media.pictures import open_picture

    try:
        picture = open_picture(file)
    except MediaError:  # an SVG, or a file that the extraction reports itself
        return
    except Exception as error:
        yield "picture", partial(_fail, error)
        return
    with picture:
        seen = picture
        try:
            seen = _without_pixels(file) if picture.format == "PNG" else picture
        except Exception as error:  # the metadata before the pixels can still be read
            yield "picture", partial(_fail, error)
        yield "XMP", partial(_xmp, seen)
        yield "IPTC", partial(_iptc, seen)
        yield "EXIF", partial(_exif, seen)


def _without_pixels(file: BinaryIO) -> Any:
    """Return a PNG as one that has no pixels.

    Asked for what may stand behind them, Pillow would unpack them, however many there are said to
    be.
    """
    from polyseme.media.pictures import open_picture

    file.seek(0)
    content = file.read()
    signature = content[:8]
    chunks = [signature]
    start = len(signature)
    while start < len(content):
        size = int.from_bytes(content[start : start + 4], "big")
        kind = content[start + 4 : start + 8]
        end = start + 12 + size
        if kind not in (b"IDAT", b"IEND"):
            chunks.append(content[start:end])
        start = end
    chunks.append(_END)
    return open_picture(io.BytesIO(b"".join(chunks)))


def _fail(error: Exception) -> Tags:
    """Raise the error that came before any place could be read."""
    raise error


def _xmp(picture: Any) -> Tags:
    """Return the tags of a picture's XMP packet."""
    info = picture.info
    packet = info.get("xmp") or info.get("XML:com.adobe.xmp") or b""
    if isinstance(packet, str):
        packet = packet.encode()
    packet = bytes(packet)
    if not packet.strip(b"\0 "):
        return Tags([])
    return xmp.read_packet(packet, "its XMP block")


def _iptc(picture: Any) -> Tags:
    """Return the keywords of a picture's IPTC block."""
    from PIL import IptcImagePlugin, JpegImagePlugin

    raw = picture.info.get(_RAW_IPTC)
    if raw:  # a text of hexadecimal digits after name and size
        text = raw if isinstance(raw, str) else raw.decode("ascii")
        digits = "".join(text.split()[2:])
        block = bytes.fromhex(digits)
        record_starts = [block.find(mark) for mark in (b"\x1c\x01", b"\x1c\x02")]
        start = min((place for place in record_starts if place >= 0), default=0)
        # Pillow reads such a block from JPEG pictures only.
        picture = JpegImagePlugin.JpegImageFile.__new__(JpegImagePlugin.JpegImageFile)
        picture.info = {"photoshop": {0x0404: block[start:]}}
    fields: Any = IptcImagePlugin.getiptcinfo(picture) or {}
    is_utf8 = b"\x1b%G" in fields.get(_IPTC_CHARSET, b"")
    values = fields.get(_IPTC_KEYWORDS, [])
    if isinstance(values, bytes):
        values = [values]
    return Tags([_text(value, is_utf8) for value in values])


def _text(value: bytes, is_utf8: bool) -> str:
    """Return a value decoded: as UTF-8 where that is declared or possible, else as Windows does."""
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        encoding = "utf-8" if is_utf8 else "cp1252"
        return value.decode(encoding, "replace")


def _exif(picture: Any) -> Tags:
    """Return the keywords that Windows keeps in EXIF: UTF-16, with semicolons between them."""
    from PIL import Image

    # Not the PNG reader's own, which looks for pixels first.
    exif = Image.Image.getexif(picture)
    value = exif.get(_XP_KEYWORDS, b"")
    if not isinstance(value, str):
        value = bytes(value).decode("utf-16-le", "replace")
    return Tags(value.rstrip("\0").split(";"))


# ---------------------------------------------------------------------- sound


def _in_sound(file: BinaryIO) -> Iterator[Place]:
    """Yield the place inside a sound file."""
    yield "sound tags", partial(_sound_tags, file)


def _sound_tags(file: BinaryIO) -> Tags:
    """Read genre, mood, style, keywords and tags: ID3, Vorbis comments, MP4."""
    try:
        from tinytag import TinyTag
    except ImportError as error:
        raise needs("audio", "Reading the keywords in sound files") from error
    keywords: list[str] = []
    fields: dict[str, Any] = TinyTag.get(file_obj=file, duration=False).as_dict()
    for name, values in fields.items():
        field = _ALIASES.get(name.lower(), name.lower())
        if field in SOUND_FIELDS:
            marks = r"[;\0,]" if field in ("keywords", "tags") else r"[;\0]"
            for value in values:
                keywords += re.split(marks, str(value))
    return Tags(keywords)
