"""Early stopping: documents held out of training, and how well a network primes their labels.

In: a document-label matrix. Out: rows to hold out, and a function that scores a network on them.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from polyseme.corpus import unique_rows
from polyseme.index import ConceptIndex
from polyseme.metrics import example_map
from polyseme.published.nn.encoding import encode_documents, row_means
from polyseme.published.nn.networks import ConceptNetwork

# Documents whose labels are laid out at a time.
_AT_A_TIME = 1000


def hold_out(
    matrix: sp.csr_matrix, fraction: float, generator: np.random.Generator, *, most: int = 1000
) -> NDArray[np.int64]:
    """Choose documents for early stopping.

    Parameters
    ----------
    matrix : csr_matrix of bool, shape (n_documents, n_labels)
    fraction : float
        Share of the documents with labels to hold out.
    generator : numpy Generator
    most : int
        The most documents to hold out, so that scoring a large corpus stays cheap.

    Returns
    -------
    int64 array, shape (n_held_out,)
        Rows, sorted; none when fewer than two would be left to learn from.
    """
    filled = np.flatnonzero(np.diff(matrix.indptr))
    n_held = min(int(fraction * len(filled)), most)
    if len(filled) - n_held < 2:
        return np.empty(0, dtype=np.int64)
    return np.sort(generator.permutation(filled)[:n_held])


def stopping_score(
    matrix: sp.csr_matrix,
    contexts: NDArray[np.float32],
    fraction: float,
    generator: np.random.Generator,
    validation: sp.csr_matrix | None = None,
    validation_contexts: NDArray[np.float32] | None = None,
) -> tuple[NDArray[np.int64], Callable[[ConceptNetwork], float] | None]:
    """Choose what to learn from and how to score a network while it learns.

    Parameters
    ----------
    matrix : csr_matrix of bool, shape (n_documents, n_labels)
    contexts : float32 array, shape (n_documents, n_topics)
    fraction : float
        Share of the documents to hold out where no validation documents are given.
    generator : numpy Generator
    validation : csr_matrix of bool, shape (n_validation, n_labels), optional
    validation_contexts : float32 array, shape (n_validation, n_topics), optional

    Returns
    -------
    kept : int64 array
        Rows of `matrix` to learn from.
    score : callable or None
        See `error_free_score`; None when nothing is held out.
    """
    if validation is not None and validation_contexts is not None:
        return np.arange(matrix.shape[0]), error_free_score(
            matrix, contexts, validation, validation_contexts
        )
    held_out = hold_out(matrix, fraction, generator)
    kept = np.setdiff1d(np.arange(matrix.shape[0]), held_out)
    if not len(held_out):
        return kept, None
    return kept, error_free_score(
        matrix[kept], contexts[kept], matrix[held_out], contexts[held_out]
    )


def error_free_score(
    known: sp.csr_matrix,
    known_contexts: NDArray[np.float32],
    held_out: sp.csr_matrix,
    contexts: NDArray[np.float32],
    *,
    most: int = 100_000,
) -> Callable[[ConceptNetwork], float]:
    """Make the early-stopping score: example MAP of priming from the true targets.

    Parameters
    ----------
    known, held_out : csr_matrix of bool, shape (n, n_labels) each
        Documents whose concepts are known, and documents to find the labels of.
    known_contexts, contexts : float32 array, shape (n, n_topics) each
        Their histograms.
    most : int
        The most different documents to know; of more, some are taken at equal steps.

    Returns
    -------
    callable
        Gives a network's score in 0..1, larger is better.
    """
    distinct, places = unique_rows(sp.csr_matrix(known))
    first = np.unique(places, return_index=True)[1]
    if len(first) > most:
        # Scoring goes through all of them after every epoch; a sample ranks labels as well.
        some = np.linspace(0, len(first) - 1, most).astype(np.int64)
        distinct, first = sp.csr_matrix(distinct[some]), first[some]
    distinct_contexts = known_contexts[first]
    blocks = [slice(at, at + _AT_A_TIME) for at in range(0, held_out.shape[0], _AT_A_TIME)]

    def score(network: ConceptNetwork) -> float:
        points = encode_documents(network, distinct, distinct_contexts)
        device = str(network.output.weight.device)
        index = ConceptIndex(
            points, distinct.indices, held_out.shape[1], memory_mb=1024.0, device=device
        )
        targets = row_means(held_out, encode_documents(network, held_out, contexts))
        total = 0.0
        for block in blocks:
            truth = held_out[block].toarray()
            total += len(truth) * example_map(truth, -index.distances(targets[block]))
        return total / held_out.shape[0]

    return score
