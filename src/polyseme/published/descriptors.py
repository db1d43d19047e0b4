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
from polyseme._shifted import ShiftedRows
from polyseme._validation import (
    InputError,
    RandomState,
    as_generator,
    check_fitted,
    check_number,
    check_option,
    draw_seed,
)
from polyseme.published._topics import add_documents, fold_in, sample_topics, some_documents

# From so many labels on, with at most this share of their pairs in use, rows stay sparse.
_MANY_LABELS = 500
_FEW_PAIRS = 0.25
# Sweeps that topics of however many documents get.
_LEAST_SWEEPS = 100


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
    descriptors_ : float32 array or ShiftedRows, shape (n_labels, n_labels)
        One row per label; labels without a document have a row of zeros. Many labels few of which
        meet (500 or more, at most a quarter of the pairs) are described by sparse rows.
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
        shared = sp.csr_matrix(uses.T @ uses)
        if not self.keep_diagonal:
            shared.setdiag(0)
        n_labels = shared.shape[0]
        self.descriptors_: NDArray[np.float32] | ShiftedRows
        if n_labels >= _MANY_LABELS and shared.nnz <= _FEW_PAIRS * n_labels**2:
            self.descriptors_ = self._scale_sparse(shared, counts > 0)
        else:
            self.descriptors_ = self._scale(shared.toarray(), counts > 0).astype(np.float32)
        self.n_features_in_ = n_labels
        return self

    def restore(
        self, descriptors: NDArray[np.float32] | ShiftedRows, idf: NDArray[np.float64]
    ) -> Self:
        """Take back learned state that was saved as arrays."""
        if not isinstance(descriptors, ShiftedRows):
            descriptors = np.asarray(descriptors, dtype=np.float32)
        self.descriptors_ = descriptors
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

    def _scale_sparse(self, shared: sp.csr_matrix, used: NDArray[np.bool_]) -> ShiftedRows:
        """Scale sparse rows in the same way, the columns' means apart."""
        n_labels = shared.shape[0]
        none = np.zeros(n_labels, dtype=np.float32)
        in_use = used.astype(np.float32)
        if self.scaling == "none":
            return ShiftedRows(shared.astype(np.float32), none, in_use)
        if self.scaling == "max":
            greatest = max(float(abs(shared).max()), np.finfo(float).tiny)
            return ShiftedRows(sp.csr_matrix(shared / greatest, dtype=np.float32), none, in_use)
        lengths = np.sqrt(np.asarray(shared.multiply(shared).sum(axis=1)).ravel())
        inverse = np.divide(1.0, lengths, out=np.zeros(n_labels), where=lengths > 0)
        rows = sp.csr_matrix(sp.diags(inverse) @ shared)
        if self.scaling == "l2":
            return ShiftedRows(rows.astype(np.float32), none, in_use)
        n_used = max(int(used.sum()), 1)
        mean = np.asarray(rows.sum(axis=0)).ravel() / n_used
        square = np.asarray(rows.multiply(rows).sum(axis=0)).ravel() / n_used
        variance = square - mean**2
        # What is left of a constant column is rounding.
        factor = self.strength / np.sqrt(np.where(variance > 1e-13 * square, variance, 1.0))
        standard = sp.csr_matrix(rows @ sp.diags(factor), dtype=np.float32)
        return ShiftedRows(standard, (factor * mean).astype(np.float32), in_use)


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
        Gibbs sweeps over the documents; see `max_visits`.
    max_topics : int
        The most topics "hdp" may return; it returns at least two.
    max_documents : int, optional
        Topics are learned from at most so many documents, drawn at random where there are more;
        they describe all. None: from all.
    max_visits : int, optional
        Over many documents fewer sweeps do: no more than visit so many documents in all, though
        at least 100 (or `n_iter`, where that is less). None: always `n_iter`.
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
        max_documents: int | None = 200_000,
        max_visits: int | None = 20_000_000,
        random_state: RandomState = None,
    ) -> None:
        self.n_topics = n_topics
        self.document_prior = document_prior
        self.topic_prior = topic_prior
        self.n_iter = n_iter
        self.max_topics = max_topics
        self.max_documents = max_documents
        self.max_visits = max_visits
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
        if self.max_documents is not None:
            check_number("max_documents", self.max_documents, owner=owner, low=2, whole=True)
        if self.max_visits is not None:
            check_number("max_visits", self.max_visits, owner=owner, low=1, whole=True)
        documents = _document_matrix(matrix, owner=owner)
        generator = as_generator(self.random_state)
        documents = some_documents(documents, self.max_documents, generator)
        if self.n_topics == "hdp":
            n_topics = self._count_topics(documents, draw_seed(generator))
        else:
            n_topics = min(int(self.n_topics), max(2, len(np.unique(documents.indices))))
        prior = 1.0 / n_topics if self.document_prior is None else self.document_prior
        counts = sample_topics(
            documents,
            draw_seed(generator),
            n_topics=n_topics,
            document_prior=prior,
            topic_prior=self.topic_prior,
            n_iter=self._n_sweeps(documents),
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
        histograms = fold_in(documents, self.topics_, prior)
        # A tiny prior is zero in single precision, and the similarity of contexts takes logarithms.
        return np.maximum(histograms, np.finfo(np.float32).tiny)

    def restore(self, topics: NDArray[np.float64]) -> Self:
        """Take back learned state that was saved as an array."""
        self.topics_ = np.asarray(topics, dtype=np.float64)
        self.n_topics_, self.n_features_in_ = self.topics_.shape
        return self

    def _n_sweeps(self, documents: sp.csr_matrix) -> int:
        """Say how often the sampler goes over these documents."""
        if self.max_visits is None:
            return self.n_iter
        n_filled = max(1, int(np.count_nonzero(np.diff(documents.indptr))))
        return min(self.n_iter, max(_LEAST_SWEEPS, self.max_visits // n_filled))

    def _count_topics(self, documents: sp.csr_matrix, seed: int) -> int:
        """Let a hierarchical Dirichlet process choose the number of topics."""
        import tomotopy

        model = tomotopy.HDPModel(eta=self.topic_prior, initial_k=2, seed=seed)
        add_documents(model, documents)
        model.train(self._n_sweeps(documents), workers=1)
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
