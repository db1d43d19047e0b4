"""The sub-network of the Siamese architecture: its forward pass, and its gradient by hand.

In: label ids and context histograms. Out: codes, which are the concepts. Both sides of a pair go
through the same network, so that their weights are tied.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import embedding_bag, linear

from polyseme.published.descriptors import CentredRows

# Concepts that are embedded at a time.
_AT_A_TIME = 16_384


def _find_onednn() -> Callable[..., Tensor] | None:
    """Find oneDNN's product with bias and activation in one; undocumented, so it is tried first."""
    values = torch.tensor([[0.5, -1.0], [2.0, 0.25]])
    plain = linear(values, values)
    biased = linear(values, values, values[0])
    expected_by_name = {
        "none": biased,
        "tanh": biased.tanh(),
        "sigmoid": biased.sigmoid(),
    }
    try:
        product: Callable[..., Tensor] = torch.ops.mkldnn._linear_pointwise
        if not torch.allclose(product(values, values, None, "none", [], ""), plain):
            return None
        for name, expected in expected_by_name.items():
            activated = product(values, values, values[0], name, [], "")
            if not torch.allclose(activated, expected):
                return None
    except (AttributeError, RuntimeError, TypeError):
        return None
    return product


_ONEDNN = _find_onednn()


def uses_onednn(values: Tensor) -> bool:
    """Return whether oneDNN multiplies these values, about a tenth faster than MKL."""
    if _ONEDNN is None:
        return False
    is_on_processor = values.device.type == "cpu"
    is_single = values.dtype == torch.float32
    return is_on_processor and is_single


def activated_product(
    values: Tensor, weight: Tensor, bias: Tensor | None = None, activation: str = "none"
) -> Tensor:
    """Multiply (n, n_in) by (n_out, n_in), then take "none", "sigmoid" or "tanh" of the product."""
    if uses_onednn(values):
        assert _ONEDNN is not None
        return _ONEDNN(values, weight, bias, activation, [], "")
    product = linear(values, weight, bias)
    if activation == "sigmoid":
        return product.sigmoid_()
    if activation == "tanh":
        return _tanh_in_place(product)
    return product


def _tanh_in_place(values: Tensor) -> Tensor:
    """Take tanh by the sigmoid, which is several times faster on a processor."""
    return values.mul_(2.0).sigmoid_().mul_(2.0).sub_(1.0)


class Layer(NamedTuple):
    """Weights of a layer, or their gradient: (n_out, n_in) and (n_out,)."""

    weight: Tensor
    bias: Tensor


class Activations(NamedTuple):
    """What a forward pass of n examples leaves for the backward pass."""

    rows: Tensor | CentredRows  # (n_rows, n_label_features): descriptors that were multiplied
    places: Tensor  # (n,): the row of each example
    order: Tensor | None  # (n,): the examples row by row; None on a GPU
    starts: Tensor | None  # (n_rows,): where each row's examples begin in this order
    contexts: Tensor  # (n, n_topics)
    layers: list[Tensor]  # (n, n_units) each; the last are the codes


