"""The members of a concept space: two encoders and one readout each, and one training step.

In: tag sets and features as rows of numbers. Out: codes, the logits that are read from them, and
gradients. Everything has a leading axis of members, so that several are one product.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple, Self

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor

Layers = list[tuple[Tensor, Tensor]]


class Shape(NamedTuple):
    """Sizes of a member."""

    n_labels: int  # inputs of the document encoder
    n_outputs: int  # every label and, where there are unseen ones, whether a document holds any
    n_features: int  # inputs of the item encoder; 0 without one
    hidden: int  # rectified units of each encoder
    code: int  # dimensions of a code, each between -1 and 1


class Members:
    """Weights of members that are kept together.

    Parameters
    ----------
    shape : Shape
    items, documents, readout : float32 tensors, shape (n_members, n_weights)
        The weights of the two encoders and of the readout, each flat: one optimiser group each.
    """

    def __init__(self, shape: Shape, items: Tensor, documents: Tensor, readout: Tensor) -> None:
        self.shape = shape
        self.groups = (items, documents, readout)
        self.items, self.documents, self.readout = self.groups
        hidden, code = shape.hidden, shape.code
        self.item_layers = _layers(items, (shape.n_features, hidden, code))
        self.document_layers = _layers(documents, (shape.n_labels, hidden, code))
        ((self.labels, self.bias),) = _layers(readout, (code, shape.n_outputs))

    def __len__(self) -> int:
        return len(self.readout)

    @property
    def n_dimensions(self) -> int:
        """Dimensions of the members' codes side by side."""
        return len(self) * self.shape.code

    @classmethod
    def start(cls, shape: Shape, priors: NDArray[np.float64], seeds: list[int]) -> Self:
        """Make untrained members that give every output its prior (n_outputs,), roughly.

        Each seed draws one member's weights, whatever the others are.
        """
        hidden, code = shape.hidden, shape.code
        sizes = [
            (shape.n_features, hidden, code) if shape.n_features else (),
            (shape.n_labels, hidden, code),
            (code, shape.n_outputs),
        ]
        counts = [sum(below * above + above for below, above in pairwise(one)) for one in sizes]
        members = cls(shape, *(torch.zeros(len(seeds), count) for count in counts))
        readout = (members.labels, members.bias)
        for place, seed in enumerate(seeds):
            generator = torch.Generator().manual_seed(seed)
            for weights, _ in (*members.item_layers, *members.document_layers, readout):
                below, above = weights.shape[1:]
                drawn = torch.randn(below, above, generator=generator)
                weights[place] = drawn * (2 / (below + above)) ** 0.5
        members.bias += torch.from_numpy(np.log(priors) - np.log1p(-priors)).float()
        return members

    def select(self, some: slice) -> Members:
        """Give some of the members; they share their weights with these."""
        return Members(self.shape, *(group[some] for group in self.groups))

    def to(self, device: str) -> Members:
        """Give copies on a device."""
        return Members(self.shape, *(group.to(device, copy=True) for group in self.groups))

    # ------------------------------------------------------------------ inference

    def encode_items(self, features: Tensor) -> Tensor:
        """Give the codes (n_members, n, code) of standardised features (n, n_features)."""
        return self._encode(features, self.item_layers)

    def encode_documents(self, tags: Tensor) -> Tensor:
        """Give the codes (n_members, n, code) of tags (n, n_labels), 0, 1 or how probable."""
        return self._encode(tags, self.document_layers)

    def _encode(self, rows: Tensor, layers: Layers) -> Tensor:
        """Give the codes of one encoder, (n_members, n, code)."""
        (first, bias), (second, offset) = layers
        units = torch.relu(torch.baddbmm(bias, aligned(rows).expand(len(self), -1, -1), first))
        return _tanh(torch.baddbmm(offset, units, second))

    def encode_rows(self, tags: sp.csr_matrix) -> Tensor:
        """Give the codes (n_members, n, code) of sparse tags (n, n_labels), on the processor."""
        (first, bias), (second, offset) = self.document_layers
        rows = sp.csr_matrix(tags, dtype=np.float32)
        units = [
            torch.relu_(torch.from_numpy(np.asarray(rows @ weights.numpy())) + member_bias)
            for weights, member_bias in zip(first, bias, strict=True)
        ]
        return _tanh(torch.baddbmm(offset, torch.stack(units), second))

    def read(self, codes: Tensor, columns: slice = slice(None)) -> Tensor:
        """Give the logits (n_members, n, n_columns) of codes (n_members, n, code)."""
        return torch.baddbmm(self.bias[..., columns], codes, self.labels[..., columns])


