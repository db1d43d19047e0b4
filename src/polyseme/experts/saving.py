"""Fitted experts as JSON values and arrays, and back: nothing is pickled.

In: fitted experts. Out: what a model's folder keeps of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from polyseme._persistence import ModelFileError, plain, within
from polyseme.experts.documents import DocumentExpert
from polyseme.experts.instances import InstanceNetworks
from polyseme.experts.levels import Levels
from polyseme.mapping import InstanceMapper

if TYPE_CHECKING:
    from polyseme.experts.model import LabelExperts

Arrays = Mapping[str, NDArray[Any]]

_NOT_KEPT = ("random_state", "device")
_TUPLES = ("seen_experts", "unseen_experts", "slopes")
_ARRAYS = ("seen", "unseen", "priors", "frequencies", "reference_weights")


def experts_state(experts: LabelExperts) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Give fitted experts as JSON values and arrays."""
    given = experts.get_params(deep=False)
    parameters = {name: plain(value) for name, value in given.items() if name not in _NOT_KEPT}
    parameters |= {name: [plain(one) for one in given[name]] for name in _TUPLES}
    mapper, arrays = experts.mapper_.get_state()
    config = {
        "parameters": parameters,
        "mapper": mapper,
        "penalty": experts.penalty_,
    }
    parts = {
        "mapper": arrays,
        "documents": experts.documents_.get_state(),
        "networks": experts.networks_.get_state(),
        "reference": experts.reference_,
        "levels": experts.levels_._asdict(),
    }
    held = {f"{part}.{name}": one for part, some in parts.items() for name, one in some.items()}
    return config, held | {name: getattr(experts, f"{name}_") for name in _ARRAYS}


def experts_from_state(
    kind: type[LabelExperts], config: Mapping[str, Any], arrays: Arrays
) -> LabelExperts:
    """Rebuild fitted experts from `experts_state`; an earlier version's are refused."""
    if "levels.shifts" not in arrays:
        raise ModelFileError(
            "The model was written by an earlier version of polyseme, whose experts were others; "
            "fit it anew."
        )
    parameters = dict(config["parameters"])
    parameters |= {name: tuple(parameters[name]) for name in _TUPLES}
    made = kind(**parameters)
    for name in _ARRAYS:
        setattr(made, f"{name}_", np.array(arrays[name]))
    made.penalty_ = float(config["penalty"])
    made.reference_ = {name: np.array(one) for name, one in within(arrays, "reference").items()}
    levels = {name: np.array(one) for name, one in within(arrays, "levels").items()}
    made.levels_ = Levels(**levels)
    made.mapper_ = InstanceMapper.from_state(config["mapper"], within(arrays, "mapper"))
    made.documents_ = DocumentExpert.from_state(len(made.seen_), within(arrays, "documents"))
    made.networks_ = InstanceNetworks.from_state(within(arrays, "networks"))
    return made