class ConceptNetwork:
    """Sub-network of the Siamese architecture (in the paper: Fig. 4, parameters Θ).

    tanh layers from a label's descriptor, (n_labels, n_label_features), and its context's
    histogram, (n_topics,), to a coding layer, whose activations are the concept, and from there to
    one pre-activation per label. Sparse descriptors stay sparse on a processor. A generator draws
    Glorot-uniform weights; without one they are zero. All weights are one vector, `weights`, so
    that an update of the optimiser is one; `layers` (hidden and coding) and `output` are views of
    it.
    """

    def __init__(
        self,
        descriptors: NDArray[np.floating] | CentredRows,
        n_topics: int,
        hidden_sizes: Sequence[int],
        n_components: int,
        generator: torch.Generator | None = None,
        dtype: torch.dtype = torch.float32,
        device: str = "cpu",
    ) -> None:
        self.source = descriptors
        self.n_labels, self.n_label_features = descriptors.shape
        n_inputs = self.n_label_features + n_topics
        self.sizes = [n_inputs, *hidden_sizes, n_components, self.n_labels]
        n_weights = count_weights(self.sizes)
        self.weights = torch.zeros(n_weights, dtype=dtype, device=device)
        *self.layers, self.output = self.views(self.weights)

        self.descriptors: Tensor | CentredRows
        if not isinstance(descriptors, CentredRows):
            self.descriptors = torch.as_tensor(descriptors).to(self.weights)
        elif device == "cpu":
            self.descriptors = descriptors
        else:
            dense = descriptors.toarray()
            self.descriptors = torch.as_tensor(dense).to(self.weights)

        if generator is not None:
            for layer in (*self.layers, self.output):
                initial = torch.empty(layer.weight.shape, dtype=dtype)
                torch.nn.init.xavier_uniform_(initial, generator=generator)
                layer.weight.copy_(initial)

    def views(self, vector: Tensor) -> list[Layer]:
        """Return views of a vector that is laid out as `weights`, layer by layer."""
        layers: list[Layer] = []
        start = 0
        for n_in, n_out in pairwise(self.sizes):
            bias_start = start + n_in * n_out
            stop = bias_start + n_out
            weight = vector[start:bias_start]
            bias = vector[bias_start:stop]
            # The first layer has one row per input: sparse descriptors then gather rows.
            weight = weight.view(n_out, n_in) if layers else weight.view(n_in, n_out).t()
            layers.append(Layer(weight, bias))
            start = stop
        return layers

    def to(self, device: str) -> ConceptNetwork:
        """Return the network itself where it is on the device already, else a copy there."""
        if self.weights.device == torch.device(device):
            return self
        n_inputs, *hidden_sizes, n_components, _ = self.sizes
        n_topics = n_inputs - self.n_label_features
        copied = ConceptNetwork(self.source, n_topics, hidden_sizes, n_components, device=device)
        copied.weights.copy_(self.weights)
        return copied

    def descriptor_rows(self, label_ids: Tensor) -> Tensor:
        """Return the descriptors of labels, dense, (n,) to (n, n_label_features)."""
        if isinstance(self.descriptors, CentredRows):
            dense = self.descriptors.take(label_ids.numpy()).toarray()
            return torch.from_numpy(dense).to(self.weights)
        return self.descriptors[label_ids]

    def label_inputs(self) -> Tensor:
        """Return each label's part of the first layer in any context, (n_labels, n_units)."""
        weight = self.layers[0].weight[:, : self.n_label_features]
        if isinstance(self.descriptors, CentredRows):
            return self.descriptors.times(weight.t())
        return linear(self.descriptors, weight)

    def encode(self, label_ids: Tensor, contexts: Tensor, inputs: Tensor | None = None) -> Tensor:
        """Embed labels (n,) in contexts (n, n_topics): (n, n_components), inside (-1, 1).

        `inputs`, what `label_inputs` gives, saves time where many batches share it.
        """
        first = self.layers[0]
        n_features = self.n_label_features
        label_weight = first.weight[:, :n_features]
        topic_weight = first.weight[:, n_features:]
        if inputs is None:
            # A batch holds few distinct labels: multiply each descriptor once, then gather.
            distinct, places = torch.unique(label_ids, return_inverse=True)
            distinct_inputs = linear(self.descriptor_rows(distinct), label_weight)
            from_label = distinct_inputs[places]
        else:
            from_label = inputs[label_ids]
        from_context = linear(contexts, topic_weight, first.bias)
        hidden = torch.tanh(from_label + from_context)
        for layer in self.layers[1:]:
            hidden = torch.tanh(linear(hidden, layer.weight, layer.bias))
        return hidden

    def forward(self, label_ids: Tensor, contexts: Tensor) -> Activations:
        """Encode as `encode` does, by the fastest products, and keep every layer."""
        first = self.layers[0]
        n_features = self.n_label_features
        label_weight = first.weight[:, :n_features].t()
        topic_weight = first.weight[:, n_features:].t()
        rows, places, order, starts = self._look_up(label_ids)
        if isinstance(rows, CentredRows):
            inputs = rows.times(label_weight).add_(first.bias)
        else:
            # Not by oneDNN, which prepares itself for each new number of rows.
            inputs = torch.addmm(first.bias, rows, label_weight)
        hidden = inputs.index_select(0, places)
        hidden.addmm_(contexts, topic_weight)
        layers = [_tanh_in_place(hidden)]
        for layer in self.layers[1:]:
            hidden = activated_product(layers[-1], layer.weight, layer.bias, "tanh")
            layers.append(hidden)
        return Activations(rows, places, order, starts, contexts, layers)

    def backward(self, slope: Tensor, passed: Activations, gradient: Sequence[Layer]) -> None:
        """Fill the gradient of all layers from that of the codes, (n, n_components)."""
        for number in range(len(passed.layers) - 1, 0, -1):
            layer_gradient = gradient[number]
            _tanh_backward(slope, passed.layers[number])
            torch.mm(slope.t(), passed.layers[number - 1], out=layer_gradient.weight)
            torch.sum(slope, dim=0, out=layer_gradient.bias)
            slope = activated_product(slope, self.layers[number].weight.t())

        _tanh_backward(slope, passed.layers[0])
        torch.sum(slope, dim=0, out=gradient[0].bias)
        by_input = gradient[0].weight.t()
        label_gradient = by_input[: self.n_label_features]
        topic_gradient = by_input[self.n_label_features :]
        torch.mm(passed.contexts.t(), slope, out=topic_gradient)

        # Sum the slopes of examples with the same label: one row per descriptor.
        if passed.order is not None:
            summed = embedding_bag(passed.order, slope, passed.starts, mode="sum")
        else:
            summed = slope.new_zeros((passed.rows.shape[0], slope.shape[1]))
            summed.index_add_(0, passed.places, slope)
        if isinstance(passed.rows, CentredRows):
            passed.rows.transposed_times(summed, label_gradient)
        else:
            torch.mm(passed.rows.t(), summed, out=label_gradient)

    def _look_up(
        self, label_ids: Tensor
    ) -> tuple[Tensor | CentredRows, Tensor, Tensor | None, Tensor | None]:
        """Look up the descriptors of a batch: rows, places, order and starts of `Activations`."""
        if label_ids.device.type != "cpu":
            # Sizes must not depend on sampled labels, so that a step can be captured as a graph.
            assert isinstance(self.descriptors, Tensor)
            n = len(label_ids)
            if self.n_labels <= 2 * n:
                return self.descriptors, label_ids, None, None
            rows = self.descriptors.index_select(0, label_ids)
            places = torch.arange(n, device=label_ids.device)
            return rows, places, None, None

        # Each descriptor is multiplied once for both directions.
        sorted_ids, order = label_ids.sort(stable=True)
        distinct, inverse, counts = torch.unique_consecutive(
            sorted_ids, return_inverse=True, return_counts=True
        )
        places = torch.empty_like(order)
        places.scatter_(0, order, inverse)
        starts = counts.cumsum(0) - counts
        if isinstance(self.descriptors, CentredRows):
            sparse_rows = self.descriptors.take(distinct.numpy())
            return sparse_rows, places, order, starts
        return self.descriptors.index_select(0, distinct), places, order, starts


