"""The sub-network of the Siamese architecture: its forward pass, and its gradient by hand.

In: label ids and context histograms. Out: codes, which are the concepts. Both sides of a pair go
through the same network, so that their weights are tied.

Terms: a *label id* is a column of the document-label matrix and a row of the descriptors, t(τ) in
the paper. A *context* is a document's topic histogram, lc(δ). The *slope* of values is the loss's
gradient in them.
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

# Concepts that are embedded at a time; results do not depend on it.
_CONCEPTS_TOGETHER = 16_384


def _find_onednn() -> Callable[..., Tensor] | None:
    """Find oneDNN's product with bias and activation in one.

    torch does not document it, so it is compared with the plain product first; None where it is
    missing or differs.
    """
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
        without_bias = product(values, values, None, "none", [], "")
        if not torch.allclose(without_bias, plain):
            return None
        for name, expected in expected_by_name.items():
            activated = product(values, values, values[0], name, [], "")
            if not torch.allclose(activated, expected):
                return None
    except (AttributeError, RuntimeError, TypeError):
        return None
    return product


_ONEDNN = _find_onednn()  # None where this torch has no such product


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
    """Multiply values (n, n_in) by weights (n_out, n_in), add the bias (n_out,), and activate.

    `activation` is "none", "sigmoid" or "tanh". The result, (n, n_out), is new memory.
    """
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
    """Weights of a layer, or their gradient; views of one vector, see `ConceptNetwork.views`."""

    weight: Tensor  # (n_out, n_in)
    bias: Tensor  # (n_out,)


class DescriptorRows(NamedTuple):
    """The descriptors of a batch of n examples, each distinct one once where that saves time."""

    rows: Tensor | CentredRows  # (n_rows, n_label_features)
    places: Tensor  # (n,) int64: the row of each example
    order: Tensor | None  # (n,) int64: the examples sorted by row; None on a GPU
    starts: Tensor | None  # (n_rows,) int64: where each row's examples begin in this order


class Activations(NamedTuple):
    """What a forward pass of n examples leaves for the backward pass."""

    descriptors: DescriptorRows
    contexts: Tensor  # (n, n_topics)
    layers: list[Tensor]  # (n, n_units) each, after tanh; the last are the codes


class ConceptNetwork:
    """Sub-network of the Siamese architecture (in the paper: Fig. 4, parameters Θ).

    tanh layers from a label's descriptor and its context's histogram to a coding layer, whose
    activations are the concept, and from there to one pre-activation per label.

    Parameters
    ----------
    descriptors : array or CentredRows, shape (n_labels, n_label_features)
        Sparse ones stay sparse on a processor.
    n_topics : int
        The length of a context's histogram.
    hidden_sizes : sequence of int
        Units of the layers before the coding layer, from the input on.
    n_components : int
        Units of the coding layer (in the paper: d).
    generator : torch.Generator, optional
        Draws Glorot-uniform weights, biases are zero; without one all weights are zero.

    Attributes
    ----------
    sizes : list of int
        Inputs, hidden units, coding units and labels: one number more than there are layers.
    weights : tensor, one-dimensional
        All weights, so that an update of the optimiser is one. Saved models hold this vector, so
        the order in `views` is a format on disk.
    layers : list of Layer
        Hidden layers and the coding layer, views of `weights`.
    output : Layer
        The layer that predicts labels, a view of `weights`.
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
        """Return views of a vector that is laid out as `weights`: hidden, coding and output layer.

        Each layer's weights come before its biases.
        """
        layers: list[Layer] = []
        start = 0
        for n_in, n_out in pairwise(self.sizes):
            bias_start = start + n_in * n_out
            stop = bias_start + n_out
            weight = vector[start:bias_start]
            bias = vector[bias_start:stop]
            if layers:
                weight = weight.view(n_out, n_in)
            else:
                # The first layer has one row per input: sparse descriptors then gather rows.
                weight = weight.view(n_in, n_out).t()
            layer = Layer(weight, bias)
            layers.append(layer)
            start = stop
        return layers

    def to(self, device: str) -> ConceptNetwork:
        """Return the network itself where it is on the device already, else a copy there.

        The copy is of single precision.
        """
        if self.weights.device == torch.device(device):
            return self
        n_inputs, *hidden_sizes, n_components, _ = self.sizes
        n_topics = n_inputs - self.n_label_features
        copied = ConceptNetwork(
            self.source,
            n_topics,
            hidden_sizes,
            n_components,
            device=device,
        )
        copied.weights.copy_(self.weights)
        return copied

    def descriptor_rows(self, label_ids: Tensor) -> Tensor:
        """Return the descriptors of labels, dense, (n,) to (n, n_label_features)."""
        descriptors = self.descriptors
        if isinstance(descriptors, CentredRows):
            row_numbers = label_ids.numpy()
            rows = descriptors.take(row_numbers)
            dense = torch.from_numpy(rows.toarray())
            return dense.to(self.weights)
        return descriptors[label_ids]

    def label_inputs(self) -> Tensor:
        """Return each label's part of the first layer's pre-activations, (n_labels, n_units).

        It is the same in every context.
        """
        descriptors = self.descriptors
        n_features = self.n_label_features
        first_layer = self.layers[0]
        label_weight = first_layer.weight[:, :n_features]
        if isinstance(descriptors, CentredRows):
            transposed = label_weight.t()
            return descriptors.times(transposed)
        return linear(descriptors, label_weight)

    def encode(
        self, label_ids: Tensor, contexts: Tensor, label_inputs: Tensor | None = None
    ) -> Tensor:
        """Embed labels (n,) in contexts (n, n_topics): codes (n, n_components), inside (-1, 1).

        `label_inputs`, what the method of this name returns, saves time where many batches share
        it.
        """
        first_layer, *further_layers = self.layers
        n_features = self.n_label_features
        label_weight = first_layer.weight[:, :n_features]
        topic_weight = first_layer.weight[:, n_features:]
        if label_inputs is None:
            # A batch holds few distinct labels: multiply each descriptor once, then gather.
            distinct, places = torch.unique(label_ids, return_inverse=True)
            distinct_rows = self.descriptor_rows(distinct)
            distinct_inputs = linear(distinct_rows, label_weight)
            from_label = distinct_inputs[places]
        else:
            from_label = label_inputs[label_ids]
        from_context = linear(contexts, topic_weight, first_layer.bias)
        pre_activations = from_label + from_context
        hidden = torch.tanh(pre_activations)
        for layer in further_layers:
            pre_activations = linear(hidden, layer.weight, layer.bias)
            hidden = torch.tanh(pre_activations)
        return hidden

    def forward(self, label_ids: Tensor, contexts: Tensor) -> Activations:
        """Encode as `encode` does, by the fastest products, and keep every layer for `backward`."""
        first_layer, *further_layers = self.layers
        by_input = first_layer.weight.t()
        label_weight = by_input[: self.n_label_features]
        topic_weight = by_input[self.n_label_features :]
        descriptors = self._look_up(label_ids)
        rows = descriptors.rows
        if isinstance(rows, CentredRows):
            inputs = rows.times(label_weight)
            inputs.add_(first_layer.bias)
        else:
            # Not by oneDNN, which prepares itself for each new number of rows.
            inputs = torch.addmm(first_layer.bias, rows, label_weight)
        hidden = inputs.index_select(0, descriptors.places)
        hidden.addmm_(contexts, topic_weight)
        hidden = _tanh_in_place(hidden)
        layers = [hidden]
        for layer in further_layers:
            hidden = activated_product(hidden, layer.weight, layer.bias, "tanh")
            layers.append(hidden)
        return Activations(descriptors, contexts, layers)

    def backward(self, slope: Tensor, activations: Activations, gradient: Sequence[Layer]) -> None:
        """Fill the gradient of hidden and coding layers from the slope of the codes.

        The slope, (n, n_components), is overwritten. `gradient` has the layout of `views`; its last
        layer, the output, stays as `prediction_loss` left it.
        """
        outputs = activations.layers
        for number in range(len(outputs) - 1, 0, -1):
            layer_inputs = outputs[number - 1]
            layer_gradient = gradient[number]
            _tanh_backward(slope, outputs[number])
            torch.mm(slope.t(), layer_inputs, out=layer_gradient.weight)
            torch.sum(slope, dim=0, out=layer_gradient.bias)
            weight = self.layers[number].weight
            slope = activated_product(slope, weight.t())

        first_gradient = gradient[0]
        _tanh_backward(slope, outputs[0])
        torch.sum(slope, dim=0, out=first_gradient.bias)
        by_input = first_gradient.weight.t()
        label_gradient = by_input[: self.n_label_features]
        topic_gradient = by_input[self.n_label_features :]
        contexts = activations.contexts
        torch.mm(contexts.t(), slope, out=topic_gradient)

        # Sum the slopes of examples with the same label: one row per descriptor.
        rows, places, order, starts = activations.descriptors
        if order is not None:
            row_slopes = embedding_bag(order, slope, starts, mode="sum")
        else:
            n_rows = rows.shape[0]
            n_units = slope.shape[1]
            row_slopes = slope.new_zeros((n_rows, n_units))
            row_slopes.index_add_(0, places, slope)
        if isinstance(rows, CentredRows):
            rows.transposed_times(row_slopes, label_gradient)
        else:
            torch.mm(rows.t(), row_slopes, out=label_gradient)

    def _look_up(self, label_ids: Tensor) -> DescriptorRows:
        """Look up the descriptors of a batch, (n,) label ids."""
        descriptors = self.descriptors
        if label_ids.device.type != "cpu":
            # Sizes must not depend on sampled labels, so that a step can be captured as a graph.
            assert isinstance(descriptors, Tensor)
            n = len(label_ids)
            # Where labels are few beside examples, all descriptors are multiplied.
            if self.n_labels <= 2 * n:
                return DescriptorRows(descriptors, label_ids, None, None)
            rows = descriptors.index_select(0, label_ids)
            places = torch.arange(n, device=label_ids.device)
            return DescriptorRows(rows, places, None, None)

        # Each descriptor is multiplied once for both directions.
        sorted_ids, order = label_ids.sort(stable=True)
        distinct, inverse, counts = torch.unique_consecutive(
            sorted_ids,
            return_inverse=True,
            return_counts=True,
        )
        places = torch.empty_like(order)
        places.scatter_(0, order, inverse)
        ends = counts.cumsum(0)
        starts = ends - counts
        if isinstance(descriptors, CentredRows):
            sparse_rows = descriptors.take(distinct.numpy())
            return DescriptorRows(sparse_rows, places, order, starts)
        rows = descriptors.index_select(0, distinct)
        return DescriptorRows(rows, places, order, starts)


