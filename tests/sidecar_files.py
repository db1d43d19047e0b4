"""Sidecars as photo programs write them."""

from __future__ import annotations

from pathlib import Path

from polyseme.io.xmp import merge_tags


def write_sidecar(path: Path, tags: list[str]) -> None:
    """Write tags as a person's program does: without a note that they were suggested."""
    merge_tags(path, tags)
    text = path.read_text("utf-8")
    start, end = text.index("<polyseme:suggested"), text.index("</polyseme:suggested>")
    path.write_text(text[:start] + text[end + len("</polyseme:suggested>") :], "utf-8")
