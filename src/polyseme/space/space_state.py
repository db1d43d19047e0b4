"""The state of a fitted concept space: as JSON values and arrays, checked before any is used.

In: a fitted `ConceptSpace`, or what a model file holds. Out: the other of both.

Terms: the *config* is the part of a state that JSON holds, the *arrays* have names of their own,
those of a part after its name and a dot ("linear.weights"). All names here are fixed by saved
models. *Sizes* are named, so that arrays which must fit each other say so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from polyseme.base.validation import MOST_FEATURE
from polyseme.space.calibration import PRECISIONS, Calibration, HeldOutSample, ReferenceSample
from polyseme.space.features import LEAST_SCALE, PROJECTION_SIZE
from polyseme.space.linear_path import LinearPath
from polyseme.space.members import Members, Shape
from polyseme.space.training import SpacePlan
from polyseme.storage.array_checks import (
    UNIT_LIMIT,
    Array,
    Fields,
    ListOf,
    MappingOf,
    Maybe,
    Number,
    Text,
    Whole,
    check_arrays,
    declare_parameters,
    require,
)
from polyseme.storage.model_file import as_python_value, part_arrays

if TYPE_CHECKING:
    from polyseme.space.concept_space import ConceptSpace

Arrays = Mapping[str, NDArray[Any]]

# Bounds a saved model's codes and what the linear path makes of features, so that their products
# are finite in single precision.
_MOST_CODE = 1e6

# Parameters of a space that JSON holds as they are; its plan becomes a table.
_PARAMETER_NAMES = ("n_folds", "members_per_fold", "n_steps", "context", "priming", "linear")
# Fitted attributes that are arrays, without the underscore at their end.
_ARRAY_NAMES = [
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

# What the config of a space holds.
_CONFIG = Fields(
    {
        "parameters": Fields(
            {
                "n_folds": Maybe(Whole(2)),
                "members_per_fold": Maybe(Whole(1)),
                "n_steps": Maybe(Whole(1)),
                "context": Number(0, 1),
                "priming": Number(0, 1),
                "linear": Maybe(Number(0, 100)),
                "plan": Maybe(declare_parameters(SpacePlan)),
            }
        ),
        "plan": declare_parameters(SpacePlan),
        "n_seen": Whole(0),
        "shape": ListOf(Whole(0), len(Shape._fields)),
        "history": ListOf(MappingOf(Number())),
        "data_digest": Text(),
        "digest": Text(),
    }
)
# Its arrays: dtype, sizes by name (`_check_state` has the numbers), least and largest value.
_DECLARED_ARRAYS = {
    "members.0": Array("float32", ("n_members", "item_weights")),
    "members.1": Array("float32", ("n_members", "document_weights")),
    "members.2": Array("float32", ("n_members", "readout_weights")),
    "order": Array("int64", ("n_labels",), 0, below="n_labels", distinct=True),
    # Above 0 and below 1, by far more than rounding: their logits are finite.
    "priors": Array("float64", ("n_labels",), 1e-15, 1 - 1e-15),
    "folds": Array("int64", ("n_in_folds",), 0, below="n_folds"),
    "mean": Array("float64", ("n_features",), -MOST_FEATURE, MOST_FEATURE),
    "scale": Array("float64", ("n_features",), LEAST_SCALE, 2 * MOST_FEATURE),
    "mean_code": Array("float64", ("item_dimensions",), -_MOST_CODE, _MOST_CODE),
    "mean_tags": Array("float64", ("item_tags",), 0, UNIT_LIMIT),
    "document_mean": Array("float64", ("n_members", "code"), -UNIT_LIMIT, UNIT_LIMIT),
    "document_scatter": Array("float64", ("n_members", "code", "code"), -UNIT_LIMIT, UNIT_LIMIT),
    "axes": Array("float32", ("n_members*code", "n_axes"), -UNIT_LIMIT, UNIT_LIMIT),
    "calibration.slopes": Array("float64", ("n_labels",), 0, 1e3),
    "calibration.intercepts": Array("float64", ("n_labels",), -1e3, 1e3),
    "calibration.thresholds": Array("float64", ("n_thresholds",), 0, 1),
    "held_out_sample.codes": Array(
        "float32", ("n_held_out", "members_per_fold*code"), -UNIT_LIMIT, UNIT_LIMIT, or_empty=True
    ),
    "held_out_sample.folds": Array("int64", ("n_held_out",), 0, below="n_folds"),
    "held_out_sample.weights": Array("float64", ("n_held_out",), 1e-9),
    "reference_sample.codes": Array(
        "float32", ("n_sampled", "n_dimensions"), -_MOST_CODE, _MOST_CODE, or_empty=True
    ),
    "reference_sample.projections": Array(
        "float32", ("n_sampled", "projection_size"), longest=UNIT_LIMIT, or_empty=True
    ),
    "reference_sample.weights": Array("float64", ("n_sampled",), 1e-9),
    "linear.weights": Array("float32", ("n_inputs", "n_coordinates"), -_MOST_CODE, _MOST_CODE),
    "linear.offsets": Array("float32", ("n_coordinates",), -_MOST_CODE, _MOST_CODE),
    "linear.labels": Array("float32", ("n_coordinates", "n_seen"), -1e3, 1e3),
    "linear.landmarks": Array("float32", ("n_landmarks", "n_features"), -_MOST_CODE, _MOST_CODE),
    "linear.scale": Array("float32", ("n_scales",), 0, _MOST_CODE),
}


def space_state(space: ConceptSpace) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Return a fitted space as JSON values and arrays, which it shares with the space."""
    parameter_values = {name: as_python_value(getattr(space, name)) for name in _PARAMETER_NAMES}
    parameter_values["plan"] = None
    if space.plan is not None:
        parameter_values["plan"] = _plan_values(space.plan)
    config = {
        "parameters": parameter_values,
        "plan": _plan_values(space.plan_),
        "n_seen": space.n_seen_,
        "shape": list(space.members_.shape),
        "history": space.history_,
        "data_digest": space.data_digest_,
        "digest": space.digest_,
    }
    weight_groups = {str(number): group for number, group in enumerate(space.members_.groups)}
    arrays_by_part = {
        "calibration": space.calibration_._asdict(),
        "held_out_sample": space.held_out_sample_._asdict(),
        "reference_sample": space.reference_sample_._asdict(),
        "linear": space.linear_._asdict(),
        "members": weight_groups,
    }
    arrays = {name: getattr(space, f"{name}_") for name in _ARRAY_NAMES}
    for part_name, arrays_of_part in arrays_by_part.items():
        for name, array in arrays_of_part.items():
            arrays[f"{part_name}.{name}"] = array
    return config, arrays


