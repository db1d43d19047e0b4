"""Files of word vectors: numpy archives and text, never with pickled objects.

In: an `.npz` file with `words` and `vectors`, or a text file with a word and its numbers a line.
Out: a list of words and an array of their vectors, as they stand in the file.
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polyseme._validation import InputError
from polyseme.corpus import normalize_label
from polyseme.io import line_error, numbered_lines

MAX_SIZE = 4096
# What an archive may unpack to: three million words of 300 numbers fit.
MAX_BYTES = 4 * 2**30


def read_words(
    path: Path, wanted: set[str] | None, max_words: int
) -> tuple[list[str], NDArray[Any]]:
    """Read words and their vectors.

    Parameters
    ----------
    path : Path
        An `.npz`, `.txt` or `.txt.gz` file.
    wanted : set of str or None
        Normalised words: of a text file, only these are kept.
    max_words : int
        The most words that are kept of a text file.

    Returns
    -------
    words : list of str
    vectors : array, shape (n_words, d)
    """
    name = path.name.lower()
    if not name.endswith((".npz", ".txt", ".txt.gz")):
        raise InputError(
            f"Word vectors are read from .npz, .txt and .txt.gz files; got {path.name}."
        )
    if not path.is_file():
        raise InputError(f"Word vectors not found at {path}; check the path.")
    return _read_npz(path) if name.endswith(".npz") else _read_text(path, wanted, max_words)


def _read_npz(path: Path) -> tuple[list[str], NDArray[Any]]:
    """Read the arrays `words` and `vectors`, looking at their stated sizes first."""
    try:
        with zipfile.ZipFile(path) as archive:
            size = sum(member.file_size for member in archive.infolist())
        if size > MAX_BYTES:
            raise InputError(
                f"{path.name} unpacks to {size / 2**30:.1f} GiB; at most {MAX_BYTES / 2**30:g} "
                "GiB are read, so leave out words you do not need."
            )
        with np.load(path, allow_pickle=False) as held:
            arrays = {key: held[key] for key in ("words", "vectors") if key in held.files}
            names = ", ".join(sorted(held.files))
    except InputError:
        raise
    except Exception as error:  # numpy and zipfile raise a dozen kinds for damaged files
        reason = str(error).partition("\n")[0].rstrip(".") or type(error).__name__
        raise InputError(
            f"{path.name} is not readable as a numpy file without pickled objects ({reason}); "
            "save plain arrays again."
        ) from error
    if len(arrays) < 2:
        raise InputError(f"{path.name} must hold `words` and `vectors`; got {names or 'nothing'}.")
    words = arrays["words"]
    if words.ndim != 1 or words.dtype.kind != "U":
        raise InputError(
            f"`words` in {path.name} must be a list of strings; got shape {words.shape} of type "
            f"{words.dtype}."
        )
    return words.tolist(), arrays["vectors"]


def _read_text(
    path: Path, wanted: set[str] | None, max_words: int
) -> tuple[list[str], NDArray[np.float32]]:
    """Read a word and its numbers a line, keeping the wanted words only."""
    words: list[str] = []
    rows: list[NDArray[np.float32]] = []
    for number, word, fields in _text_rows(path):
        if wanted is not None and normalize_label(word) not in wanted:
            continue
        if len(words) == max_words:
            raise too_many_words(path, max_words)
        try:
            rows.append(np.array(fields, dtype=np.float32))
        except ValueError:
            raise line_error(
                path, number, f"holds something that is no number after '{word}'; correct it."
            ) from None
        words.append(word)
    return words, np.array(rows) if rows else np.empty((0, 0), dtype=np.float32)


def _text_rows(path: Path) -> Iterator[tuple[int, str, list[str]]]:
    """Yield each line's number, word and numbers as text; the first line sets how many."""
    size = 0
    for number, line in numbered_lines(path):
        # A word may hold odd white space of its own, so only the plain blank parts the fields.
        fields = line.rstrip("\r\n ").split(" ")
        if number == 1 and len(fields) == 2 and all(field.isdecimal() for field in fields):
            continue
        size = size or len(fields) - 1
        if not 1 <= size <= MAX_SIZE:
            raise line_error(
                path, number, f"has {size} numbers after the word; 1 to {MAX_SIZE} are expected."
            )
        if len(fields) <= size:
            raise line_error(
                path, number, f"has {len(fields) - 1} numbers but {size} are expected."
            )
        yield number, " ".join(fields[:-size]), fields[-size:]


def too_many_words(path: Path, max_words: int) -> InputError:
    """Build the error for a file with more words than allowed."""
    return InputError(
        f"{path.name} holds more than {max_words} words; pass `labels` to keep only theirs, or "
        "raise `max_words`."
    )
