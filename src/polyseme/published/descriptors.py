"""Descriptors of labels and of contexts.

In: a document-label matrix. Out: `LabelDescriptor` gives one row per label (how it is used beside
the others), `ContextDescriptor` one topic histogram per document (what its labels are about).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from polyseme.base.estimator import Estimator, TransformerMixin
from polyseme.base.validation import (
    InputError,
    RandomState,
    as_generator,
    check_fitted,
    check_number,
    check_sparse,
    draw_seed,
)
from polyseme.documents.corpus import unique_rows
from polyseme.storage.array_checks import (
    UNIT_LIMIT,
    Array,
    Csr,
    check_arrays,
    declare_parameters,
    matrix_of,
    require,
)
from polyseme.storage.model_file import as_python_value

if TYPE_CHECKING:
    from torch import Tensor

# From so many labels on, with at most this share of their pairs in use, rows stay sparse.
_MANY_LABELS = 500
_FEW_PAIRS = 0.25
# Sweeps that topics of however many documents get.
_LEAST_SWEEPS = 100
# Mean-field inference of a document's topics: iterations, when to stop, numbers worked on at once.
_N_ITERATIONS = 100
_TOLERANCE = 1e-6
_BLOCK = 2**18


class CentredRows(NamedTuple):
    """Sparse rows with centred columns, the matrix ``rows - used ⊗ mean`` held as its parts.

    Scaling the columns of a sparse matrix keeps it sparse; subtracting their means would fill it.
    """

    rows: sp.csr_matrix  # float32, (n, n_columns)
    mean: NDArray[np.float32]  # (n_columns,): subtracted from each row in use
    used: NDArray[np.float32]  # (n,): 1, or 0 for a row of zeros from which nothing is subtracted

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return int(self.rows.shape[0]), int(self.rows.shape[1])

    def take(self, chosen: NDArray[np.int64]) -> CentredRows:
        """Return the chosen rows."""
        return CentredRows(self.rows[chosen], self.mean, self.used[chosen])

    def toarray(self) -> NDArray[np.float32]:
        """Return the matrix as a dense array."""
        return np.asarray(self.rows.toarray() - self.used[:, None] * self.mean, dtype=np.float32)

    def times(self, weights: Tensor) -> Tensor:
        """Multiply by a float32 matrix, (n_columns, h) to (n, h)."""
        import torch

        product = _sparse_product(self.rows, weights)
        mean = torch.from_numpy(self.mean)
        used = torch.from_numpy(self.used)
        transposed = weights.t()
        subtracted = torch.mv(transposed, mean)
        return product.addr_(used, subtracted, alpha=-1.0)

    def transposed_times(self, values: Tensor, out: Tensor) -> None:
        """Multiply the transpose by a float32 matrix, (n, h), into `out`, (n_columns, h)."""
        import torch

        columns = self.rows.tocsc()
        product = _sparse_product(columns, values)
        used = torch.from_numpy(self.used)
        mean = torch.from_numpy(self.mean)
        transposed = values.t()
        subtracted = torch.mv(transposed, used)
        torch.addr(product, mean, subtracted, alpha=-1.0, out=out)


def _sparse_product(matrix: sp.csr_matrix | sp.csc_matrix, dense: Tensor) -> Tensor:
    """Multiply a CSR matrix, or the transpose of a CSC one, by a dense matrix."""
    # As a weighted sum of the matrix's rows, for which torch's kernel is 3x as fast as scipy's.
    from torch import from_numpy
    from torch.nn.functional import embedding_bag

    if not matrix.nnz:
        return dense.new_zeros((len(matrix.indptr) - 1, dense.shape[1]))
    return embedding_bag(
        from_numpy(matrix.indices.astype(np.int64)),
        dense,
        from_numpy(matrix.indptr.astype(np.int64)),
        mode="sum",
        per_sample_weights=from_numpy(matrix.data),
        include_last_offset=True,
    )


@dataclass(repr=False, eq=False)  # both are scikit-learn's
class LabelDescriptor(Estimator):
    """Describe each label by its shared use with every other label (in the paper: t(τ)).

    A label's use is its tf-idf weight in each document; the dot products between the uses of two
    labels form a (n_labels, n_labels) matrix. Its rows get length one, its columns are standardised
    and multiplied by `strength`.

    Parameters
    ----------
    strength : float
        Standard deviation of the columns, the largest single lever on the concept space.

    Attributes
    ----------
    descriptors_ : float32 array or CentredRows, shape (n_labels, n_labels)
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
    >>> LabelDescriptor(strength=1.0).fit(documents).descriptors_.round(2)
    array([[ 0.71,  0.71, -0.71],
           [ 0.71,  0.71, -0.71],
           [-1.41, -1.41,  1.41]], dtype=float32)
    """

    strength: float = 0.3

    def fit(self, matrix: sp.csr_matrix | NDArray[np.generic], y: None = None) -> Self:
        """Learn the descriptors of all labels from 0/1 documents, (n_documents, n_labels)."""
        from sklearn.preprocessing import normalize
        from sklearn.utils.sparsefuncs import mean_variance_axis

        owner = type(self).__name__
        self._check_parameters()
        documents = _document_matrix(matrix, owner=owner).astype(np.float64)
        n_documents, n_labels = documents.shape

        # tf-idf weights, and their products between labels at length one.
        counts = np.asarray(documents.sum(axis=0)).ravel()
        used = counts > 0
        self.idf_ = np.log(n_documents / np.maximum(counts, 1)) * used
        uses = documents @ sp.diags(self.idf_)
        products = sp.csr_matrix(uses.T @ uses)
        rows = normalize(products)

        # Standardise the columns.
        mean, variance = mean_variance_axis(rows[used], axis=0)
        spread = np.sqrt(variance)
        spread[spread < 1e-12] = 1.0
        self.descriptors_: NDArray[np.float32] | CentredRows
        if n_labels >= _MANY_LABELS and rows.nnz <= _FEW_PAIRS * n_labels**2:
            factor = self.strength / spread
            scaled = sp.csr_matrix(rows @ sp.diags(factor), dtype=np.float32)
            centre = (factor * mean).astype(np.float32)
            self.descriptors_ = CentredRows(scaled, centre, used.astype(np.float32))
        else:
            dense = self.strength * (rows.toarray() - mean) / spread
            dense[~used] = 0.0
            self.descriptors_ = dense.astype(np.float32)
        self.n_features_in_ = n_labels
        return self

    def get_state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return the fitted descriptor as JSON values and arrays."""
        config = {name: as_python_value(value) for name, value in self.get_params().items()}
        descriptors = self.descriptors_
        arrays: dict[str, NDArray[Any]] = {"idf": self.idf_}
        if isinstance(descriptors, CentredRows):
            rows = descriptors.rows
            arrays["mean"] = descriptors.mean
            arrays["used"] = descriptors.used
            arrays["data"] = rows.data
            arrays["indices"] = rows.indices
            arrays["indptr"] = rows.indptr
        else:
            arrays["descriptors"] = descriptors
        return config, arrays

    @classmethod
    def from_state(cls, config: dict[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Self:
        """Rebuild a fitted descriptor from `get_state`."""
        declare_parameters(cls).check(config)
        dense = "descriptors" in arrays
        declared = _IDF | (_DENSE if dense else _SPARSE)
        sizes = check_arrays(arrays, declared)
        n_labels = sizes["n_labels"]
        descriptor = cls(**config)
        descriptor._check_parameters()
        descriptor.idf_ = np.array(arrays["idf"])
        descriptor.n_features_in_ = n_labels
        if dense:
            descriptor.descriptors_ = np.array(arrays["descriptors"])
        else:
            rows = matrix_of(arrays, (n_labels, n_labels))
            mean = np.array(arrays["mean"])
            used = np.array(arrays["used"])
            descriptor.descriptors_ = CentredRows(rows, mean, used)
        return descriptor

    def _check_parameters(self) -> None:
        """Raise on a parameter out of its range."""
        owner = type(self).__name__
        check_number("strength", self.strength, owner=owner, low=0, high=1e6, above=True)


# What the state of a label descriptor holds: idf and either dense rows or sparse ones.
_IDF: dict[str, Array | Csr] = {"idf": Array("float64", ("n_labels",), 0, 1e3)}
_DENSE: dict[str, Array | Csr] = {"descriptors": Array("float32", ("n_labels", "n_labels"))}
_SPARSE: dict[str, Array | Csr] = {
    "": Csr(("n_labels", "n_labels"), "float32"),
    "mean": Array("float32", ("n_labels",)),
    "used": Array("float32", ("n_labels",), 0, 1),
}


@dataclass(repr=False, eq=False)  # both are scikit-learn's
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

    n_topics: int | str = 30
    document_prior: float | None = None
    topic_prior: float = 0.01
    n_iter: int = 500
    max_topics: int = 100
    max_documents: int | None = 200_000
    max_visits: int | None = 20_000_000
    random_state: RandomState = None

    def fit(self, matrix: sp.csr_matrix | NDArray[np.generic], y: None = None) -> Self:
        """Learn the topics from 0/1 documents, (n_documents, n_labels), without the empty ones."""
        owner = type(self).__name__
        self._check_parameters()
        documents = _document_matrix(matrix, owner=owner)
        generator = as_generator(self.random_state)
        filled = np.flatnonzero(np.diff(documents.indptr))
        if self.max_documents is not None and len(filled) > self.max_documents:
            filled = np.sort(generator.choice(filled, self.max_documents, replace=False))
            documents = sp.csr_matrix(documents[filled])

        n_sweeps = self.n_iter
        if self.max_visits is not None:
            affordable_sweeps = self.max_visits // len(filled)
            n_sweeps = min(n_sweeps, max(_LEAST_SWEEPS, affordable_sweeps))

        if self.n_topics == "hdp":
            import tomotopy

            process_seed = draw_seed(generator)
            process = tomotopy.HDPModel(eta=self.topic_prior, initial_k=2, seed=process_seed)
            _train_topics(process, documents, n_sweeps)
            n_topics = int(np.clip(process.live_k, 2, self.max_topics))
        else:
            n_used_labels = len(np.unique(documents.indices))
            n_topics = min(int(self.n_topics), max(2, n_used_labels))

        seed = draw_seed(generator)
        self.topics_ = self._sample_topics(documents, n_topics, n_sweeps, seed)
        self.n_topics_, self.n_features_in_ = self.topics_.shape
        return self

    def transform(self, matrix: sp.csr_matrix | NDArray[np.generic]) -> NDArray[np.float32]:
        """Describe 0/1 documents by their topics, (n, n_labels) to (n, n_topics_).

        Rows are strictly positive and sum to one; a document without labels has the uniform
        histogram.
        """
        check_fitted(self, "topics_")
        owner = type(self).__name__
        documents = _document_matrix(matrix, owner=owner, may_be_empty=True)
        n_labels = documents.shape[1]
        if n_labels != self.n_features_in_:
            raise InputError(
                f"The documents have {n_labels} labels but `{owner}` was fitted with "
                f"{self.n_features_in_}."
            )
        prior = self._prior(self.n_topics_)
        histograms = _infer_topics(documents, self.topics_, prior)
        # A tiny prior is zero in single precision, and the similarity of contexts takes logarithms.
        smallest = np.finfo(np.float32).tiny
        return np.maximum(histograms, smallest)

    def get_state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return the fitted descriptor as JSON values and arrays; a generator is left out."""
        config = {name: as_python_value(value) for name, value in self.get_params().items()}
        if isinstance(self.random_state, np.random.Generator):
            config["random_state"] = None
        return config, {"topics": self.topics_}

    @classmethod
    def from_state(cls, config: dict[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Self:
        """Rebuild a fitted descriptor from `get_state`."""
        declare_parameters(cls).check(config)
        sizes = check_arrays(arrays, _TOPICS)
        require(sizes["n_topics"], "topics", "one topic at the least")
        descriptor = cls(**config)
        descriptor._check_parameters()
        descriptor.topics_ = np.array(arrays["topics"])
        descriptor.n_topics_, descriptor.n_features_in_ = descriptor.topics_.shape
        return descriptor

    def _check_parameters(self) -> None:
        """Raise on a parameter out of its range."""
        owner = type(self).__name__
        if self.n_topics != "hdp":
            check_number("n_topics", self.n_topics, owner=owner, low=2, high=32767, whole=True)
        for name in ("document_prior", "topic_prior"):
            prior = getattr(self, name)
            if prior is not None:
                check_number(name, prior, owner=owner, low=0, high=1e12, above=True)
        lowest = {"n_iter": 1, "max_topics": 2, "max_documents": 2, "max_visits": 1}
        for name, low in lowest.items():
            count = getattr(self, name)
            if count is not None:
                check_number(name, count, owner=owner, low=low, whole=True)

    def _prior(self, n_topics: int) -> float:
        """Return the prior of a document's topics."""
        if self.document_prior is None:
            return 1.0 / n_topics
        return self.document_prior

    def _sample_topics(
        self, documents: sp.csr_matrix, n_topics: int, n_sweeps: int, seed: int
    ) -> NDArray[np.float64]:
        """Learn topics by collapsed Gibbs sampling, (n_topics, n_labels)."""
        import tomotopy

        alpha = self._prior(n_topics)
        eta = self.topic_prior
        model = tomotopy.LDAModel(k=n_topics, alpha=alpha, eta=eta, seed=seed)
        model.optim_interval = 0  # priors stay as they are
        _train_topics(model, documents, n_sweeps)
        used_columns = [int(word) for word in model.used_vocabs]
        columns = np.array(used_columns)
        smoothing = eta * len(columns)
        sizes = np.asarray(model.get_count_by_topics(), dtype=np.float64)
        n_labels = documents.shape[1]
        counts = np.zeros((n_topics, n_labels))
        for topic in range(n_topics):
            # tomotopy gives smoothed distributions; undo the smoothing to get the counts.
            smoothed = model.get_topic_word_dist(topic)
            distribution = np.asarray(smoothed, dtype=np.float64)
            total = sizes[topic] + smoothing
            topic_counts = distribution * total - eta
            counts[topic, columns] = np.maximum(topic_counts, 0.0)
        # Labels that no document uses keep the prior's mass only.
        topics = counts + eta
        totals = topics.sum(axis=1, keepdims=True)
        return np.asarray(topics / totals)


def _train_topics(model: Any, documents: sp.csr_matrix, n_sweeps: int) -> None:
    """Train a tomotopy model on the non-empty documents, as lists of column numbers."""
    n_labels = documents.shape[1]
    words = [str(column) for column in range(n_labels)]
    for start, stop in pairwise(documents.indptr):
        columns = documents.indices[start:stop]
        if len(columns):
            document = [words[column] for column in columns]
            model.add_doc(document)
    model.train(n_sweeps, workers=1)


# What the state of a context descriptor holds; a label that no topic has could not be looked up.
_TOPICS: dict[str, Array | Csr] = {
    "topics": Array("float64", ("n_topics", "n_labels"), 1e-300, UNIT_LIMIT)
}


def _infer_topics(
    documents: sp.csr_matrix, topics: NDArray[np.float64], prior: float
) -> NDArray[np.float32]:
    """Infer topic histograms by mean-field iteration, (n_documents, n_topics)."""
    # Distinct documents of one length are worked on together. Identical rows give identical results
    # whatever stands beside them: every operation works on one document, which stops by itself.
    distinct, inverse = unique_rows(documents)
    n_topics = topics.shape[0]
    label_topics = np.ascontiguousarray(topics.T)
    uniform = 1.0 / n_topics
    histograms = np.full((distinct.shape[0], n_topics), uniform, dtype=np.float32)
    lengths = np.diff(distinct.indptr)
    for length in np.unique(lengths[lengths > 0]).tolist():
        rows = np.flatnonzero(lengths == length)
        step = max(1, _BLOCK // (length * n_topics))
        for start in range(0, len(rows), step):
            block = rows[start : start + step]
            entries = distinct.indptr[block][:, None] + np.arange(length)
            likelihood = label_topics[distinct.indices[entries]]
            gamma = _topic_posterior(likelihood, prior)
            histograms[block] = gamma / gamma.sum(axis=1, keepdims=True)
    return np.asarray(histograms[inverse])


def _topic_posterior(likelihood: NDArray[np.float64], prior: float) -> NDArray[np.float64]:
    """Iterate parameters of documents' topics, (n, n_labels_each, n_topics) to (n, n_topics)."""
    # A label's share of a topic is the product of a document's weight and the label's likelihood,
    # divided by the sum over topics; summed over labels, the weight stands outside the sum.
    from scipy.special import digamma

    n, length, n_topics = likelihood.shape
    posterior = np.empty((n, n_topics))
    rows = np.arange(n)
    gamma = np.full((n, n_topics), prior + length / n_topics)
    for _ in range(_N_ITERATIONS):
        weights = digamma(gamma)
        # Only ratios matter; with many topics and few labels the plain exponentials are all 0.
        weights -= weights.max(axis=1, keepdims=True)
        np.exp(weights, out=weights)
        totals = np.einsum("nlt,nt->nl", likelihood, weights)
        updated = np.einsum("nl,nlt->nt", 1.0 / totals, likelihood)
        updated *= weights
        updated += prior
        change = np.abs(updated - gamma).max(axis=1)
        moving = change >= _TOLERANCE
        gamma = updated
        if not moving.all():
            posterior[rows[~moving]] = gamma[~moving]
            rows = rows[moving]
            gamma = gamma[moving]
            likelihood = likelihood[moving]
            if not len(rows):
                break
    posterior[rows] = gamma
    return posterior


def _document_matrix(matrix: Any, *, owner: str, may_be_empty: bool = False) -> sp.csr_matrix:
    """Check a 0/1 document-label matrix and return it as a boolean CSR matrix of its own."""
    if sp.issparse(matrix):
        matrix = check_sparse(matrix, "documents", owner=owner)
    documents = sp.csr_matrix(matrix)
    if documents.dtype != bool:
        is_binary = np.isin(documents.data, (0, 1))
        if not is_binary.all():
            raise InputError(f"The documents given to `{owner}` must hold only 0 and 1.")
    documents = documents.astype(bool)
    documents = sp.csr_matrix(documents)
    documents.eliminate_zeros()
    documents.sum_duplicates()
    if documents.nnz == 0 and not may_be_empty:
        raise InputError(f"`{owner}` got no document with a label; pass at least one.")
    return documents
