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
from polyseme.experts.blending import (
    as_probabilities,
    blend,
    label_shifts,
    logit,
    precision_thresholds,
    sigmoid,
)
from polyseme.experts.documents import DocumentExpert
from polyseme.experts.instances import Features, InstanceNetworks, out_of_fold
from polyseme.experts.transfer import PENALTIES, choose_transfer_penalty
from polyseme.mapping import InstanceMapper

Matrix = NDArray[np.float64]
Readings = dict[str, Matrix]

# An instance stands for at most so many others.
_MOST_CERTAIN = 0.9
PRECISIONS = np.arange(1, 100) / 100
SEEN_EXPERTS = ("kernel", "network")
UNSEEN_EXPERTS = ("linear", "context", "direct")


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
        Training steps of the two kinds of networks; by default 600 and 300 for some thousand
        documents and instances, fewer for few and more for many.
    use_weights : bool
        Whether training instances, which hold no unseen label, are weighted so that they stand
        for a natural mix of instances.
    use_shifts : bool
        Whether labels are moved to be expected as often as documents hold them.
    seen_experts : sequence of {"kernel", "network"}
        Who is asked about seen labels.
    unseen_experts : sequence of {"linear", "context", "direct"}
        Who is asked about unseen labels.
    random_state : int, numpy Generator or None

    Attributes
    ----------
    seen_, unseen_ : int64 arrays
        Columns with and without training instances.
    priors_ : float64 array, shape (n_labels,)
        How often documents hold each label.
    mapper_ : InstanceMapper
        Kernel ridge regression onto seen labels.
    documents_ : DocumentExpert
    networks_ : InstanceNetworks
    penalty_ : float
        Of the regression from seen to unseen labels, chosen on labels made pseudo-unseen.
    shifts_ : float64 array, shape (n_labels,)
        What is added to each label's logit.
    thresholds_ : float64 array, shape (99,)
        How likely labels must be for a precision of 1, 2, … 99 %, on seen labels of training
        instances that the experts had not seen.

    Notes
    -----
    Shifts take it that instances hold a label as often as documents do. Where the documents come
    from another collection that uses labels otherwise, `use_shifts=False` is the better choice.
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
        self.random_state = random_state

    def fit(
        self,
        X: Features,
        matrix: sp.csr_matrix,
        documents: sp.csr_matrix,
        own: IntArray,
        groups: IntArray | None = None,
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
        """
        self._check_parameters()
        with one_thread_below(documents.shape[1]):
            return self._fit(X, matrix, documents, own, groups)

    def _fit(
        self,
        X: Features,
        matrix: sp.csr_matrix,
        documents: sp.csr_matrix,
        own: IntArray,
        groups: IntArray | None,
    ) -> Self:
        """Learn, step by step; see `fit`."""
        generator = as_generator(self.random_state)
        carried = np.asarray(matrix.sum(axis=0)).ravel() > 0
        self.seen_, self.unseen_ = np.flatnonzero(carried), np.flatnonzero(~carried)
        n_documents = documents.shape[0]
        counts = np.asarray(documents.sum(axis=0), dtype=np.float64).ravel()
        self.priors_ = (counts + 0.5) / (n_documents + 1)
        truth = np.asarray(matrix[:, self.seen_].toarray(), dtype=np.float64)
        folds = fold_numbers(n_documents, self.n_folds, generator, groups)
        mine = folds[own]
        mapper = InstanceMapper(kind="kernel-ridge", random_state=draw_seed(generator))
        self.mapper_ = mapper.fit(X, truth, None if groups is None else groups[own])
        kernel = out_of_fold(self.mapper_, X, truth, mine)
        ordered = sp.csr_matrix(documents[:, self._order], dtype=np.float64)
        self.penalty_ = self._choose_penalty(kernel, truth, ordered, generator)
        self.documents_ = DocumentExpert.learn(
            ordered,
            len(self.seen_),
            folds,
            self.penalty_,
            self.priors_[self._order],
            self.document_steps,
            generator,
        )
        soft, some = self.documents_.soft_targets(ordered, folds, own, self.penalty_)
        weights = np.ones(len(truth))
        if self.use_weights:
            weights = 1 / (1 - np.minimum(some, _MOST_CERTAIN))
            weights /= weights.mean()
        self.networks_ = InstanceNetworks.learn(
            X,
            np.hstack([truth, soft]),
            weights,
            mine,
            n_folds=int(folds.max()) + 1,
            nets_per_fold=self.nets_per_fold,
            n_steps=self.instance_steps,
            generator=generator,
        )
        self._held_out = (self._held_out_readings(X, kernel, mine), weights)
        self._shift(len(np.unique(mine)) > 1)
        logits = self._blended(self._held_out[0]) + self.shifts_
        self.thresholds_ = precision_thresholds(
            sigmoid(logits[:, self.seen_]), truth, weights, PRECISIONS
        )
        return self

    def _shift(self, possible: bool) -> Self:
        """Learn what brings labels to their priors, where there are held-out readings."""
        self.shifts_ = np.zeros(len(self.priors_))
        if self.use_shifts and possible:
            readings, weights = self._held_out
            self.shifts_ = label_shifts(self._blended(readings), weights, self.priors_)
        return self

    def with_experts(
        self, seen: tuple[str, ...], unseen: tuple[str, ...], *, use_shifts: bool = True
    ) -> LabelExperts:
        """Give the same experts, of whom others are asked; nothing is trained again.

        Parameters
        ----------
        seen, unseen : tuples of str
            As `seen_experts` and `unseen_experts`.
        use_shifts : bool

        Returns
        -------
        LabelExperts
            Needs experts that were fitted in this process, not loaded ones.
        """
        changed = {"seen_experts": seen, "unseen_experts": unseen, "use_shifts": use_shifts}
        other = LabelExperts(**(self.get_params() | changed))
        other._check_parameters()
        for name, value in vars(self).items():
            if name not in changed:
                setattr(other, name, value)
        return other._shift(bool(self.shifts_.any()))

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
        found = self._blended(readings) + self.shifts_
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

    def threshold_for(self, precision: float) -> float:
        """Say how likely labels must be for a share of them to be true; see `thresholds_`."""
        return float(np.interp(precision, PRECISIONS, self.thresholds_))

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

    def _blended(self, readings: Readings) -> Matrix:
        """Blend the experts that are asked."""
        found = np.empty((len(readings["network"]), len(self._order)))
        found[:, self.seen_] = blend([readings[name] for name in self.seen_experts])
        found[:, self.unseen_] = blend([readings[name] for name in self.unseen_experts])
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
        for name in ("nets_per_fold", "document_steps", "instance_steps"):
            if getattr(self, name) is not None:
                check_number(name, getattr(self, name), owner=owner, low=1, whole=True)
        for name, known in (("seen_experts", SEEN_EXPERTS), ("unseen_experts", UNSEEN_EXPERTS)):
            if not getattr(self, name):
                raise InputError(f"`{name}` of `{owner}` must name one expert at least.")
            for one in getattr(self, name):
                check_option(name, one, known, owner=owner)

    # ------------------------------------------------------------------ persistence

    def get_state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Give the fitted experts as JSON values and arrays, for saving without pickle."""
        parameters = self.get_params(deep=False)
        parameters.pop("random_state")
        mapper, arrays = self.mapper_.get_state()
        config = {
            "parameters": parameters
            | {name: list(parameters[name]) for name in ("seen_experts", "unseen_experts")},
            "mapper": mapper,
            "penalty": self.penalty_,
        }
        held = {f"mapper.{name}": one for name, one in arrays.items()}
        held |= {f"documents.{name}": one for name, one in self.documents_.get_state().items()}
        held |= {f"networks.{name}": one for name, one in self.networks_.get_state().items()}
        for name in ("seen", "unseen", "priors", "shifts", "thresholds"):
            held[name] = getattr(self, f"{name}_")
        return config, held

    @classmethod
    def from_state(cls, config: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Self:
        """Rebuild fitted experts from `get_state`."""

        def within(part: str) -> dict[str, NDArray[Any]]:
            start = f"{part}."
            return {n.removeprefix(start): a for n, a in arrays.items() if n.startswith(start)}

        parameters = dict(config["parameters"])
        for name in ("seen_experts", "unseen_experts"):
            parameters[name] = tuple(parameters[name])
        made = cls(**parameters)
        for name in ("seen", "unseen", "priors", "shifts", "thresholds"):
            setattr(made, f"{name}_", np.array(arrays[name]))
        made.penalty_ = float(config["penalty"])
        made.mapper_ = InstanceMapper.from_state(config["mapper"], within("mapper"))
        made.documents_ = DocumentExpert.from_state(len(made.seen_), within("documents"))
        made.networks_ = InstanceNetworks.from_state(within("networks"))
        return made
