"""The losses of the concept embedding, equations (1) to (3), with their gradients by hand.

In: codes, and the targets of examples and pairs. Out: values, and the gradients that training
follows; `ConceptTrainer.compute_gradient` adds them up, equation (4).

Terms: an *example* is a label in the context of a document. Of a *positive* one the document has
the label, and its target y is the document's labels; of a *negative* one it has not, and its target
is -y. A *pair* is two examples; *codes* are the network's outputs for them, CE in the paper. V is
the number of labels, n of examples or pairs, m of the labels of all examples' documents. A *label
inside* is one of an example's document, whatever the example's sign. Targets may be those of many
batches, stacked in front (...).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import softplus

from polyseme.published.network import Layer, activated_product

WEIGHTINGS = ("balanced", "literal", "none")  # readings of κ; see `positive_weight`
_LOG_TWO = math.log(2.0)


class LossSettings(NamedTuple):
    """Constants of the loss of a pair, equation (4): L = L_P(1) + L_P(2) + α L_S."""

    weighting: str  # reading of κ in equation (1): "balanced", "literal" or "none"
    sensitivity: float  # λ: how fast S falls with the divergence of contexts
    scale: float  # β: the distance of concepts whose contexts have nothing in common
    negative_weight: float  # ρ: of a pair of negative examples, beside 1 for positive ones
    distance_weight: float  # α: of the distance loss beside the prediction loss


def positive_weight(target_share: Tensor, weighting: str = "balanced") -> Tensor:
    """Return the weight κ of equation (1), on the labels j of a target with y_j = 1.

    `target_share` is the share of these among all labels, of any shape. "balanced" is the share of
    labels that are *not* in the target, so that both sides carry the same total weight, as the
    paper's text asks; "literal" the share that is, as its formula prints; "none" one half. A
    negative example's target is the complement of its document.
    """
    if weighting == "none":
        return torch.full_like(target_share, 0.5)
    if weighting == "literal":
        return target_share
    return 1.0 - target_share


class PredictionTargets(NamedTuple):
    """Targets of n examples, as the m labels of their documents.

    With p = sigmoid(2a) of the pre-activation a, equation (1) has the derivative ``u (p - q)`` in
    a of every label outside an example's document and ``v (p - 1 + q)`` of every label inside: u
    and v are the example's weights; q is 0 for a positive example, 1 for a negative one.

    The order of the fields is that of the tensors that `StepInput` lists.
    """

    negative: Tensor  # (..., n): q
    outside: Tensor  # (..., n): u
    factor: Tensor  # (..., n): u as the step's loss weighs it
    places: Tensor  # (..., m) int64: labels inside, in a flat table (n, V); padding is n · V
    scale: Tensor  # (..., m): v / u
    offset: Tensor  # (..., m): added to v / u · p, so that u is the factor of labels inside too
    inside: Tensor  # (..., m): v, or 0 for padding
    instead: Tensor  # (..., m): u, which labels inside were counted with at first; 0 for padding
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

    Parameters
    ----------
    places, owners : int64 tensors, shape (..., m)
        Each label inside: its place in a flat table (n, V), and the number of its example.
    lengths : int64 tensor, shape (..., n)
        The number of labels of each example's document.
    negative : tensor, shape (..., n)
        1 for a negative example, else 0.
    n_labels : int
        V.
    weighting : {"balanced", "literal", "none"}
        The reading of κ.
    share : float
        The weight of an example's loss in the step's.
    """
    positive = negative == 0
    share_inside = lengths.to(negative.dtype) / n_labels
    share_outside = 1.0 - share_inside
    target_share = torch.where(positive, share_inside, share_outside)
    kappa = positive_weight(target_share, weighting)
    # Of each 4, 2 are from 1 ± y, and 2 from the derivative of log(1 ± tanh a).
    target_weight = 4.0 * kappa / n_labels
    complement_kappa = 1.0 - kappa
    complement_weight = 4.0 * complement_kappa / n_labels
    outside = torch.where(positive, complement_weight, target_weight)
    inside = torch.where(positive, target_weight, complement_weight)
    # A weight of zero outside happens when a document holds every label, under "literal".
    # `scale` divides by it, so it becomes a small number, whose inverse is finite too.
    smallest = torch.finfo(torch.float32).tiny
    least_weight = smallest**0.5
    outside = outside.clamp_min(least_weight)

    # One value for each label inside, from the example that owns it.
    v = inside.gather(-1, owners)
    u = outside.gather(-1, owners)
    q = negative.gather(-1, owners)
    scale = v / u
    n_examples = negative.shape[-1]
    table_size = n_examples * n_labels
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
    negative: the logarithms are of 1 ± ŷ, which reach 2.

    Parameters
    ----------
    codes : tensor, shape (n, n_components)
    output : Layer
        The output layer, which predicts labels from codes.
    targets : PredictionTargets
        Of one batch.
    gradient : Layer
        Filled with the output layer's gradient.
    look : bool
        Whether to compute the loss, which costs a pass of its own.
    room : tensor, shape (n + 1, V), optional
        Memory for the table of predictions, where a new one would take longer to get. The last row
        takes the padding of `places`.

    Returns
    -------
    slope : tensor, shape (n, n_components)
        The gradient in the codes, as the step's loss weighs it.
    loss : tensor of one number or None
        L_P summed over examples, without the step's weight; None without `look`.
    """
    # Labels outside a document are nearly all. So the sigmoid is taken once; the few labels inside
    # are patched such that one factor u serves the whole row; and u and q enter after the matrix
    # products, where they cost a row instead of a table.
    doubled_codes = 2.0 * codes
    doubled_bias = 2.0 * output.bias
    if room is None:
        activation = "none" if look else "sigmoid"
        table = activated_product(doubled_codes, output.weight, doubled_bias, activation)
        flat_table = table.view(-1)
    else:
        table = room[:-1]
        flat_table = room.view(-1)
        transposed = output.weight.t()
        torch.addmm(doubled_bias, doubled_codes, transposed, out=table)
    loss = None
    if look:
        loss = _prediction_value(table, flat_table, targets)
    if look or room is not None:
        flat_table.sigmoid_()

    # The table holds p; inside it becomes v / u · p + offset, so that u (table - q) is the
    # derivative of every label.
    inside = flat_table.index_select(0, targets.places)
    patched = torch.addcmul(targets.offset, targets.scale, inside)
    flat_table.scatter_(0, targets.places, patched)

    negative = targets.negative
    factor = targets.factor
    factor_column = factor[:, None]
    by_label = table.t()
    weighted_codes = codes * factor_column
    torch.mm(by_label, weighted_codes, out=gradient.weight)
    torch.mv(by_label, factor, out=gradient.bias)
    gradient.weight.sub_(negative @ weighted_codes)
    gradient.bias.sub_(negative @ factor)

    slope = activated_product(table, output.weight.t())
    weight_sums = output.weight.sum(dim=0)
    slope.addmm_(
        negative[:, None],
        weight_sums[None],
        alpha=-1.0,
    )
    slope.mul_(factor_column)
    return slope, loss


def _prediction_value(table: Tensor, flat_table: Tensor, targets: PredictionTargets) -> Tensor:
    """Sum equation (1) over examples.

    `table` holds 2a, (n, V); `flat_table` is the same memory as a vector, with the room for padding
    behind it.
    """
    side = 1.0 - 2.0 * targets.negative
    side_column = side[:, None]
    signed = side_column * table
    n_labels = table.shape[1]
    constant = _LOG_TWO * n_labels
    terms = softplus(signed)
    row_sums = terms.sum(dim=1)
    row_sums -= constant
    weighted_sums = targets.outside * row_sums
    # Labels inside were counted with the weight and the sign of those outside.
    inside = flat_table[targets.places]
    inside = inside * targets.side
    as_inside = softplus(-inside)
    as_inside = as_inside - _LOG_TWO
    as_outside = softplus(inside)
    as_outside = as_outside - _LOG_TWO
    correction = targets.inside * as_inside
    correction -= targets.instead * as_outside
    total = weighted_sums.sum() + correction.sum()
    # The targets' weights are those of the derivative, which is twice as large.
    return 0.5 * total


def context_similarity(first: Tensor, second: Tensor, sensitivity: float) -> Tensor:
    """Compute the similarity S of contexts, (n, n_topics) each, to (n,); see equation (3).

    S = exp(-λ/2 · KL), where KL = Σ (p - q) log(p / q) is the symmetric divergence of two topic
    histograms, which are strictly positive. It is 1 where the histograms are equal. `sensitivity`
    is λ.
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
    """Targets of n pairs: each case of equation (3) is ``weight · (E - target)²``.

    The order of the fields is that of the tensors that `StepInput` lists.
    """

    target: Tensor  # (..., n): the distance that a pair should have, 0 to β
    weight: Tensor  # (..., n)
    pull: Tensor  # (..., n): twice the weight, as the step's loss weighs it


