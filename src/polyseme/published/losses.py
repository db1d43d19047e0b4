"""The losses of the concept embedding, equations (1) to (3), with their gradients by hand.

In: codes, and the targets of examples and pairs. Out: values, and the gradients that training
follows; `ConceptTrainer.compute_gradient` adds them up, equation (4). V is the number of labels;
targets may be those of many batches, stacked in front (...).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import softplus

from polyseme.published.network import Layer, activated_product

WEIGHTINGS = ("balanced", "literal", "none")
_LOG_TWO = math.log(2.0)


class LossSettings(NamedTuple):
    """Constants of the combined loss L = L_P(1) + L_P(2) + α L_S (in the paper: equation 4)."""

    weighting: str  # reading of κ: "balanced", "literal" or "none"
    sensitivity: float  # λ
    scale: float  # β
    negative_weight: float  # ρ
    distance_weight: float  # α


def positive_weight(share: Tensor, weighting: str = "balanced") -> Tensor:
    """Return the weight on the labels that a target names, from their share (in the paper: κ).

    "balanced" is the share of labels that are *not* in the target, so that both sides carry the
    same total weight, as the paper's text asks; "literal" the share that is, as its formula prints;
    "none" one half. A negative example's target is the complement of its document.
    """
    if weighting == "none":
        return torch.full_like(share, 0.5)
    return share if weighting == "literal" else 1.0 - share


class PredictionTargets(NamedTuple):
    """Targets of n examples, as the m labels of their documents.

    With p = sigmoid(2a) of the pre-activation a, equation (1) has the derivative ``u (p - q)`` in
    a of every label outside an example's document and ``v (p - 1 + q)`` of every label inside: u
    and v are the example's weights; q is 0 for a positive example, 1 for a negative one.
    """

    negative: Tensor  # (..., n): q
    outside: Tensor  # (..., n): u
    factor: Tensor  # (..., n): u as the step's loss weighs it
    places: Tensor  # (..., m): of the labels inside in a table (n, V); beyond it they only fill up
    scale: Tensor  # (..., m): v / u
    offset: Tensor  # (..., m): added to v / u · p, so that u is the factor of labels inside too
    inside: Tensor  # (..., m): v, or 0 for what only fills up
    instead: Tensor  # (..., m): u, likewise
    side: Tensor  # (..., m): 1 - 2q


def prediction_targets(
    places: Tensor,
    owners: Tensor,
    lengths: Tensor,
    negative: Tensor,
    n_labels: int,
    *,
    weighting: str,
    share: float,
) -> PredictionTargets:
    """Weigh the labels outside and inside documents as equation (1) does.

    Labels inside have places and owners, (..., m); examples have the lengths of their documents and
    1 for a negative one, (..., n). `share` is the weight of an example's loss in the step's.
    """
    positive = negative == 0
    held = lengths.to(negative.dtype) / n_labels
    kappa = positive_weight(torch.where(positive, held, 1.0 - held), weighting)
    # Of each 4, 2 are from 1 ± y, and 2 from the derivative of log(1 ± tanh a).
    named, other = 4.0 * kappa / n_labels, 4.0 * (1.0 - kappa) / n_labels
    outside, inside = torch.where(positive, other, named), torch.where(positive, named, other)
    # A weight of zero outside happens when a document holds every label, under "literal".
    outside = outside.clamp_min(torch.finfo(torch.float32).tiny ** 0.5)
    v, u, q = (part.gather(-1, owners) for part in (inside, outside, negative))
    scale = v / u
    offset = scale * (q - 1.0) + q
    inside, instead = (part * (places < negative.shape[-1] * n_labels) for part in (v, u))
    return PredictionTargets(
        negative, outside, outside * share, places, scale, offset, inside, instead, 1.0 - 2.0 * q
    )


def prediction_loss(
    codes: Tensor,
    output: Layer,
    targets: PredictionTargets,
    gradient: Layer,
    *,
    look: bool = True,
    room: Tensor | None = None,
) -> tuple[Tensor, Tensor | None]:
    """Return the gradient in the codes and the prediction loss (in the paper: L_P, equation 1).

    With a the pre-activations of the output layer, ŷ = tanh(a) and y = ±1 the target::

        L_P = -1/V Σ_j [ κ (1 + y_j) log(1 + ŷ_j) + (1 - κ) (1 - y_j) log(1 - ŷ_j) ]

    where log(1 ± ŷ) = log 2 - softplus(∓2a), which is finite for every activation. It may be
    negative: the logarithms are of 1 ± ŷ, which reach 2. Codes and their gradient are (n,
    n_components); `gradient`, that of the output layer, is filled. The loss, summed over examples,
    costs a pass of its own: None without `look`. `room`, (n + 1, V), is memory for the table of
    predictions, where a new one would take longer to get.
    """
    # Labels outside a document are nearly all. So the sigmoid is taken once; the few labels inside
    # are patched such that one factor u serves the whole row; and u and q enter after the matrix
    # products, where they cost a row instead of a table.
    doubled, bias, value = 2.0 * codes, 2.0 * output.bias, None
    if room is None:
        table = activated_product(doubled, output.weight, bias, "none" if look else "sigmoid")
        flat = table.view(-1)
    else:
        table, flat = room[:-1], room.view(-1)
        torch.addmm(bias, doubled, output.weight.t(), out=table)
    if look:
        value = _prediction_value(table, flat, targets)
    if look or room is not None:
        flat.sigmoid_()
    inside = flat.index_select(0, targets.places)
    flat.scatter_(0, targets.places, torch.addcmul(targets.offset, targets.scale, inside))
    negative, factor = targets.negative, targets.factor
    weighted = codes * factor[:, None]
    torch.mm(table.t(), weighted, out=gradient.weight)
    torch.mv(table.t(), factor, out=gradient.bias)
    gradient.weight.sub_(negative @ weighted)
    gradient.bias.sub_(negative @ factor)
    slope = activated_product(table, output.weight.t())
    slope.addmm_(negative[:, None], output.weight.sum(dim=0)[None], alpha=-1.0)
    return slope.mul_(factor[:, None]), value


def _prediction_value(table: Tensor, flat: Tensor, targets: PredictionTargets) -> Tensor:
    """Sum equation (1) over examples, from the table of 2a, (n, V), and its memory as a vector."""
    side = 1.0 - 2.0 * targets.negative
    everywhere = softplus(side[:, None] * table).sum(dim=1) - _LOG_TWO * table.shape[1]
    inside = flat[targets.places] * targets.side
    corrected = targets.inside * (softplus(-inside) - _LOG_TWO)
    corrected -= targets.instead * (softplus(inside) - _LOG_TWO)
    return 0.5 * ((targets.outside * everywhere).sum() + corrected.sum())


def context_similarity(first: Tensor, second: Tensor, sensitivity: float) -> Tensor:
    """Compare contexts, (n, n_topics) each, > 0, to (n,) (in the paper: S = exp(-λ/2 · KL))."""
    divergence = ((first - second) * (first.log() - second.log())).sum(dim=1)
    return torch.exp(-0.5 * sensitivity * divergence)


class DistanceTargets(NamedTuple):
    """Targets of n pairs: each case of equation (3) is ``weight · (E - target)²``."""

    target: Tensor  # (..., n)
    weight: Tensor  # (..., n)
    pull: Tensor  # (..., n): twice the weight, as the step's loss weighs it


def distance_targets(
    similarity: Tensor, n_negative: Tensor, *, scale: float, negative_weight: float, share: float
) -> DistanceTargets:
    """Choose among the three cases of equation (3) by similarity S and negative sides, (..., n).

    Two positive examples have the target β(1 - S) and weigh 1, two negative ones have the same and
    weigh ρ, and one of each has the target β and weighs S: unrelated contexts leave it free.
    `share` is the weight of a pair's loss in the step's (in the paper: α, where losses are summed).
    """
    target = torch.where(n_negative == 1, scale, scale * (1.0 - similarity))
    same = torch.where(n_negative == 0, 1.0, negative_weight).to(similarity.dtype)
    weight = torch.where(n_negative == 1, similarity, same)
    return DistanceTargets(target, weight, weight * (2.0 * share))


def distance_loss(codes: Tensor, targets: DistanceTargets, slope: Tensor) -> Tensor:
    """Return the distance loss, summed over pairs; add its gradient to `slope` (in the paper: L_S).

    With E = ‖c₁ - c₂‖ of a pair's codes (equation 2), equation (3) is::

        L_S = weight · (E - target)²,   ∂L_S/∂c₁ = 2 weight (1 - target / E) (c₁ - c₂) = -∂L_S/∂c₂

    Codes and slope, (2n, n_components), hold first sides of all pairs, then second ones.
    """
    half = len(codes) // 2
    difference = codes[:half] - codes[half:]
    # The small constant keeps the gradient finite for coinciding codes.
    inverse = difference.square().sum(dim=1).add_(1e-12).rsqrt_()
    error = 1.0 - targets.target * inverse
    difference *= (targets.pull * error)[:, None]
    slope[:half] += difference
    slope[half:] -= difference
    return (targets.weight * (error / inverse).square()).sum()
