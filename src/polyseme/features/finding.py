"""Which files of a folder are media, and what the others are.

In: folders and files. Out: the media files in a fixed order, each with a name, and every other file
with the reason why it is passed over.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from polyseme._validation import InputError


@dataclass(frozen=True)
class MediaFile:
    """One file.

    Attributes
    ----------
    id : str
        Its path below the folder that was named, with forward slashes.
    path : Path
    """

    id: str
    path: Path


@dataclass
class Found:
    """The files of a folder.

    Attributes
    ----------
    media : list of MediaFile
        Sorted within each folder.
    others : list of (str, str)
        Name and reason of every file, or hidden or linked folder, that is passed over.
    """

    media: list[MediaFile] = field(default_factory=list)
    others: list[tuple[str, str]] = field(default_factory=list)


def find_media(
    places: Iterable[Path], suffixes: frozenset[str], *, leave_out: Path | None = None
) -> Found:
    """Look for media files in folders and below them.

    Parameters
    ----------
    places : iterable of Path
        Folders, or files, which are taken whatever their name is.
    suffixes : frozenset of str
        How names of media files end, in lower case.
    leave_out : Path, optional
        A folder that is not looked into.

    Returns
    -------
    Found
    """
    found = Found()
    for place in places:
        if place.is_dir():
            _look_into(place, suffixes, leave_out, found)
        elif place.exists() or place.is_symlink():
            found.media.append(MediaFile(place.as_posix(), place))
        else:
            raise InputError(f"There is no file or folder '{place}'; check the path.")
    found.media = list({file.path.absolute(): file for file in reversed(found.media)}.values())[
        ::-1
    ]
    return found


def _look_into(
    folder: Path, suffixes: frozenset[str], leave_out: Path | None, found: Found
) -> None:
    """Sort the files of a folder and of all folders below it."""
    for here, name, is_folder in _walk(folder, leave_out):
        path = here / name
        identity = path.relative_to(folder).as_posix()
        if name.startswith("."):
            found.others.append((identity, "is hidden"))
        elif is_folder:
            found.others.append((identity, "is a link to a folder"))
        elif path.suffix.lower() not in suffixes:
            found.others.append((identity, "has another kind of name"))
        elif _is_special(path):
            found.others.append((identity, "is not a regular file"))
        else:
            found.media.append(MediaFile(identity, path))


def _walk(folder: Path, leave_out: Path | None) -> Iterator[tuple[Path, str, bool]]:
    """Yield every file, and every folder that is not entered, as (folder, name, is a folder)."""
    skipped = None if leave_out is None else leave_out.resolve()
    for root, folders, files in os.walk(folder, onerror=_refuse):
        here = Path(root)
        entered = []
        for name in sorted(folders):
            if (here / name).is_symlink() or name.startswith("."):
                yield here, name, True
            elif (here / name).resolve() != skipped:
                entered.append(name)
        folders[:] = entered
        for name in sorted(files):
            yield here, name, False


def _refuse(error: OSError) -> None:
    """Raise when a folder cannot be read, rather than lose what is in it."""
    raise InputError(
        f"The folder '{error.filename}' cannot be read ({error.strerror}); check its permissions."
    ) from error


def _is_special(path: Path) -> bool:
    """Say whether a path leads to something that must not be opened; False for broken links."""
    try:
        return not stat.S_ISREG(path.stat().st_mode)
    except OSError:
        return False
