"""A linear path from features to seen labels, beside the item encoder: ridge regression.

In: standardised features of items, block by block, the labels that they carry, and folds. Out: a
`Ridge`, or a `KernelRidge` where items are few and it ranks better. Both predict labels with or
without the items of one fold, and give the `LinearPath` that a space keeps.

Terms: *seen* labels are those that items carry; tables of them are (n_items, n_seen), in the order
of the members' labels. The *truth* is such a table of 1 and 0, *carried* the same as booleans. A
*prediction* is a deviation from the share of items that carry a label. *Coefficients* lead from
centred features, or from kernels, to predictions. *Folds* give each item the number of its fold.
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
# Returns the standardised features (n, n_features) of the items with some numbers (n,).
FeatureLoader = Callable[[IntArray], Floats]

# Penalties of `Ridge` that are tried, in shares of the number of items.
PENALTIES = (0.03, 0.1, 0.3, 1.0, 3.0)
# `KernelRidge` solves a system as large as there are items, so they are at most so many.
MOST_KERNEL_ITEMS = 4096
# Its kernel is Gaussian: exp(-KERNEL_SCALE * squared distance / median squared distance).
KERNEL_SCALE = 0.5
# These penalties are added to the kernel's diagonal, and one is chosen on so many items.
KERNEL_PENALTIES = (0.1, 0.3, 1.0, 3.0)
PENALTY_ITEMS = 1500
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
# Normal equations are solved for so many features at the most.
MOST_FEATURES = 4096
# Predictions are kept in so many coordinates at the most.
MOST_COORDINATES = 1024
# Items by whose ranking penalty and weight are chosen.
RANKED_ITEMS = 1024
# Items whose predictions the coordinates are made for.
LOADING_ITEMS = 2048
# Items that are summed up at a time.
_BLOCK_ROWS = 4096
# Items among which the median squared distance is taken.
_DISTANCE_ITEMS = 512
_LEAST_SPREAD = 1e-9


class LinearPath(NamedTuple):
    """A ridge regression in two steps: from inputs to coordinates, and from these to labels.

    Inputs are the standardised features, or their Gaussian kernels with landmarks: training items.
    coordinates = inputs @ weights + offsets; seen labels' logits += coordinates @ labels. Model
    files hold the fields by these names.
    """

    weights: Floats  # (n_inputs, n_coordinates)
    offsets: Floats  # (n_coordinates,)
    labels: Floats  # (n_coordinates, n_seen): what is added to the logits of seen labels
    landmarks: Floats  # (n_landmarks, n_features), standardised; none where features are the inputs
    scale: Floats  # (1,): of squared distances in the kernel; (0,) where features are the inputs

    def __repr__(self) -> str:
        """Return its size, in a line."""
        return f"LinearPath({self.n_coordinates} coordinates)"

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
        landmarks = self.landmarks
        if len(landmarks):
            scale = float(self.scale[0])
            inputs = gaussian_kernel(features, landmarks, scale)
        products = inputs @ self.weights
        coordinates = products + self.offsets
        return np.asarray(coordinates, dtype=np.float32)


class _Sums(NamedTuple):
    """Sums over items, of which normal equations are made.

    With rows x of features X and y of the truth Y, (n_items, n_features) and (n_items, n_seen).
    """

    n_items: int
    features: Matrix  # Σ x, (n_features,)
    truth: Matrix  # Σ y, (n_seen,): how many items carry each label
    gram: Matrix  # Xᵀ X, (n_features, n_features)
    products: Matrix  # Xᵀ Y, (n_features, n_seen)

    def plus(self, addend: _Sums) -> _Sums:
        """Return the sums over both groups of items."""
        return _Sums(
            n_items=self.n_items + addend.n_items,
            features=self.features + addend.features,
            truth=self.truth + addend.truth,
            gram=self.gram + addend.gram,
            products=self.products + addend.products,
        )

    def minus(self, subset: _Sums) -> _Sums:
        """Return the sums without a group of items that is part of these."""
        return _Sums(
            n_items=self.n_items - subset.n_items,
            features=self.features - subset.features,
            truth=self.truth - subset.truth,
            gram=self.gram - subset.gram,
            products=self.products - subset.products,
        )

    @property
    def mean(self) -> Matrix:
        """The mean features, (n_features,)."""
        return self.features / self.n_items

    @property
    def scatter(self) -> Matrix:
        """The Gram matrix of centred features, (n_features, n_features)."""
        # Xᵀ X - n mean meanᵀ
        scatter = np.outer(self.features, -self.mean)
        scatter += self.gram
        return scatter

    @property
    def cross(self) -> Matrix:
        """The products of centred features and labels, (n_features, n_seen)."""
        # Xᵀ Y - mean (Σ y)ᵀ
        products_of_means = np.outer(self.mean, self.truth)
        return self.products - products_of_means


class Ridge:
    """Ridge regression from standardised features to labels, in closed form.

    Parameters
    ----------
    load_features : callable
        Returns the standardised features of the items with some numbers.
    truth : csr_matrix, shape (n_items, n_seen)
        The labels that items carry.
    folds : int64 array, shape (n_items,)
        Each fold can be predicted by the others.

    Attributes
    ----------
    penalty : float
        In shares of the number of items; the one by which the items of a fold are ranked best.
    quality : float
        E-MAP plus C-MAP of that fold with this penalty.
    """

    def __init__(self, load_features: FeatureLoader, truth: sp.csr_matrix, folds: IntArray) -> None:
        self._load_features = load_features
        self._truth = truth
        self._folds = folds
        self._sums_by_fold: dict[int, _Sums] = {}
        for fold in np.unique(folds):
            is_in_fold = folds == fold
            in_fold = np.flatnonzero(is_in_fold)
            fold_sums = self._sum_up(in_fold)
            self._sums_by_fold[int(fold)] = fold_sums
        all_sums = self._sums_by_fold.values()
        self._total = reduce(_Sums.plus, all_sums)
        penalty, quality = self._choose_penalty()
        self.penalty = penalty
        self.quality = quality

    def _sum_up(self, items: IntArray) -> _Sums:
        """Return the sums over some items, of which there is at least one."""
        total: _Sums | None = None
        n_items = len(items)
        for start in range(0, n_items, _BLOCK_ROWS):
            stop = start + _BLOCK_ROWS
            block = items[start:stop]
            features = self._load_features(block)
            truth = self._truth[block]
            label_counts = truth.sum(axis=0)
            gram = features.T @ features
            products = (truth.T @ features).T
            sums = _Sums(
                n_items=len(block),
                features=features.sum(axis=0, dtype=np.float64),
                truth=np.asarray(label_counts, dtype=np.float64).ravel(),
                gram=np.asarray(gram, dtype=np.float64),
                products=np.asarray(products, dtype=np.float64),
            )
            if total is None:
                total = sums
            else:
                total = total.plus(sums)
        assert total is not None
        return total

    def _choose_penalty(self) -> tuple[float, float]:
        """Return the penalty by which one fold is ranked best, and the quality of that ranking."""
        folds = iter(self._sums_by_fold.items())
        fold, fold_sums = next(folds)
        sums = self._total.minus(fold_sums)
        if not sums.n_items:  # there is one fold, and nothing to learn it from
            return PENALTIES[-1], 0.0
        n_labels = self._truth.shape[1]
        is_in_fold = self._folds == fold
        in_fold = np.flatnonzero(is_in_fold)
        ranked = spaced(in_fold, ranked_items(n_labels))
        # Single precision, as features are: a double would make copies of all that follows.
        centre = sums.mean.astype(np.float32)
        features = self._load_features(ranked)
        centred = features - centre
        truth = self._truth[ranked].toarray()
        carried = truth > 0
        shares = sums.truth / sums.n_items

        qualities = []
        for coefficients in _solve(sums, PENALTIES):
            deviations = centred @ coefficients
            predictions = shares + deviations
            quality = ranking_quality(carried, predictions)
            qualities.append(quality)
        best = int(np.argmax(qualities))
        return PENALTIES[best], qualities[best]

    def coefficients(self) -> tuple[Matrix, Matrix]:
        """Return coefficients (n_features, n_seen) learned on all items, and the mean features."""
        (single,) = _solve(self._total, [self.penalty])
        coefficients = single.astype(np.float64)
        return coefficients, self._total.mean

    def predict(self, tables: Sequence[Floats], without: int) -> list[Matrix]:
        """Return predictions (n, n_seen) for each table, learned without the items of one fold.

        Parameters
        ----------
        tables : sequence of float32 arrays, shape (n, n_features)
            Standardised features of items.
        without : int
            The fold.
        """
        sums = self._total.minus(self._sums_by_fold[without])
        (coefficients,) = _solve(sums, [self.penalty])
        predictions = []
        for features in tables:
            centred = features - sums.mean
            table_predictions = np.asarray(centred @ coefficients)
            predictions.append(table_predictions)
        return predictions

    def path(self, weight: float, spreads: Matrix) -> LinearPath:
        """Return the path that adds predictions in their spreads, times a weight.

        With more labels than `MOST_COORDINATES` it is an approximation of that rank, the best one
        for some of the items.

        Parameters
        ----------
        weight : float
        spreads : float64 array, shape (n_seen,)
            Standard deviations of predictions; see `prediction_spreads`.
        """
        # (x - mean) coefficients / spreads ≈ ((x - mean) directions) loadings
        coefficients, centre = self.coefficients()
        coefficients /= spreads
        n_items = self._total.n_items
        all_items = np.arange(n_items)
        sample = spaced(all_items, LOADING_ITEMS)
        features = self._load_features(sample)
        centred = features - centre
        predictions = centred @ coefficients
        loadings = _loadings(predictions)
        directions = coefficients @ loadings.T
        offsets = -centre @ directions
        labels = weight * loadings
        n_features, n_seen = coefficients.shape
        empty = LinearPath.empty(n_features, n_seen)
        return empty._replace(
            weights=directions.astype(np.float32),
            offsets=offsets.astype(np.float32),
            labels=labels.astype(np.float32),
        )


class KernelRidge:
    """Kernel ridge regression from standardised features to labels, in closed form.

    Its coefficients are the dual ones: predictions = kernel with the items that were learned from,
    (n, n_learned), @ coefficients (n_learned, n_seen).

    Parameters
    ----------
    features : float32 array, shape (n_items, n_features)
        Standardised.
    truth : csr_matrix, shape (n_items, n_seen)
        The labels that items carry.
    folds : int64 array, shape (n_items,)
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
        table = truth.toarray()
        labels = np.asarray(table, dtype=np.float32)
        self._carried = labels > 0
        shares = labels.mean(axis=0)
        self._deviations = labels - shares
        n_items = len(folds)
        all_items = np.arange(n_items)
        sample_items = spaced(all_items, _DISTANCE_ITEMS)
        sample = features[sample_items]
        distances = squared_distances(sample, sample)
        is_positive = distances > _LEAST_SPREAD  # not those of items to themselves
        distances = distances[is_positive]
        self.scale = 1.0
        if len(distances):
            median = float(np.median(distances))
            self.scale = KERNEL_SCALE / median
        self._kernel = gaussian_kernel(features, features, self.scale)
        self.penalty = self._choose_penalty()
        self.quality = self._fold_quality(all_items, self.penalty)

    def _choose_penalty(self) -> float:
        """Return the penalty by which the items of one fold are ranked best, among some items."""
        n_items = len(self._folds)
        all_items = np.arange(n_items)
        items = spaced(all_items, PENALTY_ITEMS)
        qualities = []
        for penalty in KERNEL_PENALTIES:
            quality = self._fold_quality(items, penalty)
            qualities.append(quality)
        best = int(np.argmax(qualities))
        return KERNEL_PENALTIES[best]

    def _fold_quality(self, items: IntArray, penalty: float) -> float:
        """Return how well the first fold of some items is ranked by the others of them.

        0 where all of them are in that fold, or none.
        """
        first_fold = self._folds.min()
        item_folds = self._folds[items]
        is_held_out = item_folds == first_fold
        held_out = items[is_held_out]
        learned = items[~is_held_out]
        if not len(held_out) or not len(learned):
            return 0.0
        ranked = spaced(held_out, RANKED_ITEMS)
        coefficients = self._solve(learned, penalty)
        pairs = np.ix_(ranked, learned)
        kernel = self._kernel[pairs]
        predictions = kernel @ coefficients
        shares = self._carried.mean(axis=0)
        carried = self._carried[ranked]
        return ranking_quality(carried, shares + predictions)

    def _solve(self, items: IntArray, penalty: float) -> Floats:
        """Return the dual coefficients (n, n_seen) that are learned on some items (n,)."""
        pairs = np.ix_(items, items)
        kernel = self._kernel[pairs]
        targets = self._deviations[items]
        return _solve_kernel(kernel, penalty, targets)

    def predict(self, tables: Sequence[Floats], without: int) -> list[Matrix]:
        """Return predictions for tables of features, learned without one fold; see `Ridge`."""
        learned = np.flatnonzero(self._folds != without)
        coefficients = self._solve(learned, self.penalty)
        landmarks = self._features[learned]
        predictions = []
        for features in tables:
            kernel = gaussian_kernel(features, landmarks, self.scale)
            single = kernel @ coefficients
            table_predictions = np.asarray(single, dtype=np.float64)
            predictions.append(table_predictions)
        return predictions

    def path(self, weight: float, spreads: Matrix) -> LinearPath:
        """Return the path that adds predictions in their spreads (n_seen,); see `Ridge.path`.

        All training items are its landmarks.
        """
        kernel = self._kernel
        coefficients = _solve_kernel(kernel, self.penalty, self._deviations)
        scaled_coefficients = coefficients / spreads
        n_items = len(kernel)
        all_items = np.arange(n_items)
        sample = spaced(all_items, LOADING_ITEMS)
        sample_kernel = kernel[sample]
        predictions = sample_kernel @ scaled_coefficients
        loadings = _loadings(predictions)
        n_coordinates = len(loadings)
        weights = scaled_coefficients @ loadings.T
        labels = weight * loadings
        return LinearPath(
            weights=weights.astype(np.float32),
            offsets=np.zeros(n_coordinates, dtype=np.float32),
            labels=labels.astype(np.float32),
            landmarks=self._features,
            scale=np.array([self.scale], dtype=np.float32),
        )


