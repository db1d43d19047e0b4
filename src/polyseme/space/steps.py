"""The steps of a round: batches for both devices; gradients by hand, and their optimiser.

In: a `SpaceTraining` and the items of a round. Out: trained members. `polyseme.space.trainer_gpu`
takes the same steps on a GPU: it overrides the section "on the processor" of `BatchSampler`, and
records a draw as a graph, so that no draw may branch on values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from polyseme.base.machine import onednn_products
from polyseme.space.members import Layers, Members, Shape, squashed
from polyseme.space.training import RoundItems, SeedUse, SpaceTraining


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

    def train(self, items: RoundItems | None) -> list[tuple[float, float]]:
        """Take the steps of a round; return each member's last losses, (documents, items)."""
        plan = self.training.plan
        self.batches.begin(items)
        with onednn_products():
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
    weighted = entropies * batch.weights
    row_losses = weighted.sum(dim=2).cpu()
    first_item = batch.tags.shape[1]
    member_losses: list[tuple[float, float]] = []
    for member_rows in row_losses:
        of_documents = float(member_rows[:n_documents].sum())
        of_items = float(member_rows[first_item:].sum())
        member_losses.append((of_documents, of_items))
    return member_losses


def read_columns(in_targets: Tensor, draws: Tensor, most: int) -> tuple[Tensor, Tensor]:
    """Choose the labels that a step reads: those in targets, and a random sample of the others.

    Labels that are drawn in blocks, without regard to targets, cost 7 points of E-MAP at 10,000
    labels and 2,048 a step; these cost less than one.

    Parameters
    ----------
    in_targets : bool tensor, shape (n,)
        Which labels are in any target.
    draws : float tensor, shape (n,)
        Random numbers between 0 and 1.
    most : int
        How many labels are read.

    Returns
    -------
    columns : int64 tensor, shape (most,)
    factors : float tensor, shape (most,)
        For how many labels each of these stands.
    """
    in_targets = in_targets.float()
    n_labels = len(draws)
    n_in_targets = in_targets.sum()
    columns = (draws + in_targets).topk(most).indices
    n_read = n_in_targets.clamp(max=most)
    target_factor = n_in_targets / n_read.clamp(min=1)
    n_sampled = (most - n_read).clamp(min=1)
    other_factor = (n_labels - n_in_targets) / n_sampled
    factors = torch.where(in_targets[columns] > 0, target_factor, other_factor)
    return columns, factors


def _read(table: Tensor, columns: Tensor | None) -> Tensor:
    """Return some columns of a table; all where none are named."""
    if columns is None:
        return table
    # Takes a fifth of the time of `table[..., columns]` on the processor.
    return table.gather(-1, columns.expand(*table.shape[:-1], -1))


def _labels_in(targets: Tensor) -> Tensor:
    """Return which outputs are true in any target, (n_outputs,)."""
    is_true = targets > 0.5
    return is_true.flatten(0, -2).any(dim=0)


class DrawnDocuments(NamedTuple):
    """The documents of a step."""

    tags: Tensor  # tags that are not hidden, (n_members, n, n_labels)
    targets: Tensor  # all tags, and whether any is unseen, (n_members, n, n_outputs)
    visible: Tensor  # 1, or 0 where a label is hidden, (n_members, n, n_labels)
    all_unseen: Tensor  # 1 where all unseen ones are hidden, (n_members, n, 1)
    scales: Tensor  # weights of unseen labels, (n_members, n, 1)