def count_weights(sizes: Sequence[int]) -> int:
    """Count the weights of layers with given numbers of inputs, units and outputs."""
    return sum((n_in + 1) * n_out for n_in, n_out in pairwise(sizes))


def _tanh_backward(slope: Tensor, values: Tensor) -> None:
    """Turn the gradient of tanh's values into that of its input, in place."""
    torch.ops.aten.tanh_backward.grad_input(slope, values, grad_input=slope)


@torch.no_grad()
def encode_documents(
    network: ConceptNetwork, matrix: sp.csr_matrix, contexts: NDArray[np.float32]
) -> NDArray[np.float32]:
    """Embed every label of every document, (n_documents, n_labels) to (nnz, n_components)."""
    n_documents = matrix.shape[0]
    lengths = np.diff(matrix.indptr)
    rows = np.repeat(np.arange(n_documents), lengths)
    n_concepts = len(rows)
    n_components = network.sizes[-2]
    device = network.weights.device
    columns = matrix.indices.astype(np.int64)
    labels = torch.from_numpy(columns).to(device)
    points = np.empty((n_concepts, n_components), dtype=np.float32)
    # Few concepts hold few labels, whose descriptors alone are multiplied then.
    inputs = None
    if n_concepts > network.n_labels:
        inputs = network.label_inputs()
    for start in range(0, n_concepts, _AT_A_TIME):
        block = slice(start, start + _AT_A_TIME)
        block_contexts = contexts[rows[block]]
        histograms = torch.from_numpy(block_contexts).to(device)
        codes = network.encode(labels[block], histograms, inputs)
        points[block] = codes.cpu().numpy()
    return points


def row_means(matrix: sp.csr_matrix, points: NDArray[np.float32]) -> NDArray[np.float32]:
    """Average the points of each document, (nnz, d) to (n_documents, d); NaN without labels."""
    n_documents = matrix.shape[0]
    n_components = points.shape[1]
    means = np.full((n_documents, n_components), np.nan, dtype=np.float32)
    lengths = np.diff(matrix.indptr)
    filled = np.flatnonzero(lengths)
    if len(filled):
        starts = matrix.indptr[filled]
        sums = np.add.reduceat(points, starts, axis=0)
        filled_lengths = lengths[filled]
        means[filled] = sums / filled_lengths[:, None]
    return means
