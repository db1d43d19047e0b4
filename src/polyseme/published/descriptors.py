"""Descriptors of labels and of contexts (in the paper: section 3.2.1).

In: a document-label matrix. Out: `LabelDescriptor` gives one row per label (how it is used beside
the others), `ContextDescriptor` one topic histogram per document (what its labels are about).

Terms: a document-label matrix is 0/1, (n_documents, n_labels), its columns in the order of the
vocabulary. A label is *used* if some document has it. A document's *context* is all its labels.
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

# From so many labels on, with at most this share of their pairs in use, rows stay sparse. The form
# only changes speed and memory; results differ by rounding.
_MANY_LABELS = 500
_FEW_PAIRS = 0.25
# Gibbs sweeps of `ContextDescriptor.fit` at the least, over however many documents.
_LEAST_SWEEPS = 100
# Mean-field inference of a document's topics: the most iterations, and the change of its Dirichlet
# parameters below which it stops. Fitted models depend on both: their histograms are recomputed.
_MOST_ITERATIONS = 100
_TOLERANCE = 1e-6
# Numbers in a block of likelihoods, float64: 2 MB. It changes no result.
_BLOCK_NUMBERS = 2**18


class CentredRows(NamedTuple):
    """Sparse rows with centred columns, the matrix ``rows - used ⊗ mean`` held as its parts.

    Scaling the columns of a sparse matrix keeps it sparse; subtracting their means would fill it.
    """

    rows: sp.csr_matrix  # float32, (n_rows, n_columns): a row per label, scaled but not centred
    mean: NDArray[np.float32]  # (n_columns,): subtracted from each row in use
    used: NDArray[np.float32]  # (n_rows,): 1, or 0 for a row of zeros, which stays zero

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return int(self.rows.shape[0]), int(self.rows.shape[1])

    def take(self, row_numbers: NDArray[np.int64]) -> CentredRows:
        """Return copies of some rows, in the order of their numbers; the mean is shared."""
        return CentredRows(
            rows=self.rows[row_numbers],
            mean=self.mean,
            used=self.used[row_numbers],
        )

    def toarray(self) -> NDArray[np.float32]:
        """Return the matrix as a dense array, (n_rows, n_columns)."""
        used = self.used[:, None]
        subtracted = used * self.mean
        dense = self.rows.toarray()
        centred = dense - subtracted
        return np.asarray(centred, dtype=np.float32)

    def times(self, weights: Tensor) -> Tensor:
        """Multiply by float32 weights, (n_columns, n_units) to (n_rows, n_units), on the CPU."""
        import torch

        product = _sparse_product(self.rows, weights)
        mean = torch.from_numpy(self.mean)
        used = torch.from_numpy(self.used)
        transposed = weights.t()
        mean_product = torch.mv(transposed, mean)
        # The product with ``used ⊗ mean`` has rank one: ``used ⊗ mean_product``.
        product.addr_(
            used,
            mean_product,
            alpha=-1.0,
        )
        return product

    def transposed_times(self, slopes: Tensor, out: Tensor) -> None:
        """Multiply the transpose by float32 slopes, (n_rows, n_units), on the CPU.

        The product, (n_columns, n_units), fills `out`.
        """
        import torch

        columns = self.rows.tocsc()
        product = _sparse_product(columns, slopes)
        used = torch.from_numpy(self.used)
        mean = torch.from_numpy(self.mean)
        transposed = slopes.t()
        slope_sums = torch.mv(transposed, used)
        torch.addr(
            product,
            mean,
            slope_sums,
            alpha=-1.0,
            out=out,
        )


def _sparse_product(matrix: sp.csr_matrix | sp.csc_matrix, dense: Tensor) -> Tensor:
    """Multiply a float32 CSR matrix, or the transpose of a CSC one, by a dense matrix."""
    # Each row of the product is a weighted sum of rows of the dense matrix, for which torch's
    # `embedding_bag` is 3x as fast as scipy's product.
    from torch import from_numpy
    from torch.nn.functional import embedding_bag

    if not matrix.nnz:
        n_rows = len(matrix.indptr) - 1
        n_columns = dense.shape[1]
        return dense.new_zeros((n_rows, n_columns))
    indices = matrix.indices.astype(np.int64)
    offsets = matrix.indptr.astype(np.int64)
    return embedding_bag(
        from_numpy(indices),
        dense,
        from_numpy(offsets),
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
        """Learn the descriptors of all labels.

        Parameters
        ----------
        matrix : sparse or dense 0/1 matrix, shape (n_documents, n_labels)
            At least one document has a label. It is not changed.
        y : None
            Ignored; scikit-learn passes it.
        """
        from sklearn.preprocessing import normalize
        from sklearn.utils.sparsefuncs import mean_variance_axis

        owner = type(self).__name__
        self._check_parameters()
        documents = _document_matrix(matrix, owner=owner)
        documents = documents.astype(np.float64)
        n_documents, n_labels = documents.shape

        # tf-idf weights of each label in each document.
        document_counts = np.asarray(documents.sum(axis=0)).ravel()
        used = document_counts > 0
        inverse_frequency = n_documents / np.maximum(document_counts, 1)
        self.idf_ = np.log(inverse_frequency) * used
        weights = sp.diags(self.idf_)
        uses = documents @ weights

        # Dot products between the uses of labels; each label's row gets length one.
        products = uses.T @ uses
        rows = normalize(sp.csr_matrix(products))

        # Standardise the columns over the labels in use; a constant column only loses its mean.
        mean, variance = mean_variance_axis(rows[used], axis=0)
        spread = np.sqrt(variance)
        spread[spread < 1e-12] = 1.0
        self.descriptors_: NDArray[np.float32] | CentredRows
        n_pairs_in_use = rows.nnz
        has_few_pairs = n_pairs_in_use <= _FEW_PAIRS * n_labels**2
        if n_labels >= _MANY_LABELS and has_few_pairs:
            factor = self.strength / spread
            scaled = rows @ sp.diags(factor)
            scaled = sp.csr_matrix(scaled, dtype=np.float32)
            scaled_mean = factor * mean
            self.descriptors_ = CentredRows(
                scaled,
                scaled_mean.astype(np.float32),
                used.astype(np.float32),
            )
        else:
            centred = rows.toarray() - mean
            dense = self.strength * centred / spread
            dense[~used] = 0.0
            self.descriptors_ = dense.astype(np.float32)
        self.n_features_in_ = n_labels
        return self

    def get_state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return the fitted descriptor as JSON values and arrays.

        The names of both are the format on disk: `from_state` checks them.
        """
        params = self.get_params()
        config = {name: as_python_value(value) for name, value in params.items()}
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
        """Rebuild a fitted descriptor from `get_state`; the arrays are checked and copied."""
        declare_parameters(cls).check(config)
        is_dense = "descriptors" in arrays
        declared = _IDF_ARRAY | (_DENSE_ARRAYS if is_dense else _SPARSE_ARRAYS)
        sizes = check_arrays(arrays, declared)
        n_labels = sizes["n_labels"]
        descriptor = cls(**config)
        descriptor._check_parameters()
        descriptor.idf_ = np.array(arrays["idf"])
        descriptor.n_features_in_ = n_labels
        if is_dense:
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