class BatchSampler:
    """Draw the batches of some members; `polyseme.space.trainer_gpu` has other sources of numbers.

    Parameters
    ----------
    training : SpaceTraining
    places : slice
        Which of its members; on the processor one.
    """

    def __init__(self, training: SpaceTraining, places: slice) -> None:
        data = training.data
        self.training = training
        self.data = data
        self.plan = training.plan
        self.device = training.device
        self.number = int(training.member_numbers[places][0])
        self.places = places
        # Which documents each member may see, (n_members, m).
        self.sees = data.folds != training.member_folds[places, None]
        if training.n_folds == 1:
            self.sees[:] = True
        self.documents = self._candidates(self.sees)
        label_weights = data.label_weights(self.plan.rarity)
        self.label_weights = torch.from_numpy(label_weights).to(self.device)
        # Weights of items' outputs, before rarity, and the factor of probable tags.
        self.output_weights = torch.zeros(data.n_outputs, device=self.device)
        self.output_weights[: data.n_seen] = 1.0
        self.probable_scale = torch.zeros((), device=self.device)
        self.items: dict[str, Tensor] = {}
        self.n_items = 0
        self.n_probable = 0
        self.n_pool = 0

    def begin(self, items: RoundItems | None) -> None:
        """Take over the items of a round, and seed its draws."""
        data = self.data
        plan = self.plan
        seed = self.training.seed_of(self.number, SeedUse.BATCHES, self.training.round)
        self._seed(seed)
        if items is None:
            return
        sees = self.sees[:, data.item_documents[items.rows]]
        sees[~sees.any(axis=1)] = True
        n_visible = int(sees.sum(axis=1).min())
        self.n_items, self.n_probable = self._item_counts(n_visible, items.has_soft_targets)
        self.n_pool = self._pool_count(len(items.pool_rows), items.has_pool_targets)
        tables: dict[str, Tensor] = {}
        for name in ("features", "targets", "probable", "weights"):
            tables[name] = torch.from_numpy(getattr(items, name))
        tables["rows"], tables["sizes"] = self._candidates(sees)
        if self.n_pool and data.pool_folds is not None:
            item_folds = data.pool_folds[items.pool_rows]
            member_folds = self.training.member_folds[self.places, None]
            sees = item_folds != member_folds
            sees[~sees.any(axis=1)] = True
            rows, tables["pool_sizes"] = self._candidates(sees)
            tables["pool_rows"] = rows + len(items.rows)
        self._set_items(tables)
        self.output_weights[data.n_seen : data.n_labels] = plan.soft_weight * items.has_soft_targets
        n_numbers = max(self.n_probable, 1) * data.n_outputs
        scale = plan.probable_weight / n_numbers
        self.probable_scale.fill_(scale * items.has_soft_targets)

    def draw(self) -> TrainingBatch:
        """Draw one batch for each member."""
        plan = self.plan
        documents = self._draw_documents(plan.document_batch)
        tags = documents.tags
        rows = None
        features = None
        item_targets = None
        if self.items:
            rows = self._draw_items()
            features = self.items["features"][rows]
            item_targets = self.items["targets"][rows]
            # Some of the items are read by their probable tags, then all by their features.
            tags = torch.cat([tags, self._probable_tags(rows)], dim=1)

        # Weights of labels that are not read are never made: such tables are the cost of a draw.
        columns, factors = self._draw_columns(documents.targets, item_targets)
        targets = _read(documents.targets, columns)
        weights = self._document_weights(documents, columns)
        if rows is not None and item_targets is not None:
            item_targets = _read(item_targets, columns)
            item_targets, item_weights = self._item_targets_and_weights(rows, item_targets, columns)
            probable_targets = item_targets[:, : self.n_probable]
            targets = torch.cat([targets, probable_targets, item_targets], dim=1)
            weights = torch.cat([weights, item_weights], dim=1)
        label_weights = _read(self.label_weights, columns)
        weights.mul_(label_weights).mul_(factors)

        n_features = 0 if features is None else features.shape[2]
        n_tag_rows = tags.shape[1]
        n_item_rows = self.n_items + self.n_pool
        dropout = [
            self._dropout(plan.dropout[0], n_item_rows, n_features),
            self._dropout(plan.dropout[1], n_item_rows, plan.hidden),
            self._dropout(plan.dropout[2], n_tag_rows, plan.hidden),
            self._dropout(plan.dropout[3], n_tag_rows + n_item_rows, plan.code),
        ]
        sparse_tags = None
        if columns is not None:
            sparse_tags = self._sparse_tags(documents.tags)
        return TrainingBatch(tags, features, targets, weights, columns, dropout, sparse_tags)

    def _draw_items(self) -> Tensor:
        """Draw rows of items, then of the pool where it is learned from, (n_members, n)."""
        rows = self._choose(self.items["rows"], self.items["sizes"], self.n_items)
        if not self.n_pool:
            return rows
        pool_rows = self._choose(self.items["pool_rows"], self.items["pool_sizes"], self.n_pool)
        return torch.cat([rows, pool_rows], dim=1)

    def _probable_tags(self, rows: Tensor) -> Tensor:
        """Return the probable tags of the first items, (n_members, n_probable, n_labels)."""
        probable_rows = rows[:, : self.n_probable]
        shape = (len(rows), self.n_probable, self.data.n_labels)
        probable = torch.zeros(*shape, device=self.device)
        probable[..., : self.data.n_seen] = self.items["probable"][probable_rows]
        return probable

    def _draw_columns(
        self, document_targets: Tensor, item_targets: Tensor | None
    ) -> tuple[Tensor | None, Tensor]:
        """Draw the outputs that a step reads, and how many each stands for; None and 1: all."""
        n_outputs = self.data.n_outputs
        if n_outputs <= self.plan.label_block:
            return None, torch.ones((), device=self.device)
        in_targets = _labels_in(document_targets)
        if item_targets is not None:
            in_targets |= _labels_in(item_targets)
        draws = self._uniform(n_outputs)[0]
        return read_columns(in_targets, draws, self.plan.label_block)

    def _item_targets_and_weights(
        self, rows: Tensor, targets: Tensor, columns: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Return targets of items between 0 and 1, and weights by probable tags and by features.

        Targets beyond 0 and 1 mark verdicts, which have a weight of their own.
        """
        n_items = self.n_items
        row_weights = self.items["weights"][rows]
        output_weights = _read(self.output_weights, columns)
        weights = row_weights[..., None] * output_weights
        if self.data.verdicts is not None:
            is_verdict = (targets < 0) | (targets > 1)
            weights = torch.where(is_verdict, self.plan.verdict_weight, weights)
            targets = targets.clamp(0, 1)
        by_tags = weights[:, : self.n_probable] * self.probable_scale
        # In place, and therefore after the table above.
        by_features = weights.div_(n_items * self.data.n_outputs)
        by_features[:, n_items:] *= n_items / max(self.n_pool, 1)
        return targets, torch.cat([by_tags, by_features], dim=1)

    def _draw_documents(self, n: int) -> DrawnDocuments:
        """Draw documents, and which of their tags are hidden."""
        data = self.data
        n_seen = data.n_seen
        rows = self._choose(*self.documents, n)
        true_tags = self._tags_of(rows)
        targets = true_tags
        hidden = self._hidden(n)
        all_unseen = torch.zeros((), device=self.device)
        if data.n_unseen:
            all_unseen = (self._uniform(n, 1) < self.plan.unseen_hidden).float()
            hidden_unseen = hidden[..., n_seen:]
            torch.maximum(hidden_unseen, all_unseen, out=hidden_unseen)
            any_unseen = true_tags[..., n_seen:].amax(dim=2, keepdim=True)
            targets = torch.cat([true_tags, any_unseen], dim=2)
        visible = hidden.neg_().add_(1)
        # Only label sets say which unseen labels a document holds.
        is_label_set = (rows < data.n_label_sets).float()
        scales = is_label_set[..., None] / (n * data.n_outputs)
        return DrawnDocuments(true_tags * visible, targets, visible, all_unseen, scales)

    def _document_weights(self, documents: DrawnDocuments, columns: Tensor | None) -> Tensor:
        """Return the weights of targets of drawn documents, of some columns or all."""
        data = self.data
        n_seen = data.n_seen
        n_labels = data.n_labels
        n_documents = documents.targets.shape[1]
        seen_weight = self.plan.seen_weight / (n_documents * data.n_outputs)
        any_unseen_weight = documents.all_unseen * documents.scales
        if columns is not None and data.n_unseen:
            visible = _read(documents.visible, columns.clamp(max=n_labels - 1))
            weights = self._unseen_weights(visible, documents.scales)
            weights = torch.where(columns < n_seen, seen_weight, weights)
            return torch.where(columns < n_labels, weights, any_unseen_weight)
        n_columns = data.n_outputs if columns is None else len(columns)
        shape = (*documents.targets.shape[:2], n_columns)
        weights = torch.full(shape, seen_weight, device=self.device)
        if data.n_unseen:
            visible = documents.visible[..., n_seen:]
            weights[..., n_seen:n_labels] = self._unseen_weights(visible, documents.scales)
            weights[..., n_labels:] = any_unseen_weight
        return weights

    def _unseen_weights(self, visible: Tensor, scales: Tensor) -> Tensor:
        """Return the weights of unseen labels: of hidden ones `scales`, of visible ones a share."""
        visible_weight = self.plan.kept_weight
        hidden = 1 - visible
        return hidden.mul_(1 - visible_weight).add_(visible_weight).mul_(scales)

    def _candidates(self, sees: NDArray[np.bool_]) -> tuple[Tensor, Tensor]:
        """Return the rows that each member may see, first of all (n_members, n), and how many."""
        rows = torch.from_numpy(np.argsort(~sees, axis=1, kind="stable"))
        sizes = torch.from_numpy(sees.sum(axis=1, keepdims=True))
        return rows.to(self.device), sizes.to(self.device)

    # ------------------------------------------------------------------ on the processor

    def _seed(self, seed: int) -> None:
        """Seed all draws."""
        self.bits = np.random.SFC64(seed)
        self.generator = np.random.Generator(self.bits)

    def _item_counts(self, n_visible: int, soft: bool) -> tuple[int, int]:
        """Return how many items a step reads by features and by probable tags, if there are any."""
        n_items = min(self.plan.item_batch, n_visible)
        n_probable = min(self.plan.probable_batch, n_items)
        return n_items, n_probable if soft else 0

    def _pool_count(self, n: int, pooled: bool) -> int:
        """Return how many of n untagged items a step reads, if they have targets."""
        if not pooled:
            return 0
        return min(self.plan.item_batch, n)

    def _set_items(self, items: dict[str, Tensor]) -> None:
        """Store the tables of a round's items."""
        self.items = items

    def _choose(self, rows: Tensor, sizes: Tensor, n: int) -> Tensor:
        """Draw n of each member's rows, (n_members, n)."""
        n_candidates = int(sizes[0, 0])
        places = self.generator.integers(0, n_candidates, n)
        return rows[:, torch.from_numpy(places)]

    def _tags_of(self, documents: Tensor) -> Tensor:
        """Return the tags of documents, (n_members, n, n_labels)."""
        dense = self.training.dense
        if dense is not None:
            return torch.from_numpy(dense[documents.numpy()])
        rows = documents[0].numpy()  # without a dense table there is one member at a time
        tags = self.data.documents[rows].toarray()
        return torch.from_numpy(tags)[None]

    def _uniform(self, *shape: int) -> Tensor:
        """Draw numbers between 0 and 1."""
        numbers = self.generator.random((1, *shape), dtype=np.float32)
        return torch.from_numpy(numbers)

    def _bytes(self, *shape: int) -> Tensor:
        """Draw whole numbers from 0 to 255 as float32; much faster than fractions."""
        n_bytes = int(np.prod(shape))
        n_words = n_bytes // 8 + 1
        words = np.asarray(self.bits.random_raw(n_words))
        random_bytes = words.view(np.uint8)[:n_bytes]
        return torch.from_numpy(random_bytes).view(1, *shape).float()

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
        dense_tags = tags[:, self.n_rows :]
        dense_products = torch.baddbmm(bias, dense_tags, weights)
        sparse_products = bias[0].repeat(self.n_rows, 1)
        sparse_products.index_add_(0, self.rows, weights[0][self.labels])
        return torch.cat([sparse_products[None], dense_products], dim=1)

    def gradients(self, tags: Tensor, below: Tensor, out: Tensor) -> None:
        """Overwrite gradients of weights by those of products (1, n, above); see `products`."""
        dense_tags = tags[:, self.n_rows :]
        torch.bmm(dense_tags.mT, below[:, self.n_rows :], out=out)
        out[0].index_add_(0, self.labels, below[0][self.rows])


def start_members(shape: Shape, priors: NDArray[np.float64], seeds: list[int]) -> Members:
    """Make untrained members that give every output its prior (n_outputs,), roughly.

    Each seed draws one member's weights, whatever the others are.
    """
    groups = [torch.zeros(len(seeds), n_weights) for n_weights in shape.n_weights]
    members = Members(shape, *groups)
    readout = (members.labels, members.bias)
    layers = (*members.item_layers, *members.document_layers, readout)
    for place, seed in enumerate(seeds):
        generator = torch.Generator().manual_seed(seed)
        for weights, _ in layers:
            below, above = weights.shape[1:]
            normal = torch.randn(below, above, generator=generator)
            weights[place] = normal * (2 / (below + above)) ** 0.5
    log_odds = np.log(priors) - np.log1p(-priors)
    members.bias += torch.from_numpy(log_odds).float()
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
    """Overwrite gradients with those of a batch's weighted cross-entropy; return its logits.

    Written out by hand: autograd takes about 1.6 times as long on the processor, where most of a
    step of this size is not matrix products.
    """
    features_dropout, items_dropout, documents_dropout, codes_dropout = batch.dropout
    tags = batch.tags
    n_rows = tags.shape[1]

    # Forward: codes of documents, and of items by their features
    (first, first_bias), (second, second_bias) = members.document_layers
    if batch.sparse_tags is None:
        sums = torch.baddbmm(first_bias, tags, first)
    else:
        sums = batch.sparse_tags.products(tags, first, first_bias)
    units = torch.relu_(sums)
    hidden = units * documents_dropout
    codes = torch.baddbmm(second_bias, hidden, second)
    if batch.features is not None:
        (item_first, item_bias), (item_second, item_offset) = members.item_layers
        features = batch.features * features_dropout
        item_units = torch.relu_(torch.baddbmm(item_bias, features, item_first))
        item_hidden = item_units * items_dropout
        item_codes = torch.baddbmm(item_offset, item_hidden, item_second)
        codes = torch.cat([codes, item_codes], dim=1)
    codes = squashed(codes)
    thinned = codes * codes_dropout
    labels = _read(members.labels, batch.columns)
    bias = _read(members.bias, batch.columns)
    logits = torch.baddbmm(bias, thinned, labels)

    # Backward: the derivative of the cross-entropy by its logits, then readout, codes, encoders
    errors = torch.sigmoid(logits).sub_(batch.targets).mul_(batch.weights)
    # torch.bmm: `@` copies a factor that is transposed.
    label_gradients = torch.bmm(thinned.mT, errors)
    bias_gradients = errors.sum(dim=1, keepdim=True)
    if batch.columns is None:
        gradients.labels.copy_(label_gradients)
        gradients.bias.copy_(bias_gradients)
    else:
        gradients.readout.zero_()
        gradients.labels.index_copy_(2, batch.columns, label_gradients)
        gradients.bias.index_copy_(2, batch.columns, bias_gradients)
    code_errors = torch.bmm(errors, labels.mT).mul_(codes_dropout)
    code_errors -= code_errors * codes * codes  # the derivative of the hyperbolic tangent
    _backpropagate(
        code_errors[:, :n_rows],
        tags,
        units,
        documents_dropout,
        second,
        gradients.document_layers,
        batch.sparse_tags,
    )
    if batch.features is not None:
        _backpropagate(
            code_errors[:, n_rows:],
            features,
            item_units,
            items_dropout,
            item_second,
            gradients.item_layers,
        )
    return logits


def _backpropagate(
    errors: Tensor,
    inputs: Tensor,
    units: Tensor,
    dropout: Tensor,
    second: Tensor,
    gradients: Layers,
    sparse_tags: SparseTags | None = None,
) -> None:
    """Overwrite the gradients of one encoder from the errors before its hyperbolic tangent."""
    (first_gradient, first_bias), (second_gradient, second_bias) = gradients
    hidden = units * dropout
    torch.bmm(hidden.mT, errors, out=second_gradient)
    torch.sum(errors, dim=1, keepdim=True, out=second_bias)
    hidden_errors = torch.bmm(errors, second.mT).mul_(dropout)
    unit_errors = torch.ops.aten.threshold_backward(hidden_errors, units, 0)
    if sparse_tags is None:
        torch.bmm(inputs.mT, unit_errors, out=first_gradient)
    else:
        sparse_tags.gradients(inputs, unit_errors, first_gradient)
    torch.sum(unit_errors, dim=1, keepdim=True, out=first_bias)


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
        self.groups: list[_WeightGroup] = []
        groups = zip(members.groups, gradients.groups, rates, decays, strict=True)
        for weights, gradient, rate, decay in groups:
            if weights.numel():  # members without an item encoder have a group without weights
                self.groups.append(_WeightGroup(weights, gradient, rate, decay))

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
            state[f"mean.{place}"] = group.mean
            state[f"square.{place}"] = group.square
        return state

    def set_state(self, state: Mapping[str, Tensor], n_steps: int) -> None:
        """Restore the moments as they were after `n_steps` steps; see `get_state`."""
        for name, moment in self.get_state().items():
            moment.copy_(state[name])
        for group in self.groups:
            group.n_steps.fill_(n_steps)


class _WeightGroup:
    """Weights with the same rate and decay, and their moments in AdamW."""

    def __init__(self, weights: Tensor, gradient: Tensor, rate: float, decay: float) -> None:
        self.weights = weights
        self.gradient = gradient
        self.rate = rate
        self.decay = decay
        self.mean = torch.zeros_like(weights)
        self.square = torch.zeros_like(weights)
        self.n_steps = torch.zeros((), device=weights.device)
