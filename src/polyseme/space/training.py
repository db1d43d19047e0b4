"""The joint training of a concept space: documents, items and one readout, in rounds.

In: documents as sparse rows, features of items, and which document is whose. Out: trained members.

A round is some steps of every member by itself; between rounds each member predicts the items of
its fold, which it never sees: how likely are unseen labels beside an item's true tags (soft
targets), and which tags do its features suggest (probable tags). Of untagged items, the pool, each
member predicts all labels, for others to learn from (self-training). So members give the same bits
in any number of threads or processes, and a run goes on from the end of any round.

Terms: *seen* labels are carried by items and come first, *unseen* ones are held by documents alone;
*outputs* are all labels and, with unseen ones, a last column: whether a document holds any of
these. A *member* has a number from 0 and does not see fold number // members_per_fold: neither its
documents, nor their items, nor that fold of the pool. A *share* is the members that one process
trains; a member's *position* is its place in the share.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from polyseme.base.machine import n_cores
from polyseme.base.validation import InputError, IntArray, check_number
from polyseme.space.calibration import pool_targets
from polyseme.space.features import Features, standardise
from polyseme.space.members import Shape, StartMembers, mean_predictions, pool_predictions
from polyseme.storage.array_checks import (
    Fields,
    Kind,
    ListOf,
    MappingOf,
    Number,
    Text,
    Whole,
    check_arrays,
    declare_like,
    name_folder_in_errors,
    require,
)
from polyseme.storage.checkpoints import other_training, read_checkpoint
from polyseme.storage.model_file import part_arrays, write_model

Matrix = NDArray[np.float64]
Floats = NDArray[np.float32]


# The kind of folder that holds the state of a training, as the folder itself says.
CHECKPOINT_KIND = "training"
# Above this an item is not taken for more certain, so that none stands for more than ten others.
_MOST_CERTAIN = 0.9
# Threads wait for Python's lock between products: ten of them on sixteen cores were no faster than
# two on two. More cores are used by processes; see `polyseme.batch.RayTraining`.
MOST_THREADS = 4
# Steps of the small spaces that a fit is validated by; more of them say the same.
VALIDATION_STEPS = 75
# Learning rates rise with this power of how many times fewer the steps are; see `shortened`.
_RATE_POWER = 0.375
# With many documents: a factor of learning rates, and how often documents are gone over at least.
_MANY_RATES = 1.5
_MANY_PASSES = 3.0
# How often fewer documents are gone over at least.
_LEAST_PASSES = 3.5
# From so many tagged items on there is less dropout.
_MANY_ITEMS = 8000
# Of a fit that starts from former members: its share of the steps, and of the learning rates.
WARM_STEPS = 0.1
WARM_RATES = 0.5
# Tables over documents and labels up to this size are kept dense.
_DENSE_BYTES = 64 * 2**20


@dataclass(frozen=True)
class SpacePlan:
    """How a space is built and trained; results/default-model.md has the search.

    Attributes
    ----------
    n_folds, members_per_fold : int
        The fields are parameters that users set, and model files and checkpoints hold them.
    n_steps, round_steps : int
        Steps of every member, and between two exchanges.
    document_batch, item_batch, probable_batch : int
        Rows of a step: documents, items by their features, and how many of these items by their
        probable tags as well.
    hidden, code : int
        Units of the encoders, and dimensions of a member's code.
    learning_rates, decays : (float, float, float)
        Of item encoder, document encoder and readout. Rates rise over the first tenth of the steps
        and fall by a cosine; decays are AdamW's.
    dropout : (float, float, float, float)
        Shares left out of: features, hidden units of items and of documents, codes.
    hidden_tags : float
        Tags of a document are hidden at a rate drawn between 0 and this.
    unseen_hidden : float
        How often all unseen tags are hidden, as they are when an item is looked at.
    seen_weight, kept_weight : float
        Weights of seen labels in documents, and of unseen ones that are not hidden; that of hidden
        unseen labels is 1.
    rarity : float
        Labels are weighted by the variance of holding them to minus this power: 0 for all alike,
        0.5 as if every label varied as much as any other.
    probable_weight : float
        Weight of reading items by their probable tags, beside reading them by their features.
    soft_weight : float
        Weight of soft targets of unseen labels, beside true seen ones.
    selection_weights : bool
        Whether training items, which hold no unseen label, are weighted so that they stand for a
        natural mix of items.
    pool_steps : float
        With untagged items there are so many times as many steps.
    pool_from, pool_weight : float
        Untagged items join in after this share of the steps, with this weight beside tagged ones.
    pool_hard : float
        Of an untagged item's target the share that is 0 or 1: whether it is among as many of the
        likeliest items as should have the label. The rest is its probability.
    verdict_weight : float
        Weight of what somebody has said of an item and a label, beside what is guessed of it.
    label_block : int
        The most labels that a step reads; of more, every step reads those that its documents and
        items hold, and draws so many others.
    memory_mb : float
        Bounds the tables of a round; where items do not fit, every round draws some of them.
    """

    n_folds: int = 5
    members_per_fold: int = 1
    n_steps: int = 400
    round_steps: int = 100
    document_batch: int = 96
    item_batch: int = 64
    probable_batch: int = 32
    hidden: int = 256
    code: int = 256
    learning_rates: tuple[float, float, float] = (3e-3, 4e-3, 4e-3)
    decays: tuple[float, float, float] = (0.01, 0.5, 0.01)
    dropout: tuple[float, float, float, float] = (0.3, 0.4, 0.3, 0.35)
    hidden_tags: float = 0.4
    unseen_hidden: float = 0.7
    seen_weight: float = 0.5
    kept_weight: float = 0.5
    rarity: float = 0.25
    probable_weight: float = 0.5
    soft_weight: float = 1.0
    selection_weights: bool = True
    pool_steps: float = 2.4
    pool_from: float = 0.25
    pool_weight: float = 1.0
    pool_hard: float = 0.5
    verdict_weight: float = 3.0
    label_block: int = 2048
    memory_mb: float = 512.0

    @property
    def n_rounds(self) -> int:
        """How many rounds the steps make."""
        return -(-self.n_steps // self.round_steps)

    def check(self) -> None:
        """Raise on a value out of its range."""
        owner = type(self).__name__
        sizes = "n_folds members_per_fold n_steps round_steps document_batch item_batch"
        for name in (*sizes.split(), "probable_batch", "hidden", "code", "label_block"):
            size = getattr(self, name)
            check_number(name, size, owner=owner, low=1, whole=True)
        for name in ("hidden_tags", "unseen_hidden", "rarity", "pool_from", "pool_hard"):
            share = getattr(self, name)
            check_number(name, share, owner=owner, low=0, high=1)
        weights = "seen_weight kept_weight probable_weight soft_weight pool_weight verdict_weight"
        for name in (*weights.split(), "pool_steps"):
            weight = getattr(self, name)
            check_number(name, weight, owner=owner, low=0)
        check_number("memory_mb", self.memory_mb, owner=owner, low=0, above=True)
        lengths = {"learning_rates": 3, "decays": 3, "dropout": 4}
        for name, length in lengths.items():
            numbers = getattr(self, name)
            is_sequence = isinstance(numbers, (tuple, list))
            if not is_sequence or len(numbers) != length:
                raise InputError(f"`{name}` of `{owner}` must be {length} numbers.")
        for share in self.dropout:
            check_number("dropout", share, owner=owner, low=0, high=0.99)
        for rate in (*self.learning_rates, *self.decays):
            check_number("learning_rates and decays", rate, owner=owner, low=0)

    def rate_factor(self, step_number: int) -> float:
        """Return the factor on learning rates in a step, counted from 0: a rise, half a cosine."""
        # rise * (1 + cos(π t / T)) / 2
        rising_steps = max(0.1 * self.n_steps, 1.0)
        rise = (step_number + 1) / rising_steps
        rise = min(1.0, rise)
        angle = np.pi * step_number
        cosine = np.cos(angle / self.n_steps)
        factor = rise * 0.5 * (1 + cosine)
        return float(factor)

    def sized(self, n_documents: int, n_items: int = 0) -> SpacePlan:
        """Fit members, batches and steps to the number of documents, dropout to that of items.

        Below 500 documents members have half the units; above 20,000 there are three of them, with
        higher learning rates. A step looks at 96 documents, at 3,072 where there are a million; the
        steps are those of the plan, but go over the documents at least 3.5 times (3 above 20,000)
        and at most 100 times.
        From 8,000 tagged items on, dropout of features, of hidden units of items and of codes is
        lower, since so many over-fit less, and a step looks at 128 of them or more.

        Parameters
        ----------
        n_documents, n_items : int
            How many documents and tagged items there are.
        """
        # Batches are doubled until 400 go over all documents, or there are 3,072 rows.
        factor = 1
        while factor * self.document_batch < 3072:
            batch = factor * self.document_batch
            if n_documents / batch <= 400:
                break
            factor *= 2
        batch = factor * self.document_batch
        item_batch = factor * self.item_batch
        probable_batch = factor * self.probable_batch
        dropout = self.dropout
        if n_items >= _MANY_ITEMS:
            of_features, of_items, of_documents, of_codes = dropout
            dropout = (of_features / 3, of_items / 2, of_documents, of_codes * 3 / 7)
            item_batch = max(item_batch, 128)
            probable_batch = max(probable_batch, 64)

        few = n_documents < 500
        many = n_documents > 20_000
        one_pass = max(n_documents / batch, 1.0)
        least_passes = _MANY_PASSES if many else _LEAST_PASSES
        least_steps = least_passes * one_pass
        most_steps = 100 * one_pass
        n_steps = max(self.n_steps, least_steps)
        n_steps = int(min(n_steps, most_steps))
        quarter = max(n_steps // 4, 1)
        return replace(
            self,
            n_folds=min(self.n_folds, 3) if many else self.n_folds,
            learning_rates=self._rates_times(_MANY_RATES if many else 1.0),
            hidden=self.hidden // 2 if few else self.hidden,
            code=self.code // 2 if few else self.code,
            n_steps=n_steps,
            round_steps=min(self.round_steps, quarter),
            document_batch=batch,
            item_batch=item_batch,
            probable_batch=probable_batch,
            dropout=dropout,
        )

    def shortened(self, n_steps: int) -> SpacePlan:
        """Return a plan of at most so many steps, with higher learning rates for it."""
        if self.n_steps <= n_steps:
            return self
        ratio = self.n_steps / n_steps
        factor = ratio**_RATE_POWER
        quarter = max(n_steps // 4, 1)
        return replace(
            self,
            n_steps=n_steps,
            round_steps=min(self.round_steps, quarter),
            learning_rates=self._rates_times(factor),
        )

    def _rates_times(self, factor: float) -> tuple[float, float, float]:
        """Return the learning rates times a factor."""
        of_items, of_documents, of_readout = self.learning_rates
        return factor * of_items, factor * of_documents, factor * of_readout

    def warmed(self) -> SpacePlan:
        """Return the plan of a fit that starts from former members: few steps at lower rates."""
        n_steps = round(self.n_steps * WARM_STEPS)
        n_steps = max(n_steps, 1)
        return replace(
            self,
            n_steps=n_steps,
            round_steps=min(self.round_steps, n_steps),
            learning_rates=self._rates_times(WARM_RATES),
            pool_from=0.0,
        )

    def weight_bytes(self, n_labels: int, n_features: int) -> int:
        """Return the bytes that members take in training: weights, gradients, two moments.

        Parameters
        ----------
        n_labels, n_features : int
        """
        n_outputs = n_labels + 1
        shape = Shape(n_labels, n_outputs, n_features, self.hidden, self.code)
        member_weights = sum(shape.n_weights)
        n_members = self.n_folds * self.members_per_fold
        bytes_a_weight = 16  # four numbers of 4 bytes
        return bytes_a_weight * n_members * member_weights

    def within(self, n_documents: int, n_items: int) -> SpacePlan:
        """Let a step look at no more documents and items than there are; see `sized`."""
        most_documents = max(n_documents, 1)
        item_batch = min(self.item_batch, max(n_items, 1))
        return replace(
            self,
            document_batch=min(self.document_batch, most_documents),
            item_batch=item_batch,
            probable_batch=min(self.probable_batch, item_batch),
        )


@dataclass(frozen=True)
class TrainingData:
    """What a space is learned from; labels are in members' order, seen ones first.

    Arrays are shared with the caller and not changed.
    """

    documents: sp.csr_matrix  # float32, 1 or 0, (n_documents, n_labels); label sets first
    n_seen: int  # the first so many labels are on items
    n_label_sets: int  # the first so many documents; only they say which unseen labels there are
    folds: IntArray  # of documents, from 0 without gaps, (n_documents,)
    X: Features | None  # of items, in the users' units, (n_items, n_features)
    item_documents: IntArray  # the row of each item's document, (n_items,)
    mean: Matrix  # by which features are standardised, (n_features,)
    scale: Matrix  # likewise, (n_features,)
    pool: Features | None = None  # of untagged items, (n_pool, n_features)
    pool_folds: IntArray | None = None  # (n_pool,)
    verdicts: sp.csr_matrix | None = None  # 1 yes, -1 no, (n_items + n_pool, n_labels)
    start: StartMembers | None = None  # what members start from; by default from nothing

    @property
    def n_labels(self) -> int:
        """How many labels there are."""
        return int(self.documents.shape[1])

    @property
    def n_unseen(self) -> int:
        """How many of them are on no item."""
        return self.n_labels - self.n_seen

    @property
    def n_pool(self) -> int:
        """How many untagged items there are."""
        return 0 if self.pool is None else int(self.pool.shape[0])

    @property
    def n_outputs(self) -> int:
        """Columns of the readout: labels and, with unseen ones, whether there is any of them."""
        return self.n_labels + (self.n_unseen > 0)

    def priors(self) -> Matrix:
        """Return how often documents hold each label, (n_outputs,), above 0 and below 1."""
        n_documents = self.documents.shape[0]
        n_label_sets = self.n_label_sets
        label_counts = self.documents.sum(axis=0)
        counts = np.asarray(label_counts, dtype=np.float64).ravel()
        # Only label sets could hold an unseen label.
        n_counted = np.full(self.n_labels, n_label_sets)
        n_counted[: self.n_seen] = n_documents
        # prior = (count + ½) / (documents + 1)
        smoothed = (counts + 0.5) / (n_counted + 1)
        lowest_complement = 0.5 / (n_documents + 1)
        priors = np.minimum(smoothed, 1 - lowest_complement)
        if not self.n_unseen:
            return np.asarray(priors)

        unseen_tags = self.documents[:n_label_sets, self.n_seen :]
        n_held = np.diff(unseen_tags.indptr)
        n_with_unseen = np.count_nonzero(n_held)
        any_unseen = (n_with_unseen + 0.5) / (n_label_sets + 1)
        return np.append(priors, any_unseen)

    def label_weights(self, rarity: float) -> Floats:
        """Return the weight of each output, (n_outputs,), 1 on average; see `SpacePlan.rarity`."""
        priors = self.priors()
        variances = priors * (1 - priors)
        weights = variances**-rarity
        normalised = weights / weights.mean()
        return np.asarray(normalised, dtype=np.float32)


def selection_weights(any_unseen: NDArray[Any]) -> NDArray[Any]:
    """Return for how many items each stands, (n_items,), 1 on average.

    The likelier a document with an item's tags holds any unseen label (`any_unseen`, (n_items,)),
    the more of its like were left out of the training items.
    """
    probabilities = np.minimum(any_unseen, _MOST_CERTAIN)
    # Importance weights: 1 / P(no unseen label | tags).
    complements = 1 - probabilities
    weights = 1 / complements
    normalised = weights / weights.mean()
    return np.asarray(normalised)


class HeldOutPredictions(NamedTuple):
    """What one member predicts for a round's items of its fold, in the order of the round."""

    unseen: Floats  # probabilities of unseen labels, and of any, by true tags, (n, n_unseen + 1)
    seen: Floats  # logits of seen labels by features, (n, n_seen)
    pool: Floats  # logits of all labels of untagged items, (n_pool, n_labels)


