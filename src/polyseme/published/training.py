"""Training of the concept network (in the paper: section 3.2.3): loop, early stopping, checkpoints.

In: a network, a document-label matrix, context histograms and a plan. Out: the trained network and
its history. Only the checkpoint knows label strings.

Terms: a *stage* is pre-training of one layer, training by the prediction loss alone, or by the
combined loss of equation (4). An *epoch* is a run of steps of a stage, a *step* one update of the
weights from one batch of pairs. A *score* is that of `error_free_score`, on held-out documents.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import groupby, islice
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import linear

from polyseme.base.estimator import Estimator
from polyseme.base.validation import (
    IntArray,
    RandomState,
    as_generator,
    check_number,
    check_option,
    draw_seed,
)
from polyseme.documents.corpus import unique_rows
from polyseme.metrics import example_map
from polyseme.published.index import ConceptIndex
from polyseme.published.losses import LossSettings, distance_loss, prediction_loss
from polyseme.published.network import ConceptNetwork, encode_documents, row_means, uses_onednn
from polyseme.published.pairs import Collator, PairBatch, PairSampler, StepInput
from polyseme.storage.array_checks import (
    Anything,
    Array,
    Choice,
    Csr,
    Fields,
    ListOf,
    MappingOf,
    Maybe,
    Number,
    Plain,
    Text,
    Whole,
    check_arrays,
    check_parts,
    name_folder_in_errors,
    name_part_in_errors,
    require,
)
from polyseme.storage.checkpoints import other_training, read_checkpoint
from polyseme.storage.model_file import join_states, part_arrays, write_model

Record = dict[str, Any]  # of an epoch: stage, epoch, learning_rate, loss and what a stage adds

# Losses cost a pass of their own, so they are computed at one step in so many.
LOOK_EVERY = 16
# Numbers of a table of predictions that is new memory in each step; a larger one would come page by
# page from the system, so it is used again.
_MOST_NEW = 2**22
# Runs of a step on a GPU before it is captured as a graph.
_WARM_UP_RUNS = 3
# Documents whose labels are scored at a time, which changes no score.
_SCORED_TOGETHER = 1000
# The most documents of early stopping: those held out, and those whose concepts are known.
_MOST_HELD_OUT = 1000
_MOST_KNOWN = 100_000


@dataclass(repr=False, eq=False)  # both are scikit-learn's
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
    pretrain_epochs : int
        Epochs of greedy layer-wise pre-training per layer; 0 leaves it out.
    prediction_epochs : int
        Epochs with the prediction loss alone before the combined loss.
    max_steps : int, optional
        Steps an epoch at the most: over a large corpus, one epoch is a sample of the examples.
    """

    optimizer: str = "adam"
    learning_rate: float = 1e-3
    schedule: str = "cosine"
    decay: float = 0.95
    decay_every: int = 200
    reduction: str = "mean"
    batch_size: int = 1024
    min_steps: int = 40
    max_epochs: int = 50
    min_epochs: int = 30
    patience: int = 10
    validation_fraction: float = 0.1
    negatives_per_positive: int = 1
    pretrain_epochs: int = 0
    prediction_epochs: int = 0
    max_steps: int | None = None

    def check(self) -> None:
        """Raise an `InputError` that names the first parameter out of its range."""
        owner = type(self).__name__
        check_option("optimizer", self.optimizer, ("adam", "sgd"), owner=owner)
        check_option("schedule", self.schedule, ("cosine", "step"), owner=owner)
        check_option("reduction", self.reduction, ("mean", "sum"), owner=owner)
        check_number("learning_rate", self.learning_rate, owner=owner, low=0, above=True)
        check_number("decay", self.decay, owner=owner, low=0, high=1, above=True)
        check_number("validation_fraction", self.validation_fraction, owner=owner, low=0, high=0.9)
        least_counts = {
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
            least_counts["max_steps"] = 1
        for name, least in least_counts.items():
            count = getattr(self, name)
            check_number(name, count, owner=owner, low=least, whole=True)

    def rate(self, epoch: int, n_epochs: int) -> float:
        """Return the learning rate of an epoch (counted from 0) in a stage of `n_epochs`.

        "cosine" is half a wave, from the initial rate down towards 0 in each stage.
        """
        initial_rate = float(self.learning_rate)
        if self.schedule == "step":
            n_decays = epoch // self.decay_every
            decay = self.decay**n_decays
            return float(initial_rate * decay)
        phase = math.pi * epoch / n_epochs
        height = 1.0 + math.cos(phase)
        return 0.5 * initial_rate * height


class ConceptTrainer:
    """Train a concept network by stages: pre-training, prediction loss, combined loss.

    Parameters
    ----------
    network : ConceptNetwork
        Trained in place, or a copy of it where it is on another device.
    matrix : boolean csr_matrix, shape (n_documents, n_labels)
    contexts : float32 array, shape (n_documents, n_topics)
        The documents' topic histograms, strictly positive.
    plan : TrainingPlan
    loss : LossSettings
    generator : numpy.random.Generator
        Draws all that is random after the initial weights.
    evaluate : callable, optional
        Returns the network's score on held-out documents; larger is better. None: training stops
        after the plan's epochs, with the last weights.
    device : str
        Where to train, as torch names it.

    Attributes
    ----------
    network : ConceptNetwork
        The trained network, on the device.
    stages : list of (str, int)
        Names and numbers of epochs of the stages; of pre-training one for each layer.
    gradient : tensor, one-dimensional
        That of the last step, laid out as the network's `weights`.
    stage, epoch, n_stale : int
        Finished stages, finished epochs of the present one, epochs since its best score.
    history : list of dict
        The records of all finished epochs.
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
    ) -> None:
        self.network = network.to(device)
        weights = self.network.weights
        self.contexts = torch.as_tensor(contexts).to(weights)
        self.plan = plan
        self.loss = loss
        self.generator = generator
        self.evaluate = evaluate
        self.sampler = PairSampler(matrix, plan.batch_size, plan.negatives_per_positive)
        self.collate = Collator(matrix, self.contexts, loss)
        self.gradient = torch.zeros_like(weights)
        self._layer_gradients = self.network.views(self.gradient)
        # Prediction and distance loss, summed over the pairs of the steps that were looked at.
        self._losses = torch.zeros(2, dtype=torch.float64, device=weights.device)
        # Memory for predictions, by the number of examples.
        self._rooms: dict[int, Tensor] = {}
        # Captured graphs and their inputs, by numbers of examples and places and `look`.
        self._graphs: dict[tuple[int, int, bool], tuple[Any, list[Tensor]]] = {}
        n_layers = len(self.network.layers)
        stages = [("pretrain", plan.pretrain_epochs)] * n_layers
        stages.append(("prediction", plan.prediction_epochs))
        stages.append(("siamese", plan.max_epochs))
        self.stages = [(name, n_epochs) for name, n_epochs in stages if n_epochs]
        # The state, which a checkpoint saves.
        self.stage = 0
        self.epoch = 0
        self.n_stale = 0
        self.history: list[Record] = []
        self.best_score = -math.inf
        self.best_weights: Tensor | None = None
        self.optimizer = self._new_optimizer()

    def run(self, after_epoch: Callable[[Record], None] | None = None) -> None:
        """Train from wherever the state stands; `after_epoch` gets each record when it is whole."""
        n_stages = len(self.stages)
        while self.stage < n_stages:
            _, n_epochs = self.stages[self.stage]
            record = self._epoch()
            self.history.append(record)
            self.epoch += 1
            if "score" in record:
                score = record["score"]
                self._compare_score(score)
            is_stale = self.n_stale >= self.plan.patience
            if is_stale or self.epoch >= n_epochs:
                self._finish_stage()
            if after_epoch is not None:
                after_epoch(record)

    def _compare_score(self, score: float) -> None:
        """Store the weights if their score is the stage's best so far."""
        self.n_stale += 1
        if score > self.best_score:
            self.best_score = score
            self.n_stale = 0
            self.best_weights = self.network.weights.clone()

    def _epoch(self) -> Record:
        """Run one epoch of the current stage and return its record."""
        stage, n_epochs = self.stages[self.stage]
        rate = self.plan.rate(self.epoch, n_epochs)
        parameter_group = self.optimizer.param_groups[0]
        parameter_group["lr"] = rate
        record: Record = {
            "stage": stage,
            "epoch": self.epoch,
            "learning_rate": rate,
        }
        if stage == "pretrain":
            # Stages of pre-training come first, one for each layer.
            layer_number = self.stage
            loss = pretrain_layer(
                self.network,
                layer_number,
                self.sampler.epoch(self.generator),
                self.contexts,
                self.generator,
            )
            record["layer"] = layer_number
            record["loss"] = loss
            return record

        siamese = stage == "siamese"
        batches = self._batches()
        prediction, distance = self.take_steps(batches, siamese=siamese)
        loss = prediction
        if siamese:
            loss += self.loss.distance_weight * distance
        record["loss"] = loss
        record["prediction_loss"] = prediction
        record["distance_loss"] = distance
        # The prediction stage only prepares: its weights are handed on as they are. So are those
        # of the first epochs, and a score costs as much as many steps.
        first_scored = min(self.plan.min_epochs, n_epochs - 1)
        if self.evaluate is not None and siamese and self.epoch >= first_scored:
            record["score"] = self.evaluate(self.network)
        return record

    def _batches(self) -> Iterator[PairBatch]:
        """Yield an epoch's batches: a whole pass, more up to the least steps, or fewer.

        A further pass stops at the plan's least number of steps, any at its most.
        """
        n_steps = 0
        n_passes = 0
        while n_passes == 0 or 0 < n_steps < self.plan.min_steps:
            for batch in self.sampler.epoch(self.generator):
                if n_passes and n_steps == self.plan.min_steps:
                    return
                n_steps += 1
                yield batch
                if n_steps == self.plan.max_steps:
                    return
            n_passes += 1

    def take_steps(
        self, batches: Iterable[PairBatch], *, siamese: bool = True
    ) -> tuple[float, float]:
        """Take one step for each batch; the distance loss counts only with `siamese`.

        Return the prediction and the distance loss of a pair, on average over one step in sixteen.
        """
        self._losses.zero_()
        n_pairs = 0
        step_number = 0
        on_gpu = self.contexts.is_cuda
        is_mean = self.plan.reduction == "mean"
        for n_examples, same_size in groupby(batches, key=lambda batch: len(batch.label_ids)):
            share = 2.0 / n_examples if is_mean else 1.0
            # Steps made together: what caches hold on a processor; on a GPU some 500 MB for thirty
            # topics.
            most_steps = 16
            if on_gpu:
                steps_in_memory = 2**29 // (400 * n_examples)
                most_steps = max(8, min(256, steps_in_memory))
            while block := list(islice(same_size, most_steps)):
                # Fewer steps do not repay the capture of a graph.
                captured = on_gpu and len(block) >= LOOK_EVERY
                compute = self._replay if captured else self.compute_gradient
                steps = self.collate(
                    block,
                    share=share,
                    siamese=siamese,
                    one_size=captured,
                )
                for step in steps:
                    look = step_number % LOOK_EVERY == 0
                    compute(step, look)
                    self.optimizer.step()
                    if look:
                        n_pairs += n_examples // 2
                    step_number += 1
        mean_losses = self._losses / max(n_pairs, 1)
        prediction, distance = mean_losses.tolist()
        return prediction, distance

    @torch.no_grad()
    def compute_gradient(self, step: StepInput, look: bool = True) -> None:
        """Fill `gradient` with that of the loss, equation (4); `look` adds up the losses too."""
        activations = self.network.forward(step.label_ids, step.contexts)
        codes = activations.layers[-1]
        # L_P of both sides of all pairs, then α L_S.
        slope, prediction = prediction_loss(
            codes,
            self.network.output,
            step.prediction,
            self._layer_gradients[-1],
            look=look,
            room=self._room(len(codes)),
        )
        distance = distance_loss(codes, step.distance, slope)
        self.network.backward(slope, activations, self._layer_gradients)
        if prediction is not None:
            self._losses += torch.stack([prediction, distance])

    def _room(self, n_examples: int) -> Tensor | None:
        """Return memory for the predictions of a step, (n_examples + 1, n_labels).

        None where oneDNN gets new memory quickly. The memory is used again by later steps.
        """
        n_labels = self.network.n_labels
        weights = self.network.weights
        n_entries = n_examples * n_labels
        if n_entries <= _MOST_NEW and uses_onednn(weights):
            return None
        if n_examples not in self._rooms:
            shape = (n_examples + 1, n_labels)
            self._rooms[n_examples] = weights.new_zeros(shape)
        return self._rooms[n_examples]

    def _replay(self, step: StepInput, look: bool) -> None:
        """Compute the gradient of a step on a GPU as a graph, captured once for each size."""
        # A step is some fifty small kernels; to launch them one by one takes longer than they do.
        n_examples = len(step.label_ids)
        n_places = len(step.prediction.places)
        key = (n_examples, n_places, look)
        if key not in self._graphs:
            # Warming up adds to the losses; they are put back.
            losses = self._losses.clone()
            copies = [tensor.clone() for tensor in step.tensors]
            static_step = StepInput.of(copies)
            stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]  # torch's own
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):  # the libraries get ready outside of the graph
                for _ in range(_WARM_UP_RUNS):
                    self.compute_gradient(static_step, look)
            torch.cuda.current_stream().wait_stream(stream)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                self.compute_gradient(static_step, look)
            self._losses.copy_(losses)
            self._graphs[key] = graph, static_step.tensors
        # A graph reads its inputs where they were when it was captured.
        graph, inputs = self._graphs[key]
        torch._foreach_copy_(inputs, step.tensors)
        graph.replay()

    # ------------------------------------------------------------------ stages

    def _finish_stage(self) -> None:
        """Go back to the stage's best weights and open the next stage."""
        if self.best_weights is not None:
            self.network.weights.copy_(self.best_weights)
        self.stage += 1
        self.epoch = 0
        self.n_stale = 0
        self.best_weights = None
        if self.stage < len(self.stages):
            self.best_score = -math.inf
        self.optimizer = self._new_optimizer()

    def _new_optimizer(self) -> torch.optim.Optimizer:
        """Return the optimiser of the plan over the vector of all weights, with empty moments."""
        plan = self.plan
        rate = plan.learning_rate
        vector = torch.nn.Parameter(self.network.weights)
        vector.grad = self.gradient
        parameters = [vector]
        if plan.optimizer == "sgd":
            return torch.optim.SGD(parameters, lr=rate)
        return torch.optim.Adam(
            parameters,
            lr=rate,
            fused=True,
        )

    # ------------------------------------------------------------------ state

    def get_state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return where training stands between two epochs, as JSON values and arrays.

        The names of both are the format of a checkpoint on disk; see `_TRAINER_SCHEMA`.
        """
        tensors = {"weights": self.network.weights}
        for name, moment in self._moments.items():
            tensors[f"optimizer.{name}"] = moment
        if self.best_weights is not None:
            tensors["best"] = self.best_weights
        config: dict[str, Any] = {
            "stage": self.stage,
            "epoch": self.epoch,
            "n_stale": self.n_stale,
            "history": self.history,
            "best_score": None if math.isinf(self.best_score) else self.best_score,
            "generator": self.generator.bit_generator.state,
        }
        arrays = {name: tensor.cpu().numpy() for name, tensor in tensors.items()}
        return config, arrays

    def set_state(self, config: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
        """Go to where `get_state` stood; the next epochs are the same to the last bit.

        The trainer must be made as the other one was; arrays are checked and copied.
        """
        weights = self.network.weights
        is_adam = self.plan.optimizer == "adam"
        _TRAINER_SCHEMA.check(config)
        _check_arrays_of(arrays, len(weights), adam=is_adam)
        stage = config["stage"]
        epoch = config["epoch"]
        require(stage <= len(self.stages), "stage", "one of the plan's")
        epoch_bounds = [n_epochs for _, n_epochs in self.stages]
        epoch_bounds.append(1)  # after the last stage
        require(epoch < epoch_bounds[stage], "epoch", "one of its stage's")

        self.stage = stage
        self.epoch = epoch
        self.n_stale = config["n_stale"]
        self.history = list(config["history"])
        best_score = config["best_score"]
        self.best_score = -math.inf if best_score is None else best_score
        self.generator.bit_generator.state = config["generator"]
        saved_weights = torch.tensor(arrays["weights"])
        weights.copy_(saved_weights)
        self.best_weights = None
        if "best" in arrays:
            best_weights = torch.tensor(arrays["best"])
            self.best_weights = best_weights.to(weights)
        self.optimizer = self._new_optimizer()
        saved_moments = part_arrays(arrays, "optimizer")
        for name, array in saved_moments.items():
            moment = torch.tensor(array)
            self._moments[name] = moment.to(weights)

    @property
    def _moments(self) -> dict[str, Tensor]:
        """The optimiser's moments of the weights by torch's names; empty before its first step."""
        (vector,) = self.optimizer.param_groups[0]["params"]
        return self.optimizer.state[vector]  # type: ignore[no-any-return]  # torch's own


def pretrain_layer(
    network: ConceptNetwork,
    number: int,
    batches: Iterable[PairBatch],
    contexts: Tensor,
    generator: np.random.Generator,
    *,
    learning_rate: float = 1e-2,
    noise: float = 0.1,
) -> float:
    """Train a layer as a denoising auto-encoder with tied weights, by plain gradient descent.

    The paper names greedy layer-wise pre-training without details; rate and noise are our choice.

    Parameters
    ----------
    network : ConceptNetwork
        Its layer is trained in place.
    number : int
        The layer, from 0; those below it are not changed.
    batches : iterable of PairBatch
        A step of gradient descent is taken for each.
    contexts : tensor, shape (n_documents, n_topics)
    generator : numpy.random.Generator
        Draws the inputs that are set to zero.
    learning_rate : float
    noise : float
        The share of inputs that are set to zero.

    Returns
    -------
    float
        The mean squared reconstruction error, averaged over the batches.
    """
    layer = network.layers[number]
    lower_layers = network.layers[:number]
    # They share memory with the network's weights.
    weight = layer.weight.detach().requires_grad_()
    bias = layer.bias.detach().requires_grad_()
    # The visible bias belongs to this pass only; it is found again within a few steps.
    visible_bias = torch.zeros_like(weight[0], requires_grad=True)
    parameters = [weight, bias, visible_bias]
    n_columns = weight.shape[1]
    total_error = 0.0
    n_batches = 0
    for batch in batches:
        label_ids = torch.from_numpy(batch.label_ids)
        document_ids = torch.from_numpy(batch.document_ids)
        descriptors = network.descriptor_rows(label_ids)
        histograms = contexts[document_ids]
        inputs = torch.cat([descriptors, histograms], dim=1)
        for lower_layer in lower_layers:
            pre_activations = linear(inputs, lower_layer.weight, lower_layer.bias)
            inputs = torch.tanh(pre_activations)

        is_intact = generator.random(inputs.shape) >= noise
        mask = torch.from_numpy(is_intact).to(inputs)
        corrupted = inputs * mask
        pre_activations = linear(corrupted, weight, bias)
        hidden = torch.tanh(pre_activations)
        reconstruction = hidden @ weight
        reconstruction = reconstruction + visible_bias
        difference = reconstruction - inputs
        error = difference.square().mean()
        slopes = torch.autograd.grad(error, parameters)
        with torch.no_grad():
            for parameter, slope in zip(parameters, slopes, strict=True):
                # The error is a mean over columns: undo it, so that the rate is per column.
                parameter -= learning_rate * n_columns * slope
        total_error += float(error.detach())
        n_batches += 1
    return total_error / max(n_batches, 1)


def hold_out(matrix: sp.csr_matrix, fraction: float, generator: np.random.Generator) -> IntArray:
    """Choose rows of documents with labels for early stopping, sorted; 1,000 at most.

    There are none if fewer than two documents would stay for training.
    """
    lengths = np.diff(matrix.indptr)
    filled = np.flatnonzero(lengths)
    n_filled = len(filled)
    n_wanted = int(fraction * n_filled)
    n_held_out = min(n_wanted, _MOST_HELD_OUT)
    if n_filled - n_held_out < 2:
        return np.empty(0, dtype=np.int64)
    shuffled = generator.permutation(filled)
    rows = shuffled[:n_held_out]
    return np.sort(rows)


def error_free_score(
    known_documents: sp.csr_matrix,
    known_contexts: NDArray[np.float32],
    held_out: sp.csr_matrix,
    contexts: NDArray[np.float32],
) -> Callable[[ConceptNetwork], float]:
    """Return the early-stopping score of a network: E-MAP of priming from the true targets, 0 to 1.

    Labels of held-out documents are ranked by their nearest known concept, as in equation (9).

    Parameters
    ----------
    known_documents : boolean csr_matrix, shape (n_known, n_labels)
        Their concepts are the known ones.
    known_contexts : float32 array, shape (n_known, n_topics)
    held_out : boolean csr_matrix, shape (n_held_out, n_labels)
        Each document has a label.
    contexts : float32 array, shape (n_held_out, n_topics)
        Those of the held-out documents.
    """
    distinct, distinct_numbers = unique_rows(sp.csr_matrix(known_documents))
    _, first_rows = np.unique(distinct_numbers, return_index=True)
    n_distinct = len(first_rows)
    if n_distinct > _MOST_KNOWN:
        # Scoring goes through all of them after every epoch; a sample ranks labels as well.
        places = np.linspace(0, n_distinct - 1, _MOST_KNOWN)
        sample = places.astype(np.int64)
        distinct = sp.csr_matrix(distinct[sample])
        first_rows = first_rows[sample]
    distinct_contexts = known_contexts[first_rows]
    n_held_out, n_labels = held_out.shape

    # Concepts and targets change with the weights, the known documents do not.
    def score(network: ConceptNetwork) -> float:
        known_points = encode_documents(network, distinct, distinct_contexts)
        device = str(network.weights.device)
        index = ConceptIndex(
            known_points,
            distinct.indices,
            n_labels,
            memory_mb=1024.0,
            device=device,
        )
        held_out_points = encode_documents(network, held_out, contexts)
        targets = row_means(held_out, held_out_points)
        total = 0.0
        for start in range(0, n_held_out, _SCORED_TOGETHER):
            block = slice(start, start + _SCORED_TOGETHER)
            truth = held_out[block].toarray()
            distances = index.distances(targets[block])
            block_map = example_map(truth, -distances)
            total += len(truth) * block_map
        return total / n_held_out

    return score


# The format of a trainer's state, and of a checkpoint, which holds it as "trainer".
_TRAINER_SCHEMA = Fields(
    {
        "stage": Whole(0),
        "epoch": Whole(0),
        "n_stale": Whole(0),
        "history": ListOf(MappingOf(Plain())),
        "best_score": Maybe(Number()),
        "generator": Fields(
            {
                "bit_generator": Choice(("PCG64",)),
                "state": Fields({"state": Whole(0, 2**128 - 1), "inc": Whole(0, 2**128 - 1)}),
                "has_uint32": Whole(0, 1),
                "uinteger": Whole(0, 2**32 - 1),
            }
        ),
    }
)
_CHECKPOINT_SCHEMA = Fields(
    {"fingerprint": Text(), "seed": Whole(0), "trainer": MappingOf(Anything())}
)


def _check_arrays_of(arrays: Mapping[str, NDArray[Any]], n_weights: int, *, adam: bool) -> None:
    """Refuse arrays of a trainer that are not as `ConceptTrainer.get_state` returns them."""
    weights = Array("float32", (n_weights,), -1e15, 1e15)
    best_weights = replace(weights, optional=True)
    declared: dict[str, Array | Csr] = {
        "weights": weights,
        "best": best_weights,
    }
    has_moments = any(name.startswith("optimizer.") for name in arrays)
    if adam and has_moments:  # none before the first step
        squares = replace(weights, low=0)
        declared["optimizer.step"] = Array("float32", (), 0, 1e15)
        declared["optimizer.exp_avg"] = weights
        declared["optimizer.exp_avg_sq"] = squares
    check_arrays(arrays, declared)


def _fingerprint(
    parameters: Mapping[str, object],
    labels: Sequence[str],
    matrices: Sequence[sp.csr_matrix | None],
) -> str:
    """Return a digest of the parameters and the data that decide the result of a run.

    Checkpoints on disk hold it: another digest of the same run would refuse them.
    """
    # Where an estimator trains, leaves its state and whether it says so does not count. A
    # generator's own words hold an address; the checkpoint holds the seed drawn from it.
    counted: dict[str, str] = {}
    for name, value in sorted(parameters.items()):
        if name in ("checkpoint", "device", "verbose"):
            continue
        is_generator = isinstance(value, np.random.Generator)
        counted[name] = "generator" if is_generator else repr(value)
    # "vector" is the layout of the weights: all in one.
    content = json.dumps(["vector", counted, labels])
    digest = hashlib.sha256(content.encode())
    for matrix in matrices:
        if matrix is not None:
            indices = matrix.indices.astype(np.int64)
            indptr = matrix.indptr.astype(np.int64)
            digest.update(indices.tobytes())
            digest.update(indptr.tobytes())
    return digest.hexdigest()


class Checkpoint:
    """The folder of an interrupted run, if any; that of other data or parameters is refused.

    Parameters
    ----------
    path : str, Path or None
        The folder, which need not exist; None: nothing is saved or resumed.
    parameters : mapping of str to object
        The estimator's, by name.
    labels : sequence of str
        The vocabulary, in the order of the columns.
    matrices : sequence of csr_matrix or None
        The document-label matrices of training and, where there is one, of validation.

    Attributes
    ----------
    config, arrays : dict
        The state of an interrupted run; empty without one.
    """

    KIND = "checkpoint"  # what the folder's file says that it holds

    def __init__(
        self,
        path: str | Path | None,
        parameters: Mapping[str, object],
        labels: Sequence[str],
        matrices: Sequence[sp.csr_matrix | None],
    ) -> None:
        self.path = None if path is None else Path(path)
        self.fingerprint = _fingerprint(parameters, labels, matrices)
        self.config: dict[str, Any] = {}
        self.arrays: dict[str, NDArray[Any]] = {}
        if self.path is None:
            return
        state = read_checkpoint(self.path, self.KIND)
        if state is None:
            return
        self.config, self.arrays = state
        with name_folder_in_errors(self.path, "checkpoint"):
            _CHECKPOINT_SCHEMA.check(self.config)
            check_parts(self.arrays, self.config, ("trainer",), ())
        if self.config["fingerprint"] != self.fingerprint:
            raise other_training(self.path)

    def seed(self, random_state: RandomState) -> int:
        """Return the run's seed: the interrupted run's, or a new one from `random_state`."""
        if self.config:
            return int(self.config["seed"])
        return draw_seed(as_generator(random_state))

    def restore(self, trainer: ConceptTrainer) -> None:
        """Resume a trainer from the state of an interrupted run, if there is one."""
        if not self.config:
            return
        assert self.path is not None
        with name_folder_in_errors(self.path, "checkpoint"), name_part_in_errors("trainer"):
            arrays = part_arrays(self.arrays, "trainer")
            trainer.set_state(self.config["trainer"], arrays)

    def write(self, trainer: ConceptTrainer, seed: int) -> None:
        """Save where a trainer stands, between two epochs."""
        if self.path is None:
            return
        states = {"trainer": trainer.get_state()}
        config, arrays = join_states(states)
        config["fingerprint"] = self.fingerprint
        config["seed"] = seed
        write_model(self.path, self.KIND, config, arrays)


@contextmanager
def training_progress(
    trainer: ConceptTrainer, *, verbose: bool
) -> Iterator[Callable[[Record], None]]:
    """Show epoch, score and the time left; yield the function to call with each record."""
    if not verbose:
        yield lambda record: None
        return
    from rich.console import Console
    from rich.progress import Progress

    total = sum(n_epochs for _, n_epochs in trainer.stages)
    with Progress(console=Console(stderr=True)) as bar:
        task = bar.add_task("concepts", total=total, completed=len(trainer.history))

        def update(record: Record) -> None:
            epoch = len(trainer.history)
            loss = record["loss"]
            note = f"epoch {epoch}/{total}, loss {loss:.3f}"
            score = record.get("score")
            if score is not None:
                percent = 100 * score
                note += f", held-out E-MAP {percent:.1f}"
            description = f"concepts: {note}"
            bar.update(task, advance=1, description=description)

        yield update
        # Early stopping leaves epochs unused; a finished bar should look finished.
        bar.update(task, completed=total)
