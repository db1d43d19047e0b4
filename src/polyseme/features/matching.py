"""Which document belongs to which media file.

In: names of files and names of documents. Out: pairs of rows, by path, by file name or by stem.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath

import numpy as np

from polyseme._validation import InputError, IntArray, first_few


def match_documents(files: Sequence[str], documents: Sequence[str]) -> tuple[IntArray, IntArray]:
    """Find the document of each file.

    A document may be named as the file is, path and all, by the file's name alone, or by its name
    without the ending; folders above the one that was extracted, and case where nothing else fits,
    do not matter.

    Parameters
    ----------
    files : sequence of str
        Paths below a folder, with forward slashes.
    documents : sequence of str
        Names of documents; backward slashes and a leading "./" do not matter.

    Returns
    -------
    file_rows, document_rows : int64 arrays of one length
        Pairs, in the order of the documents; neither holds a row twice.
    """
    ways = _ways([PurePosixPath(_plain(name)) for name in files])
    owner: dict[int, int] = {}
    for row, name in enumerate(documents):
        wanted = PurePosixPath(_plain(name))
        fitting = next((way[one] for one, way in _tries(wanted, ways) if one in way), [])
        if len(fitting) > 1:
            raise InputError(
                f"Several files are called '{wanted}', such as "
                f"{first_few([files[one] for one in fitting], most=3)}; name each document by its "
                "file's path below the folder."
            )
        for file in fitting:
            if file in owner:
                raise InputError(
                    f"The documents '{documents[owner[file]]}' and '{name}' both name the file "
                    f"'{files[file]}'; give each file one document."
                )
            owner[file] = row
    if not owner:
        raise InputError(
            f"No document names one of the files: documents are called "
            f"{first_few(list(documents), most=3)}, files {first_few(list(files), most=3)}; give "
            "documents an `id` (or `file`) that is the file's name."
        )
    return np.array(list(owner), dtype=np.int64), np.array(list(owner.values()), dtype=np.int64)


def _plain(name: str) -> str:
    """Write a name with forward slashes and composed letters, whatever system it comes from."""
    return unicodedata.normalize("NFC", name.replace("\\", "/"))


def _ways(paths: Sequence[PurePosixPath]) -> list[dict[str, list[int]]]:
    """Give rows by path, by name and by stem; then again without regard to case."""
    by = [
        [str(path) for path in paths],
        [path.name for path in paths],
        [path.stem for path in paths],
    ]
    by += [[name.casefold() for name in names] for names in by]
    return [_rows_by_name(names) for names in by]


def _tries(
    wanted: PurePosixPath, ways: Sequence[dict[str, list[int]]]
) -> Iterator[tuple[str, dict[str, list[int]]]]:
    """Yield what to look up where: the name as it is, without leading folders, without case."""
    name = str(wanted)
    for way in ways[:3]:
        yield name, way
    for start in range(1, len(wanted.parts)):
        yield "/".join(wanted.parts[start:]), ways[0]
    for way in ways[3:]:
        yield name.casefold(), way


def _rows_by_name(names: Sequence[str]) -> dict[str, list[int]]:
    """Give the rows of each name."""
    rows: dict[str, list[int]] = {}
    for row, name in enumerate(names):
        rows.setdefault(name, []).append(row)
    return rows
