"""Parts of a cross-validation that keep what belongs together on one side.

In: a number of rows (documents or items) and, where known, the group of each. Out: for each row
the number of the fold that holds it out, from 0.

Published results rest on the folds drawn here: the same generator must give the same folds.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import ArrayLike, NDArray

from polyseme.base.validation import InputError, IntArray


def fold_numbers(
    n: int, n_folds: int, generator: np.random.Generator, groups: ArrayLike | None = None
) -> IntArray:
    """Draw the fold of each row, (n,), numbers from 0 without gaps.

    Parameters
    ----------
    n : int
        How many rows there are.
    n_folds : int
        At the most: there are fewer when there are fewer rows or groups.
    generator : numpy Generator
    groups : array-like, shape (n,), optional
        Groups stay whole: in random order, each goes to the fold with the fewest rows. Without
        groups the sizes of folds differ by one at most.
    """
    # Ours, although scikit-learn has `GroupKFold`: published results rest on the folds drawn here.
    row_groups = group_numbers(groups, n)
    if row_groups is None:
        n_used_folds = min(n_folds, n)
        n_used_folds = max(n_used_folds, 1)
        shuffled = generator.permutation(n)
        folds = shuffled % n_used_folds
        return folds.astype(np.int64)
    group_sizes = np.bincount(row_groups)
    n_used_folds = max(n_folds, 1)
    fold_sizes = np.zeros(n_used_folds, dtype=np.int64)
    fold_by_group = _smallest_folds(group_sizes, fold_sizes, generator)
    return np.asarray(fold_by_group[row_groups])


def filled_folds(
    folds: IntArray, n_folds: int, generator: np.random.Generator, groups: IntArray | None
) -> IntArray:
    """Return a copy of folds (n,) with new rows, -1, drawn into those with the fewest rows.

    New rows of one of the `groups` (n,) stay together.
    """
    folds = folds.copy()
    is_new = folds < 0
    new_rows = np.flatnonzero(is_new)
    former_folds = folds[~is_new]
    fold_sizes = np.bincount(former_folds, minlength=n_folds)
    new_groups = np.arange(len(new_rows))
    if groups is not None:
        new_groups = groups[new_rows]
    _, row_groups, group_sizes = np.unique(
        new_groups,
        return_inverse=True,
        return_counts=True,
    )
    fold_by_group = _smallest_folds(group_sizes, fold_sizes, generator)
    folds[new_rows] = fold_by_group[row_groups]
    return folds


def group_numbers(groups: ArrayLike | None, n: int) -> IntArray | None:
    """Return the groups of n rows as numbers from 0, (n,); None without groups.

    Numbers follow the sorted order of the groups' names.
    """
    if groups is None:
        return None
    names = np.asarray(groups)
    if names.shape != (n,):
        raise InputError(
            f"`groups` must name one group for each of the {n} rows; got shape {names.shape}."
        )
    _, numbers = np.unique(names, return_inverse=True)
    return numbers.astype(np.int64)


def hidden_groups(
    n_labels: int, n_groups: int, generator: np.random.Generator
) -> Iterator[NDArray[np.bool_]]:
    """Yield which labels are hidden, (n_labels,), as though no training item carried them.

    Every label is hidden once; groups that would hide all labels, or none, are left out.
    """
    permutation = generator.permutation(n_labels)
    groups = permutation % n_groups
    for group in range(n_groups):
        is_hidden = groups == group
        if is_hidden.any() and not is_hidden.all():
            yield is_hidden


def _smallest_folds(
    group_sizes: IntArray, fold_sizes: IntArray, generator: np.random.Generator
) -> IntArray:
    """Return the fold of each group: in random order, each goes to the fold that is the smallest.

    Both sizes are numbers of rows, (n_groups,) and (n_folds,); `fold_sizes` grows in place.
    """
    n_groups = len(group_sizes)
    fold_by_group = np.empty(n_groups, dtype=np.int64)
    for group in generator.permutation(n_groups):
        fold = np.argmin(fold_sizes)
        fold_by_group[group] = fold
        fold_sizes[fold] += group_sizes[group]
    return fold_by_group
