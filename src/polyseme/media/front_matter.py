"""Read and write tags in Markdown: in the front matter, and as #words in the text.

In: the path of a note. Out: its tags, or the same note with other tags in its front matter and
every other byte unchanged. Front matter is a block of YAML between lines of three dashes, at the
very beginning. Tags are its `tags`, `tag` or `keywords`, and the #words of the text, as Obsidian
and others have them. New ones are added to `tags`, and noted in `polyseme-suggested`; see
`polyseme.media.suggestions` for what that means.

Terms: a *value* is what stands behind a key, a YAML node with the places where it begins and ends
in the *block*, the text between the dashes. Every change is checked before it is written: the block
is read again, and must hold what was meant and otherwise what it held before.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from polyseme.base.text import error_text
from polyseme.base.validation import InputError
from polyseme.media.base import needs
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
)
from polyseme.storage.atomic_files import replacing

SUFFIXES = (".md", ".markdown")
MOST_BYTES = 16 * 2**20  # of a note
_KEY = "tags"  # what new tags are added to
_READ_KEYS = (_KEY, "tag", "keywords")
_SUGGESTED = "polyseme-suggested"
_FENCE = re.compile(r"---[ \t]*\r?\n")
_CLOSING_FENCE = re.compile(r"^(---|\.\.\.)[ \t]*\r?$", re.MULTILINE)
# Code, and addresses, in which # is no sign of a tag.
_CODE = re.compile(
    r"^(```|~~~).*?^\1|`[^`\n]*`|[A-Za-z][\w+.-]{0,20}://\S+", re.MULTILINE | re.DOTALL
)
# Behind white space or a bracket; of letters, digits, _, - and /, and not of digits alone.
INLINE_TAG = re.compile(r"(?<![^\s(\[])#(?=[\w/-]*[^\W\d_])([\w/-]+)")


class Note(NamedTuple):
    """A note, cut into what stands before the block of its front matter, the block, and the rest.

    `before` + `block` + `after` is the whole text; without front matter it is all in `after`.
    """

    before: str  # a byte order mark, and the opening dashes with their line end
    block: str
    after: str  # from the closing dashes on

    @property
    def body(self) -> str:
        """The text below the front matter."""
        if not self.before:
            return self.after
        _, _, body = self.after.partition("\n")
        return body


def is_markdown(path: Path) -> bool:
    """Return whether a file is Markdown, by its name."""
    return Path(path).suffix.lower() in SUFFIXES


def split_note(text: str) -> Note:
    """Cut a text at the front matter; without any, all is `after`."""
    start = 1 if text.startswith("\ufeff") else 0
    opening = _FENCE.match(text, start)
    if opening is None:
        return Note("", "", text)
    closing = _CLOSING_FENCE.search(text, opening.end())
    if closing is None:
        return Note("", "", text)
    return Note(
        text[: opening.end()], text[opening.end() : closing.start()], text[closing.start() :]
    )


def parse_block(block: str) -> dict[str, Any]:
    """Return the values of front matter by their keys; empty where it is no mapping."""
    yaml = _yaml()
    try:
        values = yaml.load(block, Loader=yaml.BaseLoader)  # which leaves all scalars texts
    except (yaml.YAMLError, RecursionError) as error:
        raise InputError(f"its front matter is no YAML ({error_text(error)})") from error
    return values if isinstance(values, dict) else {}


def front_tags(values: dict[str, Any]) -> list[str]:
    """Return the tags that front matter has, but for the sign # and for suggested ones."""
    tags: list[str] = []
    for key in _READ_KEYS:
        tags += _texts(values.get(key))
    return distinct(tags)


def inline_tags(body: str) -> list[str]:
    """Return the #words of a text, without the sign."""
    prose = _CODE.sub(" ", body)
    return distinct(INLINE_TAG.findall(prose))


def _texts(value: Any) -> list[str]:
    """Return the tags of a value: a list, or one text with commas or spaces between them."""
    if isinstance(value, str):
        value = value.split(",") if "," in value else value.split()
    if not isinstance(value, list):
        return []
    tags = [text.strip().lstrip("#") for text in value if isinstance(text, str)]
    return distinct(tags)


def read_tags(path: Path) -> Tags:
    """Read the tags of a note, in its front matter and in its text; none where it is missing."""
    path = Path(path)
    if not os.path.lexists(path):
        return Tags([])
    return tags_of(split_note(_read(path)), str(path))


