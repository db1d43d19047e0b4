"""The instance mapping: from features to points in the concept space.

In: features (n, n_features) of instances and their points (n, d) in concept space. Out: a model
that predicts points for other instances: nu-support-vector or ridge regressions over one kernel.

Terms: *features* are as the caller has them, *rows* are features after `scale_rows`. *Targets* are
the points to predict, one *output* for each of their d coordinates. A *setting* is a value of each
hyperparameter. Equations are (6) to (8) of the paper.
"""

from __future__ import annotations

import inspect
import itertools
import warnings
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Self, TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from sklearn.base import MultiOutputMixin, RegressorMixin
from sklearn.utils.validation import validate_data

from polyseme.base.estimator import Estimator
from polyseme.base.folds import fold_numbers, group_numbers
from polyseme.base.machine import n_cores
from polyseme.base.validation import (
    MOST_FEATURE,
    FloatArray,
    InputError,
    IntArray,
    PolysemeWarning,
    RandomState,
    as_generator,
    check_device,
    check_features,
    check_fitted,
    check_number,
    check_option,
    unknown_name,
)
from polyseme.published.kernels import (
    FARTHEST,
    SCALINGS,
    Array,
    Rows,
    blas_threads,
    column_statistics,
    kernel_widths,
    pairwise_squared_distances,
    rbf_from_squared,
    rbf_kernel,
    rbf_predict,
    row_blocks,
    scale_rows,
    squared_distances,
    to_device,
    to_numpy,
)
from polyseme.published.regression import (
    LandmarkKernel,
    SharedKernelSolver,
    landmarks_within,
    solve_kernel_ridge,
)
from polyseme.storage.array_checks import (
    Array as Declared,
)
from polyseme.storage.array_checks import (
    Csr,
    Fields,
    Flag,
    ListOf,
    MappingOf,
    Maybe,
    Number,
    Plain,
    Whole,
    check_arrays,
    declare_parameters,
    matrix_of,
)
from polyseme.storage.model_file import State, as_python_value

Setting: TypeAlias = Mapping[str, float]  # "gamma" and "penalty", or "gamma", "C" and "nu"
Precision: TypeAlias = type[np.float32] | type[np.float64]

KINDS = ("nu-svr", "kernel-ridge")
# The first value of each grid wins ties and stands where nothing can be cross-validated. C is in
# units of the targets' spread and starts in the middle, so that one factorisation serves all.
NU_GRID = (0.4, 0.2, 0.6)
C_GRID = (2.0, 0.5, 8.0)
PENALTY_GRID = (1.0, 0.1, 0.3, 3.0, 0.03, 10.0)

# Hyperparameters, and fitted arrays that are saved under these names; `InstanceMapper` has each as
# an attribute with an underscore behind.
_HYPERPARAMETERS = ("nu", "C", "gamma", "penalty")
_ARRAY_NAMES = ("mean", "scale", "support", "dual_coef", "intercept")
# Up to this many rows float64 costs nothing worth saving, and a GPU gains nothing.
_DOUBLE_ROWS = 512
_GPU_ROWS = 2000
# The least sample of many instances that heuristics for gamma look at.
_HEURISTIC_ROWS = 1000
# Of the search for settings: a loose tolerance, few iterations and few outputs. None moves the
# choice, and all save most of the time.
_SEARCH_TOLERANCE = 3e-3
_SEARCH_ITERATIONS = 500
_SEARCH_OUTPUTS = 32


