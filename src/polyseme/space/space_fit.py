"""The fit of a concept space: training data, trained members, and what is learned from both.

In: documents, items and the parameters of a `ConceptSpace`. Out: its fitted attributes. Members
are trained by `training`; axes, the linear path, calibration and the samples that a space keeps are
learned here, on items as members that never saw them code them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from polyseme.base.folds import filled_folds, fold_numbers
from polyseme.base.machine import check_memory, one_blas_thread
from polyseme.base.validation import InputError, IntArray, check_device, check_sparse
from polyseme.space.calibration import (
    Calibration,
    HeldOutSample,
    ReferenceSample,
    calibrate,
    expected_frequencies,
    sigmoid,
)
from polyseme.space.concept_space import (
    SLOPES,
)
from polyseme.space.features import column_statistics, standardise
from polyseme.space.linear_path import (
    MOST_FEATURES,
    SHRINKAGES,
    KernelRidge,
    LinearPath,
    Ridge,
    choose_weight,
    fit_ridge,
    leave_out,
    log_loss,
    prediction_spreads,
    ranked_items,
)
from polyseme.space.members import Members, StartMembers, mean_of, side_by_side
from polyseme.space.training import (
    SpacePlan,
    SpaceTraining,
    TrainingData,
    data_digest,
    mean_answers,
    selection_weights,
)
from polyseme.space.votes import Voters, mix, unit_directions

if TYPE_CHECKING:
    from polyseme.space.concept_space import ConceptSpace
    from polyseme.space.features import Features

Matrix = NDArray[np.float64]
Floats = NDArray[np.float32]
Progress = Callable[[int, int, Mapping[str, float]], None]
Trainer = Callable[
    [TrainingData, SpacePlan, int, Progress | None], tuple[Members, list[dict[str, float]]]
]

# Principal axes of documents' codes, in which known documents are kept and compared.
_AXES, _TURNS = 128, 2
# Documents that these axes are learned from, and documents that are coded at a time.
_AXES_DOCUMENTS, _DOCUMENTS = 2048, 8192
# Items that calibration is learned on, and of those how many are kept for labels that come later.
_CALIBRATED = 4096
_REFERENCE = 512
_BLOCK = 1024
# Documents by which new labels are read at first, at the most.
_MOST_HOLDING = 8192


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
        n_former = len(former.order_)
        columns = self.columns[order]
        former_places = np.argsort(former.order_)
        places = np.where(columns < 0, -1, former_places[columns])
        new_columns = np.flatnonzero(places < 0)
        old_columns = np.flatnonzero(places >= 0)

        # Documents that hold new labels, over the labels of the former space.
        holding = data.documents[:, new_columns]
        rows = np.flatnonzero(np.diff(holding.indptr))
        if len(rows) > _MOST_HOLDING:
            evenly_spaced = np.linspace(0, len(rows) - 1, _MOST_HOLDING).astype(np.int64)
            rows = rows[evenly_spaced]
        old_tags = data.documents[rows][:, old_columns].tocoo()
        former_columns = places[old_columns][old_tags.col]
        entries = (old_tags.data, (old_tags.row, former_columns))
        documents = sp.csr_matrix(entries, (len(rows), n_former))

        new_priors = data.priors()[new_columns]
        weights, biases = former.first_readouts(
            documents, holding[rows], data.folds[rows], new_priors
        )
        former_has_unseen = former.n_seen_ < n_former
        any_unseen = data.n_unseen > 0 and former_has_unseen
        return StartMembers(former.members_, places, any_unseen, weights, biases)


# ------------------------------------------------------------------ training


def fit_space(
    space: ConceptSpace,
    data: TrainingData,
    seed: int,
    trainer: Trainer | None = None,
    progress: Progress | None = None,
    warm: WarmStart | None = None,
) -> None:
    """Train the members of a space and learn what follows from them; see `ConceptSpace.fit`."""
    if trainer is not None:
        members, history = trainer(data, space.plan_, seed, progress)
    else:
        members, history = _train(space, data, seed, progress)
    finish_fit(space, data, members, history, warm)


def _train(
    space: ConceptSpace, data: TrainingData, seed: int, progress: Progress | None
) -> tuple[Members, list[dict[str, float]]]:
    """Train members in this process; with a checkpoint, from the last round that it holds."""
    device = check_device(space.device, owner=type(space).__name__)
    training = SpaceTraining(data, space.plan_, seed, device)
    if space.checkpoint is not None:
        training.resume(space.checkpoint)

    def after_round() -> None:
        if space.checkpoint is not None:
            training.save(space.checkpoint)
        if progress is not None:
            progress(training.round, space.plan_.n_rounds, training.history[-1])

    with one_blas_thread():
        training.run(after=after_round)
    return training.members.arrays(), training.history


def prepare_training(
    space: ConceptSpace,
    documents: sp.csr_matrix,
    X: Features | None,
    item_documents: IntArray | None = None,
    groups: IntArray | None = None,
    n_label_sets: int | None = None,
    pool: Features | None = None,
    verdicts: sp.csr_matrix | None = None,
    warm: WarmStart | None = None,
) -> tuple[TrainingData, int]:
    """Order labels, draw folds and fit the plan to the data; for parameters see `ConceptSpace.fit`.

    Returns
    -------
    data : TrainingData
    seed : int
        Of the training: the interrupted one's, where there is a checkpoint.
    """
    owner = type(space).__name__
    documents = check_sparse(documents, "documents", owner=owner)
    if sp.issparse(X):
        X = check_sparse(X, "X", owner=owner)
    seed = space.training_seed()
    n_documents = documents.shape[0]
    n_items = 0 if X is None else X.shape[0]
    item_rows = _item_rows(item_documents, n_items, n_documents)

    _order_labels(space, documents, item_rows, X)
    _learn_standardisation(space, X, warm)
    _fit_plan(space, documents, X, pool, warm)

    generator = np.random.default_rng(seed)
    n_pool = 0 if pool is None else pool.shape[0]
    folds, pool_folds = _draw_folds(space.plan_, n_documents, n_pool, generator, groups, warm)
    space.folds_ = np.concatenate([folds, pool_folds])
    if verdicts is not None:
        verdicts = sp.csr_matrix(verdicts[:, space.order_], dtype=np.float32)
    data = TrainingData(
        documents=sp.csr_matrix(documents[:, space.order_], dtype=np.float32),
        n_seen=space.n_seen_,
        n_label_sets=n_documents if n_label_sets is None else n_label_sets,
        folds=folds,
        X=X,
        item_documents=item_rows,
        mean=space.mean_,
        scale=space.scale_,
        pool=pool,
        pool_folds=None if pool is None else pool_folds,
        verdicts=verdicts,
    )
    if warm is not None:
        data = replace(data, start=warm.start(data, space.order_))
    return data, seed


def _item_rows(item_documents: IntArray | None, n_items: int, n_documents: int) -> IntArray:
    """Return the document of each item, (n_items,); raise where there is no such document."""
    if item_documents is None:
        rows = np.arange(n_items)
    else:
        rows = np.asarray(item_documents)
    is_outside = (rows < 0) | (rows >= n_documents)
    has_documents = len(rows) == n_items and n_items <= n_documents
    if not has_documents or is_outside.any():
        raise InputError(
            f"There are {n_items} items and {n_documents} documents; say with "
            "`item_documents` which document is each item's."
        )
    return rows


def _order_labels(
    space: ConceptSpace, documents: sp.csr_matrix, item_rows: IntArray, X: Features | None
) -> None:
    """Order labels: those of items first. Without features all of them count as seen."""
    is_seen = np.ones(documents.shape[1], dtype=bool)
    if X is not None:
        item_counts = np.asarray(documents[item_rows].sum(axis=0)).ravel()
        is_seen = item_counts > 0
    seen_columns = np.flatnonzero(is_seen)
    unseen_columns = np.flatnonzero(~is_seen)
    space.order_ = np.concatenate([seen_columns, unseen_columns])
    space.n_seen_ = len(seen_columns)


def _learn_standardisation(space: ConceptSpace, X: Features | None, warm: WarmStart | None) -> None:
    """Learn means and spreads of features; a warm start keeps the former ones."""
    if X is None:
        space.mean_ = np.zeros(0)
        space.scale_ = np.ones(0)
    elif warm is not None:
        space.mean_ = warm.space.mean_
        space.scale_ = warm.space.scale_
    else:
        space.mean_, space.scale_ = column_statistics(X)


def _fit_plan(
    space: ConceptSpace,
    documents: sp.csr_matrix,
    X: Features | None,
    pool: Features | None,
    warm: WarmStart | None,
) -> None:
    """Fit the plan to the size of the data; raise where its members would not fit into memory."""
    n_documents, n_labels = documents.shape
    n_items, n_features = (0, 0) if X is None else X.shape
    plan = space.planned(n_documents, n_items, pool=pool is not None)
    if warm is not None:
        plan = plan.warmed()
    space.plan_ = plan.within(n_documents, n_items)
    check_memory(
        space.plan_.weight_bytes(n_labels, n_features),
        f"A space with `hidden` {space.plan_.hidden} and `code` {space.plan_.code} of its plan",
        "lower them, or give fewer labels or features",
    )


def _draw_folds(
    plan: SpacePlan,
    n_documents: int,
    n_pool: int,
    generator: np.random.Generator,
    groups: IntArray | None,
    warm: WarmStart | None,
) -> tuple[IntArray, IntArray]:
    """Draw the folds of documents and of the pool; those of a former fit are kept."""
    if warm is not None:
        folds = filled_folds(warm.folds, warm.n_folds, generator, groups)
        pool_folds = filled_folds(warm.pool_folds, warm.n_folds, generator, None)
        return folds, pool_folds
    folds = fold_numbers(n_documents, plan.n_folds, generator, groups)
    if not n_pool:
        return folds, np.zeros(0, dtype=np.int64)
    n_folds = int(folds.max(initial=0)) + 1
    pool_folds = generator.permutation(n_pool) % n_folds
    return folds, pool_folds.astype(np.int64)


def finish_fit(
    space: ConceptSpace,
    data: TrainingData,
    members: Members,
    history: list[dict[str, float]],
    warm: WarmStart | None = None,
) -> None:
    """Take over trained members and learn what follows from them: axes and calibration.

    Parameters
    ----------
    space : ConceptSpace
    data : TrainingData
    members : Members
        All of them, as arrays.
    history : list of dict
    warm : WarmStart, optional
        Its axes are turned to the new codes, and the weight of its linear path stays.
    """
    space.members_ = members
    space.history_ = history
    space.data_digest_ = data_digest(data)
    space.digest_ = _digest(members)
    space.priors_ = np.empty(data.n_labels)
    space.priors_[space.order_] = data.priors()[: data.n_labels]
    linear_weight = space.linear
    former_axes = None
    if warm is not None:
        former_axes = warm.space.axes_
        if linear_weight is None:
            linear_weight = warm.space.linear_weight
    with one_blas_thread():
        _learn_scatter(space, data)
        _learn_axes(space, data, former_axes)
        SpaceCalibration(space, data).fit(linear_weight)


def _digest(members: Members) -> str:
    """Digest the weights of members."""
    digest = hashlib.sha256()
    for group in members.groups:
        digest.update(group.tobytes())
    return digest.hexdigest()


# ------------------------------------------------------------------ codes of documents


def _learn_scatter(space: ConceptSpace, data: TrainingData) -> None:
    """Learn mean and covariance of documents' codes, member by member."""
    members = space.members_
    code = space.plan_.code
    sums = np.zeros((len(members), code))
    squares = np.zeros((len(members), code, code))
    n_documents = data.documents.shape[0]
    for start in range(0, n_documents, _BLOCK):
        block = data.documents[start : start + _BLOCK]
        codes = members.encode_rows(block)
        sums += codes.sum(axis=1, dtype=np.float64)
        squares += codes.mT @ codes

    # Covariance: E[c cᵀ] - E[c] E[c]ᵀ.
    means = sums / n_documents
    space.document_mean_ = means
    space.document_scatter_ = squares / n_documents - means[:, :, None] * means[:, None]


