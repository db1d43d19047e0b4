"""Ridge regression with an intercept from sums alone, so that sparse rows stay sparse.

In: rows of inputs and targets. Out: weights and intercepts, for all rows or for all but a fold.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

Matrix = NDArray[np.float64]
Rows = NDArray[np.float64] | sp.csr_matrix


class RidgeSums(NamedTuple):
    """What ridge regression needs to know of some rows.

    Attributes
    ----------
    n : int
        Rows.
    inputs : float64 array, shape (n_inputs,)
        Their sums.
    targets : float64 array, shape (n_targets,)
    gram : float64 array, shape (n_inputs, n_inputs)
        Sums of products of inputs.
    cross : float64 array, shape (n_inputs, n_targets)
        Sums of products of inputs and targets.
    """

    n: int
    inputs: Matrix
    targets: Matrix
    gram: Matrix
    cross: Matrix

    @classmethod
    def of(cls, inputs: Rows, targets: Rows) -> Self:
        """Sum over rows (n, n_inputs) and (n, n_targets), dense or sparse."""
        return cls(
            inputs.shape[0],
            np.asarray(inputs.sum(axis=0), dtype=np.float64).ravel(),
            np.asarray(targets.sum(axis=0), dtype=np.float64).ravel(),
            _dense(inputs.T @ inputs),
            _dense(inputs.T @ targets),
        )

    def without(self, other: RidgeSums) -> RidgeSums:
        """Take away the sums over some of the rows."""
        return RidgeSums(
            self.n - other.n,
            self.inputs - other.inputs,
            self.targets - other.targets,
            self.gram - other.gram,
            self.cross - other.cross,
        )

    def solve(self, penalty: float) -> tuple[Matrix, Matrix]:
        """Solve the regression.

        Parameters
        ----------
        penalty : float
            On the squared weights, as a multiple of the number of rows.

        Returns
        -------
        weights : float64 array, shape (n_inputs, n_targets)
        intercept : float64 array, shape (n_targets,)
        """
        mean_in, mean_out = self.inputs / self.n, self.targets / self.n
        gram = self.gram - self.n * np.outer(mean_in, mean_in)
        gram[np.diag_indices_from(gram)] += penalty * self.n
        centred = self.cross - self.n * np.outer(mean_in, mean_out)
        weights = np.asarray(np.linalg.solve(gram, centred), dtype=np.float64)
        return weights, mean_out - mean_in @ weights


def _dense(product: Any) -> Matrix:
    """Give a product, dense or sparse, as a plain float64 array."""
    return np.asarray(getattr(product, "toarray", lambda: product)(), dtype=np.float64)
