"""The commands for the vocabulary: list labels, block, rename, merge and remove them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from polyseme.base.text import counted
from polyseme.cli.app import VOCABULARY, LabelKind, command, refuse
from polyseme.cli.models import change_model, load_default_tagger
from polyseme.cli.output import Form, emit, say

if TYPE_CHECKING:
    from polyseme.tagger import ZeroShotTagger


@command(VOCABULARY)
def labels(
    model: Path,
    kind: LabelKind | None = None,
    once: bool = False,
    merges: bool = False,
    vectors: Path | None = None,
    top: int = 20,
    form: Form = Form.auto,
) -> None:
    """List a model's tags with their counts and quality, or suggest which to merge."""
    tagger = load_default_tagger(model, "labels")
    if vectors is not None and not merges:
        refuse("`--vectors` goes with --merges: names are compared by them.")
    if not merges:
        emit(_label_records(tagger, kind, once=once), form)
        return
    from polyseme.label_changes import suggest_merges

    word_vectors = None
    if vectors is not None:
        from polyseme import WordVectors

        word_vectors = WordVectors.read(vectors, labels=tagger.store_.labels)
    records = []
    for pair in suggest_merges(tagger, word_vectors, top):
        record = asdict(pair)
        for figure in ("spelling", "use", "meaning"):
            if record[figure] is not None:
                record[figure] = round(record[figure], 3)
        records.append(record)
    emit(records, form)
    n_used_once = int((tagger.store_.counts == 1).sum())
    say(f"used once: {counted(n_used_once, 'tag')} (`labels --once` lists them)")


def _label_records(
    tagger: ZeroShotTagger, kind: LabelKind | None, *, once: bool
) -> Iterator[dict[str, Any]]:
    """Yield a record for each label, or for those of one kind or those on one document."""
    store = tagger.store_
    document_counts = dict(zip(store.labels, store.counts.tolist(), strict=True))
    # As measured on held-out items: where items carried the label, and where it was made unseen.
    c_maps_by_label = {}
    if tagger.validation_ is not None:
        c_maps_by_label = tagger.validation_.labels
    blocked_labels = set(tagger.vocabulary_.blocked)
    labels = tagger.classes_.tolist()
    kinds = tagger.kinds_.tolist()
    for label, label_kind in zip(labels, kinds, strict=True):
        if kind is not None and label_kind != kind:
            continue
        if once and document_counts.get(label) != 1:
            continue
        c_map, c_map_unseen = c_maps_by_label.get(label, (None, None))
        yield {
            "label": label,
            "kind": label_kind,
            "documents": document_counts.get(label, 0),
            "c_map": c_map,
            "c_map_unseen": c_map_unseen,
            "blocked": label in blocked_labels,
        }


@command(VOCABULARY)
def block(model: Path, labels: list[str], undo: bool = False, out: Path | None = None) -> None:
    """Block tags, so that they are never suggested."""
    change_model(model, out, "block", lambda tagger: tagger.block(labels, undo=undo))


@command(VOCABULARY)
def rename(model: Path, label: str, name: str, out: Path | None = None) -> None:
    """Rename a tag."""
    change_model(model, out, "rename", lambda tagger: tagger.rename(label, name))


@command(VOCABULARY)
def merge(
    model: Path,
    labels: list[str] | None = None,
    pairs: Path | None = None,
    out: Path | None = None,
) -> None:
    """Merge tags into others."""
    names = labels or []
    if bool(names) == (pairs is not None) or len(names) % 2:
        refuse("Give a tag and the one to merge it into, or more such pairs, or a file of --pairs.")
    if pairs is not None:
        from polyseme.cli.inputs import read_label_pairs

        label_pairs = read_label_pairs(pairs)
    else:
        label_pairs = list(zip(names[::2], names[1::2], strict=True))
    change_model(model, out, "merge", lambda tagger: tagger.merge(label_pairs))
    say(f"merged {counted(len(label_pairs), 'pair')} of tags")


@command(VOCABULARY)
def remove(model: Path, labels: list[str], out: Path | None = None) -> None:
    """Remove tags for good."""
    change_model(model, out, "remove", lambda tagger: tagger.remove_labels(labels))
