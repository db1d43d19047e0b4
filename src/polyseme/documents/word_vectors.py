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

# Where `WordVectors.find` looks: a file in the folder that an environment variable names.
WORD_VECTORS_FILE = "glove100-label-words.npz"
DATA_VARIABLE = "POLYSEME_DATA"
# Tuned on nested splits of training halves (results/README.md): how fast the likeness of two names
# falls with their cosine, and the noise of the regression: with less, each seen label counts more.
COSINE_SPREAD = 0.3
LABEL_NOISE = 0.3

_MAX_DIMENSIONS = 4096  # of a vector
_BETWEEN_WORDS = re.compile(r"[\s\-_/|]+")
_AROUND_WORDS = ".,;:!?'\"()[]{}"
# A vector is zero where it is shorter than this share of the largest number of all.
_ZERO_LENGTH = 1e-12


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
    """Return word vectors as they are, or make them of a mapping of words or labels to numbers."""
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

    By kernel regression over words, K the likeness of names: (K(seen, seen) + noise · 1)⁻¹ ·
    K(seen, labels). Whatever is known of the seen labels, times the weights, is what is expected of
    the others.

    Parameters
    ----------
    labels : sequence of str, length n_labels
        Each must have a vector.
    seen : sequence of str, length n_seen
        Labels that training items carry; those without a vector get the weight 0.
    vectors : WordVectors

    Returns
    -------
    float64 array, shape (n_labels, n_seen)
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
    usable_vectors = seen_vectors[seen_has_vector]
    kernel = _kernel(usable_vectors, usable_vectors)
    cross_kernel = _kernel(usable_vectors, label_vectors)
    noise = LABEL_NOISE * np.eye(len(usable_vectors))
    solution = np.linalg.solve(kernel + noise, cross_kernel)  # (n_usable, n_labels)
    weights = np.zeros((len(labels), len(seen)))
    weights[:, seen_has_vector] = solution.T
    return weights


