"""One training step written out by hand: the combined loss's gradient, without a tape.

In: a network and the examples of a step, laid out. Out: the gradient of all weights in one flat
vector. `polyseme.published.nn.losses` says the same in plain terms, and tests hold both together.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding_bag, softplus

from polyseme.published.nn.networks import ConceptNetwork
from polyseme.published.nn.staging import StepInput
from polyseme.published.nn.widened import WideFactors

_LOG_TWO = math.log(2.0)
# Entries of a table that may be new in each step; a larger one would come page by page.
_MOST_NEW = 2**22


def _fused_product() -> Callable[..., Tensor] | None:
    """Find oneDNN's product with bias and activation in one, where torch has it as it is called.

    Torch does not document it, so it is tried before it is trusted.
    """
    values = torch.tensor([[0.5, -1.0], [2.0, 0.25]])
    wanted = {"none": values @ values.t() + values[0]}
    wanted |= {"tanh": wanted["none"].tanh(), "sigmoid": wanted["none"].sigmoid()}
    try:
        product: Callable[..., Tensor] = torch.ops.mkldnn._linear_pointwise
        for name, expected in wanted.items():
            if not torch.allclose(product(values, values, values[0], name, [], ""), expected):
                return None
        product(values, values, None, "none", [], "")
    except (AttributeError, RuntimeError, TypeError):
        return None
    return product


_FUSED = _fused_product()


class _Labels(NamedTuple):
    """The labels of a step whose descriptors are multiplied.

    Attributes
    ----------
    chosen : int64 tensor, shape (n_chosen,), or None
        None: all of them.
    places : int64 tensor, shape (n,)
        Where among them each example finds its own.
    rows : tensor, shape (n_chosen, n_label_features), or None
        Their descriptors; None for sparse ones.
    order : int64 tensor, shape (n,), or None
        The examples, label by label; None where sizes must not depend on what is drawn.
    starts : int64 tensor, shape (n_chosen,), or None
        Where each label's begin in this order.
    """

    chosen: Tensor | None
    places: Tensor
    rows: Tensor | None
    order: Tensor | None = None
    starts: Tensor | None = None


class FlatWeights:
    """A network's weights as views of one vector, and their gradient as another.

    One vector is one update of the optimiser and one message between processes.

    Parameters
    ----------
    network : ConceptNetwork
        Its parameters become views of `values`.

    Attributes
    ----------
    values, gradient : tensor, shape (n_weights,)
    views : dict of str to tensor
        The gradient by the parameters' names, in their shapes.
    """

    def __init__(self, network: ConceptNetwork) -> None:
        total = sum(parameter.numel() for parameter in network.parameters())
        self.values = torch.empty(total).to(network.output.weight.detach())
        self.gradient = torch.zeros_like(self.values)
        self.views: dict[str, Tensor] = {}
        start = 0
        for name, parameter in network.named_parameters():
            part = slice(start, start + parameter.numel())
            start = part.stop
            # One row per input: sparse descriptors then gather rows.
            turned = parameter is network.first.weight
            shape = tuple(parameter.shape[::-1]) if turned else tuple(parameter.shape)
            held, slope = self.values[part].view(shape), self.gradient[part].view(shape)
            held.copy_(parameter.detach().t() if turned else parameter.detach())
            parameter.data = held.t() if turned else held
            self.views[name] = slope.t() if turned else slope


class StepGradient:
    """Compute the gradient of one step's loss.

    Parameters
    ----------
    network : ConceptNetwork
        Where its weights lie, everything is computed.
    mixed : bool
        Whether the products with the output layer are taken in bfloat16: faster, coarser.

    Notes
    -----
    With ``p = sigmoid(2a)`` of the pre-activation a, the prediction loss of one example has the
    derivative ``u (p - q)`` in a of every label outside its document, and ``v (p - 1 + q)`` of
    every label inside, where u, v are the example's weights and q is 0 for a positive example, 1
    for a negative one. Labels outside are nearly all. So the sigmoid is taken once, in place; the
    few labels inside are patched such that one factor u serves the whole row; and u and q enter
    after the matrix products, where they cost a row instead of a table. (A sigmoid takes a
    processor a fifth of the time of a tanh.)
    """

    def __init__(self, network: ConceptNetwork, mixed: bool = False) -> None:
        self.network = network
        self.mixed = mixed
        self.weights = FlatWeights(network)
        self._tables: dict[tuple[int, int], Tensor] = {}
        self._factors: dict[int, WideFactors] = {}
        device = network.output.weight.device
        self._side: torch.cuda.Stream | None = None
        if device.type == "cuda":
            self._side = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]  # torch's own
        self._kept: list[Tensor] = []

    @torch.no_grad()
    def compute(self, given: StepInput, *, look: bool = False) -> Tensor | None:
        """Fill the flat gradient.

        Parameters
        ----------
        given : StepInput
        look : bool
            Whether to compute the losses themselves too, which costs a pass of its own.

        Returns
        -------
        tensor, shape (2,), or None
            Prediction and distance loss, summed over pairs; None unless looked at.
        """
        labels, hidden = self._forward(given)
        table, prediction = self._predictions(hidden[-1], given, look=look)
        slope = self._output_gradient(table, hidden[-1], given)
        distance = self._distance(hidden[-1], given, slope, look=look)
        self._backward(slope, hidden, labels, given)
        self._join()
        if prediction is None or distance is None:
            return None
        return torch.stack([prediction, distance])

    @contextmanager
    def _aside(self, *used: Tensor) -> Iterator[None]:
        """Do what nothing else waits for beside the rest, on a GPU: small products leave room.

        What is used must stay until `_join`, as memory that is let go may be given out again.
        """
        if self._side is None:
            yield
            return
        self._kept += used
        self._side.wait_stream(torch.cuda.current_stream(self._side.device))
        with torch.cuda.stream(self._side):
            yield

    def _join(self) -> None:
        """Wait for what was done aside."""
        if self._side is not None:
            torch.cuda.current_stream(self._side.device).wait_stream(self._side)
            self._kept.clear()

    # ------------------------------------------------------------------ forward

    def _forward(self, given: StepInput) -> tuple[_Labels, list[Tensor]]:
        """Give the labels looked up, and all layers, shapes (n, n_units)."""
        network, first = self.network, self.network.first
        by_label = first.weight[:, : network.n_label_features].t()
        labels = self._labels(given.label_ids)
        if labels.rows is not None:
            # Not by oneDNN, which prepares itself for each new number of rows.
            inputs = torch.addmm(first.bias, labels.rows, by_label)
        else:
            assert network.shifted is not None and labels.chosen is not None
            inputs = network.shifted.times(by_label, labels.chosen.numpy()).add_(first.bias)
        hidden = inputs.index_select(0, labels.places)
        hidden.addmm_(given.contexts, first.weight[:, network.n_label_features :].t())
        layers = [_tanh(hidden)]
        for layer in network.layers[1:]:
            assert isinstance(layer, nn.Linear)
            if _fuses(hidden):
                layers.append(_fused(layers[-1], layer.weight, layer.bias, "tanh"))
            else:
                layers.append(_tanh(torch.addmm(layer.bias, layers[-1], layer.weight.t())))
        return labels, layers

    def _labels(self, label_ids: Tensor) -> _Labels:
        """Look up the labels of a step, each descriptor once for both directions."""
        network, n = self.network, len(label_ids)
        if label_ids.device.type == "cpu":
            ids, order = label_ids.sort(stable=True)
            chosen, inverse, counts = torch.unique_consecutive(
                ids, return_inverse=True, return_counts=True
            )
            places = torch.empty_like(order).scatter_(0, order, inverse)
            rows = None
            if network.shifted is None:
                rows = network.descriptors.index_select(0, chosen)
            return _Labels(chosen, places, rows, order, counts.cumsum(0) - counts)
        # Sizes must not depend on what is drawn, so that a step can be captured as a graph.
        if network.n_labels <= 2 * n:
            return _Labels(None, label_ids, network.descriptors)
        rows = network.descriptors.index_select(0, label_ids)
        return _Labels(label_ids, torch.arange(n, device=label_ids.device), rows)

    def _predictions(
        self, codes: Tensor, given: StepInput, *, look: bool
    ) -> tuple[Tensor, Tensor | None]:
        """Give the table of p, shape (n, n_labels), and the prediction loss if looked at."""
        output = self.network.output
        new = given.width == self.network.n_labels and len(codes) * given.width <= _MOST_NEW
        if _fuses(codes) and new and not self.mixed:
            table = _fused(
                2.0 * codes, output.weight, 2.0 * output.bias, "none" if look else "sigmoid"
            )
            if not look:
                return table, None
        else:
            table = self._activations(codes, given)
        values = _prediction_values(table, given) if look else None
        _flat(table).sigmoid_()
        return table, values

    def _activations(self, codes: Tensor, given: StepInput) -> Tensor:
        """Give twice the output layer's pre-activations, in a table that is used again."""
        output, n_labels = self.network.output, self.network.n_labels
        dtype = torch.bfloat16 if self.mixed else codes.dtype
        size = (len(codes), given.width)
        if size not in self._tables:
            self._tables[size] = torch.zeros(size, dtype=dtype, device=codes.device)
        # What lies beyond the labels is patched and squeezed but never multiplied: it is finite.
        table = self._tables[size][:, :n_labels]
        if _widens(codes):
            if len(codes) not in self._factors:
                self._factors[len(codes)] = WideFactors(codes, n_labels, dtype)
            factors = self._factors[len(codes)]
            return factors.activations(codes, output.weight, output.bias, table)
        weight, bias = output.weight.to(dtype), output.bias.to(dtype)
        doubled = (2.0 * codes).to(dtype)
        return torch.addmm(2.0 * bias, doubled, weight.t(), out=table)

    # ------------------------------------------------------------------ backward

    def _output_gradient(self, table: Tensor, codes: Tensor, given: StepInput) -> Tensor:
        """Fill the output layer's gradient and give that of the codes, shape (n, n_components)."""
        output = self.network.output
        flat = _flat(table)
        held = flat.index_select(0, given.places).to(codes.dtype)
        patched = torch.addcmul(given.offset, given.scale, held)
        flat.scatter_(0, given.places, patched.to(flat.dtype))
        weighted = codes * given.factor[:, None]
        with self._aside(table, weighted):
            self._multiply_back(table, weighted, given)
        if _widens(codes):
            slope = self._factors[len(codes)].slope(table).to(codes.dtype)
        else:
            slope = _times(table, output.weight.to(table.dtype)).to(codes.dtype)
        total = torch.empty_like(output.weight[0])
        _sum_rows(output.weight, total)
        slope.addmm_(given.negative[:, None], total[None], alpha=-1.0)
        return slope.mul_(given.factor[:, None])

    def _multiply_back(self, table: Tensor, weighted: Tensor, given: StepInput) -> None:
        """Fill the output layer's gradient from the table and the weighted codes."""
        weight, bias = self.weights.views["output.weight"], self.weights.views["output.bias"]
        if _widens(weighted):
            factors = self._factors[len(weighted)]
            factors.gradient(table, weighted, given.factor, weight, bias)
        elif self.mixed:
            weight.copy_(table.t() @ weighted.to(table.dtype))
            bias.copy_(table.t() @ given.factor.to(table.dtype))
        else:
            torch.mm(table.t(), weighted, out=weight)
            torch.mv(table.t(), given.factor, out=bias)
        weight -= given.negative @ weighted
        bias -= given.negative @ given.factor

    def _distance(
        self, codes: Tensor, given: StepInput, slope: Tensor, *, look: bool
    ) -> Tensor | None:
        """Add the distance loss's gradient to that of the codes; give its sum over pairs."""
        half = len(codes) // 2
        difference = codes[:half] - codes[half:]
        # The small constant keeps the gradient finite for coinciding codes.
        inverse = difference.square().sum(dim=1).add_(1e-12).rsqrt_()
        error = 1.0 - given.target * inverse
        difference *= (given.pull * error)[:, None]
        slope[:half] += difference
        slope[half:] -= difference
        return (given.weight * (error / inverse).square()).sum() if look else None

    def _backward(
        self,
        slope: Tensor,
        hidden: list[Tensor],
        labels: _Labels,
        given: StepInput,
    ) -> None:
        """Carry the codes' gradient down to the first layer."""
        network, views = self.network, self.weights.views
        for number in range(len(hidden) - 1, 0, -1):
            layer = network.layers[number]
            assert isinstance(layer, nn.Linear)
            _tanh_backward(slope, hidden[number])
            with self._aside(slope, hidden[number - 1]):
                torch.mm(slope.t(), hidden[number - 1], out=views[f"layers.{number}.weight"])
                _sum_rows(slope, views[f"layers.{number}.bias"])
            slope = _times(slope, layer.weight)
        _tanh_backward(slope, hidden[0])
        gradient = views["layers.0.weight"].t()
        n = network.n_label_features
        with self._aside(slope):
            _sum_rows(slope, views["layers.0.bias"])
            torch.mm(given.contexts.t(), slope, out=gradient[n:])
        summed = self._by_label(slope, labels)
        if labels.rows is not None:
            torch.mm(labels.rows.t(), summed, out=gradient[:n])
        else:
            assert network.shifted is not None and labels.chosen is not None
            network.shifted.transposed_times(summed, gradient[:n], labels.chosen.numpy())

    def _by_label(self, slope: Tensor, labels: _Labels) -> Tensor:
        """Add up the gradients of each label's examples, shape (n_chosen, n_units)."""
        if labels.order is not None:
            return embedding_bag(labels.order, slope, labels.starts, mode="sum")
        n_rows = self.network.n_labels if labels.chosen is None else len(labels.chosen)
        summed = slope.new_zeros((n_rows, slope.shape[1]))
        return summed.index_add_(0, labels.places, slope)


