"""The fit of a concept space: training data, trained members, and what is learned from both.

In: documents, items and the parameters of a `ConceptSpace`. Out: its fitted attributes. Members
are trained by `training`; axes, the linear path, calibration and the samples that a space keeps are
learned here, on items as members that never saw them encode them.

Terms: *documents* are rows of `TrainingData.documents`, over the labels in members' order: *seen*
ones, which items carry, before *unseen* ones. *Items* are rows of `TrainingData.X`, the *pool* rows
of its untagged items. A *fold* is a part of the documents that some members never see; member m
does not see fold m // members_per_fold. *Additions* are what the linear path adds to the logits of
seen labels. A *sample* is some of the items, and its tables have a row for each of them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import replace
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
    calibrated_log_loss,
    choose_weight,
    fit_ridge,
    leave_out,
    prediction_spreads,
    ranked_items,
    spaced,
)
from polyseme.space.members import Members, WarmStart, mean_predictions
from polyseme.space.training import (
    SpacePlan,
    SpaceTraining,
    TrainingData,
    data_digest,
    selection_weights,
)
from polyseme.space.votes import Voters, mix, side_by_side, turn_axes, unit_directions

if TYPE_CHECKING:
    from polyseme.space.concept_space import ConceptSpace
    from polyseme.space.features import Features

Matrix = NDArray[np.float64]
Floats = NDArray[np.float32]
# Called with rounds done, rounds in all and the losses of the last round by name.
Progress = Callable[[int, int, Mapping[str, float]], None]
# Takes data, plan, seed and progress; returns all members, as arrays, and the losses of each round.
Trainer = Callable[
    [TrainingData, SpacePlan, int, Progress | None], tuple[Members, list[dict[str, float]]]
]

# Principal axes of documents' codes, in which known documents are kept and compared.
_N_AXES = 128
# Documents that the axes are learned from.
_AXES_DOCUMENTS = 2048
# Documents that are encoded at a time for votes, and for mean and covariance.
_BLOCK_DOCUMENTS = 8192
_BLOCK_ROWS = 1024
# Items that calibration is learned on, fewer with many labels, and of those how many are kept for
# labels that come later.
_CALIBRATION_ITEMS = 4096
_KEPT_ITEMS = 512


# ------------------------------------------------------------------ training


def fit_space(
    space: ConceptSpace,
    data: TrainingData,
    seed: int,
    trainer: Trainer | None = None,
    progress: Progress | None = None,
    warm: WarmStart | None = None,
) -> None:
    """Train the members of a space and learn what follows from them; see `ConceptSpace.fit`.

    `data` and `seed` are those that `prepare_training` returned for this space.
    """
    if trainer is not None:
        members, history = trainer(data, space.plan_, seed, progress)
    else:
        members, history = _train(space, data, seed, progress)
    finish_fit(space, data, members, history, warm)


def _train(
    space: ConceptSpace, data: TrainingData, seed: int, progress: Progress | None
) -> tuple[Members, list[dict[str, float]]]:
    """Train members in this process; with a checkpoint, from the last round that it holds.

    Returns all members, as arrays, and the losses of each round by name.
    """
    device = check_device(space.device, owner=type(space).__name__)
    training = SpaceTraining(data, space.plan_, seed, device)
    if space.checkpoint is not None:
        training.resume(space.checkpoint)

    def after_round() -> None:
        if space.checkpoint is not None:
            training.save(space.checkpoint)
        if progress is not None:
            last_losses = training.history[-1]
            progress(training.round, space.plan_.n_rounds, last_losses)

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

    Sets `order_`, `n_seen_`, `mean_`, `scale_`, `plan_` and `folds_` of the space.

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
    n_pool = 0 if pool is None else pool.shape[0]
    item_rows = _item_rows(item_documents, n_items, n_documents)

    _order_labels(space, documents, item_rows, X)
    _learn_standardisation(space, X, warm)
    _fit_plan(space, documents, X, pool, warm)

    generator = np.random.default_rng(seed)
    folds, pool_folds = _draw_folds(space.plan_, n_documents, n_pool, generator, groups, warm)
    space.folds_ = np.concatenate([folds, pool_folds])
    ordered_documents = documents[:, space.order_]
    if verdicts is not None:
        ordered_verdicts = verdicts[:, space.order_]
        verdicts = sp.csr_matrix(ordered_verdicts, dtype=np.float32)
    data = TrainingData(
        documents=sp.csr_matrix(ordered_documents, dtype=np.float32),
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
        start = warm.start(data, space.order_)
        data = replace(data, start=start)
    return data, seed


def _item_rows(item_documents: IntArray | None, n_items: int, n_documents: int) -> IntArray:
    """Return the row of each item's document, (n_items,); raise where there is no such row."""
    if item_documents is None:
        rows = np.arange(n_items)
    else:
        rows = np.asarray(item_documents)
    is_negative = rows < 0
    is_beyond = rows >= n_documents
    are_inside = not is_negative.any() and not is_beyond.any()
    have_rows = len(rows) == n_items
    if not (have_rows and are_inside and n_items <= n_documents):
        raise InputError(
            f"There are {n_items} items and {n_documents} documents; say with "
            "`item_documents` which document is each item's."
        )
    return rows


