"""Read and write tags in XMP: the packets inside media files, and the sidecars beside them.

In: a packet, or the path of a sidecar and tags. Out: its tags, or the same file with other tags and
everything else unchanged. Tags are read from dc:subject and from the hierarchies of photo programs,
whose paths are tags as a whole, such as `people|adults`; their words are no tags of their own. Tags
are written to dc:subject, of a path the last part, and to each list of hierarchies in the file,
since programs that find one read nothing else; a new file gets those of Lightroom and digiKam.
Every tag that is added here is also listed in ``suggested`` of the namespace
``urn:polyseme:xmp:1.0/``. A tag there and elsewhere is a suggestion that waits for an answer; a tag
in that list only was refused or removed, and is not suggested again; a tag that is not there is the
user's own.

A sidecar hides the keywords inside a picture from programs such as darktable. A new sidecar
therefore contains them as well, and lists them in ``copied`` of the same namespace.

Terms: `rdf` is the rdf:RDF element of a packet, as lxml has it, whose children of the type
rdf:Description hold the *properties* of the picture; a property is an attribute or an element, and
has one value, or an *array* (rdf:Bag, Seq or Alt) of *items* (rdf:li). Properties are called by
their full names, {namespace}name. A *pending* suggestion waits for an answer. Tags are compared by
`_key`: neither case nor white space nor Unicode composition makes a difference. Functions that take
`rdf` and return nothing change it in place; only `_write` reaches the disk.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

from polyseme.base.paths import SEPARATOR, ancestors, leaf_of, parts_of
from polyseme.base.validation import InputError
from polyseme.io import parse_xml
from polyseme.media.suggestions import (
    MAX_TAGS,
    Tags,
    among,
    changing,
    check_answers,
    check_tags,
    distinct,
    lacking,
    tag_key,
    without_parts,
)
from polyseme.storage.atomic_files import replacing

__all__ = [
    "answer_suggestions",
    "merge_tags",
    "read_packet",
    "read_sidecar",
    "sidecar_of",
    "sidecars_of",
    "undo_suggestions",
]

MAX_BYTES = 16 * 2**20  # of a packet or sidecar

# lxml writes a name as {namespace}name.
_RDF = "{http://www.w3.org/1999/02/22-rdf-syntax-ns#}"
_SUBJECT = "{http://purl.org/dc/elements/1.1/}subject"
_LIGHTROOM = "{http://ns.adobe.com/lightroom/1.0/}hierarchicalSubject"
_DIGIKAM = "{http://www.digikam.org/ns/1.0/}TagsList"
_NEW_LISTS = (_LIGHTROOM, _DIGIKAM)  # which a new packet gets
_SUGGESTED = "{urn:polyseme:xmp:1.0/}suggested"
_COPIED = "{urn:polyseme:xmp:1.0/}copied"
# The prefix of the namespace that a new element of a property declares.
_NAMESPACE_MAPS = {
    _SUBJECT: {"dc": "http://purl.org/dc/elements/1.1/"},
    _LIGHTROOM: {"lr": "http://ns.adobe.com/lightroom/1.0/"},
    _DIGIKAM: {"digiKam": "http://www.digikam.org/ns/1.0/"},
    _SUGGESTED: {"polyseme": "urn:polyseme:xmp:1.0/"},
    _COPIED: {"polyseme": "urn:polyseme:xmp:1.0/"},
}
# Properties that hold hierarchies, paths of tags, and what stands between the tags of a path:
# Lightroom and darktable; digiKam and Immich; Windows and digiKam.
_PATH_SEPARATORS = {
    _LIGHTROOM: "|",
    _DIGIKAM: "/",
    "{http://ns.microsoft.com/photo/1.0/}LastKeywordXMP": "/",
    "{http://ns.microsoft.com/photo/1.0}LastKeywordXMP": "/",
}
# How darktable's own notes begin, such as darktable|exported, whose parts it lists as subjects too.
_DARKTABLE_NOTE = "darktable|"
_ARRAY_TYPES = (f"{_RDF}Bag", f"{_RDF}Seq", f"{_RDF}Alt")
_FORBIDDEN_IN_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
# `begin` holds the byte order mark, by which a scanner finds the packet and its encoding.
_EMPTY_PACKET = """<?xpacket begin="\ufeff" id="W5M0MpCehiHzreSzNTczkc9d"?>
<x:xmpmeta xmlns:x="adobe:ns:meta/">
 <rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#"/>
