"""The concept space: documents, items and partial tag sets as codes, every label read from a code.

In: documents as sparse rows and features of items. Out: codes, logits, probabilities, and readouts
of labels that turn up later. No label strings here: columns are numbers.

Terms: *documents*, *tags* and tables of the callers have their labels in the *order of columns*;
members, `calibration_` and whatever is said to be in *members' order* have the columns `order_`,
seen labels first. *Seen* labels are carried by training items, *unseen* ones by documents alone,
*new* ones came after training and have no column. A *direction* of a label is its weights in every
member, (n_members, code, n_labels). *Frequencies* are how often items are expected to have labels,
*priors* how often documents hold them, both above 0 and below 1. Arrays of a fitted space are
shared with what methods return where no copy is named: callers do not change them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from polyseme.base.estimator import Estimator
from polyseme.base.validation import (
    InputError,
    IntArray,
    RandomState,
    as_generator,
    check_device,
    check_fitted,
    check_kind,
    check_number,
    check_path,
    draw_seed,
)
from polyseme.space.calibration import (
    PRECISIONS,
    Calibration,
    HeldOutSample,
    ReferenceSample,
    log_odds,
    match_frequencies,
    sigmoid,
)
from polyseme.space.features import (
    PROJECTION_SIZE,
    first_columns,
    lost_columns,
    project,
    standardise,
)
from polyseme.space.votes import readout_share, side_by_side, unit_directions

if TYPE_CHECKING:
    from polyseme.space.features import Features
    from polyseme.space.linear_path import LinearPath
    from polyseme.space.members import Members, WarmStart
    from polyseme.space.space_fit import Progress, Trainer
    from polyseme.space.training import SpacePlan

Matrix = NDArray[np.float64]
Floats = NDArray[np.float32]

# Of seen and of unseen labels: members are more certain of what they were shown than they should
# be, and less of what they conclude; chosen by calibration on held-out items.
SLOPES = (0.75, 1.2)
# The share of probable tags in an item's code; the rest is its features'.
CONTEXT = 0.5
# The share that known documents near an item's code have in its logits; the rest is the readout's.
PRIMING = 0.3
# Items or documents that are encoded at a time.
_BLOCK_ROWS = 1024
# The ridge on the variances of codes, for the direction of a new label: this share of their mean
# and, divided by the number of documents that hold the label, so many times their mean.
_RIDGE = 0.3
_RIDGE_DOCUMENTS = 20.0
_LEAST_SPREAD = 1e-9
# The mean of all documents is worth so many documents beside those that hold a new label.
_PRIOR_HOLDERS = 2.0


class Readout(NamedTuple):
    """How labels are read from codes: probability = sigmoid(codes @ weights + intercepts)."""

    weights: Matrix  # (n_dimensions, n_labels)
    intercepts: Matrix  # (n_labels,)


class EncodedFeatures(NamedTuple):
    """The codes of items, with what they are made of: features, probable tags, the linear path."""

    codes: Floats  # (n_items, n_dimensions)
    direct: Floats  # members' codes of features alone, (n_items, n_members * code)
    probable: Floats  # probabilities of tags, given ones 1; members' order, (n_items, n_labels)
    coordinates: Floats  # of the linear path, (n_items, n_coordinates)


class ConceptSpace(Estimator):
    """One space for documents, items and partial tag sets.

    A document encoder codes tag sets, an item encoder codes features, and one linear readout gives
    every label's logit from a code. There are several such members, one for each fold of
    documents that they never see; their codes side by side are one code, and the mean of their
    logits is one linear readout of it. An item's code is part what its features say and part what
    the tags say that it probably has.

    Parameters
    ----------
    n_folds : int, optional
        Folds of documents, 5 by default; fewer where there are fewer documents or groups.
    members_per_fold : int, optional
        One by default.
    n_steps : int, optional
        Training steps of every member.
    context : float
        Share of probable tags in an item's code.
    priming : float
        Share that the votes of known documents near an item's code have in its logits.
    linear : float or None
        Weight of a linear path, a ridge regression on the features, in the logits of seen labels,
        in spreads of its predictions. None learns it on held-out items, and may find 0; 0 leaves
        the path out.
    plan : SpacePlan, optional
        Everything about the training that is not said above; by default one that is fitted to the
        size of the data, see `SpacePlan.sized`.
    checkpoint : str, Path or None
        A folder for the state of the training; a run that was interrupted goes on from there.
    device : str, optional
        Where members are trained, as torch names it: "cpu", "cuda"; by default a GPU where there
        is one. They are used on the processor. Another device draws other numbers, so its results
        differ slightly.
    random_state : int, numpy Generator or None

    Attributes
    ----------
    order_ : int64 array, shape (n_labels,)
        Columns as members have them: labels of items first.
    n_seen_ : int
        How many labels are on items.
    priors_ : float64 array, shape (n_labels,)
        How often documents hold each label.
    members_ : Members
    linear_ : LinearPath
        What a ridge regression adds to the logits of seen labels, beside the members.
    calibration_ : Calibration
        In the members' order of labels.
    held_out_sample_ : HeldOutSample
        By which new labels are calibrated.
    reference_sample_ : ReferenceSample
        By which corrections are calibrated.
    mean_code_ : float64 array, shape (n_dimensions,), and mean_tags_ : float64, shape (n_seen,)
        What features say of an item on average, and which tags are probable on average: what
        evidence starts from.
    document_mean_, document_scatter_ : float64 arrays
        Mean (n_members, code) and covariance (n_members, code, code) of documents' codes, from
        which new labels get their readouts.
    axes_ : float32 array, shape (n_dimensions, n_axes)
        Principal axes of documents' codes; see `points`.
    mean_, scale_ : float64 arrays, shape (n_features,)
        By which features are standardised; see `column_statistics`.
    folds_ : int64 array, shape (n_documents + n_pool,)
        The fold of each document, then of each item of the pool, which its members never saw.
    history_ : list of dict
        Losses of documents and items, for every round of training.
    plan_ : SpacePlan
        As it was fitted to the size of the data.
    data_digest_ : str
        SHA-256 over documents, features and folds.
    digest_ : str
        SHA-256 over the members' weights: which space this is.
    """

    order_: IntArray
    n_seen_: int
    priors_: Matrix
    members_: Members
    linear_: LinearPath
    calibration_: Calibration
    held_out_sample_: HeldOutSample
    reference_sample_: ReferenceSample
    mean_code_: Matrix
    mean_tags_: Matrix
    document_mean_: Matrix
    document_scatter_: Matrix
    axes_: Floats
    mean_: Matrix
    scale_: Matrix
    folds_: IntArray
    history_: list[dict[str, float]]
    plan_: SpacePlan
    data_digest_: str
    digest_: str

    def __init__(
        self,
        n_folds: int | None = None,
        members_per_fold: int | None = None,
        n_steps: int | None = None,
        context: float = CONTEXT,
        priming: float = PRIMING,
        linear: float | None = None,
        plan: SpacePlan | None = None,
        checkpoint: str | Path | None = None,
        device: str | None = None,
        random_state: RandomState = None,
    ) -> None:
        self.n_folds = n_folds
        self.members_per_fold = members_per_fold
        self.n_steps = n_steps
        self.context = context
        self.priming = priming
        self.linear = linear
        self.plan = plan
        self.checkpoint = checkpoint
        self.device = device
        self.random_state = random_state

    # ------------------------------------------------------------------ fitting

    def fit(
        self,
        documents: sp.csr_matrix,
        X: Features | None = None,
        item_documents: IntArray | None = None,
        groups: IntArray | None = None,
        n_label_sets: int | None = None,
        progress: Progress | None = None,
        trainer: Trainer | None = None,
        pool: Features | None = None,
        verdicts: sp.csr_matrix | None = None,
        warm: WarmStart | None = None,
    ) -> Self:
        """Learn from documents and items.

        Parameters
        ----------
        documents : csr_matrix, shape (m, n_labels)
            All documents, those of items among them.
        X : float64 array or csr_matrix, shape (n, n_features), optional
            Without it the space is learned from documents alone.
        item_documents : int64 array, shape (n,), optional
            The document of each item; by default the first item's is the first, and so on.
        groups : int64 array, shape (m,), optional
            Documents of one group stay in one fold.
        n_label_sets : int, optional
            The first so many documents are label sets; the others are items' documents that are
            not among them. By default all.
        progress : callable, optional
            Takes rounds done, rounds in all and the last round's losses.
        trainer : callable, optional
            Trains the members; by default this process does, in threads. See
            `polyseme.batch.RayTraining`.
        pool : float64 array or csr_matrix, shape (n_pool, n_features), optional
            Untagged items, to learn from as well.
        verdicts : csr_matrix, shape (n + n_pool, n_labels), optional
            What is known of single labels of items and then of the pool: 1 for yes, -1 for no.
        warm : WarmStart, optional
            A former space to go on from, by a tenth of the steps at half the rates
            (`SpacePlan.warmed`). Its documents stay in their folds, new ones are drawn into the
            smallest folds, and features are standardised as they were.
        """
        from polyseme.space.space_fit import fit_space, prepare_training

        self.check_parameters()
        data, seed = prepare_training(
            self, documents, X, item_documents, groups, n_label_sets, pool, verdicts, warm
        )
        fit_space(self, data, seed, trainer, progress, warm)
        return self

    def planned(self, n_documents: int, n_items: int = 0, *, pool: bool = False) -> SpacePlan:
        """Return the plan that the parameters and the data ask for.

        Parameters
        ----------
        n_documents, n_items : int
            How many documents and tagged items there are.
        pool : bool
            Whether items without tags are learned from, too, which takes more steps.
        """
        from polyseme.space.training import SpacePlan

        plan = self.plan or SpacePlan().sized(n_documents, n_items)
        changes: dict[str, Any] = {}
        for name in ("n_folds", "members_per_fold", "n_steps"):
            value = getattr(self, name)
            if value is not None:
                changes[name] = value
        if self.n_steps is not None:
            # Four rounds at least, so that members exchange predictions.
            quarter = max(self.n_steps // 4, 1)
            changes["round_steps"] = min(plan.round_steps, quarter)
        elif pool:
            changes["n_steps"] = int(plan.n_steps * plan.pool_steps)
        return replace(plan, **changes)

    def training_seed(self) -> int:
        """Return the seed of the training: the interrupted one's, where there is a checkpoint.

        One with another seed than was asked for is refused.
        """
        seed = draw_seed(as_generator(self.random_state))
        if self.checkpoint is None:
            return seed

        from polyseme.space.training import checkpoint_seed
        from polyseme.storage.checkpoints import other_training

        interrupted_seed = checkpoint_seed(self.checkpoint)
        if interrupted_seed is None:
            return seed
        is_chosen = isinstance(self.random_state, (int, np.integer))
        if is_chosen and interrupted_seed != seed:
            raise other_training(self.checkpoint)
        return interrupted_seed

    def n_weights(self, shape: tuple[int, int], n_items: int, n_features: int) -> int:
        """Return how many weights the members will have, at the least.

        Parameters
        ----------
        shape : (int, int)
            Of the documents: how many there are, and labels.
        n_items, n_features : int
            How many tagged items there are, and their features; 0 without any.
        """
        n_documents, n_labels = shape
        plan = self.planned(n_documents, n_items)
        n_folds = min(plan.n_folds, n_documents)
        n_members = n_folds * plan.members_per_fold
        # Each hidden unit of an encoder has its inputs and, above it, the dimensions of a code.
        n_inputs = n_features + n_labels
        n_connections = n_inputs + 2 * plan.code
        encoder_weights = n_connections * plan.hidden
        readout_weights = plan.code * n_labels
        member_weights = encoder_weights + readout_weights
        return n_members * member_weights

    def derive(self) -> None:
        """Compute what no request changes: needed whenever members, axes or linear path change.

        Sets the centre of documents on the axes, (n_axes,), and the readout of seen labels from
        codes of features.
        """
        mean_code = self.document_mean_.ravel()
        self._centre: Floats = mean_code.astype(np.float32) @ self.axes_

        # Seen labels, by all members and the linear path as one.
        members = self.members_
        n_seen = 0
        if members.shape.n_features:
            n_seen = self.n_seen_
        n_members = np.float32(len(members))
        seen_weights = members.labels[..., :n_seen]
        member_weights = seen_weights / n_members
        path_weights = self.linear_.labels[:, :n_seen]
        weights = np.concatenate([*member_weights, path_weights])
        seen_biases = members.bias[:, 0, :n_seen]
        intercepts = seen_biases.mean(axis=0)
        self._seen_readout = Readout(weights, intercepts)

    def lost_features(self, X: Features) -> IntArray:
        """Return the columns of X that vary, and too little to be learned from, sorted."""
        return lost_columns(self.own_columns(X), self.scale_)

    def own_columns(self, X: Features) -> Features:
        """Return the first columns of features, which describe items to the space.

        Further ones are for names of labels alone. Where some are cut off, the rest is dense.
        """
        return first_columns(X, self.members_.shape.n_features)

    # ------------------------------------------------------------------ codes

    @property
    def seen_columns(self) -> IntArray:
        """The columns of labels that items carry, (n_seen,)."""
        return np.asarray(self.order_[: self.n_seen_])

    @property
    def unseen_columns(self) -> IntArray:
        """The columns of labels that documents alone hold, (n_unseen,)."""
        return np.asarray(self.order_[self.n_seen_ :])

    @property
    def n_dimensions(self) -> int:
        """Dimensions of a code: all members' side by side, then the linear path's coordinates."""
        return self.members_.n_dimensions + self.linear_.n_coordinates

    @property
    def linear_weight(self) -> float:
        """The weight of the linear path, before shrinkage, in seen labels' logits; 0 for none."""
        labels = self.linear_.labels
        if not len(labels):
            return 0.0
        # labels = shrinkage * weight * rows of length 1; slopes of seen labels = shrinkage * SLOPES
        seen_slope = self.calibration_.slopes[0]
        shrinkage = seen_slope / SLOPES[0]
        length = np.linalg.norm(labels[0])
        return float(length / shrinkage)

    def item_codes(self, X: Features, tags: sp.csr_matrix | None = None) -> Floats:
        """Return the codes of items, (n_items, n_dimensions), in single precision.

        Some rows at a time, so that X may be large; for parameters see `encode_items`.
        """
        check_fitted(self, "members_")
        n_items = X.shape[0]
        codes = np.empty((n_items, self.n_dimensions), dtype=np.float32)
        block_tags = None
        for start in range(0, n_items, _BLOCK_ROWS):
            stop = start + _BLOCK_ROWS
            if tags is not None:
                block_tags = tags[start:stop]
            encoded = self.encode_items(X[start:stop], block_tags)
            codes[start:stop] = encoded.codes
        return codes

    def encode_items(self, X: Features, tags: sp.csr_matrix | None = None) -> EncodedFeatures:
        """Encode items by their features, and by the tags that they have or probably have.

        Parameters
        ----------
        X : float64 array or csr_matrix, shape (n_items, n_features)
            At most some thousand items: a table of all their labels is made.
        tags : csr_matrix, shape (n_items, n_labels), optional
            Labels that items are known to have, 1, in the order of columns.
        """
        check_fitted(self, "members_")
        members = self.members_
        features = standardise(self.own_columns(X), self.mean_, self.scale_)
        member_codes = members.encode_items(features)
        direct = side_by_side(member_codes)
        coordinates = self.linear_.coordinates(features)
        codes = np.concatenate([direct, coordinates], axis=1)

        # Seen labels are read from the features alone; given tags are certain.
        weights, intercepts = self._seen_readout
        logits = codes @ weights + intercepts
        n_items, n_direct = direct.shape
        n_labels = len(self.order_)
        probable = np.zeros((n_items, n_labels), dtype=np.float32)
        probable[:, : self.n_seen_] = sigmoid(logits)
        n_probable = self.n_seen_  # all other labels are 0
        if tags is not None:
            ordered_tags = tags[:, self.order_].toarray()
            certain = np.asarray(ordered_tags, dtype=np.float32)
            np.maximum(probable, certain, out=probable)
            n_probable = n_labels

        tag_codes = members.encode_documents(probable[:, :n_probable])
        context = side_by_side(tag_codes)
        codes[:, :n_direct] = self.compose(direct, context)
        return EncodedFeatures(codes, direct, probable, coordinates)

    def compose(self, direct: Floats, context: Floats) -> Floats:
        """Return members' codes of features and of probable tags as one.

        Parameters
        ----------
        direct, context : float32 arrays, shape (n_items, n_members * code)
            Codes of features, and codes of probable tags as `encode_context` returns them.
        """
        # code = (1 - context) * features + context * probable tags
        feature_part = (1 - self.context) * direct
        tag_part = self.context * context
        composed = feature_part + tag_part
        return np.asarray(composed, dtype=np.float32)

    def encode_context(self, probable: Floats, members: Members | None = None) -> Floats:
        """Return members' codes of probable tags, (n_items, n_members * code).

        Parameters
        ----------
        probable : float32 array, shape (n_items, n_labels)
            Probabilities, in members' order; where all but the first labels are 0, these alone
            will do.
        members : Members, optional
            Those of a fold; by default all.
        """
        if members is None:
            members = self.members_
        member_codes = members.encode_documents(probable)
        return side_by_side(member_codes)

    def encode_documents(self, tags: sp.csr_matrix) -> Floats:
        """Return the codes (n_documents, n_dimensions) of documents or partial tag sets.

        `tags` (n_documents, n_labels) are 1 where a document holds a label, in the order of
        columns.
        """
        check_fitted(self, "members_")
        table = sp.csr_matrix(tags)
        ordered_tags = table[:, self.order_]
        member_codes = self.members_.encode_sparse_documents(ordered_tags)
        codes = side_by_side(member_codes)
        # Tags have no coordinates on the linear path: these are 0.
        no_rows = (0, 0)
        path_columns = (0, self.linear_.n_coordinates)
        return np.pad(codes, (no_rows, path_columns))

    @property
    def projection_size(self) -> int:
        """Dimensions of a projection; 0 without features."""
        return min(self.members_.shape.n_features, PROJECTION_SIZE)

    def project(self, X: Features) -> Floats:
        """Return projections of features, (n_items, projection_size), by which items are alike.

        Cosines of features are nearly kept; rows have length 1. Dense or sparse features
        (n_items, n_features) are in the users' units.
        """
        features = standardise(self.own_columns(X), self.mean_, self.scale_)
        return project(features)

    def points(self, codes: Floats) -> Floats:
        """Return codes (n, n_dimensions) as directions on the principal axes, (n, n_axes).

        Directions have length 1; the mean code of documents is the origin.
        """
        n_member_dimensions = self.members_.n_dimensions
        member_codes = codes[:, :n_member_dimensions]
        coordinates = member_codes @ self.axes_
        return unit_directions(coordinates - self._centre)

    def document_points(self, tags: sp.csr_matrix) -> Floats:
        """Return the points (n_documents, n_axes) of documents, some rows at a time.

        For `tags` see `encode_documents`, for points `points`.
        """
        n_documents = tags.shape[0]
        n_axes = self.axes_.shape[1]
        points = np.empty((n_documents, n_axes), dtype=np.float32)
        for start in range(0, n_documents, _BLOCK_ROWS):
            stop = start + _BLOCK_ROWS
            codes = self.encode_documents(tags[start:stop])
            points[start:stop] = self.points(codes)
        return points

    # ------------------------------------------------------------------ labels

    def readout(self, *, of_items: bool = True) -> Readout:
        """Return how all labels are read, in the order of columns.

        Parameters
        ----------
        of_items : bool
            Whether from items' codes, calibrated, or from those of tag sets. The logits of items
            are then mixed with those of votes; see `mix`.
        """
        n_labels = len(self.order_)
        # The mean of members' logits is one readout of their codes side by side.
        members = self.members_
        n_outputs = members.shape.n_outputs
        label_weights = members.labels.astype(np.float64)
        label_weights /= len(members)
        output_weights = label_weights.reshape(-1, n_outputs)
        weights = output_weights[:, :n_labels]
        label_biases = members.bias[:, 0, :n_labels]
        intercepts = label_biases.astype(np.float64).mean(axis=0)
        path_weights = np.zeros((self.linear_.n_coordinates, n_labels))
        if of_items:
            calibration = self.calibration_
            slopes = calibration.slopes * readout_share(self.priming)
            weights = weights * slopes
            intercepts = intercepts * slopes
            intercepts = intercepts + calibration.intercepts
            path_weights[:, : self.n_seen_] = self.linear_.labels

        # From members' order to that of columns.
        positions = np.argsort(self.order_)
        all_weights = np.concatenate([weights, path_weights])
        return Readout(all_weights[:, positions], intercepts[positions])

    def threshold(self, precision: float) -> float:
        """Return how likely seen labels must be for a share of them to be true, 0 to 1."""
        thresholds = self.calibration_.thresholds
        if not len(thresholds):
            raise InputError(
                "A precision is learned on training items that can be held out; here all of them "
                "are of one group, or there is but one."
            )
        threshold = np.interp(precision, PRECISIONS, thresholds)
        return float(threshold)

    @property
    def typical_frequency(self) -> float:
        """How often documents hold a label, by the geometric mean over labels."""
        mean_logarithm = np.log(self.priors_).mean()
        return float(np.exp(mean_logarithm))

    def readout_of_documents(
        self, codes: Floats, holding: sp.csr_matrix, frequencies: Matrix
    ) -> tuple[Readout, Readout]:
        """Return how new labels are read, in closed form from the documents that hold them.

        A label's direction is that of linear discriminant analysis in every member: from the mean
        of all documents to the mean of those that hold it, in units of how documents scatter.

        Parameters
        ----------
        codes : float32 array, shape (n_documents, n_dimensions)
            Of documents that hold new labels.
        holding : csr_matrix, shape (n_documents, n_new)
            1 where they hold a new label.
        frequencies : float64 array, shape (n_new,)
            How often items are expected to have each.

        Returns
        -------
        of_items, of_tags : Readout
            From items' codes and from those of tag sets.
        """
        n_members, code = self.document_mean_.shape
        n_holding = np.asarray(holding.sum(axis=0), dtype=np.float64).ravel()
        counts = np.maximum(n_holding, 1)
        n_member_dimensions = n_members * code
        member_codes = codes[:, :n_member_dimensions].astype(np.float64)
        code_sums = np.asarray(holding.T @ member_codes)
        means = code_sums / counts[:, None]
        by_member = means.reshape(-1, n_members, code)
        member_means = by_member.transpose(1, 2, 0)

        # From the mean of all documents to that of those which hold the label, shrunk.
        centre = self.document_mean_[..., None]
        gaps = _shrunk_gaps(member_means - centre, counts)
        directions = self._discriminants(gaps, counts)
        member_biases = self._middle_biases(directions, gaps)
        biases = member_biases.mean(axis=0)
        weights = self._stacked_weights(directions)

        # logit = slope * (direction @ (code - middle)) + logit(frequency)
        prior_logits = log_odds(frequencies)
        of_tags = Readout(weights, biases + prior_logits)
        slopes = _item_slopes(counts)
        item_biases = biases * slopes
        uncalibrated = Readout(weights * slopes, item_biases + prior_logits)
        item_directions = directions * slopes
        of_items = self._match_held_out_sample(uncalibrated, item_directions, frequencies)
        return of_items, of_tags

    def _middle_biases(self, directions: Matrix, gaps: Matrix) -> Matrix:
        """Return biases (n_members, n_new) that are 0 half way between two means.

        `directions` and `gaps` are (n_members, code, n_new); see `_discriminants`.
        """
        half_gaps = 0.5 * gaps
        centre = self.document_mean_[..., None]
        middles = centre + half_gaps
        products = directions * middles
        return np.asarray(-products.sum(axis=1))

    def _discriminants(self, gaps: Matrix, counts: Matrix) -> Matrix:
        """Return the directions of linear discriminant analysis, (n_members, code, n_new).

        Parameters
        ----------
        gaps : float64 array, shape (n_members, code, n_new)
            From the mean of all documents to the mean of those that hold a label.
        counts : float64 array, shape (n_new,) or (n_members, 1, n_new)
            How many documents hold it, 1 at least.
        """
        code = gaps.shape[1]
        scatter = self.document_scatter_
        total_variances = np.trace(scatter, axis1=1, axis2=2)
        mean_variances = total_variances / code
        spreads = np.maximum(mean_variances, _LEAST_SPREAD)
        # The fewer documents hold a label, the less is made of directions that hardly scatter.
        shares = _RIDGE + _RIDGE_DOCUMENTS / counts
        ridge = spreads[:, None, None] * shares
        eigenvalues, axes = np.linalg.eigh(scatter)
        variances = np.maximum(eigenvalues, 0)
        # direction = (scatter + ridge)⁻¹ gap, on the eigenvectors of the scatter
        divisors = variances[..., None] + ridge
        on_axes = axes.mT @ gaps / divisors
        return np.asarray(axes @ on_axes)

    def first_readouts(
        self, documents: sp.csr_matrix, holding: sp.csr_matrix, folds: IntArray, priors: Matrix
    ) -> tuple[Floats, Floats]:
        """Return how members read new labels before they are trained again, in closed form.

        As in `readout_of_documents`, but each member by documents that are not of its fold.

        Parameters
        ----------
        documents : csr_matrix, shape (n_documents, n_labels)
            Documents that hold new labels, over the labels in members' order.
        holding : csr_matrix, shape (n_documents, n_new)
            1 where they hold a new label.
        folds : int64 array, shape (n_documents,)
        priors : float64 array, shape (n_new,)

        Returns
        -------
        weights : float32 array, shape (n_members, code, n_new)
        biases : float32 array, shape (n_members, n_new)
        """
        n_members, code = self.document_mean_.shape
        n_new = len(priors)
        if not n_new:
            no_weights = np.zeros((n_members, code, 0), dtype=np.float32)
            no_biases = np.zeros((n_members, 0), dtype=np.float32)
            return no_weights, no_biases
        codes = self.members_.encode_sparse_documents(documents)
        member_numbers = np.arange(n_members)
        member_folds = member_numbers // self.plan_.members_per_fold
        sees = folds != member_folds[:, None]  # (n_members, n_documents)
        sums = np.empty((n_members, code, n_new))
        n_holding = np.empty((n_members, 1, n_new))
        for number, visible in enumerate(sees.astype(np.float64)):
            visible_codes = visible[:, None] * codes[number]
            sums[number] = (holding.T @ visible_codes).T
            n_holding[number] = holding.T @ visible

        counts = np.maximum(n_holding, 1)
        means = sums / counts
        centre = self.document_mean_[..., None]
        # A label that a member sees on no document has no direction there.
        deviations = np.where(n_holding > 0, means - centre, 0.0)
        gaps = _shrunk_gaps(deviations, counts)
        directions = self._discriminants(gaps, counts)
        directions = directions * _item_slopes(counts)
        middle_biases = self._middle_biases(directions, gaps)
        biases = middle_biases + log_odds(priors)
        return directions.astype(np.float32), biases.astype(np.float32)

    def mixed_with_names(
        self, of_items: Readout, of_tags: Readout, likeness: Matrix, share: float
    ) -> tuple[Readout, Readout]:
        """Return readouts in which unseen labels are read by their names as well.

        Parameters
        ----------
        of_items, of_tags : Readout
            As `readout` returns them; they stay as they are.
        likeness : float64 array, shape (n_unseen, n_seen)
            As for `readout_of_names`, of unseen labels in members' order; a label without any is
            read as before.
        share : float
            Of the names; that of votes (`priming`) stays as it is.
        """
        have_names = likeness.any(axis=1)
        if not have_names.any():
            return of_items, of_tags
        columns = self.unseen_columns[have_names]
        items_by_name, tags_by_name = self.readout_of_names(
            likeness=likeness[have_names],
            frequencies=self.priors_[columns],
        )
        # The share of votes in items' logits stays as it is.
        item_share = share * readout_share(self.priming)
        remaining_share = 1 - share
        mixed_items = _mix_columns(of_items, columns, remaining_share, items_by_name, item_share)
        mixed_tags = _mix_columns(of_tags, columns, remaining_share, tags_by_name, share)
        return mixed_items, mixed_tags

    def readout_of_names(
        self, likeness: Matrix, frequencies: Matrix | None = None
    ) -> tuple[Readout, Readout]:
        """Return the readout of labels that are known by name alone: that of seen labels like them.

        Parameters
        ----------
        likeness : float64 array, shape (n_new, n_seen)
            The weight of each seen label's deviation from its mean.
        frequencies : float64 array, shape (n_new,), optional
            How often items are expected to have each; by default as often as is typical.
        """
        n_new = len(likeness)
        if frequencies is None:
            frequencies = np.full(n_new, self.typical_frequency)
        seen_weights = self.members_.labels[..., : self.n_seen_].astype(np.float64)
        similar_weights = seen_weights @ likeness.T
        directions = similar_weights * SLOPES[0]
        # The bias is 0 at the mean of all documents.
        centre = self.document_mean_[..., None]
        products = directions * centre
        member_biases = -products.sum(axis=1)
        biases = member_biases.mean(axis=0)
        weights = self._stacked_weights(directions)
        intercepts = biases + log_odds(frequencies)
        of_tags = Readout(weights, intercepts)
        of_items = self._match_held_out_sample(of_tags, directions, frequencies)
        return of_items, of_tags

    def _stacked_weights(self, directions: Matrix) -> Matrix:
        """Return the weights (n_dimensions, n_new) of the mean over members' directions.

        Directions are (n_members, code, n_new); the linear path adds nothing to new labels.
        """
        n_members, code, n_new = directions.shape
        n_member_dimensions = n_members * code
        stacked = directions.reshape(n_member_dimensions, n_new)
        weights = stacked / n_members
        n_coordinates = self.linear_.n_coordinates
        path_weights = np.zeros((n_coordinates, n_new))
        return np.concatenate([weights, path_weights])

    def _match_held_out_sample(
        self, readout: Readout, directions: Matrix, frequencies: Matrix
    ) -> Readout:
        """Return a readout of new labels with the intercepts that held-out items ask for.

        Their mean probability there is the frequency that is expected. Without held-out items the
        readout is returned as it is.

        Parameters
        ----------
        readout : Readout
        directions : float64 array, shape (n_members, code, n_new)
            Its weights, member by member.
        frequencies : float64 array, shape (n_new,)
        """
        codes, folds, weights = self.held_out_sample_
        n_items = len(weights)
        if not n_items:
            return readout
        per_fold = self.plan_.members_per_fold
        n_new = directions.shape[2]
        logits = np.empty((n_items, n_new))
        for fold in np.unique(folds):
            in_fold = folds == fold
            first_member = fold * per_fold
            stop = first_member + per_fold
            fold_directions = directions[first_member:stop]
            stacked = fold_directions.reshape(-1, n_new)
            logit_sums = codes[in_fold] @ stacked
            logits[in_fold] = logit_sums / per_fold
        intercepts = match_frequencies(logits, weights, frequencies)
        return readout._replace(intercepts=intercepts)

    # ------------------------------------------------------------------ checks and persistence

    def check_parameters(self) -> None:
        """Raise on a parameter out of its range."""
        from polyseme.space.training import SpacePlan

        owner = type(self).__name__
        check_kind("plan", self.plan, SpacePlan, owner=owner)
        lowest_sizes = {"n_folds": 2, "members_per_fold": 1, "n_steps": 1}
        for name, low in lowest_sizes.items():
            value = getattr(self, name)
            if value is not None:
                check_number(name, value, owner=owner, low=low, whole=True)
        for name in ("context", "priming"):
            value = getattr(self, name)
            check_number(name, value, owner=owner, low=0, high=1)
        if self.linear is not None:
            check_number("linear", self.linear, owner=owner, low=0, high=100)
        check_device(self.device, owner=owner)
        if self.checkpoint is not None:
            check_path(self.checkpoint, subject=f"`checkpoint` of `{owner}`")
        plan = self.plan or SpacePlan()
        plan.check()

    def get_state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return the fitted space as JSON values and arrays, for saving without pickle."""
        from polyseme.space.space_state import space_state

        check_fitted(self, "members_")
        return space_state(self)

    @classmethod
    def from_state(
        cls, config: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]
    ) -> ConceptSpace:
        """Rebuild a fitted space; see `get_state`."""
        from polyseme.space.space_state import restore_space

        return restore_space(cls, config, arrays)


def _mix_columns(
    readout: Readout, columns: IntArray, share: float, by_name: Readout, name_share: float
) -> Readout:
    """Return a copy of a readout, mixed with one by names in some columns.

    `by_name` has these columns alone, in the same order. The two shares are what the two readouts
    are multiplied with; they need not add up to 1.
    """
    weights = readout.weights.copy()
    weights[:, columns] *= share
    weights[:, columns] += name_share * by_name.weights
    intercepts = readout.intercepts.copy()
    intercepts[columns] *= share
    intercepts[columns] += name_share * by_name.intercepts
    return Readout(weights, intercepts)


def _shrunk_gaps(gaps: Matrix, counts: Matrix) -> Matrix:
    """Return gaps between means, shrunk as though two documents more held each label.

    `gaps` are (n_members, code, n_new), `counts` the numbers of documents that hold each label.
    """
    total_gaps = gaps * counts
    return total_gaps / (counts + _PRIOR_HOLDERS)


def _item_slopes(counts: Matrix) -> Matrix:
    """Return by how much new labels' directions count, by how many documents they rest on.

    Items lie less far apart than the documents that directions are learned from: with many
    documents half the slope is right, with one or two nearly all of it.
    """
    n_smoothed = counts + _PRIOR_HOLDERS
    doubts = _PRIOR_HOLDERS / n_smoothed
    slopes = 0.5 * (1 + doubts)
    return np.asarray(slopes)
