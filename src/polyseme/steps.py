"""The steps of a round on the processor: batches, gradients by hand, and their optimiser.

In: a `SpaceTraining` and the items of a round. Out: trained members. `polyseme.gpu_training` takes
the same steps on a GPU.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from polyseme.members import Layers, Members, Shape, squashed
from polyseme.training import Round, SpaceTraining


class Learner:
    """Some members with their optimiser; on the processor one.

    Parameters
    ----------
    training : SpaceTraining
    places : slice
        Which of its members.
    """

    def __init__(self, training: SpaceTraining, places: slice) -> None:
        self.training = training
        plan = training.plan
        self.members = training.members.select(places)
        self.gradients = self.members.to(training.device)
        self.optimizer = MemberOptimizer(
            self.members, self.gradients, plan.learning_rates, plan.decays
        )
        self.batches = self._make_sampler(places)

    def _make_sampler(self, places: slice) -> BatchSampler:
        return BatchSampler(self.training, places)

    def train(self, items: Round | None) -> list[tuple[float, float]]:
        """Take the steps of a round; give each member's last losses, (documents, items)."""
        plan = self.training.plan
        self.batches.begin(items)
        for number in self.training.next_steps:
            batch = self.batches.draw()
            logits = step(self.members, batch, self.gradients)
            self.optimizer.step(plan.rate_factor(number))
        return losses(batch, logits, plan.document_batch)


def losses(batch: TrainingBatch, logits: Tensor, n_documents: int) -> list[tuple[float, float]]:
    """Return each member's mean cross-entropy of documents and of items by their features."""
    entropies = torch.nn.functional.binary_cross_entropy_with_logits(
        logits, batch.targets, reduction="none"
    )
    of_rows = (entropies * batch.weights).sum(dim=2).cpu()
    first = batch.tags.shape[1]
    return [(float(rows[:n_documents].sum()), float(rows[first:].sum())) for rows in of_rows]


def read_columns(there: Tensor, drawn: Tensor, most: int) -> tuple[Tensor, Tensor]:
    """Choose the labels that a step reads: those in targets, and others by numbers that were drawn.

    Takes which labels are in any target (n,), and numbers between 0 and 1 (n,). Gives columns
    (most,), and for how many labels each stands (most,). Blocks of labels that are drawn without
    looking cost 7 points of E-MAP at 10,000 labels and 2,048 a step; these cost less than one.
    """
    there = there.float()
    n = len(drawn)
    n_there = there.sum()
    columns = (drawn + there).topk(most).indices
    n_read = n_there.clamp(max=most)
    others = (n - n_there) / (most - n_read).clamp(min=1)
    return columns, torch.where(there[columns] > 0, n_there / n_read.clamp(min=1), others)


def _read(table: Tensor, columns: Tensor | None) -> Tensor:
    """Return some columns of a table; all where none are named."""
    if columns is None:
        return table
    # Takes a fifth of the time of `table[..., columns]` on the processor.
    return table.gather(-1, columns.expand(*table.shape[:-1], -1))


class DrawnDocuments(NamedTuple):
    """The documents of a step."""

    tags: Tensor  # what is left of their tags, (n_members, n, n_labels)
    targets: Tensor  # all of them, and whether any is unseen, (n_members, n, n_outputs)
    shown: Tensor  # 1 or 0 where a label would be hidden, (n_members, n, n_labels)
    all_unseen: Tensor  # 1 where all unseen ones are hidden, (n_members, n, 1)
    scales: Tensor  # weights of unseen labels, (n_members, n, 1)


