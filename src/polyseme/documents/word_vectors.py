"""Word vectors: hints at the meaning of a label's name, from other texts.

In: a mapping, an `.npz` file or a GloVe text file. Out: `WordVectors`, and through it one unit
vector per label. None are part of polyseme, and nothing is downloaded.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from polyseme.base.text import in_words
from polyseme.base.validation import InputError, check_number, check_path, first_few
from polyseme.documents.corpus import normalize_label
from polyseme.io import line_error, numbered_lines
from polyseme.io.arrays import check_archive, check_letters, refusing_damage

FILE = "glove100-label-words.npz"
VARIABLE = "POLYSEME_DATA"
# How fast likeness falls with the cosine of two names, and how far each seen label is trusted;
# chosen on nested splits of training halves.
SPREAD = 0.3
NOISE = 0.3

_MAX_SIZE = 4096
_BETWEEN_WORDS = re.compile(r"[\s\-_/]+")
_AROUND_WORDS = ".,;:!?'\"()[]{}"


def words_of(label: str) -> list[str]:
    """Return the words of a label, case-folded.

    Words are parted by white space, hyphens, underscores and slashes, so that
    `"genre---deep_house"` has three; punctuation around a word is cut.
    """
    words: list[str] = []
    for piece in _BETWEEN_WORDS.split(normalize_label(label)):
        word = piece.strip(_AROUND_WORDS)
        if word:
            words.append(word)
    return words


def as_word_vectors(vectors: object) -> WordVectors:
    """Take word vectors, or a mapping of words or labels to numbers."""
    if isinstance(vectors, WordVectors):
        return vectors
    if not isinstance(vectors, Mapping):
        raise InputError(
            "`vectors` must be WordVectors or a mapping of words to numbers; got "
            f"{type(vectors).__name__}. `WordVectors.read` reads a file."
        )
    return WordVectors(vectors)


def name_likeness(
    labels: Sequence[str], seen: Sequence[str], vectors: WordVectors
) -> NDArray[np.float64]:
    """Return the weight of each seen label for labels of which only names are known.

    By kernel regression over words, (n_labels, n_seen): labels must have a vector; seen labels
    without one count nothing.
    """
    label_vectors, has_vector = vectors.label_vectors(labels)
    if not has_vector.all():
        missing = np.flatnonzero(~has_vector)
        names = [labels[place] for place in missing.tolist()]
        raise InputError(
            f"There are no word vectors for {first_few(names)}; such labels need documents."
        )
    seen_vectors, seen_has_vector = vectors.label_vectors(seen)
    if not seen_has_vector.any():
        raise InputError("None of the seen labels has a word vector; give other vectors.")
    usable = seen_vectors[seen_has_vector]
    kernel = _kernel(usable, usable)
    cross_kernel = _kernel(usable, label_vectors)
    noise = NOISE * np.eye(len(usable))
    solution = np.linalg.solve(kernel + noise, cross_kernel)
    weights = np.zeros((len(labels), len(seen)))
    weights[:, seen_has_vector] = solution.T
    return weights


def _kernel(
    vectors: NDArray[np.float64], other_vectors: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the likeness of unit vectors by their cosines, 1 for equal ones, (n, n_other)."""
    cosines = vectors @ other_vectors.T
    return np.asarray(np.exp((cosines - 1) / SPREAD))


