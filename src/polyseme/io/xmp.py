"""XMP sidecars: the small files beside pictures in which photo programs keep their tags.

In come the path of a sidecar and tags; out come its tags (dc:subject), or the same file with the
new ones added and everything else as it was. The packet's text is the business of `_xmp_packet`.

Every tag added here is also noted in the property ``suggested`` of the namespace
``urn:polyseme:xmp:1.0/`` (prefix ``polyseme``). That list tells which tags a machine gave; a tag
that somebody has since taken out of dc:subject stays in the list and is not suggested again.
"""

from __future__ import annotations

import codecs
import os
import re
import unicodedata
from collections.abc import Iterable, Sequence
from itertools import product
from pathlib import Path

from polyseme._validation import InputError
from polyseme.io._xmp_disk import content, lock, replace
from polyseme.io._xmp_packet import SUBJECT, SUGGESTED, PacketError, values, with_values

__all__ = ["merge_tags", "new_packet", "read_tags", "sidecar_of"]

_SUFFIXES = sorted((f".{''.join(one)}" for one in product("xX", "mM", "pP")), reverse=True)
_FORBIDDEN = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_ENCODING = re.compile(rb"""<\?xml\s[^>]*?encoding\s*=\s*["']([A-Za-z0-9._-]+)""")
# The longer marks first: the one of UTF-32 begins with that of UTF-16.
_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_UNMARKED = ("utf-32-le", "utf-32-be", "utf-16-le", "utf-16-be")
# `begin` holds the byte order mark, by which a scanner finds the packet and its encoding.
_EMPTY_PACKET = """<?xpacket begin="\ufeff" id="W5M0MpCehiHzreSzNTczkc9d"?>
<x:xmpmeta xmlns:x="adobe:ns:meta/">
 <rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#">
 </rdf:RDF>
</x:xmpmeta>
<?xpacket end="w"?>
""".encode()


def sidecar_of(media: Path) -> Path:
    """Tell where the sidecar of a media file is, or would be.

    Parameters
    ----------
    media : Path
        The media file, such as ``photo.jpg``.

    Returns
    -------
    Path
        ``photo.jpg.xmp`` if it exists, else ``photo.xmp`` if it exists, else ``photo.jpg.xmp``.
        The suffix may be written in capitals. ``photo.xmp`` is also found for ``photo.cr2``: the
        programs that write it mean both files. But ``photo.cr2.xmp`` is not that of
        ``photo.cr2.jpg`` where ``photo.cr2`` exists, whose own it is.
    """
    media = Path(media)
    if media.suffix.lower() == ".xmp":
        raise InputError(f"{media} is a sidecar itself; name the media file it belongs to.")
    names = [media.name]
    if not media.with_name(media.stem).is_file():
        names.append(media.stem)
    for name in names:
        for suffix in _SUFFIXES:
            place = media.with_name(name + suffix)
            if os.path.lexists(place) and not place.is_dir():
                return place
    return media.with_name(f"{media.name}.xmp")


def read_tags(path: Path, *, suggested: bool = True) -> list[str]:
    """Read the tags of a sidecar.

    Parameters
    ----------
    path : Path
        The sidecar; it may be missing.
    suggested : bool
        Whether tags that `merge_tags` added count too. Who learns from tags should not take a
        machine's guesses for a person's.

    Returns
    -------
    list of str
        The values of dc:subject in order, without white space around them. Of tags that differ
        in case, white space or Unicode composition only, the first is given.
    """
    path = Path(path)
    try:
        raw = content(path)
    except OSError as error:
        raise _system_error(path, "read", error) from error
    if raw is None:
        return []
    try:
        packet = _decoded(raw)[2]
        tags = _distinct(values(packet, SUBJECT))
        return tags if suggested else _lacking(values(packet, SUGGESTED), tags)
    except PacketError as error:
        raise InputError(f"{path} {error}") from error


def merge_tags(path: Path, tags: Sequence[str]) -> list[str]:
    """Add tags to a sidecar, creating it if it is missing.

    Parameters
    ----------
    path : Path
        The sidecar. A symbolic link is refused: replacing it would cut the link, and following
        it would change a file in a folder that was not named. Of a file with several names (hard
        links) only this one gets the tags.
    tags : sequence of str
        What to add. White space around a tag is dropped and within it made one space each;
        empty tags are dropped, and characters that XML forbids refused.

    Returns
    -------
    list of str
        The tags that were added. Where it is empty the file was not touched.

    Notes
    -----
    Tags that are there, compared as in `read_tags`, stay as they are and where they are; tags that
    were suggested before and taken out since are not added again. The rest
    of the file keeps its bytes, the encoding included; the module says what else is noted there.
    The file is replaced as a whole or not at all. Several calls for files of one folder wait for
    each other by a lock on the folder; where the system has no such lock, the last one wins.
    """
    path = Path(path)
    wanted = _checked(tags)
    if not wanted:
        return []
    try:
        with lock(path):
            return _merge(path, wanted)
    except PacketError as error:
        raise InputError(f"{path} {error}") from error
    except OSError as error:
        raise _system_error(path, "written", error) from error


