"""The text of an XMP packet: where its tags stand, and how new ones are put between the old bytes.

In comes the packet as UTF-8 bytes; out come the tags found there, or the same bytes with a few
insertions. Nothing is written anew, so what is not understood is kept as it was.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple
from xml.parsers import expat
from xml.sax.saxutils import escape, quoteattr

RDF = "http://www.w3.org/1999/02/22-rdf-syntax-ns#"
# expat joins namespace and name by this; it cannot stand in either.
_JOIN = "\n"
# Far above what programs write; without it a small file could claim gigabytes.
_MAX_DEPTH = 200
_ATTRIBUTE = re.compile(rb"""\s+([^\s=]+)\s*=\s*("[^"]*"|'[^']*')""")
_START_TAG = re.compile(rb"""<[^>"']*(?:(?:"[^"]*"|'[^']*')[^>"']*)*>""")
_NAME = re.compile(rb"<([^\s/>]+)")
_LINE_START = re.compile(rb"\r?\n[ \t]*\Z")


class PacketError(ValueError):
    """A packet cannot be used; the text completes "photo.xmp …"."""


class Property(NamedTuple):
    """A property of the picture: its namespace, its name, and the prefix we write it with."""

    namespace: str
    local: str
    prefix: str

    @property
    def key(self) -> str:
        """The name as the parser gives it."""
        return f"{self.namespace}{_JOIN}{self.local}"


SUBJECT = Property("http://purl.org/dc/elements/1.1/", "subject", "dc")
# A URN: a name in a domain would claim one. It ends as XMP asks of namespaces.
SUGGESTED = Property("urn:polyseme:xmp:1.0/", "suggested", "polyseme")

_NAMESPACES = {"rdf": RDF, **{one.prefix: one.namespace for one in (SUBJECT, SUGGESTED)}}
_WANTED = frozenset(one.key for one in (SUBJECT, SUGGESTED))
_CONTAINERS = frozenset(f"{RDF}{_JOIN}{name}" for name in ("Bag", "Seq", "Alt"))
_ROOT, _DESCRIPTION, _ITEM, _VALUE, _RESOURCE, _ABOUT = (
    f"{RDF}{_JOIN}{name}" for name in ("RDF", "Description", "li", "value", "resource", "about")
)


@dataclass(slots=True, eq=False)
class _Node:
    """An element that matters here, with its place in the bytes and the prefixes known inside."""

    name: str
    attributes: dict[str, tuple[str, str]]  # parser's name -> (name as written, value)
    scope: Mapping[str, str]
    start: int
    inside: int  # first byte after the start tag
    is_empty: bool  # written <like this/>
    end: int = -1
    text: list[str] = field(default_factory=list)
    children: list[_Node] = field(default_factory=list)


class _Edit(NamedTuple):
    """Bytes from `start` to before `stop` give way to `text`."""

    start: int
    stop: int
    text: bytes


class _Reader:
    """Collect the nodes of the first rdf:RDF down to the wanted properties and all within them."""

    def __init__(self, data: bytes) -> None:
        self.root: _Node | None = None
        self._data = data
        self._open: list[_Node | None] = []
        self._scopes: list[tuple[str, Mapping[str, str]]] = []
        self._scope: Mapping[str, str] = {}
        self._parser = expat.ParserCreate("utf-8", _JOIN)
        self._parser.namespace_prefixes = True
        self._parser.StartDoctypeDeclHandler = self._doctype
        self._parser.StartNamespaceDeclHandler = self._declare
        self._parser.EndNamespaceDeclHandler = self._forget
        self._parser.StartElementHandler = self._start
        self._parser.EndElementHandler = self._end
        self._parser.CharacterDataHandler = self._characters

    def read(self) -> _Node:
        """Parse everything; give the rdf:RDF element."""
        try:
            self._parser.Parse(self._data, True)
        except expat.ExpatError as error:
            raise PacketError(
                f"is not well-formed XML ({error}); repair it or move it away."
            ) from error
        if self.root is None:
            raise PacketError("holds no rdf:RDF element, so it is no XMP; move it away.")
        return self.root

    def _doctype(self, *_: object) -> None:
        """Refuse the only thing that can define entities, before any is read."""
        raise PacketError("has a DOCTYPE, which XMP does not know; remove it or move the file.")

    def _declare(self, prefix: str | None, uri: str | None) -> None:
        """Note a prefix, if it is one we write ourselves."""
        if prefix in _NAMESPACES:
            self._scopes.append((prefix, self._scope))
            self._scope = {**self._scope, prefix: uri or ""}

    def _forget(self, prefix: str | None) -> None:
        """Go back to what was known before a prefix was declared."""
        if prefix in _NAMESPACES:
            self._scope = self._scopes.pop()[1]

    def _start(self, name: str, attributes: Mapping[str, str]) -> None:
        """Open an element, and keep it if it is on the way to a wanted property or inside one."""
        if len(self._open) >= _MAX_DEPTH:
            raise PacketError(f"nests elements deeper than {_MAX_DEPTH}, so it is no XMP.")
        parent = self._open[-1] if self._open else None
        name, _ = _split(name)
        if not self._keeps(parent, name):
            self._open.append(None)
            return
        start = self._parser.CurrentByteIndex
        tag = _START_TAG.match(self._data, start)
        if tag is None:  # cannot happen in what expat accepted
            raise PacketError("has a start tag that cannot be found again; repair the file.")
        named = {_split(key)[0]: (_split(key)[1], value) for key, value in attributes.items()}
        node = _Node(name, named, self._scope, start, tag.end(), tag[0].endswith(b"/>"))
        if parent is None:
            self.root = node
        else:
            parent.children.append(node)
        self._open.append(node)

    def _keeps(self, parent: _Node | None, name: str) -> bool:
        """Tell whether an element is one to keep."""
        if parent is None:
            return self.root is None and name == _ROOT
        if parent is self.root:
            return True
        # Only a grandchild of rdf:RDF is a property of the picture and not of a structure in it.
        if self._open[-2] is self.root:
            return parent.name == _DESCRIPTION and name in _WANTED
        return True

    def _end(self, _name: str) -> None:
        """Close an element."""
        node = self._open.pop()
        if node is not None:
            here = self._parser.CurrentByteIndex
            node.end = node.inside if node.is_empty else self._data.index(b">", here) + 1

    def _characters(self, text: str) -> None:
        """Keep the text of the elements that are kept."""
        node = self._open[-1] if self._open else None
        if node is not None:
            node.text.append(text)


