"""The embedded clips: three seconds of music each, with tags as people give them.

In: the files of the package folder `clips_data` (its README says how they were made and under
which licence). Out: a `ClipCorpus`, and the dataset "clips".
"""

from __future__ import annotations

import io
import os
import zipfile
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from polyseme.base.validation import check_number
from polyseme.documents.corpus import LabelCorpus
from polyseme_experiments.datasets.base import DatasetContent, DatasetSpec
from polyseme_experiments.datasets.embedded import (
    EmbeddedFiles,
    frequent,
    package_folder,
    write_media,
)

RATE = 22_050
SECONDS = 3.0


@dataclass(frozen=True, eq=False)
class ClipCorpus:
    """Clips of music with their labels, what is known of them, and their sound; n of each.

    What labels rest on are facts: "style", "voices", "programs" (General MIDI), "bpm", "key",
    "pitches" (MIDI numbers under which 20, 50 and 80 % of the sounding time lie, drums aside),
    "touch", "dynamics", "level" (root mean square in dB of full scale).
    """

    ids: list[str]  # file names, "0001.ogg" and so on
    # Labels that were given to a clip, sorted: all true, but like people's tags not all that is.
    documents: list[list[str]]
    complete: list[list[str]]  # all labels that are true of a clip
    groups: list[str]  # the piece that a clip is a variation of: keep it on one side of a split
    facts: list[dict[str, Any]]
    sounds: list[bytes] = field(repr=False)  # Ogg Vorbis: one channel, 22,050 Hz, three seconds

    def write(
        self, folder: str | os.PathLike[str], names: Collection[str] | None = None
    ) -> list[Path]:
        """Write the sound files of some `ids` (by default all); see `write_media`."""
        wanted = set(self.ids if names is None else names)
        media = {}
        tags = []
        for place, name in enumerate(self.ids):
            if name in wanted:
                media[name] = self.sounds[place]
                tags.append((self.documents[place], self.groups[place]))
        licence_file = _data_folder() / "licences" / "fluid-r3-MIT.txt"
        return write_media(folder, media, tags, licence_file.read_bytes())


def load_clips(*, min_count: int = 10) -> ClipCorpus:
    """Load the embedded clips after checking their files against the stored checksums.

    Labels that were given to fewer than `min_count` clips are left out, of `complete` as well. No
    label has fewer than 20.

    Examples
    --------
    >>> clips = load_clips()
    >>> len(clips.ids) == len(clips.documents) == len(clips.sounds)
    True
    >>> clips.sounds[0][:4]
    b'OggS'
    """
    check_number("min_count", min_count, owner="load_clips", low=1, whole=True)
    files = EmbeddedFiles("clips'", _data_folder())
    rows = files.read_rows("documents.jsonl.gz")
    ids = [row.pop("id") for row in rows]
    documents = frequent([row.pop("labels") for row in rows], min_count)
    frequent_labels = {label for labels in documents for label in labels}
    # All clips share the head of their files, which holds the code books.
    with zipfile.ZipFile(io.BytesIO(files.read("clips.zip"))) as archive:
        head = archive.read("head")
        sounds = [head + archive.read(Path(name).stem) for name in ids]
    return ClipCorpus(
        ids=ids,
        documents=documents,
        complete=[[label for label in row.pop("true") if label in frequent_labels] for row in rows],
        groups=[row.pop("group") for row in rows],
        facts=rows,
        sounds=sounds,
    )


def _data_folder() -> Path:
    """Find the folder of the data files."""
    return package_folder("clips_data")


def _dataset(n_clips: int | None = None) -> DatasetContent:
    """Return every clip as a document."""
    clips = load_clips()
    groups = tuple(clips.groups)
    corpus = LabelCorpus.from_documents(clips.documents, ids=clips.ids)
    corpus = replace(corpus, groups=groups)
    if n_clips is not None:
        corpus = corpus.select(range(n_clips))
    return DatasetContent(corpus)


def _write(folder: Path, ids: Sequence[str]) -> None:
    """Write the clips of some documents."""
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
    sample=lambda: _dataset(120),
    embedded=_dataset,
    write_media=_write,
    has_groups=True,
)
