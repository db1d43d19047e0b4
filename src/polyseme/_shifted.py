"""Rows that are sparse but for one dense row taken from each: standardised, never laid out whole.

In: sparse rows and what is subtracted from them. Out: products with dense matrices.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

if TYPE_CHECKING:
    from torch import Tensor


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

    def toarray(self) -> NDArray[np.float32]:
        """Lay the whole matrix out; for small ones and for comparison."""
        return np.asarray(self.rows.toarray() - self.used[:, None] * self.shift, dtype=np.float32)

    def times(self, weights: Tensor, chosen: NDArray[np.int64] | None = None) -> Tensor:
        """Multiply some rows, or all, by a matrix.

        Parameters
        ----------
        weights : float32 tensor, shape (n_columns, h)
        chosen : int64 array, shape (m,), optional
            The rows to multiply.

        Returns
        -------
        float32 tensor, shape (m, h)
        """
        import torch

        rows, used = self._chosen(chosen)
        product = _product(rows.indptr, rows.indices, rows.data, weights)
        subtracted = torch.mv(weights.t(), torch.from_numpy(self.shift))
        return product.addr_(torch.from_numpy(used), subtracted, alpha=-1.0)

    def transposed_times(
        self, values: Tensor, out: Tensor, chosen: NDArray[np.int64] | None = None
    ) -> None:
        """Multiply the transpose of some rows, or all, by a matrix.

        Parameters
        ----------
        values : float32 tensor, shape (m, h)
        out : float32 tensor, shape (n_columns, h)
            Where the product is written.
        chosen : int64 array, shape (m,), optional
            The rows whose transpose is meant.
        """
        import torch

        rows, used = self._chosen(chosen)
        turned = rows.tocsc()
        product = _product(turned.indptr, turned.indices, turned.data, values)
        subtracted = torch.mv(values.t(), torch.from_numpy(used))
        torch.addr(product, torch.from_numpy(self.shift), subtracted, alpha=-1.0, out=out)

    def _chosen(
        self, chosen: NDArray[np.int64] | None
    ) -> tuple[sp.csr_matrix, NDArray[np.float32]]:
        """Give some rows, and which of them are in use."""
        if chosen is None:
            return self.rows, self.used
        return self.rows[chosen], self.used[chosen]


def _product(
    indptr: NDArray[np.integer],
    indices: NDArray[np.integer],
    data: NDArray[np.float32],
    dense: Tensor,
) -> Tensor:
    """Multiply sparse rows by a matrix.

    Written as a weighted sum of the matrix's rows, for which torch has a kernel three times faster
    than scipy's product, on the threads that all its other work is done by.
    """
    from torch import from_numpy
    from torch.nn.functional import embedding_bag

    if not len(data):
        return dense.new_zeros((len(indptr) - 1, dense.shape[1]))
    return embedding_bag(
        from_numpy(np.asarray(indices, dtype=np.int64)),
        dense,
        from_numpy(np.asarray(indptr, dtype=np.int64)),
        mode="sum",
        per_sample_weights=from_numpy(data),
        include_last_offset=True,
    )