def tags_of(note: Note, name: str = "the note") -> Tags:
    """Return the tags of a note; suggestions that are gone from it count as refused.

    `name` says in errors what is wrong.
    """
    values = _values(note, name)
    tags = distinct([*front_tags(values), *inline_tags(note.body)])
    if len(tags) > MAX_TAGS:
        raise InputError(f"{name} has more than {MAX_TAGS:,} tags.")
    suggested = _texts(values.get(_SUGGESTED))
    return Tags(tags, among(suggested, tags), lacking(tags, suggested))


def merge_tags(
    path: Path,
    tags: Sequence[str],
    *,
    present: Sequence[str] = (),
    hierarchies: Sequence[str] = (),
    dry_run: bool = False,
) -> list[str]:
    """Add tags to a note's front matter, as suggestions; return those that were added.

    Tags that the note has (case, white space and Unicode composition aside), or that are `present`
    elsewhere, are not added, nor are those that were suggested before and refused. `hierarchies`
    are not written. Nothing else in the note changes; it is replaced as a whole or not at all, and
    in a `dry_run` it is not touched.
    """
    path = Path(path)
    wanted = lacking(present, check_tags(tags))
    if not wanted:
        return []
    with changing(path, dry_run):
        note = _writable_note(path)
        own_tags = tags_of(note, str(path))
        added = lacking([*own_tags.tags, *own_tags.refused], wanted)
        if added and not dry_run:
            values = _values(note, str(path))
            all_tags = [*_texts(values.get(_KEY)), *added]
            all_suggested = [*_texts(values.get(_SUGGESTED)), *added]
            _write(path, note, {_KEY: all_tags, _SUGGESTED: all_suggested})
    return added


def answer_suggestions(
    path: Path, *, accept: Iterable[str] = (), refuse: Iterable[str] = ()
) -> tuple[list[str], list[str]]:
    """Accept or refuse pending suggestions in a note; return those that were answered.

    See `polyseme.media.xmp.answer_suggestions`.
    """
    to_accept, to_refuse = check_answers(accept, refuse)
    path = Path(path)
    with changing(path):
        note = _writable_note(path)
        pending = tags_of(note, str(path)).pending
        accepted = among(to_accept, pending)
        refused = among(to_refuse, pending)
        values = _values(note, str(path))
        new_lists = {}
        if refused:
            new_lists[_KEY] = lacking(refused, _texts(values.get(_KEY)))
        if accepted:
            new_lists[_SUGGESTED] = lacking(accepted, _texts(values.get(_SUGGESTED)))
        if new_lists:
            _write(path, note, new_lists)
    return accepted, refused


def undo_suggestions(path: Path, *, dry_run: bool = False) -> list[str]:
    """Remove the pending suggestions from a note, and nothing else; return them."""
    path = Path(path)
    with changing(path, dry_run):
        note = _writable_note(path)
        pending = list(tags_of(note, str(path)).pending)
        if pending and not dry_run:
            values = _values(note, str(path))
            remaining_tags = lacking(pending, _texts(values.get(_KEY)))
            remaining_notes = lacking(pending, _texts(values.get(_SUGGESTED)))
            _write(path, note, {_KEY: remaining_tags, _SUGGESTED: remaining_notes})
    return pending


# ---------------------------------------------------------------------- files


def _read(path: Path) -> str:
    """Return the text of a note; raise one sentence where it cannot be read or is no text."""
    try:
        if not path.is_file():
            raise InputError(f"{path} is no regular file; name a note.")
        if path.stat().st_size > MOST_BYTES:
            raise InputError(f"{path} is larger than {MOST_BYTES >> 20} MiB, so it is no note.")
        return path.read_bytes().decode("utf-8")
    except OSError as error:
        raise InputError(
            f"{path} cannot be read ({error.strerror}); check the path and its permissions."
        ) from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is no text in UTF-8; save it as UTF-8.") from error


def _writable_note(path: Path) -> Note:
    """Return a note that may be replaced."""
    if path.is_symlink():
        raise InputError(f"{path} is a symbolic link; name the file it points to.")
    text = _read(path)
    if not os.access(path, os.W_OK):
        raise InputError(f"{path} is write-protected; make it writable first.")
    return split_note(text)


def _values(note: Note, name: str) -> dict[str, Any]:
    """Return the values of a note's front matter; raise one sentence where it is no YAML."""
    try:
        return parse_block(note.block)
    except InputError as error:
        raise InputError(f"{name} cannot be used: {error}.") from error