def _widens(values: Tensor) -> bool:
    """Say whether biases are multiplied as columns: where products leave passes far behind."""
    return values.is_cuda


def _fuses(values: Tensor) -> bool:
    """Say whether oneDNN multiplies these values, some tenth faster than MKL does."""
    return _FUSED is not None and values.device.type == "cpu" and values.dtype == torch.float32


def _fused(values: Tensor, weight: Tensor, bias: Tensor | None, activation: str) -> Tensor:
    """Give a layer's activations.

    Parameters
    ----------
    values : float32 tensor, shape (n, n_in)
    weight : float32 tensor, shape (n_out, n_in)
    bias : float32 tensor, shape (n_out,), optional
    activation : {"none", "sigmoid", "tanh"}

    Returns
    -------
    float32 tensor, shape (n, n_out)
    """
    assert _FUSED is not None
    return _FUSED(values, weight, bias, activation, [], "")


def _times(values: Tensor, weight: Tensor) -> Tensor:
    """Multiply by a matrix, shape (n_in, n_out), with whatever is fastest here."""
    return _fused(values, weight.t(), None, "none") if _fuses(values) else values @ weight


def _tanh(values: Tensor) -> Tensor:
    """Take tanh in place: by the sigmoid, which is several times faster on a processor."""
    if values.is_cuda:
        return values.tanh_()
    return values.mul_(2.0).sigmoid_().mul_(2.0).sub_(1.0)


