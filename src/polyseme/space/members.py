"""The members of a concept space: two encoders and one readout each.

In: tag sets and features as rows of numbers. Out: codes, and the logits that are read from them.

Terms: a *member* is an item encoder, a document encoder and a readout; its *number* counts from 0
over the whole ensemble. *Tags* are the inputs of the document encoder: 1 where a document holds a
label, 0 where not, or a probability. *Outputs* are the columns of the readout: all labels, seen
ones (carried by training items) before unseen ones, and with unseen labels a last one: whether a
document holds any of these. *Units* are the rectified hidden units of an encoder.

Everything has a leading axis of members, so that several are one product. Members are used as
arrays of numpy, which are there at once, and trained as tensors of torch, which takes a second to
load: both pass through the same methods, and nothing is imported here for the second. `Any` stands
for either of them, in single precision.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from polyseme.space.linear_path import spaced

if TYPE_CHECKING:
    from polyseme.space.concept_space import ConceptSpace
    from polyseme.space.training import TrainingData

Floats = NDArray[np.float32]
IntArray = NDArray[np.int64]
# Items that members predict at a time.
_BLOCK_ITEMS = 4096
# Documents by which new labels are read at first, at the most.
_MOST_HOLDING = 8192
# Pairs of weights (n_members, below, above) and bias (n_members, 1, above), the input's first.
Layers = list[tuple[Any, Any]]


class Shape(NamedTuple):
    """Sizes of a member. Model files and checkpoints hold them in this order."""

    n_labels: int  # inputs of the document encoder
    n_outputs: int  # every label and, where there are unseen ones, whether a document holds any
    n_features: int  # inputs of the item encoder; 0 without one
    hidden: int  # rectified units of each encoder
    code: int  # dimensions of a code, each between -1 and 1

    @property
    def n_weights(self) -> tuple[int, int, int]:
        """Weights of the item encoder, of the document encoder and of the readout."""
        # Of each layer: (inputs + 1 for the bias) * units above.
        hidden = self.hidden
        code = self.code
        code_weights = (hidden + 1) * code
        item_weights = 0
        if self.n_features:
            feature_weights = (self.n_features + 1) * hidden
            item_weights = feature_weights + code_weights
        label_weights = (self.n_labels + 1) * hidden
        document_weights = label_weights + code_weights
        readout_weights = (code + 1) * self.n_outputs
        return item_weights, document_weights, readout_weights


class Members:
    """Weights of members that are kept together.

    Parameters
    ----------
    shape : Shape
    items, documents, readout : float32 arrays or tensors, shape (n_members, n_weights)
        The weights of the two encoders and of the readout, each flat: one optimiser group each.
        Arguments of methods, and what these return, are of the same kind.

    Attributes
    ----------
    groups : tuple
        `items`, `documents` and `readout`. Model files hold them in this order.
    item_layers, document_layers : list of (weights, bias)
        Views of the groups, the layer of the inputs first. No item layers without features.
    labels : array or tensor, shape (n_members, code, n_outputs)
        The weights of the readout, a view: a column for each output.
    bias : array or tensor, shape (n_members, 1, n_outputs)
        Of the readout, a view.
    """

    def __init__(self, shape: Shape, items: Any, documents: Any, readout: Any) -> None:
        self.shape = shape
        self.groups = (items, documents, readout)
        self.items = items
        self.documents = documents
        self.readout = readout
        n_features = shape.n_features
        upper_sizes = (shape.hidden, shape.code)
        item_sizes = (n_features, *upper_sizes)
        document_sizes = (shape.n_labels, *upper_sizes)
        readout_sizes = (shape.code, shape.n_outputs)
        self.item_layers = _layers(items, item_sizes)
        self.document_layers = _layers(documents, document_sizes)
        (readout_layer,) = _layers(readout, readout_sizes)
        self.labels, self.bias = readout_layer

    def __len__(self) -> int:
        return len(self.readout)

    def __repr__(self) -> str:
        """Return its size, in a line."""
        return f"Members({len(self)} of {self.shape.code} dimensions)"

    @property
    def n_dimensions(self) -> int:
        """Dimensions of the members' codes side by side."""
        return len(self) * self.shape.code

    def select(self, positions: slice) -> Members:
        """Return the members at some positions; they share their weights with these."""
        groups = [group[positions] for group in self.groups]
        return Members(self.shape, *groups)

    def to(self, device: str) -> Members:
        """Return copies on a device; of tensors only."""
        groups = [group.to(device, copy=True) for group in self.groups]
        return Members(self.shape, *groups)

    def arrays(self) -> Members:
        """Return copies as arrays, ready to be used; of tensors only."""
        groups = []
        for group in self.groups:
            array = group.cpu().numpy()
            groups.append(array.copy())
        return Members(self.shape, *groups)

    def encode_items(self, features: Any) -> Any:
        """Return the codes (n_members, n_items, code) of standardised features.

        `features` (n_items, n_features) are the same for all members.
        """
        # code = tanh(W₂ max(W₁ x + b₁, 0) + b₂)
        first_layer, second_layer = self.item_layers
        inputs = self._for_all(features)
        hidden_sums = affine(inputs, *first_layer)
        units = rectified(hidden_sums)
        sums = affine(units, *second_layer)
        return squashed(sums)

    def encode_documents(self, tags: Any) -> Any:
        """Return the codes (n_members, n_rows, code) of tags.

        `tags` (n_rows, n_labels) are 0, 1 or probabilities, the same for all members. Where all but
        the first labels are 0, these alone will do: (n_rows, fewer labels).
        """
        first_layer, second_layer = self.document_layers
        weights, bias = first_layer
        n_columns = tags.shape[1]
        inputs = self._for_all(tags)
        used_weights = weights[:, :n_columns]
        hidden_sums = affine(inputs, used_weights, bias)
        units = rectified(hidden_sums)
        sums = affine(units, *second_layer)
        return squashed(sums)

    def encode_sparse_documents(self, tags: sp.csr_matrix) -> Floats:
        """Return the codes (n_members, n_rows, code) of sparse tags (n_rows, n_labels).

        Of members as arrays only.
        """
        first_layer, second_layer = self.document_layers
        first_weights, bias = first_layer
        inputs = sp.csr_matrix(tags, dtype=np.float32)
        member_sums = []
        for weights in first_weights:
            sums = inputs @ weights
            member_sums.append(np.asarray(sums))
        units = np.stack(member_sums)
        units += bias
        units = rectified(units)
        codes: Floats = squashed(affine(units, *second_layer))
        return codes

    def read(self, codes: Any, columns: slice = slice(None)) -> Any:
        """Return the logits (n_members, n_rows, n_columns) of some outputs, by default all.

        `codes` (n_members, n_rows, code) are each read by its own member.
        """
        weights = self.labels[..., columns]
        bias = self.bias[..., columns]
        return affine(codes, weights, bias)

    def mean_logits(self, codes: Floats) -> NDArray[np.float64]:
        """Return the mean of members' raw logits, (n_rows, n_outputs); of arrays only.

        `codes` (n_rows, n_members * code) are the members' codes side by side.
        """
        n_rows = len(codes)
        n_members = len(self)
        by_row = codes.reshape(n_rows, n_members, -1)
        transposed = by_row.transpose(1, 0, 2)
        by_member = np.ascontiguousarray(transposed)
        logits = self.read(by_member)
        mean_logits = mean_of(logits)
        return mean_logits.astype(np.float64)

    def as_inputs(self, array: Floats) -> Any:
        """Return an array as these members take it: the array itself, or a tensor copied from it.

        A tensor is on the members' device.
        """
        if isinstance(self.readout, np.ndarray):
            return array
        return self.readout.new_tensor(array)

    def _for_all(self, inputs: Any) -> Any:
        """Return inputs (n_rows, below) as every member takes them."""
        if isinstance(inputs, np.ndarray):
            return inputs
        # A copy in torch's own memory: products of numpy's may differ in their last bits.
        copied = inputs.contiguous().clone()
        n_members = len(self)
        return copied.expand(n_members, -1, -1)