@dataclass
class Batch:
    """The rows of one training step: documents, items by probable tags, items by features."""

    tags: Tensor  # (n_members, n_documents + n_probable, n_labels)
    features: Tensor | None  # (n_members, n_items, n_features); None: no items, documents alone
    targets: Tensor  # (n_members, n_documents + n_probable + n_items, n_columns)
    weights: Tensor  # the same; already divided by the numbers of rows and outputs
    columns: Tensor | None  # the outputs that are read, (n_columns,); None: all
    dropout: list[Tensor]  # factors on features, hidden units of items, of documents, codes


def step(members: Members, batch: Batch, gradients: Members) -> Tensor:
    """Overwrite gradients with those of the weighted cross-entropy of a batch; give its logits.

    Written out by hand: autograd takes about 1.6 times as long on the processor, where most of a
    step of this size is not matrix products.
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


def _back(
    back: Tensor, inputs: Tensor, units: Tensor, dropout: Tensor, second: Tensor, gradients: Layers
) -> None:
    """Go back through one encoder: from gradients of what its tanh takes to those of weights."""
    (on_first, on_first_bias), (on_second, on_second_bias) = gradients
    torch.bmm((units * dropout).mT, back, out=on_second)
    torch.sum(back, dim=1, keepdim=True, out=on_second_bias)
    below = torch.ops.aten.threshold_backward((back @ second.mT).mul_(dropout), units, 0)
    torch.bmm(inputs.mT, below, out=on_first)
    torch.sum(below, dim=1, keepdim=True, out=on_first_bias)


class MemberOptimizer:
    """AdamW for members whose gradients `step` takes, with a rate and a decay for each group.

    Parameters
    ----------
    members, gradients : Members
    rates, decays : sequences of float, length 3
        Of item encoder, document encoder and readout.
    """

    def __init__(
        self, members: Members, gradients: Members, rates: Sequence[float], decays: Sequence[float]
    ) -> None:
        groups = zip(members.groups, gradients.groups, rates, decays, strict=True)
        # Members without an item encoder have a group without weights.
        self.groups = [_Group(*group) for group in groups if group[0].numel()]

    def step(self, factor: float | Tensor) -> None:
        """Take a step, with all rates times a factor; a CUDA graph has it on its device."""
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
        """Give the moments of gradients by name, a row for each member."""
        state: dict[str, Tensor] = {}
        for place, group in enumerate(self.groups):
            state |= {f"mean.{place}": group.mean, f"square.{place}": group.square}
        return state

    def set_state(self, state: Mapping[str, Tensor], n_steps: int) -> None:
        """Take back the moments as they were after so many steps; see `get_state`."""
        for name, moment in self.get_state().items():
            moment.copy_(state[name])
        for group in self.groups:
            group.n_steps.fill_(n_steps)


class _Group:
    """Weights that have one rate and one decay, and the moments that AdamW keeps of them."""

    def __init__(self, weights: Tensor, gradient: Tensor, rate: float, decay: float) -> None:
        self.weights, self.gradient, self.rate, self.decay = weights, gradient, rate, decay
        self.mean, self.square = torch.zeros_like(weights), torch.zeros_like(weights)
        self.n_steps = torch.zeros((), device=weights.device)


def aligned(values: Tensor) -> Tensor:
    """Give a copy in torch's own memory: products of numpy's may differ in their last bits."""
    return values.clone(memory_format=torch.contiguous_format)


def _tanh(values: Tensor) -> Tensor:
    """Give the hyperbolic tangent, in place: torch's own takes five times as long on processors."""
    return values.mul_(2).sigmoid_().mul_(2).sub_(1)


def _layers(flat: Tensor, sizes: tuple[int, ...]) -> Layers:
    """Cut flat weights into layers: (n_members, below, above) and bias (n_members, 1, above)."""
    layers: Layers = []
    start = 0
    for below, above in pairwise(sizes) if flat.shape[1] else ():
        stop = start + below * above
        bias = flat[:, stop : stop + above].view(-1, 1, above)
        layers.append((flat[:, start:stop].view(-1, below, above), bias))
        start = stop + above
    return layers
