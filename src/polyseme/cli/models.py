"""What commands share about saved models: load one, change one, and count and print its labels."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

import polyseme
from polyseme.cli.app import refuse

if TYPE_CHECKING:
    from polyseme.tagger import Tagger, ZeroShotTagger

# As they are printed. Seen labels are on training items and in label sets, unseen ones in label
# sets only; oov ones are in no label set: on items, in later documents, or mere names.
_KINDS = ("seen", "unseen", "oov")


def load_default_tagger(model: Path, command: str) -> ZeroShotTagger:
    """Load a model that must be a default tagger; `command` is named where it is not."""
    tagger = polyseme.load(model)
    if not isinstance(tagger, polyseme.ZeroShotTagger):
        refuse(f"`{command}` needs the default tagger; this model is one of the published method.")
    return tagger


def change_model(
    model: Path, out: Path | None, command: str, change: Callable[[ZeroShotTagger], object]
) -> None:
    """Change a model and write it, to its own folder or to another one; print that folder.

    Parameters
    ----------
    model : Path
    out : Path or None
        The folder to write to; None for the model's own.
    command : str
        For messages.
    change : callable
        Changes the tagger in place.
    """
    from polyseme.storage.model_file import check_destination

    destination = out or model
    tagger = load_default_tagger(model, command)
    check_destination(destination)
    change(tagger)
    tagger.save(destination)
    typer.echo(str(destination))


def count_kinds(tagger: Tagger) -> dict[str, int]:
    """Count the labels of each kind; kinds that the model has none of are left out."""
    counts: dict[str, int] = {}
    for kind in _KINDS:
        count = int((tagger.kinds_ == kind).sum())
        if count:
            counts[kind] = count
    return counts


def readable_record(record: dict[str, Any]) -> dict[str, Any]:
    """Return a record of ranked tags for people, in two columns: the item, and tags with scores.

    Parameters
    ----------
    record : dict
        Of `rank` or `tag`: the item's `file`, `id` or `row`, `labels` (or `added`, the tags that
        were written to a sidecar), their `scores` and perhaps their `kinds`, all best first.
    """
    labels_field = "added" if "added" in record else "labels"
    labels = record[labels_field]
    kinds = record.get("kinds", ["seen"] * len(labels))
    texts = []
    for label, kind, score in zip(labels, kinds, record["scores"], strict=True):
        text = f"{label} {score:.3g}"
        if kind != "seen":
            text += f" ({kind})"
        texts.append(text)
    item_field = next(name for name in ("file", "id", "row") if name in record)
    tags_column = "added" if "added" in record else "tags"
    return {item_field: record[item_field], tags_column: ", ".join(texts)}
