"""Sidecars as photo programs write them."""

from __future__ import annotations

from pathlib import Path

from polyseme.media.xmp import merge_tags


def write_sidecar(path: Path, tags: list[str]) -> None:
    """Write tags as a person's program does: without a note that they were suggested."""
    merge_tags(path, tags)
    text = path.read_text("utf-8")
    before, _, note = text.partition("<polyseme:suggested")
    _, _, after = note.partition("</polyseme:suggested>")
    path.write_text(before + after, "utf-8")