def _learn_axes(space: ConceptSpace, data: TrainingData, former_axes: Floats | None) -> None:
    """Learn the principal axes of documents' codes, from some thousand of them.

    Former axes, where there are as many, are turned to the codes: they are near already.
    """
    n_documents = data.documents.shape[0]
    permutation = np.random.default_rng(n_documents).permutation(n_documents)
    rows = np.sort(permutation[:_AXES_DOCUMENTS])
    member_codes = space.members_.encode_rows(data.documents[rows])
    codes = side_by_side(member_codes).astype(np.float64)
    codes -= space.document_mean_.ravel()
    n_axes = min(_AXES, *codes.shape)
    if former_axes is not None and former_axes.shape == (codes.shape[1], n_axes):
        axes = _turn_axes(former_axes, codes)
    else:
        from sklearn.utils.extmath import randomized_svd

        _, _, right_vectors = randomized_svd(codes, n_axes, n_iter=2, random_state=0)
        axes = right_vectors.T
    space.axes_ = np.ascontiguousarray(axes, dtype=np.float32)


def _turn_axes(axes: Floats, codes: Matrix) -> Matrix:
    """Return the principal axes (n_dimensions, n_axes) of centred codes, from some near them."""
    for _ in range(_TURNS):
        # One step of subspace iteration.
        stretched = codes.T @ (codes @ axes)
        axes, _ = np.linalg.qr(stretched)
    coordinates = codes @ axes
    _, rotation = np.linalg.eigh(coordinates.T @ coordinates)
    falling = rotation[:, ::-1]
    return np.asarray(axes @ falling)


