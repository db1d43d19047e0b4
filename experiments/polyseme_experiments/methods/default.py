"""The default tagger, whole or with a part changed.

In: a `Trial` with features. Out: metrics of the test instances' label scores.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

import polyseme.space.calibration
import polyseme.space.concept_space
import polyseme.space.features
import polyseme.space.linear_path
import polyseme.space.space_fit
import polyseme.space.training
import polyseme.space.votes
from polyseme.base.machine import one_blas_thread
from polyseme.base.validation import check_instances
from polyseme.documents.label_sets import training_tables
from polyseme.scoring.known_documents import KnownDocuments
from polyseme.space.concept_space import ConceptSpace
from polyseme.space.space_fit import finish_fit, prepare_training
from polyseme.space.training import SpacePlan, TrainingData
from polyseme.tagger import ZeroShotTagger
from polyseme_experiments.embedding_cache import make_space
from polyseme_experiments.methods.base import Matrix, System
from polyseme_experiments.sampling import RunConfig
from polyseme_experiments.trials import Trial


def default_config(config: RunConfig, **parameters: Any) -> dict[str, Any]:
    """Return all that decides what a tagger learns, with parameters of its `ConceptSpace`."""
    space = make_space(config, **parameters)
    plan = space.plan or SpacePlan()
    # Records are made on the processor, whatever else could train the members.
    left_out = {"checkpoint", "device", "plan", "random_state"}
    # Named by what they are about, so that a file may be moved without making records stale.
    modules = [
        ("calibration", polyseme.space.calibration),
        ("space", polyseme.space.space_fit),
        ("space", polyseme.space.concept_space),
        ("space", polyseme.space.votes),
        ("training", polyseme.space.features),
        ("training", polyseme.space.training),
    ]
    if space.linear == 0:
        left_out.add("linear")
    else:
        modules.append(("linear_path", polyseme.space.linear_path))

    space_parameters = {}
    for name, value in space.get_params().items():
        # Parameters that the space leaves to its plan are described as the plan has them.
        if value is None and name != "n_steps":
            value = getattr(plan, name, None)
        if name not in left_out:
            space_parameters[name] = repr(value)

    constants = {}
    for subject, module in modules:
        for name, value in vars(module).items():
            if name.isupper() and name not in _LIMITS and _is_number(value):
                recorded_name = _KNOWN_AS.get(name, name)
                constants[f"{subject}.{recorded_name}"] = repr(value)

    # Without a pool and verdicts, the plan's fields about them decide nothing.
    fields = asdict(plan)
    plan_fields = {name: value for name, value in fields.items() if name not in _OF_POOLS}
    return {"space": space_parameters, "plan": plan_fields, "constants": constants}


# Bounds on what is accepted, which decide nothing of what is recorded, and what the space imports
# of the linear path; and former names.
_LIMITS = (
    *("MOST_FEATURE", "UNIT", "PROJECTION_SIZE", "_LEAST_SPREAD", "LEAST_SCALE", "_MOST_CODE"),
    *("RANKED_ITEMS", "MOST_FEATURES", "SHRINKAGES", "VALIDATION_STEPS", "WARM_STEPS"),
    *("WARM_RATES", "_MOST_HOLDING", "_ROUNDING", "_COLUMNS_TOGETHER", "_SMALLEST_TOTAL"),
    "_BLOCK_ITEMS",
    # Of the promise of a precision, which `methods.calibration` describes by itself.
    *("_FEWEST_GIVEN", "_FEWEST_WRONG", "_EXPECTED_COUNT", "_FEWEST_SHARING"),
    *("_STANDARD_ERRORS", "_MOST_READ", "_N_SIZES"),
)
_KNOWN_AS = {
    "MOST_THREADS": "_MOST_THREADS",
    "_BLOCK_VOTES": "_VOTES",
    "_MOST_SHIFT": "_FARTHEST",
    "_MOST_SPREADS": "_FARTHEST",
    "LOADING_ITEMS": "APPROXIMATED",
    "_BLOCK_ROWS": "_BLOCK",
    "_RIDGE_DOCUMENTS": "_FEW",
    "_PRIOR_HOLDERS": "_DOUBT",
    "_N_AXES": "_AXES",
    "_N_TURNS": "_TURNS",
    "_BLOCK_DOCUMENTS": "_DOCUMENTS",
    "_CALIBRATION_ITEMS": "_CALIBRATED",
    "_KEPT_ITEMS": "_REFERENCE",
    "_LEAST_PROBABILITY": "_SMALLEST",
    "_PRIOR_DOCUMENTS": "_USUAL",
}
_OF_POOLS = ("pool_steps", "pool_from", "pool_weight", "pool_hard", "verdict_weight")


def _is_number(value: object) -> bool:
    """Return whether a constant is a number, or several."""
    values = value if isinstance(value, tuple) else (value,)
    return all(type(number) in (int, float) for number in values)


@dataclass(frozen=True)
class DefaultSystem(System):
    """The default tagger, whole or with a part left out."""

    context: float | None = None  # another share of probable tags; see `ConceptSpace`
    priming: float | None = None  # another share of known documents
    n_members: int | None = None  # how many members are used, at most one for each fold
    calibrated: bool = True  # whether labels have slopes and intercepts
    plan: Mapping[str, Any] | None = None  # of the `SpacePlan`, where it is trained in another way
    method: str = "space"  # or "priming", as in `ZeroShotTagger.predict_proba`

    @property
    def trained(self) -> dict[str, Any]:
        """Return the parameters of its `ConceptSpace` that are not the default's."""
        if self.plan is None:
            return {}
        return {"plan": SpacePlan(**self.plan)}

    def config(self, config: RunConfig) -> dict[str, Any]:
        """Return what decides its results; see `Method.config`."""
        changes = {
            "context": self.context,
            "priming": self.priming,
            "members": self.n_members,
            "levels": self.calibrated,
            "method": self.method,
        }
        described = super().config(config)
        described |= default_config(config, **self.trained)
        described["asked"] = changes
        described["mix"] = self.mix
        return described

    def scores(self, trial: Trial, X: NDArray[np.float32]) -> tuple[Any, Matrix]:
        """Score instances, without training again where that is possible; see `System.scores`."""
        name = f"space, {self.name}" if self.trained else "space"
        tagger = trial.default_tagger(name, **self.trained)
        changes = (self.context, self.priming, self.n_members)
        is_whole = self.calibrated and all(value is None for value in changes)
        if not is_whole:
            tagger = changed(
                trial,
                tagger,
                context=self.context,
                priming=self.priming,
                n_members=self.n_members,
                calibrated=self.calibrated,
            )
        return tagger, tagger.predict_proba(X, method=self.method)


