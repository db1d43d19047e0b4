"""What goes into a mapper and what is kept of it, as plain values (part of step 4, the mapping).

In: targets as users give them, a fitted mapper, or what was saved of one. Out: checked arrays,
JSON values and arrays, a mapper that predicts as the saved one did.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from polyseme._validation import FloatArray, InputError

SETTINGS = ("nu", "C", "gamma", "penalty")
_ARRAYS = ("mean", "scale", "support", "dual_coef", "intercept")
_SPARSE_PARTS = ("data", "indices", "indptr")


def state_of(mapper: Any) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Give a fitted mapper as JSON values and arrays.

    Parameters
    ----------
    mapper : InstanceMapper

    Returns
    -------
    config : dict
    arrays : dict of str to array
    """
    parameters = {name: _plain(value) for name, value in mapper.get_params().items()}
    del parameters["device"]  # where a model was fitted says nothing of where it is used
    names = getattr(mapper, "feature_names_in_", None)
    config = {
        "parameters": parameters,
        "settings": {f"{name}_": getattr(mapper, f"{name}_") for name in SETTINGS},
        "cv_results": mapper.cv_results_,
        "n_landmarks": mapper.n_landmarks_,
        "flat": mapper._flat,
        "n_features_in": mapper.n_features_in_,
        "feature_names_in": None if names is None else [str(name) for name in names],
    }
    arrays = {name: getattr(mapper, f"{name}_") for name in _ARRAYS}
    if sp.issparse(mapper.X_fit_):
        arrays |= {f"rows_{part}": getattr(mapper.X_fit_, part) for part in _SPARSE_PARTS}
    else:
        arrays["rows"] = mapper.X_fit_
    return config, arrays


def put_state(mapper: Any, config: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
    """Put what `state_of` gave into a mapper that is not fitted.

    Parameters
    ----------
    mapper : InstanceMapper
    config : mapping
    arrays : mapping of str to array
    """
    wanted = {*_ARRAYS, *(f"rows_{part}" for part in _SPARSE_PARTS)}
    if "rows" in arrays:
        wanted = {*_ARRAYS, "rows"}
    if missing := sorted(wanted - set(arrays)):
        raise InputError(f"The saved InstanceMapper lacks the array(s) {', '.join(missing)}.")
    held = {name: np.array(arrays[name], order="C") for name in wanted}
    for name in _ARRAYS:
        setattr(mapper, f"{name}_", held[name])
    for name, value in config["settings"].items():
        setattr(mapper, name, value)
    mapper.cv_results_ = list(config["cv_results"])
    mapper.n_landmarks_ = config.get("n_landmarks")  # earlier versions had none
    mapper._flat = bool(config["flat"])
    mapper.n_features_in_ = int(config["n_features_in"])
    if config["feature_names_in"] is not None:
        mapper.feature_names_in_ = np.array(config["feature_names_in"], dtype=object)
    if "rows" in held:
        mapper.X_fit_ = held["rows"]
        return
    data, indices, indptr = (held[f"rows_{part}"] for part in _SPARSE_PARTS)
    shape = (len(held["dual_coef"]), mapper.n_features_in_)
    mapper.X_fit_ = sp.csr_matrix((data, indices, indptr), shape=shape)


def check_points(points: object, n: int) -> FloatArray:
    """Turn targets into an array of floats with n rows, or raise.

    Parameters
    ----------
    points : array-like
    n : int

    Returns
    -------
    array, shape (n,) or (n, d)
        In single precision if it came so, else in double.
    """
    if points is None:
        raise InputError(
            "`InstanceMapper` requires y to be passed, but the target y is None; pass the points, "
            "one row per instance."
        )
    array = np.asarray(points.to_numpy() if hasattr(points, "to_numpy") else points)
    try:
        single = array.dtype == np.float32
        array = np.ascontiguousarray(array, dtype=np.float32 if single else np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"`points` of `InstanceMapper` must hold numbers only; {error}."
        ) from error
    if array.ndim not in (1, 2) or array.size == 0:
        raise InputError(
            "`points` of `InstanceMapper` must have shape (n,) or (n, d) with at least one "
            f"instance and one coordinate; got shape {array.shape}."
        )
    if len(array) != n:
        raise InputError(
            f"`points` of `InstanceMapper` has {len(array)} rows but `X` has {n}; pass one point "
            "per instance."
        )
    if not np.isfinite(array).all():
        rows = np.flatnonzero(~np.isfinite(array.reshape(n, -1)).all(axis=1))
        raise InputError(
            f"`points` of `InstanceMapper` contains NaN or infinity, first in row {rows[0]}; drop "
            f"such instances ({len(rows)} in all)."
        )
    return array


def _plain(value: Any) -> Any:
    """Turn a parameter into a JSON value; a generator cannot be one and becomes None."""
    if isinstance(value, np.generic):
        return value.item()
    return value if isinstance(value, (bool, int, float, str)) else None