# ------------------------------------------------------------------ calibration


class _Sample(NamedTuple):
    """Items that calibration is learned on."""

    items: IntArray  # (n,)
    documents: IntArray  # (n,)
    folds: IntArray  # (n,); -1 where no item can be held out
    truth: Matrix  # (n, n_seen)
    are_held_out: bool

    def thinned(self, most: int) -> _Sample:
        """Return so many of the items, evenly drawn."""
        n_items = len(self.items)
        n_drawn = min(n_items, most)
        rows = np.linspace(0, n_items - 1, n_drawn).astype(np.int64)
        return self._replace(
            items=self.items[rows],
            documents=self.documents[rows],
            folds=self.folds[rows],
            truth=self.truth[rows],
        )


class _FoldPredictions(NamedTuple):
    """What members predict for sampled items of the fold that they have not seen."""

    logits: Matrix  # (n, n_labels)
    votes: Matrix  # of known documents, (n, n_labels)
    probable: Matrix  # tags by features, (n, n_seen)
    unseen: Floats  # probabilities of unseen labels by true tags, (n, n_unseen)
    any_unseen: Floats  # how probably an item holds any unseen label, (n,)
    codes: Floats  # by the members of the fold, (n, members_per_fold * code)
    code_sum: Floats  # of features alone, by all members, (n_members * code,)


