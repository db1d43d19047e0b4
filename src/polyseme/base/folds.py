"""Parts of a cross-validation that keep what belongs together on one side.

In: a number of rows and, where known, the group of each. Out: for each row the number of the fold
that holds it out.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import ArrayLike, NDArray

from polyseme.base.validation import InputError, IntArray


def fold_numbers(
    n: int, n_folds: int, generator: np.random.Generator, groups: ArrayLike | None = None
) -> IntArray:
    """Draw the fold of each of n rows, (n,), numbers from 0 without gaps.

    There are fewer folds when there are fewer rows or groups. Without groups (n,) their sizes
    differ by one at most; groups come in random order, each whole to the fold with the fewest rows.
    """
    # Ours, although scikit-learn has `GroupKFold`: published results rest on the folds drawn here.
    numbers = group_numbers(groups, n)
    if numbers is None:
        n_used_folds = max(min(n_folds, n), 1)
        shuffled = generator.permutation(n)
        return (shuffled % n_used_folds).astype(np.int64)
    group_sizes = np.bincount(numbers)
    fold_sizes = np.zeros(max(n_folds, 1), dtype=np.int64)
    fold_by_group = _smallest_folds(group_sizes, fold_sizes, generator)
    return np.asarray(fold_by_group[numbers])


def filled_folds(
    folds: IntArray, n_folds: int, generator: np.random.Generator, groups: IntArray | None
) -> IntArray:
    """Return folds with new documents (-1) drawn into those with the fewest, groups whole, (n,)."""
    folds = folds.copy()
    new = np.flatnonzero(folds < 0)
    fold_sizes = np.bincount(folds[folds >= 0], minlength=n_folds)
    new_groups = np.arange(len(new))
    if groups is not None:
        new_groups = groups[new]
    _, numbers, group_sizes = np.unique(new_groups, return_inverse=True, return_counts=True)
    fold_by_group = _smallest_folds(group_sizes, fold_sizes, generator)
    folds[new] = fold_by_group[numbers]
    return folds


def group_numbers(groups: ArrayLike | None, n: int) -> IntArray | None:
    """Return the groups of n rows as numbers from 0, in sorted order; None without groups."""
    if groups is None:
        return None
    names = np.asarray(groups)
    if names.shape != (n,):
        raise InputError(
            f"`groups` must name one group for each of the {n} rows; got shape {names.shape}."
        )
    return np.unique(names, return_inverse=True)[1].astype(np.int64)


def hidden_groups(
    n_labels: int, n_groups: int, generator: np.random.Generator
) -> Iterator[NDArray[np.bool_]]:
    """Yield groups of labels that take turns as pseudo-unseen ones, each (n_labels,)."""
    groups = generator.permutation(n_labels) % n_groups
    for group in range(n_groups):
        hidden = groups == group
        if hidden.any() and not hidden.all():
            yield hidden


def _smallest_folds(
    group_sizes: IntArray, fold_sizes: IntArray, generator: np.random.Generator
) -> IntArray:
    """Return the fold of each group: in random order, each goes to the fold that is the smallest.

    `fold_sizes` grows with the groups.
    """
    n_groups = len(group_sizes)
    fold_by_group = np.empty(n_groups, dtype=np.int64)
    for group in generator.permutation(n_groups):
        fold = np.argmin(fold_sizes)
        fold_by_group[group] = fold
        fold_sizes[fold] += group_sizes[group]
    return fold_by_group
