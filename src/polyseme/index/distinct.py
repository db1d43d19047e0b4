"""Before a search: concepts sorted by label, identical ones joined, in little memory.

In: concepts as given, their label ids and counts. Out: distinct concepts in single precision,
the same array where nothing has to change.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polyseme._validation import InputError

# Numbers that are looked at together: 4 MB in single precision.
_BLOCK = 2**20


def blocks_of(points: NDArray[Any]) -> Iterator[slice]:
    """Cut rows into blocks that take little memory.

    Parameters
    ----------
    points : array, shape (n, d)

    Yields
    ------
    slice
    """
    step = max(1, _BLOCK // max(1, points.shape[1]))
    for first in range(0, len(points), step):
        yield slice(first, min(first + step, len(points)))


def refuse_non_finite(points: NDArray[Any], name: str) -> None:
    """Raise unless every coordinate is a number whose square does not overflow.

    Parameters
    ----------
    points : array, shape (n, d)
    name : str
        The parameter they were given as.
    """
    if points.size and not (points.min() >= -1e15 and points.max() <= 1e15):
        raise InputError(
            f"`{name}` of `ConceptIndex` hold NaN or infinity, or numbers beyond 1e15."
        )


def distinct(
    points: NDArray[Any], labels: NDArray[np.int64], counts: NDArray[np.int64]
) -> tuple[NDArray[np.float32], NDArray[np.int64], NDArray[np.int64]]:
    """Sort concepts by label and join identical ones, adding up their counts.

    Parameters
    ----------
    points : array, shape (n, d)
        Of any type of number; rounded to single precision.
    labels, counts : int64 arrays, shape (n,)

    Returns
    -------
    points : float32 array, shape (m, d)
        The very array that was given, if it is sorted, distinct and of this type already.
    labels, counts : int64 arrays, shape (m,)
    """
    if len(labels) == 0:
        return np.ascontiguousarray(points, dtype=np.float32), labels, counts
    keys = _keys(points, labels)
    if bool((np.diff(labels) >= 0).all()) and _all_differ(keys):
        return np.ascontiguousarray(points, dtype=np.float32), labels, counts
    order = np.lexsort((keys, labels))
    fresh = _first_of_its_kind(points, labels, keys, order)
    kept = order[fresh]
    totals = np.add.reduceat(counts[order], np.flatnonzero(fresh))
    chosen = np.empty((len(kept), points.shape[1]), dtype=np.float32)
    for rows in blocks_of(chosen):
        chosen[rows] = points[kept[rows]]
    return chosen, labels[kept], totals


def _keys(points: NDArray[Any], labels: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Hash every concept with its label; equal ones have equal keys."""
    n_words = (points.shape[1] + 1) // 2
    generator = np.random.default_rng(20_140_617)
    factors = 2 * generator.integers(0, 2**63, (2, n_words + 1), dtype=np.uint64) + 1
    keys: NDArray[np.uint64] = labels.astype(np.uint64) * factors[0, -1]
    for rows in blocks_of(points):
        words = np.zeros((rows.stop - rows.start, n_words), dtype=np.uint64)
        # Adding zero makes -0.0 and 0.0 one value.
        words.view(np.float32)[:, : points.shape[1]] = _single(points[rows]) + np.float32(0.0)
        # High bits go to low ones before and after a product, so that every bit of a word, signs
        # above all, reaches every bit of the key.
        words ^= words >> np.uint64(32)
        words *= factors[0, :-1]
        words ^= words >> np.uint64(32)
        keys[rows] += words @ factors[1, :-1]
    return keys


def _single(rows: NDArray[Any]) -> NDArray[np.float32]:
    """Round to single precision."""
    return rows.astype(np.float32, copy=False)


def _all_differ(keys: NDArray[np.uint64]) -> bool:
    """Say whether no two keys are equal."""
    ordered = np.sort(keys)
    return not bool((ordered[1:] == ordered[:-1]).any())


def _first_of_its_kind(
    points: NDArray[Any],
    labels: NDArray[np.int64],
    keys: NDArray[np.uint64],
    order: NDArray[np.int64],
) -> NDArray[np.bool_]:
    """Mark the first of each run of identical concepts in an order by label and key.

    Where concepts differ though their keys agree, the order is changed in place so that identical
    ones are neighbours.
    """
    ordered_labels, ordered_keys = labels[order], keys[order]
    alike = (ordered_labels[1:] == ordered_labels[:-1]) & (ordered_keys[1:] == ordered_keys[:-1])
    places = np.flatnonzero(alike) + 1
    equal = _equal_to_the_one_before(points, order, places)
    if not equal.all():
        starts = np.flatnonzero(np.append(True, ~alike))
        ends = np.append(starts[1:], len(order))
        for run in np.unique(np.searchsorted(starts, places[~equal], side="right") - 1).tolist():
            rows = order[starts[run] : ends[run]].tolist()
            rows.sort(key=lambda row: (_single(points[row]) + np.float32(0.0)).tobytes())
            order[starts[run] : ends[run]] = rows
        equal = _equal_to_the_one_before(points, order, places)
    fresh = np.ones(len(order), dtype=bool)
    fresh[places[equal]] = False
    return fresh


def _equal_to_the_one_before(
    points: NDArray[Any], order: NDArray[np.int64], places: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Compare concepts at places of an order with their predecessors, number by number."""
    equal = np.empty(len(places), dtype=bool)
    step = max(1, _BLOCK // max(1, points.shape[1]))
    for first in range(0, len(places), step):
        part = slice(first, first + step)
        here, before = order[places[part]], order[places[part] - 1]
        equal[part] = (_single(points[here]) == _single(points[before])).all(axis=1)
    return equal