def _order_labels(
    space: ConceptSpace, documents: sp.csr_matrix, item_rows: IntArray, X: Features | None
) -> None:
    """Order labels: those of items first. Without features all of them count as seen.

    Within seen and unseen labels the order of columns stays.
    """
    n_labels = documents.shape[1]
    is_seen = np.ones(n_labels, dtype=bool)
    if X is not None:
        item_tags = documents[item_rows]
        item_counts = np.asarray(item_tags.sum(axis=0))
        is_seen = item_counts.ravel() > 0
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
    has_pool = pool is not None
    plan = space.planned(n_documents, n_items, pool=has_pool)
    if warm is not None:
        plan = plan.warmed()
    plan = plan.within(n_documents, n_items)
    space.plan_ = plan
    check_memory(
        plan.weight_bytes(n_labels, n_features),
        f"A space with `hidden` {plan.hidden} and `code` {plan.code} of its plan",
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
    """Draw the folds of documents (n_documents,) and of the pool (n_pool,).

    Those of a former fit are kept. `groups` (n_documents,) stay in one fold each.
    """
    if warm is not None:
        folds = filled_folds(warm.folds, warm.n_folds, generator, groups)
        pool_folds = filled_folds(warm.pool_folds, warm.n_folds, generator, None)
        return folds, pool_folds
    folds = fold_numbers(n_documents, plan.n_folds, generator, groups)
    if not n_pool:
        return folds, np.zeros(0, dtype=np.int64)
    last_fold = folds.max(initial=0)
    n_folds = int(last_fold) + 1
    permutation = generator.permutation(n_pool)
    pool_folds = permutation % n_folds
    return folds, pool_folds.astype(np.int64)


def finish_fit(
    space: ConceptSpace,
    data: TrainingData,
    members: Members,
    history: list[dict[str, float]],
    warm: WarmStart | None = None,
) -> None:
    """Set trained members and learn what follows from them: axes and calibration.

    Parameters
    ----------
    space : ConceptSpace
        Prepared by `prepare_training`.
    data : TrainingData
    members : Members
        All of them, as arrays; shared with the space.
    history : list of dict
        The losses of each round by name.
    warm : WarmStart, optional
        Its axes are turned to the new codes, and the weight of its linear path stays.
    """
    space.members_ = members
    space.history_ = history
    space.data_digest_ = data_digest(data)
    space.digest_ = _digest(members)
    n_labels = data.n_labels
    label_priors = data.priors()[:n_labels]
    space.priors_ = np.empty(n_labels)
    space.priors_[space.order_] = label_priors
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
    """Return SHA-256 of members' weights, as hexadecimal digits."""
    digest = hashlib.sha256()
    for group in members.groups:
        digest.update(group.tobytes())
    return digest.hexdigest()


# ------------------------------------------------------------------ codes of documents


def _learn_scatter(space: ConceptSpace, data: TrainingData) -> None:
    """Learn mean and covariance of documents' codes, member by member."""
    members = space.members_
    n_members = len(members)
    code = space.plan_.code
    sums = np.zeros((n_members, code))
    squares = np.zeros((n_members, code, code))
    n_documents = data.documents.shape[0]
    for start in range(0, n_documents, _BLOCK_ROWS):
        stop = start + _BLOCK_ROWS
        block = data.documents[start:stop]
        codes = members.encode_sparse_documents(block)
        sums += codes.sum(axis=1, dtype=np.float64)
        squares += codes.mT @ codes

    # Covariance: E[c cᵀ] - E[c] E[c]ᵀ.
    means = sums / n_documents
    mean_squares = squares / n_documents
    squared_means = means[:, :, None] * means[:, None]
    space.document_mean_ = means
    space.document_scatter_ = mean_squares - squared_means


def _learn_axes(space: ConceptSpace, data: TrainingData, former_axes: Floats | None) -> None:
    """Learn the principal axes of documents' codes, from some thousand of them.

    Former axes, where there are as many, are turned to the codes: they are near already.
    """
    n_documents = data.documents.shape[0]
    generator = np.random.default_rng(n_documents)
    permutation = generator.permutation(n_documents)
    rows = np.sort(permutation[:_AXES_DOCUMENTS])
    member_codes = space.members_.encode_sparse_documents(data.documents[rows])
    codes = side_by_side(member_codes).astype(np.float64)
    codes -= space.document_mean_.ravel()
    n_rows, n_dimensions = codes.shape
    n_axes = min(_N_AXES, n_rows, n_dimensions)
    if former_axes is not None and former_axes.shape == (n_dimensions, n_axes):
        axes = turn_axes(former_axes, codes)
    else:
        from sklearn.utils.extmath import randomized_svd

        _, _, right_vectors = randomized_svd(codes, n_axes, n_iter=2, random_state=0)
        axes = right_vectors.T
    space.axes_ = np.ascontiguousarray(axes, dtype=np.float32)


# ------------------------------------------------------------------ calibration


class _Sample(NamedTuple):
    """Items that calibration is learned on."""

    items: IntArray  # their numbers, sorted, (n_sampled,)
    documents: IntArray  # the rows of their documents, (n_sampled,)
    folds: IntArray  # of their documents; -1 where no item can be held out, (n_sampled,)
    truth: Matrix  # 1 where they carry a seen label, else 0, (n_sampled, n_seen)
    are_held_out: bool

    def thinned(self, most: int) -> _Sample:
        """Return so many of the items at the most, evenly spaced."""
        n_items = len(self.items)
        numbers = np.arange(n_items)
        positions = spaced(numbers, most)
        return self._replace(
            items=self.items[positions],
            documents=self.documents[positions],
            folds=self.folds[positions],
            truth=self.truth[positions],
        )


class _FoldPredictions(NamedTuple):
    """What members predict for sampled items of the fold that they have not seen."""

    logits: Matrix  # without votes and additions, (n_in_fold, n_labels)
    votes: Matrix  # labels' shares of known documents' votes, (n_in_fold, n_labels)
    probable: Matrix  # probabilities of seen labels by features, (n_in_fold, n_seen)
    unseen: Floats  # probabilities of unseen labels by true tags, (n_in_fold, n_unseen)
    any_unseen: Floats  # how probably an item holds any unseen label, (n_in_fold,)
    codes: Floats  # by the members of the fold, (n_in_fold, members_per_fold * code)
    code_sum: Floats  # of features alone, by all members, (n_members * code,)


class _HeldOut(NamedTuple):
    """What members predict for sampled items that they have not seen."""

    logits: Matrix  # without votes and additions, (n_sampled, n_labels)
    votes: Matrix  # labels' shares of known documents' votes, (n_sampled, n_labels)
    probable: Matrix  # probabilities of seen labels by features, (n_sampled, n_seen)
    expected: Matrix  # true seen labels, unseen ones as true tags suggest, (n_sampled, n_labels)
    any_unseen: Matrix  # how probably an item holds any unseen label, (n_sampled,)
    codes: Floats  # by the members of the fold, (n_sampled, members_per_fold * code)
    mean_code: Matrix  # of features alone, by all members, (n_members * code,)
    additions: Matrix | None  # of the linear path to seen labels, (n_sampled, n_seen)

    def mixed(self, slopes: Matrix, priming: float) -> Matrix:
        """Return the logits of all parts together, before calibration, (n_sampled, n_labels).

        `slopes` (n_labels,) are those of `Calibration`, `priming` is the share of votes.
        """
        scaled_logits = self.logits * slopes
        mixed = mix(scaled_logits, self.votes, priming)
        if self.additions is not None:
            n_seen = self.additions.shape[1]
            mixed[:, :n_seen] += self.additions
        return mixed


class _RidgePredictions(NamedTuple):
    """What a ridge regression predicts for sampled items of folds that it has not seen."""

    ridge: Ridge | KernelRidge
    predictions: Matrix  # deviations from labels' shares, (n_sampled, n_seen)
    measured: _Sample  # some of the sample, on which weight and shrinkage are chosen
    thinned: Matrix  # their predictions without some of their features, (n_measured, n_seen)
    spreads: Matrix  # standard deviations of `predictions`, (n_seen,)


class SpaceCalibration:
    """Learn the linear path, intercepts and thresholds on items that members had not seen.

    Parameters
    ----------
    space : ConceptSpace
        With members, axes, mean and covariance of documents' codes; `fit` sets its other fitted
        attributes.
    data : TrainingData
        That it was trained on.
    """

    def __init__(self, space: ConceptSpace, data: TrainingData) -> None:
        self.space = space
        self.data = data
        self.n_labels = data.n_labels
        self.n_seen = data.n_seen

    def fit(self, linear_weight: float | None) -> None:
        """Set what the space knows of items; without features, that it knows nothing.

        `linear_weight` is the weight of the linear path; None chooses it on held-out items.
        """
        space = self.space
        n_seen = self.n_seen
        self._set_empty()
        space.derive()
        if self.data.X is None:
            return

        generator = np.random.default_rng(space.plan_.n_steps)
        sample = self._draw_sample(generator)
        n_unseen = self.n_labels - n_seen
        slopes = np.repeat(SLOPES, (n_seen, n_unseen))
        additions, shrinkage = self._fit_linear_path(sample, slopes, linear_weight)
        slopes[:n_seen] *= shrinkage
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
        n_items = len(sample.items)
        permutation = generator.permutation(n_items)
        rows = np.sort(permutation[:_KEPT_ITEMS])
        space.held_out_sample_ = HeldOutSample(
            codes=held_out.codes[rows],
            folds=sample.folds[rows],
            weights=weights[rows],
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
        most_by_labels = _CALIBRATION_ITEMS * 2048 // self.n_labels
        most = min(_CALIBRATION_ITEMS, most_by_labels)
        most = max(_KEPT_ITEMS, most)
        n_items = len(data.item_documents)
        permutation = generator.permutation(n_items)
        items = np.sort(permutation[:most])
        documents = data.item_documents[items]
        item_folds = data.folds[data.item_documents]
        are_held_out = len(np.unique(item_folds)) > 1
        folds = np.full(len(items), -1)
        if are_held_out:
            folds = data.folds[documents]
        tags = data.documents[documents]
        seen_tags = tags[:, : self.n_seen].toarray()
        return _Sample(
            items=items,
            documents=documents,
            folds=folds,
            truth=np.asarray(seen_tags, dtype=np.float64),
            are_held_out=are_held_out,
        )

    def _draw_reference_sample(
        self,
        items: IntArray,
        weights: Matrix,
        generator: np.random.Generator,
        most: int = 256,
    ) -> ReferenceSample:
        """Draw some items and some of the pool that stand for all.

        Parameters
        ----------
        items : int64 array, shape (n_sampled,)
            Numbers of items, from which the tagged ones are drawn.
        weights : float64 array, shape (n_sampled,)
            For how many items each stands; one of the pool stands for one.
        generator : numpy Generator
        most : int
            How many are drawn in all.
        """
        data = self.data
        space = self.space
        assert data.X is not None
        n_items = len(data.item_documents)
        share_tagged = most * n_items / (n_items + data.n_pool)
        n_tagged = max(int(share_tagged), 1)
        rows = generator.permutation(len(items))[:n_tagged]
        tagged_items = items[rows]
        tables = [data.X[tagged_items]]
        table_weights = [weights[rows]]
        if data.pool is not None:
            n_untagged = most - len(rows)
            pool_rows = generator.permutation(data.n_pool)[:n_untagged]
            tables.append(data.pool[pool_rows])
            table_weights.append(np.ones(len(pool_rows)))
        codes = [space.item_codes(table) for table in tables]
        projections = [space.project(table) for table in tables]
        return ReferenceSample(
            codes=np.concatenate(codes),
            projections=np.concatenate(projections),
            weights=np.concatenate(table_weights),
        )

    # -------------------------------------------------------------- held-out predictions

    def _features(self, items: IntArray) -> Floats:
        """Return the standardised features of the items with some numbers."""
        assert self.data.X is not None
        features = self.data.X[items]
        return standardise(features, self.space.mean_, self.space.scale_)

    def _predict(
        self, sample: _Sample, additions: Matrix | None, *, thinned: bool = False
    ) -> _HeldOut:
        """Compute what members that have not seen them predict for sampled items.

        `additions` (n_sampled, n_seen) are what the linear path adds to the logits of seen labels.
        Some features of each item are left out where they are to be `thinned`.
        """
        n_items = len(sample.items)
        n_labels = self.n_labels
        n_seen = self.n_seen
        first_members = self._fold_members(int(sample.folds[0]))
        code_size = first_members.n_dimensions
        held_out = _HeldOut(
            logits=np.empty((n_items, n_labels)),
            votes=np.zeros((n_items, n_labels)),
            probable=np.empty((n_items, n_seen)),
            expected=np.zeros((n_items, n_labels)),
            any_unseen=np.zeros(n_items),
            codes=np.empty((n_items, code_size), dtype=np.float32),
            mean_code=np.zeros(self.space.members_.n_dimensions),
            additions=additions,
        )
        held_out.expected[:, :n_seen] = sample.truth
        fold_additions = None
        for fold in np.unique(sample.folds):
            rows = sample.folds == fold
            if additions is not None:
                fold_additions = additions[rows]
            predictions = self._predict_fold(sample, int(fold), fold_additions, thinned)
            held_out.logits[rows] = predictions.logits
            held_out.votes[rows] = predictions.votes
            held_out.probable[rows] = predictions.probable
            held_out.expected[rows, n_seen:] = predictions.unseen
            held_out.any_unseen[rows] = predictions.any_unseen
            held_out.codes[rows] = predictions.codes
            held_out.mean_code[:] += predictions.code_sum  # divided below
        mean_code = held_out.mean_code / n_items
        return held_out._replace(mean_code=mean_code)

    def _predict_fold(
        self, sample: _Sample, fold: int, additions: Matrix | None, thinned: bool
    ) -> _FoldPredictions:
        """Compute what the members of one fold, or all for -1, predict for its sampled items.

        `additions` (n_in_fold, n_seen) are those of the linear path; see `_predict`.
        """
        space = self.space
        n_seen = self.n_seen
        rows = sample.folds == fold
        members = self._fold_members(fold)
        features = self._features(sample.items[rows])
        if thinned:
            features = leave_out(features, seed=fold)
        n_items = len(features)
        member_codes = members.encode_items(features)
        direct = side_by_side(member_codes)
        seen_logits = members.mean_logits(direct)[:, :n_seen]
        if additions is not None:
            seen_logits = seen_logits + additions
        probable = sigmoid(seen_logits)

        # An item's code: its features', and that of its probable tags.
        tags = np.zeros((n_items, self.n_labels), dtype=np.float32)
        tags[:, :n_seen] = probable
        context = space.encode_context(tags, members)
        codes = space.compose(direct, context)
        logits = members.mean_logits(codes)[:, : self.n_labels]
        votes = np.zeros_like(logits)
        if space.priming and sample.are_held_out:
            votes = self.held_out_votes(fold, codes, sample.documents[rows])

        # Unseen labels are expected as an item's true tags suggest.
        truth = sample.truth[rows].astype(np.float32)
        unseen_outputs, _ = mean_predictions(members, features, truth)
        n_unseen = self.n_labels - n_seen
        any_unseen = np.zeros(n_items, dtype=np.float32)
        if n_unseen:
            any_unseen = unseen_outputs[:, -1]
        all_member_codes = space.members_.encode_items(features)
        all_codes = side_by_side(all_member_codes)
        return _FoldPredictions(
            logits=logits,
            votes=votes,
            probable=probable,
            unseen=unseen_outputs[:, :n_unseen],
            any_unseen=any_unseen,
            codes=codes,
            code_sum=all_codes.sum(axis=0),
        )

    def held_out_votes(self, fold: int, codes: Floats, left_out: IntArray) -> Matrix:
        """Compute the votes for items of a fold by known documents, but for their own.

        Parameters
        ----------
        fold : int
            Its members encode the documents as well.
        codes : float32 array, shape (n_items, members_per_fold * code)
            Of items, by the members of the fold.
        left_out : int64 array, shape (n_items,)
            The row of each item's own document.

        Returns
        -------
        float64 array, shape (n_items, n_labels)
            Labels' shares of the votes.
        """
        space = self.space
        documents = self.data.documents
        members = self._fold_members(fold)
        # The members' dimensions among those of all members side by side.
        code_size = members.n_dimensions
        first = fold * code_size
        stop = first + code_size
        axes = space.axes_[first:stop]
        mean_codes = space.document_mean_.ravel()
        mean_code = mean_codes[first:stop].astype(np.float32)
        centre = mean_code @ axes
        n_documents = documents.shape[0]
        n_axes = axes.shape[1]
        points = np.empty((n_documents, n_axes), dtype=np.float32)
        for start in range(0, n_documents, _BLOCK_DOCUMENTS):
            block = slice(start, start + _BLOCK_DOCUMENTS)
            member_codes = members.encode_sparse_documents(documents[block])
            document_codes = side_by_side(member_codes)
            coordinates = document_codes @ axes
            points[block] = unit_directions(coordinates - centre)
        item_coordinates = codes @ axes
        item_points = unit_directions(item_coordinates - centre)
        voters = Voters.of(points, documents)
        return voters.shares(item_points, left_out)

    def _fold_members(self, fold: int) -> Members:
        """Return the members that have not seen a fold; of fold -1, all."""
        space = self.space
        if fold < 0:
            return space.members_
        per_fold = space.plan_.members_per_fold
        start = fold * per_fold
        positions = slice(start, start + per_fold)
        return space.members_.select(positions)

    def _expected_frequencies(self, sample: _Sample, held_out: _HeldOut) -> tuple[Matrix, Matrix]:
        """Return the weights of sampled items, and how often labels are expected on items.

        Two float64 arrays, (n_sampled,) and (n_labels,).
        """
        data = self.data
        n_items = len(data.item_documents)
        weights = np.ones(len(sample.items))
        if self.space.plan_.selection_weights:
            weights = selection_weights(held_out.any_unseen)
        weighted_counts = weights @ held_out.expected
        on_items = weighted_counts / weights.sum()
        are_elsewhere = data.item_documents >= data.n_label_sets
        frequencies = expected_frequencies(
            priors=data.priors()[: self.n_labels],
            on_items=on_items,
            n_items=n_items,
            elsewhere=float(are_elsewhere.mean()),
        )
        return weights, frequencies

    # -------------------------------------------------------------- linear path

    def _fit_linear_path(
        self, sample: _Sample, slopes: Matrix, linear_weight: float | None
    ) -> tuple[Matrix | None, float]:
        """Fit the linear path, and set it in the space where it helps.

        Parameters
        ----------
        sample : _Sample
        slopes : float64 array, shape (n_labels,)
            Of raw logits, before shrinkage.
        linear_weight : float or None
            None chooses it.

        Returns
        -------
        additions : float64 array, shape (n_sampled, n_seen), or None
            What it adds to the logits of sampled items; None where it has no part: with very many
            features, and where it does not help.
        shrinkage : float
            A factor for the slopes of seen labels beside it.
        """
        assert self.data.X is not None
        n_features = self.data.X.shape[1]
        is_wanted = linear_weight != 0 and sample.are_held_out
        if n_features > MOST_FEATURES or not is_wanted:
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
        scaled_predictions = regression.predictions / regression.spreads
        coordinates = scaled_predictions @ loadings.T
        label_weights = path.labels.astype(np.float64)
        additions: Matrix = coordinates @ label_weights
        measured = regression.measured
        measured_rows = np.searchsorted(sample.items, measured.items)
        shrinkage = self._choose_shrinkage(measured, additions[measured_rows], slopes)
        labels = np.float32(shrinkage) * path.labels
        self.space.linear_ = path._replace(labels=labels)
        return shrinkage * additions, shrinkage

    def _fit_ridge(self, sample: _Sample) -> _RidgePredictions:
        """Fit a ridge regression, and predict sampled items without their folds."""
        data = self.data
        n_seen = self.n_seen
        item_tags = data.documents[data.item_documents]
        carried = sp.csr_matrix(item_tags[:, :n_seen])
        item_folds = data.folds[data.item_documents]
        ridge = fit_ridge(self._features, carried, item_folds)

        measured = sample.thinned(ranked_items(n_seen))
        n_sampled = len(sample.items)
        n_measured = len(measured.items)
        predictions = np.empty((n_sampled, n_seen))
        thinned = np.empty((n_measured, n_seen))
        for fold_number in np.unique(sample.folds):
            fold = int(fold_number)
            rows = sample.folds == fold
            measured_rows = measured.folds == fold
            features = self._features(sample.items[rows])
            measured_features = self._features(measured.items[measured_rows])
            thinned_features = leave_out(measured_features, seed=fold)
            tables = (features, thinned_features)
            fold_predictions, fold_thinned = ridge.predict(tables, without=fold)
            predictions[rows] = fold_predictions
            thinned[measured_rows] = fold_thinned
        return _RidgePredictions(
            ridge=ridge,
            predictions=predictions,
            measured=measured,
            thinned=thinned,
            spreads=prediction_spreads(predictions),
        )

    def _choose_weight(self, regression: _RidgePredictions, slopes: Matrix) -> float:
        """Return the weight by which measured items are ranked best; see `choose_weight`."""
        measured = regression.measured
        held_out = self._predict(measured, None, thinned=True)
        item_weights, frequencies = self._expected_frequencies(measured, held_out)
        logits = held_out.mixed(slopes, self.space.priming)
        return choose_weight(
            logits=logits[:, : self.n_seen],
            predictions=regression.thinned / regression.spreads,
            truth=measured.truth,
            item_weights=item_weights,
            frequencies=frequencies[: self.n_seen],
        )

    def _choose_shrinkage(self, sample: _Sample, additions: Matrix, slopes: Matrix) -> float:
        """Return the factor of seen labels' logits that gives the likeliest probabilities.

        It is one of `SHRINKAGES`; `additions` (n_sampled, n_seen) and `slopes` (n_labels,) are
        those before shrinkage.
        """
        held_out = self._predict(sample, additions)
        weights, frequencies = self._expected_frequencies(sample, held_out)
        seen_frequencies = frequencies[: self.n_seen]
        losses = []
        for factor in SHRINKAGES:
            shrunk = held_out._replace(additions=factor * additions)
            logits = shrunk.mixed(factor * slopes, self.space.priming)
            seen_logits = logits[:, : self.n_seen]
            loss = calibrated_log_loss(seen_logits, sample.truth, weights, seen_frequencies)
            losses.append(loss)
        best = int(np.argmin(losses))
        return SHRINKAGES[best]
