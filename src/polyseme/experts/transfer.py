"""How strongly the way from seen to unseen labels is smoothed: chosen on seen labels.

In: predictions of seen labels for held-out instances, and documents. Out: the ridge penalty that
ranks instances best for seen labels that are made pseudo-unseen in turn.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from polyseme._folds import hidden_groups
from polyseme.scoring import mean_average_precision
from polyseme.solvers.ridge import RidgeSums

Matrix = NDArray[np.float64]

PENALTIES = (1e-4, 1e-3, 1e-2, 1e-1, 1.0)


def choose_transfer_penalty(
    predicted: Matrix,
    truth: Matrix,
    documents: sp.csr_matrix,
    penalties: Sequence[float],
    n_groups: int,
    generator: np.random.Generator,
) -> float:
    """Choose the penalty that ranks instances best for labels made pseudo-unseen.

    Parameters
    ----------
    predicted, truth : float64 arrays, shape (n, n_seen)
        Predictions for instances that the predictor had not seen, and what is true.
    documents : csr_matrix, shape (m, n_seen)
        The seen labels of documents.
    penalties : sequence of float
    n_groups : int
        Groups of labels that take turns.
    generator : numpy Generator
        Draws the groups.

    Returns
    -------
    float
        The first of equals.
    """
    quality = np.zeros(len(penalties))
    rows = sp.csr_matrix(documents, dtype=np.float64)
    for hidden in hidden_groups(truth.shape[1], n_groups, generator):
        sums = RidgeSums.of(rows[:, ~hidden], rows[:, hidden])
        for place, penalty in enumerate(penalties):
            weights, intercept = sums.solve(penalty)
            scores = predicted[:, ~hidden] @ weights + intercept
            quality[place] += mean_average_precision(truth[:, hidden].astype(bool), scores)
    return float(penalties[int(np.argmax(quality))])