def _tanh_backward(slope: Tensor, values: Tensor) -> None:
    """Make a gradient by tanh's values one by what tanh was taken of, in place."""
    torch.ops.aten.tanh_backward.grad_input(slope, values, grad_input=slope)


def _sum_rows(values: Tensor, out: Tensor) -> None:
    """Add up rows: on a GPU by a product, which keeps more of it busy than a sum does."""
    if values.is_cuda:
        torch.mv(values.t(), values.new_ones(len(values)), out=out)
    else:
        torch.sum(values, dim=0, out=out)


def _flat(table: Tensor) -> Tensor:
    """Give a table's whole memory as one vector, also where columns beyond the labels follow."""
    n, stride = table.shape[0], table.stride(0)
    return table.as_strided((n * stride,), (1,))


def _prediction_values(table: Tensor, given: StepInput) -> Tensor:
    """Give the prediction loss, summed over examples, from twice the pre-activations."""
    side = 1.0 - 2.0 * given.negative
    held = _flat(table)[given.places] * given.side
    everywhere = softplus(side[:, None] * table).sum(dim=1) - _LOG_TWO * table.shape[1]
    corrected = given.inside * (softplus(-held) - _LOG_TWO)
    corrected -= given.instead * (softplus(held) - _LOG_TWO)
    return 0.5 * ((given.outside * everywhere).sum() + corrected.sum())
