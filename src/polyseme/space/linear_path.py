"""A linear path from features to seen labels, beside the item encoder: ridge regression.

In: standardised features of items, block by block, the labels that they carry, and folds. Out: a
`Ridge`, or a `KernelRidge` where items are few and it ranks better. Both predict labels with or
without the items of one fold, and give the `LinearPath` that a space keeps.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import reduce
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from polyseme.base.validation import IntArray, PolysemeWarning
from polyseme.metrics import concept_precision, example_precision
from polyseme.space.calibration import match_frequencies

Matrix = NDArray[np.float64]
Floats = NDArray[np.float32]
# Returns the standardised features of some rows, (n, n_features).
Standardised = Callable[[IntArray], Floats]

# Penalties that are tried, in shares of the number of items.
PENALTIES = (0.03, 0.1, 0.3, 1.0, 3.0)
# Kernel ridge regression solves a system as large as there are items, so they are at most so many.
# Its kernel is Gaussian, exp(-KERNEL_SCALE * squared distance / median squared distance); these
# penalties are added to the kernel's diagonal, and one is chosen on some of the items.
MOST_KERNEL_ITEMS, KERNEL_SCALE = 4096, 0.5
KERNEL_PENALTIES, PENALTY_ITEMS = (0.1, 0.3, 1.0, 3.0), 1500
# It is slower for single items and keeps features of all items: it is taken where a fold is ranked
# better by so much, in the sum of E-MAP and C-MAP.
KERNEL_ADVANTAGE = 0.02
# Weights that are tried on held-out items, a share of whose features is left out, as in training.
# With all features a linear path does too well on items like those it was fitted to: on HSUN, whose
# detectors were trained on the same pictures, by 2 to 3 points that are not there on others.
WEIGHTS = (0.0, 0.1, 0.2, 0.35, 0.5, 0.75, 1.0)
LEFT_OUT = 0.35
# With a path the logits of seen labels spread farther; of these factors the one is taken that gives
# the likeliest probabilities of held-out items.
SHRINKAGES = (1.0, 0.85, 0.7, 0.55)
# Normal equations are solved for so many features at the most, and predictions kept in so many
# coordinates.
MOST_FEATURES, MOST_COORDINATES = 4096, 1024
# Items on which penalty and weight are chosen, and whose predictions coordinates are made for.
MEASURED, APPROXIMATED = 1024, 2048
_BLOCK, _DISTANCE_ITEMS = 4096, 512
_LEAST_SPREAD = 1e-9


class LinearPath(NamedTuple):
    """A ridge regression in two steps: from inputs to coordinates, and from these to labels.

    Inputs are the standardised features, or their Gaussian kernels with landmarks.
    """

    weights: Floats  # (n_inputs, n_coordinates)
    offsets: Floats  # (n_coordinates,)
    labels: Floats  # (n_coordinates, n_seen): what is added to the logits of seen labels
    landmarks: Floats  # (n_landmarks, n_features), standardised; none where features are the inputs
    scale: Floats  # (n_scales,): of squared distances; none where features are the inputs

    def __repr__(self) -> str:
        """Return its size, in a line."""
        return f"LinearPath({self.weights.shape[1]} coordinates)"

    @classmethod
    def empty(cls, n_features: int, n_seen: int) -> LinearPath:
        """Return a path that adds nothing."""
        return cls(
            weights=np.zeros((n_features, 0), dtype=np.float32),
            offsets=np.zeros(0, dtype=np.float32),
            labels=np.zeros((0, n_seen), dtype=np.float32),
            landmarks=np.zeros((0, n_features), dtype=np.float32),
            scale=np.zeros(0, dtype=np.float32),
        )

    @property
    def n_coordinates(self) -> int:
        """How many coordinates there are; 0 where the path adds nothing."""
        return len(self.offsets)

    def coordinates(self, features: Floats) -> Floats:
        """Return the coordinates (n, n_coordinates) of standardised features (n, n_features)."""
        inputs = features
        if len(self.landmarks):
            inputs = gaussian_kernel(features, self.landmarks, float(self.scale[0]))
        return np.asarray(inputs @ self.weights + self.offsets, dtype=np.float32)


class _Sums(NamedTuple):
    """Sums over items, of which normal equations are made."""

    n: int
    features: Matrix  # (n_features,)
    truth: Matrix  # (n_seen,)
    squares: Matrix  # (n_features, n_features)
    products: Matrix  # (n_features, n_seen)

    def plus(self, addend: _Sums) -> _Sums:
        """Return the sums over both groups of items."""
        return _Sums(
            self.n + addend.n,
            self.features + addend.features,
            self.truth + addend.truth,
            self.squares + addend.squares,
            self.products + addend.products,
        )

    def minus(self, subset: _Sums) -> _Sums:
        """Return the sums without a group of items that is part of these."""
        return _Sums(
            self.n - subset.n,
            self.features - subset.features,
            self.truth - subset.truth,
            self.squares - subset.squares,
            self.products - subset.products,
        )

    @property
    def mean(self) -> Matrix:
        """The mean features, (n_features,)."""
        return self.features / self.n

    @property
    def scatter(self) -> Matrix:
        """The centred squares, (n_features, n_features)."""
        scatter = np.outer(self.features, -self.mean)
        scatter += self.squares
        return scatter

    @property
    def cross(self) -> Matrix:
        """The centred products of features and labels, (n_features, n_seen)."""
        return self.products - np.outer(self.mean, self.truth)


class Ridge:
    """Ridge regression from standardised features to labels, in closed form.

    Parameters
    ----------
    features : callable
        Returns the standardised features of some rows.
    truth : csr_matrix, shape (n, n_seen)
        The labels that items carry.
    folds : int64 array, shape (n,)
        Each fold can be predicted by the others.

    Attributes
    ----------
    penalty : float
        In shares of the number of items; the one by which the items of a fold are ranked best.
    quality : float
        E-MAP plus C-MAP of that fold with this penalty.
    """

    def __init__(self, features: Standardised, truth: sp.csr_matrix, folds: IntArray) -> None:
        self._features = features
        self._truth = truth
        self._folds = folds
        self._of_fold = {int(fold): self._sum_up(folds == fold) for fold in np.unique(folds)}
        self._all = reduce(_Sums.plus, self._of_fold.values())
        self.penalty, self.quality = self._choose_penalty()

    def _sum_up(self, in_fold: NDArray[np.bool_]) -> _Sums:
        """Return the sums over the items of a fold."""
        rows = np.flatnonzero(in_fold)
        total: _Sums | None = None
        for start in range(0, len(rows), _BLOCK):
            block = rows[start : start + _BLOCK]
            features = self._features(block)
            truth = self._truth[block]
            label_counts = truth.sum(axis=0)
            squares = features.T @ features
            products = (truth.T @ features).T
            sums = _Sums(
                n=len(block),
                features=features.sum(axis=0, dtype=np.float64),
                truth=np.asarray(label_counts, dtype=np.float64).ravel(),
                squares=np.asarray(squares, dtype=np.float64),
                products=np.asarray(products, dtype=np.float64),
            )
            total = sums if total is None else total.plus(sums)
        assert total is not None
        return total

    def _choose_penalty(self) -> tuple[float, float]:
        """Return the penalty by which one fold is ranked best, and the quality of that ranking."""
        fold, fold_sums = next(iter(self._of_fold.items()))
        sums = self._all.minus(fold_sums)
        if not sums.n:
            return PENALTIES[-1], 0.0
        most = measured_items(self._truth.shape[1])
        fold_rows = np.flatnonzero(self._folds == fold)
        rows = spaced(fold_rows, most)
        centre = sums.mean.astype(np.float32)
        features = self._features(rows) - centre
        carried = self._truth[rows].toarray() > 0
        shares = sums.truth / sums.n

        qualities = []
        for coefficients in _solve(sums, PENALTIES):
            predictions = shares + features @ coefficients
            qualities.append(ranking_quality(carried, predictions))
        best = int(np.argmax(qualities))
        return PENALTIES[best], qualities[best]

    def coefficients(self) -> tuple[Matrix, Matrix]:
        """Return coefficients (n_features, n_seen) learned on all items, and the mean features."""
        (coefficients,) = _solve(self._all, [self.penalty])
        return coefficients.astype(np.float64), self._all.mean

    def predict(self, tables: Sequence[Floats], without: int) -> list[Matrix]:
        """Return predictions for tables of standardised features, learned without one fold.

        They are deviations from the labels' shares, (n, n_seen) for a table (n, n_features).
        """
        sums = self._all.minus(self._of_fold[without])
        (coefficients,) = _solve(sums, [self.penalty])
        predictions = []
        for features in tables:
            centred = features - sums.mean
            predictions.append(np.asarray(centred @ coefficients))
        return predictions

    def path(self, weight: float, spreads: Matrix) -> LinearPath:
        """Return the path that adds predictions in their spreads (n_seen,), times a weight.

        With more labels than `MOST_COORDINATES` it is an approximation of that rank, the best one
        for some of the items.
        """
        coefficients, centre = self.coefficients()
        coefficients /= spreads
        sample = spaced(np.arange(self._all.n), APPROXIMATED)
        centred = self._features(sample) - centre
        loadings = _loadings(centred @ coefficients)
        directions = coefficients @ loadings.T
        offsets = -centre @ directions
        labels = weight * loadings
        return LinearPath.empty(*coefficients.shape)._replace(
            weights=directions.astype(np.float32),
            offsets=offsets.astype(np.float32),
            labels=labels.astype(np.float32),
        )


class KernelRidge:
    """Kernel ridge regression from standardised features to labels, in closed form.

    Parameters
    ----------
    features : float32 array, shape (n, n_features)
        Standardised.
    truth : csr_matrix, shape (n, n_seen)
        The labels that items carry.
    folds : int64 array, shape (n,)
        Each fold can be predicted by the others.

    Attributes
    ----------
    penalty : float
        The one by which held-out items are ranked best, of `PENALTY_ITEMS` items at the most.
    quality : float
        E-MAP plus C-MAP of a fold that is predicted by the others.
    scale : float
        Of squared distances.
    """

    def __init__(self, features: Floats, truth: sp.csr_matrix, folds: IntArray) -> None:
        self._features = features
        self._folds = folds
        carried = np.asarray(truth.toarray(), dtype=np.float32)
        self._carried = carried > 0
        self._deviations = carried - carried.mean(axis=0)
        sample = features[spaced(np.arange(len(features)), _DISTANCE_ITEMS)]
        distances = squared_distances(sample, sample)
        distances = distances[distances > _LEAST_SPREAD]
        self.scale = 1.0
        if len(distances):
            self.scale = KERNEL_SCALE / float(np.median(distances))
        self._kernel = gaussian_kernel(features, features, self.scale)
        self.penalty = self._choose_penalty()
        self.quality = self._fold_quality(np.arange(len(folds)), self.penalty)

    def _choose_penalty(self) -> float:
        """Return the penalty by which the items of one fold are ranked best, among some items."""
        rows = spaced(np.arange(len(self._folds)), PENALTY_ITEMS)
        qualities = [self._fold_quality(rows, penalty) for penalty in KERNEL_PENALTIES]
        best = int(np.argmax(qualities))
        return KERNEL_PENALTIES[best]

    def _fold_quality(self, rows: IntArray, penalty: float) -> float:
        """Return how well the first fold of some items is ranked by the others of them."""
        held_out = self._folds[rows] == self._folds.min()
        measured = spaced(rows[held_out], MEASURED)
        learned = rows[~held_out]
        if not len(measured) or not len(learned):
            return 0.0
        coefficients = self._solve(learned, penalty)
        kernel = self._kernel[np.ix_(measured, learned)]
        predictions = kernel @ coefficients
        shares = self._carried.mean(axis=0)
        return ranking_quality(self._carried[measured], shares + predictions)

    def _solve(self, rows: IntArray, penalty: float) -> Floats:
        """Return the coefficients (n, n_seen) that are learned on some items."""
        kernel = self._kernel[np.ix_(rows, rows)]
        return _solve_kernel(kernel, penalty, self._deviations[rows])

    def predict(self, tables: Sequence[Floats], without: int) -> list[Matrix]:
        """Return predictions for tables of standardised features, learned without one fold.

        They are deviations from the labels' shares, (n, n_seen) for a table (n, n_features).
        """
        learned = np.flatnonzero(self._folds != without)
        coefficients = self._solve(learned, self.penalty)
        landmarks = self._features[learned]
        predictions = []
        for features in tables:
            kernel = gaussian_kernel(features, landmarks, self.scale)
            predictions.append(np.asarray(kernel @ coefficients, dtype=np.float64))
        return predictions

    def path(self, weight: float, spreads: Matrix) -> LinearPath:
        """Return the path that adds predictions in their spreads (n_seen,); see `Ridge.path`."""
        coefficients = _solve_kernel(self._kernel, self.penalty, self._deviations) / spreads
        sample = spaced(np.arange(len(self._kernel)), APPROXIMATED)
        loadings = _loadings(self._kernel[sample] @ coefficients)
        weights = coefficients @ loadings.T
        labels = weight * loadings
        return LinearPath(
            weights=weights.astype(np.float32),
            offsets=np.zeros(len(loadings), dtype=np.float32),
            labels=labels.astype(np.float32),
            landmarks=self._features,
            scale=np.array([self.scale], dtype=np.float32),
        )


def fit_ridge(features: Standardised, truth: sp.csr_matrix, folds: IntArray) -> Ridge | KernelRidge:
    """Fit ridge regression, and kernel ridge regression where items are few; return the better."""
    ridge = Ridge(features, truth, folds)
    n_items = len(folds)
    if n_items > MOST_KERNEL_ITEMS:
        return ridge
    kernel_ridge = KernelRidge(features(np.arange(n_items)), truth, folds)
    is_better = kernel_ridge.quality > ridge.quality + KERNEL_ADVANTAGE
    return kernel_ridge if is_better else ridge


def measured_items(n_labels: int) -> int:
    """Return how many items are ranked to choose by: fewer where labels are very many."""
    return MEASURED * 1024 // max(n_labels, 1024)


def spaced(rows: IntArray, most: int) -> IntArray:
    """Return so many of some rows at the most, evenly spaced."""
    n_rows = min(len(rows), most)
    places = np.linspace(0, len(rows) - 1, n_rows)
    return rows[places.astype(np.int64)]


def squared_distances(first: Floats, second: Floats) -> Floats:
    """Return the squared distances of rows, (n_first, n_second)."""
    # |a - b|² = |a|² - 2 a·b + |b|²
    distances = first @ second.T
    distances *= -2
    distances += np.einsum("nd,nd->n", first, first)[:, None]
    distances += np.einsum("nd,nd->n", second, second)
    nonnegative: Floats = np.maximum(distances, 0, out=distances)
    return nonnegative


def gaussian_kernel(first: Floats, second: Floats, scale: float) -> Floats:
    """Return exp(-scale * squared distance) of rows, (n_first, n_second)."""
    kernel = squared_distances(first, second)
    kernel *= np.float32(-scale)
    return np.exp(kernel, out=kernel)


def _solve_kernel(kernel: Floats, penalty: float, targets: Floats) -> Floats:
    """Return the coefficients (n, n_labels) of kernel ridge regression; `kernel` stays as it is."""
    from scipy.linalg import cho_factor, cho_solve

    # (K + penalty I) coefficients = targets
    penalised = kernel.copy()
    diagonal = np.diag_indices_from(penalised)
    penalised[diagonal] += np.float32(penalty)
    factor = cho_factor(penalised, lower=True, overwrite_a=True, check_finite=False)
    return np.asarray(cho_solve(factor, targets, check_finite=False), dtype=np.float32)


def _loadings(predictions: Matrix) -> Matrix:
    """Return orthonormal rows (n_coordinates, n_labels) that span predictions (n, n_labels).

    With more labels than `MOST_COORDINATES`, those that span them best.
    """
    n_labels = predictions.shape[1]
    if n_labels <= MOST_COORDINATES:
        return np.eye(n_labels)
    from sklearn.utils.extmath import randomized_svd

    rank = min(MOST_COORDINATES, len(predictions))
    single = predictions.astype(np.float32)
    loadings = randomized_svd(single, rank, n_iter=2, random_state=0)[2]
    return np.asarray(loadings, dtype=np.float64)


def _solve(sums: _Sums, penalties: Iterable[float]) -> Iterator[Floats]:
    """Yield the coefficients of ridge regressions, (n_features, n_labels), for each penalty.

    Penalties are shares of the number of items. With them, single precision is enough, and takes
    half the time of double precision.
    """
    from scipy.linalg import cho_factor, cho_solve

    # (Xᵀ X + penalty n I) coefficients = Xᵀ Y, all centred
    scatter = sums.scatter.astype(np.float32)
    cross = sums.cross.astype(np.float32)
    diagonal = np.diag_indices_from(scatter)
    for penalty in penalties:
        penalised = scatter.copy()
        penalised[diagonal] += np.float32(penalty * sums.n)
        factor = cho_factor(penalised, lower=True, overwrite_a=True, check_finite=False)
        yield np.asarray(cho_solve(factor, cross, check_finite=False))


def leave_out(features: Floats, seed: int) -> Floats:
    """Return features of which the share `LEFT_OUT` is 0 and the others are stronger for it."""
    generator = np.random.default_rng(seed)
    numbers = generator.random(features.shape, dtype=np.float32)
    stays = numbers >= LEFT_OUT
    return np.asarray(features * stays / (1 - LEFT_OUT), dtype=np.float32)


def ranking_precisions(carried: NDArray[np.bool_], scores: Matrix) -> tuple[Matrix, Matrix]:
    """Return the precisions that E-MAP and C-MAP are the means of, where they are defined."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PolysemeWarning)
        of_items = np.asarray(example_precision(carried, scores))
        of_labels = np.asarray(concept_precision(carried, scores))
    defined_of_items = of_items[np.isfinite(of_items)]
    defined_of_labels = of_labels[np.isfinite(of_labels)]
    return defined_of_items, defined_of_labels


