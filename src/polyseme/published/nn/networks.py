"""The sub-network of the Siamese architecture, forward only.

In: label ids and context histograms. Out: codes (the concepts) and prediction logits.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from polyseme._shifted import ShiftedRows


class ConceptNetwork(nn.Module):
    """Sub-network of the Siamese architecture (in the paper: Fig. 4, parameters Θ).

    tanh layers from a label's descriptor and its context's histogram to a coding layer, whose
    activations are the concept, and from there to one pre-activation per label. Both sides of a
    pair go through this one network, which is what ties their weights.

    Parameters
    ----------
    descriptors : float32 array or ShiftedRows, shape (n_labels, n_label_features)
        One descriptor per label; constant. Sparse ones stay sparse.
    n_topics : int
        Length of a context histogram.
    hidden_sizes : sequence of int
        Units of the hidden layers (in the paper: 100, 100 or 200, 200).
    n_components : int
        Units of the coding layer (in the paper: d).
    generator : torch.Generator
        Draws the initial weights.
    dtype : torch.dtype
        float32; float64 for gradient checks.
    """

    descriptors: Tensor

    def __init__(
        self,
        descriptors: NDArray[np.floating] | ShiftedRows,
        n_topics: int,
        hidden_sizes: Sequence[int],
        n_components: int,
        generator: torch.Generator,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        super().__init__()
        n_labels, n_label_features = descriptors.shape
        self.shifted = descriptors if isinstance(descriptors, ShiftedRows) else None
        held = np.empty((0, n_label_features)) if self.shifted else descriptors
        self.register_buffer("descriptors", torch.as_tensor(held, dtype=dtype))
        self.n_labels, self.n_label_features = n_labels, n_label_features
        sizes = [n_label_features + n_topics, *hidden_sizes, n_components]
        self.layers = nn.ModuleList(
            _linear(n_in, n_out, generator, dtype) for n_in, n_out in pairwise(sizes)
        )
        self.output = _linear(n_components, n_labels, generator, dtype)

    @property
    def first(self) -> nn.Linear:
        """The first layer, whose inputs are a label's descriptor and its context's histogram."""
        layer = self.layers[0]
        assert isinstance(layer, nn.Linear)
        return layer

    def lay_out(self) -> None:
        """Take sparse descriptors as a dense matrix from now on, as accelerators multiply them."""
        if self.shifted is not None:
            dense = torch.from_numpy(self.shifted.toarray())
            self.descriptors = dense.to(self.output.weight)
            self.shifted = None

    def descriptor_rows(self, label_ids: Tensor) -> Tensor:
        """Give the descriptors of labels, shape (n, n_label_features)."""
        if self.shifted is None:
            return self.descriptors[label_ids]
        chosen = label_ids.numpy()
        some = ShiftedRows(self.shifted.rows[chosen], self.shifted.shift, self.shifted.used[chosen])
        return torch.from_numpy(some.toarray()).to(self.output.weight)

    def label_inputs(self) -> Tensor:
        """Give what each label contributes to the first layer, shape (n_labels, n_hidden).

        Computed once, it serves every context that a label is met in.
        """
        by_label = self.first.weight[:, : self.n_label_features]
        if self.shifted is None:
            return nn.functional.linear(self.descriptors, by_label)
        return self.shifted.times(by_label.detach().t().contiguous())

    def encode(self, label_ids: Tensor, contexts: Tensor, inputs: Tensor | None = None) -> Tensor:
        """Embed labels in their contexts.

        Parameters
        ----------
        label_ids : int64 tensor, shape (n,)
        contexts : tensor, shape (n, n_topics)
        inputs : tensor, shape (n_labels, n_hidden), optional
            What `label_inputs` gives, where many batches share it.

        Returns
        -------
        tensor, shape (n, n_components), inside (-1, 1)
        """
        first = self.first
        by_context = first.weight[:, self.n_label_features :]
        if inputs is None:
            # A batch holds few distinct labels: multiply each descriptor once, then gather.
            distinct, places = torch.unique(label_ids, return_inverse=True)
            by_label = first.weight[:, : self.n_label_features]
            from_label = nn.functional.linear(self.descriptor_rows(distinct), by_label)[places]
        else:
            from_label = inputs[label_ids]
        hidden = torch.tanh(from_label + nn.functional.linear(contexts, by_context, first.bias))
        for layer in self.layers[1:]:
            hidden = torch.tanh(layer(hidden))
        return hidden

    def forward(self, label_ids: Tensor, contexts: Tensor) -> tuple[Tensor, Tensor]:
        """Embed labels in their contexts and predict their documents.

        Parameters
        ----------
        label_ids : int64 tensor, shape (n,)
        contexts : tensor, shape (n, n_topics)

        Returns
        -------
        codes : tensor, shape (n, n_components)
        activations : tensor, shape (n, n_labels)
            Pre-activations a; the paper's prediction is tanh(a).
        """
        codes = self.encode(label_ids, contexts)
        return codes, self.output(codes)


def _linear(n_in: int, n_out: int, generator: torch.Generator, dtype: torch.dtype) -> nn.Linear:
    """Make a linear layer with Glorot-uniform weights drawn from the given generator."""
    layer = nn.Linear(n_in, n_out, dtype=dtype, device="meta").to_empty(device="cpu")
    with torch.no_grad():
        nn.init.xavier_uniform_(layer.weight, generator=generator)
        layer.bias.zero_()
    return layer
