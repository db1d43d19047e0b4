"""What other packages add to this one by entry points: commands, datasets, extractors."""

from __future__ import annotations

import warnings
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any

# Our own feature extractors by their kind of media, written as entry points are. They stand here
# and not in `media`, so that the command knows the kinds without loading any of the classes.
_OWN_EXTRACTORS = {
    "image": "polyseme.media.image:ImageFeatures",
    "audio": "polyseme.media.audio:AudioFeatures",
    "text": "polyseme.media.text:TextFeatures",
}
# The group of entry points by which other packages add theirs.
_EXTRACTOR_GROUP = "polyseme.extractors"


def extractor_kinds() -> tuple[str, ...]:
    """Return the kinds of media that have a feature extractor, without loading it: ours first."""
    return (*_OWN_EXTRACTORS, *plugin_names(_EXTRACTOR_GROUP))


def load_extractors() -> dict[str, Any]:
    """Load the classes of all feature extractors, by their kinds of media."""
    extractors = {}
    for kind, target in _OWN_EXTRACTORS.items():
        module_name, class_name = target.split(":")
        module = import_module(module_name)
        extractors[kind] = getattr(module, class_name)
    return extractors | load_plugins(_EXTRACTOR_GROUP)


def plugin_names(group: str) -> list[str]:
    """Return the sorted names of a group's entry points, without loading what they offer."""
    return sorted(point.name for point in entry_points(group=group))


def load_plugins(group: str) -> dict[str, Any]:
    """Return what other packages offer as entry points of a group, by their names.

    What cannot be imported is passed over with a warning, so that a package that was half removed
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
