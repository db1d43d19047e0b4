"""Feature extractors: media files and arrays become feature matrices.

In: pictures or sound, as files or arrays. Out: features (n, n_features) for the tagger. Extraction
learns nothing; a codebook is learned by `fit` and saved with the model. A new kind of media is one
file and one line in EXTRACTORS.
"""

from __future__ import annotations

from polyseme.base.validation import unknown_name
from polyseme.media.audio import AudioFeatures
from polyseme.media.base import Extracted, MediaError, MediaFeatures
from polyseme.media.extraction import extract_folder, read_extraction
from polyseme.media.image import ImageFeatures
from polyseme.storage.array_checks import part, require
from polyseme.storage.model_file import Arrays, Config, within

__all__ = [
    "AudioFeatures",
    "Extracted",
    "ImageFeatures",
    "MediaError",
    "MediaFeatures",
    "extract_folder",
    "extractor_class",
    "extractor_of",
    "read_extraction",
]

EXTRACTORS: dict[str, type[MediaFeatures]] = {"image": ImageFeatures, "audio": AudioFeatures}


def extractor_of(config: Config, arrays: Arrays) -> MediaFeatures | None:
    """Rebuild the feature extractor of a saved tagger, where it has one."""
    kind = config["media"]
    require((kind is None) == ("features" not in config), "features", "there for media")
    if kind is None:
        return None
    with part("features"):
        extractor = extractor_class(kind)
        return extractor.from_state(config["features"], within(arrays, "features"))


def extractor_class(kind: str) -> type[MediaFeatures]:
    """Return the feature extractor of a kind of media: "image" or "audio"."""
    if kind not in EXTRACTORS:
        raise unknown_name("kind of media", kind, EXTRACTORS)
    return EXTRACTORS[kind]