def fit_ridge(
    load_features: FeatureLoader, truth: sp.csr_matrix, folds: IntArray
) -> Ridge | KernelRidge:
    """Fit ridge regression, and kernel ridge regression where items are few; return the better.

    Parameters
    ----------
    load_features, truth, folds
        As `Ridge` takes them.
    """
    ridge = Ridge(load_features, truth, folds)
    n_items = len(folds)
    if n_items > MOST_KERNEL_ITEMS:
        return ridge
    all_items = np.arange(n_items)
    features = load_features(all_items)
    kernel_ridge = KernelRidge(features, truth, folds)
    advantage = kernel_ridge.quality - ridge.quality
    return kernel_ridge if advantage > KERNEL_ADVANTAGE else ridge


def ranked_items(n_labels: int) -> int:
    """Return how many items are ranked to choose by: fewer where labels are very many."""
    most_logits = RANKED_ITEMS * 1024
    return most_logits // max(n_labels, 1024)


def spaced(numbers: IntArray, most: int) -> IntArray:
    """Return so many of some numbers at the most, evenly spaced and in the same order."""
    n_numbers = len(numbers)
    n_chosen = min(n_numbers, most)
    last = n_numbers - 1
    positions = np.linspace(0, last, n_chosen)
    rounded = positions.astype(np.int64)
    return numbers[rounded]