class WordVectors:
    """Words and their vectors; nothing about them changes, so copies are the object itself.

    Parameters
    ----------
    vectors : mapping of str to sequence of float
        A vector for each word, all of one size. Of words that differ only in case, the
        case-folded one counts, or else the first.
    source : str
        Their origin, for `repr` and records.

    Attributes
    ----------
    words : tuple of str
        Case-folded.
    vectors : float32 array, shape (n_words, d)
        Read-only.
    source : str

    Examples
    --------
    >>> from polyseme import WordVectors
    >>> words = WordVectors({"deep": [1, 0], "house": [0, 1], "sea": [0, 2]})
    >>> vectors, known = words.label_vectors(["Deep House", "sea", "xyz"])
    >>> vectors.round(2).tolist()
    [[0.71, 0.71], [0.0, 1.0], [0.0, 0.0]]
    >>> known.tolist()
    [True, True, False]
    """

    def __init__(self, vectors: Mapping[str, ArrayLike], source: str = "a mapping") -> None:
        if not vectors:
            raise InputError("`vectors` of `WordVectors` must hold at least one word; got none.")
        try:
            array = np.array([np.asarray(v, dtype=np.float32) for v in vectors.values()])
        except (TypeError, ValueError) as error:
            raise InputError(
                "`vectors` of `WordVectors` must hold one list of numbers per word, all of one "
                f"size; {str(error).partition('.')[0]}."
            ) from error
        self._keep(list(vectors), array, source)

    @classmethod
    def from_arrays(
        cls, words: Sequence[str], vectors: ArrayLike, source: str = "arrays"
    ) -> WordVectors:
        """Make word vectors of words and an array (n_words, d); see `WordVectors`."""
        word_vectors = cls.__new__(cls)
        array = np.asarray(vectors)
        word_vectors._keep(list(words), array, source)
        return word_vectors

    @classmethod
    def read(
        cls,
        path: str | Path,
        *,
        labels: Iterable[str] | None = None,
        max_words: int = 1_000_000,
    ) -> WordVectors:
        """Read word vectors from a file; nothing in it is ever run.

        Parameters
        ----------
        path : str or Path
            An `.npz` file with `words` (n_words,) and `vectors` (n_words, d), or a text file
            (`.txt`, `.txt.gz`) with a word and d numbers a line, as GloVe has it. A first line
            that states both counts, as word2vec has it, is passed over.
        labels : iterable of str, optional
            Keep only the words of these labels: a large file then needs little memory.
        max_words : int
            Refuse to keep more words than this.
        """
        check_number("max_words", max_words, owner="WordVectors.read", low=1, whole=True)
        file = check_path(path, subject="A file of word vectors")
        if not file.name.lower().endswith((".npz", ".txt", ".txt.gz")):
            raise InputError(f"Word vectors are read from .npz, .txt and .txt.gz; got {file.name}.")
        if not file.is_file():
            raise InputError(f"Word vectors not found at {file}; check the path.")
        wanted_words: set[str] | None = None
        if labels is not None:
            wanted_words = set()
            for label in labels:
                wanted_words.add(normalize_label(label))
                wanted_words.update(words_of(label))
        if file.suffix.lower() == ".npz":
            words, vectors = _read_npz(file)
        else:
            words, vectors = _read_text(file, wanted_words, max_words)
        if wanted_words is not None:
            rows = [row for row, word in enumerate(words) if normalize_label(word) in wanted_words]
            words = [words[row] for row in rows]
            vectors = vectors[rows]
        if len(words) > max_words:
            raise InputError(
                f"{file.name} holds more than {max_words} words; pass `labels` to keep only "
                "theirs, or raise `max_words`."
            )
        if not words:
            whose = " of the given labels" if wanted_words is not None else ""
            raise InputError(f"{file.name} holds no word{whose}; give another file.")
        return cls.from_arrays(words, vectors, source=file.name)

    @classmethod
    def find(
        cls, data: str | Path | None = None, *, labels: Iterable[str] | None = None
    ) -> WordVectors:
        """Read `glove100-label-words.npz` from the data folder.

        Parameters
        ----------
        data : str or Path, optional
            The folder; by default the environment variable POLYSEME_DATA says it.
        labels : iterable of str, optional
            As in `read`.
        """
        root = data or os.environ.get(VARIABLE)
        path = Path(root or ".", FILE)
        if not root or not path.is_file():
            where = f"at {path}" if root else f"since {VARIABLE} is not set"
            raise InputError(
                f"No word vectors {where}; they are not part of polyseme: put {FILE} into the "
                f"folder that {VARIABLE} names, or pass `vectors=WordVectors.read(file)`."
            )
        return cls.read(path, labels=labels)

    def label_vectors(self, labels: Sequence[str]) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """Return each label's own vector, or else the mean vector of its words, at length 1.

        Returns
        -------
        vectors : float64 array, shape (n_labels, d)
            Zero where none of a label's words is known; unknown words beside known ones are
            passed over.
        known : bool array, shape (n_labels,)
            Whether a label has a vector.
        """
        result = np.zeros((len(labels), self.vectors.shape[1]))
        for place, label in enumerate(labels):
            rows = self._rows_of(label)
            if rows:
                result[place] = self.vectors[rows].mean(axis=0, dtype=np.float64)
        lengths = np.linalg.norm(result, axis=1)
        highest = self.vectors.max(initial=0.0)
        lowest = self.vectors.min(initial=0.0)
        largest = max(highest, -lowest)
        has_vector = lengths > 1e-12 * largest
        result[has_vector] /= lengths[has_vector, None]
        result[~has_vector] = 0.0
        return result, has_vector

    def _rows_of(self, label: str) -> list[int]:
        """Return the row of a label, or the rows of its words that are known."""
        name = normalize_label(label)
        if name in self._rows:
            return [self._rows[name]]
        rows = []
        for word in words_of(label):
            row = self._rows.get(word)
            if row is not None:
                rows.append(row)
        return rows

    @cached_property
    def checksum(self) -> str:
        """SHA-256 over words and vectors, for records."""
        text = "\n".join(self.words)
        content = text.encode()
        numbers = np.ascontiguousarray(self.vectors)
        digest = hashlib.sha256(content)
        digest.update(numbers.tobytes())
        return digest.hexdigest()

    def __len__(self) -> int:
        return len(self.words)

    def __contains__(self, word: object) -> bool:
        return isinstance(word, str) and normalize_label(word) in self._rows

    def __repr__(self) -> str:
        n, d = self.vectors.shape
        return f"WordVectors({n} words of {d} numbers from {self.source})"

    def __copy__(self) -> WordVectors:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> WordVectors:
        return self

    def _keep(self, words: list[str], vectors: NDArray[Any], source: str) -> None:
        """Check words and vectors (n, d), fold the words and drop repeated ones."""
        n_words = len(words)
        shape = vectors.shape
        if vectors.ndim != 2 or vectors.dtype.kind not in "buif" or not 0 < shape[1] <= _MAX_SIZE:
            raise InputError(
                f"Word vectors in {source} must be numbers in two dimensions (words, at most "
                f"{_MAX_SIZE} numbers); got shape {shape} of type {vectors.dtype}."
            )
        if n_words != shape[0]:
            raise InputError(f"{source} has {n_words} words but {shape[0]} vectors.")
        for word in words:
            if not isinstance(word, str) or not word:
                raise InputError(f"Words in {source} must be non-empty strings; got {word!r}.")
        finite = np.isfinite(vectors).all(axis=1)
        if not finite.all():
            first = int(np.argmin(finite))
            word = in_words(words[first])
            raise InputError(f"The vector of '{word}' in {source} holds NaN or infinity; drop it.")

        # The case-folded spelling of a word counts, or else the first.
        folded = [normalize_label(word) for word in words]
        row_by_word: dict[str, int] = {}
        for exact in (True, False):
            for row, key in enumerate(folded):
                if not exact or words[row] == key:
                    row_by_word.setdefault(key, row)
        order = sorted(row_by_word.values())
        self.words = tuple(folded[row] for row in order)
        self.vectors = np.asarray(vectors[order], dtype=np.float32)
        self.vectors.flags.writeable = False
        self.source = source
        self._rows = {word: row for row, word in enumerate(self.words)}


