"""What other packages add to this one by entry points: commands, datasets, extractors."""

from __future__ import annotations

import warnings
from importlib.metadata import entry_points
from typing import Any


def plugin_names(group: str) -> list[str]:
    """Return the sorted names of a group's entry points, without loading what they offer."""
    return sorted(point.name for point in entry_points(group=group))


def load_plugins(group: str) -> dict[str, Any]:
    """Return what other packages offer as entry points of a group, by their names.

    What cannot be imported is warned of and passed over, so that a package that was half removed
    takes nothing else with it.

    Parameters
    ----------
    group : str
        Such as "polyseme.datasets"; `docs/extend.md` lists the groups and what each holds.
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
