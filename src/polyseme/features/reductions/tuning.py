"""Fine-tuning of a pre-trained stack so that near rows stay nearer than far ones.

In: rows (n, n_features) in [0, 1] and the stack's layers. Out: layers under whose top outputs the
order of distances agrees better with that of the rows. Uses torch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from polyseme._validation import IntArray
from polyseme.features.reductions.boltzmann import Layer
from polyseme.features.reductions.machine import Float32
from polyseme.features.reductions.neighbours import nearest_rows, squared_distances

if TYPE_CHECKING:
    from torch import Tensor

# Distances closer than this share are ties: float32 cannot tell which row is farther.
_TIE = 1e-4
_CHECK_EVERY = 20
_MOST_HELD_OUT = 400
# Of fewer rows none are held out; the loss on the training rows then decides.
_LEAST_HELD_OUT = 10


@dataclass(frozen=True)
class TuningSettings:
    """How a stack is fine-tuned; the parameters of `TripletHashing` have the same names."""

    margin: float
    n_neighbors: int
    n_steps: int
    batch_size: int
    learning_rate: float
    patience: int
    held_out: float


@dataclass(frozen=True)
class Triplets:
    """Anchors with a near row each; far is every row that is farther from the anchor.

    Attributes
    ----------
    rows : float32 array, shape (m, n_features)
        The first of them are the anchors.
    near : int64 array, shape (n_anchors,)
        The row near each anchor.
    farther : bool array, shape (n_anchors, m)
        Which rows are farther from the anchor than its near row.
    """

    rows: Float32
    near: IntArray
    farther: np.ndarray[tuple[int, int], np.dtype[np.bool_]]


@dataclass(frozen=True)
class Tuned:
    """What fine-tuning gives: layers, the held-out loss at each check, and the step chosen."""

    layers: list[Layer]
    losses: list[float]
    n_steps: int


def make_triplets(rows: Float32, near: IntArray) -> Triplets:
    """Compare the distances of rows to the anchors, which are the first rows."""
    distances = squared_distances(rows[: len(near)], rows)
    limit = distances[np.arange(len(near)), near]
    # The scale of the rows themselves: what rounding leaves of the distance of two equal rows.
    rounding = _TIE * float(np.mean(distances))
    farther = distances > (limit * (1 + _TIE) + rounding)[:, None]
    return Triplets(rows, near, farther)


def draw_triplets(
    rows: Float32, anchors: IntArray, neighbours: IntArray, generator: np.random.Generator
) -> Triplets:
    """Draw one near row for each anchor; the anchors and near rows of others serve as far ones.

    Parameters
    ----------
    rows : float32 array, shape (n, n_features)
    anchors : int64 array, shape (n_anchors,)
        Numbers of rows.
    neighbours : int64 array, shape (n_anchors, k)
        The numbers of the rows nearest to each.
    generator : numpy.random.Generator

    Returns
    -------
    Triplets
        Of 2 n_anchors rows, the near ones after the anchors.
    """
    n_anchors = len(anchors)
    chosen = generator.integers(neighbours.shape[1], size=n_anchors)
    partners = neighbours[np.arange(n_anchors), chosen]
    near = np.arange(n_anchors, 2 * n_anchors, dtype=np.int64)
    return make_triplets(rows[np.concatenate([anchors, partners])], near)


def kept_order(outputs: Float32, triplets: Triplets) -> float:
    """Give the share of triplets whose near row is nearer in the outputs (m, n_components) too."""
    distances = squared_distances(outputs[: len(triplets.near)], outputs)
    limit = distances[np.arange(len(triplets.near)), triplets.near]
    return float(np.mean((distances > limit[:, None])[triplets.farther]))


def triplet_loss(outputs: Tensor, triplets: Triplets, margin: float) -> Tensor:
    """Give the mean hinge loss max(0, margin + d(anchor, near) - d(anchor, far)).

    Parameters
    ----------
    outputs : tensor, shape (m, n_components)
        Of the triplets' rows. d is the squared distance.
    triplets : Triplets
        With at least one far row.
    margin : float

    Returns
    -------
    tensor, a scalar
    """
    import torch

    n_anchors = len(triplets.near)
    lengths = outputs.square().sum(dim=1)
    anchors = outputs[:n_anchors]
    distances = lengths[:n_anchors, None] + lengths - 2 * anchors @ outputs.T
    near = distances[torch.arange(n_anchors), torch.from_numpy(triplets.near)]
    hinge = (margin + near[:, None] - distances).clamp(min=0)
    return hinge[torch.from_numpy(triplets.farther)].mean()


def fine_tune(
    rows: Float32, layers: list[Layer], settings: TuningSettings, generator: np.random.Generator
) -> Tuned | None:
    """Fine-tune by Adam, and keep the layers with the least loss on held-out triplets.

    Parameters
    ----------
    rows : float32 array, shape (n, n_features)
    layers : list of (weights, bias)
        The pre-trained stack; it is left as it is.
    settings : TuningSettings
    generator : numpy.random.Generator
        Draws the held-out rows and the triplets.

    Returns
    -------
    Tuned or None
        None where there is no triplet: no row is farther from another than a third one.
    """
    import torch

    held, kept = _split(len(rows), settings.held_out, generator)
    learning = np.ascontiguousarray(rows[kept])
    k = min(settings.n_neighbors, len(learning) - 1)
    if k < 1:
        return None
    # Held-out anchors find their near rows among all: among the held-out alone, none is near.
    check = draw_triplets(rows, held, nearest_rows(rows, k, held), generator)
    if not check.farther.any():
        return None
    neighbours = nearest_rows(learning, k)
    parameters = [torch.tensor(part, requires_grad=True) for layer in layers for part in layer]
    with torch.no_grad():
        margin = settings.margin * _mean_distance(_outputs(check.rows, parameters))
    optimizer = torch.optim.Adam(parameters, lr=settings.learning_rate)
    best = _Best(parameters)
    best.check(0, check, margin)
    for step in range(1, settings.n_steps + 1):
        size = min(settings.batch_size, len(learning))
        anchors = generator.choice(len(learning), size, replace=False)
        batch = draw_triplets(learning, anchors, neighbours[anchors], generator)
        if batch.farther.any():
            optimizer.zero_grad()
            loss = triplet_loss(_outputs(batch.rows, parameters), batch, margin)
            loss.backward()  # type: ignore[no-untyped-call]  # torch's own
            optimizer.step()
        if step % _CHECK_EVERY == 0 or step == settings.n_steps:
            best.check(step, check, margin)
            if best.checks_since >= settings.patience:
                break
    return Tuned(best.layers(), best.losses, best.step)


class _Best:
    """The parameters with the least loss so far."""

    def __init__(self, parameters: list[Tensor]) -> None:
        self.parameters = parameters
        self.losses: list[float] = []
        self.step = 0
        self.checks_since = 0
        self._kept: list[Tensor] = []

    def check(self, step: int, triplets: Triplets, margin: float) -> None:
        """Measure the loss, and keep a copy of the parameters when it is the least."""
        import torch

        with torch.no_grad():
            outputs = _outputs(triplets.rows, self.parameters)
            loss = float(triplet_loss(outputs, triplets, margin))
        self.checks_since += 1
        if not self.losses or loss < min(self.losses):
            self.step, self.checks_since = step, 0
            self._kept = [part.detach().clone() for part in self.parameters]
        self.losses.append(loss)

    def layers(self) -> list[Layer]:
        """Give the kept parameters as layers of numpy arrays."""
        arrays = [np.ascontiguousarray(part.numpy()) for part in self._kept]
        return list(zip(arrays[::2], arrays[1::2], strict=True))


def _split(n: int, share: float, generator: np.random.Generator) -> tuple[IntArray, IntArray]:
    """Draw the rows to hold out and those to learn from; both are all rows where there are few."""
    n_held = min(int(share * n), _MOST_HELD_OUT)
    order = generator.permutation(n)
    if n_held < _LEAST_HELD_OUT:
        return order[:_MOST_HELD_OUT], order
    return order[:n_held], order[n_held:]


def _outputs(rows: Float32, parameters: list[Tensor]) -> Tensor:
    """Give the top layer's probabilities of rows, shape (m, n_components)."""
    import torch

    units = torch.from_numpy(rows)
    for weights, bias in zip(parameters[::2], parameters[1::2], strict=True):
        units = torch.sigmoid(torch.addmm(bias, units, weights))
    return units


def _mean_distance(outputs: Tensor) -> float:
    """Give the mean squared distance of two rows: twice the sum of the columns' variances."""
    spread = float(outputs.var(dim=0, correction=0).sum())
    return 2 * spread
