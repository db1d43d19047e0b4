"""The joint training of a concept space: documents, items and one readout, in rounds.

In: documents as sparse rows, features of items, and which document is whose. Out: trained members.

A round is some steps of every member by itself; between rounds each member answers for the items of
its fold, which it never sees: how likely are unseen labels beside an item's true tags (soft
targets), and which tags do its features suggest (probable tags). Of untagged items, the pool, each
member says which labels they have, for others to learn from (self-training). So members give the
same bits in any number of threads or processes, and a run goes on from the end of any round.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from polyseme.base.machine import n_cores
from polyseme.base.validation import InputError, IntArray, check_number
from polyseme.space.calibration import match_frequencies, sigmoid
from polyseme.space.features import Features, standardise
from polyseme.space.members import Members, Shape, StartMembers, likely, mean_of
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


# The kind of folder that holds the state of a training.
CHECKPOINT_KIND = "training"
# No item stands for more than ten.
_MOST_CERTAIN = 0.9
# Threads wait for Python's lock between products: ten of them on sixteen cores were no faster than
# two on two. More cores are used by processes; see `polyseme.batch.RayTraining`.
MOST_THREADS = 4
# Steps of the small spaces that a fit is validated by; more of them say the same.
VALIDATION_STEPS = 75
# Learning rates rise with this power of how many times fewer the steps are; see `shortened`.
_RATE_POWER = 0.375
# With many documents: a factor of learning rates. Many documents are gone over at least 3 times,
# fewer at least 3.5 times.
_MANY_RATES, _MANY_PASSES, _LEAST_PASSES = 1.5, 3.0, 3.5
# So many tagged items are many.
_MANY_ITEMS = 8000
# Of a fit that starts from former members: its share of the steps, and of the learning rates.
WARM_STEPS, WARM_RATES = 0.1, 0.5
# Items that members answer for at a time.
_BLOCK_ITEMS = 4096
# Tables over documents and labels up to this size are kept dense.
_DENSE_BYTES = 64 * 2**20


@dataclass(frozen=True)
class SpacePlan:
    """How a space is built and trained; results/default-model.md has the search.

    Attributes
    ----------
    n_folds, members_per_fold : int
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
            check_number(name, getattr(self, name), owner=owner, low=1, whole=True)
        for name in ("hidden_tags", "unseen_hidden", "rarity", "pool_from", "pool_hard"):
            check_number(name, getattr(self, name), owner=owner, low=0, high=1)
        weights = "seen_weight kept_weight probable_weight soft_weight pool_weight verdict_weight"
        for name in (*weights.split(), "pool_steps"):
            check_number(name, getattr(self, name), owner=owner, low=0)
        check_number("memory_mb", self.memory_mb, owner=owner, low=0, above=True)
        for name, length in (("learning_rates", 3), ("decays", 3), ("dropout", 4)):
            numbers = getattr(self, name)
            if not isinstance(numbers, (tuple, list)) or len(numbers) != length:
                raise InputError(f"`{name}` of `{owner}` must be {length} numbers.")
        for share in self.dropout:
            check_number("dropout", share, owner=owner, low=0, high=0.99)
        for rate in (*self.learning_rates, *self.decays):
            check_number("learning_rates and decays", rate, owner=owner, low=0)

    def rate_factor(self, number: int) -> float:
        """Return the factor on learning rates in a step: a rise, then half a cosine."""
        rising_steps = max(0.1 * self.n_steps, 1.0)
        rise = min(1.0, (number + 1) / rising_steps)
        # rise * (1 + cos(π t / T)) / 2
        angle = np.pi * number / self.n_steps
        return float(rise * 0.5 * (1 + np.cos(angle)))

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
        factor = 1
        while factor * self.document_batch < 3072:
            n_batches = n_documents / (factor * self.document_batch)
            if n_batches <= 400:
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
        n_steps = int(min(max(self.n_steps, least_steps), most_steps))
        return replace(
            self,
            n_folds=min(self.n_folds, 3) if many else self.n_folds,
            learning_rates=self._rates_times(_MANY_RATES if many else 1.0),
            hidden=self.hidden // 2 if few else self.hidden,
            code=self.code // 2 if few else self.code,
            n_steps=n_steps,
            round_steps=min(self.round_steps, max(n_steps // 4, 1)),
            document_batch=batch,
            item_batch=item_batch,
            probable_batch=probable_batch,
            dropout=dropout,
        )

    def shortened(self, n_steps: int) -> SpacePlan:
        """Return a plan of at most so many steps, with higher learning rates for it.

        Parameters
        ----------
        n_steps : int
        """
        if self.n_steps <= n_steps:
            return self
        factor = (self.n_steps / n_steps) ** _RATE_POWER
        return replace(
            self,
            n_steps=n_steps,
            round_steps=min(self.round_steps, max(n_steps // 4, 1)),
            learning_rates=self._rates_times(factor),
        )

    def _rates_times(self, factor: float) -> tuple[float, float, float]:
        """Return the learning rates times a factor."""
        of_items, of_documents, of_readout = self.learning_rates
        return factor * of_items, factor * of_documents, factor * of_readout

    def warmed(self) -> SpacePlan:
        """Return the plan of a fit that starts from former members: few steps at lower rates."""
        n_steps = max(round(self.n_steps * WARM_STEPS), 1)
        return replace(
            self,
            n_steps=n_steps,
            round_steps=min(self.round_steps, n_steps),
            learning_rates=self._rates_times(WARM_RATES),
            pool_from=0.0,
        )

    def weight_bytes(self, n_labels: int, n_features: int) -> int:
        """Return how much memory the members take in training: weights, gradients, two moments.

        Parameters
        ----------
        n_labels, n_features : int
        """
        above = (self.hidden + 1) * self.code
        item_weights = 0
        if n_features:
            item_weights = (n_features + 1) * self.hidden + above
        document_weights = (n_labels + 1) * self.hidden + above
        readout_weights = (self.code + 1) * (n_labels + 1)
        member_weights = item_weights + document_weights + readout_weights
        n_members = self.n_folds * self.members_per_fold
        bytes_a_weight = 16  # four numbers of 4 bytes
        return bytes_a_weight * n_members * member_weights

    def within(self, n_documents: int, n_items: int) -> SpacePlan:
        """Let a step look at no more documents and items than there are; see `sized`."""
        items = min(self.item_batch, max(n_items, 1))
        return replace(
            self,
            document_batch=min(self.document_batch, max(n_documents, 1)),
            item_batch=items,
            probable_batch=min(self.probable_batch, items),
        )


@dataclass(frozen=True)
class TrainingData:
    """What a space is learned from; labels are ordered, seen ones first."""

    documents: sp.csr_matrix  # float32, (m, n_labels); those of label sets first
    n_seen: int  # the first so many labels are on items
    n_label_sets: int  # the first so many documents; only they say which unseen labels there are
    folds: IntArray  # (m,)
    X: Features | None  # (n, n_features)
    item_documents: IntArray  # the document of each item, (n,)
    mean: Matrix  # (n_features,)
    scale: Matrix  # (n_features,)
    pool: Features | None = None  # of untagged items, (n_pool, n_features)
    pool_folds: IntArray | None = None  # (n_pool,)
    verdicts: sp.csr_matrix | None = None  # 1 yes, -1 no, (n + n_pool, n_labels)
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
        counts = np.asarray(self.documents.sum(axis=0), dtype=np.float64).ravel()
        sizes = np.full(self.n_labels, n_label_sets)
        sizes[: self.n_seen] = n_documents
        # prior = (count + ½) / (documents + 1)
        smoothed = (counts + 0.5) / (sizes + 1)
        highest = 1 - 0.5 / (n_documents + 1)
        priors = np.minimum(smoothed, highest)
        if not self.n_unseen:
            return np.asarray(priors)

        unseen_tags = self.documents[:n_label_sets, self.n_seen :]
        n_with_unseen = (np.diff(unseen_tags.indptr) > 0).sum()
        any_unseen = (n_with_unseen + 0.5) / (n_label_sets + 1)
        return np.append(priors, any_unseen)

    def label_weights(self, rarity: float) -> Floats:
        """Return the weight of each output, (n_outputs,), 1 on average; see `SpacePlan.rarity`."""
        priors = self.priors()
        variances = priors * (1 - priors)
        weights = variances**-rarity
        return np.asarray(weights / weights.mean(), dtype=np.float32)


def selection_weights(any_unseen: NDArray[Any]) -> NDArray[Any]:
    """Return for how many items each stands, (n,), 1 on average.

    The likelier a document with an item's tags holds any unseen label, the more of its like were
    left out of the training items.
    """
    probabilities = np.minimum(any_unseen, _MOST_CERTAIN)
    weights = 1 / (1 - probabilities)
    return np.asarray(weights / weights.mean())


class HeldOutPredictions(NamedTuple):
    """What members predict for items that they have not seen."""

    unseen: Floats  # probabilities of unseen labels, and of any, by true tags, (n, n_unseen + 1)
    seen: Floats  # logits of seen labels by features, (n, n_seen)
    pool: Floats  # logits of all labels of untagged items, (n_pool, n_labels)


class Round(NamedTuple):
    """The items of a round and their targets: tagged ones, then those of the pool.

    Of a verdict the target is 2 for yes and -1 for no, so that it can be told from a guess.
    """

    rows: IntArray  # (n,)
    pool_rows: IntArray  # (n_pool,)
    features: Floats  # (n + n_pool, n_features)
    targets: Floats  # true seen labels, then soft targets of unseen ones, (n + n_pool, n_outputs)
    probable: Floats  # probable tags, (n, n_seen)
    weights: Floats  # (n + n_pool,)
    soft: bool  # whether there are soft targets and probable tags yet
    pooled: bool  # whether there are targets of the pool yet


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
    members : Members
        This share's members.
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
        self.n_folds = int(data.folds.max(initial=0)) + 1
        self.n_members = self.n_folds * plan.members_per_fold
        first, n_shares = share
        self.numbers: IntArray = np.arange(self.n_members)[first::n_shares]
        # The fold that each member of this share has not seen.
        self.fold_of: IntArray = np.asarray(self.numbers // plan.members_per_fold)
        n_features = 0 if data.X is None else data.X.shape[1]
        shape = Shape(data.n_labels, data.n_outputs, n_features, plan.hidden, plan.code)
        seeds = [self.seed_of(number, 0) for number in self.numbers]
        members = start_members(shape, data.priors(), seeds)
        if data.start is not None:
            data.start.put_into(members, self.numbers)
        self.members = members.to(device)
        self.round = 0
        self.history: list[dict[str, float]] = []
        n_documents, n_labels = data.documents.shape
        dense_bytes = 4 * n_documents * n_labels
        self.dense: Floats | None = None
        if dense_bytes <= _DENSE_BYTES:
            self.dense = np.asarray(data.documents.toarray(), dtype=np.float32)
        # Of the last round's items; where all of them fit, those of every round.
        self._features: Floats | None = None
        if device == "cpu":
            self.n_threads = min(n_cores(), MOST_THREADS, len(self.numbers))
            places = range(len(self.numbers))
            self.learners = [Learner(self, slice(place, place + 1)) for place in places]
        else:
            from polyseme.space.trainer_gpu import GpuLearner

            self.n_threads = 1
            self.learners = [GpuLearner(self, slice(None))]

    def seed_of(self, number: int, use: int, round_: int = 0) -> int:
        """Return the seed of a member's weights (use 0) or of its draws in a round (use 1)."""
        sequence = np.random.SeedSequence(self.seed, spawn_key=(int(number), use, round_))
        (number_of_64_bits,) = sequence.generate_state(1, np.uint64)
        return int(number_of_64_bits >> 1)

    @property
    def _can_answer(self) -> bool:
        """Whether members have learned anything yet."""
        return self.round > 0 or self.data.start is not None

    @property
    def next_steps(self) -> range:
        """The numbers of the next round's steps."""
        plan = self.plan
        first = min(self.round * plan.round_steps, plan.n_steps)
        stop = min(first + plan.round_steps, plan.n_steps)
        return range(first, stop)

    # ------------------------------------------------------------------ rounds

    def run(
        self, exchange: Exchange | None = None, after: Callable[[], None] | None = None
    ) -> None:
        """Train until the last round is done.

        Parameters
        ----------
        exchange : callable, optional
            Takes this share's answers and gives everybody's; not needed for a single share.
        after : callable, optional
            Called after every round, when state may be kept.
        """
        while self.round < self.plan.n_rounds:
            items = self._begin_round(exchange)
            with self._workers() as threads:
                running = [threads.submit(learner.train, items) for learner in self.learners]
                losses = [pair for future in running for pair in future.result()]
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

    def _begin_round(self, exchange: Exchange | None) -> Round | None:
        """Choose the round's items and let members answer for them; None without items."""
        data = self.data
        n_seen = data.n_seen
        if data.X is None:
            return None
        rows, pool_rows = self._round_items()
        n_items = len(rows)
        documents = data.item_documents[rows]
        features = self._round_features(rows, pool_rows)
        targets = np.zeros((len(features), data.n_outputs), dtype=np.float32)
        targets[:n_items, :n_seen] = data.documents[documents][:, :n_seen].toarray()
        probable = np.zeros((n_items, n_seen), dtype=np.float32)
        weights = np.ones(len(targets), dtype=np.float32)

        first_pool_step = self.plan.pool_from * self.plan.n_steps
        pool_joins = self.next_steps.start >= first_pool_step
        pooled = len(pool_rows) > 0 and self._can_answer and pool_joins
        if self._can_answer:
            folds = data.folds[documents]
            pool_folds = np.zeros(0, dtype=np.int64)
            if pooled and data.pool_folds is not None:
                pool_folds = data.pool_folds[pool_rows]
            answers = self.answers(features, targets[:n_items, :n_seen], folds, pool_folds)
            if exchange is not None:
                answers = exchange(answers)
            logits = self._take_answers(answers, folds, pool_folds, targets[:n_items], probable)
            if self.plan.selection_weights and data.n_unseen:
                any_unseen = targets[:n_items, -1]
                weights[:n_items] = selection_weights(any_unseen)
            if pooled:
                priors = data.priors()[: data.n_labels]
                soft_targets = pool_targets(logits, priors, self.plan.pool_hard)
                targets[n_items:, : data.n_labels] = soft_targets
        weights[n_items:] = self.plan.pool_weight * pooled
        self._place_verdicts(rows, pool_rows, targets, pooled=pooled)
        return Round(
            rows, pool_rows, features, targets, probable, weights, self._can_answer, pooled
        )

    def _round_features(self, rows: IntArray, pool_rows: IntArray) -> Floats:
        """Return the standardised features of a round's items, then of those of the pool."""
        data = self.data
        assert data.X is not None
        n_all = len(data.item_documents) + data.n_pool
        are_all = len(rows) + len(pool_rows) == n_all
        if self._features is None or not are_all:
            tables = [standardise(data.X[rows], data.mean, data.scale)]
            if data.pool is not None:
                tables.append(standardise(data.pool[pool_rows], data.mean, data.scale))
            self._features = np.concatenate(tables)
        return self._features

    def _take_answers(
        self,
        answers: dict[int, HeldOutPredictions],
        folds: IntArray,
        pool_folds: IntArray,
        targets: Floats,
        probable: Floats,
    ) -> Floats:
        """Write soft targets and probable tags of items; return logits of the pool's, in rows."""
        per_fold = self.plan.members_per_fold
        logits = np.empty((len(pool_folds), self.data.n_labels), dtype=np.float32)
        for fold in range(self.n_folds):
            in_fold = folds == fold
            first = fold * per_fold
            fold_answers = [answers[number] for number in range(first, first + per_fold)]
            unseen = _mean([answer.unseen for answer in fold_answers])
            targets[in_fold, self.data.n_seen :] = unseen
            # probable = 1 / (1 + exp(-logit)); of many items and labels: no table is made that
            # need not be.
            odds = np.negative(_mean([answer.seen for answer in fold_answers]))
            np.exp(odds, out=odds)
            np.add(odds, 1, out=odds)
            probable[in_fold] = np.divide(1, odds, out=odds)
            logits[pool_folds == fold] = _mean([answer.pool for answer in fold_answers])
        return logits

    def _place_verdicts(
        self, rows: IntArray, pool_rows: IntArray, targets: Floats, *, pooled: bool
    ) -> None:
        """Write verdicts on a round's items over what is guessed of them."""
        if self.data.verdicts is None:
            return
        verdict_rows = rows
        if pooled:  # nothing is learned of the pool before it joins in
            first_of_pool = len(self.data.item_documents)
            verdict_rows = np.concatenate([rows, first_of_pool + pool_rows])
        verdicts = self.data.verdicts[verdict_rows].tocoo()
        targets[verdicts.row, verdicts.col] = np.where(verdicts.data > 0, 2.0, -1.0)

    def _round_items(self) -> tuple[IntArray, IntArray]:
        """Return the items of a round, and of the pool: all, or as many as the memory allows."""
        data = self.data
        n_items = len(data.item_documents)
        n_pool = data.n_pool
        n_columns = self.members.shape.n_features + 2 * data.n_outputs
        item_bytes = 4 * n_columns
        memory_bytes = self.plan.memory_mb * 2**20
        most = max(int(memory_bytes / item_bytes), 512)
        if n_items + n_pool <= most:
            return np.arange(n_items), np.arange(n_pool)
        seed = self.seed_of(self.n_members, 2, self.round)
        generator = np.random.default_rng(seed)
        n_drawn = min(n_items, max(most - n_pool, most // 2))
        rows = generator.choice(n_items, n_drawn, replace=False)
        n_drawn_of_pool = min(n_pool, max(most - n_drawn, 0))
        pool_rows = generator.choice(n_pool, n_drawn_of_pool, replace=False)
        return np.sort(rows), np.sort(pool_rows)

    def answers(
        self, features: Floats, truth: Floats, folds: IntArray, pool_folds: IntArray
    ) -> dict[int, HeldOutPredictions]:
        """Let this share's members answer for items of their own folds; by members' numbers."""
        pool_features = features[len(truth) :]

        def answer(place: int) -> tuple[int, HeldOutPredictions]:
            member = self.members.select(slice(place, place + 1))
            fold = self.fold_of[place]
            rows = np.flatnonzero(folds == fold)
            pool_rows = np.flatnonzero(pool_folds == fold)
            unseen, seen = mean_answers(member, features[rows], truth[rows])
            pool = pool_answers(member, pool_features[pool_rows], self.data.n_seen)
            number = int(self.numbers[place])
            return number, HeldOutPredictions(unseen, seen, pool)

        places = range(len(self.numbers))
        with self._workers() as threads:
            return dict(threads.map(answer, places))

    # ------------------------------------------------------------------ state

    def get_state(self) -> dict[str, NDArray[Any]]:
        """Return weights and the optimisers' moments as arrays by name, a row for each member."""
        import torch

        tensors = {}
        for place, group in enumerate(self.members.groups):
            tensors[f"weights.{place}"] = group
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
        """Go back to the end of a round; see `get_state`."""
        import torch

        check_arrays(arrays, declare_like(self.get_state()))
        for place, group in enumerate(self.members.groups):
            weights = np.array(arrays[f"weights.{place}"])
            group.copy_(torch.from_numpy(weights))
        require(round_ == len(history), "round", "as many as the history has")
        require(0 <= round_ <= self.plan.n_rounds, "round", "one of the plan's")
        self.round = round_
        self.history = list(history)
        start = 0
        for learner in self.learners:
            rows = slice(start, start + len(learner.members))
            tensors = {}
            for name, moments in part_arrays(arrays, "optimizer").items():
                learner_moments = np.array(moments[rows])
                tensors[name] = torch.from_numpy(learner_moments)
            learner.optimizer.set_state(tensors, self.next_steps.start)
            start = rows.stop

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
        write_model(path, CHECKPOINT_KIND, config, self.get_state())

    def resume(self, path: str | Path) -> None:
        """Go on from the state in a folder, where there is one; another training's is refused."""
        state = read_checkpoint(path, CHECKPOINT_KIND)
        if state is None:
            return
        config, arrays = state
        with name_folder_in_errors(path, "checkpoint"):
            _VALUES.check(config)
            if config["fingerprint"] != self._fingerprint:
                raise other_training(path)
            self.set_state(arrays, config["round"], config["history"])


def checkpoint_seed(path: str | Path) -> int | None:
    """Return the seed of the training whose state a folder holds; None where it holds none."""
    state = read_checkpoint(path, CHECKPOINT_KIND)
    if state is None:
        return None
    with name_folder_in_errors(path, "checkpoint"):
        _VALUES.check(state[0])
    return int(state[0]["seed"])


# What the state of a training holds beside its arrays, which are those of any such training.
ROUNDS: dict[str, Kind] = {"round": Whole(0), "history": ListOf(MappingOf(Number()))}
_VALUES = Fields({"fingerprint": Text(), "seed": Whole(0), **ROUNDS})


def fingerprint(data: TrainingData, plan: SpacePlan) -> str:
    """Digest data, plan and what members start from, to tell whose state a folder holds."""
    digest = hashlib.sha256(f"{plan!r} {data_digest(data)}".encode())
    if data.start is not None:
        start = data.start
        for array in (start.places, start.new_weights, *start.members.groups):
            digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def data_digest(data: TrainingData) -> str:
    """Digest what a space is learned from."""
    digest = hashlib.sha256(repr((data.n_seen, data.n_label_sets)).encode())
    arrays: list[Any] = [data.documents.indptr, data.documents.indices]
    arrays += [data.item_documents, data.folds]
    for table in (data.X, data.pool, data.verdicts):
        if sp.issparse(table):
            arrays += [table.data, table.indices, table.indptr]
        elif table is not None:
            arrays.append(table)
    for array in arrays:
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def mean_answers(members: Members, features: Floats, truth: Floats) -> tuple[Floats, Floats]:
    """Return the mean answer of members for items by features and true tags (n, n_seen).

    Probabilities of unseen labels by true tags, and logits of seen ones by features; see
    `HeldOutPredictions`.
    """
    n_items, n_seen = truth.shape
    n_unseen = members.shape.n_outputs - n_seen
    seen_columns = slice(0, n_seen)
    unseen_columns = slice(n_seen, None)
    unseen = np.empty((n_items, n_unseen), dtype=np.float32)
    seen = np.empty((n_items, n_seen), dtype=np.float32)
    for start in range(0, n_items, _BLOCK_ITEMS):
        rows = slice(start, start + _BLOCK_ITEMS)
        tags = np.zeros((len(truth[rows]), members.shape.n_labels), dtype=np.float32)
        tags[:, :n_seen] = truth[rows]
        tag_codes = members.encode_documents(members.rows(tags))
        unseen_logits = members.read(tag_codes, unseen_columns)
        unseen[rows] = mean_of(likely(unseen_logits))
        item_codes = members.encode_items(members.rows(features[rows]))
        seen[rows] = mean_of(members.read(item_codes, seen_columns))
    return unseen, seen


def _mean(answers: Sequence[Floats]) -> Floats:
    """Return the mean of some members' answers; of one, its own."""
    return answers[0] if len(answers) == 1 else np.mean(answers, axis=0)


def pool_answers(members: Members, features: Floats, n_seen: int) -> Floats:
    """Return the mean logits (n, n_labels) of untagged items, by features and probable tags."""
    n_labels = members.shape.n_labels
    logits = np.empty((len(features), n_labels), dtype=np.float32)
    for start in range(0, len(features), _BLOCK_ITEMS):
        rows = slice(start, start + _BLOCK_ITEMS)
        item_codes = members.encode_items(members.rows(features[rows]))
        seen_logits = members.read(item_codes, slice(0, n_seen))
        tags = np.zeros((len(features[rows]), n_labels), dtype=np.float32)
        tags[:, :n_seen] = mean_of(likely(seen_logits))
        tag_codes = members.encode_documents(members.rows(tags))
        codes = 0.5 * (item_codes + tag_codes)
        logits[rows] = mean_of(members.read(codes, slice(0, n_labels)))
    return logits


def pool_targets(logits: Floats, priors: Matrix, hard: float, most: int = 2048) -> Floats:
    """Return targets of untagged items, (n, n_labels): each label as often as documents.

    Logits (n, n_labels) are shifted so that every label is expected as often as its prior
    (n_labels,) says; of the target a share is hard: 1 for as many of the likeliest items as should
    have the label, 0 for the others. A label that half an item or less should have is left wholly
    soft: zeros for all would take that share away from it, and 1 for one item would be twice its
    due or more. Frequencies are matched on `most` items.
    """
    n_items, n_labels = logits.shape
    every = max(n_items // most, 1)
    sample = logits[::every].astype(np.float64)
    shifts = match_frequencies(sample, np.ones(len(sample)), priors)
    expected_counts = np.round(priors * n_items).astype(np.int64)
    counts = np.minimum(expected_counts, n_items)
    targets = np.empty_like(logits)
    # A few labels at a time: orders and float64 of a whole table would be several times its size.
    for start in range(0, n_labels, 64):
        columns = slice(start, start + 64)
        block = np.asfortranarray(logits[:, columns])
        block_counts = counts[columns]
        probabilities = np.asarray(sigmoid(block + shifts[columns]), dtype=np.float32)
        for place in np.flatnonzero(block_counts):
            falling = np.argsort(-block[:, place], kind="stable")
            likeliest = falling[: block_counts[place]]
            is_likely = np.zeros(n_items, dtype=np.float32)
            is_likely[likeliest] = 1
            # target = (1 - hard) * probability + hard * [among the likeliest]
            probabilities[:, place] += hard * (is_likely - probabilities[:, place])
        targets[:, columns] = probabilities
    return targets
