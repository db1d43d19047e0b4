"""Distinct rows of a document-label matrix: work on each label set once."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray


def unique_rows(documents: sp.csr_matrix) -> tuple[sp.csr_matrix, NDArray[np.int64]]:
    """Find the distinct rows of a document-label matrix.

    Parameters
    ----------
    documents : csr_matrix of bool, shape (n_documents, n_labels)
        Its column indices are put in order.

    Returns
    -------
    distinct : csr_matrix of bool, shape (n_distinct, n_labels)
        In the order in which they are first met.
    places : int64 array, shape (n_documents,)
        For each document, its row among the distinct ones.
    """
    documents.sort_indices()
    indices = documents.indices.astype(np.int64)
    seen: dict[bytes, int] = {}
    first: list[int] = []
    inverse = np.empty(documents.shape[0], dtype=np.int64)
    for row, (start, stop) in enumerate(
        zip(documents.indptr[:-1], documents.indptr[1:], strict=True)
    ):
        key = indices[start:stop].tobytes()
        number = seen.setdefault(key, len(seen))
        if number == len(first):
            first.append(row)
        inverse[row] = number
    return sp.csr_matrix(documents[first]), inverse
