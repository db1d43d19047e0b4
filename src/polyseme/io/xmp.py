"""XMP sidecars: the small files beside pictures in which photo programs keep their tags.

In come the path of a sidecar and tags; out come its tags (dc:subject), or the same file with new
ones added and everything else kept. Every tag added here is also noted in ``suggested`` of the
namespace ``urn:polyseme:xmp:1.0/``: that list tells which tags a machine gave, and a tag that
somebody has since taken out of dc:subject stays in it and is not suggested again.
"""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from polyseme._validation import InputError
from polyseme.io import locked, parse_xml, replacing

__all__ = ["merge_tags", "read_tags", "sidecar_of"]

MAX_BYTES = 16 * 2**20
_LOCK_SECONDS = 60.0

# lxml writes a name as {namespace}name.
_RDF = "{http://www.w3.org/1999/02/22-rdf-syntax-ns#}"
_SUBJECT = "{http://purl.org/dc/elements/1.1/}subject"
_SUGGESTED = "{urn:polyseme:xmp:1.0/}suggested"
_PREFIX = {
    _SUBJECT: {"dc": "http://purl.org/dc/elements/1.1/"},
    _SUGGESTED: {"polyseme": "urn:polyseme:xmp:1.0/"},
}
_ARRAYS = (f"{_RDF}Bag", f"{_RDF}Seq", f"{_RDF}Alt")
# `begin` holds the byte order mark, by which a scanner finds the packet and its encoding.
_EMPTY_PACKET = """<?xpacket begin="\ufeff" id="W5M0MpCehiHzreSzNTczkc9d"?>
<x:xmpmeta xmlns:x="adobe:ns:meta/">
 <rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#"/>
</x:xmpmeta>
<?xpacket end="w"?>
""".encode()


def sidecar_of(media: Path) -> Path:
    """Tell where the sidecar of a media file is, or would be.

    For ``photo.jpg`` it is ``photo.jpg.xmp`` if it exists, else ``photo.xmp`` if it exists, else
    ``photo.jpg.xmp``; the suffix may be in capitals. ``photo.xmp`` is also that of ``photo.cr2``:
    the programs that write it mean both. But ``photo.cr2.xmp`` is not that of ``photo.cr2.jpg``
    where ``photo.cr2`` exists, whose own it is.
    """
    media = Path(media)
    if media.suffix.lower() == ".xmp":
        raise InputError(f"{media} is a sidecar itself; name the media file it belongs to.")
    names = [media.name] if media.with_name(media.stem).is_file() else [media.name, media.stem]
    for name in names:
        for suffix in (".xmp", ".XMP"):
            place = media.with_name(name + suffix)
            if os.path.lexists(place) and not place.is_dir():
                return place
    return media.with_name(f"{media.name}.xmp")


def read_tags(path: Path, *, suggested: bool = True) -> list[str]:
    """Read the tags of a sidecar, in order and stripped; none where it is missing.

    Of tags that differ in case, white space or Unicode composition only, the first is given.
    Without `suggested`, tags that `merge_tags` added are left out: who learns from tags should not
    take a machine's guesses for a person's.
    """
    rdf = _load(Path(path))
    if rdf is None:
        return []
    tags = _distinct(_values(rdf, _SUBJECT))
    return tags if suggested else _lacking(_values(rdf, _SUGGESTED), tags)


def merge_tags(path: Path, tags: Sequence[str]) -> list[str]:
    """Add tags to a sidecar, creating it if it is missing; give those that were added.

    White space in tags is made single spaces, empty ones are dropped, characters that XML forbids
    refused. Tags that are there, compared as in `read_tags`, stay as and where they are; tags that
    were suggested before and taken out since are not added again. The file is written as UTF-8 and
    replaced as a whole or not at all; where nothing is added it is not touched. A symbolic link is
    refused: replacing it would cut the link, and following it would change a file in a folder that
    was not named. Several calls for files of one folder wait for each other by a lock on it.
    """
    path = Path(path)
    if isinstance(tags, str) or not all(isinstance(tag, str) for tag in tags):
        raise InputError(f"`tags` of `merge_tags` must be a sequence of strings; got {tags!r}.")
    wanted = _distinct(" ".join(tag.split()) for tag in tags)
    if not wanted:
        return []
    try:
        with locked(path.parent, _LOCK_SECONDS):
            return _merge(path, wanted)
    except OSError as error:
        raise InputError(
            f"{path} cannot be written ({error.strerror}); check the path and its permissions."
        ) from error