def distance_targets(
    similarity: Tensor, n_negative: Tensor, *, scale: float, negative_weight: float, share: float
) -> DistanceTargets:
    """Choose each pair's case of equation (3).

    With an indicator I of each case it is::

        L_S = I1 (E - β(1 - S))² + I2 ρ (E - β(1 - S))² + I3 S (E - β)²

    Two positive examples have the target β(1 - S) and weigh 1, two negative ones have the same and
    weigh ρ, and one of each has the target β and weighs S: unrelated contexts leave it free.

    Parameters
    ----------
    similarity : tensor, shape (..., n)
        S of each pair's contexts.
    n_negative : tensor, shape (..., n)
        How many sides of each pair are negative examples: 0, 1 or 2.
    scale, negative_weight : float
        β and ρ.
    share : float
        The weight of a pair's loss in the step's (in the paper: α, where losses are summed).
    """
    mixed = n_negative == 1
    dissimilarity = 1.0 - similarity
    similarity_target = scale * dissimilarity
    target = torch.where(mixed, scale, similarity_target)
    both_positive = n_negative == 0
    like_weight = torch.where(both_positive, 1.0, negative_weight)
    like_weight = like_weight.to(similarity.dtype)
    weight = torch.where(mixed, similarity, like_weight)
    doubled_share = 2.0 * share
    pull = weight * doubled_share
    return DistanceTargets(target, weight, pull)


def distance_loss(codes: Tensor, targets: DistanceTargets, slope: Tensor) -> Tensor:
    """Return the distance loss L_S, equation (3), summed over pairs; add its gradient to `slope`.

    With E = ‖c₁ - c₂‖ of a pair's codes (equation 2), equation (3) is::

        L_S = weight · (E - target)²,   ∂L_S/∂c₁ = 2 weight (1 - target / E) (c₁ - c₂) = -∂L_S/∂c₂

    Codes and slope, (2n, n_components), hold first sides of all pairs, then second ones.
    """
    n_pairs = len(codes) // 2
    first_codes = codes[:n_pairs]
    second_codes = codes[n_pairs:]
    difference = first_codes - second_codes
    squares = difference.square()
    squared_distance = squares.sum(1)
    # The small constant keeps the gradient finite for coinciding codes.
    squared_distance.add_(1e-12)
    inverse_distance = squared_distance.rsqrt()
    relative_target = targets.target * inverse_distance
    relative_error = 1.0 - relative_target
    strength = targets.pull * relative_error
    difference *= strength[:, None]
    slope[:n_pairs] += difference
    slope[n_pairs:] -= difference
    error = relative_error / inverse_distance
    losses = targets.weight * error.square()
    return losses.sum()