class RoundItems(NamedTuple):
    """The items of a round and their targets: tagged ones, then those of the pool.

    Of a verdict the target is 2 for yes and -1 for no, so that it can be told from a guess.
    """

    rows: IntArray  # of tagged items in `TrainingData.X`, sorted, (n,)
    pool_rows: IntArray  # of untagged ones in `TrainingData.pool`, sorted, (n_pool,)
    features: Floats  # standardised, (n + n_pool, n_features); shared: not to be changed
    targets: Floats  # true seen labels, then soft targets of unseen ones, (n + n_pool, n_outputs)
    probable: Floats  # probabilities of seen labels by features, of tagged items, (n, n_seen)
    weights: Floats  # for how many items each stands, (n + n_pool,)
    has_soft_targets: bool  # whether there are soft targets and probable tags yet
    has_pool_targets: bool  # whether there are targets of the pool yet


class SeedUse(IntEnum):
    """What a seed is drawn for. The numbers are fixed: the same seed gives the same model."""

    WEIGHTS = 0  # of an untrained member
    BATCHES = 1  # of a member in a round
    ITEMS = 2  # of all members in a round, where memory does not do for all


# Takes the predictions of this share's members by their numbers, and returns those of all members.
Exchange = Callable[[dict[int, HeldOutPredictions]], dict[int, HeldOutPredictions]]


