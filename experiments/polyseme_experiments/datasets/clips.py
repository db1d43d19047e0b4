"""The embedded clips: three seconds of music each, with tags as people give them.

In: the files of the package folder `clips_data` (its README says how they were made and under
which licence). Out: a `ClipCorpus` with documents, facts and the sound files, to be unpacked.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import zipfile
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from polyseme._validation import InputError, check_number
from polyseme_experiments.datasets.embedded import EmbeddedFiles, frequent, package_folder

RATE = 22_050
SECONDS = 3.0
TAGS_FILE = "tags.jsonl"
LICENCE_FILE = "LICENCE.txt"
_LARGEST = 1 << 16  # bytes; ours have a fifth of that at most


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
            The sound files in the order of `ids`. `tags.jsonl` holds `file` (the file's name),
            `labels` and `group` of each.
        """
        target = Path(folder)
        wanted = set(self.ids if names is None else names)
        chosen = [place for place, name in enumerate(self.ids) if name in wanted]
        contents = {self.ids[place]: self.sounds[place] for place in chosen}
        contents[TAGS_FILE] = self._tags(chosen)
        contents[LICENCE_FILE] = (_data_folder() / "licences" / "fluid-r3-MIT.txt").read_bytes()
        try:
            target.mkdir(parents=True, exist_ok=True)
            missing = [name for name in contents if _is_missing(target / name, contents[name])]
            for name in missing:
                with (target / name).open("xb") as stream:
                    stream.write(contents[name])
        except OSError as error:
            reason = error.strerror or "it cannot be written"
            raise InputError(f"The clips cannot be written to '{target}': {reason}.") from error
        return [target / self.ids[place] for place in chosen]

    def _tags(self, chosen: Sequence[int]) -> bytes:
        """Give the content of `tags.jsonl` for some clips."""
        rows = (
            {"file": self.ids[one], "labels": self.documents[one], "group": self.groups[one]}
            for one in chosen
        )
        return "".join(json.dumps(row) + "\n" for row in rows).encode()


def load_clips(*, min_count: int = 10) -> ClipCorpus:
    """Load the embedded clips after checking their files against the stored checksums.

    Parameters
    ----------
    min_count : int
        Labels that were given to fewer clips are left out, of `complete` as well. No label has
        fewer than 20.

    Returns
    -------
    ClipCorpus

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
    text = gzip.decompress(files.read("documents.jsonl.gz")).decode()
    rows: list[dict[str, Any]] = [json.loads(line) for line in text.splitlines()]
    ids = [row.pop("id") for row in rows]
    documents = frequent([row.pop("labels") for row in rows], min_count)
    kept = {label for labels in documents for label in labels}
    return ClipCorpus(
        ids=ids,
        documents=documents,
        complete=[[label for label in row.pop("true") if label in kept] for row in rows],
        groups=[row.pop("group") for row in rows],
        facts=rows,
        sounds=_unpack(files, ids),
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


def _unpack(files: EmbeddedFiles, ids: list[str]) -> list[bytes]:
    """Put the sound files together from the archive: the head that all share, and their own part.

    The archive must hold these members alone, plainly stored and no larger than a clip can be.
    """
    wanted = [*(Path(name).stem for name in ids), "head"]
    try:
        with zipfile.ZipFile(io.BytesIO(files.read("clips.zip"))) as members:
            infos = members.infolist()
            if [info.filename for info in infos] != wanted:
                raise files.fault("clips.zip", "is damaged: its members are not the documents'")
            for info in infos:
                stored = info.compress_type == zipfile.ZIP_STORED
                if not stored or not 0 < info.file_size <= _LARGEST:
                    raise files.fault(
                        "clips.zip", f"is damaged: '{info.filename}' has a wrong size"
                    )
            *parts, head = [members.read(info) for info in infos]
    except (zipfile.BadZipFile, OSError, EOFError) as error:
        raise files.fault("clips.zip", "is damaged: it is not a whole archive") from error
    return [head + part for part in parts]
