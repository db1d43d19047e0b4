"""Three small models and the means to write, compare and look at them, for the tests of saving."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from polyseme.persistence import write_model

Model = tuple[dict[str, Any], dict[str, np.ndarray]]

OLD: Model = ({"labels": ["jazz", "Köln"], "step": 1}, {"net.w": np.arange(6.0).reshape(2, 3)})
NEW: Model = ({"labels": ["folk"], "step": 2}, {"net.w": np.ones((3, 3)), "n": np.array(7)})
FIRST: Model = ({"step": 0}, {"net.w": np.zeros(4, dtype=np.float32)})


def write(path: Path, model: Model) -> None:
    write_model(path, "tagger", *model)


def same(got: Model, expected: Model) -> bool:
    return (
        got[0] == expected[0]
        and got[1].keys() == expected[1].keys()
        and all(
            got[1][name].dtype == array.dtype
            and got[1][name].shape == array.shape
            and got[1][name].tobytes() == array.tobytes()
            for name, array in expected[1].items()
        )
    )


def contents(path: Path) -> dict[str, bytes]:
    return {entry.name: entry.read_bytes() for entry in path.iterdir()}
