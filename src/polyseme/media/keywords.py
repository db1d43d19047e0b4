"""Read keywords that other programs wrote: inside media files, and in sidecars beside them.

In: the path of a picture or a sound. Out: its keywords, from which places they come, and which
places could not be read. One damaged place costs its own keywords and nothing else.

Terms: a *place* is where a file may hold keywords: XMP, IPTC, EXIF, sound tags, or a sidecar; a
*suggested* tag is one that polyseme wrote and nobody confirmed, which is no keyword here.
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
from polyseme.media.extractors import extractor_class
from polyseme.media.suggestions import MAX_TAGS, Tags, distinct, lacking, without_parts

# Bytes read of one file at most: blocks of keywords are small.
MOST_BYTES = 64 * 2**20
MOST_LETTERS = 1_000  # of one keyword
# Fields of sound files that hold tags, whatever the format calls them. Comments are prose.
SOUND_FIELDS = frozenset({"genre", "mood", "style", "keywords", "tags"})
_FIELD_ALIASES = {"keyw": "keywords"}  # MP4's name of four letters
# Fixed by the formats: EXIF's tag of Windows' keywords; IPTC's records and fields of keywords and
# of the character set, and what the latter says for UTF-8.
_EXIF_XP_KEYWORDS = 0x9C9E
_IPTC_KEYWORDS = (2, 25)
_IPTC_CHARSET = (1, 90)
_IPTC_UTF8 = b"\x1b%G"
_PNG_IPTC = "Raw profile type iptc"  # the name of a PNG's text that holds an IPTC block
_PNG_LAST_CHUNK = bytes.fromhex("0000000049454e44ae426082")
_SIDECAR = "sidecar"


class Place(NamedTuple):
    """Where a file may hold keywords; read only while the file is open."""

    name: str  # such as "XMP"
    read: Callable[[], Tags]  # raises whatever a decoder raises


class Keywords(NamedTuple):
    """What a file's keywords are, but for suggested ones, and where they come from."""

    tags: list[str]
    places: list[str]  # of XMP, IPTC, EXIF, sound tags and sidecar those that hold some
    unread: list[str]  # why a place cannot be read, such as "XMP: is not well-formed"
    hierarchies: Sequence[str] = ()  # inside the file, such as `animal|bird`; the leaves are tags


def keywords_of(path: Path, kind: str) -> Keywords:
    """Return the keywords inside a media file of a kind, and in its sidecars, united.

    Raises OSError where the file cannot be opened, and for nothing in it.
    """
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
    confirmed = without_parts(lacking(suggested, distinct(tags)))
    return Keywords(confirmed, distinct(places), distinct(unread), hierarchies)


def _places(path: Path, kind: str) -> Iterator[Place]:
    """Yield the places in and beside a file that may hold keywords."""
    extractor = extractor_class(kind)
    with path.open("rb", buffering=0) as raw:
        bounded_file = _BoundedReader(raw)
        yield from extractor.keyword_places(bounded_file)
    for sidecar in xmp.sidecars_of(path):
        yield Place(_SIDECAR, partial(xmp.read_sidecar, sidecar))


def _check(keywords: Sequence[str]) -> None:
    """Raise a ValueError for absurd numbers and lengths of keywords."""
    if len(keywords) > MAX_TAGS:
        raise ValueError(f"more than {MAX_TAGS:,} keywords")
    longest = max(map(len, keywords), default=0)
    if longest > MOST_LETTERS:
        raise ValueError(f"a keyword of more than {MOST_LETTERS:,} letters")


class _BoundedReader(io.BufferedReader):
    """A file of which at most `MOST_BYTES` can be read, all reads together."""

    bytes_left = MOST_BYTES

    def read(self, size: int | None = -1, /) -> bytes:
        """Read as any file does; raise a ValueError once `MOST_BYTES` are exceeded."""
        if size is None or size < 0:
            size = self.bytes_left + 1  # a byte more shows that there is too much
        content = super().read(size)
        self.bytes_left -= len(content)
        if self.bytes_left < 0:
            raise ValueError(f"more than {MOST_BYTES >> 20} MiB would have to be read")
        return content


# ---------------------------------------------------------------------- pictures


def places_in_picture(file: BinaryIO) -> Iterator[Place]:
    """Yield the places inside an open picture, one whose reader fails where it is damaged."""
    from polyseme.media.pictures import open_picture

    try:
        picture = open_picture(file)
    except MediaError:  # an SVG, or a file that the extraction reports itself
        return
    except Exception as error:
        yield Place("picture", partial(_fail, error))
        return
    with picture:
        metadata_picture = picture
        if picture.format == "PNG":
            try:
                metadata_picture = _open_without_pixels(file)
            except Exception as error:  # the metadata before the pixels can still be read
                yield Place("picture", partial(_fail, error))
        yield Place("XMP", partial(_read_xmp, metadata_picture))
        yield Place("IPTC", partial(_read_iptc, metadata_picture))
        yield Place("EXIF", partial(_read_exif, metadata_picture))


