"""Step 4b: experts that read an instance, and the labels they agree on.

In: features of instances with their labels, and documents. Out: a logit for every label: seen
labels by kernel and networks, unseen ones by what the instance's other labels suggest, linearly
and in context, and by networks that learned from soft targets.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from polyseme._estimator import Estimator
from polyseme._folds import fold_numbers
from polyseme._threads import one_thread_below
from polyseme._validation import (
    InputError,
    IntArray,
    RandomState,
    as_generator,
    check_number,
    check_option,
    draw_seed,
)
from polyseme.experts.blending import as_probabilities, blend, logit, sigmoid
from polyseme.experts.documents import DocumentExpert
from polyseme.experts.instances import Features, InstanceNetworks, out_of_fold
from polyseme.experts.levels import (
    PRECISIONS,
    HeldOut,
    Readings,
    expected_frequencies,
    label_priors,
    learn_levels,
)
from polyseme.experts.saving import experts_from_state, experts_state
from polyseme.experts.transfer import PENALTIES, choose_transfer_penalty
from polyseme.mapping import InstanceMapper
from polyseme.nn.devices import check_device

Matrix = NDArray[np.float64]

# An instance stands for at most so many others.
_MOST_CERTAIN = 0.9
# Instances whose readings are kept.
_REFERENCE = 512
SEEN_EXPERTS = ("kernel", "network")
UNSEEN_EXPERTS = ("linear", "context", "direct")
# Of seen and of unseen labels; results/default-model.md has the search.
SLOPES = (1.1, 1.4)


class LabelExperts(Estimator):
    """Score labels for instances by experts of several kinds, which blend into one probability.

    Parameters
    ----------
    n_folds : int
        Folds of documents and instances: what an expert says about training instances is always
        said by one that had not seen them.
    nets_per_fold : int
        Instance networks for each fold.
    document_steps, instance_steps : int, optional
        Training steps of the two kinds of networks; by default 1,200 and 300 for some thousand
        documents and instances, fewer for few and more for many.
    use_weights : bool
        Whether training instances, which hold no unseen label, are weighted so that they stand
        for a natural mix of instances.
    use_shifts : bool
        Whether labels are moved to be expected as often as they should be; see
        `expected_frequencies`.
    seen_experts : sequence of {"kernel", "network"}
        Who is asked about seen labels.
    unseen_experts : sequence of {"linear", "context", "direct"}
        Who is asked about unseen labels.
    slopes : (float, float)
        What the logits of seen and of unseen labels are multiplied by before they are shifted:
        experts err apart from each other, so that together they are more certain than their mean
        says. A single expert is taken at its word.
    device : str
        Where networks are trained, as torch names it: "cpu", "cuda". They are used on the
        processor. Another device draws other numbers, so its results differ slightly.
    random_state : int, numpy Generator or None

    Attributes
    ----------
    seen_, unseen_ : int64 arrays
        Columns with and without training instances.
    priors_ : float64 array, shape (n_labels,)
        How often documents hold each label.
    frequencies_ : float64 array, shape (n_labels,)
        How often instances are expected to have each label; see `expected_frequencies`.
    mapper_ : InstanceMapper
        Kernel ridge regression onto seen labels.
    documents_ : DocumentExpert
    networks_ : InstanceNetworks
    penalty_ : float
        Of the regression from seen to unseen labels, chosen on labels made pseudo-unseen.
    levels_ : Levels
        Shifts of labels, and thresholds by precision, learned on training instances that the
        experts had not seen.
    reference_ : dict of str to float64 array
        Some training instances' held-out readings "kernel" and "network", by which labels that
        turn up later find their level.
    reference_weights_ : float64 array, shape (n_reference,)
        What each of these instances counts; empty where none could be held out.
    """

    def __init__(
        self,
        n_folds: int = 5,
        nets_per_fold: int = 2,
        document_steps: int | None = None,
        instance_steps: int | None = None,
        use_weights: bool = True,
        use_shifts: bool = True,
        seen_experts: tuple[str, ...] = SEEN_EXPERTS,
        unseen_experts: tuple[str, ...] = UNSEEN_EXPERTS,
        slopes: tuple[float, float] = SLOPES,
        device: str = "cpu",
        random_state: RandomState = None,
    ) -> None:
        self.n_folds = n_folds
        self.nets_per_fold = nets_per_fold
        self.document_steps = document_steps
        self.instance_steps = instance_steps
        self.use_weights = use_weights
        self.use_shifts = use_shifts
        self.seen_experts = seen_experts
        self.unseen_experts = unseen_experts
        self.slopes = slopes
        self.device = device
        self.random_state = random_state

    def fit(
        self,
        X: Features,
        matrix: sp.csr_matrix,
        documents: sp.csr_matrix,
        own: IntArray,
        groups: IntArray | None = None,
        n_semantics: int | None = None,
    ) -> Self:
        """Learn from instances and documents.

        Parameters
        ----------
        X : array or csr_matrix, shape (n, n_features)
        matrix : csr_matrix, shape (n, n_labels)
            The labels of the instances.
        documents : csr_matrix, shape (m, n_labels)
            All documents, the instances' own among them.
        own : int64 array, shape (n,)
            Which document is each instance's own.
        groups : int64 array, shape (m,), optional
            Documents of one group stay in one fold.
        n_semantics : int, optional
            The first so many documents are semantics documents; the others are instances' own
            that are not among them. By default all.
        """
        self._check_parameters()
        n_first = documents.shape[0] if n_semantics is None else n_semantics
        with one_thread_below(documents.shape[1]):
            return self._fit(X, matrix, documents, own, groups, n_first)

    def _fit(
        self,
        X: Features,
        matrix: sp.csr_matrix,
        documents: sp.csr_matrix,
        own: IntArray,
        groups: IntArray | None,
        n_semantics: int,
    ) -> Self:
        """Learn, step by step; see `fit`."""
        generator = as_generator(self.random_state)
        carried = np.asarray(matrix.sum(axis=0)).ravel() > 0
        self.seen_, self.unseen_ = np.flatnonzero(carried), np.flatnonzero(~carried)
        n_documents = documents.shape[0]
        counts = np.asarray(documents.sum(axis=0), dtype=np.float64).ravel()
        self.priors_ = label_priors(counts, n_documents, self.unseen_, n_semantics)
        truth = np.asarray(matrix[:, self.seen_].toarray(), dtype=np.float64)
        folds = fold_numbers(n_documents, self.n_folds, generator, groups)
        mine = folds[own]
        mapper = InstanceMapper(kind="kernel-ridge", random_state=draw_seed(generator))
        self.mapper_ = mapper.fit(X, truth, None if groups is None else groups[own])
        kernel = out_of_fold(self.mapper_, X, truth, mine)
        ordered = sp.csr_matrix(documents[:, self._order], dtype=np.float64)
        self.penalty_ = self._choose_penalty(kernel, truth, ordered[:n_semantics], generator)
        self.documents_ = DocumentExpert.learn(
            ordered,
            len(self.seen_),
            folds,
            self.penalty_,
            self.priors_[self._order],
            self.document_steps,
            generator,
            self.device,
            n_semantics,
        )
        soft, some = self.documents_.soft_targets(ordered, folds, own, self.penalty_, n_semantics)
        weights = np.ones(len(truth))
        if self.use_weights:
            weights = 1 / (1 - np.minimum(some, _MOST_CERTAIN))
            weights /= weights.mean()
        targets = np.hstack([truth, soft])
        self.networks_ = InstanceNetworks.learn(
            X,
            targets,
            weights,
            mine,
            n_folds=int(folds.max()) + 1,
            nets_per_fold=self.nets_per_fold,
            n_steps=self.instance_steps,
            generator=generator,
            device=self.device,
        )
        fresh = float((own >= n_semantics).mean())
        by_column = targets[:, np.argsort(self._order)]
        self.frequencies_ = expected_frequencies(self.priors_, by_column, weights, fresh)
        self._held_out = HeldOut(self._held_out_readings(X, kernel, mine), truth, weights)
        held_out = len(np.unique(mine)) > 1
        self._keep_reference(held_out, generator)
        return self._learn_levels(held_out)

    def _keep_reference(self, possible: bool, generator: np.random.Generator) -> None:
        """Keep held-out readings of some instances."""
        readings, _, weights = self._held_out
        n_kept = min(len(weights), _REFERENCE) if possible else 0
        kept = np.sort(generator.choice(len(weights), n_kept, replace=False))
        self.reference_ = {name: readings[name][kept] for name in SEEN_EXPERTS}
        self.reference_weights_ = weights[kept]

    def _learn_levels(self, possible: bool) -> Self:
        """Learn shifts and thresholds, where there are held-out readings."""
        readings, truth, weights = self._held_out
        frequencies = self.frequencies_ if self.use_shifts and possible else None
        columns = (self.seen_, self.unseen_)
        blended = self._blended(readings)
        self.levels_ = learn_levels(blended, truth, columns, weights, frequencies)
        return self

    def with_experts(
        self,
        seen: tuple[str, ...],
        unseen: tuple[str, ...],
        *,
        use_shifts: bool = True,
        slopes: tuple[float, float] | None = None,
    ) -> LabelExperts:
        """Give the same experts, of whom others are asked; nothing is trained again.

        Parameters
        ----------
        seen, unseen : tuples of str
            As `seen_experts` and `unseen_experts`.
        use_shifts : bool
        slopes : (float, float), optional
            By default those it has.

        Returns
        -------
        LabelExperts
            Needs experts that were fitted in this process, not loaded ones.
        """
        changed = {
            "seen_experts": seen,
            "unseen_experts": unseen,
            "use_shifts": use_shifts,
            "slopes": self.slopes if slopes is None else slopes,
        }
        if not hasattr(self, "_held_out"):
            raise InputError("Experts that were loaded hold no instances back; fit them anew.")
        other = LabelExperts(**(self.get_params() | changed))
        other._check_parameters()
        for name, value in vars(self).items():
            if name not in changed:
                setattr(other, name, value)
        return other._learn_levels(len(self.reference_weights_) > 0)

    # ------------------------------------------------------------------ asking

    def logits(self, X: Features, tags: Matrix | None = None) -> Matrix:
        """Give the logit of every label.

        Parameters
        ----------
        X : array or csr_matrix, shape (n, n_features)
        tags : float64 array, shape (n, n_labels), optional
            1 where an instance is known to have a label. The others move by what the concept
            networks conclude from them.

        Returns
        -------
        float64 array, shape (n, n_labels)
        """
        return self.logits_of(self.readings(X), tags)

    def logits_of(self, readings: Readings, tags: Matrix | None = None) -> Matrix:
        """Give the logits that readings come to; see `readings` and `logits`."""
        found = self._blended(readings) + self.levels_.shifts
        if tags is None:
            return found
        before = np.zeros((len(found), len(self._order)))
        before[:, : len(self.seen_)] = readings["network"]
        after = np.maximum(before, tags[:, self._order])
        found[:, self._order] += logit(self.documents_.in_context(after)) - logit(
            self.documents_.in_context(before)
        )
        return found

    def probabilities(self, X: Features, tags: Matrix | None = None) -> Matrix:
        """Give the probability of every label, (n, n_labels); see `logits`."""
        return sigmoid(self.logits(X, tags))

    def thresholds(self, precision: float) -> Matrix:
        """Say how likely each label must be for a share of them to be true, (n_labels,)."""
        if not len(self.reference_weights_):
            raise InputError(
                "A precision is learned on training instances that can be held out; here all of "
                "them are of one group, or there is but one."
            )
        found = np.full(len(self._order), self.unseen_threshold(precision))
        found[self.seen_] = np.interp(precision, PRECISIONS, self.levels_.thresholds)
        return found

    def unseen_threshold(self, precision: float) -> float:
        """Say how likely unseen labels must be for a share of them to be true."""
        return float(np.interp(precision, PRECISIONS, self.levels_.unseen_thresholds))

    def readings(self, X: Features) -> Readings:
        """Give what each expert says.

        Parameters
        ----------
        X : array or csr_matrix, shape (n, n_features)

        Returns
        -------
        dict of str to float64 array
            "kernel" and "network" on seen labels (n, n_seen), "linear", "context" and "direct"
            on unseen ones (n, n_unseen), all as probabilities.
        """
        kernel = np.asarray(self.mapper_.predict(X), dtype=np.float64)
        return self._readings(kernel.reshape(X.shape[0], -1), self.networks_.probabilities(X))

    def _readings(self, kernel: Matrix, networks: Matrix, fold: int | None = None) -> Readings:
        """Complete the readings of features by those of documents."""
        n_seen = len(self.seen_)
        network, direct = networks[:, :n_seen], networks[:, n_seen:]
        context = self.documents_.in_context(network, None if fold is None else [fold])
        return {
            "kernel": as_probabilities(kernel, self.priors_[self.seen_]),
            "network": network,
            "linear": as_probabilities(self.documents_.linear(kernel), self.priors_[self.unseen_]),
            "context": context[:, n_seen:],
            "direct": direct,
        }

    def seen_logits(self, readings: Readings) -> Matrix:
        """Give the logits of seen labels alone, (n, n_seen); see `readings`."""
        return self._blended_seen(readings) + self.levels_.shifts[self.seen_]

    @property
    def typical_frequency(self) -> float:
        """How often documents hold a label, by the geometric mean over labels."""
        return float(np.exp(np.log(self.priors_).mean()))

    def _blended_seen(self, readings: Readings) -> Matrix:
        """Blend the experts that are asked about seen labels."""
        return blend([readings[name] for name in self.seen_experts], self.slopes[0])

    def _blended(self, readings: Readings) -> Matrix:
        """Blend the experts that are asked."""
        found = np.empty((len(readings["network"]), len(self._order)))
        unseen = [readings[name] for name in self.unseen_experts]
        found[:, self.seen_] = self._blended_seen(readings)
        found[:, self.unseen_] = blend(unseen, self.slopes[1])
        return found

    def _held_out_readings(self, X: Features, kernel: Matrix, folds: IntArray) -> Readings:
        """Give the readings of training instances by experts that had not seen them."""
        found: Readings = {}
        for fold in np.unique(folds):
            held = folds == fold
            networks = self.networks_.probabilities(X[held], int(fold))
            for name, part in self._readings(kernel[held], networks, int(fold)).items():
                found.setdefault(name, np.empty((len(kernel), part.shape[1])))[held] = part
        return found

    @property
    def _order(self) -> IntArray:
        """Columns as documents and networks have them: seen labels first."""
        return np.concatenate([self.seen_, self.unseen_])

    def _choose_penalty(
        self,
        kernel: Matrix,
        truth: Matrix,
        ordered: sp.csr_matrix,
        generator: np.random.Generator,
    ) -> float:
        """Choose the penalty of the regression from seen to unseen labels."""
        inputs = ordered[:, : len(self.seen_)]
        return choose_transfer_penalty(kernel, truth, inputs, PENALTIES, self.n_folds, generator)

    def _check_parameters(self) -> None:
        """Raise on a parameter out of its range."""
        owner = type(self).__name__
        check_number("n_folds", self.n_folds, owner=owner, low=2, whole=True)
        check_device(self.device, owner=owner)
        for name in ("nets_per_fold", "document_steps", "instance_steps"):
            if getattr(self, name) is not None:
                check_number(name, getattr(self, name), owner=owner, low=1, whole=True)
        for name, known in (("seen_experts", SEEN_EXPERTS), ("unseen_experts", UNSEEN_EXPERTS)):
            if not getattr(self, name):
                raise InputError(f"`{name}` of `{owner}` must name one expert at least.")
            for one in getattr(self, name):
                check_option(name, one, known, owner=owner)
        if not isinstance(self.slopes, (tuple, list)) or len(self.slopes) != 2:
            raise InputError(f"`slopes` of `{owner}` must be two numbers; got {self.slopes!r}.")
        for slope in self.slopes:
            check_number("slopes", slope, owner=owner, low=0, above=True)

    # ------------------------------------------------------------------ persistence

    def get_state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Give the fitted experts as JSON values and arrays, for saving without pickle."""
        return experts_state(self)

    @classmethod
    def from_state(
        cls, config: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]
    ) -> LabelExperts:
        """Rebuild fitted experts from `get_state`."""
        return experts_from_state(cls, config, arrays)
