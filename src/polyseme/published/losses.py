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
    """Constants of the loss of a pair, equation (4): L = L_P(1) + L_P(2) + α L_S."""

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
    if weighting == "literal":
        return share
    return 1.0 - share


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
    inside: Tensor  # (..., m): v, or 0 for padding
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
    share_inside = lengths.to(negative.dtype) / n_labels
    target_share = torch.where(positive, share_inside, 1.0 - share_inside)
    kappa = positive_weight(target_share, weighting)
    # Of each 4, 2 are from 1 ± y, and 2 from the derivative of log(1 ± tanh a).
    target_weight = 4.0 * kappa / n_labels
    complement_weight = 4.0 * (1.0 - kappa) / n_labels
    outside = torch.where(positive, complement_weight, target_weight)
    inside = torch.where(positive, target_weight, complement_weight)
    # A weight of zero outside happens when a document holds every label, under "literal".
    outside = outside.clamp_min(torch.finfo(torch.float32).tiny ** 0.5)

    # One value for each label inside, from the example that owns it.
    v = inside.gather(-1, owners)
    u = outside.gather(-1, owners)
    q = negative.gather(-1, owners)
    scale = v / u
    table_size = negative.shape[-1] * n_labels
    filled = places < table_size
    return PredictionTargets(
        negative=negative,
        outside=outside,
        factor=outside * share,
        places=places,
        scale=scale,
        offset=scale * (q - 1.0) + q,
        inside=v * filled,
        instead=u * filled,
        side=1.0 - 2.0 * q,
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
    """Return the gradient in the codes and the prediction loss L_P, equation (1).

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
    doubled = 2.0 * codes
    bias = 2.0 * output.bias
    if room is None:
        activation = "none" if look else "sigmoid"
        table = activated_product(doubled, output.weight, bias, activation)
        flat = table.view(-1)
    else:
        table = room[:-1]
        flat = room.view(-1)
        torch.addmm(bias, doubled, output.weight.t(), out=table)
    value = None
    if look:
        value = _prediction_value(table, flat, targets)
    if look or room is not None:
        flat.sigmoid_()

    inside = flat.index_select(0, targets.places)
    patched = torch.addcmul(targets.offset, targets.scale, inside)
    flat.scatter_(0, targets.places, patched)

    negative = targets.negative
    factor = targets.factor
    weighted = codes * factor[:, None]
    torch.mm(table.t(), weighted, out=gradient.weight)
    torch.mv(table.t(), factor, out=gradient.bias)
    gradient.weight.sub_(negative @ weighted)
    gradient.bias.sub_(negative @ factor)

    slope = activated_product(table, output.weight.t())
    weight_sums = output.weight.sum(dim=0)
    slope.addmm_(negative[:, None], weight_sums[None], alpha=-1.0)
    slope.mul_(factor[:, None])
    return slope, value


def _prediction_value(table: Tensor, flat: Tensor, targets: PredictionTargets) -> Tensor:
    """Sum equation (1) over examples, from the table of 2a, (n, V), and its memory as a vector."""
    side = 1.0 - 2.0 * targets.negative
    signed = side[:, None] * table
    n_labels = table.shape[1]
    constant = _LOG_TWO * n_labels
    everywhere = softplus(signed).sum(dim=1)
    everywhere -= constant
    weighted = targets.outside * everywhere
    # Labels inside were counted with the weight and the sign of those outside.
    inside = flat[targets.places]
    inside = inside * targets.side
    as_inside = softplus(-inside) - _LOG_TWO
    as_outside = softplus(inside) - _LOG_TWO
    correction = targets.inside * as_inside
    correction -= targets.instead * as_outside
    total = weighted.sum() + correction.sum()
    return 0.5 * total


def context_similarity(first: Tensor, second: Tensor, sensitivity: float) -> Tensor:
    """Compute the similarity S of contexts, (n, n_topics) each, to (n,); see equation (3).

    S = exp(-λ/2 · KL), where KL = Σ (p - q) log(p / q) is the symmetric divergence of two topic
    histograms, which are positive. It is 1 where the histograms are equal.
    """
    difference = first - second
    first_log = first.log()
    second_log = second.log()
    log_ratio = first_log - second_log
    terms = difference * log_ratio
    divergence = terms.sum(dim=1)
    exponent = -0.5 * sensitivity * divergence
    return torch.exp(exponent)


class DistanceTargets(NamedTuple):
    """Targets of n pairs: each case of equation (3) is ``weight · (E - target)²``."""

    target: Tensor  # (..., n)
    weight: Tensor  # (..., n)
    pull: Tensor  # (..., n): twice the weight, as the step's loss weighs it


def distance_targets(
    similarity: Tensor, n_negative: Tensor, *, scale: float, negative_weight: float, share: float
) -> DistanceTargets:
    """Choose among the three cases of equation (3) by similarity S and negative sides, (..., n).

    With an indicator I of each case it is::

        L_S = I1 (E - β(1 - S))² + I2 ρ (E - β(1 - S))² + I3 S (E - β)²

    Two positive examples have the target β(1 - S) and weigh 1, two negative ones have the same and
    weigh ρ, and one of each has the target β and weighs S: unrelated contexts leave it free.
    `share` is the weight of a pair's loss in the step's (in the paper: α, where losses are summed).
    """
    mixed = n_negative == 1
    similarity_target = scale * (1.0 - similarity)
    target = torch.where(mixed, scale, similarity_target)
    like_weight = torch.where(n_negative == 0, 1.0, negative_weight)
    like_weight = like_weight.to(similarity.dtype)
    weight = torch.where(mixed, similarity, like_weight)
    pull = weight * (2.0 * share)
    return DistanceTargets(target, weight, pull)


def distance_loss(codes: Tensor, targets: DistanceTargets, slope: Tensor) -> Tensor:
    """Return the distance loss L_S, equation (3), summed over pairs; add its gradient to `slope`.

    With E = ‖c₁ - c₂‖ of a pair's codes (equation 2), equation (3) is::

        L_S = weight · (E - target)²,   ∂L_S/∂c₁ = 2 weight (1 - target / E) (c₁ - c₂) = -∂L_S/∂c₂

    Codes and slope, (2n, n_components), hold first sides of all pairs, then second ones.
    """
    half = len(codes) // 2
    difference = codes[:half] - codes[half:]
    # The small constant keeps the gradient finite for coinciding codes.
    squared_distance = difference.square().sum(dim=1).add_(1e-12)
    inverse = squared_distance.rsqrt()
    relative_error = 1.0 - targets.target * inverse
    strength = targets.pull * relative_error
    difference *= strength[:, None]
    slope[:half] += difference
    slope[half:] -= difference
    error = relative_error / inverse
    return (targets.weight * error.square()).sum()
