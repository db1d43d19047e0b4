"""The concept space: documents, items and partial tag sets as codes, every label read from a code.

In: documents as sparse rows and features of items. Out: codes, logits, probabilities, and readouts
of labels that turn up later. No label strings here: columns are numbers.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from polyseme.base.estimator import Estimator
from polyseme.base.folds import filled_folds, fold_numbers
from polyseme.base.memory import check_memory
from polyseme.base.threads import one_blas_thread
from polyseme.base.validation import (
    MOST_FEATURE,
    InputError,
    IntArray,
    RandomState,
    as_generator,
    check_device,
    check_fitted,
    check_kind,
    check_number,
    check_path,
    check_sparse,
    draw_seed,
)
from polyseme.space.calibration import (
    PRECISIONS,
    Calibration,
    calibrate,
    expected_frequencies,
    match_frequencies,
    sigmoid,
)
from polyseme.space.linear_path import (
    MOST_FEATURES,
    SHRINKAGES,
    LinearPath,
    choose_weight,
    fit_ridge,
    leave_out,
    log_loss,
    measured_items,
    prediction_spreads,
)
from polyseme.space.members import Members, Shape, StartMembers, mean_of
from polyseme.space.projection import PROJECTION_SIZE, project
from polyseme.space.training import (
    LEAST_SCALE,
    Features,
    SpacePlan,
    SpaceTraining,
    TrainingData,
    checkpoint_seed,
    column_statistics,
    data_digest,
    lost_columns,
    mean_answers,
    selection_weights,
    standardise,
)
from polyseme.space.votes import Voters, mix
from polyseme.storage.array_checks import (
    UNIT,
    Array,
    Fields,
    Maybe,
    Number,
    Several,
    Table,
    Text,
    Whole,
    check_arrays,
    parameters,
    require,
)
from polyseme.storage.checkpoints import other_training
from polyseme.storage.model_file import plain, within

Matrix = NDArray[np.float64]
Floats = NDArray[np.float32]
Progress = Callable[[int, int, Mapping[str, float]], None]
Trainer = Callable[
    [TrainingData, SpacePlan, int, Progress | None], tuple[Members, list[dict[str, float]]]
]

# Of seen and of unseen labels: members are more certain of what they were shown than they should
# be, and less of what they conclude; chosen by calibration on held-out items.
SLOPES = (0.75, 1.2)
# The share of probable tags in an item's code; the rest is its features'.
CONTEXT = 0.5
# The share that known documents near an item's code have in its logits; the rest is the readout's.
PRIMING = 0.3
# Principal axes of documents' codes, in which known documents are kept and compared.
_AXES, _TURNS = 128, 2
# Documents that these axes are learned from, and documents that are coded at a time.
_AXES_DOCUMENTS, _DOCUMENTS = 2048, 8192
# Items that calibration is learned on, and of those how many are kept for labels that come later.
_CALIBRATED = 4096
_REFERENCE = 512
_BLOCK = 1024
# Of a new label's direction: on the variance of codes, more for a label of few documents; and how
# many documents its mean is worth.
_RIDGE, _LEAST_SPREAD = 0.3, 1e-9
_FEW = 20.0
# Documents by which new labels are read at first, at the most.
_MOST_HOLDING = 8192
_DOUBT = 2.0
# Bounds a saved model's codes and what the linear path makes of features.
_MOST_CODE = 1e6


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


class _Sample(NamedTuple):
    """Items that calibration is learned on."""

    items: IntArray  # (n,)
    documents: IntArray  # (n,)
    folds: IntArray  # (n,); -1 where no item can be held out
    truth: Matrix  # (n, n_seen)
    are_held_out: bool

    def thinned(self, most: int) -> _Sample:
        """Return so many of the items, evenly drawn."""
        n = len(self.items)
        rows = np.linspace(0, n - 1, min(n, most)).astype(np.int64)
        return _Sample(
            self.items[rows],
            self.documents[rows],
            self.folds[rows],
            self.truth[rows],
            self.are_held_out,
        )


class _HeldOut(NamedTuple):
    """What members say of sampled items that they have not seen."""

    logits: Matrix  # (n, n_labels)
    votes: Matrix  # of known documents, (n, n_labels)
    probable: Matrix  # tags by features, (n, n_seen)
    expected: Matrix  # labels: true seen ones, unseen ones as true tags suggest, (n, n_labels)
    any_unseen: Matrix  # how probably an item holds any unseen label, (n,)
    codes: Floats  # by the members of the fold, (n, members_per_fold * code)
    mean_code: Matrix  # of features alone, by all members, (n_members * code,)
    additions: Matrix | None  # of the linear path to seen labels, (n, n_seen)

    def mixed(self, slopes: Matrix, priming: float) -> Matrix:
        """Return the logits of all parts together, before calibration, (n, n_labels)."""
        mixed = mix(self.logits * slopes, self.votes, priming)
        if self.additions is not None:
            mixed[:, : self.additions.shape[1]] += self.additions
        return mixed


@dataclass(frozen=True)
class WarmStart:
    """What a fit takes over from a former one.

    Attributes
    ----------
    space : ConceptSpace
        The former one, fitted. Members of the same sizes go on from its members, and features are
        standardised as they were there.
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
        columns = self.columns[order]
        former_places = np.argsort(former.order_)
        places = np.where(columns < 0, -1, former_places[columns])
        new_columns = np.flatnonzero(places < 0)
        old_columns = np.flatnonzero(places >= 0)

        # Documents that hold new labels, over the labels of the former space.
        holding = data.documents[:, new_columns]
        rows = np.flatnonzero(np.diff(holding.indptr))
        if len(rows) > _MOST_HOLDING:
            spaced = np.linspace(0, len(rows) - 1, _MOST_HOLDING).astype(np.int64)
            rows = rows[spaced]
        old_tags = data.documents[rows][:, old_columns].tocoo()
        former_columns = places[old_columns][old_tags.col]
        entries = (old_tags.data, (old_tags.row, former_columns))
        documents = sp.csr_matrix(entries, (len(rows), len(former.order_)))
        weights, biases = former.first_readouts(
            documents, holding[rows], data.folds[rows], data.priors()[new_columns]
        )
        any_unseen = data.n_unseen > 0 and former.n_seen_ < len(former.order_)
        return StartMembers(former.members_, places, any_unseen, weights, biases)


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
        self.check_parameters()
        data, seed = self.prepare(
            documents, X, item_documents, groups, n_label_sets, pool, verdicts, warm
        )
        if trainer is not None:
            return self.finish(data, *trainer(data, self.plan_, seed, progress), warm=warm)
        device = check_device(self.device, owner=type(self).__name__)
        training = SpaceTraining(data, self.plan_, seed, device)
        if self.checkpoint is not None:
            training.resume(self.checkpoint)

        def after() -> None:
            if self.checkpoint is not None:
                training.save(self.checkpoint)
            if progress is not None:
                progress(training.round, self.plan_.n_rounds, training.history[-1])

        with one_blas_thread():
            training.run(after=after)
        return self.finish(data, training.members.arrays(), training.history, warm=warm)

    def planned(self, n_documents: int, n_items: int = 0, *, pool: bool = False) -> SpacePlan:
        """Return the plan that the parameters and the data ask for.

        Parameters
        ----------
        n_documents, n_items : int
            How many documents and tagged items there are.
        pool : bool
            Whether items without tags are learned from, too, which takes more steps.
        """
        plan = self.plan or SpacePlan().sized(n_documents, n_items)
        names = ("n_folds", "members_per_fold", "n_steps")
        chosen = {name: getattr(self, name) for name in names if getattr(self, name) is not None}
        if self.n_steps is not None:
            chosen["round_steps"] = min(plan.round_steps, max(self.n_steps // 4, 1))
        elif pool:
            chosen["n_steps"] = int(plan.n_steps * plan.pool_steps)
        return replace(plan, **chosen)

    def training_seed(self) -> int:
        """Return the seed of the training: the interrupted one's, where there is a checkpoint.

        One with another seed than was asked for is refused.
        """
        seed = draw_seed(as_generator(self.random_state))
        kept_seed = None if self.checkpoint is None else checkpoint_seed(self.checkpoint)
        if self.checkpoint is None or kept_seed is None:
            return seed
        if isinstance(self.random_state, (int, np.integer)) and kept_seed != seed:
            raise other_training(self.checkpoint)
        return kept_seed

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

    def prepare(
        self,
        documents: sp.csr_matrix,
        X: Features | None,
        item_documents: IntArray | None,
        groups: IntArray | None,
        n_label_sets: int | None,
        pool: Features | None = None,
        verdicts: sp.csr_matrix | None = None,
        warm: WarmStart | None = None,
    ) -> tuple[TrainingData, int]:
        """Order labels, draw folds and fit the plan to the data; for parameters see `fit`.

        Returns
        -------
        data : TrainingData
        seed : int
            Of the training: the interrupted one's, where there is a checkpoint.
        """
        owner = type(self).__name__
        documents = check_sparse(documents, "documents", owner=owner)
        if sp.issparse(X):
            X = check_sparse(X, "X", owner=owner)
        seed = self.training_seed()
        (n_documents, n_labels), n_items = documents.shape, 0 if X is None else X.shape[0]
        rows = np.arange(n_items) if item_documents is None else np.asarray(item_documents)
        outside = len(rows) and not (rows.min() >= 0 and rows.max() < n_documents)
        if len(rows) != n_items or n_items > n_documents or outside:
            raise InputError(
                f"There are {n_items} items and {n_documents} documents; say with "
                "`item_documents` which document is each item's."
            )
        seen, self.mean_, self.scale_ = np.ones(n_labels, dtype=bool), np.zeros(0), np.ones(0)
        if X is not None:
            seen = np.asarray(documents[rows].sum(axis=0)).ravel() > 0
            self.mean_, self.scale_ = (
                column_statistics(X) if warm is None else (warm.space.mean_, warm.space.scale_)
            )
        self.order_ = np.concatenate([np.flatnonzero(seen), np.flatnonzero(~seen)])
        self.n_seen_ = int(seen.sum())
        plan = self.planned(n_documents, n_items, pool=pool is not None)
        if warm is not None:
            plan = plan.warmed()
        self.plan_ = plan.within(n_documents, n_items)
        check_memory(
            self.plan_.weight_bytes(n_labels, 0 if X is None else X.shape[1]),
            f"A space with `hidden` {self.plan_.hidden} and `code` {self.plan_.code} of its plan",
            "lower them, or give fewer labels or features",
        )
        generator = np.random.default_rng(seed)
        n_pool = 0 if pool is None else pool.shape[0]
        folds, pool_folds = self._draw_folds(n_documents, n_pool, generator, groups, warm)
        self.folds_ = np.concatenate([folds, pool_folds])
        if verdicts is not None:
            verdicts = sp.csr_matrix(verdicts[:, self.order_], dtype=np.float32)
        ordered = sp.csr_matrix(documents[:, self.order_], dtype=np.float32)
        data = TrainingData(
            documents=ordered,
            n_seen=self.n_seen_,
            n_label_sets=n_documents if n_label_sets is None else n_label_sets,
            folds=folds,
            X=X,
            item_documents=rows,
            mean=self.mean_,
            scale=self.scale_,
            pool=pool,
            pool_folds=None if pool is None else pool_folds,
            verdicts=verdicts,
        )
        if warm is not None:
            data = replace(data, start=warm.start(data, self.order_))
        return data, seed

    def _draw_folds(
        self,
        n_documents: int,
        n_pool: int,
        generator: np.random.Generator,
        groups: IntArray | None,
        warm: WarmStart | None,
    ) -> tuple[IntArray, IntArray]:
        """Return the folds of documents and of the pool; those of a former fit are kept."""
        if warm is not None:
            folds = filled_folds(warm.folds, warm.n_folds, generator, groups)
            return folds, filled_folds(warm.pool_folds, warm.n_folds, generator, None)
        folds = fold_numbers(n_documents, self.plan_.n_folds, generator, groups)
        n_folds = int(folds.max(initial=0)) + 1
        pool_folds = generator.permutation(n_pool) % n_folds if n_pool else np.zeros(0)
        return folds, pool_folds.astype(np.int64)

    def finish(
        self,
        data: TrainingData,
        members: Members,
        history: list[dict[str, float]],
        warm: WarmStart | None = None,
    ) -> Self:
        """Take over trained members and learn what follows from them: axes and calibration.

        Parameters
        ----------
        data : TrainingData
        members : Members
            All of them, as arrays.
        history : list of dict
        warm : WarmStart, optional
            Its axes are turned to the new codes, and the weight of its linear path stays.
        """
        self.members_, self.history_ = members, history
        self.data_digest_ = data_digest(data)
        self.digest_ = _digest(members)
        self.priors_ = np.empty(data.n_labels)
        self.priors_[self.order_] = data.priors()[: data.n_labels]
        with one_blas_thread():
            self._learn_scatter(data)
            former = None if warm is None else warm.space
            linear = self.linear
            if former is not None and linear is None:
                linear = former.linear_weight
            self._learn_axes(data, None if former is None else former.axes_)
            self._calibrate(data, linear)
        return self

    def _learn_scatter(self, data: TrainingData) -> None:
        """Learn mean and covariance of documents' codes, member by member."""
        n_members = len(self.members_)
        code = self.plan_.code
        sums = np.zeros((n_members, code))
        squares = np.zeros((n_members, code, code))
        n_documents = data.documents.shape[0]
        for start in range(0, n_documents, _BLOCK):
            rows = slice(start, start + _BLOCK)
            codes = self.members_.encode_rows(data.documents[rows])
            sums += codes.sum(axis=1, dtype=np.float64)
            squares += codes.mT @ codes
        means = sums / n_documents
        self.document_mean_ = means
        self.document_scatter_ = squares / n_documents - means[:, :, None] * means[:, None]

    def _learn_axes(self, data: TrainingData, former: Floats | None) -> None:
        """Learn the principal axes of documents' codes, from some thousand of them.

        Former axes, where there are as many, are turned to the codes: they are near already.
        """
        m = data.documents.shape[0]
        rows = np.sort(np.random.default_rng(m).permutation(m)[:_AXES_DOCUMENTS])
        codes = _side_by_side(self.members_.encode_rows(data.documents[rows])).astype(np.float64)
        codes -= self.document_mean_.ravel()
        n_axes = min(_AXES, *codes.shape)
        if former is not None and former.shape == (codes.shape[1], n_axes):
            axes = _turned(former, codes)
        else:
            from sklearn.utils.extmath import randomized_svd

            axes = randomized_svd(codes, n_axes, n_iter=2, random_state=0)[2].T
        self.axes_ = np.ascontiguousarray(axes, dtype=np.float32)

    def derive(self) -> None:
        """Compute what no request changes: needed whenever members, axes or linear path change."""
        self._centre: Floats = self.document_mean_.ravel().astype(np.float32) @ self.axes_
        # Seen labels, by all members and the linear path as one.
        n_seen = self.n_seen_ if self.members_.shape.n_features else 0
        n_members = np.float32(len(self.members_))
        of_members = self.members_.labels[..., :n_seen] / n_members
        self._seen_readout = Readout(
            np.concatenate([*of_members, self.linear_.labels[:, :n_seen]]),
            self.members_.bias[:, 0, :n_seen].mean(axis=0),
        )

    def _calibrate(self, data: TrainingData, linear: float | None) -> None:
        """Learn the linear path, intercepts and thresholds on items that members had not seen."""
        n_labels, n_seen = data.n_labels, data.n_seen
        empty, no_codes = np.zeros(0), np.zeros((0, 0), dtype=np.float32)
        self.calibration_ = Calibration(np.ones(n_labels), np.zeros(n_labels), empty)
        self.held_out_sample_ = HeldOutSample(no_codes, np.zeros(0, dtype=np.int64), empty)
        self.mean_code_, self.mean_tags_ = empty, empty
        self.reference_sample_ = ReferenceSample(no_codes, no_codes, empty)
        self.linear_ = LinearPath.empty(0 if data.X is None else data.X.shape[1], n_seen)
        self.derive()
        if data.X is None:
            return

        generator = np.random.default_rng(self.plan_.n_steps)
        sample = self._draw_sample(data, generator)
        slopes = np.repeat(SLOPES, (n_seen, n_labels - n_seen))
        additions, shrinkage = self._fit_linear_path(data, sample, slopes, linear)
        slopes[:n_seen] *= shrinkage
        self.derive()
        held_out = self._predict_held_out(data, sample, additions)
        self.mean_code_ = np.append(held_out.mean_code, np.zeros(self.linear_.n_coordinates))
        self.mean_tags_ = held_out.probable.mean(axis=0)
        if not sample.are_held_out:
            self.calibration_ = Calibration(slopes, np.zeros(n_labels), empty)
            return

        weights, frequencies = self._expected_frequencies(data, sample, held_out)
        mixed = held_out.mixed(slopes, self.priming)
        calibration = calibrate(mixed, sample.truth, weights, frequencies)
        self.calibration_ = calibration._replace(slopes=slopes)
        kept = np.sort(generator.permutation(len(sample.items))[:_REFERENCE])
        codes = held_out.codes[kept]
        self.held_out_sample_ = HeldOutSample(codes, sample.folds[kept], weights[kept])
        self._draw_reference_sample(data, sample.items, weights, generator)

    def _draw_sample(self, data: TrainingData, generator: np.random.Generator) -> _Sample:
        """Draw the items that calibration is learned on."""
        # Tables of items by labels: with many labels fewer items will do.
        most = max(_REFERENCE, min(_CALIBRATED, _CALIBRATED * 2048 // data.n_labels))
        items = np.sort(generator.permutation(len(data.item_documents))[:most])
        documents = data.item_documents[items]
        item_folds = data.folds[data.item_documents]
        are_held_out = len(np.unique(item_folds)) > 1
        folds = data.folds[documents] if are_held_out else np.full(len(items), -1)
        seen_tags = data.documents[documents][:, : data.n_seen]
        truth = np.asarray(seen_tags.toarray(), dtype=np.float64)
        return _Sample(items, documents, folds, truth, are_held_out)

    def _features_of(self, data: TrainingData, items: IntArray) -> Floats:
        """Return the standardised features of some items."""
        assert data.X is not None
        return standardise(data.X[items], self.mean_, self.scale_)

    def _predict_held_out(
        self,
        data: TrainingData,
        sample: _Sample,
        additions: Matrix | None,
        *,
        thinned: bool = False,
    ) -> _HeldOut:
        """Compute what members that have not seen them say of sampled items.

        `additions` (n, n_seen) are what the linear path adds to the logits of seen labels. Some
        features of each item are left out where they are to be `thinned`.
        """
        n_labels, n_seen, n = data.n_labels, data.n_seen, len(sample.items)
        logits, votes = np.empty((n, n_labels)), np.zeros((n, n_labels))
        probable, any_unseen = np.empty((n, n_seen)), np.zeros(n)
        expected = np.zeros((n, n_labels))
        expected[:, :n_seen] = sample.truth
        code_sum = np.zeros(self.members_.n_dimensions)
        n_dimensions = self._members_of(int(sample.folds[0])).n_dimensions
        codes = np.empty((n, n_dimensions), dtype=np.float32)
        for fold in np.unique(sample.folds):
            rows, members = sample.folds == fold, self._members_of(int(fold))
            features = self._features_of(data, sample.items[rows])
            if thinned:
                features = leave_out(features, int(fold))
            direct = _side_by_side(members.encode_items(features))
            added = 0.0 if additions is None else additions[rows]
            probable[rows] = sigmoid(_read(members, direct)[:, :n_seen] + added)
            tags = np.zeros((len(features), n_labels), dtype=np.float32)
            tags[:, :n_seen] = probable[rows]
            codes[rows] = self.compose(direct, self.encode_context(tags, members))
            logits[rows] = _read(members, codes[rows])[:, :n_labels]
            if self.priming and sample.are_held_out:
                documents = sample.documents[rows]
                votes[rows] = self._held_out_votes(data, int(fold), codes[rows], documents)
            code_sum += _side_by_side(self.members_.encode_items(features)).sum(axis=0)
            truth = sample.truth[rows].astype(np.float32)
            unseen, _ = mean_answers(members, features, truth)
            expected[rows, n_seen:] = unseen[:, : n_labels - n_seen]
            if unseen.shape[1]:
                any_unseen[rows] = unseen[:, -1]
        return _HeldOut(
            logits, votes, probable, expected, any_unseen, codes, code_sum / n, additions
        )

    def _expected_frequencies(
        self, data: TrainingData, sample: _Sample, held_out: _HeldOut
    ) -> tuple[Matrix, Matrix]:
        """Return the weights of sampled items (n,), and how often labels are expected."""
        weights = np.ones(len(sample.items))
        if self.plan_.selection_weights:
            weights = selection_weights(held_out.any_unseen)
        on_items = weights @ held_out.expected / weights.sum()
        priors = data.priors()[: data.n_labels]
        elsewhere = float((data.item_documents >= data.n_label_sets).mean())
        n_items = len(data.item_documents)
        return weights, expected_frequencies(priors, on_items, n_items, elsewhere)

    def lost_features(self, X: Features) -> IntArray:
        """Return the columns of X that vary, and too little to be learned from."""
        return lost_columns(X, self.scale_)

    def _fit_linear_path(
        self, data: TrainingData, sample: _Sample, slopes: Matrix, linear: float | None
    ) -> tuple[Matrix | None, float]:
        """Fit the linear path.

        Returns
        -------
        additions : float64 array, shape (n, n_seen), or None
            What it adds to the logits of sampled items; None where it has no part: with very many
            features, and where it does not help.
        shrinkage : float
            A factor for the slopes of seen labels beside it.
        """
        n_seen = data.n_seen
        many = data.X is None or data.X.shape[1] > MOST_FEATURES
        if many or linear == 0 or not sample.are_held_out:
            return None, 1.0
        carried = sp.csr_matrix(data.documents[data.item_documents][:, :n_seen])
        folds = data.folds[data.item_documents]
        ridge = fit_ridge(lambda rows: self._features_of(data, rows), carried, folds)

        measured = sample.thinned(measured_items(n_seen))
        predictions = np.empty((len(sample.items), n_seen))
        thinned_predictions = np.empty((len(measured.items), n_seen))
        for fold in np.unique(sample.folds):
            rows, measured_rows = sample.folds == fold, measured.folds == fold
            features = self._features_of(data, sample.items[rows])
            few = leave_out(self._features_of(data, measured.items[measured_rows]), int(fold))
            of_fold = ridge.predict((features, few), without=int(fold))
            predictions[rows], thinned_predictions[measured_rows] = of_fold
        spreads = prediction_spreads(predictions)

        weight = linear
        if weight is None:
            held_out = self._predict_held_out(data, measured, None, thinned=True)
            item_weights, frequencies = self._expected_frequencies(data, measured, held_out)
            logits = held_out.mixed(slopes, self.priming)[:, :n_seen]
            weight = choose_weight(
                logits,
                thinned_predictions / spreads,
                measured.truth,
                item_weights,
                frequencies[:n_seen],
            )
        if not weight:
            return None, 1.0

        path = ridge.path(weight, spreads)
        loadings = path.labels / weight
        additions: Matrix = (predictions / spreads) @ loadings.T @ path.labels.astype(np.float64)
        rows = np.searchsorted(sample.items, measured.items)
        shrinkage = self._choose_shrinkage(data, measured, additions[rows], slopes)
        self.linear_ = path._replace(labels=np.float32(shrinkage) * path.labels)
        return shrinkage * additions, shrinkage

    def _choose_shrinkage(
        self, data: TrainingData, sample: _Sample, additions: Matrix, slopes: Matrix
    ) -> float:
        """Return the factor of seen labels' logits that gives the likeliest probabilities."""
        n_seen = data.n_seen
        held_out = self._predict_held_out(data, sample, additions)
        weights, frequencies = self._expected_frequencies(data, sample, held_out)
        losses = []
        for factor in SHRINKAGES:
            shrunk = held_out._replace(additions=factor * additions)
            logits = shrunk.mixed(factor * slopes, self.priming)[:, :n_seen]
            losses.append(log_loss(logits, sample.truth, weights, frequencies[:n_seen]))
        return SHRINKAGES[int(np.argmin(losses))]

    def _draw_reference_sample(
        self,
        data: TrainingData,
        items: IntArray,
        weights: Matrix,
        generator: np.random.Generator,
        most: int = 256,
    ) -> None:
        """Draw some items (n,) with weights (n,), and some of the pool, that stand for all."""
        assert data.X is not None
        n_items = len(data.item_documents)
        n_tagged = max(int(most * n_items / (n_items + data.n_pool)), 1)
        rows = generator.permutation(len(items))[:n_tagged]
        tables = [data.X[items[rows]]]
        table_weights = [weights[rows]]
        if data.pool is not None:
            pool_rows = generator.permutation(data.n_pool)[: most - len(rows)]
            tables.append(data.pool[pool_rows])
            table_weights.append(np.ones(len(pool_rows)))
        self.reference_sample_ = ReferenceSample(
            np.concatenate([self.item_codes(table) for table in tables]),
            np.concatenate([self.project(table) for table in tables]),
            np.concatenate(table_weights),
        )

    def _held_out_votes(
        self, data: TrainingData, fold: int, codes: Floats, left_out: IntArray
    ) -> Matrix:
        """Let known documents but its own vote for each item, as members new to it code them."""
        members = self._members_of(fold)
        documents = data.documents
        size = members.n_dimensions
        dimensions = slice(fold * size, (fold + 1) * size)
        axes = self.axes_[dimensions]
        mean_code = self.document_mean_.ravel()[dimensions].astype(np.float32)
        centre = mean_code @ axes
        points = np.empty((documents.shape[0], axes.shape[1]), dtype=np.float32)
        for start in range(0, len(points), _DOCUMENTS):
            rows = slice(start, start + _DOCUMENTS)
            document_codes = _side_by_side(members.encode_rows(documents[rows]))
            points[rows] = _directions(document_codes @ axes - centre)
        item_points = _directions(codes @ axes - centre)
        return Voters.of(points, documents).shares(item_points, left_out)

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
        direct = _side_by_side(self.members_.encode_items(features))
        coordinates = self.linear_.coordinates(features)
        codes = np.concatenate([direct, coordinates], axis=1)

        # Seen labels are read from the features alone; given tags are certain.
        logits = codes @ self._seen_readout.weights + self._seen_readout.intercepts
        probable = np.zeros((len(direct), len(self.order_)), dtype=np.float32)
        probable[:, : self.n_seen_] = sigmoid(logits)
        n_probable = self.n_seen_
        if tags is not None:
            certain = np.asarray(tags[:, self.order_].toarray(), dtype=np.float32)
            np.maximum(probable, certain, out=probable)
            n_probable = len(self.order_)

        context = _side_by_side(self.members_.encode_documents(probable[:, :n_probable]))
        codes[:, : direct.shape[1]] = self.compose(direct, context)
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
        return np.asarray((1 - self.context) * direct + self.context * context, dtype=np.float32)

    def encode_context(self, probable: Floats, members: Members | None = None) -> Floats:
        """Return members' codes of probable tags, (n, n_members * code).

        Parameters
        ----------
        probable : float32 array, shape (n, n_labels)
            In the order of members; where all but the first labels are 0, these alone will do.
        members : Members, optional
            Those of a fold; by default all.
        """
        return _side_by_side((members or self.members_).encode_documents(probable))

    def encode_documents(self, tags: sp.csr_matrix) -> Floats:
        """Return the codes (n, n_dimensions) of documents or partial tag sets (n, n_labels)."""
        check_fitted(self, "members_")
        codes = _side_by_side(self.members_.encode_rows(sp.csr_matrix(tags)[:, self.order_]))
        # Tags have no place on the linear path.
        return np.pad(codes, ((0, 0), (0, self.linear_.n_coordinates)))

    @property
    def projection_size(self) -> int:
        """Dimensions of a projection; 0 without features."""
        return min(self.members_.shape.n_features, PROJECTION_SIZE)

    def project(self, X: Features) -> Floats:
        """Return directions (n, projection_size) of bounded size, by which items are alike."""
        return project(standardise(X, self.mean_, self.scale_))

    def points(self, codes: Floats) -> Floats:
        """Return codes as directions of length 1 on the principal axes, (n, n_axes)."""
        return _directions(codes[:, : self.members_.n_dimensions] @ self.axes_ - self._centre)

    def document_points(self, tags: sp.csr_matrix) -> Floats:
        """Return the points (n, n_axes) of documents (n, n_labels), some rows at a time."""
        points = np.empty((tags.shape[0], self.axes_.shape[1]), dtype=np.float32)
        for start in range(0, len(points), _BLOCK):
            rows = slice(start, start + _BLOCK)
            points[rows] = self.points(self.encode_documents(tags[rows]))
        return points

    def _members_of(self, fold: int) -> Members:
        """Return the members that have not seen a fold; of fold -1, all."""
        if fold < 0:
            return self.members_
        per_fold = self.plan_.members_per_fold
        return self.members_.select(slice(fold * per_fold, (fold + 1) * per_fold))

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
        # The one readout that members side by side have.
        weights = self.members_.labels.astype(np.float64) / len(self.members_)
        weights = weights.reshape(-1, weights.shape[2])[:, :n_labels]
        member_biases = self.members_.bias[:, 0, :n_labels].astype(np.float64)
        intercepts = member_biases.mean(axis=0)
        path_weights = np.zeros((self.linear_.n_coordinates, n_labels))
        if of_items:
            slopes = self.calibration_.slopes * (1 - self.priming)
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
        return float(np.exp(np.log(self.priors_).mean()))

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
        means = np.asarray(holding.T @ member_codes) / counts[:, None]

        # From the mean of all documents to that of those which hold the label, shrunk.
        centre = self.document_mean_[..., None]
        gaps = means.reshape(-1, n_members, code).transpose(1, 2, 0) - centre
        gaps = gaps * counts / (counts + _DOUBT)
        directions = self._discriminants(gaps, counts)
        middle = centre + 0.5 * gaps
        biases = -(directions * middle).sum(axis=1).mean(axis=0)
        weights = self._without_path(directions.reshape(n_members * code, -1) / n_members)

        prior_logits = _prior_logits(frequencies)
        slopes = _item_slopes(counts)
        uncalibrated = Readout(weights * slopes, biases * slopes + prior_logits)
        of_items = self._match_held_out_sample(uncalibrated, directions * slopes, frequencies)
        return of_items, Readout(weights, biases + prior_logits)

    def _discriminants(self, gaps: Matrix, counts: Matrix) -> Matrix:
        """Return the directions of linear discriminant analysis, (n_members, code, n_new).

        `gaps` (n_members, code, n_new) are from the mean of all documents to that of the documents
        which hold a label; of these there are `counts`, (n_new,) or (n_members, 1, n_new).
        """
        mean_variances = np.trace(self.document_scatter_, axis1=1, axis2=2) / gaps.shape[1]
        spreads = np.maximum(mean_variances, _LEAST_SPREAD)[:, None, None]
        # The fewer documents hold a label, the less is made of directions that hardly scatter.
        ridge = spreads * (_RIDGE + _FEW / counts)
        eigenvalues, axes = np.linalg.eigh(self.document_scatter_)
        variances = np.maximum(eigenvalues, 0)[..., None]
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
        if not len(priors):
            shape = (n_members, code, 0)
            return np.zeros(shape, dtype=np.float32), np.zeros((n_members, 0), dtype=np.float32)
        codes = self.members_.encode_rows(documents)
        member_folds = np.arange(len(codes)) // self.plan_.members_per_fold
        is_visible = (folds != member_folds[:, None]).astype(np.float64)
        sums = np.empty((n_members, code, len(priors)))
        n_holding = np.empty((n_members, 1, len(priors)))
        for member, visible in enumerate(is_visible):
            sums[member] = (holding.T @ (visible[:, None] * codes[member])).T
            n_holding[member] = holding.T @ visible

        counts = np.maximum(n_holding, 1)
        centre = self.document_mean_[..., None]
        gaps = np.where(n_holding > 0, sums / counts - centre, 0.0)
        gaps = gaps * counts / (counts + _DOUBT)
        directions = self._discriminants(gaps, counts) * _item_slopes(counts)
        middle = centre + 0.5 * gaps
        biases = _prior_logits(priors) - (directions * middle).sum(axis=1)
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
        item_share = share * (1 - self.priming)
        return (
            _mix_columns(of_items, columns, 1 - share, items_by_name, item_share),
            _mix_columns(of_tags, columns, 1 - share, tags_by_name, share),
        )

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
        n_members, code = self.document_mean_.shape
        seen_weights = self.members_.labels[..., : self.n_seen_].astype(np.float64)
        directions = seen_weights @ likeness.T * SLOPES[0]
        centre = self.document_mean_[..., None]
        biases = -(directions * centre).sum(axis=1).mean(axis=0)
        weights = self._without_path(directions.reshape(n_members * code, -1) / n_members)
        of_tags = Readout(weights, biases + _prior_logits(frequencies))
        of_items = self._match_held_out_sample(of_tags, directions, frequencies)
        return of_items, of_tags

    def _without_path(self, weights: Matrix) -> Matrix:
        """Return members' weights (n_members * code, n_new) with zeros for the linear path."""
        return np.pad(weights, ((0, self.linear_.n_coordinates), (0, 0)))

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
            fold_directions = directions[fold * per_fold : (fold + 1) * per_fold]
            stacked = fold_directions.reshape(-1, n_new)
            logits[rows] = codes[rows] @ stacked / per_fold
        return readout._replace(intercepts=match_frequencies(logits, weights, frequencies))

    # ------------------------------------------------------------------ checks and persistence

    def check_parameters(self) -> None:
        """Raise on a parameter out of its range."""
        owner = type(self).__name__
        check_kind("plan", self.plan, SpacePlan, owner=owner)
        for name, low in (("n_folds", 2), ("members_per_fold", 1), ("n_steps", 1)):
            if getattr(self, name) is not None:
                check_number(name, getattr(self, name), owner=owner, low=low, whole=True)
        for name in ("context", "priming"):
            check_number(name, getattr(self, name), owner=owner, low=0, high=1)
        if self.linear is not None:
            check_number("linear", self.linear, owner=owner, low=0, high=100)
        check_device(self.device, owner=owner)
        if self.checkpoint is not None:
            check_path(self.checkpoint, what=f"`checkpoint` of `{owner}`")
        (self.plan or SpacePlan()).check()

    def get_state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return the fitted space as JSON values and arrays, for saving without pickle."""
        check_fitted(self, "members_")
        parameters = {name: plain(getattr(self, name)) for name in _PARAMETERS}
        config = {
            "parameters": parameters | {"plan": self.plan and _plan_values(self.plan)},
            "plan": _plan_values(self.plan_),
            "n_seen": self.n_seen_,
            "shape": list(self.members_.shape),
            "history": self.history_,
            "data_digest": self.data_digest_,
            "digest": self.digest_,
        }
        arrays = {name: getattr(self, f"{name}_") for name in _ARRAYS}
        groups = {str(place): group for place, group in enumerate(self.members_.groups)}
        parts = {
            "calibration": self.calibration_._asdict(),
            "held_out_sample": self.held_out_sample_._asdict(),
            "reference_sample": self.reference_sample_._asdict(),
            "linear": self.linear_._asdict(),
        }
        for part, fields in (parts | {"members": groups}).items():
            arrays |= {f"{part}.{name}": array for name, array in fields.items()}
        return config, arrays

    @classmethod
    def from_state(
        cls, config: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]
    ) -> ConceptSpace:
        """Rebuild a fitted space; see `get_state`."""
        _check_state(config, arrays)
        copies = {name: np.array(array) for name, array in arrays.items()}
        chosen = dict(config["parameters"])
        space = cls(**chosen | {"plan": chosen["plan"] and _plan_of(chosen["plan"])})
        space.plan_, space.n_seen_ = _plan_of(config["plan"]), int(config["n_seen"])
        space.history_, space.data_digest_ = list(config["history"]), config["data_digest"]
        space.digest_ = config["digest"]
        groups = within(copies, "members")
        flat = [groups[str(place)] for place in range(len(groups))]
        space.members_ = Members(Shape(*config["shape"]), *flat)
        space.calibration_ = Calibration(**within(copies, "calibration"))
        space.held_out_sample_ = HeldOutSample(**within(copies, "held_out_sample"))
        space.reference_sample_ = ReferenceSample(**within(copies, "reference_sample"))
        space.linear_ = LinearPath(**within(copies, "linear"))
        for name in _ARRAYS:
            setattr(space, f"{name}_", copies[name])
        space.derive()
        return space


_PARAMETERS = ("n_folds", "members_per_fold", "n_steps", "context", "priming", "linear")
_ARRAYS = [
    "order",
    "folds",
    "priors",
    "mean",
    "scale",
    "mean_code",
    "mean_tags",
    "document_mean",
    "document_scatter",
    "axes",
]


# What the state of a space holds; sizes by name, see `_check_state`.
_VALUES = Fields(
    {
        "parameters": Fields(
            {
                "n_folds": Maybe(Whole(2)),
                "members_per_fold": Maybe(Whole(1)),
                "n_steps": Maybe(Whole(1)),
                "context": Number(0, 1),
                "priming": Number(0, 1),
                "linear": Maybe(Number(0, 100)),
                "plan": Maybe(parameters(SpacePlan)),
            }
        ),
        "plan": parameters(SpacePlan),
        "n_seen": Whole(0),
        "shape": Several(Whole(0), len(Shape._fields)),
        "history": Several(Table(Number())),
        "data_digest": Text(),
        "digest": Text(),
    }
)
_DECLARED = {
    "members.0": Array("float32", ("n_members", "item_weights")),
    "members.1": Array("float32", ("n_members", "document_weights")),
    "members.2": Array("float32", ("n_members", "readout_weights")),
    "order": Array("int64", ("n_labels",), 0, below="n_labels", distinct=True),
    # Above 0 and below 1, by far more than rounding.
    "priors": Array("float64", ("n_labels",), 1e-15, 1 - 1e-15),
    "folds": Array("int64", ("n_in_folds",), 0, below="n_folds"),
    "mean": Array("float64", ("n_features",), -MOST_FEATURE, MOST_FEATURE),
    "scale": Array("float64", ("n_features",), LEAST_SCALE, 2 * MOST_FEATURE),
    "mean_code": Array("float64", ("item_dimensions",), -_MOST_CODE, _MOST_CODE),
    "mean_tags": Array("float64", ("item_tags",), 0, UNIT),
    "document_mean": Array("float64", ("n_members", "code"), -UNIT, UNIT),
    "document_scatter": Array("float64", ("n_members", "code", "code"), -UNIT, UNIT),
    "axes": Array("float32", ("n_members*code", "n_axes"), -UNIT, UNIT),
    "calibration.slopes": Array("float64", ("n_labels",), 0, 1e3),
    "calibration.intercepts": Array("float64", ("n_labels",), -1e3, 1e3),
    "calibration.thresholds": Array("float64", ("n_thresholds",), 0, 1),
    "held_out_sample.codes": Array(
        "float32", ("n_held_out", "members_per_fold*code"), -UNIT, UNIT, or_empty=True
    ),
    "held_out_sample.folds": Array("int64", ("n_held_out",), 0, below="n_folds"),
    "held_out_sample.weights": Array("float64", ("n_held_out",), 1e-9),
    "reference_sample.codes": Array(
        "float32", ("n_sampled", "n_dimensions"), -_MOST_CODE, _MOST_CODE, or_empty=True
    ),
    "reference_sample.projections": Array(
        "float32", ("n_sampled", "projection_size"), longest=UNIT, or_empty=True
    ),
    "reference_sample.weights": Array("float64", ("n_sampled",), 1e-9),
    "linear.weights": Array("float32", ("n_inputs", "n_coordinates"), -_MOST_CODE, _MOST_CODE),
    "linear.offsets": Array("float32", ("n_coordinates",), -_MOST_CODE, _MOST_CODE),
    "linear.labels": Array("float32", ("n_coordinates", "n_seen"), -1e3, 1e3),
    "linear.landmarks": Array("float32", ("n_landmarks", "n_features"), -_MOST_CODE, _MOST_CODE),
    "linear.scale": Array("float32", ("n_scales",), 0, _MOST_CODE),
}


def _check_state(config: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
    """Refuse a state that is not as it was declared, before any of it is used."""
    _VALUES.check(config)
    for plan in (config["plan"], config["parameters"]["plan"]):
        if plan is not None:
            _plan_of(plan).check()
    shape, n_seen = Shape(*config["shape"]), config["n_seen"]
    per_fold = config["plan"]["members_per_fold"]
    n_labels, n_outputs, n_features, hidden, code = shape
    item_weights, document_weights, readout_weights = shape.n_weights
    require(min(n_labels, hidden, code) > 0 and n_seen <= n_labels, "shape", "that of a space")
    require(
        n_outputs == n_labels + (n_seen < n_labels), "shape", "one of as many outputs as labels"
    )
    groups = arrays.get("members.2", np.zeros(0))
    n_members = len(groups) if groups.ndim else 0
    require(n_members and n_members % per_fold == 0, "members.2", "members of every fold")
    offsets = arrays.get("linear.offsets", np.zeros(0))
    n_coordinates = len(offsets) if offsets.ndim else 0
    n_dimensions = n_members * code + n_coordinates
    landmarks = arrays.get("linear.landmarks", np.zeros((0, 0)))
    n_landmarks = len(landmarks) if landmarks.ndim else 0
    sizes = check_arrays(
        arrays,
        _DECLARED,
        n_seen=n_seen,
        **shape._asdict(),
        n_members=n_members,
        n_folds=n_members // per_fold,
        members_per_fold=per_fold,
        item_weights=item_weights,
        document_weights=document_weights,
        readout_weights=readout_weights,
        n_coordinates=n_coordinates,
        n_landmarks=n_landmarks,
        n_inputs=n_landmarks or n_features,
        n_scales=1 if n_landmarks else 0,
        n_dimensions=n_dimensions,
        item_dimensions=n_dimensions if n_features else 0,
        item_tags=n_seen if n_features else 0,
        projection_size=min(n_features, PROJECTION_SIZE),
    )
    require(sizes["n_thresholds"] in (0, len(PRECISIONS)), "calibration.thresholds", "0 or 99")


def _plan_values(plan: SpacePlan) -> dict[str, Any]:
    """Return a plan as values that JSON knows."""
    return {name: np.asarray(value).tolist() for name, value in asdict(plan).items()}


def _plan_of(values: Mapping[str, Any]) -> SpacePlan:
    """Rebuild a plan from `_plan_values`."""
    several = {name: tuple(value) for name, value in values.items() if isinstance(value, list)}
    return SpacePlan(**{**values, **several})


def _digest(members: Members) -> str:
    """Digest the weights of members."""
    digest = hashlib.sha256()
    for group in members.groups:
        digest.update(group.tobytes())
    return digest.hexdigest()


def _prior_logits(frequencies: Matrix) -> Matrix:
    """Return the logits of frequencies, which are between 0 and 1."""
    return np.asarray(np.log(frequencies) - np.log1p(-frequencies))


def _mix_columns(
    readout: Readout, columns: IntArray, share: float, names: Readout, name_share: float
) -> Readout:
    """Return a readout that has a share of that by names in some columns."""
    weights = readout.weights.copy()
    weights[:, columns] = share * weights[:, columns] + name_share * names.weights
    intercepts = readout.intercepts.copy()
    intercepts[columns] = share * intercepts[columns] + name_share * names.intercepts
    return Readout(weights, intercepts)


def _item_slopes(counts: Matrix) -> Matrix:
    """Return by how much new labels' directions count, by how many documents they rest on.

    Items lie less far apart than the documents that directions are learned from: with many
    documents half the slope is right, with one or two nearly all of it.
    """
    return np.asarray(0.5 * (1 + _DOUBT / (counts + _DOUBT)))


def _turned(axes: Floats, codes: Matrix) -> Matrix:
    """Return the principal axes (n_dimensions, n_axes) of centred codes, from some near them."""
    for _ in range(_TURNS):
        axes, _ = np.linalg.qr(codes.T @ (codes @ axes))
    coordinates = codes @ axes
    _, rotation = np.linalg.eigh(coordinates.T @ coordinates)
    return np.asarray(axes @ rotation[:, ::-1])


def _side_by_side(codes: Floats) -> Floats:
    """Return codes (n_members, n, code) as rows (n, n_members * code)."""
    n_members, n, code = codes.shape
    return np.ascontiguousarray(codes.transpose(1, 0, 2)).reshape(n, n_members * code)


def _read(members: Members, codes: Floats) -> Matrix:
    """Return the mean of members' raw logits from codes that are side by side, (n, n_outputs)."""
    split = codes.reshape(len(codes), len(members), -1).transpose(1, 0, 2)
    return mean_of(members.read(np.ascontiguousarray(split))).astype(np.float64)


def _directions(placed: Floats) -> Floats:
    """Return places on axes, (n, n_axes), each at length 1."""
    lengths = np.sqrt(np.einsum("ij,ij->i", placed, placed))[:, None]
    return np.asarray(placed / np.maximum(lengths, 1e-12), dtype=np.float32)
