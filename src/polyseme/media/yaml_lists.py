"""Change lists of texts in a block of YAML, in place: nothing else in it moves.

In: a block, a key of its outermost mapping, and texts to remove and to add. Out: the block with
this list changed. The change is checked: the new block must hold what was meant, and otherwise what
the old one held, in the same order and with the same anchors.

Terms: an *entry* is a key of the outermost mapping with its value; an *item* is one of a list; a
list is of lines, one an item, or in brackets. Events are those of the parser, each with the place
where it begins and ends. They are compared in a row, so that aliases are never followed: a few
lines of them can stand for more than any memory holds.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from polyseme.base.text import is_text
from polyseme.media.base import needs
from polyseme.media.suggestions import distinct, tag_key

_ITEM_START = re.compile(r" *-[ \t]+")  # what stands before an item in its line
_NULLS = ("~", "null", "Null", "NULL")


class UnsafeChangeError(Exception):
    """A block cannot be changed without a change to something else."""


class _EventContent(NamedTuple):
    """What an event holds, wherever it stands."""

    kind: str
    anchor: str | None
    tag: str | None
    value: str | None


Content = tuple[_EventContent, ...]  # of nodes in a row; equal for equal nodes


class _Item(NamedTuple):
    """An item of a list."""

    text: str | None  # None for what is no text, such as a mapping
    start: int  # of the block's characters
    end: int
    content: Content


class _Entry(NamedTuple):
    """A key of the outermost mapping, with its value."""

    key: str
    key_start: int
    key_end: int
    start: int  # of the value
    end: int
    kind: str  # "lines", "brackets", "text", or "other"
    items: list[_Item]  # of a list
    text: str  # of a text
    key_content: Content
    value_content: Content


def load_yaml() -> Any:
    """Import the parser of YAML."""
    try:
        import yaml
    except ImportError:
        raise needs("text", "Reading the front matter of Markdown") from None
    return yaml


def texts_of(value: object) -> list[str]:
    """Return the texts of a value: of a list, or of one text with commas or spaces between them.

    Each once, without the sign # before them.
    """
    if isinstance(value, str):
        if value in _NULLS:
            return []
        value = value.split(",") if "," in value else value.split()
    if not isinstance(value, list):
        return []
    return distinct(_bare(text) for text in value if isinstance(text, str) and is_text(text))


def change_list(
    block: str,
    key: str,
    *,
    remove: Iterable[str] = (),
    add: Sequence[str] = (),
    line_end: str = "\n",
    vanish_beside: str = "",
) -> str:
    """Return a block in which a list of texts has lost some and has others at its end.

    Parameters
    ----------
    block : str
        YAML that was parsed before.
    key : str
        Of the list, in lower case; the block may have it in capitals, or not at all.
    remove, add : sequences of str
        Texts as `texts_of` returns them.
    line_end : str
        Of the block's lines.
    vanish_beside : str
        A key. An empty list vanishes with its own key where it is this one, or next to it; other
        empty lists stay, as the person who made them may want.
    """
    unwanted_keys = {tag_key(text) for text in remove}
    entries = _entries(block)
    positions = [number for number, entry in enumerate(entries) if entry.key.lower() == key]
    if len(positions) > 1:
        raise UnsafeChangeError
    if not positions:
        new_block = _with_entry(block, entries, key, add, line_end)
        _check(entries, None, new_block, key, add)
        return new_block
    position = positions[0]
    entry = entries[position]
    kept_items, removed_items = _split_items(entry, unwanted_keys)
    if not (removed_items or add):
        return block
    if _may_be_referred_to(entry, removed_items):
        raise UnsafeChangeError
    removed_starts = {item.start for item in removed_items}
    if not (kept_items or add):
        neighbours = entries[max(position - 1, 0) : position + 2]
        may_vanish = vanish_beside in [neighbour.key.lower() for neighbour in neighbours]
        new_block = _emptied(block, entry, may_vanish)
    elif entry.kind == "lines":
        new_block = _with_lines(block, entry, removed_starts, add, line_end)
    elif entry.kind == "brackets":
        new_block = _with_brackets(block, entry, removed_starts, add)
    else:
        kept_texts = [item.text or "" for item in kept_items]
        new_block = _with_value(block, entry, _flow_list([*kept_texts, *add]))
    _check(entries, entry, new_block, key, [*kept_items, *add])
    return new_block


# ---------------------------------------------------------------------- reading


def _entries(block: str) -> list[_Entry]:
    """Return the entries of a block, in their order; none where it is no mapping."""
    yaml = load_yaml()
    node_events = []
    for event in yaml.parse(block, Loader=yaml.BaseLoader):
        if isinstance(event, (yaml.NodeEvent, yaml.CollectionEndEvent)):
            node_events.append(event)
    if not node_events or not isinstance(node_events[0], yaml.MappingStartEvent):
        return []
    nodes = list(_nodes(node_events[1:-1]))
    entries: list[_Entry] = []
    for key_events, events in zip(nodes[::2], nodes[1::2], strict=True):
        entries.append(_entry(key_events, events))
    return entries


def _nodes(events: Iterable[Any]) -> Iterator[list[Any]]:
    """Yield the events of each node: of a text, or of a whole list or mapping."""
    yaml = load_yaml()
    node: list[Any] = []
    depth = 0
    for event in events:
        node.append(event)
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        if depth == 0:
            yield node
            node = []


def _entry(key_events: Sequence[Any], events: Sequence[Any]) -> _Entry:
    """Return the entry of the events of a key and of its value."""
    yaml = load_yaml()
    key_event = key_events[0]
    first = events[0]
    last = events[-1]
    kind = "other"
    items: list[_Item] = []
    text = ""
    if isinstance(first, yaml.SequenceStartEvent):
        kind = "brackets" if first.flow_style else "lines"
        items = [_item(node) for node in _nodes(events[1:-1])]
    elif isinstance(first, yaml.ScalarEvent) and first.style not in ("|", ">"):
        kind = "text"
        text = first.value
    return _Entry(
        str(getattr(key_event, "value", "")),
        key_event.start_mark.index,
        key_events[-1].end_mark.index,
        first.start_mark.index,
        last.end_mark.index,
        kind,
        items,
        text,
        _content(key_events),
        _content(events),
    )


def _item(events: Sequence[Any]) -> _Item:
    """Return the item of a list of its events."""
    yaml = load_yaml()
    first = events[0]
    text = first.value if isinstance(first, yaml.ScalarEvent) else None
    end = events[-1].end_mark.index
    return _Item(text, first.start_mark.index, end, _content(events))


def _content(events: Iterable[Any]) -> Content:
    """Return what events hold."""
    contents: list[_EventContent] = []
    for event in events:
        anchor = getattr(event, "anchor", None)
        tag = getattr(event, "tag", None)
        value = getattr(event, "value", None)
        contents.append(_EventContent(type(event).__name__, anchor, tag, value))
    return tuple(contents)


def _bare(text: str) -> str:
    """Return a text without white space around it and signs # before it."""
    return text.strip().lstrip("#").strip()


