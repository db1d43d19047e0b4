"""Step 4: instances find their place in the concept space.

In: features (n, n_features) of instances and their points (n, d) in concept space. Out: a model
that predicts points for other instances: nu-support-vector or ridge regressions over one kernel.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from sklearn.base import MultiOutputMixin, RegressorMixin
from sklearn.exceptions import NotFittedError as SklearnNotFittedError
from sklearn.utils.validation import validate_data

from polyseme._estimator import Estimator
from polyseme._folds import group_numbers
from polyseme._validation import (
    FloatArray,
    InputError,
    IntArray,
    NotFittedError,
    PolysemeWarning,
    RandomState,
    as_generator,
    check_device,
    check_features,
    check_number,
    check_option,
)
from polyseme.published.solvers.fitting import Regression, evaluation, fit_all, fit_landmarks
from polyseme.published.solvers.kernels import (
    SCALINGS,
    Rows,
    column_statistics,
    row_blocks,
    scale_rows,
)
from polyseme.published.solvers.landmarks import LandmarkRows, draw_landmarks, landmarks_within
from polyseme.published.solvers.search import cross_validate, settings_to_compare
from polyseme.published.solvers.state import SETTINGS, check_points, put_state, state_of

KINDS = ("nu-svr", "kernel-ridge")
SOLVERS = ("admm", "libsvm")

# Up to this many rows float64 costs nothing worth saving.
_DOUBLE_ROWS = 512
# The least sample of many instances that heuristics for gamma look at.
_HEURISTIC_ROWS = 1000


class _NotFittedError(NotFittedError, SklearnNotFittedError):  # type: ignore[misc]  # untyped base
    """Not fitted, in our words and for callers that catch scikit-learn's class."""


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
    gamma : float, "median", "variance" or None
        Width of the kernel over the scaled features: a value, 1 / median squared distance,
        1 / (n_features * variance), or None: cross-validated (1/4, 1, 4 times the median's).
    penalty : float, optional
        For "kernel-ridge": added to the kernel's diagonal. None: cross-validated (0.03 to 10).
    scaling : {"standard", "l2", "none"}
        What is done to features first: each column to mean 0 and spread 1 (sparse: spread only),
        each row to length 1 (the paper's gamma = 1 then fits), or nothing.
    solver : {"admm", "libsvm"}
        For "nu-svr": all coordinates at once, or one by one by libsvm, the slow reference.
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
        Predict from so many landmarks instead of all instances: a Nyström approximation of the
        kernel, whose time grows linearly with the instances. None: all instances while they fit
        `memory_mb`, beyond that as many landmarks as do, at most 3,000.
    device : str
        Where the kernel is computed and solved and where points are predicted, as torch names it
        ("cuda"); "cpu" needs no torch. Results are the same within the tolerance. Settings are
        compared on the processor.
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
        The searched settings in the order tried, with "mse" (mean over folds) and "mse_folds";
        empty when nothing was searched.
    n_features_in_ : int

    Notes
    -----
    Settings are compared by the mean squared error over coordinates in their own units: smaller
    is better, and the first of equals wins. The search looks at 32 coordinates drawn at random
    when there are more. Two departures from the paper: its range of nu is [0.1, 0.4], but on two
    picture corpora 0.1 was never best and 0.6 sometimes was; and gamma follows the features' scale.

    Up to 512 instances are fitted and predicted in float64, more in float32.

    Landmarks are instances drawn at random; both kinds then solve their own problem with the kernel
    ``K_nm K_mm^-1 K_mn`` (n instances, m landmarks) in place of the full one. The loss of accuracy
    is small where the kernel is smooth, so that few landmarks explain it: on two picture corpora
    1,000 landmarks lost 0.01 to 0.02 of an R2 of 0.25 and 0.57. "nu-svr" stops there when
    five steps change predictions by less than 0.003 spreads. Kernel ridge needs no memory that
    grows with the instances and so has room for more landmarks.

    References
    ----------
    Sandouk and Chen, "Multi-Label Zero-Shot Learning via Concept Embedding", 2016, eqs (6)-(8).

    Examples
    --------
    >>> import numpy as np
    >>> from polyseme import InstanceMapper
    >>> X = np.linspace(-3, 3, 60)[:, None]
    >>> mapper = InstanceMapper(random_state=0).fit(X, np.hstack([np.sin(X), np.cos(X)]))
    >>> mapper.predict([[0.0]]).round(1) + 0.0
    array([[0., 1.]])
    """

    def __init__(
        self,
        kind: str = "nu-svr",
        nu: float | None = None,
        C: float | None = None,
        gamma: float | str | None = None,
        penalty: float | None = None,
        scaling: str = "standard",
        solver: str = "admm",
        tolerance: float = 1e-3,
        n_folds: int = 3,
        search_size: int = 2000,
        memory_mb: float = 2048,
        random_state: RandomState = None,
        n_landmarks: int | None = None,
        device: str = "cpu",
    ) -> None:
        self.kind = kind
        self.nu = nu
        self.C = C
        self.gamma = gamma
        self.penalty = penalty
        self.scaling = scaling
        self.solver = solver
        self.tolerance = tolerance
        self.n_folds = n_folds
        self.search_size = search_size
        self.memory_mb = memory_mb
        self.random_state = random_state
        self.n_landmarks = n_landmarks
        self.device = device

    def fit(self, X: object, points: object, groups: ArrayLike | None = None) -> Self:
        """Learn the way from features to points.

        Parameters
        ----------
        X : array-like, scipy sparse, pandas or polars frame, shape (n, n_features)
            Features of the instances.
        points : array-like, shape (n, d) or (n,)
            Their points in concept space (in the paper: s, eq. (5)).
        groups : array-like, shape (n,), optional
            What belongs together (an artist's songs): never on both sides of a fold of the
            cross-validation.

        Returns
        -------
        self
        """
        self.check_parameters()
        features = check_features(X, owner="InstanceMapper", keep_single=True)
        validate_data(self, X, skip_check_array=True)
        targets = check_points(points, features.shape[0])
        self.n_features_in_ = features.shape[1]
        self._flat = targets.ndim == 1
        targets = targets.reshape(len(targets), -1)
        members = group_numbers(groups, len(targets))
        generator = as_generator(self.random_state)
        n_landmarks = self._count_landmarks(len(targets))
        if n_landmarks is None:
            self._fit_all(features, targets, members, generator)
        else:
            self._fit_landmarks(features, targets, members, generator, n_landmarks)
        return self

    def _fit_all(
        self,
        features: Rows,
        targets: FloatArray,
        groups: IntArray | None,
        generator: np.random.Generator,
    ) -> None:
        """Fit with the kernel of all instances."""
        features = features.astype(np.float64, copy=False)
        targets = targets.astype(np.float64, copy=False)
        dtype = _precision(len(targets))
        self.mean_, self.scale_ = column_statistics(features, self.scaling)
        rows = scale_rows(features, self.scaling, self.mean_, self.scale_, dtype)
        self._search(rows, targets, groups, generator)
        coefficients, bias = fit_all(self._regression(), rows, targets)
        used = np.flatnonzero(coefficients.any(axis=1))
        self.n_landmarks_: int | None = None
        self.support_ = used.astype(np.int64)
        self.X_fit_ = rows[used]
        self.dual_coef_: FloatArray = np.ascontiguousarray(coefficients[used], dtype=dtype)
        self.intercept_: FloatArray = bias.astype(dtype)

    def _fit_landmarks(
        self,
        features: Rows,
        targets: FloatArray,
        groups: IntArray | None,
        generator: np.random.Generator,
        n_landmarks: int,
    ) -> None:
        """Fit with the kernel to landmarks; features are scaled block by block."""
        n, dtype = len(targets), _precision(len(targets))
        self.mean_, self.scale_ = column_statistics(features, self.scaling)

        def scaled(chosen: slice | IntArray) -> Rows:
            return scale_rows(features[chosen], self.scaling, self.mean_, self.scale_, dtype)

        def take(chosen: slice | IntArray) -> FloatArray:
            rows = scaled(chosen)
            return np.asarray(rows.toarray() if sp.issparse(rows) else rows)

        looked = np.arange(n)
        if n > max(self.search_size, _HEURISTIC_ROWS):
            size = max(self.search_size, _HEURISTIC_ROWS)
            looked = np.sort(generator.choice(n, size, replace=False))
        members = None if groups is None else groups[looked]
        self._search(scaled(looked), targets[looked].astype(np.float64), members, generator)
        drawn = draw_landmarks(n, n_landmarks, generator)
        landmarks = scaled(drawn)
        rows = LandmarkRows(take, n, landmarks, self.gamma_, self.memory_mb * 2**20)
        self.dual_coef_, self.intercept_ = fit_landmarks(self._regression(), rows, targets)
        self.n_landmarks_ = len(rows)
        self.support_ = drawn[rows.kept]
        self.X_fit_ = rows.landmarks

    def predict(self, X: object) -> NDArray[np.float64]:
        """Predict points for instances.

        Parameters
        ----------
        X : array-like, scipy sparse, pandas or polars frame, shape (m, n_features)

        Returns
        -------
        float64 array, shape (m, d), or (m,) when fitted with one-dimensional points
        """
        if not hasattr(self, "dual_coef_"):
            raise _NotFittedError("This InstanceMapper is not fitted yet; call `fit` first.")
        features = check_features(
            X, owner="InstanceMapper", n_features=self.n_features_in_, keep_single=True
        )
        validate_data(self, X, reset=False, skip_check_array=True)
        n_support, d = self.dual_coef_.shape
        points = np.empty((features.shape[0], d))
        dtype = np.float64 if self.dual_coef_.dtype == np.float64 else np.float32
        # A block holds its features twice (once in float64), its kernel and its points.
        width = self.dual_coef_.itemsize * (n_support + d) + 24 * self.n_features_in_
        device = check_device(self.device, owner="InstanceMapper")
        evaluate = evaluation(device, self.X_fit_, self.gamma_, self.dual_coef_, self.intercept_)
        for block in row_blocks(len(points), width, self.memory_mb * 2**20):
            part = features[block]
            dense = part.toarray() if sp.issparse(part) else part
            queries = np.asarray(scale_rows(dense, self.scaling, self.mean_, self.scale_, dtype))
            points[block] = evaluate(queries)
        return points[:, 0] if self._flat else points

    def get_state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Give the fitted model as JSON values and arrays, for saving without pickle.

        Returns
        -------
        config : dict
            Parameters and learned settings; a generator given as `random_state` is left out.
        arrays : dict of str to array
        """
        if not hasattr(self, "dual_coef_"):
            raise _NotFittedError("This InstanceMapper is not fitted yet; call `fit` first.")
        return state_of(self)

    @classmethod
    def from_state(cls, config: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Self:
        """Rebuild a fitted model from `get_state`; it predicts bit for bit the same.

        Parameters
        ----------
        config : mapping
        arrays : mapping of str to array

        Returns
        -------
        InstanceMapper
        """
        mapper = cls(**config["parameters"])
        put_state(mapper, config, arrays)
        return mapper

    def __sklearn_tags__(self) -> Any:
        """Tell scikit-learn that sparse features are welcome."""
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def check_parameters(self) -> None:
        """Raise an `InputError` that names the first parameter out of its range."""
        owner = "InstanceMapper"
        check_option("kind", self.kind, KINDS, owner=owner)
        check_option("scaling", self.scaling, SCALINGS, owner=owner)
        check_option("solver", self.solver, SOLVERS, owner=owner)
        if isinstance(self.gamma, str):
            check_option("gamma", self.gamma, ("median", "variance"), owner=owner)
        elif self.gamma is not None:
            check_number("gamma", self.gamma, owner=owner, low=0, above=True)
        if self.nu is not None:
            check_number("nu", self.nu, owner=owner, low=0, high=1, above=True)
        for name in ("C", "penalty"):
            if getattr(self, name) is not None:
                check_number(name, getattr(self, name), owner=owner, low=0, above=True)
        for name in ("tolerance", "memory_mb"):
            check_number(name, getattr(self, name), owner=owner, low=0, above=True)
        check_number("n_folds", self.n_folds, owner=owner, low=2, whole=True)
        check_number("search_size", self.search_size, owner=owner, low=2, whole=True)
        check_device(self.device, owner=owner)
        if self.n_landmarks is not None:
            check_number("n_landmarks", self.n_landmarks, owner=owner, low=1, whole=True)
        if self._by_libsvm and (self.n_landmarks is not None or self.device != "cpu"):
            raise InputError(
                "`solver` of `InstanceMapper` must be 'admm' for landmarks and devices; got "
                "'libsvm', the reference for all instances on the processor."
            )

    @property
    def _by_libsvm(self) -> bool:
        """Whether the slow reference is asked for."""
        return self.kind == "nu-svr" and self.solver == "libsvm"

    def _count_landmarks(self, n: int) -> int | None:
        """Say how many landmarks to draw: None while the kernel and its factor fit the bound."""
        if self.n_landmarks is not None:
            return min(int(self.n_landmarks), n)
        memory, size = self.memory_mb * 2**20, np.dtype(_precision(n)).itemsize
        bytes_per_pair = 2 * (8 if self._by_libsvm else size)
        fitting = int((memory / bytes_per_pair) ** 0.5)
        if n <= fitting:
            return None
        needed = int(np.ceil(n * n * bytes_per_pair / 2**20))
        told = (
            f"`X` of `InstanceMapper` has {n} instances, whose kernel matrices need {needed} MB, "
            f"but `memory_mb` is {self.memory_mb:g}: "
        )
        if self._by_libsvm:
            raise InputError(told + f"raise it, or fit on a sample of at most {fitting} instances.")
        count = landmarks_within(n, memory, 0 if self.kind == "kernel-ridge" else size)
        warnings.warn(
            told + f"points are predicted from {count} landmarks instead of all instances, which "
            "is less exact; raise it for more, or set `n_landmarks`.",
            PolysemeWarning,
            stacklevel=3,
        )
        return count

    def _regression(self) -> Regression:
        """Say what is to be fitted with the settings found."""
        own: dict[str, Any] = {
            "tolerance": self.tolerance,
            "libsvm": self._by_libsvm,
            "device": self.device,
        }
        found = {name: getattr(self, f"{name}_") for name in SETTINGS}
        return Regression(**own, **{name: it for name, it in found.items() if it is not None})

    def _search(
        self,
        rows: Rows,
        targets: FloatArray,
        groups: IntArray | None,
        generator: np.random.Generator,
    ) -> None:
        """Choose the settings that were not given by cross-validation."""
        given = {name: getattr(self, name) for name in SETTINGS}
        settings = settings_to_compare(self.kind, given, rows, targets, generator)
        self.cv_results_: list[dict[str, Any]] = []
        if len(settings) > 1 and len(targets) > 1:
            n_folds = self._n_folds(len(targets))
            errors = cross_validate(
                rows, targets, settings, n_folds, self.search_size, generator, groups
            )
            if len(errors):
                self.cv_results_ = [
                    {**setting, "mse": float(column.mean()), "mse_folds": column.tolist()}
                    for setting, column in zip(settings, errors.T, strict=True)
                ]
                settings = [settings[int(np.argmin(errors.mean(axis=0)))]]
        for name in SETTINGS:
            setattr(self, f"{name}_", settings[0].get(name))

    def _n_folds(self, n: int) -> int:
        """Lower the number of folds when there are fewer instances."""
        if n < self.n_folds:
            warnings.warn(
                f"`n_folds` of `InstanceMapper` is {self.n_folds} but there are only {n} "
                f"instances; cross-validating with {n} folds.",
                PolysemeWarning,
                stacklevel=4,
            )
        return min(self.n_folds, n)


def _precision(n: int) -> type[np.float32] | type[np.float64]:
    """Say in which precision n instances are fitted."""
    return np.float64 if n <= _DOUBLE_ROWS else np.float32