@dataclass(repr=False, eq=False)  # both are scikit-learn's
class InstanceMapper(RegressorMixin, MultiOutputMixin, Estimator):  # type: ignore[misc]  # untyped
    """Predict points in concept space from instance features.

    Each of the d coordinates is a regression of its own over one Gaussian kernel
    ``exp(-gamma ||x - x'||^2)`` that all share (in the paper: IM, section 3.3.2). The kernel is
    computed and factorised once, whatever d is.

    Parameters
    ----------
    kind : {"nu-svr", "kernel-ridge"}
        The paper's nu-support-vector regressions, or ridge regressions in closed form, which are
        several times faster and about as accurate.
    nu : float, optional
        For "nu-svr", in (0, 1]: the share of instances outside the tube. None: cross-validated
        (0.2, 0.4, 0.6).
    C : float, optional
        For "nu-svr": bound on a coefficient, in the targets' units and on libsvm's scale (N times
        smaller than the paper's eq. (6)). None: cross-validated (0.5, 2, 8 times the targets'
        spread).
    gamma : float, "median" or None
        Width of the kernel over the scaled features: a value, 1 / median squared distance, or
        None: cross-validated (1/4, 1, 4 times that).
    penalty : float, optional
        For "kernel-ridge": added to the kernel's diagonal. None: cross-validated (0.03 to 10).
    scaling : {"standard", "l2", "none"}
        What is done to features first: each column to mean 0 and spread 1 (sparse: spread only),
        each row to length 1 (the paper's gamma = 1 then fits), or nothing.
    tolerance : float
        For "nu-svr": accepted error of the solution, in spreads of the target.
    n_folds : int
        Parts of the cross-validation.
    search_size : int
        Cross-validate on at most so many instances; the final fit uses all.
    memory_mb : float
        Bound on the kernel matrices of `fit` and the blocks of `predict`. Where the kernel of all
        instances does not fit, landmarks take over, with a warning.
    n_landmarks : int, optional
        Predict from so many landmarks, drawn at random, instead of all instances: a Nyström
        approximation of the kernel, whose time grows linearly with the instances. None: all
        instances while they fit `memory_mb`, beyond that as many landmarks as do, at most 3,000.
    device : str, optional
        Where the kernel is computed and solved and where points are predicted, as torch names it;
        "cpu" needs no torch. None: a CUDA device where there is one and more than 2,000 instances,
        else the processor. Results are the same within the tolerance.
    random_state : int, numpy.random.Generator or None
        Shuffles the folds, draws what the search looks at, and the landmarks.

    Attributes
    ----------
    nu_, C_, gamma_, penalty_ : float or None
        The values used; None where they do not apply.
    mean_, scale_ : float64 arrays, shape (n_features,)
        Subtracted from and divided out of each column.
    X_fit_ : array or csr_matrix, shape (n_support, n_features)
        Scaled rows of the instances that predictions depend on: supports, or landmarks.
    support_ : int64 array, shape (n_support,)
        Which training instances these are.
    dual_coef_ : array, shape (n_support, d)
    intercept_ : array, shape (d,)
    n_landmarks_ : int or None
        Landmarks used; None when the kernel of all instances was.
    cv_results_ : list of dict
        The searched settings in the order tried, with "mse" (mean over folds) and "mse_folds".
    n_features_in_ : int

    Notes
    -----
    Settings are compared by the mean squared error over coordinates (32 drawn at random where there
    are more); the first of equals wins. Two departures from the paper: its range of nu is [0.1,
    0.4], but on two picture corpora 0.1 was never best and 0.6 sometimes was; and gamma follows the
    features' scale. Up to 512 instances are fitted and predicted in float64, more in float32. On
    two picture corpora 1,000 landmarks lost 0.01 to 0.02 of an R2 of 0.25 and 0.57.

    References
    ----------
    Sandouk and Chen, "Multi-Label Zero-Shot Learning via Concept Embedding", 2016, eqs (6)-(8).

    Examples
    --------
    >>> import numpy as np
    >>> from polyseme.published.mapping import InstanceMapper
    >>> X = np.linspace(-3, 3, 60)[:, None]
    >>> mapper = InstanceMapper(random_state=0).fit(X, np.hstack([np.sin(X), np.cos(X)]))
    >>> mapper.predict([[0.0]]).round(1) + 0.0
    array([[0., 1.]])
    """

    kind: str = "nu-svr"
    nu: float | None = None
    C: float | None = None
    gamma: float | str | None = None
    penalty: float | None = None
    scaling: str = "standard"
    tolerance: float = 1e-3
    n_folds: int = 3
    search_size: int = 2000
    memory_mb: float = 2048
    n_landmarks: int | None = None
    device: str | None = None
    random_state: RandomState = None

    @classmethod
    def from_preset(cls, name: str = "default") -> Self:
        """Return a mapper with a named set of parameters, "default" or "paper".

        "paper" has the published C = 1 and γ = 1, over features of length one, where that γ fits,
        and ν by cross-validation, as published.
        """
        if name not in ("default", "paper"):
            raise unknown_name("preset", name, ("default", "paper"))
        if name == "paper":
            return cls(C=1.0, gamma=1.0, scaling="l2")
        return cls()

    def fit(self, X: object, points: object, groups: ArrayLike | None = None) -> Self:
        """Fit regressions from features to points.

        Parameters
        ----------
        X : array-like, scipy sparse, pandas or polars frame, shape (n, n_features)
        points : array-like, shape (n, d) or (n,)
            The instances' points in concept space (in the paper: s, eq. (5)).
        groups : array-like, shape (n,), optional
            What belongs together (an artist's songs): never on both sides of a fold of the
            cross-validation.
        """
        self.check_parameters()
        features = check_features(X, owner="InstanceMapper", keep_single=True)
        validate_data(self, X, skip_check_array=True)
        n, self.n_features_in_ = features.shape
        targets = _check_points(points, n)
        self._flat = targets.ndim == 1
        targets = targets.reshape(n, -1)
        members = group_numbers(groups, n)
        generator = as_generator(self.random_state)
        dtype = _precision(n)
        device = self._device(n)

        # Scale the features; with landmarks the search looks at a sample.
        n_landmarks = self._count_landmarks(n)
        sample_size = max(self.search_size, _HEURISTIC_ROWS)
        sample: IntArray | slice = slice(None)
        if n_landmarks is None:
            features = features.astype(np.float64, copy=False)
        elif n > sample_size:
            drawn_rows = generator.choice(n, sample_size, replace=False)
            sample = np.sort(drawn_rows)
        self.mean_, self.scale_ = column_statistics(features, self.scaling)
        rows = self._scale(features[sample], dtype)

        # Choose the settings by cross-validation.
        if members is not None:
            members = members[sample]
        sample_targets = targets[sample].astype(np.float64)
        self._search(rows, sample_targets, members, generator)

        # Fit with the kernel of all instances where it fits the memory.
        self.n_landmarks_: int | None = None
        self.dual_coef_: FloatArray
        if n_landmarks is None:
            device_rows = to_device(rows, device)
            coefficients, self.intercept_ = self._solve(device_rows, targets)
            is_support = coefficients.any(axis=1)
            self.support_ = np.flatnonzero(is_support).astype(np.int64)
            self.X_fit_ = rows[self.support_]
            self.dual_coef_ = np.ascontiguousarray(coefficients[self.support_])
            return self

        # On features of pictures, rows drawn far from each other predict no better.
        landmarks = generator.choice(n, n_landmarks, replace=False)
        landmarks = np.sort(landmarks).astype(np.int64)

        def take_rows(block: slice) -> FloatArray:
            scaled = self._scale(features[block], dtype)
            return _dense(scaled)

        kernel = LandmarkKernel(
            take_rows,
            n,
            self._scale(features[landmarks], dtype),
            self.gamma_,
            self.memory_mb * 2**20,
            device,
        )
        if self.penalty_ is not None:
            solution = kernel.fit_ridge(targets, self.penalty_)
        else:
            solution = kernel.fit_nu_svr(targets, self.nu_, self.C_, self.tolerance)
        self.dual_coef_, self.intercept_ = solution
        self.n_landmarks_ = len(kernel.used)
        self.support_ = landmarks[kernel.used]
        self.X_fit_ = kernel.landmarks
        return self

    def _solve(self, rows: Array, targets: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Fit with the kernel of all instances: coefficients (n, d) and bias (d,).

        Rows are scaled and on the device; the settings are those of the attributes.
        """
        kernel = rbf_kernel(rows, self.gamma_)
        targets = targets.astype(np.float64, copy=False)
        if self.penalty_ is not None:
            return solve_kernel_ridge(kernel, targets, self.penalty_)
        solver = SharedKernelSolver(kernel)
        solution = solver.solve(
            targets,
            self.nu_,
            self.C_,
            tolerance=self.tolerance,
        )
        return solution.coefficients, solution.bias

    def predict(self, X: object) -> NDArray[np.float64]:
        """Predict points of instances, (m, n_features) to (m, d); (m,) where `fit` got (n,)."""
        check_fitted(self, "dual_coef_")
        features = check_features(
            X,
            owner="InstanceMapper",
            n_features=self.n_features_in_,
            keep_single=True,
        )
        validate_data(self, X, reset=False, skip_check_array=True)
        dual_coef = self.dual_coef_
        n_support, d = dual_coef.shape
        device = self._device(n_support)
        support_rows = to_device(self.X_fit_, device)
        coefficients = to_device(dual_coef, device)
        bias = to_device(self.intercept_, device)
        n_instances = features.shape[0]
        points = np.empty((n_instances, d))
        is_double = dual_coef.dtype == np.float64
        dtype = np.float64 if is_double else np.float32
        # A block holds its features twice (once in float64), its kernel and its points.
        kernel_bytes = dual_coef.itemsize * (n_support + d)
        feature_bytes = 24 * self.n_features_in_
        row_bytes = kernel_bytes + feature_bytes
        memory_bytes = self.memory_mb * 2**20
        for block in row_blocks(n_instances, row_bytes, memory_bytes):
            dense = _dense(features[block])
            scaled = self._scale(dense, dtype)
            predicted = rbf_predict(
                to_device(scaled, device),
                support_rows,
                self.gamma_,
                coefficients,
                bias,
            )
            points[block] = to_numpy(predicted)
        return points[:, 0] if self._flat else points

    def get_state(self) -> State:
        """Return the fitted model as JSON values and arrays, without device and generator.

        The names of both are the format on disk; see `_STATE_SCHEMA` and the arrays below it.
        """
        check_fitted(self, "dual_coef_")
        parameters = {name: as_python_value(value) for name, value in self.get_params().items()}
        del parameters["device"]  # where a model was fitted says nothing of where it is used
        if not isinstance(self.random_state, (int, np.integer)):
            parameters["random_state"] = None
        settings = {f"{name}_": getattr(self, f"{name}_") for name in _HYPERPARAMETERS}
        config = {
            "parameters": parameters,
            "settings": settings,
            "cv_results": self.cv_results_,
            "n_landmarks": self.n_landmarks_,
            "flat": self._flat,
            "n_features_in": self.n_features_in_,
        }
        arrays = {name: getattr(self, f"{name}_") for name in _ARRAY_NAMES}
        if sp.issparse(self.X_fit_):
            arrays["rows.data"] = self.X_fit_.data
            arrays["rows.indices"] = self.X_fit_.indices
            arrays["rows.indptr"] = self.X_fit_.indptr
        else:
            arrays["rows"] = self.X_fit_
        return config, arrays

    @classmethod
    def from_state(cls, config: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Self:
        """Rebuild a fitted model from `get_state`; it predicts bit for bit the same."""
        _STATE_SCHEMA.check(config)
        is_dense = "rows" in arrays
        n_features = config["n_features_in"]
        declared = _STATE_ARRAYS | (_DENSE_ROWS if is_dense else _SPARSE_ROWS)
        sizes = check_arrays(arrays, declared, n_features=n_features)
        mapper = cls(**config["parameters"])
        mapper.check_parameters()
        for name, value in config["settings"].items():
            setattr(mapper, name, value)
        for name in _ARRAY_NAMES:
            array = np.array(arrays[name], order="C")
            setattr(mapper, f"{name}_", array)
        mapper.cv_results_ = list(config["cv_results"])
        mapper.n_landmarks_ = config["n_landmarks"]
        mapper._flat = config["flat"]
        mapper.n_features_in_ = n_features
        if is_dense:
            mapper.X_fit_ = np.array(arrays["rows"], order="C")
        else:
            shape = (sizes["n_support"], n_features)
            mapper.X_fit_ = matrix_of(arrays, shape, "rows")
        return mapper

    def __sklearn_tags__(self) -> Any:
        """Return scikit-learn's tags: sparse features are welcome."""
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def check_parameters(self) -> None:
        """Raise an `InputError` that names the first parameter out of its range."""
        owner = "InstanceMapper"
        check_option("kind", self.kind, KINDS, owner=owner)
        check_option("scaling", self.scaling, SCALINGS, owner=owner)
        if isinstance(self.gamma, str):
            check_option("gamma", self.gamma, ("median",), owner=owner)
        if self.nu is not None:
            check_number("nu", self.nu, owner=owner, low=0, high=1, above=True)
        for name in ("gamma", "C", "penalty", "tolerance", "memory_mb"):
            value = getattr(self, name)
            is_median = name == "gamma" and isinstance(value, str)
            if value is not None and not is_median:
                check_number(name, value, owner=owner, low=0, above=True)
        for name in ("n_folds", "search_size"):
            count = getattr(self, name)
            check_number(name, count, owner=owner, low=2, whole=True)
        if self.n_landmarks is not None:
            check_number("n_landmarks", self.n_landmarks, owner=owner, low=1, whole=True)
        self._device(0)  # raises on a device that is not there

    def _device(self, n: int) -> str:
        """Return where a kernel of n rows is computed."""
        if self.device is None and n <= _GPU_ROWS:
            return "cpu"
        return check_device(self.device, owner="InstanceMapper")

    def _scale(self, features: Rows, dtype: Precision) -> Rows:
        """Scale features (b, n_features) as those of the training instances, by new memory."""
        return scale_rows(
            features,
            self.scaling,
            self.mean_,
            self.scale_,
            dtype,
        )

    def _count_landmarks(self, n: int) -> int | None:
        """Return how many landmarks to draw: None while the kernel and its factor fit the bound."""
        if self.n_landmarks is not None:
            return min(int(self.n_landmarks), n)
        memory_bytes = self.memory_mb * 2**20
        itemsize = np.dtype(_precision(n)).itemsize
        entry_bytes = 2 * itemsize  # of the kernel and of its factor
        most_rows = int((memory_bytes / entry_bytes) ** 0.5)
        if n <= most_rows:
            return None
        row_bytes = 0 if self.kind == "kernel-ridge" else itemsize
        n_landmarks = landmarks_within(n, memory_bytes, row_bytes)
        needed_bytes = n * n * entry_bytes
        needed_mb = int(np.ceil(needed_bytes / 2**20))
        warnings.warn(
            f"`X` of `InstanceMapper` has {n} instances, whose kernel matrices need "
            f"{needed_mb} MB, but `memory_mb` is {self.memory_mb:g}: "
            f"points are predicted from {n_landmarks} landmarks instead of all instances, which is "
            "less exact; raise it for more, or set `n_landmarks`.",
            PolysemeWarning,
            stacklevel=3,
        )
        return n_landmarks

    def _candidate_settings(
        self, rows: Rows, targets: FloatArray, generator: np.random.Generator
    ) -> list[dict[str, float]]:
        """Return all combinations of the grids; a parameter that is set has a grid of one value.

        Those of one gamma stand side by side, and inside these those of one C, so that a search
        factorises a kernel once.
        """
        widths = kernel_widths(rows, self.gamma, generator)
        grids: dict[str, Sequence[float]] = {"gamma": widths}
        if self.kind == "kernel-ridge":
            grids["penalty"] = PENALTY_GRID
            if self.penalty is not None:
                penalty = float(self.penalty)
                grids["penalty"] = (penalty,)
        else:
            variances = targets.var(axis=0)
            mean_variance = variances.mean()
            spread = float(np.sqrt(mean_variance)) or 1.0
            grids["C"] = [spread * factor for factor in C_GRID]
            if self.C is not None:
                bound = float(self.C)
                grids["C"] = (bound,)
            grids["nu"] = NU_GRID
            if self.nu is not None:
                nu = float(self.nu)
                grids["nu"] = (nu,)
        settings = []
        combinations = itertools.product(*grids.values())
        for values in combinations:
            setting = dict(zip(grids, values, strict=True))
            settings.append(setting)
        return settings

    def _search(
        self,
        rows: Rows,
        targets: FloatArray,
        groups: IntArray | None,
        generator: np.random.Generator,
    ) -> None:
        """Choose the hyperparameters that are None by cross-validation; set `nu_`, `C_` and so on.

        Rows (n, f), targets (n, d) and the numbers of the rows' groups, (n,), may be those of a
        sample of the instances.
        """
        settings = self._candidate_settings(rows, targets, generator)
        best_setting = settings[0]
        n_rows = len(targets)
        self.cv_results_: list[dict[str, Any]] = []
        if len(settings) > 1 and n_rows > 1:
            n_folds = min(self.n_folds, n_rows)
            if n_folds < self.n_folds:
                warnings.warn(
                    f"`n_folds` of `InstanceMapper` is {self.n_folds} but there are only {n_folds} "
                    f"instances; cross-validating with {n_folds} folds.",
                    PolysemeWarning,
                    stacklevel=3,
                )
            errors = cross_validate(
                rows,
                targets,
                settings,
                n_folds,
                self.search_size,
                generator,
                groups,
            )
            if len(errors):
                for setting, setting_errors in zip(settings, errors.T, strict=True):
                    result: dict[str, Any] = dict(setting)
                    result["mse"] = float(setting_errors.mean())
                    result["mse_folds"] = setting_errors.tolist()
                    self.cv_results_.append(result)
                mean_errors = errors.mean(axis=0)
                best_number = int(np.argmin(mean_errors))
                best_setting = settings[best_number]
        for name in _HYPERPARAMETERS:
            value = best_setting.get(name)  # None where it does not apply
            setattr(self, f"{name}_", value)


def cross_validate(
    rows: Rows,
    targets: FloatArray,
    settings: Sequence[Setting],
    n_folds: int,
    max_rows: int,
    generator: np.random.Generator,
    groups: IntArray | None = None,
) -> NDArray[np.float64]:
    """Compare settings by shuffled k-fold cross-validation.

    Parameters
    ----------
    rows : array or csr_matrix, shape (n, n_features)
        Scaled.
    targets : float64 array, shape (n, d)
    settings : sequence of mapping
        Each has "gamma" and either "penalty" (kernel ridge) or "nu" and "C" (nu-SVR). Those of one
        gamma stand side by side.
    n_folds : int
    max_rows : int
        Only a sample of so many rows and of 32 outputs is looked at.
    generator : numpy.random.Generator
        Draws samples, then folds; the order decides which ones a seed gives.
    groups : int array, shape (n,), optional
        Rows of one group come into one fold.

    Returns
    -------
    float64 array, shape (n_folds, n_settings)
        Mean squared errors; of fewer folds where there are fewer groups, of none where there is one
        group.
    """
    n_rows = len(targets)
    if n_rows > max_rows:
        sample = generator.choice(n_rows, max_rows, replace=False)
        rows = rows[sample]
        targets = targets[sample]
        if groups is not None:
            groups = groups[sample]
    n_rows, n_outputs = targets.shape
    if n_outputs > _SEARCH_OUTPUTS:
        outputs = generator.choice(n_outputs, _SEARCH_OUTPUTS, replace=False)
        targets = targets[:, outputs]
    if groups is None:
        shuffled = generator.permutation(n_rows)
        folds = np.array_split(shuffled, n_folds)
    else:
        numbers = fold_numbers(n_rows, n_folds, generator, groups)
        last_number = numbers.max()
        folds = [np.flatnonzero(numbers == number) for number in range(last_number + 1)]
    if len(folds) < 2:
        return np.empty((0, len(settings)))

    def fold_errors(held_out: IntArray) -> list[float]:
        errors = _errors(rows, targets, held_out, settings)
        return list(errors)

    # The products are too small to be shared among cores; the folds are not.
    n_workers = min(n_folds, n_cores())
    with blas_threads(0), ThreadPoolExecutor(n_workers) as pool:
        errors_by_fold = list(pool.map(fold_errors, folds))
    return np.array(errors_by_fold)


def _errors(
    rows: Rows, targets: FloatArray, held_out: IntArray, settings: Sequence[Setting]
) -> Iterator[float]:
    """Yield the mean squared error of each setting on the rows held out, given by their numbers.

    Distances are computed once for all settings, a factor once for those of one gamma.
    """
    n_rows = len(targets)
    is_training = np.ones(n_rows, dtype=bool)
    is_training[held_out] = False
    training_rows = rows[is_training]
    training_targets = targets[is_training]
    test_rows = _dense(rows[held_out])
    truth = targets[held_out]
    training_distances = pairwise_squared_distances(training_rows)
    test_distances = squared_distances(test_rows, training_rows)
    for gamma, same_gamma in itertools.groupby(settings, key=lambda setting: setting["gamma"]):
        kernel = rbf_from_squared(training_distances, gamma)
        test_kernel = rbf_from_squared(test_distances, gamma)
        solver = None
        for setting in same_gamma:
            if "penalty" in setting:
                penalty = setting["penalty"]
                coefficients, bias = solve_kernel_ridge(kernel, training_targets, penalty)
            else:
                solver = solver or SharedKernelSolver(kernel)
                coefficients, bias, _ = solver.solve(
                    training_targets,
                    setting["nu"],
                    setting["C"],
                    tolerance=_SEARCH_TOLERANCE,
                    max_iter=_SEARCH_ITERATIONS,
                    quiet=True,
                )
            predicted = test_kernel @ coefficients
            predicted = predicted + bias
            errors = predicted - truth
            yield float(np.mean(errors**2))


def _check_points(points: object, n: int) -> FloatArray:
    """Return points as a contiguous array of floats, (n,) or (n, d), or raise.

    float32 stays float32; anything else becomes float64.
    """
    if points is None:
        raise InputError(
            "`InstanceMapper` requires y to be passed, but the target y is None; pass the points, "
            "one row per instance."
        )
    array = np.asarray(points.to_numpy() if hasattr(points, "to_numpy") else points)
    dtype = np.float32 if array.dtype == np.float32 else np.float64
    try:
        array = np.ascontiguousarray(array, dtype)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"`points` of `InstanceMapper` must hold numbers only; {error}."
        ) from error
    if array.ndim not in (1, 2) or array.size == 0 or len(array) != n:
        raise InputError(
            f"`points` of `InstanceMapper` must have shape (n,) or (n, d), one point for each of "
            f"the {n} rows of `X` and at least one coordinate; got shape {array.shape}."
        )
    finite_rows = np.isfinite(array.reshape(n, -1)).all(axis=1)
    if not finite_rows.all():
        rows = np.flatnonzero(~finite_rows)
        raise InputError(
            f"`points` of `InstanceMapper` contains NaN or infinity, first in row {rows[0]}; drop "
            f"such instances ({len(rows)} in all)."
        )
    return array


