"""One restricted Boltzmann machine of sigmoid units, trained by contrastive divergence.

In: rows (n, n_visible) in [0, 1]. Out: weights and biases, and with them the probabilities
(n, n_hidden) of the hidden units. Training is in float32.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from polyseme._validation import FloatArray

Float32: TypeAlias = NDArray[np.float32]

# A column that is always 0 or always 1 still gets a finite bias.
_RARE = 1e-3
# Weights start small enough that every hidden unit starts in the middle of its sigmoid.
_FIRST_SPREAD = 0.01
# The first steps point in different directions and are hardly accumulated.
_FIRST_MOMENTUM = 0.5
_FIRST_EPOCHS = 2
# Hidden units start at probability one half; see `contrastive_gradient`.
_HIDDEN_CENTRE = 0.5


@dataclass(frozen=True)
class Schedule:
    """How a machine is trained; the parameters of `BoltzmannStack` have the same names."""

    n_epochs: int
    batch_size: int
    learning_rate: float
    momentum: float
    weight_decay: float


class Machine(NamedTuple):
    """What a machine has learned, or a direction in which it changes.

    The arrays are weights (n_visible, n_hidden), visible biases (n_visible,) and hidden biases
    (n_hidden,).
    """

    weights: FloatArray
    visible_bias: FloatArray
    hidden_bias: FloatArray


def hidden_probabilities(
    visible: FloatArray, weights: FloatArray, hidden_bias: FloatArray
) -> FloatArray:
    """Give the probability of each hidden unit.

    Parameters
    ----------
    visible : array, shape (n, n_visible)
    weights : array, shape (n_visible, n_hidden)
    hidden_bias : array, shape (n_hidden,)

    Returns
    -------
    array, shape (n, n_hidden)
    """
    return _sigmoid_of_sum(visible @ weights, hidden_bias)


def visible_probabilities(hidden: FloatArray, machine: Machine) -> FloatArray:
    """Give the probability of each visible unit, shape (n, n_visible), from hidden ones."""
    return _sigmoid_of_sum(hidden @ machine.weights.T, machine.visible_bias)


def free_energy(visible: FloatArray, machine: Machine) -> FloatArray:
    """Give the free energy of each row, shape (n,); smaller means more probable."""
    activation = visible @ machine.weights + machine.hidden_bias
    softplus = np.logaddexp(0, activation).sum(axis=1)
    return np.asarray(-(visible @ machine.visible_bias) - softplus)


def reconstruction_error(visible: FloatArray, machine: Machine) -> float:
    """Give the mean squared error of going up to probabilities and down again."""
    up = hidden_probabilities(visible, machine.weights, machine.hidden_bias)
    return float(np.mean((visible - visible_probabilities(up, machine)) ** 2))


def contrastive_gradient(
    visible: FloatArray, machine: Machine, centre: FloatArray, draws: FloatArray
) -> Machine:
    """Estimate by one step of Gibbs sampling (CD-1) in which direction a batch gets likelier.

    Parameters
    ----------
    visible : array, shape (n, n_visible)
        The batch, in [0, 1].
    machine : Machine
    centre : array, shape (n_visible,)
        What the weights see as zero in the visible units: the columns' means.
    draws : array, shape (n, n_hidden)
        Uniform numbers; a hidden unit is on where its number is below its probability.

    Returns
    -------
    Machine
        The direction of each parameter, averaged over the batch.

    Notes
    -----
    Only the hidden states that drive the reconstruction are sampled. Everywhere else
    probabilities stand in for states, which has the same expectation and less noise.

    The weights multiply visible units less `centre` and hidden units less one half, which says
    nothing else than different biases do, but takes the means out of the weights' gradient.
    Without it, activations over features that are mostly near zero drift towards zero as well: in
    the second layer over emoji drawings (rate 0.1, 10 epochs) 14 in a hundred came within 0.02 of
    0 or 1, with it fewer than one in a thousand.
    """
    up = hidden_probabilities(visible, machine.weights, machine.hidden_bias)
    states = (draws < up).astype(up.dtype)
    again = visible_probabilities(states, machine)
    up_again = hidden_probabilities(again, machine.weights, machine.hidden_bias)
    half = up.dtype.type(_HIDDEN_CENTRE)
    weights = (visible - centre).T @ (up - half)
    weights -= (again - centre).T @ (up_again - half)
    weights /= len(visible)
    to_visible = (visible - again).mean(axis=0)
    to_hidden = (up - up_again).mean(axis=0)
    # A step of the centred biases moves the plain ones by what the weights' step shifts as well.
    return Machine(
        weights,
        to_visible - half * weights.sum(axis=1),
        to_hidden - centre @ weights,
    )


def train_machine(
    visible: Float32, n_hidden: int, schedule: Schedule, generator: np.random.Generator
) -> Machine:
    """Train a machine on rows.

    Parameters
    ----------
    visible : float32 array, shape (n, n_visible)
        In [0, 1].
    n_hidden : int
    schedule : Schedule
    generator : numpy.random.Generator
        Draws the first weights, the order of the rows and the states.

    Returns
    -------
    Machine
        Of float32 arrays.
    """
    centre = visible.mean(axis=0, dtype=np.float64).astype(np.float32)
    machine = _first_machine(centre, n_hidden, generator)
    speed = Machine(*(np.zeros_like(part) for part in machine))
    for epoch in range(schedule.n_epochs):
        first = epoch < _FIRST_EPOCHS
        momentum = min(_FIRST_MOMENTUM, schedule.momentum) if first else schedule.momentum
        # The rate falls to nothing: at a constant one the noise of the states stays in.
        rate = schedule.learning_rate * (1 - epoch / schedule.n_epochs)
        order = generator.permutation(len(visible))
        for start in range(0, len(order), schedule.batch_size):
            batch = visible[order[start : start + schedule.batch_size]]
            draws = generator.random((len(batch), n_hidden), dtype=np.float32)
            gradient = contrastive_gradient(batch, machine, centre, draws)
            gradient.weights[...] -= schedule.weight_decay * machine.weights
            for part, pace, step in zip(machine, speed, gradient, strict=True):
                pace *= momentum
                step *= rate
                pace += step
                part += pace
    return machine


def _first_machine(centre: Float32, n_hidden: int, generator: np.random.Generator) -> Machine:
    """Start with small random weights around biases that give the columns' means."""
    weights = generator.standard_normal((len(centre), n_hidden), dtype=np.float32)
    weights *= _FIRST_SPREAD
    share = np.clip(centre, _RARE, 1 - _RARE)
    visible_bias = np.log(share / (1 - share)) - _HIDDEN_CENTRE * weights.sum(axis=1)
    return Machine(weights, visible_bias.astype(np.float32), -(centre @ weights))


def _sigmoid_of_sum(activation: FloatArray, bias: FloatArray) -> FloatArray:
    """Add a bias to fresh activations and take the sigmoid, in place."""
    from scipy.special import expit

    activation += bias
    return np.asarray(expit(activation, out=activation))
