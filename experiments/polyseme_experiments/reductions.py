"""Reductions of the paper's Appendix A: features become fewer, learned on training rows only.

In: a name and features (n, n_features). Out: a transformer to (n, n_components): "pca" (principal
components), "rbm" (stacked restricted Boltzmann machines) or "uth" (these, fine-tuned on triplets).
"""

from __future__ import annotations

from collections.abc import Callable
from math import ceil
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from polyseme.base.estimator import Estimator, TransformerMixin
from polyseme.base.threads import one_thread
from polyseme.base.validation import FloatArray, IntArray, RandomState, as_generator
from polyseme_experiments.definitions import find

if TYPE_CHECKING:
    from torch import Tensor

Float32: TypeAlias = NDArray[np.float32]
Layer: TypeAlias = tuple[Float32, Float32]

N_LAYERS = 3
# As many passes over the rows as make 800 steps a machine (500 gave 0.451 instead of 0.456 in the
# probe below), but at least 3.
STEPS, LEAST_EPOCHS = 800, 3
BATCH, LEARNING_RATE, MOMENTUM, WEIGHT_DECAY = 32, 0.2, 0.9, 2e-4
# The first steps point in different directions and are hardly accumulated.
FIRST_MOMENTUM, FIRST_EPOCHS = 0.5, 2

# A step of fine-tuning looks at so many anchors and takes all rows that are farther than near ones.
ANCHORS, TUNING_RATE, N_NEIGHBORS = 64, 3e-4, 10
# By how much far must be farther than near, in mean squared distances of two rows.
MARGIN = 0.1
# Stop after so many checks in a row, 20 steps apart, without a smaller held-out loss.
PATIENCE, CHECK_EVERY = 10, 20
# Of fewer rows none are held out; the loss on the training rows then decides.
HELD_OUT, LEAST_HELD_OUT, MOST_HELD_OUT = 0.1, 10, 400
# Finding neighbours takes time with the square of the rows; so many tell enough of near and far.
MOST_ROWS = 10_000

# A column that is always 0 or always 1 still gets a finite bias.
_RARE = 1e-3
# Distances closer than this share are ties: float32 cannot tell which row is farther.
_TIE = 1e-4
_BLOCK_ROWS = 1024


def make_reduction(name: str, n_components: int, random_state: RandomState = None) -> Any:
    """Make an unfitted transformer to `n_components` columns: "pca", "rbm" or "uth"."""
    from sklearn.decomposition import PCA

    makers: dict[str, Callable[[], Any]] = {
        "pca": lambda: PCA(n_components, svd_solver="full"),
        "rbm": lambda: BoltzmannStack(n_components, random_state=random_state),
        "uth": lambda: BoltzmannStack(n_components, tuning_steps=300, random_state=random_state),
    }
    return find("reduction", name, makers)()