class StartMembers(NamedTuple):
    """The members that a training starts from, and where their labels are now.

    New labels are those that the former space did not have.
    """

    members: Members  # of the former space, all of them, as arrays
    former_columns: IntArray  # of each label among the former ones, -1 for new ones; (n_labels,)
    any_unseen: bool  # whether the output for any unseen label is theirs, too
    new_weights: Floats  # of the readout for new labels, in their order, (n_members, code, n_new)
    new_biases: Floats  # (n_members, n_new)

    def __repr__(self) -> str:
        """Return its size, in a line."""
        n_old = int((self.former_columns >= 0).sum())
        return f"StartMembers({len(self.members)}, {n_old} labels)"

    def put_into(self, members: Members, numbers: IntArray) -> None:
        """Overwrite untrained members with the weights of former ones.

        The document encoder makes nothing of new labels at first: their weights are 0.

        Parameters
        ----------
        members : Members
            Tensors, on the processor; changed in place.
        numbers : int64 array, shape (n_members,)
            Which of the former members each of them becomes.
        """
        former = self.members
        old_columns = np.flatnonzero(self.former_columns >= 0)
        new_columns = np.flatnonzero(self.former_columns < 0)
        source_columns = self.former_columns[old_columns]

        # All layers but the first of the document encoder have the same shape as before.
        layers = [*members.item_layers, members.document_layers[1]]
        former_layers = [*former.item_layers, former.document_layers[1]]
        for layer, former_layer in zip(layers, former_layers, strict=True):
            for tensor, array in zip(layer, former_layer, strict=True):
                former_values = array[numbers]
                tensor[:] = tensor.new_tensor(former_values)

        # That layer has a row for each label.
        weights, bias = members.document_layers[0]
        former_weights, former_bias = former.document_layers[0]
        member_weights = former_weights[numbers]
        old_rows = member_weights[:, source_columns]
        weights.zero_()
        weights[:, old_columns] = weights.new_tensor(old_rows)
        member_bias = former_bias[numbers]
        bias[:] = bias.new_tensor(member_bias)

        # The readout has a column for each output; that for any unseen label is the last one.
        labels = members.labels
        label_bias = members.bias
        new_weights = self.new_weights[numbers]
        new_biases = self.new_biases[numbers]
        labels[..., new_columns] = labels.new_tensor(new_weights)
        label_bias[:, 0, new_columns] = label_bias.new_tensor(new_biases)
        if self.any_unseen:
            old_columns = np.append(old_columns, -1)
            source_columns = np.append(source_columns, -1)
        readouts = [(labels, former.labels), (label_bias, former.bias)]
        for tensor, array in readouts:
            member_values = array[numbers]
            former_values = member_values[..., source_columns]
            tensor[..., old_columns] = tensor.new_tensor(former_values)


