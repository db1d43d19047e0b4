"""What other packages add to this one by entry points: commands, datasets.

In: the name of a group. Out: what is found under it; what cannot be imported is told and passed
over, so that a package that was half removed takes nothing else with it.
"""

from __future__ import annotations

import warnings
from importlib.metadata import entry_points
from typing import Any


def load_plugins(group: str) -> dict[str, Any]:
    """Load what other packages offer under a name, by their own names for it.

    Parameters
    ----------
    group : str
        Such as "polyseme.datasets".
    """
    found = {}
    for one in entry_points(group=group):
        try:
            found[one.name] = one.load()
        except ImportError as error:
            from polyseme._validation import PolysemeWarning  # costs numpy

            owner = "a package" if one.dist is None else f"'{one.dist.name}'"
            warnings.warn(
                f"What {owner} adds to polyseme ('{one.name}') cannot be loaded and is passed "
                f"over: {error}; install that package again, or uninstall it.",
                PolysemeWarning,
                stacklevel=2,
            )
    return found
