"""Which settings of a kernel regression to compare, and how (part of step 4, the mapping).

In: scaled rows, targets and the settings that are given. Out: the settings to compare and the
mean squared error of each on each held-out fold.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from polyseme._folds import fold_numbers
from polyseme._validation import FloatArray, IntArray
from polyseme.published.solvers.kernel_ridge import kernel_ridge_path
from polyseme.published.solvers.kernels import (
    Rows,
    blas_threads,
    median_gamma,
    pairwise_squared_distances,
    rbf_from_squared,
    squared_distances,
    variance_gamma,
)
from polyseme.published.solvers.nu_svr import SharedKernelSolver

Setting: TypeAlias = Mapping[str, float]

# The first value of each grid wins ties and stands where nothing can be cross-validated. C is in
# units of the targets' spread and starts in the middle, so that one factorisation serves all.
NU_GRID = (0.4, 0.2, 0.6)
C_GRID = (2.0, 0.5, 8.0)
GAMMA_GRID = (1.0, 0.25, 4.0)
PENALTY_GRID = (1.0, 0.1, 0.3, 3.0, 0.03, 10.0)

# Loose and few: neither moves the choice, and both save most of the time.
_TOLERANCE = 3e-3
_MAX_ITER = 500
_MAX_OUTPUTS = 32


def kernel_widths(
    rows: Rows, gamma: float | str | None, generator: np.random.Generator
) -> Sequence[float]:
    """List the values of gamma to compare.

    Parameters
    ----------
    rows : array or csr_matrix, shape (n, n_features)
    gamma : float, "median", "variance" or None
        A value, the name of a heuristic, or None for multiples of the median heuristic.
    generator : numpy.random.Generator

    Returns
    -------
    sequence of float
    """
    if gamma == "variance":
        return (variance_gamma(rows),)
    if gamma == "median":
        return (median_gamma(rows, generator),)
    if gamma is None:
        middle = median_gamma(rows, generator)
        return [middle * factor for factor in GAMMA_GRID]
    return (float(gamma),)


def settings_to_compare(
    kind: str,
    given: Mapping[str, Any],
    rows: Rows,
    targets: FloatArray,
    generator: np.random.Generator,
) -> list[Setting]:
    """List what is to be compared: given values as they are, the others as grids.

    Parameters
    ----------
    kind : {"nu-svr", "kernel-ridge"}
    given : mapping
        "gamma" as `kernel_widths` takes it; "nu", "C" and "penalty", None where not given.
    rows : array or csr_matrix, shape (n, n_features)
    targets : array, shape (n, d)
    generator : numpy.random.Generator

    Returns
    -------
    list of mappings
    """
    grids: dict[str, Sequence[float]]
    grids = {"gamma": kernel_widths(rows, given["gamma"], generator)}
    if kind == "kernel-ridge":
        penalty = given["penalty"]
        grids["penalty"] = PENALTY_GRID if penalty is None else (float(penalty),)
        return combine(grids)
    spread = float(np.sqrt(targets.var(axis=0).mean())) or 1.0
    bounds = [spread * factor for factor in C_GRID]
    grids["C"] = bounds if given["C"] is None else (float(given["C"]),)
    grids["nu"] = NU_GRID if given["nu"] is None else (float(given["nu"]),)
    return combine(grids)


def combine(grids: Mapping[str, Sequence[float]]) -> list[Setting]:
    """List all combinations of the values; the first name varies slowest."""
    return [dict(zip(grids, values, strict=True)) for values in itertools.product(*grids.values())]


def cross_validate(
    rows: Rows,
    targets: FloatArray,
    settings: Sequence[Setting],
    n_folds: int,
    max_rows: int,
    generator: np.random.Generator,
    groups: IntArray | None = None,
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
    groups : int array, shape (n,), optional
        Rows of one group come into one fold.

    Returns
    -------
    float64 array, shape (n_folds, n_settings)
        Mean squared errors in the units of the targets: smaller is better. Fewer folds where there
        are fewer groups; none where there is one group.
    """
    if len(targets) > max_rows:
        drawn = generator.choice(len(targets), max_rows, replace=False)
        rows, targets = rows[drawn], targets[drawn]
        groups = None if groups is None else groups[drawn]
    if targets.shape[1] > _MAX_OUTPUTS:
        targets = targets[:, generator.choice(targets.shape[1], _MAX_OUTPUTS, replace=False)]
    folds = _draw_folds(len(targets), n_folds, generator, groups)
    if len(folds) < 2:
        return np.empty((0, len(settings)))

    def errors(fold: NDArray[np.int64]) -> list[float]:
        return list(_errors(rows, targets, fold, settings))

    # The products are too small to be shared among cores; the folds are not.
    workers = min(n_folds, os.cpu_count() or 1)
    with blas_threads(0), ThreadPoolExecutor(workers) as pool:
        return np.array(list(pool.map(errors, folds)))


def _draw_folds(
    n: int, n_folds: int, generator: np.random.Generator, groups: IntArray | None
) -> list[IntArray]:
    """Draw the rows that each fold holds out."""
    if groups is None:
        return np.array_split(generator.permutation(n), n_folds)
    numbers = fold_numbers(n, n_folds, generator, groups)
    return [np.flatnonzero(numbers == fold) for fold in range(numbers.max() + 1)]


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
