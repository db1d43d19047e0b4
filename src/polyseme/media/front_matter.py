"""Read and write tags in Markdown: in the front matter, and as #words in the text.

In: the path of a note. Out: its tags, or the same note with other tags in its front matter and
every other byte unchanged. Front matter is a block of YAML between lines of three dashes, at the
very beginning. Tags are its `tags`, `tag` or `keywords`, and the #words of the text, as Obsidian
and others have them. New ones are added to `tags`, and noted in `polyseme-suggested`; see
`polyseme.media.suggestions` for what that means. What a person wrote elsewhere, such as a #word, is
no suggestion, whatever is noted.

Terms: a *block* is the text between the dashes; `yaml_lists` changes the lists in it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from polyseme.base.text import error_text, in_words, is_text
from polyseme.base.validation import InputError
from polyseme.media.suggestions import (
    MAX_TAGS,
    Tags,
    among,
    changing,
    check_answers,
    check_tags,
    distinct,
    lacking,
)
from polyseme.media.yaml_lists import UnsafeChangeError, change_list, load_yaml, texts_of
from polyseme.storage.atomic_files import replacing

SUFFIXES = (".md", ".markdown")
MOST_BYTES = 16 * 2**20  # of a note
_MOST_BLOCK_LETTERS = 2**17  # of front matter, which takes a second to parse
_KEY = "tags"  # what new tags are added to
_READ_KEYS = (_KEY, "tag", "keywords")  # in small letters or capitals
_SUGGESTED = "polyseme-suggested"
_FENCE = re.compile(r"---[ \t]*\r?\n")
_CLOSING_FENCE = re.compile(r"^(---|\.\.\.)[ \t]*\r?$", re.MULTILINE)

# What no #word holds: white space, and punctuation but _, - and /. What joins Persian letters and
# parts of emoji is among Unicode's punctuation, and may be in one.
_NO_SIGN = (
    r"\s\x00-,.:-@\[-\^`{-\xa0¡§«¶»¿\u2000-\u200b\u200e-\u206f\u2e00-\u2e7f\u3000-\u3003"
    r"\u3008-\u3011\u3014-\u301f\uff01-\uff0c\uff0e\uff1a-\uff20\uff3b-\uff3e\uff5b-\uff65"
)
# Behind white space or a bracket, and not of digits alone.
_TAG = rf"(?<![^\s(\[])\#(?=[\d_/-]*+[^\d_/\-{_NO_SIGN}])(?P<tag>[^{_NO_SIGN}]++)"
INLINE_TAG = re.compile(_TAG)
# Code, addresses, and where links lead to, in which # is no sign of a tag; else a tag.
_CODE_OR_TAG = re.compile(
    r"""
    ^[ \t>]*+(?:(?:[-*+]|\d{1,9}[.)])[ \t]++)?+(?P<fence>`{3,}+(?=[^`\n]*+$)|~{3,}+)
        .*?(?:^[ \t>]*+(?P=fence)|\Z)
    | ```[^\n]*?``` | ``[^\n]*?`` | `[^`\n]*+`
    | ://\S++
    | \]\([^()\[\]\n]*+(?:\([^()\[\]\n]*+\)[^()\[\]\n]*+)*+\)
    | \[\[[^\[\]\n]*+\]\]
    | """
    + _TAG,
    re.MULTILINE | re.DOTALL | re.VERBOSE,
)


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


class _Change(NamedTuple):
    """What happens to a list of tags in the front matter."""

    removed: Sequence[str] = ()
    added: Sequence[str] = ()


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
    """Return the values of front matter by their keys; empty where it is no mapping.

    A few lines of aliases can stand for lists of any length: values are not to be copied, compared
    or written out, but for texts.
    """
    if len(block) > _MOST_BLOCK_LETTERS:
        raise InputError(f"its front matter has more than {_MOST_BLOCK_LETTERS >> 10} KiB")
    yaml = load_yaml()
    try:
        values = yaml.load(block, Loader=yaml.BaseLoader)  # which leaves all scalars texts
    except (yaml.YAMLError, RecursionError) as error:
        raise InputError(f"its front matter is no YAML ({error_text(error)})") from error
    return values if isinstance(values, dict) else {}


def inline_tags(body: str) -> list[str]:
    """Return the #words of a text, without the sign; of more than `MAX_TAGS` the first ones."""
    tags: dict[str, None] = {}
    if "#" not in body:  # the pattern takes a tenth of a second for a million letters
        return []
    for match in _CODE_OR_TAG.finditer(body):
        tag = match["tag"]
        if tag is not None:
            tags[tag.rstrip("/")] = None
        if len(tags) > MAX_TAGS:
            break
    return distinct(tags)


def read_tags(path: Path) -> Tags:
    """Read the tags of a note, in its front matter and in its text; none where it is missing."""
    path = Path(path)
    if not os.path.lexists(path):
        return Tags([])
    return _tags_of(split_note(_read(path)), str(path))


def tags_in_block(note: Note) -> Tags:
    """Return the tags in the front matter of a note; suggestions that are gone count as refused."""
    tags: list[str] = []
    other_tags = inline_tags(note.body)  # which are not in the list that suggestions are added to
    suggested: list[str] = []
    for key, value in parse_block(note.block).items():
        name = key.lower()
        if name == _SUGGESTED:
            suggested += texts_of(value)
        if name in _READ_KEYS:
            tags += texts_of(value)
            other_tags += texts_of(value) if name != _KEY else []
    if len(tags) > MAX_TAGS:
        raise InputError(f"its front matter has more than {MAX_TAGS:,} tags")
    tags = distinct(tags)
    noted = lacking(other_tags, suggested)
    return Tags(tags, among(noted, tags), lacking(tags, noted))


def _tags_of(note: Note, name: str) -> Tags:
    """Return the tags of a note, in its front matter and in its text.

    `name` says in errors what is wrong.
    """
    try:
        block_tags = tags_in_block(note)
    except InputError as error:
        reason = str(error).rstrip(".")
        raise InputError(f"{name} cannot be used: {reason}.") from error
    tags = distinct([*block_tags.tags, *inline_tags(note.body)])
    if len(tags) > MAX_TAGS:
        raise InputError(f"{name} has more than {MAX_TAGS:,} tags.")
    return block_tags._replace(tags=tags)


def merge_tags(
    path: Path,
    tags: Sequence[str],
    *,
    present: Sequence[str] = (),
    hierarchies: Sequence[str] = (),
    dry_run: bool = False,
) -> list[str]:
    """Add tags to a note's front matter, as suggestions; return those that were added.

    Signs # before tags are dropped. Tags that the note has (case, white space and Unicode
    composition aside), or that are `present` elsewhere, are not added, nor are those that were
    suggested before and refused. `hierarchies` are not written. Nothing else in the note changes;
    it is replaced as a whole or not at all, and in a `dry_run` it is not touched.
    """
    path = Path(path)
    bare_tags = distinct(tag.lstrip("#") for tag in check_tags(tags))
    for tag in bare_tags:
        if not is_text(tag):
            raise InputError(f"The tag {tag!r} holds half a character or none; remove it.")
    wanted = lacking(present, bare_tags)
    if not wanted:
        return []
    with changing(path, dry_run):
        note = _read_note(path)
        own_tags = _tags_of(note, str(path))
        added = lacking([*own_tags.tags, *own_tags.refused], wanted)
        if added:
            change = _Change(added=added)
            _change(path, note, {_KEY: change, _SUGGESTED: change}, dry_run)
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
        note = _read_note(path)
        pending = _tags_of(note, str(path)).pending
        accepted = among(to_accept, pending)
        refused = among(to_refuse, pending)
        if accepted or refused:
            _change(path, note, {_KEY: _Change(refused), _SUGGESTED: _Change(accepted)})
    return accepted, refused


def undo_suggestions(path: Path, *, dry_run: bool = False) -> list[str]:
    """Remove the pending suggestions from a note, and nothing else; return them."""
    path = Path(path)
    with changing(path, dry_run):
        note = _read_note(path)
        pending = list(_tags_of(note, str(path)).pending)
        if pending:
            change = _Change(pending)
            _change(path, note, {_KEY: change, _SUGGESTED: change}, dry_run)
    return pending


# ---------------------------------------------------------------------- files


def _read_note(path: Path) -> Note:
    """Return a note, cut; see `_read`."""
    return split_note(_read(path))


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


def _change(path: Path, note: Note, changes: Mapping[str, _Change], dry_run: bool = False) -> None:
    """Change lists of the front matter, by their keys, and nothing else; check it before.

    In a `dry_run` the note is only checked.
    """
    if path.is_symlink():
        raise InputError(f"{path} is a symbolic link; name the file it points to.")
    if not os.access(path, os.W_OK):
        raise InputError(f"{path} is write-protected; make it writable first.")
    try:
        new_text = _changed_text(note, changes)
    except UnsafeChangeError as error:
        tags = changes[_KEY].added
        remedy = "change it by hand"
        if tags:
            remedy = f"add these tags by hand: {in_words(', '.join(tags))}"
        raise InputError(
            f"The front matter of {path} cannot be changed without harm; {remedy}."
        ) from error
    _tags_of(split_note(new_text), str(path))  # raises for too many, and for aliases of nothing
    content = new_text.encode()
    if len(content) > MOST_BYTES:
        raise InputError(f"{path} would grow beyond {MOST_BYTES >> 20} MiB; add fewer tags.")
    if not dry_run:
        with replacing(path) as stream:
            stream.write(content)


def _changed_text(note: Note, changes: Mapping[str, _Change]) -> str:
    """Return the text of a note in which lists of the front matter have changed, by their keys."""
    line_end = "\r\n" if "\r\n" in (note.before or note.after[:1000]) else "\n"
    mark = "\ufeff" if (note.before or note.after).startswith("\ufeff") else ""
    # Front matter that is made here, with a line below it.
    new_before = f"{mark}---{line_end}"
    new_after = f"---{line_end}{line_end}"
    if not note.before:
        body = note.after.removeprefix(mark)
        note = Note(new_before, "", new_after + body)
    block = note.block
    for key, change in changes.items():
        block = change_list(
            block,
            key,
            remove=change.removed,
            add=change.added,
            line_end=line_end,
            vanish_beside=_SUGGESTED,
        )
    if not block.strip() and note.before == new_before and note.after.startswith(new_after):
        return mark + note.after.removeprefix(new_after)
    new_note = Note(note.before, block, note.after)
    new_text = "".join(new_note)
    if split_note(new_text) != new_note:
        raise UnsafeChangeError
    return new_text
