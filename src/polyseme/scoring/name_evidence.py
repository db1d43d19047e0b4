"""Names as evidence: how like an item the name of a label is, where one encoder read both.

In: features of items, and the vectors of labels' names from the encoder that made the features.
Out: what names add to the logits of items. An item and a name are compared by the cosine of their
vectors, less what the training items have on average and in units of their standard deviation: the
*likeness*. The sum logit + slope * likeness + offset has one slope and offset for labels that
training items carry and one for all others, learned by `polyseme.fitting.name_weights` on held-out
items.

Features may hold several *views* of items, in columns of their own, such as a network's vectors and
the words of a text. Each has its own likeness and slopes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, NamedTuple, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from polyseme.base.extractors import NameColumns
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
    require,
)
from polyseme.storage.model_file import State, part_arrays

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


class KindWeights(NamedTuple):
    """By how much names count for labels of a kind; all 0 where they do not help."""

    slopes: tuple[float, ...]  # of each view's likeness
    offset: float = 0.0

    @property
    def are_used(self) -> bool:
        """Whether names count."""
        return any(slope > 0 for slope in self.slopes)


class NameWeights(NamedTuple):
    """By how much the likeness of a name counts."""

    seen: KindWeights  # of labels that training items carry
    other: KindWeights  # of labels that they do not: unseen and oov

    @classmethod
    def none(cls, n_views: int) -> Self:
        """Return weights of 0."""
        kind_weights = KindWeights((0.0,) * n_views)
        return cls(kind_weights, kind_weights)

    @classmethod
    def from_list(cls, numbers: Sequence[float]) -> Self:
        """Rebuild them from `to_list`."""
        half = len(numbers) // 2
        seen_weights = KindWeights(tuple(numbers[: half - 1]), numbers[half - 1])
        other_weights = KindWeights(tuple(numbers[half:-1]), numbers[-1])
        return cls(seen_weights, other_weights)

    def to_list(self) -> list[float]:
        """Return all numbers: slopes and offset of seen labels, then those of all others."""
        return [*self.seen.slopes, self.seen.offset, *self.other.slopes, self.other.offset]

    @property
    def are_used(self) -> bool:
        """Whether names count for any label."""
        return self.seen.are_used or self.other.are_used


@dataclass(frozen=True, eq=False)
class JointSpace:
    """The joint embedding space of items and names, of one view: unit vectors.

    Dense vectors are centred and whitened; sparse ones, such as words, are not.

    Attributes
    ----------
    columns : NameColumns
        Those of the features that it is about.
    item_mean, name_mean : float32 array, shape (n_columns,), or None
        Mean unit vectors, which are subtracted; None where vectors are sparse.
    whitening : float32 array, shape (n_columns, n_columns), or None
        By what unit vectors are multiplied, so that training items vary alike in all directions.
    sample : float32 array or csr_matrix, shape (n_sampled, n_columns)
        Some training items as they are compared; the moments of each label's likeness are theirs.
    """

    columns: NameColumns
    item_mean: Floats | None = None
    name_mean: Floats | None = None
    whitening: Floats | None = None
    sample: Vectors = field(default_factory=lambda: np.zeros((0, 0), dtype=np.float32))

    @classmethod
    def fit(cls, columns: NameColumns, features: Features, name_vectors: Features) -> Self:
        """Learn from training items (n, n_features) and names (n_names, n_features)."""
        n_items = features.shape[0]
        all_rows = np.arange(n_items)
        space = cls(columns)
        if not columns.is_sparse:
            rows = spaced(all_rows, _MOST_WHITENED_BY)
            item_units = _unit_rows(_cut(features[rows], columns))
            name_units = _unit_rows(_cut(name_vectors, columns))
            item_mean = item_units.mean(axis=0)
            whitening = None
            if item_units.shape[1] <= MOST_WHITENED:
                whitening = _whitening(item_units - item_mean)
            space = cls(columns, _floats(item_mean), _floats(name_units.mean(axis=0)), whitening)
        sampled_rows = spaced(all_rows, N_SAMPLED)
        sample = space.compare(features[sampled_rows], of_items=True)
        return replace(space, sample=sample)

    def compare(self, vectors: Features, *, of_items: bool) -> Vectors:
        """Return vectors of items, or of names, as they are compared, (n, n_columns).

        They have length 1; those of nothing stay 0. `vectors` (n, n_features) have all columns.
        """
        units: Any = _unit_rows(_cut(vectors, self.columns))
        mean = self.item_mean if of_items else self.name_mean
        if mean is None:
            sparse_units: sp.csr_matrix = units
            return sparse_units
        has_numbers = units.any(axis=1, keepdims=True)
        centred = np.where(has_numbers, units - mean, 0)
        if self.whitening is not None:
            centred = centred.astype(np.float32) @ self.whitening
        return _floats(_unit_rows(centred))


class NameReadout(NamedTuple):
    """What names add to logits: the sum over views of compared items @ weights, plus intercepts."""

    spaces: tuple[JointSpace, ...]
    weights: tuple[Vectors, ...]  # of each view, (n_columns, n_labels)
    intercepts: Matrix  # (n_labels,)

    def __repr__(self) -> str:
        """Return its size, in a line."""
        return f"NameReadout({len(self.intercepts)} labels)"

    def arrays(self) -> list[NDArray[Any]]:
        """Return the arrays that the additions to given items depend on."""
        arrays: list[NDArray[Any]] = [self.intercepts]
        for table in self.weights:
            if sp.issparse(table):
                arrays += [table.data, table.indices, table.indptr]
            else:
                arrays.append(table)
        return arrays

    def additions(self, features: Features) -> Matrix:
        """Return what the names of all labels add to the logits of items, (n, n_labels)."""
        sums = np.tile(self.intercepts, (features.shape[0], 1))
        for space, weights in zip(self.spaces, self.weights, strict=True):
            products = space.compare(features, of_items=True) @ weights
            sums += products.toarray() if sp.issparse(products) else products
        return sums


@dataclass(frozen=True, eq=False)
class NameView:
    """Labels' names in one view of items.

    Attributes
    ----------
    space : JointSpace
    vectors : float32 array or csr_matrix, shape (n_labels, n_columns)
        As names are compared; 0 for those that this view does not know.
    least_deviation : float
        Of the cosines of a label's name to training items, in whose deviation likeness is counted.
    """

    space: JointSpace
    vectors: Vectors
    least_deviation: float

    @classmethod
    def fit(cls, columns: NameColumns, features: Features, name_vectors: Features) -> Self:
        """Learn from training items (n, n_features) and names (n_names, n_features)."""
        space = JointSpace.fit(columns, features, name_vectors)
        compared = space.compare(name_vectors, of_items=False)
        _, deviations = _moments(space.sample, compared)
        positive = deviations[deviations > 0]
        typical_deviation = float(np.median(positive)) if len(positive) else 1.0
        least_deviation = max(_LEAST_DEVIATION * typical_deviation, _SMALLEST_DEVIATION)
        return cls(space, compared, least_deviation)

    def weights(self, vectors: Vectors, slopes: Matrix) -> tuple[Vectors, Matrix]:
        """Return weights (n_columns, n_labels) and intercepts of slopes times the likeness."""
        means, deviations = _moments(self.space.sample, vectors)
        scales = slopes / np.maximum(deviations, self.least_deviation)
        intercepts = -means * scales
        if sp.issparse(vectors):
            scaled = sp.diags(scales.astype(np.float32)) @ vectors
            return sp.csr_matrix(scaled.T), intercepts
        return vectors.T * scales.astype(np.float32), intercepts

    def likeness(self, features: Features) -> Matrix:
        """Return how like each item the name of each label is, (n, n_labels).

        In standard deviations over training items, from their mean; 0 where a name has no vector.
        """
        weights, intercepts = self.weights(self.vectors, np.ones(self.vectors.shape[0]))
        readout = NameReadout((self.space,), (weights,), intercepts)
        return np.where(_are_nonzero(self.vectors), readout.additions(features), 0.0)


@dataclass(frozen=True, eq=False)
class NameEvidence:
    """Labels' names as evidence.

    Attributes
    ----------
    labels : tuple of str
        Those whose names have a vector.
    views : tuple of NameView
    weights : NameWeights
    """

    labels: tuple[str, ...]
    views: tuple[NameView, ...]
    weights: NameWeights

    def __repr__(self) -> str:
        """Return the first labels and the slopes, in a line."""
        seen_slopes = ", ".join(f"{slope:.2f}" for slope in self.weights.seen.slopes)
        other_slopes = ", ".join(f"{slope:.2f}" for slope in self.weights.other.slopes)
        return f"NameEvidence({first_few(self.labels)}; slopes {seen_slopes} and {other_slopes})"

    @classmethod
    def fit(
        cls,
        features: Features,
        labels: Sequence[str],
        vectors: Features,
        columns: Sequence[NameColumns] = (),
    ) -> Self:
        """Learn how items and names compare; the weights are 0 until `with_weights`.

        Parameters
        ----------
        features : float64 array or csr_matrix, shape (n, n_features)
            Of training items.
        labels : sequence of str
        vectors : float64 array or csr_matrix, shape (n_labels, n_features)
            Of their names, from the encoder that made the features; rows of 0 for names that it
            does not know.
        columns : sequence of NameColumns
            The views; without any, all columns are one.
        """
        if not columns:
            columns = [NameColumns(0, features.shape[1], bool(sp.issparse(features)))]
        views = tuple(NameView.fit(view_columns, features, vectors) for view_columns in columns)
        return cls(tuple(labels), views, NameWeights.none(len(views)))

    def with_weights(self, weights: NameWeights) -> Self:
        """Return it with other weights."""
        return replace(self, weights=weights)

    def with_labels(self, labels: Sequence[str], vectors: Features) -> Self:
        """Return it with further labels, by the vectors of their names (n_new, n_features)."""
        remaining = self.without(labels)
        views = []
        for view in remaining.views:
            new_vectors = view.space.compare(vectors, of_items=False)
            views.append(replace(view, vectors=_stacked(view.vectors, new_vectors)))
        return replace(self, labels=(*remaining.labels, *labels), views=tuple(views))

    def without(self, labels: Collection[str]) -> Self:
        """Return it without some labels."""
        removed = set(labels)
        rows = []
        remaining_labels = []
        for row, label in enumerate(self.labels):
            if label not in removed:
                rows.append(row)
                remaining_labels.append(label)
        views = tuple(replace(view, vectors=view.vectors[rows]) for view in self.views)
        return replace(self, labels=tuple(remaining_labels), views=views)

    def renamed(self, label: str, name: str) -> Self:
        """Return it with another name for a label, which keeps its vector.

        Where another label has that name already, as in a merge, the vector of that one stays.
        """
        if name in self.labels:
            return self.without([label])
        labels = [name if old_name == label else old_name for old_name in self.labels]
        return replace(self, labels=tuple(labels))

    def likeness_of(self, labels: Sequence[str], features: Features) -> Matrix:
        """Return the likeness of some labels in each view, (n_views, n, n_labels).

        It is 0 for labels without a vector.
        """
        rows = self._rows_of(labels, str)
        tables = []
        for view in self.views:
            likeness = view.likeness(features)
            no_likeness = np.zeros((len(likeness), 1))  # which rows of -1 stand for
            tables.append(np.hstack([likeness, no_likeness])[:, rows])
        return np.stack(tables)

    def have_vectors(self, labels: Sequence[str]) -> NDArray[np.bool_]:
        """Return which labels have names with a vector, (n_labels,)."""
        rows = self._rows_of(labels, str)
        return self._nonzero_rows()[rows]

    def _nonzero_rows(self) -> NDArray[np.bool_]:
        """Return which names have a vector in some view, (n_names + 1,); False for row -1."""
        are_nonzero = np.zeros(len(self.labels), dtype=bool)
        for view in self.views:
            are_nonzero |= _are_nonzero(view.vectors)
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
        seen_weights, other_weights = self.weights
        offsets = np.where(is_seen, seen_weights.offset, other_weights.offset)
        intercepts = offsets * has_vector
        weights = []
        for number, view in enumerate(self.views):
            # Rows of -1 stand for some vector, which then does not count.
            vectors = view.vectors[np.maximum(rows, 0)]
            counts = has_vector & _are_nonzero(vectors)
            seen_slope = seen_weights.slopes[number]
            other_slope = other_weights.slopes[number]
            slopes = np.where(is_seen, seen_slope, other_slope) * counts
            view_weights, view_intercepts = view.weights(vectors, slopes)
            weights.append(view_weights)
            intercepts = intercepts + view_intercepts
        spaces = tuple(view.space for view in self.views)
        return NameReadout(spaces, tuple(weights), intercepts)

    # ------------------------------------------------------------------ persistence

    def get_state(self) -> State:
        """Return labels, weights and arrays, for saving without pickle."""
        views = []
        arrays: dict[str, NDArray[Any]] = {}
        for number, view in enumerate(self.views):
            space = view.space
            view_values = {
                "first": space.columns.first,
                "stop": space.columns.stop,
                "sparse": space.columns.is_sparse,
                "least_deviation": view.least_deviation,
                "n_sampled": space.sample.shape[0],
            }
            views.append(view_values)
            tables = {
                "item_mean": space.item_mean,
                "name_mean": space.name_mean,
                "whitening": space.whitening,
                "sample": space.sample,
                "vectors": view.vectors,
            }
            for name, table in tables.items():
                if table is not None:
                    arrays |= _state_arrays(f"{number}.{name}", table)
        config = {
            "labels": list(self.labels),
            "weights": self.weights.to_list(),
            "views": views,
        }
        return config, arrays

    @classmethod
    def from_state(
        cls, config: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]], n_features: int
    ) -> Self:
        """Rebuild it from `get_state`, for items of `n_features` features."""
        _STATE.check(config)
        labels = tuple(config["labels"])
        views = []
        n_arrays = 0
        for number, values in enumerate(config["views"]):
            view_arrays = part_arrays(arrays, str(number))
            n_arrays += len(view_arrays)
            views.append(_view_of(values, view_arrays, len(labels), n_features))
        require(n_arrays == len(arrays), "names", "arrays of its views")
        for before, after in pairwise(views):
            require(before.space.columns.stop <= after.space.columns.first, "views", "in order")
        require(len(config["weights"]) == 2 * (len(views) + 1), "weights", "for each view")
        return cls(labels, tuple(views), NameWeights.from_list(config["weights"]))


# What the state of name evidence holds beside its arrays.
_WEIGHT = Number(-WEIGHT_LIMIT, WEIGHT_LIMIT)
_VIEW = Fields(
    {
        "first": Whole(0),
        "stop": Whole(1),
        "sparse": Flag(),
        "least_deviation": Number(_SMALLEST_DEVIATION, 1),
        "n_sampled": Whole(1),
    }
)
_STATE = Fields(
    {
        "labels": ListOf(Text(), distinct=True),
        "weights": ListOf(_WEIGHT, least=4),
        "views": ListOf(_VIEW, least=1),
    }
)


def _view_of(
    values: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]], n_names: int, n_features: int
) -> NameView:
    """Rebuild a view from its values, those of `_VIEW`, and its arrays."""
    first, stop, is_sparse = (values[name] for name in ("first", "stop", "sparse"))
    least_deviation = values["least_deviation"]
    n_sampled = values["n_sampled"]
    require(first < stop <= n_features, "views", "columns of the features")
    declared: dict[str, Any] = {}
    if not is_sparse:
        declared["item_mean"] = Array("float32", ("n_columns",))
        declared["name_mean"] = Array("float32", ("n_columns",))
        square = ("n_columns", "n_columns")
        declared["whitening"] = Array("float32", square, optional=True)
    for name, n_rows in (("sample", "n_sampled"), ("vectors", "n_names")):
        shape = (n_rows, "n_columns")
        declared[name] = Csr(shape, "float32") if is_sparse else Array("float32", shape)
    n_columns = stop - first
    check_arrays(arrays, declared, n_columns=n_columns, n_sampled=n_sampled, n_names=n_names)
    columns = NameColumns(first, stop, is_sparse)
    if is_sparse:
        sample = matrix_of(arrays, (n_sampled, n_columns), "sample")
        vectors: Vectors = matrix_of(arrays, (n_names, n_columns), "vectors")
        return NameView(JointSpace(columns, sample=sample), vectors, least_deviation)
    space = JointSpace(
        columns,
        arrays["item_mean"],
        arrays["name_mean"],
        arrays.get("whitening"),
        arrays["sample"],
    )
    return NameView(space, arrays["vectors"], least_deviation)


def _state_arrays(name: str, table: Vectors) -> dict[str, NDArray[Any]]:
    """Return a table as arrays to be saved."""
    if not sp.issparse(table):
        return {name: table}
    return {
        f"{name}.data": table.data.astype(np.float32),
        f"{name}.indices": table.indices.astype(np.int64),
        f"{name}.indptr": table.indptr.astype(np.int64),
    }


def _cut(vectors: Features, columns: NameColumns) -> Any:
    """Return the columns of a view, dense unless the view is sparse."""
    n_columns = columns.stop - columns.first
    table: Any = vectors
    if n_columns < vectors.shape[1]:
        table = table[:, columns.first : columns.stop]
    if columns.is_sparse:
        return sp.csr_matrix(table, dtype=np.float32)
    return table.toarray() if sp.issparse(vectors) else table


def _stacked(first: Vectors, second: Vectors) -> Vectors:
    """Return two tables of the same kind, one below the other."""
    tables: list[Any] = [first, second]
    if sp.issparse(first):
        return sp.csr_matrix(sp.vstack(tables))
    return np.concatenate(tables)


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