def squared_distances(first: Floats, second: Floats) -> Floats:
    """Return the squared distances (n_first, n_second) of rows (n_first, d) and (n_second, d)."""
    # |a - b|² = |a|² - 2 a·b + |b|²
    first_squares = np.einsum("nd,nd->n", first, first)
    second_squares = np.einsum("nd,nd->n", second, second)
    distances = first @ second.T
    distances *= -2
    distances += first_squares[:, None]
    distances += second_squares
    # Rounding leaves some a little below 0.
    nonnegative: Floats = np.maximum(distances, 0, out=distances)
    return nonnegative


def gaussian_kernel(first: Floats, second: Floats, scale: float) -> Floats:
    """Return exp(-scale * squared distance) of rows, (n_first, n_second)."""
    # One large table, changed in place.
    kernel = squared_distances(first, second)
    factor = np.float32(-scale)
    kernel *= factor
    return np.exp(kernel, out=kernel)


def _solve_kernel(kernel: Floats, penalty: float, targets: Floats) -> Floats:
    """Return the dual coefficients (n_items, n_labels) of kernel ridge regression.

    Parameters
    ----------
    kernel : float32 array, shape (n_items, n_items)
        Stays as it is.
    penalty : float
    targets : float32 array, shape (n_items, n_labels)
    """
    # (K + penalty I) coefficients = targets
    return _solve_penalised(kernel, penalty, targets)


