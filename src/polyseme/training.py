"""The joint training of a concept space: documents, items and one readout, in rounds.

In: documents as sparse rows, features of items, and which document is whose. Out: trained members.

Every member belongs to a fold of documents that it never sees. A round is some steps of every
member by itself; between rounds the members answer for the items of their own folds, which they
have not seen: how likely are unseen labels beside the item's true tags (soft targets), and which
tags do its features suggest (probable tags). Members therefore train side by side in any number of
threads or processes and give the same bits, and a run goes on from the end of any round.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor

from polyseme._threads import n_cores
from polyseme._validation import InputError, IntArray, check_number
from polyseme.members import Batch, MemberOptimizer, Members, Shape, step
from polyseme.persistence import within

Matrix = NDArray[np.float64]
Floats = NDArray[np.float32]
Features = NDArray[np.float64] | sp.csr_matrix

# The kind of folder that holds the state of a training.
CHECKPOINT = "training"
# Standardised features are cut off here: one wild number must not carry an encoder away. Rare
# detections and rare words reach 20 spreads and matter: at 3 the seen labels of HSUN lose 6 points
# of C-MAP, at 10 half a point.
_FARTHEST = 20.0
# No item stands for more than ten.
_MOST_CERTAIN = 0.9
# Threads wait for Python's lock between products: ten of them on sixteen cores were no faster than
# two on two. More cores are used by processes; see `polyseme.cluster.RayTraining`.
_MOST_THREADS = 4
# Tables over documents and labels up to this size are kept dense.
_DENSE_BYTES = 64 * 2**20


@dataclass(frozen=True)
class SpacePlan:
    """How a space is built and trained; results/default-model.md has the search.

    Attributes
    ----------
    n_folds, members_per_fold : int
    n_steps : int
        Of every member.
    round_steps : int
        Steps between two exchanges.
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
        What seen labels count in documents, and unseen ones that are not hidden; hidden unseen
        labels count 1.
    rarity : float
        Labels count as the variance of holding them to minus this power: 0 for all alike, 0.5 as
        if every label varied as much as any other.
    probable_weight : float
        What reading items by their probable tags counts beside reading them by their features.
    soft_weight : float
        What soft targets of unseen labels count beside true seen ones.
    selection_weights : bool
        Whether training items, which hold no unseen label, are weighted so that they stand for a
        natural mix of items.
    label_block : int
        The most labels that a step reads; of more, every step reads those that its documents and
        items hold, and draws so many others.
    memory_mb : float
        Bounds the tables of a round; where items do not fit, every round draws some of them.
    """

    n_folds: int = 5
    members_per_fold: int = 2
    n_steps: int = 500
    round_steps: int = 100
    document_batch: int = 192
    item_batch: int = 128
    probable_batch: int = 64
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
        for name in ("hidden_tags", "unseen_hidden", "rarity"):
            check_number(name, getattr(self, name), owner=owner, low=0, high=1)
        for name in ("seen_weight", "kept_weight", "probable_weight", "soft_weight"):
            check_number(name, getattr(self, name), owner=owner, low=0)
        check_number("memory_mb", self.memory_mb, owner=owner, low=0, above=True)
        lengths = {"learning_rates": 3, "decays": 3, "dropout": 4}
        for name, length in lengths.items():
            if len(getattr(self, name)) != length:
                raise InputError(f"`{name}` of `{owner}` must be {length} numbers.")
        for share in self.dropout:
            check_number("dropout", share, owner=owner, low=0, high=0.99)
        for rate in (*self.learning_rates, *self.decays):
            check_number("learning_rates and decays", rate, owner=owner, low=0)

    def rate_factor(self, number: int) -> float:
        """Say what learning rates are multiplied by in a step: a rise, then half a cosine."""
        warm = min(1.0, (number + 1) / max(0.1 * self.n_steps, 1.0))
        return float(warm * 0.5 * (1 + np.cos(np.pi * number / self.n_steps)))

    def sized(self, n_documents: int, n_items: int) -> SpacePlan:
        """Fit members, batches and steps to the size of the data.

        Up to 20,000 documents there are two members a fold, beyond that one; below 500 documents
        there is one as well, with half the units. A step looks at 192
        documents, at 3,072 where there are a million; the steps are those of the plan, but go
        over the documents at least 4 and at most 100 times.

        Parameters
        ----------
        n_documents, n_items : int

        Returns
        -------
        SpacePlan
        """
        batch, times = self.document_batch, 1
        while batch < 3072 and n_documents / batch > 400:
            batch, times = 2 * batch, 2 * times
        one_pass = max(n_documents / batch, 1.0)
        few = n_documents < 500
        n_steps = int(min(max(self.n_steps, 4 * one_pass), 100 * one_pass))
        return replace(
            self,
            members_per_fold=1 if few or n_documents > 20_000 else self.members_per_fold,
            hidden=self.hidden // 2 if few else self.hidden,
            code=self.code // 2 if few else self.code,
            n_steps=n_steps,
            round_steps=min(self.round_steps, max(n_steps // 4, 1)),
            document_batch=batch,
            item_batch=self.item_batch * times,
            probable_batch=self.probable_batch * times,
        )

    def within(self, n_documents: int, n_items: int) -> SpacePlan:
        """Let a step look at no more rows than there are.

        Parameters
        ----------
        n_documents, n_items : int

        Returns
        -------
        SpacePlan
        """
        items = min(self.item_batch, max(n_items, 1))
        return replace(
            self,
            document_batch=min(self.document_batch, max(n_documents, 1)),
            item_batch=items,
            probable_batch=min(self.probable_batch, items),
        )


@dataclass(frozen=True)
class TrainingData:
    """What a space is learned from; labels are ordered, seen ones first.

    Attributes
    ----------
    documents : csr_matrix of float32, shape (m, n_labels)
        Semantics documents first; only they tell of unseen labels.
    n_seen : int
        The first so many labels are on items.
    n_semantics : int
    folds : int64 array, shape (m,)
    X : float64 array or csr_matrix, shape (n, n_features), or None
    own : int64 array, shape (n,)
        The document of each item.
    mean, scale : float64 arrays, shape (n_features,)
    """

    documents: sp.csr_matrix
    n_seen: int
    n_semantics: int
    folds: IntArray
    X: Features | None
    own: IntArray
    mean: Matrix
    scale: Matrix

    @property
    def n_labels(self) -> int:
        """How many labels there are."""
        return int(self.documents.shape[1])

    @property
    def n_unseen(self) -> int:
        """How many of them are on no item."""
        return self.n_labels - self.n_seen

    @property
    def n_outputs(self) -> int:
        """Columns of the readout: labels and, with unseen ones, whether there is any of them."""
        return self.n_labels + (self.n_unseen > 0)

    def priors(self) -> Matrix:
        """Give how often documents hold each label, (n_outputs,), above 0 and below 1."""
        m, told = self.documents.shape[0], self.n_semantics
        counts = np.asarray(self.documents.sum(axis=0), dtype=np.float64).ravel()
        sizes = np.where(np.arange(self.n_labels) < self.n_seen, m, told)
        priors = np.minimum((counts + 0.5) / (sizes + 1), 1 - 0.5 / (m + 1))
        if not self.n_unseen:
            return np.asarray(priors)
        some = np.diff(self.documents[:told, self.n_seen :].indptr) > 0
        return np.append(priors, (some.sum() + 0.5) / (told + 1))

    def label_weights(self, rarity: float) -> Floats:
        """Give what each output counts, (n_outputs,), with a mean of 1; see `SpacePlan.rarity`."""
        priors = self.priors()
        weights = (priors * (1 - priors)) ** -rarity
        return np.asarray(weights / weights.mean(), dtype=np.float32)

    def standard(self, X: Features) -> Floats:
        """Give features in spreads from the mean, dense and without wild ones, (n, n_features)."""
        found = np.empty(X.shape, dtype=np.float32)
        for start in range(0, len(found), 1024):
            rows = slice(start, start + 1024)
            found[rows] = standardise(X[rows], self.mean, self.scale)
        return found


def standardise(X: Features, mean: Matrix, scale: Matrix) -> Floats:
    """Give some rows of features in spreads from the mean, dense, cut off where they are wild."""
    dense = X.toarray() if sp.issparse(X) else X
    scaled = (np.asarray(dense, dtype=np.float64) - mean) / scale
    return np.asarray(np.clip(scaled, -_FARTHEST, _FARTHEST), dtype=np.float32)


def selection_weights(some: NDArray[Any]) -> NDArray[Any]:
    """Say for how many items each stands, (n,), with a mean of 1.

    Parameters
    ----------
    some : float array, shape (n,)
        How likely a document with an item's tags holds some unseen label: so many of its like were
        left out.

    Returns
    -------
    float array, shape (n,)
    """
    weights = 1 / (1 - np.minimum(some, _MOST_CERTAIN))
    return np.asarray(weights / weights.mean())


class Answers(NamedTuple):
    """What members say of items that they have not seen, before their fold's mean is taken.

    Attributes
    ----------
    unseen : float32 array, shape (n, n_outputs - n_seen)
        Probabilities of unseen labels beside the items' true tags, and of any of them.
    seen : float32 array, shape (n, n_seen)
        Logits of seen labels by features.
    """

    unseen: Floats
    seen: Floats


class Round(NamedTuple):
    """The items of a round and what is aimed at.

    Attributes
    ----------
    rows : int64 array, shape (n,)
    features : float32 array, shape (n, n_features)
    targets : float32 array, shape (n, n_outputs)
        True seen labels, and soft targets of unseen ones.
    probable : float32 array, shape (n, n_seen)
        Probable tags.
    weights : float32 array, shape (n,)
        What each item counts.
    soft : bool
        Whether there are soft targets and probable tags yet.
    """

    rows: IntArray
    features: Floats
    targets: Floats
    probable: Floats
    weights: Floats
    soft: bool


class Learner(Protocol):
    """Some members with their optimiser, on some device.

    Attributes
    ----------
    members : Members
    optimizer : MemberOptimizer
    """

    members: Members
    optimizer: MemberOptimizer

    def train(self, now: Round | None) -> list[tuple[float, float]]:
        """Take the steps of a round; give each member's last losses, (documents, items)."""


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
        self.data, self.plan, self.seed, self.device = data, plan, seed, device
        self.n_folds = int(data.folds.max(initial=0)) + 1
        numbers = np.arange(self.n_folds * plan.members_per_fold)
        self.numbers: IntArray = numbers[share[0] :: share[1]]
        self.n_members = len(numbers)
        n_features = 0 if data.X is None else data.X.shape[1]
        shape = Shape(data.n_labels, data.n_outputs, n_features, plan.hidden, plan.code)
        seeds = [self.seed_of(number, 0) for number in self.numbers]
        self.members = Members.start(shape, data.priors(), seeds).to(device)
        self.round = 0
        self.history: list[dict[str, float]] = []
        most = min(n_cores(), _MOST_THREADS, len(self.numbers))
        self._threads = 1 if device != "cpu" else most
        self.dense = _dense(data.documents)
        # Of the last round's items; where all of them fit, those of every round.
        self._features: Floats | None = None
        self._learners: list[Learner] = []
        if device == "cpu":
            self._learners += [MemberLearner(self, place) for place in range(len(self.numbers))]
        else:
            from polyseme.captured import CapturedLearner

            self._learners.append(CapturedLearner(self))

    def seed_of(self, number: int, use: int, round_: int = 0) -> int:
        """Give the seed of a member's weights (0) or of its draws in a round (1)."""
        sequence = np.random.SeedSequence(self.seed, spawn_key=(int(number), use, round_))
        return int(sequence.generate_state(1, np.uint64)[0] >> 1)

    @property
    def fold_of(self) -> IntArray:
        """The fold that each member of this share has not seen."""
        return np.asarray(self.numbers // self.plan.members_per_fold)

    @property
    def n_steps_done(self) -> int:
        """Steps that every member has taken."""
        return min(self.round * self.plan.round_steps, self.plan.n_steps)

    # ------------------------------------------------------------------ rounds

    def run(
        self,
        exchange: Callable[[dict[int, Answers]], dict[int, Answers]] | None = None,
        after: Callable[[], None] | None = None,
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
            now = self._begin(exchange)
            with self._pool() as pool:
                working = [pool.submit(learner.train, now) for learner in self._learners]
                losses = [one.result() for one in working]
            self.round += 1
            documents, items = np.mean([pair for some in losses for pair in some], axis=0)
            self.history.append({"documents": float(documents), "items": float(items)})
            if after is not None:
                after()

    def _pool(self) -> ThreadPoolExecutor:
        """Open threads that keep the numerical libraries to themselves."""
        return ThreadPoolExecutor(self._threads, initializer=_alone)

    def _begin(
        self, exchange: Callable[[dict[int, Answers]], dict[int, Answers]] | None
    ) -> Round | None:
        """Choose the round's items and ask the members about them; None without items."""
        data = self.data
        if data.X is None:
            return None
        rows = self._rows()
        if len(rows) < len(data.own) or self._features is None:
            self._features = data.standard(data.X[rows])
        features = self._features
        true = np.zeros((len(rows), data.n_outputs), dtype=np.float32)
        labels = data.documents[data.own[rows]]
        true[:, : data.n_seen] = labels[:, : data.n_seen].toarray()
        probable = np.zeros((len(rows), data.n_seen), dtype=np.float32)
        weights = np.ones(len(rows), dtype=np.float32)
        if self.round:
            folds = data.folds[data.own[rows]]
            mine = self.answers(features, true[:, : data.n_seen], folds)
            everybody = mine if exchange is None else exchange(mine)
            self._place(everybody, folds, true, probable, weights)
        return Round(rows, features, true, probable, weights, soft=self.round > 0)

    def _rows(self) -> IntArray:
        """Give the items of a round: all of them, or as many as the memory allows."""
        data, n = self.data, int(self.data.own.shape[0])
        assert data.X is not None
        each = 4 * (data.X.shape[1] + 2 * data.n_outputs)
        most = max(int(self.plan.memory_mb * 2**20 / each), 512)
        if n <= most:
            return np.arange(n)
        draws = np.random.default_rng(self.seed_of(self.n_members, 2, self.round))
        return np.sort(draws.choice(n, most, replace=False))

    def answers(self, features: Floats, true: Floats, folds: IntArray) -> dict[int, Answers]:
        """Let this share's members answer for items of their own folds.

        Parameters
        ----------
        features : float32 array, shape (n, n_features)
        true : float32 array, shape (n, n_seen)
        folds : int64 array, shape (n,)

        Returns
        -------
        dict of int to Answers
            By the member's number.
        """

        def answer(place: int) -> tuple[int, Answers]:
            member = self.members.select(slice(place, place + 1))
            rows = np.flatnonzero(folds == self.fold_of[place])
            return int(self.numbers[place]), ask(
                member, features[rows], true[rows], self.data.n_seen, self.device
            )

        with self._pool() as pool:
            return dict(pool.map(answer, range(len(self.numbers))))

    def _place(
        self,
        answers: dict[int, Answers],
        folds: IntArray,
        targets: Floats,
        probable: Floats,
        weights: Floats,
    ) -> None:
        """Put the means of folds' answers where they belong."""
        n_seen, per_fold = self.data.n_seen, self.plan.members_per_fold
        some = np.zeros(len(folds), dtype=np.float32)
        for fold in np.unique(folds):
            rows = folds == fold
            of = [answers[number] for number in range(fold * per_fold, (fold + 1) * per_fold)]
            unseen = np.mean([one.unseen for one in of], axis=0)
            targets[rows, n_seen:] = unseen
            mean = np.mean([one.seen for one in of], axis=0)
            probable[rows] = 1 / (1 + np.exp(-mean))
            if unseen.shape[1]:
                some[rows] = unseen[:, -1]
        if self.plan.selection_weights and self.data.n_unseen:
            weights[:] = selection_weights(some)

    # ------------------------------------------------------------------ state

    def get_state(self) -> dict[str, NDArray[Any]]:
        """Give weights and the optimisers' memory as arrays by name, a row for each member."""
        held = {f"weights.{place}": one for place, one in enumerate(self.members.groups)}
        states = [learner.optimizer.get_state() for learner in self._learners]
        for name in states[0]:
            held[f"optimizer.{name}"] = torch.cat([state[name] for state in states])
        return {name: one.detach().cpu().numpy().copy() for name, one in held.items()}

    def set_state(
        self,
        arrays: Mapping[str, NDArray[Any]],
        round_: int,
        history: Sequence[dict[str, float]],
    ) -> None:
        """Go back to the end of a round; see `get_state`."""
        for place, group in enumerate(self.members.groups):
            group.copy_(torch.from_numpy(np.array(arrays[f"weights.{place}"])))
        self.round, self.history = round_, list(history)
        memory = within(arrays, "optimizer")
        first = 0
        for learner in self._learners:
            rows = slice(first, first + len(learner.members))
            tensors = {name: torch.from_numpy(np.array(one[rows])) for name, one in memory.items()}
            learner.optimizer.set_state(tensors, self.n_steps_done)
            first = rows.stop


def ask(
    members: Members, features: Floats, true: Floats, n_seen: int, device: str = "cpu"
) -> Answers:
    """Ask members about items; see `Answers`.

    Parameters
    ----------
    members : Members
        Their mean answer is given.
    features : float32 array, shape (n, n_features)
    true : float32 array, shape (n, n_seen)
    n_seen : int
    device : str

    Returns
    -------
    Answers
    """
    shape = members.shape
    unseen = np.empty((len(features), shape.n_outputs - n_seen), dtype=np.float32)
    seen = np.empty((len(features), n_seen), dtype=np.float32)
    for start in range(0, len(features), 4096):
        rows = slice(start, start + 4096)
        tags = torch.zeros(len(features[rows]), shape.n_labels, device=device)
        tags[:, :n_seen] = torch.from_numpy(true[rows]).to(device)
        asked = members.read(members.encode_documents(tags), slice(n_seen, None))
        unseen[rows] = torch.sigmoid(asked).mean(dim=0).cpu().numpy()
        codes = members.encode_items(torch.from_numpy(features[rows]).to(device))
        seen[rows] = members.read(codes, slice(0, n_seen)).mean(dim=0).cpu().numpy()
    return Answers(unseen, seen)


def fingerprint(data: TrainingData, plan: SpacePlan) -> str:
    """Digest data and plan, to tell whose state a folder holds."""
    digest = hashlib.sha256(repr((plan, data.n_seen, data.n_semantics)).encode())
    documents = data.documents
    parts: list[NDArray[Any]] = [documents.indptr, documents.indices, data.own, data.folds]
    if sp.issparse(data.X):
        parts += [data.X.data, data.X.indices, data.X.indptr]
    elif data.X is not None:
        parts.append(data.X)
    for part in parts:
        digest.update(np.ascontiguousarray(part).data)
    return digest.hexdigest()


def _alone() -> None:
    """Keep torch to one thread in this thread."""
    torch.set_num_threads(1)


class MemberLearner:
    """One member on the processor, with its optimiser.

    Parameters
    ----------
    training : SpaceTraining
    place : int
        Which of its members.
    """

    def __init__(self, training: SpaceTraining, place: int) -> None:
        self.training, self.place = training, place
        self.members = training.members.select(slice(place, place + 1))
        self.gradients = self.members.to("cpu")
        plan = training.plan
        self.optimizer = MemberOptimizer(
            self.members, self.gradients, plan.learning_rates, plan.decays
        )

    def train(self, now: Round | None) -> list[tuple[float, float]]:
        """Take the steps of a round; give the last step's losses, (documents, items)."""
        training, plan = self.training, self.training.plan
        first = training.n_steps_done
        last = min(first + plan.round_steps, plan.n_steps)
        batches = Batches(training, self.place, now)
        found: list[tuple[float, float]] = []
        for number in range(first, last):
            batch = batches.draw()
            logits = step(self.members, batch, self.gradients)
            self.optimizer.step(plan.rate_factor(number))
            if number == last - 1:
                found = batches.losses(batch, logits)
        return found


def read_columns(targets: Tensor, drawn: Tensor, most: int) -> tuple[Tensor, Tensor]:
    """Choose the labels that a step reads: those that are there, and some of the others.

    Blocks of labels that are drawn without looking cost 7 points of E-MAP at 10,000 labels and
    2,048 a step; these cost less than one.

    Parameters
    ----------
    targets : float32 tensor, shape (..., n_outputs)
    drawn : float32 tensor, shape (n_outputs,)
        Between 0 and 1.
    most : int
        How many are read.

    Returns
    -------
    columns : int64 tensor, shape (most,)
    factors : float32 tensor, shape (most,)
        For how many each stands.
    """
    there = (targets > 0.5).flatten(0, -2).any(dim=0).float()
    n, n_there = len(drawn), there.sum()
    columns = (drawn + there).topk(most).indices
    n_read = n_there.clamp(max=most)
    others = (n - n_there) / (most - n_read).clamp(min=1)
    return columns, torch.where(there[columns] > 0, n_there / n_read.clamp(min=1), others)


class Batches:
    """Draw the batches of a round for one member on the processor.

    Parameters
    ----------
    training : SpaceTraining
    place : int
        Which of its members.
    now : Round or None
    """

    def __init__(self, training: SpaceTraining, place: int, now: Round | None) -> None:
        data, plan = training.data, training.plan
        self.data, self.plan, self.now = data, plan, now
        number, fold = int(training.numbers[place]), int(training.fold_of[place])
        self.bits = np.random.SFC64(training.seed_of(number, 1, training.round))
        self.draws = np.random.Generator(self.bits)
        others = data.folds != fold if training.n_folds > 1 else np.ones_like(data.folds, bool)
        self.visible = np.flatnonzero(others)
        self.n_items, self.n_probable = 0, 0
        if now is not None:
            self.items = np.flatnonzero(others[data.own[now.rows]])
            if not len(self.items):
                self.items = np.arange(len(now.rows))
            self.n_items = min(plan.item_batch, len(self.items))
            # Before the first exchange nobody knows which tags are probable.
            self.n_probable = min(plan.probable_batch, self.n_items) if now.soft else 0
        self.dense = training.dense
        # What each output counts everywhere, and what it counts where items are read.
        n_seen, n_labels, n_outputs = data.n_seen, data.n_labels, data.n_outputs
        self.by_label = torch.from_numpy(data.label_weights(plan.rarity))
        self.by_item = torch.ones(n_outputs)
        self.by_item[n_seen:] = plan.soft_weight if now is not None and now.soft else 0.0
        self.by_item[n_labels:] = 0.0
        rows = plan.document_batch + self.n_probable
        self.tags = torch.zeros(rows, n_labels)
        self.truth = torch.zeros(rows + self.n_items, n_outputs)
        self.weights = torch.full((rows + self.n_items, n_outputs), plan.seen_weight)

    def _bytes(self, *shape: int) -> Tensor:
        """Draw whole numbers from 0 to 255 as float32."""
        n = int(np.prod(shape))
        drawn = np.asarray(self.bits.random_raw(n // 8 + 1)).view(np.uint8)[:n]
        return torch.from_numpy(drawn).view(*shape).float()

    def _factors(self, share: float, *shape: int) -> Tensor:
        """Draw factors that leave a share of units out and strengthen the others."""
        lowest = round(256 * share)
        return self._bytes(*shape).ge_(lowest).mul_(256 / (256 - lowest))

    def draw(self) -> Batch:
        """Draw one batch; it shares memory with the next one."""
        plan, n_documents = self.plan, self.plan.document_batch
        n_probable, n_items = self.n_probable, self.n_items
        self._documents(n_documents)
        features = None
        if self.now is not None:
            features = self._items(n_documents)[None]
        targets, weights, columns = self.truth, self.weights.mul_(self.by_label), None
        if self.data.n_outputs > plan.label_block:
            drawn = torch.from_numpy(self.draws.random(self.data.n_outputs, dtype=np.float32))
            columns, factors = read_columns(targets, drawn, plan.label_block)
            targets, weights = targets[:, columns], weights[:, columns].mul_(factors)
        n_features = 0 if features is None else features.shape[2]
        rates, rows = plan.dropout, n_documents + n_probable
        dropout = [
            self._factors(rates[0], 1, n_items, n_features),
            self._factors(rates[1], 1, n_items, plan.hidden),
            self._factors(rates[2], 1, rows, plan.hidden),
            self._factors(rates[3], 1, rows + n_items, plan.code),
        ]
        return Batch(self.tags[None], features, targets[None], weights[None], columns, dropout)

    def _documents(self, n: int) -> None:
        """Draw documents and hide some of their tags."""
        data, plan, n_seen, n_labels = self.data, self.plan, self.data.n_seen, self.data.n_labels
        chosen = self.visible[self.draws.integers(0, len(self.visible), n)]
        rows = data.documents[chosen].toarray() if self.dense is None else self.dense[chosen]
        truth = torch.from_numpy(rows)
        rates = self.draws.random((n, 1), dtype=np.float32) * np.float32(256 * plan.hidden_tags)
        hidden = self._bytes(n, n_labels).lt_(torch.from_numpy(rates))
        self.truth[:n, :n_labels] = truth
        scale = 1 / (n * data.n_outputs)
        self.weights[:n] = plan.seen_weight * scale
        if data.n_unseen:
            all_unseen = torch.from_numpy(self.draws.random((n, 1), dtype=np.float32))
            all_unseen.lt_(plan.unseen_hidden)
            telling = torch.from_numpy((chosen < data.n_semantics).astype(np.float32))[:, None]
            unseen = hidden[:, n_seen:]
            torch.maximum(unseen, all_unseen, out=unseen)
            kept = plan.kept_weight
            counted = (unseen * (1 - kept)).add_(kept).mul_(telling * scale)
            self.weights[:n, n_seen:n_labels] = counted
            self.weights[:n, n_labels:] = all_unseen * telling * scale
            self.truth[:n, n_labels:] = truth[:, n_seen:].amax(dim=1, keepdim=True)
        torch.mul(truth, hidden.neg_().add_(1), out=self.tags[:n])

    def _items(self, n_documents: int) -> Tensor:
        """Draw items; give their features."""
        assert self.now is not None
        data, plan, n_probable = self.data, self.plan, self.n_probable
        items = self.items[self.draws.integers(0, len(self.items), self.n_items)]
        first, last = n_documents, n_documents + n_probable
        aims = torch.from_numpy(self.now.targets[items])
        counts = torch.from_numpy(self.now.weights[items])[:, None] * self.by_item
        self.truth[first:last] = aims[:n_probable]
        self.truth[last:] = aims
        if n_probable:
            probable = torch.from_numpy(self.now.probable[items[:n_probable]])
            self.tags[first:last, : data.n_seen] = probable
            scale = plan.probable_weight / (n_probable * data.n_outputs)
            self.weights[first:last] = counts[:n_probable] * scale
        self.weights[last:] = counts / (self.n_items * data.n_outputs)
        return torch.from_numpy(self.now.features[items])

    def losses(self, batch: Batch, logits: Tensor) -> list[tuple[float, float]]:
        """Give the mean cross-entropy of documents and of items by their features."""
        each = torch.nn.functional.binary_cross_entropy_with_logits(
            logits, batch.targets, reduction="none"
        )
        sums = (each * batch.weights).sum(dim=2)
        n, first = self.plan.document_batch, self.plan.document_batch + self.n_probable
        return [(float(one[:n].sum()), float(one[first:].sum())) for one in sums]


def _dense(documents: sp.csr_matrix) -> Floats | None:
    """Give documents as a dense table where it is small enough."""
    if 4 * documents.shape[0] * documents.shape[1] > _DENSE_BYTES:
        return None
    return np.asarray(documents.toarray(), dtype=np.float32)