class _HeldOut(NamedTuple):
    """What members predict for sampled items that they have not seen."""

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
            n_seen = self.additions.shape[1]
            mixed[:, :n_seen] += self.additions
        return mixed


class _RidgePredictions(NamedTuple):
    """What a ridge regression predicts for sampled items of folds that it has not seen."""

    ridge: Ridge | KernelRidge
    predictions: Matrix  # (n, n_seen)
    measured: _Sample  # the items that weight and shrinkage are chosen on
    thinned: Matrix  # their predictions without some features, (n_measured, n_seen)
    spreads: Matrix  # of predictions, (n_seen,)


class SpaceCalibration:
    """Learn the linear path, intercepts and thresholds on items that members had not seen."""

    def __init__(self, space: ConceptSpace, data: TrainingData) -> None:
        self.space = space
        self.data = data
        self.n_labels = data.n_labels
        self.n_seen = data.n_seen

    def fit(self, linear_weight: float | None) -> None:
        """Set what the space knows of items; without features, that it knows nothing."""
        space = self.space
        self._set_empty()
        space.derive()
        if self.data.X is None:
            return

        generator = np.random.default_rng(space.plan_.n_steps)
        sample = self._draw_sample(generator)
        slopes = np.repeat(SLOPES, (self.n_seen, self.n_labels - self.n_seen))
        additions, shrinkage = self._fit_linear_path(sample, slopes, linear_weight)
        slopes[: self.n_seen] *= shrinkage
        space.derive()
        held_out = self._predict(sample, additions)
        no_coordinates = np.zeros(space.linear_.n_coordinates)
        space.mean_code_ = np.append(held_out.mean_code, no_coordinates)
        space.mean_tags_ = held_out.probable.mean(axis=0)
        if not sample.are_held_out:
            space.calibration_ = space.calibration_._replace(slopes=slopes)
            return

        weights, frequencies = self._expected_frequencies(sample, held_out)
        logits = held_out.mixed(slopes, space.priming)
        calibration = calibrate(logits, sample.truth, weights, frequencies)
        space.calibration_ = calibration._replace(slopes=slopes)
        permutation = generator.permutation(len(sample.items))
        rows = np.sort(permutation[:_REFERENCE])
        space.held_out_sample_ = HeldOutSample(
            held_out.codes[rows], sample.folds[rows], weights[rows]
        )
        space.reference_sample_ = self._draw_reference_sample(sample.items, weights, generator)

    def _set_empty(self) -> None:
        """Set what a space without features has."""
        space = self.space
        n_features = 0 if self.data.X is None else self.data.X.shape[1]
        no_numbers = np.zeros(0)
        no_codes = np.zeros((0, 0), dtype=np.float32)
        no_folds = np.zeros(0, dtype=np.int64)
        slopes = np.ones(self.n_labels)
        intercepts = np.zeros(self.n_labels)
        space.calibration_ = Calibration(slopes, intercepts, no_numbers)
        space.held_out_sample_ = HeldOutSample(no_codes, no_folds, no_numbers)
        space.reference_sample_ = ReferenceSample(no_codes, no_codes, no_numbers)
        space.mean_code_ = no_numbers
        space.mean_tags_ = no_numbers
        space.linear_ = LinearPath.empty(n_features, self.n_seen)

    def _draw_sample(self, generator: np.random.Generator) -> _Sample:
        """Draw the items that calibration is learned on."""
        data = self.data
        # Tables of items by labels: with many labels fewer items will do.
        most_by_labels = _CALIBRATED * 2048 // self.n_labels
        most = max(_REFERENCE, min(_CALIBRATED, most_by_labels))
        permutation = generator.permutation(len(data.item_documents))
        items = np.sort(permutation[:most])
        documents = data.item_documents[items]
        item_folds = data.folds[data.item_documents]
        are_held_out = len(np.unique(item_folds)) > 1
        folds = data.folds[documents] if are_held_out else np.full(len(items), -1)
        seen_tags = data.documents[documents][:, : self.n_seen]
        truth = np.asarray(seen_tags.toarray(), dtype=np.float64)
        return _Sample(items, documents, folds, truth, are_held_out)

    def _draw_reference_sample(
        self,
        items: IntArray,
        weights: Matrix,
        generator: np.random.Generator,
        most: int = 256,
    ) -> ReferenceSample:
        """Draw some items (n,) with weights (n,), and some of the pool, that stand for all."""
        data = self.data
        assert data.X is not None
        n_items = len(data.item_documents)
        n_tagged = max(int(most * n_items / (n_items + data.n_pool)), 1)
        rows = generator.permutation(len(items))[:n_tagged]
        tables = [data.X[items[rows]]]
        table_weights = [weights[rows]]
        if data.pool is not None:
            n_untagged = most - len(rows)
            pool_rows = generator.permutation(data.n_pool)[:n_untagged]
            tables.append(data.pool[pool_rows])
            table_weights.append(np.ones(len(pool_rows)))
        codes = [self.space.item_codes(table) for table in tables]
        projections = [self.space.project(table) for table in tables]
        return ReferenceSample(
            np.concatenate(codes), np.concatenate(projections), np.concatenate(table_weights)
        )

    # -------------------------------------------------------------- held-out predictions

    def _features(self, items: IntArray) -> Floats:
        """Return the standardised features of some items."""
        assert self.data.X is not None
        return standardise(self.data.X[items], self.space.mean_, self.space.scale_)

    def _predict(
        self, sample: _Sample, additions: Matrix | None, *, thinned: bool = False
    ) -> _HeldOut:
        """Compute what members that have not seen them predict for sampled items.

        `additions` (n, n_seen) are what the linear path adds to the logits of seen labels. Some
        features of each item are left out where they are to be `thinned`.
        """
        n_items = len(sample.items)
        first_members = self._fold_members(int(sample.folds[0]))
        held_out = _HeldOut(
            logits=np.empty((n_items, self.n_labels)),
            votes=np.zeros((n_items, self.n_labels)),
            probable=np.empty((n_items, self.n_seen)),
            expected=np.zeros((n_items, self.n_labels)),
            any_unseen=np.zeros(n_items),
            codes=np.empty((n_items, first_members.n_dimensions), dtype=np.float32),
            mean_code=np.zeros(self.space.members_.n_dimensions),
            additions=additions,
        )
        held_out.expected[:, : self.n_seen] = sample.truth
        for fold in np.unique(sample.folds):
            rows = sample.folds == fold
            fold_additions = None if additions is None else additions[rows]
            predictions = self._predict_fold(sample, int(fold), fold_additions, thinned)
            held_out.logits[rows] = predictions.logits
            held_out.votes[rows] = predictions.votes
            held_out.probable[rows] = predictions.probable
            held_out.expected[rows, self.n_seen :] = predictions.unseen
            held_out.any_unseen[rows] = predictions.any_unseen
            held_out.codes[rows] = predictions.codes
            held_out.mean_code[:] += predictions.code_sum
        return held_out._replace(mean_code=held_out.mean_code / n_items)

    def _predict_fold(
        self, sample: _Sample, fold: int, additions: Matrix | None, thinned: bool
    ) -> _FoldPredictions:
        """Compute what the members of one fold, or all for -1, predict for its sampled items."""
        space = self.space
        rows = sample.folds == fold
        members = self._fold_members(fold)
        features = self._features(sample.items[rows])
        if thinned:
            features = leave_out(features, fold)
        direct = side_by_side(members.encode_items(features))
        seen_logits = _read_codes(members, direct)[:, : self.n_seen]
        if additions is not None:
            seen_logits = seen_logits + additions
        probable = sigmoid(seen_logits)

        # An item's code: its features', and that of its probable tags.
        tags = np.zeros((len(features), self.n_labels), dtype=np.float32)
        tags[:, : self.n_seen] = probable
        context = space.encode_context(tags, members)
        codes = space.compose(direct, context)
        logits = _read_codes(members, codes)[:, : self.n_labels]
        votes = np.zeros_like(logits)
        if space.priming and sample.are_held_out:
            votes = self.held_out_votes(fold, codes, sample.documents[rows])

        # Unseen labels are expected as an item's true tags suggest.
        truth = sample.truth[rows].astype(np.float32)
        unseen, _ = mean_answers(members, features, truth)
        n_unseen = self.n_labels - self.n_seen
        any_unseen = np.zeros(len(features), dtype=np.float32)
        if unseen.shape[1]:
            any_unseen = unseen[:, -1]
        all_codes = side_by_side(space.members_.encode_items(features))
        return _FoldPredictions(
            logits=logits,
            votes=votes,
            probable=probable,
            unseen=unseen[:, :n_unseen],
            any_unseen=any_unseen,
            codes=codes,
            code_sum=all_codes.sum(axis=0),
        )

    def held_out_votes(self, fold: int, codes: Floats, left_out: IntArray) -> Matrix:
        """Let known documents but its own vote for each item, as members new to it code them."""
        space = self.space
        documents = self.data.documents
        members = self._fold_members(fold)
        size = members.n_dimensions
        dimensions = slice(fold * size, (fold + 1) * size)
        axes = space.axes_[dimensions]
        mean_code = space.document_mean_.ravel()[dimensions].astype(np.float32)
        centre = mean_code @ axes
        points = np.empty((documents.shape[0], axes.shape[1]), dtype=np.float32)
        for start in range(0, len(points), _DOCUMENTS):
            rows = slice(start, start + _DOCUMENTS)
            document_codes = side_by_side(members.encode_rows(documents[rows]))
            points[rows] = unit_directions(document_codes @ axes - centre)
        item_points = unit_directions(codes @ axes - centre)
        return Voters.of(points, documents).shares(item_points, left_out)

    def _fold_members(self, fold: int) -> Members:
        """Return the members that have not seen a fold; of fold -1, all."""
        space = self.space
        if fold < 0:
            return space.members_
        per_fold = space.plan_.members_per_fold
        start = fold * per_fold
        return space.members_.select(slice(start, start + per_fold))

    def _expected_frequencies(self, sample: _Sample, held_out: _HeldOut) -> tuple[Matrix, Matrix]:
        """Return the weights of sampled items (n,), and how often labels are expected."""
        data = self.data
        weights = np.ones(len(sample.items))
        if self.space.plan_.selection_weights:
            weights = selection_weights(held_out.any_unseen)
        on_items = weights @ held_out.expected / weights.sum()
        priors = data.priors()[: self.n_labels]
        are_elsewhere = data.item_documents >= data.n_label_sets
        elsewhere = float(are_elsewhere.mean())
        n_items = len(data.item_documents)
        return weights, expected_frequencies(priors, on_items, n_items, elsewhere)

    # -------------------------------------------------------------- linear path

    def _fit_linear_path(
        self, sample: _Sample, slopes: Matrix, linear_weight: float | None
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
        assert self.data.X is not None
        has_many_features = self.data.X.shape[1] > MOST_FEATURES
        if has_many_features or linear_weight == 0 or not sample.are_held_out:
            return None, 1.0
        regression = self._fit_ridge(sample)
        weight = linear_weight
        if weight is None:
            weight = self._choose_weight(regression, slopes)
        if not weight:
            return None, 1.0

        path = regression.ridge.path(weight, regression.spreads)
        loadings = path.labels / weight
        # What is kept of predictions in few coordinates: p Lᵀ · w L.
        coordinates = (regression.predictions / regression.spreads) @ loadings.T
        additions: Matrix = coordinates @ path.labels.astype(np.float64)
        measured_rows = np.searchsorted(sample.items, regression.measured.items)
        measured_additions = additions[measured_rows]
        shrinkage = self._choose_shrinkage(regression.measured, measured_additions, slopes)
        labels = np.float32(shrinkage) * path.labels
        self.space.linear_ = path._replace(labels=labels)
        return shrinkage * additions, shrinkage

    def _fit_ridge(self, sample: _Sample) -> _RidgePredictions:
        """Fit a ridge regression, and predict sampled items without their folds."""
        data = self.data
        carried = sp.csr_matrix(data.documents[data.item_documents][:, : self.n_seen])
        item_folds = data.folds[data.item_documents]
        ridge = fit_ridge(self._features, carried, item_folds)

        measured = sample.thinned(ranked_items(self.n_seen))
        predictions = np.empty((len(sample.items), self.n_seen))
        thinned = np.empty((len(measured.items), self.n_seen))
        for fold in np.unique(sample.folds):
            rows = sample.folds == fold
            measured_rows = measured.folds == fold
            features = self._features(sample.items[rows])
            measured_features = self._features(measured.items[measured_rows])
            thinned_features = leave_out(measured_features, int(fold))
            tables = (features, thinned_features)
            predictions[rows], thinned[measured_rows] = ridge.predict(tables, without=int(fold))
        spreads = prediction_spreads(predictions)
        return _RidgePredictions(ridge, predictions, measured, thinned, spreads)

    def _choose_weight(self, regression: _RidgePredictions, slopes: Matrix) -> float:
        """Return the weight by which measured items are ranked best; see `choose_weight`."""
        measured = regression.measured
        held_out = self._predict(measured, None, thinned=True)
        item_weights, frequencies = self._expected_frequencies(measured, held_out)
        logits = held_out.mixed(slopes, self.space.priming)
        return choose_weight(
            logits[:, : self.n_seen],
            regression.thinned / regression.spreads,
            measured.truth,
            item_weights,
            frequencies[: self.n_seen],
        )

    def _choose_shrinkage(self, sample: _Sample, additions: Matrix, slopes: Matrix) -> float:
        """Return the factor of seen labels' logits that gives the likeliest probabilities."""
        held_out = self._predict(sample, additions)
        weights, frequencies = self._expected_frequencies(sample, held_out)
        seen_frequencies = frequencies[: self.n_seen]
        losses = []
        for factor in SHRINKAGES:
            shrunk = held_out._replace(additions=factor * additions)
            logits = shrunk.mixed(factor * slopes, self.space.priming)
            seen_logits = logits[:, : self.n_seen]
            losses.append(log_loss(seen_logits, sample.truth, weights, seen_frequencies))
        return SHRINKAGES[int(np.argmin(losses))]


def _read_codes(members: Members, codes: Floats) -> Matrix:
    """Return the mean of members' raw logits from codes that are side by side, (n, n_outputs)."""
    by_item = codes.reshape(len(codes), len(members), -1)
    by_member = np.ascontiguousarray(by_item.transpose(1, 0, 2))
    logits = members.read(by_member)
    return mean_of(logits).astype(np.float64)