class BoltzmannStack(TransformerMixin, Estimator):  # type: ignore[misc]  # untyped mixin
    """A stack of three restricted Boltzmann machines, fine-tuned on triplets or not.

    Columns are scaled to [0, 1] by their range among the training rows; values outside are clipped.
    Machines have sigmoid units and are trained by contrastive divergence with one step, each on the
    probabilities of the one below; layers shrink in equal ratios, as 4096-2048-1024-512.
    Fine-tuning (in the paper: UTH, unsupervised triplet hashing) lowers the hinge loss
    max(0, margin + d(anchor, near) - d(anchor, far)), d being the squared distance of outputs, near
    one of the nearest rows of the anchor in the input, and far a row that is farther.

    Parameters
    ----------
    n_components : int
        Units of the top layer, the columns of the result.
    tuning_steps : int
        The most steps of fine-tuning.
    random_state : int, numpy.random.Generator or None

    Attributes
    ----------
    low_, span_ : float64 array, shape (n_features,)
        The least training value of each column, and half the distance to the greatest.
    layers_ : list of (float32 array, float32 array)
        Of each layer the weights (n_below, n_units) and the biases (n_units,).
    losses_, n_steps_ : list of float, int
        Loss on held-out triplets at each check, and the step whose layers were kept.
    """

    # Why not scikit-learn's BernoulliRBM: on emoji drawings (1280-943-695-512, batches of 32, 16
    # epochs) a probe on held-out emoji had a C-MAP of 0.18 over its top layer at the best of four
    # learning rates, and 0.46 over ours, which took 14 s of one core instead of 17.

    def __init__(
        self, n_components: int = 512, tuning_steps: int = 0, random_state: RandomState = None
    ) -> None:
        self.n_components = n_components
        self.tuning_steps = tuning_steps
        self.random_state = random_state

    def fit(self, X: ArrayLike, y: object = None) -> Self:
        """Learn the scale of the columns of X (n, n_features), the machines, and fine-tune them."""
        rows = np.asarray(X, dtype=np.float64)
        generator = as_generator(self.random_state)
        self.low_ = rows.min(axis=0)
        high = rows.max(axis=0)
        self.span_ = high / 2 - self.low_ / 2  # halves cannot overflow
        self.losses_: list[float] = []
        self.n_steps_ = 0
        with one_thread():
            units = self._scaled(rows)
            sizes = layer_sizes(rows.shape[1], self.n_components)
            self.layers_ = _pretrained(units, sizes, generator)
            if self.tuning_steps:
                if len(units) > MOST_ROWS:
                    sample = generator.choice(len(units), MOST_ROWS, replace=False)
                    units = units[np.sort(sample)]
                tuned = fine_tune(units, self.layers_, self.tuning_steps, generator)
                self.layers_, self.losses_, self.n_steps_ = tuned
        return self

    def transform(self, X: ArrayLike) -> Float32:
        """Return the probabilities of the top layer's units, (m, n_components)."""
        rows = np.asarray(X, dtype=np.float64)
        units = self._scaled(rows)
        for weights, bias in self.layers_:
            activation = units @ weights
            units = np.asarray(_sigmoid_of_sum(activation, bias))
        return units

    def _scaled(self, rows: NDArray[np.float64]) -> Float32:
        """Bring rows (m, n_features) to [0, 1] by the training columns' range."""
        scaled = np.zeros(rows.shape)
        with np.errstate(over="ignore"):
            shifted = rows / 2 - self.low_ / 2
            varies = self.span_ > 0
            np.divide(shifted, self.span_, out=scaled, where=varies)
        np.clip(scaled, 0, 1, out=scaled)
        return scaled.astype(np.float32)


def layer_sizes(n_features: int, n_components: int, n_layers: int = N_LAYERS) -> list[int]:
    """Return the sizes of layers in equal ratios, from above the features to the top."""
    ratio = n_components / n_features
    sizes = []
    for layer in range(1, n_layers):
        size = n_features * ratio ** (layer / n_layers)
        sizes.append(round(size))
    sizes.append(n_components)
    return sizes


class Machine(NamedTuple):
    """What a machine has learned, or a direction in which it changes."""

    weights: FloatArray  # (n_visible, n_hidden)
    visible_bias: FloatArray  # (n_visible,)
    hidden_bias: FloatArray  # (n_hidden,)


def contrastive_gradient(
    visible: FloatArray, machine: Machine, centre: FloatArray, draws: FloatArray
) -> Machine:
    """Estimate by one step of Gibbs sampling (CD-1) in which direction a batch gets likelier.

    The batch (n, n_visible) lies in [0, 1]; `centre` (n_visible,) is what the weights see as zero,
    the columns' means; a hidden unit is on where its uniform number (n, n_hidden) is below its
    probability.

    Only the hidden states that drive the reconstruction are sampled. Everywhere else
    probabilities stand in for states, which has the same expectation and less noise.

    The weights multiply visible units less `centre` and hidden units less one half, which says
    nothing else than different biases do, but takes the means out of the weights' gradient; else
    activations over features that are mostly near zero drift towards zero as well.
    """
    hidden = _sigmoid_of_sum(visible @ machine.weights, machine.hidden_bias)
    states = (draws < hidden).astype(hidden.dtype)
    reconstruction = _sigmoid_of_sum(states @ machine.weights.T, machine.visible_bias)
    hidden_after = _sigmoid_of_sum(reconstruction @ machine.weights, machine.hidden_bias)
    half = hidden.dtype.type(0.5)
    weights = (visible - centre).T @ (hidden - half)
    weights -= (reconstruction - centre).T @ (hidden_after - half)
    weights /= len(visible)
    # A step of the centred biases moves the plain ones by what the weights' step shifts as well.
    visible_bias = (visible - reconstruction).mean(axis=0)
    hidden_bias = (hidden - hidden_after).mean(axis=0)
    visible_step = visible_bias - half * weights.sum(axis=1)
    hidden_step = hidden_bias - centre @ weights
    return Machine(weights, visible_step, hidden_step)


