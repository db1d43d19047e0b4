"""What other packages add to this one by entry points: commands, datasets."""

from __future__ import annotations

import warnings
from importlib.metadata import entry_points
from typing import Any


def load_plugins(group: str) -> dict[str, Any]:
    """Load what other packages offer under a name such as "polyseme.datasets", by its own names.

    What cannot be imported is told and passed over, so that a package that was half removed takes
    nothing else with it.
    """
    loaded = {}
    for point in entry_points(group=group):
        try:
            loaded[point.name] = point.load()
        except ImportError as error:
            from polyseme.base.validation import PolysemeWarning  # costs numpy

            owner = "a package" if point.dist is None else f"'{point.dist.name}'"
            warnings.warn(
                f"What {owner} adds to polyseme ('{point.name}') cannot be loaded and is passed "
                f"over: {error}; install that package again, or uninstall it.",
                PolysemeWarning,
                stacklevel=2,
            )
    return loaded
