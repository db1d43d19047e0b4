"""The concept space: documents, items and partial tag sets as codes, every label read from a code.

In: documents as sparse rows and features of items. Out: codes, logits, probabilities, and readouts
of labels that turn up later. No label strings here: columns are numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NamedTuple, Self, cast

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray

from polyseme._estimator import Estimator
from polyseme._folds import fold_numbers
from polyseme._threads import one_blas_thread, one_torch_thread
from polyseme._validation import (
    InputError,
    IntArray,
    RandomState,
    as_generator,
    check_device,
    check_fitted,
    check_number,
    draw_seed,
)
from polyseme.calibration import (
    PRECISIONS,
    Calibration,
    calibrate,
    expected_frequencies,
    logit,
    match_frequencies,
    sigmoid,
)
from polyseme.members import Members, Shape, aligned
from polyseme.persistence import plain, read_model, within, write_model
from polyseme.training import (
    CHECKPOINT,
    Features,
    SpacePlan,
    SpaceTraining,
    TrainingData,
    ask,
    fingerprint,
    selection_weights,
    standardise,
)

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
# How fast a known document's vote falls with its cosine to a code.
TEMPERATURE = 0.1
# Principal axes of documents' codes, in which known documents are kept and compared.
_AXES = 128
_DOCUMENTS = 8192
_VOTERS = 8192
# Items that levels are learned on, and of those how many are kept for labels that come later.
_CALIBRATED = 4096
_REFERENCE = 512
_BLOCK = 1024
# Of a new label's direction: on the variance of codes, more for a label of few documents; and how
# many documents its mean is worth.
_RIDGE = 0.3
_FEW = 20.0
_DOUBT = 2.0


class Readout(NamedTuple):
    """How labels are read from codes: probability = sigmoid(codes @ weights + intercepts).

    Attributes
    ----------
    weights : float64 array, shape (n_dimensions, n_labels)
    intercepts : float64 array, shape (n_labels,)
    """

    weights: Matrix
    intercepts: Matrix


class Reference(NamedTuple):
    """Training items as members that had not seen them code them.

    Attributes
    ----------
    codes : float32 array, shape (n, members_per_fold * code)
    folds : int64 array, shape (n,)
    weights : float64 array, shape (n,)
        What each item counts; empty where no item could be held out.
    """

    codes: Floats
    folds: IntArray
    weights: Matrix


class ConceptSpace(Estimator):
    """One space for documents, items and partial tag sets.

    A document encoder codes tag sets, an item encoder codes features, and one linear readout gives
    every label's logit from a code. There are several such members, one or two for each fold of
    documents that they never see; their codes side by side are one code, and the mean of their
    logits is one linear readout of it. An item's code is part what its features say and part what
    the tags say that it probably has.

    Parameters
    ----------
    n_folds : int, optional
        Folds of documents, 5 by default; fewer where there are fewer documents or groups.
    members_per_fold : int, optional
        Two by default, one where there are few documents or very many.
    n_steps : int, optional
        Training steps of every member.
    context : float
        Share of probable tags in an item's code.
    priming : float
        Share that the votes of known documents near an item's code have in its logits.
    plan : SpacePlan, optional
        Everything about the training that is not said above. By default one that is fitted to the
        size of the data, see `SpacePlan.sized`; one that is given is kept to.
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
    calibration_ : Calibration
        In the members' order of labels.
    reference_ : Reference
    mean_code_ : float64 array, shape (n_dimensions,), and mean_tags_ : float64, shape (n_seen,)
        What features say of an item on average, and which tags are probable on average: what
        evidence starts from.
    document_mean_, document_scatter_ : float64 arrays
        Mean (n_members, code) and covariance (n_members, code, code) of documents' codes, from
        which new labels get their readouts.
    axes_ : float32 array, shape (n_dimensions, n_axes)
        Principal axes of documents' codes; see `points`.
    mean_, scale_ : float64 arrays, shape (n_features,)
    history_ : list of dict
        Losses of documents and items, for every round of training.
    plan_ : SpacePlan
        As it was fitted to the size of the data.
    """

    def __init__(
        self,
        n_folds: int | None = None,
        members_per_fold: int | None = None,
        n_steps: int | None = None,
        context: float = CONTEXT,
        priming: float = PRIMING,
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
        self.plan = plan
        self.checkpoint = checkpoint
        self.device = device
        self.random_state = random_state

    # ------------------------------------------------------------------ learning

    def fit(
        self,
        documents: sp.csr_matrix,
        X: Features | None = None,
        own: IntArray | None = None,
        groups: IntArray | None = None,
        n_semantics: int | None = None,
        progress: Progress | None = None,
        trainer: Trainer | None = None,
    ) -> Self:
        """Learn from documents and items.

        Parameters
        ----------
        documents : csr_matrix, shape (m, n_labels)
            All documents, the items' own among them.
        X : float64 array or csr_matrix, shape (n, n_features), optional
            Without it the space is learned from documents alone.
        own : int64 array, shape (n,), optional
            Which document is each item's own; by default the first one's is the first, and so on.
        groups : int64 array, shape (m,), optional
            Documents of one group stay in one fold.
        n_semantics : int, optional
            The first so many documents are semantics documents; the others are items' own that
            are not among them. By default all.
        progress : callable, optional
            Takes rounds done, rounds in all and the last round's losses.
        trainer : callable, optional
            Who trains the members; by default this process, in threads. See
            `polyseme.cluster.RayTraining`.
        """
        self.check_parameters()
        data, seed = self.prepare(documents, X, own, groups, n_semantics)
        plan = self.plan_
        if trainer is not None:
            members, history = trainer(data, plan, seed, progress)
            return self.finish(data, members, history)
        device = check_device(self.device, owner=type(self).__name__)
        training = SpaceTraining(data, plan, seed, device)
        told = "" if self.checkpoint is None else fingerprint(data, plan)
        state = _TrainingState(self.checkpoint, told, seed)
        state.restore(training)

        def after() -> None:
            state.keep(training)
            if progress is not None:
                progress(training.round, plan.n_rounds, training.history[-1])

        with one_blas_thread():
            training.run(after=after)
        return self.finish(data, training.members.to("cpu"), training.history)

    def prepare(
        self,
        documents: sp.csr_matrix,
        X: Features | None,
        own: IntArray | None,
        groups: IntArray | None,
        n_semantics: int | None,
    ) -> tuple[TrainingData, int]:
        """Order labels, draw folds and fit the plan to the data.

        Parameters
        ----------
        documents, X, own, groups, n_semantics : as for `fit`

        Returns
        -------
        data : TrainingData
        seed : int
            Of the training: the interrupted one's, where there is a checkpoint.
        """
        generator = as_generator(self.random_state)
        seed = self._checkpoint_seed(draw_seed(generator))
        n_documents, n_labels = documents.shape
        n_items = 0 if X is None else X.shape[0]
        mine = np.arange(n_items) if own is None else np.asarray(own)
        if len(mine) != n_items or n_items > n_documents:
            raise InputError(
                f"There are {n_items} items and {n_documents} documents; say with `own` which "
                "document is each item's."
            )
        carried = np.ones(n_labels, dtype=bool)
        if X is not None:
            carried = np.asarray(documents[mine].sum(axis=0)).ravel() > 0
        self.order_ = np.concatenate([np.flatnonzero(carried), np.flatnonzero(~carried)])
        self.n_seen_ = int(carried.sum())
        self.plan_ = self._planned(n_documents, n_items)
        n_folds, draws = self.plan_.n_folds, np.random.default_rng(seed)
        folds = fold_numbers(n_documents, n_folds, draws, groups)
        self.mean_, self.scale_ = np.zeros(0), np.ones(0)
        if X is not None:
            self.mean_, self.scale_ = _column_statistics(X)
        data = TrainingData(
            sp.csr_matrix(documents[:, self.order_], dtype=np.float32),
            self.n_seen_,
            n_documents if n_semantics is None else n_semantics,
            folds,
            X,
            mine,
            self.mean_,
            self.scale_,
        )
        return data, seed

    def _planned(self, n_documents: int, n_items: int) -> SpacePlan:
        """Say how to train: as asked, and by the size of the data where nothing was asked."""
        plan = SpacePlan().sized(n_documents, n_items) if self.plan is None else self.plan
        asked = {"n_folds": self.n_folds, "members_per_fold": self.members_per_fold}
        told: dict[str, Any] = {name: one for name, one in asked.items() if one is not None}
        if self.n_steps is not None:
            told["n_steps"] = self.n_steps
            told["round_steps"] = min(plan.round_steps, max(self.n_steps // 4, 1))
        return replace(plan, **told).within(n_documents, n_items)

    def _checkpoint_seed(self, seed: int) -> int:
        """Give the seed of an interrupted run, where there is one, and a new one otherwise."""
        if self.checkpoint is None or not (Path(self.checkpoint) / "manifest.json").exists():
            return seed
        held = int(read_model(self.checkpoint, CHECKPOINT)[0]["seed"])
        if isinstance(self.random_state, (int, np.integer)) and held != seed:
            raise _other_training(self.checkpoint)
        return held

    def finish(self, data: TrainingData, members: Members, history: list[dict[str, float]]) -> Self:
        """Take over trained members and learn what follows from them: levels and references.

        Parameters
        ----------
        data : TrainingData
        members : Members
            All of them, on the processor.
        history : list of dict
        """
        self.members_, self.history_ = members, history
        self.priors_ = np.empty(data.n_labels)
        self.priors_[self.order_] = data.priors()[: data.n_labels]
        with one_blas_thread(), one_torch_thread():
            self._learn_scatter(data)
            self._learn_axes(data)
            self._learn_levels(data)
        return self

    def _learn_scatter(self, data: TrainingData) -> None:
        """Learn mean and covariance of documents' codes, member by member."""
        n_members, code = len(self.members_), self.plan_.code
        sums, squares = np.zeros((n_members, code)), np.zeros((n_members, code, code))
        m = data.documents.shape[0]
        for start in range(0, m, _BLOCK):
            codes = _side_by_side(self.members_.encode_rows(data.documents[start : start + _BLOCK]))
            split = codes.reshape(len(codes), n_members, code).transpose(1, 0, 2)
            sums += split.sum(axis=1, dtype=np.float64)
            squares += split.mT @ split
        self.document_mean_ = sums / m
        outer = self.document_mean_[:, :, None] * self.document_mean_[:, None]
        self.document_scatter_ = squares / m - outer

    def _learn_axes(self, data: TrainingData) -> None:
        """Learn the principal axes of documents' codes, from some thousand of them."""
        from sklearn.utils.extmath import randomized_svd

        m = data.documents.shape[0]
        rows = np.sort(np.random.default_rng(m).permutation(m)[:_DOCUMENTS])
        codes = _side_by_side(self.members_.encode_rows(data.documents[rows])).astype(np.float64)
        codes -= self.document_mean_.ravel()
        n_axes = min(_AXES, *codes.shape)
        _, _, axes = randomized_svd(codes, n_axes, random_state=0)
        self.axes_ = np.ascontiguousarray(axes.T, dtype=np.float32)

    def points(self, codes: Floats) -> Floats:
        """Give codes as directions on the principal axes, where cosines are compared.

        Parameters
        ----------
        codes : float32 array, shape (n, n_dimensions)

        Returns
        -------
        float32 array, shape (n, n_axes)
            Of length 1.
        """
        return _directions(codes - self.document_mean_.ravel().astype(np.float32), self.axes_)

    def _learn_levels(self, data: TrainingData) -> None:
        """Learn intercepts and thresholds on items that members had not seen."""
        n_labels, n_seen = data.n_labels, data.n_seen
        slopes = np.repeat(SLOPES, (n_seen, n_labels - n_seen))
        nothing = np.zeros(0)
        self.calibration_ = Calibration(np.ones(n_labels), np.zeros(n_labels), nothing, nothing)
        self.reference_ = Reference(
            np.zeros((0, 0), dtype=np.float32), np.zeros(0, dtype=np.int64), nothing
        )
        self.mean_code_, self.mean_tags_ = np.zeros(0), np.zeros(0)
        if data.X is None:
            return
        generator = np.random.default_rng(self.plan_.n_steps)
        n = len(data.own)
        # Tables of items by labels: with many labels fewer items will do.
        most = max(_REFERENCE, min(_CALIBRATED, _CALIBRATED * 2048 // n_labels))
        rows = np.sort(generator.permutation(n)[:most])
        held_out = len(np.unique(data.folds[data.own])) > 1
        folds = data.folds[data.own[rows]] if held_out else np.full(len(rows), -1)
        truth = np.asarray(data.documents[data.own[rows]][:, :n_seen].toarray())
        codes, probable = [], np.empty((len(rows), n_seen))
        primed = np.zeros((len(rows), n_labels))
        guessed, some = np.zeros((len(rows), n_labels)), np.zeros(len(rows))
        raw = np.empty((len(rows), n_labels))
        direct = np.zeros(self.n_dimensions)
        for fold in np.unique(folds):
            at = folds == fold
            features = data.standard(data.X[rows[at]])
            members = self._members_of(int(fold))
            coded, tags = _item_codes(members, features, n_seen, self.context)
            raw[at] = _read(members, coded)[:, :n_labels]
            if self.priming and held_out:
                primed[at] = self._held_out_votes(data, int(fold), coded, data.own[rows[at]])
            probable[at] = tags
            codes.append((np.flatnonzero(at), coded))
            direct += self._encode_items(features).sum(axis=0)
            unseen = ask(members, features, truth[at], n_seen).unseen
            guessed[at, :n_seen], guessed[at, n_seen:] = truth[at], unseen[:, : n_labels - n_seen]
            if unseen.shape[1]:
                some[at] = unseen[:, -1]
        self.mean_code_, self.mean_tags_ = direct / len(rows), probable.mean(axis=0)
        weights = np.ones(len(rows))
        if self.plan_.selection_weights:
            weights = selection_weights(some)
        if not held_out:
            self.calibration_ = Calibration(slopes, np.zeros(n_labels), nothing, nothing)
            return
        elsewhere = float((data.own >= data.n_semantics).mean())
        here = weights @ guessed / weights.sum()
        frequencies = expected_frequencies(data.priors()[:n_labels], here, n, elsewhere)
        mixed = mix(raw * slopes, primed, self.priming)
        self.calibration_ = calibrate(mixed, truth, weights, frequencies)._replace(slopes=slopes)
        kept = np.sort(generator.permutation(len(rows))[:_REFERENCE])
        table = np.empty((len(rows), codes[0][1].shape[1]), dtype=np.float32)
        for places, coded in codes:
            table[places] = coded
        self.reference_ = Reference(table[kept], folds[kept], weights[kept])

    def _held_out_votes(
        self, data: TrainingData, fold: int, codes: Floats, own: IntArray
    ) -> Matrix:
        """Let known documents but its own vote for each item, as members new to it code them."""
        members, documents = self._members_of(fold), data.documents
        per_fold, code = self.plan_.members_per_fold, self.plan_.code
        at = slice(fold * per_fold * code, (fold + 1) * per_fold * code)
        mean, axes = self.document_mean_.ravel()[at].astype(np.float32), self.axes_[at]
        known = np.empty((documents.shape[0], axes.shape[1]), dtype=np.float32)
        for start in range(0, len(known), _DOCUMENTS):
            rows = slice(start, start + _DOCUMENTS)
            coded = _side_by_side(members.encode_rows(documents[rows]))
            known[rows] = _directions(coded - mean, axes)
        return vote(_directions(codes - mean, axes), known, documents, left_out=own)

    # ------------------------------------------------------------------ codes

    @property
    def n_dimensions(self) -> int:
        """Dimensions of a code: all members' side by side."""
        return len(self.members_) * self.members_.shape.code

    def item_codes(self, X: Features, tags: sp.csr_matrix | None = None) -> Floats:
        """Give the codes of items.

        Parameters
        ----------
        X : float64 array or csr_matrix, shape (n, n_features)
        tags : csr_matrix, shape (n, n_labels), optional
            Labels that items are known to have.

        Returns
        -------
        float32 array, shape (n, n_dimensions)
        """
        check_fitted(self, "members_")
        codes = np.empty((X.shape[0], self.n_dimensions), dtype=np.float32)
        for start in range(0, len(codes), _BLOCK):
            rows = slice(start, start + _BLOCK)
            codes[rows] = self.compose(*self.views(X[rows], None if tags is None else tags[rows]))
        return codes

    def views(
        self, X: Features, tags: sp.csr_matrix | None = None
    ) -> tuple[Floats, NDArray[np.float32]]:
        """Give the two halves of what is known of some items.

        Parameters
        ----------
        X, tags : as for `item_codes`
            As many as may be held as a table over all labels.

        Returns
        -------
        direct : float32 array, shape (n, n_dimensions)
            Codes of the features.
        probable : float32 array, shape (n, n_labels)
            Tags that items probably have, in the order of members; given ones are 1.
        """
        check_fitted(self, "members_")
        direct = self._encode_items(standardise(X, self.mean_, self.scale_))
        probable = np.zeros((len(direct), len(self.order_)), dtype=np.float32)
        probable[:, : self.n_seen_] = sigmoid(_read(self.members_, direct)[:, : self.n_seen_])
        if tags is not None:
            given = np.asarray(tags[:, self.order_].toarray(), dtype=np.float32)
            np.maximum(probable, given, out=probable)
        return direct, probable

    def compose(self, direct: Floats, probable: Floats) -> Floats:
        """Put an item's two halves together; see `views`."""
        context = self.encode_tags(probable)
        return np.asarray((1 - self.context) * direct + self.context * context, dtype=np.float32)

    def document_codes(self, tags: sp.csr_matrix) -> Floats:
        """Give the codes of documents or partial tag sets.

        Parameters
        ----------
        tags : csr_matrix, shape (n, n_labels)

        Returns
        -------
        float32 array, shape (n, n_dimensions)
        """
        check_fitted(self, "members_")
        ordered = sp.csr_matrix(tags)[:, self.order_]
        return _side_by_side(self.members_.encode_rows(ordered))

    def document_points(self, tags: sp.csr_matrix) -> Floats:
        """Give the points of documents, (n, n_axes), some rows at a time; see `points`."""
        found = np.empty((tags.shape[0], self.axes_.shape[1]), dtype=np.float32)
        with one_torch_thread():
            for start in range(0, len(found), _BLOCK):
                rows = slice(start, start + _BLOCK)
                found[rows] = self.points(self.document_codes(tags[rows]))
        return found

    def encode_tags(self, tags: Floats) -> Floats:
        """Give the codes of probable tags, (n, n_labels) in the order of members; see `views`."""
        return _side_by_side(self.members_.encode_documents(torch.from_numpy(tags)))

    def _encode_items(self, features: Floats) -> Floats:
        """Code standardised features."""
        return _side_by_side(self.members_.encode_items(torch.from_numpy(features)))

    def _members_of(self, fold: int) -> Members:
        """Give the members that have not seen a fold; of fold -1, all."""
        if fold < 0:
            return self.members_
        per_fold = self.plan_.members_per_fold
        return self.members_.select(slice(fold * per_fold, (fold + 1) * per_fold))

    # ------------------------------------------------------------------ labels

    def readout(self, *, of_items: bool = True) -> Readout:
        """Give how all labels are read, in the order of columns.

        Parameters
        ----------
        of_items : bool
            Whether from items' codes, with their levels, or from those of tag sets. The logits of
            items are then mixed with those of votes; see `mix`.
        """
        n_labels = len(self.order_)
        weights, bias = _stacked(self.members_)
        slopes, intercepts = np.ones(n_labels), np.zeros(n_labels)
        if of_items:
            slopes, intercepts = self.calibration_.slopes, self.calibration_.intercepts
        place = np.argsort(self.order_)
        times = slopes * (1 - self.priming if of_items else 1.0)
        found = Readout(weights[:, :n_labels] * times, bias[:n_labels] * times + intercepts)
        return Readout(found.weights[:, place], found.intercepts[place])

    def thresholds(self, precision: float) -> tuple[float, float]:
        """Say how likely seen and unseen labels must be for a share of them to be true."""
        levels = self.calibration_
        if not len(levels.thresholds):
            raise InputError(
                "A precision is learned on training items that can be held out; here all of them "
                "are of one group, or there is but one."
            )
        seen = np.interp(precision, PRECISIONS, levels.thresholds)
        return float(seen), float(np.interp(precision, PRECISIONS, levels.unseen_thresholds))

    @property
    def typical_frequency(self) -> float:
        """How often documents hold a label, by the geometric mean over labels."""
        return float(np.exp(np.log(self.priors_).mean()))

    def readout_of_documents(
        self, codes: Floats, holding: sp.csr_matrix, frequencies: Matrix
    ) -> tuple[Readout, Readout]:
        """Give how new labels are read, in closed form from the documents that hold them.

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
        counts = np.maximum(np.asarray(holding.sum(axis=0), dtype=np.float64).ravel(), 1)
        n_members, code = self.document_mean_.shape
        means = np.asarray(holding.T @ codes.astype(np.float64)) / counts[:, None]
        centre = self.document_mean_[..., None]
        gaps = means.reshape(-1, n_members, code).transpose(1, 2, 0) - centre
        gaps = gaps * counts / (counts + _DOUBT)
        spread = np.trace(self.document_scatter_, axis1=1, axis2=2) / code
        # The fewer documents hold a label, the less is made of directions that hardly scatter.
        ridge = spread[:, None, None] * (_RIDGE + _FEW / counts)
        values, axes = np.linalg.eigh(self.document_scatter_)
        directions = axes @ (axes.mT @ gaps / (np.maximum(values, 0)[..., None] + ridge))
        middle = centre + 0.5 * gaps
        bias = -(directions * middle).sum(axis=1).mean(axis=0)
        weights = directions.reshape(n_members * code, -1) / n_members
        prior = np.log(frequencies) - np.log1p(-frequencies)
        # Items lie less far apart than the documents that directions are learned from: with many
        # documents half the slope is right, with one or two nearly all of it.
        slopes = 0.5 * (1 + _DOUBT / (counts + _DOUBT))
        of_items = Readout(weights * slopes, bias * slopes + prior)
        levelled = self._levelled(of_items, directions * slopes, frequencies)
        return levelled, Readout(weights, bias + prior)

    def readout_of_names(self, likeness: Matrix) -> tuple[Readout, Readout]:
        """Give how labels that are known by name alone are read: as the seen labels they are like.

        Parameters
        ----------
        likeness : float64 array, shape (n_new, n_seen)
            What each seen label's deviation from its mean counts.

        Returns
        -------
        of_items, of_tags : Readout
        """
        n_members, code = self.document_mean_.shape
        seen = self.members_.labels[..., : self.n_seen_].numpy().astype(np.float64)
        directions = seen @ likeness.T * SLOPES[0]
        typical = np.full(len(likeness), self.typical_frequency)
        bias = -(directions * self.document_mean_[..., None]).sum(axis=1).mean(axis=0)
        weights = directions.reshape(n_members * code, -1) / n_members
        raw = Readout(weights, bias + np.log(typical) - np.log1p(-typical))
        return self._levelled(raw, directions, typical), raw

    def _levelled(self, raw: Readout, directions: Matrix, frequencies: Matrix) -> Readout:
        """Bring new labels to the frequency that is expected of them on reference items."""
        reference = self.reference_
        if not len(reference.weights):
            return raw
        per_fold, code = self.plan_.members_per_fold, self.plan_.code
        logits = np.empty((len(reference.codes), directions.shape[2]))
        for fold in np.unique(reference.folds):
            at = reference.folds == fold
            some = directions[fold * per_fold : (fold + 1) * per_fold]
            logits[at] = reference.codes[at] @ some.reshape(per_fold * code, -1) / per_fold
        intercepts = match_frequencies(logits, reference.weights, frequencies)
        return Readout(raw.weights, intercepts)

    # ------------------------------------------------------------------ checks and persistence

    def check_parameters(self) -> None:
        """Raise on a parameter out of its range."""
        owner = type(self).__name__
        if self.n_folds is not None:
            check_number("n_folds", self.n_folds, owner=owner, low=2, whole=True)
        if self.members_per_fold is not None:
            check_number("members_per_fold", self.members_per_fold, owner=owner, low=1, whole=True)
        check_number("context", self.context, owner=owner, low=0, high=1)
        check_number("priming", self.priming, owner=owner, low=0, high=1)
        if self.n_steps is not None:
            check_number("n_steps", self.n_steps, owner=owner, low=1, whole=True)
        check_device(self.device, owner=owner)
        (self.plan or SpacePlan()).check()

    def get_state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Give the fitted space as JSON values and arrays, for saving without pickle."""
        check_fitted(self, "members_")
        config = {
            "parameters": {name: plain(getattr(self, name)) for name in _PARAMETERS},
            "asked": None if self.plan is None else _plan_values(self.plan),
            "plan": _plan_values(self.plan_),
            "n_seen": self.n_seen_,
            "shape": list(self.members_.shape),
            "history": self.history_,
        }
        arrays = {f"members.{place}": one.numpy() for place, one in enumerate(self.members_.groups)}
        arrays |= {f"calibration.{name}": one for name, one in self.calibration_._asdict().items()}
        arrays |= {f"reference.{name}": one for name, one in self.reference_._asdict().items()}
        return config, arrays | {name: getattr(self, f"{name}_") for name in _ARRAYS}

    @classmethod
    def from_state(
        cls, config: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]
    ) -> ConceptSpace:
        """Rebuild a fitted space from `get_state`."""
        plan = _plan_of(config["plan"])
        asked = None if config["asked"] is None else _plan_of(config["asked"])
        made = cls(plan=asked, **config["parameters"])
        made.plan_, made.n_seen_ = plan, int(config["n_seen"])
        made.history_ = list(config["history"])
        groups = within(arrays, "members")
        tensors = [torch.from_numpy(np.array(groups[str(place)])) for place in range(3)]
        made.members_ = Members(Shape(*config["shape"]), *tensors)
        made.calibration_ = Calibration(**_copies(arrays, "calibration"))
        made.reference_ = Reference(**_copies(arrays, "reference"))
        for name in _ARRAYS:
            setattr(made, f"{name}_", np.array(arrays[name]))
        return made


_PARAMETERS = ("n_folds", "members_per_fold", "n_steps", "context", "priming")
_ARRAYS = (
    "order",
    "priors",
    "mean",
    "scale",
    "mean_code",
    "mean_tags",
    "document_mean",
    "document_scatter",
    "axes",
)


def _copies(arrays: Mapping[str, NDArray[Any]], part: str) -> dict[str, NDArray[Any]]:
    """Give the arrays of a part under their own names."""
    return {name: np.array(one) for name, one in within(arrays, part).items()}


def _plan_values(plan: SpacePlan) -> dict[str, Any]:
    """Give a plan as values that JSON knows."""
    return {
        name: [plain(one) for one in value] if isinstance(value, tuple) else plain(value)
        for name, value in asdict(plan).items()
    }


def _plan_of(values: Mapping[str, Any]) -> SpacePlan:
    """Rebuild a plan from `_plan_values`."""
    tuples = {name: tuple(one) if isinstance(one, list) else one for name, one in values.items()}
    return SpacePlan(**cast("dict[str, Any]", tuples))


def _column_statistics(X: Features) -> tuple[Matrix, Matrix]:
    """Give means and spreads of columns, 1 for columns that never change; sparse stays sparse."""
    mean = np.asarray(X.mean(axis=0), dtype=np.float64).ravel()
    if sp.issparse(X):
        n, n_columns = X.shape
        away = (X.data - mean[X.indices]) ** 2
        sums = np.bincount(X.indices, weights=away, minlength=n_columns)
        n_zero = n - np.bincount(X.indices, minlength=n_columns)
        spread = np.sqrt((sums + n_zero * mean**2) / max(n, 1))
    else:
        spread = np.asarray(X.std(axis=0), dtype=np.float64)
    # What is left of a large constant by rounding is no spread.
    return mean, np.where(spread > np.maximum(1e-12, 1e-9 * np.abs(mean)), spread, 1.0)


def _side_by_side(codes: torch.Tensor) -> Floats:
    """Give codes (n_members, n, code) as rows (n, n_members * code)."""
    n_members, n, code = codes.shape
    return np.ascontiguousarray(codes.numpy().transpose(1, 0, 2)).reshape(n, n_members * code)


def _stacked(members: Members) -> tuple[Matrix, Matrix]:
    """Give the one readout that members side by side have: weights and bias."""
    weights = members.labels.numpy().astype(np.float64) / len(members)
    bias = members.bias.numpy()[:, 0].astype(np.float64).mean(axis=0)
    return weights.reshape(-1, weights.shape[2]), bias


def _read(members: Members, codes: Floats) -> Matrix:
    """Give the mean of members' raw logits from codes that are side by side, (n, n_outputs)."""
    split = torch.from_numpy(codes.reshape(len(codes), len(members), -1)).transpose(0, 1)
    return members.read(aligned(split)).mean(dim=0).numpy().astype(np.float64)


def _item_codes(
    members: Members, features: Floats, n_seen: int, context: float
) -> tuple[Floats, Matrix]:
    """Code items by some members: their codes, and probable seen tags."""
    direct = _side_by_side(members.encode_items(torch.from_numpy(features)))
    probable = sigmoid(_read(members, direct)[:, :n_seen])
    tags = np.zeros((len(features), members.shape.n_labels), dtype=np.float32)
    tags[:, :n_seen] = probable
    beside = _side_by_side(members.encode_documents(torch.from_numpy(tags)))
    codes = np.asarray((1 - context) * direct + context * beside, dtype=np.float32)
    return codes, probable


def _directions(codes: Floats, axes: Floats) -> Floats:
    """Give centred codes on axes, each of length 1."""
    placed = codes @ axes
    lengths = np.sqrt(np.einsum("ij,ij->i", placed, placed))[:, None]
    return np.asarray(placed / np.maximum(lengths, 1e-12), dtype=np.float32)


def vote(
    points: Floats,
    known: Floats,
    documents: sp.csr_matrix,
    *,
    counts: IntArray | None = None,
    left_out: IntArray | None = None,
) -> Matrix:
    """Let known documents vote for their labels, the nearer the more (priming).

    Parameters
    ----------
    points : float32 array, shape (n, n_axes)
        Of items, or of anything that has a code; see `ConceptSpace.points`.
    known : float32 array, shape (m, n_axes)
        Points of known documents.
    documents : csr_matrix, shape (m, n_labels)
        What documents hold.
    counts : int64 array, shape (m,), optional
        How often each votes; by default once.
    left_out : int64 array, shape (n,), optional
        A document that has no vote, for each point; -1: none.

    Returns
    -------
    float64 array, shape (n, n_labels)
        Shares of votes, between 0 and 1.
    """
    n_labels = documents.shape[1]
    votes, total = np.zeros((len(points), n_labels)), np.zeros(len(points))
    for start in range(0, len(known), _VOTERS):
        stop = min(start + _VOTERS, len(known))
        # Cosines are at most 1, so that nothing overflows and nothing has to be gone over again.
        strength = np.exp((points @ known[start:stop].T - 1) / TEMPERATURE)
        if counts is not None:
            strength = strength * counts[start:stop].astype(np.float32)
        if left_out is not None:
            mine = np.flatnonzero((left_out >= start) & (left_out < stop))
            strength[mine, left_out[mine] - start] = 0
        votes += np.asarray(strength @ documents[start:stop])
        total += strength.sum(axis=1, dtype=np.float64)
    return np.asarray(votes / np.maximum(total, 1e-30)[:, None])


def mix(logits: Matrix, votes: Matrix, share: float) -> Matrix:
    """Give logits of which votes have a share.

    Parameters
    ----------
    logits : float64 array, shape (n, n_labels)
        Of the readout.
    votes : float64 array, shape (n, n_labels)
        Shares of votes; see `vote`.
    share : float

    Returns
    -------
    float64 array, shape (n, n_labels)
    """
    return np.asarray((1 - share) * logits + share * logit(votes)) if share else logits


def _other_training(path: str | Path) -> InputError:
    """Build the error for a folder that holds the state of another training."""
    return InputError(
        f"The checkpoint at '{path}' belongs to other data or parameters; remove it or name "
        "another folder."
    )


class _TrainingState:
    """The folder that holds an interrupted training, if any.

    Parameters
    ----------
    path : str, Path or None
        None keeps nothing.
    fingerprint : str
        Of data and plan; a folder with another one is refused.
    seed : int
    """

    def __init__(self, path: str | Path | None, fingerprint: str, seed: int) -> None:
        self.path = None if path is None else Path(path)
        self.fingerprint = fingerprint
        self.seed = seed

    def restore(self, training: SpaceTraining) -> None:
        """Put a training where the interrupted one stood; do nothing if there is none."""
        if self.path is None or not (self.path / "manifest.json").exists():
            return
        config, arrays = read_model(self.path, CHECKPOINT)
        if config["fingerprint"] != self.fingerprint:
            raise _other_training(self.path)
        training.set_state(arrays, int(config["round"]), config["history"])

    def keep(self, training: SpaceTraining) -> None:
        """Write the state at the end of a round."""
        if self.path is None:
            return
        config: dict[str, Any] = {
            "fingerprint": self.fingerprint,
            "seed": self.seed,
            "round": training.round,
            "history": training.history,
        }
        write_model(self.path, CHECKPOINT, config, training.get_state())