def train_machine(
    visible: Float32, n_hidden: int, n_epochs: int, generator: np.random.Generator
) -> Machine:
    """Train a machine on rows (n, n_visible) in [0, 1]; its arrays are float32."""
    centre = visible.mean(axis=0, dtype=np.float64).astype(np.float32)
    # Small random weights around biases that give the columns' means.
    weights = 0.01 * generator.standard_normal((len(centre), n_hidden), dtype=np.float32)
    share = np.clip(centre, _RARE, 1 - _RARE)
    log_odds = np.log(share / (1 - share))
    visible_bias = log_odds - 0.5 * weights.sum(axis=1)
    hidden_bias = -(centre @ weights)
    machine = Machine(weights, visible_bias.astype(np.float32), hidden_bias)
    speed = Machine(*map(np.zeros_like, machine))
    for epoch in range(n_epochs):
        momentum = FIRST_MOMENTUM if epoch < FIRST_EPOCHS else MOMENTUM
        # The rate falls to nothing: at a constant one the noise of the states stays in.
        rate = LEARNING_RATE * (1 - epoch / n_epochs)
        order = generator.permutation(len(visible))
        for start in range(0, len(order), BATCH):
            batch = visible[order[start : start + BATCH]]
            draws = generator.random((len(batch), n_hidden), dtype=np.float32)
            gradient = contrastive_gradient(batch, machine, centre, draws)
            gradient.weights[...] -= WEIGHT_DECAY * machine.weights
            for parameter, velocity, step in zip(machine, speed, gradient, strict=True):
                velocity *= momentum
                step *= rate
                velocity += step
                parameter += velocity
    return machine


def _pretrained(units: Float32, sizes: list[int], generator: np.random.Generator) -> list[Layer]:
    """Train the machines from the bottom up, each on the probabilities of the one below."""
    n_batches = ceil(len(units) / BATCH)
    n_epochs = max(LEAST_EPOCHS, ceil(STEPS / n_batches))
    layers = []
    for size in sizes:
        machine = train_machine(units, size, n_epochs, generator)
        weights = np.asarray(machine.weights)
        bias = np.asarray(machine.hidden_bias)
        layers.append((weights, bias))
        activation = units @ weights
        probabilities = _sigmoid_of_sum(activation, bias)
        units = np.asarray(probabilities)
    return layers


def _sigmoid_of_sum(activation: FloatArray, bias: FloatArray) -> FloatArray:
    """Add a bias to fresh activations and take the sigmoid, in place."""
    from scipy.special import expit

    activation += bias
    return np.asarray(expit(activation, out=activation))


class Triplets(NamedTuple):
    """Anchors with a near row each; far is every row that is farther from the anchor."""

    rows: Float32  # (m, n_features), the anchors first
    near: IntArray  # (n_anchors,): the row near each anchor
    farther: NDArray[np.bool_]  # (n_anchors, m): which rows are farther than the near one


def squared_distances(queries: Float32, rows: Float32) -> Float32:
    """Return squared distances, shape (n_queries, n_rows)."""
    query_lengths = np.einsum("ij,ij->i", queries, queries)
    row_lengths = np.einsum("ij,ij->i", rows, rows)
    distances = queries @ rows.T
    distances *= -2
    distances += query_lengths[:, None]
    distances += row_lengths
    np.maximum(distances, 0, out=distances)
    return distances


def nearest_rows(rows: Float32, k: int, of: IntArray) -> IntArray:
    """Find the k nearest other rows of some rows, (m, k), in no particular order."""
    nearest = np.empty((len(of), k), dtype=np.int64)
    for start in range(0, len(of), _BLOCK_ROWS):
        block = of[start : start + _BLOCK_ROWS]
        stop = start + len(block)
        distances = squared_distances(rows[block], rows)
        places = np.arange(len(block))
        distances[places, block] = np.inf  # a row is not its own neighbour
        order = np.argpartition(distances, k - 1, axis=1)
        nearest[start:stop] = order[:, :k]
    return nearest


def make_triplets(rows: Float32, near: IntArray) -> Triplets:
    """Compare the distances of rows to the anchors, which are the first rows."""
    anchors = rows[: len(near)]
    distances = squared_distances(anchors, rows)
    near_distances = distances[np.arange(len(near)), near]
    # The scale of the rows themselves: what rounding leaves of the distance of two equal rows.
    rounding = _TIE * float(np.mean(distances))
    limits = near_distances * (1 + _TIE) + rounding
    farther = distances > limits[:, None]
    return Triplets(rows, near, farther)


