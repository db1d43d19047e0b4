"""Made-up corpora of any size: documents whose labels share themes, and features that show them.

Labels are used as unevenly as tags are (Zipf), each belongs to a few themes, and a document draws
its labels from one or two themes, so that company says what a label is about. All is drawn from
one seed; a million documents take seconds.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from polyseme import LabelCorpus

_LABELS_A_DOCUMENT = 5.0
_BLOCK = 100_000


@dataclass(frozen=True)
class Themes:
    """What a corpus is drawn from.

    Attributes
    ----------
    shares : float64 array, shape (n_themes,)
        How often documents are about each theme.
    cumulative : float64 array, shape (n_themes * n_labels,)
        Theme after theme, its number plus the cumulative shares of its labels.
    centres : float32 array, shape (n_labels, n_features)
        What a label looks like.
    """

    shares: NDArray[np.float64]
    cumulative: NDArray[np.float64]
    centres: NDArray[np.float32]

    @property
    def n_labels(self) -> int:
        """Count the labels."""
        return len(self.centres)


def make_themes(n_labels: int, seed: int, n_themes: int = 60, n_features: int = 64) -> Themes:
    """Draw themes over labels.

    Parameters
    ----------
    n_labels : int
    seed : int
    n_themes : int
        At most one for three labels are made.
    n_features : int
    """
    generator = np.random.default_rng([seed, 0])
    n_themes = max(2, min(n_themes, n_labels // 3))
    popularity = 1.0 / (np.arange(n_labels) + 3.0)
    # Every label has a home and may be a guest in two other themes: that is what makes it
    # ambiguous. Everywhere else it turns up rarely.
    weights = np.full((n_themes, n_labels), 0.02 / n_themes)
    labels = np.arange(n_labels)
    for strength, home in (
        (1.0, generator.permutation(n_labels) % n_themes),
        (0.3, None),
        (0.1, None),
    ):
        themes = generator.integers(n_themes, size=n_labels) if home is None else home
        np.add.at(weights, (themes, labels), strength)
    weights *= popularity
    weights /= weights.sum(axis=1, keepdims=True)
    cumulative = np.cumsum(weights, axis=1)
    cumulative /= cumulative[:, -1:]
    shares = 1.0 / (np.arange(n_themes) + 5.0)
    looks = generator.normal(size=(n_themes, n_features))
    belongs = weights / weights.sum(axis=0)
    centres = belongs.T @ looks + 0.5 * generator.normal(size=(n_labels, n_features))
    return Themes(
        shares / shares.sum(),
        (cumulative + np.arange(n_themes)[:, None]).ravel(),
        centres.astype(np.float32),
    )


def synthetic_matrix(n_documents: int, themes: Themes, seed: int) -> sp.csr_matrix:
    """Draw documents as a 0/1 matrix, block by block.

    Parameters
    ----------
    n_documents : int
    themes : Themes
    seed : int

    Returns
    -------
    csr_matrix of bool, shape (n_documents, n_labels)
        Every document has a label, about five on average.
    """
    n_labels = themes.n_labels
    n_themes = len(themes.shares)
    blocks = []
    starts = range(0, n_documents, _BLOCK)
    for number, start in enumerate(starts):
        generator = np.random.default_rng([seed, 1, number])
        n = min(_BLOCK, n_documents - start)
        first, second = generator.choice(n_themes, size=(2, n), p=themes.shares)
        # A little more than five draws, because a label may be drawn twice.
        lengths = 1 + generator.poisson(_LABELS_A_DOCUMENT - 0.7, size=n)
        rows = np.repeat(np.arange(n), lengths)
        is_first = generator.random(len(rows)) < 0.8
        theme = np.where(is_first, first[rows], second[rows])
        draws = theme + generator.random(len(rows))
        place = np.searchsorted(themes.cumulative, draws)
        columns = np.minimum(place - theme * n_labels, n_labels - 1)
        keys = np.unique(rows * n_labels + columns)
        row_starts = np.arange(n + 1) * n_labels
        indptr = np.searchsorted(keys, row_starts)
        values = np.ones(len(keys), dtype=bool)
        entries = (values, keys % n_labels, indptr)
        blocks.append(sp.csr_matrix(entries, shape=(n, n_labels)))
    stacked = sp.vstack(blocks, format="csr", dtype=bool)
    return sp.csr_matrix(stacked)


def synthetic_documents(n_documents: int, n_labels: int, seed: int) -> LabelCorpus:
    """Draw a corpus.

    Parameters
    ----------
    n_documents, n_labels, seed : int

    Returns
    -------
    LabelCorpus
    """
    matrix = synthetic_matrix(n_documents, make_themes(n_labels, seed), seed)
    return as_label_corpus(matrix)


def as_label_corpus(matrix: sp.csr_matrix) -> LabelCorpus:
    """Name the labels of a 0/1 matrix."""
    n_labels = matrix.shape[1]
    labels = [f"label {number:05d}" for number in range(n_labels)]
    return LabelCorpus.from_indicator(matrix, labels)


def synthetic_features(
    matrix: sp.csr_matrix, themes: Themes, seed: int, noise: float = 0.5
) -> NDArray[np.float32]:
    """Draw what instances look like: the mean look of their labels, and noise.

    Parameters
    ----------
    matrix : csr_matrix of bool, shape (n, n_labels)
    themes : Themes
    seed : int
    noise : float
        Standard deviation of what the labels do not say.

    Returns
    -------
    float32 array, shape (n, n_features)
    """
    n = matrix.shape[0]
    n_features = themes.centres.shape[1]
    features = np.empty((n, n_features), dtype=np.float32)
    starts = range(0, n, _BLOCK)
    for number, start in enumerate(starts):
        generator = np.random.default_rng([seed, 2, number])
        rows = slice(start, start + _BLOCK)
        documents = matrix[rows].astype(np.float32)
        n_labels = np.diff(documents.indptr)
        block = features[rows]
        block[:] = documents @ themes.centres
        block /= np.maximum(n_labels, 1)[:, None]
        block += noise * generator.standard_normal(block.shape, dtype=np.float32)
    return features