def _open_without_pixels(file: BinaryIO) -> Any:
    """Open a PNG as if it had no pixels.

    Asked for what may stand behind them, Pillow would unpack them, however many there are said to
    be. A PNG is a signature of 8 bytes and chunks: 4 bytes with the size of the data, 4 with the
    kind, the data, and a checksum of 4 bytes.
    """
    from polyseme.media.pictures import open_picture

    file.seek(0)
    content = file.read()
    signature = content[:8]
    chunks = [signature]
    start = len(signature)
    while start < len(content):
        size_bytes = content[start : start + 4]
        kind = content[start + 4 : start + 8]
        end = start + 12 + int.from_bytes(size_bytes, "big")
        if kind not in (b"IDAT", b"IEND"):
            chunks.append(content[start:end])
        start = end
    chunks.append(_PNG_LAST_CHUNK)
    shortened = b"".join(chunks)
    return open_picture(io.BytesIO(shortened))


def _fail(error: Exception) -> Tags:
    """Raise the error that came before any place could be read."""
    raise error


def _read_xmp(picture: Any) -> Tags:
    """Return the tags of a picture's XMP packet, whose name in `info` depends on the format."""
    info = picture.info
    packet = info.get("xmp") or info.get("XML:com.adobe.xmp") or b""
    if isinstance(packet, str):
        packet = packet.encode()
    packet = bytes(packet)
    if not packet.strip(b"\0 "):
        return Tags([])
    return xmp.read_packet(packet, "its XMP block")


def _read_iptc(picture: Any) -> Tags:
    """Return the keywords of a picture's IPTC block."""
    from PIL import IptcImagePlugin, JpegImagePlugin

    png_profile = picture.info.get(_PNG_IPTC)
    if png_profile:
        # Pillow reads such a block from JPEG pictures only.
        block = _iptc_block(png_profile)
        picture = JpegImagePlugin.JpegImageFile.__new__(JpegImagePlugin.JpegImageFile)
        picture.info = {"photoshop": {0x0404: block}}  # Photoshop's number of an IPTC block
    fields: Any = IptcImagePlugin.getiptcinfo(picture) or {}
    is_utf8 = _IPTC_UTF8 in fields.get(_IPTC_CHARSET, b"")
    encoded_keywords = fields.get(_IPTC_KEYWORDS, [])
    if isinstance(encoded_keywords, bytes):  # Pillow returns a single one by itself
        encoded_keywords = [encoded_keywords]
    return Tags([_decode(encoded, is_utf8) for encoded in encoded_keywords])


def _iptc_block(png_profile: str | bytes) -> bytes:
    """Return the IPTC block in a PNG's text, from its first record on.

    The text is a name, a size, and the block in hexadecimal digits, with white space between.
    """
    text = png_profile if isinstance(png_profile, str) else png_profile.decode("ascii")
    digits = text.split()[2:]
    block = bytes.fromhex("".join(digits))
    record_starts: list[int] = []
    for record_mark in (b"\x1c\x01", b"\x1c\x02"):
        start = block.find(record_mark)
        if start >= 0:
            record_starts.append(start)
    first_start = min(record_starts, default=0)
    return block[first_start:]


def _decode(encoded: bytes, is_utf8: bool) -> str:
    """Return a keyword as text: UTF-8 where that is declared or possible, else as Windows does."""
    try:
        return encoded.decode("utf-8")
    except UnicodeDecodeError:
        encoding = "utf-8" if is_utf8 else "cp1252"
        return encoded.decode(encoding, "replace")


def _read_exif(picture: Any) -> Tags:
    """Return the keywords that Windows keeps in EXIF: UTF-16, with semicolons between them."""
    from PIL import Image

    # Not the PNG reader's own, which looks for pixels first.
    exif = Image.Image.getexif(picture)
    joined = exif.get(_EXIF_XP_KEYWORDS, b"")
    if not isinstance(joined, str):
        encoded = bytes(joined)
        joined = encoded.decode("utf-16-le", "replace")
    text = joined.rstrip("\0")
    return Tags(text.split(";"))


# ---------------------------------------------------------------------- sound


def places_in_sound(file: BinaryIO) -> Iterator[Place]:
    """Yield the place inside an open sound file."""
    yield Place("sound tags", partial(_read_sound_tags, file))


def _read_sound_tags(file: BinaryIO) -> Tags:
    """Read genre, mood, style, keywords and tags: ID3, Vorbis comments, MP4.

    Several in one field have semicolons or zeros between them; in lists of tags also commas, which
    a genre may contain.
    """
    try:
        from tinytag import TinyTag
    except ImportError as error:
        raise needs("audio", "Reading the keywords in sound files") from error
    keywords: list[str] = []
    sound = TinyTag.get(file_obj=file, duration=False)
    texts_by_field: dict[str, Any] = sound.as_dict()
    for field_name, texts in texts_by_field.items():
        field = field_name.lower()
        field = _FIELD_ALIASES.get(field, field)
        if field not in SOUND_FIELDS:
            continue
        separators = r"[;\0]"
        if field in ("keywords", "tags"):
            separators = r"[;\0,]"
        for text in texts:
            keywords += re.split(separators, str(text))
    return Tags(keywords)
