"""The losses of the concept embedding, one value per example or pair, then a reducer.

In: activations, codes, targets, context similarities. Out: scalars to differentiate.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.functional import softplus

WEIGHTINGS = ("balanced", "literal", "none")


def positive_weight(targets: Tensor, weighting: str = "balanced") -> Tensor:
    """Give each example's weight on the labels its target names (in the paper: κ).

    Parameters
    ----------
    targets : tensor of 0/1, shape (n, n_labels)
        Each example's own target; a negative example's is the complement of its document.
    weighting : {"balanced", "literal", "none"}
        "balanced": the share of labels that are *not* in the target, so that both sides carry the
        same total weight, as the paper's text asks. "literal": the share that is in the target, as
        the paper's formula prints. "none": one half.

    Returns
    -------
    tensor, shape (n, 1)
    """
    share = targets.mean(dim=1, keepdim=True)
    if weighting == "literal":
        return share
    if weighting == "none":
        return torch.full_like(share, 0.5)
    return 1.0 - share


def prediction_loss(activations: Tensor, targets: Tensor, weighting: str = "balanced") -> Tensor:
    """Give the weighted prediction loss of each example (in the paper: L_P, equation 1).

    Written with `softplus`, so that it is finite for every activation. It may be negative: the
    paper's logarithms are of 1 ± ŷ, which reach 2.

    Parameters
    ----------
    activations : tensor, shape (n, n_labels)
        Pre-activations a of the output layer; ŷ = tanh(a).
    targets : tensor of 0/1, shape (n, n_labels)
        (1 + y) / 2 of the paper's y.
    weighting : {"balanced", "literal", "none"}
        The reading of κ.

    Returns
    -------
    tensor, shape (n,)
    """
    weight = positive_weight(targets, weighting)
    log_two = math.log(2.0)
    doubled = 2.0 * activations
    on_positive = 2.0 * weight * targets * (log_two - softplus(-doubled))
    on_negative = 2.0 * (1.0 - weight) * (1.0 - targets) * (log_two - softplus(doubled))
    return -(on_positive + on_negative).mean(dim=1)


def context_similarity(first: Tensor, second: Tensor, sensitivity: float) -> Tensor:
    """Compare contexts pair by pair (in the paper: S = exp(-λ/2 · KL)).

    Parameters
    ----------
    first, second : tensor, shape (n, n_topics)
        Strictly positive histograms.
    sensitivity : float
        In the paper: λ.

    Returns
    -------
    tensor, shape (n,), in (0, 1]
        1 where both histograms are the same.
    """
    divergence = ((first - second) * (first.log() - second.log())).sum(dim=1)
    return torch.exp(-0.5 * sensitivity * divergence)


def distance_loss(
    first: Tensor,
    second: Tensor,
    similarity: Tensor,
    n_positive: Tensor,
    *,
    scale: float,
    negative_weight: float,
) -> Tensor:
    """Give the distance loss of each pair (in the paper: L_S, equation 3).

    Parameters
    ----------
    first, second : tensor, shape (n, n_components)
        The codes of both sides.
    similarity : tensor, shape (n,)
        Context similarity S of each pair.
    n_positive : int tensor, shape (n,)
        How many sides of the pair are positive examples: 2, 1 or 0 choose the three cases.
    scale : float
        In the paper: β, the distance of unrelated concepts.
    negative_weight : float
        In the paper: ρ, the weight of pairs of two negative examples.

    Returns
    -------
    tensor, shape (n,)
    """
    # The small constant keeps the gradient finite for coinciding codes.
    distance = torch.sqrt((first - second).square().sum(dim=1) + 1e-12)
    by_context = (distance - scale * (1.0 - similarity)).square()
    apart = similarity * (distance - scale).square()
    return torch.where(
        n_positive == 2,
        by_context,
        torch.where(n_positive == 0, negative_weight * by_context, apart),
    )


def reduce_loss(values: Tensor, reduction: str) -> Tensor:
    """Reduce per-pair losses to one number: "mean", or "sum" as plain gradient descent takes it."""
    return values.sum() if reduction == "sum" else values.mean()