def _solve_penalised(matrix: Floats, penalty: float, targets: Floats) -> Floats:
    """Return (matrix + penalty I)⁻¹ targets; the matrix is positive definite and stays as it is."""
    from scipy.linalg import cho_factor, cho_solve

    penalised = matrix.copy()
    diagonal = np.diag_indices_from(penalised)
    penalised[diagonal] += np.float32(penalty)
    factor = cho_factor(
        penalised,
        lower=True,
        overwrite_a=True,
        check_finite=False,
    )
    coefficients = cho_solve(factor, targets, check_finite=False)
    return np.asarray(coefficients, dtype=np.float32)


def _loadings(predictions: Matrix) -> Matrix:
    """Return orthonormal rows (n_coordinates, n_labels) that span predictions (n_items, n_labels).

    With more labels than `MOST_COORDINATES`, those that span them best.
    """
    n_items, n_labels = predictions.shape
    if n_labels <= MOST_COORDINATES:
        return np.eye(n_labels)
    from sklearn.utils.extmath import randomized_svd

    single = predictions.astype(np.float32)
    _, _, loadings = randomized_svd(
        single,
        n_components=min(MOST_COORDINATES, n_items),
        n_iter=2,
        random_state=0,
    )
    return np.asarray(loadings, dtype=np.float64)