def _split_items(entry: _Entry, unwanted_keys: set[str]) -> tuple[list[_Item], list[_Item]]:
    """Return the items of an entry's value that stay, and those whose texts are unwanted."""
    items = entry.items
    if entry.kind == "text":
        items = [_Item(text, entry.start, entry.end, ()) for text in texts_of(entry.text)]
    kept_items: list[_Item] = []
    removed_items: list[_Item] = []
    for item in items:
        is_unwanted = item.text is not None and tag_key(_bare(item.text)) in unwanted_keys
        (removed_items if is_unwanted else kept_items).append(item)
    return kept_items, removed_items


def _may_be_referred_to(entry: _Entry, removed_items: Sequence[_Item]) -> bool:
    """Return whether a value, or an item that goes, has an anchor, or is elsewhere itself."""
    if entry.kind == "other":
        return True
    nodes = [entry.value_content, *(item.content for item in removed_items)]
    return any(node and node[0].anchor is not None for node in nodes)


def _check(
    entries: Sequence[_Entry],
    changed_entry: _Entry | None,
    new_block: str,
    key: str,
    expected_items: Sequence[_Item | str],
) -> None:
    """Raise unless a new block holds the expected items, and otherwise what the old one held.

    `entries` are the old ones, and `changed_entry` that of the list; None where it was missing.
    """
    yaml = load_yaml()
    try:
        new_entries = _entries(new_block)
    except yaml.YAMLError as error:
        raise UnsafeChangeError from error
    old_contents: list[Content] = []
    for entry in entries:
        if entry is not changed_entry:
            old_contents += [entry.key_content, entry.value_content]
    new_contents: list[Content] = []
    for entry in new_entries:
        if entry.key.lower() != key:
            new_contents += [entry.key_content, entry.value_content]
    if new_contents != old_contents:
        raise UnsafeChangeError
    new_items: list[_Item] = []
    for entry in new_entries:
        if entry.key.lower() == key:
            new_items += entry.items
            if entry.kind not in ("lines", "brackets"):
                raise UnsafeChangeError
    if len(new_items) != len(expected_items):
        raise UnsafeChangeError
    for new_item, expected in zip(new_items, expected_items, strict=True):
        text = expected if isinstance(expected, str) else expected.text
        is_same = new_item.text == text
        if isinstance(expected, _Item) and expected.content:
            is_same = new_item.content == expected.content
        if not is_same:
            raise UnsafeChangeError


# ---------------------------------------------------------------------- writing


