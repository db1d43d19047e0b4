"""Cross-validation of kernel regressions (part of step 4, the mapping).

In: scaled rows, targets and the settings to compare. Out: the mean squared error of each setting
on each held-out fold. Distances are shared by all settings, factorisations by those of one gamma.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from polyseme._validation import FloatArray
from polyseme.solvers.kernel_ridge import kernel_ridge_path
from polyseme.solvers.kernels import (
    Rows,
    pairwise_squared_distances,
    rbf_from_squared,
    squared_distances,
)
from polyseme.solvers.nu_svr import SharedKernelSolver

Setting: TypeAlias = Mapping[str, float]

# Loose and few: neither moves the choice, and both save most of the time.
_TOLERANCE = 3e-3
_MAX_ITER = 500
_MAX_OUTPUTS = 32


def cross_validate(
    rows: Rows,
    targets: FloatArray,
    settings: Sequence[Setting],
    n_folds: int,
    max_rows: int,
    generator: np.random.Generator,
) -> NDArray[np.float64]:
    """Compare settings by shuffled k-fold cross-validation.

    Parameters
    ----------
    rows : array or csr_matrix, shape (n, n_features)
    targets : array, shape (n, d)
    settings : sequence of mappings
        Each with "gamma" and either "penalty" (kernel ridge) or "nu" and "C" (nu-SVR); those of
        one gamma side by side.
    n_folds : int
    max_rows : int
        Look at a sample of so many rows when there are more; and at 32 outputs at most.
    generator : numpy.random.Generator

    Returns
    -------
    float64 array, shape (n_folds, n_settings)
        Mean squared errors in the units of the targets: smaller is better.
    """
    if len(targets) > max_rows:
        drawn = generator.choice(len(targets), max_rows, replace=False)
        rows, targets = rows[drawn], targets[drawn]
    if targets.shape[1] > _MAX_OUTPUTS:
        targets = targets[:, generator.choice(targets.shape[1], _MAX_OUTPUTS, replace=False)]
    folds = np.array_split(generator.permutation(len(targets)), n_folds)
    return np.array([list(_errors(rows, targets, fold, settings)) for fold in folds])


def _errors(
    rows: Rows, targets: FloatArray, held_out: NDArray[np.int64], settings: Sequence[Setting]
) -> Iterator[float]:
    """Give the mean squared error of each setting on the instances held out."""
    mask = np.ones(len(targets), dtype=bool)
    mask[held_out] = False
    train, truth = targets[mask], targets[held_out]
    queries = rows[held_out]
    among = pairwise_squared_distances(rows[mask])
    across = squared_distances(queries.toarray() if sp.issparse(queries) else queries, rows[mask])
    for gamma, group in itertools.groupby(settings, key=lambda setting: setting["gamma"]):
        kernel, test_kernel = rbf_from_squared(among, gamma), rbf_from_squared(across, gamma)
        for coefficients, bias in _solutions(kernel, train, list(group)):
            yield float(np.mean((test_kernel @ coefficients + bias - truth) ** 2))


def _solutions(
    kernel: FloatArray, targets: FloatArray, settings: Sequence[Setting]
) -> Iterator[tuple[FloatArray, FloatArray]]:
    """Solve for each setting of one kernel, sharing the factorisation."""
    if "penalty" in settings[0]:
        yield from kernel_ridge_path(kernel, targets, [one["penalty"] for one in settings])
        return
    solver = SharedKernelSolver(kernel)
    for one in settings:
        solution = solver.solve(
            targets, one["nu"], one["C"], tolerance=_TOLERANCE, max_iter=_MAX_ITER, quiet=True
        )
        yield solution.coefficients, solution.bias
