"""How the concept network is trained: a plain record of choices that imports nothing heavy."""

from __future__ import annotations

from polyseme._estimator import Estimator
from polyseme._validation import check_number, check_option


class TrainingPlan(Estimator):
    """Optimiser, schedule, sampling and stopping of the concept network.

    Parameters
    ----------
    optimizer : {"adam", "sgd"}
        "sgd" is the paper's.
    learning_rate : float
        Initial rate (in the paper: 1e-4 for MagTag5K, 5e-6 for HSUN).
    schedule : {"cosine", "step"}
        "cosine" falls to zero over `max_epochs`; "step" multiplies the rate by `decay` every
        `decay_every` epochs, as the paper does.
    decay, decay_every : float, int
        For "step" (in the paper: 0.95, 200).
    reduction : {"mean", "sum"}
        Whether the losses of a batch's pairs are averaged or, as the paper's rates need, summed.
    batch_size : int
        Examples (sides of pairs) a step, positive and negative together.
    min_steps : int
        Steps an epoch at the least: over a small corpus, one epoch passes over the examples more
        than once.
    max_steps : int, optional
        Steps an epoch at the most: over a large corpus, one epoch is a sample of the examples.
    max_epochs : int
        The most epochs with the combined loss.
    min_epochs : int
        Epochs before the first one whose weights may be kept: early in training the held-out score
        is already high while the space is still shapeless.
    patience : int
        Epochs without improvement after which training stops.
    validation_fraction : float
        Share of the documents held out for early stopping; 0 trains for `max_epochs`.
    negatives_per_positive : int
        Synthetic negative examples for each positive one, drawn anew every epoch.
    pairing : {"random", "document"}
        Which examples meet in a pair: any two of a batch, or (often) two of one document.
    pretrain_epochs : int
        Epochs of greedy layer-wise pre-training per layer; 0 leaves it out.
    prediction_epochs : int
        Epochs with the prediction loss alone before the combined loss.
    precision : {"single", "mixed"}
        "mixed" multiplies with the output layer in bfloat16: faster where there are many labels,
        and coarser.
    """

    def __init__(
        self,
        optimizer: str = "adam",
        learning_rate: float = 1e-3,
        schedule: str = "cosine",
        decay: float = 0.95,
        decay_every: int = 200,
        reduction: str = "mean",
        batch_size: int = 1024,
        min_steps: int = 40,
        max_epochs: int = 50,
        min_epochs: int = 30,
        patience: int = 10,
        validation_fraction: float = 0.1,
        negatives_per_positive: int = 1,
        pairing: str = "random",
        pretrain_epochs: int = 0,
        prediction_epochs: int = 0,
        max_steps: int | None = None,
        precision: str = "single",
    ) -> None:
        self.optimizer = optimizer
        self.learning_rate = learning_rate
        self.schedule = schedule
        self.decay = decay
        self.decay_every = decay_every
        self.reduction = reduction
        self.batch_size = batch_size
        self.min_steps = min_steps
        self.max_epochs = max_epochs
        self.min_epochs = min_epochs
        self.patience = patience
        self.validation_fraction = validation_fraction
        self.negatives_per_positive = negatives_per_positive
        self.pairing = pairing
        self.pretrain_epochs = pretrain_epochs
        self.prediction_epochs = prediction_epochs
        self.max_steps = max_steps
        self.precision = precision

    def check(self) -> None:
        """Raise an `InputError` that names the first parameter out of its range."""
        owner = type(self).__name__
        check_option("optimizer", self.optimizer, ("adam", "sgd"), owner=owner)
        check_option("schedule", self.schedule, ("cosine", "step"), owner=owner)
        check_option("reduction", self.reduction, ("mean", "sum"), owner=owner)
        check_option("precision", self.precision, ("single", "mixed"), owner=owner)
        check_option("pairing", self.pairing, ("random", "document"), owner=owner)
        check_number("learning_rate", self.learning_rate, owner=owner, low=0, above=True)
        check_number("decay", self.decay, owner=owner, low=0, high=1, above=True)
        check_number("validation_fraction", self.validation_fraction, owner=owner, low=0, high=0.9)
        whole = {
            "batch_size": 2,
            "min_steps": 1,
            "max_epochs": 1,
            "min_epochs": 0,
            "patience": 1,
            "decay_every": 1,
            "negatives_per_positive": 0,
            "pretrain_epochs": 0,
            "prediction_epochs": 0,
        }
        if self.max_steps is not None:
            whole["max_steps"] = 1
        for name, low in whole.items():
            check_number(name, getattr(self, name), owner=owner, low=low, whole=True)

    def rate(self, epoch: int, n_epochs: int) -> float:
        """Give the learning rate of an epoch (counted from 0) in a stage of `n_epochs`."""
        import math

        if self.schedule == "step":
            return float(self.learning_rate * self.decay ** (epoch // self.decay_every))
        return float(0.5 * self.learning_rate * (1.0 + math.cos(math.pi * epoch / n_epochs)))
