"""Several small networks trained side by side: one product of stacked matrices for all of them.

In: rows of numbers with targets, and which rows each network may see. Out: networks that give
probabilities, each alone or averaged, and codes. Training is in float32.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from polyseme._validation import IntArray

Matrix = NDArray[np.float64]
Floats = NDArray[np.float64] | NDArray[np.float32]
# Inputs, targets and weights of a batch: (n_nets, n, n_inputs), (n_nets, n, n_outputs), and
# weights of either that shape or (n_nets, n, 1).
Batch = tuple[Tensor, Tensor, Tensor]

_WARM_UP = 50
_BLOCK = 4096


@dataclass(frozen=True)
class BankPlan:
    """How a bank is built and trained.

    Attributes
    ----------
    hidden : int
        Rectified units of the first layer.
    code : int
        Units of the second, between -1 and 1: what a network knows of a row.
    dropout : (float, float, float)
        Shares of inputs, hidden units and code units that each step leaves out.
    n_steps, batch_size : int
    learning_rate : float
        Rises over 50 steps and falls to nothing by a cosine.
    decay : float
        Of the weights, as AdamW has it.
    """

    hidden: int
    code: int
    dropout: tuple[float, float, float]
    n_steps: int
    batch_size: int
    learning_rate: float
    decay: float


def enough_steps(plan: BankPlan, n_rows: int, n_steps: int | None) -> BankPlan:
    """Fit a plan's steps to the number of rows.

    Parameters
    ----------
    plan : BankPlan
        Its steps suit some thousand rows.
    n_rows : int
    n_steps : int, optional
        Taken as they are where they are given.

    Returns
    -------
    BankPlan
        With 8 passes over the rows at the least and 100 at the most.
    """
    one_pass = max(n_rows / plan.batch_size, 1.0)
    steps = min(max(plan.n_steps, 8 * one_pass), 100 * one_pass) if n_steps is None else n_steps
    return replace(plan, n_steps=int(steps))


class NetworkBank:
    """Networks of one shape: inputs, rectified units, a code between -1 and 1, logits.

    Parameters
    ----------
    weights : sequence of float32 tensors, shape (n_nets, n_in, n_out)
        Of the three layers.
    biases : sequence of float32 tensors, shape (n_nets, 1, n_out)
    """

    def __init__(self, weights: Sequence[Tensor], biases: Sequence[Tensor]) -> None:
        self.weights = list(weights)
        self.biases = list(biases)

    def __len__(self) -> int:
        return len(self.weights[0])

    @classmethod
    def start(
        cls, n_nets: int, n_inputs: int, priors: Matrix, plan: BankPlan, seed: torch.Generator
    ) -> Self:
        """Make untrained networks that give every output its prior, roughly.

        Parameters
        ----------
        n_nets, n_inputs : int
        priors : float64 array, shape (n_outputs,)
        plan : BankPlan
        seed : torch.Generator
            Draws the first weights.
        """
        sizes = (n_inputs, plan.hidden, plan.code, len(priors))
        weights = [
            torch.randn(n_nets, below, above, generator=seed) * (2 / (below + above)) ** 0.5
            for below, above in pairwise(sizes)
        ]
        biases = [torch.zeros(n_nets, 1, above) for above in sizes[1:]]
        biases[-1] += torch.from_numpy(np.log(priors) - np.log1p(-priors)).float()
        return cls(weights, biases)

    def train(
        self,
        make_batch: Callable[[IntArray, torch.Generator], Batch],
        rows: Sequence[IntArray],
        plan: BankPlan,
        generator: np.random.Generator,
        seed: torch.Generator,
        device: str = "cpu",
    ) -> Self:
        """Train by cross-entropy, all networks at a time.

        Parameters
        ----------
        make_batch : callable
            Takes row numbers (n_nets, batch_size) and a generator, and gives a batch on the
            generator's device.
        rows : sequence of int64 arrays
            The rows that each network may see.
        plan : BankPlan
        generator : numpy Generator
            Draws the rows.
        seed : torch.Generator
            Draws what is left out; on another device, seeds the generator there.
        device : str
            Where to train; the trained networks are on the processor.
        """
        draws = seed
        if device != "cpu":
            draws = torch.Generator(device).manual_seed(seed.initial_seed())
        self.weights = [one.to(device).requires_grad_() for one in self.weights]
        self.biases = [one.to(device).requires_grad_() for one in self.biases]
        parameters = [*self.weights, *self.biases]
        optimizer = torch.optim.AdamW(
            parameters, lr=plan.learning_rate, weight_decay=plan.decay, fused=True
        )
        sizes = np.array([len(some) for some in rows])[:, None]
        for step in range(plan.n_steps):
            warm = min(1.0, (step + 1) / _WARM_UP)
            cosine = 0.5 * (1 + np.cos(np.pi * step / plan.n_steps))
            optimizer.param_groups[0]["lr"] = plan.learning_rate * warm * cosine
            drawn = (generator.random((len(rows), plan.batch_size)) * sizes).astype(np.int64)
            chosen = np.stack([some[one] for some, one in zip(rows, drawn, strict=True)])
            inputs, targets, weights = make_batch(chosen, draws)
            logits = self._logits(inputs, plan.dropout, draws)
            each = functional.binary_cross_entropy_with_logits(logits, targets, reduction="none")
            loss = (each * weights).sum() / targets.shape[1] / targets.shape[2]
            optimizer.zero_grad(set_to_none=True)
            loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
            optimizer.step()
        self.weights = [one.detach().cpu() for one in self.weights]
        self.biases = [one.detach().cpu() for one in self.biases]
        return self

    def probabilities(self, inputs: Floats, members: Sequence[int] | None = None) -> Matrix:
        """Give the mean probability over the networks, or over some of them.

        Parameters
        ----------
        inputs : float array, shape (n, n_inputs)
        members : sequence of int, optional
            Which networks; by default all.

        Returns
        -------
        float64 array, shape (n, n_outputs)
        """
        chosen = range(len(self)) if members is None else members
        found = np.zeros((len(inputs), self.weights[-1].shape[2]))
        for start in range(0, len(inputs), _BLOCK):
            block = slice(start, start + _BLOCK)
            for member in chosen:
                code = self._code_of(inputs[block], member)
                logits = code @ self.weights[-1][member] + self.biases[-1][member]
                found[block] += torch.sigmoid(logits).numpy() / len(chosen)
        return found

    def codes(self, inputs: Floats) -> Matrix:
        """Give the codes of all networks side by side, (n, n_nets * n_code)."""
        found = [self._code_of(inputs, member).numpy() for member in range(len(self))]
        return np.concatenate(found, axis=1).astype(np.float64)

    def get_state(self) -> dict[str, NDArray[Any]]:
        """Give the weights and biases as arrays by name."""
        held = {f"weight{layer}": one.numpy() for layer, one in enumerate(self.weights)}
        return held | {f"bias{layer}": one.numpy() for layer, one in enumerate(self.biases)}

    @classmethod
    def from_state(cls, arrays: dict[str, NDArray[Any]]) -> Self:
        """Rebuild a bank from `get_state`."""
        held = {name: torch.from_numpy(np.array(one)) for name, one in arrays.items()}
        layers = range(len(held) // 2)
        return cls([held[f"weight{one}"] for one in layers], [held[f"bias{one}"] for one in layers])

    def _logits(
        self, inputs: Tensor, dropout: tuple[float, float, float], draws: torch.Generator
    ) -> Tensor:
        """Run all networks on their rows, leaving units out."""
        hidden = _thinned(inputs, dropout[0], draws)
        hidden = torch.relu(torch.baddbmm(self.biases[0], hidden, self.weights[0]))
        hidden = _thinned(hidden, dropout[1], draws)
        code = torch.tanh(torch.baddbmm(self.biases[1], hidden, self.weights[1]))
        return torch.baddbmm(self.biases[2], _thinned(code, dropout[2], draws), self.weights[2])

    def _code_of(self, inputs: Floats, member: int) -> Tensor:
        """Give one network's codes, (n, n_code)."""
        rows = torch.from_numpy(np.ascontiguousarray(inputs, dtype=np.float32))
        hidden = torch.relu(rows @ self.weights[0][member] + self.biases[0][member])
        return torch.tanh(hidden @ self.weights[1][member] + self.biases[1][member])


def _thinned(units: Tensor, share: float, draws: torch.Generator) -> Tensor:
    """Leave out a share of units and strengthen the others."""
    if not share:
        return units
    kept = torch.rand(units.shape, generator=draws, device=units.device) >= share
    return units * kept / (1 - share)
