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

import polyseme.calibration
import polyseme.linear_path
import polyseme.space
import polyseme.training
from polyseme._threads import one_blas_thread
from polyseme._validation import check_instances
from polyseme.documents import training_tables
from polyseme.space import ConceptSpace
from polyseme.store import ConceptStore
from polyseme.tagger import ZeroShotTagger
from polyseme.training import SpacePlan, TrainingData
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
    modules = [polyseme.calibration, polyseme.space, polyseme.training]
    if space.linear == 0:
        left_out.add("linear")
    else:
        modules.append(polyseme.linear_path)
    described = {
        # What the space leaves to its plan is described as the plan has it.
        name: repr(getattr(plan, name, None) if value is None and name != "n_steps" else value)
        for name, value in space.get_params().items()
    }
    return {
        "space": {name: value for name, value in described.items() if name not in left_out},
        # Without a pool and verdicts, what is said of them decides nothing.
        "plan": {name: one for name, one in asdict(plan).items() if name not in _OF_POOLS},
        "constants": {
            f"{module.__name__}.{_KNOWN_AS.get(name, name)}": repr(value)
            for module in modules
            for name, value in vars(module).items()
            if name.isupper() and name not in _LIMITS and _is_number(value)
        },
    }


# Bounds on what is accepted, which decide nothing of what is recorded, and what the space imports
# of the linear path; and former names.
_LIMITS = (
    *("MOST_FEATURE", "UNIT", "SKETCH", "_LEAST_SPREAD", "LEAST_SCALE", "_MOST_CODE"),
    *("MEASURED", "MOST_FEATURES", "SHRINKAGES", "VALIDATION_STEPS", "WARM_STEPS", "WARM_RATES"),
    *("_MOST_HOLDING", "_ROUNDING", "_COLUMNS_TOGETHER"),
)
_KNOWN_AS = {"MOST_THREADS": "_MOST_THREADS"}
_OF_POOLS = ("pool_steps", "pool_from", "pool_weight", "pool_hard", "verdict_weight")


def _is_number(value: object) -> bool:
    """Return whether a constant is a number, or several."""
    values = value if isinstance(value, tuple) else (value,)
    return all(isinstance(one, (int, float)) for one in values)


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
        return {} if self.plan is None else {"plan": SpacePlan(**self.plan)}

    def config(self, config: RunConfig) -> dict[str, Any]:
        """Return what decides its results; see `Method.config`."""
        asked = {
            "context": self.context,
            "priming": self.priming,
            "members": self.n_members,
            "levels": self.calibrated,
            "method": self.method,
        }
        learned = default_config(config, **self.trained)
        return super().config(config) | learned | {"asked": asked, "mix": self.mix}

    def scores(self, trial: Trial, X: NDArray[np.float32]) -> tuple[Any, Matrix]:
        """Score instances, without training again where that is possible; see `System.scores`."""
        name = f"space, {self.name}" if self.trained else "space"
        tagger = trial.default_tagger(name, **self.trained)
        changes = {"context": self.context, "priming": self.priming, "n_members": self.n_members}
        if not self.calibrated or any(value is not None for value in changes.values()):
            tagger = changed(trial, tagger, calibrated=self.calibrated, **changes)  # type: ignore[arg-type]
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
    space, data = copy(tagger.space_), _training_data(trial, tagger)
    shares = {"context": context, "priming": priming}
    space.set_params(**{name: value for name, value in shares.items() if value is not None})
    with one_blas_thread():
        if n_members is None:
            space.finish(data, space.members_, space.history_)
        else:
            space = _with_members(space, data, n_members)
    if not calibrated:
        n_labels = len(space.order_)
        space.calibration_ = space.calibration_._replace(
            slopes=np.ones(n_labels), intercepts=np.zeros(n_labels)
        )
    semantics = trial.known_documents.without_unused()
    store, _ = ConceptStore.of(space, tagger.store_.labels, semantics, trial.train_documents)
    made = copy(tagger)
    made.space_ = space
    return made.set_store(store)


def _training_data(trial: Trial, tagger: ZeroShotTagger) -> TrainingData:
    """Return what a trial's tagger was fitted with; its seed makes the folds the same."""
    tables = training_tables(trial.train_documents, trial.known_documents, tagger.classes_)
    X = check_instances(trial.train_features, len(trial.train_documents), owner="ZeroShotTagger")
    space = copy(tagger.space_)
    return space.prepare(
        tables.documents, X, tables.item_documents, tables.groups, tables.n_label_sets
    )[0]


def _with_members(space: ConceptSpace, data: TrainingData, n_members: int) -> ConceptSpace:
    """Return a fitted space of some members only, the first of each fold, calibrated by itself."""
    one_each = space.members_.select(slice(None, None, space.plan_.members_per_fold))
    made = copy(space)
    made.plan_ = replace(space.plan_, members_per_fold=1)
    made.finish(data, one_each, space.history_)
    if n_members >= len(one_each):
        return made
    size = n_members * made.plan_.code
    made.members_ = made.members_.select(slice(0, n_members))
    made.document_mean_ = made.document_mean_[:n_members]
    made.document_scatter_ = made.document_scatter_[:n_members]
    coordinates = made.mean_code_[len(one_each) * made.plan_.code :]
    made.axes_, made.mean_code_ = made.axes_[:size], np.append(made.mean_code_[:size], coordinates)
    made.derive()
    return made