def _read_npz(path: Path) -> tuple[list[str], NDArray[Any]]:
    """Read the arrays `words` (n,) and `vectors` (n, d), looking at their stated sizes first."""
    with refusing_damage(path):
        check_archive(path)
        with np.load(path, allow_pickle=False) as file:
            # What is no array comes as bytes, and is refused as text of another kind.
            keys = {"words", "vectors"}.intersection(file.files)
            arrays = {key: np.asarray(file[key]) for key in keys}
            names = ", ".join(sorted(file.files))
    if len(arrays) < 2:
        raise InputError(f"{path.name} must hold `words` and `vectors`; got {names or 'nothing'}.")
    words = arrays["words"]
    check_letters(words, path)
    if words.ndim != 1 or words.dtype.kind != "U":
        raise InputError(f"`words` in {path.name} must be a list of strings; got {words.dtype}.")
    return words.tolist(), arrays["vectors"]


def _read_text(
    path: Path, wanted: set[str] | None, max_words: int
) -> tuple[list[str], NDArray[np.float32]]:
    """Read wanted words and their numbers, a line each, until there are too many."""
    words: list[str] = []
    vectors: list[NDArray[np.float32]] = []
    size = 0
    for number, line in numbered_lines(path):
        # A word may hold odd white space of its own, so only the plain blank parts the fields.
        fields = line.rstrip("\r\n ").split(" ")
        if number == 1 and len(fields) == 2 and all(field.isdecimal() for field in fields):
            continue
        size = size or len(fields) - 1
        if not 1 <= size <= _MAX_SIZE:
            wrong = f"has {size} numbers after the word; 1 to {_MAX_SIZE} are expected."
            raise line_error(path, number, wrong)
        if len(fields) <= size:
            wrong = f"has {len(fields) - 1} numbers but {size} are expected."
            raise line_error(path, number, wrong)
        word = " ".join(fields[:-size])
        if wanted is not None and normalize_label(word) not in wanted:
            continue
        try:
            vectors.append(np.array(fields[-size:], dtype=np.float32))
        except ValueError:
            wrong = f"holds something that is no number after '{in_words(word)}'; correct it."
            raise line_error(path, number, wrong) from None
        words.append(word)
        if len(words) > max_words:
            break
    return words, np.array(vectors) if vectors else np.empty((0, 0), dtype=np.float32)