# Arrays in the state of a label descriptor: idf and either dense rows or sparse ones.
_IDF_ARRAY: dict[str, Array | Csr] = {"idf": Array("float64", ("n_labels",), 0, 1e3)}
_DENSE_ARRAYS: dict[str, Array | Csr] = {"descriptors": Array("float32", ("n_labels", "n_labels"))}
_SPARSE_ARRAYS: dict[str, Array | Csr] = {
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
        """Learn the topics; documents without labels do not count.

        Parameters
        ----------
        matrix : sparse or dense 0/1 matrix, shape (n_documents, n_labels)
            At least one document has a label. It is not changed.
        y : None
            Ignored; scikit-learn passes it.
        """
        owner = type(self).__name__
        self._check_parameters()
        documents = _document_matrix(matrix, owner=owner)
        generator = as_generator(self.random_state)
        lengths = np.diff(documents.indptr)
        filled = np.flatnonzero(lengths)
        if self.max_documents is not None and len(filled) > self.max_documents:
            sample = generator.choice(filled, self.max_documents, replace=False)
            filled = np.sort(sample)
            documents = sp.csr_matrix(documents[filled])

        n_sweeps = self.n_iter
        if self.max_visits is not None:
            affordable_sweeps = self.max_visits // len(filled)
            most_sweeps = max(_LEAST_SWEEPS, affordable_sweeps)
            n_sweeps = min(n_sweeps, most_sweeps)

        if self.n_topics == "hdp":
            import tomotopy

            process_seed = draw_seed(generator)
            process = tomotopy.HDPModel(eta=self.topic_prior, initial_k=2, seed=process_seed)
            _train_topics(process, documents, n_sweeps)
            n_live_topics = process.live_k
            n_topics = int(np.clip(n_live_topics, 2, self.max_topics))
        else:
            used_labels = np.unique(documents.indices)
            most_topics = max(2, len(used_labels))
            n_topics = min(int(self.n_topics), most_topics)

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
        """Return the fitted descriptor as JSON values and arrays; a generator is left out.

        The names of both are the format on disk: `from_state` checks them.
        """
        params = self.get_params()
        config = {name: as_python_value(value) for name, value in params.items()}
        if isinstance(self.random_state, np.random.Generator):
            config["random_state"] = None
        arrays = {"topics": self.topics_}
        return config, arrays

    @classmethod
    def from_state(cls, config: dict[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Self:
        """Rebuild a fitted descriptor from `get_state`; the arrays are checked and copied."""
        # The annotations of the parameters say what a saved config may hold; a new kind of
        # annotation has to be added to `array_checks`.
        declare_parameters(cls).check(config)
        sizes = check_arrays(arrays, _TOPICS_ARRAY)
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
        least_counts = {
            "n_iter": 1,
            "max_topics": 2,
            "max_documents": 2,
            "max_visits": 1,
        }
        for name, least in least_counts.items():
            count = getattr(self, name)
            if count is not None:
                check_number(name, count, owner=owner, low=least, whole=True)

    def _prior(self, n_topics: int) -> float:
        """Return the symmetric Dirichlet prior of a document's topics, for each topic."""
        if self.document_prior is None:
            return 1.0 / n_topics
        return self.document_prior

    def _sample_topics(
        self, documents: sp.csr_matrix, n_topics: int, n_sweeps: int, seed: int
    ) -> NDArray[np.float64]:
        """Learn topics by collapsed Gibbs sampling.

        Return each topic's distribution over all labels, (n_topics, n_labels): positive, rows sum
        to one.
        """
        import tomotopy

        alpha = self._prior(n_topics)
        eta = self.topic_prior
        model = tomotopy.LDAModel(k=n_topics, alpha=alpha, eta=eta, seed=seed)
        model.optim_interval = 0  # priors stay as they are
        _train_topics(model, documents, n_sweeps)

        # tomotopy's words are column numbers as text, in an order of its own.
        used_columns = [int(word) for word in model.used_vocabs]
        columns = np.array(used_columns)
        smoothing = eta * len(columns)
        topic_sizes = np.asarray(model.get_count_by_topics(), dtype=np.float64)
        n_labels = documents.shape[1]
        label_counts = np.zeros((n_topics, n_labels))
        for topic in range(n_topics):
            # tomotopy gives smoothed distributions; undo the smoothing to get the counts.
            smoothed = model.get_topic_word_dist(topic)
            distribution = np.asarray(smoothed, dtype=np.float64)
            total = topic_sizes[topic] + smoothing
            counts = distribution * total
            counts -= eta
            label_counts[topic, columns] = np.maximum(counts, 0.0)
        # Labels that no document uses keep the prior's mass only.
        topics = label_counts + eta
        totals = topics.sum(axis=1, keepdims=True)
        return np.asarray(topics / totals)


def _train_topics(model: Any, documents: sp.csr_matrix, n_sweeps: int) -> None:
    """Train a tomotopy model on the non-empty documents; its words are column numbers as text."""
    n_labels = documents.shape[1]
    words = [str(column) for column in range(n_labels)]
    bounds = pairwise(documents.indptr)
    for start, stop in bounds:
        columns = documents.indices[start:stop]
        document = [words[column] for column in columns]
        if document:
            model.add_doc(document)
    # More workers would make the result depend on their number.
    model.train(n_sweeps, workers=1)


# The array in the state of a context descriptor; zeros would make `_topic_posterior` divide by 0.
_TOPICS_ARRAY: dict[str, Array | Csr] = {
    "topics": Array("float64", ("n_topics", "n_labels"), 1e-300, UNIT_LIMIT)
}


def _infer_topics(
    documents: sp.csr_matrix, topics: NDArray[np.float64], prior: float
) -> NDArray[np.float32]:
    """Infer topic histograms by mean-field iteration, (n_documents, n_topics)."""
    # Distinct documents of one length are worked on together. Identical rows give identical results
    # whatever stands beside them: every operation works on one document, which stops by itself.
    distinct, inverse = unique_rows(documents)
    n_distinct = distinct.shape[0]
    n_topics = topics.shape[0]
    label_topics = np.ascontiguousarray(topics.T)
    # Documents without labels stay uniform.
    uniform = 1.0 / n_topics
    histograms = np.full((n_distinct, n_topics), uniform, dtype=np.float32)
    lengths = np.diff(distinct.indptr)
    filled_lengths = lengths[lengths > 0]
    for length in np.unique(filled_lengths).tolist():
        rows = np.flatnonzero(lengths == length)
        document_numbers = length * n_topics
        step = max(1, _BLOCK_NUMBERS // document_numbers)
        places = np.arange(length)
        for start in range(0, len(rows), step):
            block = rows[start : start + step]
            first_entries = distinct.indptr[block]
            entries = first_entries[:, None] + places
            labels = distinct.indices[entries]
            likelihood = label_topics[labels]
            gamma = _topic_posterior(likelihood, prior)
            totals = gamma.sum(axis=1, keepdims=True)
            histograms[block] = gamma / totals
    return np.asarray(histograms[inverse])


def _topic_posterior(likelihood: NDArray[np.float64], prior: float) -> NDArray[np.float64]:
    """Compute the variational Dirichlet parameters γ of documents' topics.

    Parameters
    ----------
    likelihood : float64 array, shape (n_documents, n_labels_each, n_topics)
        Each topic's probability of each label of documents that have equally many labels.
    prior : float
        Symmetric Dirichlet prior of a document's topics.

    Returns
    -------
    float64 array, shape (n_documents, n_topics)
    """
    # A label's share of a topic is the product of a document's weight and the label's likelihood,
    # divided by the sum over topics; summed over labels, the weight stands outside the sum.
    from scipy.special import digamma

    n_documents, length, n_topics = likelihood.shape
    posterior = np.empty((n_documents, n_topics))
    rows = np.arange(n_documents)  # of the documents that still change
    start = prior + length / n_topics
    gamma = np.full((n_documents, n_topics), start)
    for _ in range(_MOST_ITERATIONS):
        weights = digamma(gamma)
        # Only ratios matter; with many topics and few labels the plain exponentials are all 0.
        weights -= weights.max(axis=1, keepdims=True)
        np.exp(weights, out=weights)
        totals = np.einsum("nlt,nt->nl", likelihood, weights)
        inverse_totals = 1.0 / totals
        updated = np.einsum("nl,nlt->nt", inverse_totals, likelihood)
        updated *= weights
        updated += prior
        difference = np.abs(updated - gamma)
        change = difference.max(axis=1)
        moving = change >= _TOLERANCE
        gamma = updated
        if not moving.all():
            finished = rows[~moving]
            posterior[finished] = gamma[~moving]
            rows = rows[moving]
            gamma = gamma[moving]
            likelihood = likelihood[moving]
            if not len(rows):
                break
    posterior[rows] = gamma
    return posterior


def _document_matrix(matrix: Any, *, owner: str, may_be_empty: bool = False) -> sp.csr_matrix:
    """Check a 0/1 document-label matrix and return it as a boolean CSR matrix of its own.

    `owner` is the class that error messages name.
    """
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
