"""What an optimiser over one flat vector remembers, however the vector is cut into parts.

In: a torch optimiser. Out: its memory as flat vectors, which another one takes back.
"""

from __future__ import annotations

import torch
from torch import Tensor


def moments_of(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Copy an optimiser's memory.

    Parameters
    ----------
    optimizer : torch optimiser
        Over consecutive parts of one vector.

    Returns
    -------
    dict of str to tensor
        One vector for each moment, and the number of steps; empty before the first step.
    """
    states = [optimizer.state[part] for part in optimizer.param_groups[0]["params"]]
    if not states[0]:
        return {}
    return {
        key: value.clone() if value.ndim == 0 else torch.cat([state[key] for state in states])
        for key, value in states[0].items()
    }


def put_moments(optimizer: torch.optim.Optimizer, kept: dict[str, Tensor]) -> None:
    """Make an optimiser remember what another one did; nothing, where `kept` is empty.

    Parameters
    ----------
    optimizer : torch optimiser
        Its tensors stay where they are in memory, where it has any.
    kept : dict of str to tensor
        As `moments_of` gives them.
    """
    start = 0
    for part in optimizer.param_groups[0]["params"]:
        state = optimizer.state[part]
        for key in kept or tuple(state):
            value = kept.get(key)
            if value is not None and value.ndim:
                value = value[start : start + len(part)]
            if key in state:
                state[key].copy_(torch.zeros_like(state[key]) if value is None else value)
            elif value is not None:
                state[key] = value.to(part.device, copy=True)
        start += len(part)
