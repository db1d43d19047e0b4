"""Word vectors and what they say about labels.

In: a mapping, an `.npz` file, a GloVe text file or, as a stand-in, label documents. Out:
`WordVectors`, and through it one unit vector per label.
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
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from polyseme._validation import InputError, RandomState, as_generator, check_number, draw_seed
from polyseme.corpus import Documents, as_corpus, normalize_label
from polyseme.word_vectors.files import MAX_SIZE, read_words, too_many_words

FILE = "glove100-label-words.npz"
VARIABLE = "POLYSEME_DATA"

_BETWEEN_WORDS = re.compile(r"[\s\-_/]+")
_AROUND_WORDS = ".,;:!?'\"()[]{}"


def words_of(label: str) -> list[str]:
    """Give the words of a label, case-folded.

    Words are parted by white space, hyphens, underscores and slashes, so that
    `"genre---deep_house"` has three; punctuation around a word is cut.
    """
    pieces = _BETWEEN_WORDS.split(normalize_label(label))
    pieces = [piece.strip(_AROUND_WORDS) for piece in pieces]
    return [piece for piece in pieces if piece]


class WordVectors:
    """Words and their vectors; nothing about them changes, so copies are the object itself.

    Parameters
    ----------
    vectors : mapping of str to sequence of float
        A vector for each word, all of one size. Of words that differ only in case, the
        case-folded one counts, or else the first.
    source : str
        Where they come from, for `repr` and records.

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

    # ------------------------------------------------------------------ making them

    @classmethod
    def from_arrays(
        cls, words: Sequence[str], vectors: ArrayLike, source: str = "arrays"
    ) -> WordVectors:
        """Take words and an array of their vectors, (n_words, d)."""
        made = cls.__new__(cls)
        made._keep(list(words), np.asarray(vectors), source)
        return made

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

        Returns
        -------
        WordVectors
        """
        check_number("max_words", max_words, owner="WordVectors.read", low=1, whole=True)
        found = Path(path)
        wanted = None if labels is None else {word for name in labels for word in words_of(name)}
        words, vectors = read_words(found, wanted, max_words)
        if wanted is not None:
            kept = [row for row, word in enumerate(words) if normalize_label(word) in wanted]
            words, vectors = [words[row] for row in kept], vectors[kept]
        if len(words) > max_words:
            raise too_many_words(found, max_words)
        if not words:
            whose = " of the given labels" if wanted is not None else ""
            raise InputError(f"{found.name} holds no word{whose}; give another file.")
        return cls.from_arrays(words, vectors, source=found.name)

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

        Returns
        -------
        WordVectors
        """
        root = data or os.environ.get(VARIABLE)
        if not root:
            raise InputError(
                f"Word vectors are not part of polyseme; set {VARIABLE} to the folder that holds "
                f"{FILE}, or pass `vectors=WordVectors.read(file)`."
            )
        path = Path(root) / FILE
        if not path.is_file():
            raise InputError(
                f"No word vectors at {path}; put {FILE} there, or pass "
                "`vectors=WordVectors.read(file)`."
            )
        return cls.read(path, labels=labels)

    @classmethod
    def from_documents(
        cls, documents: Documents, n_components: int = 50, random_state: RandomState = 0
    ) -> WordVectors:
        """Learn stand-ins for word vectors from the words that share documents.

        These are no general word vectors: they know the words of these documents only, and what
        they know is the documents' own co-occurrence. They serve made-up corpora, whose labels no
        published vectors know; figures made with them say nothing about word vectors.

        Parameters
        ----------
        documents : LabelCorpus or any form of documents
        n_components : int
            Size of the vectors; at most the number of words.
        random_state : int, numpy Generator or None

        Returns
        -------
        WordVectors
            Leading singular vectors of the words' positive pointwise mutual information, scaled
            by the roots of the singular values.
        """
        from sklearn.utils.extmath import randomized_svd

        check_number("n_components", n_components, owner="WordVectors", low=1, whole=True)
        corpus = as_corpus(documents)
        words, holds = _label_words(corpus.labels)
        counts = (corpus.matrix.astype(np.float64) @ holds).minimum(1.0)
        if not counts.nnz:
            raise InputError("`documents` of `WordVectors` hold no words; give some with labels.")
        information = _positive_information(sp.csr_matrix(counts.T @ counts))
        size = min(n_components, len(words))
        seed = draw_seed(as_generator(random_state))
        left, values, _ = randomized_svd(information, size, n_iter=7, random_state=seed)
        source = f"a stand-in learned from {len(corpus)} documents"
        return cls.from_arrays(words, left * np.sqrt(values), source=source)

    # ------------------------------------------------------------------ asking them

    def label_vectors(self, labels: Sequence[str]) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """Give each label the mean vector of its words, at length 1.

        Parameters
        ----------
        labels : sequence of str

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
            rows = [self._rows[word] for word in words_of(label) if word in self._rows]
            if rows:
                result[place] = self.vectors[rows].mean(axis=0, dtype=np.float64)
        lengths = np.linalg.norm(result, axis=1)
        known = lengths > 1e-12
        result[known] /= lengths[known, None]
        result[~known] = 0.0
        return result, known

    @cached_property
    def checksum(self) -> str:
        """SHA-256 over words and vectors, for records."""
        digest = hashlib.sha256("\n".join(self.words).encode())
        digest.update(np.ascontiguousarray(self.vectors).tobytes())
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
        """Check words and vectors, fold the words and drop repeated ones."""
        _check(words, vectors, source)
        folded = [normalize_label(word) for word in words]
        rows: dict[str, int] = {}
        for exact in (True, False):
            for row, (word, key) in enumerate(zip(words, folded, strict=True)):
                if not exact or word == key:
                    rows.setdefault(key, row)
        order = sorted(rows.values())
        self.words = tuple(folded[row] for row in order)
        self.vectors = np.asarray(vectors[order], dtype=np.float32)
        self.vectors.flags.writeable = False
        self.source = source
        self._rows = {word: row for row, word in enumerate(self.words)}


def _check(words: Sequence[object], vectors: NDArray[Any], source: str) -> None:
    """Raise unless there is one finite vector for each word."""
    if vectors.ndim != 2 or vectors.dtype.kind not in "buif" or 0 in vectors.shape:
        raise InputError(
            f"Word vectors in {source} must be numbers in two dimensions (words, numbers); got "
            f"shape {vectors.shape} of type {vectors.dtype}."
        )
    if len(words) != len(vectors):
        raise InputError(f"{source} has {len(words)} words but {len(vectors)} vectors.")
    if vectors.shape[1] > MAX_SIZE:
        raise InputError(
            f"Word vectors in {source} have {vectors.shape[1]} numbers each; at most {MAX_SIZE} "
            "are taken."
        )
    for word in words:
        if not isinstance(word, str) or not word:
            raise InputError(f"Words in {source} must be non-empty strings; got {word!r}.")
    wrong = np.flatnonzero(~np.isfinite(vectors).all(axis=1))
    if len(wrong):
        raise InputError(
            f"The vector of '{words[wrong[0]]}' in {source} holds NaN or infinity; leave the word "
            "out."
        )


def _label_words(labels: Sequence[str]) -> tuple[list[str], sp.csr_matrix]:
    """List the words of all labels, sorted, and say which label holds which, (labels, words)."""
    held = [sorted(set(words_of(label))) for label in labels]
    words = sorted({word for one in held for word in one})
    place = {word: column for column, word in enumerate(words)}
    columns = np.array([place[word] for one in held for word in one], dtype=np.int64)
    starts = np.cumsum([0, *(len(one) for one in held)])
    ones = np.ones(len(columns))
    return words, sp.csr_matrix((ones, columns, starts), shape=(len(labels), len(words)))


def _positive_information(together: sp.csr_matrix) -> sp.csr_matrix:
    """Turn counts of shared documents into positive pointwise mutual information."""
    pairs = together.tocoo()
    alone = np.asarray(together.sum(axis=0), dtype=np.float64).ravel()
    expected = alone[pairs.row] * alone[pairs.col] / alone.sum()
    values = np.maximum(np.log(pairs.data / expected), 0.0)
    return sp.csr_matrix((values, (pairs.row, pairs.col)), shape=together.shape)