def _merge(path: Path, wanted: Sequence[str]) -> list[str]:
    """Add tidied tags to a sidecar that no one else is changing."""
    if path.is_symlink():
        raise InputError(f"{path} is a symbolic link; name the file it points to.")
    rdf = _load(path)
    if rdf is None:
        rdf = next(parse_xml(_EMPTY_PACKET, str(path)).iter(f"{_RDF}RDF"))
    elif not os.access(path, os.W_OK):
        # Replacing needs the folder's permission only; the file's was taken away on purpose.
        raise InputError(f"{path} is write-protected; make it writable first.")
    # What was suggested before and is no tag any more was taken out by somebody.
    added = _lacking([*_values(rdf, _SUBJECT), *_values(rdf, _SUGGESTED)], wanted)
    if added:
        _append(rdf, _SUBJECT, added)
        _append(rdf, _SUGGESTED, added)
        _write(path, rdf)
    return added


def _load(path: Path) -> Any:
    """Give the rdf:RDF element of a sidecar of reasonable size; None where there is no file."""
    try:
        if not path.exists():
            return None
        if not path.is_file():
            raise InputError(f"{path} is no regular file; name a sidecar file.")
        if path.stat().st_size > MAX_BYTES:
            raise InputError(f"{path} is larger than {MAX_BYTES >> 20} MiB, so it is no sidecar.")
        root = parse_xml(path.read_bytes(), str(path))
    except OSError as error:
        raise InputError(
            f"{path} cannot be read ({error.strerror}); check the path and its permissions."
        ) from error
    rdf = next(root.iter(f"{_RDF}RDF"), None)
    if rdf is None:
        raise InputError(f"{path} holds no rdf:RDF element, so it is no XMP; move it away.")
    return rdf


def _write(path: Path, rdf: Any) -> None:
    """Put the document of an element in the place of a file."""
    from lxml import etree

    root = rdf.getroottree().getroot()
    outside = [*reversed([*root.itersiblings(preceding=True)]), root, *root.itersiblings()]
    written = [etree.tostring(node, encoding="UTF-8", with_tail=False) + b"\n" for node in outside]
    if sum(map(len, written)) > MAX_BYTES:
        raise InputError(f"{path} would grow beyond {MAX_BYTES >> 20} MiB; add fewer tags.")
    with replacing(path) as stream:
        stream.writelines(written)


def _values(rdf: Any, name: str) -> list[str]:
    """Give every value of a property of the picture, spelled as an attribute or an element."""
    values: list[str] = []
    for description in rdf.iterchildren(f"{_RDF}Description"):
        values += [description.get(name)] if name in description.attrib else []
        for element in description.iterchildren(name):
            arrays = list(element.iterchildren(*_ARRAYS))
            items = [item for array in arrays for item in array.iterchildren(f"{_RDF}li")]
            values += map(_value, items if arrays else [element])
    return values


def _value(item: Any) -> str:
    """Give the value of an item: its rdf:value beside qualifiers, its resource, or its text."""
    for element in (item, *item.iterchildren(f"{_RDF}Description")):
        value = element.get(f"{_RDF}value", element.findtext(f"{_RDF}value"))
        if value is not None:
            return str(value)
    return str(item.get(f"{_RDF}resource") or "".join(item.xpath("text()")))


def _append(rdf: Any, name: str, added: Sequence[str]) -> None:
    """Append values to the last array of a property; one that has none gets one."""
    descriptions = list(rdf.iterchildren(f"{_RDF}Description"))
    elements = [element for each in descriptions for element in each.iterchildren(name)]
    arrays = [array for element in elements for array in element.iterchildren(*_ARRAYS)]
    array = arrays[-1] if arrays else _new_array(rdf, name, descriptions, elements)
    for value in added:
        item = array.makeelement(f"{_RDF}li")
        try:
            item.text = value
        except ValueError as error:
            raise InputError(
                f"The tag {value!r} holds a character that XML forbids; remove it from the tag."
            ) from error
        if len(array):
            # As the items before: each in a line of its own, or all in one.
            item.tail, array[-1].tail = array[-1].tail, array.text
        array.append(item)


def _new_array(rdf: Any, name: str, descriptions: list[Any], elements: list[Any]) -> Any:
    """Make the array of a property and move the one value into it that it may have had."""
    from lxml.etree import SubElement

    if not descriptions:
        descriptions = [SubElement(rdf, f"{_RDF}Description", {f"{_RDF}about": ""})]
    holder = next(
        (each for each in reversed(descriptions) if name in each.attrib), descriptions[-1]
    )
    element = elements[-1] if elements else SubElement(holder, name, nsmap=_PREFIX[name])
    item = element.makeelement(f"{_RDF}li", dict(element.attrib))
    item.text = holder.attrib.pop(name, "") if not elements else element.text
    item.extend(list(element))
    element.clear(keep_tail=True)
    array = SubElement(element, f"{_RDF}Bag")
    if len(item) or item.attrib or (item.text and item.text.strip()):
        array.append(item)
    return array


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


def _lacking(present: Iterable[str], wanted: Iterable[str]) -> list[str]:
    """Give the wanted tags that are not present."""
    known = {_key(tag) for tag in present}
    return [tag for tag in wanted if _key(tag) not in known]