class BatchSampler:
    """Draw the batches of some members; `polyseme.gpu_training` has other sources of numbers.

    Parameters
    ----------
    training : SpaceTraining
    places : slice
        Which of its members; on the processor one.
    """

    def __init__(self, training: SpaceTraining, places: slice) -> None:
        self.training = training
        self.data = training.data
        self.plan = training.plan
        data = training.data
        self.device = training.device
        self.number = int(training.numbers[places][0])
        self.places = places
        # Which documents each member may see, (n_members, m).
        self.sees = data.folds != training.fold_of[places, None]
        if training.n_folds == 1:
            self.sees[:] = True
        self.documents = self._candidates(self.sees)
        self.label_weights = torch.from_numpy(data.label_weights(self.plan.rarity)).to(self.device)
        # Of the outputs of items, before rarity; and what probable tags are weighted by.
        self.output_weights = torch.zeros(data.n_outputs, device=self.device)
        self.output_weights[: data.n_seen] = 1.0
        self.probable_scale = torch.zeros((), device=self.device)
        self.items: dict[str, Tensor] = {}
        self.n_items = self.n_probable = self.n_pool = 0

    def begin(self, items: Round | None) -> None:
        """Take over the items of a round, and seed its draws."""
        data = self.data
        plan = self.plan
        self._seed(self.training.seed_of(self.number, 1, self.training.round))
        if items is None:
            return
        sees = self.sees[:, data.item_documents[items.rows]]
        sees[~sees.any(axis=1)] = True
        self.n_items, self.n_probable = self._item_counts(int(sees.sum(axis=1).min()), items.soft)
        self.n_pool = self._pool_count(len(items.pool_rows), items.pooled)
        names = ("features", "targets", "probable", "weights")
        tables = {name: torch.from_numpy(getattr(items, name)) for name in names}
        tables["rows"], tables["sizes"] = self._candidates(sees)
        if self.n_pool and data.pool_folds is not None:
            folds = data.pool_folds[items.pool_rows]
            own = self.training.fold_of[self.places, None]
            sees = folds != own
            sees[~sees.any(axis=1)] = True
            rows, tables["pool_sizes"] = self._candidates(sees)
            tables["pool_rows"] = rows + len(items.rows)
        self._hold(tables)
        self.output_weights[data.n_seen : data.n_labels] = plan.soft_weight * items.soft
        scale = plan.probable_weight / (max(self.n_probable, 1) * data.n_outputs)
        self.probable_scale.fill_(scale * items.soft)

    def draw(self) -> TrainingBatch:
        """Draw one batch for each member."""
        data = self.data
        plan = self.plan
        n_items = self.n_items
        documents = self._draw_documents(plan.document_batch)
        tags = documents.tags
        features = None
        item_targets = None
        if self.items:
            chosen = self._choose(self.items["rows"], self.items["sizes"], n_items)
            if self.n_pool:
                tables = self.items["pool_rows"], self.items["pool_sizes"]
                chosen = torch.cat([chosen, self._choose(*tables, self.n_pool)], dim=1)
            features = self.items["features"][chosen]
            item_targets = self.items["targets"][chosen]
            # Some of the items are read by their probable tags, then all by their features.
            some = slice(0, self.n_probable)
            probable = torch.zeros(len(chosen), self.n_probable, data.n_labels, device=self.device)
            probable[..., : data.n_seen] = self.items["probable"][chosen[:, some]]
            tags = torch.cat([tags, probable], dim=1)

        # Weights of labels that are not read are never made: such tables are what a draw costs.
        columns = None
        factors = torch.ones((), device=self.device)
        if data.n_outputs > plan.label_block:
            there = (documents.targets > 0.5).flatten(0, -2).any(dim=0)
            if item_targets is not None:
                there |= (item_targets > 0.5).flatten(0, -2).any(dim=0)
            drawn = self._uniform(data.n_outputs)[0]
            columns, factors = read_columns(there, drawn, plan.label_block)
        targets = _read(documents.targets, columns)
        weights = self._document_weights(documents, columns)
        if item_targets is not None:
            item_targets = _read(item_targets, columns)
            item_weights = self.items["weights"][chosen][..., None] * _read(
                self.output_weights, columns
            )
            if data.verdicts is not None:
                said = (item_targets < 0) | (item_targets > 1)
                item_weights = torch.where(said, plan.verdict_weight, item_weights)
                item_targets = item_targets.clamp(0, 1)
            by_tags = item_weights[:, some] * self.probable_scale
            by_features = item_weights.div_(n_items * data.n_outputs)
            by_features[:, n_items:] *= n_items / max(self.n_pool, 1)
            targets = torch.cat([targets, item_targets[:, some], item_targets], dim=1)
            weights = torch.cat([weights, by_tags, by_features], dim=1)
        weights.mul_(_read(self.label_weights, columns)).mul_(factors)

        n_features = 0 if features is None else features.shape[2]
        n_tag_rows = tags.shape[1]
        n_read = n_items + self.n_pool
        dropout = [
            self._dropout(plan.dropout[0], n_read, n_features),
            self._dropout(plan.dropout[1], n_read, plan.hidden),
            self._dropout(plan.dropout[2], n_tag_rows, plan.hidden),
            self._dropout(plan.dropout[3], n_tag_rows + n_read, plan.code),
        ]
        sparse_tags = None if columns is None else self._sparse_tags(documents.tags)
        return TrainingBatch(tags, features, targets, weights, columns, dropout, sparse_tags)

    def _draw_documents(self, n: int) -> DrawnDocuments:
        """Draw documents, and which of their tags are hidden."""
        data = self.data
        plan = self.plan
        n_seen = self.data.n_seen
        chosen = self._choose(*self.documents, n)
        truth = targets = self._tags_of(chosen)
        shown = self._hidden(n)
        all_unseen = torch.zeros((), device=self.device)
        if data.n_unseen:
            all_unseen = (self._uniform(n, 1) < plan.unseen_hidden).float()
            unseen = shown[..., n_seen:]
            torch.maximum(unseen, all_unseen, out=unseen)
            targets = torch.cat([truth, truth[..., n_seen:].amax(dim=2, keepdim=True)], dim=2)
        shown.neg_().add_(1)
        # Only label sets say which unseen labels a document holds.
        scales = (chosen < data.n_label_sets).float()[..., None] / (n * data.n_outputs)
        return DrawnDocuments(truth * shown, targets, shown, all_unseen, scales)

    def _document_weights(self, documents: DrawnDocuments, columns: Tensor | None) -> Tensor:
        """Return the weights of targets of drawn documents, of some columns or all."""
        data = self.data
        plan = self.plan
        n_seen, n_labels = (self.data.n_seen, self.data.n_labels)
        _, targets, shown, all_unseen, scales = documents
        of_seen = plan.seen_weight / (targets.shape[1] * data.n_outputs)

        def of_unseen(are_shown: Tensor) -> Tensor:
            kept = plan.kept_weight
            return (1 - are_shown).mul_(1 - kept).add_(kept).mul_(scales)

        if columns is not None and data.n_unseen:
            weights = of_unseen(_read(shown, columns.clamp(max=n_labels - 1)))
            weights = torch.where(columns < n_seen, of_seen, weights)
            return torch.where(columns < n_labels, weights, all_unseen * scales)
        n_read = data.n_outputs if columns is None else len(columns)
        weights = torch.full((*targets.shape[:2], n_read), of_seen, device=self.device)
        if data.n_unseen:
            weights[..., n_seen:n_labels] = of_unseen(shown[..., n_seen:])
            weights[..., n_labels:] = all_unseen * scales
        return weights

    def _candidates(self, sees: NDArray[np.bool_]) -> tuple[Tensor, Tensor]:
        """Return the rows that each member may see, first of all (n_members, n), and how many."""
        rows = np.argsort(~sees, axis=1, kind="stable")
        sizes = sees.sum(axis=1, keepdims=True)
        return torch.from_numpy(rows).to(self.device), torch.from_numpy(sizes).to(self.device)

    # ------------------------------------------------------------------ on the processor

    def _seed(self, seed: int) -> None:
        """Seed all draws."""
        self.bits = np.random.SFC64(seed)
        self.generator = np.random.Generator(self.bits)

    def _item_counts(self, n_visible: int, soft: bool) -> tuple[int, int]:
        """Return how many items a step reads by features and by probable tags, if there are any."""
        n_items = min(self.plan.item_batch, n_visible)
        return n_items, min(self.plan.probable_batch, n_items) if soft else 0

    def _pool_count(self, n: int, pooled: bool) -> int:
        """Return how many untagged items a step reads, of so many, if they have targets."""
        return min(self.plan.item_batch, n) if pooled else 0

    def _hold(self, items: dict[str, Tensor]) -> None:
        """Keep the tables of a round's items."""
        self.items = items

    def _choose(self, rows: Tensor, sizes: Tensor, n: int) -> Tensor:
        """Draw n of each member's rows, (n_members, n)."""
        return rows[:, torch.from_numpy(self.generator.integers(0, int(sizes[0, 0]), n))]

    def _tags_of(self, documents: Tensor) -> Tensor:
        """Return the tags of documents, (n_members, n, n_labels)."""
        if self.training.dense is not None:
            return torch.from_numpy(self.training.dense[documents.numpy()])
        return torch.from_numpy(self.data.documents[documents[0].numpy()].toarray())[None]

    def _uniform(self, *shape: int) -> Tensor:
        """Draw numbers between 0 and 1."""
        return torch.from_numpy(self.generator.random((1, *shape), dtype=np.float32))

    def _bytes(self, *shape: int) -> Tensor:
        """Draw whole numbers from 0 to 255 as float32; much faster than fractions."""
        n = int(np.prod(shape))
        drawn = np.asarray(self.bits.random_raw(n // 8 + 1)).view(np.uint8)[:n]
        return torch.from_numpy(drawn).view(1, *shape).float()

    def _sparse_tags(self, tags: Tensor) -> SparseTags | None:
        """Return the tags (n_members, n, n_labels) that documents hold one by one."""
        _, rows, labels = tags.nonzero(as_tuple=True)
        return SparseTags(tags.shape[1], rows, labels)

    def _hidden(self, n: int) -> Tensor:
        """Draw which tags are hidden, 1 or 0, (n_members, n, n_labels)."""
        rates = self._uniform(n, 1).mul_(256 * self.plan.hidden_tags)
        return self._bytes(n, self.data.n_labels).lt_(rates)

    def _dropout(self, share: float, *shape: int) -> Tensor:
        """Draw factors that leave a share of units out and strengthen the others."""
        lowest = round(256 * share)
        return self._bytes(*shape).ge_(lowest).mul_(256 / (256 - lowest))


# ---------------------------------------------------------------------- one step


class SparseTags(NamedTuple):
    """The tags of the first rows of a member's batch, one by one: of thousands, few are held."""

    n_rows: int
    rows: Tensor  # (n_held,)
    labels: Tensor  # (n_held,)

    def products(self, tags: Tensor, weights: Tensor, bias: Tensor) -> Tensor:
        """Return tags (1, n, n_labels) times weights, with the bias added."""
        of_others = torch.baddbmm(bias, tags[:, self.n_rows :], weights)
        of_rows = bias[0].repeat(self.n_rows, 1)
        of_rows.index_add_(0, self.rows, weights[0][self.labels])
        return torch.cat([of_rows[None], of_others], dim=1)

    def gradients(self, tags: Tensor, below: Tensor, out: Tensor) -> None:
        """Overwrite gradients of weights by those of products (1, n, above); see `products`."""
        torch.bmm(tags[:, self.n_rows :].mT, below[:, self.n_rows :], out=out)
        out[0].index_add_(0, self.labels, below[0][self.rows])


def start_members(shape: Shape, priors: NDArray[np.float64], seeds: list[int]) -> Members:
    """Make untrained members that give every output its prior (n_outputs,), roughly.

    Each seed draws one member's weights, whatever the others are.
    """
    members = Members(shape, *(torch.zeros(len(seeds), count) for count in shape.n_weights))
    readout = (members.labels, members.bias)
    for place, seed in enumerate(seeds):
        generator = torch.Generator().manual_seed(seed)
        for weights, _ in (*members.item_layers, *members.document_layers, readout):
            below, above = weights.shape[1:]
            drawn = torch.randn(below, above, generator=generator)
            weights[place] = drawn * (2 / (below + above)) ** 0.5
    members.bias += torch.from_numpy(np.log(priors) - np.log1p(-priors)).float()
    return members


@dataclass
class TrainingBatch:
    """The rows of one training step: documents, items by probable tags, items by features."""

    tags: Tensor  # (n_members, n_documents + n_probable, n_labels)
    features: Tensor | None  # (n_members, n_items, n_features); None: no items, documents alone
    targets: Tensor  # (n_members, n_documents + n_probable + n_items, n_columns)
    weights: Tensor  # the same; already divided by the numbers of rows and outputs
    columns: Tensor | None  # the outputs that are read, (n_columns,); None: all
    dropout: list[Tensor]  # factors on features, hidden units of items, of documents, codes
    sparse_tags: SparseTags | None = None  # of documents, where that is quicker than a table


def step(members: Members, batch: TrainingBatch, gradients: Members) -> Tensor:
    """Overwrite gradients with those of the weighted cross-entropy of a batch; give its logits.

    Written out by hand: autograd takes about 1.6 times as long on the processor, where most of a
    step of this size is not matrix products.
    """
    on_features, on_items, on_documents, on_codes = batch.dropout
    (first, first_bias), (second, second_bias) = members.document_layers
    tags = batch.tags
    if batch.sparse_tags is None:
        open_units = torch.relu_(torch.baddbmm(first_bias, tags, first))
    else:
        open_units = torch.relu_(batch.sparse_tags.products(tags, first, first_bias))
    hidden = open_units * on_documents
    codes = torch.baddbmm(second_bias, hidden, second)
    if batch.features is not None:
        (item_first, item_bias), (item_second, item_offset) = members.item_layers
        features = batch.features * on_features
        item_units = torch.relu_(torch.baddbmm(item_bias, features, item_first))
        item_hidden = item_units * on_items
        codes = torch.cat([codes, torch.baddbmm(item_offset, item_hidden, item_second)], dim=1)
    codes = squashed(codes)
    thinned = codes * on_codes
    labels = _read(members.labels, batch.columns)
    bias = _read(members.bias, batch.columns)
    logits = torch.baddbmm(bias, thinned, labels)
    # The derivative of the cross-entropy by its logits.
    errors = torch.sigmoid(logits).sub_(batch.targets).mul_(batch.weights)
    on_labels = thinned.mT @ errors
    on_bias = errors.sum(dim=1, keepdim=True)
    if batch.columns is None:
        gradients.labels.copy_(on_labels)
        gradients.bias.copy_(on_bias)
    else:
        gradients.readout.zero_()
        gradients.labels.index_copy_(2, batch.columns, on_labels)
        gradients.bias.index_copy_(2, batch.columns, on_bias)
    back = (errors @ labels.mT).mul_(on_codes)
    back -= back * codes * codes
    n_rows = tags.shape[1]
    layers = gradients.document_layers
    _back(back[:, :n_rows], tags, open_units, on_documents, second, layers, batch.sparse_tags)
    if batch.features is not None:
        layers = gradients.item_layers
        _back(back[:, n_rows:], features, item_units, on_items, item_second, layers)
    return logits


def _back(
    back: Tensor,
    inputs: Tensor,
    units: Tensor,
    dropout: Tensor,
    second: Tensor,
    gradients: Layers,
    sparse_tags: SparseTags | None = None,
) -> None:
    """Go back through one encoder: from gradients of what its tanh takes to those of weights."""
    (on_first, on_first_bias), (on_second, on_second_bias) = gradients
    torch.bmm((units * dropout).mT, back, out=on_second)
    torch.sum(back, dim=1, keepdim=True, out=on_second_bias)
    below = torch.ops.aten.threshold_backward((back @ second.mT).mul_(dropout), units, 0)
    if sparse_tags is None:
        torch.bmm(inputs.mT, below, out=on_first)
    else:
        sparse_tags.gradients(inputs, below, on_first)
    torch.sum(below, dim=1, keepdim=True, out=on_first_bias)


class MemberOptimizer:
    """AdamW for members whose gradients `step` takes, with a rate and a decay for each group.

    Parameters
    ----------
    members, gradients : Members
    rates, decays : sequences of float, length 3
        Of item encoder, document encoder and readout.
    """

    def __init__(
        self, members: Members, gradients: Members, rates: Sequence[float], decays: Sequence[float]
    ) -> None:
        groups = zip(members.groups, gradients.groups, rates, decays, strict=True)
        # Members without an item encoder have a group without weights.
        self.groups = [_Group(*group) for group in groups if group[0].numel()]

    def step(self, factor: float | Tensor) -> None:
        """Take a step, with all rates times a factor; a CUDA graph has it on its device."""
        # What `torch.optim.AdamW` calls; the class itself loads torch's compiler on its first
        # step, which takes seconds and is a large part of a small fit.
        for group in self.groups:
            group.n_steps += 1
            torch._fused_adamw_(
                [group.weights],
                [group.gradient],
                [group.mean],
                [group.square],
                [],
                [group.n_steps],
                amsgrad=False,
                beta1=0.9,
                beta2=0.999,
                lr=group.rate * factor,
                weight_decay=group.decay,
                eps=1e-8,
                maximize=False,
            )

    def get_state(self) -> dict[str, Tensor]:
        """Return the moments of gradients by name, a row for each member."""
        state: dict[str, Tensor] = {}
        for place, group in enumerate(self.groups):
            state |= {f"mean.{place}": group.mean, f"square.{place}": group.square}
        return state

    def set_state(self, state: Mapping[str, Tensor], n_steps: int) -> None:
        """Take back the moments as they were after so many steps; see `get_state`."""
        for name, moment in self.get_state().items():
            moment.copy_(state[name])
        for group in self.groups:
            group.n_steps.fill_(n_steps)


class _Group:
    """Weights that have one rate and one decay, and the moments that AdamW keeps of them."""

    def __init__(self, weights: Tensor, gradient: Tensor, rate: float, decay: float) -> None:
        self.weights = weights
        self.gradient = gradient
        self.rate = rate
        self.decay = decay
        self.mean = torch.zeros_like(weights)
        self.square = torch.zeros_like(weights)
        self.n_steps = torch.zeros((), device=weights.device)
