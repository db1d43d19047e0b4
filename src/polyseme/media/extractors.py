"""The feature extractor of each kind of media, with those that other packages add.

In: a kind such as "image". Out: the class of its extractor. `polyseme.base.plugins` lists ours;
another package names its own, by its kind, under the entry points "polyseme.extractors".
"""

from __future__ import annotations

from functools import cache

from polyseme.base.plugins import load_extractors
from polyseme.base.validation import unknown_name
from polyseme.media.base import MediaFeatures
from polyseme.storage.array_checks import Choice, name_part_in_errors, require
from polyseme.storage.model_file import Arrays, Config, part_arrays


@cache
def extractor_classes() -> dict[str, type[MediaFeatures]]:
    """Return the classes of all feature extractors by their kinds of media."""
    return load_extractors()


def extractor_class(kind: str) -> type[MediaFeatures]:
    """Return the class of the feature extractor of a kind of media, such as "image"."""
    classes = extractor_classes()
    if kind not in classes:
        raise unknown_name("kind of media", kind, classes)
    return classes[kind]


def media_suffixes() -> frozenset[str]:
    """Return the suffixes of all kinds of media files."""
    suffixes = [extractor.suffixes for extractor in extractor_classes().values()]
    return frozenset().union(*suffixes)


def extractor_of(config: Config, arrays: Arrays) -> MediaFeatures | None:
    """Rebuild the feature extractor of a saved tagger, where it has one.

    In the tagger's state, `media` is the extractor's kind or None; the extractor's own state is
    `features` of the values, and the arrays whose names begin with "features.".
    """
    kind = config["media"]
    has_state = "features" in config
    require(has_state == (kind is not None), "features", "there for media")
    if kind is None:
        return None
    kinds = tuple(extractor_classes())
    Choice(kinds).check(kind, "media")
    extractor_arrays = part_arrays(arrays, "features")
    with name_part_in_errors("features"):
        return extractor_class(kind).from_state(config["features"], extractor_arrays)
