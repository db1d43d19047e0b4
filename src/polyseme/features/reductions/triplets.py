"""Reduction "uth": a stack of Boltzmann machines, fine-tuned to keep which rows are near.

In: features (n, n_features). Out: the top layer's outputs (n, n_components) (in the paper: UTH,
unsupervised triplet hashing, of the appendix).
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from polyseme._persistence import JSON
from polyseme._threads import one_thread
from polyseme._validation import PolysemeWarning, RandomState, check_number
from polyseme.features.reductions.boltzmann import BoltzmannStack, check_hidden_sizes
from polyseme.features.reductions.state import Arrays, Config, Reduction, State
from polyseme.features.reductions.tuning import TuningSettings, fine_tune

# Finding neighbours takes time with the square of the rows; so many tell enough about near and far.
_MOST_ROWS = 10_000


class TripletHashing(Reduction):
    """Reduce features by a stack of Boltzmann machines that is fine-tuned on triplets.

    A triplet is an anchor, one of its nearest rows and a row that is farther from it. The loss is
    max(0, margin + d(anchor, near) - d(anchor, far)), d being the squared distance of outputs.

    Parameters
    ----------
    n_components, n_layers, hidden_sizes
        Of the stack; see `BoltzmannStack`, whose other parameters keep their defaults.
    margin : float
        By how much far must be farther than near, in units of the mean squared distance of two
        rows after pre-training.
    n_neighbors : int
        A near row is one of so many nearest.
    n_steps : int
        The most steps of fine-tuning; 0 leaves the pre-trained stack.
    batch_size : int
        Anchors per step. A step looks at them, at one near row each, and takes all of these that
        are farther from an anchor than its near row as its far ones.
    learning_rate : float
        Of Adam.
    patience : int
        Stop after so many checks in a row, 20 steps apart, without a smaller held-out loss.
    held_out : float
        Share of the rows, in [0, 0.5], 400 at most, whose triplets decide when to stop and which
        layers are kept. Where it makes fewer than 10 rows, all rows are learned from and decide.
    random_state : int, numpy.random.Generator or None

    Attributes
    ----------
    stack_ : BoltzmannStack
        With the fine-tuned layers. Its diagnostics are those of pre-training.
    losses_ : list of float
        Loss on the held-out triplets before the first step and at each check; empty when nothing
        was fine-tuned.
    n_steps_ : int
        The step whose layers were kept.
    n_components_ : int
    n_features_in_ : int

    Notes
    -----
    Distances of the input are those of columns scaled to [0, 1]. Of more than 10,000 rows as many
    are drawn for fine-tuning. Where no row is farther from another than a third one (fewer than
    three rows, or all equal), `fit` warns and the pre-trained stack is kept.

    References
    ----------
    Sandouk and Chen, "Multi-Label Zero-Shot Learning via Concept Embedding", 2016, appendix.

    Examples
    --------
    >>> import numpy as np
    >>> from polyseme.features.reductions import TripletHashing
    >>> X = np.random.default_rng(0).random((50, 16))
    >>> TripletHashing(4, n_steps=20, random_state=0).fit_transform(X).shape
    (50, 4)
    """

    kind: ClassVar[str] = "uth"

    def __init__(
        self,
        n_components: int = 512,
        n_layers: int = 3,
        hidden_sizes: Sequence[int] | None = None,
        margin: float = 0.1,
        n_neighbors: int = 10,
        n_steps: int = 300,
        batch_size: int = 64,
        learning_rate: float = 3e-4,
        patience: int = 10,
        held_out: float = 0.1,
        random_state: RandomState = None,
    ) -> None:
        self.n_components = n_components
        self.n_layers = n_layers
        self.hidden_sizes = hidden_sizes
        self.margin = margin
        self.n_neighbors = n_neighbors
        self.n_steps = n_steps
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.patience = patience
        self.held_out = held_out
        self.random_state = random_state

    def learn(self, rows: NDArray[np.float64], generator: np.random.Generator) -> None:
        """Pre-train the stack and fine-tune it; see `Reduction.learn`."""
        stack = BoltzmannStack(
            self.n_components, self.n_layers, self.hidden_sizes, random_state=generator
        ).fit(rows)
        self.losses_: list[float] = []
        self.n_steps_ = 0
        if self.n_steps:
            self._tune(rows, stack, generator)
        self.stack_, self.n_components_ = stack, stack.n_components_

    def apply(self, rows: NDArray[np.float64]) -> NDArray[np.float32]:
        """Give the outputs of the top layer, in [0, 1]; see `Reduction.apply`."""
        return self.stack_.apply(rows)

    def learned_state(self) -> State:
        """Give the stack and the losses; see `Reduction.learned_state`."""
        stack, arrays = self.stack_.get_state()
        config: dict[str, JSON] = {"stack": stack, "losses": list(self.losses_)}
        return config | {"n_steps": self.n_steps_}, arrays

    def take_state(self, config: Config, arrays: Arrays) -> None:
        """Take back the stack and the losses; see `Reduction.take_state`."""
        self.stack_ = BoltzmannStack.from_state(config["stack"], arrays)
        self.losses_ = [float(loss) for loss in config["losses"]]
        self.n_steps_ = int(config["n_steps"])
        self.n_components_ = self.stack_.n_components_

    def check_parameters(self) -> None:
        """Raise an `InputError` that names the first parameter out of its range."""
        owner = type(self).__name__
        for name in ("n_components", "n_layers", "n_neighbors", "batch_size", "patience"):
            check_number(name, getattr(self, name), owner=owner, low=1, whole=True)
        check_number("n_steps", self.n_steps, owner=owner, low=0, whole=True)
        check_hidden_sizes(self.hidden_sizes, owner=owner)
        for name in ("margin", "learning_rate"):
            check_number(name, getattr(self, name), owner=owner, low=0, above=True)
        check_number("held_out", self.held_out, owner=owner, low=0, high=0.5)

    def _tune(
        self, rows: NDArray[np.float64], stack: BoltzmannStack, generator: np.random.Generator
    ) -> None:
        """Replace the stack's layers by fine-tuned ones."""
        if len(rows) > _MOST_ROWS:
            rows = rows[np.sort(generator.choice(len(rows), _MOST_ROWS, replace=False))]
        settings = TuningSettings(
            margin=self.margin,
            n_neighbors=self.n_neighbors,
            n_steps=self.n_steps,
            batch_size=self.batch_size,
            learning_rate=self.learning_rate,
            patience=self.patience,
            held_out=self.held_out,
        )
        with one_thread():
            tuned = fine_tune(stack.scale(rows), stack.layers_, settings, generator)
        if tuned is None:
            warnings.warn(
                f"`X` has no row that is farther from another than a third one, so "
                f"`{type(self).__name__}` keeps the stack as it was pre-trained.",
                PolysemeWarning,
                stacklevel=4,
            )
            return
        stack.layers_ = tuned.layers
        self.losses_, self.n_steps_ = tuned.losses, tuned.n_steps
