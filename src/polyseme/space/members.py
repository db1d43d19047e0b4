"""The members of a concept space: two encoders and one readout each.

In: tag sets and features as rows of numbers. Out: codes, and the logits that are read from them.
Everything has a leading axis of members, so that several are one product. Members are used as
arrays of numpy, which are there at once, and trained as tensors of torch, which takes a second to
load: both pass through the same methods, and nothing is imported here for the second.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

Floats = NDArray[np.float32]
IntArray = NDArray[np.int64]
Layers = list[tuple[Any, Any]]


class Shape(NamedTuple):
    """Sizes of a member."""

    n_labels: int  # inputs of the document encoder
    n_outputs: int  # every label and, where there are unseen ones, whether a document holds any
    n_features: int  # inputs of the item encoder; 0 without one
    hidden: int  # rectified units of each encoder
    code: int  # dimensions of a code, each between -1 and 1

    @property
    def n_weights(self) -> tuple[int, int, int]:
        """Weights of the item encoder, of the document encoder and of the readout."""
        above = (self.hidden + 1) * self.code
        item_weights = 0
        if self.n_features:
            item_weights = (self.n_features + 1) * self.hidden + above
        document_weights = (self.n_labels + 1) * self.hidden + above
        readout_weights = (self.code + 1) * self.n_outputs
        return item_weights, document_weights, readout_weights


class Members:
    """Weights of members that are kept together.

    Parameters
    ----------
    shape : Shape
    items, documents, readout : float32 arrays or tensors, shape (n_members, n_weights)
        The weights of the two encoders and of the readout, each flat: one optimiser group each.
        Rows that are given to methods, and what these give, are of the same kind.
    """

    def __init__(self, shape: Shape, items: Any, documents: Any, readout: Any) -> None:
        self.shape = shape
        self.groups = (items, documents, readout)
        self.items, self.documents, self.readout = self.groups
        hidden, code = shape.hidden, shape.code
        self.item_layers = _layers(items, (shape.n_features, hidden, code))
        self.document_layers = _layers(documents, (shape.n_labels, hidden, code))
        ((self.labels, self.bias),) = _layers(readout, (code, shape.n_outputs))

    def __len__(self) -> int:
        return len(self.readout)

    def __repr__(self) -> str:
        """Return its size, in a line."""
        return f"Members({len(self)} of {self.shape.code} dimensions)"

    @property
    def n_dimensions(self) -> int:
        """Dimensions of the members' codes side by side."""
        return len(self) * self.shape.code

    def select(self, places: slice) -> Members:
        """Return some of the members; they share their weights with these."""
        groups = [group[places] for group in self.groups]
        return Members(self.shape, *groups)

    def to(self, device: str) -> Members:
        """Return copies on a device; of tensors only."""
        groups = [group.to(device, copy=True) for group in self.groups]
        return Members(self.shape, *groups)

    def arrays(self) -> Members:
        """Return copies as arrays, ready to be used; of tensors only."""
        groups = [group.cpu().numpy().copy() for group in self.groups]
        return Members(self.shape, *groups)

    def encode_items(self, features: Any) -> Any:
        """Return the codes (n_members, n, code) of standardised features (n, n_features)."""
        # code = tanh(W₂ max(W₁ x + b₁, 0) + b₂)
        first, second = self.item_layers
        rows = self._for_all(features)
        units = rectified(affine(rows, *first))
        return squashed(affine(units, *second))

    def encode_documents(self, tags: Any) -> Any:
        """Return the codes (n_members, n, code) of tags (n, n_labels), 0, 1 or how probable.

        Where all but the first labels are 0, these alone will do.
        """
        (weights, bias), second = self.document_layers
        n_given = tags.shape[1]
        rows = self._for_all(tags)
        units = rectified(affine(rows, weights[:, :n_given], bias))
        return squashed(affine(units, *second))

    def encode_rows(self, tags: sp.csr_matrix) -> Floats:
        """Return the codes (n_members, n, code) of sparse tags (n, n_labels); of arrays only."""
        (first, bias), layer = self.document_layers
        rows = sp.csr_matrix(tags, dtype=np.float32)
        units = np.stack([np.asarray(rows @ weights) for weights in first])
        units += bias
        units = rectified(units)
        codes: Floats = squashed(affine(units, *layer))
        return codes

    def read(self, codes: Any, columns: slice = slice(None)) -> Any:
        """Return the logits (n_members, n, n_columns) of codes (n_members, n, code)."""
        return affine(codes, self.labels[..., columns], self.bias[..., columns])

    def rows(self, array: Floats) -> Any:
        """Return an array as these members take it."""
        if isinstance(self.readout, np.ndarray):
            return array
        return self.readout.new_tensor(array)

    def _for_all(self, rows: Any) -> Any:
        """Return rows (n, below) as every member takes them."""
        if isinstance(rows, np.ndarray):
            return rows
        # A copy in torch's own memory: products of numpy's may differ in their last bits.
        return rows.contiguous().clone().expand(len(self), -1, -1)


