"""What the reductions share: the checks of features and how a fitted one becomes plain values.

In: what a user passed, or a saved state. Out: dense rows, or JSON values and arrays.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from polyseme._estimator import Estimator
from polyseme._persistence import JSON
from polyseme._validation import InputError, check_features

Config = Mapping[str, Any]
Arrays = Mapping[str, NDArray[Any]]
State = tuple[dict[str, JSON], dict[str, NDArray[Any]]]

# Rows are transformed so many at a time, which bounds the memory beyond the result.
BLOCK_ROWS = 4096


class Reduction(Protocol):
    """What turns features (n, n_features) into fewer, learned on training rows only."""

    n_features_in_: int
    n_components_: int

    def fit(self, X: object, y: object = None) -> Self:
        """Learn from features (n, n_features)."""
        ...

    def transform(self, X: object) -> NDArray[np.float32]:
        """Give the reduced features, float32 (n, n_components_)."""
        ...

    def get_state(self) -> State:
        """Give JSON values, with the name of the reduction under "kind", and arrays."""
        ...


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


def state_config(reduction: Estimator, kind: str, n_features: int) -> dict[str, JSON]:
    """Give what every saved reduction begins with: its kind, its parameters, its input's width."""
    parameters = {name: _plain(value) for name, value in reduction.get_params().items()}
    return {"kind": kind, "parameters": parameters, "n_features_in": n_features}


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
