"""The steps of a round: batches for both devices; gradients by hand, and their optimiser.

In: a `SpaceTraining` and the items of a round. Out: trained members. `polyseme.space.trainer_gpu`
takes the same steps on a GPU: it overrides the section "on the processor" of `BatchSampler`, and
records a draw as a graph, so that no draw may branch on values.

Terms: tensors have a leading axis of members; on the processor it is 1. A *batch* has rows of
documents, then of items by their probable tags, then of the same items, and of the pool, by their
features. *Seen* labels are carried by items and come first, *unseen* ones are held by documents
alone; *outputs* are all labels and, with unseen ones, a last one: whether a document holds any of
these. A *member* sees what is not of its fold. *Targets* are between 0 and 1, *weights* those of
their cross-entropy. *Columns* are the outputs that a step reads, where it does not read all.
Tables are the cost of a step: they are changed in place, and none is made that need not be.
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
from polyseme.space.calibration import log_odds
from polyseme.space.members import Layers, Members, Shape, squashed
from polyseme.space.training import RoundItems, SeedUse, SpaceTraining


class Learner:
    """Some members with their optimiser; on the processor one.

    Parameters
    ----------
    training : SpaceTraining
    positions : slice
        Of its members in the training's share.
    """

    def __init__(self, training: SpaceTraining, positions: slice) -> None:
        self.training = training
        plan = training.plan
        self.members = training.members.select(positions)  # trained in place
        self.gradients = self.members.to(training.device)  # overwritten by every step
        self.optimizer = MemberOptimizer(
            members=self.members,
            gradients=self.gradients,
            rates=plan.learning_rates,
            decays=plan.decays,
        )
        self.batches = self._make_sampler(positions)

    def _make_sampler(self, positions: slice) -> BatchSampler:
        return BatchSampler(self.training, positions)

    def train(self, items: RoundItems | None) -> list[tuple[float, float]]:
        """Take the steps of a round; return each member's last losses, (documents, items)."""
        plan = self.training.plan
        self.batches.begin(items)
        with onednn_products():
            for step_number in self.training.next_steps:
                batch = self.batches.draw()
                logits = step(self.members, batch, self.gradients)
                factor = plan.rate_factor(step_number)
                self.optimizer.step(factor)
        return losses(batch, logits, plan.document_batch)


def losses(batch: TrainingBatch, logits: Tensor, n_documents: int) -> list[tuple[float, float]]:
    """Return each member's mean cross-entropy of documents and of items by their features.

    Parameters
    ----------
    batch : TrainingBatch
    logits : tensor, shape (n_members, n_rows, n_columns)
        As `step` returned them.
    n_documents : int
        How many of the first rows are documents.
    """
    entropies = torch.nn.functional.binary_cross_entropy_with_logits(
        logits,
        batch.targets,
        reduction="none",
    )
    weighted = entropies * batch.weights
    row_losses = weighted.sum(dim=2).cpu()
    first_item = batch.tags.shape[1]
    member_losses: list[tuple[float, float]] = []
    for member_rows in row_losses:
        document_losses = member_rows[:n_documents]
        item_losses = member_rows[first_item:]
        pair = (float(document_losses.sum()), float(item_losses.sum()))
        member_losses.append(pair)
    return member_losses


