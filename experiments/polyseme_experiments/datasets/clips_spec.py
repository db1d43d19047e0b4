"""Clips: rendered music with what can be heard in it as labels; part of polyseme."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from polyseme.corpus import LabelCorpus
from polyseme.datasets.base import DatasetContent, DatasetSpec

_SAMPLE_SIZE = 120


def _make(n_clips: int | None = None) -> DatasetContent:
    """Give every clip as a document."""
    from polyseme_experiments.datasets.clips import load_clips

    clips = load_clips()
    corpus = LabelCorpus.from_documents(clips.documents, ids=clips.ids)
    corpus = replace(corpus, groups=tuple(clips.groups))
    return DatasetContent(corpus if n_clips is None else corpus.select(range(n_clips)))


def _sample() -> DatasetContent:
    """Give some clips only."""
    return _make(_SAMPLE_SIZE)


def _write(folder: Path, ids: Sequence[str]) -> None:
    """Write the clips of some documents."""
    from polyseme_experiments.datasets.clips import load_clips

    load_clips().write(folder, ids)


SPEC = DatasetSpec(
    name="clips",
    title="rendered clips",
    domain="music",
    citation=(
        "The polyseme authors: Clips of our own making, rendered with the sound font Fluid R3 by "
        "F. Wen (2000-2008). 2026."
    ),
    licence="Apache-2.0 (clips), MIT (sound font)",
    n_documents=640,
    n_labels=53,
    sample=_sample,
    embedded=_make,
    write_media=_write,
    has_groups=True,
)