@dataclass(frozen=True)
class WarmStart:
    """What a fit takes over from a former one.

    Attributes
    ----------
    space : ConceptSpace
        The former one, fitted; it stays as it is. Members of the same sizes go on from its
        members, and features are standardised as they were there.
    columns : int64 array, shape (n_labels,)
        The former column of each label; -1 for new ones.
    folds : int64 array, shape (n_documents,)
        The former fold of each document; -1 for new ones. Calibration and probable tags rest on
        each member not having seen its fold, neither now nor before.
    pool_folds : int64 array, shape (n_pool,)
        Likewise of items without tags.
    """

    space: ConceptSpace
    columns: IntArray
    folds: IntArray
    pool_folds: IntArray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))

    @property
    def n_folds(self) -> int:
        """How many folds there are."""
        return len(self.space.members_) // self.space.plan_.members_per_fold

    def start(self, data: TrainingData, order: IntArray) -> StartMembers:
        """Return the members that the training of a new space starts from.

        Parameters
        ----------
        data : TrainingData
            Of the new space.
        order : int64 array, shape (n_labels,)
            Its columns; see `ConceptSpace.order_`.
        """
        former = self.space
        n_former = len(former.order_)
        columns = self.columns[order]
        # From columns to former ones, and from these to the former members' order.
        former_positions = np.argsort(former.order_)
        is_new = columns < 0
        member_columns = former_positions[columns]
        former_columns = np.where(is_new, -1, member_columns)
        new_columns = np.flatnonzero(former_columns < 0)
        old_columns = np.flatnonzero(former_columns >= 0)

        # Documents that hold new labels, over the labels of the former space.
        holding = data.documents[:, new_columns]
        n_held = np.diff(holding.indptr)
        rows = np.flatnonzero(n_held)
        rows = spaced(rows, _MOST_HOLDING)
        old_tags = data.documents[rows][:, old_columns].tocoo()
        source_columns = former_columns[old_columns]
        entry_columns = source_columns[old_tags.col]
        entries = (old_tags.data, (old_tags.row, entry_columns))
        documents = sp.csr_matrix(entries, (len(rows), n_former))

        priors = data.priors()
        weights, biases = former.first_readouts(
            documents=documents,
            holding=holding[rows],
            folds=data.folds[rows],
            priors=priors[new_columns],
        )
        former_has_unseen = former.n_seen_ < n_former
        has_unseen = data.n_unseen > 0
        return StartMembers(
            members=former.members_,
            former_columns=former_columns,
            any_unseen=has_unseen and former_has_unseen,
            new_weights=weights,
            new_biases=biases,
        )


