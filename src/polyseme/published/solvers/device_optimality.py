"""Projection, optimality conditions and biases with tensors (part of the device's solver).

In and out: as in `projection` and `optimality`, which say why; one output per row.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, TypeAlias

from polyseme._validation import FloatArray

if TYPE_CHECKING:
    import torch

    Tensor: TypeAlias = torch.Tensor

_INF = float("inf")


@dataclass
class DeviceOutputs:
    """Unfinished outputs, one per row; see `Outputs`."""

    rows: Tensor
    y: Tensor
    C: Tensor
    budget: Tensor
    z: Tensor
    u: Tensor
    threshold: Tensor

    @classmethod
    def start(
        cls, y: FloatArray, bound: FloatArray, nu: float, device: torch.device
    ) -> DeviceOutputs:
        """Begin with targets (d, n), bounds (d,) and coefficients of 0."""
        import torch

        held, bounds = torch.from_numpy(y).to(device), torch.from_numpy(bound).to(device)
        zeros = torch.zeros_like(held)
        return cls(
            rows=torch.arange(len(held), device=device),
            y=held,
            C=bounds[:, None],
            budget=bounds * (nu * held.shape[1]),
            z=zeros,
            u=zeros.clone(),
            threshold=torch.zeros_like(bounds),
        )

    def keep(self, mask: Tensor) -> DeviceOutputs:
        """Drop the outputs whose mask is False."""
        return DeviceOutputs(*(getattr(self, field.name)[mask] for field in fields(self)))


def project(v: Tensor, bound: Tensor, budget: Tensor, threshold: Tensor) -> tuple[Tensor, Tensor]:
    """Project each row onto ``|z| <= bound`` and ``sum(|z|) <= budget``.

    Parameters
    ----------
    v : tensor, shape (d, n)
    bound : tensor, shape (d, 1)
    budget, threshold : tensors, shape (d,)

    Returns
    -------
    z : tensor, shape (d, n)
    threshold : tensor, shape (d,)
    """
    import torch

    size = v.abs()
    inside = torch.minimum(size, bound).sum(dim=1) <= budget
    low, high = torch.zeros_like(budget), size.amax(dim=1)
    threshold = torch.where(inside, low, threshold.clamp(min=low, max=high))
    eps = torch.finfo(v.dtype).eps
    for _ in range(60):
        rest = size - threshold[:, None]
        slope = ((rest > 0) & (rest < bound)).sum(dim=1)
        excess = torch.minimum(rest.clamp_(min=0), bound).sum(dim=1) - budget
        low = torch.where(excess > 0, threshold, low)
        high = torch.where(excess > 0, high, threshold)
        found = inside | (excess.abs() <= 16 * eps * budget) | (high - low <= 2 * eps * high)
        if bool(found.all()):
            break
        step = threshold + excess / slope.clamp(min=1)
        outside = (step <= low) | (step >= high) | (slope == 0)
        threshold = torch.where(found, threshold, torch.where(outside, (low + high) / 2, step))
    size -= threshold[:, None]
    return torch.copysign(torch.minimum(size.clamp_(min=0), bound), v), threshold


def balance(z: Tensor, state: DeviceOutputs) -> None:
    """Shift the free coefficients of each sign so that both signs have the sum they must have."""
    import torch

    sums, free = [], []
    for sign in (1, -1):
        side = sign * z
        sums.append(side.clamp(min=0).sum(dim=1, dtype=torch.float64))
        free.append((side > 0) & (side < state.C))
    counts = [mask.sum(dim=1) for mask in free]
    wanted = torch.where(counts[0] == 0, sums[0], (sums[0] + sums[1]) / 2)
    wanted = torch.where(counts[1] == 0, sums[1], wanted)
    half = state.budget.double() / 2
    wanted = torch.where(state.threshold > 0, half, torch.minimum(wanted, half))
    for sign, total, mask, count in zip((1, -1), sums, free, counts, strict=True):
        shift = ((wanted - total) / count.clamp(min=1)).to(z.dtype)[:, None]
        moved = sign * torch.minimum((sign * z + shift).clamp_(min=0), state.C)
        z.copy_(torch.where(mask, moved, z))


def violation(z: Tensor, t: Tensor, state: DeviceOutputs) -> Tensor:
    """Return by how much each output fails the optimality conditions (0: optimal), float64."""
    import torch

    upper_low, upper_high, lower_low, lower_high = _edges(z, t, state)
    with_tube = torch.maximum(upper_low - upper_high, lower_low - lower_high)
    failed = torch.where(state.threshold > 0, with_tube, upper_low - lower_high)
    total = z.abs().sum(dim=1, dtype=torch.float64)
    off = z.sum(dim=1, dtype=torch.float64).abs()
    over = (total - state.budget).abs()
    off = torch.where(state.threshold > 0, torch.maximum(off, over), off)
    return torch.where(off <= 1e-5 * state.budget, failed.double(), _INF)


def bias(z: Tensor, t: Tensor, state: DeviceOutputs) -> Tensor:
    """Return the bias of each output, float64: the middle of the tube's two edges."""
    import torch

    upper_low, upper_high, lower_low, lower_high = _edges(z, t, state)
    free = z.abs() < state.C

    def edge(mask: Tensor, low: Tensor, high: Tensor) -> Tensor:
        count = mask.sum(dim=1)
        mean = torch.where(mask, t, 0).sum(dim=1, dtype=torch.float64) / count.clamp(min=1)
        return torch.where(count > 0, mean, ((low + high) / 2).double())

    tube = edge(free & (z > 0), upper_low, upper_high)
    tube = (tube + edge(free & (z < 0), lower_low, lower_high)) / 2
    return torch.where(state.threshold > 0, tube, edge(free, upper_low, lower_high))


def _edges(z: Tensor, t: Tensor, state: DeviceOutputs) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the bounds that the rows put on bias + tube and on bias - tube."""
    import torch

    return (
        torch.where(z < state.C, t, -_INF).amax(dim=1),
        torch.where(z > 0, t, _INF).amin(dim=1),
        torch.where(z < 0, t, -_INF).amax(dim=1),
        torch.where(z > -state.C, t, _INF).amin(dim=1),
    )