def draw_triplets(
    rows: Float32, anchors: IntArray, neighbours: IntArray, generator: np.random.Generator
) -> Triplets:
    """Draw one near row for each anchor among its neighbours (n_anchors, k); all others are far."""
    n_anchors, n_neighbours = neighbours.shape
    choices = generator.integers(n_neighbours, size=n_anchors)
    partners = neighbours[np.arange(n_anchors), choices]
    near = np.arange(n_anchors, 2 * n_anchors, dtype=np.int64)
    members = np.concatenate([anchors, partners])
    return make_triplets(rows[members], near)


def triplet_loss(outputs: Tensor, triplets: Triplets, margin: float) -> Tensor:
    """Return the mean hinge loss of outputs (m, n_components) of the triplets' rows."""
    import torch

    n_anchors = len(triplets.near)
    anchors = outputs[:n_anchors]
    lengths = outputs.square().sum(dim=1)
    products = 2 * anchors @ outputs.T
    distances = lengths[:n_anchors, None] + lengths - products
    places = torch.arange(n_anchors)
    near_rows = torch.from_numpy(triplets.near)
    near = distances[places, near_rows]
    differences = margin + near[:, None] - distances
    hinge = differences.clamp(min=0)
    farther = torch.from_numpy(triplets.farther)
    return hinge[farther].mean()


def fine_tune(
    rows: Float32, layers: list[Layer], n_steps: int, generator: np.random.Generator
) -> tuple[list[Layer], list[float], int]:
    """Fine-tune a stack on rows (n, n_features) by Adam, for at most `n_steps`.

    Returns the layers with the least loss on held-out triplets, that loss at each check, and the
    step they are from; where there is no triplet (no row is farther from another than a third
    one), what came in.
    """
    import torch

    order = generator.permutation(len(rows))
    n_held = min(int(HELD_OUT * len(rows)), MOST_HELD_OUT)
    held_out_rows = order[:n_held]
    train_rows = order[n_held:]
    if n_held < LEAST_HELD_OUT:
        held_out_rows = order[:MOST_HELD_OUT]
        train_rows = order
    learning = np.ascontiguousarray(rows[train_rows])
    k = min(N_NEIGHBORS, len(learning) - 1)
    if k < 1:
        return layers, [], 0
    # Held-out anchors find their near rows among all: among the held-out alone, none is near.
    held_out_neighbours = nearest_rows(rows, k, held_out_rows)
    check = draw_triplets(rows, held_out_rows, held_out_neighbours, generator)
    if not check.farther.any():
        return layers, [], 0
    neighbours = nearest_rows(learning, k, np.arange(len(learning)))
    parameters = []
    for weights, bias in layers:
        parameters.append(torch.tensor(weights, requires_grad=True))
        parameters.append(torch.tensor(bias, requires_grad=True))
    with torch.no_grad():
        # The mean squared distance of two rows is twice the sum of the columns' variances.
        spread = _outputs(check.rows, parameters).var(dim=0, correction=0).sum()
    margin = MARGIN * 2 * float(spread)
    optimizer = torch.optim.Adam(parameters, lr=TUNING_RATE)
    losses: list[float] = []
    best = list(layers)
    best_step = 0
    checks_since = 0
    for step in range(n_steps + 1):
        if step:
            size = min(ANCHORS, len(learning))
            anchors = generator.choice(len(learning), size, replace=False)
            batch = draw_triplets(learning, anchors, neighbours[anchors], generator)
            if batch.farther.any():
                optimizer.zero_grad()
                outputs = _outputs(batch.rows, parameters)
                loss = triplet_loss(outputs, batch, margin)
                loss.backward()  # type: ignore[no-untyped-call]  # torch's own
                optimizer.step()
        if step % CHECK_EVERY and step != n_steps:
            continue
        with torch.no_grad():
            outputs = _outputs(check.rows, parameters)
            held_out_loss = float(triplet_loss(outputs, check, margin))
        checks_since += 1
        if held_out_loss < min(losses, default=np.inf):
            arrays = [parameter.detach().numpy().copy() for parameter in parameters]
            best = list(zip(arrays[::2], arrays[1::2], strict=True))
            best_step = step
            checks_since = 0
        losses.append(held_out_loss)
        if checks_since >= PATIENCE:
            break
    return best, losses, best_step


def _outputs(rows: Float32, parameters: list[Tensor]) -> Tensor:
    """Return the top layer's probabilities of rows, shape (m, n_components)."""
    import torch

    units = torch.from_numpy(rows)
    layers = zip(parameters[::2], parameters[1::2], strict=True)
    for weights, bias in layers:
        activation = torch.addmm(bias, units, weights)
        units = torch.sigmoid(activation)
    return units
