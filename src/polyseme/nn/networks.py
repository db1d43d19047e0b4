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


class ConceptNetwork(nn.Module):
    """Sub-network of the Siamese architecture (in the paper: Fig. 4, parameters Θ).

    tanh layers from a label's descriptor and its context's histogram to a coding layer, whose
    activations are the concept, and from there to one pre-activation per label. Both sides of a
    pair go through this one network, which is what ties their weights.

    Parameters
    ----------
    descriptors : float32 array, shape (n_labels, n_label_features)
        One descriptor per label; constant.
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
        descriptors: NDArray[np.floating],
        n_topics: int,
        hidden_sizes: Sequence[int],
        n_components: int,
        generator: torch.Generator,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        super().__init__()
        n_labels, n_label_features = descriptors.shape
        self.register_buffer("descriptors", torch.as_tensor(descriptors, dtype=dtype))
        sizes = [n_label_features + n_topics, *hidden_sizes, n_components]
        self.layers = nn.ModuleList(
            _linear(n_in, n_out, generator, dtype) for n_in, n_out in pairwise(sizes)
        )
        self.output = _linear(n_components, n_labels, generator, dtype)

    def encode(self, label_ids: Tensor, contexts: Tensor) -> Tensor:
        """Embed labels in their contexts.

        Parameters
        ----------
        label_ids : int64 tensor, shape (n,)
        contexts : tensor, shape (n, n_topics)

        Returns
        -------
        tensor, shape (n, n_components), inside (-1, 1)
        """
        first = self.layers[0]
        assert isinstance(first, nn.Linear)
        n_label_features = self.descriptors.shape[1]
        by_label = first.weight[:, :n_label_features]
        by_context = first.weight[:, n_label_features:]
        # A batch holds few distinct labels: multiply each descriptor once, then gather.
        distinct, places = torch.unique(label_ids, return_inverse=True)
        from_label = nn.functional.linear(self.descriptors[distinct], by_label)[places]
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
