"""Reduction "rbm": a stack of restricted Boltzmann machines, pre-trained layer by layer.

In: features (n, n_features). Out: the probabilities (n, n_components) of the top layer's units
(in the paper: the pre-trained RBM of the appendix, 4096-2048-1024-512).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import ceil
from typing import ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray

from polyseme._persistence import JSON
from polyseme._threads import one_thread
from polyseme._validation import InputError, RandomState, check_number
from polyseme.features.reductions.machine import (
    Float32,
    Schedule,
    hidden_probabilities,
    reconstruction_error,
    train_machine,
)
from polyseme.features.reductions.state import (
    BLOCK_ROWS,
    Arrays,
    Config,
    Reduction,
    State,
    saved_arrays,
)

Layer: TypeAlias = tuple[Float32, Float32]

# Of the probe below, 500 steps gave 0.451 and 800 gave 0.456, in seconds; more were not tried.
_STEPS = 800
_LEAST_EPOCHS = 3
_LOOKED_AT = 1000
_NEAR = 0.02


class BoltzmannStack(Reduction):
    """Reduce features by a stack of restricted Boltzmann machines.

    Parameters
    ----------
    n_components : int
        Units of the top layer, the columns of the result.
    n_layers : int
        Machines in the stack.
    hidden_sizes : sequence of int, optional
        Units of the layers between the features and the top, instead of `n_layers`. None: equal
        ratios, such as 4096 features, 2048, 1024 and 512 units.
    n_epochs : int, optional
        Passes over the rows for each machine. None: as many as make 800 steps, at least 3.
    batch_size : int
        Rows per step.
    learning_rate : float
        Size of the first steps; it falls linearly to nothing.
    momentum : float
        Share of a step that is taken over into the next, in [0, 1).
    weight_decay : float
        Share of the weights that each step takes away, in units of its size.
    random_state : int, numpy.random.Generator or None
        Draws the first weights, the order of the rows and the states of the units.

    Attributes
    ----------
    low_ : float64 array, shape (n_features,)
        The least training value of each column.
    span_ : float64 array, shape (n_features,)
        Half the distance from it to the greatest; 0 for a constant column.
    layers_ : list of (float32 array, float32 array)
        Of each layer the weights (n_below, n_units) and the biases (n_units,).
    diagnostics_ : list of dict
        Of each layer, on training rows: "n_units", "reconstruction_error" (mean squared, of the
        layer below), "mean_activation" and "saturated", the share of activations within 0.02 of
        0 or 1.
    n_components_ : int
    n_features_in_ : int

    Notes
    -----
    Each column is scaled to [0, 1] by the least and the greatest value among the training rows; a
    value outside is clipped, and a constant column becomes 0. Machines have sigmoid units and are
    trained by contrastive divergence with one step; each gets the probabilities of the one below.

    References
    ----------
    Sandouk and Chen, "Multi-Label Zero-Shot Learning via Concept Embedding", 2016, appendix.

    Examples
    --------
    >>> import numpy as np
    >>> from polyseme.features.reductions import BoltzmannStack
    >>> X = np.random.default_rng(0).random((50, 16))
    >>> BoltzmannStack(4, random_state=0).fit_transform(X).shape
    (50, 4)
    """

    # Why not scikit-learn's BernoulliRBM: on emoji drawings (1280-943-695-512, batches of 32, 16
    # epochs) a probe on held-out emoji had a C-MAP of 0.18 over its top layer at the best of four
    # learning rates, and 0.46 over ours, which took 14 s of one core instead of 17.
    # The defaults were chosen by the same probe, which moves by less than 0.01 for rates of 0.2
    # and 0.3, weight decays from 0 to 0.001, and 10 or 16 epochs.

    kind: ClassVar[str] = "rbm"
    layers_: list[Layer]
    diagnostics_: list[dict[str, float]]

    def __init__(
        self,
        n_components: int = 512,
        n_layers: int = 3,
        hidden_sizes: Sequence[int] | None = None,
        n_epochs: int | None = None,
        batch_size: int = 32,
        learning_rate: float = 0.2,
        momentum: float = 0.9,
        weight_decay: float = 2e-4,
        random_state: RandomState = None,
    ) -> None:
        self.n_components = n_components
        self.n_layers = n_layers
        self.hidden_sizes = hidden_sizes
        self.n_epochs = n_epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.momentum = momentum
        self.weight_decay = weight_decay
        self.random_state = random_state

    def learn(self, rows: NDArray[np.float64], generator: np.random.Generator) -> None:
        """Learn the scale of the columns, then one machine after the other."""
        self.low_ = rows.min(axis=0)
        self.span_ = rows.max(axis=0) / 2 - self.low_ / 2  # halves cannot overflow
        self.n_components_ = int(self.n_components)
        with one_thread():
            self._pretrain(self.scale(rows), generator)

    def apply(self, rows: NDArray[np.float64]) -> NDArray[np.float32]:
        """Give the probabilities of the top layer's units, in [0, 1]; see `Reduction.apply`."""
        found = np.empty((len(rows), self.n_components_), dtype=np.float32)
        for start in range(0, len(rows), BLOCK_ROWS):
            block = slice(start, start + BLOCK_ROWS)
            units = self.scale(rows[block])
            for weights, bias in self.layers_:
                units = np.asarray(hidden_probabilities(units, weights, bias))
            found[block] = units
        return found

    def scale(self, rows: NDArray[np.float64]) -> Float32:
        """Bring checked rows (m, n_features) to [0, 1] by the training columns' range."""
        scaled = np.zeros(rows.shape)
        with np.errstate(over="ignore"):
            np.divide(rows / 2 - self.low_ / 2, self.span_, out=scaled, where=self.span_ > 0)
        np.clip(scaled, 0, 1, out=scaled)
        return scaled.astype(np.float32)

    def learned_state(self) -> State:
        """Give layers, scale and diagnostics; see `Reduction.learned_state`."""
        config: dict[str, JSON] = {
            "sizes": [len(bias) for _, bias in self.layers_],
            "diagnostics": [dict(entry) for entry in self.diagnostics_],
        }
        arrays: dict[str, NDArray[np.floating]] = {"low": self.low_, "span": self.span_}
        for number, (weights, bias) in enumerate(self.layers_):
            arrays |= {f"weights_{number}": weights, f"bias_{number}": bias}
        return config, arrays

    def take_state(self, config: Config, arrays: Arrays) -> None:
        """Take back layers, scale and diagnostics; see `Reduction.take_state`."""
        widths = [int(size) for size in (config["n_features_in"], *config["sizes"])]
        shapes: dict[str, tuple[int, ...]] = {"low": (widths[0],), "span": (widths[0],)}
        for number, (below, units) in enumerate(pairwise(widths)):
            shapes |= {f"weights_{number}": (below, units), f"bias_{number}": (units,)}
        held = saved_arrays(arrays, shapes, owner=type(self).__name__)
        self.low_, self.span_ = held["low"], held["span"]
        n_layers = len(widths) - 1
        self.layers_ = [(held[f"weights_{i}"], held[f"bias_{i}"]) for i in range(n_layers)]
        self.diagnostics_ = [dict(entry) for entry in config["diagnostics"]]
        self.n_components_ = widths[-1]

    def check_parameters(self) -> None:
        """Raise an `InputError` that names the first parameter out of its range."""
        owner = type(self).__name__
        for name in ("n_components", "n_layers", "batch_size"):
            check_number(name, getattr(self, name), owner=owner, low=1, whole=True)
        if self.n_epochs is not None:
            check_number("n_epochs", self.n_epochs, owner=owner, low=0, whole=True)
        check_hidden_sizes(self.hidden_sizes, owner=owner)
        check_number("learning_rate", self.learning_rate, owner=owner, low=0, above=True)
        check_number("weight_decay", self.weight_decay, owner=owner, low=0)
        check_number("momentum", self.momentum, owner=owner, low=0)
        if self.momentum >= 1:
            raise InputError(f"`momentum` of `{owner}` must be below 1; got {self.momentum!r}.")

    def _pretrain(self, units: Float32, generator: np.random.Generator) -> None:
        """Train the machines from the bottom up, each on the probabilities of the one below."""
        schedule = self._schedule(len(units))
        self.layers_, self.diagnostics_ = [], []
        for size in self._sizes():
            machine = train_machine(units, size, schedule, generator)
            weights, bias = np.asarray(machine.weights), np.asarray(machine.hidden_bias)
            error = reconstruction_error(units[:_LOOKED_AT], machine)
            units = np.asarray(hidden_probabilities(units, weights, bias))
            looked_at = units[:_LOOKED_AT]
            saturated = np.mean((looked_at < _NEAR) | (looked_at > 1 - _NEAR))
            self.layers_.append((weights, bias))
            self.diagnostics_.append(
                {
                    "n_units": size,
                    "reconstruction_error": error,
                    "mean_activation": float(looked_at.mean(dtype=np.float64)),
                    "saturated": float(saturated),
                }
            )

    def _schedule(self, n: int) -> Schedule:
        """Give the training schedule for n rows."""
        n_epochs = self.n_epochs
        if n_epochs is None:
            n_epochs = max(_LEAST_EPOCHS, ceil(_STEPS / ceil(n / self.batch_size)))
        return Schedule(
            n_epochs, self.batch_size, self.learning_rate, self.momentum, self.weight_decay
        )

    def _sizes(self) -> list[int]:
        """Give the number of units of each layer, from the bottom up."""
        if self.hidden_sizes is not None:
            return [*(int(size) for size in self.hidden_sizes), self.n_components_]
        return layer_sizes(len(self.low_), self.n_components_, self.n_layers)


def layer_sizes(n_features: int, n_components: int, n_layers: int) -> list[int]:
    """Give the sizes of layers in equal ratios, from above the features to the top."""
    ratio = n_components / n_features
    between = [round(n_features * ratio ** (i / n_layers)) for i in range(1, n_layers)]
    return [*between, n_components]


def check_hidden_sizes(sizes: object, *, owner: str) -> None:
    """Raise unless the sizes of layers are None or whole numbers from 1 on."""
    if sizes is None:
        return
    right = isinstance(sizes, Sequence | np.ndarray) and not isinstance(sizes, str)
    if not right:
        raise InputError(
            f"`hidden_sizes` of `{owner}` must be None or a sequence of whole numbers; "
            f"got {sizes!r}."
        )
    for size in sizes:  # type: ignore[attr-defined]  # a sequence, as checked above
        check_number("hidden_sizes", size, owner=owner, low=1, whole=True)
