"""Vectors of labels' names: from an encoder, by label, or in the order of labels.

In: what `fit` takes as `label_names`. Out: a vector for each label; `is_comparable` says whether
they may be compared with items, which they are where one encoder read both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from polyseme.base.validation import InputError, check_features, first_few
from polyseme.documents.word_vectors import WordVectors, as_word_vectors, words_of

Vectors = NDArray[np.float64] | sp.csr_matrix


class LabelNames(NamedTuple):
    """Labels and the vectors of their names, (n_labels, d); rows of 0 where a name has none."""

    labels: tuple[str, ...]
    vectors: Vectors

    def __repr__(self) -> str:
        """Return its size, in a line."""
        return f"LabelNames({len(self.labels)} names of {self.vectors.shape[1]} numbers)"

    def check_known(self) -> None:
        """Raise unless every name has a vector."""
        table: Any = self.vectors
        sizes = np.asarray(abs(table).sum(axis=1))
        has_vector = sizes.ravel() > 0
        if not has_vector.all():
            unknown = [self.labels[row] for row in np.flatnonzero(~has_vector)]
            raise InputError(
                f"There are no vectors for {first_few(unknown)}; such labels need documents."
            )

    def as_words(self) -> WordVectors:
        """Return dense vectors of the names that have one, by label."""
        vectors = self.vectors.toarray() if sp.issparse(self.vectors) else self.vectors
        rows = np.flatnonzero(vectors.any(axis=1))
        if not len(rows):
            raise InputError("None of the labels' names has a vector; give other `label_names`.")
        labels = [self.labels[row] for row in rows]
        return WordVectors.from_arrays(labels, vectors[rows], source="label names")


def encode_names(
    label_names: object,
    labels: Sequence[str],
    ordered_labels: Sequence[str] | None = None,
    key: Callable[[str], str] = str,
) -> LabelNames:
    """Return the vectors of labels' names.

    Parameters
    ----------
    label_names : WordVectors, mapping, array, csr matrix, callable, or object with `encode`
        Vectors of labels or of their words; an array with a row for each of `ordered_labels`; or an
        encoder, which takes a list of texts and returns a row for each.
    labels : sequence of str
        Whose vectors are wanted.
    ordered_labels : sequence of str, optional
        What the rows of an array are of; without them an array is refused. Of several rows of one
        label the first counts.
    key : callable
        Returns what labels are compared by with `ordered_labels`.
    """
    names = tuple(labels)
    if isinstance(label_names, (WordVectors, Mapping)):
        word_vectors, _ = as_word_vectors(label_names).label_vectors(names)
        return LabelNames(names, word_vectors)

    encode = _encoder(label_names)
    if encode is not None:
        encoded = encode(name_texts(names))
        vectors = _checked(encoded, len(names), "The encoder of `label_names`")
        return LabelNames(names, vectors)

    if not (sp.issparse(label_names) or isinstance(label_names, (np.ndarray, list))):
        raise InputError(
            "Names of labels must be WordVectors or a mapping of labels or words to numbers, an "
            "array with a row for each label, or an encoder of texts; got "
            f"{type(label_names).__name__}. `WordVectors.read` reads a file."
        )
    if ordered_labels is None:
        raise InputError(
            "An array as `label_names` needs labels that have an order, as the columns of an "
            "indicator matrix do; give a mapping of label to vector."
        )
    vectors = _checked(label_names, len(ordered_labels), "`label_names`")
    row_by_key: dict[str, int] = {}
    for row, label in enumerate(ordered_labels):
        row_by_key.setdefault(key(label), row)
    names_with_row = tuple(name for name in names if key(name) in row_by_key)
    rows = [row_by_key[key(name)] for name in names_with_row]
    return LabelNames(names_with_row, vectors[rows])


def extractor_names(extractor: Any, labels: Sequence[str]) -> LabelNames | None:
    """Return the vectors of labels' names by a feature extractor; None where it knows no word."""
    encode = getattr(extractor, "encode_names", None)
    if encode is None:
        return None
    encoded = encode(name_texts(labels))
    if encoded is None:
        return None
    vectors = _checked(encoded, len(labels), "`encode_names`")
    has_numbers = vectors.nnz if sp.issparse(vectors) else vectors.any()
    return LabelNames(tuple(labels), vectors) if has_numbers else None


def name_texts(labels: Sequence[str]) -> list[str]:
    """Return labels as words between single spaces, as encoders read them."""
    return [" ".join(words_of(label)) or label for label in labels]


def name_words(label_names: object, labels: Sequence[str]) -> WordVectors:
    """Return vectors of labels' names, or of their words, as word vectors; see `encode_names`."""
    if isinstance(label_names, (WordVectors, Mapping)):
        return as_word_vectors(label_names)
    names = encode_names(label_names, labels)
    if sp.issparse(names.vectors):
        raise InputError(
            "Names by sparse vectors rank new labels only where names are evidence, and in this "
            "tagger they are not; give dense vectors, or fit with `label_names`."
        )
    return names.as_words()


def is_comparable(names: LabelNames, n_features: int) -> bool:
    """Whether names have as many numbers as items, and so may come from the same encoder."""
    return bool(names.vectors.shape[1] == n_features)


def _encoder(label_names: Any) -> Any:
    """Return what encodes a list of texts; None where this is no encoder."""
    if isinstance(label_names, (str, bytes)):
        return None
    encode = getattr(label_names, "encode", None)
    if callable(encode):
        return encode
    return label_names if callable(label_names) else None


def _checked(vectors: Any, n_labels: int, owner: str) -> Vectors:
    """Check the vectors of names, (n_labels, d)."""
    table = check_features(vectors, owner=owner)
    if table.shape[0] != n_labels:
        raise InputError(f"{owner} has {table.shape[0]} rows for {n_labels} labels.")
    return table
