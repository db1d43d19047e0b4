"""What the reductions share: the checks of features, and how a fitted one becomes plain values.

In: what a user passed, or a saved state. Out: reduced features, or JSON values and arrays.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from polyseme._estimator import Estimator, TransformerMixin
from polyseme._persistence import JSON
from polyseme._validation import (
    InputError,
    RandomState,
    as_generator,
    check_features,
    check_fitted,
)

Config = Mapping[str, Any]
Arrays = Mapping[str, NDArray[Any]]
State = tuple[dict[str, JSON], dict[str, NDArray[Any]]]

# Rows are transformed so many at a time, which bounds the memory beyond the result.
BLOCK_ROWS = 4096


class Reduction(TransformerMixin, Estimator, ABC):  # type: ignore[misc]  # untyped base
    """What turns features (n, n_features) into fewer, learned on training rows only.

    A new reduction gives its parameters, its name and the methods that are abstract here.
    """

    kind: ClassVar[str]
    random_state: RandomState
    n_features_in_: int
    n_components_: int

    # ------------------------------------------------------------------ what a reduction gives

    @abstractmethod
    def check_parameters(self) -> None:
        """Raise an `InputError` that names the first parameter out of its range."""

    @abstractmethod
    def learn(self, rows: NDArray[np.float64], generator: np.random.Generator) -> None:
        """Learn from checked rows (n, n_features); sets `n_components_`."""

    @abstractmethod
    def apply(self, rows: NDArray[np.float64]) -> NDArray[np.float32]:
        """Reduce checked rows (m, n_features) to (m, n_components_)."""

    @abstractmethod
    def learned_state(self) -> State:
        """Give what was learned as JSON values and arrays."""

    @abstractmethod
    def take_state(self, config: Config, arrays: Arrays) -> None:
        """Take back what `learned_state` gave, from among a whole saved state."""

    # ------------------------------------------------------------------ what all have in common

    def fit(self, X: object, y: object = None) -> Self:
        """Learn from training rows.

        Parameters
        ----------
        X : array-like, scipy sparse, pandas or polars frame, shape (n, n_features)
        y : object
            Ignored.

        Returns
        -------
        self
        """
        self.check_parameters()
        generator = as_generator(self.random_state)
        rows = dense_rows(X, owner=type(self).__name__, n_rows=1)
        self.learn(rows, generator)
        self.n_features_in_ = rows.shape[1]
        return self

    def transform(self, X: object) -> NDArray[np.float32]:
        """Give the reduced features.

        Parameters
        ----------
        X : array-like, scipy sparse, pandas or polars frame, shape (m, n_features)

        Returns
        -------
        float32 array, shape (m, n_components_)
        """
        check_fitted(self, "n_features_in_")
        rows = dense_rows(X, owner=type(self).__name__, n_features=self.n_features_in_)
        return self.apply(rows)

    def get_state(self) -> State:
        """Give the fitted reduction as JSON values and arrays, for saving without pickle.

        Returns
        -------
        config : dict
            The name of the reduction under "kind", its parameters (a generator given as
            `random_state` is left out) and what was learned.
        arrays : dict of str to array
        """
        check_fitted(self, "n_features_in_")
        config: dict[str, JSON] = {
            "kind": self.kind,
            "parameters": {name: _plain(value) for name, value in self.get_params().items()},
            "n_features_in": self.n_features_in_,
        }
        learned, arrays = self.learned_state()
        return config | learned, arrays

    @classmethod
    def from_state(cls, config: Config, arrays: Arrays) -> Self:
        """Rebuild a fitted reduction from `get_state`; it transforms bit for bit the same.

        Parameters
        ----------
        config : mapping
        arrays : mapping of str to array

        Returns
        -------
        Reduction
        """
        made = cls(**config["parameters"])
        made.take_state(config, arrays)
        made.n_features_in_ = int(config["n_features_in"])
        return made


def dense_rows(
    X: object, *, owner: str, n_features: int | None = None, n_rows: int = 0
) -> NDArray[np.float64]:
    """Check features and give them dense.

    Parameters
    ----------
    X : array-like, scipy sparse, pandas or polars frame, shape (n, n_features)
    owner : str
        The class that asks, for the error message.
    n_features : int, optional
        The number of columns it was fitted with.
    n_rows : int
        The least number of rows it needs.

    Returns
    -------
    float64 array, shape (n, n_features)
    """
    features = check_features(X, owner=owner, n_features=n_features)
    if features.shape[0] < n_rows:
        raise InputError(
            f"`X` has {features.shape[0]} rows while a minimum of {n_rows} is required by "
            f"`{owner}`."
        )
    return np.asarray(features.toarray() if sp.issparse(features) else features)


def saved_arrays(
    arrays: Arrays, shapes: Mapping[str, tuple[int, ...]], *, owner: str
) -> dict[str, NDArray[Any]]:
    """Copy the named arrays of a saved state, and refuse it when one is missing or misshapen."""
    if missing := sorted(set(shapes) - set(arrays)):
        raise InputError(f"The saved {owner} lacks the array(s) {', '.join(missing)}.")
    for name, shape in shapes.items():
        if arrays[name].shape != shape:
            raise InputError(
                f"The array '{name}' of the saved {owner} must have the shape {shape}; "
                f"got {arrays[name].shape}."
            )
    # One order in memory: the results of products depend on it in the last digit.
    return {name: np.array(arrays[name], order="C") for name in shapes}


def _plain(value: Any) -> JSON:
    """Turn a parameter into a JSON value; a generator cannot be one and becomes None."""
    if isinstance(value, np.generic):
        return _plain(value.item())
    if isinstance(value, Sequence | np.ndarray) and not isinstance(value, str):
        return [_plain(item) for item in value]
    return value if isinstance(value, (bool, int, float, str)) else None
