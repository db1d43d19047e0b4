"""Tags in files of people, some of them suggested by a model: which they are, and how they compare.

In: tags in any spelling, and paths. Out: tags compared by `tag_key`, which neither case nor white
space nor Unicode composition changes, and a lock under which one program at a time writes them.

Terms: a *suggestion* is a tag that polyseme added, and noted that it did. It is *pending* while
nobody has answered; *accepted* it is a tag like a person's own; *refused* it is gone, and the note
keeps it from being suggested again.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from polyseme.base.paths import ancestors, parts_of
from polyseme.base.validation import InputError
from polyseme.storage.atomic_files import locked, temporary_of

MAX_TAGS = 1_000  # in one file
_LOCK_SECONDS = 60.0  # to wait for others who change files of the same folder


class Tags(NamedTuple):
    """The tags of a file, in order, stripped, each in the first of its spellings."""

    tags: list[str]  # all, pending ones too; of a hierarchy such as `animal|bird` the last part
    pending: Sequence[str] = ()  # suggestions without an answer
    refused: Sequence[str] = ()  # suggestions that were refused or removed
    # Such as `animal|bird`, as Lightroom and darktable have them, but for suggested ones.
    hierarchies: Sequence[str] = ()

    @property
    def suggested(self) -> list[str]:
        """A machine's guesses: who learns from tags should not take them for a person's."""
        return [*self.pending, *self.refused]


def check_tags(tags: Sequence[str]) -> list[str]:
    """Return tags to add, each once, with single spaces; raise unless they are texts."""
    if isinstance(tags, str) or not all(isinstance(tag, str) for tag in tags):
        raise InputError(f"`tags` of `merge_tags` must be a sequence of strings; got {tags!r}.")
    return distinct(" ".join(tag.split()) for tag in tags)


def check_answers(accept: Iterable[str], refuse: Iterable[str]) -> tuple[list[str], list[str]]:
    """Return tags to accept and to refuse; raise for one that is both."""
    for tags in (accept, refuse):
        if isinstance(tags, str):
            raise InputError(f"`answer_suggestions` takes sequences of tags; got {tags!r}.")
    to_accept = list(accept)
    to_refuse = list(refuse)
    contradictory = among(to_refuse, to_accept)
    if contradictory:
        raise InputError(f"'{contradictory[0]}' is both accepted and refused; decide on one.")
    return to_accept, to_refuse


@contextmanager
def changing(path: Path, dry_run: bool = False) -> Iterator[None]:
    """Lock the folder of a file while its tags change; raise one sentence for a system error."""
    try:
        with locked(path.parent, _LOCK_SECONDS):
            if not dry_run:
                temporary_of(path).unlink(missing_ok=True)  # what a kill has left
            yield
    except OSError as error:
        raise InputError(
            f"{path} cannot be written ({error.strerror}); check the path and its permissions."
        ) from error


def tag_key(tag: str) -> str:
    """Return a text that tags have in common which differ in case, space or composition only."""
    spaced = " ".join(tag.split())
    folded = unicodedata.normalize("NFD", spaced).casefold()
    return unicodedata.normalize("NFC", folded)


def distinct(tags: Iterable[str]) -> list[str]:
    """Return tags stripped, without empty and repeated ones, in their order.

    Of several spellings the first one stays.
    """
    tag_by_key: dict[str, str] = {}
    for tag in tags:
        stripped = tag.strip()
        if stripped:
            tag_by_key.setdefault(tag_key(stripped), stripped)
    return list(tag_by_key.values())


def without_parts(tags: Sequence[str]) -> list[str]:
    """Return tags without those that are parts of a path among them, or lie above one.

    Programs list the words of a path as keywords of their own beside it.
    """
    part_keys: set[str] = set()
    for tag in tags:
        higher = ancestors(tag)
        if higher:
            part_keys.update(map(tag_key, [*parts_of(tag), *higher]))
    return [tag for tag in tags if tag_key(tag) not in part_keys]


def among(allowed: Iterable[str], tags: Iterable[str]) -> list[str]:
    """Return the tags that are among the allowed ones, in the order of the tags."""
    keys = {tag_key(tag) for tag in allowed}
    return [tag for tag in tags if tag_key(tag) in keys]


def lacking(present: Iterable[str], wanted: Iterable[str]) -> list[str]:
    """Return the wanted tags that are not present, in their order."""
    keys = {tag_key(tag) for tag in present}
    return [tag for tag in wanted if tag_key(tag) not in keys]
