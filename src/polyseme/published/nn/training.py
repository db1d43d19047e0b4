"""The training loop: batches, stages, early stopping, history, and a state that can be resumed.

In: a network, a document-label matrix, context histograms and a plan. Out: the trained network and
its history. Nothing here knows label strings, files or progress bars.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor

from polyseme.published.nn.losses import context_similarity, distance_loss, prediction_loss
from polyseme.published.nn.networks import ConceptNetwork
from polyseme.published.nn.pairs import Batch, PairSampler
from polyseme.published.nn.plan import TrainingPlan
from polyseme.published.nn.pretraining import pretrain_layer
from polyseme.published.nn.processes import Processes
from polyseme.published.nn.runners import GraphRunner, StepRunner
from polyseme.published.nn.staging import LossSettings, Stager
from polyseme.published.nn.steps import StepGradient

Record = dict[str, Any]


@dataclass
class TrainingState:
    """Everything that the next epoch depends on.

    Attributes
    ----------
    stage, epoch : int
        Index of the current stage and number of its finished epochs.
    history : list of dict
        One record per finished epoch: stage, epoch, losses (of one step in sixteen), validation
        score.
    best_score : float
        The best validation score of the current stage.
    n_stale : int
        Evaluations since then.
    best_weights : dict of str to tensor
        The network's weights at the best score; empty before the first evaluation.
    """

    stage: int = 0
    epoch: int = 0
    history: list[Record] = field(default_factory=list)
    best_score: float = -np.inf
    n_stale: int = 0
    best_weights: dict[str, Tensor] = field(default_factory=dict)


class ConceptTrainer:
    """Train a concept network by stages: pre-training, prediction loss, combined loss.

    Parameters
    ----------
    network : ConceptNetwork
        Trained in place.
    matrix : csr_matrix of bool, shape (n_documents, n_labels)
        The training documents.
    contexts : float32 array, shape (n_documents, n_topics)
        Their histograms, strictly positive.
    plan : TrainingPlan
        How to train.
    loss : LossSettings
        The constants of the loss.
    generator : numpy Generator
        All randomness after the initial weights.
    evaluate : callable, optional
        Gives the network's score on held-out documents, larger is better.
    device : str
        Where the steps are computed; all that is drawn comes from `generator`, wherever that is.
    processes : Processes
        Those that train this network together, each with the same arguments.
    """

    def __init__(
        self,
        network: ConceptNetwork,
        matrix: sp.csr_matrix,
        contexts: NDArray[np.float32],
        plan: TrainingPlan,
        loss: LossSettings,
        generator: np.random.Generator,
        evaluate: Callable[[ConceptNetwork], float] | None = None,
        device: str = "cpu",
        processes: Processes | None = None,
    ) -> None:
        if device != "cpu":
            network.lay_out()
        self.network = network.to(device)
        self.matrix = matrix
        self.contexts = torch.as_tensor(contexts).to(network.output.weight.detach())
        self.processes = Processes() if processes is None else processes
        self.plan = plan
        self.loss = loss
        self.generator = generator
        self.evaluate = evaluate
        self.sampler = PairSampler(
            matrix,
            batch_size=plan.batch_size,
            negatives_per_positive=plan.negatives_per_positive,
            pairing=plan.pairing,
        )
        self.gradient = StepGradient(network, plan.precision == "mixed")
        self.weights = self.gradient.weights.values
        self.processes.agree(self.weights)
        # Updates by graphs need Adam's rate as a number on the GPU.
        self._captured = self.contexts.is_cuda and plan.optimizer == "adam"
        runner = GraphRunner if self._captured else StepRunner
        stager = Stager(matrix, self.contexts, loss, spare=self._captured)
        self.runner = runner(self.gradient, stager, plan.reduction, self.processes)
        self.state = TrainingState()
        self.optimizer = self.new_optimizer()

    @property
    def stages(self) -> list[tuple[str, int]]:
        """The stages in order, each with its largest number of epochs."""
        stages = [("pretrain", self.plan.pretrain_epochs)] * len(self.network.layers)
        stages += [("prediction", self.plan.prediction_epochs), ("siamese", self.plan.max_epochs)]
        return [(name, n_epochs) for name, n_epochs in stages if n_epochs]

    def run(self, after_epoch: Callable[[ConceptTrainer, Record], None] | None = None) -> None:
        """Train until every stage is done, from wherever the state stands.

        Parameters
        ----------
        after_epoch : callable, optional
            Called with the trainer and the epoch's record once the state is whole again: the place
            for checkpoints and progress.
        """
        while self.state.stage < len(self.stages):
            name, n_epochs = self.stages[self.state.stage]
            record = self._epoch(name, n_epochs)
            self.state.history.append(record)
            self.state.epoch += 1
            stop = self._judge(record)
            if stop or self.state.epoch >= n_epochs:
                self._finish_stage()
            if after_epoch is not None:
                after_epoch(self, record)

    # ------------------------------------------------------------------ one epoch

    def _epoch(self, name: str, n_epochs: int) -> Record:
        """Run one epoch of a stage and give its record."""
        rate = self.plan.rate(self.state.epoch, n_epochs)
        for group in self.optimizer.param_groups:
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(rate)
            else:
                group["lr"] = rate
        record: Record = {"stage": name, "epoch": self.state.epoch, "learning_rate": rate}
        if name == "pretrain":
            layer = self.state.stage
            record["layer"] = layer
            record["loss"] = pretrain_layer(
                self.network, layer, self.sampler, self.contexts, self.generator, n_passes=1
            )
            return record
        siamese = name == "siamese"
        sums, n_pairs = self.runner.run(self._batches(), self.optimizer, siamese=siamese)
        prediction, distance = (sums / max(n_pairs, 1)).tolist()
        combined = prediction + self.loss.distance_weight * distance if siamese else prediction
        record.update(loss=combined, prediction_loss=prediction, distance_loss=distance)
        # The prediction stage only prepares: its weights are handed on as they are. So are those
        # of the first epochs, and a score costs as much as many steps.
        if self.evaluate is not None and siamese and self.state.epoch >= self._first:
            record["score"] = self._score(self.evaluate)
        return record

    def _score(self, evaluate: Callable[[ConceptNetwork], float]) -> float:
        """Score the network, in one process for all."""
        score = evaluate(self.network) if self.processes.rank == 0 else 0.0
        return float(self.processes.agree(torch.tensor(score, dtype=torch.float64)))

    def _batches(self) -> Iterator[Batch]:
        """Iterate over an epoch's batches: a whole pass, more up to the least steps, or fewer."""
        if self.plan.max_steps is not None:
            yield from islice(self._passes(), self.plan.max_steps)
        else:
            yield from self._passes()

    def _passes(self) -> Iterator[Batch]:
        """Iterate over the batches of one pass, and of more up to the least steps."""
        n_steps, n_passes = 0, 0
        while n_passes == 0 or n_steps < self.plan.min_steps:
            before = n_steps
            for batch in self.sampler.epoch(self.generator):
                if n_passes and n_steps == self.plan.min_steps:
                    return
                n_steps += 1
                yield batch
            n_passes += 1
            if n_steps == before:
                return

    def batch_losses(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Give each pair's prediction losses, summed over its sides, and its distance loss.

        The loss in plain terms, whose gradient `StepGradient` computes by hand.

        Returns
        -------
        prediction, distance : tensors, shape (n_pairs,)
        """
        device = self.contexts.device
        contexts = self.contexts[torch.from_numpy(batch.document_ids).to(device)]
        codes, activations = self.network(torch.from_numpy(batch.label_ids).to(device), contexts)
        held = torch.from_numpy(self.matrix[batch.document_ids].toarray()).to(device)
        positive = torch.from_numpy(batch.positive).to(device)
        targets = (held == positive[:, None]).to(activations.dtype)
        prediction = prediction_loss(activations, targets, self.loss.weighting)
        similarity = context_similarity(contexts[0::2], contexts[1::2], self.loss.sensitivity)
        distance = distance_loss(
            codes[0::2],
            codes[1::2],
            similarity,
            positive[0::2].int() + positive[1::2].int(),
            scale=self.loss.scale,
            negative_weight=self.loss.negative_weight,
        )
        return prediction[0::2] + prediction[1::2], distance

    # ------------------------------------------------------------------ stopping

    @property
    def _first(self) -> int:
        """The first epoch of the current stage whose weights may be kept."""
        return min(self.plan.min_epochs, self.stages[self.state.stage][1] - 1)

    def _judge(self, record: Record) -> bool:
        """Note a new best score; say whether patience is exhausted."""
        if "score" not in record:
            return False
        if record["score"] > self.state.best_score:
            self.state.best_score = record["score"]
            self.state.n_stale = 0
            self.state.best_weights = {
                name: value.detach().clone() for name, value in self.network.named_parameters()
            }
        else:
            self.state.n_stale += 1
        return self.state.n_stale >= self.plan.patience

    def _finish_stage(self) -> None:
        """Go back to the stage's best weights and open the next stage."""
        if self.state.best_weights:
            self.network.load_state_dict(self.state.best_weights, strict=False)
        self.state.stage += 1
        self.state.epoch = 0
        self.state.n_stale = 0
        self.state.best_weights = {}
        if self.state.stage < len(self.stages):
            self.state.best_score = -np.inf
        self.optimizer = self.new_optimizer()

    def new_optimizer(self) -> torch.optim.Optimizer:
        """Make the optimiser of the plan over all weights, with empty moments."""
        # A card updates parts side by side, and one vector on a few of its processors only.
        n_parts = 64 if self._captured else 1
        parts = [torch.nn.Parameter(part) for part in self.weights.chunk(n_parts)]
        for part, slope in zip(parts, self.gradient.weights.gradient.chunk(n_parts), strict=True):
            part.grad = slope
        rate = self.plan.learning_rate
        if self.plan.optimizer == "sgd":
            return torch.optim.SGD(parts, lr=rate)
        if self._captured:
            held = torch.tensor(rate, device=self.weights.device)
            return torch.optim.Adam(parts, lr=held, fused=True, capturable=True)
        return torch.optim.Adam(parts, lr=rate, fused=self.weights.device.type == "cpu")