</x:xmpmeta>
<?xpacket end="w"?>
""".encode()


def sidecar_of(media: Path) -> Path:
    """Return where the sidecar of a media file is, or would be.

    For ``photo.jpg`` it is ``photo.jpg.xmp`` if it exists, else ``photo.xmp`` if it exists, else
    ``photo.jpg.xmp``; the suffix may be in capitals. ``photo.xmp`` is also that of ``photo.cr2``:
    the programs that write it mean both. But ``photo.cr2.xmp`` is not that of ``photo.cr2.jpg``
    where ``photo.cr2`` exists, whose own it is.
    """
    media = Path(media)
    return next(iter(sidecars_of(media)), media.with_name(f"{media.name}.xmp"))


def sidecars_of(media: Path) -> list[Path]:
    """Return every sidecar that a media file has, that of `sidecar_of` first."""
    media = Path(media)
    if media.suffix.lower() == ".xmp":
        raise InputError(f"{media} is a sidecar itself; name the media file it belongs to.")
    # What stands before the suffix: photo.jpg, and photo unless that is a media file of its own.
    stems = [media.name]
    if not media.with_name(media.stem).is_file():
        stems.append(media.stem)
    sidecars: list[Path] = []
    for stem in stems:
        for suffix in (".xmp", ".XMP"):
            path = media.with_name(stem + suffix)
            if os.path.lexists(path) and not path.is_dir():
                sidecars.append(path)
                break  # a system without regard to case would list it twice
    return sidecars


def read_sidecar(path: Path) -> Tags:
    """Read the tags of a sidecar; none where it is missing."""
    rdf = _load(Path(path))
    if rdf is None:
        return Tags([])
    return _tags(rdf, str(path))


def read_packet(packet: bytes, name: str) -> Tags:
    """Read the tags of an XMP packet.

    `name` says in errors what is wrong; entities, a DOCTYPE and absurd sizes are refused.
    """
    if len(packet) > MAX_BYTES:
        raise InputError(f"{name} is larger than {MAX_BYTES >> 20} MiB, so it is no XMP packet.")
    # Some programs fill the rest of the block with zeros, which belong to the text in UTF-16 only.
    is_utf16 = b"\0" in packet[:4]
    if not is_utf16:
        packet = packet.rstrip(b"\0")
    return _tags(_rdf(packet, name), name)


def merge_tags(
    path: Path,
    tags: Sequence[str],
    *,
    present: Sequence[str] = (),
    hierarchies: Sequence[str] = (),
    dry_run: bool = False,
) -> list[str]:
    """Add tags to a sidecar, creating it if it is missing; return those that were added.

    White space in tags is made single spaces, empty ones are dropped, characters that XML forbids
    refused. Tags that are there (case, white space and Unicode composition aside), or `present`
    elsewhere, as in the media file itself, stay as and where they are; tags that were suggested
    before and refused or taken out since are not added again. A new sidecar gets those `present`
    as well, and the `hierarchies` that stand with them, for it hides them from some programs. The
    file is written as UTF-8 and replaced as a whole or not at all; where nothing is added, or in a
    `dry_run`, it is not touched.
    A symbolic link is refused: replacing it would cut the link, and following it would change a
    file in a folder that was not named. Several calls for files of one folder wait for each other
    by a lock on it. Another name of the same file, a hard link, keeps the old content.
    """
    path = Path(path)
    wanted = lacking(_with_parts(present), check_tags(tags))
    if not wanted:
        return []
    with changing(path, dry_run):
        rdf = _load_writable(path)
        is_new = rdf is None
        if is_new:
            rdf = _rdf(_EMPTY_PACKET, str(path))
            _copy_keywords(rdf, present, hierarchies)
        sidecar_tags = _tags(rdf, str(path))
        subjects = _values(rdf, _SUBJECT)
        not_to_add = [*subjects, *_with_parts(sidecar_tags.tags), *sidecar_tags.refused]
        added = lacking(not_to_add, wanted)
        if added and not dry_run:
            _add(rdf, added, is_new=is_new)
            _write(path, rdf)
        return added


def answer_suggestions(
    path: Path, *, accept: Iterable[str] = (), refuse: Iterable[str] = ()
) -> tuple[list[str], list[str]]:
    """Accept or refuse pending suggestions in a sidecar; return those that were answered.

    An accepted one becomes a tag like a person's own; a refused one is taken out, and is not
    suggested again. Tags that are no waiting suggestion are left alone. Returned are the accepted
    and the refused ones, as the sidecar spells them; both are empty where there is no sidecar.
    """
    to_accept, to_refuse = check_answers(accept, refuse)
    path = Path(path)
    with changing(path):
        rdf = _load_writable(path)
        if rdf is None:
            return [], []
        pending = _pending(rdf)
        accepted = among(to_accept, pending)
        refused = among(to_refuse, pending)
        brought = [leaf_of(tag) for tag in accepted if ancestors(tag)]
        _remove(rdf, _SUGGESTED, [*accepted, *brought])
        _remove_tags(rdf, refused)
        if accepted or refused:
            _write(path, rdf)
    return accepted, refused


def undo_suggestions(path: Path, *, dry_run: bool = False) -> list[str]:
    """Remove the pending suggestions from a sidecar, and nothing else; return them.

    What was accepted stays, and so does the memory of what was refused. A sidecar in which nothing
    is left but copies of what the picture holds is removed.
    """
    path = Path(path)
    with changing(path, dry_run):
        rdf = _load_writable(path)
        if rdf is None:
            return []
        pending = _pending(rdf)
        if pending and not dry_run:
            _remove_tags(rdf, pending)
            _remove(rdf, _SUGGESTED, pending)
            if _holds_copies_alone(rdf):
                path.unlink()
            else:
                _write(path, rdf)
    return pending


def _with_parts(tags: Sequence[str]) -> list[str]:
    """Return tags, with the words of paths and what lies above them."""
    all_tags: list[str] = []
    for tag in tags:
        higher = ancestors(tag)
        all_tags += [tag, *higher]
        if higher:
            all_tags += parts_of(tag)
    return all_tags


def _add(rdf: Any, tags: Sequence[str], *, is_new: bool) -> None:
    """Add tags as suggestions: to the subjects, and to lists of hierarchies.

    A new packet gets the lists of Lightroom and of digiKam, as some programs read no subjects; to
    another one a path adds that of Lightroom. What stands elsewhere in the packet goes there, too:
    who reads such a list reads nothing else.
    """
    subjects = _values(rdf, _SUBJECT)
    new_subjects = lacking(subjects, distinct(leaf_of(tag) for tag in tags))
    paths = [tag for tag in tags if ancestors(tag)]
    present = without_parts(distinct([*_listed_tags(rdf, subjects), *subjects]))
    new_lists: Sequence[str] = ()
    if is_new:
        new_lists = _NEW_LISTS
    elif paths:
        new_lists = (_LIGHTROOM,)
    _append(rdf, _SUBJECT, new_subjects)
    for hierarchy_property, separator in _PATH_SEPARATORS.items():
        if _values(rdf, hierarchy_property):
            _append(rdf, hierarchy_property, _written(tags, separator))
        elif hierarchy_property in new_lists:
            _append(rdf, hierarchy_property, _written([*present, *tags], separator))
    leaves = [leaf_of(path) for path in paths]
    _append(rdf, _SUGGESTED, distinct([*tags, *among(leaves, new_subjects)]))


def _written(tags: Sequence[str], separator: str) -> list[str]:
    """Return tags as a list of hierarchies holds them: paths with its separator.

    A flat tag that has the separator in it is left out: it would be read as a path.
    """
    values: list[str] = []
    for tag in tags:
        words = parts_of(tag)
        if not any(separator in word for word in words):
            values.append(separator.join(words))
    return values


def _load_writable(path: Path) -> Any:
    """Return the rdf:RDF element of a sidecar that may be replaced; None where there is no file."""
    if path.is_symlink():
        raise InputError(f"{path} is a symbolic link; name the file it points to.")
    rdf = _load(path)
    if rdf is None:
        return None
    if not os.access(path, os.W_OK):
        # Replacing needs the folder's permission only; the file's was taken away on purpose.
        raise InputError(f"{path} is write-protected; make it writable first.")
    return rdf


def _load(path: Path) -> Any:
    """Return the rdf:RDF element of a sidecar of reasonable size; None where there is no file."""
    try:
        if not path.exists():
            return None
        if not path.is_file():
            raise InputError(f"{path} is no regular file; name a sidecar file.")
        if path.stat().st_size > MAX_BYTES:
            raise InputError(f"{path} is larger than {MAX_BYTES >> 20} MiB, so it is no sidecar.")
        return _rdf(path.read_bytes(), str(path))
    except OSError as error:
        raise InputError(
            f"{path} cannot be read ({error.strerror}); check the path and its permissions."
        ) from error


def _rdf(packet: bytes, name: str) -> Any:
    """Return the rdf:RDF element of a packet; `name` names it in errors."""
    root = parse_xml(packet, name)
    elements = root.iter(f"{_RDF}RDF")
    rdf = next(elements, None)
    if rdf is None:
        raise InputError(f"{name} holds no rdf:RDF element, so it is no XMP; move it away.")
    return rdf


def _write(path: Path, rdf: Any) -> None:
    """Write the whole document of an rdf:RDF element in the place of a file, as UTF-8."""
    from lxml import etree

    root = rdf.getroottree().getroot()
    # The marks of a packet stand before and behind the root.
    preceding = list(root.itersiblings(preceding=True))  # from the root backwards
    preceding.reverse()
    following = list(root.itersiblings())
    content = b""
    for node in (*preceding, root, *following):
        content += etree.tostring(node, encoding="UTF-8", with_tail=False) + b"\n"
    if len(content) > MAX_BYTES:
        raise InputError(f"{path} would grow beyond {MAX_BYTES >> 20} MiB; add fewer tags.")
    with replacing(path) as stream:
        stream.write(content)


def _tags(rdf: Any, packet_name: str) -> Tags:
    """Return the tags of a packet; suggestions that are gone from it count as refused."""
    subjects = _values(rdf, _SUBJECT)
    listed_tags = _listed_tags(rdf, subjects)
    note_words: list[str] = []  # of darktable's notes
    for note in _values(rdf, _LIGHTROOM):
        if note.startswith(_DARKTABLE_NOTE):
            note_words += note.split("|")
    n_listed = sum(len(_values(rdf, name)) for name in _PATH_SEPARATORS)
    if max(len(subjects), n_listed) > MAX_TAGS:
        raise InputError(f"{packet_name} holds more than {MAX_TAGS:,} tags; remove some.")
    pending = _pending(rdf)
    suggested = _suggested(rdf)
    refused = lacking(pending, suggested)
    lightroom_paths = distinct(_values(rdf, _LIGHTROOM))
    hierarchies = lacking([*pending, *refused], lightroom_paths)
    # Pending tags that are no paths are listed among the subjects, at their places.
    flat_pending = [tag for tag in pending if not ancestors(tag)]
    listed_tags = lacking(flat_pending, listed_tags)
    subject_tags = lacking(note_words, subjects)
    all_tags = distinct([*listed_tags, *subject_tags])
    # A suggestion stays one though it is the word of a path.
    tags = among([*without_parts(all_tags), *pending], all_tags)
    return Tags(tags, pending, refused, hierarchies)


def _listed_tags(rdf: Any, subjects: Sequence[str]) -> list[str]:
    """Return the tags of the lists of hierarchies: paths with our separator, and flat ones."""
    # A tag such as AC/DC is no hierarchy where it is a subject as it stands.
    subject_keys = {tag_key(subject) for subject in subjects}
    tags: list[str] = []
    for hierarchy_property, separator in _PATH_SEPARATORS.items():
        for value in _values(rdf, hierarchy_property):
            if value.startswith(_DARKTABLE_NOTE):
                continue
            if tag_key(value) in subject_keys:
                tags.append(value)
                continue
            words = [word.strip() for word in value.split(separator) if word.strip()]
            tags.append(SEPARATOR.join(words))
    return distinct(tags)


def _suggested(rdf: Any) -> list[str]:
    """Return the tags that are noted as suggested, without the last parts that paths brought."""
    suggested = distinct(_values(rdf, _SUGGESTED))
    leaves = [leaf_of(tag) for tag in suggested if ancestors(tag)]
    return lacking(leaves, suggested)


def _pending(rdf: Any) -> list[str]:
    """Return the tags that are noted as suggested and still there, in their order."""
    subjects = distinct(_values(rdf, _SUBJECT))
    paths = [tag for tag in _listed_tags(rdf, subjects) if ancestors(tag)]
    return among(_suggested(rdf), distinct([*paths, *subjects]))


def _values(rdf: Any, property_name: str) -> list[str]:
    """Return every value of a property, in the order of the document, whatever its spelling."""
    values: list[str] = []
    descriptions = rdf.iterchildren(f"{_RDF}Description")
    for description in descriptions:
        if property_name in description.attrib:
            value = description.get(property_name)
            values.append(value)
        for element in description.iterchildren(property_name):
            _, items = _arrays_and_items(element)
            values += map(_value, items)
    return values


def _arrays_and_items(element: Any) -> tuple[list[Any], list[Any]]:
    """Return the arrays in the element of a property and their items.

    Without arrays, the element itself is the one item.
    """
    arrays = list(element.iterchildren(*_ARRAY_TYPES))
    if not arrays:
        return [], [element]
    items: list[Any] = []
    for array in arrays:
        items += array.iterchildren(f"{_RDF}li")
    return arrays, items


def _value(item: Any) -> str:
    """Return the value of an item: its rdf:value beside qualifiers, its resource, or its text."""
    descriptions = item.iterchildren(f"{_RDF}Description")
    for element in (item, *descriptions):
        child_value = element.findtext(f"{_RDF}value")
        value = element.get(f"{_RDF}value", child_value)
        if value is not None:
            return str(value)
    resource = item.get(f"{_RDF}resource")
    if resource:
        return str(resource)
    texts = item.xpath("text()")
    return "".join(texts)


def _copy_keywords(rdf: Any, keywords: Sequence[str], hierarchies: Sequence[str]) -> None:
    """Copy the keywords of a picture into a packet without any, but for what XML forbids."""
    allowed_keywords = distinct(filter(_is_xml, keywords))
    keyword_paths = [keyword for keyword in allowed_keywords if ancestors(keyword)]
    copied_keywords = distinct(map(leaf_of, allowed_keywords))
    copied_paths = distinct([*filter(_is_xml, hierarchies), *keyword_paths])
    if not (copied_keywords or copied_paths):
        return
    _append(rdf, _SUBJECT, copied_keywords)
    if copied_paths:
        # Programs that read hierarchies read nothing else; the words of a path are no keywords of
        # their own.
        words: list[str] = []
        for path in copied_paths:
            words += path.split("|")
        flat_keywords = lacking(words, copied_keywords)
        _append(rdf, _LIGHTROOM, [*copied_paths, *flat_keywords])
    _append(rdf, _COPIED, distinct([*copied_keywords, *copied_paths]))


def _is_xml(text: str) -> bool:
    """Whether XML allows all characters of a text."""
    return _FORBIDDEN_IN_XML.search(text) is None


def _holds_copies_alone(rdf: Any) -> bool:
    """Whether a packet holds all that was copied from the picture, or nothing, and no more."""
    copied = _values(rdf, _COPIED)
    keywords = [*_values(rdf, _SUBJECT), *_values(rdf, _LIGHTROOM)]
    if lacking(keywords, copied):
        return False  # a copied keyword was removed
    remainder = deepcopy(rdf)
    for property_name in (_SUBJECT, *_NEW_LISTS, _COPIED):
        separator = _PATH_SEPARATORS.get(property_name, SEPARATOR)
        _remove(remainder, property_name, [*copied, *_written(copied, separator)])
    return len(remainder) == 0


def _remove_tags(rdf: Any, tags: Sequence[str]) -> None:
    """Remove suggested tags from every list that they were added to.

    With a path goes its last part, if that came with it.
    """
    leaves = [leaf_of(tag) for tag in tags if ancestors(tag)]
    brought = among(leaves, _values(rdf, _SUGGESTED))
    _remove(rdf, _SUBJECT, [*tags, *brought])
    _remove(rdf, _SUGGESTED, brought)
    for hierarchy_property, separator in _PATH_SEPARATORS.items():
        _remove(rdf, hierarchy_property, [*tags, *_written(tags, separator)])


def _append(rdf: Any, property_name: str, values: Sequence[str]) -> None:
    """Append values to the last array of a property, which is created where it is missing."""
    if not values:
        return
    descriptions = list(rdf.iterchildren(f"{_RDF}Description"))
    elements: list[Any] = []
    for description in descriptions:
        elements += description.iterchildren(property_name)
    arrays: list[Any] = []
    for element in elements:
        arrays += element.iterchildren(*_ARRAY_TYPES)
    if arrays:
        array = arrays[-1]
    else:
        array = _new_array(rdf, property_name, descriptions, elements)
    for value in values:
        item = array.makeelement(f"{_RDF}li")
        try:
            item.text = value
        except ValueError as error:
            raise InputError(
                f"The tag {value!r} holds a character that XML forbids; remove it from the tag."
            ) from error
        if len(array):
            # As the items before: each in a line of its own, or all in one.
            last = array[-1]
            item.tail = last.tail
            last.tail = array.text
        array.append(item)


def _remove(rdf: Any, property_name: str, values: Sequence[str]) -> None:
    """Remove values of a property, and elements that are empty without them."""
    unwanted_keys = {tag_key(value) for value in values}
    if not unwanted_keys:
        return
    descriptions = list(rdf.iterchildren(f"{_RDF}Description"))
    for description in descriptions:
        attribute = description.get(property_name, "")
        if tag_key(attribute) in unwanted_keys:
            del description.attrib[property_name]
        elements = list(description.iterchildren(property_name))
        for element in elements:
            _remove_items(element, unwanted_keys)
        # What a description is about is no property of it.
        attributes = set(description.attrib) - {f"{_RDF}about"}
        if not len(description) and not attributes:
            _cut(description)


def _remove_items(element: Any, unwanted_keys: set[str]) -> None:
    """Remove items by the keys of their values from a property's element, and it once empty."""
    arrays, items = _arrays_and_items(element)
    candidates = items or [element]  # an empty array leaves the element, whose value may be text
    unwanted_items: list[Any] = []
    for item in candidates:
        if tag_key(_value(item)) in unwanted_keys:
            unwanted_items.append(item)
    for item in unwanted_items:
        _cut(item)
    has_items = any(len(array) for array in arrays)
    if unwanted_items and arrays and not has_items:
        _cut(element)