def restore_space(
    cls: type[ConceptSpace], config: Mapping[str, Any], arrays: Arrays
) -> ConceptSpace:
    """Rebuild a fitted space from copies of its state; one that is not as declared is refused."""
    _check_state(config, arrays)
    copies = {name: np.array(array) for name, array in arrays.items()}
    parameter_values = dict(config["parameters"])
    if parameter_values["plan"] is not None:
        parameter_values["plan"] = _plan_of(parameter_values["plan"])
    space = cls(**parameter_values)

    space.plan_ = _plan_of(config["plan"])
    space.n_seen_ = int(config["n_seen"])
    space.history_ = list(config["history"])
    space.data_digest_ = config["data_digest"]
    space.digest_ = config["digest"]
    weight_groups = part_arrays(copies, "members")
    groups = [weight_groups[str(number)] for number in range(len(weight_groups))]
    shape = Shape(*config["shape"])
    space.members_ = Members(shape, *groups)
    space.calibration_ = Calibration(**part_arrays(copies, "calibration"))
    space.held_out_sample_ = HeldOutSample(**part_arrays(copies, "held_out_sample"))
    space.reference_sample_ = ReferenceSample(**part_arrays(copies, "reference_sample"))
    space.linear_ = LinearPath(**part_arrays(copies, "linear"))
    for name in _ARRAY_NAMES:
        setattr(space, f"{name}_", copies[name])
    space.derive()
    return space


def _check_state(config: Mapping[str, Any], arrays: Arrays) -> None:
    """Raise on a state that is not as it was declared, before any of it is used."""
    _CONFIG.check(config)
    for plan_values in (config["plan"], config["parameters"]["plan"]):
        if plan_values is not None:
            _plan_of(plan_values).check()
    shape = Shape(*config["shape"])
    n_seen = config["n_seen"]
    smallest = min(shape.n_labels, shape.hidden, shape.code)
    is_shape = smallest > 0 and n_seen <= shape.n_labels
    require(is_shape, "shape", "that of a space")
    has_unseen = n_seen < shape.n_labels
    n_outputs = shape.n_labels + has_unseen
    require(shape.n_outputs == n_outputs, "shape", "one of as many outputs as labels")

    per_fold = config["plan"]["members_per_fold"]
    n_members = _n_rows(arrays, "members.2")
    are_whole_folds = n_members > 0 and n_members % per_fold == 0
    require(are_whole_folds, "members.2", "members of every fold")
    item_weights, document_weights, readout_weights = shape.n_weights
    n_coordinates = _n_rows(arrays, "linear.offsets")
    n_landmarks = _n_rows(arrays, "linear.landmarks")
    n_dimensions = n_members * shape.code + n_coordinates
    has_features = shape.n_features > 0
    sizes = check_arrays(
        arrays,
        _DECLARED_ARRAYS,
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
        n_inputs=n_landmarks or shape.n_features,
        n_scales=1 if n_landmarks else 0,
        n_dimensions=n_dimensions,
        item_dimensions=n_dimensions if has_features else 0,
        item_tags=n_seen if has_features else 0,
        projection_size=min(shape.n_features, PROJECTION_SIZE),
    )
    is_number = sizes["n_thresholds"] in (0, len(PRECISIONS))
    require(is_number, "calibration.thresholds", "0 or 99")


def _n_rows(arrays: Arrays, name: str) -> int:
    """Return how many rows an array has that was not checked yet; 0 where it is missing."""
    array = arrays.get(name)
    if array is None or not array.ndim:
        return 0
    return len(array)


def _plan_values(plan: SpacePlan) -> dict[str, Any]:
    """Return a plan as values that JSON knows."""
    values = {}
    for name, value in asdict(plan).items():
        values[name] = np.asarray(value).tolist()
    return values


def _plan_of(values: Mapping[str, Any]) -> SpacePlan:
    """Rebuild a plan from `_plan_values`, lists as tuples."""
    parameter_values = dict(values)
    for name, value in values.items():
        if isinstance(value, list):
            parameter_values[name] = tuple(value)
    return SpacePlan(**parameter_values)