def _solve(sums: _Sums, penalties: Iterable[float]) -> Iterator[Floats]:
    """Yield the coefficients of ridge regressions, (n_features, n_labels), for each penalty.

    Penalties are shares of the number of items. With them, single precision is enough, and takes
    half the time of double precision.
    """
    # (Xᵀ X + penalty n I) coefficients = Xᵀ Y, all centred
    scatter = sums.scatter.astype(np.float32)
    cross = sums.cross.astype(np.float32)
    for penalty in penalties:
        yield _solve_penalised(scatter, penalty * sums.n_items, cross)


def leave_out(features: Floats, seed: int) -> Floats:
    """Return features of which the share `LEFT_OUT` is 0 and the others are stronger for it.

    The same seed and shape give the same gaps: two places of a fit rely on it.
    """
    generator = np.random.default_rng(seed)
    shape = features.shape
    draws = generator.random(shape, dtype=np.float32)
    stays = draws >= LEFT_OUT
    remaining = features * stays
    share_remaining = 1 - LEFT_OUT
    strengthened = remaining / share_remaining
    return np.asarray(strengthened, dtype=np.float32)


def ranking_precisions(carried: NDArray[np.bool_], scores: Matrix) -> tuple[Matrix, Matrix]:
    """Return the precisions that E-MAP and C-MAP are the means of, where they are defined.

    Parameters
    ----------
    carried, scores : arrays, shape (n_items, n_labels)
        Which labels items carry, and what labels are ranked by.

    Returns
    -------
    item_precisions, label_precisions : float64 arrays
        Of items that carry a label, and of labels that an item carries; their order is fixed by
        `carried` alone.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PolysemeWarning)
        item_precisions = np.asarray(example_precision(carried, scores))
        label_precisions = np.asarray(concept_precision(carried, scores))
    is_item_defined = np.isfinite(item_precisions)
    is_label_defined = np.isfinite(label_precisions)
    defined_of_items = item_precisions[is_item_defined]
    defined_of_labels = label_precisions[is_label_defined]
    return defined_of_items, defined_of_labels


def ranking_quality(carried: NDArray[np.bool_], scores: Matrix) -> float:
    """Return E-MAP plus C-MAP, each of which is 0 where there is nothing to measure."""
    quality = 0.0
    for precisions in ranking_precisions(carried, scores):
        if len(precisions):
            mean_precision = precisions.mean()
            quality += float(mean_precision)
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
    logits : float64 array, shape (n_items, n_seen)
        Of held-out items, without the path.
    predictions : float64 array, shape (n_items, n_seen)
        Of the path, in spreads; see `prediction_spreads`.
    truth : array, shape (n_items, n_seen)
    item_weights : float64 array, shape (n_items,)
        For how many items each stands.
    frequencies : float64 array, shape (n_seen,)
        What labels are calibrated to.
    """
    carried = truth > 0
    item_precisions: list[Matrix] = []
    label_precisions: list[Matrix] = []
    for weight in WEIGHTS:
        with_path = logits + weight * predictions
        # Items are comparable within a label only where labels are calibrated.
        with_path += match_frequencies(with_path, item_weights, frequencies)
        of_items, of_labels = ranking_precisions(carried, with_path)
        item_precisions.append(of_items)
        label_precisions.append(of_labels)
    n_items = len(item_precisions[0])
    n_labels = len(label_precisions[0])
    if min(n_items, n_labels) < 2:  # there is no standard error
        return 0.0

    # The first weight is 0: without a path.
    item_gains = [precisions - item_precisions[0] for precisions in item_precisions]
    label_gains = [precisions - label_precisions[0] for precisions in label_precisions]
    mean_item_gains = np.array([gains.mean() for gains in item_gains])
    mean_label_gains = np.array([gains.mean() for gains in label_gains])
    total_gains = mean_item_gains + mean_label_gains
    best = int(np.argmax(total_gains))
    item_error = _standard_error(item_gains[best])
    label_error = _standard_error(label_gains[best])
    error = np.hypot(item_error, label_error)
    is_better = total_gains[best] > error
    return WEIGHTS[best] if is_better else 0.0


