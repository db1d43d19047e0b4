"""What label documents say about one label given others: the way from seen to unseen labels.

In: semantics documents (m, n_labels) and which labels are seen and unseen. Out: weights
(n_seen, n_unseen) that turn scores of seen labels into scores of unseen ones.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from polyseme._validation import IntArray

Matrix = NDArray[np.float64]
Columns = NDArray[np.bool_] | IntArray

STATISTICS = ("normalised", "dice", "square-root")


def cooccurrences(lessons: sp.csr_matrix) -> Matrix:
    """Count the documents that hold both of two labels, (n_labels, n_labels)."""
    counted = lessons.astype(np.float64)
    return np.asarray((counted.T @ counted).toarray())


def conditional_shares(counts: Matrix, given: Columns, wanted: Columns) -> Matrix:
    """Give P(z | t), the share of t's documents that hold z.

    Parameters
    ----------
    counts : float64 array, shape (n_labels, n_labels)
        See `cooccurrences`.
    given, wanted : bool or int arrays
        The labels t and z.

    Returns
    -------
    float64 array, shape (n_given, n_wanted)
        0 for a label t without documents.
    """
    sizes = np.maximum(np.diag(counts)[given], 1.0)
    return np.asarray(counts[given][:, wanted] / sizes[:, None])


def transfer_weights(counts: Matrix, seen: Columns, unseen: Columns, statistic: str) -> Matrix:
    """Weigh seen labels by what they have in common with each unseen one.

    Parameters
    ----------
    counts : float64 array, shape (n_labels, n_labels)
        See `cooccurrences`.
    seen, unseen : bool or int arrays
    statistic : {"normalised", "dice", "square-root"}
        With c the counts, z unseen and k seen: c_zk / c_zz, c_zk / (c_zz + c_kk) or sqrt(c_zk).

    Returns
    -------
    float64 array, shape (n_seen, n_unseen)
        The weights for one unseen label sum to 1, so that scores of unseen labels are means of
        scores of seen ones (c_zz then cancels in "normalised"); all 0 where nothing is in common.
    """
    shared = counts[seen][:, unseen]
    sizes = np.diag(counts)
    if statistic == "normalised":
        weights = shared / np.maximum(sizes[unseen], 1.0)
    elif statistic == "dice":
        weights = shared / np.maximum(sizes[seen][:, None] + sizes[unseen], 1.0)
    else:
        weights = np.sqrt(shared)
    totals = weights.sum(axis=0)
    return np.asarray(weights / np.where(totals > 0, totals, 1.0))


def ridge(inputs: Matrix, targets: Matrix, penalty: float) -> tuple[Matrix, Matrix]:
    """Ridge regression with an intercept.

    Parameters
    ----------
    inputs : float64 array, shape (m, n_inputs)
    targets : float64 array, shape (m, n_targets)
    penalty : float
        As a multiple of m.

    Returns
    -------
    weights : float64 array, shape (n_inputs, n_targets)
    intercept : float64 array, shape (n_targets,)
    """
    mean_in, mean_out = inputs.mean(axis=0), targets.mean(axis=0)
    centred = inputs - mean_in
    gram = centred.T @ centred
    gram[np.diag_indices_from(gram)] += penalty * len(inputs)
    weights = np.linalg.solve(gram, centred.T @ (targets - mean_out))
    return weights, mean_out - mean_in @ weights


def choose_penalty(
    inputs: Matrix, targets: Matrix, penalties: Sequence[float], folds: IntArray
) -> float:
    """Choose the ridge penalty with the smallest squared error on held-out documents.

    Parameters
    ----------
    inputs : float64 array, shape (m, n_inputs)
    targets : float64 array, shape (m, n_targets)
    penalties : sequence of float
    folds : int64 array, shape (m,)
        Which fold holds each document out.

    Returns
    -------
    float
        The first of equals, and the first of all where there is a single fold.
    """
    errors = np.zeros(len(penalties))
    for fold in range(int(folds.max()) + 1) if folds.any() else ():
        held = folds == fold
        for place, penalty in enumerate(penalties):
            weights, intercept = ridge(inputs[~held], targets[~held], penalty)
            errors[place] += ((inputs[held] @ weights + intercept - targets[held]) ** 2).sum()
    return float(penalties[int(np.argmin(errors))])
