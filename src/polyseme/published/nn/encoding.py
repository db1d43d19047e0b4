"""Documents through a network: every label in its context, and every document's mean.

In: a network, a document-label matrix and context histograms. Out: points.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray

from polyseme.published.nn.networks import ConceptNetwork


def encode_documents(
    network: ConceptNetwork,
    matrix: sp.csr_matrix,
    contexts: NDArray[np.float32],
    *,
    chunk: int = 16384,
) -> NDArray[np.float32]:
    """Embed every label of every document with a network.

    Parameters
    ----------
    network : ConceptNetwork
    matrix : csr_matrix of bool, shape (n_documents, n_labels)
    contexts : float32 array, shape (n_documents, n_topics)
    chunk : int
        Concepts embedded at a time.

    Returns
    -------
    float32 array, shape (matrix.nnz, n_components)
    """
    rows = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
    device = network.output.weight.device
    labels = torch.from_numpy(matrix.indices.astype(np.int64)).to(device)
    points = np.empty((len(rows), network.output.in_features), dtype=np.float32)
    with torch.no_grad():
        # Few concepts hold few labels, whose descriptors alone are multiplied then.
        inputs = network.label_inputs() if len(rows) > network.n_labels else None
        for start in range(0, len(rows), chunk):
            part = slice(start, start + chunk)
            histograms = torch.from_numpy(contexts[rows[part]]).to(device)
            points[part] = network.encode(labels[part], histograms, inputs).cpu().numpy()
    return points


def row_means(matrix: sp.csr_matrix, points: NDArray[np.float32]) -> NDArray[np.float32]:
    """Average the points of each document.

    Parameters
    ----------
    matrix : csr_matrix of bool, shape (n_documents, n_labels)
    points : float32 array, shape (matrix.nnz, n_components)

    Returns
    -------
    float32 array, shape (n_documents, n_components)
        NaN for a document without labels.
    """
    lengths = np.diff(matrix.indptr)
    means = np.full((matrix.shape[0], points.shape[1]), np.nan, dtype=np.float32)
    filled = np.flatnonzero(lengths)
    if len(filled):
        sums = np.add.reduceat(points, matrix.indptr[filled], axis=0)
        means[filled] = sums / lengths[filled, None]
    return means
