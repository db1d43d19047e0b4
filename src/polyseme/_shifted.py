"""Rows that are sparse but for one dense row taken from each: standardised, never laid out whole.

In: sparse rows and what is subtracted from them. Out: products with dense matrices.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

# Sharing fewer products among threads takes longer than multiplying.
_WORTH_SHARING = 20_000


@dataclass(frozen=True)
class ShiftedRows:
    """The matrix ``rows - used ⊗ shift``, held as its parts.

    Standardising the columns of a sparse matrix divides them, which keeps it sparse, and subtracts
    their means, which would fill it; so the means stand apart.

    Attributes
    ----------
    rows : csr_matrix of float32, shape (n, n_columns)
    shift : float32 array, shape (n_columns,)
        Subtracted from each row in use.
    used : float32 array, shape (n,)
        1, or 0 for a row of zeros from which nothing is subtracted.
    """

    rows: sp.csr_matrix
    shift: NDArray[np.float32]
    used: NDArray[np.float32]

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        n_rows, n_columns = self.rows.shape
        return int(n_rows), int(n_columns)

    @property
    def size(self) -> int:
        """The numbers held."""
        return int(self.rows.nnz) + len(self.shift)

    def toarray(self) -> NDArray[np.float32]:
        """Lay the whole matrix out; for small ones and for comparison."""
        return np.asarray(self.rows.toarray() - self.used[:, None] * self.shift, dtype=np.float32)

    def times(
        self,
        weights: NDArray[np.float32],
        chosen: NDArray[np.int64] | None = None,
        n_threads: int = 1,
    ) -> NDArray[np.float32]:
        """Multiply some rows, or all, by a matrix.

        Parameters
        ----------
        weights : float32 array, shape (n_columns, h)
        chosen : int64 array, shape (m,), optional
            The rows to multiply.
        n_threads : int
            Threads to share the work; the result is the same for any number.

        Returns
        -------
        float32 array, shape (m, h)
        """
        rows, used = self._chosen(chosen)
        product = _shared_product(rows, weights, n_threads)
        product -= used[:, None] * (self.shift @ weights)
        return product

    def transposed_times(
        self,
        values: NDArray[np.float32],
        out: NDArray[np.float32],
        chosen: NDArray[np.int64] | None = None,
        n_threads: int = 1,
    ) -> None:
        """Multiply the transpose of some rows, or all, by a matrix.

        Parameters
        ----------
        values : float32 array, shape (m, h)
        out : float32 array, shape (n_columns, h)
            Where the product is written.
        chosen : int64 array, shape (m,), optional
            The rows whose transpose is meant.
        n_threads : int
            Threads to share the work; the result is the same for any number.
        """
        rows, used = self._chosen(chosen)
        np.multiply(self.shift[:, None], -(used @ values), out=out)
        out += _shared_product(sp.csr_matrix(rows.T), values, n_threads)

    def _chosen(
        self, chosen: NDArray[np.int64] | None
    ) -> tuple[sp.csr_matrix, NDArray[np.float32]]:
        """Give some rows, and which of them are in use."""
        if chosen is None:
            return self.rows, self.used
        return self.rows[chosen], self.used[chosen]


def _shared_product(
    rows: sp.csr_matrix, dense: NDArray[np.float32], n_threads: int
) -> NDArray[np.float32]:
    """Multiply sparse rows by a matrix, in parts of equal work for each thread."""
    if n_threads == 1 or rows.nnz < _WORTH_SHARING:
        return np.asarray(rows @ dense)
    wanted = np.linspace(0, rows.nnz, n_threads + 1)
    cuts = np.searchsorted(rows.indptr, wanted)
    cuts[0], cuts[-1] = 0, rows.shape[0]
    parts = [rows[start:stop] for start, stop in pairwise(cuts)]
    with ThreadPoolExecutor(n_threads) as pool:
        return np.concatenate(list(pool.map(lambda part: part @ dense, parts)))
