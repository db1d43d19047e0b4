"""Step 2: numbers for labels and for contexts.

In: a document-label matrix. Out: `LabelDescriptor` gives one row per label (how it is used beside
the others), `ContextDescriptor` one topic histogram per document (what its labels are about).
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from polyseme._estimator import Estimator, TransformerMixin
from polyseme._rows import unique_rows
from polyseme._validation import (
    InputError,
    RandomState,
    as_generator,
    check_fitted,
    check_number,
    check_option,
    draw_seed,
)


class LabelDescriptor(Estimator):
    """Describe each label by its shared use with every other label (in the paper: t(τ)).

    A label's use is its tf-idf weight in each document; the dot products between the uses of two
    labels form a (n_labels, n_labels) matrix whose rows, scaled, are the descriptors.

    Parameters
    ----------
    term_frequency : {"binary", "share"}
        Weight of a label in a document: 1, or one over the document's number of labels.
    keep_diagonal : bool
        Whether a label's product with itself stays in its row.
    scaling : {"l2+std", "l2", "max", "none"}
        What happens to the rows. "l2+std" gives them length one, then standardises the columns
        and multiplies by `strength`; it is the largest single lever on the concept space.
    strength : float
        Standard deviation of the columns under "l2+std".

    Attributes
    ----------
    descriptors_ : float32 array, shape (n_labels, n_labels)
        One row per label; labels without a document have a row of zeros.
    idf_ : float64 array, shape (n_labels,)
        log(n_documents / number of documents with the label), 0 for labels without any.
    n_features_in_ : int
        The number of labels.

    Examples
    --------
    >>> import numpy as np
    >>> documents = np.array([[1, 1, 0], [1, 1, 0], [0, 0, 1]])
    >>> LabelDescriptor(scaling="l2").fit(documents).descriptors_.round(2)
    array([[0.71, 0.71, 0.  ],
           [0.71, 0.71, 0.  ],
           [0.  , 0.  , 1.  ]], dtype=float32)
    """

    def __init__(
        self,
        term_frequency: str = "binary",
        keep_diagonal: bool = True,
        scaling: str = "l2+std",
        strength: float = 0.3,
    ) -> None:
        self.term_frequency = term_frequency
        self.keep_diagonal = keep_diagonal
        self.scaling = scaling
        self.strength = strength

    def fit(self, matrix: sp.csr_matrix | NDArray[np.generic], y: None = None) -> Self:
        """Learn the descriptors of all labels.

        Parameters
        ----------
        matrix : csr_matrix or array of 0/1, shape (n_documents, n_labels)
            The documents to learn from.
        y : None
            Ignored.
        """
        owner = type(self).__name__
        check_option("term_frequency", self.term_frequency, ("binary", "share"), owner=owner)
        check_option("scaling", self.scaling, ("l2+std", "l2", "max", "none"), owner=owner)
        check_number("strength", self.strength, owner=owner, low=0, above=True)
        documents = _document_matrix(matrix, owner=owner).astype(np.float64)
        counts = np.asarray(documents.sum(axis=0)).ravel()
        self.idf_ = np.log(documents.shape[0] / np.maximum(counts, 1)) * (counts > 0)
        if self.term_frequency == "share":
            lengths = np.maximum(np.diff(documents.indptr), 1)
            documents = sp.diags(1.0 / lengths) @ documents
        uses = documents @ sp.diags(self.idf_)
        shared = np.asarray((uses.T @ uses).todense())
        if not self.keep_diagonal:
            np.fill_diagonal(shared, 0)
        self.descriptors_ = self._scale(shared, counts > 0).astype(np.float32)
        self.n_features_in_ = shared.shape[0]
        return self

    def restore(self, descriptors: NDArray[np.float32], idf: NDArray[np.float64]) -> Self:
        """Take back learned state that was saved as arrays."""
        self.descriptors_ = np.asarray(descriptors, dtype=np.float32)
        self.idf_ = np.asarray(idf, dtype=np.float64)
        self.n_features_in_ = len(self.idf_)
        return self

    def _scale(self, shared: NDArray[np.float64], used: NDArray[np.bool_]) -> NDArray[np.float64]:
        """Scale the rows of the shared-use matrix; rows of unused labels stay zero."""
        if self.scaling == "none":
            return shared
        if self.scaling == "max":
            scaled = shared / max(float(np.abs(shared).max()), np.finfo(float).tiny)
            return np.asarray(scaled)
        lengths = np.linalg.norm(shared, axis=1, keepdims=True)
        rows = np.divide(shared, lengths, out=np.zeros_like(shared), where=lengths > 0)
        if self.scaling == "l2":
            return np.asarray(rows)
        spread = rows[used].std(axis=0)
        spread[spread < 1e-12] = 1.0
        scaled = self.strength * (rows - rows[used].mean(axis=0)) / spread
        scaled[~used] = 0.0
        return np.asarray(scaled)


class ContextDescriptor(TransformerMixin, Estimator):  # type: ignore[misc]  # scikit-learn ships no types
    """Describe a document by a histogram over latent topics (in the paper: lc(δ)).

    Topics are learned by latent Dirichlet allocation with collapsed Gibbs sampling. A document's
    histogram is the mean of its variational posterior under the learned topics, a fixed-point
    iteration from a fixed start: **one label set always gives one histogram**, strictly positive.

    Parameters
    ----------
    n_topics : int or "hdp"
        The number of topics (in the paper: the size of Φ), at most one per label in use, or
        "hdp" to let a hierarchical Dirichlet process choose it.
    document_prior : float, optional
        Symmetric Dirichlet prior of a document's topics; default 1 / n_topics.
    topic_prior : float
        Symmetric Dirichlet prior of a topic's labels.
    n_iter : int
        Gibbs sweeps over the documents.
    max_topics : int
        The most topics "hdp" may return; it returns at least two.
    random_state : int, numpy Generator or None
        Seeds the sampler.

    Attributes
    ----------
    topics_ : float64 array, shape (n_topics_, n_labels)
        Each topic's distribution over the labels.
    n_topics_ : int
        The number of topics.
    n_features_in_ : int
        The number of labels.

    Notes
    -----
    The sampler runs on one thread, because its result depends on the number of threads.
    """

    def __init__(
        self,
        n_topics: int | str = 30,
        document_prior: float | None = None,
        topic_prior: float = 0.01,
        n_iter: int = 500,
        max_topics: int = 100,
        random_state: RandomState = None,
    ) -> None:
        self.n_topics = n_topics
        self.document_prior = document_prior
        self.topic_prior = topic_prior
        self.n_iter = n_iter
        self.max_topics = max_topics
        self.random_state = random_state

    def fit(self, matrix: sp.csr_matrix | NDArray[np.generic], y: None = None) -> Self:
        """Learn the topics.

        Parameters
        ----------
        matrix : csr_matrix or array of 0/1, shape (n_documents, n_labels)
            The documents to learn from; empty ones are passed over.
        y : None
            Ignored.
        """
        owner = type(self).__name__
        if self.n_topics != "hdp":
            check_number("n_topics", self.n_topics, owner=owner, low=2, high=32767, whole=True)
        if self.document_prior is not None:
            check_number("document_prior", self.document_prior, owner=owner, low=0, above=True)
        check_number("topic_prior", self.topic_prior, owner=owner, low=0, above=True)
        check_number("n_iter", self.n_iter, owner=owner, low=1, whole=True)
        check_number("max_topics", self.max_topics, owner=owner, low=2, whole=True)
        documents = _document_matrix(matrix, owner=owner)
        generator = as_generator(self.random_state)
        if self.n_topics == "hdp":
            n_topics = self._count_topics(documents, draw_seed(generator))
        else:
            n_topics = min(int(self.n_topics), max(2, len(np.unique(documents.indices))))
        prior = 1.0 / n_topics if self.document_prior is None else self.document_prior
        counts = _sample_topics(
            documents,
            draw_seed(generator),
            n_topics=n_topics,
            document_prior=prior,
            topic_prior=self.topic_prior,
            n_iter=self.n_iter,
        )
        # Labels that no document uses keep the prior's mass only.
        topics = counts + self.topic_prior
        self.topics_ = topics / topics.sum(axis=1, keepdims=True)
        self.n_topics_ = n_topics
        self.n_features_in_ = documents.shape[1]
        return self

    def transform(self, matrix: sp.csr_matrix | NDArray[np.generic]) -> NDArray[np.float32]:
        """Describe documents by their topics.

        Parameters
        ----------
        matrix : csr_matrix or array of 0/1, shape (n_documents, n_labels)
            A document without labels gets the uniform histogram.

        Returns
        -------
        float32 array, shape (n_documents, n_topics_)
            Rows are strictly positive and sum to one.
        """
        check_fitted(self, "topics_")
        owner = type(self).__name__
        documents = _document_matrix(matrix, owner=owner, may_be_empty=True)
        if documents.shape[1] != self.n_features_in_:
            raise InputError(
                f"The documents have {documents.shape[1]} labels but `{owner}` was fitted with "
                f"{self.n_features_in_}."
            )
        prior = 1.0 / self.n_topics_ if self.document_prior is None else self.document_prior
        histograms = _fold_in(documents, self.topics_, prior).astype(np.float32)
        # A tiny prior is zero in single precision, and the similarity of contexts takes logarithms.
        return np.maximum(histograms, np.finfo(np.float32).tiny)

    def restore(self, topics: NDArray[np.float64]) -> Self:
        """Take back learned state that was saved as an array."""
        self.topics_ = np.asarray(topics, dtype=np.float64)
        self.n_topics_, self.n_features_in_ = self.topics_.shape
        return self

    def _count_topics(self, documents: sp.csr_matrix, seed: int) -> int:
        """Let a hierarchical Dirichlet process choose the number of topics."""
        import tomotopy

        model = tomotopy.HDPModel(eta=self.topic_prior, initial_k=2, seed=seed)
        _add_documents(model, documents)
        model.train(self.n_iter, workers=1)
        return int(np.clip(model.live_k, 2, self.max_topics))


def _document_matrix(matrix: Any, *, owner: str, may_be_empty: bool = False) -> sp.csr_matrix:
    """Check a 0/1 document-label matrix and give it as a boolean CSR matrix of its own."""
    documents = sp.csr_matrix(matrix)
    if documents.dtype != bool and not np.isin(documents.data, (0, 1)).all():
        raise InputError(f"The documents given to `{owner}` must hold only 0 and 1.")
    documents = sp.csr_matrix(documents.astype(bool))
    documents.eliminate_zeros()
    documents.sum_duplicates()
    if documents.nnz == 0 and not may_be_empty:
        raise InputError(f"`{owner}` got no document with a label; pass at least one.")
    return documents


def _add_documents(model: Any, documents: sp.csr_matrix) -> None:
    """Hand the non-empty documents to a tomotopy model as lists of column numbers."""
    words = [str(column) for column in range(documents.shape[1])]
    for start, stop in zip(documents.indptr[:-1], documents.indptr[1:], strict=True):
        if stop > start:
            model.add_doc([words[column] for column in documents.indices[start:stop]])


def _sample_topics(
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
    _add_documents(model, documents)
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


def _fold_in(
    documents: sp.csr_matrix,
    topics: NDArray[np.float64],
    prior: float,
    *,
    n_iter: int = 100,
    tolerance: float = 1e-6,
    chunk: int = 4096,
) -> NDArray[np.float64]:
    """Infer topic histograms by mean-field iteration from a fixed start.

    Identical rows give identical results whatever stands beside them, because every operation
    works on one document (or one document-label entry) at a time and a document stops by itself.
    """
    from scipy.special import digamma

    unique, inverse = unique_rows(documents)
    n_topics = topics.shape[0]
    by_label = np.ascontiguousarray(topics.T)
    result = np.full((unique.shape[0], n_topics), 1.0 / n_topics)
    for start in range(0, unique.shape[0], chunk):
        part = unique[start : start + chunk]
        lengths = np.diff(part.indptr)
        rows = np.repeat(np.arange(part.shape[0]), lengths)
        likelihood = by_label[part.indices]
        gamma = np.full((part.shape[0], n_topics), prior) + (lengths / n_topics)[:, None]
        active = lengths > 0
        for _ in range(n_iter):
            if not active.any():
                break
            entries = active[rows]
            logs = digamma(gamma)
            # Only ratios matter; with many topics and few labels the plain exponentials are all 0.
            logs -= logs.max(axis=1, keepdims=True)
            weights = np.exp(logs)[rows[entries]] * likelihood[entries]
            weights /= weights.sum(axis=1, keepdims=True)
            starts = np.concatenate([[0], np.cumsum(lengths[active])[:-1]])
            updated = prior + np.add.reduceat(weights, starts, axis=0)
            change = np.abs(updated - gamma[active]).max(axis=1)
            gamma[active] = updated
            active[np.flatnonzero(active)[change < tolerance]] = False
        result[start : start + chunk] = gamma / gamma.sum(axis=1, keepdims=True)
    return result[inverse]