def _dense(rows: Rows) -> FloatArray:
    """Return rows as an array, whether they are sparse or not."""
    return np.asarray(rows.toarray() if sp.issparse(rows) else rows)


def _precision(n: int) -> Precision:
    """Return the precision in which n instances are fitted."""
    return np.float64 if n <= _DOUBLE_ROWS else np.float32


# The format of a mapper's state: JSON values, arrays, and its rows dense or sparse.
_SAVED_PARAMETERS = [
    name for name in inspect.signature(InstanceMapper).parameters if name != "device"
]
_POSITIVE = Maybe(Number(1e-300, 1e300))
_STATE_SCHEMA = Fields(
    {
        "parameters": declare_parameters(InstanceMapper, *_SAVED_PARAMETERS),
        "settings": Fields(
            {"nu_": _POSITIVE, "C_": _POSITIVE, "penalty_": _POSITIVE, "gamma_": Number(0, 1e30)}
        ),
        "cv_results": ListOf(MappingOf(Plain())),
        "n_landmarks": Maybe(Whole(1)),
        "flat": Flag(),
        "n_features_in": Whole(1),
    }
)
_STATE_ARRAYS: dict[str, Declared | Csr] = {
    "mean": Declared("float64", ("n_features",), -MOST_FEATURE, MOST_FEATURE),
    "scale": Declared("float64", ("n_features",), 1e-300, MOST_FEATURE),
    "support": Declared("int64", ("n_support",), 0, 2**62),
    "dual_coef": Declared("float32 float64", ("n_support", "n_outputs"), -1e12, 1e12),
    "intercept": Declared("float32 float64", ("n_outputs",), -1e12, 1e12),
}
_DENSE_ROWS: dict[str, Declared | Csr] = {
    "rows": Declared("float32 float64", ("n_support", "n_features"), -FARTHEST, FARTHEST)
}
_SPARSE_ROWS: dict[str, Declared | Csr] = {
    "rows": Csr(("n_support", "n_features"), "float32 float64", -FARTHEST, FARTHEST)
}