def calibrated_log_loss(
    logits: Matrix, truth: Matrix, item_weights: Matrix, frequencies: Matrix
) -> float:
    """Return the weighted mean log loss of labels after they are calibrated to frequencies.

    A fit compares shrinkages of readouts by it.

    Parameters
    ----------
    logits, truth : float64 arrays, shape (n_items, n_labels)
    item_weights : float64 array, shape (n_items,)
    frequencies : float64 array, shape (n_labels,)
    """
    intercepts = match_frequencies(logits, item_weights, frequencies)
    calibrated = logits + intercepts
    # -log p(y) = log(1 + exp(z)) - y z
    normalisers = np.logaddexp(0, calibrated)
    true_logits = truth * calibrated
    losses = normalisers - true_logits
    item_losses = losses.mean(axis=1)
    total_loss = item_weights @ item_losses
    total_weight = item_weights.sum()
    return float(total_loss / total_weight)


def _standard_error(values: Matrix) -> float:
    """Return the standard error of the mean of some values, of which there are two or more."""
    deviation = values.std(ddof=1)
    return float(deviation / np.sqrt(len(values)))


def prediction_spreads(predictions: Matrix) -> Matrix:
    """Return the standard deviation of each label's predictions (n_items, n_seen), (n_seen,).

    Never 0, so that predictions may be divided by it.
    """
    deviations = predictions.std(axis=0)
    spreads = np.maximum(deviations, _LEAST_SPREAD)
    return np.asarray(spreads)
