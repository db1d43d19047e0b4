"""Topics: learned by sampling from documents, and folded into documents one by one.

In: a document-label matrix. Out: label counts by topic, and one topic histogram per document.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from polyseme.corpus import unique_rows


def some_documents(
    documents: sp.csr_matrix, most: int | None, generator: np.random.Generator
) -> sp.csr_matrix:
    """Draw documents with labels where there are more than `most`; their order stays."""
    filled = np.flatnonzero(np.diff(documents.indptr))
    if most is None or len(filled) <= most:
        return documents
    chosen = np.sort(generator.choice(filled, most, replace=False))
    return sp.csr_matrix(documents[chosen])


def add_documents(model: Any, documents: sp.csr_matrix) -> None:
    """Hand the non-empty documents to a tomotopy model as lists of column numbers."""
    words = [str(column) for column in range(documents.shape[1])]
    for start, stop in zip(documents.indptr[:-1], documents.indptr[1:], strict=True):
        if stop > start:
            model.add_doc([words[column] for column in documents.indices[start:stop]])


def sample_topics(
    documents: sp.csr_matrix,
    seed: int,
    *,
    n_topics: int,
    document_prior: float,
    topic_prior: float,
    n_iter: int,
) -> NDArray[np.float64]:
    """Run collapsed Gibbs sampling; give expected label counts per topic, (n_topics, n_labels)."""
    import tomotopy

    model = tomotopy.LDAModel(k=n_topics, alpha=document_prior, eta=topic_prior, seed=seed)
    model.optim_interval = 0
    add_documents(model, documents)
    model.train(n_iter, workers=1)
    columns = np.array([int(word) for word in model.used_vocabs])
    sizes = np.asarray(model.get_count_by_topics(), dtype=np.float64)
    counts = np.zeros((n_topics, documents.shape[1]))
    for topic in range(n_topics):
        distribution = np.asarray(model.get_topic_word_dist(topic), dtype=np.float64)
        # tomotopy gives smoothed distributions; undo the smoothing to get the counts.
        total = sizes[topic] + topic_prior * len(columns)
        counts[topic, columns] = np.maximum(distribution * total - topic_prior, 0.0)
    return counts


def fold_in(
    documents: sp.csr_matrix,
    topics: NDArray[np.float64],
    prior: float,
    *,
    n_iter: int = 100,
    tolerance: float = 1e-6,
    block: int = 2**18,
) -> NDArray[np.float32]:
    """Infer topic histograms by mean-field iteration from a fixed start, (n_documents, n_topics).

    Distinct documents of one length are worked on together, `block` numbers at a time. Identical
    rows give identical results whatever stands beside them, because every operation works on one
    document at a time and a document stops by itself.
    """
    unique, inverse = unique_rows(documents)
    n_topics = topics.shape[0]
    by_label = np.ascontiguousarray(topics.T)
    result = np.full((unique.shape[0], n_topics), 1.0 / n_topics, dtype=np.float32)
    lengths = np.diff(unique.indptr)
    order = np.argsort(lengths, kind="stable")
    ends = np.searchsorted(lengths[order], np.arange(1, lengths.max(initial=0) + 2))
    for length in np.unique(lengths[lengths > 0]).tolist():
        rows = order[ends[length - 1] : ends[length]]
        step = max(1, block // (length * n_topics))
        for start in range(0, len(rows), step):
            some = rows[start : start + step]
            entries = unique.indptr[some][:, None] + np.arange(length)
            gamma = posterior(by_label[unique.indices[entries]], prior, n_iter, tolerance)
            result[some] = gamma / gamma.sum(axis=1, keepdims=True)
    return np.asarray(result[inverse])


def posterior(
    likelihood: NDArray[np.float64], prior: float, n_iter: int, tolerance: float
) -> NDArray[np.float64]:
    """Iterate the parameters of documents' topics, (n, n_labels_each, n_topics) to (n, n_topics).

    A label's share of a topic is the product of a document's weight and the label's likelihood,
    divided by the sum over topics; summed over labels, the weight stands outside the sum.
    """
    from scipy.special import digamma

    n, length, n_topics = likelihood.shape
    result = np.empty((n, n_topics))
    places = np.arange(n)
    gamma = np.full((n, n_topics), prior + length / n_topics)
    for _ in range(n_iter):
        weights = digamma(gamma)
        # Only ratios matter; with many topics and few labels the plain exponentials are all 0.
        weights -= weights.max(axis=1, keepdims=True)
        np.exp(weights, out=weights)
        totals = np.einsum("nlt,nt->nl", likelihood, weights)
        updated = np.einsum("nl,nlt->nt", 1.0 / totals, likelihood)
        updated *= weights
        updated += prior
        moving = np.abs(updated - gamma).max(axis=1) >= tolerance
        gamma = updated
        if not moving.all():
            result[places[~moving]] = gamma[~moving]
            places, gamma, likelihood = places[moving], gamma[moving], likelihood[moving]
            if not len(places):
                break
    result[places] = gamma
    return result
