"""Greedy layer-wise pre-training: each layer learns to give back what comes into it.

In: a network and a source of examples. Out: the layer's weights, changed in place.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from polyseme.published.nn.networks import ConceptNetwork
from polyseme.published.nn.pairs import Batch, PairSampler


def pretrain_layer(
    network: ConceptNetwork,
    layer: int,
    sampler: PairSampler,
    contexts: Tensor,
    generator: np.random.Generator,
    *,
    n_passes: int,
    learning_rate: float = 1e-2,
    noise: float = 0.1,
) -> float:
    """Train one layer as a denoising auto-encoder with tied weights, by plain gradient descent.

    Parameters
    ----------
    network : ConceptNetwork
        Its layers below `layer` are left as they are.
    layer : int
        Which layer to train.
    sampler : PairSampler
        Gives the examples, positive and negative.
    contexts : tensor, shape (n_documents, n_topics)
        The documents' histograms.
    generator : numpy Generator
        Draws examples and noise.
    n_passes : int
        Passes over all positive examples.
    learning_rate : float
        Step size.
    noise : float
        Share of a layer's inputs that are set to zero.

    Returns
    -------
    float
        Mean squared reconstruction error of the last pass.
    """
    module = network.layers[layer]
    assert isinstance(module, nn.Linear)
    total, count = 0.0, 0
    for _ in range(n_passes):
        total, count = 0.0, 0
        # The visible bias belongs to this pass only; it is found again within a few steps.
        visible = torch.zeros_like(module.weight[0], requires_grad=True)
        weights = [module.weight, module.bias, visible]
        for batch in sampler.epoch(generator):
            with torch.no_grad():
                inputs = _below(network, layer, batch, contexts)
            kept = torch.from_numpy(generator.random(inputs.shape) >= noise).to(inputs)
            hidden = torch.tanh(module(inputs * kept))
            error = (hidden @ module.weight + visible - inputs).square().mean()
            gradients = torch.autograd.grad(error, weights)
            with torch.no_grad():
                for weight, gradient in zip(weights, gradients, strict=True):
                    # The error is a mean over columns: undo it, so that the rate is per column.
                    weight -= learning_rate * module.in_features * gradient
            total, count = total + float(error.detach()), count + 1
    return total / max(count, 1)


def _below(network: ConceptNetwork, layer: int, batch: Batch, contexts: Tensor) -> Tensor:
    """Give what comes into a layer, (n, in_features)."""
    hidden = torch.cat(
        [
            network.descriptor_rows(torch.from_numpy(batch.label_ids)),
            contexts[torch.from_numpy(batch.document_ids)],
        ],
        dim=1,
    )
    for module in network.layers[:layer]:
        hidden = torch.tanh(module(hidden))
    return hidden