def values(data: bytes, prop: Property) -> list[str]:
    """Give every value of a property of the picture in order, as written.

    Parameters
    ----------
    data : bytes
        The packet, UTF-8.
    prop : Property
        Which one; spelled as an element with an array or a plain value, or as an attribute.

    Returns
    -------
    list of str
    """
    found: list[str] = []
    for node, attribute in _occurrences(_Reader(data).read(), prop):
        if attribute is not None:
            found.append(attribute)
        elif (array := _array(node)) is not None:
            found += [_value(item) for item in array.children if item.name == _ITEM]
        else:
            found.append(_value(node))
    return found


def with_values(data: bytes, prop: Property, added: Sequence[str]) -> bytes:
    """Give the packet with values appended to a property, which may not be there yet.

    Parameters
    ----------
    data : bytes
        The packet, UTF-8.
    prop : Property
        Which one.
    added : sequence of str
        At least one value to append, free of characters that XML forbids.

    Returns
    -------
    bytes
        The packet, UTF-8; the old bytes with insertions. Only a value spelled as an attribute
        is moved, since an attribute holds no second one, and ``/>`` gives way to an end tag.
    """
    root = _Reader(data).read()
    places = list(_occurrences(root, prop))
    if not places:
        return _splice(data, [_new_property(data, root, prop, added)])
    node, attribute = places[-1]
    if attribute is not None:
        kept = [attribute] if attribute.strip() else []
        cut = _splice(data, [_cut_attribute(data, node, prop)])
        return with_values(cut, prop, [*kept, *added])
    array = _array(node)
    if array is not None:
        lead = _line_start(data, array.children[-1].start) if array.children else b""
        return _splice(data, [_inside(data, array, _items(added, array.scope, lead))])
    if node.children or node.attributes or _value(node).strip():
        return _splice(data, _wrapped(data, root, node, added))
    return _splice(data, [_inside(data, node, _bag(added, node.scope))])


def _split(name: str) -> tuple[str, str]:
    """Take the parser's name apart: the name without its prefix, and the name as written."""
    namespace, _, rest = name.rpartition(_JOIN) if name.count(_JOIN) < 2 else name.partition(_JOIN)
    local, _, prefix = rest.partition(_JOIN)
    plain = f"{namespace}{_JOIN}{local}" if namespace else local
    return plain, f"{prefix}:{local}" if prefix else local


def _occurrences(root: _Node, prop: Property) -> Iterator[tuple[_Node, str | None]]:
    """Yield each place of a property: its element, or the element it is an attribute of."""
    for description in root.children:
        if description.name != _DESCRIPTION:
            continue
        if prop.key in description.attributes:
            yield description, description.attributes[prop.key][1]
        for child in description.children:
            if child.name == prop.key:
                yield child, None


def _array(node: _Node) -> _Node | None:
    """Give the Bag, Seq or Alt of a property."""
    arrays = [child for child in node.children if child.name in _CONTAINERS]
    return arrays[-1] if arrays else None


def _value(node: _Node) -> str:
    """Give the one value of an item: its text, its rdf:value beside qualifiers, or its resource."""
    for holder in (node, *(child for child in node.children if child.name == _DESCRIPTION)):
        if _VALUE in holder.attributes:
            return holder.attributes[_VALUE][1]
        for child in holder.children:
            if child.name == _VALUE:
                return "".join(child.text)
    if _RESOURCE in node.attributes:
        return node.attributes[_RESOURCE][1]
    return "" if node.children else "".join(node.text)


