"""The members of a concept space: two encoders and one readout each, and one training step.

In: tag sets and features as rows of numbers. Out: codes of one space, the logits that are read from
them, and gradients. Everything has a leading axis of members, so that several are one product.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple, Self

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor


class Shape(NamedTuple):
    """Sizes of a member.

    Attributes
    ----------
    n_labels : int
        Inputs of the document encoder.
    n_outputs : int
        Columns of the readout: every label and, where there are unseen labels, whether a document
        holds one of them.
    n_features : int
        Inputs of the item encoder; 0 without one.
    hidden : int
        Rectified units of each encoder.
    code : int
        Dimensions of a code, each between -1 and 1.
    """

    n_labels: int
    n_outputs: int
    n_features: int
    hidden: int
    code: int


class Members:
    """Weights of members that are held together.

    Parameters
    ----------
    shape : Shape
    items, documents, readout : float32 tensors, shape (n_members, n_weights)
        The weights of the two encoders and of the readout, each flat: one optimiser group each.
    """

    def __init__(self, shape: Shape, items: Tensor, documents: Tensor, readout: Tensor) -> None:
        self.shape = shape
        self.items = items
        self.documents = documents
        self.readout = readout
        hidden, code = shape.hidden, shape.code
        self.item_layers = _layers(items, (shape.n_features, hidden, code))
        self.document_layers = _layers(documents, (shape.n_labels, hidden, code))
        ((self.labels, self.bias),) = _layers(readout, (code, shape.n_outputs))

    def __len__(self) -> int:
        return len(self.readout)

    @classmethod
    def start(cls, shape: Shape, priors: NDArray[np.float64], seeds: list[int]) -> Self:
        """Make untrained members that give every output its prior, roughly.

        Parameters
        ----------
        shape : Shape
        priors : float64 array, shape (n_outputs,)
        seeds : list of int, length n_members
            Draw each member's first weights, whoever its companions are.
        """
        hidden, code = shape.hidden, shape.code
        sizes = [
            (shape.n_features, hidden, code) if shape.n_features else (),
            (shape.n_labels, hidden, code),
            (code, shape.n_outputs),
        ]
        parts = [torch.zeros(len(seeds), _n_weights(one)) for one in sizes]
        made = cls(shape, *parts)
        for place, seed in enumerate(seeds):
            generator = torch.Generator().manual_seed(seed)
            for weights, _ in (*made.item_layers, *made.document_layers, (made.labels, made.bias)):
                below, above = weights.shape[1:]
                drawn = torch.randn(below, above, generator=generator)
                weights[place] = drawn * (2 / (below + above)) ** 0.5
        made.bias += torch.from_numpy(np.log(priors) - np.log1p(-priors)).float()
        return made

    def select(self, some: slice) -> Members:
        """Give some of the members; they share their weights with these."""
        return Members(self.shape, self.items[some], self.documents[some], self.readout[some])

    def to(self, device: str) -> Members:
        """Give copies on a device."""
        parts = (self.items, self.documents, self.readout)
        return Members(self.shape, *(one.to(device, copy=True) for one in parts))

    @property
    def groups(self) -> tuple[Tensor, Tensor, Tensor]:
        """The weights of item encoder, document encoder and readout."""
        return self.items, self.documents, self.readout

    # ------------------------------------------------------------------ using them

    def encode_items(self, features: Tensor) -> Tensor:
        """Give the codes of standardised features.

        Parameters
        ----------
        features : float32 tensor, shape (n, n_features)

        Returns
        -------
        float32 tensor, shape (n_members, n, code)
        """
        (first, bias), (second, offset) = self.item_layers
        rows = aligned(features).expand(len(self), -1, -1)
        return _code(torch.relu(torch.baddbmm(bias, rows, first)), second, offset)

    def encode_documents(self, tags: Tensor) -> Tensor:
        """Give the codes of tag sets, some of whose tags may be probable only.

        Parameters
        ----------
        tags : float32 tensor, shape (n, n_labels)
            Between 0 and 1.

        Returns
        -------
        float32 tensor, shape (n_members, n, code)
        """
        (first, bias), (second, offset) = self.document_layers
        rows = aligned(tags).expand(len(self), -1, -1)
        return _code(torch.relu(torch.baddbmm(bias, rows, first)), second, offset)

    def encode_rows(self, tags: sp.csr_matrix) -> Tensor:
        """Give the codes of tag sets that are sparse rows, (n_members, n, code), on processors."""
        (first, bias), (second, offset) = self.document_layers
        rows = sp.csr_matrix(tags, dtype=np.float32)
        units = [
            torch.relu_(torch.from_numpy(np.asarray(rows @ weights.numpy())) + one)
            for weights, one in zip(first, bias, strict=True)
        ]
        return _code(torch.stack(units), second, offset)

    def read(self, codes: Tensor, columns: slice = slice(None)) -> Tensor:
        """Give the logits of labels, (n_members, n, n_columns), from codes."""
        return torch.baddbmm(self.bias[..., columns], codes, self.labels[..., columns])


@dataclass
class Batch:
    """What one training step looks at; every tensor begins with (n_members, rows).

    Attributes
    ----------
    tags : float32 tensor, shape (n_members, n_documents + n_probable, n_labels)
        What is left of documents, then the probable tags of some of the items.
    features : float32 tensor, shape (n_members, n_items, n_features), or None
        None where there are no items; then `tags` holds documents alone.
    targets, weights : float32 tensors, shape (n_members, n_rows, n_columns)
        Of documents, of items by their probable tags, and of items by their features: n_documents
        + n_probable + n_items rows. Weights are already divided by the numbers of rows and columns.
    columns : int64 tensor, shape (n_columns,), or None
        The outputs that are read in this step; None: all.
    dropout : list of float32 tensors
        Factors on: features, hidden units of items, hidden units of documents, codes.
    """

    tags: Tensor
    features: Tensor | None
    targets: Tensor
    weights: Tensor
    columns: Tensor | None
    dropout: list[Tensor]


def step(members: Members, batch: Batch, gradients: Members) -> Tensor:
    """Take the gradients of the weighted cross-entropy of a batch.

    Written out by hand: autograd takes about 1.6 times as long on the processor, where most of a
    step of this size is not matrix products.

    Parameters
    ----------
    members : Members
    batch : Batch
    gradients : Members
        Are overwritten.

    Returns
    -------
    float32 tensor, shape (n_members, rows, n_columns)
        The logits, from which the loss can be told.
    """
    on_features, on_items, on_documents, on_codes = batch.dropout
    (first, first_bias), (second, second_bias) = members.document_layers
    tags = batch.tags
    open_units = torch.relu_(torch.baddbmm(first_bias, tags, first))
    hidden = open_units * on_documents
    codes = torch.baddbmm(second_bias, hidden, second)
    if batch.features is not None:
        (item_first, item_bias), (item_second, item_offset) = members.item_layers
        features = batch.features * on_features
        item_units = torch.relu_(torch.baddbmm(item_bias, features, item_first))
        item_hidden = item_units * on_items
        codes = torch.cat([codes, torch.baddbmm(item_offset, item_hidden, item_second)], dim=1)
    codes = _tanh(codes)
    thinned = codes * on_codes
    labels, bias = members.labels, members.bias
    if batch.columns is not None:
        labels, bias = labels[..., batch.columns], bias[..., batch.columns]
    logits = torch.baddbmm(bias, thinned, labels)
    # The derivative of the cross-entropy by its logits.
    errors = torch.sigmoid(logits).sub_(batch.targets).mul_(batch.weights)
    on_labels, on_bias = thinned.mT @ errors, errors.sum(dim=1, keepdim=True)
    if batch.columns is None:
        gradients.labels.copy_(on_labels)
        gradients.bias.copy_(on_bias)
    else:
        gradients.readout.zero_()
        gradients.labels.index_copy_(2, batch.columns, on_labels)
        gradients.bias.index_copy_(2, batch.columns, on_bias)
    back = (errors @ labels.mT).mul_(on_codes)
    back -= back * codes * codes
    n_rows = tags.shape[1]
    _back(back[:, :n_rows], tags, open_units, on_documents, second, gradients.document_layers)
    if batch.features is not None:
        layers = gradients.item_layers
        _back(back[:, n_rows:], features, item_units, on_items, item_second, layers)
    return logits


class MemberOptimizer:
    """AdamW for members whose gradients `step` takes, with a rate and a decay for each group.

    Parameters
    ----------
    members, gradients : Members
    rates, decays : sequences of float, length 3
        Of item encoder, document encoder and readout.
    """

    def __init__(
        self,
        members: Members,
        gradients: Members,
        rates: Sequence[float],
        decays: Sequence[float],
    ) -> None:
        every = zip(members.groups, gradients.groups, rates, decays, strict=True)
        self.groups = [_Group(*one) for one in every if one[0].numel()]

    def step(self, factor: float | Tensor) -> None:
        """Take a step, with all rates times a factor; a captured graph has it on its device."""
        # What `torch.optim.AdamW` calls; the class itself loads torch's compiler on its first
        # step, which takes seconds and is a large part of a small fit.
        for group in self.groups:
            group.n_steps += 1
            torch._fused_adamw_(
                [group.weights],
                [group.gradient],
                [group.mean],
                [group.square],
                [],
                [group.n_steps],
                amsgrad=False,
                beta1=0.9,
                beta2=0.999,
                lr=group.rate * factor,
                weight_decay=group.decay,
                eps=1e-8,
                maximize=False,
            )

    def get_state(self) -> dict[str, Tensor]:
        """Give what it remembers, by name."""
        return {
            f"{name}.{place}": one
            for place, group in enumerate(self.groups)
            for name, one in (("mean", group.mean), ("square", group.square))
        }

    def set_state(self, held: Mapping[str, Tensor], n_steps: int) -> None:
        """Take back what it remembered after so many steps; see `get_state`."""
        for place, group in enumerate(self.groups):
            group.mean.copy_(held[f"mean.{place}"])
            group.square.copy_(held[f"square.{place}"])
            group.n_steps.fill_(n_steps)


class _Group:
    """Weights that have one rate and one decay, and what AdamW remembers of them."""

    def __init__(self, weights: Tensor, gradient: Tensor, rate: float, decay: float) -> None:
        self.weights, self.gradient, self.rate, self.decay = weights, gradient, rate, decay
        self.mean, self.square = torch.zeros_like(weights), torch.zeros_like(weights)
        self.n_steps = torch.zeros((), device=weights.device)


def _back(
    back: Tensor,
    inputs: Tensor,
    units: Tensor,
    dropout: Tensor,
    second: Tensor,
    gradients: list[tuple[Tensor, Tensor]],
) -> None:
    """Go back through one encoder: from gradients of what its tanh takes to those of weights."""
    (on_first, on_first_bias), (on_second, on_second_bias) = gradients
    torch.bmm((units * dropout).mT, back, out=on_second)
    torch.sum(back, dim=1, keepdim=True, out=on_second_bias)
    below = torch.ops.aten.threshold_backward((back @ second.mT).mul_(dropout), units, 0)
    torch.bmm(inputs.mT, below, out=on_first)
    torch.sum(below, dim=1, keepdim=True, out=on_first_bias)


def aligned(values: Tensor) -> Tensor:
    """Give a copy in torch's own memory: products of numpy's may differ in their last bits."""
    return values.clone(memory_format=torch.contiguous_format)


def _code(hidden: Tensor, second: Tensor, offset: Tensor) -> Tensor:
    """Give codes of hidden units."""
    return _tanh(torch.baddbmm(offset, hidden, second))


def _tanh(values: Tensor) -> Tensor:
    """Give the hyperbolic tangent, in place: torch's own takes five times as long on processors."""
    return values.mul_(2).sigmoid_().mul_(2).sub_(1)


def _n_weights(sizes: tuple[int, ...]) -> int:
    """Count weights and biases of layers."""
    return sum(below * above + above for below, above in pairwise(sizes))


def _layers(flat: Tensor, sizes: tuple[int, ...]) -> list[tuple[Tensor, Tensor]]:
    """Give weights (n_members, below, above) and biases (n_members, 1, above) of flat weights."""
    if not flat.shape[1]:
        return []
    return list(_views(flat, sizes))


def _views(flat: Tensor, sizes: tuple[int, ...]) -> Iterator[tuple[Tensor, Tensor]]:
    """Cut flat weights into layers."""
    at = 0
    for below, above in pairwise(sizes):
        weights = flat[:, at : at + below * above].view(-1, below, above)
        at += below * above
        yield weights, flat[:, at : at + above].view(-1, 1, above)
        at += above
