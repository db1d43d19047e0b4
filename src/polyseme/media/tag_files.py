"""Where tags of a media file are written: into Markdown itself, for all others into a sidecar.

In: the path of a media file, or of the file that has its tags. Out: its tags, or that file with
others. A new format is a module with the functions that `_format_of` chooses.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from types import ModuleType

from polyseme.media import front_matter, xmp
from polyseme.media.suggestions import Tags


def tag_file_of(media: Path) -> Path:
    """Return the file that has, or would get, the tags of a media file."""
    return media if front_matter.is_markdown(media) else xmp.sidecar_of(media)


def tag_files_of(media: Path) -> list[Path]:
    """Return the files that have the tags of a media file, that of `tag_file_of` first."""
    own_files = [media] if front_matter.is_markdown(media) else []
    return [*own_files, *xmp.sidecars_of(media)]


def _format_of(path: Path) -> ModuleType:
    """Return the module that reads and writes tags in a file."""
    return front_matter if front_matter.is_markdown(path) else xmp


def read_tags(path: Path) -> Tags:
    """Read the tags of a file; none where it is missing."""
    if front_matter.is_markdown(path):
        return front_matter.read_tags(path)
    return xmp.read_sidecar(path)


def merge_tags(
    path: Path,
    tags: Sequence[str],
    *,
    present: Sequence[str] = (),
    hierarchies: Sequence[str] = (),
    dry_run: bool = False,
) -> list[str]:
    """Add tags as suggestions; return those that were added; see `xmp.merge_tags`."""
    added: list[str] = _format_of(path).merge_tags(
        path, tags, present=present, hierarchies=hierarchies, dry_run=dry_run
    )
    return added


def answer_suggestions(
    path: Path, *, accept: Iterable[str] = (), refuse: Iterable[str] = ()
) -> tuple[list[str], list[str]]:
    """Accept or refuse pending suggestions; return those that were, each as the file spells it."""
    answered: tuple[list[str], list[str]] = _format_of(path).answer_suggestions(
        path, accept=accept, refuse=refuse
    )
    return answered


def undo_suggestions(path: Path, *, dry_run: bool = False) -> list[str]:
    """Remove the pending suggestions, and nothing else; return them."""
    removed: list[str] = _format_of(path).undo_suggestions(path, dry_run=dry_run)
    return removed
