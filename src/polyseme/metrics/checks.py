"""Step 6, input: what every metric checks before it computes.

In: truth and scores, or points, as the user passed them. Out: dense arrays, or an `InputError`.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from polyseme._validation import InputError

Truth: TypeAlias = ArrayLike | sp.sparray | sp.spmatrix
BoolArray: TypeAlias = NDArray[np.bool_]
Values: TypeAlias = NDArray[np.float64]


def validate(truth: Truth, scores: ArrayLike) -> tuple[BoolArray, NDArray[Any]]:
    """Check what every metric takes; all of them call this first.

    Parameters
    ----------
    truth : array-like or scipy sparse of 0 and 1, shape (n, n_labels)
        Which labels are relevant to which row.
    scores : array-like of float, shape (n, n_labels)
        Larger is better; -inf means never, NaN is refused.

    Returns
    -------
    truth : bool array, shape (n, n_labels)
        Dense, for it is at most a quarter the size of the scores.
    scores : float32 or float64 array, shape (n, n_labels)
    """
    values = _numbers("scores", scores)
    given: Any = truth if sp.issparse(truth) else _numbers("truth", truth)
    if given.shape != values.shape:
        raise InputError(
            f"`truth` has shape {given.shape} but `scores` has shape {values.shape}; "
            "pass one score for every row and label."
        )
    if values.ndim != 2 or values.size == 0:
        raise InputError(
            "`truth` and `scores` must have two dimensions, with at least one row and one label; "
            f"got shape {values.shape}."
        )
    if values.dtype not in (np.float32, np.float64):
        values = values.astype(np.float64)
    rows = np.flatnonzero(np.isnan(values).any(axis=1))
    if rows.size:
        named = ", ".join(str(row) for row in rows[:5])
        more = f" and {rows.size - 5} more" if rows.size > 5 else ""
        raise InputError(f"`scores` contains NaN in row(s) {named}{more}; use -inf for never.")
    return _binary(given), values


def check_points(name: str, given: ArrayLike) -> Values:
    """Check points in concept space: two dimensions, not empty, finite.

    Parameters
    ----------
    name : str
        The parameter they were passed as, for the error message.
    given : array-like of float, shape (n, d)

    Returns
    -------
    float64 array, shape (n, d)
        A copy.
    """
    points = _numbers(name, given).astype(np.float64)
    if points.ndim != 2 or points.size == 0:
        raise InputError(f"`{name}` must have rows and columns; got shape {points.shape}.")
    if not np.isfinite(points).all():
        raise InputError(f"`{name}` contains NaN or infinity; drop those rows first.")
    return points


def _numbers(name: str, given: object) -> NDArray[Any]:
    """Turn an array-like into a dense array of real numbers or booleans."""
    array = np.asarray(given)
    if array.dtype.kind not in "buif":
        got = "a sparse matrix" if sp.issparse(given) else f"data type {array.dtype}"
        raise InputError(f"`{name}` must be a dense array of real numbers; got {got}.")
    return array


def _binary(truth: Any) -> BoolArray:
    """Turn 0/1 truth, sparse or dense, into a dense bool array, or name what else it holds."""
    sparse = sp.issparse(truth)
    if sparse:
        truth = truth.tocoo(copy=True)
        truth.sum_duplicates()
    entries = truth.data if sparse else truth
    wrong = entries[(entries != 0) & (entries != 1)]
    if wrong.size:
        raise InputError(f"`truth` must hold 0 and 1 only; got {wrong[0]}.")
    return np.asarray(truth.astype(np.bool_).toarray() if sparse else truth.astype(np.bool_))