def _with_entry(
    block: str, entries: Sequence[_Entry], key: str, texts: Sequence[str], line_end: str
) -> str:
    """Return a block with a new entry at its end."""
    if not texts:
        return block
    if block and not block.endswith("\n"):
        block += line_end
    indent = ""
    if entries:
        key_start = entries[0].key_start
        before_key = block[_line_start(block, key_start) : key_start]
        indent = before_key[: len(before_key) - len(before_key.lstrip(" "))]
    return f"{block}{indent}{key}: {_flow_list(texts)}{line_end}"


def _with_value(block: str, entry: _Entry, value: str) -> str:
    """Return a block in which an entry has another value in its line."""
    space = "" if block[entry.start - 1 : entry.start].isspace() else " "
    return block[: entry.start] + space + value + block[entry.end :]


def _with_brackets(
    block: str, entry: _Entry, removed_starts: set[int], new_texts: Sequence[str]
) -> str:
    """Return a block whose list in brackets lost some of its items, and has new ones behind."""
    items = entry.items
    start = items[0].start if items else entry.start + 1
    stop = items[-1].end if items else start
    listed = ""
    position = start  # up to which items are in `listed`, or left out
    for item in items:
        before = block[position : item.start]  # a comma, and perhaps a comment
        is_kept = item.start not in removed_starts
        if is_kept and listed:
            listed += before
        elif "#" in before:
            raise UnsafeChangeError  # a comment would go with the comma
        if is_kept:
            listed += block[item.start : item.end]
        position = item.end
    for text in new_texts:
        listed += f", {_scalar(text)}" if listed else _scalar(text)
    return block[:start] + listed + block[stop:]


def _with_lines(
    block: str,
    entry: _Entry,
    removed_starts: set[int],
    new_texts: Sequence[str],
    line_end: str,
) -> str:
    """Return a block whose list of lines lost some of its items, and has new ones behind."""
    kept_text, position = _without_lines(block, entry, removed_starts)
    if new_texts and not kept_text.endswith("\n"):
        kept_text += line_end
    item_start = _item_start(block, entry) if new_texts else ""
    for text in new_texts:
        kept_text += f"{item_start}{_scalar(text)}{line_end}"
    return kept_text + block[position:]


def _item_start(block: str, entry: _Entry) -> str:
    """Return what stands before an item in its line: blanks, a dash, and blanks."""
    for item in reversed(entry.items):
        start = block[_line_start(block, item.start) : item.start]
        if _ITEM_START.fullmatch(start):
            return start
    raise UnsafeChangeError


def _without_lines(block: str, entry: _Entry, removed_starts: set[int]) -> tuple[str, int]:
    """Return a block up to the end of a list of lines, without some items, and where it ends."""
    pieces: list[str] = []
    position = 0
    for item in entry.items:
        item_end = _line_end(block, item.end)
        is_kept = item.start not in removed_starts
        stop = item_end if is_kept else _line_start(block, item.start)
        pieces.append(block[position:stop])
        position = item_end
    return "".join(pieces), position


def _emptied(block: str, entry: _Entry, may_vanish: bool) -> str:
    """Return a block in which a list is empty, or gone with its key."""
    key_line_start = _line_start(block, entry.key_start)
    is_of_lines = entry.kind == "lines"
    if is_of_lines:
        all_starts = {item.start for item in entry.items}
        kept_text, position = _without_lines(block, entry, all_starts)
        block = kept_text + block[position:]
    # Where the value ends in the line of the key; for a list of lines, behind the colon.
    value_end = block.index(":", entry.key_end) + 1 if is_of_lines else entry.end
    line_end = _line_end(block, value_end)
    is_alone = not (block[key_line_start : entry.key_start] + block[value_end:line_end]).strip()
    if may_vanish and is_alone:
        return block[:key_line_start] + block[line_end:]
    if is_of_lines:
        return block[:value_end] + " []" + block[value_end:]
    return _with_value(block, entry, "[]")


def _line_start(block: str, position: int) -> int:
    """Return where the line of a position begins."""
    return block.rfind("\n", 0, position) + 1


def _line_end(block: str, position: int) -> int:
    """Return where the line that ends at or behind a position ends, behind its line end."""
    if block[position - 1 : position] == "\n":
        return position
    line_end = block.find("\n", position)
    return len(block) if line_end < 0 else line_end + 1


def _flow_list(texts: Sequence[str]) -> str:
    """Return texts as a list in brackets."""
    scalars = map(_scalar, texts)
    return f"[{', '.join(scalars)}]"


def _scalar(text: str) -> str:
    """Return a text as an item of a list, in quotes where it needs them."""
    yaml = load_yaml()
    dumped = yaml.safe_dump([text], default_flow_style=True, allow_unicode=True, width=10**9)
    scalar: str = dumped.strip()[1:-1]
    return scalar