def new_packet(tags: Sequence[str]) -> bytes:
    """Write the content of a new sidecar.

    Parameters
    ----------
    tags : sequence of str
        Its tags, treated as in `merge_tags`.

    Returns
    -------
    bytes
        A whole XMP packet, UTF-8.
    """
    return _extended(_EMPTY_PACKET, _checked(tags))[0]


def _merge(path: Path, wanted: Sequence[str]) -> list[str]:
    """Add checked tags to a sidecar that no one else is changing."""
    if path.is_symlink():
        raise PacketError("is a symbolic link; name the file it points to.")
    raw = content(path)
    if raw is None:
        replace(path, new_packet(wanted))
        return list(wanted)
    if not os.access(path, os.W_OK):
        # Replacing needs the folder's permission only, but the file's was taken away on purpose.
        raise PacketError("is write-protected; make it writable first.")
    mark, encoding, data = _decoded(raw)
    extended, added = _extended(data, wanted)
    if added:
        replace(path, mark + extended.decode().encode(encoding))
    return added


def _extended(data: bytes, wanted: Sequence[str]) -> tuple[bytes, list[str]]:
    """Give the packet with the tags it lacks, and these."""
    before = _distinct(values(data, SUBJECT))
    # What was suggested before and is no tag any more was taken out by somebody.
    added = _lacking([*before, *values(data, SUGGESTED)], wanted)
    if not added:
        return data, []
    try:
        extended = with_values(with_values(data, SUBJECT, added), SUGGESTED, added)
        whole = _distinct(values(extended, SUBJECT)) == before + added
        whole = whole and not _lacking(values(extended, SUGGESTED), added)
    except PacketError:
        whole = False
    if not whole:
        raise PacketError("spells its tags in a way that cannot be extended; add them by hand.")
    return extended, added


def _checked(tags: Sequence[str]) -> list[str]:
    """Clean tags, drop repeated and empty ones, refuse what cannot be written."""
    if isinstance(tags, (str, bytes)):
        raise InputError(f"`tags` of `merge_tags` must be a sequence of strings; got {tags!r}.")
    given = list(tags)
    for tag in given:
        if not isinstance(tag, str):
            raise InputError(f"`tags` of `merge_tags` must hold strings only; got {tag!r}.")
        if _FORBIDDEN.search(tag):
            raise InputError(
                f"The tag {tag!r} holds a character that XML forbids; remove it from the tag."
            )
    return _distinct(" ".join(tag.split()) for tag in given)


def _key(tag: str) -> str:
    """Give what equal tags have in common."""
    folded = unicodedata.normalize("NFD", " ".join(tag.split())).casefold()
    return unicodedata.normalize("NFC", folded)


def _distinct(tags: Iterable[str]) -> list[str]:
    """Strip tags and drop empty and repeated ones."""
    first: dict[str, str] = {}
    for tag in tags:
        if stripped := tag.strip():
            first.setdefault(_key(stripped), stripped)
    return list(first.values())


def _lacking(there: Iterable[str], wanted: Iterable[str]) -> list[str]:
    """Give the wanted tags that are not there."""
    known = {_key(tag) for tag in there}
    return [tag for tag in wanted if _key(tag) not in known]


def _decoded(raw: bytes) -> tuple[bytes, str, bytes]:
    """Give the byte order mark, the encoding, and the rest in UTF-8."""
    mark, encoding = next((one for one in _MARKS if raw.startswith(one[0])), (b"", ""))
    if not mark:
        encoding = next((one for one in _UNMARKED if raw.startswith("<".encode(one))), "utf-8")
    named = _ENCODING.match(raw)
    if named and not mark and named[1].lower() not in (b"utf-8", b"utf8"):
        raise PacketError(
            f"says it is in {named[1].decode()}; XMP is UTF-8, UTF-16 or UTF-32, so convert it."
        )
    try:
        return mark, encoding, raw[len(mark) :].decode(encoding).encode()
    except UnicodeDecodeError as error:
        raise PacketError(
            f"is not valid {encoding.upper()} at byte {error.start + len(mark) + 1}; "
            "repair it or move it away."
        ) from error


def _system_error(path: Path, done: str, error: OSError) -> InputError:
    """Build the error for what the system refused."""
    return InputError(
        f"{path} cannot be {done} ({error.strerror or error}); check the path and its permissions."
    )