def changed(
    trial: Trial,
    tagger: ZeroShotTagger,
    *,
    context: float | None = None,
    priming: float | None = None,
    n_members: int | None = None,
    calibrated: bool = True,
) -> ZeroShotTagger:
    """Return a copy of a fitted tagger of this trial with changed parts, not trained again.

    Its members are the same, or the first `n_members` of different folds; it is calibrated anew on
    the same held-out items. Parameters are as in `DefaultSystem`.
    """
    space = copy(tagger.space_)
    data = _training_data(trial, tagger)
    if context is not None:
        space.set_params(context=context)
    if priming is not None:
        space.set_params(priming=priming)
    with one_blas_thread():
        if n_members is None:
            finish_fit(space, data, space.members_, space.history_)
        else:
            space = _with_members(space, data, n_members)
    if not calibrated:
        n_labels = len(space.order_)
        space.calibration_ = space.calibration_._replace(
            slopes=np.ones(n_labels),
            intercepts=np.zeros(n_labels),
        )
    semantics = trial.known_documents.without_unused()
    labels = tagger.store_.labels
    store, _ = KnownDocuments.of(space, labels, semantics, trial.train_documents)
    changed_tagger = copy(tagger)
    changed_tagger.space_ = space
    return changed_tagger._update(store_=store)


def _training_data(trial: Trial, tagger: ZeroShotTagger) -> TrainingData:
    """Return what a trial's tagger was fitted with; its seed makes the folds the same."""
    documents = trial.train_documents
    tables = training_tables(documents, trial.known_documents, tagger.classes_)
    X = check_instances(trial.train_features, len(documents), owner="ZeroShotTagger")
    space = copy(tagger.space_)
    data, _ = prepare_training(
        space,
        tables.documents,
        X,
        tables.item_documents,
        tables.groups,
        tables.n_label_sets,
    )
    return data


def _with_members(space: ConceptSpace, data: TrainingData, n_members: int) -> ConceptSpace:
    """Return a fitted space of some members only, the first of each fold, calibrated by itself."""
    first_of_folds = slice(None, None, space.plan_.members_per_fold)
    members = space.members_.select(first_of_folds)
    smaller = copy(space)
    smaller.plan_ = replace(space.plan_, members_per_fold=1)
    finish_fit(smaller, data, members, space.history_)
    if n_members >= len(members):
        return smaller

    code_size = smaller.plan_.code
    n_kept = n_members * code_size
    smaller.members_ = smaller.members_.select(slice(0, n_members))
    smaller.document_mean_ = smaller.document_mean_[:n_members]
    smaller.document_scatter_ = smaller.document_scatter_[:n_members]
    smaller.axes_ = smaller.axes_[:n_kept]
    # The mean code ends with coordinates that belong to no member.
    mean_code = smaller.mean_code_
    start = len(members) * code_size
    coordinates = mean_code[start:]
    first_codes = mean_code[:n_kept]
    smaller.mean_code_ = np.append(first_codes, coordinates)
    smaller.derive()
    return smaller
