"""The embedded clips: three seconds of music each, with tags as people give them.

In: the files of the package folder `clips_data` (its README says how they were made and under
which licence). Out: a `ClipCorpus`, and the dataset "clips".
"""

from __future__ import annotations

import io
import json
import os
import zipfile
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from polyseme._validation import InputError, check_number
from polyseme.corpus import LabelCorpus
from polyseme.datasets.base import DatasetContent, DatasetSpec
from polyseme_experiments.datasets.embedded import EmbeddedFiles, frequent, package_folder

RATE = 22_050
SECONDS = 3.0
TAGS_FILE = "tags.jsonl"
LICENCE_FILE = "LICENCE.txt"


@dataclass(frozen=True, eq=False)
class ClipCorpus:
    """Clips of music with their labels, what is known of them, and their sound.

    Attributes
    ----------
    ids : list of str, length n
        File names, "0001.ogg" and so on.
    documents : list of list of str, length n
        The labels that were given to every clip, in alphabetical order. All are true, but like
        people's tags they do not say everything that is.
    complete : list of list of str, length n
        All labels that are true of every clip.
    groups : list of str, length n
        The piece that a clip is a variation of. Keep a group on one side of a split.
    facts : list of dict, length n
        What the labels rest on: "style", "voices", "programs" (General MIDI), "bpm", "key",
        "pitches" (MIDI numbers under which 20, 50 and 80 % of the sounding time lie, drums aside),
        "touch", "dynamics", "level" (root mean square in dB of full scale).
    sounds : list of bytes, length n
        Ogg Vorbis files: one channel, 22,050 Hz, three seconds.
    """

    ids: list[str]
    documents: list[list[str]]
    complete: list[list[str]]
    groups: list[str]
    facts: list[dict[str, Any]]
    sounds: list[bytes] = field(repr=False)

    def write(
        self, folder: str | os.PathLike[str], names: Collection[str] | None = None
    ) -> list[Path]:
        """Unpack sound files into a folder, with labels in `tags.jsonl` and the sounds' licence.

        A file that is there already and has the same content stays as it is; if one has another
        content, nothing is written.

        Parameters
        ----------
        folder : path
            Made if it is not there.
        names : collection of str, optional
            Which of `ids`; by default all.

        Returns
        -------
        list of pathlib.Path
            The sound files in the order of `ids`.
        """
        target = Path(folder)
        wanted = set(self.ids if names is None else names)
        chosen = [place for place, name in enumerate(self.ids) if name in wanted]
        contents = {self.ids[place]: self.sounds[place] for place in chosen}
        tags = (
            {"file": self.ids[one], "labels": self.documents[one], "group": self.groups[one]}
            for one in chosen
        )
        contents[TAGS_FILE] = "".join(json.dumps(row) + "\n" for row in tags).encode()
        contents[LICENCE_FILE] = (_data_folder() / "licences" / "fluid-r3-MIT.txt").read_bytes()
        try:
            target.mkdir(parents=True, exist_ok=True)
            missing = [name for name in contents if _is_missing(target / name, contents[name])]
            for name in missing:
                (target / name).write_bytes(contents[name])
        except OSError as error:
            reason = error.strerror or "it cannot be written"
            raise InputError(f"The clips cannot be written to '{target}': {reason}.") from error
        return [target / self.ids[place] for place in chosen]


def load_clips(*, min_count: int = 10) -> ClipCorpus:
    """Load the embedded clips after checking their files against the stored checksums.

    Parameters
    ----------
    min_count : int
        Labels that were given to fewer clips are left out, of `complete` as well. No label has
        fewer than 20.

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
    kept = {label for labels in documents for label in labels}
    # All clips share the head of their files, which holds the code books.
    with zipfile.ZipFile(io.BytesIO(files.read("clips.zip"))) as archive:
        head = archive.read("head")
        sounds = [head + archive.read(Path(name).stem) for name in ids]
    return ClipCorpus(
        ids=ids,
        documents=documents,
        complete=[[label for label in row.pop("true") if label in kept] for row in rows],
        groups=[row.pop("group") for row in rows],
        facts=rows,
        sounds=sounds,
    )


def _data_folder() -> Path:
    """Find the folder of the data files."""
    return package_folder("clips_data")


def _is_missing(path: Path, content: bytes) -> bool:
    """Say whether a file is still to be written; refuse if another one has its place."""
    if not path.exists():
        return True
    if not path.is_file() or path.read_bytes() != content:
        raise InputError(
            f"'{path}' exists and is not the file that would be written there; move it away or "
            "choose another folder."
        )
    return False


# ---------------------------------------------------------------------- the dataset


def _dataset(n_clips: int | None = None) -> DatasetContent:
    """Give every clip as a document."""
    clips = load_clips()
    corpus = LabelCorpus.from_documents(clips.documents, ids=clips.ids)
    corpus = replace(corpus, groups=tuple(clips.groups))
    return DatasetContent(corpus if n_clips is None else corpus.select(range(n_clips)))


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