def ranking_quality(carried: NDArray[np.bool_], scores: Matrix) -> float:
    """Return E-MAP plus C-MAP, each of which is 0 where there is nothing to measure."""
    quality = 0.0
    for precisions in ranking_precisions(carried, scores):
        if len(precisions):
            quality += float(precisions.mean())
    return quality


def choose_weight(
    logits: Matrix,
    predictions: Matrix,
    truth: Matrix,
    item_weights: Matrix,
    frequencies: Matrix,
) -> float:
    """Return the weight of a linear path in the logits of seen labels; 0 where it does not help.

    It is the one of `WEIGHTS` by which held-out items are ranked best (E-MAP and C-MAP), where that
    is better than without a path by more than one standard error.

    Parameters
    ----------
    logits, predictions : float64 arrays, shape (n, n_seen)
        Of held-out items, without the path; and what the path says, in spreads.
    truth : array, shape (n, n_seen)
    item_weights : float64 array, shape (n,)
    frequencies : float64 array, shape (n_seen,)
        What labels are calibrated to.
    """
    carried = truth > 0
    item_precisions = []
    label_precisions = []
    for weight in WEIGHTS:
        with_path = logits + weight * predictions
        with_path += match_frequencies(with_path, item_weights, frequencies)
        of_items, of_labels = ranking_precisions(carried, with_path)
        item_precisions.append(of_items)
        label_precisions.append(of_labels)
    if min(len(item_precisions[0]), len(label_precisions[0])) < 2:
        return 0.0

    # The first weight is 0: without a path.
    item_gains = [precisions - item_precisions[0] for precisions in item_precisions]
    label_gains = [precisions - label_precisions[0] for precisions in label_precisions]
    mean_item_gains = np.array([gains.mean() for gains in item_gains])
    mean_label_gains = np.array([gains.mean() for gains in label_gains])
    total_gains = mean_item_gains + mean_label_gains
    best = int(np.argmax(total_gains))
    error_of_items = _standard_error(item_gains[best])
    error_of_labels = _standard_error(label_gains[best])
    error = np.hypot(error_of_items, error_of_labels)
    return WEIGHTS[best] if total_gains[best] > error else 0.0


def log_loss(logits: Matrix, truth: Matrix, item_weights: Matrix, frequencies: Matrix) -> float:
    """Return the mean log loss of labels (n, n_labels) that are calibrated to frequencies."""
    calibrated = logits + match_frequencies(logits, item_weights, frequencies)
    # -log p(y) = log(1 + exp(z)) - y z
    losses = np.logaddexp(0, calibrated) - truth * calibrated
    item_losses = losses.mean(axis=1)
    return float(item_weights @ item_losses / item_weights.sum())


def _standard_error(values: Matrix) -> float:
    """Return the standard error of a mean."""
    return float(values.std(ddof=1) / np.sqrt(len(values)))


def prediction_spreads(predictions: Matrix) -> Matrix:
    """Return how far predictions (n, n_seen) of each label spread, (n_seen,)."""
    return np.asarray(np.maximum(predictions.std(axis=0), _LEAST_SPREAD))