def read_columns(in_targets: Tensor, draws: Tensor, most: int) -> tuple[Tensor, Tensor]:
    """Choose the labels that a step reads: those in targets, and a random sample of the others.

    Labels that are drawn in blocks, without regard to targets, cost 7 points of E-MAP at 10,000
    labels and 2,048 a step; these cost less than one.

    Parameters
    ----------
    in_targets : bool tensor, shape (n_outputs,)
        Which outputs are in any target.
    draws : float tensor, shape (n_outputs,)
        Random numbers between 0 and 1.
    most : int
        How many outputs are read.

    Returns
    -------
    columns : int64 tensor, shape (most,)
    factors : float tensor, shape (most,)
        For how many outputs each of these stands.
    """
    is_target = in_targets.float()
    n_outputs = len(draws)
    n_targets = is_target.sum()
    # Outputs in targets have numbers above 1, and come before all others.
    priorities = draws + is_target
    columns = priorities.topk(most).indices
    n_read = n_targets.clamp(max=most)
    divisor = n_read.clamp(min=1)
    target_factor = n_targets / divisor
    n_remaining = most - n_read
    n_sampled = n_remaining.clamp(min=1)
    n_others = n_outputs - n_targets
    other_factor = n_others / n_sampled
    is_read_target = is_target[columns] > 0
    factors = torch.where(is_read_target, target_factor, other_factor)
    return columns, factors


def _read(table: Tensor, columns: Tensor | None) -> Tensor:
    """Return some columns (n_columns,) of a table; the table itself where none are named."""
    if columns is None:
        return table
    leading_shape = table.shape[:-1]
    positions = columns.expand(*leading_shape, -1)
    # Takes a fifth of the time of `table[..., columns]` on the processor.
    return table.gather(-1, positions)


def _labels_in(targets: Tensor) -> Tensor:
    """Return which outputs are true in any target (…, n_outputs), (n_outputs,)."""
    is_true = targets > 0.5
    rows = is_true.flatten(0, -2)
    return rows.any(dim=0)


class DrawnDocuments(NamedTuple):
    """The documents of a step, with the tags that are hidden from it."""

    tags: Tensor  # 1 or 0: tags that are not hidden, (n_members, n_documents, n_labels)
    targets: Tensor  # 1 or 0: all tags, and whether any is unseen, (n_members, n, n_outputs)
    visible: Tensor  # 1, or 0 where a label is hidden, (n_members, n, n_labels)
    all_unseen: Tensor  # 1 where all unseen ones are hidden, (n_members, n, 1), or 0, ()
    scales: Tensor  # weights of unseen labels, 0 beyond the label sets, (n_members, n, 1)