def _splice(data: bytes, edits: Iterable[_Edit]) -> bytes:
    """Apply edits that do not overlap."""
    for edit in sorted(edits, reverse=True):
        data = data[: edit.start] + edit.text + data[edit.stop :]
    return data


def _inside(data: bytes, node: _Node, text: bytes) -> _Edit:
    """Put text after the last child of an element, giving it an end tag if it has none."""
    if node.is_empty:
        closed = b">" + text + b"</" + _written(data, node) + b">"
        return _Edit(node.inside - 2, node.inside, closed)
    place = node.children[-1].end if node.children else node.inside
    return _Edit(place, place, text)


def _written(data: bytes, node: _Node) -> bytes:
    """Give an element's name as written, with its prefix."""
    name = _NAME.match(data, node.start)
    return name[1] if name else b""


def _line_start(data: bytes, place: int) -> bytes:
    """Give the line end and the white space before a place; nothing where other text stands."""
    found = _LINE_START.search(data[max(0, place - 200) : place])
    return found[0] if found else b""


def _declared(scope: Mapping[str, str], *prefixes: str) -> str:
    """Declare those prefixes that do not mean what we write them for."""
    missing = [one for one in prefixes if scope.get(one) != _NAMESPACES[one]]
    return "".join(f' xmlns:{one}="{_NAMESPACES[one]}"' for one in missing)


def _items(added: Sequence[str], scope: Mapping[str, str], lead: bytes = b"") -> bytes:
    """Write the items of an array, each after `lead`."""
    start = f"<rdf:li{_declared(scope, 'rdf')}>"
    return b"".join(lead + f"{start}{escape(one)}</rdf:li>".encode() for one in added)


def _bag(added: Sequence[str], scope: Mapping[str, str]) -> bytes:
    """Write an array in one line."""
    start = f"<rdf:Bag{_declared(scope, 'rdf')}>".encode()
    return start + _items(added, {**scope, "rdf": RDF}) + b"</rdf:Bag>"


def _new_property(data: bytes, root: _Node, prop: Property, added: Sequence[str]) -> _Edit:
    """Write a property that is not there as an rdf:Description of its own, the last one."""
    abouts = [
        value
        for node in root.children
        if node.name == _DESCRIPTION
        for key, (_, value) in node.attributes.items()
        if key in (_ABOUT, "about")
    ]
    about = quoteattr(abouts[0] if abouts else "")
    if root.children:
        lead = _line_start(data, root.children[-1].start)
    elif lead := _line_start(data, root.start):
        lead += b" "
    step = b" " if lead else b""
    declared = _declared(root.scope, "rdf", prop.prefix)
    name = f"{prop.prefix}:{prop.local}"
    text = [lead + f"<rdf:Description{declared} rdf:about={about}>".encode()]
    text += [lead + step + f"<{name}>".encode(), lead + 2 * step + b"<rdf:Bag>"]
    text += [_items(added, {"rdf": RDF}, lead + 3 * step), lead + 2 * step + b"</rdf:Bag>"]
    text += [lead + step + f"</{name}>".encode(), lead + b"</rdf:Description>"]
    return _inside(data, root, b"".join(text))


def _cut_attribute(data: bytes, node: _Node, prop: Property) -> _Edit:
    """Take a property spelled as an attribute out of a start tag."""
    written = node.attributes[prop.key][0].encode()
    name_end = node.start + 1 + len(_written(data, node))
    for found in _ATTRIBUTE.finditer(data, name_end, node.inside):
        if found[1] == written:
            return _Edit(found.start(), found.end(), b"")
    raise PacketError("has an attribute that cannot be found again; repair the file.")


def _wrapped(data: bytes, root: _Node, node: _Node, added: Sequence[str]) -> list[_Edit]:
    """Make a property's one value the first item of an array.

    The value's attributes (language, qualifiers) belong to the item then, which inserting text
    before and after them achieves.
    """
    written = _written(data, node)
    name_end = node.start + 1 + len(written)
    prefix = written.partition(b":")[0] if b":" in written else b""
    own = b"xmlns:" + prefix if prefix else b"xmlns"
    kept = [one[0] for one in _ATTRIBUTE.finditer(data, name_end, node.inside) if one[1] == own]
    outer = next((one.scope for one in root.children if node in one.children), {})
    declared = _declared(outer, "rdf").encode()
    before = b"".join(kept) + b"><rdf:Bag" + declared + b"><rdf:li"
    after = _items(added, {"rdf": RDF}) + b"</rdf:Bag>"
    if node.is_empty:
        closing = _Edit(node.inside, node.inside, after + b"</" + written + b">")
    else:
        place = data.rindex(b"</", node.start, node.end)
        closing = _Edit(place, place, b"</rdf:li>" + after)
    return [_Edit(name_end, name_end, before), closing]
