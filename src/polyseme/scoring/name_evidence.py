"""Names as evidence: how like an item the name of a label is, where one encoder read both.

In: features of items, and the vectors of labels' names from the encoder that made the features.
Out: what names add to the logits of items. An item and a name are compared by the cosine of their
vectors, less what the training items have on average and in units of their standard deviation;
the sum logit + slope * likeness + offset has one slope and offset for labels that training items
carry and one for all others, learned by `polyseme.fitting.name_weights` on held-out items.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from polyseme.base.validation import IntArray, first_few
from polyseme.space.linear_path import spaced
from polyseme.storage.array_checks import (
    WEIGHT_LIMIT,
    Array,
    Csr,
    Fields,
    Flag,
    ListOf,
    Number,
    Text,
    Whole,
    check_arrays,
    matrix_of,
)
from polyseme.storage.model_file import State

Matrix = NDArray[np.float64]
Floats = NDArray[np.float32]
Vectors = Floats | sp.csr_matrix
Features = NDArray[np.float64] | sp.csr_matrix

# Dense vectors of at most so many numbers are whitened: the cost is cubic.
MOST_WHITENED = 2048
# From how many training items the covariance is computed, and from how many the mean and deviation
# of each label's cosines; the latter are kept, so that labels can be added later.
_MOST_WHITENED_BY = 20_000
N_SAMPLED = 1000
# No deviation is smaller, lest names that items do not vary in have no bounds.
_SMALLEST_DEVIATION = 1e-6
# What is added to the eigenvalues of the covariance before whitening, as a share of their mean. On
# Tate's titles 0.3, 1 and 3 gave unseen labels a C-MAP of 18.4, 19.0 and 19.0; none gave 16.5.
_SHRINKAGE = 1.0
# The least standard deviation of a label's cosines, as a share of the median over labels: the words
# of a rare name are in hardly any training item. On Annif's questions 0.75 brought 1.3 points of
# E-MAP on unseen labels against no limit, and 0.5 and 1 less.
_LEAST_DEVIATION = 0.75


class NameWeights(NamedTuple):
    """By how much the likeness of a name counts; all 0 where names do not help."""

    seen_slope: float = 0.0  # of labels that training items carry
    seen_offset: float = 0.0
    other_slope: float = 0.0  # of labels that they do not: unseen and oov
    other_offset: float = 0.0

    @property
    def are_used(self) -> bool:
        """Whether names count for any label."""
        return self.seen_slope > 0 or self.other_slope > 0


@dataclass(frozen=True, eq=False)
class JointSpace:
    """The joint embedding space of items and names: unit vectors, centred and whitened.

    Sparse vectors, such as TF-IDF, are neither centred nor whitened.

    Attributes
    ----------
    item_mean, name_mean : float32 array, shape (n_features,)
        Mean unit vectors, which are subtracted.
    whitening : float32 array, shape (n_features, n_features), or None
        By what unit vectors are multiplied, so that training items vary alike in all directions.
    is_sparse : bool
        Whether items are sparse.
    sample : float32 array or csr_matrix, shape (n_sampled, n_features)
        Some training items as they are compared; the moments of each label's likeness are theirs.
    """

    item_mean: Floats
    name_mean: Floats
    whitening: Floats | None
    is_sparse: bool
    sample: Vectors = field(default_factory=lambda: np.zeros((0, 0), dtype=np.float32))

    @classmethod
    def fit(cls, features: Features, name_vectors: Features) -> Self:
        """Learn from training items (n, n_features) and names (n_names, n_features)."""
        n_items, n_features = features.shape
        all_rows = np.arange(n_items)
        item_mean = np.zeros(n_features)
        name_mean = np.zeros(n_features)
        whitening = None
        if not sp.issparse(features):
            rows = spaced(all_rows, _MOST_WHITENED_BY)
            item_units = _unit_rows(features[rows])
            name_units = _unit_rows(_dense(name_vectors))
            item_mean = item_units.mean(axis=0)
            name_mean = name_units.mean(axis=0)
            if n_features <= MOST_WHITENED:
                whitening = _whitening(item_units - item_mean)
        space = cls(
            _floats(item_mean),
            _floats(name_mean),
            whitening,
            is_sparse=sp.issparse(features),
        )
        sampled_rows = spaced(all_rows, N_SAMPLED)
        sample = space.compare(features[sampled_rows], of_items=True)
        return replace(space, sample=sample)

    def compare(self, vectors: Features, *, of_items: bool) -> Vectors:
        """Return vectors of items, or of names, as they are compared, (n, n_features).

        They are centred and whitened, at length 1; those of nothing stay 0.
        """
        mean = self.item_mean if of_items else self.name_mean
        if self.is_sparse:
            rows = sp.csr_matrix(vectors, dtype=np.float32)
            units: Vectors = _unit_rows(rows)
            return units
        dense_units = _unit_rows(_dense(vectors))
        has_numbers = dense_units.any(axis=1, keepdims=True)
        centred = np.where(has_numbers, dense_units - mean, 0)
        if self.whitening is not None:
            centred = centred.astype(np.float32) @ self.whitening
        return _floats(_unit_rows(centred))


class NameReadout(NamedTuple):
    """What names add to logits: compared items @ weights + intercepts."""

    space: JointSpace
    weights: Vectors  # (n_features, n_labels)
    intercepts: Matrix  # (n_labels,)

    def __repr__(self) -> str:
        """Return its size, in a line."""
        return f"NameReadout({len(self.intercepts)} labels)"

    def arrays(self) -> list[NDArray[Any]]:
        """Return the arrays that the additions to given items depend on."""
        if sp.issparse(self.weights):
            weights = self.weights
            return [weights.data, weights.indices, weights.indptr, self.intercepts]
        return [self.weights, self.intercepts]

    def additions(self, features: Features) -> Matrix:
        """Return what the names of all labels add to the logits of items, (n, n_labels)."""
        products = self.space.compare(features, of_items=True) @ self.weights
        if sp.issparse(products):
            products = products.toarray()
        return np.asarray(products + self.intercepts, dtype=np.float64)


@dataclass(frozen=True, eq=False)
class NameEvidence:
    """Labels' names as evidence.

    Attributes
    ----------
    space : JointSpace
    labels : tuple of str
        Those whose names have a vector.
    vectors : float32 array or csr_matrix, shape (n_labels, n_features)
        As names are compared.
    least_deviation : float
        Of the cosines of a label's name to training items, in whose deviation likeness is counted.
    weights : NameWeights
    """

    space: JointSpace
    labels: tuple[str, ...]
    vectors: Vectors
    least_deviation: float
    weights: NameWeights

    def __repr__(self) -> str:
        """Return the first labels and the slopes, in a line."""
        slopes = f"{self.weights.seen_slope:.2f} and {self.weights.other_slope:.2f}"
        return f"NameEvidence({first_few(self.labels)}; slopes {slopes})"

    @classmethod
    def fit(cls, features: Features, labels: Sequence[str], vectors: Features) -> Self:
        """Learn how items and names compare; the weights are 0 until `with_weights`.

        Parameters
        ----------
        features : float64 array or csr_matrix, shape (n, n_features)
            Of training items.
        labels : sequence of str
        vectors : float64 array or csr_matrix, shape (n_labels, n_features)
            Of their names, from the encoder that made the features; rows of 0 for names that it
            does not know.
        """
        space = JointSpace.fit(features, vectors)
        compared = space.compare(vectors, of_items=False)
        _, deviations = _moments(space.sample, compared)
        positive = deviations[deviations > 0]
        typical_deviation = float(np.median(positive)) if len(positive) else 1.0
        least_deviation = max(_LEAST_DEVIATION * typical_deviation, _SMALLEST_DEVIATION)
        return cls(space, tuple(labels), compared, least_deviation, NameWeights())

    def with_weights(self, weights: NameWeights) -> Self:
        """Return it with other weights."""
        return replace(self, weights=weights)

    def with_labels(self, labels: Sequence[str], vectors: Features) -> Self:
        """Return it with further labels, by the vectors of their names (n_new, n_features)."""
        other_names = self.without(labels)
        new_vectors = self.space.compare(vectors, of_items=False)
        tables: list[Any] = [other_names.vectors, new_vectors]
        all_vectors: Vectors
        if self.space.is_sparse:
            all_vectors = sp.csr_matrix(sp.vstack(tables))
        else:
            all_vectors = np.concatenate(tables)
        all_labels = (*other_names.labels, *labels)
        return replace(self, labels=all_labels, vectors=all_vectors)

    def without(self, labels: Collection[str]) -> Self:
        """Return it without some labels."""
        removed = set(labels)
        rows = []
        remaining_labels = []
        for row, label in enumerate(self.labels):
            if label not in removed:
                rows.append(row)
                remaining_labels.append(label)
        remaining_vectors = self.vectors[rows]
        return replace(self, labels=tuple(remaining_labels), vectors=remaining_vectors)

    def renamed(self, label: str, name: str) -> Self:
        """Return it with another name for a label, which keeps its vector.

        Where another label has that name already, as in a merge, the vector of that one stays.
        """
        if name in self.labels:
            return self.without([label])
        labels = [name if old_name == label else old_name for old_name in self.labels]
        return replace(self, labels=tuple(labels))

    def likeness(self, features: Features) -> Matrix:
        """Return how like each item the name of each label is, (n, n_labels).

        In standard deviations over training items, from their mean; 0 where a name has no vector.
        """
        slopes = np.ones(len(self.labels))
        offsets = np.zeros(len(self.labels))
        readout = self._readout(self.vectors, slopes, offsets)
        return readout.additions(features)

    def likeness_of(self, labels: Sequence[str], features: Features) -> Matrix:
        """Return the likeness of some labels, (n, n_labels); 0 for those without a vector."""
        likeness = self.likeness(features)
        no_likeness = np.zeros((len(likeness), 1))  # which rows of -1 stand for
        columns = np.hstack([likeness, no_likeness])
        rows = self._rows_of(labels, str)
        return np.where(self.have_vectors(labels), columns[:, rows], 0.0)

    def have_vectors(self, labels: Sequence[str]) -> NDArray[np.bool_]:
        """Return which labels have names with a vector, (n_labels,)."""
        rows = self._rows_of(labels, str)
        return self._nonzero_rows()[rows]

    def _nonzero_rows(self) -> NDArray[np.bool_]:
        """Return which rows of `vectors` are not all 0, (n_names + 1,); False for row -1."""
        are_nonzero = _are_nonzero(self.vectors)
        return np.append(are_nonzero, False)

    def _rows_of(self, labels: Sequence[str], key: Callable[[str], str]) -> IntArray:
        """Return the rows of labels in `vectors`, (n_labels,); -1 for those that are not there."""
        row_by_key: dict[str, int] = {}
        for row, label in enumerate(self.labels):
            row_by_key[key(label)] = row
        rows = []
        for label in labels:
            rows.append(row_by_key.get(key(label), -1))
        return np.array(rows, dtype=np.int64)

    def readout(
        self, labels: Sequence[str], is_seen: NDArray[np.bool_], key: Callable[[str], str]
    ) -> NameReadout | None:
        """Return what names add to the logits of some labels; None where they add nothing.

        Parameters
        ----------
        labels : sequence of str
            The labels of the columns; nothing is added to those whose name has no vector.
        is_seen : bool array, shape (n_columns,)
            Which of them training items carry.
        key : callable
            Returns what labels are compared by.
        """
        if not self.weights.are_used:
            return None
        rows = self._rows_of(labels, key)
        has_vector = self._nonzero_rows()[rows]
        # Rows of -1 stand for some vector, which then does not count.
        vectors = self.vectors[np.maximum(rows, 0)]
        weights = self.weights
        slopes = np.where(is_seen, weights.seen_slope, weights.other_slope)
        offsets = np.where(is_seen, weights.seen_offset, weights.other_offset)
        return self._readout(vectors, slopes * has_vector, offsets * has_vector)

    def _readout(self, vectors: Vectors, slopes: Matrix, offsets: Matrix) -> NameReadout:
        """Return slopes times the standardised cosines to some vectors, plus offsets."""
        means, deviations = _moments(self.space.sample, vectors)
        scales = slopes / np.maximum(deviations, self.least_deviation)
        intercepts = offsets - means * scales
        if sp.issparse(vectors):
            scaled = sp.diags(scales.astype(np.float32)) @ vectors
            return NameReadout(self.space, sp.csr_matrix(scaled.T), intercepts)
        weights = vectors.T * scales.astype(np.float32)
        return NameReadout(self.space, weights, intercepts)

    # ------------------------------------------------------------------ persistence

    def get_state(self) -> State:
        """Return labels, weights and arrays, for saving without pickle."""
        space = self.space
        config = {
            "labels": list(self.labels),
            "least_deviation": self.least_deviation,
            "weights": list(self.weights),
            "sparse": space.is_sparse,
            "n_sampled": space.sample.shape[0],
        }
        arrays: dict[str, NDArray[Any]] = {
            "item_mean": space.item_mean,
            "name_mean": space.name_mean,
        }
        if space.whitening is not None:
            arrays["whitening"] = space.whitening
        for name, table in (("sample", space.sample), ("vectors", self.vectors)):
            if not sp.issparse(table):
                arrays[name] = table
                continue
            arrays[f"{name}.data"] = table.data.astype(np.float32)
            arrays[f"{name}.indices"] = table.indices.astype(np.int64)
            arrays[f"{name}.indptr"] = table.indptr.astype(np.int64)
        return config, arrays

    @classmethod
    def from_state(
        cls, config: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]], n_features: int
    ) -> Self:
        """Rebuild it from `get_state`, for items of `n_features` features."""
        _STATE.check(config)
        labels = tuple(config["labels"])
        sizes = {
            "n_features": n_features,
            "n_sampled": config["n_sampled"],
            "n_names": len(labels),
        }
        declared: dict[str, Any] = {
            "item_mean": Array("float32", ("n_features",)),
            "name_mean": Array("float32", ("n_features",)),
        }
        square = ("n_features", "n_features")
        declared["whitening"] = Array("float32", square, optional=True)
        for name, n_rows in (("sample", "n_sampled"), ("vectors", "n_names")):
            shape = (n_rows, "n_features")
            is_sparse = config["sparse"]
            declared[name] = Csr(shape, "float32") if is_sparse else Array("float32", shape)
        check_arrays(arrays, declared, **sizes)

        sample: Vectors
        vectors: Vectors
        if config["sparse"]:
            sample = matrix_of(arrays, (config["n_sampled"], n_features), "sample")
            vectors = matrix_of(arrays, (len(labels), n_features), "vectors")
        else:
            sample = arrays["sample"]
            vectors = arrays["vectors"]
        space = JointSpace(
            arrays["item_mean"],
            arrays["name_mean"],
            arrays.get("whitening"),
            config["sparse"],
            sample,
        )
        weights = NameWeights(*config["weights"])
        return cls(space, labels, vectors, config["least_deviation"], weights)


# What the state of name evidence holds beside its arrays.
_STATE = Fields(
    {
        "labels": ListOf(Text(), distinct=True),
        "least_deviation": Number(_SMALLEST_DEVIATION, 1),
        "weights": ListOf(Number(-WEIGHT_LIMIT, WEIGHT_LIMIT), 4),
        "sparse": Flag(),
        "n_sampled": Whole(1),
    }
)


def _moments(sample: Vectors, vectors: Vectors) -> tuple[Matrix, Matrix]:
    """Return means and standard deviations of the cosines of names to a sample, (n_names,) each."""
    cosines = sample @ vectors.T
    if sp.issparse(cosines):
        cosines = cosines.toarray()
    means = cosines.mean(axis=0, dtype=np.float64)
    deviations = cosines.std(axis=0, dtype=np.float64)
    return means, deviations


def _whitening(centred: Matrix) -> Floats:
    """Return what makes rows (n, n_features), whose mean is 0, vary alike in all directions."""
    covariance = centred.T @ centred / len(centred)
    eigenvalues, directions = np.linalg.eigh(covariance)
    shrunk = eigenvalues + _SHRINKAGE * eigenvalues.mean()
    spreads = np.sqrt(np.maximum(shrunk, 1e-12))
    return _floats(directions / spreads)


def _dense(vectors: Features) -> Matrix:
    """Return vectors as an array."""
    return vectors.toarray() if sp.issparse(vectors) else vectors


def _unit_rows(vectors: Any) -> Any:
    """Return rows at length 1; those of 0 stay as they are."""
    if sp.issparse(vectors):
        table: Any = vectors
        squares = np.asarray(table.multiply(table).sum(axis=1))
        lengths = np.sqrt(squares.ravel())
        factors = 1 / np.where(lengths > 0, lengths, 1.0)
        return sp.csr_matrix(sp.diags(factors.astype(table.dtype)) @ table)
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors / np.where(lengths > 0, lengths, 1.0)


def _floats(values: NDArray[Any]) -> Floats:
    """Return numbers in single precision."""
    return np.asarray(values, dtype=np.float32)


def _are_nonzero(vectors: Vectors) -> NDArray[np.bool_]:
    """Return which rows are not all 0, (n,)."""
    if sp.issparse(vectors):
        return np.diff(vectors.indptr) > 0
    return np.asarray(vectors.any(axis=1))