class BatchSampler:
    """Draw the batches of some members; `polyseme.space.trainer_gpu` has other sources of numbers.

    Parameters
    ----------
    training : SpaceTraining
    positions : slice
        Of its members in the training's share; on the processor one.

    Attributes
    ----------
    first_number : int
        The number of its first member, by which draws are seeded.
    is_visible : bool array, shape (n_members, n_documents)
        Which documents each member sees.
    document_rows, n_visible_documents : tensors, shapes (n_members, n_documents), (n_members, 1)
        The rows that each member sees before the others, and how many these are.
    label_weights : tensor, shape (n_outputs,)
        See `SpacePlan.rarity`.
    output_weights : tensor, shape (n_outputs,)
        Weights of items' targets, before rarity: of seen labels 1, of soft targets the plan's.
    probable_scale : tensor, shape ()
        The factor of these weights where items are read by probable tags.
    items : dict of str to tensor
        The tables of a round: those of `RoundItems`, and what is drawn from; see `begin`.
    n_items, n_probable, n_pool : int
        How many items a step reads by features and by probable tags, and how many of the pool.
    """

    def __init__(self, training: SpaceTraining, positions: slice) -> None:
        data = training.data
        self.training = training
        self.data = data
        self.plan = training.plan
        self.device = training.device
        numbers = training.member_numbers[positions]
        self.first_number = int(numbers[0])
        self.member_folds = training.member_folds[positions, None]
        self.is_visible = data.folds != self.member_folds
        if training.n_folds == 1:
            self.is_visible[:] = True
        visible_rows = self._visible_first(self.is_visible)
        self.document_rows, self.n_visible_documents = visible_rows
        rarity = training.plan.rarity
        label_weights = data.label_weights(rarity)
        device = training.device
        n_outputs = data.n_outputs
        self.label_weights = torch.from_numpy(label_weights).to(device)
        self.output_weights = torch.zeros(n_outputs, device=device)
        self.output_weights[: data.n_seen] = 1.0
        self.probable_scale = torch.zeros((), device=device)
        self.items: dict[str, Tensor] = {}
        self.n_items = 0
        self.n_probable = 0
        self.n_pool = 0

    def begin(self, items: RoundItems | None) -> None:
        """Set the items of a round, and seed its draws."""
        data = self.data
        plan = self.plan
        seed = self.training.seed_of(self.first_number, SeedUse.BATCHES, self.training.round)
        self._seed(seed)
        if items is None:
            return
        item_documents = data.item_documents[items.rows]
        is_visible = self.is_visible[:, item_documents]
        self._show_all_to_blind(is_visible)
        n_visible = is_visible.sum(axis=1)
        fewest_visible = int(n_visible.min())
        has_soft_targets = items.has_soft_targets
        counts = self._item_counts(fewest_visible, has_soft_targets)
        self.n_items, self.n_probable = counts
        n_pool = len(items.pool_rows)
        self.n_pool = self._pool_count(n_pool, items.has_pool_targets)
        tables: dict[str, Tensor] = {}
        for name in ("features", "targets", "probable", "weights"):
            array = getattr(items, name)
            tables[name] = torch.from_numpy(array)
        # Rows of these tables, those that a member sees first, and how many these are.
        tables["rows"], tables["sizes"] = self._visible_first(is_visible)
        if self.n_pool and data.pool_folds is not None:
            pool_folds = data.pool_folds[items.pool_rows]
            is_visible = pool_folds != self.member_folds
            self._show_all_to_blind(is_visible)
            pool_rows, tables["pool_sizes"] = self._visible_first(is_visible)
            first_of_pool = len(items.rows)
            tables["pool_rows"] = pool_rows + first_of_pool
        self._set_items(tables)
        unseen_weight = plan.soft_weight * has_soft_targets
        self.output_weights[data.n_seen : data.n_labels] = unseen_weight
        n_targets = max(self.n_probable, 1) * data.n_outputs
        scale = plan.probable_weight / n_targets
        self.probable_scale.fill_(scale * has_soft_targets)

    @staticmethod
    def _show_all_to_blind(is_visible: NDArray[np.bool_]) -> None:
        """Let members that would see nothing (n_members, n) see everything, in place."""
        is_blind = ~is_visible.any(axis=1)
        is_visible[is_blind] = True

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
        weights.mul_(label_weights)
        weights.mul_(factors)

        sparse_tags = None
        if columns is not None:
            sparse_tags = self._sparse_tags(documents.tags)
        return TrainingBatch(
            tags=tags,
            features=features,
            targets=targets,
            weights=weights,
            columns=columns,
            dropout=self._draw_dropout(tags, features),
            sparse_tags=sparse_tags,
        )

    def _draw_dropout(self, tags: Tensor, features: Tensor | None) -> list[Tensor]:
        """Draw factors on features, hidden units of items and of documents, and codes."""
        plan = self.plan
        of_features, of_items, of_documents, of_codes = plan.dropout
        n_features = 0
        if features is not None:
            n_features = features.shape[2]
        n_tag_rows = tags.shape[1]
        n_item_rows = self.n_items + self.n_pool
        n_rows = n_tag_rows + n_item_rows
        return [
            self._dropout(of_features, n_item_rows, n_features),
            self._dropout(of_items, n_item_rows, plan.hidden),
            self._dropout(of_documents, n_tag_rows, plan.hidden),
            self._dropout(of_codes, n_rows, plan.code),
        ]

    def _draw_items(self) -> Tensor:
        """Draw rows of the round's tables, (n_members, n_items + n_pool): items, then the pool's.

        Of the pool only where it is learned from.
        """
        items = self.items
        rows = self._draw_rows(
            items["rows"],
            items["sizes"],
            self.n_items,
        )
        if not self.n_pool:
            return rows
        pool_rows = self._draw_rows(
            items["pool_rows"],
            items["pool_sizes"],
            self.n_pool,
        )
        return torch.cat([rows, pool_rows], dim=1)

    def _probable_tags(self, rows: Tensor) -> Tensor:
        """Return the probable tags of the first items, (n_members, n_probable, n_labels).

        `rows` (n_members, n) are those of `_draw_items`; unseen labels are 0.
        """
        data = self.data
        n_members = len(rows)
        n_probable = self.n_probable
        probable_rows = rows[:, :n_probable]
        shape = (n_members, n_probable, data.n_labels)
        tags = torch.zeros(*shape, device=self.device)
        probable = self.items["probable"]
        seen_tags = probable[probable_rows]
        tags[..., : data.n_seen] = seen_tags
        return tags

    def _draw_columns(
        self, document_targets: Tensor, item_targets: Tensor | None
    ) -> tuple[Tensor | None, Tensor]:
        """Draw the outputs that a step reads, and for how many each stands; None and 1: all.

        Targets are (n_members, n, n_outputs). Returns two tensors (n_columns,).
        """
        n_outputs = self.data.n_outputs
        if n_outputs <= self.plan.label_block:
            return None, torch.ones((), device=self.device)
        in_targets = _labels_in(document_targets)
        if item_targets is not None:
            in_targets |= _labels_in(item_targets)
        draws = self._uniform(n_outputs)
        first_draws = draws[0]  # the same columns for all members
        return read_columns(in_targets, first_draws, self.plan.label_block)

    def _item_targets_and_weights(
        self, rows: Tensor, targets: Tensor, columns: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Return targets of items between 0 and 1, and weights by probable tags and by features.

        Targets beyond 0 and 1 mark verdicts, which have a weight of their own.

        Parameters
        ----------
        rows : int64 tensor, shape (n_members, n)
            As `_draw_items` returned them.
        targets : tensor, shape (n_members, n, n_columns)
        columns : int64 tensor, shape (n_columns,), or None

        Returns
        -------
        targets : tensor, shape (n_members, n, n_columns)
        weights : tensor, shape (n_members, n_probable + n, n_columns)
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
        n_targets = n_items * self.data.n_outputs
        by_features = weights.div_(n_targets)
        pool_factor = n_items / max(self.n_pool, 1)
        by_features[:, n_items:] *= pool_factor
        return targets, torch.cat([by_tags, by_features], dim=1)

    def _draw_documents(self, n: int) -> DrawnDocuments:
        """Draw n documents for each member, and which of their tags are hidden."""
        data = self.data
        n_seen = data.n_seen
        rows = self._draw_rows(self.document_rows, self.n_visible_documents, n)
        true_tags = self._tags_of(rows)
        targets = true_tags
        hidden = self._hidden(n)
        all_unseen = torch.zeros((), device=self.device)
        if data.n_unseen:
            # Some documents hide all their unseen labels, as items do.
            draws = self._uniform(n, 1)
            all_unseen = (draws < self.plan.unseen_hidden).float()
            hidden_unseen = hidden[..., n_seen:]
            torch.maximum(hidden_unseen, all_unseen, out=hidden_unseen)
            unseen_tags = true_tags[..., n_seen:]
            any_unseen = unseen_tags.amax(dim=2, keepdim=True)
            targets = torch.cat([true_tags, any_unseen], dim=2)
        visible = hidden.neg_().add_(1)  # 1 - hidden, in place
        # Only label sets say which unseen labels a document holds.
        is_label_set = (rows < data.n_label_sets).float()
        n_targets = n * data.n_outputs
        return DrawnDocuments(
            tags=true_tags * visible,
            targets=targets,
            visible=visible,
            all_unseen=all_unseen,
            scales=is_label_set[..., None] / n_targets,
        )

    def _document_weights(self, documents: DrawnDocuments, columns: Tensor | None) -> Tensor:
        """Return the weights of documents' targets, (n_members, n, n_columns); None: all outputs.

        Seen labels weigh the same in every document. The output for any unseen label counts where
        all of them are hidden.
        """
        data = self.data
        n_seen = data.n_seen
        n_labels = data.n_labels
        n_members, n_documents, _ = documents.targets.shape
        n_targets = n_documents * data.n_outputs
        seen_weight = self.plan.seen_weight / n_targets
        any_unseen_weight = documents.all_unseen * documents.scales
        if columns is not None and data.n_unseen:
            # The last output is no label: what is read in its place is overwritten below.
            label_columns = columns.clamp(max=n_labels - 1)
            visible = _read(documents.visible, label_columns)
            weights = self._unseen_weights(visible, documents.scales)
            weights = torch.where(columns < n_seen, seen_weight, weights)
            return torch.where(columns < n_labels, weights, any_unseen_weight)
        n_columns = data.n_outputs if columns is None else len(columns)
        shape = (n_members, n_documents, n_columns)
        weights = torch.full(shape, seen_weight, device=self.device)
        if data.n_unseen:
            visible = documents.visible[..., n_seen:]
            unseen_weights = self._unseen_weights(visible, documents.scales)
            weights[..., n_seen:n_labels] = unseen_weights
            weights[..., n_labels:] = any_unseen_weight
        return weights

    def _unseen_weights(self, visible: Tensor, scales: Tensor) -> Tensor:
        """Return the weights of unseen labels: of hidden ones `scales`, of visible ones a share.

        `visible` (n_members, n, n_labels) and `scales` are those of `DrawnDocuments`.
        """
        # (hidden * (1 - kept) + kept) * scales, in one table
        visible_weight = self.plan.kept_weight
        weights = 1 - visible
        weights.mul_(1 - visible_weight)
        weights.add_(visible_weight)
        return weights.mul_(scales)

    def _visible_first(self, is_visible: NDArray[np.bool_]) -> tuple[Tensor, Tensor]:
        """Return all rows, those that a member sees first, and how many it sees.

        `is_visible` is (n_members, n); the tensors are (n_members, n) and (n_members, 1).
        """
        order = np.argsort(~is_visible, axis=1, kind="stable")
        n_visible = is_visible.sum(axis=1, keepdims=True)
        rows = torch.from_numpy(order)
        sizes = torch.from_numpy(n_visible)
        return rows.to(self.device), sizes.to(self.device)

    # ------------------------------------------------------------------ on the processor

    def _seed(self, seed: int) -> None:
        """Seed all draws."""
        self.bits = np.random.SFC64(seed)
        self.generator = np.random.Generator(self.bits)

    def _item_counts(self, n_visible: int, has_soft_targets: bool) -> tuple[int, int]:
        """Return how many items a step reads by features and by probable tags, if there are any."""
        n_items = min(self.plan.item_batch, n_visible)
        if not has_soft_targets:
            return n_items, 0
        n_probable = min(self.plan.probable_batch, n_items)
        return n_items, n_probable

    def _pool_count(self, n_pool: int, has_pool_targets: bool) -> int:
        """Return how many untagged items a step reads, of those of the round."""
        if not has_pool_targets:
            return 0
        return min(self.plan.item_batch, n_pool)

    def _set_items(self, items: dict[str, Tensor]) -> None:
        """Set the tables of a round's items."""
        self.items = items

    def _draw_rows(self, rows: Tensor, sizes: Tensor, n: int) -> Tensor:
        """Draw n of the rows that each member sees, (n_members, n), with replacement.

        `rows` and `sizes` are those of `_visible_first`.
        """
        n_visible = int(sizes[0, 0])
        positions = self.generator.integers(0, n_visible, n)
        return rows[:, torch.from_numpy(positions)]

    def _tags_of(self, documents: Tensor) -> Tensor:
        """Return the tags (n_members, n, n_labels) of documents by their rows (n_members, n)."""
        dense = self.training.dense
        if dense is not None:
            dense_rows = documents.numpy()
            return torch.from_numpy(dense[dense_rows])
        rows = documents[0].numpy()  # without a dense table there is one member at a time
        tags = self.data.documents[rows].toarray()
        return torch.from_numpy(tags)[None]

    def _uniform(self, *shape: int) -> Tensor:
        """Draw numbers between 0 and 1, (n_members, *shape)."""
        draws = self.generator.random((1, *shape), dtype=np.float32)
        return torch.from_numpy(draws)

    def _bytes(self, *shape: int) -> Tensor:
        """Draw whole numbers from 0 to 255 as float32, (n_members, *shape).

        Much faster than fractions.
        """
        n_bytes = int(np.prod(shape))
        n_words = n_bytes // 8 + 1
        random_words = self.bits.random_raw(n_words)
        words = np.asarray(random_words)
        random_bytes = words.view(np.uint8)
        used_bytes = random_bytes[:n_bytes]
        draws = torch.from_numpy(used_bytes)
        shaped = draws.view(1, *shape)
        return shaped.float()

    def _sparse_tags(self, tags: Tensor) -> SparseTags | None:
        """Return the tags (n_members, n, n_labels) that documents hold one by one."""
        _, rows, labels = tags.nonzero(as_tuple=True)
        return SparseTags(tags.shape[1], rows, labels)

    def _hidden(self, n: int) -> Tensor:
        """Draw which tags are hidden, 1 or 0, (n_members, n, n_labels)."""
        rates = self._uniform(n, 1)
        highest_rate = 256 * self.plan.hidden_tags  # in the unit of bytes
        rates.mul_(highest_rate)
        n_labels = self.data.n_labels
        draws = self._bytes(n, n_labels)
        return draws.lt_(rates)

    def _dropout(self, share: float, *shape: int) -> Tensor:
        """Draw factors that leave a share of units out and strengthen the others.

        They are (n_members, *shape).
        """
        lowest = round(256 * share)
        factors = self._bytes(*shape)
        factors.ge_(lowest)
        strength = 256 / (256 - lowest)
        return factors.mul_(strength)


# ---------------------------------------------------------------------- one step


class SparseTags(NamedTuple):
    """The tags of the first rows of one member's batch, one by one: of thousands, few are held."""

    n_rows: int  # the first so many rows, those of documents
    rows: Tensor  # of each tag, (n_held,)
    labels: Tensor  # of each tag, (n_held,)

    def products(self, tags: Tensor, weights: Tensor, bias: Tensor) -> Tensor:
        """Return tags (1, n, n_labels) times weights, with the bias added, (1, n, units).

        Of the first rows the tags are taken from here, of the others from the table.
        """
        dense_tags = tags[:, self.n_rows :]
        dense_products = torch.baddbmm(bias, dense_tags, weights)
        sparse_products = bias[0].repeat(self.n_rows, 1)
        tag_weights = weights[0][self.labels]
        sparse_products.index_add_(0, self.rows, tag_weights)
        return torch.cat([sparse_products[None], dense_products], dim=1)

    def gradients(self, tags: Tensor, errors: Tensor, out: Tensor) -> None:
        """Overwrite `out` (1, n_labels, units) with the gradients of the weights of `products`.

        `errors` (1, n, units) are the derivatives of the loss by the products.
        """
        dense_tags = tags[:, self.n_rows :]
        dense_errors = errors[:, self.n_rows :]
        torch.bmm(dense_tags.mT, dense_errors, out=out)
        tag_errors = errors[0][self.rows]
        out[0].index_add_(0, self.labels, tag_errors)


def start_members(shape: Shape, priors: NDArray[np.float64], seeds: list[int]) -> Members:
    """Return untrained members that give every output its prior (n_outputs,), roughly.

    Each seed draws one member's weights, whatever the others are. They are tensors on the
    processor.
    """
    n_members = len(seeds)
    groups = [torch.zeros(n_members, n_weights) for n_weights in shape.n_weights]
    members = Members(shape, *groups)
    readout = (members.labels, members.bias)
    layers = (*members.item_layers, *members.document_layers, readout)
    for position, seed in enumerate(seeds):
        generator = torch.Generator().manual_seed(seed)
        for weights, _ in layers:
            below, above = weights.shape[1:]
            # Glorot's normal initialisation: variance 2 / (inputs + outputs).
            deviation = (2 / (below + above)) ** 0.5
            draws = torch.randn(below, above, generator=generator)
            weights[position] = draws * deviation
    prior_logits = torch.from_numpy(log_odds(priors))
    members.bias += prior_logits.float()
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

    Parameters
    ----------
    members : Members
        Read only.
    batch : TrainingBatch
        Read only.
    gradients : Members
        Of the same shape.

    Returns
    -------
    tensor, shape (n_members, n_rows, n_columns)
        The logits before the step.
    """
    features_dropout, items_dropout, documents_dropout, codes_dropout = batch.dropout
    tags = batch.tags
    features = batch.features
    n_tag_rows = tags.shape[1]

    # Forward: codes of documents, and of items by their features
    document_layers = members.document_layers
    codes, units = _encode(document_layers, tags, documents_dropout, batch.sparse_tags)
    if features is not None:
        item_layers = members.item_layers
        item_inputs = features * features_dropout
        item_codes, item_units = _encode(item_layers, item_inputs, items_dropout)
        codes = torch.cat([codes, item_codes], dim=1)
    codes = squashed(codes)
    thinned = codes * codes_dropout
    labels = _read(members.labels, batch.columns)
    label_bias = _read(members.bias, batch.columns)
    logits = torch.baddbmm(label_bias, thinned, labels)

    # Backward: the derivative of the cross-entropy by its logits, weight * (sigmoid(z) - target),
    # then readout, codes, encoders
    errors = torch.sigmoid(logits)
    errors.sub_(batch.targets)
    errors.mul_(batch.weights)
    label_gradients = torch.bmm(thinned.mT, errors)
    bias_gradients = errors.sum(dim=1, keepdim=True)
    if batch.columns is None:
        gradients.labels.copy_(label_gradients)
        gradients.bias.copy_(bias_gradients)
    else:
        gradients.readout.zero_()
        gradients.labels.index_copy_(2, batch.columns, label_gradients)
        gradients.bias.index_copy_(2, batch.columns, bias_gradients)
    code_errors = torch.bmm(errors, labels.mT)
    code_errors.mul_(codes_dropout)
    code_errors -= code_errors * codes * codes  # the derivative of the hyperbolic tangent
    _backpropagate(
        errors=code_errors[:, :n_tag_rows],
        inputs=tags,
        units=units,
        dropout=documents_dropout,
        layers=document_layers,
        gradients=gradients.document_layers,
        sparse_tags=batch.sparse_tags,
    )
    if features is not None:
        _backpropagate(
            errors=code_errors[:, n_tag_rows:],
            inputs=item_inputs,
            units=item_units,
            dropout=items_dropout,
            layers=item_layers,
            gradients=gradients.item_layers,
        )
    return logits


def _encode(
    layers: Layers, inputs: Tensor, dropout: Tensor, sparse_tags: SparseTags | None = None
) -> tuple[Tensor, Tensor]:
    """Return codes before their hyperbolic tangent, and rectified units before dropout.

    They are (n_members, n_rows, code) and (n_members, n_rows, hidden); for parameters see
    `_backpropagate`.
    """
    input_layer, code_layer = layers
    weights, bias = input_layer
    if sparse_tags is None:
        sums = torch.baddbmm(bias, inputs, weights)
    else:
        sums = sparse_tags.products(inputs, weights, bias)
    units = torch.relu_(sums)
    hidden = units * dropout
    code_weights, code_bias = code_layer
    codes = torch.baddbmm(code_bias, hidden, code_weights)
    return codes, units


def _backpropagate(
    errors: Tensor,
    inputs: Tensor,
    units: Tensor,
    dropout: Tensor,
    layers: Layers,
    gradients: Layers,
    sparse_tags: SparseTags | None = None,
) -> None:
    """Overwrite the gradients of one encoder.

    Parameters
    ----------
    errors : tensor, shape (n_members, n_rows, code)
        The derivatives of the loss by codes, before their hyperbolic tangent.
    inputs : tensor, shape (n_members, n_rows, n_inputs)
        Tags, or features after dropout.
    units, dropout : tensors, shape (n_members, n_rows, hidden)
        Rectified hidden units, and the factors on them.
    layers, gradients : Layers
        Of the encoder, read only, and of the same shape.
    sparse_tags : SparseTags, optional
        Of the first rows of `inputs`, where that is quicker.
    """
    _, code_layer = layers
    code_weights, _ = code_layer
    input_gradients, code_gradients = gradients
    weight_gradient, bias_gradient = input_gradients
    code_weight_gradient, code_bias_gradient = code_gradients
    hidden = units * dropout
    transposed_hidden = hidden.mT
    torch.bmm(transposed_hidden, errors, out=code_weight_gradient)
    torch.sum(errors, dim=1, keepdim=True, out=code_bias_gradient)
    transposed_weights = code_weights.mT
    hidden_errors = torch.bmm(errors, transposed_weights)
    hidden_errors.mul_(dropout)
    unit_errors = torch.ops.aten.threshold_backward(hidden_errors, units, 0)
    if sparse_tags is None:
        transposed_inputs = inputs.mT
        torch.bmm(transposed_inputs, unit_errors, out=weight_gradient)
    else:
        sparse_tags.gradients(inputs, unit_errors, weight_gradient)
    torch.sum(unit_errors, dim=1, keepdim=True, out=bias_gradient)


class MemberOptimizer:
    """AdamW for members whose gradients `step` takes, with a rate and a decay for each group.

    Parameters
    ----------
    members, gradients : Members
    rates, decays : sequences of float, length 3
        Of item encoder, document encoder and readout.

    Attributes
    ----------
    groups : list of _WeightGroup
        Those that have weights; without an item encoder two.
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
        """Change the members by a step, with all rates times a factor.

        A CUDA graph has the factor on its device.
        """
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
        """Return the moments of gradients by name, a row for each member; not copied.

        Checkpoints hold these names.
        """
        state: dict[str, Tensor] = {}
        for number, group in enumerate(self.groups):
            state[f"mean.{number}"] = group.mean
            state[f"square.{number}"] = group.square
        return state

    def set_state(self, state: Mapping[str, Tensor], n_steps: int) -> None:
        """Restore the moments as they were after `n_steps` steps; see `get_state`."""
        moments = self.get_state()
        for name, moment in moments.items():
            moment.copy_(state[name])
        for group in self.groups:
            group.n_steps.fill_(n_steps)


class _WeightGroup:
    """Weights with the same rate and decay, and their moments in AdamW.

    `weights`, `gradient`, `mean` (of gradients) and `square` (of their squares) are (n_members,
    n_weights); `n_steps` counts the steps taken, a tensor on the device.
    """

    def __init__(self, weights: Tensor, gradient: Tensor, rate: float, decay: float) -> None:
        self.weights = weights
        self.gradient = gradient
        self.rate = rate
        self.decay = decay
        self.mean = torch.zeros_like(weights)
        self.square = torch.zeros_like(weights)
        self.n_steps = torch.zeros((), device=weights.device)