def affine(rows: Any, weights: Any, bias: Any) -> Any:
    """Return products of rows and weights, with the bias added.

    In arrays the members' products lie side by side in memory, row by row, as codes do.

    Parameters
    ----------
    rows : array or tensor, shape (n_members, n_rows, below)
        An array may be (n_rows, below), the same for all members.
    weights : array or tensor, shape (n_members, below, above)
    bias : array or tensor, shape (n_members, 1, above)

    Returns
    -------
    array or tensor, shape (n_members, n_rows, above)
    """
    if not isinstance(rows, np.ndarray):
        return bias.baddbmm(rows, weights)
    n_rows = rows.shape[-2]
    n_members, _, above = weights.shape
    by_row = np.empty((n_rows, n_members, above), dtype=weights.dtype)
    by_member = by_row.transpose(1, 0, 2)
    products = np.matmul(rows, weights, out=by_member)
    return np.add(products, bias, out=products)


def rectified(values: Any) -> Any:
    """Return values, those below 0 as 0, in place."""
    if isinstance(values, np.ndarray):
        return np.maximum(values, 0, out=values)
    return values.relu_()


def squashed(values: Any) -> Any:
    """Return the hyperbolic tangent, in place."""
    if isinstance(values, np.ndarray):
        return np.tanh(values, out=values)
    # tanh(x) = 2 sigmoid(2 x) - 1; torch's own takes five times as long.
    values.mul_(2)
    values.sigmoid_()
    values.mul_(2)
    return values.sub_(1)


def mean_of(values: Any) -> Floats:
    """Return the mean over members, the first axis, as an array."""
    mean = values.mean(axis=0)
    if isinstance(mean, np.ndarray):
        return mean
    return np.asarray(mean.cpu())


def probabilities_of(logits: Any) -> Any:
    """Return the probabilities of logits, which stay as they are."""
    if not isinstance(logits, np.ndarray):
        return logits.sigmoid()
    from scipy.special import expit

    return expit(logits)