class StartMembers(NamedTuple):
    """The members that a training starts from, and where their labels are now."""

    members: Members  # of the former space, as arrays
    places: IntArray  # of each label among the former ones; -1 for new ones, (n_labels,)
    any_unseen: bool  # whether the output for any unseen label is theirs, too
    new_weights: Floats  # how new labels are read, (n_members, code, n_new)
    new_biases: Floats  # (n_members, n_new)

    def __repr__(self) -> str:
        """Return its size, in a line."""
        return f"StartMembers({len(self.members)}, {int((self.places >= 0).sum())} labels)"

    def put_into(self, members: Members, numbers: IntArray) -> None:
        """Overwrite untrained members, those of some numbers, with all that is known already.

        Where documents hold a new label nothing is made of it at first.

        Parameters
        ----------
        members : Members
            Tensors, on the processor.
        numbers : int64 array, shape (n_members,)
        """
        former = self.members
        old_columns = np.flatnonzero(self.places >= 0)
        new_columns = np.flatnonzero(self.places < 0)
        former_columns = self.places[old_columns]

        # All layers but the first of the document encoder have the same shape as before.
        layers = [*members.item_layers, members.document_layers[1]]
        former_layers = [*former.item_layers, former.document_layers[1]]
        for layer, former_layer in zip(layers, former_layers, strict=True):
            for tensor, array in zip(layer, former_layer, strict=True):
                tensor[:] = tensor.new_tensor(array[numbers])

        # That layer has a row for each label, which is 0 for new ones.
        weights, bias = members.document_layers[0]
        former_weights, former_bias = former.document_layers[0]
        old_rows = former_weights[numbers][:, former_columns]
        weights.zero_()
        weights[:, old_columns] = weights.new_tensor(old_rows)
        bias[:] = bias.new_tensor(former_bias[numbers])

        # The readout.
        members.labels[..., new_columns] = members.labels.new_tensor(self.new_weights[numbers])
        members.bias[:, 0, new_columns] = members.bias.new_tensor(self.new_biases[numbers])
        if self.any_unseen:
            old_columns = np.append(old_columns, -1)
            former_columns = np.append(former_columns, -1)
        readouts = [(members.labels, former.labels), (members.bias, former.bias)]
        for tensor, array in readouts:
            former_values = array[numbers][..., former_columns]
            tensor[..., old_columns] = tensor.new_tensor(former_values)


def affine(rows: Any, weights: Any, bias: Any) -> Any:
    """Return products (n_members, n, above) of rows and weights, with the bias added.

    In arrays the members' products lie side by side, row by row, as codes do.
    """
    if not isinstance(rows, np.ndarray):
        return bias.baddbmm(rows, weights)
    n_members, _, above = weights.shape
    side_by_side = np.empty((rows.shape[-2], n_members, above), dtype=weights.dtype)
    products = np.matmul(rows, weights, out=side_by_side.transpose(1, 0, 2))
    return np.add(products, bias, out=products)


def rectified(values: Any) -> Any:
    """Return values, those below 0 as 0, in place."""
    return np.maximum(values, 0, out=values) if isinstance(values, np.ndarray) else values.relu_()


def squashed(values: Any) -> Any:
    """Return the hyperbolic tangent, in place."""
    if isinstance(values, np.ndarray):
        return np.tanh(values, out=values)
    return values.mul_(2).sigmoid_().mul_(2).sub_(1)  # torch's own takes five times as long


def mean_of(values: Any) -> Floats:
    """Return the mean over members as an array."""
    mean = values.mean(axis=0)
    return mean if isinstance(mean, np.ndarray) else np.asarray(mean.cpu())


def likely(logits: Any) -> Any:
    """Return the probabilities of logits."""
    if not isinstance(logits, np.ndarray):
        return logits.sigmoid()
    from scipy.special import expit

    return expit(logits)


def _layers(flat: Any, sizes: tuple[int, ...]) -> Layers:
    """Cut flat weights into layers: (n_members, below, above) and bias (n_members, 1, above)."""
    layers: Layers = []
    start = 0
    for below, above in pairwise(sizes) if flat.shape[1] else ():
        stop = start + below * above
        bias = flat[:, stop : stop + above].reshape(-1, 1, above)
        layers.append((flat[:, start:stop].reshape(-1, below, above), bias))
        start = stop + above
    return layers