def _kernel(
    vectors: NDArray[np.float64], other_vectors: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the likeness of unit vectors (n, d) and (n_other, d), 1 for equal ones, (n, n_other).

    It is exp((cosine - 1) / spread).
    """
    cosines = vectors @ other_vectors.T
    return np.asarray(np.exp((cosines - 1) / COSINE_SPREAD))


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
            rows = [np.asarray(vector, dtype=np.float32) for vector in vectors.values()]
            array = np.array(rows)
        except (TypeError, ValueError) as error:
            raise InputError(
                "`vectors` of `WordVectors` must hold one list of numbers per word, all of one "
                f"size; {str(error).partition('.')[0]}."
            ) from error
        self._set(list(vectors), array, source)

    @classmethod
    def from_arrays(
        cls, words: Sequence[str], vectors: ArrayLike, source: str = "arrays"
    ) -> WordVectors:
        """Return word vectors of words and an array (n_words, d), row by row; see `WordVectors`."""
        word_vectors = cls.__new__(cls)
        array = np.asarray(vectors)
        word_vectors._set(list(words), array, source)
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
            wanted_rows = []
            for row, word in enumerate(words):
                if normalize_label(word) in wanted_words:
                    wanted_rows.append(row)
            words = [words[row] for row in wanted_rows]
            vectors = vectors[wanted_rows]
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
        folder = data or os.environ.get(DATA_VARIABLE)
        path = Path(folder or ".", WORD_VECTORS_FILE)
        if not folder or not path.is_file():
            reason = f"at {path}" if folder else f"since {DATA_VARIABLE} is not set"
            raise InputError(
                f"No word vectors {reason}; they are not part of polyseme: put "
                f"{WORD_VECTORS_FILE} into the folder that {DATA_VARIABLE} names, or pass "
                "`vectors=WordVectors.read(file)`."
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
        n_dimensions = self.vectors.shape[1]
        label_vectors = np.zeros((len(labels), n_dimensions))
        for place, label in enumerate(labels):
            rows = self._rows_of(label)
            if rows:
                word_vectors = self.vectors[rows]
                label_vectors[place] = word_vectors.mean(axis=0, dtype=np.float64)
        lengths = np.linalg.norm(label_vectors, axis=1)
        highest = self.vectors.max(initial=0.0)
        lowest = self.vectors.min(initial=0.0)
        largest = max(highest, -lowest)
        # Words of opposite vectors have a mean of rounding errors, which points nowhere.
        has_vector = lengths > _ZERO_LENGTH * largest
        label_vectors[has_vector] /= lengths[has_vector, None]
        label_vectors[~has_vector] = 0.0
        return label_vectors, has_vector

    def _rows_of(self, label: str) -> list[int]:
        """Return the row of a label, or the rows of its words that are known."""
        name = normalize_label(label)
        if name in self._row_by_word:
            return [self._row_by_word[name]]
        rows = []
        for word in words_of(label):
            row = self._row_by_word.get(word)
            if row is not None:
                rows.append(row)
        return rows

    @cached_property
    def checksum(self) -> str:
        """SHA-256 over words and vectors in their order, which records of experiments hold."""
        text = "\n".join(self.words)
        text_bytes = text.encode()
        vectors = np.ascontiguousarray(self.vectors)
        vector_bytes = vectors.tobytes()
        digest = hashlib.sha256(text_bytes)
        digest.update(vector_bytes)
        return digest.hexdigest()

    def __len__(self) -> int:
        return len(self.words)

    def __contains__(self, word: object) -> bool:
        return isinstance(word, str) and normalize_label(word) in self._row_by_word

    def __repr__(self) -> str:
        n_words, n_dimensions = self.vectors.shape
        return f"WordVectors({n_words} words of {n_dimensions} numbers from {self.source})"

    def __copy__(self) -> WordVectors:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> WordVectors:
        return self

    def _set(self, words: list[str], vectors: NDArray[Any], source: str) -> None:
        """Set the attributes, after checking words and vectors (n_words, d) of any origin.

        Words are case-folded, and of repeated ones one row stays.
        """
        n_words = len(words)
        shape = vectors.shape
        is_numeric = vectors.dtype.kind in "buif"
        is_table = vectors.ndim == 2 and 0 < shape[1] <= _MAX_DIMENSIONS
        if not (is_numeric and is_table):
            raise InputError(
                f"Word vectors in {source} must be numbers in two dimensions (words, at most "
                f"{_MAX_DIMENSIONS} numbers); got shape {shape} of type {vectors.dtype}."
            )
        if n_words != shape[0]:
            raise InputError(f"{source} has {n_words} words but {shape[0]} vectors.")
        for word in words:
            if not isinstance(word, str) or not word:
                raise InputError(f"Words in {source} must be non-empty strings; got {word!r}.")
        is_finite = np.isfinite(vectors).all(axis=1)
        if not is_finite.all():
            first_wrong_row = int(np.argmin(is_finite))
            word = in_words(words[first_wrong_row])
            raise InputError(f"The vector of '{word}' in {source} holds NaN or infinity; drop it.")

        # The case-folded spelling of a word counts, or else the first.
        folded_words = [normalize_label(word) for word in words]
        row_by_word: dict[str, int] = {}
        for row, folded_word in enumerate(folded_words):
            if words[row] == folded_word:
                row_by_word.setdefault(folded_word, row)
        for row, folded_word in enumerate(folded_words):
            row_by_word.setdefault(folded_word, row)
        rows = sorted(row_by_word.values())
        self.words = tuple(folded_words[row] for row in rows)
        self.vectors = np.asarray(vectors[rows], dtype=np.float32)
        self.vectors.flags.writeable = False
        self.source = source
        self._row_by_word = {word: row for row, word in enumerate(self.words)}


def _read_npz(path: Path) -> tuple[list[str], NDArray[Any]]:
    """Read the arrays `words` (n_words,) and `vectors` (n_words, d), their stated sizes first."""
    with refusing_damage(path):
        check_archive(path)
        with np.load(path, allow_pickle=False) as file:
            keys = {"words", "vectors"}.intersection(file.files)
            # What is no array comes as bytes, and is refused as text of another kind.
            arrays = {key: np.asarray(file[key]) for key in keys}
            all_keys = ", ".join(sorted(file.files))
    if len(arrays) < 2:
        raise InputError(
            f"{path.name} must hold `words` and `vectors`; got {all_keys or 'nothing'}."
        )
    words = arrays["words"]
    check_letters(words, path)
    if words.ndim != 1 or words.dtype.kind != "U":
        raise InputError(f"`words` in {path.name} must be a list of strings; got {words.dtype}.")
    return words.tolist(), arrays["vectors"]


def _read_text(
    path: Path, wanted_words: set[str] | None, max_words: int
) -> tuple[list[str], NDArray[np.float32]]:
    """Read words and their vectors, (n_words, d), from lines of a word and d numbers.

    Parameters
    ----------
    path : Path
        A text file, gzipped or not.
    wanted_words : set of str, optional
        Case-folded; others are passed over.
    max_words : int
        Where to stop: one word more is read, so that the caller sees that there are too many.
    """
    words: list[str] = []
    vectors: list[NDArray[np.float32]] = []
    n_dimensions = 0
    for line_number, line in numbered_lines(path):
        # A word may hold odd white space of its own, so only the plain blank parts the fields.
        fields = line.rstrip("\r\n ").split(" ")
        states_counts = len(fields) == 2 and all(field.isdecimal() for field in fields)
        if line_number == 1 and states_counts:
            continue
        n_dimensions = n_dimensions or len(fields) - 1
        if not 1 <= n_dimensions <= _MAX_DIMENSIONS:
            problem = (
                f"has {n_dimensions} numbers after the word; 1 to {_MAX_DIMENSIONS} are expected."
            )
            raise line_error(path, line_number, problem)
        if len(fields) <= n_dimensions:
            problem = f"has {len(fields) - 1} numbers but {n_dimensions} are expected."
            raise line_error(path, line_number, problem)
        word = " ".join(fields[:-n_dimensions])
        if wanted_words is not None and normalize_label(word) not in wanted_words:
            continue
        try:
            vector = np.array(fields[-n_dimensions:], dtype=np.float32)
        except ValueError:
            problem = f"holds something that is no number after '{in_words(word)}'; correct it."
            raise line_error(path, line_number, problem) from None
        vectors.append(vector)
        words.append(word)
        if len(words) > max_words:
            break
    if not vectors:
        return words, np.empty((0, 0), dtype=np.float32)
    return words, np.array(vectors)