def _cut(element: Any) -> None:
    """Remove an element from its parent, and its line with it.

    lxml keeps the white space behind an element as its `tail`: that of the one before takes it
    over, so that the next line is indented as before.
    """
    parent = element.getparent()
    previous = element.getprevious()
    if previous is not None:
        previous.tail = element.tail or previous.tail
    elif element.getnext() is None:
        parent.text = element.tail
    parent.remove(element)


def _new_array(rdf: Any, property_name: str, descriptions: list[Any], elements: list[Any]) -> Any:
    """Create an array of a property that has none, with the one value that it may have had.

    `descriptions` are those of `rdf`, and `elements` those of the property, in the order of the
    document. The last element gets the array; without elements, a new one in the last description
    that has the property as an attribute, or in the last of all.
    """
    from lxml.etree import SubElement

    if not descriptions:
        descriptions = [SubElement(rdf, f"{_RDF}Description", {f"{_RDF}about": ""})]
    holder = descriptions[-1]
    for description in descriptions:
        if property_name in description.attrib:
            holder = description
    if elements:
        element = elements[-1]
        text = element.text
    else:
        element = SubElement(holder, property_name, nsmap=_NAMESPACE_MAPS[property_name])
        text = holder.attrib.pop(property_name, "")
    # All that stood in the element becomes its first item.
    item = element.makeelement(f"{_RDF}li", dict(element.attrib))
    item.text = text
    item.extend(list(element))
    element.clear(keep_tail=True)
    array = SubElement(element, f"{_RDF}Bag")
    has_text = bool(item.text and item.text.strip())
    if len(item) or item.attrib or has_text:
        array.append(item)
    return array
