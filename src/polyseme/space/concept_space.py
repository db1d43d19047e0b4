"""The concept space: documents, items and partial tag sets as codes, every label read from a code.

In: documents as sparse rows and features of items. Out: codes, logits, probabilities, and readouts
of labels that turn up later. No label strings here: columns are numbers.
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
from polyseme.space.calibration import PRECISIONS, Calibration, match_frequencies, sigmoid
from polyseme.space.features import PROJECTION_SIZE, lost_columns, project, standardise
from polyseme.space.votes import readout_share

if TYPE_CHECKING:
    from polyseme.space.features import Features
    from polyseme.space.linear_path import LinearPath
    from polyseme.space.members import Members
    from polyseme.space.space_fit import Progress, Trainer, WarmStart
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
# Items or documents that are coded at a time.
_BLOCK = 1024
# Shrinkage of a new label's direction: the ridge on the variance of codes, larger for a label of
# few documents; and how many documents the mean of all is worth beside a label's own.
_RIDGE = 0.3
_LEAST_SPREAD = 1e-9
_FEW = 20.0
_DOUBT = 2.0


class Readout(NamedTuple):
    """How labels are read from codes: probability = sigmoid(codes @ weights + intercepts)."""

    weights: Matrix  # (n_dimensions, n_labels)
    intercepts: Matrix  # (n_labels,)


class HeldOutSample(NamedTuple):
    """Training items as members that had not seen them code them; empty where there are none."""

    codes: Floats  # (n, members_per_fold * code)
    folds: IntArray  # (n,)
    weights: Matrix  # of each item, (n,)

    def __repr__(self) -> str:
        """Return its size, in a line."""
        return f"HeldOutSample({len(self.codes)} items)"


class EncodedFeatures(NamedTuple):
    """The codes of items, with what they are made of: features, probable tags, the linear path."""

    codes: Floats  # (n, n_dimensions)
    direct: Floats  # members' codes of features alone, (n, n_members * code)
    probable: Floats  # tags that items probably have, in members' order; given ones are 1
    coordinates: Floats  # of the linear path, (n, n_coordinates)


class ReferenceSample(NamedTuple):
    """Items that stand for all: a correction leaves its label as frequent on these."""

    codes: Floats  # (n, n_dimensions)
    projections: Floats  # (n, projection_size)
    weights: Matrix  # (n,)


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
    reference_sample_ : ReferenceSample
    mean_code_ : float64 array, shape (n_dimensions,), and mean_tags_ : float64, shape (n_seen,)
        What features say of an item on average, and which tags are probable on average: what
        evidence starts from.
    document_mean_, document_scatter_ : float64 arrays
        Mean (n_members, code) and covariance (n_members, code, code) of documents' codes, from
        which new labels get their readouts.
    axes_ : float32 array, shape (n_dimensions, n_axes)
        Principal axes of documents' codes; see `points`.
    mean_, scale_ : float64 arrays, shape (n_features,)
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
        values: dict[str, Any] = {
            "n_folds": self.n_folds,
            "members_per_fold": self.members_per_fold,
            "n_steps": self.n_steps,
        }
        if self.n_steps is not None:
            quarter = max(self.n_steps // 4, 1)
            values["round_steps"] = min(plan.round_steps, quarter)
        elif pool:
            values["n_steps"] = int(plan.n_steps * plan.pool_steps)
        chosen = {name: value for name, value in values.items() if value is not None}
        return replace(plan, **chosen)

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
        n_members = min(plan.n_folds, n_documents) * plan.members_per_fold
        encoder_weights = (n_features + n_labels + 2 * plan.code) * plan.hidden
        readout_weights = plan.code * n_labels
        return n_members * (encoder_weights + readout_weights)

    def derive(self) -> None:
        """Compute what no request changes: needed whenever members, axes or linear path change."""
        mean_code = self.document_mean_.ravel().astype(np.float32)
        self._centre: Floats = mean_code @ self.axes_

        # Seen labels, by all members and the linear path as one.
        members = self.members_
        n_seen = self.n_seen_ if members.shape.n_features else 0
        member_weights = members.labels[..., :n_seen] / np.float32(len(members))
        path_weights = self.linear_.labels[:, :n_seen]
        weights = np.concatenate([*member_weights, path_weights])
        intercepts = members.bias[:, 0, :n_seen].mean(axis=0)
        self._seen_readout = Readout(weights, intercepts)

    def lost_features(self, X: Features) -> IntArray:
        """Return the columns of X that vary, and too little to be learned from."""
        return lost_columns(X, self.scale_)

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
        shrinkage = self.calibration_.slopes[0] / SLOPES[0]
        return float(np.linalg.norm(labels[0]) / shrinkage)

    def item_codes(self, X: Features, tags: sp.csr_matrix | None = None) -> Floats:
        """Return the codes of items, (n, n_dimensions), some rows at a time; see `encode_items`."""
        check_fitted(self, "members_")
        codes = np.empty((X.shape[0], self.n_dimensions), dtype=np.float32)
        for start in range(0, len(codes), _BLOCK):
            rows = slice(start, start + _BLOCK)
            block_tags = None if tags is None else tags[rows]
            codes[rows] = self.encode_items(X[rows], block_tags).codes
        return codes

    def encode_items(self, X: Features, tags: sp.csr_matrix | None = None) -> EncodedFeatures:
        """Encode items by their features, and by the tags that they have or probably have.

        Parameters
        ----------
        X : float64 array or csr_matrix, shape (n, n_features)
            At most some thousand items.
        tags : csr_matrix, shape (n, n_labels), optional
            Labels that items are known to have.
        """
        check_fitted(self, "members_")
        features = standardise(X, self.mean_, self.scale_)
        direct = side_by_side(self.members_.encode_items(features))
        coordinates = self.linear_.coordinates(features)
        codes = np.concatenate([direct, coordinates], axis=1)

        # Seen labels are read from the features alone; given tags are certain.
        weights, intercepts = self._seen_readout
        logits = codes @ weights + intercepts
        n_labels = len(self.order_)
        probable = np.zeros((len(direct), n_labels), dtype=np.float32)
        probable[:, : self.n_seen_] = sigmoid(logits)
        n_probable = self.n_seen_
        if tags is not None:
            certain = np.asarray(tags[:, self.order_].toarray(), dtype=np.float32)
            np.maximum(probable, certain, out=probable)
            n_probable = n_labels

        context = side_by_side(self.members_.encode_documents(probable[:, :n_probable]))
        n_direct = direct.shape[1]
        codes[:, :n_direct] = self.compose(direct, context)
        return EncodedFeatures(codes, direct, probable, coordinates)

    def compose(self, direct: Floats, context: Floats) -> Floats:
        """Return members' codes of features and of probable tags as one.

        Parameters
        ----------
        direct, context : float32 arrays, shape (n, n_members * code)
            Codes of features, and codes of probable tags as `encode_context` returns them.

        Returns
        -------
        float32 array, shape (n, n_members * code)
        """
        # code = (1 - context) * features + context * probable tags
        feature_part = (1 - self.context) * direct
        tag_part = self.context * context
        return np.asarray(feature_part + tag_part, dtype=np.float32)

    def encode_context(self, probable: Floats, members: Members | None = None) -> Floats:
        """Return members' codes of probable tags, (n, n_members * code).

        Parameters
        ----------
        probable : float32 array, shape (n, n_labels)
            In the order of members; where all but the first labels are 0, these alone will do.
        members : Members, optional
            Those of a fold; by default all.
        """
        if members is None:
            members = self.members_
        return side_by_side(members.encode_documents(probable))

    def encode_documents(self, tags: sp.csr_matrix) -> Floats:
        """Return the codes (n, n_dimensions) of documents or partial tag sets (n, n_labels)."""
        check_fitted(self, "members_")
        ordered_tags = sp.csr_matrix(tags)[:, self.order_]
        codes = side_by_side(self.members_.encode_rows(ordered_tags))
        # Tags have no place on the linear path.
        no_columns = (0, 0)
        path_columns = (0, self.linear_.n_coordinates)
        return np.pad(codes, (no_columns, path_columns))

    @property
    def projection_size(self) -> int:
        """Dimensions of a projection; 0 without features."""
        return min(self.members_.shape.n_features, PROJECTION_SIZE)

    def project(self, X: Features) -> Floats:
        """Return directions (n, projection_size) of bounded size, by which items are alike."""
        features = standardise(X, self.mean_, self.scale_)
        return project(features)

    def points(self, codes: Floats) -> Floats:
        """Return codes as directions of length 1 on the principal axes, (n, n_axes)."""
        member_codes = codes[:, : self.members_.n_dimensions]
        coordinates = member_codes @ self.axes_ - self._centre
        return unit_directions(coordinates)

    def document_points(self, tags: sp.csr_matrix) -> Floats:
        """Return the points (n, n_axes) of documents (n, n_labels), some rows at a time."""
        n_axes = self.axes_.shape[1]
        points = np.empty((tags.shape[0], n_axes), dtype=np.float32)
        for start in range(0, len(points), _BLOCK):
            rows = slice(start, start + _BLOCK)
            codes = self.encode_documents(tags[rows])
            points[rows] = self.points(codes)
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
        label_weights = members.labels.astype(np.float64) / len(members)
        stacked_weights = label_weights.reshape(-1, label_weights.shape[2])
        weights = stacked_weights[:, :n_labels]
        member_biases = members.bias[:, 0, :n_labels].astype(np.float64)
        intercepts = member_biases.mean(axis=0)
        path_weights = np.zeros((self.linear_.n_coordinates, n_labels))
        if of_items:
            slopes = self.calibration_.slopes * readout_share(self.priming)
            weights = weights * slopes
            intercepts = intercepts * slopes + self.calibration_.intercepts
            path_weights[:, : self.n_seen_] = self.linear_.labels

        # From the order of members to that of columns.
        places = np.argsort(self.order_)
        all_weights = np.concatenate([weights, path_weights])
        return Readout(all_weights[:, places], intercepts[places])

    def threshold(self, precision: float) -> float:
        """Return how likely seen labels must be for a share of them to be true."""
        thresholds = self.calibration_.thresholds
        if not len(thresholds):
            raise InputError(
                "A precision is learned on training items that can be held out; here all of them "
                "are of one group, or there is but one."
            )
        return float(np.interp(precision, PRECISIONS, thresholds))

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
        codes : float32 array, shape (n, n_dimensions)
            Of documents that hold new labels.
        holding : csr_matrix, shape (n, n_new)
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
        member_codes = codes[:, : n_members * code].astype(np.float64)
        code_sums = np.asarray(holding.T @ member_codes)
        means = code_sums / counts[:, None]
        member_means = means.reshape(-1, n_members, code).transpose(1, 2, 0)

        # From the mean of all documents to that of those which hold the label, shrunk.
        gaps = _shrunk_gaps(member_means - self.document_mean_[..., None], counts)
        directions = self._discriminants(gaps, counts)
        biases = self._middle_biases(directions, gaps).mean(axis=0)
        weights = self._stacked_weights(directions)

        # logit = slope * (direction @ (code - middle)) + logit(frequency)
        prior_logits = _prior_logits(frequencies)
        slopes = _item_slopes(counts)
        uncalibrated = Readout(weights * slopes, biases * slopes + prior_logits)
        of_items = self._match_held_out_sample(uncalibrated, directions * slopes, frequencies)
        of_tags = Readout(weights, biases + prior_logits)
        return of_items, of_tags

    def _middle_biases(self, directions: Matrix, gaps: Matrix) -> Matrix:
        """Return biases (n_members, n_new) that are 0 half way between two means."""
        middle = self.document_mean_[..., None] + 0.5 * gaps
        return np.asarray(-(directions * middle).sum(axis=1))

    def _discriminants(self, gaps: Matrix, counts: Matrix) -> Matrix:
        """Return the directions of linear discriminant analysis, (n_members, code, n_new).

        `gaps` (n_members, code, n_new) are from the mean of all documents to that of the documents
        which hold a label; of these there are `counts`, (n_new,) or (n_members, 1, n_new).
        """
        code = gaps.shape[1]
        total_variances = np.trace(self.document_scatter_, axis1=1, axis2=2)
        mean_variances = total_variances / code
        spreads = np.maximum(mean_variances, _LEAST_SPREAD)[:, None, None]
        # The fewer documents hold a label, the less is made of directions that hardly scatter.
        ridge = spreads * (_RIDGE + _FEW / counts)
        eigenvalues, axes = np.linalg.eigh(self.document_scatter_)
        variances = np.maximum(eigenvalues, 0)[..., None]
        # direction = (scatter + ridge)⁻¹ gap, on the eigenvectors of the scatter
        on_axes = axes.mT @ gaps / (variances + ridge)
        return np.asarray(axes @ on_axes)

    def first_readouts(
        self, documents: sp.csr_matrix, holding: sp.csr_matrix, folds: IntArray, priors: Matrix
    ) -> tuple[Floats, Floats]:
        """Return how members read new labels before they are trained again, in closed form.

        As in `readout_of_documents`, but each member by documents that are not of its fold.

        Parameters
        ----------
        documents : csr_matrix, shape (n, n_labels)
            Documents that hold new labels, over the labels in the order of `order_`.
        holding : csr_matrix, shape (n, n_new)
            Which new labels they hold.
        folds : int64 array, shape (n,)
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
        codes = self.members_.encode_rows(documents)
        member_folds = np.arange(n_members) // self.plan_.members_per_fold
        is_visible = (folds != member_folds[:, None]).astype(np.float64)
        sums = np.empty((n_members, code, n_new))
        n_holding = np.empty((n_members, 1, n_new))
        for member, visible in enumerate(is_visible):
            visible_codes = visible[:, None] * codes[member]
            sums[member] = (holding.T @ visible_codes).T
            n_holding[member] = holding.T @ visible

        counts = np.maximum(n_holding, 1)
        deviations = sums / counts - self.document_mean_[..., None]
        gaps = _shrunk_gaps(np.where(n_holding > 0, deviations, 0.0), counts)
        directions = self._discriminants(gaps, counts) * _item_slopes(counts)
        biases = self._middle_biases(directions, gaps) + _prior_logits(priors)
        return directions.astype(np.float32), biases.astype(np.float32)

    def mixed_with_names(
        self, of_items: Readout, of_tags: Readout, likeness: Matrix, share: float
    ) -> tuple[Readout, Readout]:
        """Let names join in reading unseen labels.

        Parameters
        ----------
        of_items, of_tags : Readout
            As `readout` gives them.
        likeness : float64 array, shape (n_unseen, n_seen)
            As for `readout_of_names`, of unseen labels in the order of `order_`; a label without
            any is read as before.
        share : float
            Of the names; that of votes (`priming`) stays as it is.
        """
        have_names = likeness.any(axis=1)
        if not have_names.any():
            return of_items, of_tags
        columns = self.unseen_columns[have_names]
        items_by_name, tags_by_name = self.readout_of_names(
            likeness[have_names], self.priors_[columns]
        )
        # The share of votes in items' logits stays as it is.
        item_share = share * readout_share(self.priming)
        mixed_items = _mix_columns(of_items, columns, 1 - share, items_by_name, item_share)
        mixed_tags = _mix_columns(of_tags, columns, 1 - share, tags_by_name, share)
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

        Returns
        -------
        of_items, of_tags : Readout
        """
        if frequencies is None:
            frequencies = np.full(len(likeness), self.typical_frequency)
        seen_weights = self.members_.labels[..., : self.n_seen_].astype(np.float64)
        directions = seen_weights @ likeness.T * SLOPES[0]
        centre = self.document_mean_[..., None]
        member_biases = -(directions * centre).sum(axis=1)
        biases = member_biases.mean(axis=0)
        weights = self._stacked_weights(directions)
        of_tags = Readout(weights, biases + _prior_logits(frequencies))
        of_items = self._match_held_out_sample(of_tags, directions, frequencies)
        return of_items, of_tags

    def _stacked_weights(self, directions: Matrix) -> Matrix:
        """Return the weights (n_dimensions, n_new) of the mean over members' directions.

        Directions are (n_members, code, n_new); the linear path adds nothing to new labels.
        """
        n_members, code, n_new = directions.shape
        weights = directions.reshape(n_members * code, n_new) / n_members
        path_weights = np.zeros((self.linear_.n_coordinates, n_new))
        return np.concatenate([weights, path_weights])

    def _match_held_out_sample(
        self, readout: Readout, directions: Matrix, frequencies: Matrix
    ) -> Readout:
        """Bring new labels to the frequency that is expected of them on held-out items."""
        codes, folds, weights = self.held_out_sample_
        if not len(weights):
            return readout
        per_fold = self.plan_.members_per_fold
        n_new = directions.shape[2]
        logits = np.empty((len(codes), n_new))
        for fold in np.unique(folds):
            rows = folds == fold
            start = fold * per_fold
            fold_directions = directions[start : start + per_fold]
            stacked = fold_directions.reshape(-1, n_new)
            logits[rows] = codes[rows] @ stacked / per_fold
        intercepts = match_frequencies(logits, weights, frequencies)
        return readout._replace(intercepts=intercepts)

    # ------------------------------------------------------------------ checks and persistence

    def check_parameters(self) -> None:
        """Raise on a parameter out of its range."""
        from polyseme.space.training import SpacePlan

        owner = type(self).__name__
        check_kind("plan", self.plan, SpacePlan, owner=owner)
        for name, low in (("n_folds", 2), ("members_per_fold", 1), ("n_steps", 1)):
            value = getattr(self, name)
            if value is not None:
                check_number(name, value, owner=owner, low=low, whole=True)
        for name in ("context", "priming"):
            check_number(name, getattr(self, name), owner=owner, low=0, high=1)
        if self.linear is not None:
            check_number("linear", self.linear, owner=owner, low=0, high=100)
        check_device(self.device, owner=owner)
        if self.checkpoint is not None:
            check_path(self.checkpoint, subject=f"`checkpoint` of `{owner}`")
        (self.plan or SpacePlan()).check()

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


def _prior_logits(frequencies: Matrix) -> Matrix:
    """Return the logits of frequencies, which are between 0 and 1."""
    log_odds = np.log(frequencies) - np.log1p(-frequencies)
    return np.asarray(log_odds)


def _mix_columns(
    readout: Readout, columns: IntArray, share: float, by_name: Readout, name_share: float
) -> Readout:
    """Return a readout that has a share of that by names in some columns."""
    weights = readout.weights.copy()
    weights[:, columns] *= share
    weights[:, columns] += name_share * by_name.weights
    intercepts = readout.intercepts.copy()
    intercepts[columns] *= share
    intercepts[columns] += name_share * by_name.intercepts
    return Readout(weights, intercepts)


def _shrunk_gaps(gaps: Matrix, counts: Matrix) -> Matrix:
    """Return gaps between means, shrunk as though `_DOUBT` documents more held each label."""
    return gaps * counts / (counts + _DOUBT)


def _item_slopes(counts: Matrix) -> Matrix:
    """Return by how much new labels' directions count, by how many documents they rest on.

    Items lie less far apart than the documents that directions are learned from: with many
    documents half the slope is right, with one or two nearly all of it.
    """
    doubt = _DOUBT / (counts + _DOUBT)
    return np.asarray(0.5 * (1 + doubt))


def side_by_side(codes: Floats) -> Floats:
    """Return codes (n_members, n, code) as rows (n, n_members * code)."""
    n_members, n_items, code = codes.shape
    by_item = np.ascontiguousarray(codes.transpose(1, 0, 2))
    return by_item.reshape(n_items, n_members * code)


def unit_directions(coordinates: Floats) -> Floats:
    """Return coordinates (n, n_axes), each row at length 1."""
    squared_lengths = np.einsum("ij,ij->i", coordinates, coordinates)
    lengths = np.sqrt(squared_lengths)[:, None]
    return np.asarray(coordinates / np.maximum(lengths, 1e-12), dtype=np.float32)