def mean_predictions(members: Members, features: Floats, truth: Floats) -> tuple[Floats, Floats]:
    """Return the mean predictions of members for tagged items.

    Parameters
    ----------
    members : Members
    features : float32 array, shape (n_items, n_features)
        Standardised.
    truth : float32 array, shape (n_items, n_seen)
        Seen labels that items carry, 1 or 0.

    Returns
    -------
    unseen : float32 array, shape (n_items, n_outputs - n_seen)
        Probabilities of unseen labels, and of any of them, by true tags.
    seen : float32 array, shape (n_items, n_seen)
        Logits of seen labels, by features.
    """
    n_items, n_seen = truth.shape
    n_labels = members.shape.n_labels
    n_unseen = members.shape.n_outputs - n_seen
    seen_columns = slice(0, n_seen)
    unseen_columns = slice(n_seen, None)
    unseen_shape = (n_items, n_unseen)
    unseen = np.empty(unseen_shape, dtype=np.float32)
    seen = np.empty(truth.shape, dtype=np.float32)
    for start in range(0, n_items, _BLOCK_ITEMS):
        stop = start + _BLOCK_ITEMS
        rows = slice(start, stop)
        block_truth = truth[rows]
        n_rows = len(block_truth)
        tags = np.zeros((n_rows, n_labels), dtype=np.float32)
        tags[:, seen_columns] = block_truth
        tag_inputs = members.as_inputs(tags)
        tag_codes = members.encode_documents(tag_inputs)
        unseen_logits = members.read(tag_codes, unseen_columns)
        probabilities = probabilities_of(unseen_logits)
        unseen[rows] = mean_of(probabilities)
        block_features = features[rows]
        feature_inputs = members.as_inputs(block_features)
        item_codes = members.encode_items(feature_inputs)
        seen_logits = members.read(item_codes, seen_columns)
        seen[rows] = mean_of(seen_logits)
    return unseen, seen


def pool_predictions(members: Members, features: Floats, n_seen: int) -> Floats:
    """Return the mean logits (n_items, n_labels) of untagged items.

    By their standardised features (n_items, n_features) and probable tags, half each.
    """
    n_items = len(features)
    n_labels = members.shape.n_labels
    label_columns = slice(0, n_labels)  # all outputs but that for any unseen label
    seen_columns = slice(0, n_seen)
    logits = np.empty((n_items, n_labels), dtype=np.float32)
    for start in range(0, n_items, _BLOCK_ITEMS):
        stop = start + _BLOCK_ITEMS
        rows = slice(start, stop)
        block_features = features[rows]
        n_rows = len(block_features)
        feature_inputs = members.as_inputs(block_features)
        item_codes = members.encode_items(feature_inputs)
        seen_logits = members.read(item_codes, seen_columns)
        probabilities = probabilities_of(seen_logits)
        tags = np.zeros((n_rows, n_labels), dtype=np.float32)
        tags[:, seen_columns] = mean_of(probabilities)
        tag_inputs = members.as_inputs(tags)
        tag_codes = members.encode_documents(tag_inputs)
        codes = 0.5 * (item_codes + tag_codes)
        member_logits = members.read(codes, label_columns)
        logits[rows] = mean_of(member_logits)
    return logits


def _layers(flat: Any, sizes: tuple[int, ...]) -> Layers:
    """Return views of flat weights as layers; without weights, none.

    Parameters
    ----------
    flat : array or tensor, shape (n_members, n_weights)
        Layer after layer, of each the weights and then the bias: the order that model files have.
    sizes : tuple of int
        Inputs, then the units of each layer.
    """
    layers: Layers = []
    if not flat.shape[1]:
        return layers
    start = 0
    for below, above in pairwise(sizes):
        stop = start + below * above
        end = stop + above
        flat_weights = flat[:, start:stop]
        flat_bias = flat[:, stop:end]
        weights = flat_weights.reshape(-1, below, above)
        bias = flat_bias.reshape(-1, 1, above)
        layers.append((weights, bias))
        start = end
    return layers