def _write(path: Path, note: Note, new_lists: dict[str, list[str]]) -> None:
    """Replace lists of the front matter, by their keys, and nothing else; check it before."""
    line_end = "\r\n" if "\r\n" in note.before + note.after[:1000] else "\n"
    new_note = note
    if not note.before:
        mark = "\ufeff" if note.after.startswith("\ufeff") else ""
        body = note.after[len(mark) :]
        new_note = Note(f"{mark}---{line_end}", "", f"---{line_end}{line_end}{body}")
    block = new_note.block
    expected = _values(note, str(path))
    for key, tags in new_lists.items():
        block = _with_list(block, key, tags, line_end)
        expected.pop(key, None)
        if tags:
            expected[key] = tags
    if not block.strip() and not note.block.strip():
        return
    try:
        written = parse_block(block)
    except InputError:
        written = {}
    for key in new_lists:
        if key in written:
            written[key] = _texts(written[key])
    if written != expected:
        raise InputError(
            f"The front matter of {path} cannot be changed without harm; add these tags by hand: "
            f"{', '.join(new_lists.get(_KEY, []))}."
        )
    text = f"{new_note.before}{block}{new_note.after}"
    if not block.strip():  # nothing is left of front matter that we added
        mark = "\ufeff" if text.startswith("\ufeff") else ""
        text = mark + note.body.removeprefix(line_end)
    with replacing(path) as stream:
        stream.write(text.encode())


# ---------------------------------------------------------------------- changes to the block


def _with_list(block: str, key: str, tags: Sequence[str], line_end: str) -> str:
    """Return a block in which a key has other tags; without tags the key goes.

    Tags that stay are left as they are written, with comments between them.
    """
    yaml = _yaml()
    root = yaml.compose(block, Loader=yaml.SafeLoader)
    for key_node, value in root.value if isinstance(root, yaml.MappingNode) else ():
        if key_node.value != key:
            continue
        is_block_list = isinstance(value, yaml.SequenceNode) and not value.flow_style
        if not tags:
            # The mark of a list of lines is at what follows it, behind comments.
            last_node = value.value[-1] if is_block_list else value
            end = _line_end_behind(block, last_node.end_mark.index)
            return block[: key_node.start_mark.index] + block[end:]
        if is_block_list:
            return _with_items(block, value, tags, line_end)
        start = value.start_mark.index
        space = "" if block[start - 1 : start].isspace() else " "
        end = value.end_mark.index
        return block[:start] + space + _flow_list(tags) + block[end:]
    if not tags:
        return block
    if block and not block.endswith("\n"):
        block += line_end
    return f"{block}{key}: {_flow_list(tags)}{line_end}"


def _with_items(block: str, value: Any, tags: Sequence[str], line_end: str) -> str:
    """Return a block with a list of lines, one a tag, that holds the tags; others' lines go."""
    wanted_keys = {tag_key(tag) for tag in tags}
    kept_text = ""
    position = 0  # up to which the block is in `kept_text`, or left out
    kept_tags: list[str] = []
    for item in value.value:
        line_start = block.rfind("\n", 0, item.start_mark.index) + 1
        item_end = _line_end_behind(block, item.end_mark.index)
        tag = str(item.value).strip().lstrip("#")
        if tag_key(tag) in wanted_keys:
            kept_tags.append(tag)
            kept_text += block[position:item_end]
        else:
            kept_text += block[position:line_start]
        position = item_end
    if not kept_text.endswith("\n"):
        kept_text += line_end
    dash = " " * value.start_mark.column + "- "
    for tag in lacking(kept_tags, tags):
        kept_text += f"{dash}{_scalar(tag)}{line_end}"
    return kept_text + block[position:]


def _line_end_behind(block: str, position: int) -> int:
    """Return where the line of a position ends, behind its line end."""
    line_end = block.find("\n", position)
    return len(block) if line_end < 0 else line_end + 1


def _flow_list(tags: Sequence[str]) -> str:
    """Return tags as a YAML list in one line."""
    scalars = map(_scalar, tags)
    return f"[{', '.join(scalars)}]"


def _scalar(tag: str) -> str:
    """Return a tag as an item of a YAML list, in quotes where it needs them."""
    yaml = _yaml()
    dumped = yaml.safe_dump([tag], default_flow_style=True, allow_unicode=True, width=10**6)
    scalar: str = dumped.strip()[1:-1]
    return scalar


def _yaml() -> Any:
    """Import the parser of YAML."""
    try:
        import yaml
    except ImportError:
        raise needs("text", "Reading the front matter of Markdown") from None
    return yaml