def count_weights(sizes: Sequence[int]) -> int:
    """Count the weights and biases of layers, from the `sizes` of a `ConceptNetwork`."""
    n_weights = 0
    for n_in, n_out in pairwise(sizes):
        n_weights += (n_in + 1) * n_out
    return n_weights


def _tanh_backward(slope: Tensor, outputs: Tensor) -> None:
    """Turn the slope of tanh's outputs into that of its inputs, in place."""
    torch.ops.aten.tanh_backward.grad_input(slope, outputs, grad_input=slope)


@torch.no_grad()
def encode_documents(
    network: ConceptNetwork, matrix: sp.csr_matrix, contexts: NDArray[np.float32]
) -> NDArray[np.float32]:
    """Embed every label of every document, CE(τ, δ) in the paper.

    Parameters
    ----------
    network : ConceptNetwork
    matrix : boolean csr_matrix, shape (n_documents, n_labels)
    contexts : float32 array, shape (n_documents, n_topics)

    Returns
    -------
    float32 array, shape (matrix.nnz, n_components)
        In the order of the matrix's entries: document by document, `matrix.indices` has the labels.
    """
    n_documents = matrix.shape[0]
    lengths = np.diff(matrix.indptr)
    document_ids = np.repeat(np.arange(n_documents), lengths)
    n_concepts = len(document_ids)
    n_components = network.sizes[-2]
    device = network.weights.device
    columns = matrix.indices.astype(np.int64)
    label_ids = torch.from_numpy(columns).to(device)
    points = np.empty((n_concepts, n_components), dtype=np.float32)
    # Few concepts hold few labels, whose descriptors alone are multiplied then.
    label_inputs = None
    if n_concepts > network.n_labels:
        label_inputs = network.label_inputs()
    for start in range(0, n_concepts, _CONCEPTS_TOGETHER):
        block = slice(start, start + _CONCEPTS_TOGETHER)
        block_documents = document_ids[block]
        block_contexts = torch.from_numpy(contexts[block_documents])
        codes = network.encode(label_ids[block], block_contexts.to(device), label_inputs)
        points[block] = codes.cpu().numpy()
    return points


def row_means(matrix: sp.csr_matrix, points: NDArray[np.float32]) -> NDArray[np.float32]:
    """Average the points of each document's labels, equation (5); NaN for one without labels.

    Points are in the order of the matrix's entries, (matrix.nnz, n_components), as
    `encode_documents` returns them. The means are (n_documents, n_components).
    """
    n_documents = matrix.shape[0]
    n_components = points.shape[1]
    shape = (n_documents, n_components)
    means = np.full(shape, np.nan, dtype=np.float32)
    lengths = np.diff(matrix.indptr)
    filled = np.flatnonzero(lengths)
    if len(filled):
        starts = matrix.indptr[filled]
        sums = np.add.reduceat(points, starts, axis=0)
        divisors = lengths[filled]
        divisors = divisors[:, None]
        means[filled] = sums / divisors
    return means
