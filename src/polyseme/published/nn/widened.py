"""Products with the output layer on a GPU, with its biases as one more column of the factors.

In: codes, the output layer and its table of predictions. Out: activations, and gradients of both.
A bias is a pass over the whole table by itself, and its gradient another; as a column both come
with the products.
"""

from __future__ import annotations

import torch
from torch import Tensor


class WideFactors:
    """Room for the factors of n examples, which stays where it is, as captured graphs need it.

    Parameters
    ----------
    codes : tensor, shape (n, n_components)
        The first ones; others have the same shape and device.
    n_labels : int
    dtype : torch.dtype
        What products are taken in.
    """

    def __init__(self, codes: Tensor, n_labels: int, dtype: torch.dtype) -> None:
        n, self._d = codes.shape
        # Rows that begin at round addresses are what fast products are made for.
        width = (self._d // 8 + 1) * 8
        self._left = torch.zeros((n, width), dtype=dtype, device=codes.device)
        self._right = torch.zeros((n_labels, width), dtype=dtype, device=codes.device)

    def activations(self, codes: Tensor, weight: Tensor, bias: Tensor, out: Tensor) -> Tensor:
        """Give twice the pre-activations.

        Parameters
        ----------
        codes : tensor, shape (n, n_components)
        weight, bias : tensors, shapes (n_labels, n_components) and (n_labels,)
        out : tensor, shape (n, n_labels)

        Returns
        -------
        tensor
            `out`.
        """
        d = self._d
        torch.mul(codes, 2.0, out=self._left[:, :d])
        self._left[:, d] = 2.0
        self._right[:, :d].copy_(weight)
        self._right[:, d].copy_(bias)
        return torch.mm(self._left, self._right.t(), out=out)

    def slope(self, table: Tensor) -> Tensor:
        """Give the table times the weights that `activations` saw, shape (n, n_components)."""
        return table @ self._right[:, : self._d]

    def gradient(
        self, table: Tensor, weighted: Tensor, factor: Tensor, weight: Tensor, bias: Tensor
    ) -> None:
        """Fill the gradient of weights and biases.

        Parameters
        ----------
        table : tensor, shape (n, n_labels)
        weighted : tensor, shape (n, n_components)
            Codes times their examples' factors.
        factor : tensor, shape (n,)
        weight, bias : tensors, shapes (n_labels, n_components) and (n_labels,)
            They are filled.
        """
        d = self._d
        self._left[:, :d].copy_(weighted)
        self._left[:, d].copy_(factor)
        found = table.t() @ self._left
        weight.copy_(found[:, :d])
        bias.copy_(found[:, d])
