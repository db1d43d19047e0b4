"""Step 6, concept space: how far points spread and how far instances miss them (Table 2).

In: points of shape (n, d). Out: a few named floats.
"""

from __future__ import annotations

import warnings

import numpy as np
from numpy.typing import ArrayLike

from polyseme._validation import (
    InputError,
    PolysemeWarning,
    RandomState,
    as_generator,
    check_number,
)
from polyseme.metrics.checks import Values, check_points


def scattering(
    points: ArrayLike, *, max_points: int | None = None, random_state: RandomState = None
) -> dict[str, float]:
    """Measure how widely the known concepts spread (Table 2; in the paper: s).

    Parameters
    ----------
    points : array-like of float, shape (n, d)
        The known concepts of the documents the embedding was learned from.
    max_points : int, optional
        Estimate `s_mean`, without bias, from this many points drawn at random. By default all
        pairs are visited: time grows with n * n, memory does not.
    random_state : int, Generator or None
        Draws those points.

    Returns
    -------
    dict
        `s_mean`, the mean distance over all n * n pairs, as the paper's formula is printed, and
        `s_squared`, the mean squared distance over the same pairs, as its numbers are.
    """
    known = check_points("points", points)
    n, sample = len(known), known
    if max_points is not None:
        check_number("max_points", max_points, owner="scattering", low=2, whole=True)
        if max_points < n:
            sample = known[as_generator(random_state).choice(n, max_points, replace=False)]
    pairs = max(len(sample) * (len(sample) - 1), 1)
    mean = _sum_of_distances(sample) / pairs * (n - 1) / n
    return {"s_mean": mean, "s_squared": _mean_squared_distance(known)}


def regression_error(
    predicted: ArrayLike, targets: ArrayLike, points: ArrayLike | None = None
) -> dict[str, float]:
    """Measure how far from their targets instances are mapped (Table 2).

    Parameters
    ----------
    predicted, targets : array-like of float, shape (n, d)
        Where instances were mapped to, and where they belong.
    points : array-like of float, shape (n_points, d), optional
        The known concepts, whose spread gives the error a scale.

    Returns
    -------
    dict
        `error`, the mean distance; with `points` also `relative_paper`, error / s_squared, which
        is Table 2's although it mixes units, and `relative`, error / sqrt(s_squared). These two
        are NaN, with a warning, if all points coincide.
    """
    reached, wanted = check_points("predicted", predicted), check_points("targets", targets)
    if reached.shape != wanted.shape:
        raise InputError(f"`predicted` has shape {reached.shape} but `targets` has {wanted.shape}.")
    error = float(np.linalg.norm(reached - wanted, axis=1).mean())
    if points is None:
        return {"error": error}
    known = check_points("points", points)
    if known.shape[1] != reached.shape[1]:
        got = f"{known.shape[1]} columns but `predicted` has {reached.shape[1]}"
        raise InputError(f"`points` has {got}.")
    spread = _mean_squared_distance(known)
    if (known == known[0]).all():  # the mean may round, so the spread need not be exactly 0
        message = "The relative errors are nan: all `points` coincide."
        warnings.warn(message, PolysemeWarning, stacklevel=2)
        spread = np.nan
    return {"error": error, "relative_paper": error / spread, "relative": error / spread**0.5}


def _mean_squared_distance(points: Values) -> float:
    """Mean over all pairs, own pairs included: twice the variance about the mean."""
    centred = points - points.mean(axis=0)
    return float(2.0 * np.einsum("ij,ij->", centred, centred) / len(points))


def _sum_of_distances(points: Values) -> float:
    """Sum over all ordered pairs, in blocks of rows that fit 64 MiB."""
    from sklearn.metrics import pairwise_distances_chunked

    centred = points - points.mean(axis=0)  # keeps the expanded square from cancelling
    blocks = pairwise_distances_chunked(centred, working_memory=64)
    return float(sum(block.sum() for block in blocks))
