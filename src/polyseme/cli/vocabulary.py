"""The commands for the vocabulary: list labels, block, rename, merge and remove them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from polyseme.cli.app import VOCABULARY, LabelKind, command
from polyseme.cli.models import change_model, load_default_tagger
from polyseme.cli.output import Form, emit

if TYPE_CHECKING:
    from polyseme.tagger import ZeroShotTagger


@command(VOCABULARY)
def labels(
    model: Path,
    kind: LabelKind | None = None,
    merges: bool = False,
    top: int = 20,
    form: Form = Form.auto,
) -> None:
    """List a model's tags with their counts and quality, or suggest which to merge."""
    tagger = load_default_tagger(model, "labels")
    if not merges:
        emit(_label_records(tagger, kind), form)
        return
    from polyseme.documents.vocabulary import similar_labels

    records = []
    store = tagger.store_
    pairs = similar_labels(store.matrix, store.labels, top)
    for label, similar_label, similarity in pairs:
        records.append({"label": label, "into": similar_label, "alike": round(similarity, 3)})
    emit(records, form)


def _label_records(tagger: ZeroShotTagger, kind: LabelKind | None) -> Iterator[dict[str, Any]]:
    """Yield a record for each label, or for those of one kind."""
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
def merge(model: Path, label: str, into: str, out: Path | None = None) -> None:
    """Merge a tag into another one."""
    change_model(model, out, "merge", lambda tagger: tagger.merge(label, into))


@command(VOCABULARY)
def remove(model: Path, labels: list[str], out: Path | None = None) -> None:
    """Remove tags for good."""
    change_model(model, out, "remove", lambda tagger: tagger.remove_labels(labels))