class SpaceTraining:
    """The training of all members, or of this process's share of them.

    Parameters
    ----------
    data : TrainingData
    plan : SpacePlan
        Already fitted to the size of the data.
    seed : int
    device : str
        "cpu" trains each member in a thread of its own; another device trains them as one.
    share : (int, int)
        Which share of the members is trained here, of how many shares.

    Attributes
    ----------
    member_numbers : int64 array, shape (n_in_share,)
        Of this share's members, in the order of `members`.
    member_folds : int64 array, shape (n_in_share,)
        The fold that each of them does not see.
    members : Members
        This share's members, tensors on the device; learners change them in place.
    learners : list of Learner
        One for each member, or one for all.
    dense : float32 array, shape (n_documents, n_labels), or None
        The documents, where they are small.
    round : int
        Rounds that are done.
    history : list of dict
        For every round the losses of documents and of items in its last step, the mean over this
        share.
    """

    def __init__(
        self,
        data: TrainingData,
        plan: SpacePlan,
        seed: int,
        device: str = "cpu",
        share: tuple[int, int] = (0, 1),
    ) -> None:
        from polyseme.space.steps import Learner, start_members

        self.data = data
        self.plan = plan
        self.seed = seed
        self.device = device
        last_fold = data.folds.max(initial=0)
        self.n_folds = int(last_fold) + 1
        self.n_members = self.n_folds * plan.members_per_fold
        first, n_shares = share
        all_numbers = np.arange(self.n_members)
        self.member_numbers: IntArray = all_numbers[first::n_shares]
        member_folds = self.member_numbers // plan.members_per_fold
        self.member_folds: IntArray = np.asarray(member_folds)
        n_features = 0 if data.X is None else data.X.shape[1]
        shape = Shape(data.n_labels, data.n_outputs, n_features, plan.hidden, plan.code)
        seeds = [self.seed_of(number, SeedUse.WEIGHTS) for number in self.member_numbers]
        members = start_members(shape, data.priors(), seeds)
        if data.start is not None:
            data.start.put_into(members, self.member_numbers)
        self.members = members.to(device)
        self.round = 0
        self.history: list[dict[str, float]] = []
        n_documents, n_labels = data.documents.shape
        dense_bytes = 4 * n_documents * n_labels
        self.dense: Floats | None = None
        if dense_bytes <= _DENSE_BYTES:
            table = data.documents.toarray()
            self.dense = np.asarray(table, dtype=np.float32)
        # Those of the items of the last round, or of all items where these are not too many.
        self._features: Floats | None = None
        n_in_share = len(self.member_numbers)
        if device == "cpu":
            self.n_threads = min(n_cores(), MOST_THREADS, n_in_share)
            positions = [slice(start, start + 1) for start in range(n_in_share)]
            self.learners = [Learner(self, position) for position in positions]
        else:
            from polyseme.space.trainer_gpu import GpuLearner

            all_members = slice(None)
            self.n_threads = 1
            self.learners = [GpuLearner(self, all_members)]

    def seed_of(self, number: int, use: SeedUse, round_: int = 0) -> int:
        """Return the seed of a member's weights, or of its draws in a round; below 2⁶³."""
        key = (int(number), int(use), round_)
        sequence = np.random.SeedSequence(self.seed, spawn_key=key)
        words = sequence.generate_state(1, np.uint64)
        word = words[0] >> 1
        return int(word)

    @property
    def _can_predict(self) -> bool:
        """Whether members have learned anything yet."""
        return self.round > 0 or self.data.start is not None

    @property
    def next_steps(self) -> range:
        """The numbers of the next round's steps."""
        plan = self.plan
        n_steps = plan.n_steps
        n_done = self.round * plan.round_steps
        first = min(n_done, n_steps)
        n_done_after = first + plan.round_steps
        stop = min(n_done_after, n_steps)
        return range(first, stop)

    # ------------------------------------------------------------------ rounds

    def run(
        self, exchange: Exchange | None = None, after: Callable[[], None] | None = None
    ) -> None:
        """Train until the last round is done.

        Parameters
        ----------
        exchange : callable, optional
            Takes this share's predictions and returns those of all members, by their numbers; not
            needed for a single share.
        after : callable, optional
            Called after every round, when state may be kept.
        """
        while self.round < self.plan.n_rounds:
            items = self._begin_round(exchange)
            losses: list[tuple[float, float]] = []
            with self._workers() as threads:
                running = [threads.submit(learner.train, items) for learner in self.learners]
                for future in running:
                    learner_losses = future.result()
                    losses.extend(learner_losses)
            self.round += 1
            document_loss, item_loss = np.mean(losses, axis=0)
            mean_losses = {"documents": float(document_loss), "items": float(item_loss)}
            self.history.append(mean_losses)
            if after is not None:
                after()

    def _workers(self) -> ThreadPoolExecutor:
        """Open threads in each of which torch keeps to one thread."""
        import torch

        return ThreadPoolExecutor(self.n_threads, initializer=torch.set_num_threads, initargs=(1,))

    def _begin_round(self, exchange: Exchange | None) -> RoundItems | None:
        """Choose the round's items and let members predict them; None without items."""
        data = self.data
        plan = self.plan
        n_seen = data.n_seen
        if data.X is None:
            return None
        rows, pool_rows = self._round_rows()
        n_items = len(rows)
        documents = data.item_documents[rows]
        features = self._round_features(rows, pool_rows)
        n_all = len(features)
        targets = np.zeros((n_all, data.n_outputs), dtype=np.float32)
        item_tags = data.documents[documents]
        targets[:n_items, :n_seen] = item_tags[:, :n_seen].toarray()
        probable = np.zeros((n_items, n_seen), dtype=np.float32)
        weights = np.ones(n_all, dtype=np.float32)

        can_predict = self._can_predict
        first_pool_step = plan.pool_from * plan.n_steps
        pool_joins = self.next_steps.start >= first_pool_step
        has_pool = len(pool_rows) > 0
        has_pool_targets = has_pool and can_predict and pool_joins
        if can_predict:
            folds = data.folds[documents]
            pool_folds = np.zeros(0, dtype=np.int64)
            if has_pool_targets and data.pool_folds is not None:
                pool_folds = data.pool_folds[pool_rows]
            truth = targets[:n_items, :n_seen]
            predictions = self.predict_held_out(features, truth, folds, pool_folds)
            if exchange is not None:
                predictions = exchange(predictions)
            pool_logits = self._set_targets(
                predictions, folds, pool_folds, targets[:n_items], probable
            )
            if plan.selection_weights and data.n_unseen:
                any_unseen = targets[:n_items, -1]
                weights[:n_items] = selection_weights(any_unseen)
            if has_pool_targets:
                priors = data.priors()[: data.n_labels]
                soft_targets = pool_targets(pool_logits, priors, plan.pool_hard)
                targets[n_items:, : data.n_labels] = soft_targets
        weights[n_items:] = plan.pool_weight * has_pool_targets
        self._place_verdicts(rows, pool_rows, targets, pooled=has_pool_targets)
        return RoundItems(
            rows=rows,
            pool_rows=pool_rows,
            features=features,
            targets=targets,
            probable=probable,
            weights=weights,
            has_soft_targets=can_predict,
            has_pool_targets=has_pool_targets,
        )

    def _round_features(self, rows: IntArray, pool_rows: IntArray) -> Floats:
        """Return the standardised features of a round's items, then of those of the pool.

        Where every round has all items the table is kept for the next. Learners share it without
        a copy, so nobody may change it.
        """
        data = self.data
        assert data.X is not None
        n_in_round = len(rows) + len(pool_rows)
        are_all = n_in_round == len(data.item_documents) + data.n_pool
        if self._features is None or not are_all:
            item_features = standardise(data.X[rows], data.mean, data.scale)
            tables = [item_features]
            if data.pool is not None:
                pool_features = standardise(data.pool[pool_rows], data.mean, data.scale)
                tables.append(pool_features)
            round_features = np.concatenate(tables)
            if not are_all:
                return round_features
            self._features = round_features
        return self._features

    def _set_targets(
        self,
        predictions: dict[int, HeldOutPredictions],
        folds: IntArray,
        pool_folds: IntArray,
        targets: Floats,
        probable: Floats,
    ) -> Floats:
        """Write soft targets and probable tags of tagged items, by the members of their folds.

        Parameters
        ----------
        predictions : dict of int to HeldOutPredictions
            Of all members, by their numbers.
        folds, pool_folds : int64 arrays, shapes (n,) and (n_pool,)
            Of the round's items.
        targets, probable : float32 arrays, shapes (n, n_outputs) and (n, n_seen)
            Changed in place.

        Returns
        -------
        float32 array, shape (n_pool, n_labels)
            Logits of the pool's items.
        """
        per_fold = self.plan.members_per_fold
        n_seen = self.data.n_seen
        pool_logits = np.empty((len(pool_folds), self.data.n_labels), dtype=np.float32)
        for fold in range(self.n_folds):
            in_fold = folds == fold
            first = fold * per_fold
            stop = first + per_fold
            of_fold = [predictions[number] for number in range(first, stop)]
            targets[in_fold, n_seen:] = _mean([member.unseen for member in of_fold])
            # probable = 1 / (1 + exp(-logit)); of many items and labels: no table is made that
            # need not be.
            mean_logits = _mean([member.seen for member in of_fold])
            odds = np.negative(mean_logits)
            np.exp(odds, out=odds)
            np.add(odds, 1, out=odds)
            probable[in_fold] = np.divide(1, odds, out=odds)
            pool_logits[pool_folds == fold] = _mean([member.pool for member in of_fold])
        return pool_logits

    def _place_verdicts(
        self, rows: IntArray, pool_rows: IntArray, targets: Floats, *, pooled: bool
    ) -> None:
        """Write verdicts on a round's items into their targets (n + n_pool, n_outputs)."""
        if self.data.verdicts is None:
            return
        verdict_rows = rows
        if pooled:  # nothing is learned of the pool before it joins in
            first_of_pool = len(self.data.item_documents)
            verdict_rows = np.concatenate([rows, first_of_pool + pool_rows])
        verdicts = self.data.verdicts[verdict_rows].tocoo()
        is_yes = verdicts.data > 0
        targets[verdicts.row, verdicts.col] = np.where(is_yes, 2.0, -1.0)

    def _round_rows(self) -> tuple[IntArray, IntArray]:
        """Return the rows of a round's items, and of the pool: all, or as many as memory allows.

        Both are sorted, and the same for all shares of the members.
        """
        data = self.data
        n_items = len(data.item_documents)
        n_pool = data.n_pool
        n_columns = self.members.shape.n_features + 2 * data.n_outputs
        item_bytes = 4 * n_columns
        memory_bytes = self.plan.memory_mb * 2**20
        most = int(memory_bytes / item_bytes)
        most = max(most, 512)
        if n_items + n_pool <= most:
            return np.arange(n_items), np.arange(n_pool)
        seed = self.seed_of(self.n_members, SeedUse.ITEMS, self.round)
        generator = np.random.default_rng(seed)
        # Tagged items have half of the rows at least.
        most_tagged = max(most - n_pool, most // 2)
        n_drawn = min(n_items, most_tagged)
        rows = generator.choice(n_items, n_drawn, replace=False)
        most_of_pool = max(most - n_drawn, 0)
        n_drawn_of_pool = min(n_pool, most_of_pool)
        pool_rows = generator.choice(n_pool, n_drawn_of_pool, replace=False)
        return np.sort(rows), np.sort(pool_rows)

    def predict_held_out(
        self, features: Floats, truth: Floats, folds: IntArray, pool_folds: IntArray
    ) -> dict[int, HeldOutPredictions]:
        """Let each member of this share predict the items of its own fold.

        Parameters
        ----------
        features : float32 array, shape (n + n_pool, n_features)
            Standardised: of tagged items, then of those of the pool.
        truth : float32 array, shape (n, n_seen)
            Seen labels of tagged items, 1 or 0.
        folds, pool_folds : int64 arrays, shapes (n,) and (n_pool,)

        Returns
        -------
        dict of int to HeldOutPredictions
            By members' numbers.
        """
        n_items = len(truth)
        pool_features = features[n_items:]

        def predict(position: int) -> tuple[int, HeldOutPredictions]:
            member = self.members.select(slice(position, position + 1))
            fold = self.member_folds[position]
            rows = np.flatnonzero(folds == fold)
            pool_rows = np.flatnonzero(pool_folds == fold)
            unseen, seen = mean_predictions(member, features[rows], truth[rows])
            pool = pool_predictions(member, pool_features[pool_rows], self.data.n_seen)
            number = int(self.member_numbers[position])
            return number, HeldOutPredictions(unseen, seen, pool)

        positions = range(len(self.member_numbers))
        with self._workers() as threads:
            return dict(threads.map(predict, positions))

    # ------------------------------------------------------------------ state

    def get_state(self) -> dict[str, NDArray[Any]]:
        """Return copies of weights and of the optimisers' moments as arrays by name.

        Each has a row for each member of this share. Checkpoints hold these names.
        """
        import torch

        tensors = {}
        for number, group in enumerate(self.members.groups):
            tensors[f"weights.{number}"] = group
        learner_moments = [learner.optimizer.get_state() for learner in self.learners]
        for name in learner_moments[0]:
            moments = [moments_by_name[name] for moments_by_name in learner_moments]
            tensors[f"optimizer.{name}"] = torch.cat(moments)

        state = {}
        for name, tensor in tensors.items():
            array = tensor.detach().cpu().numpy()
            state[name] = array.copy()
        return state

    def set_state(
        self,
        arrays: Mapping[str, NDArray[Any]],
        round_: int,
        history: Sequence[dict[str, float]],
    ) -> None:
        """Go back to the end of a round; see `get_state`. Arrays are checked, and copied."""
        import torch

        check_arrays(arrays, declare_like(self.get_state()))
        for number, group in enumerate(self.members.groups):
            weights = np.array(arrays[f"weights.{number}"])
            group.copy_(torch.from_numpy(weights))
        require(round_ == len(history), "round", "as many as the history has")
        is_round = 0 <= round_ <= self.plan.n_rounds
        require(is_round, "round", "one of the plan's")
        self.round = round_
        self.history = list(history)
        moments_by_name = part_arrays(arrays, "optimizer")
        start = 0
        for learner in self.learners:
            stop = start + len(learner.members)
            tensors = {}
            for name, moments in moments_by_name.items():
                learner_moments = np.array(moments[start:stop])
                tensors[name] = torch.from_numpy(learner_moments)
            learner.optimizer.set_state(tensors, self.next_steps.start)
            start = stop

    @cached_property
    def _fingerprint(self) -> str:
        return fingerprint(self.data, self.plan)

    def save(self, path: str | Path) -> None:
        """Write the state at the end of a round to a folder."""
        config: dict[str, Any] = {
            "fingerprint": self._fingerprint,
            "seed": self.seed,
            "round": self.round,
            "history": self.history,
        }
        arrays = self.get_state()
        write_model(path, CHECKPOINT_KIND, config, arrays)

    def resume(self, path: str | Path) -> None:
        """Go on from the state in a folder, where there is one; another training's is refused."""
        state = read_checkpoint(path, CHECKPOINT_KIND)
        if state is None:
            return
        config, arrays = state
        with name_folder_in_errors(path, "checkpoint"):
            _CHECKPOINT_CONFIG.check(config)
            if config["fingerprint"] != self._fingerprint:
                raise other_training(path)
            self.set_state(arrays, config["round"], config["history"])


def checkpoint_seed(path: str | Path) -> int | None:
    """Return the seed of the training whose state a folder holds; None where it holds none."""
    state = read_checkpoint(path, CHECKPOINT_KIND)
    if state is None:
        return None
    config, _ = state
    with name_folder_in_errors(path, "checkpoint"):
        _CHECKPOINT_CONFIG.check(config)
    return int(config["seed"])


# What the state of a training holds beside its arrays, which are those of any such training.
ROUNDS: dict[str, Kind] = {"round": Whole(0), "history": ListOf(MappingOf(Number()))}
_CHECKPOINT_CONFIG = Fields({"fingerprint": Text(), "seed": Whole(0), **ROUNDS})


def fingerprint(data: TrainingData, plan: SpacePlan) -> str:
    """Return SHA-256 of data, plan and start members, to tell whose state a folder holds."""
    description = f"{plan!r} {data_digest(data)}"
    digest = hashlib.sha256(description.encode())
    if data.start is not None:
        start = data.start
        for array in (start.former_columns, start.new_weights, *start.members.groups):
            digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def data_digest(data: TrainingData) -> str:
    """Return SHA-256 of what a space is learned from; saved models hold it."""
    sizes = (data.n_seen, data.n_label_sets)
    digest = hashlib.sha256(repr(sizes).encode())
    arrays: list[Any] = [data.documents.indptr, data.documents.indices]
    arrays += [data.item_documents, data.folds]
    for table in (data.X, data.pool, data.verdicts):
        if sp.issparse(table):
            arrays += [table.data, table.indices, table.indptr]
        elif table is not None:
            arrays.append(table)
    for array in arrays:
        contiguous = np.ascontiguousarray(array)
        digest.update(contiguous.data)
    return digest.hexdigest()


def _mean(tables: Sequence[Floats]) -> Floats:
    """Return the mean of some members' tables; of one, the table itself."""
    if len(tables) == 1:
        return tables[0]
    mean: Floats = np.mean(tables, axis=0)
    return mean
